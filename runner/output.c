#include "runner/output.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define PIECE_MAX ((size_t)1024 * 1024) /* of one frame */

void output_init(struct output *o, enum frame_type type, size_t max_bytes)
{
    *o = (struct output){ .type = type, .tail_max = max_bytes / 4, .head_max = max_bytes - max_bytes / 4 };
}

void output_done(struct output *o) { free(o->ring); }

static size_t sequence_length(unsigned char lead)
{
    return lead < 0xc2 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf5 ? 4 : 1;
}

static bool is_continuation(char c) { return ((unsigned char)c & 0xc0) == 0x80; }

size_t utf8_whole(const char *text, size_t len, size_t max)
{
    size_t n = MIN(len, max);

    for (size_t back = 1; back <= 3 && back <= n; back++) {
        unsigned char c = (unsigned char)text[n - back];
        if (is_continuation((char)c))
            continue;
        return sequence_length(c) > back ? n - back : n;
    }
    return n;
}

static int tell(const struct output *o, struct eventlog *log, const char *data, size_t len, struct error *err)
{
    while (len > 0) {
        size_t n = len > PIECE_MAX ? utf8_whole(data, len, PIECE_MAX) : len;
        if (eventlog_add(log, o->type, data, n, err) < 0)
            return -1;
        data += n;
        len -= n;
    }
    return 0;
}

static void keep(struct output *o, const char *data, size_t len)
{
    o->beyond += len;
    if (o->tail_max == 0)
        return;
    if (!o->ring)
        o->ring = xcalloc(1, o->tail_max);
    if (len > o->tail_max) {
        data += len - o->tail_max;
        len = o->tail_max;
    }
    size_t first = MIN(len, o->tail_max - o->ring_at);
    memcpy(o->ring + o->ring_at, data, first);
    memcpy(o->ring, data + first, len - first);
    o->ring_at = (o->ring_at + len) % o->tail_max;
    o->ring_used = MIN(o->tail_max, o->ring_used + len);
}

static int add_whole(struct output *o, struct eventlog *log, const char *data, size_t len, struct error *err)
{
    size_t live = 0;

    if (!o->head_full) {
        size_t room = o->head_max - o->head_used;
        live = len <= room ? len : utf8_whole(data, len, room);
        o->head_full = live < len;
        o->head_used += live;
    }
    if (live < len)
        keep(o, data + live, len - live);
    return tell(o, log, data, live, err);
}

/* Completes the sequence that was begun; gives how many bytes of data that took. */
static int add_partial(struct output *o, struct eventlog *log, const char *data, size_t len, size_t *ret_used,
                       struct error *err)
{
    size_t want = sequence_length((unsigned char)o->partial[0]), used = 0;

    while (o->partial_len < want && used < len && is_continuation(data[used]))
        o->partial[o->partial_len++] = data[used++];
    *ret_used = used;
    if (o->partial_len < want && used == len)
        return 0;
    size_t n = o->partial_len;
    o->partial_len = 0;
    return add_whole(o, log, o->partial, n, err);
}

int output_add(struct output *o, struct eventlog *log, const char *data, size_t len, struct error *err)
{
    o->total += len;
    if (o->partial_len > 0) {
        size_t used = 0;
        if (add_partial(o, log, data, len, &used, err) < 0)
            return -1;
        data += used;
        len -= used;
        if (o->partial_len > 0)
            return 0;
    }
    size_t whole = utf8_whole(data, len, len);
    memcpy(o->partial, data + whole, len - whole);
    o->partial_len = len - whole;
    return add_whole(o, log, data, whole, err);
}

void output_drop(struct output *o, uint64_t bytes)
{
    o->total += bytes;
    o->beyond += bytes;
    o->head_full = true;
}

static int tell_tail(struct output *o, struct eventlog *log, struct error *err)
{
    auto_free char *tail = xcalloc(1, o->ring_used + 1);
    size_t start = o->ring_used == o->tail_max ? o->ring_at : 0, skip = 0;

    for (size_t i = 0; i < o->ring_used; i++)
        tail[i] = o->ring[(start + i) % o->tail_max];
    if (o->beyond > o->ring_used) {
        char line[80];
        while (skip < 3 && skip < o->ring_used && is_continuation(tail[skip]))
            skip++;
        int n = snprintf(line, sizeof line, "\n[... %" PRIu64 " bytes left out ...]\n",
                         o->beyond - o->ring_used + skip);
        if (tell(o, log, line, (size_t)n, err) < 0)
            return -1;
    }
    return tell(o, log, tail + skip, o->ring_used - skip, err);
}

int output_finish(struct output *o, struct eventlog *log, struct error *err)
{
    if (o->partial_len > 0) {
        size_t n = o->partial_len;
        o->partial_len = 0;
        if (add_whole(o, log, o->partial, n, err) < 0)
            return -1;
    }
    return o->beyond > 0 ? tell_tail(o, log, err) : 0;
}

bool output_truncated(const struct output *o) { return o->beyond > o->ring_used; }

bool output_flooded(const struct output *o)
{
    return o->total > OUTPUT_FLOOD_FACTOR * (uint64_t)(o->head_max + o->tail_max);
}
