/* id.h - unguessable identifiers: 21 characters of [A-Za-z0-9_-], 126 bits of getrandom(2). libc only. */
#pragma once

#include <stdbool.h>

#define ID_LEN 21
#define ID_SIZE (ID_LEN + 1)

void id_new(char out[ID_SIZE]);
bool id_valid(const char *s); /* exactly 21 characters of the alphabet; NULL is not */
