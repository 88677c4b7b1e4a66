/* What can be told about sessions: rows of the database, with what the table knows better. */
#include <stdio.h>
#include <string.h>

#include "orchestrator/session/table_internal.h"

void session_infos_done(struct session_infos *l)
{
    for (size_t i = 0; i < l->count; i++)
        free(l->items[i].entity_id);
    free(l->items);
    *l = (struct session_infos){ 0 };
}

/* With the lock held. */
static void overlay(const struct session *s, struct session_info *i)
{
    i->state = s->state;
    i->python = s->python;
    i->running = s->running;
    i->last_used_ms = s->last_used_ms;
    i->live_since_ms = s->state == SESSION_LIVE ? s->live_since_ms : 0;
}

void session_info_get(struct session *s, struct session_info *ret)
{
    *ret = (struct session_info){ .entity_id = xstrdup(s->entity_id), .created_ms = s->created_ms };
    memcpy(ret->id, s->id, sizeof ret->id);
    (void)pthread_mutex_lock(&s->table->lock);
    overlay(s, ret);
    (void)pthread_mutex_unlock(&s->table->lock);
}

static int on_row(void *state, struct db_row *row, struct error *err)
{
    struct session_infos *l = state;

    (void)err;
    l->items = xrealloc_array(l->items, l->count + 1, sizeof *l->items);
    struct session_info *i = &l->items[l->count++];
    *i = (struct session_info){ .entity_id = xstrdup(db_text(row, 1)),
                                .state = SESSION_STORED,
                                .created_ms = db_int(row, 2),
                                .last_used_ms = db_int(row, 3),
                                .python = (enum session_python)db_int(row, 4) };
    (void)snprintf(i->id, sizeof i->id, "%s", db_text(row, 0));
    return 0;
}

static int newer_first(const void *a, const void *b)
{
    const struct session_info *x = a, *y = b;

    return (x->last_used_ms < y->last_used_ms) - (x->last_used_ms > y->last_used_ms);
}

int session_list(struct session_table *t, const struct principal *p, int64_t before_ms, int64_t max,
                 struct session_infos *ret, struct error *err)
{
    CLEANUP(session_infos_done) struct session_infos list = { 0 };

    if (db_query(t->env->db, err, on_row, &list,
                 "SELECT id, entity_id, created_ms, last_used_ms, python FROM sessions WHERE tenant = ? AND "
                 "user = ? AND shared_kind IS NULL AND last_used_ms < ? ORDER BY last_used_ms DESC LIMIT ?",
                 "ssii", p->tenant, p->user, before_ms, max) < 0)
        return -1;
    (void)pthread_mutex_lock(&t->lock);
    for (size_t i = 0; i < list.count; i++) {
        const struct session *s = table_by_id(t, list.items[i].id);
        if (s)
            overlay(s, &list.items[i]);
    }
    (void)pthread_mutex_unlock(&t->lock);
    if (list.count > 1)
        qsort(list.items, list.count, sizeof *list.items, newer_first);
    *ret = list;
    list = (struct session_infos){ 0 };
    return 0;
}
