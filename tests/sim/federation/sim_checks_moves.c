/* What must hold of moves (sim_checks.c has the rest):
 *   M1  no Migration is open and no node is held when all has ended
 *   M2  a new epoch begins in the log only after the one ahead of it was proved ended
 *   M3  a victim is of a class that may be one
 *   M4  what is lost and is to be replaced keeps its place until a replacement is held
 *   M5  a destination that was held becomes the place of the next epoch, or is let go
 *   M6  who is told to make room, or to move, keeps its place in the queue
 *   M7  who moves for gain has stayed for minStay, has not moved within atMostEvery, and saves: so
 *       the moves of an hour are bounded, whatever prices do
 *
 * Looks only. */
#include "tests/sim/federation/sim_federation.h"

#include "controlplane/store/store_internal.h"

#include <stdio.h>
#include <string.h>

static bool open_each(const struct object *o, void *arg)
{
    const struct migration_status *s = object_as(o, migration)->status;
    char *why = arg;

    if (!s || !move_open(s->phase))
        return true;
    (void)snprintf(why, 256, "%s of %s is %s (%s: %s)", o->meta->name,
                   object_as(o, migration)->spec->workload, move_phase_text(s->phase), s->reason,
                   s->message);
    return false;
}
bool fed_moves_over(struct fed *f)
{
    struct root *r = fed_newest(f);
    char why[256] = "";

    if (r)
        root_scan(r, KIND_MIGRATION, NULL, NULL, NULL, open_each, why);
    (void)root_unref(r);
    return !*why;
}

struct look {
    struct fed *f;
    const struct root *r;
    bool holds;
};
static bool holds_each(const struct object *o, void *arg)
{
    const struct workload_status *s = object_as(o, workload)->status;
    struct look *l = arg;

    l->holds |= phase_holds(s->phase);
    if (*s->migration)
        fed_fail(l->f, "M1: %s still tells of migration %s at the end", o->meta->name,
                 s->migration);
    if (s->nominated)
        fed_fail(l->f, "M1: room is still kept for %s at the end", o->meta->name);
    return true;
}
static bool usage_each(const struct object *o, void *arg)
{
    struct look *l = arg;
    struct node_usage u;

    if (root_usage(l->r, o->meta->name, &u) && (u.cpu_milli || u.gpu_milli || u.memory_bytes))
        fed_fail(l->f, "M1: %s is held at the end: %lld milli-CPU, %lld milli-GPU", o->meta->name,
                 (long long)u.cpu_milli, (long long)u.gpu_milli);
    return true;
}
void fed_check_moves_end(struct fed *f, const struct root *r)
{
    struct look l = {.f = f, .r = r};
    char why[256] = "";

    root_scan(r, KIND_MIGRATION, NULL, NULL, NULL, open_each, why);
    if (*why)
        fed_fail(f, "M1: %s at the end", why);
    root_scan(r, KIND_WORKLOAD, NULL, NULL, NULL, holds_each, &l);
    if (!l.holds)
        root_scan(r, KIND_NODE, NULL, NULL, NULL, usage_each, &l);
}

/* ---- as it goes ---- */
static bool ended(const struct workload_status *s, int64_t epoch)
{
    for (uint32_t i = 0; i < s->n_ends; i++)
        if (s->ends[i].epoch == epoch && s->ends[i].proof)
            return true;
    return false;
}
static const struct placement *held_for(const struct root *r, const struct object *w,
                                        const char *migration)
{
    const struct object *o =
        *migration ? root_get(r, KIND_MIGRATION, w->meta->namespace_, migration) : NULL;
    const struct migration_status *s = o ? object_as(o, migration)->status : NULL;

    return s ? s->placement : NULL;
}
static void check_workload(struct fed *f, const struct root *r, const struct object *o,
                           const struct workload_status *was, const struct workload_status *is)
{
    const struct workload_spec *spec = object_as(o, workload)->spec;
    bool let_go = phase_holds(was->phase) && !phase_holds(is->phase);

    /* Epochs that were never started (given back from Reserved) leave no end. */
    if (root_recovering(r) && is->epoch > was->epoch) /* taken over from where it went on */
        return;
    if (is->epoch > was->epoch && phase_live(was->phase))
        fed_fail(f, "M2: %s goes from epoch %lld to %lld while it is %s", o->meta->name,
                 (long long)was->epoch, (long long)is->epoch, phase_text(was->phase));
    if (phase_live(was->phase) && !phase_live(is->phase) && is->phase != PHASE_RESERVED &&
        !ended(is, was->epoch))
        fed_fail(f, "M2: %s is %s, and nothing proves the end of epoch %lld", o->meta->name,
                 phase_text(is->phase), (long long)was->epoch);
    if (*was->migration && phase_live(was->phase) && is->phase == PHASE_QUEUED &&
        is->retries == was->retries && is->queuedAt != was->queuedAt)
        fed_fail(f, "M6: %s was told to move, and goes to the end of the queue", o->meta->name);
    if (let_go && was->phase == PHASE_UNKNOWN && is->n_ends &&
        is->ends[is->n_ends - 1].proof == PROOF_LEASE_EXPIRED && spec->partition &&
        spec->partition->mode == PARTITION_REPLACE && !spec->suspend &&
        !o->meta->deletionTimestamp && !(spec->deadline && root_time(r) >= spec->deadline) &&
        !(was->intent && was->intent->op == INTENT_STOP) && !held_for(r, o, is->migration) &&
        !(is->epoch > was->epoch))
        fed_fail(f, "M4: %s lets its place go by its lease, and no replacement is held",
                 o->meta->name);
}

/* Against the state as it was seen last, which is not newer: never too strict. */
static void check_gain(struct fed *f, const struct root *r, const struct migration *g,
                       const struct meta *name)
{
    const struct object *o =
        f->newest ? root_get(f->newest, KIND_WORKLOAD, name->namespace_, g->spec->workload) : NULL;
    const struct workload_status *s = o ? object_as(o, workload)->status : NULL;
    int64_t now = root_time(r);

    f->gains++;
    if (g->spec->cause == MOVE_CHEAPER && g->status->saving <= 0)
        fed_fail(f, "M7: %s moves to a cheaper place and saves %.3f", g->spec->workload,
                 g->status->saving);
    if (s && s->movedAt && now - s->movedAt < FED_AT_MOST_EVERY_MS)
        fed_fail(f, "M7: %s moves for %s %lld ms after it was moved", g->spec->workload,
                 move_cause_text(g->spec->cause), (long long)(now - s->movedAt));
    if (s && s->phase == PHASE_RUNNING && now - s->phaseSince < FED_MIN_STAY_MS)
        fed_fail(f, "M7: %s moves for %s after %lld ms", g->spec->workload,
                 move_cause_text(g->spec->cause), (long long)(now - s->phaseSince));
}
static bool never_victim(const struct root *r, const struct object *w)
{
    const char *name = object_as(w, workload)->spec->priorityClassName;
    const struct object *c = name && *name ? root_get(r, KIND_PRIORITY_CLASS, "", name) : NULL;

    return c && object_as(c, priority_class)->spec->neverVictim;
}
static void check_migration(struct fed *f, const struct root *r, const struct change *c)
{
    const struct migration *g = object_as(c->after, migration);
    const struct migration_status *is = g->status,
                                  *was = c->before ? object_as(c->before, migration)->status : NULL;
    const struct object *w =
        root_get(r, KIND_WORKLOAD, c->after->meta->namespace_, g->spec->workload);

    if (!is)
        return;
    f->moves[is->phase]++;
    if (!c->before || !was)
        f->causes[g->spec->cause]++;
    if (!c->before && (g->spec->cause == MOVE_CHEAPER || g->spec->cause == MOVE_DATA ||
                       g->spec->cause == MOVE_REPATRIATE))
        check_gain(f, r, g, c->after->meta);
    if ((g->spec->cause == MOVE_PREEMPTION || g->spec->cause == MOVE_RECLAIM) && !c->before && w &&
        never_victim(r, w))
        fed_fail(f, "M3: %s is a victim, and its class never is one", g->spec->workload);
    /* Changes of one entry are looked at with the state after all of them: an epoch beyond is
     * fine. */
    if (was && is->phase == MP_STARTING && was->phase != MP_STARTING && w) {
        const struct workload_status *s = object_as(w, workload)->status;
        if (s->epoch < is->toEpoch)
            fed_fail(f, "M5: %s starts, and its workload is in epoch %lld", c->after->meta->name,
                     (long long)s->epoch);
    }
    if (!move_holds(is->phase) && is->phase != MP_STARTING && is->placement &&
        !move_open(is->phase) && is->phase != MP_SUCCEEDED)
        fed_fail(f, "M5: %s is %s and still names a place", c->after->meta->name,
                 move_phase_text(is->phase));
}

void fed_check_move(struct fed *f, const struct root *r, const struct change *c)
{
    if (c->kind == KIND_MIGRATION && c->after)
        check_migration(f, r, c);
    if (c->kind == KIND_WORKLOAD && c->after && c->before &&
        object_as(c->before, workload)->status && object_as(c->after, workload)->status)
        check_workload(f, r, c->after, object_as(c->before, workload)->status,
                       object_as(c->after, workload)->status);
}
