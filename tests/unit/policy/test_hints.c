/* Hints: their wording, that each is true when it is done, and that no number is larger than it
 * must be. The words are read back and done to copies of the documents here, apart from how they
 * were found. */
#include "tests/unit/policy/hints_done.h"

#define GPU(n) "  resources: {gpu: {count: " #n "}, cpu: 4, memory: 8Gi}\n"

static int setup(void **state)
{
    static struct world w;

    world_init(&w);
    *state = &w;
    return 0;
}

static int teardown(void **state)
{
    world_fini(*state);
    return 0;
}

struct told {
    const char **v;
    uint32_t n;
};

static struct told hints_at(struct world *w, const struct object *o, int64_t now)
{
    struct place_request rq = {.workload = o, .now_ms = now, .revision = "abc"};
    const struct decision_spec *before;
    struct told t;
    struct err err = {0};
    AUTO_BUF b;

    world_decide_at(w, o, now);
    assert_int_equal(policy_hints(w->p, &rq, w->d, 16, w->a, &t.v, &t.n, &err), 0);
    if (w->pl)
        assert_int_equal(t.n, 0);
    before = w->d;
    world_decide_at(w, o, now); /* the tries left nothing behind */
    assert_true(body_equal(&schema_decision_spec, before, w->d));
    policy_decision_hint(w->d, t.v, t.n);
    buf_init(&b, 1 << 20);
    tlv_encode(&schema_decision_spec, w->d, &b);
    assert_true(b.n <= LIMIT_DECISION_MAX_BYTES);
    assert_int_equal(w->d->n_hints, t.n);
    return t;
}

/* Reads every hint back and does it. */
static void all_true(struct world *w, const struct object *o, int64_t now, struct told t,
                     long count[H_NR])
{
    for (uint32_t i = 0; i < t.n; i++) {
        struct change c;

        if (!read_place(t.v[i], &c) && !read_limit(t.v[i], &c) && !read_less(t.v[i], &c))
            fail_msg("what does this say: %s", t.v[i]);
        if (!admits(w, o, now, &c))
            fail_msg("not true: %s (%s: %s)", t.v[i], w->d->reason, w->d->message);
        if (one_less(o, &c) && admits(w, o, now, &c))
            fail_msg("more than is needed: %s", t.v[i]);
        count[c.kind]++;
    }
}

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
    all_true(w, o, now, t, count);
}
#define SAYS(w, o, now, ...)                                                                       \
    do {                                                                                           \
        const char *want_[] = {__VA_ARGS__};                                                       \
        says(w, o, now, want_, sizeof(want_) / sizeof(*want_));                                    \
    } while (0)

/* ---- wording
 * ---------------------------------------------------------------------------------------------- */
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
    /* Two fields keep it out: no single change. */
    SAYS(w, world_workload(w, "d", GPU(8) "  targets: {region: eu, tier: hub}\n"), NOW,
         "4 GPUs per worker instead of 8 (hub)");
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
    SAYS(w, o, NOW + 12 * 60 * MINUTE, "4 GPUs per worker instead of 6 (spoke)",
         "wait until 2025-12-01 18:00 UTC: the policy's window allows it (spoke)");
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

/* ---- random worlds
 * ---------------------------------------------------------------------------------------------- */
#ifdef __SANITIZE_THREAD__
#define WAITING 2000
#else
#define WAITING 10000
#endif

struct dice {
    uint64_t rng;
};

static int64_t roll(struct dice *d, int64_t below)
{
    d->rng = d->rng * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)(d->rng >> 33) % below;
}
static const char *pick(struct dice *d, const char *const *v, int n)
{
    return v[roll(d, n)];
}
#define PICK(d, ...)                                                                               \
    pick(d, (const char *const[]){__VA_ARGS__},                                                    \
         (int)(sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *)))

static void random_world(struct world *w, struct dice *d)
{
    char text[1024];
    int targets = 2 + (int)roll(d, 2);

    world_put(
        w, "kind: GpuClass\nmetadata: {name: h100}\nspec: {memory: 80Gi, relativeSpeed: 2}\n---\n"
           "kind: GpuClass\nmetadata: {name: a100}\nspec: {memory: 40Gi}\n---\n"
           "kind: PriceSheet\nmetadata: {name: s1}\nspec: {gpuHour: [{class: h100, amortised: "
           "2.05, onDemand: 3.1}, {class: a100, amortised: 1.31, onDemand: 1.9}]}\n---\n"
           "kind: PriceSheet\nmetadata: {name: s2}\nspec: {gpuHour: [{class: h100, amortised: "
           "1.5, onDemand: 2.2}]}\n---\n"
           "kind: PriorityClass\nmetadata: {name: low}\nspec: {value: 1}\n---\n"
           "kind: PriorityClass\nmetadata: {name: high}\nspec: {value: 10}\n");
    for (int t = 0; t < targets; t++) {
        char name[8];

        (void)snprintf(name, sizeof(name), "t%d", t);
        (void)snprintf(text, sizeof(text), "tier: %s, region: %s, priceSheet: %s",
                       t == 0 ? "hub" : PICK(d, "hub", "spoke", "burst"), PICK(d, "eu", "us"),
                       PICK(d, "s1", "s2"));
        world_target(w, name, text);
        for (int n = 0, nodes = 1 + (int)roll(d, 3); n < nodes; n++) {
            const char *class_ = PICK(d, "h100", "a100");
            int used = snprintf(text, sizeof(text),
                                "kind: Node\nmetadata: {name: %s-n%d}\nspec: {target: %s, cpu: %d, "
                                "memory: %dGi, topology: {block: b, rack: r%d}, %sgpus: [",
                                name, n, name, 8 << roll(d, 4), 32 << roll(d, 4), n / 2,
                                roll(d, 3) ? "" : "interconnect: infiniband, ");

            for (int g = 0, gpus = 2 + (int)roll(d, 7); g < gpus; g++)
                used += snprintf(text + used, sizeof(text) - (size_t)used,
                                 "%s{index: %d, class: %s, memory: %s}", g ? ", " : "", g, class_,
                                 strcmp(class_, "h100") ? "40Gi" : "80Gi");
            (void)snprintf(text + used, sizeof(text) - (size_t)used, "]}\n");
            world_put(w, text);
        }
    }
}

static void random_rules(struct world *w, struct dice *d)
{
    static const char *const limits[] = {"burst: ", "borrowLimit: ", "lendLimit: "};
    char text[1024], more[256] = "";
    int n = 0;

    for (int q = 0; roll(d, 3) && q < 3; q++) {
        int used =
            snprintf(text, sizeof(text),
                     "kind: Queue\nmetadata: {name: q%d}\nspec: {namespaces: [%s], lend: %s, "
                     "gpus: [{class: h100, guaranteed: %d, %s%d}",
                     q, q ? "ops" : "dev", PICK(d, "true", "false"), (int)roll(d, 4),
                     pick(d, limits, 3), 4 + (int)roll(d, 8));

        if (roll(d, 2))
            used += snprintf(text + used, sizeof(text) - (size_t)used, ", {class: %s, burst: %d}",
                             PICK(d, "a100", "''"), 4 + (int)roll(d, 8));
        if (q == 0) /* a namespace is in one queue only; the others hold guarantees */
            (void)snprintf(text + used, sizeof(text) - (size_t)used, "]}\n");
        else
            (void)snprintf(strstr(text, "namespaces: [ops], "), sizeof(text) / 2,
                           "lend: %s, gpus: [{class: h100, guaranteed: %d, lendLimit: %d}]}\n",
                           PICK(d, "true", "false"), 1 + (int)roll(d, 6), (int)roll(d, 4));
        world_put(w, text);
    }
    if (roll(d, 2))
        return;
    if (roll(d, 2))
        n += snprintf(more + n, sizeof(more) - (size_t)n, "maxGPUs: %d, ", 2 + (int)roll(d, 12));
    if (roll(d, 2))
        n += snprintf(
            more + n, sizeof(more) - (size_t)n,
            "order: [{targets: {tier: hub}}, {targets: {tier: [spoke, burst]}, after: %dm}], ",
            1 + (int)roll(d, 30));
    if (roll(d, 2))
        (void)snprintf(more + n, sizeof(more) - (size_t)n,
                       "windows: [{from: '00:00', to: '0%d:30', timezone: UTC, maxGPUs: %d}]",
                       1 + (int)roll(d, 8), (int)roll(d, 8));
    (void)snprintf(text, sizeof(text), "kind: PlacementPolicy\nmetadata: {name: p}\nspec: {%s}\n",
                   more);
    world_put(w, text);
}

static const struct object *random_workload(struct world *w, struct dice *d, const char *name)
{
    char text[1024], gpu[256];
    int n =
        snprintf(text, sizeof(text), "  priorityClassName: %s\n", PICK(d, "low", "low", "high"));
    int g = 0;

    if (roll(d, 10) == 0)
        g = snprintf(gpu, sizeof(gpu), "fraction: 0.%d", 10 + (int)roll(d, 90));
    else
        g = snprintf(gpu, sizeof(gpu), "count: %d", 1 + (int)roll(d, roll(d, 2) ? 3 : 8));
    if (roll(d, 2))
        g += snprintf(gpu + g, sizeof(gpu) - (size_t)g, ", classes: [%s]", PICK(d, "h100", "a100"));
    if (roll(d, 12) == 0)
        g += snprintf(gpu + g, sizeof(gpu) - (size_t)g, ", minMemory: %s",
                      PICK(d, "60Gi", "100Gi", "41Gi"));
    if (roll(d, 12) == 0)
        g += snprintf(gpu + g, sizeof(gpu) - (size_t)g, ", minSpeed: %s", PICK(d, "1.5", "3"));
    if (roll(d, 12) == 0)
        g += snprintf(gpu + g, sizeof(gpu) - (size_t)g, ", interconnect: infiniband");
    (void)g;
    n += snprintf(text + n, sizeof(text) - (size_t)n,
                  "  resources: {gpu: {%s}, cpu: %d, memory: %dGi}\n", gpu,
                  1 + (int)roll(d, roll(d, 5) ? 6 : 40), 1 + (int)roll(d, roll(d, 5) ? 16 : 150));
    if (roll(d, 2) && !strstr(gpu, "fraction")) {
        int workers = 2 + (int)roll(d, 4);

        n += snprintf(text + n, sizeof(text) - (size_t)n, "  gang: {workers: %d, minWorkers: %d}\n",
                      workers, roll(d, 3) ? 0 : 1 + (int)roll(d, workers));
        if (roll(d, 2))
            n += snprintf(text + n, sizeof(text) - (size_t)n, "  topology: {within: %s}\n",
                          PICK(d, "node", "rack", "block"));
    }
    if (roll(d, 4) == 0)
        n += snprintf(text + n, sizeof(text) - (size_t)n, "  targets: {%s}\n",
                      PICK(d, "tier: hub", "region: eu", "names: [t0]", "tier: hub, region: us",
                           "matchLabels: {a: b}"));
    if (roll(d, 3) == 0)
        n += snprintf(text + n, sizeof(text) - (size_t)n, "  expected: {duration: %dh}\n",
                      1 + (int)roll(d, 9));
    if (roll(d, 12) == 0)
        n += snprintf(text + n, sizeof(text) - (size_t)n, "  maxGpuHourPrice: %s\n",
                      PICK(d, "1", "1.4", "2"));
    if (roll(d, 6) == 0)
        n += snprintf(text + n, sizeof(text) - (size_t)n, "  maxCost: %d\n", 5 + (int)roll(d, 60));
    if (roll(d, 12) == 0)
        n += snprintf(text + n, sizeof(text) - (size_t)n, "  deadline: 2025-12-01T0%d:17:00Z\n",
                      1 + (int)roll(d, 6));
    (void)n;
    return world_workload(w, name, text);
}

/* What was decided runs since an hour ago. */
static void runs(struct world *w, const struct object *o)
{
    struct workload *b = object_edit_as(o, workload, w->a);
    struct object *running;

    b->status = arena_new(w->a, struct workload_status);
    b->status->phase = PHASE_RUNNING;
    b->status->epoch = 1;
    b->status->phaseSince = w->pl->since = NOW - 60 * MINUTE;
    b->status->placement = w->pl;
    running = object_make(o->kind, b);
    pool_hold(w->p, running);
    (void)object_unref(running);
}

static void test_random_worlds(void **state)
{
    static const char *const rare = "what the worlds are made for";
    struct dice d = {7};
    long count[H_NR] = {0}, waiting = 0, helped = 0, texts = 0;

    (void)state;
    while (waiting < WAITING) {
        struct world w;
        int i = 0;

        world_init(&w);
        random_world(&w, &d);
        random_rules(&w, &d);
        for (int busy = 0; busy < 5; busy++) {
            const struct object *o = random_workload(&w, &d, (char[]){'r', (char)('a' + busy), 0});

            world_decide_at(&w, o, NOW);
            if (w.pl)
                runs(&w, o);
        }
        for (; w.n_made < WORLD_MAX && i < 60 && waiting < WAITING; i++) {
            const struct object *o = random_workload(&w, &d, "x");
            struct told t = hints_at(&w, o, NOW + MINUTE);

            waiting += w.pl == NULL;
            helped += t.n > 0;
            texts += t.n;
            all_true(&w, o, NOW + MINUTE, t, count);
        }
        world_fini(&w);
    }
    print_message("%ld wait, %ld of them told %ld hints\n", waiting, helped, texts);
    for (int k = 0; k < H_NR; k++) {
        print_message(" %d:%ld", k, count[k]);
        if (!count[k] && k != H_ISOLATION)
            fail_msg("no hint of kind %d in %s", k, rare);
    }
    assert_true(helped > waiting / 2);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_as_on_the_page),   T(test_devices_and_domains), T(test_other_targets),
        T(test_limits_of_others), T(test_money_and_time),      T(test_priority),
        T(test_random_worlds),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
