/* principal.h - on whose behalf a call is made: (tenant, user). Owns its strings. */
#pragma once

#include "common/base.h"

struct principal {
    char *tenant;
    char *user;         /* "" when the call names none */
    bool user_verified; /* a signed token or a trusted header named the user */
    bool admin;
};

struct principal *principal_new(const char *tenant, const char *user, bool user_verified, bool admin);
void principal_free(struct principal *p); /* NULL is fine */
DEFINE_CLEANUP(struct principal *, principal_free)
