/* Machines that end early: of a pool whose machines end soon after they were ordered, or never come
 * to be listed, the next ones are ordered further and further apart, one at a time until one has
 * come. It is read from the Machines themselves, so that it outlives leaders.
 *
 * Nothing here may count against a pool what was let go because nobody wanted it any more, nor what
 * ended because nobody renewed it. */
#include "controlplane/store/store_internal.h"

#include <stdio.h>
#include <stdlib.h>

#define PAUSE_MIN_MS 5000
#define PAUSE_MAX_MS 1800000
#define FORGOTTEN_MS (6ll * 3600 * 1000) /* after the last one */

enum fate {
    FATE_NONE, /* it says nothing: it is coming, or nobody wanted it any more */
    FATE_LIVED,
    FATE_EARLY
};

struct gathered {
    const struct object *target;
    const struct machine_pool *p;
    const struct object **v;
    size_t n;
};

bool machine_is_as(const struct machine_spec *s, const struct machine_pool *p)
{
    return strcmp(s->class_, p->class_) == 0 && s->gpus == p->gpus &&
           strcmp(s->zone, p->zone) == 0 && s->market == p->market &&
           strcmp(s->image, p->image) == 0;
}

static bool gather_each(const struct object *o, void *arg)
{
    const struct machine_spec *s = object_as(o, machine)->spec;
    struct gathered *g = arg;

    /* Of a Target of that name that was there before it, none counts. */
    if (strcmp(s->target, g->target->meta->name) == 0 && strcmp(s->pool, g->p->name) == 0 &&
        o->meta->creationTimestamp >= g->target->meta->creationTimestamp && machine_is_as(s, g->p))
        g->v[g->n++] = o;
    return true;
}

static int by_number(const void *a, const void *b)
{
    int64_t x = object_as(*(const struct object *const *)a, machine)->spec->number;
    int64_t y = object_as(*(const struct object *const *)b, machine)->spec->number;

    return x < y ? -1 : x > y;
}

static bool is_one_of(const char *word, const char *const *list)
{
    while (*list && strcmp(*list, word) != 0)
        list++;
    return *list != NULL;
}

/* *ret_at: since when it is over. */
static enum fate fate_of(const struct object *o, int64_t now, int64_t *ret_at)
{
    static const char *const never[] = {"Conflict", "PriceAboveCap", "OtherCurrency", NULL};
    const struct machine_status *s = object_as(o, machine)->status;
    bool over = *s->release || !machine_open(o);
    int64_t at = *s->release ? s->releasedAt : over ? s->endedAt : now;
    bool lived = at - o->meta->creationTimestamp >= MACHINE_EARLY_MS &&
                 (s->billedFrom > 0 || s->phase == MACHINE_IS_JOINED);

    *ret_at = at;
    if (is_one_of(s->release, never))
        return FATE_EARLY;
    if (lived)
        return FATE_LIVED;
    if (strcmp(s->release, "NotListed") == 0)
        return FATE_EARLY;
    return over && !*s->release && at < s->until ? FATE_EARLY : FATE_NONE;
}

/* Those that were ordered before the first end was known end in one round. */
static void count_round(struct machine_early *e, const struct object *o, int64_t at,
                        int64_t *round_ms)
{
    if (!e->rounds || o->meta->creationTimestamp >= *round_ms) {
        e->rounds++;
        *round_ms = at;
    } else if (at < *round_ms) {
        *round_ms = at;
    }
    if (at >= e->since) {
        e->since = at;
        e->last = o;
    }
}

static int64_t length(int64_t rounds)
{
    int64_t ms = PAUSE_MIN_MS;

    for (int64_t i = 1; i < rounds && ms < PAUSE_MAX_MS; i++)
        ms *= 2;
    return ms < PAUSE_MAX_MS ? ms : PAUSE_MAX_MS;
}

static bool coming(const struct gathered *g, int64_t since)
{
    bool any = false;

    for (size_t i = 0; i < g->n; i++) {
        enum machine_phase phase = object_as(g->v[i], machine)->status->phase;
        if (machine_closing(g->v[i]) || g->v[i]->meta->creationTimestamp < since)
            continue;
        if (phase >= MACHINE_IS_JOINED)
            return false;
        any = true;
    }
    return any;
}

void machine_early(const struct root *r, const struct object *target, const struct machine_pool *p,
                   int64_t now_ms, struct machine_early *ret)
{
    AUTO_ARENA a = arena_create(0);
    struct gathered g = {.target = target, .p = p};
    struct machine_early e = {0};
    int64_t at = 0, round = 0;

    g.v = arena_array(a, const struct object *, root_count(r, KIND_MACHINE) + 1);
    root_scan(r, KIND_MACHINE, NULL, NULL, NULL, gather_each, &g);
    qsort(g.v, g.n, sizeof *g.v, by_number);
    for (size_t i = 0; i < g.n; i++) {
        enum fate fate = fate_of(g.v[i], now_ms, &at);
        if (fate == FATE_LIVED)
            e = (struct machine_early){0};
        else if (fate == FATE_EARLY)
            count_round(&e, g.v[i], at, &round);
    }
    *ret = (struct machine_early){0};
    if (!e.rounds || now_ms - e.since >= FORGOTTEN_MS)
        return;
    *ret = e;
    ret->until = e.since + length(e.rounds);
    ret->coming = coming(&g, e.since);
}

void machine_early_print(const struct machine_pool *p, const struct machine_early *e, char *text,
                         size_t size)
{
    const struct machine_status *s = object_as(e->last, machine)->status;
    const char *why = *s->release ? s->release : s->reason;
    char at[32];

    time_print(e->until, at);
    (void)snprintf(text, size,
                   "pool %s: %lld time%s in a row what was ordered ended early, the last one (%s) "
                   "by %.63s%s%.150s: none is ordered before %s",
                   p->name, (long long)e->rounds, e->rounds == 1 ? "" : "s", e->last->meta->name,
                   *why ? why : "its target",
                   *s->message ? ": " : "", s->message, at);
}
