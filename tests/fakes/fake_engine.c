#include "tests/fakes/fake_engine.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#define MAX_CONTAINERS 256

struct container {
    char id[ENGINE_ID_SIZE];
    char *name;
    json_t *labels;
    char *mounts[16]; /* sources */
    size_t mount_count;
    struct engine_inspection seen;
};

struct failure {
    int times;
    enum error_kind kind;
    char msg[200];
};

struct fake_engine {
    struct engine base;
    pthread_mutex_t lock;                         /* guards all below; not held while a callback runs */
    struct container *containers[MAX_CONTAINERS]; /* NULL: a free place */
    unsigned next_id;
    struct failure failures[FAKE_CALL_COUNT];
    int delays_ms[FAKE_CALL_COUNT];
    size_t calls[FAKE_CALL_COUNT];
    void (*lie)(struct engine_inspection *);
    fake_engine_runner_fn *runner;
    void *runner_state;
    engine_event_fn *events;
    void *events_state;
};

static struct fake_engine *fake_of(struct engine *e) { return (struct fake_engine *)e; }

/* Counts the call and takes the lock; fails as programmed, without the lock. */
static int enter(struct fake_engine *f, enum fake_engine_call call, struct error *err)
{
    (void)pthread_mutex_lock(&f->lock);
    f->calls[call]++;
    int delay_ms = f->delays_ms[call];
    struct failure *failure = &f->failures[call];
    bool fails = failure->times != 0;
    if (fails) {
        if (failure->times > 0)
            failure->times--;
        error_set(err, failure->kind, "%s", failure->msg);
    }
    if (delay_ms > 0) {
        (void)pthread_mutex_unlock(&f->lock);
        (void)nanosleep(&(struct timespec){ delay_ms / 1000, delay_ms % 1000 * 1000000L }, NULL);
        (void)pthread_mutex_lock(&f->lock);
    }
    if (!fails)
        return 0;
    (void)pthread_mutex_unlock(&f->lock);
    return -1;
}

static void leave(struct fake_engine *f) { (void)pthread_mutex_unlock(&f->lock); }

static struct container **find_slot(struct fake_engine *f, const char *id)
{
    for (size_t i = 0; i < MAX_CONTAINERS; i++)
        if (f->containers[i] && (str_eq(f->containers[i]->id, id) || str_eq(f->containers[i]->name, id)))
            return &f->containers[i];
    return NULL;
}

static int not_found(const char *id, struct error *err)
{
    return error_set(err, ERR_NOT_FOUND, "No such container: %s (HTTP 404)", id);
}

static void container_free(struct container *c)
{
    free(c->name);
    json_decref(c->labels);
    for (size_t i = 0; i < c->mount_count; i++)
        free(c->mounts[i]);
    free(c);
}

static struct container *container_add(struct fake_engine *f, const char *name,
                                       const struct engine_label *labels, size_t label_count)
{
    struct container **slot = f->containers;

    while (*slot)
        if (++slot == f->containers + MAX_CONTAINERS)
            abort(); /* the test is out of hand */
    struct container *c = *slot = xcalloc(1, sizeof *c);
    (void)snprintf(c->id, sizeof c->id, "%064x", ++f->next_id);
    c->name = xstrdup(name);
    c->labels = json_object();
    for (size_t i = 0; i < label_count; i++)
        (void)json_object_set_new(c->labels, labels[i].key, jsonx_str(labels[i].value));
    c->seen.state = ENGINE_STOPPED;
    return c;
}

/* Tells the follower, if there is one. */
static void tell(struct fake_engine *f, const struct engine_event *event)
{
    (void)pthread_mutex_lock(&f->lock);
    engine_event_fn *fn = f->events;
    void *state = f->events_state;
    (void)pthread_mutex_unlock(&f->lock);
    if (fn)
        fn(state, event);
}

/* ---- the interface ---- */

static int ping(struct engine *e, struct engine_info *ret, struct error *err)
{
    if (enter(fake_of(e), FAKE_PING, err) < 0)
        return -1;
    *ret = (struct engine_info){ "Fake Engine", "1.0", "1.41", true, true, true, false, false, "2" };
    leave(fake_of(e));
    return 0;
}

static int image_find(struct engine *e, const char *image, json_t **ret_labels, struct error *err)
{
    (void)image;
    if (enter(fake_of(e), FAKE_IMAGE_FIND, err) < 0)
        return -1;
    *ret_labels = json_object();
    leave(fake_of(e));
    return 0;
}

static int create(struct engine *e, const struct engine_spec *spec, char ret_id[ENGINE_ID_SIZE],
                  struct error *err)
{
    struct fake_engine *f = fake_of(e);

    if (enter(f, FAKE_CREATE, err) < 0)
        return -1;
    if (find_slot(f, spec->name)) {
        leave(f);
        return error_set(err, ERR_CONFLICT, "The container name \"%s\" is already in use (HTTP 409)",
                         spec->name);
    }
    struct container *c = container_add(f, spec->name, spec->labels, spec->label_count);
    for (size_t i = 0; i < spec->mount_count && i < ARRAY_LEN(c->mounts); i++)
        c->mounts[c->mount_count++] = xstrdup(spec->mounts[i].source);
    c->seen.memory_bytes = c->seen.memory_swap_bytes = spec->memory_bytes;
    c->seen.nano_cpus = spec->nano_cpus;
    c->seen.pids = spec->pids;
    c->seen.shm_bytes = spec->shm_bytes;
    c->seen.read_only_root = c->seen.no_new_privileges = c->seen.all_caps_dropped = true;
    (void)snprintf(c->seen.network, sizeof c->seen.network, "%s", spec->network);
    (void)snprintf(c->seen.runtime, sizeof c->seen.runtime, "%s", spec->runtime ? spec->runtime : "runc");
    (void)snprintf(c->seen.user, sizeof c->seen.user, "%u:%u", spec->uid, spec->gid);
    (void)snprintf(c->seen.image_id, sizeof c->seen.image_id, "sha256:%064x", 1u);
    (void)stpcpy(ret_id, c->id);
    leave(f);
    return 0;
}

static int start(struct engine *e, const char *id, struct error *err)
{
    struct fake_engine *f = fake_of(e);

    if (enter(f, FAKE_START, err) < 0)
        return -1;
    struct container **slot = find_slot(f, id);
    if (slot)
        (*slot)->seen.state = ENGINE_RUNNING;
    leave(f);
    return slot ? 0 : not_found(id, err);
}

static int remove_container(struct engine *e, const char *id, struct error *err)
{
    struct fake_engine *f = fake_of(e);
    char known_id[ENGINE_ID_SIZE];

    if (enter(f, FAKE_REMOVE, err) < 0)
        return -1;
    struct container **slot = find_slot(f, id);
    if (!slot) {
        leave(f);
        return 0;
    }
    (void)stpcpy(known_id, (*slot)->id);
    bool was_alive = (*slot)->seen.state != ENGINE_STOPPED;
    container_free(steal_ptr(slot));
    leave(f);
    if (was_alive)
        tell(f, &(struct engine_event){ ENGINE_EVENT_DIED, known_id, 137 });
    return 0;
}

/* "key=value", or "key" for any value. */
static bool has_label(const struct container *c, const char *label)
{
    const char *equals = strchrnul(label, '=');
    auto_free char *key = xstrndup(label, (size_t)(equals - label));
    const char *value = json_string_value(json_object_get(c->labels, key));

    return value && (*equals == '\0' || str_eq(value, equals + 1));
}

static int list(struct engine *e, const char *label, struct engine_containers *ret, struct error *err)
{
    struct fake_engine *f = fake_of(e);

    if (enter(f, FAKE_LIST, err) < 0)
        return -1;
    struct engine_containers found = { .items = xcalloc(MAX_CONTAINERS, sizeof *found.items) };
    for (size_t i = 0; i < MAX_CONTAINERS; i++) {
        const struct container *c = f->containers[i];
        if (!c || !has_label(c, label))
            continue;
        struct engine_container *item = &found.items[found.count++];
        (void)stpcpy(item->id, c->id);
        item->state = c->seen.state;
        item->labels = json_deep_copy(c->labels);
    }
    leave(f);
    *ret = found;
    return 0;
}

static int inspect(struct engine *e, const char *id, struct engine_inspection *ret, struct error *err)
{
    struct fake_engine *f = fake_of(e);

    if (enter(f, FAKE_INSPECT, err) < 0)
        return -1;
    struct container **slot = find_slot(f, id);
    if (slot) {
        *ret = (*slot)->seen;
        if (f->lie)
            f->lie(ret);
    }
    leave(f);
    return slot ? 0 : not_found(id, err);
}

static int follow(struct engine *e, const char *label, engine_event_fn *fn, void *state, struct error *err)
{
    struct fake_engine *f = fake_of(e);

    (void)label;
    if (enter(f, FAKE_FOLLOW, err) < 0)
        return -1;
    f->events = fn;
    f->events_state = state;
    leave(f);
    fake_engine_reconnect(e);
    return 0;
}

/* Which running container was given this directory. */
static const struct container *find_mount(const struct fake_engine *f, const char *run_dir)
{
    for (size_t i = 0; i < MAX_CONTAINERS; i++) {
        const struct container *c = f->containers[i];
        for (size_t k = 0; c && c->seen.state == ENGINE_RUNNING && k < c->mount_count; k++)
            if (str_eq(c->mounts[k], run_dir))
                return c;
    }
    return NULL;
}

static int connect_runner(struct engine *e, const char *run_dir, int *ret_fd, struct error *err)
{
    struct fake_engine *f = fake_of(e);
    char id[ENGINE_ID_SIZE] = "";
    int pair[2];

    if (enter(f, FAKE_CONNECT, err) < 0)
        return -1;
    const struct container *c = find_mount(f, run_dir);
    if (c)
        (void)stpcpy(id, c->id);
    fake_engine_runner_fn *runner = f->runner;
    void *state = f->runner_state;
    leave(f);
    if (!c || !runner)
        return error_set(err, ERR_NOT_FOUND, "socket runner.sock: No such file or directory");
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return error_set(err, ERR_INTERNAL, "socketpair");
    *ret_fd = pair[0];
    runner(state, id, run_dir, pair[1]);
    return 0;
}

static void close_engine(struct engine *e)
{
    struct fake_engine *f = fake_of(e);

    for (size_t i = 0; i < MAX_CONTAINERS; i++)
        if (f->containers[i])
            container_free(f->containers[i]);
    (void)pthread_mutex_destroy(&f->lock);
    free(f);
}

static const struct engine_ops fake_ops = {
    .ping = ping,
    .image_find = image_find,
    .create = create,
    .start = start,
    .remove = remove_container,
    .list = list,
    .inspect = inspect,
    .follow = follow,
    .connect = connect_runner,
    .close = close_engine,
};

/* ---- for the test ---- */

struct engine *fake_engine_new(void)
{
    struct fake_engine *f = xcalloc(1, sizeof *f);

    f->base.ops = &fake_ops;
    (void)pthread_mutex_init(&f->lock, NULL);
    return &f->base;
}

void fake_engine_set_runner(struct engine *e, fake_engine_runner_fn *fn, void *state)
{
    struct fake_engine *f = fake_of(e);

    (void)pthread_mutex_lock(&f->lock);
    f->runner = fn;
    f->runner_state = state;
    leave(f);
}

void fake_engine_fail(struct engine *e, enum fake_engine_call call, int times, enum error_kind kind,
                      const char *msg)
{
    struct failure *failure = &fake_of(e)->failures[call];

    (void)pthread_mutex_lock(&fake_of(e)->lock);
    *failure = (struct failure){ .times = times, .kind = kind };
    (void)snprintf(failure->msg, sizeof failure->msg, "%s", msg);
    leave(fake_of(e));
}

void fake_engine_delay(struct engine *e, enum fake_engine_call call, int ms)
{
    (void)pthread_mutex_lock(&fake_of(e)->lock);
    fake_of(e)->delays_ms[call] = ms;
    leave(fake_of(e));
}

void fake_engine_lie(struct engine *e, void (*edit)(struct engine_inspection *))
{
    (void)pthread_mutex_lock(&fake_of(e)->lock);
    fake_of(e)->lie = edit;
    leave(fake_of(e));
}

void fake_engine_die(struct engine *e, const char *id, int64_t exit_code, bool oom)
{
    struct fake_engine *f = fake_of(e);

    (void)pthread_mutex_lock(&f->lock);
    struct container **slot = find_slot(f, id);
    if (slot) {
        (*slot)->seen.state = ENGINE_STOPPED;
        (*slot)->seen.exit_code = exit_code;
        (*slot)->seen.oom_killed = oom;
    }
    leave(f);
    if (oom)
        tell(f, &(struct engine_event){ ENGINE_EVENT_OOM, id, 0 });
    tell(f, &(struct engine_event){ ENGINE_EVENT_DIED, id, exit_code });
}

void fake_engine_pause(struct engine *e, const char *id)
{
    struct fake_engine *f = fake_of(e);

    (void)pthread_mutex_lock(&f->lock);
    struct container **slot = find_slot(f, id);
    if (slot)
        (*slot)->seen.state = ENGINE_PAUSED;
    leave(f);
    tell(f, &(struct engine_event){ ENGINE_EVENT_PAUSED, id, 0 });
}

void fake_engine_reconnect(struct engine *e)
{
    tell(fake_of(e), &(struct engine_event){ .kind = ENGINE_EVENT_RECONNECTED });
}

void fake_engine_add(struct engine *e, const char *name, const struct engine_label *labels,
                     size_t label_count, enum engine_state state, const char *run_dir,
                     char ret_id[ENGINE_ID_SIZE])
{
    struct fake_engine *f = fake_of(e);

    (void)pthread_mutex_lock(&f->lock);
    struct container *c = container_add(f, name, labels, label_count);
    c->seen.state = state;
    if (run_dir)
        c->mounts[c->mount_count++] = xstrdup(run_dir);
    (void)stpcpy(ret_id, c->id);
    leave(f);
}

size_t fake_engine_calls(struct engine *e, enum fake_engine_call call)
{
    (void)pthread_mutex_lock(&fake_of(e)->lock);
    size_t n = fake_of(e)->calls[call];
    leave(fake_of(e));
    return n;
}

static size_t count(struct engine *e, bool with_stopped)
{
    struct fake_engine *f = fake_of(e);
    size_t n = 0;

    (void)pthread_mutex_lock(&f->lock);
    for (size_t i = 0; i < MAX_CONTAINERS; i++)
        if (f->containers[i] && (with_stopped || f->containers[i]->seen.state != ENGINE_STOPPED))
            n++;
    leave(f);
    return n;
}

size_t fake_engine_alive(struct engine *e) { return count(e, false); }
size_t fake_engine_total(struct engine *e) { return count(e, true); }

bool fake_engine_exists(struct engine *e, const char *id)
{
    (void)pthread_mutex_lock(&fake_of(e)->lock);
    bool found = find_slot(fake_of(e), id) != NULL;
    leave(fake_of(e));
    return found;
}
