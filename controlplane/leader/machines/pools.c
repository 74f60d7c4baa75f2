/* Pools: a Target's spec.machines says how many machines are kept. What is missing is ordered, one
 * after the other, and what is too much is released, as long as no run is held on it.
 *
 * A machine that was ordered otherwise than its pool says now is too much as well. One that will go
 * away is replaced, and left to go. */
#include "controlplane/leader/machines/machines_internal.h"

#include "controlplane/leader/keep/events.h"

#include <stdio.h>
#include <string.h>

#define WAITING_MAX 8 /* orders of one pool that its target has not answered yet */

bool machine_paused(const struct farm_look *l, const char *pool, const char *class_,
                    const char *zone)
{
    const struct target_status *s = l->target->status;

    for (uint32_t i = 0; s && i < s->n_pauses; i++) {
        const struct target_pause *x = &s->pauses[i];
        bool hit = x->scope == BLAMES_TARGET ||
                   (x->scope == BLAMES_POOL && strcmp(x->name, pool) == 0) ||
                   (x->scope == BLAMES_CLASS && strcmp(x->name, class_) == 0) ||
                   (x->scope == BLAMES_ZONE && strcmp(x->name, zone) == 0);
        if (hit && pause_holds(x, l->time))
            return true;
    }
    return false;
}

/* ---- what a pool has ---- */
static const struct machine_pool *pool_of(const struct farm_look *l, const char *name)
{
    for (uint32_t i = 0; i < l->target->spec->n_machines; i++)
        if (!strcmp(l->target->spec->machines[i].name, name))
            return &l->target->spec->machines[i];
    return NULL;
}

struct have {
    int64_t wanted; /* that are as their pool says, and stay */
    int64_t waiting; /* of them: ordered, and nothing told yet */
    int64_t live;    /* of the pool, whatever they are */
};

static struct have pool_has(const struct farm_look *l, const struct machine_pool *p)
{
    struct have h = {0, 0, 0};

    for (size_t i = 0; i < l->n; i++) {
        const struct machine *m = object_as(l->machines[i], machine);
        if (strcmp(m->spec->pool, p->name) != 0)
            continue;
        h.live++;
        if (machine_closing(l->machines[i]) || !machine_is_as(m->spec, p) ||
            m->status->phase == MACHINE_IS_NOTICED)
            continue;
        h.wanted++;
        h.waiting += m->status->phase == MACHINE_IS_ORDERED;
    }
    return h;
}

/* ---- prices ---- */
/* The least for which the target offers such a machine; -1: it tells none. */
static double price_of(const struct farm *f, const struct machine_pool *p)
{
    double least = -1;

    for (size_t i = 0; i < f->n_prices; i++) {
        const struct farm_price *x = &f->prices[i];
        bool fits = (!*p->class_ || !strcmp(p->class_, x->class_)) &&
                    (!p->gpus || !x->gpus || p->gpus == x->gpus) &&
                    (!*p->zone || !*x->zone || !strcmp(p->zone, x->zone)) &&
                    (!p->market || !x->market || p->market == x->market);
        if (fits && (least < 0 || x->price < least))
            least = x->price;
    }
    return least;
}

static void capped_tell(const struct farm_look *l, const struct machine_pool *p, const char *text)
{
    struct farm *f = l->farm;

    if (!strcmp(f->capped, p->name))
        return;
    str_copy(f->capped, sizeof f->capped, p->name);
    events_of_target(f->brain, root_get(l->root, KIND_TARGET, "", f->target), "PriceAboveCap",
                     text);
}

/* What the target asks at the order itself it checks by the cap that goes with it. Prices in
 * another currency than the cap's say nothing of it: it would not be kept. */
static bool too_dear(const struct farm_look *l, const struct machine_pool *p)
{
    struct farm *f = l->farm;
    bool other = p->maxPrice > 0 && *p->currency && *f->currency && f->n_prices &&
                 strcmp(p->currency, f->currency) != 0;
    double price = p->maxPrice > 0 && !other ? price_of(f, p) : -1;
    char text[300];

    if (!other && price <= p->maxPrice) {
        if (!strcmp(f->capped, p->name))
            f->capped[0] = '\0';
        return false;
    }
    if (other)
        (void)snprintf(text, sizeof text,
                       "pool %s: its maxPrice is in %s, and the target's prices are in %s: none is "
                       "ordered",
                       p->name, p->currency, f->currency);
    else
        (void)snprintf(text, sizeof text,
                       "pool %s: a machine costs %.4g %s an hour, its maxPrice is %.4g: none is "
                       "ordered",
                       p->name, price, f->currency, p->maxPrice);
    capped_tell(l, p, text);
    return true;
}

/* ---- one more ---- */
static void proposed(void *arg, const struct result *r, const struct err *err)
{
    struct farm *f = arg;

    f->ordering = false;
    if (err || r->code)
        wait_longer(&f->order_wait_ms, loop_now_ms(f->brain->loop), &f->order_after_ms);
    else
        f->order_wait_ms = 0;
    farm_answered(f);
}

static void propose(const struct farm_look *l, const struct machine_pool *p)
{
    const struct object *o = root_get(l->root, KIND_TARGET, "", l->farm->target);
    const struct target_status *s = l->target->status;
    union command c = {.machine = {.head = {.type = CMD_MACHINE, .user = "hanse:machines"},
                                   .step = MACHINE_STEP_ORDER,
                                   .number = (s ? s->machinesOrdered : 0) + 1}};

    brain_request_id(l->farm->brain, c.head.request_id);
    str_copy(c.machine.target, sizeof c.machine.target, l->farm->target);
    str_copy(c.machine.target_uid, sizeof c.machine.target_uid, o->meta->uid);
    str_copy(c.machine.pool, sizeof c.machine.pool, p->name);
    l->farm->ordering = true;
    l->farm->awaited++;
    brain_propose(l->farm->brain, &c, proposed, l->farm);
}

/* Machines of it ended early: the next one comes after a pause, and as long as none has joined
 * since then no further one beside it. */
static bool early(const struct farm_look *l, const struct machine_pool *p)
{
    struct farm *f = l->farm;
    const struct object *target = root_get(l->root, KIND_TARGET, "", f->target);
    struct machine_early e;
    char text[400];

    machine_early(l->root, target, p, l->time, &e);
    if (!e.rounds)
        return false;
    if (e.since > f->early_told && e.until > l->time) {
        f->early_told = e.since;
        machine_early_print(p, &e, text, sizeof text);
        events_of_target(f->brain, target, "MachinesEndEarly", text);
    }
    return e.until > l->time || e.coming;
}

static bool more_wanted(const struct farm_look *l, const struct machine_pool *p)
{
    const struct target_spec *s = l->target->spec;
    struct have h = pool_has(l, p);
    int64_t most = s->limits ? s->limits->machines : 0;

    return h.wanted < p->count && h.waiting < WAITING_MAX && h.live < 2 * p->count &&
           (!most || (int64_t)l->n < most) && !machine_paused(l, p->name, p->class_, p->zone) &&
           !early(l, p) && !too_dear(l, p);
}

/* ---- one less ---- */
static bool surplus(const struct farm_look *l, const struct object *o)
{
    const struct machine_spec *s = object_as(o, machine)->spec;
    const struct machine_pool *p = l->deleted ? NULL : pool_of(l, s->pool);

    return !p || !machine_is_as(s, p) || pool_has(l, p).wanted > p->count;
}

/* That of which least is there is let go first, and of two alike the younger one. */
static bool sooner(const struct object *a, const struct object *b)
{
    const struct machine *x = object_as(a, machine), *y = object_as(b, machine);

    return x->status->phase != y->status->phase ? x->status->phase < y->status->phase
                                                : x->spec->number > y->spec->number;
}

static void release_one(const struct farm_look *l)
{
    const struct object *best = NULL;

    list_for_each (it, &l->farm->units)
        if (container_of(it, struct unit, link)->proposing)
            return; /* one of them may be on its way out already */
    for (size_t i = 0; i < l->n; i++) {
        const struct object *o = l->machines[i];
        const struct unit *u = unit_find(l->farm, o->meta->name);
        if (machine_closing(o) || u->calling || l->now < u->retry_ms ||
            (object_as(o, machine)->status->phase == MACHINE_IS_NOTICED && !l->deleted) ||
            (best && !sooner(o, best)) || !surplus(l, o) || machine_held(l->root, o))
            continue;
        best = o;
    }
    if (best)
        unit_propose(unit_find(l->farm, best->meta->name), MACHINE_STEP_RELEASE,
                     l->deleted ? "TargetDeleted" : "Surplus", "", NULL, NULL);
}

void farm_pools(const struct farm_look *l)
{
    const struct target_spec *s = l->target->spec;
    struct farm *f = l->farm;

    release_one(l);
    if (f->ordering || l->now < f->order_after_ms || !f->complete_number || l->deleted ||
        s->unschedulable || s->drain || s->observeOnly || root_recovering(l->root))
        return;
    for (uint32_t i = 0; i < s->n_machines && !f->ordering; i++)
        if (more_wanted(l, &s->machines[i]))
            propose(l, &s->machines[i]);
}
