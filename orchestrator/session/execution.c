#include "orchestrator/session/execution.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>

#include "common/clock.h"
#include "orchestrator/session/execution_internal.h"
#include "orchestrator/session/table_internal.h"

#define STOP_MS 10000
#define THREAD_STACK ((size_t)1024 * 1024)
#define MAX_DISPLAY_BYTES ((size_t)32 * 1024 * 1024) /* the runner keeps 16 MiB */

void execution_request_done(struct execution_request *r)
{
    free(r->code);
    free(r->input);
    json_decref(r->args);
    for (size_t i = 0; i < r->ref_count; i++) {
        free(r->refs[i].object_id);
        free(r->refs[i].name);
    }
    free(r->refs);
    workspace_changes_done(&r->changes);
    *r = (struct execution_request){ 0 };
}

/* ---- the queue for the kernel ---- */

static unsigned queue_length(const struct session *s)
{
    unsigned n = 0;

    for (const struct execution *x = s->python_queue; x; x = x->queue_next)
        n++;
    return n;
}

static int join_queue(struct execution *x, struct error *err)
{
    struct session *s = x->session;
    const int64_t max = session_table_env(s->table)->config->session_queue_max;
    int r = 0;

    (void)pthread_mutex_lock(session_table_lock(s->table));
    if (queue_length(s) > max) { /* one of them is running */
        r = error_set(
            err, ERR_BUSY,
            "%lld Python executions are waiting in this session already (SESSION_QUEUE_MAX); try again when "
            "they are through",
            (long long)max);
        err->retry_after_s = 5;
    } else {
        struct execution **p = &s->python_queue;
        while (*p)
            p = &(*p)->queue_next;
        *p = x;
        x->queued = true;
    }
    (void)pthread_mutex_unlock(session_table_lock(s->table));
    return r;
}

/* ---- the object ---- */

static void execution_free(struct execution *x)
{
    session_unpin(x->session);
    execution_request_done(&x->request);
    for (size_t i = 0; i < x->event_count; i++)
        free(x->events[i].data);
    free(x->events);
    free(x->result.message);
    free(x->result.notice);
    workspace_changes_done(&x->result.changes);
    if (x->wake_fd >= 0)
        (void)close(x->wake_fd);
    (void)pthread_mutex_destroy(&x->lock);
    free(x);
}

void execution_ref(struct execution *x)
{
    (void)pthread_mutex_lock(&x->lock);
    x->refs++;
    (void)pthread_mutex_unlock(&x->lock);
}

void execution_unref(struct execution *x)
{
    if (!x)
        return;
    (void)pthread_mutex_lock(&x->lock);
    bool last = --x->refs == 0;
    (void)pthread_mutex_unlock(&x->lock);
    if (last)
        execution_free(x);
}

static struct execution *execution_new(struct session *s, struct execution_request *take)
{
    struct execution *x = xcalloc(1, sizeof *x);

    id_new(x->id);
    x->session = s;
    (void)pthread_mutex_lock(session_table_lock(s->table));
    s->pins++;
    (void)pthread_mutex_unlock(session_table_lock(s->table));
    x->request = *take;
    *take = (struct execution_request){ 0 };
    x->result.changes = x->request.changes;
    x->request.changes = (struct workspace_changes){ 0 };
    x->refs = 1;
    (void)pthread_mutex_init(&x->lock, NULL);
    x->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return x;
}

/* ---- all executions of the table ---- */

static int register_running(struct execution *x, struct error *err)
{
    struct session_table *t = x->session->table;
    int r = 0;

    (void)pthread_mutex_lock(&t->lock);
    if (t->stopping) {
        r = error_set(err, ERR_UNAVAILABLE, "the service is stopping; try again when it has started again");
    } else {
        x->all_next = t->executions;
        t->executions = x;
        t->execution_threads++;
    }
    (void)pthread_mutex_unlock(&t->lock);
    return r;
}

void execution_unregister(struct execution *x)
{
    struct session_table *t = x->session->table;

    (void)pthread_mutex_lock(&t->lock);
    struct execution **p = &t->executions;
    while (*p && *p != x)
        p = &(*p)->all_next;
    if (*p)
        *p = x->all_next;
    (void)pthread_mutex_unlock(&t->lock);
}

void execution_thread_ended(struct session_table *t)
{
    (void)pthread_mutex_lock(&t->lock);
    t->execution_threads--;
    (void)pthread_cond_broadcast(&t->changed);
    (void)pthread_mutex_unlock(&t->lock);
}

static void rouse(int event_fd)
{
    const uint64_t one = 1;

    IGNORE(write(event_fd, &one, sizeof one)); /* EAGAIN: it is readable already */
}

bool execution_cancel_all(struct session_table *t)
{
    int64_t deadline = clock_mono_ms() + STOP_MS;

    (void)pthread_mutex_lock(&t->lock);
    t->stopping = true;
    for (struct execution *x = t->executions; x; x = x->all_next) {
        atomic_store(&x->cancelled, true);
        rouse(x->wake_fd);
    }
    (void)pthread_cond_broadcast(&t->changed);
    while (t->execution_threads > 0 && clock_mono_ms() < deadline)
        table_wait(t, deadline);
    if (t->execution_threads > 0)
        log_error("%u executions did not end in time", t->execution_threads);
    bool all = t->execution_threads == 0;
    (void)pthread_mutex_unlock(&t->lock);
    return all;
}

unsigned execution_cancel_session(struct session *s)
{
    unsigned n = 0;

    for (struct execution *x = s->table->executions; x; x = x->all_next) {
        if (x->session != s)
            continue;
        atomic_store(&x->cancelled, true);
        rouse(x->wake_fd);
        n++;
    }
    (void)pthread_cond_broadcast(&s->table->changed);
    return n;
}

static int start_thread(struct execution *x, struct error *err)
{
    pthread_attr_t attr;
    pthread_t thread;

    (void)pthread_attr_init(&attr);
    (void)pthread_attr_setstacksize(&attr, THREAD_STACK);
    (void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    execution_ref(x);
    if (register_running(x, err) < 0) {
        (void)pthread_attr_destroy(&attr);
        execution_unref(x);
        return -1;
    }
    int rc = pthread_create(&thread, &attr, execution_thread, x);
    (void)pthread_attr_destroy(&attr);
    if (rc != 0) {
        execution_unregister(x);
        execution_thread_ended(x->session->table);
        execution_unref(x);
        return error_errno(err, rc, "start a thread");
    }
    return 0;
}

void execution_leave_queue(struct execution *x)
{
    struct session *s = x->session;

    (void)pthread_mutex_lock(session_table_lock(s->table));
    struct execution **p = &s->python_queue;
    while (*p && *p != x)
        p = &(*p)->queue_next;
    if (*p)
        *p = x->queue_next;
    (void)pthread_cond_broadcast(session_table_changed(s->table));
    (void)pthread_mutex_unlock(session_table_lock(s->table));
}

int execution_start(struct session *s, struct execution_request *request, struct execution **ret,
                    struct error *err)
{
    CLEANUP(execution_unrefp) struct execution *x = execution_new(s, request);
    int r = x->wake_fd < 0 ? error_errno(err, errno, "eventfd") : 0;

    if (r == 0 && x->request.language->kernel)
        r = join_queue(x, err);
    if (r == 0 && start_thread(x, err) < 0) {
        if (x->queued)
            execution_leave_queue(x);
        r = -1;
    }
    if (r < 0) {
        session_leave(s);
        return -1;
    }
    *ret = steal_ptr(&x);
    return 0;
}

struct session *execution_session(const struct execution *x) { return x->session; }
const struct language *execution_language(const struct execution *x) { return x->request.language; }
const struct execution_result *execution_result(const struct execution *x) { return &x->result; }

void execution_cancel(struct execution *x)
{
    struct session_table *t = x->session->table;

    atomic_store(&x->cancelled, true);
    rouse(x->wake_fd);
    (void)pthread_mutex_lock(session_table_lock(t));
    (void)pthread_cond_broadcast(session_table_changed(t)); /* it may be waiting for its turn on the kernel */
    (void)pthread_mutex_unlock(session_table_lock(t));
}

/* ---- events ---- */

static size_t bytes_allowed(const struct execution *x)
{
    const struct config *cfg = session_table_env(x->session->table)->config;

    /* Both streams at their cap with the runner's notes about gaps, and the displays. */
    return (size_t)cfg->max_output_kb * 1024 * 2 + (size_t)64 * 1024 + MAX_DISPLAY_BYTES;
}

static void tell_readers(struct execution *x, bool end)
{
    for (struct execution_reader *r = x->readers; r; r = r->link)
        if (end || !r->only_end)
            rouse(r->event_fd);
}

int execution_add_event(struct execution *x, enum frame_type type, const char *data, size_t len,
                        struct error *err)
{
    char *copy = malloc(len + 1);

    if (!copy)
        return error_set(err, ERR_LIMIT, "no memory for %zu bytes of output", len);
    memcpy(copy, data, len);
    copy[len] = '\0';
    (void)pthread_mutex_lock(&x->lock);
    bool fits = x->event_bytes + len + sizeof(struct execution_event) <= bytes_allowed(x);
    if (fits) {
        if (x->event_count == x->event_cap) {
            x->event_cap = x->event_cap ? 2 * x->event_cap : 8;
            x->events = xrealloc_array(x->events, x->event_cap, sizeof *x->events);
        }
        x->events[x->event_count++] = (struct execution_event){ type, copy, len };
        x->event_bytes += len + sizeof(struct execution_event);
        tell_readers(x, false);
    }
    (void)pthread_mutex_unlock(&x->lock);
    if (fits)
        return 0;
    free(copy);
    return error_set(err, ERR_LIMIT, "the sandbox sent more output than its limit");
}

void execution_finish(struct execution *x)
{
    (void)pthread_mutex_lock(&x->lock);
    x->done = true;
    tell_readers(x, true);
    (void)pthread_mutex_unlock(&x->lock);
}

int execution_output(struct execution *x, enum execution_output which, struct buf *out, struct error *err)
{
    int r = 0;

    (void)pthread_mutex_lock(&x->lock);
    for (size_t i = 0; r == 0 && i < x->event_count; i++) {
        const struct execution_event *e = &x->events[i];
        if ((e->type == FRAME_STDOUT && (which & OUTPUT_STDOUT)) ||
            (e->type == FRAME_STDERR && (which & OUTPUT_STDERR)))
            r = buf_add(out, e->data, e->len, err);
    }
    (void)pthread_mutex_unlock(&x->lock);
    return r;
}

/* ---- readers ---- */

int execution_reader_init(struct execution_reader *r, struct execution *x, bool only_end, struct error *err)
{
    *r = (struct execution_reader){
        .only_end = only_end
    }; /* without an execution there is nothing to undo */
    r->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (r->event_fd < 0)
        return error_errno(err, errno, "eventfd");
    r->x = x;
    execution_ref(x);
    (void)pthread_mutex_lock(&x->lock);
    r->link = x->readers;
    x->readers = r;
    (void)pthread_mutex_unlock(&x->lock);
    return 0;
}

void execution_reader_done(struct execution_reader *r)
{
    if (!r->x)
        return;
    (void)pthread_mutex_lock(&r->x->lock);
    struct execution_reader **p = &r->x->readers;
    while (*p && *p != r)
        p = &(*p)->link;
    if (*p)
        *p = r->link;
    (void)pthread_mutex_unlock(&r->x->lock);
    (void)close(r->event_fd);
    execution_unref(r->x);
    r->x = NULL;
}

/* What is there without waiting. False: nothing yet. */
static bool take_next(struct execution_reader *r, enum execution_got *got, struct execution_event *ret)
{
    struct execution *x = r->x;
    bool have = true;

    (void)pthread_mutex_lock(&x->lock);
    if (!r->only_end && r->next < x->event_count) {
        *got = EXECUTION_EVENT;
        *ret = x->events[r->next++]; /* by value: the array may move, what it points to stays */
    } else if (x->done) {
        *got = EXECUTION_ENDED;
    } else {
        have = false;
    }
    (void)pthread_mutex_unlock(&x->lock);
    return have;
}

enum execution_got execution_next(struct execution_reader *r, int64_t deadline_ms, int client_fd,
                                  struct execution_event *ret)
{
    for (;;) {
        enum execution_got got;
        uint64_t drained;
        struct pollfd fds[] = { { .fd = r->event_fd, .events = POLLIN },
                                { .fd = client_fd, .events = POLLRDHUP } };

        if (take_next(r, &got, ret))
            return got;
        int n = poll(fds, ARRAY_LEN(fds), clock_left_ms(deadline_ms));
        if (n == 0)
            return EXECUTION_SILENT;
        if (fds[1].revents & (POLLRDHUP | POLLHUP | POLLERR))
            return EXECUTION_HUNG_UP;
        if (fds[0].revents)
            IGNORE(read(r->event_fd, &drained, sizeof drained));
    }
}
