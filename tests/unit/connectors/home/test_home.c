/* Runners that call home, both sides over real TLS in one loop: tokens, sessions of one run, and a
 * caller that is sent on, cut off, refused and told. */
#include "tests/support/home/home_world.h"

#include <stdio.h>
#include <string.h>

/* ---- tokens ---- */
static void test_a_token_names_one_runner(void **state)
{
    const struct home_token t = token_of(7, 3, 8);
    struct home_token back;
    char text[HOME_TOKEN_MAX], bad[HOME_TOKEN_MAX + 8];
    struct err e;

    (void)state;
    home_token_make(&t, &home_world_keys, text);
    assert_int_equal(home_token_verify(text, &home_world_keys, &back, &e), 0);
    assert_string_equal(back.key.uid, t.key.uid);
    assert_string_equal(back.cluster, LINE);
    assert_int_equal(back.key.epoch, 7);
    assert_int_equal(back.key.try_, 2);
    assert_int_equal(back.rank, 3);
    assert_int_equal(back.ranks, 8);
    for (size_t i = 0; i < strlen(text); i++) { /* no letter of it may be another one */
        memcpy(bad, text, sizeof text);
        bad[i] = bad[i] == '1' ? '2' : '1';
        assert_int_equal(home_token_verify(bad, &home_world_keys, &back, &e), E_UNAUTH);
    }
    for (size_t n = 0; n < strlen(text); n++) {
        memcpy(bad, text, n);
        bad[n] = '\0';
        assert_int_equal(home_token_verify(bad, &home_world_keys, &back, &e), E_UNAUTH);
    }
    (void)snprintf(bad, sizeof bad, "%s0", text);
    assert_int_equal(home_token_verify(bad, &home_world_keys, &back, &e), E_UNAUTH);
    W.key = "the key of another cluster";
    home_token_make(&t, &home_world_keys, text);
    assert_int_equal(home_token_verify(text, &home_world_keys, &back, &e), E_UNAUTH);
}

/* ---- a session ---- */
static bool told_and_heard(void)
{
    return H[0].told > 1 && C[0].heard > 1 && home_caller_heard(C[0].caller);
}
static bool second_welcome(void)
{
    return C[1].welcomes > 0;
}
static bool all_orders(void)
{
    return C[0].renewals && C[0].stops && C[0].saves;
}

static void test_it_is_taken_told_and_ordered(void **state)
{
    const struct home_token t = token_of(1, 0, 1);
    const struct run_offer o = {.key = t.key, .number = 2, .lease_ms = 9000, .grace_ms = 1000};
    struct run_report r = {.step = RUN_STEP_RUNNING, .grant = 1};
    uint64_t began = loop_now_ms(W.loop);

    (void)state;
    caller_begin(&C[0], &t);
    until(welcome);
    assert_true(home_runs_reach(H[0].runs, &t.key));
    assert_true(home_runs_reach(H[0].runs, NULL));
    home_caller_tell(C[0].caller, &r);
    until(told_and_heard);
    home_runs_renew(H[0].runs, &o, 1);
    assert_int_equal(home_runs_stop(H[0].runs, &t.key, 10, 1500), 1);
    assert_int_equal(home_runs_save(H[0].runs, &t.key, 4, 2500), 1);
    until(all_orders);
    assert_int_equal(C[0].renew.grant, 2);
    assert_int_equal(C[0].renew.lease_ms, 9000);
    assert_in_range(C[0].renew.from_ms, began - 500, loop_now_ms(W.loop));
    assert_int_equal(C[0].stop.signo, 10);
    assert_int_equal(C[0].stop.grace_ms, 1500);
    assert_int_equal(C[0].save.number, 4);
}

/* Where the log has it; an older hub tells nothing. */
static void test_it_is_told_where_it_is(void **state)
{
    const struct home_token t = token_of(1, 0, 1), u = token_of(2, 0, 1);
    int64_t gpus[] = {0, 5};
    const struct home_welcome w = {.node = "n7", .gpus = gpus, .n_gpus = 2};

    (void)state;
    caller_begin(&C[0], &t);
    until(welcome);
    assert_string_equal(C[0].node, "nobody tells");
    H[0].welcome = &w;
    caller_begin(&C[1], &u);
    until(second_welcome);
    assert_string_equal(C[1].node, "n7");
    assert_int_equal(C[1].n_gpus, 2);
    assert_int_equal(C[1].gpu, 5);
}

static bool renewed(void)
{
    return C[0].renewals > 0;
}
static bool never(void)
{
    return false;
}

/* The quorum round that allows a renewal may have begun half a second ago. */
static void test_a_lease_counts_from_an_old_beat(void **state)
{
    const struct home_token t = token_of(1, 0, 1);

    (void)state;
    caller_begin(&C[0], &t);
    until(welcome);
    (void)within(never, 3200);
    uint64_t sent = loop_now_ms(W.loop);
    home_runs_renew(H[0].runs, NULL, 0);
    until(renewed);
    assert_in_range(C[0].renew.from_ms, sent - 2200, sent - 500);
    assert_int_equal(C[0].renew.grant, 0);
}

static bool at_second(void)
{
    return C[0].welcomes > 0 && H[1].told > 0;
}

static void test_another_member_sends_it_on(void **state)
{
    const struct home_token t = token_of(1, 0, 1);

    (void)state;
    hub_begin(&H[1]);
    H[0].redirect = H[1].address;
    caller_begin(&C[0], &t);
    until(at_second);
    assert_int_equal(C[0].refusals, 0);
    assert_false(home_runs_reach(H[0].runs, &t.key));
    assert_true(home_runs_reach(H[1].runs, &t.key));
}

/* Its order knew one member. The others are told to it when they have come, and it lives on without
 * the one that it began with. */
static void test_members_that_came_later_are_dialed(void **state)
{
    const struct home_token t = token_of(1, 0, 1);
    const char *both[] = {H[0].address, H[1].address};

    (void)state;
    caller_begin(&C[0], &t); /* it is given the first address alone */
    until(welcome);
    hub_begin(&H[1]);
    home_runs_members(H[0].runs, both, 2);
    home_runs_renew(H[0].runs, NULL, 0);
    until(renewed); /* and what was told before */
    hub_end(&H[0]);
    until(at_second);
}

static bool first_has_it(void)
{
    return H[0].accepted > 0;
}

static bool second_was_asked(void)
{
    return H[1].came > 0;
}

/* It stands still, and the other member does not know yet that it leads no more. */
static void test_who_fell_silent_is_not_dialed_first(void **state)
{
    const struct home_token t = token_of(1, 0, 1);
    const struct home_welcome w = {.node = ""};
    const struct run_report r = {
        .step = RUN_STEP_RUNNING, .grant = 1, .lease_ms = 8000}; /* it waits 2.5 s */

    (void)state;
    hub_begin(&H[1]);
    H[1].redirect = H[0].address;
    H[0].deaf = true;
    caller_begin(&C[0], &t);
    until(first_has_it);
    wire_tell(H[0].last, HOME_WELCOME, 0, home_welcome, &w);
    until(welcome);
    home_caller_tell(C[0].caller, &r);
    H[0].accepted = H[1].came = 0;
    until(second_was_asked);
    assert_int_equal(H[0].accepted, 0);
    H[1].redirect = NULL;
    until(at_second);
    assert_int_equal(H[0].accepted, 0);
}

static bool ended_at_second(void)
{
    struct observation o = {.key = token_of(1, 0, 1).key, .state = RUN_ENDED};

    home_runs_fill(H[1].runs, &o);
    return o.exit_code == 5 && home_caller_heard(C[0].caller);
}

/* Whoever lives hears the end, also where it came while nobody was there. */
static void test_a_member_dies_in_the_middle(void **state)
{
    const struct home_token t = token_of(1, 0, 1);
    const struct run_report r = {.step = RUN_STEP_ENDED, .grant = 1, .exit_code = 5};

    (void)state;
    hub_begin(&H[1]);
    H[1].refuse = "no leader is known yet";
    H[0].refuse = NULL;
    caller_begin(&C[0], &t);
    until(welcome);
    hub_end(&H[0]);
    home_caller_tell(C[0].caller, &r);
    assert_false(home_caller_heard(C[0].caller));
    H[1].refuse = NULL;
    until(ended_at_second);
}

static bool at_second_alone(void)
{
    return H[1].told > 0;
}

/* It takes the stream, and never answers: the runner goes on to the next. */
static void test_a_member_that_hangs(void **state)
{
    const struct home_token t = token_of(1, 0, 1);

    (void)state;
    hub_begin(&H[1]);
    H[0].deaf = true;
    caller_begin(&C[0], &t);
    until(at_second_alone);
}

/* ---- refusals ---- */
static bool refused(void)
{
    return C[0].refusals > 0;
}

static void test_a_run_that_is_over(void **state)
{
    const struct home_token t = token_of(1, 0, 1);

    (void)state;
    H[0].refuse = "a later life of its workload has begun";
    H[0].over = true;
    caller_begin(&C[0], &t);
    until(refused);
    assert_true(C[0].over && !C[0].spent);
    assert_string_equal(C[0].why, "a later life of its workload has begun");
    assert_int_equal(C[0].welcomes, 0);
}

static void test_a_token_of_another_cluster(void **state)
{
    const struct home_token t = token_of(1, 0, 1);

    (void)state;
    W.key = "the key of another cluster";
    caller_begin(&C[0], &t);
    until(refused);
    assert_false(C[0].over); /* a hub that does not know it ends nothing */
    assert_int_equal(H[0].came, 0);
    assert_int_equal(C[0].welcomes, 0);
}

static bool second_refused(void)
{
    return C[1].refusals > 0;
}

static void test_a_second_runner_with_one_token(void **state)
{
    const struct home_token t = token_of(1, 0, 1), other = token_of(2, 0, 1);

    (void)state;
    caller_begin(&C[0], &t);
    until(welcome);
    caller_begin(&C[1], &t);
    until(second_refused);
    assert_true(C[1].over && C[1].spent);
    assert_true(home_runs_reach(H[0].runs, &t.key));
    assert_false(home_runs_reach(H[0].runs, &other.key));
    assert_int_equal(home_runs_stop(H[0].runs, &other.key, 15, 0), 0);
}

/* ---- gangs ---- */
static bool both(void)
{
    return C[0].welcomes && C[1].welcomes;
}
static bool both_heard(void)
{
    return home_caller_heard(C[0].caller) && home_caller_heard(C[1].caller);
}

static void test_a_gang_is_renewed_as_one(void **state)
{
    const struct home_token a = token_of(1, 0, 2), b = token_of(1, 1, 2);
    struct run_report r = {.step = RUN_STEP_RUNNING, .grant = 2, .lease_ms = 9000};
    struct observation o = {.key = a.key, .state = RUN_RUNNING};

    (void)state;
    caller_begin(&C[0], &a);
    until(welcome);
    assert_false(home_runs_reach(H[0].runs, &a.key));
    home_runs_renew(H[0].runs, NULL, 0); /* reaches nobody: the other might be renewed and not it */
    assert_false(within(renewed, 300));
    caller_begin(&C[1], &b);
    until(both);
    assert_true(home_runs_reach(H[0].runs, &a.key));
    home_caller_tell(C[0].caller, &r);
    until(both_heard);
    home_runs_fill(H[0].runs, &o);
    assert_int_equal(o.grant, 1); /* the least of both: one has not taken the second lease */
    assert_int_equal(o.state, RUN_STARTING); /* nor has it started its program */
    o.state = RUN_RUNNING;
    assert_false(o.lease_held);
    home_caller_tell(C[1].caller, &r);
    until(both_heard);
    home_runs_fill(H[0].runs, &o);
    assert_int_equal(o.grant, 2);
    assert_true(o.lease_held);
    assert_int_equal(o.state, RUN_RUNNING);
    o = (struct observation){.key = token_of(9, 0, 1).key, .state = RUN_RUNNING};
    home_runs_fill(H[0].runs, &o);
    assert_int_equal(o.state, RUN_STARTING); /* nobody of it has come: nothing was started */
    r = (struct run_report){.step = RUN_STEP_ENDED, .grant = 2, .lease_ms = 9000};
    home_caller_tell(C[1].caller, &r);
    until(both_heard);
    C[1].caller = home_caller_destroy(C[1].caller);
    (void)within(never, 200);
    assert_true(home_runs_reach(H[0].runs, &a.key)); /* it has ended, and needs none */
    home_runs_renew(H[0].runs, NULL, 0);
    until(renewed);
}

static bool second_heard(void)
{
    return C[1].heard > 1 && home_caller_heard(C[1].caller);
}
static bool first_gone(void)
{
    const struct home_token t = token_of(1, 0, 1);

    return !home_runs_reach(H[0].runs, &t.key);
}
static bool gone(void)
{
    const struct home_token t = token_of(1, 0, 2);

    return !home_runs_reach(H[0].runs, &t.key);
}

static void test_a_lost_rank_stops_renewals(void **state)
{
    const struct home_token a = token_of(1, 0, 2), b = token_of(1, 1, 2);

    (void)state;
    caller_begin(&C[0], &a);
    caller_begin(&C[1], &b);
    until(both);
    C[1].caller = home_caller_destroy(C[1].caller);
    until(gone);
    home_runs_renew(H[0].runs, NULL, 0);
    assert_false(within(renewed, 300));
}

/* ---- a runner that is gone ---- */
static unsigned told_before;
static bool told_again(void)
{
    return H[0].told > told_before;
}

static enum run_state its_server_says_it_runs(const struct home_token *t)
{
    struct observation o = {.key = t->key, .state = RUN_RUNNING};

    home_runs_fill(H[0].runs, &o);
    return o.state;
}

/* Its server calls it running for as long as a node is not given up. Past the lease that it held
 * nobody can tell; before, and of one that held none, its server is believed. */
static void test_a_runner_that_is_silent_past_its_lease(void **state)
{
    const struct home_token t = token_of(1, 0, 1), none = token_of(2, 0, 1);
    const struct run_report held = {.step = RUN_STEP_RUNNING, .lease_ms = 1500},
                            without = {.step = RUN_STEP_RUNNING};

    (void)state;
    caller_begin(&C[0], &t);
    until(welcome);
    home_caller_tell(C[0].caller, &held);
    until(told_and_heard);
    caller_begin(&C[1], &none);
    until(second_welcome);
    home_caller_tell(C[1].caller, &without);
    until(second_heard);
    (void)within(never, 1700); /* here, it is silent for no time at all */
    assert_int_equal(its_server_says_it_runs(&t), RUN_RUNNING);
    C[0].caller = home_caller_destroy(C[0].caller);
    C[1].caller = home_caller_destroy(C[1].caller);
    until(first_gone);
    assert_int_equal(its_server_says_it_runs(&t), RUN_RUNNING);
    told_before = H[0].told;
    until(told_again);
    assert_int_equal(its_server_says_it_runs(&t), RUN_UNKNOWN);
    assert_int_equal(its_server_says_it_runs(&none), RUN_RUNNING);
}

/* ---- checkpoints ---- */
static bool both_go(void)
{
    return C[0].goes > 0 && C[1].goes > 0;
}

/* What it resumes from must hold for all of them before one of them starts. */
static void test_a_gang_starts_once_all_are_ready(void **state)
{
    const struct home_token a = token_of(1, 0, 2), b = token_of(1, 1, 2);
    struct run_report r = {.step = RUN_STEP_STARTING, .grant = 1, .ready = true};

    (void)state;
    caller_begin(&C[0], &a);
    caller_begin(&C[1], &b);
    until(both);
    home_caller_tell(C[0].caller, &r);
    until(both_heard);
    (void)within(never, 200);
    assert_int_equal(C[0].goes, 0);
    home_caller_tell(C[1].caller, &r);
    until(both_go);
}

static bool first_stopped(void)
{
    return C[0].stops > 0;
}

static void test_a_rank_that_cannot_start_stops_the_others(void **state)
{
    const struct home_token a = token_of(1, 0, 2), b = token_of(1, 1, 2);
    struct run_report r = {.step = RUN_STEP_STARTING, .grant = 1, .ready = true};
    const struct run_report bad = {.step = RUN_STEP_ENDED, .grant = 1, .never_started = true};

    (void)state;
    caller_begin(&C[0], &a);
    caller_begin(&C[1], &b);
    until(both);
    home_caller_tell(C[1].caller, &bad);
    home_caller_tell(C[0].caller, &r);
    until(first_stopped);
    assert_int_equal(C[0].goes, 0);
}

static struct run_report saved_report(int64_t step, enum save_state state, int64_t number)
{
    struct run_report r = {.step = RUN_STEP_RUNNING,
                           .grant = 1,
                           .cut = {.present = step > 0, .step = step, .bytes = 5, .ranks = 2},
                           .save = {.present = number > 0, .state = state, .number = number}};

    (void)snprintf(r.cut.path, sizeof r.cut.path, "/store/sealed/e1/cut-%d.json", (int)step);
    str_copy(r.cut.digest, sizeof r.cut.digest, "sha256:00");
    str_copy(r.save.reason, sizeof r.save.reason, state == SAVE_FAILED ? "NotSaved" : "");
    return r;
}

static void tell_both(const struct run_report *a, const struct run_report *b, struct observation *o)
{
    home_caller_tell(C[0].caller, a);
    home_caller_tell(C[1].caller, b);
    until(both_heard);
    *o = (struct observation){.key = token_of(1, 0, 2).key, .state = RUN_RUNNING};
    home_runs_fill(H[0].runs, o);
}

/* The newest cut counts, whichever rank has found it; a request is answered when all have saved. */
static void test_what_ranks_save_is_told_as_one(void **state)
{
    const struct home_token a = token_of(1, 0, 2), b = token_of(1, 1, 2);
    struct run_report x, y;
    struct observation o;

    (void)state;
    caller_begin(&C[0], &a);
    caller_begin(&C[1], &b);
    until(both);
    x = saved_report(10, 0, 0);
    y = saved_report(20, 0, 0);
    tell_both(&x, &y, &o);
    assert_int_equal(o.checkpoint.step, 20);
    assert_string_equal(o.checkpoint.path, "/store/sealed/e1/cut-20.json");
    assert_false(o.save.present);
    y = saved_report(0, 0, 0); /* what is no path in a store is nothing */
    str_copy(y.cut.path, sizeof y.cut.path, "relative");
    y.cut.present = true;
    y.cut.step = 90;
    tell_both(&x, &y, &o);
    assert_int_equal(o.checkpoint.step, 10);
    assert_int_equal(home_runs_save(H[0].runs, &a.key, 3, 1000), 2);
    x = saved_report(30, SAVE_DONE, 3);
    y = saved_report(30, SAVE_ASKED, 3);
    tell_both(&x, &y, &o);
    assert_int_equal(o.save.state, SAVE_ASKED);
    assert_int_equal(o.save.number, 3);
    y = saved_report(30, SAVE_DONE, 3);
    tell_both(&x, &y, &o);
    assert_int_equal(o.save.state, SAVE_DONE);
    assert_int_equal(o.checkpoint.step, 30);
    y = saved_report(30, SAVE_FAILED, 4); /* another one; the first has not heard of it yet */
    tell_both(&x, &y, &o);
    assert_int_equal(o.save.state, SAVE_FAILED);
    assert_int_equal(o.save.number, 4);
    assert_string_equal(o.save.reason, "NotSaved");
}

static bool asked_again(void)
{
    return C[0].saves > 1;
}

/* A request that was lost with its session is told again. */
static void test_a_runner_that_dials_again_is_asked_again(void **state)
{
    const struct home_token t = token_of(1, 0, 1);

    (void)state;
    caller_begin(&C[0], &t);
    until(welcome);
    assert_int_equal(home_runs_save(H[0].runs, &t.key, 4, 2500), 1);
    stream_abort(H[0].last, "cut off");
    until(asked_again);
    assert_int_equal(C[0].save.number, 4);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, home_world_setup, home_world_teardown)
    const struct CMUnitTest tests[] = {
        T(test_a_token_names_one_runner),
        T(test_it_is_taken_told_and_ordered),
        T(test_it_is_told_where_it_is),
        T(test_a_lease_counts_from_an_old_beat),
        T(test_another_member_sends_it_on),
        T(test_members_that_came_later_are_dialed),
        T(test_who_fell_silent_is_not_dialed_first),
        T(test_a_member_dies_in_the_middle),
        T(test_a_member_that_hangs),
        T(test_a_run_that_is_over),
        T(test_a_token_of_another_cluster),
        T(test_a_second_runner_with_one_token),
        T(test_a_gang_is_renewed_as_one),
        T(test_a_lost_rank_stops_renewals),
        T(test_a_runner_that_is_silent_past_its_lease),
        T(test_a_gang_starts_once_all_are_ready),
        T(test_a_rank_that_cannot_start_stops_the_others),
        T(test_what_ranks_save_is_told_as_one),
        T(test_a_runner_that_dials_again_is_asked_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
