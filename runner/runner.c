#include "runner/runner.h"

#include <errno.h>
#include <signal.h>
#include <sys/signalfd.h>

#include "common/clock.h"
#include "common/log.h"

static void on_signal(struct watch *w, short revents)
{
    struct runner *r = container_of(w, struct runner, signals);
    struct signalfd_siginfo info;

    (void)revents;
    while (read(w->fd, &info, sizeof info) == (ssize_t)sizeof info) {
        if (info.ssi_signo == SIGCHLD)
            continue; /* several may have become one: whoever has ended is reaped below */
        /* Programs of the sandbox run under the same uid; whoever is outside its pid namespace has no pid
         * here. */
        if (info.ssi_pid == 0 || r->context.config->any_peer)
            r->stopping = true;
    }
    children_reap(&r->context.children);
}

static int watch_signals(struct runner *r, struct error *err)
{
    sigset_t set;

    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGCHLD);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGINT);
    /* Blocked, they reach the descriptor even in a PID 1, for which the kernel drops unhandled signals. */
    if (sigprocmask(SIG_BLOCK, &set, NULL) < 0 || signal(SIGPIPE, SIG_IGN) == SIG_ERR ||
        signal(SIGXFSZ, SIG_IGN) == SIG_ERR)
        return error_errno(err, errno, "signals");
    r->signals.fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    if (r->signals.fd < 0)
        return error_errno(err, errno, "signalfd");
    loop_watch(&r->context.loop, &r->signals);
    return 0;
}

static void on_abandoned(struct server *s)
{
    log_info("nobody has been connected for %lld s", (long long)s->context->config->orphan_s);
    container_of(s, struct runner, server)->stopping = true;
}

int runner_init(struct runner *r, const struct runner_config *config, int64_t (*now_ms)(void),
                struct error *err)
{
    *r = (struct runner){ .context.config = config,
                          .signals = { .fd = -1, .events = POLLIN, .ready = on_signal },
                          .server.listening.fd = -1,
                          .server.context = &r->context };
    loop_init(&r->context.loop, now_ms ? now_ms : clock_mono_ms);
    trees_init(&r->context.trees, getpid() == 1);
    executions_init(&r->executions, &r->context);
    if (watch_signals(r, err) < 0)
        return -1;
    r->python = python_new(&r->context);
    return server_init(&r->server, &r->context, &r->executions, r->python, on_abandoned, err);
}

void runner_turn(struct runner *r, int max_wait_ms)
{
    loop_turn(&r->context.loop, max_wait_ms);
    server_flush(&r->server);
}

/* Ends what still runs, so that no execution is left when the table goes. */
static void end_all(struct runner *r)
{
    for (struct execution *x = r->executions.newest; x; x = x->next)
        execution_cancel(x);
    for (int i = 0; i < 100; i++) {
        bool running = false;
        for (struct execution *x = r->executions.newest; x; x = x->next)
            running = running || x->state != EXECUTION_ENDED;
        if (!running)
            return;
        loop_turn(&r->context.loop, 10);
    }
}

void runner_done(struct runner *r)
{
    server_done(&r->server);
    end_all(r);
    python_free(r->python);
    executions_done(&r->executions);
    loop_unwatch(&r->context.loop, &r->signals);
    closep(&r->signals.fd);
    loop_done(&r->context.loop);
}
