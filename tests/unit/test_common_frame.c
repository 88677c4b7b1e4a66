#include "common/frame.h"

#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>

#include <cmocka.h>

#include "common/fd.h"

static void add(struct buf *out, enum frame_type type, const char *payload)
{
    struct error err;

    assert_int_equal(frame_add(out, type, payload, strlen(payload), &err), 0);
}

static void frames_survive_every_split(void **state)
{
    auto_buf struct buf wire = { .max = 1000 };
    static const char *const payloads[] = { "{\"a\":1}", "", "three" };
    static const enum frame_type types[] = { FRAME_HELLO, FRAME_STDOUT, FRAME_END };

    (void)state;
    for (size_t i = 0; i < 3; i++)
        add(&wire, types[i], payloads[i]);
    for (size_t step = 1; step <= wire.len; step++) {
        struct frame_reader r;
        size_t seen = 0;
        frame_reader_init(&r, 100);
        for (size_t at = 0; at < wire.len; at += step) {
            struct frame f;
            bool have = true;
            struct error err;
            assert_int_equal(frame_reader_feed(&r, wire.data + at, MIN(step, wire.len - at), &err), 0);
            while (frame_reader_next(&r, &f, &have, &err) == 0 && have) {
                assert_true(seen < 3);
                assert_int_equal(f.type, types[seen]);
                assert_int_equal(f.len, strlen(payloads[seen]));
                assert_memory_equal(f.payload, payloads[seen], f.len);
                seen++;
            }
            assert_false(r.broken);
        }
        assert_int_equal(seen, 3);
        frame_reader_done(&r);
    }
}

static void the_header_is_big_endian_length_then_type(void **state)
{
    auto_buf struct buf wire = { .max = 1000 };

    (void)state;
    add(&wire, FRAME_RUN, "abc");
    assert_int_equal(wire.len, FRAME_HEADER + 3);
    assert_memory_equal(wire.data,
                        "\0\0\0\x03\x0a"
                        "abc",
                        8);
}

static void hostile_headers_break_the_stream_for_good(void **state)
{
    static const struct {
        const char header[FRAME_HEADER];
        bool good;
    } cases[] = {
        { { 0, 0, 0, 10, FRAME_STDOUT }, true },
        { { 0, 0, 0, 11, FRAME_STDOUT }, false },
        { { -1, -1, -1, -1, FRAME_END }, false },
        { { 0x7f, 0, 0, 0, FRAME_END }, false },
        { { 0, 0, 0, 0, 0 }, false },
        { { 0, 0, 0, 0, 2 }, false },
        { { 0, 0, 0, 0, -1 }, false },
        { { 0, 0, 0, 0, FRAME_END + 1 }, false },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct frame_reader r;
        struct frame f;
        struct error err = { 0 };
        bool have = true;
        frame_reader_init(&r, 10);
        assert_int_equal(frame_reader_feed(&r, cases[i].header, FRAME_HEADER, &err), 0);
        assert_int_equal(frame_reader_next(&r, &f, &have, &err), cases[i].good ? 0 : -1);
        assert_int_equal(frame_reader_feed(&r, "0123456789", 10, &err), 0);
        assert_int_equal(frame_reader_next(&r, &f, &have, &err), cases[i].good ? 0 : -1);
        if (cases[i].good)
            assert_true(have);
        else
            assert_int_equal(err.kind, ERR_UPSTREAM);
        frame_reader_done(&r);
    }
}

static void frames_that_are_not_taken_do_not_pile_up(void **state)
{
    static char noise[64 * 1024];
    struct frame_reader r;
    struct error err = { 0 };
    int fed = 0;

    (void)state;
    frame_reader_init(&r, 1000);
    while (frame_reader_feed(&r, noise, sizeof noise, &err) == 0)
        assert_true(fed++ < 100);
    assert_int_equal(err.kind, ERR_LIMIT);
    frame_reader_done(&r);
}

static void payloads_stay_readable_until_the_next_feed(void **state)
{
    auto_buf struct buf wire = { .max = 1000 };
    struct frame_reader r;
    struct frame first, second;
    struct error err;
    bool have = false;

    (void)state;
    add(&wire, FRAME_STDOUT, "first");
    add(&wire, FRAME_STDERR, "second");
    frame_reader_init(&r, 100);
    assert_int_equal(frame_reader_feed(&r, wire.data, wire.len, &err), 0);
    assert_int_equal(frame_reader_next(&r, &first, &have, &err), 0);
    assert_int_equal(frame_reader_next(&r, &second, &have, &err), 0);
    assert_true(have);
    assert_memory_equal(first.payload, "first", 5);
    assert_memory_equal(second.payload, "second", 6);
    assert_int_equal(frame_reader_next(&r, &second, &have, &err), 0);
    assert_false(have);
    assert_int_equal(frame_reader_feed(&r, "", 0, &err), 0);
    assert_int_equal(r.buf.len, 0);
    frame_reader_done(&r);
}

static void half_a_frame_is_never_added(void **state)
{
    auto_buf struct buf out = { .max = FRAME_HEADER + 2 };
    struct error err = { 0 };

    (void)state;
    assert_int_equal(frame_add(&out, FRAME_STDOUT, "abc", 3, &err), -1);
    assert_int_equal(err.kind, ERR_LIMIT);
    assert_int_equal(out.len, 0);
    assert_int_equal(frame_add(&out, FRAME_STDOUT, "ab", 2, &err), 0);
    assert_int_equal(out.len, FRAME_HEADER + 2);
}

static void every_type_has_a_name(void **state)
{
    static const enum frame_type types[] = {
        FRAME_HELLO,  FRAME_RUN,     FRAME_ATTACH,  FRAME_CANCEL,  FRAME_ACK,
        FRAME_LIST,   FRAME_LISTING, FRAME_REFUSED, FRAME_STARTED, FRAME_STDOUT,
        FRAME_STDERR, FRAME_RESULT,  FRAME_DISPLAY, FRAME_ERROR,   FRAME_END,
    };
    size_t known = 0;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        assert_true(frame_type_known((uint8_t)types[i]));
        assert_string_not_equal(frame_type_name(types[i]), "unknown");
    }
    for (unsigned t = 0; t < 256; t++)
        known += frame_type_known((uint8_t)t);
    assert_int_equal(known, ARRAY_LEN(types));
    assert_string_equal(frame_type_name((enum frame_type)255), "unknown");
}

struct writing {
    int fd;
    size_t len;
};

static void *write_frame(void *arg)
{
    const struct writing *w = arg;
    static char payload[1 << 20];
    struct error err;

    memset(payload, 'x', sizeof payload);
    if (frame_write(w->fd, FRAME_STDOUT, payload, w->len, &err) < 0 ||
        frame_write(w->fd, FRAME_LIST, NULL, 0, &err) < 0)
        return NULL;
    (void)shutdown(w->fd, SHUT_WR);
    return arg;
}

/* More than the socket holds: the writer must go on where the first call stopped. */
static void large_frames_cross_a_socket(void **state)
{
    int ends[2];
    pthread_t thread;
    struct frame_reader r;
    struct frame f;
    struct error err;
    bool open = true, have = false;
    size_t frames = 0;
    void *result = NULL;

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    struct writing w = { ends[0], 1 << 20 };
    assert_int_equal(pthread_create(&thread, NULL, write_frame, &w), 0);
    frame_reader_init(&r, 1 << 20);
    while (open) {
        assert_int_equal(frame_reader_fill(&r, ends[1], &open, &err), 0);
        while (frame_reader_next(&r, &f, &have, &err) == 0 && have)
            assert_int_equal(f.len, frames++ == 0 ? w.len : 0);
    }
    assert_int_equal(frames, 2);
    (void)pthread_join(thread, &result);
    assert_non_null(result);
    frame_reader_done(&r);
    (void)close(ends[0]);
    (void)close(ends[1]);
}

static void an_idle_descriptor_counts_as_nothing_read(void **state)
{
    int ends[2];
    struct frame_reader r;
    struct error err;
    bool open = false;

    (void)state;
    assert_int_equal(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    frame_reader_init(&r, 10);
    assert_int_equal(frame_reader_fill(&r, ends[0], &open, &err), 0);
    assert_true(open);
    (void)close(ends[1]);
    assert_int_equal(frame_reader_fill(&r, ends[0], &open, &err), 0);
    assert_false(open);
    (void)close(ends[0]);
    assert_int_equal(frame_reader_fill(&r, ends[0], &open, &err), -1);
    frame_reader_done(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_survive_every_split),
        cmocka_unit_test(the_header_is_big_endian_length_then_type),
        cmocka_unit_test(hostile_headers_break_the_stream_for_good),
        cmocka_unit_test(frames_that_are_not_taken_do_not_pile_up),
        cmocka_unit_test(payloads_stay_readable_until_the_next_feed),
        cmocka_unit_test(half_a_frame_is_never_added),
        cmocka_unit_test(every_type_has_a_name),
        cmocka_unit_test(large_frames_cross_a_socket),
        cmocka_unit_test(an_idle_descriptor_counts_as_nothing_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
