/* The thread of one execution: turn on the kernel, files in, RUN, events, files out, result. */
#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "common/clock.h"
#include "orchestrator/session/execution_internal.h"
#include "orchestrator/session/link.h"

#define MAX_SENTENCE 1000 /* bytes of a message from the sandbox */
#define LIFE_TRIES 4      /* of LINK_HELLO_MS each */
#define SILENCE_MS 5000   /* after so much silence the runner is asked whether it lives */
#define CANCEL_MS 10000   /* from CANCEL to END: SIGINT, its grace, SIGKILL */
#define OVERTIME_MS 30000 /* the runner keeps the time limit; past this much more it is broken */
#define DEATH_MS 2000     /* the engine notices a container's death a little later than we do */
#define MIB ((json_int_t)1024 * 1024)

struct run {
    struct execution *x;
    struct session *s;
    unsigned generation;
    struct link link;
    int64_t begun_ms;
    int64_t deadline_ms; /* no END by then: the sandbox is broken */
    bool started;
    bool had_python; /* the session had Python variables when this run began */
    bool cancel_sent;
    uint64_t captures_seen; /* the session's count when this run began */
    bool ended;             /* END was read, or the sandbox is lost */
};

/* ---- results ---- */

static const char *const reason_words[] = {
    [ENDED_OK] = "ok",
    [ENDED_ERROR] = "error",
    [ENDED_COMPILE] = "compile",
    [ENDED_TIMEOUT] = "timeout",
    [ENDED_OUTPUT_LIMIT] = "output_limit",
    [ENDED_OOM] = "oom",
    [ENDED_SIGNAL] = "signal",
    [ENDED_CANCELLED] = "cancelled",
    [ENDED_KERNEL_DIED] = "kernel_died",
    [ENDED_NOT_STARTED] = "not_started",
    [ENDED_SANDBOX_LOST] = "sandbox_lost",
};
_Static_assert(ARRAY_LEN(reason_words) == EXECUTION_REASON_COUNT, "every reason has a word");

static enum execution_reason reason_of(const char *word)
{
    for (size_t i = 0; i < ENDED_SANDBOX_LOST; i++)
        if (strcmp(reason_words[i], word) == 0)
            return (enum execution_reason)i;
    return ENDED_ERROR;
}

static void end_with(struct run *r, enum execution_reason reason, int64_t code, const char *message)
{
    struct execution_result *res = &r->x->result;

    res->reason = reason;
    res->code = code;
    free(res->message);
    res->message = xstrdup(message);
    r->ended = true;
}

static void fail(struct run *r, const struct error *err)
{
    log_warn("execution %s: %s", r->x->id, err->msg);
    end_with(r, ENDED_SANDBOX_LOST, 1, err->msg);
}

/* The END frame, from a runner that may be hostile: anything may be missing or out of range. */
static int take_end(struct run *r, const struct frame *f, struct error *err)
{
    struct execution_result *res = &r->x->result;
    json_auto_t *doc = NULL;
    json_int_t code = 1, wall = 0, cpu = 0, memory = 0;
    const char *reason = "error";
    json_t *signal_word = NULL, *sentence = NULL; /* text or null */
    int truncated = 0, kernel_lost = 0;
    json_int_t undisplayed = 0;

    if (jsonx_parse_repaired(f->payload, f->len, &doc, err) < 0 ||
        jsonx_unpack(doc, err, "{s:s, s:I, s?:o, s?:o, s?:I, s?:I, s?:I, s?:b, s?:b, s?:I}", "reason",
                     &reason, "code", &code, "signal", &signal_word, "message", &sentence, "wall_ms", &wall,
                     "cpu_ms", &cpu, "memory", &memory, "truncated", &truncated, "kernel_lost", &kernel_lost,
                     "skipped_displays", &undisplayed) < 0)
        return error_wrap(err, "the runner's END");
    const char *signal = json_string_value(signal_word), *given = json_string_value(sentence);
    auto_free char *message = given ? xstrndup(given, MAX_SENTENCE) : NULL;
    end_with(r, reason_of(reason), code, message);
    (void)snprintf(res->signal, sizeof res->signal, "%s", signal ? signal : "");
    res->wall_ms = MAX(0, wall);
    res->cpu_ms = MAX(0, cpu);
    res->memory_bytes = MAX(0, memory);
    res->truncated = truncated != 0;
    if (undisplayed > 0)
        workspace_changes_skip(&res->changes, "*",
                               "%lld displays more than one execution may make were left out",
                               (long long)undisplayed);
    if (kernel_lost)
        session_python_lost(r->s, message ? message : "the Python kernel ended");
    return 0;
}

/* ---- a sandbox that fails under a run ---- */

/* Why the container ended, as the engine has it; waits a moment for the engine to notice. */
static bool inspect_death(struct run *r, struct engine_inspection *seen)
{
    struct engine *e = session_table_env(r->s->table)->engine;
    struct error ignored = { 0 };
    char container[ENGINE_ID_SIZE];
    const struct timespec pause = { .tv_nsec = 20000000L };
    int64_t until = clock_mono_ms() + DEATH_MS;

    session_container(r->s, container);
    while (container[0] && e->ops->inspect(e, container, seen, &ignored) == 0) {
        if (seen->state != ENGINE_RUNNING)
            return true;
        if (clock_mono_ms() >= until)
            return false;
        (void)nanosleep(&pause, NULL);
    }
    return false;
}

/* The connection closed by itself, so the sandbox should be dead and the engine know why. */
static void sandbox_closed(struct run *r)
{
    struct engine_inspection seen = { 0 };
    const int64_t limit_mb = session_table_env(r->s->table)->config->sandbox_memory_mb;
    bool dead = inspect_death(r, &seen);
    bool oom = dead && seen.oom_killed;
    auto_free char *message =
        oom    ? xasprintf("the sandbox was killed: out of memory (limit %" PRId64 " MB)", limit_mb)
        : dead ? xasprintf("the sandbox ended while the program ran (exit code %" PRId64 ")", seen.exit_code)
               : xstrdup("the sandbox was replaced: its runner closed the connection");

    end_with(r, oom ? ENDED_OOM : ENDED_SANDBOX_LOST, 137, message);
    session_drop_sandbox(r->s, r->generation, message);
}

/* It lives, but cannot be trusted to go on. */
static void sandbox_broken(struct run *r, enum execution_reason reason, const char *what)
{
    auto_free char *message = xasprintf("the sandbox was replaced: %s", what);

    end_with(r, reason, 137, message);
    session_drop_sandbox(r->s, r->generation, message);
}

static bool runner_answers(struct run *r)
{
    struct link probe = LINK_NONE;
    struct error ignored = { 0 };
    auto_free char *run_dir = session_run_dir(r->s);

    /* Only silence tells: who removed the socket has not ended the runner, and a dead one closes our
     * connection. */
    if (link_open(session_table_env(r->s->table)->engine, run_dir, &probe, &ignored) < 0)
        return ignored.kind != ERR_TIMEOUT;
    link_close(&probe);
    return true;
}

/* Another connection to the same runner: is it still there? A busy one may be slow to say so, a dead one
 * never does. */
static bool runner_lives(struct run *r)
{
    for (int i = 0; i < LIFE_TRIES; i++)
        if (runner_answers(r))
            return true;
    return false;
}

/* Opens the connection, replacing a sandbox that is gone, paused or mute. */
static int connect_runner(struct run *r, struct error *err)
{
    struct engine *e = session_table_env(r->s->table)->engine;
    auto_free char *run_dir = session_run_dir(r->s);

    r->generation = session_generation(r->s);
    if (link_open(e, run_dir, &r->link, err) == 0)
        return 0;
    log_warn("session %s: sandbox does not answer (%s), replacing it", r->s->id, err->msg);
    if (session_replace_sandbox(r->s, r->generation, "its sandbox did not answer and was replaced", err) < 0)
        return -1;
    r->generation = session_generation(r->s);
    auto_free char *new_run_dir = session_run_dir(r->s);
    return link_open(e, new_run_dir, &r->link, err);
}

/* ---- the run itself ---- */

static char *lost_notice(const char *why)
{
    size_t len = strnlen(why, MAX_SENTENCE);

    while (len > 0 && why[len - 1] == '.')
        len--;
    return xasprintf("The Python variables of this session were lost: %.*s.", (int)len, why);
}

static json_t *run_document(const struct execution *x)
{
    const struct config *cfg = session_table_env(x->session->table)->config;
    const struct execution_request *q = &x->request;

    return json_pack(
        "{s:s, s:s, s:o, s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:b}", "id", x->id, "lang",
        q->language->name, "code", jsonx_text(q->code, q->code_len), "args",
        q->args ? json_incref(q->args) : json_array(), "stdin",
        q->input ? jsonx_text(q->input, q->input_len) : json_null(), "timeout_ms", (json_int_t)q->timeout_ms,
        "compile_timeout_ms", (json_int_t)cfg->compile_timeout_s * 1000, "output_max",
        (json_int_t)cfg->max_output_kb * 1024, "memory_max", (json_int_t)cfg->process_memory_mb * MIB,
        "cpu_max_s", (json_int_t)cfg->process_cpu_s, "file_max", (json_int_t)cfg->max_file_mb * MIB,
        "bash_strict", (int)cfg->bash_strict, "detached", 0);
}

static void send_cancel(struct run *r)
{
    struct error err = { 0 };
    json_auto_t *doc = json_pack("{s:s}", "id", r->x->id);

    if (r->cancel_sent)
        return;
    r->cancel_sent = true;
    r->deadline_ms = MIN(r->deadline_ms, clock_mono_ms() + CANCEL_MS);
    if (link_send(&r->link, FRAME_CANCEL, doc, &err) < 0)
        sandbox_broken(r, ENDED_SANDBOX_LOST, err.msg);
}

/* The kernel may have died since the last run, unseen by anybody but the runner. */
static void take_started(struct run *r, const struct frame *f)
{
    struct error ignored = { 0 };
    json_auto_t *doc = NULL;
    json_t *lost = NULL;

    if (!r->had_python || jsonx_parse_repaired(f->payload, f->len, &doc, &ignored) < 0 ||
        jsonx_unpack(doc, &ignored, "{s:o}", "kernel_lost", &lost) < 0 || !json_is_string(lost))
        return;
    free(r->x->result.notice);
    r->x->result.notice = lost_notice(json_string_value(lost));
}

static void take_frame(struct run *r, const struct frame *f)
{
    const struct config *cfg = session_table_env(r->s->table)->config;
    struct error err = { 0 };

    if (f->type == FRAME_REFUSED) {
        end_with(r, ENDED_NOT_STARTED, 1, "the sandbox refused to run more programs at once");
        return;
    }
    if (f->type == FRAME_STARTED && !r->started) {
        take_started(r, f);
        r->started = true;
        r->begun_ms = clock_mono_ms();
        r->deadline_ms = r->begun_ms + r->x->request.timeout_ms + cfg->compile_timeout_s * 1000 + OVERTIME_MS;
    }
    if (f->type == FRAME_END && take_end(r, f, &err) < 0)
        sandbox_broken(r, ENDED_SANDBOX_LOST, err.msg);
    if (f->type < FRAME_STARTED || f->type > FRAME_END)
        return; /* not an event of an execution */
    if (execution_add_event(r->x, f->type, f->payload, f->len, &err) < 0 && !r->ended) {
        /* An honest runner keeps the limits that RUN named. */
        sandbox_broken(r, ENDED_OUTPUT_LIMIT, err.msg);
    }
}

static void follow(struct run *r)
{
    struct error err = { 0 };

    while (!r->ended) {
        struct frame f;
        enum link_got got;
        int64_t now = clock_mono_ms();

        if (now >= r->deadline_ms) {
            sandbox_broken(r, ENDED_SANDBOX_LOST, "it kept neither its time limit nor a request to stop");
            return;
        }
        if (link_read(&r->link, MIN(r->deadline_ms, now + SILENCE_MS), r->cancel_sent ? -1 : r->x->wake_fd,
                      &f, &got, &err) < 0) {
            sandbox_broken(r, ENDED_SANDBOX_LOST, err.msg);
            return;
        }
        if (got == LINK_FRAME)
            take_frame(r, &f);
        else if (got == LINK_WOKEN)
            send_cancel(r);
        else if (got == LINK_CLOSED)
            sandbox_closed(r);
        else if (!runner_lives(r))
            sandbox_broken(r, ENDED_SANDBOX_LOST, "its runner fell silent");
    }
}

static int place_files(struct run *r, struct error *err)
{
    struct execution *x = r->x;
    struct workspace *w = NULL;
    struct workspace_ref *refs = xcalloc(x->request.ref_count, sizeof *refs);

    for (size_t i = 0; i < x->request.ref_count; i++)
        refs[i] = (struct workspace_ref){ x->request.refs[i].object_id, x->request.refs[i].name };
    int rc = session_workspace_begin(r->s, &w, err);
    if (rc == 0) {
        rc = workspace_place(w, refs, x->request.ref_count, &x->result.changes, err);
        session_workspace_end(r->s);
        x->result.refs_skipped = x->result.changes.skipped_count;
    }
    free(refs);
    return rc;
}

static void capture_files(struct run *r)
{
    struct workspace *w = NULL;
    struct error err = { 0 };

    if (session_workspace_begin(r->s, &w, &err) < 0) {
        workspace_changes_skip(&r->x->result.changes, "*", "%s", err.msg);
        return;
    }
    if (workspace_capture(w, &r->x->result.changes, &err) < 0) {
        log_error("execution %s: capture: %s", r->x->id, err.msg);
        workspace_changes_skip(&r->x->result.changes, "*", "files could not be captured: %s", err.msg);
    }
    session_share_captures(r->s, r->captures_seen, &r->x->result.changes);
    session_workspace_end(r->s);
}

static void acknowledge(struct run *r)
{
    struct error ignored = { 0 }; /* the runner forgets by itself after a while */
    json_auto_t *doc = json_pack("{s:s}", "id", r->x->id);

    if (r->x->result.reason != ENDED_SANDBOX_LOST)
        IGNORE(link_send(&r->link, FRAME_ACK, doc, &ignored));
}

/* Waits until this execution is the first on its session's kernel. False: cancelled while it waited. */
static bool wait_turn(struct execution *x)
{
    struct session *s = x->session;

    (void)pthread_mutex_lock(session_table_lock(s->table));
    while (s->python_queue != x && !atomic_load(&x->cancelled))
        (void)pthread_cond_wait(session_table_changed(s->table), session_table_lock(s->table));
    (void)pthread_mutex_unlock(session_table_lock(s->table));
    return !atomic_load(&x->cancelled);
}

static void run_program(struct run *r)
{
    struct error err = { 0 };
    const struct config *cfg = session_table_env(r->s->table)->config;
    bool python = r->x->request.language->kernel;

    r->captures_seen = session_captures(r->s);
    if (place_files(r, &err) < 0 || connect_runner(r, &err) < 0) {
        fail(r, &err);
        return;
    }
    if (python) {
        auto_free char *lost = session_python_take_lost(r->s);
        if (lost)
            r->x->result.notice = lost_notice(lost);
        r->had_python = session_python_ran(r->s);
    }
    json_auto_t *doc = run_document(r->x);
    /* Until STARTED it may wait behind what a former service had started. */
    r->deadline_ms = clock_mono_ms() + cfg->execution_timeout_s * 1000 + OVERTIME_MS;
    if (link_send(&r->link, FRAME_RUN, doc, &err) < 0) {
        sandbox_broken(r, ENDED_SANDBOX_LOST, err.msg);
        return;
    }
    follow(r);
    capture_files(r);
    acknowledge(r);
}

void *execution_thread(void *arg)
{
    struct execution *x = arg;
    struct session_table *t = x->session->table;
    struct run r = { .x = x, .s = x->session, .link = LINK_NONE, .begun_ms = clock_mono_ms() };

    log_context(x->id, x->session->id);
    bool mine = !x->queued || wait_turn(x);
    r.begun_ms = clock_mono_ms();
    if (mine && !atomic_load(&x->cancelled))
        run_program(&r);
    else
        end_with(&r, ENDED_CANCELLED, 130, "cancelled before it started");
    if (x->queued)
        execution_leave_queue(x);
    link_close(&r.link);
    if (x->result.wall_ms == 0)
        x->result.wall_ms = clock_mono_ms() - r.begun_ms;
    x->result.session_restarted = x->result.notice != NULL || session_python_is_lost(r.s);
    session_leave(r.s);
    execution_finish(x);
    execution_unregister(x);
    execution_unref(x);
    execution_thread_ended(t);
    return NULL;
}
