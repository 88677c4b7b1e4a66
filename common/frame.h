/*
 * frame.h - what orchestrator and runner say to each other over the sandbox's Unix socket. libc only.
 *
 * A frame is u32 length (big endian, of the payload) | u8 type | payload. STDOUT and STDERR carry the
 * program's bytes as they are; every other payload is one JSON object, given below by its keys. A connection
 * opens with HELLO in both directions and then does one of: follow one execution (RUN or ATTACH, with CANCEL
 * allowed meanwhile), or ask (LIST, CANCEL, ACK, MANIFEST), as often as it likes.
 */
#pragma once

#include "common/buf.h"

#define FRAME_PROTOCOL 1        /* spoken by this build */
#define FRAME_PROTOCOL_OLDEST 1 /* still understood: the last two are spoken */
#define FRAME_HEADER 5

/* Largest payloads accepted. A runner reads requests with code in them; whatever comes out is bounded
 * tighter. */
#define FRAME_MAX_REQUEST ((uint32_t)80 * 1024 * 1024)
#define FRAME_MAX_EVENT ((uint32_t)24 * 1024 * 1024)

enum frame_type {
    /* both ways */
    FRAME_HELLO =
        1, /* protocol, oldest, program; from the runner also kernel: "starting" "idle" "busy" "dead" */

    /* orchestrator to runner */
    FRAME_RUN = 10, /* id, lang (canonical name), code, args[], stdin: text | null, timeout_ms,
                       compile_timeout_ms, output_max (bytes a stream), memory_max, cpu_max_s and file_max
                       (0: none), bash_strict, detached (a lost connection does not cancel it) */
    FRAME_ATTACH,   /* id, offset: events already had; the others follow, then new ones as they come */
    FRAME_CANCEL,   /* id: ends the execution (kernel: SIGINT, then SIGKILL; process: SIGKILL of its tree) */
    FRAME_ACK,      /* id: the result was kept, the runner may forget the execution */
    FRAME_LIST,     /* {} */

    /* runner to orchestrator: answers */
    FRAME_LISTING = 30, /* kernel, executions: [{id, lang, state: "queued" | "running" | "ended", events}] */
    FRAME_REFUSED,      /* message: an unknown id, a malformed request, too many executions */

    /* runner to orchestrator: the events of the followed execution, counted from 0 */
    FRAME_STARTED =
        50,        /* it left the queue, its time limit runs. kernel_lost: a sentence when the kernel, with
                      the variables, was lost between two executions, which no END could say | null */
    FRAME_STDOUT,  /* bytes */
    FRAME_STDERR,  /* bytes; a Python traceback is here too, free of escapes */
    FRAME_RESULT,  /* data: {mime: text}, file: name in the workspace | null. The last expression's value;
                      its text/plain was also sent as STDOUT */
    FRAME_DISPLAY, /* the same for display() and figures */
    FRAME_ERROR,   /* ename, evalue, traceback[] of a Python exception */
    FRAME_END,     /* always last:
                      reason: "ok" | "error" (non-zero exit, exception) | "compile" | "timeout" |
                              "output_limit" | "oom" | "signal" | "cancelled" | "kernel_died" | "not_started"
                      code, signal: "SIGSEGV" | null, message: a sentence for people | null (not sent as
                      STDERR), wall_ms, cpu_ms, memory (bytes, peak), truncated, kernel_lost (the session's
                      Python variables are gone), skipped_displays */
};

struct frame {
    enum frame_type type;
    const char *payload; /* borrowed from the reader until it is fed again; not NUL-terminated */
    uint32_t len;
};

bool frame_type_known(uint8_t type);
const char *frame_type_name(enum frame_type type);

/* Appends one frame to a buffer. ERR_LIMIT when the buffer's cap or the length field does not hold it. */
int frame_add(struct buf *out, enum frame_type type, const void *payload, size_t len,
              struct error *err) MUST_CHECK;
/* Writes one frame to a blocking descriptor, header and payload in one system call when it can. */
int frame_write(int fd, enum frame_type type, const void *payload, size_t len, struct error *err) MUST_CHECK;

/* Incremental decoder of hostile bytes. */
struct frame_reader {
    struct buf buf;
    size_t used; /* bytes of buf that belong to the frame given last */
    uint32_t max_payload;
    bool broken; /* an error is final: the stream cannot be resynchronised */
};

void frame_reader_init(struct frame_reader *r, uint32_t max_payload);
void frame_reader_done(struct frame_reader *r);
int frame_reader_feed(struct frame_reader *r, const void *data, size_t len, struct error *err) MUST_CHECK;
/* Reads what fd has (one read(2)) into the decoder. Gives false at end of file. EAGAIN counts as nothing
 * read. */
int frame_reader_fill(struct frame_reader *r, int fd, bool *ret_open, struct error *err) MUST_CHECK;
/* Gives true and a frame, or false when more bytes are needed. ERR_UPSTREAM: unknown type or too long. */
int frame_reader_next(struct frame_reader *r, struct frame *ret, bool *ret_have,
                      struct error *err) MUST_CHECK;
