#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "orchestrator/files/store.h"

static void good_names_are_normalised(void **state)
{
    static const struct {
        const char *name, *path;
    } cases[] = {
        { "data.csv", "data.csv" },
        { "/mnt/data/data.csv", "data.csv" },
        { "mnt/data/a/b.csv", "a/b.csv" },
        { "/mnt/data/mnt/datas", "mnt/datas" },
        { "a/b/c", "a/b/c" },
        { ".hidden", ".hidden" },
        { "...", "..." },
        { "..a", "..a" },
        { "a b  c.txt", "a b  c.txt" },
        { "re\xcc\x81sume\xcc\x81 r\xc3\xa9sum\xc3\xa9.pdf",
          "re\xcc\x81sume\xcc\x81 r\xc3\xa9sum\xc3\xa9.pdf" },
        { "\xd0\xbe\xd1\x82\xd1\x87\xd1\x91\xd1\x82 \xf0\x9f\x9a\x80 \xe5\xa0\xb1\xe5\x91\x8a.txt",
          "\xd0\xbe\xd1\x82\xd1\x87\xd1\x91\xd1\x82 \xf0\x9f\x9a\x80 \xe5\xa0\xb1\xe5\x91\x8a.txt" },
        { "quo\"te's.txt", "quo\"te's.txt" },
        { "two\nlines", "two\nlines" },
        { "-rf", "-rf" },
        { "mnt/other", "mnt/other" },
        { "C:x", "C:x" },
        { "\xf4\x8f\xbf\xbf", "\xf4\x8f\xbf\xbf" },
        { "\xed\x9f\xbf\xee\x80\x80", "\xed\x9f\xbf\xee\x80\x80" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct error err = { 0 };
        auto_free char *path = NULL, *again = NULL;
        if (file_name_check(cases[i].name, &path, &err) < 0)
            fail_msg("%s: %s", cases[i].name, err.msg);
        assert_string_equal(path, cases[i].path);
        assert_int_equal(file_name_check(path, &again, &err), 0);
        assert_string_equal(again, path);
    }
}

static void bad_names_are_refused(void **state)
{
    static const char *const cases[] = {
        "",
        "/",
        ".",
        "..",
        "../x",
        "a/../b",
        "a/..",
        "./x",
        "a/./b",
        "a//b",
        "a/",
        "/etc/passwd",
        "//mnt/data/x",
        "/mnt/data",
        "/mnt/data/",
        "/mnt/data/../x",
        "/mnt/data//x",
        "/mnt/data//mnt/data/x",
        "mnt/data",
        "mnt/data/",
        "mnt/data/mnt/data/x",
        "/mnt/data/mnt/data",
        "a\\b",
        "..\\..\\x",
        "bad\xff",
        "\xc0\xaf",
        "\xe0\x80\xaf",
        "\xed\xa0\x80",
        "\xf4\x90\x80\x80",
        "\xf0\x9f\x9a",
        "\x80",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct error err = { 0 };
        char *path = NULL;
        if (file_name_check(cases[i], &path, &err) == 0)
            fail_msg("accepted: %s as %s", cases[i], path);
        assert_int_equal(err.kind, ERR_INVALID);
        assert_true(str_starts(err.msg, "file name: "));
    }
}

/* Builds a name of equal segments: "xx/xx/xx". */
static char *segments(size_t count, size_t length)
{
    char *name = xcalloc(1, count * (length + 1) + 1);

    memset(name, 'x', count * (length + 1) - 1);
    for (size_t i = 1; i < count; i++)
        name[i * (length + 1) - 1] = '/';
    return name;
}

static void lengths_are_limited(void **state)
{
    static const struct {
        const char *prefix;
        size_t count, length;
        bool good;
    } cases[] = {
        { "", 1, 255, true },           { "", 1, 256, false },
        { "", 4, 255, true },           { "", 5, 204, true },
        { "", 5, 205, false },          { "", 32, 1, true },
        { "", 33, 1, false },           { "/mnt/data/", 4, 255, true },
        { "/mnt/data/", 5, 204, true }, { "/mnt/data/", 5, 205, false },
        { "", 10000, 100, false },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct error err = { 0 };
        auto_free char *path = NULL;
        auto_free char *tail = segments(cases[i].count, cases[i].length);
        auto_free char *name = xasprintf("%s%s", cases[i].prefix, tail);
        assert_int_equal(file_name_check(name, &path, &err), cases[i].good ? 0 : -1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_names_are_normalised),
        cmocka_unit_test(bad_names_are_refused),
        cmocka_unit_test(lengths_are_limited),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
