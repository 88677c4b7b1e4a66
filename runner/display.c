#include "runner/display.h"

#include <string.h>

#include "runner/display_file.h"

struct format {
    const char *mime;
    const char *extension;
    bool base64;
    bool image; /* plot_N; else display_N, and only when there is no text to print */
};

/* In order of preference: one display becomes one file. */
static const struct format formats[] = {
    { "image/png", "png", true, true },      { "image/jpeg", "jpg", true, true },
    { "image/gif", "gif", true, true },      { "image/webp", "webp", true, true },
    { "image/svg+xml", "svg", false, true }, { "application/pdf", "pdf", true, true },
    { "text/html", "html", false, false },
};

/* What is printed instead of an object's bare repr, in order of preference. */
static const char *const readable[] = { "text/markdown", "text/latex", "application/json" };

int display_decode_base64(const char *text, size_t len, struct buf *out, struct error *err)
{
    static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint32_t group = 0;
    unsigned have = 0;
    char *to = NULL;

    if (buf_reserve(out, len / 4 * 3 + 3, &to, err) < 0)
        return -1;
    char *w = to;
    for (size_t i = 0; i < len && text[i] != '='; i++) {
        if (strchr(" \t\r\n", text[i]) && text[i])
            continue;
        const char *at = text[i] ? strchr(alphabet, text[i]) : NULL;
        if (!at)
            return error_set(err, ERR_INVALID, "not base64");
        group = group << 6 | (uint32_t)(at - alphabet);
        if (++have == 4) {
            *w++ = (char)(group >> 16);
            *w++ = (char)(group >> 8);
            *w++ = (char)group;
            have = 0;
        }
    }
    if (have >= 2)
        *w++ = (char)(group >> (have == 2 ? 4 : 10));
    if (have == 3)
        *w++ = (char)(group >> 2);
    out->len += (size_t)(w - to);
    return 0;
}

bool display_is_object_repr(const char *text)
{
    size_t len = strlen(text);

    return len >= 2 && text[0] == '<' && text[len - 1] == '>' && !strchr(text, '\n');
}

/* Every value as text: notebooks may split it into lines, application/json is no text at all. */
static json_t *text_value(json_t *v)
{
    struct error ignored;
    auto_buf struct buf joined = { .max = DISPLAY_FILE_MAX };
    json_t *line;
    size_t i;

    if (json_is_string(v))
        return json_incref(v);
    if (!json_is_array(v) || !json_is_string(json_array_get(v, 0))) {
        auto_free char *dump = jsonx_dump(v, NULL);
        return jsonx_str(dump);
    }
    json_array_foreach(v, i, line) if (json_is_string(line))
        IGNORE(buf_add(&joined, json_string_value(line), json_string_length(line), &ignored));
    return jsonx_text(joined.data ? joined.data : "", joined.len);
}

static json_t *text_bundle(json_t *content)
{
    json_t *data = NULL, *v, *bundle = json_object();
    struct error ignored;
    const char *mime;

    if (jsonx_unpack(content, &ignored, "{s:o}", "data", &data) < 0)
        return bundle;
    json_object_foreach(data, mime, v)(void) json_object_set_new(bundle, mime, text_value(v));
    return bundle;
}

static json_t *find(json_t *bundle, const char *mime)
{
    json_t *v = NULL;
    struct error ignored;

    return jsonx_unpack(bundle, &ignored, "{s:o}", mime, &v) == 0 ? v : NULL;
}

static const char *find_text(json_t *bundle, const char *mime)
{
    return json_string_value(find(bundle, mime));
}

static const struct format *choose_format(json_t *bundle)
{
    const char *plain = find_text(bundle, "text/plain");

    for (size_t i = 0; i < ARRAY_LEN(formats); i++)
        if (find(bundle, formats[i].mime) && (formats[i].image || !plain || display_is_object_repr(plain)))
            return &formats[i];
    return NULL;
}

/* Gives the file's name, or NULL: what could not be written is told as data at least. */
static char *save(struct execution *x, struct display_names *names, json_t *bundle, const struct format *f)
{
    json_t *v = find(bundle, f->mime);
    const char *data = json_string_value(v);
    size_t len = json_string_length(v);
    auto_buf struct buf decoded = { .max = DISPLAY_FILE_MAX };
    struct error err = { 0 };
    char *name = NULL;

    if (f->base64) {
        if (display_decode_base64(data, len, &decoded, &err) < 0 || decoded.len == 0)
            return NULL;
        data = decoded.data ? decoded.data : "";
        len = decoded.len;
    }
    if (len > DISPLAY_FILE_MAX ||
        display_file_write(x->table->context->config->workspace, f->image ? "plot" : "display", f->extension,
                           f->image ? &names->plot : &names->display, data, len, &name, &err) < 0) {
        execution_writef(x, FRAME_STDERR, "a display could not be saved: %s\n",
                         len > DISPLAY_FILE_MAX ? "it is too large" : err.msg);
        return NULL;
    }
    return name;
}

static void print(struct execution *x, json_t *bundle, bool is_result, const char *file)
{
    json_t *v = find(bundle, "text/plain");

    if (!is_result && v && display_is_object_repr(json_string_value(v))) {
        json_t *better = NULL;
        for (size_t i = 0; i < ARRAY_LEN(readable) && !better; i++)
            better = find(bundle, readable[i]);
        v = better ? better : file ? NULL : v;
    }
    if (!v || (!is_result && file && choose_format(bundle)->image))
        return; /* the picture itself is what was meant */
    execution_write(x, FRAME_STDOUT, json_string_value(v), json_string_length(v));
    execution_write(x, FRAME_STDOUT, "\n", 1);
}

static size_t bundle_bytes(json_t *bundle)
{
    const char *mime;
    json_t *v;
    size_t n = 0;

    json_object_foreach(bundle, mime, v) n += strlen(mime) + json_string_length(v);
    return n;
}

static void tell(struct execution *x, enum frame_type type, json_t *bundle, const char *file)
{
    size_t bytes = bundle_bytes(bundle);

    if (bytes <= DISPLAY_BYTES_MAX - x->display_bytes &&
        execution_event(x, type, json_pack("{s:O, s:o}", "data", bundle, "file", jsonx_str(file))))
        x->display_bytes += bytes;
    else
        (void)execution_event(x, type, json_pack("{s:{}, s:o}", "data", "file", jsonx_str(file)));
}

void display_take(struct execution *x, struct display_names *names, enum frame_type type, json_t *content)
{
    json_auto_t *bundle = text_bundle(content);
    auto_free char *file = NULL;

    if (x->displays >= DISPLAYS_MAX) {
        x->skipped_displays++;
        if (type == FRAME_RESULT)
            print(x, bundle, true, NULL);
        return;
    }
    const struct format *f = choose_format(bundle);
    if (f)
        file = save(x, names, bundle, f);
    x->displays += f != NULL || type == FRAME_DISPLAY;
    print(x, bundle, type == FRAME_RESULT, file);
    tell(x, type, bundle, file);
}
