/* fuzz: access - a bearer token: as its text, or as header and claims on two lines with a forged signature.
 */
#include <assert.h>
#include <nettle/base64.h>
#include <string.h>

#include "orchestrator/access/jwt.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define NOW 1800000000
#define MAX_INPUT 16384
#define PEM                                                                                                  \
    "-----BEGIN PUBLIC KEY-----\\nMCowBQYDK2VwAyEAqjDeb8WQJNJGzD52DgswyZwaxm16I1wnPJEtLOltUTE=\\n-----END "  \
    "PUBLIC KEY-----\\n"

static struct jwt_keys *keys(void)
{
    static struct jwt_keys *k;
    struct config cfg;
    struct error err;

    if (k)
        return k;
    if (config_load(&cfg, &err) < 0)
        abort();
    free(cfg.jwt_public_key);
    cfg.jwt_public_key = xstrdup(PEM);
    if (jwt_keys_open(&cfg, &k, &err) < 0)
        abort();
    config_done(&cfg);
    return k;
}

static size_t encode(const char *text, size_t len, char *out)
{
    struct base64_encode_ctx ctx;

    base64url_encode_init(&ctx);
    size_t n = base64_encode_update(&ctx, out, len, (const uint8_t *)text);
    n += base64_encode_final(&ctx, out + n);
    while (n > 0 && out[n - 1] == '=')
        n--;
    return n;
}

static char *forge(const char *text, size_t len, size_t header_len)
{
    char *token = xcalloc(BASE64_ENCODE_RAW_LENGTH(MAX_INPUT) + 128, 1);
    size_t n = encode(text, header_len, token);

    token[n++] = '.';
    n += encode(text + header_len + 1, len - header_len - 1, token + n);
    token[n++] = '.';
    memset(token + n, 'A', 86); /* 64 bytes, as an Ed25519 signature has */
    return token;
}

static void check_claims(const char *token)
{
    static const struct jwt_expectation want = { "librechat", "codeapi" };
    CLEANUP(jwt_token_done) struct jwt_token t = { 0 };
    CLEANUP(jwt_identity_done) struct jwt_identity id = { 0 };
    struct error err = { 0 };

    if (jwt_token_parse(token, &t, &err) < 0) {
        assert(err.kind == ERR_UNAUTHORIZED && err.msg[0] != '\0');
        return;
    }
    assert(jwt_token_looks_like_one(token));
    if (jwt_token_identity(&t, &want, NOW, &id, &err) == 0)
        assert(id.tenant[0] != '\0' && id.user[0] != '\0' && strlen(id.user) < 256);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *line = memchr(data, '\n', size);
    CLEANUP(jwt_identity_done) struct jwt_identity id = { 0 };
    struct error err = { 0 };

    if (size > MAX_INPUT)
        return 0;
    auto_free char *token = line ? forge((const char *)data, size, (size_t)(line - (const char *)data))
                                 : xstrndup((const char *)data, size);
    check_claims(token);
    bool good = jwt_verify(keys(), token, NOW, &id, &err) == 0;
    assert(!good || !line); /* nobody forges the signature */
    assert(good == (id.user != NULL) && (good || err.kind == ERR_UNAUTHORIZED));
    return 0;
}
