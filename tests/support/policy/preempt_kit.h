/* For tests of preemption: a pool made of few figures, running workloads on it, and the least harm
 * by trying every set of victims. */
#ifndef HANSE_TESTS_SUPPORT_POLICY_PREEMPT_KIT_H
#define HANSE_TESTS_SUPPORT_POLICY_PREEMPT_KIT_H

#include "api/base/limits.h"
#include "tests/support/unit.h"
#include "policy/policy.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define NOW 1764547200000
#define KIT_MAX 4096

struct kit {
    struct pool *p;
    struct arena *a;
    struct object *made[KIT_MAX];
    uint32_t n_made;
    const struct object *classes[16], *queues[16];
    uint32_t n_classes, n_queues;
    uint64_t s;     /* of the random numbers */
    int64_t now_ms; /* of decisions; jobs are told by their age at NOW */
};

static inline uint32_t kit_random(struct kit *k, uint32_t below)
{
    k->s = k->s * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(k->s >> 33) % below;
}

static inline void kit_init(struct kit *k, uint64_t seed)
{
    *k = (struct kit){
        .p = pool_create(), .a = arena_create((size_t)1 << 30), .s = seed, .now_ms = NOW};
}

static inline void kit_fini(struct kit *k)
{
    k->p = pool_destroy(k->p);
    k->a = arena_destroy(k->a);
    for (uint32_t i = 0; i < k->n_made; i++)
        (void)object_unref(k->made[i]);
}

static inline const struct object *kit_make(struct kit *k, enum kind_id kind, const void *body)
{
    assert_true(k->n_made < KIT_MAX);
    k->made[k->n_made] = object_make(kind_by_id(kind), body);
    return k->made[k->n_made++];
}

static inline void kit_target(struct kit *k, const char *name)
{
    struct meta meta = {.name = name};
    struct target_spec spec = {.type = TARGET_AGENT, .tier = TIER_HUB, .region = "eu"};
    struct target t = {.metadata = &meta, .spec = &spec};

    pool_put(k->p, kit_make(k, KIND_TARGET, &t));
    pool_target_reachable(k->p, name, REACH_YES);
}

struct kit_node {
    const char *name, *target, *rack;
    uint32_t gpus;
    int64_t cpu, memory;
    bool shared;
    uint32_t mig;  /* instances of 1g.10gb on each device, and half as many of 3g.40gb */
    uint32_t link; /* devices in one NVLink domain; 0 = not told */
};
static inline void kit_node(struct kit *k, struct kit_node n)
{
    static const char *small = "1g.10gb", *large = "3g.40gb";
    const char *profiles[16][16];
    struct gpu dev[16] = {0};
    struct topology where = {
        .region = "eu", .zone = "z", .block = "b", .rack = n.rack ? n.rack : ""};
    struct node_spec spec = {.target = n.target,
                             .gpus = dev,
                             .n_gpus = n.gpus,
                             .cpu = n.cpu ? n.cpu : 64000,
                             .memory = n.memory ? n.memory : 512ll << 30,
                             .topology = &where};
    struct meta meta = {.name = n.name};
    struct node doc = {.metadata = &meta, .spec = &spec};

    for (uint32_t i = 0; i < n.gpus; i++) {
        dev[i] =
            (struct gpu){.index = i, .class_ = "h100", .memory = 80ll << 30, .shared = n.shared};
        for (uint32_t m = 0; m < n.mig + n.mig / 2; m++)
            profiles[i][m] = m < n.mig ? small : large;
        dev[i].migProfiles = n.mig ? profiles[i] : NULL;
        dev[i].n_migProfiles = n.mig + n.mig / 2;
        if (n.link)
            dev[i].nvlinkDomain = i / n.link + 1;
    }
    pool_put(k->p, kit_make(k, KIND_NODE, &doc));
}

static inline void kit_class(struct kit *k, const char *name, int64_t value, bool never,
                             int64_t minimum_ms)
{
    struct meta meta = {.name = name};
    struct priority_class_spec spec = {
        .value = value, .neverVictim = never, .mayPreempt = true, .minimumRuntime = minimum_ms};
    struct priority_class c = {.metadata = &meta, .spec = &spec};

    k->classes[k->n_classes] = kit_make(k, KIND_PRIORITY_CLASS, &c);
    pool_put(k->p, k->classes[k->n_classes++]);
}

static inline void kit_queue(struct kit *k, const char *name, int64_t guaranteed, int64_t burst)
{
    struct meta meta = {.name = name};
    struct queue_gpus g = {.class_ = "h100", .guaranteed = guaranteed, .burst = burst};
    struct queue_spec spec = {.gpus = &g, .n_gpus = 1, .lend = true, .weight = 1};
    struct queue q = {.metadata = &meta, .spec = &spec};

    k->queues[k->n_queues] = kit_make(k, KIND_QUEUE, &q);
    pool_put(k->p, k->queues[k->n_queues++]);
}

struct kit_job {
    const char *name, *class_, *queue;
    uint32_t workers, gpus; /* of a worker */
    double fraction;
    const char *mig, *interconnect;
    enum domain_level within;
    int64_t cpu, memory;
    int64_t saved_s, placed_s; /* ago; saved 0 = no checkpoint */
    int64_t saved_bytes;
    enum phase phase;
    const char *migration;
    int64_t old_epoch; /* the checkpoint is of this epoch, not of the running one */
};

/* The document; with a placement also its status. */
static inline const struct object *kit_job(struct kit *k, struct kit_job j,
                                           const struct placement *placement)
{
    const char *command[] = {"x"};
    char uid[80];
    struct gpu_request gpu = {.count = j.gpus,
                              .fraction = j.fraction,
                              .mig = j.mig ? j.mig : "",
                              .interconnect = j.interconnect ? j.interconnect : ""};
    struct resources res = {.gpu = &gpu, .cpu = j.cpu, .memory = j.memory};
    struct gang gang = {.workers = j.workers ? j.workers : 1};
    struct topology_request within = {.within = j.within};
    struct run_spec run = {.command = command, .n_command = 1};
    struct workload_spec spec = {.run = &run,
                                 .resources = &res,
                                 .gang = &gang,
                                 .topology = &within,
                                 .priorityClassName = j.class_ ? j.class_ : "",
                                 .queue = j.queue ? j.queue : ""};
    struct meta meta = {.name = j.name, .namespace_ = "dev", .uid = uid};
    struct placement at = placement ? *placement : (struct placement){.target = ""};
    struct run_checkpoint saved = {.verifiedAt = NOW - j.saved_s * 1000,
                                   .bytes = j.saved_bytes,
                                   .epoch = j.old_epoch ? j.old_epoch : 2};
    struct workload_status status = {.phase = j.phase ? j.phase : PHASE_RUNNING,
                                     .epoch = 2,
                                     .placement = &at,
                                     .checkpoint = j.saved_s ? &saved : NULL,
                                     .migration = j.migration ? j.migration : "",
                                     .phaseSince = NOW - j.placed_s * 1000};
    struct workload w = {.metadata = &meta, .spec = &spec, .status = placement ? &status : NULL};

    (void)snprintf(uid, sizeof(uid), "uid-%s", j.name);
    at.since = NOW - j.placed_s * 1000;
    return kit_make(k, KIND_WORKLOAD, &w);
}

static inline struct placement *kit_place(struct kit *k, const struct object *w)
{
    struct place_request rq = {.workload = w, .now_ms = k->now_ms};
    struct decision_spec *d;
    struct placement *pl;
    struct err err = {0};

    assert_int_equal(policy_place(k->p, &rq, k->a, &d, &pl, &err), 0);
    return pl;
}

/* Runs it where there is room; NULL when there is none. */
static inline const struct object *kit_run(struct kit *k, struct kit_job j)
{
    struct placement *pl = kit_place(k, kit_job(k, j, NULL));
    const struct object *w;

    if (!pl)
        return NULL;
    w = kit_job(k, j, pl);
    pool_hold(k->p, w);
    return w;
}

static inline struct preempt_plan *kit_plan(struct kit *k, const struct object *w)
{
    struct place_request rq = {.workload = w, .now_ms = k->now_ms};
    struct preempt_plan *plan;
    struct err err = {0};
    struct buf b;

    assert_int_equal(policy_preempt(k->p, &rq, k->a, &plan, &err), 0);
    if (!plan)
        return NULL;
    buf_init(&b, 1 << 20);
    tlv_add(&schema_decision_spec, plan->decision, &b);
    assert_true(b.n <= LIMIT_DECISION_MAX_BYTES);
    buf_fini(&b);
    assert_string_equal(plan->decision->reason, "Preempting");
    assert_true(plan->n > 0);
    return plan;
}

static inline bool kit_victim(const struct preempt_plan *plan, const char *name)
{
    for (size_t i = 0; i < plan->n; i++) {
        if (strcmp(plan->victims[i].workload->meta->name, name) == 0)
            return true;
    }
    return false;
}

/* Can w be placed once these have left? */
static inline bool kit_fits_without(struct kit *k, const struct object *w,
                                    const struct object *const *gone, size_t n)
{
    struct pool *f = pool_fork(k->p), *p = k->p;
    bool fits;

    for (size_t i = 0; i < n; i++)
        pool_drop(f, gone[i]->meta->uid);
    k->p = f;
    fits = kit_place(k, w) != NULL;
    k->p = p;
    f = pool_destroy(f);
    return fits;
}

static inline int64_t kit_held(const char *queue, const char *class_, void *arg)
{
    (void)queue;
    (void)class_;
    (void)arg;
    return 0;
}

#endif
