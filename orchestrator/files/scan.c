#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "orchestrator/files/beneath.h"
#include "orchestrator/files/capture_impl.h"
#include "orchestrator/files/walk.h"

#define NAMED_SKIPS_MAX 100 /* of one capture; the others are counted */

struct update *capture_update(struct capture *c, struct known_file *f, const struct signature *sig)
{
    if (c->update_count == c->update_room) {
        c->update_room = c->update_room ? c->update_room * 2 : 16;
        c->updates = xrealloc_array(c->updates, c->update_room, sizeof *c->updates);
    }
    struct update *u = &c->updates[c->update_count++];
    *u = (struct update){ .file = f, .next = *f, .save = true };
    u->next.sig = *sig;
    return u;
}

void capture_skip(struct capture *c, const char *path, const char *reason)
{
    if (c->skipped++ < NAMED_SKIPS_MAX)
        workspace_changes_skip(c->changes, path, "%s", reason);
}

void capture_report_skipped(struct capture *c)
{
    if (c->skipped > NAMED_SKIPS_MAX)
        workspace_changes_skip(c->changes, "*", "and %zu more", c->skipped - NAMED_SKIPS_MAX);
}

static void report_deleted(struct capture *c, const char *path)
{
    struct workspace_changes *ch = c->changes;

    ch->deleted = xrealloc_array(ch->deleted, ch->deleted_count + 1, sizeof(char *));
    ch->deleted[ch->deleted_count++] = xstrdup(path);
}

/* A file that was known is gone: its row stays as a tombstone, so that a stale reference does not bring it
 * back. */
static void note_gone(struct capture *c, struct known_file *f)
{
    struct update *u = capture_update(c, f, &(struct signature){ 0 });

    if (f->state == KNOWN_PRESENT || f->object_id[0]) {
        u->next.state = KNOWN_REMOVED;
        report_deleted(c, f->path);
    } else {
        u->next.state = KNOWN_NOTHING;
    }
}

void capture_refuse(struct capture *c, struct known_file *f, const struct stat *st, const char *reason)
{
    struct signature sig = st ? signature_of(st, signature_now()) : (struct signature){ 0 };
    bool is_file = st && S_ISREG(st->st_mode);

    capture_skip(c, f->path, reason);
    struct update *u = capture_update(c, f, &sig);
    u->next.state = is_file || !f->object_id[0] ? KNOWN_UNCAPTURED : KNOWN_REMOVED;
    if (is_file && f->state == KNOWN_REMOVED)
        u->next.read_only = false;
    if (!is_file && f->state == KNOWN_PRESENT)
        report_deleted(c, f->path);
}

static bool already_told(const struct known_file *f, const struct stat *st)
{
    if (!f || (f->state != KNOWN_UNCAPTURED && f->state != KNOWN_REMOVED))
        return false;
    return st ? signature_matches(&f->sig, st) : f->sig.inode == 0;
}

static bool is_result_name(const char *name)
{
    return name[0] != '.' && !str_eq(name, "__pycache__") && !str_eq(name, "node_modules");
}

/* Why this cannot be a result whatever its bytes are; NULL: it can. */
static const char *kind_reason(const struct stat *st)
{
    switch (st->st_mode & S_IFMT) {
    case S_IFREG:
        return NULL;
    case S_IFLNK:
        return "a symbolic link";
    case S_IFIFO:
        return "a named pipe";
    case S_IFSOCK:
        return "a socket";
    default:
        return "a device";
    }
}

static const char *name_reason(const char *path, char *out, size_t size)
{
    auto_free char *checked = NULL;
    struct error why = { 0 };

    if (file_name_check(path, &checked, &why) < 0)
        (void)snprintf(out, size, "cannot be referred to: %s", why.msg);
    else if (!str_eq(checked, path))
        (void)snprintf(out, size, "cannot be referred to: its name begins with mnt/data");
    else
        return NULL;
    return out;
}

const char *capture_size_reason(const struct capture *c, int64_t size, char *out, size_t out_size)
{
    int64_t max = c->w->limits.max_file_bytes;

    if (size <= max)
        return NULL;
    (void)snprintf(out, out_size, "larger than %" PRId64 " MiB", max >> 20);
    return out;
}

static bool look_at(void *state, const struct walk_entry *e)
{
    struct capture *c = state;
    char text[CAPTURE_REASON_SIZE];

    if (S_ISDIR(e->st->st_mode))
        return true;
    struct known_file *f = known_find(&c->w->known, e->path);
    if (f && (f->state == KNOWN_UNCAPTURED || S_ISREG(e->st->st_mode)))
        f->seen = c->w->scan;
    if (f && f->state == KNOWN_PRESENT && signature_matches(&f->sig, e->st) && !signature_racy(&f->sig))
        return false;
    if (already_told(f, e->st))
        return false;
    f = known_add(&c->w->known, e->path);
    f->seen = c->w->scan;
    const char *reason = kind_reason(e->st);
    if (!reason)
        reason = name_reason(e->path, text, sizeof text);
    if (!reason)
        reason = capture_size_reason(c, e->st->st_size, text, sizeof text);
    if (reason) {
        capture_refuse(c, f, e->st, reason);
        return false;
    }
    if (c->candidate_count == c->candidate_room) {
        c->candidate_room = c->candidate_room ? c->candidate_room * 2 : 16;
        c->candidates = xrealloc_array(c->candidates, c->candidate_room, sizeof *c->candidates);
    }
    c->candidates[c->candidate_count++] = (struct candidate){ f, *e->st };
    return false;
}

static void trouble(void *state, const char *path, const char *reason)
{
    struct capture *c = state;
    struct known_file *f = known_add(&c->w->known, *path ? path : ".");

    if (f->seen != c->w->scan && !already_told(f, NULL))
        capture_refuse(c, f, NULL, reason);
    f->seen = c->w->scan;
}

static bool is_gone(const struct workspace *w, const char *path)
{
    struct stat st;

    auto_close int fd = beneath_open(w->data_fd, path, O_PATH);
    if (fd < 0)
        return errno == ENOENT || errno == ENOTDIR || errno == ELOOP;
    return fstat(fd, &st) == 0 && !S_ISREG(st.st_mode);
}

/* Asked one by one: the scan does not look everywhere (dot files), and misses what is renamed while it reads.
 */
static void find_gone(struct capture *c, bool whole)
{
    size_t pos = 0;

    for (struct known_file *f = known_next(&c->w->known, &pos); f; f = known_next(&c->w->known, &pos)) {
        if (f->seen == c->w->scan || f->state == KNOWN_REMOVED)
            continue;
        if (f->sig.inode == 0 ? whole : is_gone(c->w, f->path))
            note_gone(c, f);
    }
}

void capture_scan(struct capture *c)
{
    char text[CAPTURE_REASON_SIZE];
    const struct workspace_limits *limits = &c->w->limits;
    const struct walk walk = {
        .root_fd = c->w->data_fd,
        .max_entries = limits->max_files,
        .max_depth = limits->max_depth,
        .wanted = is_result_name,
        .entry = look_at,
        .trouble = trouble,
        .state = c,
    };

    c->w->scan++;
    bool whole = walk_tree(&walk);
    if (!whole) {
        (void)snprintf(text, sizeof text, "more than %" PRId64 " entries: the rest was not looked at",
                       limits->max_files);
        capture_skip(c, "*", text);
    }
    find_gone(c, whole);
}
