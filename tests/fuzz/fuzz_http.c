/* fuzz: http - a request head as data: target, query and headers through framing, dispatch and file answers.
 */
#include <assert.h>
#include <string.h>
#include <sys/mman.h>

#include "orchestrator/http/content.h"
#include "orchestrator/http/framing.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define FILE_BYTES 1000

static int h_any(struct app *app, struct http_request *req, struct http_response *res, struct error *err)
{
    (void)app, (void)err;
    for (size_t i = 0; i < HTTP_MAX_PARAMS; i++)
        if (req->params[i])
            assert(req->params[i][0] != '\0' && !strchr(req->params[i], '/'));
    http_response_json(res, 200, json_pack("{s:O?}", "body", req->body));
    return 0;
}

static int h_file(struct app *app, struct http_request *req, struct http_response *res, struct error *err)
{
    (void)app, (void)err;
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    content_file_response(req, res, fd, FILE_BYTES, req->params[0], content_type_of(req->params[0]), "0a1b");
    if (res->file_fd >= 0)
        assert(res->file_len > 0 && res->file_offset + res->file_len <= FILE_BYTES);
    return 0;
}

static const struct http_route routes[] = {
    { .method = "GET", .pattern = "/", .handler = h_any },
    { .method = "POST", .pattern = "/exec", .handler = h_any, .json_body = true },
    { .method = "GET", .pattern = "/files/{sid}", .handler = h_file },
    { .method = "GET", .pattern = "/files/{sid}/{fid}", .handler = h_any },
    { .method = "DELETE", .pattern = "/files/{sid}/{fid}", .handler = h_any },
    { .method = "GET", .pattern = "/files/{sid}/literal", .handler = h_any },
};

static const struct http_service service = {
    .routes = routes,
    .route_count = ARRAY_LEN(routes),
    .max_json_bytes = 4096,
};

/* Cuts the next line off *text; "" at the end. */
static char *next_line(char **text)
{
    char *line = *text;
    size_t len = strcspn(line, "\n");

    *text = line + len + (line[len] == '\n');
    line[len] = '\0';
    return line;
}

static void check(const struct http_response *res)
{
    assert(res->status >= 200 && res->status < 600);
    assert((res->status == 404 || res->status == 405) <= (res->json != NULL));
    for (size_t i = 0; i < res->headers.count; i++) {
        const char *value = res->headers.items[i].value;
        assert(framing_check_field("X", 1, value, strlen(value), &(struct error){ 0 }) == 0);
    }
    if (res->json)
        free(jsonx_dump(res->json, NULL));
}

/* Input: lines of method, target, version, then "name:value" headers up to an empty line, then the body. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    auto_free char *text = xstrndup((const char *)data, size);
    struct http_request req = { .client_fd = -1 };
    struct http_response res;
    struct error err;
    char *at = text;
    uint64_t body_size;

    req.method = next_line(&at);
    char *target = next_line(&at);
    const char *version = next_line(&at);
    char *query = strchr(target, '?');
    if (query)
        *query++ = '\0';
    req.target = target;
    bool good = http_query_parse(query ? query : "", &req.query, &err) == 0;
    for (char *line = next_line(&at); good && *line; line = next_line(&at)) {
        char *value = strchr(line, ':');
        if (value)
            *value++ = '\0';
        else
            value = line + strlen(line);
        good = framing_check_field(line, strlen(line), value, strlen(value), &err) == 0 &&
               http_fields_add(&req.headers, line, value, &err) == 0;
    }
    if (good) {
        IGNORE(framing_check(&req, version, &body_size, &err));
        http_dispatch(&service, &req, at, strlen(at), &res);
        check(&res);
        http_response_done(&res);
    }
    http_request_done(&service, NULL, &req);
    return 0;
}
