#include "orchestrator/access/principal.h"

struct principal *principal_new(const char *tenant, const char *user, bool user_verified, bool admin)
{
    struct principal *p = xcalloc(1, sizeof *p);

    p->tenant = xstrdup(tenant);
    p->user = xstrdup(user);
    p->user_verified = user_verified;
    p->admin = admin;
    return p;
}

void principal_free(struct principal *p)
{
    if (!p)
        return;
    free(p->tenant);
    free(p->user);
    free(p);
}
