/* base.h - compiler attributes, clean-up helpers and checked allocation. libc only. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#define PRINTF_LIKE(fmt, first) __attribute__((format(printf, fmt, first)))
#define MUST_CHECK __attribute__((warn_unused_result))
#define CLEANUP(fn) __attribute__((cleanup(fn)))
#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))

/* Drops a MUST_CHECK result on purpose: gcc warns on a plain cast to void. */
#define IGNORE(expr) ((void)!(expr))

/* Defines <free_fn>p(), which CLEANUP() can call on a variable of the given pointer type. */
#define DEFINE_CLEANUP(type, free_fn)                                                                        \
    static inline void free_fn##p(type *p)                                                                   \
    {                                                                                                        \
        if (*p)                                                                                              \
            free_fn(*p);                                                                                     \
    }

static inline void freep(void *p) { free(*(void **)p); }
static inline void closep(int *fd)
{
    if (*fd >= 0)
        (void)close(*fd);
}
#define auto_free CLEANUP(freep)
#define auto_close CLEANUP(closep)

/* Hands the value to the caller and disarms the clean-up. */
#define steal_ptr(pp)                                                                                        \
    __extension__({                                                                                          \
        __typeof__(*(pp)) v_ = *(pp);                                                                        \
        *(pp) = NULL;                                                                                        \
        v_;                                                                                                  \
    })
static inline int steal_fd(int *fd)
{
    int v = *fd;
    *fd = -1;
    return v;
}

#define NEVER_NULL __attribute__((returns_nonnull))

/* All of these abort when memory is out; for small allocations of a size no client controls. */
void *xcalloc(size_t n, size_t size) NEVER_NULL;
void *xrealloc_array(void *p, size_t n, size_t size) NEVER_NULL;
char *xstrdup(const char *s); /* NULL gives NULL */
char *xstrndup(const char *s, size_t n) NEVER_NULL;
char *xmemdup(const void *p, size_t n) NEVER_NULL; /* n bytes, NUL bytes too, and a NUL behind them */
char *xasprintf(const char *fmt, ...) PRINTF_LIKE(1, 2) NEVER_NULL;

bool str_eq(const char *a, const char *b); /* NULL equals only NULL */
bool str_starts(const char *s, const char *prefix);
bool str_ends(const char *s, const char *suffix);
