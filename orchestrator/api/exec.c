/* POST /exec: the request, and the wait for its end. */
#include "orchestrator/api/exec.h"

#include <string.h>

#include "common/clock.h"
#include "orchestrator/session/service.h"

#define MAX_REFS 256
#define MAX_CODE_BYTES ((int64_t)64 * 1024 * 1024) /* MAX_REQUEST_MB bounds it first */
#define MAX_ARGS 1000

struct exec_fields {
    struct jsonx_span code, input;
    const char *lang, *entity_id, *session_id;
    json_t *args, *files;
    int64_t timeout_ms;
};

static const struct json_field exec_fields[] = {
    FIELD_TEXT(struct exec_fields, code, "code", true, 0, MAX_CODE_BYTES),
    FIELD_STRING(struct exec_fields, lang, "lang", true, 1, 32),
    FIELD_ANY(struct exec_fields, args, "args", false),
    FIELD_TEXT(struct exec_fields, input, "stdin", false, 0, MAX_CODE_BYTES),
    FIELD_STRING(struct exec_fields, entity_id, "entity_id", false, 1, 64),
    FIELD_STRING(struct exec_fields, session_id, "session_id", false, 0, 1024),
    FIELD_INT(struct exec_fields, timeout_ms, "timeout", false, 1, INT32_MAX),
    FIELD_ARRAY(struct exec_fields, files, "files", false, 0, MAX_REFS),
};

struct ref_fields { /* kind, resource_id and version are claims; what may be seen is known without them */
    const char *id, *name;
    json_t *storage_session_id, *session_id;
};

static const struct json_field ref_fields[] = {
    FIELD_STRING(struct ref_fields, id, "id", true, 1, 256),
    FIELD_STRING(struct ref_fields, name, "name", false, 0, 4096),
    FIELD_ANY(struct ref_fields, storage_session_id, "storage_session_id", false),
    FIELD_ANY(struct ref_fields, session_id, "session_id", false),
};

void exec_call_done(struct exec_call *c)
{
    execution_unref(c->execution);
    free(c->version);
    *c = (struct exec_call){ 0 };
}

/* ---- args ---- */

/* A string is split at white space, as the original server did; quoting is what the array is for. */
static json_t *split_args(const char *text)
{
    json_t *args = json_array();

    /* One more than is allowed is enough to be refused. */
    for (const char *p = text + strspn(text, " \t\r\n"); *p && json_array_size(args) <= MAX_ARGS;
         p += strspn(p, " \t\r\n")) {
        size_t len = strcspn(p, " \t\r\n");
        (void)json_array_append_new(args, json_stringn(p, len));
        p += len;
    }
    return args;
}

static int take_args(json_t *given, json_t **ret, struct error *err)
{
    if (!given)
        return 0;
    json_auto_t *args = json_is_string(given) ? split_args(json_string_value(given)) : json_incref(given);
    if (!json_is_array(args) || json_array_size(args) > MAX_ARGS)
        return error_set(err, ERR_INVALID, "args: expected a string or an array of at most %d strings",
                         MAX_ARGS);
    for (size_t i = 0; i < json_array_size(args); i++) {
        const json_t *arg = json_array_get(args, i);
        if (!json_is_string(arg) || strlen(json_string_value(arg)) != json_string_length(arg))
            return error_set(err, ERR_INVALID, "args: element %zu is not a string without NUL characters", i);
    }
    *ret = json_incref(args);
    return 0;
}

/* ---- file references ---- */

static bool session_may_show(struct app *app, const struct principal *p, const char *session_id)
{
    struct error ignored = { 0 };
    CLEANUP(session_unpinp) struct session *s = NULL;

    return id_valid(session_id) && session_find_files(app->sessions, p, session_id, &s, &ignored) == 0;
}

/*
 * May the principal use it? Its storage session tells, whatever session the reference names: older clients
 * name another one. Else the named session, if it returned the object. Somebody else's is like an unknown
 * one.
 */
static bool object_visible(struct app *app, const struct principal *p, const struct ref_fields *f,
                           struct object *ret)
{
    const char *named = json_string_value(json_is_string(f->storage_session_id) ? f->storage_session_id
                                                                                : f->session_id);
    auto_object struct object o = { 0 };
    struct error ignored = { 0 };

    if (!id_valid(f->id) || store_find(app->store, f->id, &o, &ignored) < 0)
        return false;
    if (!session_may_show(app, p, o.session_id)) {
        object_done(&o);
        if (!session_may_show(app, p, named) || store_find_in(app->store, named, f->id, &o, &ignored) < 0)
            return false;
    }
    *ret = o;
    o = (struct object){ 0 };
    return true;
}

static int add_ref(struct app *app, const struct principal *p, json_t *item, struct execution_request *r,
                   struct error *err)
{
    struct ref_fields f = { 0 };
    auto_object struct object o = { 0 };
    auto_free char *name = NULL;

    if (jsonx_fill(item, ref_fields, ARRAY_LEN(ref_fields), &f, err) < 0)
        return error_wrap(err, "files");
    if (f.name && f.name[0] && file_name_check(f.name, &name, err) < 0)
        return error_wrap(err, "files: name");
    if (!object_visible(app, p, &f, &o)) {
        workspace_changes_skip(&r->changes, name ? name : f.id,
                               "no such file: unknown, expired or not yours");
        return 0;
    }
    if (store_touch(app->store, o.id, err) < 0) /* also when it is left alone because newer work is there */
        return -1;
    r->refs[r->ref_count++] = (struct execution_ref){ .object_id = xstrdup(o.id),
                                                      .name = name ? steal_ptr(&name) : xstrdup(o.name) };
    return 0;
}

static int take_refs(struct app *app, const struct principal *p, json_t *files, struct execution_request *r,
                     struct error *err)
{
    size_t n = json_array_size(files);

    r->refs = xcalloc(n, sizeof *r->refs);
    for (size_t i = 0; i < n; i++)
        if (add_ref(app, p, json_array_get(files, i), r, err) < 0)
            return -1;
    return 0;
}

/* ---- the request ---- */

static int unknown_language(const char *name, struct error *err)
{
    char list[256] = "";
    size_t len = 0;

    for (size_t i = 0; i < language_count() && len < sizeof list; i++)
        len += (size_t)snprintf(list + len, sizeof list - len, "%s%s", i ? ", " : "", language_at(i)->name);
    return error_set(err, ERR_INVALID, "lang: '%.32s' is not known here; there is %s", name, list);
}

bool exec_entity_id_valid(const char *s)
{
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";
    size_t len = strlen(s);

    return len >= 1 && len <= 64 && strspn(s, allowed) == len;
}

static int take_fields(struct app *app, const struct http_request *req, struct exec_fields *f,
                       struct error *err)
{
    f->timeout_ms = app->config->execution_timeout_s * 1000;
    if (jsonx_fill(req->body, exec_fields, ARRAY_LEN(exec_fields), f, err) < 0)
        return -1;
    if (f->entity_id && !exec_entity_id_valid(f->entity_id))
        return error_set(err, ERR_INVALID, "entity_id: 1 to 64 letters, digits, _ and - are allowed");
    f->timeout_ms = MIN(f->timeout_ms, app->config->execution_timeout_s * 1000);
    return 0;
}

static int take_request(struct app *app, const struct http_request *req, const struct exec_fields *f,
                        struct execution_request *r, struct error *err)
{
    r->language = language_find(f->lang);
    if (!r->language)
        return unknown_language(f->lang, err);
    r->code_len = f->code.len;
    r->code = xmemdup(f->code.data, f->code.len);
    if (f->input.data) {
        r->input_len = f->input.len;
        r->input = xmemdup(f->input.data, f->input.len);
    }
    r->timeout_ms = f->timeout_ms;
    if (take_args(f->args, &r->args, err) < 0)
        return -1;
    return f->files ? take_refs(app, req->principal, f->files, r, err) : 0;
}

static char *runtime_version(struct app *app, const struct language *language)
{
    struct service_state state = { 0 };
    struct error ignored = { 0 };
    json_t *runtimes = NULL, *runtime = NULL;
    const char *version = NULL;

    service_state_get(app->service, &state);
    if (state.manifest && jsonx_unpack(state.manifest, &ignored, "{s:o}", "runtimes", &runtimes) == 0 &&
        jsonx_unpack(runtimes, &ignored, "{s:o}", language->runtime, &runtime) == 0)
        IGNORE(jsonx_unpack(runtime, &ignored, "{s:s}", "version", &version));
    char *copy = xstrdup(version);
    service_state_done(&state);
    return copy;
}

int exec_begin(struct app *app, const struct http_request *req, struct exec_call *ret, struct error *err)
{
    struct exec_fields f = { 0 };
    CLEANUP(execution_request_done) struct execution_request r = { 0 };
    CLEANUP(session_unpinp) struct session *s = NULL;
    bool fresh = false, started = false;

    if (take_fields(app, req, &f, err) < 0 || take_request(app, req, &f, &r, err) < 0 ||
        service_check(app->service, err) < 0)
        return -1;
    const struct session_hint hint = { .session_id = f.session_id && f.session_id[0] ? f.session_id : NULL,
                                       .entity_id = f.entity_id };
    if (session_resolve(app->sessions, req->principal, &hint, &s, &fresh, err) < 0 ||
        session_enter(s, &started, err) < 0)
        return -1;
    (void)snprintf(ret->lang, sizeof ret->lang, "%.15s", f.lang);
    ret->version = runtime_version(app, r.language);
    ret->session_new = fresh || started;
    return execution_start(s, &r, &ret->execution, err);
}

/* ---- waiting: an answer that takes long is begun early and kept alive with spaces ---- */

struct slow_answer {
    struct exec_call call;
    struct execution_reader reader;
    int64_t keepalive_ms;
    int client_fd;
    char *text; /* the answer once there is one */
    size_t len, sent;
};

static void slow_answer_free(void *state)
{
    struct slow_answer *a = state;

    execution_reader_done(&a->reader);
    exec_call_done(&a->call);
    free(a->text);
    free(a);
}

static ssize_t slow_answer_next(void *state, char *out, size_t max)
{
    struct slow_answer *a = state;
    struct execution_event unused;

    if (!a->text) {
        switch (execution_next(&a->reader, clock_mono_ms() + a->keepalive_ms, a->client_fd, &unused)) {
        case EXECUTION_HUNG_UP:
            execution_cancel(a->call.execution);
            return -1;
        case EXECUTION_ENDED: {
            json_auto_t *doc = exec_answer(&a->call);
            a->text = jsonx_dump_line(doc, &a->len);
            break;
        }
        case EXECUTION_EVENT:
        case EXECUTION_SILENT:
            out[0] = ' ';
            return 1;
        }
    }
    size_t n = MIN(max, a->len - a->sent);
    memcpy(out, a->text + a->sent, n);
    a->sent += n;
    return (ssize_t)n;
}

int api_exec(struct app *app, struct http_request *req, struct http_response *res, struct error *err)
{
    struct slow_answer *a = xcalloc(1, sizeof *a);
    struct execution_event unused;

    a->keepalive_ms = app->config->keepalive_s * 1000;
    a->client_fd = req->client_fd;
    if (exec_begin(app, req, &a->call, err) < 0 ||
        execution_reader_init(&a->reader, a->call.execution, true, err) < 0) {
        if (a->call.execution)
            execution_cancel(a->call.execution);
        slow_answer_free(a);
        return -1;
    }
    switch (execution_next(&a->reader, clock_mono_ms() + a->keepalive_ms, a->client_fd, &unused)) {
    case EXECUTION_ENDED:
        http_response_json(res, 200, exec_answer(&a->call));
        break;
    case EXECUTION_HUNG_UP:
        execution_cancel(a->call.execution);
        res->status = 499; /* nobody is there to read it */
        break;
    case EXECUTION_EVENT:
    case EXECUTION_SILENT:
        res->status = 200;
        res->content_type = xstrdup("application/json");
        http_response_header(res, "X-Accel-Buffering", "no");
        res->stream = (struct http_stream){ slow_answer_next, slow_answer_free, steal_ptr(&a) };
        break;
    }
    if (a)
        slow_answer_free(a);
    return 0;
}
