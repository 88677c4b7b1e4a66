#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "common/log.h"
#include "runner/cgroup.h"
#include "runner/procfs.h"
#include "runner/python_internal.h"

#define ABORTS_MAX 3
#define STEP_MS 1000   /* between the steps of the ladder: three make the grace before SIGKILL */
#define SETTLE_MS 5000 /* for the other of reply and idle, once one came; counted from the last message */

#define SAY(end, ...) ((void)snprintf((end)->message, sizeof(end)->message, __VA_ARGS__))

/* ---- the end ---- */

static void clear(struct python *p)
{
    struct loop *loop = &p->context->loop;

    loop_disarm(loop, &p->deadline);
    loop_disarm(loop, &p->ladder);
    loop_disarm(loop, &p->settle);
    p->cell = (struct cell){ 0 };
}

static void explain_stop(const struct python *p, struct execution_end *end)
{
    const struct run_request *q = &p->cell.x->request;

    end->reason = p->cell.stopped_for;
    if (end->reason == END_TIMEOUT) {
        end->code = 124;
        execution_say_timeout(end, q->timeout_ms);
    } else if (end->reason == END_OUTPUT_LIMIT) {
        end->code = 137;
        SAY(end, "stopped: it wrote more than %d times the %lld kB that are kept of a stream",
            OUTPUT_FLOOD_FACTOR, (long long)q->output_max / 1024);
    } else {
        end->code = 130;
        SAY(end, "cancelled");
    }
}

static void say_more(struct execution_end *end, const char *more)
{
    size_t len = strlen(end->message);

    (void)snprintf(end->message + len, sizeof end->message - len, "; %s", more);
}

/* Reply and idle came: the kernel lives and is free, or is about to leave by itself. */
static void finish(struct python *p)
{
    struct execution *x = p->cell.x;
    struct execution_end end = p->cell.end;
    bool leaving = p->cell.leaving;

    if (p->cell.stopped_for != END_OK) {
        explain_stop(p, &end);
        say_more(&end, "variables are kept");
    } else if (end.reason == END_ERROR &&
               cgroup_oom_kills(p->context->config->cgroup_dir) > p->cell.oom_kills_before) {
        SAY(&end, "a process of the sandbox was killed meanwhile: out of memory");
    }
    if (end.reason == END_ERROR && !p->cell.error_told && p->cell.error[0])
        execution_writef(x, FRAME_STDERR, "%s\n", p->cell.error);
    if (leaving) {
        end.kernel_lost = true;
        SAY(&end, "exit() ended the Python kernel; its variables are gone");
    }
    end.cpu_ms = MAX(0, procfs_cpu_ms(p->child.pid) - p->cell.cpu_before_ms);
    end.memory_bytes = procfs_peak_bytes(p->child.pid);
    clear(p);
    if (p->state == PYTHON_BUSY)
        p->state = PYTHON_IDLE;
    p->failed_boots = 0;
    if (leaving)
        python_leave(p);
    execution_end(x, &end);
    python_next(p);
}

static void explain_death(const struct python *p, struct execution_end *end)
{
    int sig = WIFSIGNALED(p->status) ? WTERMSIG(p->status) : 0;
    bool oom = sig == SIGKILL && cgroup_oom_kills(p->context->config->cgroup_dir) > p->cell.oom_kills_before;
    char how[128];

    python_describe_death(p, oom, how, sizeof how);
    SAY(end, "the Python kernel %s", how);
    end->reason = oom ? END_OOM : sig ? END_SIGNAL : END_KERNEL_DIED;
    end->code = sig ? 128 + sig : WEXITSTATUS(p->status);
    end->signal = sig;
}

void cell_died(struct python *p)
{
    struct execution *x = p->cell.x;
    struct execution_end end = { .kernel_lost = true };

    if (p->cell.stopped_for != END_OK) {
        explain_stop(p, &end);
        say_more(&end, "it could not be interrupted, so Python was restarted and its variables are gone");
    } else {
        explain_death(p, &end);
        say_more(&end, "it was restarted and its variables are gone");
    }
    end.cpu_ms = MAX(0, p->dead_cpu_ms - p->cell.cpu_before_ms);
    end.memory_bytes = p->dead_peak_bytes;
    clear(p);
    execution_end(x, &end);
}

static void check_done(struct python *p)
{
    if (p->cell.replied && p->cell.idle)
        finish(p);
    else if (p->cell.replied || p->cell.idle)
        loop_arm_in(&p->context->loop, &p->settle, SETTLE_MS);
}

/* The other one never came: code that owns the kernel's process can do that. What came must do. */
static void on_settle(struct timer *t) { finish(container_of(t, struct python, settle)); }

/* ---- stopping ---- */

/*
 * SIGINT to the kernel alone; where that does not do (os.system() makes it deaf), to its group, in which
 * background processes may live that a user would rather keep; then SIGKILL.
 */
static void climb(struct python *p)
{
    switch (p->cell.stop_stage++) {
    case 0:
        python_signal(p, SIGINT, false);
        break;
    case 1:
    case 2:
        python_signal(p, SIGINT, true);
        break;
    default:
        python_signal(p, SIGKILL, true);
        return;
    }
    loop_arm_in(&p->context->loop, &p->ladder, STEP_MS);
}

static void stop(struct python *p, enum end_reason reason)
{
    if (p->cell.stopped_for != END_OK)
        return;
    p->cell.stopped_for = reason;
    climb(p);
}

static void on_ladder(struct timer *t) { climb(container_of(t, struct python, ladder)); }
static void on_deadline(struct timer *t) { stop(container_of(t, struct python, deadline), END_TIMEOUT); }

void cell_cancel(struct execution *x)
{
    struct python *p = x->job;
    struct execution_end end = { .reason = END_CANCELLED,
                                 .code = 130,
                                 .message = "cancelled before it started" };

    if (p->cell.x == x) {
        stop(p, END_CANCELLED);
        return;
    }
    for (size_t i = 0; i < p->queue_len; i++)
        if (p->queue[i] == x) {
            memmove(p->queue + i, p->queue + i + 1, (--p->queue_len - i) * sizeof(struct execution *));
            execution_end(x, &end);
            return;
        }
}

/* ---- start ---- */

void cell_init(struct python *p)
{
    p->deadline.fire = on_deadline;
    p->ladder.fire = on_ladder;
    p->settle.fire = on_settle;
}

static void send_request(struct python *p)
{
    const struct run_request *q = &p->cell.x->request;
    struct jupyter_request message;
    struct error err = { 0 };

    python_new_id(p, p->cell.msg_id);
    jupyter_execute(p->session, p->cell.msg_id, &q->code, q->args, &q->input, &message);
    if (kernel_send(p->kernel, &message, &err) < 0) {
        log_error("%s", err.msg);
        python_signal(p, SIGKILL, true); /* its end becomes the cell's */
    }
    jupyter_request_done(&message);
    python_pump_soon(p);
}

static void tell_held(struct python *p)
{
    static const enum frame_type streams[] = { FRAME_STDOUT, FRAME_STDERR };

    for (size_t i = 0; i < ARRAY_LEN(streams); i++) {
        execution_write(p->cell.x, streams[i], p->held[i].data, p->held[i].len);
        buf_done(&p->held[i]);
    }
    if (p->notice)
        execution_write(p->cell.x, FRAME_STDERR, p->notice, strlen(p->notice));
    free(p->notice);
    p->notice = NULL;
}

void cell_start(struct python *p, struct execution *x)
{
    auto_free char *lost = steal_ptr(&p->lost);

    p->cell = (struct cell){ .x = x, .oom_kills_before = cgroup_oom_kills(p->context->config->cgroup_dir) };
    p->cell.cpu_before_ms = procfs_cpu_ms(p->child.pid);
    procfs_reset_peak(p->child.pid);
    p->used = true;
    execution_start(x, lost);
    tell_held(p);
    loop_arm_in(&p->context->loop, &p->deadline, x->request.timeout_ms);
    send_request(p);
}

/* ---- messages ---- */

static void take_stream(struct python *p, const struct jupyter_head *head)
{
    struct execution *x = p->cell.x;
    json_auto_t *content = NULL;
    struct error err = { 0 };
    struct jupyter_stream s;
    bool huge = head->content.len > JUPYTER_CONTENT_MAX;

    if (output_flooded(&x->out) || output_flooded(&x->err)) {
        output_drop(&x->out, head->content.len); /* it is being stopped; until then bytes are only counted */
        return;
    }
    if ((huge ? jupyter_read_stream_begin(head, (size_t)x->request.output_max, &content, &err)
              : jupyter_read_content(head, &content, &err)) < 0 ||
        !jupyter_read_stream(content, &s))
        return;
    execution_write(x, s.is_stderr ? FRAME_STDERR : FRAME_STDOUT, s.text.data, s.text.len);
    if (huge)
        output_drop(s.is_stderr ? &x->err : &x->out, head->content.len - s.text.len);
    if (output_flooded(&x->out) || output_flooded(&x->err))
        stop(p, END_OUTPUT_LIMIT);
}

static void take_error(struct python *p, json_t *content)
{
    struct execution *x = p->cell.x;
    struct jupyter_error e;
    json_t *line;
    size_t i;

    jupyter_read_error(content, &e);
    json_array_foreach(e.traceback, i, line)
    {
        execution_write(x, FRAME_STDERR, json_string_value(line), json_string_length(line));
        execution_write(x, FRAME_STDERR, "\n", 1);
    }
    if (json_array_size(e.traceback) == 0)
        execution_writef(x, FRAME_STDERR, "%s: %s\n", e.ename, e.evalue);
    p->cell.error_told = true;
    (void)execution_event(x, FRAME_ERROR,
                          json_pack("{s:o, s:o, s:o}", "ename", jsonx_str(e.ename), "evalue",
                                    jsonx_str(e.evalue), "traceback", e.traceback));
}

static void take_reply(struct python *p, json_t *content)
{
    struct execution_end *end = &p->cell.end;
    struct jupyter_reply reply;
    const char *text = NULL;

    jupyter_read_reply(content, &reply);
    if (reply.status == JUPYTER_ABORTED && p->cell.stopped_for == END_OK && p->cell.aborts++ < ABORTS_MAX) {
        p->cell.idle = false;
        send_request(p); /* an interrupt that came late hit this one; it has not run */
        return;
    }
    p->cell.replied = true;
    p->cell.leaving = reply.leaving;
    if (reply.status == JUPYTER_OK)
        return;
    *end = (struct execution_end){ .reason = END_ERROR, .code = 1 };
    if (strcmp(reply.ename, "SystemExit") == 0) {
        p->cell.error_told = true;
        end->code = jupyter_exit_code(reply.evalue, &text);
        end->reason = end->code == 0 ? END_OK : END_ERROR;
        if (text)
            execution_writef(p->cell.x, FRAME_STDERR, "%s\n", text);
    } else {
        (void)snprintf(p->cell.error, sizeof p->cell.error, "%s: %s", reply.ename, reply.evalue);
    }
}

static void take_content(struct python *p, enum kernel_channel channel, const struct jupyter_head *head)
{
    struct execution *x = p->cell.x;
    json_auto_t *content = NULL;
    struct error err = { 0 };

    if (head->type == JUPYTER_DISPLAY_DATA && x->displays >= DISPLAYS_MAX) {
        x->skipped_displays++;
        return;
    }
    if (jupyter_read_content(head, &content, &err) < 0) {
        log_debug("a message of the kernel was left out: %s", err.msg);
        content = json_object();
    }
    if (channel == KERNEL_SHELL) {
        if (head->type == JUPYTER_EXECUTE_REPLY)
            take_reply(p, content); /* even an unreadable one says that it is over */
    } else if (head->type == JUPYTER_STATUS) {
        p->cell.idle = p->cell.idle || jupyter_is_idle(content);
    } else if (head->type == JUPYTER_ERROR) {
        take_error(p, content);
    } else if (head->type == JUPYTER_EXECUTE_RESULT) {
        display_take(x, &p->names, FRAME_RESULT, content);
    } else if (head->type == JUPYTER_DISPLAY_DATA) {
        display_take(x, &p->names, FRAME_DISPLAY, content);
    }
}

void cell_take(struct python *p, enum kernel_channel channel, const struct jupyter_head *head)
{
    if (channel == KERNEL_IOPUB && head->type == JUPYTER_STREAM)
        take_stream(p, head);
    else if (head->type != JUPYTER_OTHER)
        take_content(p, channel, head);
    check_done(p);
}

void cell_take_stray(struct python *p, const struct jupyter_head *head)
{
    json_auto_t *content = NULL;
    struct error err = { 0 };
    struct jupyter_stream s;

    if (head->content.len > HELD_MAX || jupyter_read_content(head, &content, &err) < 0 ||
        !jupyter_read_stream(content, &s))
        return;
    if (p->cell.x)
        execution_write(p->cell.x, s.is_stderr ? FRAME_STDERR : FRAME_STDOUT, s.text.data, s.text.len);
    else
        IGNORE(buf_add(&p->held[s.is_stderr], s.text.data, s.text.len, &err)); /* full: the rest is lost */
}
