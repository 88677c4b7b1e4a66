/* carrel - a code interpreter server. The subcommands stand in cli/. */
#include <jansson.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "common/base.h"
#include "orchestrator/app.h"
#include "orchestrator/cli/cli.h"

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *doc;
} commands[] = {
    { "serve", cli_serve, "run the service; settings come from the environment (carrel config lists them)" },
    { "health", cli_health, "ask the running service how it is; exit code 0 when it is well" },
    { "config", cli_config, "print all settings as Markdown" },
};

static int usage(FILE *out, int code)
{
    fprintf(out, "carrel " CARREL_VERSION "\nusage: carrel COMMAND\n\n");
    for (size_t i = 0; i < ARRAY_LEN(commands); i++)
        fprintf(out, "  %-8s %s\n", commands[i].name, commands[i].doc);
    return code;
}

int main(int argc, char **argv)
{
    (void)setlocale(LC_CTYPE, "C.UTF-8");
    (void)signal(SIGPIPE,
                 SIG_IGN); /* a peer that closed is an error of write(2), not the end of the service */
    json_object_seed(0);   /* before threads: jansson(3) */
    for (size_t i = 0; argc > 1 && i < ARRAY_LEN(commands); i++)
        if (strcmp(argv[1], commands[i].name) == 0)
            return commands[i].run(argc - 1, argv + 1);
    if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0))
        return usage(stdout, 0);
    return usage(stderr, 2);
}
