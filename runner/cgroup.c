#include "runner/cgroup.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

static bool read_text(const char *dir, const char *name, char *out, size_t size)
{
    char path[256];

    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t n = read(fd, out, size - 1);
    if (n < 0)
        return false;
    out[n] = '\0';
    return true;
}

static uint64_t parse_number(const char *p)
{
    uint64_t n = 0;

    for (; *p >= '0' && *p <= '9' && n < UINT64_MAX / 16; p++)
        n = n * 10 + (uint64_t)(*p - '0');
    return n;
}

/* The number after "key " at the beginning of a line. */
static uint64_t number_after(const char *text, const char *key)
{
    size_t len = strlen(key);

    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, len) == 0 && line[len] == ' ')
            return parse_number(line + len + 1);
    }
    return 0;
}

uint64_t cgroup_oom_kills(const char *cgroup_dir)
{
    char text[1024];

    if (read_text(cgroup_dir, "memory.events", text, sizeof text) ||
        read_text(cgroup_dir, "memory/memory.oom_control", text, sizeof text))
        return number_after(text, "oom_kill");
    return 0;
}

uint64_t cgroup_memory_limit(const char *cgroup_dir)
{
    char text[64];

    if (!read_text(cgroup_dir, "memory.max", text, sizeof text) &&
        !read_text(cgroup_dir, "memory/memory.limit_in_bytes", text, sizeof text))
        return 0;
    uint64_t n = parse_number(text); /* "max" is 0 */
    return n > (uint64_t)1 << 60 ? 0 : n;
}
