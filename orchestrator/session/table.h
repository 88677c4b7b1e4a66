/*
 * table.h - all sessions: which one a call means, which have a sandbox, who has to give theirs up.
 *
 * One lock guards the table and the guarded members of its sessions; it is never held across I/O of engine or
 * disk (rows of new sessions excepted: they are written before anybody can see the session). Lock order:
 * table, then an execution's lock.
 */
#pragma once

#include <pthread.h>

#include "orchestrator/session/session.h"

struct session_table;

struct session_env { /* borrowed, outlives the table */
    const struct config *config;
    struct db *db;
    struct store *store;
    struct engine *engine;
    const char *instance;
    const char *boxes_dir;
};

int session_table_new(const struct session_env *env, struct session_table **ret,
                      struct error *err) MUST_CHECK;
/* Leaves the sandboxes running for a successor; all executions must have ended. NULL is fine. */
void session_table_free(struct session_table *t);
const struct session_env *session_table_env(const struct session_table *t);

/* ---- which session ---- */

struct session_hint { /* what a request says about its session; borrowed, NULL when absent */
    const char *session_id, *entity_id;
};

/* The principal's session that the hint means, or a new one. Gives it pinned. ret_new may be NULL. */
int session_resolve(struct session_table *t, const struct principal *p, const struct session_hint *hint,
                    struct session **ret, bool *ret_new, struct error *err) MUST_CHECK;
/* By id, pinned. ERR_NOT_FOUND: unknown, or not the principal's own: the two look alike. */
int session_find(struct session_table *t, const struct principal *p, const char *id, struct session **ret,
                 struct error *err) MUST_CHECK;
/* The same for its files alone: storage that the principal's tenant shares is found too. */
int session_find_files(struct session_table *t, const struct principal *p, const char *id,
                       struct session **ret, struct error *err) MUST_CHECK;
void session_unpin(struct session *s); /* NULL is fine */
DEFINE_CLEANUP(struct session *, session_unpin)

/* May the principal see this session's files? Its own, and agent and skill storage of its tenant. */
bool session_visible(const struct session *s, const struct principal *p);

struct shared_storage { /* whose files a storage session holds; borrowed */
    const char *kind;   /* "agent" or "skill" */
    const char *id;
    const char *version; /* of a skill; NULL for an agent */
};
/* The tenant's storage session for these files, made at its first use; pinned. shared.c */
int session_resolve_shared(struct session_table *t, const struct principal *p,
                           const struct shared_storage *storage, struct session **ret,
                           struct error *err) MUST_CHECK;

/* ---- its sandbox ---- */

/*
 * Makes sure that the session has a sandbox and keeps it from being evicted until session_leave(). Blocks
 * while one starts; waits its turn for a free place up to QUEUE_WAIT_SECONDS, then ERR_BUSY. ERR_UNAVAILABLE:
 * engine away.
 */
int session_enter(struct session *s, bool *ret_started, struct error *err) MUST_CHECK;
void session_leave(struct session *s);
/* Removes a sandbox that is gone, mute or broken, unless somebody did since generation. Python variables are
 * lost. */
void session_drop_sandbox(struct session *s, unsigned generation, const char *reason);
/* Between enter and leave: drop and enter anew. */
int session_replace_sandbox(struct session *s, unsigned generation, const char *reason,
                            struct error *err) MUST_CHECK;
unsigned session_generation(struct session *s);
char *session_run_dir(struct session *s); /* where its runner listens; the caller frees */
void session_container(struct session *s, char ret[ENGINE_ID_SIZE]); /* "" when it has none */

/* A container died, as the engine's events tell: its session is stored. Unknown ids are ignored. */
void session_table_container_died(struct session_table *t, const char *container_id, const char *reason);
/* Drops the sandboxes of live sessions that the engine does not show as running: after events were missed. */
int session_table_reconcile(struct session_table *t, struct error *err) MUST_CHECK;
/* Once at start, before any call: takes running sandboxes back into their sessions, removes strays of ours.
 */
int session_table_recover(struct session_table *t, struct error *err) MUST_CHECK;
/* One round of upkeep: idle sessions lose their sandbox, the others are told that we live, last uses are
 * saved. */
void session_table_tick(struct session_table *t);

/* ---- its end (end.c), and what can be told about it (list.c) ---- */

/*
 * Cancels the session's executions, waits for their ends and removes its sandbox; calls on it wait meanwhile.
 * With remove_files its objects, its box and its row go too: it is unknown afterwards and its entity_id free.
 * ERR_TIMEOUT: an execution did not end; nothing of the files is removed then.
 */
int session_end(struct session *s, bool remove_files, const char *reason, struct error *err) MUST_CHECK;
unsigned session_interrupt(struct session *s); /* cancels its executions, waits for none; gives their count */
/* Puts the files that wait into the workspace and opens it, read-only, for reading beneath it. */
int session_open_files(struct session *s, int *ret_dir_fd, struct error *err) MUST_CHECK;

struct session_info { /* a copy */
    char id[ID_SIZE];
    char *entity_id; /* owned; NULL: anonymous */
    enum session_state state;
    enum session_python python;
    unsigned running;
    int64_t created_ms, last_used_ms;
    int64_t live_since_ms; /* 0: no sandbox */
};
struct session_infos {
    struct session_info *items;
    size_t count;
};
void session_infos_done(struct session_infos *l);
void session_info_get(struct session *s, struct session_info *ret); /* the caller frees entity_id */
/* The principal's own that were last used before then, newest use first, at most max. */
int session_list(struct session_table *t, const struct principal *p, int64_t before_ms, int64_t max,
                 struct session_infos *ret, struct error *err) MUST_CHECK;

struct session_counts {
    unsigned live, starting, executing, cleaned; /* cleaned: evicted or idle since the start */
};
void session_table_counts(struct session_table *t, struct session_counts *ret);

/* ---- turns: on the workspace, on the kernel ---- */

/* Waits for the exclusive use of the session's workspace, opening it if need be. Borrowed until _end(). */
int session_workspace_begin(struct session *s, struct workspace **ret, struct error *err) MUST_CHECK;
void session_workspace_end(struct session *s);
void session_workspace_refresh(
    struct session *s); /* files were uploaded to it: its next execution places them */

/*
 * Programs of one session that run at once write into one workspace, and whoever ends first captures what all
 * have written. So that each is told of its files, a run is also given what others captured since it began.
 */
uint64_t session_captures(struct session *s); /* how many there were up to now */
/* Adds to changes->files what others captured after the first `seen`; remembers what it has of its own. */
void session_share_captures(struct session *s, uint64_t seen, struct workspace_changes *changes);
void session_forget_captures(struct session *s); /* with the lock held, when nothing runs any more */

/* Python's state, under the lock. take_lost: tells once that variables were lost; the caller frees the
 * reason. */
bool session_python_ran(struct session *s); /* gives whether there were variables before */
void session_python_lost(struct session *s, const char *reason); /* nothing when Python never ran */
bool session_python_is_lost(struct session *s);
char *session_python_take_lost(struct session *s);

pthread_mutex_t *session_table_lock(struct session_table *t);
pthread_cond_t *session_table_changed(struct session_table *t); /* broadcast when anything guarded changes */
