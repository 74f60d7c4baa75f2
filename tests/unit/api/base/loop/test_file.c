/* Files and processes of the production loop. */
#include "api/base/loop/loop.h"
#include "tests/support/unit.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static struct loop *l;
static char dir[128];

static const char *in_dir(const char *name)
{
    static char paths[8][256];
    static unsigned i;
    char *p = paths[i++ % 8];

    (void)snprintf(p, 256, "%s/%s", dir, name);
    return p;
}

static int set_up(void **state)
{
    (void)state;
    (void)snprintf(dir, sizeof dir, "%s/hanse-file-XXXXXX",
                   getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    assert_non_null(mkdtemp(dir));
    l = loop_uv_create(NULL);
    return l ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    assert_int_equal(file_remove(l, dir, NULL), 0);
    assert_int_equal(access(dir, F_OK), -1);
    l = loop_uv_destroy(l);
    return 0;
}

static void expect_text(const char *path, const char *text)
{
    AUTO_BUF b;

    buf_init(&b, 1 << 20);
    assert_int_equal(file_read(l, path, 1 << 20, &b, NULL), 0);
    assert_string_equal(b.n ? b.p : "", text);
}

static void test_write_is_atomic(void **state)
{
    struct err err = {0};
    struct stat st;
    const char *path = in_dir("f");

    (void)state;
    assert_int_equal(file_write(l, path, "one", 3, 0600, NULL), 0);
    expect_text(path, "one");
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    /* A left-over of a crash that points elsewhere must not be written through. */
    assert_int_equal(file_write(l, in_dir("precious"), "keep", 4, 0600, NULL), 0);
    assert_int_equal(symlink(in_dir("precious"), in_dir("f.tmp")), 0);
    assert_int_equal(file_write(l, path, "two", 3, 0640, NULL), 0);
    expect_text(path, "two");
    expect_text(in_dir("precious"), "keep");
    assert_int_equal(access(in_dir("f.tmp"), F_OK), -1);
    /* A write that fails changes nothing and leaves nothing. */
    assert_int_equal(file_mkdir(l, in_dir("d/e"), 0700, NULL), 0);
    assert_int_equal(file_write(l, in_dir("d"), "x", 1, 0600, &err), E_IO);
    assert_int_equal(access(in_dir("d.tmp"), F_OK), -1);
    assert_int_equal(file_write(l, in_dir("absent/f"), "x", 1, 0600, &err), E_NOTFOUND);
    assert_non_null(strstr(err.text, "absent/f"));
}

static void test_read_limits(void **state)
{
    struct err err = {0};
    struct buf b;

    (void)state;
    buf_init(&b, 100);
    assert_int_equal(file_read(l, in_dir("none"), 100, &b, &err), E_NOTFOUND);
    assert_int_equal(file_read(l, dir, 100, &b, &err), E_IO);
    assert_int_equal(file_write(l, in_dir("hundred"), "0123456789", 10, 0600, NULL), 0);
    assert_int_equal(file_read(l, in_dir("hundred"), 9, &b, &err), E_TOOLARGE);
    buf_reset(&b);
    assert_int_equal(file_read(l, in_dir("hundred"), 10, &b, &err), 0);
    assert_int_equal(b.n, 10);
    buf_reset(&b);
    assert_int_equal(file_read_at(l, in_dir("hundred"), 4, 3, &b, &err), 0);
    assert_string_equal(b.p, "456");
    assert_int_equal(file_read_at(l, in_dir("hundred"), 10, 3, &b, &err), 0);
    assert_int_equal(b.n, 3);
    buf_fini(&b);
}

static void append_name(const char *name, void *arg)
{
    buf_printf(arg, "%s ", name);
}

static void test_tree(void **state)
{
    AUTO_BUF b;

    (void)state;
    buf_init(&b, 1000);
    assert_int_equal(file_mkdir(l, in_dir("t/b/c"), 0700, NULL), 0);
    assert_int_equal(file_mkdir(l, in_dir("t/b/c"), 0700, NULL), 0);
    assert_int_equal(file_write(l, in_dir("t/z"), "", 0, 0600, NULL), 0);
    assert_int_equal(file_write(l, in_dir("t/B"), "", 0, 0600, NULL), 0);
    assert_int_equal(file_mkdir(l, in_dir("t/z"), 0700, NULL), E_EXISTS);
    assert_int_equal(file_list(l, in_dir("t"), append_name, &b, NULL), 0);
    assert_string_equal(b.p, "B b z ");
    assert_int_equal(file_list(l, in_dir("absent"), append_name, &b, NULL), 0);
    /* A link to a directory goes; what it points to stays. */
    assert_int_equal(file_mkdir(l, in_dir("outside"), 0700, NULL), 0);
    assert_int_equal(file_write(l, in_dir("outside/x"), "x", 1, 0600, NULL), 0);
    assert_int_equal(symlink(in_dir("outside"), in_dir("t/b/link")), 0);
    assert_int_equal(file_remove(l, in_dir("t"), NULL), 0);
    assert_int_equal(access(in_dir("t"), F_OK), -1);
    expect_text(in_dir("outside/x"), "x");
    assert_int_equal(file_remove(l, in_dir("t"), NULL), 0);
    assert_int_equal(file_remove(l, in_dir("outside/x/y"), NULL), 0);
}

static void test_lock(void **state)
{
    struct err err = {0};
    char want[64];
    int status;

    (void)state;
    assert_int_equal(file_lock(l, in_dir("lock"), &err), 0);
    (void)snprintf(want, sizeof want, "process %ld:", (long)getpid());
    pid_t pid = fork();
    if (pid == 0)
        _exit(file_lock(l, in_dir("lock"), &err) == E_BUSY && strstr(err.text, want) ? 0 : 1);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

/* ---- processes ---- */

struct child {
    struct process *p;
    int code, signo, exits;
    struct timer limit, poll;
    bool late;
    const char *wait_for; /* a file: then the signal is sent */
    bool sent;
};

static void on_exit_cb(struct process *p, int code, int signo, void *arg)
{
    struct child *c = arg;

    assert_ptr_equal(p, c->p);
    c->code = code;
    c->signo = signo;
    c->exits++;
    loop_stop(l);
}

static void on_late(void *arg)
{
    ((struct child *)arg)->late = true;
    loop_stop(l);
}

static void on_poll(void *arg)
{
    struct child *c = arg;

    if (access(c->wait_for, F_OK) != 0) {
        timer_start(&c->poll, 5);
    } else {
        c->sent = true;
        process_signal(c->p, SIGKILL);
    }
}

static void run_child(struct child *c, const char *script, bool session)
{
    const char *argv[] = {"sh", "-c", script, NULL};
    const char *env[] = {"PATH=/usr/bin:/bin", "HANSE_X=yes", NULL};
    struct process_spec spec = {argv, env, dir, in_dir("out"), in_dir("out"), session, false};
    struct err err = {0};

    if (process_spawn(l, &spec, on_exit_cb, c, &c->p, &err))
        fail_msg("%s", err.text);
    assert_int_equal(c->exits, 0);
    assert_true(process_pid(c->p) > 1);
    timer_init(&c->limit, l, on_late, c);
    timer_init(&c->poll, l, on_poll, c);
    timer_start(&c->limit, 20000);
    if (c->wait_for)
        timer_start(&c->poll, 1);
    loop_uv_run(l);
    timer_stop(&c->limit);
    assert_false(c->late);
}

static void test_spawn(void **state)
{
    struct child c = {0};

    (void)state;
    assert_int_equal(file_write(l, in_dir("out"), "before\n", 7, 0600, NULL), 0);
    run_child(&c, "echo \"$HANSE_X $PWD ${HOME:-nohome}\"; echo err >&2; exit 7", false);
    assert_int_equal(c.code, 7);
    assert_int_equal(c.signo, 0);
    char want[256];
    (void)snprintf(want, sizeof want, "before\nyes %s nohome\nerr\n", dir);
    expect_text(in_dir("out"), want); /* appended */
}

static void test_signal_group(void **state)
{
    struct child c = {.wait_for = in_dir("ready")};
    AUTO_BUF b;

    (void)state;
    buf_init(&b, 100);
    run_child(&c, "sleep 100 & echo $! > pid; mv pid ready; wait", true);
    assert_true(c.sent);
    assert_int_equal(c.signo, SIGKILL);
    /* The grandchild went as well: it was in the group. */
    assert_int_equal(file_read(l, in_dir("ready"), 99, &b, NULL), 0);
    long pid = strtol(b.p, NULL, 10);
    assert_true(pid > 1);
    bool gone = false;
    for (int i = 0; i < 2000 && !gone; i++) {
        uint64_t ticks = process_start_ticks(l, pid);

        gone = !ticks || !process_alive(l, pid, ticks);
        if (!gone)
            (void)poll(NULL, 0, 5);
    }
    assert_true(gone);
}

static void test_spawn_errors(void **state)
{
    const char *argv[] = {"no-such-program-of-hanse", NULL}, *env[] = {"PATH=/bin", NULL};
    struct process_spec spec = {.argv = argv, .env = env};
    struct process *p;
    struct err err = {0};

    (void)state;
    assert_int_equal(process_spawn(l, &spec, on_exit_cb, NULL, &p, &err), E_NOTFOUND);
    assert_non_null(strstr(err.text, "no-such-program-of-hanse"));
    argv[0] = "true";
    spec.cwd = in_dir("nowhere");
    assert_int_equal(process_spawn(l, &spec, on_exit_cb, NULL, &p, &err), E_NOTFOUND);
    assert_non_null(strstr(err.text, "working directory"));
    spec.cwd = NULL;
    spec.stdout_path = in_dir("nowhere/out");
    assert_int_equal(process_spawn(l, &spec, on_exit_cb, NULL, &p, &err), E_NOTFOUND);
}

static void test_alive(void **state)
{
    uint64_t mine = process_start_ticks(l, getpid());

    (void)state;
    assert_true(mine > 0);
    assert_true(process_alive(l, getpid(), mine));
    assert_false(process_alive(l, getpid(), mine + 1)); /* the pid was used again */
    assert_false(process_alive(l, 0, mine));
    assert_int_equal(process_start_ticks(l, 0x7ffffffe), 0);
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    siginfo_t si;
    assert_int_equal(waitid(P_PID, (id_t)pid, &si, WEXITED | WNOWAIT), 0);
    assert_false(process_alive(l, pid, process_start_ticks(l, pid))); /* a zombie */
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_write_is_atomic),
        cmocka_unit_test(test_read_limits),
        cmocka_unit_test(test_tree),
        cmocka_unit_test(test_lock),
        cmocka_unit_test(test_spawn),
        cmocka_unit_test(test_signal_group),
        cmocka_unit_test(test_spawn_errors),
        cmocka_unit_test(test_alive),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
