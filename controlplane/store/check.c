/* What must hold of every root. root_check is for tests and the simulator: it computes every
 * derived figure again from the objects, and aborts at the first difference. root_object_sound
 * guards the reading of snapshots, so that a bad one is an error and not an abort. */
#include "controlplane/store/store_internal.h"

#include <stdio.h>

#define HELD_MAX ((int64_t)1 << 50)

static bool assignment_sound(const struct root *r, const struct placement *p,
                             const struct assignment *a)
{
    struct node_usage now = {0};

    if (!*a->node || strlen(a->node) > 253 || strlen(a->mig) > 32 || a->gpuMilli < 0 ||
        a->gpuMilli > 1000 || a->count < 0 || a->count > LIMIT_NODE_COUNTED || a->shares < 0 ||
        a->shares > LIMIT_GPU_SHARES)
        return false;
    (void)root_usage(r, a->node, &now);
    if (now.cpu_milli > HELD_MAX - p->cpu || now.memory_bytes > HELD_MAX - p->memory ||
        a->n_gpus > LIMIT_NODE_GPUS)
        return false;
    for (uint32_t i = 0; i < a->n_gpus; i++) {
        if (a->gpus[i] < 0 || a->gpus[i] >= LIMIT_NODE_GPUS)
            return false;
        for (uint32_t j = 0; j < i; j++)
            if (a->gpus[i] == a->gpus[j])
                return false;
        if (!*a->mig && now.device_milli[a->gpus[i]] + a->gpuMilli > 1000)
            return false;
    }
    return true;
}

bool root_hold_fits(const struct root *r, const struct placement *own, const struct placement *p)
{
    if (p->cpu < 0 || p->cpu > HELD_MAX || p->memory < 0 || p->memory > HELD_MAX || p->gpus < 0 ||
        p->gpus > HELD_MAX || strlen(p->class_) > 63 || strlen(p->target) > 253)
        return false;
    struct root *scratch = root_fork(r);
    bool ok = true;
    for (uint32_t i = 0; own && i < own->n_assignments; i++)
        root_usage_take(scratch, own, &own->assignments[i]);
    for (uint32_t i = 0; ok && i < p->n_assignments; i++) {
        ok = assignment_sound(scratch, p, &p->assignments[i]);
        if (ok)
            root_usage_add(scratch, p, &p->assignments[i]);
    }
    (void)root_unref(scratch);
    return ok;
}

/* Its phase says that indexes run: it holds nothing itself. */
static bool array_sound(const struct workload *w)
{
    AUTO_ARENA a = arena_create(STORE_SCRATCH_MAX_BYTES);
    struct index_sets x;

    return (w->status->phase == PHASE_QUEUED || w->status->phase == PHASE_RUNNING ||
            phase_final(w->status->phase)) &&
           !w->status->placement && index_sets_read(w->status, a, &x);
}

bool root_object_sound(const struct root *r, const struct object *o)
{
    if (!*o->meta->uid || (o->kind->namespaced != (*o->meta->namespace_ != 0)))
        return false;
    if (o->kind->id == KIND_NODE)
        return object_as(o, node)->spec != NULL;
    if (o->kind->id == KIND_TARGET)
        return object_as(o, target)->spec != NULL;
    if (o->kind->id == KIND_MIGRATION)
        return object_as(o, migration)->spec &&
               (!object_hold(o) || root_hold_fits(r, NULL, object_hold(o)));
    if (o->kind->id != KIND_WORKLOAD)
        return true;
    const struct workload *w = object_as(o, workload);
    if (!w->spec || !w->status || strlen(w->status->queue) > 253 ||
        root_workload_by_uid(r, o->meta->uid))
        return false;
    if (workload_array(w))
        return array_sound(w);
    if (phase_live(w->status->phase) && !w->status->intent)
        return false;
    if (!phase_holds(w->status->phase))
        return true;
    return w->status->placement && root_hold_fits(r, NULL, w->status->placement);
}

/* ---- the check ---- */
static bool in_one(const struct index_sets *x, int64_t i)
{
    return (indexes_end(&x->active, i) >= 0) + (indexes_end(&x->completed, i) >= 0) +
               (indexes_end(&x->failed, i) >= 0) ==
           1;
}

/* Every index that was begun is in one set, and those that have not ended are there. */
static void check_array(const struct root *r, const struct object *o)
{
    const struct workload *w = object_as(o, workload);
    const struct workload_status *s = w->status;
    AUTO_ARENA a = arena_create(STORE_SCRATCH_MAX_BYTES);
    struct index_sets x;

    INV(root_workload_by_uid(r, o->meta->uid) == o && !s->placement);
    INV(index_sets_read(s, a, &x));
    INV(s->active == x.active.count && s->succeeded == x.completed.count &&
        s->failed == x.failed.count && s->begun <= w->spec->array->count);
    INV(!phase_final(s->phase) || s->active == 0);
    for (int64_t i = 0; i < s->begun; i++)
        INV(in_one(&x, i));
    for (uint32_t n = 0; n < x.active.n; n++)
        for (int64_t i = x.active.v[n].from; i <= x.active.v[n].to; i++) {
            char name[300];
            int64_t index = -1;

            (void)snprintf(name, sizeof name, "%s-%lld", o->meta->name, (long long)i);
            const struct object *c = root_get(r, KIND_WORKLOAD, o->meta->namespace_, name);
            INV(c && !phase_final(object_as(c, workload)->status->phase));
            INV(array_of(r, c->meta, &index) == o && index == i);
        }
}

static void check_index(const struct root *r, const struct object *o)
{
    int64_t index = -1;
    const struct object *of = array_of(r, o->meta, &index);
    AUTO_ARENA a = arena_create(STORE_SCRATCH_MAX_BYTES);
    struct index_sets x;

    if (!of)
        return;
    enum phase p = object_as(o, workload)->status->phase;
    INV(index_sets_read(object_as(of, workload)->status, a, &x));
    INV(indexes_end(p == PHASE_SUCCEEDED ? &x.completed
                    : phase_final(p)     ? &x.failed
                                         : &x.active,
                    index) >= 0);
}

static bool check_workload(const struct object *o, void *arg)
{
    const struct root *r = arg;
    const struct workload *w = object_as(o, workload);

    INV(w->spec && w->status);
    const struct workload_status *s = w->status;
    INV(s->phase >= PHASE_QUEUED && s->phase <= PHASE_UNKNOWN && s->epoch >= 0);
    if (workload_array(w)) {
        check_array(r, o);
        return true;
    }
    check_index(r, o);
    INV(!phase_holds(s->phase) || (s->placement && s->epoch > 0));
    INV(!phase_live(s->phase) || (s->intent && s->intent->op && *s->intent->key));
    INV(s->phase != PHASE_UNKNOWN || phase_live(s->phaseBefore));
    INV(s->phase != PHASE_QUEUED || !s->placement);
    INV(s->n_ends <= 16);
    INV(root_workload_by_uid(r, o->meta->uid) == o);
    if (*s->migration) { /* never left behind: nobody would place it any more */
        const struct object *m = root_get(r, KIND_MIGRATION, o->meta->namespace_, s->migration);
        INV(object_open_move(m));
        INV(strcmp(object_as(m, migration)->status->workloadUid, o->meta->uid) == 0);
    }
    /* What was adopted ahead of FEATURE_TELLS may have kept one until its end. */
    INV(!s->nominated || !phase_final(s->phase));
    return true;
}

/* An open Migration is the one that its Workload tells of, as long as that is there. */
static bool check_migration(const struct object *o, void *arg)
{
    const struct root *r = arg;

    if (!object_open_move(o))
        return true;
    const struct migration *m = object_as(o, migration);
    const struct object *w = root_get(r, KIND_WORKLOAD, o->meta->namespace_, m->spec->workload);
    if (w && strcmp(w->meta->uid, m->status->workloadUid) == 0)
        INV(strcmp(object_as(w, workload)->status->migration, o->meta->name) == 0);
    return true;
}

struct copy {
    struct root *fresh;
    uint64_t objects;
};

static bool copy_each(struct slice key, const void *value, void *arg)
{
    struct copy *c = arg;
    const struct object *o = value;
    struct key k;

    key_object(&k, o->meta->namespace_, o->meta->name);
    INV(k.n == key.n && memcmp(k.p, key.p, key.n) == 0);
    INV(root_object_sound(c->fresh, o)); /* in particular: no device beyond 1000 */
    root_load_object(c->fresh, (struct object *)(uintptr_t)o);
    c->objects++;
    return true;
}

struct same {
    const struct tree *other;
    size_t from, n; /* bytes of the box that must be equal */
};

static bool same_each(struct slice key, const void *value, void *arg)
{
    const struct same *s = arg;
    const void *v = tree_get(s->other, key);

    INV(v && (s->n ? memcmp((const char *)v + s->from, (const char *)value + s->from, s->n) == 0
                   : v == value));
    return true;
}

static void same_trees(const struct tree *a, const struct tree *b, size_t from, size_t n)
{
    struct same s = {b, from, n};

    INV(tree_count(a) == tree_count(b));
    tree_scan(a, slice_make("", 0), same_each, &s);
}

struct change_span {
    uint64_t next, n, bytes;
};

static bool window_each(struct slice key, const void *value, void *arg)
{
    struct change_span *w = arg;
    const struct change *c = &((const struct change_box *)value)->change;

    (void)key;
    INV(w->n == 0 || c->rv == w->next);
    w->next = c->rv + 1;
    w->n++;
    w->bytes += change_bytes(c);
    return true;
}

static bool due_each(struct slice key, const void *value, void *arg)
{
    (void)key;
    *(uint64_t *)arg += !((const struct dead_box *)value)->waiting;
    return true;
}

static bool stranger_each(struct slice key, const void *value, void *arg)
{
    const struct root *r = arg;
    struct key k = {0};

    (void)value;
    INV(r->recovering && key.n > 0 && key.n < 254);
    key_add(&k, "", true); /* as of objects of no namespace */
    memcpy(k.p + k.n, key.p, key.n);
    k.n += key.n;
    INV(!tree_get(r->kinds[KIND_TARGET], key_slice(&k)));
    return true;
}

void root_check(const struct root *r)
{
    uint64_t due = 0;
    struct copy c = {root_create(), 0};
    struct change_span w = {0, 0, 0};
    const struct slice start = slice_make("", 0);

    c.fresh->ledger.cpus = r->ledger.cpus;
    for (int k = 1; k < KIND_LIMIT; k++)
        if (r->kinds[k])
            tree_scan(r->kinds[k], start, copy_each, &c);
    root_scan(r, KIND_WORKLOAD, NULL, NULL, NULL, check_workload, (void *)(uintptr_t)r);
    root_scan(r, KIND_MIGRATION, NULL, NULL, NULL, check_migration, (void *)(uintptr_t)r);
    same_trees(r->usage, c.fresh->usage, offsetof(struct usage_box, usage),
               sizeof(struct node_usage));
    same_trees(r->mig, c.fresh->mig, offsetof(struct count_box, n), sizeof(int64_t));
    same_trees(r->held, c.fresh->held, offsetof(struct count_box, n), sizeof(int64_t));
    same_trees(r->target_held, c.fresh->target_held, offsetof(struct count_box, n),
               sizeof(int64_t));
    same_trees(r->target_class, c.fresh->target_class, offsetof(struct count_box, n),
               sizeof(int64_t));
    same_trees(r->load, c.fresh->load, offsetof(struct count_box, n), sizeof(int64_t));
    same_trees(r->ns_live, c.fresh->ns_live, offsetof(struct count_box, n), sizeof(int64_t));
    same_trees(r->class_gpus, c.fresh->class_gpus, offsetof(struct count_box, n), sizeof(int64_t));
    same_trees(r->target_nodes, c.fresh->target_nodes, offsetof(struct count_box, n),
               sizeof(int64_t));
    same_trees(r->uids, c.fresh->uids, 0, 0);
    same_trees(r->moves, c.fresh->moves, 0, 0);
    same_trees(r->arrays, c.fresh->arrays, 0, 0);
    same_trees(r->ns_objects, c.fresh->ns_objects, offsetof(struct count_box, n), sizeof(int64_t));
    machines_check(r);
    quotas_check(r);
    rates_check(r);
    same_trees(r->owners, c.fresh->owners, 0, 0);
    ledger_check(r, c.fresh);
    archive_check(r);
    tree_scan(r->strangers, start, stranger_each, (void *)(uintptr_t)r);
    tree_scan(r->dead, start, due_each, &due);
    INV(due == r->dead_due);
    tree_scan(r->changes, start, window_each, &w);
    INV(w.n == tree_count(r->changes) && w.n <= LIMIT_CHANGES_MAX &&
        (w.n == 0 || w.next == r->rv + 1) && w.bytes == r->changes_bytes);
    requests_check(r);
    INV(tree_count(r->requests) == tree_count(r->request_order) &&
        tree_count(r->requests) <= LIMIT_REQUEST_IDS_MAX);
    (void)root_unref(c.fresh);
}
