/* Workspaces as archives, read back. */
#include "orchestrator/files/archive.h"

#include <fcntl.h>
#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <archive.h>
#include <archive_entry.h>
#include <cmocka.h>

#include "common/buf.h"
#include "common/fd.h"
#include "orchestrator/files/tree.h"

static char dir[40];
static int dir_fd = -1;

static int setup(void **state)
{
    (void)state;
    (void)strcpy(dir, "/tmp/carrel-unit-XXXXXX");
    assert_non_null(mkdtemp(dir));
    dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(dir_fd >= 0);
    return 0;
}

static int teardown(void **state)
{
    struct error err = { 0 };

    (void)state;
    closep(&dir_fd);
    assert_int_equal(tree_remove(dir, &err), 0);
    return 0;
}

static void put(const char *name, const char *text)
{
    int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    closep(&fd);
}

static struct archive_stream *begin(enum archive_kind kind)
{
    struct archive_stream *s = NULL;
    struct error err = { 0 };

    assert_int_equal(archive_stream_new(dup(dir_fd), kind, 1000, &s, &err), 0);
    return s;
}

static void drain(struct archive_stream *s, struct buf *all)
{
    char block[1000];
    ssize_t n;
    struct error err = { 0 };

    while ((n = archive_stream_next(s, block, sizeof block)) > 0)
        assert_int_equal(buf_add(all, block, (size_t)n, &err), 0);
    assert_int_equal(n, 0);
    archive_stream_free(s);
}

/* "name=size;..." of what is in it, every byte read. */
static void contents(const struct buf *all, char *out, size_t room)
{
    struct archive *a = archive_read_new();
    struct archive_entry *e = NULL;
    char block[4096];
    size_t used = 0;
    int r;

    (void)archive_read_support_format_all(a);
    (void)archive_read_support_filter_all(a);
    assert_int_equal(archive_read_open_memory(a, all->data, all->len), ARCHIVE_OK);
    out[0] = '\0';
    while ((r = archive_read_next_header(a, &e)) == ARCHIVE_OK) {
        la_ssize_t n, size = 0;
        assert_int_equal(archive_entry_filetype(e), AE_IFREG);
        while ((n = archive_read_data(a, block, sizeof block)) > 0)
            size += n;
        assert_int_equal(n, 0);
        used += (size_t)snprintf(out + used, room - used, "%s=%ld;", archive_entry_pathname(e), (long)size);
    }
    assert_int_equal(r, ARCHIVE_EOF);
    (void)archive_read_free(a);
}

static void expect(enum archive_kind kind, const char *wanted)
{
    auto_buf struct buf all = { .max = 8 << 20 };
    char seen[2000];

    drain(begin(kind), &all);
    contents(&all, seen, sizeof seen);
    assert_string_equal(seen, wanted);
}

static void regular_files_are_in_it_with_their_names(void **state)
{
    static const char wanted[] = ".dot=1;empty=0;sub/\xC3\xA9t\xC3\xA9.txt=5;\xF0\x9F\x98\x80.csv=2;";

    (void)state;
    assert_int_equal(mkdirat(dir_fd, "sub", 0755), 0);
    put(".dot", "d");
    put("empty", "");
    put("sub/\xC3\xA9t\xC3\xA9.txt", "hello");
    put("\xF0\x9F\x98\x80.csv", "ab");
    assert_int_equal(symlinkat("/etc/passwd", dir_fd, "link"), 0);
    assert_int_equal(symlinkat("/etc", dir_fd, "dirlink"), 0);
    assert_int_equal(mkfifoat(dir_fd, "fifo", 0644), 0);
    expect(ARCHIVE_ZIP, wanted);
    expect(ARCHIVE_TAR_GZ, wanted);
}

static void a_name_that_is_not_utf8_is_repaired(void **state)
{
    (void)state;
    put("a\xFF.txt", "x");
    expect(ARCHIVE_ZIP, "a\xEF\xBF\xBD.txt=1;");
    expect(ARCHIVE_TAR_GZ, "a\xEF\xBF\xBD.txt=1;");
}

static void an_empty_workspace_is_an_archive(void **state)
{
    (void)state;
    expect(ARCHIVE_ZIP, "");
    expect(ARCHIVE_TAR_GZ, "");
}

/* The listing is made first, so that what happens after it is seen by the reading alone. */
static void files_that_change_meanwhile_leave_it_whole(void **state)
{
    (void)state;
    for (int kind = ARCHIVE_ZIP; kind <= ARCHIVE_TAR_GZ; kind++) {
        auto_buf struct buf all = { .max = 8 << 20 };
        char seen[200], byte;
        struct error err = { 0 };

        put("a", "a");
        put("gone", "g");
        put("link", "l");
        put("shrinks", "s");
        put("z", "z");
        auto_free char *shrinks = xasprintf("%s/shrinks", dir);
        assert_int_equal(truncate(shrinks, 1 << 20), 0);
        struct archive_stream *s = begin((enum archive_kind)kind);
        assert_int_equal(unlinkat(dir_fd, "gone", 0), 0);
        assert_int_equal(unlinkat(dir_fd, "link", 0), 0);
        assert_int_equal(symlinkat("/etc/passwd", dir_fd, "link"), 0);
        /* One byte at a time up to the zip's third header at the latest. */
        for (int i = 0; i < 150 && archive_stream_next(s, &byte, 1) == 1; i++)
            assert_int_equal(buf_add(&all, &byte, 1, &err), 0);
        put("shrinks", "now short");
        drain(s, &all);
        contents(&all, seen, sizeof seen);
        assert_true(strcmp(seen, "a=1;shrinks=1048576;z=1;") == 0 || strcmp(seen, "a=1;shrinks=9;z=1;") == 0);
        assert_int_equal(unlinkat(dir_fd, "link", 0), 0);
    }
}

static void it_can_be_given_up_at_any_time(void **state)
{
    char byte;

    (void)state;
    put("a", "a");
    auto_free char *path = xasprintf("%s/a", dir);
    assert_int_equal(truncate(path, 64 << 20), 0);
    for (int kind = ARCHIVE_ZIP; kind <= ARCHIVE_TAR_GZ; kind++) {
        archive_stream_free(begin((enum archive_kind)kind));
        struct archive_stream *s = begin((enum archive_kind)kind);
        for (int i = 0; i < 20; i++)
            assert_int_equal(archive_stream_next(s, &byte, 1), 1);
        archive_stream_free(s);
    }
}

static void too_many_entries_are_refused(void **state)
{
    struct archive_stream *s = NULL;
    struct error err = { 0 };

    (void)state;
    put("a", "a");
    put("b", "b");
    assert_int_equal(archive_stream_new(dup(dir_fd), ARCHIVE_ZIP, 1, &s, &err), -1);
    assert_int_equal(err.kind, ERR_LIMIT);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(regular_files_are_in_it_with_their_names), CASE(a_name_that_is_not_utf8_is_repaired),
        CASE(an_empty_workspace_is_an_archive),         CASE(files_that_change_meanwhile_leave_it_whole),
        CASE(it_can_be_given_up_at_any_time),           CASE(too_many_entries_are_refused),
    };

    (void)setlocale(LC_CTYPE, "C.UTF-8"); /* as main does */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
