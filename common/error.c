#include "common/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const kind_names[] = {
    [ERR_NONE] = "none",
    [ERR_INVALID] = "invalid_request",
    [ERR_UNAUTHORIZED] = "unauthorized",
    [ERR_FORBIDDEN] = "forbidden",
    [ERR_NOT_FOUND] = "not_found",
    [ERR_METHOD] = "method_not_allowed",
    [ERR_CONFLICT] = "conflict",
    [ERR_LIMIT] = "too_large",
    [ERR_MEDIA_TYPE] = "unsupported_media_type",
    [ERR_BUSY] = "rate_limited",
    [ERR_TIMEOUT] = "timeout",
    [ERR_UNAVAILABLE] = "unavailable",
    [ERR_UPSTREAM] = "upstream_error",
    [ERR_INTERNAL] = "internal_error",
};
_Static_assert(ARRAY_LEN(kind_names) == ERR_KIND_COUNT, "every kind has a row");

void error_set_to(struct error *err, enum error_kind kind, const char *fmt, ...)
{
    va_list ap;

    err->kind = kind;
    err->retry_after_s = 0;
    va_start(ap, fmt);
    (void)vsnprintf(err->msg, sizeof err->msg, fmt, ap);
    va_end(ap);
}

static enum error_kind kind_of_errno(int errnum)
{
    switch (errnum) {
    case ENOENT:
        return ERR_NOT_FOUND;
    case ETIMEDOUT:
        return ERR_TIMEOUT;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
        return ERR_LIMIT;
    default:
        return ERR_INTERNAL;
    }
}

void error_set_errno(struct error *err, int errnum, const char *fmt, ...)
{
    va_list ap;

    err->kind = kind_of_errno(errnum);
    err->retry_after_s = 0;
    va_start(ap, fmt);
    int n = vsnprintf(err->msg, sizeof err->msg, fmt, ap);
    va_end(ap);
    if (n >= 0 && (size_t)n < sizeof err->msg)
        (void)snprintf(err->msg + n, sizeof err->msg - (size_t)n, ": %s", strerrordesc_np(errnum));
}

void error_prefix(struct error *err, const char *fmt, ...)
{
    char old[sizeof err->msg];
    va_list ap;

    memcpy(old, err->msg, sizeof old);
    va_start(ap, fmt);
    int n = vsnprintf(err->msg, sizeof err->msg, fmt, ap);
    va_end(ap);
    if (n >= 0 && (size_t)n < sizeof err->msg)
        (void)snprintf(err->msg + n, sizeof err->msg - (size_t)n, ": %s", old);
}

const char *error_kind_name(enum error_kind kind) { return kind_names[kind]; }
