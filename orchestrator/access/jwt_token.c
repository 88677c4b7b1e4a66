#include "orchestrator/access/jwt_token.h"

#include <nettle/base64.h>
#include <string.h>

#include "orchestrator/access/keys.h"

#define ALPHABET "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
#define DEFAULT_TENANT "legacy" /* what LibreChat signs for an installation without tenants */
#define NAME_MAX_BYTES 255
#define DECODED_BYTES (BASE64_DECODE_LENGTH(JWT_MAX_BYTES) + BASE64_DECODE_LENGTH(4))

struct span {
    const char *data;
    size_t len;
};

/* ---- the compact form ---- */

static bool split(const char *text, struct span parts[3])
{
    for (size_t i = 0; i < 3; i++) {
        parts[i] = (struct span){ text, strspn(text, ALPHABET) };
        text += parts[i].len;
        if (parts[i].len == 0 || *text != (i < 2 ? '.' : '\0'))
            return false;
        text++;
    }
    return true;
}

bool jwt_token_looks_like_one(const char *text)
{
    struct span parts[3];

    return split(text, parts);
}

/* nettle wants the padding that a JWT leaves out (RFC 7515, section 2), and refuses stray bits in the end. */
static bool decode(struct span in, uint8_t *out, size_t *ret_len)
{
    static const char *const padding[] = { "", NULL, "==", "=" };
    const char *pad = padding[in.len % 4];
    size_t n = BASE64_DECODE_LENGTH(JWT_MAX_BYTES), m = BASE64_DECODE_LENGTH(4);
    struct base64_decode_ctx ctx;

    base64url_decode_init(&ctx);
    if (!pad || !base64_decode_update(&ctx, &n, out, in.len, in.data) ||
        !base64_decode_update(&ctx, &m, out + n, strlen(pad), pad) || !base64_decode_final(&ctx))
        return false;
    *ret_len = n + m;
    return true;
}

static bool parse_part(struct span in, json_t **ret)
{
    uint8_t text[DECODED_BYTES];
    struct error ignored = { 0 };
    size_t len = 0;

    if (!decode(in, text, &len) || jsonx_parse((const char *)text, len, ret, &ignored) < 0)
        return false;
    return json_is_object(*ret);
}

struct header_fields {
    const char *alg, *kid;
    json_t *crit, *zip;
};

static const struct json_field header_fields[] = {
    FIELD_STRING(struct header_fields, alg, "alg", true, 1, 16),
    FIELD_STRING(struct header_fields, kid, "kid", false, 1, NAME_MAX_BYTES),
    FIELD_ANY(struct header_fields, crit, "crit", false),
    FIELD_ANY(struct header_fields, zip, "zip", false),
};

int jwt_token_parse(const char *text, struct jwt_token *ret, struct error *err)
{
    struct span parts[3];
    json_auto_t *header = NULL, *claims = NULL;
    uint8_t signature[DECODED_BYTES]; /* only to see that its text is the one way to write it */
    size_t signature_len = 0;
    struct header_fields f = { 0 };
    struct error ignored = { 0 };

    if (strlen(text) > JWT_MAX_BYTES || !split(text, parts) || !parse_part(parts[0], &header) ||
        jsonx_fill(header, header_fields, ARRAY_LEN(header_fields), &f, &ignored) < 0)
        return error_set(err, ERR_UNAUTHORIZED, "the token is not a signed JWT");
    if (f.crit || f.zip)
        return error_set(err, ERR_UNAUTHORIZED, "the token's header has %s, which is not known here",
                         f.crit ? "crit" : "zip");
    if (!parse_part(parts[1], &claims) || !decode(parts[2], signature, &signature_len))
        return error_set(err, ERR_UNAUTHORIZED, "the token is not a signed JWT");
    *ret = (struct jwt_token){ xstrdup(f.alg), xstrdup(f.kid), steal_ptr(&claims) };
    return 0;
}

void jwt_token_done(struct jwt_token *t)
{
    free(t->alg);
    free(t->kid);
    json_decref(t->claims);
    *t = (struct jwt_token){ 0 };
}

/* ---- the claims ---- */

struct claim_fields {
    const char *iss, *sub, *tenant_id;
    json_t *aud, *exp, *nbf;
};

static const struct json_field claim_fields[] = {
    FIELD_STRING(struct claim_fields, iss, "iss", true, 1, 1024),
    FIELD_STRING(struct claim_fields, sub, "sub", true, 1, NAME_MAX_BYTES),
    FIELD_STRING(struct claim_fields, tenant_id, "tenant_id", false, 0, NAME_MAX_BYTES),
    FIELD_ANY(struct claim_fields, aud, "aud", true),
    FIELD_ANY(struct claim_fields, exp, "exp", true),
    FIELD_ANY(struct claim_fields, nbf, "nbf", false),
};

static bool audience_has(const json_t *aud, const char *want)
{
    if (json_is_string(aud))
        return str_eq(json_string_value(aud), want);
    for (size_t i = 0; i < json_array_size(aud); i++)
        if (str_eq(json_string_value(json_array_get(aud, i)), want))
            return true;
    return false;
}

/* NumericDate may have a fraction (RFC 7519, section 2). */
static int check_times(const struct claim_fields *f, int64_t now_s, struct error *err)
{
    double now = (double)now_s;

    if (!json_is_number(f->exp) || (f->nbf && !json_is_number(f->nbf)))
        return error_set(err, ERR_UNAUTHORIZED, "the token's exp and nbf must be numbers");
    if (now >= json_number_value(f->exp) + JWT_SKEW_S)
        return error_set(err, ERR_UNAUTHORIZED,
                         "the token has expired; do the clocks of both machines agree?");
    if (f->nbf && now + JWT_SKEW_S < json_number_value(f->nbf))
        return error_set(err, ERR_UNAUTHORIZED,
                         "the token is not valid yet; do the clocks of both machines agree?");
    return 0;
}

int jwt_token_identity(const struct jwt_token *t, const struct jwt_expectation *want, int64_t now_s,
                       struct jwt_identity *ret, struct error *err)
{
    struct claim_fields f = { 0 };
    struct error why = { 0 };

    if (jsonx_fill(t->claims, claim_fields, ARRAY_LEN(claim_fields), &f, &why) < 0)
        return error_set(err, ERR_UNAUTHORIZED, "the token's claims: %.200s", why.msg);
    if (!str_eq(f.iss, want->issuer))
        return error_set(err, ERR_UNAUTHORIZED, "the token's iss is not CODEAPI_JWT_ISSUER");
    if (!audience_has(f.aud, want->audience))
        return error_set(err, ERR_UNAUTHORIZED, "the token's aud is not CODEAPI_JWT_AUDIENCE");
    if (check_times(&f, now_s, err) < 0)
        return -1;
    if (f.tenant_id && str_starts(f.tenant_id, KEYS_OWN_TENANT))
        return error_set(err, ERR_UNAUTHORIZED,
                         "the token's tenant_id begins with " KEYS_OWN_TENANT ", which is kept for API keys");
    *ret = (struct jwt_identity){ xstrdup(f.tenant_id && f.tenant_id[0] ? f.tenant_id : DEFAULT_TENANT),
                                  xstrdup(f.sub) };
    return 0;
}

void jwt_identity_done(struct jwt_identity *id)
{
    free(id->tenant);
    free(id->user);
    *id = (struct jwt_identity){ 0 };
}
