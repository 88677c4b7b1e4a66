/* Every route is in openapi.json and the index, and every schema that a route names exists. */
#include "orchestrator/access/access.h"
#include "orchestrator/api/api.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct config cfg;
static struct access *access_of_all;
static struct app app = { .config = &cfg };

static json_t *get(http_handler *handler)
{
    struct http_request req = { .method = "GET", .client_fd = -1 };
    struct http_response res;
    struct error err = { 0 };

    http_response_init(&res);
    assert_int_equal(handler(&app, &req, &res, &err), 0);
    json_t *doc = json_incref(res.json);
    http_response_done(&res);
    return doc;
}

static void openapi_has_every_route_and_no_other(void **state)
{
    json_auto_t *doc = get(api_openapi);
    json_t *paths = json_object_get(doc, "paths"), *path = NULL;
    const char *pattern = NULL;
    size_t n = 0, operations = 0;
    const struct http_route *routes = api_routes(&n);

    (void)state;
    for (size_t i = 0; i < n; i++) {
        char method[8] = "";
        for (size_t c = 0; routes[i].method[c]; c++)
            method[c] = (char)(routes[i].method[c] | 0x20);
        json_t *op = json_object_get(json_object_get(paths, routes[i].pattern), method);
        assert_non_null(op);
        assert_string_equal(json_string_value(json_object_get(op, "summary")), routes[i].summary);
        assert_int_equal(json_object_get(op, "security") != NULL, routes[i].auth == HTTP_AUTH_NONE);
    }
    json_object_foreach(paths, pattern, path) operations += json_object_size(path);
    assert_int_equal(operations, n);
}

static void check_refs(const json_t *schemas, const json_t *value)
{
    const char *key = NULL;
    json_t *child = NULL;
    size_t i = 0;

    if (json_is_object(value)) {
        json_object_foreach((json_t *)(uintptr_t)value, key, child)
        {
            if (strcmp(key, "$ref") == 0) {
                const char *name = strrchr(json_string_value(child), '/') + 1;
                assert_non_null(json_object_get(schemas, name));
            }
            check_refs(schemas, child);
        }
    } else if (json_is_array(value)) {
        json_array_foreach(value, i, child) check_refs(schemas, child);
    }
}

static void schemas_that_are_named_exist(void **state)
{
    json_auto_t *doc = get(api_openapi);

    (void)state;
    check_refs(json_object_get(json_object_get(doc, "components"), "schemas"), doc);
}

static void the_index_lists_every_route(void **state)
{
    json_auto_t *doc = get(api_index);
    size_t n = 0;

    (void)state;
    (void)api_routes(&n);
    assert_int_equal(json_array_size(json_object_get(doc, "endpoints")), n);
}

static void every_way_to_sign_in_is_documented(void **state)
{
    static const char *const schemes[] = { "key", "bearer" };
    struct access *open = NULL, *keyed = NULL;
    struct config with_key = cfg;
    char key[] = "s3cret";
    struct error err = { 0 };

    (void)state;
    with_key.api_key = key;
    assert_int_equal(access_open(&cfg, &open, &err), 0);
    assert_int_equal(access_open(&with_key, &keyed, &err), 0);
    for (int needed = 0; needed < 2; needed++) {
        app.access = needed ? keyed : open;
        json_auto_t *doc = get(api_openapi), *index = get(api_index);
        const json_t *security = json_object_get(doc, "security");
        const json_t *known = json_object_get(json_object_get(doc, "components"), "securitySchemes");
        assert_int_equal(json_array_size(security), needed ? ARRAY_LEN(schemes) : 0);
        for (size_t i = 0; i < ARRAY_LEN(schemes); i++) {
            assert_true(json_is_object(json_object_get(known, schemes[i])));
            assert_true(!needed || json_object_get(json_array_get(security, i), schemes[i]));
        }
        assert_string_equal(json_string_value(json_object_get(index, "authentication")),
                            needed ? "api-key" : "none");
    }
    app.access = access_of_all;
    access_close(open);
    access_close(keyed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(openapi_has_every_route_and_no_other),
        cmocka_unit_test(schemas_that_are_named_exist),
        cmocka_unit_test(the_index_lists_every_route),
        cmocka_unit_test(every_way_to_sign_in_is_documented),
    };
    struct error err = { 0 };

    if (config_load(&cfg, &err) < 0 || access_open(&cfg, &access_of_all, &err) < 0)
        return 1;
    app.access = access_of_all;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    access_close(access_of_all);
    config_done(&cfg);
    return failed;
}
