#include <errno.h>
#include <fcntl.h>
#include <time.h>

#include "orchestrator/files/walk.h"
#include "orchestrator/files/workspace_impl.h"

struct chowning {
    struct workspace *w;
    bool in_data;
    bool changed;
    int failed; /* errno of the first failure, 0: none */
    struct known_file **retaken;
    size_t retaken_count;
};

static void retake(struct chowning *c, const struct walk_entry *e, struct known_file *f)
{
    bool sure = f->sig.ctime_ns == signature_of(e->st, 0).ctime_ns && !signature_racy(&f->sig);
    struct stat st;

    if (fstatat(e->dir_fd, e->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return;
    /* A rename changes ctime only, but so does code that sets mtime back after a change: then the hash
     * decides. */
    f->sig = signature_of(&st, sure ? f->sig.taken_ns : 0);
    c->retaken = xrealloc_array(c->retaken, c->retaken_count + 1, sizeof(struct known_file *));
    c->retaken[c->retaken_count++] = f;
}

static bool chown_entry(void *state, const struct walk_entry *e)
{
    struct chowning *c = state;
    uid_t uid = c->w->uid;
    struct known_file *f = c->in_data ? known_find(&c->w->known, e->path) : NULL;
    bool same = f && f->sig.inode == (int64_t)e->st->st_ino && f->sig.size == e->st->st_size &&
                f->sig.mtime_ns == signature_of(e->st, 0).mtime_ns;

    if (e->st->st_uid != uid || e->st->st_gid != uid) {
        if (fchownat(e->dir_fd, e->name, uid, uid, AT_SYMLINK_NOFOLLOW) < 0 && c->failed == 0)
            c->failed = errno;
        c->changed = true;
    }
    if (same)
        retake(c, e, f);
    return true;
}

/* What lies deeper than a path can name was put there to be a nuisance; it stays with its old owner. */
static void chown_trouble(void *state, const char *path, const char *reason)
{
    (void)state;
    (void)path;
    (void)reason;
}

/*
 * Nobody writes meanwhile, so a signature may count as taken at any moment until the sandbox starts: waiting
 * out the racy time once saves reading every file again at the next capture.
 */
static int settle(struct chowning *c, struct error *err)
{
    const struct timespec pause = { .tv_nsec = SIGNATURE_RACY_NS + 1000000 };

    if (c->changed && c->retaken_count > 0)
        (void)nanosleep(&pause, NULL);
    for (size_t i = 0; i < c->retaken_count; i++) {
        if (c->retaken[i]->sig.taken_ns != 0)
            c->retaken[i]->sig.taken_ns = signature_now();
    }
    return c->changed ? workspace_save(c->w, c->retaken, c->retaken_count, err) : 0;
}

int workspace_chown(struct workspace *w, uint32_t uid, struct error *err)
{
    struct chowning c = { .w = w };
    struct walk walk = { .max_entries = INT64_MAX,
                         .max_depth = INT64_MAX,
                         .entry = chown_entry,
                         .trouble = chown_trouble,
                         .state = &c };
    const int roots[] = { w->data_fd, w->home_fd, w->run_fd };

    if (geteuid() != 0)
        return 0;
    w->uid = uid;
    for (size_t i = 0; i < ARRAY_LEN(roots); i++) {
        if (fchown(roots[i], uid, uid) < 0)
            return error_errno(err, errno, "workspace: new owner");
        walk.root_fd = roots[i];
        c.in_data = roots[i] == w->data_fd;
        (void)walk_tree(&walk);
    }
    int result = c.failed ? error_errno(err, c.failed, "workspace: new owner") : settle(&c, err);
    free(c.retaken);
    return result;
}
