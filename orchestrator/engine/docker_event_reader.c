#include <string.h>

#include "orchestrator/engine/docker_wire.h"

#define MAX_EVENT_BYTES ((size_t)1024 * 1024) /* a line; an exec's carries its whole command */

void docker_event_reader_init(struct docker_event_reader *r, engine_event_fn *fn, void *state)
{
    *r = (struct docker_event_reader){ .fn = fn, .state = state };
    buf_init(&r->line, MAX_EVENT_BYTES);
}

void docker_event_reader_done(struct docker_event_reader *r) { buf_done(&r->line); }

static bool event_kind(const char *action, enum engine_event_kind *ret)
{
    static const struct {
        const char *action; /* Docker's, then Podman's; an exec's "exec_die: ..." is none of them */
        enum engine_event_kind kind;
    } kinds[] = {
        { "die", ENGINE_EVENT_DIED },     { "destroy", ENGINE_EVENT_DIED }, { "oom", ENGINE_EVENT_OOM },
        { "pause", ENGINE_EVENT_PAUSED }, { "died", ENGINE_EVENT_DIED },    { "remove", ENGINE_EVENT_DIED },
    };

    for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
        if (str_eq(kinds[i].action, action)) {
            *ret = kinds[i].kind;
            return true;
        }
    return false;
}

static int64_t event_exit_code(json_t *attributes)
{
    struct error ignored;
    json_t *docker = NULL, *podman = NULL;
    int64_t code = 0;

    IGNORE(
        jsonx_unpack(attributes, &ignored, "{s?o, s?o}", "exitCode", &docker, "containerExitCode", &podman));
    const char *text = json_string_value(docker ? docker : podman);
    return text && docker_read_number(&text, &code) && *text == '\0' ? code : -1;
}

/* Documents of other shapes (other kinds of objects) are not for us. */
static int handle_event(struct docker_event_reader *r, const struct buf *line, struct error *err)
{
    json_auto_t *doc = NULL;
    const char *type = NULL, *action = NULL, *id = NULL;
    json_t *attributes = NULL;
    struct error ignored;
    struct engine_event event = { 0 };
    char known_id[ENGINE_ID_SIZE];

    if (jsonx_parse(line->data, line->len, &doc, err) < 0)
        return -1;
    if (jsonx_unpack(doc, &ignored, "{s:s, s:s, s:{s:s, s?o}}", "Type", &type, "Action", &action, "Actor",
                     "ID", &id, "Attributes", &attributes) < 0)
        return 0;
    if (!str_eq(type, "container") || !event_kind(action, &event.kind) ||
        docker_copy_id(id, known_id, &ignored) < 0)
        return 0;
    event.container_id = known_id;
    event.exit_code = event.kind == ENGINE_EVENT_DIED ? event_exit_code(attributes) : 0;
    r->fn(r->state, &event);
    return 0;
}

int docker_event_reader_feed(struct docker_event_reader *r, const char *data, size_t len, struct error *err)
{
    while (len > 0) {
        const char *newline = memchr(data, '\n', len);
        size_t n = newline ? (size_t)(newline - data) : len;
        if (buf_add(&r->line, data, n, err) < 0)
            return -1;
        if (!newline)
            return 0;
        if (strspn(r->line.data, " \t\r") < r->line.len && handle_event(r, &r->line, err) < 0)
            return -1;
        r->line.len = 0;
        data += n + 1;
        len -= n + 1;
    }
    return 0;
}
