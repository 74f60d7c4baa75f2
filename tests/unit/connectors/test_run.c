/* The shim with real processes: `hanse run` as this very program. */
#include "connectors/run/run.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static char dir[256];

static uint64_t now_ms(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_BOOTTIME, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* What a program does that wants to get away: leaves its session and its parent, ignores what it
 * can. */
static int escape_main(const char *file)
{
    for (int i = 0; i < 2; i++) {
        if (fork() > 0)
            _exit(0);
        (void)setsid();
    }
    (void)signal(SIGTERM, SIG_IGN);
    (void)signal(SIGHUP, SIG_IGN);
    FILE *f = fopen(file, "w");
    if (!f)
        return 1;
    (void)fprintf(f, "%d\n", (int)getpid());
    (void)fclose(f);
    for (;;)
        (void)pause();
}

static long read_pid(const char *file, uint64_t patience_ms)
{
    uint64_t until = now_ms() + patience_ms;
    long pid = 0;

    while (now_ms() < until && pid == 0) {
        FILE *f = fopen(file, "r");
        if (f) {
            if (fscanf(f, "%ld", &pid) != 1)
                pid = 0;
            (void)fclose(f);
        }
        (void)poll(NULL, 0, 5);
    }
    assert_true(pid > 0);
    return pid;
}

static bool alive(long pid)
{
    char path[64], state = 'X';

    (void)snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    FILE *f = fopen(path, "r");
    if (!f)
        return false;
    if (fscanf(f, "%*d (%*[^)]) %c", &state) != 1)
        state = 'X';
    (void)fclose(f);
    return state != 'Z' && state != 'X';
}

static pid_t start(const char *const *argv)
{
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        int null = open("/dev/null", O_RDWR);
        (void)dup2(null, 1);
        union {
            const char *const *c;
            char **m;
        } a = {argv};
        (void)execv("/proc/self/exe", a.m);
        _exit(99);
    }
    return pid;
}

static int finish(pid_t pid, uint64_t patience_ms)
{
    uint64_t until = now_ms() + patience_ms;
    int status;

    while (waitpid(pid, &status, WNOHANG) == 0) {
        if (now_ms() > until) {
            (void)kill(pid, SIGKILL);
            fail_msg("hanse run did not end in %llu ms", (unsigned long long)patience_ms);
        }
        (void)poll(NULL, 0, 5);
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static int run(const char *const *argv)
{
    return finish(start(argv), 20000);
}

static void file_name(char *out, size_t n, const char *name)
{
    (void)snprintf(out, n, "%s/%s", dir, name);
}

static void exit_codes(void **state)
{
    (void)state;
    assert_int_equal(run((const char *[]){"hanse", "run", "--", "true", NULL}), 0);
    assert_int_equal(run((const char *[]){"hanse", "run", "--", "sh", "-c", "exit 75", NULL}), 75);
    assert_int_equal(run((const char *[]){"hanse", "run", "--", "sh", "-c", "kill -9 $$", NULL}),
                     137);
    assert_int_equal(run((const char *[]){"hanse", "run", "--", "no-such-program-here", NULL}),
                     127);
    assert_int_equal(run((const char *[]){"hanse", "run", "--bogus", NULL}), 2);
    assert_int_equal(run((const char *[]){"hanse", "run", "--help", NULL}), 0);
}

static void term_is_handed_on_and_then_kills(void **state)
{
    char file[300];

    (void)state;
    file_name(file, sizeof file, "stubborn");
    pid_t pid = start((const char *[]){
        "hanse", "run", "--grace", "300", "--", "sh", "-c",
        "trap '' TERM; echo $$ >\"$0\"; while :; do sleep 0.05; done", file, NULL});
    long program = read_pid(file, 5000);
    uint64_t from = now_ms();
    assert_int_equal(kill(pid, SIGTERM), 0);
    assert_int_equal(finish(pid, 10000), 137);
    assert_true(now_ms() - from >= 250);
    assert_false(alive(program));
}

static void what_it_leaves_behind_ends_with_it(void **state)
{
    char file[300];

    (void)state;
    file_name(file, sizeof file, "left");
    pid_t pid = start((const char *[]){
        "hanse", "run", "--grace", "200", "--", "sh", "-c",
        "/proc/$PPID/exe escape \"$0\"; while ! [ -s \"$0\" ]; do sleep 0.01; done; exit 3", file,
        NULL});
    long escaped = read_pid(file, 5000);
    assert_int_equal(finish(pid, 10000), 3);
    assert_false(alive(escaped));
}

static void lease_ends_everything_by_itself(void **state)
{
    char file[300], end[300], sock[300];

    (void)state;
    file_name(file, sizeof file, "lease.pid");
    file_name(end, sizeof end, "end.json");
    file_name(sock, sizeof sock, "sock");
    uint64_t from = now_ms();
    assert_int_equal(setenv("HANSE_RUN_KEY", "test-lease.1.1/0", 1), 0);
    pid_t pid = start((const char *[]){
        "hanse", "run", "--dir", dir, "--socket", sock, "--lease", "1200", "--grace", "300", "--",
        "sh", "-c", "trap '' TERM; /proc/$PPID/exe escape \"$0\"; while :; do sleep 0.05; done",
        file, NULL});
    assert_int_equal(unsetenv("HANSE_RUN_KEY"), 0);
    long escaped = read_pid(file, 5000);
    assert_true(alive(escaped));
    assert_int_equal(finish(pid, 10000), 137);
    assert_true(now_ms() - from >= 850);
    assert_true(now_ms() - from < 5000);
    assert_false(alive(escaped));
    assert_int_equal(access(end, F_OK), 0);
    /* Declared ended: a second shim must not start it again. */
    assert_int_equal(
        run((const char *[]){"hanse", "run", "--dir", dir, "--socket", sock, "--", "true", NULL}),
        5);
    assert_int_equal(unlink(end), 0);
}

/* The shim is the guard's only child when it starts. */
static long child_of(pid_t pid)
{
    char path[64];
    long child = 0;
    uint64_t until = now_ms() + 5000;

    (void)snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)pid, (int)pid);
    while (!child && now_ms() < until) {
        FILE *f = fopen(path, "r");
        if (f && fscanf(f, "%ld", &child) != 1)
            child = 0;
        if (f)
            (void)fclose(f);
    }
    return child;
}

static void guard_ends_the_tree_of_a_killed_shim(void **state)
{
    char file[300], end[300], sock[300];
    struct run_report r;
    struct err err;

    (void)state;
    file_name(file, sizeof file, "guard.pid");
    file_name(end, sizeof end, "end.json");
    file_name(sock, sizeof sock, "sock");
    assert_int_equal(setenv("HANSE_RUN_KEY", "test-guard.1.1/0", 1), 0);
    pid_t pid = start((const char *[]){
        "hanse", "run", "--dir", dir, "--socket", sock, "--", "sh", "-c",
        "/proc/$PPID/exe escape \"$0\"; while :; do sleep 0.05; done", file, NULL});
    assert_int_equal(unsetenv("HANSE_RUN_KEY"), 0);
    long escaped = read_pid(file, 5000);
    long shim = child_of(pid);
    assert_true(shim > 0);
    assert_int_equal(kill((pid_t)shim, SIGKILL), 0);
    assert_int_equal(finish(pid, 10000), 137);
    assert_false(alive(escaped));
    char text[1024];
    FILE *f = fopen(end, "r");
    assert_non_null(f);
    size_t n = fread(text, 1, sizeof text, f);
    (void)fclose(f);
    assert_int_equal(run_report_parse(text, n, &r, &err), 0);
    assert_string_equal(r.reason, "RunnerKilled");
    assert_int_equal(r.step, RUN_STEP_ENDED);
    assert_int_equal(unlink(end), 0);
}

static int setup(void **state)
{
    (void)state;
    (void)snprintf(dir, sizeof dir, "/tmp/hanse-run-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
    const char *const argv[] = {"rm", "-rf", dir, NULL};

    (void)state;
    pid_t pid = fork();
    if (pid == 0) {
        union {
            const char *const *c;
            char **m;
        } a = {argv};
        (void)execvp("rm", a.m);
        _exit(1);
    }
    return waitpid(pid, NULL, 0) == pid ? 0 : -1;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "run") == 0)
        return run_main(argc - 1, argv + 1);
    if (argc > 2 && strcmp(argv[1], "escape") == 0)
        return escape_main(argv[2]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exit_codes),
        cmocka_unit_test(term_is_handed_on_and_then_kills),
        cmocka_unit_test(what_it_leaves_behind_ends_with_it),
        cmocka_unit_test(lease_ends_everything_by_itself),
        cmocka_unit_test(guard_ends_the_tree_of_a_killed_shim),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
