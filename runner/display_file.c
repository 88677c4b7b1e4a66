#include "runner/display_file.h"

#include <errno.h>
#include <fcntl.h>

#include "common/fd.h"

#define TRIES 10000

/* Gives the open file; its name is the caller's. */
static int create(int dir_fd, const char *stem, const char *extension, unsigned *number, char **ret_name,
                  int *ret_fd, struct error *err)
{
    for (unsigned n = *number + 1, tries = 0; tries < TRIES; n++, tries++) {
        auto_free char *name = xasprintf("%s_%u.%s", stem, n, extension);
        int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
        if (fd < 0 && errno == EEXIST)
            continue;
        if (fd < 0)
            return error_errno(err, errno, "create %s", name);
        *number = n;
        *ret_name = steal_ptr(&name);
        *ret_fd = fd;
        return 0;
    }
    return error_set(err, ERR_LIMIT, "no free name for %s_N.%s", stem, extension);
}

int display_file_write(const char *workspace, const char *stem, const char *extension, unsigned *number,
                       const char *data, size_t len, char **ret_name, struct error *err)
{
    auto_free char *name = NULL;
    auto_close int dir_fd = open(workspace, O_PATH | O_DIRECTORY | O_CLOEXEC);

    if (dir_fd < 0)
        return error_errno(err, errno, "open %s", workspace);
    auto_close int fd = -1;
    if (create(dir_fd, stem, extension, number, &name, &fd, err) < 0 || !name)
        return -1;
    if (fd_write_all(fd, data, len, err) < 0) {
        (void)unlinkat(dir_fd, name, 0);
        return error_wrap(err, "%s", name);
    }
    *ret_name = steal_ptr(&name);
    return 0;
}
