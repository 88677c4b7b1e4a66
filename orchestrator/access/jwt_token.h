/* jwt_token.h - a JWT's text and claims, without its cryptography. Pure; does not block. */
#pragma once

#include "common/json/jsonx.h"

#define JWT_MAX_BYTES 8192
#define JWT_SKEW_S 60 /* by how much the clocks of two machines may differ */

struct jwt_token {
    char *alg;      /* owned; any text yet: whether it may be used is decided by the key */
    char *kid;      /* owned; NULL when the token names none */
    json_t *claims; /* owned; not to be believed before the signature was verified */
};

struct jwt_identity {
    char *tenant; /* owned */
    char *user;   /* owned */
};

struct jwt_expectation {
    const char *issuer, *audience; /* borrowed */
};

bool jwt_token_looks_like_one(const char *text); /* three parts; an API key rarely has them */

/*
 * Takes the compact form apart: three parts of unpadded base64url, the first two JSON objects without
 * duplicate keys. Refuses headers that change what the rest means (crit, zip). ERR_UNAUTHORIZED.
 */
int jwt_token_parse(const char *text, struct jwt_token *ret, struct error *err) MUST_CHECK;
void jwt_token_done(struct jwt_token *t);

/*
 * Checks issuer, audience, exp (required) and nbf at now_s and gives whom the token names: sub, and tenant_id
 * or "legacy" where that is absent or empty, as LibreChat means it. ERR_UNAUTHORIZED says which claim.
 */
int jwt_token_identity(const struct jwt_token *t, const struct jwt_expectation *want, int64_t now_s,
                       struct jwt_identity *ret, struct error *err) MUST_CHECK;
void jwt_identity_done(struct jwt_identity *id);
