/* The ledger in a snapshot, and what must hold of it. Cells, and the rates of accounts, follow from
 * the objects and are made again; the rest is written: windows of accounts, open allocations,
 * intervals, totals.
 *
 * This file must never take bytes for true: what no apply can have made is E_CORRUPT, not an
 * abort. */
#include "controlplane/store/ledger/ledger_internal.h"

enum { L_WHAT = 1, L_KEY, L_NUMBERS, L_LINE };
enum { W_HEAD = 1, W_ACCOUNT, W_OPEN, W_INTERVAL, W_TOTAL }; /* W_TOTAL + level */
#define NUMBERS_MAX (8 + 2 * LEDGER_SEGMENTS + 9 * LEDGER_KINDS)
#define LEDGER_BAD(err, what) err_set((err), E_CORRUPT, "snapshot: the ledger: %s", (what))

/* ---- numbers in a row, little-endian ---- */
struct numbers {
    uint64_t v[NUMBERS_MAX];
    unsigned n, at;
};

static void push(struct numbers *x, uint64_t v)
{
    INV(x->n < NUMBERS_MAX);
    x->v[x->n++] = v;
}

static uint64_t pull(struct numbers *x) /* 0 behind the end: told by `at` */
{
    return x->at++ < x->n ? x->v[x->at - 1] : 0;
}

static void push_double(struct numbers *x, double d)
{
    uint64_t v;

    memcpy(&v, &d, sizeof v);
    push(x, v);
}

static double pull_double(struct numbers *x)
{
    uint64_t v = pull(x);
    double d;

    memcpy(&d, &v, sizeof d);
    return d;
}

static void push_rates(struct numbers *x, const struct rates *r)
{
    push(x, (uint64_t)r->capacity);
    push(x, (uint64_t)r->over);
    push(x, (uint64_t)r->held);
    for (int k = 0; k < LEDGER_KINDS; k++) {
        push(x, (uint64_t)r->ok[k]);
        push(x, (uint64_t)r->sick[k]);
    }
}

static void pull_rates(struct numbers *x, struct rates *r)
{
    r->capacity = (int64_t)pull(x);
    r->over = (int64_t)pull(x);
    r->held = (int64_t)pull(x);
    for (int k = 0; k < LEDGER_KINDS; k++) {
        r->ok[k] = (int64_t)pull(x);
        r->sick[k] = (int64_t)pull(x);
    }
}

/* What others held: at the end, and only where they held anything. Older members know none. */
static void push_others(struct numbers *x, const struct rates *r)
{
    int64_t any = 0;

    for (int k = 0; k < LEDGER_KINDS; k++)
        any |= r->others[k];
    for (int k = 0; any && k < LEDGER_KINDS; k++)
        push(x, (uint64_t)r->others[k]);
}

static void pull_others(struct numbers *x, struct rates *r)
{
    for (int k = 0; x->at < x->n && k < LEDGER_KINDS; k++)
        r->others[k] = (int64_t)pull(x);
}

/* ---- writing ---- */
struct writer {
    const struct fields_out *to;
    struct buf *out;
    uint16_t tag;
    unsigned level;
};

static void emit(const struct writer *x, unsigned what, struct slice key, const struct numbers *n,
                 struct slice line)
{
    unsigned char bytes[8 * NUMBERS_MAX];
    size_t at = record_open(x->out, x->tag);

    for (size_t i = 0; i < n->n; i++)
        le_put_u64(bytes + 8 * i, n->v[i]);
    record_u64(x->out, L_WHAT, what);
    record_bytes(x->out, L_KEY, key.p, key.n);
    record_bytes(x->out, L_NUMBERS, bytes, (size_t)8 * n->n);
    if (line.n)
        record_bytes(x->out, L_LINE, line.p, line.n);
    record_close(x->out, at);
    field_whole(x->to);
}

static bool write_account(struct slice key, const void *value, void *arg)
{
    const struct account_box *a = value;
    struct numbers n = {.n = 0};

    push(&n, (uint64_t)a->from);
    push(&n, (uint64_t)a->since);
    push(&n, (uint64_t)a->until);
    push_rates(&n, &a->sum);
    for (int k = 0; k < LEDGER_KINDS; k++)
        push_double(&n, a->price[k]);
    push(&n, a->priced);
    push(&n, a->kind);
    push(&n, a->reach);
    push_others(&n, &a->sum);
    emit(arg, W_ACCOUNT, key, &n, slice_make("", 0));
    return true;
}

static bool write_open(struct slice key, const void *value, void *arg)
{
    const struct open_box *b = value;
    struct numbers n = {.n = 0};

    push(&n, (uint64_t)b->from);
    push(&n, (uint64_t)b->since);
    push(&n, b->state);
    push(&n, b->ran);
    push(&n, b->n);
    for (uint32_t i = 0; i < b->n; i++) {
        push(&n, (uint64_t)b->run[i].from);
        push(&n, (uint64_t)b->run[i].to);
    }
    emit(arg, W_OPEN, key, &n, slice_make("", 0));
    return true;
}

static bool write_interval(struct slice key, const void *value, void *arg)
{
    const struct interval_box *b = value;
    struct numbers n = {.n = 0};

    push(&n, (uint64_t)b->from);
    push(&n, (uint64_t)b->to);
    push(&n, (uint64_t)b->milli);
    push(&n, (uint64_t)b->epoch);
    emit(arg, W_INTERVAL, key, &n, slice_make(b->line, b->n));
    return true;
}

static bool write_total(struct slice key, const void *value, void *arg)
{
    const struct total_box *b = value;
    const struct writer *x = arg;
    struct numbers n = {.n = 0};

    push(&n, (uint64_t)b->amount);
    push(&n, (uint64_t)(b->amount >> 64));
    push_double(&n, b->money);
    emit(x, W_TOTAL + x->level, key, &n, slice_make("", 0));
    return true;
}

void ledger_write(const struct root *r, uint16_t tag, const struct fields_out *out)
{
    const struct ledger *l = &r->ledger;
    const struct slice start = slice_make("", 0);
    struct writer x = {out, out->buf, tag, 0};
    struct numbers n = {.n = 0};

    push(&n, l->seq);
    for (int i = 0; i < LEDGER_LEVELS; i++)
        push(&n, (uint64_t)l->folded[i]);
    emit(&x, W_HEAD, start, &n, start);
    tree_scan(l->accounts, start, write_account, &x);
    tree_scan(l->open, start, write_open, &x);
    tree_scan(l->intervals, start, write_interval, &x);
    for (x.level = 0; x.level < LEDGER_LEVELS; x.level++)
        tree_scan(l->totals[x.level], start, write_total, &x);
}

/* ---- reading ---- */
static bool read_account(struct root *w, struct slice key, struct numbers *n)
{
    const struct account_box *derived = tree_get(w->ledger.accounts, key);

    if (!derived || derived->since != LEDGER_NOT_BEGUN)
        return false;
    struct account_box *a = box_new(sizeof *a, NULL);
    a->now = derived->now;
    a->from = (int64_t)pull(n);
    a->since = (int64_t)pull(n);
    a->until = (int64_t)pull(n);
    pull_rates(n, &a->sum);
    for (int k = 0; k < LEDGER_KINDS; k++)
        a->price[k] = pull_double(n);
    a->priced = pull(n);
    a->kind = pull(n);
    a->reach = pull(n);
    pull_others(n, &a->sum);
    bool good = n->at == n->n && a->from >= 0 && a->since >= a->from && a->since <= w->time &&
                a->until > a->since && a->until - a->from <= LEDGER_DAY_MS &&
                a->kind < LEDGER_KINDS && a->priced < 1u << LEDGER_KINDS && a->reach < 2;
    for (int k = 0; k < LEDGER_KINDS; k++)
        good = good && a->price[k] >= 0 && a->price[k] < 1e300;
    if (good)
        account_store(w, key, a);
    else
        box_unref(a);
    return good;
}

/* Of one allocation, and of one sum; what is more is no ledger, and would overflow or take for ever
 * where it is divided by weeks. */
#define SPAN_MAX ((int64_t)1 << 42)
#define AMOUNT_MAX ((ledger_amount)1 << 80)

static bool read_open(struct root *w, struct slice key, struct numbers *n)
{
    if (n->n < 5 || n->v[4] > LEDGER_SEGMENTS || n->n != 5 + 2 * n->v[4] || key.n < 2 ||
        key.n > 65 || tree_get(w->ledger.open, key))
        return false;
    uint32_t runs = (uint32_t)n->v[4];
    struct open_box *b = box_new(sizeof *b + runs * sizeof b->run[0], NULL);
    b->from = (int64_t)pull(n);
    b->since = (int64_t)pull(n);
    b->state = pull(n);
    b->ran = pull(n);
    b->n = (uint32_t)pull(n);
    int64_t at = b->from;
    bool good = b->from >= 0 && b->since >= b->from && b->since <= w->time && b->ran < 2 &&
                (b->state == LEDGER_USEFUL || b->state == LEDGER_STARTING ||
                 b->state == LEDGER_UNKNOWN || b->state == LEDGER_MIGRATING);
    for (uint32_t i = 0; i < b->n; i++) {
        b->run[i] = (struct segment){(int64_t)pull(n), 0, LEDGER_USEFUL};
        b->run[i].to = (int64_t)pull(n);
        good = good && b->run[i].from >= at && b->run[i].to > b->run[i].from &&
               b->run[i].to - b->run[i].from < SPAN_MAX;
        at = b->run[i].to;
    }
    good = good && at <= b->since;
    if (good)
        open_store(w, key, b);
    else
        box_unref(b);
    return good;
}

static bool read_interval(struct root *w, struct slice key, struct numbers *n, struct slice line)
{
    struct ledger_line l;

    if (n->n != 4 || key.n != 8 || tree_get(w->ledger.intervals, key) || !line_decode(line, &l) ||
        l.day != 0)
        return false;
    struct interval_box *b = box_new(sizeof *b + line.n, NULL);
    b->from = (int64_t)pull(n);
    b->to = (int64_t)pull(n);
    b->milli = (int64_t)pull(n);
    b->epoch = (int64_t)pull(n);
    b->n = (uint32_t)line.n;
    memcpy(b->line, line.p, line.n);
    bool good = b->from >= 0 && b->to > b->from && b->to <= w->time && b->milli > 0 &&
                b->to - b->from < SPAN_MAX && b->milli < (int64_t)1 << 50;
    if (good)
        ledger_put_interval(w, key, b);
    else
        box_unref(b);
    return good;
}

static bool read_total(struct root *w, unsigned level, struct slice key, struct numbers *n)
{
    struct ledger_line l;

    if (n->n != 3 || tree_get(w->ledger.totals[level], key) || !line_decode(key, &l) ||
        l.day > w->time / LEDGER_DAY_MS)
        return false;
    struct total_box *b = box_new(sizeof *b, NULL);
    uint64_t low = pull(n);
    b->amount = (ledger_amount)((unsigned __int128)pull(n) << 64 | low);
    b->money = pull_double(n);
    bool good = b->amount > 0 && b->amount < AMOUNT_MAX && b->money >= 0 && b->money < 1e300;
    l.amount = b->amount;
    if (good && level < LEDGER_YEARLY)
        use_day(&w->ledger.use, &l, 1);
    if (good)
        ledger_put_total(w, level, key, b);
    else
        box_unref(b);
    return good;
}

static bool read_head(struct root *w, struct numbers *n)
{
    if (n->n != 1 + LEDGER_LEVELS)
        return false;
    w->ledger.seq = pull(n);
    for (int i = 0; i < LEDGER_LEVELS; i++)
        w->ledger.folded[i] = (int64_t)pull(n);
    return true;
}

int ledger_read(struct root *w, struct slice in, struct err *err)
{
    struct wire wire = {in.p, in.n};
    struct slice v, key = {"", 0}, line = {"", 0};
    struct numbers n = {.n = 0};
    uint64_t what = 0;
    uint16_t tag;
    int r;

    while ((r = record_next(&wire, &tag, &v)) > 0) {
        if (tag == L_WHAT)
            what = record_get_u64(v);
        else if (tag == L_KEY)
            key = v;
        else if (tag == L_LINE)
            line = v;
        else if (tag == L_NUMBERS && v.n % 8 == 0 && v.n / 8 <= NUMBERS_MAX)
            for (n.n = 0; n.n < v.n / 8; n.n++)
                n.v[n.n] = le_get_u64((const unsigned char *)v.p + (size_t)8 * n.n);
    }
    bool good = r == 0;
    if (good && what == W_HEAD)
        good = read_head(w, &n);
    else if (good && what == W_ACCOUNT)
        good = read_account(w, key, &n);
    else if (good && what == W_OPEN)
        good = read_open(w, key, &n);
    else if (good && what == W_INTERVAL)
        good = read_interval(w, key, &n, line);
    else if (good && what >= W_TOTAL && what < W_TOTAL + LEDGER_LEVELS)
        good = read_total(w, (unsigned)(what - W_TOTAL), key, &n);
    return good ? 0 : LEDGER_BAD(err, "a record cannot be read");
}

/* ---- after all records ---- */
struct loaded {
    struct root *w;
    bool had, bad;
    uint64_t held;
};

static bool loaded_account(struct slice key, const void *value, void *arg)
{
    struct loaded *x = arg;
    const struct account_box *a = value;

    if (a->since != LEDGER_NOT_BEGUN)
        return true;
    x->bad = x->had;
    if (x->had)
        return false;
    struct account_box *b = box_new(sizeof *b, NULL);
    b->now = a->now;
    account_begin(x->w, key, b, x->w->time);
    account_store(x->w, key, b);
    return true;
}

static bool loaded_hold(const struct object *o, void *arg)
{
    struct loaded *x = arg;
    struct key k;

    if (!ledger_hold(x->w, o))
        return true;
    x->held++;
    open_key(&k, o);
    const struct open_box *b = tree_get(x->w->ledger.open, key_slice(&k));
    if (!b && !x->had)
        hold_begin(x->w, o, x->w->time);
    else if (!b || (b->state == LEDGER_MIGRATING) != (o->kind->id == KIND_MIGRATION))
        x->bad = true;
    else
        use_open(&x->w->ledger.use, o, b, 1);
    return !x->bad;
}

int ledger_loaded(struct root *w, bool had, struct err *err)
{
    struct loaded x = {w, had, false, 0};
    struct tree *accounts = tree_ref(w->ledger.accounts);

    tree_scan(accounts, slice_make("", 0), loaded_account, &x);
    (void)tree_unref(accounts);
    root_scan(w, KIND_WORKLOAD, NULL, NULL, NULL, loaded_hold, &x);
    root_scan(w, KIND_MIGRATION, NULL, NULL, NULL, loaded_hold, &x);
    if (x.bad || x.held != tree_count(w->ledger.open))
        return LEDGER_BAD(err, "it does not fit what is held");
    return 0;
}

/* ---- the check ---- */
struct same {
    const struct ledger *other;
    const struct root *r;
};

static bool same_cell(struct slice key, const void *value, void *arg)
{
    const struct same *x = arg;
    const struct cell_box *a = value, *b = tree_get(x->other->cells, key);

    INV(b && memcmp(&a->there, &b->there, sizeof *a - offsetof(struct cell_box, there)) == 0);
    return true;
}

static bool same_account(struct slice key, const void *value, void *arg)
{
    const struct same *x = arg;
    const struct account_box *a = value, *b = tree_get(x->other->accounts, key);
    int64_t spare = 0;

    INV(b && memcmp(&a->now, &b->now, sizeof a->now) == 0);
    INV(a->since >= a->from && a->since <= x->r->time && a->until > a->since);
    for (int k = 0; k < LEDGER_KINDS; k++) {
        INV(a->now.ok[k] >= 0 && a->now.sick[k] >= 0 && a->now.others[k] >= 0);
        spare += a->now.ok[k] + a->now.sick[k] + a->now.others[k];
    }
    INV(spare + a->now.held == a->now.capacity + a->now.over && a->now.over >= 0);
    return true;
}

struct sums {
    ledger_amount all, ran, measured, idle;
};

static void sum_each(const struct ledger_line *l, void *arg)
{
    struct sums *sum = arg;

    INV(l->amount > 0 && l->money >= 0);
    if (l->cause == LEDGER_MEASURED)
        sum->measured += l->amount;
    else if (l->cause == LEDGER_HELD_IDLE)
        sum->idle += l->amount;
    else
        sum->all += ledger_cause_sum(l->cause) ? -l->amount : l->amount;
    if ((l->cause == LEDGER_USEFUL || ledger_cause_lost(l->cause)) && !class_cpu(l->class_))
        sum->ran += l->amount;
}

void ledger_check(const struct root *r, const struct root *fresh)
{
    struct same x = {&fresh->ledger, r};
    const struct slice start = slice_make("", 0);
    struct sums sum = {0};

    INV(tree_count(r->ledger.cells) == tree_count(fresh->ledger.cells) &&
        tree_count(r->ledger.accounts) == tree_count(fresh->ledger.accounts));
    tree_scan(r->ledger.cells, start, same_cell, &x);
    tree_scan(r->ledger.accounts, start, same_account, &x);
    INV(tree_count(r->ledger.intervals) <= LIMIT_LEDGER_INTERVALS_MAX &&
        tree_count(r->ledger.totals[0]) <= LIMIT_LEDGER_TOTALS_MAX);
    ledger_scan(r, r->time, sum_each, &sum); /* all that was is all that there was to be had */
    INV(sum.all == 0);
    INV(sum.idle <= sum.measured && sum.measured <= sum.ran); /* and these are parts of it */
    use_check(r);
}
