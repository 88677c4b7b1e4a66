/* What a principal can see of its sessions and do with them. */
#include <string.h>

#include "common/clock.h"
#include "orchestrator/api/api.h"
#include "orchestrator/files/archive.h"
#include "orchestrator/http/number.h"
#include "orchestrator/session/table.h"

#define LIST_MAX 1000

static json_t *info_json(const struct session_info *i)
{
    char created[CLOCK_ISO_SIZE], used[CLOCK_ISO_SIZE];
    int64_t age_s = (clock_real_ms() - i->live_since_ms) / 1000;

    clock_iso(i->created_ms, created);
    clock_iso(i->last_used_ms, used);
    return json_pack("{s:s, s:o, s:s, s:s, s:s, s:I, s:o, s:I}", "id", i->id, "entity_id",
                     jsonx_str(i->entity_id), "state", session_state_name(i->state), "created", created,
                     "last_used", used, "last_used_ms", (json_int_t)i->last_used_ms, "sandbox_age_seconds",
                     i->live_since_ms ? json_integer(MAX(0, age_s)) : json_null(), "executing",
                     (json_int_t)i->running);
}

int api_sessions_list(struct app *app, struct http_request *req, struct http_response *res, struct error *err)
{
    CLEANUP(session_infos_done) struct session_infos list = { 0 };
    const char *text = http_query(req, "before");
    uint64_t before = INT64_MAX;

    if (text && (!number_parse(text, strlen(text), &before) || before > INT64_MAX))
        return error_set(err, ERR_INVALID, "before: must be a time in milliseconds since 1970");
    if (session_list(app->sessions, req->principal, (int64_t)before, LIST_MAX, &list, err) < 0)
        return -1;
    json_t *all = json_array();
    for (size_t i = 0; i < list.count; i++)
        (void)json_array_append_new(all, info_json(&list.items[i]));
    http_response_json(res, 200, json_pack("{s:o}", "sessions", all));
    return 0;
}

int api_session_get(struct app *app, struct http_request *req, struct http_response *res, struct error *err)
{
    CLEANUP(session_unpinp) struct session *s = NULL;
    CLEANUP(objects_done) struct objects files = { 0 };
    struct session_info info;

    if (session_find(app->sessions, req->principal, req->params[0], &s, err) < 0 ||
        store_list(app->store, s->id, &files, err) < 0)
        return -1;
    session_info_get(s, &info);
    json_t *doc = info_json(&info);
    free(info.entity_id);
    (void)json_object_set_new(doc, "files", json_integer((json_int_t)files.count));
    http_response_json(res, 200, doc);
    return 0;
}

int api_session_delete(struct app *app, struct http_request *req, struct http_response *res,
                       struct error *err)
{
    CLEANUP(session_unpinp) struct session *s = NULL;
    const char *files = http_query(req, "files");
    bool remove = str_eq(files, "true");

    if (files && !remove && !str_eq(files, "false"))
        return error_set(err, ERR_INVALID, "files: must be true or false");
    if (session_find(app->sessions, req->principal, req->params[0], &s, err) < 0 ||
        session_end(s, remove, "the session was ended on request", err) < 0)
        return -1;
    http_response_json(res, 200,
                       json_pack("{s:s, s:s, s:b}", "message", remove ? "deleted" : "ended", "session_id",
                                 s->id, "files_deleted", (int)remove));
    return 0;
}

int api_session_interrupt(struct app *app, struct http_request *req, struct http_response *res,
                          struct error *err)
{
    CLEANUP(session_unpinp) struct session *s = NULL;

    if (session_find(app->sessions, req->principal, req->params[0], &s, err) < 0)
        return -1;
    json_int_t n = session_interrupt(s);
    http_response_json(
        res, 200,
        json_pack("{s:s, s:s, s:I}", "message", "interrupted", "session_id", s->id, "cancelled", n));
    return 0;
}

int api_session_restart(struct app *app, struct http_request *req, struct http_response *res,
                        struct error *err)
{
    CLEANUP(session_unpinp) struct session *s = NULL;

    if (session_find(app->sessions, req->principal, req->params[0], &s, err) < 0 ||
        session_end(s, false, "the session was restarted on request", err) < 0)
        return -1;
    http_response_json(res, 200, json_pack("{s:s, s:s}", "message", "restarted", "session_id", s->id));
    return 0;
}

int api_session_workspace(struct app *app, struct http_request *req, struct http_response *res,
                          struct error *err)
{
    CLEANUP(session_unpinp) struct session *s = NULL;
    const char *format = http_query(req, "format");
    bool tar = str_eq(format, "tar.gz");
    struct archive_stream *stream = NULL;
    int dir_fd = -1;

    if (format && !tar && !str_eq(format, "zip"))
        return error_set(err, ERR_INVALID, "format: must be zip or tar.gz");
    if (session_find(app->sessions, req->principal, req->params[0], &s, err) < 0 ||
        session_open_files(s, &dir_fd, err) < 0 ||
        archive_stream_new(dir_fd, tar ? ARCHIVE_TAR_GZ : ARCHIVE_ZIP, app->config->workspace_files * 4,
                           &stream, err) < 0)
        return -1;
    res->status = 200;
    res->content_type = xstrdup(tar ? "application/gzip" : "application/zip");
    http_response_header(res, "Content-Disposition", "attachment; filename=\"workspace.%s\"",
                         tar ? "tar.gz" : "zip");
    res->stream = (struct http_stream){ archive_stream_next, archive_stream_free, stream };
    return 0;
}
