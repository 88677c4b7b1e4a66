#include "common/frame.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "common/fd.h"

static const char *const type_names[] = {
    [FRAME_HELLO] = "HELLO",     [FRAME_RUN] = "RUN",         [FRAME_ATTACH] = "ATTACH",
    [FRAME_CANCEL] = "CANCEL",   [FRAME_ACK] = "ACK",         [FRAME_LIST] = "LIST",
    [FRAME_LISTING] = "LISTING", [FRAME_REFUSED] = "REFUSED", [FRAME_STARTED] = "STARTED",
    [FRAME_STDOUT] = "STDOUT",   [FRAME_STDERR] = "STDERR",   [FRAME_RESULT] = "RESULT",
    [FRAME_DISPLAY] = "DISPLAY", [FRAME_ERROR] = "ERROR",     [FRAME_END] = "END",
};

bool frame_type_known(uint8_t type) { return type < ARRAY_LEN(type_names) && type_names[type]; }

const char *frame_type_name(enum frame_type type)
{
    return frame_type_known((uint8_t)type) ? type_names[type] : "unknown";
}

static int encode_header(unsigned char out[FRAME_HEADER], enum frame_type type, size_t len, struct error *err)
{
    if (len > UINT32_MAX)
        return error_set(err, ERR_LIMIT, "a frame of %zu bytes", len);
    uint32_t be = htonl((uint32_t)len);
    memcpy(out, &be, sizeof be);
    out[4] = (unsigned char)type;
    return 0;
}

int frame_add(struct buf *out, enum frame_type type, const void *payload, size_t len, struct error *err)
{
    unsigned char header[FRAME_HEADER];
    char *room = NULL;

    if (encode_header(header, type, len, err) < 0 || buf_reserve(out, FRAME_HEADER + len, &room, err) < 0)
        return -1; /* both parts or none: half a frame would break the stream */
    if (buf_add(out, header, sizeof header, err) < 0)
        return -1;
    return buf_add(out, payload, len, err);
}

int frame_write(int fd, enum frame_type type, const void *payload, size_t len, struct error *err)
{
    unsigned char header[FRAME_HEADER];
    union {
        const void *in;
        void *out;
    } body = { .in = payload }; /* iovec has no const variant */

    if (encode_header(header, type, len, err) < 0)
        return -1;
    struct iovec iov[2] = { { header, sizeof header }, { body.out, len } };
    struct msghdr msg = { .msg_iov = iov, .msg_iovlen = 2 };
    ssize_t n;
    do
        n = sendmsg(fd, &msg, MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return error_errno(err, errno, "send a %s frame", frame_type_name(type));
    size_t sent = (size_t)n;
    if (sent < sizeof header) {
        if (fd_write_all(fd, header + sent, sizeof header - sent, err) < 0)
            return -1;
        sent = sizeof header;
    }
    sent -= sizeof header;
    if (sent == len)
        return 0; /* payload may be NULL */
    return fd_write_all(fd, (const char *)payload + sent, len - sent, err);
}

void frame_reader_init(struct frame_reader *r, uint32_t max_payload)
{
    *r = (struct frame_reader){ .max_payload = max_payload };
    buf_init(&r->buf, (size_t)max_payload + FRAME_HEADER + (size_t)256 * 1024);
}

void frame_reader_done(struct frame_reader *r) { buf_done(&r->buf); }

/* Drops the frame given last; done late, so that its payload stays readable in place. */
static void drop_used(struct frame_reader *r)
{
    if (r->used > 0)
        buf_consume(&r->buf, r->used);
    r->used = 0;
}

int frame_reader_feed(struct frame_reader *r, const void *data, size_t len, struct error *err)
{
    drop_used(r);
    return buf_add(&r->buf, data, len, err);
}

int frame_reader_fill(struct frame_reader *r, int fd, bool *ret_open, struct error *err)
{
    char *to = NULL;
    ssize_t n;

    drop_used(r);
    size_t room = MIN((size_t)64 * 1024, r->buf.max - r->buf.len);
    if (room == 0)
        return error_set(err, ERR_LIMIT, "frames are not being taken");
    if (buf_reserve(&r->buf, room, &to, err) < 0)
        return -1;
    do
        n = read(fd, to, room);
    while (n < 0 && errno == EINTR);
    if (n < 0 && errno != EAGAIN)
        return error_errno(err, errno, "read frames");
    r->buf.len += n > 0 ? (size_t)n : 0;
    *ret_open = n != 0;
    return 0;
}

int frame_reader_next(struct frame_reader *r, struct frame *ret, bool *ret_have, struct error *err)
{
    uint32_t be;

    if (r->broken)
        return error_set(err, ERR_UPSTREAM, "the frame stream is broken");
    *ret_have = false;
    size_t at = r->used; /* frames already given stay in place until the next fill */
    if (r->buf.len - at < FRAME_HEADER)
        return 0;
    memcpy(&be, r->buf.data + at, sizeof be);
    uint32_t len = ntohl(be);
    uint8_t type = (uint8_t)r->buf.data[at + 4];
    if (!frame_type_known(type) || len > r->max_payload) {
        r->broken = true;
        return error_set(err, ERR_UPSTREAM, "bad frame: type %u, %u bytes", type, len);
    }
    if (r->buf.len - at < FRAME_HEADER + (size_t)len)
        return 0;
    *ret = (struct frame){ .type = (enum frame_type)type,
                           .payload = r->buf.data + at + FRAME_HEADER,
                           .len = len };
    r->used = at + FRAME_HEADER + len;
    *ret_have = true;
    return 0;
}
