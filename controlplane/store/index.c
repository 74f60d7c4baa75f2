/* What an object means for the indexes of a root: what it holds, which object owns it, what it
 * counts for.
 *
 * An index must never depend on more than the object itself: when a snapshot is read, indexes are
 * made again from the objects one by one, in any order. */
#include "controlplane/store/store_internal.h"

#include "api/base/failpoint.h"
#include "policy/policy.h"

#include <stdio.h>
#include <stdlib.h>

static void put(struct tree **t, struct slice key, const void *v)
{
    *t = tree_put_own(*t, key, v);
}

static void del(struct tree **t, struct slice key)
{
    *t = tree_del_own(*t, key);
}

bool object_live(const struct object *o)
{
    if (!o || o->kind->id != KIND_WORKLOAD)
        return false;
    const struct workload *w = object_as(o, workload);
    return w->status && phase_live(w->status->phase) && !workload_array(w);
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

        return m->status && move_holds(m->status->phase) && !PLANTED("move.destination-unheld")
                   ? m->status->placement
                   : NULL;
    }
    if (!o || o->kind->id != KIND_WORKLOAD)
        return NULL;
    const struct workload *w = object_as(o, workload);
    return w->status && phase_holds(w->status->phase) ? w->status->placement : NULL;
}

void root_count_add(struct tree **t, struct slice key, int64_t n)
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

/* In the same tree: no device is named so. Whole ones: "counted/CLASS"; a profile: "\1PROFILE"
 * behind that; shares: "\1". */
static void counted_key(struct key *k, const char *node, const char *class_, struct slice_kind kind)
{
    char text[128];

    (void)snprintf(text, sizeof text, "counted/%s%s%s", class_,
                   *kind.mig || kind.shares ? "\1" : "", kind.mig);
    key_pair(k, node, text);
}

int64_t root_counted_held(const struct root *r, const char *node, const char *class_,
                          const struct slice_kind *kind)
{
    struct key k;

    counted_key(&k, node, class_, *kind);
    return root_count_of(r->mig, key_slice(&k));
}

struct strays {
    struct key prefix; /* node \0 */
    const struct node *n;
    const char *class_;
    struct slice_kind kind; /* that is asked for */
    int64_t sum;
};

static bool numbers(const struct node *n, int64_t index)
{
    for (uint32_t i = 0; n && n->spec && i < n->spec->n_gpus; i++)
        if (n->spec->gpus[i].index == index)
            return true;
    return false;
}

/* An instance of a device that it tells no more: of the row of its profile, or of any. */
static void stray_instance(struct strays *x, char *at, int64_t count)
{
    char *profile = strchr(at, '/');
    struct slice_kind kind = {profile ? profile + 1 : "", false};
    bool mine = slice_same(kind, x->kind);

    if (profile && node_counts(x->n, x->class_) && !numbers(x->n, strtoll(at, NULL, 10)) &&
        (mine || !node_counted(x->n, x->class_, kind).count))
        x->sum += count;
}

static bool strays_each(struct slice key, const void *value, void *arg)
{
    const struct count_box *count = value;
    struct strays *x = arg;
    size_t class_ = strlen(x->class_), counted = strlen("counted/");
    char text[160];

    if (key.n < x->prefix.n || memcmp(key.p, x->prefix.p, x->prefix.n) != 0)
        return false;
    if (key.n - x->prefix.n >= sizeof text)
        return true;
    memcpy(text, (const char *)key.p + x->prefix.n, key.n - x->prefix.n);
    text[key.n - x->prefix.n] = '\0';
    if (strncmp(text, "counted/", counted) != 0) {
        stray_instance(x, text, count->n);
        return true;
    }
    const char *rest = text + counted + class_;
    if (strncmp(text + counted, x->class_, class_) != 0 || (*rest && *rest != 1))
        return true;
    struct slice_kind kind = {*rest ? rest + 1 : "", *rest && !rest[1]};
    if (!slice_same(kind, x->kind) && !node_counted(x->n, x->class_, kind).count)
        x->sum += count->n;
    return true;
}

int64_t root_counted_strayed(const struct root *r, const struct node *n, const char *node,
                             const char *class_, const struct slice_kind *kind)
{
    struct strays x = {.n = n, .class_ = class_, .kind = *kind};
    const struct slice_kind whole = {"", false};
    struct node_usage now = {0};

    key_pair(&x.prefix, node, "");
    tree_scan(r->mig, key_slice(&x.prefix), strays_each, &x);
    if (!node_counts(n, class_) ||
        (!slice_same(*kind, whole) && node_counted(n, class_, whole).count))
        return x.sum;
    (void)root_usage(r, node, &now);
    for (int64_t i = 0; i < LIMIT_NODE_GPUS; i++)
        x.sum += now.device_milli[i] > 0 && !numbers(n, i);
    return x.sum;
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
    b->usage.gpu_milli += sign * assignment_milli(a);
    if (a->count) {
        counted_key(&k, a->node, p->class_, assignment_kind(a));
        root_count_add(&w->mig, key_slice(&k), sign * a->count);
    }
    for (uint32_t i = 0; i < a->n_gpus; i++) {
        INV(a->gpus[i] >= 0 && a->gpus[i] < LIMIT_NODE_GPUS);
        if (*a->mig) {
            mig_key(&k, a->node, a->gpus[i], a->mig);
            root_count_add(&w->mig, key_slice(&k), sign);
            continue;
        }
        int64_t d = b->usage.device_milli[a->gpus[i]] + sign * a->gpuMilli;
        INV(d >= 0 && d <= 1000);
        b->usage.device_milli[a->gpus[i]] = (uint16_t)d;
    }
    for (int i = 0; i < LIMIT_NODE_GPUS; i++)
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

void root_usage_take(struct root *w, const struct placement *p, const struct assignment *a)
{
    usage_add(w, p, a, -1);
}

static void index_hold(struct root *w, const struct object *o, int sign)
{
    const struct placement *p = object_hold(o);
    struct key k;

    if (object_live(o))
        root_count_add(&w->ns_live, key_str(o->meta->namespace_), sign);
    if (!p)
        return;
    for (uint32_t i = 0; i < p->n_assignments; i++)
        usage_add(w, p, &p->assignments[i], sign);
    if (o->kind->id ==
        KIND_WORKLOAD) { /* a queue's workload is counted once, not where it goes to, too */
        key_pair(&k, object_as(o, workload)->status->queue, p->class_);
        root_count_add(&w->held, key_slice(&k), sign * p->gpus);
    }
    root_count_add(&w->target_held, key_str(p->target), sign);
    key_pair(&k, p->target, p->class_);
    root_count_add(&w->target_class, key_slice(&k), sign * p->gpus);
}

/* What a workload is to its queue: "waits", "holds", or NULL when it has ended. */
static const char *load_of(const struct object *o)
{
    const struct workload_status *s = o ? object_as(o, workload)->status : NULL;

    if (!s || !s->phase || phase_final(s->phase) || workload_array(object_as(o, workload)))
        return NULL;
    return phase_holds(s->phase) ? "holds" : "waits";
}

static void index_load(struct root *w, const struct object *before, const struct object *after)
{
    const char *was = load_of(before), *is = load_of(after);
    struct key k;

    if (was && is && !strcmp(was, is) &&
        !strcmp(object_as(before, workload)->status->queue,
                object_as(after, workload)->status->queue))
        return;
    if (was) {
        key_pair(&k, object_as(before, workload)->status->queue, was);
        root_count_add(&w->load, key_slice(&k), -1);
    }
    if (is) {
        key_pair(&k, object_as(after, workload)->status->queue, is);
        root_count_add(&w->load, key_slice(&k), 1);
    }
}

static void index_node(struct root *w, const struct object *o, int sign)
{
    const struct node_spec *s = o ? object_as(o, node)->spec : NULL;

    for (uint32_t i = 0; s && i < s->n_gpus;) { /* runs of one class: one step each */
        uint32_t from = i;

        while (i < s->n_gpus && strcmp(s->gpus[i].class_, s->gpus[from].class_) == 0)
            i++;
        if (*s->gpus[from].class_ && strlen(s->gpus[from].class_) <= 63)
            root_count_add(&w->class_gpus, key_str(s->gpus[from].class_),
                           sign * (int64_t)(i - from) * 1000);
    }
    for (uint32_t i = 0; s && i < s->n_counted; i++)
        if (*s->counted[i].class_ && strlen(s->counted[i].class_) <= 63)
            root_count_add(&w->class_gpus, key_str(s->counted[i].class_),
                           sign * counted_milli(&s->counted[i], counted_many(&s->counted[i])));
}

/* ---- what a Target's status says of its nodes ---- */
#define TARGET_CLASS_MAX 200 /* longer names are counted under TARGET_CLASS_ODD */
#define TARGET_CLASS_ODD "\1"

static void index_target_nodes(struct root *w, const struct object *o, int sign)
{
    const struct node *n = o ? object_as(o, node) : NULL;
    struct key k;

    if (!n || !n->spec || strlen(n->spec->target) > 253)
        return;
    key_pair(&k, n->spec->target, "");
    root_count_add(&w->target_nodes, key_slice(&k), sign);
    if (n->status && n->status->health && n->status->health != HEALTH_READY)
        return;
    for (uint32_t i = 0; i < n->spec->n_gpus; i++) {
        const struct gpu *g = &n->spec->gpus[i];
        bool odd = strlen(g->class_) > TARGET_CLASS_MAX;

        if (!*g->class_ || (g->health && g->health != HEALTH_READY))
            continue;
        key_pair(&k, n->spec->target, odd ? TARGET_CLASS_ODD : g->class_);
        root_count_add(&w->target_nodes, key_slice(&k), (int64_t)sign * 1000);
    }
    for (uint32_t i = 0; i < n->spec->n_counted; i++) {
        const struct counted_gpus *c = &n->spec->counted[i];

        if (!*c->class_)
            continue;
        key_pair(&k, n->spec->target,
                 strlen(c->class_) > TARGET_CLASS_MAX ? TARGET_CLASS_ODD : c->class_);
        root_count_add(&w->target_nodes, key_slice(&k),
                       sign * counted_milli(c, counted_healthy(c)));
    }
}

#define CLASSES_TOLD 64 /* in a Target's status */

static void count_class(struct class_count *list, uint32_t *n, const char *class_, int64_t many)
{
    for (uint32_t i = 0; i < *n; i++)
        if (strcmp(list[i].class_, class_) == 0) {
            list[i].total += many;
            return;
        }
    if (*n < CLASSES_TOLD && many)
        list[(*n)++] = (struct class_count){.class_ = class_, .total = many};
}

static int by_class(const void *a, const void *b)
{
    return strcmp(((const struct class_count *)a)->class_, ((const struct class_count *)b)->class_);
}

struct totals {
    const char *target;
    struct arena *a;
    struct key prefix; /* target \0 */
    struct target_status *s;
    bool too_many; /* to be told from the nodes */
};

/* Without the index of a target's devices: where it has more classes than are told, those count
 * that come first on its nodes. */
static bool walk_each(const struct object *o, void *arg)
{
    const struct node *n = object_as(o, node);
    struct totals *x = arg;
    struct target_status *s = x->s;
    size_t prefix = strlen(x->target);

    if (strncmp(o->meta->name, x->target, prefix) != 0 || o->meta->name[prefix] != '.')
        return false;
    if (strcmp(n->spec->target, x->target) != 0 ||
        (n->status && n->status->health && n->status->health != HEALTH_READY))
        return true;
    for (uint32_t j = 0; j < n->spec->n_gpus; j++) {
        const struct gpu *g = &n->spec->gpus[j];

        if (*g->class_ && (!g->health || g->health == HEALTH_READY))
            count_class(s->gpus, &s->n_gpus, g->class_, 1000);
    }
    for (uint32_t j = 0; j < n->spec->n_counted; j++)
        if (*n->spec->counted[j].class_)
            count_class(
                s->gpus, &s->n_gpus, n->spec->counted[j].class_,
                counted_milli(&n->spec->counted[j], counted_healthy(&n->spec->counted[j])));
    return true;
}

static bool totals_each(struct slice key, const void *value, void *arg)
{
    const struct count_box *count = value;
    struct totals *x = arg;
    struct target_status *s = x->s;

    if (key.n < x->prefix.n || memcmp(key.p, x->prefix.p, x->prefix.n) != 0)
        return false;
    const char *class_ =
        arena_strndup(x->a, (const char *)key.p + x->prefix.n, key.n - x->prefix.n);
    if (!*class_) {
        s->nodes = count->n;
        return true;
    }
    if (s->n_gpus == CLASSES_TOLD || strcmp(class_, TARGET_CLASS_ODD) == 0) {
        x->too_many = true;
        return false;
    }
    s->gpus[s->n_gpus++] = (struct class_count){.class_ = class_, .total = count->n};
    return true;
}

void root_target_count(const struct root *r, const char *target, struct arena *a,
                       struct target_status *s)
{
    struct totals x = {.target = target, .a = a, .s = s};

    s->nodes = 0;
    s->gpus = arena_array(a, struct class_count, CLASSES_TOLD);
    s->n_gpus = 0;
    key_pair(&x.prefix, target, "");
    tree_scan(r->target_nodes, key_slice(&x.prefix), totals_each, &x);
    if (x.too_many) {
        s->n_gpus = 0;
        root_scan(r, KIND_NODE, NULL, "", arena_printf(a, "%s.", target), walk_each, &x);
    }
    for (uint32_t i = 0; i < s->n_gpus; i++)
        s->gpus[i].total /= 1000;
    qsort(s->gpus, s->n_gpus, sizeof *s->gpus, by_class);
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

static void index_move(struct root *w, const struct object *before, const struct object *after)
{
    const struct object *o = after ? after : before;
    struct key k;

    key_object(&k, o->meta->namespace_, o->meta->name);
    if (object_open_move(after))
        put(&w->moves, key_slice(&k), after);
    else if (object_open_move(before))
        del(&w->moves, key_slice(&k));
}

static void index_array(struct root *w, const struct object *before, const struct object *after)
{
    const struct object *o = after ? after : before;
    struct key k;

    key_object(&k, o->meta->namespace_, o->meta->name);
    if (after && array_due(after))
        put(&w->arrays, key_slice(&k), after);
    else if (before && array_due(before))
        del(&w->arrays, key_slice(&k));
}

/* What it counts for in its namespace: itself, and an array's indexes that are still to begin. So
 * the count does not move while they begin. */
static int64_t counts_for(const struct object *o)
{
    if (!o || !o->kind->namespaced)
        return 0;
    return o->kind->id == KIND_WORKLOAD
               ? workload_objects(object_as(o, workload), o->meta->deletionTimestamp != 0)
               : 1;
}

static void index_objects(struct root *w, const struct object *before, const struct object *after)
{
    int64_t n = counts_for(after) - counts_for(before);
    const struct object *o = after ? after : before;
    struct key k;

    if (n == 0)
        return;
    objects_key(&k, o->meta->namespace_, o->kind->id);
    root_count_add(&w->ns_objects, key_slice(&k), n);
}

void root_index_object(struct root *w, const struct object *before, const struct object *after)
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
    INV(before || after);
    index_objects(w, before, after);
    enum kind_id kind = (before ? before : after)->kind->id;
    if (kind == KIND_NODE) {
        index_node(w, before, -1);
        index_node(w, after, 1);
        index_target_nodes(w, before, -1);
        index_target_nodes(w, after, 1);
    }
    if (kind == KIND_MIGRATION)
        index_move(w, before, after);
    if (kind != KIND_WORKLOAD && kind != KIND_MIGRATION)
        return;
    if (kind == KIND_WORKLOAD) {
        if (before && (!after || strcmp(before->meta->uid, after->meta->uid) != 0))
            del(&w->uids, key_str(before->meta->uid));
        if (after)
            put(&w->uids, key_str(after->meta->uid), after);
        index_load(w, before, after);
        index_array(w, before, after);
    }
    if (before && after && same_hold(before, after))
        return;
    if (before)
        index_hold(w, before, -1);
    if (after)
        index_hold(w, after, 1);
}
