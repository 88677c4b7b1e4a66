/* The kernel's owner against a kernel of the test's own: this program, run again as the configured module. */
#include <fcntl.h>
#include <signal.h>
#include <zmq.h>

#include "tests/unit/runner_rig.h"

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
/* libzmq is not instrumented, so that what its threads do in it looks unordered. */
const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void)
{
    return "called_from_lib:libzmq.so\ncalled_from_lib:libstdc++.so\n";
}
#endif
#endif

/* ---- the kernel ---- */

struct fake {
    void *shell, *iopub;
    char header[8192]; /* of the request in hand */
    char ident[64];
    size_t ident_len;
    bool aborted;
};

static volatile sig_atomic_t interrupted;
static void on_interrupt(int sig)
{
    (void)sig;
    interrupted = 1;
}

static void put(void *socket, const char *text, bool more)
{
    (void)zmq_send(socket, text, strlen(text), more ? ZMQ_SNDMORE : 0);
}

static void send_message(struct fake *f, void *socket, const char *type, const char *parent,
                         const char *content)
{
    auto_free char *header = xasprintf("{\"msg_type\":\"%s\",\"msg_id\":\"k\"}", type);

    if (socket == f->shell)
        (void)zmq_send(socket, f->ident, f->ident_len, ZMQ_SNDMORE);
    put(socket, "<IDS|MSG>", true);
    put(socket, "", true);
    put(socket, header, true);
    put(socket, parent, true);
    put(socket, "{}", true);
    put(socket, content, false);
}

static void publish(struct fake *f, const char *type, const char *content)
{
    send_message(f, f->iopub, type, f->header, content);
}
static void idle(struct fake *f) { publish(f, "status", "{\"execution_state\":\"idle\"}"); }
static void reply(struct fake *f, const char *content)
{
    send_message(f, f->shell, "execute_reply", f->header, content);
}
static void say(struct fake *f, const char *text)
{
    auto_free char *content = xasprintf("{\"name\":\"stdout\",\"text\":\"%s\"}", text);
    publish(f, "stream", content);
}
static void done(struct fake *f)
{
    reply(f, "{\"status\":\"ok\"}");
    idle(f);
}

static void act_nonsense(struct fake *f)
{
    static const char *const contents[] = { "",
                                            "{",
                                            "[]",
                                            "7",
                                            "{\"data\":7}",
                                            "{\"text\":1,\"name\":\"stdout\"}",
                                            "{\"execution_state\":[]}",
                                            "\xff\xfe",
                                            "{\"data\":{\"image/png\":\"!\"}}" };
    static const char *const types[] = { "stream", "display_data", "execute_result",
                                         "error",  "status",       "other" };

    for (size_t t = 0; t < ARRAY_LEN(types); t++)
        for (size_t c = 0; c < ARRAY_LEN(contents); c++)
            publish(f, types[t], contents[c]);
    put(f->iopub, "<IDS|MSG>", false);
    for (int i = 0; i < 100; i++)
        put(f->iopub, "x", i < 99);
    auto_free char *deep = xcalloc(1, 12001);
    memset(deep, '[', 12000);
    publish(f, "stream", deep);
    send_message(f, f->iopub, "stream", deep, "{}");
    send_message(f, f->iopub, "stream", "{\"msg_id\":\"foreign\"}",
                 "{\"name\":\"stdout\",\"text\":\"foreign\"}");
    send_message(f, f->iopub, "status", "{\"msg_id\":\"foreign\"}", "{\"execution_state\":\"idle\"}");
}

static void wait_for_interrupt(void)
{
    while (!interrupted)
        (void)poll(NULL, 0, 1000); /* EINTR ends it at once */
}

static void act(struct fake *f, const char *code)
{
    interrupted = 0;
    if (str_starts(code, "say ")) {
        say(f, code + 4);
        done(f);
    } else if (str_eq(code, "idle first")) {
        say(f, "text");
        idle(f);
        (void)poll(NULL, 0, 20);
        reply(f, "{\"status\":\"ok\"}");
    } else if (str_eq(code, "reply first")) {
        reply(f, "{\"status\":\"ok\"}");
        (void)poll(NULL, 0, 20);
        say(f, "text");
        idle(f);
    } else if (str_eq(code, "fail")) {
        reply(
            f,
            "{\"status\":\"error\",\"ename\":\"E\",\"evalue\":\"v\"}"); /* before the error, as it happens */
        publish(
            f, "error",
            "{\"ename\":\"E\",\"evalue\":\"v\",\"traceback\":[\"\\u001b[31mline 1\\u001b[0m\",\"E: v\"]}");
        idle(f);
    } else if (str_starts(code, "exit ")) {
        auto_free char *content = xasprintf(
            "{\"status\":\"error\",\"ename\":\"SystemExit\",\"evalue\":\"%s\"}", code + 5);
        reply(f, content);
        idle(f);
    } else if (str_eq(code, "leave")) {
        reply(f, "{\"status\":\"ok\",\"payload\":[{\"source\":\"ask_exit\"}]}");
        idle(f);
        (void)poll(NULL, 0, 50);
        _exit(0);
    } else if (str_starts(code, "signal ")) {
        say(f, "last words");
        (void)poll(NULL, 0, 50);        /* the I/O thread sends them */
        (void)signal(SIGSEGV, SIG_DFL); /* a sanitizer has its own */
        (void)raise(code[7] == 'S' ? SIGSEGV : SIGKILL);
    } else if (str_eq(code, "die")) {
        _exit(9);
    } else if (str_eq(code, "die later")) {
        done(f);
        (void)poll(NULL, 0, 50);
        _exit(9);
    } else if (str_eq(code, "sleep")) {
        wait_for_interrupt();
        reply(f, "{\"status\":\"error\",\"ename\":\"KeyboardInterrupt\",\"evalue\":\"\"}");
        idle(f);
    } else if (str_eq(code, "deaf")) {
        for (;;)
            wait_for_interrupt();
    } else if (str_eq(code, "abort once")) {
        reply(f, f->aborted ? "{\"status\":\"ok\"}" : "{\"status\":\"aborted\"}");
        idle(f);
        f->aborted = true;
    } else if (str_eq(code, "flood")) {
        while (!interrupted)
            say(f, "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
                   "xx");
        done(f);
    } else if (str_eq(code, "reply only")) {
        reply(f, "{\"status\":\"ok\"}");
    } else if (str_eq(code, "after the end")) {
        done(f);
        (void)poll(NULL, 0, 50);
        say(f, "from a thread\\n");
        idle(f);
    } else if (str_eq(code, "nonsense")) {
        act_nonsense(f);
        say(f, "alive");
        done(f);
    } else if (str_eq(code, "show")) {
        publish(f, "display_data", "{\"data\":{\"image/png\":\"UE5H\",\"text/plain\":\"<Figure>\"}}");
        publish(f, "display_data", "{\"data\":{\"text/html\":\"<b>\",\"text/plain\":\"<HTML object>\"}}");
        publish(f, "display_data", "{\"data\":{\"text/html\":\"<table>\",\"text/plain\":\"a b\"}}");
        publish(f, "execute_result", "{\"data\":{\"text/plain\":\"42\"}}");
        done(f);
    } else if (str_eq(code, "show many")) {
        for (int i = 0; i < DISPLAYS_MAX + 5; i++)
            publish(f, "display_data", "{\"data\":{\"text/plain\":\"d\"}}");
        done(f);
    } else {
        done(f);
    }
}

static void serve_request(struct fake *f)
{
    char parts[8][8192] = { 0 };
    int n = 0, more = 1;
    size_t size = sizeof more;
    struct error err = { 0 };

    for (; more && n < 8; n++) {
        int len = zmq_recv(f->shell, parts[n], sizeof parts[n] - 1, 0);
        if (len < 0)
            return;
        if (n == 0) {
            f->ident_len = (size_t)len;
            memcpy(f->ident, parts[0], (size_t)len);
        }
        (void)zmq_getsockopt(f->shell, ZMQ_RCVMORE, &more, &size);
    }
    (void)snprintf(f->header, sizeof f->header, "%s", parts[3]);
    if (strstr(f->header, "kernel_info_request")) {
        send_message(f, f->shell, "kernel_info_reply", f->header, "{}");
        idle(f);
        return;
    }
    json_auto_t *content = NULL;
    const char *code = "";
    if (jsonx_parse(parts[6], strlen(parts[6]), &content, &err) == 0 &&
        jsonx_unpack(content, &err, "{s:s}", "code", &code) == 0)
        act(f, code);
}

static _Noreturn void be_kernel(const char *module, bool careful, const char *connection)
{
    struct fake f = { 0 };
    struct sigaction sa = { .sa_handler = on_interrupt };
    auto_free char *dir = xstrndup(connection, (size_t)(strrchr(connection, '/') - connection));
    auto_free char *shell = xasprintf("ipc://%s/k-1", dir), *iopub = xasprintf("ipc://%s/k-2", dir);

    if (str_eq(module, "dies_unless_careful") && !careful) {
        (void)fprintf(stderr, "first\nbad start-up file\n");
        _exit(3);
    }
    if (str_eq(module, "always_dies"))
        _exit(3);
    (void)sigaction(SIGINT, &sa, NULL);
    void *context = zmq_ctx_new();
    f.shell = zmq_socket(context, ZMQ_ROUTER);
    f.iopub = zmq_socket(context, ZMQ_PUB);
    int none = 0;
    (void)zmq_setsockopt(f.iopub, ZMQ_SNDHWM, &none, sizeof none);
    if (zmq_bind(f.shell, shell) < 0 || zmq_bind(f.iopub, iopub) < 0)
        _exit(4);
    for (;;)
        serve_request(&f);
}

/* ---- the tests ---- */

static struct rig rig;

static int setup(void **state)
{
    (void)state;
    rig_start(&rig, "fake");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    rig_stop(&rig);
    return 0;
}

static void run(const char *code, json_t *more, struct outcome *o) { rig_run(&rig, "py", code, more, o); }

static json_t *timeout(int ms) { return json_pack("{s:i}", "timeout_ms", ms); }

static bool lost(const struct outcome *o) { return json_is_true(outcome_field(o, FRAME_END, "kernel_lost")); }

static void cells_end_when_reply_and_idle_came(void **state)
{
    static const struct {
        const char *code, *out, *err, *reason;
        int exit;
    } cases[] = {
        { "say hello", "hello", "", "ok", 0 },  { "idle first", "text", "", "ok", 0 },
        { "reply first", "text", "", "ok", 0 }, { "fail", "", "line 1\nE: v\n", "error", 1 },
        { "exit 3", "", "", "error", 3 },       { "exit 0", "", "", "ok", 0 },
        { "exit None", "", "", "ok", 0 },       { "exit went wrong", "", "went wrong\n", "error", 1 },
        { "abort once", "", "", "ok", 0 },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct outcome o;
        run(cases[i].code, NULL, &o);
        assert_string_equal(outcome_text(&o.out), cases[i].out);
        assert_string_equal(outcome_text(&o.err), cases[i].err);
        assert_string_equal(end_text(&o, "reason"), cases[i].reason);
        assert_int_equal(end_number(&o, "code"), cases[i].exit);
        assert_false(lost(&o));
        outcome_done(&o);
    }
}

static void death_of_the_kernel_is_explained(void **state)
{
    static const struct {
        const char *code, *reason, *signal;
        int exit;
    } cases[] = {
        { "signal KILL", "signal", "SIGKILL", 137 },
        { "signal SEGV", "signal", "SIGSEGV", 139 },
        { "die", "kernel_died", "(null)", 9 },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct outcome o;
        run(cases[i].code, NULL, &o);
        assert_string_equal(end_text(&o, "reason"), cases[i].reason);
        assert_string_equal(end_text(&o, "signal"), cases[i].signal);
        assert_int_equal(end_number(&o, "code"), cases[i].exit);
        assert_non_null(strstr(end_text(&o, "message"), "variables are gone"));
        assert_true(lost(&o));
        if (i == 0)
            assert_string_equal(outcome_text(&o.out), "last words");
        outcome_done(&o);
        run("say back", NULL, &o); /* restarted by itself */
        assert_string_equal(outcome_text(&o.out), "back");
        assert_true(json_is_null(outcome_field(&o, FRAME_STARTED, "kernel_lost"))); /* END has said so */
        outcome_done(&o);
    }
}

static void death_between_cells_is_told_by_the_next(void **state)
{
    struct outcome o;
    int64_t limit = clock_mono_ms() + RIG_WAIT_MS;

    (void)state;
    run("die later", NULL, &o);
    assert_string_equal(end_text(&o, "reason"), "ok");
    assert_false(lost(&o));
    outcome_done(&o);
    while (!str_eq(python_word(rig.runner.python), "starting") && clock_mono_ms() < limit)
        runner_turn(&rig.runner, 10);
    run("say back", NULL, &o);
    assert_non_null(json_string_value(outcome_field(&o, FRAME_STARTED, "kernel_lost")));
    assert_string_equal(outcome_text(&o.out), "back");
    outcome_done(&o);
    run("leave", NULL, &o); /* exit() of a plain IPython */
    assert_string_equal(end_text(&o, "reason"), "ok");
    assert_true(lost(&o));
    outcome_done(&o);
    run("say back", NULL, &o);
    assert_string_equal(outcome_text(&o.out), "back");
    assert_true(json_is_null(outcome_field(&o, FRAME_STARTED, "kernel_lost")));
    outcome_done(&o);
}

static void time_limit_interrupts_then_kills(void **state)
{
    struct outcome o;

    (void)state;
    run("sleep", timeout(50), &o);
    assert_string_equal(end_text(&o, "reason"), "timeout");
    assert_int_equal(end_number(&o, "code"), 124);
    assert_non_null(strstr(end_text(&o, "message"), "variables are kept"));
    assert_false(lost(&o));
    outcome_done(&o);

    struct client c;
    outcome_init(&o);
    client_open(&c, &rig);
    client_send(&c, FRAME_RUN, run_document("deaf", "py", "deaf", timeout(50)));
    client_await(&c, &o, FRAME_STARTED);
    for (int i = 0; i < 8; i++) { /* the ladder, a second a step */
        rig_skew_ms += 500;
        runner_turn(&rig.runner, 1);
    }
    client_await(&c, &o, FRAME_END);
    assert_string_equal(end_text(&o, "reason"), "timeout");
    assert_non_null(strstr(end_text(&o, "message"), "variables are gone"));
    assert_true(lost(&o));
    client_close(&c);
    outcome_done(&o);
    run("say back", NULL, &o);
    assert_string_equal(outcome_text(&o.out), "back");
    outcome_done(&o);
}

static void cells_queue_and_are_cancelled(void **state)
{
    static const char *const ids[] = { "first", "second", "third" };
    struct client c[3];
    struct outcome o[3];

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        outcome_init(&o[i]);
        client_open(&c[i], &rig);
        client_send(&c[i], FRAME_RUN, run_document(ids[i], "py", i == 0 ? "sleep" : "say x", NULL));
    }
    client_await(&c[0], &o[0], FRAME_STARTED);
    client_send(&c[1], FRAME_CANCEL, json_pack("{s:s}", "id", "second"));
    client_await(&c[1], &o[1], FRAME_END);
    assert_string_equal(end_text(&o[1], "reason"), "cancelled");
    assert_int_equal(o[1].counts[FRAME_STARTED], 0);
    client_poll(&c[2], &o[2]);
    assert_int_equal(o[2].counts[FRAME_STARTED], 0); /* it waits its turn */
    client_send(&c[0], FRAME_CANCEL, json_pack("{s:s}", "id", "first"));
    client_await(&c[0], &o[0], FRAME_END);
    assert_string_equal(end_text(&o[0], "reason"), "cancelled");
    client_await(&c[2], &o[2], FRAME_END);
    assert_string_equal(outcome_text(&o[2].out), "x");
    for (size_t i = 0; i < 3; i++) {
        client_close(&c[i]);
        outcome_done(&o[i]);
    }
}

static void flood_is_cut_and_interrupted(void **state)
{
    struct outcome o;

    (void)state;
    run("flood", json_pack("{s:i}", "output_max", 4096), &o);
    assert_string_equal(end_text(&o, "reason"), "output_limit");
    assert_true(o.out.len < 8192);
    assert_false(lost(&o));
    outcome_done(&o);
}

static void nonsense_from_the_kernel_is_survived(void **state)
{
    struct outcome o;

    (void)state;
    run("nonsense", NULL, &o);
    assert_string_equal(end_text(&o, "reason"), "ok");
    assert_non_null(strstr(outcome_text(&o.out), "alive"));
    assert_null(strstr(outcome_text(&o.out), "foreign"));
    outcome_done(&o);
}

static void missing_idle_is_not_waited_for_long(void **state)
{
    struct client c;
    struct outcome o;

    (void)state;
    outcome_init(&o);
    client_open(&c, &rig);
    client_send(&c, FRAME_RUN, run_document("half", "py", "reply only", NULL));
    client_await(&c, &o, FRAME_STARTED);
    for (int i = 0; i < 200 && o.counts[FRAME_END] == 0; i++) {
        rig_skew_ms += 100;
        runner_turn(&rig.runner, 1);
        client_poll(&c, &o);
    }
    assert_string_equal(end_text(&o, "reason"), "ok");
    client_close(&c);
    outcome_done(&o);
}

static void output_of_threads_goes_to_the_next_cell(void **state)
{
    struct outcome o;
    int64_t until;

    (void)state;
    run("after the end", NULL, &o);
    assert_int_equal(o.out.len, 0);
    outcome_done(&o);
    for (until = clock_mono_ms() + 200; clock_mono_ms() < until;)
        runner_turn(&rig.runner, 10);
    run("say own", NULL, &o);
    assert_string_equal(outcome_text(&o.out), "from a thread\nown");
    outcome_done(&o);
}

static void displays_become_files_or_text(void **state)
{
    struct outcome o;
    struct stat st;
    auto_free char *plot = xasprintf("%s/plot_1.png", rig.config.workspace);
    auto_free char *page = xasprintf("%s/display_1.html", rig.config.workspace);

    (void)state;
    run("show", NULL, &o);
    assert_string_equal(outcome_text(&o.out), "a b\n42\n");
    assert_int_equal(o.counts[FRAME_DISPLAY], 3);
    assert_int_equal(o.counts[FRAME_RESULT], 1);
    assert_int_equal(stat(plot, &st), 0);
    assert_int_equal(st.st_size, 3);
    assert_int_equal(stat(page, &st), 0);
    outcome_done(&o);
    run("show many", NULL, &o);
    assert_int_equal(o.counts[FRAME_DISPLAY], DISPLAYS_MAX);
    assert_int_equal(end_number(&o, "skipped_displays"), 5);
    outcome_done(&o);
}

static void poisoned_start_up_is_left_out(void **state)
{
    struct outcome o;

    (void)state;
    rig.config.kernel_module = "dies_unless_careful";
    run("die", NULL, &o);
    outcome_done(&o);
    run("say careful", NULL, &o);
    assert_string_equal(outcome_text(&o.out), "careful");
    assert_non_null(strstr(outcome_text(&o.err), "(bad start-up file)"));
    outcome_done(&o);
    run("say once", NULL, &o);
    assert_int_equal(o.err.len, 0);
    outcome_done(&o);
}

static void kernel_that_never_starts_is_given_up(void **state)
{
    struct client c;
    struct outcome o;

    (void)state;
    rig.config.kernel_module = "always_dies";
    run("die", NULL, &o);
    outcome_done(&o);
    outcome_init(&o);
    client_open(&c, &rig);
    client_send(&c, FRAME_RUN, run_document("vain", "py", "say x", NULL));
    for (int i = 0; i < 2000 && o.counts[FRAME_END] == 0; i++) {
        rig_skew_ms += 20; /* the pauses between its tries */
        runner_turn(&rig.runner, 5);
        client_poll(&c, &o);
    }
    assert_string_equal(end_text(&o, "reason"), "not_started");
    client_close(&c);
    outcome_done(&o);
    assert_string_equal(python_word(rig.runner.python), "dead");
    rig.config.kernel_module = "fake"; /* repaired: the next call tries again */
    run("say repaired", NULL, &o);
    assert_string_equal(outcome_text(&o.out), "repaired");
    outcome_done(&o);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cells_end_when_reply_and_idle_came),
        cmocka_unit_test(death_of_the_kernel_is_explained),
        cmocka_unit_test(death_between_cells_is_told_by_the_next),
        cmocka_unit_test(time_limit_interrupts_then_kills),
        cmocka_unit_test(cells_queue_and_are_cancelled),
        cmocka_unit_test(flood_is_cut_and_interrupted),
        cmocka_unit_test(nonsense_from_the_kernel_is_survived),
        cmocka_unit_test(missing_idle_is_not_waited_for_long),
        cmocka_unit_test(output_of_threads_goes_to_the_next_cell),
        cmocka_unit_test(displays_become_files_or_text),
        cmocka_unit_test(poisoned_start_up_is_left_out),
        cmocka_unit_test(kernel_that_never_starts_is_given_up),
    };

    if (argc == 6 && strcmp(argv[2], "-m") == 0)
        be_kernel(argv[3], strcmp(argv[1], "-I") == 0, argv[5]);
    return cmocka_run_group_tests(tests, setup, teardown);
}
