/* What follows from a deletion: dependents of a removed owner, the contents of a Namespace, the
 * Nodes of a Target; and from a changed GpuClass: nodes are matched anew. `dead` remembers what is
 * left to do and how far it has come, so that it continues after a restart and under another
 * leader.
 *
 * COLLECT does a slice of it, bounded by objects and by their bytes: however much depends on one
 * object, no command does more than a slice. Members before FEATURE_GRANTS did up to
 * LIMIT_APPLY_MAX_OBJECTS at the end of each command; entries of that time are still applied so.
 *
 * It must never hold on to more than one object's scratch memory. */
#include "controlplane/store/store_internal.h"

#include "api/base/failpoint.h"

bool txn_charge(struct txn *t, size_t bytes)
{
    if (PLANTED("collect.no-bound"))
        return true;
    if (t->objects == 0 || (t->sliced && t->bytes == 0))
        return false;
    t->objects--;
    t->bytes -= bytes < t->bytes ? bytes : t->bytes;
    return true;
}

/* ---- owner references ---- */
static bool owner_lives(const struct root *w, const struct owner_ref *r, const char *ns)
{
    const struct kind *k = kind_by_name(r->kind);
    const struct object *o = k ? root_get(w, k->id, k->namespaced ? ns : "", r->name) : NULL;

    return o && (strcmp(o->meta->uid, r->uid) == 0 || PLANTED("collect.by-name"));
}

/* A child whose owner went: removed, or relieved of the reference when another owner lives. */
static void orphan(struct txn *t, const struct object *o)
{
    struct any_body *b = object_edit(o, t->a);
    uint32_t n = 0;
    bool same;

    for (uint32_t i = 0; i < b->metadata->n_ownerReferences; i++)
        if (!PLANTED("collect.any-child") &&
            owner_lives(t->w, &b->metadata->ownerReferences[i], o->meta->namespace_))
            b->metadata->ownerReferences[n++] = b->metadata->ownerReferences[i];
    if (n == 0) {
        /* A protected namespace stays: it is nobody's child in earnest. */
        (void)!txn_delete(t, o, NULL, PROPAGATE_DEFAULT, &same);
        return;
    }
    b->metadata->n_ownerReferences = n;
    (void)txn_put(t, o->kind, o, b);
}

static struct slice key_copy(struct key *to, const struct key *from)
{
    to->n = from->n;
    memcpy(to->p, from->p, from->n);
    return key_slice(to);
}

static struct slice cursor_of(struct key *at, const struct dead_box *d)
{
    at->n = d->n;
    if (d->n)
        memcpy(at->p, d->cursor, d->n);
    return key_slice(at);
}

static void collect_owned(struct txn *t, struct slice key, const char *uid,
                          const struct dead_box *d)
{
    struct key prefix, at, seen;
    struct slice after = cursor_of(&seen, d);
    const struct object *o;

    key_pair(&prefix, uid, "");
    while ((o = txn_next(t->w->owners, key_slice(&prefix), after, &at))) {
        if (!txn_charge(t, o->bytes)) {
            dead_set(t, key, 0, false, PLANTED("collect.skips-one") ? key_slice(&at) : after);
            return;
        }
        const struct object *kept = object_ref(o);
        orphan(t, kept);
        (void)object_unref(kept);
        after = key_copy(&seen, &at);
        arena_reset(t->a);
    }
    root_put_dead(t->w, key, NULL);
}

/* ---- an owner that goes after its dependents, or without them ---- */
#define TOLD 1 /* stage: every dependent was told; it waits for those that block */
#define GOES_LAST "foregroundDeletion"
#define GOES_ALONE "orphan"
#define FINALIZERS_MAX 64 /* kinds.def */

bool meta_finalizer(const struct meta *m, const char *name)
{
    uint32_t i = 0;

    while (i < m->n_finalizers && strcmp(m->finalizers[i], name) != 0)
        i++;
    return i < m->n_finalizers;
}

static void finalizer_hold(const struct txn *t, struct meta *m, const char *name)
{
    const char **all = arena_array(t->a, const char *, m->n_finalizers + 2);

    if (m->deletionTimestamp || m->n_finalizers >= FINALIZERS_MAX || meta_finalizer(m, name))
        return;
    for (uint32_t i = 0; i < m->n_finalizers; i++)
        all[i] = m->finalizers[i];
    all[m->n_finalizers++] = name;
    m->finalizers = all;
}

void logs_hold(const struct txn *t, struct meta *m)
{
    if (root_feature_level(t->w) >= FEATURE_GIVEN)
        finalizer_hold(t, m, LOGS_FINALIZER);
}

void target_hold(const struct txn *t, struct meta *m)
{
    if (root_feature_level(t->w) >= FEATURE_TELLS)
        finalizer_hold(t, m, TARGET_FINALIZER);
}

bool owner_waits(const struct meta *m)
{
    return meta_finalizer(m, GOES_LAST) || meta_finalizer(m, GOES_ALONE);
}

/* Stores it with this one of the two finalizers; NULL: with neither. */
static const struct object *finalizer_set(struct txn *t, const struct object *o, const char *name)
{
    struct any_body *b = object_edit(o, t->a);
    const char **all = arena_array(t->a, const char *, o->meta->n_finalizers + 1);
    uint32_t n = 0;

    for (uint32_t i = 0; i < o->meta->n_finalizers; i++)
        if (strcmp(b->metadata->finalizers[i], GOES_LAST) != 0 &&
            strcmp(b->metadata->finalizers[i], GOES_ALONE) != 0)
            all[n++] = b->metadata->finalizers[i];
    if (name)
        all[n++] = name;
    b->metadata->finalizers = all;
    b->metadata->n_finalizers = n;
    return txn_put(t, o->kind, o, b);
}

static const struct object *dependent_next(const struct txn *t, const char *uid, struct slice after,
                                           struct key *ret)
{
    struct key prefix;

    key_pair(&prefix, uid, "");
    return txn_next(t->w->owners, key_slice(&prefix), after, ret);
}

const struct object *owner_follow(struct txn *t, const struct object *o, enum propagation how)
{
    const char *name = how == PROPAGATE_FOREGROUND ? GOES_LAST
                       : how == PROPAGATE_ORPHAN   ? GOES_ALONE
                                                   : NULL;
    struct key at;

    if (how == PROPAGATE_DEFAULT || root_feature_level(t->w) < FEATURE_GRANTS)
        return o;
    if (name && !dependent_next(t, o->meta->uid, slice_make("", 0), &at))
        name = NULL;
    if (name ? meta_finalizer(o->meta, name) : !owner_waits(o->meta))
        return o;
    return finalizer_set(t, o, name);
}

static const char *owner_name(struct txn *t, const struct kind *k, const char *ns, const char *name)
{
    return arena_printf(t->a, "%03d%s/%s", (int)k->id, ns, name);
}

void owner_begin(struct txn *t, const struct object *o)
{
    if (owner_waits(o->meta) && root_feature_level(t->w) >= FEATURE_GRANTS)
        dead_begin(t, DEAD_OWNER, owner_name(t, o->kind, o->meta->namespace_, o->meta->name));
}

static void look(struct txn *t, const struct kind *k, const char *ns, const char *name)
{
    if (tree_count(t->w->dead) > 0)
        dead_again(t, DEAD_OWNER, owner_name(t, k, k->namespaced ? ns : "", name));
}

void owner_look(struct txn *t, const struct object *o)
{
    if (o->meta->deletionTimestamp)
        look(t, o->kind, o->meta->namespace_, o->meta->name);
}

void owners_look(struct txn *t, const struct meta *dependent)
{
    for (uint32_t i = 0; i < dependent->n_ownerReferences; i++) {
        const struct kind *k = kind_by_name(dependent->ownerReferences[i].kind);

        if (k)
            look(t, k, dependent->namespace_, dependent->ownerReferences[i].name);
    }
}

/* Another owner keeps a dependent, unless it waits for its own dependents to go. */
static bool owner_keeps(const struct txn *t, const struct owner_ref *r, const char *ns)
{
    const struct kind *k = kind_by_name(r->kind);
    const struct object *o = k && owner_lives(t->w, r, ns)
                                 ? root_get(t->w, k->id, k->namespaced ? ns : "", r->name)
                                 : NULL;

    return o && !(o->meta->deletionTimestamp && meta_finalizer(o->meta, GOES_LAST));
}

static void references_without(struct meta *m, const char *uid)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < m->n_ownerReferences; i++)
        if (strcmp(m->ownerReferences[i].uid, uid) != 0)
            m->ownerReferences[n++] = m->ownerReferences[i];
    m->n_ownerReferences = n;
}

#define DEPENDENTS_LOOKED_AT 1000
/* One of its own dependents waits for its dependents, too: a circle, in which nobody may wait. */
static bool in_circle(const struct txn *t, const struct object *o)
{
    struct key at, seen = {.n = 0};
    const struct object *x;
    int n = 0;

    while ((x = dependent_next(t, o->meta->uid, key_slice(&seen), &at))) {
        if (++n > DEPENDENTS_LOOKED_AT ||
            (x->meta->deletionTimestamp && meta_finalizer(x->meta, GOES_LAST)))
            return true;
        (void)key_copy(&seen, &at);
    }
    return false;
}

static void dependent_told(struct txn *t, const struct object *o, const char *owner_uid, bool alone)
{
    struct any_body *b = object_edit(o, t->a);
    bool circle = !alone && in_circle(t, o), same;
    uint32_t others = 0;
    struct key at;

    for (uint32_t i = 0; i < o->meta->n_ownerReferences; i++)
        others += strcmp(o->meta->ownerReferences[i].uid, owner_uid) != 0 &&
                  owner_keeps(t, &o->meta->ownerReferences[i], o->meta->namespace_);
    if (alone || others) {
        references_without(b->metadata, owner_uid);
        (void)txn_put(t, o->kind, o, b);
        return;
    }
    for (uint32_t i = 0; i < o->meta->n_ownerReferences && circle; i++)
        b->metadata->ownerReferences[i].blockOwnerDeletion = false;
    if (circle)
        o = txn_put(t, o->kind, o, b);
    if (!o->meta->deletionTimestamp) {
        bool owns = dependent_next(t, o->meta->uid, slice_make("", 0), &at) != NULL;
        (void)!txn_delete(t, o, NULL, owns ? PROPAGATE_FOREGROUND : PROPAGATE_DEFAULT, &same);
    }
}

/* The indexes of an array block its deletion without saying so; what is never deleted does not. */
static bool blocks(const struct txn *t, const struct object *o, const char *owner_uid)
{
    int64_t index;
    const struct object *array =
        o->kind->id == KIND_WORKLOAD ? array_of(t->w, o->meta, &index) : NULL;

    if (strcmp(o->meta->uid, owner_uid) == 0 || namespace_protected(o))
        return false;
    if (array && strcmp(array->meta->uid, owner_uid) == 0)
        return true;
    for (uint32_t i = 0; i < o->meta->n_ownerReferences; i++)
        if (strcmp(o->meta->ownerReferences[i].uid, owner_uid) == 0)
            return o->meta->ownerReferences[i].blockOwnerDeletion;
    return false;
}

static const struct object *first_that_blocks(const struct txn *t, const char *uid)
{
    struct key at, seen = {.n = 0};
    const struct object *o;

    while ((o = dependent_next(t, uid, key_slice(&seen), &at)) && !blocks(t, o, uid))
        (void)key_copy(&seen, &at);
    return o;
}

static void owner_goes(struct txn *t, struct slice key, const struct object *o)
{
    struct object *before = object_ref(o);
    bool unused;

    root_put_dead(t->w, key, NULL);
    o = finalizer_set(t, before, NULL);
    (void)object_unref(before);
    if (o->meta->n_finalizers > 0)
        return;
    txn_settle(t, o->kind->id == KIND_NAMESPACE ? o->meta->name : o->meta->namespace_,
               o->kind->id == KIND_TARGET ? o->meta->name : NULL);
    if (root_get(t->w, o->kind->id, o->meta->namespace_, o->meta->name) == o)
        (void)!txn_delete(t, o, NULL, PROPAGATE_DEFAULT, &unused);
}

/* As it is stored now; NULL: it is gone, or waits no more. NAME is that of a DEAD_OWNER. */
static const struct object *owner_that_waits(struct txn *t, const char *name)
{
    const char *slash = strchr(name, '/');
    char ns[64] = "";
    int kind = 0;

    if (!slash || slash - name < 3 || (size_t)(slash - name - 3) >= sizeof ns)
        return NULL;
    for (int i = 0; i < 3; i++)
        kind = kind * 10 + (name[i] - '0');
    memcpy(ns, name + 3, (size_t)(slash - name - 3));
    const struct kind *k = kind_by_id((enum kind_id)kind);
    const struct object *o = k ? root_get(t->w, k->id, ns, slash + 1) : NULL;
    return o && o->meta->deletionTimestamp && owner_waits(o->meta) ? o : NULL;
}

/* false: the slice is used up. */
static bool dependents_told(struct txn *t, struct slice key, const struct dead_box *d,
                            const char *uid, bool alone)
{
    struct key at, seen;
    struct slice after = cursor_of(&seen, d);
    const struct object *o;

    while ((o = dependent_next(t, uid, after, &at))) {
        if (!txn_charge(t, o->bytes)) {
            dead_set(t, key, 0, false, after);
            return false;
        }
        struct object *kept = object_ref(o);
        dependent_told(t, kept, uid, alone);
        (void)object_unref(kept);
        after = key_copy(&seen, &at);
        arena_reset(t->a);
    }
    return true;
}

/* What runs ends first: it may still need what it owns. Then every dependent is told, and those
 * that block are awaited; one that came since is told as well. */
static void collect_owner(struct txn *t, struct slice key, const char *name,
                          const struct dead_box *d)
{
    const struct object *o = owner_that_waits(t, name), *child;
    char uid[64];

    if (!o) {
        root_put_dead(t->w, key, NULL);
        return;
    }
    if (object_live(o) || recover_holds(t->w, o)) {
        dead_set(t, key, 0, true, slice_make("", 0));
        return;
    }
    bool alone = meta_finalizer(o->meta, GOES_ALONE);
    str_copy(uid, sizeof uid, o->meta->uid);
    if (d->stage != TOLD && !dependents_told(t, key, d, uid, alone))
        return;
    child = alone ? NULL : first_that_blocks(t, uid);
    if (child)
        dead_set(t, key, child->meta->deletionTimestamp ? TOLD : 0,
                 child->meta->deletionTimestamp != 0, slice_make("", 0));
    else if ((o = owner_that_waits(t, name))) /* telling its dependents may have changed it */
        owner_goes(t, key, o);
    else
        root_put_dead(t->w, key, NULL);
}

/* ---- a Namespace's contents ---- */
/* All its contents have been told to go, and some have not gone yet. It waits for them as long as
 * the first of each kind is one of those; else something came since, and all is looked at again. */
static void namespace_waits(struct txn *t, struct slice key, bool unmarked)
{
    bool again = !t->sliced || unmarked;

    dead_set(t, key, again ? 0 : KIND_LIMIT, t->sliced ? !unmarked : true, slice_make("", 0));
}

/* Nothing is left to be told: the namespace goes when it is empty. */
static void namespace_end(struct txn *t, struct slice key, const char *ns)
{
    bool left = false, unmarked = false;
    struct key prefix, at;

    key_pair(&prefix, ns, "");
    for (int k = 1; k < KIND_LIMIT; k++) {
        const struct kind *kind = t->w->kinds[k] ? kind_by_id((enum kind_id)k) : NULL;
        const struct object *o =
            kind && kind->namespaced
                ? txn_next(t->w->kinds[k], key_slice(&prefix), slice_make("", 0), &at)
                : NULL;

        left = left || o;
        unmarked = unmarked || (o && !o->meta->deletionTimestamp);
    }
    const struct object *o = root_get(t->w, KIND_NAMESPACE, "", ns);
    if (left || (o && o->meta->n_finalizers > 0)) {
        namespace_waits(t, key, unmarked);
        return;
    }
    root_put_dead(t->w, key, NULL);
    if (o && o->meta->deletionTimestamp)
        txn_remove(t, o);
}

/* Workloads first, the rest when none of them lives; then the namespace itself. */
static void collect_namespace(struct txn *t, struct slice key, const char *ns,
                              const struct dead_box *d)
{
    uint32_t stage = d->stage;
    struct key prefix, at, seen;
    struct slice after = cursor_of(&seen, d);
    bool same;

    key_pair(&prefix, ns, "");
    while (stage < KIND_LIMIT) {
        enum kind_id kind = stage == 0 ? KIND_WORKLOAD : (enum kind_id)stage;
        const struct kind *k = kind_by_id(kind);
        const struct object *o =
            k && k->namespaced ? txn_next(t->w->kinds[kind], key_slice(&prefix), after, &at) : NULL;

        if (!o && stage == 0 && root_count_of(t->w->ns_live, key_str(ns)) > 0) {
            dead_set(t, key, 0, true, t->sliced ? after : slice_make("", 0));
            return;
        }
        if (!o) {
            stage++;
            after = slice_make("", 0);
            continue;
        }
        if (!txn_charge(t, o->bytes)) {
            dead_set(t, key, stage, false, after);
            return;
        }
        const struct object *kept = object_ref(o);
        /* Contents are never a protected namespace. */
        (void)!txn_delete(t, kept, NULL, PROPAGATE_DEFAULT, &same);
        (void)object_unref(kept);
        after = key_copy(&seen, &at);
        arena_reset(t->a);
    }
    namespace_end(t, key, ns);
}

/* ---- a Target's Nodes ---- */
static void collect_target(struct txn *t, struct slice key, const char *target,
                           const struct dead_box *d)
{
    const struct object *o = root_get(t->w, KIND_TARGET, "", target), *n;
    struct key prefix, at, seen;
    struct slice after = cursor_of(&seen, d);

    if (o && !txn_removable(t, o)) {
        dead_set(t, key, 0, true, slice_make("", 0));
        return;
    }
    key_object(&prefix, "", target);
    prefix.p[prefix.n++] = '.';
    while ((n = txn_next(t->w->kinds[KIND_NODE], key_slice(&prefix), after, &at))) {
        if (!txn_charge(t, n->bytes)) {
            dead_set(t, key, 0, false, after);
            return;
        }
        if (strcmp(object_as(n, node)->spec->target, target) == 0)
            txn_remove(t, n);
        after = key_copy(&seen, &at);
        arena_reset(t->a);
    }
    root_put_dead(t->w, key, NULL);
    o = root_get(t->w, KIND_TARGET, "", target);
    if (o && o->meta->deletionTimestamp)
        txn_remove(t, o);
}

/* ---- one after the other ---- */
struct pick {
    struct key key;
    struct dead_box *dead; /* a copy: its entry is replaced while it is worked on */
};

static bool pick_each(struct slice key, const void *value, void *arg)
{
    struct pick *p = arg;
    const struct dead_box *d = value;

    if (d->waiting)
        return true;
    memcpy(p->key.p, key.p, key.n);
    p->key.n = key.n;
    p->dead = box_new(sizeof *d + d->n, NULL);
    p->dead->stage = d->stage;
    p->dead->n = d->n;
    if (d->n)
        memcpy(p->dead->cursor, d->cursor, d->n);
    return false;
}

/* The next one that does not wait, from `from` on. */
static void collect_next(struct txn *t, struct slice from, struct pick *p)
{
    char name[STORE_KEY_MAX + 1] = "";

    tree_scan(t->w->dead, from, pick_each, p);
    if (!p->dead)
        return;
    memcpy(name, p->key.p + 1, p->key.n - 1);
    if (p->key.p[0] == 'o')
        collect_owned(t, key_slice(&p->key), name, p->dead);
    else if (p->key.p[0] == 'n')
        collect_namespace(t, key_slice(&p->key), name, p->dead);
    else if (p->key.p[0] == DEAD_OWNER)
        collect_owner(t, key_slice(&p->key), name, p->dead);
    else if (p->key.p[0] == DEAD_CLASSES)
        collect_classes(t, key_slice(&p->key), p->dead);
    else if (p->key.p[0] == DEAD_SETTLED)
        recover_collect(t, key_slice(&p->key));
    else
        collect_target(t, key_slice(&p->key), name, p->dead);
    arena_reset(t->a);
}

void txn_collect_all(struct txn *t)
{
    while (t->objects > 0 && t->w->dead_due > 0) {
        struct pick p = {.dead = NULL};

        collect_next(t, slice_make("", 0), &p);
        box_unref(p.dead);
    }
}

/* One pass: what waits is passed over once, and what a slice makes due in front of it is for the
 * next one. Each that is taken up is charged, since many owners have nothing left. */
int apply_collect(struct txn *t, const struct collect_cmd *c)
{
    struct key from = {.n = 0};
    bool unchanged = true;

    if (c->objects == 0 || c->objects > COLLECT_MAX_OBJECTS || c->bytes == 0 ||
        c->bytes > COLLECT_MAX_BYTES)
        return err_set(t->err, E_INVALID, "a slice has 1 to %u objects of 1 to %llu bytes",
                       COLLECT_MAX_OBJECTS, COLLECT_MAX_BYTES);
    t->objects = c->objects;
    t->bytes = c->bytes;
    while (t->w->dead_due > 0 && txn_charge(t, 1)) {
        struct pick p = {.dead = NULL};

        collect_next(t, key_slice(&from), &p);
        if (!p.dead)
            break;
        (void)key_copy(&from, &p.key);
        box_unref(p.dead);
        unchanged = false;
    }
    t->res->unchanged = unchanged;
    return 0;
}
