#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "runner/display.h"
#include "runner/display_file.h"
#include "runner/jupyter.h"

static struct jupyter_part part(const char *text) { return (struct jupyter_part){ text, strlen(text) }; }

static void head_is_read_behind_identities(void **state)
{
    const struct jupyter_part parts[] = { part("topic"),
                                          part("more"),
                                          part("<IDS|MSG>"),
                                          part("sig"),
                                          part("{\"msg_type\":\"stream\"}"),
                                          part("{\"msg_id\":\"m1\"}"),
                                          part("{}"),
                                          part("{\"name\":\"stdout\",\"text\":\"hi\"}"),
                                          part("buffer") };
    json_auto_t *content = NULL;
    struct jupyter_stream s;
    struct jupyter_head h;
    struct error err = { 0 };

    (void)state;
    jupyter_read_head(parts, ARRAY_LEN(parts), &h);
    assert_int_equal(h.type, JUPYTER_STREAM);
    assert_string_equal(h.parent, "m1");
    assert_int_equal(jupyter_read_content(&h, &content, &err), 0);
    assert_true(jupyter_read_stream(content, &s));
    assert_false(s.is_stderr);
    assert_memory_equal(s.text.data, "hi", 2);
}

static void nonsense_has_no_type(void **state)
{
    static const struct {
        const char *header, *parent;
        enum jupyter_type type;
        const char *id;
    } cases[] = {
        { "", "{}", JUPYTER_OTHER, "" },
        { "{", "{}", JUPYTER_OTHER, "" },
        { "[]", "{}", JUPYTER_OTHER, "" },
        { "{\"msg_type\":5}", "{}", JUPYTER_OTHER, "" },
        { "{\"msg_type\":\"comm_open\"}", "{}", JUPYTER_OTHER, "" },
        { "{\"msg_type\":\"status\"}", "nonsense", JUPYTER_OTHER, "" },
        { "{\"msg_type\":\"status\"}", "{\"msg_id\":7}", JUPYTER_STATUS, "" },
        { "{\"msg_type\":\"status\"}", "{\"msg_id\":\"a\\u0000b\"}", JUPYTER_STATUS, "" },
        { "{\"msg_type\":\"error\"}",
          "{\"msg_id\":\"0123456789012345678901234567890123456789012345678901234567890123\"}", JUPYTER_ERROR,
          "" },
        { "{\"msg_type\":\"error\",\"x\":\"\xff\"}", "{\"msg_id\":\"m\"}", JUPYTER_ERROR, "m" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct jupyter_part parts[] = { part("<IDS|MSG>"),     part(""),   part(cases[i].header),
                                              part(cases[i].parent), part("{}"), part("{}") };
        struct jupyter_head h;
        jupyter_read_head(parts, ARRAY_LEN(parts), &h);
        assert_int_equal(h.type, cases[i].type);
        assert_string_equal(h.parent, cases[i].id);
        for (size_t n = 0; n < ARRAY_LEN(parts); n++) { /* too few parts */
            jupyter_read_head(parts, n, &h);
            assert_int_equal(h.type, JUPYTER_OTHER);
        }
    }
}

static void deep_or_broken_content_is_an_error(void **state)
{
    struct jupyter_head h = { .type = JUPYTER_STREAM };
    auto_free char *deep = xcalloc(1, 12001);
    struct error err = { 0 };
    json_t *content = NULL;

    (void)state;
    memset(deep, '[', 12000);
    h.content = part(deep);
    assert_int_equal(jupyter_read_content(&h, &content, &err), -1);
    h.content = part("");
    assert_int_equal(jupyter_read_content(&h, &content, &err), -1);
    h.content = (struct jupyter_part){ deep, JUPYTER_CONTENT_MAX + 1 };
    assert_int_equal(jupyter_read_content(&h, &content, &err), -1);
    assert_int_equal(err.kind, ERR_LIMIT);
}

static void begin_of_a_huge_stream_is_kept(void **state)
{
    static const char text[] =
        "{\"name\": \"stdout\", \"text\": \"ab\\u20acde\\\\\\nfghijklmnopqrstuvwxyz\"}";
    struct jupyter_head h = { .type = JUPYTER_STREAM, .content = { text, sizeof text - 1 } };

    (void)state;
    for (size_t max = 30; max < sizeof text - 3; max++) {
        json_auto_t *content = NULL;
        struct jupyter_stream s;
        struct error err = { 0 };
        assert_int_equal(jupyter_read_stream_begin(&h, max, &content, &err), 0);
        assert_true(jupyter_read_stream(content, &s));
        assert_memory_equal(s.text.data, "ab\u20acde\\\nfghijklmnopqrstuvwxyz", s.text.len);
    }
}

static void replies_say_how_it_went(void **state)
{
    static const struct {
        const char *text;
        int status;
        bool leaving;
    } cases[] = {
        { "{\"status\":\"ok\",\"payload\":[]}", JUPYTER_OK, false },
        { "{\"status\":\"ok\",\"payload\":[{\"source\":\"ask_exit\"}]}", JUPYTER_OK, true },
        { "{\"status\":\"aborted\"}", JUPYTER_ABORTED, false },
        { "{\"status\":\"error\",\"ename\":\"E\",\"evalue\":\"v\"}", JUPYTER_FAILED, false },
        { "{\"status\":\"error\",\"ename\":[],\"payload\":7}", JUPYTER_FAILED, false },
        { "[]", JUPYTER_FAILED, false },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        json_auto_t *content = NULL;
        struct jupyter_reply reply;
        struct error err = { 0 };
        assert_int_equal(jsonx_parse(cases[i].text, strlen(cases[i].text), &content, &err), 0);
        jupyter_read_reply(content, &reply);
        assert_int_equal(reply.status, cases[i].status);
        assert_int_equal(reply.leaving, cases[i].leaving);
        assert_non_null(reply.ename);
        assert_non_null(reply.evalue);
    }
}

static void system_exit_becomes_an_exit_code(void **state)
{
    static const struct {
        const char *evalue;
        int code;
        bool text;
    } cases[] = {
        { "", 0, false },     { "None", 0, false }, { "0", 0, false },      { "3", 3, false },
        { "-1", 255, false }, { "256", 0, false },  { "True", 1, false },   { "False", 0, false },
        { "oh no", 1, true }, { "-", 1, true },     { "3 files", 1, true },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const char *text = NULL;
        assert_int_equal(jupyter_exit_code(cases[i].evalue, &text), cases[i].code);
        assert_int_equal(text != NULL, cases[i].text);
    }
}

static void escapes_are_stripped(void **state)
{
    static const struct {
        const char *text, *expect;
    } cases[] = {
        { "plain", "plain" },
        { "\033[0;31mred\033[0m!", "red!" },
        { "a\033[38;5;28;01mb\033[39;00mc", "abc" },
        { "\033]8;;http://x\033\\link\033]8;;\a", "link" },
        { "end\033", "end" },
        { "end\033[", "end" },
        { "end\033[12", "end" },
        { "end\033]x", "end" },
        { "\033(Bx", "Bx" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        auto_buf struct buf out = { .max = 100 };
        struct error err = { 0 };
        assert_int_equal(jupyter_strip_escapes(cases[i].text, strlen(cases[i].text), &out, &err), 0);
        assert_string_equal(out.data, cases[i].expect);
    }
}

static void errors_of_any_shape_give_lines(void **state)
{
    static const struct {
        const char *text;
        size_t lines;
    } cases[] = {
        { "{\"ename\":\"E\",\"evalue\":\"v\",\"traceback\":[\"\\u001b[31ma\",\"b\"]}", 2 },
        { "{\"traceback\":[1,null,{}]}", 3 },
        { "{\"traceback\":7}", 0 },
        { "7", 0 },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        json_error_t je;
        json_auto_t *content = json_loads(cases[i].text, JSON_DECODE_ANY, &je);
        struct jupyter_error e;
        jupyter_read_error(content, &e);
        assert_int_equal(json_array_size(e.traceback), cases[i].lines);
        assert_non_null(e.ename);
        json_decref(e.traceback);
    }
}

static void requests_are_json(void **state)
{
    const struct jsonx_span code = { "print('\xff')", 10 }, input = { "a\0b", 3 }, none = { NULL, 0 };
    struct jupyter_request q;
    struct error err = { 0 };

    (void)state;
    jupyter_execute("s", "m", &code, NULL, &input, &q);
    for (size_t i = 0; i < ARRAY_LEN(q.parts); i++) {
        json_auto_t *doc = NULL;
        assert_int_equal(jsonx_parse(q.parts[i], strlen(q.parts[i]), &doc, &err), 0);
    }
    assert_non_null(strstr(q.parts[2], "\"stdin\":\"a\\u0000b\""));
    assert_non_null(strstr(q.parts[3], "\"stop_on_error\":false"));
    jupyter_request_done(&q);
    jupyter_execute("s", "m", &code, NULL, &none, &q);
    assert_non_null(strstr(q.parts[2], "\"stdin\":null"));
    jupyter_request_done(&q);
}

static void base64_is_decoded(void **state)
{
    static const struct {
        const char *text, *expect;
        bool ok;
    } cases[] = {
        { "", "", true },        { "YQ==", "a", true },       { "YWI=", "ab", true },
        { "YWJj", "abc", true }, { "YW\nJj\n", "abc", true }, { "YWJjZA", "abcd", true },
        { "!!!!", "", false },   { "YWJ\x01", "", false },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        auto_buf struct buf out = { .max = 100 };
        struct error err = { 0 };
        int rc = display_decode_base64(cases[i].text, strlen(cases[i].text), &out, &err);
        assert_int_equal(rc, cases[i].ok ? 0 : -1);
        if (cases[i].ok)
            assert_int_equal(out.len, strlen(cases[i].expect));
        if (cases[i].ok && out.len > 0)
            assert_memory_equal(out.data, cases[i].expect, out.len);
    }
}

static void object_reprs_are_recognised(void **state)
{
    (void)state;
    assert_true(display_is_object_repr("<Figure size 640x480 with 1 Axes>"));
    assert_true(display_is_object_repr("<IPython.core.display.HTML object>"));
    assert_false(display_is_object_repr("   a\n0  1"));
    assert_false(display_is_object_repr("<a>\n<b>"));
    assert_false(display_is_object_repr(""));
    assert_false(display_is_object_repr("<"));
}

static void display_files_never_replace_anything(void **state)
{
    char dir[] = "/tmp/carrel-unit-XXXXXX", path[64], target[64];
    unsigned number = 0;
    struct error err = { 0 };
    struct stat st;

    (void)state;
    assert_non_null(mkdtemp(dir));
    (void)snprintf(path, sizeof path, "%s/plot_1.png", dir);
    (void)snprintf(target, sizeof target, "%s/target", dir);
    assert_int_equal(symlink(target, path), 0); /* dangling: a plain open would create the target */
    for (unsigned i = 2; i <= 3; i++) {
        auto_free char *name = NULL, *expect = xasprintf("plot_%u.png", i);
        assert_int_equal(display_file_write(dir, "plot", "png", &number, "xyz", 3, &name, &err), 0);
        assert_string_equal(name, expect);
        assert_int_equal(number, i);
        auto_free char *made = xasprintf("%s/%s", dir, name);
        assert_int_equal(stat(made, &st), 0);
        assert_int_equal(st.st_size, 3);
        assert_int_equal(unlink(made), 0);
    }
    assert_int_equal(stat(target, &st), -1);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(dir), 0);
    auto_free char *name = NULL;
    assert_int_equal(display_file_write(dir, "plot", "png", &number, "xyz", 3, &name, &err), -1);
    assert_null(name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(head_is_read_behind_identities),
        cmocka_unit_test(nonsense_has_no_type),
        cmocka_unit_test(deep_or_broken_content_is_an_error),
        cmocka_unit_test(begin_of_a_huge_stream_is_kept),
        cmocka_unit_test(replies_say_how_it_went),
        cmocka_unit_test(system_exit_becomes_an_exit_code),
        cmocka_unit_test(escapes_are_stripped),
        cmocka_unit_test(errors_of_any_shape_give_lines),
        cmocka_unit_test(requests_are_json),
        cmocka_unit_test(base64_is_decoded),
        cmocka_unit_test(object_reprs_are_recognised),
        cmocka_unit_test(display_files_never_replace_anything),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
