/* api.h - the REST handlers, one file per resource; routes.c binds them to paths. */
#pragma once

#include "orchestrator/access/principal.h"
#include "orchestrator/app.h"
#include "orchestrator/http/http.h"

const struct http_route *api_routes(size_t *ret_count);

/* Authentication, what an open server refuses, CORS. */
int api_guard(struct app *app, const struct http_route *route, struct http_request *req,
              struct http_response *res, struct error *err);

http_handler api_exec;          /* exec.c */
http_handler api_exec_stream;   /* stream.c */
http_handler api_upload;        /* upload_answer.c */
http_handler api_upload_batch;  /* upload_answer.c */
http_handler api_files_list;    /* files.c */
http_handler api_files_get;     /* files.c */
http_handler api_files_delete;  /* files.c */
http_handler api_download;      /* files.c */
http_handler api_health;        /* info.c */
http_handler api_libraries;     /* info.c */
http_handler api_index;         /* info.c */
http_handler api_openapi;       /* openapi.c */
http_handler api_sessions_list; /* sessions.c, as the next five */
http_handler api_session_get;
http_handler api_session_delete;
http_handler api_session_interrupt;
http_handler api_session_restart;
http_handler api_session_workspace;

extern const struct http_sink api_upload_sink; /* upload.c: the body of /upload, straight to the store */
extern const struct http_sink api_upload_batch_sink; /* the same; a file that is refused fails alone */
