/* fd.h - file descriptors: whole reads and writes, Unix sockets, polling. libc only. */
#pragma once

#include <sys/types.h>

#include "common/error.h"

int fd_write_all(int fd, const void *data, size_t len, struct error *err) MUST_CHECK; /* blocks */
/* Reads until len bytes or the end of the file; gives how many came. Blocks. */
int fd_read_full(int fd, void *data, size_t len, size_t *ret, struct error *err) MUST_CHECK;
int fd_set_nonblocking(int fd, struct error *err) MUST_CHECK;

/* Waits until fd is readable or has hung up. Gives true when it is, false when timeout_ms passed (-1: for
 * ever). */
bool fd_wait_readable(int fd, int timeout_ms);

/* Listens on a Unix socket, replacing a stale one at that path. mode is the socket's file mode. */
int fd_unix_listen(const char *path, mode_t mode, int *ret_fd, struct error *err) MUST_CHECK;

/*
 * Connects to a Unix socket whose directory somebody hostile may write to: the path's last component is
 * opened without following links and must be a socket, so that it cannot be pointed at another service's
 * socket (connect(2) itself follows links). The directory must be given open. ERR_NOT_FOUND when nobody
 * listens, ERR_TIMEOUT when somebody does but has accepted nobody for 2 s.
 */
int fd_unix_connect_at(int dir_fd, const char *name, int *ret_fd, struct error *err) MUST_CHECK;
