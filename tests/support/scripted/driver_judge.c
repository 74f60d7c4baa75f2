/* What the scripted driver makes of what it reads. An end is believed only of whom saw it: a
 * kubelet, a node's daemon, the cloud that has taken the machine back. */
#include "tests/support/scripted/driver_internal.h"

#include <signal.h>
#include <string.h>

bool key_same(const struct run_key *a, const struct run_key *b)
{
    return a->epoch == b->epoch && a->try_ == b->try_ && !strcmp(a->uid, b->uid);
}
static bool newer(const struct run_key *a, const struct run_key *b)
{
    return a->epoch != b->epoch ? a->epoch > b->epoch : a->try_ > b->try_;
}
/* Of several under one key the one that has started, else the first. */
const struct scripted_view *view_pick(const struct work *w, const struct run_key *k)
{
    const struct scripted_view *found = NULL;

    for (size_t i = 0; i < w->n; i++) {
        const struct scripted_view *v = &w->v[i];
        if (!key_same(&v->key, k) || v->tombstone || !*v->cluster || v->removed)
            continue;
        if (!found || (v->started && !found->started) ||
            (v->started == found->started && v->id < found->id))
            found = v;
    }
    return found;
}
static enum proof proof_of(const struct scripted_driver *d)
{
    return d->kind == LIKE_KUBERNETES ? PROOF_CONTAINERS_ENDED
           : d->kind == LIKE_SLURM    ? PROOF_ACCOUNTING
                                      : PROOF_INSTANCE_GONE;
}
void view_read(const struct scripted_driver *d, const struct scripted_view *v,
               struct observation *o)
{
    *o = v->report;
    o->key = v->key;
    o->state = RUN_UNKNOWN;
    o->seen_ms = loop_now_ms(d->loop);
    if (v->disowned)
        return; /* it will never start: what became of its key, its record says */
    switch (v->phase) {
    case THING_WAITS:
        if (v->started && planted != SCRIPTED_BACK_IS_PENDING)
            return; /* it has started by its accounting: what the queue says is old */
        o->state = RUN_PENDING;
        o->position = v->position;
        o->estimate_ms = v->estimate_ms;
        str_copy(o->reason, sizeof o->reason, *v->why ? v->why : "Pending");
        return;
    case THING_STARTS:
        o->state = RUN_STARTING;
        return;
    case THING_RUNS:
        o->state = RUN_RUNNING;
        return;
    case THING_DOUBT:
        if (planted != SCRIPTED_DOUBT_IS_ENDED)
            return;
        break;
    default:
        if (!v->started || !v->proved)
            return;
    }
    o->state = RUN_ENDED;
    o->proof = proof_of(d);
    o->exit_code = v->exit_code;
    o->term_signal = v->signo;
}
static void absent(struct observation *o, const struct run_key *k)
{
    *o = (struct observation){.key = *k, .state = RUN_ABSENT, .proof = PROOF_NEVER_STARTED};
}
/* It has ended, and who could have said how does not know it any more. */
static void ended_somehow(const struct scripted_driver *d, struct observation *o,
                          const struct run_key *k)
{
    *o = (struct observation){
        .key = *k, .state = RUN_ENDED, .proof = proof_of(d), .term_signal = SIGKILL};
    str_copy(o->reason, sizeof o->reason, "RunnerKilled");
}
static enum verdict by_record(struct work *w, struct observation *o)
{
    const struct scripted_record *r = &w->record;

    if (planted == SCRIPTED_ANY_EPOCH && !key_same(&r->key, &w->key))
        return V_NOTHING;
    if (r->state != RECORD_NONE && newer(&r->key, &w->key)) {
        absent(o, &w->key);
        return V_OLD;
    }
    if (r->state == RECORD_NONE || !key_same(&r->key, &w->key) || r->state == RECORD_OPEN)
        return V_NOTHING;
    if (r->state == RECORD_REFUSED) {
        absent(o, &w->key);
        return V_OLD;
    }
    if (r->gone || planted == SCRIPTED_GONE_IS_ENDED) {
        ended_somehow(w->d, o, &w->key);
        return V_SEEN;
    }
    return V_DOUBT;
}
enum verdict work_judge(struct work *w, struct observation *o, const struct scripted_view **ret_v)
{
    const struct scripted_view *v = view_pick(w, &w->key), *tomb = NULL;
    bool old = false, foreign = false;

    *ret_v = v;
    for (size_t i = 0; i < w->n; i++) {
        const struct scripted_view *x = &w->v[i];
        foreign |= !*x->cluster && key_same(&x->key, &w->key);
        old |= *x->cluster && newer(&x->key, &w->key);
        if (x->tombstone && key_same(&x->key, &w->key))
            tomb = x;
    }
    if (v && (!tomb || v->id < tomb->id || v->started)) {
        view_read(w->d, v, o);
        if (o->state != RUN_UNKNOWN)
            return V_SEEN;
        if (v->started || (!v->proved && !v->disowned))
            return V_DOUBT;
        if (w->d->kind != LIKE_KUBERNETES) { /* cancelled ahead of its start: it keeps its name */
            absent(o, &w->key);
            return V_OLD;
        }
    }
    if (w->d->kind == LIKE_KUBERNETES)
        return by_record(w, o) == V_NOTHING && foreign && !v ? V_STRANGER : by_record(w, o);
    if (tomb || (old && planted != SCRIPTED_ANY_EPOCH)) {
        absent(o, &w->key);
        return V_OLD;
    }
    /* The token was used, and a listing that began later than that knows nothing of it. */
    if (w->used_ms && loop_now_ms(w->d->loop) >= w->used_ms + LAG_MS) {
        ended_somehow(w->d, o, &w->key);
        return V_SEEN;
    }
    return V_NOTHING;
}
