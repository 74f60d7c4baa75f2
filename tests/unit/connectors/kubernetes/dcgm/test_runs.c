/* How busy the devices of runs are: what is told of pods, gathered by run, over a cluster in memory
 * (tests/support/kube). */
#include "connectors/kubernetes/kubernetes_internal.h"
#include "tests/support/contract/connector_contract_internal.h"
#include "tests/support/kube/kube_rig.h"

#include <string.h>

#define MINUTE 60000

static const char *pod_name(const struct run_key *k, int64_t rank)
{
    return kube_text(kube_world_pod(k, rank)->doc, "metadata.name");
}

static const char *pod_node(const struct run_key *k, int64_t rank)
{
    return kube_text(kube_world_pod(k, rank)->doc, "spec.nodeName");
}

static void told(struct connector_rig *r, const char *node, const char *ns, const char *pod,
                 unsigned percent, unsigned devices)
{
    struct kube_device_use v[8];
    struct kube_pod_use u = {.node = node, .ns = ns, .pod = pod, .devices = v, .n = devices};

    for (unsigned i = 0; i < devices; i++)
        v[i] = (struct kube_device_use){
            .id = i + 1, .percent = percent, .rests = percent == 0, .bytes = 1000};
    kube_uses_take(kubernetes_of(r->connector)->uses, &u);
}

static void told_rank(struct connector_rig *r, const struct run_key *k, int64_t rank,
                      unsigned percent)
{
    told(r, pod_node(k, rank), KUBE_WORLD_NS, pod_name(k, rank), percent, 2);
}

static void a_run_is_told_of_by_its_pod(void **state)
{
    struct connector_rig *r = *state;
    struct asked a;
    struct run_key k = contract_running(r, &a);
    const char *pod = pod_name(&k, 0), *node = pod_node(&k, 0);

    assert_non_null(strstr(pod, "hanse-"));
    /* words about it from elsewhere, of another namespace, and about others */
    told(r, "n9", KUBE_WORLD_NS, pod, 5, 1);
    told(r, node, "elsewhere", pod, 5, 1);
    told(r, node, KUBE_WORLD_NS, "train-0", 5, 1);
    told(r, node, KUBE_WORLD_NS, "x", 5, 1);
    told(r, node, KUBE_WORLD_NS, "hanse-a-1-1-0-abcde", 5, 1);
    assert_int_equal(r->n_used, 0);
    told(r, node, KUBE_WORLD_NS, pod, 40, 2);
    assert_int_equal(r->n_used, 1);
    assert_true(run_key_same(&r->used.key, &k));
    assert_int_equal(r->used.devices, 2);
    assert_int_equal(r->used.percent, 40);
    assert_int_equal(r->used.memory_bytes, 2000);
    assert_int_equal(r->used.resting + r->used.idle, 0);
    told(r, node, KUBE_WORLD_NS, pod, 40, 2);
    assert_int_equal(r->n_used, 1); /* it was told just now */
    kube_rig_passes(r, MINUTE);
    told(r, node, KUBE_WORLD_NS, pod, 0, 2);
    assert_int_equal(r->used.resting, 2);
    assert_int_equal(r->used.idle, 0);
    for (int i = 0; i < 5; i++) {
        kube_rig_passes(r, MINUTE);
        told(r, node, KUBE_WORLD_NS, pod, 0, 2);
    }
    assert_int_equal(r->n_used, 7);
    assert_int_equal(r->used.idle, 2);
    assert_true(r->used.idle_ms >= RUN_IDLE_MS && r->used.resting_ms == r->used.idle_ms);
    kube_rig_passes(r, MINUTE);
    told(r, node, KUBE_WORLD_NS, pod, 9, 2);
    assert_int_equal(r->used.idle + r->used.resting, 0);
    /* it has ended: what is said of its pod is not told */
    assert_int_equal(contract_stop(r, &k, &a), OUT_DONE);
    kube_rig_passes(r, MINUTE);
    told(r, node, KUBE_WORLD_NS, pod, 9, 2);
    assert_int_equal(r->n_used, 8);
}

/* All of it is waited for a while; then it is told of those that are measured. */
static void a_gang_is_told_of_whole(void **state)
{
    struct connector_rig *r = *state;
    struct run_key k = contract_fresh_key(r);
    struct asked a;

    kube_rig.ranks = 3;
    assert_int_equal(contract_submit(r, &k, PROGRAM_STAYS, &a), OUT_DONE);
    (void)contract_await_run(r, &k, RUN_RUNNING);
    told_rank(r, &k, 0, 90);
    told_rank(r, &k, 1, 30);
    assert_int_equal(r->n_used, 0);
    told_rank(r, &k, 2, 0);
    assert_int_equal(r->n_used, 1);
    assert_int_equal(r->used.devices, 6);
    assert_int_equal(r->used.percent, 40);
    assert_int_equal(r->used.resting, 2);
    assert_int_equal(r->used.resting_ms, 0); /* the others do something */
    for (int i = 0; i < 4; i++) {
        kube_rig_passes(r, MINUTE);
        told_rank(r, &k, 2, 0);
    }
    assert_int_equal(r->used.devices, 6);
    /* of two of them nothing is told any more */
    for (int i = 0; i < 3; i++) {
        kube_rig_passes(r, MINUTE);
        told_rank(r, &k, 2, 0);
    }
    assert_int_equal(r->used.devices, 2);
    assert_int_equal(r->used.idle, 2);
}

/* What was between two readings that are far apart nobody knows: it begins to rest anew. */
static void a_gap_is_no_rest(void **state)
{
    struct connector_rig *r = *state;
    struct asked a;
    struct run_key k = contract_running(r, &a);

    told_rank(r, &k, 0, 0);
    for (int i = 0; i < 6; i++) {
        kube_rig_passes(r, MINUTE);
        told_rank(r, &k, 0, 0);
    }
    assert_int_equal(r->used.idle, 2);
    kube_rig_passes(r, 3 * MINUTE); /* two were missed: that is no gap */
    told_rank(r, &k, 0, 0);
    assert_int_equal(r->used.idle, 2);
    assert_true(r->used.resting_ms >= 9 * MINUTE);
    kube_rig_passes(r, 6 * MINUTE);
    told_rank(r, &k, 0, 0);
    assert_int_equal(r->used.resting, 2);
    assert_int_equal(r->used.idle, 0);
    assert_int_equal(r->used.resting_ms, 0);
    for (int i = 0; i < 5; i++) {
        kube_rig_passes(r, MINUTE);
        told_rank(r, &k, 0, 0);
    }
    assert_int_equal(r->used.idle, 2);
    assert_true(r->used.resting_ms < 6 * MINUTE);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_run_is_told_of_by_its_pod, kube_rig_setup,
                                        kube_rig_teardown),
        cmocka_unit_test_setup_teardown(a_gang_is_told_of_whole, kube_rig_setup, kube_rig_teardown),
        cmocka_unit_test_setup_teardown(a_gap_is_no_rest, kube_rig_setup, kube_rig_teardown)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
