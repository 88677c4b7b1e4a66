#include "orchestrator/db/db.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <string.h>

#include "schema_sql.h"

#define CACHE_SETS 64
#define CACHE_WAYS 4
#define IDLE_READERS_MAX 4
#define BUSY_TIMEOUT_MS 10000 /* another process, such as an administrator's sqlite3, may hold the lock */

/* steps[n] brings a database of user_version n to n + 1. Append; never edit one that was released. */
static const char *const steps[] = { schema_sql };

struct statement {
    char *sql; /* owned; NULL: free slot */
    sqlite3_stmt *stmt;
};

struct conn { /* one connection and its prepared statements, used by one thread at a time */
    sqlite3 *handle;
    struct statement cache[CACHE_SETS][CACHE_WAYS];
    unsigned victim[CACHE_SETS]; /* next way to replace */
    struct conn *next;
};

struct db {
    char *path;
    bool in_memory; /* then the writer serves queries too: a second connection would see another one */
    pthread_mutex_t writer_lock; /* guards writer and depth */
    struct conn writer;
    unsigned depth;               /* of nested transactions */
    pthread_mutex_t readers_lock; /* guards idle and idle_count; never held together with writer_lock */
    struct conn *idle;
    unsigned idle_count;
};

struct db_row {
    sqlite3_stmt *stmt;
};

/* The database whose writer this thread holds inside db_transaction(). */
static _Thread_local struct db *held;
static _Thread_local int64_t changes;

static enum error_kind kind_of(int rc)
{
    switch (rc & 0xff) {
    case SQLITE_FULL:
    case SQLITE_TOOBIG:
        return ERR_LIMIT;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return ERR_BUSY;
    case SQLITE_CONSTRAINT:
        return rc == SQLITE_CONSTRAINT_NOTNULL || rc == SQLITE_CONSTRAINT_CHECK ? ERR_INTERNAL : ERR_CONFLICT;
    default:
        return ERR_INTERNAL;
    }
}

static int fail(struct error *err, sqlite3 *handle, const char *what)
{
    int rc = sqlite3_extended_errcode(handle);

    error_set(err, kind_of(rc), "database: %s: %s", what, sqlite3_errmsg(handle));
    if (err->kind == ERR_BUSY)
        err->retry_after_s = 1;
    return -1;
}

static int exec(struct conn *c, const char *sql, const char *what, struct error *err)
{
    return sqlite3_exec(c->handle, sql, NULL, NULL, NULL) == SQLITE_OK ? 0 : fail(err, c->handle, what);
}

/* ---- connections and their statements ---- */

static void conn_close(struct conn *c)
{
    for (size_t i = 0; i < CACHE_SETS; i++) {
        for (size_t j = 0; j < CACHE_WAYS; j++) {
            free(c->cache[i][j].sql);
            (void)sqlite3_finalize(c->cache[i][j].stmt);
        }
    }
    int rc = sqlite3_close(c->handle);
    assert(rc == SQLITE_OK);
    (void)rc;
}

static int conn_open(struct conn *c, const char *path, bool writer, struct error *err)
{
    /* NOMUTEX: a connection is never used by two threads at once. Memory maps stay off: an I/O error or a
       truncated file would be a SIGBUS in the whole service. */
    int rc = sqlite3_open_v2(path, &c->handle,
                             SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, NULL);
    if (!c->handle)
        return error_set(err, ERR_INTERNAL, "database %s: out of memory", path);
    if (rc != SQLITE_OK) {
        error_set(err, kind_of(rc), "database %s: %s", path, sqlite3_errmsg(c->handle));
        goto fail;
    }
    (void)sqlite3_extended_result_codes(c->handle, 1);
    (void)sqlite3_busy_timeout(c->handle, BUSY_TIMEOUT_MS);
    if (exec(c, "PRAGMA mmap_size=0; PRAGMA trusted_schema=OFF; PRAGMA temp_store=MEMORY;", "set up", err) <
            0 ||
        exec(c,
             writer ? "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA foreign_keys=ON;"
                      "PRAGMA journal_size_limit=67108864;"
                    : "PRAGMA query_only=ON;",
             "set up", err) < 0) {
        error_wrap(err, "%s", path);
        goto fail;
    }
    return 0;
fail:
    conn_close(c);
    c->handle = NULL;
    return -1;
}

static size_t hash(const char *s)
{
    uint64_t h = 14695981039346656037U;

    for (; *s; s++)
        h = (h ^ (unsigned char)*s) * 1099511628211U;
    return (size_t)((h >> 32) % CACHE_SETS);
}

/* Gives the prepared statement, reset and without bindings; the cache keeps it. */
static int prepare(struct conn *c, const char *sql, sqlite3_stmt **ret, struct error *err)
{
    size_t set = hash(sql);
    struct statement fresh = { 0 };

    for (size_t i = 0; i < CACHE_WAYS; i++) {
        if (str_eq(c->cache[set][i].sql, sql)) {
            *ret = c->cache[set][i].stmt;
            return 0;
        }
    }
    if (sqlite3_prepare_v3(c->handle, sql, -1, SQLITE_PREPARE_PERSISTENT, &fresh.stmt, NULL) != SQLITE_OK)
        return fail(err, c->handle, sql);
    fresh.sql = xstrdup(sql);
    struct statement *slot = &c->cache[set][c->victim[set]++ % CACHE_WAYS];
    free(slot->sql);
    (void)sqlite3_finalize(slot->stmt);
    *slot = fresh;
    *ret = fresh.stmt;
    return 0;
}

static int bind_one(sqlite3_stmt *stmt, int i, char type, va_list *ap)
{
    const void *p = NULL;

    switch (type) {
    case 's':
        return sqlite3_bind_text(stmt, i, va_arg(*ap, const char *), -1, SQLITE_STATIC);
    case 'i':
        return sqlite3_bind_int64(stmt, i, va_arg(*ap, int64_t));
    case 'b':
        p = va_arg(*ap, const void *);
        return sqlite3_bind_blob64(stmt, i, p, va_arg(*ap, size_t), SQLITE_STATIC);
    default:
        return SQLITE_MISUSE;
    }
}

static int bind_all(struct conn *c, sqlite3_stmt *stmt, const char *types, va_list *ap, struct error *err)
{
    int n = (int)strlen(types);

    if (n != sqlite3_bind_parameter_count(stmt))
        return error_set(err, ERR_INTERNAL, "database: %d values for: %s", n, sqlite3_sql(stmt));
    for (int i = 0; i < n; i++) {
        if (bind_one(stmt, i + 1, types[i], ap) != SQLITE_OK)
            return fail(err, c->handle, sqlite3_sql(stmt));
    }
    return 0;
}

/* Runs a statement to its end, giving rows to fn (NULL: none expected, and dropped). */
static int run(struct conn *c, db_row_fn *fn, void *state, const char *sql, const char *types, va_list *ap,
               struct error *err)
{
    sqlite3_stmt *stmt = NULL;

    if (prepare(c, sql, &stmt, err) < 0)
        return -1;
    struct db_row row = { stmt };
    int result = bind_all(c, stmt, types, ap, err);
    while (result == 0) {
        int rc = sqlite3_step(stmt);
        if (rc == SQLITE_DONE)
            break;
        if (rc != SQLITE_ROW)
            result = fail(err, c->handle, sql);
        else if (fn && fn(state, &row, err) < 0)
            result = -1;
    }
    /* The values are the caller's: no statement may keep a pointer to them. */
    (void)sqlite3_reset(stmt);
    (void)sqlite3_clear_bindings(stmt);
    return result;
}

static struct conn *reader_take(struct db *db, struct error *err)
{
    pthread_mutex_lock(&db->readers_lock);
    struct conn *c = db->idle;
    if (c) {
        db->idle = c->next;
        db->idle_count--;
    }
    pthread_mutex_unlock(&db->readers_lock);
    if (c)
        return c;
    c = xcalloc(1, sizeof *c);
    if (conn_open(c, db->path, false, err) == 0)
        return c;
    free(c);
    return NULL;
}

static void reader_give(struct db *db, struct conn *c)
{
    pthread_mutex_lock(&db->readers_lock);
    bool keep = db->idle_count < IDLE_READERS_MAX;
    if (keep) {
        c->next = db->idle;
        db->idle = c;
        db->idle_count++;
    }
    pthread_mutex_unlock(&db->readers_lock);
    if (keep)
        return;
    conn_close(c);
    free(c);
}

/* ---- opening ---- */

static int read_int(void *state, struct db_row *row, struct error *err)
{
    (void)err;
    *(int64_t *)state = db_int(row, 0);
    return 0;
}

static int upgrade_step(void *state, struct db *db, struct error *err)
{
    int64_t version = *(int64_t *)state;
    auto_free char *set = xasprintf("PRAGMA user_version=%" PRId64, version + 1);

    if (exec(&db->writer, steps[version], "schema", err) < 0)
        return -1;
    return exec(&db->writer, set, "schema version", err);
}

static int upgrade(struct db *db, struct error *err)
{
    int64_t version = 0, known = (int64_t)ARRAY_LEN(steps);

    if (db_query(db, err, read_int, &version, "PRAGMA user_version", "") < 0)
        return -1;
    if (version < 0 || version > known)
        return error_set(err, ERR_INVALID,
                         "the database %s was made by a newer Carrel (its schema is %" PRId64
                         ", this one knows %" PRId64 "): run that version or restore a backup",
                         db->path, version, known);
    for (; version < known; version++) {
        if (db_transaction(db, err, upgrade_step, &version) < 0)
            return error_wrap(err, "schema %" PRId64, version + 1);
    }
    return 0;
}

/* SQLite would create it readable for everybody; its -wal and -shm files copy the mode. */
static int create_private(const char *path, struct error *err)
{
    auto_close int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

    return fd >= 0 || errno == EEXIST ? 0 : error_errno(err, errno, "database %s", path);
}

int db_open(const char *path, struct db **ret, struct error *err)
{
    bool in_memory = str_eq(path, ":memory:");

    if (!sqlite3_threadsafe())
        return error_set(err, ERR_INTERNAL, "this SQLite was built without threads");
    if (!in_memory && create_private(path, err) < 0)
        return -1;
    struct db *db = xcalloc(1, sizeof *db);
    db->path = xstrdup(path);
    db->in_memory = in_memory;
    pthread_mutex_init(&db->writer_lock, NULL);
    pthread_mutex_init(&db->readers_lock, NULL);
    if (conn_open(&db->writer, path, true, err) < 0 || upgrade(db, err) < 0) {
        db_close(db);
        return -1;
    }
    *ret = db;
    return 0;
}

void db_close(struct db *db)
{
    if (!db)
        return;
    while (db->idle) {
        struct conn *c = db->idle;
        db->idle = c->next;
        conn_close(c);
        free(c);
    }
    if (db->writer.handle)
        conn_close(&db->writer);
    pthread_mutex_destroy(&db->writer_lock);
    pthread_mutex_destroy(&db->readers_lock);
    free(db->path);
    free(db);
}

/* ---- statements ---- */

/* SQLite may end a transaction by itself (disk full): what followed would then be committed on its own. */
static int check_alive(struct db *db, struct error *err)
{
    if (held == db && sqlite3_get_autocommit(db->writer.handle))
        return error_set(err, ERR_INTERNAL, "database: the transaction was already rolled back");
    return 0;
}

int db_run(struct db *db, struct error *err, const char *sql, const char *types, ...)
{
    bool mine = held == db;
    int result = -1;
    va_list ap;

    va_start(ap, types);
    if (!mine)
        pthread_mutex_lock(&db->writer_lock);
    if (check_alive(db, err) == 0)
        result = run(&db->writer, NULL, NULL, sql, types, &ap, err);
    if (result == 0)
        changes = sqlite3_changes64(db->writer.handle);
    if (!mine)
        pthread_mutex_unlock(&db->writer_lock);
    va_end(ap);
    return result;
}

int64_t db_changes(struct db *db)
{
    (void)db;
    return changes;
}

int db_query(struct db *db, struct error *err, db_row_fn *fn, void *state, const char *sql, const char *types,
             ...)
{
    int result = -1;
    va_list ap;

    va_start(ap, types);
    if (held == db) {
        if (check_alive(db, err) == 0)
            result = run(&db->writer, fn, state, sql, types, &ap, err);
    } else if (db->in_memory) {
        pthread_mutex_lock(&db->writer_lock);
        result = run(&db->writer, fn, state, sql, types, &ap, err);
        pthread_mutex_unlock(&db->writer_lock);
    } else {
        struct conn *c = reader_take(db, err);
        if (c) {
            result = run(c, fn, state, sql, types, &ap, err);
            reader_give(db, c);
        }
    }
    va_end(ap);
    return result;
}

static int transact(struct db *db, struct error *err, db_tx_fn *fn, void *state)
{
    struct conn *w = &db->writer;
    bool outer = db->depth == 0;

    if (exec(w, outer ? "BEGIN IMMEDIATE" : "SAVEPOINT nested", "begin", err) < 0)
        return -1;
    db->depth++;
    int result = fn(state, db, err);
    db->depth--;
    if (result == 0)
        result = exec(w, outer ? "COMMIT" : "RELEASE nested", "commit", err);
    /* Not when SQLite has rolled back by itself; *err says why. */
    if (result < 0 && !sqlite3_get_autocommit(w->handle))
        (void)sqlite3_exec(w->handle, outer ? "ROLLBACK" : "ROLLBACK TO nested; RELEASE nested", NULL, NULL,
                           NULL);
    return result;
}

int db_transaction(struct db *db, struct error *err, db_tx_fn *fn, void *state)
{
    struct db *before = held;
    bool mine = before == db;

    if (!mine)
        pthread_mutex_lock(&db->writer_lock);
    held = db;
    int result = transact(db, err, fn, state);
    held = before;
    if (!mine)
        pthread_mutex_unlock(&db->writer_lock);
    return result;
}

int64_t db_int(const struct db_row *row, int column) { return sqlite3_column_int64(row->stmt, column); }

const char *db_text(const struct db_row *row, int column)
{
    return (const char *)sqlite3_column_text(row->stmt, column);
}
