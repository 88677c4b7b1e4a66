#include "runner/procfs.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

static bool read_text(pid_t pid, const char *file, char *out, size_t size)
{
    char path[48];

    (void)snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, file);
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t n = read(fd, out, size - 1);
    if (n <= 0)
        return false;
    out[n] = '\0';
    return true;
}

/* The fields of stat after the program's name, which may itself hold anything. */
static const char *stat_fields(pid_t pid, char *text, size_t size)
{
    const char *name_end = read_text(pid, "stat", text, size) ? strrchr(text, ')') : NULL;

    return name_end && name_end[1] == ' ' ? name_end + 2 : NULL;
}

static int64_t parse_number(const char *p)
{
    int64_t n = 0;

    for (; *p >= '0' && *p <= '9' && n < INT64_MAX / 16; p++)
        n = n * 10 + (*p - '0');
    return n;
}

enum procfs_state procfs_state(pid_t pid)
{
    char text[1024];
    const char *state = stat_fields(pid, text, sizeof text);

    if (!state || *state == 'X')
        return PROCFS_GONE;
    return *state == 'Z' ? PROCFS_ZOMBIE : PROCFS_ALIVE;
}

int64_t procfs_cpu_ms(pid_t pid)
{
    char text[1024];
    int64_t ticks = 0;
    const char *p = stat_fields(pid, text, sizeof text);

    /* proc(5): the state is field 3; utime, stime, cutime, cstime are 14 to 17. */
    for (int field = 3; p && field <= 17; field++) {
        if (field >= 14)
            ticks += parse_number(p);
        p = strchr(p, ' ');
        p = p ? p + 1 : NULL;
    }
    return ticks * 1000 / MAX(1, sysconf(_SC_CLK_TCK));
}

int64_t procfs_peak_bytes(pid_t pid)
{
    char text[4096];
    const char *line = read_text(pid, "status", text, sizeof text) ? strstr(text, "\nVmHWM:") : NULL;

    if (!line)
        return 0;
    line += strlen("\nVmHWM:");
    return parse_number(line + strspn(line, " \t")) * 1024;
}

void procfs_reset_peak(pid_t pid)
{
    char path[48];

    (void)snprintf(path, sizeof path, "/proc/%d/clear_refs", (int)pid);
    auto_close int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd >= 0)
        IGNORE(write(fd, "5", 1));
}
