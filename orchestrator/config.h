/* config.h - the service's settings: one struct, one table, read once at start. */
#pragma once

#include <stdio.h>

#include "common/error.h"
#include "common/log.h"

struct config { /* strings owned; "" when not set */
    char *host;
    int64_t port;
    char *auth; /* "auto" or "none" */
    char *api_key;
    char *api_keys_file;
    char *jwt_public_key, *jwt_kid, *jwt_jwks_json, *jwt_keys_dir, *jwt_issuer, *jwt_audience;
    char *allowed_hosts;
    char *cors_origins;
    char *data_dir;
    char *uploads_dir; /* data_dir when not set */
    char *docker_host;
    char *sandbox_image;
    char *sandbox_runtime;
    int64_t sandbox_memory_mb;
    double sandbox_cpus;
    int64_t sandbox_pids;
    int64_t sandbox_tmp_mb;
    int64_t sandbox_shm_mb;
    char *sandbox_uids;
    int64_t sandbox_uid_first, sandbox_uid_count; /* parsed from sandbox_uids */
    int64_t max_sessions;
    int64_t session_idle_s;
    int64_t anonymous_idle_s;
    int64_t execution_timeout_s;
    int64_t compile_timeout_s;
    int64_t queue_wait_s;
    int64_t session_queue_max;
    int64_t keepalive_s;
    int64_t orphan_s;
    int64_t max_output_kb;
    int64_t max_file_mb;
    int64_t max_upload_mb;
    int64_t max_batch_mb;
    int64_t max_request_mb;
    int64_t workspace_files;
    int64_t max_captured_files;
    int64_t max_connections;
    int64_t process_memory_mb;
    int64_t process_cpu_s;
    bool bash_strict;
    bool log_requests;
    char *log_format_name, *log_level_name;
    enum log_format log_format; /* parsed */
    enum log_level log_level;
    /* Where a container engine of this user would listen; not settings of ours. */
    char *xdg_runtime_dir, *home;
};

int config_load(struct config *cfg, struct error *err) MUST_CHECK; /* the environment over the defaults */
void config_done(struct config *cfg);
void config_write_docs(FILE *out);         /* docs/CONFIG.md */
void config_write_readme_table(FILE *out); /* the short table of the README */
