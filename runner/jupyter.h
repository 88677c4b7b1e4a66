/*
 * jupyter.h - the Jupyter messages the runner sends and understands. Everything that comes from a kernel is
 * hostile: user code owns the kernel's process. Nothing here does I/O.
 */
#pragma once

#include "common/json/jsonx.h"

#define JUPYTER_PARTS_MAX 16
#define JUPYTER_ID_SIZE 64
#define JUPYTER_HEAD_MAX ((size_t)64 * 1024)           /* of a header or parent header */
#define JUPYTER_CONTENT_MAX ((size_t)64 * 1024 * 1024) /* parsed as a whole */

struct jupyter_part { /* one part of a multipart message, borrowed */
    const char *data;
    size_t len;
};

enum jupyter_type {
    JUPYTER_OTHER, /* not for us, or nonsense */
    JUPYTER_STATUS,
    JUPYTER_STREAM,
    JUPYTER_EXECUTE_RESULT,
    JUPYTER_DISPLAY_DATA,
    JUPYTER_ERROR,
    JUPYTER_EXECUTE_REPLY,
    JUPYTER_KERNEL_INFO_REPLY,
};

/* What can be said of a message before its content, which may be large, is looked at. */
struct jupyter_head {
    enum jupyter_type type;
    char parent[JUPYTER_ID_SIZE]; /* msg_id of the request it answers; "" when it has none we could have sent
                                   */
    struct jupyter_part content;
};

/* Never fails: what makes no sense has type OTHER. */
void jupyter_read_head(const struct jupyter_part *parts, size_t count, struct jupyter_head *ret);
/* The content, repaired where it is not UTF-8. ERR_INVALID, or ERR_LIMIT past JUPYTER_CONTENT_MAX. */
int jupyter_read_content(const struct jupyter_head *h, json_t **ret, struct error *err) MUST_CHECK;

struct jupyter_stream {
    bool is_stderr;
    struct jsonx_span text; /* borrowed from the content */
};
bool jupyter_read_stream(json_t *content, struct jupyter_stream *ret);
/* The begin of a stream message too large to be parsed, of at most max bytes, as a content of its own. */
int jupyter_read_stream_begin(const struct jupyter_head *h, size_t max, json_t **ret,
                              struct error *err) MUST_CHECK;

bool jupyter_is_idle(json_t *status_content);

struct jupyter_reply { /* of an execute_request; texts borrowed from the content */
    enum { JUPYTER_OK, JUPYTER_FAILED, JUPYTER_ABORTED } status;
    const char *ename, *evalue; /* FAILED; never NULL */
    bool leaving;               /* a plain IPython was told to exit: the kernel ends a moment later */
};
void jupyter_read_reply(json_t *content, struct jupyter_reply *ret);
/* What SystemExit's argument means: 0 for none, a number as it is, else 1 and the text is for stderr
 * (*ret_text). */
int jupyter_exit_code(const char *evalue, const char **ret_text);

struct jupyter_error {
    const char *ename, *evalue; /* never NULL */
    json_t *traceback;          /* new array of strings, free of escapes; the caller's */
};
void jupyter_read_error(json_t *content, struct jupyter_error *ret);

/* ---- what is sent ---- */

struct jupyter_request { /* the four JSON parts; owned */
    char *parts[4];
};
void jupyter_kernel_info(const char *session, const char *msg_id, struct jupyter_request *ret);
/* args NULL: none. input.data NULL: none. */
void jupyter_execute(const char *session, const char *msg_id, const struct jsonx_span *code, json_t *args,
                     const struct jsonx_span *input, struct jupyter_request *ret);
void jupyter_request_done(struct jupyter_request *q);
/* The connection file of a kernel whose sockets are dir/k-1 ... k-5. The caller frees. */
char *jupyter_connection(const char *dir);

/* Appends the text without terminal escapes (CSI, OSC and two-character ones). */
int jupyter_strip_escapes(const char *text, size_t len, struct buf *out, struct error *err) MUST_CHECK;
