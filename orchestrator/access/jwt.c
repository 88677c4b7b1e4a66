/*
 * librhonabwy 1.1 (Debian 12 has 1.1.11), what to know of it:
 * - Its parser takes keys from the token's own header (jwk, jku, x5c, x5u), fetches the remote ones and
 * accepts "none" unless told otherwise (rhonabwy.h, R_PARSE_*, R_FLAG_IGNORE_REMOTE), and inflates what "zip"
 * says is deflated. So the header is read by jwt_token.c first, and every call here says R_PARSE_NONE and
 *   R_FLAG_IGNORE_REMOTE.
 * - It verifies by whatever algorithm the header names. So that one is compared with the key's before.
 * - HMAC signatures are compared by strcmp() (CVE-2024-25714): no symmetric algorithm is ever let through.
 * - r_global_init() only replaces jansson's allocator and starts a second libcurl, for remote keys: not
 * called.
 */
#include "orchestrator/access/jwt.h"

#include <dirent.h>
#include <errno.h>
#include <nettle/base64.h>
#include <rhonabwy.h>
#include <string.h>

#include "orchestrator/access/text_file.h"

#define MIN_RSA_BITS 2048 /* RFC 7518, section 3.3 */

struct jwt_key {
    char *kid;       /* owned */
    const char *alg; /* the only one it verifies */
    jwk_t *jwk;      /* owned; only read once it is here */
};

struct jwt_keys {
    struct jwt_key *items;
    size_t count;
    char *issuer, *audience; /* owned */
};

DEFINE_CLEANUP(jwk_t *, r_jwk_free)
DEFINE_CLEANUP(jws_t *, r_jws_free)

void jwt_keys_free(struct jwt_keys *k)
{
    if (!k)
        return;
    for (size_t i = 0; i < k->count; i++) {
        free(k->items[i].kid);
        r_jwk_free(k->items[i].jwk);
    }
    free(k->items);
    free(k->issuer);
    free(k->audience);
    free(k);
}

static const struct jwt_key *find_key(const struct jwt_keys *k, const char *kid)
{
    if (!kid)
        return k->count == 1 ? &k->items[0] : NULL;
    for (size_t i = 0; i < k->count; i++)
        if (strcmp(k->items[i].kid, kid) == 0)
            return &k->items[i];
    return NULL;
}

/* ---- reading keys ---- */

/* The algorithm that a public key is for. NULL: none that is accepted, and why. */
static const char *algorithm_of(jwk_t *jwk, const char **ret_why)
{
    unsigned bits = 0;
    int type = r_jwk_key_type(jwk, &bits, R_FLAG_IGNORE_REMOTE);
    const char *curve = r_jwk_get_property_str(jwk, "crv");

    if (type & R_KEY_TYPE_PRIVATE)
        *ret_why = "is a private key; give the public one, and keep the private one with LibreChat";
    else if (!(type & R_KEY_TYPE_PUBLIC))
        *ret_why = "is not a public key";
    else if (type & R_KEY_TYPE_EDDSA && str_eq(curve, "Ed25519"))
        return "EdDSA";
    else if (type & R_KEY_TYPE_RSA && bits >= MIN_RSA_BITS)
        return "RS256";
    else
        *ret_why = "is neither Ed25519 nor RSA of 2048 bits or more";
    return NULL;
}

static int add_key(struct jwt_keys *k, jwk_t **take, const char *kid, const char *where, struct error *err)
{
    const char *why = NULL, *alg = algorithm_of(*take, &why);
    const char *own_alg = r_jwk_get_property_str(*take, "alg");
    const char *use = r_jwk_get_property_str(*take, "use");

    if (!alg)
        return error_set(err, ERR_INVALID, "%s: the key '%.100s' %s", where, kid, why);
    if ((own_alg && !str_eq(own_alg, alg)) || (use && !str_eq(use, "sig")))
        return error_set(err, ERR_INVALID, "%s: the key '%.100s' is not for %s signatures by its alg or use",
                         where, kid, alg);
    for (size_t i = 0; i < k->count; i++)
        if (strcmp(k->items[i].kid, kid) == 0)
            return error_set(err, ERR_INVALID, "%s: there are two keys with kid '%.100s'", where, kid);
    k->items = xrealloc_array(k->items, k->count + 1, sizeof *k->items);
    k->items[k->count++] = (struct jwt_key){ xstrdup(kid), alg, steal_ptr(take) };
    return 0;
}

static int new_jwk(jwk_t **ret, struct error *err)
{
    return r_jwk_init(ret) == RHN_OK ? 0 : error_set(err, ERR_INTERNAL, "librhonabwy gives no key");
}

static int add_pem(struct jwt_keys *k, const char *pem, const char *kid, const char *where, struct error *err)
{
    CLEANUP(r_jwk_freep) jwk_t *jwk = NULL;
    bool private = strstr(pem, "PRIVATE KEY-----") != NULL;

    if (new_jwk(&jwk, err) < 0)
        return -1;
    if (private || r_jwk_import_from_pem_der(jwk, R_X509_TYPE_PUBKEY, R_FORMAT_PEM,
                                             (const unsigned char *)pem, strlen(pem)) != RHN_OK)
        return error_set(err, ERR_INVALID, "%s: not a public key in PEM (-----BEGIN PUBLIC KEY-----)%s",
                         where, private ? ": it is a private one, which belongs to LibreChat alone" : "");
    return add_key(k, &jwk, kid, where, err);
}

/* A JWK without kid takes the fallback. */
static int add_jwk(struct jwt_keys *k, json_t *doc, const char *fallback_kid, const char *where,
                   struct error *err)
{
    CLEANUP(r_jwk_freep) jwk_t *jwk = NULL;

    if (new_jwk(&jwk, err) < 0)
        return -1;
    if (!json_is_object(doc) || r_jwk_import_from_json_t(jwk, doc) != RHN_OK)
        return error_set(err, ERR_INVALID, "%s: not a JSON Web Key (RFC 7517)", where);
    const char *kid = r_jwk_get_property_str(jwk, "kid");
    return add_key(k, &jwk, kid && kid[0] ? kid : fallback_kid, where, err);
}

struct set_fields {
    json_t *keys;
};

static const struct json_field set_fields[] = {
    FIELD_ARRAY(struct set_fields, keys, "keys", false, 1, 1000),
};

/* One JWK, or a set {"keys":[...]}. */
static int add_json(struct jwt_keys *k, const char *text, size_t len, const char *fallback_kid,
                    const char *where, struct error *err)
{
    json_auto_t *doc = NULL;
    struct set_fields f = { 0 };

    if (jsonx_parse(text, len, &doc, err) < 0 || jsonx_fill(doc, set_fields, 1, &f, err) < 0)
        return error_wrap(err, "%s", where);
    if (!f.keys)
        return add_jwk(k, doc, fallback_kid, where, err);
    for (size_t i = 0; i < json_array_size(f.keys); i++) {
        auto_free char *entry = xasprintf("%s: keys[%zu]", where, i);
        if (add_jwk(k, json_array_get(f.keys, i), fallback_kid, entry, err) < 0)
            return -1;
    }
    return 0;
}

/* Environment files hold one line: PEM with \n spelled out, or all of it in base64. */
static char *unfold_pem(const char *text)
{
    struct base64_decode_ctx ctx;
    size_t n = BASE64_DECODE_LENGTH(strlen(text));
    char *pem = xcalloc(n + strlen(text) + 1, 1);

    if (strstr(text, "-----BEGIN")) {
        for (char *to = pem; *text; to++) {
            bool escape = str_starts(text, "\\n") || str_starts(text, "\\r");
            *to = *text;
            if (escape)
                *to = '\n';
            text += escape ? 2 : 1;
        }
        return pem;
    }
    base64_decode_init(&ctx);
    if (!base64_decode_update(&ctx, &n, (uint8_t *)pem, strlen(text), text) || !base64_decode_final(&ctx))
        n = 0;
    pem[n] = '\0';
    return pem;
}

static int add_file(struct jwt_keys *k, const char *dir, const char *name, struct error *err)
{
    auto_free char *path = xasprintf("%s/%s", dir, name);
    auto_free char *where = xasprintf("CODEAPI_JWT_PUBLIC_KEYS_DIR: %s", path);
    auto_free char *kid = xstrdup(name);
    auto_buf struct buf text = { 0 };

    *strrchr(kid, '.') = '\0';
    if (text_file_read(path, &text, err) < 0)
        return error_wrap(err, "CODEAPI_JWT_PUBLIC_KEYS_DIR");
    if (str_ends(name, ".json"))
        return add_json(k, text.data, text.len, kid, where, err);
    auto_free char *pem = xstrndup(text.data, text.len);
    return add_pem(k, pem, kid, where, err);
}

static int add_dir(struct jwt_keys *k, const char *dir, struct error *err)
{
    size_t before = k->count;
    const struct dirent *e = NULL;
    int r = 0;
    DIR *d = opendir(dir);

    if (!d)
        return error_errno(err, errno, "CODEAPI_JWT_PUBLIC_KEYS_DIR: %s", dir);
    while (r == 0 && (e = readdir(d))) /* names with a dot in front: what a Kubernetes volume is made of */
        if (e->d_name[0] != '.' && (str_ends(e->d_name, ".pem") || str_ends(e->d_name, ".json")))
            r = add_file(k, dir, e->d_name, err);
    (void)closedir(d);
    if (r == 0 && k->count == before)
        return error_set(err, ERR_INVALID,
                         "CODEAPI_JWT_PUBLIC_KEYS_DIR: %s has no file <kid>.pem or <kid>.json", dir);
    return r;
}

int jwt_keys_open(const struct config *cfg, struct jwt_keys **ret, struct error *err)
{
    CLEANUP(jwt_keys_freep) struct jwt_keys *k = xcalloc(1, sizeof *k);

    k->issuer = xstrdup(cfg->jwt_issuer);
    k->audience = xstrdup(cfg->jwt_audience);
    if (cfg->jwt_public_key[0]) {
        auto_free char *pem = unfold_pem(cfg->jwt_public_key);
        if (add_pem(k, pem, cfg->jwt_kid, "CODEAPI_JWT_PUBLIC_KEY", err) < 0)
            return -1;
    }
    if (cfg->jwt_jwks_json[0] && add_json(k, cfg->jwt_jwks_json, strlen(cfg->jwt_jwks_json), cfg->jwt_kid,
                                          "CODEAPI_JWT_JWKS_JSON", err) < 0)
        return -1;
    if (cfg->jwt_keys_dir[0] && add_dir(k, cfg->jwt_keys_dir, err) < 0)
        return -1;
    *ret = k->count ? steal_ptr(&k) : NULL;
    return 0;
}

/* ---- verifying ---- */

static bool signature_is_good(const struct jwt_key *key, const char *token)
{
    CLEANUP(r_jws_freep) jws_t *jws = NULL;

    return r_jws_init(&jws) == RHN_OK &&
           r_jws_advanced_compact_parsen(jws, token, strlen(token), R_PARSE_NONE, R_FLAG_IGNORE_REMOTE) ==
               RHN_OK &&
           r_jws_verify_signature(jws, key->jwk, R_FLAG_IGNORE_REMOTE) == RHN_OK;
}

int jwt_verify(const struct jwt_keys *k, const char *token, int64_t now_s, struct jwt_identity *ret,
               struct error *err)
{
    CLEANUP(jwt_token_done) struct jwt_token t = { 0 };
    const struct jwt_expectation want = { k->issuer, k->audience };

    if (jwt_token_parse(token, &t, err) < 0)
        return -1;
    const struct jwt_key *key = find_key(k, t.kid);
    if (!key)
        return error_set(
            err, ERR_UNAUTHORIZED,
            t.kid ? "no key here has the token's kid; CODEAPI_JWT_KID must be the same on both sides"
                  : "the token names no kid, and there is more than one key here");
    if (strcmp(t.alg, key->alg) != 0)
        return error_set(err, ERR_UNAUTHORIZED, "the token's alg is not the one of its key, %s", key->alg);
    if (!signature_is_good(key, token))
        return error_set(err, ERR_UNAUTHORIZED, "the token's signature is not good");
    return jwt_token_identity(&t, &want, now_s, ret, err);
}
