#include "common/json/jsonx.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#define REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */

static int check_depth(const char *text, size_t len, struct error *err)
{
    size_t depth = 0;
    bool in_string = false;

    for (size_t i = 0; i < len; i++) {
        char c = text[i];
        if (in_string) {
            if (c == '\\')
                i++;
            else if (c == '"')
                in_string = false;
        } else if (c == '"') {
            in_string = true;
        } else if (c == '[' || c == '{') {
            if (++depth > JSONX_MAX_DEPTH)
                return error_set(err, ERR_INVALID, "bad JSON: nested deeper than %d levels", JSONX_MAX_DEPTH);
        } else if ((c == ']' || c == '}') && depth > 0) {
            depth--;
        }
    }
    return 0;
}

static int hex4(const char *p, const char *end)
{
    int v = 0;

    if (end - p < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        char c = p[i];
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0)
            return -1;
        v = v * 16 + digit;
    }
    return v;
}

static bool is_high(int u) { return u >= 0xd800 && u <= 0xdbff; }
static bool is_low(int u) { return u >= 0xdc00 && u <= 0xdfff; }

/*
 * Rewrites each "\uD8xx" escape that has no partner as "\uFFFD", in place (same length). JavaScript and
 * Python clients send such text; jansson refuses the whole document for it.
 */
static void replace_lone_surrogates(char *text, size_t len)
{
    char *end = text + len;

    for (char *p = text; p < end; p++) {
        if (*p != '\\')
            continue;
        if (++p == end)
            return;
        if (*p != 'u')
            continue;
        int unit = hex4(p + 1, end);
        if (is_high(unit) && end - p >= 11 && p[5] == '\\' && p[6] == 'u' && is_low(hex4(p + 7, end))) {
            p += 10;
            continue;
        }
        if (is_high(unit) || is_low(unit))
            memcpy(p + 1, "FFFD", 4); // NOLINT(bugprone-not-null-terminated-result): in the middle of a text
    }
}

static bool has_surrogate_escape(const char *text, size_t len)
{
    const char *p = text, *end = text + len;

    while ((p = memmem(p, (size_t)(end - p), "\\u", 2)) != NULL) {
        if (end - p > 3 && (p[2] == 'd' || p[2] == 'D'))
            return true;
        p += 2;
    }
    return false;
}

static int load(const char *text, size_t len, json_t **ret, struct error *err)
{
    json_error_t je;
    json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &je);

    if (!root)
        return error_set(err, ERR_INVALID, "bad JSON at line %d column %d: %.160s", je.line, je.column,
                         je.text);
    *ret = root;
    return 0;
}

int jsonx_parse(const char *text, size_t len, json_t **ret, struct error *err)
{
    if (!text)
        return error_set(err, ERR_INVALID, "bad JSON: empty");
    if (check_depth(text, len, err) < 0)
        return -1;
    if (!has_surrogate_escape(text, len))
        return load(text, len, ret, err);
    auto_buf struct buf copy = { .max = len + 1 };
    if (buf_add(&copy, text, len, err) < 0)
        return -1;
    replace_lone_surrogates(copy.data, copy.len);
    return load(copy.data, copy.len, ret, err);
}

int jsonx_parse_repaired(const char *text, size_t len, json_t **ret, struct error *err)
{
    auto_buf struct buf fixed = { .max = 3 * len + 1 };

    if (jsonx_repair_utf8(text, len, &fixed, err) < 0)
        return -1;
    return jsonx_parse(fixed.data, fixed.len, ret, err);
}

static int check_length(const struct json_field *f, size_t len, const char *unit, struct error *err)
{
    if ((int64_t)len < f->min && len == 0)
        return error_set(err, ERR_INVALID, "%s: must not be empty", f->key);
    if ((int64_t)len < f->min || (int64_t)len > f->max)
        return error_set(err, ERR_INVALID, "%s: must be %" PRId64 " to %" PRId64 " %s", f->key, f->min,
                         f->max, unit);
    return 0;
}

static int fill_string(json_t *v, const struct json_field *f, void *dst, struct error *err)
{
    if (!json_is_string(v))
        return error_set(err, ERR_INVALID, "%s: expected a string", f->key);
    const char *s = json_string_value(v);
    size_t len = json_string_length(v);
    if (check_length(f, len, "bytes", err) < 0)
        return -1;
    if (f->kind == JSONX_TEXT) {
        *(struct jsonx_span *)dst = (struct jsonx_span){ s, len };
        return 0;
    }
    if (strlen(s) != len)
        return error_set(err, ERR_INVALID, "%s: must not contain a NUL character", f->key);
    *(const char **)dst = s;
    return 0;
}

static int fill_int(json_t *v, const struct json_field *f, int64_t *dst, struct error *err)
{
    const double exact =
        9007199254740992.0; /* 2^53: beyond, the conversion below would be undefined or a guess */
    double real = json_real_value(v);
    int64_t n;

    if (json_is_integer(v))
        n = json_integer_value(v);
    else if (json_is_real(v) && real >= -exact && real <= exact && real == (double)(int64_t)real)
        n = (int64_t)real; /* a client written in JavaScript may send 5000.0 */
    else
        return error_set(err, ERR_INVALID, "%s: expected an integer", f->key);
    if (n < f->min || n > f->max)
        return error_set(err, ERR_INVALID, "%s: must be %" PRId64 "..%" PRId64, f->key, f->min, f->max);
    *dst = n;
    return 0;
}

static int fill_one(json_t *v, const struct json_field *f, void *out, struct error *err)
{
    void *dst = (char *)out + f->offset;

    switch (f->kind) {
    case JSONX_STRING:
    case JSONX_TEXT:
        return fill_string(v, f, dst, err);
    case JSONX_INT:
        return fill_int(v, f, dst, err);
    case JSONX_BOOL:
        if (!json_is_boolean(v))
            return error_set(err, ERR_INVALID, "%s: expected true or false", f->key);
        *(bool *)dst = json_is_true(v);
        return 0;
    case JSONX_ARRAY:
        if (!json_is_array(v))
            return error_set(err, ERR_INVALID, "%s: expected an array", f->key);
        if (check_length(f, json_array_size(v), "elements", err) < 0)
            return -1;
        *(json_t **)dst = v;
        return 0;
    case JSONX_OBJECT:
        if (!json_is_object(v))
            return error_set(err, ERR_INVALID, "%s: expected an object", f->key);
        *(json_t **)dst = v;
        return 0;
    case JSONX_ANY:
        *(json_t **)dst = v;
        return 0;
    }
    return error_set(err, ERR_INTERNAL, "%s: unknown field kind", f->key);
}

int jsonx_fill(json_t *obj, const struct json_field *fields, size_t n, void *out, struct error *err)
{
    if (!json_is_object(obj))
        return error_set(err, ERR_INVALID, "expected a JSON object");
    for (size_t i = 0; i < n; i++) {
        json_t *v = json_object_get(obj, fields[i].key);
        if ((!v || json_is_null(v)) && fields[i].required)
            return error_set(err, ERR_INVALID, "%s: missing", fields[i].key);
        if (v && !json_is_null(v) && fill_one(v, &fields[i], out, err) < 0)
            return -1;
    }
    return 0;
}

int jsonx_unpack(json_t *obj, struct error *err, const char *fmt, ...)
{
    json_error_t je;
    va_list ap;

    va_start(ap, fmt);
    int r = json_vunpack_ex(obj, &je, 0, fmt, ap);
    va_end(ap);
    return r == 0 ? 0 : error_set(err, ERR_UPSTREAM, "unexpected JSON: %.160s", je.text);
}

/* What the second byte of a sequence may be at least and at most (Unicode 15, table 3-7). */
static bool second_fits(unsigned char first, unsigned char second)
{
    switch (first) {
    case 0xe0:
        return second >= 0xa0; /* shorter forms exist below */
    case 0xed:
        return second <= 0x9f; /* surrogates */
    case 0xf0:
        return second >= 0x90;
    case 0xf4:
        return second <= 0x8f; /* beyond U+10FFFF */
    default:
        return true;
    }
}

/* Length of the UTF-8 sequence at p (n bytes left), or 0 when it is not one. */
static size_t utf8_len(const unsigned char *p, size_t n)
{
    size_t len = p[0] < 0x80 ? 1 : p[0] < 0xc2 ? 0 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : p[0] < 0xf5 ? 4 : 0;

    if (len == 0 || len > n)
        return 0;
    for (size_t i = 1; i < len; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    return len == 1 || second_fits(p[0], p[1]) ? len : 0;
}

int jsonx_repair_utf8(const char *bytes, size_t len, struct buf *out, struct error *err)
{
    size_t clean = 0; /* bytes before i that are fine and not yet copied start here */

    for (size_t i = 0; i < len;) {
        size_t n = utf8_len((const unsigned char *)bytes + i, len - i);
        if (n > 0) {
            i += n;
            continue;
        }
        if (buf_add(out, bytes + clean, i - clean, err) < 0 || buf_add(out, REPLACEMENT, 3, err) < 0)
            return -1;
        clean = ++i;
    }
    return buf_add(out, bytes + clean, len - clean, err);
}

json_t *jsonx_text(const char *bytes, size_t len)
{
    struct error ignored;
    auto_buf struct buf fixed = { .max = 3 * len + 1 };
    json_t *s = len > 0 ? json_stringn(bytes, len) : json_string(""); /* NULL when not UTF-8 */

    if (s)
        return s;
    if (jsonx_repair_utf8(bytes, len, &fixed, &ignored) == 0)
        s = json_stringn(fixed.data, fixed.len);
    return s ? s : json_string("");
}

json_t *jsonx_str(const char *s) { return s ? jsonx_text(s, strlen(s)) : json_null(); }

char *jsonx_dump(const json_t *doc, size_t *ret_len)
{
    char *text = json_dumps(doc, JSON_COMPACT | JSON_ENCODE_ANY);

    if (!text)
        abort(); /* every string in a document passed jsonx_text() or a parser: only memory can be short */
    if (ret_len)
        *ret_len = strlen(text);
    return text;
}

char *jsonx_dump_line(const json_t *doc, size_t *ret_len)
{
    size_t len = 0;
    char *text = jsonx_dump(doc, &len);

    text = xrealloc_array(text, len + 2, 1);
    text[len++] = '\n';
    text[len] = '\0';
    *ret_len = len;
    return text;
}
