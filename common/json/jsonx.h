/* jsonx.h - the only place that turns jansson's results into struct error, and foreign bytes into JSON. */
#pragma once

#include <jansson.h>

#include "common/buf.h"

/* Nesting accepted: jansson's load, dump and decref recurse per level, and thread stacks are finite. */
#define JSONX_MAX_DEPTH 256

/*
 * Parses one document of a known length. Rejects duplicate keys and deep nesting (ERR_INVALID), keeps NUL in
 * strings, turns lone surrogates ("\ud800") into U+FFFD. The result is the caller's.
 */
int jsonx_parse(const char *text, size_t len, json_t **ret, struct error *err) MUST_CHECK;
/* The same for a frame or message of which the other side is not trusted: bytes that are not UTF-8 are
 * repaired. */
int jsonx_parse_repaired(const char *text, size_t len, json_t **ret, struct error *err) MUST_CHECK;

enum json_kind {
    JSONX_STRING, /* const char *, borrowed from the object; no NUL inside */
    JSONX_TEXT,   /* struct jsonx_span, borrowed; NUL allowed inside */
    JSONX_INT,    /* int64_t */
    JSONX_BOOL,   /* bool */
    JSONX_ARRAY,  /* json_t *, borrowed; min..max elements */
    JSONX_OBJECT, /* json_t *, borrowed */
    JSONX_ANY,    /* json_t *, borrowed */
};

struct jsonx_span {
    const char *data;
    size_t len;
};

struct json_field {
    const char *key;
    enum json_kind kind;
    size_t offset;
    bool required;
    int64_t min, max; /* INT: range of values; STRING, TEXT: of bytes; ARRAY: of elements */
};

/* Rows for the table; a kind that does not fit the member's C type does not compile. */
#define JSONX_ROW_(kind_, ctype, s, f, key_, req, lo, hi)                                                    \
    {                                                                                                        \
        key_, kind_, offsetof(s, f) + 0 * sizeof(_Generic(((s *)0)->f, ctype : 1)), req, lo, hi              \
    }
#define FIELD_STRING(s, f, key, req, lo, hi) JSONX_ROW_(JSONX_STRING, const char *, s, f, key, req, lo, hi)
#define FIELD_TEXT(s, f, key, req, lo, hi) JSONX_ROW_(JSONX_TEXT, struct jsonx_span, s, f, key, req, lo, hi)
#define FIELD_INT(s, f, key, req, lo, hi) JSONX_ROW_(JSONX_INT, int64_t, s, f, key, req, lo, hi)
#define FIELD_BOOL(s, f, key, req) JSONX_ROW_(JSONX_BOOL, bool, s, f, key, req, 0, 0)
#define FIELD_ARRAY(s, f, key, req, lo, hi) JSONX_ROW_(JSONX_ARRAY, json_t *, s, f, key, req, lo, hi)
#define FIELD_OBJECT(s, f, key, req) JSONX_ROW_(JSONX_OBJECT, json_t *, s, f, key, req, 0, 0)
#define FIELD_ANY(s, f, key, req) JSONX_ROW_(JSONX_ANY, json_t *, s, f, key, req, 0, 0)

/*
 * Fills a struct from an object by table. Unknown keys are ignored; null counts as absent; an absent member
 * keeps the value it had. Errors are ERR_INVALID and name the field.
 */
int jsonx_fill(json_t *obj, const struct json_field *fields, size_t n, void *out,
               struct error *err) MUST_CHECK;

/* json_unpack_ex() for replies whose shape is known (only the formats s I F o, and b into int); ERR_UPSTREAM.
 */
int jsonx_unpack(json_t *obj, struct error *err, const char *fmt, ...) MUST_CHECK;

/* A JSON string from any bytes: what is not UTF-8 becomes U+FFFD. Never NULL. */
json_t *jsonx_text(const char *bytes, size_t len);
json_t *jsonx_str(const char *s); /* the same for a C string; NULL gives null */

/* Copies text to out with what is not UTF-8 replaced by U+FFFD. */
int jsonx_repair_utf8(const char *bytes, size_t len, struct buf *out, struct error *err) MUST_CHECK;

/* Compact text of a document. Never NULL: aborts when memory is out. The caller frees. */
char *jsonx_dump(const json_t *doc, size_t *ret_len);
char *jsonx_dump_line(const json_t *doc,
                      size_t *ret_len); /* the same with a newline, as bodies of answers end */
