/* What the scripted driver asks for, step by step: look first, seal what is to be absent, order
 * under the name, delete and wait for the proof. */
#include "tests/support/scripted/driver_internal.h"

#include <string.h>

#define LOOK_AGAIN_MS 300

static struct scripted_ask ask_of(const struct work *w, enum scripted_verb verb)
{
    struct scripted_ask q;

    memset(&q, 0, sizeof q);
    q.verb = verb;
    q.key = w->key;
    if (w->d->base.env.cluster_uid)
        str_copy(q.cluster, sizeof q.cluster, w->d->base.env.cluster_uid(w->d->base.env.arg));
    return q;
}

/* ---- looking ---- */
static void merge(struct work *w)
{
    for (size_t i = w->first; i < w->n; i++)
        for (size_t k = 0; k < w->first; k++) {
            struct scripted_view *a = &w->v[k], *b = &w->v[i];
            if (a->id != b->id)
                continue;
            a->started |= b->started;
            if (b->proved && a->phase != THING_OVER)
                *a = *b;
            b->removed = true; /* it is said once */
        }
}
static void looked(struct work *w);
static void accounted(struct work *w)
{
    if (w->end.error) { /* with 200: it has no accounts to tell */
        work_again(w, LOOK_AGAIN_MS);
        return;
    }
    merge(w);
    w->accounted = true;
    looked(w);
}
static void look_told(struct work *w)
{
    struct scripted_ask q = ask_of(w, ASK_ACCOUNT);

    w->record = w->end.record;
    if (w->d->kind == LIKE_SLURM && !w->accounted)
        work_send(w, &q, accounted);
    else
        looked(w);
}
static void look(struct work *w)
{
    struct scripted_ask q = ask_of(w, ASK_LOOK);

    w->n = 0;
    w->accounted = false;
    work_send(w, &q, look_told);
}

/* ---- a key that is to stay absent ---- */
static void sealed(struct work *w)
{
    struct observation o = {.key = w->key, .state = RUN_ABSENT, .proof = PROOF_NEVER_STARTED};

    if (w->d->kind == LIKE_CLOUD && w->n > w->first && w->v[w->n - 1].tombstone) {
        work_end(w, OUT_DONE, &o, 0); /* the token is used up by it */
        return;
    }
    if (w->end.status == 400 && !w->used_ms) /* of a cloud: there is a machine with that token */
        w->used_ms = loop_now_ms(w->d->loop);
    if (w->used_ms && loop_now_ms(w->d->loop) < w->used_ms + LAG_MS)
        work_again(w, LAG_MS);
    else
        look(w);
}
static void seal(struct work *w)
{
    bool kube = w->d->kind == LIKE_KUBERNETES;
    struct scripted_ask q = ask_of(w, kube ? ASK_RECORD : ASK_MAKE);

    q.revision = w->record.revision;
    q.record = RECORD_REFUSED;
    q.tombstone = true;
    work_send(w, &q, sealed);
}
static bool promised_here(struct work *w)
{
    list_for_each (it, &w->d->mine)
        if (key_same(&container_of(it, struct told, link)->key, &w->key))
            return true;
    return false;
}
/* Planted: the promise is not the target's. */
static void promise_here(struct work *w)
{
    struct observation o = {.key = w->key, .state = RUN_ABSENT, .proof = PROOF_NEVER_STARTED};
    struct told *x = mem_new(struct told);

    x->key = w->key;
    list_push(&w->d->mine, &x->link);
    work_end(w, OUT_DONE, &o, 0);
}
static void absent_now(struct work *w)
{
    if (planted == SCRIPTED_NO_PROMISE || planted == SCRIPTED_PROMISE_OF_MINE)
        promise_here(w);
    else
        seal(w);
}

/* ---- submit ---- */
static void made(struct work *w)
{
    struct observation o;
    const struct scripted_view *v;

    w->making = false;
    if (w->end.status == 409 || w->end.status == 400) { /* somebody has that name: who? */
        w->used_ms = w->end.status == 400 ? loop_now_ms(w->d->loop) : 0;
        work_again(w, w->used_ms ? LAG_MS : 0);
        return;
    }
    if (w->end.error) {
        work_refused(w);
        return;
    }
    if (!(v = view_pick(w, &w->key))) { /* a machine that was, and is not listed any more */
        w->used_ms = loop_now_ms(w->d->loop);
        work_again(w, LAG_MS);
        return;
    }
    view_read(w->d, v, &o);
    if (o.state == RUN_UNKNOWN) {
        work_again(w, LOOK_AGAIN_MS);
        return;
    }
    scripted_run_tell(w->d, v, &o, false);
    work_end(w, OUT_DONE, &o, 0);
}
static void make(struct work *w)
{
    struct scripted_ask q = w->order;

    w->n = 0;
    w->making = true;
    work_send(w, &q, made);
}
static void opened(struct work *w)
{
    w->record = w->end.record;
    if (w->end.status == 409)
        work_again(w, 0);
    else
        make(w);
}
static void submit_new(struct work *w)
{
    struct scripted_ask q = ask_of(w, ASK_RECORD);

    if (planted == SCRIPTED_PROMISE_OF_MINE && promised_here(w)) {
        work_end(w, OUT_REJECTED, NULL, E_CONFLICT);
        return;
    }
    if (w->d->kind != LIKE_KUBERNETES ||
        (w->record.state == RECORD_OPEN && key_same(&w->record.key, &w->key))) {
        make(w);
        return;
    }
    q.record = RECORD_OPEN;
    q.revision = w->record.revision;
    work_send(w, &q, opened);
}

/* ---- stop ---- */
static void deleted(struct work *w)
{
    struct observation o = {.key = w->key, .state = RUN_ENDED, .proof = PROOF_ACCOUNTING};

    if (planted == SCRIPTED_STOP_UNPROVED)
        work_end(w, OUT_DONE, &o, 0);
    else
        work_again(w, LOOK_AGAIN_MS);
}
static void stop_live(struct work *w, const struct scripted_view *v)
{
    struct scripted_ask q = ask_of(w, ASK_DELETE);

    if (!v || v->going || planted == SCRIPTED_NEVER_STOPS) {
        work_again(w, LOOK_AGAIN_MS); /* it is under way, or nobody knows where it is */
        return;
    }
    q.thing = v->id;
    q.grace_ms = w->grace_ms;
    work_send(w, &q, deleted);
}

/* ---- signal, finalize ---- */
static void signalled(struct work *w)
{
    if (w->end.status == 200)
        work_end(w, OUT_DONE, NULL, 0);
    else
        work_again(w, LOOK_AGAIN_MS);
}
static void act(struct work *w, enum scripted_verb verb, const struct scripted_view *v,
                void (*next)(struct work *w))
{
    struct scripted_ask q = ask_of(w, verb);

    q.thing = v->id;
    q.signo = w->signo;
    q.grace_ms = w->grace_ms;
    work_send(w, &q, next);
}
static void released(struct work *w)
{
    work_end(w, OUT_DONE, NULL, 0);
}

/* It is in no list, and the target cannot promise that it does not come. */
static void nowhere(struct work *w)
{
    struct observation o = {.key = w->key, .state = RUN_UNKNOWN, .unlisted = true};

    work_end(w, OUT_DONE, &o, 0);
}

static void looked(struct work *w)
{
    const struct scripted_view *v;
    struct observation o;
    enum verdict is = work_judge(w, &o, &v);
    bool over = is == V_OLD || (is == V_SEEN && (o.state == RUN_ENDED || o.state == RUN_ABSENT));

    if (is == V_SEEN && v)
        scripted_run_tell(w->d, v, &o, false);
    switch (w->kind) {
    case WORK_CHECK:
        if (over)
            scripted_end_tell(w->d, &o);
        if (is == V_NOTHING && w->d->kind == LIKE_CLOUD && !w->used_ms) {
            w->used_ms = loop_now_ms(w->d->loop); /* it was seen: its token is used */
            work_again(w, LAG_MS);
        } else {
            work_end(w, OUT_DONE, NULL, 0);
        }
        return;
    case WORK_SUBMIT:
        if (is == V_STRANGER || is == V_OLD)
            work_end(w, OUT_REJECTED, NULL, E_CONFLICT);
        else if (is == V_SEEN)
            work_end(w, OUT_DONE, &o, 0);
        else if (is == V_NOTHING)
            submit_new(w);
        else
            work_again(w, LOOK_AGAIN_MS);
        return;
    case WORK_FIND:
    case WORK_STOP:
        if (is == V_NOTHING && w->d->in_time)
            nowhere(w);
        else if (is == V_NOTHING || is == V_STRANGER)
            absent_now(w);
        else if (over || (is == V_SEEN && w->kind == WORK_FIND))
            work_end(w, OUT_DONE, &o, 0);
        else if (w->kind == WORK_STOP)
            stop_live(w, v);
        else
            work_again(w, LOOK_AGAIN_MS); /* nobody knows */
        return;
    case WORK_QUIESCE:
        if (over)
            work_end(w, OUT_DONE, NULL, 0);
        else if (is == V_SEEN && o.state == RUN_RUNNING)
            act(w, ASK_SIGNAL, v, signalled);
        else
            work_again(w, LOOK_AGAIN_MS);
        return;
    default: /* FINALIZE */
        if (v && planted == SCRIPTED_FINAL_ENDS)
            act(w, ASK_DELETE, v, released);
        else if (v && v->phase == THING_OVER)
            act(w, ASK_RELEASE, v, released);
        else
            work_end(w, OUT_DONE, NULL, 0);
    }
}

/* ---- lists ---- */
/* A second one of its name, which came late and never started: nobody else knows of it. */
static void let_go_of(struct work *w, const struct scripted_view *v)
{
    struct scripted_ask q = ask_of(w, ASK_RELEASE);

    q.thing = v->id;
    if (v->disowned && v->phase == THING_OVER && !v->removed && *v->cluster)
        work_send(w, &q, NULL);
}
static void end_of(struct work *w, const struct scripted_view *v)
{
    struct work *x = work_begin(w->d, v->phase == THING_OVER ? WORK_FINALIZE : WORK_STOP, &v->key,
                                NULL);

    x->grace_ms = 1000;
}
static void listed(struct work *w)
{
    struct scripted_driver *d = w->d;
    size_t n = w->n;

    for (size_t i = 0; i < n; i++) {
        const struct scripted_view *v = &w->v[i];
        struct run_listed l = {.since_ms = v->made_ms};
        let_go_of(w, v);
        if (v->removed || v->tombstone || view_pick(w, &v->key) != v) {
            if (!*v->cluster && planted == SCRIPTED_STRANGERS_TOO) {
                struct scripted_ask q = ask_of(w, ASK_DELETE);
                q.thing = v->id;
                work_send(w, &q, NULL);
            }
            continue;
        }
        view_read(d, v, &l.seen);
        str_copy(l.cluster, sizeof l.cluster, v->cluster);
        enum run_verdict is = w->judge(&l, w->judge_arg);
        if (is == RUN_LET_GO || planted == SCRIPTED_SWEEPS_ALL)
            end_of(w, v);
    }
    work_end(w, OUT_DONE, NULL, 0);
}
/* That it is gone says nothing; somebody has to ask. One at a time. */
static void check_missing(struct scripted_driver *d)
{
    list_for_each (it, &d->told) {
        struct told *x = container_of(it, struct told, link);
        if (d->checking || !x->missing)
            continue;
        d->checking = true;
        (void)work_begin(d, WORK_CHECK, &x->key, NULL);
        list_remove(&x->link); /* the others come first, next time */
        list_push(&d->told, &x->link);
        return;
    }
}
/* Of a listing that is whole: who was told to be there, and is not listed. */
static void look_for_missing(struct work *w)
{
    list_for_each (it, &w->d->told) {
        struct told *x = container_of(it, struct told, link);
        bool there = x->state != RUN_ENDED && x->state != RUN_ABSENT; /* an answer said so, too */
        x->missing |= there && !view_pick(w, &x->key);
    }
}
/* It was over before it began, and that was not told yet. */
static bool never_starts(struct work *w, const struct scripted_view *v)
{
    if (v->phase != THING_OVER || v->started || view_pick(w, &v->key) != v)
        return false;
    const struct told *x = scripted_told(w->d, &v->key);
    return x->state != RUN_ENDED && x->state != RUN_ABSENT;
}
static void polled(struct work *w)
{
    size_t n = w->n;

    if (w->all && planted != SCRIPTED_MISSES_GONE)
        look_for_missing(w);
    if (w->d->kind != LIKE_CLOUD) /* which cannot say what has changed */
        w->d->revision = w->revision;
    for (size_t i = 0; i < n; i++) {
        struct observation o;
        let_go_of(w, &w->v[i]);
        if (never_starts(w, &w->v[i])) /* who says so? */
            scripted_told(w->d, &w->v[i].key)->missing = true;
        if (w->v[i].removed && w->v[i].started && planted != SCRIPTED_MISSES_GONE)
            scripted_told(w->d, &w->v[i].key)->missing = true;
        if (view_pick(w, &w->v[i].key) != &w->v[i])
            continue;
        view_read(w->d, &w->v[i], &o);
        if (o.state != RUN_UNKNOWN)
            scripted_run_tell(w->d, &w->v[i], &o, true);
    }
    check_missing(w->d);
    work_end(w, OUT_DONE, NULL, 0);
}
static void poll_accounted(struct work *w)
{
    if (w->end.error) {
        work_end(w, OUT_UNKNOWN, NULL, E_UNAVAIL);
        return;
    }
    merge(w);
    polled(w);
}
static void poll_listed(struct work *w)
{
    struct scripted_ask q = ask_of(w, ASK_ACCOUNT);

    if (w->end.status == 410) { /* it cannot say what has changed: all of it, then */
        w->d->revision = 0;
        work_end(w, OUT_UNKNOWN, NULL, E_STALE);
        return;
    }
    w->revision = w->end.revision;
    memset(&q.key, 0, sizeof q.key);
    q.since = w->all ? 0 : w->d->revision;
    if (w->d->kind == LIKE_SLURM)
        work_send(w, &q, poll_accounted);
    else
        polled(w);
}
static void nodes_told(struct work *w)
{
    if (w->kind == WORK_INVENTORY)
        scripted_nodes_tell(w->d, w);
    work_end(w, OUT_DONE, NULL, 0);
}

void work_first(struct work *w)
{
    struct scripted_ask q;

    w->n = w->n_nodes = 0;
    switch (w->kind) {
    case WORK_PROBE:
    case WORK_INVENTORY:
        q = ask_of(w, ASK_NODES);
        work_send(w, &q, nodes_told);
        return;
    case WORK_SWEEP:
        q = ask_of(w, ASK_LIST);
        work_send(w, &q, listed);
        return;
    case WORK_POLL:
        q = ask_of(w, ASK_LIST);
        q.since = w->d->revision;
        w->all = !q.since;
        work_send(w, &q, poll_listed);
        return;
    case WORK_SUBMIT:
        if (planted == SCRIPTED_BLIND_SUBMIT) {
            make(w);
            return;
        }
        /* fall through */
    default:
        look(w);
    }
}
