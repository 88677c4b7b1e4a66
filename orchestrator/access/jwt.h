/* jwt.h - the public keys that LibreChat's tokens are verified with, and the verdict on a token. */
#pragma once

#include "orchestrator/access/jwt_token.h"
#include "orchestrator/config.h"

struct jwt_keys;

/*
 * Reads all CODEAPI_JWT_ settings: Ed25519 and RSA (2048 bits or more) public keys. Gives NULL when no key is
 * configured. ERR_INVALID names the setting or file and what is wrong with it. Blocks on the disk.
 */
int jwt_keys_open(const struct config *cfg, struct jwt_keys **ret, struct error *err) MUST_CHECK;
void jwt_keys_free(struct jwt_keys *k); /* NULL is fine */
DEFINE_CLEANUP(struct jwt_keys *, jwt_keys_free)

/*
 * Whom a token names, if it is signed by the key of its kid (without kid: by the only key there is) with that
 * key's own algorithm, and its claims hold at now_s. The same token is good any number of times: LibreChat
 * sends one for up to 30 s, so that jti says nothing. ERR_UNAUTHORIZED. May be called from many threads.
 */
int jwt_verify(const struct jwt_keys *k, const char *token, int64_t now_s, struct jwt_identity *ret,
               struct error *err) MUST_CHECK;
