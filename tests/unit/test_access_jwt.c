/* Tokens are made here, with keys made here: what LibreChat signs is let in, and nothing that looks alike. */
#include "orchestrator/access/access.h"
#include "orchestrator/access/jwt.h"

#include <fcntl.h>
#include <nettle/base64.h>
#include <pthread.h>
#include <rhonabwy.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define NOW 1800000000
#define CLAIMS "\"iss\":\"librechat\",\"aud\":\"codeapi\",\"sub\":\"ann\",\"tenant_id\":\"acme\""
#define TIMES "\"nbf\":1799999990,\"exp\":1800000300"

enum signer { ED, ED_OTHER, RSA, RSA_SMALL, EC, SIGNERS };

static struct {
    jwk_t *private, *public;
    char pem[4096];
} made[SIGNERS];

static void make_key(enum signer s, int type, unsigned bits)
{
    size_t len = sizeof made[s].pem - 1;

    assert_int_equal(r_jwk_init(&made[s].private) | r_jwk_init(&made[s].public), RHN_OK);
    assert_int_equal(r_jwk_generate_key_pair(made[s].private, made[s].public, type, bits, NULL), RHN_OK);
    /* signing would copy it into a header that names none */
    assert_int_equal(r_jwk_delete_property_str(made[s].private, "kid"), RHN_OK);
    assert_int_equal(
        r_jwk_export_to_pem_der(made[s].public, R_FORMAT_PEM, (unsigned char *)made[s].pem, &len, 0), RHN_OK);
}

static int make_keys(void **state)
{
    (void)state;
    make_key(ED, R_KEY_TYPE_EDDSA, 256);
    make_key(ED_OTHER, R_KEY_TYPE_EDDSA, 256);
    make_key(RSA, R_KEY_TYPE_RSA, 2048);
    make_key(RSA_SMALL, R_KEY_TYPE_RSA, 1024);
    make_key(EC, R_KEY_TYPE_EC, 256);
    return 0;
}

static int free_keys(void **state)
{
    (void)state;
    for (int i = 0; i < SIGNERS; i++) {
        r_jwk_free(made[i].private);
        r_jwk_free(made[i].public);
    }
    return 0;
}

/* A token with these claims; kid NULL: none. extra: a further header member, or NULL. */
static char *sign_with(jwk_t *key, jwa_alg alg, const char *kid, const char *extra, const char *claims)
{
    jws_t *jws = NULL;

    assert_int_equal(r_jws_init(&jws), RHN_OK);
    assert_int_equal(r_jws_set_alg(jws, alg), RHN_OK);
    if (kid)
        assert_int_equal(r_jws_set_header_str_value(jws, "kid", kid), RHN_OK);
    if (extra)
        assert_int_equal(r_jws_set_header_str_value(jws, extra, "DEF"), RHN_OK);
    assert_int_equal(r_jws_set_payload(jws, (const unsigned char *)claims, strlen(claims)), RHN_OK);
    char *text = r_jws_serialize(jws, key, 0);
    assert_non_null(text);
    char *token = xstrdup(text);
    r_free(text);
    r_jws_free(jws);
    return token;
}

static char *sign(enum signer s, const char *kid, const char *claims)
{
    return sign_with(made[s].private, s == RSA ? R_JWA_ALG_RS256 : R_JWA_ALG_EDDSA, kid, NULL, claims);
}

static void set(char **setting, const char *value)
{
    free(*setting);
    *setting = xstrdup(value);
}

static struct config settings(void)
{
    struct config cfg;
    struct error err = { 0 };

    assert_int_equal(config_load(&cfg, &err), 0);
    return cfg;
}

/* Of a set with an Ed25519 and an RSA key, kids "ed" and "rsa". */
static struct jwt_keys *two_keys(void)
{
    struct config cfg = settings();
    struct jwt_keys *k = NULL;
    struct error err = { 0 };

    assert_int_equal(r_jwk_set_property_str(made[ED].public, "kid", "ed") |
                         r_jwk_set_property_str(made[RSA].public, "kid", "rsa"),
                     RHN_OK);
    char *ed = r_jwk_export_to_json_str(made[ED].public, 0),
         *rsa = r_jwk_export_to_json_str(made[RSA].public, 0);
    auto_free char *set_text = xasprintf("{\"keys\":[%s,%s]}", ed, rsa);
    r_free(ed);
    r_free(rsa);
    set(&cfg.jwt_jwks_json, set_text);
    if (jwt_keys_open(&cfg, &k, &err) < 0)
        fail_msg("%s", err.msg);
    config_done(&cfg);
    return k;
}

static void check(const struct jwt_keys *k, const char *token, const char *says, const char *name)
{
    CLEANUP(jwt_identity_done) struct jwt_identity id = { 0 };
    struct error err = { 0 };
    int r = jwt_verify(k, token, NOW, &id, &err);

    if ((r == 0) != !says || (says && !strstr(err.msg, says)))
        fail_msg("%s: gives %d, says: %s", name, r, err.msg);
    assert_int_equal(err.kind, says ? ERR_UNAUTHORIZED : ERR_NONE);
    assert_int_equal(id.user != NULL, r == 0);
}

static void claims_decide(void **state)
{
    static const struct {
        const char *claims, *says; /* NULL: let in */
    } cases[] = {
        { "{" CLAIMS "," TIMES "}", NULL },
        { "{" CLAIMS "," TIMES ",\"jti\":\"x\",\"role\":\"ADMIN\",\"plan_id\":null}", NULL },
        { "{" CLAIMS ",\"exp\":1799999941}", NULL }, /* clocks may differ by 60 s */
        { "{" CLAIMS ",\"exp\":1799999940}", "expired" },
        { "{" CLAIMS ",\"exp\":1800000300.5,\"nbf\":1800000060}", NULL },
        { "{" CLAIMS ",\"exp\":1800000300,\"nbf\":1800000061}", "not valid yet" },
        { "{" CLAIMS "}", "exp" },
        { "{" CLAIMS ",\"exp\":null}", "exp" },
        { "{" CLAIMS ",\"exp\":\"1800000300\"}", "exp" },
        { "{" CLAIMS "," TIMES ",\"exp\":1}", "not a signed JWT" }, /* twice: whose exp counts? */
        { "{\"iss\":\"other\",\"aud\":\"codeapi\",\"sub\":\"ann\"," TIMES "}", "iss" },
        { "{\"aud\":\"codeapi\",\"sub\":\"ann\"," TIMES "}", "iss" },
        { "{\"iss\":\"librechat\",\"aud\":\"other\",\"sub\":\"ann\"," TIMES "}", "aud" },
        { "{\"iss\":\"librechat\",\"aud\":[],\"sub\":\"ann\"," TIMES "}", "aud" },
        { "{\"iss\":\"librechat\",\"aud\":[\"x\",7],\"sub\":\"ann\"," TIMES "}", "aud" },
        { "{\"iss\":\"librechat\",\"aud\":[\"x\",\"codeapi\"],\"sub\":\"ann\"," TIMES "}", NULL },
        { "{\"iss\":\"librechat\",\"aud\":{\"codeapi\":1},\"sub\":\"ann\"," TIMES "}", "aud" },
        { "{\"iss\":\"librechat\",\"sub\":\"ann\"," TIMES "}", "aud" },
        { "{\"iss\":\"librechat\",\"aud\":\"codeapi\"," TIMES "}", "sub" },
        { "{\"iss\":\"librechat\",\"aud\":\"codeapi\",\"sub\":\"\"," TIMES "}", "sub" },
        { "{\"iss\":\"librechat\",\"aud\":\"codeapi\",\"sub\":7," TIMES "}", "sub" },
        { "{\"iss\":\"librechat\",\"aud\":\"codeapi\",\"sub\":\"a\\u0000b\"," TIMES "}", "sub" },
        { "{\"iss\":\"librechat\",\"aud\":\"codeapi\",\"sub\":\"ann\",\"tenant_id\":7," TIMES "}",
          "tenant_id" },
        { "{\"iss\":\"librechat\",\"aud\":\"codeapi\",\"sub\":\"ann\",\"tenant_id\":\"key:desk\"," TIMES "}",
          "tenant_id" },
        { "[]", "not a signed JWT" },
        { "no JSON", "not a signed JWT" },
    };
    CLEANUP(jwt_keys_freep) struct jwt_keys *k = two_keys();

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        auto_free char *ed = sign(ED, "ed", cases[i].claims), *rsa = sign(RSA, "rsa", cases[i].claims);
        check(k, ed, cases[i].says, cases[i].claims);
        check(k, rsa, cases[i].says, cases[i].claims);
        check(k, ed, cases[i].says, "the same token once more");
    }
}

static void the_token_names_tenant_and_user(void **state)
{
    static const struct {
        const char *member, *tenant;
    } cases[] = {
        { ",\"tenant_id\":\"acme\"", "acme" },
        { ",\"tenant_id\":\"\"", "legacy" },
        { ",\"tenant_id\":null", "legacy" },
        { "", "legacy" },
    };
    CLEANUP(jwt_keys_freep) struct jwt_keys *k = two_keys();

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        CLEANUP(jwt_identity_done) struct jwt_identity id = { 0 };
        struct error err = { 0 };
        auto_free char *claims = xasprintf(
            "{\"iss\":\"librechat\",\"aud\":\"codeapi\",\"sub\":\"ann\"%s," TIMES "}", cases[i].member);
        auto_free char *token = sign(ED, "ed", claims);
        assert_int_equal(jwt_verify(k, token, NOW, &id, &err), 0);
        assert_string_equal(id.tenant, cases[i].tenant);
        assert_string_equal(id.user, "ann");
    }
}

static char *encode(const char *text)
{
    size_t len = strlen(text);
    char *out = xcalloc(BASE64_ENCODE_RAW_LENGTH(len) + 1, 1);
    struct base64_encode_ctx ctx;

    base64url_encode_init(&ctx);
    size_t n = base64_encode_update(&ctx, out, len, (const uint8_t *)text);
    char tail[BASE64_ENCODE_FINAL_LENGTH];
    size_t m = base64_encode_final(&ctx, tail);
    memcpy(out + n, tail, m);
    out[n + m] = '\0';
    out[strcspn(out, "=")] = '\0';
    return out;
}

static char *forge(const char *header, const char *claims, const char *signature)
{
    auto_free char *h = encode(header), *c = encode(claims);

    return xasprintf("%s.%s.%s", h, c, signature);
}

/* The classics: no signature, the public key as an HMAC secret, another key's algorithm. */
static void algorithm_and_key_belong_together(void **state)
{
    static const char claims[] = "{" CLAIMS "," TIMES "}";
    CLEANUP(jwt_keys_freep) struct jwt_keys *k = two_keys();
    jwk_t *secret = NULL;

    (void)state;
    assert_int_equal(r_jwk_init(&secret), RHN_OK);
    for (int s = 0; s < SIGNERS; s++) {
        if (s != ED && s != RSA)
            continue;
        assert_int_equal(
            r_jwk_import_from_symmetric_key(secret, (const unsigned char *)made[s].pem, strlen(made[s].pem)),
            RHN_OK);
        auto_free char *hs = sign_with(secret, R_JWA_ALG_HS256, s == ED ? "ed" : "rsa", NULL, claims);
        check(k, hs, "alg", "HS256 with the public key as the secret");
    }
    r_jwk_free(secret);
    auto_free char *crossed = sign(ED, "rsa", claims), *crossed2 = sign(RSA, "ed", claims);
    check(k, crossed, "alg", "EdDSA under the RSA key's kid");
    check(k, crossed2, "alg", "RS256 under the Ed25519 key's kid");
    auto_free char *rs512 = sign_with(made[RSA].private, R_JWA_ALG_RS512, "rsa", NULL, claims);
    check(k, rs512, "alg", "RS512");
    auto_free char *ps256 = sign_with(made[RSA].private, R_JWA_ALG_PS256, "rsa", NULL, claims);
    check(k, ps256, "alg", "PS256");
    auto_free char *es256 = sign_with(made[EC].private, R_JWA_ALG_ES256, "ed", NULL, claims);
    check(k, es256, "alg", "ES256");
    auto_free char *unknown = sign(ED, "new", claims), *anonymous = sign(ED, NULL, claims);
    check(k, unknown, "kid", "a kid that is not here");
    check(k, anonymous, "kid", "no kid, and two keys");
    auto_free char *other = sign(ED_OTHER, "ed", claims);
    check(k, other, "signature", "another key under this kid");
    auto_free char *zipped = sign_with(made[ED].private, R_JWA_ALG_EDDSA, "ed", "zip", claims);
    check(k, zipped, "zip", "a compressed payload");
    auto_free char *critical = sign_with(made[ED].private, R_JWA_ALG_EDDSA, "ed", "crit", claims);
    check(k, critical, "crit", "a header that must be understood");
}

static void forgeries_are_refused(void **state)
{
    static const char claims[] = "{" CLAIMS "," TIMES "}";
    static const struct {
        const char *header, *signature;
    } cases[] = {
        { "{\"alg\":\"none\"}", "" },
        { "{\"alg\":\"none\",\"kid\":\"ed\"}", "" },
        { "{\"alg\":\"none\",\"kid\":\"ed\"}", "AAAA" },
        { "{\"alg\":\"None\",\"kid\":\"rsa\"}", "AAAA" },
        { "{\"alg\":\"EdDSA\",\"kid\":\"ed\"}", "" },
        { "{\"alg\":\"EdDSA\",\"kid\":\"ed\"}", "AAAA" },
        { "{\"alg\":\"RS256\",\"kid\":\"rsa\"}", "AAAA" },
        { "{\"alg\":null,\"kid\":\"ed\"}", "AAAA" },
        { "{\"alg\":[\"EdDSA\"],\"kid\":\"ed\"}", "AAAA" },
        { "{\"kid\":\"ed\"}", "AAAA" },
        { "{\"alg\":\"EdDSA\",\"alg\":\"none\",\"kid\":\"ed\"}", "AAAA" },
        { "{\"alg\":\"EdDSA\",\"kid\":7}", "AAAA" },
        { "{\"alg\":\"EdDSA\",\"kid\":\"../ed\"}", "AAAA" },
        { "{\"alg\":\"EdDSA\",\"kid\":\"ed\",\"jku\":\"http://127.0.0.1:1/keys\"}", "AAAA" },
    };
    CLEANUP(jwt_keys_freep) struct jwt_keys *k = two_keys();

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        auto_free char *token = forge(cases[i].header, claims, cases[i].signature);
        check(k, token, "", cases[i].header);
    }
}

/* The key travels in the token's own header: it must not be the one that verifies it. */
static void a_key_in_the_header_is_not_used(void **state)
{
    CLEANUP(jwt_keys_freep) struct jwt_keys *k = two_keys();
    jws_t *jws = NULL;

    (void)state;
    assert_int_equal(r_jws_init(&jws), RHN_OK);
    json_auto_t *key = r_jwk_export_to_json_t(made[ED_OTHER].public);
    assert_int_equal(r_jws_set_alg(jws, R_JWA_ALG_EDDSA) | r_jws_set_header_str_value(jws, "kid", "ed") |
                         r_jws_set_header_json_t_value(jws, "jwk", key) |
                         r_jws_set_payload(jws, (const unsigned char *)"{" CLAIMS "," TIMES "}",
                                           strlen("{" CLAIMS "," TIMES "}")),
                     RHN_OK);
    char *token = r_jws_serialize(jws, made[ED_OTHER].private, 0);
    check(k, token, "signature", "a key in the header");
    r_free(token);
    r_jws_free(jws);
}

static void any_changed_character_spoils_a_token(void **state)
{
    CLEANUP(jwt_keys_freep) struct jwt_keys *k = two_keys();
    auto_free char *token = sign(ED, "ed", "{" CLAIMS "," TIMES "}");
    size_t len = strlen(token);

    (void)state;
    check(k, token, NULL, "untouched");
    for (size_t i = 0; i < len; i++) {
        char was = token[i];
        token[i] = was == 'A' ? 'B' : 'A';
        check(k, token, "", "one character changed");
        token[i] = was;
    }
    for (size_t n = 0; n < len; n++) {
        auto_free char *cut = xstrndup(token, n);
        check(k, cut, "", "cut short");
    }
    auto_free char *longer = xasprintf("%s.AAAA", token), *padded = xasprintf("%s=", token),
                   *spaced = xasprintf("%s ", token);
    check(k, longer, "", "four parts");
    check(k, padded, "", "padding");
    check(k, spaced, "", "a space behind");
    auto_buf struct buf big = { .max = JWT_MAX_BYTES * 2 };
    struct error err = { 0 };
    for (size_t i = 0; i <= JWT_MAX_BYTES; i += 4)
        assert_int_equal(buf_add(&big, "AAAA", 4, &err), 0);
    check(k, big.data, "", "a long one");
}

static void without_kid_the_only_key_counts(void **state)
{
    struct config cfg = settings();
    CLEANUP(jwt_keys_freep) struct jwt_keys *k = NULL;
    struct error err = { 0 };
    auto_free char *anonymous = sign(ED, NULL, "{" CLAIMS "," TIMES "}"),
                   *named = sign(ED, "lc-codeapi-2026-05", "{" CLAIMS "," TIMES "}"),
                   *other = sign(ED, "lc-codeapi-2027-01", "{" CLAIMS "," TIMES "}");

    (void)state;
    set(&cfg.jwt_public_key, made[ED].pem);
    assert_int_equal(jwt_keys_open(&cfg, &k, &err), 0);
    check(k, anonymous, NULL, "no kid");
    check(k, named, NULL, "LibreChat's default kid");
    check(k, other, "kid", "another kid");
    config_done(&cfg);
}

static char *escaped(const char *pem)
{
    char *out = xcalloc(2 * strlen(pem) + 1, 1), *to = out;

    for (; *pem; pem++) {
        *to++ = *pem == '\n' ? '\\' : *pem;
        if (*pem == '\n')
            *to++ = 'n';
    }
    return out;
}

static char *base64(const char *text)
{
    size_t len = strlen(text);
    char *out = xcalloc(BASE64_ENCODE_RAW_LENGTH(len) + 1, 1);

    base64_encode_raw(out, len, (const uint8_t *)text);
    return out;
}

static void a_public_key_may_come_on_one_line(void **state)
{
    (void)state;
    for (int s = 0; s < SIGNERS; s++) {
        if (s != ED && s != RSA)
            continue;
        auto_free char *lines = escaped(made[s].pem), *encoded = base64(made[s].pem);
        const char *const forms[] = { made[s].pem, lines, encoded };
        auto_free char *token = sign((enum signer)s, "mine", "{" CLAIMS "," TIMES "}");
        for (size_t i = 0; i < ARRAY_LEN(forms); i++) {
            struct config cfg = settings();
            CLEANUP(jwt_keys_freep) struct jwt_keys *k = NULL;
            struct error err = { 0 };
            set(&cfg.jwt_public_key, forms[i]);
            set(&cfg.jwt_kid, "mine");
            if (jwt_keys_open(&cfg, &k, &err) < 0)
                fail_msg("%s: %s", forms[i], err.msg);
            check(k, token, NULL, forms[i]);
            config_done(&cfg);
        }
    }
}

static void keys_that_are_no_good_are_named(void **state)
{
    struct error err = { 0 };

    (void)state;
    char *private_jwk = r_jwk_export_to_json_str(made[RSA].private, 0);
    char *ed = r_jwk_export_to_json_str(made[ED].public, 0);
    auto_free char *twice = xasprintf("{\"keys\":[%s,%s]}", ed, ed);
    const struct {
        const char *pem, *jwks, *dir, *says;
    } cases[] = {
        { "rubbish", "", "", "CODEAPI_JWT_PUBLIC_KEY: not a public key" },
        { "-----BEGIN PUBLIC KEY-----\\nAAAA\\n-----END PUBLIC KEY-----", "", "",
          "CODEAPI_JWT_PUBLIC_KEY: not" },
        { "-----BEGIN PRIVATE KEY-----\\nAAAA\\n-----END PRIVATE KEY-----", "", "", "private" },
        { made[RSA_SMALL].pem, "", "", "2048" },
        { made[EC].pem, "", "", "neither Ed25519 nor RSA" },
        { "", "{", "", "CODEAPI_JWT_JWKS_JSON" },
        { "", "[]", "", "CODEAPI_JWT_JWKS_JSON" },
        { "", "{\"keys\":[]}", "", "CODEAPI_JWT_JWKS_JSON: keys" },
        { "", "{\"keys\":[7]}", "", "keys[0]" },
        { "", private_jwk, "", "private key" },
        { "", twice, "", "two keys with kid" },
        { "", "{\"kty\":\"oct\",\"k\":\"c2VjcmV0\",\"kid\":\"h\"}", "", "'h' is not a public key" },
        { "", "", "/nonexistent", "CODEAPI_JWT_PUBLIC_KEYS_DIR: /nonexistent" },
        { "", "", "/proc/self/fdinfo", "has no file" },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct config cfg = settings();
        struct jwt_keys *k = NULL;
        set(&cfg.jwt_public_key, cases[i].pem);
        set(&cfg.jwt_jwks_json, cases[i].jwks);
        set(&cfg.jwt_keys_dir, cases[i].dir);
        if (jwt_keys_open(&cfg, &k, &err) == 0 || !strstr(err.msg, cases[i].says))
            fail_msg("case %zu says: %s", i, err.msg);
        assert_null(k);
        config_done(&cfg);
    }
    r_free(private_jwk);
    r_free(ed);
}

static void write_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "we");

    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void a_directory_names_keys_by_file(void **state)
{
    static const char claims[] = "{" CLAIMS "," TIMES "}";
    char dir[] = "/tmp/carrel-jwt-XXXXXX";
    struct config cfg = settings();
    CLEANUP(jwt_keys_freep) struct jwt_keys *k = NULL;
    struct error err = { 0 };

    (void)state;
    assert_non_null(mkdtemp(dir));
    assert_int_equal(r_jwk_delete_property_str(made[RSA].public, "kid"), RHN_OK);
    char *rsa = r_jwk_export_to_json_str(made[RSA].public, 0);
    auto_free char *pem = xasprintf("%s/2026.05.pem", dir), *json = xasprintf("%s/next.json", dir),
                   *note = xasprintf("%s/README", dir);
    write_file(pem, made[ED].pem);
    write_file(json, rsa);
    write_file(note, "not a key");
    set(&cfg.jwt_keys_dir, dir);
    if (jwt_keys_open(&cfg, &k, &err) < 0)
        fail_msg("%s", err.msg);
    auto_free char *one = sign(ED, "2026.05", claims), *two = sign(RSA, "next", claims),
                   *none = sign(ED, "README", claims);
    check(k, one, NULL, "the PEM's");
    check(k, two, NULL, "the JWK's");
    check(k, none, "kid", "a file that is no key");
    r_free(rsa);
    config_done(&cfg);
    assert_int_equal(unlink(pem) | unlink(json) | unlink(note) | rmdir(dir), 0);
}

static void *verify_often(void *arg)
{
    auto_free char *token = sign(ED, "ed", "{" CLAIMS "," TIMES "}");
    size_t good = 0;

    for (int i = 0; i < 50; i++) {
        CLEANUP(jwt_identity_done) struct jwt_identity id = { 0 };
        struct error err = { 0 };
        good += jwt_verify(arg, token, NOW, &id, &err) == 0;
    }
    return good == 50 ? arg : NULL;
}

static void threads_verify_at_once(void **state)
{
    CLEANUP(jwt_keys_freep) struct jwt_keys *k = two_keys();
    pthread_t threads[4];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(threads); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, verify_often, k), 0);
    for (size_t i = 0; i < ARRAY_LEN(threads); i++) {
        void *good = NULL;
        assert_int_equal(pthread_join(threads[i], &good), 0);
        assert_ptr_equal(good, k);
    }
}

/* ---- through the front door ---- */

static void a_good_token_wins_and_a_bad_one_leaves_it_to_the_key(void **state)
{
    int64_t now = time(NULL);
    auto_free char *claims = xasprintf("{" CLAIMS ",\"exp\":%lld}", (long long)now + 300);
    auto_free char *stale = xasprintf("{" CLAIMS ",\"exp\":%lld}", (long long)now - 300);
    auto_free char *good = sign(ED, NULL, claims), *old = sign(ED, NULL, stale);
    auto_free char *good_header = xasprintf("Bearer %s", good), *old_header = xasprintf("bearer %s", old);
    const struct {
        const char *key, *authorization, *tenant, *user, *says;
    } cases[] = {
        { NULL, good_header, "acme", "ann", NULL },     { "s3cret", good_header, "acme", "ann", NULL },
        { "wrong", good_header, "acme", "ann", NULL },  { "s3cret", old_header, "default", "", NULL },
        { NULL, old_header, NULL, NULL, "expired" },    { "wrong", old_header, NULL, NULL, "expired" },
        { NULL, "Bearer s3cret", "default", "", NULL }, { NULL, "Bearer wrong", NULL, NULL, "not known" },
        { good, NULL, NULL, NULL, "not known" },        { NULL, NULL, NULL, NULL, "needed" },
    };
    struct config cfg = settings();
    CLEANUP(access_closep) struct access *a = NULL;
    struct error none = { 0 };

    (void)state;
    set(&cfg.jwt_public_key, made[ED].pem);
    set(&cfg.api_key, "s3cret");
    assert_int_equal(access_open(&cfg, &a, &none), 0);
    assert_string_equal(access_methods(a), "api-key, jwt");
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct http_request req = { .method = "GET", .client_fd = -1 };
        CLEANUP(principal_freep) struct principal *p = NULL;
        struct error err = { 0 };
        if (cases[i].key)
            assert_int_equal(http_fields_add(&req.headers, "X-API-Key", cases[i].key, &err), 0);
        if (cases[i].authorization)
            assert_int_equal(http_fields_add(&req.headers, "Authorization", cases[i].authorization, &err), 0);
        assert_int_equal(access_authenticate(a, &req, &p, &err), cases[i].tenant ? 0 : -1);
        if (cases[i].tenant) {
            assert_string_equal(p->tenant, cases[i].tenant);
            assert_string_equal(p->user, cases[i].user);
            assert_int_equal(p->user_verified, cases[i].user[0] != '\0');
            assert_int_equal(p->admin, cases[i].user[0] == '\0'); /* a token never makes an admin */
        } else {
            assert_int_equal(err.kind, ERR_UNAUTHORIZED);
            assert_non_null(strstr(err.msg, cases[i].says));
        }
        http_fields_done(&req.headers);
    }
    config_done(&cfg);
}

static void a_jwt_key_alone_closes_the_server(void **state)
{
    struct config cfg = settings();
    CLEANUP(access_closep) struct access *a = NULL;
    CLEANUP(principal_freep) struct principal *p = NULL;
    struct http_request req = { .method = "GET", .client_fd = -1, .peer_is_loopback = true };
    struct error err = { 0 };

    (void)state;
    set(&cfg.host, "0.0.0.0");
    set(&cfg.jwt_public_key, made[RSA].pem);
    assert_int_equal(access_open(&cfg, &a, &err), 0);
    assert_false(access_is_open(a));
    assert_string_equal(access_methods(a), "jwt");
    assert_int_equal(access_authenticate(a, &req, &p, &err), -1);
    assert_int_equal(err.kind, ERR_UNAUTHORIZED);
    config_done(&cfg);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(claims_decide),
        cmocka_unit_test(the_token_names_tenant_and_user),
        cmocka_unit_test(algorithm_and_key_belong_together),
        cmocka_unit_test(forgeries_are_refused),
        cmocka_unit_test(a_key_in_the_header_is_not_used),
        cmocka_unit_test(any_changed_character_spoils_a_token),
        cmocka_unit_test(without_kid_the_only_key_counts),
        cmocka_unit_test(a_public_key_may_come_on_one_line),
        cmocka_unit_test(keys_that_are_no_good_are_named),
        cmocka_unit_test(a_directory_names_keys_by_file),
        cmocka_unit_test(threads_verify_at_once),
        cmocka_unit_test(a_good_token_wins_and_a_bad_one_leaves_it_to_the_key),
        cmocka_unit_test(a_jwt_key_alone_closes_the_server),
    };

    return cmocka_run_group_tests(tests, make_keys, free_keys);
}
