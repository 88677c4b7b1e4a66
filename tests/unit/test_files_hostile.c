#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/un.h>

#include "orchestrator/files/beneath.h"
#include "orchestrator/files/tree.h"
#include "tests/unit/files_fixture.h"

#define SECRET "the secret of the host"

static char *outside(struct fixture *f, const char *name) { return xasprintf("%s/outside/%s", f->dir, name); }

static int setup_secret(void **state)
{
    (void)setup(state);
    struct fixture *f = *state;
    struct error err = { 0 };

    auto_free char *dir = outside(f, "");
    assert_int_equal(mkdir(dir, 0700), 0);
    auto_free char *path = outside(f, "secret");
    auto_close int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(fd_write_all(fd, SECRET, strlen(SECRET), &err), 0);
    return 0;
}

/* The host's file is as it was, and no object holds it. */
static int teardown_secret(void **state)
{
    struct fixture *f = *state;
    CLEANUP(objects_done) struct objects list = { 0 };

    auto_free char *path = outside(f, "secret");
    auto_free char *text = read_fd(open(path, O_RDONLY | O_CLOEXEC));
    assert_string_equal(text, SECRET);
    auto_free char *dir = outside(f, "");
    assert_int_equal(files_below(dir), 1);
    OK(store_list(f->store, f->session, &list, &oops));
    for (size_t i = 0; i < list.count; i++) {
        auto_free char *bytes = object_text(f, list.items[i].id);
        assert_null(strstr(bytes, SECRET));
    }
    return teardown(state);
}

static void plant_link(struct fixture *f, const char *path, const char *target)
{
    make_dirs(f, path);
    auto_free char *full = in_data(f, path);
    (void)unlink(full);
    assert_int_equal(symlink(target, full), 0);
}

/* ---- things that are no files ---- */

enum thing { LINK_TO_SECRET, LINK_OUT, LINK_WITHIN, LINK_LOOP, LINK_BROKEN, LINK_FD, PIPE, SOCKET, DEVICE };

static void plant(struct fixture *f, enum thing thing, const char *path)
{
    auto_free char *full = in_data(f, path);
    auto_free char *secret = outside(f, "secret");
    auto_free char *dir = outside(f, "");
    struct sockaddr_un sa = { .sun_family = AF_UNIX };

    switch (thing) {
    case LINK_TO_SECRET:
        plant_link(f, path, secret);
        break;
    case LINK_OUT:
        plant_link(f, path, dir);
        break;
    case LINK_WITHIN:
        plant_link(f, path, "real.txt");
        break;
    case LINK_LOOP:
        plant_link(f, path, path);
        break;
    case LINK_BROKEN:
        plant_link(f, path, "nowhere");
        break;
    case LINK_FD:
        plant_link(f, path, "/proc/self/fd/3");
        break;
    case PIPE:
        assert_int_equal(mkfifo(full, 0666), 0);
        break;
    case SOCKET: {
        auto_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        (void)snprintf(sa.sun_path, sizeof sa.sun_path, "%s", full);
        assert_int_equal(bind(fd, (struct sockaddr *)&sa, sizeof sa), 0);
        break;
    }
    case DEVICE:
        assert_int_equal(mknod(full, S_IFCHR | 0666, makedev(1, 5)), 0);
        break;
    }
}

static const struct {
    enum thing thing;
    const char *reason;
} things[] = {
    { LINK_TO_SECRET, "a symbolic link" },
    { LINK_OUT, "a symbolic link" },
    { LINK_WITHIN, "a symbolic link" },
    { LINK_LOOP, "a symbolic link" },
    { LINK_BROKEN, "a symbolic link" },
    { LINK_FD, "a symbolic link" },
    { PIPE, "a named pipe" },
    { SOCKET, "a socket" },
    { DEVICE, "a device" },
};

static void what_is_no_file_is_named_once(void **state)
{
    struct fixture *f = *state;

    put(f, "real.txt", "ok");
    capture(f);
    for (size_t i = 0; i < ARRAY_LEN(things); i++) {
        if (things[i].thing == DEVICE && geteuid() != 0)
            continue;
        auto_free char *expected = xasprintf("!x: %s", things[i].reason);
        plant(f, things[i].thing, "x");
        capture(f);
        assert_changes(f, expected);
        capture(f);
        assert_changes(f, "");
        reopen_workspace(f);
        capture(f);
        assert_changes(f, "");
        take_away(f, "x");
        capture(f);
        assert_changes(f, "");
    }
}

static void what_replaces_a_file_makes_it_deleted(void **state)
{
    struct fixture *f = *state;

    for (size_t i = 0; i < ARRAY_LEN(things); i++) {
        if (things[i].thing == DEVICE && geteuid() != 0)
            continue;
        char id[ID_SIZE], newer[ID_SIZE];
        auto_free char *name = xasprintf("x%zu", i);
        auto_free char *expected = xasprintf("!%s: %s | -%s", name, things[i].reason, name);
        store_text(f, (struct upload){ .name = name, .text = "abc" }, id);
        store_text(f, (struct upload){ .name = name, .text = "newer" }, newer);
        place_one(f, name, id);
        take_away(f, name);
        plant(f, things[i].thing, name);
        capture(f);
        assert_changes(f, expected);
        capture(f);
        assert_changes(f, "");
        place_one(f, name, id); /* stale */
        assert_file(f, name, things[i].thing == PIPE || things[i].thing == DEVICE ? "" : "(none)");
        place_one(f, name, newer); /* replaces the thing itself, not what it points to */
        assert_changes(f, "");
        assert_file(f, name, "newer");
    }
}

static void nothing_is_placed_through_a_link(void **state)
{
    static const char *const names[] = { "d/secret", "d/new", "d/sub/new" };
    struct fixture *f = *state;
    char id[ID_SIZE];

    auto_free char *dir = outside(f, "");
    plant_link(f, "d", dir);
    store_text(f, (struct upload){ .name = "x", .text = "abc" }, id);
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        auto_free char *expected = xasprintf("!%s: a file or a link is in the way of its directory",
                                             names[i]);
        place_one(f, names[i], id);
        assert_changes(f, expected);
    }
    auto_free char *secret = outside(f, "secret");
    plant_link(f, "s", secret);
    place_one(f, "s", id);
    assert_file(f, "s", "abc");
}

/* ---- names ---- */

static void names_that_no_reference_could_carry_are_named_once(void **state)
{
    struct fixture *f = *state;
    char longest[FILE_SEGMENT_MAX + 1] = { 0 };

    memset(longest, 'n', FILE_SEGMENT_MAX);
    put(f, longest, "x");
    capture(f);
    assert_int_equal(f->changes.files.count, 1);
    put(f, "bad\xff", "x");
    put(f, "back\\slash", "x");
    put(f, "mnt/data/x", "x");
    capture(f);
    assert_changes(f, "!back\\slash: cannot be referred to: file name: must not contain a backslash | "
                      "!bad\xff: cannot be referred to: file name: is not UTF-8 | "
                      "!mnt/data/x: cannot be referred to: its name begins with mnt/data");
    reopen_workspace(f);
    capture(f);
    assert_changes(f, "");
}

static void deep_nesting_ends_somewhere(void **state)
{
    struct fixture *f = *state;
    int dir = open(f->data, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    put(f, "near", "x");
    /* Far beyond PATH_MAX: only a walk by descriptors gets down, or makes it. */
    for (int i = 0; i < 600; i++) {
        assert_int_equal(mkdirat(dir, "dd", 0755), 0);
        int next = openat(dir, "dd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_true(next >= 0);
        (void)close(dir);
        dir = next;
    }
    (void)close(dir);
    capture(f);
    assert_int_equal(f->changes.files.count, 1);
    assert_int_equal(f->changes.skipped_count, 1);
    assert_string_equal(f->changes.skipped[0].reason, "nested too deeply");
    capture(f);
    assert_changes(f, "");
    OK(workspace_chown(f->w, 23456, &oops));
    auto_free char *top = in_data(f, "dd");
    OK(tree_remove(top, &oops));
    capture(f);
    assert_changes(f, "");
}

static void files_below_a_long_path_are_named(void **state)
{
    struct fixture *f = *state;
    char segment[201] = { 0 };
    int dir = open(f->data, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    memset(segment, 's', 200);
    for (int i = 0; i < 25; i++) {
        assert_int_equal(mkdirat(dir, segment, 0755), 0);
        int next = openat(dir, segment, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        (void)close(dir);
        dir = next;
        auto_close int fd = openat(dir, "f", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
        assert_true(fd >= 0);
    }
    (void)close(dir);
    capture(f);
    assert_int_equal(f->changes.files.count, 5);
    assert_int_equal(f->changes.skipped_count,
                     16); /* 15 too long for a reference, and what a path cannot name */
    capture(f);
    assert_changes(f, "");
    auto_free char *top = in_data(f, segment);
    OK(tree_remove(top, &oops));
}

/* ---- files with a twist ---- */

static void a_hard_link_is_a_file(void **state)
{
    struct fixture *f = *state;

    put(f, "a", "abc");
    auto_free char *a = in_data(f, "a");
    auto_free char *b = in_data(f, "b");
    assert_int_equal(link(a, b), 0);
    capture(f);
    assert_changes(f, "+a | +b");
}

static void placing_over_a_hard_link_spares_the_other_name(void **state)
{
    struct fixture *f = *state;
    char id[ID_SIZE];

    put(f, "a", "abc");
    auto_free char *a = in_data(f, "a");
    auto_free char *b = in_data(f, "b");
    assert_int_equal(link(a, b), 0);
    capture(f);
    store_text(f, (struct upload){ .name = "a", .text = "placed" }, id);
    place_one(f, "a", id);
    assert_file(f, "b", "abc");
    put(f, "a", "work");
    auto_free char *text = object_text(f, id);
    assert_string_equal(text, "placed");
}

static void a_leased_file_does_not_block(void **state)
{
    struct fixture *f = *state;

    put(f, "a", "abc");
    auto_free char *path = in_data(f, "a");
    void (*handler)(int) = signal(SIGIO, SIG_IGN);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_int_equal(fcntl(fd, F_SETLEASE, F_WRLCK), 0);
    capture(f);
    assert_changes(f, "!a: still being written");
    (void)close(fd);
    (void)signal(SIGIO, handler);
    capture(f);
    assert_changes(f, "+a");
}

static void without_descriptors_nothing_is_taken_for_deleted(void **state)
{
    struct fixture *f = *state;
    struct rlimit old, low;

    put(f, "a", "abc");
    put(f, "sub/b", "abc");
    capture(f);
    assert_changes(f, "+a | +sub/b");
    int next = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    low = (struct rlimit){ .rlim_cur = (rlim_t)next, .rlim_max = old.rlim_max };
    (void)close(next);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    capture(f);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    assert_changes(f, "!.: Too many open files");
    capture(f);
    assert_changes(f, "");
}

/* ---- races ---- */

struct swapper {
    pthread_t thread;
    struct fixture *f;
    atomic_bool stop;
};

/* A directory that is now real, now a link out of the workspace; and a file that is now a link to the secret.
 */
static void *swap(void *arg)
{
    struct swapper *s = arg;
    auto_free char *dir = in_data(s->f, "d");
    auto_free char *real = in_data(s->f, "real");
    auto_free char *link = in_data(s->f, "link");
    auto_free char *file = in_data(s->f, "file");
    auto_free char *out = outside(s->f, "");
    auto_free char *secret = outside(s->f, "secret");

    while (!atomic_load(&s->stop)) {
        IGNORE(symlink(out, link));
        (void)rename(dir, real);
        (void)rename(link, dir);
        (void)unlink(file);
        IGNORE(symlink(secret, file));
        (void)rename(dir, link);
        (void)rename(real, dir);
        (void)unlink(link);
        (void)unlink(file);
        int fd = open(file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
        if (fd >= 0)
            (void)close(fd);
    }
    return NULL;
}

static void swapped_links_give_nothing_away(void **state)
{
    struct fixture *f = *state;
    struct swapper s = { .f = f };
    char id[ID_SIZE];

    put(f, "d/secret", "harmless");
    store_text(f, (struct upload){ .name = "x", .text = "placed" }, id);
    assert_int_equal(pthread_create(&s.thread, NULL, swap, &s), 0);
    for (int i = 0; i < 60; i++) {
        struct upload u = { .name = "d/in", .text = "placed" };
        store_text(f, u, id);
        place(f, (struct workspace_ref[]){ { id, "d/in" }, { id, "file" }, { id, "d/sub/in" } }, 3);
        capture(f);
    }
    atomic_store(&s.stop, true);
    assert_int_equal(pthread_join(s.thread, NULL), 0);
}

/* ---- paths ---- */

static void beneath_stays_beneath(void **state)
{
    static const struct {
        const char *path;
        int errnum; /* 0: it opens */
    } cases[] = {
        { "", 0 },
        { "sub", 0 },
        { "sub/file", 0 },
        { "sub/link", ELOOP },
        { "sub/link/x", -1 },
        { "inner/file", -1 },
        { "out/secret", -1 },
        { "sub/none", ENOENT },
        { "none/none", ENOENT },
        { "sub/file/x", ENOTDIR },
    };
    struct fixture *f = *state;

    put(f, "sub/file", "x");
    plant_link(f, "sub/link", "file");
    plant_link(f, "inner", "sub");
    auto_free char *dir = outside(f, "");
    plant_link(f, "out", dir);
    auto_close int root = open(f->data, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        auto_close int fd = beneath_open(root, cases[i].path, O_RDONLY);
        if (cases[i].errnum == 0)
            assert_true(fd >= 0);
        else if (fd >= 0 || (cases[i].errnum > 0 && errno != cases[i].errnum))
            fail_msg("%s: %d, %s", cases[i].path, fd, strerrordesc_np(errno));
    }
}

static void forbid_openat2(int errnum)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat2, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)errnum),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = { .len = (unsigned short)ARRAY_LEN(code), .filter = code };

    assert_int_equal(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    assert_int_equal(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

#define CASE(fn) cmocka_unit_test_setup_teardown(fn, setup_secret, teardown_secret)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(what_is_no_file_is_named_once),
        CASE(what_replaces_a_file_makes_it_deleted),
        CASE(nothing_is_placed_through_a_link),
        CASE(names_that_no_reference_could_carry_are_named_once),
        CASE(deep_nesting_ends_somewhere),
        CASE(files_below_a_long_path_are_named),
        CASE(a_hard_link_is_a_file),
        CASE(placing_over_a_hard_link_spares_the_other_name),
        CASE(a_leased_file_does_not_block),
        CASE(without_descriptors_nothing_is_taken_for_deleted),
        CASE(swapped_links_give_nothing_away),
        CASE(beneath_stays_beneath),
    };

    int failed = cmocka_run_group_tests_name("with openat2", tests, NULL, NULL);
    forbid_openat2(ENOSYS);
    failed += cmocka_run_group_tests_name("without openat2", tests, NULL, NULL);
    return failed;
}
