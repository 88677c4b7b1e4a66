#include "orchestrator/files/store.h"

#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>

#include "tests/unit/files_fixture.h"

#define EMPTY_SHA256 "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define ABC_SHA256 "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"

static char *object_path(struct fixture *f, const char *id)
{
    return xasprintf("%s/objects/%.2s/%s", f->store_dir, id, id);
}

static int reopen_store(struct fixture *f, struct error *err)
{
    store_close(f->store);
    f->store = NULL;
    return store_open(f->store_dir, f->db, &f->store, err);
}

/* ---- writing ---- */

static void an_object_is_found_with_its_bytes_and_metadata(void **state)
{
    struct fixture *f = *state;
    auto_object struct object o = { 0 };
    char id[ID_SIZE];

    store_text(f, (struct upload){ .name = "sub/x \xc3\xa9.txt", .text = "abc", .read_only = true }, id);
    OK(store_find(f->store, id, &o, &oops));
    assert_string_equal(o.name, "sub/x \xc3\xa9.txt");
    assert_string_equal(o.session_id, f->session);
    assert_string_equal(o.sha256, ABC_SHA256);
    assert_string_equal(o.content_type, "text/plain");
    assert_int_equal(o.size, 3);
    assert_true(o.read_only && o.uploaded && !o.superseded && o.created_ms > 0);
    assert_string_equal(o.modified_from, "");
    auto_free char *text = object_text(f, id);
    assert_string_equal(text, "abc");
}

static void an_empty_object_is_one(void **state)
{
    struct fixture *f = *state;
    auto_object struct object o = { 0 };
    char id[ID_SIZE];

    store_text(f, (struct upload){ .name = "empty", .text = "" }, id);
    OK(store_find(f->store, id, &o, &oops));
    assert_string_equal(o.sha256, EMPTY_SHA256);
    assert_int_equal(o.size, 0);
}

static void too_many_bytes_are_a_limit(void **state)
{
    struct fixture *f = *state;
    CLEANUP(store_writer_freep) struct store_writer *w = NULL;
    struct error err = { 0 };

    OK(store_writer_new(f->store, 5, &w, &oops));
    OK(store_writer_write(w, "12345", 5, &oops));
    assert_int_equal(store_writer_size(w), 5);
    assert_int_equal(store_writer_write(w, "6", 1, &err), -1);
    assert_int_equal(err.kind, ERR_LIMIT);
    assert_int_equal(store_writer_size(w), 5);
}

/* A file size limit stands for the full disk: write(2) fails half-way. */
static void a_failed_write_is_a_limit_and_leaves_nothing(void **state)
{
    struct fixture *f = *state;
    struct store_writer *w = NULL;
    struct error err = { 0 };
    struct rlimit old, low;

    auto_free char *block = xcalloc(1, 100000);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    low = (struct rlimit){ .rlim_cur = 50000, .rlim_max = old.rlim_max };
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
    OK(store_writer_new(f->store, INT64_MAX, &w, &oops));
    int result = store_writer_write(w, block, 100000, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    (void)signal(SIGXFSZ, handler);
    assert_int_equal(result, -1);
    assert_int_equal(err.kind, ERR_LIMIT);
    assert_non_null(strstr(err.msg, "could not be stored"));
    store_writer_free(w);
    assert_int_equal(stored_files(f), 0);
}

static void a_writer_that_is_dropped_leaves_nothing(void **state)
{
    struct fixture *f = *state;

    for (int seal = 0; seal < 2; seal++) {
        struct store_writer *w = NULL;
        OK(store_writer_new(f->store, 100, &w, &oops));
        OK(store_writer_write(w, "abc", 3, &oops));
        if (seal) {
            OK(store_writer_seal(w, &oops));
            assert_string_equal(store_writer_sha256(w), ABC_SHA256);
        }
        assert_int_equal(stored_files(f), 1);
        store_writer_free(w);
        assert_int_equal(stored_files(f), 0);
    }
}

static void a_commit_to_no_session_leaves_nothing(void **state)
{
    struct fixture *f = *state;
    struct store_writer *w = NULL;
    struct object o = { 0 };
    struct error err = { 0 };
    auto_object struct object meta = { .name = xstrdup("a"), .content_type = xstrdup("b") };

    id_new(meta.session_id);
    OK(store_writer_new(f->store, 100, &w, &oops));
    assert_int_equal(store_writer_commit(w, &meta, &o, &err), -1);
    assert_int_equal(err.kind, ERR_NOT_FOUND);
    store_writer_free(w);
    assert_int_equal(stored_files(f), 0);
}

struct many {
    struct fixture *f;
    struct store_writer *writers[10];
    bool fail;
};

static int commit_many(void *state, struct db *db, struct error *err)
{
    struct many *m = state;
    auto_object struct object meta = { .name = xstrdup("a"), .content_type = xstrdup("b") };

    (void)db;
    memcpy(meta.session_id, m->f->session, sizeof meta.session_id);
    for (size_t i = 0; i < ARRAY_LEN(m->writers); i++) {
        auto_object struct object o = { 0 };
        if (store_writer_commit(m->writers[i], &meta, &o, err) < 0)
            return -1;
    }
    return m->fail ? error_set(err, ERR_INTERNAL, "no") : 0;
}

static void many_are_committed_together_or_not_at_all(void **state)
{
    struct fixture *f = *state;

    for (int failing = 1; failing >= 0; failing--) {
        struct many m = { .f = f, .fail = failing };
        struct objects list = { 0 };
        struct error ignored = { 0 };
        for (size_t i = 0; i < ARRAY_LEN(m.writers); i++)
            OK(store_writer_new(f->store, 100, &m.writers[i], &oops));
        OK(store_writer_seal_all(m.writers, ARRAY_LEN(m.writers), &oops));
        assert_int_equal(db_transaction(f->db, &ignored, commit_many, &m), failing ? -1 : 0);
        for (size_t i = 0; i < ARRAY_LEN(m.writers); i++) {
            if (failing)
                store_writer_uncommit(m.writers[i]);
            store_writer_free(m.writers[i]);
        }
        OK(store_list(f->store, f->session, &list, &oops));
        assert_int_equal(list.count, failing ? 0 : 10);
        assert_int_equal(stored_files(f), failing ? 0 : 10);
        objects_done(&list);
    }
}

/* ---- finding ---- */

static void unknown_ids_are_not_found(void **state)
{
    static const char *const ids[] = { "",
                                       "x",
                                       "../../../../etc/passwd",
                                       "aaaaaaaaaaaaaaaaaaaaa",
                                       "aa/aaaaaaaaaaaaaaaaaa",
                                       "'; DROP TABLE objects" };
    struct fixture *f = *state;

    for (size_t i = 0; i < ARRAY_LEN(ids); i++) {
        struct object o = { 0 };
        struct error err = { 0 };
        int fd = -1;
        assert_int_equal(store_find(f->store, ids[i], &o, &err), -1);
        assert_int_equal(err.kind, ERR_NOT_FOUND);
        assert_int_equal(store_open_object(f->store, ids[i], &fd, &err), -1);
        assert_int_equal(err.kind, ERR_NOT_FOUND);
        assert_int_equal(store_delete(f->store, ids[i], &err), -1);
        assert_int_equal(err.kind, ERR_NOT_FOUND);
        assert_int_equal(store_link(f->store, f->session, ids[i], &err), -1);
        assert_int_equal(err.kind, ERR_NOT_FOUND);
        OK(store_touch(f->store, ids[i], &oops));
    }
}

static void a_file_is_found_where_it_lies_and_where_it_was_returned(void **state)
{
    struct fixture *f = *state;
    auto_object struct object here = { 0 }, there = { 0 };
    struct error err = { 0 };
    char id[ID_SIZE];

    store_text(f, (struct upload){ .name = "a", .text = "" }, id);
    OK(store_find_in(f->store, f->session, id, &here, &oops));
    assert_int_equal(store_find_in(f->store, f->other_session, id, &there, &err), -1);
    assert_int_equal(err.kind, ERR_NOT_FOUND);
    OK(store_link(f->store, f->other_session, id, &oops));
    OK(store_link(f->store, f->other_session, id, &oops));
    OK(store_find_in(f->store, f->other_session, id, &there, &oops));
    assert_string_equal(there.session_id, f->session);
}

static void the_list_is_in_order_and_without_superseded_versions(void **state)
{
    struct fixture *f = *state;
    CLEANUP(objects_done) struct objects list = { 0 };
    char up[ID_SIZE], v2[ID_SIZE], v3[ID_SIZE], other[ID_SIZE];

    store_text(f, (struct upload){ .name = "a", .text = "1" }, up);
    store_text(f, (struct upload){ .name = "a", .text = "2", .from = up, .made = true }, v2);
    store_text(f, (struct upload){ .name = "a", .text = "3", .from = v2, .made = true }, v3);
    store_text(f, (struct upload){ .name = "b", .text = "4", .from = v3, .made = true }, other);
    OK(store_list(f->store, f->session, &list, &oops));
    assert_int_equal(list.count, 3);
    assert_string_equal(list.items[0].id, up); /* an upload stays: clients look whether it is still there */
    assert_string_equal(list.items[1].id, v3); /* another name does not supersede */
    assert_string_equal(list.items[2].id, other);
    assert_string_equal(list.items[2].modified_from, v3);
    assert_string_equal(list.items[2].modified_from_session, f->session);
}

static void another_session_supersedes_nothing_here(void **state)
{
    struct fixture *f = *state;
    auto_object struct object o = { 0 }, changed = { 0 };
    char v1[ID_SIZE], v2[ID_SIZE];

    store_text(f, (struct upload){ .name = "a", .text = "1", .made = true }, v1);
    store_text(f, (struct upload){ .name = "a", .text = "2", .from = v1, .session = f->other_session }, v2);
    OK(store_find(f->store, v1, &o, &oops));
    assert_false(o.superseded);
    OK(store_find(f->store, v2, &changed, &oops));
    assert_string_equal(changed.modified_from, v1);
    assert_string_equal(changed.modified_from_session, f->session);
}

static bool is_ancestor(struct fixture *f, const char *id, const char *of)
{
    bool result = false;

    OK(store_is_ancestor(f->store, id, of, &result, &oops));
    return result;
}

static void lineage_survives_the_loss_of_a_version(void **state)
{
    struct fixture *f = *state;
    auto_object struct object o = { 0 };
    char v1[ID_SIZE], v2[ID_SIZE], v3[ID_SIZE], other[ID_SIZE];

    store_text(f, (struct upload){ .name = "a", .text = "1" }, v1);
    store_text(f, (struct upload){ .name = "a", .text = "2", .from = v1 }, v2);
    store_text(f, (struct upload){ .name = "a", .text = "3", .from = v2 }, v3);
    store_text(f, (struct upload){ .name = "a", .text = "4" }, other);
    assert_true(is_ancestor(f, v1, v3) && is_ancestor(f, v2, v3) && is_ancestor(f, v3, v3));
    assert_false(is_ancestor(f, v3, v1) || is_ancestor(f, other, v3) || is_ancestor(f, v1, "none"));
    OK(store_delete(f->store, v2, &oops));
    assert_true(is_ancestor(f, v1, v3));
    OK(store_find(f->store, v3, &o, &oops));
    assert_string_equal(o.modified_from, v1);
    OK(store_delete(f->store, v1, &oops));
    object_done(&o);
    OK(store_find(f->store, v3, &o, &oops));
    assert_string_equal(o.modified_from, "");
}

static void an_origin_that_has_expired_is_not_named(void **state)
{
    struct fixture *f = *state;
    auto_object struct object o = { 0 };
    char id[ID_SIZE], gone[ID_SIZE];

    id_new(gone);
    store_text(f, (struct upload){ .name = "a", .text = "1", .from = gone }, id);
    OK(store_find(f->store, id, &o, &oops));
    assert_string_equal(o.modified_from, "");
}

static void delete_takes_row_and_bytes_but_not_from_open_readers(void **state)
{
    struct fixture *f = *state;
    struct error err = { 0 };
    char id[ID_SIZE];
    int fd = -1;

    store_text(f, (struct upload){ .name = "a", .text = "abc" }, id);
    OK(store_link(f->store, f->other_session, id, &oops));
    OK(store_open_object(f->store, id, &fd, &oops));
    OK(store_delete(f->store, id, &oops));
    auto_free char *text = read_fd(fd);
    assert_string_equal(text, "abc");
    assert_int_equal(stored_files(f), 0);
    assert_int_equal(store_delete(f->store, id, &err), -1);
    assert_int_equal(err.kind, ERR_NOT_FOUND);
}

static int64_t last_used(struct fixture *f, const char *id)
{
    auto_object struct object o = { 0 };

    OK(store_find(f->store, id, &o, &oops));
    return o.last_used_ms;
}

static void touch_writes_once_an_hour(void **state)
{
    struct fixture *f = *state;
    char id[ID_SIZE];

    store_text(f, (struct upload){ .name = "a", .text = "abc" }, id);
    int64_t made = last_used(f, id);
    OK(db_run(f->db, &oops, "UPDATE objects SET last_used_ms = ?", "i", made - 3500000));
    OK(store_touch(f->store, id, &oops));
    assert_int_equal(last_used(f, id), made - 3500000);
    OK(db_run(f->db, &oops, "UPDATE objects SET last_used_ms = ?", "i", made - 3700000));
    OK(store_touch(f->store, id, &oops));
    assert_true(last_used(f, id) >= made);
}

static void a_session_is_touched_as_a_whole_once_an_hour(void **state)
{
    struct fixture *f = *state;
    char a[ID_SIZE], b[ID_SIZE], other[ID_SIZE];

    store_text(f, (struct upload){ .name = "a", .text = "abc" }, a);
    store_text(f, (struct upload){ .name = "b", .text = "abc" }, b);
    store_text(f, (struct upload){ .name = "a", .text = "abc", .session = f->other_session }, other);
    int64_t made = last_used(f, a);
    OK(db_run(f->db, &oops, "UPDATE objects SET last_used_ms = ?", "i", made - 3500000));
    OK(store_touch_session(f->store, f->session, &oops));
    assert_int_equal(last_used(f, a), made - 3500000);
    OK(db_run(f->db, &oops, "UPDATE objects SET last_used_ms = ? WHERE id <> ?", "is", made - 3700000, b));
    OK(store_touch_session(f->store, f->session, &oops)); /* the longest unused one counts */
    assert_true(last_used(f, a) >= made && last_used(f, b) >= made);
    assert_int_equal(last_used(f, other), made - 3700000);
    OK(store_touch_session(f->store, "AAAAAAAAAAAAAAAAAAAAA", &oops));
}

/* ---- what a crash leaves ---- */

static void write_stray(struct fixture *f, const char *path)
{
    auto_free char *full = xasprintf("%s/%s", f->store_dir, path);
    auto_free char *dir = xstrdup(full);

    *strrchr(dir, '/') = '\0';
    assert_true(mkdir(dir, 0700) == 0 || errno == EEXIST);
    auto_close int fd = open(full, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
}

static void start_removes_what_a_crash_left(void **state)
{
    struct fixture *f = *state;
    char kept[ID_SIZE], lost[ID_SIZE], child[ID_SIZE];

    store_text(f, (struct upload){ .name = "kept", .text = "abc" }, kept);
    store_text(f, (struct upload){ .name = "lost", .text = "abc", .from = kept }, lost);
    store_text(f, (struct upload){ .name = "child", .text = "abc", .from = lost }, child);
    write_stray(f, "tmp/aaaaaaaaaaaaaaaaaaaaa");
    write_stray(f, "objects/ab/abaaaaaaaaaaaaaaaaaaa");
    write_stray(f, "objects/ab/not-an-id");
    auto_free char *wrong_dir = xasprintf("objects/%c%c/%s", kept[0] == 'x' ? 'y' : 'x', 'x', kept);
    write_stray(f, wrong_dir);
    auto_free char *path = object_path(f, lost);
    assert_int_equal(unlink(path), 0);
    OK(reopen_store(f, &oops));
    assert_int_equal(stored_files(f), 2);
    assert_true(object_exists(f, kept) && object_exists(f, child) && !object_exists(f, lost));
    assert_true(is_ancestor(f, kept, child));
    auto_free char *text = object_text(f, kept);
    assert_string_equal(text, "abc");
}

static void a_missing_disk_is_refused_and_harms_nothing(void **state)
{
    struct fixture *f = *state;
    struct error err = { 0 };
    char id[ID_SIZE];

    store_text(f, (struct upload){ .name = "a", .text = "abc" }, id);
    auto_free char *objects = xasprintf("%s/objects", f->store_dir);
    auto_free char *away = xasprintf("%s/away", f->store_dir);
    assert_int_equal(rename(objects, away), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(reopen_store(f, &err), -1);
        assert_int_equal(err.kind, ERR_UNAVAILABLE);
    }
    assert_int_equal(rename(away, objects), 0);
    OK(reopen_store(f, &oops));
    assert_true(object_exists(f, id));
}

static void a_foreign_database_is_refused_and_harms_nothing(void **state)
{
    struct fixture *f = *state;
    struct error err = { 0 };

    for (int i = 0; i < 1001; i++) {
        auto_free char *path = xasprintf("objects/ab/abaaaaaaaaaaaaaaa%04d", i);
        write_stray(f, path);
    }
    assert_int_equal(reopen_store(f, &err), -1);
    assert_int_equal(err.kind, ERR_UNAVAILABLE);
    assert_int_equal(stored_files(f), 1001);
}

/* ---- threads ---- */

struct worker {
    pthread_t thread;
    struct fixture *f;
    int failures;
};

static void *store_some(void *arg)
{
    struct worker *w = arg;
    auto_object struct object meta = { .name = xstrdup("a"), .content_type = xstrdup("b") };

    memcpy(meta.session_id, w->f->session, sizeof meta.session_id);
    for (int i = 0; i < 20; i++) {
        CLEANUP(store_writer_freep) struct store_writer *writer = NULL;
        auto_object struct object o = { 0 };
        struct error err = { 0 };
        if (store_writer_new(w->f->store, 100, &writer, &err) < 0 ||
            store_writer_write(writer, "abc", 3, &err) < 0 ||
            store_writer_commit(writer, &meta, &o, &err) < 0 ||
            (i % 2 && store_delete(w->f->store, o.id, &err) < 0))
            w->failures++;
    }
    return NULL;
}

static void threads_store_side_by_side(void **state)
{
    struct fixture *f = *state;
    CLEANUP(objects_done) struct objects list = { 0 };
    struct worker workers[6] = { 0 };

    for (size_t i = 0; i < ARRAY_LEN(workers); i++) {
        workers[i].f = f;
        assert_int_equal(pthread_create(&workers[i].thread, NULL, store_some, &workers[i]), 0);
    }
    for (size_t i = 0; i < ARRAY_LEN(workers); i++) {
        assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
        assert_int_equal(workers[i].failures, 0);
    }
    OK(store_list(f->store, f->session, &list, &oops));
    assert_int_equal(list.count, 60);
    assert_int_equal(stored_files(f), 60);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_object_is_found_with_its_bytes_and_metadata, setup, teardown),
        cmocka_unit_test_setup_teardown(an_empty_object_is_one, setup, teardown),
        cmocka_unit_test_setup_teardown(too_many_bytes_are_a_limit, setup, teardown),
        cmocka_unit_test_setup_teardown(a_failed_write_is_a_limit_and_leaves_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(a_writer_that_is_dropped_leaves_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(a_commit_to_no_session_leaves_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(many_are_committed_together_or_not_at_all, setup, teardown),
        cmocka_unit_test_setup_teardown(unknown_ids_are_not_found, setup, teardown),
        cmocka_unit_test_setup_teardown(a_file_is_found_where_it_lies_and_where_it_was_returned, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(the_list_is_in_order_and_without_superseded_versions, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(another_session_supersedes_nothing_here, setup, teardown),
        cmocka_unit_test_setup_teardown(lineage_survives_the_loss_of_a_version, setup, teardown),
        cmocka_unit_test_setup_teardown(an_origin_that_has_expired_is_not_named, setup, teardown),
        cmocka_unit_test_setup_teardown(delete_takes_row_and_bytes_but_not_from_open_readers, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(touch_writes_once_an_hour, setup, teardown),
        cmocka_unit_test_setup_teardown(a_session_is_touched_as_a_whole_once_an_hour, setup, teardown),
        cmocka_unit_test_setup_teardown(start_removes_what_a_crash_left, setup, teardown),
        cmocka_unit_test_setup_teardown(a_missing_disk_is_refused_and_harms_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(a_foreign_database_is_refused_and_harms_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(threads_store_side_by_side, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
