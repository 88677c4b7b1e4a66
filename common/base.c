#include "common/base.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void *checked(void *p)
{
    if (!p) {
        IGNORE(write(STDERR_FILENO, "out of memory\n", 14));
        abort();
    }
    return p;
}

void *xcalloc(size_t n, size_t size) { return checked(calloc(n ? n : 1, size ? size : 1)); }

void *xrealloc_array(void *p, size_t n, size_t size)
{
    return checked(reallocarray(p, n ? n : 1, size ? size : 1));
}

char *xstrdup(const char *s) { return s ? checked(strdup(s)) : NULL; }

char *xstrndup(const char *s, size_t n) { return checked(strndup(s, n)); }

char *xmemdup(const void *p, size_t n)
{
    char *copy = checked(malloc(n + 1));

    if (n > 0)
        memcpy(copy, p, n);
    copy[n] = '\0';
    return copy;
}

char *xasprintf(const char *fmt, ...)
{
    char *s = NULL;
    va_list ap;

    va_start(ap, fmt);
    int n = vasprintf(&s, fmt, ap);
    va_end(ap);
    return checked(n < 0 ? NULL : s);
}

bool str_eq(const char *a, const char *b) { return a == b || (a && b && strcmp(a, b) == 0); }

bool str_starts(const char *s, const char *prefix) { return strncmp(s, prefix, strlen(prefix)) == 0; }

bool str_ends(const char *s, const char *suffix)
{
    size_t n = strlen(s), m = strlen(suffix);

    return n >= m && memcmp(s + n - m, suffix, m) == 0;
}
