#include "orchestrator/http/params.h"

#include <string.h>
#include <strings.h>

/* Copies the value at *at to out, or skips it when out is NULL. */
static int read_value(const char **at, const char *name, char *out, size_t size, struct error *err)
{
    const char *p = *at;
    bool quoted = *p == '"';
    size_t n = 0;

    if (quoted)
        p++;
    for (; quoted ? *p != '"' : (*p && *p != ';'); p++) {
        if (*p == '\0')
            return error_set(err, ERR_INVALID, "a quoted header parameter is not closed");
        if (quoted && *p == '\\' && (p[1] == '"' || p[1] == '\\'))
            p++;
        if (!out)
            continue;
        if (n + 1 >= size)
            return error_set(err, ERR_INVALID, "%s: longer than %zu bytes", name, size - 1);
        out[n++] = *p;
    }
    while (!quoted && n > 0 && (out[n - 1] == ' ' || out[n - 1] == '\t'))
        n--;
    if (out)
        out[n] = '\0';
    *at = p;
    return 0;
}

int params_get(const char *header, const char *name, char *out, size_t size, bool *ret_found,
               struct error *err)
{
    const char *p = header + strcspn(header, ";");

    while (*p == ';') {
        p += strspn(p, "; \t");
        size_t key_len = strcspn(p, "=; \t");
        const char *eq = p + key_len + strspn(p + key_len, " \t");
        if (*eq != '=') { /* a word without a value */
            p += strcspn(p, ";");
            continue;
        }
        bool wanted = key_len == strlen(name) && strncasecmp(p, name, key_len) == 0;
        p = eq + 1;
        p += strspn(p, " \t");
        if (read_value(&p, name, wanted ? out : NULL, size, err) < 0)
            return -1;
        if (wanted) {
            *ret_found = true;
            return 0;
        }
        p += strcspn(p, ";");
    }
    *ret_found = false;
    return 0;
}
