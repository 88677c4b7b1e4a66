/* eventlog.h - what one execution had to tell, as frames ready to send, kept until it is forgotten. */
#pragma once

#include "common/frame.h"

struct eventlog {
    struct buf bytes; /* frames, one after the other: positions are byte offsets and stay valid */
    uint64_t count;
};

void eventlog_init(struct eventlog *log, size_t max_bytes);
void eventlog_done(struct eventlog *log);
int eventlog_add(struct eventlog *log, enum frame_type type, const void *data, size_t len,
                 struct error *err) MUST_CHECK;
/* Where the event with this number begins; the end of the log for the one that comes next. False: beyond
 * that. */
bool eventlog_seek(const struct eventlog *log, uint64_t number, size_t *ret_pos);
