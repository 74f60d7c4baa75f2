/* For the benchmark of preemption: documents, and jobs in the shape that the planner reads. */
#ifndef HANSE_TESTS_BENCH_PREEMPT_FLEET_H
#define HANSE_TESTS_BENCH_PREEMPT_FLEET_H

#include "api/base/limits.h"
#include "policy/policy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static inline int64_t now_ns(clockid_t clock)
{
    struct timespec t;

    (void)clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline uint32_t next(uint64_t *s, uint32_t below)
{
    *s = *s * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*s >> 33) % below;
}

static inline void die(const char *what)
{
    (void)fprintf(stderr, "preempt: %s\n", what);
    exit(2);
}

/* ---- documents ---- */
static inline void put(struct pool *p, enum kind_id kind, const void *body)
{
    struct object *o = object_make(kind_by_id(kind), body);

    pool_put(p, o);
    (void)object_unref(o);
}

static inline void put_target(struct pool *p, const char *name)
{
    struct meta meta = {.name = name};
    struct target_spec spec = {
        .type = TARGET_AGENT, .tier = TIER_HUB, .region = "eu-central", .priceSheet = "own"};
    struct target t = {.metadata = &meta, .spec = &spec};

    put(p, KIND_TARGET, &t);
    pool_target_reachable(p, name, REACH_YES);
}

static inline void put_prices(struct pool *p)
{
    struct gpu_price line = {.class_ = "h100", .amortised = 1.92};
    struct price_sheet_spec spec = {
        .currency = "USD", .gpuHour = &line, .n_gpuHour = 1, .egressPerGiB = 0.02};
    struct meta meta = {.name = "own"};
    struct price_sheet sheet = {.metadata = &meta, .spec = &spec};

    put(p, KIND_PRICE_SHEET, &sheet);
}

static inline void put_class(struct pool *p, const char *name, int64_t value, bool never,
                             int64_t minimum_ms)
{
    struct meta meta = {.name = name};
    struct priority_class_spec spec = {
        .value = value, .neverVictim = never, .mayPreempt = true, .minimumRuntime = minimum_ms};
    struct priority_class c = {.metadata = &meta, .spec = &spec};

    put(p, KIND_PRIORITY_CLASS, &c);
}

static inline void put_node(struct pool *p, const char *name, const char *target, long i)
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

static inline struct object *make_job(const struct job *j, const struct placement *at)
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

#endif
