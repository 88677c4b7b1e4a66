/* POST /upload: the parts of a multipart body stream into the store; rows follow when the body is complete.
 */
#include <assert.h>
#include <string.h>

#include "common/clock.h"
#include "orchestrator/api/exec.h"
#include "orchestrator/http/content.h"
#include "orchestrator/http/multipart.h"

#define MAX_FIELD_BYTES 1024
#define MAX_FILES 1000

struct upload_file {
    char *name; /* checked */
    char *content_type;
    struct store_writer *writer;
};

struct upload {
    struct app *app;
    struct multipart *parser;
    struct upload_file *files;
    size_t count;
    bool in_file;      /* the current part is files[count - 1] */
    struct buf *field; /* or one of these, or nothing that is known */
    struct buf entity_id, session_id, read_only;
};

static int on_part(void *state, const struct multipart_part *p, struct error *err)
{
    struct upload *u = state;
    auto_free char *name = NULL;

    u->field = NULL;
    u->in_file = p->has_filename && (strcmp(p->name, "file") == 0 || strcmp(p->name, "files") == 0);
    if (!u->in_file) {
        u->field = strcmp(p->name, "entity_id") == 0    ? &u->entity_id
                   : strcmp(p->name, "session_id") == 0 ? &u->session_id
                   : strcmp(p->name, "read_only") == 0  ? &u->read_only
                                                        : NULL;
        return 0;
    }
    if (u->count == MAX_FILES)
        return error_set(err, ERR_LIMIT, "more than %d files in one request", MAX_FILES);
    if (file_name_check(p->filename, &name, err) < 0)
        return -1;
    u->files = xrealloc_array(u->files, u->count + 1, sizeof *u->files);
    struct upload_file *f = &u->files[u->count];
    *f = (struct upload_file){ .content_type = xstrdup(p->content_type) };
    u->count++;
    f->name = steal_ptr(&name);
    return store_writer_new(u->app->store, u->app->config->max_upload_mb * 1024 * 1024, &f->writer, err);
}

static int on_data(void *state, const char *data, size_t len, struct error *err)
{
    struct upload *u = state;

    if (u->in_file) {
        struct upload_file *f = &u->files[u->count - 1];
        if (store_writer_write(f->writer, data, len, err) == 0)
            return 0;
        return err->kind == ERR_LIMIT ? error_wrap(err, "file '%.100s' (MAX_UPLOAD_MB is %lld)", f->name,
                                                   (long long)u->app->config->max_upload_mb)
                                      : -1;
    }
    return u->field ? buf_add(u->field, data, len, err) : 0;
}

static int on_part_end(void *state, struct error *err)
{
    struct upload *u = state;

    return u->in_file ? store_writer_seal(u->files[u->count - 1].writer, err) : 0;
}

static const struct multipart_events events = { on_part, on_data, on_part_end };

/* ---- the sink ---- */

static void upload_free(void *state)
{
    struct upload *u = state;

    multipart_free(u->parser);
    for (size_t i = 0; i < u->count; i++) {
        store_writer_free(u->files[i].writer);
        free(u->files[i].name);
        free(u->files[i].content_type);
    }
    free(u->files);
    buf_done(&u->entity_id);
    buf_done(&u->session_id);
    buf_done(&u->read_only);
    free(u);
}

static int upload_open(struct app *app, struct http_request *req, void **ret_state, struct error *err)
{
    const char *type = http_header(req, "Content-Type");
    struct upload *u = xcalloc(1, sizeof *u);

    u->app = app;
    buf_init(&u->entity_id, MAX_FIELD_BYTES);
    buf_init(&u->session_id, MAX_FIELD_BYTES);
    buf_init(&u->read_only, MAX_FIELD_BYTES);
    if (multipart_new(type ? type : "", &events, u, &u->parser, err) < 0) {
        upload_free(u);
        return -1;
    }
    *ret_state = u;
    return 0;
}

static int upload_data(void *state, const char *data, size_t len, struct error *err)
{
    return multipart_feed(((struct upload *)state)->parser, data, len, err);
}

static int upload_end(void *state, struct error *err)
{
    return multipart_end(((struct upload *)state)->parser, err);
}

const struct http_sink api_upload_sink = { upload_open, upload_data, upload_end, upload_free };

/* ---- the answer ---- */

static int find_session(struct app *app, const struct http_request *req, const struct upload *u,
                        struct session **ret, bool *ret_new, struct error *err)
{
    const char *entity = u->entity_id.len ? u->entity_id.data : NULL;
    const struct session_hint hint = { .session_id = u->session_id.len ? u->session_id.data : NULL,
                                       .entity_id = entity };

    if (entity && !exec_entity_id_valid(entity))
        return error_set(err, ERR_INVALID, "entity_id: 1 to 64 letters, digits, _ and - are allowed");
    return session_resolve(app->sessions, req->principal, &hint, ret, ret_new, err);
}

static json_t *stored_json(const struct object *o)
{
    json_t *doc = exec_object_json(o, o->session_id);
    char when[CLOCK_ISO_SIZE];

    clock_iso(o->created_ms, when);
    (void)json_object_set_new(doc, "status", json_string("success"));
    (void)json_object_set_new(doc, "lastModified", json_string(when));
    (void)json_object_set_new(doc, "etag", json_string(o->sha256));
    (void)json_object_set_new(doc, "metadata",
                              json_pack("{s:o, s:o}", "content-type", jsonx_str(o->content_type),
                                        "original-filename", jsonx_str(o->name)));
    return doc;
}

/* Row after row: each file is durable and placed at the session's next execution, or the call fails before
 * it. */
static int store_file(struct app *app, struct session *s, const struct upload *u, struct upload_file *f,
                      json_t *list, struct error *err)
{
    auto_object struct object o = { 0 };
    struct object meta = { .name = f->name, .uploaded = true };
    assert(f->name && f->content_type); /* on_part() gave both */
    const char *known = content_type_of(f->name);
    auto_free char *type = xstrdup(
        strcmp(known, "application/octet-stream") == 0 && f->content_type[0] ? f->content_type : known);

    (void)stpcpy(meta.session_id, s->id);
    meta.content_type = type;
    meta.read_only = buf_is(&u->read_only, "true");
    if (store_writer_commit(f->writer, &meta, &o, err) < 0 ||
        workspace_mark_pending(app->db, s->id, o.name, o.id, err) < 0)
        return error_wrap(err, "store '%.100s'", f->name);
    (void)json_array_append_new(list, stored_json(&o));
    return 0;
}

static int store_files(struct app *app, struct session *s, struct upload *u, json_t *list, struct error *err)
{
    for (size_t i = 0; i < u->count; i++)
        if (store_file(app, s, u, &u->files[i], list, err) < 0)
            return -1;
    session_workspace_refresh(s);
    return 0;
}

int api_upload(struct app *app, struct http_request *req, struct http_response *res, struct error *err)
{
    struct upload *u = req->sink_state;
    CLEANUP(session_unpinp) struct session *s = NULL;
    json_auto_t *list = json_array();
    bool fresh = false;

    if (u->count == 0)
        return error_set(err, ERR_INVALID,
                         "file: the request has no file; send it in a part named file, with a name");
    if (find_session(app, req, u, &s, &fresh, err) < 0 || store_files(app, s, u, list, err) < 0)
        return -1;
    http_response_json(res, 200,
                       json_pack("{s:s, s:s, s:s, s:O}", "message", "success", "session_id", s->id,
                                 "storage_session_id", s->id, "files", list));
    return 0;
}
