/* link.h - one connection to a sandbox's runner, opened by the HELLO of both sides. Everything read is
 * hostile. */
#pragma once

#include "common/frame.h"
#include "orchestrator/engine/engine.h"

#define LINK_HELLO_MS 2000 /* a runner that has not said HELLO by then is mute */

struct link {
    int fd;
    struct frame_reader reader;
};

enum link_got { LINK_FRAME, LINK_TIMEOUT, LINK_CLOSED, LINK_WOKEN };

/* Connects and exchanges HELLO. ERR_TIMEOUT: mute; ERR_UPSTREAM: not a runner, or one of a foreign protocol.
 */
int link_open(struct engine *engine, const char *run_dir, struct link *ret, struct error *err) MUST_CHECK;
void link_close(struct link *l); /* also of a zeroed one with fd -1 */
#define LINK_NONE                                                                                            \
    {                                                                                                        \
        .fd = -1                                                                                             \
    }

/* Bounded in time: a runner that does not read makes it fail. */
int link_send(struct link *l, enum frame_type type, const json_t *doc, struct error *err) MUST_CHECK;

/* Waits for one frame until deadline_ms (clock_mono_ms; -1: for ever), or until wake_fd is readable (-1:
 * none). */
int link_read(struct link *l, int64_t deadline_ms, int wake_fd, struct frame *ret, enum link_got *ret_got,
              struct error *err) MUST_CHECK;
