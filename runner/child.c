#include "runner/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "runner/tree.h"

#define OOM_SCORE "500" /* before the runner, whose own is 0 */
#define CPU_GRACE_S 2   /* between SIGXCPU and SIGKILL */

/* The hard limit too, so that the program cannot raise it again; never above what the container allows. */
static void limit(__rlimit_resource_t which, rlim_t value, rlim_t grace)
{
    struct rlimit old;

    if (getrlimit(which, &old) < 0)
        return;
    struct rlimit new = { .rlim_cur = MIN(value, old.rlim_max),
                          .rlim_max = MIN(value + grace, old.rlim_max) };
    (void)setrlimit(which, &new);
}

static void apply_limits(const struct child_spec *spec)
{
    limit(RLIMIT_CORE, 0, 0);
    if (spec->limits.file_max > 0)
        limit(RLIMIT_FSIZE, (rlim_t)spec->limits.file_max, 0);
    if (spec->limits.memory_max > 0)
        limit(RLIMIT_DATA, (rlim_t)spec->limits.memory_max, 0);
    if (spec->limits.cpu_max_s > 0)
        limit(RLIMIT_CPU, (rlim_t)spec->limits.cpu_max_s, CPU_GRACE_S);
    if (spec->mark)
        limit(TREE_MARK, (rlim_t)spec->mark, 0);
}

static void reset_signals(void)
{
    struct sigaction dfl = { .sa_handler = SIG_DFL };
    sigset_t none;

    for (int s = 1; s < _NSIG; s++)
        (void)sigaction(s, &dfl, NULL); /* KILL, STOP and the C library's own fail, as they should */
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
}

/* Being dumpable again, the child may write its own /proc files, which then are no longer root's. */
static void become_oom_victim(void)
{
    (void)prctl(PR_SET_DUMPABLE, 1);
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd >= 0)
        IGNORE(write(fd, OOM_SCORE, sizeof OOM_SCORE - 1));
}

static bool connect_fds(const struct child_spec *spec)
{
    const int wanted[] = { spec->stdin_fd, spec->stdout_fd, spec->stderr_fd };

    for (int i = 0; i < 3; i++) {
        int fd = wanted[i] >= 0 ? wanted[i] : open("/dev/null", O_RDWR | O_CLOEXEC);
        if (fd < 0 || dup2(fd, i) < 0)
            return false;
    }
    return close_range(3, ~0U, 0) == 0 || errno == ENOSYS; /* all of ours are close-on-exec anyway */
}

static _Noreturn void die(const char *what, int errnum, int code)
{
    char line[256];
    int n = snprintf(line, sizeof line, "cannot start the program: %s: %s\n", what, strerrordesc_np(errnum));

    if (n > 0)
        IGNORE(write(STDERR_FILENO, line, (size_t)n));
    _exit(code);
}

/* In the child, beside which libzmq's threads held any lock: only async-signal-safe calls until exec. */
static _Noreturn void become(const struct child_spec *spec, const char *path)
{
    union {
        const char *const *in;
        char *const *out;
    } argv = { .in = spec->argv },
      env = { .in = spec->env }; /* execve(2) takes no const, and changes nothing */

    (void)setsid();
    reset_signals();
    become_oom_victim();
    if (!connect_fds(spec))
        _exit(126);
    (void)umask(022);
    if (chdir(spec->cwd) < 0)
        die(spec->cwd, errno, 126);
    apply_limits(spec);
    (void)execve(path, argv.out, env.out);
    die(path, errno, 126);
}

static const char *search_path(const struct child_spec *spec)
{
    for (const char *const *e = spec->env; *e; e++)
        if (str_starts(*e, "PATH="))
            return *e + strlen("PATH=");
    return "/usr/local/bin:/usr/bin:/bin";
}

static char *find_program(const struct child_spec *spec)
{
    const char *name = spec->argv[0];

    if (strchr(name, '/'))
        return access(name, X_OK) == 0 ? xstrdup(name) : NULL;
    for (const char *dir = search_path(spec); *dir;) {
        size_t len = strcspn(dir, ":");
        auto_free char *path = xasprintf("%.*s/%s", (int)len, dir, name);
        if (access(path, X_OK) == 0)
            return steal_ptr(&path);
        dir += len + (dir[len] == ':');
    }
    return NULL;
}

int child_start(struct children *all, struct child *c, const struct child_spec *spec, struct error *err)
{
    auto_free char *path = find_program(spec);

    if (!path)
        return error_set(err, ERR_NOT_FOUND, "%s is not installed in this sandbox", spec->argv[0]);
    pid_t pid = fork();
    if (pid < 0)
        return error_errno(err, errno, errno == EAGAIN ? "too many processes in the sandbox" : "fork");
    if (pid == 0)
        become(spec, path);
    c->pid = pid;
    c->next = all->first;
    all->first = c;
    return 0;
}

void child_forget(struct children *all, struct child *c)
{
    for (struct child **p = &all->first; *p; p = &(*p)->next)
        if (*p == c) {
            *p = c->next;
            c->pid = 0;
            return;
        }
}

static struct child *find(const struct children *all, pid_t pid)
{
    for (struct child *c = all->first; c; c = c->next)
        if (c->pid == pid)
            return c;
    return NULL;
}

void children_reap(struct children *all)
{
    int status;
    struct rusage usage;
    pid_t pid;

    while ((pid = wait4(-1, &status, WNOHANG, &usage)) > 0) {
        struct child *c = find(all, pid);
        if (!c)
            continue; /* an orphan that fell to PID 1 */
        child_forget(all, c);
        c->exited(c, status, &usage);
    }
}
