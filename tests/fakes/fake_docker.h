/* fake_docker.h - a Docker Engine of programmed replies, served on a Unix socket by threads of its own. */
#pragma once

#include "common/base.h"

struct fake_docker;

/* One programmed reply. Zero: status 200, an empty JSON object, at once, whole, for ever. */
struct fake_reply {
    int status;
    const char *body;
    const char
        *headers; /* further lines, each ended by \r\n; a Content-Type here replaces application/json */
    int times;    /* serves this many requests, then the next rule for the same request is looked for */
    int delay_ms; /* before the first byte; -1: mute until the fake stops */
    size_t split; /* bytes a write */
    size_t cut;   /* closes the connection after this many bytes of head and body */
    bool refuse;  /* closes it without a byte */
    bool stream;  /* chunked and open: what fake_docker_push() sends follows the body */
};

/* Serves at path. /_ping and /version answer like Docker Engine 20.10 until a rule says otherwise. */
struct fake_docker *fake_docker_start(const char *path);
void fake_docker_stop(struct fake_docker *d); /* closes what is open, ends the threads; NULL is fine */

/* A rule for "METHOD /path" without version and query; the newest rule that is not used up answers. Copied.
 */
void fake_docker_reply(struct fake_docker *d, const char *request, const struct fake_reply *reply);

/* What was asked: "POST /v1.41/containers/create?name=x"; the caller frees. NULL: fewer than i + 1 matched.
 */
char *fake_docker_request(struct fake_docker *d, const char *prefix, size_t i);
char *fake_docker_request_body(struct fake_docker *d, const char *prefix, size_t i);
size_t fake_docker_count(struct fake_docker *d, const char *prefix);

bool fake_docker_wait_streams(struct fake_docker *d, size_t n); /* until n are open; false after 5 s */
void fake_docker_push(struct fake_docker *d, const char *data, size_t split); /* to every open stream */
void fake_docker_cut_streams(struct fake_docker *d);
