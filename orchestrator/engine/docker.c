#include "orchestrator/engine/docker.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>

#include "common/clock.h"
#include "common/fd.h"
#include "common/log.h"

#define PING_MS 5000L
#define READ_MS 10000L
#define CHANGE_MS 60000L
#define REMOVE_POLL_MS 50

#define RUNNER_SOCKET "runner.sock"

static struct docker *docker_of(struct engine *e) { return (struct docker *)e; }

int docker_exchange(const struct docker *d, const struct http_call *call, struct http_reply *ret,
                    struct error *err)
{
    if (http_client(&d->endpoint, call, ret, err) == 0)
        return 0;
    docker_host_explain(&d->endpoint, ret, err);
    return -1;
}

/* One call to the versioned API. */
static int call_api(struct docker *d, const char *method, const char *path, const json_t *body,
                    long timeout_ms, struct http_reply *ret, struct error *err)
{
    auto_free char *versioned = NULL;

    *ret = (struct http_reply){ 0 };
    if (docker_path(d, path, &versioned, err) < 0)
        return -1;
    struct http_call call = { .method = method, .path = versioned, .body = body, .timeout_ms = timeout_ms };
    return docker_exchange(d, &call, ret, err);
}

static char *container_path(const char *id, const char *what)
{
    auto_free char *escaped = docker_escape(id, "");

    return xasprintf("/containers/%s%s", escaped, what);
}

/* An engine that accepts and stays mute is as good as away. */
static int ask(const struct docker *d, const char *path, const int *stop_fd, struct http_reply *ret,
               struct error *err)
{
    struct http_call call = { .method = "GET", .path = path, .timeout_ms = PING_MS, .stop_fd = stop_fd };

    if (docker_exchange(d, &call, ret, err) == 0)
        return 0;
    if (err->kind == ERR_TIMEOUT)
        err->kind = ERR_UNAVAILABLE;
    return -1;
}

int docker_settle_api(struct docker *d, const int *stop_fd, struct docker_version *ret, struct error *err)
{
    auto_reply struct http_reply ping = { 0 }, version = { 0 };
    struct docker_version v = { 0 };
    char api[DOCKER_API_SIZE];

    if (ask(d, "/_ping", stop_fd, &ping, err) < 0 || ask(d, "/version", stop_fd, &version, err) < 0)
        return -1;
    if (docker_read_version(&version.body, &v, err) < 0)
        return -1;
    if (ping.api_version[0] != '\0') /* what the engine accepts, where a proxy answers /version for it */
        (void)stpcpy(v.api, ping.api_version);
    if (docker_negotiate(&v, api, err) < 0)
        return -1;
    v.podman = str_starts(ping.server, "Libpod/");
    (void)pthread_mutex_lock(&d->lock);
    (void)stpcpy(d->api, api);
    (void)pthread_mutex_unlock(&d->lock);
    *ret = v;
    return 0;
}

static void current_api(struct docker *d, char out[DOCKER_API_SIZE])
{
    (void)pthread_mutex_lock(&d->lock);
    (void)stpcpy(out, d->api);
    (void)pthread_mutex_unlock(&d->lock);
}

int docker_path(struct docker *d, const char *path, char **ret, struct error *err)
{
    struct docker_version ignored;
    char api[DOCKER_API_SIZE];

    current_api(d, api);
    if (api[0] == '\0') {
        if (docker_settle_api(d, NULL, &ignored, err) < 0)
            return -1;
        current_api(d, api);
    }
    *ret = xasprintf("/v%s%s", api, path);
    return 0;
}

static int ping(struct engine *e, struct engine_info *ret, struct error *err)
{
    struct docker *d = docker_of(e);
    auto_reply struct http_reply reply = { 0 };
    struct docker_version version = { 0 };
    struct engine_info info = { 0 };

    if (docker_settle_api(d, NULL, &version, err) < 0)
        return -1;
    if (call_api(d, "GET", "/info", NULL, READ_MS, &reply, err) < 0)
        return -1;
    if (docker_read_info(&reply.body, &info, err) < 0)
        return -1;
    (void)stpcpy(info.name, version.podman ? "Podman" : "Docker Engine");
    (void)stpcpy(info.version, version.version);
    current_api(d, info.api_version);
    *ret = info;
    return 0;
}

static int image_find(struct engine *e, const char *image, json_t **ret_labels, struct error *err)
{
    auto_reply struct http_reply reply = { 0 };
    auto_free char *name = docker_escape(image, "/:@");
    auto_free char *path = xasprintf("/images/%s/json", name);

    if (call_api(docker_of(e), "GET", path, NULL, READ_MS, &reply, err) < 0)
        return -1;
    return docker_read_image(&reply.body, ret_labels, err);
}

/* A limit that the kernel lacks is only a warning to the engine. Said once: every sandbox would repeat it. */
static void log_warnings(struct docker *d, const json_t *warnings)
{
    enum log_level level = atomic_exchange(&d->warned, true) ? LOG_LEVEL_DEBUG : LOG_LEVEL_WARN;
    size_t i;
    const json_t *v;

    json_array_foreach(warnings, i, v) if (json_is_string(v))
        log_write(level, "engine", "the engine warns about a sandbox: %s", json_string_value(v));
}

static int create(struct engine *e, const struct engine_spec *spec, char ret_id[ENGINE_ID_SIZE],
                  struct error *err)
{
    auto_reply struct http_reply reply = { 0 };
    json_auto_t *body = docker_spec_json(spec);
    json_auto_t *warnings = NULL;
    auto_free char *name = docker_escape(spec->name, "");
    auto_free char *path = xasprintf("/containers/create?name=%s", name);

    if (call_api(docker_of(e), "POST", path, body, CHANGE_MS, &reply, err) < 0)
        return -1;
    if (docker_read_created(&reply.body, ret_id, &warnings, err) < 0)
        return -1;
    if (warnings)
        log_warnings(docker_of(e), warnings);
    return 0;
}

static int start(struct engine *e, const char *id, struct error *err)
{
    auto_reply struct http_reply reply = { 0 };
    auto_free char *path = container_path(id, "/start");

    /* 304, running already, is a success, too. */
    return call_api(docker_of(e), "POST", path, NULL, CHANGE_MS, &reply, err);
}

/* 409 means that somebody removes it right now, and whoever asks again meanwhile gets 409 again; then 404. */
static int remove_container(struct engine *e, const char *id, struct error *err)
{
    const struct timespec pause = { .tv_nsec = REMOVE_POLL_MS * 1000000L };
    auto_free char *path = container_path(id, "?force=1&v=1");
    int64_t now = clock_mono_ms(), deadline = now + CHANGE_MS;

    for (; now < deadline; now = clock_mono_ms()) {
        auto_reply struct http_reply reply = { 0 };
        if (call_api(docker_of(e), "DELETE", path, NULL, (long)(deadline - now), &reply, err) == 0)
            return 0;
        if (err->kind == ERR_NOT_FOUND)
            return 0;
        if (err->kind != ERR_CONFLICT)
            return -1;
        (void)nanosleep(&pause, NULL);
    }
    err->kind = ERR_TIMEOUT;
    return error_wrap(err, "not removed within %ld s", CHANGE_MS / 1000);
}

static int list(struct engine *e, const char *label, struct engine_containers *ret, struct error *err)
{
    auto_reply struct http_reply reply = { 0 };
    auto_free char *filters = docker_filters(label, false);
    auto_free char *path = xasprintf("/containers/json?all=1&filters=%s", filters);

    if (call_api(docker_of(e), "GET", path, NULL, READ_MS, &reply, err) < 0)
        return -1;
    return docker_read_list(&reply.body, ret, err);
}

static int inspect(struct engine *e, const char *id, struct engine_inspection *ret, struct error *err)
{
    auto_reply struct http_reply reply = { 0 };
    auto_free char *path = container_path(id, "/json");

    if (call_api(docker_of(e), "GET", path, NULL, READ_MS, &reply, err) < 0)
        return -1;
    return docker_read_inspection(&reply.body, ret, err);
}

static int follow(struct engine *e, const char *label, engine_event_fn *fn, void *state, struct error *err)
{
    return docker_follow(docker_of(e), label, fn, state, err);
}

/*
 * Sandbox code can put any socket of its own where the runner's was, but never one of the host's: links are
 * not followed, and no sandbox runs as root, so a listener that does (in a directory that is not root's) is
 * not its runner.
 */
static int check_peer(int fd, int dir_fd, struct error *err)
{
    struct ucred peer;
    socklen_t size = sizeof peer;
    struct stat dir;

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0)
        return error_errno(err, errno, "SO_PEERCRED");
    if (fstat(dir_fd, &dir) < 0)
        return error_errno(err, errno, "fstat");
    if (peer.uid == 0 && dir.st_uid != 0)
        return error_set(err, ERR_UPSTREAM, "what listens at " RUNNER_SOCKET " runs as root: not a runner");
    return 0;
}

static int connect_runner(struct engine *e, const char *run_dir, int *ret_fd, struct error *err)
{
    auto_close int dir_fd = open(run_dir, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    auto_close int fd = -1;

    (void)e; /* the engine is on this machine: the directory is here, too */
    if (dir_fd < 0)
        return error_errno(err, errno, "sandbox directory %s", run_dir);
    if (fd_unix_connect_at(dir_fd, RUNNER_SOCKET, &fd, err) < 0)
        return -1;
    if (check_peer(fd, dir_fd, err) < 0)
        return -1;
    *ret_fd = steal_fd(&fd);
    return 0;
}

static void close_engine(struct engine *e)
{
    struct docker *d = docker_of(e);

    docker_unfollow(d);
    (void)pthread_mutex_destroy(&d->lock);
    free(d->socket_path);
    free(d->base_url);
    free(d);
}

static const struct engine_ops docker_ops = {
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

int engine_docker_open(const struct engine_docker_options *options, struct engine **ret, struct error *err)
{
    char *socket_path = NULL, *base_url = NULL;

    if (docker_host_resolve(options, &socket_path, &base_url, err) < 0)
        return -1;
    struct docker *d = xcalloc(1, sizeof *d);
    *d = (struct docker){
        .base = { .ops = &docker_ops },
        .endpoint = { .socket_path = socket_path, .base_url = base_url },
        .socket_path = socket_path,
        .base_url = base_url,
        .lock = PTHREAD_MUTEX_INITIALIZER,
        .follower = { .stop_fd = -1 },
    };
    *ret = &d->base;
    return 0;
}
