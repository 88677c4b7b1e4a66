/* content.h - what responses with files need: types, names, ranges, validators, server-sent events. */
#pragma once

#include "orchestrator/http/http.h"

const char *content_type_of(const char *name); /* by extension; application/octet-stream when unknown */

/* The value of Content-Disposition: attachment with an ASCII fallback and filename* (RFC 6266, RFC 8187). */
char *content_disposition(const char *name);

/*
 * Answers GET or HEAD with a file: status 200, 206 or 416, Content-Type, ETag (quoted), Accept-Ranges,
 * Content-Disposition, If-None-Match, If-Range and a single Range honoured. Takes fd.
 */
void content_file_response(const struct http_request *req, struct http_response *res, int fd, uint64_t size,
                           const char *name, const char *content_type, const char *etag);

/* Appends "data: {json}\n\n". */
int sse_add_event(struct buf *out, const json_t *doc, struct error *err) MUST_CHECK;
