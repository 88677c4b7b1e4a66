/* buf.h - growable byte buffer with a hard cap. libc only. */
#pragma once

#include "common/error.h"

struct buf {
    char *data; /* owned; NUL-terminated once anything was added */
    size_t len;
    size_t cap;
    size_t max; /* adding beyond this many bytes fails with ERR_LIMIT */
};

void buf_init(struct buf *b, size_t max);
void buf_done(struct buf *b); /* keeps the cap, so that the buffer can be filled again */
int buf_add(struct buf *b, const void *p, size_t n, struct error *err) MUST_CHECK;
int buf_addf(struct buf *b, struct error *err, const char *fmt, ...) PRINTF_LIKE(3, 4) MUST_CHECK;
/* Makes room for n more bytes and gives where they go; the caller then adds what it wrote to b->len. */
int buf_reserve(struct buf *b, size_t n, char **ret, struct error *err) MUST_CHECK;
void buf_consume(struct buf *b, size_t n);          /* drops the first n bytes */
bool buf_is(const struct buf *b, const char *text); /* holds just this */
char *buf_take(struct buf *b);                      /* caller frees; the buffer is empty again */
#define auto_buf CLEANUP(buf_done)
