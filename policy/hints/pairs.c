/* Hints of two changes, for a workload that no single one admits: the first removes the present
 * obstacle, and the second is a single hint as it would be then. Both together were tried, and each
 * alone: neither is enough, and neither is the first with a number one step smaller. Bounded:
 * PAIR_TRIES decisions in all. Priority is no second change, because decisions do not measure the
 * cost of a plan of preemption. */
#include "policy/hints/hints_internal.h"

#include <string.h>

#define PAIR_TRIES 160
#define FIRST_TRIES 32 /* at least, with one first change */
#define PAIRS_TOLD 3
#define SECONDS_MAX 2 /* with one first change */

/* ---- a change, done ---- */
static bool document_do(struct hints *h, const struct edit *e, struct done *d, struct arena *a)
{
    struct docs *v = &h->p->docs[e->kind];
    void *body = object_edit(v->v[e->at], a);
    struct err err;

    e->limit(e, body);
    if (object_make_within(v->v[e->at]->kind, body, OBJECT_MADE_MAX_BYTES, &d->made, NULL) < 0)
        return false;
    d->kind = e->kind;
    d->at = e->at;
    d->doc_was = v->v[e->at];
    v->v[e->at] = d->made;
    h->p->changes++;
    return e->kind != KIND_QUEUE || policy_queues_check(v->v, v->n, &err) == 0;
}

bool hint_do(struct hints *h, const struct edit *e, struct done *d)
{
    AUTO_ARENA a = arena_create(0);

    *d = (struct done){.rq = *h->rq, .rq_was = h->rq, .spec_was = h->spec};
    if (e->at_ms) {
        d->rq.now_ms = e->at_ms;
    } else if (e->limit) {
        if (!document_do(h, e, d, a)) {
            hint_undo(h, d);
            return false;
        }
    } else {
        struct workload *w = object_edit_as(h->rq->workload, workload, a);

        e->apply(e, w->spec, a);
        if (object_make_within(h->rq->workload->kind, w, OBJECT_MADE_MAX_BYTES, &d->made, NULL) < 0)
            return false;
        d->rq.workload = d->made;
        h->spec = object_as(d->made, workload)->spec;
    }
    h->rq = &d->rq;
    return true;
}

void hint_undo(struct hints *h, struct done *d)
{
    if (d->doc_was) {
        h->p->docs[d->kind].v[d->at] = d->doc_was;
        h->p->changes++;
    }
    h->rq = d->rq_was;
    h->spec = d->spec_was;
    (void)object_unref(d->made);
}

/* ---- two of them ---- */
static bool starts_with(const char *text, const char *words)
{
    return strncmp(text, words, strlen(words)) == 0;
}

struct pair {
    const struct first *first;
    const char *second;
};

/* The same two the other way round? */
static bool told(const struct pair *v, uint32_t n, const struct first *f, const char *second)
{
    for (uint32_t i = 0; i < n; i++) {
        if (starts_with(second, v[i].first->words) && starts_with(v[i].second, f->words))
            return true;
    }
    return false;
}

static bool both(struct hints *h, const struct edit *first, const struct edit *second)
{
    struct done d;
    struct tried t;
    bool r;

    if (!hint_do(h, first, &d))
        return false;
    r = hint_try_edit(h, second, &t);
    hint_undo(h, &d);
    return r;
}

/* "maxGPUs raised by 12 in policy p", by 8 */
static const char *raised_by(struct hints *h, const char *words, int64_t n)
{
    static const char by[] = "raised by ";
    const char *at = strstr(words, by);

    INV(at);
    at += sizeof(by) - 1;
    return arena_printf(h->a, "%.*s%lld%s", (int)(at - words), words, (long long)n,
                        at + strspn(at, "0123456789"));
}

/* A limit must be raised for what is asked for once the second is done: mostly less. */
static bool raise_less(struct hints *h, struct first *f, const struct edit *second)
{
    int64_t low = 1, high = f->edit.n - 1; /* high is enough */

    while (low < high) {
        f->edit.n = low + (high - low) / 2;
        if (both(h, &f->edit, second))
            high = f->edit.n;
        else
            low = f->edit.n + 1;
    }
    f->edit.n = high;
    f->words = raised_by(h, f->words, high);
    return h->tries > 0; /* else: not searched to the end */
}

/* Is each needed? That the first is not enough alone is known. Made as small as it can be where it
 * is a limit. */
static bool needed(struct hints *h, struct first *f, const struct edit *second)
{
    struct edit less = f->edit;
    struct tried t;

    if (hint_try_edit(h, second, &t) || h->tries < 2)
        return false;
    if (less.step == 0 && less.step_x == 0)
        return true;
    less.n -= less.step;
    less.x -= less.step_x;
    if (less.at_ms)
        less.at_ms -= less.step;
    if (!both(h, &less, second))
        return true;
    return less.limit && raise_less(h, f, second);
}

/* The single hints, once the first is done. */
static void seconds_find(struct hints *h, const struct first *f,
                         void (*const *kinds)(struct hints *), size_t n_kinds)
{
    AUTO_ARENA scratch = arena_create(0);
    struct place *was = h->pl;
    struct done d;
    struct err err;

    if (!hint_do(h, &f->edit, &d))
        return;
    h->pl = arena_new(scratch, struct place);
    if (place_look(h->pl, h->p, h->rq, scratch, &err) == 0 && !h->pl->chosen) {
        for (size_t i = 0; i < n_kinds && h->n < h->max; i++)
            kinds[i](h);
    }
    h->pl = was;
    hint_undo(h, &d);
}

void hint_pairs(struct hints *h, void (*const *kinds)(struct hints *), size_t n_kinds)
{
    struct pair pairs[PAIRS_TOLD];
    uint32_t n_pairs = 0;
    size_t most = h->max < PAIRS_TOLD ? h->max : PAIRS_TOLD;
    unsigned left = PAIR_TRIES;

    for (uint32_t i = 0; i < h->n_firsts && n_pairs < most && left; i++) {
        const struct first *f = &h->firsts[i];
        const char *texts[SECONDS_MAX];
        struct edit edits[SECONDS_MAX];
        struct hints g = *h;
        unsigned share = left / (h->n_firsts - i);

        g.texts = texts;
        g.seconds = edits;
        g.firsts = NULL;
        g.n = 0;
        g.max = SECONDS_MAX;
        share = share < FIRST_TRIES ? FIRST_TRIES : share;
        g.tries = share = share < left ? share : left;
        seconds_find(&g, f, kinds, n_kinds);
        left -= share - g.tries;
        h->tries = left;
        for (uint32_t k = 0; k < g.n && n_pairs < most; k++) {
            struct first least = *f;

            if (told(pairs, n_pairs, f, texts[k]) || !needed(h, &least, &edits[k]))
                continue;
            pairs[n_pairs++] = (struct pair){f, texts[k]};
            hint_add(h, "two changes: %s, and %s", least.words, texts[k]);
        }
        left = h->tries;
    }
}
