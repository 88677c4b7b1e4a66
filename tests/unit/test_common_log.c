#include "common/log.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>
#include <jansson.h>

static char line[4096];
static int saved = -1, capture = -1;

/* Standard error goes to memory from here to captured(). */
static void begin_capture(void)
{
    capture = memfd_create("log", MFD_CLOEXEC);
    saved = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
    assert_int_equal(dup2(capture, STDERR_FILENO), STDERR_FILENO);
}

static const char *captured(void)
{
    ssize_t n = pread(capture, line, sizeof line - 1, 0);

    (void)dup2(saved, STDERR_FILENO);
    (void)close(saved);
    (void)close(capture);
    line[n > 0 ? n : 0] = '\0';
    return line;
}

static void records_name_time_level_and_place(void **state)
{
    (void)state;
    log_setup(LOG_LEVEL_INFO, LOG_FORMAT_TEXT);
    begin_capture();
    log_warn("disk %d%%", 97);
    const char *text = captured();
    assert_int_equal(text[10], 'T');
    assert_non_null(strstr(text, "Z warn  test_common_log disk 97%\n"));
}

static void levels_filter(void **state)
{
    (void)state;
    log_setup(LOG_LEVEL_WARN, LOG_FORMAT_TEXT);
    begin_capture();
    log_info("not shown");
    log_debug("not shown");
    assert_string_equal(captured(), "");
    log_setup(LOG_LEVEL_DEBUG, LOG_FORMAT_TEXT);
    begin_capture();
    log_error("one");
    log_debug("two");
    const char *text = captured();
    assert_non_null(strstr(text, " error "));
    assert_non_null(strstr(text, " debug "));
}

static void context_is_appended_until_changed(void **state)
{
    (void)state;
    log_setup(LOG_LEVEL_INFO, LOG_FORMAT_TEXT);
    log_context("r1", "s1");
    begin_capture();
    log_info("a");
    assert_non_null(strstr(captured(), " a request=r1 session=s1\n"));
    log_context("r2", NULL);
    begin_capture();
    log_info("b");
    assert_non_null(strstr(captured(), " b request=r2\n"));
    log_context(NULL, NULL);
    begin_capture();
    log_info("c");
    assert_non_null(strstr(captured(), " c\n"));
}

static void foreign_text_cannot_forge_a_record(void **state)
{
    (void)state;
    log_setup(LOG_LEVEL_INFO, LOG_FORMAT_TEXT);
    begin_capture();
    log_info("%s", "a\nb\x1b[31m\x7f\r");
    const char *text = captured();
    assert_non_null(strstr(text, "a\\x0ab\\x1b[31m\\x7f\\x0d\n"));
    assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
}

static void json_records_parse(void **state)
{
    static const char *const messages[] = { "plain", "q\"uote \\ back\nslash\x01", "\xc3\xa4" };

    (void)state;
    log_setup(LOG_LEVEL_INFO, LOG_FORMAT_JSON);
    log_context("r", "s");
    for (size_t i = 0; i < ARRAY_LEN(messages); i++) {
        begin_capture();
        log_info("%s", messages[i]);
        json_t *doc = json_loads(captured(), JSON_REJECT_DUPLICATES, NULL);
        assert_non_null(doc);
        assert_string_equal(json_string_value(json_object_get(doc, "message")), messages[i]);
        assert_string_equal(json_string_value(json_object_get(doc, "level")), "info");
        assert_string_equal(json_string_value(json_object_get(doc, "request")), "r");
        assert_string_equal(json_string_value(json_object_get(doc, "session")), "s");
        json_decref(doc);
    }
    log_context(NULL, NULL);
}

static void long_messages_stay_one_line(void **state)
{
    static const enum log_format formats[] = { LOG_FORMAT_TEXT, LOG_FORMAT_JSON };
    char text[5000];

    (void)state;
    memset(text, '\n', sizeof text - 1); /* the longest escape for every byte */
    text[sizeof text - 1] = '\0';
    for (size_t i = 0; i < ARRAY_LEN(formats); i++) {
        log_setup(LOG_LEVEL_INFO, formats[i]);
        begin_capture();
        log_info("%s", text);
        const char *out = captured();
        assert_ptr_equal(strchr(out, '\n'), out + strlen(out) - 1);
    }
}

static void level_names_parse(void **state)
{
    enum log_level level = LOG_LEVEL_ERROR;

    (void)state;
    assert_true(log_level_parse("debug", &level));
    assert_int_equal(level, LOG_LEVEL_DEBUG);
    assert_false(log_level_parse("loud", &level));
    assert_false(log_level_parse("", &level));
    assert_int_equal(level, LOG_LEVEL_DEBUG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(records_name_time_level_and_place),
        cmocka_unit_test(levels_filter),
        cmocka_unit_test(context_is_appended_until_changed),
        cmocka_unit_test(foreign_text_cannot_forge_a_record),
        cmocka_unit_test(json_records_parse),
        cmocka_unit_test(long_messages_stay_one_line),
        cmocka_unit_test(level_names_parse),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
