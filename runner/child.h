/* child.h - the runner's child processes: started with nothing of the runner's own, reaped whoever they are.
 */
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include "common/error.h"

struct child { /* embedded in its owner; pid 0 while it has no process */
    pid_t pid;
    void (*exited)(struct child *c, int status, const struct rusage *usage); /* pid is 0 again by then */
    struct child *next;
};

struct children {
    struct child *first;
};

struct child_limits { /* 0: as the container has it */
    int64_t file_max;
    int64_t memory_max;
    int64_t cpu_max_s;
};

struct child_spec {
    const char *const *argv; /* argv[0] is looked for in PATH */
    const char *const *env;
    const char *cwd;
    int stdin_fd, stdout_fd, stderr_fd; /* borrowed; -1: /dev/null */
    struct child_limits limits;
    uint64_t mark; /* see tree.h; 0: none */
};

/*
 * Starts a process in a session of its own and enters it in the table. A program that is not there is
 * ERR_NOT_FOUND; one that cannot be executed says so on its stderr and exits with 126.
 */
int child_start(struct children *all, struct child *c, const struct child_spec *spec,
                struct error *err) MUST_CHECK;
/* The owner goes: the process is still reaped, nobody is told. */
void child_forget(struct children *all, struct child *c);
/* Reaps everything that has ended, orphans included. */
void children_reap(struct children *all);
