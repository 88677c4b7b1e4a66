#include "common/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void buf_init(struct buf *b, size_t max) { *b = (struct buf){ .max = max }; }

void buf_done(struct buf *b)
{
    free(b->data);
    *b = (struct buf){ .max = b->max };
}

int buf_reserve(struct buf *b, size_t n, char **ret, struct error *err)
{
    if (n > b->max || b->len > b->max - n)
        return error_set(err, ERR_LIMIT, "more than %zu bytes", b->max);
    if (!b->data || b->len + n + 1 > b->cap) {
        size_t cap = b->cap ? b->cap : 64;
        while (cap < b->len + n + 1)
            cap *= 2;
        char *data = realloc(b->data, cap);
        if (!data)
            return error_set(err, ERR_LIMIT, "no memory for %zu bytes", cap);
        b->data = data;
        b->cap = cap;
    }
    *ret = b->data + b->len;
    return 0;
}

int buf_add(struct buf *b, const void *p, size_t n, struct error *err)
{
    char *to = NULL;

    if (buf_reserve(b, n, &to, err) < 0)
        return -1;
    if (n > 0)
        memcpy(to, p, n);
    b->len += n;
    *(to + n) = '\0';
    return 0;
}

int buf_addf(struct buf *b, struct error *err, const char *fmt, ...)
{
    auto_free char *text = NULL;
    va_list ap;

    va_start(ap, fmt);
    int n = vasprintf(&text, fmt, ap);
    va_end(ap);
    if (n < 0) {
        text = NULL; /* vasprintf(3): undefined on failure */
        return error_set(err, ERR_LIMIT, "no memory");
    }
    return buf_add(b, text, (size_t)n, err);
}

void buf_consume(struct buf *b, size_t n)
{
    if (n >= b->len) {
        b->len = 0;
    } else {
        memmove(b->data, b->data + n, b->len - n);
        b->len -= n;
    }
    if (b->data)
        b->data[b->len] = '\0';
}

bool buf_is(const struct buf *b, const char *text)
{
    return b->len == strlen(text) && (b->len == 0 || memcmp(b->data, text, b->len) == 0);
}

char *buf_take(struct buf *b)
{
    char *data = b->data ? b->data : xstrdup("");

    *b = (struct buf){ .max = b->max };
    return data;
}
