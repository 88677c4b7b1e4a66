#include "orchestrator/engine/docker_wire.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static struct buf body_of(const char *text)
{
    return (struct buf){ .data = (char *)(uintptr_t)text, .len = strlen(text) };
}

/* ---- requests ---- */

static const char *const env[] = { "A=1", "B=two words", NULL };
static const char *const command[] = { "/usr/bin/runner", "--x", NULL };
static const struct engine_label labels[] = { { "carrel.instance", "i" }, { "carrel.session", "" } };
static const struct engine_mount mounts[] = { { "/srv/a", "/mnt/data", false },
                                              { "/srv/p", "/etc/passwd", true } };
static const struct engine_tmpfs tmpfs[] = { { "/tmp", "rw,size=64m,mode=1777" } };

static struct engine_spec full_spec(void)
{
    return (struct engine_spec){
        .name = "c-1",
        .image = "sandbox:latest",
        .runtime = "runsc",
        .hostname = "sandbox",
        .network = "none",
        .seccomp = "{\"defaultAction\":\"SCMP_ACT_ERRNO\"}",
        .command = command,
        .env = env,
        .uid = 4000000000u,
        .gid = 1001,
        .labels = labels,
        .label_count = 2,
        .mounts = mounts,
        .mount_count = 2,
        .tmpfs = tmpfs,
        .tmpfs_count = 1,
        .memory_bytes = 1LL << 32,
        .shm_bytes = 1 << 20,
        .nano_cpus = 1500000000,
        .pids = 256,
        .nofile = 4096,
        .fsize_bytes = 1LL << 33,
    };
}

/* One line, sorted keys: the whole body of a create call is under test, what it has and what it has not. */
static char *spec_text(const struct engine_spec *spec)
{
    json_auto_t *doc = docker_spec_json(spec);

    return json_dumps(doc, JSON_COMPACT | JSON_SORT_KEYS);
}

static void spec_becomes_a_hardened_create_body(void **state)
{
    struct engine_spec spec = full_spec();
    auto_free char *text = spec_text(&spec);

    (void)state;
    assert_string_equal(
        text,
        "{\"Entrypoint\":[\"/usr/bin/runner\",\"--x\"],\"Env\":[\"A=1\",\"B=two words\"],\"HostConfig\":{"
        "\"CapDrop\":[\"ALL\"],\"Init\":false,\"IpcMode\":\"private\",\"LogConfig\":{\"Type\":\"none\"},"
        "\"Memory\":4294967296,\"MemorySwap\":4294967296,"
        "\"Mounts\":[{\"ReadOnly\":false,\"Source\":\"/srv/a\",\"Target\":\"/mnt/data\",\"Type\":\"bind\"},"
        "{\"ReadOnly\":true,\"Source\":\"/srv/p\",\"Target\":\"/etc/passwd\",\"Type\":\"bind\"}],"
        "\"NanoCpus\":1500000000,\"NetworkMode\":\"none\",\"PidsLimit\":256,\"Privileged\":false,"
        "\"ReadonlyRootfs\":true,\"Runtime\":\"runsc\",\"SecurityOpt\":[\"no-new-privileges=true\","
        "\"seccomp={\\\"defaultAction\\\":\\\"SCMP_ACT_ERRNO\\\"}\"],\"ShmSize\":1048576,"
        "\"Tmpfs\":{\"/tmp\":\"rw,size=64m,mode=1777\"},"
        "\"Ulimits\":[{\"Hard\":4096,\"Name\":\"nofile\",\"Soft\":4096},{\"Hard\":0,\"Name\":\"core\","
        "\"Soft\":0},"
        "{\"Hard\":8589934592,\"Name\":\"fsize\",\"Soft\":8589934592}]},"
        "\"Hostname\":\"sandbox\",\"Image\":\"sandbox:latest\","
        "\"Labels\":{\"carrel.instance\":\"i\",\"carrel.session\":\"\"},\"User\":\"4000000000:1001\"}");
}

/* An empty MaskedPaths unmasks, an empty Runtime or Entrypoint is an error: what is not wanted is not said.
 */
static void absent_members_are_not_serialised(void **state)
{
    static const char *const absent[] = { "Entrypoint", "Env",           "Mounts", "Tmpfs",
                                          "Runtime",    "seccomp",       "fsize",  "MaskedPaths",
                                          "null",       "ReadonlyPaths", "[]",     "Hostname" };
    struct engine_spec spec = { .name = "x", .image = "i", .network = "none", .runtime = "" };
    auto_free char *text = spec_text(&spec);

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(absent); i++)
        if (strstr(text, absent[i]))
            fail_msg("%s in %s", absent[i], text);
}

static void foreign_bytes_in_a_spec_do_not_lose_the_document(void **state)
{
    static const char *const bad[] = { "A=\xff", NULL };
    struct engine_spec spec = full_spec();

    (void)state;
    spec.env = bad;
    spec.hostname = "\xc0";
    auto_free char *text = spec_text(&spec);
    assert_non_null(text);
    assert_non_null(strstr(text, "CapDrop"));
}

static void names_are_escaped(void **state)
{
    static const struct {
        const char *text, *keep, *escaped;
    } cases[] = {
        { "abc-._~9", "", "abc-._~9" },
        { "a/b?c=d&e f%", "", "a%2Fb%3Fc%3Dd%26e%20f%25" },
        { "host:5000/i@sha256:1", "/:@", "host:5000/i@sha256:1" },
        { "\xc3\xa4", "", "%C3%A4" },
        { "", "", "" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        auto_free char *escaped = docker_escape(cases[i].text, cases[i].keep);
        assert_string_equal(escaped, cases[i].escaped);
    }
}

static void filters_are_escaped_json(void **state)
{
    auto_free char *list = docker_filters("a=b", false);
    auto_free char *events = docker_filters("a=\"&", true);

    (void)state;
    assert_string_equal(list, "%7B%22label%22%3A%5B%22a%3Db%22%5D%7D");
    assert_non_null(strstr(events, "%22a%3D%5C%22%26%22"));
    assert_non_null(strstr(events, "%22type%22%3A%5B%22container%22%5D"));
}

/* ---- replies ---- */

static void api_version_is_settled_or_refused(void **state)
{
    static const struct {
        const char *api, *api_min, *settled; /* NULL: refused */
    } cases[] = {
        { "1.41", "1.12", "1.41" }, { "1.47", "1.24", "1.47" },   { "1.52", "1.44", "1.47" },
        { "1.44", "", "1.44" },     { "1.56", "1.47", "1.47" },   { "1.52", "1.48", NULL },
        { "1.40", "1.12", NULL },   { "1.9", "", NULL },          { "2.0", "", NULL },
        { "", "", NULL },           { "1.", "", NULL },           { "1.41x", "", NULL },
        { "1.41", "old", NULL },    { "1.4100000000", "", NULL }, { "-1.41", "", NULL },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct docker_version v = { .version = "20.10" };
        char api[DOCKER_API_SIZE] = "";
        struct error err = { 0 };
        (void)stpcpy(v.api, cases[i].api);
        (void)stpcpy(v.api_min, cases[i].api_min);
        int r = docker_negotiate(&v, api, &err);
        assert_int_equal(r, cases[i].settled ? 0 : -1);
        assert_string_equal(api, cases[i].settled ? cases[i].settled : "");
        assert_int_equal(err.kind, cases[i].settled ? ERR_NONE : ERR_UNAVAILABLE);
    }
}

static void info_tells_which_limits_the_engine_can_set(void **state)
{
    struct buf docker = body_of(
        "{\"MemoryLimit\":true,\"PidsLimit\":true,\"CpuCfsQuota\":true,\"CgroupVersion\":\"2\","
        "\"SecurityOptions\":[\"name=seccomp,profile=default\",\"name=rootless\"]}");
    struct buf bare = body_of("{\"SecurityOptions\":null}");
    struct engine_info info = { 0 }, none = { 0 };
    struct error err = { 0 };

    (void)state;
    assert_int_equal(docker_read_info(&docker, &info, &err), 0);
    assert_true(info.memory_limit && info.pids_limit && info.cpu_limit && info.rootless && !info.userns);
    assert_string_equal(info.cgroup_version, "2");
    assert_int_equal(docker_read_info(&bare, &none, &err), 0);
    assert_false(none.memory_limit || none.pids_limit || none.cpu_limit || none.rootless);
}

static void image_without_labels_gives_an_empty_object(void **state)
{
    static const char *const bodies[] = { "{\"Config\":{\"Labels\":null}}", "{\"Config\":{}}",
                                          "{\"Config\":null}", "{}" };
    struct buf labelled = body_of("{\"Config\":{\"Labels\":{\"a\":\"b\"}}}");
    struct error err = { 0 };
    json_auto_t *found = NULL;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bodies); i++) {
        struct buf b = body_of(bodies[i]);
        json_auto_t *none = NULL;
        assert_int_equal(docker_read_image(&b, &none, &err), 0);
        assert_true(json_is_object(none) && json_object_size(none) == 0);
    }
    assert_int_equal(docker_read_image(&labelled, &found, &err), 0);
    assert_string_equal(json_string_value(json_object_get(found, "a")), "b");
}

static void created_gives_id_and_warnings(void **state)
{
    struct buf good = body_of("{\"Id\":\"0aF9\",\"Warnings\":[\"no swap limit\"]}");
    struct buf quiet = body_of("{\"Id\":\"0aF9\",\"Warnings\":null}");
    char id[ENGINE_ID_SIZE];
    struct error err = { 0 };
    json_auto_t *warnings = NULL, *none = NULL;

    (void)state;
    assert_int_equal(docker_read_created(&good, id, &warnings, &err), 0);
    assert_string_equal(id, "0aF9");
    assert_int_equal(json_array_size(warnings), 1);
    assert_int_equal(docker_read_created(&quiet, id, &none, &err), 0);
    assert_null(none);
}

static void ids_that_are_not_hexadecimal_are_refused(void **state)
{
    static const char *const bodies[] = {
        "{\"Id\":\"\"}",
        "{\"Id\":\"../x\"}",
        "{\"Id\":\"a b\"}",
        "{\"Id\":1}",
        "{}",
        "[]",
        "",
        "null",
        "{\"Id\":",
        "{\"Id\":"
        "\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\""
        "}",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bodies); i++) {
        struct buf b = body_of(bodies[i]);
        char id[ENGINE_ID_SIZE];
        struct error err = { 0 };
        json_auto_t *warnings = NULL;
        assert_int_equal(docker_read_created(&b, id, &warnings, &err), -1);
        assert_int_equal(err.kind, ERR_UPSTREAM);
    }
}

static void list_gives_state_and_labels(void **state)
{
    struct buf b = body_of("[{\"Id\":\"a1\",\"State\":\"running\",\"Labels\":{\"k\":\"v\"}},"
                           "{\"Id\":\"a2\",\"State\":\"paused\",\"Labels\":null},"
                           "{\"Id\":\"a3\",\"State\":\"created\"},{\"Id\":\"a4\",\"State\":\"exited\"}]");
    struct engine_containers list = { 0 };
    struct error err = { 0 };

    (void)state;
    assert_int_equal(docker_read_list(&b, &list, &err), 0);
    assert_int_equal(list.count, 4);
    assert_int_equal(list.items[0].state, ENGINE_RUNNING);
    assert_string_equal(engine_container_label(&list.items[0], "k"), "v");
    assert_null(engine_container_label(&list.items[0], "other"));
    assert_int_equal(list.items[1].state, ENGINE_PAUSED);
    assert_null(engine_container_label(&list.items[1], "k"));
    assert_int_equal(list.items[2].state, ENGINE_STOPPED);
    assert_int_equal(list.items[3].state, ENGINE_STOPPED);
    engine_containers_done(&list);
    engine_containers_done(&list);
}

static void malformed_lists_are_refused(void **state)
{
    static const char *const bodies[] = {
        "{}", "null", "[1]", "[{\"Id\":\"a1\"},{\"Id\":\"/\"}]", "[{}]", "["
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bodies); i++) {
        struct buf b = body_of(bodies[i]);
        struct engine_containers list = { 0 };
        struct error err = { 0 };
        assert_int_equal(docker_read_list(&b, &list, &err), -1);
        assert_int_equal(err.kind, ERR_UPSTREAM);
        assert_null(list.items);
    }
}

static void inspection_tells_what_a_container_got(void **state)
{
    struct buf b = body_of(
        "{\"Id\":\"a\",\"Image\":\"sha256:1\",\"State\":{\"Running\":true,\"Paused\":false,\"OOMKilled\":"
        "true,"
        "\"ExitCode\":137},\"Config\":{\"User\":\"7:8\"},\"HostConfig\":{\"Memory\":4294967296,"
        "\"MemorySwap\":4294967296,"
        "\"NanoCpus\":5,\"PidsLimit\":6,\"ShmSize\":7,\"ReadonlyRootfs\":true,\"Privileged\":false,"
        "\"SecurityOpt\":[\"no-new-privileges=true\"],\"CapDrop\":[\"ALL\"],\"CapAdd\":null,\"NetworkMode\":"
        "\"none\","
        "\"Runtime\":\"runc\"}}");
    struct engine_inspection r = { 0 };
    struct error err = { 0 };

    (void)state;
    assert_int_equal(docker_read_inspection(&b, &r, &err), 0);
    assert_int_equal(r.state, ENGINE_RUNNING);
    assert_true(r.oom_killed && r.read_only_root && r.no_new_privileges && r.all_caps_dropped &&
                !r.privileged);
    assert_int_equal(r.exit_code, 137);
    assert_true(r.memory_bytes == 1LL << 32 && r.memory_swap_bytes == 1LL << 32);
    assert_true(r.nano_cpus == 5 && r.pids == 6 && r.shm_bytes == 7);
    assert_string_equal(r.network, "none");
    assert_string_equal(r.runtime, "runc");
    assert_string_equal(r.user, "7:8");
    assert_string_equal(r.image_id, "sha256:1");
}

static void protections_not_named_count_as_absent(void **state)
{
    static const struct {
        const char *host;
        bool no_new_privileges, all_caps_dropped;
    } cases[] = {
        { "{\"PidsLimit\":null,\"SecurityOpt\":null,\"CapDrop\":null}", false, false },
        { "{\"SecurityOpt\":[\"no-new-privileges=false\"],\"CapDrop\":[\"CAP_CHOWN\"]}", false, false },
        { "{\"SecurityOpt\":[\"no-new-privileges\"],\"CapDrop\":[\"all\"],\"CapAdd\":[\"CAP_CHOWN\"]}", true,
          false },
        { "{\"SecurityOpt\":[1,\"seccomp=x\",\"no-new-privileges:true\"],\"CapDrop\":[\"CAP_ALL\"],"
          "\"CapAdd\":[]}",
          true, true },
        { "{\"CapDrop\":[\"CAP_CHOWN\",\"CAP_DAC_OVERRIDE\",\"CAP_FOWNER\",\"CAP_FSETID\",\"CAP_KILL\","
          "\"CAP_NET_BIND_SERVICE\",\"CAP_SETFCAP\",\"CAP_SETGID\",\"CAP_SETPCAP\",\"CAP_SETUID\",\"CAP_SYS_"
          "CHROOT\"]}",
          false, true },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        auto_free char *text = xasprintf(
            "{\"State\":{\"Paused\":true,\"Running\":true},\"Config\":{},\"HostConfig\":%s}", cases[i].host);
        struct buf b = body_of(text);
        struct engine_inspection r = { 0 };
        struct error err = { 0 };
        assert_int_equal(docker_read_inspection(&b, &r, &err), 0);
        assert_int_equal(r.state, ENGINE_PAUSED);
        assert_int_equal(r.no_new_privileges, cases[i].no_new_privileges);
        assert_int_equal(r.all_caps_dropped, cases[i].all_caps_dropped);
        assert_int_equal(r.pids, 0);
    }
}

/* ---- events ---- */

struct seen {
    char text[400]; /* "died a1 137; oom a1; " */
};

static void on_event(void *state, const struct engine_event *e)
{
    static const char *const names[] = { "died", "oom", "paused", "reconnected" };
    struct seen *s = state;
    auto_free char *line = e->kind == ENGINE_EVENT_DIED
                               ? xasprintf("died %s %lld; ", e->container_id, (long long)e->exit_code)
                               : xasprintf("%s %s; ", names[e->kind], e->container_id);

    (void)strncat(s->text, line, sizeof s->text - strlen(s->text) - 1);
}

static const char recorded[] =
    "{\"status\":\"create\",\"id\":\"a1\",\"Type\":\"container\",\"Action\":\"create\",\"Actor\":{\"ID\":"
    "\"a1\","
    "\"Attributes\":{\"image\":\"x\"}},\"time\":1}\n"
    "{\"Type\":\"container\",\"Action\":\"exec_die\",\"Actor\":{\"ID\":\"a1\",\"Attributes\":{\"exitCode\":"
    "\"1\"}}}\n"
    "{\"Type\":\"container\",\"Action\":\"exec_create: sh -c die\",\"Actor\":{\"ID\":\"a1\"}}\n"
    "\r\n"
    "{\"Type\":\"container\",\"Action\":\"oom\",\"Actor\":{\"ID\":\"a1\",\"Attributes\":{}}}\n"
    "{\"Type\":\"container\",\"Action\":\"die\",\"Actor\":{\"ID\":\"a1\",\"Attributes\":{\"exitCode\":"
    "\"137\"}}}\n"
    "{\"Type\":\"container\",\"Action\":\"pause\",\"Actor\":{\"ID\":\"a2\",\"Attributes\":{}}}\n"
    "{\"Type\":\"network\",\"Action\":\"destroy\",\"Actor\":{\"ID\":\"a2\",\"Attributes\":{}}}\n"
    "{\"Type\":\"container\",\"Action\":\"remove\",\"Actor\":{\"ID\":\"a3\",\"Attributes\":"
    "{\"containerExitCode\":\"127\"}}}\n"
    "{\"Type\":\"container\",\"Action\":\"die\",\"Actor\":{\"ID\":\"a4\",\"Attributes\":{\"exitCode\":\"x\"}}"
    "}\n"
    "{\"Type\":\"container\",\"Action\":\"die\",\"Actor\":{\"ID\":\"../a5\",\"Attributes\":{}}}\n"
    "{\"Type\":\"container\",\"Action\":\"destroy\",\"Actor\":{\"ID\":\"a6\"}}\n"
    "[]\n";

static void events_are_read_from_pieces_of_any_size(void **state)
{
    (void)state;
    for (size_t piece = 1; piece < sizeof recorded; piece += piece < 70 ? 1 : 97) {
        CLEANUP(docker_event_reader_done) struct docker_event_reader r;
        struct seen seen = { "" };
        struct error err = { 0 };
        docker_event_reader_init(&r, on_event, &seen);
        for (size_t at = 0; at < sizeof recorded - 1; at += piece)
            assert_int_equal(
                docker_event_reader_feed(&r, recorded + at, MIN(piece, sizeof recorded - 1 - at), &err), 0);
        assert_string_equal(seen.text,
                            "oom a1; died a1 137; paused a2; died a3 127; died a4 -1; died a6 -1; ");
    }
}

static void broken_event_line_is_an_error(void **state)
{
    CLEANUP(docker_event_reader_done) struct docker_event_reader r;
    struct seen seen = { "" };
    struct error err = { 0 };

    (void)state;
    docker_event_reader_init(&r, on_event, &seen);
    assert_int_equal(docker_event_reader_feed(&r, "{\"Type\"\n", 8, &err), -1);
}

static void endless_event_line_is_an_error(void **state)
{
    CLEANUP(docker_event_reader_done) struct docker_event_reader r;
    struct seen seen = { "" };
    struct error err = { 0 };
    char piece[4096];
    int result = 0;

    (void)state;
    memset(piece, 'x', sizeof piece);
    docker_event_reader_init(&r, on_event, &seen);
    for (int i = 0; i < 1000 && result == 0; i++)
        result = docker_event_reader_feed(&r, piece, sizeof piece, &err);
    assert_int_equal(result, -1);
    assert_int_equal(err.kind, ERR_LIMIT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spec_becomes_a_hardened_create_body),
        cmocka_unit_test(absent_members_are_not_serialised),
        cmocka_unit_test(foreign_bytes_in_a_spec_do_not_lose_the_document),
        cmocka_unit_test(names_are_escaped),
        cmocka_unit_test(filters_are_escaped_json),
        cmocka_unit_test(api_version_is_settled_or_refused),
        cmocka_unit_test(info_tells_which_limits_the_engine_can_set),
        cmocka_unit_test(image_without_labels_gives_an_empty_object),
        cmocka_unit_test(created_gives_id_and_warnings),
        cmocka_unit_test(ids_that_are_not_hexadecimal_are_refused),
        cmocka_unit_test(list_gives_state_and_labels),
        cmocka_unit_test(malformed_lists_are_refused),
        cmocka_unit_test(inspection_tells_what_a_container_got),
        cmocka_unit_test(protections_not_named_count_as_absent),
        cmocka_unit_test(events_are_read_from_pieces_of_any_size),
        cmocka_unit_test(broken_event_line_is_an_error),
        cmocka_unit_test(endless_event_line_is_an_error),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
