/* See store_kit.h. */
#include "tests/support/store/store_kit.h"

static void kit_result(const struct result *r, void *arg)
{
    *(struct result *)arg = *r;
}

struct result kit_apply(struct kit *k, const union command *c)
{
    struct result r = {.code = -9999};
    struct err e = {0};
    AUTO_BUF b;
    AUTO_BUF entry;
    AUTO_BUF again;
    union command *d = NULL;

    buf_init(&b, LIMIT_COMMAND_MAX_BYTES);
    buf_init(&again, LIMIT_COMMAND_MAX_BYTES);
    buf_init(&entry, LIMIT_ENTRY_MAX_BYTES);
    command_encode(c, &b);
    assert_int_equal(command_decode(slice_make(b.p, b.n), k->a, &d, &e), 0);
    command_encode(d, &again);
    assert_int_equal(again.n, b.n);
    assert_memory_equal(again.p, b.p, b.n);
    command_release(d);
    k->last = c->head.type;
    k->last_step = c->head.type == CMD_RUN ? c->run.step : (enum run_step)0;
    entry_begin(&entry, &(struct entry_head){++k->number, k->term, k->now});
    entry_add(&entry, slice_make(b.p, b.n));
    entry_end(&entry);
    if (k->log.max) {
        unsigned char n[4];

        le_put_u32(n, (uint32_t)entry.n);
        buf_add(&k->log, n, 4);
        buf_add(&k->log, entry.p, entry.n);
    }
    int rc = store_apply(&k->root, ++k->index, k->term, slice_make(entry.p, entry.n), kit_result,
                         &r, &e);
    if (rc != 0)
        (void)fprintf(stderr, "%s\n", e.text);
    assert_int_equal(rc, 0);
    (void)tree_reap(256);
    return r;
}

struct result kit_write(struct kit *k, struct write_op *ops, uint32_t n, const char *revision,
                        const char *id)
{
    union command c = {.head = {.type = CMD_WRITE, .user = "alice"}};

    c.write.ops = ops;
    c.write.n = n;
    c.write.apply = *revision != 0;
    str_copy(c.write.revision, sizeof c.write.revision, revision);
    str_copy(c.head.request_id, sizeof c.head.request_id, id);
    struct result r = kit_apply(k, &c);
    for (uint32_t i = 0; i < n; i++)
        ops[i].object = object_unref(ops[i].object);
    return r;
}

void kit_op(struct write_op *op, enum write_verb verb, enum kind_id kind, const char *ns,
            const char *name, const void *body)
{
    *op = (struct write_op){.verb = verb, .kind = kind};
    str_copy(op->ns, sizeof op->ns, ns);
    str_copy(op->name, sizeof op->name, name);
    op->object = body ? object_make(kind_by_id(kind), body) : NULL;
}

struct meta *kit_meta(struct kit *k, const char *ns, const char *name)
{
    struct meta *m = arena_new(k->a, struct meta);

    m->name = name;
    m->namespace_ = ns;
    m->uid = arena_printf(k->a, "uid-%s-%s-%llu", ns, name, (unsigned long long)k->number);
    return m;
}

struct result kit_create(struct kit *k, enum kind_id kind, const char *ns, const char *name,
                         void *body)
{
    struct write_op op;

    ((struct any_body *)body)->metadata = kit_meta(k, ns, name);
    kit_op(&op, WRITE_CREATE, kind, ns, name, body);
    return kit_write(k, &op, 1, "", "");
}

struct result kit_update(struct kit *k, enum kind_id kind, const char *ns, const char *name,
                         const void *body, uint64_t rv, bool status)
{
    struct write_op op;

    kit_op(&op, status ? WRITE_UPDATE_STATUS : WRITE_UPDATE, kind, ns, name, body);
    op.rv = rv;
    return kit_write(k, &op, 1, "", "");
}

struct result kit_delete(struct kit *k, enum kind_id kind, const char *ns, const char *name)
{
    struct write_op op;

    kit_op(&op, WRITE_DELETE, kind, ns, name, NULL);
    return kit_write(k, &op, 1, "", "");
}

struct result kit_namespace(struct kit *k, const char *name)
{
    return kit_create(k, KIND_NAMESPACE, "", name, arena_new(k->a, struct namespace_));
}

void kit_op_queue(struct kit *k, struct write_op *op, const char *name, const char *parent)
{
    struct queue *q = arena_new(k->a, struct queue);

    q->metadata = kit_meta(k, "", name);
    q->spec = arena_new(k->a, struct queue_spec);
    q->spec->parent = parent;
    kit_op(op, WRITE_CREATE, KIND_QUEUE, "", name, q);
}

struct result kit_workload(struct kit *k, const char *ns, const char *name, int64_t workers,
                           int64_t gpus)
{
    struct workload *w = arena_new(k->a, struct workload);

    w->spec = arena_new(k->a, struct workload_spec);
    w->spec->run = arena_new(k->a, struct run_spec);
    w->spec->run->script = "true";
    w->spec->run->retries = k->retries;
    w->spec->gang = arena_new(k->a, struct gang);
    w->spec->gang->workers = workers;
    w->spec->resources = arena_new(k->a, struct resources);
    w->spec->resources->cpu = 1000;
    w->spec->resources->gpu = arena_new(k->a, struct gpu_request);
    w->spec->resources->gpu->count = gpus;
    return kit_create(k, KIND_WORKLOAD, ns, name, w);
}

struct result kit_facts(struct kit *k, const char *target, uint32_t nodes, uint32_t gpus,
                        bool reachable)
{
    union command c = {.head = {.type = CMD_FACTS}};
    struct node *n = arena_array(k->a, struct node, nodes + 1);

    str_copy(c.facts.target, sizeof c.facts.target, target);
    (void)snprintf(c.facts.session, sizeof c.facts.session, "s1");
    c.facts.reach_told = c.facts.complete = true;
    c.facts.reachable = reachable;
    c.facts.nodes = n;
    c.facts.n = nodes;
    for (uint32_t i = 0; i < nodes; i++) {
        n[i].metadata = arena_new(k->a, struct meta);
        n[i].metadata->name = arena_printf(k->a, "%s.n%u", target, i);
        n[i].spec = arena_new(k->a, struct node_spec);
        n[i].spec->target = target;
        n[i].spec->cpu = 64000;
        n[i].spec->memory = (int64_t)1 << 40;
        n[i].spec->gpus = arena_array(k->a, struct gpu, gpus + 1);
        n[i].spec->n_gpus = gpus;
        for (uint32_t g = 0; g < gpus; g++) {
            n[i].spec->gpus[g].index = g;
            n[i].spec->gpus[g].class_ = k->gpu_class ? k->gpu_class : "h100";
            n[i].spec->gpus[g].shared = true;
        }
    }
    return kit_apply(k, &c);
}

void kit_pool(struct kit *k, uint32_t nodes, uint32_t gpus)
{
    struct target *t = arena_new(k->a, struct target);

    t->spec = arena_new(k->a, struct target_spec);
    t->spec->type = TARGET_AGENT;
    t->spec->tier = TIER_HUB;
    assert_int_equal(kit_create(k, KIND_TARGET, "", "fra", t).code, 0);
    assert_int_equal(kit_facts(k, "fra", nodes, gpus, true).code, 0);
}

const struct object *kit_get(struct kit *k, const char *name)
{
    return root_get(k->root, KIND_WORKLOAD, k->ns, name);
}

const struct workload_status *kit_status(struct kit *k, const char *name)
{
    return object_as(kit_get(k, name), workload)->status;
}

enum phase kit_phase(struct kit *k, const char *ns, const char *name)
{
    return object_as(root_get(k->root, KIND_WORKLOAD, ns, name), workload)->status->phase;
}

void kit_place_head(struct kit *k, union command *c, const char *name, const char *outcome,
                    const char *reason)
{
    const struct object *o = kit_get(k, name);

    *c = (union command){.head = {.type = CMD_PLACE}};
    str_copy(c->place.ns, sizeof c->place.ns, k->ns);
    str_copy(c->place.name, sizeof c->place.name, name);
    str_copy(c->place.uid, sizeof c->place.uid, o ? o->meta->uid : "none");
    c->place.epoch = o ? object_as(o, workload)->status->epoch : 0;
    c->place.decision = arena_new(k->a, struct decision_spec);
    c->place.decision->outcome = outcome;
    c->place.decision->reason = reason;
}

struct result kit_pending(struct kit *k, const char *name, const char *reason, int64_t position)
{
    union command c;

    kit_place_head(k, &c, name, "Pending", reason);
    c.place.decision->queuePosition = position;
    return kit_apply(k, &c);
}

struct placement *kit_workers(struct kit *k, const char *node, int64_t first, int64_t workers,
                              int64_t gpus)
{
    struct placement *p = arena_new(k->a, struct placement);

    p->target = arena_strndup(k->a, node, strcspn(node, "."));
    p->class_ = "h100";
    p->gpuHourPrice = 2;
    p->cpu = 1000;
    p->assignments = arena_array(k->a, struct assignment, workers);
    p->n_assignments = (uint32_t)workers;
    for (int64_t i = 0; i < workers; i++) {
        struct assignment *as = &p->assignments[i];

        as->rank = i;
        as->node = node;
        as->gpuMilli = 1000;
        as->gpus = arena_array(k->a, int64_t, gpus);
        as->n_gpus = (uint32_t)gpus;
        for (int64_t g = 0; g < gpus; g++)
            as->gpus[g] = first++;
    }
    return p;
}

struct result kit_place(struct kit *k, const char *name, const char *node, int64_t first,
                        int64_t workers, int64_t gpus)
{
    union command c;

    kit_place_head(k, &c, name, "Placed", "Chosen");
    c.place.placement = kit_workers(k, node, first, workers, gpus);
    return kit_apply(k, &c);
}

struct result kit_run(struct kit *k, const char *name, int64_t epoch, int64_t try_,
                      enum run_step step)
{
    const struct object *o = kit_get(k, name);
    union command c = {.head = {.type = CMD_RUN}};

    str_copy(c.run.ns, sizeof c.run.ns, k->ns);
    str_copy(c.run.name, sizeof c.run.name, name);
    str_copy(c.run.uid, sizeof c.run.uid, o ? o->meta->uid : "none");
    str_copy(c.run.reason, sizeof c.run.reason, k->reason ? k->reason : run_step_text(step));
    c.run.epoch = epoch;
    c.run.try_ = try_;
    c.run.step = step;
    c.run.exit_code = k->exit_code;
    c.run.proof = step == STEP_ABSENT || step == STEP_CLOSE ? PROOF_NEVER_STARTED : PROOF_TREE_GONE;
    c.run.requeue = k->requeue;
    c.run.checkpoint = k->checkpoint;
    c.run.pause = k->pause;
    c.run.seats = k->seats;
    return kit_apply(k, &c);
}

bool kit_change(const struct change *c, void *arg)
{
    uint64_t *seen = arg;

    seen[0]++;
    seen[1] = c->rv;
    seen[2] = (uint64_t)(c->after ? c->after : c->before)->meta->resourceVersion;
    return true;
}

void kit_level_set(struct kit *k, uint32_t level)
{
    union command c = {.member = {.head = {.type = CMD_MEMBER},
                                  .member = {.id = 1, .feature_level = level},
                                  .cluster_uid = "cluster-1"}};

    assert_int_equal(kit_apply(k, &c).code, 0);
}

void kit_reload(struct kit *k)
{
    struct err e = {0};
    struct root *again = NULL;
    AUTO_BUF b;

    buf_init(&b, (size_t)1 << 30);
    root_check(k->root);
    assert_int_equal(snapshot_encode(k->root, &b, &e), 0);
    assert_int_equal(snapshot_decode(slice_make(b.p, b.n), &again, &e), 0);
    assert_true(root_digest(again) == root_digest(k->root));
    (void)root_unref(k->root);
    k->root = again;
}

void kit_begin(struct kit *k)
{
    memset(k, 0, sizeof *k);
    k->root = root_create();
    k->term = 1;
    k->a = arena_create(0);
    k->now = 1800000000000;
    k->ns = "default";
    assert_int_equal(kit_namespace(k, "default").code, 0);
}

void kit_end(struct kit *k)
{
    struct err e = {0};
    struct root *again = NULL;
    AUTO_BUF b;

    root_check(k->root);
    buf_init(&b, (size_t)1 << 30);
    assert_int_equal(snapshot_encode(k->root, &b, &e), 0);
    assert_int_equal(snapshot_decode(slice_make(b.p, b.n), &again, &e), 0);
    assert_true(root_digest(again) == root_digest(k->root));
    root_check(again);
    (void)root_unref(again);
    k->root = root_unref(k->root);
    k->a = arena_destroy(k->a);
    buf_fini(&k->log);
    (void)tree_reap(SIZE_MAX);
}
