/* process_internal.h - the insides of an execution that is a process: process.c runs it, process_end.c
 * explains it. */
#pragma once

#include "runner/elide.h"
#include "runner/process.h"

enum process_phase { PROCESS_COMPILE, PROCESS_RUN };

struct process {
    struct execution *x;
    struct context *context;
    char build_dir[128];
    enum process_phase phase;
    struct child child;
    struct tree tree;
    struct watch in, out, err; /* fd -1: closed */
    size_t in_sent;
    struct elide elide; /* of stderr */
    struct timer deadline;
    struct timer again; /* the tree has not vanished yet, or there is more to read */
    int64_t give_up_ms; /* processes that even SIGKILL does not end are not waited for any longer */
    bool exited;
    int status;
    struct rusage usage;
    uint64_t oom_kills_before;
    enum end_reason killed_for; /* END_OK: not by us */
};

/* The END of a main process that has exited, or was killed by us. */
void process_explain(const struct process *p, struct execution_end *end);
