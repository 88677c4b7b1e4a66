#include "orchestrator/files/archive.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "common/buf.h"
#include "common/json/jsonx.h"
#include "common/log.h"
#include "orchestrator/files/beneath.h"
#include "orchestrator/files/walk.h"

#define READ_BYTES ((size_t)64 * 1024)
#define PENDING_MAX ((size_t)4 * 1024 * 1024) /* of one step: a read's bytes, headers, a long name */
#define MAX_DEPTH 256

struct archive_stream {
    int dir_fd;
    char **paths; /* still to come, from next on */
    size_t count, cap, next;
    struct archive *archive;
    struct buf pending; /* made, not yet taken */
    int file_fd;        /* of the entry under way, or -1 */
    int64_t left;       /* bytes it still owes its header */
    bool closed, failed, given_up;
    char block[READ_BYTES];
};

static la_ssize_t on_bytes(struct archive *a, void *state, const void *data, size_t len)
{
    struct archive_stream *s = state;
    struct error err = { 0 };

    if (s->given_up)
        return (la_ssize_t)len;
    if (buf_add(&s->pending, data, len, &err) < 0) {
        archive_set_error(a, ENOMEM, "%s", err.msg);
        return -1;
    }
    return (la_ssize_t)len;
}

static bool on_entry(void *state, const struct walk_entry *e)
{
    struct archive_stream *s = state;

    if (S_ISREG(e->st->st_mode)) {
        if (s->count == s->cap) {
            s->cap = s->cap ? s->cap * 2 : 64;
            s->paths = xrealloc_array(s->paths, s->cap, sizeof *s->paths);
        }
        s->paths[s->count++] = xstrdup(e->path);
    }
    return S_ISDIR(e->st->st_mode);
}

static void on_trouble(void *state, const char *path, const char *reason)
{
    (void)state;
    log_debug("archive: %s: %s", path, reason);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int open_archive(struct archive_stream *s, enum archive_kind kind)
{
    s->archive = archive_write_new();
    if (!s->archive)
        return -1;
    int r = kind == ARCHIVE_ZIP ? archive_write_set_format_zip(s->archive)
                                : archive_write_set_format_pax_restricted(s->archive);
    if (r == ARCHIVE_OK && kind == ARCHIVE_TAR_GZ)
        r = archive_write_add_filter_gzip(s->archive);
    if (r != ARCHIVE_OK || archive_write_set_bytes_per_block(s->archive, 0) != ARCHIVE_OK ||
        archive_write_set_bytes_in_last_block(s->archive, 1) != ARCHIVE_OK)
        return -1;
    return archive_write_open(s->archive, s, NULL, on_bytes, NULL) == ARCHIVE_OK ? 0 : -1;
}

int archive_stream_new(int dir_fd, enum archive_kind kind, int64_t max_entries, struct archive_stream **ret,
                       struct error *err)
{
    struct archive_stream *s = xcalloc(1, sizeof *s);
    const struct walk w = { .root_fd = dir_fd,
                            .max_entries = max_entries,
                            .max_depth = MAX_DEPTH,
                            .entry = on_entry,
                            .trouble = on_trouble,
                            .state = s };

    s->dir_fd = dir_fd;
    s->file_fd = -1;
    buf_init(&s->pending, PENDING_MAX);
    int r = 0;
    if (!walk_tree(&w))
        r = error_set(err, ERR_LIMIT, "the workspace has more than %lld entries", (long long)max_entries);
    else if (open_archive(s, kind) < 0)
        r = error_set(err, ERR_INTERNAL, "libarchive: %s",
                      s->archive ? archive_error_string(s->archive) : "no memory");
    if (r < 0) {
        archive_stream_free(s);
        return -1;
    }
    if (s->count > 1)
        qsort(s->paths, s->count, sizeof *s->paths, by_name);
    *ret = s;
    return 0;
}

void archive_stream_free(void *stream)
{
    struct archive_stream *s = stream;

    if (!s)
        return;
    /* libarchive frees its compressor only after an entry that ended well: this one is ended into nothing, at
       the worst with zeros up to its size. */
    s->given_up = true;
    (void)archive_write_free(s->archive);
    closep(&s->file_fd);
    closep(&s->dir_fd);
    for (size_t i = 0; i < s->count; i++)
        free(s->paths[i]);
    free(s->paths);
    buf_done(&s->pending);
    free(s);
}

/* A warning is a name or an attribute that could not be told exactly; the entry is whole. */
static bool good(int result) { return result >= ARCHIVE_WARN; }

static int write_header(struct archive_stream *s, const char *path, const struct stat *st)
{
    json_auto_t *name = jsonx_str(path);
    struct archive_entry *e = archive_entry_new();

    if (!e)
        return -1;
    archive_entry_set_pathname(e, json_string_value(name));
    archive_entry_set_filetype(e, AE_IFREG);
    archive_entry_set_perm(e, st->st_mode & 0755);
    archive_entry_set_size(e, st->st_size);
    archive_entry_set_mtime(e, st->st_mtim.tv_sec, st->st_mtim.tv_nsec);
    int r = archive_write_header(s->archive, e);
    archive_entry_free(e);
    return good(r) ? 0 : -1;
}

/* The next path that is still a regular file; others are passed over. */
static int begin_entry(struct archive_stream *s)
{
    const char *path = s->paths[s->next++];
    auto_close int fd = beneath_open(s->dir_fd, path, O_RDONLY);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return 0;
    if (write_header(s, path, &st) < 0)
        return -1;
    s->left = st.st_size;
    s->file_fd = steal_fd(&fd);
    return 0;
}

static int continue_entry(struct archive_stream *s)
{
    size_t want = (size_t)MIN((int64_t)sizeof s->block, s->left);

    if (want == 0) {
        IGNORE(close(steal_fd(&s->file_fd)));
        return good(archive_write_finish_entry(s->archive)) ? 0 : -1;
    }
    ssize_t n = read(s->file_fd, s->block, want);
    if (n <= 0) { /* it has shrunk, or cannot be read: the header's promise is kept */
        memset(s->block, 0, want);
        n = (ssize_t)want;
    }
    s->left -= n;
    return archive_write_data(s->archive, s->block, (size_t)n) == n ? 0 : -1;
}

static int step(struct archive_stream *s)
{
    if (s->file_fd >= 0)
        return continue_entry(s);
    if (s->next < s->count)
        return begin_entry(s);
    s->closed = true;
    return good(archive_write_close(s->archive)) ? 0 : -1;
}

ssize_t archive_stream_next(void *stream, char *out, size_t max)
{
    struct archive_stream *s = stream;

    while (s->pending.len == 0 && !s->closed && !s->failed)
        if (step(s) < 0) {
            log_warn("archive: %s", archive_error_string(s->archive));
            s->failed = true;
        }
    if (s->failed)
        return -1;
    size_t n = MIN(max, s->pending.len);
    if (n > 0)
        memcpy(out, s->pending.data, n);
    buf_consume(&s->pending, n);
    return (ssize_t)n;
}
