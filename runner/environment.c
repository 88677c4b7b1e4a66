#include "runner/environment.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define WORDS_MAX 256

extern char **environ;

static size_t find(const struct environment *e, const char *name)
{
    size_t len = strlen(name);

    for (size_t i = 0; i < e->count; i++)
        if (strncmp(e->words[i], name, len) == 0 && e->words[i][len] == '=')
            return i;
    return e->count;
}

static void put(struct environment *e, const char *name, char *word)
{
    size_t i = find(e, name);

    if (e->made_count == WORDS_MAX || i == WORDS_MAX) {
        free(word);
        return;
    }
    e->made[e->made_count++] = word;
    e->words[i] = word;
    if (i == e->count)
        e->words[++e->count] = NULL;
}

void environment_set(struct environment *e, const char *name, const char *value)
{
    put(e, name, xasprintf("%s=%s", name, value));
}

static void set_default(struct environment *e, const char *name, const char *value)
{
    if (find(e, name) == e->count)
        environment_set(e, name, value);
}

static void set_fixed(struct environment *e, const struct runner_config *config)
{
    static const char *const thread_counts[] = { "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS",
                                                 "NUMEXPR_MAX_THREADS" };
    char threads[24];

    environment_set(e, "HOME", config->home);
    environment_set(e, "USER", "sandbox");
    environment_set(e, "LOGNAME", "sandbox");
    environment_set(e, "TMPDIR", config->tmp_dir);
    environment_set(e, "PWD", config->workspace);
    /* What a Python program printed before it was killed is not lost in its buffer. */
    environment_set(e, "PYTHONUNBUFFERED", "1");
    set_default(e, "PATH", "/usr/local/bin:/usr/bin:/bin");
    set_default(e, "LANG", "C.UTF-8");
    (void)snprintf(threads, sizeof threads, "%" PRId64, config->threads);
    for (size_t i = 0; i < ARRAY_LEN(thread_counts); i++)
        environment_set(e, thread_counts[i], threads);
}

void environment_init(struct environment *e, const struct runner_config *config,
                      const struct language *language, const char *build_dir)
{
    *e = (struct environment){ .words = xcalloc(WORDS_MAX + 1, sizeof(char *)),
                               .made = xcalloc(WORDS_MAX, sizeof(char *)) };
    /* The container's: what its image says, nothing of the service's. */
    for (char **w = environ; *w && e->count < WORDS_MAX / 2; w++)
        e->words[e->count++] = *w;
    set_fixed(e, config);
    for (size_t i = 0; language && i < ARRAY_LEN(language->env) && language->env[i]; i++) {
        auto_free char *name = xstrndup(language->env[i], strcspn(language->env[i], "="));
        put(e, name, environment_expand(language->env[i], "", build_dir ? build_dir : ""));
    }
}

void environment_done(struct environment *e)
{
    for (size_t i = 0; i < e->made_count; i++)
        free(e->made[i]);
    free(e->made);
    free(e->words);
    *e = (struct environment){ 0 };
}

static const char *next_hole(const char *word, const char **ret_key)
{
    static const char *const keys[] = { "{src}", "{dir}" };
    const char *best = NULL;

    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        const char *at = strstr(word, keys[i]);
        if (at && (!best || at < best)) {
            best = at;
            *ret_key = keys[i];
        }
    }
    return best;
}

char *environment_expand(const char *word, const char *source, const char *build_dir)
{
    char *out = xstrdup("");
    const char *key = NULL, *hole;

    while ((hole = next_hole(word, &key)) != NULL) {
        char *longer = xasprintf("%s%.*s%s", out, (int)(hole - word), word,
                                 key[1] == 's' ? source : build_dir);
        free(out);
        out = longer;
        word = hole + strlen(key);
    }
    char *whole = xasprintf("%s%s", out, word);
    free(out);
    return whole;
}
