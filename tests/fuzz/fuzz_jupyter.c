/* fuzz: runner. A message of the kernel, in any parts and of any content, as an execution takes it. */
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "runner/display.h"
#include "runner/jupyter.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct runner_config config = { .workspace = "/nonexistent", .cgroup_dir = "/nonexistent" };

/* The parts are separated by a byte that JSON does not have. */
static size_t split(const char *text, size_t size, struct jupyter_part *parts)
{
    size_t n = 0;

    while (n < JUPYTER_PARTS_MAX) {
        const char *end = memchr(text, 0x1e, size);
        size_t len = end ? (size_t)(end - text) : size;
        parts[n++] = (struct jupyter_part){ text, len };
        if (!end)
            break;
        text += len + 1;
        size -= len + 1;
    }
    return n;
}

static void take(const struct jupyter_head *h, json_t *content)
{
    struct jupyter_stream stream;
    struct jupyter_reply reply;
    struct jupyter_error error;
    const char *text = NULL;

    (void)jupyter_is_idle(content);
    (void)jupyter_read_stream(content, &stream);
    jupyter_read_reply(content, &reply);
    if (jupyter_exit_code(reply.evalue, &text) > 255)
        abort();
    jupyter_read_error(content, &error);
    json_decref(error.traceback);
    (void)h;
}

static void show(json_t *content)
{
    struct context context = { .config = &config };
    struct executions all;
    struct display_names names = { 0 };
    struct execution *x = NULL;
    struct run_request q = { .id = "x", .language = language_at(0), .output_max = 4096 };
    struct error err = { 0 };

    loop_init(&context.loop, clock_mono_ms);
    executions_init(&all, &context);
    if (execution_new(&all, &q, &x, &err) < 0)
        abort();
    execution_start(x, NULL);
    display_take(x, &names, FRAME_DISPLAY, content);
    display_take(x, &names, FRAME_RESULT, content);
    execution_end(x, &(struct execution_end){ .reason = END_OK });
    executions_done(&all);
    loop_done(&context.loop);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct jupyter_part parts[JUPYTER_PARTS_MAX];
    struct jupyter_head head;
    struct error err = { 0 };
    json_auto_t *content = NULL, *begin = NULL;

    jupyter_read_head(parts, split((const char *)data, size, parts), &head);
    if (head.type == JUPYTER_OTHER) /* most inputs: take them as a content instead */
        head.content = (struct jupyter_part){ (const char *)data, size };
    if (jupyter_read_content(&head, &content, &err) == 0) {
        take(&head, content);
        show(content);
    }
    if (jupyter_read_stream_begin(&head, size / 2, &begin, &err) == 0)
        take(&head, begin);
    return 0;
}
