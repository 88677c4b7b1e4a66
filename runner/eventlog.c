#include "runner/eventlog.h"

#include <arpa/inet.h>
#include <string.h>

void eventlog_init(struct eventlog *log, size_t max_bytes)
{
    log->count = 0;
    buf_init(&log->bytes, max_bytes);
}

void eventlog_done(struct eventlog *log) { buf_done(&log->bytes); }

int eventlog_add(struct eventlog *log, enum frame_type type, const void *data, size_t len, struct error *err)
{
    if (frame_add(&log->bytes, type, data, len, err) < 0)
        return -1;
    log->count++;
    return 0;
}

bool eventlog_seek(const struct eventlog *log, uint64_t number, size_t *ret_pos)
{
    size_t pos = 0;

    if (number > log->count)
        return false;
    for (uint64_t i = 0; i < number; i++) {
        uint32_t be;
        memcpy(&be, log->bytes.data + pos, sizeof be);
        pos += FRAME_HEADER + (size_t)ntohl(be);
    }
    *ret_pos = pos;
    return true;
}
