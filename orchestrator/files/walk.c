#include "orchestrator/files/walk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "orchestrator/files/beneath.h"

struct todo { /* directories still to be entered; the last one comes first */
    char **paths;
    size_t count, room;
};

static void todo_done(struct todo *t)
{
    for (size_t i = 0; i < t->count; i++)
        free(t->paths[i]);
    free(t->paths);
}

static void todo_add(struct todo *t, const char *path)
{
    if (t->count == t->room) {
        t->room = t->room ? t->room * 2 : 16;
        t->paths = xrealloc_array(t->paths, t->room, sizeof *t->paths);
    }
    t->paths[t->count++] = xstrdup(path);
}

static int64_t depth_of(const char *path)
{
    int64_t depth = 1;

    for (; *path; path++)
        depth += *path == '/';
    return depth;
}

static void look_at(const struct walk *w, struct todo *t, const char *dir, int dir_fd, const char *name)
{
    char path[PATH_MAX];
    struct stat st;
    int n = snprintf(path, sizeof path, "%s%s%s", dir, *dir ? "/" : "", name);

    if (n < 0 || (size_t)n >= sizeof path) {
        w->trouble(w->state, dir, "holds a path that is too long");
        return;
    }
    if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return;
    struct walk_entry e = { .path = path, .name = name, .dir_fd = dir_fd, .st = &st };
    if (!w->entry(w->state, &e) || !S_ISDIR(st.st_mode))
        return;
    if (depth_of(path) >= w->max_depth)
        w->trouble(w->state, path, "nested too deeply");
    else
        todo_add(t, path);
}

static bool walk_dir(const struct walk *w, struct todo *t, const char *dir, int64_t *left)
{
    int fd = beneath_open(w->root_fd, dir, O_RDONLY | O_DIRECTORY);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);

    if (!d) {
        if (errno != ENOENT)
            w->trouble(w->state, dir, strerrordesc_np(errno));
        closep(&fd);
        return true;
    }
    for (struct dirent *e = readdir(d); e; e = readdir(d)) {
        if (str_eq(e->d_name, ".") || str_eq(e->d_name, ".."))
            continue;
        if ((*left)-- <= 0)
            break;
        if (!w->wanted || w->wanted(e->d_name))
            look_at(w, t, dir, fd, e->d_name);
    }
    (void)closedir(d);
    return *left >= 0;
}

bool walk_tree(const struct walk *w)
{
    CLEANUP(todo_done) struct todo todo = { 0 };
    int64_t left = w->max_entries;
    bool whole = true;

    todo_add(&todo, "");
    while (whole && todo.count > 0) {
        auto_free char *dir = todo.paths[--todo.count];
        whole = walk_dir(w, &todo, dir, &left);
    }
    return whole;
}
