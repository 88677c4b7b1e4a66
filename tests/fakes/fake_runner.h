/* fake_runner.h - plays a sandbox's runner for a fake engine: one thread a connection, its deeds named by the
 * code. */
#pragma once

#include "orchestrator/engine/engine.h"

/*
 * The code of a RUN is a list of words, done in order:
 *   out:TEXT err:TEXT   a STDOUT or STDERR event        touch:NAME   writes a file into the workspace
 *   wait                until CANCEL comes               close        closes the connection without END
 *   flood               more output than is allowed      badend       an END that is not JSON
 *   lost                END says that the kernel is lost
 * and then END with reason "ok" (after wait: "cancelled").
 */
struct fake_runner;

struct fake_runner *fake_runner_new(struct engine *fake_engine); /* becomes the engine's runner */
void fake_runner_free(struct fake_runner *r);                    /* joins its threads */
void fake_runner_set_mute(struct fake_runner *r, bool mute);     /* accepts connections and says nothing */
unsigned fake_runner_runs(struct fake_runner *r);                /* RUN frames seen */
void fake_runner_wait_runs(struct fake_runner *r, unsigned n);   /* until so many were seen */
