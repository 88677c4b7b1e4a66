#include "runner/request.h"

#include <string.h>

#define DAY_MS ((int64_t)24 * 3600 * 1000)
#define MIB ((int64_t)1024 * 1024)
#define ARGS_MAX 4096
#define TEXT_MAX (64 * MIB)

struct run_fields {
    struct run_request q;
    const char *lang;
};

static const struct json_field fields[] = {
    FIELD_STRING(struct run_fields, q.id, "id", true, 1, 128),
    FIELD_STRING(struct run_fields, lang, "lang", true, 1, 32),
    FIELD_TEXT(struct run_fields, q.code, "code", true, 0, TEXT_MAX),
    FIELD_ARRAY(struct run_fields, q.args, "args", false, 0, ARGS_MAX),
    FIELD_TEXT(struct run_fields, q.input, "stdin", false, 0, TEXT_MAX),
    FIELD_INT(struct run_fields, q.timeout_ms, "timeout_ms", false, 1, 30 * DAY_MS),
    FIELD_INT(struct run_fields, q.compile_timeout_ms, "compile_timeout_ms", false, 1, DAY_MS),
    FIELD_INT(struct run_fields, q.output_max, "output_max", false, 1024, 64 * MIB),
    FIELD_INT(struct run_fields, q.memory_max, "memory_max", false, 0, INT64_MAX),
    FIELD_INT(struct run_fields, q.cpu_max_s, "cpu_max_s", false, 0, INT32_MAX),
    FIELD_INT(struct run_fields, q.file_max, "file_max", false, 0, INT64_MAX),
    FIELD_BOOL(struct run_fields, q.bash_strict, "bash_strict", false),
    FIELD_BOOL(struct run_fields, q.detached, "detached", false),
};

static int check_args(json_t *args, struct error *err)
{
    size_t i;
    json_t *arg;

    json_array_foreach(
        args, i, arg) if (!json_is_string(arg) ||
                          strlen(json_string_value(arg)) !=
                              json_string_length(
                                  arg)) return error_set(err, ERR_INVALID,
                                                         "args: expected strings without NUL characters");
    return 0;
}

int run_request_parse(const char *text, size_t len, struct run_request *ret, struct error *err)
{
    json_auto_t *doc = NULL;
    struct run_fields f = {
        .q = { .timeout_ms = 300000, .compile_timeout_ms = 60000, .output_max = MIB },
    };

    if (jsonx_parse(text, len, &doc, err) < 0 || jsonx_fill(doc, fields, ARRAY_LEN(fields), &f, err) < 0 ||
        check_args(f.q.args, err) < 0)
        return -1;
    f.q.language = language_find(f.lang);
    if (!f.q.language)
        return error_set(err, ERR_INVALID, "lang: unknown language");
    f.q.doc = steal_ptr(&doc);
    *ret = f.q;
    return 0;
}

void run_request_done(struct run_request *q)
{
    json_decref(q->doc);
    *q = (struct run_request){ .language = q->language };
}
