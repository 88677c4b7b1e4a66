#include "orchestrator/http/listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <sys/socket.h>

#define BACKLOG 511

static int bind_to(const struct addrinfo *a, int *ret_fd)
{
    int on = 1, off = 0;
    auto_close int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) < 0)
        return -1;
    if (a->ai_family == AF_INET6 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) < 0)
        return -1;
    if (bind(fd, a->ai_addr, a->ai_addrlen) < 0 || listen(fd, BACKLOG) < 0)
        return -1;
    *ret_fd = steal_fd(&fd);
    return 0;
}

static uint16_t bound_port(int fd)
{
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } sa = { .v6 = { 0 } };
    socklen_t len = sizeof sa;

    (void)getsockname(fd, &sa.any, &len);
    return ntohs(sa.any.sa_family == AF_INET6 ? sa.v6.sin6_port : sa.v4.sin_port);
}

int listen_tcp(const char *host, uint16_t port, int *ret_fd, uint16_t *ret_port, struct error *err)
{
    const struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV };
    struct addrinfo *found = NULL;
    char service[8];
    int fd = -1;

    (void)snprintf(service, sizeof service, "%u", port);
    int failed = getaddrinfo(host, service, &hints, &found);
    if (failed)
        return error_set(err, ERR_INVALID, "cannot listen on %s: %s", host, gai_strerror(failed));
    for (const struct addrinfo *a = found; a && fd < 0; a = a->ai_next)
        IGNORE(bind_to(a, &fd));
    int errnum = errno;
    freeaddrinfo(found);
    if (fd < 0)
        return error_errno(err, errnum, "cannot listen on %s port %u", host, port);
    *ret_fd = fd;
    *ret_port = bound_port(fd);
    return 0;
}
