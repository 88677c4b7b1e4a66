/* known.h - what a session's workspace looked like when it was last seen: path, object and signature of each
 * file. */
#pragma once

#include <sys/stat.h>

#include "orchestrator/files/hash.h"
#include "orchestrator/files/store.h"

/*
 * Tells whether a file was touched since. ctime cannot be set by its owner and changes with every write, so a
 * signature taken well after the ctime it holds proves that nothing was written in between; one taken within
 * RACY_NS of it does not, because a write in the same tick of the kernel's clock would leave the same ctime.
 */
#define SIGNATURE_RACY_NS INT64_C(50000000)

struct signature {
    int64_t inode, size, mtime_ns, ctime_ns;
    int64_t taken_ns; /* wall time, read before the file was looked at */
};

int64_t signature_now(void);
struct signature signature_of(const struct stat *st, int64_t taken_ns);
bool signature_matches(const struct signature *s, const struct stat *st);
bool signature_racy(const struct signature *s);

enum known_state {                     /* values of workspace_files.state */
                   KNOWN_NOTHING = -1, /* no row */
                   KNOWN_PENDING = 0,  /* never in memory */
                   KNOWN_PRESENT = 1,
                   KNOWN_REMOVED = 2,
                   KNOWN_UNCAPTURED = 3,
};

struct known_file {
    char *path; /* owned */
    enum known_state state;
    char object_id[ID_SIZE]; /* PRESENT: what it is; REMOVED: what it was; UNCAPTURED: what it continues, or
                                "" */
    int64_t object_size;     /* of that object; with sha256 "" it does not exist any more */
    char sha256[HASH_HEX_SIZE];
    bool read_only;
    char ancestor[ID_SIZE]; /* a version that object_id is known to come from, so that it need not be asked
                               again */
    struct signature sig;
    unsigned seen; /* number of the last scan that met it */
};

struct known { /* a hash table of stable pointers; zero is empty */
    struct known_file **slots;
    size_t room, count;
};

void known_done(struct known *k);
struct known_file *known_find(const struct known *k, const char *path);
struct known_file *known_add(struct known *k, const char *path); /* finds, or makes one in state NOTHING */
/* Goes through all: *pos starts at 0; NULL ends. */
struct known_file *known_next(const struct known *k, size_t *pos);

int known_load(struct known *k, struct db *db, const char *session_id, struct error *err) MUST_CHECK;
/* Writes or removes the row, unless an upload has meanwhile made it pending for another object. */
int known_save(const struct known_file *f, struct db *db, const char *session_id,
               struct error *err) MUST_CHECK;

void known_set_object(struct known_file *f, enum known_state state, const struct object *o);
void known_forget_object(struct known_file *f); /* its object is not or no longer known */
