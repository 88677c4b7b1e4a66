/*
 * service.h - the background work of a running service: reaching the engine and probing it until it can be
 * used, taking sandboxes over from a predecessor, following deaths, and the regular upkeep of sessions.
 */
#pragma once

#include "orchestrator/session/table.h"

struct service;

struct service_state { /* a copy for /health and error messages; owned */
    bool ready;
    bool fatal;       /* a protection is not in force: the service must end */
    char reason[400]; /* why not ready */
    char engine_name[32], engine_version[32], api_version[16];
    json_t *manifest; /* a reference; NULL before the first probe */
};
void service_state_done(struct service_state *s);

int service_start(struct session_table *t, struct service **ret, struct error *err) MUST_CHECK;
/* Ends its thread. The engine's own thread may still tell events: close the engine next, then free. NULL is
 * fine. */
void service_stop(struct service *s);
void service_free(struct service *s);

void service_state_get(struct service *s, struct service_state *ret);
/* ERR_UNAVAILABLE with the reason when no execution could work now. */
int service_check(struct service *s, struct error *err) MUST_CHECK;
/* Waits until the first probe has ended, one way or the other. */
void service_wait_first(struct service *s);
