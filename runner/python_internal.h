/*
 * python_internal.h - the insides of the kernel's owner: python.c starts, watches and restarts the process
 * and reads its sockets, cell.c runs executions on it.
 */
#pragma once

#include "common/id.h"
#include "runner/display.h"
#include "runner/kernel.h"
#include "runner/python.h"

#define HELD_MAX ((size_t)64 * 1024) /* output of background threads between two cells */

enum python_state {
    PYTHON_NONE,    /* configured away */
    PYTHON_DOWN,    /* no process; the timer may start one */
    PYTHON_BOOTING, /* started, does not answer yet */
    PYTHON_IDLE,
    PYTHON_BUSY,
    PYTHON_LEAVING, /* it was told to exit by the program; the timer helps */
    PYTHON_DYING,   /* no process; its last words are still being read */
};

struct cell {            /* the execution that runs on the kernel */
    struct execution *x; /* NULL: none */
    char msg_id[JUPYTER_ID_SIZE];
    bool replied, idle; /* done when both came, in either order */
    bool error_told;    /* by an error message, as it should be */
    char error[256];    /* what the reply says of it, for when it is not */
    bool leaving;
    unsigned aborts;             /* times the kernel put the request aside unread */
    enum end_reason stopped_for; /* END_OK: it was not interrupted by us */
    unsigned stop_stage;
    struct execution_end end; /* as the reply has it */
    int64_t cpu_before_ms;
    uint64_t oom_kills_before;
};

struct python {
    struct context *context;
    enum python_state state;
    struct child child;
    pid_t group; /* the kernel's process group, also when it has just gone */
    struct kernel *kernel;
    struct watch sockets[KERNEL_CHANNELS];
    struct watch words; /* the kernel's stderr: what it says when it cannot start */
    char last_words[1024];
    size_t last_words_len;
    struct timer pump;  /* more messages wait than one turn takes */
    struct timer clock; /* of the state: boot, restart, leaving, dying */
    struct timer probe; /* asks again while booting */
    char session[ID_SIZE];
    uint64_t messages; /* sent */
    char info_id[JUPYTER_ID_SIZE];
    bool answered, heard; /* kernel_info came back on shell, something on iopub: both connections stand */
    bool boot_hangs;      /* it was killed because it took too long */
    unsigned failed_boots;
    char why[200];  /* the last of them failed */
    bool used;      /* a cell ran in this process */
    bool loss_told; /* and that its variables are gone is known */
    bool careful;   /* this process was started without the user's own site and profile */
    int status;     /* DYING: how it ended */
    int64_t dead_cpu_ms, dead_peak_bytes;
    char *lost;         /* why variables are gone, to be told with the next STARTED */
    char *notice;       /* for the next cell's stderr */
    struct buf held[2]; /* output of threads between two cells: stdout, stderr */
    struct display_names names;
    struct cell cell;
    struct timer deadline, ladder, settle; /* of the cell */
    struct execution *queue[EXECUTIONS_MAX];
    size_t queue_len;
};

/* ---- python.c ---- */
void python_next(struct python *p); /* starts the first of the queue if the kernel is free */
void python_new_id(struct python *p, char out[JUPYTER_ID_SIZE]);
void python_pump_soon(struct python *p); /* after every send */
void python_leave(struct python *p);     /* the kernel is about to exit by itself */

void python_signal(const struct python *p, int sig, bool group); /* nothing when it has no process */

/* ---- cell.c ---- */
void cell_init(struct python *p);
void cell_start(struct python *p, struct execution *x);
void cell_take(struct python *p, enum kernel_channel channel, const struct jupyter_head *head);
void cell_take_stray(struct python *p,
                     const struct jupyter_head *head); /* output of an earlier cell's threads */
void cell_died(struct python *p);                      /* the kernel ended under it; p->status says how */
void cell_cancel(struct execution *x);
/* "was killed by SIGSEGV (Segmentation fault)", for the kernel's status. */
void python_describe_death(const struct python *p, bool oom, char *out, size_t size);
