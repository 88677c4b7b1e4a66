#include "orchestrator/session/table.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "common/clock.h"
#include "orchestrator/session/table_internal.h"

#define SESSION_COLUMNS                                                                                      \
    "id, tenant, user, entity_id, created_ms, last_used_ms, box, uid, container_id, python, lost_reason, "   \
    "shared_kind"

int session_table_new(const struct session_env *env, struct session_table **ret, struct error *err)
{
    struct session_table *t = xcalloc(1, sizeof *t);
    pthread_condattr_t attr;
    uint32_t random = 0;

    (void)err;
    t->env = env;
    t->host = (struct sandbox_host){ env->engine, env->config, env->instance, env->boxes_dir };
    (void)pthread_mutex_init(&t->save_lock, NULL);
    (void)pthread_mutex_init(&t->lock, NULL);
    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&t->changed, &attr);
    (void)pthread_condattr_destroy(&attr);
    IGNORE(getrandom(&random, sizeof random, 0)); /* only spreads the uids; any value will do */
    t->next_uid = (uint32_t)(random % (uint64_t)env->config->sandbox_uid_count);
    t->told_ms = clock_mono_ms();
    *ret = t;
    return 0;
}

static void session_free(struct session *s)
{
    workspace_close(s->workspace);
    session_forget_captures(s);
    free(s->tenant);
    free(s->user);
    free(s->entity_id);
    free(s->lost_reason);
    free(s);
}

void session_table_free(struct session_table *t)
{
    if (!t)
        return;
    for (size_t i = 0; i < t->count; i++) {
        if (t->items[i]->last_used_ms != t->items[i]->saved_used_ms)
            table_save(t->items[i]);
        session_free(t->items[i]);
    }
    free(t->items);
    (void)pthread_cond_destroy(&t->changed);
    (void)pthread_mutex_destroy(&t->lock);
    (void)pthread_mutex_destroy(&t->save_lock);
    free(t);
}

const struct session_env *session_table_env(const struct session_table *t) { return t->env; }
pthread_mutex_t *session_table_lock(struct session_table *t) { return &t->lock; }
pthread_cond_t *session_table_changed(struct session_table *t) { return &t->changed; }

void table_wait(struct session_table *t, int64_t deadline_ms)
{
    struct timespec until = { .tv_sec = deadline_ms / 1000, .tv_nsec = deadline_ms % 1000 * 1000000 };

    if (deadline_ms < 0)
        (void)pthread_cond_wait(&t->changed, &t->lock);
    else
        (void)pthread_cond_timedwait(&t->changed, &t->lock, &until);
}

/* ---- the list ---- */

struct session *table_by_id(struct session_table *t, const char *id)
{
    for (size_t i = 0; i < t->count; i++)
        if (strcmp(t->items[i]->id, id) == 0)
            return t->items[i];
    return NULL;
}

struct session *table_by_container(struct session_table *t, const char *container_id)
{
    for (size_t i = 0; i < t->count; i++)
        if (container_id[0] && strcmp(t->items[i]->container_id, container_id) == 0)
            return t->items[i];
    return NULL;
}

static bool owns(const struct session *s, const struct principal *p)
{
    return !s->shared && strcmp(s->tenant, p->tenant) == 0 && strcmp(s->user, p->user) == 0;
}

static struct session *by_entity(struct session_table *t, const struct principal *p, const char *entity_id)
{
    for (size_t i = 0; i < t->count; i++)
        if (str_eq(t->items[i]->entity_id, entity_id) && owns(t->items[i], p))
            return t->items[i];
    return NULL;
}

static uint64_t removals_now(struct session_table *t)
{
    (void)pthread_mutex_lock(&t->lock);
    uint64_t n = t->removals;
    (void)pthread_mutex_unlock(&t->lock);
    return n;
}

/* Adds a session that was read or made without the lock; if another thread was faster, its copy is taken.
   NULL: a session was removed since, perhaps this one: read again. */
static struct session *adopt(struct session_table *t, struct session *fresh, uint64_t removals)
{
    (void)pthread_mutex_lock(&t->lock);
    struct session *s = table_by_id(t, fresh->id);
    if (!s && t->removals != removals) {
        (void)pthread_mutex_unlock(&t->lock);
        session_free(fresh);
        return NULL;
    }
    if (!s) {
        s = fresh;
        if (t->count == t->cap) {
            t->cap = t->cap ? 2 * t->cap : 64;
            t->items = xrealloc_array(t->items, t->cap, sizeof *t->items);
        }
        t->items[t->count++] = s;
    }
    s->pins++;
    (void)pthread_mutex_unlock(&t->lock);
    if (s != fresh)
        session_free(fresh);
    return s;
}

void table_remove_item(struct session_table *t, struct session *s)
{
    for (size_t i = 0; i < t->count; i++)
        if (t->items[i] == s) {
            t->items[i] = t->items[--t->count];
            return;
        }
}

void session_unpin(struct session *s)
{
    if (!s)
        return;
    struct session_table *t = s->table;

    (void)pthread_mutex_lock(&t->lock);
    bool last = s->pins == 1 && s->state == SESSION_STORED;
    bool unsaved = last && s->last_used_ms != s->saved_used_ms;
    (void)pthread_mutex_unlock(&t->lock);
    if (unsaved)
        table_save(s);

    (void)pthread_mutex_lock(&t->lock);
    /* A stored session that nobody holds lives in the database alone. */
    last = --s->pins == 0 && s->state == SESSION_STORED;
    if (last)
        table_remove_item(t, s);
    (void)pthread_mutex_unlock(&t->lock);
    if (last)
        session_free(s);
}

/* ---- rows ---- */

struct load {
    struct session_table *table;
    struct session *found;
};

static int on_row(void *state, struct db_row *row, struct error *err)
{
    struct load *load = state;
    struct session *s = xcalloc(1, sizeof *s);
    const char *box = db_text(row, 6), *container = db_text(row, 8);

    (void)err;
    (void)snprintf(s->id, sizeof s->id, "%s", db_text(row, 0));
    s->tenant = xstrdup(db_text(row, 1));
    s->user = xstrdup(db_text(row, 2));
    s->entity_id = xstrdup(db_text(row, 3));
    s->created_ms = db_int(row, 4);
    s->last_used_ms = s->saved_used_ms = db_int(row, 5);
    (void)snprintf(s->box, sizeof s->box, "%s", box ? box : "");
    s->uid = (uint32_t)db_int(row, 7);
    (void)snprintf(s->container_id, sizeof s->container_id, "%s", container ? container : "");
    s->python = (enum session_python)db_int(row, 9);
    s->lost_reason = xstrdup(db_text(row, 10));
    s->shared = db_text(row, 11) != NULL;
    s->table = load->table;
    if (load->found)
        session_free(load->found);
    load->found = s;
    return 0;
}

static int load_where(struct session_table *t, const char *sql, const char *types, const char *const args[3],
                      struct session **ret_pinned, struct error *err)
{
    struct session *s = NULL;

    while (!s) {
        struct load load = { .table = t };
        uint64_t removals = removals_now(t);
        if (db_query(t->env->db, err, on_row, &load, sql, types, args[0], args[1], args[2]) < 0) {
            if (load.found)
                session_free(load.found);
            return -1;
        }
        if (!load.found)
            return error_set(err, ERR_NOT_FOUND, "no such session");
        s = adopt(t, load.found, removals);
    }
    *ret_pinned = s;
    return 0;
}

int table_load(struct session_table *t, const char *id, struct session **ret_pinned, struct error *err)
{
    return load_where(t, "SELECT " SESSION_COLUMNS " FROM sessions WHERE id = ?", "s",
                      (const char *const[3]){ id }, ret_pinned, err);
}

static int load_by_entity(struct session_table *t, const struct principal *p, const char *entity_id,
                          struct session **ret_pinned, struct error *err)
{
    return load_where(
        t, "SELECT " SESSION_COLUMNS " FROM sessions WHERE tenant = ? AND user = ? AND entity_id = ?", "sss",
        (const char *const[3]){ p->tenant, p->user, entity_id }, ret_pinned, err);
}

void table_save(struct session *s)
{
    struct session_table *t = s->table;
    struct error err = { 0 };

    (void)pthread_mutex_lock(&t->save_lock);
    (void)pthread_mutex_lock(&t->lock);
    char box[ID_SIZE], container[ENGINE_ID_SIZE];
    memcpy(box, s->box, sizeof box);
    memcpy(container, s->container_id, sizeof container);
    int64_t used = s->last_used_ms, uid = s->uid, python = s->python;
    auto_free char *reason = xstrdup(s->lost_reason);
    s->saved_used_ms = used;
    (void)pthread_mutex_unlock(&t->lock);
    if (db_run(t->env->db, &err,
               "UPDATE sessions SET last_used_ms = ?, box = ?, uid = ?, container_id = ?, python = ?, "
               "lost_reason = ? WHERE id = ?",
               "isisiss", used, box[0] ? box : NULL, uid, container[0] ? container : NULL, python, reason,
               s->id) < 0)
        log_error("save session %s: %s", s->id, err.msg);
    (void)pthread_mutex_unlock(&t->save_lock);
}

static int create(struct session_table *t, const struct principal *p, const char *entity_id,
                  struct session **ret_pinned, struct error *err)
{
    char id[ID_SIZE];
    int64_t now = clock_real_ms();

    id_new(id);
    if (db_run(t->env->db, err,
               "INSERT INTO sessions (id, tenant, user, entity_id, created_ms, last_used_ms) "
               "VALUES (?, ?, ?, ?, ?, ?)",
               "ssssii", id, p->tenant, p->user, entity_id, now, now) < 0)
        return -1;
    return table_load(t, id, ret_pinned, err);
}

/* ---- which session ---- */

bool session_visible(const struct session *s, const struct principal *p)
{
    return owns(s, p) || (s->shared && strcmp(s->tenant, p->tenant) == 0);
}

typedef bool may_fn(const struct session *s, const struct principal *p);

static int find(struct session_table *t, const struct principal *p, may_fn *may, const char *id,
                struct session **ret, struct error *err)
{
    struct session *s = NULL;

    if (!id_valid(id))
        return error_set(err, ERR_NOT_FOUND, "no such session");
    (void)pthread_mutex_lock(&t->lock);
    while ((s = table_by_id(t, id)) && s->ending)
        table_wait(t, -1); /* it may be unknown in a moment; looked up anew, for nobody holds a pin here */
    if (s)
        s->pins++;
    (void)pthread_mutex_unlock(&t->lock);
    if (!s && table_load(t, id, &s, err) < 0)
        return -1;
    assert(s); /* found above, or loaded */
    if (!may(s, p)) {
        session_unpin(s);
        return error_set(err, ERR_NOT_FOUND, "no such session");
    }
    *ret = s;
    return 0;
}

int session_find(struct session_table *t, const struct principal *p, const char *id, struct session **ret,
                 struct error *err)
{
    return find(t, p, owns, id, ret, err);
}

int session_find_files(struct session_table *t, const struct principal *p, const char *id,
                       struct session **ret, struct error *err)
{
    return find(t, p, session_visible, id, ret, err);
}

static int resolve_entity(struct session_table *t, const struct principal *p, const char *entity_id,
                          struct session **ret, bool *ret_new, struct error *err)
{
    (void)pthread_mutex_lock(&t->lock);
    struct session *s;
    while ((s = by_entity(t, p, entity_id)) && s->ending)
        table_wait(t, -1);
    if (s)
        s->pins++;
    (void)pthread_mutex_unlock(&t->lock);
    if (s) {
        *ret = s;
        return 0;
    }
    if (load_by_entity(t, p, entity_id, ret, err) == 0)
        return 0;
    if (err->kind != ERR_NOT_FOUND)
        return -1;
    if (create(t, p, entity_id, ret, err) == 0) {
        *ret_new = true;
        return 0;
    }
    if (err->kind != ERR_CONFLICT)
        return -1;
    return load_by_entity(t, p, entity_id, ret, err); /* another call made it meanwhile */
}

int session_resolve(struct session_table *t, const struct principal *p, const struct session_hint *hint,
                    struct session **ret, bool *ret_new, struct error *err)
{
    bool fresh = false;
    int r;

    /* An unknown or foreign session_id counts as not sent. */
    if (hint->session_id && session_find(t, p, hint->session_id, ret, err) == 0)
        r = 0;
    else if (hint->session_id && err->kind != ERR_NOT_FOUND)
        return -1;
    else if (hint->entity_id)
        r = resolve_entity(t, p, hint->entity_id, ret, &fresh, err);
    else {
        fresh = true;
        r = create(t, p, NULL, ret, err);
    }
    if (r == 0 && ret_new)
        *ret_new = fresh;
    return r;
}

void session_table_counts(struct session_table *t, struct session_counts *ret)
{
    *ret = (struct session_counts){ 0 };
    (void)pthread_mutex_lock(&t->lock);
    for (size_t i = 0; i < t->count; i++) {
        ret->live += t->items[i]->state == SESSION_LIVE;
        ret->starting += t->items[i]->state == SESSION_STARTING;
        ret->executing += t->items[i]->running > 0;
    }
    ret->cleaned = t->cleaned;
    (void)pthread_mutex_unlock(&t->lock);
}

/* ---- Python's state ---- */

bool session_python_ran(struct session *s)
{
    (void)pthread_mutex_lock(&s->table->lock);
    bool had = s->python == PYTHON_LIVE;
    s->python = PYTHON_LIVE;
    (void)pthread_mutex_unlock(&s->table->lock);
    if (!had)
        table_save(s);
    return had;
}

void session_python_lost(struct session *s, const char *reason)
{
    (void)pthread_mutex_lock(&s->table->lock);
    bool changed = s->python == PYTHON_LIVE;
    if (changed) {
        s->python = PYTHON_LOST;
        free(s->lost_reason);
        s->lost_reason = xstrdup(reason);
    }
    (void)pthread_mutex_unlock(&s->table->lock);
    if (changed)
        table_save(s);
}

bool session_python_is_lost(struct session *s)
{
    (void)pthread_mutex_lock(&s->table->lock);
    bool lost = s->python == PYTHON_LOST;
    (void)pthread_mutex_unlock(&s->table->lock);
    return lost;
}

char *session_python_take_lost(struct session *s)
{
    char *reason = NULL;

    (void)pthread_mutex_lock(&s->table->lock);
    if (s->python == PYTHON_LOST) {
        reason = s->lost_reason ? steal_ptr(&s->lost_reason) : xstrdup("the sandbox was replaced");
        s->python = PYTHON_NEVER_RAN; /* this call's session_python_ran() makes it live again */
    }
    (void)pthread_mutex_unlock(&s->table->lock);
    return reason;
}
