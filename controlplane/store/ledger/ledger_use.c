/* What each queue has used, for fair share: GPU-hours that halve every 7 days. It follows from the
 * closed intervals, the totals by day and the open allocations, and is kept as sums, so that a read
 * costs a few cells a queue, however long the ledger is.
 *
 *   'd', week, queue    closed: Σ 1/1000 GPU × ms × weight of its day
 *   'o', week, queue    open since that week: Σ 1/1000 GPU, and Σ of it × weighted(since)
 *
 * A day's weight within its week is 2^(day/7). One week is one half-life, so a read needs a power
 * of two for each week and one factor for all. weighted(t) is the integral of the weights from the
 * week's begin to t: an open allocation has had 1/1000 GPU × (weighted(now) - weighted(since)). All
 * sums are integers, so neither the order of changes nor a snapshot alters them.
 *
 * The sums are derived: they must never be in the digest or in a snapshot. */
#include "controlplane/store/ledger/ledger_internal.h"

#include <math.h>

#define WEEK_DAYS 7
#define WEEK_MS (WEEK_DAYS * LEDGER_DAY_MS)
#define WEIGHT_BITS 20
#define HEAD 9 /* of a key, ahead of the queue */

static const int64_t weights[WEEK_DAYS] = {1048576, 1157722, 1278228, 1411279,
                                           1558178, 1720368, 1899440}; /* 2^(20 + day/7) */

/* ---- cells ---- */
static void cell_key(struct key *k, char what, int64_t week, const char *queue)
{
    size_t n = strlen(queue);

    _Static_assert(HEAD + LEDGER_TEXT_MAX <= sizeof k->p, "it fits");
    n = n < LEDGER_TEXT_MAX ? n : LEDGER_TEXT_MAX;
    key_u64(k, (uint64_t)week);
    memmove(k->p + 1, k->p, 8);
    k->p[0] = what;
    memcpy(k->p + HEAD, queue, n);
    k->n = HEAD + n;
}

static void cell_add(struct tree **t, char what, int64_t week, const char *queue,
                     ledger_amount weighted, int64_t milli)
{
    struct key k;

    cell_key(&k, what, week, queue);
    const struct use_box *old = tree_get(*t, key_slice(&k));
    struct use_box *b = box_new(sizeof *b, NULL);
    b->weighted = weighted + (old ? old->weighted : 0);
    b->milli = milli + (old ? old->milli : 0);
    INV(b->weighted >= 0 && b->milli >= 0);
    if (b->weighted == 0 && b->milli == 0)
        *t = tree_del_own(*t, key_slice(&k));
    else
        *t = tree_put_own(*t, key_slice(&k), b);
    box_unref(b);
}

/* From the begin of the week to `at` ms into it. */
static int64_t weighted(int64_t at)
{
    int64_t sum = 0;

    for (int d = 0; d < WEEK_DAYS && at > 0; d++, at -= LEDGER_DAY_MS)
        sum += weights[d] * (at < LEDGER_DAY_MS ? at : LEDGER_DAY_MS);
    return sum;
}

static void span_add(struct tree **t, const char *queue, ledger_amount milli, int64_t from,
                     int64_t to)
{
    while (from < to) {
        int64_t week = from / WEEK_MS, begin = week * WEEK_MS;
        int64_t end = begin + WEEK_MS < to ? begin + WEEK_MS : to;

        cell_add(t, 'd', week, queue, milli * (weighted(end - begin) - weighted(from - begin)), 0);
        from = end;
    }
}

/* ---- what changes it ---- */
/* A destination that a move holds beside the place that it leaves is nobody's use: quota counts a
 * workload that moves once, too. */
static bool counts(const struct ledger_line *l)
{
    return !ledger_cause_sum(l->cause) && !ledger_cause_part(l->cause) &&
           l->cause != LEDGER_MIGRATING && l->queue && *l->queue && !class_cpu(l->class_);
}

void use_interval(struct tree **t, const struct interval_box *b, int sign)
{
    struct ledger_line l;
    bool good = line_decode(slice_make(b->line, b->n), &l);

    INV(good);
    if (counts(&l))
        span_add(t, l.queue, sign * (ledger_amount)b->milli, b->from, b->to);
}

void use_day(struct tree **t, const struct ledger_line *l, int sign)
{
    if (counts(l))
        cell_add(t, 'd', l->day / WEEK_DAYS, l->queue,
                 sign * l->amount * weights[l->day % WEEK_DAYS], 0);
}

void use_open(struct tree **t, const struct object *o, const struct open_box *b, int sign)
{
    const struct workload_status *s =
        o->kind->id == KIND_WORKLOAD ? object_as(o, workload)->status : NULL;

    if (!s || !s->placement)
        return;
    const char *queue = s->queue;
    int64_t milli = sign * hold_milli(s->placement), week = b->since / WEEK_MS;
    if (!*queue || !milli)
        return;
    for (uint32_t i = 0; i < b->n; i++)
        span_add(t, queue, milli, b->run[i].from, b->run[i].to);
    cell_add(t, 'o', week, queue, (ledger_amount)milli * weighted(b->since - week * WEEK_MS),
             milli);
}

/* ---- as it stands at a time ---- */
struct use_scan {
    int64_t now, week, first;
    double left[LEDGER_USE_WEEKS + 1]; /* of a unit of that many weeks ago */
    void (*each)(const char *queue, double gpu_hours, void *arg);
    void *arg;
    char what;
};

/* From a day's middle to the hour of now. Without exp2, whose last bit is the library's. */
static void scan_factors(struct use_scan *x)
{
    const double hour = 0.9958826236582974,
                 middle = 1.0507566386532194; /* 2^(-1/168), 2^(12/168) */
    volatile double left = middle;

    for (int64_t h = (x->now - x->week * WEEK_MS) / 3600000; h > 0; h--)
        left = left * hour;
    for (int i = 0; i <= LEDGER_USE_WEEKS; i++)
        x->left[i] = ldexp(left, -WEIGHT_BITS - i);
}

static double cell_hours(const struct use_scan *x, int64_t week, const struct use_box *b)
{
    volatile double sum = 0;

    for (int64_t at = week > x->first ? week : x->first; at <= x->week; at++) {
        int64_t end = at < x->week ? WEEK_MS : x->now - at * WEEK_MS;
        ledger_amount had = x->what == 'd' ? b->weighted
                                           : (ledger_amount)b->milli * weighted(end) -
                                                 (at == week ? b->weighted : 0);
        volatile double hours = (double)had / LEDGER_GPU_HOUR * x->left[x->week - at];

        sum = sum + hours;
        if (x->what == 'd')
            break;
    }
    return sum;
}

static bool scan_cell(struct slice key, const void *value, void *arg)
{
    const struct use_scan *x = arg;
    const unsigned char *p = key.p;
    char queue[LEDGER_TEXT_MAX + 1];
    int64_t week = 0;

    if (p[0] != (unsigned char)x->what)
        return false;
    for (int i = 1; i < HEAD; i++)
        week = week * 256 + p[i];
    INV(key.n - HEAD < sizeof queue);
    memcpy(queue, p + HEAD, key.n - HEAD);
    queue[key.n - HEAD] = 0;
    x->each(queue, cell_hours(x, week, value), x->arg);
    return true;
}

void ledger_use(const struct root *r, int64_t now_ms,
                void (*each)(const char *queue, double gpu_hours, void *arg), void *arg)
{
    struct use_scan x = {.now = now_ms > r->time ? now_ms : r->time, .each = each, .arg = arg};
    struct key k;

    x.week = x.now / WEEK_MS;
    x.first = x.week > LEDGER_USE_WEEKS ? x.week - LEDGER_USE_WEEKS : 0;
    scan_factors(&x);
    x.what = 'd';
    cell_key(&k, x.what, x.first, "");
    tree_scan(r->ledger.use, key_slice(&k), scan_cell, &x);
    x.what = 'o'; /* whatever week it began in: it goes on */
    tree_scan(r->ledger.use, slice_make("o", 1), scan_cell, &x);
}

/* ---- the check: made anew, it is the same ---- */
struct use_made {
    const struct root *r;
    struct tree *t;
};

static bool made_total(struct slice key, const void *value, void *arg)
{
    struct use_made *x = arg;
    struct ledger_line l;
    bool good = line_decode(key, &l);

    INV(good);
    l.amount = ((const struct total_box *)value)->amount;
    use_day(&x->t, &l, 1);
    return true;
}

static bool made_interval(struct slice key, const void *value, void *arg)
{
    struct use_made *x = arg;

    (void)key;
    use_interval(&x->t, value, 1);
    return true;
}

static bool made_open(const struct object *o, void *arg)
{
    struct use_made *x = arg;
    struct key k;

    open_key(&k, o);
    const struct open_box *b = tree_get(x->r->ledger.open, key_slice(&k));
    if (b)
        use_open(&x->t, o, b, 1);
    return true;
}

static bool same_cell(struct slice key, const void *value, void *arg)
{
    const struct use_box *a = value, *b = tree_get(arg, key);

    INV(b && a->weighted == b->weighted && a->milli == b->milli);
    return true;
}

void use_check(const struct root *r)
{
    struct use_made x = {r, tree_create(&box_ops)};
    const struct slice start = slice_make("", 0);

    for (unsigned i = 0; i < LEDGER_YEARLY; i++)
        tree_scan(r->ledger.totals[i], start, made_total, &x);
    tree_scan(r->ledger.intervals, start, made_interval, &x);
    root_scan(r, KIND_WORKLOAD, NULL, NULL, NULL, made_open, &x);
    INV(tree_count(x.t) == tree_count(r->ledger.use));
    tree_scan(r->ledger.use, start, same_cell, x.t);
    (void)tree_unref(x.t);
}
