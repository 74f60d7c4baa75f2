/* A line of the ledger as bytes: key of the totals, tail of an interval. Days come first, so that
 * the oldest lines are found at the front. This file must never make two texts of one line, nor
 * read past what it was given. */
#include "controlplane/store/ledger/ledger_internal.h"

/* ---- names ---- */
const char *ledger_cause_text(enum ledger_cause c)
{
    switch (c) {
#define C(id, n, name, doc)                                                                        \
    case LEDGER_##id:                                                                              \
        return name;
        LEDGER_CAUSES(C)
#undef C
    default:
        return "?";
    }
}

static const char *const by_names[] = {
#define B(b, name) name,
    LEDGER_BY(B)
#undef B
};

const char *ledger_by_text(enum ledger_by b)
{
    PRE((int)b >= 0 && b < LEDGER_BY_NR);
    return by_names[b];
}

bool ledger_by_named(const char *name, size_t n, enum ledger_by *ret)
{
    for (unsigned i = 0; i < LEDGER_BY_NR; i++)
        if (strlen(by_names[i]) == n && memcmp(by_names[i], name, n) == 0) {
            *ret = (enum ledger_by)i;
            return true;
        }
    return false;
}

/* ---- bytes ---- */
/* u64 day, u8 cause, u8 basis, u8 priced, u64 price, 7 texts that end in NUL; big-endian. */
#define LINE_HEAD 19
#define LINE_TEXTS 7

static void texts_of(struct ledger_line *l, const char **ret[LINE_TEXTS])
{
    ret[0] = &l->target;
    ret[1] = &l->class_;
    ret[2] = &l->queue;
    ret[3] = &l->project;
    ret[4] = &l->user;
    ret[5] = &l->workload;
    ret[6] = &l->experiment;
}

static void big_u64(char *p, uint64_t v)
{
    for (int i = 0; i < 8; i++)
        p[i] = (char)(v >> (56 - 8 * i));
}

static uint64_t big_get(const unsigned char *p)
{
    uint64_t v = 0;

    for (int i = 0; i < 8; i++)
        v = v << 8 | p[i];
    return v;
}

size_t line_encode(const struct ledger_line *l, char out[LEDGER_LINE_MAX])
{
    struct ledger_line copy = *l;
    const char **texts[LINE_TEXTS];
    uint64_t price;
    size_t n = LINE_HEAD;

    _Static_assert(LINE_HEAD + LINE_TEXTS * (LEDGER_TEXT_MAX + 1) <= LEDGER_LINE_MAX, "it fits");
    PRE(l->day >= 0);
    memcpy(&price, &l->price, sizeof price);
    big_u64(out, (uint64_t)l->day);
    out[8] = (char)l->cause;
    out[9] = (char)l->basis;
    out[10] = (char)l->priced;
    big_u64(out + 11, price);
    texts_of(&copy, texts);
    for (int i = 0; i < LINE_TEXTS; i++) {
        size_t m = *texts[i] ? strnlen(*texts[i], LEDGER_TEXT_MAX) : 0;

        if (m)
            memcpy(out + n, *texts[i], m);
        out[n + m] = 0;
        n += m + 1;
    }
    return n;
}

bool line_decode(struct slice in, struct ledger_line *ret)
{
    const unsigned char *p = in.p;
    const char **texts[LINE_TEXTS];
    size_t at = LINE_HEAD;

    *ret = (struct ledger_line){0};
    if (in.n < LINE_HEAD + LINE_TEXTS || in.n > LEDGER_LINE_MAX || p[8] == 0 ||
        p[8] >= LEDGER_CAUSE_NR || p[9] >= LEDGER_KINDS || p[10] > 1 || p[0] & 0x80)
        return false;
    uint64_t price = big_get(p + 11);
    ret->day = (int64_t)big_get(p);
    ret->cause = (enum ledger_cause)p[8];
    ret->basis = (enum capacity)p[9];
    ret->priced = p[10] != 0;
    memcpy(&ret->price, &price, sizeof price);
    texts_of(ret, texts);
    for (int i = 0; i < LINE_TEXTS; i++) {
        const char *end = at < in.n ? memchr(p + at, 0, in.n - at) : NULL;

        if (!end)
            return false;
        *texts[i] = (const char *)p + at;
        at = (size_t)(end - (const char *)p) + 1;
    }
    return at == in.n && ret->price >= 0 && ret->price < 1e300;
}

/* Volatile: no fused multiply-add, so that every machine gets the same bits. */
double line_money(ledger_amount amount, double price)
{
    volatile double hours = (double)amount / LEDGER_GPU_HOUR;
    volatile double money = hours * price;

    return money;
}

/* ---- folding ---- */
/* The first day of the year (proleptic Gregorian, years from March: the usual arithmetic of
 * days). */
static int64_t year_begin(int64_t day)
{
    int64_t z = day + 719468, era = z / 146097, in = z % 146097;
    int64_t year = (in - in / 1460 + in / 36524 - in / 146096) / 365;
    int64_t of_year = in - (365 * year + year / 4 - year / 100);
    int64_t y = year + era * 400 + (of_year >= 306) - 1; /* of January, counted from March */

    era = y / 400;
    year = y % 400;
    return era * 146097 + year * 365 + year / 4 - year / 100 + 306 - 719468;
}

/* What a level no longer tells apart. */
void line_fold(unsigned level, struct ledger_line *l)
{
    if (level >= 1)
        l->workload = "";
    if (level >= 2)
        l->user = l->experiment = "";
    if (level >= LEDGER_YEARLY) {
        l->day = year_begin(l->day);
        l->price = 0;
    }
    if (level >= 4) {
        l->day = 0;
        l->basis = (enum capacity)0;
        l->target = l->queue = l->project = "";
        l->class_ = class_cpu(l->class_) ? LEDGER_CPU : "";
    }
}
