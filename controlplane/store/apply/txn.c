/* What all commands use: storing and removing objects in a transaction, and deletion.
 *
 * A deletion never does more than the facts allow: a Workload that may run outside stays until its
 * run is proved ended, a Target until nothing is held there, a Namespace until nothing in it lives.
 * collect.c removes what depended on a removed object. */
#include "controlplane/store/store_internal.h"

#include <stdio.h>

const char *sentence_named(struct txn *t, const struct kind *k, const char *name)
{
    return *k->group ? arena_printf(t->a, "%s.%s \"%s\"", k->plural, k->group, name)
                     : arena_printf(t->a, "%s \"%s\"", k->plural, name);
}

void *txn_status(const struct kind *k, void *body)
{
    for (unsigned i = 0; i < k->schema->n; i++) {
        const struct field *f = &k->schema->fields[i];

        if (f->type == T_OBJ && strcmp(f->json, "status") == 0)
            return (char *)body + f->off;
    }
    return NULL;
}

const struct object *txn_put(struct txn *t, const struct kind *k, const struct object *before,
                             void *body)
{
    struct any_body *b = body;

    if (k->id == KIND_WORKLOAD && before)
        recover_touch(t, before, body);
    ledger_spend(t, before, body);
    if (k->id == KIND_RESOURCE_QUOTA)
        quotas_fill(t, body);
    b->metadata->resourceVersion = (int64_t)(t->w->rv + 1);
    struct object *o = NULL;
    int r =
        object_make_within(k, body, STORE_OBJECT_MAX_BYTES, &o, t->failed.code ? NULL : &t->failed);
    if (r < 0) /* the command fails as a whole: its fork is dropped (entry.c) */
        return before;
    root_commit(t->w, k, before, o);
    const struct object *stored = root_get(t->w, k->id, o->meta->namespace_, o->meta->name);
    (void)object_unref(o);
    array_follow(t, before, stored);
    if (before && before->meta->n_ownerReferences)
        owners_look(t, before->meta);
    owner_look(t, stored);
    return stored;
}

const char *txn_uid(struct txn *t, const char *of)
{
    uint64_t h = hash_bytes(hash_u64(t->w->rv, t->w->number), of, strlen(of));
    uint64_t l = hash_bytes(h, t->w->cluster_uid, strlen(t->w->cluster_uid));

    return arena_printf(t->a, "%08x-%04x-8%03x-a%03x-%012llx", (unsigned)(h >> 32),
                        (unsigned)(h >> 16 & 0xffff), (unsigned)(h & 0xfff), (unsigned)(l >> 52),
                        (unsigned long long)(l & 0xffffffffffffu));
}

struct meta *txn_meta(struct txn *t, const char *ns, const char *name)
{
    struct meta *m = arena_new(t->a, struct meta);

    m->name = name;
    m->namespace_ = ns;
    m->uid = txn_uid(t, name);
    m->creationTimestamp = t->now;
    m->generation = 1;
    return m;
}

struct all {
    const struct object **v;
    size_t n;
};

static bool all_each(const struct object *o, void *arg)
{
    struct all *all = arg;

    all->v[all->n++] = o;
    return true;
}

const struct object *const *root_all(const struct root *w, enum kind_id kind, struct arena *a,
                                     size_t *ret_n)
{
    struct all all = {arena_array(a, const struct object *, root_count(w, kind) + 1), 0};

    root_scan(w, kind, NULL, NULL, NULL, all_each, &all);
    *ret_n = all.n;
    return all.v;
}

const struct object *const *txn_all(struct txn *t, enum kind_id kind, size_t *ret_n)
{
    return root_all(t->w, kind, t->a, ret_n);
}

void txn_condition(struct txn *t, struct condition **list, uint32_t *n, const char *type,
                   enum cond_status status, const char *reason, const char *message)
{
    struct condition *c = NULL;

    for (uint32_t i = 0; i < *n; i++)
        if (strcmp((*list)[i].type, type) == 0)
            c = &(*list)[i];
    if (!c) {
        struct condition *more = arena_array(t->a, struct condition, *n + 1);

        if (*n)
            memcpy(more, *list, *n * sizeof *more);
        *list = more;
        c = &more[(*n)++];
        c->type = type;
    }
    if (c->status != status)
        c->lastTransitionTime = t->now;
    c->status = status;
    c->reason = reason;
    c->message = message;
}

/* ---- what waits for its dependents ---- */
static struct slice dead_key(struct key *k, char what, const char *name)
{
    size_t n = strlen(name);

    INV(n + 1 <= sizeof k->p);
    k->p[0] = what;
    memcpy(k->p + 1, name, n);
    k->n = n + 1;
    return key_slice(k);
}

void dead_set(struct txn *t, struct slice key, uint32_t stage, bool waiting, struct slice cursor)
{
    struct dead_box *d = box_new(sizeof *d + cursor.n, NULL);

    d->stage = stage;
    d->waiting = waiting;
    d->n = (uint32_t)cursor.n;
    if (cursor.n)
        memcpy(d->cursor, cursor.p, cursor.n);
    root_put_dead(t->w, key, d);
}

void dead_begin(struct txn *t, char what, const char *name)
{
    struct key k;

    if (!tree_get(t->w->dead, dead_key(&k, what, name)))
        dead_set(t, key_slice(&k), 0, false, slice_make("", 0));
}

void dead_again(struct txn *t, char what, const char *name)
{
    struct key k;
    const struct dead_box *d = tree_get(t->w->dead, dead_key(&k, what, name));

    if (d && d->waiting)
        dead_set(t, key_slice(&k), d->stage, false, slice_make(d->cursor, d->n));
}

void txn_settle(struct txn *t, const char *ns, const char *target)
{
    const char *names[2] = {ns, target};
    struct key k;

    for (int i = 0; i < 2 && tree_count(t->w->dead) > 0; i++) {
        const struct dead_box *d =
            names[i] ? tree_get(t->w->dead, dead_key(&k, "nt"[i], names[i])) : NULL;

        if (!d || !d->waiting)
            continue;
        if (t->sliced) /* goes on where it waits: nothing that it has seen is looked at again */
            dead_set(t, key_slice(&k), d->stage, false, slice_make(d->cursor, d->n));
        else
            dead_set(t, key_slice(&k), 0, false, slice_make("", 0));
    }
}

struct owned {
    struct slice prefix, after;
    const struct object *found;
    struct key key;
};

static bool owned_each(struct slice key, const void *value, void *arg)
{
    struct owned *s = arg;

    if (key.n < s->prefix.n || memcmp(key.p, s->prefix.p, s->prefix.n) != 0)
        return false;
    if (key.n == s->after.n && memcmp(key.p, s->after.p, key.n) == 0)
        return true;
    s->found = value;
    memcpy(s->key.p, key.p, key.n);
    s->key.n = key.n;
    return false;
}

/* The next entry of a tree below a prefix and after a cursor. */
const struct object *txn_next(const struct tree *tree, struct slice prefix, struct slice after,
                              struct key *ret)
{
    struct owned s = {.prefix = prefix, .after = after};

    tree_scan(tree, after.n ? after : prefix, owned_each, &s);
    *ret = s.key;
    return s.found;
}

void txn_forget(struct txn *t, const struct object *o)
{
    const struct object *kept = object_ref(o);
    struct key k, found;

    root_commit(t->w, o->kind, o, NULL);
    key_pair(&k, kept->meta->uid, "");
    if (txn_next(t->w->owners, key_slice(&k), slice_make("", 0), &found))
        dead_begin(t, 'o', kept->meta->uid);
    txn_settle(t, kept->meta->namespace_, NULL);
    if (object_hold(kept))
        txn_settle(t, NULL, object_hold(kept)->target);
    array_follow(t, kept, NULL);
    owners_look(t, kept->meta);
    owner_look(t, kept);
    (void)object_unref(kept);
}

void txn_remove(struct txn *t, const struct object *o)
{
    archive_take(t, o);
    txn_forget(t, o);
}

/* ---- deletion ---- */
#define GRACE_MS 5000 /* of a Workload without a checkpoint contract */

int64_t workload_grace_ms(const struct object *o)
{
    const struct checkpoint_spec *c = object_as(o, workload)->spec->checkpoint;
    int64_t seconds;

    if (o->meta->deletionTimestamp && meta_grace(o->meta, &seconds))
        return seconds * 1000;
    return c && c->grace > 0 ? c->grace : GRACE_MS;
}

static bool grace_valid(const int64_t *grace)
{
    return !grace || (*grace >= 0 && *grace <= DELETION_GRACE_MAX_S);
}

/* Under way already: as in Kubernetes it may be made shorter, never longer. */
static const struct object *grace_shorten(struct txn *t, const struct object *o,
                                          const int64_t *grace)
{
    if (!grace || o->kind->id != KIND_WORKLOAD || *grace * 1000 >= workload_grace_ms(o))
        return o;
    struct any_body *b = object_edit(o, t->a);
    meta_grace_set(b->metadata, *grace);
    return txn_put(t, o->kind, o, b);
}

static const struct object *mark_deleted(struct txn *t, const struct object *o,
                                         const int64_t *grace)
{
    struct any_body *b = object_edit(o, t->a);

    b->metadata->deletionTimestamp = t->now;
    if (grace && o->kind->id == KIND_WORKLOAD)
        meta_grace_set(b->metadata, *grace);
    if (recover_holds(t->w, o))
        recover_tell_deleted(((struct workload *)(void *)b)->status);
    if (o->kind->id == KIND_NAMESPACE) {
        struct namespace_ *n = (struct namespace_ *)(void *)b;

        if (!n->status)
            n->status = arena_new(t->a, struct namespace_status);
        n->status->phase = "Terminating";
    }
    return txn_put(t, o->kind, o, b);
}

/* May it be taken out of the state now, as far as it alone is concerned? */
bool txn_removable(const struct txn *t, const struct object *o)
{
    if (o->meta->n_finalizers > 0 || object_live(o) || object_open_move(o) || machine_open(o) ||
        recover_holds(t->w, o))
        return false;
    return o->kind->id != KIND_TARGET ||
           (root_count_of(t->w->target_held, key_str(o->meta->name)) == 0 &&
            machines_live(object_as(o, target)->status) == 0);
}

bool namespace_protected(const struct object *o)
{
    return o->kind->id == KIND_NAMESPACE &&
           (strcmp(o->meta->name, "default") == 0 || strcmp(o->meta->name, "hanse-system") == 0);
}

int txn_delete(struct txn *t, const struct object *o, const int64_t *grace, enum propagation how,
               bool *ret_unchanged)
{
    enum kind_id kind = o->kind->id;
    bool contents = kind == KIND_NAMESPACE || kind == KIND_TARGET;
    const struct object *given = o;

    *ret_unchanged = false;
    if (!grace_valid(grace))
        return err_field(t->err, E_INVALID, "gracePeriodSeconds", "must be from 0 to %d",
                         DELETION_GRACE_MAX_S);
    if (namespace_protected(o))
        return err_set(t->err, E_FORBIDDEN,
                       "namespaces \"%s\" is forbidden: this namespace may not be deleted",
                       o->meta->name);
    o = owner_follow(t, o, how);
    if (!contents && txn_removable(t, o)) {
        txn_remove(t, o);
        return 0;
    }
    if (o->meta->deletionTimestamp) {
        const struct object *now = grace_shorten(t, o, grace);
        *ret_unchanged = now == given;
        recover_await(t, now);
        owner_begin(t, now);
        if (contents)
            dead_begin(t, kind == KIND_NAMESPACE ? 'n' : 't', o->meta->name);
        return 0;
    }
    o = mark_deleted(t, o, grace);
    recover_await(t, o);
    owner_begin(t, o);
    if (contents)
        dead_begin(t, kind == KIND_NAMESPACE ? 'n' : 't', o->meta->name);
    return 0;
}
