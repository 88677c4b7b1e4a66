/* GET /openapi.json: paths from the route table, bodies from the few schemas below. */
#include <string.h>

#include "orchestrator/access/access.h"
#include "orchestrator/api/api.h"

static const char schemas[] =
    "{\"Error\":{\"type\":\"object\",\"required\":[\"error\",\"message\"],\"properties\":{"
    "\"error\":{\"type\":\"string\"},\"message\":{\"type\":\"string\"},\"detail\":{\"type\":\"string\"},"
    "\"retry_after_seconds\":{\"type\":\"integer\"}}},"
    "\"FileRef\":{\"type\":\"object\",\"required\":[\"id\"],\"properties\":{\"id\":{\"type\":\"string\"},"
    "\"name\":{\"type\":\"string\"},\"session_id\":{\"type\":\"string\"},\"storage_session_id\":{\"type\":"
    "\"string\"},\"kind\":{\"type\":\"string\"},\"resource_id\":{\"type\":\"string\"},"
    "\"version\":{\"type\":\"integer\"}}},"
    "\"ExecRequest\":{\"type\":\"object\",\"required\":[\"code\",\"lang\"],\"properties\":{"
    "\"code\":{\"type\":\"string\"},\"lang\":{\"type\":\"string\"},"
    "\"args\":{\"oneOf\":[{\"type\":\"string\"},{\"type\":\"array\",\"items\":{\"type\":\"string\"}},{"
    "\"type\":\"null\"}]},"
    "\"stdin\":{\"type\":\"string\"},\"entity_id\":{\"type\":\"string\",\"pattern\":\"^[A-Za-z0-9_-]{1,64}$"
    "\"},"
    "\"session_id\":{\"type\":\"string\"},\"timeout\":{\"type\":\"integer\",\"minimum\":1,\"description\":"
    "\"ms\"},"
    "\"files\":{\"type\":\"array\",\"maxItems\":256,\"items\":{\"$ref\":\"#/components/schemas/FileRef\"}}}},"
    "\"File\":{\"type\":\"object\",\"properties\":{\"id\":{\"type\":\"string\"},\"fileId\":{\"type\":"
    "\"string\"},"
    "\"name\":{\"type\":\"string\"},\"filename\":{\"type\":\"string\"},\"path\":{\"type\":\"string\"},"
    "\"session_id\":{\"type\":\"string\"},\"storage_session_id\":{\"type\":\"string\"},"
    "\"size\":{\"type\":\"integer\"},\"contentType\":{\"type\":\"string\"},\"sha256\":{\"type\":\"string\"}}}"
    ","
    "\"ExecAnswer\":{\"type\":\"object\",\"properties\":{\"session_id\":{\"type\":\"string\"},"
    "\"stdout\":{\"type\":\"string\"},\"stderr\":{\"type\":\"string\"},\"code\":{\"type\":\"integer\"},"
    "\"signal\":{\"type\":[\"string\",\"null\"]},\"message\":{\"type\":[\"string\",\"null\"]},"
    "\"status\":{\"type\":[\"string\",\"null\"],\"enum\":[null,\"error\",\"TO\",\"OL\",\"OOM\",\"SG\"]},"
    "\"wall_time\":{\"type\":\"integer\"},\"files\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/components/"
    "schemas/File\"}},"
    "\"deleted_files\":{\"type\":\"array\",\"items\":{\"type\":\"string\"}},"
    "\"skipped_files\":{\"type\":\"array\",\"items\":{\"type\":\"object\",\"properties\":{"
    "\"name\":{\"type\":\"string\"},\"reason\":{\"type\":\"string\"}}}},\"run\":{\"type\":\"object\"},"
    "\"language\":{\"type\":\"string\"},\"version\":{\"type\":[\"string\",\"null\"]},"
    "\"runtime_session_id\":{\"type\":\"string\"},\"runtime_status\":{\"type\":\"string\",\"enum\":[\"new\","
    "\"reused\"]},"
    "\"session_restarted\":{\"type\":\"boolean\"}}},"
    "\"Upload\":{\"type\":\"object\",\"properties\":{\"file\":{\"type\":\"string\",\"contentMediaType\":"
    "\"application/octet-stream\"},"
    "\"entity_id\":{\"type\":\"string\"},\"session_id\":{\"type\":\"string\"},\"read_only\":{\"type\":"
    "\"string\"},\"kind\":{\"type\":\"string\",\"enum\":[\"user\",\"agent\",\"skill\"]},\"id\":{"
    "\"type\":\"string\"},\"version\":{\"type\":\"string\"}}},"
    "\"Stored\":{\"type\":\"object\",\"required\":[\"status\",\"filename\"],\"properties\":{"
    "\"status\":{\"type\":\"string\",\"enum\":[\"success\",\"error\"]},\"filename\":{\"type\":\"string\"},"
    "\"error\":{\"type\":\"string\"},\"id\":{\"type\":\"string\"},\"fileId\":{\"type\":\"string\"},"
    "\"name\":{\"type\":\"string\"},\"path\":{\"type\":\"string\"},\"session_id\":{\"type\":\"string\"},"
    "\"storage_session_id\":{\"type\":\"string\"},\"size\":{\"type\":\"integer\"},"
    "\"lastModified\":{\"type\":\"string\",\"format\":\"date-time\"},\"etag\":{\"type\":\"string\"},"
    "\"contentType\":{\"type\":\"string\"},\"sha256\":{\"type\":\"string\"},\"metadata\":{\"type\":"
    "\"object\"}}},"
    "\"UploadAnswer\":{\"type\":\"object\",\"required\":[\"message\",\"files\"],\"properties\":{"
    "\"message\":{\"type\":\"string\",\"enum\":[\"success\",\"partial_success\",\"error\"]},"
    "\"session_id\":{\"type\":\"string\"},\"storage_session_id\":{\"type\":\"string\"},"
    "\"files\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/components/schemas/Stored\"}},"
    "\"succeeded\":{\"type\":\"integer\"},\"failed\":{\"type\":\"integer\"}}},"
    "\"FileInfo\":{\"type\":\"object\",\"required\":[\"name\"],\"properties\":{"
    "\"name\":{\"type\":\"string\"},\"id\":{\"type\":\"string\"},\"fileId\":{\"type\":\"string\"},"
    "\"session_id\":{\"type\":\"string\"},\"storage_session_id\":{\"type\":\"string\"},"
    "\"filename\":{\"type\":\"string\"},\"path\":{\"type\":\"string\"},\"originalFilename\":{"
    "\"type\":\"string\"},\"size\":{\"type\":\"integer\"},"
    "\"lastModified\":{\"type\":\"string\",\"format\":\"date-time\"},\"etag\":{\"type\":\"string\"},"
    "\"contentType\":{\"type\":\"string\"},\"versionId\":{\"type\":\"null\"},"
    "\"readOnly\":{\"type\":\"boolean\"},\"metadata\":{\"type\":\"object\"}}},"
    "\"FileList\":{\"type\":\"array\",\"items\":{\"oneOf\":[{\"type\":\"string\"},{\"$ref\":"
    "\"#/components/schemas/FileInfo\"}]}},"
    "\"Deleted\":{\"type\":\"object\",\"properties\":{\"message\":{\"type\":\"string\"},"
    "\"id\":{\"type\":\"string\"},\"session_id\":{\"type\":\"string\"}}},"
    "\"Session\":{\"type\":\"object\",\"properties\":{\"id\":{\"type\":\"string\"},"
    "\"entity_id\":{\"type\":[\"string\",\"null\"]},"
    "\"state\":{\"type\":\"string\",\"enum\":[\"stored\",\"starting\",\"live\",\"stopping\"]},"
    "\"created\":{\"type\":\"string\"},\"last_used\":{\"type\":\"string\"},"
    "\"last_used_ms\":{\"type\":\"integer\"},\"sandbox_age_seconds\":{\"type\":[\"integer\",\"null\"]},"
    "\"executing\":{\"type\":\"integer\"},\"files\":{\"type\":\"integer\"}}},"
    "\"Sessions\":{\"type\":\"object\",\"properties\":{\"sessions\":{\"type\":\"array\","
    "\"items\":{\"$ref\":\"#/components/schemas/Session\"}}}},"
    "\"Any\":{}}";

struct body_row { /* which schema a route takes and gives; a route without a row gives any JSON */
    const char *method, *pattern;
    const char *request_type, *request;
    const char *response_type, *response;
};

static const struct body_row bodies[] = {
    { "POST", "/exec", "application/json", "ExecRequest", "application/json", "ExecAnswer" },
    { "POST", "/exec/stream", "application/json", "ExecRequest", "text/event-stream", "Any" },
    { "POST", "/upload", "multipart/form-data", "Upload", "application/json", "UploadAnswer" },
    { "POST", "/upload/batch", "multipart/form-data", "Upload", "application/json", "UploadAnswer" },
    { "GET", "/files/{sid}", NULL, NULL, "application/json", "FileList" },
    { "GET", "/files/{sid}/{fid}", NULL, NULL, "application/json", "FileInfo" },
    { "DELETE", "/files/{sid}/{fid}", NULL, NULL, "application/json", "Deleted" },
    { "GET", "/sessions/{sid}/objects/{fid}", NULL, NULL, "application/json", "FileInfo" },
    { "DELETE", "/sessions/{sid}/objects/{fid}", NULL, NULL, "application/json", "Deleted" },
    { "GET", "/download/{sid}/{fid}", NULL, NULL, "application/octet-stream", "Any" },
    { "GET", "/sessions", NULL, NULL, "application/json", "Sessions" },
    { "GET", "/sessions/{sid}", NULL, NULL, "application/json", "Session" },
    { "GET", "/sessions/{sid}/workspace", NULL, NULL, "application/zip", "Any" },
};

static const struct body_row *find_body(const struct http_route *route)
{
    for (size_t i = 0; i < ARRAY_LEN(bodies); i++)
        if (strcmp(bodies[i].method, route->method) == 0 && strcmp(bodies[i].pattern, route->pattern) == 0)
            return &bodies[i];
    return NULL;
}

static json_t *content(const char *type, const char *schema)
{
    auto_free char *ref = xasprintf("#/components/schemas/%s", schema);

    return json_pack("{s:{s:{s:s}}}", type, "schema", "$ref", ref);
}

static json_t *parameters(const char *pattern)
{
    json_t *list = json_array();

    for (const char *p = strchr(pattern, '{'); p; p = strchr(p + 1, '{'))
        (void)json_array_append_new(list,
                                    json_pack("{s:s%, s:s, s:b, s:{s:s}}", "name", p + 1, strcspn(p + 1, "}"),
                                              "in", "path", "required", 1, "schema", "type", "string"));
    return list;
}

static json_t *operation(const struct http_route *route)
{
    const struct body_row *b = find_body(route);
    json_t *op = json_pack(
        "{s:s, s:o, s:{s:{s:s, s:o}, s:{s:s, s:o}}}", "summary", route->summary, "parameters",
        parameters(route->pattern), "responses", "200", "description", "done", "content",
        content(b ? b->response_type : "application/json", b ? b->response : "Any"), "default", "description",
        "refused or failed", "content", content("application/json", "Error"));

    if (b && b->request)
        (void)json_object_set_new(
            op, "requestBody",
            json_pack("{s:b, s:o}", "required", 1, "content", content(b->request_type, b->request)));
    if (route->auth == HTTP_AUTH_NONE)
        (void)json_object_set_new(op, "security", json_array());
    return op;
}

static json_t *paths(void)
{
    size_t n = 0;
    const struct http_route *routes = api_routes(&n);
    json_t *all = json_object();

    for (size_t i = 0; i < n; i++) {
        char method[8] = "";
        json_t *path = json_object_get(all, routes[i].pattern);
        if (!path) {
            path = json_object();
            (void)json_object_set_new(all, routes[i].pattern, path);
        }
        for (size_t c = 0; c + 1 < sizeof method && routes[i].method[c]; c++)
            method[c] = (char)(routes[i].method[c] | 0x20);
        (void)json_object_set_new(path, method, operation(&routes[i]));
    }
    return all;
}

int api_openapi(struct app *app, struct http_request *req, struct http_response *res, struct error *err)
{
    json_t *types = NULL;

    (void)req;
    if (jsonx_parse(schemas, sizeof schemas - 1, &types, err) < 0)
        return error_set(err, ERR_INTERNAL, "the schemas do not parse");
    json_t *doc = json_pack(
        "{s:s, s:{s:s, s:s, s:{s:s}}, s:[{s:s}, {s:s}], s:o, s:{s:o, s:{s:{s:s, s:s, s:s}, s:{s:s, s:s}}}}",
        "openapi", "3.1.0", "info", "title", "Carrel", "version", CARREL_VERSION, "license", "name", "MIT",
        "servers", "url", "/", "url", "/v1", "paths", paths(), "components", "schemas", types,
        "securitySchemes", "key", "type", "apiKey", "in", "header", "name", "X-API-Key", "bearer", "type",
        "http", "scheme", "bearer");
    if (!access_is_open(app->access))
        (void)json_object_set_new(doc, "security", json_pack("[{s:[]}, {s:[]}]", "key", "bearer"));
    http_response_json(res, 200, doc);
    return 0;
}
