/* number.h - the decimal numbers of header fields. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Digits only: no sign, no space, at least one; false also when it does not fit. */
bool number_parse(const char *text, size_t len, uint64_t *ret);
