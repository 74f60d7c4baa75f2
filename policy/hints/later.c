/* Hints that change only the time, or the place in the queue: when a step of the order or a window
 * opens, and which priority class would take room from others. */
#include "policy/hints/hints_internal.h"

#include <stdlib.h>
#include <string.h>

#define TIMES_TRIED 4
#define HOLDS_MAX 5000 /* a plan of preemption looks at all of them */
#define CLASSES_TRIED 2

/* ---- time ---- */
static int cmp_ms(const void *pa, const void *pb)
{
    const int64_t *a = pa, *b = pb;

    return (*a > *b) - (*a < *b);
}

static const char *minute(struct hints *h, int64_t ms)
{
    char at[32];

    time_print(ms, at); /* YYYY-MM-DDTHH:MM:SSZ */
    return arena_printf(h->a, "%.10s %.5s UTC", at, at + 11);
}

static void wait_for_step(struct hints *h)
{
    AUTO_ARENA a = arena_create(0);
    int64_t *v = arena_array(a, int64_t, h->pl->n_rows + 1);
    uint32_t n = 0, tried = 0;

    for (uint32_t i = 0; i < h->pl->n_rows; i++) {
        if (h->pl->rows[i].reason == REASON_SPILL_WAIT && h->pl->rows[i].x > 0)
            v[n++] = (h->rq->now_ms + h->pl->rows[i].x + 59999) / 60000 * 60000;
    }
    if (n > 1)
        qsort(v, n, sizeof(*v), cmp_ms);
    for (uint32_t i = 0; i < n && tried < TIMES_TRIED; i++) {
        struct edit e = {.at_ms = v[i], .step = 60000};

        if (i && v[i] == v[i - 1])
            continue;
        tried++;
        if (hint_tell(h, &e,
                      arena_printf(h->a, "wait until %s: the policy's order opens the next step",
                                   minute(h, v[i]))))
            return;
    }
}

/* Until what a target refused lately may be asked for again. */
static void wait_for_pause(struct hints *h)
{
    int64_t first = 0;

    for (uint32_t i = 0; i < h->pl->n_rows; i++) {
        const struct row *r = &h->pl->rows[i];

        if ((r->reason == REASON_TARGET_PAUSED || r->reason == REASON_RUN_DENIED ||
             r->reason == REASON_RUN_NOT_BEGUN) &&
            (!first || r->x < first))
            first = r->x;
    }
    first = (first + 59999) / 60000 * 60000;
    struct edit e = {.at_ms = first, .step = 60000};
    if (first)
        (void)hint_tell(h, &e,
                        arena_printf(h->a, "wait until %s: a target that refused is asked again",
                                     minute(h, first)));
}

static void wait_for_window(struct hints *h)
{
    struct edit e = {.at_ms = h->pl->opens_ms, .step = 60000};

    if (h->pl->pending == REASON_WINDOW && e.at_ms)
        (void)hint_tell(
            h, &e,
            arena_printf(h->a, "wait until %s: the policy's window allows it", minute(h, e.at_ms)));
}

void hint_wait(struct hints *h)
{
    wait_for_step(h);
    wait_for_pause(h);
    wait_for_window(h);
}

/* ---- priority ---- */
static int cmp_class(const void *pa, const void *pb) /* lowest value first */
{
    const struct object *const *a = pa, *const *b = pb;
    int64_t x = object_as(*a, priority_class)->spec->value;
    int64_t y = object_as(*b, priority_class)->spec->value;

    return x != y ? (x > y) - (x < y) : strcmp((*a)->meta->name, (*b)->meta->name);
}

static struct preempt_plan *plan_as(struct hints *h, const char *class_or_null, struct arena *a)
{
    struct place_request rq = *h->rq;
    struct workload *w = object_edit_as(rq.workload, workload, a);
    struct preempt_plan *plan = NULL;
    struct object *o = NULL;
    struct err err;

    if (class_or_null)
        w->spec->priorityClassName = class_or_null;
    if (object_make_within(rq.workload->kind, w, OBJECT_MADE_MAX_BYTES, &o, NULL) < 0)
        return NULL;
    rq.workload = o;
    if (policy_preempt(h->p, &rq, a, &plan, &err) < 0)
        plan = NULL;
    (void)object_unref(o);
    return plan;
}

void hint_priority(struct hints *h)
{
    const struct docs *d = &h->p->docs[KIND_PRIORITY_CLASS];
    AUTO_ARENA a = NULL;
    const struct object **v;
    uint32_t tried = 0;

    if (!hint_any_cure(h, CURE_ROOM) || h->p->n_holds > HOLDS_MAX || !d->n)
        return;
    a = arena_create(0);
    if (plan_as(h, NULL, a)) /* it comes by itself */
        return;
    v = arena_array(a, const struct object *, d->n);
    memcpy(v, d->v, d->n * sizeof(*v));
    qsort(v, d->n, sizeof(*v), cmp_class);
    for (uint32_t i = 0; i < d->n && tried < CLASSES_TRIED; i++) {
        const struct priority_class_spec *s = object_as(v[i], priority_class)->spec;
        struct preempt_plan *plan;

        if (s->value <= pool_priority(h->p, h->spec))
            continue;
        tried++;
        plan = plan_as(h, v[i]->meta->name, a);
        if (!plan)
            continue;
        hint_add(h, "priority class %s: it would preempt %zu, and %.0f GPU-seconds would be lost",
                 v[i]->meta->name, plan->n, plan->lost_gpu_s);
        return;
    }
}
