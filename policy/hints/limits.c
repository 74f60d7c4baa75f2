/* Hints about what others set: burst, borrowLimit and guarantee of a queue, what other queues lend,
 * a policy's maxGPUs. The figures come from the very check that refused; each is tried with a
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

/* ---- more for its own
 * -------------------------------------------------------------------------------------------------------
 */
static bool raise_burst(struct hints *h, const char *class_, const struct quota_answer *q)
{
    AUTO_ARENA a = arena_create(0);
    uint32_t at = strmap_get(&h->p->queue_by_name, q->queue);
    struct queue *body = object_edit_as(h->p->docs[KIND_QUEUE].v[at], queue, a);
    const char *name = q->all ? "" : class_;
    struct queue_gpus *g = line_of(body->spec, name);
    int64_t more = whole(q->held + asked(h) - q->limit);
    struct tried t;

    if (!g || more <= 0)
        return false;
    if (q->borrow)
        g->borrowLimit += more;
    else
        g->burst += more;
    if (!hint_try_document(h, KIND_QUEUE, at, body, &t))
        return false;
    hint_add(h, "%s%s raised by %lld in queue %s", q->borrow ? "borrowLimit" : "burst",
             of_class(h, body->spec, name), (long long)more, q->queue);
    return true;
}

static bool has_children(const struct pool *p, uint32_t queue)
{
    for (uint32_t i = 0; i < p->n_queues; i++) {
        if (p->queue_parent[i] == queue)
            return true;
    }
    return false;
}

/* Only what others may not have either: the parent's guarantee must leave room for it
 * (policy_queues_check). */
static void raise_guaranteed(struct hints *h, const char *class_, uint32_t i_class)
{
    AUTO_ARENA a = arena_create(0);
    uint32_t at = h->pl->queue;
    struct queue *body;
    struct queue_gpus *g;
    struct tried t;
    int64_t more;

    if (at == NONE || has_children(h->p, at))
        return;
    body = object_edit_as(h->p->docs[KIND_QUEUE].v[at], queue, a);
    g = line_of(body->spec, class_);
    if (!g)
        return;
    more = whole(*queue_cell(h->p, at, i_class) + asked(h)) - g->guaranteed;
    if (more <= 0)
        return;
    g->guaranteed += more;
    if (hint_try_document(h, KIND_QUEUE, at, body, &t))
        hint_add(h, "guaranteed%s raised by %lld in queue %s", of_class(h, body->spec, class_),
                 (long long)more, h->pl->queue_name);
}

/* ---- more from others
 * -------------------------------------------------------------------------------------------------------
 */
static void lend_more(struct hints *h, uint32_t at, const char *class_, int64_t more)
{
    AUTO_ARENA a = arena_create(0);
    struct queue *body = object_edit_as(h->p->docs[KIND_QUEUE].v[at], queue, a);
    struct queue_gpus *g = line_of(body->spec, class_);
    const char *name = h->p->docs[KIND_QUEUE].v[at]->meta->name;
    struct tried t;

    if (body->spec->lend && !QUOTA_GIVEN(g, lendLimit))
        return; /* it lends all there is */
    if (body->spec->lend) {
        g->lendLimit += more;
        if (hint_try_document(h, KIND_QUEUE, at, body, &t))
            hint_add(h, "lendLimit%s raised by %lld in queue %s", of_class(h, body->spec, class_),
                     (long long)more, name);
        return;
    }
    body->spec->lend = true;
    if (hint_try_document(h, KIND_QUEUE, at, body, &t))
        hint_add(h, "queue %s lends what it is guaranteed and does not use", name);
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

        if (r->reason != REASON_QUOTA_BURST && r->reason != REASON_QUOTA_GUARANTEED)
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

/* ---- the policy
 * ------------------------------------------------------------------------------------------------------------
 */
void hint_policy(struct hints *h)
{
    AUTO_ARENA a = NULL;
    struct placement_policy *body;
    struct tried t;
    int64_t more;

    if (h->pl->pending != REASON_POLICY_LIMIT)
        return;
    a = arena_create(0);
    body = object_edit_as(h->pl->policy, placement_policy, a);
    more = whole(h->p->policy_held[h->pl->i_policy] + asked(h)) - body->spec->maxGPUs;
    body->spec->maxGPUs += more;
    if (more > 0 && hint_try_document(h, KIND_PLACEMENT_POLICY, h->pl->i_policy, body, &t))
        hint_add(h, "maxGPUs raised by %lld in policy %s", (long long)more,
                 h->pl->policy->meta->name);
}
