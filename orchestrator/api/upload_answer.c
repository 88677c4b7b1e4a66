/* POST /upload and /upload/batch, once the body is there: whose the files are, their rows, the answer. */
#include <assert.h>
#include <string.h>

#include "common/clock.h"
#include "orchestrator/api/exec.h"
#include "orchestrator/api/upload.h"
#include "orchestrator/http/content.h"

#define CLAIM_MAX 128

/* ---- whose ---- */

static int check_claim(const struct buf *b, const char *field, struct error *err)
{
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.:-";

    if (b->len < 1 || b->len > CLAIM_MAX || strspn(b->data, allowed) != b->len)
        return error_set(err, ERR_INVALID,
                         "%s: this kind of file needs 1 to %d letters, digits and _ . : - here", field,
                         CLAIM_MAX);
    return 0;
}

/* Leaves *ret empty when the files are the principal's: a claimed user says nothing. */
static int take_shared(const struct upload *u, struct shared_storage *ret, struct error *err)
{
    bool agent = buf_is(&u->kind, "agent"), skill = buf_is(&u->kind, "skill");

    if (!agent && !skill)
        return u->kind.len == 0 || buf_is(&u->kind, "user")
                   ? 0
                   : error_set(err, ERR_INVALID, "kind: user, agent and skill are known");
    if (check_claim(&u->id, "id", err) < 0 || (skill && check_claim(&u->version, "version", err) < 0))
        return -1;
    *ret = (struct shared_storage){ .kind = agent ? "agent" : "skill",
                                    .id = u->id.data,
                                    .version = skill ? u->version.data : NULL };
    return 0;
}

static int find_session(struct app *app, const struct http_request *req, const struct upload *u,
                        struct session **ret, struct error *err)
{
    const char *entity = u->entity_id.len ? u->entity_id.data : NULL;
    const struct session_hint hint = { .session_id = u->session_id.len ? u->session_id.data : NULL,
                                       .entity_id = entity };
    struct shared_storage shared = { 0 };

    if (take_shared(u, &shared, err) < 0)
        return -1;
    if (shared.kind)
        return session_resolve_shared(app->sessions, req->principal, &shared, ret, err);
    if (entity && !exec_entity_id_valid(entity))
        return error_set(err, ERR_INVALID, "entity_id: 1 to 64 letters, digits, _ and - are allowed");
    return session_resolve(app->sessions, req->principal, &hint, ret, NULL, err);
}

/* ---- rows ---- */

struct storing {
    const struct upload *upload;
    const struct session *session;
    struct objects stored; /* of the files that were not refused, in their order */
};

static int store_file(struct storing *st, struct db *db, const struct upload_file *f, struct error *err)
{
    struct object o = { 0 };
    struct object meta = { .name = f->name, .uploaded = true };
    assert(f->name && f->content_type); /* on_part() gave both */
    const char *known = content_type_of(f->name);
    auto_free char *type = xstrdup(
        strcmp(known, "application/octet-stream") == 0 && f->content_type[0] ? f->content_type : known);
    const char *sid = st->session->id;

    (void)stpcpy(meta.session_id, sid);
    meta.content_type = type;
    meta.read_only = buf_is(&st->upload->read_only, "true");
    if (workspace_object_at(db, sid, f->name, meta.modified_from, err) < 0 ||
        store_writer_commit(f->writer, &meta, &o, err) < 0)
        return error_wrap(err, "store '%.100s'", f->name);
    objects_add(&st->stored, &o);
    if (st->session->shared) /* nothing is ever executed there */
        return 0;
    const struct object *last = &st->stored.items[st->stored.count - 1];
    return workspace_mark_pending(db, sid, last->name, last->id, err);
}

static int store_tx(void *state, struct db *db, struct error *err)
{
    struct storing *st = state;

    for (size_t i = 0; i < st->upload->count; i++)
        if (st->upload->files[i].writer && store_file(st, db, &st->upload->files[i], err) < 0)
            return -1;
    return 0;
}

/* All rows or none: each file is durable and placed at the session's next execution, or the call fails. */
static int store_files(struct app *app, struct session *s, struct storing *st, struct error *err)
{
    if (db_transaction(app->db, err, store_tx, st) < 0) {
        for (size_t i = 0; i < st->upload->count; i++)
            if (st->upload->files[i].writer)
                store_writer_uncommit(st->upload->files[i].writer);
        return -1;
    }
    if (!s->shared)
        session_workspace_refresh(s);
    return 0;
}

/* ---- the answer ---- */

static json_t *stored_json(const struct object *o)
{
    json_t *doc = exec_object_json(o, o->session_id);
    char when[CLOCK_ISO_SIZE];

    clock_iso(o->created_ms, when);
    (void)json_object_del(doc, "modified_from"); /* what it replaces is known to us, not made from it */
    (void)json_object_set_new(doc, "status", json_string("success"));
    (void)json_object_set_new(doc, "lastModified", json_string(when));
    (void)json_object_set_new(doc, "etag", json_string(o->sha256));
    (void)json_object_set_new(doc, "metadata",
                              json_pack("{s:o, s:o}", "content-type", jsonx_str(o->content_type),
                                        "original-filename", jsonx_str(o->name)));
    return doc;
}

static json_t *files_json(const struct storing *st)
{
    json_t *list = json_array();
    size_t stored = 0;

    for (size_t i = 0; i < st->upload->count; i++) {
        const struct upload_file *f = &st->upload->files[i];
        if (f->refused) {
            (void)json_array_append_new(list, json_pack("{s:s, s:o, s:o}", "status", "error", "filename",
                                                        jsonx_str(f->given), "error", jsonx_str(f->refused)));
            continue;
        }
        assert(st->stored.items && stored < st->stored.count); /* a file was refused or stored */
        (void)json_array_append_new(list, stored_json(&st->stored.items[stored++]));
    }
    return list;
}

static int take_files(struct app *app, const struct http_request *req, struct storing *st,
                      struct session **ret_pinned, struct error *err)
{
    CLEANUP(session_unpinp) struct session *s = NULL;

    if (find_session(app, req, st->upload, &s, err) < 0)
        return -1;
    st->session = s;
    if (store_files(app, s, st, err) < 0)
        return -1;
    *ret_pinned = steal_ptr(&s);
    return 0;
}

static int check_any(const struct upload *u, struct error *err)
{
    return u->count > 0
               ? 0
               : error_set(err, ERR_INVALID,
                           "file: the request has no file; send it in a part named file, with a name");
}

int api_upload(struct app *app, struct http_request *req, struct http_response *res, struct error *err)
{
    struct storing st = { .upload = req->sink_state };
    CLEANUP(session_unpinp) struct session *s = NULL;

    if (check_any(st.upload, err) == 0 && take_files(app, req, &st, &s, err) == 0)
        http_response_json(res, 200,
                           json_pack("{s:s, s:s, s:s, s:o}", "message", "success", "session_id", s->id,
                                     "storage_session_id", s->id, "files", files_json(&st)));
    objects_done(&st.stored);
    return s ? 0 : -1;
}

static size_t count_refused(const struct upload *u)
{
    size_t n = 0;

    for (size_t i = 0; i < u->count; i++)
        n += u->files[i].refused != NULL;
    return n;
}

static void batch_answer(struct http_response *res, const struct storing *st, size_t refused,
                         const char *session_id)
{
    size_t stored = st->upload->count - refused;
    json_t *doc = json_pack("{s:s, s:s?, s:s?, s:o, s:I, s:I}", "message",
                            refused == 0  ? "success"
                            : stored == 0 ? "error"
                                          : "partial_success",
                            "session_id", session_id, "storage_session_id", session_id, "files",
                            files_json(st), "succeeded", (json_int_t)stored, "failed", (json_int_t)refused);

    http_response_json(res, stored > 0 ? 200 : 400, doc);
}

int api_upload_batch(struct app *app, struct http_request *req, struct http_response *res, struct error *err)
{
    struct storing st = { .upload = req->sink_state };
    CLEANUP(session_unpinp) struct session *s = NULL;
    struct shared_storage unused = { 0 };

    if (check_any(st.upload, err) < 0 || take_shared(st.upload, &unused, err) < 0)
        return -1;
    size_t refused = count_refused(st.upload);
    bool any = refused < st.upload->count; /* else no session is made for nothing */
    int r = any ? take_files(app, req, &st, &s, err) : 0;
    if (r == 0)
        batch_answer(res, &st, refused, s ? s->id : NULL);
    objects_done(&st.stored);
    return r;
}
