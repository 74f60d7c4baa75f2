/* Windows: times of a week, in an IANA zone, at which a policy's workloads may hold less. The
 * offset of a zone comes from the pool's resolver, so that nothing here reads a file or a clock. */
#include "policy/place_internal.h"

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
