/* language.h - the one table of languages; both programs and the documentation are made from it. libc only.
 */
#pragma once

#include "common/base.h"

#define LANGUAGE_MAX_WORDS 24

struct language {
    const char *name;       /* canonical: what a RUN frame carries */
    const char *runtime;    /* its key in the image's manifest, /health and /libraries: "node" */
    const char *aliases[6]; /* other names clients use; NULL-terminated */
    bool kernel;            /* runs in the session's Jupyter kernel, not as a process */
    const char *source;     /* name of the source file in the build directory: "main.c" */
    /*
     * Commands, NULL-terminated; a word may contain {src} (the source file's path) and {dir} (the build
     * directory). The arguments of the execution follow the last word of run.
     */
    const char *compile[LANGUAGE_MAX_WORDS]; /* empty: nothing to compile */
    const char *run[LANGUAGE_MAX_WORDS];
    const char *env[8]; /* "NAME=value", {dir} allowed; added to the common environment */
};

size_t language_count(void);
const struct language *language_at(size_t i);
const struct language *
language_find(const char *name); /* by name or alias, case-insensitive; NULL: unknown */
