#include "orchestrator/config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void defaults_load(void **state)
{
    struct config cfg;
    struct error err = { 0 };

    (void)state;
    assert_int_equal(config_load(&cfg, &err), 0);
    assert_int_equal(cfg.port, 8000);
    assert_string_equal(cfg.host, "127.0.0.1");
    assert_int_equal(cfg.max_sessions, 50);
    assert_true(cfg.bash_strict);
    assert_int_equal(cfg.sandbox_uid_first, 200000);
    assert_int_equal(cfg.sandbox_uid_count, 65536);
    assert_string_equal(cfg.uploads_dir, cfg.data_dir);
    config_done(&cfg);
}

static void values_out_of_range_are_named(void **state)
{
    static const struct {
        const char *name, *value;
    } bad[] = {
        { "PORT", "65536" },       { "PORT", "80x" },
        { "PORT", "-1" },          { "PORT", "99999999999999999999" },
        { "SANDBOX_CPUS", "0" },   { "SANDBOX_CPUS", "one" },
        { "SANDBOX_CPUS", "nan" }, { "BASH_STRICT_MODE", "maybe" },
        { "AUTH", "some" },        { "LOG_LEVEL", "loud" },
        { "LOG_FORMAT", "xml" },   { "DATA_DIR", "relative" },
        { "SANDBOX_UIDS", "5" },   { "SANDBOX_UIDS", "9-3" },
        { "SANDBOX_UIDS", "0-9" }, { "MAX_SESSIONS", "0" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct config cfg;
        struct error err = { 0 };
        assert_int_equal(setenv(bad[i].name, bad[i].value, 1), 0);
        assert_int_equal(config_load(&cfg, &err), -1);
        assert_int_equal(err.kind, ERR_INVALID);
        assert_memory_equal(err.msg, bad[i].name, strlen(bad[i].name));
        assert_int_equal(unsetenv(bad[i].name), 0);
    }
}

static void empty_values_mean_the_default(void **state)
{
    struct config cfg;
    struct error err = { 0 };

    (void)state;
    assert_int_equal(setenv("PORT", "", 1), 0);
    assert_int_equal(config_load(&cfg, &err), 0);
    assert_int_equal(cfg.port, 8000);
    config_done(&cfg);
    assert_int_equal(unsetenv("PORT"), 0);
}

static void credentials_contradict_auth_none(void **state)
{
    static const char *const names[] = { "CODE_INTERPRETER_API_KEY", "API_KEYS_FILE",
                                         "CODEAPI_JWT_PUBLIC_KEY", "CODEAPI_JWT_JWKS_JSON",
                                         "CODEAPI_JWT_PUBLIC_KEYS_DIR" };

    (void)state;
    assert_int_equal(setenv("AUTH", "none", 1), 0);
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        struct config cfg;
        struct error err = { 0 };
        assert_int_equal(setenv(names[i], "k", 1), 0);
        assert_int_equal(config_load(&cfg, &err), -1);
        assert_non_null(strstr(err.msg, names[i]));
        assert_int_equal(unsetenv(names[i]), 0);
    }
    assert_int_equal(unsetenv("AUTH"), 0);
}

static void every_setting_is_documented(void **state)
{
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);

    (void)state;
    assert_non_null(out);
    config_write_docs(out);
    assert_int_equal(fclose(out), 0);
    assert_non_null(strstr(text, "| `MAX_SESSIONS` | integer | `50` |"));
    assert_non_null(strstr(text, "| `CODE_INTERPRETER_API_KEY` | secret text | not set |"));
    assert_null(strstr(text, "|  |"));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_load),
        cmocka_unit_test(values_out_of_range_are_named),
        cmocka_unit_test(empty_values_mean_the_default),
        cmocka_unit_test(credentials_contradict_auth_none),
        cmocka_unit_test(every_setting_is_documented),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
