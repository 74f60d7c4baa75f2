/* The shim is killed: the tree ends all the same, and what the program's end was is not lost. The
 * shim is stopped first (SIGSTOP) where it must not have seen that end. */
#include "connectors/shim/tree_linux.h"
#include "tests/support/unit.h"
#include "connectors/shim/will_linux.h"
#include "tests/support/run_kit.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATIENCE_MS 20000

/* One run in the test's folder, with the pids of all that take part. */
struct life {
    pid_t guard;
    long shim, program;
};

/* The script runs as `sh -c`, with $D the folder; it goes on when the file `go` is there. */
#define GO "echo $$ >$D/program; while ! [ -e $D/go ]; do sleep 0.01; done; "

static struct life begin(const char *script, bool agents)
{
    static unsigned serial;
    char key[64];
    struct life x;

    (void)unlink(run_file("go"));
    (void)unlink(run_file("program"));
    (void)unlink(run_file("escaped"));
    (void)unlink(run_file(RUN_END_FILE));
    (void)unlink(run_file(RUN_EXIT_FILE)); /* each has a folder of its own else */
    assert_int_equal(setenv("D", run_dir, 1), 0);
    (void)snprintf(key, sizeof key, "test-killed.%u.1/0", ++serial);
    const char *const with[] = {"hanse",   "run",  "--dir", run_dir, "--socket", run_file("sock"),
                                "--grace", "2000", "--",    "sh",    "-c",       script,
                                NULL};
    const char *const alone[] = {"hanse", "run", "--grace", "2000", "--", "sh", "-c", script, NULL};
    x.guard = run_start(key, agents ? with : alone);
    x.program = run_pid("program");
    x.shim = pid_parent(x.program);
    assert_int_equal(pid_parent(x.shim), x.guard);
    return x;
}

static void go(void)
{
    int fd = open(run_file("go"), O_CREAT | O_WRONLY, 0600);

    assert_true(fd >= 0);
    (void)close(fd);
}

static void stop_shim(const struct life *x)
{
    assert_int_equal(kill((pid_t)x->shim, SIGSTOP), 0);
    assert_true(pid_await(x->shim, "T", PATIENCE_MS));
}

/* The program ends while its shim can see nothing, and then the shim is killed. */
static int end_unseen(const struct life *x, int signo)
{
    stop_shim(x);
    if (signo)
        assert_int_equal(kill((pid_t)x->program, signo), 0);
    else
        go();
    assert_true(pid_await(x->program, "Z", PATIENCE_MS));
    assert_int_equal(kill((pid_t)x->shim, SIGKILL), 0);
    return run_finish(x->guard);
}

static void the_tree_of_a_killed_shim_is_ended(void **state)
{
    struct life x = begin("/proc/$PPID/exe escape $D/escaped; " GO, true);
    long escaped = run_pid("escaped");
    struct run_report r;

    (void)state;
    assert_int_equal(kill((pid_t)x.shim, SIGKILL), 0);
    assert_int_equal(run_finish(x.guard), 137);
    assert_false(pid_alive(escaped));
    assert_false(pid_alive(x.program));
    run_ended(&r);
    assert_string_equal(r.reason, "RunnerKilled");
    assert_int_equal(r.term_signal, SIGKILL);
}

static void an_exit_that_no_shim_saw_is_told(void **state)
{
    struct life x = begin(GO "exit 7", true);
    struct run_report r;

    (void)state;
    assert_int_equal(end_unseen(&x, 0), 7);
    run_ended(&r);
    assert_int_equal(r.exit_code, 7);
    assert_int_equal(r.term_signal, 0);
    assert_string_equal(r.reason, "");
    x = begin(GO "exit 0", true);
    assert_int_equal(end_unseen(&x, 0), 0);
    run_ended(&r);
    assert_int_equal(r.exit_code, 0);
    assert_int_equal(r.term_signal, 0);
    x = begin(GO, true);
    assert_int_equal(end_unseen(&x, SIGSEGV), 128 + SIGSEGV);
    run_ended(&r);
    assert_int_equal(r.term_signal, SIGSEGV);
    assert_string_equal(r.reason, "");
}

/* The process in between: keeper, or the first process of the namespace, is one of ours. */
static void who_holds_the_namespace_is_no_program(void **state)
{
    char why[256];
    struct run_report r;

    (void)state;
    if (geteuid() != 0 || held_probe(NULL, RUN_NAMESPACE, why) != RUN_NAMESPACE)
        skip();
    for (int who = 0; who < 3; who++) { /* keeper, init, program */
        (void)unlink(run_file("go"));
        (void)unlink(run_file("program"));
        (void)unlink(run_file(RUN_EXIT_FILE));
        pid_t guard = run_start("test-keeper.1.1/0",
                                (const char *[]){"hanse", "run", "--dir", run_dir, "--socket",
                                                 run_file("sock"), "--processes", "pidNamespace",
                                                 "--grace", "2000", "--", "sh", "-c", GO, NULL});
        (void)run_pid("program");
        long keeper = pid_child(pid_child(guard)), init = pid_child(keeper), program = 0;
        for (long pid = 2; pid < 1 << 22 && !program; pid++)
            program = pid != init && pid_parent(pid) == keeper ? pid : 0;
        long victim = who == 0 ? keeper : who == 1 ? init : program;
        assert_int_equal(kill((pid_t)victim, SIGKILL), 0);
        (void)run_finish(guard);
        run_ended(&r);
        assert_int_equal(r.term_signal, SIGKILL);
        assert_string_equal(r.reason, who < 2 ? "RunnerKilled" : "");
    }
}

/* Without a folder its will is in memory of the guard, by a path of /proc, and the namespace mounts
 * another one. A program that was killed is no runner that was. */
static void without_a_folder_it_is_told_who_was_killed(void **state)
{
    char why[256], text[4096] = "";

    (void)state;
    if (geteuid() != 0 || held_probe(NULL, RUN_NAMESPACE, why) != RUN_NAMESPACE)
        skip();
    for (int who = 0; who < 2; who++) { /* program, keeper */
        const char *file = run_file("report");
        (void)unlink(run_file("program"));
        pid_t guard = run_start("test-memory.1.1/0",
                                (const char *[]){"hanse", "run", "--report", file, "--processes",
                                                 "pidNamespace", "--grace", "2000", "--", "sh",
                                                 "-c", GO, NULL});
        (void)run_pid("program");
        long keeper = pid_child(pid_child(guard)), init = pid_child(keeper), program = 0;
        for (long pid = 2; pid < 1 << 22 && !program; pid++)
            program = pid != init && pid_parent(pid) == keeper ? pid : 0;
        assert_int_equal(kill((pid_t)(who == 0 ? program : keeper), SIGKILL), 0);
        assert_int_equal(run_finish(guard), 128 + SIGKILL);
        FILE *f = fopen(file, "r");
        assert_non_null(f);
        text[fread(text, 1, sizeof text - 1, f)] = '\0';
        (void)fclose(f);
        assert_int_equal(unlink(file), 0);
        if (!strstr(text, "\"signal\":9") || !strstr(text, "RunnerKilled") != (who == 0))
            fail_msg("of %d it says %s", who, text);
    }
}

/* In a pod nobody reads end.json: the exit status is all there is. */
static void without_an_agent_the_exit_status_is_kept_as_well(void **state)
{
    struct life x = begin(GO "exit 75", false);

    (void)state;
    assert_int_equal(end_unseen(&x, 0), 75);
    x = begin(GO, false);
    assert_int_equal(end_unseen(&x, SIGTERM), 128 + SIGTERM);
}

/* It ended well, and left somebody behind: both must be true. */
static void what_double_forked_ends_before_the_exit_is_told(void **state)
{
    struct life x = begin("/proc/$PPID/exe escape $D/escaped; " GO "exit 3", true);
    long escaped = run_pid("escaped");
    struct run_report r;

    (void)state;
    assert_int_equal(end_unseen(&x, 0), 3);
    assert_false(pid_alive(escaped));
    run_ended(&r);
    assert_int_equal(r.exit_code, 3);
}

/* Its first thread has ended: /proc calls it a zombie, and it lives. */
static void a_ghost_is_not_taken_for_dead(void **state)
{
    struct life x = begin("/proc/$PPID/exe ghost $D/escaped; " GO "exit 3", true);
    long ghost = run_pid("escaped");
    struct run_report r;

    (void)state;
    assert_true(pid_await(ghost, "Z", PATIENCE_MS));
    assert_int_equal(pid_threads(ghost), 2);
    go();
    assert_int_equal(run_finish(x.guard), 3);
    run_ended(&r);
    assert_true(pid_threads(ghost) <= 1); /* a true zombie now, or reaped */
}

/* Started by somebody who ignores SIGCHLD: the kernel must keep statuses all the same. */
static void who_ignores_children_does_not_pass_it_on(void **state)
{
    (void)state;
    (void)signal(SIGCHLD, SIG_IGN);
    pid_t pid = run_start(NULL, (const char *[]){"hanse", "run", "--", "sh", "-c", "exit 7", NULL});
    (void)signal(SIGCHLD, SIG_DFL);
    assert_int_equal(run_finish(pid), 7);
}

/* The number of its program belongs to somebody else by now: that one's end is not the
 * program's. */
static void a_number_used_again_is_not_believed(void **state)
{
    const char *path = run_file("will");
    struct run_report r;
    struct err err;

    (void)state;
    assert_int_equal(will_begin(NULL, path, &err), 0);
    pid_t pid = fork();
    if (pid == 0)
        _exit(will_program(path, 0) ? 5 : 99);
    assert_true(pid_await(pid, "Z", PATIENCE_MS));
    assert_false(will_tell(NULL, path, false, &r)); /* of an earlier boot */
    assert_true(will_tell(NULL, path, true, &r));
    assert_int_equal(r.exit_code, 5);
    assert_true(r.unsealed);
    will_flag(NULL, path, WILL_LEASE_LOST);
    assert_true(will_tell(NULL, path, true, &r));
    assert_true(r.lease_lost);
    assert_string_equal(r.reason, "LeaseLost");
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    (void)fprintf(f, "%d %llu\n", (int)pid, (unsigned long long)tree_process_start(pid) + 1);
    (void)fclose(f);
    assert_false(will_tell(NULL, path, true, &r));
    assert_int_equal(run_finish(pid), 5);
}

/* Guard gone, shim stopped, program at its end, shim killed: who started the guard adopts, and
 * nothing was noted. Then it is lost, and that is said; it must not be taken for a good end. */
static void with_guard_and_shim_killed_nothing_is_made_up(void **state)
{
    struct life x = begin(GO "exit 0", true);

    (void)state;
    stop_shim(&x);
    go();
    assert_true(pid_await(x.program, "Z", PATIENCE_MS));
    assert_int_equal(kill(x.guard, SIGKILL), 0);
    assert_int_equal(kill((pid_t)x.shim, SIGKILL), 0);
    assert_int_equal(run_finish(x.guard), 1000 + SIGKILL);
    assert_true(pid_await(x.shim, "X", PATIENCE_MS));
    assert_int_equal(access(run_file(RUN_END_FILE), F_OK), -1);
}

static void a_killed_guard_takes_nothing_along(void **state)
{
    struct life x = begin(GO "exit 6", true);
    struct run_report r;

    (void)state;
    assert_int_equal(kill(x.guard, SIGKILL), 0);
    assert_int_equal(run_finish(x.guard), 1000 + SIGKILL);
    go();
    assert_true(pid_await(x.shim, "X", PATIENCE_MS));
    run_ended(&r);
    assert_int_equal(r.exit_code, 6);
}

#ifdef HANSE_FAILPOINTS
/* The shim dies by itself at each of its points from the program's end on. */
static void at_every_point_of_its_end_the_exit_is_kept(void **state)
{
    static const char *const points[] = {"shim.exit.before", "shim.exit.after", "shim.end.before",
                                         "shim.end.after"};

    (void)state;
    for (size_t i = 0; i < sizeof points / sizeof *points; i++)
        for (int agents = 0; agents < 2; agents++) {
            struct run_report r;
            assert_int_equal(setenv("HANSE_FAILPOINT", points[i], 1), 0);
            struct life x = begin(GO "exit 9", agents);
            assert_int_equal(unsetenv("HANSE_FAILPOINT"), 0);
            go();
            assert_int_equal(run_finish(x.guard), 9);
            if (!agents)
                continue;
            run_ended(&r);
            assert_int_equal(r.exit_code, 9);
            assert_int_equal(r.term_signal, 0);
        }
}
#endif

int main(int argc, char **argv)
{
    int rc = run_kit_main(argc, argv);

    if (rc >= 0)
        return rc;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_tree_of_a_killed_shim_is_ended),
        cmocka_unit_test(an_exit_that_no_shim_saw_is_told),
        cmocka_unit_test(who_holds_the_namespace_is_no_program),
        cmocka_unit_test(without_a_folder_it_is_told_who_was_killed),
        cmocka_unit_test(without_an_agent_the_exit_status_is_kept_as_well),
        cmocka_unit_test(what_double_forked_ends_before_the_exit_is_told),
        cmocka_unit_test(a_ghost_is_not_taken_for_dead),
        cmocka_unit_test(who_ignores_children_does_not_pass_it_on),
        cmocka_unit_test(a_number_used_again_is_not_believed),
        cmocka_unit_test(with_guard_and_shim_killed_nothing_is_made_up),
        cmocka_unit_test(a_killed_guard_takes_nothing_along),
#ifdef HANSE_FAILPOINTS
        cmocka_unit_test(at_every_point_of_its_end_the_exit_is_kept),
#endif
    };
    return cmocka_run_group_tests(tests, run_kit_setup, run_kit_teardown);
}
