/* The contract of connector.h, asked through struct connector_ops alone. Must know nothing of the
 * driver, nor of what it drives: what happened outside is asked of the rig. */
#include "tests/support/contract/connector_contract_internal.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- waiting ---- */
struct waiting {
    struct connector_rig *rig;
    bool (*cond)(void *arg);
    void *arg;
    uint64_t until_ms;
    struct timer timer;
    bool held;
};
static void wait_tick(void *arg)
{
    struct waiting *w = arg;

    w->held = w->cond(w->arg);
    if (w->held || loop_now_ms(w->rig->loop) >= w->until_ms)
        loop_stop(w->rig->loop);
    else
        timer_start(&w->timer, 2);
}
bool connector_until(struct connector_rig *r, bool (*cond)(void *arg), void *arg, uint64_t ms)
{
    struct waiting w = {.rig = r, .cond = cond, .arg = arg, .until_ms = loop_now_ms(r->loop) + ms};

    timer_init(&w.timer, r->loop, wait_tick, &w);
    timer_start(&w.timer, 0);
    r->run(r->loop);
    timer_stop(&w.timer);
    return w.held;
}

/* ---- what it tells on its own ---- */
static bool key_equal(const struct run_key *a, const struct run_key *b)
{
    return strcmp(a->uid, b->uid) == 0 && a->epoch == b->epoch && a->try_ == b->try_;
}
static void on_observed(void *arg, const struct observation *o)
{
    struct connector_rig *r = arg;
    size_t i = 0;

    while (i < r->n_seen && !key_equal(&r->seen[i].key, &o->key))
        i++;
    assert_true(i < sizeof r->seen / sizeof r->seen[0]);
    if (i < r->n_seen && r->seen[i].state == RUN_ENDED)
        assert_int_equal(o->state, RUN_ENDED); /* an end is final */
    if (o->state == RUN_ENDED || o->state == RUN_ABSENT) {
        assert_int_not_equal(o->proof, 0); /* never without its proof, nor while it lives */
        assert_false(r->alive(r, &o->key));
    }
    r->n_seen += i == r->n_seen;
    r->seen[i] = *o;
}
static void on_reach(void *arg, bool reachable, const char *session, const char *why)
{
    struct connector_rig *r = arg;

    (void)why;
    assert_true(!reachable || (session && *session));
    r->reachable = reachable;
}
/* Takes the pages as the leader does, and checks that they are what connector.h says. */
static void on_nodes(void *arg, const struct inventory_page *p)
{
    struct connector_rig *r = arg;
    struct err e;

    assert_true(!*p->since || (!p->first && !p->last));
    assert_true(*p->since || !p->n_removed);
    r->pages++;
    r->deltas += *p->since != '\0';
    if (listing_take(&r->nodes, p, false, &e) < 0)
        r->unfit++;
}
static void on_seated(void *arg, const struct run_key *k, const struct placement *at)
{
    struct connector_rig *r = arg;

    r->seated = *k;
    r->n_seated++;
    str_copy(r->seat, sizeof r->seat, at->assignments[0].node);
    r->seat_gpu = at->assignments[0].n_gpus ? at->assignments[0].gpus[0] : -1;
}

static void on_workers(void *arg, const struct run_workers *w)
{
    struct connector_rig *r = arg;

    if (!w->n_workers)
        return;
    r->worker = w->key;
    r->told = w->workers[w->n_workers - 1];
    r->told_clock_ms = w->clock_ms;
    str_cut(r->told_id, sizeof r->told_id, r->told.id);
    str_cut(r->told_reason, sizeof r->told_reason, r->told.reason);
}

static void on_used(void *arg, const struct run_use *u)
{
    struct connector_rig *r = arg;

    assert_true(u->resting <= u->devices && u->idle <= u->resting && u->percent <= 100);
    r->used = *u;
    r->n_used++;
}

static void on_notices(void *arg, const struct notice *v, size_t n)
{
    struct connector_rig *r = arg;

    assert_true(n <= sizeof r->notices / sizeof *r->notices);
    for (size_t i = 0; i < n; i++)
        r->notices[i] = v[i];
    r->n_notices = n;
    r->noticed++;
}
static const struct connector_events events = {.nodes = on_nodes,
                                               .reach = on_reach,
                                               .observed = on_observed,
                                               .seated = on_seated,
                                               .workers = on_workers,
                                               .used = on_used,
                                               .notices = on_notices};

static const char *no_secret(void *arg, const char *name, const char *key)
{
    (void)arg;
    (void)name;
    (void)key;
    return NULL;
}
static void put_secret(void *arg, const char *text)
{
    (void)arg;
    (void)text;
}
static bool is_reachable(void *arg)
{
    return ((struct connector_rig *)arg)->reachable;
}

void connector_rig_begin(struct connector_rig *r)
{
    struct connector_env env = {.loop = r->loop,
                                .events = &events,
                                .arg = r,
                                .secret_get = r->secret ? r->secret : no_secret,
                                .web = r->web,
                                .secret_put = put_secret};
    struct err e;

    if (r->env)
        r->env(r, &env);
    r->reachable = false;
    r->pages = r->deltas = r->unfit = 0;
    listing_init(&r->nodes);
    if (r->ops->create(&env, r->target, &r->connector, &e))
        fail_msg("%s", e.text);
    assert_ptr_equal(r->connector->ops, r->ops);
    if (r->attached)
        r->attached(r);
    assert_true(connector_until(r, is_reachable, r, PATIENCE_MS));
}
void connector_rig_end(struct connector_rig *r)
{
    if (r->connector)
        r->ops->destroy(r->connector);
    r->connector = NULL;
    r->reachable = false;
    listing_fini(&r->nodes);
}

/* ---- calls ---- */
static void on_done(struct call *c, enum outcome out, const struct observation *seen,
                    const struct err *err)
{
    struct asked *a = (struct asked *)c;

    a->done++;
    a->done_ms = loop_now_ms(a->loop);
    a->out = out;
    a->has = seen != NULL;
    if (seen)
        a->seen = *seen;
    if (err)
        a->err = *err;
}
static bool is_done(void *arg)
{
    return ((struct asked *)arg)->done > 0;
}
void contract_ask_begin(struct connector_rig *r, struct asked *a, uint64_t ms)
{
    *a = (struct asked){.loop = r->loop, .asked_ms = loop_now_ms(r->loop)};
    a->call = (struct call){.deadline_ms = a->asked_ms + ms, .done = on_done};
}
enum outcome contract_ask_end(struct connector_rig *r, struct asked *a)
{
    if (!a->done)
        assert_true(connector_until(r, is_done, a, PATIENCE_MS));
    assert_int_equal(a->done, 1);
    return a->out;
}

static void submit_begin(struct connector_rig *r, const struct run_key *k,
                         enum contract_program what, uint64_t ms, struct asked *a)
{
    struct run_order o = {.checkpoint_dir = "", .resume_path = "", .resume_digest = ""};

    r->order(r, k, what, &o);
    o.key = *k;
    o.start_from_ms = r->start_from_ms;
    o.start_by_ms = r->start_by_ms;
    if (r->resume_path) {
        o.resume_path = r->resume_path;
        o.resume_digest = r->resume_digest;
    }
    contract_ask_begin(r, a, ms);
    r->ops->submit(r->connector, &o, &a->call);
    assert_int_equal(a->done, 0); /* never from inside the call */
}
/* What is out of reach is ordered nothing: that is no refusal, and the leader orders it later. */
enum outcome contract_submit(struct connector_rig *r, const struct run_key *k,
                             enum contract_program what, struct asked *a)
{
    unsigned lost = 0;

    while (contract_submit_by(r, k, what, CALL_MS, a) == OUT_REJECTED && !r->reachable &&
           a->err.code == E_UNAVAIL) {
        assert_true(++lost < CONTRACT_LOST_MAX);
        assert_true(connector_until(r, is_reachable, r, PATIENCE_MS));
    }
    return a->out;
}
enum outcome contract_submit_by(struct connector_rig *r, const struct run_key *k,
                                enum contract_program what, uint64_t ms, struct asked *a)
{
    submit_begin(r, k, what, ms, a);
    return contract_ask_end(r, a);
}
enum outcome contract_find(struct connector_rig *r, const struct run_key *k, uint64_t ms,
                           struct asked *a)
{
    contract_ask_begin(r, a, ms);
    r->ops->find(r->connector, k, &a->call);
    assert_int_equal(a->done, 0);
    enum outcome out = contract_ask_end(r, a);
    if (out == OUT_DONE) {
        assert_true(a->has && key_equal(&a->seen.key, k));
        if (a->seen.state == RUN_ENDED || a->seen.state == RUN_ABSENT) {
            assert_int_not_equal(a->seen.proof, 0);
            assert_false(r->alive(r, k));
        }
    }
    return out;
}
enum outcome contract_stop(struct connector_rig *r, const struct run_key *k, struct asked *a)
{
    contract_ask_begin(r, a, CALL_MS);
    r->ops->stop(r->connector, k, 100, &a->call);
    assert_int_equal(a->done, 0);
    enum outcome out = contract_ask_end(r, a);
    bool nowhere = a->has && a->seen.state == RUN_UNKNOWN && a->seen.unlisted;
    if (out == OUT_DONE && !nowhere) { /* only when proved */
        assert_true(a->has && a->seen.proof);
        assert_true(a->seen.state == RUN_ENDED || a->seen.state == RUN_ABSENT);
        assert_false(r->alive(r, k));
    }
    return out;
}

struct wanted {
    struct connector_rig *r;
    struct run_key key;
    enum run_state state;
};
const struct observation *contract_seen_of(struct connector_rig *r, const struct run_key *k)
{
    for (size_t i = 0; i < r->n_seen; i++)
        if (key_equal(&r->seen[i].key, k))
            return &r->seen[i];
    return NULL;
}
static bool is_in_state(void *arg)
{
    struct wanted *x = arg;
    const struct observation *o = contract_seen_of(x->r, &x->key);

    return o && o->state == x->state;
}
const struct observation *contract_await_run(struct connector_rig *r, const struct run_key *k,
                                         enum run_state state)
{
    struct wanted x = {r, *k, state};

    assert_true(connector_until(r, is_in_state, &x, PATIENCE_MS));
    return contract_seen_of(r, k);
}
static bool is_alive(void *arg)
{
    struct wanted *x = arg;

    return x->r->alive(x->r, &x->key);
}
struct run_key contract_fresh_key(struct connector_rig *r)
{
    struct run_key k = {.epoch = 1, .try_ = 1};

    r->resume_path = NULL;
    (void)snprintf(k.uid, sizeof k.uid, "contract-%d-%llu", (int)getpid(),
                   (unsigned long long)++r->serial);
    return k;
}
bool contract_was_lost(struct connector_rig *r, enum outcome out)
{
    if (out != OUT_UNKNOWN || r->reachable)
        return false;
    assert_true(connector_until(r, is_reachable, r, PATIENCE_MS));
    return true;
}
void contract_stopped(struct connector_rig *r, const struct run_key *k, struct asked *a)
{
    unsigned lost = 0;

    while (contract_was_lost(r, contract_stop(r, k, a)))
        assert_true(++lost < CONTRACT_LOST_MAX);
    assert_int_equal(a->out, OUT_DONE);
}
/* Runs, seen by the driver and from outside. */
struct run_key contract_running(struct connector_rig *r, struct asked *a)
{
    struct run_key k = contract_fresh_key(r);
    struct wanted x = {.r = r, .key = k};
    unsigned lost = 0;

    while (contract_was_lost(r, contract_submit(r, &k, PROGRAM_STAYS, a)))
        assert_true(++lost < CONTRACT_LOST_MAX);
    assert_int_equal(a->out, OUT_DONE);
    (void)contract_await_run(r, &k, RUN_RUNNING);
    assert_true(connector_until(r, is_alive, &x, PATIENCE_MS));
    return k;
}

/* ---- the contract ---- */
void connector_runs_and_tells_the_end(void **state)
{
    struct connector_rig *r = *state;
    struct run_key k = contract_fresh_key(r);
    struct asked a;

    contract_ask_begin(r, &a, CALL_MS);
    r->ops->probe(r->connector, &a.call);
    assert_int_equal(a.done, 0);
    assert_int_equal(contract_ask_end(r, &a), OUT_DONE);
    assert_int_equal(contract_submit(r, &k, PROGRAM_ENDS, &a), OUT_DONE);
    const struct observation *o = contract_await_run(r, &k, RUN_ENDED);
    assert_int_equal(o->exit_code, PROGRAM_ENDS_EXIT);
    assert_int_equal(o->term_signal, 0);
    assert_false(o->lease_lost);
    assert_int_equal(r->starts(r, &k), 1);
    assert_true(key_equal(&r->worker, &k)); /* its worker was told of ahead of that */
    assert_int_equal(r->told.rank, 0);
    assert_int_equal(r->told.exit_code, PROGRAM_ENDS_EXIT);
    assert_true(r->told.started_ms > 0 && r->told.started_ms <= r->told.ended_ms);
    assert_true(r->told.ended_ms <= r->told_clock_ms);
    assert_int_not_equal(*r->told_id, 0);
    assert_string_equal(r->told_reason, ""); /* none of ours is the target's to say */
    assert_int_equal(contract_find(r, &k, CALL_MS, &a), OUT_DONE); /* asked again: the same */
    assert_int_equal(a.seen.state, RUN_ENDED);
    assert_int_equal(a.seen.exit_code, PROGRAM_ENDS_EXIT);
}

void connector_adopts_a_second_submit(void **state)
{
    struct connector_rig *r = *state;
    struct asked a, twice[2];
    struct run_key k = contract_running(r, &a), e = contract_fresh_key(r);

    assert_int_equal(contract_submit(r, &k, PROGRAM_STAYS, &a), OUT_DONE);
    assert_true(a.has && a.seen.state == RUN_RUNNING);
    assert_int_equal(r->starts(r, &k), 1);
    contract_stopped(r, &k, &a);
    assert_int_equal(contract_submit(r, &k, PROGRAM_STAYS, &a),
                     OUT_DONE); /* ended: not begun anew */
    assert_true(a.has && a.seen.state == RUN_ENDED);
    assert_int_equal(r->starts(r, &k), 1);
    submit_begin(r, &e, PROGRAM_ENDS, CALL_MS, &twice[0]); /* at once */
    submit_begin(r, &e, PROGRAM_ENDS, CALL_MS, &twice[1]);
    assert_int_equal(contract_ask_end(r, &twice[0]), OUT_DONE);
    assert_int_equal(contract_ask_end(r, &twice[1]), OUT_DONE);
    (void)contract_await_run(r, &e, RUN_ENDED);
    assert_int_equal(r->starts(r, &e), 1);
}

/* While it names the same memory, an order sent again is the run that is there, in whatever state;
 * and of a key that it was asked about nothing starts. */
void connector_repeats_orders_where_it_says_so(void **state)
{
    struct connector_rig *r = *state;
    struct run_key k = contract_fresh_key(r), e = contract_fresh_key(r), s = contract_fresh_key(r);
    struct asked a;
    char memory[128];

    if (!r->ops->repeats || !*r->ops->repeats(r->connector))
        return;
    str_copy(memory, sizeof memory, r->ops->repeats(r->connector));
    r->silence(r, true);
    submit_begin(r, &k, PROGRAM_STAYS, 400, &a); /* heard, or not */
    assert_int_equal(contract_ask_end(r, &a), OUT_UNKNOWN);
    r->silence(r, false);
    assert_true(connector_until(r, is_reachable, r, PATIENCE_MS));
    assert_string_equal(r->ops->repeats(r->connector), memory);
    assert_int_equal(contract_submit(r, &k, PROGRAM_STAYS, &a), OUT_DONE); /* no find() between */
    struct wanted x = {.r = r, .key = k};
    assert_true(connector_until(r, is_alive, &x, PATIENCE_MS));
    contract_stopped(r, &k, &a);
    assert_int_equal(contract_submit(r, &e, PROGRAM_ENDS, &a), OUT_DONE);
    (void)contract_await_run(r, &e, RUN_ENDED);
    contract_stopped(r, &s, &a); /* asked to stop before it came */
    connector_rig_end(r);
    connector_rig_begin(r);
    assert_string_equal(r->ops->repeats(r->connector), memory);
    (void)contract_submit(r, &k, PROGRAM_STAYS, &a);
    assert_true(a.out == OUT_REJECTED || (a.has && a.seen.state == RUN_ENDED));
    (void)contract_submit(r, &e, PROGRAM_ENDS, &a);
    assert_true(a.out == OUT_REJECTED || (a.has && a.seen.state == RUN_ENDED));
    assert_int_equal(contract_submit(r, &s, PROGRAM_STAYS, &a), OUT_REJECTED);
    assert_int_equal(r->starts(r, &k), 1);
    assert_int_equal(r->starts(r, &e), 1);
    assert_int_equal(r->starts(r, &s), 0);
}

void connector_refuses_what_it_called_absent(void **state)
{
    struct connector_rig *r = *state;
    struct run_key k = contract_fresh_key(r);
    struct asked a;

    assert_int_equal(contract_find(r, &k, CALL_MS, &a), OUT_DONE);
    assert_int_equal(a.seen.state, RUN_ABSENT);
    assert_int_equal(a.seen.proof, PROOF_NEVER_STARTED);
    assert_int_equal(contract_submit(r, &k, PROGRAM_ENDS, &a), OUT_REJECTED);
    assert_true(*a.err.text != 0);
    connector_rig_end(r); /* the promise is the target's, not the connector's */
    connector_rig_begin(r);
    assert_int_equal(contract_submit(r, &k, PROGRAM_ENDS, &a), OUT_REJECTED);
    assert_int_equal(r->starts(r, &k), 0);
    k.try_ = 2; /* the next try is another matter */
    assert_int_equal(contract_submit(r, &k, PROGRAM_ENDS, &a), OUT_DONE);
    (void)contract_await_run(r, &k, RUN_ENDED);
    assert_int_equal(r->starts(r, &k), 1);
}

void connector_refuses_older_epochs(void **state)
{
    struct connector_rig *r = *state;
    struct run_key k = contract_fresh_key(r), old;
    struct asked a;

    k.epoch = 3;
    assert_int_equal(contract_submit(r, &k, PROGRAM_ENDS, &a), OUT_DONE);
    (void)contract_await_run(r, &k, RUN_ENDED);
    old = k;
    old.epoch = 2;
    assert_int_equal(contract_submit(r, &old, PROGRAM_ENDS, &a), OUT_REJECTED);
    assert_int_equal(contract_find(r, &old, CALL_MS, &a), OUT_DONE);
    assert_int_equal(a.seen.state, RUN_ABSENT);
    assert_int_equal(r->starts(r, &old), 0);
}

void connector_stops_with_proof_and_again(void **state)
{
    struct connector_rig *r = *state;
    struct asked a;
    struct run_key k = contract_running(r, &a);

    contract_stopped(r, &k, &a);
    assert_int_equal(a.seen.state, RUN_ENDED);
    enum proof proof = a.seen.proof;
    (void)contract_await_run(r, &k, RUN_ENDED);
    contract_stopped(r, &k, &a);
    assert_int_equal(a.seen.state, RUN_ENDED);
    assert_int_equal(a.seen.proof, proof);
    assert_int_equal(r->starts(r, &k), 1);
}

void connector_stops_what_never_was(void **state)
{
    struct connector_rig *r = *state;
    struct run_key k = contract_fresh_key(r);
    struct asked a;

    contract_stopped(r, &k, &a);
    assert_int_equal(a.seen.state, RUN_ABSENT);
    assert_int_equal(contract_submit(r, &k, PROGRAM_ENDS, &a), OUT_REJECTED);
    assert_int_equal(r->starts(r, &k), 0);
}

void connector_quiesces_by_signal(void **state)
{
    struct connector_rig *r = *state;
    struct asked a;
    struct run_key k = contract_running(r, &a);

    contract_ask_begin(r, &a, CALL_MS);
    r->ops->quiesce(r->connector, &k, SIGUSR1, 5000, &a.call);
    assert_int_equal(a.done, 0);
    assert_int_equal(contract_ask_end(r, &a), OUT_DONE);
    assert_int_equal(contract_await_run(r, &k, RUN_ENDED)->exit_code, PROGRAM_STAYS_EXIT);
    assert_false(r->alive(r, &k));
}

void connector_ends_calls_by_their_deadline(void **state)
{
    struct connector_rig *r = *state;
    struct run_key k = contract_fresh_key(r), other = contract_fresh_key(r);
    struct wanted x = {.r = r, .key = k};
    struct asked a;

    r->silence(r, true);
    submit_begin(r, &k, PROGRAM_STAYS, 400, &a);
    assert_int_equal(contract_ask_end(r, &a), OUT_UNKNOWN); /* it may have been heard */
    assert_true(*a.err.text != 0);
    assert_true(a.done_ms - a.asked_ms < 400 + 1000);
    assert_int_equal(contract_find(r, &other, 400, &a), OUT_UNKNOWN); /* silence is no absence */
    contract_ask_begin(r, &a, 400);
    r->ops->stop(r->connector, &other, 100, &a.call);
    assert_int_equal(contract_ask_end(r, &a), OUT_UNKNOWN);
    r->silence(r, false);
    assert_true(connector_until(r, is_reachable, r, PATIENCE_MS));
    assert_int_equal(contract_find(r, &k, CALL_MS, &a),
                     OUT_DONE); /* find comes before a second submit */
    if (a.seen.state == RUN_ABSENT) {
        assert_int_equal(contract_submit(r, &k, PROGRAM_STAYS, &a), OUT_REJECTED);
        assert_int_equal(r->starts(r, &k), 0);
        return;
    }
    assert_true(connector_until(r, is_alive, &x, PATIENCE_MS));
    assert_int_equal(contract_submit(r, &k, PROGRAM_STAYS, &a), OUT_DONE); /* adopted */
    contract_stopped(r, &k, &a);
    assert_int_equal(r->starts(r, &k), 1);
}

void connector_ends_calls_when_destroyed(void **state)
{
    struct connector_rig *r = *state;
    struct asked a, b, c;
    struct run_key k = contract_fresh_key(r), other = contract_running(r, &a);

    r->silence(r, true);
    submit_begin(r, &k, PROGRAM_ENDS, 60000, &a);
    contract_ask_begin(r, &b, 60000);
    r->ops->find(r->connector, &other, &b.call);
    connector_rig_end(r);
    assert_int_equal(a.done, 1); /* their memory is the caller's again */
    assert_int_equal(a.out, OUT_UNKNOWN);
    assert_int_equal(b.done, 1);
    assert_int_equal(b.out, OUT_UNKNOWN);
    r->silence(r, false);
    connector_rig_begin(r);
    assert_int_equal(contract_find(r, &k, CALL_MS, &c), OUT_DONE);
    assert_true(r->starts(r, &k) <= 1);
    assert_int_equal(contract_stop(r, &other, &c), OUT_DONE);
    assert_int_equal(a.done + b.done, 2);
}

void connector_holds_no_truth(void **state)
{
    struct connector_rig *r = *state;
    struct asked a;
    struct run_key k = contract_running(r, &a);

    connector_rig_end(r);
    assert_true(r->alive(r, &k)); /* its end is none of the run */
    r->n_seen = 0;
    connector_rig_begin(r);
    assert_int_equal(contract_find(r, &k, CALL_MS, &a), OUT_DONE);
    if (a.seen.state == RUN_STARTING) /* its runners have not dialed again yet */
        (void)contract_await_run(r, &k, RUN_RUNNING);
    else
        assert_int_equal(a.seen.state, RUN_RUNNING);
    assert_int_equal(contract_submit(r, &k, PROGRAM_STAYS, &a), OUT_DONE);
    contract_stopped(r, &k, &a);
    assert_int_equal(a.seen.state, RUN_ENDED);
    assert_int_equal(r->starts(r, &k), 1);
}
