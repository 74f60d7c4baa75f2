/* Is there an order of one object's operations that keeps to real time and explains every answer?
 *
 * Wing and Gong's search: calls and returns in a list, in the order of their moments. Any call
 * ahead of the first return may be the next to have happened; a return that is met means that its
 * operation must have happened by now. Lowe's improvement: a set of operations that have happened,
 * with the state that they led to, is tried once. What has no answer has no return: it may be
 * taken, and is taken only where nothing else goes on. What reads and is explained is taken at
 * once, as no later choice can need it untaken.
 *
 * A set is remembered by 128 bits of hash. Its memory is bounded: beyond it the answer is
 * "undecided", never "good". */
#include "tests/support/history/history_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct state {
    bool exists;
    uint64_t value;
    uint64_t rv;    /* 0: not known (its write had no answer) */
    uint64_t floor; /* the highest that is known */
};
struct entry { /* a call, or a return */
    struct entry *prev, *next;
    struct entry *match; /* of a call: its return, or NULL; of a return: its call */
    const struct history_op *op;
    uint64_t at;
    uint64_t hash[2];
    bool is_return;
};
struct taken {
    struct entry *call;
    struct state before;
    bool unknowns, only; /* `only`: no other choice is worth a try */
};
struct memory { /* open addressing; 0,0 is free */
    uint64_t (*slots)[2];
    size_t n, cap, max;
};
struct search {
    struct entry head, *all;
    struct state state;
    uint64_t hash[2];
    struct taken *stack;
    size_t depth, left; /* left: with an answer, not taken yet */
    struct memory seen;
    bool unknowns; /* looks at those without an answer now */
    size_t deepest;
    const struct history_op *stuck;
    struct state stuck_state;
};

static uint64_t mix(uint64_t x)
{
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* ---- the object ---- */
static bool version_new(struct state *s, uint64_t rv)
{
    if (rv && rv <= s->floor)
        return false;
    s->rv = rv;
    s->floor = rv ? rv : s->floor;
    return true;
}
/* Is it at rv? What is not known becomes known. */
static bool version_is(struct state *s, uint64_t rv)
{
    if (!rv)
        return true;
    return s->rv ? s->rv == rv : version_new(s, rv);
}
static bool written(struct state *s, const struct history_op *o)
{
    s->exists = true;
    s->value = o->value;
    return version_new(s, o->rv);
}
static bool step(struct state *s, const struct history_op *o)
{
    bool happened = o->outcome == HISTORY_OK || o->outcome == HISTORY_UNKNOWN;

    if (o->outcome == HISTORY_EXISTS)
        return s->exists;
    if (o->outcome == HISTORY_ABSENT)
        return !s->exists;
    if (o->outcome == HISTORY_CONFLICT)
        return s->exists && o->expect && s->rv != o->expect;
    switch (o->kind) {
    case HISTORY_CREATE:
        return happened && !s->exists && written(s, o);
    case HISTORY_GET:
        return s->exists && s->value == o->value && version_is(s, o->rv);
    case HISTORY_UPDATE:
        return happened && s->exists && version_is(s, o->expect) && written(s, o);
    case HISTORY_DELETE:
        if (!s->exists || !version_is(s, o->expect))
            return false;
        s->exists = false;
        s->value = 0;
        return version_new(s, o->rv);
    }
    return false;
}

/* ---- what was tried ---- */
static void memory_put(struct memory *m, const uint64_t key[2], bool *ret_new)
{
    size_t i = key[0] & (m->cap - 1);

    while (m->slots[i][0] || m->slots[i][1]) {
        if (m->slots[i][0] == key[0] && m->slots[i][1] == key[1]) {
            *ret_new = false;
            return;
        }
        i = (i + 1) & (m->cap - 1);
    }
    m->slots[i][0] = key[0];
    m->slots[i][1] = key[1];
    m->n++;
    *ret_new = true;
}
static void memory_grow(struct memory *m)
{
    struct memory more = {.cap = m->cap ? m->cap * 2 : 1024};
    bool fresh;

    more.slots = mem_zalloc(more.cap * sizeof *more.slots);
    for (size_t i = 0; i < m->cap; i++)
        if (m->slots[i][0] || m->slots[i][1])
            memory_put(&more, m->slots[i], &fresh);
    more.max = m->max;
    mem_free(m->slots);
    *m = more;
}
static bool is_new(struct search *s, const uint64_t set[2], const struct state *st)
{
    uint64_t key[2];
    bool fresh;

    for (unsigned i = 0; i < 2; i++)
        key[i] = mix(set[i] ^
                     mix(st->value + i * 77 + mix(st->rv * 2 + st->exists + mix(st->floor + i))));
    key[0] |= 1;
    if ((s->seen.n + 1) * 2 > s->seen.cap)
        memory_grow(&s->seen);
    memory_put(&s->seen, key, &fresh);
    return fresh;
}

/* ---- the list ---- */
static void lift(struct entry *e)
{
    e->prev->next = e->next;
    if (e->next)
        e->next->prev = e->prev;
}
static void unlift(struct entry *e)
{
    e->prev->next = e;
    if (e->next)
        e->next->prev = e;
}
static void take(struct search *s, struct entry *call, const struct state *after, bool only)
{
    s->stack[s->depth++] = (struct taken){call, s->state, s->unknowns, only};
    s->state = *after;
    s->hash[0] ^= call->hash[0];
    s->hash[1] ^= call->hash[1];
    lift(call);
    if (call->match) {
        lift(call->match);
        s->left--;
    }
    s->unknowns = false;
}
/* Takes the last one back; NULL: there is none left with another choice behind it. */
static struct entry *back(struct search *s)
{
    while (s->depth) {
        struct taken *t = &s->stack[--s->depth];
        struct entry *call = t->call;

        if (call->match) {
            unlift(call->match);
            s->left++;
        }
        unlift(call);
        s->hash[0] ^= call->hash[0];
        s->hash[1] ^= call->hash[1];
        s->state = t->before;
        s->unknowns = t->unknowns;
        if (!t->only)
            return call;
    }
    return NULL;
}
static bool same(const struct state *a, const struct state *b)
{
    return a->exists == b->exists && a->value == b->value && a->rv == b->rv && a->floor == b->floor;
}
/* May this call be next? Then it is taken. */
static bool try_call(struct search *s, struct entry *e)
{
    struct state after = s->state;
    uint64_t set[2] = {s->hash[0] ^ e->hash[0], s->hash[1] ^ e->hash[1]};
    bool changes;

    if ((e->match == NULL) != s->unknowns || !step(&after, e->op))
        return false;
    changes = !same(&after, &s->state);
    if (!is_new(s, set, &after))
        return false;
    take(s, e, &after, e->match && !changes);
    return true;
}
static void note_stuck(struct search *s, const struct entry *ret)
{
    if (s->stuck && s->depth < s->deepest)
        return;
    s->deepest = s->depth;
    s->stuck = ret->op;
    s->stuck_state = s->state;
}
static enum history_verdict run(struct search *s)
{
    struct entry *e = s->head.next;

    while (s->left) {
        if (s->seen.n > s->seen.max)
            return HISTORY_UNDECIDED;
        INV(e);
        if (!e->is_return) {
            e = try_call(s, e) ? s->head.next : e->next;
            continue;
        }
        if (!s->unknowns) { /* then somebody without an answer must have done something */
            s->unknowns = true;
            e = s->head.next;
            continue;
        }
        note_stuck(s, e);
        e = back(s);
        if (!e)
            return HISTORY_BAD;
        e = e->next;
    }
    return HISTORY_GOOD;
}

/* ---- one object ---- */
static int by_moment(const void *a, const void *b)
{
    const struct entry *const *x = a, *const *y = b;

    if ((*x)->at != (*y)->at)
        return (*x)->at < (*y)->at ? -1 : 1;
    /* At one moment: calls first, so that what touches is concurrent. */
    return (int)(*x)->is_return - (int)(*y)->is_return;
}
static void list_make(struct search *s, const struct history_op *ops, size_t n)
{
    struct entry **order = mem_zalloc((2 * n + 1) * sizeof(struct entry *));
    size_t k = 0;

    s->all = mem_zalloc((2 * n + 1) * sizeof *s->all);
    for (size_t i = 0; i < n; i++) {
        struct entry *call = &s->all[2 * i], *ret = &s->all[2 * i + 1];

        *call = (struct entry){.op = &ops[i], .at = ops[i].called};
        call->hash[0] = mix(2 * i + 1);
        call->hash[1] = mix(call->hash[0] + i);
        order[k++] = call;
        if (ops[i].outcome == HISTORY_UNKNOWN)
            continue;
        *ret =
            (struct entry){.op = &ops[i], .at = ops[i].returned, .is_return = true, .match = call};
        call->match = ret;
        order[k++] = ret;
        s->left++;
    }
    qsort(order, k, sizeof(struct entry *), by_moment);
    s->head.next = NULL;
    for (size_t i = 0; i < k; i++) {
        order[i]->prev = i ? order[i - 1] : &s->head;
        order[i]->prev->next = order[i];
        order[i]->next = NULL;
    }
    mem_free(order);
}
static void tell_bad(const struct history *h, const struct search *s, size_t n,
                     struct history_report *ret)
{
    AUTO_BUF op;

    buf_init(&op, 1024);
    history_print_op(h, s->stuck, &op);
    (void)history_bad(ret, HISTORY_BAD, "linear",
                      "no order explains %s; at best, after %zu of %zu, the object was %s value "
                      "%" PRIu64 " rv %" PRIu64,
                      op.p, s->deepest, n, s->stuck_state.exists ? "there," : "absent,",
                      s->stuck_state.value, s->stuck_state.rv);
}
void history_linear(const struct history *h, struct history_op *ops, size_t n,
                    size_t configurations, struct history_report *ret)
{
    struct search s = {.seen = {.max = configurations}};
    enum history_verdict v;

    s.stack = mem_zalloc((n + 1) * sizeof *s.stack);
    list_make(&s, ops, n);
    v = run(&s);
    ret->configurations = s.seen.n > ret->configurations ? s.seen.n : ret->configurations;
    if (v == HISTORY_BAD)
        tell_bad(h, &s, n, ret);
    else if (v == HISTORY_UNDECIDED)
        (void)history_bad(ret, v, "linear",
                          "object %s: more than %zu configurations of %zu operations",
                          history_key_name(h, ops[0].key), configurations, n);
    mem_free(s.seen.slots);
    mem_free(s.stack);
    mem_free(s.all);
}
