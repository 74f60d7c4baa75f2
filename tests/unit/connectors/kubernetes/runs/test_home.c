/* Pods that run, and whose runners no hub has heard of: that is told, and taken back; and what pods
 * say of runners that have ended unheard. */
#include "connectors/kubernetes/runs/runs_internal.h"
#include "tests/support/contract/connector_contract_internal.h"
#include "tests/support/home/guest.h"
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

static int take(void *rig, const struct home_arrival *a, struct err *err)
{
    struct connector_rig *r = rig;

    return r->ops->runner(r->connector, a, err);
}

static bool one_has_ended(void *arg)
{
    struct kube_pod_seen seen;

    kube_pod_read(kube_world_pod(arg, 1)->doc, &seen);
    return seen.is == POD_ENDED;
}

/* One of a gang ended well while nobody led: its pod says so, and the others keep their lease. */
static void the_end_of_one_rank_holds_up_no_lease(void **state)
{
    const struct run_report runs = {.step = RUN_STEP_RUNNING, .grant = 2, .lease_ms = 60000};
    struct connector_rig *r = *state;
    static struct guest others[2];
    struct asked a;

    kube_rig.ranks = 3;
    struct run_key k = contract_running(r, &a);
    object_as(kube_rig.target, target)->spec->connection->runners = true;
    list_for_each (it, &kube_world.procs) {
        struct kube_proc *p = container_of(it, struct kube_proc, link);
        if (p->rank == 1)
            p->over_ms = loop_now_ms(r->loop);
    }
    assert_true(connector_until(r, one_has_ended, &k, PATIENCE_MS));
    for (int64_t i = 0; i < 2; i++) {
        const struct home_token t = {.key = k, .rank = 2 * i, .ranks = 3};
        assert_int_equal(guest_comes(&others[i], r->loop, &t, &runs, take, r), 0);
    }
    assert_int_equal(contract_find(r, &k, CALL_MS, &a), OUT_DONE);
    assert_int_equal(a.seen.state, RUN_RUNNING);
    assert_true(r->ops->reaches(r->connector, &k));
    r->ops->renew(r->connector, NULL, 0);
    assert_int_equal(others[0].renewals, 1);
    assert_int_equal(others[1].renewals, 1);
    guest_goes(&others[1]); /* its pod runs */
    assert_false(r->ops->reaches(r->connector, &k));
    object_as(kube_rig.target, target)->spec->connection->runners = false;
}

/* Its node died ahead of a change of leaders, and its pod is called running for a while yet: that
 * the lease is over which its runner held by the log is told, unasked. */
static void who_does_not_call_for_a_lease_is_unknown(void **state)
{
    struct connector_rig *r = *state;
    struct asked a;
    struct run_key k = contract_running(r, &a);

    object_as(kube_rig.target, target)->spec->connection->runners = true;
    kube_rig.lease_ms = 20000;
    assert_int_equal(contract_find(r, &k, CALL_MS, &a), OUT_DONE);
    assert_int_equal(a.seen.state, RUN_STARTING);
    kube_rig_passes(r, 19000);
    assert_int_equal(contract_seen_of(r, &k)->state, RUN_STARTING);
    kube_rig_passes(r, 2000);
    assert_int_equal(contract_seen_of(r, &k)->state, RUN_UNKNOWN);
    assert_int_equal(contract_find(r, &k, CALL_MS, &a), OUT_DONE);
    assert_int_equal(a.seen.state, RUN_UNKNOWN);
    assert_non_null(strstr(a.seen.message, "longer than the lease"));
    object_as(kube_rig.target, target)->spec->connection->runners = false;
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, kube_rig_setup, kube_rig_teardown)
    const struct CMUnitTest tests[] = {T(who_has_not_called_home_is_told_of),
                                       T(the_end_of_one_rank_holds_up_no_lease),
                                       T(who_does_not_call_for_a_lease_is_unknown)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
