/* Hints: the smallest single changes that would admit a waiting workload. The decision's rows say
 * what is worth a try, and every hint was tried by the code that places. A hint names a number only
 * when one less was tried, too, or is impossible. Work is bounded: HINT_TRIES decisions.
 *
 * Where no single change is enough, two may be (pairs.c).
 *
 * A try of a queue or a policy puts a changed copy of the document in its place for the time of one
 * decision. Limits are read from the document each time, so no account and no table has to be built
 * anew. */
#include "policy/hints/hints_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Do the same reasons stand in the way of the same candidates? */
static bool alike(const struct place *a, const struct place *b)
{
    if (a->pending != b->pending || a->n_rows != b->n_rows)
        return false;
    for (uint32_t i = 0; i < a->n_rows; i++) {
        const struct row *x = &a->rows[i], *y = &b->rows[i];

        if (x->target != y->target || x->group != y->group || x->reason != y->reason)
            return false;
    }
    return true;
}

bool hint_try(struct hints *h, const struct object *workload, int64_t now_ms, struct tried *ret)
{
    AUTO_ARENA a = NULL;
    struct place_request rq = *h->rq;
    struct place *pl;
    struct err err;

    *ret = (struct tried){0};
    h->nearer = false;
    if (!h->tries)
        return false;
    h->tries--;
    a = arena_create(0);
    pl = arena_new(a, struct place);
    rq.workload = workload;
    rq.now_ms = now_ms;
    if (place_look(pl, h->p, &rq, a, &err) < 0)
        return false;
    if (!pl->chosen) {
        h->nearer = !alike(h->pl, pl);
        return false;
    }
    *ret = (struct tried){
        .placed = true,
        .priced = pl->chosen->priced && pl->need.mode != NEED_CPU,
        .target = pl->p->t.targets[pl->chosen->target].name,
        .price = pl->chosen->price,
        .useful = pl->chosen->useful,
    };
    if (ret->priced)
        ret->currency = pl->p->t.groups[pl->chosen->group].sheet->currency;
    return true;
}

bool hint_try_edit(struct hints *h, const struct edit *e, struct tried *ret)
{
    struct done d;
    bool r;

    h->nearer = false;
    if (!hint_do(h, e, &d))
        return false;
    r = hint_try(h, h->rq->workload, h->rq->now_ms, ret);
    hint_undo(h, &d);
    if (r)
        h->last = *e;
    return r;
}

int64_t hint_most(struct hints *h, struct edit *e, int64_t low, int64_t high, int64_t guess,
                  struct tried *ret)
{
    int64_t none = low - 1;
    struct tried t;

    if (low > high)
        return none;
    guess = guess < low ? low : guess > high ? high : guess;
    /* From the guess one up: mostly that is the answer. */
    e->n = guess;
    if (hint_try_edit(h, e, ret)) {
        low = guess;
        if (low == high)
            return low;
        e->n = low + 1;
        if (!hint_try_edit(h, e, &t))
            return h->tries ? low : none;
        low++;
        *ret = t;
    } else {
        high = guess - 1;
        e->n = low;
        if (low > high || !hint_try_edit(h, e, ret))
            return none;
    }
    while (low < high && h->tries) {
        e->n = high - (high - low) / 2;
        if (hint_try_edit(h, e, &t)) {
            low = e->n;
            *ret = t;
        } else {
            high = e->n - 1;
        }
    }
    return h->tries ? low : none; /* not searched to the end: it may be more than is needed */
}

void hint_add(struct hints *h, const char *format, ...)
{
    char text[HINT_TEXT_MAX];
    va_list args;

    if (h->n >= h->max)
        return;
    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    for (uint32_t i = 0; i < h->n; i++) {
        if (strcmp(h->texts[i], text) == 0)
            return;
    }
    if (h->seconds)
        h->seconds[h->n] = h->last;
    h->texts[h->n++] = arena_strdup(h->a, text);
}

void hint_first(struct hints *h, const struct edit *e, const char *words)
{
    if (!h->firsts || !h->nearer || h->n_firsts == FIRSTS_MAX)
        return;
    for (uint32_t i = 0; i < h->n_firsts; i++) {
        if (strcmp(h->firsts[i].words, words) == 0)
            return;
    }
    h->firsts[h->n_firsts++] = (struct first){*e, words};
}

const char *hint_where(struct hints *h, const struct tried *t)
{
    bool dollar = t->currency && (!t->currency[0] || strcmp(t->currency, "USD") == 0);

    if (!t->priced)
        return arena_printf(h->a, "(%s)", t->target);
    return arena_printf(h->a, "(%s, %s%.2f%s%s/h)", t->target, dollar ? "$" : "", t->price,
                        dollar ? "" : " ", dollar ? "" : t->currency);
}

bool hint_tell(struct hints *h, const struct edit *e, const char *words)
{
    struct tried t;

    if (!hint_try_edit(h, e, &t)) {
        hint_first(h, e, words);
        return false;
    }
    hint_add(h, "%s %s", words, hint_where(h, &t));
    return true;
}

bool hint_any(const struct hints *h, enum reason r)
{
    for (uint32_t i = 0; i < h->pl->n_rows; i++) {
        if (h->pl->rows[i].reason == r)
            return true;
    }
    return h->pl->pending == r;
}

bool hint_any_cure(const struct hints *h, enum reason_cure cure)
{
    for (uint32_t i = 0; i < h->pl->n_rows; i++) {
        if (reason_cure(h->pl->rows[i].reason) == cure)
            return true;
    }
    return reason_cure(h->pl->pending) == cure;
}

int policy_hints(const struct pool *p, const struct place_request *rq,
                 const struct decision_spec *d, size_t max, struct arena *a, const char ***ret,
                 uint32_t *ret_n, struct err *err)
{
    static void (*const kinds[])(struct hints *) = {
        hint_classes, hint_targets, hint_devices, hint_topology, hint_quota,
        hint_policy,  hint_prices,  hint_ranks,   hint_workers,  hint_gpus,
        hint_host,    hint_wait,    hint_priority};
    AUTO_ARENA scratch = arena_create(0);
    struct hints h = {.p = pool_settle(p),
                      .rq = rq,
                      .spec = object_as(rq->workload, workload)->spec,
                      .a = a,
                      .tries = HINT_TRIES,
                      .max = max};
    int r;

    *ret = NULL;
    *ret_n = 0;
    /* One that has room made for it waits for that. */
    if ((d && d->epoch) || pool_nominated(p, rq->workload->meta->uid))
        return 0;
    h.pl = arena_new(scratch, struct place);
    r = place_look(h.pl, h.p, rq, scratch, err);
    if (r < 0 || h.pl->chosen || reason_is_hopeless(h.pl->pending))
        return r;
    h.texts = arena_array(a, const char *, max + 1);
    h.firsts = arena_array(scratch, struct first, FIRSTS_MAX);
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds) && h.n < max; i++)
        kinds[i](&h);
    /* Without tries left a single one may have been missed. */
    if (!h.n && h.tries && max)
        hint_pairs(&h, kinds, sizeof(kinds) / sizeof(*kinds) - 1); /* without priority */
    *ret = h.texts;
    *ret_n = h.n;
    return 0;
}
