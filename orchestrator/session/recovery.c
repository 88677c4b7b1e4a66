/* After a restart, a lost event stream or a death: makes the table and the engine agree. */
#include <string.h>

#include "orchestrator/session/link.h"
#include "orchestrator/session/table_internal.h"

#define GONE "its sandbox was gone after a restart of the service"

void session_table_container_died(struct session_table *t, const char *container_id, const char *reason)
{
    (void)pthread_mutex_lock(&t->lock);
    struct session *s = table_by_container(t, container_id);
    bool ours = s && s->state == SESSION_LIVE; /* STOPPING: the death is our own doing */
    if (ours) {
        s->pins++;
        session_set_state(s, SESSION_STOPPING);
    }
    (void)pthread_mutex_unlock(&t->lock);
    if (ours) {
        table_stop_sandbox(s, reason);
        session_unpin(s);
    }
}

static bool listed_running(const struct engine_containers *list, const char *container_id)
{
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->items[i].id, container_id) == 0)
            return list->items[i].state == ENGINE_RUNNING;
    return false;
}

struct container_ids {
    char (*ids)[ENGINE_ID_SIZE];
    size_t count;
};

/* Which containers live sessions have now: one that is started later is not in the list that the engine
 * gives. */
static void remember_live(struct session_table *t, struct container_ids *live)
{
    (void)pthread_mutex_lock(&t->lock);
    live->ids = xcalloc(t->count, sizeof *live->ids);
    for (size_t i = 0; i < t->count; i++)
        if (t->items[i]->state == SESSION_LIVE)
            memcpy(live->ids[live->count++], t->items[i]->container_id, ENGINE_ID_SIZE);
    (void)pthread_mutex_unlock(&t->lock);
}

int session_table_reconcile(struct session_table *t, struct error *err)
{
    struct engine *e = t->env->engine;
    CLEANUP(engine_containers_done) struct engine_containers list = { 0 };
    auto_free char *label = xasprintf(SANDBOX_LABEL_INSTANCE "=%s", t->env->instance);
    struct container_ids live = { 0 };

    remember_live(t, &live);
    int r = e->ops->list(e, label, &list, err);
    for (size_t i = 0; r == 0 && i < live.count; i++)
        if (!listed_running(&list, live.ids[i]))
            session_table_container_died(t, live.ids[i], "its sandbox was removed or stopped by somebody");
    free(live.ids);
    return r == 0 ? 0 : error_wrap(err, "list sandboxes");
}

/* ---- start-up ---- */

static bool answers(struct session_table *t, struct session *s)
{
    struct link l = LINK_NONE;
    struct error err = { 0 };
    auto_free char *run_dir = session_run_dir(s);

    if (link_open(t->env->engine, run_dir, &l, &err) < 0) {
        log_warn("sandbox of session %s: %s", s->id, err.msg);
        return false;
    }
    link_close(&l);
    return true;
}

/* Takes a container that survived the service back into its session. False: nobody's, or not usable. */
static bool readopt(struct session_table *t, const struct engine_container *c)
{
    struct error err = { 0 };
    struct session *s = NULL;
    const char *id = engine_container_label(c, SANDBOX_LABEL_SESSION);

    if (c->state != ENGINE_RUNNING || !id || !id_valid(id) || table_load(t, id, &s, &err) < 0)
        return false;
    bool good = strcmp(s->container_id, c->id) == 0 && answers(t, s);
    if (good && s->state == SESSION_STORED) { /* LIVE: an earlier try to become ready got this far */
        (void)pthread_mutex_lock(&t->lock);
        session_set_state(s, SESSION_LIVE);
        s->live_since_ms = s->last_used_ms; /* about: when it started is not kept */
        s->generation++;
        t->places_used++;
        (void)pthread_mutex_unlock(&t->lock);
        log_info("session %s keeps sandbox %.12s", s->id, c->id);
    }
    session_unpin(s);
    return good;
}

struct id_list {
    char (*ids)[ID_SIZE];
    size_t count;
};

static int add_id(void *state, struct db_row *row, struct error *err)
{
    struct id_list *list = state;

    (void)err;
    list->ids = xrealloc_array(list->ids, list->count + 1, sizeof *list->ids);
    (void)snprintf(list->ids[list->count++], ID_SIZE, "%s", db_text(row, 0));
    return 0;
}

/* Rows that name a container which was not taken back: their variables are lost. */
static int forget_lost(struct session_table *t, struct error *err)
{
    struct id_list list = { 0 };
    int r = db_query(t->env->db, err, add_id, &list, "SELECT id FROM sessions WHERE container_id IS NOT NULL",
                     "");

    for (size_t i = 0; r == 0 && i < list.count; i++) {
        struct session *s = NULL;
        r = table_load(t, list.ids[i], &s, err);
        if (r < 0)
            break;
        (void)pthread_mutex_lock(&t->lock);
        bool lost = s->state == SESSION_STORED;
        if (lost)
            s->container_id[0] = '\0';
        (void)pthread_mutex_unlock(&t->lock);
        if (lost) {
            session_python_lost(s, GONE);
            table_save(s);
        }
        session_unpin(s);
    }
    free(list.ids);
    return r;
}

int session_table_recover(struct session_table *t, struct error *err)
{
    struct engine *e = t->env->engine;
    CLEANUP(engine_containers_done) struct engine_containers list = { 0 };
    auto_free char *label = xasprintf(SANDBOX_LABEL_INSTANCE "=%s", t->env->instance);

    if (e->ops->list(e, label, &list, err) < 0)
        return error_wrap(err, "list sandboxes");
    for (size_t i = 0; i < list.count; i++)
        if (!readopt(t, &list.items[i])) {
            log_info("removing stray sandbox %.12s", list.items[i].id);
            sandbox_stop(&t->host, list.items[i].id);
        }
    return forget_lost(t, err);
}
