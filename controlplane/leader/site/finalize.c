/* Finalizing: a target hears that the log has the end of a run, so that it need not keep its
 * records any longer. The driver that had the end committed says so; after a change of leader, or
 * where that was not heard, the sweep finds what is still kept. It must never be said of a run
 * whose end the log does not have. */
#include "controlplane/leader/site/sites.h"

#include <string.h>

#define FINALS_MAX 4096 /* the rest the next sweep finds */
#define AT_ONCE 64      /* at most */
#define AT_ONCE_USUAL 16
#define CALL_MS 15000
#define AGAIN_MIN_MS 1000
#define AGAIN_MAX_MS 60000

struct site_final {
    struct site *site;
    struct run_key key;
    struct brain_call call;
    bool busy;
};

static void finals_next(struct site *t);

/* What drivers leave of limits.inFlight, and a quarter of it in any case: new runs come first. */
static unsigned at_once(const struct site *t)
{
    const struct target_limits *l = t->doc ? object_as(t->doc, target)->spec->limits : NULL;
    int64_t most = l && l->inFlight > 0 ? l->inFlight : AT_ONCE_USUAL;
    int64_t left = most - (int64_t)t->calls, n = left > most / 4 ? left : most / 4;

    return n < 1 ? 1 : n > AT_ONCE ? AT_ONCE : (unsigned)n;
}

/* Those that are under way were there when the first of them was not heard: it counts once. */
static void not_heard(struct site *t, const struct run_key *k)
{
    if (t->n_finals < FINALS_MAX) { /* the others come first */
        t->finals = mem_realloc(t->finals, (t->n_finals + 1) * sizeof *t->finals);
        t->finals[t->n_finals++] = *k;
    }
    if (timer_active(&t->final_again))
        return;
    t->final_again_ms = t->final_again_ms ? t->final_again_ms * 2 : AGAIN_MIN_MS;
    if (t->final_again_ms > AGAIN_MAX_MS)
        t->final_again_ms = AGAIN_MAX_MS;
    brain_later(t->brain, &t->final_again, t->final_again_ms);
}

static void answered(struct call *c, enum outcome out, const struct observation *seen,
                     const struct err *err)
{
    struct site_final *f = container_of(c, struct site_final, call.call);
    struct site *t = f->site;

    (void)seen;
    (void)err;
    f->busy = false;
    t->finalizing--;
    if (t->gone)
        return;
    if (out == OUT_UNKNOWN) {
        not_heard(t, &f->key);
        return;
    }
    if (!timer_active(&t->final_again))
        t->final_again_ms = 0; /* refused: it has no such notion, or its sweep says more */
    finals_next(t);
}

static void final_ask(struct site *t, const struct run_key *k)
{
    struct site_final *f;

    if (!t->final_calls)
        t->final_calls = mem_zalloc(AT_ONCE * sizeof *t->final_calls);
    for (f = t->final_calls; f->busy; f++)
        ;
    *f = (struct site_final){.site = t, .key = *k, .busy = true};
    t->finalizing++;
    t->connector->ops->finalize(t->connector, &f->key,
                                brain_call(t->brain, &f->call, CALL_MS, answered));
}

static void finals_next(struct site *t)
{
    struct run_key first;

    if (!t->n_finals || timer_active(&t->final_again))
        return;
    if (!t->brain->leads || t->brain->in_doubt || !t->reachable || !t->connector) {
        brain_later(t->brain, &t->final_again, AGAIN_MIN_MS);
        return;
    }
    while (t->n_finals && t->finalizing < at_once(t)) {
        first = t->finals[0];
        memmove(t->finals, t->finals + 1, --t->n_finals * sizeof *t->finals);
        final_ask(t, &first);
    }
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

void site_finals_free(struct site *t)
{
    INV(!t->finalizing);
    mem_free(t->final_calls);
    t->final_calls = NULL;
}

static bool is_told(const struct site *t, const struct run_key *k)
{
    for (size_t i = 0; i < t->n_finals; i++)
        if (run_key_same(&t->finals[i], k))
            return true;
    for (unsigned i = 0; t->final_calls && i < AT_ONCE; i++)
        if (t->final_calls[i].busy && run_key_same(&t->final_calls[i].key, k))
            return true;
    return false;
}

void site_finalize(struct site *t, const struct run_key *k)
{
    if (!t || !t->connector || !t->connector->ops->finalize || t->n_finals >= FINALS_MAX ||
        is_told(t, k))
        return;
    t->finals = mem_realloc(t->finals, (t->n_finals + 1) * sizeof *t->finals);
    t->finals[t->n_finals++] = *k;
    finals_next(t);
}
