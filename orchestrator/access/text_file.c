#include "orchestrator/access/text_file.h"

#include <errno.h>
#include <fcntl.h>

#include "common/fd.h"

#define MAX_BYTES ((size_t)1024 * 1024)

int text_file_read(const char *path, struct buf *ret, struct error *err)
{
    char *to = NULL;
    size_t n = 0;

    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return error_errno(err, errno, "%s", path);
    buf_init(ret, MAX_BYTES + 1);
    if (buf_reserve(ret, MAX_BYTES + 1, &to, err) < 0 || fd_read_full(fd, to, MAX_BYTES + 1, &n, err) < 0)
        return error_wrap(err, "%s", path);
    if (n > MAX_BYTES)
        return error_set(err, ERR_LIMIT, "%s: larger than 1 MiB", path);
    ret->len = n;
    to[n] = '\0';
    return 0;
}
