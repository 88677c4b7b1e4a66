#include "orchestrator/http/http.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "orchestrator/http/percent.h"

/* ---- a small service --------------------------------------------------------------------------------- */

static struct {
    const char *handler; /* the one that ran last */
    char params[2][64];
    char sunk[64];
    int sinks_open;
    int principals;
    struct error fail; /* what h_fail gives */
    bool guard_refuses, sink_refuses, data_refuses;
} seen;

static int note(const char *name, struct http_request *req, struct http_response *res)
{
    seen.handler = name;
    for (size_t i = 0; i < 2; i++)
        (void)snprintf(seen.params[i], sizeof seen.params[i], "%s", req->params[i] ? req->params[i] : "");
    http_response_json(res, 200, json_pack("{s:s}", "handler", name));
    return 0;
}

#define HANDLER(name)                                                                                        \
    static int h_##name(struct app *app, struct http_request *req, struct http_response *res,                \
                        struct error *err)                                                                   \
    {                                                                                                        \
        (void)app, (void)err;                                                                                \
        return note(#name, req, res);                                                                        \
    }
HANDLER(root)
HANDLER(exec)
HANDLER(list)
HANDLER(get)
HANDLER(literal)
HANDLER(delete)
HANDLER(upload)

static int h_fail(struct app *app, struct http_request *req, struct http_response *res, struct error *err)
{
    (void)app, (void)req;
    http_response_json(res, 200, json_pack("{s:s}", "half", "made"));
    *err = seen.fail;
    return -1;
}

static int sink_open(struct app *app, struct http_request *req, void **ret_state, struct error *err)
{
    (void)app, (void)req;
    if (seen.sink_refuses)
        return error_set(err, ERR_LIMIT, "too large");
    seen.sinks_open++;
    *ret_state = &seen;
    return 0;
}

static int sink_data(void *state, const char *data, size_t len, struct error *err)
{
    (void)state;
    if (seen.data_refuses)
        return error_set(err, ERR_LIMIT, "disk full");
    (void)snprintf(seen.sunk, sizeof seen.sunk, "%.*s", (int)len, data);
    return 0;
}

static int sink_end(void *state, struct error *err)
{
    (void)state, (void)err;
    return 0;
}

static void sink_free(void *state)
{
    (void)state;
    seen.sinks_open--;
}

static const struct http_sink sink = { sink_open, sink_data, sink_end, sink_free };

static const struct http_route routes[] = {
    { .method = "GET", .pattern = "/", .handler = h_root },
    { .method = "POST", .pattern = "/exec", .handler = h_exec, .json_body = true },
    { .method = "GET", .pattern = "/files/{sid}", .handler = h_list },
    { .method = "GET", .pattern = "/files/{sid}/{fid}", .handler = h_get },
    { .method = "DELETE", .pattern = "/files/{sid}/{fid}", .handler = h_delete },
    { .method = "GET", .pattern = "/files/{sid}/literal", .handler = h_literal },
    { .method = "POST", .pattern = "/upload", .handler = h_upload, .sink = &sink },
    { .method = "POST", .pattern = "/fail", .handler = h_fail },
};

static int guard(struct app *app, const struct http_route *route, struct http_request *req,
                 struct http_response *res, struct error *err)
{
    (void)app;
    http_response_header(res, "X-Guarded", "%s", route->method);
    if (seen.guard_refuses)
        return error_set(err, ERR_UNAUTHORIZED, "who are you");
    seen.principals++;
    req->principal = (struct principal *)&seen; /* only counted, never looked into */
    return 0;
}

static void principal_free(struct principal *p)
{
    (void)p;
    seen.principals--;
}

static const struct http_service service = {
    .routes = routes,
    .route_count = ARRAY_LEN(routes),
    .guard = guard,
    .principal_free = principal_free,
    .max_json_bytes = 100,
};

/* Dispatches one request; the caller ends res. */
static void call(const char *method, const char *target, const char *type, const char *body,
                 struct http_response *res)
{
    struct http_request req = { .method = method, .target = target, .client_fd = -1 };
    struct error err;

    seen.handler = "";
    if (type)
        assert_int_equal(http_fields_add(&req.headers, "content-type", type, &err), 0);
    http_dispatch(&service, &req, body, body ? strlen(body) : 0, res);
    http_request_done(&service, NULL, &req);
}

static const char *header(const struct http_response *res, const char *name)
{
    struct http_request as_request = { .headers = res->headers };

    return http_header(&as_request, name);
}

static const char *word(const struct http_response *res)
{
    return json_string_value(json_object_get(res->json, "error"));
}

static int reset(void **state)
{
    (void)state;
    memset(&seen, 0, sizeof seen);
    return 0;
}

static int all_freed(void **state)
{
    (void)state;
    return seen.principals == 0 ? 0 : -1;
}

/* ---- routes ------------------------------------------------------------------------------------------ */

static void paths_find_their_route(void **state)
{
    static const struct {
        const char *method, *target, *handler, *p0, *p1;
    } cases[] = {
        { "GET", "/", "root", "", "" },
        { "GET", "/v1", "root", "", "" },
        { "GET", "/v1/", "root", "", "" },
        { "GET", "//", "root", "", "" },
        { "POST", "/exec", "exec", "", "" },
        { "POST", "/v1/exec", "exec", "", "" },
        { "POST", "//v1///exec", "exec", "", "" },
        { "POST", "/%65xec", "exec", "", "" },
        { "POST", "/exec/", "exec", "", "" },
        { "GET", "/files/a", "list", "a", "" },
        { "GET", "/files/a%20b", "list", "a b", "" },
        { "GET", "/files/a+b", "list", "a+b", "" },
        { "GET", "/files/%zz%4", "list", "%zz%4", "" },
        { "GET", "/files/v1", "list", "v1", "" },
        { "GET", "/v1/files//a//b", "get", "a", "b" },
        { "GET", "/files/a/literal", "literal", "a", "" },
        { "DELETE", "/files/a/literal", "delete", "a", "literal" },
        { "HEAD", "/files/a/b", "get", "a", "b" },
        { "GET", "http://host:80/files/a", "list", "a", "" },
        { "GET", "http://host", "root", "", "" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct http_response res;
        call(cases[i].method, cases[i].target, NULL, "{}", &res);
        assert_string_equal(seen.handler, cases[i].handler);
        assert_string_equal(seen.params[0], cases[i].p0);
        assert_string_equal(seen.params[1], cases[i].p1);
        assert_int_equal(res.status, 200);
        http_response_done(&res);
    }
}

static void paths_that_mean_nothing_are_not_found(void **state)
{
    static const char *const targets[] = {
        "/nope",
        "/files",
        "/files/",
        "/files/a%2fb",
        "/files/a%00",
        "/files/%00",
        "/files/a/b/c",
        "",
        "*",
        "exec",
        "/v1/v1/exec",
        "/EXEC",
        "/%2fexec",
        "/v1%2fexec",
        "/1/2/3/4/5/6/7/8/9/10/11/12/13/14/15/16/17",
        "https://x/",
        "/files/a/../../x",
        "/files/{sid}/x/y",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(targets); i++) {
        struct http_response res;
        call("GET", targets[i], NULL, NULL, &res);
        assert_int_equal(res.status, 404);
        assert_string_equal(word(&res), "not_found");
        assert_string_equal(seen.handler, "");
        http_response_done(&res);
    }
}

static void other_methods_are_told_what_is_allowed(void **state)
{
    static const struct {
        const char *method, *target;
        unsigned status;
        const char *allow;
    } cases[] = {
        { "GET", "/exec", 405, "POST, OPTIONS" },
        { "HEAD", "/exec", 405, "POST, OPTIONS" },
        { "post", "/exec", 405, "POST, OPTIONS" },
        { "PUT", "/files/a/b", 405, "GET, HEAD, DELETE, OPTIONS" },
        { "OPTIONS", "/files/a/b", 204, "GET, HEAD, DELETE, OPTIONS" },
        { "OPTIONS", "/v1/", 204, "GET, HEAD, OPTIONS" },
        { "OPTIONS", "/nope", 404, NULL },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct http_response res;
        call(cases[i].method, cases[i].target, NULL, NULL, &res);
        assert_int_equal(res.status, cases[i].status);
        assert_true(str_eq(header(&res, "allow"), cases[i].allow));
        if (res.status == 405)
            assert_string_equal(word(&res), "method_not_allowed");
        if (res.status == 204) {
            assert_null(res.json);
            assert_string_equal(header(&res, "X-Guarded"), "OPTIONS"); /* so that CORS headers can be added */
        }
        http_response_done(&res);
    }
}

/* ---- bodies ------------------------------------------------------------------------------------------ */

static void json_routes_take_json(void **state)
{
    static const struct {
        const char *type, *body;
        unsigned status;
        const char *word;
    } cases[] = {
        { "application/json", "{}", 200, NULL },
        { "Application/JSON; charset=utf-8", "{}", 200, NULL },
        { "application/vnd.x+json", "{}", 200, NULL },
        { NULL, "{}", 200, NULL },
        { "text/plain", "{}", 415, "unsupported_media_type" },
        { "", "{}", 415, "unsupported_media_type" },
        { "application/jsonx", "{}", 415, "unsupported_media_type" },
        { "+json", "{}", 415, "unsupported_media_type" },
        { "application/json", "", 400, "invalid_request" },
        { "application/json", NULL, 400, "invalid_request" },
        { "application/json", "{", 400, "invalid_request" },
        { "application/json", "{\"a\":1,\"a\":2}", 400, "invalid_request" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct http_response res;
        call("POST", "/exec", cases[i].type, cases[i].body, &res);
        assert_int_equal(res.status, cases[i].status);
        if (cases[i].word)
            assert_string_equal(word(&res), cases[i].word);
        http_response_done(&res);
    }
}

static void large_or_deep_json_is_refused(void **state)
{
    struct http_response res;
    char body[102];

    (void)state;
    memset(body, ' ', sizeof body);
    body[101] = '\0';
    call("POST", "/exec", NULL, body, &res);
    assert_int_equal(res.status, 413);
    http_response_done(&res);

    struct http_service roomy = service;
    roomy.max_json_bytes = 1 << 20;
    char deep[12 * 1024];
    memset(deep, '[', sizeof deep);
    struct http_request req = { .method = "POST", .target = "/exec", .client_fd = -1 };
    http_dispatch(&roomy, &req, deep, sizeof deep, &res);
    assert_int_equal(res.status, 400);
    http_request_done(&roomy, NULL, &req);
    http_response_done(&res);
}

static void sinks_are_closed_once_whatever_happens(void **state)
{
    static const struct {
        bool guard, open, data;
        unsigned status;
    } cases[] = { { 0, 0, 0, 200 }, { 1, 0, 0, 401 }, { 0, 1, 0, 413 }, { 0, 0, 1, 413 } };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct http_request req = { .method = "POST", .target = "/upload", .client_fd = -1 };
        struct http_response res;
        memset(&seen, 0, sizeof seen);
        seen.guard_refuses = cases[i].guard;
        seen.sink_refuses = cases[i].open;
        seen.data_refuses = cases[i].data;
        const struct http_route *route = http_begin(&service, &req, &res);
        assert_int_equal(seen.sinks_open, cases[i].guard || cases[i].open ? 0 : 1);
        http_request_done(&service, route, &req);
        http_response_done(&res);
        assert_int_equal(seen.sinks_open, 0);

        req = (struct http_request){ .method = "POST", .target = "/upload", .client_fd = -1 };
        http_dispatch(&service, &req, "bytes", 5, &res);
        assert_int_equal(res.status, cases[i].status);
        assert_string_equal(seen.sunk, cases[i].status == 200 ? "bytes" : "");
        assert_int_equal(seen.sinks_open, 0);
        http_request_done(&service, NULL, &req);
        http_response_done(&res);
        assert_int_equal(seen.sinks_open, 0);
        assert_int_equal(seen.principals, 0);
    }
}

/* ---- errors ------------------------------------------------------------------------------------------ */

static void every_kind_of_error_has_a_status(void **state)
{
    static const unsigned expected[ERR_KIND_COUNT] = {
        [ERR_NONE] = 500,       [ERR_INVALID] = 400,  [ERR_UNAUTHORIZED] = 401, [ERR_FORBIDDEN] = 403,
        [ERR_NOT_FOUND] = 404,  [ERR_METHOD] = 405,   [ERR_CONFLICT] = 409,     [ERR_LIMIT] = 413,
        [ERR_MEDIA_TYPE] = 415, [ERR_BUSY] = 429,     [ERR_TIMEOUT] = 504,      [ERR_UNAVAILABLE] = 503,
        [ERR_UPSTREAM] = 502,   [ERR_INTERNAL] = 500,
    };

    (void)state;
    for (int k = 0; k < ERR_KIND_COUNT; k++)
        assert_int_equal(http_status_of((enum error_kind)k), expected[k]);
}

static void a_failing_handler_gives_the_error_document(void **state)
{
    struct http_response res;

    (void)state;
    seen.fail = (struct error){ .kind = ERR_BUSY, .retry_after_s = 7, .msg = "bad \xff byte" };
    call("POST", "/fail", NULL, NULL, &res);
    assert_int_equal(res.status, 429);
    assert_string_equal(header(&res, "Retry-After"), "7");
    assert_string_equal(header(&res, "X-Guarded"), "POST");
    auto_free char *text = jsonx_dump(res.json, NULL);
    assert_string_equal(text, "{\"error\":\"rate_limited\",\"message\":\"bad \xef\xbf\xbd byte\",\"detail\":"
                              "\"bad \xef\xbf\xbd byte\",\"retry_after_seconds\":7}");
    http_response_done(&res);

    seen.fail = (struct error){ .kind = ERR_NOT_FOUND, .msg = "gone" };
    call("POST", "/fail", NULL, NULL, &res);
    assert_int_equal(res.status, 404);
    assert_null(header(&res, "Retry-After"));
    assert_null(json_object_get(res.json, "retry_after_seconds"));
    http_response_done(&res);
}

static void count_free(void *state) { ++*(int *)state; }

static void an_error_replaces_any_body(void **state)
{
    struct http_response res;
    struct error err = { .kind = ERR_INTERNAL, .msg = "x" };
    int freed = 0;

    (void)state;
    http_response_init(&res);
    res.stream = (struct http_stream){ .free = count_free, .state = &freed };
    res.file_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    res.text = xstrdup("half an answer");
    int fd = res.file_fd;
    http_response_error(&res, &err);
    assert_int_equal(freed, 1);
    assert_null(res.text);
    assert_int_equal(fcntl(fd, F_GETFD), -1);
    assert_int_equal(res.status, 500);
    http_response_done(&res);
    assert_int_equal(freed, 1);
}

static void foreign_text_cannot_start_a_header(void **state)
{
    struct http_response res;

    (void)state;
    http_response_init(&res);
    http_response_header(&res, "X-Name", "a%s", "\r\nSet-Cookie: x\x7f");
    assert_string_equal(header(&res, "x-name"), "a  Set-Cookie: x ");
    http_response_done(&res);
}

/* ---- fields ------------------------------------------------------------------------------------------ */

static void queries_are_decoded(void **state)
{
    static const struct {
        const char *query, *name, *value;
        size_t count;
    } cases[] = {
        { "", "a", NULL, 0 },
        { "a=1&b=%20x+y", "b", " x y", 2 },
        { "a=1&a=2", "a", "1", 2 },
        { "a", "a", "", 1 },
        { "a=", "a", "", 1 },
        { "=v", "", "v", 1 },
        { "&&a=1&", "a", "1", 1 },
        { "a=b=c", "a", "b=c", 1 },
        { "%61=%C3%A9", "a", "\xc3\xa9", 1 },
        { "a=%zz%1&b=%", "a", "%zz%1", 2 },
        { "a=x%00y", "a", "x%00y", 1 },
        { "a%3d=%26", "a=", "&", 1 },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct http_request req = { 0 };
        struct error err;
        assert_int_equal(http_query_parse(cases[i].query, &req.query, &err), 0);
        assert_int_equal(req.query.count, cases[i].count);
        assert_true(str_eq(http_query(&req, cases[i].name), cases[i].value));
        http_fields_done(&req.query);
    }
}

static void fields_are_bounded(void **state)
{
    struct http_fields f = { 0 };
    struct error err;

    (void)state;
    for (int i = 0; i < HTTP_MAX_FIELDS; i++)
        assert_int_equal(http_fields_add(&f, "a", "b", &err), 0);
    assert_int_equal(http_fields_add(&f, "a", "b", &err), -1);
    assert_int_equal(err.kind, ERR_INVALID);
    http_fields_done(&f);
    http_fields_done(&f);
}

static void header_names_compare_without_case(void **state)
{
    struct http_request req = { 0 };
    struct error err;

    (void)state;
    assert_int_equal(http_fields_add(&req.headers, "X-API-Key", "one", &err), 0);
    assert_int_equal(http_fields_add(&req.headers, "x-api-key", "two", &err), 0);
    assert_string_equal(http_header(&req, "x-Api-kEY"), "one");
    assert_null(http_header(&req, "X-API"));
    http_fields_done(&req.headers);
}

static void percent_codes_both_ways(void **state)
{
    char out[16];

    (void)state;
    assert_int_equal(percent_decode(out, "%41%4a%4Ax", 10), 4);
    assert_memory_equal(out, "AJJx", 4);
    assert_int_equal(percent_decode(out, "%4", 2), 2);
    assert_int_equal(percent_decode(out, "%%41", 4), 2);
    assert_memory_equal(out, "%A", 2);
    auto_free char *e = percent_encode("a b/\xc3\xa9'\"~");
    assert_string_equal(e, "a%20b%2F%C3%A9%27%22~");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(paths_find_their_route, reset, all_freed),
        cmocka_unit_test_setup_teardown(paths_that_mean_nothing_are_not_found, reset, all_freed),
        cmocka_unit_test_setup_teardown(other_methods_are_told_what_is_allowed, reset, all_freed),
        cmocka_unit_test_setup_teardown(json_routes_take_json, reset, all_freed),
        cmocka_unit_test_setup_teardown(large_or_deep_json_is_refused, reset, all_freed),
        cmocka_unit_test_setup_teardown(sinks_are_closed_once_whatever_happens, reset, all_freed),
        cmocka_unit_test(every_kind_of_error_has_a_status),
        cmocka_unit_test_setup_teardown(a_failing_handler_gives_the_error_document, reset, all_freed),
        cmocka_unit_test(an_error_replaces_any_body),
        cmocka_unit_test(foreign_text_cannot_start_a_header),
        cmocka_unit_test(queries_are_decoded),
        cmocka_unit_test(fields_are_bounded),
        cmocka_unit_test(header_names_compare_without_case),
        cmocka_unit_test(percent_codes_both_ways),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
