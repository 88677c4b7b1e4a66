#include "common/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>

#define CONNECT_TIMEOUT_S 2

int fd_write_all(int fd, const void *data, size_t len, struct error *err)
{
    const char *p = data;

    while (len > 0) {
        ssize_t n = write(fd, p, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return error_errno(err, errno, "write");
        p += n;
        len -= (size_t)n;
    }
    return 0;
}

int fd_read_full(int fd, void *data, size_t len, size_t *ret, struct error *err)
{
    size_t got = 0;

    while (got < len) {
        ssize_t n = read(fd, (char *)data + got, len - got);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return error_errno(err, errno, "read");
        if (n == 0)
            break;
        got += (size_t)n;
    }
    *ret = got;
    return 0;
}

int fd_set_nonblocking(int fd, struct error *err)
{
    int flags = fcntl(fd, F_GETFL);

    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
        return error_errno(err, errno, "fcntl");
    return 0;
}

bool fd_wait_readable(int fd, int timeout_ms)
{
    struct pollfd p = { .fd = fd, .events = POLLIN };

    return poll(&p, 1, timeout_ms) > 0;
}

static int unix_address(const char *path, struct sockaddr_un *ret, struct error *err)
{
    *ret = (struct sockaddr_un){ .sun_family = AF_UNIX };
    if (strlen(path) >= sizeof ret->sun_path)
        return error_set(err, ERR_INVALID, "socket path longer than %zu bytes: %s", sizeof ret->sun_path - 1,
                         path);
    (void)stpcpy(ret->sun_path, path);
    return 0;
}

int fd_unix_listen(const char *path, mode_t mode, int *ret_fd, struct error *err)
{
    struct sockaddr_un sa;

    if (unix_address(path, &sa, err) < 0)
        return -1;
    auto_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return error_errno(err, errno, "socket");
    (void)unlink(path);
    if (bind(fd, (struct sockaddr *)&sa, sizeof sa) < 0 || chmod(path, mode) < 0 || listen(fd, 128) < 0)
        return error_errno(err, errno, "listen on %s", path);
    *ret_fd = steal_fd(&fd);
    return 0;
}

/*
 * A listener that accepts nobody lets its queue run full; connect(2) then waits for a free place, as long as
 * the send timeout says. The timeout is the connection's alone: what is sent later waits as the caller likes.
 */
static int connect_bounded(int fd, const struct sockaddr_un *sa, const char *name, struct error *err)
{
    const struct timeval bounded = { .tv_sec = CONNECT_TIMEOUT_S }, unbounded = { 0 };

    if (setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &bounded, sizeof bounded) < 0)
        return error_errno(err, errno, "SO_SNDTIMEO");
    if (connect(fd, (const struct sockaddr *)sa, sizeof *sa) < 0) {
        int why = errno == EAGAIN         ? ETIMEDOUT
                  : errno == ECONNREFUSED ? ENOENT
                                          : errno; /* nobody listens: not there */
        return error_errno(err, why, "connect to %s", name);
    }
    if (setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &unbounded, sizeof unbounded) < 0)
        return error_errno(err, errno, "SO_SNDTIMEO");
    return 0;
}

int fd_unix_connect_at(int dir_fd, const char *name, int *ret_fd, struct error *err)
{
    struct stat st;
    struct sockaddr_un sa;
    char path[64];

    auto_close int node = openat(dir_fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (node < 0)
        return error_errno(err, errno, "socket %s", name);
    if (fstat(node, &st) < 0)
        return error_errno(err, errno, "socket %s", name);
    if (!S_ISSOCK(st.st_mode))
        return error_set(err, ERR_UPSTREAM, "%s is not a socket", name);
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", node);
    if (unix_address(path, &sa, err) < 0)
        return -1;
    auto_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return error_errno(err, errno, "socket");
    if (connect_bounded(fd, &sa, name, err) < 0)
        return -1;
    *ret_fd = steal_fd(&fd);
    return 0;
}
