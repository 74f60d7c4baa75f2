/* See move_kit.h. */
#include "tests/support/store/move_kit.h"

void kit_target(struct kit *k, const char *name, enum tier tier, uint32_t nodes, uint32_t gpus)
{
    struct target *t = arena_new(k->a, struct target);

    t->spec = arena_new(k->a, struct target_spec);
    t->spec->type = TARGET_AGENT;
    t->spec->tier = tier;
    assert_string_equal(kit_create(k, KIND_TARGET, "", name, t).text, "");
    assert_int_equal(kit_facts(k, name, nodes, gpus, true).code, 0);
}

void kit_class(struct kit *k, const char *name, int64_t value, bool never_victim,
               int64_t minimum_runtime)
{
    struct priority_class *c = arena_new(k->a, struct priority_class);

    c->spec = arena_new(k->a, struct priority_class_spec);
    c->spec->value = value;
    c->spec->mayPreempt = true;
    c->spec->neverVictim = never_victim;
    c->spec->minimumRuntime = minimum_runtime;
    assert_string_equal(kit_create(k, KIND_PRIORITY_CLASS, "", name, c).text, "");
}

struct placement *kit_placement(struct kit *k, const char *node, int64_t first, int64_t gpus)
{
    return kit_workers(k, node, first, 1, gpus);
}

const struct object *kit_move(struct kit *k, const char *name)
{
    return root_get(k->root, KIND_MIGRATION, k->ns, name);
}

const struct migration_status *kit_move_status(struct kit *k, const char *name)
{
    return object_as(kit_move(k, name), migration)->status;
}

void kit_running(struct kit *k, const char *name, const char *class_, const char *node,
                 int64_t first, int64_t gpus)
{
    assert_int_equal(kit_workload(k, k->ns, name, 1, gpus).code, 0);
    if (*class_) {
        struct workload *w = object_edit_as(kit_get(k, name), workload, k->a);

        w->spec->priorityClassName = class_;
        assert_int_equal(kit_update(k, KIND_WORKLOAD, k->ns, name, w, 0, false).code, 0);
    }
    if (!*node)
        return;
    assert_string_equal(kit_place(k, name, node, first, 1, gpus).text, "");
    assert_int_equal(kit_run(k, name, 1, 1, STEP_DISPATCH).code, 0);
    assert_int_equal(kit_run(k, name, 1, 1, STEP_RUNNING).code, 0);
}

struct move_begin kit_begin_of(struct kit *k, const char *name, enum move_cause cause,
                               struct placement *to)
{
    const struct object *o = kit_get(k, name);
    struct move_begin b = {.epoch = o ? object_as(o, workload)->status->epoch : 1,
                           .cause = cause,
                           .placement = to,
                           .lost_gpu_seconds = 60,
                           .cost = 0.5,
                           .saving = 7};

    str_copy(b.ns, sizeof b.ns, k->ns);
    str_copy(b.workload, sizeof b.workload, name);
    str_copy(b.uid, sizeof b.uid, o ? o->meta->uid : "none");
    if (to) {
        b.decision = arena_new(k->a, struct decision_spec);
        b.decision->outcome = "Placed";
        b.decision->reason = "Chosen";
    }
    return b;
}

struct result kit_plan(struct kit *k, struct move_begin *b, uint32_t n, const char *for_,
                       struct placement *nominated)
{
    union command c = {.head = {.type = CMD_MIGRATE}};
    const struct object *o = for_ ? kit_get(k, for_) : NULL;

    c.migrate.step = MOVE_BEGIN;
    c.migrate.begins = b;
    c.migrate.n = n;
    (void)snprintf(c.migrate.message, sizeof c.migrate.message, "why it moves");
    if (for_) {
        str_copy(c.migrate.for_ns, sizeof c.migrate.for_ns, k->ns);
        str_copy(c.migrate.for_name, sizeof c.migrate.for_name, for_);
        str_copy(c.migrate.for_uid, sizeof c.migrate.for_uid, o ? o->meta->uid : "none");
        c.migrate.for_epoch = o ? object_as(o, workload)->status->epoch : 0;
        c.migrate.nominated = nominated;
    }
    return kit_apply(k, &c);
}

void kit_step_of(struct kit *k, union command *c, const char *name, enum move_step step)
{
    const struct object *o = kit_move(k, name);

    *c = (union command){.head = {.type = CMD_MIGRATE}};
    c->migrate.step = step;
    str_copy(c->migrate.ns, sizeof c->migrate.ns, k->ns);
    str_copy(c->migrate.name, sizeof c->migrate.name, name);
    str_copy(c->migrate.uid, sizeof c->migrate.uid, o ? o->meta->uid : "none");
}

struct result kit_step(struct kit *k, const char *name, enum move_step step)
{
    union command c;

    kit_step_of(k, &c, name, step);
    if (step == MOVE_ABORT)
        (void)snprintf(c.migrate.reason, sizeof c.migrate.reason, "GivenUp");
    return kit_apply(k, &c);
}

struct result kit_reserve(struct kit *k, const char *name, const char *workload,
                          struct placement *to)
{
    struct move_begin b = kit_begin_of(k, workload, MOVE_ASKED, to);
    union command c;

    kit_step_of(k, &c, name, MOVE_RESERVE);
    c.migrate.begins = &b;
    c.migrate.n = 1;
    return kit_apply(k, &c);
}

struct result kit_ask(struct kit *k, const char *name, const char *workload, const char *to)
{
    struct migration *m = arena_new(k->a, struct migration);

    m->spec = arena_new(k->a, struct migration_spec);
    m->spec->workload = workload;
    m->spec->to = to;
    return kit_create(k, KIND_MIGRATION, k->ns, name, m);
}

int64_t kit_held(struct kit *k, const char *node)
{
    struct node_usage u = {0};

    (void)root_usage(k->root, node, &u);
    return u.gpu_milli / 1000;
}

struct result kit_checkpoint(struct kit *k, const char *name, int64_t epoch, int64_t step,
                             const char *digest)
{
    struct run_checkpoint ck = {
        .step = step, .digest = digest, .path = "/store/cut", .bytes = 100, .ranks = 1};

    k->checkpoint = &ck;
    struct result r = kit_run(k, name, epoch, 1, STEP_CHECKPOINT);
    k->checkpoint = NULL;
    return r;
}
