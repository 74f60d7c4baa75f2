/* Placement on targets and nodes: each rule has a test that fails without it. */
#include "tests/support/policy/policy_world.h"

#define GPU(n) "  resources: {gpu: {count: " #n "}, cpu: 4, memory: 8Gi}\n"

static void hub(struct world *w, int nodes)
{
    world_target(w, "hub", "tier: hub, region: eu, site: fra1, jurisdiction: DE, priceSheet: own");
    world_nodes(w, "hub", nodes, 8, "h100", "");
}

static void test_devices_are_held_and_given_back(void **state)
{
    struct world *w = *state;

    hub(w, 1);
    assert_int_equal(pool_free_gpu_milli(w->p, "h100"), 8000);
    world_run(w, "a", GPU(6));
    assert_placed(w, "hub");
    assert_int_equal(w->pl->n_assignments, 1);
    assert_int_equal(w->pl->assignments[0].n_gpus, 6);
    assert_int_equal(w->pl->gpus, 6000);
    assert_string_equal(w->pl->domain, "eu/fra1/b1/r1");
    assert_int_equal(pool_free_gpu_milli(w->p, NULL), 2000);
    world_run(w, "b", GPU(2));
    assert_placed(w, "hub");
    assert_int_equal(w->pl->assignments[0].gpus[0], 6); /* not those of a */
    world_run(w, "c", GPU(1));
    assert_pending(w, "GpusInUse");
    assert_string_equal(w->d->candidates[0].message, "8 of 8 h100 in use");
    pool_drop(w->p, "uid-a");
    world_run(w, "c", GPU(6));
    assert_placed(w, "hub");
    assert_string_equal(w->d->message, "hub, eu/fra1/b1/r1, 6 \xc3\x97 h100, price not known");
}

static void test_best_fit_keeps_large_holes(void **state)
{
    struct world *w = *state;

    hub(w, 3);
    world_run(w, "a", GPU(5));
    world_run(w, "b", GPU(2)); /* 3 are left where a is */
    assert_string_equal(w->pl->assignments[0].node, "hub-n1");
    world_run(w, "c", GPU(8));
    assert_placed(w, "hub");
    world_run(w, "d", GPU(8));
    assert_placed(w, "hub");
}

static void test_spread_free_gpus_do_not_make_a_node(void **state)
{
    struct world *w = *state;

    hub(w, 2);
    world_run(w, "a", GPU(5));
    world_run(w, "b", GPU(5));
    world_run(w, "c", GPU(4));
    assert_pending(w, "GpusInUse");
    assert_string_equal(w->d->candidates[0].message, "3 of 4 free on one node");
}

static void test_fractions_share_and_whole_needs_all(void **state)
{
    struct world *w = *state;
    int64_t dev;

    world_target(w, "hub", "tier: hub");
    world_nodes(w, "hub", 1, 2, "h100", "");
    world_run(w, "a", "  resources: {gpu: {fraction: 0.6}}\n");
    assert_placed(w, "hub");
    dev = w->pl->assignments[0].gpus[0];
    assert_int_equal(w->pl->assignments[0].gpuMilli, 600);
    world_run(w, "b", "  resources: {gpu: {fraction: 0.4}}\n");
    assert_int_equal(w->pl->assignments[0].gpus[0], dev); /* fills the partly used one */
    world_run(w, "c", GPU(2));
    assert_pending(w, "GpusInUse");
    world_run(w, "d", GPU(1));
    assert_placed(w, "hub");
    assert_int_not_equal(w->pl->assignments[0].gpus[0], dev);
    world_run(w, "e", "  resources: {gpu: {fraction: 0.1}}\n");
    assert_pending(w, "FractionDoesNotFit");
    pool_drop(w->p, "uid-b");
    world_run(w, "e", "  resources: {gpu: {fraction: 0.3}}\n");
    assert_placed(w, "hub");
    world_run(w, "f", "  resources: {gpu: {fraction: 0.3}}\n");
    assert_pending(w, "FractionDoesNotFit");
}

static void test_isolation_and_mig(void **state)
{
    struct world *w = *state;

    world_target(w, "hub", "tier: hub");
    world_put(w, "kind: Node\nmetadata: {name: n}\nspec:\n  target: hub\n  cpu: 8\n  memory: 8Gi\n"
                 "  gpus:\n  - {index: 0, class: h100, shared: true}\n"
                 "  - {index: 1, class: h100, migProfiles: [3g.40gb, 3g.40gb]}\n");
    world_run(w, "a", "  resources: {gpu: {count: 1, isolation: hard}}\n");
    assert_pending(w, "IsolationImpossible");
    world_run(w, "f", "  resources: {gpu: {fraction: 0.5, isolation: hard}}\n");
    assert_pending(w, "IsolationImpossible");
    world_run(w, "m1", "  resources: {gpu: {mig: 3g.40gb}}\n");
    assert_placed(w, "hub");
    assert_int_equal(w->pl->assignments[0].gpus[0], 1);
    assert_string_equal(w->pl->assignments[0].mig, "3g.40gb");
    world_run(w, "m2", "  resources: {gpu: {mig: 3g.40gb}}\n");
    assert_placed(w, "hub");
    world_run(w, "m3", "  resources: {gpu: {mig: 3g.40gb}}\n");
    assert_pending(w, "MigProfileMissing");
    pool_drop(w->p, "uid-m1");
    world_run(w, "m3", "  resources: {gpu: {mig: 3g.40gb}}\n");
    assert_placed(w, "hub");
    world_run(w, "two", GPU(2)); /* the cut device is not a whole one */
    assert_pending(w, "GpusInUse");
    world_run(w, "one", GPU(1));
    assert_int_equal(w->pl->assignments[0].gpus[0], 0);
}

static void test_class_memory_speed_interconnect(void **state)
{
    struct world *w = *state;

    world_put(w, "kind: GpuClass\nmetadata: {name: h100}\nspec: {memory: 80Gi, relativeSpeed: 3, "
                 "interconnect: nvlink, aliases: [NVIDIA H100 80GB HBM3]}\n---\n"
                 "kind: GpuClass\nmetadata: {name: t4}\nspec: {memory: 16Gi}\n");
    world_target(w, "hub", "tier: hub");
    world_nodes(w, "hub", 1, 1, "t4", "");
    world_run(w, "a", "  resources: {gpu: {count: 1, classes: [h100]}}\n");
    assert_pending(w, "NoSuchGpuClass");
    world_run(w, "b", "  resources: {gpu: {count: 1, minMemory: 40Gi}}\n");
    assert_pending(w, "GpuMemoryTooSmall");
    world_run(w, "c", "  resources: {gpu: {count: 1, minSpeed: 2}}\n");
    assert_pending(w, "NoSuchGpuClass");
    world_run(w, "d", "  resources: {gpu: {count: 1, interconnect: nvlink}}\n");
    assert_pending(w, "InterconnectMissing");
    world_put(
        w, "kind: Node\nmetadata: {name: h}\nspec: {target: hub, gpus: [{index: 3, model: NVIDIA "
           "H100 80GB HBM3, memory: 79Gi}]}\n");
    world_run(w, "e",
              "  resources: {gpu: {count: 1, classes: [h100], minMemory: 80Gi, minSpeed: 2, "
              "interconnect: nvlink}}\n");
    assert_placed(w, "hub");
    assert_string_equal(w->pl->class_, "h100");
    assert_int_equal(w->pl->assignments[0].gpus[0], 3);
}

static void test_cpu_and_memory(void **state)
{
    struct world *w = *state;

    hub(w, 1);
    world_run(w, "a", "  resources: {gpu: {count: 1}, cpu: 65}\n");
    assert_pending(w, "NotEnoughCpu");
    assert_string_equal(w->d->candidates[0].message, "1 nodes have the GPUs, none has 65 CPU");
    world_run(w, "b", "  resources: {gpu: {count: 1}, memory: 600Gi}\n");
    assert_pending(w, "NotEnoughMemory");
    world_run(w, "c", "  resources: {cpu: 60}\n");
    assert_placed(w, "hub");
    assert_int_equal(w->pl->gpus, 0);
    world_run(w, "d", "  resources: {gpu: {count: 1}, cpu: 5}\n");
    assert_pending(w, "NotEnoughCpu");
    pool_drop(w->p, "uid-c");
    world_run(w, "d", "  resources: {gpu: {count: 1}, cpu: 5}\n");
    assert_placed(w, "hub");
}

static void test_gang_in_one_rack(void **state)
{
    struct world *w = *state;

    hub(w, 4);                 /* racks r1, r2 of two nodes */
    world_run(w, "a", GPU(8)); /* on n1: rack 1 has 8 left */
    world_run(w, "g",
              "  gang: {workers: 4}\n  topology: {within: rack}\n"
              "  resources: {gpu: {count: 4}}\n");
    assert_placed(w, "hub");
    assert_string_equal(w->pl->domain, "eu/fra1/b1/r2");
    assert_int_equal(w->pl->n_assignments, 4);
    assert_int_equal(w->pl->gpus, 16000);
    assert_int_not_equal(w->pl->assignments[0].gpus[0], w->pl->assignments[1].gpus[0]);
    pool_drop(w->p, "uid-g");
    world_run(w, "h",
              "  gang: {workers: 5}\n  topology: {within: rack}\n"
              "  resources: {gpu: {count: 4}}\n");
    assert_pending(w, "TopologyDoesNotFit");
    assert_string_equal(w->d->candidates[0].message, "16 of 20 free in one rack");
    world_run(w, "i", "  gang: {workers: 7}\n  resources: {gpu: {count: 4}}\n");
    assert_pending(w, "GangDoesNotFit");
    assert_string_equal(w->d->candidates[0].message, "24 of 28 free for this gang");
    world_run(w, "j", "  gang: {workers: 7, minWorkers: 2}\n  resources: {gpu: {count: 4}}\n");
    assert_placed(w, "hub");
    assert_int_equal(w->pl->n_assignments, 6);
}

/* Counted in what the workload prefers, a rack when it says nothing. */
static void test_gang_prefers_a_level(void **state)
{
    struct world *w = *state;

    hub(w, 4);
    world_run(w, "a", "  gang: {workers: 4}\n  topology: {prefer: block}\n" GPU(8));
    assert_placed(w, "hub");
    assert_string_equal(w->d->candidates[0].topology, "1 block");
    pool_drop(w->p, "uid-a");
    world_run(w, "a", "  gang: {workers: 4}\n" GPU(8));
    assert_string_equal(w->d->candidates[0].topology, "2 racks");
}

static void test_gang_takes_the_tightest_hole(void **state)
{
    struct world *w = *state;

    hub(w, 4);
    world_run(w, "a", GPU(4));
    world_run(w, "g", "  gang: {workers: 4}\n  resources: {gpu: {count: 1}}\n");
    assert_string_equal(w->pl->assignments[0].node, "hub-n1");
    assert_string_equal(w->pl->assignments[3].node, "hub-n1");
}

static void test_gang_never_spans_targets(void **state)
{
    struct world *w = *state;

    hub(w, 1);
    world_target(w, "spoke", "tier: spoke");
    world_nodes(w, "spoke", 1, 8, "h100", "");
    world_run(w, "g", "  gang: {workers: 2}\n  resources: {gpu: {count: 8}}\n");
    assert_pending(w, "GangDoesNotFit");
    assert_int_equal(w->d->n_candidates, 2);
}

static void test_target_state(void **state)
{
    struct world *w = *state;

    world_run(w, "none", GPU(1));
    assert_pending(w, "NoTargets");
    hub(w, 1);
    pool_target_reachable(w->p, "hub", REACH_UNKNOWN);
    world_run(w, "a", GPU(1));
    assert_pending(w, "TargetUnreachable");
    pool_target_reachable(w->p, "hub", REACH_YES);
    world_target(w, "hub", "tier: hub, region: eu, site: fra1, unschedulable: true");
    world_run(w, "a", GPU(1));
    assert_pending(w, "TargetCordoned");
    world_target(w, "hub", "tier: hub, region: eu, site: fra1, drain: true");
    world_run(w, "a", GPU(1));
    assert_pending(w, "TargetCordoned");
    world_target(w, "hub", "tier: hub, region: eu, site: fra1, observeOnly: true");
    world_run(w, "a", GPU(1));
    assert_pending(w, "TargetObserved");
    world_target(w, "hub", "tier: hub, region: eu, site: fra1, limits: {workloads: 1}");
    world_run(w, "a", GPU(1));
    assert_placed(w, "hub");
    world_run(w, "b", GPU(1));
    assert_pending(w, "TargetLimitReached");
}

static void test_node_health_and_runner(void **state)
{
    struct world *w = *state;
    struct place_request rq = {.now_ms = NOW};

    hub(w, 1);
    world_put(w,
              "kind: Node\nmetadata: {name: hub-n1}\nspec: {target: hub, gpus: [{index: 0, class: "
              "h100}]}\nstatus: {health: NotReady}\n");
    world_run(w, "a", GPU(1));
    assert_pending(w, "NodeNotReady");
    world_put(
        w, "kind: Node\nmetadata: {name: hub-n1}\nspec: {target: hub, cpu: 8, memory: 16Gi, gpus: "
           "[{index: 0, class: h100}]}\nstatus: {health: Ready}\n");
    world_run(w, "a", GPU(1));
    assert_placed(w, "hub");
    pool_drop(w->p, "uid-a");
    rq.workload = world_docs(w,
                             "kind: Workload\nmetadata: {name: i, namespace: dev}\nspec: {run: "
                             "{image: x}}\n",
                             false);
    assert_int_equal(policy_place(w->p, &rq, w->a, &w->d, &w->pl, NULL), 0);
    assert_pending(w, "RunnerCannotRunIt");
    rq.workload = world_docs(w,
                             "kind: Workload\nmetadata: {name: c, namespace: dev}\nspec: {run: "
                             "{image: x, command: [y]}}\n",
                             false);
    assert_int_equal(policy_place(w->p, &rq, w->a, &w->d, &w->pl, NULL), 0);
    assert_pending(w, "RunnerCannotRunIt"); /* it is not run outside of its container */
    rq.workload = world_workload(w, "m", GPU(1));
    rq.avoid_target = "hub";
    assert_int_equal(policy_place(w->p, &rq, w->a, &w->d, &w->pl, NULL), 0);
    assert_pending(w, "NotSelected");
}

/* What a node does not tell is not taken for granted, and all of a target's nodes must tell it. */
static void test_ends_that_must_be_proved(void **state)
{
    static const struct {
        const char *one, *two; /* status of each node */
        bool proved;
    } rows[] = {
        {"{health: Ready}", "{health: Ready}", false},
        {"{isolation: {processes: cgroup}}", "{health: Ready}", false},
        {"{isolation: {processes: cgroup}}", "{isolation: {processes: searched}}", false},
        {"{isolation: {processes: cgroup}}", "{isolation: {processes: pidNamespace}}", true}};
    struct world *w = *state;

    hub(w, 2);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (int n = 1; n <= 2; n++)
            world_put(
                w, arena_printf(w->a,
                                "kind: Node\nmetadata: {name: hub-n%d}\nspec: {target: hub, cpu: "
                                "8, memory: 16Gi, gpus: [{index: 0, class: h100}]}\nstatus: %s\n",
                                n, n == 1 ? rows[i].one : rows[i].two));
        world_run(w, "a", GPU(1) "  isolation: {processes: proved}\n");
        if (rows[i].proved)
            assert_placed(w, "hub");
        else
            assert_pending(w, "ProcessEndNotProved");
    }
    world_run(w, "b", GPU(1) "  isolation: {processes: any}\n");
    assert_placed(w, "hub");
}

/* The same of those who must be kept from their neighbours; a policy asks the target as a whole. */
static void test_tenants_that_must_be_kept_apart(void **state)
{
    static const struct {
        const char *one, *two;
        bool apart;
    } rows[] = {{"{health: Ready}", "{isolation: {tenants: separate}}", false},
                {"{isolation: {tenants: separate}}", "{isolation: {tenants: shared}}", false},
                {"{isolation: {tenants: separate}}", "{isolation: {tenants: separate}}", true}};
    struct world *w = *state;

    hub(w, 2);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (int n = 1; n <= 2; n++)
            world_put(
                w, arena_printf(w->a,
                                "kind: Node\nmetadata: {name: hub-n%d}\nspec: {target: hub, cpu: "
                                "8, memory: 16Gi, gpus: [{index: 0, class: h100}]}\nstatus: %s\n",
                                n, n == 1 ? rows[i].one : rows[i].two));
        world_run(w, "a", GPU(1) "  isolation: {tenants: separate}\n");
        if (rows[i].apart)
            assert_placed(w, "hub");
        else
            assert_pending(w, "TenantsShareAUser");
    }
    world_put(w, "kind: CompliancePolicy\nmetadata: {name: strangers}\nspec: {selects: {}, allow: "
                 "{tenants: separate}}\n");
    world_run(w, "b", GPU(1));
    assert_pending(w, "TenantsShareAUser");
    world_put(w,
              "kind: Target\nmetadata: {name: hub}\nspec: {type: agent, tier: hub, jurisdiction: "
              "DE}\nstatus: {isolation: {tenants: separate}}\n");
    world_run(w, "b", GPU(1));
    assert_placed(w, "hub");
}

static void test_holds_survive_rebuilds_and_forks(void **state)
{
    struct world *w = *state;
    struct pool *f;

    hub(w, 1);
    world_run(w, "a", GPU(5));
    f = pool_fork(w->p);
    assert_int_equal(pool_free_gpu_milli(f, NULL), 3000);
    pool_drop(f, "uid-a");
    assert_int_equal(pool_free_gpu_milli(f, NULL), 8000);
    f = pool_destroy(f);
    world_nodes(w, "hub", 2, 8, "h100", ""); /* a second node, the first again */
    assert_int_equal(pool_nodes(w->p), 2);
    assert_int_equal(pool_free_gpu_milli(w->p, NULL), 11000);
    pool_remove(w->p, KIND_NODE, "", "hub-n1");
    assert_int_equal(pool_free_gpu_milli(w->p, NULL), 8000);
    world_nodes(w, "hub", 1, 8, "h100", ""); /* it comes back: a still holds it */
    assert_int_equal(pool_free_gpu_milli(w->p, NULL), 11000);
}

static void test_same_inputs_same_bytes_in_any_order(void **state)
{
    struct world *w = *state, v;
    AUTO_BUF a;
    AUTO_BUF b;

    world_init(&v);
    buf_init(&a, 8192);
    buf_init(&b, 8192);
    hub(w, 3);
    world_target(w, "zeta", "tier: spoke");
    world_nodes(w, "zeta", 2, 4, "a100", "");
    world_target(&v, "zeta", "tier: spoke");
    world_nodes(&v, "zeta", 2, 4, "a100", "");
    hub(&v, 3);
    for (int i = 0; i < 12; i++) {
        char name[8];

        (void)snprintf(name, sizeof(name), "w%d", i);
        world_run(w, name, GPU(3));
        world_run(&v, name, GPU(3));
        buf_reset(&a);
        buf_reset(&b);
        tlv_add(&schema_decision_spec, w->d, &a);
        tlv_add(&schema_decision_spec, v.d, &b);
        assert_int_equal(a.n, b.n);
        assert_memory_equal(a.p, b.p, a.n);
    }
    world_fini(&v);
}

static void test_record_is_bounded(void **state)
{
    struct world *w = *state;

    for (int i = 0; i < 50; i++) {
        char name[64];

        (void)snprintf(name, sizeof(name), "a-target-with-quite-a-long-name-%02d", i);
        world_target(w, name, "tier: hub");
    }
    world_nodes(w, "a-target-with-quite-a-long-name-49", 1, 8, "h100", "");
    world_run(w, "a", GPU(1)); /* world_run checks the size */
    assert_placed(w, "a-target-with-quite-a-long-name-49");
    assert_true(w->d->omitted > 0);
    assert_int_equal(w->d->omitted + w->d->n_candidates, 50);
    assert_true(w->d->candidates[0].chosen);
}

/* What stands on machines says what these cost, as told, whether a sheet prices it or not. */
static void test_machines_cost_what_is_told(void **state)
{
    struct world *w = *state;

    world_target(w, "hub", "tier: hub");
    world_nodes(w, "hub", 3, 4, "h100", "  machine: m1\n");
    world_run(w, "a", GPU(4));
    assert_string_equal(w->d->message, "hub, b1/r1, 4 \xc3\x97 h100, price not known");
    world_put(w, "kind: Machine\nmetadata: {name: m1}\nspec: {target: hub}\n"
                 "status: {phase: Joined}\n");
    world_run(w, "b", GPU(4));
    assert_non_null(strstr(w->d->message, "h100, on a machine whose price is not told"));
    world_put(w, "kind: Machine\nmetadata: {name: m1}\nspec: {target: hub}\n"
                 "status: {phase: Joined, price: 2.5, currency: EUR}\n");
    world_run(w, "c", GPU(4));
    assert_non_null(strstr(w->d->message, "h100, on a machine at 2.50 EUR an hour"));
    pool_drop(w->p, "uid-a");
    pool_drop(w->p, "uid-b");
    pool_drop(w->p, "uid-c");
    world_nodes(w, "hub", 1, 4, "h100", "  machine: m2\n");
    world_put(w, "kind: Machine\nmetadata: {name: m2}\nspec: {target: hub}\n"
                 "status: {phase: Joined, price: 4, currency: EUR}\n");
    world_run(w, "d", "  gang: {workers: 3}\n  resources: {gpu: {count: 4}}\n");
    assert_placed(w, "hub");
    assert_non_null(strstr(w->d->message, "h100, on 2 machines at 6.50 EUR an hour"));
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, world_setup, world_teardown)
    const struct CMUnitTest tests[] = {
        T(test_devices_are_held_and_given_back),
        T(test_best_fit_keeps_large_holes),
        T(test_spread_free_gpus_do_not_make_a_node),
        T(test_fractions_share_and_whole_needs_all),
        T(test_isolation_and_mig),
        T(test_class_memory_speed_interconnect),
        T(test_cpu_and_memory),
        T(test_gang_in_one_rack),
        T(test_gang_prefers_a_level),
        T(test_gang_takes_the_tightest_hole),
        T(test_gang_never_spans_targets),
        T(test_target_state),
        T(test_node_health_and_runner),
        T(test_ends_that_must_be_proved),
        T(test_tenants_that_must_be_kept_apart),
        T(test_holds_survive_rebuilds_and_forks),
        T(test_same_inputs_same_bytes_in_any_order),
        T(test_record_is_bounded),
        T(test_machines_cost_what_is_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
