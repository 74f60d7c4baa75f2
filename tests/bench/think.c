/* think: what one piece of the leader's thinking costs when its fleet is large: --targets Targets
 * of
 * --nodes nodes with 8 GPUs each, all taken, --queues queues. Thread CPU, so that the machine's
 * other work does not count: one refusal, the hints for one workload, one plan of preemption for a
 * single GPU and for a gang, where that many victims go, and what a copy of the pool costs that may
 * think on another thread. */
#include "policy/policy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NOW 1764547200000
#define GPUS 8
#define ROUNDS 20

struct world {
    struct pool *p;
    long targets, nodes, queues; /* nodes: of each target */
};
static size_t found; /* victims of the last plan, hints of the last search */

static int64_t cpu_ns(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void put(struct pool *p, enum kind_id kind, const void *body)
{
    struct object *o = object_make(kind_by_id(kind), body);

    pool_put(p, o);
    (void)object_unref(o);
}

static struct object *work(const char *name, long workers, const char *class_, long queue,
                           struct placement *at)
{
    const char *command[] = {"train"};
    char q[32];
    struct gpu_request gpu = {.count = workers > 1 ? GPUS : 1};
    struct resources res = {.gpu = &gpu, .cpu = 1000, .memory = 1 << 30};
    struct gang gang = {.workers = workers};
    struct run_spec run = {.command = command, .n_command = 1};
    struct workload_spec spec = {
        .run = &run, .resources = &res, .gang = &gang, .queue = q, .priorityClassName = class_};
    struct workload_status status = {.phase = at ? PHASE_RUNNING : PHASE_QUEUED,
                                     .phaseSince = NOW - 3600000,
                                     .queuedAt = NOW - 7200000,
                                     .epoch = 1,
                                     .placement = at};
    struct meta meta = {.name = name, .namespace_ = "dev", .uid = name};
    struct workload w = {.metadata = &meta, .spec = &spec, .status = &status};

    (void)snprintf(q, sizeof q, "q%05ld", queue);
    return object_make(kind_by_id(KIND_WORKLOAD), &w);
}

static void put_node(struct pool *p, const char *target, const char *name)
{
    struct meta meta = {.name = name};
    struct gpu dev[GPUS] = {0};
    struct node_spec spec = {
        .target = target, .gpus = dev, .n_gpus = GPUS, .cpu = 128000, .memory = 1ll << 40};
    struct node n = {.metadata = &meta, .spec = &spec};

    for (long k = 0; k < GPUS; k++) {
        dev[k].index = k;
        dev[k].class_ = "h100";
        dev[k].memory = 80ll << 30;
    }
    put(p, KIND_NODE, &n);
}

static void put_target(struct pool *p, const char *name)
{
    struct meta meta = {.name = name};
    struct target_spec spec = {
        .type = TARGET_AGENT, .tier = TIER_HUB, .region = "eu-central", .priceSheet = "own"};
    struct target t = {.metadata = &meta, .spec = &spec};

    put(p, KIND_TARGET, &t);
    pool_target_reachable(p, name, REACH_YES);
}

static void put_documents(struct pool *p, long queues)
{
    struct gpu_price line = {.class_ = "h100", .amortised = 2.0};
    struct price_sheet_spec sheet = {.currency = "USD", .gpuHour = &line, .n_gpuHour = 1};
    struct meta meta = {.name = "own"};
    struct price_sheet prices = {.metadata = &meta, .spec = &sheet};
    struct priority_class_spec high = {.value = 100, .mayPreempt = true}, low = {.value = 10};
    struct meta high_meta = {.name = "high"}, low_meta = {.name = "low"};
    struct priority_class a = {.metadata = &high_meta, .spec = &high},
                          b = {.metadata = &low_meta, .spec = &low};

    put(p, KIND_PRICE_SHEET, &prices);
    put(p, KIND_PRIORITY_CLASS, &a);
    put(p, KIND_PRIORITY_CLASS, &b);
    for (long i = 0; i < queues; i++) {
        char name[32];
        struct queue_gpus g = {.class_ = "h100", .guaranteed = 1};
        struct queue_spec spec = {.weight = 1, .lend = true, .gpus = &g, .n_gpus = 1};
        struct meta q_meta = {.name = name};
        struct queue q = {.metadata = &q_meta, .spec = &spec};

        (void)snprintf(name, sizeof name, "q%05ld", i);
        put(p, KIND_QUEUE, &q);
    }
}

static void hold(struct world *x, const char *target, const char *node, long i, long k)
{
    char uid[32];
    int64_t gpu = k;
    struct assignment as = {.node = node, .gpus = &gpu, .n_gpus = 1, .gpuMilli = 1000, .mig = ""};
    struct placement at = {.target = target,
                           .domain = "",
                           .class_ = "h100",
                           .decision = "",
                           .since = NOW - 3600000 - 1000 * (i * 7919 % 1000),
                           .gpus = 1000,
                           .assignments = &as,
                           .n_assignments = 1};

    (void)snprintf(uid, sizeof uid, "held-%05ld-%ld", i, k);
    struct object *w = work(uid, 1, "low", (i * GPUS + k) % x->queues, &at);
    pool_hold(x->p, w);
    (void)object_unref(w);
}

static void fill(struct world *x)
{
    x->p = pool_create();
    put_documents(x->p, x->queues);
    for (long i = 0; i < x->targets * x->nodes; i++) {
        char target[32], node[64];

        (void)snprintf(target, sizeof target, "t%05ld", i / x->nodes);
        (void)snprintf(node, sizeof node, "%s.n%05ld", target, i % x->nodes);
        if (i % x->nodes == 0)
            put_target(x->p, target);
        put_node(x->p, target, node);
        for (long k = 0; k < GPUS; k++)
            hold(x, target, node, i, k);
    }
    (void)pool_free_gpu_milli(x->p, NULL); /* settles */
}

/* ---- what is measured ---- */
static void refusal(struct pool *p, const struct object *w, struct arena *a)
{
    struct place_request rq = {.workload = w, .now_ms = NOW, .seed = 1};
    struct decision_spec *d;
    struct placement *at;

    if (policy_place(p, &rq, a, &d, &at, NULL) || at)
        exit(2);
}

static void hints(struct pool *p, const struct object *w, struct arena *a)
{
    struct place_request rq = {.workload = w, .now_ms = NOW, .seed = 1, .queue_position = 1};
    struct decision_spec d = {0};
    const char **v;
    uint32_t n;

    if (policy_start_estimate(p, &rq, a, &d, NULL) || policy_hints(p, &rq, &d, 6, a, &v, &n, NULL))
        exit(2);
    found = n;
}

static void plan(struct pool *p, const struct object *w, struct arena *a)
{
    struct place_request rq = {.workload = w, .now_ms = NOW, .seed = 1};
    struct preempt_plan *x;

    if (policy_preempt(p, &rq, a, &x, NULL))
        exit(2);
    found = x ? x->n : 0;
}

static void plan_and_moves(struct pool *p, const struct object *w, struct arena *a)
{
    struct place_request rq = {.workload = w, .now_ms = NOW, .seed = 1}, to = rq;
    struct preempt_plan *x;
    struct move_choice c;

    if (policy_preempt(p, &rq, a, &x, NULL))
        exit(2);
    found = x ? x->n : 0;
    for (size_t i = 0; x && i < x->n; i++) {
        to.workload = x->victims[i].workload;
        if (policy_move(p, &to, MOVE_PREEMPTION, a, &c, NULL))
            exit(2);
    }
}

static void copy(struct pool *p, const struct object *w, struct arena *a)
{
    (void)w;
    (void)a;
    (void)pool_destroy(pool_fork(p));
}

static void copy_settled(struct pool *p, const struct object *w, struct arena *a)
{
    struct pool *f = pool_fork(p);

    (void)w;
    (void)a;
    (void)pool_free_gpu_milli(f, NULL);
    (void)pool_destroy(f);
}

static void row(const char *name, struct world *x, const struct object *w,
                void (*what)(struct pool *, const struct object *, struct arena *), bool last)
{
    struct arena *a = arena_create((size_t)1 << 30);
    int64_t most = 0, sum = 0;

    found = 0;
    for (int i = 0; i < ROUNDS; i++) {
        int64_t from = cpu_ns();

        what(x->p, w, a);
        int64_t took = cpu_ns() - from;
        most = took > most ? took : most;
        sum += took;
        arena_reset(a);
    }
    (void)printf("  {\"name\": \"%s\", \"value\": %.3f, \"most\": %.3f, \"unit\": \"ms\", "
                 "\"found\": %zu}%s\n",
                 name, (double)sum / ROUNDS / 1e6, (double)most / 1e6, found, last ? "" : ",");
    (void)fflush(stdout);
    a = arena_destroy(a);
}

static long number(int argc, char **argv, const char *name, long otherwise)
{
    for (int i = 1; i + 1 < argc; i += 2)
        if (!strcmp(argv[i], name))
            return strtol(argv[i + 1], NULL, 10);
    return otherwise;
}

int main(int argc, char **argv)
{
    struct world x = {.targets = number(argc, argv, "--targets", 1000),
                      .nodes = number(argc, argv, "--nodes", 1),
                      .queues = number(argc, argv, "--queues", 1000)};

    fill(&x);
    struct object *low = work("waits", 1, "low", 1, NULL),
                  *high = work("urgent", 1, "high", 1, NULL),
                  *gang = work("gang", 64, "high", 1, NULL),
                  *many = work("many", 64, "low", 1, NULL);
    (void)printf(
        "{\"bench\": \"think\", \"targets\": %ld, \"nodes\": %ld, \"queues\": %ld, \"rows\": [\n",
        x.targets, x.targets * x.nodes, x.queues);
    row("one refusal", &x, low, refusal, false);
    row("one refusal of a gang", &x, many, refusal, false);
    row("hints for one GPU", &x, low, hints, false);
    row("hints for a gang of 64", &x, many, hints, false);
    row("hints where preemption is one", &x, high, hints, false);
    row("a plan for one GPU", &x, high, plan, false);
    row("a plan for 64 nodes", &x, gang, plan, false);
    row("a plan for 64 nodes, and where its victims go", &x, gang, plan_and_moves, false);
    row("a copy of the pool", &x, low, copy, false);
    row("a copy of the pool, ready to be asked", &x, low, copy_settled, true);
    (void)printf("]}\n");
    (void)object_unref(low);
    (void)object_unref(high);
    (void)object_unref(gang);
    (void)object_unref(many);
    x.p = pool_destroy(x.p);
    return 0;
}
