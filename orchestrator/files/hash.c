#include "orchestrator/files/hash.h"

#include <errno.h>
#include <nettle/sha2.h>

#define READ_SIZE ((size_t)256 * 1024)

struct hash {
    struct sha256_ctx ctx;
};

struct hash *hash_new(void)
{
    struct hash *h = xcalloc(1, sizeof *h);

    sha256_init(&h->ctx);
    return h;
}

void hash_free(struct hash *h) { free(h); }

void hash_add(struct hash *h, const void *data, size_t len) { sha256_update(&h->ctx, len, data); }

void hash_end(struct hash *h, char ret_hex[HASH_HEX_SIZE])
{
    static const char digits[] = "0123456789abcdef";
    uint8_t sum[SHA256_DIGEST_SIZE];

    sha256_digest(&h->ctx, sizeof sum, sum);
    for (size_t i = 0; i < sizeof sum; i++) {
        ret_hex[2 * i] = digits[sum[i] >> 4];
        ret_hex[2 * i + 1] = digits[sum[i] & 15];
    }
    ret_hex[2 * sizeof sum] = '\0';
}

int hash_fd(int fd, int64_t max_bytes, char ret_hex[HASH_HEX_SIZE], int64_t *ret_len, struct error *err)
{
    CLEANUP(hash_freep) struct hash *h = hash_new();
    auto_free char *block = xcalloc(1, READ_SIZE);
    int64_t len = 0;

    while (len < max_bytes) {
        ssize_t n = pread(fd, block, (size_t)MIN((int64_t)READ_SIZE, max_bytes - len), len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return error_errno(err, errno, "read");
        if (n == 0)
            break;
        hash_add(h, block, (size_t)n);
        len += n;
    }
    hash_end(h, ret_hex);
    *ret_len = len;
    return 0;
}
