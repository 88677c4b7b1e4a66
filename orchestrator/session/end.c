/* The end of a session on request: its executions, its sandbox and, if wished, everything that is its own. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#include "common/clock.h"
#include "orchestrator/files/tree.h"
#include "orchestrator/session/execution.h"
#include "orchestrator/session/table_internal.h"

#define CANCEL_MS 15000 /* a run that was cancelled ends within 10 s, or its sandbox is given up */
#define ROUND_MS 100    /* an execution that was about to start when others were cancelled is met again */

unsigned session_interrupt(struct session *s)
{
    (void)pthread_mutex_lock(&s->table->lock);
    unsigned n = execution_cancel_session(s);
    (void)pthread_mutex_unlock(&s->table->lock);
    return n;
}

/* ---- the sandbox ---- */

/* With the lock held. */
static bool wait_for_executions(struct session *s, int64_t deadline_ms)
{
    while (s->running > 0 && clock_mono_ms() < deadline_ms) {
        (void)execution_cancel_session(s);
        table_wait(s->table, MIN(deadline_ms, clock_mono_ms() + ROUND_MS));
    }
    return s->running == 0;
}

static void end_sandbox(struct session *s, const char *reason)
{
    struct session_table *t = s->table;

    (void)pthread_mutex_lock(&t->lock);
    while (s->state == SESSION_STARTING || s->state == SESSION_STOPPING)
        table_wait(t, -1); /* bounded in time by the engine's client */
    bool mine = s->state == SESSION_LIVE;
    if (mine)
        session_set_state(s, SESSION_STOPPING);
    (void)pthread_mutex_unlock(&t->lock);
    if (mine)
        table_stop_sandbox(s, reason);
}

/* ---- everything else ---- */

struct id_list {
    char (*items)[ID_SIZE];
    size_t count;
};

static int on_object(void *state, struct db_row *row, struct error *err)
{
    struct id_list *l = state;

    (void)err;
    l->items = xrealloc_array(l->items, l->count + 1, sizeof *l->items);
    (void)snprintf(l->items[l->count++], ID_SIZE, "%s", db_text(row, 0));
    return 0;
}

static int remove_objects(struct session *s, struct error *err)
{
    const struct session_env *env = s->table->env;
    struct id_list list = { 0 };
    int r = db_query(env->db, err, on_object, &list, "SELECT id FROM objects WHERE session_id = ?", "s",
                     s->id);

    for (size_t i = 0; r == 0 && i < list.count; i++)
        if (store_delete(env->store, list.items[i], err) < 0 && err->kind != ERR_NOT_FOUND)
            r = -1;
    free(list.items);
    return r;
}

static int remove_rows(void *state, struct db *db, struct error *err)
{
    const struct session *s = state;

    if (db_run(db, err, "DELETE FROM session_objects WHERE session_id = ?", "s", s->id) < 0 ||
        db_run(db, err, "DELETE FROM workspace_files WHERE session_id = ?", "s", s->id) < 0)
        return -1;
    return db_run(db, err, "DELETE FROM sessions WHERE id = ?", "s", s->id);
}

/* Nobody uses the workspace and nobody can begin to. */
static int remove_all(struct session *s, struct error *err)
{
    if (s->box[0]) {
        auto_free char *box = sandbox_box_path(&s->table->host, s->box, NULL);
        if (tree_remove(box, err) < 0)
            return -1;
    }
    /* An upload may come between; a second round takes it. After the row is gone none can be committed. */
    for (int round = 0;; round++) {
        if (remove_objects(s, err) < 0)
            return -1;
        if (db_transaction(s->table->env->db, err, remove_rows, s) == 0)
            return 0;
        if (err->kind != ERR_CONFLICT || round == 3)
            return -1;
    }
}

static int remove_session(struct session *s, struct error *err)
{
    struct session_table *t = s->table;

    (void)pthread_mutex_lock(&t->lock);
    while (s->workspace_busy)
        table_wait(t, -1);
    s->workspace_busy = true;
    struct workspace *w = steal_ptr(&s->workspace);
    (void)pthread_mutex_unlock(&t->lock);
    workspace_close(w);
    int r = remove_all(s, err);
    (void)pthread_mutex_lock(&t->lock);
    if (r == 0) {
        s->removed = true;
        t->removals++;
        table_remove_item(t, s);
    }
    s->workspace_busy = false;
    (void)pthread_cond_broadcast(&t->changed);
    (void)pthread_mutex_unlock(&t->lock);
    return r;
}

/* ---- all of it ---- */

int session_end(struct session *s, bool remove_files, const char *reason, struct error *err)
{
    struct session_table *t = s->table;

    (void)pthread_mutex_lock(&t->lock);
    while (s->ending)
        table_wait(t, -1);
    if (s->removed) {
        (void)pthread_mutex_unlock(&t->lock);
        return error_set(err, ERR_NOT_FOUND, "no such session");
    }
    s->ending = true;
    bool quiet = wait_for_executions(s, clock_mono_ms() + CANCEL_MS);
    (void)pthread_mutex_unlock(&t->lock);

    end_sandbox(s, reason); /* of one that does not stop, too: it ends when its connection does */
    (void)pthread_mutex_lock(&t->lock);
    quiet = quiet || wait_for_executions(s, clock_mono_ms() + CANCEL_MS);
    (void)pthread_mutex_unlock(&t->lock);

    int r = quiet ? 0 : error_set(err, ERR_TIMEOUT, "an execution of the session does not end; try again");
    if (r == 0)
        end_sandbox(s, reason); /* the last execution may have replaced it */
    if (r == 0 && remove_files)
        r = remove_session(s, err);
    (void)pthread_mutex_lock(&t->lock);
    s->ending = false;
    (void)pthread_cond_broadcast(&t->changed);
    (void)pthread_mutex_unlock(&t->lock);
    return r;
}

/* ---- its files, for reading ---- */

int session_open_files(struct session *s, int *ret_dir_fd, struct error *err)
{
    struct workspace *w = NULL;
    struct workspace_changes changes = { 0 };

    if (session_workspace_begin(s, &w, err) < 0)
        return -1;
    int r = workspace_place(w, NULL, 0, &changes, err);
    workspace_changes_done(&changes);
    auto_free char *data = sandbox_box_path(&s->table->host, s->box, "data");
    if (r == 0) {
        int fd = open(data, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0)
            r = error_errno(err, errno, "open %s", data);
        else
            *ret_dir_fd = fd;
    }
    session_workspace_end(s);
    return r;
}
