/* text_file.h - reads a small file that an operator wrote: keys, key sets. Blocks on the disk. */
#pragma once

#include "common/buf.h"

/* The whole of it, at most 1 MiB; ret is initialised here, the caller ends it with buf_done() in any case.
 * Errors name the path. */
int text_file_read(const char *path, struct buf *ret, struct error *err) MUST_CHECK;
