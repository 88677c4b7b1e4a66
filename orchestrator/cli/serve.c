/* carrel serve: puts the parts together, runs until a signal, takes them apart in reverse. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "common/fd.h"
#include "common/id.h"
#include "orchestrator/access/access.h"
#include "orchestrator/api/api.h"
#include "orchestrator/cli/cli.h"
#include "orchestrator/http/client.h"
#include "orchestrator/http/server.h"
#include "orchestrator/session/execution.h"
#include "orchestrator/session/service.h"

#define IDLE_TIMEOUT_S 60

struct server {
    struct config config;
    struct access *access;
    int lock_fd; /* one service per data directory */
    char instance[ID_SIZE];
    char *boxes_dir;
    struct db *db;
    struct store *store;
    struct engine *engine;
    struct session_env env;
    struct session_table *sessions;
    struct service *service;
    struct app app;
    struct http_service http;
    struct http_server *listener;
};

/* ---- the data directory ---- */

static int make_dir(const char *path, mode_t mode, struct error *err)
{
    auto_free char *copy = xstrdup(path);

    for (char *p = strchr(copy + 1, '/'); p; p = strchr(p + 1, '/')) {
        *p = '\0';
        if (mkdir(copy, 0755) < 0 && errno != EEXIST)
            return error_errno(err, errno, "create %s", copy);
        *p = '/';
    }
    if (mkdir(path, mode) < 0 && errno != EEXIST)
        return error_errno(err, errno, "create %s", path);
    return 0;
}

static int take_lock(struct server *s, struct error *err)
{
    auto_free char *path = xasprintf("%s/lock", s->config.data_dir);

    s->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (s->lock_fd < 0)
        return error_errno(err, errno, "open %s", path);
    if (flock(s->lock_fd, LOCK_EX | LOCK_NB) < 0)
        return error_set(err, ERR_CONFLICT,
                         "another service runs on DATA_DIR=%s; stop it or set another DATA_DIR and PORT",
                         s->config.data_dir);
    return 0;
}

/* The name of this data directory on every container of ours; made once. */
static int read_instance(struct server *s, struct error *err)
{
    auto_free char *path = xasprintf("%s/instance", s->config.data_dir);
    char text[ID_SIZE] = "";
    size_t n = 0;

    auto_close int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0)
        return error_errno(err, errno, "open %s", path);
    if (fd_read_full(fd, text, ID_LEN, &n, err) < 0)
        return error_wrap(err, "read %s", path);
    if (!id_valid(text)) {
        id_new(text);
        text[0] = 'c'; /* container names begin with a letter or digit, and this is part of one */
        if (ftruncate(fd, 0) < 0 || pwrite(fd, text, ID_LEN, 0) != ID_LEN || fsync(fd) < 0)
            return error_errno(err, errno, "write %s", path);
    }
    memcpy(s->instance, text, sizeof s->instance);
    return 0;
}

static int open_data(struct server *s, struct error *err)
{
    auto_free char *db_path = xasprintf("%s/carrel.db", s->config.data_dir);

    s->boxes_dir = xasprintf("%s/boxes", s->config.uploads_dir);
    if (make_dir(s->config.data_dir, 0700, err) < 0 || take_lock(s, err) < 0 || read_instance(s, err) < 0 ||
        make_dir(s->config.uploads_dir, 0700, err) < 0 || make_dir(s->boxes_dir, 0711, err) < 0)
        return -1;
    if (db_open(db_path, &s->db, err) < 0)
        return -1;
    return store_open(s->config.uploads_dir, s->db, &s->store, err);
}

/* ---- start and stop ---- */

static int start_parts(struct server *s, struct error *err)
{
    const struct engine_docker_options docker = { .host = s->config.docker_host[0] ? s->config.docker_host
                                                                                   : NULL,
                                                  .xdg_runtime_dir = s->config.xdg_runtime_dir,
                                                  .home = s->config.home };

    if (http_client_setup(err) < 0 || engine_docker_open(&docker, &s->engine, err) < 0)
        return -1;
    s->env = (struct session_env){ &s->config, s->db, s->store, s->engine, s->instance, s->boxes_dir };
    if (session_table_new(&s->env, &s->sessions, err) < 0 || service_start(s->sessions, &s->service, err) < 0)
        return -1;
    s->app = (struct app){ &s->config, s->access, s->db, s->store, s->sessions, s->service };
    s->http = (struct http_service){ .app = &s->app,
                                     .guard = api_guard,
                                     .principal_free = principal_free,
                                     .max_json_bytes = (size_t)s->config.max_request_mb * 1024 * 1024,
                                     .log_requests = s->config.log_requests };
    s->http.routes = api_routes(&s->http.route_count);
    const struct http_server_options opt = { .host = s->config.host,
                                             .port = (uint16_t)s->config.port,
                                             .max_connections = (unsigned)s->config.max_connections,
                                             .idle_timeout_s = IDLE_TIMEOUT_S,
                                             .service = &s->http };
    return http_server_start(&opt, &s->listener, err);
}

static void stop_parts(struct server *s)
{
    if (s->listener)
        http_server_quiesce(s->listener);
    if (s->sessions)
        IGNORE(execution_cancel_all(s->sessions)); /* answers go out before the listener stops */
    http_server_stop(s->listener);
    if (s->sessions && !execution_cancel_all(s->sessions)) {
        log_error("stopping without waiting any longer: a sandbox does not let go");
        _exit(1); /* its thread still uses what would be freed; the next start takes the sandboxes over */
    }
    service_stop(s->service);
    engine_close(s->engine);
    service_free(s->service);
    session_table_free(s->sessions);
    store_close(s->store);
    db_close(s->db);
    http_client_teardown();
    access_close(s->access);
    free(s->boxes_dir);
    if (s->lock_fd >= 0)
        (void)close(s->lock_fd);
    config_done(&s->config);
}

/* A protection that is not in force ends the service; an engine that is away does not. */
static int check_probe(struct server *s, struct error *err)
{
    struct service_state state = { 0 };
    int r = 0;

    service_wait_first(s->service);
    service_state_get(s->service, &state);
    if (state.fatal)
        r = error_set(err, ERR_FORBIDDEN, "%s", state.reason);
    service_state_done(&state);
    return r;
}

static int run(struct server *s, struct error *err)
{
    sigset_t signals;
    int caught = 0;

    (void)sigemptyset(&signals);
    (void)sigaddset(&signals, SIGTERM);
    (void)sigaddset(&signals, SIGINT);
    (void)pthread_sigmask(SIG_BLOCK, &signals, NULL); /* before threads: they inherit it */
    if (config_load(&s->config, err) < 0)
        return -1;
    log_setup(s->config.log_level, s->config.log_format);
    if (access_open(&s->config, &s->access, err) < 0 || open_data(s, err) < 0 || start_parts(s, err) < 0 ||
        check_probe(s, err) < 0)
        return -1;
    log_info("listening on http://%s:%u (%s)", s->config.host, (unsigned)http_server_port(s->listener),
             access_is_open(s->access) ? "open" : access_methods(s->access));
    (void)sigwait(&signals, &caught);
    log_info("stopping on signal %d; idle sandboxes stay for the next start", caught);
    return 0;
}

int cli_serve(int argc, char **argv)
{
    struct server s = { .lock_fd = -1 };
    struct error err = { 0 };

    (void)argv;
    if (argc != 1) {
        fprintf(stderr,
                "usage: carrel serve\nSettings come from the environment; carrel config lists them.\n");
        return 2;
    }
    int r = run(&s, &err);
    if (r < 0)
        log_error("cannot serve: %s", err.msg);
    stop_parts(&s);
    return r < 0 ? 1 : 0;
}
