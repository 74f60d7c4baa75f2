/* The scheduler: a pool and a queue that follow the root, and the commands for what cycles
 * (cycle.c) decide. Apply checks again and may refuse, because the state moved on; the next cycle
 * then looks anew. The answers to one cycle are awaited before the next, so that a pool never holds
 * two guesses for one workload. */

#include "controlplane/leader/queue/scheduler.h"

#include "api/base/failpoint.h"
#include "api/base/log.h"
#include "controlplane/leader/move/begin.h"
#include "controlplane/leader/move/causes.h"
#include "controlplane/leader/move/mover.h"
#include "controlplane/leader/move/preempt.h"
#include "controlplane/leader/queue/cycle.h"
#include "controlplane/leader/queue/waiting.h"
#include "controlplane/leader/recover/orphans.h"

#include <stdio.h>
#include <string.h>

static int zone(void *arg, const char *name, int64_t utc_ms, int32_t *ret_s)
{
    struct brain *b = arg;
    int s = 0;

    if (!b->cfg.zone_offset || !b->cfg.zone_offset(name, utc_ms, &s))
        return E_NOTFOUND;
    *ret_s = s;
    return 0;
}

/* ---- the pool follows the root ---- */
static void moving_hold(struct brain *b, const char *ns, const char *migration)
{
    const struct object *o = root_get(b->root, KIND_MIGRATION, ns, migration);

    if (o)
        move_hold(b, o);
}

static void workload_hold(struct brain *b, const struct object *o)
{
    const struct workload_status *s = object_as(o, workload)->status;

    if (s && s->placement && phase_holds(s->phase))
        pool_hold(b->pool, o);
    else
        pool_drop(b->pool, o->meta->uid);
    if (s && *s->migration && !phase_holds(s->phase)) /* its destination counts for its queue now */
        moving_hold(b, o->meta->namespace_, s->migration);
    preempt_nominee(b, o);
}

static bool on_shut_machine(struct brain *b, const struct object *o)
{
    const char *machine = object_as(o, node)->spec->machine;

    return *machine && machine_shut(root_get(b->root, KIND_MACHINE, "", machine));
}

/* A node on which something runs that the state cannot answer for takes nothing new: what its
 * devices are used for is not known. Nor does one whose machine is let go,
 * or would be if nothing ran there. */
void scheduler_node(struct brain *b, const struct object *o)
{
    AUTO_ARENA a = arena_create(0);

    if (!b->pool)
        return;
    if (!orphan_on_node(b, object_as(o, node)->spec->target, o->meta->name) &&
        !on_shut_machine(b, o)) {
        pool_put(b->pool, o);
        scheduler_want(b);
        return;
    }
    struct node *n = object_edit_as(o, node, a);
    n->spec->unschedulable = true;
    struct object *closed = NULL;
    if (object_make_within(o->kind, n, OBJECT_MADE_MAX_BYTES, &closed, NULL) == 0)
        pool_put(b->pool, closed);
    else
        pool_remove(b->pool, KIND_NODE, "", o->meta->name);
    (void)object_unref(closed);
}

struct machine_nodes {
    struct brain *b;
    const struct object *machine;
    size_t prefix;
};

static bool machine_nodes_each(const struct object *o, void *arg)
{
    struct machine_nodes *x = arg;
    const struct machine_spec *s = object_as(x->machine, machine)->spec;

    if (strncmp(o->meta->name, s->target, x->prefix) != 0 || o->meta->name[x->prefix] != '.')
        return false;
    if (!strcmp(object_as(o, node)->spec->machine, x->machine->meta->name))
        scheduler_node(x->b, o);
    return true;
}

/* Its nodes take nothing new from now on, or do again. */
static void machine_follow(struct brain *b, const struct object *before, const struct object *after)
{
    const struct object *o = after ? after : before;
    const char *target = object_as(o, machine)->spec->target;
    struct machine_nodes x = {b, o, strlen(target)};
    AUTO_ARENA a = arena_create(0);

    if (before && machine_shut(before) != machine_shut(after))
        root_scan(b->root, KIND_NODE, NULL, "", arena_printf(a, "%s.", target), machine_nodes_each,
                  &x);
}

static bool pool_take(const struct object *o, void *arg)
{
    struct brain *b = arg;

    if (o->kind->id == KIND_WORKLOAD) {
        workload_hold(b, o);
        waiting_change(b, NULL, o);
    } else if (o->kind->id == KIND_MIGRATION) {
        move_hold(b, o);
    } else if (o->kind->id == KIND_NODE) {
        scheduler_node(b, o);
    } else {
        pool_put(b->pool, o);
    }
    return true;
}

void scheduler_reset(struct brain *b)
{
    cycle_drop(b);
    waiting_reset(b);
    b->pool = pool_destroy(b->pool);
    preempt_reset(b);
    b->pool = pool_create();
    pool_set_zone_resolver(b->pool, zone, b);
    for (int k = 1; k < KIND_LIMIT; k++)
        if (pool_reads((enum kind_id)k))
            root_scan(b->root, (enum kind_id)k, NULL, NULL, NULL, pool_take, b);
    root_scan(b->root, KIND_WORKLOAD, NULL, NULL, NULL, pool_take, b);
    root_scan(b->root, KIND_MIGRATION, NULL, NULL, NULL, pool_take, b);
    scheduler_want(b);
}

static bool spec_changed(const struct object *before, const struct object *after)
{
    return !before || !after || before->meta->generation != after->meta->generation ||
           before->meta->deletionTimestamp != after->meta->deletionTimestamp;
}

void scheduler_change(struct brain *b, const struct change *c)
{
    const struct object *before = c->before, *after = c->after;
    enum kind_id kind = c->kind;

    if (!b->pool)
        return;
    if (kind == KIND_MACHINE)
        machine_follow(b, before, after);
    if (kind == KIND_WORKLOAD) {
        waiting_change(b, before, after);
        if (after)
            workload_hold(b, after);
        else
            pool_drop(b->pool, before->meta->uid);
        if (!after && object_as(before, workload)->status &&
            object_as(before, workload)->status->nominated)
            pool_nominate(b->pool, before, NULL);
        const struct workload_status *was = before ? object_as(before, workload)->status : NULL;
        bool freed = was && was->placement && phase_holds(was->phase) &&
                     (!after || !phase_holds(object_as(after, workload)->status->phase));
        if (freed || (after && workload_stopped_held(after)) ||
            (after && workload_queued(after) &&
             (!before || !workload_queued(before) || spec_changed(before, after))))
            scheduler_want(b);
        if (freed)
            movers_look(b);
    } else if (kind == KIND_MIGRATION) {
        if (after)
            move_hold(b, after);
        else
            pool_drop(b->pool, before->meta->uid);
        const struct migration_status *was = before ? object_as(before, migration)->status : NULL;
        const struct migration_status *is = after ? object_as(after, migration)->status : NULL;
        if (was && move_holds(was->phase) && (!is || !move_holds(is->phase)))
            scheduler_want(b); /* its destination may be free */
    } else if (pool_reads(kind)) {
        if (after && kind == KIND_NODE)
            scheduler_node(b, after);
        else if (after)
            pool_put(b->pool, after);
        else
            pool_remove(b->pool, kind, before->meta->namespace_, before->meta->name);
        /* A Target's or Queue's own status says nothing new about room. */
        if (spec_changed(before, after) || kind == KIND_NODE) {
            scheduler_want(b);
            movers_look(b);
        }
        causes_change(b, kind, before, after);
    }
}

void scheduler_reach(struct brain *b, const char *target, bool reachable)
{
    if (b->pool) {
        pool_target_reachable(b->pool, target, reachable ? REACH_YES : REACH_NO);
        scheduler_want(b);
        movers_look(b);
    }
}

void scheduler_want(struct brain *b)
{
    cycle_want(b);
}

/* ---- into the log ---- */
struct placing {
    struct brain *brain;
    char uid[64];
    bool placed;
};
static void place_answered(void *arg, const struct result *r, const struct err *err);

/* A step of the machine of a workload that holds nothing. */
void scheduler_step(struct brain *b, const struct object *o, enum run_step step, const char *reason,
                    const char *message)
{
    const struct workload_status *s = object_as(o, workload)->status;
    union command c = {.run = {.head = {.type = CMD_RUN, .user = "hanse:scheduler"},
                               .step = step,
                               .epoch = s->epoch,
                               .try_ = s->intent ? s->intent->try_ : 0}};
    struct placing *pl = mem_new(struct placing);

    brain_request_id(b, c.run.head.request_id);
    str_copy(c.run.ns, sizeof c.run.ns, o->meta->namespace_);
    str_copy(c.run.name, sizeof c.run.name, o->meta->name);
    str_copy(c.run.uid, sizeof c.run.uid, o->meta->uid);
    str_copy(c.run.reason, sizeof c.run.reason, reason);
    str_copy(c.run.message, sizeof c.run.message, message);
    pl->brain = b;
    str_copy(pl->uid, sizeof pl->uid, o->meta->uid);
    cycle_proposed(b);
    brain_propose(b, &c, place_answered, pl);
}

/* A place that was guessed and refused is held no more; what the root has by now is. */
static void hold_again(struct brain *b, const char *uid)
{
    const struct object *o = b->pool ? root_workload_by_uid(b->root, uid) : NULL;

    if (o)
        workload_hold(b, o);
    else if (b->pool)
        pool_drop(b->pool, uid);
}

static void place_answered(void *arg, const struct result *r, const struct err *err)
{
    struct placing *p = arg;
    struct brain *b = p->brain;
    bool refused = err || r->code;

    if (p->placed && refused) {
        b->scheduler->refused++;
        hold_again(b, p->uid);
        if (!err && r->code != E_PLACE && r->code != E_STALE && r->code != E_CONFLICT)
            log_event(LOG_WARN, "place.refused",
                      LOG_FIELDS({"uid", log_str(p->uid)}, {"why", log_str(r->text)}));
    }
    if (p->placed && !refused)
        b->scheduler->placed++;
    mem_free(p);
    cycle_answered(b, refused);
}

void scheduler_tell(struct brain *b, const struct cycle_item *it)
{
    const struct object *o = it->workload;
    const struct workload *w = object_as(o, workload);
    union command c = {.place = {.head = {.type = CMD_PLACE, .user = "hanse:scheduler"}}};
    struct place_cmd *p = &c.place;
    struct placing *pl = mem_new(struct placing);

    brain_request_id(b, p->head.request_id);
    str_copy(p->ns, sizeof p->ns, o->meta->namespace_);
    str_copy(p->name, sizeof p->name, o->meta->name);
    str_copy(p->uid, sizeof p->uid, o->meta->uid);
    p->epoch = w->status->epoch;
    p->rv_read = root_rv(b->root);
    p->decision = it->decision;
    p->decision->queuePosition = it->position;
    p->placement = it->placement;
    str_copy(p->queue, sizeof p->queue, it->decision->queue ? it->decision->queue : "");
    pl->brain = b;
    pl->placed = it->placement != NULL;
    str_copy(pl->uid, sizeof pl->uid, o->meta->uid);
    cycle_proposed(b);
    brain_propose(b, &c, place_answered, pl);
}
