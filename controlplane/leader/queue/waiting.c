/* The workloads that wait for a place, in the order of the lanes (policy.h), kept up to date with
 * the root. A version of the queue stays as it is while a cycle walks it.
 *
 * The queue must never be asked whether a workload still waits: only the root knows. */
#include "controlplane/leader/queue/waiting.h"

#include "controlplane/leader/queue/held.h"

#include <string.h>

static void value_ref(const void *v)
{
    (void)object_ref(v);
}
static void value_unref(const void *v)
{
    (void)object_unref(v);
}
static const struct tree_value_ops values = {value_ref, value_unref};

bool workload_queued(const struct object *o)
{
    const struct workload *w = object_as(o, workload);

    return w->status && w->status->phase == PHASE_QUEUED && !w->spec->suspend &&
           !o->meta->deletionTimestamp && !*w->status->migration && !workload_array(w);
}

bool workload_stopped_held(const struct object *o)
{
    const struct workload *w = object_as(o, workload);

    return w->status && w->status->phase == PHASE_STOPPED && w->spec->suspend &&
           !o->meta->deletionTimestamp;
}

static struct slice key_of(const struct object *o, struct wait_key *k)
{
    policy_wait_key(o, k);
    return slice_make(k->p, k->n);
}

static void follow(struct tree **t, const struct object *before, const struct object *after,
                   bool was, bool is)
{
    struct wait_key k, now;

    if (was)
        (void)key_of(before, &k);
    if (is)
        (void)key_of(after, &now);
    if (was && !(is && k.n == now.n && !memcmp(k.p, now.p, k.n)))
        *t = tree_del_own(*t, slice_make(k.p, k.n));
    if (is)
        *t = tree_put_own(*t, slice_make(now.p, now.n), after);
}

void waiting_change(struct brain *b, const struct object *before, const struct object *after)
{
    struct waiting *w = b->waiting;
    bool held = held_back(b, before, after);

    follow(&w->queued, before, after, before && workload_queued(before),
           after && workload_queued(after) && !held);
    follow(&w->stopped, before, after, before && workload_stopped_held(before),
           after && workload_stopped_held(after));
}

void waiting_enter(struct brain *b, const struct object *o)
{
    follow(&b->waiting->queued, NULL, o, false, true);
}

struct tree *waiting_tree(void)
{
    return tree_create(&values);
}

void waiting_drop(struct brain *b)
{
    (void)tree_unref(b->waiting->resume);
    (void)tree_unref(b->waiting->queued);
    (void)tree_unref(b->waiting->stopped);
    *b->waiting = (struct waiting){0};
}

void waiting_reset(struct brain *b)
{
    waiting_drop(b);
    held_reset(b);
    *b->waiting = (struct waiting){waiting_tree(), waiting_tree(), waiting_tree()};
}

/* ---- along the lanes ---- */
struct look {
    const unsigned char *after; /* exclusive; NULL: from the start */
    size_t n, lane;             /* lane: of the key, that all of it must share; 0 = any */
    const struct object *found;
};

static bool look_each(struct slice key, const void *value, void *arg)
{
    struct look *x = arg;

    if (x->after && key.n == x->n && !memcmp(key.p, x->after, x->n))
        return true;
    if (!x->lane || (x->after && key.n >= x->lane && !memcmp(key.p, x->after, x->lane)))
        x->found = value;
    return false;
}

const struct object *waiting_next(const struct tree *t, const struct object *o)
{
    struct wait_key k;
    struct look x = {.after = k.p};

    (void)key_of(o, &k);
    x.n = k.n;
    x.lane = k.lane;
    tree_scan(t, slice_make(k.p, k.n), look_each, &x);
    return x.found;
}

const struct object *waiting_lane(const struct tree *t, const struct object *o)
{
    struct wait_key k;
    struct look x = {.after = k.p};

    if (!o) {
        x.after = NULL;
        tree_scan(t, slice_make("", 0), look_each, &x);
        return x.found;
    }
    (void)key_of(o, &k);
    /* The lane's part ends with a zero byte: nothing of the lane lies behind a one there. */
    k.p[k.lane - 1] = 1;
    x.n = k.lane;
    tree_scan(t, slice_make(k.p, k.lane), look_each, &x);
    return x.found;
}
