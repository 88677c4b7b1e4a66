/* What happens to sessions that nobody uses: idle ones lose their sandbox, the others' runners hear that we
 * live. */
#include <string.h>

#include "common/clock.h"
#include "orchestrator/session/link.h"
#include "orchestrator/session/table_internal.h"

#define SAVE_AFTER_MS ((int64_t)60 * 1000) /* a last use this much newer than its row is written */

struct due { /* pinned sessions to act on, collected under the lock */
    struct session **items;
    size_t count;
};

static void due_add(struct due *d, struct session *s)
{
    d->items = xrealloc_array(d->items, d->count + 1, sizeof(struct session *));
    d->items[d->count++] = s;
    s->pins++;
}

static void due_done(struct due *d)
{
    for (size_t i = 0; i < d->count; i++)
        session_unpin(d->items[i]);
    free(d->items);
}

static int64_t idle_limit_ms(const struct session *s)
{
    const struct config *cfg = s->table->env->config;

    return (s->entity_id ? cfg->session_idle_s : cfg->anonymous_idle_s) * 1000;
}

static void end_idle(struct session_table *t)
{
    struct due due = { 0 };
    int64_t now = clock_real_ms();

    (void)pthread_mutex_lock(&t->lock);
    for (size_t i = 0; i < t->count; i++) {
        struct session *s = t->items[i];
        if (s->state == SESSION_LIVE && s->running == 0 && now - s->last_used_ms >= idle_limit_ms(s)) {
            session_set_state(s, SESSION_STOPPING);
            t->cleaned++;
            due_add(&due, s);
        }
    }
    (void)pthread_mutex_unlock(&t->lock);
    for (size_t i = 0; i < due.count; i++)
        table_stop_sandbox(due.items[i], "the session was idle for too long");
    due_done(&due);
}

/* A runner that hears from nobody for ORPHAN_SECONDS ends itself: a connection is enough. */
static void tell_runners(struct session_table *t)
{
    struct due due = { 0 };
    int64_t now = clock_mono_ms();

    (void)pthread_mutex_lock(&t->lock);
    bool time = now - t->told_ms >= t->env->config->orphan_s * 1000 / 3;
    if (time)
        t->told_ms = now;
    for (size_t i = 0; time && i < t->count; i++)
        if (t->items[i]->state == SESSION_LIVE)
            due_add(&due, t->items[i]);
    (void)pthread_mutex_unlock(&t->lock);
    for (size_t i = 0; i < due.count; i++) {
        struct link l = LINK_NONE;
        struct error ignored = { 0 }; /* the next call on the session finds out and repairs it */
        auto_free char *run_dir = session_run_dir(due.items[i]);
        if (link_open(t->env->engine, run_dir, &l, &ignored) == 0)
            link_close(&l);
    }
    due_done(&due);
}

static void save_uses(struct session_table *t)
{
    struct due due = { 0 };

    (void)pthread_mutex_lock(&t->lock);
    for (size_t i = 0; i < t->count; i++)
        if (t->items[i]->last_used_ms - t->items[i]->saved_used_ms > SAVE_AFTER_MS)
            due_add(&due, t->items[i]);
    (void)pthread_mutex_unlock(&t->lock);
    for (size_t i = 0; i < due.count; i++)
        table_save(due.items[i]);
    due_done(&due);
}

void session_table_tick(struct session_table *t)
{
    end_idle(t);
    tell_runners(t);
    save_uses(t);
}
