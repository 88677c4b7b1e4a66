#include "runner/kernel.h"

#include <errno.h>
#include <string.h>
#include <zmq.h>

struct kernel {
    void *context;
    void *sockets[KERNEL_CHANNELS];
    int fds[KERNEL_CHANNELS];
    zmq_msg_t taken[JUPYTER_PARTS_MAX + 1]; /* the message given last, and a place for parts too many */
    size_t taken_count;
};

static int fail(struct error *err, const char *what)
{
    return error_set(err, ERR_INTERNAL, "%s: %s", what, zmq_strerror(errno));
}

static int set_int(void *socket, int option, int value)
{
    return zmq_setsockopt(socket, option, &value, sizeof value);
}

static int open_socket(struct kernel *k, enum kernel_channel channel, int type, const char *endpoint,
                       struct error *err)
{
    size_t size = sizeof k->fds[channel];
    void *s = zmq_socket(k->context, type);

    k->sockets[channel] = s;
    if (!s)
        return fail(err, "zmq_socket");
    /*
     * Without a high-water mark nothing is dropped by the kernel, whose idle status would be among what is
     * lost; what is queued here is bounded by draining it and by ending whoever floods.
     */
    if (set_int(s, ZMQ_LINGER, 0) < 0 || set_int(s, ZMQ_RCVHWM, 0) < 0 || set_int(s, ZMQ_SNDHWM, 0) < 0 ||
        set_int(s, ZMQ_RECONNECT_IVL, 10) < 0)
        return fail(err, "zmq_setsockopt");
    if (type == ZMQ_SUB && zmq_setsockopt(s, ZMQ_SUBSCRIBE, "", 0) < 0)
        return fail(err, "subscribe");
    if (zmq_getsockopt(s, ZMQ_FD, &k->fds[channel], &size) < 0)
        return fail(err, "ZMQ_FD");
    if (zmq_connect(s, endpoint) < 0)
        return fail(err, endpoint);
    return 0;
}

int kernel_open(const char *dir, struct kernel **ret, struct error *err)
{
    CLEANUP(kernel_closep) struct kernel *k = xcalloc(1, sizeof *k);
    auto_free char *shell = xasprintf("ipc://%s/k-1", dir);
    auto_free char *iopub = xasprintf("ipc://%s/k-2", dir);

    k->context = zmq_ctx_new();
    if (!k->context)
        return fail(err, "zmq_ctx_new");
    if (open_socket(k, KERNEL_SHELL, ZMQ_DEALER, shell, err) < 0 ||
        open_socket(k, KERNEL_IOPUB, ZMQ_SUB, iopub, err) < 0)
        return -1;
    *ret = steal_ptr(&k);
    return 0;
}

static void let_go(struct kernel *k)
{
    for (size_t i = 0; i < k->taken_count; i++)
        (void)zmq_msg_close(&k->taken[i]);
    k->taken_count = 0;
}

void kernel_close(struct kernel *k)
{
    if (!k)
        return;
    let_go(k);
    for (size_t i = 0; i < ARRAY_LEN(k->sockets); i++)
        if (k->sockets[i])
            (void)zmq_close(k->sockets[i]);
    if (k->context)
        (void)zmq_ctx_term(k->context); /* LINGER 0: does not wait */
    free(k);
}

int kernel_fd(const struct kernel *k, enum kernel_channel channel) { return k->fds[channel]; }

int kernel_send(struct kernel *k, const struct jupyter_request *q, struct error *err)
{
    const char *const parts[] = { "<IDS|MSG>", "", q->parts[0], q->parts[1], q->parts[2], q->parts[3] };

    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        int flags = ZMQ_DONTWAIT | (i + 1 < ARRAY_LEN(parts) ? ZMQ_SNDMORE : 0);
        if (zmq_send(k->sockets[KERNEL_SHELL], parts[i], strlen(parts[i]), flags) < 0)
            return fail(err, "send to the kernel");
    }
    return 0;
}

static bool has_message(void *socket)
{
    int events = 0;
    size_t size = sizeof events;

    return zmq_getsockopt(socket, ZMQ_EVENTS, &events, &size) == 0 && (events & ZMQ_POLLIN);
}

/* Receives one part into the next free place, the last of which takes and drops whatever comes beyond. */
static bool take_part(struct kernel *k, void *socket, size_t *ret_bytes, bool *ret_more)
{
    if (k->taken_count == ARRAY_LEN(k->taken))
        (void)zmq_msg_close(&k->taken[--k->taken_count]);
    zmq_msg_t *m = &k->taken[k->taken_count];
    (void)zmq_msg_init(m);
    if (zmq_msg_recv(m, socket, ZMQ_DONTWAIT) < 0) {
        (void)zmq_msg_close(m);
        return false;
    }
    k->taken_count++;
    *ret_bytes += zmq_msg_size(m);
    *ret_more = zmq_msg_more(m);
    return true;
}

bool kernel_receive(struct kernel *k, enum kernel_channel channel, struct jupyter_part *parts,
                    size_t *ret_count, size_t *ret_bytes)
{
    void *socket = k->sockets[channel];
    bool more = true;
    size_t bytes = 0;

    let_go(k);
    if (!has_message(socket))
        return false;
    while (more)
        if (!take_part(k, socket, &bytes, &more))
            return false; /* libzmq gives all parts of a message or none */
    *ret_count = MIN(k->taken_count, JUPYTER_PARTS_MAX);
    for (size_t i = 0; i < *ret_count; i++)
        parts[i] = (struct jupyter_part){ zmq_msg_data(&k->taken[i]), zmq_msg_size(&k->taken[i]) };
    *ret_bytes = bytes;
    return true;
}
