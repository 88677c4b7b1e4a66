#include "orchestrator/session/session.h"

#include <assert.h>

static const char *const state_names[] = {
    [SESSION_STORED] = "stored",
    [SESSION_STARTING] = "starting",
    [SESSION_LIVE] = "live",
    [SESSION_STOPPING] = "stopping",
};
_Static_assert(ARRAY_LEN(state_names) == SESSION_STATE_COUNT, "every state has a name");

/* transitions[from][to] */
static const bool transitions[SESSION_STATE_COUNT][SESSION_STATE_COUNT] = {
    [SESSION_STORED] = { [SESSION_STARTING] = true, [SESSION_LIVE] = true /* adopted after a restart */ },
    [SESSION_STARTING] = { [SESSION_LIVE] = true, [SESSION_STORED] = true /* it did not start */ },
    [SESSION_LIVE] = { [SESSION_STOPPING] = true },
    [SESSION_STOPPING] = { [SESSION_STORED] = true },
};

const char *session_state_name(enum session_state s) { return state_names[s]; }

void session_set_state(struct session *s, enum session_state to)
{
    assert(transitions[s->state][to]);
    s->state = to;
}
