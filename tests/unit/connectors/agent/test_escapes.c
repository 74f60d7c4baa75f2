/* Programs that get away: from their session, their environment, their parents, and by never
 * holding still. In each of the ways in which a machine can hold a run together; what searching
 * cannot prove is told as searched. */
#include "tests/support/agent_world.h"
#include "tests/support/run_kit.h"

#include "connectors/shim/tree_linux.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const enum run_processes ways[] = {RUN_CGROUP, RUN_NAMESPACE, RUN_SEARCHED};

/* A new agent, which holds its runs in that way. False: this machine does not permit it. */
static bool hold(enum run_processes way)
{
    char why[256];

    if (held_probe(NULL, way, why) != way) {
        print_message("not here: %s (%s)\n", run_processes_text(way), why);
        return false;
    }
    agent_end(0, SIGTERM);
    A.processes = run_processes_text(way);
    A.n_seen = 0;
    A.side[0].processes[0] = '\0';
    agent_begin(0);
    return true;
}

static enum proof proof_of(enum run_processes way)
{
    return way == RUN_SEARCHED ? PROOF_TREE_SEARCHED : PROOF_TREE_GONE;
}

static const char *named(const struct agent_order *o, const char *what)
{
    return agent_name("%s.%s", o->key.uid, what);
}

/* The pids of those whose command line matches, as seen from outside of any namespace. */
static unsigned found(const char *pattern, const char *uid, long ret[2])
{
    char line[256];
    unsigned n = 0;

    (void)snprintf(line, sizeof line, "pgrep -f '%s.*%s'", pattern, uid);
    FILE *f = popen(line, "r");
    assert_non_null(f);
    while (n < 2 && fgets(line, sizeof line, f))
        ret[n++] = strtol(line, NULL, 10);
    (void)pclose(f);
    return n;
}

static long links_made(const struct agent_order *o)
{
    long n = 0;
    FILE *f = fopen(agent_name("%s/%s", A.dir, named(o, "chain")), "r");

    if (f) {
        if (fread(&n, sizeof n, 1, f) != 1)
            n = 0;
        (void)fclose(f);
    }
    return n;
}

static bool chain_runs(void *arg)
{
    return links_made(arg) > 50;
}

static void no_chain_outlives_its_end(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        struct agent_order o = {.key = agent_key(),
                                .script =
                                    "$H chain $D/$U.chain; env -i setsid $H chain $D/$U.chain; "
                                    "while :; do sleep 0.05; done",
                                .grace = "300ms"};
        struct asked a;

        if (!hold(ways[i]))
            continue;
        o.key = agent_key();
        assert_int_equal(agent_submit(&o, &a), OUT_DONE);
        assert_true(agent_until(chain_runs, &o, PATIENCE_MS));
        (void)agent_stop(0, &o.key, &a);
        const struct observation *e = agent_await(&o.key, RUN_ENDED);
        long then = links_made(&o);
        assert_int_equal(e->proof, proof_of(ways[i]));
        agent_pass(300);
        if (links_made(&o) != then &&
            ways[i] != RUN_SEARCHED) /* a search may miss it, and says so */
            fail_msg("%s: %ld links more after its end", run_processes_text(ways[i]),
                     links_made(&o) - then);
        (void)unlink(agent_name("%s/%s", A.dir, named(&o, "chain"))); /* ends what was missed */
    }
}

/* Nothing of the run's is in its environment, its session or its parents. */
#define BARE "env -i setsid $ESC $D/$U.bare; echo $$ >$D/$U.pid; while :; do sleep 0.05; done"

struct lost {
    struct agent_order order;
    long bare, shim, guard;
};

static struct lost begin_lost(const char *script, const char *grace)
{
    struct lost x = {.order = {.key = agent_key(), .script = script, .grace = grace}};
    struct asked a;

    assert_int_equal(agent_submit(&x.order, &a), OUT_DONE);
    (void)agent_await_pid(named(&x.order, "pid"));
    (void)agent_await_pid(named(&x.order, "bare"));
    long pids[2];
    assert_int_equal(found("[e]scape /", x.order.key.uid, pids), 1);
    x.bare = pids[0];
    assert_int_equal(found("[r]un --dir", x.order.key.uid, pids), 2);
    x.guard = pid_parent(pids[0]) == pids[1] ? pids[1] : pids[0];
    x.shim = pids[0] + pids[1] - x.guard;
    assert_int_equal(pid_parent(x.shim), x.guard);
    return x;
}

static struct lost begin_bare(void)
{
    struct lost x = begin_lost(BARE, "300ms");

    (void)agent_await(&x.order.key, RUN_RUNNING);
    return x;
}

static void what_is_bare_ends_with_guard_and_shim_killed(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        if (!hold(ways[i]))
            continue;
        struct lost x = begin_bare();
        assert_true(pid_alive(x.bare));
        (void)kill((pid_t)x.guard, SIGKILL);
        (void)kill((pid_t)x.shim, SIGKILL);
        const struct observation *e = agent_await(&x.order.key, RUN_ENDED);
        assert_false(pid_alive(x.bare));
        assert_int_equal(e->proof, proof_of(ways[i]));
    }
}

/* And the agent as well: the next one ends it, where something holds it. Where nothing does it is
 * out of reach, and the end says that it was only searched for. */
static void what_is_bare_ends_with_all_three_killed(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        if (!hold(ways[i]))
            continue;
        struct lost x = begin_bare();
        (void)kill(A.side[0].agent, SIGSTOP);
        (void)kill((pid_t)x.guard, SIGKILL);
        (void)kill((pid_t)x.shim, SIGKILL);
        agent_end(0, SIGKILL);
        A.n_seen = 0;
        agent_begin(0);
        const struct observation *e = agent_await(&x.order.key, RUN_ENDED);
        assert_int_equal(e->proof, proof_of(ways[i]));
        if (ways[i] != RUN_SEARCHED)
            assert_false(pid_alive(x.bare));
        else
            (void)kill((pid_t)x.bare, SIGKILL);
    }
}

static bool is_dead(void *arg)
{
    return !pid_alive(((struct lost *)arg)->bare);
}

static bool has_group_left(const char *uid)
{
    char line[256];

    (void)snprintf(line, sizeof line, "find /sys/fs/cgroup -name '*%s*'", uid);
    FILE *f = popen(line, "r");
    assert_non_null(f);
    bool any = fgets(line, sizeof line, f) != NULL;
    (void)pclose(f);
    return any;
}

/* With nobody left to end anything: a namespace goes by itself, also when its program is gone
 * already and only what that left behind is waited for. The next agent clears away. */
static void nothing_in_a_namespace_outlives_all_three(void **state)
{
    static const char *const scripts[] = {BARE,
                                          "env -i setsid $ESC $D/$U.bare; echo $$ >$D/$U.pid; "
                                          "while [ ! -s $D/$U.bare ]; do sleep 0.01; done"};

    (void)state;
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++) {
        if (!hold(RUN_NAMESPACE))
            skip();
        struct lost x = begin_lost(scripts[i], "5s");
        if (i == 1) /* its program has ended, its grace has not */
            agent_pass(300);
        assert_true(pid_alive(x.bare));
        (void)kill(A.side[0].agent, SIGSTOP);
        (void)kill((pid_t)x.guard, SIGKILL);
        (void)kill((pid_t)x.shim, SIGKILL);
        agent_end(0, SIGKILL);
        assert_true(agent_until(is_dead, &x, 500));
        A.n_seen = 0;
        agent_begin(0);
        assert_int_equal(agent_await(&x.order.key, RUN_ENDED)->proof, PROOF_TREE_GONE);
        assert_false(has_group_left(x.order.key.uid));
    }
}

/* Who must be proved gone is not begun where it cannot be. */
static void what_must_be_proved_is_refused_where_it_cannot(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        struct agent_order o = {.script = "exit 0", .proved = true};
        struct asked a;

        if (!hold(ways[i]))
            continue;
        o.key = agent_key();
        assert_int_equal(agent_submit(&o, &a), ways[i] == RUN_SEARCHED ? OUT_REJECTED : OUT_DONE);
        if (ways[i] == RUN_SEARCHED)
            assert_string_equal(a.err.field, "spec.isolation.processes");
        else
            assert_int_equal(agent_await(&o.key, RUN_ENDED)->proof, PROOF_TREE_GONE);
        (void)agent_inventory(0, &a);
        assert_string_equal(A.side[0].processes, run_processes_text(ways[i]));
    }
}

/* Its exit, its signals and its end are those of the program, whatever stands between. */
static void a_program_sees_no_difference(void **state)
{
    static const struct {
        const char *script;
        int exit_code, signo;
    } rows[] = {
        {"exit 7", 7, 0},
        {"kill -SEGV $$", 0, SIGSEGV},
        {"(sleep 600 &) ; exit 3", 3, 0},
        {"[ -r /proc/$$/stat ] && [ $(cut -d' ' -f1 /proc/self/stat) != 0 ] && exit 5", 5, 0}};

    (void)state;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        if (!hold(ways[i]))
            continue;
        for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
            struct agent_order o = {.key = agent_key(), .script = rows[k].script, .grace = "300ms"};
            struct asked a;
            assert_int_equal(agent_submit(&o, &a), OUT_DONE);
            const struct observation *e = agent_await(&o.key, RUN_ENDED);
            assert_int_equal(e->exit_code, rows[k].exit_code);
            assert_int_equal(e->term_signal, rows[k].signo);
        }
        struct agent_order o = {.key = agent_key(),
                                .script = "trap 'exit 9' USR1; echo $$ >$D/$U.pid; "
                                          "while :; do sleep 0.02; done"};
        struct asked a;
        assert_int_equal(agent_submit(&o, &a), OUT_DONE);
        (void)agent_await_pid(named(&o, "pid"));
        agent_quiesce(0, &o.key);
        assert_int_equal(agent_await(&o.key, RUN_ENDED)->exit_code, 9);
    }
}

int main(int argc, char **argv)
{
    int rc = agent_world_main(argc, argv);

    if (rc >= 0)
        return rc;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_program_sees_no_difference),
        cmocka_unit_test(no_chain_outlives_its_end),
        cmocka_unit_test(what_is_bare_ends_with_guard_and_shim_killed),
        cmocka_unit_test(what_is_bare_ends_with_all_three_killed),
        cmocka_unit_test(nothing_in_a_namespace_outlives_all_three),
        cmocka_unit_test(what_must_be_proved_is_refused_where_it_cannot),
    };
    return cmocka_run_group_tests(tests, agent_world_setup, agent_world_teardown);
}
