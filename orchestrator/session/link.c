#include "orchestrator/session/link.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "common/clock.h"

#define SEND_TIMEOUT_S 10

static int say_hello(struct link *l, struct error *err)
{
    json_auto_t *hello = json_pack("{s:i, s:i, s:s}", "protocol", FRAME_PROTOCOL, "oldest",
                                   FRAME_PROTOCOL_OLDEST, "program", "carrel");

    return link_send(l, FRAME_HELLO, hello, err);
}

static int hear_hello(struct link *l, struct error *err)
{
    struct frame f;
    enum link_got got = LINK_CLOSED;
    json_auto_t *hello = NULL;
    json_int_t protocol = 0, oldest = 0;

    if (link_read(l, clock_mono_ms() + LINK_HELLO_MS, -1, &f, &got, err) < 0)
        return -1;
    if (got != LINK_FRAME)
        return error_set(err, got == LINK_TIMEOUT ? ERR_TIMEOUT : ERR_UPSTREAM, "the sandbox's runner is %s",
                         got == LINK_TIMEOUT ? "mute" : "gone");
    if (f.type != FRAME_HELLO)
        return error_set(err, ERR_UPSTREAM, "the runner opened with a %s frame", frame_type_name(f.type));
    if (jsonx_parse_repaired(f.payload, f.len, &hello, err) < 0 ||
        jsonx_unpack(hello, err, "{s:I, s:I}", "protocol", &protocol, "oldest", &oldest) < 0)
        return error_wrap(err, "the runner's HELLO");
    if (protocol < FRAME_PROTOCOL_OLDEST || oldest > FRAME_PROTOCOL)
        return error_set(err, ERR_UPSTREAM,
                         "the runner speaks protocol %lld, this service %d; run make images",
                         (long long)protocol, FRAME_PROTOCOL);
    return 0;
}

int link_open(struct engine *engine, const char *run_dir, struct link *ret, struct error *err)
{
    CLEANUP(link_close) struct link l = LINK_NONE;
    struct timeval limit = { .tv_sec = SEND_TIMEOUT_S };

    if (engine->ops->connect(engine, run_dir, &l.fd, err) < 0)
        return -1;
    frame_reader_init(&l.reader, FRAME_MAX_EVENT);
    if (setsockopt(l.fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) < 0)
        return error_errno(err, errno, "SO_SNDTIMEO");
    if (say_hello(&l, err) < 0 || hear_hello(&l, err) < 0)
        return -1;
    *ret = (struct link){ .fd = steal_fd(&l.fd), .reader = l.reader };
    return 0;
}

void link_close(struct link *l)
{
    if (l->fd >= 0) {
        (void)close(l->fd);
        frame_reader_done(&l->reader);
    }
    l->fd = -1;
}

int link_send(struct link *l, enum frame_type type, const json_t *doc, struct error *err)
{
    size_t len = 0;
    auto_free char *text = jsonx_dump(doc, &len);

    return frame_write(l->fd, type, text, len, err);
}

int link_read(struct link *l, int64_t deadline_ms, int wake_fd, struct frame *ret, enum link_got *ret_got,
              struct error *err)
{
    for (;;) {
        bool have = false, open = true;
        struct pollfd fds[] = { { .fd = l->fd, .events = POLLIN }, { .fd = wake_fd, .events = POLLIN } };

        if (frame_reader_next(&l->reader, ret, &have, err) < 0)
            return -1;
        if (have) {
            *ret_got = LINK_FRAME;
            return 0;
        }
        int n = poll(fds, ARRAY_LEN(fds), clock_left_ms(deadline_ms)); /* a negative fd is passed over */
        if (n < 0 && errno != EINTR)
            return error_errno(err, errno, "poll");
        if (n == 0 || fds[1].revents) {
            *ret_got = n == 0 ? LINK_TIMEOUT : LINK_WOKEN;
            return 0;
        }
        if (n > 0 && frame_reader_fill(&l->reader, l->fd, &open, err) < 0)
            return -1;
        if (!open) {
            *ret_got = LINK_CLOSED;
            return 0;
        }
    }
}
