#include "orchestrator/config.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

enum config_type { CONFIG_INT, CONFIG_REAL, CONFIG_BOOL, CONFIG_STRING, CONFIG_SECRET };
static const char *const type_names[] = { "integer", "number", "true or false", "text", "secret text" };

struct config_row {
    const char *env;
    enum config_type type;
    size_t offset;
    const char *fallback; /* parsed by the same code as the environment's value */
    int64_t min, max;     /* INT and REAL */
    bool common;          /* in the README's table too */
    const char *doc;
};

/* The _Generic makes a row whose kind does not fit the member's type a compile error. */
#define FIELD(type, f) (offsetof(struct config, f) + 0 * sizeof(_Generic(((struct config *)0)->f, type : 1)))
#define ROW(env, kind, ctype, f, def, lo, hi, common, doc)                                                   \
    {                                                                                                        \
        env, kind, FIELD(ctype, f), def, lo, hi, common, doc                                                 \
    }
#define INT(env, f, def, lo, hi, doc) ROW(env, CONFIG_INT, int64_t, f, #def, lo, hi, false, doc)
#define COMMON_INT(env, f, def, lo, hi, doc) ROW(env, CONFIG_INT, int64_t, f, #def, lo, hi, true, doc)
#define REAL(env, f, def, lo, hi, doc) ROW(env, CONFIG_REAL, double, f, #def, lo, hi, true, doc)
#define BOOL(env, f, def, doc) ROW(env, CONFIG_BOOL, bool, f, #def, 0, 0, false, doc)
#define STRING(env, f, def, doc) ROW(env, CONFIG_STRING, char *, f, def, 0, 0, false, doc)
#define COMMON_STRING(env, f, def, doc) ROW(env, CONFIG_STRING, char *, f, def, 0, 0, true, doc)
#define SECRET(env, f, doc) ROW(env, CONFIG_SECRET, char *, f, "", 0, 0, true, doc)

static const struct config_row rows[] = {
    COMMON_STRING("HOST", host, "127.0.0.1",
                  "Address to listen on. Beyond loopback a key or AUTH=none is needed."),
    COMMON_INT("PORT", port, 8000, 0, 65535, "TCP port; 0 picks a free one."),
    SECRET("CODE_INTERPRETER_API_KEY", api_key,
           "Key that clients send as X-API-Key. Without it, a keys file and a JWT key the server is open."),
    STRING("API_KEYS_FILE", api_keys_file, "",
           "JSON file of several hashed keys with tenant and role; `docs/AUTHENTICATION.md` has the format."),
    STRING("CODEAPI_JWT_PUBLIC_KEY", jwt_public_key, "",
           "Public key (Ed25519 or RSA) of LibreChat's tokens: PEM, with \\n for line ends or in base64."),
    STRING("CODEAPI_JWT_KID", jwt_kid, "lc-codeapi-2026-05",
           "Key id of that key, and of a JWK that has none; the default is LibreChat's."),
    STRING("CODEAPI_JWT_JWKS_JSON", jwt_jwks_json, "", "Several public keys as a JSON Web Key Set."),
    STRING("CODEAPI_JWT_PUBLIC_KEYS_DIR", jwt_keys_dir, "",
           "Directory of public keys, `<kid>.pem` or `<kid>.json` (a JWK)."),
    STRING("CODEAPI_JWT_ISSUER", jwt_issuer, "librechat", "The `iss` that tokens must have."),
    STRING("CODEAPI_JWT_AUDIENCE", jwt_audience, "codeapi", "The `aud` that tokens must have."),
    STRING("AUTH", auth, "auto",
           "auto: credentials when any are set, else open on loopback only. none: open on purpose, on a "
           "private network."),
    STRING("ALLOWED_HOSTS", allowed_hosts, "",
           "Further Host names an open server on loopback answers to, comma separated."),
    STRING(
        "CORS_ALLOW_ORIGINS", cors_origins, "*",
        "Origins browsers may call from when a key is needed, comma separated. An open server allows none."),
    COMMON_STRING("DATA_DIR", data_dir, "/var/lib/carrel",
                  "Database, files, workspaces. One service per directory."),
    STRING("UPLOADS_DIR", uploads_dir, "", "Moves files and workspaces out of DATA_DIR; one filesystem."),
    STRING("DOCKER_HOST", docker_host, "",
           "unix:///path or tcp://host:port of the engine; not set: the usual sockets."),
    STRING("SANDBOX_IMAGE", sandbox_image, "carrel-sandbox:latest", "Image that sandboxes run."),
    STRING("SANDBOX_RUNTIME", sandbox_runtime, "",
           "Container runtime, such as runsc; not set: the engine's default."),
    COMMON_INT("SANDBOX_MEMORY_MB", sandbox_memory_mb, 1024, 128, 1048576,
               "Memory of a sandbox, without swap."),
    REAL("SANDBOX_CPUS", sandbox_cpus, 1.0, 0, 1024, "CPUs a sandbox may use."),
    INT("SANDBOX_PIDS", sandbox_pids, 256, 32, 32768, "Processes and threads of a sandbox."),
    INT("SANDBOX_TMP_MB", sandbox_tmp_mb, 256, 16, 1048576, "Size of /tmp, in memory."),
    INT("SANDBOX_SHM_MB", sandbox_shm_mb, 256, 1, 1048576, "Size of /dev/shm, in memory."),
    STRING("SANDBOX_UIDS", sandbox_uids, "200000-265535",
           "Range from which a service that runs as root gives each sandbox a user id of its own."),
    COMMON_INT("MAX_SESSIONS", max_sessions, 50, 1, 10000,
               "Live sessions. One more evicts the least recently used idle one; its files stay."),
    INT("SESSION_IDLE_SECONDS", session_idle_s, 3600, 1, 31536000,
        "A session idle that long loses its sandbox."),
    INT("ANONYMOUS_IDLE_SECONDS", anonymous_idle_s, 120, 1, 31536000,
        "The same for sessions without entity_id."),
    COMMON_INT("EXECUTION_TIMEOUT", execution_timeout_s, 300, 1, 86400, "Seconds a program may run."),
    INT("COMPILE_TIMEOUT", compile_timeout_s, 60, 1, 3600, "Seconds a compiler may run."),
    INT("QUEUE_WAIT_SECONDS", queue_wait_s, 10, 0, 3600,
        "How long a call waits for a sandbox when all are busy."),
    INT("SESSION_QUEUE_MAX", session_queue_max, 16, 0, 10000, "Python executions waiting in one session."),
    INT("EXEC_KEEPALIVE_SECONDS", keepalive_s, 15, 1, 3600,
        "A silent answer sends a space (a comment) that often."),
    INT("ORPHAN_SECONDS", orphan_s, 3600, 60, 31536000,
        "A sandbox that hears from no service ends after that."),
    COMMON_INT("MAX_OUTPUT_KB", max_output_kb, 1024, 1, 65536, "Output kept of each stream."),
    INT("MAX_FILE_MB", max_file_mb, 512, 1, 1048576,
        "Largest file a program may write, and that is captured."),
    COMMON_INT("MAX_UPLOAD_MB", max_upload_mb, 150, 1, 1048576, "Largest uploaded file."),
    INT("MAX_BATCH_MB", max_batch_mb, 1024, 1, 1048576, "Largest upload request, all its files together."),
    INT("MAX_REQUEST_MB", max_request_mb, 32, 1, 64, "Largest JSON request."),
    INT("WORKSPACE_FILES", workspace_files, 20000, 100, 10000000,
        "Entries of a workspace that are looked at."),
    INT("MAX_CAPTURED_FILES", max_captured_files, 200, 1, 100000, "Files taken from one execution."),
    INT("MAX_CONNECTIONS", max_connections, 512, 4, 100000, "TCP connections at once."),
    INT("SUBPROCESS_MAX_MEMORY_MB", process_memory_mb, 0, 0, 1048576,
        "Data segment of one process; 0: none."),
    INT("SUBPROCESS_MAX_CPU_SECONDS", process_cpu_s, 0, 0, 86400, "CPU time of one process; 0: none."),
    BOOL("BASH_STRICT_MODE", bash_strict, true, "bash starts with set -euo pipefail."),
    BOOL("LOG_REQUESTS", log_requests, false, "Log a line for each request; never bodies."),
    STRING("LOG_FORMAT", log_format_name, "text", "text or json."),
    STRING("LOG_LEVEL", log_level_name, "info", "error, warn, info or debug."),
};

static int parse_int(const struct config_row *row, const char *text, int64_t *ret, struct error *err)
{
    char *end = NULL;

    errno = 0;
    intmax_t v = strtoimax(text, &end, 10);
    if (end == text || *end != '\0' || errno == ERANGE || v < row->min || v > row->max)
        return error_set(err, ERR_INVALID, "%s: '%.100s' is not an integer in %" PRId64 "..%" PRId64,
                         row->env, text, row->min, row->max);
    *ret = v;
    return 0;
}

static int parse_real(const struct config_row *row, const char *text, double *ret, struct error *err)
{
    char *end = NULL;
    double v = strtod(text, &end);

    if (end == text || *end != '\0' || !(v > (double)row->min && v <= (double)row->max))
        return error_set(err, ERR_INVALID,
                         "%s: '%.100s' is not a number above %" PRId64 " and up to %" PRId64, row->env, text,
                         row->min, row->max);
    *ret = v;
    return 0;
}

static int parse_bool(const struct config_row *row, const char *text, bool *ret, struct error *err)
{
    static const char *const words[][2] = {
        { "false", "true" }, { "0", "1" }, { "no", "yes" }, { "off", "on" }
    };

    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        for (int value = 0; value < 2; value++)
            if (strcasecmp(text, words[i][value]) == 0) {
                *ret = value == 1;
                return 0;
            }
    return error_set(err, ERR_INVALID, "%s: '%.100s' is neither true nor false", row->env, text);
}

static int parse_row(struct config *cfg, const struct config_row *row, const char *text, struct error *err)
{
    void *field = (char *)cfg + row->offset;

    switch (row->type) {
    case CONFIG_INT:
        return parse_int(row, text, field, err);
    case CONFIG_REAL:
        return parse_real(row, text, field, err);
    case CONFIG_BOOL:
        return parse_bool(row, text, field, err);
    case CONFIG_STRING:
    case CONFIG_SECRET:
        *(char **)field = xstrdup(text);
        return 0;
    }
    return error_set(err, ERR_INTERNAL, "%s: unknown type", row->env);
}

static int parse_uids(struct config *cfg, struct error *err)
{
    static const struct config_row row = { .env = "SANDBOX_UIDS", .min = 1, .max = UINT32_MAX - 2 };
    auto_free char *first = xstrdup(cfg->sandbox_uids);
    char *dash = strchr(first, '-');
    int64_t last = 0;

    if (!dash)
        return error_set(err, ERR_INVALID, "SANDBOX_UIDS: '%.100s' is not a range such as 200000-265535",
                         first);
    *dash = '\0';
    if (parse_int(&row, first, &cfg->sandbox_uid_first, err) < 0 || parse_int(&row, dash + 1, &last, err) < 0)
        return -1;
    if (last < cfg->sandbox_uid_first)
        return error_set(err, ERR_INVALID, "SANDBOX_UIDS: the range ends before it begins");
    cfg->sandbox_uid_count = last - cfg->sandbox_uid_first + 1;
    return 0;
}

/* The first setting that makes callers show credentials, or NULL. */
static const char *credential_setting(const struct config *cfg)
{
    return cfg->api_key[0]          ? "CODE_INTERPRETER_API_KEY"
           : cfg->api_keys_file[0]  ? "API_KEYS_FILE"
           : cfg->jwt_public_key[0] ? "CODEAPI_JWT_PUBLIC_KEY"
           : cfg->jwt_jwks_json[0]  ? "CODEAPI_JWT_JWKS_JSON"
           : cfg->jwt_keys_dir[0]   ? "CODEAPI_JWT_PUBLIC_KEYS_DIR"
                                    : NULL;
}

/* Checks that need more than one row, and words with few values. */
static int check(struct config *cfg, struct error *err)
{
    if (!str_eq(cfg->auth, "auto") && !str_eq(cfg->auth, "none"))
        return error_set(err, ERR_INVALID, "AUTH: '%.100s' is neither auto nor none", cfg->auth);
    if (str_eq(cfg->auth, "none") && credential_setting(cfg))
        return error_set(err, ERR_INVALID, "AUTH: none contradicts %s; unset one of them",
                         credential_setting(cfg));
    if (!str_eq(cfg->log_format_name, "text") && !str_eq(cfg->log_format_name, "json"))
        return error_set(err, ERR_INVALID, "LOG_FORMAT: '%.100s' is neither text nor json",
                         cfg->log_format_name);
    cfg->log_format = str_eq(cfg->log_format_name, "json") ? LOG_FORMAT_JSON : LOG_FORMAT_TEXT;
    if (!log_level_parse(cfg->log_level_name, &cfg->log_level))
        return error_set(err, ERR_INVALID, "LOG_LEVEL: '%.100s' is none of error, warn, info, debug",
                         cfg->log_level_name);
    if (cfg->data_dir[0] != '/')
        return error_set(err, ERR_INVALID, "DATA_DIR: '%.200s' is not an absolute path", cfg->data_dir);
    if (!cfg->uploads_dir[0]) {
        free(cfg->uploads_dir);
        cfg->uploads_dir = xstrdup(cfg->data_dir);
    }
    if (cfg->uploads_dir[0] != '/')
        return error_set(err, ERR_INVALID, "UPLOADS_DIR: '%.200s' is not an absolute path", cfg->uploads_dir);
    return parse_uids(cfg, err);
}

static char *from_environment(const char *name)
{
    const char *text = getenv(name);

    return xstrdup(text ? text : "");
}

int config_load(struct config *cfg, struct error *err)
{
    *cfg = (struct config){ 0 };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const char *text = getenv(rows[i].env);
        /* compose files pass "NAME=" for what is not set: empty means the default */
        if (parse_row(cfg, &rows[i], text && text[0] ? text : rows[i].fallback, err) < 0)
            goto fail;
    }
    cfg->xdg_runtime_dir = from_environment("XDG_RUNTIME_DIR");
    cfg->home = from_environment("HOME");
    if (check(cfg, err) < 0)
        goto fail;
    return 0;
fail:
    config_done(cfg);
    return -1;
}

void config_done(struct config *cfg)
{
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (rows[i].type == CONFIG_STRING || rows[i].type == CONFIG_SECRET)
            free(*(char **)((char *)cfg + rows[i].offset));
    free(cfg->xdg_runtime_dir);
    free(cfg->home);
    *cfg = (struct config){ 0 };
}

static void write_table(FILE *out, bool common_only)
{
    fprintf(out, "| Variable | Kind | Default | Meaning |\n| --- | --- | --- | --- |\n");
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (!common_only || rows[i].common)
            fprintf(out, "| `%s` | %s | %s%s%s | %s |\n", rows[i].env, type_names[rows[i].type],
                    rows[i].fallback[0] ? "`" : "", rows[i].fallback[0] ? rows[i].fallback : "not set",
                    rows[i].fallback[0] ? "`" : "", rows[i].doc);
}

void config_write_readme_table(FILE *out) { write_table(out, true); }

void config_write_docs(FILE *out)
{
    fprintf(
        out,
        "# Settings\n\n"
        "Read once at start from the environment (`make up` also reads a file `.env` beside the Makefile).\n"
        "A value that is out of range stops the start with a message that names it.\n"
        "Made by `carrel config`; `make docs` writes it anew.\n\n");
    write_table(out, false);
}
