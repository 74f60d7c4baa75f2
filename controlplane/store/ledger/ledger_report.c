/* Reports: the lines of whole UTC days, grouped by what was asked for. Sums of money are
 * compensated (Neumaier), so that a report's figures are within 4 × 2^-53 of the exact sum of its
 * lines' products, however many they are; each product is rounded twice. Reads one root, changes
 * nothing: any thread may make one. */
#include "controlplane/store/ledger/ledger_internal.h"

#include <stdio.h>
#include <stdlib.h>

struct money {
    double sum, rest;
};
struct group {
    struct slice key; /* texts that end in NUL, one per `by` */
    uint64_t hash;
    struct ledger_sum sum;
    struct money money, lost, idle;
};
struct report {
    const struct ledger_query *q;
    struct ledger_report *ret;
    struct arena *a;
    struct group **table; /* open addressing */
    size_t cap, n;
    struct group total;
    bool causes; /* its rows, or what it is of, are told apart by cause */
};

static void money_add(struct money *m, double x)
{
    volatile double sum = m->sum + x; /* volatile: the compiler keeps the order */
    volatile double low = m->sum >= x ? (m->sum - sum) + x : (x - sum) + m->sum;

    m->rest += low;
    m->sum = sum;
}

static const char *value_of(const struct ledger_line *l, enum ledger_by by, char day[32])
{
    switch (by) {
    case LEDGER_BY_QUEUE:
        return l->queue;
    case LEDGER_BY_PROJECT:
        return l->project;
    case LEDGER_BY_WORKLOAD:
        return l->workload;
    case LEDGER_BY_CAUSE:
        return ledger_cause_text(l->cause);
    case LEDGER_BY_CLASS:
        return l->class_;
    case LEDGER_BY_TARGET:
        return l->target;
    case LEDGER_BY_USER:
        return l->user;
    case LEDGER_BY_EXPERIMENT:
        return l->experiment;
    case LEDGER_BY_CAPACITY:
        return capacity_text(l->basis);
    default:
        time_print(l->day * LEDGER_DAY_MS, day);
        day[10] = 0;
        return day;
    }
}

static bool matches(const struct report *x, const struct ledger_line *l, bool account)
{
    char day[32];

    for (unsigned b = 0; b < LEDGER_BY_NR; b++) {
        if (!x->q->filter[b] || (account && b != LEDGER_BY_TARGET && b != LEDGER_BY_CLASS))
            continue;
        if (strcmp(value_of(l, (enum ledger_by)b, day), x->q->filter[b]) != 0)
            return false;
    }
    return true;
}

/* ---- groups ---- */
static void table_grow(struct report *x)
{
    struct group **old = x->table;
    size_t n = x->cap;

    x->cap = n ? 2 * n : 256;
    x->table = arena_array(x->a, struct group *, x->cap);
    for (size_t i = 0; i < n; i++) {
        if (!old[i])
            continue;
        size_t at = (size_t)old[i]->hash & (x->cap - 1);

        while (x->table[at])
            at = (at + 1) & (x->cap - 1);
        x->table[at] = old[i];
    }
}

static struct group *group_of(struct report *x, const struct ledger_line *l)
{
    char key[LEDGER_BY_NR * (LEDGER_TEXT_MAX + 1)], day[32];
    size_t n = 0;

    for (unsigned i = 0; i < x->q->n_by; i++) {
        const char *v = value_of(l, x->q->by[i], day);
        size_t m = strnlen(v, LEDGER_TEXT_MAX);

        memcpy(key + n, v, m);
        key[n + m] = 0;
        n += m + 1;
    }
    if (2 * (x->n + 1) > x->cap)
        table_grow(x);
    uint64_t h = hash_bytes(11, key, n);
    size_t at = (size_t)h & (x->cap - 1);
    while (x->table[at] && (x->table[at]->key.n != n || memcmp(x->table[at]->key.p, key, n) != 0))
        at = (at + 1) & (x->cap - 1);
    if (!x->table[at]) {
        x->table[at] = arena_new(x->a, struct group);
        x->table[at]->key = slice_make(n ? arena_memdup(x->a, key, n) : "", n);
        x->table[at]->hash = h;
        x->n++;
    }
    return x->table[at];
}

static void group_add(struct group *g, const struct ledger_line *l)
{
    if (l->cause == LEDGER_MEASURED) {
        g->sum.measured += l->amount;
        return;
    }
    if (l->cause == LEDGER_HELD_IDLE) {
        g->sum.idle += l->amount;
        money_add(&g->idle, l->money);
        return;
    }
    if (class_cpu(l->class_)) {
        g->sum.cpu += l->amount;
        return;
    }
    g->sum.amount += l->amount;
    money_add(&g->money, l->money);
    if (!l->priced)
        g->sum.unpriced += l->amount;
    if (ledger_cause_lost(l->cause)) {
        g->sum.lost += l->amount;
        money_add(&g->lost, l->money);
    }
}

static void report_line(const struct ledger_line *l, void *arg)
{
    struct report *x = arg;

    if (l->day < x->q->from_day || l->day >= x->q->to_day)
        return;
    if (matches(x, l, true) && !ledger_cause_part(l->cause)) {
        bool cpu = class_cpu(l->class_);

        if (l->cause == LEDGER_CAPACITY)
            *(cpu ? &x->ret->cpu_capacity : &x->ret->capacity) += l->amount;
        else if (l->cause == LEDGER_OVERHANG)
            *(cpu ? &x->ret->cpu_overhang : &x->ret->overhang) += l->amount;
        else
            *(cpu ? &x->ret->cpu_intervals : &x->ret->intervals) += l->amount;
    }
    if (ledger_cause_sum(l->cause) || !matches(x, l, false))
        return;
    if (!ledger_cause_part(l->cause) || !x->causes)
        group_add(group_of(x, l), l);
    group_add(&x->total, l);
}

/* ---- rows ---- */
static struct ledger_sum group_sum(const struct group *g)
{
    struct ledger_sum s = g->sum;

    s.money = g->money.sum + g->money.rest;
    s.money_lost = g->lost.sum + g->lost.rest;
    s.money_idle = g->idle.sum + g->idle.rest;
    return s;
}

static int by_key(const void *a, const void *b)
{
    const struct group *x = *(struct group *const *)a, *y = *(struct group *const *)b;
    int c = memcmp(x->key.p, y->key.p, x->key.n < y->key.n ? x->key.n : y->key.n);

    return c ? c : (x->key.n > y->key.n) - (x->key.n < y->key.n);
}

static int by_money(const void *a, const void *b)
{
    const struct group *x = *(struct group *const *)a, *y = *(struct group *const *)b;
    double p = x->money.sum + x->money.rest, q = y->money.sum + y->money.rest;

    if (p > q || p < q)
        return p > q ? -1 : 1;
    if (x->sum.amount != y->sum.amount)
        return x->sum.amount > y->sum.amount ? -1 : 1;
    if (x->sum.cpu != y->sum.cpu)
        return x->sum.cpu > y->sum.cpu ? -1 : 1;
    return by_key(a, b);
}

static void rows_make(struct report *x)
{
    struct group **all = arena_array(x->a, struct group *, x->n + 1);
    bool days = false;
    size_t n = 0;

    for (unsigned i = 0; i < x->q->n_by; i++)
        days = days || x->q->by[i] == LEDGER_BY_DAY;
    for (size_t i = 0; i < x->cap; i++)
        if (x->table[i])
            all[n++] = x->table[i];
    qsort(all, n, sizeof *all, days ? by_key : by_money);
    x->ret->n = n < x->q->rows_max ? n : x->q->rows_max;
    x->ret->omitted = n - x->ret->n;
    x->ret->rows = arena_array(x->a, struct ledger_row, x->ret->n + 1);
    for (size_t i = 0; i < x->ret->n; i++) {
        const char *p = all[i]->key.p;

        for (unsigned k = 0; k < x->q->n_by; k++) {
            x->ret->rows[i].key[k] = p;
            p += strlen(p) + 1;
        }
        x->ret->rows[i].sum = group_sum(all[i]);
    }
}

void ledger_report_make(const struct root *r, int64_t now_ms, const struct ledger_query *q,
                        struct arena *a, struct ledger_report *ret)
{
    struct report x = {.q = q, .ret = ret, .a = a};

    PRE(q->n_by <= LEDGER_BY_NR);
    *ret = (struct ledger_report){0};
    for (unsigned i = 0; i < q->n_by; i++)
        x.causes = x.causes || q->by[i] == LEDGER_BY_CAUSE;
    ledger_scan(r, now_ms, report_line, &x);
    rows_make(&x);
    ret->total = group_sum(&x.total);
    for (unsigned i = 0; i < 3; i++)
        ret->folded[i] = r->ledger.folded[i + 1];
}

void ledger_amount_print(ledger_amount v, char out[48])
{
    unsigned __int128 u = v < 0 ? -(unsigned __int128)v : (unsigned __int128)v;
    char digits[48];
    unsigned n = 0;

    do
        digits[n++] = (char)('0' + (int)(u % 10));
    while ((u /= 10) > 0);
    if (v < 0)
        digits[n++] = '-';
    for (unsigned i = 0; i < n; i++)
        out[i] = digits[n - 1 - i];
    out[n] = 0;
}
