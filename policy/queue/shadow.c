/* The head of a queue that does not fit gets a shadow reservation (EASY backfill: Lifka 1995): the
 * place where running work is expected to leave it room first, and when. Whoever comes after it may
 * use that place only when he will have ended by then, or finds room beside it. It is made anew in
 * each cycle and stands in the pool like room that is nominated: over what is held, in no account.
 * Whose room was kept goes first in the next cycle among those of his priority (turns.c): else a
 * queue that has used less would take that room one small piece after the other.
 *
 * Work that tells how long it runs ends then; what tells nothing, 24 hours after it began; what is
 * overdue, after as long again as it has run. For an hour it may end at any moment, though, and
 * nobody is let in ahead of that: else those who tell too little would pass without end. */
#include "policy/hints/hints_internal.h"

#include "api/base/failpoint.h"

#include <stdlib.h>
#include <string.h>

#define ENDS_MAX 2048 /* of running work, the soonest, over all targets */
#define FEW_ENDS 256  /* of one target: whoever needs more of them waits for none */
#define TARGETS_MAX 4 /* tried, in the order in which they might have the room */
#define TRIES_MAX 32  /* of those who come after, in one cycle */
#define HOLDS_MAX 100000
#define UNTOLD_MS (24ll * 3600 * 1000)
#define OVERDUE_MS (3600ll * 1000)

struct end {
    struct hold *hold;
    int64_t at_ms;
    bool told;    /* not our bound */
    bool overdue; /* by less than OVERDUE_MS */
};
struct search {
    struct pool *p;
    const struct place_request *rq;
    struct place *pl;
    struct arena *a;       /* of one search */
    bool *target, *class_; /* where, and of which class, room is missing; class_ NULL: any */
    int64_t *short_by;     /* by target: GPUs × 1000, or workers, until it might do */
    struct end *ends;
    uint32_t n;
};

/* ---- when does running work end? ---- */
/* What is left of it, from a start now on; `untold` when its owner does not say, or it is
 * overdue. */
static int64_t runs_for(const struct pool *p, const struct object *o, uint32_t class_,
                        int64_t untold)
{
    const struct workload *w = object_as(o, workload);
    double hours = w->spec->expected ? (double)w->spec->expected->duration / 3600000 : 0;
    struct need need;

    need_read(w->spec, &need);
    hours -= hours > 0 ? done_hours(&p->t, w, (double)need_milli(&need, need.workers) / 1000) : 0;
    if (hours <= 0)
        return untold;
    if (class_ != NONE)
        hours /= class_speed(&p->t, class_);
    return hours < 1e6 ? (int64_t)(hours * 3600000 + 0.5) : untold;
}

static struct end end_of(const struct pool *p, struct hold *h, int64_t now_ms)
{
    const struct workload_status *s = object_as(h->workload, workload)->status;
    int64_t since = s && s->placement ? s->placement->since : 0;
    int64_t told = since ? hold_ends_at(p, h) : 0;
    struct end e = {.hold = h, .told = told > now_ms, .at_ms = told};

    if (!since) { /* placed in this cycle, or on its way into the log */
        e.told = runs_for(p, h->workload, h->i_class, 0) > 0;
        e.at_ms = now_ms + runs_for(p, h->workload, h->i_class, UNTOLD_MS);
    } else if (!told && since + UNTOLD_MS > now_ms) {
        e.at_ms = since + UNTOLD_MS;
    } else if (!e.told) {
        e.overdue = told && now_ms - told < OVERDUE_MS;
        e.at_ms = now_ms + (since < now_ms ? now_ms - since : UNTOLD_MS);
    }
    return e;
}

static int cmp_end(const void *pa, const void *pb)
{
    const struct end *a = pa, *b = pb;

    if (a->at_ms != b->at_ms)
        return a->at_ms < b->at_ms ? -1 : 1;
    return strcmp(a->hold->key, b->hold->key);
}

/* The soonest ENDS_MAX, as a heap with the latest of them on top. */
static void end_keep(struct search *s, struct end e)
{
    uint32_t i = s->n, child;

    if (s->n == ENDS_MAX) {
        if (cmp_end(&e, &s->ends[0]) >= 0)
            return;
        for (i = 0; (child = 2 * i + 1) < s->n; i = child) {
            child += child + 1 < s->n && cmp_end(&s->ends[child], &s->ends[child + 1]) < 0;
            if (cmp_end(&s->ends[child], &e) <= 0)
                break;
            s->ends[i] = s->ends[child];
        }
    } else {
        for (s->n++; i > 0 && cmp_end(&s->ends[(i - 1) / 2], &e) < 0; i = (i - 1) / 2)
            s->ends[i] = s->ends[(i - 1) / 2];
    }
    s->ends[i] = e;
}

/* ---- where is room missing, and how much? ---- */
static bool room_missing(struct search *s)
{
    const struct table *t = &s->p->t;
    bool any = false;

    s->target = arena_array(s->a, bool, t->n_targets + 1);
    s->class_ = arena_array(s->a, bool, t->n_classes + 1);
    s->short_by = arena_array(s->a, int64_t, t->n_targets + 1);
    for (uint32_t i = 0; i < s->pl->n_rows; i++) {
        const struct row *r = &s->pl->rows[i];

        if (r->group == NONE || reason_cure(r->reason) != CURE_ROOM)
            continue;
        if (!s->target[r->target])
            s->short_by[r->target] = need_milli(&s->pl->need, s->pl->need.min_workers);
        any = s->target[r->target] = s->class_[t->groups[r->group].class_] = true;
    }
    for (uint32_t g = 0; any && g < t->n_groups; g++)
        if (s->target[t->groups[g].target] && s->class_[t->groups[g].class_])
            s->short_by[t->groups[g].target] -= t->groups[g].free * 1000;
    return any;
}

static void ends_find(struct search *s)
{
    bool any_class = s->pl->need.mode == NEED_CPU || s->pl->need.cpu > 0 || s->pl->need.memory > 0;

    s->ends = arena_array(s->a, struct end, ENDS_MAX);
    for (uint32_t i = 0; i < s->p->n_holds; i++) {
        struct hold *h = s->p->holds[i];

        if (h->kind != HOLD_PLACED || h->off || h->i_target == NONE || !s->target[h->i_target] ||
            (!any_class && (h->i_class == NONE || !s->class_[h->i_class])))
            continue;
        end_keep(s, end_of(s->p, h, s->rq->now_ms));
    }
    qsort(s->ends, s->n, sizeof(*s->ends), cmp_end);
}

/* ---- does it fit there once they have ended? ---- */
static int fits_after(struct search *s, const char *target, struct end *v, uint32_t n,
                      struct arena *a, struct placement **ret, struct err *err)
{
    struct place_request rq = *s->rq;
    struct decision_spec *d;
    int r;

    rq.now_ms = v[n - 1].at_ms;
    rq.only_target = target;
    rq.memo = NULL;
    for (uint32_t i = 0; i < n; i++)
        hold_switch(s->p, v[i].hold, false);
    r = policy_place(s->p, &rq, a, &d, ret, err);
    for (uint32_t i = 0; i < n; i++)
        hold_switch(s->p, v[i].hold, true);
    return r;
}

/* The least of the ends of this target that do; *ret stays as it is when none do, or others do
 * sooner. */
static int target_try(struct search *s, uint32_t target, struct shadow *ret, struct err *err)
{
    struct end *v = arena_array(s->a, struct end, FEW_ENDS);
    const char *name = s->p->t.targets[target].name;
    uint32_t n = 0, low = 1;
    AUTO_ARENA a = arena_create(0);
    struct placement *at, *found = NULL;
    int r;

    for (uint32_t i = 0; i < s->n && n < FEW_ENDS; i++)
        if (s->ends[i].hold->i_target == target)
            v[n++] = s->ends[i];
    if (!n || (r = fits_after(s, name, v, n, a, &at, err)) < 0 || !at)
        return n ? r : 0;
    for (uint32_t high = n; low < high;) {
        uint32_t mid = low + (high - low) / 2;

        if ((r = fits_after(s, name, v, mid, a, &at, err)) < 0)
            return r;
        if (at)
            high = mid;
        else
            low = mid + 1;
    }
    if ((r = fits_after(s, name, v, low, a, &found, err)) < 0 || !found)
        return r;
    if (ret->hold && ret->start_ms <= v[low - 1].at_ms)
        return 0;
    ret->start_ms = v[low - 1].at_ms;
    ret->after = v[low - 1].hold->workload;
    ret->bound = ret->closed = false;
    for (uint32_t i = 0; i < low; i++) {
        ret->bound |= !v[i].told;
        ret->closed |= v[i].overdue;
    }
    ret->hold = pool_keep(s->p, s->rq->workload, found);
    return 0;
}

static int search_run(struct search *s, struct shadow *ret, struct err *err)
{
    uint32_t tried = 0;
    int r = 0;

    ends_find(s);
    for (uint32_t i = 0; i < s->n && tried < TARGETS_MAX && r == 0; i++) {
        const struct hold *h = s->ends[i].hold;
        int64_t left = s->short_by[h->i_target];

        if (ret->hold && s->ends[i].at_ms >= ret->start_ms)
            break; /* no other can be sooner */
        if (left == INT64_MIN)
            continue;
        s->short_by[h->i_target] = left -= h->milli;
        if (left > 0)
            continue;
        s->short_by[h->i_target] = INT64_MIN;
        tried++;
        r = target_try(s, h->i_target, ret, err);
    }
    return r;
}

/* ---- the shadows of one cycle ---- */
int shadows_add(struct shadows *v, struct pool *cp, const struct place_request *rq,
                struct decision_spec *d, struct arena *out, struct err *err)
{
    AUTO_ARENA a = arena_create(0);
    struct search s = {.p = pool_settle(cp), .rq = rq, .a = a};
    struct shadow *own = &v->v[v->n < SHADOWS_MAX ? v->n : 0];
    const struct meta *who;
    unsigned lifted;
    int r;

    if (v->n == SHADOWS_MAX || v->looks >= 2 * SHADOWS_MAX || rq->queue_position != 1 ||
        rq->unsettled || !policy_waits_for(d, CURE_ROOM, false) || s.p->n_holds > HOLDS_MAX ||
        pool_nominated(s.p, rq->workload->meta->uid) || PLANTED("policy.no-shadow"))
        return 0;
    v->looks++;
    v->looked = true;
    s.pl = arena_new(a, struct place);
    lifted = pool_kept_lift(s.p); /* heads of other queues wait, too: who is first the order says */
    r = place_look(s.pl, s.p, rq, a, err);
    *own = (struct shadow){0};
    if (r == 0 && !s.pl->chosen && s.pl->pending == REASON_NONE && room_missing(&s))
        r = search_run(&s, own, err);
    pool_kept_lay(s.p, lifted);
    if (r < 0 || !own->hold)
        return r;
    v->n++;
    who = own->after->meta;
    d->startEstimate = own->start_ms;
    d->startAfter = own->bound ? ""
                    : strcmp(who->namespace_, rq->workload->meta->namespace_) == 0
                        ? arena_strdup(out, who->name)
                        : arena_printf(out, "%s/%s", who->namespace_, who->name);
    d->keptOn = arena_strdup(out, own->hold->target);
    return 0;
}

void shadows_begin(struct shadows *v, struct pool *p)
{
    for (uint32_t i = 0; i < v->n; i++)
        hold_switch(p, v->v[i].hold, true);
}

static bool has_shadow(const struct shadows *v, const char *uid)
{
    for (uint32_t i = 0; i < v->n; i++)
        if (!strcmp(v->v[i].hold->workload->meta->uid, uid))
            return true;
    return false;
}

/* Those who were kept room before stay ahead of those who are for the first time. Whose turn a
 * cycle that was cut short may not have come to are not forgotten. */
static void remember(struct pool *p, const struct shadows *v, bool whole)
{
    char uids[SHADOWS_MAX][sizeof p->was_kept[0]];
    uint32_t n = 0;

    for (uint32_t i = 0; i < p->n_was_kept; i++)
        if (has_shadow(v, p->was_kept[i]))
            memcpy(uids[n++], p->was_kept[i], sizeof uids[0]);
    for (uint32_t i = 0; i < v->n; i++)
        if (pool_kept_rank(p, v->v[i].hold->workload) == NONE)
            str_copy(uids[n++], sizeof uids[0], v->v[i].hold->workload->meta->uid);
    for (uint32_t i = 0; !whole && i < p->n_was_kept && n < SHADOWS_MAX; i++)
        if (!has_shadow(v, p->was_kept[i]))
            memcpy(uids[n++], p->was_kept[i], sizeof uids[0]);
    memcpy(p->was_kept, uids, n * sizeof uids[0]);
    p->n_was_kept = n;
}

void shadows_end(struct shadows *v, struct pool *p, bool whole)
{
    if (v->over)
        return;
    v->over = true;
    remember(p, v, whole);
    for (uint32_t i = 0; i < v->n; i++)
        (void)pool_keep(p, v->v[i].hold->workload, NULL);
    v->n = 0;
}

/* ---- those who come after ---- */
static double fastest(const struct pool *p)
{
    double most = 1;

    for (uint32_t c = 0; c < p->t.n_classes; c++)
        most = class_speed(&p->t, c) > most ? class_speed(&p->t, c) : most;
    return most;
}

int shadows_pass(struct shadows *v, struct pool *cp, const struct place_request *asked,
                 struct cycle_item *it, struct arena *a, struct err *err)
{
    struct pool *p = pool_settle(cp);
    struct place_request rq = *asked;
    struct decision_spec *d;
    struct placement *at;
    bool off[SHADOWS_MAX];
    int64_t now = rq.now_ms, first = INT64_MAX, left;
    uint32_t n_off = 0;
    int r;

    if (!v->n || v->tries >= TRIES_MAX || !policy_waits_for(it->decision, CURE_ROOM, false))
        return 0;
    left = runs_for(p, rq.workload, NONE, 0);
    if (!left)
        return 0;
    for (uint32_t i = 0; i < v->n; i++) {
        off[i] = !v->v[i].hold->off && !v->v[i].closed &&
                 now + (int64_t)((double)left / fastest(p)) <= v->v[i].start_ms;
        n_off += off[i];
        if (off[i] && v->v[i].start_ms < first)
            first = v->v[i].start_ms;
    }
    if (!n_off)
        return 0;
    v->tries++;
    rq.memo = NULL;
    for (uint32_t i = 0; i < v->n; i++)
        if (off[i])
            hold_switch(p, v->v[i].hold, false);
    r = policy_place(p, &rq, a, &d, &at, err);
    for (uint32_t i = 0; i < v->n; i++)
        if (off[i])
            hold_switch(p, v->v[i].hold, true);
    if (r < 0 || !at ||
        now + runs_for(p, rq.workload, strmap_get(&p->t.class_by_name, at->class_), 0) > first)
        return r;
    it->decision = d;
    it->placement = at;
    return 0;
}
