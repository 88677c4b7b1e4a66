/* The document of /exec: every client generation finds its fields in it. */
#include <string.h>

#include "orchestrator/api/exec.h"

struct status_row {
    const char *status;     /* at the top: NULL when all is well */
    const char *run_status; /* the same in "run" */
};

static const struct status_row statuses[] = {
    [ENDED_OK] = { NULL, "success" },
    [ENDED_ERROR] = { "error", "error" },
    [ENDED_COMPILE] = { "error", "error" },
    [ENDED_TIMEOUT] = { "TO", "TO" },
    [ENDED_OUTPUT_LIMIT] = { "OL", "OL" },
    [ENDED_OOM] = { "OOM", "OOM" },
    [ENDED_SIGNAL] = { "SG", "SG" },
    [ENDED_CANCELLED] = { "error", "error" },
    [ENDED_KERNEL_DIED] = { "error", "error" },
    [ENDED_NOT_STARTED] = { "error", "error" },
    [ENDED_SANDBOX_LOST] = { "error", "error" },
};
_Static_assert(ARRAY_LEN(statuses) == EXECUTION_REASON_COUNT, "every reason has a status");

/* A killed kernel that names its signal, and output past the limit, count as such whatever else ended the
 * program. */
static struct status_row status_of(const struct execution_result *r)
{
    if (r->reason == ENDED_KERNEL_DIED && r->signal[0])
        return statuses[ENDED_SIGNAL];
    if (r->truncated && (r->reason == ENDED_OK || r->reason == ENDED_ERROR))
        return statuses[ENDED_OUTPUT_LIMIT];
    return statuses[r->reason];
}

json_t *exec_object_json(const struct object *o, const char *session_id)
{
    const char *sid = o->session_id;
    json_t *doc = json_pack("{s:s, s:s, s:o, s:o, s:o, s:s, s:s, s:I, s:o, s:s}", "id", o->id, "fileId",
                            o->id, "name", jsonx_str(o->name), "filename", jsonx_str(o->name), "path",
                            jsonx_str(o->name), "session_id", session_id, "storage_session_id", sid, "size",
                            (json_int_t)o->size, "contentType", jsonx_str(o->content_type), "sha256",
                            o->sha256);

    if (o->modified_from[0])
        (void)json_object_set_new(
            doc, "modified_from",
            json_pack("{s:s, s:s}", "id", o->modified_from, "storage_session_id", o->modified_from_session));
    return doc;
}

static json_t *files_json(const struct execution_result *r, const char *session_id)
{
    json_t *files = json_array();

    for (size_t i = 0; i < r->changes.files.count; i++)
        (void)json_array_append_new(files, exec_object_json(&r->changes.files.items[i], session_id));
    return files;
}

static void add_file_notes(json_t *doc, const struct execution_result *r)
{
    const struct workspace_changes *c = &r->changes;

    if (c->deleted_count > 0) {
        json_t *names = json_array();
        for (size_t i = 0; i < c->deleted_count; i++)
            (void)json_array_append_new(names, jsonx_str(c->deleted[i]));
        (void)json_object_set_new(doc, "deleted_files", names);
    }
    if (c->skipped_count > 0) {
        json_t *skipped = json_array();
        for (size_t i = 0; i < c->skipped_count; i++)
            (void)json_array_append_new(skipped,
                                        json_pack("{s:o, s:o}", "name", jsonx_str(c->skipped[i].name),
                                                  "reason", jsonx_str(c->skipped[i].reason)));
        (void)json_object_set_new(doc, "skipped_files", skipped);
    }
}

/* What the service has to say goes on lines of its own. */
static void add_line(struct buf *out, const char *text)
{
    struct error ignored = { 0 };

    if (text && out->len > 0 && out->data[out->len - 1] != '\n')
        IGNORE(buf_add(out, "\n", 1, &ignored));
    if (text)
        IGNORE(buf_addf(out, &ignored, "%s\n", text));
}

static json_t *output_json(const struct exec_call *c, enum execution_output which)
{
    const struct execution_result *r = execution_result(c->execution);
    auto_buf struct buf text = { .max = SIZE_MAX / 2 }; /* the execution bounds what it holds */
    struct error ignored = { 0 };

    if (which & OUTPUT_STDERR)
        add_line(&text, r->notice);
    IGNORE(execution_output(c->execution, which, &text, &ignored));
    if (which & OUTPUT_STDERR) {
        add_line(&text, r->message);
        for (size_t i = 0; i < r->refs_skipped; i++) {
            auto_free char *line = xasprintf("%s was not placed in /mnt/data: %s", r->changes.skipped[i].name,
                                             r->changes.skipped[i].reason);
            add_line(&text, line);
        }
    }
    return jsonx_text(text.data, text.len);
}

static json_t *run_json(const struct exec_call *c, json_t *out, json_t *err_text)
{
    const struct execution_result *r = execution_result(c->execution);

    return json_pack("{s:O, s:O, s:I, s:o, s:o, s:I, s:o, s:s, s:I, s:I}", "stdout", out, "stderr", err_text,
                     "code", (json_int_t)r->code, "signal", jsonx_str(r->signal[0] ? r->signal : NULL),
                     "output", output_json(c, OUTPUT_BOTH), "memory", (json_int_t)r->memory_bytes, "message",
                     jsonx_str(r->message), "status", status_of(r).run_status, "cpu_time",
                     (json_int_t)r->cpu_ms, "wall_time", (json_int_t)r->wall_ms);
}

json_t *exec_answer(const struct exec_call *c)
{
    const struct execution_result *r = execution_result(c->execution);
    const char *sid = execution_session(c->execution)->id;
    json_t *out = output_json(c, OUTPUT_STDOUT), *err_text = output_json(c, OUTPUT_STDERR);
    json_t *run = run_json(c, out, err_text);
    json_t *doc = json_pack(
        "{s:s, s:o, s:o, s:o, s:I, s:o, s:o, s:o, s:I, s:o, s:s, s:o, s:s, s:s, s:b}", "session_id", sid,
        "stdout", out, "stderr", err_text, "files", files_json(r, sid), "code", (json_int_t)r->code, "signal",
        jsonx_str(r->signal[0] ? r->signal : NULL), "message", jsonx_str(r->message), "status",
        jsonx_str(status_of(r).status), "wall_time", (json_int_t)r->wall_ms, "run", run, "language", c->lang,
        "version", jsonx_str(c->version), "runtime_session_id", sid, "runtime_status",
        c->session_new ? "new" : "reused", "session_restarted", (int)r->session_restarted);

    add_file_notes(doc, r);
    return doc;
}
