/* Sessions and executions over an engine and runners in memory. */
#include "orchestrator/session/execution.h"

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

/* ---- which session ---- */

static void one_entity_is_one_session_of_its_principal(void **state)
{
    struct fixture *f = *state;
    struct error err = { 0 };
    struct session *a = resolve(f, f->alice, "e"), *b = resolve(f, f->alice, "e"),
                   *c = resolve(f, f->bob, "e"), *d = NULL;

    assert_ptr_equal(a, b);
    assert_string_not_equal(a->id, c->id);
    assert_int_equal(session_find(f->table, f->alice, a->id, &d, &err), 0);
    assert_ptr_equal(a, d);
    assert_int_equal(session_find(f->table, f->bob, a->id, &d, &err), -1);
    assert_int_equal(err.kind, ERR_NOT_FOUND);
    for (struct session **s = (struct session *[]){ a, b, c, a, NULL }; *s; s++)
        session_unpin(*s);
}

static void a_foreign_session_id_counts_as_not_sent(void **state)
{
    struct fixture *f = *state;
    struct error err = { 0 };
    struct session *a = resolve(f, f->alice, "e"), *b = NULL;
    const struct session_hint hint = { .session_id = a->id };
    bool fresh = false;

    assert_int_equal(session_resolve(f->table, f->bob, &hint, &b, &fresh, &err), 0);
    assert_true(fresh);
    assert_string_not_equal(a->id, b->id);
    session_unpin(a);
    session_unpin(b);
}

/* ---- places ---- */

static void the_least_recently_used_idle_session_gives_its_place(void **state)
{
    struct fixture *f = *state;
    struct session *a = resolve(f, f->alice, "a"), *b = resolve(f, f->alice, "b"),
                   *c = resolve(f, f->alice, "c");

    run(a, "bash", "out:1", ENDED_OK, "1");
    run(b, "bash", "out:2", ENDED_OK, "2");
    a->last_used_ms -= 1000; /* nobody else is running: a was used before b for certain */
    run(c, "bash", "out:3", ENDED_OK, "3");
    assert_int_equal(a->state, SESSION_STORED);
    assert_int_equal(b->state, SESSION_LIVE);
    assert_int_equal(c->state, SESSION_LIVE);
    assert_int_equal(fake_engine_alive(f->engine), 2);
    session_unpin(a);
    session_unpin(b);
    session_unpin(c);
}

static void a_session_that_executes_is_never_evicted(void **state)
{
    struct fixture *f = *state;
    struct session *a = resolve(f, f->alice, "a"), *b = resolve(f, f->alice, "b"),
                   *c = resolve(f, f->alice, "c");
    struct execution *x = start(a, "bash", "wait"), *y = start(b, "bash", "wait");
    struct error err = { 0 };

    fake_runner_wait_runs(f->runner, 2);
    assert_int_equal(session_enter(c, NULL, &err), -1);
    assert_int_equal(err.kind, ERR_BUSY);
    assert_in_range(err.retry_after_s, 1, 60);
    execution_cancel(x);
    finish(x, ENDED_CANCELLED, "");
    run(c, "bash", "out:in", ENDED_OK, "in");
    execution_cancel(y);
    finish(y, ENDED_CANCELLED, "");
    execution_unref(x);
    execution_unref(y);
    session_unpin(a);
    session_unpin(b);
    session_unpin(c);
}

static void a_failed_start_leaves_nothing_and_can_be_tried_again(void **state)
{
    struct fixture *f = *state;
    struct session *a = resolve(f, f->alice, "a");
    struct error err = { 0 };

    fake_engine_fail(f->engine, FAKE_START, 1, ERR_UNAVAILABLE, "engine away");
    assert_int_equal(session_enter(a, NULL, &err), -1);
    assert_int_equal(err.kind, ERR_UNAVAILABLE);
    assert_int_equal(fake_engine_total(f->engine), 0);
    assert_int_equal(a->state, SESSION_STORED);
    run(a, "bash", "out:now", ENDED_OK, "now");
    session_unpin(a);
}

static void a_container_in_the_way_is_removed(void **state)
{
    struct fixture *f = *state;
    struct session *a = resolve(f, f->alice, "a");

    fake_engine_fail(f->engine, FAKE_CREATE, 1, ERR_CONFLICT, "the name is in use");
    run(a, "bash", "out:now", ENDED_OK, "now");
    session_unpin(a);
}

static void faults_of_the_engine_are_not_the_callers(void **state)
{
    static const enum error_kind kinds[] = { ERR_INVALID, ERR_NOT_FOUND, ERR_UPSTREAM, ERR_INTERNAL };
    struct fixture *f = *state;
    struct session *a = resolve(f, f->alice, "a");

    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        struct error err = { 0 };
        fake_engine_fail(f->engine, FAKE_START, 1, kinds[i], "bad");
        assert_int_equal(session_enter(a, NULL, &err), -1);
        assert_int_equal(err.kind, ERR_UNAVAILABLE);
    }
    session_unpin(a);
}

static void nothing_begins_while_the_service_stops(void **state)
{
    struct fixture *f = *state;
    struct session *a = resolve(f, f->alice, "a");
    struct execution *x = start(a, "bash", "wait");
    struct error err = { 0 };

    fake_runner_wait_runs(f->runner, 1);
    assert_true(execution_cancel_all(f->table));
    finish(x, ENDED_CANCELLED, "");
    execution_unref(x);
    assert_int_equal(session_enter(a, NULL, &err), -1);
    assert_int_equal(err.kind, ERR_UNAVAILABLE);
    session_unpin(a);
}

/* ---- executions ---- */

static void files_that_a_run_made_are_in_its_result(void **state)
{
    struct fixture *f = *state;
    struct session *a = resolve(f, f->alice, "a");
    struct execution *x = start(a, "bash", "touch:made.txt out:done");

    finish(x, ENDED_OK, "done");
    assert_int_equal(execution_result(x)->changes.files.count, 1);
    assert_string_equal(execution_result(x)->changes.files.items[0].name, "made.txt");
    execution_unref(x);
    run(a, "bash", "out:again", ENDED_OK, "again");
    session_unpin(a);
}

static void python_calls_queue_and_the_queue_is_bounded(void **state)
{
    struct fixture *f = *state;
    struct session *a = resolve(f, f->alice, "a");
    struct execution *x = start(a, "py", "wait"), *y = start(a, "py", "out:second"), *z = NULL;
    struct execution_request r = { .language = language_find("py"), .code = xstrdup(""), .timeout_ms = 1000 };
    struct error err = { 0 };

    fake_runner_wait_runs(f->runner, 1);
    assert_int_equal(session_enter(a, NULL, &err), 0);
    assert_int_equal(execution_start(a, &r, &z, &err), -1);
    assert_int_equal(err.kind, ERR_BUSY);
    assert_int_equal(fake_runner_runs(f->runner), 1);
    execution_cancel(x);
    finish(x, ENDED_CANCELLED, "");
    finish(y, ENDED_OK, "second");
    execution_unref(x);
    execution_unref(y);
    assert_int_equal(a->running, 0);
    session_unpin(a);
}

static void a_waiting_call_can_be_cancelled(void **state)
{
    struct fixture *f = *state;
    struct session *a = resolve(f, f->alice, "a");
    struct execution *x = start(a, "py", "wait"), *y = start(a, "py", "out:never");

    fake_runner_wait_runs(f->runner, 1);
    execution_cancel(y);
    finish(y, ENDED_CANCELLED, "");
    execution_cancel(x);
    finish(x, ENDED_CANCELLED, "");
    assert_int_equal(fake_runner_runs(f->runner), 1);
    execution_unref(x);
    execution_unref(y);
    session_unpin(a);
}

static void lost_variables_are_told_once(void **state)
{
    struct fixture *f = *state;
    struct session *a = resolve(f, f->alice, "a");
    struct execution *x = start(a, "py", "lost");

    finish(x, ENDED_KERNEL_DIED, "");
    assert_true(execution_result(x)->session_restarted);
    execution_unref(x);
    x = start(a, "bash", "out:x"); /* not Python: the notice waits */
    finish(x, ENDED_OK, "x");
    assert_null(execution_result(x)->notice);
    assert_true(execution_result(x)->session_restarted);
    execution_unref(x);
    x = start(a, "py", "out:y");
    finish(x, ENDED_OK, "y");
    assert_non_null(strstr(execution_result(x)->notice, "the kernel died"));
    execution_unref(x);
    x = start(a, "py", "out:z");
    finish(x, ENDED_OK, "z");
    assert_null(execution_result(x)->notice);
    assert_false(execution_result(x)->session_restarted);
    execution_unref(x);
    session_unpin(a);
}

static void a_runner_that_misbehaves_costs_its_sandbox(void **state)
{
    static const char *const codes[] = { "close", "badend", "flood" };
    struct fixture *f = *state;
    struct session *a = resolve(f, f->alice, "a");

    for (size_t i = 0; i < ARRAY_LEN(codes); i++) {
        struct execution *x = start(a, "bash", codes[i]);
        finish(x, i == 2 ? ENDED_OUTPUT_LIMIT : ENDED_SANDBOX_LOST, NULL);
        assert_non_null(execution_result(x)->message);
        execution_unref(x);
        assert_int_equal(fake_engine_alive(f->engine), 0);
        run(a, "bash", "out:well", ENDED_OK, "well");
    }
    session_unpin(a);
}

static void a_mute_sandbox_is_replaced(void **state)
{
    struct fixture *f = *state;
    struct session *a = resolve(f, f->alice, "a");
    char before[ENGINE_ID_SIZE], after[ENGINE_ID_SIZE];

    run(a, "bash", "out:1", ENDED_OK, "1");
    session_container(a, before);
    fake_engine_pause(f->engine, before); /* and its runner answers nobody */
    fake_engine_fail(f->engine, FAKE_CONNECT, 1, ERR_TIMEOUT, "mute");
    run(a, "bash", "out:2", ENDED_OK, "2");
    session_container(a, after);
    assert_string_not_equal(before, after);
    assert_false(fake_engine_exists(f->engine, before));
    session_unpin(a);
}

static void events_are_read_from_the_start_by_every_reader(void **state)
{
    struct fixture *f = *state;
    struct session *a = resolve(f, f->alice, "a");
    struct execution *x = start(a, "bash", "out:1 err:2 out:3");
    struct error err = { 0 };

    finish(x, ENDED_OK, "13");
    for (int i = 0; i < 2; i++) {
        static const enum frame_type want[] = { FRAME_STARTED, FRAME_STDOUT, FRAME_STDERR, FRAME_STDOUT,
                                                FRAME_END };
        struct execution_reader r;
        struct execution_event e;
        assert_int_equal(execution_reader_init(&r, x, false, &err), 0);
        for (size_t n = 0; n < ARRAY_LEN(want); n++) {
            assert_int_equal(execution_next(&r, clock_mono_ms() + WAIT_MS, -1, &e), EXECUTION_EVENT);
            assert_int_equal(e.type, want[n]);
        }
        assert_int_equal(execution_next(&r, clock_mono_ms() + WAIT_MS, -1, &e), EXECUTION_ENDED);
        execution_reader_done(&r);
    }
    execution_unref(x);
    session_unpin(a);
}

/* ---- deaths and restarts ---- */

static void a_death_told_by_the_engine_stores_the_session(void **state)
{
    struct fixture *f = *state;
    struct session *a = resolve(f, f->alice, "a");
    char id[ENGINE_ID_SIZE];

    run(a, "py", "out:1", ENDED_OK, "1");
    session_container(a, id);
    session_table_container_died(f->table, "unknown", "x");
    session_table_container_died(f->table, id, "its sandbox ended");
    session_table_container_died(f->table, id, "told twice");
    assert_int_equal(a->state, SESSION_STORED);
    assert_true(session_python_is_lost(a));
    assert_int_equal(fake_engine_total(f->engine), 0);
    session_unpin(a);
}

static void a_restart_takes_sandboxes_back_and_removes_strays(void **state)
{
    static const struct engine_label stray_labels[] = { { SANDBOX_LABEL_INSTANCE, "unit" },
                                                        { SANDBOX_LABEL_SESSION, "" } };
    struct fixture *f = *state;
    struct error err = { 0 };
    struct session *a = resolve(f, f->alice, "a"), *b = resolve(f, f->alice, "b");
    char id_a[ENGINE_ID_SIZE], id_b[ENGINE_ID_SIZE], stray[ENGINE_ID_SIZE];

    run(a, "py", "out:1", ENDED_OK, "1");
    run(b, "py", "out:1", ENDED_OK, "1");
    session_container(a, id_a);
    session_container(b, id_b);
    fake_engine_add(f->engine, "stray", stray_labels, 2, ENGINE_RUNNING, "/nowhere", stray);
    session_unpin(a);
    session_unpin(b);
    assert_true(execution_cancel_all(f->table)); /* waits for the threads of those that ended */
    session_table_free(f->table);
    fake_engine_die(f->engine, id_b, 1, false);

    assert_int_equal(session_table_new(&f->env, &f->table, &err), 0);
    assert_int_equal(session_table_recover(f->table, &err), 0);
    assert_int_equal(session_table_recover(f->table, &err), 0); /* a second try changes nothing */
    assert_true(fake_engine_exists(f->engine, id_a));
    assert_false(fake_engine_exists(f->engine, stray));
    a = resolve(f, f->alice, "a");
    b = resolve(f, f->alice, "b");
    assert_int_equal(a->state, SESSION_LIVE);
    assert_false(session_python_is_lost(a));
    assert_int_equal(b->state, SESSION_STORED);
    assert_true(session_python_is_lost(b));
    run(a, "py", "out:2", ENDED_OK, "2");
    session_unpin(a);
    session_unpin(b);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(one_entity_is_one_session_of_its_principal),
        CASE(a_foreign_session_id_counts_as_not_sent),
        CASE(the_least_recently_used_idle_session_gives_its_place),
        CASE(a_session_that_executes_is_never_evicted),
        CASE(a_failed_start_leaves_nothing_and_can_be_tried_again),
        CASE(a_container_in_the_way_is_removed),
        CASE(faults_of_the_engine_are_not_the_callers),
        CASE(nothing_begins_while_the_service_stops),
        CASE(files_that_a_run_made_are_in_its_result),
        CASE(python_calls_queue_and_the_queue_is_bounded),
        CASE(a_waiting_call_can_be_cancelled),
        CASE(lost_variables_are_told_once),
        CASE(a_runner_that_misbehaves_costs_its_sandbox),
        CASE(a_mute_sandbox_is_replaced),
        CASE(events_are_read_from_the_start_by_every_reader),
        CASE(a_death_told_by_the_engine_stores_the_session),
        CASE(a_restart_takes_sandboxes_back_and_removes_strays),
    };

    (void)signal(SIGPIPE, SIG_IGN); /* as main does */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
