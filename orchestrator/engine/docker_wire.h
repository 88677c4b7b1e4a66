/* docker_wire.h - what is said to the Docker Engine API and read from it: documents and names, no I/O. */
#pragma once

#include "orchestrator/engine/engine.h"

#define DOCKER_API_SIZE 16

/* ---- requests (docker_spec.c) ---- */

/* The body of POST /containers/create: a sandbox with every protection on. The caller's. */
json_t *docker_spec_json(const struct engine_spec *spec);
/* The query parameter `filters` that selects what has a label, escaped; containers_only for the event stream.
 */
char *docker_filters(const char *label, bool containers_only);
/* Percent-encodes everything but unreserved characters and those of keep. The caller frees. */
char *docker_escape(const char *text, const char *keep);

/* ---- replies (docker_replies.c): ERR_UPSTREAM when they are not what the API promises ---- */

struct docker_version {
    char version[32];
    char api[DOCKER_API_SIZE], api_min[DOCKER_API_SIZE]; /* what the engine speaks */
    bool podman;                                         /* told by a header, not by this document */
};
int docker_read_version(const struct buf *body, struct docker_version *ret, struct error *err) MUST_CHECK;
/* The API version to speak. ERR_UNAVAILABLE when engine and we have none in common. */
int docker_negotiate(const struct docker_version *engine, char ret[DOCKER_API_SIZE],
                     struct error *err) MUST_CHECK;
int docker_read_info(const struct buf *body, struct engine_info *ret,
                     struct error *err) MUST_CHECK; /* limits */
int docker_read_image(const struct buf *body, json_t **ret_labels, struct error *err) MUST_CHECK;
/* Gives the id and, when there are any, the warnings as an array of strings (else NULL). */
int docker_read_created(const struct buf *body, char ret_id[ENGINE_ID_SIZE], json_t **ret_warnings,
                        struct error *err) MUST_CHECK;
int docker_read_list(const struct buf *body, struct engine_containers *ret, struct error *err) MUST_CHECK;
int docker_read_inspection(const struct buf *body, struct engine_inspection *ret,
                           struct error *err) MUST_CHECK;

/* Reads decimal digits at *p and moves *p behind them; false when there are none or too many. */
bool docker_read_number(const char **p, int64_t *ret);
/* Copies an id of the engine's. It will be part of URLs: nothing but hexadecimal digits is let in. */
int docker_copy_id(const char *id, char out[ENGINE_ID_SIZE], struct error *err) MUST_CHECK;

/* ---- the event stream (docker_event_reader.c): one JSON document a line, in pieces of any size ---- */

struct docker_event_reader {
    struct buf line; /* the unfinished one */
    engine_event_fn *fn;
    void *state;
};
void docker_event_reader_init(struct docker_event_reader *r, engine_event_fn *fn, void *state);
void docker_event_reader_done(struct docker_event_reader *r);
/* Calls fn for each event that matters. An error is final: events may have been lost. */
int docker_event_reader_feed(struct docker_event_reader *r, const char *data, size_t len,
                             struct error *err) MUST_CHECK;
