#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/sendfile.h>

#include "orchestrator/files/beneath.h"
#include "orchestrator/files/workspace_impl.h"

struct pending {
    char *path; /* owned */
    char object_id[ID_SIZE];
};

struct placing {
    struct workspace *w;
    struct workspace_changes *changes;
    struct pending *pending; /* uploads that wait */
    size_t pending_count;
    struct known_file **placed; /* to be saved; borrowed */
    size_t placed_count;
};

static void placing_done(struct placing *p)
{
    for (size_t i = 0; i < p->pending_count; i++)
        free(p->pending[i].path);
    free(p->pending);
    free(p->placed);
}

/* ---- one file ---- */

static int copy_bytes(int from_fd, int to_fd, int64_t size, struct error *err)
{
    bool in_kernel = true;

    while (size > 0) {
        ssize_t n = in_kernel ? copy_file_range(from_fd, NULL, to_fd, NULL, (size_t)size, 0)
                              : sendfile(to_fd, from_fd, NULL, (size_t)size);
        if (n > 0) {
            size -= n;
        } else if (in_kernel) {
            in_kernel = false; /* other file systems, old kernels: both continue where the other stopped */
        } else if (n == 0) {
            return error_set(err, ERR_INTERNAL, "its stored bytes are incomplete");
        } else if (errno != EINTR) {
            return error_errno(err, errno, "could not be copied");
        }
    }
    return 0;
}

/* Makes the whole file under a temporary name out of the sandbox's sight. */
static int make_copy(struct workspace *w, const struct object *o, const char *temporary, int *ret_fd,
                     struct error *err)
{
    uid_t owner = workspace_owner(w);

    auto_close int from_fd = -1;
    if (store_open_object(w->store, o->id, &from_fd, err) < 0)
        return err->kind == ERR_NOT_FOUND ? error_set(err, ERR_NOT_FOUND, "its stored bytes are gone") : -1;
    auto_close int fd = openat(w->place_fd, temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return error_errno(err, errno, "could not be made");
    if (copy_bytes(from_fd, fd, o->size, err) < 0)
        return -1;
    if ((owner != (uid_t)-1 && fchown(fd, owner, owner) < 0) || fchmod(fd, o->read_only ? 0444 : 0644) < 0)
        return error_errno(err, errno, "could not be given to the sandbox");
    /* So that after a power cut the file is not an empty one that looks like session code's work. */
    (void)sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE);
    *ret_fd = steal_fd(&fd);
    return 0;
}

/* Would the rename destroy bytes that no object has? */
static bool destroys(const struct known_file *f, int dir_fd, const char *name)
{
    struct stat st;

    if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
        return false;
    return f->state != KNOWN_PRESENT || !signature_matches(&f->sig, &st);
}

static int put_in_place(struct workspace *w, const char *temporary, int dir_fd, const char *name,
                        struct error *err)
{
    if (renameat(w->place_fd, temporary, dir_fd, name) == 0)
        return 0;
    if (errno == EISDIR || errno == ENOTEMPTY || errno == EEXIST)
        return error_set(err, ERR_CONFLICT, "a directory is in the way");
    return error_errno(err, errno, "could not be put in place");
}

/* Places the object; a message in *err is the reason why it cannot be. */
static int place_object(struct placing *p, struct known_file *f, const struct object *o, struct error *err)
{
    struct workspace *w = p->w;
    const char *name = NULL;
    struct stat st;

    auto_close int dir_fd = beneath_make_parent(w->data_fd, f->path, workspace_owner(w), &name);
    if (dir_fd < 0 && (errno == ENOTDIR || errno == ELOOP || errno == EXDEV))
        return error_set(err, ERR_CONFLICT, "a file or a link is in the way of its directory");
    if (dir_fd < 0)
        return error_errno(err, errno, "its directory could not be made");
    auto_close int fd = -1;
    bool lost = false;
    int result = make_copy(w, o, o->id, &fd, err);
    if (result == 0) {
        lost = destroys(f, dir_fd, name);
        result = put_in_place(w, o->id, dir_fd, name, err);
    }
    if (result < 0) {
        (void)unlinkat(w->place_fd, o->id, 0);
        return -1;
    }
    if (lost)
        workspace_changes_skip(p->changes, f->path, "an input file replaced it before it could be captured");
    int64_t now = signature_now();
    if (fstat(fd, &st) < 0)
        return error_errno(err, errno, "could not be examined");
    known_set_object(f, KNOWN_PRESENT, o);
    f->sig = signature_of(&st, now);
    return 0;
}

/* ---- which files ---- */

/* Only a failure of the database is an error; everything else is named in skipped. ret_placed may be NULL. */
static int place_one(struct placing *p, const char *path, const char *object_id, enum error_kind *ret_why_not,
                     struct error *err)
{
    auto_object struct object o = { 0 };
    struct error why = { 0 };

    *ret_why_not = ERR_NONE;
    if (store_find(p->w->store, object_id, &o, err) < 0) {
        if (err->kind != ERR_NOT_FOUND)
            return -1;
        workspace_changes_skip(p->changes, path, "no such file: unknown or expired");
        *ret_why_not = ERR_NOT_FOUND;
        return 0;
    }
    struct known_file *f = known_add(&p->w->known, path);
    if (place_object(p, f, &o, &why) < 0) {
        workspace_changes_skip(p->changes, path, "%s", why.msg);
        *ret_why_not = why.kind;
        return 0;
    }
    p->placed = xrealloc_array(p->placed, p->placed_count + 1, sizeof(struct known_file *));
    p->placed[p->placed_count++] = f;
    return store_touch(p->w->store, object_id, err);
}

static int add_pending(void *state, struct db_row *row, struct error *err)
{
    struct placing *p = state;
    const char *id = db_text(row, 1);

    (void)err;
    if (!id_valid(id))
        return 0;
    p->pending = xrealloc_array(p->pending, p->pending_count + 1, sizeof *p->pending);
    struct pending *next = &p->pending[p->pending_count++];
    next->path = xstrdup(db_text(row, 0));
    memcpy(next->object_id, id, sizeof next->object_id);
    return 0;
}

static int place_pending(struct placing *p, struct error *err)
{
    struct workspace *w = p->w;
    enum error_kind why_not = ERR_NONE;

    if (!atomic_exchange(&w->pending, false))
        return 0;
    if (db_query(
            w->db, err, add_pending, p,
            "SELECT path, object_id FROM workspace_files WHERE session_id = ? AND state = 0 ORDER BY path",
            "s", w->session_id) < 0)
        return -1;
    for (size_t i = 0; i < p->pending_count; i++) {
        const struct pending *next = &p->pending[i];
        if (place_one(p, next->path, next->object_id, &why_not, err) < 0)
            return -1;
        if (why_not == ERR_NOT_FOUND && db_run(w->db, err,
                                               "DELETE FROM workspace_files WHERE session_id = ? AND path = "
                                               "? AND object_id = ? AND state = 0",
                                               "sss", w->session_id, next->path, next->object_id) < 0)
            return -1;
        if (why_not != ERR_NONE) /* it keeps waiting, and says so each time */
            atomic_store(&w->pending, true);
    }
    return 0;
}

/* Is what is there (or was, before session code removed it) the object or made from it? */
static int continues(struct workspace *w, struct known_file *f, const char *object_id, bool *ret,
                     struct error *err)
{
    *ret = str_eq(f->object_id, object_id) || str_eq(f->ancestor, object_id);
    if (*ret || !f->object_id[0])
        return 0;
    if (store_is_ancestor(w->store, object_id, f->object_id, ret, err) < 0)
        return -1;
    if (*ret)
        (void)snprintf(f->ancestor, sizeof f->ancestor, "%s", object_id);
    return 0;
}

static int place_ref(struct placing *p, const struct workspace_ref *ref, struct error *err)
{
    struct known_file *f = known_find(&p->w->known, ref->name);
    enum error_kind why_not = ERR_NONE;
    bool leave = false;

    if (f && f->state != KNOWN_NOTHING && continues(p->w, f, ref->object_id, &leave, err) < 0)
        return -1;
    return leave ? 0 : place_one(p, ref->name, ref->object_id, &why_not, err);
}

static bool named_again(const struct workspace_ref *refs, size_t n, size_t i)
{
    for (size_t k = i + 1; k < n; k++) {
        if (str_eq(refs[k].name, refs[i].name))
            return true;
    }
    return false;
}

static int place_all(struct placing *p, const struct workspace_ref *refs, size_t n, struct error *err)
{
    if (place_pending(p, err) < 0)
        return -1;
    for (size_t i = 0; i < n; i++) {
        if (!named_again(refs, n, i) && place_ref(p, &refs[i], err) < 0)
            return -1;
    }
    return workspace_save(p->w, p->placed, p->placed_count, err);
}

int workspace_place(struct workspace *w, const struct workspace_ref *refs, size_t n,
                    struct workspace_changes *changes, struct error *err)
{
    CLEANUP(placing_done) struct placing p = { .w = w, .changes = changes };

    if (place_all(&p, refs, n, err) == 0)
        return 0;
    atomic_store(&w->pending, true);
    return error_wrap(err, "input files");
}
