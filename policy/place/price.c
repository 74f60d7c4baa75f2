/* The price of a useful GPU-hour: the price of the device over its relative speed; for spot also
 * the work that interruptions cost; and the egress of data and checkpoint, spread over the expected
 * run. */
#include "policy/place/place_internal.h"

#include <stdlib.h>
#include <string.h>

#define GIB 1073741824.0
#define CHECKPOINT_HOURS (1 / 3.) /* 20m, when the interval is not told */
#define UNKNOWN_RUN_HOURS 1.0     /* over which one-off costs are spread when no duration is told */

static bool copy_near(const struct copy_at *c, const struct target_rec *t)
{
    return c->target[0] ? strcmp(c->target, t->name) == 0
                        : c->region[0] && strcmp(c->region, t->spec->region) == 0;
}

static double egress_of(const struct pool *p, const struct target_rec *t)
{
    const struct object *o =
        t->spec ? docs_get(&p->docs[KIND_PRICE_SHEET], "", t->spec->priceSheet) : NULL;

    return o ? object_as(o, price_sheet)->spec->egressPerGiB : 0;
}

static void move_dataset(struct place *pl, struct row *r, const struct dataset_spec *d)
{
    const struct table *t = &pl->p->t;
    double least = -1;

    for (uint32_t i = 0; i < d->n_copies; i++) {
        if (copy_near(&d->copies[i], &t->targets[r->target]))
            return;
    }
    for (uint32_t i = 0; i < d->n_copies; i++) {
        for (uint32_t k = 0; k < t->n_targets; k++) {
            double egress;

            if (!t->targets[k].obj || !copy_near(&d->copies[i], &t->targets[k]))
                continue;
            egress = egress_of(pl->p, &t->targets[k]);
            least = least < 0 || egress < least ? egress : least;
        }
    }
    r->move_bytes += d->bytes;
    if (least > 0)
        r->move_cost += least * ((double)d->bytes / GIB);
}

static void move_checkpoint(struct place *pl, struct row *r)
{
    const struct table *t = &pl->p->t;
    const char *store = pl->spec->checkpoint ? pl->spec->checkpoint->store : "";
    const struct target_spec *s = t->targets[r->target].spec;
    double least = -1;

    if (!store[0] || !pl->status || !pl->status->checkpoint || pl->status->checkpoint->bytes <= 0 ||
        store_listed(store, s))
        return;
    r->move_state = pl->status->checkpoint->bytes;
    r->move_bytes += r->move_state;
    for (uint32_t k = 0; k < t->n_targets; k++) {
        const struct target_spec *o = t->targets[k].spec;
        double egress;

        if (!o || !store_listed(store, o))
            continue;
        egress = egress_of(pl->p, &t->targets[k]);
        least = least < 0 || egress < least ? egress : least;
    }
    if (least > 0)
        r->move_cost += least * ((double)r->move_state / GIB);
}

/* ---- one row ---- */
static double hours_lost(const struct place *pl) /* by one interruption */
{
    const struct checkpoint_spec *c = pl->spec->checkpoint;
    char *end;
    double interval = CHECKPOINT_HOURS, n;
    int64_t ms;

    if (!c)
        return RESTART_HOURS + (pl->duration_h > 0 ? pl->duration_h : UNKNOWN_RUN_HOURS) / 2;
    n = (double)strtol(c->interval, &end, 10); /* the common forms; auto and others count as 20m */
    if (end != c->interval && duration_parse(c->interval, &ms, NULL) == 0 && n > 0)
        interval = (double)ms / 3600000;
    return RESTART_HOURS + interval / 2;
}

bool money_above(double price, double cap)
{
    return price > cap * (1 + 1e-9);
}

static void check_caps(struct place *pl, struct row *r, double gpus)
{
    const struct workload_spec *s = pl->spec;
    double speed = class_speed(&pl->p->t, pl->p->t.groups[r->group].class_);

    if (s->deadline && pl->duration_h > 0 &&
        pl->rq->now_ms + (int64_t)(pl->left_h / speed * 3600000) > s->deadline) {
        r->reason = REASON_DEADLINE;
    } else if ((s->maxGpuHourPrice > 0 || s->maxCost > 0) && !r->priced) {
        r->reason = REASON_PRICE_UNKNOWN;
    } else if (s->maxGpuHourPrice > 0 && money_above(r->price, s->maxGpuHourPrice)) {
        r->reason = REASON_PRICE_CAP;
        r->x = (int64_t)(r->price * 10000 + 0.5);
        r->y = (int64_t)(s->maxGpuHourPrice * 10000 + 0.5);
        r->text = "per GPU-hour";
    } else if (s->maxCost > 0 &&
               money_above(pl->spent + r->useful * gpus * pl->left_h, s->maxCost)) {
        r->reason = REASON_PRICE_CAP;
        r->x = (int64_t)((pl->spent + r->useful * gpus * pl->left_h) * 10000 + 0.5);
        r->y = (int64_t)(s->maxCost * 10000 + 0.5);
        r->text = "in all";
    }
}

void price_row(struct place *pl, struct row *r)
{
    const struct group *g = &pl->p->t.groups[r->group];
    double gpus = (double)need_milli(&pl->need, pl->need.workers) / 1000;

    for (uint32_t i = 0; i < pl->spec->n_data; i++)
        move_dataset(pl, r, object_as(pl->datasets[i], dataset)->spec);
    move_checkpoint(pl, r);
    if (pl->need.mode == NEED_CPU) {
        r->priced = true; /* nothing is charged by the GPU-hour */
        return;
    }
    r->priced = price_of(g, pl->rq->now_ms, &r->price);
    if (!r->priced)
        r->price = 0;
    r->useful = r->price / class_speed(&pl->p->t, g->class_);
    if (g->capacity == CAPACITY_SPOT && r->priced)
        r->useful *= 1 + g->price->interruptionsPerHour * hours_lost(pl);
    r->rate = r->useful;
    if (r->move_cost > 0)
        r->useful += r->move_cost / (gpus * (pl->left_h > 0 ? pl->left_h : UNKNOWN_RUN_HOURS));
    check_caps(pl, r, gpus);
}

/* ---- what it costs, as a sentence ---- */
struct rented {
    const struct object **v;
    uint32_t n;
    double price;
    const char *currency; /* NULL: of several */
    bool untold;
};

/* A machine costs as it is, however much of it is used, and for whatever reason it was ordered. */
static void rented_add(struct place *pl, struct rented *r, const char *node)
{
    const struct object *n = docs_get(&pl->p->docs[KIND_NODE], "", node);
    const char *key = n ? object_as(n, node)->spec->machine : "";
    const struct object *o = key && *key ? docs_get(&pl->p->docs[KIND_MACHINE], "", key) : NULL;

    for (uint32_t i = r->n; o && i-- > 0;)
        if (r->v[i] == o)
            return;
    if (!o)
        return;
    const struct machine_status *s = object_as(o, machine)->status;
    if (s->price <= 0)
        r->untold = true;
    else if (r->price > 0 && r->currency && strcmp(r->currency, s->currency) != 0)
        r->currency = NULL;
    else if (r->price <= 0)
        r->currency = s->currency;
    r->price += s->price;
    r->v[r->n++] = o;
}

static const char *rented_text(struct place *pl, const struct rented *r)
{
    const char *what = r->n == 1 ? "a machine" : arena_printf(pl->a, "%u machines", r->n);

    if (r->untold)
        return arena_printf(pl->a, ", on %s whose price is not told", what);
    if (!r->currency)
        return arena_printf(pl->a, ", on %s billed in several currencies", what);
    return arena_printf(pl->a, ", on %s at %.2f%s%.3s an hour", what, r->price,
                        *r->currency ? " " : "", r->currency);
}

const char *price_text(struct place *pl, const struct placement *p)
{
    struct rented r = {.v = arena_array(pl->a, const struct object *, p->n_assignments + 1)};
    int64_t cents = (int64_t)(p->gpuHourPrice * 100 + 0.5);
    const char *each = pl->chosen->priced
                           ? arena_printf(pl->a, " at %lld.%02lld an hour", (long long)cents / 100,
                                          (long long)cents % 100)
                           : "";

    for (uint32_t i = 0; i < p->n_assignments; i++)
        if (!i || strcmp(p->assignments[i].node, p->assignments[i - 1].node) != 0)
            rented_add(pl, &r, p->assignments[i].node);
    if (r.n)
        return arena_printf(pl->a, "%s%s", each, rented_text(pl, &r));
    return *each ? each : ", price not known";
}
