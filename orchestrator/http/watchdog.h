/* watchdog.h - cuts sockets whose client has let a deadline pass. Thread-safe; one thread of its own. */
#pragma once

#include "common/error.h"

struct watchdog;
struct watchdog_entry;

int watchdog_start(struct watchdog **ret, struct error *err) MUST_CHECK;
void watchdog_stop(struct watchdog *w); /* every entry must have been removed; NULL is fine */

/*
 * Watches a socket, which must stay open until watchdog_remove() has returned: so a descriptor that was
 * closed and given to somebody else is never cut. due_ms is of clock_mono_ms(); 0: no deadline for now.
 */
struct watchdog_entry *watchdog_add(struct watchdog *w, int fd, int64_t due_ms);
void watchdog_set(struct watchdog *w, struct watchdog_entry *e, int64_t due_ms);
void watchdog_remove(struct watchdog *w, struct watchdog_entry *e);
