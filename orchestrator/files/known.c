#include "orchestrator/files/known.h"

#include <string.h>
#include <time.h>

#define NS_PER_S INT64_C(1000000000)

/* ---- signatures ---- */

static int64_t to_ns(struct timespec t) { return t.tv_sec * NS_PER_S + t.tv_nsec; }

int64_t signature_now(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_REALTIME, &t);
    return to_ns(t);
}

struct signature signature_of(const struct stat *st, int64_t taken_ns)
{
    return (struct signature){
        .inode = (int64_t)st->st_ino,
        .size = st->st_size,
        .mtime_ns = to_ns(st->st_mtim),
        .ctime_ns = to_ns(st->st_ctim),
        .taken_ns = taken_ns,
    };
}

bool signature_matches(const struct signature *s, const struct stat *st)
{
    return s->inode == (int64_t)st->st_ino && s->size == st->st_size && s->mtime_ns == to_ns(st->st_mtim) &&
           s->ctime_ns == to_ns(st->st_ctim);
}

bool signature_racy(const struct signature *s) { return s->taken_ns - s->ctime_ns < SIGNATURE_RACY_NS; }

/* ---- the table: open addressing, at most two thirds full ---- */

static size_t hash(const char *s)
{
    uint64_t h = 14695981039346656037U;

    for (; *s; s++)
        h = (h ^ (unsigned char)*s) * 1099511628211U;
    return (size_t)(h ^ (h >> 32));
}

static void file_free(struct known_file *f)
{
    if (f)
        free(f->path);
    free(f);
}

void known_done(struct known *k)
{
    for (size_t i = 0; i < k->room; i++)
        file_free(k->slots[i]);
    free(k->slots);
    *k = (struct known){ 0 };
}

static struct known_file **slot_of(const struct known *k, const char *path)
{
    size_t i = hash(path) & (k->room - 1);

    while (k->slots[i] && !str_eq(k->slots[i]->path, path))
        i = (i + 1) & (k->room - 1);
    return &k->slots[i];
}

struct known_file *known_find(const struct known *k, const char *path)
{
    return k->room ? *slot_of(k, path) : NULL;
}

static void grow(struct known *k)
{
    struct known old = *k;

    k->room = old.room ? old.room * 2 : 64;
    k->slots = xcalloc(k->room, sizeof(struct known_file *));
    for (size_t i = 0; i < old.room; i++) {
        if (old.slots[i])
            *slot_of(k, old.slots[i]->path) = old.slots[i];
    }
    free(old.slots);
}

struct known_file *known_add(struct known *k, const char *path)
{
    if (k->count * 3 >= k->room * 2)
        grow(k);
    struct known_file **slot = slot_of(k, path);
    if (!*slot) {
        *slot = xcalloc(1, sizeof **slot);
        (*slot)->path = xstrdup(path);
        (*slot)->state = KNOWN_NOTHING;
        k->count++;
    }
    return *slot;
}

struct known_file *known_next(const struct known *k, size_t *pos)
{
    while (*pos < k->room) {
        struct known_file *f = k->slots[(*pos)++];
        if (f && f->state != KNOWN_NOTHING)
            return f;
    }
    return NULL;
}

void known_forget_object(struct known_file *f)
{
    f->object_id[0] = f->ancestor[0] = f->sha256[0] = '\0';
    f->object_size = 0;
    f->read_only = false;
}

void known_set_object(struct known_file *f, enum known_state state, const struct object *o)
{
    f->state = state;
    memcpy(f->object_id, o->id, sizeof f->object_id);
    memcpy(f->ancestor, o->modified_from, sizeof f->ancestor);
    memcpy(f->sha256, o->sha256, sizeof f->sha256);
    f->object_size = o->size;
    f->read_only = o->read_only;
}

/* ---- rows ---- */

static void copy_text(char *out, size_t size, const char *text)
{
    size_t n = text ? strnlen(text, size - 1) : 0;

    if (n > 0)
        memcpy(out, text, n);
    out[n] = '\0';
}

static int load_row(void *state, struct db_row *row, struct error *err)
{
    struct known_file *f = known_add(state, db_text(row, 0));

    (void)err;
    f->state = (enum known_state)db_int(row, 2);
    copy_text(f->object_id, sizeof f->object_id, db_text(row, 1));
    f->sig = (struct signature){ .inode = db_int(row, 3),
                                 .size = db_int(row, 4),
                                 .mtime_ns = db_int(row, 5),
                                 .ctime_ns = db_int(row, 6),
                                 .taken_ns = db_int(row, 7) };
    copy_text(f->sha256, sizeof f->sha256, db_text(row, 8));
    f->object_size = db_int(row, 9);
    f->read_only = db_int(row, 10) != 0;
    copy_text(f->ancestor, sizeof f->ancestor, db_text(row, 11));
    return 0;
}

int known_load(struct known *k, struct db *db, const char *session_id, struct error *err)
{
    return db_query(
        db, err, load_row, k,
        "SELECT w.path, w.object_id, w.state, w.inode, w.size, w.mtime_ns, w.ctime_ns, w.taken_ns,"
        " o.sha256, o.size, o.read_only, o.modified_from FROM workspace_files w"
        " LEFT JOIN objects o ON o.id = w.object_id WHERE w.session_id = ? AND w.state IN (1, 2, 3)",
        "s", session_id);
}

int known_save(const struct known_file *f, struct db *db, const char *session_id, struct error *err)
{
    if (f->state == KNOWN_NOTHING)
        return db_run(db, err, "DELETE FROM workspace_files WHERE session_id = ? AND path = ? AND state <> 0",
                      "ss", session_id, f->path);
    return db_run(
        db, err,
        "INSERT INTO workspace_files (session_id, path, object_id, state, inode, size, mtime_ns, ctime_ns,"
        " taken_ns) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (session_id, path) DO UPDATE SET object_id = excluded.object_id,"
        " state = excluded.state, inode = excluded.inode, size = excluded.size,"
        " mtime_ns = excluded.mtime_ns, ctime_ns = excluded.ctime_ns, taken_ns = excluded.taken_ns"
        " WHERE workspace_files.state <> 0 OR workspace_files.object_id = excluded.object_id",
        "sssiiiiii", session_id, f->path, f->object_id[0] ? f->object_id : NULL, (int64_t)f->state,
        f->sig.inode, f->sig.size, f->sig.mtime_ns, f->sig.ctime_ns, f->sig.taken_ns);
}
