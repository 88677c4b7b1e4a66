/* beneath.h - opening below a directory in which somebody hostile may plant links, FIFOs and races. */
#pragma once

#include <sys/types.h>

#include "common/base.h"

/*
 * Like openat(2), errno included, but no part of the path may be a link, and it cannot leave dir_fd. path is
 * relative and without ".."; "" is dir_fd itself. O_NONBLOCK, O_NOCTTY and O_CLOEXEC are always set.
 */
int beneath_open(int dir_fd, const char *path, int flags) MUST_CHECK;

/* Opens the directory that holds path and points ret_name at the last part. -1 and errno on failure. */
int beneath_open_parent(int dir_fd, const char *path, const char **ret_name) MUST_CHECK;

/* The same, making what is missing (0755, given to owner unless that is -1). */
int beneath_make_parent(int dir_fd, const char *path, uid_t owner, const char **ret_name) MUST_CHECK;
