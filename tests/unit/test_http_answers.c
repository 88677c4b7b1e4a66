#include "orchestrator/http/server.h"

#include <errno.h>
#include <poll.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>

#include <cmocka.h>

#include "common/clock.h"
#include "common/fd.h"
#include "common/log.h"
#include "tests/fakes/raw_http.h"

/* ---- the service ------------------------------------------------------------------------------------- */

static sem_t produce;  /* the test lets /stream make one piece more */
static sem_t released; /* a stream was freed, or /wait saw the client go */
static atomic_int live_principals;

static bool wait_for(sem_t *s)
{
    struct timespec until;

    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 5;
    while (sem_timedwait(s, &until) < 0)
        if (errno != EINTR)
            return false;
    return true;
}

static int h_text(struct app *app, struct http_request *req, struct http_response *res, struct error *err)
{
    (void)app, (void)req, (void)err;
    res->text = xstrdup("text");
    res->text_len = 4;
    res->content_type = xstrdup("text/plain");
    return 0;
}

static void stream_free(void *state)
{
    free(state);
    (void)sem_post(&released);
}

static ssize_t stream_next(void *state, char *out, size_t max)
{
    int *n = state;

    if (*n == 3)
        return 0;
    return wait_for(&produce) ? snprintf(out, max, "piece %d\n", (*n)++) : -1;
}

static int h_stream(struct app *app, struct http_request *req, struct http_response *res, struct error *err)
{
    (void)app, (void)req, (void)err;
    res->stream = (struct http_stream){ stream_next, stream_free, xcalloc(1, sizeof(int)) };
    return 0;
}

/* /file/{offset}: "0123456789" from there. */
static int h_file(struct app *app, struct http_request *req, struct http_response *res, struct error *err)
{
    (void)app;
    res->file_fd = memfd_create("file", MFD_CLOEXEC);
    if (fd_write_all(res->file_fd, "0123456789", 10, err) < 0)
        return -1;
    res->file_offset = (uint64_t)(req->params[0][0] - '0');
    res->file_len = 10 - res->file_offset;
    return 0;
}

static int h_empty_file(struct app *app, struct http_request *req, struct http_response *res,
                        struct error *err)
{
    (void)app, (void)req, (void)err;
    res->file_fd = memfd_create("file", MFD_CLOEXEC);
    return 0;
}

static int h_not_modified(struct app *app, struct http_request *req, struct http_response *res,
                          struct error *err)
{
    (void)app, (void)req, (void)err;
    res->status = 304;
    return 0;
}

static ssize_t flood_next(void *state, char *out, size_t max)
{
    (void)state;
    memset(out, 'x', max);
    return (ssize_t)max;
}

static int h_flood(struct app *app, struct http_request *req, struct http_response *res, struct error *err)
{
    (void)app, (void)req, (void)err;
    res->stream = (struct http_stream){ flood_next, stream_free, xcalloc(1, 1) };
    return 0;
}

static ssize_t broken_next(void *state, char *out, size_t max)
{
    int *n = state;

    return (*n)++ == 0 ? snprintf(out, max, "half") : -1;
}

static int h_broken(struct app *app, struct http_request *req, struct http_response *res, struct error *err)
{
    (void)app, (void)req, (void)err;
    res->stream = (struct http_stream){ broken_next, stream_free, xcalloc(1, sizeof(int)) };
    return 0;
}

/* Blocks until the client hangs up. */
static int h_wait(struct app *app, struct http_request *req, struct http_response *res, struct error *err)
{
    struct pollfd p = { .fd = req->client_fd, .events = POLLRDHUP };

    (void)app;
    (void)sem_post(&produce); /* the handler has begun */
    if (poll(&p, 1, 5000) != 1)
        return error_set(err, ERR_TIMEOUT, "nobody hung up");
    (void)sem_post(&released);
    http_response_json(res, 200, json_object());
    return 0;
}

static int guard(struct app *app, const struct http_route *route, struct http_request *req,
                 struct http_response *res, struct error *err)
{
    (void)app, (void)route, (void)res, (void)err;
    live_principals++;
    req->principal = xcalloc(1, 1); /* only counted, never looked into */
    return 0;
}

static void principal_free(struct principal *p)
{
    free(p);
    live_principals--;
}

/* As long as the test wants. */
static int h_slow(struct app *app, struct http_request *req, struct http_response *res, struct error *err)
{
    (void)app, (void)req;
    if (!wait_for(&produce))
        return error_set(err, ERR_TIMEOUT, "nobody let it go on");
    http_response_json(res, 200, json_pack("{s:s}", "at", "last"));
    return 0;
}

static const struct http_route routes[] = {
    { .method = "GET", .pattern = "/slow", .handler = h_slow },
    { .method = "GET", .pattern = "/text", .handler = h_text },
    { .method = "GET", .pattern = "/file/{offset}", .handler = h_file },
    { .method = "GET", .pattern = "/empty", .handler = h_empty_file },
    { .method = "GET", .pattern = "/304", .handler = h_not_modified },
    { .method = "GET", .pattern = "/stream", .handler = h_stream },
    { .method = "GET", .pattern = "/flood", .handler = h_flood },
    { .method = "GET", .pattern = "/broken", .handler = h_broken },
    { .method = "POST", .pattern = "/wait", .handler = h_wait },
    { .method = "POST", .pattern = "/json", .handler = h_text, .json_body = true },
};

static const struct http_service service = {
    .routes = routes,
    .route_count = ARRAY_LEN(routes),
    .guard = guard,
    .principal_free = principal_free,
    .max_json_bytes = 4096,
    .log_requests = true,
};

/* ---- fixture and client ------------------------------------------------------------------------------ */

static struct http_server *start(unsigned max_connections, unsigned idle_timeout_s)
{
    const struct http_server_options opt = { "127.0.0.1", 0, max_connections, idle_timeout_s, &service };
    struct http_server *s = NULL;
    struct error err = { 0 };

    (void)sem_init(&produce, 0, 0);
    (void)sem_init(&released, 0, 0);
    log_setup(LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
    if (http_server_start(&opt, &s, &err) < 0)
        fail_msg("%s", err.msg);
    return s;
}

static int setup(void **state)
{
    *state = start(64, 5);
    return 0;
}

static int dial(void *server)
{
    int fd = raw_dial(http_server_port(server));

    assert_true(fd >= 0);
    return fd;
}

/* Whatever a test did: once the server has stopped, nothing is left. */
static int teardown(void **state)
{
    http_server_stop(*state);
    return live_principals == 0 ? 0 : -1;
}

/* ---- answers ----------------------------------------------------------------------------------------- */

static void files_are_sent_from_their_offset(void **state)
{
    auto_close int fd = dial(*state);
    struct raw_reply r;

    assert_int_equal(raw_ask(fd, "GET /file/0 HTTP/1.1\r\n" RAW_HOST "\r\n", "0123456789"), 200);
    raw_say(fd, "GET /file/7 HTTP/1.1\r\n" RAW_HOST "\r\n");
    raw_read_reply(fd, false, &r);
    assert_string_equal(r.body.data, "789");
    buf_done(&r.body);
    raw_say(fd, "HEAD /file/4 HTTP/1.1\r\n" RAW_HOST "\r\n");
    raw_read_reply(fd, true, &r);
    assert_non_null(strstr(r.head, "Content-Length: 6\r\n"));
    raw_say(fd, "GET /empty HTTP/1.1\r\n" RAW_HOST "\r\n");
    raw_read_reply(fd, false, &r);
    assert_int_equal(r.body.len, 0);
    buf_done(&r.body);
    assert_int_equal(raw_ask(fd, "GET /304 HTTP/1.1\r\n" RAW_HOST "\r\n", NULL), 304);
    assert_int_equal(raw_ask(fd, "HEAD /text HTTP/1.1\r\n" RAW_HOST "\r\n", NULL), 200);
    assert_int_equal(raw_ask(fd, "OPTIONS /text HTTP/1.1\r\n" RAW_HOST "\r\n", NULL), 204);
    assert_int_equal(raw_ask(fd, "GET /text HTTP/1.1\r\n" RAW_HOST "\r\n", "text"), 200);
}

static void pieces_arrive_as_they_are_made(void **state)
{
    auto_close int fd = dial(*state);
    struct raw_reply r;

    raw_say(fd, "GET /stream HTTP/1.1\r\n" RAW_HOST "\r\n");
    assert_true(raw_read_head(fd, &r)); /* the head does not wait for the first piece */
    for (int i = 0; i < 3; i++) {
        struct buf piece = { .max = 100 };
        char expected[16];
        (void)snprintf(expected, sizeof expected, "piece %d\n", i);
        (void)sem_post(&produce);
        assert_true(raw_read_chunk(fd, &piece));
        assert_string_equal(piece.data, expected);
        buf_done(&piece);
    }
    assert_false(raw_read_chunk(fd, &r.body));
    assert_true(wait_for(&released));
    assert_int_equal(raw_ask(fd, "GET /text HTTP/1.1\r\n" RAW_HOST "\r\n", "text"), 200);
}

static void a_stream_ends_when_the_client_hangs_up(void **state)
{
    static const char *const paths[] = { "/flood", "/broken" };

    for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
        int fd = dial(*state);
        struct raw_reply r;
        char request[64];
        (void)snprintf(request, sizeof request, "GET %s HTTP/1.1\r\n" RAW_HOST "\r\n", paths[i]);
        raw_say(fd, request);
        assert_true(raw_read_head(fd, &r));
        (void)close(fd);
        assert_true(wait_for(&released));
    }
}

static void a_stream_that_fails_cuts_the_connection(void **state)
{
    auto_close int fd = dial(*state);
    struct raw_reply r;

    raw_say(fd, "GET /broken HTTP/1.1\r\n" RAW_HOST "\r\n");
    assert_true(raw_read_head(fd, &r));
    assert_true(raw_read_chunk(fd, &r.body));
    assert_string_equal(r.body.data, "half");
    buf_done(&r.body);
    assert_true(raw_ended(fd)); /* no last chunk: the client can tell */
    assert_true(wait_for(&released));
}

static void heads_of_streams_have_no_body(void **state)
{
    auto_close int fd = dial(*state);
    struct raw_reply r;

    raw_say(fd, "HEAD /stream HTTP/1.1\r\n" RAW_HOST "\r\n");
    assert_true(raw_read_head(fd, &r));
    assert_non_null(strstr(r.head, "Connection: close\r\n"));
    assert_true(raw_ended(fd));
    assert_true(wait_for(&released));
}

static void handlers_can_see_the_client_go(void **state)
{
    int fd = dial(*state);

    raw_say(fd, "POST /wait HTTP/1.1\r\n" RAW_HOST "Content-Length: 0\r\n\r\n");
    assert_true(wait_for(&produce));
    (void)close(fd);
    assert_true(wait_for(&released));
}

static void old_clients_are_served(void **state)
{
    auto_close int fd = dial(*state);
    struct raw_reply r;

    raw_say(fd, "GET /text HTTP/1.0\r\n\r\n");
    raw_read_reply(fd, false, &r);
    assert_string_equal(r.body.data, "text");
    buf_done(&r.body);
    assert_true(raw_ended(fd));

    auto_close int second = dial(*state);
    (void)sem_post(&produce), (void)sem_post(&produce), (void)sem_post(&produce);
    char all[1024] = "";
    size_t got = 0;
    struct error err;
    raw_say(second, "GET /stream HTTP/1.0\r\n\r\n");
    assert_int_equal(fd_read_full(second, all, sizeof all - 1, &got, &err), 0);
    assert_true(str_ends(all, "\r\n\r\npiece 0\npiece 1\npiece 2\n"));
    assert_true(wait_for(&released));
}

/* ---- the server -------------------------------------------------------------------------------------- */

/* Sends the rest of a request a byte at a time; gives when the server had enough, in ms. */
static int64_t trickle(int fds[3], const char *const rest[3])
{
    const struct timespec pause = { .tv_nsec = 50 * 1000000L };
    int64_t began = clock_mono_ms(), longest = 0;
    bool closed[3] = { false };

    for (size_t at = 0; !(closed[0] && closed[1] && closed[2]); at++) {
        if (clock_mono_ms() - began > 4000)
            return INT64_MAX;
        (void)nanosleep(&pause, NULL);
        for (size_t i = 0; i < 3; i++) {
            char c;
            if (closed[i])
                continue;
            if (at < strlen(rest[i]))
                IGNORE(send(fds[i], rest[i] + at, 1, MSG_NOSIGNAL));
            ssize_t n = recv(fds[i], &c, 1, MSG_DONTWAIT);
            closed[i] = n == 0 || (n < 0 && errno != EAGAIN);
            longest = clock_mono_ms() - began;
        }
    }
    return longest;
}

static void slow_clients_are_cut(void **state)
{
    static const char dots[] =
        "................................................................................";
    static const char *const firsts[3] = { "GET /",
                                           "POST /json HTTP/1.1\r\n" RAW_HOST "Content-Length: 1000\r\n\r\n",
                                           "" };
    static const char *const rests[3] = { dots, dots, "" };
    struct http_server *s = start(8, 1);
    int fds[3];

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        fds[i] = dial(s);
        raw_say(fds[i], firsts[i]);
    }
    int64_t took = trickle(fds, rests);
    assert_in_range(took, 900, 2500);
    for (size_t i = 0; i < 3; i++)
        (void)close(fds[i]);
    http_server_stop(s);
    assert_int_equal(live_principals, 0);
}

static void slow_handlers_are_not_cut(void **state)
{
    struct http_server *s = start(8, 1);
    const struct timespec longer_than_idle = { .tv_sec = 1, .tv_nsec = 300 * 1000000L };
    auto_close int stream = dial(s);
    auto_close int slow = dial(s);
    struct raw_reply r;

    (void)state;
    raw_say(slow, "GET /slow HTTP/1.1\r\n" RAW_HOST "\r\n");
    raw_say(stream, "GET /stream HTTP/1.1\r\n" RAW_HOST "\r\n");
    assert_true(raw_read_head(stream, &r));
    (void)nanosleep(&longer_than_idle, NULL);
    for (int i = 0; i < 4; i++)
        (void)sem_post(&produce);
    while (raw_read_chunk(stream, &r.body))
        ;
    assert_string_equal(r.body.data, "piece 0\npiece 1\npiece 2\n");
    buf_done(&r.body);
    raw_read_reply(slow, false, &r);
    assert_int_equal(r.status, 200);
    assert_string_equal(r.body.data, "{\"at\":\"last\"}\n");
    buf_done(&r.body);
    http_server_stop(s);
}

static void connections_past_the_limit_are_closed(void **state)
{
    enum { LIMIT = 8, EXTRA = 500 };
    struct http_server *s = start(LIMIT, 5);
    int fds[LIMIT], extra[EXTRA];

    (void)state;
    for (size_t i = 0; i < LIMIT; i++) {
        fds[i] = dial(s);
        assert_int_equal(raw_ask(fds[i], "GET /text HTTP/1.1\r\n" RAW_HOST "\r\n", "text"), 200);
    }
    for (size_t i = 0; i < EXTRA; i++)
        extra[i] = dial(s);
    for (size_t i = 0; i < EXTRA; i++) {
        assert_true(raw_ended(extra[i]));
        (void)close(extra[i]);
    }
    for (size_t i = 0; i < LIMIT; i++) {
        assert_int_equal(raw_ask(fds[i], "GET /text HTTP/1.1\r\n" RAW_HOST "\r\n", "text"), 200);
        (void)close(fds[i]);
    }
    http_server_stop(s);
}

static void stopping_waits_for_handlers(void **state)
{
    struct http_server *s = start(8, 5);
    auto_close int fd = dial(s);
    auto_close int silent = dial(s);

    (void)state;
    assert_true(silent >= 0);
    raw_say(fd, "POST /wait HTTP/1.1\r\n" RAW_HOST "Content-Length: 0\r\n\r\n");
    assert_true(wait_for(&produce));
    uint16_t port = http_server_port(s);
    http_server_quiesce(s);
    assert_int_equal(raw_dial(port), -1);
    assert_int_equal(sem_trywait(&released), -1); /* the request goes on */
    http_server_stop(s);
    assert_int_equal(sem_trywait(&released), 0); /* the handler saw its client go, and has returned */
    assert_int_equal(live_principals, 0);
}

static void quiesced_servers_finish_what_they_have(void **state)
{
    struct http_server *s = start(8, 5);
    auto_close int fd = dial(s);

    (void)state;
    assert_int_equal(raw_ask(fd, "GET /text HTTP/1.1\r\n" RAW_HOST "\r\n", "text"), 200);
    http_server_quiesce(s);
    http_server_quiesce(s);
    assert_int_equal(raw_ask(fd, "GET /text HTTP/1.1\r\n" RAW_HOST "\r\n", "text"), 200);
    http_server_stop(s);
    http_server_stop(NULL);
}

static void a_taken_port_is_an_error(void **state)
{
    struct http_server_options opt = { "127.0.0.1", http_server_port(*state), 8, 5, &service };
    struct http_server *s = NULL;
    struct error err = { 0 };

    assert_int_equal(http_server_start(&opt, &s, &err), -1);
    assert_non_null(strstr(err.msg, "Address already in use"));
    opt.host = "no such host";
    assert_int_equal(http_server_start(&opt, &s, &err), -1);
    assert_int_equal(err.kind, ERR_INVALID);
    assert_null(s);
}

#define SERVED(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        SERVED(files_are_sent_from_their_offset),
        SERVED(pieces_arrive_as_they_are_made),
        SERVED(a_stream_ends_when_the_client_hangs_up),
        SERVED(a_stream_that_fails_cuts_the_connection),
        SERVED(heads_of_streams_have_no_body),
        SERVED(handlers_can_see_the_client_go),
        SERVED(old_clients_are_served),
        cmocka_unit_test(slow_clients_are_cut),
        cmocka_unit_test(slow_handlers_are_not_cut),
        cmocka_unit_test(connections_past_the_limit_are_closed),
        cmocka_unit_test(stopping_waits_for_handlers),
        cmocka_unit_test(quiesced_servers_finish_what_they_have),
        SERVED(a_taken_port_is_an_error),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
