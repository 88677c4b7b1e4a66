#include "tests/fakes/fake_docker.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>

#include "common/buf.h"
#include "common/fd.h"

#define MAX_CONNECTIONS 512
#define MAX_RULES 64
#define MAX_REQUEST ((size_t)4 * 1024 * 1024)
#define WAIT_S 5

#define VERSION_20_10                                                                                        \
    "{\"Version\":\"20.10.24\",\"ApiVersion\":\"1.41\",\"MinAPIVersion\":\"1.12\",\"Os\":\"linux\"}"

struct rule {
    char *request;
    struct fake_reply reply; /* owns its strings */
    int served;
};

struct recorded {
    char *line, *body;
};

struct connection {
    struct fake_docker *fake;
    pthread_t thread;
    int fd;
    bool streaming; /* guarded by fake->lock, like the fd while it streams */
};

struct fake_docker {
    int listen_fd, stop_fd;
    pthread_t acceptor;
    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t changed;
    struct rule rules[MAX_RULES];
    size_t rule_count;
    struct recorded requests[MAX_CONNECTIONS];
    size_t request_count;
    struct connection connections[MAX_CONNECTIONS];
    size_t connection_count;
};

/* A fake that cannot work makes the test worthless: there is nothing to clean up for. */
static void require(bool ok, const char *what)
{
    if (!ok) {
        perror(what);
        abort();
    }
}

/* Waits until fd is readable or the fake stops; gives false then and after timeout_ms. */
static bool wait_for(const struct fake_docker *d, int fd, int timeout_ms)
{
    struct pollfd p[2] = { { .fd = d->stop_fd, .events = POLLIN }, { .fd = fd, .events = POLLIN } };

    return poll(p, 2, timeout_ms) > 0 && p[0].revents == 0 && p[1].revents != 0;
}

static bool send_all(int fd, const char *data, size_t len, size_t split)
{
    while (len > 0) {
        ssize_t n = send(fd, data, split ? MIN(split, len) : len, MSG_NOSIGNAL);
        if (n <= 0)
            return false;
        data += n;
        len -= (size_t)n;
    }
    return true;
}

static bool send_chunk(int fd, const char *data, size_t len)
{
    char size[32];

    (void)snprintf(size, sizeof size, "%zx\r\n", len);
    return send_all(fd, size, strlen(size), 0) && send_all(fd, data, len, 0) && send_all(fd, "\r\n", 2, 0);
}

/* ---- one connection ---- */

/* Reads head and body (Content-Length only). Gives the body's place, or NULL when the client went away. */
static char *read_request(const struct connection *c, struct buf *in)
{
    struct error err;
    char *room = NULL;

    for (;;) {
        char *end = in->data ? strstr(in->data, "\r\n\r\n") : NULL;
        const char *length = end ? strcasestr(in->data, "\r\nContent-Length:") : NULL;
        size_t body_len = 0;
        if (length && length < end)
            (void)sscanf(length + strlen("\r\nContent-Length:"), "%zu", &body_len);
        if (end && in->len >= (size_t)(end + 4 - in->data) + body_len)
            return end + 4;
        if (!wait_for(c->fake, c->fd, -1) || buf_reserve(in, 4096, &room, &err) < 0)
            return NULL;
        ssize_t n = read(c->fd, room, 4096);
        if (n <= 0)
            return NULL;
        in->len += (size_t)n;
        in->data[in->len] = '\0';
    }
}

/* "GET /v1.41/info?x=y HTTP/1.1" gives "GET /info". */
static void rule_key(const char *head, char *out, size_t size)
{
    const char *path = strchr(head, ' ');
    size_t method_len = path ? (size_t)(path - head) : 0;

    path = path ? path + 1 : "";
    if (str_starts(path, "/v1."))
        path = strchr(path + 1, '/') ? strchr(path + 1, '/') : "";
    (void)snprintf(out, size, "%.*s %.*s", (int)method_len, head, (int)strcspn(path, "? "), path);
}

static struct fake_reply find_reply(struct fake_docker *d, const char *key)
{
    static const struct fake_reply unknown = { .status = 404, .body = "{\"message\":\"page not found\"}" };

    for (size_t i = d->rule_count; i-- > 0;) {
        struct rule *r = &d->rules[i];
        if (!str_eq(r->request, key) || (r->reply.times > 0 && r->served >= r->reply.times))
            continue;
        r->served++;
        return r->reply;
    }
    return unknown;
}

static struct fake_reply record(struct fake_docker *d, const char *head, const char *body)
{
    char key[512];
    size_t line = strcspn(head, "\r\n");

    rule_key(head, key, sizeof key);
    (void)pthread_mutex_lock(&d->lock);
    require(d->request_count < MAX_CONNECTIONS, "fake_docker: too many requests");
    d->requests[d->request_count++] = (struct recorded){ xstrndup(head, line), xstrdup(body) };
    struct fake_reply reply = find_reply(d, key);
    (void)pthread_cond_broadcast(&d->changed);
    (void)pthread_mutex_unlock(&d->lock);
    return reply;
}

static void stream_until_stopped(struct connection *c)
{
    struct fake_docker *d = c->fake;

    (void)pthread_mutex_lock(&d->lock);
    c->streaming = true;
    (void)pthread_cond_broadcast(&d->changed);
    (void)pthread_mutex_unlock(&d->lock);
    (void)wait_for(d, c->fd, -1); /* the client went away, the test cut it, or the fake stops */
    (void)pthread_mutex_lock(&d->lock);
    c->streaming = false;
    (void)pthread_mutex_unlock(&d->lock);
}

static void answer(struct connection *c, const struct fake_reply *r)
{
    const char *body = r->body ? r->body : r->stream ? "" : "{}";
    const char *headers = r->headers ? r->headers : "";
    char length[64];

    if (r->refuse || (r->delay_ms != 0 && (wait_for(c->fake, -1, r->delay_ms), r->delay_ms < 0)))
        return;
    (void)snprintf(length, sizeof length, "Content-Length: %zu\r\n", strlen(body));
    auto_free char *text = xasprintf(
        "HTTP/1.1 %d Programmed\r\nApi-Version: 1.41\r\nServer: Docker/20.10.24 (linux)\r\n%s%s%s\r\n%s",
        r->status ? r->status : 200,
        strcasestr(headers, "Content-Type:") ? "" : "Content-Type: application/json\r\n",
        r->stream ? "Transfer-Encoding: chunked\r\n" : length, headers, r->stream ? "" : body);
    size_t len = strlen(text);
    if (!send_all(c->fd, text, r->cut && r->cut < len ? r->cut : len, r->split) || !r->stream)
        return;
    if (*body == '\0' || send_chunk(c->fd, body, strlen(body)))
        stream_until_stopped(c);
}

static void *connection_main(void *arg)
{
    struct connection *c = arg;
    auto_buf struct buf in = { .max = MAX_REQUEST };
    const char *body = read_request(c, &in);

    if (body) {
        struct fake_reply reply = record(c->fake, in.data, body);
        answer(c, &reply);
    }
    /* The client sees the end now; the number itself is freed at the end, when nobody can still mean it. */
    (void)shutdown(c->fd, SHUT_RDWR);
    return NULL;
}

static void *acceptor_main(void *arg)
{
    struct fake_docker *d = arg;

    while (wait_for(d, d->listen_fd, -1)) {
        int fd = accept4(d->listen_fd, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0)
            continue;
        (void)pthread_mutex_lock(&d->lock);
        require(d->connection_count < MAX_CONNECTIONS, "fake_docker: too many connections");
        struct connection *c = &d->connections[d->connection_count++];
        *c = (struct connection){ .fake = d, .fd = fd };
        require(pthread_create(&c->thread, NULL, connection_main, c) == 0, "fake_docker: thread");
        (void)pthread_mutex_unlock(&d->lock);
    }
    return NULL;
}

/* ---- for the test ---- */

struct fake_docker *fake_docker_start(const char *path)
{
    struct fake_docker *d = xcalloc(1, sizeof *d);
    struct error err = { 0 };

    *d = (struct fake_docker){ .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };
    d->stop_fd = eventfd(0, EFD_CLOEXEC);
    require(d->stop_fd >= 0, "fake_docker: eventfd");
    require(fd_unix_listen(path, 0600, &d->listen_fd, &err) == 0, err.msg);
    fake_docker_reply(d, "GET /_ping", &(struct fake_reply){ .body = "OK" });
    fake_docker_reply(d, "GET /version", &(struct fake_reply){ .body = VERSION_20_10 });
    require(pthread_create(&d->acceptor, NULL, acceptor_main, d) == 0, "fake_docker: thread");
    return d;
}

void fake_docker_stop(struct fake_docker *d)
{
    if (!d)
        return;
    (void)eventfd_write(d->stop_fd, 1);
    (void)pthread_join(d->acceptor, NULL);
    for (size_t i = 0; i < d->connection_count; i++) {
        (void)pthread_join(d->connections[i].thread, NULL);
        (void)close(d->connections[i].fd);
    }
    for (size_t i = 0; i < d->rule_count; i++) {
        free(d->rules[i].request);
        free((void *)(uintptr_t)d->rules[i].reply.body);
        free((void *)(uintptr_t)d->rules[i].reply.headers);
    }
    for (size_t i = 0; i < d->request_count; i++) {
        free(d->requests[i].line);
        free(d->requests[i].body);
    }
    (void)close(d->listen_fd);
    (void)close(d->stop_fd);
    free(d);
}

void fake_docker_reply(struct fake_docker *d, const char *request, const struct fake_reply *reply)
{
    (void)pthread_mutex_lock(&d->lock);
    require(d->rule_count < MAX_RULES, "fake_docker: too many rules");
    struct rule *r = &d->rules[d->rule_count++];
    *r = (struct rule){ .request = xstrdup(request), .reply = *reply };
    r->reply.body = xstrdup(reply->body);
    r->reply.headers = xstrdup(reply->headers);
    (void)pthread_mutex_unlock(&d->lock);
}

static char *find_request(struct fake_docker *d, const char *prefix, size_t i, bool body)
{
    char *found = NULL;

    (void)pthread_mutex_lock(&d->lock);
    for (size_t k = 0; k < d->request_count && !found; k++)
        if (str_starts(d->requests[k].line, prefix) && i-- == 0)
            found = xstrdup(body ? d->requests[k].body : d->requests[k].line);
    (void)pthread_mutex_unlock(&d->lock);
    return found;
}

char *fake_docker_request(struct fake_docker *d, const char *prefix, size_t i)
{
    return find_request(d, prefix, i, false);
}

char *fake_docker_request_body(struct fake_docker *d, const char *prefix, size_t i)
{
    return find_request(d, prefix, i, true);
}

size_t fake_docker_count(struct fake_docker *d, const char *prefix)
{
    size_t n = 0;

    (void)pthread_mutex_lock(&d->lock);
    for (size_t i = 0; i < d->request_count; i++)
        n += str_starts(d->requests[i].line, prefix);
    (void)pthread_mutex_unlock(&d->lock);
    return n;
}

static size_t open_streams(const struct fake_docker *d)
{
    size_t n = 0;

    for (size_t i = 0; i < d->connection_count; i++)
        n += d->connections[i].streaming;
    return n;
}

bool fake_docker_wait_streams(struct fake_docker *d, size_t n)
{
    struct timespec until;
    int late = 0;

    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += WAIT_S;
    (void)pthread_mutex_lock(&d->lock);
    while (open_streams(d) < n && !late)
        late = pthread_cond_timedwait(&d->changed, &d->lock, &until);
    (void)pthread_mutex_unlock(&d->lock);
    return !late;
}

void fake_docker_push(struct fake_docker *d, const char *data, size_t split)
{
    size_t len = strlen(data);

    (void)pthread_mutex_lock(&d->lock);
    for (size_t i = 0; i < d->connection_count; i++)
        for (size_t at = 0, n; d->connections[i].streaming && at < len; at += n) {
            n = split ? MIN(split, len - at) : len;
            (void)send_chunk(d->connections[i].fd, data + at, n);
        }
    (void)pthread_mutex_unlock(&d->lock);
}

void fake_docker_cut_streams(struct fake_docker *d)
{
    (void)pthread_mutex_lock(&d->lock);
    for (size_t i = 0; i < d->connection_count; i++)
        if (d->connections[i].streaming) {
            d->connections[i].streaming = false;
            (void)shutdown(d->connections[i].fd, SHUT_RDWR);
        }
    (void)pthread_mutex_unlock(&d->lock);
}
