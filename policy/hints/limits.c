/* Hints about limits that others set: burst, borrowLimit and guarantee of a queue, lending of other
 * queues, a policy's maxGPUs. The figures come from the check that refused; each is tried with a
 * changed copy of the document. */
#include "policy/hints/hints_internal.h"

#include <string.h>

#define QUEUES_TRIED 4

static int64_t whole(int64_t milli) /* GPUs, rounded up */
{
    return (milli + 999) / 1000;
}

static int64_t asked(const struct hints *h)
{
    return need_milli(&h->pl->need, h->pl->need.min_workers);
}

static struct queue_gpus *line_of(struct queue_spec *s, const char *class_)
{
    for (uint32_t i = 0; i < s->n_gpus; i++) {
        if (strcmp(s->gpus[i].class_, class_) == 0)
            return &s->gpus[i];
    }
    return NULL;
}

/* " of h100": where the queue has more than one line. */
static const char *of_class(struct hints *h, const struct queue_spec *s, const char *class_)
{
    if (s->n_gpus < 2)
        return "";
    return arena_printf(h->a, " of %s", class_[0] ? class_ : "any class");
}

static struct queue_gpus *line_to_change(const struct edit *e, void *body)
{
    return line_of(((struct queue *)body)->spec, e->s);
}
static void add_burst(const struct edit *e, void *body)
{
    line_to_change(e, body)->burst += e->n;
}
static void add_borrow(const struct edit *e, void *body)
{
    line_to_change(e, body)->borrowLimit += e->n;
}
static void add_guaranteed(const struct edit *e, void *body)
{
    line_to_change(e, body)->guaranteed += e->n;
}
static void add_lend(const struct edit *e, void *body)
{
    line_to_change(e, body)->lendLimit += e->n;
}
static void set_lend(const struct edit *e, void *body)
{
    (void)e;
    ((struct queue *)body)->spec->lend = true;
}
static void add_policy(const struct edit *e, void *body)
{
    ((struct placement_policy *)body)->spec->maxGPUs += e->n;
}
static void add_window(const struct edit *e, void *body)
{
    ((struct placement_policy *)body)->spec->windows[e->field].maxGPUs += e->n;
}

static bool tell_limit(struct hints *h, const struct edit *e, const char *words)
{
    struct tried t;

    if (!hint_try_edit(h, e, &t)) {
        hint_first(h, e, words);
        return false;
    }
    hint_add(h, "%s", words);
    return true;
}

static const struct queue_spec *queue_at(const struct hints *h, uint32_t at)
{
    return object_as(h->p->docs[KIND_QUEUE].v[at], queue)->spec;
}

/* ---- more for its own ---- */
static bool raise_burst(struct hints *h, const char *class_, const struct quota_answer *q)
{
    uint32_t at = strmap_get(&h->p->queue_by_name, q->queue);
    struct edit e = {.limit = q->borrow ? add_borrow : add_burst,
                     .kind = KIND_QUEUE,
                     .at = at,
                     .n = whole(q->held + asked(h) - q->limit),
                     .s = q->all ? "" : class_,
                     .step = 1};

    if (!quota_line(h->p->docs[KIND_QUEUE].v[at], e.s) || e.n <= 0)
        return false;
    return tell_limit(h, &e,
                      arena_printf(h->a, "%s%s raised by %lld in queue %s",
                                   q->borrow ? "borrowLimit" : "burst",
                                   of_class(h, queue_at(h, at), e.s), (long long)e.n, q->queue));
}

static bool has_children(const struct pool *p, uint32_t queue)
{
    for (uint32_t i = 0; i < p->n_queues; i++) {
        if (p->queue_tree.parent[i] == queue)
            return true;
    }
    return false;
}

/* Only what others may not have either: the parent's guarantee must leave room for it
 * (policy_queues_check). */
static void raise_guaranteed(struct hints *h, const char *class_, uint32_t i_class)
{
    uint32_t at = h->pl->queue;
    struct edit e = {.limit = add_guaranteed, .kind = KIND_QUEUE, .at = at, .s = class_, .step = 1};
    const struct queue_gpus *g;

    if (at == NONE || has_children(h->p, at))
        return;
    g = quota_line(h->p->docs[KIND_QUEUE].v[at], class_);
    if (!g)
        return;
    e.n = whole(*queue_cell(h->p, at, i_class) + asked(h)) - g->guaranteed;
    if (e.n > 0)
        (void)tell_limit(h, &e,
                         arena_printf(h->a, "guaranteed%s raised by %lld in queue %s",
                                      of_class(h, queue_at(h, at), class_), (long long)e.n,
                                      h->pl->queue_name));
}

/* ---- more from others ---- */
static void lend_more(struct hints *h, uint32_t at, const char *class_, int64_t more)
{
    const struct queue_spec *s = queue_at(h, at);
    const char *name = h->p->docs[KIND_QUEUE].v[at]->meta->name;
    struct edit e = {.limit = set_lend, .kind = KIND_QUEUE, .at = at, .s = class_};

    if (!s->lend) {
        (void)tell_limit(
            h, &e,
            arena_printf(h->a, "queue %s lends what it is guaranteed and does not use", name));
        return;
    }
    if (!QUOTA_GIVEN(quota_line(h->p->docs[KIND_QUEUE].v[at], class_), lendLimit))
        return; /* it lends all there is */
    e.limit = add_lend;
    e.n = more;
    e.step = 1;
    (void)tell_limit(h, &e,
                     arena_printf(h->a, "lendLimit%s raised by %lld in queue %s",
                                  of_class(h, s, class_), (long long)more, name));
}

static void lenders(struct hints *h, const char *class_, int64_t more)
{
    uint32_t tried = 0;

    for (uint32_t i = 0; i < h->p->n_queues && tried < QUEUES_TRIED; i++) {
        const struct object *o = h->p->docs[KIND_QUEUE].v[i];
        const struct queue_gpus *g = quota_line(o, class_);

        if (i == h->pl->queue || !g || !g->guaranteed)
            continue;
        tried++;
        lend_more(h, i, class_, more);
    }
}

void hint_quota(struct hints *h)
{
    const struct table *t = &h->p->t;

    for (uint32_t i = 0; i < h->pl->n_rows; i++) {
        const struct row *r = &h->pl->rows[i];
        const struct quota_answer *q;
        uint32_t class_;

        if (reason_cure(r->reason) != CURE_QUOTA)
            continue;
        class_ = t->groups[r->group].class_;
        q = place_quota(h->pl, class_);
        /* Where a limit is all that stands in the way, a guarantee would be more than is needed. */
        if (q->reason == REASON_QUOTA_BURST && raise_burst(h, t->classes[class_].name, q))
            continue;
        raise_guaranteed(h, q->all ? "" : t->classes[class_].name,
                         q->all ? h->p->n_account_classes : class_);
        if (q->reason == REASON_QUOTA_BURST)
            continue;
        /* kept and free: so much less must be kept. */
        lenders(h, q->all ? "" : t->classes[class_].name, whole(asked(h) - (q->limit - q->held)));
    }
}

/* ---- the policy ---- */
static void raise_window(struct hints *h)
{
    const struct placement_policy_spec *s = h->pl->order;
    struct window_answer w = window_limit(h->p, s, h->rq->now_ms);
    struct edit e = {
        .limit = add_window, .kind = KIND_PLACEMENT_POLICY, .at = h->pl->i_policy, .step = 1};

    if (!w.limited || w.unknown_zone)
        return;
    e.field = (int)(w.window - s->windows);
    e.n = whole(h->p->policy_held[h->pl->i_policy] + asked(h)) - w.max_gpus;
    if (e.n > 0)
        (void)tell_limit(
            h, &e,
            arena_printf(h->a, "maxGPUs raised by %lld in the window %s-%s of policy %s",
                         (long long)e.n, w.window->from, w.window->to, h->pl->policy->meta->name));
}

void hint_policy(struct hints *h)
{
    struct edit e = {
        .limit = add_policy, .kind = KIND_PLACEMENT_POLICY, .at = h->pl->i_policy, .step = 1};

    if (h->pl->pending == REASON_WINDOW)
        raise_window(h);
    if (h->pl->pending != REASON_POLICY_LIMIT)
        return;
    e.n = whole(h->p->policy_held[h->pl->i_policy] + asked(h)) - h->pl->order->maxGPUs;
    if (e.n > 0)
        (void)tell_limit(h, &e,
                         arena_printf(h->a, "maxGPUs raised by %lld in policy %s", (long long)e.n,
                                      h->pl->policy->meta->name));
}
