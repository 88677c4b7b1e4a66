#include <string.h>

#include "orchestrator/access/access.h"
#include "orchestrator/api/api.h"

static bool origin_listed(const char *list, const char *origin)
{
    size_t len = strlen(origin);

    while (*list) {
        list += strspn(list, ", ");
        size_t n = strcspn(list, ", ");
        if (n == len && strncmp(list, origin, n) == 0)
            return true;
        list += n;
    }
    return false;
}

/* Browsers may call a server that needs a key; never with cookies, which it does not use. */
static void add_cors(const struct app *app, const struct http_request *req, struct http_response *res)
{
    const char *origin = http_header(req, "Origin");
    const char *allowed = app->config->cors_origins;
    bool any = str_eq(allowed, "*");

    if (!origin || access_is_open(app->access) || !(any || origin_listed(allowed, origin)))
        return;
    http_response_header(res, "Access-Control-Allow-Origin", "%s", any ? "*" : origin);
    if (!any)
        http_response_header(res, "Vary", "Origin");
    http_response_header(res, "Access-Control-Expose-Headers", "Content-Disposition, ETag, Retry-After");
    if (strcmp(req->method, "OPTIONS") == 0) {
        http_response_header(res, "Access-Control-Allow-Methods", "GET, HEAD, POST, DELETE, OPTIONS");
        http_response_header(res, "Access-Control-Allow-Headers",
                             "Authorization, Content-Type, X-API-Key, Range");
        http_response_header(res, "Access-Control-Max-Age", "600");
    }
}

int api_guard(struct app *app, const struct http_route *route, struct http_request *req,
              struct http_response *res, struct error *err)
{
    add_cors(app, req, res);
    if (strcmp(req->method, "OPTIONS") == 0) /* a preflight carries no credentials and changes nothing */
        return access_check_open(app->access, req, false, err);
    if (access_check_open(app->access, req, route->json_body, err) < 0)
        return -1;
    if (access_authenticate(app->access, req, &req->principal, err) < 0) {
        if (route->auth == HTTP_AUTH_NONE) /* public; a good key may show more */
            return 0;
        if (err->kind == ERR_UNAUTHORIZED)
            http_response_header(res, "WWW-Authenticate", "Bearer realm=\"carrel\"");
        return -1;
    }
    if (route->auth == HTTP_AUTH_ADMIN && !req->principal->admin)
        return error_set(err, ERR_FORBIDDEN, "this needs a key with the admin role");
    return 0;
}
