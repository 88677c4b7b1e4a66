/* execution_internal.h - the execution's insides, shared by execution.c (object, readers) and run.c (its
 * thread). */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "orchestrator/session/execution.h"

struct execution {
    char id[ID_SIZE];
    struct session *session; /* pinned */
    struct execution_request request;
    int wake_fd; /* eventfd: execution_cancel() rouses the thread */
    atomic_bool cancelled;
    struct execution *queue_next; /* in session->python_queue, under the table's lock */
    bool queued;
    struct execution *all_next; /* in table->executions, under the table's lock */

    pthread_mutex_t lock; /* guards what follows */
    unsigned refs;
    struct execution_event *events;
    size_t event_count, event_cap;
    size_t event_bytes;
    bool done;
    struct execution_reader *readers;
    struct execution_result result; /* the thread's alone until done */
};

void *execution_thread(void *x);
void execution_leave_queue(struct execution *x); /* the next one may have the kernel */
/* Copies an event in and tells the readers. ERR_LIMIT: the runner sends more than it may. */
int execution_add_event(struct execution *x, enum frame_type type, const char *data, size_t len,
                        struct error *err) MUST_CHECK;
void execution_finish(struct execution *x);           /* the result is complete: tells the readers */
void execution_unregister(struct execution *x);       /* before the thread's own reference goes */
void execution_thread_ended(struct session_table *t); /* the thread's last act: touches nothing afterwards */
