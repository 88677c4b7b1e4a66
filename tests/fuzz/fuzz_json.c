/* fuzz: common - jsonx: any bytes parse or are refused, and what parses prints to JSON that parses alike. */
#include <assert.h>
#include <string.h>

#include "common/json/jsonx.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct filled {
    const char *code, *lang;
    struct jsonx_span text;
    int64_t timeout;
    bool flag;
    json_t *files, *object, *any;
};

static const struct json_field fields[] = {
    FIELD_STRING(struct filled, code, "code", true, 0, 100),
    FIELD_STRING(struct filled, lang, "lang", false, 1, 10),
    FIELD_TEXT(struct filled, text, "text", false, 0, 100),
    FIELD_INT(struct filled, timeout, "timeout", false, 1, 600000),
    FIELD_BOOL(struct filled, flag, "flag", false),
    FIELD_ARRAY(struct filled, files, "files", false, 0, 3),
    FIELD_OBJECT(struct filled, object, "object", false),
    FIELD_ANY(struct filled, any, "any", false),
};

static void check(json_t *doc)
{
    size_t len = 0;
    auto_free char *text = jsonx_dump(doc, &len);
    struct filled f = { 0 };
    struct error err = { 0 };
    json_t *again = NULL;

    if (jsonx_parse(text, len, &again, &err) < 0)
        abort();
    assert(json_equal(doc, again));
    json_decref(again);
    if (jsonx_fill(doc, fields, ARRAY_LEN(fields), &f, &err) < 0) {
        assert(err.kind == ERR_INVALID && err.msg[0] != '\0');
    } else {
        assert(strlen(f.code) <= 100);
        assert(f.timeout >= 0 && f.timeout <= 600000);
        assert(json_array_size(f.files) <= 3);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    json_t *doc = NULL, *repaired = NULL;
    struct error err;

    bool parses = jsonx_parse(text, size, &doc, &err) == 0;
    if (parses)
        check(doc);
    if (jsonx_parse_repaired(text, size, &repaired, &err) == 0)
        check(repaired);
    assert(!parses || (repaired && json_equal(doc, repaired)));
    json_decref(doc);
    json_decref(repaired);

    json_t *string = jsonx_text(text, size);
    assert(json_string_length(string) >= size); /* nothing is dropped in silence */
    json_decref(string);
    return 0;
}
