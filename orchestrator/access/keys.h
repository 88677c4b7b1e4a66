/* keys.h - the API keys: CODE_INTERPRETER_API_KEY and the entries of API_KEYS_FILE, as hashes. */
#pragma once

#include "orchestrator/config.h"

#define KEYS_OWN_TENANT "key:" /* in front of the name: the tenant of a key that names none */

struct key_entry {
    char *name; /* owned, as are all strings */
    char *tenant;
    uint8_t digest[32]; /* SHA-256 of the key */
    bool admin;
    bool trusted_user_header; /* its calls may name the user in X-Carrel-User */
};

struct keys;

/*
 * Reads both settings; docs/AUTHENTICATION.md has the file's format. Gives NULL when neither is set.
 * ERR_INVALID names the entry. Blocks on the disk.
 */
int keys_open(const struct config *cfg, struct keys **ret, struct error *err) MUST_CHECK;
void keys_free(struct keys *k); /* NULL is fine */
DEFINE_CLEANUP(struct keys *, keys_free)

/* The entry of a key, or NULL. Takes as long for a bad key as for any good one. */
const struct key_entry *keys_find(const struct keys *k, const char *given, size_t len);
