/* The plain replay's lines: texts as numbers, amounts by line, and how they compare with the
 * ledger's. */
#include "tests/support/ledger/ledger_model_internal.h"

#include "api/base/hash.h"

/* ---- texts as numbers ---- */
static uint64_t mix(uint64_t h, const void *p, size_t n)
{
    h = hash_more(h, p, n);
    return h ^ h >> 29;
}

static int text_id(struct texts *t, const char *s)
{
    if (2 * (t->n + 1) > t->size) {
        t->size = t->size ? 2 * t->size : 1024;
        mem_free(t->table);
        t->table = mem_zalloc((size_t)t->size * sizeof *t->table);
        for (int i = 0; i < t->n; i++) {
            size_t at = mix(1, t->v[i], strlen(t->v[i])) % (size_t)t->size;

            while (t->table[at])
                at = (at + 1) % (size_t)t->size;
            t->table[at] = i + 1;
        }
    }
    size_t at = mix(1, s, strlen(s)) % (size_t)t->size;
    for (; t->table[at]; at = (at + 1) % (size_t)t->size)
        if (strcmp(t->v[t->table[at] - 1], s) == 0)
            return t->table[at] - 1;
    if (t->n == t->cap) {
        t->cap = t->cap ? 2 * t->cap : 64;
        t->v = mem_realloc(t->v, (size_t)t->cap * sizeof *t->v);
    }
    t->v[t->n] = mem_strdup(s);
    t->table[at] = ++t->n;
    return t->n - 1;
}

/* ---- lines → amounts ---- */
struct cell *book_at(struct book *b, const struct line_key *k)
{
    if (3 * (b->n + 1) > 2 * b->cap) {
        struct book old = *b;

        b->cap = old.cap ? 2 * old.cap : 4096;
        b->v = mem_zalloc(b->cap * sizeof *b->v);
        b->n = 0;
        for (size_t i = 0; i < old.cap; i++)
            if (old.v[i].used)
                *book_at(b, &old.v[i].key) = old.v[i];
        mem_free(old.v);
    }
    size_t at = mix(2, k, sizeof *k) % b->cap;
    while (b->v[at].used && memcmp(&b->v[at].key, k, sizeof *k) != 0)
        at = (at + 1) % b->cap;
    if (!b->v[at].used) {
        b->v[at].used = true;
        b->v[at].key = *k;
        b->n++;
    }
    return &b->v[at];
}

int model_id(struct ledger_model *m, const char *s)
{
    int id = text_id(&m->texts, s);

    if (m->by_text <= id) {
        int was = m->by_text, n = m->by_text = 2 * id + 64;

        m->targets = mem_realloc(m->targets, (size_t)n * sizeof *m->targets);
        m->sheets = mem_realloc(m->sheets, (size_t)n * sizeof *m->sheets);
        m->owners = mem_realloc(m->owners, (size_t)n * sizeof *m->owners);
        m->moves = mem_realloc(m->moves, (size_t)n * sizeof *m->moves);
        for (int i = was; i < n; i++) {
            m->targets[i] = m->sheets[i] = NULL;
            m->owners[i] = (struct owner){0};
            m->moves[i] = (struct move){0};
        }
    }
    return id;
}

int model_name(struct ledger_model *m, const char *ns, const char *name)
{
    char full[600];

    (void)snprintf(full, sizeof full, "%s/%s", ns, name);
    return model_id(m, full);
}

void book_days(struct book *b, struct line_key k, int64_t milli, int64_t from, int64_t to)
{
    for (int64_t t = from; t < to;) {
        int64_t midnight = t - t % LEDGER_DAY_MS + LEDGER_DAY_MS,
                end = midnight < to ? midnight : to;

        k.day = t / LEDGER_DAY_MS;
        struct cell *c = book_at(b, &k);
        c->amount += (ledger_amount)milli * (end - t);
        t = end;
    }
}

/* ---- comparing ---- */
struct compare {
    struct ledger_model *m;
    unsigned level;
    struct book theirs;
    double money[LEDGER_CAUSE_NR];
    bool others;
};

static void fold(unsigned level, struct line_key *k)
{
    if (level >= 1)
        k->workload = 0;
    if (level >= 2)
        k->user = k->experiment = 0;
    if (level >= 3) {
        k->day = 0;
        k->price = 0;
    }
    if (level >= 4)
        k->target = k->class_ = k->queue = k->project = k->basis = 0;
}

static void compare_line(const struct ledger_line *l, void *arg)
{
    struct compare *x = arg;

    if (strcmp(l->class_, LEDGER_CPU) == 0)
        return; /* the model knows GPUs alone; root_check balances CPUs, too */
    x->others |= l->cause == LEDGER_OTHERS && l->amount > 0;
    struct line_key k = {.day = l->day,
                         .price = l->price,
                         .cause = (int)l->cause,
                         .basis = (int)l->basis,
                         .priced = l->priced,
                         .target = model_id(x->m, l->target),
                         .class_ = model_id(x->m, l->class_),
                         .queue = model_id(x->m, l->queue),
                         .project = model_id(x->m, l->project),
                         .user = model_id(x->m, l->user),
                         .workload = model_id(x->m, l->workload),
                         .experiment = model_id(x->m, l->experiment)};

    fold(x->level, &k);
    book_at(&x->theirs, &k)->amount += l->amount;
    x->money[l->cause] += l->money;
}

static unsigned level_of(const struct root *r)
{
    struct ledger_query q = {.to_day = INT64_MAX, .rows_max = 1};
    struct ledger_report rep;
    AUTO_ARENA a = arena_create(0);
    unsigned level = 0;

    ledger_report_make(r, root_time(r), &q, a, &rep);
    for (unsigned i = 0; i < 3; i++)
        if (rep.folded[i] >= 0)
            level = i + 1;
    return level;
}

static void wrong(const struct ledger_model *m, const struct line_key *k, ledger_amount model,
                  ledger_amount ledger, struct ledger_difference *ret)
{
    char a[48], b[48], **t = m->texts.v;

    if (ret->wrong++ > 0)
        return;
    ledger_amount_print(model, a);
    ledger_amount_print(ledger, b);
    (void)snprintf(
        ret->example, sizeof ret->example,
        "day %lld cause %d basis %d priced %d price %g target %s class %s queue %s project %s "
        "user %s workload %s experiment %s: model %s, ledger %s",
        (long long)k->day, k->cause, k->basis, k->priced, k->price, t[k->target], t[k->class_],
        t[k->queue], t[k->project], t[k->user], t[k->workload], t[k->experiment], a, b);
}

void ledger_model_compare(struct ledger_model *m, const struct root *r,
                          struct ledger_difference *ret)
{
    struct compare x = {.m = m, .level = level_of(r)};
    struct book ours = {0}, all = {0};
    double money[LEDGER_CAUSE_NR] = {0};
    ledger_amount none = 0;

    *ret = (struct ledger_difference){.level = x.level};
    for (size_t i = 0; i < m->book.cap; i++)
        if (m->book.v[i].used)
            book_at(&all, &m->book.v[i].key)->amount += m->book.v[i].amount;
    for (int i = 0; i < m->n_allocs; i++) { /* so far */
        struct alloc a = m->allocs[i];
        struct line_key k = a.line;
        struct span now = {a.since, m->now, a.state, false};
        struct alloc last = {.milli = a.milli, .spans = &now, .n_spans = 1};

        const struct object *o = a.move ? NULL : root_workload_by_uid(r, m->texts.v[a.id]);
        int owner = 0;
        if (o)
            owner = model_name(m, o->meta->namespace_, o->meta->name);
        else
            owner = model_name(m, m->texts.v[k.project], m->texts.v[k.workload]);
        alloc_owner(m, &k, owner);
        alloc_write(&a, &all, k, INT64_MAX, LEDGER_USEFUL, &none);
        alloc_write(&last, &all, k, INT64_MAX, LEDGER_USEFUL, &none);
    }
    for (size_t i = 0; i < all.cap; i++) {
        if (!all.v[i].used || all.v[i].amount == 0)
            continue;
        struct line_key k = all.v[i].key;
        money[k.cause] += (double)all.v[i].amount / LEDGER_GPU_HOUR * k.price;
        fold(x.level, &k);
        book_at(&ours, &k)->amount += all.v[i].amount;
    }
    ledger_scan(r, m->now, compare_line, &x);
    ret->others = x.others;
    for (size_t i = 0; i < x.theirs.cap; i++) {
        if (!x.theirs.v[i].used)
            continue;
        ret->lines++;
        ledger_amount model = book_at(&ours, &x.theirs.v[i].key)->amount;
        if (model != x.theirs.v[i].amount)
            wrong(m, &x.theirs.v[i].key, model, x.theirs.v[i].amount, ret);
        enum ledger_cause cause = (enum ledger_cause)x.theirs.v[i].key.cause;
        if (!ledger_cause_part(cause))
            ret->error += ledger_cause_sum(cause) ? -x.theirs.v[i].amount : x.theirs.v[i].amount;
        ret->measured |= ledger_cause_part(cause);
    }
    for (size_t i = 0; i < ours.cap; i++) /* what only the model has */
        if (ours.v[i].used && ours.v[i].amount && !book_at(&x.theirs, &ours.v[i].key)->amount)
            wrong(m, &ours.v[i].key, ours.v[i].amount, 0, ret);
    for (int c = 0; c < LEDGER_CAUSE_NR; c++) {
        double d = money[c] > x.money[c] ? money[c] - x.money[c] : x.money[c] - money[c];

        if (money[c] > 0 && d / money[c] > ret->money)
            ret->money = d / money[c];
    }
    mem_free(ours.v);
    mem_free(all.v);
    mem_free(x.theirs.v);
}
