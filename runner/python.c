#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "common/fd.h"
#include "common/log.h"
#include "runner/cgroup.h"
#include "runner/environment.h"
#include "runner/python_internal.h"

#define BOOT_MS 30000
#define PROBE_MS 200
#define PROBES_DEAF 15 /* answers on shell without a word on iopub before iopub is believed anyway */
#define LEAVE_MS 2000
#define LAST_MESSAGES_MS 30 /* after the kernel's death, for what is still in its sockets */
#define MESSAGES_A_TURN 64
#define BYTES_A_TURN ((size_t)8 * 1024 * 1024)
#define CAREFUL_AFTER 2 /* failed boots */

/* How long to wait before the next boot, by how many have failed; past the last one it is given up. */
static const int64_t boot_pause_ms[] = { 0, 200, 500, 2000, 5000 };

static void boot(struct python *p);
static void pump(struct python *p);

void python_new_id(struct python *p, char out[JUPYTER_ID_SIZE])
{
    (void)snprintf(out, JUPYTER_ID_SIZE, "%s_%llu", p->session, (unsigned long long)++p->messages);
}

void python_pump_soon(struct python *p) { loop_arm_in(&p->context->loop, &p->pump, 0); }

const char *python_word(const struct python *p)
{
    switch (p->state) {
    case PYTHON_IDLE:
        return "idle";
    case PYTHON_BUSY:
        return "busy";
    case PYTHON_BOOTING:
    case PYTHON_LEAVING:
    case PYTHON_DYING:
        return "starting";
    case PYTHON_DOWN:
        return p->failed_boots < ARRAY_LEN(boot_pause_ms) ? "starting" : "dead";
    case PYTHON_NONE:
        break;
    }
    return "dead";
}

/* ---- boot ---- */

static int write_connection(const struct python *p, const char *path, struct error *err)
{
    const char *dir = p->context->config->kernel_dir;
    auto_free char *text = jupyter_connection(dir);

    for (int i = 1; i <= 5; i++) {
        auto_free char *stale = xasprintf("%s/k-%d", dir, i);
        (void)unlink(stale);
    }
    (void)unlink(path);
    auto_close int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return error_errno(err, errno, "create %s", path);
    return fd_write_all(fd, text, strlen(text), err);
}

static int spawn(struct python *p, const char *connection, struct error *err)
{
    const struct runner_config *config = p->context->config;
    CLEANUP(environment_done) struct environment env = { 0 };
    /* -P: no module of the workspace may stand in for the kernel's own; -I: none of the user's either. */
    const char *const argv[] = {
        config->kernel_program, p->careful ? "-I" : "-P", "-m", config->kernel_module, "-f", connection, NULL
    };
    int words[2];

    if (pipe2(words, O_CLOEXEC | O_NONBLOCK) < 0)
        return error_errno(err, errno, "pipe");
    environment_init(&env, config, NULL, NULL);
    if (p->careful) {
        auto_free char *profile = xasprintf("%s/ipython", config->kernel_dir);
        environment_set(&env, "IPYTHONDIR", profile);
    }
    struct child_spec spec = { .argv = argv,
                               .env = env.words,
                               .cwd = config->workspace,
                               .stdin_fd = -1,
                               .stdout_fd = -1,
                               .stderr_fd = words[1] };
    int rc = child_start(&p->context->children, &p->child, &spec, err);
    p->group = p->child.pid;
    (void)close(words[1]);
    p->words.fd = words[0];
    loop_watch(&p->context->loop, &p->words);
    return rc;
}

static void ask_info(struct python *p)
{
    struct jupyter_request q;
    struct error err = { 0 };

    python_new_id(p, p->info_id);
    jupyter_kernel_info(p->session, p->info_id, &q);
    if (kernel_send(p->kernel, &q, &err) < 0)
        log_warn("%s", err.msg);
    jupyter_request_done(&q);
    python_pump_soon(p);
}

static void on_probe(struct timer *t)
{
    struct python *p = container_of(t, struct python, probe);

    if (p->state != PYTHON_BOOTING)
        return;
    if (p->answered && !p->heard)
        ask_info(p); /* iopub connected late and missed what went with the answer */
    loop_arm_in(&p->context->loop, t, PROBE_MS);
}

static int start_kernel(struct python *p, struct error *err)
{
    auto_free char *connection = xasprintf("%s/connection.json", p->context->config->kernel_dir);

    if (write_connection(p, connection, err) < 0 || spawn(p, connection, err) < 0 ||
        kernel_open(p->context->config->kernel_dir, &p->kernel, err) < 0)
        return -1;
    for (size_t i = 0; i < KERNEL_CHANNELS; i++) {
        p->sockets[i].fd = kernel_fd(p->kernel, (enum kernel_channel)i);
        loop_watch(&p->context->loop, &p->sockets[i]);
    }
    return 0;
}

static void shut(struct python *p)
{
    for (size_t i = 0; i < KERNEL_CHANNELS; i++)
        loop_unwatch(&p->context->loop, &p->sockets[i]);
    loop_unwatch(&p->context->loop, &p->words);
    closep(&p->words.fd);
    p->words.fd = -1;
    kernel_close(p->kernel);
    p->kernel = NULL;
    loop_disarm(&p->context->loop, &p->pump);
    loop_disarm(&p->context->loop, &p->probe);
}

/* Cuts what the kernel said last down to its last line. */
static const char *last_line(struct python *p)
{
    char *text = p->last_words, *end = text + p->last_words_len;

    while (end > text && (end[-1] == '\n' || end[-1] == ' '))
        end--;
    *end = '\0';
    char *newline = memrchr(text, '\n', (size_t)(end - text));
    return newline ? newline + 1 : text;
}

static void give_up(struct python *p, const char *why)
{
    struct execution_end end = { .reason = END_NOT_STARTED, .code = 126 };

    (void)snprintf(end.message, sizeof end.message, "the Python kernel cannot be started: %.300s", why);
    log_error("%s", end.message);
    while (p->queue_len > 0)
        execution_end(p->queue[--p->queue_len], &end);
}

static void boot_failed(struct python *p, const char *why)
{
    p->state = PYTHON_DOWN;
    loop_disarm(&p->context->loop, &p->clock);
    /* One that hangs is not tried a second time: that would keep callers waiting for too long. */
    p->failed_boots = p->boot_hangs ? MAX(CAREFUL_AFTER, p->failed_boots + 1) : p->failed_boots + 1;
    (void)snprintf(p->why, sizeof p->why, "%s", why[0] ? why : "it did not answer");
    log_warn("the Python kernel did not start (%u): %s", p->failed_boots, p->why);
    if (p->failed_boots < ARRAY_LEN(boot_pause_ms))
        loop_arm_in(&p->context->loop, &p->clock, boot_pause_ms[p->failed_boots]);
    else
        give_up(p, p->why);
}

static void boot(struct python *p)
{
    struct error err = { 0 };

    p->careful = p->failed_boots >= CAREFUL_AFTER;
    p->answered = p->heard = p->used = p->loss_told = p->boot_hangs = false;
    p->last_words_len = 0;
    id_new(p->session);
    p->messages = 0;
    if (start_kernel(p, &err) < 0) {
        child_forget(&p->context->children, &p->child);
        shut(p);
        boot_failed(p, err.msg);
        return;
    }
    p->state = PYTHON_BOOTING;
    loop_arm_in(&p->context->loop, &p->clock, BOOT_MS);
    loop_arm_in(&p->context->loop, &p->probe, PROBE_MS);
    ask_info(p);
}

static void ready(struct python *p)
{
    p->state = PYTHON_IDLE;
    loop_disarm(&p->context->loop, &p->clock);
    loop_disarm(&p->context->loop, &p->probe);
    if (p->careful && !p->notice)
        p->notice = xasprintf(
            "Python was started without your own start-up files (usercustomize, .pth, IPython "
            "profile): with them it died while starting (%s)\n",
            p->why);
    python_next(p);
}

void python_next(struct python *p)
{
    if (p->state != PYTHON_IDLE || p->queue_len == 0)
        return;
    struct execution *x = p->queue[0];
    memmove(p->queue, p->queue + 1, --p->queue_len * sizeof(struct execution *));
    p->state = PYTHON_BUSY;
    cell_start(p, x);
}

/* ---- messages ---- */

static void take(struct python *p, enum kernel_channel channel, const struct jupyter_head *head)
{
    if (p->state == PYTHON_BOOTING && str_eq(head->parent, p->info_id)) {
        p->answered = p->answered || (channel == KERNEL_SHELL && head->type == JUPYTER_KERNEL_INFO_REPLY);
        p->heard = p->heard || channel == KERNEL_IOPUB || p->messages >= PROBES_DEAF;
        if (p->answered && p->heard)
            ready(p);
    } else if (p->cell.x && str_eq(head->parent, p->cell.msg_id)) {
        cell_take(p, channel, head);
    } else if (channel == KERNEL_IOPUB && head->type == JUPYTER_STREAM &&
               str_starts(head->parent, p->session)) {
        cell_take_stray(p, head);
    }
}

/* A bounded amount in a turn: a kernel that floods must not keep connections and limits from their turn. */
static void pump(struct python *p)
{
    struct jupyter_part parts[JUPYTER_PARTS_MAX];
    size_t count = 0, bytes = 0, sum = 0;
    bool more = false;

    for (size_t c = 0; c < KERNEL_CHANNELS && p->kernel; c++) {
        size_t n = 0;
        while (n < MESSAGES_A_TURN && sum < BYTES_A_TURN && p->kernel &&
               kernel_receive(p->kernel, (enum kernel_channel)c, parts, &count, &bytes)) {
            struct jupyter_head head;
            jupyter_read_head(parts, count, &head);
            take(p, (enum kernel_channel)c, &head);
            sum += bytes;
            n++;
        }
        more = more || n == MESSAGES_A_TURN || sum >= BYTES_A_TURN;
    }
    if (more && p->kernel)
        python_pump_soon(p);
}

static void on_pump(struct timer *t) { pump(container_of(t, struct python, pump)); }

static void on_shell(struct watch *w, short revents)
{
    (void)revents;
    pump(container_of(w, struct python, sockets[KERNEL_SHELL]));
}

static void on_iopub(struct watch *w, short revents)
{
    (void)revents;
    pump(container_of(w, struct python, sockets[KERNEL_IOPUB]));
}

/* Keeps the last of what the kernel's own stderr says. */
static void on_words(struct watch *w, short revents)
{
    struct python *p = container_of(w, struct python, words);
    char chunk[sizeof p->last_words / 2];
    ssize_t n = read(w->fd, chunk, sizeof chunk);

    (void)revents;
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        loop_unwatch(&p->context->loop, w);
        return;
    }
    size_t over = p->last_words_len + (size_t)n > sizeof p->last_words - 1
                      ? p->last_words_len + (size_t)n - (sizeof p->last_words - 1)
                      : 0;
    memmove(p->last_words, p->last_words + over, p->last_words_len - over);
    memcpy(p->last_words + p->last_words_len - over, chunk, (size_t)n);
    p->last_words_len += (size_t)n - over;
    p->last_words[p->last_words_len] = '\0';
}

/* ---- death ---- */

void python_leave(struct python *p)
{
    p->loss_told = true;
    if (p->state == PYTHON_DYING)
        return; /* it was quick */
    p->state = PYTHON_LEAVING;
    loop_arm_in(&p->context->loop, &p->clock, LEAVE_MS);
}

void python_signal(const struct python *p, int sig, bool group)
{
    if (p->child.pid > 0)
        (void)kill(group ? -p->child.pid : p->child.pid, sig);
}

static void on_exited(struct child *c, int status, const struct rusage *usage)
{
    struct python *p = container_of(c, struct python, child);

    (void)kill(-p->group, SIGKILL); /* the rest of its process group */
    p->status = status;
    p->dead_peak_bytes = usage->ru_maxrss * 1024;
    p->dead_cpu_ms = (int64_t)(usage->ru_utime.tv_sec + usage->ru_stime.tv_sec) * 1000 +
                     (usage->ru_utime.tv_usec + usage->ru_stime.tv_usec) / 1000;
    if (p->state == PYTHON_BOOTING) {
        on_words(&p->words, POLLIN); /* why, if it said so */
        shut(p);
        boot_failed(p, last_line(p));
        return;
    }
    p->state = PYTHON_DYING;
    loop_arm_in(&p->context->loop, &p->clock, LAST_MESSAGES_MS);
}

void python_describe_death(const struct python *p, bool oom, char *out, size_t size)
{
    int sig = WIFSIGNALED(p->status) ? WTERMSIG(p->status) : 0;
    char name[16];

    if (oom)
        (void)snprintf(out, size, "was killed: out of memory (the sandbox's limit is %llu MB)",
                       (unsigned long long)(cgroup_memory_limit(p->context->config->cgroup_dir) >> 20));
    else if (sig) {
        signal_name(sig, name);
        (void)snprintf(out, size, "was killed by %s (%s)", name, strsignal(sig));
    } else
        (void)snprintf(out, size, "exited with code %d", WEXITSTATUS(p->status));
}

static void conclude_death(struct python *p)
{
    char how[128];

    if (p->pump.active) { /* there is more to read; nobody adds to it */
        loop_arm_in(&p->context->loop, &p->clock, LAST_MESSAGES_MS);
        return;
    }
    if (p->cell.x) {
        cell_died(p);
    } else if (p->used && !p->loss_told) {
        python_describe_death(p, false, how, sizeof how);
        free(p->lost);
        p->lost = xasprintf("the Python kernel %s between two calls; its variables are gone", how);
    }
    shut(p);
    p->failed_boots = p->used ? 0 : p->failed_boots + 1; /* one that served is not wrong from the start */
    p->state = PYTHON_DOWN;
    loop_arm_in(&p->context->loop, &p->clock,
                boot_pause_ms[MIN(p->failed_boots, ARRAY_LEN(boot_pause_ms) - 1)]);
}

static void on_clock(struct timer *t)
{
    struct python *p = container_of(t, struct python, clock);

    switch (p->state) {
    case PYTHON_DOWN:
        boot(p);
        break;
    case PYTHON_BOOTING:
        p->boot_hangs = true;
        python_signal(p, SIGKILL, true);
        break;
    case PYTHON_LEAVING:
        python_signal(p, SIGKILL, true);
        break;
    case PYTHON_DYING:
        conclude_death(p);
        break;
    case PYTHON_NONE:
    case PYTHON_IDLE:
    case PYTHON_BUSY:
        break;
    }
}

/* ---- the outside ---- */

struct python *python_new(struct context *context)
{
    struct python *p = xcalloc(1, sizeof *p);

    p->context = context;
    p->child.exited = on_exited;
    p->sockets[KERNEL_SHELL] = (struct watch){ .fd = -1, .events = POLLIN, .ready = on_shell };
    p->sockets[KERNEL_IOPUB] = (struct watch){ .fd = -1, .events = POLLIN, .ready = on_iopub };
    p->words = (struct watch){ .fd = -1, .events = POLLIN, .ready = on_words };
    p->pump.fire = on_pump;
    p->clock.fire = on_clock;
    p->probe.fire = on_probe;
    buf_init(&p->held[0], HELD_MAX);
    buf_init(&p->held[1], HELD_MAX);
    cell_init(p);
    if (context->config->kernel)
        boot(p);
    return p;
}

void python_free(struct python *p)
{
    if (!p)
        return;
    python_signal(p, SIGKILL, true);
    child_forget(&p->context->children, &p->child);
    shut(p);
    loop_disarm(&p->context->loop, &p->clock);
    loop_disarm(&p->context->loop, &p->deadline);
    loop_disarm(&p->context->loop, &p->ladder);
    loop_disarm(&p->context->loop, &p->settle);
    buf_done(&p->held[0]);
    buf_done(&p->held[1]);
    free(p->lost);
    free(p->notice);
    free(p);
}

void python_run(struct python *p, struct execution *x)
{
    x->job = p;
    x->cancel = cell_cancel;
    p->queue[p->queue_len++] = x; /* as long as the table of executions */
    if (p->state == PYTHON_NONE) {
        give_up(p, "this sandbox has none");
        return;
    }
    if (p->state == PYTHON_DOWN && !p->clock.active)
        loop_arm_in(&p->context->loop, &p->clock, 0); /* given up; but perhaps the user has repaired it */
    python_next(p);
}
