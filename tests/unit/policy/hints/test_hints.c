/* Hints: their wording, that each is true when it is done, and that no number is larger than it
 * must be. The words are read back and done to copies of the documents here, apart from how they
 * were found. */
#include "tests/support/policy/hints_done.h"

#define GPU(n) "  resources: {gpu: {count: " #n "}, cpu: 4, memory: 8Gi}\n"

static void says(struct world *w, const struct object *o, int64_t now, const char *const *want,
                 uint32_t n)
{
    struct told t = hints_at(w, o, now);
    long count[H_NR] = {0};

    for (uint32_t i = 0; i < n || i < t.n; i++) {
        if (i >= n || i >= t.n || strcmp(t.v[i], want[i]) != 0)
            fail_msg("%u: %s, not %s (%s)", i, i < t.n ? t.v[i] : "nothing",
                     i < n ? want[i] : "nothing", w->d->message);
    }
    hints_all_true(w, o, now, t, count);
}
#define SAYS(w, o, now, ...)                                                                       \
    do {                                                                                           \
        const char *want_[] = {__VA_ARGS__};                                                       \
        says(w, o, now, want_, sizeof(want_) / sizeof(*want_));                                    \
    } while (0)

/* ---- wording ---- */
/* The example of the product's page: class, burst, workers. */
static void test_as_on_the_page(void **state)
{
    struct world *w = *state;
    const struct object *o;

    world_put(w, "kind: PriceSheet\nmetadata: {name: own}\nspec: {gpuHour: [{class: h100-sxm-80gb, "
                 "amortised: 1.92}, {class: a100-sxm-80gb, amortised: 1.31}]}\n---\n"
                 "kind: Queue\nmetadata: {name: vision}\nspec: {namespaces: [dev], gpus: [{class: "
                 "h100-sxm-80gb, burst: 16}]}\n");
    world_target(w, "fra-hub", "tier: hub, priceSheet: own");
    world_target(w, "ams-slurm", "tier: spoke, priceSheet: own, capacity: owned");
    world_nodes(w, "fra-hub", 4, 8, "h100-sxm-80gb", "");
    world_nodes(w, "ams-slurm", 4, 8, "a100-sxm-80gb", "");
    world_run(w, "a", "  resources: {gpu: {count: 8, classes: [h100-sxm-80gb]}}\n");
    o = world_workload(w, "b",
                       "  gang: {workers: 8}\n  resources: {gpu: {count: 2, classes: "
                       "[h100-sxm-80gb]}}\n");
    SAYS(w, o, NOW, "class a100-sxm-80gb allowed too (ams-slurm, $1.31/h)",
         "burst raised by 8 in queue vision", "4 workers instead of 8 (fra-hub, $1.92/h)",
         "1 GPU per worker instead of 2 (fra-hub, $1.92/h)");
    o = world_workload(w, "c", "  resources: {gpu: {count: 8, classes: [h100-sxm-80gb]}}\n");
    SAYS(w, o, NOW); /* it fits: nothing to say */
}

static void test_devices_and_domains(void **state)
{
    struct world *w = *state;

    world_put(w,
              "kind: GpuClass\nmetadata: {name: h100}\nspec: {memory: 80Gi, relativeSpeed: 2}\n");
    world_target(w, "hub", "tier: hub");
    world_nodes(w, "hub", 4, 8, "h100", "");
    SAYS(w, world_workload(w, "a", "  resources: {gpu: {count: 1, minMemory: 100Gi}}\n"), NOW,
         "minMemory lowered to 80Gi (hub)");
    SAYS(w, world_workload(w, "b", "  resources: {gpu: {count: 1, minSpeed: 2.5}}\n"), NOW,
         "minSpeed lowered to 2 (hub)");
    SAYS(w, world_workload(w, "c", "  resources: {gpu: {count: 1, interconnect: infiniband}}\n"),
         NOW, "without interconnect infiniband (hub)");
    SAYS(w,
         world_workload(w, "d",
                        "  gang: {workers: 3}\n  topology: {within: rack}\n  resources: {gpu: "
                        "{count: 8}}\n"),
         NOW, "within one block instead of one rack (hub)", "2 workers instead of 3 (hub)",
         "4 GPUs per worker instead of 8 (hub)");
    SAYS(w,
         world_workload(w, "e",
                        "  gang: {workers: 4, minWorkers: 3}\n  topology: {within: rack}\n  "
                        "resources: {gpu: {count: 8}}\n"),
         NOW, "within one block instead of one rack (hub)", "minWorkers 2 instead of 3 (hub)",
         "4 GPUs per worker instead of 8 (hub)");
    SAYS(w, world_workload(w, "f", "  resources: {gpu: {count: 1}, cpu: 65, memory: 8Gi}\n"), NOW,
         "cpu 64 per worker instead of 65 (hub)");
    SAYS(w, world_workload(w, "g", "  resources: {gpu: {count: 1}, memory: 600Gi}\n"), NOW,
         "memory 512Gi per worker instead of 600Gi (hub)");
}

static void test_other_targets(void **state)
{
    struct world *w = *state;

    world_put(w, "kind: PriceSheet\nmetadata: {name: eur}\nspec: {currency: EUR, gpuHour: [{class: "
                 "h100, amortised: 2}]}\n");
    world_target(w, "hub", "tier: hub, region: eu");
    world_target(w, "spoke", "tier: spoke, region: fr, capacity: owned, priceSheet: eur");
    world_nodes(w, "hub", 1, 4, "h100", "");
    world_nodes(w, "spoke", 1, 8, "h100", "");
    SAYS(w, world_workload(w, "a", GPU(8) "  targets: {tier: hub}\n"), NOW,
         "tier spoke allowed too (spoke, 2.00 EUR/h)", "4 GPUs per worker instead of 8 (hub)");
    SAYS(w, world_workload(w, "b", GPU(8) "  targets: {names: [hub]}\n"), NOW,
         "target spoke allowed too (spoke, 2.00 EUR/h)", "4 GPUs per worker instead of 8 (hub)");
    SAYS(w, world_workload(w, "c", GPU(8) "  targets: {region: [eu, us]}\n"), NOW,
         "region fr allowed too (spoke, 2.00 EUR/h)", "4 GPUs per worker instead of 8 (hub)");
    /* Two fields keep it out. */
    SAYS(w, world_workload(w, "d", GPU(8) "  targets: {region: eu, tier: hub}\n"), NOW,
         "without targets (spoke, 2.00 EUR/h)", "4 GPUs per worker instead of 8 (hub)");
    /* Compliance is no hint's matter. */
    world_put(w,
              "kind: CompliancePolicy\nmetadata: {name: c}\nspec: {selects: {namespaces: [dev]}, "
              "allow: {tiers: [hub]}}\n");
    SAYS(w, world_workload(w, "e", GPU(8) "  targets: {tier: hub}\n"), NOW,
         "4 GPUs per worker instead of 8 (hub)");
}

static void test_limits_of_others(void **state)
{
    struct world *w = *state;
    const struct object *o;

    world_target(w, "hub", "tier: hub");
    world_nodes(w, "hub", 2, 8, "h100", "");
    world_put(w, "kind: Queue\nmetadata: {name: a}\nspec: {namespaces: [dev], gpus: [{class: h100, "
                 "guaranteed: 2, borrowLimit: 4}, {class: '', burst: 12}]}\n---\n"
                 "kind: Queue\nmetadata: {name: b}\nspec: {gpus: [{class: h100, guaranteed: 8, "
                 "lendLimit: 1}]}\n---\n"
                 "kind: Queue\nmetadata: {name: c}\nspec: {lend: false, gpus: [{class: h100, "
                 "guaranteed: 4}]}\n");
    o = world_workload(w, "w", GPU(8));
    SAYS(w, o, NOW, "guaranteed of h100 raised by 6 in queue a",
         "5 GPUs per worker instead of 8 (hub)"); /* borrowLimit alone is not enough */
    o = world_workload(w, "x", GPU(7));
    SAYS(w, o, NOW, "guaranteed of h100 raised by 5 in queue a",
         "5 GPUs per worker instead of 7 (hub)");
    o = world_workload(w, "y", GPU(6));
    SAYS(w, o, NOW, "guaranteed of h100 raised by 4 in queue a", "lendLimit raised by 1 in queue b",
         "queue c lends what it is guaranteed and does not use",
         "5 GPUs per worker instead of 6 (hub)");
    world_put(w, "kind: PlacementPolicy\nmetadata: {name: p}\nspec: {maxGPUs: 3}\n");
    SAYS(w, world_workload(w, "z", GPU(5)), NOW, "maxGPUs raised by 2 in policy p",
         "3 GPUs per worker instead of 5 (hub)");
}

static void test_money_and_time(void **state)
{
    struct world *w = *state;
    const struct object *o;

    world_put(w,
              "kind: PriceSheet\nmetadata: {name: own}\nspec: {gpuHour: [{class: h100, amortised: "
              "2.05}]}\n");
    world_target(w, "hub", "tier: hub, priceSheet: own");
    world_target(w, "spoke", "tier: spoke");
    world_nodes(w, "hub", 1, 8, "h100", "");
    world_nodes(w, "spoke", 1, 8, "h100", "");
    SAYS(w, world_workload(w, "a", GPU(1) "  maxGpuHourPrice: 2\n"), NOW,
         "maxGpuHourPrice raised to 2.05 (hub, $2.05/h)", "without maxGpuHourPrice (hub, $2.05/h)");
    SAYS(w,
         world_workload(w, "b",
                        GPU(4) "  maxCost: 50\n  expected: {duration: 10h}\n  targets: "
                               "{names: [hub]}\n"),
         NOW, "maxCost raised to 82.00 (hub, $2.05/h)",
         "2 GPUs per worker instead of 4 (hub, $2.05/h)");
    SAYS(w,
         world_workload(w, "c",
                        GPU(1) "  deadline: 2025-12-01T03:00:00Z\n  expected: {duration: "
                               "4h}\n"),
         NOW, "deadline moved to 2025-12-01T04:00:00Z (hub, $2.05/h)");
    world_put(w,
              "kind: PlacementPolicy\nmetadata: {name: p}\nspec: {order: [{targets: {tier: hub}}, "
              "{targets: {tier: spoke}, after: 10m}], windows: [{from: '12:00', to: '18:00', "
              "timezone: UTC, maxGPUs: 12}]}\n");
    world_run(w, "full", GPU(8));
    assert_placed(w, "hub");
    o = world_docs(
        w,
        "kind: Workload\nmetadata: {name: d, namespace: dev, uid: d}\nspec: {run: {command: "
        "[x]}, resources: {gpu: {count: 6}}}\nstatus: {queuedAt: 2025-12-01T00:00:00Z}\n",
        false);
    SAYS(w, o, NOW + 20000,
         "wait until 2025-12-01 00:10 UTC: the policy's order opens the next step (spoke)");
    SAYS(w, o, NOW + 12 * 60 * MINUTE, "maxGPUs raised by 2 in the window 12:00-18:00 of policy p",
         "4 GPUs per worker instead of 6 (spoke)",
         "wait until 2025-12-01 18:00 UTC: the policy's window allows it (spoke)");
}

/* What stands in the way first, and what is in the way then. */
static void test_two_changes(void **state)
{
    struct world *w = *state;

    world_target(w, "hub", "tier: hub, region: eu");
    world_target(w, "spoke", "tier: spoke, region: eu");
    world_nodes(w, "hub", 1, 2, "a100", "");
    world_nodes(w, "spoke", 1, 4, "h100", "");
    world_run(w, "full", GPU(2));
    assert_placed(w, "hub");
    SAYS(w,
         world_workload(
             w, "a", "  resources: {gpu: {count: 1, classes: [a100]}}\n  targets: {tier: hub}\n"),
         NOW, "two changes: tier spoke allowed too, and class h100 allowed too (spoke)");
    world_put(w, "kind: PlacementPolicy\nmetadata: {name: p}\nspec: {maxGPUs: 3, windows: [{from: "
                 "'06:00', to: '18:00', timezone: UTC, maxGPUs: 2}]}\n");
    SAYS(w, world_workload(w, "b", "  resources: {gpu: {count: 7, classes: [h100]}}\n"), NOW,
         "1 GPU per worker instead of 7 (spoke)");
    SAYS(w, world_workload(w, "c", GPU(2)), NOW + 12 * 60 * MINUTE,
         "two changes: maxGPUs raised by 1 in policy p, and maxGPUs raised by 2 in the window "
         "06:00-18:00 of policy p",
         "two changes: maxGPUs raised by 1 in policy p, and wait until 2025-12-01 18:00 UTC: the "
         "policy's window allows it (spoke)");
    /* A raise only as large as what is asked for then: by 4, not by 6. */
    world_put(w, "kind: PlacementPolicy\nmetadata: {name: p}\nspec: {maxGPUs: 2}\n");
    SAYS(
        w, world_workload(w, "d", "  resources: {gpu: {count: 6, classes: [h100]}}\n"), NOW,
        "two changes: maxGPUs raised by 4 in policy p, and 4 GPUs per worker instead of 6 (spoke)");
}

static void test_priority(void **state)
{
    struct world *w = *state;
    const struct object *o;

    world_put(w,
              "kind: PriorityClass\nmetadata: {name: low}\nspec: {value: 1}\n---\n"
              "kind: PriorityClass\nmetadata: {name: high}\nspec: {value: 10}\n---\n"
              "kind: PriorityClass\nmetadata: {name: mild}\nspec: {value: 5, mayPreempt: false}\n");
    world_target(w, "hub", "tier: hub");
    world_nodes(w, "hub", 1, 8, "h100", "");
    o = world_docs(
        w,
        "kind: Workload\nmetadata: {name: v, namespace: dev, uid: v}\nspec: {run: {command: "
        "[x]}, priorityClassName: low, checkpoint: {store: s}, resources: {gpu: {count: "
        "8}}}\nstatus: {phase: Running, epoch: 1, phaseSince: 2025-11-30T23:50:00Z, "
        "placement: {target: hub, class: h100, gpus: 8000, since: 2025-11-30T23:50:00Z, "
        "assignments: [{rank: 0, node: hub-n1, gpus: [0,1,2,3,4,5,6,7], gpuMilli: "
        "1000}]}}\n",
        false);
    pool_hold(w->p, o);
    o = world_workload(w, "a", "  priorityClassName: low\n" GPU(1));
    SAYS(w, o, NOW, "priority class high: it would preempt 1, and 4800 GPU-seconds would be lost");
    o = world_workload(w, "b", "  priorityClassName: high\n" GPU(1));
    SAYS(w, o, NOW); /* it comes by itself */
}

static void test_mig(void **state)
{
    struct world *w = *state;

    world_target(w, "hub", "tier: hub");
    world_put(w, "kind: Node\nmetadata: {name: n}\nspec: {target: hub, cpu: 64, memory: 1Ti, gpus: "
                 "[{index: 0, class: h100, migProfiles: [1g.10gb, 2g.20gb, 2g.20gb, 1g.10gb]}]}\n");
    SAYS(w, world_workload(w, "a", "  resources: {gpu: {mig: 3g.40gb}}\n"), NOW,
         "mig 2g.20gb instead of 3g.40gb (hub)");
    SAYS(w, world_workload(w, "b", "  resources: {gpu: {mig: 2g.20gb, count: 3}}\n"), NOW,
         "2 instances per worker instead of 3 (hub)");
}

/* ---- when it starts ---- */
static void busy(struct world *w, const char *name, const char *target, int64_t minutes)
{
    char spec[256];
    const struct object *o;

    (void)snprintf(spec, sizeof(spec), GPU(4) "  targets: {names: [%s]}\n", target);
    if (minutes)
        (void)snprintf(spec + strlen(spec), 64, "  expected: {duration: %dm}\n", (int)minutes);
    o = world_workload(w, name, spec);
    world_decide_at(w, o, NOW - 60 * MINUTE);
    assert_placed(w, target);
    hints_run(w, o);
}

static int64_t estimate(struct world *w, const struct object *o, int64_t position,
                        const char *after)
{
    struct place_request rq = {.workload = o, .now_ms = NOW, .queue_position = position};
    struct err err = {0};

    world_decide_at(w, o, NOW);
    assert_int_equal(policy_start_estimate(w->p, &rq, w->a, w->d, &err), 0);
    assert_string_equal(w->d->startAfter ? w->d->startAfter : "", after);
    return w->d->startEstimate ? (w->d->startEstimate - NOW) / MINUTE : 0;
}

static void test_start_estimate(void **state)
{
    struct world *w = *state;
    const struct object *o;

    world_target(w, "hub", "tier: hub");
    world_target(w, "spoke", "tier: spoke");
    world_nodes(w, "hub", 1, 8, "h100", "");
    world_nodes(w, "spoke", 1, 8, "h100", "");
    busy(w, "a", "hub", 90);   /* ends in 30 minutes */
    busy(w, "b", "hub", 130);  /* in 70 */
    busy(w, "c", "spoke", 80); /* in 20, beside one of which nobody knows */
    busy(w, "d", "spoke", 0);
    o = world_workload(w, "x", GPU(4));
    assert_int_equal(estimate(w, o, 1, "c"), 20);
    assert_int_equal(estimate(w, o, 2, ""), 0); /* somebody comes first */
    o = world_workload(w, "y", GPU(8));
    assert_int_equal(estimate(w, o, 1, "b"), 70);
    o = world_workload(w, "z", GPU(8) "  targets: {names: [spoke]}\n");
    assert_int_equal(estimate(w, o, 1, ""), 0);
    pool_drop(w->p, "uid-d");
    assert_int_equal(estimate(w, o, 1, "c"), 20);
    o = world_workload(w, "fits", GPU(4));
    assert_int_equal(estimate(w, o, 1, ""), 0);
    /* A device twice as fast is done in half the time: a ended, as far as one knows. */
    busy(w, "d", "spoke", 0);
    world_put(w,
              "kind: GpuClass\nmetadata: {name: h100}\nspec: {memory: 80Gi, relativeSpeed: 2}\n");
    o = world_workload(w, "y", GPU(8));
    assert_int_equal(estimate(w, o, 1, ""), 0);
    pool_drop(w->p, "uid-a");
    assert_int_equal(estimate(w, o, 1, "b"), 5);
}

/* What cannot be tried is not told; what can be is. */
static void test_too_large_to_try(void **state)
{
    struct world *w = *state;
    const struct object *o;
    struct told t;

    world_target(w, "hub", "tier: hub");
    world_nodes(w, "hub", 1, 8, "h100", "");
    world_put(w, "kind: PriorityClass\nmetadata: {name: high}\nspec: {value: 10, mayPreempt: "
                 "true}\n");
    const struct object *q =
        world_docs(w,
                   "kind: Queue\nmetadata: {name: a}\nspec: {namespaces: [dev], gpus: "
                   "[{class: h100, burst: 4}]}\n",
                   true);
    o = world_workload(w, "w", GPU(6));
    t = hints_at(w, o, NOW);
    assert_int_equal(t.n, 2);
    assert_string_equal(t.v[0], "burst raised by 2 in queue a");
    t = hints_at(w, world_large(w, o), NOW);
    assert_int_equal(t.n, 1); /* of the queue alone */
    assert_string_equal(t.v[0], "burst raised by 2 in queue a");
    pool_put(w->p, world_large(w, q));
    assert_int_equal(hints_at(w, world_large(w, o), NOW).n, 0);
    t = hints_at(w, o, NOW);
    assert_int_equal(t.n, 1); /* of the workload alone */
    assert_non_null(strstr(t.v[0], "GPUs per worker instead of 6"));
    /* nor can be tried whom it would push away with another priority */
    world_run(w, "b", GPU(4));
    assert_int_equal(hints_at(w, world_large(w, world_workload(w, "x", GPU(4))), NOW).n, 0);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, world_setup, world_teardown)
    const struct CMUnitTest tests[] = {
        T(test_as_on_the_page), T(test_devices_and_domains),
        T(test_other_targets),  T(test_limits_of_others),
        T(test_money_and_time), T(test_two_changes),
        T(test_priority),       T(test_mig),
        T(test_start_estimate), T(test_too_large_to_try),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
