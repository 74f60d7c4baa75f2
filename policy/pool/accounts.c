/* Accounts: who holds how much, kept as sums so that quota, fair share and policy limits cost no
 * walk over what is placed. Built anew when queues or policies change, moved by one hold at a time
 * otherwise. */
#include "policy/pool/pool_internal.h"

#include <string.h>

/* Sums by queue and class: no fleet that the state can hold comes near. */
#define ACCOUNTS_MAX_BYTES ((size_t)4 << 30)

uint32_t pool_queue_index(const struct pool *p, const struct workload *w)
{
    if (w->spec->queue[0])
        return strmap_get(&p->queue_by_name, w->spec->queue);
    return strmap_get(&p->queue_by_namespace, w->metadata->namespace_);
}

static void queues_index(struct pool *p)
{
    const struct docs *d = &p->docs[KIND_QUEUE];

    for (uint32_t i = 0; i < d->n; i++)
        strmap_set(&p->queue_by_name, d->v[i]->meta->name, i);
    for (uint32_t i = 0; i < d->n; i++) {
        const struct queue_spec *s = object_as(d->v[i], queue)->spec;

        p->queue_tree.parent[i] = s->parent[0] ? strmap_get(&p->queue_by_name, s->parent) : NONE;
        for (uint32_t k = 0; k < s->n_namespaces; k++) {
            if (strmap_get(&p->queue_by_namespace, s->namespaces[k]) == NONE)
                strmap_set(&p->queue_by_namespace, s->namespaces[k], i);
        }
    }
    /* A cycle cannot be applied; one that came anyhow must not hang the walk to the root. */
    for (uint32_t i = 0; i < d->n; i++) {
        uint32_t at = i;

        for (uint32_t steps = 0; at != NONE; steps++) {
            if (steps > d->n) {
                p->queue_tree.parent[i] = NONE;
                break;
            }
            at = p->queue_tree.parent[at];
        }
    }
}

static void capacity_count(struct pool *p)
{
    const struct table *t = &p->t;

    for (uint32_t i = 0; i < t->n_devices; i++) {
        const struct device *d = &t->devices[i];

        if (d->member == NONE || !t->targets[t->nodes[d->node].target].obj)
            continue;
        p->capacity[t->groups[t->members[d->member].group].class_] += device_capacity(d);
        p->capacity[t->n_classes] += device_capacity(d);
    }
}

void accounts_fini(struct pool *p)
{
    strmap_fini(&p->queue_by_name);
    strmap_fini(&p->queue_by_namespace);
    strmap_fini(&p->store_by_name);
    p->n_stores = 0;
    p->accounts = arena_destroy(p->accounts);
}

static void kept_make(struct pool *p)
{
    p->kept = arena_array(p->accounts, struct quota_kept, p->n_account_classes + 1);
    for (uint32_t i = 0; i <= p->n_account_classes; i++) {
        p->kept[i].kept = arena_array(p->accounts, int64_t, 2 * p->n_queues + 1);
        p->kept[i].below = p->kept[i].kept + p->n_queues;
    }
}

void accounts_build(struct pool *p)
{
    size_t classes = p->t.n_classes + 1;

    accounts_fini(p);
    p->accounts = arena_create(ACCOUNTS_MAX_BYTES);
    p->n_queues = p->docs[KIND_QUEUE].n;
    p->n_policies = p->docs[KIND_PLACEMENT_POLICY].n;
    p->n_account_classes = p->t.n_classes;
    queue_tree_init(&p->queue_tree,
                    arena_array(p->accounts, uint32_t, QUEUE_TREE_WORDS(p->n_queues)), p->n_queues);
    kept_make(p);
    p->queue_held = arena_array(p->accounts, int64_t, (p->n_queues + 1) * classes);
    p->queue_root = arena_array(p->accounts, int64_t, classes);
    p->policy_held = arena_array(p->accounts, int64_t, p->n_policies + 1);
    p->capacity = arena_array(p->accounts, int64_t, classes);
    queues_index(p);
    queue_tree_children(&p->queue_tree, p->n_queues);
    capacity_count(p);
    p->changes++;
    for (uint32_t i = 0; i < p->t.n_targets; i++)
        p->t.targets[i].workloads = 0;
    p->accounts_dirty = false;
    for (uint32_t i = 0; i < p->n_holds; i++) {
        p->holds[i]->counted = false;
        if (!p->holds[i]->off)
            accounts_add(p, p->holds[i], 1);
    }
}

static uint32_t winner_index(const struct pool *p, const struct object *workload)
{
    const struct docs *d = &p->docs[KIND_PLACEMENT_POLICY];
    const struct object *w = policy_winner(workload, d->v, d->n, NULL, NULL);
    bool found;

    return w ? docs_find(d, "", w->meta->name, &found) : NONE;
}

uint32_t pool_priority_index(const struct pool *p, const struct workload_spec *s)
{
    const struct docs *d = &p->docs[KIND_PRIORITY_CLASS];
    bool found;
    uint32_t i;

    if (s->priorityClassName[0]) {
        i = docs_find(d, "", s->priorityClassName, &found);
        return found ? i : NONE;
    }
    for (i = 0; i < d->n; i++) {
        if (object_as(d->v[i], priority_class)->spec->globalDefault)
            return i;
    }
    return NONE;
}

static uint32_t store_index(struct pool *p, const struct workload_spec *s)
{
    const char *store = s->checkpoint ? s->checkpoint->store : "";
    uint32_t i;

    if (!store[0])
        return NONE;
    i = strmap_get(&p->store_by_name, store);
    if (i == NONE)
        strmap_set(&p->store_by_name, arena_strdup(p->accounts, store), i = p->n_stores++);
    return i;
}

/* A hold's own indexes are made when it is counted and stay valid until the next build. */
void accounts_add(struct pool *p, struct hold *h, int sign)
{
    int64_t milli = sign * h->milli;

    p->changes++;
    if (h->kind == HOLD_KEPT)
        return;
    if (sign > 0) {
        INV(!h->counted);
        h->i_target = strmap_get(&p->t.target_by_name, h->target);
        h->i_class = strmap_get(&p->t.class_by_name, h->class_);
        h->i_queue = pool_queue_index(p, object_as(h->workload, workload));
        h->i_policy = winner_index(p, h->workload);
        h->i_priority = pool_priority_index(p, object_as(h->workload, workload)->spec);
        h->i_store = store_index(p, object_as(h->workload, workload)->spec);
    } else if (!h->counted) {
        return;
    }
    h->counted = sign > 0;
    if (h->i_target != NONE)
        p->t.targets[h->i_target].workloads += sign;
    if (h->kind == HOLD_DESTINATION)
        return;
    if (h->i_policy != NONE)
        p->policy_held[h->i_policy] += milli;
    p->queue_root[p->n_account_classes] += milli;
    if (h->i_class != NONE)
        p->queue_root[h->i_class] += milli;
    for (uint32_t q = h->i_queue; q != NONE; q = p->queue_tree.parent[q]) {
        *queue_cell(p, q, p->n_account_classes) += milli;
        if (h->i_class != NONE)
            *queue_cell(p, q, h->i_class) += milli;
    }
}

struct hold *pool_hold_of(const struct pool *p, const char *uid)
{
    uint32_t i = strmap_get(&p->hold_by_uid, uid);

    return i == NONE ? NULL : p->holds[i];
}

void accounts_lay_aside(struct pool *p, const struct hold *h, int sign)
{
    int64_t milli = h ? sign * h->milli : 0;

    if (!h || !h->counted)
        return;
    p->changes++;
    if (h->i_policy != NONE)
        p->policy_held[h->i_policy] += milli;
    p->queue_root[p->n_account_classes] += milli;
    if (h->i_class != NONE)
        p->queue_root[h->i_class] += milli;
    for (uint32_t q = h->i_queue; q != NONE; q = p->queue_tree.parent[q]) {
        *queue_cell(p, q, p->n_account_classes) += milli;
        if (h->i_class != NONE)
            *queue_cell(p, q, h->i_class) += milli;
    }
}

int64_t pool_priority(const struct pool *p, const struct workload_spec *s)
{
    const struct docs *d = &p->docs[KIND_PRIORITY_CLASS];
    const struct object *o = s->priorityClassName[0] ? docs_get(d, "", s->priorityClassName) : NULL;

    for (uint32_t i = 0; !o && !s->priorityClassName[0] && i < d->n; i++) {
        if (object_as(d->v[i], priority_class)->spec->globalDefault)
            o = d->v[i];
    }
    return o ? object_as(o, priority_class)->spec->value : 0;
}
