/* How long something took, each time. The buckets end where an answer is needed: 20 ms is what a
 * slice may take, 50 ms a heartbeat, 300 ms the election timeout, as they are shipped. */
#include "api/base/loop/durations.h"

static const uint64_t le_ms[DURATION_BUCKETS] = {1, 2, 5, 10, 20, 50, 100, 200, 300, 1000, 5000};

#define RELAXED memory_order_relaxed

static void count(_Atomic uint64_t *what, uint64_t by)
{
    atomic_store_explicit(what, atomic_load_explicit(what, RELAXED) + by, RELAXED);
}

void durations_add(struct durations *d, uint64_t ns)
{
    unsigned i = 0;

    while (i < DURATION_BUCKETS && ns > le_ms[i] * 1000000)
        i++;
    count(&d->of[i], 1);
    count(&d->sum_ns, ns);
    if (ns > atomic_load_explicit(&d->max_ns, RELAXED))
        atomic_store_explicit(&d->max_ns, ns, RELAXED);
}

uint64_t durations_max_ns(const struct durations *d)
{
    return atomic_load_explicit(&d->max_ns, RELAXED);
}

static void histogram(const struct durations *d, const char *name, const char *label,
                      struct buf *out)
{
    const char *comma = *label ? "," : "", *open = *label ? "{" : "", *close = *label ? "}" : "";
    uint64_t n = 0;

    for (unsigned i = 0; i <= DURATION_BUCKETS; i++) {
        n += atomic_load_explicit(&d->of[i], RELAXED);
        if (i < DURATION_BUCKETS)
            buf_printf(out, "%s_seconds_bucket{%s%sle=\"%g\"} %llu\n", name, label, comma,
                       (double)le_ms[i] / 1000, (unsigned long long)n);
    }
    buf_printf(out, "%s_seconds_bucket{%s%sle=\"+Inf\"} %llu\n", name, label, comma,
               (unsigned long long)n);
    buf_printf(out, "%s_seconds_sum%s%s%s %.6f\n%s_seconds_count%s%s%s %llu\n", name, open, label,
               close, (double)atomic_load_explicit(&d->sum_ns, RELAXED) / 1e9, name, open, label,
               close, (unsigned long long)n);
}

void durations_tell(const struct durations *const *sets, const char *const *labels, size_t n,
                    const char *name, const char *help, struct buf *out)
{
    buf_printf(out, "# HELP %s_seconds %s\n# TYPE %s_seconds histogram\n", name, help, name);
    for (size_t i = 0; i < n; i++)
        histogram(sets[i], name, labels[i], out);
    buf_printf(out,
               "# HELP %s_max_seconds the longest since this member started: %s\n"
               "# TYPE %s_max_seconds gauge\n",
               name, help, name);
    for (size_t i = 0; i < n; i++)
        buf_printf(out, "%s_max_seconds%s%s%s %.6f\n", name, *labels[i] ? "{" : "", labels[i],
                   *labels[i] ? "}" : "", (double)durations_max_ns(sets[i]) / 1e9);
}
