/* fake_engine.h - an engine in memory behind the real interface, for tests of what lies above it. */
#pragma once

#include "orchestrator/engine/engine.h"

enum fake_engine_call {
    FAKE_PING,
    FAKE_IMAGE_FIND,
    FAKE_CREATE,
    FAKE_START,
    FAKE_REMOVE,
    FAKE_LIST,
    FAKE_INSPECT,
    FAKE_FOLLOW,
    FAKE_CONNECT,
    FAKE_CALL_COUNT,
};

struct engine *fake_engine_new(void); /* engine_close() frees it */

/*
 * Who plays the runner: called in the thread of connect(), with the other end of its socket pair, which the
 * callee owns (it may read and write in a thread of its own). Without one, connect() finds nobody:
 * ERR_NOT_FOUND.
 */
typedef void fake_engine_runner_fn(void *state, const char *container_id, const char *run_dir, int fd);
void fake_engine_set_runner(struct engine *e, fake_engine_runner_fn *fn, void *state);

/* The next `times` calls of that kind fail so (-1: until told otherwise, 0: they work again). */
void fake_engine_fail(struct engine *e, enum fake_engine_call call, int times, enum error_kind kind,
                      const char *msg);
void fake_engine_delay(struct engine *e, enum fake_engine_call call, int ms);
/* Changes what inspect() tells of a container that runs: an engine that ignored something it was asked for.
 */
void fake_engine_lie(struct engine *e, void (*edit)(struct engine_inspection *));

/* What happens by itself. Events are told in the caller's thread, with no lock held. */
void fake_engine_die(struct engine *e, const char *id, int64_t exit_code, bool oom);
void fake_engine_pause(struct engine *e, const char *id);
void fake_engine_reconnect(struct engine *e);
/* A container nobody created through this object: a stray, or one of an orchestrator before us. Gives its id.
 */
void fake_engine_add(struct engine *e, const char *name, const struct engine_label *labels,
                     size_t label_count, enum engine_state state, const char *run_dir,
                     char ret_id[ENGINE_ID_SIZE]);

/* What was done. */
size_t fake_engine_calls(struct engine *e, enum fake_engine_call call);
size_t fake_engine_alive(struct engine *e); /* containers that run or are paused */
size_t fake_engine_total(struct engine *e); /* containers that exist */
bool fake_engine_exists(struct engine *e, const char *id);
