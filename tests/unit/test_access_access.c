#include "orchestrator/access/access.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void set(char **setting, const char *value)
{
    free(*setting);
    *setting = xstrdup(value);
}

static struct config settings(const char *key, const char *host, const char *auth)
{
    struct config cfg;
    struct error err = { 0 };

    assert_int_equal(config_load(&cfg, &err), 0);
    set(&cfg.api_key, key);
    set(&cfg.host, host);
    set(&cfg.auth, auth);
    set(&cfg.allowed_hosts, "desk.example, other.example");
    return cfg;
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
        CLEANUP(access_closep) struct access *a = NULL;
        struct error err = { 0 };
        assert_int_equal(access_open(&cfg, &a, &err) == 0, cases[i].good);
        if (a)
            assert_int_equal(access_is_open(a), !cases[i].key[0]);
        config_done(&cfg);
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
    struct config cfg = settings("", "127.0.0.1", "auto"), with_key = settings("k", "127.0.0.1", "auto");
    CLEANUP(access_closep) struct access *open = NULL;
    CLEANUP(access_closep) struct access *keyed = NULL;
    struct error none = { 0 };

    (void)state;
    assert_int_equal(access_open(&cfg, &open, &none) | access_open(&with_key, &keyed, &none), 0);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct http_request req;
        struct error err = { 0 };
        fill(&req, cases[i].headers, ARRAY_LEN(cases[i].headers));
        int r = access_check_open(open, &req, cases[i].json_route, &err);
        assert_int_equal(r, cases[i].kind == ERR_NONE ? 0 : -1);
        assert_int_equal(err.kind, cases[i].kind);
        assert_int_equal(access_check_open(keyed, &req, cases[i].json_route, &err), 0);
        http_fields_done(&req.headers);
    }
    config_done(&cfg);
    config_done(&with_key);
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
    CLEANUP(access_closep) struct access *a = NULL;
    struct error none = { 0 };

    (void)state;
    assert_int_equal(access_open(&cfg, &a, &none), 0);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct http_request req;
        struct error err = { 0 };
        CLEANUP(principal_freep) struct principal *p = NULL;
        fill(&req, cases[i].headers, ARRAY_LEN(cases[i].headers));
        assert_int_equal(access_authenticate(a, &req, &p, &err), cases[i].good ? 0 : -1);
        assert_int_equal(err.kind, cases[i].good ? ERR_NONE : ERR_UNAUTHORIZED);
        assert_int_equal(p != NULL, cases[i].good);
        if (p) {
            assert_string_equal(p->tenant, "default");
            assert_true(p->admin && !p->user_verified);
        }
        http_fields_done(&req.headers);
    }
    config_done(&cfg);
}

/* ---- a keys file ---- */

#define SHA_ALPHA "8ed3f6ad685b959ead7022518e1af76cd816f8e8ec7ccdda1ed4018e8f2223f8" /* alpha */
#define SHA_BETA "f44e64e75f3948e9f73f8dfa94721c4ce8cbb4f265c4790c702b2d41cfbf2753"  /* beta */

static void write_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "we");

    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void keys_name_tenant_role_and_user(void **state)
{
    static const char file[] = "[{\"name\":\"desk\",\"sha256\":\"" SHA_ALPHA "\"},"
                               "{\"name\":\"chat\",\"sha256\":\"" SHA_BETA
                               "\",\"tenant\":\"acme\",\"role\":\"admin\","
                               "\"trusted_user_header\":true}]";
    static const struct {
        const char *const headers[2][2];
        enum error_kind kind;
        const char *tenant, *user;
        bool verified, admin;
    } cases[] = {
        { { { "X-API-Key", "alpha" } }, ERR_NONE, "key:desk", "", false, false },
        { { { "X-API-Key", "alpha" }, { "X-Carrel-User", "eve" } }, ERR_NONE, "key:desk", "", false, false },
        { { { "X-API-Key", "beta" } }, ERR_NONE, "acme", "", false, true },
        { { { "Authorization", "Bearer beta" }, { "X-Carrel-User", "ann" } },
          ERR_NONE,
          "acme",
          "ann",
          true,
          true },
        { { { "X-API-Key", "beta" }, { "X-Carrel-User", "" } }, ERR_NONE, "acme", "", false, true },
        { { { "X-API-Key", "beta" }, { "X-Carrel-User", "{{LIBRECHAT_USER_ID}}" } },
          ERR_INVALID,
          NULL,
          NULL,
          false,
          false },
        { { { "X-API-Key", "beta" }, { "X-Carrel-User", "\xe9lise" } },
          ERR_INVALID,
          NULL,
          NULL,
          false,
          false },
        { { { "X-API-Key", "gamma" } }, ERR_UNAUTHORIZED, NULL, NULL, false, false },
        { { { "X-API-Key", SHA_ALPHA } }, ERR_UNAUTHORIZED, NULL, NULL, false, false },
        { { { "X-Carrel-User", "ann" } }, ERR_UNAUTHORIZED, NULL, NULL, false, false },
    };
    char path[] = "/tmp/carrel-keys-XXXXXX";
    struct config cfg = settings("", "0.0.0.0", "auto");
    CLEANUP(access_closep) struct access *a = NULL;
    struct error none = { 0 };
    auto_close int fd = mkostemp(path, O_CLOEXEC);

    (void)state;
    assert_true(fd >= 0);
    write_file(path, file);
    set(&cfg.api_keys_file, path);
    assert_int_equal(access_open(&cfg, &a, &none), 0);
    assert_false(access_is_open(a));
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct http_request req;
        struct error err = { 0 };
        CLEANUP(principal_freep) struct principal *p = NULL;
        fill(&req, cases[i].headers, ARRAY_LEN(cases[i].headers));
        assert_int_equal(access_authenticate(a, &req, &p, &err), cases[i].tenant ? 0 : -1);
        assert_int_equal(err.kind, cases[i].kind);
        if (p) {
            assert_string_equal(p->tenant, cases[i].tenant);
            assert_string_equal(p->user, cases[i].user);
            assert_int_equal(p->user_verified, cases[i].verified);
            assert_int_equal(p->admin, cases[i].admin);
        }
        http_fields_done(&req.headers);
    }
    config_done(&cfg);
    (void)unlink(path);
}

static void a_bad_entry_of_the_keys_file_is_named(void **state)
{
    static const struct {
        const char *file, *says;
    } cases[] = {
        { "", "API_KEYS_FILE" },
        { "[]", "not an array of at least one key" },
        { "{\"name\":\"a\"}", "not an array of at least one key" },
        { "[\"alpha\"]", "entry 1" },
        { "[{\"sha256\":\"" SHA_ALPHA "\"}]", "entry 1: name" },
        { "[{\"name\":\"a\"}]", "entry 1: 'a': sha256" },
        { "[{\"name\":\"a\",\"sha256\":\"alpha\"}]", "'a': sha256" },
        { "[{\"name\":\"a\",\"sha256\":\"zzd3f6ad685b959ead7022518e1af76cd816f8e8ec7ccdda1ed4018e8f2223f8\"}"
          "]",
          "'a': sha256" },
        { "[{\"name\":\"a\",\"sha256\":\"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\"}"
          "]",
          "empty key" },
        { "[{\"name\":\"a b\",\"sha256\":\"" SHA_ALPHA "\"}]", "'a b': name" },
        { "[{\"name\":\"a\",\"sha256\":\"" SHA_ALPHA "\",\"role\":\"root\"}]", "'a': role" },
        { "[{\"name\":\"a\",\"sha256\":\"" SHA_ALPHA "\",\"tenant\":\"key:b\"}]", "'a': tenant" },
        { "[{\"name\":\"a\",\"sha256\":\"" SHA_ALPHA "\",\"tennant\":\"b\"}]", "tennant" },
        { "[{\"name\":\"a\",\"sha256\":\"" SHA_ALPHA "\",\"trusted_user_header\":1}]",
          "'a': trusted_user_header" },
        { "[{\"name\":\"a\",\"sha256\":\"" SHA_ALPHA "\"},{\"name\":\"a\",\"sha256\":\"" SHA_BETA "\"}]",
          "entry 2: 'a': the name is used twice" },
        { "[{\"name\":\"a\",\"sha256\":\"" SHA_ALPHA "\"},{\"name\":\"b\",\"sha256\":\"" SHA_ALPHA "\"}]",
          "entry 2: 'b': this is the same key as 'a'" },
        { "[{\"name\":\"a\",\"sha256\":\"2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b\"}"
          "]",
          "same key as 'CODE_INTERPRETER_API_KEY'" }, /* secret */
    };
    char path[] = "/tmp/carrel-keys-XXXXXX";
    auto_close int fd = mkostemp(path, O_CLOEXEC);

    (void)state;
    assert_true(fd >= 0);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct config cfg = settings("secret", "127.0.0.1", "auto");
        struct access *a = NULL;
        struct error err = { 0 };
        write_file(path, cases[i].file);
        set(&cfg.api_keys_file, path);
        assert_int_equal(access_open(&cfg, &a, &err), -1);
        assert_null(a);
        assert_int_equal(err.kind, ERR_INVALID);
        if (!strstr(err.msg, cases[i].says))
            fail_msg("case %zu says: %s", i, err.msg);
        config_done(&cfg);
    }
    (void)unlink(path);
}

static void a_keys_file_that_is_missing_stops_the_start(void **state)
{
    struct config cfg = settings("", "127.0.0.1", "auto");
    struct access *a = NULL;
    struct error err = { 0 };

    (void)state;
    set(&cfg.api_keys_file, "/nonexistent/keys.json");
    assert_int_equal(access_open(&cfg, &a, &err), -1);
    assert_non_null(strstr(err.msg, "API_KEYS_FILE: /nonexistent/keys.json"));
    config_done(&cfg);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(open_servers_stay_on_loopback_unless_told),
        cmocka_unit_test(open_servers_refuse_what_a_web_page_could_send),
        cmocka_unit_test(a_good_key_is_enough_wherever_it_stands),
        cmocka_unit_test(keys_name_tenant_role_and_user),
        cmocka_unit_test(a_bad_entry_of_the_keys_file_is_named),
        cmocka_unit_test(a_keys_file_that_is_missing_stops_the_start),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
