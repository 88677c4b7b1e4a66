#include "orchestrator/http/number.h"

bool number_parse(const char *text, size_t len, uint64_t *ret)
{
    uint64_t n = 0;

    for (size_t i = 0; i < len; i++)
        if (text[i] < '0' || text[i] > '9' || __builtin_mul_overflow(n, (uint64_t)10, &n) ||
            __builtin_add_overflow(n, (uint64_t)(text[i] - '0'), &n))
            return false;
    if (len > 0)
        *ret = n;
    return len > 0;
}
