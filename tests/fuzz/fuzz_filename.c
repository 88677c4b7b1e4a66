/* fuzz: files - names of uploads and references, as clients send them */
#include <assert.h>
#include <string.h>

#include "orchestrator/files/store.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What an accepted name promises to everything that makes a path of it. */
static void check(const char *path)
{
    struct error err = { 0 };
    auto_free char *again = NULL;

    assert(strlen(path) <= FILE_NAME_MAX && !strchr(path, '\\') && path[0] != '/');
    for (const char *s = path; *s; s += s[strcspn(s, "/")] ? strcspn(s, "/") + 1 : strcspn(s, "/")) {
        size_t len = strcspn(s, "/");
        assert(len > 0 && len <= FILE_SEGMENT_MAX);
        assert(strncmp(s, "..", len) != 0 || len > 2);
    }
    assert(path[strlen(path) - 1] != '/');
    int result = file_name_check(path, &again, &err);
    assert(result == 0 && str_eq(again, path));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct error err = { 0 };
    auto_free char *path = NULL;

    auto_free char *name = xstrndup((const char *)data, size);
    if (file_name_check(name, &path, &err) == 0)
        check(path);
    else
        assert(err.kind == ERR_INVALID && !path);
    return 0;
}
