/* See preempt_lab.h. */
#include "tests/support/policy/preempt_lab.h"

uint32_t lab_random(struct lab *k, uint32_t below)
{
    k->s = k->s * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(k->s >> 33) % below;
}

void lab_init(struct lab *k, uint64_t seed)
{
    *k = (struct lab){
        .p = pool_create(), .a = arena_create((size_t)1 << 30), .s = seed, .now_ms = NOW};
}

void lab_fini(struct lab *k)
{
    k->p = pool_destroy(k->p);
    k->a = arena_destroy(k->a);
    for (uint32_t i = 0; i < k->n_made; i++)
        (void)object_unref(k->made[i]);
}

const struct object *lab_make(struct lab *k, enum kind_id kind, const void *body)
{
    assert_true(k->n_made < LAB_MAX);
    k->made[k->n_made] = object_make(kind_by_id(kind), body);
    return k->made[k->n_made++];
}

void lab_target(struct lab *k, const char *name)
{
    struct meta meta = {.name = name};
    struct target_spec spec = {.type = TARGET_AGENT, .tier = TIER_HUB, .region = "eu"};
    struct target t = {.metadata = &meta, .spec = &spec};

    pool_put(k->p, lab_make(k, KIND_TARGET, &t));
    pool_target_reachable(k->p, name, REACH_YES);
}

void lab_node(struct lab *k, struct lab_node n)
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
    struct counted_gpus all = {
        .class_ = "h100", .model = "", .memory = 80ll << 30, .count = n.gpus};
    struct meta meta = {.name = n.name};
    struct node doc = {.metadata = &meta, .spec = &spec};

    if (n.counted) {
        spec.n_gpus = 0;
        spec.counted = &all;
        spec.n_counted = n.gpus > 0;
    }

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
    pool_put(k->p, lab_make(k, KIND_NODE, &doc));
}

void lab_class(struct lab *k, const char *name, int64_t value, bool never, int64_t minimum_ms)
{
    struct meta meta = {.name = name};
    struct priority_class_spec spec = {
        .value = value, .neverVictim = never, .mayPreempt = true, .minimumRuntime = minimum_ms};
    struct priority_class c = {.metadata = &meta, .spec = &spec};

    k->classes[k->n_classes] = lab_make(k, KIND_PRIORITY_CLASS, &c);
    pool_put(k->p, k->classes[k->n_classes++]);
}

void lab_queue(struct lab *k, const char *name, int64_t guaranteed, int64_t burst)
{
    struct meta meta = {.name = name};
    struct queue_gpus g = {.class_ = "h100", .guaranteed = guaranteed, .burst = burst};
    struct queue_spec spec = {.gpus = &g, .n_gpus = 1, .lend = true, .weight = 1};
    struct queue q = {.metadata = &meta, .spec = &spec};

    k->queues[k->n_queues] = lab_make(k, KIND_QUEUE, &q);
    pool_put(k->p, k->queues[k->n_queues++]);
}

const struct object *lab_job(struct lab *k, struct lab_job j, const struct placement *placement)
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
    return lab_make(k, KIND_WORKLOAD, &w);
}

struct placement *lab_place(struct lab *k, const struct object *w)
{
    struct place_request rq = {.workload = w, .now_ms = k->now_ms};
    struct decision_spec *d;
    struct placement *pl;
    struct err err = {0};

    assert_int_equal(policy_place(k->p, &rq, k->a, &d, &pl, &err), 0);
    return pl;
}

const struct object *lab_run(struct lab *k, struct lab_job j)
{
    struct placement *pl = lab_place(k, lab_job(k, j, NULL));
    const struct object *w;

    if (!pl)
        return NULL;
    w = lab_job(k, j, pl);
    pool_hold(k->p, w);
    return w;
}

struct preempt_plan *lab_plan(struct lab *k, const struct object *w)
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

bool lab_victim(const struct preempt_plan *plan, const char *name)
{
    for (size_t i = 0; i < plan->n; i++) {
        if (strcmp(plan->victims[i].workload->meta->name, name) == 0)
            return true;
    }
    return false;
}

bool lab_fits_without(struct lab *k, const struct object *w, const struct object *const *gone,
                      size_t n)
{
    struct pool *f = pool_fork(k->p), *p = k->p;
    bool fits;

    for (size_t i = 0; i < n; i++)
        pool_drop(f, gone[i]->meta->uid);
    k->p = f;
    fits = lab_place(k, w) != NULL;
    k->p = p;
    f = pool_destroy(f);
    return fits;
}

int64_t lab_held(const char *queue, const char *class_, void *arg)
{
    (void)queue;
    (void)class_;
    (void)arg;
    return 0;
}
