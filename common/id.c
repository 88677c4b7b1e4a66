#include "common/id.h"

#include <string.h>
#include <sys/random.h>

#include "common/base.h"

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";
_Static_assert(sizeof alphabet == 65, "64 characters: 6 random bits pick one without bias");

void id_new(char out[ID_SIZE])
{
    unsigned char random[ID_LEN];

    /* getrandom(2): requests of up to 256 bytes are never cut short once the pool is ready. */
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        abort();
    for (size_t i = 0; i < ID_LEN; i++)
        out[i] = alphabet[random[i] & 63];
    out[ID_LEN] = '\0';
}

bool id_valid(const char *s) { return s && strlen(s) == ID_LEN && strspn(s, alphabet) == ID_LEN; }
