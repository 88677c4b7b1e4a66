#include "orchestrator/http/route.h"

#include <assert.h>
#include <string.h>
#include <strings.h>

#include "orchestrator/http/percent.h"

static const char *const methods[] = { "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE" };

struct path {
    char *text; /* owned; the decoded segments, each NUL-terminated */
    const char *segments[ROUTE_MAX_SEGMENTS];
    size_t count;
};

static void path_done(struct path *p) { free(p->text); }

/* The path of an absolute-form target ("http://host/x", RFC 9112 3.2.2), or the target itself. */
static const char *skip_authority(const char *target)
{
    if (strncasecmp(target, "http://", 7) != 0)
        return target;
    const char *slash = strchr(target + 7, '/');
    return slash ? slash : "/";
}

/* False when some segment cannot be told from another path: it holds a slash or a NUL, or nothing is left of
 * it. */
static bool path_parse(const char *target, struct path *ret)
{
    char *p = ret->text = xstrdup(skip_authority(target));

    if (*p != '/')
        return false;
    while (*(p += strspn(p, "/"))) {
        size_t len = strcspn(p, "/");
        bool last = p[len] == '\0';
        size_t n = percent_decode(p, p, len);
        if (ret->count == ROUTE_MAX_SEGMENTS || memchr(p, '/', n) || memchr(p, '\0', n))
            return false;
        p[n] = '\0';
        ret->segments[ret->count++] = p;
        if (last)
            break;
        p += len + 1;
    }
    if (ret->count > 0 && strcmp(ret->segments[0], "v1") == 0)
        memmove(ret->segments, ret->segments + 1, --ret->count * sizeof *ret->segments);
    return true;
}

static bool is_param(const char *pattern) { return *pattern == '{'; }

/* Gives a rank by which a literal beats a {param}, the earlier segment first; 0 when the pattern does not
 * fit. */
static unsigned rank(const char *pattern, const struct path *p)
{
    unsigned score = 1;
    size_t i = 0;

    while (*(pattern += strspn(pattern, "/"))) {
        size_t len = strcspn(pattern, "/");
        if (i == p->count)
            return 0;
        const char *s = p->segments[i++];
        if (!is_param(pattern) && (strlen(s) != len || memcmp(s, pattern, len) != 0))
            return 0;
        score = score << 1 | !is_param(pattern);
        pattern += len;
    }
    return i == p->count ? score : 0;
}

static const struct http_route *best(const struct http_route *routes, size_t count, const char *method,
                                     const struct path *p)
{
    const struct http_route *found = NULL;
    unsigned found_rank = 0;

    for (size_t i = 0; i < count; i++) {
        unsigned r = strcmp(routes[i].method, method) == 0 ? rank(routes[i].pattern, p) : 0;
        if (r > found_rank) {
            found = &routes[i];
            found_rank = r;
        }
    }
    if (!found && strcmp(method, "HEAD") == 0)
        return best(routes, count, "GET", p);
    return found;
}

static void copy_params(const char *pattern, const struct path *p, char *ret_params[HTTP_MAX_PARAMS])
{
    size_t n = 0;

    for (size_t i = 0; *(pattern += strspn(pattern, "/")); i++) {
        if (is_param(pattern)) {
            assert(n < HTTP_MAX_PARAMS);
            ret_params[n++] = xstrdup(p->segments[i]);
        }
        pattern += strcspn(pattern, "/");
    }
}

static char *allowed(const struct http_route *routes, size_t count, const struct path *p)
{
    char *list = NULL;

    for (size_t i = 0; i < ARRAY_LEN(methods); i++) {
        if (!best(routes, count, methods[i], p))
            continue;
        char *longer = xasprintf("%s%s%s", list ? list : "", list ? ", " : "", methods[i]);
        free(list);
        list = longer;
    }
    if (!list)
        return NULL;
    char *all = xasprintf("%s, OPTIONS", list);
    free(list);
    return all;
}

const struct http_route *route_find(const struct http_route *routes, size_t count, const char *method,
                                    const char *target, char *ret_params[HTTP_MAX_PARAMS], char **ret_allow)
{
    CLEANUP(path_done) struct path p = { 0 };

    *ret_allow = NULL;
    if (!path_parse(target, &p))
        return NULL;
    const struct http_route *r = best(routes, count, method, &p);
    if (r)
        copy_params(r->pattern, &p, ret_params);
    else
        *ret_allow = allowed(routes, count, &p);
    return r;
}
