/* hash.h - SHA-256 of streams and files. */
#pragma once

#include "common/error.h"

#define HASH_HEX_SIZE 65

struct hash; /* opaque: the library's types stay in hash.c */

struct hash *hash_new(void);
void hash_free(struct hash *h);
DEFINE_CLEANUP(struct hash *, hash_free)
void hash_add(struct hash *h, const void *data, size_t len);
void hash_end(struct hash *h, char ret_hex[HASH_HEX_SIZE]); /* starts anew afterwards */

/* Hashes the bytes of fd from its start, at most max_bytes of them; gives how many there were. Blocks on the
 * disk. */
int hash_fd(int fd, int64_t max_bytes, char ret_hex[HASH_HEX_SIZE], int64_t *ret_len,
            struct error *err) MUST_CHECK;
