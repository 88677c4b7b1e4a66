/* archive.h - a directory as one zip or tar.gz, made while it is read: memory does not grow with the files.
 */
#pragma once

#include <sys/types.h>

#include "common/error.h"

enum archive_kind { ARCHIVE_ZIP, ARCHIVE_TAR_GZ };

struct archive_stream;

/*
 * Takes dir_fd, also on failure. The regular files below it, dot files too, as they are found now; links,
 * FIFOs and whatever else is left out. Names that are not UTF-8 get U+FFFD for what is wrong. LC_CTYPE must
 * be a UTF-8 locale. ERR_LIMIT: more than max_entries. The tree may change meanwhile: a file that vanishes is
 * left out, one that grows ends at the size it had, one that shrinks is filled up with zeros.
 */
int archive_stream_new(int dir_fd, enum archive_kind kind, int64_t max_entries, struct archive_stream **ret,
                       struct error *err) MUST_CHECK;
/* 1..max bytes into out; 0 at the end, -1 on failure. Blocks on the disk. Both fit struct http_stream. */
ssize_t archive_stream_next(void *stream, char *out, size_t max);
void archive_stream_free(void *stream);
