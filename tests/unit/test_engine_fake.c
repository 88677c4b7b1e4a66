/* The fake that other layers' tests trust keeps the promises of engine.h. */
#include "tests/fakes/fake_engine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "common/fd.h"

static const struct engine_label labels[] = { { "i", "1" }, { "s", "x" } };
static const struct engine_mount mounts[] = { { "/box/data", "/mnt/data", false },
                                              { "/box/run", "/run", false } };

static int create(struct engine *e, const char *name, char id[ENGINE_ID_SIZE], struct error *err)
{
    struct engine_spec spec = { .name = name,
                                .image = "i",
                                .network = "none",
                                .labels = labels,
                                .label_count = ARRAY_LEN(labels),
                                .mounts = mounts,
                                .mount_count = ARRAY_LEN(mounts),
                                .pids = 5 };

    return e->ops->create(e, &spec, id, err);
}

static int setup(void **state) { return (*state = fake_engine_new()) ? 0 : -1; }

static int teardown(void **state)
{
    engine_close(*state);
    return 0;
}

static void container_lives_from_create_to_remove(void **state)
{
    struct engine *e = *state;
    char id[ENGINE_ID_SIZE];
    struct engine_inspection seen;
    struct engine_containers found = { 0 };
    struct error err = { 0 };

    assert_int_equal(create(e, "a", id, &err), 0);
    assert_int_equal(create(e, "a", id, &err), -1);
    assert_int_equal(err.kind, ERR_CONFLICT);
    assert_int_equal(fake_engine_alive(e), 0);
    assert_int_equal(e->ops->start(e, id, &err), 0);
    assert_int_equal(e->ops->inspect(e, id, &seen, &err), 0);
    assert_true(seen.state == ENGINE_RUNNING && seen.pids == 5 && seen.all_caps_dropped);
    assert_int_equal(e->ops->list(e, "i=1", &found, &err), 0);
    assert_int_equal(found.count, 1);
    assert_string_equal(found.items[0].id, id);
    assert_string_equal(engine_container_label(&found.items[0], "s"), "x");
    engine_containers_done(&found);
    assert_int_equal(e->ops->list(e, "i=2", &found, &err), 0);
    assert_int_equal(found.count, 0);
    engine_containers_done(&found);
    assert_int_equal(e->ops->remove(e, id, &err), 0);
    assert_int_equal(e->ops->remove(e, id, &err), 0);
    assert_int_equal(e->ops->start(e, id, &err), -1);
    assert_int_equal(err.kind, ERR_NOT_FOUND);
    assert_int_equal(fake_engine_total(e), 0);
}

static void play_runner(void *state, const char *container_id, const char *run_dir, int fd)
{
    auto_close int mine = fd;
    struct error err;

    (void)stpcpy(state, container_id);
    assert_string_equal(run_dir, "/box/run");
    assert_int_equal(fd_write_all(mine, "hi", 2, &err), 0);
}

static void connect_reaches_the_runner_of_a_running_container(void **state)
{
    struct engine *e = *state;
    char id[ENGINE_ID_SIZE], seen[ENGINE_ID_SIZE] = "", text[8] = "";
    size_t n = 0;
    int fd = -1;
    struct error err = { 0 };

    fake_engine_set_runner(e, play_runner, seen);
    assert_int_equal(create(e, "a", id, &err), 0);
    assert_int_equal(e->ops->connect(e, "/box/run", &fd, &err), -1);
    assert_int_equal(err.kind, ERR_NOT_FOUND);
    assert_int_equal(e->ops->start(e, id, &err), 0);
    assert_int_equal(e->ops->connect(e, "/box/run", &fd, &err), 0);
    auto_close int mine = fd;
    assert_string_equal(seen, id);
    assert_int_equal(fd_read_full(mine, text, sizeof text, &n, &err), 0);
    assert_string_equal(text, "hi");
}

static void failures_are_programmed_by_count(void **state)
{
    struct engine *e = *state;
    char id[ENGINE_ID_SIZE];
    struct error err = { 0 };

    fake_engine_fail(e, FAKE_CREATE, 1, ERR_UNAVAILABLE, "away");
    assert_int_equal(create(e, "a", id, &err), -1);
    assert_int_equal(err.kind, ERR_UNAVAILABLE);
    assert_string_equal(err.msg, "away");
    assert_int_equal(create(e, "a", id, &err), 0);
    assert_int_equal(fake_engine_calls(e, FAKE_CREATE), 2);
}

static void count_deaths(void *state, const struct engine_event *event)
{
    *(int *)state += event->kind == ENGINE_EVENT_DIED ? 1 : event->kind == ENGINE_EVENT_RECONNECTED ? 100 : 0;
}

static void deaths_reach_the_follower(void **state)
{
    struct engine *e = *state;
    char id[ENGINE_ID_SIZE];
    struct engine_inspection seen;
    struct error err = { 0 };
    int told = 0;

    assert_int_equal(e->ops->follow(e, "i=1", count_deaths, &told, &err), 0);
    assert_int_equal(told, 100);
    fake_engine_add(e, "stray", labels, ARRAY_LEN(labels), ENGINE_RUNNING, NULL, id);
    fake_engine_die(e, id, 137, true);
    assert_int_equal(told, 101);
    assert_int_equal(e->ops->inspect(e, id, &seen, &err), 0);
    assert_true(seen.state == ENGINE_STOPPED && seen.oom_killed && seen.exit_code == 137);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(container_lives_from_create_to_remove),
        TEST(connect_reaches_the_runner_of_a_running_container),
        TEST(failures_are_programmed_by_count),
        TEST(deaths_reach_the_follower),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
