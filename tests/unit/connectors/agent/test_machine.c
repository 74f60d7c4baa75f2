/* What comes to an agent from around it: a machine that restarted, a log that grows without end, a
 * member that does not lead. */
#include "tests/support/agent_world.h"
#include "tests/support/run_kit.h"

#include "api/base/limits.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define STAYS "echo $$ >>$D/$U.pid; while :; do sleep 0.02; done"

static const char *named(const struct agent_order *o, const char *what)
{
    return agent_name("%s.%s", o->key.uid, what);
}

static long started(const struct agent_order *o)
{
    struct asked a;

    assert_int_equal(agent_submit(o, &a), OUT_DONE);
    (void)agent_await(&o->key, RUN_RUNNING);
    return agent_await_pid(named(o, "pid"));
}

/* The order as an earlier boot wrote it. */
static void of_an_earlier_boot(const struct agent_order *o)
{
    const char *name = agent_name("state-t1/runs/%s.1.1/order.json", o->key.uid);
    char text[4096];

    str_copy(text, sizeof text, agent_file_text("%s", name));
    char *id = strstr(text, "\"bootId\":\"");
    assert_non_null(id);
    id += strlen("\"bootId\":\"");
    *id = *id == '0' ? '1' : '0';
    agent_file_put(name, text);
}

/* Power went: agent, guard, shim and program, nobody had a moment. */
static void power_goes(long program)
{
    long shim = pid_parent(program), guard = pid_parent(shim);

    agent_end(0, SIGKILL);
    assert_int_equal(kill((pid_t)guard, SIGKILL), 0);
    assert_int_equal(kill((pid_t)shim, SIGKILL), 0);
    assert_true(pid_await(program, "ZX", PATIENCE_MS));
}

static void runs_of_an_earlier_boot_have_ended(void **state)
{
    struct agent_order o = {.key = agent_key(), .script = STAYS}, next = o;
    long program = started(&o);
    char once[32];
    struct asked a;

    (void)state;
    power_goes(program);
    of_an_earlier_boot(&o);
    agent_begin(0);
    const struct observation *e = agent_await(&o.key, RUN_ENDED);
    assert_string_equal(e->reason, "MachineRestarted");
    assert_int_equal(e->proof, PROOF_TREE_GONE);
    assert_int_equal(e->term_signal, SIGKILL);
    assert_int_equal(agent_submit(&o, &a), OUT_DONE); /* the same order does not start it again */
    assert_int_equal(a.seen.state, RUN_ENDED);
    (void)snprintf(once, sizeof once, "%ld\n", program);
    assert_string_equal(agent_file_text("%s", named(&o, "pid")), once);
    next.key.epoch = 2; /* the next epoch may */
    next.script = "exit 0";
    assert_int_equal(agent_submit(&next, &a), OUT_DONE);
    assert_int_equal(agent_await(&next.key, RUN_ENDED)->exit_code, 0);
}

/* Its program had ended, and that was on disk when the power went: it does not run again. */
static void an_exit_that_was_noted_outlives_the_machine(void **state)
{
    struct agent_order o = {.key = agent_key(),
                            .script = "$ESC $D/$U.escaped; echo $$ >$D/$U.pid; while ! [ -e "
                                      "$D/$U.go ]; do sleep 0.02; done; exit 0"};
    long program = started(&o), shim = pid_parent(program), guard = pid_parent(shim);
    long escaped = agent_await_pid(named(&o, "escaped"));

    (void)state;
    agent_file_put(named(&o, "go"), "");
    assert_true(agent_await_file(agent_name("state-t1/runs/%s.1.1/0/exit.json", o.key.uid)));
    agent_end(0, SIGKILL);
    assert_int_equal(kill((pid_t)guard, SIGKILL), 0);
    assert_int_equal(kill((pid_t)shim, SIGKILL), 0);
    assert_int_equal(kill((pid_t)escaped, SIGKILL), 0);
    of_an_earlier_boot(&o);
    agent_begin(0);
    const struct observation *e = agent_await(&o.key, RUN_ENDED);
    assert_int_equal(e->exit_code, 0);
    assert_int_equal(e->term_signal, 0);
    assert_string_equal(e->reason, "");
}

/* Accepted, and the power went before its shim was started: its turn is over. */
static void what_had_not_started_before_does_not_start(void **state)
{
    struct agent_order o = {.key = agent_key(), .script = STAYS};
    long program = started(&o);
    struct err err;

    (void)state;
    power_goes(program);
    of_an_earlier_boot(&o);
    /* as if it had not come to that */
    const char *rank = agent_name("%s/state-t1/runs/%s.1.1/0", A.dir, o.key.uid);
    assert_int_equal(file_remove(A.loop, rank, &err), 0);
    assert_int_equal(file_remove(A.loop, agent_name("%s/%s", A.dir, named(&o, "pid")), &err), 0);
    agent_begin(0);
    assert_string_equal(agent_await(&o.key, RUN_ENDED)->reason, "MachineRestarted");
    assert_false(agent_file_exists("%s", named(&o, "pid")));
}

static int64_t log_bytes(const struct agent_order *o)
{
    struct stat st;

    return stat(agent_name("%s/state-t1/runs/%s.1.1/log.0", A.dir, o->key.uid), &st) == 0
               ? (int64_t)st.st_size
               : -1;
}

static bool is_trimmed(void *arg)
{
    return log_bytes(arg) <= (int64_t)LIMIT_LOG_FILE_MAX_BYTES;
}

/* The last bytes of its log. */
static void log_end(const struct agent_order *o, char out[64])
{
    FILE *f = fopen(agent_name("%s/state-t1/runs/%s.1.1/log.0", A.dir, o->key.uid), "r");
    size_t n = 0;

    assert_non_null(f);
    if (fseek(f, -20, SEEK_END) == 0)
        n = fread(out, 1, 63, f);
    out[n] = '\0';
    (void)fclose(f);
}

/* Twenty megabytes: the older part goes, while the program goes on writing. */
static void a_log_is_bounded_and_goes_on(void **state)
{
    struct agent_order o = {
        .key = agent_key(),
        .script = "head -c 20000000 /dev/zero | tr '\\0' x; echo; echo $$ >$D/$U.pid; "
                  "while ! [ -e $D/$U.go ]; do sleep 0.02; done; "
                  "for i in 1 2 3 4 5; do echo line number $i; done"};
    char end[64];

    (void)state;
    (void)started(&o);
    assert_true(agent_until(is_trimmed, &o, PATIENCE_MS));
    int64_t kept = log_bytes(&o); /* 0 where the file system cannot cut at the front */
    assert_true(kept == 0 || kept > 20000000 - (int64_t)LIMIT_LOG_FILE_MAX_BYTES);
    agent_file_put(named(&o, "go"), "");
    assert_int_equal(agent_await(&o.key, RUN_ENDED)->exit_code, 0);
    assert_int_equal(log_bytes(&o), kept + 5 * 14);
    log_end(&o, end);
    assert_string_equal(end + 6, "line number 5\n");
}

static bool is_unreachable(void *arg)
{
    return !((struct agent_side *)arg)->reachable;
}

static bool is_reachable(void *arg)
{
    return ((struct agent_side *)arg)->reachable;
}

static void who_does_not_lead_sends_it_on(void **state)
{
    struct agent_order o = {.key = agent_key(), .script = "exit 3"};
    struct asked a;

    (void)state;
    A.redirect = A.leader;
    unsigned before = A.at_leader;
    agent_cut_off(0, true);
    agent_cut_off(0, false); /* waits until it is back */
    assert_true(A.redirected >= 1);
    assert_int_equal(A.at_leader, before + 1);
    assert_int_equal(agent_submit(&o, &a), OUT_DONE);
    assert_int_equal(agent_await(&o.key, RUN_ENDED)->exit_code, 3);
    A.redirect = NULL; /* the other leads now: it asks those that it knows */
    agent_cut_off(0, true);
    agent_cut_off(0, false);
    assert_int_equal(A.at_leader, before + 1);
}

/* Two that each take the other for the leader: it must not run in circles. */
static void it_does_not_run_in_circles(void **state)
{
    (void)state;
    A.redirect = A.address;
    A.redirected = 0;
    stream_abort(A.side[0].stream, "cut off by the test");
    assert_true(agent_until(is_unreachable, &A.side[0], PATIENCE_MS));
    agent_pass(1500);
    assert_in_range(A.redirected, 5, 16); /* 4 at once, then with pauses of 50 ms and more */
    A.redirect = NULL;
    assert_true(agent_until(is_reachable, &A.side[0], PATIENCE_MS));
}

int main(int argc, char **argv)
{
    int rc = agent_world_main(argc, argv);

    if (rc >= 0)
        return rc;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_of_an_earlier_boot_have_ended),
        cmocka_unit_test(an_exit_that_was_noted_outlives_the_machine),
        cmocka_unit_test(what_had_not_started_before_does_not_start),
        cmocka_unit_test(a_log_is_bounded_and_goes_on),
        cmocka_unit_test(who_does_not_lead_sends_it_on),
        cmocka_unit_test(it_does_not_run_in_circles),
    };
    return cmocka_run_group_tests(tests, agent_world_setup, agent_world_teardown);
}
