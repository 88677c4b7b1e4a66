/* percent.h - percent-encoding of URLs and header parameters (RFC 3986, RFC 8187). */
#pragma once

#include <stddef.h>

/* Decodes len bytes into out, which may be the input itself and holds len bytes. Bad escapes stay as they
 * are. */
size_t percent_decode(char *out, const char *in, size_t len);

/* Escapes everything but the attr-char of RFC 8187, which is a subset of what URLs allow. The caller frees.
 */
char *percent_encode(const char *text);
