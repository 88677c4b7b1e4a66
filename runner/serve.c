#include "runner/serve.h"

#include <errno.h>
#include <sys/socket.h>

#include "common/fd.h"
#include "common/log.h"
#include "runner/connection.h"

static bool may_connect(const struct server *s, int fd)
{
    struct ucred peer = { 0 };
    socklen_t size = sizeof peer;

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0)
        return false;
    /* A process outside the pid namespace has no pid in it; those inside are the sandbox's programs. */
    return peer.pid == 0 || s->context->config->any_peer;
}

static void arm_orphan(struct server *s)
{
    loop_arm_in(&s->context->loop, &s->orphan, s->context->config->orphan_s * 1000);
}

static void on_orphan(struct timer *t)
{
    struct server *s = container_of(t, struct server, orphan);

    s->abandoned(s);
}

static void on_connect(struct watch *w, short revents)
{
    struct server *s = container_of(w, struct server, listening);
    int fd = accept4(w->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    (void)revents;
    if (fd < 0)
        return;
    if (s->count >= CONNECTIONS_MAX || !may_connect(s, fd)) {
        (void)close(fd);
        return;
    }
    loop_disarm(&s->context->loop, &s->orphan);
    connection_new(s, fd);
}

int server_init(struct server *s, struct context *context, struct executions *executions,
                struct python *python, void (*abandoned)(struct server *s), struct error *err)
{
    int fd = -1;

    if (fd_unix_listen(context->config->socket_path, 0600, &fd, err) < 0)
        return -1;
    *s = (struct server){
        .context = context,
        .executions = executions,
        .python = python,
        .listening = { .fd = fd, .events = POLLIN, .ready = on_connect },
        .orphan.fire = on_orphan,
        .abandoned = abandoned,
    };
    loop_watch(&context->loop, &s->listening);
    arm_orphan(s);
    return 0;
}

void server_done(struct server *s)
{
    while (s->first)
        connection_free(s->first);
    loop_disarm(&s->context->loop, &s->orphan);
    loop_unwatch(&s->context->loop, &s->listening);
    closep(&s->listening.fd);
    s->listening.fd = -1;
}

void server_flush(struct server *s)
{
    for (struct connection *c = s->first, *next; c; c = next) {
        next = c->next;
        if (!connection_send(c)) {
            connection_free(c);
            if (!s->first)
                arm_orphan(s);
        }
    }
}
