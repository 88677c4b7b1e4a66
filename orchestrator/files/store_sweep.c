#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "common/log.h"
#include "orchestrator/files/store_disk.h"

/* More bytes without a row than this, and no row at all: not the trace of a crash. */
#define ORPHANS_BELIEVED 1000
#define LOGGED_MAX 20

struct sweep {
    struct store *store;
    char (*ids)[ID_SIZE]; /* of all rows, sorted */
    bool *seen;           /* whose bytes were found */
    size_t count;
    char **orphans; /* paths below objects/ without a row, owned */
    size_t orphan_count;
};

static void sweep_done(struct sweep *w)
{
    for (size_t i = 0; i < w->orphan_count; i++)
        free(w->orphans[i]);
    free(w->orphans);
    free(w->ids);
    free(w->seen);
}

static int add_id(void *state, struct db_row *row, struct error *err)
{
    struct sweep *w = state;
    const char *id = db_text(row, 0);

    (void)err;
    if (!id_valid(id))
        return 0;
    if ((w->count & (w->count - 1)) == 0)
        w->ids = xrealloc_array(w->ids, w->count ? w->count * 2 : 1, sizeof *w->ids);
    memcpy(w->ids[w->count++], id, ID_SIZE);
    return 0;
}

static int compare_ids(const void *a, const void *b) { return strcmp(a, b); }

typedef void entry_fn(struct sweep *w, const char *dir, const char *name);

static int each_entry(struct sweep *w, int parent_fd, const char *dir, entry_fn *fn, struct error *err)
{
    int fd = openat(parent_fd, dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno == ENOTDIR)
        return 0;
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d)
        return error_errno(err, errno, "%s", dir);
    for (struct dirent *e = readdir(d); e; e = readdir(d)) {
        if (!str_eq(e->d_name, ".") && !str_eq(e->d_name, ".."))
            fn(w, dir, e->d_name);
    }
    (void)closedir(d);
    return 0;
}

static void remove_temporary(struct sweep *w, const char *dir, const char *name)
{
    (void)dir;
    (void)unlinkat(w->store->tmp_fd, name, 0);
}

static void look_at_object(struct sweep *w, const char *dir, const char *name)
{
    char(*found)[ID_SIZE] = w->count == 0 ? NULL
                                          : bsearch(name, w->ids, w->count, sizeof *w->ids, compare_ids);

    if (found && strncmp(dir, name, 2) == 0) {
        w->seen[found - w->ids] = true;
        return;
    }
    if ((w->orphan_count & (w->orphan_count - 1)) == 0)
        w->orphans = xrealloc_array(w->orphans, w->orphan_count ? w->orphan_count * 2 : 1,
                                    sizeof *w->orphans);
    w->orphans[w->orphan_count++] = xasprintf("%s/%s", dir, name);
}

static int list_objects(struct sweep *w, struct error *err)
{
    int fd = openat(w->store->objects_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    int result = 0;

    if (!d)
        return error_errno(err, errno, "objects");
    for (struct dirent *e = readdir(d); e && result == 0; e = readdir(d)) {
        if (strlen(e->d_name) == 2 && !str_eq(e->d_name, ".."))
            result = each_entry(w, w->store->objects_fd, e->d_name, look_at_object, err);
    }
    (void)closedir(d);
    return result;
}

static bool all_seen(const struct sweep *w)
{
    for (size_t i = 0; i < w->count; i++) {
        if (!w->seen[i])
            return false;
    }
    return true;
}

static int remove_rows(void *state, struct db *db, struct error *err)
{
    struct sweep *w = state;
    size_t lost = 0;

    (void)db;
    for (size_t i = 0; i < w->count; i++) {
        if (w->seen[i])
            continue;
        if (++lost <= LOGGED_MAX)
            log_warn("the bytes of file %s are gone: it is forgotten", w->ids[i]);
        if (store_row_delete(w->store, w->ids[i], err) < 0)
            return -1;
    }
    if (lost > LOGGED_MAX)
        log_warn("%zu files in all are gone", lost);
    return 0;
}

int store_sweep(struct store *s, bool had_objects, struct error *err)
{
    CLEANUP(sweep_done) struct sweep w = { .store = s };

    if (db_query(s->db, err, add_id, &w, "SELECT id FROM objects ORDER BY id", "") < 0)
        return -1;
    w.seen = xcalloc(w.count, sizeof *w.seen);
    if (!had_objects && w.count > 0)
        return error_set(
            err, ERR_UNAVAILABLE,
            "the database knows %zu files, but there is no directory \"objects\": is its disk mounted, "
            "and do DATA_DIR and UPLOADS_DIR belong together?",
            w.count);
    if (list_objects(&w, err) < 0)
        return -1;
    if (w.count == 0 && w.orphan_count > ORPHANS_BELIEVED)
        return error_set(
            err, ERR_UNAVAILABLE,
            "there are %zu files, and the database knows none: do DATA_DIR and UPLOADS_DIR belong "
            "together? (To start anew, remove the directory \"objects\".)",
            w.orphan_count);
    for (size_t i = 0; i < w.orphan_count; i++)
        (void)unlinkat(s->objects_fd, w.orphans[i], 0);
    if (w.orphan_count > 0)
        log_info("removed %zu files that a crash left half-made", w.orphan_count);
    if (!all_seen(&w) && db_transaction(s->db, err, remove_rows, &w) < 0)
        return -1;
    return each_entry(&w, s->tmp_fd, ".", remove_temporary, err);
}
