/* What this server is and whether it works: /health, /libraries, /. */
#include <string.h>

#include "common/language.h"
#include "orchestrator/access/access.h"
#include "orchestrator/api/api.h"
#include "orchestrator/session/service.h"

/* Runtimes are named as in the image's manifest; one that the image lacks is listed as missing. */
static json_t *capabilities(const json_t *manifest)
{
    static const char *const names[] = { "python", "bash", "node", "typescript", "go",      "c", "cpp",
                                         "java",   "php",  "rust", "d",          "fortran", "r" };
    json_t *doc = json_object();
    json_t *runtimes = json_object_get(manifest, "runtimes");

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        json_t *version = json_object_get(json_object_get(runtimes, names[i]), "version");
        (void)json_object_set_new(doc, names[i],
                                  json_pack("{s:b, s:o}", "available", json_is_string(version), "version",
                                            version ? json_incref(version) : json_null()));
    }
    return doc;
}

static json_t *short_libraries(const json_t *manifest)
{
    json_t *doc = json_object(), *list = NULL;
    const char *kind = NULL;

    json_object_foreach(json_object_get(manifest, "libraries"), kind, list)(void)
        json_object_set_new(doc, kind, json_integer((json_int_t)json_array_size(list)));
    return doc;
}

static void add_details(struct app *app, const struct service_state *state, json_t *doc)
{
    struct session_counts counts;

    session_table_counts(app->sessions, &counts);
    json_t *more = json_pack(
        "{s:i, s:i, s:i, s:I, s:I, s:s, s:o, s:o, s:o, s:o}", "active_sessions",
        (int)(counts.live + counts.starting), "executing_sessions", (int)counts.executing, "cleaned_sessions",
        (int)counts.cleaned, "max_sessions", (json_int_t)app->config->max_sessions, "execution_timeout",
        (json_int_t)app->config->execution_timeout_s, "uploads_dir", app->config->uploads_dir,
        "notebooks_dir", json_null(), "runtime_capabilities", capabilities(state->manifest),
        "runtime_libraries", short_libraries(state->manifest), "engine",
        json_pack("{s:s, s:s, s:s}", "name", state->engine_name, "version", state->engine_version, "api",
                  state->api_version));
    (void)json_object_update(doc, more);
    json_decref(more);
}

int api_health(struct app *app, struct http_request *req, struct http_response *res, struct error *err)
{
    struct service_state state = { 0 };

    (void)err;
    service_state_get(app->service, &state);
    json_t *doc = json_pack("{s:s, s:s}", "status", state.ready ? "ok" : "degraded", "version",
                            CARREL_VERSION);
    if (!state.ready)
        (void)json_object_set_new(doc, "reason", jsonx_str(state.reason));
    if (req->principal) /* without a key: up or not, and no more */
        add_details(app, &state, doc);
    http_response_json(res, state.ready ? 200 : 503, doc);
    service_state_done(&state);
    return 0;
}

int api_libraries(struct app *app, struct http_request *req, struct http_response *res, struct error *err)
{
    struct service_state state = { 0 };
    const char *runtime = http_query(req, "runtime");
    json_t *libraries = NULL;
    int r = 0;

    service_state_get(app->service, &state);
    libraries = json_object_get(state.manifest, "libraries");
    if (!state.manifest)
        r = error_set(err, ERR_UNAVAILABLE, "%s", state.reason);
    else if (runtime && !json_object_get(libraries, runtime))
        r = error_set(err, ERR_INVALID, "runtime: there is no list for '%.40s'", runtime);
    else if (runtime)
        http_response_json(res, 200,
                           json_pack("{s:{s:O}}", "libraries", runtime, json_object_get(libraries, runtime)));
    else
        http_response_json(res, 200,
                           json_pack("{s:O, s:O}", "runtimes", json_object_get(state.manifest, "runtimes"),
                                     "libraries", libraries));
    service_state_done(&state);
    return r;
}

int api_index(struct app *app, struct http_request *req, struct http_response *res, struct error *err)
{
    size_t n = 0;
    const struct http_route *routes = api_routes(&n);
    json_t *endpoints = json_array(), *languages = json_array();

    (void)req, (void)err;
    for (size_t i = 0; i < n; i++)
        (void)json_array_append_new(endpoints,
                                    json_pack("{s:s, s:s, s:s}", "method", routes[i].method, "path",
                                              routes[i].pattern, "summary", routes[i].summary));
    for (size_t i = 0; i < language_count(); i++)
        (void)json_array_append_new(languages, json_string(language_at(i)->name));
    http_response_json(res, 200,
                       json_pack("{s:s, s:s, s:[s,s,s,s,s], s:s, s:o, s:o, s:s}", "name", "Carrel", "version",
                                 CARREL_VERSION, "features", "sessions", "kernel-state", "files", "streaming",
                                 "one-sandbox-per-session", "authentication", access_methods(app->access),
                                 "languages", languages, "endpoints", endpoints, "documentation",
                                 "/openapi.json"));
    return 0;
}
