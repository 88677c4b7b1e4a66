#include <stdint.h>
#include <string.h>

#include "orchestrator/files/store.h"

#define WORKSPACE_PREFIX "mnt/data/"

/* Length of the UTF-8 sequence at s, or 0: overlong forms, surrogates and what lies beyond U+10FFFF are none.
 */
static size_t utf8_length(const unsigned char *s)
{
    static const struct {
        unsigned char lead_min, lead_max, second_min, second_max;
        size_t length;
    } forms[] = {
        { 0x01, 0x7f, 0, 0, 1 },       { 0xc2, 0xdf, 0x80, 0xbf, 2 }, { 0xe0, 0xe0, 0xa0, 0xbf, 3 },
        { 0xe1, 0xec, 0x80, 0xbf, 3 }, { 0xed, 0xed, 0x80, 0x9f, 3 }, { 0xee, 0xef, 0x80, 0xbf, 3 },
        { 0xf0, 0xf0, 0x90, 0xbf, 4 }, { 0xf1, 0xf3, 0x80, 0xbf, 4 }, { 0xf4, 0xf4, 0x80, 0x8f, 4 },
    };

    for (size_t i = 0; i < ARRAY_LEN(forms); i++) {
        if (s[0] < forms[i].lead_min || s[0] > forms[i].lead_max)
            continue;
        if (forms[i].length > 1 && (s[1] < forms[i].second_min || s[1] > forms[i].second_max))
            return 0;
        for (size_t k = 2; k < forms[i].length; k++) {
            if (s[k] < 0x80 || s[k] > 0xbf)
                return 0;
        }
        return forms[i].length;
    }
    return 0;
}

static bool is_utf8(const char *s)
{
    const unsigned char *p = (const unsigned char *)s;

    while (*p) {
        size_t n = utf8_length(p);
        if (n == 0)
            return false;
        p += n;
    }
    return true;
}

static int check_segment(const char *s, size_t len, struct error *err)
{
    if (len == 0)
        return error_set(err, ERR_INVALID, "file name: has an empty part");
    if (len > FILE_SEGMENT_MAX)
        return error_set(err, ERR_INVALID, "file name: a part is longer than %d bytes", FILE_SEGMENT_MAX);
    if ((len == 1 && s[0] == '.') || (len == 2 && s[0] == '.' && s[1] == '.'))
        return error_set(err, ERR_INVALID, "file name: must not contain \".\" or \"..\" as a part");
    return 0;
}

int file_name_check(const char *name, char **ret, struct error *err)
{
    const char *path = name;
    size_t segments = 0;

    if (strnlen(path, FILE_NAME_MAX + sizeof "/" WORKSPACE_PREFIX) >
        FILE_NAME_MAX + strlen("/" WORKSPACE_PREFIX))
        return error_set(err, ERR_INVALID, "file name: longer than %d bytes", FILE_NAME_MAX);
    if (!is_utf8(path))
        return error_set(err, ERR_INVALID, "file name: is not UTF-8");
    if (strchr(path, '\\'))
        return error_set(err, ERR_INVALID, "file name: must not contain a backslash");
    if (str_starts(path, "/" WORKSPACE_PREFIX))
        path++;
    if (str_starts(path, WORKSPACE_PREFIX))
        path += strlen(WORKSPACE_PREFIX);
    /* What is left must mean the same when a client sends it back. */
    if (str_starts(path, WORKSPACE_PREFIX) || str_eq(path, "mnt/data"))
        return error_set(err, ERR_INVALID, "file name: must not begin with mnt/data inside the workspace");
    if (strlen(path) > FILE_NAME_MAX)
        return error_set(err, ERR_INVALID, "file name: longer than %d bytes", FILE_NAME_MAX);
    for (const char *s = path;; s++) {
        size_t len = strcspn(s, "/");
        if (check_segment(s, len, err) < 0)
            return -1;
        if (++segments > FILE_SEGMENTS_MAX)
            return error_set(err, ERR_INVALID, "file name: more than %d directories deep",
                             FILE_SEGMENTS_MAX - 1);
        s += len;
        if (!*s)
            break;
    }
    *ret = xstrdup(path);
    return 0;
}
