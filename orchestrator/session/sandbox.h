/*
 * sandbox.h - what a sandbox is: its container's hardening, limits, mounts and labels; how it starts and
 * ends.
 *
 * A box is the directory on the host that holds a session's files: data/ (its workspace, /mnt/data inside),
 * home/, run/ (where the runner's socket lies) and the passwd and group files that give its uid a name.
 */
#pragma once

#include "orchestrator/config.h"
#include "orchestrator/engine/engine.h"

struct sandbox_host { /* what every sandbox of this service shares; borrowed */
    struct engine *engine;
    const struct config *config;
    const char *instance;  /* label of everything that belongs to this data directory */
    const char *boxes_dir; /* as the engine's host sees it */
};

#define SANDBOX_HOME "/home/sandbox"
#define SANDBOX_WORKSPACE "/mnt/data"
#define SANDBOX_LABEL_INSTANCE "carrel.instance"
#define SANDBOX_LABEL_SESSION "carrel.session"

/*
 * Creates and starts a sandbox on a box whose directories exist, and waits until its runner answers. A
 * failure leaves no container. session_id may be "" (the probe). ERR_UNAVAILABLE: the engine is away or the
 * image missing.
 */
int sandbox_start(const struct sandbox_host *h, const char *session_id, const char *box, uint32_t uid,
                  char ret_container[ENGINE_ID_SIZE], struct error *err) MUST_CHECK;
void sandbox_stop(const struct sandbox_host *h, const char *container_id); /* logs what fails; "" is fine */

char *sandbox_box_path(const struct sandbox_host *h, const char *box,
                       const char *part); /* part NULL: the box */

/* Fills the spec's limits; the probe compares them with what the engine says it got. */
void sandbox_spec_limits(const struct config *cfg, struct engine_spec *spec);
