#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "orchestrator/files/beneath.h"
#include "orchestrator/files/capture_impl.h"
#include "orchestrator/http/content.h"

#define SEAL_AT 64 /* open writers, each with a descriptor */
#define TOTAL_FACTOR                                                                                         \
    4 /* one capture reads at most so many times the largest file: sparse ones cost no quota */

static void capture_done(struct capture *c)
{
    for (size_t i = 0; i < c->update_count; i++) {
        store_writer_free(c->updates[i].writer);
        object_done(&c->updates[i].object);
    }
    free(c->updates);
    free(c->candidates);
}

/* ---- the bytes ---- */

/* Opens what the scan found. False: it is not to be captured now, and what had to be said was said. */
static bool open_candidate(struct capture *c, const struct candidate *cand, int *ret_fd)
{
    const char *path = cand->file->path;
    int fd = beneath_open(c->w->data_fd, path, O_RDONLY);

    if (fd >= 0) {
        *ret_fd = fd;
        return true;
    }
    if (errno == EAGAIN) /* its owner holds a lease for writing */
        capture_skip(c, path, "still being written");
    else if (errno != ENOENT && errno != ENOTDIR && errno != ELOOP &&
             errno != ENXIO) /* else it changed its kind */
        capture_refuse(c, cand->file, &cand->st, strerrordesc_np(errno));
    return false;
}

static const char *count_reason(const struct capture *c, int64_t size, char *out, size_t out_size)
{
    const struct workspace_limits *limits = &c->w->limits;
    int64_t max_total = limits->max_file_bytes * TOTAL_FACTOR;

    if (c->files >= limits->max_captured_files)
        (void)snprintf(out, out_size, "more than %" PRId64 " files in one execution",
                       limits->max_captured_files);
    else if (size > max_total - c->bytes)
        (void)snprintf(out, out_size, "more than %" PRId64 " MiB in one execution", max_total >> 20);
    else
        return NULL;
    return out;
}

/* Copies the bytes into a new object. False: the file was changed meanwhile, or the store failed, and says
 * so. */
static bool copy(struct capture *c, const char *path, int fd, const struct stat *before,
                 struct store_writer **ret)
{
    CLEANUP(store_writer_freep) struct store_writer *writer = NULL;
    struct signature sig = signature_of(before, 0);
    struct error why = { 0 };
    struct stat after;

    bool copied = lseek(fd, 0, SEEK_SET) == 0 &&
                  store_writer_new(c->w->store, before->st_size, &writer, &why) == 0 &&
                  store_writer_copy(writer, fd, &why) == 0;
    if (fstat(fd, &after) < 0 || !signature_matches(&sig, &after) ||
        (copied && store_writer_size(writer) != before->st_size)) {
        capture_skip(c, path, "still being written");
        return false;
    }
    if (!copied) {
        capture_skip(c, path, why.msg);
        return false;
    }
    *ret = steal_ptr(&writer);
    return true;
}

static void capture_file(struct capture *c, const struct candidate *cand)
{
    char text[CAPTURE_REASON_SIZE];
    struct known_file *f = cand->file;
    struct store_writer *writer = NULL;
    struct stat st;
    auto_close int fd = -1;

    if (!open_candidate(c, cand, &fd))
        return;
    /* Cleans the pages of shared mappings, so that the next write through one changes the times again. */
    (void)fdatasync(fd);
    int64_t now = signature_now();
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return;
    struct signature sig = signature_of(&st, now);
    if (workspace_unchanged(f, fd, &st)) {
        struct stat after;
        if (fstat(fd, &after) == 0 && signature_matches(&sig, &after))
            capture_update(c, f, &sig)->save = false;
        return;
    }
    if (f->read_only && f->object_id[0] && f->state != KNOWN_REMOVED) {
        capture_update(c, f, &sig)->next.state = KNOWN_UNCAPTURED;
        return;
    }
    const char *reason = capture_size_reason(c, st.st_size, text, sizeof text);
    if (!reason)
        reason = count_reason(c, st.st_size, text, sizeof text);
    if (reason) {
        capture_refuse(c, f, &st, reason);
    } else if (copy(c, f->path, fd, &st, &writer)) {
        capture_update(c, f, &sig)->writer = writer;
        c->files++;
        c->bytes += st.st_size;
    }
}

/* A disk that fills up costs files, not the answer: what cannot be stored is named and tried again next time.
 */
static void seal(struct capture *c)
{
    struct error why = { 0 };

    for (; c->sealed < c->update_count; c->sealed++) {
        struct update *u = &c->updates[c->sealed];
        if (!u->writer || store_writer_seal(u->writer, &why) == 0)
            continue;
        capture_skip(c, u->file->path, why.msg);
        store_writer_free(u->writer);
        u->writer = NULL;
        u->next = *u->file;
        u->save = false;
    }
}

static void seal_all(struct capture *c)
{
    struct store_writer *writers[SEAL_AT];
    struct error why = { 0 };
    size_t n = 0;

    for (size_t i = c->sealed; i < c->update_count; i++) {
        if (c->updates[i].writer)
            writers[n++] = c->updates[i].writer;
    }
    if (store_writer_seal_all(writers, n, &why) == 0)
        c->sealed = c->update_count;
    else
        seal(c); /* one by one, to see which */
}

static int compare_candidates(const void *a, const void *b)
{
    return strcmp(((const struct candidate *)a)->file->path, ((const struct candidate *)b)->file->path);
}

static void capture_candidates(struct capture *c)
{
    int64_t sealed_at = 0;

    if (c->candidate_count > 0)
        qsort(c->candidates, c->candidate_count, sizeof *c->candidates, compare_candidates);
    for (size_t i = 0; i < c->candidate_count; i++) {
        capture_file(c, &c->candidates[i]);
        if (c->files - sealed_at == SEAL_AT) {
            seal_all(c);
            sealed_at = c->files;
        }
    }
    seal_all(c);
}

/* ---- the rows ---- */

static int commit_object(struct workspace *w, struct update *u, struct error *err)
{
    struct object meta = {
        .name = u->file->path,
        .content_type = xstrdup(content_type_of(u->file->path)),
    };

    memcpy(meta.session_id, w->session_id, sizeof meta.session_id);
    /* Also of a file that was removed before: a reference to that one must not overwrite its successor. */
    memcpy(meta.modified_from, u->file->object_id, sizeof meta.modified_from);
    int result = store_writer_commit(u->writer, &meta, &u->object, err);
    free(meta.content_type);
    if (result == 0)
        known_set_object(&u->next, KNOWN_PRESENT, &u->object);
    return result;
}

static int commit_tx(void *state, struct db *db, struct error *err)
{
    struct capture *c = state;

    for (size_t i = 0; i < c->update_count; i++) {
        struct update *u = &c->updates[i];
        if (u->writer && commit_object(c->w, u, err) < 0)
            return -1;
        if (u->save && known_save(&u->next, db, c->w->session_id, err) < 0)
            return -1;
    }
    return 0;
}

static bool anything_to_save(const struct capture *c)
{
    for (size_t i = 0; i < c->update_count; i++) {
        if (c->updates[i].save)
            return true;
    }
    return false;
}

static int commit(struct capture *c, struct error *err)
{
    if (!anything_to_save(c) || db_transaction(c->w->db, err, commit_tx, c) == 0)
        return 0;
    for (size_t i = 0; i < c->update_count; i++) {
        if (c->updates[i].writer)
            store_writer_uncommit(c->updates[i].writer);
    }
    return -1;
}

static void apply(struct capture *c)
{
    for (size_t i = 0; i < c->update_count; i++) {
        struct update *u = &c->updates[i];
        u->next.seen = u->file->seen;
        *u->file = u->next;
        if (u->writer)
            objects_add(&c->changes->files, &u->object);
    }
    capture_report_skipped(c);
}

int workspace_capture(struct workspace *w, struct workspace_changes *changes, struct error *err)
{
    CLEANUP(capture_done) struct capture c = { .w = w, .changes = changes };

    capture_scan(&c);
    capture_candidates(&c);
    if (commit(&c, err) < 0)
        return error_wrap(err, "capture");
    apply(&c);
    return 0;
}
