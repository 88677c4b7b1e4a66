#include "common/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cmocka.h>

static char dir[32];
static int dir_fd = -1;

static int setup(void **state)
{
    (void)state;
    (void)stpcpy(dir, "/tmp/carrel-test-XXXXXX");
    assert_non_null(mkdtemp(dir));
    dir_fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return dir_fd >= 0 ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    static const char *const names[] = { "sock", "link", "file", "other" };
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        (void)unlinkat(dir_fd, names[i], 0);
    (void)close(dir_fd);
    return rmdir(dir);
}

static char *path_of(const char *name) { return xasprintf("%s/%s", dir, name); }

static void *write_megabyte(void *arg)
{
    static char data[1 << 20];
    struct error err;

    if (fd_write_all(*(int *)arg, data, sizeof data, &err) < 0)
        (void)fprintf(stderr, "%s\n",
                      err.msg); /* no assertions here: they jump out of the test's own thread */
    (void)close(*(int *)arg);
    return NULL;
}

static void writes_and_reads_are_whole(void **state)
{
    static char data[(1 << 20) + 10];
    int ends[2];
    pthread_t thread;
    struct error err;
    size_t got = 0;

    (void)state;
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    assert_int_equal(pthread_create(&thread, NULL, write_megabyte, &ends[1]), 0);
    assert_int_equal(fd_read_full(ends[0], data, 1000, &got, &err), 0);
    assert_int_equal(got, 1000);
    assert_int_equal(fd_read_full(ends[0], data, sizeof data, &got, &err), 0);
    assert_int_equal(got, (1 << 20) - 1000); /* up to the end */
    (void)pthread_join(thread, NULL);
    (void)close(ends[0]);
}

static void failures_carry_the_systems_reason(void **state)
{
    struct error err = { 0 };
    char byte = 0;
    size_t got = 7;

    (void)state;
    assert_int_equal(fd_write_all(-1, &byte, 1, &err), -1);
    assert_string_equal(err.msg, "write: Bad file descriptor");
    assert_int_equal(fd_read_full(-1, &byte, 1, &got, &err), -1);
    assert_int_equal(got, 7);
    assert_int_equal(fd_set_nonblocking(-1, &err), -1);
    assert_int_equal(fd_write_all(-1, &byte, 0, &err), 0);
}

static void waiting_ends_with_data_hang_up_or_time(void **state)
{
    int ends[2];
    struct error err;

    (void)state;
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    assert_int_equal(fd_set_nonblocking(ends[0], &err), 0);
    assert_true((fcntl(ends[0], F_GETFL) & O_NONBLOCK) != 0);
    assert_false(fd_wait_readable(ends[0], 0));
    assert_int_equal(fd_write_all(ends[1], "x", 1, &err), 0);
    assert_true(fd_wait_readable(ends[0], -1));
    char c;
    assert_int_equal(read(ends[0], &c, 1), 1);
    (void)close(ends[1]);
    assert_true(fd_wait_readable(ends[0], -1));
    (void)close(ends[0]);
}

static void unix_sockets_connect_by_directory(void **state)
{
    auto_free char *path = path_of("sock");
    auto_close int listener = -1;
    auto_close int client = -1;
    struct stat st;
    struct error err;

    (void)state;
    assert_int_equal(fd_unix_listen(path, 0600, &listener, &err), 0);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_int_equal(fd_unix_connect_at(dir_fd, "sock", &client, &err), 0);
    auto_close int server = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    assert_true(server >= 0);
    assert_int_equal(fd_write_all(client, "x", 1, &err), 0);
    char c = 0;
    size_t got = 0;
    assert_int_equal(fd_read_full(server, &c, 1, &got, &err), 0);
    assert_int_equal(c, 'x');
    assert_true((fcntl(client, F_GETFD) & FD_CLOEXEC) != 0);
    assert_true((fcntl(listener, F_GETFD) & FD_CLOEXEC) != 0);
}

static void a_stale_socket_is_replaced(void **state)
{
    auto_free char *path = path_of("sock");
    auto_close int second = -1;
    struct error err = { 0 };
    int first = -1, client = -1;

    (void)state;
    assert_int_equal(fd_unix_listen(path, 0600, &first, &err), 0);
    (void)close(first);
    assert_int_equal(fd_unix_connect_at(dir_fd, "sock", &client, &err), -1); /* nobody listens */
    assert_int_equal(client, -1);
    assert_int_equal(fd_unix_listen(path, 0600, &second, &err), 0);
    assert_int_equal(fd_unix_connect_at(dir_fd, "sock", &client, &err), 0);
    (void)close(client);
}

static void planted_links_and_files_are_not_followed(void **state)
{
    auto_free char *path = path_of("other");
    auto_close int listener = -1;
    struct error err = { 0 };
    int client = -1;

    (void)state;
    assert_int_equal(fd_unix_listen(path, 0600, &listener, &err), 0);
    assert_int_equal(symlinkat(path, dir_fd, "link"), 0);
    assert_int_equal(fd_unix_connect_at(dir_fd, "link", &client, &err), -1);
    assert_false(fd_wait_readable(listener, 0)); /* nobody came */

    auto_close int file = openat(dir_fd, "file", O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(file >= 0);
    assert_int_equal(fd_unix_connect_at(dir_fd, "file", &client, &err), -1);
    assert_int_equal(err.kind, ERR_UPSTREAM);
    assert_int_equal(fd_unix_connect_at(dir_fd, "none", &client, &err), -1);
    assert_int_equal(err.kind, ERR_NOT_FOUND);
    assert_int_equal(client, -1);
}

static void long_socket_paths_are_an_error(void **state)
{
    char path[200];
    int fd = -1;
    struct error err = { 0 };

    (void)state;
    memset(path, 'x', sizeof path - 1);
    path[sizeof path - 1] = '\0';
    assert_int_equal(fd_unix_listen(path, 0600, &fd, &err), -1);
    assert_int_equal(err.kind, ERR_INVALID);
    assert_int_equal(fd, -1);
}

#define IN_DIR(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writes_and_reads_are_whole),
        cmocka_unit_test(failures_carry_the_systems_reason),
        cmocka_unit_test(waiting_ends_with_data_hang_up_or_time),
        IN_DIR(unix_sockets_connect_by_directory),
        IN_DIR(a_stale_socket_is_replaced),
        IN_DIR(planted_links_and_files_are_not_followed),
        cmocka_unit_test(long_socket_paths_are_an_error),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
