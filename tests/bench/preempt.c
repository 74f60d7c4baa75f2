/* preempt: what it takes to plan victims, and what is lost by them. First the time of one plan on a
 * fleet with --running workloads; then a recorded trace (preempt_trace.h) on which production work
 * arrives and preempts, once by least harm and once by priority, then newest. */
#include "api/base/limits.h"
#include "policy/policy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NOW 1764547200000

struct options {
    const char *jobs;
    long running, plans;
    uint64_t seed;
};
struct figures {
    double p50_ms, p99_ms, max_ms, victims, harm;
    long found;
};

static int64_t now_ns(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static uint32_t next(uint64_t *s, uint32_t below)
{
    *s = *s * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*s >> 33) % below;
}

static void die(const char *what)
{
    (void)fprintf(stderr, "preempt: %s\n", what);
    exit(2);
}

/* ---- documents
 * ---------------------------------------------------------------------------------------------- */
static void put(struct pool *p, enum kind_id kind, const void *body)
{
    struct object *o = object_make(kind_by_id(kind), body);

    pool_put(p, o);
    (void)object_unref(o);
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

static void put_prices(struct pool *p)
{
    struct gpu_price line = {.class_ = "h100", .amortised = 1.92};
    struct price_sheet_spec spec = {
        .currency = "USD", .gpuHour = &line, .n_gpuHour = 1, .egressPerGiB = 0.02};
    struct meta meta = {.name = "own"};
    struct price_sheet sheet = {.metadata = &meta, .spec = &spec};

    put(p, KIND_PRICE_SHEET, &sheet);
}

static void put_class(struct pool *p, const char *name, int64_t value, bool never,
                      int64_t minimum_ms)
{
    struct meta meta = {.name = name};
    struct priority_class_spec spec = {
        .value = value, .neverVictim = never, .mayPreempt = true, .minimumRuntime = minimum_ms};
    struct priority_class c = {.metadata = &meta, .spec = &spec};

    put(p, KIND_PRIORITY_CLASS, &c);
}

static void put_node(struct pool *p, const char *name, const char *target, long i)
{
    char rack[16], block[16], leaf[16];
    struct gpu dev[8] = {0};
    struct topology where = {
        .region = "eu-central", .zone = "z1", .block = block, .rack = rack, .leaf = leaf};
    struct node_spec spec = {.target = target,
                             .gpus = dev,
                             .n_gpus = 8,
                             .cpu = 128000,
                             .memory = 2048ll << 30,
                             .topology = &where};
    struct meta meta = {.name = name};
    struct node n = {.metadata = &meta, .spec = &spec};

    (void)snprintf(leaf, sizeof(leaf), "l%05ld", i / 4);
    (void)snprintf(rack, sizeof(rack), "r%05ld", i / 8);
    (void)snprintf(block, sizeof(block), "b%05ld", i / 64);
    for (long k = 0; k < 8; k++)
        dev[k] = (struct gpu){.index = k, .class_ = "h100", .memory = 80ll << 30};
    put(p, KIND_NODE, &n);
}

struct job {
    const char *name, *class_;
    long workers, gpus;
    enum domain_level within;
    int64_t saved_at, placed_at; /* UTC ms; saved 0 = no checkpoint */
};

static struct object *make_job(const struct job *j, const struct placement *at)
{
    const char *command[] = {"train"};
    struct gpu_request gpu = {.count = j->gpus};
    struct resources res = {.gpu = &gpu, .cpu = 4000 * j->gpus, .memory = j->gpus << 34};
    struct gang gang = {.workers = j->workers};
    struct topology_request within = {.within = j->within};
    struct run_spec run = {.command = command, .n_command = 1};
    struct checkpoint_spec how = {.store = "/shared"};
    struct workload_spec spec = {.run = &run,
                                 .resources = &res,
                                 .gang = &gang,
                                 .topology = &within,
                                 .checkpoint = &how,
                                 .priorityClassName = j->class_};
    struct meta meta = {.name = j->name, .namespace_ = "dev", .uid = j->name};
    struct placement placed = at ? *at : (struct placement){.target = ""};
    struct run_checkpoint saved = {.verifiedAt = j->saved_at, .epoch = 1, .bytes = 20ll << 30};
    struct workload_status status = {.phase = PHASE_RUNNING,
                                     .epoch = 1,
                                     .placement = &placed,
                                     .checkpoint = j->saved_at ? &saved : NULL,
                                     .phaseSince = j->placed_at};
    struct workload w = {.metadata = &meta, .spec = &spec, .status = at ? &status : NULL};

    placed.since = j->placed_at;
    return object_make(kind_by_id(KIND_WORKLOAD), &w);
}

/* ---- the time of one plan
 * ----------------------------------------------------------------------------------- */
/* Sizes in the shares of the Philly trace: 1 to 8 GPUs on one node, gangs of 2 and 4 nodes. */
static void size_of(struct job *j, uint64_t *s)
{
    static const struct {
        uint32_t share; /* of 10,000 */
        long workers, gpus;
    } sizes[] = {{9455, 1, 1}, {181, 1, 2}, {206, 1, 4}, {140, 1, 8}, {13, 2, 8}, {5, 4, 8}};
    uint32_t r = next(s, 10000);

    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        j->workers = sizes[i].workers;
        j->gpus = sizes[i].gpus;
        if (r < sizes[i].share)
            return;
        r -= sizes[i].share;
    }
}

static struct pool *fleet(const struct options *o)
{
    struct pool *p = pool_create();
    struct arena *a = arena_create(0);
    uint64_t s = o->seed;
    char name[32], target[32];
    long nodes = 0, running = 0;

    put_prices(p);
    put_class(p, "research", 10, false, 600000);
    put_class(p, "team", 50, false, 0);
    put_class(p, "production", 100, true, 0);
    for (int i = 0; i < 4; i++) {
        (void)snprintf(target, sizeof(target), "fleet-%d", i);
        put_target(p, target);
    }
    /* Nodes as many as the work needs: all but the last are full. */
    for (; nodes < o->running * 123 / 100 / 8; nodes++) {
        (void)snprintf(name, sizeof(name), "n%06ld", nodes);
        (void)snprintf(target, sizeof(target), "fleet-%ld", nodes % 4);
        put_node(p, name, target, nodes / 4);
    }
    while (running < o->running) {
        struct job j = {.name = name};
        struct place_request rq = {.now_ms = NOW, .seed = next(&s, 1000) + 1};
        struct decision_spec *d;
        struct placement *at;
        struct object *w;
        uint32_t c = next(&s, 10);

        (void)snprintf(name, sizeof(name), "w%06ld", running);
        size_of(&j, &s);
        j.class_ = c < 5 ? "research" : c < 8 ? "team" : "production";
        j.placed_at = NOW - 60000 - (int64_t)next(&s, 1000000) * 200;
        j.saved_at = next(&s, 4) ? NOW - (int64_t)next(&s, (uint32_t)(NOW - j.placed_at)) : 0;
        w = make_job(&j, NULL);
        rq.workload = w;
        arena_reset(a);
        if (policy_place(p, &rq, a, &d, &at, NULL) != 0)
            die("policy_place failed");
        (void)object_unref(w);
        if (!at)
            break;
        w = make_job(&j, at);
        pool_hold(p, w);
        (void)object_unref(w);
        running++;
    }
    if (running < o->running)
        (void)fprintf(stderr, "preempt: the fleet holds %ld workloads\n", running);
    /* What is free is taken by work that cannot be a victim. */
    for (long i = 0;; i++) {
        struct job j = {.name = name, .workers = 1, .gpus = 1, .class_ = "production"};
        struct place_request rq = {.now_ms = NOW};
        struct decision_spec *d;
        struct placement *at;
        struct object *w;

        (void)snprintf(name, sizeof(name), "f%06ld", i);
        w = make_job(&j, NULL);
        rq.workload = w;
        arena_reset(a);
        if (policy_place(p, &rq, a, &d, &at, NULL) != 0)
            die("policy_place failed");
        if (at)
            pool_hold_placement(p, w, at);
        (void)object_unref(w);
        if (!at)
            break;
    }
    a = arena_destroy(a);
    return p;
}

static int cmp_i64(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

static struct figures plans(const struct pool *p, const struct options *o, struct job j)
{
    struct figures f = {0};
    struct arena *a = arena_create((size_t)1 << 30);
    int64_t *ns = mem_zalloc(sizeof(*ns) * (size_t)o->plans);

    for (long i = 0; i < o->plans; i++) {
        struct object *w = make_job(&j, NULL);
        /* Each at another time: what is lost differs, and with it the plan. */
        struct place_request rq = {.workload = w, .now_ms = NOW + i * 1000};
        struct preempt_plan *plan;
        int64_t t0 = now_ns();

        if (policy_preempt(p, &rq, a, &plan, NULL) != 0)
            die("policy_preempt failed");
        ns[i] = now_ns() - t0;
        if (plan) {
            f.found++;
            f.victims += (double)plan->n;
            f.harm += plan->harm;
        }
        arena_reset(a);
        (void)object_unref(w);
    }
    qsort(ns, (size_t)o->plans, sizeof(*ns), cmp_i64);
    f.p50_ms = (double)ns[o->plans / 2] / 1e6;
    f.p99_ms = (double)ns[o->plans * 99 / 100] / 1e6;
    f.max_ms = (double)ns[o->plans - 1] / 1e6;
    f.victims /= f.found ? (double)f.found : 1;
    f.harm /= f.found ? (double)f.found : 1;
    mem_free(ns);
    a = arena_destroy(a);
    return f;
}

/* ---- telling
 * -------------------------------------------------------------------------------------------------- */
static void row(const char *what, const char *name, double value, const char *unit, double goal,
                bool last)
{
    (void)printf("{\"name\": \"%s%s\", \"value\": %.3f, \"unit\": \"%s\", \"peer\": ", what, name,
                 value, unit);
    if (goal > 0)
        (void)printf("\"goal of issue 4\", \"peer_value\": %.3f, \"ratio\": %.3f}", goal,
                     value / goal);
    else
        (void)printf("null, \"peer_value\": null, \"ratio\": null}");
    (void)printf("%s", last ? "" : ",\n  ");
}

static void tell_plans(const char *what, const struct figures *f, bool last)
{
    row(what, " plan p50", f->p50_ms, "ms", 50, false);
    row(what, " plan p99", f->p99_ms, "ms", 50, false);
    row(what, " plan max", f->max_ms, "ms", 50, false);
    row(what, " plans found", (double)f->found, "plans", 0, false);
    row(what, " victims", f->victims, "a plan", 0, last);
}

static const char *argument(int argc, char **argv, const char *name, const char *otherwise)
{
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], name) == 0)
            return argv[i + 1];
    }
    return otherwise;
}

static long number(int argc, char **argv, const char *name, long otherwise)
{
    const char *s = argument(argc, argv, name, NULL);
    long v = s ? strtol(s, NULL, 10) : otherwise;

    if (v < 1)
        die("numbers must be 1 or more");
    return v;
}

int main(int argc, char **argv)
{
    struct options o = {
        .jobs = argument(argc, argv, "--jobs", "tests/bench/data/philly/jobs.csv"),
        .running = number(argc, argv, "--running", 100000),
        .plans = number(argc, argv, "--plans", 200),
        .seed = (uint64_t)number(argc, argv, "--seed", 1),
    };
    struct pool *p = fleet(&o);
    struct figures f;

    (void)printf("{\"name\": \"preempt\", \"parameters\": {\"running\": %ld, \"plans\": %ld, "
                 "\"nodes\": %llu, \"seed\": %llu},\n \"results\": [\n  ",
                 o.running, o.plans, (unsigned long long)pool_nodes(p), (unsigned long long)o.seed);
    f = plans(p, &o, (struct job){.name = "one", .class_ = "production", .workers = 1, .gpus = 1});
    tell_plans("1 GPU", &f, false);
    f = plans(p, &o, (struct job){.name = "node", .class_ = "production", .workers = 1, .gpus = 8});
    tell_plans("8 GPUs of a node", &f, false);
    f = plans(p, &o,
              (struct job){.name = "rack",
                           .class_ = "production",
                           .workers = 8,
                           .gpus = 4,
                           .within = LEVEL_RACK});
    tell_plans("gang of 8 x 4 in a rack", &f, false);
    f = plans(p, &o,
              (struct job){.name = "gang", .class_ = "production", .workers = 64, .gpus = 8});
    tell_plans("gang of 64 x 8", &f, true);
    (void)printf("]}\n");
    p = pool_destroy(p);
    return 0;
}
