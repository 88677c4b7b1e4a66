#include "common/buf.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void bytes_are_kept_in_order_and_terminated(void **state)
{
    auto_buf struct buf b = { .max = 100 };
    struct error err;

    (void)state;
    assert_int_equal(buf_add(&b, "a\0b", 3, &err), 0);
    assert_int_equal(buf_addf(&b, &err, "%d%s", 12, "x"), 0);
    assert_int_equal(buf_add(&b, NULL, 0, &err), 0);
    assert_int_equal(b.len, 6);
    assert_memory_equal(b.data, "a\0b12x\0", 7);
}

static void the_cap_holds_to_the_byte(void **state)
{
    auto_buf struct buf b;
    struct error err = { 0 };
    char *room = NULL;

    (void)state;
    buf_init(&b, 8);
    assert_int_equal(buf_add(&b, "12345678", 8, &err), 0);
    assert_int_equal(buf_add(&b, "9", 1, &err), -1);
    assert_int_equal(err.kind, ERR_LIMIT);
    assert_string_equal(b.data, "12345678"); /* a failed call changes nothing */
    assert_int_equal(buf_addf(&b, &err, "x"), -1);
    assert_int_equal(buf_reserve(&b, SIZE_MAX, &room, &err), -1);
    assert_int_equal(buf_reserve(&b, SIZE_MAX - 4, &room, &err), -1);
    assert_int_equal(buf_add(&b, "", 0, &err), 0);
    assert_int_equal(b.len, 8);
}

static void consumed_bytes_make_room(void **state)
{
    auto_buf struct buf b = { .max = 4 };
    struct error err;

    (void)state;
    buf_consume(&b, 3); /* of nothing */
    assert_int_equal(buf_add(&b, "abcd", 4, &err), 0);
    buf_consume(&b, 3);
    assert_string_equal(b.data, "d");
    assert_int_equal(buf_add(&b, "efg", 3, &err), 0);
    assert_string_equal(b.data, "defg");
    buf_consume(&b, 99);
    assert_int_equal(b.len, 0);
    assert_string_equal(b.data, "");
}

static void taking_leaves_an_empty_buffer_of_the_same_cap(void **state)
{
    struct buf b = { .max = 4 };
    struct error err;

    (void)state;
    auto_free char *nothing = buf_take(&b);
    assert_string_equal(nothing, "");
    assert_int_equal(buf_add(&b, "abcd", 4, &err), 0);
    auto_free char *text = buf_take(&b);
    assert_string_equal(text, "abcd");
    assert_null(b.data);
    assert_int_equal(buf_add(&b, "abcde", 5, &err), -1);
    assert_int_equal(buf_add(&b, "x", 1, &err), 0);
    buf_done(&b);
    buf_done(&b);
    assert_int_equal(b.max, 4);
}

static void it_grows_over_many_small_additions(void **state)
{
    auto_buf struct buf b = { .max = 100000 };
    struct error err;

    (void)state;
    for (int i = 0; i < 100000; i++)
        assert_int_equal(buf_add(&b, "x", 1, &err), 0);
    assert_int_equal(b.len, 100000);
    assert_int_equal(strlen(b.data), 100000);
    assert_int_equal(buf_add(&b, "x", 1, &err), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_are_kept_in_order_and_terminated),
        cmocka_unit_test(the_cap_holds_to_the_byte),
        cmocka_unit_test(consumed_bytes_make_room),
        cmocka_unit_test(taking_leaves_an_empty_buffer_of_the_same_cap),
        cmocka_unit_test(it_grows_over_many_small_additions),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
