/* runner.h - the whole runner: everything of the sandbox, put together in the order in which it comes and
 * goes. */
#pragma once

#include "runner/serve.h"

struct runner {
    struct context context;
    struct executions executions;
    struct python *python;
    struct server server;
    struct watch signals;
    bool stopping; /* asked to, from outside the sandbox, or abandoned */
};

/* Starts serving. The clock is for tests; NULL: the real one. The configuration is borrowed. */
int runner_init(struct runner *r, const struct runner_config *config, int64_t (*now_ms)(void),
                struct error *err) MUST_CHECK;
void runner_turn(struct runner *r, int max_wait_ms); /* -1: until something happens */
void runner_done(struct runner *r);                  /* also of one whose init failed */
