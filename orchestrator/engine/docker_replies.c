#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "orchestrator/engine/docker_wire.h"

#define OLDEST_API 41 /* 1.41: Docker Engine 20.10 */
#define NEWEST_API 47

static int parse(const struct buf *body, json_t **ret, struct error *err)
{
    if (jsonx_parse(body->data, body->len, ret, err) == 0)
        return 0;
    err->kind = ERR_UPSTREAM; /* not the client's fault */
    return error_wrap(err, "the engine's answer");
}

/* An absent or foreign value gives "". */
static void copy_text(char *out, size_t size, const json_t *v)
{
    const char *s = json_string_value(v);

    (void)snprintf(out, size, "%s", s ? s : "");
}

static json_t *object_or_empty(json_t *v) { return json_is_object(v) ? json_incref(v) : json_object(); }

bool docker_read_number(const char **p, int64_t *ret)
{
    int64_t n = 0;
    size_t digits = 0;

    for (; **p >= '0' && **p <= '9'; (*p)++, digits++) {
        if (digits == 9)
            return false;
        n = n * 10 + (**p - '0');
    }
    *ret = n;
    return digits > 0;
}

int docker_read_version(const struct buf *body, struct docker_version *ret, struct error *err)
{
    json_auto_t *doc = NULL;
    json_t *version = NULL, *api = NULL, *api_min = NULL;

    if (parse(body, &doc, err) < 0)
        return -1;
    if (jsonx_unpack(doc, err, "{s?o, s?o, s?o}", "Version", &version, "ApiVersion", &api, "MinAPIVersion",
                     &api_min) < 0)
        return -1;
    copy_text(ret->version, sizeof ret->version, version);
    copy_text(ret->api, sizeof ret->api, api);
    copy_text(ret->api_min, sizeof ret->api_min, api_min);
    return 0;
}

/* "1.41" gives 41; what is not 1.x gives false. */
static bool api_minor(const char *text, int64_t *ret)
{
    const char *p = text;
    int64_t major = 0;

    return docker_read_number(&p, &major) && major == 1 && *p++ == '.' && docker_read_number(&p, ret) &&
           *p == '\0';
}

int docker_negotiate(const struct docker_version *engine, char ret[DOCKER_API_SIZE], struct error *err)
{
    int64_t newest = 0, oldest = 0;

    if (!api_minor(engine->api, &newest))
        return error_set(err, ERR_UNAVAILABLE, "the engine names an unknown API version, \"%s\"",
                         engine->api);
    if (engine->api_min[0] != '\0' && !api_minor(engine->api_min, &oldest))
        return error_set(err, ERR_UNAVAILABLE, "the engine names an unknown API version, \"%s\"",
                         engine->api_min);
    if (newest < OLDEST_API)
        return error_set(err, ERR_UNAVAILABLE,
                         "the engine (%s) speaks API 1.%" PRId64
                         " at most, 1.%d is needed: Docker Engine 20.10 or newer",
                         engine->version, newest, OLDEST_API);
    if (oldest > NEWEST_API)
        return error_set(err, ERR_UNAVAILABLE,
                         "the engine (%s) wants API 1.%" PRId64 " at least, this program speaks up to 1.%d",
                         engine->version, oldest, NEWEST_API);
    (void)snprintf(ret, DOCKER_API_SIZE, "1.%" PRId64, MIN(newest, (int64_t)NEWEST_API));
    return 0;
}

/* Whether one of /info's "name=seccomp,profile=default" is that name. */
static bool has_security_option(const json_t *options, const char *option)
{
    size_t i, len = strlen(option);
    const json_t *v;

    json_array_foreach(options, i, v)
    {
        const char *s = json_string_value(v);
        if (s && strncmp(s, option, len) == 0 && (s[len] == '\0' || s[len] == ','))
            return true;
    }
    return false;
}

int docker_read_info(const struct buf *body, struct engine_info *ret, struct error *err)
{
    json_auto_t *doc = NULL;
    json_t *memory = NULL, *pids = NULL, *cpu = NULL, *security = NULL, *cgroup = NULL;

    if (parse(body, &doc, err) < 0)
        return -1;
    if (jsonx_unpack(doc, err, "{s?o, s?o, s?o, s?o, s?o}", "MemoryLimit", &memory, "PidsLimit", &pids,
                     "CpuCfsQuota", &cpu, "SecurityOptions", &security, "CgroupVersion", &cgroup) < 0)
        return -1;
    ret->memory_limit = json_is_true(memory);
    ret->pids_limit = json_is_true(pids);
    ret->cpu_limit = json_is_true(cpu);
    ret->rootless = has_security_option(security, "name=rootless");
    ret->userns = has_security_option(security, "name=userns");
    copy_text(ret->cgroup_version, sizeof ret->cgroup_version, cgroup);
    return 0;
}

int docker_read_image(const struct buf *body, json_t **ret_labels, struct error *err)
{
    json_auto_t *doc = NULL;
    json_t *config = NULL, *labels = NULL;
    struct error ignored;

    if (parse(body, &doc, err) < 0)
        return -1;
    if (jsonx_unpack(doc, err, "{s?o}", "Config", &config) < 0)
        return -1;
    IGNORE(
        jsonx_unpack(config, &ignored, "{s?o}", "Labels", &labels)); /* an imported image may have neither */
    *ret_labels = object_or_empty(labels);
    return 0;
}

int docker_copy_id(const char *id, char out[ENGINE_ID_SIZE], struct error *err)
{
    size_t len = strspn(id, "0123456789abcdefABCDEF");

    if (len == 0 || id[len] != '\0' || len >= ENGINE_ID_SIZE)
        return error_set(err, ERR_UPSTREAM, "the engine names a container \"%.80s\"", id);
    (void)stpcpy(out, id);
    return 0;
}

int docker_read_created(const struct buf *body, char ret_id[ENGINE_ID_SIZE], json_t **ret_warnings,
                        struct error *err)
{
    json_auto_t *doc = NULL;
    json_t *warnings = NULL;
    const char *id = NULL;

    if (parse(body, &doc, err) < 0)
        return -1;
    if (jsonx_unpack(doc, err, "{s:s, s?o}", "Id", &id, "Warnings", &warnings) < 0)
        return -1;
    if (docker_copy_id(id, ret_id, err) < 0)
        return -1;
    *ret_warnings = json_array_size(warnings) > 0 ? json_incref(warnings) : NULL;
    return 0;
}

static int read_container(json_t *item, struct engine_container *ret, struct error *err)
{
    struct engine_container c = { .state = ENGINE_STOPPED };
    const char *id = NULL;
    json_t *state = NULL, *labels = NULL;

    if (jsonx_unpack(item, err, "{s:s, s?o, s?o}", "Id", &id, "State", &state, "Labels", &labels) < 0)
        return -1;
    if (docker_copy_id(id, c.id, err) < 0)
        return -1;
    if (str_eq(json_string_value(state), "running"))
        c.state = ENGINE_RUNNING;
    else if (str_eq(json_string_value(state), "paused"))
        c.state = ENGINE_PAUSED;
    c.labels = object_or_empty(labels);
    *ret = c;
    return 0;
}

int docker_read_list(const struct buf *body, struct engine_containers *ret, struct error *err)
{
    CLEANUP(engine_containers_done) struct engine_containers list = { 0 };
    json_auto_t *doc = NULL;
    size_t i;
    json_t *item;

    if (parse(body, &doc, err) < 0)
        return -1;
    if (!json_is_array(doc))
        return error_set(err, ERR_UPSTREAM, "the engine's list of containers is not a list");
    list.items = xcalloc(MAX(json_array_size(doc), (size_t)1), sizeof *list.items);
    json_array_foreach(doc, i, item)
    {
        if (read_container(item, &list.items[list.count], err) < 0)
            return -1;
        list.count++;
    }
    ret->count = list.count;
    ret->items = steal_ptr(&list.items);
    return 0;
}

static bool array_has(const json_t *array, const char *text)
{
    size_t i;
    const json_t *v;

    json_array_foreach(array, i, v)
    {
        const char *s = json_string_value(v);
        if (s && strcasecmp(s, text) == 0)
            return true;
    }
    return false;
}

/* Podman answers CapDrop ALL with the names of what it would have granted. */
static bool drops_all_caps(const json_t *drop, const json_t *add)
{
    static const char *const granted[] = {
        "CAP_CHOWN",   "CAP_DAC_OVERRIDE",     "CAP_FOWNER",     "CAP_FSETID",
        "CAP_KILL",    "CAP_NET_BIND_SERVICE", "CAP_SETFCAP",    "CAP_SETGID",
        "CAP_SETPCAP", "CAP_SETUID",           "CAP_SYS_CHROOT",
    };

    if (json_array_size(add) > 0)
        return false;
    if (array_has(drop, "ALL") || array_has(drop, "CAP_ALL"))
        return true;
    for (size_t i = 0; i < ARRAY_LEN(granted); i++)
        if (!array_has(drop, granted[i]))
            return false;
    return true;
}

static bool forbids_new_privileges(const json_t *security)
{
    return array_has(security, "no-new-privileges=true") || array_has(security, "no-new-privileges:true") ||
           array_has(security, "no-new-privileges");
}

static int read_host_config(json_t *host, struct engine_inspection *ret, struct error *err)
{
    json_t *memory = NULL, *swap = NULL, *cpus = NULL, *pids = NULL, *shm = NULL, *read_only = NULL;
    json_t *privileged = NULL, *security = NULL, *drop = NULL, *add = NULL, *network = NULL, *runtime = NULL;

    if (jsonx_unpack(host, err, "{s?o, s?o, s?o, s?o, s?o, s?o, s?o, s?o, s?o, s?o, s?o, s?o}", "Memory",
                     &memory, "MemorySwap", &swap, "NanoCpus", &cpus, "PidsLimit", &pids, "ShmSize", &shm,
                     "ReadonlyRootfs", &read_only, "Privileged", &privileged, "SecurityOpt", &security,
                     "CapDrop", &drop, "CapAdd", &add, "NetworkMode", &network, "Runtime", &runtime) < 0)
        return -1;
    ret->memory_bytes = json_integer_value(memory); /* null where there is no limit: 0 */
    ret->memory_swap_bytes = json_integer_value(swap);
    ret->nano_cpus = json_integer_value(cpus);
    ret->pids = json_integer_value(pids);
    ret->shm_bytes = json_integer_value(shm);
    ret->read_only_root = json_is_true(read_only);
    ret->privileged = json_is_true(privileged);
    ret->no_new_privileges = forbids_new_privileges(security);
    ret->all_caps_dropped = drops_all_caps(drop, add);
    copy_text(ret->network, sizeof ret->network, network);
    copy_text(ret->runtime, sizeof ret->runtime, runtime);
    return 0;
}

int docker_read_inspection(const struct buf *body, struct engine_inspection *ret, struct error *err)
{
    struct engine_inspection r = { .state = ENGINE_STOPPED };
    json_auto_t *doc = NULL;
    json_t *running = NULL, *paused = NULL, *oom = NULL, *code = NULL, *user = NULL, *image = NULL,
           *host = NULL;

    if (parse(body, &doc, err) < 0)
        return -1;
    if (jsonx_unpack(doc, err, "{s:{s?o, s?o, s?o, s?o}, s:{s?o}, s?o, s:o}", "State", "Running", &running,
                     "Paused", &paused, "OOMKilled", &oom, "ExitCode", &code, "Config", "User", &user,
                     "Image", &image, "HostConfig", &host) < 0)
        return -1;
    if (read_host_config(host, &r, err) < 0)
        return -1;
    if (json_is_true(paused)) /* such a container counts as running, too */
        r.state = ENGINE_PAUSED;
    else if (json_is_true(running))
        r.state = ENGINE_RUNNING;
    r.exit_code = json_integer_value(code);
    r.oom_killed = json_is_true(oom);
    copy_text(r.user, sizeof r.user, user);
    copy_text(r.image_id, sizeof r.image_id, image);
    *ret = r;
    return 0;
}
