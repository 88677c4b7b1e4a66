#include "orchestrator/http/framing.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "orchestrator/http/number.h"
#include "orchestrator/http/params.h"

static void fields_must_be_clean(void **state)
{
#define FIELD(name, value, good)                                                                             \
    {                                                                                                        \
        name, sizeof(name) - 1, value, sizeof(value) - 1, good                                               \
    }
    static const struct {
        const char *name;
        size_t name_len;
        const char *value;
        size_t value_len;
        bool good;
    } cases[] = {
        FIELD("Host", "a", true),    FIELD("X-A.b_c~1", "", true), FIELD("A", "tab\tinside \xc3", true),
        FIELD("", "a", false),       FIELD("Host ", "a", false),   FIELD("Ho st", "a", false),
        FIELD("Ho\0st", "a", false), FIELD("H\xc3", "a", false),   FIELD("A", "a\0b", false),
        FIELD("A", "a\rb", false),   FIELD("A", "a\nb", false),    FIELD("A", "\x7f", false),
        FIELD("A:", "b", false),
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct error err = { 0 };
        int r = framing_check_field(cases[i].name, cases[i].name_len, cases[i].value, cases[i].value_len,
                                    &err);
        assert_int_equal(r, cases[i].good ? 0 : -1);
        assert_int_equal(err.kind, cases[i].good ? ERR_NONE : ERR_INVALID);
    }
}

static void heads_have_one_meaning(void **state)
{
    static const struct {
        const char *version, *target;
        const char *headers[3][2];
        bool good;
        uint64_t body;
    } cases[] = {
        { "HTTP/1.1", "/", { { "Host", "a" } }, true, 0 },
        { "HTTP/1.0", "/", { { NULL } }, true, 0 },
        { "HTTP/1.1", "/", { { NULL } }, false, 0 },
        { "HTTP/1.1", "/", { { "Host", "a" }, { "hOST", "a" } }, false, 0 },
        { "HTTP/2.0", "/", { { "Host", "a" } }, false, 0 },
        { "HTTP/0.9", "/", { { "Host", "a" } }, false, 0 },
        { "", "/", { { "Host", "a" } }, false, 0 },
        { "HTTP/1.1", "/a b", { { "Host", "a" } }, false, 0 },
        { "HTTP/1.1", "/a\x01", { { "Host", "a" } }, false, 0 },
        { "HTTP/1.1", "/a\xc3\xa9", { { "Host", "a" } }, true, 0 },
        { "HTTP/1.1", "/", { { "Host", "a" }, { "Content-Length", "12" } }, true, 12 },
        { "HTTP/1.1", "/", { { "Host", "a" }, { "Content-Length", "+1" } }, false, 0 },
        { "HTTP/1.1", "/", { { "Host", "a" }, { "Content-Length", "" } }, false, 0 },
        { "HTTP/1.1", "/", { { "Host", "a" }, { "Content-Length", "1, 1" } }, false, 0 },
        { "HTTP/1.1",
          "/",
          { { "Host", "a" }, { "Content-Length", "1" }, { "content-length", "1" } },
          false,
          0 },
        { "HTTP/1.1", "/", { { "Host", "a" }, { "Transfer-Encoding", "chunked" } }, true, FRAMING_UNKNOWN },
        { "HTTP/1.1", "/", { { "Host", "a" }, { "Transfer-Encoding", "Chunked" } }, true, FRAMING_UNKNOWN },
        { "HTTP/1.1", "/", { { "Host", "a" }, { "Transfer-Encoding", "xchunked" } }, false, 0 },
        { "HTTP/1.1", "/", { { "Host", "a" }, { "Transfer-Encoding", "identity, chunked" } }, false, 0 },
        { "HTTP/1.1", "/", { { "Host", "a" }, { "Transfer-Encoding", "" } }, false, 0 },
        { "HTTP/1.0", "/", { { "Host", "a" }, { "Transfer-Encoding", "chunked" } }, false, 0 },
        { "HTTP/1.1",
          "/",
          { { "Host", "a" }, { "Transfer-Encoding", "chunked" }, { "Content-Length", "1" } },
          false,
          0 },
        { "HTTP/1.1",
          "/",
          { { "Host", "a" }, { "Transfer-Encoding", "chunked" }, { "Transfer-Encoding", "chunked" } },
          false,
          0 },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct http_request req = { .target = cases[i].target };
        struct error err = { 0 };
        uint64_t body = 7;
        for (size_t h = 0; h < 3 && cases[i].headers[h][0]; h++)
            assert_int_equal(
                http_fields_add(&req.headers, cases[i].headers[h][0], cases[i].headers[h][1], &err), 0);
        assert_int_equal(framing_check(&req, cases[i].version, &body, &err), cases[i].good ? 0 : -1);
        assert_int_equal(body, cases[i].good ? cases[i].body : 7);
        http_fields_done(&req.headers);
    }
}

static void numbers_are_digits_that_fit(void **state)
{
    uint64_t n = 1;

    (void)state;
    assert_true(number_parse("0", 1, &n));
    assert_int_equal(n, 0);
    assert_true(number_parse("18446744073709551615", 20, &n));
    assert_true(n == UINT64_MAX);
    assert_true(number_parse("007x", 3, &n));
    assert_int_equal(n, 7);
    static const char *const bad[] = { "", "-1", "+1", " 1", "1 ", "0x1", "1e3", "18446744073709551616" };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_false(number_parse(bad[i], strlen(bad[i]), &n));
    assert_int_equal(n, 7);
}

static void parameters_are_found(void **state)
{
    static const struct {
        const char *header, *value; /* NULL: not there */
    } cases[] = {
        { "x; name=v", "v" },
        { "x;NAME = \"v\"", "v" },
        { "x; other=\"name=w\"; name=v", "v" },
        { "x; names=w; name=v", "v" },
        { "x; name=v; name=w", "v" },
        { "x; name=", "" },
        { "x; name=a=b", "a=b" },
        { "x; name", NULL },
        { "x", NULL },
        { "name=v", NULL },
        { "", NULL },
        { ";;;", NULL },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char out[8] = "";
        bool found = false;
        struct error err;
        assert_int_equal(params_get(cases[i].header, "name", out, sizeof out, &found, &err), 0);
        assert_int_equal(found, cases[i].value != NULL);
        assert_string_equal(out, cases[i].value ? cases[i].value : "");
    }
    char out[4];
    bool found = false;
    struct error err;
    assert_int_equal(params_get("x; name=abc", "name", out, sizeof out, &found, &err), 0);
    assert_int_equal(params_get("x; name=abcd", "name", out, sizeof out, &found, &err), -1);
    assert_int_equal(params_get("x; other=\"a; name=b", "name", out, sizeof out, &found, &err), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fields_must_be_clean),
        cmocka_unit_test(heads_have_one_meaning),
        cmocka_unit_test(numbers_are_digits_that_fit),
        cmocka_unit_test(parameters_are_found),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
