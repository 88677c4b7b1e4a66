/* cgroup.h - what the sandbox's memory cgroup tells, version 1 or 2. libc only. */
#pragma once

#include "common/base.h"

/* How many processes of the sandbox the kernel has killed for memory; 0 when that cannot be read. */
uint64_t cgroup_oom_kills(const char *cgroup_dir);
/* The sandbox's memory limit in bytes; 0: none, or unknown. */
uint64_t cgroup_memory_limit(const char *cgroup_dir);
