/* Sets of the indexes of an array, as in its status: "0-41,43". They are ranges, so that an array
 * of a hundred thousand indexes costs what its gaps cost.
 *
 * A text must never be taken for a set that this file would not write itself: it comes from a
 * state, but a state may come from a snapshot. */
#include "controlplane/store/store_internal.h"

#include <ctype.h>

#define INDEX_DIGITS 6

static bool number_read(const char **at, int64_t *ret)
{
    const char *p = *at;
    int64_t v = 0;

    if (!isdigit((unsigned char)*p) || (*p == '0' && isdigit((unsigned char)p[1])))
        return false;
    for (; isdigit((unsigned char)*p); p++) {
        if (p - *at >= INDEX_DIGITS)
            return false;
        v = v * 10 + (*p - '0');
    }
    *at = p;
    *ret = v;
    return true;
}

bool indexes_read(const char *text, struct arena *a, struct indexes *ret)
{
    uint32_t n = *text ? 1 : 0;

    for (const char *p = text; *p; p++)
        n += *p == ',';
    *ret = (struct indexes){arena_array(a, struct index_range, n + 1), 0, n + 1, 0};
    for (const char *p = text; *p;) {
        struct index_range r;

        if (!number_read(&p, &r.from))
            return false;
        r.to = r.from;
        if (*p == '-' && (p++, !number_read(&p, &r.to) || r.to == r.from))
            return false;
        if (r.to < r.from || (ret->n && r.from <= ret->v[ret->n - 1].to + 1))
            return false;
        ret->v[ret->n++] = r;
        ret->count += r.to - r.from + 1;
        if (*p && (*p != ',' || !*++p))
            return false;
    }
    return true;
}

const char *indexes_text(const struct indexes *x, struct arena *a)
{
    AUTO_BUF b = {0};

    buf_init(&b, 1u << 20);
    for (uint32_t i = 0; i < x->n; i++) {
        buf_printf(&b, "%s%lld", i ? "," : "", (long long)x->v[i].from);
        if (x->v[i].to > x->v[i].from)
            buf_printf(&b, "-%lld", (long long)x->v[i].to);
    }
    INV(!b.failed); /* LIMIT_ARRAY_FAILED_MAX bounds the gaps */
    return b.n ? arena_strndup(a, b.p, b.n) : "";
}

/* The first range that ends at `index` or behind it. */
static uint32_t range_at(const struct indexes *x, int64_t index)
{
    uint32_t lo = 0, hi = x->n;

    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;

        if (x->v[mid].to < index)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

int64_t indexes_end(const struct indexes *x, int64_t index)
{
    uint32_t i = range_at(x, index);

    return i < x->n && x->v[i].from <= index ? x->v[i].to : -1;
}

static void range_insert(struct indexes *x, uint32_t at, struct index_range r, struct arena *a)
{
    if (x->n == x->room) {
        struct index_range *more = arena_array(a, struct index_range, 2 * (size_t)x->room + 16);

        if (x->n)
            memcpy(more, x->v, x->n * sizeof *more);
        x->v = more;
        x->room = 2 * x->room + 16;
    }
    memmove(x->v + at + 1, x->v + at, (x->n - at) * sizeof *x->v);
    x->v[at] = r;
    x->n++;
}

static void ranges_drop(struct indexes *x, uint32_t from, uint32_t n)
{
    memmove(x->v + from, x->v + from + n, (x->n - from - n) * sizeof *x->v);
    x->n -= n;
}

void indexes_add(struct indexes *x, int64_t from, int64_t to, struct arena *a)
{
    uint32_t at = range_at(x, from - 1), n = 0;
    struct index_range r = {from, to};

    PRE(from >= 0 && to >= from);
    for (; at + n < x->n && x->v[at + n].from <= to + 1; n++) { /* they touch: one of them all */
        const struct index_range *v = &x->v[at + n];

        r.from = v->from < r.from ? v->from : r.from;
        r.to = v->to > r.to ? v->to : r.to;
        x->count -= v->to - v->from + 1;
    }
    x->count += r.to - r.from + 1;
    if (n == 0) {
        range_insert(x, at, r, a);
        return;
    }
    x->v[at] = r;
    ranges_drop(x, at + 1, n - 1);
}

void indexes_remove(struct indexes *x, int64_t index, struct arena *a)
{
    uint32_t at = range_at(x, index);

    if (at == x->n || x->v[at].from > index)
        return;
    struct index_range r = x->v[at];
    x->count--;
    if (r.from == r.to) {
        ranges_drop(x, at, 1);
    } else if (r.from == index) {
        x->v[at].from++;
    } else {
        x->v[at].to = index - 1;
        if (index < r.to)
            range_insert(x, at + 1, (struct index_range){index + 1, r.to}, a);
    }
}

bool index_sets_read(const struct workload_status *s, struct arena *a, struct index_sets *ret)
{
    return indexes_read(s->activeIndexes, a, &ret->active) &&
           indexes_read(s->completedIndexes, a, &ret->completed) &&
           indexes_read(s->failedIndexes, a, &ret->failed);
}
