#include "orchestrator/http/percent.h"

#include <string.h>

#include "common/base.h"

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

size_t percent_decode(char *out, const char *in, size_t len)
{
    size_t n = 0;

    for (size_t i = 0; i < len; i++) {
        int hi = in[i] == '%' && len - i > 2 ? hex_digit(in[i + 1]) : -1;
        int lo = hi >= 0 ? hex_digit(in[i + 2]) : -1;
        if (lo >= 0) {
            out[n++] = (char)(hi * 16 + lo);
            i += 2;
        } else {
            out[n++] = in[i];
        }
    }
    return n;
}

static bool is_attr_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c != '\0' && strchr("!#$&+-.^_`|~", c));
}

char *percent_encode(const char *text)
{
    static const char digits[] = "0123456789ABCDEF";
    char *out = xcalloc(strlen(text) * 3 + 1, 1), *to = out;

    for (const char *p = text; *p; p++) {
        if (is_attr_char(*p)) {
            *to++ = *p;
            continue;
        }
        *to++ = '%';
        *to++ = digits[(unsigned char)*p >> 4];
        *to++ = digits[(unsigned char)*p & 15];
    }
    return out;
}
