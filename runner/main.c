/* carrel-runner: PID 1 of a sandbox. Waits for a signal, a frame, a kernel message or output; forwards;
 * reaps. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>

#include "common/log.h"
#include "runner/runner.h"

/* A container without a terminal may lack the first three; a pipe must never take one of their places. */
static void fill_standard_fds(void)
{
    int fd;

    do
        fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    while (fd >= 0 && fd <= 2);
    if (fd > 2)
        (void)close(fd);
}

static int serve(const struct runner_config *config)
{
    struct runner r;
    struct error err = { 0 };

    int rc = runner_init(&r, config, NULL, &err);
    if (rc < 0)
        log_error("%s", err.msg);
    while (rc == 0 && !r.stopping)
        runner_turn(&r, -1);
    /* As PID 1 its end is everybody's: the kernel kills what is left of the sandbox. */
    if (getpid() != 1)
        runner_done(&r);
    return rc == 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    struct runner_config config;
    struct error err = { 0 };

    fill_standard_fds();
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        runner_config_usage();
        return 0;
    }
    if (runner_config_parse(argc, argv, &config, &err) < 0) {
        (void)fprintf(stderr, "carrel-runner: %s\n", err.msg);
        return 2;
    }
    /* Programs of the sandbox have the same uid: its memory and /proc files are not theirs to read. */
    if (prctl(PR_SET_DUMPABLE, 0) < 0)
        log_warn("PR_SET_DUMPABLE: %s", strerrordesc_np(errno));
    /* Large messages go back to the system at once: programs start as copies of this process. */
    (void)mallopt(M_MMAP_THRESHOLD, 128 * 1024);
    (void)mallopt(M_TRIM_THRESHOLD, 256 * 1024);
    json_object_seed(0);
    return serve(&config);
}
