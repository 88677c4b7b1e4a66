#include "tests/unit/files_fixture.h"

/* ---- placing ---- */

static void a_reference_becomes_a_file_of_the_session(void **state)
{
    static const struct {
        const char *name;
        bool read_only;
        mode_t mode;
    } cases[] = {
        { "a.csv", false, 0644 },     { "in/deep/b.csv", false, 0644 },
        { "skill/c.md", true, 0444 }, { "two\nlines \xf0\x9f\x9a\x80", false, 0644 },
        { ".hidden", false, 0644 },
    };
    struct fixture *f = *state;
    uid_t uid = geteuid() == 0 ? 12345 : geteuid();

    (void)umask(077);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char id[ID_SIZE];
        struct stat st, dir;
        store_text(
            f, (struct upload){ .name = cases[i].name, .text = "abc", .read_only = cases[i].read_only }, id);
        place_one(f, cases[i].name, id);
        assert_changes(f, "");
        assert_file(f, cases[i].name, "abc");
        auto_free char *path = in_data(f, cases[i].name);
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_mode & 07777, cases[i].mode);
        assert_int_equal(st.st_uid, uid);
        assert_int_equal(st.st_gid, uid);
        assert_int_equal(st.st_nlink, 1);
        *strrchr(path, '/') = '\0';
        assert_int_equal(stat(path, &dir), 0);
        assert_int_equal(dir.st_uid, uid);
        assert_int_equal(dir.st_mode & 0777, strchr(cases[i].name, '/') ? 0755 : 0700);
    }
    (void)umask(022);
    capture(f);
    assert_changes(f, "");
}

static void an_empty_file_is_placed(void **state)
{
    struct fixture *f = *state;
    char id[ID_SIZE];

    store_text(f, (struct upload){ .name = "empty", .text = "" }, id);
    place_one(f, "empty", id);
    assert_file(f, "empty", "");
    capture(f);
    assert_changes(f, "");
}

static void a_large_file_is_placed_whole(void **state)
{
    struct fixture *f = *state;
    struct stat st;
    char id[ID_SIZE];

    auto_free char *text = xcalloc(1, 5000001);
    memset(text, 'x', 5000000);
    store_text(f, (struct upload){ .name = "big", .text = text }, id);
    place_one(f, "big", id);
    auto_free char *path = in_data(f, "big");
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, 5000000);
}

static void the_last_of_several_references_wins(void **state)
{
    struct fixture *f = *state;
    char one[ID_SIZE], two[ID_SIZE];

    store_text(f, (struct upload){ .name = "a", .text = "first" }, one);
    store_text(f, (struct upload){ .name = "a", .text = "second" }, two);
    place(f, (struct workspace_ref[]){ { one, "a" }, { two, "a" } }, 2);
    assert_file(f, "a", "second");
    place(f, (struct workspace_ref[]){ { two, "a" }, { one, "a" } }, 2);
    assert_file(f, "a", "first");
    assert_changes(f, "");
}

static void one_object_may_have_several_names(void **state)
{
    struct fixture *f = *state;
    char id[ID_SIZE];

    store_text(f, (struct upload){ .name = "a", .text = "abc" }, id);
    place(f, (struct workspace_ref[]){ { id, "a" }, { id, "b/a" } }, 2);
    assert_file(f, "a", "abc");
    assert_file(f, "b/a", "abc");
    put(f, "a", "changed");
    capture(f);
    assert_changes(f, "~a");
    assert_file(f, "b/a", "abc");
    auto_free char *text = object_text(f, id);
    assert_string_equal(text, "abc");
}

static void what_cannot_be_placed_is_named(void **state)
{
    enum { DIRECTORY, FILE_ABOVE, LINK_ABOVE, BYTES_GONE, ROW_GONE };
    static const struct {
        int trouble;
        const char *name, *changes;
    } cases[] = {
        { DIRECTORY, "d", "!d: a directory is in the way" },
        { DIRECTORY, "e/f", "!e/f: a directory is in the way" },
        { FILE_ABOVE, "g/h", "!g/h: a file or a link is in the way of its directory" },
        { FILE_ABOVE, "i/j/k", "!i/j/k: a file or a link is in the way of its directory" },
        { LINK_ABOVE, "l/m", "!l/m: a file or a link is in the way of its directory" },
        { BYTES_GONE, "n", "!n: its stored bytes are gone" },
        { ROW_GONE, "o", "!o: no such file: unknown or expired" },
    };
    struct fixture *f = *state;

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char id[ID_SIZE];
        auto_free char *path = in_data(f, cases[i].name);
        store_text(f, (struct upload){ .name = "x", .text = "abc" }, id);
        auto_free char *object = xasprintf("%s/objects/%.2s/%s", f->store_dir, id, id);
        auto_free char *top = in_data(f, (char[]){ cases[i].name[0], '\0' });
        switch (cases[i].trouble) {
        case DIRECTORY:
            make_dirs(f, cases[i].name);
            assert_int_equal(mkdir(path, 0755), 0);
            break;
        case FILE_ABOVE:
            put(f, (char[]){ cases[i].name[0], '\0' }, "in the way");
            break;
        case LINK_ABOVE:
            assert_int_equal(symlink(f->dir, top), 0);
            break;
        case BYTES_GONE:
            assert_int_equal(unlink(object), 0);
            break;
        default:
            OK(store_delete(f->store, id, &oops));
        }
        place_one(f, cases[i].name, id);
        assert_changes(f, cases[i].changes);
    }
    assert_int_equal(files_below(f->box), 2);
}

/* ---- uploads that wait ---- */

static void upload(struct fixture *f, const char *name, const char *text, char ret_id[ID_SIZE])
{
    store_text(f, (struct upload){ .name = name, .text = text }, ret_id);
    OK(workspace_mark_pending(f->db, f->session, name, ret_id, &oops));
    workspace_refresh(f->w);
}

static void an_upload_is_placed_once(void **state)
{
    struct fixture *f = *state;
    char id[ID_SIZE];

    upload(f, "a", "abc", id);
    place(f, NULL, 0);
    assert_file(f, "a", "abc");
    put(f, "a", "work");
    place(f, NULL, 0);
    reopen_workspace(f);
    place(f, NULL, 0);
    assert_file(f, "a", "work");
    capture(f);
    assert_changes(f, "~a");
}

static void an_upload_waits_for_its_workspace(void **state)
{
    struct fixture *f = *state;
    char id[ID_SIZE];

    workspace_close(f->w);
    f->w = NULL;
    store_text(f, (struct upload){ .name = "a", .text = "abc" }, id);
    OK(workspace_mark_pending(f->db, f->session, "a", id, &oops));
    open_workspace(f);
    place(f, NULL, 0);
    assert_file(f, "a", "abc");
}

static void a_new_upload_replaces_what_code_made_or_removed(void **state)
{
    struct fixture *f = *state;
    char one[ID_SIZE], two[ID_SIZE], three[ID_SIZE];

    upload(f, "a", "first", one);
    place(f, NULL, 0);
    put(f, "a", "work");
    capture(f);
    upload(f, "a", "second", two);
    place_one(f, "a", two);
    assert_changes(f, "");
    assert_file(f, "a", "second");
    take_away(f, "a");
    capture(f);
    assert_changes(f, "-a");
    upload(f, "a", "third", three);
    place(f, NULL, 0);
    assert_file(f, "a", "third");
}

static void an_upload_during_an_execution_is_not_lost(void **state)
{
    struct fixture *f = *state;
    char one[ID_SIZE], two[ID_SIZE];

    upload(f, "a", "first", one);
    place(f, NULL, 0);
    put(f, "a", "work");
    upload(f, "a", "second", two);
    capture(f);
    assert_changes(f, "~a");
    place(f, NULL, 0);
    assert_file(f, "a", "second");
}

static void an_upload_continues_what_stands_at_its_name(void **state)
{
    struct fixture *f = *state;
    char at[ID_SIZE], id[3][ID_SIZE];
    static const char *const texts[] = { "one", "two", "three" };

    for (size_t i = 0; i < 3; i++) {
        OK(workspace_object_at(f->db, f->session, "a", at, &oops));
        assert_string_equal(at, i ? id[i - 1] : "");
        store_text(f, (struct upload){ .name = "a", .text = texts[i], .from = i ? at : NULL }, id[i]);
        OK(workspace_mark_pending(f->db, f->session, "a", id[i], &oops));
        workspace_refresh(f->w);
        if (i == 0) /* the second and the third come between two executions */
            place(f, NULL, 0);
    }
    for (size_t i = 0; i < 3; i++) { /* neither before the upload is placed nor after */
        place_one(f, "a", id[i]);
        assert_file(f, "a", "three");
    }
    take_away(f, "a");
    capture(f);
    OK(workspace_object_at(f->db, f->session, "a", at, &oops));
    assert_string_equal(at, id[2]); /* a removed file is continued too */
    OK(workspace_object_at(f->db, f->other_session, "a", at, &oops));
    assert_string_equal(at, "");
    OK(workspace_object_at(f->db, f->session, "b", at, &oops));
    assert_string_equal(at, "");
}

static void an_upload_that_cannot_be_placed_keeps_waiting(void **state)
{
    struct fixture *f = *state;
    char id[ID_SIZE];

    auto_free char *dir = in_data(f, "a");
    assert_int_equal(mkdir(dir, 0755), 0);
    upload(f, "a", "abc", id);
    for (int i = 0; i < 2; i++) {
        place(f, NULL, 0);
        assert_changes(f, "!a: a directory is in the way");
    }
    assert_int_equal(rmdir(dir), 0);
    place(f, NULL, 0);
    assert_changes(f, "");
    assert_file(f, "a", "abc");
}

static void an_upload_that_was_deleted_is_forgotten(void **state)
{
    struct fixture *f = *state;
    char id[ID_SIZE];

    upload(f, "a", "abc", id);
    OK(store_delete(f->store, id, &oops));
    place(f, NULL, 0);
    assert_changes(f, "");
    assert_file(f, "a", "(none)");
}

static void work_that_nobody_captured_is_not_replaced_in_silence(void **state)
{
    struct fixture *f = *state;
    char id[ID_SIZE];

    put(f, "a", "background work");
    upload(f, "a", "abc", id);
    place(f, NULL, 0);
    assert_changes(f, "!a: an input file replaced it before it could be captured");
    assert_file(f, "a", "abc");
}

/* ---- stale references ---- */

enum step {
    PLACE_OLD,   /* a reference to the first version */
    PLACE_NEW,   /* to the version captured last */
    PLACE_ELSE,  /* to a version that another session made from the first */
    PLACE_OTHER, /* to an unrelated object */
    WRITE,
    REMOVE,
    CAPTURE,
    REOPEN,
    DROP_MIDDLE, /* the version captured last but one expires */
    END,
};

static void a_stale_reference_never_undoes_newer_work(void **state)
{
    static const struct {
        enum step steps[12];
        const char *text;
    } cases[] = {
        { { PLACE_OLD, PLACE_OLD, END }, "old" },
        { { PLACE_OLD, WRITE, CAPTURE, PLACE_OLD, END }, "work 1" },
        { { PLACE_OLD, WRITE, CAPTURE, PLACE_NEW, END }, "work 1" },
        { { PLACE_OLD, WRITE, PLACE_OLD, END }, "work 1" }, /* not captured yet */
        { { PLACE_OLD, WRITE, CAPTURE, WRITE, PLACE_OLD, END }, "work 2" },
        { { PLACE_OLD, WRITE, CAPTURE, WRITE, CAPTURE, PLACE_OLD, END }, "work 2" },
        { { PLACE_OLD, WRITE, CAPTURE, WRITE, CAPTURE, REOPEN, PLACE_OLD, END }, "work 2" },
        { { PLACE_OLD, WRITE, CAPTURE, WRITE, CAPTURE, DROP_MIDDLE, REOPEN, PLACE_OLD, END }, "work 2" },
        { { PLACE_OLD, REMOVE, CAPTURE, PLACE_OLD, END }, "(none)" },
        { { PLACE_OLD, REMOVE, CAPTURE, REOPEN, PLACE_OLD, END }, "(none)" },
        { { PLACE_OLD, REMOVE, PLACE_OLD, END }, "(none)" }, /* not captured yet */
        { { PLACE_OLD, WRITE, CAPTURE, REMOVE, CAPTURE, PLACE_OLD, END }, "(none)" },
        { { PLACE_OLD, REMOVE, CAPTURE, WRITE, CAPTURE, PLACE_OLD, END }, "work 1" },
        { { PLACE_OLD, REMOVE, CAPTURE, WRITE, CAPTURE, REOPEN, PLACE_OLD, END }, "work 1" },
        { { PLACE_OLD, PLACE_ELSE, END }, "elsewhere" }, /* a newer version is no stale one */
        { { PLACE_OLD, REMOVE, CAPTURE, PLACE_ELSE, END }, "elsewhere" },
        { { PLACE_OLD, PLACE_ELSE, PLACE_OLD, END }, "elsewhere" },
        { { PLACE_OLD, PLACE_OTHER, END }, "other" },
        { { PLACE_OLD, WRITE, CAPTURE, PLACE_OTHER, END }, "other" },
        { { PLACE_OLD, REMOVE, CAPTURE, PLACE_OTHER, END }, "other" },
        { { WRITE, CAPTURE, PLACE_OTHER, END }, "other" },
    };
    struct fixture *f = *state;

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        auto_free char *name = xasprintf("dir/file%zu", i);
        char old[ID_SIZE], elsewhere[ID_SIZE], other[ID_SIZE], new[ID_SIZE] = "", middle[ID_SIZE] = "";
        int writes = 0;
        store_text(f, (struct upload){ .name = name, .text = "old" }, old);
        store_text(
            f,
            (struct upload){
                .name = name, .text = "elsewhere", .from = old, .made = true, .session = f->other_session },
            elsewhere);
        store_text(f, (struct upload){ .name = name, .text = "other" }, other);
        for (const enum step *step = cases[i].steps; *step != END; step++) {
            auto_free char *work = xasprintf("work %d", writes + 1);
            switch (*step) {
            case PLACE_OLD:
                place_one(f, name, old);
                break;
            case PLACE_NEW:
                place_one(f, name, new);
                break;
            case PLACE_ELSE:
                place_one(f, name, elsewhere);
                break;
            case PLACE_OTHER:
                place_one(f, name, other);
                break;
            case WRITE:
                put(f, name, work);
                writes++;
                break;
            case REMOVE:
                take_away(f, name);
                break;
            case CAPTURE:
                capture(f);
                memcpy(middle, new, sizeof middle);
                if (f->changes.files.count > 0)
                    memcpy(new, captured(f, name)->id, sizeof new);
                break;
            case REOPEN:
                reopen_workspace(f);
                break;
            case DROP_MIDDLE:
                OK(store_delete(f->store, middle, &oops));
                break;
            case END:
                break;
            }
        }
        auto_free char *text = text_of(f, name);
        if (!str_eq(text, cases[i].text))
            fail_msg("case %zu: %s instead of %s", i, text, cases[i].text);
    }
}

/* ---- boxes ---- */

static void a_crash_leaves_nothing_on_its_way(void **state)
{
    struct fixture *f = *state;

    auto_free char *stray = xasprintf("%s/place/half", f->box);
    auto_close int fd = open(stray, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    reopen_workspace(f);
    assert_int_equal(files_below(f->box), 0);
}

static void a_lost_box_is_filled_from_the_objects(void **state)
{
    struct fixture *f = *state;
    char id[ID_SIZE];

    store_text(f, (struct upload){ .name = "a", .text = "abc" }, id);
    place_one(f, "a", id);
    put(f, "b", "made");
    put(f, "gone", "gone");
    capture(f);
    assert_changes(f, "+b | +gone");
    take_away(f, "gone");
    capture(f);
    assert_changes(f, "-gone");
    workspace_close(f->w);
    f->w = NULL;
    assert_int_equal(nftw(f->box, remove_entry, 16, FTW_DEPTH | FTW_PHYS), 0);
    open_workspace(f);
    place(f, NULL, 0);
    assert_changes(f, "");
    assert_file(f, "a", "abc");
    assert_file(f, "b", "made");
    assert_file(f, "gone", "(none)");
    capture(f);
    assert_changes(f, "");
}

static void the_directories_are_private_and_given_away(void **state)
{
    static const char *const parts[] = { "data", "home", "run" };
    struct fixture *f = *state;

    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        struct stat st;
        auto_free char *path = xasprintf("%s/%s", f->box, parts[i]);
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_mode & 07777, 0700);
        assert_int_equal(st.st_uid, geteuid() == 0 ? 12345 : geteuid());
    }
}

static uid_t owner_of(struct fixture *f, const char *path)
{
    struct stat st;

    auto_free char *full = xasprintf("%s/%s", f->box, path);
    assert_int_equal(lstat(full, &st), 0);
    return st.st_uid;
}

static void a_new_owner_gets_everything_and_changes_nothing(void **state)
{
    static const char *const paths[] = { "data",      "data/a",       "data/in/b", "data/in",
                                         "data/link", "data/.hidden", "home",      "home/x" };
    struct fixture *f = *state;
    char a[ID_SIZE], b[ID_SIZE];
    struct stat outside;

    if (geteuid() != 0) {
        OK(workspace_chown(f->w, 23456, &oops));
        return;
    }
    store_text(f, (struct upload){ .name = "a", .text = "abc" }, a);
    store_text(f, (struct upload){ .name = "in/b", .text = "abc" }, b);
    place(f, (struct workspace_ref[]){ { a, "a" }, { b, "in/b" } }, 2);
    put(f, ".hidden", "x");
    auto_free char *target = xasprintf("%s/outside", f->dir);
    auto_free char *link = in_data(f, "link");
    auto_close int fd = open(target, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(symlink(target, link), 0);
    auto_free char *in_home = xasprintf("%s/home/x", f->box);
    assert_int_equal(mkdir(in_home, 0700), 0);
    capture(f);
    put(f, "in/b", "background work");
    OK(workspace_chown(f->w, 23456, &oops));
    for (size_t i = 0; i < ARRAY_LEN(paths); i++)
        assert_int_equal(owner_of(f, paths[i]), 23456);
    assert_int_equal(fstat(fd, &outside), 0);
    assert_int_equal(outside.st_uid, 0);
    auto_free char *moved = in_data(f, "moved");
    auto_free char *back = in_data(f, "a");
    assert_int_equal(rename(back, moved) + rename(moved, back),
                     0); /* changes ctime, as a move of the box does */
    OK(workspace_chown(f->w, 23457, &oops));
    capture(f);
    assert_changes(f, "~in/b");
    reopen_workspace(f);
    capture(f);
    assert_changes(f, "");
}

/* ---- deletion by a client ---- */

static void a_deleted_object_leaves_the_workspace_if_unchanged(void **state)
{
    static const struct {
        const char *write; /* NULL: the file is not touched */
        const char *text, *changes;
    } cases[] = {
        { NULL, "(none)", "" },
        { "other", "other", "+f1" },
        { "abd", "abd", "+f2" },
    };
    struct fixture *f = *state;

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char id[ID_SIZE];
        auto_free char *name = xasprintf("f%zu", i);
        store_text(f, (struct upload){ .name = name, .text = "abc" }, id);
        place_one(f, name, id);
        capture(f);
        if (cases[i].write)
            put(f, name, cases[i].write);
        OK(store_delete(f->store, id, &oops));
        OK(workspace_forget(f->w, id, &oops));
        assert_file(f, name, cases[i].text);
        capture(f);
        assert_changes(f, cases[i].changes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_reference_becomes_a_file_of_the_session, setup, teardown),
        cmocka_unit_test_setup_teardown(an_empty_file_is_placed, setup, teardown),
        cmocka_unit_test_setup_teardown(a_large_file_is_placed_whole, setup, teardown),
        cmocka_unit_test_setup_teardown(the_last_of_several_references_wins, setup, teardown),
        cmocka_unit_test_setup_teardown(one_object_may_have_several_names, setup, teardown),
        cmocka_unit_test_setup_teardown(what_cannot_be_placed_is_named, setup, teardown),
        cmocka_unit_test_setup_teardown(an_upload_is_placed_once, setup, teardown),
        cmocka_unit_test_setup_teardown(an_upload_waits_for_its_workspace, setup, teardown),
        cmocka_unit_test_setup_teardown(a_new_upload_replaces_what_code_made_or_removed, setup, teardown),
        cmocka_unit_test_setup_teardown(an_upload_during_an_execution_is_not_lost, setup, teardown),
        cmocka_unit_test_setup_teardown(an_upload_continues_what_stands_at_its_name, setup, teardown),
        cmocka_unit_test_setup_teardown(an_upload_that_cannot_be_placed_keeps_waiting, setup, teardown),
        cmocka_unit_test_setup_teardown(an_upload_that_was_deleted_is_forgotten, setup, teardown),
        cmocka_unit_test_setup_teardown(work_that_nobody_captured_is_not_replaced_in_silence, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_stale_reference_never_undoes_newer_work, setup, teardown),
        cmocka_unit_test_setup_teardown(a_crash_leaves_nothing_on_its_way, setup, teardown),
        cmocka_unit_test_setup_teardown(a_lost_box_is_filled_from_the_objects, setup, teardown),
        cmocka_unit_test_setup_teardown(the_directories_are_private_and_given_away, setup, teardown),
        cmocka_unit_test_setup_teardown(a_new_owner_gets_everything_and_changes_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(a_deleted_object_leaves_the_workspace_if_unchanged, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
