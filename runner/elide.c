#include "runner/elide.h"

#include <string.h>

void elide_init(struct elide *e, const char *needle)
{
    size_t len = strlen(needle);

    *e = (struct elide){ 0 };
    if (len >= sizeof e->needle)
        return;
    memcpy(e->needle, needle, len + 1);
    e->len = len;
}

/*
 * How much of the needle is still matched when the next byte does not continue it: the longest beginning of
 * the needle that ends what was matched. The needle is short and a mismatch rare, so it is looked for the
 * plain way.
 */
static size_t fall_back(const struct elide *e)
{
    for (size_t n = e->matched - 1; n > 0; n--)
        if (memcmp(e->needle, e->needle + e->matched - n, n) == 0)
            return n;
    return 0;
}

static int add_byte(struct elide *e, char c, struct buf *out, struct error *err)
{
    while (e->matched > 0 && c != e->needle[e->matched]) {
        size_t shorter = fall_back(e);
        if (buf_add(out, e->needle, e->matched - shorter, err) < 0)
            return -1;
        e->matched = shorter;
    }
    if (c != e->needle[e->matched])
        return buf_add(out, &c, 1, err);
    if (++e->matched == e->len)
        e->matched = 0; /* gone */
    return 0;
}

int elide_add(struct elide *e, const char *data, size_t len, struct buf *out, struct error *err)
{
    const char *end = data + len;

    if (e->len == 0)
        return buf_add(out, data, len, err);
    while (data < end) {
        if (e->matched == 0) {
            const char *hit = memchr(data, e->needle[0], (size_t)(end - data));
            size_t plain = (size_t)((hit ? hit : end) - data);
            if (buf_add(out, data, plain, err) < 0)
                return -1;
            data += plain;
            if (!hit)
                break;
        }
        if (add_byte(e, *data++, out, err) < 0)
            return -1;
    }
    return 0;
}

int elide_finish(struct elide *e, struct buf *out, struct error *err)
{
    size_t n = e->matched;

    e->matched = 0;
    return buf_add(out, e->needle, n, err);
}
