/* store_disk.h - what the parts of the embedded store share: bytes (store_disk.c), rows and the start-up
 * sweep. */
#pragma once

#include "orchestrator/files/store.h"

struct store { /* constant after store_open(): no lock */
    int objects_fd, tmp_fd;
    struct db *db; /* borrowed */
};

#define OBJECT_PATH_SIZE (ID_SIZE + 3)
void store_object_path(const char *id, char out[OBJECT_PATH_SIZE]); /* "ab/abcd...", below objects_fd */

/* Inserts the row of a new object whose id, size, sha256 and times stand in o. */
int store_row_insert(struct store *s, const struct object *o, struct error *err) MUST_CHECK;
int store_row_delete(struct store *s, const char *id, struct error *err) MUST_CHECK; /* ERR_NOT_FOUND */

/* had_objects: the directory of objects was already there. */
int store_sweep(struct store *s, bool had_objects, struct error *err) MUST_CHECK;
