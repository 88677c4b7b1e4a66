/* http.h - request, response and route as plain data, and their dispatch. No server library's types here. */
#pragma once

#include <sys/types.h>

#include "common/json/jsonx.h"

struct app;
struct principal;

#define HTTP_MAX_PARAMS 4
#define HTTP_MAX_FIELDS 128 /* request headers or query parameters kept */
#define HTTP_REQUEST_ID_SIZE 24

struct http_field {
    char *name; /* owned */
    char *value;
};

struct http_fields { /* in the order they came */
    struct http_field *items;
    size_t count;
};

struct http_request {
    const char *method; /* borrowed: "GET" */
    const char
        *target; /* borrowed: as it came, still percent-encoded, without the query: "/v1/files/a%20b" */
    struct http_fields headers;
    struct http_fields query;      /* decoded */
    char *params[HTTP_MAX_PARAMS]; /* owned, decoded; values of {name} segments in the pattern's order */
    json_t *body;                  /* owned; the parsed JSON body, or NULL */
    void *sink_state;              /* what the route's sink made of the body, or NULL */
    int client_fd;                 /* borrowed, for hang-up detection; -1 when there is none (tests) */
    bool peer_is_loopback;         /* the TCP peer, not any forwarded address */
    struct principal *principal;   /* owned; set by the service's guard, NULL on public routes */
    char request_id[HTTP_REQUEST_ID_SIZE]; /* made by us, in the log and in X-Request-Id */
};

/* Borrowed; NULL when absent. Header names compare without case; of several fields the first counts. */
const char *http_header(const struct http_request *req, const char *name);
const char *http_query(const struct http_request *req, const char *name);
int http_fields_add(struct http_fields *f, const char *name, const char *value, struct error *err) MUST_CHECK;
void http_fields_done(struct http_fields *f);

/* A body made while it is sent. next() may block; it runs in the connection's thread. */
struct http_stream {
    /* Fills out with 1..max bytes and gives their count; 0 ends the body well, -1 cuts the connection. */
    ssize_t (*next)(void *state, char *out, size_t max);
    void (*free)(void *state); /* always called once, also when the client is gone */
    void *state;
};

struct http_response {
    unsigned status;
    struct http_fields headers; /* beside those that the server adds by itself */
    char *content_type;         /* owned; NULL: application/json for json */
    /* exactly one body, or none */
    json_t *json; /* owned */
    char *text;   /* owned bytes */
    size_t text_len;
    int file_fd; /* owned; -1 when there is none; sent from file_offset, file_len bytes */
    uint64_t file_offset;
    uint64_t file_len;
    struct http_stream stream; /* when .next is set: chunked */
};

void http_response_init(struct http_response *res);
void http_response_done(struct http_response *res);
void http_response_json(struct http_response *res, unsigned status, json_t *doc); /* takes doc */
/* Adds one; control characters in the value become spaces. */
void http_response_header(struct http_response *res, const char *name, const char *fmt, ...)
    PRINTF_LIKE(3, 4);

typedef int http_handler(struct app *app, struct http_request *req, struct http_response *res,
                         struct error *err);

/* Takes a request body that is too large or too structured for memory, as it comes. */
struct http_sink {
    /* Headers are known, the guard has passed. Fails early on what can be refused already (413, 415). */
    int (*open)(struct app *app, struct http_request *req, void **ret_state, struct error *err);
    int (*data)(void *state, const char *data, size_t len, struct error *err);
    int (*end)(void *state, struct error *err); /* the body is complete; the handler follows */
    void (*free)(void *state);                  /* always once, also when the connection was cut half-way */
};

enum http_auth { HTTP_AUTH_NEEDED, HTTP_AUTH_NONE, HTTP_AUTH_ADMIN };

struct http_route {
    const char *method;
    const char *pattern; /* "/files/{sid}/{fid}"; served below /v1 too */
    http_handler *handler;
    enum http_auth auth;
    bool json_body;               /* needs a JSON body (415 when it is something else) */
    const struct http_sink *sink; /* or takes the body by itself */
    const char *summary;          /* one line for openapi.json and the documentation */
};

/* Who may do what is decided above this module. */
typedef int http_guard(struct app *app, const struct http_route *route, struct http_request *req,
                       struct http_response *res, struct error *err);

struct http_service {
    const struct http_route *routes;
    size_t route_count;
    struct app *app;
    /* May set req->principal; may add response headers (CORS, WWW-Authenticate). Also asked for OPTIONS of a
       known path, with a route whose method is "OPTIONS" and whose auth is HTTP_AUTH_NONE. NULL: everybody
       may. */
    http_guard *guard;
    void (*principal_free)(struct principal *p);
    size_t max_json_bytes;
    bool log_requests;
};

/*
 * The two halves of an exchange. http_begin() initialises res, finds the route (collapsing doubled slashes,
 * ignoring one at the end, dropping /v1, decoding {name} segments; a segment that decodes to a slash, a NUL
 * or nothing is not found), runs the guard and opens the sink. It gives the route, or NULL when the answer is
 * already in res. http_finish() parses the JSON body (body may be NULL) or ends the sink, and runs the
 * handler. Neither fails: errors become the error document in res, and HEAD is answered as GET by routes that
 * have GET. OPTIONS gives 204 with Allow; a known path with another method 405. The caller ends res, then the
 * request: a stream may borrow from it.
 */
const struct http_route *http_begin(const struct http_service *s, struct http_request *req,
                                    struct http_response *res);
void http_finish(const struct http_service *s, const struct http_route *route, struct http_request *req,
                 const char *body, size_t body_len, struct http_response *res);
/* Both halves in memory, for tests and other transports. It frees the sink; http_request_done() gets no route
 * then. */
void http_dispatch(const struct http_service *s, struct http_request *req, const char *body, size_t body_len,
                   struct http_response *res);

/* route is what http_begin() gave. */
void http_request_done(const struct http_service *s, const struct http_route *route,
                       struct http_request *req);

/* Splits and decodes "a=1&b=%20" into fields; bad escapes are kept as they are. */
int http_query_parse(const char *query, struct http_fields *ret, struct error *err) MUST_CHECK;

bool http_type_is_json(const char *content_type); /* application/json or *+json, parameters allowed */
unsigned http_status_of(enum error_kind kind);    /* ERR_NOT_FOUND -> 404 */
/* {"error": word, "message": msg, "detail": msg}, with "retry_after_seconds" when known; fills status and
 * headers. */
void http_response_error(struct http_response *res, const struct error *err);
