/* listen.h - opens the server's TCP socket. */
#pragma once

#include "common/error.h"

/* host is an address or a name; "::" takes IPv4 too. Gives the port that was bound (port 0 picks a free one).
 */
int listen_tcp(const char *host, uint16_t port, int *ret_fd, uint16_t *ret_port,
               struct error *err) MUST_CHECK;
