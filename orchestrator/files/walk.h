/* walk.h - going through a hostile directory tree: iterative, bounded, without following links. */
#pragma once

#include <sys/stat.h>

#include "common/base.h"

struct walk_entry {        /* borrowed */
    const char *path;      /* below the root; any bytes */
    const char *name;      /* its last part */
    int dir_fd;            /* the directory that holds it */
    const struct stat *st; /* of a link: the link's own */
};

struct walk {
    int root_fd;
    int64_t max_entries, max_depth;
    bool (*wanted)(const char *name);                       /* NULL: every name; others are only counted */
    bool (*entry)(void *state, const struct walk_entry *e); /* true enters a directory */
    void (*trouble)(void *state, const char *path, const char *reason); /* what could not be looked into */
    void *state;
};

/* Gives false when max_entries ended it early. Entries that come and go meanwhile may be missed. Blocks. */
bool walk_tree(const struct walk *w);
