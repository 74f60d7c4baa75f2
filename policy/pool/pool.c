/* The pool: references to documents, and holds. Everything derived is built on demand. */
#include "policy/pool/pool_internal.h"

#include <string.h>

#define POOL_MAGIC 0x706f6f6cu

/* ---- documents ---- */
static int doc_cmp(const struct object *o, const char *ns, const char *name)
{
    int c = strcmp(o->meta->namespace_, ns);

    return c ? c : strcmp(o->meta->name, name);
}

uint32_t docs_find(const struct docs *d, const char *ns, const char *name, bool *ret_found)
{
    uint32_t lo = 0, hi = d->n;

    /* Loaded in order, as from a listing: the place is at the end. */
    if (hi && doc_cmp(d->v[hi - 1], ns, name) < 0)
        lo = hi;
    while (lo < hi) {
        uint32_t mid = (lo + hi) / 2;

        if (doc_cmp(d->v[mid], ns, name) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    *ret_found = lo < d->n && doc_cmp(d->v[lo], ns, name) == 0;
    return lo;
}

const struct object *docs_get(const struct docs *d, const char *ns, const char *name)
{
    bool found;
    uint32_t i = docs_find(d, ns, name, &found);

    return found ? d->v[i] : NULL;
}

static void docs_insert(struct docs *d, uint32_t at, const struct object *o)
{
    if (d->n == d->cap) {
        d->cap = d->cap ? d->cap * 2 : 16;
        d->v = mem_realloc(d->v, sizeof(*d->v) * d->cap);
    }
    memmove(&d->v[at + 1], &d->v[at], sizeof(*d->v) * (d->n - at));
    d->v[at] = o;
    d->n++;
}

bool pool_reads(enum kind_id k)
{
    return k == KIND_TARGET || k == KIND_NODE || k == KIND_GPU_CLASS || k == KIND_PRICE_SHEET ||
           k == KIND_QUEUE || k == KIND_PRIORITY_CLASS || k == KIND_PLACEMENT_POLICY ||
           k == KIND_COMPLIANCE_POLICY || k == KIND_DATASET || k == KIND_MACHINE;
}

static void pool_touched(struct pool *p, enum kind_id k)
{
    if (k == KIND_TARGET || k == KIND_NODE || k == KIND_GPU_CLASS)
        p->dirty = true;
    else if (k == KIND_PRICE_SHEET)
        p->prices_dirty = true;
    else if (k == KIND_QUEUE || k == KIND_PLACEMENT_POLICY || k == KIND_PRIORITY_CLASS)
        p->accounts_dirty = true;
}

static bool target_same_shape(const struct object *a, const struct object *b)
{
    const struct target_spec *x = target_spec_of(a), *y = target_spec_of(b);

    return strcmp(x->region, y->region) == 0 && strcmp(x->site, y->site) == 0 &&
           x->capacity == y->capacity && x->tier == y->tier;
}

/* A new version of a known document: only what its change touches is built anew. */
static void pool_replaced(struct pool *p, enum kind_id k, const struct object *old,
                          const struct object *o)
{
    if (k == KIND_NODE && !p->dirty && node_same_shape(old, o)) {
        table_node_refresh(p, o);
    } else if (k == KIND_TARGET && !p->dirty && target_same_shape(old, o)) {
        struct target_rec *r = &p->t.targets[strmap_get(&p->t.target_by_name, o->meta->name)];

        r->obj = o;
        r->spec = target_spec_of(o);
        r->shut_due = true;
        p->prices_dirty = true;
    } else if (k == KIND_QUEUE) {
        /* Its status changes with every placement; only the spec moves accounts. */
        if (!body_equal(&schema_queue_spec, object_as(old, queue)->spec, object_as(o, queue)->spec))
            p->accounts_dirty = true;
    } else {
        pool_touched(p, k);
    }
}

void pool_put(struct pool *p, const struct object *o)
{
    enum kind_id k = o->kind->id;
    struct docs *d = &p->docs[k];
    bool found;
    uint32_t at;

    PRE(p->magic == POOL_MAGIC);
    if (!pool_reads(k))
        return;
    p->changes++;
    at = docs_find(d, o->meta->namespace_, o->meta->name, &found);
    (void)object_ref(o);
    if (k == KIND_TARGET)
        pool_zones_told(p, o);
    if (found) {
        const struct object *old = d->v[at];

        d->v[at] = o;
        pool_replaced(p, k, old, o);
        if (p->dirty)
            p->prices_dirty = p->accounts_dirty = true;
        (void)object_unref(old);
    } else {
        docs_insert(d, at, o);
        pool_touched(p, k);
    }
}

void pool_remove(struct pool *p, enum kind_id kind, const char *ns, const char *name)
{
    struct docs *d = &p->docs[kind];
    bool found;
    uint32_t at;

    if (!pool_reads(kind))
        return;
    at = docs_find(d, ns, name, &found);
    if (!found)
        return;
    p->changes++;
    (void)object_unref(d->v[at]);
    memmove(&d->v[at], &d->v[at + 1], sizeof(*d->v) * (d->n - at - 1));
    d->n--;
    pool_touched(p, kind);
}

void pool_target_reachable(struct pool *p, const char *target, enum reach reach)
{
    uint32_t i;

    p->changes++;
    if (!strmap_change(&p->reach, target, reach)) /* keeps the key that we own */
        strmap_set(&p->reach, mem_strdup(target), reach);
    if (!p->dirty && (i = strmap_get(&p->t.target_by_name, target)) != NONE)
        p->t.targets[i].reach = reach;
}

void pool_set_zone_resolver(struct pool *p, policy_zone_fn fn, void *arg)
{
    p->changes++;
    p->zone_fn = fn;
    p->zone_arg = arg;
}

void pool_set_use(struct pool *p, const struct queue_use *v, size_t n)
{
    struct arena *a = arena_create(0);

    p->use = arena_array(a, struct queue_use, n + 1);
    for (size_t i = 0; i < n; i++)
        p->use[i] = (struct queue_use){arena_strdup(a, v[i].queue), v[i].gpu_hours};
    p->n_use = n;
    (void)arena_destroy(p->use_texts);
    p->use_texts = a;
}

struct pool *pool_settle(const struct pool *cp)
{
    struct pool *p = (struct pool *)cp;

    PRE(p->magic == POOL_MAGIC);
    if (p->dirty)
        table_build(p);
    if (p->prices_dirty)
        table_prices(p);
    if (p->accounts_dirty)
        accounts_build(p);
    return p;
}

/* ---- life ---- */
struct pool *pool_create(void)
{
    struct pool *p = mem_new(struct pool);

    p->magic = POOL_MAGIC;
    p->changes = 1;
    p->dirty = p->prices_dirty = p->accounts_dirty = true;
    return p;
}

struct pool *pool_destroy(struct pool *p)
{
    if (!p)
        return NULL;
    PRE(p->magic == POOL_MAGIC);
    for (uint32_t i = 0; i < p->n_holds; i++)
        hold_free(p->holds[i]);
    mem_free(p->holds);
    strmap_fini(&p->hold_by_uid);
    for (uint32_t i = 0; i < p->reach.cap; i++)
        mem_free((char *)p->reach.slots[i].key);
    strmap_fini(&p->reach);
    accounts_fini(p);
    p->use_texts = arena_destroy(p->use_texts);
    table_fini(&p->t);
    for (int k = 0; k < KIND_LIMIT; k++) {
        for (uint32_t i = 0; i < p->docs[k].n; i++)
            (void)object_unref(p->docs[k].v[i]);
        mem_free(p->docs[k].v);
    }
    p->magic = 0;
    mem_free(p);
    return NULL;
}

struct pool *pool_fork(const struct pool *p)
{
    struct pool *f = pool_create();

    PRE(p->magic == POOL_MAGIC);
    for (int k = 0; k < KIND_LIMIT; k++) {
        struct docs *d = &f->docs[k];

        d->n = d->cap = p->docs[k].n;
        if (!d->n)
            continue;
        d->v = mem_alloc(sizeof(*d->v) * d->n);
        for (uint32_t i = 0; i < d->n; i++)
            d->v[i] = object_ref(p->docs[k].v[i]);
    }
    for (uint32_t i = 0; i < p->reach.cap; i++) {
        if (p->reach.slots[i].key)
            strmap_set(&f->reach, mem_strdup(p->reach.slots[i].key), p->reach.slots[i].value);
    }
    f->n_holds = f->cap_holds = p->n_holds;
    f->n_nominated = p->n_nominated;
    f->holds = mem_alloc(sizeof(struct hold *) * (p->n_holds + 1));
    for (uint32_t i = 0; i < p->n_holds; i++) {
        f->holds[i] = hold_copy(p->holds[i]);
        if (f->holds[i]->kind == HOLD_KEPT && f->n_reserved < RESERVED_MAX)
            f->reserved[f->n_reserved++] = f->holds[i];
        strmap_set(&f->hold_by_uid, f->holds[i]->key, i);
    }
    if (p->n_use)
        pool_set_use(f, p->use, p->n_use);
    f->zones = p->zones;
    f->zone_fn = p->zone_fn;
    f->zone_arg = p->zone_arg;
    return f;
}

uint64_t pool_nodes(const struct pool *p)
{
    return p->docs[KIND_NODE].n;
}

size_t policy_rows(const struct pool *cp)
{
    const struct table *t = &pool_settle(cp)->t;

    return (size_t)t->n_targets + t->n_groups;
}

int64_t pool_free_gpu_milli(const struct pool *cp, const char *class_or_null)
{
    const struct table *t = &pool_settle(cp)->t;
    int64_t sum = 0;

    for (uint32_t i = 0; i < t->n_groups; i++) {
        const struct group *g = &t->groups[i];
        const struct target_rec *r = &t->targets[g->target];

        if (!r->obj || r->reach != REACH_YES || r->spec->unschedulable || r->spec->drain ||
            r->spec->observeOnly)
            continue;
        if (!class_or_null || strcmp(t->classes[g->class_].name, class_or_null) == 0)
            sum += g->free * 1000;
    }
    return sum;
}
