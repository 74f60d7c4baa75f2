/* The contract of connectors/machines.h, asked through struct machine_ops alone. Must know nothing
 * of the driver: what happened outside is asked of the rig. */
#include "tests/support/machines/machines_contract.h"

#include <stdio.h>
#include <string.h>

#define PATIENCE_MS 20000
#define CALL_MS 10000
#define TTL_MS 60000

/* ---- what it tells ---- */
static struct machine_told *told_of(struct machines_rig *r, const char *key)
{
    for (size_t i = 0; i < r->n_told; i++)
        if (!strcmp(r->told[i].key, key))
            return &r->told[i];
    return NULL;
}

static void on_machine(void *arg, const struct machine_seen *m)
{
    struct machines_rig *r = arg;
    struct machine_told *t = told_of(r, m->key);

    if (!t) {
        assert_true(r->n_told < RIG_MACHINES);
        t = &r->told[r->n_told++];
        str_copy(t->key, sizeof t->key, m->key);
    }
    assert_true(m->state >= MACHINE_ASKED && m->state <= MACHINE_ENDED);
    if (t->state == MACHINE_ENDED) /* an end is final */
        assert_int_equal(m->state, MACHINE_ENDED);
    if (m->billed_to_ms)
        assert_true(m->billed_to_ms >= m->billed_from_ms);
    t->state = m->state;
    t->billed_from_ms = m->billed_from_ms;
    t->billed_to_ms = m->billed_to_ms;
    t->until_ms = m->until_ms;
    t->price = m->price;
    str_copy(t->id, sizeof t->id, m->id);
    str_copy(t->reason, sizeof t->reason, m->reason);
}

static void on_prices(void *arg, const struct machine_price *v, size_t n, const char *currency)
{
    struct machines_rig *r = arg;

    r->n_prices = n;
    r->price = n ? v[0].price : 0;
    str_copy(r->currency, sizeof r->currency, currency);
}

static void on_reach(void *arg, bool reachable, const char *session, const char *why)
{
    (void)session;
    (void)why;
    ((struct machines_rig *)arg)->reachable = reachable;
}
static void on_nodes(void *arg, const struct inventory_page *p)
{
    (void)arg;
    (void)p;
}
static void on_notices(void *arg, const struct notice *v, size_t n)
{
    (void)arg;
    (void)v;
    (void)n;
}
static void on_observed(void *arg, const struct observation *o)
{
    (void)arg;
    (void)o;
}
static const struct connector_events events = {.nodes = on_nodes,
                                               .reach = on_reach,
                                               .notices = on_notices,
                                               .observed = on_observed,
                                               .machine = on_machine,
                                               .prices = on_prices};
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

/* ---- waiting ---- */
struct waiting {
    struct machines_rig *rig;
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
        timer_start(&w->timer, 5);
}
static bool until(struct machines_rig *r, bool (*cond)(void *arg), void *arg, uint64_t ms)
{
    struct waiting w = {.rig = r, .cond = cond, .arg = arg, .until_ms = loop_now_ms(r->loop) + ms};

    timer_init(&w.timer, r->loop, wait_tick, &w);
    timer_start(&w.timer, 0);
    r->run(r->loop);
    timer_stop(&w.timer);
    return w.held;
}
static bool is_reachable(void *arg)
{
    return ((struct machines_rig *)arg)->reachable;
}

void machines_rig_begin(struct machines_rig *r)
{
    struct connector_env env = {.loop = r->loop,
                                .events = &events,
                                .arg = r,
                                .secret_get = r->secret ? r->secret : no_secret,
                                .secret_put = put_secret};
    struct err e;

    r->reachable = false;
    if (r->ops->create(&env, r->target, &r->connector, &e))
        fail_msg("%s", e.text);
    assert_non_null(r->ops->machines);
    assert_true(until(r, is_reachable, r, PATIENCE_MS));
}

/* ---- calls ---- */
struct asked {
    struct call call; /* first */
    unsigned done;
    enum outcome out;
};
static void on_done(struct call *c, enum outcome out, const struct observation *seen,
                    const struct err *err)
{
    struct asked *a = (struct asked *)c;

    (void)err;
    assert_null(seen);
    a->done++;
    a->out = out;
}
static bool is_done(void *arg)
{
    return ((struct asked *)arg)->done > 0;
}
static void ask_begin(struct machines_rig *r, struct asked *a, uint64_t ms)
{
    *a = (struct asked){.call = {.deadline_ms = loop_now_ms(r->loop) + ms, .done = on_done}};
}
static enum outcome ask_end(struct machines_rig *r, struct asked *a)
{
    assert_int_equal(a->done, 0); /* never from inside the call */
    assert_true(until(r, is_done, a, PATIENCE_MS));
    assert_int_equal(a->done, 1);
    return a->out;
}

static const char *fresh(struct machines_rig *r, char out[MACHINE_KEY_MAX])
{
    (void)snprintf(out, MACHINE_KEY_MAX, "contract-%u", ++r->serial);
    return out;
}
static struct machine_order order_of(const char *key)
{
    return (struct machine_order){.key = key,
                                  .class_ = "h100",
                                  .gpus = 1,
                                  .zone = "a",
                                  .market = CAPACITY_SPOT,
                                  .ttl_ms = TTL_MS,
                                  .image = "",
                                  .currency = "",
                                  .cluster = "contract",
                                  .pool = "p"};
}
static enum outcome order_as(struct machines_rig *r, const struct machine_order *o, struct asked *a)
{
    ask_begin(r, a, CALL_MS);
    r->ops->machines->order(r->connector, o, &a->call);
    return ask_end(r, a);
}
static enum outcome order(struct machines_rig *r, const char *key)
{
    const struct machine_order o = order_of(key);
    struct asked a;

    return order_as(r, &o, &a);
}
static enum outcome release(struct machines_rig *r, const char *key)
{
    const struct machine_order o = order_of(key);
    struct asked a;

    ask_begin(r, &a, CALL_MS);
    r->ops->machines->release(r->connector, &o, &a.call);
    return ask_end(r, &a);
}
static enum outcome list(struct machines_rig *r)
{
    struct asked a;

    ask_begin(r, &a, CALL_MS);
    r->ops->machines->list(r->connector, &a.call);
    return ask_end(r, &a);
}

struct wanted {
    struct machines_rig *r;
    const char *key;
    enum machine_state state;
    bool listing;
    struct asked a;
};
/* Asks again and again, as machines are seen by listing alone. */
static bool is_in_state(void *arg)
{
    struct wanted *w = arg;
    const struct machine_told *t = told_of(w->r, w->key);

    if (t && t->state == w->state)
        return true;
    if (!w->listing || w->a.done) {
        w->listing = true;
        ask_begin(w->r, &w->a, CALL_MS);
        w->r->ops->machines->list(w->r->connector, &w->a.call);
    }
    return false;
}
static const struct machine_told *await(struct machines_rig *r, const char *key,
                                        enum machine_state state)
{
    struct wanted w = {.r = r, .key = key, .state = state};
    bool held = until(r, is_in_state, &w, PATIENCE_MS);

    if (w.listing && !w.a.done)
        (void)until(r, is_done, &w.a, PATIENCE_MS);
    assert_true(held);
    return told_of(r, key);
}

void machines_rig_end(struct machines_rig *r)
{
    for (size_t i = 0; i < r->n_told; i++)
        if (r->told[i].state != MACHINE_ENDED) {
            assert_int_equal(release(r, r->told[i].key), OUT_DONE);
            (void)await(r, r->told[i].key, MACHINE_ENDED);
        }
    r->ops->destroy(r->connector);
    r->connector = NULL;
}

/* ---- the contract ---- */
void machines_come_join_and_are_billed(void **state)
{
    struct machines_rig *r = *state;
    char key[MACHINE_KEY_MAX];
    const struct machine_told *t;

    assert_int_equal(order(r, fresh(r, key)), OUT_DONE);
    assert_non_null(told_of(r, key)); /* ahead of the end of its call */
    t = await(r, key, MACHINE_JOINED);
    assert_true(t->billed_from_ms > 0 && !t->billed_to_ms && t->until_ms > t->billed_from_ms);
    assert_true(*t->id && t->price > 2.4 && t->price < 2.6);
    assert_int_equal(r->given(r, key), 1);
}

void machines_of_one_key_are_one(void **state)
{
    struct machines_rig *r = *state;
    char key[MACHINE_KEY_MAX], id[129];

    assert_int_equal(order(r, fresh(r, key)), OUT_DONE);
    str_copy(id, sizeof id, await(r, key, MACHINE_JOINED)->id);
    assert_int_equal(order(r, key), OUT_DONE);
    assert_int_equal(list(r), OUT_DONE);
    assert_string_equal(told_of(r, key)->id, id);
    assert_int_equal(r->given(r, key), 1);
}

void machines_of_another_order_are_refused(void **state)
{
    struct machines_rig *r = *state;
    char key[MACHINE_KEY_MAX];
    struct machine_order o = order_of(fresh(r, key));
    struct asked a;

    assert_int_equal(order(r, key), OUT_DONE);
    o.ttl_ms *= 2;
    assert_int_equal(order_as(r, &o, &a), OUT_REJECTED);
    assert_int_equal(a.call.refused.class_, REFUSED_CONFLICT);
    assert_int_equal(r->given(r, key), 1);
}

void machines_end_when_released(void **state)
{
    struct machines_rig *r = *state;
    char key[MACHINE_KEY_MAX];
    const struct machine_told *t;

    assert_int_equal(order(r, fresh(r, key)), OUT_DONE);
    assert_int_equal(release(r, key), OUT_DONE);
    t = await(r, key, MACHINE_ENDED);
    assert_true(t->billed_to_ms >= t->billed_from_ms);
    assert_int_equal(release(r, key), OUT_DONE); /* and again */
    (void)order(r, key);
    assert_int_equal(list(r), OUT_DONE);
    assert_int_equal(told_of(r, key)->state, MACHINE_ENDED);
    assert_int_equal(r->given(r, key), 1);
}

void machines_released_ahead_are_never_given(void **state)
{
    struct machines_rig *r = *state;
    char key[MACHINE_KEY_MAX];

    assert_int_equal(release(r, fresh(r, key)), OUT_DONE);
    assert_int_equal(order(r, key), OUT_REJECTED);
    assert_int_equal(r->given(r, key), 0);
}

void machines_end_by_themselves_unless_renewed(void **state)
{
    struct machines_rig *r = *state;
    char held[MACHINE_KEY_MAX], left[MACHINE_KEY_MAX];
    struct machine_order o = order_of(fresh(r, held));
    const char *keys[1] = {held};
    struct asked a;

    o.ttl_ms = 2000;
    assert_int_equal(order_as(r, &o, &a), OUT_DONE);
    ask_begin(r, &a, CALL_MS);
    r->ops->machines->renew(r->connector, keys, 1, TTL_MS, &a.call);
    assert_int_equal(ask_end(r, &a), OUT_DONE);
    o.key = fresh(r, left);
    assert_int_equal(order_as(r, &o, &a), OUT_DONE);
    (void)await(r, left, MACHINE_ENDED);
    assert_int_equal(list(r), OUT_DONE);
    assert_int_equal(told_of(r, held)->state, MACHINE_JOINED);
}

void machines_taken_away_are_listed_as_ended(void **state)
{
    struct machines_rig *r = *state;
    char key[MACHINE_KEY_MAX];
    const struct machine_told *t;

    assert_int_equal(order(r, fresh(r, key)), OUT_DONE);
    (void)await(r, key, MACHINE_JOINED);
    r->take(r, key);
    t = await(r, key, MACHINE_ENDED);
    assert_true(t->billed_to_ms >= t->billed_from_ms && *t->reason);
}

void machines_that_are_not_there_are_refused(void **state)
{
    struct machines_rig *r = *state;
    char key[3][MACHINE_KEY_MAX];
    struct machine_order o = order_of(fresh(r, key[2]));
    struct asked a;

    for (int i = 0; i < 2; i++)
        assert_int_equal(order(r, fresh(r, key[i])), OUT_DONE);
    assert_int_equal(order_as(r, &o, &a), OUT_REJECTED);
    assert_int_equal(a.call.refused.class_, REFUSED_CAPACITY);
    assert_int_equal(a.call.refused.scope, BLAMES_ZONE);
    assert_string_equal(a.call.refused.name, "a");
    assert_int_equal(r->given(r, key[2]), 0);
    assert_int_equal(release(r, key[0]), OUT_DONE);
    (void)await(r, key[0], MACHINE_ENDED);
    o.max_price = 1; /* it costs more */
    o.currency = "EUR";
    assert_int_equal(order_as(r, &o, &a), OUT_REJECTED);
    assert_int_equal(a.call.refused.class_, REFUSED_CAPACITY);
    o.max_price = 3;
    assert_int_equal(order_as(r, &o, &a), OUT_DONE); /* a refused key was not used up */
}

void machines_have_prices(void **state)
{
    struct machines_rig *r = *state;
    struct asked a;

    r->n_prices = 0;
    ask_begin(r, &a, CALL_MS);
    r->ops->machines->prices(r->connector, &a.call);
    assert_int_equal(ask_end(r, &a), OUT_DONE);
    assert_int_equal(r->n_prices, 1);
    assert_true(r->price > 2.4 && r->price < 2.6);
    assert_string_equal(r->currency, "EUR");
}

void machines_calls_end_by_their_deadline(void **state)
{
    struct machines_rig *r = *state;
    char key[MACHINE_KEY_MAX];
    const struct machine_order o = order_of(fresh(r, key));
    struct asked a;

    r->silence(r, true);
    ask_begin(r, &a, 300);
    r->ops->machines->order(r->connector, &o, &a.call);
    assert_int_equal(ask_end(r, &a), OUT_UNKNOWN);
    ask_begin(r, &a, 300);
    r->ops->machines->list(r->connector, &a.call);
    assert_int_equal(ask_end(r, &a), OUT_UNKNOWN); /* a listing that came to no end */
    r->silence(r, false);
    assert_int_equal(order(r, key), OUT_DONE); /* whatever became of the first */
    assert_int_equal(r->given(r, key), 1);
}

void machines_calls_end_when_destroyed(void **state)
{
    struct machines_rig *r = *state;
    char key[MACHINE_KEY_MAX];
    const struct machine_order o = order_of(fresh(r, key));
    struct asked a;

    ask_begin(r, &a, CALL_MS);
    r->ops->machines->order(r->connector, &o, &a.call);
    r->ops->destroy(r->connector);
    assert_int_equal(a.done, 1);
    assert_int_equal(a.out, OUT_UNKNOWN);
    machines_rig_begin(r);
    assert_int_equal(order(r, key), OUT_DONE);
    assert_int_equal(r->given(r, key), 1);
}
