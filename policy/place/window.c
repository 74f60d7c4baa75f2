/* Windows: times of a week, in an IANA zone, at which a policy's workloads may hold less. Local
 * wall clocks decide: an hour that is skipped in spring is in no window, and one that comes twice
 * in autumn is in it twice. Of several open windows the least counts. A window limits what may
 * start; it stops nothing that runs, even where more is held as it begins. The pool's resolver
 * gives the offset of a zone, so that nothing here reads a file or a clock. */
#include "policy/place/place_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DAY_MS 86400000

static int32_t minutes_of(const char *hhmm) /* validated: "HH:MM" */
{
    if (strlen(hhmm) != 5)
        return 0;
    return ((hhmm[0] - '0') * 10 + hhmm[1] - '0') * 60 + (hhmm[3] - '0') * 10 + hhmm[4] - '0';
}

static bool on_day(const struct window *w, int64_t day) /* days since 1970-01-01, a Thursday */
{
    enum weekday wd = (enum weekday)(((day + 3) % 7 + 7) % 7 + DAY_MON);

    for (uint32_t i = 0; i < w->n_days; i++) {
        if (w->days[i] == wd)
            return true;
    }
    return w->n_days == 0;
}

static bool is_open(const struct window *w, int64_t local_ms)
{
    int64_t day = local_ms / DAY_MS - (local_ms % DAY_MS < 0);
    int32_t now = (int32_t)((local_ms - day * DAY_MS) / 60000);
    int32_t from = minutes_of(w->from), to = minutes_of(w->to);

    if (from < to)
        return on_day(w, day) && now >= from && now < to;
    /* Over midnight: the days are those on which it begins. */
    return (on_day(w, day) && now >= from) || (on_day(w, day - 1) && now < to);
}

static bool zone_offset(const struct pool *p, const char *zone, int64_t now_ms, int32_t *ret)
{
    *ret = 0;
    if (strcmp(zone, "UTC") == 0 || strcmp(zone, "Etc/UTC") == 0)
        return true;
    return p->zone_fn && p->zone_fn(p->zone_arg, zone, now_ms, ret) == 0;
}

struct window_answer window_limit(const struct pool *p, const struct placement_policy_spec *s,
                                  int64_t now_ms)
{
    struct window_answer r = {0};

    for (uint32_t i = 0; i < s->n_windows; i++) {
        const struct window *w = &s->windows[i];
        int32_t offset_s;

        if (!zone_offset(p, w->timezone, now_ms, &offset_s))
            return (struct window_answer){.unknown_zone = true, .limited = true, .window = w};
        if (!is_open(w, now_ms + (int64_t)offset_s * 1000) ||
            (r.limited && r.max_gpus <= w->maxGPUs))
            continue;
        r = (struct window_answer){.limited = true, .max_gpus = w->maxGPUs, .window = w};
    }
    return r;
}

/* ---- when it opens ---- */
#define DAYS_AHEAD 9
#define WINDOWS_MAX 32

static bool allows(const struct pool *p, const struct placement_policy_spec *s, int64_t ms,
                   int64_t milli)
{
    struct window_answer w = window_limit(p, s, ms);

    return !w.unknown_zone && (!w.limited || milli <= w.max_gpus * 1000);
}

static int cmp_ms(const void *pa, const void *pb)
{
    const int64_t *a = pa, *b = pb;

    return (*a > *b) - (*a < *b);
}

/* Moments at which a window may end: its `to` on each day ahead, by the offsets before and after
 * it. */
static uint32_t window_ends(const struct pool *p, const struct window *w, int64_t now_ms,
                            int64_t *out)
{
    int32_t offset_s;
    uint32_t n = 0;
    int64_t day;

    if (!zone_offset(p, w->timezone, now_ms, &offset_s))
        return 0;
    day = (now_ms + (int64_t)offset_s * 1000) / DAY_MS;
    for (int64_t d = day; d < day + DAYS_AHEAD; d++) {
        int64_t local = d * DAY_MS + (int64_t)minutes_of(w->to) * 60000;

        for (int side = -1; side <= 1; side += 2) {
            if (zone_offset(p, w->timezone, local + side * (int64_t)DAY_MS, &offset_s))
                out[n++] = local - (int64_t)offset_s * 1000;
        }
    }
    return n;
}

int64_t window_opens(const struct pool *p, const struct placement_policy_spec *s, int64_t now_ms,
                     int64_t milli)
{
    int64_t at[WINDOWS_MAX * DAYS_AHEAD * 2], before = now_ms;
    uint32_t n = 0;

    if (allows(p, s, now_ms, milli))
        return now_ms;
    for (uint32_t i = 0; i < s->n_windows && i < WINDOWS_MAX; i++)
        n += window_ends(p, &s->windows[i], now_ms, at + n);
    if (n > 1)
        qsort(at, n, sizeof(*at), cmp_ms);
    for (uint32_t i = 0; i < n; i++) {
        int64_t closed = before, open = at[i];

        if (open <= now_ms)
            continue;
        before = open;
        if (!allows(p, s, open, milli))
            continue;
        /* Clocks that were put on may have ended it sooner: to the millisecond. */
        while (open - closed > 1) {
            int64_t mid = closed + (open - closed) / 2;

            if (allows(p, s, mid, milli))
                open = mid;
            else
                closed = mid;
        }
        return open;
    }
    return 0;
}

bool window_time(const struct pool *p, const char *zone, int64_t ms, char *out, size_t size)
{
    int32_t offset_s;
    char text[32];

    if (!zone_offset(p, zone, ms, &offset_s))
        return false;
    time_print(ms + (int64_t)offset_s * 1000, text); /* YYYY-MM-DDTHH:MM:SSZ */
    (void)snprintf(out, size, "%.10s %.5s", text, text + 11);
    return true;
}
