#include "orchestrator/engine/engine.h"

void engine_containers_done(struct engine_containers *c)
{
    for (size_t i = 0; c->items && i < c->count; i++)
        json_decref(c->items[i].labels);
    free(c->items);
    *c = (struct engine_containers){ 0 };
}

const char *engine_container_label(const struct engine_container *c, const char *key)
{
    return json_string_value(json_object_get(c->labels, key));
}
