#include "orchestrator/http/client.h"

#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <cmocka.h>

#include "common/clock.h"
#include "tests/fakes/fake_docker.h"

struct fixture {
    char dir[32], socket[64];
    struct fake_docker *fake;
    struct http_endpoint to;
};

static int setup(void **state)
{
    struct fixture *f = xcalloc(1, sizeof *f);

    (void)stpcpy(f->dir, "/tmp/carrel-test-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    (void)stpcpy(stpcpy(f->socket, f->dir), "/docker.sock");
    f->fake = fake_docker_start(f->socket);
    f->to = (struct http_endpoint){ f->socket, "http://docker" };
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    fake_docker_stop(f->fake);
    (void)unlink(f->socket);
    (void)rmdir(f->dir);
    free(f);
    return 0;
}

static int get(struct fixture *f, const char *path, struct http_reply *ret, struct error *err)
{
    return http_client(&f->to, &(struct http_call){ .method = "GET", .path = path, .timeout_ms = 5000 }, ret,
                       err);
}

static void reply_carries_status_headers_and_body(void **state)
{
    struct fixture *f = *state;
    auto_reply struct http_reply r;
    struct error err = { 0 };

    fake_docker_reply(f->fake, "GET /info", &(struct fake_reply){ .status = 201, .body = "{\"a\":1}" });
    assert_int_equal(get(f, "/info?x=y", &r, &err), 0);
    assert_int_equal(r.status, 201);
    assert_string_equal(r.api_version, "1.41");
    assert_string_equal(r.server, "Docker/20.10.24 (linux)");
    assert_string_equal(r.content_type, "application/json");
    assert_string_equal(r.body.data, "{\"a\":1}");
}

static void request_carries_method_path_headers_and_body(void **state)
{
    struct fixture *f = *state;
    auto_reply struct http_reply r;
    struct error err = { 0 };
    json_auto_t *body = json_pack("{s:s}", "name", "x");
    static const char *const headers[] = { "X-Test: 1", NULL };
    struct http_call call = { .method = "PUT", .path = "/v1.41/a/../b%2F", .body = body, .headers = headers };

    fake_docker_reply(f->fake, "PUT /a/../b%2F", &(struct fake_reply){ 0 });
    assert_int_equal(http_client(&f->to, &call, &r, &err), 0);
    auto_free char *line = fake_docker_request(f->fake, "PUT", 0);
    auto_free char *sent = fake_docker_request_body(f->fake, "PUT", 0);
    assert_string_equal(line, "PUT /v1.41/a/../b%2F HTTP/1.1");
    assert_string_equal(sent, "{\"name\":\"x\"}");
}

static void post_without_a_body_does_not_wait(void **state)
{
    struct fixture *f = *state;
    auto_reply struct http_reply r;
    struct error err = { 0 };
    struct http_call call = { .method = "POST", .path = "/start", .timeout_ms = 5000 };

    fake_docker_reply(f->fake, "POST /start", &(struct fake_reply){ .status = 204, .body = "" });
    assert_int_equal(http_client(&f->to, &call, &r, &err), 0);
    assert_int_equal(r.status, 204);
}

static void reply_that_comes_byte_by_byte_is_read(void **state)
{
    struct fixture *f = *state;
    auto_reply struct http_reply r;
    struct error err = { 0 };

    fake_docker_reply(f->fake, "GET /info", &(struct fake_reply){ .body = "{\"split\":true}", .split = 1 });
    assert_int_equal(get(f, "/info", &r, &err), 0);
    assert_string_equal(r.body.data, "{\"split\":true}");
}

static void status_becomes_an_error_with_the_engines_message(void **state)
{
    static const struct {
        struct fake_reply reply;
        enum error_kind kind;
        const char *message;
    } cases[] = {
        { { .status = 400, .body = "{\"message\":\"bad name\"}" }, ERR_INVALID, "bad name (HTTP 400)" },
        { { .status = 404, .body = "{\"message\":\"No such image\"}" },
          ERR_NOT_FOUND,
          "No such image (HTTP 404)" },
        { { .status = 409, .body = "{\"message\":\"in use\"}" }, ERR_CONFLICT, "in use (HTTP 409)" },
        { { .status = 500, .body = "{\"message\":\"boom\"}" }, ERR_UPSTREAM, "boom (HTTP 500)" },
        { { .status = 500, .body = "" }, ERR_UPSTREAM, "no reason given (HTTP 500)" },
        { { .status = 503, .body = "<html>" }, ERR_UNAVAILABLE, "no reason given (HTTP 503)" },
        { { .status = 418, .body = "[[[[" }, ERR_UPSTREAM, "no reason given (HTTP 418)" },
        { { .status = 500, .body = "{\"message\":{}}" }, ERR_UPSTREAM, "no reason given (HTTP 500)" },
    };
    struct fixture *f = *state;

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        auto_reply struct http_reply r;
        struct error err = { 0 };
        fake_docker_reply(f->fake, "GET /x", &cases[i].reply);
        assert_int_equal(get(f, "/x", &r, &err), -1);
        assert_int_equal(err.kind, cases[i].kind);
        assert_string_equal(err.msg, cases[i].message);
        assert_int_equal(r.status, cases[i].reply.status);
        assert_null(r.body.data);
    }
}

static void broken_exchanges_have_their_kinds(void **state)
{
    static const struct {
        struct fake_reply reply;
        size_t max_reply;
        enum error_kind kind;
    } cases[] = {
        { { .refuse = true }, 0, ERR_UPSTREAM },
        { { .cut = 20 }, 0, ERR_UPSTREAM },
        { { .body = "{\"long\":\"0123456789\"}", .cut = 150 }, 0, ERR_UPSTREAM },
        { { .delay_ms = -1 }, 0, ERR_TIMEOUT },
        { { .body = "{\"long\":\"0123456789\"}" }, 10, ERR_LIMIT },
    };
    struct fixture *f = *state;

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        auto_reply struct http_reply r;
        struct error err = { 0 };
        struct http_call call = { .method = "GET",
                                  .path = "/x",
                                  .timeout_ms = cases[i].kind == ERR_TIMEOUT ? 50 : 5000,
                                  .max_reply = cases[i].max_reply };
        fake_docker_reply(f->fake, "GET /x", &cases[i].reply);
        assert_int_equal(http_client(&f->to, &call, &r, &err), -1);
        assert_int_equal(err.kind, cases[i].kind);
    }
}

static void missing_socket_is_unavailable_and_says_why(void **state)
{
    struct fixture *f = *state;
    auto_reply struct http_reply r;
    struct error err = { 0 };

    f->to.socket_path = "/nonexistent/docker.sock";
    assert_int_equal(get(f, "/x", &r, &err), -1);
    assert_int_equal(err.kind, ERR_UNAVAILABLE);
    assert_int_equal(r.os_errno, ENOENT);
    assert_string_equal(err.msg, "/nonexistent/docker.sock: No such file or directory");
}

static void socket_nobody_listens_on_is_unavailable(void **state)
{
    struct fixture *f = *state;
    auto_reply struct http_reply r;
    struct error err = { 0 };

    fake_docker_stop(steal_ptr(&f->fake));
    assert_int_equal(get(f, "/x", &r, &err), -1);
    assert_int_equal(err.kind, ERR_UNAVAILABLE);
    assert_int_equal(r.os_errno, ECONNREFUSED);
}

static void overlong_socket_path_is_named(void **state)
{
    struct fixture *f = *state;
    char path[200];
    auto_reply struct http_reply r;
    struct error err = { 0 };

    memset(path, 'x', sizeof path - 1);
    path[sizeof path - 1] = '\0';
    f->to.socket_path = path;
    assert_int_equal(get(f, "/x", &r, &err), -1);
    assert_int_equal(err.kind, ERR_INVALID);
    assert_non_null(strstr(err.msg, "too long"));
}

static void refused_tcp_port_is_unavailable(void **state)
{
    struct sockaddr_in sa = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t size = sizeof sa;
    auto_reply struct http_reply r;
    struct error err = { 0 };

    (void)state;
    auto_close int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); /* bound, but does not listen */
    assert_int_equal(bind(fd, (struct sockaddr *)&sa, sizeof sa), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&sa, &size), 0);
    auto_free char *url = xasprintf("http://127.0.0.1:%d", ntohs(sa.sin_port));
    struct http_endpoint to = { NULL, url };
    struct http_call call = { .method = "GET", .path = "/x", .timeout_ms = 5000 };
    assert_int_equal(http_client(&to, &call, &r, &err), -1);
    assert_int_equal(err.kind, ERR_UNAVAILABLE);
    assert_int_equal(r.os_errno, ECONNREFUSED);
}

/* ---- streams ---- */

struct stream {
    int opened, pieces;
    int stop_fd;
    bool refuse;
};

static void on_open(void *state)
{
    struct stream *s = state;

    s->opened += s->pieces == 0;
    if (s->stop_fd >= 0)
        (void)eventfd_write(s->stop_fd, 1);
}

static int on_data(void *state, const char *data, size_t len, struct error *err)
{
    struct stream *s = state;

    (void)data;
    s->pieces += len > 0;
    return s->refuse ? error_set(err, ERR_LIMIT, "enough") : 0;
}

static int follow(struct fixture *f, struct stream *s, struct error *err)
{
    auto_reply struct http_reply r;
    struct http_call call = { .method = "GET",
                              .path = "/x",
                              .on_open = on_open,
                              .on_data = on_data,
                              .state = s,
                              .stop_fd = s->stop_fd >= 0 ? &s->stop_fd : NULL };

    return http_client(&f->to, &call, &r, err);
}

static void stream_is_opened_then_read_in_pieces(void **state)
{
    struct fixture *f = *state;
    struct stream s = { .stop_fd = -1 };
    struct error err = { 0 };

    fake_docker_reply(f->fake, "GET /x", &(struct fake_reply){ .body = "0123456789" });
    assert_int_equal(follow(f, &s, &err), 0);
    assert_int_equal(s.opened, 1);
    assert_true(s.pieces > 0);
}

static void error_of_the_reader_wins_over_the_transports(void **state)
{
    struct fixture *f = *state;
    struct stream s = { .stop_fd = -1, .refuse = true };
    struct error err = { 0 };

    fake_docker_reply(f->fake, "GET /x", &(struct fake_reply){ .stream = true, .body = "0123456789" });
    assert_int_equal(follow(f, &s, &err), -1);
    assert_int_equal(err.kind, ERR_LIMIT);
    assert_string_equal(err.msg, "enough");
}

static void refused_stream_is_an_error_and_never_opens(void **state)
{
    struct fixture *f = *state;
    struct stream s = { .stop_fd = -1 };
    struct error err = { 0 };

    fake_docker_reply(f->fake, "GET /x",
                      &(struct fake_reply){ .status = 404, .body = "{\"message\":\"no\"}" });
    assert_int_equal(follow(f, &s, &err), -1);
    assert_string_equal(err.msg, "no (HTTP 404)");
    assert_int_equal(s.opened, 0);
    assert_int_equal(s.pieces, 0);
}

static void mute_stream_ends_at_once_when_stopped(void **state)
{
    struct fixture *f = *state;
    auto_close int stop_fd = eventfd(0, EFD_CLOEXEC);
    struct stream s = { .stop_fd = stop_fd };
    struct error err = { 0 };
    int64_t began_ms = clock_mono_ms();

    fake_docker_reply(f->fake, "GET /x", &(struct fake_reply){ .stream = true });
    assert_int_equal(follow(f, &s, &err), -1);
    assert_int_equal(err.kind, ERR_TIMEOUT);
    assert_int_equal(s.opened, 1);
    assert_true(clock_mono_ms() - began_ms < 1000);
}

static void stopped_before_an_answer_never_opens(void **state)
{
    struct fixture *f = *state;
    auto_close int stop_fd = eventfd(1, EFD_CLOEXEC);
    struct stream s = { .stop_fd = stop_fd };
    struct error err = { 0 };

    fake_docker_reply(f->fake, "GET /x", &(struct fake_reply){ .delay_ms = -1 });
    assert_int_equal(follow(f, &s, &err), -1);
    assert_int_equal(err.kind, ERR_TIMEOUT);
    assert_int_equal(s.opened, 0);
}

int main(void)
{
    struct error err = { 0 };
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(reply_carries_status_headers_and_body),
        TEST(request_carries_method_path_headers_and_body),
        TEST(post_without_a_body_does_not_wait),
        TEST(reply_that_comes_byte_by_byte_is_read),
        TEST(status_becomes_an_error_with_the_engines_message),
        TEST(broken_exchanges_have_their_kinds),
        TEST(missing_socket_is_unavailable_and_says_why),
        TEST(socket_nobody_listens_on_is_unavailable),
        TEST(overlong_socket_path_is_named),
        TEST(refused_tcp_port_is_unavailable),
        TEST(stream_is_opened_then_read_in_pieces),
        TEST(error_of_the_reader_wins_over_the_transports),
        TEST(refused_stream_is_an_error_and_never_opens),
        TEST(mute_stream_ends_at_once_when_stopped),
        TEST(stopped_before_an_answer_never_opens),
    };

    if (http_client_setup(&err) < 0)
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    http_client_teardown();
    return failed;
}
