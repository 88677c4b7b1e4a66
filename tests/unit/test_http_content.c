#include "orchestrator/http/content.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#define TAG "0a1b"

static void types_go_by_extension(void **state)
{
    static const char *const cases[][2] = {
        { "plot.png", "image/png" },
        { "sub/PLOT.JPG", "image/jpeg" },
        { "a.b.csv", "text/csv" },
        { "x.tar.gz", "application/gzip" },
        { "r.xlsx", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet" },
        { "main.c", "text/x-c" },
        { "noext", "application/octet-stream" },
        { "dir.png/noext", "application/octet-stream" },
        { "dot.", "application/octet-stream" },
        { "", "application/octet-stream" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        assert_string_equal(content_type_of(cases[i][0]), cases[i][1]);
}

static void dispositions_are_safe_and_keep_the_name(void **state)
{
    static const char *const cases[][2] = {
        { "a.csv", "attachment; filename=\"a.csv\"; filename*=UTF-8''a.csv" },
        { "sub/dir/a b.csv", "attachment; filename=\"a b.csv\"; filename*=UTF-8''a%20b.csv" },
        { "a\"b\\c\n.csv", "attachment; filename=\"a_b_c_.csv\"; filename*=UTF-8''a%22b%5Cc%0A.csv" },
        { "d\xc3\xa4\xe2\x82\xac.txt",
          "attachment; filename=\"d__.txt\"; filename*=UTF-8''d%C3%A4%E2%82%AC.txt" },
        { "\xff", "attachment; filename=\"_\"; filename*=UTF-8''%EF%BF%BD" },
        { "sub/", "attachment; filename=\"download\"; filename*=UTF-8''download" },
        { "", "attachment; filename=\"download\"; filename*=UTF-8''download" },
        { "50%.csv", "attachment; filename=\"50%.csv\"; filename*=UTF-8''50%25.csv" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        auto_free char *d = content_disposition(cases[i][0]);
        assert_string_equal(d, cases[i][1]);
    }
}

static const char *header(const struct http_response *res, const char *name)
{
    struct http_request as_request = { .headers = res->headers };

    return http_header(&as_request, name);
}

/* Answers a request for a file of that size; up to two request headers. */
static void ask(const char *method, uint64_t size, const char *const headers[2][2], struct http_response *res)
{
    struct http_request req = { .method = method };
    struct error err;

    for (size_t i = 0; i < 2; i++)
        if (headers[i][0])
            assert_int_equal(http_fields_add(&req.headers, headers[i][0], headers[i][1], &err), 0);
    http_response_init(res);
    int fd = memfd_create("content", MFD_CLOEXEC);
    content_file_response(&req, res, fd, size, "a.csv", "text/csv", TAG);
    http_fields_done(&req.headers);
}

static void ranges_select_bytes(void **state)
{
    static const struct {
        const char *range;
        uint64_t size;
        unsigned status;
        uint64_t offset, len;
        const char *content_range;
    } cases[] = {
        { NULL, 10, 200, 0, 10, NULL },
        { NULL, 0, 200, 0, 0, NULL },
        { "bytes=0-0", 10, 206, 0, 1, "bytes 0-0/10" },
        { "bytes=2-4", 10, 206, 2, 3, "bytes 2-4/10" },
        { "Bytes= 2-4 ", 10, 206, 2, 3, "bytes 2-4/10" },
        { "bytes=5-", 10, 206, 5, 5, "bytes 5-9/10" },
        { "bytes=5-99999999999999999999999999", 10, 206, 5, 5, "bytes 5-9/10" },
        { "bytes=-3", 10, 206, 7, 3, "bytes 7-9/10" },
        { "bytes=-30", 10, 206, 0, 10, "bytes 0-9/10" },
        { "bytes=0-1,3-4", 10, 200, 0, 10, NULL },
        { "lines=0-1", 10, 200, 0, 10, NULL },
        { "bytes=10-", 10, 416, 0, 0, "bytes */10" },
        { "bytes=99999999999999999999999999-", 10, 416, 0, 0, "bytes */10" },
        { "bytes=4-2", 10, 416, 0, 0, "bytes */10" },
        { "bytes=-0", 10, 416, 0, 0, "bytes */10" },
        { "bytes=-", 10, 416, 0, 0, "bytes */10" },
        { "bytes=", 10, 416, 0, 0, "bytes */10" },
        { "bytes=x-y", 10, 416, 0, 0, "bytes */10" },
        { "bytes=1-2x", 10, 416, 0, 0, "bytes */10" },
        { "bytes=+1-2", 10, 416, 0, 0, "bytes */10" },
        { "bytes=1", 10, 416, 0, 0, "bytes */10" },
        { "bytes=0-", 0, 416, 0, 0, "bytes */0" },
        { "bytes=-1", 0, 416, 0, 0, "bytes */0" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const char *const headers[2][2] = { { cases[i].range ? "Range" : NULL, cases[i].range } };
        struct http_response res;
        ask("GET", cases[i].size, headers, &res);
        assert_int_equal(res.status, cases[i].status);
        assert_true(str_eq(header(&res, "Content-Range"), cases[i].content_range));
        assert_string_equal(header(&res, "Accept-Ranges"), "bytes");
        assert_string_equal(header(&res, "ETag"), "\"" TAG "\"");
        if (res.status == 416) {
            assert_int_equal(res.file_fd, -1);
            assert_non_null(res.json);
        } else {
            assert_true(res.file_fd >= 0);
            assert_int_equal(res.file_offset, cases[i].offset);
            assert_int_equal(res.file_len, cases[i].len);
            assert_string_equal(res.content_type, "text/csv");
            assert_non_null(header(&res, "Content-Disposition"));
        }
        http_response_done(&res);
    }
}

static void validators_are_honoured(void **state)
{
    static const struct {
        const char *method;
        const char *headers[2][2];
        unsigned status;
    } cases[] = {
        { "GET", { { "If-None-Match", "\"" TAG "\"" } }, 304 },
        { "HEAD", { { "If-None-Match", "\"" TAG "\"" } }, 304 },
        { "GET", { { "If-None-Match", "W/\"" TAG "\"" } }, 304 },
        { "GET", { { "If-None-Match", "*" } }, 304 },
        { "GET", { { "If-None-Match", "\"x\", W/\"y,z\" , \"" TAG "\"" } }, 304 },
        { "GET", { { "If-None-Match", "\"x\"" } }, 200 },
        { "GET", { { "If-None-Match", "\"" TAG } }, 200 },
        { "GET", { { "If-None-Match", "\"a, \"" TAG "\"" } }, 200 },
        { "GET", { { "If-None-Match", "" } }, 200 },
        { "GET", { { "If-None-Match", "x,y" } }, 200 },
        { "GET", { { "Range", "bytes=0-0" }, { "If-None-Match", "*" } }, 304 },
        { "GET", { { "Range", "bytes=0-0" }, { "If-Range", "\"" TAG "\"" } }, 206 },
        { "GET", { { "Range", "bytes=0-0" }, { "If-Range", "\"x\"" } }, 200 },
        { "GET", { { "Range", "bytes=0-0" }, { "If-Range", "W/\"" TAG "\"" } }, 200 },
        { "GET", { { "Range", "bytes=99-" }, { "If-Range", "\"x\"" } }, 200 },
        { "HEAD", { { "Range", "bytes=0-0" } }, 200 },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct http_response res;
        ask(cases[i].method, 10, cases[i].headers, &res);
        assert_int_equal(res.status, cases[i].status);
        assert_int_equal(res.file_fd >= 0, cases[i].status != 304);
        assert_string_equal(header(&res, "ETag"), "\"" TAG "\"");
        http_response_done(&res);
    }
}

static void a_file_without_a_tag_is_always_sent(void **state)
{
    struct http_request req = { .method = "GET" };
    struct http_response res;
    struct error err;

    (void)state;
    assert_int_equal(http_fields_add(&req.headers, "If-None-Match", "*", &err), 0);
    http_response_init(&res);
    content_file_response(&req, &res, memfd_create("content", MFD_CLOEXEC), 1, "a", "text/plain", NULL);
    assert_int_equal(res.status, 200);
    assert_null(header(&res, "ETag"));
    http_fields_done(&req.headers);
    http_response_done(&res);
}

static void events_are_whole_or_absent(void **state)
{
    auto_buf struct buf out = { .max = 40 };
    json_t *doc = json_pack("{s:s}", "text", "a\nb");
    struct error err;

    (void)state;
    assert_int_equal(sse_add_event(&out, doc, &err), 0);
    assert_string_equal(out.data, "data: {\"text\":\"a\\nb\"}\n\n");
    assert_int_equal(sse_add_event(&out, doc, &err), -1);
    assert_int_equal(err.kind, ERR_LIMIT);
    assert_string_equal(out.data, "data: {\"text\":\"a\\nb\"}\n\n");
    json_decref(doc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(types_go_by_extension),
        cmocka_unit_test(dispositions_are_safe_and_keep_the_name),
        cmocka_unit_test(ranges_select_bytes),
        cmocka_unit_test(validators_are_honoured),
        cmocka_unit_test(a_file_without_a_tag_is_always_sent),
        cmocka_unit_test(events_are_whole_or_absent),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
