/* app.h - what handlers and background work share; made in cli/serve.c, passed, never global. */
#pragma once

#include "orchestrator/config.h"

struct app { /* borrowed parts, owned by cli/serve.c */
    const struct config *config;
    const struct access *access;
    struct db *db;
    struct store *store;
    struct session_table *sessions;
    struct service *service;
};

#define CARREL_VERSION "0.1.0"
