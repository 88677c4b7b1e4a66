/* table_internal.h - the table's insides, shared by the files of this folder only. */
#pragma once

#include "orchestrator/session/table.h"

struct slot_waiter { /* one caller that waits for a free place; lives on its stack */
    struct slot_waiter *next;
};

struct session_table {
    const struct session_env *env;
    struct sandbox_host host;
    pthread_mutex_t save_lock; /* orders writes of session rows; taken before lock */
    pthread_mutex_t lock;      /* guards all that follows, and the guarded members of sessions */
    pthread_cond_t changed;
    struct session **items;
    size_t count, cap;
    unsigned places_used;        /* sessions that are not STORED */
    struct slot_waiter *waiters; /* first come first served */
    uint32_t next_uid;
    unsigned cleaned;
    uint64_t removals;            /* sessions removed: a row read before one is read again */
    struct execution *executions; /* all that are under way */
    bool stopping;                /* no more executions begin */
    unsigned execution_threads;   /* that may still touch the table */
    int64_t told_ms;              /* when the sandboxes were last told that we live */
};

/* With the lock held. */
struct session *table_by_id(struct session_table *t, const char *id);
struct session *table_by_container(struct session_table *t, const char *container_id);
void table_remove_item(struct session_table *t, struct session *s); /* nothing when it is not in the list */
void table_wait(struct session_table *t, int64_t deadline_ms); /* -1: no deadline; wakes on every change */

/* Without it. */
int table_load(struct session_table *t, const char *id, struct session **ret_pinned,
               struct error *err) MUST_CHECK;
void table_save(struct session *s);
void table_stop_sandbox(struct session *s, const char *reason); /* s is STOPPING and pinned; ends STORED */
