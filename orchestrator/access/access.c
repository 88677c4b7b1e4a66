#include "orchestrator/access/access.h"

#include <nettle/base64.h>
#include <string.h>

#include "common/clock.h"
#include "orchestrator/access/jwt.h"
#include "orchestrator/access/keys.h"

#define USER_MAX_BYTES 255

struct access {
    const struct config *cfg; /* borrowed */
    struct keys *keys;        /* NULL: none */
    struct jwt_keys *jwt;     /* NULL: none */
};

/* ---- opening ---- */

static bool is_loopback_name(const char *host, size_t len)
{
    static const char *const names[] = { "localhost", "[::1]", "::1" };

    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (len == strlen(names[i]) && strncasecmp(host, names[i], len) == 0)
            return true;
    /* 127.0.0.0/8, but not a name such as 127.0.0.1.example.org */
    return len > 4 && strncmp(host, "127.", 4) == 0 && strspn(host, "0123456789.") >= len;
}

static bool bound_to_loopback(const struct config *cfg)
{
    return is_loopback_name(cfg->host, strlen(cfg->host));
}

bool access_is_open(const struct access *a) { return !a->keys && !a->jwt; }

const char *access_methods(const struct access *a)
{
    return access_is_open(a) ? "none" : !a->jwt ? "api-key" : !a->keys ? "jwt" : "api-key, jwt";
}

void access_close(struct access *a)
{
    if (!a)
        return;
    keys_free(a->keys);
    jwt_keys_free(a->jwt);
    free(a);
}

int access_open(const struct config *cfg, struct access **ret, struct error *err)
{
    CLEANUP(access_closep) struct access *a = xcalloc(1, sizeof *a);

    a->cfg = cfg;
    if (keys_open(cfg, &a->keys, err) < 0 || jwt_keys_open(cfg, &a->jwt, err) < 0)
        return -1;
    if (access_is_open(a) && !bound_to_loopback(cfg) && !str_eq(cfg->auth, "none"))
        return error_set(
            err, ERR_INVALID,
            "HOST=%s is reachable from other machines, and anybody who reaches an open server can run code. "
            "Set CODE_INTERPRETER_API_KEY, or AUTH=none if the network is private on purpose.",
            cfg->host);
    *ret = steal_ptr(&a);
    return 0;
}

/* ---- an open server ---- */

/* The host part of "name:port" or "[v6]:port". */
static size_t host_length(const char *host)
{
    if (host[0] == '[') {
        const char *end = strchr(host, ']');
        return end ? (size_t)(end - host) + 1 : strlen(host);
    }
    return strcspn(host, ":");
}

static bool listed(const char *list, const char *word, size_t len)
{
    while (*list) {
        list += strspn(list, ", ");
        size_t n = strcspn(list, ", ");
        if (n > 0 && n == len && strncasecmp(list, word, n) == 0)
            return true;
        list += n;
    }
    return false;
}

static bool host_allowed(const struct config *cfg, const char *host)
{
    size_t len = host_length(host);

    return is_loopback_name(host, len) || listed(cfg->allowed_hosts, host, len);
}

/* A name could be made to point here by whoever owns it; an address, or a name the operator listed, could
 * not. */
static bool host_is_fixed(const struct config *cfg, const char *host)
{
    size_t len = host ? host_length(host) : 0;

    return len > 0 && (host[0] == '[' || strspn(host, "0123456789.") >= len || host_allowed(cfg, host));
}

/* A page of this very server may call it: its Origin is http(s)://<Host>. */
static bool origin_is_own(const char *origin, const char *host)
{
    const char *rest = str_starts(origin, "http://")    ? origin + 7
                       : str_starts(origin, "https://") ? origin + 8
                                                        : NULL;

    return rest && host && strcasecmp(rest, host) == 0;
}

int access_check_open(const struct access *a, const struct http_request *req, bool json_route,
                      struct error *err)
{
    const struct config *cfg = a->cfg;

    if (!access_is_open(a))
        return 0;
    const char *host = http_header(req, "Host");
    const char *origin = http_header(req, "Origin");
    const char *type = http_header(req, "Content-Type");

    if (bound_to_loopback(cfg) && host && !host_allowed(cfg, host))
        return error_set(
            err, ERR_FORBIDDEN,
            "Host: this open server answers loopback names only; add the name to ALLOWED_HOSTS or set "
            "CODE_INTERPRETER_API_KEY");
    if (origin && !(origin_is_own(origin, host) && host_is_fixed(cfg, host)))
        return error_set(err, ERR_FORBIDDEN,
                         "Origin: an open server takes no calls from web pages of others; set "
                         "CODE_INTERPRETER_API_KEY to allow browsers");
    if (json_route && (!type || !http_type_is_json(type)))
        return error_set(err, ERR_MEDIA_TYPE, "Content-Type: must be application/json");
    return 0;
}

/* ---- keys ---- */

/* Basic credentials: the key stands as the user or as the password. */
static const struct key_entry *find_basic(const struct keys *keys, const char *encoded)
{
    uint8_t text[1024];
    size_t len = sizeof text;
    struct base64_decode_ctx ctx;

    if (BASE64_DECODE_LENGTH(strlen(encoded)) > sizeof text)
        return NULL;
    base64_decode_init(&ctx);
    if (!base64_decode_update(&ctx, &len, text, strlen(encoded), encoded) || !base64_decode_final(&ctx))
        return NULL;
    const char *user = (const char *)text, *colon = memchr(text, ':', len);
    if (!colon)
        return keys_find(keys, user, len);
    size_t user_len = (size_t)(colon - user);
    const struct key_entry *by_user = keys_find(keys, user, user_len);
    const struct key_entry *by_password = keys_find(keys, colon + 1, len - user_len - 1);
    return by_user ? by_user : by_password;
}

/* What follows the scheme in an Authorization header of that scheme, else NULL. */
static const char *credentials(const char *authorization, const char *scheme)
{
    size_t len = strlen(scheme);

    if (!authorization || strncasecmp(authorization, scheme, len) != 0 || authorization[len] != ' ')
        return NULL;
    return authorization + len + strspn(authorization + len, " ");
}

static const struct key_entry *find_key(const struct keys *keys, const char *key, const char *authorization)
{
    const char *bearer = credentials(authorization, "Bearer"), *basic = credentials(authorization, "Basic");
    const struct key_entry *e = key ? keys_find(keys, key, strlen(key)) : NULL;

    if (!e && bearer)
        e = keys_find(keys, bearer, strlen(bearer));
    return !e && basic ? find_basic(keys, basic) : e;
}

/* A client that has no user to fill in sends its template as it is; all of its users would be one. */
static bool is_user_id(const char *text)
{
    const char *p = text;

    while (*p >= ' ' && *p <= '~')
        p++;
    return *p == '\0' && p - text <= USER_MAX_BYTES && !strstr(text, "{{");
}

static int key_principal(const struct key_entry *e, const struct http_request *req, struct principal **ret,
                         struct error *err)
{
    const char *user = e->trusted_user_header ? http_header(req, "X-Carrel-User") : NULL;

    if (user && !is_user_id(user))
        return error_set(err, ERR_INVALID,
                         "X-Carrel-User: must be a user's id, at most %d ASCII characters, not a placeholder",
                         USER_MAX_BYTES);
    *ret = principal_new(e->tenant, user ? user : "", user && user[0], e->admin);
    return 0;
}

/* ---- who it is ---- */

static int refuse(const char *key, const char *authorization, struct error *err)
{
    return error_set(err, ERR_UNAUTHORIZED, "%s",
                     key || authorization ? "the key is not known here"
                                          : "a key is needed: send it as X-API-Key or Authorization: Bearer");
}

int access_authenticate(const struct access *a, const struct http_request *req, struct principal **ret,
                        struct error *err)
{
    const char *key = http_header(req, "X-API-Key");
    const char *authorization = http_header(req, "Authorization");
    const char *bearer = credentials(authorization, "Bearer");
    CLEANUP(jwt_identity_done) struct jwt_identity id = { 0 };
    bool is_token = a->jwt && bearer && jwt_token_looks_like_one(bearer);

    if (access_is_open(a)) {
        *ret = principal_new("local", "", false, req->peer_is_loopback);
        return 0;
    }
    if (is_token && jwt_verify(a->jwt, bearer, clock_real_ms() / 1000, &id, err) == 0) {
        *ret = principal_new(id.tenant, id.user, true, false);
        return 0;
    }
    const struct key_entry *e = a->keys ? find_key(a->keys, key, authorization) : NULL;
    if (e)
        return key_principal(e, req, ret, err);
    return is_token ? -1 : refuse(key, authorization, err); /* jwt_verify() said why */
}
