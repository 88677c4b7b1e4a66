/* error.h - one error value, owned by the caller, never allocated. libc only. */
#pragma once

#include "common/base.h"

enum error_kind {
    ERR_NONE,
    ERR_INVALID,      /* the caller's input is wrong; the message names the field */
    ERR_UNAUTHORIZED, /* no or bad credentials */
    ERR_FORBIDDEN,    /* known, but not allowed (foreign Origin, role) */
    ERR_NOT_FOUND,    /* unknown, or somebody else's */
    ERR_METHOD,       /* the path exists, the method does not */
    ERR_CONFLICT,
    ERR_LIMIT,       /* a size cap was hit */
    ERR_MEDIA_TYPE,  /* a JSON route was sent something else */
    ERR_BUSY,        /* try again later; error.retry_after_s says when */
    ERR_TIMEOUT,     /* something inside did not answer in time */
    ERR_UNAVAILABLE, /* engine away or image missing; the message says what to do */
    ERR_UPSTREAM,    /* the engine or a runner misbehaved */
    ERR_INTERNAL,
    ERR_KIND_COUNT,
};

struct error {
    enum error_kind kind;
    int retry_after_s; /* ERR_BUSY and ERR_UNAVAILABLE only; 0 when unknown */
    char msg[400];
};

/*
 * All of these are -1, so that a failing function reads `return error_set(...)`. Macros, so that compilers
 * and analysers see the constant: an opaque function might return 0 for all they know.
 */
#define error_set(...) (error_set_to(__VA_ARGS__), error_failure())
#define error_errno(...) (error_set_errno(__VA_ARGS__), error_failure()) /* "fmt: strerror" */
#define error_wrap(...) (error_prefix(__VA_ARGS__), error_failure())     /* "fmt: old message" */

static inline int error_failure(void) { return -1; }
void error_set_to(struct error *err, enum error_kind kind, const char *fmt, ...) PRINTF_LIKE(3, 4);
void error_set_errno(struct error *err, int errnum, const char *fmt, ...) PRINTF_LIKE(3, 4);
void error_prefix(struct error *err, const char *fmt, ...) PRINTF_LIKE(2, 3);

const char *error_kind_name(enum error_kind kind); /* the machine word of the HTTP answer: "not_found" */
