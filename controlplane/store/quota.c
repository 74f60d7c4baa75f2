/* Quotas of namespaces: how many objects of a kind there may be (ResourceQuota, count/…). index.c
 * counts the objects exactly; this file refuses a user's write beyond a quota. At the end of each
 * command that changed a count it computes the quotas' status.used again, for that namespace alone.
 *
 * It must never refuse what Hanse does by itself: an array that was admitted gets all its indexes,
 * and runs get their Decisions and Checkpoints. An array's indexes are counted from its creation
 * on. */
#include "controlplane/store/store_internal.h"

#include <stdio.h>

#define INDEXES_MAX ((int64_t)1 << 20) /* beyond what any array has: so no sum overflows */

/* ---- what is there ---- */
void objects_key(struct key *k, const char *ns, enum kind_id kind)
{
    k->n = 0;
    key_add(k, ns, true);
    k->p[k->n++] = (char)kind;
}

int64_t workload_objects(const struct workload *w, bool deleted)
{
    if (!workload_array(w) || deleted || (w->status && phase_final(w->status->phase)))
        return 1;
    int64_t left = w->spec->array->count - (w->status ? w->status->begun : 0);
    return left <= 0 ? 1 : left < INDEXES_MAX ? 1 + left : 1 + INDEXES_MAX;
}

int64_t root_objects(const struct root *r, const char *ns, enum kind_id kind)
{
    struct key k;

    objects_key(&k, ns, kind);
    return root_count_of(r->ns_objects, key_slice(&k));
}

/* ---- what the quotas tell ---- */
/* hard as it is said, and of what is counted how much there is. */
static struct resource_quota_status *status_of(const struct root *r, const char *ns,
                                               const struct resource_quota_spec *s, struct arena *a)
{
    struct resource_quota_status *st = arena_new(a, struct resource_quota_status);

    st->hard = arena_array(a, struct kv, s->n_hard + 1);
    st->used = arena_array(a, struct kv, s->n_hard + 1);
    for (uint32_t i = 0; i < s->n_hard; i++) {
        const struct kind *k = quota_counts(s->hard[i].key);

        st->hard[st->n_hard++] = s->hard[i];
        if (k)
            st->used[st->n_used++] = (struct kv){
                s->hard[i].key, arena_printf(a, "%lld", (long long)root_objects(r, ns, k->id))};
    }
    return st;
}

void quotas_fill(struct txn *t, void *body)
{
    struct resource_quota *q = body;

    q->status = q->spec ? status_of(t->w, q->metadata->namespace_, q->spec, t->a) : NULL;
}

void quotas_note(struct root *w, const struct object *before, const struct object *after)
{
    const struct object *o = after ? after : before;
    bool array = o->kind->id == KIND_WORKLOAD && workload_array(object_as(o, workload));

    if (!o->kind->namespaced || (before && after && !array) ||
        root_objects(w, o->meta->namespace_, KIND_RESOURCE_QUOTA) == 0)
        return;
    struct box *b = box_new(sizeof *b, NULL);
    w->quotas_due = tree_put_own(w->quotas_due, key_str(o->meta->namespace_), b);
    box_unref(b);
}

struct due {
    char ns[64];
};

static bool due_each(struct slice key, const void *value, void *arg)
{
    struct due *d = arg;

    (void)value;
    INV(key.n < sizeof d->ns);
    memcpy(d->ns, key.p, key.n);
    d->ns[key.n] = 0;
    return false;
}

struct next {
    const struct object *o;
};

static bool next_each(const struct object *o, void *arg)
{
    ((struct next *)arg)->o = o;
    return false;
}

static const struct object *quota_next(const struct root *r, const char *ns, const char *after)
{
    struct next n = {NULL};

    root_scan(r, KIND_RESOURCE_QUOTA, ns, *after ? ns : NULL, *after ? after : NULL, next_each, &n);
    return n.o;
}

static void settle_one(struct txn *t, const struct object *o)
{
    struct resource_quota *q = object_edit_as(o, resource_quota, t->a);

    quotas_fill(t, q);
    if (!body_equal(&schema_resource_quota, q, o->body))
        (void)txn_put(t, o->kind, o, q);
}

void quotas_settle(struct txn *t)
{
    while (tree_count(t->w->quotas_due)) {
        struct due d = {""};
        char name[256] = "";
        const struct object *o;

        tree_scan(t->w->quotas_due, slice_make("", 0), due_each, &d);
        while ((o = quota_next(t->w, d.ns, name))) {
            str_copy(name, sizeof name, o->meta->name);
            arena_reset(t->a);
            settle_one(t, o);
        }
        t->w->quotas_due = tree_del_own(t->w->quotas_due, key_str(d.ns));
    }
}

/* ---- what a user asks for ---- */
struct asked {
    const struct root *r;
    const struct kind *kind;
    const char *name;
    int64_t n;
    struct err *err;
    int code;
};

static bool ask_each(const struct object *o, void *arg)
{
    const struct resource_quota_spec *s = object_as(o, resource_quota)->spec;
    struct asked *q = arg;

    for (uint32_t i = 0; s && i < s->n_hard && q->code == 0; i++) {
        const char *key = s->hard[i].key;
        int64_t hard, used;

        if (quota_counts(key) != q->kind || !quota_whole(s->hard[i].value, &hard))
            continue;
        used = root_objects(q->r, o->meta->namespace_, q->kind->id);
        if (used + q->n > hard)
            q->code = err_set(q->err, E_FORBIDDEN,
                              "%s%s%s \"%.40s\" is forbidden: exceeded quota: %.63s, requested: "
                              "%.50s=%lld, used: "
                              "%.50s=%lld, limited: %.50s=%lld%s",
                              q->kind->plural, *q->kind->group ? "." : "", q->kind->group, q->name,
                              o->meta->name, key, (long long)q->n, key, (long long)used, key,
                              (long long)hard, q->n > 1 ? " (an array and each index count)" : "");
    }
    return q->code == 0;
}

static int too_many_quotas(const struct root *r, const struct kind *k, const struct object *old,
                           const char *ns, struct err *err)
{
    if (k->id != KIND_RESOURCE_QUOTA || old || root_objects(r, ns, k->id) < LIMIT_QUOTAS_MAX)
        return 0;
    return err_set(err, E_FORBIDDEN,
                   "a namespace has at most %d ResourceQuotas: write more keys into one",
                   LIMIT_QUOTAS_MAX);
}

/* body: as it would be stored. */
static int beyond(const struct root *r, const struct kind *k, const struct object *old,
                  const void *body, struct err *err)
{
    const struct meta *m = ((const struct any_body *)body)->metadata;
    struct asked q = {.r = r, .kind = k, .name = m->name, .n = old ? 0 : 1, .err = err};

    if (!k->namespaced || root_objects(r, m->namespace_, KIND_RESOURCE_QUOTA) == 0)
        return 0;
    if (k->id == KIND_WORKLOAD) {
        q.n = workload_objects(body, m->deletionTimestamp != 0);
        if (old)
            q.n -= workload_objects(object_as(old, workload), old->meta->deletionTimestamp != 0);
    }
    if (q.n > 0)
        root_scan(r, KIND_RESOURCE_QUOTA, m->namespace_, NULL, NULL, ask_each, &q);
    return q.code;
}

int quotas_take(struct txn *t, const struct kind *k, const struct object *old, const void *body)
{
    int r = too_many_quotas(t->w, k, old, ((const struct any_body *)body)->metadata->namespace_,
                            t->err);

    return r < 0 || !t->by_user ? r : beyond(t->w, k, old, body, t->err);
}

/* Of what is refused before the quotas are asked, apply says why. */
static bool would_be_asked(const struct root *r, const struct write_op *op,
                           const struct object *old)
{
    if (root_feature_level(r) < FEATURE_GRANTS || !op->object || !*op->ns)
        return false;
    if (op->verb == WRITE_CREATE)
        return !old;
    return op->verb == WRITE_UPDATE && old && (!*op->uid || !strcmp(op->uid, old->meta->uid)) &&
           (!op->rv || op->rv == (uint64_t)old->meta->resourceVersion);
}

int root_quota_over(const struct root *r, const struct write_op *op, struct err *err)
{
    const struct kind *k = kind_by_id(op->kind);
    const struct object *old;
    int rv;

    if (!root_count(r, KIND_RESOURCE_QUOTA))
        return 0;
    old = root_get(r, op->kind, op->ns, op->name);
    if (!would_be_asked(r, op, old))
        return 0;
    if ((rv = too_many_quotas(r, k, old, op->ns, err)) < 0 || k->id != KIND_WORKLOAD)
        return rv < 0 ? rv : beyond(r, k, old, op->object->body, err);
    struct workload w = *object_as(op->object, workload); /* with what apply keeps of it */
    struct meta m = *w.metadata;
    m.deletionTimestamp = old ? old->meta->deletionTimestamp : 0;
    w.metadata = &m;
    w.status = old ? object_as(old, workload)->status : NULL;
    return beyond(r, k, old, &w, err);
}

/* ---- for tests ---- */
static bool check_each(const struct object *o, void *arg)
{
    AUTO_ARENA a = arena_create(STORE_SCRATCH_MAX_BYTES);
    const struct resource_quota *q = object_as(o, resource_quota);
    struct resource_quota_status none = {0};

    if (!q->spec)
        return true;
    INV(body_equal(&schema_resource_quota_status, q->status ? q->status : &none,
                   status_of(arg, o->meta->namespace_, q->spec, a)));
    return true;
}

void quotas_check(const struct root *r)
{
    INV(tree_count(r->quotas_due) == 0);
    root_scan(r, KIND_RESOURCE_QUOTA, NULL, NULL, NULL, check_each, (void *)(uintptr_t)r);
}
