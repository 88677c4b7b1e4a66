/* db.h - the SQLite database of one data directory (WAL, one writer). Thread-safe; the only user of
 * sqlite3.h. */
#pragma once

#include "common/error.h"

struct db;
struct db_row; /* valid inside the row function only */

/* Opens or creates (mode 0600); applies schema.sql and later steps by user_version. ":memory:" works for
   tests. ERR_INVALID: made by a newer version. */
int db_open(const char *path, struct db **ret, struct error *err) MUST_CHECK;
void db_close(struct db *db);

/*
 * Runs one statement. types has one letter for each ? in sql, with its argument: s const char * (NULL is
 * NULL), i int64_t (cast literals!), b const void * followed by size_t. Statements are cached by text. A
 * committed change survives a crash of process and machine. ERR_CONFLICT: a unique or foreign key constraint;
 * ERR_LIMIT: disk full; ERR_BUSY: another process kept the file locked. May block on the disk and on other
 * threads' writes.
 */
int db_run(struct db *db, struct error *err, const char *sql, const char *types, ...) MUST_CHECK;
int64_t db_changes(struct db *db); /* rows changed by this thread's last db_run */

/* Calls fn for each row of a committed state; a negative result ends the query with *err kept as is. fn must
 * not call into db. */
typedef int db_row_fn(void *state, struct db_row *row, struct error *err);
int db_query(struct db *db, struct error *err, db_row_fn *fn, void *state, const char *sql, const char *types,
             ...) MUST_CHECK;

/* Several statements as one: all or nothing. fn gets the same db, whose writer this thread now holds:
   db_run() and db_query() in it belong to the transaction. One inside another is undone alone when it fails.
 */
typedef int db_tx_fn(void *state, struct db *db, struct error *err);
int db_transaction(struct db *db, struct error *err, db_tx_fn *fn, void *state) MUST_CHECK;

int64_t db_int(const struct db_row *row, int column);
const char *db_text(const struct db_row *row, int column); /* borrowed; NULL for NULL */
