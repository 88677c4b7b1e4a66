/* connection.h - one connection of the service; see serve.h. */
#pragma once

#include "runner/serve.h"

struct connection {
    struct server *server;
    struct watch watch;
    struct frame_reader reader;
    struct buf answers; /* HELLO, LISTING, REFUSED: sent before events */
    size_t answers_sent;
    struct execution *following;
    size_t pos; /* in its log */
    bool greeted;
    bool closing; /* the other side has gone, or made no sense: freed at the end of the turn */
    struct connection *next;
};

void connection_new(struct server *s, int fd); /* takes fd; says HELLO */
void connection_free(struct connection *c);
/* Sends what it can without blocking. False: the connection is over, free it. */
bool connection_send(struct connection *c);
