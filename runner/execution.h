/*
 * execution.h - one run of a program as the service sees it: its request, its events, its end. Executions
 * belong to the table, not to a connection; how the program is run is process.h's and python.h's.
 */
#pragma once

#include "runner/context.h"
#include "runner/output.h"
#include "runner/request.h"

#define EXECUTIONS_MAX 256
#define EXECUTION_KEEP_MS ((int64_t)10 * 60 * 1000)     /* after END, unless acknowledged */
#define EXECUTION_GRACE_MS ((int64_t)30 * 1000)         /* after a lost connection, before it is cancelled */
#define EXECUTION_KEEP_BYTES ((size_t)64 * 1024 * 1024) /* of ended ones together; the oldest go first */
#define DISPLAYS_MAX 200
#define DISPLAY_BYTES_MAX ((size_t)16 * 1024 * 1024) /* kept in the log; past it only the files are named */

enum execution_state { EXECUTION_QUEUED, EXECUTION_RUNNING, EXECUTION_ENDED };

enum end_reason { /* the words of FRAME_END */
                  END_OK,
                  END_ERROR,
                  END_COMPILE,
                  END_TIMEOUT,
                  END_OUTPUT_LIMIT,
                  END_OOM,
                  END_SIGNAL,
                  END_CANCELLED,
                  END_KERNEL_DIED,
                  END_NOT_STARTED,
                  END_REASON_COUNT,
};

struct execution_end {
    enum end_reason reason;
    int code;
    int signal;        /* 0: none */
    char message[512]; /* empty: none */
    int64_t cpu_ms;
    int64_t memory_bytes;
    bool kernel_lost;
};

struct execution {
    char *id;
    struct run_request request; /* emptied at the end */
    enum execution_state state;
    struct eventlog log;
    struct output out, err;
    uint64_t skipped_displays;
    unsigned displays;
    size_t display_bytes;
    int64_t started_ms;
    unsigned followers; /* connections */
    struct timer grace, keep;
    /* Set by whoever runs it: ends the program; END follows, at once or later. */
    void (*cancel)(struct execution *x);
    void *job; /* the runner's of it; NULL once ended */
    struct executions *table;
    struct execution *next; /* older ones follow */
};

struct executions {
    struct context *context;
    struct execution *newest;
    size_t count;
};

void executions_init(struct executions *all, struct context *context);
void executions_done(struct executions *all); /* none may be running */

/* Takes *request. ERR_CONFLICT: the id is in use; ERR_LIMIT: too many are active. */
int execution_new(struct executions *all, struct run_request *request, struct execution **ret,
                  struct error *err) MUST_CHECK;
struct execution *execution_find(const struct executions *all, const char *id); /* NULL: unknown */
void execution_forget(struct execution *x); /* an ended one that nobody follows, else nothing */

void execution_follow(struct execution *x);   /* one more connection */
void execution_unfollow(struct execution *x); /* one less; the last one starts the grace */
void execution_cancel(struct execution *x);   /* of an ended one: nothing */

/* The events. After execution_end() all of them do nothing, so that nothing can follow END. */
void execution_start(struct execution *x, const char *kernel_lost); /* STARTED; the text or NULL */
void execution_write(struct execution *x, enum frame_type stream, const char *data, size_t len);
void execution_writef(struct execution *x, enum frame_type stream, const char *fmt, ...) PRINTF_LIKE(3, 4);
/* Takes doc. False: it does not fit in a frame, or in the log any more. */
bool execution_event(struct execution *x, enum frame_type type, json_t *doc);
void execution_end(struct execution *x, const struct execution_end *end);

/* What is said of a time limit: "stopped after 3 s: the time limit (timeout 3000 ms)". */
void execution_say_timeout(struct execution_end *end, int64_t timeout_ms);
const char *end_reason_word(enum end_reason reason);
/* "SIGSEGV" into out. */
void signal_name(int sig, char out[16]);
