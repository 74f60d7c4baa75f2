/* Open allocations: what an epoch of a Workload, or a Migration's destination, does with what it
 * holds. To what end its time went is settled late: work counts as useful while it may still be
 * kept, and what a stop took away is known at the stop. It is then the time since the newest
 * verified checkpoint of the epoch.
 *
 * This file must never book a moment of an allocation twice, nor leave one out: its parts follow
 * one another. */
#include "connectors/ends.h"
#include "controlplane/store/ledger/ledger_internal.h"
#include "policy/policy.h"

#define PARTS_MAX (2 * LEDGER_SEGMENTS + 4)

/* ---- what is held ---- */
static const struct placement *placement_of(const struct kind *k, const void *body)
{
    if (k->id == KIND_WORKLOAD) {
        const struct workload_status *s = ((const struct workload *)body)->status;

        return s && phase_holds(s->phase) ? s->placement : NULL;
    }
    if (k->id == KIND_MIGRATION) {
        const struct migration_status *s = ((const struct migration *)body)->status;

        return s && move_holds(s->phase) ? s->placement : NULL;
    }
    return NULL;
}

int64_t hold_milli(const struct placement *p)
{
    int64_t sum = 0;

    for (uint32_t i = 0; i < p->n_assignments; i++) {
        const struct assignment *a = &p->assignments[i];

        if (!assignment_booked(a))
            continue;
        for (uint32_t j = 0; j < a->n_gpus; j++)
            sum += device_booked(a->gpus[j]) ? a->gpuMilli : 0;
        sum += counted_booked(a);
    }
    return sum;
}

int64_t hold_cpu(const struct placement *p)
{
    int64_t sum = 0;

    for (uint32_t i = 0; cpu_booked(p->cpu) && i < p->n_assignments; i++)
        sum += node_booked(&p->assignments[i]) ? p->cpu : 0;
    return sum;
}

static const struct placement *hold_of(const struct root *r, const struct kind *k, const void *body)
{
    const struct placement *p = placement_of(k, body);

    return p && *p->target && strlen(p->target) <= 253 && strlen(p->class_) <= 63 &&
                   !class_cpu(p->class_) &&
                   (hold_milli(p) > 0 || (r->ledger.cpus && hold_cpu(p) > 0))
               ? p
               : NULL;
}

const struct placement *ledger_hold(const struct root *r, const struct object *o)
{
    return o ? hold_of(r, o->kind, o->body) : NULL;
}

static bool same_place(const struct placement *a, const struct placement *b)
{
    if (strcmp(a->target, b->target) != 0 || strcmp(a->class_, b->class_) != 0 ||
        a->gpuHourPrice < b->gpuHourPrice || a->gpuHourPrice > b->gpuHourPrice ||
        a->cpu != b->cpu || a->capacity != b->capacity || a->n_assignments != b->n_assignments)
        return false;
    for (uint32_t i = 0; i < a->n_assignments; i++) {
        const struct assignment *x = &a->assignments[i], *y = &b->assignments[i];

        if (x->gpuMilli != y->gpuMilli || x->count != y->count || x->shares != y->shares ||
            strcmp(x->mig ? x->mig : "", y->mig ? y->mig : "") != 0 || x->n_gpus != y->n_gpus ||
            strcmp(x->node, y->node) != 0 ||
            (x->n_gpus && memcmp(x->gpus, y->gpus, x->n_gpus * sizeof *x->gpus) != 0))
            return false;
    }
    return true;
}

bool hold_goes_on(const struct root *r, const struct object *before, const void *body)
{
    const struct placement *p = ledger_hold(r, before), *q = hold_of(r, before->kind, body);

    if (!p || !q || !same_place(p, q))
        return false;
    return before->kind->id != KIND_WORKLOAD || object_as(before, workload)->status->epoch ==
                                                    ((const struct workload *)body)->status->epoch;
}

/* ---- store ---- */
void open_key(struct key *k, const struct object *o)
{
    size_t n = strnlen(o->meta->uid, 64);

    k->p[0] = o->kind->id == KIND_WORKLOAD ? 'w' : 'm';
    memcpy(k->p + 1, o->meta->uid, n);
    k->n = n + 1;
}

static uint64_t open_hash(struct slice key, const struct open_box *b)
{
    uint64_t h = hash_bytes(9, key.p, key.n);

    h = hash_u64(hash_u64(h, (uint64_t)b->from), (uint64_t)b->since);
    h = hash_u64(hash_u64(hash_u64(h, b->state), b->ran), b->n);
    for (uint32_t i = 0; i < b->n; i++)
        h = hash_u64(hash_u64(h, (uint64_t)b->run[i].from), (uint64_t)b->run[i].to);
    return h;
}

void open_store(struct root *w, struct slice key, struct open_box *b)
{
    const struct open_box *old = tree_get(w->ledger.open, key);

    if (old)
        w->digest -= open_hash(key, old);
    if (!b) {
        w->ledger.open = tree_del_own(w->ledger.open, key);
        return;
    }
    w->digest += open_hash(key, b);
    w->ledger.open = tree_put_own(w->ledger.open, key, b);
    box_unref(b);
}

/* ---- for whom ---- */
static void line_owner(struct ledger_line *l, const struct object *o)
{
    const struct workload *w = object_as(o, workload);
    const char *label = label_get(o->meta->labels, o->meta->n_labels, "experiment");

    l->queue = w->status ? w->status->queue : "";
    l->user = w->spec ? w->spec->user : "";
    l->experiment = w->spec && *w->spec->experiment ? w->spec->experiment : label ? label : "";
    l->workload = o->meta->name;
}

static void line_of(const struct root *r, const struct object *o, struct ledger_line *l)
{
    const struct placement *p = ledger_hold(r, o);

    *l = (struct ledger_line){.basis = p->capacity,
                              .price = p->gpuHourPrice,
                              .target = p->target,
                              .class_ = p->class_,
                              .project = o->meta->namespace_};
    l->priced = p->gpuHourPrice > 0 || account_free(r, p->target, p->class_, p->capacity);
    if ((unsigned)l->basis >= LEDGER_KINDS)
        l->basis = (enum capacity)0;
    if (o->kind->id == KIND_WORKLOAD) {
        line_owner(l, o);
        return;
    }
    const struct migration_spec *s = object_as(o, migration)->spec;
    const struct object *w =
        s ? root_get(r, KIND_WORKLOAD, o->meta->namespace_, s->workload) : NULL;
    l->workload = s ? s->workload : "";
    if (w)
        line_owner(l, w);
}

static int64_t cpus_from(const struct root *r, int64_t from)
{
    return from > r->ledger.cpus_since ? from : r->ledger.cpus_since;
}

/* The same of its CPUs, which are in the price of GPUs, or have none. */
static void line_cpu(struct ledger_line *l)
{
    l->class_ = LEDGER_CPU;
    l->priced = false;
    l->price = 0;
}

/* ---- to what end ---- */
static enum ledger_cause state_of(const struct object *o, bool ran)
{
    if (o->kind->id != KIND_WORKLOAD)
        return LEDGER_MIGRATING;
    switch (object_as(o, workload)->status->phase) {
    case PHASE_UNKNOWN:
        return LEDGER_UNKNOWN;
    case PHASE_RUNNING:
        return LEDGER_USEFUL;
    default:
        return ran ? LEDGER_USEFUL : LEDGER_STARTING;
    }
}

/* Up to when work of this epoch is in a verified checkpoint. */
static int64_t safe_of(const struct workload_status *s, int64_t epoch, int64_t now)
{
    const struct run_checkpoint *c = s->checkpoint;

    if (!c || c->epoch != epoch)
        return INT64_MIN;
    int64_t saved = checkpoint_saved_at(c);
    return saved < now ? saved : now;
}

static enum ledger_cause move_lost(const struct root *r, const char *ns, const char *name)
{
    const struct object *o = *name ? root_get(r, KIND_MIGRATION, ns, name) : NULL;
    const struct migration_spec *s = o ? object_as(o, migration)->spec : NULL;

    switch (s ? s->cause : (enum move_cause)0) {
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

/* What became of work that no checkpoint keeps. USEFUL: it ended as it was meant to. */
static enum ledger_cause end_cause(const struct root *r, const struct object *before,
                                   const struct workload_status *after)
{
    const struct workload_status *was = object_as(before, workload)->status;

    if (!after || after->phase == PHASE_SUCCEEDED || after->phase == PHASE_CANCELLED)
        return LEDGER_USEFUL;
    const struct run_end *e = after->n_ends ? &after->ends[after->n_ends - 1] : NULL;
    if (e && e->epoch == was->epoch && end_by_target(e))
        return LEDGER_FAILED_NODE;
    return move_lost(r, before->meta->namespace_,
                     *was->migration ? was->migration : after->migration);
}

/* ---- the parts of an allocation's time that are not booked yet ---- */
struct parts {
    struct segment v[PARTS_MAX];
    unsigned n;
};

static void part_add(struct parts *x, int64_t from, int64_t to, enum ledger_cause cause)
{
    if (from >= to)
        return;
    INV(x->n < PARTS_MAX);
    x->v[x->n++] = (struct segment){from, to, cause};
}

static void part_run(struct parts *x, int64_t from, int64_t to, int64_t safe,
                     enum ledger_cause lost)
{
    int64_t cut = lost == LEDGER_USEFUL || safe >= to ? to : safe > from ? safe : from;

    part_add(x, from, cut, LEDGER_USEFUL);
    part_add(x, cut, to, lost);
}

static void parts_of(const struct open_box *b, int64_t now, int64_t safe, enum ledger_cause lost,
                     bool finished, struct parts *x)
{
    x->n = 0;
    for (uint32_t i = 0; i < b->n; i++)
        part_run(x, b->run[i].from, b->run[i].to, safe, lost);
    if (b->state == LEDGER_USEFUL)
        part_run(x, b->since, now, safe, lost);
    else if (b->state == LEDGER_STARTING && finished) /* over before anybody saw it running */
        part_add(x, b->since, now, LEDGER_USEFUL);
    else
        part_add(x, b->since, now, (enum ledger_cause)b->state);
}

/* The parts that an end books; after NULL: removed. */
static void parts_end(const struct root *r, const struct open_box *b, const struct object *before,
                      const struct workload_status *after, struct parts *x)
{
    if (before->kind->id != KIND_WORKLOAD) {
        parts_of(b, r->time, INT64_MIN, LEDGER_USEFUL, false, x);
        return;
    }
    const struct workload_status *was = object_as(before, workload)->status;
    parts_of(b, r->time, safe_of(after ? after : was, was->epoch, r->time),
             end_cause(r, before, after), after && after->phase == PHASE_SUCCEEDED, x);
}

static int64_t epoch_of(const struct object *o)
{
    return o->kind->id == KIND_WORKLOAD ? object_as(o, workload)->status->epoch
                                        : object_as(o, migration)->status->fromEpoch + 1;
}

static void book(struct root *w, const struct object *o, int64_t from, int64_t to,
                 enum ledger_cause cause)
{
    const struct placement *p = ledger_hold(w, o);
    struct ledger_line l;

    line_of(w, o, &l);
    l.cause = cause;
    ledger_interval_add(w, &l, epoch_of(o), hold_milli(p), from, to);
    if (!w->ledger.cpus)
        return;
    line_cpu(&l);
    ledger_interval_add(w, &l, epoch_of(o), hold_cpu(p), cpus_from(w, from), to);
}

/* ---- how much of it did something ---- */
/* While it runs, from the entry that told it on: lines beside what is held, in no balance. */
struct use {
    int64_t from, measured, idle; /* 1/1000 GPU */
};

static const struct gpu_use *told_of(const struct object *o)
{
    const struct workload_status *s =
        o && o->kind->id == KIND_WORKLOAD ? object_as(o, workload)->status : NULL;

    return s && s->phase == PHASE_RUNNING ? s->gpuUse : NULL;
}

static bool use_of(const struct root *r, const struct object *o, const struct open_box *b,
                   struct use *ret)
{
    const struct gpu_use *u = told_of(o);
    int64_t milli = u ? hold_milli(ledger_hold(r, o)) : 0;

    if (!u || b->state != LEDGER_USEFUL || u->measured <= 0 || u->idle < 0 || !milli)
        return false;
    ret->from = u->at > b->since ? u->at : b->since;
    ret->measured = u->measured < milli ? u->measured : milli;
    ret->idle = u->idle < ret->measured ? u->idle : ret->measured;
    return true;
}

static void use_lines(const struct root *r, const struct object *o, const struct use *u, int64_t to,
                      ledger_sink sink, void *arg)
{
    struct ledger_line l;

    line_of(r, o, &l);
    l.cause = LEDGER_MEASURED;
    ledger_days(&l, u->measured, u->from, to, sink, arg);
    l.cause = LEDGER_HELD_IDLE;
    ledger_days(&l, u->idle, u->from, to, sink, arg);
}

static void use_to_totals(void *arg, const struct ledger_line *l)
{
    ledger_total_add(arg, 0, l);
}

/* What was told afterwards of the time since an entry: for so long it was measured, and what was
 * idle meanwhile. That is spread evenly, and what is left of it is at the beginning. */
static void use_sums(struct root *w, const struct object *before, const struct use *u,
                     const struct gpu_use *now)
{
    int64_t ms = w->time - u->from;
    struct use all = *u, left = {.from = u->from, .idle = 1};

    ms = now->measuredFor < ms ? now->measuredFor : ms;
    if (ms <= 0)
        return;
    all.idle = now->idleSum / ms;
    if (all.idle >= u->measured)
        all.idle = u->measured;
    use_lines(w, before, &all, u->from + ms, use_to_totals, w);
    if (all.idle < u->measured && now->idleSum % ms)
        use_lines(w, before, &left, u->from + now->idleSum % ms, use_to_totals, w);
}

/* after: NULL where it holds nothing any more. What is found idle has been so for a while: that
 * counts, as far as it was measured. */
static void use_book(struct root *w, const struct object *before, const struct open_box *b,
                     const struct object *after)
{
    const struct gpu_use *was = told_of(before), *now = told_of(after);
    struct use u, late;

    if (!use_of(w, before, b, &u) || (now && was->at == now->at && was->measured == now->measured &&
                                      was->idle == now->idle))
        return;
    if (now && now->measuredFor) {
        use_sums(w, before, &u, now);
        return;
    }
    use_lines(w, before, &u, w->time, use_to_totals, w);
    late = (struct use){.from = now && now->idleSince > u.from ? now->idleSince : u.from};
    late.idle = now ? now->idle - u.idle : 0;
    if (late.idle > u.measured - u.idle)
        late.idle = u.measured - u.idle;
    if (late.idle > 0)
        use_lines(w, before, &late, w->time, use_to_totals, w);
}

/* ---- begin, step, end ---- */
void hold_begin(struct root *w, const struct object *o, int64_t at)
{
    struct open_box *b = box_new(sizeof *b, NULL);
    struct key k;

    b->from = b->since = at;
    b->state = (uint64_t)state_of(o, false);
    b->ran = b->state == LEDGER_USEFUL;
    use_open(&w->ledger.use, o, b, 1);
    open_key(&k, o);
    open_store(w, key_slice(&k), b);
}

/* Time that ran and is in a checkpoint is settled; what is too much to remember counts as useful,
 * oldest first. */
static void settle(struct root *w, const struct object *o, struct open_box *b)
{
    int64_t safe = safe_of(object_as(o, workload)->status, epoch_of(o), w->time);
    uint32_t n = 0;

    for (uint32_t i = 0; i < b->n; i++) {
        if (b->run[i].to <= safe || b->n - i + n > LEDGER_SEGMENTS)
            book(w, o, b->run[i].from, b->run[i].to, LEDGER_USEFUL);
        else
            b->run[n++] = b->run[i];
    }
    b->n = n;
}

void hold_step(struct root *w, const struct object *before, const struct object *after)
{
    struct key k;

    if (after->kind->id != KIND_WORKLOAD)
        return;
    open_key(&k, after);
    const struct open_box *old = tree_get(w->ledger.open, key_slice(&k));
    INV(old);
    enum ledger_cause now = state_of(after, old->ran);
    use_book(w, before, old, after);
    use_open(&w->ledger.use, before, old, -1);
    if ((uint64_t)now == old->state && old->n == 0) {
        use_open(&w->ledger.use, after, old, 1); /* its queue may be another one */
        return;
    }
    struct open_box *b = box_new(sizeof *b + (old->n + 1) * sizeof b->run[0], NULL);
    b->from = old->from;
    b->since = old->since;
    b->state = (uint64_t)now;
    b->ran = old->ran || now == LEDGER_USEFUL;
    b->n = old->n;
    memcpy(b->run, old->run, old->n * sizeof b->run[0]);
    if ((uint64_t)now != old->state) {
        b->since = w->time;
        if (old->state != LEDGER_USEFUL)
            book(w, before, old->since, w->time, (enum ledger_cause)old->state);
        else if (old->since < w->time)
            b->run[b->n++] = (struct segment){old->since, w->time, LEDGER_USEFUL};
    }
    settle(w, after, b);
    use_open(&w->ledger.use, after, b, 1);
    open_store(w, key_slice(&k), b);
}

void hold_end(struct root *w, const struct object *before, const struct object *after)
{
    struct parts x;
    struct key k;

    open_key(&k, before);
    const struct open_box *b = tree_get(w->ledger.open, key_slice(&k));
    INV(b);
    use_open(&w->ledger.use, before, b, -1);
    parts_end(
        w, b, before,
        after && before->kind->id == KIND_WORKLOAD ? object_as(after, workload)->status : NULL, &x);
    for (unsigned i = 0; i < x.n; i++)
        book(w, before, x.v[i].from, x.v[i].to, x.v[i].cause);
    use_book(w, before, b, NULL);
    open_store(w, key_slice(&k), NULL);
}

/* What the workload's own status says that it spent is what the ledger is about to book, but for
 * destinations that were held beside it. */
void ledger_spend(struct txn *t, const struct object *before, void *body)
{
    struct workload *w = body;
    struct parts x;
    struct key k;

    if (!before || before->kind->id != KIND_WORKLOAD || !ledger_hold(t->w, before) ||
        hold_goes_on(t->w, before, body))
        return;
    open_key(&k, before);
    const struct open_box *b = tree_get(t->w->ledger.open, key_slice(&k));
    INV(b);
    const struct placement *p = ledger_hold(t->w, before);
    ledger_amount milli = hold_milli(p), held = 0, lost = 0;
    ledger_amount cpus = t->w->ledger.cpus
                             ? hold_cpu(p) * (ledger_amount)(t->w->time - cpus_from(t->w, b->from))
                             : 0;
    parts_end(t->w, b, before, w->status, &x);
    for (unsigned i = 0; i < x.n; i++)
        lost += ledger_cause_lost(x.v[i].cause) ? milli * (x.v[i].to - x.v[i].from) : 0;
    held = milli * (t->w->time - b->from);
    if (!w->status->spent)
        w->status->spent = arena_new(t->a, struct spent);
    volatile double hours = w->status->spent->gpuHours + line_money(held, 1),
                    cpu = w->status->spent->cpuHours + line_money(cpus, 1),
                    cost = w->status->spent->cost + line_money(held, p->gpuHourPrice),
                    wasted = w->status->spent->wasted + line_money(lost, 1);
    w->status->spent->gpuHours = hours;
    w->status->spent->cpuHours = cpu;
    w->status->spent->cost = cost;
    w->status->spent->wasted = wasted;
}

/* ---- so far ---- */
struct scan {
    const struct root *r;
    int64_t now;
    ledger_sink sink;
    void *arg;
};

static void scan_one(const struct scan *x, const struct object *o, const struct open_box *b)
{
    const struct placement *p = ledger_hold(x->r, o);
    struct ledger_line l, cpu;
    struct parts parts;
    struct use u;

    if (use_of(x->r, o, b, &u))
        use_lines(x->r, o, &u, x->now, x->sink, x->arg);
    parts_of(b, x->now, INT64_MIN, LEDGER_USEFUL, false, &parts);
    line_of(x->r, o, &l);
    cpu = l;
    line_cpu(&cpu);
    for (unsigned i = 0; i < parts.n; i++) {
        cpu.cause = l.cause = parts.v[i].cause;
        ledger_days(&l, hold_milli(p), parts.v[i].from, parts.v[i].to, x->sink, x->arg);
        if (x->r->ledger.cpus)
            ledger_days(&cpu, hold_cpu(p), cpus_from(x->r, parts.v[i].from), parts.v[i].to, x->sink,
                        x->arg);
    }
}

static bool scan_workload(struct slice key, const void *value, void *arg)
{
    const struct scan *x = arg;
    char uid[65] = "";

    if (*(const char *)key.p != 'w')
        return false; /* 'm' is before it: the scan began at 'w' */
    memcpy(uid, (const char *)key.p + 1, key.n - 1 < 64 ? key.n - 1 : 64);
    const struct object *o = root_workload_by_uid(x->r, uid);
    INV(ledger_hold(x->r, o));
    scan_one(x, o, value);
    return true;
}

static bool scan_migration(const struct object *o, void *arg)
{
    const struct scan *x = arg;
    struct key k;

    if (!ledger_hold(x->r, o))
        return true;
    open_key(&k, o);
    const struct open_box *b = tree_get(x->r->ledger.open, key_slice(&k));
    INV(b);
    scan_one(x, o, b);
    return true;
}

void hold_scan(const struct root *r, int64_t now, ledger_sink sink, void *arg)
{
    struct scan x = {r, now, sink, arg};

    tree_scan(r->ledger.open, slice_make("w", 1), scan_workload, &x);
    root_scan(r, KIND_MIGRATION, NULL, NULL, NULL, scan_migration, &x);
}
