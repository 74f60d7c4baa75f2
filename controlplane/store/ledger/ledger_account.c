/* Accounts: capacity of one class on one target, and what of it nobody holds. Every change of a
 * rate closes what ran since the last one; a window ends at midnight UTC, and when a price begins
 * or ends to hold, so that a line has one day and one price.
 *
 * This file must never look at what an allocation books for itself: that both sides meet is what
 * the balance shows. */
#include "controlplane/store/ledger/ledger_internal.h"

/* ---- hash, store ---- */
static uint64_t rates_hash(uint64_t h, const struct rates *r)
{
    h = hash_u64(h, (uint64_t)r->capacity);
    h = hash_u64(h, (uint64_t)r->over);
    h = hash_u64(h, (uint64_t)r->held);
    for (int k = 0; k < LEDGER_KINDS; k++) {
        h = hash_u64(hash_u64(h, (uint64_t)r->ok[k]), (uint64_t)r->sick[k]);
        if (r->others[k]) /* older members, and what they wrote, know none */
            h = hash_u64(hash_u64(h, (uint64_t)k + 1), (uint64_t)r->others[k]);
    }
    return h;
}

static uint64_t account_hash(struct slice key, const struct account_box *a)
{
    uint64_t h = hash_bytes(8, key.p, key.n), price;

    if (a->since == LEDGER_NOT_BEGUN)
        return 0;
    h = hash_u64(hash_u64(hash_u64(h, (uint64_t)a->from), (uint64_t)a->since), (uint64_t)a->until);
    h = rates_hash(rates_hash(h, &a->now), &a->sum);
    for (int k = 0; k < LEDGER_KINDS; k++) {
        memcpy(&price, &a->price[k], sizeof price);
        h = hash_u64(h, price);
    }
    return hash_u64(hash_u64(hash_u64(h, a->priced), a->kind), a->reach);
}

void account_key(struct key *k, const char *target, const char *class_)
{
    key_pair(k, target, class_);
}

void account_store(struct root *w, struct slice key, struct account_box *b)
{
    const struct account_box *old = tree_get(w->ledger.accounts, key);

    if (old)
        w->digest -= account_hash(key, old);
    w->digest += account_hash(key, b);
    w->ledger.accounts = tree_put_own(w->ledger.accounts, key, b);
    box_unref(b);
}

static void account_drop(struct root *w, struct slice key)
{
    const struct account_box *old = tree_get(w->ledger.accounts, key);

    if (old)
        w->digest -= account_hash(key, old);
    w->ledger.accounts = tree_del_own(w->ledger.accounts, key);
}

static struct account_box *account_copy(const struct account_box *a)
{
    struct account_box *b = box_new(sizeof *b, NULL);

    if (a)
        memcpy((char *)b + sizeof b->box, (const char *)a + sizeof a->box,
               sizeof *a - sizeof a->box);
    return b;
}

/* ---- prices of what nobody holds ---- */
/* Own hardware may cost 0, which the field's bit tells. */
#define PLACE_OF(type, c, ...) PLACE_##c,
enum { SCHEMA_gpu_price(PLACE_OF) };
#undef PLACE_OF
#define GIVEN(g, c) ((g)->c > 0 || ((g)->has >> PLACE_##c & 1))

static const struct gpu_price *sheet_line(const struct price_sheet_spec *s, const char *region,
                                          const char *class_)
{
    const struct gpu_price *found = NULL;

    for (uint32_t i = 0; i < s->n_gpuHour; i++) { /* that of the region goes before that of all */
        const struct gpu_price *p = &s->gpuHour[i];

        if (strcmp(p->class_, class_) == 0 &&
            (*p->region ? strcmp(p->region, region) == 0 : !found))
            found = p;
    }
    return found;
}

/* The line that holds at a time, or NULL; *until: when that changes. */
static const struct gpu_price *line_at(const struct root *r, const struct target_spec *s,
                                       const char *class_, int64_t at, int64_t *until)
{
    const struct object *o =
        s && *s->priceSheet ? root_get(r, KIND_PRICE_SHEET, "", s->priceSheet) : NULL;
    const struct price_sheet_spec *sheet = o ? object_as(o, price_sheet)->spec : NULL;

    if (!sheet)
        return NULL;
    if (sheet->validFrom > at) {
        *until = sheet->validFrom < *until ? sheet->validFrom : *until;
        return NULL;
    }
    if (sheet->validUntil && sheet->validUntil <= at)
        return NULL;
    if (sheet->validUntil && sheet->validUntil < *until)
        *until = sheet->validUntil;
    return sheet_line(sheet, s->region, class_);
}

static const struct target_spec *target_of(const struct root *r, const char *target)
{
    const struct object *o = root_get(r, KIND_TARGET, "", target);

    return o ? object_as(o, target)->spec : NULL;
}

/* False: it is not told. */
static bool price_of(const struct gpu_price *p, enum capacity kind, double *ret)
{
    *ret = 0;
    switch (p ? kind : (enum capacity) - 1) {
    case CAPACITY_OWNED:
        *ret = p->amortised;
        return GIVEN(p, amortised);
    case CAPACITY_RESERVED:
        *ret = p->reserved;
        return GIVEN(p, reserved);
    case CAPACITY_SPOT:
        *ret = p->spot;
        return GIVEN(p, spot);
    case CAPACITY_ON_DEMAND:
        *ret = p->onDemand;
        return GIVEN(p, onDemand);
    default:
        return false;
    }
}

bool account_free(const struct root *r, const char *target, const char *class_, enum capacity kind)
{
    int64_t until = INT64_MAX;
    double price;

    return price_of(line_at(r, target_of(r, target), class_, r->time, &until), kind, &price);
}

static enum capacity default_kind(const struct target_spec *s)
{
    if (s && s->capacity && (unsigned)s->capacity < LEDGER_KINDS)
        return s->capacity;
    return s && s->tier == TIER_BURST ? CAPACITY_ON_DEMAND : CAPACITY_OWNED;
}

static bool in_reach(const struct root *r, const char *target)
{
    const struct object *o = root_get(r, KIND_TARGET, "", target);
    const struct target_status *s = o ? object_as(o, target)->status : NULL;

    for (uint32_t i = 0; s && i < s->n_conditions; i++)
        if (strcmp(s->conditions[i].type, "Connected") == 0)
            return s->conditions[i].status == COND_TRUE;
    return false;
}

/* ---- windows ---- */
static const char *class_of(struct slice key)
{
    return (const char *)key.p + strlen(key.p) + 1;
}

/* Keys of the tree end without a NUL: a copy that does. */
static struct slice key_text(struct key *k, struct slice key)
{
    INV(key.n < sizeof k->p);
    memcpy(k->p, key.p, key.n);
    k->p[key.n] = 0;
    k->n = key.n;
    return key_slice(k);
}

void account_begin(const struct root *r, struct slice key, struct account_box *a, int64_t t)
{
    struct key k;
    struct slice text = key_text(&k, key);
    const struct target_spec *s = target_of(r, text.p);
    int64_t until = (t / LEDGER_DAY_MS + 1) * LEDGER_DAY_MS;
    const struct gpu_price *line = line_at(r, s, class_of(text), t, &until);

    a->from = a->since = t;
    a->until = until;
    a->sum = (struct rates){0};
    a->kind = (uint64_t)default_kind(s);
    a->reach = in_reach(r, text.p);
    a->priced = 0;
    for (unsigned i = 0; i < LEDGER_KINDS; i++)
        if (price_of(line, (enum capacity)(i ? i : a->kind), &a->price[i]))
            a->priced |= 1u << i;
}

void account_flush(const char *target, const char *class_, const struct account_box *a,
                   ledger_sink sink, void *arg)
{
    struct ledger_line l = {.day = a->from / LEDGER_DAY_MS,
                            .cause = LEDGER_CAPACITY,
                            .target = target,
                            .class_ = class_,
                            .amount = a->sum.capacity};

    sink(arg, &l);
    l.cause = LEDGER_OVERHANG;
    l.amount = a->sum.over;
    sink(arg, &l);
    for (unsigned i = 0; i < LEDGER_KINDS; i++) {
        l.basis = (enum capacity)(i ? i : a->kind);
        l.priced = a->priced >> i & 1;
        l.price = a->price[i];
        l.cause = LEDGER_IDLE;
        l.amount = a->reach ? a->sum.ok[i] : 0;
        sink(arg, &l);
        l.cause = LEDGER_UNAVAILABLE;
        l.amount = a->sum.sick[i] + (a->reach ? 0 : a->sum.ok[i]);
        sink(arg, &l);
        l.cause = LEDGER_OTHERS;
        l.amount = a->sum.others[i];
        l.priced = true; /* nobody here pays for it */
        l.price = 0;
        sink(arg, &l);
    }
}

static void rates_add(struct rates *to, const struct rates *r, int64_t times)
{
    to->capacity += r->capacity * times;
    to->over += r->over * times;
    to->held += r->held * times;
    for (int i = 0; i < LEDGER_KINDS; i++) {
        to->ok[i] += r->ok[i] * times;
        to->sick[i] += r->sick[i] * times;
        to->others[i] += r->others[i] * times;
    }
}

void account_advance(const struct root *r, struct slice key, struct account_box *a, int64_t t,
                     ledger_sink sink, void *arg)
{
    struct key k;

    while (a->since < t) {
        int64_t end = a->until < t ? a->until : t;

        rates_add(&a->sum, &a->now, end - a->since);
        a->since = end;
        if (end < a->until)
            break;
        struct slice text = key_text(&k, key);
        account_flush(text.p, class_of(text), a, sink, arg);
        account_begin(r, key, a, end);
    }
}

/* ---- changes ---- */
static void to_totals(void *arg, const struct ledger_line *l)
{
    ledger_total_add(arg, 0, l);
}

static bool rates_none(const struct rates *r)
{
    static const struct rates none;

    return memcmp(r, &none, sizeof none) == 0;
}

void account_change(struct root *w, const char *target, const char *class_,
                    const struct rates *delta, bool load)
{
    struct key k;

    if (rates_none(delta))
        return;
    account_key(&k, target, class_);
    struct slice key = key_slice(&k);
    const struct account_box *old = tree_get(w->ledger.accounts, key);
    struct account_box *b = account_copy(old);
    if (load) {
        b->since = LEDGER_NOT_BEGUN;
        rates_add(&b->now, delta, 1);
        account_store(w, key, b);
        return;
    }
    if (old)
        account_advance(w, key, b, w->time, to_totals, w);
    else
        account_begin(w, key, b, w->time);
    rates_add(&b->now, delta, 1);
    if (!rates_none(&b->now)) {
        account_store(w, key, b);
        return;
    }
    account_flush(target, class_, b, to_totals, w);
    account_drop(w, key);
    box_unref(b);
}

/* ---- a target's reach, a sheet's prices ---- */
struct reprice {
    struct root *w;
    const char *target, *sheet; /* one of them */
    bool begin;
};

static bool reprice_mine(const struct reprice *x, const char *target)
{
    const struct target_spec *s = x->sheet ? target_of(x->w, target) : NULL;

    return x->target ? strcmp(target, x->target) == 0 : s && strcmp(s->priceSheet, x->sheet) == 0;
}

static bool reprice_each(struct slice key, const void *value, void *arg)
{
    struct reprice *x = arg;
    struct key k;
    struct slice text = key_text(&k, key);

    if (!reprice_mine(x, text.p))
        return x->sheet != NULL; /* the scan began at the target */
    struct account_box *b = account_copy(value);
    account_advance(x->w, text, b, x->w->time, to_totals, x->w);
    if (x->begin) {
        account_flush(text.p, class_of(text), b, to_totals, x->w);
        account_begin(x->w, text, b, x->w->time);
    }
    account_store(x->w, text, b);
    return true;
}

static bool target_same(const struct object *a, const struct object *b)
{
    if (!a || !b)
        return false;
    const struct target *x = object_as(a, target), *y = object_as(b, target);
    const struct condition *c = NULL, *d = NULL;

    for (uint32_t i = 0; x->status && i < x->status->n_conditions; i++)
        if (strcmp(x->status->conditions[i].type, "Connected") == 0)
            c = &x->status->conditions[i];
    for (uint32_t i = 0; y->status && i < y->status->n_conditions; i++)
        if (strcmp(y->status->conditions[i].type, "Connected") == 0)
            d = &y->status->conditions[i];
    return (c ? c->status : 0) == (d ? d->status : 0) && x->spec->capacity == y->spec->capacity &&
           x->spec->tier == y->spec->tier && strcmp(x->spec->region, y->spec->region) == 0 &&
           strcmp(x->spec->priceSheet, y->spec->priceSheet) == 0;
}

void accounts_reprice(struct root *w, const struct object *before, const struct object *after,
                      bool begin)
{
    const struct object *o = after ? after : before;
    bool target = o->kind->id == KIND_TARGET;
    struct reprice x = {w, target ? o->meta->name : NULL, target ? NULL : o->meta->name, begin};
    struct key k;

    if (target && target_same(before, after))
        return;
    struct tree *now = tree_ref(w->ledger.accounts);
    account_key(&k, target ? o->meta->name : "", "");
    tree_scan(now, target ? key_slice(&k) : slice_make("", 0), reprice_each, &x);
    (void)tree_unref(now);
}
