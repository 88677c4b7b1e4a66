/*
 * output.h - one output stream of an execution under its cap: the first three quarters are told as they come,
 * of the rest the last quarter is kept and told at the end, with a line that says how much is missing.
 */
#pragma once

#include "runner/eventlog.h"

#define OUTPUT_FLOOD_FACTOR 64 /* a program that writes so many times its cap is ended */

struct output {
    enum frame_type type; /* FRAME_STDOUT or FRAME_STDERR */
    size_t head_max, tail_max;
    size_t head_used;
    uint64_t total;  /* bytes that came */
    char partial[4]; /* begin of a UTF-8 sequence whose rest has not come yet */
    size_t partial_len;
    bool head_full;
    char *ring; /* tail_max bytes, once needed */
    size_t ring_at, ring_used;
    uint64_t beyond; /* bytes that came after the head */
};

void output_init(struct output *o, enum frame_type type, size_t max_bytes);
void output_done(struct output *o);
/* Never fails for the stream's own sake; ERR_LIMIT is the log's. */
int output_add(struct output *o, struct eventlog *log, const char *data, size_t len,
               struct error *err) MUST_CHECK;
int output_finish(struct output *o, struct eventlog *log, struct error *err) MUST_CHECK;
/* Counts bytes that are not even looked at. */
void output_drop(struct output *o, uint64_t bytes);
bool output_truncated(const struct output *o);
bool output_flooded(const struct output *o);

/* The longest beginning of the text, of at most max bytes, that does not cut a UTF-8 sequence in two. */
size_t utf8_whole(const char *text, size_t len, size_t max);
