/* The end of a session on request, and what can be told about sessions. */
#include "orchestrator/session/execution.h"

#include <dirent.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "common/clock.h"
#include "orchestrator/files/tree.h"
#include "tests/fakes/fake_engine.h"
#include "tests/fakes/fake_runner.h"

#define WAIT_MS 20000

struct fixture {
    char dir[40], boxes[60];
    struct config config;
    struct db *db;
    struct store *store;
    struct engine *engine;
    struct fake_runner *runner;
    struct session_env env;
    struct session_table *table;
    struct principal *alice, *bob;
};

static int setup(void **state)
{
    struct fixture *f = xcalloc(1, sizeof *f);
    struct error err = { 0 };

    (void)strcpy(f->dir, "/tmp/carrel-unit-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    (void)snprintf(f->boxes, sizeof f->boxes, "%s/boxes", f->dir);
    assert_int_equal(config_load(&f->config, &err), 0);
    f->config.max_sessions = 2;
    f->config.queue_wait_s = 0;
    f->config.session_queue_max = 1;
    f->config.max_output_kb = 64;
    assert_int_equal(mkdir(f->boxes, 0700), 0);
    assert_int_equal(db_open(":memory:", &f->db, &err), 0);
    assert_int_equal(store_open(f->dir, f->db, &f->store, &err), 0);
    f->engine = fake_engine_new();
    f->runner = fake_runner_new(f->engine);
    f->env = (struct session_env){ &f->config, f->db, f->store, f->engine, "unit", f->boxes };
    assert_int_equal(session_table_new(&f->env, &f->table, &err), 0);
    f->alice = principal_new("t1", "alice", false, false);
    f->bob = principal_new("t1", "bob", false, false);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    struct error err = { 0 };

    assert_true(execution_cancel_all(f->table));
    session_table_free(f->table);
    fake_runner_free(f->runner);
    engine_close(f->engine);
    store_close(f->store);
    db_close(f->db);
    principal_free(f->alice);
    principal_free(f->bob);
    config_done(&f->config);
    assert_int_equal(tree_remove(f->dir, &err), 0);
    free(f);
    return 0;
}

static struct session *resolve(struct fixture *f, const struct principal *p, const char *entity)
{
    const struct session_hint hint = { .entity_id = entity };
    struct session *s = NULL;
    struct error err = { 0 };

    assert_int_equal(session_resolve(f->table, p, &hint, &s, NULL, &err), 0);
    return s;
}

static struct execution *start(struct session *s, const char *lang, const char *code)
{
    struct execution_request r = {
        .language = language_find(lang), .code = xstrdup(code), .code_len = strlen(code), .timeout_ms = 60000
    };
    struct execution *x = NULL;
    struct error err = { 0 };

    assert_int_equal(session_enter(s, NULL, &err), 0);
    assert_int_equal(execution_start(s, &r, &x, &err), 0);
    return x;
}

/* Waits for the end and checks how it came. */
static void finish(struct execution *x, enum execution_reason reason, const char *out)
{
    struct execution_reader r;
    struct execution_event e;
    struct error err = { 0 };
    auto_buf struct buf text = { .max = 1 << 20 };

    assert_int_equal(execution_reader_init(&r, x, true, &err), 0);
    assert_int_equal(execution_next(&r, clock_mono_ms() + WAIT_MS, -1, &e), EXECUTION_ENDED);
    if (execution_result(x)->reason != reason)
        print_error("ended otherwise: %s\n", execution_result(x)->message);
    assert_int_equal(execution_result(x)->reason, reason);
    if (out) {
        assert_int_equal(execution_output(x, OUTPUT_STDOUT, &text, &err), 0);
        assert_string_equal(text.data ? text.data : "", out);
    }
    execution_reader_done(&r);
}

static void run(struct session *s, const char *lang, const char *code, enum execution_reason reason,
                const char *out)
{
    struct execution *x = start(s, lang, code);

    finish(x, reason, out);
    execution_unref(x);
}

static unsigned boxes(const struct fixture *f)
{
    unsigned n = 0;
    DIR *d = opendir(f->boxes);

    assert_non_null(d);
    for (struct dirent *e = readdir(d); e; e = readdir(d))
        n += e->d_name[0] != '.';
    (void)closedir(d);
    return n;
}

static void the_end_cancels_a_run_and_keeps_files_and_row(void **state)
{
    struct fixture *f = *state;
    struct error err = { 0 };
    struct session *a = resolve(f, f->alice, "a"), *again = NULL;
    struct execution *x = start(a, "py", "wait");

    fake_runner_wait_runs(f->runner, 1);
    assert_int_equal(session_end(a, false, "on request", &err), 0);
    finish(x, ENDED_CANCELLED, "");
    assert_int_equal(fake_engine_alive(f->engine), 0);
    assert_int_equal(a->state, SESSION_STORED);
    assert_true(session_python_is_lost(a));
    assert_int_equal(boxes(f), 1);
    again = resolve(f, f->alice, "a");
    assert_string_equal(again->id, a->id);
    run(again, "bash", "out:1", ENDED_OK, "1");
    execution_unref(x);
    session_unpin(a);
    session_unpin(again);
}

static void with_its_files_nothing_of_it_is_left_and_its_name_is_free(void **state)
{
    struct fixture *f = *state;
    struct error err = { 0 };
    struct session *a = resolve(f, f->alice, "a"), *found = NULL;
    char id[ID_SIZE];
    CLEANUP(objects_done) struct objects files = { 0 };

    run(a, "bash", "touch:one.txt", ENDED_OK, "");
    struct execution *x = start(a, "bash", "wait");
    fake_runner_wait_runs(f->runner, 2);
    memcpy(id, a->id, sizeof id);
    assert_int_equal(session_end(a, true, "on request", &err), 0);
    finish(x, ENDED_CANCELLED, "");
    execution_unref(x);
    assert_int_equal(boxes(f), 0);
    assert_int_equal(fake_engine_total(f->engine), 0);
    assert_int_equal(store_list(f->store, id, &files, &err), 0);
    assert_int_equal(files.count, 0);
    assert_int_equal(session_find(f->table, f->alice, id, &found, &err), -1);
    assert_int_equal(err.kind, ERR_NOT_FOUND);
    /* who still holds it can do nothing with it */
    assert_int_equal(session_enter(a, NULL, &err), -1);
    assert_int_equal(err.kind, ERR_NOT_FOUND);
    assert_int_equal(session_end(a, true, "again", &err), -1);

    struct session *next = resolve(f, f->alice, "a");
    assert_string_not_equal(next->id, id);
    run(next, "bash", "out:1", ENDED_OK, "1");
    session_unpin(a);
    session_unpin(next);
}

static void an_interrupt_leaves_the_sandbox(void **state)
{
    struct fixture *f = *state;
    struct session *a = resolve(f, f->alice, "a"), *b = resolve(f, f->alice, "b");
    struct execution *x = start(a, "py", "wait"), *y = start(b, "py", "wait");

    fake_runner_wait_runs(f->runner, 2);
    assert_int_equal(session_interrupt(a), 1);
    finish(x, ENDED_CANCELLED, "");
    assert_int_equal(a->state, SESSION_LIVE);
    assert_false(session_python_is_lost(a));
    assert_int_equal(session_interrupt(b), 1);
    finish(y, ENDED_CANCELLED, "");
    execution_unref(x);
    execution_unref(y);
    session_unpin(a);
    session_unpin(b);
}

static void *call_on_it(void *state)
{
    struct fixture *f = state;

    for (int i = 0; i < 20; i++) {
        const struct session_hint hint = { .entity_id = "a" };
        CLEANUP(session_unpinp) struct session *s = NULL;
        struct error err = { 0 };
        if (session_resolve(f->table, f->alice, &hint, &s, NULL, &err) < 0)
            return f; /* anything but NULL: it failed */
        if (session_enter(s, NULL, &err) == 0)
            session_leave(s);
        else if (err.kind != ERR_NOT_FOUND)
            return f;
    }
    return NULL;
}

static void calls_and_ends_at_once_do_no_harm(void **state)
{
    struct fixture *f = *state;
    pthread_t callers[3];

    for (size_t i = 0; i < ARRAY_LEN(callers); i++)
        assert_int_equal(pthread_create(&callers[i], NULL, call_on_it, f), 0);
    for (int i = 0; i < 10; i++) {
        struct session *s = resolve(f, f->alice, "a");
        struct error err = { 0 };
        if (session_end(s, i % 2 == 0, "on request", &err) < 0)
            assert_int_equal(err.kind, ERR_NOT_FOUND);
        session_unpin(s);
    }
    for (size_t i = 0; i < ARRAY_LEN(callers); i++) {
        void *failed = NULL;
        assert_int_equal(pthread_join(callers[i], &failed), 0);
        assert_null(failed);
    }
}

static void a_list_has_the_principals_own_newest_use_first(void **state)
{
    struct fixture *f = *state;
    struct session *a = resolve(f, f->alice, "a"), *b = resolve(f, f->alice, "b"),
                   *c = resolve(f, f->bob, "c");
    CLEANUP(session_infos_done) struct session_infos list = { 0 }, none = { 0 };
    struct error err = { 0 };

    b->last_used_ms += 1000; /* nobody else is running */
    assert_int_equal(session_list(f->table, f->alice, INT64_MAX, 10, &list, &err), 0);
    assert_int_equal(list.count, 2);
    assert_string_equal(list.items[0].id, b->id);
    assert_string_equal(list.items[1].entity_id, "a");
    assert_int_equal(session_list(f->table, f->alice, 1, 10, &none, &err), 0);
    assert_int_equal(none.count, 0);
    session_unpin(a);
    session_unpin(b);
    session_unpin(c);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(the_end_cancels_a_run_and_keeps_files_and_row),
        CASE(with_its_files_nothing_of_it_is_left_and_its_name_is_free),
        CASE(an_interrupt_leaves_the_sandbox),
        CASE(calls_and_ends_at_once_do_no_harm),
        CASE(a_list_has_the_principals_own_newest_use_first),
    };

    (void)signal(SIGPIPE, SIG_IGN); /* as main does */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
