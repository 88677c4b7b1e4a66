/* params.h - the parameters of a header value: "form-data; name=x; filename=\"a b\"". */
#pragma once

#include "common/error.h"

/*
 * Finds one parameter by name (case-insensitive; the first counts) and copies its value, quoted or not, to
 * out. In a quoted value \" and \\ are escapes, any other backslash is itself, as in a Windows path.
 * ERR_INVALID when a quote is not closed or the value does not fit.
 */
int params_get(const char *header, const char *name, char *out, size_t size, bool *ret_found,
               struct error *err) MUST_CHECK;
