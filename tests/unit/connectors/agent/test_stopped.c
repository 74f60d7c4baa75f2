/* Who stands still (SIGSTOP, swap, a debugger) holds no lease. Shim, guard and agent each keep the
 * deadline: any two of them stopped, the third ends the program and what escaped from it, in time.
 * The hub counts on it: it adds grace and 5 s to a lease (driver.c, LEASE_SLACK_MS). */
#include "tests/support/agent_world.h"
#include "tests/support/run_kit.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

/* A shim whose helper for the search is killed by its guard waits for it for ever, on a core of its
 * own. */
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
    return 1;
}

#define LEASE_MS 4000
#define LATE_MS 2500 /* this machine may be busy; the margins themselves are in shim.h */
#define STUBBORN                                                                                   \
    "trap '' TERM; $ESC $D/$U.escaped; echo $$ >$D/$U.pid; while :; do sleep 0.02; done"

enum who { SHIM = 1, GUARD = 2, AGENT = 4, PROGRAM = 8 };
struct life {
    struct agent_order order;
    long pid[4]; /* shim, guard, agent, program */
    long escaped;
    uint64_t until_ms; /* at most, the end of its lease */
};

static struct life begin(uint64_t lease_ms)
{
    struct life x = {
        .order = {.key = agent_key(), .script = STUBBORN, .lease_ms = lease_ms, .grace = "300ms"}};
    struct asked a;

    agent_pass(1600); /* a lease counts from a beat that has been heard */
    assert_int_equal(agent_submit(&x.order, &a), OUT_DONE);
    (void)agent_await(&x.order.key, RUN_RUNNING);
    x.pid[3] = agent_await_pid(agent_name("%s.pid", x.order.key.uid));
    x.escaped = agent_await_pid(agent_name("%s.escaped", x.order.key.uid));
    x.pid[0] = pid_parent(x.pid[3]);
    while (pid_parent(x.pid[0]) != A.side[0].agent &&
           pid_parent(pid_parent(x.pid[0])) != A.side[0].agent)
        x.pid[0] = pid_parent(x.pid[0]); /* where a namespace is held by a process of its own */
    x.pid[1] = pid_parent(x.pid[0]);
    x.pid[2] = A.side[0].agent;
    x.until_ms = run_now_ms() + lease_ms;
    return x;
}

static void send_all(const struct life *x, unsigned whom, int signo)
{
    for (unsigned i = 0; i < 4; i++)
        if (whom & 1u << i)
            assert_int_equal(kill((pid_t)x->pid[i], signo), 0);
    for (unsigned i = 0; i < 4 && signo == SIGSTOP; i++)
        if (whom & 1u << i)
            assert_true(pid_await(x->pid[i], "T", PATIENCE_MS));
}

static bool dies_by(long pid, uint64_t at_ms)
{
    uint64_t now = run_now_ms();

    return pid_await(pid, "ZX", at_ms > now ? at_ms - now : 0);
}

/* Its margin, and what a busy machine takes. */
static void ends_by(const struct life *x, uint64_t margin_ms)
{
    assert_true(dies_by(x->pid[3], x->until_ms + margin_ms + LATE_MS));
    assert_true(dies_by(x->escaped, x->until_ms + margin_ms + LATE_MS));
}

static void the_lease_ends_it_without(unsigned whom, uint64_t margin_ms)
{
    struct life x = begin(LEASE_MS);

    send_all(&x, whom, SIGSTOP);
    assert_true(pid_alive(x.pid[3]));
    ends_by(&x, margin_ms);
    for (unsigned i = 0; i < 3; i++)
        if (whom & 1u << i && pid_alive(x.pid[i]))
            (void)kill((pid_t)x.pid[i], SIGCONT);
    const struct observation *e = agent_await(&x.order.key, RUN_ENDED);
    assert_true(e->lease_lost);
    assert_string_equal(e->reason, "LeaseLost");
}

static void one_that_stands_still_holds_no_lease(void **state)
{
    (void)state;
    the_lease_ends_it_without(SHIM, GUARD_MARGIN_MS);
    the_lease_ends_it_without(GUARD, 0);
    the_lease_ends_it_without(AGENT, 0);
}

static void two_that_stand_still_hold_no_lease(void **state)
{
    (void)state;
    the_lease_ends_it_without(SHIM | AGENT, GUARD_MARGIN_MS);
    the_lease_ends_it_without(SHIM | GUARD, AGENT_MARGIN_MS);
    the_lease_ends_it_without(GUARD | AGENT, 0);
}

/* Renewed for ever, and the shim does not hear it: its guard counts what the shim has told. */
static void renewals_that_nobody_takes_do_not_count(void **state)
{
    struct life x = begin(LEASE_MS);

    (void)state;
    timer_start(&A.renewals, 0);
    agent_pass(LEASE_MS + 1000);
    assert_true(pid_alive(x.pid[3])); /* past its first lease */
    send_all(&x, SHIM, SIGSTOP);
    x.until_ms = run_now_ms() + LEASE_MS;
    ends_by(&x, GUARD_MARGIN_MS);
    timer_stop(&A.renewals);
    assert_true(agent_await(&x.order.key, RUN_ENDED)->lease_lost);
}

/* The agent is another one by then: it finds what was granted last in the shim's will. */
static void the_next_agent_keeps_the_deadline(void **state)
{
    struct life x = begin(LEASE_MS);

    (void)state;
    timer_start(&A.renewals, 0);
    agent_pass(LEASE_MS);
    timer_stop(&A.renewals);
    x.until_ms = run_now_ms() + LEASE_MS;
    send_all(&x, SHIM | GUARD, SIGSTOP);
    agent_end(0, SIGKILL);
    A.n_seen = 0;
    agent_begin(0);
    assert_true(pid_alive(x.pid[3]));
    ends_by(&x, AGENT_MARGIN_MS);
    assert_true(agent_await(&x.order.key, RUN_ENDED)->lease_lost);
}

/* A stop has a deadline as well: its grace. */
static void a_stop_ends_it_all_the_same(void **state)
{
    struct life x = begin(0);
    struct asked a;

    (void)state;
    (void)kill((pid_t)x.pid[1], SIGSTOP);
    (void)kill((pid_t)x.pid[0], SIGSTOP);
    x.order.deadline_ms = 25000;
    (void)agent_stop(0, &x.order.key, &a);
    (void)agent_await(&x.order.key, RUN_ENDED);
    assert_false(pid_alive(x.pid[3]));
    assert_false(pid_alive(x.escaped));
}

/* The whole machine is paused (a VM, a freezer): nothing on it can act, and its program does not
 * run either. When it goes on the lease is over, and all three find that at once. */
static void a_paused_machine_ends_it_when_it_goes_on(void **state)
{
    struct life x = begin(LEASE_MS);

    (void)state;
    send_all(&x, PROGRAM, SIGSTOP);
    send_all(&x, SHIM | GUARD | AGENT, SIGSTOP);
    while (run_now_ms() < x.until_ms + AGENT_MARGIN_MS)
        agent_pass(50);
    send_all(&x, PROGRAM, SIGCONT);
    send_all(&x, AGENT | GUARD | SHIM, SIGCONT);
    x.until_ms = run_now_ms();
    ends_by(&x, 0);
    assert_true(agent_await(&x.order.key, RUN_ENDED)->lease_lost);
}

int main(int argc, char **argv)
{
    int rc = agent_world_main(argc, argv);

    if (rc >= 0)
        return rc;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_that_stands_still_holds_no_lease),
        cmocka_unit_test(two_that_stand_still_hold_no_lease),
        cmocka_unit_test(renewals_that_nobody_takes_do_not_count),
        cmocka_unit_test(the_next_agent_keeps_the_deadline),
        cmocka_unit_test(a_stop_ends_it_all_the_same),
        cmocka_unit_test(a_paused_machine_ends_it_when_it_goes_on),
    };
    return cmocka_run_group_tests(tests, agent_world_setup, agent_world_teardown);
}
