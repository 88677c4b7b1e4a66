/* procfs.h - what /proc tells of one process. libc only. */
#pragma once

#include <sys/types.h>

#include "common/base.h"

enum procfs_state { PROCFS_GONE, PROCFS_ZOMBIE, PROCFS_ALIVE };
enum procfs_state procfs_state(pid_t pid);
/* CPU time of the process and its reaped children; 0 when it is gone. */
int64_t procfs_cpu_ms(pid_t pid);
int64_t procfs_peak_bytes(pid_t pid); /* largest resident size since the reset; 0 when it is gone */
void procfs_reset_peak(pid_t pid);
