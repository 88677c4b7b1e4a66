#include <dlfcn.h>
#include <pthread.h>
#include <sys/mman.h>

#include "tests/unit/files_fixture.h"

/* ---- what is a result ---- */

enum action { DONE, PUT, APPEND, TOUCH, REMOVE, REWRITE, MKDIR, CHMOD };

struct step {
    enum action action;
    const char *path, *text;
};

static void touch(struct fixture *f, const char *path)
{
    auto_free char *full = in_data(f, path);

    assert_int_equal(utimensat(AT_FDCWD, full, (struct timespec[2]){ { 1, 0 }, { 1, 0 } }, 0), 0);
}

static void do_step(struct fixture *f, const struct step *s)
{
    auto_free char *full = in_data(f, s->path);
    auto_free char *temporary = xasprintf("%s.tmp", s->path);
    auto_free char *full_temporary = in_data(f, temporary);

    switch (s->action) {
    case PUT:
        put(f, s->path, s->text);
        break;
    case APPEND:
        put_bytes(f, s->path, s->text, O_APPEND);
        break;
    case TOUCH:
        touch(f, s->path);
        break;
    case REMOVE:
        take_away(f, s->path);
        break;
    case REWRITE: /* as editors do */
        put(f, temporary, s->text);
        assert_int_equal(rename(full_temporary, full), 0);
        break;
    case MKDIR:
        make_dirs(f, s->path);
        assert_int_equal(mkdir(full, 0755), 0);
        break;
    case CHMOD:
        assert_int_equal(chmod(full, 0600), 0);
        break;
    case DONE:
        break;
    }
}

static void changes_are_reported_once(void **state)
{
    static const struct {
        struct step before[5], during[5];
        const char *changes;
    } cases[] = {
        { { { 0 } }, { { PUT, "a", "abc" } }, "+a" },
        { { { 0 } }, { { PUT, "a", "" } }, "+a" },
        { { { 0 } },
          { { PUT, "rep/2023/q", "x" }, { PUT, "rep/2024/q", "y" } },
          "+rep/2023/q | +rep/2024/q" },
        { { { PUT, "a", "abc" } }, { { 0 } }, "" },
        { { { PUT, "a", "abc" } }, { { APPEND, "a", "d" } }, "~a" },
        { { { PUT, "a", "abc" } }, { { PUT, "a", "xyz" } }, "~a" },
        { { { PUT, "a", "abc" } }, { { REWRITE, "a", "xyz" } }, "~a" },
        { { { PUT, "a", "abc" } }, { { REWRITE, "a", "abc" } }, "" },
        { { { PUT, "a", "abc" } }, { { TOUCH, "a", NULL } }, "" },
        { { { PUT, "a", "abc" } }, { { PUT, "a", "abc" } }, "" },
        { { { PUT, "a", "abc" } }, { { CHMOD, "a", NULL } }, "" },
        { { { PUT, "a", "abc" } }, { { REMOVE, "a", NULL } }, "-a" },
        { { { PUT, "a", "abc" } }, { { REMOVE, "a", NULL }, { MKDIR, "a", NULL } }, "-a" },
        { { { PUT, "a", "abc" } }, { { REMOVE, "a", NULL }, { PUT, "a/b", "x" } }, "+a/b | -a" },
        { { { PUT, "a", "abc" } }, { { REMOVE, "a", NULL }, { PUT, "b", "abc" } }, "+b | -a" },
        { { { PUT, "a/b", "abc" } },
          { { REMOVE, "a/b", NULL }, { REMOVE, "a", NULL }, { PUT, "a", "x" } },
          "+a | -a/b" },
        { { { 0 } }, { { MKDIR, "empty", NULL } }, "" },
        { { { 0 } },
          { { PUT, "__pycache__/m.pyc", "x" },
            { PUT, ".cache/lib/f", "x" },
            { PUT, ".hidden", "x" },
            { PUT, "m.py", "x" } },
          "+m.py" },
        { { { 0 } },
          { { PUT, "sub/.ipynb_checkpoints/n", "x" },
            { PUT, "sub/node_modules/p/i.js", "x" },
            { PUT, "sub/__pycache__/m", "x" } },
          "" },
        { { { 0 } },
          { { PUT, "no extension", "x" }, { PUT, "weird.zzz", "x" } },
          "+no extension | +weird.zzz" },
        { { { 0 } },
          { { PUT, "quo\"te's", "x" },
            { PUT, "two\nlines", "x" },
            { PUT, "\xd0\xbe \xf0\x9f\x9a\x80", "x" } },
          "+quo\"te's | +two\nlines | +\xd0\xbe \xf0\x9f\x9a\x80" },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        (void)setup(state);
        struct fixture *f = *state;
        for (const struct step *s = cases[i].before; s->action != DONE; s++)
            do_step(f, s);
        capture(f);
        for (const struct step *s = cases[i].during; s->action != DONE; s++)
            do_step(f, s);
        capture(f);
        auto_free char *text = changes_text(&f->changes);
        if (!str_eq(text, cases[i].changes))
            fail_msg("case %zu: %s instead of %s", i, text, cases[i].changes);
        capture(f);
        assert_changes(f, "");
        reopen_workspace(f);
        capture(f);
        assert_changes(f, "");
        (void)teardown(state);
    }
}

static void a_result_is_an_object_of_the_session(void **state)
{
    struct fixture *f = *state;
    char old[ID_SIZE];

    put(f, "sub/a.txt", "first");
    capture(f);
    const struct object *o = captured(f, "sub/a.txt");
    memcpy(old, o->id, sizeof old);
    assert_string_equal(o->session_id, f->session);
    assert_int_equal(o->size, 5);
    assert_false(o->uploaded || o->read_only);
    put(f, "sub/a.txt", "second");
    capture(f);
    o = captured(f, "sub/a.txt");
    assert_string_equal(o->modified_from, old);
    assert_string_equal(o->modified_from_session, f->session);
    auto_free char *before = object_text(f, old);
    auto_free char *after = object_text(f, o->id);
    assert_string_equal(before, "first");
    assert_string_equal(after, "second");
}

static void a_changed_input_continues_it(void **state)
{
    struct fixture *f = *state;
    char id[ID_SIZE];

    store_text(f, (struct upload){ .name = "a", .text = "abc", .session = f->other_session }, id);
    place_one(f, "a", id);
    capture(f);
    assert_changes(f, "");
    put(f, "a", "abd");
    capture(f);
    assert_changes(f, "~a");
    assert_string_equal(captured(f, "a")->modified_from, id);
    assert_string_equal(captured(f, "a")->modified_from_session, f->other_session);
    assert_string_equal(captured(f, "a")->session_id, f->session);
}

static void a_read_only_input_is_never_returned(void **state)
{
    struct fixture *f = *state;
    char id[ID_SIZE];

    store_text(f, (struct upload){ .name = "a", .text = "abc", .read_only = true }, id);
    place_one(f, "a", id);
    auto_free char *path = in_data(f, "a");
    assert_int_equal(chmod(path, 0644), 0);
    for (int i = 0; i < 3; i++) {
        auto_free char *text = xasprintf("work %d", i);
        put(f, "a", text);
        capture(f);
        assert_changes(f, "");
        reopen_workspace(f);
        place_one(f, "a", id);
        assert_file(f, "a", text);
    }
    take_away(f, "a");
    capture(f);
    assert_changes(f, "-a");
    put(f, "a", "made anew");
    capture(f);
    assert_changes(f, "~a");
}

static void a_dot_file_that_was_placed_is_left_alone(void **state)
{
    struct fixture *f = *state;
    char id[ID_SIZE];

    store_text(f, (struct upload){ .name = ".env", .text = "abc" }, id);
    place_one(f, ".env", id);
    put(f, ".env", "work");
    capture(f);
    assert_changes(f, "");
    place_one(f, ".env", id);
    assert_file(f, ".env", "work");
    take_away(f, ".env");
    capture(f);
    assert_changes(f, "-.env");
    place_one(f, ".env", id);
    assert_file(f, ".env", "(none)");
}

/* ---- signatures ---- */

static void set_row(struct fixture *f, const char *path, int64_t taken_after_ctime_ns)
{
    struct stat st;

    auto_free char *full = in_data(f, path);
    assert_int_equal(stat(full, &st), 0);
    int64_t mtime = st.st_mtim.tv_sec * INT64_C(1000000000) + st.st_mtim.tv_nsec;
    int64_t ctime = st.st_ctim.tv_sec * INT64_C(1000000000) + st.st_ctim.tv_nsec;
    OK(db_run(f->db, &oops,
              "UPDATE workspace_files SET inode = ?, size = ?, mtime_ns = ?, ctime_ns = ?, taken_ns = ? "
              "WHERE path = ?",
              "iiiiis", (int64_t)st.st_ino, (int64_t)st.st_size, mtime, ctime, ctime + taken_after_ctime_ns,
              path));
}

/* A signature that equals that of the changed file: what a write in the same tick of the clock looks like. */
static void a_young_signature_is_not_trusted(void **state)
{
    static const struct {
        int64_t taken_after_ctime_ns;
        const char *changes;
    } cases[] = {
        { 0, "~a" },
        { 49999999, "~a" },
        { -1000000000, "~a" }, /* the clock was set back */
        { 50000000, "" },      /* old enough: nobody reads the file, which shows that the fast path is one */
    };
    struct fixture *f = *state;

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        put(f, "a", "abc");
        capture(f);
        put(f, "a", i % 2 ? "xyz" : "uvw");
        set_row(f, "a", cases[i].taken_after_ctime_ns);
        reopen_workspace(f);
        capture(f);
        assert_changes(f, cases[i].changes);
    }
}

static void a_write_through_a_mapping_is_seen(void **state)
{
    struct fixture *f = *state;

    put(f, "a", "abcdef");
    auto_free char *path = in_data(f, "a");
    auto_close int fd = open(path, O_RDWR | O_CLOEXEC);
    char *map = mmap(NULL, 6, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(map != MAP_FAILED);
    map[0] = 'X';
    capture(f);
    assert_changes(f, "+a");
    for (int i = 0; i < 3; i++) {
        set_row(f, "a", 60000000); /* as if time had passed: the signature is trusted */
        reopen_workspace(f);
        map[1] = (char)('0' + i); /* the page is still mapped for writing */
        capture(f);
        assert_changes(f, "~a");
        auto_free char *text = object_text(f, captured(f, "a")->id);
        assert_int_equal(text[1], '0' + i);
    }
    assert_int_equal(munmap(map, 6), 0);
}

/* ---- files that change while they are read: every block that is hashed can first let somebody write ---- */

static char *grow_path; /* appended to at the next block; NULL: nothing */
static const char *grow_text;
static int grow_flags;

void nettle_sha256_update(void *ctx, size_t len, const uint8_t *data);
void nettle_sha256_update(void *ctx, size_t len, const uint8_t *data)
{
    void (*real)(void *, size_t, const uint8_t *) = NULL;

    *(void **)&real = dlsym(RTLD_NEXT, "nettle_sha256_update");
    if (grow_path) {
        struct error err = { 0 };
        auto_free char *path = steal_ptr(&grow_path);
        auto_close int fd = open(path, O_WRONLY | O_CLOEXEC | grow_flags);
        assert_true(fd >= 0);
        assert_int_equal(fd_write_all(fd, grow_text, strlen(grow_text), &err), 0);
    }
    real(ctx, len, data);
}

static void a_file_that_changes_while_it_is_copied_waits(void **state)
{
    static const struct {
        const char *before; /* NULL: it is new */
        const char *now, *meanwhile;
        int flags;
        const char *changes, *later;
    } cases[] = {
        { NULL, "abc", "def", O_APPEND, "!f: still being written", "+f" },
        { NULL, "abc", "xyz", 0, "!f: still being written", "+f" },
        { NULL, "abc", "", O_TRUNC, "!f: still being written", "+f" },
        { "abc", "abcabc", "def", O_APPEND, "!f: still being written", "~f" },
        { "abc", "abd", "xyz", 0, "!f: still being written", "~f" }, /* the hash comes first: same size */
        { "abc", "abc", "xyz", 0, "", "~f" }, /* only touched, then changed while that was found out */
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        (void)setup(state);
        struct fixture *f = *state;
        if (cases[i].before) {
            put(f, "f", cases[i].before);
            capture(f);
        }
        put(f, "f", cases[i].now);
        put(f, "other", "is captured all the same");
        grow_path = in_data(f, "f");
        grow_text = cases[i].meanwhile;
        grow_flags = cases[i].flags;
        size_t stored = stored_files(f);
        capture(f);
        assert_null(grow_path);
        auto_free char *expected = xasprintf("%s%s+other", cases[i].changes, *cases[i].changes ? " | " : "");
        auto_free char *text = changes_text(&f->changes);
        if (!str_eq(text, expected) && !(*cases[i].changes && strstr(text, cases[i].changes)))
            fail_msg("case %zu: %s instead of %s", i, text, expected);
        assert_int_equal(f->changes.files.count, 1);
        assert_int_equal(stored_files(f), stored + 1);
        capture(f);
        assert_changes(f, cases[i].later);
        (void)teardown(state);
    }
}

/* ---- limits ---- */

static void make_sparse(struct fixture *f, const char *path, off_t size)
{
    put(f, path, "x");
    auto_free char *full = in_data(f, path);
    assert_int_equal(truncate(full, size), 0);
}

static void a_file_that_is_too_large_is_named_once(void **state)
{
    struct fixture *f = *state;

    make_sparse(f, "huge", (off_t)1 << 40);
    make_sparse(f, "fits", 1 << 20);
    make_sparse(f, "over", (1 << 20) + 1);
    capture(f);
    assert_changes(f, "!huge: larger than 1 MiB | !over: larger than 1 MiB | +fits");
    capture(f);
    assert_changes(f, "");
    reopen_workspace(f);
    capture(f);
    assert_changes(f, "");
    put(f, "huge", "small now");
    take_away(f, "over");
    capture(f);
    assert_changes(f, "+huge");
}

static void a_file_that_became_too_large_keeps_its_lineage(void **state)
{
    struct fixture *f = *state;
    char id[ID_SIZE];

    store_text(f, (struct upload){ .name = "a", .text = "abc" }, id);
    place_one(f, "a", id);
    make_sparse(f, "a", 2 << 20);
    capture(f);
    assert_changes(f, "!a: larger than 1 MiB");
    place_one(f, "a", id);
    assert_changes(f, "");
    put(f, "a", "work");
    capture(f);
    assert_changes(f, "~a");
    assert_string_equal(captured(f, "a")->modified_from, id);
}

static void files_past_the_number_are_named_once(void **state)
{
    struct fixture *f = *state;

    f->limits.max_captured_files = 2;
    reopen_workspace(f);
    put(f, "d", "4");
    put(f, "c", "3");
    put(f, "b", "2");
    put(f, "a", "1");
    capture(f);
    assert_changes(
        f, "!c: more than 2 files in one execution | !d: more than 2 files in one execution | +a | +b");
    capture(f);
    assert_changes(f, "");
    put(f, "d", "5");
    capture(f);
    assert_changes(f, "+d");
}

static void bytes_past_the_total_are_named(void **state)
{
    struct fixture *f = *state;

    for (int i = 0; i < 5; i++) {
        auto_free char *name = xasprintf("%d", i);
        make_sparse(f, name, 1 << 20);
    }
    capture(f);
    assert_changes(f, "!4: more than 4 MiB in one execution | +0 | +1 | +2 | +3");
}

static void many_skipped_files_are_counted(void **state)
{
    struct fixture *f = *state;

    f->limits.max_captured_files = 0;
    reopen_workspace(f);
    for (int i = 0; i < 150; i++) {
        auto_free char *name = xasprintf("%d", i);
        put(f, name, "x");
    }
    capture(f);
    assert_int_equal(f->changes.skipped_count, 101);
    assert_string_equal(f->changes.skipped[100].reason, "and 50 more");
    capture(f);
    assert_changes(f, "");
}

static void a_scan_that_is_cut_short_says_so_and_loses_nothing(void **state)
{
    struct fixture *f = *state;

    for (int i = 0; i < 50; i++) {
        auto_free char *name = xasprintf("%d", i);
        put(f, name, "x");
    }
    capture(f);
    assert_int_equal(f->changes.files.count, 50);
    f->limits.max_files = 10;
    reopen_workspace(f);
    take_away(f, "7");
    for (int i = 0; i < 2; i++) {
        capture(f);
        assert_changes(f, i == 0 ? "!*: more than 10 entries: the rest was not looked at | -7"
                                 : "!*: more than 10 entries: the rest was not looked at");
    }
}

static void ten_thousand_files(void **state)
{
    struct fixture *f = *state;

    f->limits.max_captured_files = 500;
    reopen_workspace(f);
    for (int i = 0; i < 10000; i++) {
        auto_free char *name = xasprintf("d%d/%04d", i % 10, i);
        put(f, name, "x");
    }
    capture(f);
    assert_int_equal(f->changes.files.count, 500);
    assert_string_equal(f->changes.files.items[0].name, "d0/0000");
    assert_string_equal(f->changes.skipped[100].reason, "and 9400 more");
    reopen_workspace(f);
    capture(f);
    assert_changes(f, "");
    take_away(f, "d0/0010");
    take_away(f, "d9/9999");
    put(f, "d8/0008", "y");
    put(f, "d0/0000", "y");
    capture(f);
    assert_changes(f, "+d8/0008 | -d0/0010 | ~d0/0000");
}

/* ---- failures ---- */

static void a_store_that_fails_costs_files_but_not_the_answer(void **state)
{
    struct fixture *f = *state;

    auto_free char *tmp = xasprintf("%s/tmp", f->store_dir);
    put(f, "a", "abc");
    assert_int_equal(rmdir(tmp), 0);
    capture(f);
    assert_int_equal(f->changes.skipped_count, 1);
    assert_string_equal(f->changes.skipped[0].name, "a");
    store_close(f->store);
    OK(store_open(f->store_dir, f->db, &f->store, &oops));
    reopen_workspace(f);
    capture(f);
    assert_changes(f, "+a");
}

static void a_database_that_fails_leaves_everything_for_the_next_capture(void **state)
{
    struct fixture *f = *state;
    struct error err = { 0 };

    put(f, "gone", "abc");
    capture(f);
    OK(db_run(f->db, &oops,
              "CREATE TRIGGER refuse BEFORE INSERT ON workspace_files WHEN NEW.path = 'a' BEGIN SELECT "
              "RAISE(ABORT, 'no'); END",
              ""));
    put(f, "a", "abc");
    take_away(f, "gone");
    workspace_changes_done(&f->changes);
    assert_int_equal(workspace_capture(f->w, &f->changes, &err), -1);
    assert_int_equal(stored_files(f), 1);
    OK(db_run(f->db, &oops, "DROP TRIGGER refuse", ""));
    capture(f);
    assert_changes(f, "+a | -gone");
    assert_int_equal(stored_files(f), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(changes_are_reported_once),
        cmocka_unit_test_setup_teardown(a_result_is_an_object_of_the_session, setup, teardown),
        cmocka_unit_test_setup_teardown(a_changed_input_continues_it, setup, teardown),
        cmocka_unit_test_setup_teardown(a_read_only_input_is_never_returned, setup, teardown),
        cmocka_unit_test_setup_teardown(a_dot_file_that_was_placed_is_left_alone, setup, teardown),
        cmocka_unit_test_setup_teardown(a_young_signature_is_not_trusted, setup, teardown),
        cmocka_unit_test_setup_teardown(a_write_through_a_mapping_is_seen, setup, teardown),
        cmocka_unit_test(a_file_that_changes_while_it_is_copied_waits),
        cmocka_unit_test_setup_teardown(a_file_that_is_too_large_is_named_once, setup, teardown),
        cmocka_unit_test_setup_teardown(a_file_that_became_too_large_keeps_its_lineage, setup, teardown),
        cmocka_unit_test_setup_teardown(files_past_the_number_are_named_once, setup, teardown),
        cmocka_unit_test_setup_teardown(bytes_past_the_total_are_named, setup, teardown),
        cmocka_unit_test_setup_teardown(many_skipped_files_are_counted, setup, teardown),
        cmocka_unit_test_setup_teardown(a_scan_that_is_cut_short_says_so_and_loses_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(ten_thousand_files, setup, teardown),
        cmocka_unit_test_setup_teardown(a_store_that_fails_costs_files_but_not_the_answer, setup, teardown),
        cmocka_unit_test_setup_teardown(a_database_that_fails_leaves_everything_for_the_next_capture, setup,
                                        teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
