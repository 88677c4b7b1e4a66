#include "common/base.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "common/clock.h"
#include "common/error.h"
#include "common/id.h"
#include "common/language.h"

/* ---- base ---- */

static void strings_compare_at_their_ends(void **state)
{
    (void)state;
    assert_true(str_eq("a", "a"));
    assert_true(str_eq(NULL, NULL));
    assert_false(str_eq("a", NULL));
    assert_false(str_eq(NULL, ""));
    assert_true(str_starts("abc", "ab"));
    assert_true(str_starts("abc", ""));
    assert_false(str_starts("a", "ab"));
    assert_true(str_ends("abc", "bc"));
    assert_true(str_ends("abc", ""));
    assert_false(str_ends("c", "bc"));
}

static void copies_are_whole(void **state)
{
    auto_free char *formatted = xasprintf("%s-%d", "a", 7);
    auto_free char *cut = xstrndup("abcdef", 3);
    auto_free char *bytes = xmemdup("a\0b", 3);
    auto_free int *zeros = xcalloc(3, sizeof *zeros);
    auto_free char *nothing = xcalloc(0, 0);

    (void)state;
    assert_string_equal(formatted, "a-7");
    assert_string_equal(cut, "abc");
    assert_memory_equal(bytes, "a\0b\0", 4);
    assert_int_equal(zeros[0] | zeros[1] | zeros[2], 0);
    assert_non_null(nothing);
    assert_null(xstrdup(NULL));
}

static int open_null(void) { return open("/dev/null", O_RDONLY | O_CLOEXEC); }

static void stealing_disarms_the_clean_up(void **state)
{
    int kept, closed;
    char *text;

    (void)state;
    {
        auto_close int a = open_null();
        auto_close int b = open_null();
        auto_free char *s = xstrdup("kept");
        closed = a;
        kept = steal_fd(&b);
        text = steal_ptr(&s);
        assert_int_equal(b, -1);
        assert_null(s);
    }
    assert_int_equal(fcntl(closed, F_GETFD), -1);
    assert_int_not_equal(fcntl(kept, F_GETFD), -1);
    assert_string_equal(text, "kept");
    (void)close(kept);
    free(text);
}

/* ---- error ---- */

static void errors_carry_kind_and_text(void **state)
{
    struct error err = { .retry_after_s = 5 };

    (void)state;
    assert_int_equal(error_set(&err, ERR_BUSY, "queue %d", 3), -1);
    assert_int_equal(err.kind, ERR_BUSY);
    assert_int_equal(err.retry_after_s, 0);
    assert_string_equal(err.msg, "queue 3");
    err.retry_after_s = 9;
    assert_int_equal(error_wrap(&err, "session %s", "x"), -1);
    assert_int_equal(err.kind, ERR_BUSY);
    assert_int_equal(err.retry_after_s, 9);
    assert_string_equal(err.msg, "session x: queue 3");
}

static void errno_values_choose_the_kind(void **state)
{
    static const struct {
        int errnum;
        enum error_kind kind;
    } cases[] = {
        { ENOENT, ERR_NOT_FOUND }, { ETIMEDOUT, ERR_TIMEOUT }, { ENOSPC, ERR_LIMIT },
        { EDQUOT, ERR_LIMIT },     { EFBIG, ERR_LIMIT },       { EIO, ERR_INTERNAL },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct error err;
        assert_int_equal(error_errno(&err, cases[i].errnum, "open %s", "x"), -1);
        assert_int_equal(err.kind, cases[i].kind);
        assert_true(str_starts(err.msg, "open x: "));
    }
}

static void long_messages_are_cut_not_overrun(void **state)
{
    char text[2 * sizeof((struct error *)0)->msg];
    struct error err;

    (void)state;
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    (void)error_set(&err, ERR_INTERNAL, "%s", text);
    assert_int_equal(strlen(err.msg), sizeof err.msg - 1);
    (void)error_wrap(&err, "%s", text);
    assert_int_equal(strlen(err.msg), sizeof err.msg - 1);
    (void)error_errno(&err, EIO, "%s", text);
    assert_int_equal(strlen(err.msg), sizeof err.msg - 1);
    (void)error_set(&err, ERR_INTERNAL, "end");
    (void)error_wrap(&err, "begin");
    assert_string_equal(err.msg, "begin: end");
}

static void every_kind_has_a_machine_word_of_its_own(void **state)
{
    (void)state;
    for (int i = 0; i < ERR_KIND_COUNT; i++) {
        const char *name = error_kind_name((enum error_kind)i);
        assert_non_null(name);
        for (const char *p = name; *p; p++)
            assert_true(islower(*p) || *p == '_');
        for (int j = 0; j < i; j++)
            assert_string_not_equal(name, error_kind_name((enum error_kind)j));
    }
}

/* ---- clock, id ---- */

static void clocks_agree(void **state)
{
    (void)state;
    int64_t before = clock_mono_ms(), us = clock_mono_us(), after = clock_mono_ms();
    assert_true(before <= us / 1000 && us / 1000 <= after);
    assert_true(clock_real_ms() > INT64_C(1700000000000));
}

static void times_are_written_in_utc(void **state)
{
    char out[CLOCK_ISO_SIZE];

    (void)state;
    clock_iso(0, out);
    assert_string_equal(out, "1970-01-01T00:00:00.000Z");
    clock_iso(INT64_C(1769853600007), out);
    assert_string_equal(out, "2026-01-31T10:00:00.007Z");
}

static void ids_are_valid_and_differ(void **state)
{
    char ids[200][ID_SIZE];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(ids); i++) {
        id_new(ids[i]);
        assert_true(id_valid(ids[i]));
        for (size_t j = 0; j < i; j++)
            assert_string_not_equal(ids[i], ids[j]);
    }
}

static void ids_have_exactly_one_form(void **state)
{
    static const char *const bad[] = {
        "",
        "abcdefghijklmnopqrst",
        "abcdefghijklmnopqrstuv",
        "abcdefghijklmnopqrst/",
        "abcdefghijklmnopqrst ",
        "../../../../etc/passw",
        "abcdefghijklmnopqrs\xc3\xa4",
        NULL,
    };

    (void)state;
    assert_true(id_valid("AZaz09_-AZaz09_-AZaz0"));
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_false(id_valid(bad[i]));
}

/* ---- language ---- */

static void every_language_can_be_run(void **state)
{
    (void)state;
    for (size_t i = 0; i < language_count(); i++) {
        const struct language *l = language_at(i);
        assert_ptr_equal(language_find(l->name), l);
        for (size_t a = 0; a < ARRAY_LEN(l->aliases) && l->aliases[a]; a++)
            assert_ptr_equal(language_find(l->aliases[a]), l); /* nobody before it answers to the name */
        assert_non_null(l->runtime);
        assert_non_null(l->source);
        assert_non_null(l->run[0]);
        assert_null(l->compile[LANGUAGE_MAX_WORDS - 1]);
        assert_null(l->run[LANGUAGE_MAX_WORDS - 1]);
        assert_null(l->env[ARRAY_LEN(l->env) - 1]);
        assert_null(l->aliases[ARRAY_LEN(l->aliases) - 1]);
    }
}

static void languages_go_by_many_names(void **state)
{
    static const char *const cases[][2] = {
        { "Python", "py" },     { "PY", "py" },   { "sh", "bash" }, { "node", "js" },
        { "typescript", "ts" }, { "c++", "cpp" }, { "C", "c" },     { "golang", "go" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        assert_string_equal(language_find(cases[i][0])->name, cases[i][1]);
    assert_null(language_find("cobol"));
    assert_null(language_find(""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strings_compare_at_their_ends),
        cmocka_unit_test(copies_are_whole),
        cmocka_unit_test(stealing_disarms_the_clean_up),
        cmocka_unit_test(errors_carry_kind_and_text),
        cmocka_unit_test(errno_values_choose_the_kind),
        cmocka_unit_test(long_messages_are_cut_not_overrun),
        cmocka_unit_test(every_kind_has_a_machine_word_of_its_own),
        cmocka_unit_test(clocks_agree),
        cmocka_unit_test(times_are_written_in_utc),
        cmocka_unit_test(ids_are_valid_and_differ),
        cmocka_unit_test(ids_have_exactly_one_form),
        cmocka_unit_test(every_language_can_be_run),
        cmocka_unit_test(languages_go_by_many_names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
