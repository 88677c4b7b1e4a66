/* kernel.h - the two sockets to one Python kernel, over ipc: messages in parts, never blocking. Only kernel.c
 * knows libzmq. */
#pragma once

#include "common/error.h"
#include "runner/jupyter.h"

enum kernel_channel { KERNEL_SHELL, KERNEL_IOPUB, KERNEL_CHANNELS };

struct kernel;

/* Connects to dir/k-1 (shell) and dir/k-2 (iopub), which need not exist yet. */
int kernel_open(const char *dir, struct kernel **ret, struct error *err) MUST_CHECK;
void kernel_close(struct kernel *k); /* drops what is queued in both directions */
DEFINE_CLEANUP(struct kernel *, kernel_close)

/*
 * Becomes readable when something may have happened, and only then: after it, and after every send, messages
 * must be taken until kernel_receive() has none.
 */
int kernel_fd(const struct kernel *k, enum kernel_channel channel);
int kernel_send(struct kernel *k, const struct jupyter_request *q, struct error *err) MUST_CHECK;
/*
 * Takes one message if there is one. The parts stay valid until the next call; parts beyond JUPYTER_PARTS_MAX
 * are dropped. *ret_bytes is the size of the whole message.
 */
bool kernel_receive(struct kernel *k, enum kernel_channel channel, struct jupyter_part *parts,
                    size_t *ret_count, size_t *ret_bytes);
