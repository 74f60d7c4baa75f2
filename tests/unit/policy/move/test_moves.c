/* Moves of running work: who must leave, who gains, and what the move costs. */
#include "tests/support/policy/policy_world.h"

#include <math.h>

#define HOUR 3600000
#define MINUTE 60000
#define CALM "minStay: 0s, atMostEvery: 0s"

static void sheet(struct world *w, const char *name, double price)
{
    char text[256];

    (void)snprintf(text, sizeof(text),
                   "kind: PriceSheet\nmetadata: {name: %s}\nspec: {gpuHour: [{class: h100, "
                   "amortised: %.2f}], egressPerGiB: 0.1}\n",
                   name, price);
    world_put(w, text);
}

/* hub (DE, $4), spoke (FR, $2), burst (US, $1): a node of 8 each. */
static void three_tiers(struct world *w)
{
    sheet(w, "four", 4);
    sheet(w, "two", 2);
    sheet(w, "one", 1);
    world_target(w, "hub",
                 "tier: hub, region: eu, jurisdiction: DE, priceSheet: four, stores: [s3]");
    world_target(w, "spoke",
                 "tier: spoke, region: fr, jurisdiction: FR, priceSheet: two, stores: [s3]");
    world_target(w, "burst",
                 "tier: burst, region: us, jurisdiction: US, priceSheet: one, capacity: owned");
    world_nodes(w, "hub", 1, 8, "h100", "");
    world_nodes(w, "spoke", 1, 8, "h100", "");
    world_nodes(w, "burst", 1, 8, "h100", "");
}

static void policy(struct world *w, const char *migrate, const char *more)
{
    char text[1024];

    (void)snprintf(text, sizeof(text),
                   "kind: PlacementPolicy\nmetadata: {name: p}\nspec: {migrate: {%s}%s%s}\n",
                   migrate, more[0] ? ", " : "", more);
    world_put(w, text);
}

/* A workload of 8 GPUs that runs on TARGET-n1 since NOW - ran and wrote a checkpoint `ago` before
 * NOW (0: none). */
static const struct object *runs(struct world *w, const char *target, int64_t ran, int64_t ago,
                                 const char *spec, const char *status)
{
    char text[2048], since[32], verified[32], checkpoint[256] = "";
    const struct object *o;

    time_print(NOW - ran, since);
    time_print(NOW - ago, verified);
    if (ago)
        (void)snprintf(checkpoint, sizeof(checkpoint),
                       "  checkpoint: {step: 5, epoch: 1, verifiedAt: %s, bytes: 10Gi}\n",
                       verified);
    (void)snprintf(
        text, sizeof(text),
        "kind: Workload\nmetadata: {name: a, namespace: dev, uid: uid-a}\nspec:\n"
        "  run: {command: [x]}\n  checkpoint: {store: s3}\n"
        "  resources: {gpu: {count: 8}}\n%s"
        "status:\n  phase: Running\n  epoch: 1\n  phaseSince: %s\n  queuedAt: %s\n%s%s"
        "  placement: {target: %s, capacity: owned, class: h100, gpus: 8000, since: %s, "
        "gpuHourPrice: 9,\n    assignments: [{rank: 0, node: %s-n1, gpus: [0,1,2,3,4,5,6,7], "
        "gpuMilli: 1000}]}\n",
        spec, since, since, checkpoint, status, target, since, target);
    o = world_docs(w, text, false);
    pool_hold(w->p, o);
    return o;
}

static struct move_choice asks(struct world *w, const struct object *o, enum move_cause must)
{
    struct place_request rq = {.workload = o, .now_ms = NOW};
    struct move_choice c;
    struct err err = {0};

    assert_int_equal(policy_move(w->p, &rq, must, w->a, &c, &err), 0);
    assert_true(c.why[0]);
    if (c.placement)
        assert_string_equal(c.decision->outcome, "Placed");
    else
        assert_null(c.decision);
    if (!must)
        assert_int_equal(c.move, c.placement != NULL);
    return c;
}

static const struct placement *goes_to(struct world *w, const struct object *o,
                                       enum move_cause must)
{
    struct move_choice c = asks(w, o, must);

    if (!c.placement)
        fail_msg("it stays: %s", c.why);
    return c.placement;
}

static void near(double got, double want)
{
    if (fabs(got - want) > 1e-6 * fabs(want) + 1e-9)
        fail_msg("%f, not %f", got, want);
}

/* Daly 2006, figures 3, 4 and 5: dumps of 5 min. */
static void test_interval(void **state)
{
    (void)state;
    assert_int_equal((policy_checkpoint_interval(5 * MINUTE, 24 * HOUR) + MINUTE / 2) / MINUTE,
                     117);
    assert_int_equal((policy_checkpoint_interval(5 * MINUTE, 6 * HOUR) + MINUTE / 2) / MINUTE, 57);
    assert_int_equal((policy_checkpoint_interval(5 * MINUTE, 15 * MINUTE) + 3000) / 6000, 91);
    /* Young 1974: sqrt(2 × write × mtbf) where writing takes next to nothing. */
    assert_int_equal(policy_checkpoint_interval(1, 1000000000), 44721);
    assert_int_equal(policy_checkpoint_interval(10 * MINUTE, 5 * MINUTE), 5 * MINUTE);
    assert_int_equal(policy_checkpoint_interval(0, HOUR), 0);
    assert_int_equal(policy_checkpoint_interval(MINUTE, 0), 0);
    assert_int_equal(policy_checkpoint_interval(-1, -1), 0);
}

static void test_who_must_leave(void **state)
{
    struct world *w = *state;
    const struct object *o;

    three_tiers(w);
    o = runs(w, "hub", HOUR, MINUTE, "", "");
    assert_int_equal(policy_must_leave(w->p, o, NOW), 0);
    pool_target_reachable(w->p, "hub", REACH_NO);
    policy(w, "when: [cheaper]",
           "forbid: [{tier: hub}], windows: [{from: '00:00', to: '23:59', timezone: UTC, maxGPUs: "
           "1}]");
    assert_int_equal(policy_must_leave(w->p, o, NOW), 0);
    pool_target_reachable(w->p, "hub", REACH_YES);
    world_target(w, "hub", "tier: hub, jurisdiction: DE, drain: true");
    assert_int_equal(policy_must_leave(w->p, o, NOW), MOVE_DRAIN);
    world_put(w, "kind: Node\nmetadata: {name: hub-n1}\nspec: {target: hub}\nstatus: {health: "
                 "NotReady}\n");
    assert_int_equal(policy_must_leave(w->p, o, NOW), MOVE_DRAIN);
    world_put(w, "kind: Node\nmetadata: {name: hub-n1}\nspec: {target: hub, gpus: [{index: 0}, "
                 "{index: 9, health: Sick}]}\n");
    assert_int_equal(policy_must_leave(w->p, o, NOW), MOVE_DRAIN);
    world_put(w, "kind: Node\nmetadata: {name: hub-n1}\nspec: {target: hub, gpus: [{index: 3, "
                 "health: Sick}]}\n");
    assert_int_equal(policy_must_leave(w->p, o, NOW), MOVE_SICK);
    world_put(w, "kind: Node\nmetadata: {name: hub-n1}\nspec: {target: hub}\nstatus: {health: "
                 "Sick, reason: Xid79}\n");
    assert_int_equal(policy_must_leave(w->p, o, NOW), MOVE_SICK);
    assert_non_null(strstr(asks(w, o, MOVE_SICK).why, "node hub-n1 is sick: Xid79"));
    world_put(w, "kind: CompliancePolicy\nmetadata: {name: fr}\nspec: {selects: {namespaces: "
                 "[dev]}, allow: {jurisdictions: [FR]}, mode: audit}\n");
    assert_int_equal(policy_must_leave(w->p, o, NOW), MOVE_SICK);
    world_put(w, "kind: CompliancePolicy\nmetadata: {name: fr}\nspec: {selects: {namespaces: "
                 "[dev]}, allow: {jurisdictions: [FR]}}\n");
    assert_int_equal(policy_must_leave(w->p, o, NOW), MOVE_COMPLIANCE);
    o = world_workload(w, "b", "");
    assert_int_equal(policy_must_leave(w->p, o, NOW), 0);
}

/* All that it may hold it holds already: moving it needs no second share of anything but room. */
static void test_own_share_counts_once(void **state)
{
    struct world *w = *state;
    const struct object *o;
    struct move_choice c;

    three_tiers(w);
    world_put(w, "kind: Queue\nmetadata: {name: q}\nspec: {namespaces: [dev], gpus: [{class: h100, "
                 "burst: 8}]}\n");
    policy(w, "when: [drain]",
           "maxGPUs: 8, windows: [{from: '00:00', to: '23:59', timezone: UTC, maxGPUs: 8}]");
    o = runs(w, "hub", HOUR, MINUTE, "", "");
    world_run(w, "b", "  resources: {gpu: {count: 1}}\n");
    assert_pending(w, "PolicyLimitReached");
    c = asks(w, o, MOVE_DRAIN);
    assert_non_null(c.placement);
    assert_string_not_equal(c.placement->target, "hub");
    assert_int_equal(c.decision->epoch, 2);
    assert_string_equal(c.why, "target hub is drained");
    near(c.lost_gpu_s, 8 * 60);
    /* The look left nothing behind. */
    world_run(w, "b", "  resources: {gpu: {count: 1}}\n");
    assert_pending(w, "PolicyLimitReached");
    assert_non_null(strstr(w->d->message, "hold 8 of 8"));
}

/* Limits that have sunk below what is held make nobody leave, and stop nobody who must. */
static void test_limits_have_sunk(void **state)
{
    struct world *w = *state;
    const struct object *o;

    three_tiers(w);
    world_put(w, "kind: GpuClass\nmetadata: {name: a100}\nspec: {memory: 40Gi}\n");
    o = runs(w, "hub", HOUR, MINUTE, "", "");
    world_put(w, "kind: Queue\nmetadata: {name: q}\nspec: {namespaces: [dev], gpus: [{class: h100, "
                 "burst: 4}]}\n");
    policy(w, "when: [drain]",
           "maxGPUs: 6, windows: [{from: '00:00', to: '23:59', timezone: UTC, maxGPUs: 2}]");
    assert_int_equal(policy_must_leave(w->p, o, NOW), 0);
    assert_non_null(asks(w, o, MOVE_DRAIN).placement);
    world_run(w, "b", "  resources: {gpu: {count: 1}}\n");
    assert_pending(w, "PolicyLimitReached");
    /* Of another class it would be new. */
    world_put(w, "kind: Queue\nmetadata: {name: q}\nspec: {namespaces: [dev], gpus: [{class: h100, "
                 "burst: 4}, {class: a100, burst: 4}]}\n");
    pool_remove(w->p, KIND_NODE, "", "spoke-n1");
    pool_remove(w->p, KIND_NODE, "", "burst-n1");
    world_nodes(w, "spoke", 1, 8, "a100", "");
    assert_null(asks(w, o, MOVE_DRAIN).placement);
    world_put(w, "kind: Queue\nmetadata: {name: q}\nspec: {namespaces: [dev], gpus: [{class: '', "
                 "burst: 8}]}\n");
    assert_non_null(asks(w, o, MOVE_DRAIN).placement);
}

static void test_it_has_to(void **state)
{
    struct world *w = *state;
    const struct object *o;
    struct place_request rq;
    struct move_choice c;
    struct err err;

    three_tiers(w);
    world_nodes(w, "hub", 2, 8, "h100", "");
    policy(w, "when: [drain]", "prefer: [{weight: 1, targets: {tier: hub}}]");
    o = runs(w, "hub", 2 * HOUR, 0, "", "");
    assert_string_equal(goes_to(w, o, MOVE_SICK)->assignments[0].node, "hub-n2");
    assert_string_equal(goes_to(w, o, MOVE_SPOT)->assignments[0].node, "hub-n2");
    assert_string_not_equal(goes_to(w, o, MOVE_DRAIN)->target, "hub");
    assert_string_not_equal(goes_to(w, o, MOVE_LOST)->target, "hub");
    c = asks(w, o, MOVE_ASKED);
    assert_string_not_equal(c.placement->target, "hub");
    near(c.lost_gpu_s, 8 * 2 * 3600); /* no checkpoint: all of it */
    rq = (struct place_request){.workload = o, .now_ms = NOW, .avoid_target = "burst"};
    assert_int_equal(policy_move(w->p, &rq, MOVE_DRAIN, w->a, &c, &err), 0);
    assert_string_equal(c.placement->target, "hub"); /* the caller knows better */
    pool_target_reachable(w->p, "spoke", REACH_NO);
    pool_target_reachable(w->p, "burst", REACH_NO);
    c = asks(w, o, MOVE_DRAIN);
    assert_true(c.move);
    assert_int_equal(c.cause, MOVE_DRAIN);
    assert_null(c.placement);
    assert_non_null(strstr(c.why, "target hub is drained; no room elsewhere: burst, spoke: the"));
    c = asks(w, world_workload(w, "b", ""), MOVE_DRAIN);
    assert_false(c.move);
}

/* Who must leave waits for no step of its policy's order; who merely would like to, does. What is
 * required holds all the same, and the decision says why it went there. */
static void test_it_does_not_wait_for_its_order(void **state)
{
    static const enum move_cause musts[] = {MOVE_DRAIN, MOVE_SICK, MOVE_LOST, MOVE_COMPLIANCE};
    struct world *w = *state;
    const struct object *o;
    struct move_choice c;

    three_tiers(w);
    policy(w, "when: [drain]",
           "order: [{targets: {tier: hub}}, {targets: {tier: spoke}, when: {utilisation: 0.99}, "
           "after: 2h}, {targets: {tier: burst}, after: 3h}]");
    o = runs(w, "hub", MINUTE, 0, "", "");
    assert_null(asks(w, o, MOVE_ASKED).placement);
    for (size_t i = 0; i < sizeof musts / sizeof *musts; i++) {
        c = asks(w, o, musts[i]);
        assert_non_null(c.placement);
        assert_string_equal(c.placement->target, "spoke"); /* the earlier step */
        assert_non_null(strstr(c.decision->candidates[0].message, "it has to leave"));
    }
    pool_target_reachable(w->p, "spoke", REACH_NO);
    assert_string_equal(goes_to(w, o, MOVE_DRAIN)->target, "burst");
    world_put(w, "kind: CompliancePolicy\nmetadata: {name: stay}\nspec: {selects: {namespaces: "
                 "[dev]}, allow: {jurisdictions: [DE, FR]}, covers: [run], mode: enforce}\n");
    assert_null(asks(w, o, MOVE_DRAIN).placement);
}

/* Between its old end and its start elsewhere its destination counts for its queue: a newcomer that
 * apply would refuse is not proposed. */
static void test_between_two_places_it_counts(void **state)
{
    struct world *w = *state;
    const struct object *o, *queued;
    struct placement to;

    three_tiers(w);
    world_put(w, "kind: Queue\nmetadata: {name: q}\nspec: {namespaces: [dev], gpus: [{class: h100, "
                 "guaranteed: 8, burst: 8}]}\n");
    o = runs(w, "hub", HOUR, 0, "", "");
    to = *goes_to(w, o, MOVE_DRAIN);
    pool_hold_as(w->p, "the-move", o, &to); /* both held, and counted once */
    world_run(w, "b", "  resources: {gpu: {count: 1}}\n");
    assert_pending(w, "QuotaBurstExhausted");
    assert_non_null(strstr(w->d->message, "8 of 8"));
    queued = world_docs(w,
                        "kind: Workload\nmetadata: {name: a, namespace: dev, uid: uid-a}\nspec:\n"
                        "  run: {command: [x]}\n  resources: {gpu: {count: 8}}\n"
                        "status: {phase: Queued, epoch: 1, migration: a-m1}\n",
                        false);
    pool_drop(w->p, "uid-a");
    world_run(w, "b", "  resources: {gpu: {count: 1}}\n"); /* not told yet: it would be proposed */
    assert_non_null(w->pl);
    pool_drop(w->p, "uid-b");
    pool_hold_as(w->p, "the-move", queued, &to);
    world_run(w, "b", "  resources: {gpu: {count: 1}}\n");
    assert_pending(w, "QuotaBurstExhausted");
    assert_non_null(strstr(w->d->message, "8 of 8"));
    pool_drop(w->p, "the-move");
    world_run(w, "b", "  resources: {gpu: {count: 1}}\n");
    assert_non_null(w->pl);
}

/* Spot machines are taken back: another part of the same device's node is no way out. */
static void test_a_notice_is_about_the_node(void **state)
{
    struct world *w = *state;
    const struct object *o;

    world_target(w, "hub", "tier: hub");
    world_nodes(w, "hub", 1, 16, "h100", "");
    o = runs(w, "hub", HOUR, MINUTE, "", "");
    assert_non_null(asks(w, o, MOVE_SICK).placement);
    assert_null(asks(w, o, MOVE_SPOT).placement);
}

/* A node of it that cannot be shown as cordoned is taken for none at all. */
static void test_a_notice_about_a_large_node(void **state)
{
    struct world *w = *state;
    const struct object *o;

    world_target(w, "hub", "tier: hub");
    world_nodes(w, "hub", 2, 8, "h100", "");
    o = runs(w, "hub", HOUR, MINUTE, "", "");
    const char *at = object_as(o, workload)->status->placement->assignments[0].node;
    for (size_t i = 0, n = w->n_made; i < n; i++)
        if (w->made[i]->kind->id == KIND_NODE && !strcmp(w->made[i]->meta->name, at))
            pool_put(w->p, world_large(w, w->made[i]));
    assert_string_not_equal(asks(w, o, MOVE_SPOT).placement->assignments[0].node, at);
}

#define ORDER                                                                                      \
    "order: [{targets: {tier: hub}}, {targets: {tier: spoke}}, {targets: {tier: burst}, after: "   \
    "5m}]"

static void test_repatriate(void **state)
{
    struct world *w = *state;
    const struct object *o;
    struct move_choice c;

    three_tiers(w);
    policy(w, "when: [repatriate], " CALM, ORDER);
    o = runs(w, "spoke", HOUR, MINUTE, "  expected: {duration: 9h}\n", "");
    c = asks(w, o, 0);
    assert_true(c.move);
    assert_int_equal(c.cause, MOVE_REPATRIATE);
    assert_string_equal(c.placement->target, "hub");
    assert_string_equal(c.why, "hub, step 1 of policy p, has room again; it runs on spoke, step 2");
    assert_true(c.saving < 0); /* the hub costs more: home is home */
    near(c.cost, 8 * 4 * 0.1);
    near(c.lost_gpu_s, 8 * 60);
    /* What is left is less than the move would waste. */
    o = runs(w, "spoke", HOUR, MINUTE, "  expected: {duration: 65m}\n", "");
    assert_false(asks(w, o, 0).move);
    /* Nobody told how long: it ran an hour, it may run another. */
    o = runs(w, "spoke", HOUR, MINUTE, "", "");
    assert_true(asks(w, o, 0).move);
    o = runs(w, "spoke", 10 * MINUTE, 9 * MINUTE, "", "");
    assert_false(asks(w, o, 0).move);
    o = runs(w, "burst", HOUR, MINUTE, "  expected: {duration: 9h}\n", "");
    world_run(w, "b", "  resources: {gpu: {count: 8}}\n");
    assert_placed(w, "hub");
    assert_string_equal(goes_to(w, o, 0)->target, "spoke");
    world_run(w, "c", "  resources: {gpu: {count: 8}}\n");
    assert_placed(w, "spoke");
    assert_false(asks(w, o, 0).move);
    policy(w, "when: [cheaper], " CALM, ORDER);
    pool_drop(w->p, "uid-b");
    assert_false(asks(w, o, 0).move);
}

static void test_rest_between_moves(void **state)
{
    struct world *w = *state;
    const struct object *o;

    three_tiers(w);
    policy(w, "when: [repatriate]", ORDER);
    assert_true(asks(w, runs(w, "spoke", HOUR, MINUTE, "", ""), 0).move);
    o = runs(w, "spoke", 9 * MINUTE, MINUTE, "  expected: {duration: 9h}\n", "");
    assert_string_equal(asks(w, o, 0).why, "stays: minStay is not over");
    policy(w, "when: [repatriate], minStay: 8m", ORDER);
    assert_true(asks(w, o, 0).move);
    o = runs(w, "spoke", HOUR, MINUTE, "", "  movedAt: 2025-11-30T22:59:59Z\n");
    assert_true(asks(w, o, 0).move);
    o = runs(w, "spoke", HOUR, MINUTE, "", "  movedAt: 2025-11-30T23:00:01Z\n");
    assert_string_equal(asks(w, o, 0).why, "stays: it moved less than atMostEvery ago");
    assert_true(asks(w, o, MOVE_DRAIN).move);
    policy(w, "when: [repatriate], atMostEvery: 10m", ORDER);
    assert_true(asks(w, o, 0).move);
    o = runs(w, "spoke", HOUR, 0, "", "");
    assert_string_equal(asks(w, o, 0).why, "stays: it has no verified checkpoint yet");
    o = runs(w, "spoke", HOUR, MINUTE, "", "  migration: m1\n");
    assert_string_equal(asks(w, o, 0).why, "stays: it moves already");
    policy(w, "when: [drain]", ORDER);
    o = runs(w, "spoke", HOUR, MINUTE, "", "");
    assert_string_equal(asks(w, o, 0).why, "stays: its policy names no cause to move for gain");
    assert_true(asks(w, o, MOVE_DRAIN).move);
}

static void test_cheaper(void **state)
{
    struct world *w = *state;
    const struct object *o;
    struct move_choice c;

    three_tiers(w);
    policy(w, "when: [cheaper], minSaving: 15%, " CALM, "");
    o = runs(w, "hub", HOUR, 30 * MINUTE, "  expected: {duration: 5h}\n", "");
    c = asks(w, o, 0);
    assert_true(c.move);
    assert_int_equal(c.cause, MOVE_CHEAPER);
    assert_string_equal(c.placement->target, "burst");
    /* Staying: 8 × 4 h × $4. There: 8 × 4.5 h × $1, 10 GiB at $0.1 on the way, 6 min of restart. */
    near(c.cost, 1 + 8 * 0.1);
    near(c.saving, 8 * 4 * 4 - 8 * 4.5 - c.cost);
    near(c.lost_gpu_s, 8 * 1800);
    assert_string_equal(c.why, "burst costs 1.00 per useful GPU-hour, hub 4.00: 90.20 of the "
                               "128.00 that are left to pay are saved, after 1.80 for the move");
    /* The order goes first: never to a later step. */
    policy(w, "when: [cheaper], " CALM, ORDER);
    assert_false(asks(w, o, 0).move);
    policy(w, "when: [cheaper], " CALM, "order: [{targets: {tier: [hub, spoke]}}]");
    assert_string_equal(goes_to(w, o, 0)->target, "spoke");
    /* 0.5 h of 1 h to be done again, at half the price: nothing saved. */
    policy(w, "when: [cheaper], " CALM, "forbid: [{tier: burst}]");
    o = runs(w, "hub", HOUR, 30 * MINUTE, "  expected: {duration: 90m}\n", "");
    assert_false(asks(w, o, 0).move);
    /* From 2 h left: 64 - 40 - 1.6 = 22.4 = 35 % */
    o = runs(w, "hub", HOUR, 30 * MINUTE, "  expected: {duration: 3h}\n", "");
    policy(w, "when: [cheaper], minSaving: 34%, " CALM, "forbid: [{tier: burst}]");
    assert_true(asks(w, o, 0).move);
    policy(w, "when: [cheaper], minSaving: 36%, " CALM, "forbid: [{tier: burst}]");
    assert_false(asks(w, o, 0).move);
    /* Overdue: it may end at any moment. */
    policy(w, "when: [cheaper], " CALM, "");
    o = runs(w, "hub", 2 * HOUR, MINUTE, "  expected: {duration: 1h}\n", "");
    assert_false(asks(w, o, 0).move);
    /* Not told: as long again as it has run, 1 h. */
    o = runs(w, "hub", HOUR, 30 * MINUTE, "", "");
    c = asks(w, o, 0);
    near(c.saving, 8 * 4 - 8 * 1.5 - c.cost);
    assert_non_null(strstr(c.why, "should it run as long again"));
    /* A price that is not known is no bargain. */
    world_target(w, "hub", "tier: hub, region: eu, jurisdiction: DE");
    assert_false(asks(w, o, 0).move);
}

/* Faster devices cost less per useful hour, and the price of today counts, not that of the
 * placement. */
static void test_cheaper_per_useful_hour(void **state)
{
    struct world *w = *state;
    const struct object *o;
    struct move_choice c;

    three_tiers(w);
    world_put(w, "kind: GpuClass\nmetadata: {name: b200}\nspec: {memory: 180Gi, relativeSpeed: "
                 "4}\n---\nkind: PriceSheet\nmetadata: {name: b}\nspec: {gpuHour: [{class: b200, "
                 "amortised: 3}]}\n");
    world_target(w, "new", "tier: hub, priceSheet: b");
    world_nodes(w, "new", 1, 8, "b200", "");
    policy(w, "when: [cheaper], " CALM, "");
    o = runs(w, "burst", HOUR, HOUR / 2, "  expected: {duration: 9h}\n", "");
    c = asks(w, o, 0);
    assert_string_equal(c.placement->target, "new");
    near(c.saving, 8 * 8 * 1 - 8 * 8.5 * 0.75 - c.cost);
}

static void test_to_the_data(void **state)
{
    struct world *w = *state;
    const struct object *o;
    struct move_choice c;

    three_tiers(w);
    world_put(w, "kind: Dataset\nmetadata: {name: d, namespace: dev}\nspec: {bytes: 38Gi, copies: "
                 "[{target: hub}, {region: fr}]}\n---\n"
                 "kind: Dataset\nmetadata: {name: e, namespace: dev}\nspec: {bytes: 2Gi, copies: "
                 "[{target: spoke}]}\n");
    policy(w, "when: [data], " CALM, "");
    o = runs(w, "hub", HOUR, MINUTE, "  data: [{dataset: d}]\n", "");
    assert_false(asks(w, o, 0).move);
    o = runs(w, "hub", HOUR, MINUTE, "  data: [{dataset: d}, {dataset: e}]\n", "");
    c = asks(w, o, 0);
    assert_true(c.move);
    assert_int_equal(c.cause, MOVE_DATA);
    assert_string_equal(c.placement->target, "spoke");
    assert_string_equal(c.why, "all its data is on spoke; hub reads 2Gi from afar");
    policy(w, "when: [data], " CALM, ORDER);
    assert_false(asks(w, o, 0).move);
    policy(w, "when: [data], " CALM, "");
    world_run(w, "b", "  resources: {gpu: {count: 8}}\n  targets: {names: [spoke]}\n");
    assert_placed(w, "spoke");
    assert_false(asks(w, o, 0).move);
}

/* Found by sim/causes: to the data, away from it for money, back, for as long as atMostEvery let
 * it; work whose checkpoints are local never ended. */
static void test_a_cause_does_not_undo_one_that_is_named_before_it(void **state)
{
    struct world *w = *state;
    const struct object *o;
    struct move_choice c;

    three_tiers(w);
    world_put(w, "kind: Dataset\nmetadata: {name: d, namespace: dev}\nspec: {bytes: 38Gi, copies: "
                 "[{target: hub}]}\n");
    /* On the dear one with the data: money comes first, or does not count. */
    o = runs(w, "hub", HOUR, MINUTE, "  data: [{dataset: d}]\n  expected: {duration: 100h}\n", "");
    policy(w, "when: [cheaper, data], " CALM, "");
    c = asks(w, o, 0);
    assert_true(c.move);
    assert_int_equal(c.cause, MOVE_CHEAPER);
    policy(w, "when: [data, cheaper], " CALM, "");
    assert_false(asks(w, o, 0).move);
    /* On the cheap one without it. */
    o = runs(w, "burst", HOUR, MINUTE, "  data: [{dataset: d}]\n  expected: {duration: 100h}\n",
             "");
    policy(w, "when: [cheaper, data], " CALM, "");
    assert_false(asks(w, o, 0).move);
    policy(w, "when: [data, cheaper], " CALM, "");
    c = asks(w, o, 0);
    assert_true(c.move);
    assert_int_equal(c.cause, MOVE_DATA);
    assert_string_equal(c.placement->target, "hub");
}

/* Work that was done before, and is safe in a checkpoint, is not paid for or waited for again. */
static void test_what_is_left(void **state)
{
    struct world *w = *state;
    const struct object *o;
    char text[1024];

    three_tiers(w);
    (void)snprintf(text, sizeof(text),
                   "kind: Workload\nmetadata: {name: b, namespace: dev, uid: b}\nspec: {run: "
                   "{command: [x]}, resources: {gpu: {count: 8}}, expected: {duration: 10h}, "
                   "targets: {names: [hub]}, deadline: 2025-12-01T03:00:00Z, maxCost: 350}\n"
                   "status: {spent: {gpuHours: 80, wasted: 16, cost: 280}%s}\n",
                   ", checkpoint: {step: 1, epoch: 1}");
    o = world_docs(w, text, false);
    world_decide_at(w, o, NOW); /* 2 of 10 h are left: 64 more */
    assert_placed(w, "hub");
    (void)snprintf(text, sizeof(text),
                   "kind: Workload\nmetadata: {name: b, namespace: dev, uid: b}\nspec: {run: "
                   "{command: [x]}, resources: {gpu: {count: 8}}, expected: {duration: 10h}, "
                   "targets: {names: [hub]}, deadline: 2025-12-01T03:00:00Z}\n"
                   "status: {spent: {gpuHours: 80, wasted: 16}}\n");
    o = world_docs(w, text, false); /* nothing to resume from: all of it again */
    world_decide_at(w, o, NOW);
    assert_pending(w, "DeadlineImpossible");
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, world_setup, world_teardown)
    const struct CMUnitTest tests[] = {
        T(test_interval),
        T(test_who_must_leave),
        T(test_own_share_counts_once),
        T(test_limits_have_sunk),
        T(test_it_has_to),
        T(test_it_does_not_wait_for_its_order),
        T(test_between_two_places_it_counts),
        T(test_a_notice_is_about_the_node),
        T(test_a_notice_about_a_large_node),
        T(test_repatriate),
        T(test_rest_between_moves),
        T(test_cheaper),
        T(test_cheaper_per_useful_hour),
        T(test_to_the_data),
        T(test_a_cause_does_not_undo_one_that_is_named_before_it),
        T(test_what_is_left),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
