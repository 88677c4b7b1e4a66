/* A session's place among the live ones: starting its sandbox, waiting for one, giving it up; turns on its
 * workspace. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "common/clock.h"
#include "orchestrator/session/table_internal.h"

#define BUSY_RETRY_S 5

/* ---- user ids ---- */

static bool uid_taken(const struct session_table *t, const struct session *except, uint32_t uid)
{
    for (size_t i = 0; i < t->count; i++)
        if (t->items[i] != except && t->items[i]->state != SESSION_STORED && t->items[i]->uid == uid)
            return true;
    return false;
}

/* A root service gives each live sandbox a uid of its own; the session's former one where it is free. */
static uint32_t choose_uid(struct session_table *t, const struct session *s)
{
    const struct config *cfg = t->env->config;

    if (geteuid() != 0)
        return geteuid();
    if (s->uid != 0 && !uid_taken(t, s, s->uid))
        return s->uid;
    for (int64_t i = 0; i < cfg->sandbox_uid_count; i++) {
        t->next_uid = (uint32_t)((t->next_uid + 1) % cfg->sandbox_uid_count);
        uint32_t uid = (uint32_t)cfg->sandbox_uid_first + t->next_uid;
        if (!uid_taken(t, s, uid))
            return uid;
    }
    return 0; /* more live sessions than uids; the start fails and says so */
}

/* ---- the workspace's turn ---- */

static int open_workspace(struct session *s, struct workspace **ret, struct error *err)
{
    struct session_table *t = s->table;
    const struct config *cfg = t->env->config;
    const struct workspace_limits limits = {
        .max_file_bytes = cfg->max_file_mb * 1024 * 1024,
        .max_captured_files = cfg->max_captured_files,
        .max_files = cfg->workspace_files,
        .max_depth = 64,
    };
    bool fresh = false;

    (void)pthread_mutex_lock(&t->lock);
    if (s->removed) {
        (void)pthread_mutex_unlock(&t->lock);
        return error_set(err, ERR_NOT_FOUND, "the session was deleted");
    }
    if (!s->box[0]) {
        id_new(s->box);
        fresh = true;
    }
    if (s->uid == 0)
        s->uid = choose_uid(t, s);
    uint32_t uid = s->uid;
    (void)pthread_mutex_unlock(&t->lock);
    if (uid == 0)
        return error_set(err, ERR_UNAVAILABLE,
                         "SANDBOX_UIDS: more live sessions than user ids; widen the range");
    auto_free char *path = sandbox_box_path(&t->host, s->box, NULL);
    if (mkdir(path, 0711) < 0 && errno != EEXIST)
        return error_errno(err, errno, "create %s", path);
    if (fresh)
        table_save(s);
    return workspace_open(path, s->id, uid, t->env->store, t->env->db, &limits, ret, err);
}

int session_workspace_begin(struct session *s, struct workspace **ret, struct error *err)
{
    struct session_table *t = s->table;

    (void)pthread_mutex_lock(&t->lock);
    while (s->workspace_busy)
        table_wait(t, -1);
    s->workspace_busy = true;
    struct workspace *w = s->workspace;
    (void)pthread_mutex_unlock(&t->lock);
    if (!w) {
        if (open_workspace(s, &w, err) < 0) {
            session_workspace_end(s);
            return error_wrap(err, "workspace of session %s", s->id);
        }
        (void)pthread_mutex_lock(&t->lock);
        s->workspace = w;
        (void)pthread_mutex_unlock(&t->lock);
    }
    *ret = w;
    return 0;
}

void session_workspace_end(struct session *s)
{
    (void)pthread_mutex_lock(&s->table->lock);
    s->workspace_busy = false;
    (void)pthread_cond_broadcast(&s->table->changed);
    (void)pthread_mutex_unlock(&s->table->lock);
}

void session_workspace_refresh(struct session *s)
{
    (void)pthread_mutex_lock(&s->table->lock);
    while (s->workspace_busy)
        table_wait(s->table, -1);
    if (s->workspace) /* else it reads its rows when it is opened */
        workspace_refresh(s->workspace);
    (void)pthread_mutex_unlock(&s->table->lock);
}

static void close_workspace(struct session *s)
{
    struct session_table *t = s->table;

    (void)pthread_mutex_lock(&t->lock);
    while (s->workspace_busy)
        table_wait(t, -1);
    struct workspace *w = steal_ptr(&s->workspace);
    (void)pthread_mutex_unlock(&t->lock);
    workspace_close(w);
}

/* ---- start and stop ---- */

/* The files must belong to the uid that the sandbox will have. */
static int prepare_files(struct session *s, uint32_t uid, struct error *err)
{
    struct workspace *w = NULL;
    struct session_table *t = s->table;

    (void)pthread_mutex_lock(&t->lock);
    bool moved = s->uid != 0 && s->uid != uid && s->box[0];
    if (s->uid == 0)
        s->uid = uid;
    (void)pthread_mutex_unlock(&t->lock);
    if (session_workspace_begin(s, &w, err) < 0)
        return -1;
    int r = moved ? workspace_chown(w, uid, err) : 0;
    session_workspace_end(s);
    if (r == 0) {
        (void)pthread_mutex_lock(&t->lock);
        s->uid = uid;
        (void)pthread_mutex_unlock(&t->lock);
    }
    return r;
}

/* The session is STARTING: nobody else touches it. Ends LIVE, or STORED with the reason. */
static int start_sandbox(struct session *s, uint32_t uid, struct error *err)
{
    struct session_table *t = s->table;
    char container[ENGINE_ID_SIZE] = "";
    int r = uid == 0 ? error_set(err, ERR_UNAVAILABLE, "SANDBOX_UIDS: more live sessions than user ids")
                     : prepare_files(s, uid, err);

    if (r == 0)
        r = sandbox_start(&t->host, s->id, s->box, uid, container, err);
    (void)pthread_mutex_lock(&t->lock);
    memcpy(s->container_id, container, sizeof container);
    s->generation++;
    s->live_since_ms = s->last_used_ms = clock_real_ms();
    session_set_state(s, r == 0 ? SESSION_LIVE : SESSION_STORED);
    if (r < 0)
        t->places_used--;
    (void)pthread_cond_broadcast(&t->changed);
    (void)pthread_mutex_unlock(&t->lock);
    table_save(s);
    if (r == 0)
        log_info("session %s has sandbox %.12s (uid %u)", s->id, container, uid);
    return r;
}

void table_stop_sandbox(struct session *s, const char *reason)
{
    struct session_table *t = s->table;
    char container[ENGINE_ID_SIZE];

    memcpy(container, s->container_id, sizeof container); /* STOPPING: nobody changes it */
    sandbox_stop(&t->host, container);
    close_workspace(s);
    session_python_lost(s, reason);
    (void)pthread_mutex_lock(&t->lock);
    s->container_id[0] = '\0';
    session_set_state(s, SESSION_STORED);
    t->places_used--;
    (void)pthread_cond_broadcast(&t->changed);
    (void)pthread_mutex_unlock(&t->lock);
    table_save(s);
    log_info("session %s lost sandbox %.12s: %s", s->id, container, reason);
}

/* ---- a place for it ---- */

static struct session *least_recently_used(struct session_table *t)
{
    struct session *victim = NULL;

    for (size_t i = 0; i < t->count; i++) {
        struct session *s = t->items[i];
        if (s->state == SESSION_LIVE && s->running == 0 &&
            (!victim || s->last_used_ms < victim->last_used_ms))
            victim = s;
    }
    return victim;
}

/* With the lock held, given back held. Ends an idle session's sandbox to make room. */
static void evict(struct session_table *t, struct session *victim)
{
    session_set_state(victim, SESSION_STOPPING);
    victim->pins++;
    t->cleaned++;
    (void)pthread_mutex_unlock(&t->lock);
    table_stop_sandbox(victim, "the session was idle and another one needed its sandbox");
    session_unpin(victim);
    (void)pthread_mutex_lock(&t->lock);
}

static void waiter_remove(struct session_table *t, const struct slot_waiter *w)
{
    struct slot_waiter **p = &t->waiters;

    while (*p && *p != w)
        p = &(*p)->next;
    if (*p)
        *p = w->next;
    (void)pthread_cond_broadcast(&t->changed); /* the next in line may be first now */
}

static void waiter_append(struct session_table *t, struct slot_waiter *w)
{
    struct slot_waiter **p = &t->waiters;

    while (*p)
        p = &(*p)->next;
    *p = w;
}

/* With the lock held: waits in line for a place and takes it, which makes the session STARTING and *ret_mine
   true; or returns as soon as another call did so. ERR_BUSY when none came free in time. */
static int take_place(struct session *s, bool *ret_mine, struct error *err)
{
    struct session_table *t = s->table;
    const unsigned max = (unsigned)t->env->config->max_sessions;
    int64_t deadline = clock_mono_ms() + t->env->config->queue_wait_s * 1000;
    struct slot_waiter me = { 0 };
    int r = 0;

    waiter_append(t, &me);
    while (s->state == SESSION_STORED) {
        struct session *victim = t->waiters == &me && t->places_used >= max ? least_recently_used(t) : NULL;
        if (t->waiters == &me && t->places_used < max) {
            session_set_state(s, SESSION_STARTING);
            t->places_used++;
            *ret_mine = true;
        } else if (victim) {
            evict(t, victim);
        } else if (clock_mono_ms() >= deadline) {
            r = error_set(
                err, ERR_BUSY,
                "all %u sandboxes are executing and none came free within %lld s; try again later, or "
                "raise MAX_SESSIONS",
                max, (long long)t->env->config->queue_wait_s);
            err->retry_after_s = BUSY_RETRY_S;
            break;
        } else {
            table_wait(t, deadline);
        }
    }
    waiter_remove(t, &me);
    return r;
}

static int obtain_sandbox(struct session *s, bool *ret_started, struct error *err)
{
    struct session_table *t = s->table;
    bool mine = false;

    (void)pthread_mutex_lock(&t->lock);
    for (;;) {
        if (s->state == SESSION_LIVE) {
            s->last_used_ms = clock_real_ms();
            (void)pthread_mutex_unlock(&t->lock);
            return 0;
        }
        if (s->state != SESSION_STORED) {
            table_wait(t, -1); /* start and stop are bounded in time by the engine's client */
            continue;
        }
        if (take_place(s, &mine, err) < 0)
            break;
        if (!mine)
            continue;
        uint32_t uid = choose_uid(t, s);
        (void)pthread_mutex_unlock(&t->lock);
        *ret_started = true;
        if (start_sandbox(s, uid, err) < 0)
            return -1;
        mine = false;
        (void)pthread_mutex_lock(&t->lock);
    }
    (void)pthread_mutex_unlock(&t->lock);
    return -1;
}

int session_enter(struct session *s, bool *ret_started, struct error *err)
{
    bool started = false;

    (void)pthread_mutex_lock(&s->table->lock);
    while (s->ending)
        table_wait(s->table, -1); /* session_end() is bounded in time */
    if (s->removed) {
        (void)pthread_mutex_unlock(&s->table->lock);
        return error_set(err, ERR_NOT_FOUND, "the session was deleted");
    }
    if (s->table->stopping) {
        (void)pthread_mutex_unlock(&s->table->lock);
        return error_set(err, ERR_UNAVAILABLE,
                         "the service is stopping; try again when it has started again");
    }
    s->running++;
    (void)pthread_mutex_unlock(&s->table->lock);
    if (obtain_sandbox(s, &started, err) < 0) {
        session_leave(s);
        return -1;
    }
    if (ret_started)
        *ret_started = started;
    return 0;
}

void session_leave(struct session *s)
{
    (void)pthread_mutex_lock(&s->table->lock);
    if (--s->running == 0)
        session_forget_captures(s);
    s->last_used_ms = clock_real_ms();
    (void)pthread_cond_broadcast(&s->table->changed);
    (void)pthread_mutex_unlock(&s->table->lock);
}

void session_drop_sandbox(struct session *s, unsigned generation, const char *reason)
{
    struct session_table *t = s->table;

    (void)pthread_mutex_lock(&t->lock);
    bool mine = s->state == SESSION_LIVE && s->generation == generation;
    if (mine)
        session_set_state(s, SESSION_STOPPING);
    (void)pthread_mutex_unlock(&t->lock);
    if (mine)
        table_stop_sandbox(s, reason);
}

int session_replace_sandbox(struct session *s, unsigned generation, const char *reason, struct error *err)
{
    bool started = false;

    session_drop_sandbox(s, generation, reason);
    return obtain_sandbox(s, &started, err);
}

unsigned session_generation(struct session *s)
{
    (void)pthread_mutex_lock(&s->table->lock);
    unsigned generation = s->generation;
    (void)pthread_mutex_unlock(&s->table->lock);
    return generation;
}

char *session_run_dir(struct session *s)
{
    (void)pthread_mutex_lock(&s->table->lock);
    char *path = sandbox_box_path(&s->table->host, s->box, "run");
    (void)pthread_mutex_unlock(&s->table->lock);
    return path;
}

void session_container(struct session *s, char ret[ENGINE_ID_SIZE])
{
    (void)pthread_mutex_lock(&s->table->lock);
    memcpy(ret, s->container_id, ENGINE_ID_SIZE);
    (void)pthread_mutex_unlock(&s->table->lock);
}
