/* server.h - serves an http_service over TCP, one thread per connection. */
#pragma once

#include "orchestrator/http/http.h"

struct http_server;

struct http_server_options {
    const char *host; /* address to bind: "127.0.0.1", "::1", "0.0.0.0"; a name is resolved */
    uint16_t port;    /* 0 picks a free one */
    unsigned max_connections;
    /* Ends a connection without traffic, or whose request head is not complete by then; a body has this time
       and a millisecond more for each byte that came. Handlers and streams may take as long as they like. */
    unsigned idle_timeout_s;
    const struct http_service *service;
};

int http_server_start(const struct http_server_options *opt, struct http_server **ret,
                      struct error *err) MUST_CHECK;
uint16_t http_server_port(const struct http_server *s);
void http_server_quiesce(struct http_server *s); /* accepts no more; requests under way go on */
/* Waits for handlers to return; their clients' connections hang up first. NULL is fine. */
void http_server_stop(struct http_server *s);
