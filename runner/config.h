/* config.h - what the runner is told on its command line; the defaults are the sandbox's own places. */
#pragma once

#include "common/error.h"

struct runner_config {
    const char *socket_path; /* where the service connects */
    const char *workspace;   /* working directory of programs */
    const char *home;
    const char *tmp_dir;    /* private build directories are made here */
    const char *kernel_dir; /* connection file and sockets of the Python kernel */
    const char *cgroup_dir;
    const char *kernel_program; /* run as: kernel_program -P -m kernel_module -f FILE */
    const char *kernel_module;
    bool kernel;      /* false: Python is refused */
    bool any_peer;    /* serve and obey processes of the same pid namespace too; for tests */
    int64_t orphan_s; /* exit after so long without a connection */
    int64_t threads;  /* numeric libraries start so many */
};

/* Reads the options; the strings of argv are borrowed. ERR_INVALID names the option. */
int runner_config_parse(int argc, char **argv, struct runner_config *ret, struct error *err) MUST_CHECK;
/* Every option with its meaning, for --help. */
void runner_config_usage(void);
