/* Clocks of an API server and of kubelets that are hours off ours: what is counted by their times
 * is compared with their own clock alone. */
#include "connectors/kubernetes/client/client.h"
#include "tests/support/contract/connector_contract_internal.h"
#include "tests/support/kube/kube_rig.h"

#define HOUR_MS (3600 * 1000)

static bool any(const struct run_promise *p, void *arg)
{
    unsigned *n = arg;

    (void)p;
    ++*n;
    return true;
}

static unsigned let_go(struct connector_rig *r, uint64_t older_ms)
{
    struct asked a;
    unsigned n = 0;

    contract_ask_begin(r, &a, CALL_MS);
    r->ops->promises(r->connector, 9, older_ms, any, &n, &a.call);
    assert_int_equal(contract_ask_end(r, &a), OUT_DONE);
    kube_rig_passes(r, 3000);
    return n;
}

static void ended(struct connector_rig *r, struct run_key *k)
{
    struct asked a;

    *k = contract_fresh_key(r);
    assert_int_equal(contract_submit(r, k, PROGRAM_ENDS, &a), OUT_DONE);
    (void)contract_await_run(r, k, RUN_ENDED);
    contract_ask_begin(r, &a, CALL_MS);
    r->ops->finalize(r->connector, k, &a.call);
    assert_int_equal(contract_ask_end(r, &a), OUT_DONE);
    kube_rig_passes(r, 10000);
}

/* A server whose clock is two hours behind gives a Job that has just ended a time at which its name
 * would long be free: an order of an older hub that is still under way would start there. */
static void a_name_is_as_old_as_its_server_says(struct connector_rig *r, int64_t ahead_ms)
{
    struct run_key k;

    kube_world.api_ahead_ms = ahead_ms;
    kube_rig_passes(r, 10000); /* it has answered, and said what its clock is at */
    ended(r, &k);
    assert_int_equal(let_go(r, HOUR_MS), 0);
    assert_int_equal(kube_world_count("jobs"), 1);
    assert_int_equal(let_go(r, 5000), 1);
    assert_int_equal(kube_world_count("jobs"), 0);
}

static void a_name_is_kept_by_a_clock_that_is_behind(void **state)
{
    a_name_is_as_old_as_its_server_says(*state, -2 * HOUR_MS);
}

static void a_name_is_let_go_by_a_clock_that_is_ahead(void **state)
{
    a_name_is_as_old_as_its_server_says(*state, 2 * HOUR_MS);
}

/* A clock that is set meanwhile is followed with the next answer. */
static void a_clock_that_is_set_is_followed(void **state)
{
    struct connector_rig *r = *state;
    struct run_key k;

    ended(r, &k);
    kube_world.api_ahead_ms = 24 * HOUR_MS;
    kube_rig_passes(r, 10000);
    assert_int_equal(let_go(r, HOUR_MS), 1);
    kube_world.api_ahead_ms = -24 * HOUR_MS;
    kube_rig_passes(r, 10000);
    ended(r, &k);
    assert_int_equal(let_go(r, HOUR_MS), 0);
}

/* A kubelet of tomorrow has reported an end all the same, and one of yesterday a start. */
static void what_kubelets_report_is_so_whatever_their_clock_says(void **state)
{
    static const int64_t ahead_ms[] = {-26 * HOUR_MS, 26 * HOUR_MS};
    struct connector_rig *r = *state;

    for (unsigned i = 0; i < 2; i++) {
        struct asked a;
        kube_world.kubelets_ahead_ms = ahead_ms[i];
        struct run_key k = contract_running(r, &a);
        contract_ask_begin(r, &a, CALL_MS);
        r->ops->stop(r->connector, &k, 1000, &a.call);
        assert_int_equal(contract_ask_end(r, &a), OUT_DONE);
        (void)contract_await_run(r, &k, RUN_ENDED);
        assert_false(kube_world_alive(&k));
        assert_int_equal(kube_world_starts(&k), 1);
    }
}

#define T(name) cmocka_unit_test_setup_teardown(name, kube_rig_setup, kube_rig_teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        T(a_name_is_kept_by_a_clock_that_is_behind),
        T(a_name_is_let_go_by_a_clock_that_is_ahead),
        T(a_clock_that_is_set_is_followed),
        T(what_kubelets_report_is_so_whatever_their_clock_says),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
