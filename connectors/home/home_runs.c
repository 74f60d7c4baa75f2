/* The hub's side of runs whose runners call home: their sessions, by run and rank. It is a part of
 * a driver, and holds no truth: what it knows each runner tells again when it dials. What a runner
 * says is about itself; that a run has ended is the target's word, never this file's. */
#include "connectors/home/home_internal.h"

#include "api/base/log.h"
#include "connectors/pace.h"

#include <search.h>
#include <string.h>

#define RUNNERS_MAX 8192   /* of one target, also those that were here and are not */
#define ROOM_EVERY_MS 1000 /* among them it is looked for those that are not waited for any more */
#define SILENCE_MS 5000    /* five missed beats */
#define LAST_LOOKS 3       /* turns of the loop in which what lies in the socket is read first */
#define FRAME_MAX_BYTES 65536
static const struct stream_events nobody = {0};

static int by_key(const void *a, const void *b)
{
    return run_key_compare(&((const struct home_run *)a)->key, &((const struct home_run *)b)->key);
}

struct home_run *home_run_find(const struct home_runs *h, const struct run_key *k)
{
    const struct home_run wanted = {.key = *k};
    struct home_run **found = tfind(&wanted, &h->by_key, by_key);

    return found ? *found : NULL;
}

struct home_run *home_run_newest(const struct home_runs *h, const struct run_key *k)
{
    struct home_run *found = k->try_ ? home_run_find(h, k) : NULL;

    if (k->try_)
        return found;
    list_for_each (it, &h->all) {
        struct home_run *r = container_of(it, struct home_run, link);
        if (r->key.epoch == k->epoch && run_key_same_workload(&r->key, k) &&
            (!found || r->key.try_ > found->key.try_))
            found = r;
    }
    return found;
}

struct home_session *home_session_find(const struct home_run *r, int64_t rank)
{
    list_for_each (it, &r->sessions) {
        struct home_session *x = container_of(it, struct home_session, link);
        if (x->rank == rank)
            return x;
    }
    return NULL;
}

static bool run_here(const struct home_run *r)
{
    list_for_each (it, &r->sessions)
        if (container_of(it, struct home_session, link)->stream)
            return true;
    return false;
}

bool home_rank_over(const struct home_run *r, int64_t rank)
{
    return r->over && rank >= 0 && rank < r->ranks && r->over[rank];
}

/* Leases are renewed for all ranks of a run or for none: whoever counts them counts one. A rank
 * that has ended needs none. Where one waits for all others ahead of its start, an end that nobody
 * heard may be one without a start: then it would wait for ever. */
static bool run_whole(const struct home_run *r)
{
    int64_t n = 0, over = r->n_over; /* of which nobody has heard the end */
    bool waits = false;

    list_for_each (it, &r->sessions) {
        const struct home_session *x = container_of(it, struct home_session, link);
        bool told = x->stream || x->report.step == RUN_STEP_ENDED;
        n += told;
        over -= told && home_rank_over(r, x->rank);
        waits |= x->stream && x->report.step == RUN_STEP_STARTING;
    }
    return n + (waits ? 0 : over) >= r->ranks && run_here(r);
}

/* Nothing more comes from it; what it said stays. */
static void session_gone(struct home_session *x)
{
    uint64_t now = loop_now_ms(x->run->home->loop), lapses;

    timer_stop(&x->look);
    frame_reader_fini(&x->reader);
    x->stream = NULL;
    asked_lost(&x->streams, "");
    home_keep_lost(x);
    lapses = home_lapses_ms(x);
    if (lapses)
        timer_start(&x->look, lapses > now ? lapses - now : 1);
}

static void session_cut(struct home_session *x, const char *why)
{
    struct stream *s = x->stream;

    if (!s)
        return;
    session_gone(x);
    stream_set(s, &nobody, NULL);
    stream_abort(s, why);
}

static void run_free(struct home_run *r, const char *why)
{
    while (!list_empty(&r->sessions)) {
        struct home_session *x = container_of(r->sessions.next, struct home_session, link);
        session_cut(x, why);
        timer_stop(&x->look);
        home_keep_end(x);
        list_remove(&x->link);
        r->home->n--;
        mem_free(x);
    }
    list_remove(&r->link);
    timer_stop(&r->look);
    (void)tdelete(r, &r->home->by_key, by_key);
    mem_free(r->over);
    mem_free(r);
}

/* Room for one more: those go that the log has left behind. Of whoever else is silent it still
 * counts since when, and what it said last. */
static bool room_make(struct home_runs *h)
{
    uint64_t now = loop_now_ms(h->loop);

    if (h->n < RUNNERS_MAX)
        return true;
    if (h->room_ms && now - h->room_ms < ROOM_EVERY_MS)
        return false;
    h->room_ms = now;
    list_for_each_safe (it, tmp, &h->all) {
        struct home_run *r = container_of(it, struct home_run, link);
        if (!run_here(r) && !home_run_lives(r))
            run_free(r, "");
    }
    return h->n < RUNNERS_MAX;
}

/* ---- what a runner says ---- */
static void beat(struct home_session *x, uint64_t at_ms)
{
    memmove(x->beats + 1, x->beats, sizeof x->beats - sizeof *x->beats);
    x->beats[0] = (struct beat){at_ms, loop_now_ms(x->run->home->loop)};
}

static uint64_t lease_from(const struct home_session *x)
{
    const struct beat *b = &x->beats[0];

    return pace_lease_from(b->at_ms, loop_now_ms(x->run->home->loop) - b->received_ms);
}

/* Ranks that have verified what they resume from wait until all have: a run whose checkpoint does
 * not hold for one of them starts nowhere. */
static void go(const struct home_run *r)
{
    const struct shim_stop never = {.signo = 0};
    int64_t n = 0;
    bool none = false;

    list_for_each (it, &r->sessions) {
        const struct run_report *p = &container_of(it, struct home_session, link)->report;
        n += p->ready || (p->step > RUN_STEP_STARTING && !p->never_started);
        none = none || (p->step == RUN_STEP_ENDED && p->never_started);
    }
    list_for_each (it, &r->sessions) {
        const struct home_session *x = container_of(it, struct home_session, link);
        if (!x->stream || !x->report.ready)
            continue;
        if (none)
            wire_tell(x->stream, HOME_STOP, 0, shim_stop, &never);
        else if (n >= r->ranks)
            frame_send(x->stream, HOME_GO, 0, 0, NULL, 0);
    }
}

static void save_send(const struct home_session *x)
{
    const struct home_run *r = x->run;
    const struct shim_save q = {.grace_ms = r->save_grace_ms, .number = r->save_number};

    if (x->stream && x->report.save.number < r->save_number)
        wire_tell(x->stream, HOME_SAVE, 0, shim_save, &q);
}

static void tell(const struct home_run *r)
{
    go(r);
    r->home->ev->told(r->home->arg, &r->key);
}

/* Returns an error when it is none of what a runner says. told: the caller hears of it, once this
 * returns. */
static int frame_take(struct home_session *x, const struct frame *f, bool *ret_told,
                      struct err *err)
{
    AUTO_ARENA m = arena_create(0);
    struct wire_beat *b = NULL;
    struct run_report *report = NULL;
    int rc = 0;

    if (f->type == HOME_BEAT) {
        rc = wire_read(wire_beat, f->body, m, &b, err);
        if (rc == 0) {
            beat(x, b->at_ms);
            frame_send(x->stream, HOME_BEAT, 0, 0, NULL, 0);
        }
    } else if (f->type == HOME_REPORT) {
        rc = wire_read(run_report, f->body, m, &report, err);
        if (rc == 0) {
            if (report->grant < x->report.grant) /* a grant never goes back */
                return err_set(err, E_INVALID, "its lease went back");
            x->report = *report;
            checkpoint_settle(&x->report.cut);
            frame_send(x->stream, HOME_HEARD, 0, f->id, NULL, 0);
            *ret_told = true;
        }
    } else if (asked_is_frame(f->type)) {
        rc = home_stream_frame(x, f, err);
    }
    return rc;
}

struct feeding {
    struct home_session *x;
    bool told;
};

static int session_frame(const struct frame *f, void *arg)
{
    struct feeding *w = arg;
    struct err err;

    w->x->heard_ms = loop_now_ms(w->x->run->home->loop);
    w->x->looks = 0;
    if (f->body.n <= FRAME_MAX_BYTES && frame_take(w->x, f, &w->told, &err) == 0)
        return 0;
    session_cut(w->x, "what it says cannot be read");
    return 1;
}

static void session_data(struct stream *s, const void *p, size_t n, void *arg)
{
    struct home_session *x = arg;
    struct feeding w = {x, false};
    struct err err;

    (void)s;
    if (x->reader.in.n + n > (size_t)2 * FRAME_MAX_BYTES ||
        frame_feed(&x->reader, p, n, session_frame, &w, &err) < 0)
        session_cut(x, "what it says cannot be read");
    if (w.told)
        tell(x->run);
}

static void session_closed(struct stream *s, const struct err *why, void *arg)
{
    struct home_session *x = arg;

    (void)s;
    (void)why;
    session_gone(x);
}

static const struct stream_events session_events = {.data = session_data, .closed = session_closed};

/* A stall of this process is not its silence: what lies in the socket is read first. */
static void session_look(void *arg)
{
    struct home_session *x = arg;
    uint64_t silent = loop_now_ms(x->run->home->loop) - x->heard_ms;

    if (!x->stream) {
        tell(x->run); /* its lease is over */
    } else if (silent < SILENCE_MS) {
        timer_start(&x->look, SILENCE_MS - silent);
    } else if (x->looks++ < LAST_LOOKS) {
        timer_start(&x->look, 1);
    } else {
        session_cut(x, "the runner is silent");
    }
}

/* ---- arrivals ---- */
/* One that has begun, and was another process, began with this token once: it must not again. */
static const char *refusal(const struct home_session *x, const struct home_hello *h)
{
    if (!x || strcmp(x->instance, h->instance) == 0)
        return NULL;
    if (x->stream || x->report.step > RUN_STEP_STARTING)
        return "another runner has come with its token: a run is started once";
    return NULL;
}

static void run_look(void *arg)
{
    tell(arg); /* the lease is over of those who have not called */
}

struct home_run *home_run_make(struct home_runs *h, const struct run_key *k, int64_t ranks)
{
    struct home_run *r = mem_new(struct home_run);

    r->home = h;
    r->key = *k;
    r->ranks = ranks;
    r->since_ms = loop_now_ms(h->loop);
    timer_init(&r->look, h->loop, run_look, r);
    list_init(&r->sessions);
    list_push(&h->all, &r->link);
    INV(tsearch(r, &h->by_key, by_key));
    return r;
}

static struct home_session *session_make(struct home_run *r, int64_t rank)
{
    struct home_session *x = mem_new(struct home_session);

    x->run = r;
    x->rank = rank;
    home_streams_init(x);
    timer_init(&x->look, r->home->loop, session_look, x);
    list_push(&r->sessions, &x->link);
    r->home->n++;
    return x;
}

int home_runs_take(struct home_runs *h, const struct home_arrival *a, struct err *err)
{
    const struct home_token *t = a->token;
    struct home_run *r = home_run_find(h, &t->key);
    struct home_session *x = r ? home_session_find(r, t->rank) : NULL;
    const char *why = refusal(x, a->hello);

    if (why) {
        home_refuse(a->stream, HOME_TOKEN_SPENT, why);
        return err_set(err, E_CONFLICT, "%s", why);
    }
    if (!x && !room_make(h)) {
        home_refuse(a->stream, HOME_NOT_NOW,
                    "too many runners of its target are here, or waited for");
        return err_set(err, E_LIMIT, "more than %d runners are here, or waited for", RUNNERS_MAX);
    }
    if (!r || !home_run_find(h, &t->key)) /* room_make may have let it go */
        r = home_run_make(h, &t->key, t->ranks);
    if (!x || !home_session_find(r, t->rank))
        x = session_make(r, t->rank);
    session_cut(x, "its runner has dialed again");
    x->stream = a->stream;
    str_copy(x->instance, sizeof x->instance, a->hello->instance);
    x->report = *a->hello->report;
    checkpoint_settle(&x->report.cut);
    x->logs = a->hello->logs;
    x->execs = a->hello->execs;
    x->keeps = x->streams.places = a->hello->keeps;
    x->streams.to = a->stream;
    x->heard_ms = loop_now_ms(h->loop);
    x->looks = 0;
    memset(x->beats, 0, sizeof x->beats);
    beat(x, a->hello->at_ms);
    frame_reader_init(&x->reader);
    timer_start(&x->look, SILENCE_MS);
    stream_set(a->stream, &session_events, x);
    struct home_welcome w = a->welcome ? *a->welcome : (struct home_welcome){.node = ""};
    w.keeps = a->keep && x->keeps;
    home_session_welcome(x, w);
    home_keep_begin(x, a->keep);
    save_send(x);
    tell(r);
    return 0;
}

/* ---- to runners ---- */
void home_runs_renew(struct home_runs *h, const struct run_offer *offers, size_t n)
{
    list_for_each (it, &h->all) {
        const struct home_run *r = container_of(it, struct home_run, link);
        const struct run_offer *o = NULL;
        if (!run_whole(r))
            continue;
        for (size_t i = 0; i < n && !o; i++)
            o = run_key_same(&offers[i].key, &r->key) ? &offers[i] : NULL;
        list_for_each (jt, &r->sessions) {
            const struct home_session *x = container_of(jt, struct home_session, link);
            struct shim_renew q = {.from_ms = x->stream ? lease_from(x) : 0};
            if (o) {
                q.lease_ms = o->lease_ms;
                q.grace_ms = o->grace_ms;
                q.grant = o->number;
            }
            if (x->stream)
                wire_tell(x->stream, HOME_RENEW, 0, shim_renew, &q);
        }
    }
}

void home_runs_over(struct home_runs *h, const struct run_key *k, int64_t rank)
{
    struct home_run *r = home_run_await(h, k);

    if (!r || rank < 0 || rank >= r->ranks || home_rank_over(r, rank))
        return;
    if (!r->over)
        r->over = mem_zalloc((size_t)r->ranks * sizeof *r->over);
    r->over[rank] = true;
    r->n_over++;
}

bool home_runs_reach(const struct home_runs *h, const struct run_key *k)
{
    const struct home_run *r = k ? home_run_find(h, k) : NULL;

    if (k)
        return r && run_whole(r);
    list_for_each (it, &h->all)
        if (run_here(container_of(it, struct home_run, link)))
            return true;
    return false;
}

unsigned home_runs_stop(struct home_runs *h, const struct run_key *k, int signo, uint64_t grace_ms)
{
    const struct home_run *r = home_run_find(h, k);
    const struct shim_stop q = {.signo = signo, .grace_ms = grace_ms};
    unsigned n = 0;

    if (!r)
        return 0;
    list_for_each (it, &r->sessions) {
        const struct home_session *x = container_of(it, struct home_session, link);
        if (!x->stream)
            continue;
        wire_tell(x->stream, HOME_STOP, 0, shim_stop, &q);
        n++;
    }
    return n;
}

unsigned home_runs_save(struct home_runs *h, const struct run_key *k, int64_t number,
                        uint64_t grace_ms)
{
    struct home_run *r = home_run_find(h, k);
    unsigned n = 0;

    if (!r)
        return 0;
    if (number > r->save_number) {
        r->save_number = number;
        r->save_grace_ms = grace_ms;
    }
    list_for_each (it, &r->sessions) {
        const struct home_session *x = container_of(it, struct home_session, link);
        save_send(x);
        n += x->stream != NULL;
    }
    return n;
}

/* ---- its life ---- */
struct home_runs *home_runs_create(const struct connector_env *env,
                                   const struct home_runs_events *ev, void *arg)
{
    struct home_runs *h = mem_new(struct home_runs);

    h->loop = env->loop;
    h->env = env;
    h->ev = ev;
    h->arg = arg;
    list_init(&h->all);
    list_init(&h->waiting);
    return h;
}

struct home_runs *home_runs_destroy(struct home_runs *h, const char *why)
{
    while (h && !list_empty(&h->all))
        run_free(container_of(h->all.next, struct home_run, link), why);
    mem_free(h);
    return NULL;
}
