/* Runners of which the hub that leads hears nothing more, or never heard anything: what is made of
 * that, by what their target's server and the log say. In virtual time. */
#include "tests/support/home/guest.h"
#include "tests/support/unit.h"
#include "tests/support/web/still_loop.h"

#include <stdio.h>
#include <string.h>

static struct world {
    struct loop *loop;
    struct home_runs *runs;
    struct guest first, second;
    unsigned told;
} W;

static void told(void *arg, const struct run_key *k)
{
    (void)arg;
    (void)k;
    W.told++;
}

static int setup(void **state)
{
    static const struct home_runs_events events = {.told = told};

    (void)state;
    W = (struct world){.loop = still_loop_create(7)};
    W.runs = home_runs_create(W.loop, &events, NULL);
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

/* Of a run that nobody has called for, its server is asked again once somebody has. */
static void of_a_run_that_nobody_called_for_it_is_not_kept(void **state)
{
    const struct home_token a = token(1, 0, 2);

    (void)state;
    home_runs_over(W.runs, &a.key, 1);
    assert_int_equal(comes(&W.first, &a, &runs), 0);
    assert_int_equal(W.told, 1);
    assert_false(home_runs_reach(W.runs, &a.key));
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(the_others_are_renewed),
        T(its_silence_says_nothing),
        T(whoever_waits_to_start_is_not_renewed),
        T(of_a_run_that_nobody_called_for_it_is_not_kept),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
