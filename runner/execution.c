#include "runner/execution.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/log.h"

#define END_ROOM ((size_t)64 * 1024) /* of a log, for END and the last words before it */

static const char *const reason_words[] = {
    [END_OK] = "ok",
    [END_ERROR] = "error",
    [END_COMPILE] = "compile",
    [END_TIMEOUT] = "timeout",
    [END_OUTPUT_LIMIT] = "output_limit",
    [END_OOM] = "oom",
    [END_SIGNAL] = "signal",
    [END_CANCELLED] = "cancelled",
    [END_KERNEL_DIED] = "kernel_died",
    [END_NOT_STARTED] = "not_started",
};
_Static_assert(ARRAY_LEN(reason_words) == END_REASON_COUNT, "every reason has a word");

const char *end_reason_word(enum end_reason reason) { return reason_words[reason]; }

void signal_name(int sig, char out[16])
{
    const char *abbreviation = sigabbrev_np(sig);

    if (abbreviation)
        (void)snprintf(out, 16, "SIG%s", abbreviation);
    else
        (void)snprintf(out, 16, "signal %d", sig);
}

void execution_say_timeout(struct execution_end *end, int64_t timeout_ms)
{
    (void)snprintf(end->message, sizeof end->message, "stopped after %g s: the time limit (timeout %lld ms)",
                   (double)timeout_ms / 1000, (long long)timeout_ms);
}

/* ---- the table ---- */

void executions_init(struct executions *all, struct context *context)
{
    *all = (struct executions){ .context = context };
}

static void destroy(struct execution *x)
{
    struct executions *all = x->table;
    struct execution **at = &all->newest;

    while (*at != x)
        at = &(*at)->next;
    *at = x->next;
    all->count--;
    loop_disarm(&all->context->loop, &x->grace);
    loop_disarm(&all->context->loop, &x->keep);
    eventlog_done(&x->log);
    output_done(&x->out);
    output_done(&x->err);
    run_request_done(&x->request);
    free(x->id);
    free(x);
}

void executions_done(struct executions *all)
{
    for (struct execution *x = all->newest, *next; x; x = next) {
        next = x->next;
        destroy(x);
    }
}

struct execution *execution_find(const struct executions *all, const char *id)
{
    for (struct execution *x = all->newest; x; x = x->next)
        if (strcmp(x->id, id) == 0)
            return x;
    return NULL;
}

static struct execution *oldest_forgettable(const struct executions *all)
{
    struct execution *found = NULL;

    for (struct execution *x = all->newest; x; x = x->next)
        /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): what was freed is no longer in the list */
        if (x->state == EXECUTION_ENDED && x->followers == 0)
            found = x;
    return found;
}

static size_t ended_bytes(const struct executions *all)
{
    size_t n = 0;

    for (const struct execution *x = all->newest; x; x = x->next)
        n += x->state == EXECUTION_ENDED ? x->log.bytes.cap : 0;
    return n;
}

static void make_room(struct executions *all)
{
    struct execution *old;

    while ((all->count >= EXECUTIONS_MAX || ended_bytes(all) > EXECUTION_KEEP_BYTES) &&
           (old = oldest_forgettable(all)) != NULL)
        destroy(old);
}

static void grace_over(struct timer *t)
{
    struct execution *x = container_of(t, struct execution, grace);

    log_info("execution %s: nobody came back for it", x->id);
    execution_cancel(x);
}

static void keep_over(struct timer *t) { execution_forget(container_of(t, struct execution, keep)); }

/* Everything an execution may tell: both streams in frames as small as a byte, its displays, and the small
 * ones. */
static size_t log_max(const struct run_request *q)
{
    return 2 * (size_t)(FRAME_HEADER + 1) * (size_t)q->output_max + DISPLAY_BYTES_MAX +
           (size_t)FRAME_MAX_EVENT;
}

int execution_new(struct executions *all, struct run_request *request, struct execution **ret,
                  struct error *err)
{
    if (execution_find(all, request->id))
        return error_set(err, ERR_CONFLICT, "there is an execution %s already", request->id);
    make_room(all);
    if (all->count >= EXECUTIONS_MAX)
        return error_set(err, ERR_LIMIT, "more than %d executions at once", EXECUTIONS_MAX);
    struct execution *x = xcalloc(1, sizeof *x);
    x->id = xstrdup(request->id);
    x->request = *request;
    *request = (struct run_request){ 0 };
    eventlog_init(&x->log, log_max(&x->request));
    output_init(&x->out, FRAME_STDOUT, (size_t)x->request.output_max);
    output_init(&x->err, FRAME_STDERR, (size_t)x->request.output_max);
    x->grace.fire = grace_over;
    x->keep.fire = keep_over;
    x->table = all;
    x->next = all->newest;
    all->newest = x;
    all->count++;
    *ret = x;
    return 0;
}

void execution_forget(struct execution *x)
{
    if (x->state != EXECUTION_ENDED)
        return;
    if (x->followers > 0) /* asked again when it has been read */
        loop_arm_in(&x->table->context->loop, &x->keep, EXECUTION_GRACE_MS);
    else
        destroy(x);
}

void execution_follow(struct execution *x)
{
    x->followers++;
    loop_disarm(&x->table->context->loop, &x->grace);
}

void execution_unfollow(struct execution *x)
{
    if (--x->followers == 0 && x->state != EXECUTION_ENDED && !x->request.detached)
        loop_arm_in(&x->table->context->loop, &x->grace, EXECUTION_GRACE_MS);
}

void execution_cancel(struct execution *x)
{
    if (x->state != EXECUTION_ENDED && x->cancel)
        x->cancel(x);
}

/* ---- events ---- */

static bool add(struct execution *x, enum frame_type type, const char *data, size_t len)
{
    struct error err = { 0 };
    const struct buf *b = &x->log.bytes;

    if (len > (size_t)FRAME_MAX_EVENT ||
        (type != FRAME_END && len > b->max - END_ROOM - MIN(b->len, b->max - END_ROOM)))
        return false;
    if (eventlog_add(&x->log, type, data, len, &err) == 0)
        return true;
    log_warn("execution %s: %s left out: %s", x->id, frame_type_name(type), err.msg);
    return false;
}

bool execution_event(struct execution *x, enum frame_type type, json_t *doc)
{
    size_t len = 0;
    bool added = false;

    if (x->state != EXECUTION_ENDED) {
        auto_free char *text = jsonx_dump(doc, &len);
        added = add(x, type, text, len);
    }
    json_decref(doc);
    return added;
}

void execution_start(struct execution *x, const char *kernel_lost)
{
    if (x->state != EXECUTION_QUEUED)
        return;
    x->state = EXECUTION_RUNNING;
    x->started_ms = x->table->context->loop.now_ms();
    (void)execution_event(x, FRAME_STARTED, json_pack("{s:o}", "kernel_lost", jsonx_str(kernel_lost)));
}

void execution_write(struct execution *x, enum frame_type stream, const char *data, size_t len)
{
    struct error err = { 0 };

    if (x->state == EXECUTION_ENDED || len == 0)
        return;
    if (output_add(stream == FRAME_STDOUT ? &x->out : &x->err, &x->log, data, len, &err) < 0)
        log_warn("execution %s: output left out: %s", x->id, err.msg);
}

void execution_writef(struct execution *x, enum frame_type stream, const char *fmt, ...)
{
    char text[2048];
    va_list ap;

    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (n > 0)
        execution_write(x, stream, text, MIN((size_t)n, sizeof text - 1));
}

static json_t *end_document(const struct execution *x, const struct execution_end *end)
{
    char signal[16] = "";
    int64_t now = x->table->context->loop.now_ms();

    if (end->signal)
        signal_name(end->signal, signal);
    return json_pack("{s:s, s:i, s:o, s:o, s:I, s:I, s:I, s:b, s:b, s:I}", "reason",
                     reason_words[end->reason], "code", end->code, "signal",
                     jsonx_str(end->signal ? signal : NULL), "message",
                     jsonx_str(end->message[0] ? end->message : NULL), "wall_ms",
                     (json_int_t)(x->started_ms ? now - x->started_ms : 0), "cpu_ms", (json_int_t)end->cpu_ms,
                     "memory", (json_int_t)end->memory_bytes, "truncated",
                     (int)(output_truncated(&x->out) || output_truncated(&x->err)), "kernel_lost",
                     (int)end->kernel_lost, "skipped_displays", (json_int_t)x->skipped_displays);
}

/* Lets go of what only a running program needs: much of it may be kept for minutes. */
static void slim(struct execution *x)
{
    output_done(&x->out);
    output_done(&x->err);
    x->out.ring = x->err.ring = NULL;
    run_request_done(&x->request);
    char *fit = realloc(x->log.bytes.data, x->log.bytes.len + 1);
    if (fit) {
        x->log.bytes.data = fit;
        x->log.bytes.cap = x->log.bytes.len + 1;
    }
}

void execution_end(struct execution *x, const struct execution_end *end)
{
    struct error err = { 0 };

    if (x->state == EXECUTION_ENDED)
        return;
    if (output_finish(&x->out, &x->log, &err) < 0 || output_finish(&x->err, &x->log, &err) < 0)
        log_warn("execution %s: output left out: %s", x->id, err.msg);
    (void)execution_event(x, FRAME_END, end_document(x, end));
    x->state = EXECUTION_ENDED;
    x->cancel = NULL;
    x->job = NULL;
    slim(x);
    loop_disarm(&x->table->context->loop, &x->grace);
    loop_arm_in(&x->table->context->loop, &x->keep, EXECUTION_KEEP_MS);
}
