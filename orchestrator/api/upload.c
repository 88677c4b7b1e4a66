/* The body of /upload and /upload/batch: the files of a multipart body stream into the store. */
#include "orchestrator/api/upload.h"

#include <ctype.h>
#include <string.h>

#include "orchestrator/files/store.h"
#include "orchestrator/http/multipart.h"

#define MAX_FIELD_BYTES 1024
#define MAX_FILES 1000
#define SEAL_GROUP 32 /* files that wait for the disk together; each holds a descriptor meanwhile */
#define MB ((int64_t)1024 * 1024)

static const struct upload_field { /* every field that means something here */
    const char *name;
    size_t offset;
} fields[] = {
    { "entity_id", offsetof(struct upload, entity_id) },
    { "session_id", offsetof(struct upload, session_id) },
    { "read_only", offsetof(struct upload, read_only) },
    { "kind", offsetof(struct upload, kind) },
    { "id", offsetof(struct upload, id) },
    { "version", offsetof(struct upload, version) },
};

static struct buf *field_at(struct upload *u, size_t i)
{
    return (struct buf *)((char *)u + fields[i].offset);
}

/* ---- the parts ---- */

/* The request fails with *err, or in a batch this file alone. */
static int refuse(struct upload *u, struct upload_file *f, const struct error *err)
{
    if (!u->batch)
        return -1;
    store_writer_free(f->writer);
    f->writer = NULL;
    f->refused = xstrdup(err->msg);
    return 0;
}

static int begin_file(struct upload *u, struct upload_file *f, struct error *err)
{
    if (file_name_check(f->given, &f->name, err) < 0)
        return -1;
    return store_writer_new(u->app->store, u->app->config->max_upload_mb * MB, &f->writer, err);
}

static int on_part(void *state, const struct multipart_part *p, struct error *err)
{
    struct upload *u = state;

    u->field = NULL;
    u->in_file = p->has_filename && (strcmp(p->name, "file") == 0 || strcmp(p->name, "files") == 0);
    if (!u->in_file) {
        for (size_t i = 0; i < ARRAY_LEN(fields); i++)
            if (strcmp(p->name, fields[i].name) == 0)
                u->field = field_at(u, i);
        return 0;
    }
    if (u->count == MAX_FILES)
        return error_set(err, ERR_LIMIT, "more than %d files in one request", MAX_FILES);
    u->files = xrealloc_array(u->files, u->count + 1, sizeof *u->files);
    struct upload_file *f = &u->files[u->count++];
    *f = (struct upload_file){ .given = xstrdup(p->filename), .content_type = xstrdup(p->content_type) };
    return begin_file(u, f, err) < 0 ? refuse(u, f, err) : 0;
}

static int on_data(void *state, const char *data, size_t len, struct error *err)
{
    struct upload *u = state;

    if (!u->in_file)
        return u->field ? buf_add(u->field, data, len, err) : 0;
    struct upload_file *f = &u->files[u->count - 1];
    if (!f->writer || store_writer_write(f->writer, data, len, err) == 0)
        return 0;
    if (err->kind == ERR_LIMIT)
        error_wrap(err, "file '%.100s' (MAX_UPLOAD_MB is %lld)", f->name,
                   (long long)u->app->config->max_upload_mb);
    return refuse(u, f, err);
}

static int seal(struct upload *u, struct error *err)
{
    struct store_writer *group[SEAL_GROUP];
    size_t n = 0;

    for (; u->sealed < u->count; u->sealed++)
        if (u->files[u->sealed].writer)
            group[n++] = u->files[u->sealed].writer;
    return store_writer_seal_all(group, n, err);
}

static int on_part_end(void *state, struct error *err)
{
    struct upload *u = state;

    return u->count - u->sealed == SEAL_GROUP ? seal(u, err) : 0;
}

static const struct multipart_events events = { on_part, on_data, on_part_end };

/* ---- the sink ---- */

static void upload_free(void *state)
{
    struct upload *u = state;

    multipart_free(u->parser);
    for (size_t i = 0; i < u->count; i++) {
        store_writer_free(u->files[i].writer);
        free(u->files[i].given);
        free(u->files[i].name);
        free(u->files[i].content_type);
        free(u->files[i].refused);
    }
    free(u->files);
    for (size_t i = 0; i < ARRAY_LEN(fields); i++)
        buf_done(field_at(u, i));
    free(u);
}

static int too_large(const struct upload *u, struct error *err)
{
    return error_set(err, ERR_LIMIT, "the request is larger than %lld MiB (MAX_BATCH_MB)",
                     (long long)u->app->config->max_batch_mb);
}

/* Refuses before the body comes what its announced length already tells. */
static int check_length(const struct upload *u, const struct http_request *req, struct error *err)
{
    const char *text = http_header(req, "Content-Length");
    int64_t n = 0;

    for (; text && isdigit((unsigned char)*text); text++) {
        n = n * 10 + (*text - '0');
        if (n > u->room)
            return too_large(u, err);
    }
    return 0;
}

static int open_upload(struct app *app, const struct http_request *req, bool batch, void **ret_state,
                       struct error *err)
{
    const char *type = http_header(req, "Content-Type");
    struct upload *u = xcalloc(1, sizeof *u);

    u->app = app;
    u->batch = batch;
    u->room = (MAX(app->config->max_batch_mb, app->config->max_upload_mb) + 1) * MB; /* 1: what is no file */
    for (size_t i = 0; i < ARRAY_LEN(fields); i++)
        buf_init(field_at(u, i), MAX_FIELD_BYTES);
    if (check_length(u, req, err) < 0 || multipart_new(type ? type : "", &events, u, &u->parser, err) < 0) {
        upload_free(u);
        return -1;
    }
    *ret_state = u;
    return 0;
}

static int upload_open(struct app *app, struct http_request *req, void **ret_state, struct error *err)
{
    return open_upload(app, req, false, ret_state, err);
}

static int batch_open(struct app *app, struct http_request *req, void **ret_state, struct error *err)
{
    return open_upload(app, req, true, ret_state, err);
}

static int upload_data(void *state, const char *data, size_t len, struct error *err)
{
    struct upload *u = state;

    if (len > (uint64_t)u->room)
        return too_large(u, err);
    u->room -= (int64_t)len;
    return multipart_feed(u->parser, data, len, err);
}

static int upload_end(void *state, struct error *err)
{
    struct upload *u = state;

    return multipart_end(u->parser, err) < 0 ? -1 : seal(u, err);
}

const struct http_sink api_upload_sink = { upload_open, upload_data, upload_end, upload_free };
const struct http_sink api_upload_batch_sink = { batch_open, upload_data, upload_end, upload_free };
