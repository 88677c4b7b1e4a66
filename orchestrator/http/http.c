#include "orchestrator/http/http.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "orchestrator/http/route.h"

static const unsigned statuses[] = {
    [ERR_NONE] = 500,       [ERR_INVALID] = 400,  [ERR_UNAUTHORIZED] = 401, [ERR_FORBIDDEN] = 403,
    [ERR_NOT_FOUND] = 404,  [ERR_METHOD] = 405,   [ERR_CONFLICT] = 409,     [ERR_LIMIT] = 413,
    [ERR_MEDIA_TYPE] = 415, [ERR_BUSY] = 429,     [ERR_TIMEOUT] = 504,      [ERR_UNAVAILABLE] = 503,
    [ERR_UPSTREAM] = 502,   [ERR_INTERNAL] = 500,
};
_Static_assert(ARRAY_LEN(statuses) == ERR_KIND_COUNT, "every kind has a row");

/* What the guard is shown for OPTIONS, which no route of its own serves: CORS preflights carry no key. */
static const struct http_route options_route = { .method = "OPTIONS",
                                                 .pattern = "*",
                                                 .auth = HTTP_AUTH_NONE };

unsigned http_status_of(enum error_kind kind) { return statuses[kind]; }

void http_response_init(struct http_response *res)
{
    *res = (struct http_response){ .status = 200, .file_fd = -1 };
}

static void drop_body(struct http_response *res)
{
    json_decref(res->json);
    free(res->text);
    closep(&res->file_fd);
    if (res->stream.free)
        res->stream.free(res->stream.state);
    res->json = NULL;
    res->text = NULL;
    res->text_len = 0;
    res->file_fd = -1;
    res->stream = (struct http_stream){ 0 };
    free(res->content_type);
    res->content_type = NULL;
}

void http_response_done(struct http_response *res)
{
    drop_body(res);
    http_fields_done(&res->headers);
}

void http_response_json(struct http_response *res, unsigned status, json_t *doc)
{
    drop_body(res);
    res->status = status;
    res->json = doc;
}

void http_response_header(struct http_response *res, const char *name, const char *fmt, ...)
{
    auto_free char *value = NULL;
    struct error ignored;
    va_list ap;

    va_start(ap, fmt);
    int n = vasprintf(&value, fmt, ap);
    va_end(ap);
    if (n < 0) {
        value = NULL; /* vasprintf(3): undefined on failure */
        return;
    }
    for (char *p = value; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            *p = ' '; /* foreign text must not start a header of its own */
    IGNORE(http_fields_add(&res->headers, name, value, &ignored)); /* fails only past HTTP_MAX_FIELDS */
}

void http_response_error(struct http_response *res, const struct error *err)
{
    json_t *doc = json_pack("{s:s, s:o, s:o}", "error", error_kind_name(err->kind), "message",
                            jsonx_str(err->msg), "detail", jsonx_str(err->msg));

    if (err->retry_after_s > 0) {
        (void)json_object_set_new(doc, "retry_after_seconds", json_integer(err->retry_after_s));
        http_response_header(res, "Retry-After", "%d", err->retry_after_s);
    }
    http_response_json(res, http_status_of(err->kind), doc);
}

bool http_type_is_json(const char *content_type)
{
    size_t len = strcspn(content_type, "; \t");

    return (len == 16 && strncasecmp(content_type, "application/json", len) == 0) ||
           (len > 5 && strncasecmp(content_type + len - 5, "+json", 5) == 0);
}

static int admit(const struct http_service *s, const struct http_route *route, struct http_request *req,
                 struct http_response *res, struct error *err)
{
    if (s->guard && s->guard(s->app, route, req, res, err) < 0)
        return -1;
    const char *type = http_header(req, "Content-Type");
    if (route->json_body && type && !http_type_is_json(type))
        return error_set(err, ERR_MEDIA_TYPE, "Content-Type: expected application/json");
    if (route->sink && route->sink->open(s->app, req, &req->sink_state, err) < 0)
        return -1;
    return 0;
}

static void answer_unrouted(const struct http_service *s, struct http_request *req, struct http_response *res,
                            const char *allow)
{
    struct error err;

    if (!allow) {
        (void)error_set(&err, ERR_NOT_FOUND, "no such path");
        http_response_error(res, &err);
        return;
    }
    http_response_header(res, "Allow", "%s", allow);
    if (strcmp(req->method, "OPTIONS") != 0) {
        (void)error_set(&err, ERR_METHOD, "%.32s is not allowed here; use %s", req->method, allow);
        http_response_error(res, &err);
    } else if (admit(s, &options_route, req, res, &err) < 0) {
        http_response_error(res, &err);
    } else {
        res->status = 204;
    }
}

const struct http_route *http_begin(const struct http_service *s, struct http_request *req,
                                    struct http_response *res)
{
    auto_free char *allow = NULL;
    struct error err;

    http_response_init(res);
    const struct http_route *route = route_find(s->routes, s->route_count, req->method, req->target,
                                                req->params, &allow);
    if (!route) {
        answer_unrouted(s, req, res, allow);
        return NULL;
    }
    if (admit(s, route, req, res, &err) < 0) {
        http_response_error(res, &err);
        return NULL;
    }
    return route;
}

static int take_body(const struct http_service *s, const struct http_route *route, struct http_request *req,
                     const char *body, size_t len, struct error *err)
{
    if (route->sink)
        return route->sink->end(req->sink_state, err);
    if (!route->json_body)
        return 0;
    if (len == 0)
        return error_set(err, ERR_INVALID, "body: expected a JSON object");
    if (len > s->max_json_bytes)
        return error_set(err, ERR_LIMIT, "body: more than %zu bytes", s->max_json_bytes);
    return jsonx_parse(body, len, &req->body, err);
}

void http_finish(const struct http_service *s, const struct http_route *route, struct http_request *req,
                 const char *body, size_t body_len, struct http_response *res)
{
    struct error err = { .kind = ERR_INTERNAL };

    if (take_body(s, route, req, body, body_len, &err) < 0 || route->handler(s->app, req, res, &err) < 0)
        http_response_error(res, &err);
}

static void free_sink(const struct http_route *route, struct http_request *req)
{
    if (route && route->sink && req->sink_state)
        route->sink->free(req->sink_state);
    req->sink_state = NULL;
}

void http_dispatch(const struct http_service *s, struct http_request *req, const char *body, size_t body_len,
                   struct http_response *res)
{
    const struct http_route *route = http_begin(s, req, res);
    struct error err;

    if (route && route->sink && body_len > 0 && route->sink->data(req->sink_state, body, body_len, &err) < 0)
        http_response_error(res, &err);
    else if (route)
        http_finish(s, route, req, body, body_len, res);
    free_sink(route, req);
}

void http_request_done(const struct http_service *s, const struct http_route *route, struct http_request *req)
{
    free_sink(route, req);
    if (req->principal)
        s->principal_free(req->principal);
    req->principal = NULL;
    json_decref(req->body);
    req->body = NULL;
    for (size_t i = 0; i < HTTP_MAX_PARAMS; i++) {
        free(req->params[i]);
        req->params[i] = NULL;
    }
    http_fields_done(&req->headers);
    http_fields_done(&req->query);
}
