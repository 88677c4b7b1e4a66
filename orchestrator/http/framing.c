#include "orchestrator/http/framing.h"

#include <string.h>
#include <strings.h>

#include "orchestrator/http/number.h"

static bool is_token_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c != '\0' && strchr("!#$%&'*+-.^_`|~", c));
}

static bool is_control(char c) { return ((unsigned char)c < 0x20 && c != '\t') || c == 0x7f; }

int framing_check_field(const char *name, size_t name_len, const char *value, size_t value_len,
                        struct error *err)
{
    for (size_t i = 0; i < name_len; i++)
        if (!is_token_char(name[i]))
            return error_set(err, ERR_INVALID, "a header name has a character that is not allowed");
    if (name_len == 0)
        return error_set(err, ERR_INVALID, "a header has no name");
    for (size_t i = 0; i < value_len; i++)
        if (is_control(value[i]))
            return error_set(err, ERR_INVALID, "%.40s: control characters are not allowed", name);
    return 0;
}

/* Gives how many fields have that name, and the value of the last. */
static size_t count(const struct http_request *req, const char *name, const char **ret_value)
{
    size_t n = 0;

    for (size_t i = 0; i < req->headers.count; i++)
        if (strcasecmp(req->headers.items[i].name, name) == 0) {
            *ret_value = req->headers.items[i].value;
            n++;
        }
    return n;
}

static int check_target(const char *target, struct error *err)
{
    for (const char *p = target; *p; p++)
        if (is_control(*p) || *p == ' ' || *p == '\t')
            return error_set(err, ERR_INVALID, "the request target has a space or control character");
    return 0;
}

int framing_check(const struct http_request *req, const char *version, uint64_t *ret_body, struct error *err)
{
    const char *host = NULL, *length = NULL, *encoding = NULL;
    size_t hosts = count(req, "Host", &host);
    size_t lengths = count(req, "Content-Length", &length);
    size_t encodings = count(req, "Transfer-Encoding", &encoding);
    bool http11 = strcmp(version, "HTTP/1.1") == 0;
    uint64_t body = 0;

    if (!http11 && strcmp(version, "HTTP/1.0") != 0)
        return error_set(err, ERR_INVALID, "expected HTTP/1.1 or HTTP/1.0");
    if (check_target(req->target, err) < 0)
        return -1;
    if (hosts > 1 || (hosts == 0 && http11))
        return error_set(err, ERR_INVALID, "Host: expected exactly one");
    if (lengths > 1 || (length && !number_parse(length, strlen(length), &body)))
        return error_set(err, ERR_INVALID, "Content-Length: expected one number");
    if (!encoding) {
        *ret_body = body;
        return 0;
    }
    if (encodings > 1 || strcasecmp(encoding, "chunked") != 0)
        return error_set(err, ERR_INVALID, "Transfer-Encoding: expected chunked and nothing else");
    if (length || !http11)
        return error_set(err, ERR_INVALID, "Transfer-Encoding: not with Content-Length, nor before HTTP/1.1");
    *ret_body = FRAMING_UNKNOWN;
    return 0;
}
