/* cli.h - the subcommands of carrel, one file each. They return the exit code. */
#pragma once

int cli_serve(int argc, char **argv);  /* carrel serve: runs the service until SIGTERM or SIGINT */
int cli_config(int argc, char **argv); /* carrel config: docs/CONFIG.md; --readme FILE, --readme-check FILE */
int cli_health(int argc,
               char **argv); /* carrel health: asks a running service, exit code 0 when it is well */
