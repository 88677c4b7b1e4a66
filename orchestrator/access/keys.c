#include "orchestrator/access/keys.h"

#include <nettle/base16.h>
#include <nettle/memops.h>
#include <nettle/sha2.h>
#include <string.h>

#include "common/json/jsonx.h"
#include "orchestrator/access/text_file.h"

#define NAME_ALPHABET "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"
#define HEX "0123456789abcdefABCDEF"

_Static_assert(sizeof(((struct key_entry *)NULL)->digest) == SHA256_DIGEST_SIZE, "a key's hash is SHA-256");

struct keys {
    struct key_entry *items;
    size_t count;
};

void keys_free(struct keys *k)
{
    if (!k)
        return;
    for (size_t i = 0; i < k->count; i++) {
        free(k->items[i].name);
        free(k->items[i].tenant);
    }
    free(k->items);
    free(k);
}

static void digest_of(const char *key, size_t len, uint8_t out[SHA256_DIGEST_SIZE])
{
    struct sha256_ctx ctx;

    sha256_init(&ctx);
    sha256_update(&ctx, len, (const uint8_t *)key);
    sha256_digest(&ctx, SHA256_DIGEST_SIZE, out);
}

/* Digests are compared, all of them and in constant time: neither content nor length of a key shows in the
 * time it takes, nor how many keys there are before it. */
const struct key_entry *keys_find(const struct keys *k, const char *given, size_t len)
{
    uint8_t digest[SHA256_DIGEST_SIZE];
    const struct key_entry *found = NULL;

    digest_of(given, len, digest);
    for (size_t i = 0; i < k->count; i++)
        found = memeql_sec(k->items[i].digest, digest, sizeof digest) ? &k->items[i] : found;
    return found;
}

/* Copies the entry's strings. */
static int add(struct keys *k, const struct key_entry *e, struct error *err)
{
    for (size_t i = 0; i < k->count; i++) {
        if (str_eq(k->items[i].name, e->name))
            return error_set(err, ERR_INVALID, "the name is used twice");
        if (memcmp(k->items[i].digest, e->digest, sizeof e->digest) == 0)
            return error_set(err, ERR_INVALID, "this is the same key as '%s'", k->items[i].name);
    }
    k->items = xrealloc_array(k->items, k->count + 1, sizeof *k->items);
    struct key_entry *to = &k->items[k->count++];
    *to = *e;
    to->name = xstrdup(e->name);
    to->tenant = xstrdup(e->tenant);
    return 0;
}

/* ---- the file ---- */

struct entry_fields {
    const char *name, *sha256, *tenant, *role;
    bool trusted_user_header;
};

static const struct json_field entry_fields[] = {
    FIELD_STRING(struct entry_fields, name, "name", true, 1, 64),
    FIELD_STRING(struct entry_fields, sha256, "sha256", true, 64, 64),
    FIELD_STRING(struct entry_fields, tenant, "tenant", false, 1, 255),
    FIELD_STRING(struct entry_fields, role, "role", false, 1, 16),
    FIELD_BOOL(struct entry_fields, trusted_user_header, "trusted_user_header", false),
};

/* A misspelt member would silently give a key another meaning: what is not known is refused. */
static int check_members(json_t *obj, struct error *err)
{
    const char *key = NULL;
    const json_t *value = NULL;

    json_object_foreach(obj, key, value)
    {
        bool known = false;
        for (size_t i = 0; i < ARRAY_LEN(entry_fields) && !known; i++)
            known = str_eq(key, entry_fields[i].key);
        if (!known)
            return error_set(err, ERR_INVALID,
                             "%.40s: there are only name, sha256, tenant, role and trusted_user_header", key);
    }
    return 0;
}

static int parse_digest(const char *hex, uint8_t out[SHA256_DIGEST_SIZE], struct error *err)
{
    struct base16_decode_ctx ctx;
    uint8_t empty[SHA256_DIGEST_SIZE];
    size_t n = SHA256_DIGEST_SIZE;

    base16_decode_init(&ctx);
    if (strspn(hex, HEX) != strlen(hex) || !base16_decode_update(&ctx, &n, out, strlen(hex), hex) ||
        !base16_decode_final(&ctx) || n != SHA256_DIGEST_SIZE)
        return error_set(err, ERR_INVALID, "sha256: must be the 64 hex digits of the key's SHA-256");
    digest_of("", 0, empty);
    if (memcmp(out, empty, sizeof empty) == 0)
        return error_set(err, ERR_INVALID, "sha256: this is the hash of nothing, an empty key");
    return 0;
}

static int check_names(const struct entry_fields *f, struct error *err)
{
    if (strspn(f->name, NAME_ALPHABET) != strlen(f->name))
        return error_set(err, ERR_INVALID, "name: letters, digits, '.', '_' and '-' are allowed");
    if (f->tenant && str_starts(f->tenant, KEYS_OWN_TENANT))
        return error_set(err, ERR_INVALID,
                         "tenant: must not begin with " KEYS_OWN_TENANT
                         ", as those of keys without tenant do");
    if (f->role && !str_eq(f->role, "user") && !str_eq(f->role, "admin"))
        return error_set(err, ERR_INVALID, "role: '%.16s' is neither user nor admin", f->role);
    return 0;
}

static int add_fields(struct keys *k, const struct entry_fields *f, struct error *err)
{
    struct key_entry e = { .admin = str_eq(f->role, "admin"), .trusted_user_header = f->trusted_user_header };

    if (check_names(f, err) < 0 || parse_digest(f->sha256, e.digest, err) < 0)
        return -1;
    auto_free char *name = xstrdup(f->name);
    auto_free char *tenant = f->tenant ? xstrdup(f->tenant) : xasprintf(KEYS_OWN_TENANT "%s", f->name);
    e.name = name;
    e.tenant = tenant;
    return add(k, &e, err);
}

static int add_entry(struct keys *k, json_t *item, struct error *err)
{
    struct entry_fields f = { 0 };

    if (!json_is_object(item))
        return error_set(err, ERR_INVALID, "must be an object");
    if (check_members(item, err) == 0 &&
        jsonx_fill(item, entry_fields, ARRAY_LEN(entry_fields), &f, err) == 0 && add_fields(k, &f, err) == 0)
        return 0;
    return f.name ? error_wrap(err, "'%s'", f.name) : -1;
}

static int add_file(struct keys *k, const char *path, struct error *err)
{
    auto_buf struct buf text = { 0 };
    json_auto_t *doc = NULL;

    if (text_file_read(path, &text, err) < 0)
        return error_wrap(err, "API_KEYS_FILE");
    if (jsonx_parse(text.data, text.len, &doc, err) < 0)
        return error_wrap(err, "API_KEYS_FILE: %s", path);
    if (json_array_size(doc) == 0)
        return error_set(err, ERR_INVALID, "API_KEYS_FILE: %s is not an array of at least one key", path);
    for (size_t i = 0; i < json_array_size(doc); i++)
        if (add_entry(k, json_array_get(doc, i), err) < 0)
            return error_wrap(err, "API_KEYS_FILE: %s: entry %zu", path, i + 1);
    return 0;
}

int keys_open(const struct config *cfg, struct keys **ret, struct error *err)
{
    CLEANUP(keys_freep) struct keys *k = xcalloc(1, sizeof *k);

    if (cfg->api_key[0]) {
        char name[] = "CODE_INTERPRETER_API_KEY", tenant[] = "default";
        struct key_entry e = { .name = name, .tenant = tenant, .admin = true };
        digest_of(cfg->api_key, strlen(cfg->api_key), e.digest);
        if (add(k, &e, err) < 0)
            return -1;
    }
    if (cfg->api_keys_file[0] && add_file(k, cfg->api_keys_file, err) < 0)
        return -1;
    *ret = k->count ? steal_ptr(&k) : NULL;
    return 0;
}
