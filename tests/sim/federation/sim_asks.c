/* What people do that makes work move: they ask for it and give it up, bring production work,
 * and keep the documents (classes, a policy with moves) that let it. They know only what a user
 * knows. */
#include "tests/sim/federation/sim_federation.h"

#include <stdio.h>
#include <string.h>

/* ---- documents ---- */
static const struct {
    const char *name;
    int64_t value, minimum_ms;
    bool never, may;
} classes[] = {{"critical", 2000, 0, true, true},
               {"production", 1000, 0, true, true},
               {"training", 500, 1000, false, true},
               {"batch", 100, 0, false, false}};

static struct placement_policy *policy_make(struct fed *f, struct arena *a)
{
    static const enum tier tiers[] = {TIER_HUB, TIER_SPOKE};
    static const enum move_cause when[] = {MOVE_REPATRIATE};
    struct placement_policy *p = arena_new(a, struct placement_policy);

    p->metadata = fed_meta(a, "", "spill", "uid-policy");
    p->spec = arena_new(a, struct placement_policy_spec);
    p->spec->n_order = 2;
    p->spec->order = arena_array(a, struct order_step, 2);
    for (unsigned i = 0; i < 2; i++) {
        p->spec->order[i].targets = arena_new(a, struct target_selector);
        p->spec->order[i].targets->tier = arena_memdup(a, &tiers[i], sizeof tiers[i]);
        p->spec->order[i].targets->n_tier = 1;
        p->spec->order[i].after = i ? 1000 : 0;
    }
    p->spec->migrate = arena_new(a, struct migrate_policy);
    p->spec->migrate->when = arena_memdup(a, when, sizeof when);
    p->spec->migrate->n_when = 1;
    p->spec->migrate->minStay = FED_MIN_STAY_MS;
    p->spec->migrate->atMostEvery = FED_AT_MOST_EVERY_MS;
    if (fed_for_gain(f))
        fed_gain_policy(a, p->spec);
    return p;
}
uint32_t fed_move_docs(struct fed *f, struct arena *a, struct write_op *ops)
{
    uint32_t n = 0;

    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
        struct priority_class *c = arena_new(a, struct priority_class);
        c->metadata = fed_meta(a, "", classes[i].name, arena_printf(a, "uid-class-%zu", i));
        c->spec = arena_new(a, struct priority_class_spec);
        c->spec->value = classes[i].value;
        c->spec->neverVictim = classes[i].never;
        c->spec->mayPreempt = classes[i].may;
        c->spec->minimumRuntime = classes[i].minimum_ms;
        fed_op(&ops[n++], WRITE_CREATE, KIND_PRIORITY_CLASS, "", classes[i].name, c);
    }
    fed_op(&ops[n++], WRITE_CREATE, KIND_PLACEMENT_POLICY, "", "spill", policy_make(f, a));
    INV(n == FED_MOVE_DOCS);
    return n;
}

/* ---- moves ---- */
void fed_ask_move(struct fed *f, struct sim_member *m, const char *workload, const char *to)
{
    AUTO_ARENA a = arena_create(0);
    struct write_op op;
    union command c = {.write = {.ops = &op, .n = 1}};
    struct migration *g = arena_new(a, struct migration);
    unsigned i = f->n_moves++;
    const char *name = arena_printf(a, "move-%u", i);

    g->metadata = fed_meta(a, "dev", name, arena_printf(a, "uid-move-%u", i));
    g->spec = arena_new(a, struct migration_spec);
    g->spec->workload = workload;
    g->spec->to = to;
    g->spec->cause = MOVE_ASKED;
    fed_op(&op, WRITE_CREATE, KIND_MIGRATION, "dev", name, g);
    fed_propose(f, m, &c, &(struct fed_request){.workload = -1, .verb = WRITE_CREATE});
}

struct pick { /* one of many, each as likely */
    struct fed *f;
    unsigned seen;
    const struct object *o;
};
static bool pick_open(const struct object *o, void *arg)
{
    const struct migration_status *s = object_as(o, migration)->status;
    struct pick *p = arg;

    if (s && move_open(s->phase) && fed_below(p->f, ++p->seen) == 0)
        p->o = o;
    return true;
}
void fed_cancel_move(struct fed *f, struct sim_member *m)
{
    AUTO_ARENA a = arena_create(0);
    struct write_op op;
    union command c = {.write = {.ops = &op, .n = 1}};
    struct root *r = core_root(m->core);
    struct pick p = {.f = f};

    root_scan(r, KIND_MIGRATION, NULL, NULL, NULL, pick_open, &p);
    if (p.o) {
        struct migration *g = object_edit_as(p.o, migration, a);
        g->spec->cancel = true;
        fed_op(&op, WRITE_UPDATE, KIND_MIGRATION, "dev", p.o->meta->name, g);
        op.rv = (uint64_t)p.o->meta->resourceVersion;
        fed_propose(f, m, &c, &(struct fed_request){.workload = -1, .verb = WRITE_UPDATE});
    }
    (void)root_unref(r);
}
static bool pick_running(const struct object *o, void *arg)
{
    const struct workload_status *s = object_as(o, workload)->status;
    struct pick *p = arg;

    if (s && s->phase == PHASE_RUNNING && fed_below(p->f, ++p->seen) == 0)
        p->o = o;
    return true;
}
void fed_move_any(struct fed *f, struct sim_member *m)
{
    struct root *r = core_root(m->core);
    struct pick p = {.f = f};
    uint64_t to = fed_below(f, f->n_rooms + 1);

    root_scan(r, KIND_WORKLOAD, NULL, NULL, NULL, pick_running, &p);
    if (p.o)
        fed_ask_move(f, m, p.o->meta->name, to < f->n_rooms ? f->rooms[to]->name : "");
    (void)root_unref(r);
}
