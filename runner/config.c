#include "runner/config.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum option_kind { OPTION_TEXT, OPTION_COUNT, OPTION_YES, OPTION_NO };

struct option_row {
    const char *name;
    enum option_kind kind;
    size_t offset;
    const char *doc;
};

/* NOLINTBEGIN(bugprone-macro-parentheses): a type takes none */
#define ROW_(name, kind, ctype, f, doc)                                                                      \
    {                                                                                                        \
        name, kind,                                                                                          \
            offsetof(struct runner_config, f) +                                                              \
                0 * sizeof(_Generic(((struct runner_config *)0)->f, ctype : 1)),                             \
            doc                                                                                              \
    }
/* NOLINTEND(bugprone-macro-parentheses) */
#define TEXT(name, f, doc) ROW_(name, OPTION_TEXT, const char *, f, doc)
#define COUNT(name, f, doc) ROW_(name, OPTION_COUNT, int64_t, f, doc)
#define YES(name, f, doc) ROW_(name, OPTION_YES, bool, f, doc)
#define NO(name, f, doc) ROW_(name, OPTION_NO, bool, f, doc)

static const struct option_row rows[] = {
    TEXT("--socket", socket_path, "socket to listen on"),
    TEXT("--workspace", workspace, "working directory of programs"),
    TEXT("--home", home, "HOME of programs"),
    TEXT("--tmp", tmp_dir, "where build directories are made"),
    TEXT("--kernel-dir", kernel_dir, "connection file and sockets of the Python kernel"),
    TEXT("--cgroup-dir", cgroup_dir, "where the cgroup hierarchy is mounted"),
    TEXT("--kernel-program", kernel_program, "Python interpreter of the kernel"),
    TEXT("--kernel-module", kernel_module, "Python module that is the kernel"),
    COUNT("--orphan-seconds", orphan_s, "exit after so long without a connection"),
    COUNT("--cpus", threads, "processors of the sandbox; numeric libraries start as many threads"),
    NO("--no-kernel", kernel, "do without the Python kernel"),
    YES("--any-peer", any_peer, "serve processes of the own pid namespace too (for tests)"),
};

static const struct runner_config defaults = {
    .socket_path = "/run/carrel/runner.sock",
    .workspace = "/mnt/data",
    .home = "/home/sandbox",
    .tmp_dir = "/tmp",
    .kernel_dir = "/run/kernel",
    .cgroup_dir = "/sys/fs/cgroup",
    .kernel_program = "python3",
    .kernel_module = "carrel_kernel",
    .kernel = true,
    .orphan_s = 3600,
    .threads = 1,
};

/* "2" is 2 and "1.5" is 2: part of a processor still needs a thread. */
static int parse_count(const char *name, const char *text, int64_t *ret, struct error *err)
{
    int64_t n = 0;
    const char *p = text;
    bool fraction = false;

    for (; *p >= '0' && *p <= '9' && n < 1000000000; p++)
        n = n * 10 + (*p - '0');
    if (p > text && *p == '.')
        for (p++; *p >= '0' && *p <= '9'; p++)
            fraction = fraction || *p != '0';
    n += fraction;
    if (*p || n < 1)
        return error_set(err, ERR_INVALID, "%s: '%s' is not a positive number", name, text);
    *ret = n;
    return 0;
}

static const struct option_row *find_row(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (strcmp(rows[i].name, name) == 0)
            return &rows[i];
    return NULL;
}

int runner_config_parse(int argc, char **argv, struct runner_config *ret, struct error *err)
{
    struct runner_config c = defaults;

    for (int i = 1; i < argc; i++) {
        const struct option_row *row = find_row(argv[i]);
        if (!row)
            return error_set(err, ERR_INVALID, "%s: unknown option", argv[i]);
        void *field = (char *)&c + row->offset;
        if (row->kind == OPTION_YES || row->kind == OPTION_NO) {
            *(bool *)field = row->kind == OPTION_YES;
            continue;
        }
        if (++i == argc)
            return error_set(err, ERR_INVALID, "%s: needs a value", row->name);
        if (row->kind == OPTION_TEXT)
            *(const char **)field = argv[i];
        else if (parse_count(row->name, argv[i], field, err) < 0)
            return -1;
    }
    *ret = c;
    return 0;
}

void runner_config_usage(void)
{
    (void)puts("carrel-runner: runs the programs of one sandbox. Options:");
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        (void)printf("  %-18s %s\n", rows[i].name, rows[i].doc);
}
