#include "tests/unit/runner_rig.h"

static struct rig rig;

static int setup(void **state)
{
    (void)state;
    rig_start(&rig, NULL);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    rig_stop(&rig);
    return 0;
}

static void start(struct client *c, const char *id, const char *code, json_t *more)
{
    client_open(c, &rig);
    client_send(c, FRAME_RUN, run_document(id, "bash", code, more));
}

static void refer(struct client *c, enum frame_type type, const char *id, int offset)
{
    client_send(c, type, json_pack("{s:s, s:i}", "id", id, "offset", offset));
}

/* A few turns, and as many as it takes to notice a close: a child just forked holds the descriptor until it
 * executes. */
static void settle(size_t connections)
{
    int64_t limit = clock_mono_ms() + RIG_WAIT_MS;

    for (int i = 0; i < 3 || rig.runner.server.count != connections; i++) {
        assert_true(clock_mono_ms() < limit);
        runner_turn(&rig.runner, i < 3 ? 0 : 1);
    }
}

static void await_end(const char *id)
{
    int64_t limit = clock_mono_ms() + RIG_WAIT_MS;
    const struct execution *x;

    while ((x = execution_find(&rig.runner.executions, id)) != NULL && x->state != EXECUTION_ENDED) {
        assert_true(clock_mono_ms() < limit);
        runner_turn(&rig.runner, 10);
    }
}

static void hello_is_said_and_needed(void **state)
{
    struct client c;
    struct outcome o;

    (void)state;
    outcome_init(&o);
    client_open(&c, &rig);
    client_await(&c, &o, FRAME_HELLO);
    assert_int_equal(json_integer_value(outcome_field(&o, FRAME_HELLO, "protocol")), FRAME_PROTOCOL);
    assert_string_equal(json_string_value(outcome_field(&o, FRAME_HELLO, "kernel")), "dead");
    client_close(&c);
    outcome_done(&o);

    static const struct {
        enum frame_type type;
        const char *text;
    } cases[] = {
        { FRAME_LIST, "{}" },
        { FRAME_HELLO, "{\"protocol\":0,\"oldest\":0}" },
        { FRAME_HELLO, "{\"protocol\":9,\"oldest\":8}" },
        { FRAME_HELLO, "[" },
        { FRAME_END, "{}" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        json_error_t je;
        outcome_init(&o);
        client_open_mute(&c, &rig);
        json_t *doc = json_loads(cases[i].text, 0, &je);
        client_send(&c, cases[i].type, doc ? doc : json_string("x"));
        client_await(&c, &o, FRAME_LISTING);
        assert_true(o.closed);
        client_close(&c);
        outcome_done(&o);
    }
}

static void bytes_that_are_no_frames_close_the_connection(void **state)
{
    static const char *const cases[] = { "\xff\xff\xff\xff\xff\xff\xff\xff", "\0\0\0\5\x77 abcde",
                                         "GET / HTTP/1.1\r\n\r\n" };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct client c;
        struct outcome o;
        outcome_init(&o);
        client_open_mute(&c, &rig);
        client_send_raw(&c, cases[i], 8);
        client_await(&c, &o, FRAME_LISTING);
        assert_true(o.closed);
        client_close(&c);
        outcome_done(&o);
    }
}

static void malformed_requests_are_refused(void **state)
{
    static const char *const cases[] = {
        "{}",
        "{\"id\":\"x\"}",
        "{\"id\":\"x\",\"lang\":\"cobol\",\"code\":\"\"}",
        "{\"id\":\"x\",\"lang\":\"bash\",\"code\":7}",
        "{\"id\":\"x\",\"lang\":\"bash\",\"code\":\"\",\"args\":[1]}",
        "{\"id\":\"x\",\"lang\":\"bash\",\"code\":\"\",\"args\":[\"a\\u0000\"]}",
        "{\"id\":\"x\",\"lang\":\"bash\",\"code\":\"\",\"timeout_ms\":0}",
        "{\"id\":\"\",\"lang\":\"bash\",\"code\":\"\"}",
        "[]",
    };
    struct client c;
    struct outcome o;

    (void)state;
    outcome_init(&o);
    client_open(&c, &rig);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        json_error_t je;
        client_send(&c, FRAME_RUN, json_loads(cases[i], JSON_ALLOW_NUL, &je));
        client_await(&c, &o, FRAME_REFUSED);
        assert_int_equal(o.counts[FRAME_REFUSED], i + 1);
        assert_non_null(json_string_value(outcome_field(&o, FRAME_REFUSED, "message")));
    }
    static const enum frame_type types[] = { FRAME_ATTACH, FRAME_CANCEL, FRAME_ACK };
    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        refer(&c, types[i], "unknown", 0);
        client_await(&c, &o, FRAME_REFUSED);
    }
    client_send(&c, FRAME_LIST, json_object()); /* and the connection still works */
    client_await(&c, &o, FRAME_LISTING);
    client_close(&c);
    outcome_done(&o);
}

static void events_are_read_again_from_any_offset(void **state)
{
    struct client c;
    struct outcome o, again;

    (void)state;
    outcome_init(&o);
    start(&c, "again", "echo one; echo two >&2", NULL);
    client_await(&c, &o, FRAME_END);
    for (int offset = 0; offset <= 4; offset++) { /* STARTED, STDOUT, STDERR, END */
        struct client d;
        outcome_init(&again);
        client_open(&d, &rig);
        refer(&d, FRAME_ATTACH, "again", offset);
        if (offset < 4)
            client_await(&d, &again, FRAME_END);
        client_poll(&d, &again);
        assert_int_equal(again.counts[FRAME_STARTED], offset < 1);
        assert_int_equal(again.counts[FRAME_STDOUT] + again.counts[FRAME_STDERR],
                         offset < 1 ? 2 : MAX(0, 3 - offset));
        client_close(&d);
        outcome_done(&again);
    }
    refer(&c, FRAME_ATTACH, "again", 5);
    client_await(&c, &o, FRAME_REFUSED);
    refer(&c, FRAME_ACK, "again", 0);
    refer(&c, FRAME_ATTACH, "again", 0);
    client_await(&c, &o, FRAME_REFUSED);
    client_close(&c);
    outcome_done(&o);
}

static void cancel_ends_a_process(void **state)
{
    struct client c;
    struct outcome o;

    (void)state;
    outcome_init(&o);
    start(&c, "cancelled", "sleep 1000", NULL);
    client_await(&c, &o, FRAME_STARTED);
    refer(&c, FRAME_ACK, "cancelled", 0); /* not before it has ended */
    client_await(&c, &o, FRAME_REFUSED);
    refer(&c, FRAME_CANCEL, "cancelled", 0);
    client_await(&c, &o, FRAME_END);
    assert_string_equal(end_text(&o, "reason"), "cancelled");
    refer(&c, FRAME_CANCEL, "cancelled", 0); /* too late, and no harm */
    client_send(&c, FRAME_LIST, json_object());
    client_await(&c, &o, FRAME_LISTING);
    assert_int_equal(o.counts[FRAME_END], 1);
    client_close(&c);
    outcome_done(&o);
}

static void lost_connection_gives_grace_then_cancels(void **state)
{
    struct client c;
    struct outcome o;

    (void)state;
    outcome_init(&o);
    start(&c, "orphan", "sleep 1000", json_pack("{s:i}", "timeout_ms", 100000000));
    client_await(&c, &o, FRAME_STARTED);
    client_close(&c);
    settle(0);
    rig_skew_ms += EXECUTION_GRACE_MS - 1000;
    settle(0);
    assert_int_equal(execution_find(&rig.runner.executions, "orphan")->state, EXECUTION_RUNNING);
    client_open(&c, &rig);
    refer(&c, FRAME_ATTACH, "orphan", 0); /* somebody came back: the grace is over without harm */
    client_await(&c, &o, FRAME_STARTED);
    rig_skew_ms += 2 * EXECUTION_GRACE_MS;
    settle(1);
    assert_true(execution_find(&rig.runner.executions, "orphan")->state == EXECUTION_RUNNING);
    client_close(&c);
    settle(0);
    rig_skew_ms += EXECUTION_GRACE_MS + 1;
    await_end("orphan");
    outcome_done(&o);

    outcome_init(&o);
    client_open(&c, &rig);
    refer(&c, FRAME_ATTACH, "orphan", 0);
    client_await(&c, &o, FRAME_END);
    client_close(&c);
    outcome_done(&o);
}

static void detached_execution_is_left_alone(void **state)
{
    struct client c;
    struct outcome o;

    (void)state;
    outcome_init(&o);
    start(&c, "detached", "sleep 1000", json_pack("{s:b, s:i}", "detached", 1, "timeout_ms", 100000000));
    client_await(&c, &o, FRAME_STARTED);
    client_close(&c);
    settle(0);
    rig_skew_ms += 10 * EXECUTION_GRACE_MS;
    settle(0);
    struct execution *x = execution_find(&rig.runner.executions, "detached");
    assert_int_equal(x->state, EXECUTION_RUNNING);
    execution_cancel(x);
    await_end("detached");
    outcome_done(&o);
}

static void ended_execution_is_forgotten_after_a_while(void **state)
{
    struct client c;
    struct outcome o;

    (void)state;
    outcome_init(&o);
    start(&c, "kept", "echo x", NULL);
    client_await(&c, &o, FRAME_END);
    client_close(&c);
    settle(0);
    rig_skew_ms += EXECUTION_KEEP_MS - 1000;
    settle(0);
    assert_non_null(execution_find(&rig.runner.executions, "kept"));
    rig_skew_ms += 2000;
    settle(0);
    assert_null(execution_find(&rig.runner.executions, "kept"));
    outcome_done(&o);
}

static void table_is_bounded_and_drops_the_oldest_ended(void **state)
{
    struct error err = { 0 };
    char id[32];

    (void)state;
    for (int i = 0; i <= EXECUTIONS_MAX; i++) {
        struct execution *x = NULL;
        struct run_request q = { 0 };
        auto_free char *text = NULL;
        (void)snprintf(id, sizeof id, "many-%d", i);
        json_auto_t *doc = run_document(id, "bash", "", NULL);
        text = jsonx_dump(doc, NULL);
        assert_int_equal(run_request_parse(text, strlen(text), &q, &err), 0);
        assert_int_equal(execution_new(&rig.runner.executions, &q, &x, &err), 0);
        execution_start(x, NULL);
        execution_end(x, &(struct execution_end){ .reason = END_OK });
    }
    assert_null(execution_find(&rig.runner.executions, "many-0"));
    assert_non_null(execution_find(&rig.runner.executions, "many-1"));
    assert_int_equal(rig.runner.executions.count, EXECUTIONS_MAX);
    rig_skew_ms += EXECUTION_KEEP_MS + 1;
    settle(0);
    assert_int_equal(rig.runner.executions.count, 0);
}

static void same_id_twice_is_refused(void **state)
{
    struct client c, d;
    struct outcome o;

    (void)state;
    outcome_init(&o);
    start(&c, "twice", "sleep 1000", NULL);
    client_await(&c, &o, FRAME_STARTED);
    start(&d, "twice", "echo", NULL);
    client_await(&d, &o, FRAME_REFUSED);
    client_send(&c, FRAME_RUN,
                run_document("other", "bash", "echo", NULL)); /* one at a time on a connection */
    client_await(&c, &o, FRAME_REFUSED);
    refer(&d, FRAME_CANCEL, "twice", 0);
    client_await(&c, &o, FRAME_END);
    client_close(&c);
    client_close(&d);
    outcome_done(&o);
}

static void slow_reader_delays_nobody(void **state)
{
    struct client slow;
    struct outcome o;

    (void)state;
    start(&slow, "slow", "head -c 1000000 /dev/zero | tr '\\0' x", NULL);
    await_end("slow"); /* though nobody has read a byte */
    rig_run(&rig, "bash", "echo quick", NULL, &o);
    assert_string_equal(outcome_text(&o.out), "quick\n");
    outcome_done(&o);
    outcome_init(&o);
    client_await(&slow, &o, FRAME_END);
    assert_int_equal(o.out.len, 1000000);
    client_close(&slow);
    outcome_done(&o);
}

static void connections_are_bounded(void **state)
{
    struct client c[CONNECTIONS_MAX + 1];
    struct outcome o;

    (void)state;
    settle(0);
    for (size_t i = 0; i < ARRAY_LEN(c); i++) {
        client_open(&c[i], &rig);
        settle(MIN(i + 1, CONNECTIONS_MAX));
    }
    assert_int_equal(rig.runner.server.count, CONNECTIONS_MAX);
    outcome_init(&o);
    client_await(&c[CONNECTIONS_MAX], &o, FRAME_LISTING);
    assert_true(o.closed);
    outcome_done(&o);
    for (size_t i = 0; i < ARRAY_LEN(c); i++)
        client_close(&c[i]);
    settle(0);
    assert_int_equal(rig.runner.server.count, 0);
}

static void abandoned_runner_stops(void **state)
{
    struct client c;

    (void)state;
    client_open(&c, &rig);
    settle(1);
    rig_skew_ms += 2 * rig.config.orphan_s * 1000;
    settle(1);
    assert_false(rig.runner.stopping); /* somebody is there */
    client_close(&c);
    settle(0);
    rig_skew_ms += rig.config.orphan_s * 1000 - 1000;
    settle(0);
    assert_false(rig.runner.stopping);
    rig_skew_ms += 1001;
    settle(0);
    assert_true(rig.runner.stopping);
}

static void strangers_are_not_served(void **state)
{
    struct client c;
    struct outcome o;

    (void)state;
    rig.config.any_peer = false; /* this test is in the runner's own pid namespace */
    outcome_init(&o);
    client_open(&c, &rig);
    client_await(&c, &o, FRAME_HELLO);
    assert_true(o.closed);
    assert_int_equal(o.counts[FRAME_HELLO], 0);
    client_close(&c);
    outcome_done(&o);
    rig.config.any_peer = true;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hello_is_said_and_needed),
        cmocka_unit_test(bytes_that_are_no_frames_close_the_connection),
        cmocka_unit_test(malformed_requests_are_refused),
        cmocka_unit_test(events_are_read_again_from_any_offset),
        cmocka_unit_test(cancel_ends_a_process),
        cmocka_unit_test(lost_connection_gives_grace_then_cancels),
        cmocka_unit_test(detached_execution_is_left_alone),
        cmocka_unit_test(ended_execution_is_forgotten_after_a_while),
        cmocka_unit_test(table_is_bounded_and_drops_the_oldest_ended),
        cmocka_unit_test(same_id_twice_is_refused),
        cmocka_unit_test(slow_reader_delays_nobody),
        cmocka_unit_test(connections_are_bounded),
        cmocka_unit_test(abandoned_runner_stops),
        cmocka_unit_test(strangers_are_not_served),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
