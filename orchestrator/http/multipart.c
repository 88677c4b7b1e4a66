#include "orchestrator/http/multipart.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "orchestrator/http/params.h"
#include "orchestrator/http/percent.h"

#define MAX_PARTS 1100 /* a thousand files and their fields */
#define MAX_HEAD ((size_t)8 * 1024)
#define MAX_BOUNDARY 70 /* RFC 2046 5.1.1 */

enum stage {
    STAGE_PREAMBLE,  /* up to the first delimiter */
    STAGE_DELIMITED, /* the rest of a delimiter's line: "--" or padding and the line's end */
    STAGE_HEAD,
    STAGE_BODY,
    STAGE_EPILOGUE, /* behind the closing delimiter */
};

struct multipart {
    struct multipart_events events;
    void *state;
    enum stage stage;
    char delimiter[4 + MAX_BOUNDARY + 1]; /* "\r\n--boundary" */
    size_t delimiter_len;
    /*
     * Bytes of the delimiter seen at the end of what came. They need not be kept: should it not be one after
     * all, they are known; and a new match can only begin at a CR, which the delimiter has at its start
     * alone.
     */
    size_t matched;
    struct buf line; /* the current head, or rest of a delimiter's line */
    size_t parts;
    struct multipart_part part;
    bool broken;
    struct error why;
};

static int check_boundary(const char *boundary, struct error *err)
{
    size_t len = strlen(boundary);

    for (size_t i = 0; i < len; i++)
        if ((unsigned char)boundary[i] < 0x20 || (unsigned char)boundary[i] > 0x7e)
            len = 0;
    if (len == 0 || boundary[len - 1] == ' ')
        return error_set(err, ERR_MEDIA_TYPE, "Content-Type: boundary must be 1 to 70 printable characters");
    return 0;
}

int multipart_new(const char *content_type, const struct multipart_events *events, void *state,
                  struct multipart **ret, struct error *err)
{
    static const char type[] = "multipart/form-data";
    char boundary[MAX_BOUNDARY + 1] = "";
    bool found = false;

    if (!content_type || strncasecmp(content_type, type, strlen(type)) != 0 ||
        !strchr("; \t", content_type[strlen(type)]))
        return error_set(err, ERR_MEDIA_TYPE, "Content-Type: expected %s", type);
    if (params_get(content_type, "boundary", boundary, sizeof boundary, &found, err) < 0) {
        err->kind = ERR_MEDIA_TYPE;
        return error_wrap(err, "Content-Type");
    }
    if (check_boundary(boundary, err) < 0)
        return -1;

    struct multipart *m = xcalloc(1, sizeof *m);
    m->events = *events;
    m->state = state;
    (void)stpcpy(stpcpy(m->delimiter, "\r\n--"), boundary);
    m->delimiter_len = strlen(m->delimiter);
    m->matched = 2; /* the first delimiter may open the body, without the line's end before it */
    buf_init(&m->line, MAX_HEAD);
    *ret = m;
    return 0;
}

void multipart_free(struct multipart *m)
{
    if (!m)
        return;
    buf_done(&m->line);
    free(m);
}

/* "UTF-8'en'a%20b" to out; another character set, or no such form, leaves out alone. */
static int decode_extended(const char *text, char *out, struct error *err)
{
    size_t charset = strcspn(text, "'");
    const char *lang_end = text[charset] ? strchr(text + charset + 1, '\'') : NULL;

    if (!lang_end || !((charset == 5 && strncasecmp(text, "UTF-8", 5) == 0) ||
                       (charset == 8 && strncasecmp(text, "US-ASCII", 8) == 0)))
        return 0;
    size_t n = percent_decode(out, lang_end + 1, strlen(lang_end + 1));
    if (memchr(out, '\0', n))
        return error_set(err, ERR_INVALID, "filename: must not contain a NUL character");
    out[n] = '\0';
    return 0;
}

static int parse_disposition(const char *value, struct multipart_part *p, struct error *err)
{
    char extended[MULTIPART_MAX_NAME];
    bool has_name = false, has_extended = false;

    if (params_get(value, "name", p->name, sizeof p->name, &has_name, err) < 0 ||
        params_get(value, "filename", p->filename, sizeof p->filename, &p->has_filename, err) < 0 ||
        params_get(value, "filename*", extended, sizeof extended, &has_extended, err) < 0)
        return -1;
    if (!has_extended)
        return 0;
    p->has_filename = true;
    return decode_extended(extended, p->filename, err);
}

/* Gives the value of a header when the line is of that name, else NULL. */
static const char *value_of(const char *line, const char *name)
{
    size_t len = strlen(name);

    if (strncasecmp(line, name, len) != 0)
        return NULL;
    line += len + strspn(line + len, " \t");
    return *line == ':' ? line + 1 + strspn(line + 1, " \t") : NULL;
}

static int parse_head(struct multipart *m, struct error *err)
{
    struct multipart_part *p = &m->part;

    *p = (struct multipart_part){ 0 };
    if (memchr(m->line.data, '\0', m->line.len))
        return error_set(err, ERR_INVALID, "a part's header contains a NUL character");
    for (char *line = m->line.data, *lf; (lf = strchr(line, '\n')); line = lf + 1) {
        *(lf > line && lf[-1] == '\r' ? lf - 1 : lf) = '\0';
        const char *disposition = value_of(line, "Content-Disposition");
        const char *type = value_of(line, "Content-Type");
        if (disposition && parse_disposition(disposition, p, err) < 0)
            return -1;
        if (type)
            (void)snprintf(p->content_type, sizeof p->content_type, "%s", type);
    }
    if (p->name[0] == '\0')
        return error_set(err, ERR_INVALID, "part %zu has no name", m->parts);
    return 0;
}

static int give_data(struct multipart *m, const char *data, size_t len, struct error *err)
{
    if (m->stage != STAGE_BODY || len == 0)
        return 0;
    return m->events.data(m->state, data, len, err);
}

/* Preamble and body: gives what comes before the next delimiter, in pieces as large as they came. */
static int scan(struct multipart *m, const char **at, const char *end, struct error *err)
{
    const char *p = *at, *from = p;
    size_t carried = m->matched; /* what of the match came with earlier pieces */

    while (p < end && m->matched < m->delimiter_len) {
        if (m->matched == 0 && !(p = memchr(p, '\r', (size_t)(end - p)))) {
            p = end;
            break;
        }
        while (p < end && m->matched < m->delimiter_len && *p == m->delimiter[m->matched]) {
            p++;
            m->matched++;
        }
        if (p == end || m->matched == m->delimiter_len)
            break;
        if (give_data(m, m->delimiter, carried, err) < 0)
            return -1;
        m->matched = carried = 0;
    }
    *at = p;
    if (give_data(m, from, (size_t)(p - from) - (m->matched - carried), err) < 0)
        return -1;
    if (m->matched < m->delimiter_len)
        return 0;
    bool ends_part = m->stage == STAGE_BODY;
    m->matched = 0;
    m->stage = STAGE_DELIMITED;
    return ends_part ? m->events.part_end(m->state, err) : 0;
}

/* Collects up to and with the next line feed; gives false when it has not come. */
static int take_line(struct multipart *m, const char **at, const char *end, bool *ret_whole,
                     struct error *err)
{
    const char *lf = memchr(*at, '\n', (size_t)(end - *at));
    const char *stop = lf ? lf + 1 : end;

    if (buf_add(&m->line, *at, (size_t)(stop - *at), err) < 0) {
        err->kind = ERR_INVALID;
        return error_wrap(err, "a part's header");
    }
    *at = stop;
    *ret_whole = lf != NULL;
    return 0;
}

static int after_delimiter(struct multipart *m, const char **at, const char *end, struct error *err)
{
    bool whole = false;

    /* The closing delimiter is complete with its second dash, whether a line's end follows or not. */
    const char *stop = m->line.len < 2 ? MIN(end, *at + (2 - m->line.len)) : end;
    if (take_line(m, at, stop, &whole, err) < 0)
        return -1;
    if (m->line.len == 2 && memcmp(m->line.data, "--", 2) == 0) {
        m->stage = STAGE_EPILOGUE;
        return 0;
    }
    if (!whole)
        return 0;
    size_t padding = strspn(m->line.data, " \t");
    if (strcmp(m->line.data + padding, "\r\n") != 0)
        return error_set(err, ERR_INVALID, "malformed multipart delimiter");
    if (++m->parts > MAX_PARTS)
        return error_set(err, ERR_LIMIT, "more than %d parts", MAX_PARTS);
    m->stage = STAGE_HEAD;
    m->line.len = 0;
    return 0;
}

static int in_head(struct multipart *m, const char **at, const char *end, struct error *err)
{
    bool whole = false;

    if (take_line(m, at, end, &whole, err) < 0)
        return -1;
    const struct buf *l = &m->line;
    bool empty_line = l->len == 2 || (l->len > 2 && l->data[l->len - 3] == '\n');
    if (!whole || !empty_line || l->data[l->len - 2] != '\r')
        return 0;
    if (parse_head(m, err) < 0)
        return -1;
    m->line.len = 0;
    m->stage = STAGE_BODY;
    m->matched = 0;
    return m->events.part(m->state, &m->part, err);
}

static int step(struct multipart *m, const char **at, const char *end, struct error *err)
{
    switch (m->stage) {
    case STAGE_PREAMBLE:
    case STAGE_BODY:
        m->line.len = 0;
        return scan(m, at, end, err);
    case STAGE_DELIMITED:
        return after_delimiter(m, at, end, err);
    case STAGE_HEAD:
        return in_head(m, at, end, err);
    case STAGE_EPILOGUE:
        *at = end;
        return 0;
    }
    return error_set(err, ERR_INTERNAL, "multipart: unknown stage");
}

int multipart_feed(struct multipart *m, const char *data, size_t len, struct error *err)
{
    const char *at = data, *end = data + len;

    if (m->broken) {
        *err = m->why;
        return -1;
    }
    while (at < end)
        if (step(m, &at, end, err) < 0) {
            m->broken = true;
            m->why = *err;
            return -1;
        }
    return 0;
}

int multipart_end(struct multipart *m, struct error *err)
{
    if (m->broken) {
        *err = m->why;
        return -1;
    }
    if (m->stage != STAGE_EPILOGUE)
        return error_set(err, ERR_INVALID, "the multipart body ends before its closing boundary");
    return 0;
}
