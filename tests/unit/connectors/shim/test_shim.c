/* The shim with real processes: `hanse run` as this very program. */
#include "tests/support/run_kit.h"
#include "tests/support/unit.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define RUN(...) run_all((const char *[]){"hanse", "run", __VA_ARGS__, NULL})

static void exit_codes(void **state)
{
    (void)state;
    assert_int_equal(RUN("--", "true"), 0);
    assert_int_equal(RUN("--", "sh", "-c", "exit 75"), 75);
    assert_int_equal(RUN("--", "sh", "-c", "kill -9 $$"), 137);
    assert_int_equal(RUN("--", "no-such-program-here"), 127);
    assert_int_equal(RUN("--bogus"), 2);
    assert_int_equal(RUN("--help"), 0);
}

static const char *wall_plus(int64_t ms)
{
    static char text[4][32];
    static unsigned n;
    struct timespec t;

    (void)clock_gettime(CLOCK_REALTIME, &t);
    char *ret = text[n++ % 4];
    (void)snprintf(ret, sizeof text[0], "%lld",
                   (long long)t.tv_sec * 1000 + t.tv_nsec / 1000000 + (long long)ms);
    return ret;
}

/* What may have been given up is not started, nor anything by a clock that cannot be right. */
static void it_is_started_in_time_or_never(void **state)
{
    static const struct {
        const char *name;
        int64_t from, by;
        int status;
    } v[] = {{"in time", -60000, 60000, 0},
             {"too late", -60000, -1000, 126},
             {"by a clock of long ago", 60000, 120000, 126}};

    (void)state;
    for (size_t i = 0; i < sizeof v / sizeof *v; i++)
        for (int keeps = 0; keeps < 2; keeps++) { /* with checkpoints it prepares first */
            (void)unlink(run_file("started"));
            int status = RUN("--start-from", wall_plus(v[i].from), "--start-by", wall_plus(v[i].by),
                             "--checkpoint-dir", keeps ? run_file("ck") : "", "--", "touch",
                             run_file("started"));
            if (status != v[i].status || (access(run_file("started"), F_OK) == 0) != (status == 0))
                fail_msg("%s: status %d", v[i].name, status);
        }
    assert_int_equal(RUN("--start-by", "soon", "--", "true"), 2);
    assert_int_equal(RUN("--start-by", "99999999999999999", "--", "true"), 2);
}

static void term_is_handed_on_and_then_kills(void **state)
{
    (void)state;
    pid_t pid = run_start(
        NULL, (const char *[]){"hanse", "run", "--grace", "300", "--", "sh", "-c",
                               "trap '' TERM; echo $$ >\"$0\"; while :; do sleep 0.05; done",
                               run_file("stubborn"), NULL});
    long program = run_pid("stubborn");
    uint64_t from = run_now_ms();
    assert_int_equal(kill(pid, SIGTERM), 0);
    assert_int_equal(run_finish(pid), 137);
    assert_true(run_now_ms() - from >= 250);
    assert_false(pid_alive(program));
}

/* To guard and shim, as Slurm does it, or to the one that is known. */
static void save_signals_reach_the_program(void **state)
{
    static const struct {
        const char *name;
        int signo;
    } asks[] = {{"USR1", SIGUSR1}, {"USR2", SIGUSR2}, {"QUIT", SIGQUIT}};

    (void)state;
    for (size_t i = 0; i < sizeof asks / sizeof *asks; i++)
        for (int shim = 0; shim < 2; shim++) {
            (void)unlink(run_file("asked"));
            pid_t pid = run_start(NULL, (const char *[]){"hanse", "run", "--", "sh", "-c",
                                                         "trap 'exit 9' $1; echo $$ >\"$0\"; "
                                                         "while :; do sleep 0.02; done",
                                                         run_file("asked"), asks[i].name, NULL});
            long program = run_pid("asked");
            assert_int_equal(kill(shim ? (pid_t)pid_parent(program) : pid, asks[i].signo), 0);
            assert_int_equal(run_finish(pid), 9);
        }
}

/* It saves and goes on: to be asked is not to be stopped. */
static void a_save_signal_ends_nothing(void **state)
{
    (void)state;
    pid_t pid =
        run_start(NULL, (const char *[]){"hanse", "run", "--grace", "100", "--", "sh", "-c",
                                         "trap 'echo $$ >$0.saved' USR1; echo $$ >\"$0\"; "
                                         "while ! [ -e $0.go ]; do sleep 0.02; done; exit 4",
                                         run_file("saves"), NULL});
    long program = run_pid("saves");
    assert_int_equal(kill(pid, SIGUSR1), 0);
    assert_int_equal(run_pid("saves.saved"), program);
    (void)poll(NULL, 0, 300);
    assert_true(pid_alive(program));
    FILE *f = fopen(run_file("saves.go"), "w");
    assert_non_null(f);
    (void)fclose(f);
    assert_int_equal(run_finish(pid), 4);
}

/* A program that waits for its helper, which alone saves: the signal reaches both, however they are
 * held together. */
static void a_stop_reaches_the_whole_group(void **state)
{
    static const char *const held[] = {"searched", "pidNamespace"};

    (void)state;
    for (size_t i = 0; i < sizeof held / sizeof *held; i++) {
        if (RUN("--processes", held[i], "--", "true") != 0)
            continue; /* this machine permits no namespace */
        (void)unlink(run_file("helper"));
        pid_t pid = run_start(
            NULL, (const char *[]){"hanse", "run", "--processes", held[i], "--grace", "5000", "--",
                                   "sh", "-c",
                                   "trap : TERM; sh -c 'trap \"exit 0\" TERM; echo $$ >$0; "
                                   "while :; do sleep 0.02; done' $0 & wait; wait; exit 5",
                                   run_file("helper"), NULL});
        (void)run_pid("helper");
        assert_int_equal(kill(pid, SIGTERM), 0);
        assert_int_equal(run_finish(pid), 5);
    }
}

/* A commit ignores the stop as soon as it can. The stop that comes ahead of that waits for it, and
 * no longer: a program that only bears the name is asked after a second. */
static void a_commit_that_starts_is_not_ended_by_the_stop(void **state)
{
    static const char *const held[] = {"searched", "pidNamespace"};
    static const struct {
        const char *commit;
        int status;
    } tries[] = {{"echo $$ >starting; sleep 0.3; trap '' TERM; sleep 0.3", 75},
                 {"echo $$ >starting; while :; do sleep 0.05; done", 9}};
    char dir[256];

    (void)state;
    str_copy(dir, sizeof dir, run_file(""));
    for (size_t i = 0; i < 2 * sizeof held / sizeof *held; i++) {
        if (RUN("--processes", held[i / 2], "--", "true") != 0)
            continue; /* this machine permits no namespace */
        (void)unlink(run_file("starting"));
        FILE *f = fopen(run_file("checkpoint"), "w");
        assert_non_null(f);
        (void)fprintf(f, "%s\n", tries[i % 2].commit);
        assert_int_equal(fclose(f), 0);
        pid_t pid = run_start(
            NULL, (const char *[]){"hanse", "run", "--processes", held[i / 2], "--grace", "9000",
                                   "--", "sh", "-c",
                                   "trap a=1 TERM; cd $0; sh checkpoint commit || exit 9; "
                                   "while [ -z \"$a\" ]; do sleep 0.02; done; exit 75",
                                   dir, NULL});
        (void)run_pid("starting");
        assert_int_equal(kill(pid, SIGTERM), 0);
        assert_int_equal(run_finish(pid), tries[i % 2].status);
    }
}

/* $0: its folder; $1: how it ends; $2: saves when it is asked to */
#define LAUNCHER                                                                                   \
    "save() { echo $1 >$C/s$1; printf "                                                            \
    "'{\"step\":%d,\"files\":[{\"name\":\"s%d\",\"bytes\":2,\"sha256\":\"%s\"}]}' $1 $1 "          \
    "$(sha256sum <$C/s$1 | cut -c-64) >$C/m.tmp; mv $C/m.tmp $C/manifest.json; }; "                \
    "C=$HANSE_CHECKPOINT_DIR; trap '[ -z \"$2\" ] || save 2; exit $1' TERM; save 1; "              \
    "while ! [ -e $0/sealed/e1/cut-1.json ]; do sleep 0.02; done; echo $$ >$0/ready; "             \
    "while :; do sleep 0.02; done"

static int launcher(const char *name, const char *status, const char *saves)
{
    char base[128], ready[32];

    (void)snprintf(base, sizeof base, "%s", run_file(name));
    (void)snprintf(ready, sizeof ready, "%s/ready", name);
    pid_t pid = run_start(NULL, (const char *[]){"hanse", "run", "--checkpoint-dir", base, "--",
                                                 "sh", "-c", LAUNCHER, base, status, saves, NULL});
    (void)run_pid(ready);
    assert_int_equal(kill(pid, SIGTERM), 0);
    return run_finish(pid);
}

/* torchrun ends with 1 where its workers have saved and ended with 75. */
static void a_launcher_that_saved_when_asked_is_no_error(void **state)
{
    (void)state;
    assert_int_equal(launcher("launcher-saved", "1", "yes"), 75);
    assert_int_equal(launcher("launcher-did-not", "1", ""), 1);
    assert_int_equal(launcher("launcher-failed", "3", "yes"), 3);
}

static void what_it_leaves_behind_ends_with_it(void **state)
{
    (void)state;
    pid_t pid =
        run_start(NULL, (const char *[]){"hanse", "run", "--grace", "200", "--", "sh", "-c",
                                         "/proc/$PPID/exe escape \"$0\"; while ! [ -s \"$0\" ]; do "
                                         "sleep 0.01; done; exit 3",
                                         run_file("left"), NULL});
    long escaped = run_pid("left");
    assert_int_equal(run_finish(pid), 3);
    assert_false(pid_alive(escaped));
}

static void lease_ends_everything_by_itself(void **state)
{
    const char *sock = run_file("sock");
    struct run_report r;

    (void)state;
    uint64_t from = run_now_ms();
    pid_t pid = run_start(
        "test-lease.1.1/0",
        (const char *[]){"hanse", "run", "--dir", run_dir, "--socket", sock, "--lease", "1200",
                         "--grace", "300", "--", "sh", "-c",
                         "trap '' TERM; /proc/$PPID/exe escape \"$0\"; while :; do sleep 0.05; "
                         "done",
                         run_file("lease.pid"), NULL});
    long escaped = run_pid("lease.pid");
    assert_true(pid_alive(escaped));
    assert_int_equal(run_finish(pid), 137);
    assert_true(run_now_ms() - from >= 850);
    assert_true(run_now_ms() - from < 5000);
    assert_false(pid_alive(escaped));
    assert_int_equal(access(run_file(RUN_END_FILE), F_OK), 0);
    /* Declared ended: a second shim must not start it again. */
    assert_int_equal(RUN("--dir", run_dir, "--socket", sock, "--", "true"), 5);
    run_ended(&r);
    assert_true(r.lease_lost);
}

int main(int argc, char **argv)
{
    int rc = run_kit_main(argc, argv);

    if (rc >= 0)
        return rc;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exit_codes),
        cmocka_unit_test(it_is_started_in_time_or_never),
        cmocka_unit_test(term_is_handed_on_and_then_kills),
        cmocka_unit_test(save_signals_reach_the_program),
        cmocka_unit_test(a_save_signal_ends_nothing),
        cmocka_unit_test(a_stop_reaches_the_whole_group),
        cmocka_unit_test(a_commit_that_starts_is_not_ended_by_the_stop),
        cmocka_unit_test(a_launcher_that_saved_when_asked_is_no_error),
        cmocka_unit_test(what_it_leaves_behind_ends_with_it),
        cmocka_unit_test(lease_ends_everything_by_itself),
    };
    return cmocka_run_group_tests(tests, run_kit_setup, run_kit_teardown);
}
