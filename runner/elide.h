/*
 * elide.h - takes the path of the private build directory out of what compilers and interpreters say, so that
 * an error reads "main.c:3:5: ..." as if the program had been started where its data is. Works on a stream,
 * chunk by chunk.
 */
#pragma once

#include "common/buf.h"

struct elide {
    char needle[64]; /* "/tmp/run-a1b2c3/"; empty: nothing is changed */
    size_t len;
    size_t matched; /* bytes of it that ended the last chunk and were held back */
};

/* A needle that is too long is not looked for. */
void elide_init(struct elide *e, const char *needle);
int elide_add(struct elide *e, const char *data, size_t len, struct buf *out, struct error *err) MUST_CHECK;
int elide_finish(struct elide *e, struct buf *out, struct error *err) MUST_CHECK; /* what was held back */
