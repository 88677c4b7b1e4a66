/*
 * workspace.h - a session's live directory (/mnt/data) and HOME as the host sees them: placing files in it
 * before an execution, capturing what is new or changed after it. The sandbox can change everything in there
 * at any moment: nothing is opened through links, nothing blocks on a FIFO, and no path leaves the directory.
 */
#pragma once

#include "orchestrator/files/store.h"

struct workspace;

struct workspace_limits {
    int64_t max_file_bytes;     /* a larger file is skipped with a reason */
    int64_t max_captured_files; /* of one execution */
    int64_t max_files;          /* entries looked at in one scan */
    int64_t max_depth;
};

/*
 * box_dir: the session's box on disk; it has (or gets) data/, home/ and run/, mode 0700, owned by uid:uid
 * when we are root, and place/ for files on their way, ours. One workspace at a time may be open on a box.
 * When data/ had to be made, what stood there before is placed again from its objects.
 */
int workspace_open(const char *box_dir, const char *session_id, uint32_t uid, struct store *store,
                   struct db *db, const struct workspace_limits *limits, struct workspace **ret,
                   struct error *err) MUST_CHECK;
void workspace_close(struct workspace *w);
DEFINE_CLEANUP(struct workspace *, workspace_close)
/*
 * Gives every entry of data/, home/ and run/ to uid (no sandbox may run on it) and retakes the signatures; a
 * file that was renamed since its signature (a box moved into another) is hashed at the next capture. May
 * wait 50 ms. Does nothing when we are not root.
 */
int workspace_chown(struct workspace *w, uint32_t uid, struct error *err) MUST_CHECK;

struct workspace_ref { /* an input file of an execution; borrowed */
    const char *object_id;
    const char *name; /* checked by file_name_check() */
};

struct workspace_skip {
    char *name, *reason; /* owned */
};

struct workspace_changes { /* what an execution did to the files; owned */
    struct objects files;  /* new or changed, as new objects of this session, already linked to it */
    char **deleted;        /* names of known files that are gone */
    size_t deleted_count;
    struct workspace_skip *skipped; /* found but not captured, or not placed */
    size_t skipped_count;
};
void workspace_changes_done(struct workspace_changes *c);
void workspace_changes_skip(struct workspace_changes *c, const char *name, const char *fmt, ...)
    PRINTF_LIKE(3, 4);

/* place() and capture() of one session must not run at the same time; the session sees to it. */

/*
 * Places pending uploads of the session, then the given references. The last of several references to one
 * name wins. A reference is left alone when the file there is the same object or continues it (also when code
 * has changed the file since the last capture), or when session code removed a version of it; a pending
 * upload is placed in any case. One that cannot be placed is added to changes->skipped; only failures of the
 * database are errors. Files appear whole or not at all, mode 0644 (read-only ones 0444); directories are
 * made, 0755; both owned by the session's uid.
 */
int workspace_place(struct workspace *w, const struct workspace_ref *refs, size_t n,
                    struct workspace_changes *changes, struct error *err) MUST_CHECK;

/*
 * One scan of data/; adds to changes. Not looked at: names that begin with a dot, __pycache__, node_modules.
 * A read-only upload that was changed is never returned; it stays as the code left it. What cannot be a
 * result (links, FIFOs, names that a reference could not carry, files that are too large or too many) is
 * named once in skipped, and again only when it changes; a file that changes while it is read is named and
 * tried again at the next capture. One capture reads at most four times max_file_bytes. Only failures of the
 * database are errors.
 */
int workspace_capture(struct workspace *w, struct workspace_changes *changes, struct error *err) MUST_CHECK;

/* An upload to this session: to be placed at its next execution (also when no workspace is open: a row). */
int workspace_mark_pending(struct db *db, const char *session_id, const char *name, const char *object_id,
                           struct error *err) MUST_CHECK;
/* The object that the session has, had or awaits under that name, which an upload of the name continues: a
 * stale reference to it must not undo the upload. "" when there is none. */
int workspace_object_at(struct db *db, const char *session_id, const char *name, char ret[ID_SIZE],
                        struct error *err) MUST_CHECK;
/* Rows were changed from outside: read pending ones at the next place. From any thread. */
void workspace_refresh(struct workspace *w);
/* The box was or will be removed and no workspace is open on it: its files are placed again in the next one.
 */
int workspace_box_gone(struct db *db, const char *session_id, struct error *err) MUST_CHECK;

/* After store_delete(): removes the file if it is still that object, unchanged. */
int workspace_forget(struct workspace *w, const char *object_id, struct error *err) MUST_CHECK;
