/* store.h - what an object store can do: keep immutable files under ids. store_disk.c is the embedded one. */
#pragma once

#include "common/id.h"
#include "orchestrator/db/db.h"

struct store;

struct object { /* metadata; strings owned, freed by object_done() */
    char id[ID_SIZE];
    char session_id[ID_SIZE]; /* its storage session */
    char *name;               /* path below the workspace: "sub/x.png" */
    int64_t size;
    char sha256[65];
    char *content_type;
    bool read_only;
    bool uploaded;
    char modified_from[ID_SIZE];         /* "" when it continues nothing */
    char modified_from_session[ID_SIZE]; /* that one's storage session; "" as well */
    bool superseded;
    int64_t created_ms, last_used_ms;
};
void object_done(struct object *o);
void object_copy(const struct object *from, struct object *ret); /* with strings of its own */
#define auto_object CLEANUP(object_done)

struct objects {
    struct object *items;
    size_t count;
};
void objects_done(struct objects *o);
void objects_add(struct objects *list,
                 struct object *take); /* takes the strings; *take is empty afterwards */

/*
 * Opens the store below dir, removing what a crash left: temporary files, bytes without a row, rows without
 * bytes. ERR_UNAVAILABLE: database and directory do not belong together (a disk not mounted, a wrong
 * setting); nothing is removed then.
 */
int store_open(const char *dir, struct db *db, struct store **ret, struct error *err) MUST_CHECK;
void store_close(struct store *s);

/*
 * A new object on its way: bytes go to a temporary file of the store and are hashed as they come. Free
 * without commit removes them. A full disk and more than max_bytes are ERR_LIMIT. All of it blocks on the
 * disk.
 */
struct store_writer;
int store_writer_new(struct store *s, int64_t max_bytes, struct store_writer **ret,
                     struct error *err) MUST_CHECK;
int store_writer_write(struct store_writer *w, const void *data, size_t len, struct error *err) MUST_CHECK;
/* What fd has from its current offset to its end. Starts the write-out, so that sealing many waits for the
 * disk once. */
int store_writer_copy(struct store_writer *w, int from_fd, struct error *err) MUST_CHECK;
int64_t store_writer_size(const struct store_writer *w);
/* fsync, rename, fsync of the directory: bytes are durable, hash and size known; the row is still to come. */
int store_writer_seal(struct store_writer *w, struct error *err) MUST_CHECK;
int store_writer_seal_all(struct store_writer *const *writers, size_t n, struct error *err) MUST_CHECK;
const char *store_writer_sha256(const struct store_writer *w); /* after seal */
/*
 * Seals if that was not done, then writes the row. meta: session_id, name, content_type, read_only, uploaded,
 * modified_from are read; ret gets all. modified_from's row becomes superseded when it lies in the same
 * session under the same name and was no upload: those a client must find again until they expire.
 * ERR_NOT_FOUND: no such session. May run inside db_transaction(); if that is then rolled back, call
 * store_writer_uncommit() before free.
 */
int store_writer_commit(struct store_writer *w, const struct object *meta, struct object *ret,
                        struct error *err) MUST_CHECK;
void store_writer_uncommit(struct store_writer *w);
void store_writer_free(struct store_writer *w);
DEFINE_CLEANUP(struct store_writer *, store_writer_free)

/* Metadata by id; ERR_NOT_FOUND. Whether the caller may see it is decided above. */
int store_find(struct store *s, const char *id, struct object *ret, struct error *err) MUST_CHECK;
/* The same, but only if the object is stored in that session or was returned by an execution of it. */
int store_find_in(struct store *s, const char *session_id, const char *id, struct object *ret,
                  struct error *err) MUST_CHECK;
/* All objects of a storage session, oldest first, without superseded ones. */
int store_list(struct store *s, const char *session_id, struct objects *ret, struct error *err) MUST_CHECK;
int store_open_object(struct store *s, const char *id, int *ret_fd,
                      struct error *err) MUST_CHECK; /* read-only fd */
/* Row, then bytes. What was made from it continues what it was made from; tombstones of it in workspaces go.
 */
int store_delete(struct store *s, const char *id, struct error *err) MUST_CHECK;
/* Records a use, for retention; written at most once an hour per object. An unknown id is no error. */
int store_touch(struct store *s, const char *id, struct error *err) MUST_CHECK;
/* The same for all files of a storage session at once. */
int store_touch_session(struct store *s, const char *session_id, struct error *err) MUST_CHECK;
/* Records that an execution of session_id returned the object. */
int store_link(struct store *s, const char *session_id, const char *object_id, struct error *err) MUST_CHECK;
/* True when `id` is `of` or one of the versions `of` was made from. */
int store_is_ancestor(struct store *s, const char *id, const char *of, bool *ret,
                      struct error *err) MUST_CHECK;

#define FILE_NAME_MAX 1024
#define FILE_SEGMENT_MAX 255
#define FILE_SEGMENTS_MAX 32

/*
 * Checks and normalises a client's file name to a path below the workspace: "data.csv", "/mnt/data/a/b.csv"
 * and "mnt/data/a" are fine, as is every character but NUL and backslash. ERR_INVALID: bytes that are not
 * UTF-8, an absolute path elsewhere, empty parts, "." and "..", and what passes the limits above. A
 * normalised name stays itself.
 */
int file_name_check(const char *name, char **ret, struct error *err) MUST_CHECK;
