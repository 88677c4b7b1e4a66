/* fuzz: http - the multipart parser: the same parts at every split, callbacks in order, names bounded. */
#include <assert.h>
#include <string.h>

#include "orchestrator/http/multipart.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct transcript {
    struct buf text;
    bool open;
};

static int on_part(void *state, const struct multipart_part *p, struct error *err)
{
    struct transcript *t = state;

    assert(!t->open);
    t->open = true;
    assert(p->name[0] != '\0');
    assert(memchr(p->name, '\0', sizeof p->name) && memchr(p->filename, '\0', sizeof p->filename));
    return buf_addf(&t->text, err, "<%s|%d%s|%s>", p->name, p->has_filename, p->filename, p->content_type);
}

static int on_data(void *state, const char *data, size_t len, struct error *err)
{
    struct transcript *t = state;

    assert(t->open && len > 0);
    return buf_add(&t->text, data, len, err);
}

static int on_part_end(void *state, struct error *err)
{
    struct transcript *t = state;

    assert(t->open);
    t->open = false;
    return buf_add(&t->text, ";", 1, err);
}

static const struct multipart_events events = { on_part, on_data, on_part_end };

static int parse(const char *type, const char *body, size_t len, size_t step, struct transcript *t,
                 struct error *err)
{
    struct multipart *m = NULL;

    buf_init(&t->text, 4 * len + 4096);
    int r = multipart_new(type, &events, t, &m, err);
    for (size_t at = 0; r == 0 && at < len; at += step)
        r = multipart_feed(m, body + at, MIN(step, len - at), err);
    if (r == 0)
        r = multipart_end(m, err);
    multipart_free(m);
    return r;
}

/* Input: a byte that chooses the split, a line with the Content-Type, the body. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *lf = size > 1 ? memchr(data + 1, '\n', size - 1) : NULL;
    struct transcript whole = { 0 }, split = { 0 };
    struct error err = { 0 }, split_err = { 0 };

    if (!lf)
        return 0;
    auto_free char *type = xstrndup((const char *)data + 1, (size_t)(lf - data) - 1);
    const char *body = (const char *)lf + 1;
    size_t len = size - (size_t)(lf + 1 - data);
    int r = parse(type, body, len, len + 1, &whole, &err);
    assert(parse(type, body, len, (size_t)data[0] % 16 + 1, &split, &split_err) == r);
    assert(err.kind == split_err.kind && strcmp(err.msg, split_err.msg) == 0);
    if (r == 0) {
        assert(!whole.open);
        assert(whole.text.len == split.text.len);
        assert(whole.text.len == 0 || memcmp(whole.text.data, split.text.data, whole.text.len) == 0);
    }
    buf_done(&whole.text);
    buf_done(&split.text);
    return 0;
}
