/* request.h - the payload of a RUN frame, checked. */
#pragma once

#include "common/json/jsonx.h"
#include "common/language.h"

struct run_request { /* strings and spans are borrowed from doc */
    json_t *doc;     /* owned */
    const char *id;
    const struct language *language;
    struct jsonx_span code;
    json_t *args;            /* array of strings without NUL, or NULL */
    struct jsonx_span input; /* standard input; data NULL: none */
    int64_t timeout_ms;
    int64_t compile_timeout_ms;
    int64_t output_max;                      /* bytes of each stream */
    int64_t memory_max, cpu_max_s, file_max; /* 0: no limit of our own */
    bool bash_strict;
    bool detached;
};

/* ERR_INVALID names the field. */
int run_request_parse(const char *text, size_t len, struct run_request *ret, struct error *err) MUST_CHECK;
void run_request_done(struct run_request *q);
