/* Pods that run, and whose runners no hub has heard of: that is told, and taken back. */
#include "connectors/kubernetes/runs/runs_internal.h"
#include "tests/support/contract/connector_contract_internal.h"
#include "tests/support/kube/kube_rig.h"

#include <string.h>

static void who_has_not_called_home_is_told_of(void **state)
{
    struct connector_rig *r = *state;
    struct asked a;
    struct run_key k = contract_running(r, &a);

    /* From now on its target's runners call home: this one never did. */
    object_as(kube_rig.target, target)->spec->connection->runners = true;
    assert_int_equal(contract_find(r, &k, CALL_MS, &a), OUT_DONE);
    assert_int_equal(a.seen.state, RUN_STARTING);
    assert_string_equal(a.seen.reason, "");
    kube_rig_passes(r, 15000); /* unasked */
    (void)contract_await_run(r, &k, RUN_STARTING);
    assert_int_equal(contract_find(r, &k, CALL_MS, &a), OUT_DONE);
    assert_string_equal(a.seen.reason, "NotCalledHome");
    assert_non_null(strstr(a.seen.message, "homeProxy"));
    bool told = false;
    for (size_t i = 0; i < r->n_seen; i++)
        told |= !strcmp(r->seen[i].reason, "NotCalledHome");
    assert_true(told);
    object_as(kube_rig.target, target)->spec->connection->runners = false;
    assert_int_equal(contract_find(r, &k, CALL_MS, &a), OUT_DONE);
    assert_int_equal(a.seen.state, RUN_RUNNING);
    assert_string_equal(a.seen.reason, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(
        who_has_not_called_home_is_told_of, kube_rig_setup, kube_rig_teardown)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
