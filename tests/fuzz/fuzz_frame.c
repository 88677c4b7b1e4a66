/* fuzz: common - the frame decoder: hostile bytes give the same frames at every split, and never too long
 * ones. */
#include <assert.h>
#include <string.h>

#include "common/frame.h"

#define MAX_PAYLOAD 64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Decodes in pieces of step bytes and writes what came to out. */
static bool decode(const uint8_t *data, size_t size, size_t step, struct buf *out)
{
    struct frame_reader r;
    struct error err;
    bool good = true;

    frame_reader_init(&r, MAX_PAYLOAD);
    for (size_t at = 0; good && at < size; at += step) {
        struct frame f;
        bool have = true;
        good = frame_reader_feed(&r, data + at, MIN(step, size - at), &err) == 0;
        while (good && have) {
            good = frame_reader_next(&r, &f, &have, &err) == 0;
            if (!good || !have)
                break;
            assert(f.len <= MAX_PAYLOAD);
            assert(frame_type_known((uint8_t)f.type));
            if (frame_add(out, f.type, f.payload, f.len, &err) < 0)
                abort();
        }
    }
    frame_reader_done(&r);
    return good;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    auto_buf struct buf whole = { .max = size + 1 };
    auto_buf struct buf split = { .max = size + 1 };

    if (size < 2 || size > 200 * 1024) /* the reader's own cap bounds what is fed at once */
        return 0;
    size_t step = (size_t)data[0] % 16 + 1;
    bool good = decode(data + 1, size - 1, size, &whole);
    assert(decode(data + 1, size - 1, step, &split) == good);
    assert(whole.len == split.len && (whole.len == 0 || memcmp(whole.data, split.data, whole.len) == 0));
    assert(whole.len == 0 || memcmp(whole.data, data + 1, whole.len) == 0); /* encoding is the inverse */
    return 0;
}
