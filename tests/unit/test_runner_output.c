#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "runner/elide.h"
#include "runner/output.h"

struct told {
    struct output output;
    struct eventlog log;
    struct buf text; /* all frames together */
};

static void told_init(struct told *t, size_t max)
{
    output_init(&t->output, FRAME_STDOUT, max);
    eventlog_init(&t->log, 1 << 20);
    buf_init(&t->text, 1 << 20);
}

static void told_done(struct told *t)
{
    output_done(&t->output);
    eventlog_done(&t->log);
    buf_done(&t->text);
}

static void add(struct told *t, const char *data, size_t len)
{
    struct error err = { 0 };
    assert_int_equal(output_add(&t->output, &t->log, data, len, &err), 0);
}

/* Puts the payloads of the log together; every frame must be whole UTF-8 when whole is set. */
static const char *read_back(struct told *t, bool whole)
{
    struct frame_reader r;
    struct error err = { 0 };
    struct frame f;
    bool have = true;

    frame_reader_init(&r, 1 << 20);
    assert_int_equal(frame_reader_feed(&r, t->log.bytes.data, t->log.bytes.len, &err), 0);
    t->text.len = 0;
    while (frame_reader_next(&r, &f, &have, &err) == 0 && have) {
        assert_int_equal(f.type, FRAME_STDOUT);
        if (whole)
            assert_int_equal(utf8_whole(f.payload, f.len, f.len), f.len);
        assert_int_equal(buf_add(&t->text, f.payload, f.len, &err), 0);
    }
    frame_reader_done(&r);
    return t->text.data ? t->text.data : "";
}

static const char *finish(struct told *t, bool whole)
{
    struct error err = { 0 };
    assert_int_equal(output_finish(&t->output, &t->log, &err), 0);
    return read_back(t, whole);
}

static void output_under_the_cap_is_told_as_it_comes(void **state)
{
    struct told t;

    (void)state;
    told_init(&t, 100);
    add(&t, "one\n", 4);
    assert_string_equal(read_back(&t, true), "one\n");
    add(&t, "two\n", 4);
    assert_int_equal(t.log.count, 2);
    assert_string_equal(finish(&t, true), "one\ntwo\n");
    assert_false(output_truncated(&t.output));
    told_done(&t);
}

static void middle_is_left_out_past_the_cap(void **state)
{
    static const char alphabet[] = "abcdefghijklmnopqrstuvwxyz";
    static const struct {
        size_t max, len;
        const char *expect;
    } cases[] = {
        { 8, 8, "abcdefgh" },
        { 8, 9, "abcdef\n[... 1 bytes left out ...]\nhi" },
        { 8, 26, "abcdef\n[... 18 bytes left out ...]\nyz" },
        { 4, 5, "abc\n[... 1 bytes left out ...]\ne" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        for (size_t chunk = 1; chunk <= 26; chunk++) {
            struct told t;
            told_init(&t, cases[i].max);
            for (size_t at = 0; at < cases[i].len; at += chunk)
                add(&t, alphabet + at, MIN(chunk, cases[i].len - at));
            assert_string_equal(finish(&t, true), cases[i].expect);
            assert_int_equal(output_truncated(&t.output), cases[i].len > cases[i].max);
            told_done(&t);
        }
}

static void utf8_sequences_are_never_cut(void **state)
{
    static const char text[] = "a\u00e4\u20ac\U0001f600z"; /* 1, 2, 3, 4 and 1 bytes */

    (void)state;
    for (size_t max = 4; max < 48; max++)
        for (size_t chunk = 1; chunk < sizeof text; chunk++) {
            struct told t;
            told_init(&t, max);
            for (int repeat = 0; repeat < 3; repeat++)
                for (size_t at = 0; at < sizeof text - 1; at += chunk)
                    add(&t, text + at, MIN(chunk, sizeof text - 1 - at));
            (void)finish(&t, true);
            told_done(&t);
        }
}

static void bytes_that_are_no_text_come_through(void **state)
{
    static const char binary[] = "\xff\xfe\x00\xe4\xc3(\xf0\x9f\x80\x80\x80\xe2\x82";

    (void)state;
    for (size_t chunk = 1; chunk <= sizeof binary; chunk++) {
        struct told t;
        told_init(&t, 100);
        for (size_t at = 0; at < sizeof binary - 1; at += chunk)
            add(&t, binary + at, MIN(chunk, sizeof binary - 1 - at));
        (void)finish(&t, false);
        assert_int_equal(t.text.len, sizeof binary - 1);
        assert_memory_equal(t.text.data, binary, sizeof binary - 1);
        told_done(&t);
    }
}

static void flood_is_noticed_at_64_times_the_cap(void **state)
{
    struct told t;

    (void)state;
    told_init(&t, 4);
    for (int i = 0; i < 64; i++)
        add(&t, "abcd", 4);
    assert_false(output_flooded(&t.output));
    add(&t, "e", 1);
    assert_true(output_flooded(&t.output));
    told_done(&t);
}

static void dropped_bytes_are_stated(void **state)
{
    struct told t;

    (void)state;
    told_init(&t, 8);
    add(&t, "ab", 2);
    output_drop(&t.output, 1000);
    assert_string_equal(finish(&t, true), "ab\n[... 1000 bytes left out ...]\n");
    assert_true(output_truncated(&t.output));
    told_done(&t);
}

static void events_are_found_by_number(void **state)
{
    struct told t;
    size_t pos = 99;

    (void)state;
    told_init(&t, 100);
    assert_true(eventlog_seek(&t.log, 0, &pos));
    assert_int_equal(pos, 0);
    add(&t, "abc", 3);
    add(&t, "de", 2);
    assert_true(eventlog_seek(&t.log, 1, &pos));
    assert_int_equal(pos, FRAME_HEADER + 3);
    assert_true(eventlog_seek(&t.log, 2, &pos));
    assert_int_equal(pos, t.log.bytes.len);
    assert_false(eventlog_seek(&t.log, 3, &pos));
    assert_false(eventlog_seek(&t.log, UINT64_MAX, &pos));
    told_done(&t);
}

static void build_directory_is_elided(void **state)
{
    static const struct {
        const char *text, *expect;
    } cases[] = {
        { "/tmp/run-a/main.c:1: no\n", "main.c:1: no\n" },
        { "in /tmp/run-a/x and /tmp/run-a/y", "in x and y" },
        { "/tmp/run-b/main.c", "/tmp/run-b/main.c" },
        { "//tmp/run-a/x", "/x" },
        { "/tmp/tmp/run-a/x", "/tmpx" },
        { "/tmp/run-/tmp/run-a/x", "/tmp/run-x" },
        { "ends in /tmp/run", "ends in /tmp/run" },
        { "", "" },
    };
    struct error err = { 0 };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        for (size_t chunk = 1; chunk <= 30; chunk++) {
            struct elide e;
            auto_buf struct buf out = { .max = 1000 };
            size_t len = strlen(cases[i].text);
            elide_init(&e, "/tmp/run-a/");
            for (size_t at = 0; at < len; at += chunk)
                assert_int_equal(elide_add(&e, cases[i].text + at, MIN(chunk, len - at), &out, &err), 0);
            assert_int_equal(elide_finish(&e, &out, &err), 0);
            assert_string_equal(out.data, cases[i].expect);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(output_under_the_cap_is_told_as_it_comes),
        cmocka_unit_test(middle_is_left_out_past_the_cap),
        cmocka_unit_test(utf8_sequences_are_never_cut),
        cmocka_unit_test(bytes_that_are_no_text_come_through),
        cmocka_unit_test(flood_is_noticed_at_64_times_the_cap),
        cmocka_unit_test(dropped_bytes_are_stated),
        cmocka_unit_test(events_are_found_by_number),
        cmocka_unit_test(build_directory_is_elided),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
