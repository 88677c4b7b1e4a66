#include "orchestrator/session/probe.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "common/clock.h"
#include "common/fd.h"
#include "common/id.h"
#include "orchestrator/files/tree.h"
#include "orchestrator/session/link.h"

#define PROBE_TIMEOUT_MS 30000
#define MIB ((int64_t)1024 * 1024)

/*
 * What a sandbox says of itself. It prints facts, the judgement is ours. Nothing is sent anywhere: that there
 * is no network is read off the list of interfaces.
 */
static const char script[] =
    "s() { sed -n \"s/^$1:[[:space:]]*//p\" /proc/self/status; }\n"
    "first() { for f in \"$@\"; do [ -r \"$f\" ] && { cat \"$f\"; return; }; done; echo absent; }\n"
    "echo \"uid=$(id -u)\"\n"
    "echo \"capabilities=$(s CapEff)$(s CapPrm)$(s CapBnd)$(s CapInh)$(s CapAmb)\"\n"
    "echo \"no_new_privileges=$(s NoNewPrivs)\"\n"
    "echo \"seccomp=$(s Seccomp)\"\n"
    "echo \"interfaces=$(sed 1,2d /proc/net/dev | cut -d: -f1 | tr -d ' ' | sort | tr '\\n' ' ')\"\n"
    "echo \"memory=$(first /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes)\"\n"
    "echo \"pids=$(first /sys/fs/cgroup/pids.max /sys/fs/cgroup/pids/pids.max)\"\n"
    "root=writable; touch /carrel-probe 2>/dev/null || root=read-only; echo \"root=$root\"\n"
    "tmp=unusable; cp /bin/true /tmp/t && /tmp/t && tmp=usable; echo \"tmp=$tmp\"\n"
    "home=unusable; touch \"$HOME/.probe\" && rm \"$HOME/.probe\" && home=usable; echo \"home=$home\"\n"
    "echo probe > /mnt/data/probe.txt\n"
    "echo manifest=\n"
    "cat /usr/share/carrel/manifest.json\n";

void probe_result_done(struct probe_result *r)
{
    json_decref(r->manifest);
    r->manifest = NULL;
}

/* The value of a "name=value" line. */
static bool line_is(const char *report, const char *name, const char *want)
{
    auto_free char *line = xasprintf("%s=%s\n", name, want);
    const char *at = strstr(report, line);

    return at && (at == report || at[-1] == '\n');
}

static char *line_value(const char *report, const char *name)
{
    auto_free char *start = xasprintf("%s=", name);

    for (const char *p = report; p; p = strchr(p, '\n') ? strchr(p, '\n') + 1 : NULL)
        if (str_starts(p, start)) {
            p += strlen(start);
            return xstrndup(p, strcspn(p, "\n"));
        }
    return xstrdup("unknown");
}

int probe_check_report(const struct config *cfg, uint32_t uid, const char *report, struct error *err)
{
    char uid_text[16], memory[24], pids[24], capabilities[5 * 16 + 1];

    (void)snprintf(uid_text, sizeof uid_text, "%" PRIu32, uid);
    (void)snprintf(memory, sizeof memory, "%" PRId64, cfg->sandbox_memory_mb * MIB);
    (void)snprintf(pids, sizeof pids, "%" PRId64, cfg->sandbox_pids);
    memset(capabilities, '0', sizeof capabilities - 1);
    capabilities[sizeof capabilities - 1] = '\0';
    const struct {
        const char *name, *want, *what;
    } wanted[] = {
        { "uid", uid_text,
          "its user id; user namespaces (rootless, userns-remap) map ids, run Carrel inside them" },
        { "capabilities", capabilities, "no capabilities" },
        { "no_new_privileges", "1", "no-new-privileges" },
        { "seccomp", "2", "a seccomp filter; start the engine with seccomp enabled" },
        { "interfaces", "lo ", "no network but loopback" },
        { "memory", memory, "the memory limit; the kernel or engine lacks the memory cgroup" },
        { "pids", pids, "the limit of processes; the kernel or engine lacks the pids cgroup" },
        { "root", "read-only", "a read-only root file system" },
        { "tmp", "usable", "a /tmp where programs may run" },
        { "home", "usable", "a HOME it can write to" },
    };

    for (size_t i = 0; i < ARRAY_LEN(wanted); i++)
        if (!line_is(report, wanted[i].name, wanted[i].want)) {
            auto_free char *seen = line_value(report, wanted[i].name);
            return error_set(err, ERR_FORBIDDEN, "the sandbox did not get %s (%s is '%.60s', wanted '%s')",
                             wanted[i].what, wanted[i].name, seen, wanted[i].want);
        }
    return 0;
}

int probe_check_inspection(const struct config *cfg, const struct engine_inspection *seen, struct error *err)
{
    struct engine_spec want = { 0 };

    sandbox_spec_limits(cfg, &want);
    const struct {
        bool good;
        const char *what;
    } checks[] = {
        { seen->memory_bytes == want.memory_bytes, "SANDBOX_MEMORY_MB" },
        { seen->memory_swap_bytes == want.memory_bytes, "memory without swap" },
        { seen->nano_cpus == want.nano_cpus, "SANDBOX_CPUS" },
        { seen->pids == want.pids, "SANDBOX_PIDS" },
        { seen->shm_bytes == want.shm_bytes, "SANDBOX_SHM_MB" },
        { seen->read_only_root, "a read-only root" },
        { !seen->privileged, "an unprivileged container" },
        { seen->no_new_privileges, "no-new-privileges" },
        { seen->all_caps_dropped, "dropped capabilities" },
        { str_eq(seen->network, want.network), "the network mode" },
        { !want.runtime || str_eq(seen->runtime, want.runtime), "SANDBOX_RUNTIME" },
    };

    for (size_t i = 0; i < ARRAY_LEN(checks); i++)
        if (!checks[i].good)
            return error_set(err, ERR_FORBIDDEN,
                             "the engine did not apply %s to the sandbox, as inspect shows", checks[i].what);
    return 0;
}

/* ---- one run over a bare link: sessions do not exist yet ---- */

static int collect(struct link *l, struct buf *out, struct error *err)
{
    int64_t deadline = clock_mono_ms() + PROBE_TIMEOUT_MS;

    for (;;) {
        struct frame f;
        enum link_got got;
        if (link_read(l, deadline, -1, &f, &got, err) < 0)
            return -1;
        if (got != LINK_FRAME || f.type == FRAME_REFUSED)
            return error_set(err, ERR_UPSTREAM, "the probe's program was not run by the sandbox's runner");
        if (f.type == FRAME_END)
            return 0;
        if ((f.type == FRAME_STDOUT || f.type == FRAME_STDERR) && buf_add(out, f.payload, f.len, err) < 0)
            return -1;
    }
}

static int run_script(const struct sandbox_host *h, const char *box, struct buf *out, struct error *err)
{
    CLEANUP(link_close) struct link l = LINK_NONE;
    auto_free char *run_dir = sandbox_box_path(h, box, "run");
    json_auto_t *doc = json_pack(
        "{s:s, s:s, s:s, s:[], s:n, s:i, s:i, s:i, s:i, s:i, s:I, s:b, s:b}", "id", "probe", "lang", "bash",
        "code", script, "args", "stdin", "timeout_ms", PROBE_TIMEOUT_MS, "compile_timeout_ms", 1000,
        "output_max", 8 * 1024 * 1024, "memory_max", 0, "cpu_max_s", 0, "file_max",
        (json_int_t)h->config->max_file_mb * 1024 * 1024, "bash_strict", 0, "detached", 0);

    if (link_open(h->engine, run_dir, &l, err) < 0 || link_send(&l, FRAME_RUN, doc, err) < 0)
        return -1;
    return collect(&l, out, err);
}

/* The file that the sandbox wrote is the orchestrator's to read and to remove, on the filesystem of the data.
 */
static int check_file(const struct sandbox_host *h, const char *box, struct error *err)
{
    auto_free char *path = sandbox_box_path(h, box, "data/probe.txt");
    struct stat file, dir;
    char text[16] = "";
    size_t n = 0;

    auto_close int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fd_read_full(fd, text, sizeof text - 1, &n, err) < 0 || strcmp(text, "probe\n") != 0)
        return error_set(
            err, ERR_FORBIDDEN,
            "%s: a file that the sandbox wrote cannot be read. Engine and service must see the same "
            "directory at that path",
            path);
    if (fstat(fd, &file) < 0 || stat(h->boxes_dir, &dir) < 0 || file.st_dev != dir.st_dev)
        return error_set(err, ERR_FORBIDDEN, "%s: workspaces and data directory are on different filesystems",
                         path);
    if (unlink(path) < 0)
        return error_set(err, ERR_FORBIDDEN, "%s: a file that the sandbox wrote cannot be removed", path);
    return 0;
}

static int judge(const struct sandbox_host *h, const char *container, const char *box, uint32_t uid,
                 struct probe_result *ret, struct error *err)
{
    struct engine_inspection seen = { 0 };
    auto_buf struct buf out = { .max = (size_t)16 * MIB };

    if (run_script(h, box, &out, err) < 0)
        return error_wrap(err, "the probe sandbox");
    char *manifest = out.data ? strstr(out.data, "manifest=\n") : NULL;
    if (!manifest)
        return error_set(err, ERR_FORBIDDEN, "the probe sandbox printed no report: %.200s",
                         out.data ? out.data : "");
    *manifest = '\0';
    manifest += strlen("manifest=\n");
    if (probe_check_report(h->config, uid, out.data, err) < 0 || check_file(h, box, err) < 0 ||
        h->engine->ops->inspect(h->engine, container, &seen, err) < 0 ||
        probe_check_inspection(h->config, &seen, err) < 0)
        return -1;
    if (jsonx_parse(manifest, strlen(manifest), &ret->manifest, err) < 0)
        return error_set(err, ERR_UNAVAILABLE, "image %s has no manifest; make it anew with make images",
                         h->config->sandbox_image);
    return 0;
}

static int make_box(const struct sandbox_host *h, const char *box, uint32_t uid, struct error *err)
{
    static const char *const parts[] = { NULL, "data", "home", "run" };

    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        auto_free char *path = sandbox_box_path(h, box, parts[i]);
        if (mkdir(path, parts[i] ? 0700 : 0711) < 0)
            return error_errno(err, errno, "create %s", path);
        if (parts[i] && geteuid() == 0 && chown(path, uid, uid) < 0)
            return error_errno(err, errno, "chown %s", path);
    }
    return 0;
}

static void remove_box(const struct sandbox_host *h, const char *box)
{
    auto_free char *path = sandbox_box_path(h, box, NULL);
    struct error err = { 0 };

    if (tree_remove(path, &err) < 0)
        log_warn("%s", err.msg);
}

int probe_run(const struct sandbox_host *h, struct probe_result *ret, struct error *err)
{
    char box[ID_SIZE], container[ENGINE_ID_SIZE] = "";
    uint32_t uid = geteuid() == 0 ? (uint32_t)h->config->sandbox_uid_first : geteuid();

    id_new(box);
    int r = make_box(h, box, uid, err);
    if (r == 0)
        r = sandbox_start(h, "", box, uid, container, err);
    if (r == 0) {
        r = judge(h, container, box, uid, ret, err);
        sandbox_stop(h, container);
    }
    remove_box(h, box);
    if (r < 0)
        probe_result_done(ret);
    return r;
}
