/* Reads what a workload asks for and which documents apply to it, and refuses it where the workload
 * itself, its queue or its policy leaves no target to look at. */
#include "policy/place/place_internal.h"

#include "api/base/failpoint.h"

#include <stdio.h>
#include <string.h>

void need_read(const struct workload_spec *s, struct need *n)
{
    const struct resources *r = s->resources;
    const struct gpu_request *g = r ? r->gpu : NULL;

    *n = (struct need){.workers = 1, .min_workers = 1, .count = 1, .mig = ""};
    if (s->gang && s->gang->workers > 0) {
        n->workers = (uint32_t)s->gang->workers;
        n->min_workers = n->workers;
        if (s->gang->minWorkers > 0 && s->gang->minWorkers < s->gang->workers)
            n->min_workers = (uint32_t)s->gang->minWorkers;
    }
    if (s->topology) {
        n->within = s->topology->within;
        n->prefer = s->topology->prefer;
    }
    n->cpu = r ? r->cpu : 0;
    n->memory = r ? r->memory : 0;
    if (!g || (g->count <= 0 && g->fraction <= 0 && !g->mig[0]))
        return;
    n->hard = g->isolation == ISOLATION_HARD;
    n->nvlink = strcmp(g->interconnect, "nvlink") == 0;
    if (g->mig[0]) {
        n->mode = NEED_MIG;
        n->mig = g->mig;
        n->milli = policy_mig_milli(g->mig);
        n->count = g->count > 0 ? (uint32_t)g->count : 1;
    } else if (g->fraction > 0 && g->fraction < 1) {
        n->mode = NEED_FRACTION;
        n->milli = (int32_t)(g->fraction * 1000 + 0.5);
        n->milli = n->milli < 1 ? 1 : n->milli;
        n->part = n->milli;
    } else {
        n->mode = NEED_WHOLE;
        n->milli = 1000;
        n->count = g->count > 0 ? (uint32_t)g->count : 1;
    }
}

void need_at(const struct place *pl, struct need *n, const struct group *g)
{
    bool share = n->part && g && g->shares && n->part <= policy_share_milli(g->shares) && !n->hard;

    if (g)
        n->shares = target_can(pl->p->t.targets[g->target].spec->type, CAN_SHARE);
    if (!n->part)
        return;
    n->mode = share ? NEED_MIG : NEED_FRACTION;
    n->mig = share ? g->slice : "";
    n->milli = share ? policy_share_milli(g->shares) : n->part;
}

/* ---- who was saved by N workers goes on with N ---- */
/* It may save any moment, and with as many workers as it has. One that is out of reach saved what
 * is known, or what is looked for once it has ended. */
static int64_t ranks_running(const struct workload_spec *spec, const struct workload_status *s)
{
    bool runs = s->phase == PHASE_DISPATCHING || s->phase == PHASE_STARTING ||
                s->phase == PHASE_RUNNING || s->phase == PHASE_QUIESCING;
    struct need n;

    if (!runs || !s->placement || (s->checkpoint && s->checkpoint->epoch == s->epoch))
        return 0;
    need_read(spec, &n);
    uint32_t workers = s->placement->n_assignments;
    return workers >= n.min_workers && workers <= n.workers ? workers : 0;
}

int64_t policy_resume_ranks(const struct workload *w)
{
    const struct checkpoint_spec *c = w->spec->checkpoint;
    const struct run_checkpoint *from = w->status ? w->status->checkpoint : NULL;
    int64_t running;

    if (!c || c->reshard || !w->status || PLANTED("policy.any-ranks"))
        return 0;
    if ((running = ranks_running(w->spec, w->status)))
        return running;
    return from && *from->path && *from->digest ? from->ranks : 0;
}

static void ranks_read(struct place *pl)
{
    int64_t n = policy_resume_ranks(object_as(pl->obj, workload));
    struct need *need = &pl->need;

    pl->least = need->min_workers;
    if (n <= 0 || !pl->status)
        return;
    if (n >= need->min_workers && n <= need->workers) {
        pl->ranks = need->workers = need->min_workers = (uint32_t)n;
        return;
    }
    pl->pending = REASON_CHECKPOINT_RANKS;
    (void)snprintf(
        pl->message, sizeof(pl->message),
        "checkpoint %.80s was saved by %lld worker%s, spec.gang allows %u to %u: ask for "
        "%lld, or set spec.checkpoint.reshard if its program can resume with another "
        "number",
        pl->status->checkpoint ? pl->status->checkpoint->name : "", (long long)n, n == 1 ? "" : "s",
        need->min_workers, need->workers, (long long)n);
}

int64_t need_milli(const struct need *n, uint32_t workers)
{
    return n->mode == NEED_CPU ? 0 : (int64_t)workers * n->count * n->milli;
}

static void read_classes(struct place *pl)
{
    const struct docs *d = &pl->p->docs[KIND_GPU_CLASS];

    if (!pl->gpu || !pl->gpu->n_classes)
        return;
    pl->classes = arena_array(pl->a, uint32_t, pl->gpu->n_classes);
    for (uint32_t i = 0; i < pl->gpu->n_classes; i++) {
        uint32_t c = strmap_get(&pl->p->t.class_by_name, pl->gpu->classes[i]);
        const char *name = c == NONE ? policy_class_of(pl->gpu->classes[i], 0, d->v, d->n) : NULL;

        if (name)
            c = strmap_get(&pl->p->t.class_by_name, name);
        if (c != NONE)
            pl->classes[pl->n_classes++] = c;
    }
}

static void read_datasets(struct place *pl)
{
    pl->datasets = arena_array(pl->a, const struct object *, pl->spec->n_data + 1);
    for (uint32_t i = 0; i < pl->spec->n_data; i++)
        pl->datasets[i] = docs_get(&pl->p->docs[KIND_DATASET], pl->obj->meta->namespace_,
                                   pl->spec->data[i].dataset);
}

static void read_policies(struct place *pl)
{
    const struct docs *d = &pl->p->docs[KIND_PLACEMENT_POLICY];
    const struct docs *c = &pl->p->docs[KIND_COMPLIANCE_POLICY];
    bool found;

    pl->losers = arena_array(pl->a, const struct object *, d->n + 1);
    pl->policy = policy_winner(pl->obj, d->v, d->n, pl->losers, &pl->n_losers);
    pl->i_policy = NONE;
    if (pl->policy) {
        pl->i_policy = docs_find(d, "", pl->policy->meta->name, &found);
        pl->order = object_as(pl->policy, placement_policy)->spec;
    }
    pl->compliance = arena_array(pl->a, const struct object *, c->n + 1);
    pl->covers = arena_array(pl->a, unsigned, c->n + 1);
    for (uint32_t i = 0; i < c->n; i++) {
        unsigned covers = compliance_covers(c->v[i], pl->obj, pl->datasets, pl->spec->n_data,
                                            store_asked(pl->spec));

        if (!covers)
            continue;
        pl->compliance[pl->n_compliance] = c->v[i];
        pl->covers[pl->n_compliance++] = covers;
    }
}

/* Where its checkpoints would lie is the same wherever it runs. */
static bool store_forbidden(struct place *pl)
{
    const struct docs *targets = &pl->p->docs[KIND_TARGET];
    const char *store = store_asked(pl->spec);
    const struct object *keeper;

    for (uint32_t i = 0; i < pl->n_compliance; i++) {
        const struct compliance_policy_spec *s =
            object_as(pl->compliance[i], compliance_policy)->spec;
        enum reason r;

        if (s->mode == MODE_AUDIT || !(pl->covers[i] & COVERS_BIT(COVERS_CHECKPOINT)))
            continue;
        r = compliance_allows_store(s->allow, store, targets->v, targets->n, &keeper);
        if (r == REASON_NONE)
            continue;
        pl->pending = r;
        compliance_store_sentence(r, pl->compliance[i], store, keeper, pl->message,
                                  sizeof(pl->message));
        return true;
    }
    return false;
}

double done_hours(const struct table *t, const struct workload *w, double gpus)
{
    const struct workload_status *s = w->status;
    const struct placement *at = s ? s->placement : NULL;
    double done = 0;
    int64_t until;

    if (!s || !s->checkpoint || gpus <= 0)
        return 0;
    if (s->spent && s->spent->gpuHours > s->spent->wasted)
        done = (s->spent->gpuHours - s->spent->wasted) / gpus;
    until = checkpoint_saved_at(s->checkpoint);
    if (at && at->since && s->checkpoint->epoch == s->epoch && until > at->since) {
        uint32_t c = strmap_get(&t->class_by_name, at->class_);

        done += (double)(until - at->since) / 3600000 * (c == NONE ? 1 : class_speed(t, c));
    }
    return done;
}

static void read_progress(struct place *pl)
{
    const struct workload_status *s = pl->status;
    const struct placement *at = s ? s->placement : NULL;

    pl->duration_h = pl->spec->expected ? (double)pl->spec->expected->duration / 3600000 : 0;
    pl->spent = s && s->spent ? s->spent->cost : 0;
    if (at && at->since && pl->rq->now_ms > at->since)
        pl->spent += (double)(pl->rq->now_ms - at->since) / 3600000 * (double)at->gpus / 1000 *
                     at->gpuHourPrice;
    pl->done_h = done_hours(&pl->p->t, object_as(pl->obj, workload),
                            (double)need_milli(&pl->need, pl->need.workers) / 1000);
    pl->left_h = pl->done_h < pl->duration_h ? pl->duration_h - pl->done_h : 0;
}

static bool refuse(struct place *pl, enum reason r, const char *what)
{
    pl->pending = r;
    (void)snprintf(pl->message, sizeof(pl->message), "%s%s%s", what, what[0] ? ": " : "",
                   reason_sentence(r));
    return true;
}

/* At most that is taken from the arena from here on: a row and a sentence for each target and
 * group, what gangs are looked for with on each node, and what a placement and its record hold. */
static size_t scratch_bytes(const struct place *pl)
{
    const struct table *t = &pl->p->t;
    size_t bytes = ((size_t)512 << 10) + (size_t)pl->cap_rows * (sizeof(struct row) + 512);

    bytes += (size_t)t->n_classes * (sizeof(struct quota_answer) + 64);
    bytes +=
        (size_t)pl->need.workers * (sizeof(struct assignment) + 512 + (size_t)8 * pl->need.count);
    return pl->need.workers > 1 ? bytes + (size_t)t->n_members * 256 : bytes;
}

void place_begin(struct place *pl)
{
    const struct workload *w = object_as(pl->obj, workload);
    int64_t since = pl->obj->meta->creationTimestamp;

    pl->spec = w->spec;
    pl->status = w->status;
    if (w->status && w->status->queuedAt)
        since = w->status->queuedAt;
    pl->waited_ms = since && pl->rq->now_ms > since ? pl->rq->now_ms - since : 0;
    need_read(pl->spec, &pl->need);
    ranks_read(pl);
    pl->gpu = pl->spec->resources ? pl->spec->resources->gpu : NULL;
    read_classes(pl);
    read_datasets(pl);
    read_policies(pl);
    pl->queue = pool_queue_index(pl->p, w);
    pl->queue_name =
        pl->queue == NONE ? pl->spec->queue : pl->p->docs[KIND_QUEUE].v[pl->queue]->meta->name;
    read_progress(pl);
    pl->cap_rows = pl->p->t.n_groups + pl->p->t.n_targets;
    if (scratch_bytes(pl) > arena_room(pl->a)) {
        (void)refuse(pl, REASON_TOO_LARGE, "");
        return;
    }
    pl->quota = arena_array(pl->a, struct quota_answer, pl->p->t.n_classes);
    pl->quota_known = arena_array(pl->a, bool, pl->p->t.n_classes);
    pl->rows = arena_array(pl->a, struct row, pl->cap_rows + 1);
}

/* ---- refusals that no target can change ---- */
static void window_closed(struct place *pl, const struct window_answer *w, int64_t held,
                          int64_t milli)
{
    const char *zone = w->window->timezone;
    char have[32], want[32], at[64];
    size_t n;

    pl->pending = REASON_WINDOW;
    if (w->unknown_zone) {
        (void)snprintf(pl->message, sizeof(pl->message),
                       "policy %s: the time zone %s of a window is not known here",
                       pl->policy->meta->name, zone);
        return;
    }
    gpus_text(have, sizeof(have), held);
    gpus_text(want, sizeof(want), milli);
    pl->opens_ms = window_opens(pl->p, pl->order, pl->rq->now_ms, held + milli);
    n = (size_t)snprintf(pl->message, sizeof(pl->message),
                         "policy %s allows %lld GPUs now; %s are held, this asks for %s",
                         pl->policy->meta->name, (long long)w->max_gpus, have, want);
    if (n >= sizeof(pl->message))
        return;
    if (pl->opens_ms && window_time(pl->p, zone, pl->opens_ms, at, sizeof(at)))
        (void)snprintf(pl->message + n, sizeof(pl->message) - n, "; opens %s %s", at, zone);
    else
        (void)snprintf(pl->message + n, sizeof(pl->message) - n,
                       "; no time of the coming week allows as many");
}

/* As many workers of an elastic gang as `room` GPUs hold, never fewer than its least. */
static void fewer_workers(struct need *n, int64_t room_milli)
{
    while (n->workers > n->min_workers && need_milli(n, n->workers) > room_milli)
        n->workers--;
}

static int64_t at_least(int64_t limit, int64_t keeps)
{
    return limit > keeps ? limit : keeps;
}

static bool policy_limit(struct place *pl)
{
    int64_t milli = need_milli(&pl->need, pl->need.min_workers), held, most = INT64_MAX, keeps = 0;
    struct window_answer w;
    char have[32], want[32];

    if (!pl->order || !milli)
        return false;
    held = pl->p->policy_held[pl->i_policy];
    /* What runs may go on elsewhere with as much, though a limit has sunk below that meanwhile. */
    if (pl->own && pl->own->i_policy == pl->i_policy)
        keeps = held + pl->own->milli;
    if (pl->order->maxGPUs > 0)
        most = at_least(pl->order->maxGPUs * 1000, keeps);
    if (held + milli > most) {
        gpus_text(have, sizeof(have), held);
        gpus_text(want, sizeof(want), milli);
        pl->pending = REASON_POLICY_LIMIT;
        (void)snprintf(pl->message, sizeof(pl->message),
                       "workloads of policy %s hold %s of %lld GPUs; this asks for %s",
                       pl->policy->meta->name, have, (long long)pl->order->maxGPUs, want);
        return true;
    }
    w = window_limit(pl->p, pl->order, pl->rq->now_ms);
    if (w.limited && held + milli > at_least(w.max_gpus * 1000, keeps)) {
        window_closed(pl, &w, held, milli);
        return true;
    }
    if (w.limited && at_least(w.max_gpus * 1000, keeps) < most)
        most = at_least(w.max_gpus * 1000, keeps);
    if (most < INT64_MAX)
        fewer_workers(&pl->need, most - held);
    return false;
}

bool place_refused(struct place *pl)
{
    const struct workload_spec *s = pl->spec;

    if (pl->pending != REASON_NONE)
        return true;
    if (pl->rq->unsettled)
        return refuse(pl, REASON_RECOVERING, "");
    if (s->suspend)
        return refuse(pl, REASON_SUSPENDED, "");
    if (s->queue[0] && pl->queue == NONE)
        return refuse(pl, REASON_QUEUE_MISSING, s->queue);
    if (s->priorityClassName[0] &&
        !docs_get(&pl->p->docs[KIND_PRIORITY_CLASS], "", s->priorityClassName))
        return refuse(pl, REASON_PRIORITY_MISSING, s->priorityClassName);
    for (uint32_t i = 0; i < s->n_data; i++) {
        if (!pl->datasets[i])
            return refuse(pl, REASON_DATASET_MISSING, s->data[i].dataset);
    }
    if (s->deadline && pl->rq->now_ms >= s->deadline)
        return refuse(pl, REASON_DEADLINE, "the deadline has passed");
    if (pl->p->docs[KIND_TARGET].n == 0)
        return refuse(pl, REASON_NO_TARGETS, "");
    return store_forbidden(pl) || policy_limit(pl);
}

int64_t hold_ends_at(const struct pool *p, const struct hold *h)
{
    const struct workload *w = object_as(h->workload, workload);
    const struct workload_status *s = w->status;
    double duration_h = w->spec->expected ? (double)w->spec->expected->duration / 3600000 : 0;
    int64_t from;

    if (!s || !s->placement || duration_h <= 0 || h->milli <= 0)
        return 0;
    from = s->placement->since;
    if (s->phase == PHASE_RUNNING && s->phaseSince > from)
        from = s->phaseSince;
    if (s->checkpoint && s->checkpoint->epoch == s->epoch &&
        checkpoint_saved_at(s->checkpoint) > from)
        from = checkpoint_saved_at(s->checkpoint);
    duration_h -= done_hours(&p->t, w, (double)h->milli / 1000);
    if (h->i_class != NONE)
        duration_h /= class_speed(&p->t, h->i_class);
    return from + (int64_t)(duration_h * 3600000 + 0.5);
}
