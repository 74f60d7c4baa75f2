/* Every reason code of policy, one after the other: what kind of obstacle it is, and that
 * preemption or a hint answers it wherever something can be done. Where nothing can be done by one
 * change, neither says anything. */
#include "tests/support/policy/hints_done.h"

enum answer {
    NO_ANSWER, /* not in the table: a new code must be put there */
    TOLD,      /* no refusal of a workload: a result, or said of a victim */
    ROOM,      /* others hold it: preemption */
    QUOTA,     /* a queue's limit: preemption within it, or a hint to raise it */
    LIMIT,     /* of a policy, a target: preemption within it, or a hint */
    TIME,      /* passes by itself: a hint says until when */
    ASKED,     /* for what is not there: a hint to ask for less, or elsewhere */
    NEVER,     /* only somebody who may can change it: no hint */
};
struct reason_case {
    enum answer answer;
    const char *docs;   /* beyond the hub with one node of 4 h100 */
    const char *filler; /* runs already, of class low */
    const char *asks;   /* of class high */
    bool preempts;      /* there is a plan */
    const char *hint;   /* part of one; NULL: none of all may be told */
    const char *status; /* beyond since when it waits */
};

#define GPUS(n) "  resources: {gpu: {count: " #n "}}\n"

static const struct reason_case cases[REASON_NR] = {
    [REASON_CHOSEN] = {.answer = TOLD},
    [REASON_LOWER_SCORE] = {.answer = TOLD},
    [REASON_PROCESSES] = {ASKED, NULL, NULL, GPUS(1) "  isolation: {processes: proved}\n", false,
                          "isolation.processes any"},
    [REASON_TENANTS] = {ASKED, NULL, NULL, GPUS(1) "  isolation: {tenants: separate}\n", false,
                        "isolation.tenants any"},
    [REASON_PRINCIPAL] = {NEVER,
                          "kind: Target\nmetadata: {name: hub}\nspec: {type: callout, tier: hub, "
                          "region: eu, principals: [{name: anna, namespaces: [others]}]}\n",
                          NULL, GPUS(1), false, NULL},
    [REASON_NO_TARGETS] = {.answer = NEVER},
    [REASON_TOO_LARGE] = {.answer = NEVER},
    [REASON_RECOVERING] = {.answer = NEVER},
    [REASON_RESIDENCY] = {.answer = NEVER},
    [REASON_CERTIFICATION] = {.answer = NEVER},
    [REASON_COMPLIANCE] = {.answer = NEVER},
    [REASON_POLICY_FORBIDS] = {NEVER,
                               "kind: PlacementPolicy\nmetadata: {name: p}\nspec: {order: "
                               "[{targets: {names: [other]}}]}\n",
                               NULL, GPUS(1), false, NULL},
    [REASON_NOT_SELECTED] = {ASKED, NULL, NULL, GPUS(1) "  targets: {tier: burst}\n", false,
                             "tier"},
    [REASON_SPILL_WAIT] = {TIME,
                           "kind: PlacementPolicy\nmetadata: {name: p}\nspec: {order: [{targets: "
                           "{names: [hub]}, after: 30m}]}\n",
                           NULL, GPUS(1), false, "wait until"},
    [REASON_UNREACHABLE] = {.answer = NEVER},
    [REASON_STORE] = {.answer = NEVER},
    [REASON_STORE_PLACE] = {.answer = NEVER},
    [REASON_LOG_PLACE] = {.answer = NEVER}, /* unit/policy/rules */
    [REASON_TARGET_PAUSED] = {TIME,
                              "kind: Target\nmetadata: {name: hub}\nspec: {type: agent, tier: hub, "
                              "region: eu}\nstatus: {pauses: [{scope: target, refusal: quota, "
                              "until: 2025-12-01T00:10:00Z}]}\n",
                              NULL, GPUS(1), false, "wait until 2025-12-01 00:10 UTC"},
    [REASON_TARGET_QUEUE] = {.answer = TIME}, /* unit/policy/place/pauses */
    [REASON_RUN_DENIED] = {TIME, NULL, NULL, GPUS(1), false, "wait until 2025-12-01 00:10 UTC",
                           ", ends: [{target: hub, deniedUntil: 2025-12-01T00:10:00Z}]"},
    [REASON_RUN_NOT_BEGUN] = {TIME, NULL, NULL, GPUS(1), false, "wait until 2025-12-01 00:10 UTC",
                              ", ends: [{target: hub, reason: NotStartedInTime, deniedUntil: "
                              "2025-12-01T00:10:00Z}]"},
    [REASON_CORDONED] = {.answer = NEVER},
    [REASON_OBSERVE_ONLY] = {.answer = NEVER},
    [REASON_NODE_NOT_READY] = {.answer = NEVER},
    [REASON_NODE_NOTICE] = {.answer = NEVER}, /* unit/policy/move/notices */
    [REASON_NO_CLASS] = {ASKED, NULL, NULL, "  resources: {gpu: {count: 1, classes: [b200]}}\n",
                         false, "h100"},
    [REASON_GPU_MEMORY] = {ASKED, NULL, NULL, "  resources: {gpu: {count: 1, minMemory: 100Gi}}\n",
                           false, "minMemory"},
    [REASON_GPU_BUSY] = {ROOM, NULL, GPUS(3), GPUS(2), true, "1 GPU"},
    [REASON_OTHERS] = {ROOM,
                       "kind: Node\nmetadata: {name: hub-n1}\nspec: {target: hub, cpu: 64, memory: "
                       "512Gi, gpus: [{index: 0, class: h100}, {index: 1, class: h100}, {index: 2, "
                       "class: h100}, {index: 3, class: h100}]}\n"
                       "status: {others: {classes: [{class: h100, count: 1}]}}\n",
                       GPUS(2), GPUS(2), true, "1 GPU"},
    [REASON_UNHEALTHY] = {.answer = ROOM}, /* unit/policy/place/faults */
    [REASON_RENAMED] = {.answer = NEVER},  /* unit/policy/place/faults */
    [REASON_MIG] = {.answer = ROOM},
    [REASON_ONLY_SHARES] = {.answer = NEVER}, /* unit/policy/place/slices */
    [REASON_ISOLATION] = {.answer = ASKED},
    [REASON_FRACTION] = {ROOM, NULL, GPUS(4), "  resources: {gpu: {fraction: 0.5}}\n", true, NULL},
    [REASON_CPU] = {ROOM, NULL, "  resources: {gpu: {count: 1}, cpu: 60}\n",
                    "  resources: {gpu: {count: 1}, cpu: 8}\n", true, "cpu 4 per worker"},
    [REASON_MEMORY] = {ROOM, NULL, "  resources: {gpu: {count: 1}, memory: 500Gi}\n",
                       "  resources: {gpu: {count: 1}, memory: 100Gi}\n", true, "memory 12Gi"},
    [REASON_INTERCONNECT] = {ASKED, NULL, NULL,
                             "  resources: {gpu: {count: 1, interconnect: infiniband}}\n", false,
                             "interconnect"},
    [REASON_GANG] = {ROOM, NULL, GPUS(2), GPUS(1) "  gang: {workers: 3}\n", true, "2 workers"},
    [REASON_CHECKPOINT_RANKS] = {ROOM, NULL, GPUS(2),
                                 GPUS(2) "  gang: {workers: 2, minWorkers: 1}\n"
                                         "  checkpoint: {store: /s}\n",
                                 true, "checkpoint.reshard",
                                 ", checkpoint: {path: /c, digest: 'sha256:0', ranks: 2}"},
    [REASON_TOPOLOGY] = {.answer = ROOM},
    [REASON_AGENTS] = {.answer = ROOM}, /* unit/policy/place/agents */
    [REASON_QUOTA_GUARANTEED] = {QUOTA,
                                 "kind: Queue\nmetadata: {name: q}\nspec: {namespaces: [dev]}\n"
                                 "---\nkind: Queue\nmetadata: {name: r}\nspec: {namespaces: [ops], "
                                 "lend: false, gpus: [{class: h100, guaranteed: 2}]}\n",
                                 GPUS(2), GPUS(1), true, "queue r lends"},
    [REASON_QUOTA_BURST] = {QUOTA,
                            "kind: Queue\nmetadata: {name: q}\nspec: {namespaces: [dev], gpus: "
                            "[{class: h100, burst: 2}]}\n",
                            GPUS(2), GPUS(1), true, "burst raised by 1 in queue q"},
    [REASON_QUEUE_MISSING] = {NEVER, NULL, NULL, GPUS(1) "  queue: nosuch\n", false, NULL},
    [REASON_WINDOW] = {TIME,
                       "kind: PlacementPolicy\nmetadata: {name: p}\nspec: {windows: [{from: "
                       "'00:00', to: '06:30', timezone: UTC, maxGPUs: 2}]}\n",
                       GPUS(2), GPUS(1), false, "wait until 2025-12-01 06:30 UTC"},
    [REASON_POLICY_LIMIT] = {LIMIT,
                             "kind: PlacementPolicy\nmetadata: {name: p}\nspec: {maxGPUs: 2}\n",
                             GPUS(2), GPUS(1), true, "maxGPUs raised by 1 in policy p"},
    [REASON_PRICE_UNKNOWN] = {ASKED, NULL, NULL, GPUS(1) "  maxGpuHourPrice: 2\n", false,
                              "without maxGpuHourPrice"},
    [REASON_PRICE_CAP] = {.answer = ASKED},
    [REASON_DEADLINE] = {ASKED, NULL, NULL,
                         GPUS(1) "  expected: {duration: 5h}\n  deadline: 2025-12-01T01:00:00Z\n",
                         false, "deadline moved to 2025-12-01T05:01:00Z"},
    [REASON_TARGET_LIMIT] = {.answer = LIMIT}, /* preempted for: test_preempt_quota */
    [REASON_SUSPENDED] = {NEVER, NULL, NULL, GPUS(1) "  suspend: true\n", false, NULL},
    [REASON_PRIORITY_MISSING] = {.answer = NEVER},
    [REASON_DATASET_MISSING] = {NEVER, NULL, NULL, GPUS(1) "  data: [{dataset: nosuch}]\n", false,
                                NULL},
    [REASON_CAPACITY_KIND] = {.answer = NEVER},
    [REASON_RUNNER_MISSING] = {.answer = NEVER},
    [REASON_NO_FIT] = {.answer = TOLD},
    [REASON_PREEMPTING] = {.answer = TOLD},
    [REASON_VICTIM_PROTECTED] = {.answer = TOLD},
    [REASON_VICTIM_NOT_RUNNING] = {.answer = TOLD},
    [REASON_VICTIM_YOUNG] = {.answer = TOLD},
    [REASON_VICTIM_NOT_LOWER] = {.answer = TOLD},
};

static struct preempt_plan *plan_for(struct world *w, const struct object *o)
{
    struct place_request rq = {.workload = o, .now_ms = NOW + MINUTE};
    struct preempt_plan *plan;
    struct err err;

    assert_int_equal(policy_preempt(w->p, &rq, w->a, &plan, &err), 0);
    return plan;
}

static bool has_reason(const struct world *w, const char *code)
{
    bool found = strcmp(w->d->reason, code) == 0;

    for (uint32_t i = 0; i < w->d->n_candidates; i++)
        found |= strcmp(w->d->candidates[i].reason, code) == 0;
    return found;
}

static void check_case(enum reason r, const struct reason_case *c)
{
    const char *code = reason_text(r);
    char spec[512];
    const struct object *o;
    struct preempt_plan *plan;
    struct told t;
    struct world w;
    bool found = false;

    world_init(&w);
    world_put(&w, "kind: GpuClass\nmetadata: {name: h100}\nspec: {memory: 80Gi}\n---\n"
                  "kind: PriorityClass\nmetadata: {name: low}\nspec: {value: 1}\n---\n"
                  "kind: PriorityClass\nmetadata: {name: high}\nspec: {value: 10}\n");
    world_target(&w, "hub", "tier: hub, region: eu");
    world_nodes(&w, "hub", 1, 4, "h100", "");
    if (c->docs)
        world_put(&w, c->docs);
    if (c->filler) {
        (void)snprintf(spec, sizeof(spec), "  priorityClassName: low\n%s", c->filler);
        o = world_workload(&w, "filler", spec);
        world_decide_at(&w, o, NOW);
        assert_non_null(w.pl);
        hints_run(&w, o);
    }
    (void)snprintf(spec, sizeof(spec),
                   "  priorityClassName: high\n%sstatus: {queuedAt: 2025-12-01T00:00:00Z%s}\n",
                   c->asks, c->status ? c->status : "");
    o = world_workload(&w, "x", spec);
    t = hints_at(&w, o, NOW + MINUTE);
    if (w.pl || !has_reason(&w, code))
        fail_msg("%s: it came to %s", code, w.pl ? "a place" : w.d->reason);
    plan = plan_for(&w, o);
    if ((plan != NULL) != c->preempts)
        fail_msg("%s: %s", code, plan ? "a plan where none can help" : "no plan");
    if (plan)
        assert_int_equal(plan->requeue, c->answer == QUOTA || c->answer == LIMIT);
    for (uint32_t i = 0; i < t.n; i++)
        found |= c->hint && strstr(t.v[i], c->hint);
    if (c->hint && !found)
        fail_msg("%s: no hint with \"%s\"; the first of %u: %s", code, c->hint, t.n,
                 t.n ? t.v[0] : "");
    if (!c->hint && t.n)
        fail_msg("%s: told \"%s\"", code, t.v[0]);
    world_fini(&w);
}

static void every_reason_has_its_answer(void **state)
{
    uint32_t acted = 0;

    (void)state;
    for (int r = REASON_NONE + 1; r < REASON_NR; r++) {
        if (cases[r].answer == NO_ANSWER)
            fail_msg("%s is not in the table", reason_text((enum reason)r));
        if (!cases[r].asks)
            continue;
        check_case((enum reason)r, &cases[r]);
        acted++;
    }
    assert_true(acted >= 19);
}

/* The columns say what the answers above are. */
static void every_reason_has_its_columns(void **state)
{
    static const enum reason_cure cures[] = {
        [NO_ANSWER] = CURE_NONE, [ROOM] = CURE_ROOM, [QUOTA] = CURE_QUOTA,
        [LIMIT] = CURE_LIMIT,    [TIME] = CURE_TIME, [NEVER] = CURE_NONE};

    (void)state;
    for (int i = REASON_NONE + 1; i < REASON_NR; i++) {
        enum reason r = (enum reason)i;
        /* Prices are valid from a time on. */
        enum reason_cure cure = r == REASON_PRICE_UNKNOWN ? CURE_TIME : cures[cases[r].answer];

        if (reason_cure(r) != cure)
            fail_msg("%s: cure %d", reason_text(r), (int)reason_cure(r));
        if (cases[r].answer == NEVER && !reason_is_hopeless(r))
            fail_msg("%s: hints are looked for, and none may be told", reason_text(r));
        if (reason_stage(r) < 0 || reason_stage(r) > 10 ||
            (cases[r].answer == TOLD && reason_stage(r)))
            fail_msg("%s: stage %d", reason_text(r), reason_stage(r));
        for (int k = i + 1; k < REASON_NR; k++)
            assert_string_not_equal(reason_text(r), reason_text((enum reason)k));
    }
    assert_int_equal(reason_cure(REASON_NONE), CURE_NONE);
    assert_false(reason_is_hopeless(REASON_NONE));
    assert_false(reason_is_hopeless(REASON_CHECKPOINT_RANKS));
    assert_false(reason_is_hopeless(REASON_WINDOW));
    assert_false(reason_is_hopeless(REASON_POLICY_LIMIT));
    assert_true(reason_is_hopeless(REASON_DEADLINE)); /* it has passed */
    /* What is told of several candidates: the last thing that stands in the way. */
    assert_true(reason_stage(REASON_QUOTA_BURST) > reason_stage(REASON_SPILL_WAIT));
    assert_true(reason_stage(REASON_SPILL_WAIT) > reason_stage(REASON_CHECKPOINT_RANKS));
    assert_true(reason_stage(REASON_CHECKPOINT_RANKS) > reason_stage(REASON_GANG));
    assert_true(reason_stage(REASON_GANG) > reason_stage(REASON_GPU_BUSY));
    assert_true(reason_stage(REASON_GPU_BUSY) > reason_stage(REASON_NODE_NOT_READY));
    assert_true(reason_stage(REASON_NODE_NOT_READY) > reason_stage(REASON_PRICE_CAP));
    assert_true(reason_stage(REASON_PRICE_CAP) > reason_stage(REASON_UNREACHABLE));
    assert_true(reason_stage(REASON_UNREACHABLE) > reason_stage(REASON_GPU_MEMORY));
    assert_true(reason_stage(REASON_GPU_MEMORY) > reason_stage(REASON_NO_CLASS));
    assert_true(reason_stage(REASON_NO_CLASS) > reason_stage(REASON_RESIDENCY));
}

static void a_decision_waits_for_what_its_rows_say(void **state)
{
    struct candidate c[2] = {{.reason = "TargetCordoned"}, {.reason = "SpillOverWaits"}};
    struct decision_spec d = {.reason = "GpusInUse", .candidates = c, .n_candidates = 2};

    (void)state;
    assert_true(policy_waits_for(&d, CURE_ROOM, false));
    assert_false(policy_waits_for(&d, CURE_QUOTA | CURE_LIMIT, true));
    assert_false(policy_waits_for(&d, CURE_TIME, false));
    assert_true(policy_waits_for(&d, CURE_TIME, true));
    d.reason = "GpusInUs";
    assert_false(policy_waits_for(&d, CURE_ROOM, true));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_reason_has_its_answer),
                                       cmocka_unit_test(every_reason_has_its_columns),
                                       cmocka_unit_test(a_decision_waits_for_what_its_rows_say)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
