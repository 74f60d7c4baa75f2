/* Is resourceVersion the order of all changes? Whatever anybody was told of a change (by the answer
 * of its write, a read, a list, a watch) is one fact: this resourceVersion, this object, this
 * value. Facts must not contradict each other, must keep to real time, and lists and watches must
 * agree with them.
 *
 * What has no answer and was never seen is no fact: of it nothing is demanded. */
#include "tests/support/history/history_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct fact {
    uint64_t rv, value; /* value 0: deleted */
    uint32_t key;
};
struct facts {
    struct fact *f;
    size_t n, cap;
};
/* A moment at which it was known that the state has come to rv; or one from which on something must
 * be beyond what was known. */
struct moment {
    uint64_t at, rv;
    bool demand, change; /* change: rv must be beyond; else it may be as much */
    uint64_t called;
    const char *what;
};

static void fact_add(struct facts *x, uint64_t rv, uint32_t key, uint64_t value)
{
    if (!rv)
        return;
    HISTORY_GROW(x->f, x->n, x->cap);
    x->f[x->n++] = (struct fact){rv, value, key};
}
static int by_rv(const void *a, const void *b)
{
    const struct fact *x = a, *y = b;

    if (x->rv != y->rv)
        return x->rv < y->rv ? -1 : 1;
    return x->value < y->value ? -1 : x->value > y->value;
}
static int by_value(const void *a, const void *b)
{
    const struct fact *x = a, *y = b;

    if (x->value != y->value)
        return x->value < y->value ? -1 : 1;
    return x->rv < y->rv ? -1 : x->rv > y->rv;
}
static void facts_gather(const struct history *h, struct facts *x)
{
    for (size_t i = 0; i < h->n_ops; i++) {
        const struct history_op *o = &h->ops[i];
        if (o->outcome == HISTORY_OK)
            fact_add(x, o->rv, o->key, o->kind == HISTORY_DELETE ? 0 : o->value);
    }
    for (size_t i = 0; i < h->n_lists; i++)
        for (size_t k = 0; k < h->lists[i].n; k++)
            fact_add(x, h->lists[i].items[k].rv, h->lists[i].items[k].key,
                     h->lists[i].items[k].value);
    for (size_t i = 0; i < h->n_events; i++)
        fact_add(x, h->events[i].rv, h->events[i].key, h->events[i].value);
}
/* One of each, in the order of rv. */
static void facts_settle(const struct history *h, struct facts *x, struct history_report *ret)
{
    size_t n = 0;

    if (!x->n)
        return;
    qsort(x->f, x->n, sizeof *x->f, by_value);
    for (size_t i = 1; i < x->n; i++)
        if (x->f[i].value && x->f[i].value == x->f[i - 1].value && x->f[i].rv != x->f[i - 1].rv)
            (void)history_bad(
                ret, HISTORY_BAD, "order",
                "value %" PRIu64 " of %s was written at rv %" PRIu64 " and again at %" PRIu64,
                x->f[i].value, history_key_name(h, x->f[i].key), x->f[i - 1].rv, x->f[i].rv);
    qsort(x->f, x->n, sizeof *x->f, by_rv);
    for (size_t i = 0; i < x->n; i++) {
        const struct fact *was = n ? &x->f[n - 1] : NULL, *is = &x->f[i];

        if (!was || was->rv != is->rv)
            x->f[n++] = *is;
        else if (was->key != is->key || was->value != is->value)
            (void)history_bad(ret, HISTORY_BAD, "order",
                              "rv %" PRIu64 " is %s = %" PRIu64 " and also %s = %" PRIu64, is->rv,
                              history_key_name(h, was->key), was->value,
                              history_key_name(h, is->key), is->value);
    }
    x->n = n;
}

/* ---- real time ---- */
static int by_moment(const void *a, const void *b)
{
    const struct moment *x = a, *y = b;

    if (x->at != y->at)
        return x->at < y->at ? -1 : 1;
    return (int)y->demand - (int)x->demand; /* what touches is concurrent */
}
struct moments {
    struct moment *m;
    size_t n, cap;
};
static void moment_add(struct moments *x, uint64_t called, uint64_t returned, uint64_t rv,
                       bool demands, bool change, const char *what)
{
    if (!rv)
        return;
    HISTORY_GROW(x->m, x->n, x->cap);
    x->m[x->n++] = (struct moment){.at = returned, .rv = rv};
    if (!demands)
        return;
    HISTORY_GROW(x->m, x->n, x->cap);
    x->m[x->n++] = (struct moment){
        .at = called, .rv = rv, .demand = true, .change = change, .called = called, .what = what};
}
static void check_real_time(const struct history *h, struct history_report *ret)
{
    struct moments x = {0};
    uint64_t known = 0;

    for (size_t i = 0; i < h->n_ops; i++) {
        const struct history_op *o = &h->ops[i];
        if (o->outcome == HISTORY_OK)
            moment_add(&x, o->called, o->returned, o->rv, o->kind != HISTORY_GET, true,
                       history_key_name(h, o->key));
    }
    for (size_t i = 0; i < h->n_lists; i++)
        moment_add(&x, h->lists[i].called, h->lists[i].returned, h->lists[i].rv, !h->lists[i].stale,
                   false, "a list");
    for (size_t i = 0; i < h->n_events; i++)
        moment_add(&x, 0, h->events[i].at, h->events[i].rv, false, false, "");
    if (x.n)
        qsort(x.m, x.n, sizeof *x.m, by_moment);
    for (size_t i = 0; i < x.n; i++) {
        const struct moment *m = &x.m[i];

        if (!m->demand)
            known = m->rv > known ? m->rv : known;
        else if (m->rv < known || (m->change && m->rv == known))
            (void)history_bad(
                ret, HISTORY_BAD, "order",
                "%s %s at rv %" PRIu64 ", called at %" PRIu64 " when somebody knew of rv %" PRIu64,
                m->what, m->change ? "changed" : "was taken", m->rv, m->called, known);
    }
    mem_free(x.m);
}

/* ---- lists ---- */
static bool unknown_delete(const struct history *h, uint32_t key)
{
    for (size_t i = 0; i < h->n_ops; i++)
        if (h->ops[i].key == key && h->ops[i].kind == HISTORY_DELETE &&
            (h->ops[i].outcome == HISTORY_UNKNOWN ||
             (h->ops[i].outcome == HISTORY_OK && !h->ops[i].rv)))
            return true;
    return false;
}
static const struct history_item *item_of(const struct history_list *l, uint32_t key)
{
    for (size_t i = 0; i < l->n; i++)
        if (l->items[i].key == key)
            return &l->items[i];
    return NULL;
}
/* The list against the newest fact of each object at its rv. */
static void check_list(const struct history *h, const struct facts *x, const struct history_list *l,
                       struct history_report *ret)
{
    const struct fact **newest = mem_zalloc((h->n_keys + 1) * sizeof(struct fact *));

    for (size_t i = 0; i < x->n && x->f[i].rv <= l->rv; i++)
        newest[x->f[i].key] = &x->f[i];
    for (uint32_t key = 0; key < h->n_keys; key++) {
        const struct history_item *it = item_of(l, key);
        const struct fact *f = newest[key];

        if (it && it->rv > l->rv)
            (void)history_bad(ret, HISTORY_BAD, "order",
                              "a list at rv %" PRIu64 " has %s of rv %" PRIu64, l->rv,
                              history_key_name(h, key), it->rv);
        else if (it && f && f->rv != it->rv)
            (void)history_bad(ret, HISTORY_BAD, "order",
                              "a list at rv %" PRIu64 " has %s of rv %" PRIu64
                              "; it changed at rv %" PRIu64,
                              l->rv, history_key_name(h, key), it->rv, f->rv);
        else if (!it && f && f->value && !unknown_delete(h, key))
            (void)history_bad(ret, HISTORY_BAD, "order",
                              "a list at rv %" PRIu64 " lacks %s, which is there since rv %" PRIu64,
                              l->rv, history_key_name(h, key), f->rv);
    }
    mem_free(newest);
}

/* ---- watches ---- */
/* Events came in this order, each the next fact. A fact beyond the last event may be on its way. */
static void check_watch(const struct history *h, const struct facts *x, uint32_t watch,
                        struct history_report *ret)
{
    uint64_t last = h->watches[watch].from;
    size_t at = 0;

    for (size_t i = 0; i < h->n_events; i++) {
        const struct history_event *e = &h->events[i];

        if (e->watch != watch)
            continue;
        if (e->rv <= last) {
            (void)history_bad(ret, HISTORY_BAD, "watches",
                              "watch %u of client %u tells rv %" PRIu64 " after %" PRIu64, watch,
                              h->watches[watch].client, e->rv, last);
            return;
        }
        while (at < x->n && x->f[at].rv <= last)
            at++;
        if (at < x->n && x->f[at].rv < e->rv) {
            (void)history_bad(ret, HISTORY_BAD, "watches",
                              "watch %u of client %u leaves out rv %" PRIu64 " (%s = %" PRIu64
                              ") between %" PRIu64 " and %" PRIu64,
                              watch, h->watches[watch].client, x->f[at].rv,
                              history_key_name(h, x->f[at].key), x->f[at].value, last, e->rv);
            return;
        }
        last = e->rv;
    }
}

void history_order(const struct history *h, struct history_report *ret)
{
    struct facts x = {0};

    facts_gather(h, &x);
    facts_settle(h, &x, ret);
    check_real_time(h, ret);
    for (size_t i = 0; i < h->n_lists && ret->verdict != HISTORY_BAD; i++)
        if (h->lists[i].rv)
            check_list(h, &x, &h->lists[i], ret);
    for (uint32_t i = 0; i < h->n_watches && ret->verdict != HISTORY_BAD; i++)
        check_watch(h, &x, i, ret);
    mem_free(x.f);
}
