/* engine.h - what a container engine can do for us. docker.c does it with the Docker Engine API. */
#pragma once

#include "common/json/jsonx.h"

#define ENGINE_ID_SIZE 80

struct engine_label {
    const char *key, *value;
};

struct engine_mount {
    const char *source, *target; /* a directory or file of the engine's host, and its place in the sandbox */
    bool read_only;
};

struct engine_tmpfs {
    const char *target, *options; /* "rw,nosuid,nodev,exec,size=64m,mode=1777" */
};

/* What a sandbox is to be. Borrowed; arrays end by their counts. Zero means "no such limit" only where said.
 */
struct engine_spec {
    const char *name; /* of the container */
    const char *image;
    const char *runtime; /* NULL: the engine's default */
    const char *hostname;
    const char *network;        /* "none", or a network's name */
    const char *seccomp;        /* JSON text of a profile; NULL: the engine's default */
    const char *const *command; /* NULL-terminated; NULL: the image's */
    const char *const *env;     /* NULL-terminated "NAME=value" */
    uint32_t uid, gid;
    const struct engine_label *labels;
    size_t label_count;
    const struct engine_mount *mounts;
    size_t mount_count;
    const struct engine_tmpfs *tmpfs;
    size_t tmpfs_count;
    int64_t memory_bytes; /* memory and memory + swap alike */
    int64_t shm_bytes;
    int64_t nano_cpus;
    int64_t pids;
    int64_t nofile;
    int64_t fsize_bytes; /* 0: unlimited */
};

enum engine_state { ENGINE_RUNNING, ENGINE_PAUSED, ENGINE_STOPPED };

struct engine_container {
    char id[ENGINE_ID_SIZE];
    enum engine_state state;
    json_t *labels; /* owned object of strings */
};

struct engine_containers {
    struct engine_container *items;
    size_t count;
};
void engine_containers_done(struct engine_containers *c);
const char *engine_container_label(const struct engine_container *c, const char *key); /* borrowed, or NULL */

struct engine_info {
    char name[32];        /* "Docker Engine", "Podman" */
    char version[32];     /* "20.10.24" */
    char api_version[16]; /* negotiated */
    bool memory_limit, pids_limit, cpu_limit;
    bool rootless, userns;
    char cgroup_version[8];
};

/* What the engine says a container got; compared with the spec by the start-up probe. */
struct engine_inspection {
    enum engine_state state;
    int64_t exit_code;
    bool oom_killed;
    int64_t memory_bytes, memory_swap_bytes, nano_cpus, pids, shm_bytes;
    bool read_only_root, privileged, no_new_privileges, all_caps_dropped;
    char network[64], runtime[64], user[64], image_id[100];
};

enum engine_event_kind { ENGINE_EVENT_DIED, ENGINE_EVENT_OOM, ENGINE_EVENT_PAUSED, ENGINE_EVENT_RECONNECTED };

struct engine_event {
    enum engine_event_kind kind;
    const char *container_id; /* NULL for RECONNECTED: events may have been missed, list and reconcile */
    int64_t exit_code;        /* DIED; -1: not told */
};
/* Called in the thread of follow(). A death may be told twice: death and removal, and after a reconnect. */
typedef void engine_event_fn(void *state, const struct engine_event *event);

struct engine;

/*
 * All calls block, are bounded in time and thread-safe. ERR_UNAVAILABLE: the engine does not answer; the
 * message says why and what to do (not running, no permission on the socket).
 */
struct engine_ops {
    /* Reaches the engine, tells what it is; negotiates the API version, which any first call does. */
    int (*ping)(struct engine *e, struct engine_info *ret, struct error *err);

    /* The image's labels: an object of strings, the caller's. ERR_NOT_FOUND: the engine has no such image. */
    int (*image_find)(struct engine *e, const char *image, json_t **ret_labels, struct error *err);

    /* ERR_NOT_FOUND: no such image or network. After ERR_TIMEOUT it may exist all the same: list by label. */
    int (*create)(struct engine *e, const struct engine_spec *spec, char ret_id[ENGINE_ID_SIZE],
                  struct error *err);

    int (*start)(struct engine *e, const char *id, struct error *err); /* of what runs already: success */

    /* Kills it; an absent one is success. */
    int (*remove)(struct engine *e, const char *id, struct error *err);

    /* Those with a label ("key=value" or "key"), the stopped ones, too. */
    int (*list)(struct engine *e, const char *label, struct engine_containers *ret, struct error *err);

    int (*inspect)(struct engine *e, const char *id, struct engine_inspection *ret, struct error *err);

    /*
     * Follows events of containers with a label in a thread of its own until the engine is closed; connects
     * again when the stream ends, with RECONNECTED each time, the first included. Once per engine, else
     * ERR_CONFLICT.
     */
    int (*follow)(struct engine *e, const char *label, engine_event_fn *fn, void *state, struct error *err);

    /*
     * A connection to the runner that listens in a directory of ours which the sandbox can write to.
     * ERR_NOT_FOUND: nobody listens (yet); ERR_TIMEOUT: somebody does, but accepts nobody.
     */
    int (*connect)(struct engine *e, const char *run_dir, int *ret_fd, struct error *err);

    /* Ends the thread of follow() and waits for it. No other call may be running. */
    void (*close)(struct engine *e);
};

struct engine {
    const struct engine_ops *ops;
};

struct engine_docker_options { /* borrowed during the call; each may be NULL */
    const char *host; /* "unix:///var/run/docker.sock", "tcp://host:port"; NULL or "": the usual places */
    const char *xdg_runtime_dir; /* of the user: where a rootless engine listens */
    const char *home;            /* of the user: where Docker Desktop listens */
};
/* Does not connect yet. ERR_INVALID: a host that cannot be used. */
int engine_docker_open(const struct engine_docker_options *options, struct engine **ret,
                       struct error *err) MUST_CHECK;

static inline void engine_close(struct engine *e)
{
    if (e)
        e->ops->close(e);
}
