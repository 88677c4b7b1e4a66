#include "tests/fakes/fake_runner.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "common/fd.h"
#include "common/frame.h"
#include "tests/fakes/fake_engine.h"

#define MAX_CONNECTIONS 512

struct connection {
    struct fake_runner *runner;
    char run_dir[200];
    int fd;
    struct frame_reader reader;
};

struct fake_runner {
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t changed;
    bool mute;
    unsigned runs;
    size_t count;
    pthread_t threads[MAX_CONNECTIONS];
};

static void say(struct connection *c, enum frame_type type, const char *text)
{
    struct error ignored = { 0 };

    IGNORE(frame_write(c->fd, type, text, strlen(text), &ignored)); /* the other side may be gone */
}

/* Blocks for the next frame. False: the other side closed. */
static bool hear(struct connection *c, struct frame *ret)
{
    struct error ignored = { 0 };
    bool have = false, open = true;

    while (frame_reader_next(&c->reader, ret, &have, &ignored) == 0 && !have) {
        if (frame_reader_fill(&c->reader, c->fd, &open, &ignored) < 0 || !open)
            return false;
    }
    return have;
}

static void touch(struct connection *c, const char *name)
{
    auto_free char *path = xasprintf("%.*s/data/%s", (int)(strlen(c->run_dir) - strlen("/run")), c->run_dir,
                                     name);
    auto_close int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

    if (fd >= 0)
        IGNORE(write(fd, name, strlen(name)));
}

static bool wait_cancel(struct connection *c)
{
    struct frame f;

    while (hear(c, &f))
        if (f.type == FRAME_CANCEL)
            return true;
    return false;
}

static void flood(struct connection *c)
{
    struct error err = { 0 };
    char *block = xcalloc(1, 1024 * 1024);

    while (frame_write(c->fd, FRAME_STDOUT, block, 1024 * 1024, &err) == 0)
        continue;
    free(block);
}

/* Does one word. Gives the END's reason, or NULL when there is to be no END. */
static const char *do_word(struct connection *c, const char *word, const char *reason)
{
    if (str_starts(word, "out:"))
        say(c, FRAME_STDOUT, word + 4);
    else if (str_starts(word, "err:"))
        say(c, FRAME_STDERR, word + 4);
    else if (str_starts(word, "touch:"))
        touch(c, word + 6);
    else if (strcmp(word, "wait") == 0)
        return wait_cancel(c) ? "cancelled" : NULL;
    else if (strcmp(word, "flood") == 0)
        flood(c);
    else if (strcmp(word, "close") == 0)
        return NULL;
    else if (strcmp(word, "badend") == 0) {
        say(c, FRAME_END, "[[[");
        return NULL;
    } else if (strcmp(word, "lost") == 0)
        return "kernel_died";
    return reason;
}

static void run(struct connection *c, const struct frame *f)
{
    struct error err = { 0 };
    json_auto_t *doc = NULL;
    const char *code = NULL, *reason = "ok";
    char *save = NULL;

    if (jsonx_parse(f->payload, f->len, &doc, &err) < 0 ||
        jsonx_unpack(doc, &err, "{s:s}", "code", &code) < 0)
        return;
    (void)pthread_mutex_lock(&c->runner->lock);
    c->runner->runs++;
    (void)pthread_cond_broadcast(&c->runner->changed);
    (void)pthread_mutex_unlock(&c->runner->lock);
    say(c, FRAME_STARTED, "{}");
    auto_free char *words = xstrdup(code);
    for (char *w = strtok_r(words, " ", &save); w && reason; w = strtok_r(NULL, " ", &save))
        reason = do_word(c, w, reason);
    if (!reason) {
        (void)shutdown(c->fd, SHUT_RDWR);
        return;
    }
    auto_free char *end = xasprintf(
        "{\"reason\":\"%s\",\"code\":%d,\"wall_ms\":1,\"kernel_lost\":%s,\"message\":%s}", reason,
        strcmp(reason, "ok") == 0 ? 0 : 1, strcmp(reason, "kernel_died") == 0 ? "true" : "false",
        strcmp(reason, "kernel_died") == 0 ? "\"the kernel died\"" : "null");
    say(c, FRAME_END, end);
}

static void *serve(void *arg)
{
    struct connection *c = arg;
    struct frame f;

    frame_reader_init(&c->reader, FRAME_MAX_REQUEST);
    (void)pthread_mutex_lock(&c->runner->lock);
    bool mute = c->runner->mute;
    (void)pthread_mutex_unlock(&c->runner->lock);
    if (!mute)
        say(c, FRAME_HELLO, "{\"protocol\":1,\"oldest\":1,\"program\":\"fake\",\"kernel\":\"idle\"}");
    while (hear(c, &f))
        if (f.type == FRAME_RUN && !mute)
            run(c, &f);
    frame_reader_done(&c->reader);
    (void)close(c->fd);
    free(c);
    return NULL;
}

static void on_connect(void *state, const char *container_id, const char *run_dir, int fd)
{
    struct fake_runner *r = state;
    struct connection *c = xcalloc(1, sizeof *c);

    (void)container_id;
    c->runner = r;
    c->fd = fd;
    (void)snprintf(c->run_dir, sizeof c->run_dir, "%s", run_dir);
    (void)pthread_mutex_lock(&r->lock);
    if (r->count == MAX_CONNECTIONS || pthread_create(&r->threads[r->count], NULL, serve, c) != 0)
        abort();
    r->count++;
    (void)pthread_mutex_unlock(&r->lock);
}

struct fake_runner *fake_runner_new(struct engine *fake_engine)
{
    struct fake_runner *r = xcalloc(1, sizeof *r);

    (void)pthread_mutex_init(&r->lock, NULL);
    (void)pthread_cond_init(&r->changed, NULL);
    fake_engine_set_runner(fake_engine, on_connect, r);
    return r;
}

void fake_runner_free(struct fake_runner *r)
{
    for (size_t i = 0; i < r->count; i++)
        (void)pthread_join(r->threads[i], NULL);
    (void)pthread_cond_destroy(&r->changed);
    (void)pthread_mutex_destroy(&r->lock);
    free(r);
}

void fake_runner_set_mute(struct fake_runner *r, bool mute)
{
    (void)pthread_mutex_lock(&r->lock);
    r->mute = mute;
    (void)pthread_mutex_unlock(&r->lock);
}

unsigned fake_runner_runs(struct fake_runner *r)
{
    (void)pthread_mutex_lock(&r->lock);
    unsigned n = r->runs;
    (void)pthread_mutex_unlock(&r->lock);
    return n;
}

void fake_runner_wait_runs(struct fake_runner *r, unsigned n)
{
    (void)pthread_mutex_lock(&r->lock);
    while (r->runs < n)
        (void)pthread_cond_wait(&r->changed, &r->lock);
    (void)pthread_mutex_unlock(&r->lock);
}
