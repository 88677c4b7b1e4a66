#include <stdio.h>
#include <string.h>

#include "common/clock.h"
#include "runner/jupyter.h"

static char *header(const char *session, const char *msg_id, const char *type)
{
    char date[CLOCK_ISO_SIZE];

    clock_iso(clock_real_ms(), date);
    json_auto_t *h = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s}", "msg_id", msg_id, "session", session,
                               "username", "sandbox", "date", date, "msg_type", type, "version", "5.3");
    return jsonx_dump(h, NULL);
}

void jupyter_kernel_info(const char *session, const char *msg_id, struct jupyter_request *ret)
{
    *ret = (struct jupyter_request){ { header(session, msg_id, "kernel_info_request"), xstrdup("{}"),
                                       xstrdup("{}"), xstrdup("{}") } };
}

void jupyter_execute(const char *session, const char *msg_id, const struct jsonx_span *code, json_t *args,
                     const struct jsonx_span *input, struct jupyter_request *ret)
{
    json_auto_t *metadata = json_pack("{s:o, s:o}", "argv", args ? json_incref(args) : json_array(), "stdin",
                                      input->data ? jsonx_text(input->data, input->len) : json_null());
    /* stop_on_error would also abort what comes after, whatever it asks for itself. */
    json_auto_t *content = json_pack("{s:o, s:b, s:b, s:{}, s:b, s:b}", "code",
                                     jsonx_text(code->data, code->len), "silent", 0, "store_history", 1,
                                     "user_expressions", "allow_stdin", 0, "stop_on_error", 0);

    *ret = (struct jupyter_request){ { header(session, msg_id, "execute_request"), xstrdup("{}"),
                                       jsonx_dump(metadata, NULL), jsonx_dump(content, NULL) } };
}

void jupyter_request_done(struct jupyter_request *q)
{
    for (size_t i = 0; i < ARRAY_LEN(q->parts); i++)
        free(q->parts[i]);
    *q = (struct jupyter_request){ 0 };
}

char *jupyter_connection(const char *dir)
{
    auto_free char *ip = xasprintf("%s/k", dir);
    json_auto_t *doc = json_pack("{s:s, s:o, s:i, s:i, s:i, s:i, s:i, s:s, s:s}", "transport", "ipc", "ip",
                                 jsonx_str(ip), "shell_port", 1, "iopub_port", 2, "stdin_port", 3,
                                 "control_port", 4, "hb_port", 5, "key", "", "signature_scheme",
                                 "hmac-sha256");

    return jsonx_dump(doc, NULL);
}

/* Bytes of the escape sequence at p, which begins with ESC. */
static size_t escape_length(const char *p, const char *end)
{
    const char *q = p + 1;

    if (q == end)
        return 1;
    if (*q == '[') { /* CSI: parameters, then one letter */
        for (q++; q < end && (unsigned char)*q >= 0x20 && (unsigned char)*q < 0x40; q++)
            continue;
        return (size_t)(q - p) + (q < end);
    }
    if (*q == ']') { /* OSC: up to BEL or ESC backslash */
        for (q++; q < end && *q != '\a' && *q != '\033'; q++)
            continue;
        return (size_t)(q - p) + (q < end ? (*q == '\a' ? 1 : 2) : 0);
    }
    return 2;
}

int jupyter_strip_escapes(const char *text, size_t len, struct buf *out, struct error *err)
{
    const char *p = text, *end = text + len;

    while (p < end) {
        const char *esc = memchr(p, '\033', (size_t)(end - p));
        size_t plain = (size_t)((esc ? esc : end) - p);
        if (buf_add(out, p, plain, err) < 0)
            return -1;
        p += plain;
        if (esc)
            p += MIN(escape_length(esc, end), (size_t)(end - esc));
    }
    return 0;
}
