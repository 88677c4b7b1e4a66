#include "orchestrator/session/service.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "common/clock.h"
#include "orchestrator/session/probe.h"

#define RETRY_MS 2000
#define TICK_MS 1000

struct service {
    struct session_table *table;
    struct sandbox_host host;
    pthread_t thread;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t changed;
    bool stopping;
    bool tried; /* the first probe has ended */
    struct service_state state;
    bool following;
};

void service_state_done(struct service_state *s)
{
    json_decref(s->manifest);
    s->manifest = NULL;
}

void service_state_get(struct service *s, struct service_state *ret)
{
    (void)pthread_mutex_lock(&s->lock);
    *ret = s->state;
    ret->manifest = json_incref(ret->manifest); /* constant once made: jansson's counts are atomic */
    (void)pthread_mutex_unlock(&s->lock);
}

int service_check(struct service *s, struct error *err)
{
    int r = 0;

    (void)pthread_mutex_lock(&s->lock);
    if (!s->state.ready) {
        r = error_set(err, ERR_UNAVAILABLE, "%s", s->state.reason);
        err->retry_after_s = RETRY_MS / 1000 + 1;
    }
    (void)pthread_mutex_unlock(&s->lock);
    return r;
}

void service_wait_first(struct service *s)
{
    (void)pthread_mutex_lock(&s->lock);
    while (!s->tried)
        (void)pthread_cond_wait(&s->changed, &s->lock);
    (void)pthread_mutex_unlock(&s->lock);
}

static void set_unready(struct service *s, const struct error *err)
{
    (void)pthread_mutex_lock(&s->lock);
    bool news = s->state.ready || strcmp(s->state.reason, err->msg) != 0;
    s->state.ready = false;
    s->state.fatal = err->kind == ERR_FORBIDDEN;
    s->tried = true;
    (void)snprintf(s->state.reason, sizeof s->state.reason, "%s", err->msg);
    (void)pthread_cond_broadcast(&s->changed);
    (void)pthread_mutex_unlock(&s->lock);
    if (news)
        log_error("not ready: %s", err->msg);
}

static void set_ready(struct service *s, const struct engine_info *info, json_t *manifest)
{
    (void)pthread_mutex_lock(&s->lock);
    struct service_state *st = &s->state;
    st->ready = true;
    s->tried = true;
    st->reason[0] = '\0';
    (void)snprintf(st->engine_name, sizeof st->engine_name, "%s", info->name);
    (void)snprintf(st->engine_version, sizeof st->engine_version, "%s", info->version);
    (void)snprintf(st->api_version, sizeof st->api_version, "%s", info->api_version);
    if (manifest) {
        json_decref(st->manifest);
        st->manifest = json_incref(manifest);
    }
    (void)pthread_cond_broadcast(&s->changed);
    (void)pthread_mutex_unlock(&s->lock);
    log_info("ready: %s %s, API %s", info->name, info->version, info->api_version);
}

static void on_engine_event(void *state, const struct engine_event *event)
{
    struct service *s = state;
    struct error err = { 0 };
    auto_free char *reason = NULL;

    switch (event->kind) {
    case ENGINE_EVENT_DIED:
        reason = xasprintf("its sandbox ended (exit code %lld)", (long long)event->exit_code);
        session_table_container_died(s->table, event->container_id, reason);
        break;
    case ENGINE_EVENT_RECONNECTED:
        if (session_table_reconcile(s->table, &err) < 0)
            log_warn("%s", err.msg);
        break;
    case ENGINE_EVENT_OOM: /* the run that is under way says so by itself */
    case ENGINE_EVENT_PAUSED:
        break;
    }
}

static bool has_manifest(struct service *s)
{
    (void)pthread_mutex_lock(&s->lock);
    bool has = s->state.manifest != NULL;
    (void)pthread_mutex_unlock(&s->lock);
    return has;
}

/* Everything from the engine's first answer to the first session. Recovery comes before any call is let in.
 */
static int become_ready(struct service *s, struct error *err)
{
    struct engine *e = s->host.engine;
    struct engine_info info = { 0 };
    json_auto_t *labels = NULL;
    CLEANUP(probe_result_done) struct probe_result probe = { 0 };
    auto_free char *label = xasprintf(SANDBOX_LABEL_INSTANCE "=%s", s->host.instance);

    if (e->ops->ping(e, &info, err) < 0)
        return -1;
    if (e->ops->image_find(e, s->host.config->sandbox_image, &labels, err) < 0) {
        if (err->kind == ERR_NOT_FOUND)
            return error_set(err, ERR_UNAVAILABLE,
                             "the engine has no image %s: run make images, or set SANDBOX_IMAGE",
                             s->host.config->sandbox_image);
        return -1;
    }
    if (!has_manifest(s)) {
        if (session_table_recover(s->table, err) < 0 || probe_run(&s->host, &probe, err) < 0)
            return -1;
    } else if (session_table_reconcile(s->table, err) < 0) {
        return -1;
    }
    if (!s->following) {
        if (e->ops->follow(e, label, on_engine_event, s, err) < 0)
            return -1;
        s->following = true;
    }
    set_ready(s, &info, probe.manifest);
    return 0;
}

/* The engine still answers? A service that is ready says at once when it does not. */
static void check_engine(struct service *s)
{
    struct engine_info info;
    struct error err = { 0 };

    if (s->host.engine->ops->ping(s->host.engine, &info, &err) < 0)
        set_unready(s, &err);
}

static bool is_ready(struct service *s)
{
    (void)pthread_mutex_lock(&s->lock);
    bool ready = s->state.ready;
    (void)pthread_mutex_unlock(&s->lock);
    return ready;
}

static bool pause_or_stop(struct service *s, int64_t ms)
{
    int64_t until = clock_mono_ms() + ms;
    struct timespec ts = { .tv_sec = until / 1000, .tv_nsec = until % 1000 * 1000000 };

    (void)pthread_mutex_lock(&s->lock);
    while (!s->stopping && clock_mono_ms() < until)
        (void)pthread_cond_timedwait(&s->changed, &s->lock, &ts);
    bool stop = s->stopping;
    (void)pthread_mutex_unlock(&s->lock);
    return stop;
}

static void *service_thread(void *arg)
{
    struct service *s = arg;
    struct error err = { 0 };

    do {
        if (is_ready(s)) {
            check_engine(s);
            session_table_tick(s->table);
        } else if (become_ready(s, &err) < 0) {
            set_unready(s, &err);
        }
    } while (!pause_or_stop(s, is_ready(s) ? TICK_MS : RETRY_MS));
    return NULL;
}

int service_start(struct session_table *t, struct service **ret, struct error *err)
{
    const struct session_env *env = session_table_env(t);
    struct service *s = xcalloc(1, sizeof *s);
    pthread_condattr_t attr;

    s->table = t;
    s->host = (struct sandbox_host){ env->engine, env->config, env->instance, env->boxes_dir };
    (void)pthread_mutex_init(&s->lock, NULL);
    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&s->changed, &attr);
    (void)pthread_condattr_destroy(&attr);
    (void)snprintf(s->state.reason, sizeof s->state.reason, "starting: the sandbox is being probed");
    int rc = pthread_create(&s->thread, NULL, service_thread, s);
    if (rc != 0) {
        free(s);
        return error_errno(err, rc, "start a thread");
    }
    *ret = s;
    return 0;
}

void service_stop(struct service *s)
{
    if (!s)
        return;
    (void)pthread_mutex_lock(&s->lock);
    s->stopping = true;
    (void)pthread_cond_broadcast(&s->changed);
    (void)pthread_mutex_unlock(&s->lock);
    (void)pthread_join(s->thread, NULL);
}

void service_free(struct service *s)
{
    if (!s)
        return;
    service_state_done(&s->state);
    (void)pthread_cond_destroy(&s->changed);
    (void)pthread_mutex_destroy(&s->lock);
    free(s);
}
