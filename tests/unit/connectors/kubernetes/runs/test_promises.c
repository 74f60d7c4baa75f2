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

#define T(name) cmocka_unit_test_setup_teardown(name, kube_rig_setup, kube_rig_teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {T(a_target_that_is_let_go_leaves_no_husk),
                                       T(what_runs_is_not_let_go)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
