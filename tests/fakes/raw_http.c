#include "tests/fakes/raw_http.h"

#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <cmocka.h>

#include "common/id.h"

int raw_dial(uint16_t port)
{
    struct sockaddr_in sa = { .sin_family = AF_INET, .sin_port = htons(port) };
    const struct timeval patience = { .tv_sec = 8 };
    auto_close int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (connect(fd, (struct sockaddr *)&sa, sizeof sa) < 0)
        return -1;
    return steal_fd(&fd);
}

void raw_say_bytes(int fd, const char *data, size_t len)
{
    while (len > 0) {
        ssize_t n = send(fd, data, len, MSG_NOSIGNAL);
        assert_true(n > 0);
        data += n;
        len -= (size_t)n;
    }
}

void raw_say(int fd, const char *text) { raw_say_bytes(fd, text, strlen(text)); }

static size_t value_at(const char *head, const char *name, char *out, size_t size)
{
    const char *p = strcasestr(head, name);

    out[0] = '\0';
    if (p)
        (void)snprintf(out, size, "%.*s", (int)strcspn(p + strlen(name), "\r\n"), p + strlen(name));
    return strlen(out);
}

static bool read_byte(int fd, char *ret) { return recv(fd, ret, 1, 0) == 1; }

static void read_exactly(int fd, size_t len, struct buf *out)
{
    char c;

    for (size_t i = 0; i < len; i++) {
        struct error err;
        assert_true(read_byte(fd, &c));
        assert_int_equal(buf_add(out, &c, 1, &err), 0);
    }
}

bool raw_read_chunk(int fd, struct buf *out)
{
    char line[16] = "";
    unsigned len = 0;

    for (size_t n = 0; !strchr(line, '\n'); n++) {
        assert_true(n < sizeof line - 1);
        assert_true(read_byte(fd, &line[n]));
    }
    assert_int_equal(sscanf(line, "%x", &len), 1);
    read_exactly(fd, len, out);
    struct buf crlf = { .max = 2 };
    read_exactly(fd, 2, &crlf);
    buf_done(&crlf);
    return len > 0;
}

bool raw_read_head(int fd, struct raw_reply *r)
{
    size_t n = 0;

    *r = (struct raw_reply){ .body = { .max = 1 << 20 } };
    while (!str_ends(r->head, "\r\n\r\n")) {
        assert_true(n < sizeof r->head - 1);
        if (!read_byte(fd, &r->head[n++]))
            return false;
    }
    assert_int_equal(sscanf(r->head, "HTTP/1.%*d %u", &r->status), 1);
    return true;
}

void raw_read_reply(int fd, bool is_head, struct raw_reply *r)
{
    char value[64];

    assert_true(raw_read_head(fd, r));
    if (r->status != 100) {
        assert_int_equal(value_at(r->head, "X-Request-Id: ", value, sizeof value), ID_LEN);
        assert_true(id_valid(value));
    }
    if (is_head || r->status == 304 || r->status == 204 || r->status == 100)
        return;
    if (value_at(r->head, "Transfer-Encoding: ", value, sizeof value) > 0) {
        while (raw_read_chunk(fd, &r->body))
            ;
    } else {
        assert_true(value_at(r->head, "Content-Length: ", value, sizeof value) > 0);
        unsigned len = 0;
        assert_int_equal(sscanf(value, "%u", &len), 1);
        read_exactly(fd, len, &r->body);
    }
}

bool raw_ended(int fd)
{
    char c;

    return recv(fd, &c, 1, 0) == 0;
}

unsigned raw_ask(int fd, const char *request, const char *text)
{
    struct raw_reply r;

    raw_say(fd, request);
    raw_read_reply(fd, str_starts(request, "HEAD "), &r);
    if (text && !(r.body.data && strstr(r.body.data, text)))
        fail_msg("%s: no \"%s\" in %s", request, text, r.body.data ? r.body.data : "nothing");
    buf_done(&r.body);
    return r.status;
}
