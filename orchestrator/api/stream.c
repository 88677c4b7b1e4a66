/* POST /exec/stream: the execution's events as server-sent events, as they come. */
#include <string.h>

#include "common/clock.h"
#include "orchestrator/api/exec.h"
#include "orchestrator/http/content.h"

#define MAX_PENDING                                                                                          \
    ((size_t)256 * 1024 * 1024) /* an event and its JSON; the execution bounds what it holds */

struct stream {
    struct exec_call call;
    struct execution_reader reader;
    int64_t keepalive_ms;
    int client_fd;
    bool ended;
    struct buf pending; /* made, not yet sent */
    size_t sent;
    struct partial { /* the begun UTF-8 character at the end of what came on a stream */
        char bytes[4];
        size_t len;
    } partial[2];
};

static void stream_free(void *state)
{
    struct stream *s = state;

    execution_reader_done(&s->reader);
    exec_call_done(&s->call);
    buf_done(&s->pending);
    free(s);
}

static int emit(struct stream *s, json_t *take)
{
    struct error err = { 0 };
    json_auto_t *doc = take;

    return sse_add_event(&s->pending, doc, &err);
}

/* How many bytes at the end of data are the beginning of a UTF-8 character whose rest has not come yet. */
static size_t incomplete_tail(const char *data, size_t len)
{
    for (size_t back = 1; back <= 3 && back <= len; back++) {
        unsigned char c = (unsigned char)data[len - back];
        if ((c & 0xc0) == 0x80)
            continue;
        size_t want = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc2 ? 2 : 1;
        return want > back ? back : 0;
    }
    return 0;
}

static int emit_text(struct stream *s, const char *name, struct partial *p, const char *data, size_t len)
{
    auto_buf struct buf text = { .max = MAX_PENDING };
    struct error err = { 0 };

    if (buf_add(&text, p->bytes, p->len, &err) < 0 || buf_add(&text, data, len, &err) < 0)
        return -1;
    p->len = data ? incomplete_tail(text.data, text.len) : 0;
    memcpy(p->bytes, text.data + text.len - p->len, p->len);
    if (text.len == p->len)
        return 0;
    return emit(s, json_pack("{s:s, s:s, s:o}", "type", "stream", "name", name, "text",
                             jsonx_text(text.data, text.len - p->len)));
}

/* The runner's document with our type in front; from a sandbox, so only what we know is passed on. */
static int emit_document(struct stream *s, const struct execution_event *e)
{
    json_auto_t *doc = NULL;
    struct error err = { 0 };
    json_t *data = NULL, *traceback = NULL;
    const char *ename = NULL, *evalue = NULL;

    if (jsonx_parse_repaired(e->data, e->len, &doc, &err) < 0)
        return 0;
    if (e->type == FRAME_ERROR) {
        if (jsonx_unpack(doc, &err, "{s:s, s:s, s:o}", "ename", &ename, "evalue", &evalue, "traceback",
                         &traceback) < 0)
            return 0;
        return emit(s, json_pack("{s:s, s:s, s:s, s:O}", "type", "error", "ename", ename, "evalue", evalue,
                                 "traceback", traceback));
    }
    if (jsonx_unpack(doc, &err, "{s:o}", "data", &data) < 0)
        return 0;
    return emit(
        s, json_pack("{s:s, s:O}", "type", e->type == FRAME_RESULT ? "result" : "display", "data", data));
}

static int emit_event(struct stream *s, const struct execution_event *e)
{
    switch (e->type) {
    case FRAME_STDOUT:
        return emit_text(s, "stdout", &s->partial[0], e->data, e->len);
    case FRAME_STDERR:
        return emit_text(s, "stderr", &s->partial[1], e->data, e->len);
    case FRAME_RESULT:
    case FRAME_DISPLAY:
    case FRAME_ERROR:
        return emit_document(s, e);
    case FRAME_HELLO:
    case FRAME_RUN:
    case FRAME_ATTACH:
    case FRAME_CANCEL:
    case FRAME_ACK:
    case FRAME_LIST:
    case FRAME_LISTING:
    case FRAME_REFUSED:
    case FRAME_STARTED:
    case FRAME_END:
        break;
    }
    return 0;
}

static int emit_done(struct stream *s)
{
    json_t *doc = json_pack("{s:s}", "type", "done");
    json_auto_t *answer = exec_answer(&s->call);

    if (emit_text(s, "stdout", &s->partial[0], NULL, 0) < 0 ||
        emit_text(s, "stderr", &s->partial[1], NULL, 0) < 0) {
        json_decref(doc);
        return -1;
    }
    (void)json_object_update(doc, answer);
    s->ended = true;
    return emit(s, doc);
}

/* Fills pending with what comes next, or with a comment when nothing came for long. */
static int more(struct stream *s)
{
    struct execution_event e;
    struct error err = { 0 };

    switch (execution_next(&s->reader, clock_mono_ms() + s->keepalive_ms, s->client_fd, &e)) {
    case EXECUTION_EVENT:
        return emit_event(s, &e);
    case EXECUTION_ENDED:
        return emit_done(s);
    case EXECUTION_SILENT:
        return buf_addf(&s->pending, &err, ": keep-alive\n\n");
    case EXECUTION_HUNG_UP:
        break;
    }
    execution_cancel(s->call.execution);
    return -1;
}

static ssize_t stream_next(void *state, char *out, size_t max)
{
    struct stream *s = state;

    while (s->pending.len == s->sent) {
        if (s->ended)
            return 0;
        s->pending.len = s->sent = 0;
        if (more(s) < 0)
            return -1;
    }
    size_t n = MIN(max, s->pending.len - s->sent);
    memcpy(out, s->pending.data + s->sent, n);
    s->sent += n;
    return (ssize_t)n;
}

int api_exec_stream(struct app *app, struct http_request *req, struct http_response *res, struct error *err)
{
    struct stream *s = xcalloc(1, sizeof *s);

    s->keepalive_ms = app->config->keepalive_s * 1000;
    s->client_fd = req->client_fd;
    buf_init(&s->pending, MAX_PENDING);
    if (exec_begin(app, req, &s->call, err) < 0 ||
        execution_reader_init(&s->reader, s->call.execution, false, err) < 0 ||
        emit(s, json_pack("{s:s, s:s}", "type", "session", "session_id",
                          execution_session(s->call.execution)->id)) < 0) {
        if (s->call.execution)
            execution_cancel(s->call.execution);
        stream_free(s);
        return -1;
    }
    res->status = 200;
    res->content_type = xstrdup("text/event-stream");
    http_response_header(res, "Cache-Control", "no-cache");
    http_response_header(res, "X-Accel-Buffering", "no");
    res->stream = (struct http_stream){ stream_next, stream_free, s };
    return 0;
}
