/*
 * execution.h - one run of a program in a session's sandbox, from the placing of its input files to the
 * capture of what it made. It outlives the call that started it: whoever holds a reference can read its
 * events from the start.
 */
#pragma once

#include "common/frame.h"
#include "common/language.h"
#include "orchestrator/session/table.h"

struct execution_ref {
    char *object_id; /* owned, as name */
    char *name;
};

struct execution_request { /* owned; taken by execution_start() */
    const struct language *language;
    char *code;
    size_t code_len;
    char *input; /* standard input, or NULL */
    size_t input_len;
    json_t *args; /* array of strings, or NULL */
    int64_t timeout_ms;
    struct execution_ref *refs;
    size_t ref_count;
    struct workspace_changes changes; /* references already found wanting go to .skipped */
};
void execution_request_done(struct execution_request *r);

struct execution_event {
    enum frame_type type; /* STARTED to END */
    char *data;           /* owned by the execution, stays until it is freed; NUL-terminated */
    size_t len;
};

enum execution_reason { /* why it ended; the words of FRAME_END */
                        ENDED_OK,
                        ENDED_ERROR,
                        ENDED_COMPILE,
                        ENDED_TIMEOUT,
                        ENDED_OUTPUT_LIMIT,
                        ENDED_OOM,
                        ENDED_SIGNAL,
                        ENDED_CANCELLED,
                        ENDED_KERNEL_DIED,
                        ENDED_NOT_STARTED,
                        ENDED_SANDBOX_LOST, /* not a runner's word: the sandbox itself is gone, or the service
                                               failed */
                        EXECUTION_REASON_COUNT,
};

struct execution_result { /* complete and constant once the execution is done */
    enum execution_reason reason;
    int64_t code;
    char signal[16]; /* "SIGSEGV", or "" */
    char *message;   /* a sentence for people, or NULL */
    char *notice;    /* what else the caller should know ("variables were lost"), or NULL */
    int64_t wall_ms, cpu_ms, memory_bytes;
    bool truncated;
    bool session_restarted; /* Python variables of the session were lost and Python has not run since */
    struct workspace_changes changes;
    size_t refs_skipped; /* the first so many of changes.skipped are references that could not be placed */
};

struct execution;

/*
 * Starts it in a thread of its own. s must have been entered (session_enter); the execution leaves it when it
 * ends, also when this fails, and keeps a pin of its own. *request is taken. ERR_BUSY: SESSION_QUEUE_MAX
 * Python executions wait.
 */
int execution_start(struct session *s, struct execution_request *request, struct execution **ret,
                    struct error *err) MUST_CHECK;
void execution_ref(struct execution *x);
void execution_unref(
    struct execution *x); /* the last one waits for nobody: the thread holds a reference too */
DEFINE_CLEANUP(struct execution *, execution_unref)

struct session *execution_session(const struct execution *x); /* borrowed */
const struct language *execution_language(const struct execution *x);
void execution_cancel(struct execution *x); /* ends the program, its whole tree; does not wait */

unsigned
execution_cancel_session(struct session *s); /* all of a session, the table's lock held; gives how many */
/* Lets no more begin, cancels all that run and waits up to 10 s until their threads have ended. False: some
   have not, and the table must not be freed. */
bool execution_cancel_all(struct session_table *t) MUST_CHECK;

/* A position in the events of one execution, with a descriptor that becomes readable when there is more. */
struct execution_reader {
    struct execution *x; /* a reference */
    size_t next;
    int event_fd;
    bool only_end; /* woken at the end alone */
    struct execution_reader *link;
};
int execution_reader_init(struct execution_reader *r, struct execution *x, bool only_end,
                          struct error *err) MUST_CHECK;
void execution_reader_done(struct execution_reader *r);

enum execution_got { EXECUTION_EVENT, EXECUTION_ENDED, EXECUTION_SILENT, EXECUTION_HUNG_UP };
/*
 * Waits for the next event (only_end: for the end) until deadline_ms (clock_mono_ms), or until the client
 * behind client_fd hangs up (-1: nobody). ENDED comes after the last event; the result is complete then.
 */
enum execution_got execution_next(struct execution_reader *r, int64_t deadline_ms, int client_fd,
                                  struct execution_event *ret);
const struct execution_result *execution_result(const struct execution *x); /* after ENDED */

/* What it wrote, bytes as they came: STDOUT, STDERR, or both in order. */
enum execution_output { OUTPUT_STDOUT = 1, OUTPUT_STDERR = 2, OUTPUT_BOTH = 3 };
int execution_output(struct execution *x, enum execution_output which, struct buf *out,
                     struct error *err) MUST_CHECK;
