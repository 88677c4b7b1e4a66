/* workspace_impl.h - what workspace.c, place.c and capture.c share. */
#pragma once

#include <stdatomic.h>

#include "orchestrator/files/known.h"
#include "orchestrator/files/workspace.h"

struct workspace {
    char session_id[ID_SIZE];
    uid_t uid;
    struct store *store; /* borrowed, as is db */
    struct db *db;
    struct workspace_limits limits;
    int data_fd, home_fd, run_fd;
    int place_fd; /* files on their way into data/: the same file system, but out of the sandbox's sight */
    struct known known;
    unsigned scan;       /* number of the last one */
    atomic_bool pending; /* rows of uploads may wait; also set by workspace_refresh() from any thread */
};

uid_t workspace_owner(const struct workspace *w); /* whom to give files to; -1: nobody, we are not root */

/* Saves the rows of these files, all or none. */
int workspace_save(struct workspace *w, struct known_file *const *files, size_t n,
                   struct error *err) MUST_CHECK;

/* Does the file hold the object it is known to be? Hashes it when the signature alone does not prove it. */
bool workspace_unchanged(const struct known_file *f, int fd, const struct stat *st);
