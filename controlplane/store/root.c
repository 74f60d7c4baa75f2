/* The root: one version of everything, and the one function (root_commit) through which objects
 * change. All indexes, the window of changes and the digest are kept there, so that no command can
 * forget one of them.
 *
 * Must never hold what cannot be made again from objects, changes, requests, members and dead:
 * those are what a snapshot carries. */
#include "controlplane/store/store_internal.h"

#include <stdio.h>

/* ---- boxes
 * --------------------------------------------------------------------------------------------- */
static void box_ref_op(const void *v)
{
    struct box *b = (struct box *)(uintptr_t)v; /* only the count is written */
    uint32_t before = atomic_fetch_add_explicit(&b->refs, 1, memory_order_relaxed);

    INV(before > 0 && before < UINT32_MAX / 2);
}

void box_unref(const void *v)
{
    struct box *b = (struct box *)(uintptr_t)v;

    if (!b)
        return;
    uint32_t before = atomic_fetch_sub_explicit(&b->refs, 1, memory_order_acq_rel);
    INV(before > 0);
    if (before == 1) {
        if (b->fini)
            b->fini(b);
        mem_free(b);
    }
}

void *box_new(size_t n, void (*fini)(struct box *b))
{
    struct box *b = mem_zalloc(n);

    PRE(n >= sizeof *b);
    atomic_init(&b->refs, 1);
    b->fini = fini;
    return b;
}

static void object_ref_op(const void *v)
{
    (void)object_ref(v);
}

static void object_unref_op(const void *v)
{
    (void)object_unref((struct object *)(uintptr_t)v);
}

const struct tree_value_ops box_ops = {box_ref_op, box_unref};
const struct tree_value_ops object_ops = {object_ref_op, object_unref_op};

static void put(struct tree **t, struct slice key, const void *v)
{
    *t = tree_put_own(*t, key, v);
}

static void del(struct tree **t, struct slice key)
{
    *t = tree_del_own(*t, key);
}

/* ---- keys and hashes
 * -------------------------------------------------------------------------------------- */
static void key_add(struct key *k, const char *s, bool end)
{
    size_t n = strlen(s);

    INV(k->n + n + 1 <= sizeof k->p);
    memcpy(k->p + k->n, s, n);
    k->n += n;
    if (end)
        k->p[k->n++] = 0;
}

void key_object(struct key *k, const char *ns, const char *name)
{
    k->n = 0;
    key_add(k, ns, true);
    key_add(k, name, false);
}

void key_pair(struct key *k, const char *a, const char *b)
{
    k->n = 0;
    key_add(k, a, true);
    key_add(k, b, false);
}

void key_u64(struct key *k, uint64_t v)
{
    k->n = 8;
    for (int i = 0; i < 8; i++)
        k->p[i] = (char)(v >> (56 - 8 * i));
}

static uint64_t mix(uint64_t h)
{
    h ^= h >> 33;
    h *= 0xff51afd7ed558ccdu;
    h ^= h >> 33;
    h *= 0xc4ceb9fe1a85ec53u;
    return h ^ h >> 33;
}

uint64_t hash_u64(uint64_t seed, uint64_t v)
{
    return mix(seed * 0x9e3779b97f4a7c15u + mix(v + 0x2545f4914f6cdd1du));
}

uint64_t hash_bytes(uint64_t seed, const void *p, size_t n)
{
    const unsigned char *c = p;
    uint64_t h = hash_u64(seed, n);

    for (; n >= 8; c += 8, n -= 8)
        h = hash_u64(h, le_get_u64(c));
    uint64_t tail = 0;
    for (size_t i = 0; i < n; i++)
        tail |= (uint64_t)c[i] << (8 * i);
    return n ? hash_u64(h, tail) : h;
}

static uint64_t object_hash(const struct object *o)
{
    uint64_t h = hash_u64(1, (uint64_t)o->kind->id);

    h = hash_bytes(h, o->meta->namespace_, strlen(o->meta->namespace_));
    h = hash_bytes(h, o->meta->name, strlen(o->meta->name));
    return hash_u64(h, o->digest);
}

static uint64_t change_hash(const struct change *c)
{
    uint64_t h = hash_u64(2, c->rv);

    h = hash_u64(h, c->before ? c->before->digest : 0);
    return hash_u64(h, c->after ? c->after->digest : 0);
}

static uint64_t request_hash(struct slice key, const struct request_box *b)
{
    uint64_t h = hash_bytes(3, key.p, key.n);

    h = hash_u64(h, (uint64_t)b->at);
    h = hash_u64(h, b->seq);
    h = hash_u64(h, (uint64_t)(int64_t)b->code);
    h = hash_u64(h, b->rv);
    h = hash_u64(h, b->op * 2u + b->unchanged);
    h = hash_bytes(h, b->field, strlen(b->field));
    return hash_bytes(h, b->text, strlen(b->text));
}

static uint64_t member_hash(const struct member_info *m)
{
    uint64_t h = hash_u64(4, m->id);

    h = hash_bytes(h, m->address, strlen(m->address));
    h = hash_bytes(h, m->api_address, strlen(m->api_address));
    h = hash_bytes(h, m->name, strlen(m->name));
    return hash_u64(h, m->feature_level);
}

static uint64_t dead_hash(struct slice key, const struct dead_box *b)
{
    uint64_t h = hash_bytes(5, key.p, key.n);

    h = hash_u64(h, b->stage * 2u + b->waiting);
    return hash_bytes(h, b->cursor, b->n);
}

/* ---- life
 * ------------------------------------------------------------------------------------------------------
 */
static void fixed_trees(struct root *r, struct tree **out[ROOT_TREES_FIXED])
{
    struct tree **all[ROOT_TREES_FIXED] = {
        &r->changes,     &r->requests,   &r->members, &r->dead, &r->request_order,
        &r->uids,        &r->owners,     &r->usage,   &r->mig,  &r->held,
        &r->target_held, &r->class_gpus, &r->ns_live, NULL};

    memcpy(out, all, sizeof all);
}

struct root *root_create(void)
{
    struct root *r = mem_new(struct root);
    struct tree **fixed[ROOT_TREES_FIXED];

    r->magic = ROOT_MAGIC;
    atomic_init(&r->refs, 1);
    fixed_trees(r, fixed);
    for (unsigned i = 0; fixed[i]; i++)
        *fixed[i] =
            tree_create(fixed[i] == &r->uids || fixed[i] == &r->owners ? &object_ops : &box_ops);
    for (int k = 1; k < KIND_LIMIT; k++)
        r->kinds[k] = kind_by_id((enum kind_id)k) ? tree_create(&object_ops) : NULL;
    return r;
}

static const struct root *root_checked(const struct root *r)
{
    INV(r && r->magic == ROOT_MAGIC);
    return r;
}

struct root *root_ref(const struct root *r)
{
    struct root *m = (struct root *)(uintptr_t)root_checked(r); /* only the count is written */

    uint32_t before = atomic_fetch_add_explicit(&m->refs, 1, memory_order_relaxed);
    INV(before > 0);
    return m;
}

struct root *root_unref(struct root *r)
{
    struct tree **fixed[ROOT_TREES_FIXED];

    if (!r)
        return NULL;
    (void)root_checked(r);
    uint32_t before = atomic_fetch_sub_explicit(&r->refs, 1, memory_order_acq_rel);
    INV(before > 0);
    if (before > 1)
        return NULL;
    fixed_trees(r, fixed);
    for (unsigned i = 0; fixed[i]; i++)
        *fixed[i] = tree_unref(*fixed[i]);
    for (int k = 1; k < KIND_LIMIT; k++)
        r->kinds[k] = tree_unref(r->kinds[k]);
    r->magic = 0;
    mem_free(r);
    return NULL;
}

struct root *root_fork(const struct root *r)
{
    struct root *f = mem_alloc(sizeof *f);
    struct tree **fixed[ROOT_TREES_FIXED];

    *f = *root_checked(r);
    atomic_init(&f->refs, 1);
    fixed_trees(f, fixed);
    for (unsigned i = 0; fixed[i]; i++)
        *fixed[i] = tree_ref(*fixed[i]);
    for (int k = 1; k < KIND_LIMIT; k++)
        f->kinds[k] = f->kinds[k] ? tree_ref(f->kinds[k]) : NULL;
    return f;
}

/* ---- what an object means for the indexes
 * ------------------------------------------------------------------------ */
bool object_live(const struct object *o)
{
    if (!o || o->kind->id != KIND_WORKLOAD)
        return false;
    const struct workload *w = object_as(o, workload);
    return w->status && phase_live(w->status->phase);
}

bool object_open_move(const struct object *o)
{
    if (!o || o->kind->id != KIND_MIGRATION)
        return false;
    const struct migration *m = object_as(o, migration);
    return m->status && move_open(m->status->phase);
}

const struct placement *object_hold(const struct object *o)
{
    if (o && o->kind->id == KIND_MIGRATION) {
        const struct migration *m = object_as(o, migration);

        return m->status && move_holds(m->status->phase) ? m->status->placement : NULL;
    }
    if (!o || o->kind->id != KIND_WORKLOAD)
        return NULL;
    const struct workload *w = object_as(o, workload);
    return w->status && phase_holds(w->status->phase) ? w->status->placement : NULL;
}

static void count_add(struct tree **t, struct slice key, int64_t n)
{
    const struct count_box *old = tree_get(*t, key);
    int64_t sum = (old ? old->n : 0) + n;

    INV(sum >= 0);
    if (n == 0)
        return;
    if (sum == 0) {
        del(t, key);
        return;
    }
    struct count_box *b = box_new(sizeof *b, NULL);
    b->n = sum;
    put(t, key, b);
    box_unref(b);
}

int64_t root_count_of(const struct tree *t, struct slice key)
{
    const struct count_box *b = tree_get(t, key);

    return b ? b->n : 0;
}

static void mig_key(struct key *k, const char *node, int64_t device, const char *profile)
{
    char dev[80];

    (void)snprintf(dev, sizeof dev, "%lld/%s", (long long)device, profile);
    key_pair(k, node, dev);
}

int64_t root_mig_held(const struct root *r, const char *node, int64_t device, const char *profile)
{
    struct key k;

    mig_key(&k, node, device, profile);
    return root_count_of(r->mig, key_slice(&k));
}

static void usage_add(struct root *w, const struct placement *p, const struct assignment *a,
                      int sign)
{
    const struct usage_box *old = tree_get(w->usage, key_str(a->node));
    struct usage_box *b = box_new(sizeof *b, NULL);
    struct key k;
    int64_t rest = 0;

    if (old)
        b->usage = old->usage;
    b->usage.cpu_milli += sign * p->cpu;
    b->usage.memory_bytes += sign * p->memory;
    b->usage.gpu_milli += sign * a->gpuMilli * (int64_t)a->n_gpus;
    for (uint32_t i = 0; i < a->n_gpus; i++) {
        INV(a->gpus[i] >= 0 && a->gpus[i] < 64);
        if (*a->mig) {
            mig_key(&k, a->node, a->gpus[i], a->mig);
            count_add(&w->mig, key_slice(&k), sign);
            continue;
        }
        int64_t d = b->usage.device_milli[a->gpus[i]] + sign * a->gpuMilli;
        INV(d >= 0 && d <= 1000);
        b->usage.device_milli[a->gpus[i]] = (uint16_t)d;
    }
    for (int i = 0; i < 64; i++)
        rest |= b->usage.device_milli[i];
    INV(b->usage.cpu_milli >= 0 && b->usage.memory_bytes >= 0 && b->usage.gpu_milli >= 0);
    if (!rest && !b->usage.cpu_milli && !b->usage.memory_bytes && !b->usage.gpu_milli)
        del(&w->usage, key_str(a->node));
    else
        put(&w->usage, key_str(a->node), b);
    box_unref(b);
}

void root_usage_add(struct root *w, const struct placement *p, const struct assignment *a)
{
    usage_add(w, p, a, 1);
}

static void index_hold(struct root *w, const struct object *o, int sign)
{
    const struct placement *p = object_hold(o);
    struct key k;

    if (object_live(o))
        count_add(&w->ns_live, key_str(o->meta->namespace_), sign);
    if (!p)
        return;
    for (uint32_t i = 0; i < p->n_assignments; i++)
        usage_add(w, p, &p->assignments[i], sign);
    if (o->kind->id ==
        KIND_WORKLOAD) { /* a queue's workload is counted once, not where it goes to, too */
        key_pair(&k, object_as(o, workload)->status->queue, p->class_);
        count_add(&w->held, key_slice(&k), sign * p->gpus);
    }
    count_add(&w->target_held, key_str(p->target), sign);
}

static void index_node(struct root *w, const struct object *o, int sign)
{
    const struct node_spec *s = o ? object_as(o, node)->spec : NULL;

    for (uint32_t i = 0; s && i < s->n_gpus;) { /* runs of one class: one step each */
        uint32_t from = i;

        while (i < s->n_gpus && strcmp(s->gpus[i].class_, s->gpus[from].class_) == 0)
            i++;
        if (*s->gpus[from].class_ && strlen(s->gpus[from].class_) <= 63)
            count_add(&w->class_gpus, key_str(s->gpus[from].class_), sign * (int64_t)(i - from));
    }
}

static void owner_key(struct key *k, const char *uid, const struct object *o)
{
    k->n = 0;
    key_add(k, uid, true);
    k->p[k->n++] = (char)o->kind->id;
    key_add(k, o->meta->namespace_, true);
    key_add(k, o->meta->name, false);
}

static bool same_hold(const struct object *a, const struct object *b)
{
    const struct placement *p = object_hold(a), *q = object_hold(b);

    if (object_live(a) != object_live(b) || !p != !q)
        return false;
    if (!p)
        return true;
    if (a->kind->id == KIND_WORKLOAD &&
        strcmp(object_as(a, workload)->status->queue, object_as(b, workload)->status->queue) != 0)
        return false;
    return body_equal(&schema_placement, p, q);
}

static void index_object(struct root *w, const struct object *before, const struct object *after)
{
    struct key k;

    for (uint32_t i = 0; before && i < before->meta->n_ownerReferences; i++) {
        owner_key(&k, before->meta->ownerReferences[i].uid, before);
        del(&w->owners, key_slice(&k));
    }
    for (uint32_t i = 0; after && i < after->meta->n_ownerReferences; i++) {
        owner_key(&k, after->meta->ownerReferences[i].uid, after);
        put(&w->owners, key_slice(&k), after);
    }
    enum kind_id kind = (before ? before : after)->kind->id;
    if (kind == KIND_NODE) {
        index_node(w, before, -1);
        index_node(w, after, 1);
    }
    if (kind != KIND_WORKLOAD && kind != KIND_MIGRATION)
        return;
    if (kind == KIND_WORKLOAD) {
        if (before && (!after || strcmp(before->meta->uid, after->meta->uid) != 0))
            del(&w->uids, key_str(before->meta->uid));
        if (after)
            put(&w->uids, key_str(after->meta->uid), after);
    }
    if (before && after && same_hold(before, after))
        return;
    if (before)
        index_hold(w, before, -1);
    if (after)
        index_hold(w, after, 1);
}

/* ---- the window of changes, request ids
 * ------------------------------------------------------------------------------ */
static void change_fini(struct box *b)
{
    struct change_box *c = (struct change_box *)(void *)b;

    (void)object_unref((struct object *)(uintptr_t)c->change.before);
    (void)object_unref((struct object *)(uintptr_t)c->change.after);
}

void root_load_change(struct root *w, const struct change *c)
{
    struct change_box *b = box_new(sizeof *b, change_fini);
    struct key k;

    b->change = *c;
    if (c->before)
        (void)object_ref(c->before);
    if (c->after)
        (void)object_ref(c->after);
    key_u64(&k, c->rv);
    put(&w->changes, key_slice(&k), b);
    w->digest += change_hash(c);
    box_unref(b);
}

struct first {
    struct slice key;
    const void *value;
};

static bool take_first(struct slice key, const void *value, void *arg)
{
    *(struct first *)arg = (struct first){key, value};
    return false;
}

static bool first_of(const struct tree *t, struct key *ret_key, const void **ret_value)
{
    struct first f = {{NULL, 0}, NULL};

    tree_scan(t, slice_make("", 0), take_first, &f);
    if (!f.value)
        return false;
    INV(f.key.n <= sizeof ret_key->p);
    memcpy(ret_key->p, f.key.p, f.key.n);
    ret_key->n = f.key.n;
    *ret_value = f.value;
    return true;
}

#define REQUEST_AGE_MS (24ll * 3600 * 1000)
void root_bound(struct root *w)
{
    struct key k;
    const void *v;

    while (tree_count(w->changes) > LIMIT_CHANGES_MAX && first_of(w->changes, &k, &v)) {
        w->digest -= change_hash(&((const struct change_box *)v)->change);
        del(&w->changes, key_slice(&k));
    }
    /* Old ones go a few at a time, so that a day's worth never falls on one entry. */
    for (int slice = 0; first_of(w->request_order, &k, &v); slice++) {
        const struct bytes_box *id = v;
        struct slice key = slice_make(id->p, id->n);
        const struct request_box *b = tree_get(w->requests, key);

        INV(b);
        if (tree_count(w->requests) <= LIMIT_REQUEST_IDS_MAX &&
            (b->at + REQUEST_AGE_MS > w->time || slice >= 16))
            break;
        w->digest -= request_hash(key, b);
        del(&w->requests, key);
        del(&w->request_order, key_slice(&k));
    }
}

void root_put_request(struct root *w, struct slice key, struct request_box *b)
{
    struct bytes_box *id = box_new(sizeof *id + key.n, NULL);
    struct key k;

    PRE(!tree_get(w->requests, key));
    id->n = (uint32_t)key.n;
    memcpy(id->p, key.p, key.n);
    key_u64(&k, b->seq);
    put(&w->requests, key, b);
    put(&w->request_order, key_slice(&k), id);
    w->digest += request_hash(key, b);
    box_unref(id);
    box_unref(b);
}

void root_put_member(struct root *w, const struct member_info *m, bool remove)
{
    struct key k;

    key_u64(&k, m->id);
    const struct member_box *old = tree_get(w->members, key_slice(&k));
    if (old)
        w->digest -= member_hash(&old->info);
    if (remove) {
        del(&w->members, key_slice(&k));
        return;
    }
    struct member_box *b = box_new(sizeof *b, NULL);
    b->info = *m;
    put(&w->members, key_slice(&k), b);
    w->digest += member_hash(m);
    box_unref(b);
}

void root_put_dead(struct root *w, struct slice key, struct dead_box *b)
{
    const struct dead_box *old = tree_get(w->dead, key);

    if (old)
        w->digest -= dead_hash(key, old);
    if (!b) {
        del(&w->dead, key);
        return;
    }
    w->digest += dead_hash(key, b);
    put(&w->dead, key, b);
    box_unref(b);
}

/* ---- commit
 * ------------------------------------------------------------------------------------------------------------
 */
void root_commit(struct root *w, const struct kind *k, const struct object *before,
                 const struct object *after)
{
    const struct meta *m = after ? after->meta : before->meta;
    struct change c = {w->rv + 1, k->id, before, after};
    struct object *kept =
        before ? object_ref(before) : NULL; /* the tree may hold the last reference */
    struct object *last = NULL;
    struct key key;

    PRE(before || after);
    key_object(&key, m->namespace_, m->name);
    INV(tree_get(w->kinds[k->id], key_slice(&key)) == before);
    w->rv++;
    if (after) {
        INV(after->kind == k && (uint64_t)after->meta->resourceVersion == w->rv &&
            *after->meta->uid);
        put(&w->kinds[k->id], key_slice(&key), after);
        w->digest += object_hash(after);
    } else { /* watchers are told a deletion's own resourceVersion */
        AUTO_ARENA a = arena_create(0);
        struct any_body *body = object_edit(before, a);

        body->metadata->resourceVersion = (int64_t)w->rv;
        c.before = last = object_make(k, body);
        del(&w->kinds[k->id], key_slice(&key));
    }
    if (before)
        w->digest -= object_hash(before);
    index_object(w, before, after);
    root_load_change(w, &c);
    root_bound(w);
    (void)object_unref(last);
    (void)object_unref(kept);
}

void root_load_object(struct root *w, struct object *o)
{
    struct key key;

    key_object(&key, o->meta->namespace_, o->meta->name);
    put(&w->kinds[o->kind->id], key_slice(&key), o);
    w->digest += object_hash(o);
    index_object(w, NULL, o);
}
