/* The plain replay of ledger_model.h. It must stay plain: where it grows clever, it proves less. */
#include "tests/support/ledger/ledger_model_internal.h"

#define RUNS_REMEMBERED 16 /* the ledger's bound; what is beyond it stays useful */

/* ---- life ---- */
struct ledger_model *ledger_model_create(int64_t now)
{
    struct ledger_model *m = mem_new(struct ledger_model);

    m->now = now;
    (void)model_id(m, ""); /* 0 */
    return m;
}

void ledger_model_destroy(struct ledger_model *m)
{
    for (int i = 0; i < m->by_text; i++) {
        (void)object_unref(m->targets[i]);
        (void)object_unref(m->sheets[i]);
    }
    for (int i = 0; i < m->n_allocs; i++) {
        mem_free(m->allocs[i].shares);
        mem_free(m->allocs[i].spans);
    }
    for (int i = 0; i < m->texts.n; i++)
        mem_free(m->texts.v[i]);
    mem_free(m->texts.v);
    mem_free(m->texts.table);
    mem_free(m->targets);
    mem_free(m->sheets);
    mem_free(m->owners);
    mem_free(m->moves);
    mem_free(m->devices);
    mem_free(m->allocs);
    mem_free(m->book.v);
    mem_free(m);
}

uint64_t ledger_model_spent_wrong(const struct ledger_model *m)
{
    return m->spent_wrong;
}

/* ---- devices and time ---- */
static bool reached(const struct object *target)
{
    const struct target_status *s = target ? object_as(target, target)->status : NULL;

    for (uint32_t i = 0; s && i < s->n_conditions; i++)
        if (strcmp(s->conditions[i].type, "Connected") == 0 && s->conditions[i].status == COND_TRUE)
            return true;
    return false;
}

/* What an idle device costs at a time, and until when that is so. */
static double idle_price(struct ledger_model *m, const struct device *d, int64_t at, int *basis,
                         int *priced, int64_t *until)
{
    const struct object *t = m->targets[d->target];
    const struct target_spec *s = t ? object_as(t, target)->spec : NULL;
    int of = s ? model_id(m, s->priceSheet) : -1; /* may move m->sheets */
    const struct object *sheet = of >= 0 ? m->sheets[of] : NULL;
    const struct price_sheet_spec *p = sheet ? object_as(sheet, price_sheet)->spec : NULL;
    double price = -1;

    *basis = d->kind                      ? d->kind
             : s && s->capacity           ? (int)s->capacity
             : s && s->tier == TIER_BURST ? CAPACITY_ON_DEMAND
                                          : CAPACITY_OWNED;
    if (p && p->validFrom > at && p->validFrom < *until)
        *until = p->validFrom;
    if (p && p->validFrom <= at && p->validUntil > at && p->validUntil < *until)
        *until = p->validUntil;
    if (p && p->validFrom <= at && (!p->validUntil || at < p->validUntil))
        for (uint32_t i = 0; i < p->n_gpuHour; i++) {
            const struct gpu_price *g = &p->gpuHour[i];
            double v = *basis == CAPACITY_RESERVED    ? g->reserved
                       : *basis == CAPACITY_SPOT      ? g->spot
                       : *basis == CAPACITY_ON_DEMAND ? g->onDemand
                                                      : g->amortised;

            if (strcmp(g->class_, m->texts.v[d->class_]) == 0 && v > 0)
                price = v; /* the world has one line per class */
        }
    *priced = price >= 0;
    return price > 0 ? price : 0;
}

/* Devices of a node and class that nobody holds, the ready ones first, as many as others hold. */
static void count_others(struct ledger_model *m)
{
    for (int i = 0; i < m->n_devices; i++)
        m->devices[i].others =
            m->devices[i].named && m->devices[i].held < 1000 ? 1000 - m->devices[i].held : 0;
    for (int ready = 1; ready >= 0; ready--)
        for (int i = 0; i < m->n_devices; i++) {
            struct device *d = &m->devices[i];
            int64_t taken = 0;

            if (d->ready != (ready == 1) || d->held || d->named)
                continue;
            for (int k = 0; k < m->n_devices; k++)
                taken += m->devices[k].node == d->node && m->devices[k].class_ == d->class_ &&
                         m->devices[k].slice == d->slice && !m->devices[k].named &&
                         m->devices[k].others > 0;
            if (taken < d->more)
                d->others = d->size;
        }
}

/* Devices without numbers are filled one after the other, the ready ones first. */
static void count_counted(struct ledger_model *m, const struct alloc *a, const struct share *s)
{
    int64_t left = s->milli;

    for (int ready = 1; ready >= 0; ready--)
        for (int i = 0; i < m->n_devices && left > 0; i++) {
            struct device *d = &m->devices[i];

            if (d->index >= 0 || d->ready != (ready == 1) || d->held || d->node != s->node ||
                d->slice != s->slice || d->class_ != a->line.class_ ||
                d->target != a->line.target)
                continue;
            d->held = d->size;
            left -= d->size;
        }
}

static void count_held(struct ledger_model *m)
{
    for (int i = 0; i < m->n_devices; i++)
        m->devices[i].held = 0;
    for (int a = 0; a < m->n_allocs; a++)
        for (int s = 0; s < m->allocs[a].n_shares; s++)
            if (m->allocs[a].shares[s].index < 0)
                count_counted(m, &m->allocs[a], &m->allocs[a].shares[s]);
    for (int a = 0; a < m->n_allocs; a++)
        for (int s = 0; s < m->allocs[a].n_shares; s++)
            for (int i = 0; i < m->n_devices; i++) {
                struct device *d = &m->devices[i];

                if (d->index >= 0 && d->node == m->allocs[a].shares[s].node &&
                    d->index == m->allocs[a].shares[s].index &&
                    d->class_ == m->allocs[a].line.class_ && d->target == m->allocs[a].line.target)
                    d->held += m->allocs[a].shares[s].milli;
            }
    count_others(m);
    m->stale = false;
}

/* Everything that is held of a class on a target, less what devices that are there hold of it. */
static void integrate_over(struct ledger_model *m, int64_t from, int64_t to)
{
    for (int a = 0; a < m->n_allocs; a++) {
        struct line_key k = {.cause = LEDGER_OVERHANG,
                             .target = m->allocs[a].line.target,
                             .class_ = m->allocs[a].line.class_};

        book_days(&m->book, k, m->allocs[a].milli, from, to);
    }
    for (int i = 0; i < m->n_devices; i++) {
        const struct device *d = &m->devices[i];
        struct line_key k = {.cause = LEDGER_OVERHANG, .target = d->target, .class_ = d->class_};

        if (d->held)
            book_days(&m->book, k, -(d->held < d->size ? d->held : d->size), from, to);
    }
}

static void integrate(struct ledger_model *m, int64_t from, int64_t to)
{
    for (int i = 0; i < m->n_devices; i++) {
        const struct device *d = &m->devices[i];
        struct line_key whole = {
            .cause = LEDGER_CAPACITY, .target = d->target, .class_ = d->class_};

        book_days(&m->book, whole, d->size, from, to);
        for (int64_t t = from; t < to && d->held < d->size;) {
            int64_t until = to;
            struct line_key k = {.target = d->target, .class_ = d->class_};

            k.price = idle_price(m, d, t, &k.basis, &k.priced, &until);
            k.cause = d->ready && reached(m->targets[d->target]) ? LEDGER_IDLE : LEDGER_UNAVAILABLE;
            book_days(&m->book, k, d->size - d->held - d->others, t, until);
            k.cause = LEDGER_OTHERS;
            k.priced = 1;
            k.price = 0;
            book_days(&m->book, k, d->others, t, until);
            t = until;
        }
    }
    for (int i = 0; i < m->n_allocs; i++)
        model_use_book(m, &m->allocs[i], m->allocs[i].measured, m->allocs[i].idle, from, to);
    integrate_over(m, from, to);
}

void ledger_model_time(struct ledger_model *m, int64_t now)
{
    if (now <= m->now)
        return;
    if (m->stale)
        count_held(m);
    integrate(m, m->now, now);
    m->now = now;
}

static bool others_name(const struct node *n, int64_t index)
{
    const struct node_others *o = n->status ? n->status->others : NULL;

    for (uint32_t i = 0; o && i < o->n_gpus; i++)
        if (o->gpus[i] == index)
            return true;
    return false;
}

static const char *slice_of(const char *mig, bool shares)
{
    return shares ? "shares" : mig ? mig : "";
}

static int64_t others_more(const struct node *n, const char *class_, const char *slice)
{
    const struct node_others *o = n->status ? n->status->others : NULL;

    for (uint32_t i = 0; o && i < o->n_classes; i++)
        if (strcmp(o->classes[i].class_, class_) == 0 &&
            strcmp(slice_of(o->classes[i].mig, o->classes[i].shares), slice) == 0)
            return o->classes[i].count;
    return 0;
}

static void counted_add(struct ledger_model *m, const struct node *o, int node, bool up,
                        const struct counted_gpus *c)
{
    const char *slice = slice_of(c->mig, c->shares > 0);

    for (int64_t k = 0; k < c->count; k++)
        m->devices[m->n_devices++] =
            (struct device){.target = model_id(m, o->spec->target),
                            .class_ = model_id(m, c->class_),
                            .node = node,
                            .index = -1,
                            .slice = model_id(m, slice),
                            .size = c->shares > 0 ? 1000 / c->shares
                                    : *slice      ? (1000 * (*slice - '0') + 6) / 7
                                                  : 1000,
                            .kind = (int)o->spec->capacity,
                            .more = others_more(o, c->class_, slice),
                            .ready = up && k >= c->unhealthy};
}

static void change_node(struct ledger_model *m, const struct object *before,
                        const struct object *after)
{
    int n = 0, node = model_id(m, (after ? after : before)->meta->name);

    for (int i = 0; i < m->n_devices; i++)
        if (m->devices[i].node != node)
            m->devices[n++] = m->devices[i];
    m->n_devices = n;
    m->stale = true;
    if (!after)
        return;
    const struct node *o = object_as(after, node);
    bool up = !o->status || !o->status->health || o->status->health == HEALTH_READY;
    m->devices = mem_realloc(m->devices, ((size_t)n + o->spec->n_gpus + LIMIT_NODE_COUNTED) *
                                                 sizeof *m->devices +
                                             1);
    for (uint32_t i = 0; i < o->spec->n_counted; i++)
        counted_add(m, o, node, up, &o->spec->counted[i]);
    for (uint32_t i = 0; i < o->spec->n_gpus; i++) {
        const struct gpu *g = &o->spec->gpus[i];

        m->devices[m->n_devices++] =
            (struct device){.target = model_id(m, o->spec->target),
                            .class_ = model_id(m, g->class_),
                            .node = node,
                            .index = g->index,
                            .size = 1000,
                            .kind = (int)o->spec->capacity,
                            .named = others_name(o, g->index),
                            .more = g->n_migProfiles ? 0 : others_more(o, g->class_, ""),
                            .ready = up && (!g->health || g->health == HEALTH_READY)};
    }
}

/* ---- allocations ---- */
static struct alloc *alloc_find(struct ledger_model *m, int id)
{
    for (int i = 0; i < m->n_allocs; i++)
        if (m->allocs[i].id == id)
            return &m->allocs[i];
    return NULL;
}

void alloc_owner(struct ledger_model *m, struct line_key *k, int owner)
{
    const struct owner *o = &m->owners[owner];

    k->queue = o->there ? o->queue : 0;
    k->user = o->there ? o->user : 0;
    k->experiment = o->there ? o->experiment : 0;
}

static void alloc_begin(struct ledger_model *m, int id, bool move, const struct placement *p,
                        int project, int workload, int64_t epoch)
{
    m->allocs = mem_realloc(m->allocs, ((size_t)m->n_allocs + 1) * sizeof *m->allocs);
    struct alloc *a = &m->allocs[m->n_allocs++];

    *a = (struct alloc){.id = id, .move = move, .epoch = epoch, .since = m->now, .begun = m->now};
    a->line = (struct line_key){.price = p->gpuHourPrice,
                                .priced = 1,
                                .basis = (int)p->capacity,
                                .target = model_id(m, p->target),
                                .class_ = model_id(m, p->class_),
                                .project = project,
                                .workload = workload};
    a->state = move ? LEDGER_MIGRATING : LEDGER_STARTING;
    for (uint32_t i = 0; i < p->n_assignments; i++) {
        const struct assignment *of = &p->assignments[i];

        if (of->count) {
            a->shares = mem_realloc(a->shares, ((size_t)a->n_shares + 1) * sizeof *a->shares);
            a->shares[a->n_shares++] =
                (struct share){model_id(m, of->node),
                               model_id(m, slice_of(of->mig, of->shares > 0)), -1,
                               of->count * of->gpuMilli};
            a->milli += of->count * of->gpuMilli;
        }
        for (uint32_t j = 0; j < of->n_gpus; j++) {
            a->shares = mem_realloc(a->shares, ((size_t)a->n_shares + 1) * sizeof *a->shares);
            a->shares[a->n_shares++] =
                (struct share){model_id(m, of->node), 0, of->gpus[j], of->gpuMilli};
            a->milli += of->gpuMilli;
        }
    }
    m->stale = true;
}

static void span_close(struct ledger_model *m, struct alloc *a, int next)
{
    if (a->since < m->now) {
        a->spans = mem_realloc(a->spans, ((size_t)a->n_spans + 1) * sizeof *a->spans);
        a->spans[a->n_spans++] = (struct span){a->since, m->now, a->state, false};
    }
    a->since = m->now;
    a->state = next;
}

/* Runs that a verified checkpoint holds, or that are too many to remember, are kept. */
static void spans_keep(struct alloc *a, int64_t safe)
{
    int open = 0;

    for (int i = 0; i < a->n_spans; i++) {
        a->spans[i].kept |= a->spans[i].state == LEDGER_USEFUL && a->spans[i].to <= safe;
        open += a->spans[i].state == LEDGER_USEFUL && !a->spans[i].kept;
    }
    for (int i = 0; i < a->n_spans && open > RUNS_REMEMBERED; i++)
        if (a->spans[i].state == LEDGER_USEFUL && !a->spans[i].kept) {
            a->spans[i].kept = true;
            open--;
        }
}

void alloc_write(const struct alloc *a, struct book *b, struct line_key k, int64_t safe, int lost,
                 ledger_amount *ret_lost)
{
    for (int i = 0; i < a->n_spans; i++) {
        const struct span *s = &a->spans[i];
        int64_t cut = s->state != LEDGER_USEFUL || s->kept ? s->to
                      : safe < s->from                     ? s->from
                      : safe < s->to                       ? safe
                                                           : s->to;

        k.cause = s->state;
        book_days(b, k, a->milli, s->from, cut);
        k.cause = lost;
        book_days(b, k, a->milli, cut, s->to);
        *ret_lost += lost == LEDGER_USEFUL ? 0 : (ledger_amount)a->milli * (s->to - cut);
    }
}

static void alloc_end(struct ledger_model *m, struct alloc *a, int owner, int64_t safe, int lost,
                      bool finished)
{
    struct line_key k = a->line;
    ledger_amount held = (ledger_amount)a->milli * (m->now - a->begun), wasted = 0;
    struct owner *o = &m->owners[owner];

    if (finished && !a->ran && a->state == LEDGER_STARTING)
        a->state = LEDGER_USEFUL; /* over before anybody saw it run */
    span_close(m, a, 0);
    alloc_owner(m, &k, owner);
    alloc_write(a, &m->book, k, safe, lost, &wasted);
    if (!a->move) {
        o->hours += (double)held / LEDGER_GPU_HOUR;
        o->cost += (double)held / LEDGER_GPU_HOUR * a->line.price;
        o->wasted += (double)wasted / LEDGER_GPU_HOUR;
    }
    mem_free(a->shares);
    mem_free(a->spans);
    *a = m->allocs[--m->n_allocs];
    m->stale = true;
}

static bool holding(const struct workload_status *s)
{
    switch (s ? s->phase : 0) {
    case PHASE_RESERVED:
    case PHASE_DISPATCHING:
    case PHASE_STARTING:
    case PHASE_RUNNING:
    case PHASE_QUIESCING:
    case PHASE_UNKNOWN:
        return s->placement && s->placement->gpus > 0;
    default:
        return false;
    }
}

static int64_t safe_time(const struct workload_status *s, int64_t epoch, int64_t now)
{
    if (!s || !s->checkpoint || s->checkpoint->epoch != epoch)
        return -1;
    int64_t saved = s->checkpoint->writtenAt ? s->checkpoint->writtenAt : s->checkpoint->verifiedAt;
    return saved > now ? now : saved;
}

static int lost_as(struct ledger_model *m, const struct object *before,
                   const struct workload_status *after)
{
    const struct workload_status *was = object_as(before, workload)->status;
    const struct run_end *e = after && after->n_ends ? &after->ends[after->n_ends - 1] : NULL;

    if (!after || after->phase == PHASE_SUCCEEDED || after->phase == PHASE_CANCELLED)
        return LEDGER_USEFUL;
    if (e && e->epoch == was->epoch &&
        (e->proof == PROOF_LEASE_EXPIRED || e->proof == PROOF_OPERATOR ||
         strcmp(e->reason, "RunnerKilled") == 0 || strcmp(e->reason, "LeaseLost") == 0))
        return LEDGER_FAILED_NODE;
    const char *move = *was->migration ? was->migration : after->migration;
    int at = *move ? model_name(m, before->meta->namespace_, move) : -1;
    switch (at >= 0 ? m->moves[at].cause : 0) {
    case MOVE_PREEMPTION:
    case MOVE_RECLAIM:
    case MOVE_SPOT:
        return LEDGER_PREEMPTED;
    case MOVE_SICK:
    case MOVE_LOST:
        return LEDGER_FAILED_NODE;
    default:
        return LEDGER_RESTARTED;
    }
}

static bool near(double a, double b)
{
    double d = a > b ? a - b : b - a;

    return d <= 1e-9 * (a > b ? a : b) + 1e-15;
}

static void check_spent(struct ledger_model *m, const struct owner *o,
                        const struct workload_status *s)
{
    static const struct spent none;
    const struct spent *sp = s->spent ? s->spent : &none;

    if (!near(sp->gpuHours, o->hours) || !near(sp->cost, o->cost) || !near(sp->wasted, o->wasted))
        m->spent_wrong++;
}

static void change_workload(struct ledger_model *m, const struct object *before,
                            const struct object *after)
{
    const struct object *o = after ? after : before;
    const struct workload_status *was = before ? object_as(before, workload)->status : NULL;
    const struct workload_status *now = after ? object_as(after, workload)->status : NULL;
    int owner = model_name(m, o->meta->namespace_, o->meta->name), id = model_id(m, o->meta->uid);
    bool had = holding(was), has = holding(now);

    if (had && (!has || was->epoch != now->epoch)) {
        alloc_end(m, alloc_find(m, id), owner, safe_time(now ? now : was, was->epoch, m->now),
                  lost_as(m, before, now), now && now->phase == PHASE_SUCCEEDED);
        had = false;
    }
    if (!after) {
        m->owners[owner] = (struct owner){0};
        return;
    }
    if (!before)
        m->owners[owner] = (struct owner){.there = true};
    int queue = model_id(m, now->queue), user = model_id(m, object_as(after, workload)->spec->user),
        experiment = model_id(m, object_as(after, workload)->spec->experiment);
    m->owners[owner].queue = queue;
    m->owners[owner].user = user;
    m->owners[owner].experiment = experiment;
    check_spent(m, &m->owners[owner], now);
    if (has && !had)
        alloc_begin(m, id, false, now->placement, model_id(m, o->meta->namespace_),
                    model_id(m, o->meta->name), now->epoch);
    if (!has)
        return;
    struct alloc *a = alloc_find(m, id);
    a->owner = owner;
    model_use_change(m, a, now);
    int next = now->phase == PHASE_UNKNOWN             ? LEDGER_UNKNOWN
               : now->phase == PHASE_RUNNING || a->ran ? LEDGER_USEFUL
                                                       : LEDGER_STARTING;
    a->ran |= now->phase == PHASE_RUNNING;
    if (next != a->state)
        span_close(m, a, next);
    spans_keep(a, safe_time(now, a->epoch, m->now));
}

static bool moving(const struct object *o)
{
    const struct migration_status *s = o ? object_as(o, migration)->status : NULL;

    return s && s->placement && s->placement->gpus > 0 && s->phase >= MP_QUIESCING &&
           s->phase <= MP_FENCING;
}

static void change_migration(struct ledger_model *m, const struct object *before,
                             const struct object *after)
{
    const struct object *o = after ? after : before;
    const struct migration *mg = object_as(o, migration);
    int id = model_id(m, o->meta->uid);
    int at = model_name(m, o->meta->namespace_, o->meta->name); /* may move m->moves */

    m->moves[at].cause = after ? mg->spec->cause : (enum move_cause)0;
    if (moving(before) && !moving(after))
        alloc_end(m, alloc_find(m, id), model_name(m, o->meta->namespace_, mg->spec->workload), -1,
                  LEDGER_USEFUL, false);
    else if (!moving(before) && moving(after))
        alloc_begin(m, id, true, mg->status->placement, model_id(m, o->meta->namespace_),
                    model_id(m, mg->spec->workload), 0);
}

static void keep(const struct object **slot, const struct object *o)
{
    const struct object *old = *slot;

    *slot = o ? object_ref(o) : NULL;
    (void)object_unref(old);
}

void ledger_model_change(struct ledger_model *m, const struct change *c)
{
    const char *name = (c->after ? c->after : c->before)->meta->name;
    int id;

    switch (c->kind) {
    case KIND_NODE:
        change_node(m, c->before, c->after);
        return;
    case KIND_TARGET:
        id = model_id(m, name);
        keep(&m->targets[id], c->after);
        return;
    case KIND_PRICE_SHEET:
        id = model_id(m, name);
        keep(&m->sheets[id], c->after);
        return;
    case KIND_WORKLOAD:
        change_workload(m, c->before, c->after);
        return;
    case KIND_MIGRATION:
        change_migration(m, c->before, c->after);
        return;
    default:
        return;
    }
}
