/* access.h - who is calling: checks credentials, and what an open server lets in. Does not block but in
 * access_open(). */
#pragma once

#include "orchestrator/access/principal.h"
#include "orchestrator/config.h"
#include "orchestrator/http/http.h"

struct access;

/*
 * Reads all keys that the settings name; cfg must outlive the result. ERR_INVALID: one of them is no good, or
 * the server would be open beyond loopback without AUTH=none. Blocks on the disk.
 */
int access_open(const struct config *cfg, struct access **ret, struct error *err) MUST_CHECK;
void access_close(struct access *a); /* NULL is fine */
DEFINE_CLEANUP(struct access *, access_close)

bool access_is_open(const struct access *a);        /* no credentials are configured */
const char *access_methods(const struct access *a); /* for people: "none", "api-key", "jwt", "api-key, jwt" */

/*
 * What an open server must refuse because any web page could otherwise run code through the visitor's
 * browser: a foreign Origin (ERR_FORBIDDEN, 403), a Host that is not loopback when bound to loopback (DNS
 * rebinding; ERR_FORBIDDEN), a JSON route without application/json (ERR_MEDIA_TYPE). Nothing is refused when
 * credentials are needed.
 */
int access_check_open(const struct access *a, const struct http_request *req, bool json_route,
                      struct error *err) MUST_CHECK;

/*
 * The caller's principal: by a JWT as Authorization: Bearer, else by a key as X-API-Key, Bearer or Basic. One
 * good credential is enough, whatever the others are, and a good JWT wins. ERR_UNAUTHORIZED; ERR_INVALID: the
 * key is good, its X-Carrel-User is not.
 */
int access_authenticate(const struct access *a, const struct http_request *req, struct principal **ret,
                        struct error *err) MUST_CHECK;
