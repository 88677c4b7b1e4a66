/* environment.h - the environment of programs: the image's own, with what the sandbox fixes laid over it. */
#pragma once

#include "common/language.h"
#include "runner/config.h"

struct environment {
    const char **words; /* "NAME=value", NULL-terminated; the array is owned */
    char **made;        /* the words that had to be put together */
    size_t count, made_count;
};

/* For a program of that language, or for the Python kernel (NULL). build_dir stands for {dir}; may be NULL.
 */
void environment_init(struct environment *e, const struct runner_config *config,
                      const struct language *language, const char *build_dir);
void environment_set(struct environment *e, const char *name, const char *value);
void environment_done(struct environment *e);

/* The word with {src} and {dir} replaced. The caller frees. */
char *environment_expand(const char *word, const char *source, const char *build_dir);
