#include "runner/tree.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>

#include "runner/procfs.h"

#define MARKS ((uint64_t)1 << 32)
#define STOP_PASSES 16

/* Where runners share a pid namespace (tests), each has a range of its own. */
void trees_init(struct trees *all, bool strays)
{
    struct rlimit own = { .rlim_max = RLIM_INFINITY };
    uint64_t base = ((uint64_t)getpid() + 1) * MARKS;

    (void)getrlimit(TREE_MARK, &own);
    if (own.rlim_max < base) /* a container so strange that everybody in it looks marked */
        strays = false;
    *all = (struct trees){ .base = base, .last = base, .strays = strays };
}

void tree_open(struct trees *all, struct tree *t)
{
    t->mark = --all->last;
    t->next = all->first;
    all->first = t;
}

void tree_close(struct trees *all, struct tree *t)
{
    for (struct tree **p = &all->first; *p; p = &(*p)->next)
        if (*p == t) {
            *p = t->next;
            break;
        }
    t->mark = 0;
}

static bool is_open(const struct trees *all, uint64_t mark)
{
    for (const struct tree *t = all->first; t; t = t->next)
        if (t->mark == mark)
            return true;
    return false;
}

struct scan {
    size_t alive;
    size_t zombies; /* reaped soon; until then their children are not known to be among the living */
    bool vanished; /* a process ended between the listing and the look at it: it may have forked in between */
};

static bool belongs(const struct trees *all, const struct tree *t, pid_t pid, struct scan *s)
{
    struct rlimit has;

    if (prlimit(pid, TREE_MARK, NULL, &has) < 0) {
        s->vanished = s->vanished || errno == ESRCH;
        return false;
    }
    if (has.rlim_max == t->mark)
        return true;
    return all->strays && has.rlim_max < all->base && !is_open(all, has.rlim_max);
}

static pid_t parse_pid(const char *name)
{
    pid_t pid = 0;

    for (; *name >= '0' && *name <= '9' && pid < 100000000; name++)
        pid = pid * 10 + (*name - '0');
    return *name ? 0 : pid;
}

static struct scan signal_all(const struct trees *all, const struct tree *t, int sig)
{
    struct scan s = { 0 };
    DIR *proc = opendir("/proc");

    if (!proc)
        return s;
    for (const struct dirent *e; (e = readdir(proc)) != NULL;) {
        pid_t pid = parse_pid(e->d_name);
        if (pid <= 1 || pid == getpid() || !belongs(all, t, pid, &s))
            continue;
        switch (procfs_state(pid)) {
        case PROCFS_ALIVE:
            (void)kill(pid, sig);
            s.alive++;
            break;
        case PROCFS_ZOMBIE:
            s.zombies++;
            break;
        case PROCFS_GONE:
            s.vanished = true;
            break;
        }
    }
    (void)closedir(proc);
    return s;
}

size_t tree_kill(struct trees *all, const struct tree *t)
{
    size_t before = 0;
    struct scan s = signal_all(all, t, SIGSTOP);

    /*
     * Until a look finds nobody new and nobody slipped through it. Stopped processes keep their places: where
     * the number is limited, a fork bomb runs out of room.
     */
    for (int pass = 0; pass < STOP_PASSES && (s.vanished || s.alive > before); pass++) {
        before = s.alive;
        s = signal_all(all, t, SIGSTOP);
    }
    if (s.alive > 0)
        (void)signal_all(all, t, SIGKILL);
    return s.alive + s.zombies + s.vanished;
}
