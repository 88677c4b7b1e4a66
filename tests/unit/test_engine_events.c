#include "orchestrator/engine/engine.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "common/clock.h"
#include "orchestrator/http/client.h"
#include "tests/fakes/fake_docker.h"

#define WAIT_S 5
#define DIED(id)                                                                                             \
    "{\"Type\":\"container\",\"Action\":\"die\",\"Actor\":{\"ID\":\"" id                                     \
    "\",\"Attributes\":{\"exitCode\":\"137\"}}}\n"

/* What the follower's thread told, one line an event. */
struct log {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    char lines[32][100];
    size_t count;
};

struct fixture {
    char dir[32], socket[64];
    struct fake_docker *fake;
    struct engine *engine;
    struct log log;
};

static void on_event(void *state, const struct engine_event *e)
{
    static const char *const names[] = { "died", "oom", "paused", "reconnected" };
    struct log *log = state;

    (void)pthread_mutex_lock(&log->lock);
    if (log->count < ARRAY_LEN(log->lines))
        (void)snprintf(log->lines[log->count++], sizeof log->lines[0], "%s %s", names[e->kind],
                       e->container_id ? e->container_id : "-");
    (void)pthread_cond_broadcast(&log->changed);
    (void)pthread_mutex_unlock(&log->lock);
}

/* Waits until n events were told and gives the last of them. */
static const char *wait_event(struct log *log, size_t n)
{
    struct timespec until;
    int late = 0;

    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += WAIT_S;
    (void)pthread_mutex_lock(&log->lock);
    while (log->count < n && !late)
        late = pthread_cond_timedwait(&log->changed, &log->lock, &until);
    (void)pthread_mutex_unlock(&log->lock);
    return late ? "(none)" : log->lines[n - 1];
}

static int setup(void **state)
{
    struct fixture *f = xcalloc(1, sizeof *f);
    struct error err = { 0 };

    (void)stpcpy(f->dir, "/tmp/carrel-test-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    (void)stpcpy(stpcpy(f->socket, f->dir), "/docker.sock");
    (void)pthread_mutex_init(&f->log.lock, NULL);
    (void)pthread_cond_init(&f->log.changed, NULL);
    f->fake = fake_docker_start(f->socket);
    fake_docker_reply(f->fake, "GET /events", &(struct fake_reply){ .stream = true });
    assert_int_equal(
        engine_docker_open(&(struct engine_docker_options){ .host = f->socket }, &f->engine, &err), 0);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    engine_close(f->engine);
    fake_docker_stop(f->fake);
    (void)unlink(f->socket);
    (void)rmdir(f->dir);
    (void)pthread_mutex_destroy(&f->log.lock);
    (void)pthread_cond_destroy(&f->log.changed);
    free(f);
    return 0;
}

static void follow(struct fixture *f)
{
    struct error err = { 0 };

    assert_int_equal(f->engine->ops->follow(f->engine, "k=v", on_event, &f->log, &err), 0);
}

static void deaths_are_told_after_the_connection(void **state)
{
    struct fixture *f = *state;

    follow(f);
    assert_string_equal(wait_event(&f->log, 1), "reconnected -");
    assert_true(fake_docker_wait_streams(f->fake, 1));
    fake_docker_push(f->fake, DIED("a1") DIED("a2"), 7);
    assert_string_equal(wait_event(&f->log, 2), "died a1");
    assert_string_equal(wait_event(&f->log, 3), "died a2");
    auto_free char *line = fake_docker_request(f->fake, "GET /v1.41/events", 0);
    assert_non_null(strstr(line, "k%3Dv"));
    assert_non_null(strstr(line, "since="));
}

static void cut_stream_is_opened_again_and_says_so(void **state)
{
    struct fixture *f = *state;

    follow(f);
    assert_true(fake_docker_wait_streams(f->fake, 1));
    fake_docker_push(f->fake, "{\"Type\":\"conta", 0); /* what is unfinished is forgotten */
    fake_docker_cut_streams(f->fake);
    assert_string_equal(wait_event(&f->log, 2), "reconnected -");
    assert_true(fake_docker_wait_streams(f->fake, 1));
    fake_docker_push(f->fake, DIED("a3"), 0);
    assert_string_equal(wait_event(&f->log, 3), "died a3");
}

static void broken_line_is_answered_by_a_new_connection(void **state)
{
    struct fixture *f = *state;

    follow(f);
    assert_true(fake_docker_wait_streams(f->fake, 1));
    fake_docker_push(f->fake, "not JSON\n", 0);
    assert_string_equal(wait_event(&f->log, 2), "reconnected -");
}

static void engine_that_comes_back_is_followed_again(void **state)
{
    struct fixture *f = *state;

    fake_docker_reply(f->fake, "GET /_ping", &(struct fake_reply){ .status = 500, .times = 2 });
    follow(f);
    assert_string_equal(wait_event(&f->log, 1), "reconnected -");
    assert_int_equal(fake_docker_count(f->fake, "GET /_ping"), 3);
}

static void refused_stream_is_not_a_connection(void **state)
{
    struct fixture *f = *state;

    fake_docker_reply(f->fake, "GET /events", &(struct fake_reply){ .status = 500, .times = 1 });
    follow(f);
    assert_string_equal(wait_event(&f->log, 1), "reconnected -");
    assert_int_equal(fake_docker_count(f->fake, "GET /v1.41/events"), 2);
}

static void second_follower_is_refused(void **state)
{
    struct fixture *f = *state;
    struct error err = { 0 };

    follow(f);
    assert_int_equal(f->engine->ops->follow(f->engine, "k=v", on_event, &f->log, &err), -1);
    assert_int_equal(err.kind, ERR_CONFLICT);
}

static void close_is_prompt(struct fixture *f)
{
    int64_t began_ms = clock_mono_ms();

    engine_close(steal_ptr(&f->engine));
    assert_true(clock_mono_ms() - began_ms < 1500);
}

static void close_does_not_wait_for_a_mute_stream(void **state)
{
    struct fixture *f = *state;

    follow(f);
    assert_string_equal(wait_event(&f->log, 1), "reconnected -");
    close_is_prompt(f);
}

static void close_does_not_wait_for_a_mute_engine(void **state)
{
    struct fixture *f = *state;

    fake_docker_reply(f->fake, "GET /version", &(struct fake_reply){ .delay_ms = -1 });
    follow(f);
    while (fake_docker_count(f->fake, "GET /version") == 0)
        (void)sched_yield();
    close_is_prompt(f);
}

static void close_does_not_wait_for_the_next_try(void **state)
{
    struct fixture *f = *state;

    fake_docker_reply(f->fake, "GET /_ping", &(struct fake_reply){ .status = 500 });
    follow(f);
    while (fake_docker_count(f->fake, "GET /_ping") < 3)
        (void)sched_yield();
    close_is_prompt(f);
}

int main(void)
{
    struct error err = { 0 };
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(deaths_are_told_after_the_connection),        TEST(cut_stream_is_opened_again_and_says_so),
        TEST(broken_line_is_answered_by_a_new_connection), TEST(engine_that_comes_back_is_followed_again),
        TEST(refused_stream_is_not_a_connection),          TEST(second_follower_is_refused),
        TEST(close_does_not_wait_for_a_mute_stream),       TEST(close_does_not_wait_for_a_mute_engine),
        TEST(close_does_not_wait_for_the_next_try),
    };

    if (http_client_setup(&err) < 0)
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    http_client_teardown();
    return failed;
}
