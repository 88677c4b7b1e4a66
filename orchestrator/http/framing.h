/* framing.h - refuses request heads that two servers could read in two ways (request smuggling). */
#pragma once

#include "orchestrator/http/http.h"

#define FRAMING_UNKNOWN UINT64_MAX /* a chunked body: its size is not known before its end */

/* One header field as it came. ERR_INVALID: a name that is no token, control bytes in a value. */
int framing_check_field(const char *name, size_t name_len, const char *value, size_t value_len,
                        struct error *err) MUST_CHECK;

/*
 * The whole head: version ("HTTP/1.1"), target, Host, Content-Length, Transfer-Encoding. Gives the size of
 * the body that follows. ERR_INVALID.
 */
int framing_check(const struct http_request *req, const char *version, uint64_t *ret_body,
                  struct error *err) MUST_CHECK;
