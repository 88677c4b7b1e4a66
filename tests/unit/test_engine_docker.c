#include "orchestrator/engine/engine.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "common/clock.h"
#include "common/fd.h"
#include "orchestrator/engine/docker.h"
#include "tests/fakes/fake_docker.h"

struct fixture {
    char dir[32], socket[64];
    struct fake_docker *fake;
    struct engine *engine;
};

static int setup(void **state)
{
    struct fixture *f = xcalloc(1, sizeof *f);
    struct error err = { 0 };

    (void)stpcpy(f->dir, "/tmp/carrel-test-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    (void)stpcpy(stpcpy(f->socket, f->dir), "/docker.sock");
    f->fake = fake_docker_start(f->socket);
    auto_free char *host = xasprintf("unix://%s", f->socket);
    assert_int_equal(engine_docker_open(&(struct engine_docker_options){ .host = host }, &f->engine, &err),
                     0);
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
    free(f);
    return 0;
}

/* ---- where the engine is ---- */

static void hosts_are_resolved_or_refused(void **state)
{
    static const struct {
        const char *host, *socket, *url; /* both NULL: refused */
    } cases[] = {
        { "unix:///var/run/docker.sock", "/var/run/docker.sock", "http://docker" },
        { "/run/podman/podman.sock", "/run/podman/podman.sock", "http://docker" },
        { "tcp://10.0.0.1:1234", NULL, "http://10.0.0.1:1234" },
        { "tcp://proxy", NULL, "http://proxy:2375" },
        { "tcp://[::1]:2375/", NULL, "http://[::1]:2375" },
        { "tcp://[::1]", NULL, "http://[::1]:2375" },
        { "https://docker.example:2376", NULL, "https://docker.example:2376" },
        { "ssh://root@host", NULL, NULL },
        { "tcp://", NULL, NULL },
        { "tcp://host:1/path", NULL, NULL },
        { "tcp://user@host", NULL, NULL },
        { "unix://relative", NULL, NULL },
        { "docker.sock", NULL, NULL },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        auto_free char *socket = NULL, *url = NULL;
        struct error err = { 0 };
        struct engine_docker_options options = { .host = cases[i].host };
        bool good = cases[i].url != NULL;
        assert_int_equal(docker_host_resolve(&options, &socket, &url, &err), good ? 0 : -1);
        assert_true(str_eq(socket, cases[i].socket));
        assert_true(str_eq(url, cases[i].url));
        assert_int_equal(err.kind, good ? ERR_NONE : ERR_INVALID);
    }
}

static void reasons_are_told_with_their_remedy(void **state)
{
    static const struct {
        int os_errno;
        const char *remedy;
    } cases[] = {
        { ENOENT, "no such file. Install it (Debian: apt-get install docker.io)" },
        { EACCES, "usermod -aG docker" },
        { ECONNREFUSED, "systemctl start docker" },
        { EHOSTUNREACH, "DOCKER_HOST" },
    };
    struct http_endpoint to = { "/x/docker.sock", "http://docker" };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct http_reply reply = { .os_errno = cases[i].os_errno };
        struct error err = { 0 };
        error_set(&err, ERR_UNAVAILABLE, "/x/docker.sock: reason");
        docker_host_explain(&to, &reply, &err);
        assert_int_equal(err.kind, ERR_UNAVAILABLE);
        assert_non_null(strstr(err.msg, cases[i].remedy));
        assert_non_null(strstr(err.msg, "/x/docker.sock"));
    }
}

/* ---- calls ---- */

static int ping(struct fixture *f, struct engine_info *ret, struct error *err)
{
    return f->engine->ops->ping(f->engine, ret, err);
}

static void ping_tells_what_the_engine_is(void **state)
{
    struct fixture *f = *state;
    struct engine_info info = { 0 };
    struct error err = { 0 };

    fake_docker_reply(f->fake, "GET /info", &(struct fake_reply){ .body = "{\"MemoryLimit\":true}" });
    assert_int_equal(ping(f, &info, &err), 0);
    assert_string_equal(info.name, "Docker Engine");
    assert_string_equal(info.version, "20.10.24");
    assert_string_equal(info.api_version, "1.41");
    assert_true(info.memory_limit);
    assert_int_equal(fake_docker_count(f->fake, "GET /v1.41/info"), 1);
}

static void ping_recognises_podman(void **state)
{
    struct fixture *f = *state;
    struct engine_info info = { 0 };
    struct error err = { 0 };

    /* The last of two headers of one name counts. */
    fake_docker_reply(f->fake, "GET /_ping",
                      &(struct fake_reply){ .headers = "Server: Libpod/4.3.1 (linux)\r\n", .body = "OK" });
    fake_docker_reply(f->fake, "GET /info", &(struct fake_reply){ 0 });
    assert_int_equal(ping(f, &info, &err), 0);
    assert_string_equal(info.name, "Podman");
}

static void newer_engine_is_spoken_to_in_our_newest_version(void **state)
{
    struct fixture *f = *state;
    struct engine_info info = { 0 };
    struct error err = { 0 };

    fake_docker_reply(f->fake, "GET /_ping", &(struct fake_reply){ .headers = "Api-Version: 1.52\r\n" });
    fake_docker_reply(f->fake, "GET /version",
                      &(struct fake_reply){ .body = "{\"Version\":\"29.0\",\"ApiVersion\":\"1.52\","
                                                    "\"MinAPIVersion\":\"1.44\"}" });
    fake_docker_reply(f->fake, "GET /info", &(struct fake_reply){ 0 });
    assert_int_equal(ping(f, &info, &err), 0);
    assert_string_equal(info.api_version, "1.47");
}

static void older_engine_is_refused_with_a_sentence(void **state)
{
    struct fixture *f = *state;
    struct engine_info info = { 0 };
    struct error err = { 0 };

    fake_docker_reply(f->fake, "GET /_ping", &(struct fake_reply){ .headers = "Api-Version: 1.40\r\n" });
    assert_int_equal(ping(f, &info, &err), -1);
    assert_int_equal(err.kind, ERR_UNAVAILABLE);
    assert_non_null(strstr(err.msg, "Docker Engine 20.10 or newer"));
}

static void engine_that_is_away_is_unavailable(void **state)
{
    struct fixture *f = *state;
    struct engine_info info = { 0 };
    struct error err = { 0 };

    fake_docker_stop(steal_ptr(&f->fake));
    assert_int_equal(ping(f, &info, &err), -1);
    assert_int_equal(err.kind, ERR_UNAVAILABLE);
    (void)unlink(f->socket);
    assert_int_equal(ping(f, &info, &err), -1);
    assert_int_equal(err.kind, ERR_UNAVAILABLE);
    assert_non_null(strstr(err.msg, "apt-get install docker.io"));
}

static void refusing_socket_proxy_is_recognised(void **state)
{
    struct fixture *f = *state;
    struct engine_info info = { 0 };
    struct error err = { 0 };

    fake_docker_reply(f->fake, "GET /info",
                      &(struct fake_reply){ .status = 403,
                                            .headers = "Content-Type: text/html\r\n",
                                            .body = "<html><body><h1>403 Forbidden</h1></body></html>" });
    assert_int_equal(ping(f, &info, &err), -1);
    assert_int_equal(err.kind, ERR_UNAVAILABLE);
    assert_non_null(strstr(err.msg, "CONTAINERS=1 POST=1"));
}

static void image_is_found_by_any_reference(void **state)
{
    struct fixture *f = *state;
    struct error err = { 0 };
    json_auto_t *labels = NULL, *none = NULL;

    fake_docker_reply(f->fake, "GET /images/reg:5000/a/b:1/json",
                      &(struct fake_reply){ .body = "{\"Config\":{\"Labels\":{\"a\":\"b\"}}}" });
    assert_int_equal(f->engine->ops->image_find(f->engine, "reg:5000/a/b:1", &labels, &err), 0);
    assert_string_equal(json_string_value(json_object_get(labels, "a")), "b");

    fake_docker_reply(f->fake, "GET /images/x/json",
                      &(struct fake_reply){ .status = 404, .body = "{\"message\":\"No such image: x\"}" });
    assert_int_equal(f->engine->ops->image_find(f->engine, "x", &none, &err), -1);
    assert_int_equal(err.kind, ERR_NOT_FOUND);
    assert_string_equal(err.msg, "No such image: x (HTTP 404)");
}

static int create(struct fixture *f, char id[ENGINE_ID_SIZE], struct error *err)
{
    struct engine_spec spec = { .name = "a b", .image = "i:1", .network = "none" };

    return f->engine->ops->create(f->engine, &spec, id, err);
}

static void create_sends_the_spec_and_gives_the_id(void **state)
{
    struct fixture *f = *state;
    char id[ENGINE_ID_SIZE] = "";
    struct error err = { 0 };

    fake_docker_reply(
        f->fake, "POST /containers/create",
        &(struct fake_reply){ .status = 201, .body = "{\"Id\":\"abc1\",\"Warnings\":[\"no swap\"]}" });
    assert_int_equal(create(f, id, &err), 0);
    assert_string_equal(id, "abc1");
    auto_free char *line = fake_docker_request(f->fake, "POST", 0);
    auto_free char *body = fake_docker_request_body(f->fake, "POST", 0);
    assert_string_equal(line, "POST /v1.41/containers/create?name=a%20b HTTP/1.1");
    assert_non_null(strstr(body, "\"CapDrop\":[\"ALL\"]"));
}

static void create_fails_when_image_is_missing(void **state)
{
    struct fixture *f = *state;
    char id[ENGINE_ID_SIZE] = "";
    struct error err = { 0 };

    fake_docker_reply(f->fake, "POST /containers/create",
                      &(struct fake_reply){ .status = 404, .body = "{\"message\":\"No such image: i:1\"}" });
    assert_int_equal(create(f, id, &err), -1);
    assert_int_equal(err.kind, ERR_NOT_FOUND);
    assert_string_equal(id, "");
}

static void create_fails_when_the_reply_is_cut(void **state)
{
    struct fixture *f = *state;
    char id[ENGINE_ID_SIZE] = "";
    struct error err = { 0 };

    fake_docker_reply(f->fake, "POST /containers/create",
                      &(struct fake_reply){ .status = 201, .body = "{\"Id\":\"abcdef\"}", .cut = 140 });
    assert_int_equal(create(f, id, &err), -1);
    assert_int_equal(err.kind, ERR_UPSTREAM);
}

static void start_of_what_runs_is_success(void **state)
{
    struct fixture *f = *state;
    struct error err = { 0 };

    fake_docker_reply(f->fake, "POST /containers/abc/start",
                      &(struct fake_reply){ .status = 304, .body = "" });
    assert_int_equal(f->engine->ops->start(f->engine, "abc", &err), 0);
}

static void start_failure_keeps_the_engines_words(void **state)
{
    struct fixture *f = *state;
    struct error err = { 0 };

    fake_docker_reply(
        f->fake, "POST /containers/abc/start",
        &(struct fake_reply){ .status = 500, .body = "{\"message\":\"Decoding seccomp profile failed\"}" });
    assert_int_equal(f->engine->ops->start(f->engine, "abc", &err), -1);
    assert_string_equal(err.msg, "Decoding seccomp profile failed (HTTP 500)");
}

static void remove_of_what_is_gone_is_success(void **state)
{
    struct fixture *f = *state;
    struct error err = { 0 };

    fake_docker_reply(f->fake, "DELETE /containers/abc",
                      &(struct fake_reply){ .status = 404, .body = "{\"message\":\"No such container\"}" });
    assert_int_equal(f->engine->ops->remove(f->engine, "abc", &err), 0);
    auto_free char *line = fake_docker_request(f->fake, "DELETE", 0);
    assert_string_equal(line, "DELETE /v1.41/containers/abc?force=1&v=1 HTTP/1.1");
}

static void remove_in_progress_is_waited_for(void **state)
{
    struct fixture *f = *state;
    struct error err = { 0 };

    fake_docker_reply(f->fake, "DELETE /containers/abc", &(struct fake_reply){ .status = 404 });
    fake_docker_reply(
        f->fake, "DELETE /containers/abc",
        &(struct fake_reply){ .status = 409, .times = 2, .body = "{\"message\":\"in progress\"}" });
    assert_int_equal(f->engine->ops->remove(f->engine, "abc", &err), 0);
    assert_int_equal(fake_docker_count(f->fake, "DELETE"), 3);
}

static void remove_failure_is_told(void **state)
{
    struct fixture *f = *state;
    struct error err = { 0 };

    fake_docker_reply(f->fake, "DELETE /containers/abc",
                      &(struct fake_reply){ .status = 500, .body = "{\"message\":\"device busy\"}" });
    assert_int_equal(f->engine->ops->remove(f->engine, "abc", &err), -1);
    assert_int_equal(err.kind, ERR_UPSTREAM);
}

static void list_asks_for_stopped_ones_too(void **state)
{
    struct fixture *f = *state;
    struct engine_containers found = { 0 };
    struct error err = { 0 };

    fake_docker_reply(f->fake, "GET /containers/json",
                      &(struct fake_reply){ .body = "[{\"Id\":\"a1\"}]", .split = 3 });
    assert_int_equal(f->engine->ops->list(f->engine, "k=v", &found, &err), 0);
    assert_int_equal(found.count, 1);
    engine_containers_done(&found);
    auto_free char *line = fake_docker_request(f->fake, "GET /v1.41/containers/json", 0);
    assert_non_null(strstr(line, "?all=1&filters=%7B%22label%22%3A%5B%22k%3Dv%22%5D%7D "));
}

static void inspect_of_an_unknown_container_is_not_found(void **state)
{
    struct fixture *f = *state;
    struct engine_inspection seen = { 0 };
    struct error err = { 0 };

    assert_int_equal(f->engine->ops->inspect(f->engine, "../x", &seen, &err), -1);
    assert_int_equal(err.kind, ERR_NOT_FOUND);
    assert_int_equal(fake_docker_count(f->fake, "GET /v1.41/containers/..%2Fx/json"), 1);
}

static void *list_often(void *arg)
{
    struct fixture *f = arg;
    struct error err = { 0 };

    for (int i = 0; i < 10; i++) {
        struct engine_containers found = { 0 };
        if (f->engine->ops->list(f->engine, "k", &found, &err) < 0)
            return arg;
        engine_containers_done(&found);
    }
    return NULL;
}

static void calls_from_many_threads_do_not_disturb_each_other(void **state)
{
    struct fixture *f = *state;
    pthread_t threads[8];
    void *failed = NULL;

    fake_docker_reply(f->fake, "GET /containers/json", &(struct fake_reply){ .body = "[{\"Id\":\"a1\"}]" });
    for (size_t i = 0; i < ARRAY_LEN(threads); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, list_often, f), 0);
    for (size_t i = 0; i < ARRAY_LEN(threads); i++) {
        void *result = NULL;
        assert_int_equal(pthread_join(threads[i], &result), 0);
        failed = result ? result : failed;
    }
    assert_null(failed);
}

/* ---- the runner's socket ---- */

static int connect_runner(struct fixture *f, const char *dir, struct error *err)
{
    auto_close int fd = -1;

    return f->engine->ops->connect(f->engine, dir, &fd, err);
}

static void runner_that_listens_is_reached(void **state)
{
    struct fixture *f = *state;
    struct error err = { 0 };
    auto_free char *path = xasprintf("%s/runner.sock", f->dir);
    auto_close int listener = -1;

    assert_int_equal(fd_unix_listen(path, 0600, &listener, &err), 0);
    assert_int_equal(connect_runner(f, f->dir, &err), 0);
    (void)unlink(path);
}

static void runner_that_is_not_there_is_not_found(void **state)
{
    struct fixture *f = *state;
    struct error err = { 0 };

    assert_int_equal(connect_runner(f, f->dir, &err), -1);
    assert_int_equal(err.kind, ERR_NOT_FOUND);
    assert_int_equal(connect_runner(f, "/nonexistent", &err), -1);
    assert_int_equal(err.kind, ERR_NOT_FOUND);
}

static void link_to_another_socket_is_not_followed(void **state)
{
    struct fixture *f = *state;
    struct error err = { 0 };
    auto_free char *path = xasprintf("%s/runner.sock", f->dir);
    auto_free char *dir_link = xasprintf("%s/link", f->dir);

    assert_int_equal(symlink(f->socket, path), 0); /* the fake engine's socket, which listens */
    assert_int_equal(connect_runner(f, f->dir, &err), -1);
    assert_int_equal(symlink(f->dir, dir_link), 0);
    assert_int_equal(connect_runner(f, dir_link, &err), -1);
    (void)unlink(path);
    (void)unlink(dir_link);
}

/* Only root can give the directory away and so play the host's own service behind a sandbox's socket. */
static void listener_that_is_root_in_a_sandboxs_directory_is_refused(void **state)
{
    struct fixture *f = *state;
    struct error err = { 0 };
    auto_free char *path = xasprintf("%s/runner.sock", f->dir);
    auto_close int listener = -1;

    assert_int_equal(fd_unix_listen(path, 0600, &listener, &err), 0);
    bool root = geteuid() == 0;
    assert_int_equal(root ? chown(f->dir, 54321, 54321) : 0, 0);
    assert_int_equal(connect_runner(f, f->dir, &err), root ? -1 : 0);
    assert_int_equal(err.kind, root ? ERR_UPSTREAM : ERR_NONE);
    (void)unlink(path);
}

static void runner_that_accepts_nobody_is_given_up(void **state)
{
    struct fixture *f = *state;
    struct error err = { 0 };
    auto_free char *path = xasprintf("%s/runner.sock", f->dir);
    auto_close int listener = -1;
    int64_t began_ms = clock_mono_ms();

    assert_int_equal(fd_unix_listen(path, 0600, &listener, &err), 0);
    assert_int_equal(listen(listener, 0), 0);
    auto_close int waiting = -1; /* fills the queue */
    assert_int_equal(f->engine->ops->connect(f->engine, f->dir, &waiting, &err), 0);
    (void)alarm(10); /* a connect that waits for ever ends the program */
    assert_int_equal(connect_runner(f, f->dir, &err), -1);
    assert_int_equal(err.kind, ERR_TIMEOUT);
    assert_true(clock_mono_ms() - began_ms < 4000);
    (void)alarm(0);
    (void)unlink(path);
}

int main(void)
{
    struct error err = { 0 };
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hosts_are_resolved_or_refused),
        cmocka_unit_test(reasons_are_told_with_their_remedy),
        TEST(ping_tells_what_the_engine_is),
        TEST(ping_recognises_podman),
        TEST(newer_engine_is_spoken_to_in_our_newest_version),
        TEST(older_engine_is_refused_with_a_sentence),
        TEST(engine_that_is_away_is_unavailable),
        TEST(refusing_socket_proxy_is_recognised),
        TEST(image_is_found_by_any_reference),
        TEST(create_sends_the_spec_and_gives_the_id),
        TEST(create_fails_when_image_is_missing),
        TEST(create_fails_when_the_reply_is_cut),
        TEST(start_of_what_runs_is_success),
        TEST(start_failure_keeps_the_engines_words),
        TEST(remove_of_what_is_gone_is_success),
        TEST(remove_in_progress_is_waited_for),
        TEST(remove_failure_is_told),
        TEST(list_asks_for_stopped_ones_too),
        TEST(inspect_of_an_unknown_container_is_not_found),
        TEST(calls_from_many_threads_do_not_disturb_each_other),
        TEST(runner_that_listens_is_reached),
        TEST(runner_that_is_not_there_is_not_found),
        TEST(link_to_another_socket_is_not_followed),
        TEST(listener_that_is_root_in_a_sandboxs_directory_is_refused),
        TEST(runner_that_accepts_nobody_is_given_up),
    };

    if (http_client_setup(&err) < 0)
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    http_client_teardown();
    return failed;
}
