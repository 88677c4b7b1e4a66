/* loop.h - the one poll(2) loop: descriptors and timers with callbacks, a clock that tests can set. libc
 * only. */
#pragma once

#include <poll.h>

#include "common/base.h"

/* The object of the given type of which p is the named member. */
#define container_of(p, type, member) ((type *)(void *)((char *)(p)-offsetof(type, member)))

/* Embedded in its owner, which must unwatch it before it goes. Callbacks may watch and unwatch anything. */
struct watch {
    int fd; /* the owner's */
    short events;
    void (*ready)(struct watch *w, short revents);
    bool active;
};

struct timer {
    int64_t due_ms;
    void (*fire)(struct timer *t); /* once for each loop_arm() */
    bool active;
};

struct loop {
    int64_t (*now_ms)(void);
    struct watch **watches; /* NULL where one was taken out during a turn */
    size_t watch_count, watch_cap;
    struct timer **timers;
    size_t timer_count, timer_cap;
    struct pollfd *polls;
    size_t poll_cap;
};

void loop_init(struct loop *l, int64_t (*now_ms)(void));
void loop_done(struct loop *l);

void loop_watch(struct loop *l, struct watch *w);
void loop_unwatch(struct loop *l, struct watch *w);             /* of one that is not watched: nothing */
void loop_arm(struct loop *l, struct timer *t, int64_t due_ms); /* moves it when it is armed */
void loop_arm_in(struct loop *l, struct timer *t, int64_t ms);
void loop_disarm(struct loop *l, struct timer *t);

/* Waits for something to happen, at most max_wait_ms (-1: for ever), and runs the callbacks it calls for. */
void loop_turn(struct loop *l, int max_wait_ms);
