#include "orchestrator/http/multipart.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define TYPE "multipart/form-data; boundary=XX"

/* Writes what happens as text: "name|filename|type:data;" for each part. */
struct transcript {
    struct buf text;
    bool open;
    int fail_at; /* callbacks until one fails; 0: never */
    size_t pieces;
};

static int maybe_fail(struct transcript *t, struct error *err)
{
    return t->fail_at > 0 && --t->fail_at == 0 ? error_set(err, ERR_CONFLICT, "enough") : 0;
}

static int on_part(void *state, const struct multipart_part *p, struct error *err)
{
    struct transcript *t = state;

    assert_false(t->open);
    t->open = true;
    if (maybe_fail(t, err) < 0)
        return -1;
    return buf_addf(&t->text, err, "%s|%s|%s:", p->name, p->has_filename ? p->filename : "-",
                    p->content_type);
}

static int on_data(void *state, const char *data, size_t len, struct error *err)
{
    struct transcript *t = state;

    assert_true(t->open);
    assert_true(len > 0);
    t->pieces++;
    if (maybe_fail(t, err) < 0)
        return -1;
    return buf_add(&t->text, data, len, err);
}

static int on_part_end(void *state, struct error *err)
{
    struct transcript *t = state;

    assert_true(t->open);
    t->open = false;
    return maybe_fail(t, err) < 0 ? -1 : buf_add(&t->text, ";", 1, err);
}

static const struct multipart_events events = { on_part, on_data, on_part_end };

/* Parses a body in pieces of step bytes. */
static int parse(struct transcript *t, const char *type, const char *body, size_t len, size_t step,
                 struct error *err)
{
    struct multipart *m = NULL;

    buf_init(&t->text, 1 << 20);
    if (multipart_new(type, &events, t, &m, err) < 0)
        return -1;
    int r = 0;
    for (size_t i = 0; r == 0 && i < len; i += step)
        r = multipart_feed(m, body + i, MIN(step, len - i), err);
    if (r == 0)
        r = multipart_end(m, err);
    multipart_free(m);
    return r;
}

#define P(disposition) "--XX\r\nContent-Disposition: form-data; " disposition "\r\n\r\n"
#define END "\r\n--XX--\r\n"

static void bodies_parse_the_same_at_every_split(void **state)
{
    static const struct {
        const char *body, *transcript;
    } cases[] = {
        { P("name=\"a\"") "1" END, "a|-|:1;" },
        { P("name=\"a\"") "1\r\n" P("name=\"b\"") "2" END, "a|-|:1;b|-|:2;" },
        { "junk\r\n--X\r\n" P("name=a") "1" END "epilogue --XX\r\n", "a|-|:1;" },
        { P("name=a") "1\r\n--XX--", "a|-|:1;" },
        { "--XX  \t\r\nContent-Disposition: form-data; name=a\r\n\r\n1" END, "a|-|:1;" },
        { "--XX--", "" },
        /* an empty file, files of line ends, and everything that looks like a boundary */
        { P("name=f; filename=e") END, "f|e|:;" },
        { P("name=f") "\r\n\r\n\r\n" END, "f|-|:\r\n\r\n\r\n;" },
        { P("name=f") "\r\r\n\r\n-\r\n--\r\n--X\r\r\n--Y--XX\n--XX" END,
          "f|-|:\r\r\n\r\n-\r\n--\r\n--X\r\r\n--Y--XX\n--XX;" },
        { P("name=f") "\r" END, "f|-|:\r;" },
        { P("name=f") "--XX" END, "f|-|:--XX;" },
        /* names */
        { P("name=\"f\"; filename=\"a\\\"b\"") END, "f|a\"b|:;" },
        { P("name=\"f\"; filename=\"a\\\\b\"") END, "f|a\\b|:;" },
        { P("name=\"f\"; filename=\"C:\\dir\\x.csv\"") END, "f|C:\\dir\\x.csv|:;" },
        { P("name=\"f\"; filename=\"a%22b\"") END, "f|a%22b|:;" },
        { P("name=\"f\"; filename=\"a;b=c\"") END, "f|a;b=c|:;" },
        { P("name=\"f\"; filename=\"sub/d\xc3\xa4t\xc3\xa4.csv\"") END, "f|sub/d\xc3\xa4t\xc3\xa4.csv|:;" },
        { P("name=f; filename=my file.txt ; x=y") END, "f|my file.txt|:;" },
        { P("filename=x; name=f") END, "f|x|:;" },
        { P("name=f; filename=\"\"") END, "f||:;" },
        { P("name=f; filename=old; filename*=UTF-8''n%c3%a9w%20x") END, "f|n\xc3\xa9w x|:;" },
        { P("name=f; filename*=utf-8'en'a.b; filename=old") END, "f|a.b|:;" },
        { P("name=f; filename=old; filename*=KOI8-R''x") END, "f|old|:;" },
        { P("NAME=f; FileName=x; flag; =y") END, "f|x|:;" },
        /* other headers */
        { "--XX\r\ncontent-type:text/csv\r\nX: y\r\nCONTENT-DISPOSITION: form-data; name=a\r\n\r\n1" END,
          "a|-|text/csv:1;" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        size_t len = strlen(cases[i].body);
        for (size_t step = 1; step <= len; step++) {
            struct transcript t = { 0 };
            struct error err = { 0 };
            assert_int_equal(parse(&t, TYPE, cases[i].body, len, step, &err), 0);
            assert_string_equal(t.text.data ? t.text.data : "", cases[i].transcript);
            assert_false(t.open);
            buf_done(&t.text);
        }
    }
}

static void broken_bodies_are_refused_at_every_split(void **state)
{
#define CASE(body)                                                                                           \
    {                                                                                                        \
        body, sizeof(body) - 1                                                                               \
    }
    static const struct {
        const char *body;
        size_t len;
    } cases[] = {
        CASE(""),
        CASE("no boundary at all"),
        CASE("--XX"),
        CASE("--XX-"),
        CASE(P("name=a") "1"),
        CASE(P("name=a") "1\r\n--XX"),
        CASE(P("name=a") "1\r\n--XX\r\n"),
        CASE(P("name=a") "1\r\n--XXY\r\n"),
        CASE(P("name=a") "1\r\n--XX\n"),
        CASE(P("filename=a") "1" END),
        CASE(P("name=\"\"") "1" END),
        CASE(P("name=\"a") "1" END),
        CASE("--XX\r\n\r\n1" END),
        CASE("--XX\r\nX: y\r\n\r\n1" END),
        CASE(P("name=\"a\0b\"") "1" END),
        CASE(P("name=a; filename*=UTF-8''a%00b") "1" END),
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        for (size_t step = 1; step <= cases[i].len + 1; step++) {
            struct transcript t = { 0 };
            struct error err = { 0 };
            assert_int_equal(parse(&t, TYPE, cases[i].body, cases[i].len, step, &err), -1);
            assert_int_equal(err.kind, ERR_INVALID);
            buf_done(&t.text);
        }
}

static void content_types_need_a_usable_boundary(void **state)
{
#define SEVENTY "0123456789012345678901234567890123456789012345678901234567890123456789"
    static const struct {
        const char *type;
        bool good;
    } cases[] = {
        { "multipart/form-data; boundary=x", true },
        { "Multipart/Form-Data;charset=utf-8;BOUNDARY=\"a b:c\"", true },
        { "multipart/form-data; boundary=" SEVENTY, true },
        { "multipart/form-data; boundary=" SEVENTY "0", false },
        { "multipart/form-data; boundary=", false },
        { "multipart/form-data; boundary=\"\"", false },
        { "multipart/form-data; boundary=\"a \"", false },
        { "multipart/form-data; boundary=\"a", false },
        { "multipart/form-data; boundary=\"a\tb\"", false },
        { "multipart/form-data; boundary=\xc3\xa9", false },
        { "multipart/form-data", false },
        { "multipart/form-datax; boundary=x", false },
        { "multipart/mixed; boundary=x", false },
        { "", false },
        { NULL, false },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct multipart *m = NULL;
        struct error err = { 0 };
        int r = multipart_new(cases[i].type, &events, NULL, &m, &err);
        assert_int_equal(r, cases[i].good ? 0 : -1);
        if (r < 0)
            assert_int_equal(err.kind, ERR_MEDIA_TYPE);
        multipart_free(m);
    }
}

static void quoted_boundaries_with_odd_characters_work(void **state)
{
    static const char body[] = "--a b:c\r\nContent-Disposition: form-data; name=n\r\n\r\nv\r\n--a b:c--";
    struct transcript t = { 0 };
    struct error err;

    (void)state;
    assert_int_equal(parse(&t, "multipart/form-data; boundary=\"a b:c\"", body, sizeof body - 1, 7, &err), 0);
    assert_string_equal(t.text.data, "n|-|:v;");
    buf_done(&t.text);
}

static void a_callback_ends_the_parse_with_its_own_error(void **state)
{
    static const char body[] = P("name=a") "1" END;

    (void)state;
    for (int at = 1; at <= 3; at++) {
        struct transcript t = { .fail_at = at };
        struct multipart *m = NULL;
        struct error err = { 0 };
        buf_init(&t.text, 100);
        assert_int_equal(multipart_new(TYPE, &events, &t, &m, &err), 0);
        for (int again = 0; again < 2; again++) {
            err = (struct error){ 0 };
            assert_int_equal(multipart_feed(m, body, sizeof body - 1, &err), -1);
            assert_int_equal(err.kind, ERR_CONFLICT);
        }
        assert_int_equal(multipart_end(m, &err), -1);
        assert_int_equal(err.kind, ERR_CONFLICT);
        multipart_free(m);
        buf_done(&t.text);
    }
}

/* Builds a body of n parts named a, or with one header of n bytes. */
static void limits_hold(void **state)
{
    static const struct {
        size_t parts, header, name;
        enum error_kind kind;
    } cases[] = {
        { 1100, 1, 1, ERR_NONE },
        { 1101, 1, 1, ERR_LIMIT },
        { 1, 8000, 1, ERR_NONE },
        { 1, 8192, 1, ERR_INVALID },
        { 1, 1, MULTIPART_MAX_NAME - 1, ERR_NONE },
        { 1, 1, MULTIPART_MAX_NAME, ERR_INVALID },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct transcript t = { 0 };
        struct error err = { 0 };
        auto_buf struct buf body = { .max = 1 << 20 };
        for (size_t n = 0; n < cases[i].parts; n++)
            assert_int_equal(
                buf_addf(&body, &err,
                         "\r\n--XX\r\nContent-Disposition: form-data; name=\"%0*d\"\r\nX:%0*d\r\n\r\n",
                         (int)cases[i].name, 1, (int)cases[i].header, 1),
                0);
        assert_int_equal(buf_addf(&body, &err, END), 0);
        assert_int_equal(parse(&t, TYPE, body.data, body.len, body.len, &err), cases[i].kind ? -1 : 0);
        assert_int_equal(err.kind, cases[i].kind);
        buf_done(&t.text);
    }
}

static void lines_do_not_cut_the_data_into_pieces(void **state)
{
    auto_buf struct buf body = { .max = 1 << 20 };
    struct transcript t = { 0 };
    struct error err;

    (void)state;
    assert_int_equal(buf_addf(&body, &err, P("name=a")), 0);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(buf_addf(&body, &err, "1,2,3\r\n"), 0);
    assert_int_equal(buf_addf(&body, &err, END), 0);
    assert_int_equal(parse(&t, TYPE, body.data, body.len, body.len, &err), 0);
    assert_int_equal(t.pieces, 1); /* each piece becomes a write(2) */
    buf_done(&t.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bodies_parse_the_same_at_every_split),
        cmocka_unit_test(broken_bodies_are_refused_at_every_split),
        cmocka_unit_test(content_types_need_a_usable_boundary),
        cmocka_unit_test(quoted_boundaries_with_odd_characters_work),
        cmocka_unit_test(a_callback_ends_the_parse_with_its_own_error),
        cmocka_unit_test(limits_hold),
        cmocka_unit_test(lines_do_not_cut_the_data_into_pieces),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
