/* The root: one version of everything, and the one function (root_commit) through which objects
 * change. It keeps all indexes (index.c), the window of changes and the digest up to date, so that
 * no command can forget one of them.
 *
 * A root must never hold what cannot be computed again from objects, changes, requests, members,
 * strangers and dead: those are what a snapshot carries. */
#include "controlplane/store/store_internal.h"

#include <stdio.h>

/* ---- boxes ---- */
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
    (void)object_unref(v);
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

/* ---- keys and hashes ---- */
void key_add(struct key *k, const char *s, bool end)
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

#define REQUEST_SEED 3
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

/* ---- life ---- */
static void fixed_trees(struct root *r, struct tree **out[ROOT_TREES_FIXED])
{
    struct tree **all[ROOT_TREES_FIXED] = {&r->changes,
                                           &r->requests,
                                           &r->keys,
                                           &r->key_order,
                                           &r->key_use,
                                           &r->sessions,
                                           &r->recents,
                                           &r->members,
                                           &r->dead,
                                           &r->request_order,
                                           &r->uids,
                                           &r->owners,
                                           &r->usage,
                                           &r->mig,
                                           &r->held,
                                           &r->target_held,
                                           &r->target_class,
                                           &r->load,
                                           &r->class_gpus,
                                           &r->target_nodes,
                                           &r->ns_live,
                                           &r->moves,
                                           &r->ancestors,
                                           &r->strangers,
                                           &r->arrays,
                                           &r->ns_objects,
                                           &r->quotas_due,
                                           &r->rates,
                                           NULL};

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
        *fixed[i] = tree_create(fixed[i] == &r->uids || fixed[i] == &r->owners ||
                                        fixed[i] == &r->moves || fixed[i] == &r->arrays
                                    ? &object_ops
                                    : &box_ops);
    for (int k = 1; k < KIND_LIMIT; k++)
        r->kinds[k] = kind_by_id((enum kind_id)k) ? tree_create(&object_ops) : NULL;
    ledger_init(&r->ledger);
    archive_init(&r->archive);
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
    ledger_fini(&r->ledger);
    archive_fini(&r->archive);
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
    ledger_fork(&f->ledger);
    archive_fork(&f->archive);
    return f;
}

/* ---- the window of changes, request ids ---- */
static void change_fini(struct box *b)
{
    struct change_box *c = (struct change_box *)(void *)b;

    (void)object_unref(c->change.before);
    (void)object_unref(c->change.after);
}

/* Each change pays for the version that it made (a deletion for the one that it took away); what
 * was before it is the version of an earlier change, or lives in the state. */
uint64_t change_bytes(const struct change *c)
{
    const struct object *made = c->after ? c->after : c->before;

    return 128u + (made ? made->bytes : 0);
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
    w->changes_bytes += change_bytes(c);
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

/* What happened in a state that was lost is not what happened here: older watches begin anew. */
void root_jump(struct root *w, uint64_t rv)
{
    struct key k;
    const void *v;

    while (first_of(w->changes, &k, &v)) {
        const struct change *c = &((const struct change_box *)v)->change;

        w->digest -= change_hash(c);
        w->changes_bytes -= change_bytes(c);
        del(&w->changes, key_slice(&k));
    }
    w->rv = rv;
}

/* Is the window of changes larger than it may be? Members before FEATURE_GRANTS count changes only:
 * as long as there is one, all do. */
static bool changes_over(const struct root *w)
{
    uint64_t n = tree_count(w->changes);

    return n > LIMIT_CHANGES_MAX ||
           (w->changes_bytes > LIMIT_CHANGES_MAX_BYTES && n > LIMIT_CHANGES_MIN &&
            root_feature_level(w) >= FEATURE_GRANTS);
}

/* that go at once: what a lower bound lets go never falls on one entry */
#define CHANGES_SLICE 64
#define REQUEST_AGE_MS (24ll * 3600 * 1000)
void root_bound(struct root *w)
{
    struct key k;
    const void *v;

    for (int i = 0; i < CHANGES_SLICE && changes_over(w) && first_of(w->changes, &k, &v); i++) {
        const struct change *c = &((const struct change_box *)v)->change;

        w->digest -= change_hash(c);
        w->changes_bytes -= change_bytes(c);
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
        w->digest -= request_hash(REQUEST_SEED, key, b);
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
    w->digest += request_hash(REQUEST_SEED, key, b);
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

void root_put_stranger(struct root *w, const char *name, bool remove)
{
    const struct slice key = slice_make(name, strlen(name));
    bool there = tree_get(w->strangers, key) != NULL;

    if (remove != there)
        return;
    if (remove) {
        del(&w->strangers, key);
        w->digest -= hash_bytes(6, key.p, key.n);
        return;
    }
    struct box *b = box_new(sizeof *b, NULL);
    put(&w->strangers, key, b);
    w->digest += hash_bytes(6, key.p, key.n);
    box_unref(b);
}

void root_put_dead(struct root *w, struct slice key, struct dead_box *b)
{
    const struct dead_box *old = tree_get(w->dead, key);

    if (old) {
        w->digest -= dead_hash(key, old);
        w->dead_due -= !old->waiting;
    }
    if (!b) {
        del(&w->dead, key);
        return;
    }
    w->digest += dead_hash(key, b);
    w->dead_due += !b->waiting;
    put(&w->dead, key, b);
    box_unref(b);
}

/* Those of its agents that dialed in before it was there are no strangers any more. */
static void agents_known(struct root *w, const struct object *target)
{
    const struct target_spec *s = object_as(target, target)->spec;
    char name[256 + 64];

    for (uint32_t i = 0; i < s->n_agents; i++) {
        (void)snprintf(name, sizeof name, "%s.%s", target->meta->name, s->agents[i].name);
        root_put_stranger(w, name, true);
    }
}

/* ---- commit ---- */
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
    ledger_change_begin(w, before, after);
    w->rv++;
    if (after) {
        INV(after->kind == k && (uint64_t)after->meta->resourceVersion == w->rv &&
            *after->meta->uid);
        put(&w->kinds[k->id], key_slice(&key), after);
        w->digest += object_hash(after);
    } else { /* watchers are told a deletion's own resourceVersion */
        AUTO_ARENA a = arena_create(STORE_SCRATCH_MAX_BYTES);
        struct any_body *body = object_edit(before, a);

        body->metadata->resourceVersion = (int64_t)w->rv;
        int r = object_make_within(k, body, STORE_OBJECT_MAX_BYTES + 64, &last, NULL);
        INV(r == 0); /* by some bytes larger than what txn_put let in */
        c.before = last;
        del(&w->kinds[k->id], key_slice(&key));
    }
    if (before)
        w->digest -= object_hash(before);
    root_index_object(w, before, after);
    quotas_note(w, before, after);
    if (k->id == KIND_RESOURCE_QUOTA)
        rates_follow(w, before, after);
    ledger_change(w, before, after);
    /* A Target that goes while it is open what runs where has not told it. */
    if (k->id == KIND_TARGET && (after || w->recovering))
        root_put_stranger(w, m->name, after != NULL);
    if (k->id == KIND_TARGET && after)
        agents_known(w, after);
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
    root_index_object(w, NULL, o);
    ledger_load(w, o);
}
