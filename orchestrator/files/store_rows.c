#include <string.h>

#include "common/clock.h"
#include "orchestrator/files/store_disk.h"

#define TOUCH_INTERVAL_MS (INT64_C(3600) * 1000)

#define SELECT_OBJECT                                                                                        \
    "SELECT o.id, o.session_id, o.name, o.size, o.sha256, o.content_type, o.read_only, o.uploaded,"          \
    " o.modified_from, p.session_id, o.superseded, o.created_ms, o.last_used_ms"                             \
    " FROM objects o LEFT JOIN objects p ON p.id = o.modified_from "

void object_copy(const struct object *from, struct object *ret)
{
    *ret = *from;
    ret->name = xstrdup(from->name);
    ret->content_type = xstrdup(from->content_type);
}

void object_done(struct object *o)
{
    free(o->name);
    free(o->content_type);
    *o = (struct object){ 0 };
}

void objects_done(struct objects *list)
{
    for (size_t i = 0; i < list->count; i++)
        object_done(&list->items[i]);
    free(list->items);
    *list = (struct objects){ 0 };
}

void objects_add(struct objects *list, struct object *take)
{
    /* Room grows by doubling: a count that is a power of two has none left. */
    if ((list->count & (list->count - 1)) == 0)
        list->items = xrealloc_array(list->items, list->count ? list->count * 2 : 1, sizeof *list->items);
    list->items[list->count++] = *take;
    *take = (struct object){ 0 };
}

static void copy_text(char *out, size_t size, const char *text)
{
    size_t n = text ? strnlen(text, size - 1) : 0;

    if (n > 0)
        memcpy(out, text, n);
    out[n] = '\0';
}

static void read_object(const struct db_row *row, struct object *o)
{
    copy_text(o->id, sizeof o->id, db_text(row, 0));
    copy_text(o->session_id, sizeof o->session_id, db_text(row, 1));
    o->name = xstrdup(db_text(row, 2));
    o->size = db_int(row, 3);
    copy_text(o->sha256, sizeof o->sha256, db_text(row, 4));
    o->content_type = xstrdup(db_text(row, 5));
    o->read_only = db_int(row, 6) != 0;
    o->uploaded = db_int(row, 7) != 0;
    copy_text(o->modified_from, sizeof o->modified_from, db_text(row, 8));
    copy_text(o->modified_from_session, sizeof o->modified_from_session, db_text(row, 9));
    o->superseded = db_int(row, 10) != 0;
    o->created_ms = db_int(row, 11);
    o->last_used_ms = db_int(row, 12);
}

static int add_row(void *state, struct db_row *row, struct error *err)
{
    struct object o = { 0 };

    (void)err;
    read_object(row, &o);
    objects_add(state, &o);
    return 0;
}

static int only_row(struct objects *list, struct object *ret, struct error *err)
{
    if (list->count == 0)
        return error_set(err, ERR_NOT_FOUND, "no such file");
    *ret = list->items[0];
    list->items[0] = (struct object){ 0 };
    return 0;
}

int store_find(struct store *s, const char *id, struct object *ret, struct error *err)
{
    CLEANUP(objects_done) struct objects found = { 0 };

    if (db_query(s->db, err, add_row, &found, SELECT_OBJECT "WHERE o.id = ?", "s", id) < 0)
        return -1;
    return only_row(&found, ret, err);
}

int store_find_in(struct store *s, const char *session_id, const char *id, struct object *ret,
                  struct error *err)
{
    CLEANUP(objects_done) struct objects found = { 0 };

    if (db_query(s->db, err, add_row, &found,
                 SELECT_OBJECT
                 "WHERE o.id = ?1 AND (o.session_id = ?2 OR EXISTS (SELECT 1 FROM session_objects l"
                 " WHERE l.session_id = ?2 AND l.object_id = ?1))",
                 "ss", id, session_id) < 0)
        return -1;
    return only_row(&found, ret, err);
}

int store_list(struct store *s, const char *session_id, struct objects *ret, struct error *err)
{
    CLEANUP(objects_done) struct objects found = { 0 };

    if (db_query(s->db, err, add_row, &found,
                 SELECT_OBJECT "WHERE o.session_id = ? AND NOT o.superseded ORDER BY o.created_ms, o.rowid",
                 "s", session_id) < 0)
        return -1;
    *ret = found;
    found = (struct objects){ 0 };
    return 0;
}

/* ---- changes ---- */

struct change {
    struct store *store;
    const struct object *object;
    const char *id;
};

static int insert_tx(void *state, struct db *db, struct error *err)
{
    const struct object *o = ((struct change *)state)->object;
    const char *from = o->modified_from[0] ? o->modified_from : NULL;

    if (db_run(db, err,
               "INSERT INTO objects (id, session_id, name, size, sha256, content_type, read_only, uploaded,"
               " modified_from, created_ms, last_used_ms) VALUES (?, ?, ?, ?, ?, ?, ?, ?,"
               " (SELECT id FROM objects WHERE id = ?), ?, ?)" /* its origin may have expired meanwhile */,
               "sssissiisii", o->id, o->session_id, o->name, o->size, o->sha256, o->content_type,
               (int64_t)o->read_only, (int64_t)o->uploaded, from, o->created_ms, o->last_used_ms) < 0) {
        if (err->kind == ERR_CONFLICT) /* ids are random: it is the session that is missing */
            error_set(err, ERR_NOT_FOUND, "no such session");
        return -1;
    }
    if (!from)
        return 0;
    return db_run(
        db, err,
        "UPDATE objects SET superseded = 1 WHERE id = ? AND session_id = ? AND name = ? AND NOT uploaded",
        "sss", from, o->session_id, o->name);
}

int store_row_insert(struct store *s, const struct object *o, struct error *err)
{
    struct change c = { .store = s, .object = o };

    return db_transaction(s->db, err, insert_tx, &c);
}

static int delete_tx(void *state, struct db *db, struct error *err)
{
    const char *id = ((struct change *)state)->id;

    /* The chain of versions stays whole: a reference to an older version is still recognised as stale. */
    if (db_run(db, err,
               "UPDATE objects SET modified_from = (SELECT modified_from FROM objects WHERE id = ?1)"
               " WHERE modified_from = ?1",
               "s", id) < 0 ||
        db_run(db, err, "DELETE FROM workspace_files WHERE object_id = ? AND state IN (0, 2)", "s", id) < 0 ||
        db_run(db, err, "DELETE FROM objects WHERE id = ?", "s", id) < 0)
        return -1;
    return db_changes(db) > 0 ? 0 : error_set(err, ERR_NOT_FOUND, "no such file");
}

int store_row_delete(struct store *s, const char *id, struct error *err)
{
    struct change c = { .store = s, .id = id };

    return db_transaction(s->db, err, delete_tx, &c);
}

static int read_int(void *state, struct db_row *row, struct error *err)
{
    (void)err;
    *(int64_t *)state = db_int(row, 0);
    return 0;
}

int store_touch(struct store *s, const char *id, struct error *err)
{
    int64_t now = clock_real_ms(), last = now;

    /* Asked first: a reader does not wait for the writer. */
    if (db_query(s->db, err, read_int, &last, "SELECT last_used_ms FROM objects WHERE id = ?", "s", id) < 0)
        return -1;
    if (now - last < TOUCH_INTERVAL_MS)
        return 0;
    return db_run(s->db, err, "UPDATE objects SET last_used_ms = ? WHERE id = ?", "is", now, id);
}

int store_touch_session(struct store *s, const char *session_id, struct error *err)
{
    int64_t now = clock_real_ms(), oldest = now;

    if (db_query(s->db, err, read_int, &oldest,
                 "SELECT COALESCE(MIN(last_used_ms), ?) FROM objects WHERE session_id = ? AND NOT superseded",
                 "is", now, session_id) < 0)
        return -1;
    if (now - oldest < TOUCH_INTERVAL_MS)
        return 0;
    return db_run(s->db, err, "UPDATE objects SET last_used_ms = ? WHERE session_id = ? AND NOT superseded",
                  "is", now, session_id);
}

int store_link(struct store *s, const char *session_id, const char *object_id, struct error *err)
{
    if (db_run(s->db, err, "INSERT OR IGNORE INTO session_objects (session_id, object_id) VALUES (?, ?)",
               "ss", session_id, object_id) == 0)
        return 0;
    return err->kind == ERR_CONFLICT ? error_set(err, ERR_NOT_FOUND, "no such file") : -1;
}

int store_is_ancestor(struct store *s, const char *id, const char *of, bool *ret, struct error *err)
{
    int64_t found = 0;

    if (db_query(s->db, err, read_int, &found,
                 "WITH RECURSIVE version (id) AS (SELECT ? UNION"
                 " SELECT o.modified_from FROM objects o JOIN version v ON o.id = v.id"
                 " WHERE o.modified_from IS NOT NULL) SELECT 1 FROM version WHERE id = ?",
                 "ss", of, id) < 0)
        return -1;
    *ret = found != 0;
    return 0;
}
