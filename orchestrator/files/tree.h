/* tree.h - removing a directory tree that hostile code has shaped. */
#pragma once

#include "common/error.h"

/*
 * Removes a directory with all that is in it, links unfollowed. Any depth: nothing recurses and no path is
 * built from what is inside. Nobody may be changing the tree. An absent directory is success. Blocks.
 */
int tree_remove(const char *path, struct error *err) MUST_CHECK;
