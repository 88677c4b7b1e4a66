/* exec.h - from a JSON request to a running execution, and from its result to the answer; shared by /exec and
 * its kin. */
#pragma once

#include "orchestrator/api/api.h"
#include "orchestrator/session/execution.h"

struct exec_call {               /* one call, from parsing to the answer */
    struct execution *execution; /* a reference */
    char lang[16];               /* as the client named it */
    char *version;               /* of the runtime, or NULL */
    bool session_new;
};
void exec_call_done(struct exec_call *c);

/* Parses the body, resolves the session, enters it and starts the execution. Blocks while a sandbox starts.
 */
int exec_begin(struct app *app, const struct http_request *req, struct exec_call *ret,
               struct error *err) MUST_CHECK;

/* The document of /exec, of an execution that has ended. */
json_t *exec_answer(const struct exec_call *c);

json_t *exec_object_json(const struct object *o, const char *session_id); /* one entry of "files" */
bool exec_entity_id_valid(const char *s);                                 /* [A-Za-z0-9_-]{1,64} */
