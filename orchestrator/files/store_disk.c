#include "orchestrator/files/store_disk.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "common/clock.h"
#include "common/fd.h"
#include "orchestrator/files/hash.h"

#define COPY_SIZE ((size_t)256 * 1024)

enum writer_state {
    WRITER_OPEN,      /* bytes in tmp/ */
    WRITER_SYNCED,    /* the same, durable */
    WRITER_SEALED,    /* bytes in objects/ */
    WRITER_COMMITTED, /* and a row */
};

struct store_writer {
    struct store *store;
    char id[ID_SIZE];
    int fd;
    enum writer_state state;
    struct hash *hash;
    int64_t size, max;
    char sha256[HASH_HEX_SIZE];
};

void store_object_path(const char *id, char out[OBJECT_PATH_SIZE])
{
    out[0] = id[0];
    out[1] = id[1];
    out[2] = '/';
    memcpy(out + 3, id, ID_SIZE);
}

/* ---- opening ---- */

static int open_dir(int parent_fd, const char *name, int *ret_fd, bool *ret_existed, struct error *err)
{
    bool made = mkdirat(parent_fd, name, 0700) == 0;

    if (!made && errno != EEXIST)
        return error_errno(err, errno, "store directory %s", name);
    *ret_fd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*ret_fd < 0 || (made && fsync(parent_fd) < 0))
        return error_errno(err, errno, "store directory %s", name);
    *ret_existed = !made;
    return 0;
}

int store_open(const char *dir, struct db *db, struct store **ret, struct error *err)
{
    bool had_objects = false, had_tmp = false;

    auto_close int dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir_fd < 0)
        return error_errno(err, errno, "store %s", dir);
    struct store *s = xcalloc(1, sizeof *s);
    *s = (struct store){ .objects_fd = -1, .tmp_fd = -1, .db = db };
    if (open_dir(dir_fd, "objects", &s->objects_fd, &had_objects, err) < 0 ||
        open_dir(dir_fd, "tmp", &s->tmp_fd, &had_tmp, err) < 0 || store_sweep(s, had_objects, err) < 0) {
        /* An empty directory made just now would hide from the next start that the objects are elsewhere. */
        if (!had_objects)
            (void)unlinkat(dir_fd, "objects", AT_REMOVEDIR);
        store_close(s);
        return error_wrap(err, "store %s", dir);
    }
    *ret = s;
    return 0;
}

void store_close(struct store *s)
{
    if (!s)
        return;
    closep(&s->objects_fd);
    closep(&s->tmp_fd);
    free(s);
}

/* ---- writing ---- */

int store_writer_new(struct store *s, int64_t max_bytes, struct store_writer **ret, struct error *err)
{
    char id[ID_SIZE];

    id_new(id);
    int fd = openat(s->tmp_fd, id, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return error_errno(err, errno, "new file in the store");
    struct store_writer *w = xcalloc(1, sizeof *w);
    *w = (struct store_writer){ .store = s, .fd = fd, .hash = hash_new(), .max = max_bytes };
    memcpy(w->id, id, sizeof w->id);
    *ret = w;
    return 0;
}

int store_writer_write(struct store_writer *w, const void *data, size_t len, struct error *err)
{
    if (len > (size_t)INT64_MAX || (int64_t)len > w->max - w->size)
        return error_set(err, ERR_LIMIT, "the file is larger than %" PRId64 " bytes", w->max);
    if (fd_write_all(w->fd, data, len, err) < 0)
        return error_wrap(err, "the file could not be stored");
    hash_add(w->hash, data, len);
    w->size += (int64_t)len;
    return 0;
}

int store_writer_copy(struct store_writer *w, int from_fd, struct error *err)
{
    auto_free char *block = xcalloc(1, COPY_SIZE);

    for (;;) {
        ssize_t n = read(from_fd, block, COPY_SIZE);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return error_errno(err, errno, "read");
        if (n == 0)
            break;
        if (store_writer_write(w, block, (size_t)n, err) < 0)
            return -1;
    }
    (void)sync_file_range(w->fd, 0, 0, SYNC_FILE_RANGE_WRITE);
    return 0;
}

int64_t store_writer_size(const struct store_writer *w) { return w->size; }

const char *store_writer_sha256(const struct store_writer *w) { return w->sha256; }

static int writer_sync(struct store_writer *w, struct error *err)
{
    if (w->state != WRITER_OPEN)
        return 0;
    if (fsync(w->fd) < 0)
        return error_errno(err, errno, "the file could not be stored");
    hash_end(w->hash, w->sha256);
    closep(&w->fd);
    w->fd = -1;
    w->state = WRITER_SYNCED;
    return 0;
}

static int writer_move(struct store_writer *w, struct error *err)
{
    char path[OBJECT_PATH_SIZE], dir[3] = { w->id[0], w->id[1], '\0' };
    int objects_fd = w->store->objects_fd;

    if (w->state != WRITER_SYNCED)
        return 0;
    store_object_path(w->id, path);
    if (mkdirat(objects_fd, dir, 0700) < 0 && errno != EEXIST)
        return error_errno(err, errno, "the file could not be stored");
    if (renameat(w->store->tmp_fd, w->id, objects_fd, path) < 0)
        return error_errno(err, errno, "the file could not be stored");
    w->state = WRITER_SEALED;
    return 0;
}

static int writer_sync_dir(const struct store_writer *w, struct error *err)
{
    char dir[3] = { w->id[0], w->id[1], '\0' };

    auto_close int fd = openat(w->store->objects_fd, dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fsync(fd) < 0)
        return error_errno(err, errno, "the file could not be stored");
    return 0;
}

int store_writer_seal_all(struct store_writer *const *writers, size_t n, struct error *err)
{
    /* In rounds: the first fsync of each takes most of the others' work with it into one journal commit. */
    for (size_t i = 0; i < n; i++) {
        if (writer_sync(writers[i], err) < 0)
            return -1;
    }
    for (size_t i = 0; i < n; i++) {
        if (writer_move(writers[i], err) < 0)
            return -1;
    }
    for (size_t i = 0; i < n; i++) {
        if (writer_sync_dir(writers[i], err) < 0)
            return -1;
    }
    /* Also when its entry was made by another thread, which may not have come to this yet. */
    if (n > 0 && fsync(writers[0]->store->objects_fd) < 0)
        return error_errno(err, errno, "the file could not be stored");
    return 0;
}

int store_writer_seal(struct store_writer *w, struct error *err) { return store_writer_seal_all(&w, 1, err); }

int store_writer_commit(struct store_writer *w, const struct object *meta, struct object *ret,
                        struct error *err)
{
    int64_t now = clock_real_ms();

    if (w->state < WRITER_SEALED && store_writer_seal(w, err) < 0)
        return -1;
    struct object o = *meta; /* borrows meta's strings */
    memcpy(o.id, w->id, sizeof o.id);
    memcpy(o.sha256, w->sha256, sizeof o.sha256);
    o.size = w->size;
    o.superseded = false;
    o.created_ms = o.last_used_ms = now;
    if (store_row_insert(w->store, &o, err) < 0)
        return -1;
    w->state = WRITER_COMMITTED;
    return store_find(w->store, w->id, ret, err);
}

void store_writer_uncommit(struct store_writer *w)
{
    if (w->state == WRITER_COMMITTED)
        w->state = WRITER_SEALED;
}

void store_writer_free(struct store_writer *w)
{
    char path[OBJECT_PATH_SIZE];

    if (!w)
        return;
    store_object_path(w->id, path);
    if (w->state == WRITER_SEALED)
        (void)unlinkat(w->store->objects_fd, path, 0);
    else if (w->state != WRITER_COMMITTED)
        (void)unlinkat(w->store->tmp_fd, w->id, 0);
    closep(&w->fd);
    hash_free(w->hash);
    free(w);
}

/* ---- objects ---- */

int store_open_object(struct store *s, const char *id, int *ret_fd, struct error *err)
{
    char path[OBJECT_PATH_SIZE];

    if (!id_valid(id))
        return error_set(err, ERR_NOT_FOUND, "no such file");
    store_object_path(id, path);
    int fd = openat(s->objects_fd, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return error_set(err, ERR_NOT_FOUND, "no such file");
    if (fd < 0)
        return error_errno(err, errno, "file %s", id);
    *ret_fd = fd;
    return 0;
}

int store_delete(struct store *s, const char *id, struct error *err)
{
    char path[OBJECT_PATH_SIZE];

    if (!id_valid(id))
        return error_set(err, ERR_NOT_FOUND, "no such file");
    if (store_row_delete(s, id, err) < 0)
        return -1;
    store_object_path(id, path);
    (void)unlinkat(s->objects_fd, path, 0); /* bytes that stay behind go at the next start */
    return 0;
}
