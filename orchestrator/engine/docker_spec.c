#include <string.h>

#include "orchestrator/engine/docker_wire.h"

char *docker_escape(const char *text, const char *keep)
{
    static const char unreserved[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
    static const char hex[] = "0123456789ABCDEF";
    char *out = xcalloc(strlen(text) + 1, 3), *w = out;

    for (const char *p = text; *p; p++) {
        if (strchr(unreserved, *p) || strchr(keep, *p)) {
            *w++ = *p;
            continue;
        }
        *w++ = '%';
        *w++ = hex[(unsigned char)*p >> 4];
        *w++ = hex[(unsigned char)*p & 15];
    }
    return out;
}

char *docker_filters(const char *label, bool containers_only)
{
    json_auto_t *doc = json_pack("{s:[o]}", "label", jsonx_str(label));

    if (containers_only)
        (void)json_object_set_new(doc, "type", json_pack("[s]", "container"));
    auto_free char *text = jsonx_dump(doc, NULL);
    return docker_escape(text, "");
}

static json_t *string_array(const char *const *strings)
{
    json_t *a = json_array();

    for (; *strings; strings++)
        (void)json_array_append_new(a, jsonx_str(*strings));
    return a;
}

static json_t *ulimit(const char *name, int64_t value)
{
    return json_pack("{s:s, s:I, s:I}", "Name", name, "Soft", (json_int_t)value, "Hard", (json_int_t)value);
}

static json_t *ulimits(const struct engine_spec *spec)
{
    json_t *a = json_pack("[o, o]", ulimit("nofile", spec->nofile), ulimit("core", 0));

    if (spec->fsize_bytes > 0)
        (void)json_array_append_new(a, ulimit("fsize", spec->fsize_bytes));
    return a;
}

static json_t *security_options(const struct engine_spec *spec)
{
    /* With "=": engines log a deprecation for the form with a colon. */
    json_t *a = json_pack("[s]", "no-new-privileges=true");

    if (spec->seccomp) {
        auto_free char *option = xasprintf("seccomp=%s", spec->seccomp);
        (void)json_array_append_new(a, jsonx_str(option));
    }
    return a;
}

/* Without BindOptions a bind mount is private, recursively: mounts made inside and outside do not meet. */
static json_t *mounts(const struct engine_spec *spec)
{
    json_t *a = json_array();

    for (size_t i = 0; i < spec->mount_count; i++) {
        const struct engine_mount *m = &spec->mounts[i];
        (void)json_array_append_new(a, json_pack("{s:s, s:o, s:o, s:b}", "Type", "bind", "Source",
                                                 jsonx_str(m->source), "Target", jsonx_str(m->target),
                                                 "ReadOnly", (int)m->read_only));
    }
    return a;
}

static json_t *tmpfs(const struct engine_spec *spec)
{
    json_t *o = json_object();

    for (size_t i = 0; i < spec->tmpfs_count; i++)
        (void)json_object_set_new(o, spec->tmpfs[i].target, jsonx_str(spec->tmpfs[i].options));
    return o;
}

static json_t *labels(const struct engine_spec *spec)
{
    json_t *o = json_object();

    for (size_t i = 0; i < spec->label_count; i++)
        (void)json_object_set_new(o, spec->labels[i].key, jsonx_str(spec->labels[i].value));
    return o;
}

/*
 * MaskedPaths and ReadonlyPaths stay unsaid: an empty list there would unmask everything. Init is said: a
 * daemon may have "init": true as its default, and the image's program is PID 1 on purpose.
 */
static json_t *host_config(const struct engine_spec *spec)
{
    json_t *o = json_pack("{s:o, s:[s], s:o, s:b, s:b, s:b, s:I, s:I, s:I, s:I, s:I, s:o, s:s, s:{s:s}}",
                          /* access */
                          "NetworkMode", jsonx_str(spec->network), "CapDrop", "ALL", "SecurityOpt",
                          security_options(spec), "ReadonlyRootfs", 1, "Privileged", 0, "Init", 0,
                          /* limits */
                          "Memory", (json_int_t)spec->memory_bytes, "MemorySwap",
                          (json_int_t)spec->memory_bytes, "NanoCpus", (json_int_t)spec->nano_cpus,
                          "PidsLimit", (json_int_t)spec->pids, "ShmSize", (json_int_t)spec->shm_bytes,
                          "Ulimits", ulimits(spec),
                          /* the rest */
                          "IpcMode", "private", "LogConfig", "Type", "none");

    if (spec->mount_count > 0)
        (void)json_object_set_new(o, "Mounts", mounts(spec));
    if (spec->tmpfs_count > 0)
        (void)json_object_set_new(o, "Tmpfs", tmpfs(spec));
    if (spec->runtime && *spec->runtime)
        (void)json_object_set_new(o, "Runtime", jsonx_str(spec->runtime));
    return o;
}

json_t *docker_spec_json(const struct engine_spec *spec)
{
    auto_free char *user = xasprintf("%u:%u", spec->uid, spec->gid);
    json_t *o = json_pack("{s:o, s:s, s:o, s:o}", "Image", jsonx_str(spec->image), "User", user, "Labels",
                          labels(spec), "HostConfig", host_config(spec));

    if (spec->hostname)
        (void)json_object_set_new(o, "Hostname", jsonx_str(spec->hostname));
    if (spec->command)
        (void)json_object_set_new(o, "Entrypoint",
                                  string_array(spec->command)); /* Cmd would go to the image's */
    if (spec->env)
        (void)json_object_set_new(o, "Env", string_array(spec->env));
    return o;
}
