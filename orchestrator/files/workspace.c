#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "orchestrator/files/beneath.h"
#include "orchestrator/files/workspace_impl.h"

/* ---- what is reported ---- */

void workspace_changes_done(struct workspace_changes *c)
{
    objects_done(&c->files);
    for (size_t i = 0; i < c->deleted_count; i++)
        free(c->deleted[i]);
    free(c->deleted);
    for (size_t i = 0; i < c->skipped_count; i++) {
        free(c->skipped[i].name);
        free(c->skipped[i].reason);
    }
    free(c->skipped);
    *c = (struct workspace_changes){ 0 };
}

void workspace_changes_skip(struct workspace_changes *c, const char *name, const char *fmt, ...)
{
    char reason[sizeof((struct error *)0)->msg];
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(reason, sizeof reason, fmt, ap);
    va_end(ap);
    c->skipped = xrealloc_array(c->skipped, c->skipped_count + 1, sizeof *c->skipped);
    c->skipped[c->skipped_count++] = (struct workspace_skip){ xstrdup(name), xstrdup(reason) };
}

/* ---- opening ---- */

uid_t workspace_owner(const struct workspace *w) { return geteuid() == 0 ? w->uid : (uid_t)-1; }

static int open_part(const struct workspace *w, int box_fd, const char *name, int *ret_fd, bool *ret_made,
                     struct error *err)
{
    uid_t owner = workspace_owner(w);
    struct stat st;

    *ret_made = mkdirat(box_fd, name, 0700) == 0;
    if (!*ret_made && errno != EEXIST)
        return error_errno(err, errno, "workspace directory %s", name);
    *ret_fd = openat(box_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (*ret_fd < 0 || fstat(*ret_fd, &st) < 0)
        return error_errno(err, errno, "workspace directory %s", name);
    if (owner != (uid_t)-1 && (st.st_uid != owner || st.st_gid != owner) && fchown(*ret_fd, owner, owner) < 0)
        return error_errno(err, errno, "workspace directory %s", name);
    return 0;
}

/* The place for files on their way belongs to us; a crash may have left some there. */
static int open_place(struct workspace *w, int box_fd, struct error *err)
{
    if (mkdirat(box_fd, "place", 0700) < 0 && errno != EEXIST)
        return error_errno(err, errno, "workspace directory place");
    w->place_fd = openat(box_fd, "place", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int list_fd = openat(box_fd, "place", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *d = list_fd < 0 ? NULL : fdopendir(list_fd);
    if (!d || w->place_fd < 0)
        return error_errno(err, errno, "workspace directory place");
    for (struct dirent *e = readdir(d); e; e = readdir(d))
        (void)unlinkat(w->place_fd, e->d_name, 0);
    (void)closedir(d);
    return 0;
}

static int open_box(struct workspace *w, const char *box_dir, struct error *err)
{
    bool made_data = false, made = false;

    if (mkdir(box_dir, 0700) < 0 && errno != EEXIST)
        return error_errno(err, errno, "workspace %s", box_dir);
    auto_close int box_fd = open(box_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (box_fd < 0)
        return error_errno(err, errno, "workspace %s", box_dir);
    if (open_part(w, box_fd, "data", &w->data_fd, &made_data, err) < 0 ||
        open_part(w, box_fd, "home", &w->home_fd, &made, err) < 0 ||
        open_part(w, box_fd, "run", &w->run_fd, &made, err) < 0 || open_place(w, box_fd, err) < 0)
        return -1;
    return made_data ? workspace_box_gone(w->db, w->session_id, err) : 0;
}

int workspace_open(const char *box_dir, const char *session_id, uint32_t uid, struct store *store,
                   struct db *db, const struct workspace_limits *limits, struct workspace **ret,
                   struct error *err)
{
    CLEANUP(workspace_closep) struct workspace *w = xcalloc(1, sizeof *w);

    w->data_fd = w->home_fd = w->run_fd = w->place_fd = -1;
    w->uid = uid;
    w->store = store;
    w->db = db;
    w->limits = *limits;
    atomic_init(&w->pending, true);
    if (!id_valid(session_id))
        return error_set(err, ERR_INTERNAL, "workspace of no session");
    memcpy(w->session_id, session_id, sizeof w->session_id);
    if (open_box(w, box_dir, err) < 0 || known_load(&w->known, db, session_id, err) < 0)
        return -1;
    *ret = steal_ptr(&w);
    return 0;
}

void workspace_close(struct workspace *w)
{
    if (!w)
        return;
    closep(&w->data_fd);
    closep(&w->home_fd);
    closep(&w->run_fd);
    closep(&w->place_fd);
    known_done(&w->known);
    free(w);
}

/* ---- rows ---- */

int workspace_mark_pending(struct db *db, const char *session_id, const char *name, const char *object_id,
                           struct error *err)
{
    return db_run(db, err,
                  "INSERT INTO workspace_files (session_id, path, object_id, state) VALUES (?, ?, ?, 0)"
                  " ON CONFLICT (session_id, path) DO UPDATE SET object_id = excluded.object_id, state = 0",
                  "sss", session_id, name, object_id);
}

static int take_id(void *state, struct db_row *row, struct error *err)
{
    const char *id = db_text(row, 0);

    (void)err;
    if (id_valid(id))
        memcpy(state, id, ID_SIZE);
    return 0;
}

int workspace_object_at(struct db *db, const char *session_id, const char *name, char ret[ID_SIZE],
                        struct error *err)
{
    ret[0] = '\0';
    return db_query(db, err, take_id, ret,
                    "SELECT object_id FROM workspace_files WHERE session_id = ? AND path = ?", "ss",
                    session_id, name);
}

void workspace_refresh(struct workspace *w) { atomic_store(&w->pending, true); }

int workspace_box_gone(struct db *db, const char *session_id, struct error *err)
{
    if (db_run(db, err,
               "DELETE FROM workspace_files WHERE session_id = ? AND state = 3 AND object_id IS NULL", "s",
               session_id) < 0)
        return -1;
    return db_run(db, err, "UPDATE workspace_files SET state = 0 WHERE session_id = ? AND state IN (1, 3)",
                  "s", session_id);
}

struct saving {
    const struct workspace *workspace;
    struct known_file *const *files;
    size_t count;
};

static int save_tx(void *state, struct db *db, struct error *err)
{
    const struct saving *s = state;

    for (size_t i = 0; i < s->count; i++) {
        if (known_save(s->files[i], db, s->workspace->session_id, err) < 0)
            return -1;
    }
    return 0;
}

int workspace_save(struct workspace *w, struct known_file *const *files, size_t n, struct error *err)
{
    struct saving s = { w, files, n };

    return n == 0 ? 0 : db_transaction(w->db, err, save_tx, &s);
}

/* ---- single files ---- */

bool workspace_unchanged(const struct known_file *f, int fd, const struct stat *st)
{
    char sha256[HASH_HEX_SIZE];
    struct error ignored = { 0 };
    int64_t len = 0;

    if (f->state != KNOWN_PRESENT)
        return false;
    if (signature_matches(&f->sig, st) && !signature_racy(&f->sig))
        return true;
    if (!f->sha256[0]) /* the object is gone: the signature is all there is */
        return signature_matches(&f->sig, st);
    return st->st_size == f->object_size && hash_fd(fd, st->st_size + 1, sha256, &len, &ignored) == 0 &&
           len == st->st_size && str_eq(sha256, f->sha256);
}

static void remove_if_unchanged(const struct workspace *w, const struct known_file *f)
{
    const char *name = NULL;
    struct stat st;

    auto_close int dir_fd = beneath_open_parent(w->data_fd, f->path, &name);
    auto_close int fd = dir_fd < 0 ? -1 : beneath_open(dir_fd, name, O_RDONLY);
    if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && workspace_unchanged(f, fd, &st))
        (void)unlinkat(dir_fd, name, 0);
}

int workspace_forget(struct workspace *w, const char *object_id, struct error *err)
{
    size_t pos = 0;

    for (struct known_file *f = known_next(&w->known, &pos); f; f = known_next(&w->known, &pos)) {
        if (!str_eq(f->object_id, object_id))
            continue;
        if (f->state == KNOWN_PRESENT)
            remove_if_unchanged(w, f);
        if (f->state != KNOWN_UNCAPTURED)
            f->state = KNOWN_NOTHING;
        known_forget_object(f);
        if (known_save(f, w->db, w->session_id, err) < 0)
            return -1;
    }
    return 0;
}
