/* The table of drivers: one for each workload that holds a place, by its uid, and linked to its
 * Target. A driver lives as long as its workload holds a place, and as an answer is awaited. This
 * file must never let a driver go on with what it knew of an epoch or try that is over. */
#include "controlplane/leader/drive/driver.h"

#include "controlplane/leader/drive/lease.h"
#include "controlplane/leader/drive/observed.h"
#include "controlplane/leader/keep/events.h"
#include "controlplane/leader/site/sites.h"

#include <search.h>
#include <stdio.h>
#include <string.h>

#define BACKOFF_MIN_MS 50

static int by_uid(const void *a, const void *b)
{
    return strcmp(((const struct driver *)a)->uid, ((const struct driver *)b)->uid);
}
struct driver *driver_find(struct brain *b, const char *uid)
{
    struct driver key;

    str_copy(key.uid, sizeof key.uid, uid);
    struct driver **found = tfind(&key, &b->drivers->by_uid, by_uid);
    return found ? *found : NULL;
}

void drivers_init(struct brain *b)
{
    list_init(&b->drivers->adrift);
}

unsigned drivers_count(const struct brain *b)
{
    return b->drivers->n;
}

static void again(void *arg)
{
    driver_tick(arg);
}
void driver_later(struct driver *d, uint64_t ms)
{
    timer_start(&d->again, ms);
}

static struct driver *driver_create(struct brain *b, const struct object *o)
{
    struct driver *d = mem_new(struct driver);

    d->brain = b;
    str_copy(d->uid, sizeof d->uid, o->meta->uid);
    str_copy(d->ns, sizeof d->ns, o->meta->namespace_);
    str_copy(d->name, sizeof d->name, o->meta->name);
    str_copy(d->key.uid, sizeof d->key.uid, o->meta->uid);
    d->backoff_ms = BACKOFF_MIN_MS;
    timer_init(&d->again, b->loop, again, d);
    list_init(&d->seat);
    INV(tsearch(d, &b->drivers->by_uid, by_uid));
    b->drivers->n++;
    return d;
}

/* A driver is linked to its Target, so that a change of reach, or a renewal, visits no others. */
static void driver_seat(struct driver *d)
{
    struct site *t = site_find(d->brain, d->target);

    list_remove(&d->seat);
    list_push(t ? &t->drivers : &d->brain->drivers->adrift, &d->seat);
}

void drivers_seat(struct site *t)
{
    list_for_each_safe (it, tmp, &t->brain->drivers->adrift) {
        struct driver *d = container_of(it, struct driver, seat);
        if (strcmp(d->target, t->name))
            continue;
        list_remove(&d->seat);
        list_push(&t->drivers, &d->seat);
    }
}

void drivers_unseat(struct site *t)
{
    struct list *it;

    while ((it = list_pop(&t->drivers)) != NULL)
        list_push(&t->brain->drivers->adrift, it);
}

/* Takes in the workload as the newest root has it. */
static void driver_take(struct driver *d, const struct object *o)
{
    const struct workload_status *s = object_as(o, workload)->status;
    int64_t try_ = s->intent ? s->intent->try_ : 0;
    bool first = !d->o, moved = d->key.epoch != s->epoch;

    (void)object_unref(d->o);
    d->o = object_ref(o);
    if (s->placement && (first || strcmp(d->target, s->placement->target))) {
        str_copy(d->target, sizeof d->target, s->placement->target);
        driver_seat(d);
    }
    if (moved || d->key.try_ != try_) {
        d->key.epoch = s->epoch;
        d->key.try_ = try_;
        d->has_seen = d->quiesced = false;
        d->untold_since_ms = 0;
        d->unlisted_ms = 0;
        d->refused.class_ = (enum refusal_class)0;
        driver_told_forget(d);
        d->found_session = 0;
        d->stop_after_ms = d->stop_grace_ms = 0;
        d->sent = (struct order_sent){0};
        if (moved) {
            d->told_step = -1;
            d->bad_checkpoints = 0;
        }
        d->backoff_ms = BACKOFF_MIN_MS;
    }
    if (s->phase != PHASE_UNKNOWN)
        d->unknown_since_ms = 0;
    else if (!d->unknown_since_ms)
        d->unknown_since_ms = loop_now_ms(d->brain->loop);
    if (first) /* an earlier leader sent its last renewal before this one's election */
        lease_renewed(d, loop_now_ms(d->brain->loop));
    lease_pace(d);
}

/* The driver was dropped while a call was under way, and its workload holds a place again, in a new
 * epoch or a new term. Nothing that the driver knew counts any more. */
static void driver_revive(struct driver *d)
{
    d->dead = false;
    (void)object_unref(d->o);
    d->o = NULL;
    d->key.epoch = d->key.try_ = -1;
    d->own_epoch = d->own_try = 0;
    d->looked_epoch = d->look_epoch = 0;
    d->renewed_ms = 0;
}

static bool holds(const struct object *o)
{
    const struct workload_status *s = o ? object_as(o, workload)->status : NULL;

    return s && phase_holds(s->phase) && !workload_array(object_as(o, workload));
}

/* What says where and how it runs; the rest holds for a run that is there, or for none. */
bool driver_spec_waits(const struct object *before, const struct object *after)
{
    const struct workload_status *s = object_as(after, workload)->status;
    struct workload_spec was = *object_as(before, workload)->spec;
    const struct workload_spec *is = object_as(after, workload)->spec;
    struct run_spec run;

    if (before->meta->generation == after->meta->generation || !holds(before) || !holds(after) ||
        s->phase == PHASE_RESERVED)
        return false;
    was.type = is->type;
    was.priorityClassName = is->priorityClassName;
    was.queue = is->queue;
    was.expected = is->expected;
    was.deadline = is->deadline;
    was.maxCost = is->maxCost;
    was.maxGpuHourPrice = is->maxGpuHourPrice;
    was.suspend = is->suspend;
    was.experiment = is->experiment;
    was.user = is->user;
    was.ttlSecondsAfterFinished = is->ttlSecondsAfterFinished;
    was.saveRequest = is->saveRequest;
    was.partition = is->partition; /* its lease follows (lease.c) */
    if (was.run && is->run) {
        run = *was.run;
        run.retries = is->run->retries; /* counted when it ends */
        was.run = &run;
    }
    return !body_equal(&schema_workload_spec, &was, is);
}

static void spec_waits_tell(struct brain *b, const struct object *o)
{
    char text[300];

    (void)snprintf(text, sizeof text,
                   "its spec was changed while it runs: epoch %lld goes on as it was started, and "
                   "what says where and how it runs (gang, resources, run, targets) counts from "
                   "its next epoch on",
                   (long long)object_as(o, workload)->status->epoch);
    events_sometimes(b, o, "SpecChanged", text);
}

void driver_change(struct brain *b, const struct object *before, const struct object *after)
{
    const struct object *o = after ? after : before;
    struct driver *d = driver_find(b, o->meta->uid);

    if (before && after && driver_spec_waits(before, after))
        spec_waits_tell(b, after);
    if (!d && !holds(after))
        return;
    if (!d)
        d = driver_create(b, after);
    else if (d->dead && holds(after))
        driver_revive(d);
    if (holds(after))
        driver_take(d, after);
    else
        driver_over(d);
    driver_tick(d);
}

static bool reset_each(const struct object *o, void *arg)
{
    if (holds(o))
        driver_change(arg, NULL, o);
    return true;
}
void drivers_reset(struct brain *b)
{
    root_scan(b->root, KIND_WORKLOAD, NULL, NULL, NULL, reset_each, b);
}

struct gather {
    struct driver **v;
    unsigned n;
};
static void gather_each(const void *node, VISIT v, void *arg)
{
    struct gather *g = arg;

    if (v == postorder || v == leaf)
        g->v[g->n++] = *(struct driver *const *)node;
}
static struct gather gather(struct brain *b)
{
    struct gather g = {mem_alloc((b->drivers->n + 1) * sizeof(struct driver *)), 0};

    twalk_r(b->drivers->by_uid, gather_each, &g);
    return g;
}
/* A tick may free a driver, and a connector may answer at once: this walks a copy of the list. */
void drivers_tick_target(struct site *t)
{
    struct gather g = {NULL, 0};
    unsigned n = 0;

    list_for_each (it, &t->drivers)
        n++;
    g.v = mem_alloc((n + 1) * sizeof(struct driver *));
    list_for_each (it, &t->drivers)
        g.v[g.n++] = container_of(it, struct driver, seat);
    for (unsigned i = 0; i < g.n; i++)
        driver_tick(g.v[i]);
    mem_free(g.v);
}
void drivers_drop(struct brain *b)
{
    struct gather g = gather(b);

    for (unsigned i = 0; i < g.n; i++) {
        g.v[i]->dead = true;
        driver_free(g.v[i]);
    }
    mem_free(g.v);
}

void driver_free(struct driver *d)
{
    timer_stop(&d->again);
    if (d->proposing || d->calling || d->hurrying || d->telling)
        return;
    list_remove(&d->seat);
    (void)tdelete(d, &d->brain->drivers->by_uid, by_uid);
    d->brain->drivers->n--;
    (void)object_unref(d->o);
    driver_told_forget(d);
    mem_free(d);
}
