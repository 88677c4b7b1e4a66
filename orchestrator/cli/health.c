/* carrel health: one GET /health of the service that these settings describe. */
#include <inttypes.h>
#include <stdio.h>

#include "orchestrator/cli/cli.h"
#include "orchestrator/config.h"
#include "orchestrator/http/client.h"

#define TIMEOUT_MS 5000

/* A service that listens everywhere is asked on loopback. */
static const char *reachable(const char *host)
{
    return str_eq(host, "0.0.0.0") ? "127.0.0.1" : str_eq(host, "::") ? "[::1]" : host;
}

int cli_health(int argc, char **argv)
{
    struct config cfg;
    struct error err = { 0 };
    auto_reply struct http_reply reply = { 0 };

    (void)argc, (void)argv;
    if (config_load(&cfg, &err) < 0 || http_client_setup(&err) < 0) {
        fprintf(stderr, "carrel health: %s\n", err.msg);
        return 2;
    }
    auto_free char *url = xasprintf("http://%s:%" PRId64, reachable(cfg.host), cfg.port);
    const struct http_endpoint to = { .base_url = url };
    const struct http_call call = { .method = "GET", .path = "/health", .timeout_ms = TIMEOUT_MS };
    int r = http_client(&to, &call, &reply, &err);
    if (r == 0)
        printf("%s\n", reply.body.data ? reply.body.data : "");
    else
        fprintf(stderr, "carrel health: %s\n", err.msg);
    config_done(&cfg);
    http_client_teardown();
    return r == 0 ? 0 : 1;
}
