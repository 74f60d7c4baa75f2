/* What is closed: the newest intervals as they were, older ones as sums. Bounded at every step:
 * what is too much goes, oldest first, to the next level, which tells less apart.
 *
 *   intervals   one allocation from, to           LIMIT_LEDGER_INTERVALS_MAX
 *   level 0     day and all of a line
 *   level 1     without the workload
 *   level 2     without user and experiment
 *   level 3     year, target, class, queue, project, cause; money instead of prices
 *   level 4     cause only, of GPUs and of CPUs: it cannot grow
 *
 * This file must never lose or double an amount: what is taken off one level is put on the next in
 * the same step. */
#include "controlplane/store/ledger/ledger_internal.h"

static const uint64_t level_max[LEDGER_LEVELS] = {
    LIMIT_LEDGER_TOTALS_MAX, LIMIT_LEDGER_TOTALS_MAX / 2, LIMIT_LEDGER_TOTALS_MAX / 4,
    LIMIT_LEDGER_TOTALS_MAX / 8, UINT64_MAX};

static uint64_t bits_of(double d)
{
    uint64_t v;

    memcpy(&v, &d, sizeof v);
    return v;
}

static uint64_t interval_hash(struct slice key, const struct interval_box *b)
{
    uint64_t h = hash_bytes(6, key.p, key.n);

    h = hash_u64(h, (uint64_t)b->from);
    h = hash_u64(h, (uint64_t)b->to);
    h = hash_u64(h, (uint64_t)b->milli);
    h = hash_u64(h, (uint64_t)b->epoch);
    return hash_bytes(h, b->line, b->n);
}

static uint64_t total_hash(unsigned level, struct slice key, const struct total_box *b)
{
    uint64_t h = hash_bytes(hash_u64(7, level), key.p, key.n);

    h = hash_u64(h, (uint64_t)b->amount);
    h = hash_u64(h, (uint64_t)(b->amount >> 64));
    return hash_u64(h, bits_of(b->money));
}

void ledger_put_interval(struct root *w, struct slice key, struct interval_box *b)
{
    use_interval(&w->ledger.use, b, 1);
    w->ledger.intervals = tree_put_own(w->ledger.intervals, key, b);
    w->digest += interval_hash(key, b);
    box_unref(b);
}

void ledger_put_total(struct root *w, unsigned level, struct slice key, struct total_box *b)
{
    struct tree **t = &w->ledger.totals[level];
    const struct total_box *old = tree_get(*t, key);

    if (old)
        w->digest -= total_hash(level, key, old);
    w->digest += total_hash(level, key, b);
    *t = tree_put_own(*t, key, b);
    box_unref(b);
}

/* ---- the oldest of a tree, copied out ---- */
struct front {
    char key[LEDGER_LINE_MAX];
    size_t n;
    const void *value;
};

static bool front_each(struct slice key, const void *value, void *arg)
{
    struct front *f = arg;

    INV(key.n <= sizeof f->key);
    memcpy(f->key, key.p, key.n);
    f->n = key.n;
    f->value = value;
    return false;
}

static void front_of(const struct tree *t, struct front *ret)
{
    ret->value = NULL;
    tree_scan(t, slice_make("", 0), front_each, ret);
    INV(ret->value);
}

/* ---- totals ---- */
static void level_bound(struct root *w, unsigned level)
{
    struct front f;
    struct ledger_line l;

    while (tree_count(w->ledger.totals[level]) > level_max[level]) {
        front_of(w->ledger.totals[level], &f);
        const struct total_box *b = f.value;
        struct slice key = slice_make(f.key, f.n);
        bool good = line_decode(key, &l);

        INV(good);
        l.amount = b->amount;
        l.money = level < LEDGER_YEARLY ? line_money(b->amount, l.price) : b->money;
        w->digest -= total_hash(level, key, b);
        w->ledger.totals[level] = tree_del_own(w->ledger.totals[level], key);
        if (level + 1 == LEDGER_YEARLY)
            use_day(&w->ledger.use, &l, -1); /* its day is known no more */
        if (l.day > w->ledger.folded[level + 1])
            w->ledger.folded[level + 1] = l.day;
        ledger_total_add(w, level + 1, &l);
    }
}

void ledger_total_add(struct root *w, unsigned level, const struct ledger_line *l)
{
    struct ledger_line folded = *l;
    char bytes[LEDGER_LINE_MAX];

    PRE(level < LEDGER_LEVELS);
    if (l->amount == 0)
        return;
    if (level == 0)
        use_day(&w->ledger.use, l, 1);
    line_fold(level, &folded);
    struct slice key = slice_make(bytes, line_encode(&folded, bytes));
    const struct total_box *old = tree_get(w->ledger.totals[level], key);
    struct total_box *b = box_new(sizeof *b, NULL);
    b->amount = l->amount + (old ? old->amount : 0);
    if (level >= LEDGER_YEARLY) {
        volatile double money = l->money + (old ? old->money : 0);
        b->money = money;
    }
    ledger_put_total(w, level, key, b);
    level_bound(w, level);
}

/* ---- intervals ---- */
void ledger_days(const struct ledger_line *l, int64_t milli, int64_t from, int64_t to,
                 ledger_sink sink, void *arg)
{
    struct ledger_line one = *l;

    while (from < to) {
        int64_t end = (from / LEDGER_DAY_MS + 1) * LEDGER_DAY_MS;

        end = end < to ? end : to;
        one.day = from / LEDGER_DAY_MS;
        one.amount = (ledger_amount)milli * (end - from);
        sink(arg, &one);
        from = end;
    }
}

static void to_totals(void *arg, const struct ledger_line *l)
{
    ledger_total_add(arg, 0, l);
}

static void intervals_bound(struct root *w)
{
    struct front f;
    struct ledger_line l;

    while (tree_count(w->ledger.intervals) > LIMIT_LEDGER_INTERVALS_MAX) {
        front_of(w->ledger.intervals, &f);
        const struct interval_box *b = f.value;
        struct slice key = slice_make(f.key, f.n);
        bool good = line_decode(slice_make(b->line, b->n), &l);

        INV(good);
        w->digest -= interval_hash(key, b);
        use_interval(&w->ledger.use, b, -1); /* the totals take it over */
        ledger_days(&l, b->milli, b->from, b->to, to_totals, w);
        w->ledger.intervals = tree_del_own(w->ledger.intervals, key);
    }
}

void ledger_interval_add(struct root *w, const struct ledger_line *l, int64_t epoch, int64_t milli,
                         int64_t from, int64_t to)
{
    struct ledger_line line = *l;
    char bytes[LEDGER_LINE_MAX];
    struct key key;

    if (from >= to || milli == 0)
        return;
    line.day = 0;
    size_t n = line_encode(&line, bytes);
    struct interval_box *b = box_new(sizeof *b + n, NULL);
    b->from = from;
    b->to = to;
    b->milli = milli;
    b->epoch = epoch;
    b->n = (uint32_t)n;
    memcpy(b->line, bytes, n);
    key_u64(&key, ++w->ledger.seq);
    ledger_put_interval(w, key_slice(&key), b);
    intervals_bound(w);
}
