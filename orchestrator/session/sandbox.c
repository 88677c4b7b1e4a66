#include "orchestrator/session/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "common/clock.h"
#include "common/fd.h"
#include "orchestrator/files/tree.h"
#include "orchestrator/session/link.h"

#define RUNNER_PATH "/usr/local/bin/carrel-runner"
#define START_MS 20000 /* from the container's start to the runner's HELLO */
#define START_POLL_US                                                                                        \
    2000 /* between two tries to connect: there is nothing to wait on before the socket exists */
#define START_CHECK_MS 250 /* how often the container is looked at meanwhile: it may have died */
#define MIB ((int64_t)1024 * 1024)

char *sandbox_box_path(const struct sandbox_host *h, const char *box, const char *part)
{
    return part ? xasprintf("%s/%s/%s", h->boxes_dir, box, part) : xasprintf("%s/%s", h->boxes_dir, box);
}

static int write_file(const char *path, const char *text, struct error *err)
{
    auto_close int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

    if (fd < 0)
        return error_errno(err, errno, "create %s", path);
    return fd_write_all(fd, text, strlen(text), err);
}

/* Programs look up who they are; the image cannot know the uid, so the box brings the two files. */
static int write_identity(const struct sandbox_host *h, const char *box, uint32_t uid, struct error *err)
{
    auto_free char *passwd_path = sandbox_box_path(h, box, "passwd");
    auto_free char *group_path = sandbox_box_path(h, box, "group");
    auto_free char *passwd = xasprintf(
        "root:x:0:0:root:/root:/bin/bash\nsandbox:x:%" PRIu32 ":%" PRIu32 ":sandbox:" SANDBOX_HOME
        ":/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
        uid, uid);
    auto_free char *group = xasprintf("root:x:0:\nsandbox:x:%" PRIu32 ":\nnogroup:x:65534:\n", uid);

    if (write_file(passwd_path, passwd, err) < 0)
        return -1;
    return write_file(group_path, group, err);
}

/* Whatever code of an earlier sandbox made of it: the runner's socket gets a directory that nobody has
 * touched. */
static int fresh_run_dir(const struct sandbox_host *h, const char *box, uint32_t uid, struct error *err)
{
    auto_free char *path = sandbox_box_path(h, box, "run");

    if (tree_remove(path, err) < 0)
        return -1;
    if (mkdir(path, 0700) < 0 || (geteuid() == 0 && chown(path, uid, uid) < 0))
        return error_errno(err, errno, "create %s", path);
    return 0;
}

/* Code can take away its own right to enter its directories; the next sandbox must have it again. */
static int reset_root(const struct sandbox_host *h, const char *box, const char *part, uint32_t uid,
                      struct error *err)
{
    auto_free char *path = sandbox_box_path(h, box, part);

    if (chmod(path, 0700) < 0 || (geteuid() == 0 && chown(path, uid, uid) < 0))
        return error_errno(err, errno, "%s", path);
    return 0;
}

void sandbox_spec_limits(const struct config *cfg, struct engine_spec *spec)
{
    spec->image = cfg->sandbox_image;
    spec->runtime = cfg->sandbox_runtime[0] ? cfg->sandbox_runtime : NULL;
    spec->network = "none";
    spec->memory_bytes = cfg->sandbox_memory_mb * MIB;
    spec->shm_bytes = cfg->sandbox_shm_mb * MIB;
    spec->nano_cpus = (int64_t)(cfg->sandbox_cpus * 1e9);
    spec->pids = cfg->sandbox_pids;
    spec->nofile = 4096;
    spec->fsize_bytes = cfg->max_file_mb * MIB;
}

static char *container_name(const struct sandbox_host *h, const char *box)
{
    return xasprintf("carrel-%.12s-%s", h->instance, box);
}

static int create(const struct sandbox_host *h, const char *session_id, const char *box, uint32_t uid,
                  char ret_id[ENGINE_ID_SIZE], struct error *err)
{
    auto_free char *data = sandbox_box_path(h, box, "data");
    auto_free char *home = sandbox_box_path(h, box, "home");
    auto_free char *run = sandbox_box_path(h, box, "run");
    auto_free char *passwd = sandbox_box_path(h, box, "passwd");
    auto_free char *group = sandbox_box_path(h, box, "group");
    auto_free char *name = container_name(h, box);
    auto_free char *tmp = xasprintf("rw,nosuid,nodev,exec,size=%" PRId64 "m,mode=1777",
                                    h->config->sandbox_tmp_mb);
    auto_free char *kernel = xasprintf(
        "rw,nosuid,nodev,noexec,size=8m,mode=0700,uid=%" PRIu32 ",gid=%" PRIu32, uid, uid);
    auto_free char *orphan = xasprintf("%" PRId64, h->config->orphan_s);
    auto_free char *cpus = xasprintf("%d", (int)h->config->sandbox_cpus +
                                               (h->config->sandbox_cpus > (int)h->config->sandbox_cpus));
    const char *const command[] = { RUNNER_PATH, "--orphan-seconds", orphan, "--cpus", cpus, NULL };
    const struct engine_label labels[] = { { SANDBOX_LABEL_INSTANCE, h->instance },
                                           { SANDBOX_LABEL_SESSION, session_id } };
    const struct engine_mount mounts[] = {
        { data, SANDBOX_WORKSPACE, false }, { home, SANDBOX_HOME, false }, { run, "/run/carrel", false },
        { passwd, "/etc/passwd", true },    { group, "/etc/group", true },
    };
    const struct engine_tmpfs tmpfs[] = { { "/tmp", tmp }, { "/run/kernel", kernel } };
    struct engine_spec spec = {
        .name = name,
        .hostname = "sandbox",
        .command = command,
        .uid = uid,
        .gid = uid,
        .labels = labels,
        .label_count = ARRAY_LEN(labels),
        .mounts = mounts,
        .mount_count = ARRAY_LEN(mounts),
        .tmpfs = tmpfs,
        .tmpfs_count = ARRAY_LEN(tmpfs),
    };

    sandbox_spec_limits(h->config, &spec);
    return h->engine->ops->create(h->engine, &spec, ret_id, err);
}

static int check_running(const struct sandbox_host *h, const char *id, struct error *err)
{
    struct engine_inspection seen = { 0 };

    if (h->engine->ops->inspect(h->engine, id, &seen, err) < 0)
        return -1;
    if (seen.state != ENGINE_RUNNING)
        return error_set(err, ERR_UPSTREAM, "the sandbox ended while it started (exit code %" PRId64 "%s)",
                         seen.exit_code, seen.oom_killed ? ", out of memory" : "");
    return 0;
}

static int wait_for_runner(const struct sandbox_host *h, const char *box, const char *id, struct error *err)
{
    auto_free char *run_dir = sandbox_box_path(h, box, "run");
    const struct timespec pause = { .tv_nsec = START_POLL_US * 1000L };
    int64_t now = clock_mono_ms(), deadline = now + START_MS, check = now + START_CHECK_MS;

    for (;;) {
        struct link l = LINK_NONE;
        if (link_open(h->engine, run_dir, &l, err) == 0) {
            link_close(&l);
            return 0;
        }
        now = clock_mono_ms();
        if (now >= deadline)
            return error_wrap(err, "the sandbox's runner did not answer within %d s", START_MS / 1000);
        if (now >= check) {
            if (check_running(h, id, err) < 0)
                return -1;
            check = now + START_CHECK_MS;
        }
        (void)nanosleep(&pause, NULL);
    }
}

/* The box's former container is still there: its removal failed, or a creation went well after all. */
static int recreate(const struct sandbox_host *h, const char *session_id, const char *box, uint32_t uid,
                    char ret_id[ENGINE_ID_SIZE], struct error *err)
{
    auto_free char *name = container_name(h, box);

    log_warn("removing container %s, which is in the way", name);
    if (h->engine->ops->remove(h->engine, name, err) < 0)
        return -1;
    return create(h, session_id, box, uid, ret_id, err);
}

/* What the engine found wrong with our request is no mistake of the caller's. */
static int not_the_callers(int result, struct error *err)
{
    if (err->kind != ERR_TIMEOUT && err->kind != ERR_LIMIT)
        err->kind = ERR_UNAVAILABLE;
    return result;
}

int sandbox_start(const struct sandbox_host *h, const char *session_id, const char *box, uint32_t uid,
                  char ret_container[ENGINE_ID_SIZE], struct error *err)
{
    char id[ENGINE_ID_SIZE] = "";

    if (fresh_run_dir(h, box, uid, err) < 0 || reset_root(h, box, "data", uid, err) < 0 ||
        reset_root(h, box, "home", uid, err) < 0 || write_identity(h, box, uid, err) < 0)
        return error_wrap(err, "prepare a sandbox");
    if (create(h, session_id, box, uid, id, err) < 0 &&
        (err->kind != ERR_CONFLICT || recreate(h, session_id, box, uid, id, err) < 0))
        return not_the_callers(error_wrap(err, "create a sandbox"), err);
    if (h->engine->ops->start(h->engine, id, err) < 0 || wait_for_runner(h, box, id, err) < 0) {
        sandbox_stop(h, id);
        return not_the_callers(error_wrap(err, "start a sandbox"), err);
    }
    (void)stpcpy(ret_container, id);
    return 0;
}

void sandbox_stop(const struct sandbox_host *h, const char *container_id)
{
    struct error err = { 0 };

    if (container_id[0] && h->engine->ops->remove(h->engine, container_id, &err) < 0)
        log_warn("remove container %.12s: %s", container_id, err.msg);
}
