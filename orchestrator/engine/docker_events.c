#include <errno.h>
#include <inttypes.h>
#include <sys/eventfd.h>

#include "common/clock.h"
#include "common/fd.h"
#include "common/log.h"
#include "orchestrator/engine/docker.h"

#define MIN_BACKOFF_MS 100
#define MAX_BACKOFF_MS 5000
#define STEADY_MS 5000 /* a stream that lived this long was a good one: the next try comes at once */
#define OVERLAP_S 1

static void on_open(void *state)
{
    const struct docker_event_reader *reader = state;

    reader->fn(reader->state, &(struct engine_event){ .kind = ENGINE_EVENT_RECONNECTED });
}

static int on_data(void *state, const char *data, size_t len, struct error *err)
{
    return docker_event_reader_feed(state, data, len, err);
}

/* Follows one stream to its end, which is always an error: of the engine's, or ERR_TIMEOUT when told to stop.
 */
static void follow_once(struct docker *d, struct error *err)
{
    const struct docker_follower *f = &d->follower;
    CLEANUP(docker_event_reader_done) struct docker_event_reader reader;
    auto_reply struct http_reply reply = { 0 };
    struct docker_version version;
    auto_free char *path = NULL;
    auto_free char *filters = docker_filters(f->label, true);
    /* An engine sends the head before it subscribes us: what happens between is asked for again. */
    auto_free char *events = xasprintf("/events?since=%" PRId64 "&filters=%s",
                                       clock_real_ms() / 1000 - OVERLAP_S, filters);

    docker_event_reader_init(&reader, f->fn, f->state);
    /* Anew each time: the engine may have been replaced by another version. */
    if (docker_settle_api(d, &f->stop_fd, &version, err) < 0 || docker_path(d, events, &path, err) < 0)
        return;
    struct http_call call = {
        .method = "GET",
        .path = path,
        .on_open = on_open,
        .on_data = on_data,
        .state = &reader,
        .stop_fd = &f->stop_fd,
    };
    if (docker_exchange(d, &call, &reply, err) == 0)
        error_set(err, ERR_UPSTREAM, "the engine ended the stream");
}

static void *follower_main(void *arg)
{
    struct docker *d = arg;
    int backoff_ms = MIN_BACKOFF_MS;
    struct error err = { 0 };

    for (;;) {
        int64_t began_ms = clock_mono_ms();
        follow_once(d, &err);
        log_debug("events: %s", err.msg);
        if (clock_mono_ms() - began_ms >= STEADY_MS)
            backoff_ms = MIN_BACKOFF_MS;
        if (fd_wait_readable(d->follower.stop_fd, backoff_ms))
            return NULL;
        backoff_ms = MIN(2 * backoff_ms, MAX_BACKOFF_MS);
    }
}

int docker_follow(struct docker *d, const char *label, engine_event_fn *fn, void *state, struct error *err)
{
    struct docker_follower *f = &d->follower;

    if (f->stop_fd >= 0)
        return error_set(err, ERR_CONFLICT, "the engine's events are followed already");
    f->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (f->stop_fd < 0)
        return error_errno(err, errno, "eventfd");
    f->label = xstrdup(label);
    f->fn = fn;
    f->state = state;
    int failed = pthread_create(&f->thread, NULL, follower_main, d);
    if (failed) {
        closep(&f->stop_fd);
        f->stop_fd = -1;
        free(steal_ptr(&f->label));
        return error_errno(err, failed, "thread for the engine's events");
    }
    return 0;
}

void docker_unfollow(struct docker *d)
{
    struct docker_follower *f = &d->follower;

    if (f->stop_fd < 0)
        return;
    (void)eventfd_write(f->stop_fd, 1);
    (void)pthread_join(f->thread, NULL);
    closep(&f->stop_fd);
    f->stop_fd = -1;
    free(steal_ptr(&f->label));
}
