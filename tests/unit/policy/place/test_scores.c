/* What decides between candidates that fit, and the limits that refuse one: scores, ties, NVLink
 * and leaf domains, lending, shares below the root, price caps. Each test fails without its
 * rule. */
#include "tests/support/policy/policy_world.h"

#include <math.h>

#define MINUTE 60000
#define GPU(n) "  resources: {gpu: {count: " #n "}}\n"
#define WORKLOAD(name, spec, status)                                                               \
    "kind: Workload\nmetadata: {name: " name ", namespace: dev, uid: uid-" name "}\n"              \
    "spec: {run: {command: [x]}, " spec "}\nstatus: {" status "}\n"

static void assert_near(double have, double want)
{
    if (fabs(have - want) > 1e-6)
        fail_msg("%.9f, not %.9f", have, want);
}

/* Two targets alike in all but their names and what `a` and `b` add. */
static void pair(struct world *w, const char *a, const char *b)
{
    world_target(w, "alpha", a);
    world_target(w, "beta", b);
    world_nodes(w, "alpha", 1, 8, "h100", "");
    world_nodes(w, "beta", 1, 8, "h100", "");
}

/* A store below a folder or a prefix that is listed counts as listed; where nothing is listed,
 * nothing is known. */
static void test_a_store_must_be_reached(void **state)
{
    static const struct {
        const char *store, *alpha, *placed; /* NULL: nowhere */
    } t[] = {{"s3://ck/a", "stores: [\"s3://ck\"]", "alpha"},
             {"s3://ck/a", "stores: [\"s3://ck/a/\"]", "alpha"},
             {"s3://ck/ab", "stores: [\"s3://ck/a\"]", NULL},
             {"s3://ck2/a", "stores: [\"s3://ck\"]", NULL},
             {"s3://ck", "stores: [\"s3://ck/a\"]", NULL},
             {"/ck/a", "stores: [/other, /ck]", "alpha"},
             {"/ck/a", "stores: [/]", "alpha"},
             {"/ckx", "stores: [/ck]", NULL},
             {"named", "stores: [named]", "alpha"},
             {"named/a", "stores: [named]", NULL},
             {"s3://ck/a", "region: eu", "alpha"}};
    struct world *w = *state;
    char alpha[128], text[512];

    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        (void)snprintf(alpha, sizeof alpha, "tier: hub, %s", t[i].alpha);
        pair(w, alpha, "tier: hub, stores: [elsewhere]");
        (void)snprintf(
            text, sizeof text,
            WORKLOAD("a", "resources: {gpu: {count: 1}}, checkpoint: {store: \"%s\"}", ""),
            t[i].store);
        world_decide_at(w, world_docs(w, text, false), NOW);
        if (t[i].placed)
            assert_placed(w, t[i].placed);
        else
            assert_pending(w, "StoreUnreachable");
        pool_drop(w->p, "uid-a");
    }
}

static void test_locality_of_checkpoint(void **state)
{
    struct world *w = *state;
    const struct object *o;

    pair(w, "tier: hub", "tier: hub, stores: [s3]");
    world_put(w, "kind: Dataset\nmetadata: {name: d, namespace: dev}\nspec: {bytes: 30Gi, copies: "
                 "[{target: alpha}]}\n");
    o = world_docs(w,
                   WORKLOAD("a",
                            "data: [{dataset: d}], resources: {gpu: {count: 1}}, "
                            "checkpoint: {store: s3}",
                            "checkpoint: {bytes: 10737418240}"),
                   false);
    world_decide_at(w, o, NOW); /* 30 GiB here, 10 GiB there */
    assert_placed(w, "alpha");
    world_put(w, "kind: PlacementPolicy\nmetadata: {name: p}\nspec: {prefer: [{weight: 1, "
                 "locality: {checkpoint: true}}]}\n");
    world_decide_at(w, o, NOW);
    assert_placed(w, "beta");
    assert_near(world_row(w, "beta")->score, 100);
    assert_near(world_row(w, "alpha")->score, 0);
    world_put(w, "kind: PlacementPolicy\nmetadata: {name: p}\nspec: {prefer: [{weight: 1, "
                 "locality: {data: true}}]}\n");
    world_decide_at(w, o, NOW);
    assert_placed(w, "alpha");
    assert_near(world_row(w, "alpha")->score, 100);
    assert_near(world_row(w, "beta")->score, 0);
    world_put(w, "kind: PlacementPolicy\nmetadata: {name: p}\nspec: {prefer: [{weight: 1, "
                 "locality: {}}]}\n");
    world_decide_at(w, o, NOW);
    assert_near(world_row(w, "alpha")->score, 75);
    assert_near(world_row(w, "beta")->score, 25);
}

static void test_energy(void **state)
{
    struct world *w = *state;

    world_put(w,
              "kind: GpuClass\nmetadata: {name: h100}\nspec: {memory: 80Gi, watts: 700, "
              "relativeSpeed: 2}\n"
              "---\nkind: GpuClass\nmetadata: {name: a100}\nspec: {memory: 80Gi, watts: 400}\n---\n"
              "kind: PlacementPolicy\nmetadata: {name: p}\nspec: {prefer: [{weight: 1, energy: "
              "{referenceWatts: 500}}]}\n");
    world_target(w, "alpha", "tier: hub");
    world_target(w, "beta", "tier: hub");
    world_nodes(w, "alpha", 1, 8, "a100", "");
    world_nodes(w, "beta", 1, 8, "h100", "");
    world_run(w, "a", GPU(1)); /* 350 W per unit of work, not 400 */
    assert_placed(w, "beta");
    assert_near(world_row(w, "beta")->score, 30);
    assert_near(world_row(w, "alpha")->score, 20);
}

/* One whole node each on alpha in two racks, on beta in one. */
static void test_topology_score(void **state)
{
    struct world *w = *state;

    world_target(w, "alpha", "tier: hub");
    world_target(w, "beta", "tier: hub");
    for (int i = 0; i < 4; i++) {
        char text[512];

        (void)snprintf(text, sizeof(text),
                       "kind: Node\nmetadata: {name: n%d}\nspec:\n  target: %s\n  topology: "
                       "{block: b, rack: r%d}\n  gpus: [{index: 0, class: h100}]\n",
                       i, i < 2 ? "alpha" : "beta", i < 2 ? i : 2);
        world_put(w, text);
    }
    world_run(w, "g", "  gang: {workers: 2}\n" GPU(1));
    assert_placed(w, "beta");
    assert_true(world_row(w, "alpha")->score < world_row(w, "beta")->score);
    pool_drop(w->p, "uid-g");
    world_put(w, "kind: PlacementPolicy\nmetadata: {name: p}\nspec: {prefer: [{weight: 1, "
                 "topology: {pack: block}}]}\n");
    world_run(w, "g", "  gang: {workers: 2}\n" GPU(1));
    assert_placed(w, "alpha"); /* one block each: nothing to choose */
    assert_near(world_row(w, "beta")->score, 100);
}

static void test_seed_breaks_ties_between_targets(void **state)
{
    struct world *w = *state;
    struct place_request rq = {.now_ms = NOW};
    int alpha = 0;

    pair(w, "tier: hub", "tier: hub");
    rq.workload = world_workload(w, "a", GPU(1));
    for (rq.seed = 1; rq.seed <= 64; rq.seed++) {
        struct placement *again;

        assert_int_equal(policy_place(w->p, &rq, w->a, &w->d, &w->pl, NULL), 0);
        assert_int_equal(policy_place(w->p, &rq, w->a, &w->d, &again, NULL), 0);
        assert_string_equal(w->pl->target, again->target);
        alpha += strcmp(w->pl->target, "alpha") == 0;
    }
    assert_in_range(alpha, 8, 56);
}

/* ---- domains ---- */
static void linked_node(struct world *w, const char *name, const char *domains)
{
    char text[2048];
    int used = snprintf(text, sizeof(text),
                        "kind: Node\nmetadata: {name: %s}\nspec:\n  target: hub\n  gpus:\n", name);

    for (int i = 0; domains[i]; i++)
        used += snprintf(text + used, sizeof(text) - (size_t)used,
                         domains[i] == '-' ? "  - {index: %d, class: h100}\n"
                                           : "  - {index: %d, class: h100, nvlinkDomain: %c}\n",
                         i, domains[i]);
    world_put(w, text);
}

static void test_nvlink_domain_preferred(void **state)
{
    struct world *w = *state;

    world_target(w, "hub", "tier: hub");
    linked_node(w, "n", "0001100");
    world_run(w, "a", GPU(2)); /* the smallest domain that is enough */
    assert_int_equal(w->pl->assignments[0].gpus[0], 3);
    assert_int_equal(w->pl->assignments[0].gpus[1], 4);
    world_run(w, "b", GPU(5)); /* from all that is left: only preferred */
    assert_placed(w, "hub");
    pool_drop(w->p, "uid-a");
    pool_drop(w->p, "uid-b");
    world_run(w, "c", GPU(6)); /* more than a domain holds */
    assert_placed(w, "hub");
}

#define NVLINK(n) "  resources: {gpu: {count: " #n ", interconnect: nvlink}}\n"

static void test_nvlink_domain_required(void **state)
{
    struct world *w = *state;

    world_target(w, "hub", "tier: hub");
    linked_node(w, "n1", "----"); /* the first node of the group has none */
    world_run(w, "a", NVLINK(1));
    assert_pending(w, "InterconnectMissing");
    linked_node(w, "n2", "0011");
    world_run(w, "b", NVLINK(3));
    assert_pending(w, "InterconnectMissing");
    assert_string_equal(w->d->candidates[0].message,
                        "nvlink joins at most 2 GPUs of a node, 3 asked for");
    world_run(w, "c", NVLINK(1));
    assert_string_equal(w->pl->assignments[0].node, "n2");
    world_run(w, "d", NVLINK(1)); /* fills the domain that is begun */
    assert_int_equal(w->pl->assignments[0].gpus[0], 1);
    pool_drop(w->p, "uid-d");
    world_run(w, "e", NVLINK(2));
    assert_int_equal(w->pl->assignments[0].gpus[0], 2);
    assert_int_equal(w->pl->assignments[0].gpus[1], 3);
    world_run(w, "f", NVLINK(2));
    assert_pending(w, "GpusInUse");
    assert_string_equal(w->d->candidates[0].message, "1 of 2 free in one NVLink domain");
    pool_drop(w->p, "uid-e");
    world_run(w, "g", "  gang: {workers: 2}\n" NVLINK(2)); /* three free, in two domains */
    assert_null(w->pl);
    pool_drop(w->p, "uid-c");
    world_run(w, "g", "  gang: {workers: 2}\n" NVLINK(2));
    assert_placed(w, "hub");
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(w->pl->assignments[i].gpus[0] / 2, w->pl->assignments[i].gpus[1] / 2);
}

static void test_gang_within_leaf_and_nvlink_domain(void **state)
{
    struct world *w = *state;

    world_target(w, "hub", "tier: hub");
    for (int i = 0; i < 6; i++) { /* a rack: leaves of 3; domains of 2 and 1 in each */
        char text[512];

        (void)snprintf(text, sizeof(text),
                       "kind: Node\nmetadata: {name: n%d}\nspec:\n  target: hub\n  topology: "
                       "{block: b, rack: r, leaf: l%d, nvlinkDomain: v%d}\n  gpus: [{index: 0, "
                       "class: h100}]\n",
                       i, i / 3, i % 3 / 2);
        world_put(w, text);
    }
    world_run(w, "a", GPU(1));
    assert_string_equal(w->pl->assignments[0].node, "n0");
    world_run(w, "g", "  gang: {workers: 2}\n  topology: {within: nvlinkDomain}\n" GPU(1));
    assert_placed(w, "hub"); /* not n1 and n2, which share only the leaf */
    assert_string_equal(w->pl->assignments[0].node, "n3");
    assert_string_equal(w->pl->assignments[1].node, "n4");
    world_run(w, "h", "  gang: {workers: 2}\n  topology: {within: nvlinkDomain}\n" GPU(1));
    assert_pending(w, "TopologyDoesNotFit");
    assert_string_equal(w->d->candidates[0].message, "1 of 2 free in one NVLink domain");
    world_run(w, "i", "  gang: {workers: 3}\n  topology: {within: leaf}\n" GPU(1));
    assert_pending(w, "TopologyDoesNotFit");
    world_run(w, "j", "  gang: {workers: 2}\n  topology: {within: leaf}\n" GPU(1));
    assert_string_equal(w->pl->assignments[0].node, "n1");
    assert_string_equal(w->pl->assignments[1].node, "n2");
}

/* ---- quota and order ---- */
static void test_lend_and_borrow_limits(void **state)
{
    struct world *w = *state;

    world_target(w, "hub", "tier: hub");
    world_nodes(w, "hub", 2, 8, "h100", "");
    world_put(w, "kind: Queue\nmetadata: {name: a}\nspec: {gpus: [{class: h100, guaranteed: 4, "
                 "borrowLimit: 3}]}\n---\n"
                 "kind: Queue\nmetadata: {name: b}\nspec: {gpus: [{class: h100, guaranteed: 12, "
                 "lendLimit: 5}]}\n---\nkind: Queue\nmetadata: {name: c}\nspec: {}\n");
    world_run(w, "w1", GPU(8) "  queue: a\n");
    assert_pending(w, "QuotaBurstExhausted");
    assert_non_null(strstr(world_row(w, "hub")->message, "7"));
    world_run(w, "w2", GPU(7) "  queue: a\n");
    assert_placed(w, "hub");
    world_run(w, "w3", GPU(3) "  queue: c\n"); /* 16 - 7 held - 7 kept by b = 2 */
    assert_pending(w, "QuotaGuaranteeOfOthers");
    world_run(w, "w4", GPU(2) "  queue: c\n");
    assert_placed(w, "hub");
}

static void cycle_order(struct world *w, struct cycle_item *it, size_t n, const char *want)
{
    char have[64] = "";
    struct err err;

    assert_int_equal(policy_cycle(w->p, it, n, NOW, 1, 7, 0, w->a, &err), 0);
    for (size_t i = 0; i < n; i++) {
        (void)snprintf(have + strlen(have), sizeof(have) - strlen(have), "%s ",
                       it[i].workload->meta->name);
        pool_drop(w->p, it[i].workload->meta->uid);
    }
    assert_string_equal(have, want);
}

static void test_shares_are_compared_below_the_nearest_common_queue(void **state)
{
    struct world *w = *state;
    struct cycle_item it[3];

    /* x1 has had least of all, but its parent x most; y's own weight halves what it had. */
    world_target(w, "hub", "tier: hub");
    world_nodes(w, "hub", 1, 8, "h100", "");
    world_put(w, "kind: Queue\nmetadata: {name: x}\nspec: {weight: 1}\n---\n"
                 "kind: Queue\nmetadata: {name: x1}\nspec: {parent: x, weight: 1}\n---\n"
                 "kind: Queue\nmetadata: {name: x2}\nspec: {parent: x, weight: 1}\n---\n"
                 "kind: Queue\nmetadata: {name: y}\nspec: {weight: 2}\n---\n"
                 "kind: Queue\nmetadata: {name: w}\nspec: {weight: 2}\n");
    pool_set_use(
        w->p,
        (struct queue_use[]){{"x1", 1}, {"x2", 20}, {"y", 80}, {"gone", 7}, {"w", 80}, {"x2", 30}},
        6);
    it[0] = (struct cycle_item){.workload = world_workload(w, "a", "  queue: x1\n" GPU(1))};
    it[1] = (struct cycle_item){.workload = world_workload(w, "b", "  queue: x2\n" GPU(1))};
    it[2] = (struct cycle_item){.workload = world_workload(w, "c", "  queue: y\n" GPU(1))};
    cycle_order(w, it, 3, "c a b ");
    /* The same with the shallow queue first in the alphabet. */
    it[0] = (struct cycle_item){.workload = world_workload(w, "a", "  queue: x1\n" GPU(1))};
    it[1] = (struct cycle_item){.workload = world_workload(w, "b", "  queue: x2\n" GPU(1))};
    it[2] = (struct cycle_item){.workload = world_workload(w, "d", "  queue: w\n" GPU(1))};
    cycle_order(w, it, 3, "d a b ");
}

static void test_deadline_orders_a_queue(void **state)
{
    struct world *w = *state;
    struct cycle_item it[3];

    world_target(w, "hub", "tier: hub");
    world_nodes(w, "hub", 1, 8, "h100", "");
    it[0] = (struct cycle_item){.workload = world_workload(w, "a", GPU(1))};
    it[1] = (struct cycle_item){
        .workload = world_workload(w, "b", "  deadline: 2026-02-01T00:00:00Z\n" GPU(1))};
    it[2] = (struct cycle_item){
        .workload = world_workload(w, "c", "  deadline: 2026-01-01T00:00:00Z\n" GPU(1))};
    cycle_order(w, it, 3, "c b a ");
}

/* ---- windows and limits ---- */
struct zone {
    int64_t asked;
    int32_t offset_s;
};

static int zone_of(void *arg, const char *zone, int64_t utc_ms, int32_t *ret)
{
    struct zone *z = arg;

    if (!z->asked) /* first of all about the moment of the decision */
        z->asked = utc_ms;
    *ret = z->offset_s;
    return strcmp(zone, "Zone/Own") == 0 ? 0 : E_NOTFOUND;
}

static void test_windows_follow_the_resolver(void **state)
{
    struct world *w = *state;
    const struct object *o;
    struct zone z = {0, -3600};

    pair(w, "tier: hub", "tier: hub");
    world_put(w, "kind: PlacementPolicy\nmetadata: {name: p}\nspec: {windows: [{days: [sun], from: "
                 "'22:00', to: '00:30', timezone: Zone/Own, maxGPUs: 0}, {days: [mon], from: "
                 "'01:00', to: '02:00', timezone: Zone/Own, maxGPUs: 2}]}\n");
    pool_set_zone_resolver(w->p, zone_of, &z);
    o = world_workload(w, "a", GPU(3));
    world_decide_at(w, o, NOW + 45 * MINUTE); /* Sunday 23:45 there */
    assert_pending(w, "WindowClosed");
    assert_int_equal(z.asked, NOW + 45 * MINUTE);
    z.offset_s = 0;
    world_decide_at(w, o, NOW + 29 * MINUTE); /* Monday, in the window that began on Sunday */
    assert_pending(w, "WindowClosed");
    world_decide_at(w, o, NOW + 30 * MINUTE);
    assert_non_null(w->pl);
    world_decide_at(w, o, NOW + 60 * MINUTE);
    assert_pending(w, "WindowClosed");
    assert_non_null(strstr(w->d->message, "opens 2025-12-01 02:00 Zone/Own"));
    world_decide_at(w, world_workload(w, "b", GPU(2)), NOW + 60 * MINUTE);
    assert_non_null(w->pl);
    world_decide_at(w, o, NOW + 120 * MINUTE);
    assert_non_null(w->pl);
}

static void test_policy_max_gpus(void **state)
{
    struct world *w = *state;

    pair(w, "tier: hub", "tier: hub");
    world_put(w, "kind: PlacementPolicy\nmetadata: {name: p}\nspec: {maxGPUs: 6}\n");
    world_run(w, "a", GPU(4));
    assert_non_null(w->pl);
    world_run(w, "b", GPU(3));
    assert_pending(w, "PolicyLimitReached");
    world_run(w, "c", GPU(2));
    assert_non_null(w->pl);
}

/* ---- money ---- */
static void test_interruptions_make_spot_dearer(void **state)
{
    struct world *w = *state;

    world_put(w, "kind: PriceSheet\nmetadata: {name: s}\nspec: {gpuHour: [{class: h100, spot: 2, "
                 "interruptionsPerHour: 0.5}]}\n---\n"
                 "kind: PriceSheet\nmetadata: {name: o}\nspec: {gpuHour: [{class: h100, onDemand: "
                 "2.2}]}\n");
    pair(w, "tier: burst, capacity: spot, priceSheet: s", "tier: burst, priceSheet: o");
    world_run(w, "a", GPU(1) "  checkpoint: {store: s3, interval: 48m}\n");
    assert_placed(w, "beta"); /* 2 × (1 + 0.5 × (0.1 + 0.4)) = 2.5 against 2.2 */
    assert_near(world_row(w, "alpha")->usefulGpuHour, 2.5);
    world_run(w, "b", GPU(1) "  checkpoint: {store: s3, interval: 6m}\n"); /* 2.15 */
    assert_placed(w, "alpha");
}

static void test_egress_of_data_and_checkpoint(void **state)
{
    struct world *w = *state;
    const struct object *o;

    world_put(w, "kind: PriceSheet\nmetadata: {name: dear}\nspec: {egressPerGiB: 0.5, gpuHour: "
                 "[{class: h100, amortised: 1}]}\n---\n"
                 "kind: PriceSheet\nmetadata: {name: cheap}\nspec: {egressPerGiB: 0.1, gpuHour: "
                 "[{class: h100, amortised: 1}]}\n---\n"
                 "kind: Dataset\nmetadata: {name: d, namespace: dev}\nspec: {bytes: 20Gi, copies: "
                 "[{target: alpha}, {target: beta}]}\n");
    pair(w, "tier: hub, priceSheet: dear, stores: [s3]",
         "tier: hub, priceSheet: cheap, stores: [s3]");
    world_target(w, "gamma", "tier: hub, priceSheet: cheap");
    world_nodes(w, "gamma", 1, 8, "h100", "");
    o = world_docs(w,
                   WORKLOAD("a",
                            "data: [{dataset: d}], resources: {gpu: {count: 2}}, expected: "
                            "{duration: 4h}, checkpoint: {store: s3}",
                            "checkpoint: {bytes: 10737418240}"),
                   false);
    world_decide_at(w, o, NOW);
    /* 30 GiB from the cheaper of the two, over 8 GPU-hours */
    assert_near(world_row(w, "gamma")->usefulGpuHour, 1 + 30 * 0.1 / 8);
    assert_near(world_row(w, "alpha")->usefulGpuHour, 1);
}

static void test_price_caps(void **state)
{
    struct world *w = *state;
    const struct object *o;

    world_put(w, "kind: PriceSheet\nmetadata: {name: s}\nspec: {gpuHour: [{class: h100, amortised: "
                 "2}]}\n---\nkind: GpuClass\nmetadata: {name: h100}\nspec: {memory: 80Gi, "
                 "relativeSpeed: 2}\n");
    world_target(w, "hub", "tier: hub, priceSheet: s");
    world_nodes(w, "hub", 1, 8, "h100", "");
    world_run(w, "a", GPU(1) "  maxGpuHourPrice: 1.99\n");
    assert_pending(w, "PriceAboveCap"); /* the price of the device, not that of useful work */
    world_run(w, "b", GPU(1) "  maxGpuHourPrice: 2\n");
    assert_placed(w, "hub");
    world_run(w, "c", GPU(4) "  maxCost: 39\n  expected: {duration: 10h}\n"); /* 5h × 4 × 2 = 40 */
    assert_pending(w, "PriceAboveCap");
    world_run(w, "d", GPU(4) "  maxCost: 40\n  expected: {duration: 10h}\n");
    assert_placed(w, "hub");
    o = world_docs(w,
                   WORKLOAD("e",
                            "resources: {gpu: {count: 1}}, maxCost: 12, expected: "
                            "{duration: 10h}",
                            "spent: {cost: 3}"),
                   false);
    world_decide_at(w, o, NOW); /* 3 spent and 10 to come */
    assert_pending(w, "PriceAboveCap");
}

/* ---- isolation and MIG ---- */
static void test_hard_isolation_leaves_shared_devices(void **state)
{
    struct world *w = *state;

    world_target(w, "hub", "tier: hub");
    world_put(w, "kind: Node\nmetadata: {name: n}\nspec:\n  target: hub\n  gpus:\n"
                 "  - {index: 0, class: h100, shared: true}\n  - {index: 1, class: h100}\n"
                 "  - {index: 2, class: h100, shared: true}\n");
    world_run(w, "a", "  resources: {gpu: {count: 2, isolation: hard}}\n");
    assert_pending(w, "IsolationImpossible");
    world_run(w, "b", "  resources: {gpu: {count: 1, isolation: hard}}\n");
    assert_int_equal(w->pl->assignments[0].gpus[0], 1);
    world_run(w, "c", GPU(2)); /* without it they serve */
    assert_placed(w, "hub");
}

static void test_mig_counts(void **state)
{
    struct world *w = *state;

    world_target(w, "hub", "tier: hub");
    world_put(w, "kind: Node\nmetadata: {name: n}\nspec:\n  target: hub\n  gpus:\n"
                 "  - {index: 0, class: h100, migProfiles: [1g.10gb, 1g.10gb, 2g.20gb]}\n"
                 "  - {index: 1, class: h100, migProfiles: [1g.10gb]}\n");
    world_run(w, "a", "  resources: {gpu: {mig: 1g.10gb, count: 4}}\n");
    assert_pending(w, "MigProfileMissing");
    world_run(w, "b", "  resources: {gpu: {mig: 1g.10gb, count: 3}}\n");
    assert_placed(w, "hub");
    assert_int_equal(w->pl->assignments[0].n_gpus, 3);
    assert_int_equal(w->pl->assignments[0].gpus[1], 0);
    assert_int_equal(w->pl->assignments[0].gpus[2], 1);
    assert_int_equal(w->pl->gpus, 3 * 143); /* a seventh of a device each */
    world_run(w, "c", "  resources: {gpu: {mig: 1g.10gb}}\n");
    assert_pending(w, "MigProfileMissing");
    world_run(w, "d", "  resources: {gpu: {mig: 2g.20gb}}\n");
    assert_placed(w, "hub");
    pool_drop(w->p, "uid-b");
    world_run(w, "g", "  gang: {workers: 3}\n  resources: {gpu: {mig: 1g.10gb}}\n");
    assert_placed(w, "hub");
    assert_int_equal(w->pl->assignments[1].gpus[0], 0);
    assert_int_equal(w->pl->assignments[2].gpus[0], 1);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, world_setup, world_teardown)
    const struct CMUnitTest tests[] = {
        T(test_a_store_must_be_reached),
        T(test_locality_of_checkpoint),
        T(test_energy),
        T(test_topology_score),
        T(test_seed_breaks_ties_between_targets),
        T(test_nvlink_domain_preferred),
        T(test_nvlink_domain_required),
        T(test_gang_within_leaf_and_nvlink_domain),
        T(test_lend_and_borrow_limits),
        T(test_shares_are_compared_below_the_nearest_common_queue),
        T(test_deadline_orders_a_queue),
        T(test_windows_follow_the_resolver),
        T(test_policy_max_gpus),
        T(test_interruptions_make_spot_dearer),
        T(test_egress_of_data_and_checkpoint),
        T(test_price_caps),
        T(test_hard_isolation_leaves_shared_devices),
        T(test_mig_counts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
