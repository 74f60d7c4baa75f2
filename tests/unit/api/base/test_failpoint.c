/* Failpoints: who dies, when, and that nobody else does. */
#include "api/base/failpoint.h"
#include "tests/support/unit.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[128];

static const char *in_dir(const char *name)
{
    static char paths[4][256];
    static unsigned i;
    char *p = paths[i++ % 4];

    (void)snprintf(p, sizeof paths[0], "%s/%s", dir, name);
    return p;
}
static int set_up(void **state)
{
    (void)state;
    (void)snprintf(dir, sizeof dir, "%s/hanse-failpoint-XXXXXX",
                   getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    return mkdtemp(dir) ? 0 : -1;
}
static int tear_down(void **state)
{
    static const char *const names[] = {"file", "file.fired", "list"};

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        (void)unlink(in_dir(names[i]));
    return rmdir(dir);
}
static void text_put(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}
static void text_get(const char *path, char out[512])
{
    FILE *f = fopen(path, "r");

    assert_non_null(f);
    size_t n = fread(out, 1, 511, f);
    out[n] = '\0';
    assert_int_equal(fclose(f), 0);
}

struct env {
    const char *own, *file, *list, *role;
};
static void env_put(const char *name, const char *value)
{
    if (value ? setenv(name, value, 1) : unsetenv(name))
        _exit(99);
}
/* A child with this environment passes "a", "b", "a", "b" and exits 0, or dies; its wait status. */
static int life(const struct env *e, pid_t *ret_pid)
{
    int status = 0;
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        (void)freopen("/dev/null", "w", stderr);
        env_put("HANSE_FAILPOINT", e->own);
        env_put("HANSE_FAILPOINT_FILE", e->file);
        env_put("HANSE_FAILPOINT_LIST", e->list);
        env_put("HANSE_FAILPOINT_ROLE", e->role);
        failpoint_init();
        for (int i = 0; i < 2; i++) {
            FAILPOINT("a");
            FAILPOINT("b");
        }
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
    if (WIFSTOPPED(status)) {
        assert_int_equal(kill(pid, SIGKILL), 0);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
    }
    if (ret_pid)
        *ret_pid = pid;
    return status;
}
static bool killed(int status)
{
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}
static bool well(int status)
{
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void test_nobody_dies_unasked(void **state)
{
    (void)state;
    assert_true(well(life(&(struct env){0}, NULL)));
    assert_true(well(life(&(struct env){.own = ""}, NULL)));
    assert_true(well(life(&(struct env){.own = "c"}, NULL)));
    assert_true(well(life(&(struct env){.own = "a:3"}, NULL)));
    assert_true(well(life(&(struct env){.own = "a@other", .role = "one"}, NULL)));
    assert_true(well(life(&(struct env){.own = "a@other"}, NULL)));
    assert_true(well(life(&(struct env){.file = in_dir("none")}, NULL)));
}
static void test_dies_as_asked(void **state)
{
    int s;

    (void)state;
    assert_true(killed(life(&(struct env){.own = "a"}, NULL)));
    assert_true(killed(life(&(struct env){.own = "b:2=kill"}, NULL)));
    assert_true(killed(life(&(struct env){.own = "b@one", .role = "one"}, NULL)));
    s = life(&(struct env){.own = "b=exit"}, NULL);
    assert_true(WIFEXITED(s) && WEXITSTATUS(s) == 70);
    s = life(&(struct env){.own = "b:1=stop"}, NULL);
    assert_true(WIFSTOPPED(s) && WSTOPSIG(s) == SIGSTOP);
}
static void test_lists_what_is_passed(void **state)
{
    char got[512], want[512];
    pid_t pid;

    (void)state;
    (void)unlink(in_dir("list"));
    assert_true(
        killed(life(&(struct env){.own = "a:2", .list = in_dir("list"), .role = "hub"}, &pid)));
    text_get(in_dir("list"), got);
    (void)snprintf(want, sizeof want, "a hub %d\nb hub %d\na hub %d\n", (int)pid, (int)pid,
                   (int)pid);
    assert_string_equal(got, want);
}
/* The first that comes by dies; the next one, and the one that is started again, live. */
static void test_one_file_one_death(void **state)
{
    struct env e = {.file = in_dir("file"), .role = "hub"};
    char got[512], want[32];
    pid_t pid;

    (void)state;
    text_put(in_dir("file"), "a@spoke\n");
    assert_true(well(life(&e, NULL)));
    text_put(in_dir("file"), "b@hub:2\n");
    assert_true(killed(life(&e, &pid)));
    assert_int_equal(access(in_dir("file"), F_OK), -1);
    text_get(in_dir("file.fired"), got);
    (void)snprintf(want, sizeof want, "%d\n", (int)pid);
    assert_string_equal(got, want);
    assert_true(well(life(&e, NULL)));
    text_put(in_dir("file"), "nonsense=x");
    assert_true(well(life(&e, NULL)));
}
static void test_nonsense_is_refused(void **state)
{
    static const char *const bad[] = {"a:0", "a:x", "a=maybe", "=kill", "@r", "a:1:2", "a:"};

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int s = life(&(struct env){.own = bad[i]}, NULL);
        assert_true(WIFEXITED(s) && WEXITSTATUS(s) == 64);
    }
}

static void count(const char *name, void *arg)
{
    *(unsigned *)arg += !strcmp(name, "a");
}
static void test_hook_and_plant(void **state)
{
    unsigned n = 0;

    (void)state;
    assert_false(PLANTED("bug"));
    failpoint_plant("bug");
    assert_true(PLANTED("bug"));
    assert_false(PLANTED("other"));
    failpoint_plant(NULL);
    assert_false(PLANTED("bug"));
    failpoint_hook(count, &n);
    FAILPOINT("a");
    FAILPOINT("b");
    failpoint_hook(NULL, NULL);
    FAILPOINT("a");
    assert_int_equal(n, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nobody_dies_unasked),  cmocka_unit_test(test_dies_as_asked),
        cmocka_unit_test(test_lists_what_is_passed), cmocka_unit_test(test_one_file_one_death),
        cmocka_unit_test(test_nonsense_is_refused),  cmocka_unit_test(test_hook_and_plant),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
