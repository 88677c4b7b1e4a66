#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "runner/cgroup.h"
#include "runner/process_internal.h"

#define MIB ((int64_t)1024 * 1024)

#define SAY(end, ...) ((void)snprintf((end)->message, sizeof(end)->message, __VA_ARGS__))

static int64_t cpu_ms(const struct rusage *u)
{
    return (int64_t)(u->ru_utime.tv_sec + u->ru_stime.tv_sec) * 1000 +
           (u->ru_utime.tv_usec + u->ru_stime.tv_usec) / 1000;
}

static void explain_ours(const struct process *p, struct execution_end *end)
{
    const struct run_request *q = &p->x->request;

    end->reason = p->killed_for;
    if (p->killed_for == END_TIMEOUT) {
        end->code = 124;
        if (p->phase == PROCESS_RUN)
            execution_say_timeout(end, q->timeout_ms);
        else
            SAY(end, "compiling was stopped after %g s: the time limit for compilers",
                (double)q->compile_timeout_ms / 1000);
    } else if (p->killed_for == END_OUTPUT_LIMIT) {
        end->code = 137;
        SAY(end, "stopped: it wrote more than %d times the %" PRId64 " kB that are kept of a stream",
            OUTPUT_FLOOD_FACTOR, q->output_max / 1024);
    } else {
        end->code = 130;
        SAY(end, "cancelled");
    }
}

static void explain_oom(const struct process *p, struct execution_end *end)
{
    uint64_t limit = cgroup_memory_limit(p->context->config->cgroup_dir);

    end->reason = END_OOM;
    end->code = 137;
    end->signal = SIGKILL;
    if (limit > 0)
        SAY(end, "killed: out of memory (the sandbox's limit is %" PRIu64 " MB)", limit / (uint64_t)MIB);
    else
        SAY(end, "killed: out of memory");
}

static void say_file_limit(const struct process *p, struct execution_end *end)
{
    const int64_t limit = p->x->request.file_max;

    if (limit > 0)
        SAY(end, "ended by SIGXFSZ: a file grew past the limit of %" PRId64 " MB", limit / MIB);
    else
        SAY(end, "ended by SIGXFSZ: a file grew past the sandbox's limit");
}

static void explain_signal(const struct process *p, struct execution_end *end, int sig)
{
    const struct run_request *q = &p->x->request;
    char name[16];

    signal_name(sig, name);
    end->reason = END_SIGNAL;
    end->code = 128 + sig;
    end->signal = sig;
    if (sig == SIGXCPU && q->cpu_max_s > 0) {
        end->reason = END_TIMEOUT;
        end->code = 124;
        end->signal = 0;
        SAY(end, "stopped: it used %" PRId64 " s of CPU time, the limit", q->cpu_max_s);
    } else if (sig == SIGXFSZ) {
        say_file_limit(p, end);
    } else {
        SAY(end, "ended by %s (%s)", name, strsignal(sig));
    }
}

/* A CPU limit that SIGXCPU could not enforce, because it was ignored, ends in SIGKILL. */
static bool used_up_cpu(const struct process *p, int sig)
{
    const int64_t limit = p->x->request.cpu_max_s;

    return sig == SIGKILL && limit > 0 && cpu_ms(&p->usage) >= limit * 1000;
}

void process_explain(const struct process *p, struct execution_end *end)
{
    bool oom = cgroup_oom_kills(p->context->config->cgroup_dir) > p->oom_kills_before;
    int sig = WIFSIGNALED(p->status) ? WTERMSIG(p->status) : 0;
    int code = WIFEXITED(p->status) ? WEXITSTATUS(p->status) : 0;

    *end = (struct execution_end){ .cpu_ms = cpu_ms(&p->usage), .memory_bytes = p->usage.ru_maxrss * 1024 };
    if (p->killed_for != END_OK) {
        explain_ours(p, end);
    } else if (oom && (sig == SIGKILL || code == 128 + SIGKILL)) {
        explain_oom(p, end); /* 137: a shell says so of its child */
    } else if (sig != 0) {
        explain_signal(p, end, used_up_cpu(p, sig) ? SIGXCPU : sig);
    } else if (code != 0) {
        end->reason = END_ERROR;
        end->code = code;
        if (oom)
            SAY(end, "a process of the sandbox was killed meanwhile: out of memory");
        else if (code == 128 + SIGXFSZ) /* a shell says so of its child */
            say_file_limit(p, end);
    }
    if (p->phase == PROCESS_COMPILE && (end->reason == END_ERROR || end->reason == END_SIGNAL))
        end->reason = END_COMPILE;
}
