/*
 * python.h - the session's Python kernel: started with the runner and again whenever it is gone, and the
 * queue of executions that run in it, one after the other. Its process group ends with it; what its cells
 * started in sessions of their own lives on.
 */
#pragma once

#include "runner/execution.h"

struct python;

struct python *python_new(struct context *context); /* starts the kernel, unless the configuration says no */
void python_free(struct python *p);                 /* kills it; no execution may be left on it */
/* Queues an execution. Whatever fails becomes its END. */
void python_run(struct python *p, struct execution *x);
const char *python_word(const struct python *p); /* "starting" "idle" "busy" "dead", as in HELLO */
