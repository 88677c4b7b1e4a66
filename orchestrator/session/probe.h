/*
 * probe.h - the start-up probe: one sandbox is started as every later one will be, and must show that what
 * was asked for is in force. Engines silently ignore fields they do not know; a promise that was not kept
 * ends the service.
 */
#pragma once

#include "orchestrator/session/sandbox.h"

struct probe_result {
    json_t *manifest; /* owned: runtimes and libraries of the image */
};
void probe_result_done(struct probe_result *r);

/*
 * Blocks for about a second. ERR_UNAVAILABLE: it could not be tried (engine away, image missing), try again
 * later. ERR_FORBIDDEN: a protection or limit is not in force; the message says which and what to do.
 */
int probe_run(const struct sandbox_host *h, struct probe_result *ret, struct error *err) MUST_CHECK;

/* Checks what the sandbox printed about itself against the settings; apart for its tests. Lines "name=value".
 */
int probe_check_report(const struct config *cfg, uint32_t uid, const char *report,
                       struct error *err) MUST_CHECK;
int probe_check_inspection(const struct config *cfg, const struct engine_inspection *seen,
                           struct error *err) MUST_CHECK;
