/* Who is told of which file when programs of one session run at once. */
#include <string.h>

#include "orchestrator/session/table_internal.h"

uint64_t session_captures(struct session *s)
{
    (void)pthread_mutex_lock(&s->table->lock);
    uint64_t number = s->capture_number;
    (void)pthread_mutex_unlock(&s->table->lock);
    return number;
}

static bool has_name(const struct objects *files, const char *name)
{
    for (size_t i = 0; i < files->count; i++)
        if (strcmp(files->items[i].name, name) == 0)
            return true;
    return false;
}

static void remember(struct session *s, const struct object *o)
{
    s->captures = xrealloc_array(s->captures, s->capture_count + 1, sizeof *s->captures);
    struct capture *c = &s->captures[s->capture_count++];
    c->number = ++s->capture_number;
    object_copy(o, &c->object);
}

void session_share_captures(struct session *s, uint64_t seen, struct workspace_changes *changes)
{
    (void)pthread_mutex_lock(&s->table->lock);
    size_t own = changes->files.count, known = s->capture_count;
    for (size_t i = 0; s->running > 1 && i < own; i++)
        remember(s, &changes->files.items[i]);
    for (size_t i = known; i-- > 0;) { /* newest first: of several versions of a name only the last is told */
        struct object copy = { 0 };
        if (s->captures[i].number <= seen || has_name(&changes->files, s->captures[i].object.name))
            continue;
        object_copy(&s->captures[i].object, &copy);
        objects_add(&changes->files, &copy);
    }
    (void)pthread_mutex_unlock(&s->table->lock);
}

void session_forget_captures(struct session *s)
{
    for (size_t i = 0; i < s->capture_count; i++)
        object_done(&s->captures[i].object);
    free(s->captures);
    s->captures = NULL;
    s->capture_count = 0;
}
