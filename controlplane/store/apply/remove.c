/* REMOVE: finished objects leave the state after a while (retention), and so do invalid tokens. The
 * state holds what is under way and what a decision may still rest on; the rest would only grow.
 *
 * What somebody may still need must never be removed: objects that have not ended, and those by
 * which a live workload was placed or from which it could resume. */
#include "controlplane/store/store_internal.h"
#include "policy/policy.h"

#include <stdio.h>

/* The workload that `o` was made for, while it has not ended. */
static const struct workload_status *going_on(const struct root *w, const struct object *o,
                                              const char *name, const char *uid)
{
    const struct object *wo = root_get(w, KIND_WORKLOAD, o->meta->namespace_, name);

    if (!wo || (*uid && strcmp(wo->meta->uid, uid) != 0))
        return NULL;
    const struct workload_status *s = object_as(wo, workload)->status;
    return phase_final(s->phase) ? NULL : s;
}

static bool decision_needed(const struct root *w, const struct object *o)
{
    const struct decision_spec *d = object_as(o, decision)->spec;
    const struct workload_status *s = going_on(w, o, d->workload, d->workloadUid);

    return s && (d->epoch == 0 || d->epoch >= s->epoch); /* why it waits, where it is or goes to */
}

static bool checkpoint_needed(const struct root *w, const struct object *o)
{
    const struct checkpoint_obj_spec *c = object_as(o, checkpoint)->spec;

    return going_on(w, o, c->workload, c->workloadUid) != NULL;
}

bool object_finished(const struct root *w, const struct object *o)
{
    if (o->kind->id == KIND_NODE)
        return !root_get(w, KIND_TARGET, "", object_as(o, node)->spec->target);
    if (o->meta->n_finalizers > 0)
        return false;
    switch (o->kind->id) {
    case KIND_WORKLOAD:
        return phase_final(object_as(o, workload)->status->phase) &&
               !*object_as(o, workload)->status->migration;
    case KIND_MIGRATION:
        return !object_open_move(o);
    case KIND_DECISION:
        return !decision_needed(w, o);
    case KIND_CHECKPOINT:
        return !checkpoint_needed(w, o);
    case KIND_EVENT:
        return true;
    case KIND_MACHINE:
        return !machine_open(o);
    default:
        return false;
    }
}

/* What is not finished, or is not the one that was meant, is passed over: retention asks again
 * later. */
static uint32_t remove_all(struct txn *t, const struct write_op *ops, uint32_t n)
{
    uint32_t removed = 0;

    for (uint32_t i = 0; i < n; i++) {
        const struct write_op *op = &ops[i];
        const struct object *o = root_get(t->w, op->kind, op->ns, op->name);

        if (!o || (*op->uid && strcmp(op->uid, o->meta->uid) != 0) ||
            !(o->kind->id == KIND_TOKEN ? token_void(t->w, o, t->now) != NULL
                                        : object_finished(t->w, o)))
            continue;
        txn_remove(t, o);
        arena_reset(t->a);
        removed++;
    }
    return removed;
}

int apply_remove(struct txn *t, const struct remove_cmd *c)
{
    t->res->unchanged = remove_all(t, c->ops, c->n) == 0;
    return 0;
}

int apply_archive(struct txn *t, const struct archive_cmd *c)
{
    struct archive *a = &t->w->archive;
    bool first = !a->begun;

    if (c->close_bytes < ARCHIVE_CLOSE_MIN_BYTES || c->close_bytes > ARCHIVE_CLOSE_MAX_BYTES ||
        c->close_after_ms < 0)
        return err_set(t->err, E_INVALID, "a segment of the archive closes at %u to %u bytes",
                       ARCHIVE_CLOSE_MIN_BYTES, ARCHIVE_CLOSE_MAX_BYTES);
    if (!*t->w->cluster_uid)
        return err_set(t->err, E_CONFLICT, "the cluster has no uid yet that its archive begins by");
    archive_begin(t->w, c->close_bytes);
    uint32_t removed = remove_all(t, c->ops, c->n);
    bool close = a->open.records && t->now - a->open.first_ms >= c->close_after_ms;
    if (close)
        archive_close(t->w);
    t->res->unchanged = removed == 0 && !close && !first;
    return 0;
}

/* ---- what may be removed ---- */
static int64_t finished_at(const struct object *o)
{
    int64_t at = 0;

    if (o->kind->id == KIND_WORKLOAD)
        at = object_as(o, workload)->status->endedAt;
    else if (o->kind->id == KIND_MIGRATION && object_as(o, migration)->status)
        at = object_as(o, migration)->status->endedAt;
    else if (o->kind->id == KIND_MACHINE)
        at = object_as(o, machine)->status->endedAt;
    else if (o->kind->id == KIND_EVENT)
        at = object_as(o, event)->lastTimestamp;
    return at ? at : o->meta->creationTimestamp;
}

struct finished_scan {
    const struct root *w;
    int64_t before;
    struct write_op *ret;
    size_t n, max;
};

static bool finished_each(const struct object *o, void *arg)
{
    struct finished_scan *s = arg;

    if (s->n == s->max)
        return false;
    if (finished_at(o) >= s->before || !object_finished(s->w, o))
        return true;
    struct write_op *op = &s->ret[s->n++];
    *op = (struct write_op){.verb = WRITE_DELETE, .kind = o->kind->id};
    str_copy(op->ns, sizeof op->ns, o->meta->namespace_);
    str_copy(op->name, sizeof op->name, o->meta->name);
    str_copy(op->uid, sizeof op->uid, o->meta->uid);
    return true;
}

size_t root_finished(const struct root *r, int64_t before_ms, struct write_op *ret, size_t max)
{
    static const enum kind_id kinds[] = {KIND_WORKLOAD, KIND_MIGRATION, KIND_DECISION, KIND_EVENT,
                                         KIND_MACHINE};
    struct finished_scan s = {r, before_ms, ret, 0, max};

    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        root_scan(r, kinds[i], NULL, NULL, NULL, finished_each, &s);
    return s.n;
}

/* ---- nodes that are listed no more ---- */
/* Nodes that their target lists no more while something is held on them. Such a node stays, not
 * ready, until nothing is held on it: a node that is not listed proves no end. And where its target
 * lists a new one that may be the same machine by another name, nothing is placed on that one until
 * then: its devices would be given out twice.
 *
 * It must not hold back a machine that is surely another one: by the ids of its devices, or by the
 * Machine that it is. */
#define NEW_MS 60000 /* pages of a listing, and what deltas tell, come one after the other */
#define KEPT_MAX 64  /* of a target, that are given a successor at once */

static const char *text(const char *s)
{
    return s ? s : "";
}

static struct node *edit(struct txn *t, const struct object *o)
{
    struct node *b = object_edit_as(o, node, t->a);

    if (!b->status)
        b->status = arena_new(t->a, struct node_status);
    return b;
}

static const struct node_status *status_of(const struct object *o)
{
    static const struct node_status none = {.unlisted = false};
    const struct node_status *s = o ? object_as(o, node)->status : NULL;

    return s ? s : &none;
}

/* The other one is the node that it is called, and no other's. */
static void free_successor(struct txn *t, const struct object *o)
{
    const char *name = text(status_of(o)->successor);
    const struct object *s = *name ? root_get(t->w, KIND_NODE, "", name) : NULL;

    if (!s || strcmp(text(status_of(s)->formerly), o->meta->name) != 0)
        return;
    struct node *b = edit(t, s);
    b->status->formerly = "";
    (void)txn_put(t, s->kind, s, b);
}

/* It goes, or stays while something is held on it. */
bool node_unlist(struct txn *t, const struct object *o)
{
    struct node_usage held;

    if (root_feature_level(t->w) < FEATURE_GRANTS || !root_usage(t->w, o->meta->name, &held)) {
        free_successor(t, o);
        txn_remove(t, o);
        return true;
    }
    if (status_of(o)->unlisted)
        return false;
    struct node *b = edit(t, o);
    b->status->unlisted = true;
    b->status->health = HEALTH_NOT_READY;
    b->status->reason = "its target lists it no more; it stays until nothing is held on it";
    (void)txn_put(t, o->kind, o, b);
    return true;
}

void node_relist(struct txn *t, const struct object *o)
{
    if (status_of(o)->unlisted)
        free_successor(t, o);
}

/* ---- by another name ---- */
/* 1: a device of both has one id; -1: they have ids, and none is the same; 0: not known. */
static int ids_compare(const struct node_spec *a, const struct node_spec *b)
{
    bool known_a = false, known_b = false;

    for (uint32_t i = 0; i < b->n_gpus; i++)
        known_b |= *text(b->gpus[i].uuid) != 0;
    for (uint32_t i = 0; i < a->n_gpus; i++) {
        const char *id = text(a->gpus[i].uuid);

        known_a |= *id != 0;
        for (uint32_t j = 0; *id && j < b->n_gpus; j++)
            if (strcmp(id, text(b->gpus[j].uuid)) == 0)
                return 1;
    }
    return known_a && known_b ? -1 : 0;
}

/* A new node b may be the kept one a, by what both tell of themselves; `later`: b came after a. One
 * that stood beside a is another machine, unless a device of both has one id. */
static bool may_be(const struct node_spec *a, const struct node_spec *b, bool later)
{
    int ids = ids_compare(a, b);

    if (ids || !later ||
        (*text(a->machine) && *text(b->machine) && strcmp(a->machine, b->machine) != 0))
        return ids > 0;
    if (a->n_gpus != b->n_gpus || a->n_counted != b->n_counted)
        return false;
    for (uint32_t i = 0; i < a->n_counted; i++)
        if (a->counted[i].count != b->counted[i].count ||
            !slice_same(counted_kind(&a->counted[i]), counted_kind(&b->counted[i])) ||
            strcmp(text(a->counted[i].class_), text(b->counted[i].class_)) != 0)
            return false;
    for (uint32_t i = 0; i < a->n_gpus; i++)
        if (a->gpus[i].index != b->gpus[i].index ||
            strcmp(text(a->gpus[i].class_), text(b->gpus[i].class_)) != 0)
            return false;
    return a->n_gpus > 0 || a->n_counted > 0 || (a->cpu == b->cpu && a->memory == b->memory);
}

static bool came_later(const struct object *kept, const struct object *o)
{
    return o->meta->creationTimestamp > kept->meta->creationTimestamp;
}

static bool has_successor(struct txn *t, const struct object *o)
{
    const char *name = text(status_of(o)->successor);
    const struct object *s = *name ? root_get(t->w, KIND_NODE, "", name) : NULL;

    return s && strcmp(text(status_of(s)->formerly), o->meta->name) == 0;
}

static void pair(struct txn *t, const struct object *kept, const struct object *fresh)
{
    struct node *b = edit(t, kept);

    b->status->successor = fresh->meta->name;
    (void)txn_put(t, kept->kind, kept, b);
    b = edit(t, fresh);
    b->status->formerly = kept->meta->name;
    (void)txn_put(t, fresh->kind, fresh, b);
}

/* New nodes that may be kept ones by another name wait for what is held there. */
void nodes_pair(struct txn *t, const char *target)
{
    bool any_age = root_feature_level(t->w) < FEATURE_CLOSES; /* as it was judged before that */
    struct object *kept[KEPT_MAX];
    struct key at = {.n = 0};
    const struct object *o;
    size_t n = 0;

    while (n < KEPT_MAX && (o = node_next(t, target, &at)))
        if (status_of(o)->unlisted && !has_successor(t, o))
            kept[n++] = object_ref(o);
    at.n = 0;
    for (size_t left = n; left > 0 && (o = node_next(t, target, &at));) {
        const struct node_status *s = status_of(o);

        if (s->unlisted || *text(s->formerly) || o->meta->creationTimestamp + NEW_MS < t->now)
            continue;
        for (size_t i = 0; i < n; i++) {
            if (!kept[i] || !may_be(object_as(kept[i], node)->spec, object_as(o, node)->spec,
                                    any_age || came_later(kept[i], o)))
                continue;
            struct object *fresh = object_ref(o);
            pair(t, kept[i], fresh);
            (void)object_unref(fresh);
            kept[i] = object_unref(kept[i]);
            left--;
            break;
        }
    }
    for (size_t i = 0; i < n; i++)
        (void)object_unref(kept[i]);
}
