#include "orchestrator/access/access.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct config settings(const char *key, const char *host, const char *auth)
{
    struct config cfg = { 0 };

    cfg.api_key = xstrdup(key);
    cfg.host = xstrdup(host);
    cfg.auth = xstrdup(auth);
    cfg.allowed_hosts = xstrdup("desk.example, other.example");
    return cfg;
}

static void settings_done(struct config *cfg)
{
    free(cfg->api_key);
    free(cfg->host);
    free(cfg->auth);
    free(cfg->allowed_hosts);
}

static void open_servers_stay_on_loopback_unless_told(void **state)
{
    static const struct {
        const char *key, *host, *auth;
        bool good;
    } cases[] = {
        { "", "127.0.0.1", "auto", true }, { "", "127.8.8.8", "auto", true },
        { "", "::1", "auto", true },       { "", "localhost", "auto", true },
        { "", "0.0.0.0", "auto", false },  { "", "10.0.0.1", "auto", false },
        { "", "::", "auto", false },       { "", "127.0.0.1.evil", "auto", false },
        { "", "0.0.0.0", "none", true },   { "k", "0.0.0.0", "auto", true },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct config cfg = settings(cases[i].key, cases[i].host, cases[i].auth);
        struct error err = { 0 };
        assert_int_equal(access_check_config(&cfg, &err) == 0, cases[i].good);
        settings_done(&cfg);
    }
}

static void fill(struct http_request *req, const char *const pairs[][2], size_t n)
{
    struct error err = { 0 };

    *req = (struct http_request){ .method = "POST", .client_fd = -1 };
    for (size_t i = 0; i < n && pairs[i][0]; i++)
        assert_int_equal(http_fields_add(&req->headers, pairs[i][0], pairs[i][1], &err), 0);
}

static void open_servers_refuse_what_a_web_page_could_send(void **state)
{
    static const struct {
        const char *const headers[3][2];
        bool json_route;
        enum error_kind kind;
    } cases[] = {
        { { { "Host", "127.0.0.1:8000" } }, false, ERR_NONE },
        { { { "Host", "LOCALHOST:8000" }, { "Content-Type", "application/json; charset=utf-8" } },
          true,
          ERR_NONE },
        { { { "Host", "[::1]:8000" } }, false, ERR_NONE },
        { { { "Host", "desk.example:8000" } }, false, ERR_NONE },
        { { { "Host", "desk.example.evil" } }, false, ERR_FORBIDDEN },
        { { { "Host", "127.0.0.1.evil:8000" } }, false, ERR_FORBIDDEN },
        { { { "Host", "localhost:8000" }, { "Origin", "http://localhost:8000" } }, false, ERR_NONE },
        { { { "Host", "localhost:8000" }, { "Origin", "http://localhost:9" } }, false, ERR_FORBIDDEN },
        { { { "Host", "localhost:8000" }, { "Origin", "null" } }, false, ERR_FORBIDDEN },
        { { { "Host", "localhost" }, { "Content-Type", "text/plain" } }, true, ERR_MEDIA_TYPE },
        { { { "Host", "localhost" } }, true, ERR_MEDIA_TYPE },
    };
    struct config cfg = settings("", "127.0.0.1", "auto"), keyed = settings("k", "127.0.0.1", "auto");

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct http_request req;
        struct error err = { 0 };
        fill(&req, cases[i].headers, ARRAY_LEN(cases[i].headers));
        int r = access_check_open(&cfg, &req, cases[i].json_route, &err);
        assert_int_equal(r, cases[i].kind == ERR_NONE ? 0 : -1);
        assert_int_equal(err.kind, cases[i].kind);
        assert_int_equal(access_check_open(&keyed, &req, cases[i].json_route, &err), 0);
        http_fields_done(&req.headers);
    }
    settings_done(&cfg);
    settings_done(&keyed);
}

static void a_good_key_is_enough_wherever_it_stands(void **state)
{
    static const struct {
        const char *const headers[2][2];
        bool good;
    } cases[] = {
        { { { "X-API-Key", "s3cret" } }, true },
        { { { "x-api-key", "s3cret" } }, true },
        { { { "Authorization", "Bearer s3cret" } }, true },
        { { { "Authorization", "bearer  s3cret" } }, true },
        { { { "Authorization", "Basic czNjcmV0Og==" } }, true },     /* s3cret: */
        { { { "Authorization", "Basic dXNlcjpzM2NyZXQ=" } }, true }, /* user:s3cret */
        { { { "X-API-Key", "wrong" }, { "Authorization", "Bearer s3cret" } }, true },
        { { { "X-API-Key", "s3cret" }, { "Authorization", "Bearer wrong" } }, true },
        { { { NULL, NULL } }, false },
        { { { "X-API-Key", "" } }, false },
        { { { "X-API-Key", "s3cre" } }, false },
        { { { "X-API-Key", "s3cret2" } }, false },
        { { { "Authorization", "s3cret" } }, false },
        { { { "Authorization", "Basic !!!" } }, false },
        { { { "Authorization", "Basic " } }, false },
    };
    struct config cfg = settings("s3cret", "127.0.0.1", "auto");

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct http_request req;
        struct error err = { 0 };
        CLEANUP(principal_freep) struct principal *p = NULL;
        fill(&req, cases[i].headers, ARRAY_LEN(cases[i].headers));
        assert_int_equal(access_authenticate(&cfg, &req, &p, &err), cases[i].good ? 0 : -1);
        assert_int_equal(err.kind, cases[i].good ? ERR_NONE : ERR_UNAUTHORIZED);
        assert_int_equal(p != NULL, cases[i].good);
        http_fields_done(&req.headers);
    }
    settings_done(&cfg);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(open_servers_stay_on_loopback_unless_told),
        cmocka_unit_test(open_servers_refuse_what_a_web_page_could_send),
        cmocka_unit_test(a_good_key_is_enough_wherever_it_stands),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
