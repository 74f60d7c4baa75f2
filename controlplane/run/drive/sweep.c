/* Sweeps: what runs on a target and nobody holds is ended. A member whose root is old must not take
 * a run that it does not know yet for one that was let go: a uid that is not in the root is doubted
 * first. Only what was listed before a majority confirmed this leadership, and is still unknown
 * after that, has no owner; it goes in a second sweep. */
#include "controlplane/run/brain_internal.h"

#include <stdio.h>
#include <string.h>

#define SWEEP_DEADLINE_MS 30000
#define CONFIRM_DEADLINE_MS 5000
#define DOUBTS_MAX 4096

struct sweep {
    struct call call;
    struct brain *brain;
    char target[256];
};

static bool doubted(const struct site *t, const struct run_key *k)
{
    for (size_t i = 0; i < t->n_doubts; i++)
        if (t->doubts[i].epoch == k->epoch && t->doubts[i].try_ == k->try_ &&
            !strcmp(t->doubts[i].uid, k->uid))
            return true;
    return false;
}
static void doubt(struct site *t, const struct run_key *k)
{
    if (t->n_doubts == DOUBTS_MAX)
        return; /* the next sweep takes them */
    t->doubts = mem_realloc(t->doubts, (t->n_doubts + 1) * sizeof *t->doubts);
    t->doubts[t->n_doubts++] = *k;
}
static void sweep_over(struct site *t, bool again)
{
    t->sweeping = t->doubts_proved = false;
    t->n_doubts = 0;
    t->sweep_due |= again; /* with the next renewal */
}

/* Owned: the state has this very run as live or ended, or may come to it (a newer epoch than ours
 * says nothing). */
static bool owned(const struct run_key *k, void *arg)
{
    struct site *t = arg;
    const struct object *o = root_workload_by_uid(t->brain->root, k->uid);
    const struct workload_status *s = o ? object_as(o, workload)->status : NULL;

    if (s)
        return s->epoch < k->epoch ||
               (s->epoch == k->epoch &&
                (phase_holds(s->phase) || s->phase == PHASE_SUCCEEDED || s->phase == PHASE_FAILED));
    if (t->doubts_proved)
        return !doubted(t, k);
    doubt(t, k);
    return true;
}

static void sweep_begin(struct site *t);

static void sweep_confirmed(void *arg, const struct err *err)
{
    struct sweep *w = arg;
    struct brain *b = w->brain;
    struct site *t = site_find(b, w->target);

    brain_under_way(b, -1);
    mem_free(w);
    if (!t || !t->sweeping || !b->leads || b->closing)
        return;
    if (err || !t->reachable) {
        sweep_over(t, true);
        return;
    }
    brain_root(b);
    t->doubts_proved = true;
    sweep_begin(t);
}
static void sweep_done(struct call *c, enum outcome out, const struct observation *seen,
                       const struct err *err)
{
    struct sweep *w = container_of(c, struct sweep, call);
    struct brain *b = w->brain;
    struct site *t = site_find(b, w->target);

    (void)seen;
    (void)err;
    if (!t || !t->sweeping || !b->leads || out != OUT_DONE || !t->n_doubts || t->doubts_proved) {
        if (t)
            sweep_over(t, out != OUT_DONE);
        brain_under_way(b, -1);
        mem_free(w);
        return;
    }
    core_confirm(b->cfg.core, b->loop, b->term, CONFIRM_DEADLINE_MS, sweep_confirmed, w);
}

static void sweep_begin(struct site *t)
{
    struct sweep *w = mem_new(struct sweep);

    w->brain = t->brain;
    (void)snprintf(w->target, sizeof w->target, "%s", t->name);
    w->call = (struct call){.deadline_ms = loop_now_ms(t->brain->loop) + SWEEP_DEADLINE_MS,
                            .done = sweep_done};
    brain_under_way(t->brain, 1);
    t->connector->ops->sweep(t->connector, owned, t, &w->call);
}

void site_sweep(struct site *t)
{
    if (!t->connector || !t->reachable || !t->connector->ops->sweep)
        return;
    if (t->sweeping) {
        t->sweep_due = true;
        return;
    }
    t->sweeping = true;
    t->sweep_due = false;
    t->swept_ms = loop_now_ms(t->brain->loop);
    sweep_begin(t);
}
