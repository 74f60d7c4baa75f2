/* What follows from the objects of a run, and telling what is news of it. An end is one that the
 * kubelets have told of each pod that was admitted; absence, that none was admitted nor will be, or
 * that none of them began. Whatever else is missing leaves the run unknown. */
#include "connectors/kubernetes/runs/runs_internal.h"

#include "api/base/failpoint.h"
#include "api/base/hash.h"
#include "api/base/log.h"
#include "connectors/ends.h"

#include <stdio.h>
#include <string.h>

#define HOME_LATE_MS 10000 /* so long runners may take to call home before that is told */

bool kube_over(const struct observation *o)
{
    return o->state == RUN_ENDED || o->state == RUN_ABSENT;
}

bool kube_run_settled(const struct kube_run *x)
{
    return x->job && list_empty(&x->pods) && x->end && (x->tombstone || x->deleting);
}

bool kube_has_run(const struct kube_runs *r, const struct run_key *k)
{
    const struct connector_env *e = &r->env.base->env;
    struct run_where where = {.ran = false};
    AUTO_ARENA a = arena_create(0);

    return e->where && e->where(e->arg, k, a, &where) && where.ran;
}

/* ---- its pods ---- */
struct tally {
    int64_t ranks, told; /* of the run; of which there is a pod */
    int64_t ended, never, runs, starts, waits, gated, silent, lost;
    int64_t decide, good;         /* of those that decide: they are told; they have ended well */
    const struct kube_pod *why;   /* the first that says something */
    const struct kube_pod *first; /* that failed */
    const struct kube_pod *last;  /* of those that decide, that ended well */
};

/* By its Job's admission; where there is none any more, what is not gated has been admitted. */
static bool is_counted(const struct kube_run *x, const struct kube_pod *p)
{
    return x->admitted ? p->named : p->seen.is != POD_GATED;
}

/* When its end began: it was deleted while it ran, or ended by itself. */
static int64_t began_to_end(const struct kube_pod_seen *s)
{
    return s->asked_ms && s->asked_ms < s->ended_ms ? s->asked_ms : s->ended_ms;
}

/* Times are told in whole seconds: of two in one, who was asked to end was so because of the other
 * one. */
static bool is_earlier(const struct kube_pod *a, const struct kube_pod *b)
{
    int64_t at = began_to_end(&a->seen), bt = began_to_end(&b->seen);

    if (at != bt)
        return at < bt;
    if (a->seen.deleting != b->seen.deleting)
        return b->seen.deleting;
    return a->seen.rank < b->seen.rank;
}

static bool has_failed(const struct kube_pod_seen *s)
{
    return s->is == POD_ENDED && (s->exit_code || s->term_signal || *s->reason);
}

static void count(struct tally *t, const struct kube_pod *p)
{
    const struct kube_pod_seen *s = &p->seen;

    t->told++;
    t->ended += s->is == POD_ENDED;
    t->never += s->is == POD_NEVER;
    t->runs += s->is == POD_RUNS;
    t->starts += s->is == POD_STARTS;
    t->waits += s->is == POD_WAITS;
    t->gated += s->is == POD_GATED;
    t->silent += s->is == POD_SILENT;
    t->lost += s->is == POD_LOST;
    if ((*s->reason || *s->message) && s->is != POD_ENDED && s->is != POD_GATED && !t->why)
        t->why = p;
    t->decide += !s->follows;
    if (!s->follows && s->is == POD_ENDED && !has_failed(s)) {
        t->good++;
        t->last = t->last && is_earlier(p, t->last) ? t->last : p;
    }
    if (has_failed(s) && (!t->first || is_earlier(p, t->first)))
        t->first = p;
}

/* Of those that no admission names, an end counts once for each rank. */
static bool is_another(const struct kube_run *x, const struct kube_pod *p, bool *ended)
{
    int64_t rank = p->seen.rank;
    bool was;

    if (x->admitted || p->seen.is != POD_ENDED)
        return false;
    if (rank < 0 || rank >= LIMIT_GANG_MAX || rank >= x->mark.ranks)
        return true;
    was = ended[rank];
    ended[rank] = true;
    return was;
}

static struct tally tally_of(const struct kube_run *x)
{
    struct tally t = {.ranks = x->mark.ranks};
    bool has_ended[LIMIT_GANG_MAX] = {false};

    list_for_each (it, &x->pods) {
        const struct kube_pod *p = container_of(it, struct kube_pod, link);
        if (is_counted(x, p) && !is_another(x, p, has_ended))
            count(&t, p);
    }
    if (t.decide && t.good == t.decide && t.first && t.first->seen.follows &&
        !is_earlier(t.first, t.last))
        t.first = NULL; /* those that decide had ended well, and so it was ended */
    return t;
}

bool kube_run_decided(const struct kube_run *x)
{
    struct tally t = {.ranks = 0};
    bool failed = false;
    int64_t over = 0;

    if (!x->kind || !x->admitted)
        return false;
    list_for_each (it, &x->pods) {
        const struct kube_pod *p = container_of(it, struct kube_pod, link);
        if (!p->named)
            continue;
        count(&t, p);
        failed = failed || has_failed(&p->seen);
        over += !p->seen.follows && (p->seen.is == POD_ENDED || p->seen.is == POD_NEVER);
    }
    return failed || (t.told == x->mark.ranks && t.decide && over == t.decide);
}

static void words(struct observation *o, const struct kube_pod *p)
{
    if (!p)
        return;
    str_copy(o->reason, sizeof o->reason, p->seen.reason);
    str_copy(o->message, sizeof o->message, p->seen.message);
}

static void ended(const struct kube_run *x, const struct tally *t, struct observation *o)
{
    o->state = t->ended ? RUN_ENDED : RUN_ABSENT;
    o->proof = t->ended ? PROOF_CONTAINERS_ENDED : PROOF_NEVER_STARTED;
    if (t->first) {
        words(o, t->first);
        o->exit_code = t->first->seen.exit_code;
        o->term_signal = t->first->seen.term_signal;
    } else if (t->never) {
        words(o, t->why);
    }
    o->stopped = t->ended && x->stopping;
}

static void lives(const struct tally *t, struct observation *o)
{
    words(o, t->why);
    if (!t->ranks || t->lost || t->silent || t->told < t->ranks)
        o->state = RUN_UNKNOWN;
    else if (t->runs + t->ended == t->ranks)
        o->state = RUN_RUNNING;
    else if (t->waits + t->gated == t->ranks && t->waits)
        o->state = t->why ? RUN_PENDING : RUN_STARTING;
    else
        o->state = RUN_STARTING;
    if (!t->ranks || t->told < t->ranks) {
        str_copy(o->reason, sizeof o->reason, "PodGone");
        str_copy(o->message, sizeof o->message,
                 "a pod of it is not there any more, which does not prove that its program has "
                 "ended");
    }
}

/* Its Job had admitted these, or nobody knows any more which ones: then each rank must have
 * ended. */
static void by_pods(const struct kube_run *x, struct observation *o)
{
    struct tally t = tally_of(x);
    bool all = t.told == t.ranks && t.ended + t.never == t.ranks;

    if (PLANTED("kube.gone-is-ended") && t.told < t.ranks) {
        t.ended = t.ranks;
        all = true;
    }

    if (!all || !t.ranks || !(x->admitted || t.ended == t.ranks)) {
        lives(&t, o);
    } else if (!t.ended && kube_has_run(x->r, &x->key)) {
        o->state = RUN_UNKNOWN;
        str_copy(o->message, sizeof o->message, KUBE_RAN_AND_NEVER);
    } else {
        ended(x, &t, o);
    }
}

/* ---- its Job ---- */
bool kube_run_has_strays(const struct kube_run *x)
{
    list_for_each (it, &x->pods) {
        const struct kube_pod *p = container_of(it, struct kube_pod, link);
        if (p->seen.is != POD_NEVER && (p->seen.is != POD_GATED || strcmp(p->owner, x->uid) != 0))
            return true;
    }
    return false;
}

static void absent(const struct kube_run *x, struct observation *o)
{
    o->state = RUN_ABSENT;
    o->proof = PROOF_NEVER_STARTED;
    if (!x->failed && !x->refused)
        return;
    str_copy(o->reason, sizeof o->reason, end_text(END_TARGET_REFUSED));
    str_cut(o->message, sizeof o->message, x->trouble ? x->trouble : "its Job has failed");
}

/* Of this Job, and past its gate without our leave. */
static const struct kube_pod *ungated(const struct kube_run *x)
{
    list_for_each (it, &x->pods) {
        const struct kube_pod *p = container_of(it, struct kube_pod, link);
        if (p->seen.is != POD_GATED && p->seen.is != POD_NEVER && p->name &&
            strcmp(p->owner, x->uid) == 0)
            return p;
    }
    return NULL;
}

static void astray(const struct kube_run *x, struct observation *o)
{
    const struct kube_pod *p = ungated(x);

    by_pods(x, o);
    if (o->state == RUN_PENDING || o->state == RUN_STARTING)
        o->state = RUN_UNKNOWN;
    if (o->state != RUN_UNKNOWN || !p)
        return;
    str_copy(o->reason, sizeof o->reason, "NotAdmitted");
    (void)snprintf(
        o->message, sizeof o->message,
        "somebody took the gate of its pod %.100s away, and this hub has not admitted it: "
        "nothing else of it is begun; delete that pod, or hanse fence the run once it is "
        "known to be over",
        p->name);
}

static void not_admitted(const struct kube_run *x, struct observation *o)
{
    if ((kube_run_has_strays(x) || x->lost) && !PLANTED("kube.lost-is-absent")) {
        astray(x, o);
    } else if (x->deleting || x->tombstone) {
        absent(x, o);
    } else if (x->suspended || x->queued) {
        o->state = RUN_PENDING;
        str_copy(o->reason, sizeof o->reason, "Suspended");
        (void)snprintf(o->message, sizeof o->message,
                       "its %s is suspended: a queue of the cluster holds it, or somebody does",
                       x->kind ? x->kind->kind : "Job");
    } else if (x->trouble) {
        o->state = RUN_PENDING;
        str_copy(o->reason, sizeof o->reason, "FailedCreate");
        str_cut(o->message, sizeof o->message, x->trouble);
    } else {
        o->state = RUN_STARTING;
    }
}

/* Its pods have gone with our leave: what they proved stands at its Job. */
static bool by_record(const struct kube_run *x, struct arena *a, struct observation *o)
{
    struct observation *kept = NULL;

    if (!x->job || !x->end ||
        wire_read_body(&schema_observation, slice_make(x->end, strlen(x->end)), a, (void **)&kept,
                       NULL) < 0 ||
        !kube_over(kept) || !run_key_same(&kept->key, &x->key))
        return false;
    *o = *kept;
    observation_settle(o);
    return true;
}

/* ---- its workers ---- */
static void workers_of(const struct kube_run *x, struct arena *a, struct run_workers *ret)
{
    int64_t told = kube_runs_wall_ms(x->r);
    int64_t now = told ? told : loop_wall_ms(x->r->env.base->env.loop);
    size_t n = 0;

    list_for_each (it, &x->pods)
        n++;
    *ret = (struct run_workers){.key = x->key, .clock_ms = now};
    ret->workers = arena_array(a, struct run_worker, n + 1);
    list_for_each (it, &x->pods) {
        const struct kube_pod *p = container_of(it, struct kube_pod, link);
        const struct kube_pod_seen *s = &p->seen;
        if (!is_counted(x, p) || s->rank < 0 || !*p->node || ret->n_workers == LIMIT_GANG_MAX)
            continue;
        ret->workers[ret->n_workers++] =
            (struct run_worker){.rank = s->rank,
                                .node = arena_printf(a, "%s.%s", x->r->env.base->target, p->node),
                                .exit_code = s->exit_code,
                                .term_signal = s->term_signal,
                                .reason = s->is == POD_ENDED ? arena_strdup(a, s->reason) : "",
                                .started_ms = s->started_ms,
                                .ended_ms = s->ended_ms,
                                .id = arena_printf(a, "%s/%s", p->name, p->uid)};
        if (s->ended_ms > ret->clock_ms)
            ret->clock_ms = s->ended_ms;
        if (s->started_ms > ret->clock_ms)
            ret->clock_ms = s->started_ms;
    }
}

/* ---- what its runners say ---- */
static void reports_take(struct kube_run *x, struct arena *a, struct observation *o,
                         struct run_workers *workers)
{
    const struct kube_runs_env *e = &x->r->env;
    const struct report_reader from = {.target = e->base->target,
                                       .keys = e->base->env.keys,
                                       .checkpoints =
                                           kube_calls_home(object_as(e->doc, target)->spec)};
    uint32_t n = (uint32_t)(x->mark.ranks > 0 ? x->mark.ranks : 0);
    const char **texts = arena_array(a, const char *, n + 1);
    struct err err;

    list_for_each (it, &x->pods) {
        const struct kube_pod *p = container_of(it, struct kube_pod, link);
        if (is_counted(x, p) && p->left && p->seen.rank >= 0 && p->seen.rank < (int64_t)n)
            texts[p->seen.rank] = p->left;
    }
    if (report_left_take(&from, texts, n, o, workers, a, &err) < 0) {
        log_err(LOG_WARN, "kubernetes.report", &err);
        *o = (struct observation){.key = x->key, .seen_ms = o->seen_ms};
        str_copy(o->message, sizeof o->message, err.text);
    }
}

/* Its program failed, and nobody says why: then it is so by what the cluster did to its pod first.
 * What had failed by itself is not excused by a deletion that comes later. */
static void blame_cluster(const struct kube_run *x, struct observation *o)
{
    const struct kube_pod *p = tally_of(x).first;

    if (o->state != RUN_ENDED || x->stopping || *o->reason || !p ||
        (!o->exit_code && !o->term_signal) || end_says_saved(o->exit_code, o->term_signal, ""))
        return;
    words(o, p);
    if (*o->reason || !p->seen.deleting || began_to_end(&p->seen) != p->seen.asked_ms)
        return;
    str_copy(o->reason, sizeof o->reason, end_text(END_RUNNER_KILLED));
    str_copy(o->message, sizeof o->message,
             "its pod was deleted, or its Job suspended, and not by this hub");
}

/* Those of its pods that have ended, whoever heard their runners' end. */
static void ends_tell(const struct kube_run *x)
{
    list_for_each (it, &x->pods) {
        const struct kube_pod *p = container_of(it, struct kube_pod, link);
        if (x->admitted && p->named && p->seen.is == POD_ENDED)
            home_runs_over(x->r->env.home, &x->key, p->seen.rank);
    }
}

/* Its kubelet is silent, and its runners are not: they are here, and say how it is. */
static void heard_at_home(const struct kube_run *x, struct observation *o)
{
    const struct tally t = tally_of(x);

    if (o->state != RUN_UNKNOWN || !t.silent || t.lost || t.told < t.ranks ||
        !home_runs_reach(x->r->env.home, &x->key))
        return;
    o->state = RUN_RUNNING;
    o->reason[0] = o->message[0] = '\0';
}

/* Its pods run, and their programs wait for a hub that has heard of all their runners. */
static void unheard(struct kube_run *x, bool runs, struct observation *o)
{
    uint64_t now = loop_now_ms(x->r->env.base->env.loop);

    if (!runs || o->state != RUN_STARTING || *o->reason ||
        home_runs_reach(x->r->env.home, &x->key)) {
        x->unheard_ms = 0;
        return;
    }
    if (!x->unheard_ms)
        x->unheard_ms = now + HOME_LATE_MS;
    if (now < x->unheard_ms) {
        kube_run_later(x, x->unheard_ms - now);
        return;
    }
    str_copy(o->reason, sizeof o->reason, "NotCalledHome");
    str_cut(o->message, sizeof o->message,
            "its pods run, and not each of their runners has called home yet: do pods reach the "
            "hub (spec.connection.homeProxy, hanse server --advertise)? Their own logs say what "
            "they tried");
}

void kube_run_judge(struct kube_run *x, struct arena *a, struct observation *ret,
                    struct run_workers *ret_workers)
{
    const struct kube_runs_env *e = &x->r->env;

    *ret = (struct observation){.key = x->key};
    workers_of(x, a, ret_workers);
    if (!by_record(x, a, ret)) {
        if (x->job && !x->admitted)
            not_admitted(x, ret);
        else if (x->admitted || !list_empty(&x->pods))
            by_pods(x, ret);
        ret->seen_ms = loop_now_ms(e->base->env.loop);
        reports_take(x, a, ret, ret_workers);
        blame_cluster(x, ret);
    }
    ret->seen_ms = loop_now_ms(e->base->env.loop);
    if (x->foreign || !e->home || !kube_calls_home(object_as(e->doc, target)->spec))
        return;
    ends_tell(x);
    heard_at_home(x, ret);
    bool runs = ret->state == RUN_RUNNING;
    home_runs_fill(e->home, ret);
    unheard(x, runs, ret);
}

/* ---- telling ---- */
/* Where its pods were put, once all of them have a node. */
static void seat(struct kube_run *x, const struct run_workers *w, struct arena *a)
{
    const struct connector_env *e = &x->r->env.base->env;
    struct placement p = {
        .target = x->r->env.base->target, .class_ = "", .domain = "", .decision = ""};

    if (x->seated || !w->n_workers || (int64_t)w->n_workers != x->mark.ranks)
        return;
    p.n_assignments = w->n_workers;
    p.assignments = arena_array(a, struct assignment, w->n_workers);
    for (uint32_t i = 0; i < w->n_workers; i++)
        p.assignments[i] =
            (struct assignment){.rank = w->workers[i].rank, .node = w->workers[i].node, .mig = ""};
    x->seated = true;
    if (e->events->seated)
        e->events->seated(e->arg, &x->key, &p);
}

static uint64_t hash_number(uint64_t h, int64_t v)
{
    return (h ^ (uint64_t)v) * 1099511628211u;
}

static uint64_t hash_line(uint64_t h, const char *s) /* with its zero */
{
    return hash_more(h, s, strlen(s) + 1);
}

static uint64_t hash_worker(uint64_t h, const struct run_worker *w)
{
    h = hash_number(h, w->rank);
    h = hash_number(h, w->exit_code);
    h = hash_number(h, w->term_signal);
    h = hash_number(h, w->started_ms);
    h = hash_number(h, w->ended_ms);
    return hash_line(hash_line(hash_line(h, w->node), w->reason), w->id);
}

static void workers_tell(struct kube_run *x, const struct run_workers *w)
{
    const struct connector_env *e = &x->r->env.base->env;
    uint64_t h = HASH_START;

    for (uint32_t i = 0; i < w->n_workers; i++)
        h = hash_worker(h, &w->workers[i]);
    if (!w->n_workers || (x->told && h == x->told_workers))
        return;
    x->told_workers = h;
    if (e->events->workers)
        e->events->workers(e->arg, w);
}

static uint64_t hash_of(const struct observation *o)
{
    const int64_t numbers[] = {o->state,
                               o->proof,
                               o->exit_code,
                               o->term_signal,
                               o->lease_lost,
                               o->stopped,
                               o->checkpoint.step,
                               o->grant,
                               o->position,
                               o->lease_held,
                               o->save.number,
                               o->save.state,
                               o->checkpoint.present};
    uint64_t h = HASH_START;

    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        h = hash_number(h, numbers[i]);
    return hash_line(hash_line(hash_line(h, o->reason), o->checkpoint.digest), o->message);
}

/* Ahead of an answer, too: where it is, and what is known of its workers. */
static void ahead(struct kube_run *x, struct arena *a, const struct observation *o,
                  const struct run_workers *w)
{
    if (o->state == RUN_STARTING || o->state == RUN_RUNNING || o->state == RUN_ENDED)
        seat(x, w, a);
    workers_tell(x, w);
}

void kube_run_answer(struct kube_run *x, struct observation *ret)
{
    struct run_workers w;
    AUTO_ARENA a = arena_create(0);

    kube_run_judge(x, a, ret, &w);
    ahead(x, a, ret, &w);
}

void kube_run_tell(struct kube_run *x)
{
    const struct connector_env *e = &x->r->env.base->env;
    struct observation o;
    struct run_workers w;
    AUTO_ARENA a = arena_create(0);

    if (!kube_runs_ready(x->r))
        return;
    kube_run_judge(x, a, &o, &w);
    bool late = x->kind && x->end && x->deleting && !list_empty(&x->pods); /* its controller's */
    if ((o.state == RUN_ABSENT || late) && x->job && !kube_run_settled(x))
        kube_run_unasked(x->r, &x->key, KUBE_FINALIZE, 0); /* nobody else will */
    bool over = x->told && (x->told_state == RUN_ENDED || x->told_state == RUN_ABSENT);
    if (over && o.state != x->told_state)
        return;
    if (o.state == RUN_UNKNOWN && !x->told)
        return; /* of one that was never told alive, it is no news */
    uint64_t h = hash_of(&o);
    ahead(x, a, &o, &w);
    if (x->told && x->told_hash == h)
        return;
    x->told = true;
    x->told_hash = h;
    x->told_state = o.state;
    e->events->observed(e->arg, &o);
}
