#include "orchestrator/api/api.h"

static const struct http_route routes[] = {
    { "POST", "/exec", api_exec, .json_body = true,
      .summary = "Run a program and answer when it has ended." },
    { "POST", "/exec/stream", api_exec_stream, .json_body = true,
      .summary = "Run a program and send its output as server-sent events." },
    { "POST", "/upload", api_upload, .sink = &api_upload_sink,
      .summary = "Store files (multipart/form-data, parts file or files)." },
    { "POST", "/upload/batch", api_upload_batch, .sink = &api_upload_batch_sink,
      .summary = "Store many files (multipart/form-data); each succeeds or fails by itself." },
    { "GET", "/files/{sid}", api_files_list,
      .summary = "List the files of a session, oldest first (?detail=simple|summary|full|normalized)." },
    { "GET", "/files/{sid}/{fid}", api_files_get, .summary = "What is known about a file." },
    { "DELETE", "/files/{sid}/{fid}", api_files_delete, .summary = "Delete a file." },
    { "GET", "/sessions/{sid}/objects/{fid}", api_files_get, .summary = "What is known about a file." },
    { "DELETE", "/sessions/{sid}/objects/{fid}", api_files_delete, .summary = "Delete a file." },
    { "GET", "/download/{sid}/{fid}", api_download, .summary = "The bytes of a file." },
    { "GET", "/health", api_health, .auth = HTTP_AUTH_NONE,
      .summary = "Whether programs can be run, and why not." },
    { "GET", "/libraries", api_libraries, .summary = "What the sandbox image contains." },
    { "GET", "/openapi.json", api_openapi, .auth = HTTP_AUTH_NONE,
      .summary = "This interface, as OpenAPI 3.1." },
    { "GET", "/", api_index, .auth = HTTP_AUTH_NONE, .summary = "Name, version and routes." },
    { "GET", "/sessions", api_sessions_list,
      .summary = "Your sessions, newest use first; ?before=<ms> gives older ones." },
    { "GET", "/sessions/{sid}", api_session_get, .summary = "What a session is doing." },
    { "DELETE", "/sessions/{sid}", api_session_delete,
      .summary = "End a session's executions and sandbox; ?files=true removes its files and itself." },
    { "POST", "/sessions/{sid}/interrupt", api_session_interrupt,
      .summary = "Cancel the session's executions; Python variables stay." },
    { "POST", "/sessions/{sid}/restart", api_session_restart,
      .summary = "Give the session a new sandbox at its next call; Python variables are lost." },
    { "GET", "/sessions/{sid}/workspace", api_session_workspace,
      .summary = "All files of the workspace, as ?format=zip (default) or tar.gz." },
};

const struct http_route *api_routes(size_t *ret_count)
{
    *ret_count = ARRAY_LEN(routes);
    return routes;
}
