/* The only file that includes microhttpd.h: turns the library's callbacks into http_begin() and
 * http_finish(). */
#include "orchestrator/http/server.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <microhttpd.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "common/clock.h"
#include "common/fd.h"
#include "common/id.h"
#include "common/log.h"
#include "orchestrator/http/framing.h"
#include "orchestrator/http/listen.h"
#include "orchestrator/http/watchdog.h"

#define STACK_BYTES ((size_t)2 * 1024 * 1024)
/* Bounds a request head, and the pieces of a body. Measured: beyond 256 KiB bodies get no faster. */
#define CONNECTION_MEMORY ((size_t)256 * 1024)
/* A body up to this size is read and dropped when its request is refused, so that the connection can be used
 * again. */
#define SMALL_BODY ((uint64_t)64 * 1024)
#define LINGER_MS 10000
#define LINGER_SILENCE_MS 1000

struct http_server {
    struct MHD_Daemon *daemon;
    const struct http_service *service;
    struct watchdog *watchdog;
    unsigned idle_s;
    uint16_t port;
    int listen_fd;
    bool quiesced;
};

/* One request under way: made when its request line has come, freed by on_completed(). */
struct exchange {
    struct http_server *server;
    struct MHD_Connection *conn;
    struct watchdog_entry *watch; /* of the connection; borrowed */
    char *target;                 /* owned; NUL in place of the "?" */
    struct http_request req;
    struct http_response res; /* its stream stays here until the end */
    const struct http_route *route;
    struct buf body; /* of a JSON route */
    bool begun;
    bool answered; /* res holds the answer, whatever the body still brings */
    bool queued;
    bool linger; /* answered before the body was read */
    int64_t begun_us;
    uint64_t received, sent; /* bytes of the bodies */
};

static int64_t idle_ms(const struct http_server *s) { return (int64_t)s->idle_s * 1000; }

static bool is_loopback(const struct sockaddr *sa)
{
    if (sa->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)sa)->sin_addr.s_addr) >> 24 == 127;
    if (sa->sa_family != AF_INET6)
        return false;
    const struct in6_addr *a = &((const struct sockaddr_in6 *)sa)->sin6_addr;
    return IN6_IS_ADDR_LOOPBACK(a) || (IN6_IS_ADDR_V4MAPPED(a) && a->s6_addr[12] == 127);
}

static int connection_fd(struct MHD_Connection *conn)
{
    return MHD_get_connection_info(conn, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
}

/* ---- the answer -------------------------------------------------------------------------------------- */

/* Runs in the connection's thread. The library's idle clock must not run while the body is being made. */
static ssize_t on_stream(void *cls, uint64_t pos, char *out, size_t max)
{
    struct exchange *x = cls;

    (void)pos;
    (void)MHD_set_connection_option(x->conn, MHD_CONNECTION_OPTION_TIMEOUT, 0U);
    ssize_t n = x->res.stream.next(x->res.stream.state, out, max);
    (void)MHD_set_connection_option(x->conn, MHD_CONNECTION_OPTION_TIMEOUT, x->server->idle_s);
    if (n <= 0)
        return n == 0 ? MHD_CONTENT_READER_END_OF_STREAM : MHD_CONTENT_READER_END_WITH_ERROR;
    x->sent += (uint64_t)n;
    return n;
}

/* The library frees the text, and closes the file, with the response. */
static struct MHD_Response *response_of_text(struct exchange *x, char *text, size_t len)
{
    struct MHD_Response *r = MHD_create_response_from_buffer(len, text, MHD_RESPMEM_MUST_FREE);

    if (!r)
        free(text);
    x->sent = len;
    return r;
}

static struct MHD_Response *response_of_file(struct exchange *x)
{
    int fd = steal_fd(&x->res.file_fd);
    struct MHD_Response *r = MHD_create_response_from_fd_at_offset64(x->res.file_len, fd, x->res.file_offset);

    if (!r)
        closep(&fd);
    x->sent = x->res.file_len;
    return r;
}

static struct MHD_Response *make_response(struct exchange *x)
{
    struct http_response *res = &x->res;
    size_t len = 0;

    if (res->json) {
        if (!res->content_type)
            res->content_type = xstrdup("application/json");
        char *text = jsonx_dump_line(res->json, &len);
        return response_of_text(x, text, len);
    }
    if (res->text)
        return response_of_text(x, steal_ptr(&res->text), res->text_len);
    if (res->file_fd >= 0)
        return response_of_file(x);
    if (res->stream.next)
        return MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, CONNECTION_MEMORY, on_stream, x, NULL);
    return MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
}

static enum MHD_Result reply(struct exchange *x)
{
    struct MHD_Response *r = make_response(x);

    if (!r)
        return MHD_NO;
    if (x->res.content_type)
        (void)MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, x->res.content_type);
    for (size_t i = 0; i < x->res.headers.count; i++)
        (void)MHD_add_response_header(r, x->res.headers.items[i].name, x->res.headers.items[i].value);
    (void)MHD_add_response_header(r, "X-Request-Id", x->req.request_id);
    bool is_head = strcmp(x->req.method, "HEAD") == 0;
    if (is_head && x->res.stream.next) /* or the library sends the last chunk's bytes, where no body may be */
        (void)MHD_set_response_options(r, MHD_RF_HTTP_1_0_COMPATIBLE_STRICT, MHD_RO_END);
    if (x->linger)
        (void)MHD_add_response_header(r, MHD_HTTP_HEADER_CONNECTION, "close");
    enum MHD_Result ok = MHD_queue_response(x->conn, x->res.status, r);
    MHD_destroy_response(r); /* drops our reference only */
    x->queued = ok == MHD_YES;
    if (is_head)
        x->sent = 0;
    return ok;
}

/* Answers before the body: the library then reads nothing more and closes the connection. */
static enum MHD_Result refuse(struct exchange *x)
{
    x->linger = true;
    return reply(x);
}

static void answer_error(struct exchange *x, const struct error *err)
{
    http_response_error(&x->res, err);
    x->answered = true;
}

/* ---- the request ------------------------------------------------------------------------------------- */

struct head_reader {
    struct exchange *x;
    struct error err;
    bool failed;
};

static enum MHD_Result on_field(void *cls, enum MHD_ValueKind kind, const char *name, size_t name_len,
                                const char *value, size_t value_len)
{
    struct head_reader *h = cls;

    (void)kind;
    h->failed = framing_check_field(name, name_len, value, value_len, &h->err) < 0 ||
                http_fields_add(&h->x->req.headers, name, value ? value : "", &h->err) < 0;
    return h->failed ? MHD_NO : MHD_YES;
}

static int read_head(struct exchange *x, const char *version, uint64_t *ret_body, struct error *err)
{
    struct head_reader h = { .x = x };
    char *query = strchr(x->target, '?');

    if (query)
        *query++ = '\0';
    (void)MHD_get_connection_values_n(x->conn, MHD_HEADER_KIND, on_field, &h);
    if (h.failed) {
        *err = h.err;
        return -1;
    }
    if (framing_check(&x->req, version, ret_body, err) < 0)
        return -1;
    return http_query_parse(query ? query : "", &x->req.query, err);
}

/* The head has come: all that can be refused now is refused now. */
static enum MHD_Result on_head(struct exchange *x, const char *method, const char *version)
{
    const struct http_service *s = x->server->service;
    struct error err;
    uint64_t body = 0;

    x->begun = true;
    x->begun_us = clock_mono_us();
    x->req.method = method;
    log_context(x->req.request_id, NULL);
    if (read_head(x, version, &body, &err) < 0) {
        answer_error(x, &err);
        return refuse(x);
    }
    watchdog_set(x->server->watchdog, x->watch, body > 0 ? clock_mono_ms() + idle_ms(x->server) : 0);
    x->route = http_begin(s, &x->req, &x->res);
    x->answered = !x->route;
    buf_init(&x->body, s->max_json_bytes);
    if (x->route && x->route->json_body && body != FRAMING_UNKNOWN && body > s->max_json_bytes) {
        (void)error_set(&err, ERR_LIMIT, "body: more than %zu bytes", s->max_json_bytes);
        answer_error(x, &err);
    }
    bool worth_reading = body <= SMALL_BODY && !http_header(&x->req, "Expect");
    return x->answered && !worth_reading ? refuse(x) : MHD_YES;
}

/* Answering is not possible here: after a failure the rest is read and dropped. */
static void on_body(struct exchange *x, const char *data, size_t len)
{
    struct error err;

    x->received += len;
    /* At least a byte a millisecond on average, once the idle time is used up: a client cannot sit on the
     * thread. */
    watchdog_set(x->server->watchdog, x->watch,
                 x->begun_us / 1000 + idle_ms(x->server) + (int64_t)x->received);
    if (x->answered)
        return;
    if (x->route->sink) {
        if (x->route->sink->data(x->req.sink_state, data, len, &err) < 0)
            answer_error(x, &err);
    } else if (x->route->json_body && buf_add(&x->body, data, len, &err) < 0) {
        (void)error_wrap(&err, "body");
        answer_error(x, &err);
        buf_done(&x->body);
    }
}

static enum MHD_Result on_end(struct exchange *x)
{
    watchdog_set(x->server->watchdog, x->watch, 0);
    if (!x->answered)
        http_finish(x->server->service, x->route, &x->req, x->body.data, x->body.len, &x->res);
    return reply(x);
}

static enum MHD_Result on_request(void *cls, struct MHD_Connection *conn, const char *url, const char *method,
                                  const char *version, const char *data, size_t *size, void **state)
{
    struct exchange *x = *state;

    (void)cls, (void)conn, (void)url; /* url is decoded, and cut at a NUL: x->target is what came */
    if (!x->begun)
        return on_head(x, method, version);
    if (*size > 0) {
        on_body(x, data, *size);
        *size = 0;
        return MHD_YES;
    }
    return on_end(x);
}

static void *on_target(void *cls, const char *target, struct MHD_Connection *conn)
{
    struct exchange *x = xcalloc(1, sizeof *x);

    x->server = cls;
    x->conn = conn;
    x->watch = MHD_get_connection_info(conn, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
    x->target = xstrdup(target);
    x->req.target = x->target;
    x->req.client_fd = connection_fd(conn);
    x->req.peer_is_loopback = is_loopback(
        MHD_get_connection_info(conn, MHD_CONNECTION_INFO_CLIENT_ADDRESS)->client_addr);
    id_new(x->req.request_id);
    http_response_init(&x->res);
    return x;
}

/*
 * The answer was sent before the body was read: closing now would reset the connection, and the client, still
 * sending, might never see the answer. So what it sends is read for a while.
 */
static void linger(int fd)
{
    int64_t until = clock_mono_ms() + LINGER_MS;
    char dropped[16384];

    (void)shutdown(fd, SHUT_WR);
    while (clock_mono_ms() < until && fd_wait_readable(fd, LINGER_SILENCE_MS))
        if (recv(fd, dropped, sizeof dropped, MSG_DONTWAIT) <= 0)
            return;
}

static void on_completed(void *cls, struct MHD_Connection *conn, void **state,
                         enum MHD_RequestTerminationCode why)
{
    struct http_server *s = cls;
    struct exchange *x = *state;

    if (!x)
        return;
    if (x->begun && s->service->log_requests)
        log_info("request method=%s path=%s status=%u ms=%" PRId64 " bytes=%" PRIu64 "%s", x->req.method,
                 x->req.target, x->queued ? x->res.status : 0, (clock_mono_us() - x->begun_us) / 1000,
                 x->sent, why == MHD_REQUEST_TERMINATED_COMPLETED_OK ? "" : " cut=true");
    if (x->linger)
        linger(connection_fd(conn));
    watchdog_set(s->watchdog, x->watch, clock_mono_ms() + idle_ms(s));
    http_response_done(&x->res); /* before the request: its stream may borrow from it */
    http_request_done(s->service, x->route, &x->req);
    buf_done(&x->body);
    free(x->target);
    free(x);
    *state = NULL;
    log_context(NULL, NULL);
}

/* ---- the server -------------------------------------------------------------------------------------- */

/* Runs in the accepting thread, before the connection's own starts and after it has ended, with the socket
 * open. */
static void on_connection(void *cls, struct MHD_Connection *conn, void **context,
                          enum MHD_ConnectionNotificationCode what)
{
    struct http_server *s = cls;

    if (what == MHD_CONNECTION_NOTIFY_STARTED)
        *context = watchdog_add(s->watchdog, connection_fd(conn), clock_mono_ms() + idle_ms(s));
    else
        watchdog_remove(s->watchdog, *context);
}

static void on_log(void *cls, const char *fmt, va_list ap) PRINTF_LIKE(2, 0);
static void on_log(void *cls, const char *fmt, va_list ap)
{
    char text[256];

    (void)cls;
    (void)vsnprintf(text, sizeof text, fmt, ap);
    log_debug("%.*s", (int)strcspn(text, "\n"), text);
}

static void server_free(struct http_server *s)
{
    watchdog_stop(s->watchdog);
    closep(&s->listen_fd);
    free(s);
}
DEFINE_CLEANUP(struct http_server *, server_free)

int http_server_start(const struct http_server_options *opt, struct http_server **ret, struct error *err)
{
    CLEANUP(server_freep) struct http_server *s = xcalloc(1, sizeof *s);

    s->service = opt->service;
    s->idle_s = opt->idle_timeout_s;
    s->listen_fd = -1;
    if (listen_tcp(opt->host, opt->port, &s->listen_fd, &s->port, err) < 0 ||
        watchdog_start(&s->watchdog, err) < 0)
        return -1;
    unsigned flags = MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_THREAD_PER_CONNECTION | MHD_USE_POLL |
                     MHD_USE_ITC | MHD_USE_ERROR_LOG;
    s->daemon = MHD_start_daemon(flags, 0, NULL, NULL, on_request, s, MHD_OPTION_EXTERNAL_LOGGER, on_log,
                                 NULL, MHD_OPTION_LISTEN_SOCKET, s->listen_fd, MHD_OPTION_NOTIFY_CONNECTION,
                                 on_connection, s, MHD_OPTION_URI_LOG_CALLBACK, on_target, s,
                                 MHD_OPTION_NOTIFY_COMPLETED, on_completed, s, MHD_OPTION_CONNECTION_LIMIT,
                                 opt->max_connections, MHD_OPTION_CONNECTION_TIMEOUT, opt->idle_timeout_s,
                                 MHD_OPTION_CONNECTION_MEMORY_LIMIT, CONNECTION_MEMORY,
                                 MHD_OPTION_THREAD_STACK_SIZE, STACK_BYTES, MHD_OPTION_END);
    if (!s->daemon)
        return error_set(err, ERR_INTERNAL, "cannot start the HTTP server on %s port %u", opt->host, s->port);
    *ret = steal_ptr(&s);
    return 0;
}

uint16_t http_server_port(const struct http_server *s) { return s->port; }

void http_server_quiesce(struct http_server *s)
{
    if (s->quiesced)
        return;
    s->quiesced = true;
    (void)MHD_quiesce_daemon(s->daemon);
    (void)shutdown(s->listen_fd,
                   SHUT_RDWR); /* new connections are refused; closed once no thread can use it */
}

void http_server_stop(struct http_server *s)
{
    if (!s)
        return;
    http_server_quiesce(s);
    MHD_stop_daemon(s->daemon);
    server_free(s);
}
