#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "common/fd.h"
#include "runner/cgroup.h"
#include "runner/environment.h"
#include "runner/process_internal.h"

#define READ_SIZE ((size_t)64 * 1024)
#define READS_A_TURN 8
#define AGAIN_MS 2
#define GIVE_UP_MS 2000

static void start_step(struct process *p, enum process_phase phase);

/* ---- the build directory ---- */

static int make_build_dir(struct process *p, struct error *err)
{
    int n = snprintf(p->build_dir, sizeof p->build_dir, "%s/run-XXXXXX", p->context->config->tmp_dir);

    if (n < 0 || (size_t)n >= sizeof p->build_dir || !mkdtemp(p->build_dir)) {
        int saved = errno;
        p->build_dir[0] = '\0';
        return error_errno(err, saved, "make a build directory in %s", p->context->config->tmp_dir);
    }
    return 0;
}

static int write_source(struct process *p, struct error *err)
{
    const struct run_request *q = &p->x->request;
    auto_free char *path = xasprintf("%s/%s", p->build_dir, q->language->source);
    auto_close int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);

    if (fd < 0)
        return error_errno(err, errno, "create %s", q->language->source);
    if (fd_write_all(fd, q->code.data, q->code.len, err) < 0)
        return error_wrap(err, "write %s", q->language->source);
    return 0;
}

static int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    (void)st;
    (void)kind;
    (void)ftw;
    (void)remove(path); /* what stays makes its directory stay; the sandbox's tmpfs is bounded */
    return 0;
}

static void remove_build_dir(struct process *p)
{
    if (p->build_dir[0])
        (void)nftw(p->build_dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

/* ---- the end ---- */

static void shut(struct process *p, struct watch *w)
{
    if (w->fd < 0)
        return;
    loop_unwatch(&p->context->loop, w);
    (void)close(w->fd);
    w->fd = -1;
}

static void shut_all(struct process *p)
{
    shut(p, &p->in);
    shut(p, &p->out);
    shut(p, &p->err);
}

static void finish(struct process *p, const struct execution_end *end)
{
    struct execution *x = p->x;

    shut_all(p);
    loop_disarm(&p->context->loop, &p->deadline);
    loop_disarm(&p->context->loop, &p->again);
    child_forget(&p->context->children, &p->child);
    tree_close(&p->context->trees, &p->tree);
    remove_build_dir(p);
    free(p);
    execution_end(x, end);
}

static void not_started(struct process *p, const struct error *why)
{
    struct execution_end end = { .reason = END_NOT_STARTED, .code = why->kind == ERR_NOT_FOUND ? 127 : 126 };

    (void)snprintf(end.message, sizeof end.message, "the program could not be started: %s", why->msg);
    finish(p, &end);
}

static void kill_for(struct process *p, enum end_reason reason)
{
    if (p->exited)
        return; /* it ended by itself; its tree is already going */
    if (p->killed_for == END_OK)
        p->killed_for = reason;
    if (p->child.pid > 0) {
        /* Itself first: just after fork(2) it has neither its group nor its mark, and it forks nothing
         * before. */
        (void)kill(p->child.pid, SIGKILL);
        (void)kill(-p->child.pid, SIGKILL); /* the group at once: most trees are no more than that */
    }
    (void)tree_kill(&p->context->trees, &p->tree);
}

/* ---- output ---- */

static void take_output(struct process *p, const struct watch *w, const char *data, size_t len)
{
    struct execution *x = p->x;
    struct error err = { 0 };

    if (w == &p->err) {
        auto_buf struct buf text = { .max = len + sizeof p->elide.needle };
        if (elide_add(&p->elide, data, len, &text, &err) == 0)
            execution_write(x, FRAME_STDERR, text.data, text.len);
    } else {
        execution_write(x, p->phase == PROCESS_COMPILE ? FRAME_STDERR : FRAME_STDOUT, data, len);
    }
    if (output_flooded(&x->out) || output_flooded(&x->err))
        kill_for(p, END_OUTPUT_LIMIT);
}

/* Gives true when there may be more: a stream that never pauses must not keep others waiting. */
static bool drain(struct process *p, struct watch *w)
{
    static char chunk[READ_SIZE];

    for (int i = 0; i < READS_A_TURN && w->fd >= 0; i++) {
        ssize_t n = read(w->fd, chunk, sizeof chunk);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return errno == EINTR;
        if (n <= 0) {
            shut(p, w);
            return false;
        }
        take_output(p, w, chunk, (size_t)n);
    }
    return w->fd >= 0;
}

static void step_over(struct process *p)
{
    struct execution_end end = { 0 };
    struct error err = { 0 };
    auto_buf struct buf held = { .max = sizeof p->elide.needle };

    if (elide_finish(&p->elide, &held, &err) == 0)
        execution_write(p->x, FRAME_STDERR, held.data, held.len);
    process_explain(p, &end);
    if (p->phase == PROCESS_COMPILE && end.reason == END_OK)
        start_step(p, PROCESS_RUN);
    else
        finish(p, &end);
}

/* When the main process has ended: the rest of the tree goes too, then what the pipes still hold is read. */
static void try_step_over(struct process *p)
{
    struct loop *loop = &p->context->loop;

    if (!p->exited)
        return;
    bool alive = tree_kill(&p->context->trees, &p->tree) > 0;
    bool more = drain(p, &p->out);
    more = drain(p, &p->err) || more;
    /* Pipes that somebody outside the tree holds (the Python kernel can) never end: empty is enough. */
    if ((alive || more) && loop->now_ms() < p->give_up_ms)
        loop_arm_in(loop, &p->again, alive ? AGAIN_MS : 0);
    else
        step_over(p);
}

static void on_again(struct timer *t) { try_step_over(container_of(t, struct process, again)); }

static void on_exited(struct child *c, int status, const struct rusage *usage)
{
    struct process *p = container_of(c, struct process, child);

    p->exited = true;
    p->status = status;
    p->usage = *usage;
    p->give_up_ms = p->context->loop.now_ms() + GIVE_UP_MS;
    loop_disarm(&p->context->loop, &p->deadline);
    shut(p, &p->in);
    try_step_over(p);
}

static void on_output(struct watch *w, short revents)
{
    (void)revents;
    (void)drain(container_of(w, struct process, out), w);
}

static void on_errors(struct watch *w, short revents)
{
    (void)revents;
    (void)drain(container_of(w, struct process, err), w);
}

static void on_input(struct watch *w, short revents)
{
    struct process *p = container_of(w, struct process, in);
    const struct jsonx_span *input = &p->x->request.input;

    (void)revents;
    while (p->in_sent < input->len) {
        ssize_t n = write(w->fd, input->data + p->in_sent, input->len - p->in_sent);
        if (n < 0 && errno == EAGAIN)
            return;
        if (n < 0 && errno != EINTR)
            break; /* it does not want to read on */
        p->in_sent += n > 0 ? (size_t)n : 0;
    }
    shut(p, w);
}

static void on_deadline(struct timer *t) { kill_for(container_of(t, struct process, deadline), END_TIMEOUT); }

static void on_cancel(struct execution *x) { kill_for(x->job, END_CANCELLED); }

/* ---- a step ---- */

struct step_pipes { /* the program's ends; closed when it has been started */
    int in, out, err;
};

static void step_pipes_done(struct step_pipes *s)
{
    closep(&s->in);
    closep(&s->out);
    closep(&s->err);
}

static int open_pipe(int *ours, int *theirs, bool we_read, struct error *err)
{
    int ends[2];

    if (pipe2(ends, O_CLOEXEC) < 0)
        return error_errno(err, errno, "pipe");
    *ours = ends[we_read ? 0 : 1];
    *theirs = ends[we_read ? 1 : 0];
    return fd_set_nonblocking(*ours, err);
}

static int open_pipes(struct process *p, enum process_phase phase, struct step_pipes *s, struct error *err)
{
    if (phase == PROCESS_RUN && p->x->request.input.data && open_pipe(&p->in.fd, &s->in, false, err) < 0)
        return -1;
    if (open_pipe(&p->out.fd, &s->out, true, err) < 0)
        return -1;
    return open_pipe(&p->err.fd, &s->err, true, err);
}

struct command {
    const char **argv;
    char *made[LANGUAGE_MAX_WORDS]; /* the words that had to be put together */
    size_t made_count;
};

static void command_done(struct command *c)
{
    for (size_t i = 0; i < c->made_count; i++)
        free(c->made[i]);
    free(c->argv);
}

static void command_init(struct command *c, const struct process *p, enum process_phase phase)
{
    const struct run_request *q = &p->x->request;
    const char *const *words = phase == PROCESS_COMPILE ? q->language->compile : q->language->run;
    auto_free char *source = xasprintf("%s/%s", p->build_dir, q->language->source);
    size_t n = 0, i;
    json_t *arg;

    *c = (struct command){ .argv = xcalloc(LANGUAGE_MAX_WORDS + 3 + json_array_size(q->args),
                                           sizeof *c->argv) };
    for (; c->made_count < LANGUAGE_MAX_WORDS && words[c->made_count]; c->made_count++) {
        c->argv[n++] = c->made[c->made_count] = environment_expand(words[c->made_count], source,
                                                                   p->build_dir);
        if (n == 1 && q->bash_strict && str_eq(q->language->name, "bash")) {
            c->argv[n++] = "-euo"; /* as options of bash, so that the script keeps its line numbers */
            c->argv[n++] = "pipefail";
        }
    }
    if (phase == PROCESS_COMPILE)
        return;
    json_array_foreach(q->args, i, arg) { c->argv[n++] = json_string_value(arg); }
}

static int spawn(struct process *p, enum process_phase phase, const struct step_pipes *s, struct error *err)
{
    const struct run_request *q = &p->x->request;
    CLEANUP(command_done) struct command command;
    CLEANUP(environment_done) struct environment env;

    command_init(&command, p, phase);
    environment_init(&env, p->context->config, q->language, p->build_dir);
    if (phase == PROCESS_COMPILE) /* what a compiler that is killed leaves behind goes with the directory */
        environment_set(&env, "TMPDIR", p->build_dir);
    struct child_spec spec = {
        .argv = command.argv,
        .env = env.words,
        .cwd = p->context->config->workspace,
        .stdin_fd = s->in,
        .stdout_fd = s->out,
        .stderr_fd = s->err,
        .limits = { q->file_max, q->memory_max, q->cpu_max_s },
        .mark = p->tree.mark,
    };
    return child_start(&p->context->children, &p->child, &spec, err);
}

static void start_step(struct process *p, enum process_phase phase)
{
    CLEANUP(step_pipes_done) struct step_pipes s = { -1, -1, -1 };
    struct loop *loop = &p->context->loop;
    const struct run_request *q = &p->x->request;
    struct error err = { 0 };

    shut_all(p);
    p->phase = phase;
    p->exited = false;
    p->oom_kills_before = cgroup_oom_kills(p->context->config->cgroup_dir);
    if (open_pipes(p, phase, &s, &err) < 0 || spawn(p, phase, &s, &err) < 0) {
        not_started(p, &err);
        return;
    }
    if (p->in.fd >= 0)
        loop_watch(loop, &p->in);
    loop_watch(loop, &p->out);
    loop_watch(loop, &p->err);
    loop_arm_in(loop, &p->deadline, phase == PROCESS_COMPILE ? q->compile_timeout_ms : q->timeout_ms);
}

void process_run(struct execution *x)
{
    struct process *p = xcalloc(1, sizeof *p);
    struct error err = { 0 };

    *p = (struct process){
        .x = x,
        .context = x->table->context,
        .child.exited = on_exited,
        .in = { .fd = -1, .events = POLLOUT, .ready = on_input },
        .out = { .fd = -1, .events = POLLIN, .ready = on_output },
        .err = { .fd = -1, .events = POLLIN, .ready = on_errors },
        .deadline.fire = on_deadline,
        .again.fire = on_again,
    };
    x->job = p;
    x->cancel = on_cancel;
    execution_start(x, NULL);
    tree_open(&p->context->trees, &p->tree);
    if (make_build_dir(p, &err) < 0 || write_source(p, &err) < 0) {
        not_started(p, &err);
        return;
    }
    auto_free char *prefix = xasprintf("%s/", p->build_dir);
    elide_init(&p->elide, prefix);
    start_step(p, x->request.language->compile[0] ? PROCESS_COMPILE : PROCESS_RUN);
}
