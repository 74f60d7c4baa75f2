/* Runners of which the hub that leads hears nothing more, or never heard anything: what is made of
 * that, by what their target's server and the log say. In virtual time. */
#include "tests/support/home/guest.h"
#include "tests/support/unit.h"
#include "tests/support/web/still_loop.h"

#include <stdio.h>
#include <string.h>

static struct world {
    struct loop *loop;
    struct connector_env env;
    struct home_runs *runs;
    struct guest first, second;
    unsigned told;
    bool lives; /* all runs, by the log, of so many ranks with such a lease */
    uint32_t ranks;
    uint64_t lease_ms;
    char left[64]; /* but for that one, which has ended by the log */
} W;

static void told(void *arg, const struct run_key *k)
{
    (void)arg;
    (void)k;
    W.told++;
}

static bool where(void *arg, const struct run_key *k, struct arena *a, struct run_where *ret)
{
    (void)arg;
    (void)a;
    *ret = (struct run_where){.n = W.ranks,
                              .ns = "work",
                              .ran = true,
                              .lives = W.lives && strcmp(k->uid, W.left) != 0,
                              .lease_ms = W.lease_ms};
    return true;
}

static int setup(void **state)
{
    static const struct home_runs_events events = {.told = told};

    (void)state;
    W = (struct world){.loop = still_loop_create(7), .lives = true, .ranks = 2};
    W.env = (struct connector_env){.loop = W.loop, .where = where};
    W.runs = home_runs_create(&W.env, &events, NULL);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    W.runs = home_runs_destroy(W.runs, "");
    W.loop = still_loop_destroy(W.loop);
    return 0;
}

static int take(void *runs, const struct home_arrival *a, struct err *err)
{
    return home_runs_take(runs, a, err);
}

static struct home_token token(unsigned number, int64_t rank, int64_t ranks)
{
    struct home_token t = {.key = {.epoch = 1, .try_ = 1}, .rank = rank, .ranks = ranks};

    (void)snprintf(t.key.uid, sizeof t.key.uid, "run-%u", number);
    return t;
}

static int comes(struct guest *g, const struct home_token *t, const struct run_report *r)
{
    return guest_comes(g, W.loop, t, r, take, W.runs);
}

static void pass(uint64_t ms) /* both say that they are there */
{
    for (; ms; ms -= ms < 1000 ? ms : 1000) {
        guest_beats(&W.first);
        guest_beats(&W.second);
        still_loop_run(W.loop, ms < 1000 ? ms : 1000);
    }
}

static struct observation seen(const struct home_token *t, enum run_state by_server)
{
    struct observation o = {.key = t->key, .state = by_server};

    home_runs_fill(W.runs, &o);
    return o;
}

static const struct run_report runs = {.step = RUN_STEP_RUNNING, .grant = 2, .lease_ms = 20000},
                               waits = {.step = RUN_STEP_STARTING, .grant = 1, .ready = true};

/* ---- a rank that has ended, and nobody heard it ---- */
/* A member leads that it never called: its server alone says that it is over. */
static void the_others_are_renewed(void **state)
{
    const struct home_token a = token(1, 0, 2);

    (void)state;
    assert_int_equal(comes(&W.first, &a, &runs), 0);
    assert_false(home_runs_reach(W.runs, &a.key));
    home_runs_over(W.runs, &a.key, 1);
    home_runs_over(W.runs, &a.key, 1); /* it says so again and again */
    home_runs_over(W.runs, &a.key, 2); /* the run has no such ranks */
    home_runs_over(W.runs, &a.key, -1);
    assert_true(home_runs_reach(W.runs, &a.key));
    home_runs_renew(W.runs, NULL, 0);
    assert_int_equal(W.first.renewals, 1);
    assert_int_equal(seen(&a, RUN_RUNNING).state, RUN_RUNNING); /* all of them have begun */
    assert_int_equal(seen(&a, RUN_RUNNING).grant, 0); /* which lease it had, nobody says */
    assert_false(seen(&a, RUN_RUNNING).lease_held);
    guest_goes(&W.first);
    assert_false(home_runs_reach(W.runs, &a.key)); /* nobody is here whom that would reach */
}

/* Its last word was lost with its session. */
static void its_silence_says_nothing(void **state)
{
    const struct home_token a = token(1, 0, 2), b = token(1, 1, 2);

    (void)state;
    assert_int_equal(comes(&W.first, &a, &runs), 0);
    assert_int_equal(comes(&W.second, &b, &runs), 0);
    guest_goes(&W.second);
    pass(1000);
    assert_false(home_runs_reach(W.runs, &a.key));
    home_runs_over(W.runs, &a.key, 1);
    assert_true(home_runs_reach(W.runs, &a.key));
    pass(30000);
    assert_int_equal(seen(&a, RUN_RUNNING).state, RUN_RUNNING);
    guest_goes(&W.first); /* the other one is not over */
    pass(30000);
    assert_int_equal(seen(&a, RUN_RUNNING).state, RUN_UNKNOWN);
}

/* Ahead of the start an end that nobody heard may be one without a start: whoever waits for it must
 * not be kept alive. */
static void whoever_waits_to_start_is_not_renewed(void **state)
{
    const struct home_token a = token(1, 0, 2);

    (void)state;
    assert_int_equal(comes(&W.first, &a, &waits), 0);
    home_runs_over(W.runs, &a.key, 1);
    assert_false(home_runs_reach(W.runs, &a.key));
    assert_int_equal(seen(&a, RUN_RUNNING).state, RUN_STARTING);
    assert_int_equal(W.first.goes, 0);
    guest_tells(&W.first, &runs);
    assert_true(home_runs_reach(W.runs, &a.key));
}

/* Of a run that nobody has called for, its server is asked again once somebody has; but for one
 * whose runners must call. */
static void of_a_run_that_nobody_waits_for_it_is_not_kept(void **state)
{
    const struct home_token a = token(1, 0, 2), b = token(2, 0, 2);
    struct observation o;

    (void)state;
    home_runs_over(W.runs, &a.key, 1);
    (void)seen(&a, RUN_RUNNING);
    assert_false(home_runs_seen(W.runs, &a.key, &o));
    assert_int_equal(comes(&W.first, &a, &runs), 0);
    assert_int_equal(W.told, 1);
    assert_false(home_runs_reach(W.runs, &a.key));
    W.lease_ms = 20000;
    home_runs_over(W.runs, &b.key, 1);
    (void)seen(&b, RUN_RUNNING);
    assert_int_equal(comes(&W.second, &b, &runs), 0);
    assert_true(home_runs_reach(W.runs, &b.key));
    assert_true(home_runs_seen(W.runs, &b.key, &o));
    assert_int_equal(o.state, RUN_RUNNING);
}

/* ---- a runner that was silent before this member led ---- */
#define LEASE_MS 20000
#define LAPSES_MS (LEASE_MS + LEASE_MS / 100)

/* Nobody calls: its server calls it running, and the log knows which lease its runners held. */
static void nobody_calls_for_longer_than_the_lease(void **state)
{
    const struct home_token a = token(1, 0, 2), b = token(1, 1, 2);

    (void)state;
    W.lease_ms = LEASE_MS;
    assert_int_equal(seen(&a, RUN_RUNNING).state, RUN_STARTING);
    assert_int_equal(seen(&a, RUN_RUNNING).grant, 0);
    assert_false(seen(&a, RUN_RUNNING).lease_held);
    assert_false(home_runs_reach(W.runs, &a.key));
    still_loop_run(W.loop, LAPSES_MS - 1);
    assert_int_equal(W.told, 0);
    assert_int_equal(seen(&a, RUN_RUNNING).state, RUN_STARTING);
    still_loop_run(W.loop, 1);
    assert_int_equal(W.told, 1);
    struct observation o = seen(&a, RUN_RUNNING);
    assert_int_equal(o.state, RUN_UNKNOWN);
    assert_non_null(strstr(o.message, "longer than the lease"));
    assert_int_equal(seen(&a, RUN_ENDED).state, RUN_ENDED); /* an end is its server's to tell */
    assert_int_equal(comes(&W.first, &b, &runs), 0);
    assert_int_equal(seen(&a, RUN_RUNNING).state, RUN_UNKNOWN); /* the other one has not */
    assert_int_equal(comes(&W.second, &a, &runs), 0);
    assert_int_equal(seen(&a, RUN_RUNNING).state, RUN_RUNNING);
    assert_true(home_runs_reach(W.runs, &a.key));
}

/* One has called, and ends by its lease, as it is not renewed without the other one. */
static void one_rank_does_not_call(void **state)
{
    const struct home_token a = token(1, 0, 2);

    (void)state;
    W.lease_ms = LEASE_MS;
    assert_int_equal(comes(&W.first, &a, &runs), 0);
    assert_int_equal(seen(&a, RUN_RUNNING).state, RUN_STARTING);
    pass(LAPSES_MS - 1);
    assert_int_equal(seen(&a, RUN_RUNNING).state, RUN_STARTING);
    unsigned told_before = W.told;
    pass(1);
    assert_int_equal(W.told, told_before + 1);
    assert_int_equal(seen(&a, RUN_RUNNING).state, RUN_UNKNOWN);
    home_runs_over(W.runs, &a.key, 1); /* and then its server says that it has ended */
    assert_int_equal(seen(&a, RUN_RUNNING).state, RUN_RUNNING);
}

/* By the log they hold none, or not all have said so: its server is believed, however long. */
static void without_a_lease_its_server_is_believed(void **state)
{
    const struct home_token a = token(1, 0, 2), b = token(2, 0, 1);

    (void)state;
    assert_int_equal(seen(&a, RUN_RUNNING).state, RUN_STARTING);
    assert_int_equal(comes(&W.first, &b, &runs), 0);
    still_loop_run(W.loop, 86400000);
    assert_int_equal(seen(&a, RUN_RUNNING).state, RUN_STARTING);
    W.lives = false; /* the log has left it behind */
    W.lease_ms = LEASE_MS;
    still_loop_run(W.loop, 86400000);
    assert_int_equal(seen(&a, RUN_RUNNING).state, RUN_STARTING);
}

/* From when it is first told of, not from when this member began: it may lead since then. */
static void a_longer_lease_is_waited_for(void **state)
{
    const struct home_token a = token(1, 0, 1);

    (void)state;
    W.ranks = 1;
    still_loop_run(W.loop, 600000);
    W.lease_ms = LEASE_MS;
    assert_int_equal(seen(&a, RUN_RUNNING).state, RUN_STARTING);
    W.lease_ms = 2 * LEASE_MS; /* another one was offered meanwhile */
    still_loop_run(W.loop, LAPSES_MS);
    assert_int_equal(seen(&a, RUN_RUNNING).state, RUN_STARTING);
    still_loop_run(W.loop, LAPSES_MS);
    assert_int_equal(seen(&a, RUN_RUNNING).state, RUN_UNKNOWN);
}

/* ---- more than there is room for ---- */
#define RUNNERS_MAX 8192

/* They come, and fall silent at once. */
static void many_come(unsigned from, unsigned n)
{
    for (unsigned i = from; i < from + n; i++) {
        const struct home_token t = token(i, 0, 1);
        assert_int_equal(comes(&W.first, &t, &runs), 0);
        guest_goes(&W.first);
    }
}

/* Each of them is judged by its silence: a newcomer has to wait until the log has an end of one. */
static void none_is_forgotten_that_is_waited_for(void **state)
{
    const struct home_token first = token(1, 0, 1), last = token(RUNNERS_MAX, 0, 1),
                            new = token(RUNNERS_MAX + 1, 0, 1);
    struct observation o;

    (void)state;
    W.ranks = 1;
    many_come(1, RUNNERS_MAX);
    assert_int_equal(seen(&first, RUN_RUNNING).state, RUN_RUNNING);
    assert_int_equal(seen(&last, RUN_RUNNING).state, RUN_RUNNING);
    assert_int_equal(comes(&W.second, &new, &runs), E_LIMIT);
    assert_false(W.second.here || W.second.over); /* it is to come again */
    assert_non_null(strstr(W.second.refused, "too many"));
    assert_true(home_runs_seen(W.runs, &first.key, &o));
    still_loop_run(W.loop, runs.lease_ms + 1);
    assert_int_equal(seen(&first, RUN_RUNNING).state, RUN_UNKNOWN);
    assert_int_equal(comes(&W.second, &new, &runs), E_LIMIT); /* it is still to be unknown */
    assert_int_equal(seen(&first, RUN_RUNNING).state, RUN_UNKNOWN);
    str_copy(W.left, sizeof W.left, last.key.uid);
    still_loop_run(W.loop, 1000); /* it is not looked for at each that comes */
    assert_int_equal(comes(&W.second, &new, &runs), 0);
    assert_true(W.second.here);
    assert_int_equal(seen(&first, RUN_RUNNING).state, RUN_UNKNOWN);
    assert_false(home_runs_seen(W.runs, &last.key, &o));
}

/* Nobody waits for those that the log has left behind: they make room together. */
static void who_is_left_behind_makes_room(void **state)
{
    const struct home_token first = token(1, 0, 1);

    (void)state;
    W.ranks = 1;
    assert_int_equal(comes(&W.second, &first, &runs), 0); /* and stays */
    many_come(2, RUNNERS_MAX - 1);
    W.lives = false;
    many_come(RUNNERS_MAX + 1, RUNNERS_MAX - 1);
    assert_true(W.second.here);
    assert_true(home_runs_reach(W.runs, &first.key));
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(the_others_are_renewed),
        T(its_silence_says_nothing),
        T(whoever_waits_to_start_is_not_renewed),
        T(of_a_run_that_nobody_waits_for_it_is_not_kept),
        T(nobody_calls_for_longer_than_the_lease),
        T(one_rank_does_not_call),
        T(without_a_lease_its_server_is_believed),
        T(a_longer_lease_is_waited_for),
        T(none_is_forgotten_that_is_waited_for),
        T(who_is_left_behind_makes_room),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
