/* route.h - finds the route that serves a method and a raw request target. */
#pragma once

#include "orchestrator/http/http.h"

#define ROUTE_MAX_SEGMENTS 16

/*
 * Gives the route, and its params (the caller frees), or NULL. Then *ret_allow lists what the path does allow
 * (the caller frees), or is NULL for an unknown path.
 */
const struct http_route *route_find(const struct http_route *routes, size_t count, const char *method,
                                    const char *target, char *ret_params[HTTP_MAX_PARAMS], char **ret_allow);
