/* Finalizing: a target hears that the log has the end of a run, so that it need not keep its
 * records any longer. The driver that had the end committed says so; after a change of leader, or
 * where that was not heard, the sweep finds what is still kept. It must never be said of a run
 * whose end the log does not have. */
#include "controlplane/leader/site/sites.h"

#include <string.h>

#define FINALS_MAX 4096 /* the rest the next sweep finds */
#define CALL_MS 15000
#define AGAIN_MIN_MS 1000
#define AGAIN_MAX_MS 60000

static void finals_next(struct site *t);

static bool same(const struct run_key *a, const struct run_key *b)
{
    return a->epoch == b->epoch && a->try_ == b->try_ && strcmp(a->uid, b->uid) == 0;
}

static void answered(struct call *c, enum outcome out, const struct observation *seen,
                     const struct err *err)
{
    struct site *t = container_of(c, struct site, final_call.call);
    struct run_key first;

    (void)seen;
    (void)err;
    t->finalizing = false;
    if (t->gone || !t->n_finals)
        return;
    first = t->finals[0];
    memmove(t->finals, t->finals + 1, --t->n_finals * sizeof *t->finals);
    if (out == OUT_UNKNOWN) { /* the others come first */
        t->finals[t->n_finals++] = first;
        t->final_again_ms = t->final_again_ms ? t->final_again_ms * 2 : AGAIN_MIN_MS;
        if (t->final_again_ms > AGAIN_MAX_MS)
            t->final_again_ms = AGAIN_MAX_MS;
        brain_later(t->brain, &t->final_again, t->final_again_ms);
        return;
    }
    t->final_again_ms = 0; /* refused: it has no such notion, or its sweep says more */
    finals_next(t);
}

static void finals_next(struct site *t)
{
    if (t->finalizing || !t->n_finals || timer_active(&t->final_again))
        return;
    if (!t->brain->leads || t->brain->in_doubt || !t->reachable || !t->connector) {
        brain_later(t->brain, &t->final_again, AGAIN_MIN_MS);
        return;
    }
    t->finalizing = true;
    t->connector->ops->finalize(t->connector, &t->finals[0],
                                brain_call(t->brain, &t->final_call, CALL_MS, answered));
}

static void again(void *arg)
{
    finals_next(arg);
}

void site_finals_init(struct site *t)
{
    timer_init(&t->final_again, t->brain->loop, again, t);
}

void site_finals_drop(struct site *t)
{
    timer_stop(&t->final_again);
    mem_free(t->finals);
    t->finals = NULL;
    t->n_finals = 0;
}

void site_finalize(struct site *t, const struct run_key *k)
{
    if (!t || !t->connector || !t->connector->ops->finalize || t->n_finals == FINALS_MAX)
        return;
    for (size_t i = 0; i < t->n_finals; i++)
        if (same(&t->finals[i], k))
            return;
    t->finals = mem_realloc(t->finals, (t->n_finals + 1) * sizeof *t->finals);
    t->finals[t->n_finals++] = *k;
    finals_next(t);
}
