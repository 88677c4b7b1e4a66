/* upload.h - a multipart upload: its fields, and its files, whose bytes are in the store but have no rows
 * yet. upload.c takes the body, upload_answer.c gives the files to a session. */
#pragma once

#include "orchestrator/api/api.h"

struct upload_file {
    char *given;                 /* its name as the client wrote it */
    char *name;                  /* checked */
    char *content_type;          /* as the client says; "" when it does not */
    struct store_writer *writer; /* NULL when refused */
    char *refused;               /* why, for the client; NULL when all is well */
};

struct upload {
    struct app *app;
    struct multipart *parser;
    bool batch;   /* a file that is refused fails alone, not the request */
    int64_t room; /* bytes that the request may still have */
    struct upload_file *files;
    size_t count, sealed; /* the first `sealed` files are durable */
    bool in_file;         /* the current part is files[count - 1] */
    struct buf *field;    /* or one of these, or nothing that is known */
    struct buf entity_id, session_id, read_only, kind, id, version;
};
