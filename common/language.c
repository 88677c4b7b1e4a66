#include "common/language.h"

#include <strings.h>

#define LIBDIR "/usr/local/lib/carrel" /* the image's own helpers */

static const struct language languages[] = {
    {
        .name = "py",
        .runtime = "python",
        .aliases = { "python", "python3" },
        .kernel = true,
        .source = "main.py",
        .run = { "python3", "{src}" },
    },
    {
        .name = "bash",
        .runtime = "bash",
        .aliases = { "sh", "shell" },
        .source = "main.sh",
        .run = { "bash", "{src}" },
    },
    {
        .name = "js",
        .runtime = "node",
        .aliases = { "javascript", "node" },
        .source = "main.js",
        .run = { "node", LIBDIR "/run.cjs", "{src}" },
    },
    {
        .name = "ts",
        .runtime = "typescript",
        .aliases = { "typescript" },
        .source = "main.ts",
        .compile = { LIBDIR "/ts-compile", "{src}", "{dir}/main.js" },
        .run = { "node", "--enable-source-maps", LIBDIR "/run.cjs", "{dir}/main.js" },
    },
    {
        .name = "go",
        .runtime = "go",
        .aliases = { "golang" },
        .source = "main.go",
        .compile = { "go", "build", "-o", "{dir}/main", "{src}" },
        .run = { "{dir}/main" },
    },
    {
        .name = "c",
        .runtime = "c",
        .source = "main.c",
        .compile = { "gcc", "-std=gnu17", "-O1", "-g1", "-pthread", "-iquote", "/mnt/data", "-o",
                     "{dir}/main", "{src}", "-lm" },
        .run = { "{dir}/main" },
    },
    {
        .name = "cpp",
        .runtime = "cpp",
        .aliases = { "c++", "cxx" },
        .source = "main.cpp",
        .compile = { "g++", "-std=gnu++20", "-O1", "-g1", "-pthread", "-iquote", "/mnt/data", "-o",
                     "{dir}/main", "{src}", "-lm" },
        .run = { "{dir}/main" },
    },
};

size_t language_count(void) { return ARRAY_LEN(languages); }

const struct language *language_at(size_t i) { return &languages[i]; }

static bool answers_to(const struct language *l, const char *name)
{
    if (strcasecmp(l->name, name) == 0)
        return true;
    for (size_t i = 0; i < ARRAY_LEN(l->aliases) && l->aliases[i]; i++)
        if (strcasecmp(l->aliases[i], name) == 0)
            return true;
    return false;
}

const struct language *language_find(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(languages); i++)
        if (answers_to(&languages[i], name))
            return &languages[i];
    return NULL;
}
