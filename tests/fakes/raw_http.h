/* raw_http.h - an HTTP client for tests that says exactly the bytes it is given. Fails the test by itself. */
#pragma once

#include "common/buf.h"

#define RAW_HOST "Host: a\r\n"

struct raw_reply {
    unsigned status;
    char head[2048];
    struct buf body; /* the caller ends it */
};

int raw_dial(uint16_t port); /* to loopback; -1 when nobody listens. Reads give up after 8 s */
void raw_say(int fd, const char *text);
void raw_say_bytes(int fd, const char *data, size_t len);
bool raw_read_head(int fd, struct raw_reply *r); /* false when the connection ended first */
bool raw_read_chunk(int fd, struct buf *out);    /* false for the last */
/* A whole answer, which must carry a request id. To HEAD, and with some statuses, there is no body. */
void raw_read_reply(int fd, bool to_head, struct raw_reply *r);
bool raw_ended(int fd); /* the server has closed, and said nothing more */

/* Sends a request and gives the answer's status; its body must contain text, unless that is NULL. */
unsigned raw_ask(int fd, const char *request, const char *text);
