#include "orchestrator/db/db.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

struct fixture {
    char dir[40], path[64];
    struct db *db;
};

static struct db *open_db(const char *path)
{
    struct db *db = NULL;
    struct error err = { 0 };

    if (db_open(path, &db, &err) < 0)
        fail_msg("%s", err.msg);
    return db;
}

static int setup(void **state)
{
    struct fixture *f = xcalloc(1, sizeof *f);

    (void)stpcpy(f->dir, "/tmp/carrel-test-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    (void)stpcpy(stpcpy(f->path, f->dir), "/carrel.db");
    f->db = open_db(f->path);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    static const char *const suffixes[] = { "", "-wal", "-shm" };
    struct fixture *f = *state;

    db_close(f->db);
    for (size_t i = 0; i < ARRAY_LEN(suffixes); i++) {
        auto_free char *path = xasprintf("%s%s", f->path, suffixes[i]);
        (void)unlink(path);
    }
    (void)rmdir(f->dir);
    free(f);
    return 0;
}

static void reopen(struct fixture *f)
{
    db_close(f->db);
    f->db = open_db(f->path);
}

static int get_int(void *state, struct db_row *row, struct error *err)
{
    (void)err;
    *(int64_t *)state = db_int(row, 0);
    return 0;
}

static int64_t count(struct db *db, const char *id)
{
    struct error err = { 0 };
    int64_t n = -1;

    assert_int_equal(
        db_query(db, &err, get_int, &n, "SELECT count(*) FROM sessions WHERE id LIKE ?", "s", id), 0);
    return n;
}

static int add(struct db *db, const char *id, struct error *err)
{
    return db_run(db, err,
                  "INSERT INTO sessions (id, tenant, created_ms, last_used_ms) VALUES (?, 't', ?, 0)", "si",
                  id, INT64_C(1) << 40);
}

/* ---- opening ---- */

static void the_file_is_private(void **state)
{
    static const char *const suffixes[] = { "", "-wal", "-shm" };
    struct fixture *f = *state;
    struct error err = { 0 };
    struct stat st;

    assert_int_equal(add(f->db, "a", &err), 0);
    for (size_t i = 0; i < ARRAY_LEN(suffixes); i++) {
        auto_free char *path = xasprintf("%s%s", f->path, suffixes[i]);
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_mode & 0777, 0600);
    }
}

static void rows_outlive_the_connection(void **state)
{
    struct fixture *f = *state;
    struct error err = { 0 };

    assert_int_equal(add(f->db, "a", &err), 0);
    reopen(f);
    assert_int_equal(count(f->db, "a"), 1);
}

static void a_newer_database_is_refused(void **state)
{
    struct fixture *f = *state;
    struct error err = { 0 };
    struct db *db = NULL;

    assert_int_equal(db_run(f->db, &err, "PRAGMA user_version = 1000", ""), 0);
    assert_int_equal(db_open(f->path, &db, &err), -1);
    assert_int_equal(err.kind, ERR_INVALID);
    assert_non_null(strstr(err.msg, "newer"));
    assert_non_null(strstr(err.msg, f->path));
}

static void what_is_no_database_is_refused(void **state)
{
    struct fixture *f = *state;
    struct error err = { 0 };
    struct db *db = NULL;

    db_close(f->db);
    f->db = NULL;
    FILE *file = fopen(f->path, "we");
    assert_non_null(file);
    for (int i = 0; i < 200; i++)
        assert_true(fputs("this is a text file", file) >= 0);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(db_open(f->path, &db, &err), -1);
    assert_int_equal(err.kind, ERR_INTERNAL);
    assert_int_equal(db_open("/nonexistent/carrel.db", &db, &err), -1);
}

static void memory_works_too(void **state)
{
    struct db *db = open_db(":memory:");
    struct error err = { 0 };

    (void)state;
    assert_int_equal(add(db, "a", &err), 0);
    assert_int_equal(count(db, "a"), 1);
    db_close(db);
}

/* ---- statements ---- */

static int check_values(void *state, struct db_row *row, struct error *err)
{
    (void)err;
    assert_string_equal(db_text(row, 0), "text");
    assert_null(db_text(row, 1));
    assert_true(db_int(row, 2) == INT64_MIN);
    assert_string_equal(db_text(row, 3), "6100FF");
    (*(int *)state)++;
    return 0;
}

static void values_arrive_as_given(void **state)
{
    struct fixture *f = *state;
    struct error err = { 0 };
    int rows = 0;

    assert_int_equal(db_query(f->db, &err, check_values, &rows, "SELECT ?, ?, ?, hex(?)", "ssib", "text",
                              NULL, INT64_MIN, "a\0\xff", (size_t)3),
                     0);
    assert_int_equal(rows, 1);
}

static void failures_have_their_kind(void **state)
{
    static const struct {
        const char *sql;
        enum error_kind kind;
    } cases[] = {
        { "INSERT INTO sessions (id, tenant, created_ms, last_used_ms) VALUES ('a', 't', 0, 0)",
          ERR_CONFLICT },
        { "INSERT INTO session_objects (session_id, object_id) VALUES ('a', 'none')", ERR_CONFLICT },
        { "INSERT INTO sessions (id, created_ms, last_used_ms) VALUES ('b', 0, 0)", ERR_INTERNAL },
        { "SELECT nothing FROM nowhere", ERR_INTERNAL },
        { "SELECT ?", ERR_INTERNAL },
    };
    struct fixture *f = *state;

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct error err = { 0 };
        if (i == 0)
            assert_int_equal(add(f->db, "a", &err), 0);
        assert_int_equal(db_run(f->db, &err, cases[i].sql, ""), -1);
        assert_int_equal(err.kind, cases[i].kind);
    }
}

static void a_full_disk_is_a_limit_and_leaves_nothing(void **state)
{
    struct fixture *f = *state;
    struct error err = { 0 };
    int added = 0;

    assert_int_equal(db_run(f->db, &err, "PRAGMA max_page_count = 40", ""), 0);
    auto_free char *big = xcalloc(1, 30001);
    memset(big, 'x', 30000);
    while (added < 100 &&
           db_run(f->db, &err,
                  "INSERT INTO sessions (id, tenant, created_ms, last_used_ms) VALUES (?, ?, 0, 0)", "ss",
                  added == 0   ? "a"
                  : added == 1 ? "b"
                  : added == 2 ? "c"
                               : "d",
                  big) == 0)
        added++;
    assert_true(added > 0 && added < 4);
    assert_int_equal(err.kind, ERR_LIMIT);
    assert_int_equal(count(f->db, "%"), added);
}

static void changes_are_counted(void **state)
{
    struct fixture *f = *state;
    struct error err = { 0 };

    assert_int_equal(add(f->db, "a", &err), 0);
    assert_int_equal(add(f->db, "b", &err), 0);
    assert_int_equal(db_run(f->db, &err, "UPDATE sessions SET tenant = 'u'", ""), 0);
    assert_int_equal(db_changes(f->db), 2);
    assert_int_equal(db_run(f->db, &err, "DELETE FROM sessions WHERE id = 'none'", ""), 0);
    assert_int_equal(db_changes(f->db), 0);
}

static int stop_at_second(void *state, struct db_row *row, struct error *err)
{
    (void)row;
    return ++*(int *)state < 2 ? 0 : error_set(err, ERR_LIMIT, "enough");
}

static void a_row_function_can_end_the_query(void **state)
{
    struct fixture *f = *state;
    struct error err = { 0 };
    int rows = 0;

    assert_int_equal(
        db_query(f->db, &err, stop_at_second, &rows, "SELECT 1 UNION SELECT 2 UNION SELECT 3", ""), -1);
    assert_int_equal(rows, 2);
    assert_int_equal(err.kind, ERR_LIMIT);
    assert_string_equal(err.msg, "enough");
}

static void more_statements_than_the_cache_holds(void **state)
{
    struct fixture *f = *state;

    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 1000; i++) {
            auto_free char *sql = xasprintf("SELECT %d + ?", i);
            struct error err = { 0 };
            int64_t sum = 0;
            assert_int_equal(db_query(f->db, &err, get_int, &sum, sql, "i", (int64_t)round), 0);
            assert_int_equal(sum, i + round);
        }
    }
}

/* ---- transactions ---- */

struct plan {
    bool fail, nested_fails;
};

static int add_inner(void *state, struct db *db, struct error *err)
{
    const struct plan *p = state;

    if (add(db, "inner", err) < 0)
        return -1;
    return p->nested_fails ? error_set(err, ERR_CONFLICT, "inner") : 0;
}

static int add_outer(void *state, struct db *db, struct error *err)
{
    const struct plan *p = state;
    struct error inner = { 0 };

    if (add(db, "outer", err) < 0)
        return -1;
    assert_int_equal(count(db, "outer"), 1);
    assert_int_equal(db_transaction(db, &inner, add_inner, state), p->nested_fails ? -1 : 0);
    return p->fail ? error_set(err, ERR_CONFLICT, "outer") : 0;
}

static void transactions_are_all_or_nothing(void **state)
{
    static const struct {
        struct plan plan;
        int outer, inner;
    } cases[] = {
        { { false, false }, 1, 1 },
        { { false, true }, 1, 0 },
        { { true, false }, 0, 0 },
        { { true, true }, 0, 0 },
    };
    struct fixture *f = *state;

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct plan plan = cases[i].plan;
        struct error err = { 0 };
        assert_int_equal(db_transaction(f->db, &err, add_outer, &plan), plan.fail ? -1 : 0);
        assert_int_equal(count(f->db, "outer"), cases[i].outer);
        assert_int_equal(count(f->db, "inner"), cases[i].inner);
        assert_int_equal(db_run(f->db, &err, "DELETE FROM sessions", ""), 0);
    }
}

static int ignores_a_full_disk(void *state, struct db *db, struct error *err)
{
    struct error full = { 0 };
    const char *big = state;

    if (add(db, "before", err) < 0)
        return -1;
    assert_int_equal(db_run(db, &full, "UPDATE sessions SET tenant = ?", "s", big), -1);
    assert_int_equal(full.kind, ERR_LIMIT);
    return add(db, "after", err);
}

static void a_transaction_that_sqlite_gave_up_commits_nothing(void **state)
{
    struct fixture *f = *state;
    struct error err = { 0 };

    auto_free char *big = xcalloc(1, 3000001);
    memset(big, 'x', 3000000);
    assert_int_equal(db_run(f->db, &err, "PRAGMA max_page_count = 50", ""), 0);
    /* SQLite may roll back the statement or the whole transaction: both must be consistent. */
    int result = db_transaction(f->db, &err, ignores_a_full_disk, big);
    assert_int_equal(count(f->db, "%"), result == 0 ? 2 : 0);
}

/* ---- threads ---- */

#define WRITES 100

struct worker {
    pthread_t thread;
    struct db *db;
    int number;
    int failures;
};

static int add_two(void *state, struct db *db, struct error *err)
{
    const char *const *ids = state;

    return add(db, ids[0], err) < 0 || add(db, ids[1], err) < 0 ? -1 : 0;
}

static void *write_pairs(void *arg)
{
    struct worker *w = arg;

    for (int i = 0; i < WRITES; i++) {
        auto_free char *one = xasprintf("%d-%d-a", w->number, i);
        auto_free char *two = xasprintf("%d-%d-b", w->number, i);
        const char *ids[] = { one, two };
        struct error err = { 0 };
        int64_t n = 0;
        if (db_transaction(w->db, &err, add_two, ids) < 0 ||
            db_query(w->db, &err, get_int, &n, "SELECT count(*) % 2 FROM sessions", "") < 0 || n != 0)
            w->failures++;
    }
    return NULL;
}

static void threads_see_whole_transactions(void **state)
{
    struct fixture *f = *state;
    struct worker workers[8] = { 0 };

    for (int i = 0; i < 8; i++) {
        workers[i] = (struct worker){ .db = f->db, .number = i };
        assert_int_equal(pthread_create(&workers[i].thread, NULL, write_pairs, &workers[i]), 0);
    }
    for (int i = 0; i < 8; i++) {
        assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
        assert_int_equal(workers[i].failures, 0);
    }
    assert_int_equal(count(f->db, "%"), 8 * WRITES * 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_file_is_private, setup, teardown),
        cmocka_unit_test_setup_teardown(rows_outlive_the_connection, setup, teardown),
        cmocka_unit_test_setup_teardown(a_newer_database_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_no_database_is_refused, setup, teardown),
        cmocka_unit_test(memory_works_too),
        cmocka_unit_test_setup_teardown(values_arrive_as_given, setup, teardown),
        cmocka_unit_test_setup_teardown(failures_have_their_kind, setup, teardown),
        cmocka_unit_test_setup_teardown(a_full_disk_is_a_limit_and_leaves_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(changes_are_counted, setup, teardown),
        cmocka_unit_test_setup_teardown(a_row_function_can_end_the_query, setup, teardown),
        cmocka_unit_test_setup_teardown(more_statements_than_the_cache_holds, setup, teardown),
        cmocka_unit_test_setup_teardown(transactions_are_all_or_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(a_transaction_that_sqlite_gave_up_commits_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(threads_see_whole_transactions, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
