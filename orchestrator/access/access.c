#include "orchestrator/access/access.h"

#include <nettle/base64.h>
#include <nettle/memops.h>
#include <nettle/sha2.h>
#include <string.h>

static bool is_loopback_name(const char *host, size_t len)
{
    static const char *const names[] = { "localhost", "[::1]", "::1" };

    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (len == strlen(names[i]) && strncasecmp(host, names[i], len) == 0)
            return true;
    /* 127.0.0.0/8, but not a name such as 127.0.0.1.example.org */
    return len > 4 && strncmp(host, "127.", 4) == 0 && strspn(host, "0123456789.") >= len;
}

bool access_is_open(const struct config *cfg) { return !cfg->api_key[0]; }

static bool bound_to_loopback(const struct config *cfg)
{
    return is_loopback_name(cfg->host, strlen(cfg->host));
}

int access_check_config(const struct config *cfg, struct error *err)
{
    if (!access_is_open(cfg) || bound_to_loopback(cfg) || str_eq(cfg->auth, "none"))
        return 0;
    return error_set(
        err, ERR_INVALID,
        "HOST=%s is reachable from other machines, and anybody who reaches an open server can run code. "
        "Set CODE_INTERPRETER_API_KEY, or AUTH=none if the network is private on purpose.",
        cfg->host);
}

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

/* A page of this very server may call it: its Origin is http(s)://<Host>. */
static bool origin_is_own(const char *origin, const char *host)
{
    const char *rest = str_starts(origin, "http://")    ? origin + 7
                       : str_starts(origin, "https://") ? origin + 8
                                                        : NULL;

    return rest && host && strcasecmp(rest, host) == 0;
}

int access_check_open(const struct config *cfg, const struct http_request *req, bool json_route,
                      struct error *err)
{
    if (!access_is_open(cfg))
        return 0;
    const char *host = http_header(req, "Host");
    const char *origin = http_header(req, "Origin");
    const char *type = http_header(req, "Content-Type");

    if (bound_to_loopback(cfg) && host && !host_allowed(cfg, host))
        return error_set(
            err, ERR_FORBIDDEN,
            "Host: this open server answers loopback names only; add the name to ALLOWED_HOSTS or set "
            "CODE_INTERPRETER_API_KEY");
    if (origin && !origin_is_own(origin, host))
        return error_set(err, ERR_FORBIDDEN,
                         "Origin: an open server takes no calls from web pages of others; set "
                         "CODE_INTERPRETER_API_KEY to allow browsers");
    if (json_route && (!type || !http_type_is_json(type)))
        return error_set(err, ERR_MEDIA_TYPE, "Content-Type: must be application/json");
    return 0;
}

/* Compares digests in constant time: neither content nor length of the key can be found out by timing. */
static bool key_matches(const struct config *cfg, const char *given, size_t len)
{
    uint8_t want[SHA256_DIGEST_SIZE], got[SHA256_DIGEST_SIZE];
    struct sha256_ctx ctx;

    sha256_init(&ctx);
    sha256_update(&ctx, strlen(cfg->api_key), (const uint8_t *)cfg->api_key);
    sha256_digest(&ctx, sizeof want, want);
    sha256_init(&ctx);
    sha256_update(&ctx, len, (const uint8_t *)given);
    sha256_digest(&ctx, sizeof got, got);
    return memeql_sec(want, got, sizeof want) != 0;
}

/* Basic credentials: the key stands as the user or as the password. */
static bool basic_matches(const struct config *cfg, const char *encoded)
{
    uint8_t text[1024];
    size_t len = sizeof text;
    struct base64_decode_ctx ctx;

    if (BASE64_DECODE_LENGTH(strlen(encoded)) > sizeof text)
        return false;
    base64_decode_init(&ctx);
    if (!base64_decode_update(&ctx, &len, text, strlen(encoded), encoded) || !base64_decode_final(&ctx))
        return false;
    const uint8_t *colon = memchr(text, ':', len);
    if (!colon)
        return key_matches(cfg, (const char *)text, len);
    size_t user_len = (size_t)(colon - text);
    bool by_user = key_matches(cfg, (const char *)text, user_len);
    bool by_password = key_matches(cfg, (const char *)colon + 1, len - user_len - 1);
    return by_user || by_password;
}

static bool authorization_matches(const struct config *cfg, const char *value)
{
    if (strncasecmp(value, "Bearer ", 7) == 0) {
        value += 7 + strspn(value + 7, " ");
        return key_matches(cfg, value, strlen(value));
    }
    if (strncasecmp(value, "Basic ", 6) == 0)
        return basic_matches(cfg, value + 6 + strspn(value + 6, " "));
    return false;
}

int access_authenticate(const struct config *cfg, const struct http_request *req, struct principal **ret,
                        struct error *err)
{
    const char *key = http_header(req, "X-API-Key");
    const char *authorization = http_header(req, "Authorization");

    if (access_is_open(cfg)) {
        *ret = principal_new("local", "", false, req->peer_is_loopback);
        return 0;
    }
    /* Both headers at once are fine if either is good. */
    bool good = (key && key_matches(cfg, key, strlen(key))) ||
                (authorization && authorization_matches(cfg, authorization));
    if (!good)
        return error_set(err, ERR_UNAUTHORIZED, "%s",
                         key || authorization
                             ? "the key is not known here"
                             : "a key is needed: send it as X-API-Key or Authorization: Bearer");
    *ret = principal_new("default", "", false, true);
    return 0;
}
