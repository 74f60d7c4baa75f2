/* PLACE: one decision of the scheduler; and the checks of every place, including destinations of
 * Migrations. Everything that a decision rests on is checked again against the state as it is now.
 * A decision that no longer holds is a result, for the whole gang, and changes nothing
 * (controlplane/DESIGN.md, Placement).
 *
 * Nothing may be promised twice, and nothing placed that a compliance policy forbids. */
#include "controlplane/store/store_internal.h"

#include "api/base/failpoint.h"
#include "policy/policy.h"

#include <stdio.h>

#define HELD_MAX ((int64_t)1 << 50)
#define PLACE_ERR(t, ...) err_set((t)->err, E_PLACE, __VA_ARGS__)

static const struct gpu_request *gpu_of(const struct workload *w)
{
    return w->spec->resources ? w->spec->resources->gpu : NULL;
}

/* ---- the shape: does the placement give what the spec asks for now? ---- */
/* What is had by count is whole, an instance of the profile, or one share that is large enough. */
static bool slices_sound(const struct gpu_request *g, const struct assignment *a)
{
    bool part = g && g->fraction > 0 && g->fraction < 1;

    if (a->count < 0 || a->count > LIMIT_NODE_COUNTED || a->shares < 0 ||
        a->shares > LIMIT_GPU_SHARES || (a->count ? a->n_gpus > 0 : a->shares > 0))
        return false;
    if (!a->count)
        return true;
    if (part != (a->shares > 1))
        return false;
    return a->gpuMilli == (*a->mig ? policy_mig_milli(a->mig) : policy_share_milli(a->shares));
}

static int check_worker(struct txn *t, const struct place *x, const struct assignment *a)
{
    const struct gpu_request *g = gpu_of(x->w);
    bool share = g && (g->fraction > 0 || *g->mig);
    int64_t want = !g ? 0 : share ? 1 : g->count;

    if (strlen(a->node) > 253 || !*a->node || strlen(a->mig) > 32)
        return PLACE_ERR(t, "worker %lld has no node", (long long)a->rank);
    if (!slices_sound(g, a))
        return PLACE_ERR(t, "worker %lld gets %lld GPUs by count", (long long)a->rank,
                         (long long)a->count);
    if (assignment_devices(a) != want || strcmp(a->mig, g ? g->mig : "") != 0)
        return PLACE_ERR(t, "worker %lld gets %lld GPUs, the workload now asks for %lld",
                         (long long)a->rank, (long long)assignment_devices(a), (long long)want);
    if (a->gpuMilli < 0 || a->gpuMilli > 1000 || (want > 0 && !share && a->gpuMilli != 1000) ||
        (share && !*a->mig && (double)a->gpuMilli + 1 < g->fraction * 1000))
        return PLACE_ERR(t, "worker %lld gets %lld/1000 of each GPU", (long long)a->rank,
                         (long long)a->gpuMilli);
    for (uint32_t i = 0; i < a->n_gpus; i++) {
        if (a->gpus[i] < 0 || a->gpus[i] >= LIMIT_NODE_GPUS)
            return PLACE_ERR(t, "node %s: device %lld: devices 0 to %d can be placed", a->node,
                             (long long)a->gpus[i], LIMIT_NODE_GPUS - 1);
        for (uint32_t j = 0; j < i; j++)
            if (a->gpus[i] == a->gpus[j])
                return PLACE_ERR(t, "worker %lld gets device %lld twice", (long long)a->rank,
                                 (long long)a->gpus[i]);
    }
    return 0;
}

int place_shape(struct txn *t, struct place *x)
{
    const struct gang *g = x->w->spec->gang;
    const struct resources *rs = x->w->spec->resources;
    int64_t workers = g && g->workers > 0 ? g->workers : 1;
    int64_t least = g && g->minWorkers > 0 && g->minWorkers < workers ? g->minWorkers : workers;
    const struct gpu_request *gpu = gpu_of(x->w);
    bool class_ok = !gpu || gpu->n_classes == 0;
    int r;

    if (x->p->n_assignments < least || x->p->n_assignments > workers)
        return PLACE_ERR(t, "%u workers are placed, the workload asks for %lld",
                         x->p->n_assignments, (long long)workers);
    int64_t ranks = root_feature_level(t->w) >= FEATURE_GRANTS ? policy_resume_ranks(x->w) : 0;
    if (ranks && x->p->n_assignments != ranks)
        return PLACE_ERR(t, "%u workers are placed, its checkpoint was saved by %lld",
                         x->p->n_assignments, (long long)ranks);
    if (strlen(x->p->class_) > 63 || strlen(x->p->target) > 253)
        return PLACE_ERR(t, "names in the placement are too long");
    if (x->p->cpu > HELD_MAX || x->p->memory > HELD_MAX ||
        !(x->p->gpuHourPrice >= 0 && x->p->gpuHourPrice < 1e9))
        return PLACE_ERR(t, "figures in the placement cannot be");
    for (uint32_t i = 0; gpu && i < gpu->n_classes; i++)
        class_ok = class_ok || strcmp(gpu->classes[i], x->p->class_) == 0;
    if (!class_ok)
        return PLACE_ERR(t, "GPU class %s is not among those asked for", x->p->class_);
    if (x->p->cpu < (rs ? rs->cpu : 0) || x->p->memory < (rs ? rs->memory : 0))
        return PLACE_ERR(t, "less CPU or memory is placed than the workload now asks for");
    for (uint32_t i = 0; i < x->p->n_assignments; i++) {
        if ((r = check_worker(t, x, &x->p->assignments[i])) < 0)
            return r;
        x->gpus += assignment_milli(&x->p->assignments[i]);
    }
    return 0;
}

/* ---- capacity ---- */
static const struct gpu *device_of(const struct node *n, int64_t index)
{
    for (uint32_t i = 0; i < n->spec->n_gpus; i++)
        if (n->spec->gpus[i].index == index)
            return &n->spec->gpus[i];
    return NULL;
}

/* What is held by count though the node numbers its devices of that class now. */
static int64_t strayed(const struct txn *t, const struct place *x, const struct node *n,
                       const char *node)
{
    const struct slice_kind none = {"\1", false}; /* no row is of that kind */

    return node_counts(n, x->p->class_)
               ? 0
               : root_counted_strayed(t->w, n, node, x->p->class_, &none);
}

/* Of all its devices. */
static int64_t instances_free(const struct txn *t, const struct assignment *a, const struct node *n)
{
    int64_t sum = 0;

    for (uint32_t i = 0; i < n->spec->n_gpus; i++) {
        const struct gpu *g = &n->spec->gpus[i];
        int64_t here = 0;

        for (uint32_t k = 0; k < g->n_migProfiles; k++)
            here += strcmp(g->migProfiles[k], a->mig) == 0;
        here -= root_mig_held(t->w, a->node, g->index, a->mig);
        sum += here > 0 ? here : 0;
    }
    return sum;
}

static int check_device(struct txn *t, const struct place *x, const struct assignment *a,
                        const struct node *n, const struct node_usage *now, int64_t index)
{
    const struct gpu *g = device_of(n, index);
    int64_t profiles = 0;

    if (!g || (g->health && g->health != HEALTH_READY))
        return PLACE_ERR(t, "node %s: GPU %lld is not there or not ready", a->node,
                         (long long)index);
    if (strcmp(g->class_, x->p->class_) != 0)
        return PLACE_ERR(t, "node %s: GPU %lld is a %s, not a %s", a->node, (long long)index,
                         g->class_, x->p->class_);
    if (*a->mig) {
        for (uint32_t i = 0; i < g->n_migProfiles; i++)
            profiles += strcmp(g->migProfiles[i], a->mig) == 0;
        if (root_mig_held(t->w, a->node, index, a->mig) >= profiles)
            return PLACE_ERR(t, "node %s: GPU %lld has no free %s", a->node, (long long)index,
                             a->mig);
        if (instances_free(t, a, n) <= strayed(t, x, n, a->node))
            return PLACE_ERR(t, "node %s: of its %s some are held, nobody knows which", a->node,
                             a->mig);
        return 0;
    }
    if (g->n_migProfiles > 0) /* whole or shared, it would be promised beside its instances */
        return PLACE_ERR(t, "node %s: GPU %lld is cut into MIG instances", a->node,
                         (long long)index);
    if (now->device_milli[index] + a->gpuMilli > 1000)
        return PLACE_ERR(t, "node %s: GPU %lld has %d/1000 in use", a->node, (long long)index,
                         (int)now->device_milli[index]);
    return 0;
}

static bool takes(const struct assignment *a, int64_t index)
{
    for (uint32_t i = 0; i < a->n_gpus; i++)
        if (a->gpus[i] == index)
            return true;
    return false;
}

/* Of devices without numbers so many are healthy; what is held of them, what others hold, and what
 * is held there nobody knows on which, is not free. */
static int64_t counted_free(const struct txn *t, const struct place *x, const struct assignment *a,
                            const struct node *n, const struct counted_gpus *c)
{
    struct slice_kind kind = assignment_kind(a);
    int64_t stray = root_counted_strayed(t->w, n, a->node, x->p->class_, &kind);

    return counted_healthy(c) - node_others_counted(n, c) -
           root_counted_held(t->w, a->node, x->p->class_, &kind) -
           (kind.shares ? stray * c->shares : stray);
}

static int check_counted(struct txn *t, const struct place *x, const struct assignment *a,
                         const struct node *n)
{
    const struct counted_gpus c = node_counted(n, x->p->class_, assignment_kind(a));
    char what[128];

    if (!a->count)
        return 0;
    slice_print(x->p->class_, assignment_kind(a), what, sizeof what);
    if (!c.count)
        return PLACE_ERR(t, "node %s counts no %s", a->node, what);
    if (a->shares > 0 && a->shares != c.shares)
        return PLACE_ERR(t, "node %s: a share is 1/%lld of its %s now", a->node,
                         (long long)c.shares, x->p->class_);
    int64_t free = counted_free(t, x, a, n, &c);
    if (a->count > free)
        return PLACE_ERR(t, "node %s: %lld of its %lld %s are free", a->node,
                         (long long)(free > 0 ? free : 0), (long long)c.count, what);
    return 0;
}

/* Of the devices that others hold without a number, each must be left one that nobody holds. */
static int check_others(struct txn *t, const struct place *x, const struct assignment *a,
                        const struct node *n, const struct node_usage *now)
{
    int64_t others = 0, left = 0, opens = 0;

    for (uint32_t i = 0; i < n->spec->n_gpus; i++) {
        const struct gpu *g = &n->spec->gpus[i];

        if (takes(a, g->index) && node_others_device(n, g->index))
            return PLACE_ERR(t, "node %s: GPU %lld is held by others than Hanse", a->node,
                             (long long)g->index);
        if (strcmp(g->class_, x->p->class_) != 0 || g->n_migProfiles > 0)
            continue;
        others = others ? others : node_others_alike(n, g) + strayed(t, x, n, a->node);
        if (g->index < 0 || g->index >= LIMIT_NODE_GPUS || now->device_milli[g->index] > 0 ||
            (g->health && g->health != HEALTH_READY) || node_others_device(n, g->index))
            continue;
        opens += takes(a, g->index);
        left += !takes(a, g->index);
    }
    if (opens && left < others && strayed(t, x, n, a->node))
        return PLACE_ERR(t, "node %s: %lld of its %s are held, nobody knows which", a->node,
                         (long long)others, x->p->class_);
    if (opens && left < others)
        return PLACE_ERR(t, "node %s: others than Hanse hold %lld of its %s", a->node,
                         (long long)others, x->p->class_);
    return 0;
}

static int check_node(struct txn *t, const struct place *x, const struct assignment *a)
{
    const struct object *o = root_get(t->w, KIND_NODE, "", a->node);
    const struct node *n = o ? object_as(o, node) : NULL;
    struct node_usage now = {0};
    int r;

    if (!n || strcmp(n->spec->target, x->p->target) != 0)
        return PLACE_ERR(t, "node %s is not known on %s", a->node, x->p->target);
    if (n->spec->unschedulable ||
        (n->status && n->status->health && n->status->health != HEALTH_READY))
        return PLACE_ERR(t, "node %s is not ready or cordoned", a->node);
    if (*n->spec->machine && machine_closing(root_get(t->w, KIND_MACHINE, "", n->spec->machine)))
        return PLACE_ERR(t, "node %s is on a machine that is let go", a->node);
    if (n->status && n->status->notice)
        return PLACE_ERR(t, "node %s was announced to go away", a->node);
    if (n->status && n->status->formerly && *n->status->formerly)
        return PLACE_ERR(t, "node %s may be %s by another name, where something is still held",
                         a->node, n->status->formerly);
    (void)root_usage(t->w, a->node, &now);
    int64_t cpu = n->spec->cpu > 0 ? n->spec->cpu - node_others_cpu(n) : 0;
    int64_t memory = n->spec->memory > 0 ? n->spec->memory - node_others_memory(n) : 0;
    if (x->p->cpu > 0 && (cpu < x->p->cpu || now.cpu_milli > cpu - x->p->cpu))
        return PLACE_ERR(t, "node %s has not enough CPU free", a->node);
    if (x->p->memory > 0 && (memory < x->p->memory || now.memory_bytes > memory - x->p->memory))
        return PLACE_ERR(t, "node %s has not enough memory free", a->node);
    if (((n->status && n->status->others) || strayed(t, x, n, a->node)) &&
        (r = check_others(t, x, a, n, &now)) < 0)
        return r;
    if ((r = check_counted(t, x, a, n)) < 0)
        return r;
    for (uint32_t i = 0; i < a->n_gpus; i++)
        if ((r = check_device(t, x, a, n, &now, a->gpus[i])) < 0)
            return r;
    return 0;
}

static int check_target(struct txn *t, struct place *x)
{
    x->target = root_get(t->w, KIND_TARGET, "", x->p->target);
    if (!x->target)
        return PLACE_ERR(t, "target %s is gone", x->p->target);
    const struct target_spec *s = object_as(x->target, target)->spec;
    if (x->target->meta->deletionTimestamp || s->unschedulable || s->drain || s->observeOnly)
        return PLACE_ERR(
            t, "target %s takes nothing new: it is cordoned, drained, observed or about to go",
            x->p->target);
    int64_t limit = s->limits ? s->limits->workloads : 0;
    int64_t own = x->held && strcmp(x->held->target, x->p->target) == 0;
    if (limit > 0 && root_count_of(t->w->target_held, key_str(x->p->target)) - own >= limit)
        return PLACE_ERR(t, "target %s holds its limit of %lld workloads", x->p->target,
                         (long long)limit);
    return 0;
}

/* ---- policy ---- */
/* What queues hold; and what falls to them as soon as a move starts: its workload has let go of the
 * old place and not yet taken the new one, and must find its quota there. */
struct between {
    const char *queue, *class_;
    int64_t gpus;
};
struct quotas {
    struct txn *t;
    const struct object *self;
    struct between *v;
    size_t n;
    const char *queue; /* of the one that moves, or NULL */
    int64_t gives_up;  /* in another class: it counts once among those of any class */
};

static bool between_each(const struct object *o, void *arg)
{
    const struct migration *m = object_as(o, migration);
    const struct placement *p = object_hold(o);
    struct quotas *q = arg;
    const struct object *wo =
        root_get(q->t->w, KIND_WORKLOAD, o->meta->namespace_, m->spec->workload);

    if (!p || !wo || wo == q->self || object_hold(wo) ||
        strcmp(wo->meta->uid, m->status->workloadUid) != 0)
        return true;
    q->v[q->n++] = (struct between){object_as(wo, workload)->status->queue, p->class_, p->gpus};
    return true;
}

static int64_t held(const char *queue, const char *class_, void *arg)
{
    const struct quotas *q = arg;
    int64_t sum = root_queue_held(q->t->w, queue, class_);

    for (size_t i = 0; i < q->n; i++)
        if (strcmp(q->v[i].queue, queue) == 0 &&
            (!class_ || !*class_ || strcmp(q->v[i].class_, class_) == 0))
            sum += q->v[i].gpus;
    if (q->queue && (!class_ || !*class_) && strcmp(q->queue, queue) == 0)
        sum -= q->gives_up;
    return sum;
}

/* What it gives up in the same queue and class is its own already. */
static int check_quota(struct txn *t, const struct place *x)
{
    int64_t capacity = root_count_of(t->w->class_gpus, key_str(x->p->class_));
    int64_t gpus = x->gpus;
    struct err e = {0};
    size_t n;

    bool moves = x->held && strcmp(x->w->status->queue, x->queue) == 0;
    bool other = moves && strcmp(x->held->class_, x->p->class_) != 0;
    if (moves && !other)
        gpus -= x->held->gpus;
    if (gpus <= 0 || x->settled)
        return 0;
    const struct object *const *queues = txn_all(t, KIND_QUEUE, &n);
    struct quotas q = {.t = t,
                       .self = x->o,
                       .v = arena_array(t->a, struct between, tree_count(t->w->moves) + 1),
                       .queue = other ? x->queue : NULL,
                       .gives_up = other ? x->held->gpus : 0};
    root_scan_moves(t->w, between_each, &q);
    if (policy_quota_check(x->queue, x->p->class_, gpus, queues, n, held, &q, capacity, &e) < 0)
        return PLACE_ERR(t, "quota: %s", e.text);
    return 0;
}

int place_compliance(struct txn *t, const struct object *o, const struct object *target)
{
    const struct workload_spec *s = object_as(o, workload)->spec;
    const struct object **data = arena_array(t->a, const struct object *, s->n_data + 1);
    const struct object *const *targets = NULL;
    size_t n, n_targets = 0;
    const struct object *const *policies = txn_all(t, KIND_COMPLIANCE_POLICY, &n);

    if (!n)
        return 0;
    for (uint32_t i = 0; i < s->n_data; i++)
        data[i] = root_get(t->w, KIND_DATASET, o->meta->namespace_, s->data[i].dataset);
    if (root_feature_level(t->w) >= FEATURE_GRANTS)
        targets = txn_all(t, KIND_TARGET, &n_targets);
    return policy_compliance_check(o, target, policies, n, data, s->n_data, targets, n_targets,
                                   t->err);
}

/* ---- the record ---- */
const char *workload_derived_name(struct txn *t, const char *workload, const char *suffix)
{
    size_t room = 253 - strlen(suffix);

    if (strlen(workload) <= room)
        return arena_printf(t->a, "%s%s", workload, suffix);
    return arena_printf(t->a, "%.*s-%08x%s", (int)(room - 9), workload,
                        (unsigned)(hash_bytes(0, workload, strlen(workload)) & 0xffffffff), suffix);
}

struct owner_ref *workload_owner(struct txn *t, const struct object *wo)
{
    struct owner_ref *r = arena_new(t->a, struct owner_ref);

    r->apiVersion = kind_api_version(wo->kind);
    r->kind = wo->kind->kind;
    r->name = arena_strdup(t->a, wo->meta->name);
    r->uid = arena_strdup(t->a, wo->meta->uid);
    r->controller = true;
    return r;
}

static const char *decision_name(struct txn *t, const struct place *x, const char *suffix)
{
    return workload_derived_name(t, x->o->meta->name, suffix);
}

static void decision_store(struct txn *t, const struct place *x, const char *name, int64_t epoch)
{
    const struct kind *k = kind_by_id(KIND_DECISION);
    const struct object *old = root_get(t->w, KIND_DECISION, x->o->meta->namespace_, name);
    struct decision *d = arena_new(t->a, struct decision);

    d->spec = arena_memdup(t->a, x->decision, sizeof *d->spec);
    d->spec->workload = x->o->meta->name;
    d->spec->workloadUid = x->o->meta->uid;
    d->spec->epoch = epoch;
    d->metadata = txn_meta(t, x->o->meta->namespace_, name);
    if (old) {
        d->metadata->uid = old->meta->uid;
        d->metadata->creationTimestamp = old->meta->creationTimestamp;
        d->metadata->generation = old->meta->generation + 1;
    }
    d->metadata->ownerReferences = workload_owner(t, x->o);
    d->metadata->n_ownerReferences = 1;
    (void)txn_put(t, k, old, d);
}

/* Hints may come after the reason was told. */
static bool hints_told(struct txn *t, const struct place *x)
{
    const struct decision_spec *d = x->decision, *was;
    const struct object *o =
        root_get(t->w, KIND_DECISION, x->o->meta->namespace_, decision_name(t, x, "-pending"));

    if (!d->n_hints)
        return true;
    was = o ? object_as(o, decision)->spec : NULL;
    if (!was || was->n_hints != d->n_hints)
        return false;
    for (uint32_t i = 0; i < d->n_hints; i++)
        if (strcmp(was->hints[i], d->hints[i]) != 0)
            return false;
    return true;
}

static void place_pending(struct txn *t, const struct place *x)
{
    const struct decision_spec *d = x->decision;
    const struct workload_status *s = x->w->status;

    if (strcmp(d->reason, s->reason) == 0 && strcmp(d->message, s->message) == 0 &&
        d->queuePosition == s->queuePosition && hints_told(t, x)) {
        t->res->unchanged = true;
        return;
    }
    struct workload *w = object_edit_as(x->o, workload, t->a);
    w->status->reason = d->reason;
    w->status->message = d->message;
    w->status->queuePosition = d->queuePosition;
    txn_condition(t, &w->status->conditions, &w->status->n_conditions, "Placed", COND_FALSE,
                  d->reason, d->message);
    (void)txn_put(t, x->o->kind, x->o, w);
    decision_store(t, x, decision_name(t, x, "-pending"), 0);
}

void place_record(struct txn *t, struct place *x, int64_t epoch)
{
    char suffix[32];

    (void)snprintf(suffix, sizeof suffix, "-e%lld", (long long)epoch);
    x->p->decision = decision_name(t, x, suffix);
    x->p->since = t->now;
    x->p->gpus = x->gpus;
    decision_store(t, x, x->p->decision, epoch);
    const struct object *pending =
        root_get(t->w, KIND_DECISION, x->o->meta->namespace_, decision_name(t, x, "-pending"));
    if (pending)
        txn_remove(t, pending);
}

void place_take(struct txn *t, const struct place *x, struct workload *w)
{
    const struct decision_spec *d = x->decision;
    struct workload_status *s = w->status;

    s->epoch = epoch_following(s);
    s->epochFloor = 0;
    s->phase = PHASE_RESERVED;
    s->phaseSince = t->now;
    s->phaseBefore = (enum phase)0;
    s->intent = NULL;
    s->queuePosition = 0;
    s->queue = x->queue;
    s->reason = d->reason;
    s->message = d->message;
    s->revision = d->revision;
    s->placement = x->p;
    s->placement->since = t->now;
    s->nominated = NULL;
    txn_condition(t, &s->conditions, &s->n_conditions, "Placed", COND_TRUE, d->reason, d->message);
    (void)txn_put(t, x->o->kind, x->o, w);
}

/* Workers of one gang may share nodes and devices: each is held on a scratch fork before the next
 * is looked at. */
static int check_capacity(struct txn *t, const struct place *x)
{
    struct txn scratch = *t;
    int r = 0;

    scratch.w = root_fork(t->w);
    for (uint32_t i = 0; i < x->p->n_assignments && r == 0; i++) {
        r = check_node(&scratch, x, &x->p->assignments[i]);
        if (r == 0)
            root_usage_add(scratch.w, x->p, &x->p->assignments[i]);
    }
    (void)root_unref(scratch.w);
    return r;
}

int place_admit(struct txn *t, struct place *x)
{
    size_t n;
    int r;

    if ((r = place_shape(t, x)) < 0 || (r = check_target(t, x)) < 0)
        return r;
    const struct object *const *queues = txn_all(t, KIND_QUEUE, &n);
    const char *queue = arena_strdup(t->a, policy_queue_of(x->o, queues, n));
    if (strlen(queue) > 253)
        return PLACE_ERR(t, "no queue has a name as long as that of its workload");
    if (x->queue && strcmp(queue, x->queue) != 0)
        return PLACE_ERR(t, "the workload is in queue \"%s\" now, it was decided in \"%s\"", queue,
                         x->queue);
    x->queue = queue;
    if ((r = check_quota(t, x)) < 0 || (r = place_compliance(t, x->o, x->target)) < 0)
        return r;
    return x->settled && PLANTED("move.destination-unheld") ? 0 : check_capacity(t, x);
}

/* ---- the command ---- */
int apply_place(struct txn *t, const struct place_cmd *c)
{
    struct place x = {.o = root_get(t->w, KIND_WORKLOAD, c->ns, c->name),
                      .decision = c->decision,
                      .queue = c->queue};
    int r = 0;

    if (!x.o || strcmp(x.o->meta->uid, c->uid) != 0)
        return err_set(t->err, E_STALE, "workload %s/%s is not the one that was decided about",
                       c->ns, c->name);
    x.w = object_as(x.o, workload);
    if (x.w->status->phase != PHASE_QUEUED || x.w->status->epoch != c->epoch)
        return err_set(t->err, E_STALE,
                       "workload %s/%s is %s in epoch %lld, it was decided for epoch %lld", c->ns,
                       c->name, phase_text(x.w->status->phase), (long long)x.w->status->epoch,
                       (long long)c->epoch);
    if (array_known(t->w, x.o))
        return err_set(t->err, E_STALE,
                       "workload %s/%s is an array: its indexes are placed, never itself", c->ns,
                       c->name);
    if (*x.w->status->migration)
        return err_set(t->err, E_STALE, "workload %s/%s is being moved by migration %.200s", c->ns,
                       c->name, x.w->status->migration);
    if (!c->decision)
        return err_set(t->err, E_INVALID, "a PLACE without its decision");
    if (x.o->meta->deletionTimestamp)
        return PLACE_ERR(t, "workload %s/%s is being deleted", c->ns, c->name);
    struct object *kept = object_ref(x.o);
    if (!c->placement) {
        place_pending(t, &x);
    } else if (workload_unsettled(t->w, x.o, x.w->status)) {
        r = PLACE_ERR(
            t,
            "workload %s/%s may run where this state does not know of it: recovery is not "
            "settled (hanse recover --from-targets)",
            c->ns, c->name);
    } else if (x.w->spec->suspend) {
        r = PLACE_ERR(t, "workload %s/%s is suspended", c->ns, c->name);
    } else {
        x.p = arena_memdup(t->a, c->placement, sizeof *c->placement);
        if ((r = place_admit(t, &x)) == 0) {
            place_record(t, &x, epoch_following(x.w->status));
            place_take(t, &x, object_edit_as(x.o, workload, t->a));
        }
    }
    (void)object_unref(kept);
    return r;
}
