/* Whose session is whose: two users of one tenant, one of another, and storage that a tenant shares. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "orchestrator/files/tree.h"
#include "orchestrator/session/table.h"
#include "tests/fakes/fake_engine.h"

struct fixture {
    char dir[40];
    struct config config;
    struct db *db;
    struct store *store;
    struct engine *engine;
    struct session_env env;
    struct session_table *table;
    struct principal *alice, *bob, *mallory;
};

static const struct shared_storage agent = { .kind = "agent", .id = "agent_1" };
static const struct shared_storage skill = { .kind = "skill", .id = "s1", .version = "1" };

static int setup(void **state)
{
    struct fixture *f = xcalloc(1, sizeof *f);
    struct error err = { 0 };

    (void)strcpy(f->dir, "/tmp/carrel-unit-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    auto_free char *path = xasprintf("%s/carrel.db", f->dir);
    assert_int_equal(config_load(&f->config, &err), 0);
    assert_int_equal(db_open(path, &f->db, &err), 0);
    assert_int_equal(store_open(f->dir, f->db, &f->store, &err), 0);
    f->engine = fake_engine_new();
    f->env = (struct session_env){ &f->config, f->db, f->store, f->engine, "unit", f->dir };
    assert_int_equal(session_table_new(&f->env, &f->table, &err), 0);
    f->alice = principal_new("t1", "alice", true, false);
    f->bob = principal_new("t1", "bob", true, false);
    f->mallory = principal_new("t2", "alice", true, false); /* the same name in another tenant */
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    struct error err = { 0 };

    session_table_free(f->table);
    engine_close(f->engine);
    store_close(f->store);
    db_close(f->db);
    principal_free(f->alice);
    principal_free(f->bob);
    principal_free(f->mallory);
    config_done(&f->config);
    assert_int_equal(tree_remove(f->dir, &err), 0);
    free(f);
    return 0;
}

static void shared_id(struct fixture *f, const struct principal *p, const struct shared_storage *storage,
                      char ret[ID_SIZE])
{
    CLEANUP(session_unpinp) struct session *s = NULL;
    struct error err = { 0 };

    if (session_resolve_shared(f->table, p, storage, &s, &err) < 0)
        fail_msg("%s", err.msg);
    assert_true(s->shared);
    memcpy(ret, s->id, ID_SIZE);
}

static void resolved_id(struct fixture *f, const struct principal *p, const struct session_hint *hint,
                        char ret[ID_SIZE])
{
    CLEANUP(session_unpinp) struct session *s = NULL;
    struct error err = { 0 };

    assert_int_equal(session_resolve(f->table, p, hint, &s, NULL, &err), 0);
    assert_false(s->shared);
    memcpy(ret, s->id, ID_SIZE);
}

typedef int find_fn(struct session_table *t, const struct principal *p, const char *id, struct session **ret,
                    struct error *err);

static bool finds(struct fixture *f, find_fn *find, const struct principal *p, const char *id)
{
    CLEANUP(session_unpinp) struct session *s = NULL;
    struct error err = { 0 };

    if (find(f->table, p, id, &s, &err) == 0)
        return true;
    assert_int_equal(err.kind, ERR_NOT_FOUND);
    assert_string_equal(err.msg, "no such session"); /* as an unknown one */
    return false;
}

static void a_key_of_shared_storage_is_one_session_of_its_tenant(void **state)
{
    struct fixture *f = *state;
    static const struct {
        struct shared_storage a, b;
        bool other_user, other_tenant, same;
    } cases[] = {
        { { "agent", "a", NULL }, { "agent", "a", NULL }, false, false, true },
        { { "agent", "a", NULL }, { "agent", "a", NULL }, true, false, true },
        { { "agent", "a", NULL }, { "agent", "a", NULL }, false, true, false },
        { { "agent", "a", NULL }, { "agent", "b", NULL }, false, false, false },
        { { "skill", "a", "1" }, { "agent", "a", NULL }, false, false, false },
        { { "skill", "a", "1" }, { "skill", "a", "1" }, true, false, true },
        { { "skill", "a", "1" }, { "skill", "a", "2" }, false, false, false },
        { { "skill", "a", "1" }, { "skill", "a", "1" }, true, true, false },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char a[ID_SIZE], b[ID_SIZE];
        const struct principal *p = cases[i].other_tenant ? f->mallory
                                    : cases[i].other_user ? f->bob
                                                          : f->alice;
        shared_id(f, f->alice, &cases[i].a, a);
        shared_id(f, p, &cases[i].b, b);
        if ((strcmp(a, b) == 0) != cases[i].same)
            fail_msg("case %zu", i);
    }
}

static void ids_open_only_to_those_who_may(void **state)
{
    struct fixture *f = *state;
    char own[ID_SIZE], agents[ID_SIZE], skills[ID_SIZE];
    const struct principal *const who[] = { f->alice, f->bob, f->mallory };

    resolved_id(f, f->alice, &(struct session_hint){ .entity_id = "e" }, own);
    shared_id(f, f->alice, &agent, agents);
    shared_id(f, f->bob, &skill, skills);
    const struct {
        const char *what, *id;
        find_fn *find;
        bool may[3]; /* alice, bob, mallory */
    } cases[] = {
        { "her session", own, session_find, { true, false, false } },
        { "her session's files", own, session_find_files, { true, false, false } },
        { "the agent's storage as a session", agents, session_find, { false, false, false } },
        { "the agent's files", agents, session_find_files, { true, true, false } },
        { "the skill's storage as a session", skills, session_find, { false, false, false } },
        { "the skill's files", skills, session_find_files, { true, true, false } },
        { "an unknown id", "AAAAAAAAAAAAAAAAAAAAA", session_find_files, { false, false, false } },
        { "no id", "../../etc/passwd", session_find_files, { false, false, false } },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        for (size_t k = 0; k < ARRAY_LEN(who); k++)
            if (finds(f, cases[i].find, who[k], cases[i].id) != cases[i].may[k])
                fail_msg("%s, %s of %s", cases[i].what, who[k]->user, who[k]->tenant);
}

static void shared_storage_is_never_adopted_for_execution(void **state)
{
    struct fixture *f = *state;
    char storage[ID_SIZE], anonymous[ID_SIZE], named[ID_SIZE], entity[ID_SIZE], own[ID_SIZE], again[ID_SIZE];

    shared_id(f, f->alice, &agent, storage);
    resolved_id(f, f->alice, &(struct session_hint){ .session_id = storage }, anonymous);
    assert_string_not_equal(anonymous, storage);
    resolved_id(f, f->alice, &(struct session_hint){ .entity_id = "agent_1" }, entity);
    resolved_id(f, f->alice, &(struct session_hint){ .session_id = storage, .entity_id = "agent_1" }, named);
    assert_string_equal(named, entity); /* it counts as not sent */
    resolved_id(f, f->alice, &(struct session_hint){ 0 }, own);
    resolved_id(f, f->alice, &(struct session_hint){ .session_id = own }, again);
    assert_string_equal(again, own); /* while one's own anonymous session is */
    resolved_id(f, f->bob, &(struct session_hint){ .session_id = own }, again);
    assert_string_not_equal(again, own);
}

/* A principal without a user must not take what belongs to nobody for its own. */
static void an_empty_user_does_not_own_shared_storage(void **state)
{
    struct fixture *f = *state;
    CLEANUP(principal_freep) struct principal *nobody = principal_new("t1", "", false, false);
    char storage[ID_SIZE], got[ID_SIZE];

    shared_id(f, f->alice, &agent, storage);
    assert_false(finds(f, session_find, nobody, storage));
    assert_true(finds(f, session_find_files, nobody, storage));
    resolved_id(f, nobody, &(struct session_hint){ .session_id = storage }, got);
    assert_string_not_equal(got, storage);
}

#define THREADS 8

struct racer {
    struct fixture *f;
    char id[ID_SIZE];
    bool ok;
};

static void *race(void *arg)
{
    struct racer *r = arg;
    struct session *s = NULL;
    struct error err = { 0 };

    r->ok = session_resolve_shared(r->f->table, r->f->alice, &skill, &s, &err) == 0;
    if (r->ok)
        memcpy(r->id, s->id, ID_SIZE);
    session_unpin(s);
    return NULL;
}

static void first_uploads_at_once_share_one_session(void **state)
{
    struct racer racers[THREADS] = { 0 };
    pthread_t threads[THREADS];

    for (size_t i = 0; i < THREADS; i++) {
        racers[i].f = *state;
        assert_int_equal(pthread_create(&threads[i], NULL, race, &racers[i]), 0);
    }
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (size_t i = 0; i < THREADS; i++) {
        assert_true(racers[i].ok);
        assert_string_equal(racers[i].id, racers[0].id);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_key_of_shared_storage_is_one_session_of_its_tenant, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(ids_open_only_to_those_who_may, setup, teardown),
        cmocka_unit_test_setup_teardown(shared_storage_is_never_adopted_for_execution, setup, teardown),
        cmocka_unit_test_setup_teardown(an_empty_user_does_not_own_shared_storage, setup, teardown),
        cmocka_unit_test_setup_teardown(first_uploads_at_once_share_one_session, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
