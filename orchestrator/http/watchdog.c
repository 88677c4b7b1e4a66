#include "orchestrator/http/watchdog.h"

#include <pthread.h>
#include <sys/socket.h>
#include <time.h>

#include "common/clock.h"

#define TICK_MS 100

struct watchdog_entry {
    int fd;
    int64_t due_ms;
    struct watchdog_entry *prev, *next;
};

struct watchdog {
    pthread_t thread;
    pthread_mutex_t lock; /* guards the list, its entries and stopping */
    pthread_cond_t changed;
    struct watchdog_entry *first;
    bool stopping;
};

static void cut_late(struct watchdog *w)
{
    int64_t now = clock_mono_ms();

    for (struct watchdog_entry *e = w->first; e; e = e->next)
        if (e->due_ms != 0 && now >= e->due_ms) {
            (void)shutdown(e->fd, SHUT_RDWR); /* its owner reads the end of the connection and cleans up */
            e->due_ms = 0;
        }
}

static void wait_tick(struct watchdog *w)
{
    struct timespec until;

    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += TICK_MS * 1000000L;
    if (until.tv_nsec >= 1000000000L) {
        until.tv_nsec -= 1000000000L;
        until.tv_sec++;
    }
    (void)pthread_cond_timedwait(&w->changed, &w->lock, &until);
}

static void *run(void *arg)
{
    struct watchdog *w = arg;

    (void)pthread_mutex_lock(&w->lock);
    while (!w->stopping) {
        cut_late(w);
        if (w->first)
            wait_tick(w);
        else
            (void)pthread_cond_wait(&w->changed, &w->lock);
    }
    (void)pthread_mutex_unlock(&w->lock);
    return NULL;
}

static void watchdog_free(struct watchdog *w)
{
    (void)pthread_cond_destroy(&w->changed);
    (void)pthread_mutex_destroy(&w->lock);
    free(w);
}

int watchdog_start(struct watchdog **ret, struct error *err)
{
    struct watchdog *w = xcalloc(1, sizeof *w);
    pthread_condattr_t attr;

    (void)pthread_mutex_init(&w->lock, NULL);
    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&w->changed, &attr);
    (void)pthread_condattr_destroy(&attr);
    int failed = pthread_create(&w->thread, NULL, run, w);
    if (failed) {
        watchdog_free(w);
        return error_errno(err, failed, "start a thread");
    }
    *ret = w;
    return 0;
}

void watchdog_stop(struct watchdog *w)
{
    if (!w)
        return;
    (void)pthread_mutex_lock(&w->lock);
    w->stopping = true;
    (void)pthread_cond_signal(&w->changed);
    (void)pthread_mutex_unlock(&w->lock);
    (void)pthread_join(w->thread, NULL);
    watchdog_free(w);
}

struct watchdog_entry *watchdog_add(struct watchdog *w, int fd, int64_t due_ms)
{
    struct watchdog_entry *e = xcalloc(1, sizeof *e);

    e->fd = fd;
    e->due_ms = due_ms;
    (void)pthread_mutex_lock(&w->lock);
    if (!w->first)
        (void)pthread_cond_signal(&w->changed);
    e->next = w->first;
    if (e->next)
        e->next->prev = e;
    w->first = e;
    (void)pthread_mutex_unlock(&w->lock);
    return e;
}

void watchdog_set(struct watchdog *w, struct watchdog_entry *e, int64_t due_ms)
{
    (void)pthread_mutex_lock(&w->lock);
    e->due_ms = due_ms;
    (void)pthread_mutex_unlock(&w->lock);
}

void watchdog_remove(struct watchdog *w, struct watchdog_entry *e)
{
    (void)pthread_mutex_lock(&w->lock);
    if (e->prev)
        e->prev->next = e->next;
    else
        w->first = e->next;
    if (e->next)
        e->next->prev = e->prev;
    (void)pthread_mutex_unlock(&w->lock);
    free(e);
}
