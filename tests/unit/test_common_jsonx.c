#include "common/json/jsonx.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define FFFD "\xef\xbf\xbd"

static void documents_parse_and_print_alike(void **state)
{
    static const char *const cases[][2] = {
        { "{\"a\":1}", "{\"a\":1}" },
        { " [1, 2.5,\ttrue,null,\"x\"]\r\n", "[1,2.5,true,null,\"x\"]" },
        { "[\"a\\u0000b\"]", "[\"a\\u0000b\"]" },
        { "[\"\\ud83d\\ude00\"]", "[\"\xf0\x9f\x98\x80\"]" },
        { "[\"\\ud800\"]", "[\"" FFFD "\"]" },
        { "[\"\\uDC00x\"]", "[\"" FFFD "x\"]" },
        { "[\"\\ud800\\ud83d\\ude00\"]", "[\"" FFFD "\xf0\x9f\x98\x80\"]" },
        { "[\"\\ude00\\ud83d\"]", "[\"" FFFD FFFD "\"]" },
        { "[\"\\\\ud800\"]", "[\"\\\\ud800\"]" },
        { "[\"\\\\\\ud800\"]", "[\"\\\\" FFFD "\"]" },
        { "{\"\\ud800\":1}", "{\"" FFFD "\":1}" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        json_t *doc = NULL;
        struct error err;
        size_t len = 0;
        assert_int_equal(jsonx_parse(cases[i][0], strlen(cases[i][0]), &doc, &err), 0);
        auto_free char *text = jsonx_dump(doc, &len);
        assert_string_equal(text, cases[i][1]);
        assert_int_equal(len, strlen(text));
        json_decref(doc);
    }
}

static void bad_documents_are_the_clients_fault(void **state)
{
    static const char *const cases[] = {
        "",
        "{",
        "{\"a\":1,\"a\":2}",
        "[1] x",
        "[\"\\ud8\"]",
        "[\"\\uZZZZ\"]",
        "[\"\xff\"]",
        "{'a':1}",
        "[01]",
        "[1e999]",
        "nul",
        "[\"\\ud800\\u\"]",
        "[\"\n\"]",
        "[99999999999999999999]",
        "\xef\xbb\xbf{}",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        json_t *doc = NULL;
        struct error err = { 0 };
        assert_int_equal(jsonx_parse(cases[i], strlen(cases[i]), &doc, &err), -1);
        assert_int_equal(err.kind, ERR_INVALID);
        assert_true(str_starts(err.msg, "bad JSON"));
        assert_null(doc);
    }
    struct error err;
    json_t *doc = NULL;
    assert_int_equal(jsonx_parse(NULL, 0, &doc, &err), -1);
}

static void nesting_is_bounded(void **state)
{
    char text[2 * (JSONX_MAX_DEPTH + 1)];
    struct error err;
    json_t *doc = NULL;

    (void)state;
    memset(text, '[', JSONX_MAX_DEPTH);
    memset(text + JSONX_MAX_DEPTH, ']', JSONX_MAX_DEPTH);
    assert_int_equal(jsonx_parse(text, 2 * (size_t)JSONX_MAX_DEPTH, &doc, &err), 0);
    json_decref(doc);
    memset(text, '[', JSONX_MAX_DEPTH + 1);
    memset(text + JSONX_MAX_DEPTH + 1, ']', JSONX_MAX_DEPTH + 1);
    assert_int_equal(jsonx_parse(text, sizeof text, &doc, &err), -1);
    assert_non_null(strstr(err.msg, "nested"));

    char brackets[1024] = "[\"\\\""; /* brackets in a string do not nest */
    memset(brackets + 4, '[', 1000);
    (void)stpcpy(brackets + 1004, "\"]");
    assert_int_equal(jsonx_parse(brackets, 1006, &doc, &err), 0);
    json_decref(doc);
}

static void untrusted_bytes_are_repaired(void **state)
{
    static const char text[] = "[\"a\xff\xc3\"]";
    json_t *doc = NULL;
    struct error err;

    (void)state;
    assert_int_equal(jsonx_parse_repaired(text, sizeof text - 1, &doc, &err), 0);
    assert_string_equal(json_string_value(json_array_get(doc, 0)), "a" FFFD FFFD);
    json_decref(doc);
    assert_int_equal(jsonx_parse_repaired("", 0, &doc, &err), -1);
}

static void any_bytes_become_text(void **state)
{
    static const struct {
        const char *bytes;
        size_t len;
        const char *text;
    } cases[] = {
        { "", 0, "" },
        { NULL, 0, "" },
        { "plain", 5, "plain" },
        { "\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80", 9, "\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80" },
        { "a\xff"
          "b",
          3, "a" FFFD "b" },
        { "\xc3", 1, FFFD },
        { "\xc0\x80", 2, FFFD FFFD },                   /* overlong NUL */
        { "\xed\xa0\x80", 3, FFFD FFFD FFFD },          /* surrogate */
        { "\xe0\x80\x80", 3, FFFD FFFD FFFD },          /* overlong */
        { "\xf4\x90\x80\x80", 4, FFFD FFFD FFFD FFFD }, /* beyond U+10FFFF */
        { "\xf0\x80\x80\x80", 4, FFFD FFFD FFFD FFFD },
        { "\xe2\x82", 2, FFFD FFFD },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        json_t *s = jsonx_text(cases[i].bytes, cases[i].len);
        assert_string_equal(json_string_value(s), cases[i].text);
        json_decref(s);
    }
    json_t *nul = jsonx_text("a\0\xff", 3);
    assert_int_equal(json_string_length(nul), 5);
    json_decref(nul);
    json_t *null = jsonx_str(NULL);
    assert_true(json_is_null(null));
    json_decref(null);
    json_t *str = jsonx_str("x\xff");
    assert_string_equal(json_string_value(str), "x" FFFD);
    json_decref(str);
}

struct filled {
    const char *name;
    struct jsonx_span code;
    int64_t count;
    bool flag;
    json_t *list, *object, *any;
};

static const struct json_field fields[] = {
    FIELD_STRING(struct filled, name, "name", true, 1, 5),
    FIELD_TEXT(struct filled, code, "code", false, 0, 10),
    FIELD_INT(struct filled, count, "count", false, -5, 100),
    FIELD_BOOL(struct filled, flag, "flag", false),
    FIELD_ARRAY(struct filled, list, "list", false, 0, 2),
    FIELD_OBJECT(struct filled, object, "object", false),
    FIELD_ANY(struct filled, any, "any", false),
};

static int fill(const char *text, struct filled *out, json_t **ret_doc, struct error *err)
{
    assert_int_equal(jsonx_parse(text, strlen(text), ret_doc, err), 0);
    return jsonx_fill(*ret_doc, fields, ARRAY_LEN(fields), out, err);
}

static void tables_fill_structs(void **state)
{
    struct filled f = { .count = 42 };
    struct error err;
    json_t *doc = NULL;

    (void)state;
    assert_int_equal(fill("{\"name\":\"abc\",\"code\":\"a\\u0000b\",\"flag\":true,\"list\":[1],\"object\":{},"
                          "\"any\":1,\"unknown\":{}}",
                          &f, &doc, &err),
                     0);
    assert_string_equal(f.name, "abc");
    assert_int_equal(f.code.len, 3);
    assert_memory_equal(f.code.data, "a\0b", 3);
    assert_int_equal(f.count, 42); /* absent: as it was */
    assert_true(f.flag);
    assert_int_equal(json_array_size(f.list), 1);
    assert_true(json_is_object(f.object));
    assert_int_equal(json_integer_value(f.any), 1);
    json_decref(doc);

    assert_int_equal(fill("{\"name\":\"a\",\"count\":7.0,\"list\":null}", &f, &doc, &err), 0);
    assert_int_equal(f.count, 7);
    json_decref(doc);
}

static void errors_name_the_field(void **state)
{
    static const char *const cases[][2] = {
        { "[]", "expected a JSON object" },
        { "{}", "name: missing" },
        { "{\"name\":null}", "name: missing" },
        { "{\"name\":1}", "name: expected a string" },
        { "{\"name\":\"\"}", "name: must not be empty" },
        { "{\"name\":\"123456\"}", "name: must be 1 to 5 bytes" },
        { "{\"name\":\"a\\u0000\"}", "name: must not contain a NUL character" },
        { "{\"name\":\"a\",\"code\":[]}", "code: expected a string" },
        { "{\"name\":\"a\",\"count\":\"1\"}", "count: expected an integer" },
        { "{\"name\":\"a\",\"count\":true}", "count: expected an integer" },
        { "{\"name\":\"a\",\"count\":1.5}", "count: expected an integer" },
        { "{\"name\":\"a\",\"count\":101}", "count: must be -5..100" },
        { "{\"name\":\"a\",\"count\":-6}", "count: must be -5..100" },
        { "{\"name\":\"a\",\"count\":9223372036854775807}", "count: must be -5..100" },
        { "{\"name\":\"a\",\"count\":-9223372036854775808}", "count: must be -5..100" },
        { "{\"name\":\"a\",\"count\":1e300}", "count: " },
        { "{\"name\":\"a\",\"count\":-1e300}", "count: " },
        { "{\"name\":\"a\",\"flag\":1}", "flag: expected true or false" },
        { "{\"name\":\"a\",\"list\":{}}", "list: expected an array" },
        { "{\"name\":\"a\",\"list\":[1,2,3]}", "list: must be 0 to 2 elements" },
        { "{\"name\":\"a\",\"object\":[]}", "object: expected an object" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct filled f = { 0 };
        struct error err = { 0 };
        json_t *doc = NULL;
        assert_int_equal(fill(cases[i][0], &f, &doc, &err), -1);
        assert_int_equal(err.kind, ERR_INVALID);
        assert_true(str_starts(err.msg, cases[i][1]));
        json_decref(doc);
    }
}

static void replies_unpack_or_are_upstreams_fault(void **state)
{
    json_t *doc = json_pack("{s:s, s:I}", "Id", "abc", "Pid", (json_int_t)1 << 40);
    const char *id = NULL;
    json_int_t pid = 0;
    struct error err = { 0 };

    (void)state;
    assert_int_equal(jsonx_unpack(doc, &err, "{s:s, s:I}", "Id", &id, "Pid", &pid), 0);
    assert_string_equal(id, "abc");
    assert_int_equal(pid, INT64_C(1) << 40);
    assert_int_equal(jsonx_unpack(doc, &err, "{s:s}", "Name", &id), -1);
    assert_int_equal(err.kind, ERR_UPSTREAM);
    assert_int_equal(jsonx_unpack(doc, &err, "{s:s}", "Pid", &id), -1);
    json_decref(doc);
    assert_int_equal(jsonx_unpack(NULL, &err, "{s:s}", "Id", &id), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(documents_parse_and_print_alike),
        cmocka_unit_test(bad_documents_are_the_clients_fault),
        cmocka_unit_test(nesting_is_bounded),
        cmocka_unit_test(untrusted_bytes_are_repaired),
        cmocka_unit_test(any_bytes_become_text),
        cmocka_unit_test(tables_fill_structs),
        cmocka_unit_test(errors_name_the_field),
        cmocka_unit_test(replies_unpack_or_are_upstreams_fault),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
