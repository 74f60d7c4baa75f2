/* A Target that is let go: names of ended runs go with it, once nothing can need them. */
#include "connectors/kubernetes/runs/runs.h"
#include "tests/support/contract/connector_contract_internal.h"
#include "tests/support/kube/kube_rig.h"

#include <string.h>

static enum outcome leaves(struct connector_rig *r, struct asked *a)
{
    contract_ask_begin(r, a, CALL_MS);
    r->ops->leave(r->connector, &a->call);
    return contract_ask_end(r, a);
}

static void a_target_that_is_let_go_leaves_no_husk(void **state)
{
    struct connector_rig *r = *state;
    struct asked a;

    (void)leaves(r, &a); /* it looks first */
    kube_rig_passes(r, 3000);
    assert_int_equal(leaves(r, &a), OUT_DONE);
    struct run_key k = contract_fresh_key(r);
    assert_int_equal(contract_submit(r, &k, PROGRAM_ENDS, &a), OUT_DONE);
    (void)contract_await_run(r, &k, RUN_ENDED);
    contract_ask_begin(r, &a, CALL_MS);
    r->ops->finalize(r->connector, &k, &a.call);
    assert_int_equal(contract_ask_end(r, &a), OUT_DONE);
    struct run_key absent = contract_fresh_key(r); /* by a tombstone */
    contract_ask_begin(r, &a, CALL_MS);
    r->ops->find(r->connector, &absent, &a.call);
    assert_int_equal(contract_ask_end(r, &a), OUT_DONE);
    kube_rig_passes(r, 3000);
    assert_int_equal(kube_world_count("jobs"), 2);
    assert_int_equal(leaves(r, &a), OUT_REJECTED); /* what is late may come yet */
    assert_non_null(strstr(a.err.text, "2 Jobs of runs that have ended hold their names"));
    assert_non_null(strstr(a.err.text, "kubectl -n work patch job hanse-"));
    kube_rig_passes(r, 31000);
    assert_int_equal(leaves(r, &a), OUT_REJECTED);
    kube_rig_passes(r, 5000);
    assert_int_equal(leaves(r, &a), OUT_DONE);
    assert_int_equal(kube_world_count("jobs"), 0);
    assert_int_equal(kube_world_count("pods"), 0);
}

/* What runs is none of that, and is named. */
static void what_runs_is_not_let_go(void **state)
{
    struct connector_rig *r = *state;
    struct asked a;
    struct run_key k = contract_running(r, &a);

    kube_rig_passes(r, 120000);
    assert_int_equal(leaves(r, &a), OUT_REJECTED);
    assert_non_null(strstr(a.err.text, kube_text(kube_world_job(&k)->doc, "metadata.name")));
    assert_non_null(strstr(a.err.text, "hanse orphans"));
    kube_rig_passes(r, 60000);
    assert_int_equal(leaves(r, &a), OUT_REJECTED);
    assert_true(kube_world_alive(&k));
}

static enum run_verdict is_nobodys(const struct run_listed *l, void *arg)
{
    (void)l;
    (void)arg;
    return RUN_LET_GO;
}

static void sweeps(struct connector_rig *r, struct asked *a)
{
    contract_ask_begin(r, a, CALL_MS);
    r->ops->sweep(r->connector, is_nobodys, NULL, &a->call);
    assert_int_equal(contract_ask_end(r, a), OUT_DONE);
}

static void orphaned(const struct run_key *k)
{
    struct kube_object *pod = kube_world_pod(k, 0);

    cJSON_DeleteItemFromObjectCaseSensitive(cJSON_GetObjectItemCaseSensitive(pod->doc, "metadata"),
                                            "ownerReferences");
    kube_world_changed(pod);
    kube_world_remove(kube_world_job(k));
}

static struct run_key runs_once_it_looked(struct connector_rig *r, struct asked *a)
{
    (void)leaves(r, a); /* which asks for what it may have to clear away */
    kube_rig_passes(r, 3000);
    assert_int_equal(leaves(r, a), OUT_DONE);
    return contract_running(r, a);
}

/* Somebody took its Job away and left its pod there (kubectl delete --cascade=orphan): it runs on,
 * and is named, until a sweep has ended it. */
static void what_runs_without_its_job_is_left_there_too(void **state)
{
    struct connector_rig *r = *state;
    struct asked a;
    struct run_key k = runs_once_it_looked(r, &a);

    orphaned(&k);
    kube_rig_passes(r, 60000);
    assert_true(kube_world_alive(&k));
    assert_int_equal(leaves(r, &a), OUT_REJECTED);
    assert_non_null(strstr(a.err.text, "pod work/hanse-"));
    assert_non_null(strstr(a.err.text, "hanse orphans"));
    sweeps(r, &a); /* which ends it */
    kube_rig_passes(r, 40000);
    assert_false(kube_world_alive(&k));
    assert_int_equal(leaves(r, &a), OUT_REJECTED);
    sweeps(r, &a); /* which clears up */
    kube_rig_passes(r, 40000);
    (void)leaves(r, &a);
    kube_rig_passes(r, 5000);
    assert_int_equal(leaves(r, &a), OUT_DONE);
    assert_int_equal(kube_world_count("pods"), 0);
    assert_int_equal(kube_world_count("jobs"), 0);
}

/* Its program has ended, and our finalizer holds what it has left: nothing of that stays. */
static void what_ended_without_its_job_is_left_there_too(void **state)
{
    struct connector_rig *r = *state;
    struct asked a;
    struct run_key k = runs_once_it_looked(r, &a);

    kube_world_remove(kube_world_job(&k));
    kube_rig_passes(r, 60000);
    assert_false(kube_world_alive(&k));
    assert_int_equal(kube_world_count("pods"), 1);
    assert_int_equal(leaves(r, &a), OUT_REJECTED);
    sweeps(r, &a);
    kube_rig_passes(r, 40000);
    (void)leaves(r, &a);
    kube_rig_passes(r, 5000);
    assert_int_equal(leaves(r, &a), OUT_DONE);
    assert_int_equal(kube_world_count("pods"), 0);
}

#define T(name) cmocka_unit_test_setup_teardown(name, kube_rig_setup, kube_rig_teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {T(a_target_that_is_let_go_leaves_no_husk),
                                       T(what_runs_is_not_let_go),
                                       T(what_runs_without_its_job_is_left_there_too),
                                       T(what_ended_without_its_job_is_left_there_too)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
