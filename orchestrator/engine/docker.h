/* docker.h - what the files of the Docker driver share: the engine object and a call to its API. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "orchestrator/engine/docker_wire.h"
#include "orchestrator/http/client.h"

/* The thread that follows the event stream (docker_events.c). */
struct docker_follower {
    pthread_t thread;
    int stop_fd; /* eventfd; -1: not following. Readable once the thread is to end */
    char *label;
    engine_event_fn *fn;
    void *state;
};

struct docker {
    struct engine base; /* first: a struct engine * of ours points to it */
    struct http_endpoint endpoint;
    char *socket_path, *base_url; /* own what endpoint borrows */
    pthread_mutex_t lock;         /* guards api */
    char api[DOCKER_API_SIZE];    /* negotiated; "" before */
    atomic_bool warned;           /* the engine's warnings about sandboxes were logged */
    struct docker_follower follower;
};

/* ---- where the engine is (docker_host.c) ---- */

/* Fills socket_path or base_url, both the caller's. ERR_INVALID: not a host this program can use. */
int docker_host_resolve(const struct engine_docker_options *options, char **ret_socket_path,
                        char **ret_base_url, struct error *err) MUST_CHECK;
/* Rewrites a failed call's error into a sentence that says what to do, where the reason is known. */
void docker_host_explain(const struct http_endpoint *to, const struct http_reply *reply, struct error *err);

/* ---- calls (docker.c) ---- */

/* An exchange with unexplained errors made plain; call->path is complete. Blocks. */
int docker_exchange(const struct docker *d, const struct http_call *call, struct http_reply *ret,
                    struct error *err) MUST_CHECK;
/*
 * Asks the engine for its versions and settles the one to speak. Blocks for seconds at most; stop_fd (or
 * NULL) as in struct http_call. ERR_UNAVAILABLE: it does not answer, or speaks no version of ours.
 */
int docker_settle_api(struct docker *d, const int *stop_fd, struct docker_version *ret,
                      struct error *err) MUST_CHECK;
/* The path in the settled version; the caller frees. Settles it first when nobody did. */
int docker_path(struct docker *d, const char *path, char **ret, struct error *err) MUST_CHECK;

/* ---- events (docker_events.c) ---- */

int docker_follow(struct docker *d, const char *label, engine_event_fn *fn, void *state,
                  struct error *err) MUST_CHECK;
void docker_unfollow(struct docker *d); /* ends the thread, if any, and waits for it */
