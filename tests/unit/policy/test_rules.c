/* Policies, prices, quota and order: each rule has a test that fails without it. */
#include "tests/support/policy/policy_world.h"

#define GPU(n) "  resources: {gpu: {count: " #n "}, cpu: 4, memory: 8Gi}\n"
#define MINUTE 60000

/* hub in DE (certified), spoke in FR, burst in US on demand; 1, 1, 2 nodes of 8. */
static void three_tiers(struct world *w)
{
    world_put(
        w, "kind: PriceSheet\nmetadata: {name: own}\nspec: {gpuHour: [{class: h100, amortised: 2}],"
           " egressPerGiB: 0.1}\n---\n"
           "kind: PriceSheet\nmetadata: {name: cloud}\nspec: {gpuHour: [{class: h100, spot: 1.5, "
           "onDemand: 4, interruptionsPerHour: 0.2}]}\n");
    world_target(w, "hub",
                 "tier: hub, region: eu, jurisdiction: DE, certifications: [iso27001], "
                 "priceSheet: own, stores: [s3]");
    world_target(w, "spoke", "tier: spoke, region: fr, jurisdiction: FR, priceSheet: own");
    world_target(w, "burst", "tier: burst, region: us, jurisdiction: US, priceSheet: cloud");
    world_nodes(w, "hub", 1, 8, "h100", "");
    world_nodes(w, "spoke", 1, 8, "h100", "");
    world_nodes(w, "burst", 1, 8, "h100", "");
}

static void test_residency_and_certification(void **state)
{
    struct world *w = *state;

    three_tiers(w);
    world_put(
        w,
        "kind: CompliancePolicy\nmetadata: {name: eu-only}\nspec: {selects: {namespaces: [dev]}, "
        "allow: {jurisdictions: [EU]}}\n---\n"
        "kind: CompliancePolicy\nmetadata: {name: none-saved}\nspec: {selects: {namespaces: "
        "[dev]}, "
        "allow: {jurisdictions: [JP]}, covers: [checkpoint]}\n---\n"
        "kind: CompliancePolicy\nmetadata: {name: audited}\nspec: {selects: {namespaces: [dev]},"
        " allow: {jurisdictions: [JP]}, mode: audit}\n");
    world_run(w, "a", GPU(8));
    world_run(w, "b", GPU(8));
    world_run(w, "c", GPU(8));
    assert_pending(w, "GpusInUse");
    assert_string_equal(world_row(w, "burst")->reason, "ResidencyForbidden");
    assert_string_equal(world_row(w, "burst")->message, "eu-only (EU): the target is in US");
    assert_int_equal(w->d->n_compliance, 2);
    assert_string_equal(w->d->compliance[0], "audited (audit)");
    /* Only what compliance allows tells why it waits. */
    pool_drop(w->p, "uid-a");
    pool_drop(w->p, "uid-b");
    pool_target_reachable(w->p, "hub", REACH_NO);
    pool_target_reachable(w->p, "spoke", REACH_NO);
    world_run(w, "c", GPU(8));
    assert_pending(w, "TargetUnreachable");
    assert_string_equal(w->d->message, "hub, spoke: the target does not answer");
    pool_target_reachable(w->p, "hub", REACH_YES);
    world_put(
        w, "kind: CompliancePolicy\nmetadata: {name: cert}\nspec: {selects: {namespaces: [dev]}, "
           "allow: {certifications: [iso27001, tisax]}}\n");
    world_run(w, "c", GPU(8));
    assert_pending(w, "CertificationMissing");
    assert_string_equal(world_row(w, "hub")->message, "cert asks for iso27001, tisax");
}

/* Each policy that took part, with the set and the commit that it came with; a common commit
 * once. */
static void test_sources(void **state)
{
#define OF(set, commit) "annotations: {hanse.dev/set: " set "}, revision: " commit
    struct world *w = *state;

    three_tiers(w);
    world_put(w,
              "kind: Queue\nmetadata: {name: q, " OF(
                  "base",
                  "4be1c0f") "}\n"
                             "spec: {namespaces: [dev]}\n---\n"
                             "kind: PlacementPolicy\nmetadata: {name: p, " OF(
                                 "base",
                                 "4be1c0f") "}\n"
                                            "spec: {namespaces: [dev]}\n---\n"
                                            "kind: CompliancePolicy\nmetadata: {name: by-hand}\n"
                                            "spec: {selects: {namespaces: [dev]}, allow: "
                                            "{jurisdictions: [EU]}}\n---\n"
                                            "kind: CompliancePolicy\nmetadata: {name: other, " OF(
                                                "base",
                                                "abc0000") "}\n"
                                                           "spec: {selects: {namespaces: [prod]}, "
                                                           "allow: {jurisdictions: [EU]}}\n");
    world_run(w, "a", GPU(8));
    assert_placed(w, "hub");
    assert_string_equal(w->d->revision, "4be1c0f");
    assert_int_equal(w->d->n_sources, 1);
    assert_string_equal(w->d->sources[0].set, "base");
    assert_int_equal(w->d->sources[0].n_policies, 2);
    assert_string_equal(w->d->sources[0].policies[0], "PlacementPolicy/p");
    assert_string_equal(w->d->sources[0].policies[1], "Queue/q");
    world_put(
        w, "kind: CompliancePolicy\nmetadata: {name: eu, " OF(
               "law",
               "abc1234") "}\n"
                          "spec: {selects: {namespaces: [dev]}, allow: {jurisdictions: [EU]}}\n");
    world_run(w, "b", GPU(8));
    assert_string_equal(w->d->revision, "");
    assert_int_equal(w->d->n_sources, 2);
    assert_string_equal(w->d->sources[1].set, "law");
    assert_string_equal(w->d->sources[1].revision, "abc1234");
    assert_string_equal(w->d->sources[1].policies[0], "CompliancePolicy/eu");
#undef OF
}

static void test_compliance_check(void **state)
{
    struct world *w = *state;
    const struct object *pol, *wl, *us, *ds, *missing = NULL;
    struct err err = {0};

    pol = world_docs(
        w,
        "kind: CompliancePolicy\nmetadata: {name: patients}\nspec: {selects: {dataClasses: "
        "[patient]}, allow: {jurisdictions: [DE, FR]}, covers: [run, checkpoint]}\n",
        false);
    us = world_docs(
        w,
        "kind: Target\nmetadata: {name: us}\nspec: {type: agent, tier: burst, jurisdiction: "
        "US}\n",
        false);
    ds = world_docs(
        w,
        "kind: Dataset\nmetadata: {name: scans, namespace: dev}\nspec: {dataClass: patient, "
        "bytes: 1Gi}\n",
        false);
    wl = world_workload(w, "a", "  data: [{dataset: scans}]\n");
    assert_int_equal(policy_compliance_check(wl, us, &pol, 1, &ds, 1, &us, 1, &err), E_COMPLIANCE);
    assert_non_null(strstr(err.text, "patients (DE, FR): the target is in US"));
    /* A dataset that is not known may be of any class. */
    assert_int_equal(policy_compliance_check(wl, us, &pol, 1, &missing, 1, &us, 1, &err),
                     E_COMPLIANCE);
    assert_int_equal(policy_compliance_check(wl, us, &pol, 1, NULL, 0, &us, 1, &err), 0);
}

#define LOCAL_STORES                                                                               \
    "kind: Target\nmetadata: {name: %s}\nspec: {type: agent, tier: hub, jurisdiction: %s, "        \
    "localStores: [\"%s\"]}\n"

static void saves_to(char *out, size_t size, const char *store)
{
    if (*store)
        (void)snprintf(out, size, GPU(1) "  checkpoint: {store: \"%s\"}\n", store);
    else
        (void)snprintf(out, size, GPU(1));
}

/* It was told that store; its spec names another by now. */
static const char *runs_at_here(char *out, size_t size, const char *store)
{
    (void)snprintf(out, size,
                   GPU(1) "  checkpoint: {store: \"s3://de/other\"}\n"
                          "status:\n  phase: Running\n  epoch: 1\n  placement: {target: here}\n"
                          "  intent: {op: submit, store: \"%s\", granted: {lease: 5m}}\n",
                   store);
    return out;
}

/* What is covered, where it saves, where the target is, and whether it may be there: asked of
 * apply's check, of a decision, and of what runs there already. */
static void test_covers(void **state)
{
    static const struct {
        const char *covers, *store, *country, *reason; /* NULL: may be there */
    } cases[] = {
        {"", "", "US", "ResidencyForbidden"},
        {"", "", "DE", NULL},
        {"covers: [run]", "s3://nobody/ck", "DE", NULL},
        {"covers: [logs]", "", "US", "ResidencyForbidden"},
        {"covers: [logs]", "", "DE", NULL},
        {"covers: [checkpoint]", "", "US", NULL}, /* saves nothing */
        {"covers: [checkpoint]", "/ck", "US", "ResidencyForbidden"},
        {"covers: [checkpoint]", "/ck", "DE", NULL},
        {"covers: [checkpoint]", "/us/ck", "DE", "ResidencyForbidden"}, /* mounted from there */
        {"covers: [checkpoint]", "/here/../us/ck", "DE", "ResidencyForbidden"},
        {"covers: [checkpoint]", "//us//ck", "DE", "ResidencyForbidden"},
        {"covers: [checkpoint]", "/./us", "DE", "ResidencyForbidden"},
        {"covers: [checkpoint]", "/us/../here/ck", "DE", NULL},
        {"covers: [checkpoint]", "/us2", "DE", NULL},
        {"covers: [checkpoint]", "s3://de/../us/a", "DE", "StorePlaceUnknown"},
        {"covers: [checkpoint]", "s3://de2/a", "DE", "StorePlaceUnknown"},
        {"covers: [checkpoint]", "s3://de/a", "DE", NULL},
        {"covers: [checkpoint]", "s3://de/a", "US", "ResidencyForbidden"}, /* passes through it */
        {"covers: [checkpoint]", "s3://us/a", "DE", "ResidencyForbidden"},
        {"covers: [checkpoint]", "s3://nobody/a", "DE", "StorePlaceUnknown"},
        {"covers: [checkpoint]", "named", "DE", "StorePlaceUnknown"},
        {"", "s3://nobody/a", "DE", "StorePlaceUnknown"}, /* all when it is not given */
        {"covers: [run, logs]", "s3://us/a", "DE", NULL},
        {"covers: [checkpoint], mode: audit", "s3://us/a", "US", NULL},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        static struct world w;
        const struct object *targets[4], *pol, *wl;
        char text[512];
        struct err err = {0};
        int rc;

        world_init(&w);
        (void)snprintf(text, sizeof(text), "tier: hub, jurisdiction: %s", cases[i].country);
        world_target(&w, "here", text);
        world_nodes(&w, "here", 1, 8, "h100", "");
        (void)snprintf(text, sizeof(text), LOCAL_STORES, "here", cases[i].country, "/here");
        targets[0] = world_docs(&w, text, false);
        (void)snprintf(text, sizeof(text), LOCAL_STORES, "de", "DE", "s3://de");
        targets[1] = world_docs(&w, text, true);
        (void)snprintf(text, sizeof(text), LOCAL_STORES, "us", "US", "s3://us");
        targets[2] = world_docs(&w, text, true);
        (void)snprintf(text, sizeof(text), LOCAL_STORES, "nfs", "US", "/us");
        targets[3] = world_docs(&w, text, true);
        (void)snprintf(text, sizeof(text),
                       "kind: CompliancePolicy\nmetadata: {name: stays}\nspec: {selects: "
                       "{namespaces: [dev]}, allow: {jurisdictions: [DE]}%s%s}\n",
                       *cases[i].covers ? ", " : "", cases[i].covers);
        pol = world_docs(&w, text, false);
        saves_to(text, sizeof(text), cases[i].store);
        wl = world_workload(&w, "a", text);
        rc = policy_compliance_check(wl, targets[0], &pol, 1, NULL, 0, targets, 4, &err);
        if (rc != (cases[i].reason ? E_COMPLIANCE : 0) ||
            (cases[i].reason && !strstr(err.text, cases[i].reason)))
            fail_msg("case %zu: apply says %s", i, rc ? err.text : "yes");
        world_run(&w, "a", text);
        assert_non_null(w.pl);
        pool_put(w.p, pol);
        wl = world_workload(&w, "a", runs_at_here(text, sizeof(text), cases[i].store));
        if ((policy_must_leave(w.p, wl, NOW) == MOVE_COMPLIANCE) != (cases[i].reason != NULL))
            fail_msg("case %zu: what runs there %s", i, cases[i].reason ? "stays" : "must leave");
        saves_to(text, sizeof(text), cases[i].store);
        world_run(&w, "b", text);
        if ((w.pl != NULL) != !cases[i].reason)
            fail_msg("case %zu: decided %s: %s", i, w.d->reason, w.d->message);
        const char *why = w.d->n_candidates ? world_row(&w, "here")->reason : w.d->reason;
        if (cases[i].reason && strcmp(why, cases[i].reason) != 0)
            fail_msg("case %zu: %s instead of %s", i, why, cases[i].reason);
        world_fini(&w);
    }
}

/* The price that holds now, of the right kind; labels by expression; and whose turn it is without a
 * class of one's own. */
static void test_sheets_selectors_and_the_default_class(void **state)
{
    static struct world w2;
    struct cycle_item it[2];
    struct err err;
    struct world *w = *state;

    world_put(w, "kind: PriceSheet\nmetadata: {name: s}\nspec: {gpuHour: [{class: h100, reserved: "
                 "1.25}], validFrom: 2025-11-01T00:00:00Z}\n");
    world_target(w, "hub", "tier: hub, priceSheet: s, capacity: reserved");
    world_nodes(w, "hub", 1, 8, "h100", "");
    world_run(w, "a", GPU(1) "  maxGpuHourPrice: 2\n");
    assert_placed(w, "hub");
    assert_true(w->pl->gpuHourPrice == 1.25);
    world_put(w, "kind: PriceSheet\nmetadata: {name: s}\nspec: {gpuHour: [{class: h100, reserved: "
                 "1.25}], validFrom: 2026-01-01T00:00:00Z}\n");
    world_run(w, "b", GPU(1) "  maxGpuHourPrice: 2\n");
    assert_pending(w, "PriceUnknown");
    world_put(w, "kind: PlacementPolicy\nmetadata: {name: p}\nspec: {workloads: "
                 "{matchExpressions: [{key: app, operator: NotIn, values: [c]}]}, forbid: [{tier: "
                 "hub}]}\n");
    world_run(w, "b", GPU(1));
    assert_pending(w, "PolicyForbids");
    world_run(w, "c", GPU(1));
    assert_placed(w, "hub");

    world_init(&w2);
    world_put(&w2, "kind: PriorityClass\nmetadata: {name: mine}\nspec: {value: 5}\n---\n"
                   "kind: PriorityClass\nmetadata: {name: usual}\nspec: {value: 9, globalDefault: "
                   "true}\n");
    it[0] = (struct cycle_item){.workload =
                                    world_workload(&w2, "a", GPU(1) "  priorityClassName: mine\n")};
    it[1] = (struct cycle_item){.workload = world_workload(&w2, "b", GPU(1))};
    assert_int_equal(policy_cycle(w2.p, it, 2, NOW, 1, 7, 0, w2.a, &err), 0);
    assert_string_equal(it[0].workload->meta->name, "b");
    world_fini(&w2);
}

static void test_jurisdictions(void **state)
{
    const char *eu[] = {"EU"}, *eea[] = {"EEA"}, *us[] = {"US", "CA"};

    (void)state;
    assert_true(policy_jurisdiction_in("DE", eu, 1));
    assert_false(policy_jurisdiction_in("NO", eu, 1));
    assert_true(policy_jurisdiction_in("NO", eea, 1));
    assert_false(policy_jurisdiction_in("GB", eea, 1));
    assert_true(policy_jurisdiction_in("CA", us, 2));
    assert_false(policy_jurisdiction_in("", eea, 1));
}

static void put_order(struct world *w)
{
    world_put(w,
              "kind: PlacementPolicy\nmetadata: {name: spill}\nspec:\n  order:\n"
              "  - {targets: {tier: hub}}\n  - {targets: {tier: spoke}, after: 2m}\n"
              "  - {targets: {tier: burst}, after: 5m, when: {queueWait: 15m, utilisation: 50%}, "
              "capacity: [onDemand]}\n");
}

static void test_spill_over_waits(void **state)
{
    struct world *w = *state;
    const struct object *o;

    three_tiers(w);
    put_order(w);
    world_run(w, "a", GPU(8));
    assert_placed(w, "hub"); /* though all fit: the first step wins whatever the scores */
    o = world_docs(
        w,
        "kind: Workload\nmetadata: {name: b, namespace: dev, uid: b}\nspec: {run: {command: "
        "[x]}, resources: {gpu: {count: 8}}}\nstatus: {queuedAt: 2025-12-01T00:00:00Z}\n",
        false);
    world_decide_at(w, o, NOW + 30000);
    assert_pending(w, "SpillOverWaits");
    assert_string_equal(world_row(w, "spoke")->message, "opens in 1m30s");
    world_decide_at(w, o, NOW + 2 * MINUTE);
    assert_placed(w, "spoke");
    pool_hold_placement(w->p, o, w->pl);
    o = world_docs(
        w,
        "kind: Workload\nmetadata: {name: c, namespace: dev, uid: c}\nspec: {run: {command: "
        "[x]}, resources: {gpu: {count: 8}}}\nstatus: {queuedAt: 2025-12-01T00:00:00Z}\n",
        false);
    world_decide_at(w, o, NOW + 14 * MINUTE);
    assert_pending(w, "SpillOverWaits");
    world_decide_at(w, o, NOW + 15 * MINUTE);
    assert_placed(w, "burst");
    pool_target_reachable(w->p, "spoke", REACH_NO);
    pool_drop(w->p, "uid-a");
    pool_drop(w->p, "b");
    world_target(w, "hub", "tier: hub, region: eu, unschedulable: true");
    world_decide_at(w, o, NOW + 60 * MINUTE); /* earlier tiers are idle: below the threshold */
    assert_pending(w, "SpillOverWaits");
}

static void test_capacity_kinds_and_require_forbid(void **state)
{
    struct world *w = *state;

    three_tiers(w);
    world_put(w,
              "kind: PlacementPolicy\nmetadata: {name: p}\nspec: {order: [{targets: {tier: burst}, "
              "capacity: [spot]}]}\n");
    world_run(w, "a", GPU(1));
    assert_pending(w, "CapacityKindExcluded");
    assert_string_equal(world_row(w, "hub")->reason, "PolicyForbids");
    world_put(w,
              "kind: PlacementPolicy\nmetadata: {name: p}\nspec: {require: [{tier: [hub, spoke]}], "
              "forbid: [{jurisdiction: DE}]}\n");
    world_run(w, "a", GPU(1));
    assert_placed(w, "spoke");
    assert_string_equal(world_row(w, "burst")->reason, "PolicyForbids");
    world_run(w, "b", GPU(1) "  targets: {names: [hub]}\n");
    assert_pending(w, "PolicyForbids");
    assert_string_equal(world_row(w, "spoke")->reason, "NotSelected");
}

static void test_policy_precedence(void **state)
{
    struct world *w = *state;
    const struct object *all[4], *losers[4], *wl;
    size_t n_losers;

    all[0] = world_docs(w, "kind: PlacementPolicy\nmetadata: {name: b}\nspec: {}\n", false);
    all[1] = world_docs(w, "kind: PlacementPolicy\nmetadata: {name: a}\nspec: {}\n", false);
    all[2] =
        world_docs(w,
                   "kind: PlacementPolicy\nmetadata: {name: z}\nspec: {workloads: {matchLabels: "
                   "{app: a}}}\n",
                   false);
    all[3] =
        world_docs(w,
                   "kind: PlacementPolicy\nmetadata: {name: y}\nspec: {precedence: 5, namespaces: "
                   "[dev]}\n",
                   false);
    wl = world_workload(w, "a", "");
    assert_string_equal(policy_winner(wl, all, 4, losers, &n_losers)->meta->name, "y");
    assert_int_equal(n_losers, 3);
    assert_string_equal(losers[0]->meta->name, "z");
    assert_string_equal(losers[1]->meta->name, "a");
    assert_string_equal(losers[2]->meta->name, "b");
    wl = world_workload(w, "other", "");
    assert_string_equal(policy_winner(wl, all, 3, NULL, &n_losers)->meta->name, "a");
    assert_int_equal(n_losers, 1);
}

static void test_price_decides(void **state)
{
    struct world *w = *state;

    three_tiers(w);
    world_put(
        w,
        "kind: Node\nmetadata: {name: s1}\nspec: {target: burst, cpu: 64, memory: 512Gi, capacity: "
        "spot, gpus: [{index: 0, class: h100}]}\n");
    world_run(w, "a", GPU(1) "  checkpoint: {store: s3, interval: 20m}\n");
    assert_placed(w, "burst");
    assert_int_equal(w->pl->capacity, CAPACITY_SPOT);
    assert_true(w->pl->gpuHourPrice == 1.5);
    /* 1.5 × (1 + 0.2 × (0.1 + 1/6)) */
    assert_true(w->d->candidates[0].usefulGpuHour > 1.5799 &&
                w->d->candidates[0].usefulGpuHour < 1.5801);
    pool_drop(w->p, "uid-a");
    world_run(w, "b",
              GPU(1) "  expected: {duration: 20h}\n"); /* without checkpoints half is lost */
    assert_string_equal(w->pl->class_, "h100");
    assert_int_equal(w->pl->capacity, CAPACITY_OWNED);
    world_run(w, "c", GPU(1) "  maxGpuHourPrice: 1\n");
    assert_pending(w, "PriceAboveCap");
    world_run(w, "d", GPU(8) "  maxCost: 100\n  expected: {duration: 9h}\n");
    assert_pending(w, "PriceAboveCap");
    world_put(
        w,
        "kind: PriceSheet\nmetadata: {name: own}\nspec: {gpuHour: [{class: h100, amortised: 2}], "
        "validUntil: 2025-01-01T00:00:00Z}\n");
    world_run(w, "e", GPU(1) "  targets: {names: [hub]}\n  maxGpuHourPrice: 9\n");
    assert_pending(w, "PriceUnknown");
    world_run(w, "f", GPU(1) "  deadline: 2025-12-01T01:00:00Z\n  expected: {duration: 2h}\n");
    assert_pending(w, "DeadlineImpossible");
}

static void test_data_gravity(void **state)
{
    struct world *w = *state;

    three_tiers(w);
    world_put(
        w,
        "kind: Dataset\nmetadata: {name: d, namespace: dev}\nspec: {bytes: 38Gi, copies: [{target: "
        "spoke}]}\n");
    world_run(w, "a", GPU(1) "  data: [{dataset: d}]\n");
    assert_placed(w, "spoke");
    assert_string_equal(world_row(w, "spoke")->data, "local");
    assert_string_equal(world_row(w, "hub")->data, "38Gi");
    /* 38 GiB at 0.1 over one GPU-hour */
    assert_true(world_row(w, "hub")->usefulGpuHour > 5.79 &&
                world_row(w, "hub")->usefulGpuHour < 5.81);
    world_run(w, "b", GPU(1) "  data: [{dataset: none}]\n");
    assert_pending(w, "DatasetMissing");
}

static void test_preferences(void **state)
{
    struct world *w = *state;

    three_tiers(w);
    world_put(
        w,
        "kind: PlacementPolicy\nmetadata: {name: p}\nspec: {prefer: [{weight: 1, cost: {reference: "
        "4}}, {weight: 9, targets: {tier: burst}}]}\n");
    world_run(w, "a", GPU(1));
    assert_placed(w, "burst");
    assert_true(w->d->candidates[0].score == 90);
    assert_true(world_row(w, "hub")->score == 5); /* 1 × 50 of 10 */
    assert_int_equal(w->d->candidates[0].n_terms, 2);
}

static void item(struct world *w, struct cycle_item *it, const char *name, const char *spec)
{
    *it = (struct cycle_item){.workload = world_workload(w, name, spec)};
}

static void assert_order(const struct cycle_item *items, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        assert_string_equal(items[i].workload->meta->name, names[i]);
}

static void test_cycle_order_and_positions(void **state)
{
    struct world *w = *state;
    struct cycle_item it[6];
    const char *order[] = {"vip", "b1", "a-soon", "b2", "a1", "a2"};
    struct err err;

    world_target(w, "hub", "tier: hub");
    world_nodes(w, "hub", 1, 4, "h100", "");
    world_put(w, "kind: PriorityClass\nmetadata: {name: high}\nspec: {value: 10}\n---\n"
                 "kind: Queue\nmetadata: {name: a}\nspec: {weight: 1}\n---\n"
                 "kind: Queue\nmetadata: {name: b}\nspec: {weight: 1}\n");
    pool_set_use(w->p, (struct queue_use[]){{"a", 10}, {"b", 9.5}}, 2);
    item(w, &it[0], "a1", "  queue: a\n" GPU(1));
    item(w, &it[1], "a2", "  queue: a\n" GPU(1));
    item(w, &it[2], "b1", "  queue: b\n" GPU(1));
    item(w, &it[3], "b2", "  queue: b\n" GPU(1));
    item(w, &it[4], "a-soon", "  queue: a\n  deadline: 2026-01-01T00:00:00Z\n" GPU(1));
    item(w, &it[5], "vip",
         "  queue: a\n  priorityClassName: high\n  resources: {gpu: {count: 9}}\n");
    assert_int_equal(policy_cycle(w->p, it, 6, NOW, 1, 7, 0, w->a, &err), 0);
    /* vip does not fit and lets the others go; b has had least until b1 is held: 9.5 < 10 < 10.5 <
     * 11 */
    assert_order(it, order, 6);
    assert_null(it[0].placement);
    assert_int_equal(it[0].position, 1);
    assert_non_null(it[1].placement);
    assert_non_null(it[4].placement);
    assert_null(it[5].placement); /* 4 GPUs only */
    assert_string_equal(it[5].decision->reason, "GpusInUse");
    assert_int_equal(it[5].position, 2);
    assert_int_equal(it[5].decision->queuePosition, 2);
    assert_int_equal(it[5].decision->logIndex, 7);
    assert_int_equal(pool_free_gpu_milli(w->p, NULL), 0);
    for (int i = 0; i < 6; i++)
        pool_drop(w->p, it[i].workload->meta->uid);
    assert_int_equal(policy_cycle(w->p, it, 6, NOW, 1, 7, 1, w->a, &err), 0);
    assert_non_null(it[1].placement);
    assert_null(it[2].decision);
}

static void test_workload_refusals(void **state)
{
    struct world *w = *state;

    three_tiers(w);
    world_run(w, "a", "  suspend: true\n");
    assert_pending(w, "Suspended");
    world_run(w, "b", "  priorityClassName: none\n");
    assert_pending(w, "PriorityClassMissing");
    world_run(w, "c", "  deadline: 2025-11-30T00:00:00Z\n");
    assert_pending(w, "DeadlineImpossible");
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, world_setup, world_teardown)
    const struct CMUnitTest tests[] = {
        T(test_residency_and_certification),
        T(test_sources),
        T(test_compliance_check),
        T(test_covers),
        T(test_sheets_selectors_and_the_default_class),
        T(test_jurisdictions),
        T(test_spill_over_waits),
        T(test_capacity_kinds_and_require_forbid),
        T(test_policy_precedence),
        T(test_price_decides),
        T(test_data_gravity),
        T(test_preferences),
        T(test_cycle_order_and_positions),
        T(test_workload_refusals),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
