/* session.h - what a session is, and the states it can be in. */
#pragma once

#include "orchestrator/access/principal.h"
#include "orchestrator/files/workspace.h"
#include "orchestrator/session/sandbox.h"

enum session_state {
    SESSION_STORED,   /* no sandbox; its files wait on disk */
    SESSION_STARTING, /* a sandbox is being made for it */
    SESSION_LIVE,     /* has a sandbox */
    SESSION_STOPPING, /* its sandbox is being removed */
    SESSION_STATE_COUNT,
};

enum session_python { PYTHON_NEVER_RAN, PYTHON_LIVE, PYTHON_LOST };

struct execution;

struct capture {     /* one object that an execution captured while others of the session ran */
    uint64_t number; /* counted by the session */
    struct object object;
};

/* Everything below the line is guarded by the table's lock. Whoever holds a pin may read what stands above
 * it. */
struct session {
    char id[ID_SIZE];
    char *tenant, *user;
    char *entity_id; /* NULL: anonymous */
    bool shared;     /* agent or skill storage of the whole tenant: files only, never executed in */
    int64_t created_ms;
    struct session_table *table;
    /* ---- */
    enum session_state state;
    unsigned pins;    /* callers that hold a pointer */
    unsigned running; /* executions under way, from before the start of a sandbox to the last captured file */
    int64_t last_used_ms;
    int64_t saved_used_ms; /* what the database says */
    int64_t live_since_ms;
    char box[ID_SIZE]; /* "" until it had a sandbox or a file to place */
    uint32_t uid;
    char container_id[ENGINE_ID_SIZE];
    unsigned generation; /* counts sandboxes: tells whether somebody else already replaced a broken one */
    enum session_python python;
    char *lost_reason;              /* owned; with PYTHON_LOST */
    bool ending;                    /* session_end() is at work: nobody may enter, or find it to enter it */
    bool removed;                   /* its row is gone; those who still hold a pin can do nothing with it */
    struct execution *python_queue; /* waiting or running on the kernel, first come first served */
    bool workspace_busy;            /* one place or capture at a time; see session_workspace_begin() */
    struct workspace *workspace;    /* NULL until needed */
    struct capture *captures;       /* since the oldest run under way began */
    size_t capture_count;
    uint64_t capture_number; /* of the latest */
};

const char *session_state_name(enum session_state s); /* "live" */
/* The only place that changes the state; a transition that the table does not know is a programmer's error.
 */
void session_set_state(struct session *s, enum session_state to);
