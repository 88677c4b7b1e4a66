/* files_fixture.h - a store, a database and one session's box in a directory of their own. */
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "common/fd.h"
#include "orchestrator/files/workspace.h"

struct fixture {
    char *dir, *store_dir, *box, *data;
    char session[ID_SIZE], other_session[ID_SIZE];
    struct db *db;
    struct store *store;
    struct workspace *w;
    struct workspace_limits limits;
    struct workspace_changes changes;
};

/* call passes &oops for its error. */
#define OK(call)                                                                                             \
    do {                                                                                                     \
        struct error oops = { 0 };                                                                           \
        if ((call) < 0)                                                                                      \
            fail_msg("%s: %s", #call, oops.msg);                                                             \
    } while (0)

static inline void add_session(struct fixture *f, char id[ID_SIZE])
{
    id_new(id);
    OK(db_run(f->db, &oops,
              "INSERT INTO sessions (id, tenant, created_ms, last_used_ms) VALUES (?, 't', 0, 0)", "s", id));
}

static inline void open_workspace(struct fixture *f)
{
    OK(workspace_open(f->box, f->session, geteuid() == 0 ? 12345 : geteuid(), f->store, f->db, &f->limits,
                      &f->w, &oops));
}

static inline void reopen_workspace(struct fixture *f)
{
    workspace_close(f->w);
    f->w = NULL;
    open_workspace(f);
}

static inline int setup(void **state)
{
    struct fixture *f = xcalloc(1, sizeof *f);
    /* On a disk: in memory file systems a write through a shared mapping does not change the times again. */
    char dir[] = "/var/tmp/carrel-test-XXXXXX";

    assert_non_null(mkdtemp(dir));
    f->dir = xstrdup(dir);
    f->store_dir = xasprintf("%s/store", dir);
    f->box = xasprintf("%s/box", dir);
    f->data = xasprintf("%s/data", f->box);
    f->limits = (struct workspace_limits){
        .max_file_bytes = 1 << 20, .max_captured_files = 200, .max_files = 20000, .max_depth = 64
    };
    assert_int_equal(mkdir(f->store_dir, 0700), 0);
    auto_free char *path = xasprintf("%s/carrel.db", dir);
    OK(db_open(path, &f->db, &oops));
    OK(store_open(f->store_dir, f->db, &f->store, &oops));
    add_session(f, f->session);
    add_session(f, f->other_session);
    open_workspace(f);
    *state = f;
    return 0;
}

static inline int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static inline int teardown(void **state)
{
    struct fixture *f = *state;

    workspace_changes_done(&f->changes);
    workspace_close(f->w);
    store_close(f->store);
    db_close(f->db);
    assert_int_equal(nftw(f->dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS), 0);
    free(f->dir);
    free(f->store_dir);
    free(f->box);
    free(f->data);
    free(f);
    return 0;
}

/* ---- objects ---- */

struct upload { /* what store() is told */
    const char *session, *name, *text, *from;
    bool read_only, made; /* made: by an execution */
};

static inline void store_text(struct fixture *f, struct upload u, char ret_id[ID_SIZE])
{
    struct store_writer *w = NULL;
    auto_object struct object o = { 0 };
    struct object meta = { .content_type = xstrdup("text/plain"),
                           .name = xstrdup(u.name),
                           .read_only = u.read_only,
                           .uploaded = !u.made };

    (void)stpcpy(meta.session_id, u.session ? u.session : f->session);
    if (u.from)
        (void)stpcpy(meta.modified_from, u.from);
    OK(store_writer_new(f->store, INT64_MAX, &w, &oops));
    OK(store_writer_write(w, u.text, strlen(u.text), &oops));
    OK(store_writer_commit(w, &meta, &o, &oops));
    store_writer_free(w);
    object_done(&meta);
    memcpy(ret_id, o.id, ID_SIZE);
}

static inline char *read_fd(int fd)
{
    struct error err = { 0 };
    char *text = xcalloc(1, 1 << 16);
    size_t n = 0;

    assert_int_equal(fd_read_full(fd, text, (1 << 16) - 1, &n, &err), 0);
    (void)close(fd);
    return text;
}

static inline char *object_text(struct fixture *f, const char *id)
{
    int fd = -1;

    OK(store_open_object(f->store, id, &fd, &oops));
    return read_fd(fd);
}

static inline bool object_exists(struct fixture *f, const char *id)
{
    auto_object struct object o = { 0 };
    struct error err = { 0 };

    return store_find(f->store, id, &o, &err) == 0;
}

static size_t files_counted;
static inline int count_file(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)path;
    (void)st;
    (void)ftw;
    files_counted += type == FTW_F;
    return 0;
}

static inline size_t files_below(const char *dir)
{
    files_counted = 0;
    assert_int_equal(nftw(dir, count_file, 16, FTW_PHYS), 0);
    return files_counted;
}

static inline size_t stored_files(struct fixture *f) { return files_below(f->store_dir); }

/* ---- the workspace, as session code sees it ---- */

static inline char *in_data(struct fixture *f, const char *path) { return xasprintf("%s/%s", f->data, path); }

static inline void make_dirs(struct fixture *f, const char *path)
{
    auto_free char *full = in_data(f, path);

    for (char *p = full + strlen(f->data) + 1; (p = strchr(p, '/')) != NULL; p++) {
        *p = '\0';
        assert_true(mkdir(full, 0755) == 0 || errno == EEXIST);
        *p = '/';
    }
}

static inline void put_bytes(struct fixture *f, const char *path, const char *text, int flags)
{
    struct error err = { 0 };

    make_dirs(f, path);
    auto_free char *full = in_data(f, path);
    auto_close int fd = open(full, O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0644);
    assert_true(fd >= 0);
    assert_int_equal(fd_write_all(fd, text, strlen(text), &err), 0);
}

static inline void put(struct fixture *f, const char *path, const char *text)
{
    put_bytes(f, path, text, O_TRUNC);
}

static inline void take_away(struct fixture *f, const char *path)
{
    auto_free char *full = in_data(f, path);

    assert_int_equal(remove(full), 0);
}

static inline char *text_of(struct fixture *f, const char *path) /* "(none)" when there is nothing to read */
{
    auto_free char *full = in_data(f, path);
    int fd = open(full, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

    return fd < 0 ? xstrdup("(none)") : read_fd(fd);
}

#define assert_file(f, path, text)                                                                           \
    do {                                                                                                     \
        char *got_ = text_of(f, path);                                                                       \
        assert_string_equal(got_, text);                                                                     \
        free(got_);                                                                                          \
    } while (0)

static inline void place(struct fixture *f, const struct workspace_ref *refs, size_t n)
{
    workspace_changes_done(&f->changes);
    OK(workspace_place(f->w, refs, n, &f->changes, &oops));
}

static inline void place_one(struct fixture *f, const char *name, const char *id)
{
    place(f, &(struct workspace_ref){ id, name }, 1);
}

static inline void capture(struct fixture *f)
{
    workspace_changes_done(&f->changes);
    OK(workspace_capture(f->w, &f->changes, &oops));
}

static inline int compare_words(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The changes as words: "+new" "~continues.another" "-deleted" "!skipped: reason", sorted, joined by " | ".
 */
static inline char *changes_text(const struct workspace_changes *c)
{
    size_t n = 0, count = c->files.count + c->deleted_count + c->skipped_count, len = 1;
    char **words = xcalloc(count, sizeof(char *));

    for (size_t i = 0; i < c->files.count; i++) {
        const struct object *o = &c->files.items[i];
        words[n++] = xasprintf("%c%s", o->modified_from[0] ? '~' : '+', o->name);
    }
    for (size_t i = 0; i < c->deleted_count; i++)
        words[n++] = xasprintf("-%s", c->deleted[i]);
    for (size_t i = 0; i < c->skipped_count; i++)
        words[n++] = xasprintf("!%s: %s", c->skipped[i].name, c->skipped[i].reason);
    if (n > 0)
        qsort(words, n, sizeof(char *), compare_words);
    for (size_t i = 0; i < n; i++)
        len += strlen(words[i]) + 3;
    char *text = xcalloc(1, len), *end = text;
    for (size_t i = 0; i < n; i++) {
        end = stpcpy(stpcpy(end, i ? " | " : ""), words[i]);
        free(words[i]);
    }
    free(words);
    return text;
}

#define assert_changes(f, expected)                                                                          \
    do {                                                                                                     \
        char *got_ = changes_text(&(f)->changes);                                                            \
        assert_string_equal(got_, expected);                                                                 \
        free(got_);                                                                                          \
    } while (0)

static inline const struct object *captured(struct fixture *f, const char *name)
{
    for (size_t i = 0; i < f->changes.files.count; i++) {
        if (str_eq(f->changes.files.items[i].name, name))
            return &f->changes.files.items[i];
    }
    fail_msg("%s was not captured", name);
    abort(); /* not reached */
}
