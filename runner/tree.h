/*
 * tree.h - every process of an execution, whatever it did to get away. A process is marked before it executes
 * with a hard limit that the kernel ignores since Linux 2.4 (RLIMIT_LOCKS): children inherit it, and without
 * privilege a hard limit can only be lowered, so that setsid, double forks and cleared environments change
 * nothing. Marks are given out falling: what lowered its own bears one that nobody has, and is ended as a
 * stray. Processes of the Python kernel are unmarked and never ended here; nothing marked can become
 * unmarked.
 */
#pragma once

#include <sys/resource.h>

#include "common/base.h"

#define TREE_MARK RLIMIT_LOCKS

struct tree { /* embedded in its owner */
    uint64_t mark;
    struct tree *next;
};

struct trees {
    struct tree *first;
    uint64_t base; /* all marks are below */
    uint64_t last;
    bool strays; /* alone in the pid namespace: processes with a mark nobody has are ended too */
};

void trees_init(struct trees *all, bool strays);
void tree_open(struct trees *all, struct tree *t); /* gives it a mark of its own */
void tree_close(struct trees *all, struct tree *t);
/*
 * Kills every process of the tree, stopping them all first so that none can fork away. Gives how many have
 * not vanished yet: call it again a little later until none is left.
 */
size_t tree_kill(struct trees *all, const struct tree *t);
