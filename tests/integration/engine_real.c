/*
 * The Docker driver against a daemon that runs here: engine_real IMAGE. The daemon is the usual one or that
 * of DOCKER_HOST; the image needs /bin/sh and sleep. Leaves no container behind.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>

#include <cmocka.h>
#include <pthread.h>

#include "common/clock.h"
#include "common/fd.h"
#include "common/id.h"
#include "orchestrator/engine/engine.h"
#include "orchestrator/http/client.h"

#define WAIT_S 10
#define MIB ((int64_t)1024 * 1024)
#define ROUNDS 10

static const char *image;

struct fixture {
    struct engine *engine;
    char run[ID_SIZE];    /* tells this run's containers from others */
    char label[64];       /* "carrel.test=<run>" */
    char dir[32];         /* bound into the containers */
    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t changed;
    int reconnected, died, oom;
    char died_id[ENGINE_ID_SIZE];
    int64_t exit_code;
};

static void on_event(void *state, const struct engine_event *e)
{
    struct fixture *f = state;

    (void)pthread_mutex_lock(&f->lock);
    f->reconnected += e->kind == ENGINE_EVENT_RECONNECTED;
    f->oom += e->kind == ENGINE_EVENT_OOM;
    if (e->kind == ENGINE_EVENT_DIED && f->died++ == 0) {
        (void)stpcpy(f->died_id, e->container_id);
        f->exit_code = e->exit_code;
    }
    (void)pthread_cond_broadcast(&f->changed);
    (void)pthread_mutex_unlock(&f->lock);
}

static bool wait_for(struct fixture *f, const int *counter)
{
    struct timespec until;
    int late = 0;

    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += WAIT_S;
    (void)pthread_mutex_lock(&f->lock);
    while (*counter == 0 && !late)
        late = pthread_cond_timedwait(&f->changed, &f->lock, &until);
    (void)pthread_mutex_unlock(&f->lock);
    return !late;
}

/* Fails the test with the error's words. */
static void ok(int result, const struct error *err)
{
    if (result < 0)
        fail_msg("%s: %s", error_kind_name(err->kind), err->msg);
}

static int setup(void **state)
{
    struct fixture *f = xcalloc(1, sizeof *f);
    struct error err = { 0 };
    /* Only a program of the test; the service takes these from its settings. */
    struct engine_docker_options options = { .host = secure_getenv("DOCKER_HOST"),
                                             .xdg_runtime_dir = secure_getenv("XDG_RUNTIME_DIR"),
                                             .home = secure_getenv("HOME") };

    ok(engine_docker_open(&options, &f->engine, &err), &err);
    id_new(f->run);
    (void)snprintf(f->label, sizeof f->label, "carrel.test=%s", f->run);
    (void)stpcpy(f->dir, "/tmp/carrel-test-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    (void)pthread_mutex_init(&f->lock, NULL);
    (void)pthread_cond_init(&f->changed, NULL);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    struct engine_containers left = { 0 };
    struct error err = { 0 };

    ok(f->engine->ops->list(f->engine, f->label, &left, &err), &err);
    for (size_t i = 0; i < left.count; i++)
        ok(f->engine->ops->remove(f->engine, left.items[i].id, &err), &err);
    engine_containers_done(&left);
    engine_close(f->engine);
    (void)rmdir(f->dir);
    (void)pthread_mutex_destroy(&f->lock);
    (void)pthread_cond_destroy(&f->changed);
    free(f);
    return 0;
}

static int create(struct fixture *f, const char *script, char id[ENGINE_ID_SIZE], struct error *err)
{
    const char *const command[] = { "/bin/sh", "-c", script, NULL };
    const char *const env[] = { "CARREL_TEST=a b", NULL };
    const struct engine_label labels[] = { { "carrel.test", f->run } };
    const struct engine_mount mounts[] = { { f->dir, "/mnt", false } };
    const struct engine_tmpfs tmpfs[] = { { "/tmp", "rw,nosuid,nodev,exec,size=16m,mode=1777" } };
    char name[ID_SIZE];

    id_new(name);
    name[0] = 'c'; /* a name starts with a letter */
    struct engine_spec spec = {
        .name = name,
        .image = image,
        .hostname = "sandbox",
        .network = "none",
        .command = command,
        .env = env,
        .uid = 54321,
        .gid = 54321,
        .labels = labels,
        .label_count = 1,
        .mounts = mounts,
        .mount_count = 1,
        .tmpfs = tmpfs,
        .tmpfs_count = 1,
        .memory_bytes = 64 * MIB,
        .shm_bytes = 16 * MIB,
        .nano_cpus = 500000000,
        .pids = 32,
        .nofile = 256,
        .fsize_bytes = 8 * MIB,
    };
    return f->engine->ops->create(f->engine, &spec, id, err);
}

static void engine_is_reached_and_described(void **state)
{
    struct fixture *f = *state;
    struct engine_info info = { 0 };
    struct error err = { 0 };

    ok(f->engine->ops->ping(f->engine, &info, &err), &err);
    print_message("%s %s, API %s, cgroup v%s\n", info.name, info.version, info.api_version,
                  info.cgroup_version);
    assert_true(info.memory_limit && info.cpu_limit && info.pids_limit);
    assert_true(info.version[0] != '\0');
}

static void image_is_found_and_a_missing_one_is_not(void **state)
{
    struct fixture *f = *state;
    struct error err = { 0 };
    json_auto_t *labels = NULL, *none = NULL;

    ok(f->engine->ops->image_find(f->engine, image, &labels, &err), &err);
    assert_true(json_is_object(labels));
    assert_int_equal(f->engine->ops->image_find(f->engine, "carrel/no-such-image:1", &none, &err), -1);
    assert_int_equal(err.kind, ERR_NOT_FOUND);
}

static void create_of_a_missing_image_is_not_found(void **state)
{
    struct fixture *f = *state;
    char id[ENGINE_ID_SIZE];
    struct engine_spec spec = { .name = "carrel-test-none",
                                .image = "carrel/no-such-image:1",
                                .network = "none" };
    struct error err = { 0 };

    assert_int_equal(f->engine->ops->create(f->engine, &spec, id, &err), -1);
    assert_int_equal(err.kind, ERR_NOT_FOUND);
}

/* What the sandbox itself sees is written into the bound directory. */
static void container_gets_every_protection_it_was_asked_for(void **state)
{
    static const char script[] =
        "exec > /mnt/seen 2>&1; grep -E '^(CapEff|CapBnd|CapPrm|NoNewPrivs|Seccomp):' /proc/self/status; "
        "id -u; id -g; hostname; echo \"$CARREL_TEST\"; ulimit -n; ulimit -c; "
        "touch /root-is-writable && echo writable; touch /tmp/x && echo tmp; "
        "grep -c : /proc/net/dev; mv /mnt/seen /mnt/done; sleep 100";
    static const char *const expected[] = {
        "CapEff:\t0000000000000000\n",
        "CapBnd:\t0000000000000000\n",
        "CapPrm:\t0000000000000000\n",
        "NoNewPrivs:\t1\n",
        "Seccomp:\t2\n",
        "54321\n54321\nsandbox\na b\n256\n0\n",
        "\ntmp\n1\n",
    };
    struct fixture *f = *state;
    char id[ENGINE_ID_SIZE], text[4096] = "";
    struct engine_inspection seen = { 0 };
    struct error err = { 0 };
    auto_free char *path = xasprintf("%s/done", f->dir);

    assert_int_equal(chmod(f->dir, 0777), 0);
    ok(create(f, script, id, &err), &err);
    ok(f->engine->ops->start(f->engine, id, &err), &err);
    ok(f->engine->ops->start(f->engine, id, &err), &err); /* again: success */
    ok(f->engine->ops->inspect(f->engine, id, &seen, &err), &err);
    assert_int_equal(seen.state, ENGINE_RUNNING);
    assert_true(seen.memory_bytes == 64 * MIB && seen.memory_swap_bytes == 64 * MIB);
    assert_true(seen.nano_cpus == 500000000 && seen.pids == 32 && seen.shm_bytes == 16 * MIB);
    assert_true(seen.read_only_root && seen.no_new_privileges && seen.all_caps_dropped && !seen.privileged);
    assert_string_equal(seen.network, "none");
    assert_string_equal(seen.user, "54321:54321");

    int64_t deadline_ms = clock_mono_ms() + WAIT_S * 1000;
    while (access(path, R_OK) < 0 && clock_mono_ms() < deadline_ms)
        (void)nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    size_t n = fread(text, 1, sizeof text - 1, file);
    (void)fclose(file);
    (void)unlink(path);
    assert_true(n > 0);
    for (size_t i = 0; i < ARRAY_LEN(expected); i++)
        if (!strstr(text, expected[i]))
            fail_msg("not seen: %s in:\n%s", expected[i], text);
    assert_null(strstr(text, "writable\n"));
}

static void list_finds_containers_by_label(void **state)
{
    struct fixture *f = *state;
    char id[ENGINE_ID_SIZE];
    struct engine_containers found = { 0 };
    struct error err = { 0 };

    ok(create(f, "sleep 100", id, &err), &err);
    ok(f->engine->ops->list(f->engine, f->label, &found, &err), &err);
    assert_int_equal(found.count, 1);
    assert_string_equal(found.items[0].id, id);
    assert_int_equal(found.items[0].state, ENGINE_STOPPED);
    assert_string_equal(engine_container_label(&found.items[0], "carrel.test"), f->run);
    engine_containers_done(&found);
}

static void death_is_told_with_its_exit_code(void **state)
{
    struct fixture *f = *state;
    char id[ENGINE_ID_SIZE];
    struct error err = { 0 };

    ok(f->engine->ops->follow(f->engine, f->label, on_event, f, &err), &err);
    assert_true(wait_for(f, &f->reconnected));
    ok(create(f, "exit 7", id, &err), &err);
    ok(f->engine->ops->start(f->engine, id, &err), &err);
    assert_true(wait_for(f, &f->died));
    assert_string_equal(f->died_id, id);
    assert_int_equal(f->exit_code, 7);
}

static void out_of_memory_is_told(void **state)
{
    struct fixture *f = *state;
    char id[ENGINE_ID_SIZE];
    struct engine_inspection seen = { 0 };
    struct error err = { 0 };

    ok(f->engine->ops->follow(f->engine, f->label, on_event, f, &err), &err);
    assert_true(wait_for(f, &f->reconnected));
    /* PID 1 itself doubles a string until the limit. */
    ok(create(f, "a=0123456789abcdef; while :; do a=$a$a; done", id, &err), &err);
    ok(f->engine->ops->start(f->engine, id, &err), &err);
    assert_true(wait_for(f, &f->died));
    assert_true(wait_for(f, &f->oom));
    ok(f->engine->ops->inspect(f->engine, id, &seen, &err), &err);
    assert_int_equal(seen.state, ENGINE_STOPPED);
    assert_true(seen.oom_killed);
}

struct remover {
    struct fixture *f;
    const char *id;
    struct error err;
};

static void *remove_once(void *arg)
{
    struct remover *r = arg;

    return r->f->engine->ops->remove(r->f->engine, r->id, &r->err) < 0 ? r : NULL;
}

static void removed_by_four_at_once_is_gone_for_all(void **state)
{
    struct fixture *f = *state;
    char id[ENGINE_ID_SIZE];
    struct engine_inspection seen;
    struct error err = { 0 };
    pthread_t threads[4];
    struct remover removers[4];
    void *result = NULL;

    ok(create(f, "sleep 100", id, &err), &err);
    ok(f->engine->ops->start(f->engine, id, &err), &err);
    for (size_t i = 0; i < ARRAY_LEN(threads); i++) {
        removers[i] = (struct remover){ f, id, { 0 } };
        assert_int_equal(pthread_create(&threads[i], NULL, remove_once, &removers[i]), 0);
    }
    for (size_t i = 0; i < ARRAY_LEN(threads); i++) {
        assert_int_equal(pthread_join(threads[i], &result), 0);
        ok(result ? -1 : 0, &removers[i].err);
    }
    assert_int_equal(f->engine->ops->inspect(f->engine, id, &seen, &err), -1);
    assert_int_equal(err.kind, ERR_NOT_FOUND);
}

static void close_ends_the_follower_promptly(void **state)
{
    struct fixture *f = *state;
    struct error err = { 0 };
    struct engine *second = NULL;

    ok(engine_docker_open(&(struct engine_docker_options){ .host = secure_getenv("DOCKER_HOST") }, &second,
                          &err),
       &err);
    ok(second->ops->follow(second, f->label, on_event, f, &err), &err);
    assert_true(wait_for(f, &f->reconnected));
    int64_t began_ms = clock_mono_ms();
    engine_close(second);
    assert_true(clock_mono_ms() - began_ms < 1500);
}

static int compare(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

/* No assertion on speed: the figures are for people. */
static void latencies_are_measured(void **state)
{
    struct fixture *f = *state;
    int64_t us[4][ROUNDS];
    struct error err = { 0 };

    for (int i = 0; i < ROUNDS; i++) {
        char id[ENGINE_ID_SIZE];
        struct engine_inspection seen;
        int64_t t0 = clock_mono_us();
        ok(create(f, "sleep 100", id, &err), &err);
        int64_t t1 = clock_mono_us();
        ok(f->engine->ops->start(f->engine, id, &err), &err);
        int64_t t2 = clock_mono_us();
        ok(f->engine->ops->inspect(f->engine, id, &seen, &err), &err);
        int64_t t3 = clock_mono_us();
        ok(f->engine->ops->remove(f->engine, id, &err), &err);
        int64_t t4 = clock_mono_us();
        us[0][i] = t1 - t0;
        us[1][i] = t2 - t1;
        us[2][i] = t3 - t2;
        us[3][i] = t4 - t3;
    }
    for (int k = 0; k < 4; k++) {
        static const char *const names[] = { "create", "start", "inspect", "remove" };
        qsort(us[k], ROUNDS, sizeof us[k][0], compare);
        print_message("%-8s median %.1f ms, slowest of %d %.1f ms\n", names[k],
                      (double)us[k][ROUNDS / 2] / 1000, ROUNDS, (double)us[k][ROUNDS - 1] / 1000);
    }
}

int main(int argc, char **argv)
{
    struct error err = { 0 };
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(engine_is_reached_and_described),
        TEST(image_is_found_and_a_missing_one_is_not),
        TEST(create_of_a_missing_image_is_not_found),
        TEST(container_gets_every_protection_it_was_asked_for),
        TEST(list_finds_containers_by_label),
        TEST(death_is_told_with_its_exit_code),
        TEST(out_of_memory_is_told),
        TEST(removed_by_four_at_once_is_gone_for_all),
        TEST(close_ends_the_follower_promptly),
        TEST(latencies_are_measured),
    };

    if (argc != 2 || http_client_setup(&err) < 0) {
        (void)fprintf(stderr, "usage: %s IMAGE\n", argv[0]);
        return 2;
    }
    image = argv[1];
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    http_client_teardown();
    return failed;
}
