/* client.h - one HTTP exchange as a client, over a Unix socket or TCP. */
#pragma once

#include "common/json/jsonx.h"

struct http_endpoint {
    const char *socket_path; /* Unix socket, or NULL */
    const char
        *base_url; /* "http://docker" for a socket (only names the Host), else "http://127.0.0.1:2375" */
};

struct http_call {
    const char *method;
    const char *path;           /* "/v1.41/containers/create?name=x", already escaped */
    const json_t *body;         /* borrowed; NULL: none (POST then sends Content-Length: 0) */
    const char *const *headers; /* "Name: value", NULL-terminated; or NULL */
    long timeout_ms;            /* whole exchange; 0: none, for streams */
    size_t max_reply;           /* bytes; 0 means 8 MiB */
    /* A streamed reply (status below 400): called once when its head came, then with each piece of the body.
       A negative result of on_data ends the exchange with *err kept as is. Either may be NULL. */
    void (*on_open)(void *state);
    int (*on_data)(void *state, const char *data, size_t len, struct error *err);
    void *state;
    const int
        *stop_fd; /* or NULL; the exchange ends with ERR_TIMEOUT as soon as this descriptor is readable */
};

struct http_reply {
    long status;           /* 0: no answer came */
    int os_errno;          /* why no connection could be made, where the system said */
    char api_version[16];  /* the Api-Version response header, "" when absent */
    char server[64];       /* the Server response header, "" when absent */
    char content_type[64]; /* "" when absent */
    struct buf body;
};

/*
 * Blocks. Transport failures: ERR_UNAVAILABLE when nothing listens or access is denied (the message keeps the
 * system's reason, the reply its os_errno), ERR_TIMEOUT, ERR_UPSTREAM. A status of 400 or more becomes an
 * error with the JSON "message" of the body: 404 ERR_NOT_FOUND, 409 ERR_CONFLICT, 400 ERR_INVALID, 502 to 504
 * ERR_UNAVAILABLE, others ERR_UPSTREAM. *ret is always written; after a failure its body is empty, the rest
 * tells what is known. Proxies of the environment are not used and redirects not followed.
 */
int http_client(const struct http_endpoint *to, const struct http_call *call, struct http_reply *ret,
                struct error *err) MUST_CHECK;
void http_reply_done(struct http_reply *r);
#define auto_reply CLEANUP(http_reply_done)

int http_client_setup(struct error *err) MUST_CHECK; /* once, before threads */
void http_client_teardown(void);
