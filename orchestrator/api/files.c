/* Listing, reading and deleting the files of a session. */
#include <string.h>

#include "common/clock.h"
#include "orchestrator/api/api.h"
#include "orchestrator/http/content.h"
#include "orchestrator/session/table.h"

/* "<sid>/<fid>.<ext>": the name older clients match against; the real one stands in the metadata. */
static char *listed_name(const struct object *o)
{
    const char *base = strrchr(o->name, '/');
    const char *dot = strrchr(base ? base : o->name, '.');

    return xasprintf("%s/%s%s", o->session_id, o->id, dot ? dot : "");
}

static json_t *listed_json(const struct object *o)
{
    auto_free char *name = listed_name(o);
    char when[CLOCK_ISO_SIZE];

    clock_iso(o->last_used_ms, when);
    json_t *metadata = json_pack("{s:o, s:o}", "content-type", jsonx_str(o->content_type),
                                 "original-filename", jsonx_str(o->name));
    return json_pack("{s:o, s:s, s:s, s:s, s:s, s:o, s:o, s:I, s:s, s:s, s:o, s:n, s:b, s:o}", "name",
                     jsonx_str(name), "id", o->id, "fileId", o->id, "session_id", o->session_id,
                     "storage_session_id", o->session_id, "filename", jsonx_str(o->name), "path",
                     jsonx_str(o->name), "size", (json_int_t)o->size, "lastModified", when, "etag", o->sha256,
                     "contentType", jsonx_str(o->content_type), "versionId", "readOnly", (int)o->read_only,
                     "metadata", metadata);
}

int api_files_list(struct app *app, struct http_request *req, struct http_response *res, struct error *err)
{
    CLEANUP(session_unpinp) struct session *s = NULL;
    CLEANUP(objects_done) struct objects list = { 0 };

    if (session_find(app->sessions, req->principal, req->params[0], &s, err) < 0 ||
        store_list(app->store, s->id, &list, err) < 0)
        return -1;
    json_t *doc = json_array();
    for (size_t i = 0; i < list.count; i++)
        (void)json_array_append_new(doc, listed_json(&list.items[i]));
    http_response_json(res, 200, doc);
    return 0;
}

/* The object {fid} as found under {sid}: both must be the principal's, or it is not found. */
static int find_object(struct app *app, const struct http_request *req, struct session **ret_session,
                       struct object *ret, struct error *err)
{
    if (session_find(app->sessions, req->principal, req->params[0], ret_session, err) < 0)
        return -1;
    if (!id_valid(req->params[1]))
        return error_set(err, ERR_NOT_FOUND, "no such file");
    return store_find_in(app->store, (*ret_session)->id, req->params[1], ret, err);
}

int api_download(struct app *app, struct http_request *req, struct http_response *res, struct error *err)
{
    CLEANUP(session_unpinp) struct session *s = NULL;
    auto_object struct object o = { 0 };
    int fd = -1;

    if (find_object(app, req, &s, &o, err) < 0 || store_open_object(app->store, o.id, &fd, err) < 0)
        return -1;
    content_file_response(req, res, fd, (uint64_t)o.size, o.name, o.content_type, o.sha256);
    return 0;
}

/* A live workspace loses the file too, if it is still the object. */
static void forget_in_workspace(struct session *s, const char *object_id)
{
    struct workspace *w = NULL;
    struct error err = { 0 };

    if (session_workspace_begin(s, &w, &err) < 0) {
        log_warn("%s", err.msg);
        return;
    }
    if (workspace_forget(w, object_id, &err) < 0)
        log_warn("forget %s: %s", object_id, err.msg);
    session_workspace_end(s);
}

int api_files_delete(struct app *app, struct http_request *req, struct http_response *res, struct error *err)
{
    CLEANUP(session_unpinp) struct session *s = NULL;
    CLEANUP(session_unpinp) struct session *home = NULL;
    auto_object struct object o = { 0 };

    if (find_object(app, req, &s, &o, err) < 0 ||
        session_find(app->sessions, req->principal, o.session_id, &home, err) < 0 ||
        store_delete(app->store, o.id, err) < 0)
        return -1;
    forget_in_workspace(home, o.id);
    http_response_json(
        res, 200, json_pack("{s:s, s:s, s:s}", "message", "deleted", "id", o.id, "session_id", o.session_id));
    return 0;
}
