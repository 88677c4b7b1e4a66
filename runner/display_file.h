/* display_file.h - a display's file in the workspace, where hostile code lives: never through a link, never
 * over a file. */
#pragma once

#include "common/error.h"

/*
 * Writes stem_N.extension with the first free N after *number, and sets *number to it. *ret_name is the
 * caller's. Nothing stays behind on failure.
 */
int display_file_write(const char *workspace, const char *stem, const char *extension, unsigned *number,
                       const char *data, size_t len, char **ret_name, struct error *err) MUST_CHECK;
