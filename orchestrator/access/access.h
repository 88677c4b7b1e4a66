/* access.h - who is calling: checks credentials, and what an open server lets in. Pure; does not block. */
#pragma once

#include "orchestrator/access/principal.h"
#include "orchestrator/config.h"
#include "orchestrator/http/http.h"

/* ERR_INVALID when the settings would leave a server open beyond loopback without AUTH=none. */
int access_check_config(const struct config *cfg, struct error *err) MUST_CHECK;
bool access_is_open(const struct config *cfg); /* no credentials are configured */

/*
 * What an open server must refuse because any web page could otherwise run code through the visitor's
 * browser: a foreign Origin (ERR_FORBIDDEN, 403), a Host that is not loopback when bound to loopback (DNS
 * rebinding; ERR_FORBIDDEN), a JSON route without application/json (ERR_MEDIA_TYPE). Nothing is refused when
 * a key is needed.
 */
int access_check_open(const struct config *cfg, const struct http_request *req, bool json_route,
                      struct error *err) MUST_CHECK;

/* The caller's principal, by X-API-Key or Authorization (Bearer or Basic). ERR_UNAUTHORIZED. */
int access_authenticate(const struct config *cfg, const struct http_request *req, struct principal **ret,
                        struct error *err) MUST_CHECK;
