#include <string.h>
#include <strings.h>

#include "orchestrator/http/http.h"
#include "orchestrator/http/percent.h"

int http_fields_add(struct http_fields *f, const char *name, const char *value, struct error *err)
{
    if (f->count == HTTP_MAX_FIELDS)
        return error_set(err, ERR_INVALID, "more than %d header fields or query parameters", HTTP_MAX_FIELDS);
    if ((f->count & (f->count - 1)) == 0) /* full at every power of two */
        f->items = xrealloc_array(f->items, f->count ? 2 * f->count : 1, sizeof *f->items);
    f->items[f->count++] = (struct http_field){ xstrdup(name), xstrdup(value) };
    return 0;
}

void http_fields_done(struct http_fields *f)
{
    for (size_t i = 0; i < f->count; i++) {
        free(f->items[i].name);
        free(f->items[i].value);
    }
    free(f->items);
    *f = (struct http_fields){ 0 };
}

const char *http_header(const struct http_request *req, const char *name)
{
    for (size_t i = 0; i < req->headers.count; i++)
        if (strcasecmp(req->headers.items[i].name, name) == 0)
            return req->headers.items[i].value;
    return NULL;
}

const char *http_query(const struct http_request *req, const char *name)
{
    for (size_t i = 0; i < req->query.count; i++)
        if (strcmp(req->query.items[i].name, name) == 0)
            return req->query.items[i].value;
    return NULL;
}

/* A part that would decode to a NUL stays as it came: it could not be told from a shorter one. */
static char *decode_query_part(const char *text, size_t len)
{
    char *out = xstrndup(text, len);

    for (char *p = out; *p; p++)
        if (*p == '+')
            *p = ' ';
    size_t n = percent_decode(out, out, len);
    if (memchr(out, '\0', n)) {
        free(out);
        return xstrndup(text, len);
    }
    out[n] = '\0';
    return out;
}

int http_query_parse(const char *query, struct http_fields *ret, struct error *err)
{
    for (const char *p = query; *p;) {
        size_t len = strcspn(p, "&");
        size_t name_len = MIN(strcspn(p, "="), len);
        size_t value_at = MIN(name_len + 1, len);
        auto_free char *name = decode_query_part(p, name_len);
        auto_free char *value = decode_query_part(p + value_at, len - value_at);

        if (len > 0 && http_fields_add(ret, name, value, err) < 0)
            return -1;
        p += len;
        if (*p == '&')
            p++;
    }
    return 0;
}
