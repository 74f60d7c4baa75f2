/* placement: how fast decisions are made and recorded. Single GPUs on the openb nodes, with the
 * openb tasks in the order of their list: each turn is policy_place, its record as log bytes, and
 * pool_hold_placement; where the pool is fuller than --fill, the oldest is dropped first, inside
 * the measured time. Then gangs on a synthetic fleet. */
#include "api/base/limits.h"
#include "policy/policy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct options {
    const char *nodes, *pods;
    long decisions, targets, gang_nodes, gang_workers, gang_gpus, gang_decisions, fill;
    uint64_t seed;
};
struct figures {
    double per_second, p50_us, p99_us, max_us;
    long placed, pending, bytes_max;
};

static int64_t now_ns(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static uint64_t next(uint64_t *s)
{
    *s = *s * 6364136223846793005u + 1442695040888963407u;
    return *s >> 33;
}

static void die(const char *what)
{
    (void)fprintf(stderr, "placement: %s\n", what);
    exit(2);
}

/* ---- documents ---- */
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
    static const struct {
        const char *class_;
        double price;
    } list[] = {{"P100", 0.4}, {"T4", 0.35}, {"V100M16", 0.9}, {"V100M32", 1.1},
                {"A10", 0.8},  {"G2", 0.6},  {"G3", 1.4},      {"h100", 1.92}};
    struct gpu_price lines[8] = {0};
    struct price_sheet_spec spec = {.currency = "USD", .gpuHour = lines, .n_gpuHour = 8};
    struct meta meta = {.name = "own"};
    struct price_sheet sheet = {.metadata = &meta, .spec = &spec};

    for (int i = 0; i < 8; i++) {
        lines[i].class_ = list[i].class_;
        lines[i].amortised = list[i].price;
    }
    put(p, KIND_PRICE_SHEET, &sheet);
}

static void put_node(struct pool *p, const char *name, const char *target, const char *class_,
                     long gpus, int64_t cpu, int64_t memory, long i)
{
    char rack[16], block[16], leaf[16];
    struct gpu dev[16] = {0};
    struct topology where = {
        .region = "eu-central", .zone = "z1", .block = block, .rack = rack, .leaf = leaf};
    struct node_spec spec = {.target = target,
                             .gpus = dev,
                             .n_gpus = (uint32_t)gpus,
                             .cpu = cpu,
                             .memory = memory,
                             .topology = &where};
    struct meta meta = {.name = name};
    struct node n = {.metadata = &meta, .spec = &spec};

    (void)snprintf(leaf, sizeof(leaf), "l%05ld", i / 4);
    (void)snprintf(rack, sizeof(rack), "r%05ld", i / 8);
    (void)snprintf(block, sizeof(block), "b%05ld", i / 64);
    for (long k = 0; k < gpus && k < 16; k++) {
        dev[k].index = k;
        dev[k].class_ = class_;
        dev[k].memory = 16ll << 30;
    }
    put(p, KIND_NODE, &n);
}

static struct object *make_workload(const char *name, long workers, long count, double fraction,
                                    int64_t cpu, int64_t memory)
{
    const char *command[] = {"train"};
    struct gpu_request gpu = {.count = fraction > 0 ? 0 : count, .fraction = fraction};
    struct resources res = {.gpu = &gpu, .cpu = cpu, .memory = memory};
    struct gang gang = {.workers = workers};
    struct run_spec run = {.command = command, .n_command = 1};
    struct workload_spec spec = {.run = &run, .resources = &res, .gang = &gang};
    struct meta meta = {.name = name, .namespace_ = "dev", .uid = name};
    struct workload w = {.metadata = &meta, .spec = &spec};

    return object_make(kind_by_id(KIND_WORKLOAD), &w);
}

/* A line NAME,N,N,N[,REST]: the numbers and where the rest begins; false = another line. */
static bool row_read(char *line, char name[64], long v[3], char **ret_rest)
{
    char *at = strchr(line, ','), *end;

    if (!at || at == line || at - line > 63)
        return false;
    (void)snprintf(name, 64, "%.*s", (int)(at - line), line);
    for (int i = 0; i < 3; i++) {
        if (*at++ != ',')
            return false;
        v[i] = strtol(at, &end, 10);
        if (end == at)
            return false;
        at = end;
    }
    *ret_rest = at + (*at == ',');
    (*ret_rest)[strcspn(*ret_rest, "\r\n")] = '\0';
    return true;
}

static void load_nodes(struct pool *p, const struct options *o)
{
    FILE *f = fopen(o->nodes, "re");
    char line[256], name[64], target[32], *model;
    long v[3], i = 0; /* CPU, MiB, GPUs */

    if (!f)
        die("cannot open the list of nodes");
    for (long t = 0; t < o->targets; t++) {
        (void)snprintf(target, sizeof(target), "openb-%02ld", t);
        put_target(p, target);
    }
    while (fgets(line, sizeof(line), f)) {
        if (!row_read(line, name, v, &model) || !*model)
            continue;
        (void)snprintf(target, sizeof(target), "openb-%02ld", i % o->targets);
        put_node(p, name, target, model, v[2], v[0], (int64_t)v[1] << 20, i++);
    }
    (void)fclose(f);
}

static struct object **load_pods(const struct options *o, size_t *ret_n)
{
    FILE *f = fopen(o->pods, "re");
    struct object **v = mem_zalloc(sizeof(*v) * 100000);
    char line[512], name[64], *rest, *end;
    long row[3]; /* CPU, MiB, GPUs */
    size_t n = 0;

    if (!f)
        die("cannot open the list of tasks");
    while (n < 100000 && fgets(line, sizeof(line), f)) {
        if (!row_read(line, name, row, &rest) || row[2] != 1)
            continue;
        long milli = strtol(rest, &end, 10);
        if (end != rest)
            v[n++] = make_workload(name, 1, 1, milli < 1000 ? (double)milli / 1000 : 0, row[0],
                                   (int64_t)row[1] << 20);
    }
    (void)fclose(f);
    *ret_n = n;
    if (n == 0)
        die("the list of tasks holds none for one GPU");
    return v;
}

/* ---- measuring ---- */
static int cmp_i64(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

static void percentiles(int64_t *ns, long n, struct figures *f)
{
    qsort(ns, (size_t)n, sizeof(*ns), cmp_i64);
    long half = n / 2, most = n * 99 / 100;
    f->p50_us = (double)ns[half] / 1000;
    f->p99_us = (double)ns[most] / 1000;
    f->max_us = (double)ns[n - 1] / 1000;
}

static int64_t decide(struct pool *p, const struct object *w, uint64_t seed, struct arena *a,
                      struct buf *b, struct figures *f)
{
    struct place_request rq = {.workload = w, .now_ms = 1764547200000, .seed = seed};
    struct decision_spec *d;
    struct placement *pl;

    arena_reset(a);
    buf_reset(b);
    if (policy_place(p, &rq, a, &d, &pl, NULL) != 0)
        die("policy_place failed");
    tlv_add(&schema_decision_spec, d, b);
    f->bytes_max = (long)b->n > f->bytes_max ? (long)b->n : f->bytes_max;
    if (!pl) {
        f->pending++;
        return 0;
    }
    f->placed++;
    pool_hold_placement(p, w, pl);
    return pl->gpus;
}

static struct figures single(const struct options *o)
{
    struct pool *p = pool_create();
    struct figures f = {0};
    struct arena *a = arena_create(0);
    int64_t *ns = mem_zalloc(sizeof(*ns) * (size_t)o->decisions), limit, begun;
    size_t n_pods, oldest = 0, at = 0;
    struct object **pods = load_pods(o, &n_pods);
    struct buf b;

    buf_init(&b, 1 << 20);
    put_prices(p);
    load_nodes(p, o);
    limit = pool_free_gpu_milli(p, NULL) * (100 - o->fill) / 100;
    begun = now_ns();
    for (long i = 0; i < o->decisions; i++, at++) {
        int64_t t0 = now_ns();

        while (pool_free_gpu_milli(p, NULL) < limit && oldest < at)
            pool_drop(p, pods[oldest++ % n_pods]->meta->uid);
        (void)decide(p, pods[at % n_pods], o->seed, a, &b, &f);
        ns[i] = now_ns() - t0;
    }
    f.per_second = (double)o->decisions / ((double)(now_ns() - begun) / 1e9);
    percentiles(ns, o->decisions, &f);
    for (size_t i = 0; i < n_pods; i++)
        (void)object_unref(pods[i]);
    mem_free(pods);
    mem_free(ns);
    buf_fini(&b);
    a = arena_destroy(a);
    p = pool_destroy(p);
    return f;
}

/* A fleet in use: every node holds a random number of whole GPUs. */
static void fill_fleet(struct pool *p, const struct options *o, uint64_t *s)
{
    for (long i = 0; i < o->gang_nodes; i++) {
        char name[32], target[32], uid[32];
        struct assignment as = {0};
        struct placement pl = {.target = target,
                               .domain = "",
                               .class_ = "h100",
                               .decision = "",
                               .assignments = &as,
                               .n_assignments = 1};
        int64_t gpus[8] = {0, 1, 2, 3, 4, 5, 6, 7};
        struct object *w;

        (void)snprintf(target, sizeof(target), "fleet-%02ld", i % 4);
        (void)snprintf(name, sizeof(name), "n%06ld", i);
        (void)snprintf(uid, sizeof(uid), "held-%06ld", i);
        put_node(p, name, target, "h100", 8, 128000, 1ll << 40, i / 4);
        as = (struct assignment){.node = name,
                                 .gpus = gpus,
                                 .n_gpus = (uint32_t)(next(s) % 9),
                                 .gpuMilli = 1000,
                                 .mig = ""};
        pl.gpus = (int64_t)as.n_gpus * 1000;
        w = make_workload(uid, 1, as.n_gpus, 0, 1000, 1 << 30);
        pool_hold_placement(p, w, &pl);
        (void)object_unref(w);
    }
}

static struct figures gangs(const struct options *o)
{
    struct pool *p = pool_create();
    struct figures f = {0};
    struct arena *a = arena_create(0);
    int64_t *ns = mem_zalloc(sizeof(*ns) * (size_t)o->gang_decisions), begun;
    uint64_t s = o->seed;
    struct object *w = make_workload("gang", o->gang_workers, o->gang_gpus, 0, 4000, 8ll << 30);
    struct buf b;

    buf_init(&b, 1 << 20);
    put_prices(p);
    for (int i = 0; i < 4; i++) {
        char target[32];

        (void)snprintf(target, sizeof(target), "fleet-%02d", i);
        put_target(p, target);
    }
    fill_fleet(p, o, &s);
    (void)pool_free_gpu_milli(p, NULL); /* settles */
    begun = now_ns();
    for (long i = 0; i < o->gang_decisions; i++) {
        int64_t t0 = now_ns();

        (void)decide(p, w, o->seed, a, &b, &f);
        pool_drop(p, "gang");
        ns[i] = now_ns() - t0;
    }
    f.per_second = (double)o->gang_decisions / ((double)(now_ns() - begun) / 1e9);
    percentiles(ns, o->gang_decisions, &f);
    (void)object_unref(w);
    mem_free(ns);
    buf_fini(&b);
    a = arena_destroy(a);
    p = pool_destroy(p);
    return f;
}

static void row(const char *name, double value, const char *unit, double goal, bool last)
{
    (void)printf("{\"name\": \"%s\", \"value\": %.3f, \"unit\": \"%s\", \"peer\": ", name, value,
                 unit);
    if (goal > 0)
        (void)printf("\"goal of issue 3\", \"peer_value\": %.3f, \"ratio\": %.3f}", goal,
                     value / goal);
    else
        (void)printf("null, \"peer_value\": null, \"ratio\": null}");
    (void)printf("%s", last ? "" : ",\n  ");
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
        .nodes = argument(argc, argv, "--nodes", "tests/data/openb/openb_node_list_gpu_node.csv"),
        .pods = argument(argc, argv, "--pods", "tests/data/openb/openb_pod_list_default.csv"),
        .decisions = number(argc, argv, "--decisions", 300000),
        .targets = number(argc, argv, "--targets", 1),
        .fill = number(argc, argv, "--fill", 85),
        .gang_nodes = number(argc, argv, "--gang-nodes", 10000),
        .gang_workers = number(argc, argv, "--gang-workers", 64),
        .gang_gpus = number(argc, argv, "--gang-gpus", 4),
        .gang_decisions = number(argc, argv, "--gang-decisions", 200),
        .seed = (uint64_t)number(argc, argv, "--seed", 1),
    };
    struct figures s = single(&o), g = gangs(&o);

    (void)printf(
        "{\"name\": \"placement\", \"parameters\": {\"nodes\": \"%s\", \"pods\": \"%s\", "
        "\"decisions\": %ld, \"targets\": %ld, \"fill\": %ld, \"gang_nodes\": %ld, "
        "\"gang_workers\": %ld, \"gang_gpus\": %ld, \"gang_decisions\": %ld, \"seed\": %llu},\n"
        " \"results\": [\n  ",
        o.nodes, o.pods, o.decisions, o.targets, o.fill, o.gang_nodes, o.gang_workers, o.gang_gpus,
        o.gang_decisions, (unsigned long long)o.seed);
    row("single-gpu decisions, recorded and held", s.per_second, "1/s", 150000, false);
    row("single-gpu p50", s.p50_us, "us", 0, false);
    row("single-gpu p99", s.p99_us, "us", 0, false);
    row("single-gpu placed", (double)s.placed, "decisions", 0, false);
    row("single-gpu pending", (double)s.pending, "decisions", 0, false);
    row("largest record", (double)s.bytes_max, "bytes", 4096, false);
    row("gang p50", g.p50_us / 1000, "ms", 5, false);
    row("gang p99", g.p99_us / 1000, "ms", 5, false);
    row("gang max", g.max_us / 1000, "ms", 5, false);
    row("gang placed", (double)g.placed, "decisions", 0, true);
    (void)printf("]}\n");
    return 0;
}
