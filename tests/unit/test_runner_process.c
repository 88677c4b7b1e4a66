#include <fcntl.h>

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

static void run(const char *code, json_t *more, struct outcome *o) { rig_run(&rig, "bash", code, more, o); }

static json_t *option(const char *key, json_t *value) { return json_pack("{s:o}", key, value); }

static void streams_and_exit_code_are_told(void **state)
{
    static const struct {
        const char *code, *out, *err, *reason;
        int exit;
    } cases[] = {
        { "echo one; echo two >&2", "one\n", "two\n", "ok", 0 },
        { "exit 7", "", "", "error", 7 },
        { "nosuchthing", "", "main.sh: line 1: nosuchthing: command not found\n", "error", 127 },
        { "\n\nnosuchthing", "", "main.sh: line 3: nosuchthing: command not found\n", "error", 127 },
        { "kill -TERM $$", "", "", "signal", 143 },
        { "cat", "", "", "ok", 0 }, /* standard input is empty, not open */
        { "printf '%s' \"$HOME $USER\" | sed s,.*/,,", "home sandbox", "", "ok", 0 },
        { "umask; trap", "0022\n", "", "ok", 0 },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct outcome o;
        run(cases[i].code, NULL, &o);
        assert_string_equal(outcome_text(&o.out), cases[i].out);
        assert_string_equal(outcome_text(&o.err), cases[i].err);
        assert_string_equal(end_text(&o, "reason"), cases[i].reason);
        assert_int_equal(end_number(&o, "code"), cases[i].exit);
        assert_int_equal(o.counts[FRAME_STARTED], 1);
        outcome_done(&o);
    }
}

static void signal_is_named(void **state)
{
    struct outcome o;

    (void)state;
    run("kill -SEGV $$", NULL, &o);
    assert_string_equal(end_text(&o, "signal"), "SIGSEGV");
    assert_int_equal(end_number(&o, "code"), 139);
    assert_non_null(strstr(end_text(&o, "message"), "SIGSEGV"));
    outcome_done(&o);
}

static void strict_mode_is_as_asked(void **state)
{
    struct outcome o;

    (void)state;
    run("false; echo on", option("bash_strict", json_true()), &o);
    assert_int_equal(o.out.len, 0);
    assert_int_equal(end_number(&o, "code"), 1);
    outcome_done(&o);
    run("false; echo on", option("bash_strict", json_false()), &o);
    assert_string_equal(outcome_text(&o.out), "on\n");
    outcome_done(&o);
}

static void arguments_and_input_arrive(void **state)
{
    struct outcome o;

    (void)state;
    run("echo \"$2|$#\"; cat", json_pack("{s:[s, s], s:s}", "args", "a", "b c", "stdin", "typed"), &o);
    assert_string_equal(outcome_text(&o.out), "b c|2\ntyped");
    outcome_done(&o);
}

static void input_nobody_reads_is_no_failure(void **state)
{
    struct outcome o;
    auto_free char *much = xcalloc(1, 2000001);

    (void)state;
    memset(much, 'x', 2000000);
    run("exit 0", option("stdin", json_string(much)), &o);
    assert_string_equal(end_text(&o, "reason"), "ok");
    outcome_done(&o);
    run("wc -c", option("stdin", json_string(much)), &o);
    assert_string_equal(outcome_text(&o.out), "2000000\n");
    outcome_done(&o);
}

static void binary_output_comes_through(void **state)
{
    struct outcome o;

    (void)state;
    run("printf '\\377\\000\\xe4x'", NULL, &o);
    assert_int_equal(o.out.len, 4);
    assert_memory_equal(o.out.data, "\xff\0\xe4x", 4);
    outcome_done(&o);
    run("head -c 300000 /dev/zero", NULL, &o);
    assert_int_equal(o.out.len, 300000);
    outcome_done(&o);
}

static void output_past_the_cap_is_cut_and_flood_is_ended(void **state)
{
    struct outcome o;

    (void)state;
    run("head -c 5000 /dev/zero | tr '\\0' x; echo end", option("output_max", json_integer(1024)), &o);
    assert_string_equal(end_text(&o, "reason"), "ok");
    assert_true(json_is_true(outcome_field(&o, FRAME_END, "truncated")));
    assert_non_null(strstr(o.out.data, "bytes left out"));
    assert_string_equal(o.out.data + o.out.len - 4, "end\n");
    outcome_done(&o);
    run("yes", option("output_max", json_integer(1024)), &o);
    assert_string_equal(end_text(&o, "reason"), "output_limit");
    assert_true(o.out.len < 2048);
    outcome_done(&o);
}

/* Gives whether a process with that word in its command line lives. */
static bool lives(const char *word)
{
    auto_free char *command = xasprintf("pgrep -f '%s' >/dev/null", word);
    struct outcome o;

    run(command, NULL, &o);
    assert_in_range(end_number(&o, "code"), 0, 1); /* anything else: pgrep itself failed */
    bool found = end_number(&o, "code") == 0;
    outcome_done(&o);
    return found;
}

static void background_processes_end_with_the_call(void **state)
{
    static const char *const escapes[] = {
        "sleep 98701 & echo on",
        "setsid sleep 98701 & disown; echo on",
        "nohup sleep 98701 >/dev/null 2>&1 & echo on",
        "(setsid sh -c 'sleep 98701 & exit' &); echo on",
        "setsid env -i setsid sleep 98701 & echo on",
        "trap '' TERM HUP INT; setsid sh -c 'trap \"\" TERM; sleep 98701; sleep 98701' & echo on",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(escapes); i++) {
        struct outcome o;
        int64_t begin = clock_mono_ms();
        run(escapes[i], NULL, &o);
        assert_string_equal(outcome_text(&o.out), "on\n");
        assert_string_equal(end_text(&o, "reason"), "ok");
        assert_true(clock_mono_ms() - begin < 5000); /* the pipe they hold does not delay the end */
        outcome_done(&o);
        assert_false(lives("sleep [9]8701"));
    }
}

static void time_limit_ends_the_whole_tree(void **state)
{
    struct outcome o;

    (void)state;
    run("echo before; setsid sleep 98702 & sleep 98702", option("timeout_ms", json_integer(200)), &o);
    assert_string_equal(outcome_text(&o.out), "before\n");
    assert_string_equal(end_text(&o, "reason"), "timeout");
    assert_int_equal(end_number(&o, "code"), 124);
    assert_string_equal(end_text(&o, "message"), "stopped after 0.2 s: the time limit (timeout 200 ms)");
    outcome_done(&o);
    assert_false(lives("sleep [9]8702"));
}

/* It may pass before the child has its group and its mark: then it must be killed all the same. */
static void time_limit_that_passes_at_once_is_kept(void **state)
{
    (void)state;
    for (int i = 0; i < 60; i++) {
        struct outcome o;
        run("while :; do :; done", option("timeout_ms", json_integer(1)), &o);
        assert_string_equal(end_text(&o, "reason"), "timeout");
        outcome_done(&o);
    }
}

static void limits_of_the_call_hold(void **state)
{
    struct outcome o;

    (void)state;
    run("head -c 3000000 /dev/zero > big", option("file_max", json_integer(1 << 20)), &o);
    assert_int_equal(end_number(&o, "code"), 153);
    assert_non_null(strstr(end_text(&o, "message"), "1 MB"));
    outcome_done(&o);
    run("ulimit -c; ulimit -t; ulimit -d", json_pack("{s:i, s:i}", "cpu_max_s", 77, "memory_max", 1 << 30),
        &o);
    assert_string_equal(outcome_text(&o.out), "0\n77\n1048576\n");
    outcome_done(&o);
    run("while :; do :; done", option("cpu_max_s", json_integer(1)), &o);
    assert_string_equal(end_text(&o, "reason"), "timeout");
    assert_non_null(strstr(end_text(&o, "message"), "CPU"));
    outcome_done(&o);
}

static void compile_errors_are_told_as_such(void **state)
{
    struct outcome o;

    (void)state;
    rig_run(&rig, "c", "int main(void) { return x; }", NULL, &o);
    assert_string_equal(end_text(&o, "reason"), "compile");
    assert_int_equal(strncmp(outcome_text(&o.err), "main.c: In function", 19), 0);
    outcome_done(&o);
    rig_run(&rig, "c", "#warning look\nint main(void) { return 3; }", NULL, &o);
    assert_string_equal(end_text(&o, "reason"), "error");
    assert_int_equal(end_number(&o, "code"), 3);
    assert_non_null(strstr(outcome_text(&o.err), "look"));
    outcome_done(&o);
    rig_run(&rig, "c", "int main(void) { return 0; }", option("compile_timeout_ms", json_integer(1)), &o);
    assert_string_equal(end_text(&o, "reason"), "timeout");
    outcome_done(&o);
}

static void nothing_stays_in_the_build_directory(void **state)
{
    struct outcome o;

    (void)state;
    run("d=$(dirname \"$0\"); mkdir -p $d/a/b; touch $d/a/b/c; ln -s / $d/a/root", NULL, &o);
    assert_string_equal(end_text(&o, "reason"), "ok");
    outcome_done(&o);
    assert_int_equal(rmdir(rig.config.tmp_dir), 0);
    assert_int_equal(mkdir(rig.config.tmp_dir, 0700), 0);
}

static void missing_directory_is_not_started(void **state)
{
    struct outcome o;

    (void)state;
    rig.config.tmp_dir = "/nonexistent";
    run("true", NULL, &o);
    assert_string_equal(end_text(&o, "reason"), "not_started");
    outcome_done(&o);
    rig.config.tmp_dir = rig.paths[3];
    rig_run(&rig, "py", "1", NULL, &o);
    assert_string_equal(end_text(&o, "reason"), "not_started");
    outcome_done(&o);
}

static void oom_kill_is_recognised(void **state)
{
    auto_free char *events = xasprintf("%s/memory.events", rig.config.cgroup_dir);
    auto_free char *code = xasprintf("printf 'low 0\\noom 1\\noom_kill 1\\n' > %s; kill -KILL $$", events);
    struct outcome o;

    (void)state;
    run(code, NULL, &o);
    assert_string_equal(end_text(&o, "reason"), "oom");
    assert_int_equal(end_number(&o, "code"), 137);
    outcome_done(&o);
    run("kill -KILL $$", NULL, &o); /* the counter did not rise */
    assert_string_equal(end_text(&o, "reason"), "signal");
    outcome_done(&o);
    assert_int_equal(unlink(events), 0);
}

static void descriptors_of_the_runner_are_not_inherited(void **state)
{
    struct outcome o;

    (void)state;
    run("ls /proc/self/fd | wc -l", NULL, &o);
    assert_string_equal(outcome_text(&o.out), "4\n"); /* and the one ls reads the directory with */
    outcome_done(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams_and_exit_code_are_told),
        cmocka_unit_test(signal_is_named),
        cmocka_unit_test(strict_mode_is_as_asked),
        cmocka_unit_test(arguments_and_input_arrive),
        cmocka_unit_test(input_nobody_reads_is_no_failure),
        cmocka_unit_test(binary_output_comes_through),
        cmocka_unit_test(output_past_the_cap_is_cut_and_flood_is_ended),
        cmocka_unit_test(background_processes_end_with_the_call),
        cmocka_unit_test(time_limit_ends_the_whole_tree),
        cmocka_unit_test(time_limit_that_passes_at_once_is_kept),
        cmocka_unit_test(limits_of_the_call_hold),
        cmocka_unit_test(compile_errors_are_told_as_such),
        cmocka_unit_test(nothing_stays_in_the_build_directory),
        cmocka_unit_test(missing_directory_is_not_started),
        cmocka_unit_test(oom_kill_is_recognised),
        cmocka_unit_test(descriptors_of_the_runner_are_not_inherited),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
