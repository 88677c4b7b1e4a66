/* runner_rig.h - a whole runner in the test's own thread, with directories of its own and a clock that can be
 * set. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "common/clock.h"
#include "runner/runner.h"

#define RIG_WAIT_MS 20000

struct rig {
    char dir[64];
    char paths[5][96]; /* socket, workspace, home, tmp, kernel directory */
    struct runner_config config;
    struct runner runner;
};

static int64_t rig_skew_ms;
static inline int64_t rig_now_ms(void) { return clock_mono_ms() + rig_skew_ms; }

static inline int rig_remove_entry(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    (void)st;
    (void)kind;
    (void)ftw;
    return remove(path);
}

/* module NULL: no kernel. The kernel is this program, run again. */
static inline void rig_start(struct rig *r, const char *module)
{
    static const char *const names[] = { "runner.sock", "data", "home", "tmp", "k" };
    struct error err = { 0 };

    rig_skew_ms = 0;
    (void)strcpy(r->dir, "/tmp/carrel-unit-XXXXXX");
    assert_non_null(mkdtemp(r->dir));
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        (void)snprintf(r->paths[i], sizeof r->paths[i], "%s/%s", r->dir, names[i]);
        if (i > 0)
            assert_int_equal(mkdir(r->paths[i], 0700), 0);
    }
    r->config = (struct runner_config){
        .socket_path = r->paths[0],
        .workspace = r->paths[1],
        .home = r->paths[2],
        .tmp_dir = r->paths[3],
        .kernel_dir = r->paths[4],
        .cgroup_dir = r->paths[3],
        .kernel_program = "/proc/self/exe",
        .kernel_module = module,
        .kernel = module != NULL,
        .any_peer = true,
        .orphan_s = 3600,
        .threads = 1,
    };
    assert_int_equal(runner_init(&r->runner, &r->config, rig_now_ms, &err), 0);
}

static inline void rig_stop(struct rig *r)
{
    runner_done(&r->runner);
    assert_int_equal(nftw(r->dir, rig_remove_entry, 16, FTW_DEPTH | FTW_PHYS), 0);
}

/* ---- a client ---- */

struct client {
    struct rig *rig;
    int fd;
    struct frame_reader reader;
};

struct outcome { /* what came over one connection */
    struct buf out, err;
    unsigned counts[FRAME_END + 1];
    json_t *last[FRAME_END + 1]; /* the latest document of each type */
    bool closed;
};

static inline void outcome_init(struct outcome *o)
{
    *o = (struct outcome){ 0 };
    buf_init(&o->out, 256 << 20);
    buf_init(&o->err, 256 << 20);
}

static inline void outcome_done(struct outcome *o)
{
    for (size_t i = 0; i < ARRAY_LEN(o->last); i++)
        json_decref(o->last[i]);
    buf_done(&o->out);
    buf_done(&o->err);
}

static inline const char *outcome_text(const struct buf *b) { return b->data ? b->data : ""; }

static inline json_t *outcome_field(const struct outcome *o, enum frame_type type, const char *key)
{
    return json_object_get(o->last[type], key);
}
static inline const char *end_text(const struct outcome *o, const char *key)
{
    const char *s = json_string_value(outcome_field(o, FRAME_END, key));
    return s ? s : "(null)";
}
static inline int end_number(const struct outcome *o, const char *key)
{
    return (int)json_integer_value(outcome_field(o, FRAME_END, key));
}

static inline void client_send_raw(struct client *c, const void *data, size_t len)
{
    struct error err = { 0 };
    auto_buf struct buf all = { .max = len };
    size_t sent = 0;

    assert_int_equal(buf_add(&all, data, len, &err), 0);
    while (sent < all.len) { /* the other end is this same thread */
        ssize_t n = send(c->fd, all.data + sent, all.len - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n > 0)
            sent += (size_t)n;
        else if (errno != EAGAIN)
            return; /* closed on us; the test will see that */
        runner_turn(&c->rig->runner, 0);
    }
}

static inline void client_send(struct client *c, enum frame_type type, json_t *doc)
{
    struct error err = { 0 };
    auto_buf struct buf frame = { .max = 256 << 20 };
    size_t len = 0;
    auto_free char *text = jsonx_dump(doc, &len);

    json_decref(doc);
    assert_int_equal(frame_add(&frame, type, text, len, &err), 0);
    client_send_raw(c, frame.data, frame.len);
}

static inline void client_open_mute(struct client *c, struct rig *r)
{
    struct sockaddr_un sa = { .sun_family = AF_UNIX };

    (void)snprintf(sa.sun_path, sizeof sa.sun_path, "%s", r->config.socket_path);
    *c = (struct client){ .rig = r, .fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0) };
    assert_int_equal(connect(c->fd, (struct sockaddr *)&sa, sizeof sa), 0);
    frame_reader_init(&c->reader, FRAME_MAX_EVENT);
}

static inline void client_open(struct client *c, struct rig *r)
{
    client_open_mute(c, r);
    client_send(c, FRAME_HELLO, json_pack("{s:i, s:i, s:s}", "protocol", 1, "oldest", 1, "program", "test"));
}

static inline void client_close(struct client *c)
{
    (void)close(c->fd);
    frame_reader_done(&c->reader);
}

static inline void outcome_take(struct outcome *o, const struct frame *f)
{
    struct error err = { 0 };

    o->counts[f->type]++;
    if (f->type == FRAME_STDOUT) {
        assert_int_equal(buf_add(&o->out, f->payload, f->len, &err), 0);
    } else if (f->type == FRAME_STDERR) {
        assert_int_equal(buf_add(&o->err, f->payload, f->len, &err), 0);
    } else {
        json_decref(o->last[f->type]);
        o->last[f->type] = NULL;
        assert_int_equal(jsonx_parse(f->payload, f->len, &o->last[f->type], &err), 0);
    }
}

/* Reads what has come, without waiting. */
static inline void client_poll(struct client *c, struct outcome *o)
{
    struct error err = { 0 };
    struct pollfd p = { .fd = c->fd, .events = POLLIN };
    bool have = true, open = true;

    if (poll(&p, 1, 0) > 0) {
        if (frame_reader_fill(&c->reader, c->fd, &open, &err) < 0)
            open = false; /* reset: it was closed with something unread */
    }
    while (have) {
        struct frame f;
        assert_int_equal(frame_reader_next(&c->reader, &f, &have, &err), 0);
        if (have)
            outcome_take(o, &f);
    }
    o->closed = !open;
}

/* Turns the runner until a frame of that type has come, or the connection is closed. */
static inline void client_await(struct client *c, struct outcome *o, enum frame_type type)
{
    int64_t limit = clock_mono_ms() + RIG_WAIT_MS;
    unsigned before = o->counts[type];

    while (o->counts[type] == before && !o->closed) {
        assert_true(clock_mono_ms() < limit);
        runner_turn(&c->rig->runner, 2); /* at most so long: the frames are read between the turns */
        client_poll(c, o);
    }
}

static inline json_t *run_document(const char *id, const char *lang, const char *code, json_t *more)
{
    json_t *doc = json_pack("{s:s, s:s, s:o, s:i}", "id", id, "lang", lang, "code", jsonx_str(code),
                            "timeout_ms", 15000);

    if (more)
        (void)json_object_update(doc, more);
    json_decref(more);
    return doc;
}

/* Runs a program to its end on a connection of its own. Takes more: further fields of RUN. */
static inline void rig_run(struct rig *r, const char *lang, const char *code, json_t *more, struct outcome *o)
{
    static unsigned number;
    struct client c;
    char id[32];

    outcome_init(o);
    (void)snprintf(id, sizeof id, "run-%u", ++number);
    client_open(&c, r);
    client_send(&c, FRAME_RUN, run_document(id, lang, code, more));
    client_await(&c, o, FRAME_END);
    client_send(&c, FRAME_ACK, json_pack("{s:s}", "id", id));
    runner_turn(&r->runner, 0);
    client_close(&c);
    runner_turn(&r->runner, 0);
    assert_int_equal(o->counts[FRAME_END], 1);
}
