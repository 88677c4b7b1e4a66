#include "runner/connection.h"

#include <errno.h>
#include <sys/socket.h>

#include "common/log.h"
#include "runner/process.h"

#define ANSWERS_MAX ((size_t)4 * 1024 * 1024)

/* ---- answers ---- */

/* Takes doc. A client that asks on and on without reading is cut off. */
static void answer(struct connection *c, enum frame_type type, json_t *doc)
{
    struct error err = { 0 };
    size_t len = 0;
    auto_free char *text = jsonx_dump(doc, &len);

    json_decref(doc);
    if (frame_add(&c->answers, type, text, len, &err) < 0)
        c->closing = true;
}

static void refuse(struct connection *c, const char *message)
{
    answer(c, FRAME_REFUSED, json_pack("{s:o}", "message", jsonx_str(message)));
}

static void say_hello(struct connection *c)
{
    answer(c, FRAME_HELLO,
           json_pack("{s:i, s:i, s:s, s:s}", "protocol", FRAME_PROTOCOL, "oldest", FRAME_PROTOCOL_OLDEST,
                     "program", "carrel-runner", "kernel", python_word(c->server->python)));
}

static void list(struct connection *c)
{
    static const char *const states[] = {
        [EXECUTION_QUEUED] = "queued",
        [EXECUTION_RUNNING] = "running",
        [EXECUTION_ENDED] = "ended",
    };
    json_t *all = json_array();

    for (struct execution *x = c->server->executions->newest; x; x = x->next)
        (void)json_array_append_new(all, json_pack("{s:o, s:s, s:s, s:I}", "id", jsonx_str(x->id), "lang",
                                                   x->request.language->name, "state", states[x->state],
                                                   "events", (json_int_t)x->log.count));
    answer(c, FRAME_LISTING,
           json_pack("{s:s, s:o}", "kernel", python_word(c->server->python), "executions", all));
}

/* ---- requests ---- */

static void follow(struct connection *c, struct execution *x, size_t pos)
{
    execution_follow(x);
    c->following = x;
    c->pos = pos;
}

static void unfollow(struct connection *c)
{
    if (c->following)
        execution_unfollow(c->following);
    c->following = NULL;
}

static void take_run(struct connection *c, const struct frame *f)
{
    CLEANUP(run_request_done) struct run_request q = { 0 };
    struct execution *x = NULL;
    struct error err = { 0 };

    if (c->following) {
        refuse(c, "this connection follows an execution already");
        return;
    }
    if (run_request_parse(f->payload, f->len, &q, &err) < 0 ||
        execution_new(c->server->executions, &q, &x, &err) < 0) {
        refuse(c, err.msg);
        return;
    }
    follow(c, x, 0);
    if (x->request.language->kernel)
        python_run(c->server->python, x);
    else
        process_run(x);
}

struct reference { /* payload of ATTACH, CANCEL, ACK */
    const char *id;
    int64_t offset;
};

static const struct json_field reference_fields[] = {
    FIELD_STRING(struct reference, id, "id", true, 1, 128),
    FIELD_INT(struct reference, offset, "offset", false, 0, INT64_MAX),
};

static struct execution *find_referred(struct connection *c, json_t *doc, struct reference *ret)
{
    struct error err = { 0 };
    struct execution *x = NULL;

    if (jsonx_fill(doc, reference_fields, ARRAY_LEN(reference_fields), ret, &err) < 0)
        refuse(c, err.msg);
    else if ((x = execution_find(c->server->executions, ret->id)) == NULL)
        refuse(c, "there is no such execution");
    return x;
}

static void attach(struct connection *c, struct execution *x, int64_t offset)
{
    size_t pos = 0;

    if (c->following)
        refuse(c, "this connection follows an execution already");
    else if (!eventlog_seek(&x->log, (uint64_t)offset, &pos))
        refuse(c, "offset: beyond the events there are");
    else
        follow(c, x, pos);
}

static void acknowledge(struct connection *c, struct execution *x)
{
    if (x->state != EXECUTION_ENDED) {
        refuse(c, "that execution has not ended");
        return;
    }
    if (c->following == x)
        unfollow(c);
    execution_forget(x);
}

static void take_reference(struct connection *c, const struct frame *f)
{
    json_auto_t *doc = NULL;
    struct reference r = { 0 };
    struct error err = { 0 };

    if (jsonx_parse(f->payload, f->len, &doc, &err) < 0) {
        refuse(c, err.msg);
        return;
    }
    struct execution *x = find_referred(c, doc, &r);
    if (!x)
        return;
    if (f->type == FRAME_ATTACH)
        attach(c, x, r.offset);
    else if (f->type == FRAME_CANCEL)
        execution_cancel(x);
    else
        acknowledge(c, x);
}

static void take_hello(struct connection *c, const struct frame *f)
{
    json_auto_t *doc = NULL;
    json_int_t protocol = 0, oldest = 0;
    struct error err = { 0 };

    if (jsonx_parse(f->payload, f->len, &doc, &err) < 0 ||
        jsonx_unpack(doc, &err, "{s:I, s:I}", "protocol", &protocol, "oldest", &oldest) < 0 ||
        protocol < FRAME_PROTOCOL_OLDEST || oldest > FRAME_PROTOCOL)
        c->closing = true; /* our own HELLO has said what is spoken here */
    c->greeted = true;
}

static void take(struct connection *c, const struct frame *f)
{
    if (f->type != FRAME_HELLO && !c->greeted) {
        c->closing = true;
        return;
    }
    switch (f->type) {
    case FRAME_HELLO:
        take_hello(c, f);
        break;
    case FRAME_RUN:
        take_run(c, f);
        break;
    case FRAME_ATTACH:
    case FRAME_CANCEL:
    case FRAME_ACK:
        take_reference(c, f);
        break;
    case FRAME_LIST:
        list(c);
        break;
    case FRAME_LISTING:
    case FRAME_REFUSED:
    case FRAME_STARTED:
    case FRAME_STDOUT:
    case FRAME_STDERR:
    case FRAME_RESULT:
    case FRAME_DISPLAY:
    case FRAME_ERROR:
    case FRAME_END:
        c->closing = true; /* only a runner says these */
        break;
    }
}

static void on_ready(struct watch *w, short revents)
{
    struct connection *c = container_of(w, struct connection, watch);
    struct error err = { 0 };
    bool open = true, have = true;

    if (!(revents & (POLLIN | POLLHUP | POLLERR)))
        return; /* POLLOUT: connection_send() at the end of the turn */
    if (frame_reader_fill(&c->reader, w->fd, &open, &err) < 0)
        c->closing = true;
    while (!c->closing && have) {
        struct frame f;
        if (frame_reader_next(&c->reader, &f, &have, &err) < 0) {
            log_warn("a connection is closed: %s", err.msg);
            c->closing = true;
        } else if (have) {
            take(c, &f);
        }
    }
    if (!open)
        c->closing = true;
}

/* ---- the connection ---- */

void connection_new(struct server *s, int fd)
{
    struct connection *c = xcalloc(1, sizeof *c);

    c->server = s;
    c->watch = (struct watch){ .fd = fd, .events = POLLIN, .ready = on_ready };
    frame_reader_init(&c->reader, FRAME_MAX_REQUEST);
    buf_init(&c->answers, ANSWERS_MAX);
    c->next = s->first;
    s->first = c;
    s->count++;
    loop_watch(&s->context->loop, &c->watch);
    say_hello(c);
}

void connection_free(struct connection *c)
{
    struct server *s = c->server;

    for (struct connection **p = &s->first; *p; p = &(*p)->next)
        if (*p == c) {
            *p = c->next;
            break;
        }
    s->count--;
    unfollow(c);
    loop_unwatch(&s->context->loop, &c->watch);
    (void)close(c->watch.fd);
    frame_reader_done(&c->reader);
    buf_done(&c->answers);
    free(c);
}

/* Sends from *pos on. False: the other side is gone. */
static bool send_some(const struct connection *c, const struct buf *from, size_t *pos)
{
    while (*pos < from->len) {
        ssize_t n = send(c->watch.fd, from->data + *pos, from->len - *pos, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN;
        *pos += (size_t)n;
    }
    return true;
}

bool connection_send(struct connection *c)
{
    bool well = send_some(c, &c->answers, &c->answers_sent);
    bool waiting = c->answers_sent < c->answers.len;

    if (!waiting) {
        c->answers.len = 0;
        c->answers_sent = 0;
    }
    struct execution *x = c->following;
    if (x && well && !waiting) {
        well = send_some(c, &x->log.bytes, &c->pos);
        waiting = c->pos < x->log.bytes.len;
        if (well && !waiting && x->state == EXECUTION_ENDED)
            unfollow(c); /* END has gone out */
    }
    c->watch.events = waiting ? POLLIN | POLLOUT : POLLIN;
    return well && !c->closing;
}
