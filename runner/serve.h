/*
 * serve.h - the socket the service connects to: who may, HELLO, requests, and the events of executions sent
 * as fast as each reader takes them, from the one log, by position.
 */
#pragma once

#include "runner/execution.h"
#include "runner/python.h"

#define CONNECTIONS_MAX 64

struct connection;

struct server {
    struct context *context;
    struct executions *executions;
    struct python *python;
    struct watch listening;
    struct connection *first;
    size_t count;
    struct timer orphan; /* nobody has been connected for that long */
    void (*abandoned)(struct server *s);
};

/* Listens. abandoned() is called when config->orphan_s passed without a connection. */
int server_init(struct server *s, struct context *context, struct executions *executions,
                struct python *python, void (*abandoned)(struct server *s), struct error *err) MUST_CHECK;
void server_done(struct server *s);
/* Sends what has come up; once a turn. */
void server_flush(struct server *s);
