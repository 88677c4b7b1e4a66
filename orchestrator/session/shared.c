/* Storage sessions that a tenant's users share: the files of an agent, of one version of a skill. */
#include <stdio.h>

#include "common/clock.h"
#include "orchestrator/session/table_internal.h"

static int take_id(void *state, struct db_row *row, struct error *err)
{
    (void)err;
    (void)snprintf(state, ID_SIZE, "%s", db_text(row, 0));
    return 0;
}

static int load_shared(struct session_table *t, const struct principal *p,
                       const struct shared_storage *storage, struct session **ret, struct error *err)
{
    char id[ID_SIZE] = "";

    if (db_query(t->env->db, err, take_id, id,
                 "SELECT id FROM sessions WHERE tenant = ? AND shared_kind = ? AND shared_id = ?"
                 " AND COALESCE(shared_version, '') = COALESCE(?, '')",
                 "ssss", p->tenant, storage->kind, storage->id, storage->version) < 0)
        return -1;
    if (!id[0])
        return error_set(err, ERR_NOT_FOUND, "no such session");
    return table_load(t, id, ret, err);
}

/* No user: whoever uploads first must not own what all of them share. */
static int create_shared(struct session_table *t, const struct principal *p,
                         const struct shared_storage *storage, struct error *err)
{
    char id[ID_SIZE];
    int64_t now = clock_real_ms();

    id_new(id);
    return db_run(t->env->db, err,
                  "INSERT INTO sessions (id, tenant, shared_kind, shared_id, shared_version, created_ms,"
                  " last_used_ms) VALUES (?, ?, ?, ?, ?, ?, ?)",
                  "sssssii", id, p->tenant, storage->kind, storage->id, storage->version, now, now);
}

int session_resolve_shared(struct session_table *t, const struct principal *p,
                           const struct shared_storage *storage, struct session **ret, struct error *err)
{
    if (load_shared(t, p, storage, ret, err) == 0)
        return 0;
    if (err->kind != ERR_NOT_FOUND)
        return -1;
    if (create_shared(t, p, storage, err) < 0 &&
        err->kind != ERR_CONFLICT) /* another call made it meanwhile */
        return -1;
    return load_shared(t, p, storage, ret, err);
}
