#include "orchestrator/session/probe.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ZEROS "00000000000000000000000000000000000000000000000000000000000000000000000000000000"

static const struct {
    const char *name, *good, *bad;
} lines[] = {
    { "uid", "200000", "0" },
    { "capabilities", ZEROS,
      "00000000a80425fb0000000000000000000000000000000000000000000000000000000000000000" },
    { "no_new_privileges", "1", "0" },
    { "seccomp", "2", "0" },
    { "interfaces", "lo ", "eth0 lo " },
    { "memory", "1073741824", "max" },
    { "pids", "256", "max" },
    { "root", "read-only", "writable" },
    { "tmp", "usable", "unusable" },
    { "home", "usable", "unusable" },
};

/* A report in which line `bad` tells of a missing protection (-1: none), or is absent. */
static char *report(int bad, bool absent)
{
    char *text = xstrdup("");

    for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
        if ((int)i == bad && absent)
            continue;
        char *longer = xasprintf("%s%s=%s\n", text, lines[i].name,
                                 (int)i == bad ? lines[i].bad : lines[i].good);
        free(text);
        text = longer;
    }
    return text;
}

static void every_missing_protection_is_fatal_and_named(void **state)
{
    struct config cfg;
    struct error err = { 0 };

    (void)state;
    assert_int_equal(config_load(&cfg, &err), 0);
    auto_free char *good = report(-1, false);
    assert_int_equal(probe_check_report(&cfg, 200000, good, &err), 0);
    for (size_t i = 0; i < 2 * ARRAY_LEN(lines); i++) {
        auto_free char *text = report((int)(i / 2), i % 2 == 1);
        assert_int_equal(probe_check_report(&cfg, 200000, text, &err), -1);
        assert_int_equal(err.kind, ERR_FORBIDDEN);
        assert_non_null(strstr(err.msg, lines[i / 2].name));
    }
    config_done(&cfg);
}

static struct engine_inspection honest(const struct config *cfg)
{
    struct engine_spec want = { 0 };

    sandbox_spec_limits(cfg, &want);
    struct engine_inspection seen = { .memory_bytes = want.memory_bytes,
                                      .memory_swap_bytes = want.memory_bytes,
                                      .nano_cpus = want.nano_cpus,
                                      .pids = want.pids,
                                      .shm_bytes = want.shm_bytes,
                                      .read_only_root = true,
                                      .no_new_privileges = true,
                                      .all_caps_dropped = true };
    (void)snprintf(seen.network, sizeof seen.network, "none");
    return seen;
}

static void an_engine_that_ignored_a_limit_is_found_out(void **state)
{
    struct config cfg;
    struct error err = { 0 };

    (void)state;
    assert_int_equal(config_load(&cfg, &err), 0);
    struct engine_inspection seen = honest(&cfg);
    assert_int_equal(probe_check_inspection(&cfg, &seen, &err), 0);
#define LIE(member, value)                                                                                   \
    seen = honest(&cfg);                                                                                     \
    seen.member = (value);                                                                                   \
    assert_int_equal(probe_check_inspection(&cfg, &seen, &err), -1);                                         \
    assert_int_equal(err.kind, ERR_FORBIDDEN)
    LIE(memory_bytes, 0);
    LIE(memory_swap_bytes, -1);
    LIE(nano_cpus, 0);
    LIE(pids, 0);
    LIE(shm_bytes, 1);
    LIE(read_only_root, false);
    LIE(privileged, true);
    LIE(no_new_privileges, false);
    LIE(all_caps_dropped, false);
    LIE(network[0], 'b');
    config_done(&cfg);
}

static void a_runtime_that_was_asked_for_must_be_used(void **state)
{
    struct config cfg;
    struct error err = { 0 };

    (void)state;
    assert_int_equal(setenv("SANDBOX_RUNTIME", "runsc", 1), 0);
    assert_int_equal(config_load(&cfg, &err), 0);
    assert_int_equal(unsetenv("SANDBOX_RUNTIME"), 0);
    struct engine_inspection seen = honest(&cfg);
    assert_int_equal(probe_check_inspection(&cfg, &seen, &err), -1);
    (void)snprintf(seen.runtime, sizeof seen.runtime, "runsc");
    assert_int_equal(probe_check_inspection(&cfg, &seen, &err), 0);
    config_done(&cfg);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_missing_protection_is_fatal_and_named),
        cmocka_unit_test(an_engine_that_ignored_a_limit_is_found_out),
        cmocka_unit_test(a_runtime_that_was_asked_for_must_be_used),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
