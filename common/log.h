/* log.h - one line a record to stderr: time, level, where, context, message. libc only; thread-safe. */
#pragma once

#include "common/base.h"

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARN, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };
enum log_format { LOG_FORMAT_TEXT, LOG_FORMAT_JSON };

void log_setup(enum log_level level, enum log_format format); /* before threads start */
bool log_level_parse(const char *text, enum log_level *ret);  /* "error" "warn" "info" "debug" */

/* Ids put into every record of this thread until changed; either may be NULL. Copied. */
void log_context(const char *request_id, const char *session_id);

void log_write(enum log_level level, const char *where, const char *fmt, ...) PRINTF_LIKE(3, 4);

#define log_error(...) log_write(LOG_LEVEL_ERROR, __FILE_NAME__, __VA_ARGS__)
#define log_warn(...) log_write(LOG_LEVEL_WARN, __FILE_NAME__, __VA_ARGS__)
#define log_info(...) log_write(LOG_LEVEL_INFO, __FILE_NAME__, __VA_ARGS__)
#define log_debug(...) log_write(LOG_LEVEL_DEBUG, __FILE_NAME__, __VA_ARGS__)
