/* context.h - what everything that runs in the sandbox shares: one of each in a runner. */
#pragma once

#include "runner/child.h"
#include "runner/config.h"
#include "runner/loop.h"
#include "runner/tree.h"

struct context {
    const struct runner_config *config;
    struct loop loop;
    struct children children;
    struct trees trees;
};
