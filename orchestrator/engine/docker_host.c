#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "orchestrator/engine/docker.h"

#define DEFAULT_SOCKET "/var/run/docker.sock"
#define DEFAULT_TCP_PORT "2375"

static bool is_socket(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISSOCK(st.st_mode);
}

/* The first place where an engine listens that lets us in; else the first where one listens; else the
 * default. */
static char *find_socket(const struct engine_docker_options *options)
{
    const char *home = options->home, *xdg = options->xdg_runtime_dir;
    auto_free char *rootless = xdg ? xasprintf("%s/docker.sock", xdg) : NULL;
    auto_free char *run = home ? xasprintf("%s/.docker/run/docker.sock", home) : NULL;
    auto_free char *desktop = home ? xasprintf("%s/.docker/desktop/docker.sock", home) : NULL;
    const char *const places[] = { DEFAULT_SOCKET, "/run/docker.sock", rootless, run, desktop };
    const char *closed = NULL;

    for (size_t i = 0; i < ARRAY_LEN(places); i++) {
        if (!places[i] || !is_socket(places[i]))
            continue;
        if (access(places[i], R_OK | W_OK) == 0)
            return xstrdup(places[i]);
        if (!closed)
            closed = places[i];
    }
    return xstrdup(closed ? closed : DEFAULT_SOCKET);
}

/* "host", "host:port" or "[v6]:port", perhaps with a "/" at the end. */
static int tcp_url(const char *scheme, const char *authority, char **ret, struct error *err)
{
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._:[]";
    size_t len = strspn(authority, allowed);

    if (len == 0 || (authority[len] != '\0' && !str_eq(authority + len, "/")))
        return error_set(err, ERR_INVALID, "DOCKER_HOST: expected host:port, got \"%.200s\"", authority);
    auto_free char *host = xstrndup(authority, len);
    const char *bracket = strrchr(host, ']');
    bool has_port = strchr(bracket ? bracket : host, ':') != NULL;
    *ret = xasprintf("%s://%s%s", scheme, host, has_port ? "" : ":" DEFAULT_TCP_PORT);
    return 0;
}

int docker_host_resolve(const struct engine_docker_options *options, char **ret_socket_path,
                        char **ret_base_url, struct error *err)
{
    static const struct {
        const char *prefix, *scheme;
    } schemes[] = { { "tcp://", "http" }, { "http://", "http" }, { "https://", "https" } };
    const char *host = options->host;

    *ret_base_url = NULL;
    *ret_socket_path = NULL;
    for (size_t i = 0; host && i < ARRAY_LEN(schemes); i++)
        if (str_starts(host, schemes[i].prefix))
            return tcp_url(schemes[i].scheme, host + strlen(schemes[i].prefix), ret_base_url, err);
    if (!host || *host == '\0')
        *ret_socket_path = find_socket(options);
    else if (str_starts(host, "unix:///"))
        *ret_socket_path = xstrdup(host + strlen("unix://"));
    else if (*host == '/')
        *ret_socket_path = xstrdup(host);
    else
        return error_set(err, ERR_INVALID,
                         "DOCKER_HOST: expected unix:///path or tcp://host:port, got \"%.200s\"", host);
    *ret_base_url = xstrdup("http://docker");
    return 0;
}

static void explain_no_connection(const char *where, int os_errno, struct error *err)
{
    char reason[sizeof err->msg];

    switch (os_errno) {
    case ENOENT:
        error_set(err, ERR_UNAVAILABLE,
                  "Docker Engine does not answer at %s: no such file. Install it (Debian: apt-get install "
                  "docker.io) "
                  "or start it (systemctl start docker), or set DOCKER_HOST.",
                  where);
        break;
    case EACCES:
    case EPERM:
        error_set(err, ERR_UNAVAILABLE,
                  "Docker Engine at %s does not let this user in: permission denied. Add the user to the "
                  "socket's group "
                  "(sudo usermod -aG docker USER, then log in again), or run as root, or set DOCKER_HOST.",
                  where);
        break;
    case ECONNREFUSED:
        error_set(err, ERR_UNAVAILABLE,
                  "Docker Engine does not answer at %s: connection refused. Start it (systemctl start "
                  "docker), or set "
                  "DOCKER_HOST.",
                  where);
        break;
    default:
        (void)stpcpy(reason, err->msg);
        error_set(err, ERR_UNAVAILABLE,
                  "Docker Engine does not answer at %s. Is it running, and DOCKER_HOST right?", reason);
    }
}

void docker_host_explain(const struct http_endpoint *to, const struct http_reply *reply, struct error *err)
{
    const char *where = to->socket_path ? to->socket_path : to->base_url;

    if (reply->status == 0 && err->kind == ERR_UNAVAILABLE)
        explain_no_connection(where, reply->os_errno, err);
    else if (reply->status == 403 && !str_starts(reply->content_type, "application/json"))
        error_set(
            err, ERR_UNAVAILABLE,
            "The Docker socket proxy at %s refused a call. Start it with CONTAINERS=1 POST=1 IMAGES=1 INFO=1 "
            "(EVENTS, PING and VERSION are on unless switched off).",
            where);
    else if (err->kind == ERR_UNAVAILABLE && reply->status >= 500)
        error_wrap(err, "What answers at %s has no Docker Engine behind it", where);
}
