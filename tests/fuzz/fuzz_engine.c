/* fuzz: engine - whatever answers as a Docker Engine: each reply's reader, and the event stream in two
 * pieces. */
#include "orchestrator/engine/docker_wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void on_event(void *state, const struct engine_event *event)
{
    *(size_t *)state += event->container_id != NULL;
}

static void read_events(const char *text, size_t len, size_t first)
{
    CLEANUP(docker_event_reader_done) struct docker_event_reader reader;
    struct error err;
    size_t told = 0;

    docker_event_reader_init(&reader, on_event, &told);
    if (docker_event_reader_feed(&reader, text, first, &err) == 0)
        IGNORE(docker_event_reader_feed(&reader, text + first, len - first, &err));
}

/* The first byte chooses the reader; a piece of the rest is the document. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data + 1;
    struct error err;
    struct docker_version version = { 0 };
    struct engine_info info = { 0 };
    struct engine_containers list = { 0 };
    struct engine_inspection inspection;
    char id[ENGINE_ID_SIZE], api[DOCKER_API_SIZE];
    json_auto_t *labels = NULL, *warnings = NULL;

    if (size == 0)
        return 0;
    struct buf body = { .data = (char *)(uintptr_t)text, .len = size - 1 };
    switch (data[0]) {
    case 'v':
        if (docker_read_version(&body, &version, &err) == 0)
            IGNORE(docker_negotiate(&version, api, &err));
        break;
    case 'f':
        IGNORE(docker_read_info(&body, &info, &err));
        break;
    case 'm':
        IGNORE(docker_read_image(&body, &labels, &err));
        break;
    case 'c':
        IGNORE(docker_read_created(&body, id, &warnings, &err));
        break;
    case 'l':
        if (docker_read_list(&body, &list, &err) == 0)
            engine_containers_done(&list);
        break;
    case 'i':
        IGNORE(docker_read_inspection(&body, &inspection, &err));
        break;
    default:
        read_events(text, size - 1, data[0] % size);
    }
    return 0;
}
