/* capture_impl.h - what the two halves of a capture share: scan.c finds, capture.c reads bytes and writes
 * rows. */
#pragma once

#include "orchestrator/files/workspace_impl.h"

#define CAPTURE_REASON_SIZE 512

struct update { /* what a capture is about to change, in memory and in the rows */
    struct known_file *file;
    struct known_file next;      /* path borrowed from file */
    struct store_writer *writer; /* with the bytes of a new object, or NULL */
    struct object object;        /* it, once committed */
    bool save;                   /* false: only the signature is fresher, which a row can do without */
};

struct candidate { /* a regular file that the signature does not vouch for */
    struct known_file *file;
    struct stat st; /* as the scan saw it */
};

struct capture {
    struct workspace *w;
    struct workspace_changes *changes;
    struct candidate *candidates;
    size_t candidate_count, candidate_room;
    struct update *updates;
    size_t update_count, update_room;
    size_t sealed;  /* updates whose writers are sealed */
    int64_t files;  /* new or changed ones so far */
    int64_t bytes;  /* of them */
    size_t skipped; /* of this capture */
};

/* Goes through data/ and the known files: fills candidates, and updates for what is gone or can be no result.
 */
void capture_scan(struct capture *c);

/* What becomes of one file; next is a copy of it with the given signature. Borrowed until the next call. */
struct update *capture_update(struct capture *c, struct known_file *f, const struct signature *sig);
/* Tells the caller, without remembering: it will be tried again. */
void capture_skip(struct capture *c, const char *path, const char *reason);
/* Something is there that is no result: told once. st is NULL when it could not even be examined. */
void capture_refuse(struct capture *c, struct known_file *f, const struct stat *st, const char *reason);
void capture_report_skipped(struct capture *c); /* how many were not named */
/* NULL when the size is fine, else the reason, written to out. */
const char *capture_size_reason(const struct capture *c, int64_t size, char *out, size_t out_size);
