/* Listing, reading and deleting the files of a session. */
#include <string.h>

#include "common/clock.h"
#include "orchestrator/api/api.h"
#include "orchestrator/http/content.h"
#include "orchestrator/session/table.h"

#define LIST_MAX_BYTES ((size_t)256 * 1024 * 1024)

/* "<sid>/<fid>.<ext>": the name older clients match against; the real one stands in the metadata. */
static char *listed_name(const struct object *o)
{
    const char *base = strrchr(o->name, '/');
    const char *dot = strrchr(base ? base : o->name, '.');

    return xasprintf("%s/%s%s", o->session_id, o->id, dot ? dot : "");
}

static json_t *metadata_json(const struct object *o)
{
    return json_pack("{s:o, s:o}", "content-type", jsonx_str(o->content_type), "original-filename",
                     jsonx_str(o->name));
}

/* ---- the four ways to list a file ---- */

static json_t *simple_json(const struct object *o)
{
    auto_free char *name = listed_name(o);

    return jsonx_str(name);
}

static json_t *summary_json(const struct object *o)
{
    auto_free char *name = listed_name(o);
    char when[CLOCK_ISO_SIZE];

    clock_iso(o->last_used_ms, when);
    return json_pack("{s:o, s:s, s:s, s:s, s:s, s:o, s:o, s:I, s:s, s:s}", "name", jsonx_str(name), "id",
                     o->id, "fileId", o->id, "session_id", o->session_id, "storage_session_id", o->session_id,
                     "filename", jsonx_str(o->name), "path", jsonx_str(o->name), "size", (json_int_t)o->size,
                     "lastModified", when, "etag", o->sha256);
}

static json_t *full_json(const struct object *o)
{
    json_t *doc = summary_json(o);

    (void)json_object_set_new(doc, "originalFilename", jsonx_str(o->name));
    (void)json_object_set_new(doc, "contentType", jsonx_str(o->content_type));
    (void)json_object_set_new(doc, "versionId", json_null());
    (void)json_object_set_new(doc, "readOnly", json_boolean(o->read_only));
    (void)json_object_set_new(doc, "metadata", metadata_json(o));
    return doc;
}

/* As a reference of /exec takes it: the name is the file's own. */
static json_t *normalized_json(const struct object *o)
{
    char when[CLOCK_ISO_SIZE];

    clock_iso(o->last_used_ms, when);
    return json_pack("{s:s, s:o, s:s, s:I, s:o, s:s}", "id", o->id, "name", jsonx_str(o->name),
                     "storage_session_id", o->session_id, "size", (json_int_t)o->size, "contentType",
                     jsonx_str(o->content_type), "lastModified", when);
}

static const struct detail {
    const char *name;
    json_t *(*json)(const struct object *o);
} details[] = {
    { "full", full_json }, /* the first is the default */
    { "summary", summary_json },
    { "simple", simple_json },
    { "normalized", normalized_json },
};

static const struct detail *find_detail(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(details); i++)
        if (!name || strcmp(details[i].name, name) == 0)
            return &details[i];
    return NULL;
}

/* As text, file after file: a tree of values of a long list would take many times its bytes. */
static int list_text(const struct objects *list, const struct detail *detail, struct buf *out,
                     struct error *err)
{
    if (buf_add(out, "[", 1, err) < 0)
        return -1;
    for (size_t i = 0; i < list->count; i++) {
        json_auto_t *doc = detail->json(&list->items[i]);
        size_t len = 0;
        auto_free char *text = jsonx_dump(doc, &len);
        if ((i > 0 && buf_add(out, ",", 1, err) < 0) || buf_add(out, text, len, err) < 0)
            return -1;
    }
    return buf_add(out, "]\n", 2, err);
}

int api_files_list(struct app *app, struct http_request *req, struct http_response *res, struct error *err)
{
    const struct detail *detail = find_detail(http_query(req, "detail"));
    CLEANUP(session_unpinp) struct session *s = NULL;
    CLEANUP(objects_done) struct objects list = { 0 };
    auto_buf struct buf text = { .max = LIST_MAX_BYTES };

    if (!detail)
        return error_set(err, ERR_INVALID, "detail: simple, summary, full and normalized are known");
    if (session_find_files(app->sessions, req->principal, req->params[0], &s, err) < 0)
        return -1;
    /* Older clients ask by a listing whether a file still lives, and by that keep it. */
    if (store_touch_session(app->store, s->id, err) < 0 || store_list(app->store, s->id, &list, err) < 0 ||
        list_text(&list, detail, &text, err) < 0)
        return -1;
    res->status = 200;
    res->content_type = xstrdup("application/json");
    res->text_len = text.len;
    res->text = buf_take(&text);
    return 0;
}

/* ---- one file ---- */

/* The object {fid} as found under {sid}: both must be the principal's, or it is not found. */
static int find_object(struct app *app, const struct http_request *req, struct session **ret_session,
                       struct object *ret, struct error *err)
{
    if (session_find_files(app->sessions, req->principal, req->params[0], ret_session, err) < 0)
        return -1;
    if (!id_valid(req->params[1]))
        return error_set(err, ERR_NOT_FOUND, "no such file");
    return store_find_in(app->store, (*ret_session)->id, req->params[1], ret, err);
}

int api_files_get(struct app *app, struct http_request *req, struct http_response *res, struct error *err)
{
    CLEANUP(session_unpinp) struct session *s = NULL;
    auto_object struct object o = { 0 };

    if (find_object(app, req, &s, &o, err) < 0 || store_touch(app->store, o.id, err) < 0)
        return -1;
    object_done(&o);
    if (store_find_in(app->store, s->id, req->params[1], &o, err) < 0)
        return -1;
    http_response_json(res, 200, full_json(&o));
    return 0;
}

int api_download(struct app *app, struct http_request *req, struct http_response *res, struct error *err)
{
    CLEANUP(session_unpinp) struct session *s = NULL;
    auto_object struct object o = { 0 };
    int fd = -1;

    if (find_object(app, req, &s, &o, err) < 0 || store_touch(app->store, o.id, err) < 0 ||
        store_open_object(app->store, o.id, &fd, err) < 0)
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
        session_find_files(app->sessions, req->principal, o.session_id, &home, err) < 0 ||
        store_delete(app->store, o.id, err) < 0)
        return -1;
    if (!home->shared) /* which has no workspace */
        forget_in_workspace(home, o.id);
    http_response_json(
        res, 200, json_pack("{s:s, s:s, s:s}", "message", "deleted", "id", o.id, "session_id", o.session_id));
    return 0;
}
