#include "orchestrator/http/content.h"

#include <inttypes.h>
#include <string.h>
#include <strings.h>

#include "orchestrator/http/number.h"
#include "orchestrator/http/percent.h"

enum range_result { RANGE_WHOLE, RANGE_PART, RANGE_UNSATISFIABLE };

struct range {
    uint64_t offset, len;
};

/* One underscore for every character that the quoted ASCII form cannot carry. */
static void make_ascii(char *name)
{
    char *to = name;

    for (const char *p = name; *p; p++) {
        unsigned char c = (unsigned char)*p;
        bool carried = c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
        if (carried)
            *to++ = *p;
        else if (c < 0x80 || c >= 0xc0) /* the bytes between go with the one that began their character */
            *to++ = '_';
    }
    *to = '\0';
}

char *content_disposition(const char *name)
{
    const char *slash = strrchr(name, '/');
    const char *last = slash ? slash + 1 : name;
    const char *base = *last ? last : "download";
    auto_buf struct buf clean = { .max = 3 * strlen(base) + 1 };
    struct error ignored;

    if (jsonx_repair_utf8(base, strlen(base), &clean, &ignored) < 0)
        return xstrdup("attachment");
    auto_free char *encoded = percent_encode(clean.data);
    make_ascii(clean.data);
    return xasprintf("attachment; filename=\"%s\"; filename*=UTF-8''%s", clean.data, encoded);
}

/* Finds a quoted tag in a list of them ("*" is any); a weak one counts as its strong form (RFC 9110 13.1.2).
 */
static bool etag_listed(const char *list, const char *quoted)
{
    size_t len = strlen(quoted);

    for (const char *p = list; *(p += strspn(p, ", \t"));) {
        if (*p == '*')
            return true;
        if (strncmp(p, "W/", 2) == 0)
            p += 2;
        if (strncmp(p, quoted, len) == 0)
            return true;
        p += *p == '"' ? 1 + strcspn(p + 1, "\"") : strcspn(p, ",");
        if (*p == '"')
            p++;
    }
    return false;
}

/* Digits, saturated: a bound beyond 2^64 is beyond every file. */
static bool parse_bound(const char *text, size_t len, uint64_t *ret)
{
    if (len == 0 || strspn(text, "0123456789") < len)
        return false;
    if (!number_parse(text, len, ret))
        *ret = UINT64_MAX;
    return true;
}

static enum range_result parse_range(const char *value, uint64_t size, struct range *ret)
{
    uint64_t first = 0, last = UINT64_MAX;

    if (strncasecmp(value, "bytes=", 6) != 0 || strchr(value, ','))
        return RANGE_WHOLE; /* other units, and several ranges, are not served: the whole file is a fine
                               answer */
    const char *spec = value + 6 + strspn(value + 6, " \t");
    size_t first_len = strcspn(spec, "-");
    if (spec[first_len] != '-')
        return RANGE_UNSATISFIABLE;
    const char *second = spec + first_len + 1;
    size_t second_len = strcspn(second, " \t");
    if (first_len == 0) {
        if (!parse_bound(second, second_len, &last) || last == 0 || size == 0)
            return RANGE_UNSATISFIABLE;
        uint64_t len = MIN(last, size);
        *ret = (struct range){ size - len, len };
        return RANGE_PART;
    }
    if (!parse_bound(spec, first_len, &first) ||
        (second_len > 0 && !parse_bound(second, second_len, &last)) || first > last || first >= size)
        return RANGE_UNSATISFIABLE;
    *ret = (struct range){ first, MIN(last, size - 1) - first + 1 };
    return RANGE_PART;
}

/* A Range counts for GET only, and with If-Range only for the very file the client has a part of. */
static enum range_result wanted_range(const struct http_request *req, uint64_t size, const char *quoted,
                                      struct range *ret)
{
    const char *value = http_header(req, "Range");
    const char *if_range = http_header(req, "If-Range");

    if (!value || strcmp(req->method, "GET") != 0 || (if_range && !str_eq(if_range, quoted)))
        return RANGE_WHOLE;
    return parse_range(value, size, ret);
}

static void answer_unsatisfiable(struct http_response *res, uint64_t size)
{
    static const char why[] = "Range: not within the file";

    http_response_json(
        res, 416,
        json_pack("{s:s, s:s, s:s}", "error", "range_not_satisfiable", "message", why, "detail", why));
    http_response_header(res, "Content-Range", "bytes */%" PRIu64, size);
}

void content_file_response(const struct http_request *req, struct http_response *res, int fd, uint64_t size,
                           const char *name, const char *content_type, const char *etag)
{
    auto_close int file = fd;
    auto_free char *quoted = etag ? xasprintf("\"%s\"", etag) : NULL;
    auto_free char *disposition = content_disposition(name);
    const char *if_none_match = http_header(req, "If-None-Match");
    struct range r = { 0, size };

    http_response_header(res, "Accept-Ranges", "bytes");
    if (quoted)
        http_response_header(res, "ETag", "%s", quoted);
    if (quoted && if_none_match && etag_listed(if_none_match, quoted)) {
        res->status = 304;
        return;
    }
    enum range_result range = wanted_range(req, size, quoted, &r);
    if (range == RANGE_UNSATISFIABLE) {
        answer_unsatisfiable(res, size);
        return;
    }
    res->status = range == RANGE_PART ? 206 : 200;
    if (range == RANGE_PART)
        http_response_header(res, "Content-Range", "bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64, r.offset,
                             r.offset + r.len - 1, size);
    http_response_header(res, "Content-Disposition", "%s", disposition);
    http_response_header(res, "X-Content-Type-Options", "nosniff"); /* the bytes are somebody's program's */
    res->content_type = xstrdup(content_type);
    res->file_fd = steal_fd(&file);
    res->file_offset = r.offset;
    res->file_len = r.len;
}

int sse_add_event(struct buf *out, const json_t *doc, struct error *err)
{
    size_t len = 0;
    auto_free char *text = jsonx_dump(doc, &len);
    char *room = NULL;

    if (buf_reserve(out, len + 8, &room, err) < 0) /* a whole event or none */
        return -1;
    if (buf_add(out, "data: ", 6, err) < 0 || buf_add(out, text, len, err) < 0)
        return -1;
    return buf_add(out, "\n\n", 2, err);
}
