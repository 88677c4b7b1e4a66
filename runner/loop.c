#include "runner/loop.h"

#include <string.h>

void loop_init(struct loop *l, int64_t (*now_ms)(void)) { *l = (struct loop){ .now_ms = now_ms }; }

void loop_done(struct loop *l)
{
    free(l->watches);
    free(l->timers);
    free(l->polls);
    *l = (struct loop){ 0 };
}

void loop_watch(struct loop *l, struct watch *w)
{
    if (w->active)
        return;
    if (l->watch_count == l->watch_cap) {
        l->watch_cap = l->watch_cap ? 2 * l->watch_cap : 32;
        l->watches = xrealloc_array(l->watches, l->watch_cap, sizeof(struct watch *));
    }
    l->watches[l->watch_count++] = w;
    w->active = true;
}

void loop_unwatch(struct loop *l, struct watch *w)
{
    if (!w->active)
        return;
    w->active = false;
    for (size_t i = 0; i < l->watch_count; i++)
        if (l->watches[i] == w)
            l->watches[i] = NULL;
}

void loop_arm(struct loop *l, struct timer *t, int64_t due_ms)
{
    t->due_ms = due_ms;
    if (t->active)
        return;
    if (l->timer_count == l->timer_cap) {
        l->timer_cap = l->timer_cap ? 2 * l->timer_cap : 32;
        l->timers = xrealloc_array(l->timers, l->timer_cap, sizeof(struct timer *));
    }
    l->timers[l->timer_count++] = t;
    t->active = true;
}

void loop_arm_in(struct loop *l, struct timer *t, int64_t ms) { loop_arm(l, t, l->now_ms() + ms); }

void loop_disarm(struct loop *l, struct timer *t)
{
    if (!t->active)
        return;
    t->active = false;
    for (size_t i = 0; i < l->timer_count; i++)
        if (l->timers[i] == t)
            l->timers[i] = NULL;
}

/* Between turns, when no callback is running: what was taken out leaves the lists. */
static void compact(struct loop *l)
{
    size_t n = 0;

    for (size_t i = 0; i < l->watch_count; i++)
        if (l->watches[i])
            l->watches[n++] = l->watches[i];
    l->watch_count = n;
    n = 0;
    for (size_t i = 0; i < l->timer_count; i++)
        if (l->timers[i])
            l->timers[n++] = l->timers[i];
    l->timer_count = n;
}

static int wait_ms(const struct loop *l, int max_wait_ms)
{
    int64_t now = l->now_ms(), wait = max_wait_ms < 0 ? INT32_MAX : max_wait_ms;

    for (size_t i = 0; i < l->timer_count; i++)
        wait = MIN(wait, MAX(0, l->timers[i]->due_ms - now));
    return max_wait_ms < 0 && wait == INT32_MAX ? -1 : (int)wait;
}

static void run_timers(struct loop *l)
{
    int64_t now = l->now_ms();
    size_t n = l->timer_count; /* those armed by a callback wait for the next turn */

    for (size_t i = 0; i < n; i++) {
        struct timer *t = l->timers[i];
        if (!t || t->due_ms > now)
            continue;
        l->timers[i] = NULL;
        t->active = false;
        t->fire(t);
    }
}

void loop_turn(struct loop *l, int max_wait_ms)
{
    compact(l);
    size_t n = l->watch_count;
    if (n > l->poll_cap) {
        l->poll_cap = l->watch_cap;
        l->polls = xrealloc_array(l->polls, l->poll_cap, sizeof(struct pollfd));
    }
    for (size_t i = 0; i < n; i++)
        l->polls[i] = (struct pollfd){ .fd = l->watches[i]->fd, .events = l->watches[i]->events };
    int ready = poll(l->polls, n, wait_ms(l, max_wait_ms));
    for (size_t i = 0; i < n && ready > 0; i++) {
        /* A callback may have taken this one out; others are only added behind the first n. */
        struct watch *w = l->watches[i];
        if (w && l->polls[i].revents)
            w->ready(w, l->polls[i].revents);
    }
    run_timers(l);
}
