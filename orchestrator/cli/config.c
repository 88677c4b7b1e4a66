/* carrel config: the settings table as documentation. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "common/fd.h"
#include "orchestrator/cli/cli.h"
#include "orchestrator/config.h"

#define BEGIN "<!-- settings: made by make docs -->\n"
#define END "<!-- settings end -->\n"
#define MAX_README ((size_t)1024 * 1024)

static char *readme_table(void)
{
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);

    if (!out)
        abort();
    config_write_readme_table(out);
    (void)fclose(out);
    return text;
}

static int read_file(const char *path, char **ret, struct error *err)
{
    size_t n = 0;

    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return error_errno(err, errno, "%s", path);
    auto_free char *text = xcalloc(MAX_README + 1, 1);
    if (fd_read_full(fd, text, MAX_README, &n, err) < 0)
        return -1;
    *ret = steal_ptr(&text);
    return 0;
}

/* The file with the table between its two marks made anew. */
static int with_table(const char *path, char **ret_old, char **ret_new, struct error *err)
{
    if (read_file(path, ret_old, err) < 0)
        return -1;
    const char *begin = *ret_old ? strstr(*ret_old, BEGIN) : NULL;
    const char *end = begin ? strstr(begin, END) : NULL;
    if (!end)
        return error_set(err, ERR_INVALID, "%s has no marks for the settings table", path);
    auto_free char *table = readme_table();
    *ret_new = xasprintf("%.*s%s%s%s", (int)(begin - *ret_old), *ret_old, BEGIN, table, end);
    return 0;
}

static int readme(const char *path, bool write_it)
{
    struct error err = { 0 };
    auto_free char *old = NULL, *fresh = NULL;

    if (with_table(path, &old, &fresh, &err) < 0) {
        fprintf(stderr, "carrel config: %s\n", err.msg);
        return 1;
    }
    if (str_eq(old, fresh))
        return 0;
    if (!write_it) {
        fprintf(stderr, "%s: the settings table is stale, run make docs\n", path);
        return 1;
    }
    auto_close int fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
    if (fd < 0 || !fresh || fd_write_all(fd, fresh, strlen(fresh), &err) < 0) {
        fprintf(stderr, "carrel config: cannot write %s\n", path);
        return 1;
    }
    return 0;
}

int cli_config(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--readme") == 0)
        return readme(argv[2], true);
    if (argc == 3 && strcmp(argv[1], "--readme-check") == 0)
        return readme(argv[2], false);
    if (argc != 1) {
        fprintf(stderr, "usage: carrel config [--readme FILE | --readme-check FILE]\n");
        return 2;
    }
    config_write_docs(stdout);
    return 0;
}
