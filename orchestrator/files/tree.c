#include "orchestrator/files/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define OPEN_DIR (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

static void closedirp(DIR **d)
{
    if (*d)
        (void)closedir(*d);
}

static bool is_dot(const char *name) { return strcmp(name, ".") == 0 || strcmp(name, "..") == 0; }

static DIR *open_dir_at(int dir_fd, const char *name)
{
    int fd = openat(dir_fd, name, OPEN_DIR);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);

    if (!d && fd >= 0)
        (void)close(fd);
    return d;
}

/* By a descriptor that cannot be a link: chmod(2) itself follows them. */
static void allow_owner(int dir_fd, const char *name)
{
    char path[64];

    auto_close int fd = openat(dir_fd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return;
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    IGNORE(chmod(path, 0700)); /* what stays closed is reported by whoever opens it next */
}

/*
 * Empties one directory below top and removes it. Its subdirectories are moved up into top under fresh names,
 * where the caller finds them: so any depth is undone two levels at a time.
 */
static int flatten(int top_fd, const char *name, unsigned *serial, struct error *err)
{
    /* A directory without permission bits stops its owner; the service need not be root. */
    allow_owner(top_fd, name);
    CLEANUP(closedirp) DIR *d = open_dir_at(top_fd, name);
    struct dirent *e;

    if (!d)
        return error_errno(err, errno, "open directory");
    while ((e = readdir(d)) != NULL) {
        char moved[32];
        if (is_dot(e->d_name) || unlinkat(dirfd(d), e->d_name, 0) == 0)
            continue;
        if (errno != EISDIR && errno != EPERM)
            return error_errno(err, errno, "unlink");
        do
            (void)snprintf(moved, sizeof moved, ".removed-%u", (*serial)++);
        while (renameat(dirfd(d), e->d_name, top_fd, moved) < 0 && (errno == EEXIST || errno == ENOTEMPTY));
    }
    if (unlinkat(top_fd, name, AT_REMOVEDIR) < 0 && errno != ENOTEMPTY)
        return error_errno(err, errno, "rmdir");
    return 0; /* not empty: readdir(3) may miss entries while others go; the caller comes again */
}

/* One pass over top. *ret_left: how many entries were seen. */
static int pass(int top_fd, unsigned *serial, size_t *ret_left, struct error *err)
{
    CLEANUP(closedirp) DIR *d = open_dir_at(top_fd, ".");
    struct dirent *e;

    *ret_left = 0;
    if (!d)
        return error_errno(err, errno, "open directory");
    while ((e = readdir(d)) != NULL) {
        if (is_dot(e->d_name))
            continue;
        (*ret_left)++;
        if (unlinkat(top_fd, e->d_name, 0) == 0)
            continue;
        if (errno != EISDIR && errno != EPERM)
            return error_errno(err, errno, "unlink");
        if (flatten(top_fd, e->d_name, serial, err) < 0)
            return -1;
    }
    return 0;
}

int tree_remove(const char *path, struct error *err)
{
    unsigned serial = 0;
    size_t left = 1;

    auto_close int top_fd = open(path, OPEN_DIR);
    if (top_fd < 0)
        return errno == ENOENT ? 0 : error_errno(err, errno, "remove %s", path);
    while (left > 0)
        if (pass(top_fd, &serial, &left, err) < 0)
            return error_wrap(err, "remove %s", path);
    if (rmdir(path) < 0)
        return error_errno(err, errno, "remove %s", path);
    return 0;
}
