/* The exit of a program is never lost, seen from the hub: shims, guards and agents die around it.
 * A shim is stopped first (SIGSTOP) so that it cannot have seen what its program did. */
#include "tests/support/agent_world.h"
#include "tests/support/run_kit.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One run: its order, and the pids of all that take part. */
struct life {
    struct agent_order order;
    long program, shim, guard;
};

/* The program waits for a file, then comes to its end. */
#define GO "echo $$ >$D/$U.pid; while ! [ -e $D/$U.go ]; do sleep 0.01; done; "

static const char *named(const struct life *x, const char *what)
{
    static char name[4][128];
    static unsigned n;

    n = (n + 1) % 4;
    (void)snprintf(name[n], sizeof name[n], "%s.%s", x->order.key.uid, what);
    return name[n];
}

static struct life begin(const char *script)
{
    struct life x = {.order = {.key = agent_key(), .script = script}};
    struct asked a;

    assert_int_equal(agent_submit(&x.order, &a), OUT_DONE);
    (void)agent_await(&x.order.key, RUN_RUNNING);
    assert_true(agent_await_file(named(&x, "pid")));
    x.program = agent_await_pid(named(&x, "pid"));
    x.shim = pid_parent(x.program);
    x.guard = pid_parent(x.shim);
    return x;
}

static void end_unseen(const struct life *x)
{
    assert_int_equal(kill((pid_t)x->shim, SIGSTOP), 0);
    assert_true(pid_await(x->shim, "T", PATIENCE_MS));
    agent_file_put(named(x, "go"), "");
    assert_true(pid_await(x->program, "Z", PATIENCE_MS));
}

static void slay(long pid)
{
    assert_int_equal(kill((pid_t)pid, SIGKILL), 0);
}

static void the_guard_tells_it(void **state)
{
    struct life x = begin(GO "exit 7");

    (void)state;
    end_unseen(&x);
    slay(x.shim);
    const struct observation *e = agent_await(&x.order.key, RUN_ENDED);
    assert_int_equal(e->exit_code, 7);
    assert_int_equal(e->term_signal, 0);
    assert_string_equal(e->reason, "");
    assert_int_equal(e->proof, agent_proof(0));
}

/* Shim and guard: then their children are the agent's. */
static void the_agent_tells_it_when_the_guard_is_gone(void **state)
{
    struct life x = begin("$ESC $D/$U.escaped; " GO "exit 0");
    long escaped = agent_await_pid(named(&x, "escaped"));

    (void)state;
    end_unseen(&x);
    slay(x.guard);
    slay(x.shim);
    const struct observation *e = agent_await(&x.order.key, RUN_ENDED);
    assert_int_equal(e->exit_code, 0);
    assert_int_equal(e->term_signal, 0);
    assert_string_equal(e->reason, "");
    assert_false(pid_alive(escaped));
    assert_true(pid_await(x.program, "X", PATIENCE_MS)); /* and reaped */
}

/* The guard of an adopted shim is let do its work. */
static void the_next_agent_lets_the_guard_tell_it(void **state)
{
    struct life x = begin(GO "exit 8");

    (void)state;
    agent_end(0, SIGKILL);
    agent_begin(0);
    struct asked a;
    assert_int_equal(agent_find(0, &x.order.key, &a), OUT_DONE);
    assert_int_equal(a.seen.state, RUN_RUNNING);
    end_unseen(&x);
    assert_int_equal(kill((pid_t)x.guard, SIGSTOP), 0); /* it is slow */
    assert_true(pid_await(x.guard, "T", PATIENCE_MS));
    slay(x.shim);
    assert_true(pid_await(x.shim, "Z", PATIENCE_MS));
    agent_pass(500);
    assert_true(pid_alive(x.guard));
    assert_int_equal(kill((pid_t)x.guard, SIGCONT), 0);
    const struct observation *e = agent_await(&x.order.key, RUN_ENDED);
    assert_int_equal(e->exit_code, 8);
    assert_string_equal(e->reason, "");
}

static void agent_guard_and_shim_die_while_it_runs(void **state)
{
    struct life x = begin("$ESC $D/$U.escaped; " GO "exit 0");
    long escaped = agent_await_pid(named(&x, "escaped"));

    (void)state;
    agent_end(0, SIGKILL);
    slay(x.guard);
    slay(x.shim);
    agent_begin(0);
    const struct observation *e = agent_await(&x.order.key, RUN_ENDED);
    assert_string_equal(e->reason, "RunnerKilled");
    assert_int_equal(e->term_signal, SIGKILL);
    assert_false(pid_alive(escaped));
}

/* The one loss that is left: agent, guard and shim, all between the exit and its note. It is not
 * taken for a good end. */
static void when_all_die_in_that_instant_it_is_said(void **state)
{
    struct life x = begin(GO "exit 0");

    (void)state;
    end_unseen(&x);
    agent_end(0, SIGKILL);
    slay(x.guard);
    slay(x.shim);
    agent_begin(0);
    const struct observation *e = agent_await(&x.order.key, RUN_ENDED);
    assert_string_equal(e->reason, "RunnerKilled");
    assert_int_equal(e->term_signal, SIGKILL);
}

/* Noted, and then all die: while it seals, or while what it left behind is ended. */
static void once_noted_it_outlives_them_all(void **state)
{
    struct life x = begin("$ESC $D/$U.escaped; " GO "exit 4");
    long escaped = agent_await_pid(named(&x, "escaped"));

    (void)state;
    agent_file_put(named(&x, "go"), "");
    assert_true(agent_await_file(agent_name("state-t1/runs/%s.1.1/0/exit.json", x.order.key.uid)));
    assert_true(pid_alive(escaped)); /* it does not listen: 5 s are its grace */
    agent_end(0, SIGKILL);
    slay(x.guard);
    slay(x.shim);
    agent_begin(0);
    const struct observation *e = agent_await(&x.order.key, RUN_ENDED);
    assert_int_equal(e->exit_code, 4);
    assert_int_equal(e->term_signal, 0);
    assert_false(pid_alive(escaped));
}

/* It saved and stopped, and its shim died before it could seal that. */
static void what_it_saved_last_is_sealed_by_the_agent(void **state)
{
    struct life x = begin("trap 'echo 9 >$HANSE_CHECKPOINT_DIR/s; $H checkpoint commit --step 9 s; "
                          "exit 75' USR1; " GO);
    (void)state;
    assert_int_equal(kill((pid_t)x.shim, SIGSTOP), 0);
    assert_true(pid_await(x.shim, "T", PATIENCE_MS));
    assert_int_equal(kill((pid_t)x.program, SIGUSR1), 0);
    assert_true(pid_await(x.program, "Z", PATIENCE_MS));
    slay(x.shim);
    const struct observation *e = agent_await(&x.order.key, RUN_ENDED);
    assert_int_equal(e->exit_code, 75);
    assert_true(e->checkpoint.present);
    assert_int_equal(e->checkpoint.step, 9);
}

int main(int argc, char **argv)
{
    int rc = agent_world_main(argc, argv);

    if (rc >= 0)
        return rc;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_guard_tells_it),
        cmocka_unit_test(the_agent_tells_it_when_the_guard_is_gone),
        cmocka_unit_test(the_next_agent_lets_the_guard_tell_it),
        cmocka_unit_test(agent_guard_and_shim_die_while_it_runs),
        cmocka_unit_test(when_all_die_in_that_instant_it_is_said),
        cmocka_unit_test(once_noted_it_outlives_them_all),
        cmocka_unit_test(what_it_saved_last_is_sealed_by_the_agent),
    };
    return cmocka_run_group_tests(tests, agent_world_setup, agent_world_teardown);
}
