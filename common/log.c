#include "common/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/clock.h"

static const char *const level_names[] = { "error", "warn", "info", "debug" };

static enum log_level log_max = LOG_LEVEL_INFO;
static enum log_format log_as = LOG_FORMAT_TEXT;
static _Thread_local char request_context[40];
static _Thread_local char session_context[40];

void log_setup(enum log_level level, enum log_format format)
{
    log_max = level;
    log_as = format;
}

bool log_level_parse(const char *text, enum log_level *ret)
{
    for (size_t i = 0; i < ARRAY_LEN(level_names); i++)
        if (strcmp(text, level_names[i]) == 0) {
            *ret = (enum log_level)i;
            return true;
        }
    return false;
}

void log_context(const char *request_id, const char *session_id)
{
    (void)snprintf(request_context, sizeof request_context, "%s", request_id ? request_id : "");
    (void)snprintf(session_context, sizeof session_context, "%s", session_id ? session_id : "");
}

/* Control bytes are escaped, so that foreign text can neither forge a record nor drive a terminal. */
static size_t escape(char *out, size_t size, const char *text, bool json)
{
    size_t n = 0;

    for (const unsigned char *p = (const unsigned char *)text; *p && n + 7 < size; p++) {
        if (*p < 0x20 || *p == 0x7f)
            n += (size_t)snprintf(out + n, size - n, json ? "\\u%04x" : "\\x%02x", *p);
        else if (json && (*p == '"' || *p == '\\'))
            n += (size_t)snprintf(out + n, size - n, "\\%c", *p);
        else
            out[n++] = (char)*p;
    }
    out[n] = '\0';
    return n;
}

void log_write(enum log_level level, const char *where, const char *fmt, ...)
{
    char raw[1024], text[2048], when[CLOCK_ISO_SIZE], line[3072];
    va_list ap;

    if (level > log_max)
        return;
    va_start(ap, fmt);
    (void)vsnprintf(raw, sizeof raw, fmt, ap);
    va_end(ap);
    (void)escape(text, sizeof text, raw, log_as == LOG_FORMAT_JSON);
    clock_iso(clock_real_ms(), when);

    int stem = (int)strcspn(where, ".");
    int n;
    if (log_as == LOG_FORMAT_JSON)
        n = snprintf(line, sizeof line,
                     "{\"time\":\"%s\",\"level\":\"%s\",\"where\":\"%.*s\",\"request\":\"%s\","
                     "\"session\":\"%s\",\"message\":\"%s\"}\n",
                     when, level_names[level], stem, where, request_context, session_context, text);
    else
        n = snprintf(line, sizeof line, "%s %-5s %.*s %s%s%s%s%s%s%s\n", when, level_names[level], stem,
                     where, text, request_context[0] || session_context[0] ? " " : "",
                     request_context[0] ? "request=" : "", request_context,
                     session_context[0] ? " session=" : "", session_context, "");
    if (n > 0)
        IGNORE(write(STDERR_FILENO, line, MIN((size_t)n, sizeof line - 1)));
}
