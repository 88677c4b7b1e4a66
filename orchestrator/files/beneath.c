#include "orchestrator/files/beneath.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#define ALWAYS (O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)
/* O_PATH takes no other flags than these two along. */
#define OPEN_STEP (O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

/* Kernels before 5.6 have no openat2(2), and engines before 20.10 forbid it (EPERM) to an orchestrator in a
 * container. */
static int open_by_steps(int dir_fd, const char *path, int flags)
{
    char part[NAME_MAX + 1];
    auto_close int held = -1;
    int at = dir_fd;

    for (const char *slash = strchr(path, '/'); slash; path = slash + 1, slash = strchr(path, '/')) {
        size_t len = (size_t)(slash - path);
        if (len > NAME_MAX) {
            errno = ENAMETOOLONG;
            return -1;
        }
        memcpy(part, path, len);
        part[len] = '\0';
        int next = openat(at, part, OPEN_STEP);
        if (next < 0)
            return -1;
        closep(&held);
        at = held = next;
    }
    return openat(at, path, flags | O_CLOEXEC);
}

int beneath_open(int dir_fd, const char *path, int flags)
{
    int all = flags & O_PATH ? flags | O_NOFOLLOW | O_CLOEXEC : flags | ALWAYS;
    struct open_how how = { .flags = (unsigned)all,
                            .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS };

    if (!*path)
        path = ".";
    int fd = (int)syscall(SYS_openat2, dir_fd, path, &how, sizeof how);
    if (fd >= 0 || (errno != ENOSYS && errno != EPERM))
        return fd;
    return open_by_steps(dir_fd, path, all);
}

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

static int open_first(int dir_fd, const char *path, size_t len)
{
    char parent[PATH_MAX];

    if (len >= sizeof parent) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(parent, path, len);
    parent[len] = '\0';
    return beneath_open(dir_fd, parent, O_RDONLY | O_DIRECTORY);
}

int beneath_open_parent(int dir_fd, const char *path, const char **ret_name)
{
    const char *name = last_part(path);
    int fd = open_first(dir_fd, path, name == path ? 0 : (size_t)(name - path) - 1);

    if (fd >= 0)
        *ret_name = name;
    return fd;
}

static int make_dir(int at, const char *name, uid_t owner)
{
    bool made = mkdirat(at, name, 0755) == 0;

    if (!made && errno != EEXIST)
        return -1;
    auto_close int fd = beneath_open(at, name, O_RDONLY | O_DIRECTORY);
    if (fd < 0 || !made)
        return steal_fd(&fd);
    if (fchmod(fd, 0755) < 0 || (owner != (uid_t)-1 && fchown(fd, owner, owner) < 0))
        return -1;
    return steal_fd(&fd);
}

int beneath_make_parent(int dir_fd, const char *path, uid_t owner, const char **ret_name)
{
    char part[NAME_MAX + 1];
    int fd = beneath_open_parent(dir_fd, path, ret_name);

    if (fd >= 0 || errno != ENOENT)
        return fd;
    auto_close int at = beneath_open(dir_fd, "", O_RDONLY | O_DIRECTORY);
    for (const char *slash = strchr(path, '/'); at >= 0 && slash; slash = strchr(path, '/')) {
        size_t len = MIN((size_t)(slash - path), sizeof part - 1);
        memcpy(part, path, len);
        part[len] = '\0';
        int next = make_dir(at, part, owner);
        closep(&at);
        at = next;
        path = slash + 1;
    }
    if (at >= 0)
        *ret_name = path;
    return steal_fd(&at);
}
