/* The causes for which running work moves without a user's request: its target is drained, its node
 * is sick or was announced to go away, a document forbids its place, its target is lost, or another
 * place is better. When a document changes, and from time to time, this looks at the workloads that
 * hold a place, in slices, and begins Migrations.
 *
 * It must never begin anything while the brake is on, and never let a lost workload's place go:
 * that is for the lease to decide. */

#include "controlplane/leader/move/causes.h"

#include "api/base/log.h"
#include "controlplane/leader/keep/events.h"
#include "controlplane/leader/move/begin.h"
#include "controlplane/leader/move/preempt.h"

#include <stdio.h>
#include <string.h>

#define SLICE 128            /* workloads looked at in one turn of the loop */
#define MUST_EVERY_MS 10000  /* a pass over all, should a change have gone unnoticed */
#define BETTER_EVERY_MS 2000 /* for a few workloads, whether another place is better */
#define BETTER_EACH 32
#define REPLACE_PER_SECOND 64 /* searches for a place for lost workloads */
#define SCAN 4096             /* workloads passed over in one turn, finished ones included */
#define AGAIN_MS 50
#define PLANS_MAX 64 /* on their way into the log at once */
/* Ahead of a deadline, beside its grace, what finds no other place begins to stop: a pass, and what
 * the entries take. */
#define NOTICE_LEAD_MS (MUST_EVERY_MS + 10000)
#define NOTICE_CALM_MS 60000 /* what began anew stays so long, whatever is told and taken back */

static void begun(void *arg, bool ok)
{
    struct brain *b = arg;

    if (ok || !b->leads)
        return;
    b->causes->due = true; /* the root has moved on: looked at again */
    timer_start(&b->causes->timer, AGAIN_MS);
}

static bool begin(struct brain *b, const struct object *w, enum move_cause cause,
                  const struct move_choice *c)
{
    struct move_begin m;
    struct migrate_cmd cmd = {.begins = &m, .n = 1};

    begin_take(b, &m, w, cause, c);
    str_copy(cmd.message, sizeof cmd.message, c->why);
    begin_propose(b, &cmd, begun, b);
    return true;
}

static struct place_request request(struct brain *b, const struct object *w)
{
    return (struct place_request){.workload = w,
                                  .now_ms = core_time_ms(b->cfg.core),
                                  .seed = loop_random_u64(b->loop) >> 12,
                                  .log_index = (int64_t)root_index(b->root)};
}

/* ---- what must leave ---- */
static bool movable(enum phase p)
{
    return p == PHASE_DISPATCHING || p == PHASE_STARTING || p == PHASE_RUNNING;
}

/* A drained target empties and what is forbidden stops; work on a node that goes away at a known
 * time runs for as long as it can still save in peace; work on a sick node, or on one that may go,
 * stays until something has room. */
bool causes_goes_anyway(struct brain *b, const struct object *w, enum move_cause cause)
{
    const struct node_notice *n =
        policy_notice(b->pool, object_as(w, workload)->status->placement, NULL);

    if (cause == MOVE_SPOT && n && n->deadline)
        return n->deadline - core_time_ms(b->cfg.core) <= workload_grace_ms(w) + NOTICE_LEAD_MS;
    return cause == MOVE_DRAIN || cause == MOVE_COMPLIANCE;
}

/* It has just come, and there is time: where notices come and go, work must not go with each. */
static bool has_just_come(struct brain *b, const struct object *w, enum move_cause cause)
{
    const struct workload_status *s = object_as(w, workload)->status;
    const struct node_notice *n = policy_notice(b->pool, s->placement, NULL);
    int64_t now = core_time_ms(b->cfg.core);
    int64_t left = s->n_ends ? s->ends[s->n_ends - 1].at + NOTICE_CALM_MS - now : 0;

    return cause == MOVE_SPOT && n && left > 0 &&
           (!n->deadline || n->deadline - now - left > workload_grace_ms(w) + NOTICE_LEAD_MS);
}

static void must_look(struct brain *b, const struct object *w)
{
    enum move_cause cause;
    AUTO_ARENA a = arena_create(0);
    struct place_request rq;
    struct move_choice c = {0};
    struct err err;

    if (!movable(object_as(w, workload)->status->phase) || !begin_possible(b, w))
        return;
    cause = policy_must_leave(b->pool, w, core_time_ms(b->cfg.core));
    if (!cause || has_just_come(b, w, cause))
        return;
    rq = request(b, w);
    if (policy_move(b->pool, &rq, cause, a, &c, &err)) {
        log_err(LOG_WARN, "move.cause", &err);
        return;
    }
    if (c.placement || causes_goes_anyway(b, w, cause))
        (void)begin(b, w, cause, &c);
    else
        events_stays(b, w, cause, c.why);
}

/* ---- what is better off elsewhere ---- */
static void better_look(struct brain *b, const struct object *w)
{
    AUTO_ARENA a = arena_create(0);
    struct place_request rq = request(b, w);
    struct move_choice c = {0};
    struct err err;

    if (object_as(w, workload)->status->phase != PHASE_RUNNING || !begin_possible(b, w))
        return;
    if (policy_move(b->pool, &rq, (enum move_cause)0, a, &c, &err)) {
        log_err(LOG_WARN, "move.cause", &err);
        return;
    }
    if (c.move && c.placement)
        (void)begin(b, w, c.cause, &c);
}

/* ---- passes, in slices ---- */
struct slice_walk {
    struct brain *b;
    struct cursor *at;
    void (*each)(struct brain *b, const struct object *w);
    unsigned left, scan; /* of those that hold a place; of all */
    bool full;
};
static bool slice_each(const struct object *o, void *arg)
{
    struct slice_walk *s = arg;
    const struct workload_status *st = object_as(o, workload)->status;

    str_copy(s->at->ns, sizeof s->at->ns, o->meta->namespace_);
    str_copy(s->at->name, sizeof s->at->name, o->meta->name);
    if (st && st->placement && phase_live(st->phase)) {
        s->each(s->b, o);
        s->left--;
    }
    s->full = s->left == 0 || --s->scan == 0 || begin_count(s->b) >= PLANS_MAX;
    return !s->full;
}

/* One slice; true when there is more behind it. */
static bool walk(struct brain *b, struct cursor *at, unsigned max,
                 void (*each)(struct brain *b, const struct object *w))
{
    struct slice_walk s = {.b = b, .at = at, .each = each, .left = max, .scan = SCAN};
    struct cursor from = *at;

    root_scan(b->root, KIND_WORKLOAD, NULL, *from.name ? from.ns : NULL,
              *from.name ? from.name : NULL, slice_each, &s);
    if (!s.full)
        *at = (struct cursor){0};
    return s.full;
}

static void tick(void *arg)
{
    struct brain *b = arg;
    struct causes *c = b->causes;
    uint64_t now = loop_now_ms(b->loop);
    bool more = false;

    if (!b->leads || !b->pool)
        return;
    if (now - c->must_ms >= MUST_EVERY_MS)
        c->due = true;
    if (!b->frozen && root_feature_level(b->root) >= FEATURE_MOVES && begin_count(b) < PLANS_MAX) {
        if (c->due || *c->must.name) {
            if (!*c->must.name) {
                c->due = false;
                c->must_ms = now;
            }
            more = walk(b, &c->must, SLICE, must_look) && begin_count(b) < PLANS_MAX;
        }
        if (now - c->better_ms >= BETTER_EVERY_MS) {
            c->better_ms = now;
            (void)walk(b, &c->better, BETTER_EACH, better_look);
        }
    }
    preempt_tick(b);
    timer_start(&c->timer, more ? 0 : c->due ? AGAIN_MS : BETTER_EVERY_MS);
}

void causes_look(struct brain *b)
{
    b->causes->due = true;
    if (b->leads)
        timer_start(&b->causes->timer, 0);
}

void causes_reset(struct brain *b)
{
    *b->causes =
        (struct causes){.must_ms = loop_now_ms(b->loop), .better_ms = loop_now_ms(b->loop)};
    timer_init(&b->causes->timer, b->loop, tick, b);
    causes_look(b);
}

void causes_drop(struct brain *b)
{
    if (b->causes->timer.loop)
        timer_stop(&b->causes->timer);
}

static bool notice_same(const struct node_notice *a, const struct node_notice *b)
{
    return !a == !b && (!a || body_equal(&schema_node_notice, a, b));
}

/* Does this change mean that somebody may have to leave? */
void causes_change(struct brain *b, enum kind_id kind, const struct object *before,
                   const struct object *after)
{
    const struct node_status *was, *is;

    switch (kind) {
    case KIND_TARGET:
    case KIND_COMPLIANCE_POLICY:
    case KIND_DATASET:
        if (!before || !after || before->meta->generation != after->meta->generation)
            causes_look(b);
        return;
    case KIND_NODE:
        was = before ? object_as(before, node)->status : NULL;
        is = after ? object_as(after, node)->status : NULL;
        if (!was || !is || was->health != is->health || !notice_same(was->notice, is->notice) ||
            !body_equal(&schema_node_spec, object_as(before, node)->spec,
                        object_as(after, node)->spec))
            causes_look(b);
        return;
    default:
        return;
    }
}

/* ---- what is lost ---- */
bool causes_replace(struct brain *b, const struct object *w)
{
    struct causes *k = b->causes;
    uint64_t now = loop_now_ms(b->loop);
    AUTO_ARENA a = arena_create(0);
    struct place_request rq = request(b, w);
    struct move_choice c = {0};
    struct err err;

    if (b->frozen || !b->pool || begin_count(b) >= PLANS_MAX || !begin_possible(b, w) ||
        root_feature_level(b->root) < FEATURE_MOVES)
        return false;
    if (now - k->second_ms >= 1000) {
        k->second_ms = now;
        k->looks = 0;
    }
    if (k->looks++ >= REPLACE_PER_SECOND)
        return false;
    if (policy_move(b->pool, &rq, MOVE_LOST, a, &c, &err)) {
        log_err(LOG_WARN, "move.cause", &err);
        return false;
    }
    if (!c.placement) {
        events_sometimes(b, w, "NotReplaced", c.why);
        return false;
    }
    return begin(b, w, MOVE_LOST, &c);
}
