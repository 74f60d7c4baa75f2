/* preempt: what it takes to plan victims, and what is lost by them. First the time of one plan on a
 * fleet with --running workloads; then a recorded trace (preempt/trace.h) on which production work
 * arrives and preempts, by the product's plan and by what others do (preempt/ways.h). */
#include "tests/bench/preempt/fleet.h"
#include "tests/bench/preempt/trace.h"

#define NOW 1764547200000

struct options {
    const char *jobs;
    long running, plans, production, load, draws;
    uint64_t seed;
};
struct figures {
    double p50_ms, p99_ms, max_ms, cpu_p99_ms, victims;
    long found;
};

/* ---- the time of one plan ---- */
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

static bool run_job(struct pool *p, const struct job *j, uint64_t seed, struct arena *a)
{
    struct object *w = make_job(j, NULL);
    struct place_request rq = {.workload = w, .now_ms = NOW, .seed = seed};
    struct decision_spec *d;
    struct placement *at;

    arena_reset(a);
    if (policy_place(p, &rq, a, &d, &at, NULL) != 0)
        die("policy_place failed");
    (void)object_unref(w);
    if (!at)
        return false;
    w = make_job(j, at);
    pool_hold(p, w);
    (void)object_unref(w);
    return true;
}

static struct pool *fleet_empty(const struct options *o)
{
    struct pool *p = pool_create();
    char name[32], target[32];

    put_prices(p);
    put_class(p, "research", 10, false, 600000);
    put_class(p, "team", 50, false, 0);
    put_class(p, "production", 100, true, 0);
    for (int i = 0; i < 4; i++) {
        (void)snprintf(target, sizeof(target), "fleet-%d", i);
        put_target(p, target);
    }
    /* As many nodes as the work needs: all but the last are full. */
    for (long i = 0; i < o->running * 123 / 100 / 8; i++) {
        (void)snprintf(name, sizeof(name), "n%06ld", i);
        (void)snprintf(target, sizeof(target), "fleet-%ld", i % 4);
        put_node(p, name, target, i / 4);
    }
    return p;
}

/* alike: all of one class began at once, none has saved anything. */
static struct pool *fleet(const struct options *o, bool alike)
{
    struct pool *p = fleet_empty(o);
    struct arena *a = arena_create(0);
    uint64_t s = o->seed;
    char name[32];
    struct job j = {.name = name};
    long running = 0;

    for (; running < o->running; running++) {
        uint32_t c = next(&s, 10);

        (void)snprintf(name, sizeof(name), "w%06ld", running);
        size_of(&j, &s);
        j.class_ = alike || c < 5 ? "research" : c < 8 ? "team" : "production";
        j.placed_at = NOW - (alike ? 3600000 : 60000 + (int64_t)next(&s, 1000000) * 200);
        j.saved_at = 0;
        if (!alike && next(&s, 4))
            j.saved_at = NOW - (int64_t)next(&s, (uint32_t)(NOW - j.placed_at));
        if (!run_job(p, &j, next(&s, 1000) + 1, a))
            break;
    }
    if (running < o->running)
        (void)fprintf(stderr, "preempt: the fleet holds %ld workloads\n", running);
    /* What is free is taken by work that cannot be a victim. */
    j = (struct job){.name = name, .workers = 1, .gpus = 1, .class_ = "production"};
    do
        (void)snprintf(name, sizeof(name), "f%06ld", running++);
    while (run_job(p, &j, 1, a));
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
    int64_t *ns = mem_zalloc(sizeof(*ns) * 2 * (size_t)o->plans), *cpu = ns + o->plans;

    for (long i = 0; i < o->plans; i++) {
        struct object *w = make_job(&j, NULL);
        /* Each at another time: what is lost differs, and with it the plan. */
        struct place_request rq = {.workload = w, .now_ms = NOW + i * 1000};
        struct preempt_plan *plan;
        int64_t t0 = now_ns(CLOCK_MONOTONIC), c0 = now_ns(CLOCK_THREAD_CPUTIME_ID);

        if (policy_preempt(p, &rq, a, &plan, NULL) != 0)
            die("policy_preempt failed");
        cpu[i] = now_ns(CLOCK_THREAD_CPUTIME_ID) - c0;
        ns[i] = now_ns(CLOCK_MONOTONIC) - t0;
        if (plan) {
            f.found++;
            f.victims += (double)plan->n;
        }
        arena_reset(a);
        (void)object_unref(w);
    }
    qsort(ns, (size_t)o->plans, sizeof(*ns), cmp_i64);
    qsort(cpu, (size_t)o->plans, sizeof(*cpu), cmp_i64);
    long half = o->plans / 2, most = o->plans * 99 / 100;
    f.cpu_p99_ms = (double)cpu[most] / 1e6;
    f.p50_ms = (double)ns[half] / 1e6;
    f.p99_ms = (double)ns[most] / 1e6;
    f.max_ms = (double)ns[o->plans - 1] / 1e6;
    f.victims /= f.found ? (double)f.found : 1;
    mem_free(ns);
    a = arena_destroy(a);
    return f;
}

/* ---- telling ---- */
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

static void tell_plans(const char *what, const struct figures *f)
{
    row(what, " plan p50", f->p50_ms, "ms", 50, false);
    row(what, " plan p99", f->p99_ms, "ms", 50, false);
    row(what, " plan max", f->max_ms, "ms", 50, false);
    row(what, " plan p99, its own processor time", f->cpu_p99_ms, "ms", 50, false);
    row(what, " plans found", (double)f->found, "plans", 0, false);
    row(what, " victims", f->victims, "a plan", 0, false);
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

    if (s && v < 1)
        die("numbers must be 1 or more");
    return v;
}

/* One way to choose over all draws. */
static struct trace_result replay_way(const struct options *o, struct trace_options to,
                                      enum way way)
{
    struct trace_result sum = {0}, r;

    to.way = way;
    for (long i = 0; i < o->draws; i++) {
        to.draw = o->seed - 1 + (uint64_t)i;
        r = trace_replay(&to);
        trace_add(&sum, &r, o->draws);
    }
    return sum;
}

static double share(double ours, double other)
{
    return other > 0 ? ours / other : 0;
}

/* ratio: the product's share of the other's loss. */
static void tell_other(bool first, const char *name, const struct trace_result *ours,
                       const struct trace_result *other)
{
    (void)printf(
        "%s\n     {\"way\": \"%s\", \"lost\": %.0f, \"ratio\": %.3f, \"with_restarts\": "
        "%.0f, \"ratio_with_restarts\": %.3f, \"victims\": %ld, "
        "\"production_wait_s_mean\": %.1f, \"others_hours_to_end\": %.2f}",
        first ? "" : ",", name, other->lost_gpu_s, share(ours->lost_gpu_s, other->lost_gpu_s),
        other->lost_gpu_s + other->restart_gpu_s,
        share(ours->lost_gpu_s + ours->restart_gpu_s, other->lost_gpu_s + other->restart_gpu_s),
        other->victims, other->wait_mean_s, other->others_hours);
}

static void tell_ways(const char *what, const struct trace_result *r)
{
    static const struct {
        enum way way;
        const char *name;
    } others[] = {{WAY_KUBE, "kube-scheduler's order"},
                  {WAY_SLURM, "Slurm partition_prio, youngest first"},
                  {WAY_NOW, "yardstick: least loss of the moment"},
                  {WAY_ENDS, "yardstick: knows who is about to end"}};
    const struct trace_result *ours = &r[WAY_PLAN], *other = &r[WAY_NEWEST];

    (void)printf("{\"name\": \"%s: GPU-seconds lost\", \"value\": %.0f, \"unit\": \"GPU-s\", "
                 "\"peer\": \"lowest priority, then newest\", \"peer_value\": %.0f, "
                 "\"ratio\": %.3f,\n   \"with_restarts\": [%.0f, %.0f], \"victims\": [%ld, %ld], "
                 "\"production_wait_s\": {\"mean\": [%.1f, %.1f], \"p99\": [%.0f, %.0f], \"max\": "
                 "[%.0f, %.0f]}, \"plans\": [%ld, %ld], \"in_vain\": [%ld, %ld], "
                 "\"others_hours_to_end\": [%.2f, %.2f], "
                 "\"jobs\": %ld, \"production\": %ld, \"nodes\": %ld,\n   \"others\": [",
                 what, ours->lost_gpu_s, other->lost_gpu_s,
                 share(ours->lost_gpu_s, other->lost_gpu_s), ours->lost_gpu_s + ours->restart_gpu_s,
                 other->lost_gpu_s + other->restart_gpu_s, ours->victims, other->victims,
                 ours->wait_mean_s, other->wait_mean_s, ours->wait_p99_s, other->wait_p99_s,
                 ours->wait_max_s, other->wait_max_s, ours->plans, other->plans, ours->unplanned,
                 other->unplanned, ours->others_hours, other->others_hours, ours->jobs,
                 ours->production, ours->nodes);
    for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
        tell_other(i == 0, others[i].name, ours, &r[others[i].way]);
    (void)printf("]}");
}

/* All ways on the same arrivals. */
static void replay(const struct options *o, long load, long production, int64_t interval)
{
    struct trace_options to = {.path = o->jobs,
                               .production_percent = production,
                               .load = (double)load / 100,
                               .interval = interval};
    struct trace_result r[WAY_NR];
    char what[96];

    for (int way = 0; way < WAY_NR; way++)
        r[way] = replay_way(o, to, (enum way)way);
    if (interval)
        (void)snprintf(what, sizeof(what),
                       "load %ld%%, %ld%% production, checkpoint every %lld min", load, production,
                       (long long)interval / 60);
    else
        (void)snprintf(what, sizeof(what),
                       "load %ld%%, %ld%% production, checkpoints mixed, a fifth without", load,
                       production);
    tell_ways(what, r);
}

static void replays(const struct options *o)
{
    static const int64_t intervals[] = {600, 1800, 3600, 7200, 0};
    static const long cases[][2] = {{70, 10}, {90, 10}, {110, 30}}; /* load, production */
    bool told = o->load || o->production;
    bool first = true;

    for (size_t c = 0; c < (told ? 1 : sizeof(cases) / sizeof(*cases)); c++) {
        long load = told ? o->load ? o->load : 90 : cases[c][0];
        long production = told ? o->production ? o->production : 10 : cases[c][1];

        for (size_t i = 0; i < sizeof(intervals) / sizeof(*intervals); i++) {
            (void)printf("%s", first ? "" : ",\n  ");
            first = false;
            replay(o, load, production, intervals[i]);
        }
    }
}

static void tell_fleet(const char *what, const struct pool *p, const struct options *o)
{
    static const struct job jobs[] = {
        {.name = "1 GPU", .class_ = "production", .workers = 1, .gpus = 1},
        {.name = "8 GPUs of a node", .class_ = "production", .workers = 1, .gpus = 8},
        {.name = "gang of 8 x 4 in a rack",
         .class_ = "production",
         .workers = 8,
         .gpus = 4,
         .within = LEVEL_RACK},
        {.name = "gang of 64 x 8", .class_ = "production", .workers = 64, .gpus = 8}};

    for (size_t i = 0; i < sizeof(jobs) / sizeof(*jobs); i++) {
        struct figures f = plans(p, o, jobs[i]);
        char name[64];

        (void)snprintf(name, sizeof(name), "%s%s", what, jobs[i].name);
        tell_plans(name, &f);
    }
}

int main(int argc, char **argv)
{
    struct options o = {
        .jobs = argument(argc, argv, "--jobs", "tests/bench/data/philly/jobs-2017-10-16.csv"),
        .running = number(argc, argv, "--running", 100000),
        .plans = number(argc, argv, "--plans", 200),
        .production = number(argc, argv, "--production", 0), /* not told: three cases */
        .load = number(argc, argv, "--load", 0),
        .draws = number(argc, argv, "--draws", 5),
        .seed = (uint64_t)number(argc, argv, "--seed", 1),
    };
    struct pool *p = fleet(&o, false);

    (void)printf("{\"name\": \"preempt\", \"parameters\": {\"running\": %ld, \"plans\": %ld, "
                 "\"nodes\": %llu, \"seed\": %llu, \"jobs\": \"%s\", "
                 "\"draws\": %ld, \"restart_s\": %d, \"stop_s\": %d},\n "
                 "\"results\": [\n  ",
                 o.running, o.plans, (unsigned long long)pool_nodes(p), (unsigned long long)o.seed,
                 o.jobs, o.draws, RESTART_S, STOP_S);
    tell_fleet("", p, &o);
    p = pool_destroy(p);
    p = fleet(&o, true);
    tell_fleet("all alike: ", p, &o);
    p = pool_destroy(p);
    replays(&o);
    (void)printf("]}\n");
    return 0;
}
