#include "runner/jupyter.h"

#include <string.h>

static const char delimiter[] = "<IDS|MSG>";

static const struct {
    const char *name;
    enum jupyter_type type;
} types[] = {
    { "status", JUPYTER_STATUS },
    { "stream", JUPYTER_STREAM },
    { "execute_result", JUPYTER_EXECUTE_RESULT },
    { "display_data", JUPYTER_DISPLAY_DATA },
    { "error", JUPYTER_ERROR },
    { "execute_reply", JUPYTER_EXECUTE_REPLY },
    { "kernel_info_reply", JUPYTER_KERNEL_INFO_REPLY },
};

/* A string member, or NULL. */
static const char *text_of(json_t *obj, const char *key)
{
    const char *s = NULL;
    struct error ignored;
    struct {
        const char *s;
    } out = { NULL };
    const struct json_field field = { key, JSONX_STRING, 0, false, 0, INT64_MAX };

    if (jsonx_fill(obj, &field, 1, &out, &ignored) == 0)
        s = out.s;
    return s;
}

static int parse_part(const struct jupyter_part *part, size_t max, json_t **ret, struct error *err)
{
    if (part->len > max)
        return error_set(err, ERR_LIMIT, "a message part of %zu bytes", part->len);
    /* Repairing copies: first as it is, which an honest message nearly always allows. */
    if (jsonx_parse(part->data, part->len, ret, err) == 0)
        return 0;
    return jsonx_parse_repaired(part->data, part->len, ret, err);
}

static enum jupyter_type find_type(const char *name)
{
    for (size_t i = 0; name && i < ARRAY_LEN(types); i++)
        if (strcmp(types[i].name, name) == 0)
            return types[i].type;
    return JUPYTER_OTHER;
}

void jupyter_read_head(const struct jupyter_part *parts, size_t count, struct jupyter_head *ret)
{
    json_auto_t *header = NULL, *parent = NULL;
    struct error ignored;
    size_t at = 0;

    *ret = (struct jupyter_head){ .type = JUPYTER_OTHER };
    while (at < count && !(parts[at].len == sizeof delimiter - 1 &&
                           memcmp(parts[at].data, delimiter, sizeof delimiter - 1) == 0))
        at++;
    if (count - at < 6) /* the delimiter, signature, header, parent, metadata, content */
        return;
    if (parse_part(&parts[at + 2], JUPYTER_HEAD_MAX, &header, &ignored) < 0 ||
        parse_part(&parts[at + 3], JUPYTER_HEAD_MAX, &parent, &ignored) < 0)
        return;
    const char *id = text_of(parent, "msg_id");
    if (id && strlen(id) < sizeof ret->parent)
        (void)stpcpy(ret->parent, id);
    ret->type = find_type(text_of(header, "msg_type"));
    ret->content = parts[at + 5];
}

int jupyter_read_content(const struct jupyter_head *h, json_t **ret, struct error *err)
{
    return parse_part(&h->content, JUPYTER_CONTENT_MAX, ret, err);
}

bool jupyter_read_stream(json_t *content, struct jupyter_stream *ret)
{
    struct {
        const char *name;
        struct jsonx_span text;
    } out = { 0 };
    static const struct json_field fields[] = {
        { "name", JSONX_STRING, 0, true, 0, 64 },
        { "text", JSONX_TEXT, offsetof(__typeof__(out), text), true, 0, INT64_MAX },
    };
    struct error ignored;

    if (jsonx_fill(content, fields, ARRAY_LEN(fields), &out, &ignored) < 0)
        return false;
    ret->is_stderr = strcmp(out.name, "stderr") == 0;
    ret->text = out.text;
    return true;
}

int jupyter_read_stream_begin(const struct jupyter_head *h, size_t max, json_t **ret, struct error *err)
{
    auto_buf struct buf begin = { .max = max + 16 };
    size_t len = MIN(max, h->content.len);

    /* The text comes last, as ipykernel writes it. Cut before any escape that the end may lie in. */
    for (size_t back = 1; back <= 12 && back <= len; back++)
        if (h->content.data[len - back] == '\\') {
            len -= back;
            back = 0;
        }
    if (buf_add(&begin, h->content.data, len, err) < 0 || buf_add(&begin, "\"}", 2, err) < 0)
        return -1;
    return jsonx_parse_repaired(begin.data, begin.len, ret, err);
}

bool jupyter_is_idle(json_t *status_content)
{
    return str_eq(text_of(status_content, "execution_state"), "idle");
}

static bool asks_exit(json_t *content)
{
    json_t *payload = NULL, *item;
    struct error ignored;
    size_t i;

    if (jsonx_unpack(content, &ignored, "{s:o}", "payload", &payload) < 0)
        return false;
    json_array_foreach(payload, i,
                       item) if (i < 64 && str_eq(text_of(item, "source"), "ask_exit")) return true;
    return false;
}

void jupyter_read_reply(json_t *content, struct jupyter_reply *ret)
{
    const char *status = text_of(content, "status");
    const char *ename = text_of(content, "ename"), *evalue = text_of(content, "evalue");

    *ret = (struct jupyter_reply){ .status = JUPYTER_FAILED,
                                   .ename = ename ? ename : "",
                                   .evalue = evalue ? evalue : "" };
    if (str_eq(status, "ok"))
        ret->status = JUPYTER_OK;
    else if (str_eq(status, "aborted") || str_eq(status, "abort"))
        ret->status = JUPYTER_ABORTED;
    ret->leaving = asks_exit(content);
}

int jupyter_exit_code(const char *evalue, const char **ret_text)
{
    bool negative = evalue[0] == '-';
    unsigned code = 0;
    const char *p = evalue + negative;

    *ret_text = NULL;
    if (!evalue[0] || strcmp(evalue, "None") == 0 || strcmp(evalue, "False") == 0)
        return 0;
    if (strcmp(evalue, "True") == 0)
        return 1;
    for (; *p >= '0' && *p <= '9'; p++)
        code = code * 10 + (unsigned)(*p - '0'); /* modulo 256, as the system has it */
    if (*p || p == evalue + negative) {
        *ret_text = evalue;
        return 1;
    }
    return (int)((negative ? 0 - code : code) & 255);
}

static json_t *clean_line(json_t *line)
{
    struct error ignored;
    auto_buf struct buf out = { .max = json_string_length(line) + 1 };

    if (!json_is_string(line) ||
        jupyter_strip_escapes(json_string_value(line), json_string_length(line), &out, &ignored) < 0)
        return json_string("");
    return jsonx_text(out.data ? out.data : "", out.len);
}

void jupyter_read_error(json_t *content, struct jupyter_error *ret)
{
    const char *ename = text_of(content, "ename"), *evalue = text_of(content, "evalue");
    json_t *lines = NULL, *line;
    struct error ignored;
    size_t i;

    *ret = (struct jupyter_error){ ename ? ename : "", evalue ? evalue : "", json_array() };
    if (jsonx_unpack(content, &ignored, "{s:o}", "traceback", &lines) < 0)
        return;
    json_array_foreach(lines, i, line)(void) json_array_append_new(ret->traceback, clean_line(line));
}
