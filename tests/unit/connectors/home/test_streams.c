/* Logs, execs and ports of a runner that calls home: `hanse run --home` and hanse-run as real
 * processes, and the hub's side in this one, over real TLS. */
#include "connectors/home/home_internal.h"
#include "connectors/shim/tree_linux.h"
#include "connectors/streams/streams.h"
#include "tests/support/home/heard.h"
#include "tests/support/home/home_world.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct home_token token;
static struct process *runner; /* NULL: it has ended */
static int runner_code;
static const char *program; /* hanse or hanse-run */

static const char *wanted;

static bool ended(void)
{
    return heard.ends > 0;
}
static bool opened(void)
{
    return heard.opened > 0;
}
static bool has_text(void)
{
    return heard.n > 0 && strstr(heard.text, wanted);
}
static void until_text(const char *text)
{
    wanted = text;
    if (!within(has_text, 20000))
        fail_msg("%s never came, but: %.300s (%s)", text, heard.text, heard.err.text);
}

/* ---- the runner ---- */
static struct hub_side *hub; /* that it is to come to */

static bool running(void)
{
    struct observation o = {.key = token.key, .state = RUN_RUNNING};

    if (!hub->runs)
        return false;
    home_runs_fill(hub->runs, &o);
    return home_runs_reach(hub->runs, &token.key) && o.state == RUN_RUNNING;
}
static bool gone(void)
{
    return !runner;
}

static void on_exit_(struct process *p, int code, int signo, void *arg)
{
    (void)p;
    (void)arg;
    runner = NULL;
    runner_code = signo ? 1000 + signo : code;
}

static const char *file(const char *name)
{
    static char path[4][160];
    static unsigned at;
    char *p = path[at++ % 4];

    (void)snprintf(p, sizeof path[0], "%s/%s", W.dir, name);
    return p;
}

static void put(const char *name, const char *text)
{
    FILE *f = fopen(file(name), "w");

    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void runner_begin(const char *script, const char *how)
{
    char text[HOME_TOKEN_MAX], homes[80], tmp[96], dir[96];
    struct err e;

    token = token_of(1, 0, 1);
    home_token_make(&token, &home_world_keys, text);
    put("token", text);
    (void)snprintf(homes, sizeof homes, "%s%s%s", H[0].address, H[1].listener ? "," : "",
                   H[1].address);
    (void)snprintf(tmp, sizeof tmp, "TMPDIR=%s", W.dir);
    (void)snprintf(dir, sizeof dir, "D=%s", W.dir);
    const char *const argv[] = {program,        "run",         "--home",    homes,
                                "--home-ca",    file("ca.crt"), "--token-file", file("token"),
                                "--grace",      "60000",       "--processes", how,
                                "--",           "/bin/sh",     "-c",        script,
                                NULL};
    const char *const env[] = {"PATH=/usr/bin:/bin", tmp, dir, "SECRET=of the program", NULL};
    const struct process_spec spec = {
        .argv = argv, .env = env, .session = true, .stderr_path = file("runner.log")};
    assert_int_equal(process_spawn(W.loop, &spec, on_exit_, NULL, &runner, &e), 0);
    hub = &H[0];
    until(running);
}

static void runner_end(void)
{
    if (runner)
        process_signal(runner, SIGTERM);
    until(gone);
    assert_int_not_equal(access(file("token"), F_OK), 0);
}

static struct exec_session *exec_begin(const struct exec_request *rq)
{
    struct exec_session *s = NULL;
    struct err e;

    heard = (struct heard){0};
    if (home_runs_exec(hub->runs, &token.key, rq, &heard_sink, &s, &e) != 0)
        fail_msg("%s", e.text);
    assert_int_equal(heard.opened + heard.ends, 0); /* nothing from inside the call */
    return s;
}

static struct exec_session *sh(const char *script, bool with_stdin)
{
    const char *const argv[] = {"/bin/sh", "-c", script, NULL};
    const struct exec_request rq = {.argv = argv, .with_stdin = with_stdin};

    return exec_begin(&rq);
}

static long number_in_text(void)
{
    return strtol(heard.text, NULL, 10);
}

static long process_wanted;
static bool process_gone(void)
{
    return kill((pid_t)process_wanted, 0) != 0;
}

/* Does that, and then nothing for ever, whatever it is sent; process_wanted is its number. */
static struct exec_session *sh_told(const char *does, bool with_stdin)
{
    char script[160];

    (void)snprintf(script, sizeof script,
                   "trap '' TERM HUP INT; echo $$; %s while :; do sleep 0.1; done", does);
    struct exec_session *s = sh(script, with_stdin);
    until_text("\n");
    process_wanted = number_in_text();
    return s;
}

/* ---- stories ---- */
static void exec_story(void)
{
    struct exec_session *s = sh("read x; echo got $x $HANSE_RANK $SECRET; exit 5", true);

    asked_input(s, "hello\n", 6, true);
    until(ended);
    assert_string_equal(heard.text, "got hello 0 of the program\n");
    assert_int_equal(heard.exit_code, 5);
    assert_int_equal(heard.err.code, 0);
    (void)sh("echo to err >&2; kill -9 $$", false);
    until(ended);
    assert_string_equal(heard.text, "to err\n");
    assert_int_equal(heard.exit_code, 137);
    (void)sh("env; tr '\\0' '\\n' < /proc/$PPID/environ", false); /* and of the helper */
    until(ended);
    assert_null(strstr(heard.text, "hanse-run-1"));
    assert_null(strstr(heard.text, "HANSE_HOME"));
    assert_null(strstr(heard.text, "HANSE_TOKEN"));
    const char *const argv[] = {"/no/such/program", NULL};
    (void)exec_begin(&(const struct exec_request){.argv = argv});
    until(ended);
    assert_int_equal(heard.exit_code, 127);
    const struct exec_request other = {.rank = 1, .argv = argv};
    struct exec_session *none;
    struct err e;
    assert_int_equal(home_runs_exec(hub->runs, &token.key, &other, &heard_sink, &none, &e),
                     E_NOTFOUND);
}

static void terminal_story(void)
{
    const char *const argv[] = {"sh", "-c",
                                "trap 'stty size; case $(stty size) in 50*) exit 6; esac' WINCH; "
                                "test -t 0 && test -t 1 && stty size; while :; do sleep 0.05; done",
                                NULL};
    struct exec_request rq = {
        .argv = argv, .with_stdin = true, .tty = true, .size = {.rows = 31, .columns = 97}};
    struct exec_session *s = exec_begin(&rq);

    until_text("31 97\r\n");
    asked_resize(s, &(const struct exec_size){.rows = 65535, .columns = 5000});
    until_text("4096 4096\r\n");
    asked_resize(s, &(const struct exec_size){.rows = 50, .columns = 132});
    until(ended);
    assert_non_null(strstr(heard.text, "50 132\r\n"));
    assert_int_equal(heard.exit_code, 6);
    const char *const cat[] = {"cat", NULL}; /* the end of input is the terminal's own */
    rq.argv = cat;
    asked_input(exec_begin(&rq), "hello\n", 6, true);
    until(ended);
    assert_non_null(strstr(heard.text, "hello\r\nhello\r\n"));
    const char *const waits[] = {"sh", "-c", "echo ready; exec sleep 600", NULL};
    rq.argv = waits;
    s = exec_begin(&rq);
    until_text("ready");
    asked_input(s, "\003", 1, false);
    until(ended);
    assert_int_equal(heard.exit_code, 130);
}

/* The command goes with who asked for it. */
static void close_story(void)
{
    struct exec_session *s = sh("trap '' TERM HUP; echo $$; sleep 600; sleep 600", false);

    until_text("\n");
    process_wanted = number_in_text();
    assert_false(process_gone());
    asked_close(s);
    until(process_gone);
    assert_int_equal(heard.ends, 0);
    /* also where nothing that it says can be heard any more */
    s = sh_told("exec >&- 2>&-;", false);
    (void)within(ended, 300);
    assert_int_equal(heard.ends, 0);
    asked_close(s);
    until(process_gone);
}

/* A run that ends sends SIGTERM to helpers, too: a command that ignores it ends all the same. */
static void helper_story(void)
{
    asked_input(sh_told("read x; kill -TERM $PPID;", true), "x\n", 2, false);
    until(process_gone);
    until(ended);
}

/* Much more than fits anywhere at once, and who is slow holds up nobody's memory. */
static void slow_story(void)
{
    static char block[1 << 20];
    struct exec_session *s;
    size_t sent = 0, before;

    heard.full = false;
    s = sh("exec cat /dev/zero", false);
    until(opened);
    heard.full = true;
    (void)within(gone, 1500);
    before = heard.bytes;
    (void)within(gone, 500);
    assert_int_equal(heard.bytes, before); /* it waits */
    assert_int_equal(heard.ends, 0);
    heard.full = false;
    (void)within(gone, 500);
    assert_true(heard.bytes > before + (1 << 20));
    asked_close(s);
    s = sh("exec sleep 600", true); /* takes none of it */
    until(opened);
    for (int i = 0; i < 100; i++) {
        if (asked_pending(s) <= 1u << 20) {
            asked_input(s, block, sizeof block, false);
            sent += sizeof block;
        }
        (void)within(gone, 10);
    }
    assert_in_range(sent, 1 << 20, 24 << 20);
    asked_close(s);
    s = sh("exec wc -c", true);
    for (int i = 0; i < 20; i++) {
        while (asked_pending(s) > 1u << 20)
            (void)within(gone, 5);
        asked_input(s, block, sizeof block, i == 19);
    }
    until(ended);
    assert_string_equal(heard.text, "20971520\n");
    assert_true(running());
}

static void stories(const char *how)
{
    runner_begin("exec sleep 600", how);
    exec_story();
    terminal_story();
    close_story();
    if (!strcmp(how, "searched")) /* in a namespace nobody sees its helper */
        helper_story();
    slow_story();
    runner_end();
    assert_int_equal(runner_code, 143);
}

static void test_searched(void **state)
{
    (void)state;
    stories("searched");
}

static void test_in_a_namespace(void **state)
{
    char why[256];

    (void)state;
    if (held_probe(NULL, RUN_NAMESPACE, why) != RUN_NAMESPACE)
        skip();
    runner_begin("exec sleep 600", "pidNamespace");
    (void)sh("until grep -q sleep /proc/2/comm; do sleep 0.02; done; echo $HANSE_EPOCH", false);
    until(ended);
    assert_string_equal(heard.text, "1\n");
    terminal_story();
    runner_end();
}

/* ---- ports ---- */
#define SERVER                                                                                     \
    "exec python3 -c 'import socket, os\n"                                                         \
    "s = socket.socket(); s.bind((\"127.0.0.1\", 0)); s.listen(8)\n"                               \
    "d = os.environ[\"D\"]\n"                                                                      \
    "open(d + \"/port.tmp\", \"w\").write(str(s.getsockname()[1]))\n"                              \
    "os.rename(d + \"/port.tmp\", d + \"/port\")\n"                                                \
    "while True:\n"                                                                                \
    "  c, _ = s.accept(); n = 0\n"                                                                 \
    "  while True:\n"                                                                              \
    "    b = c.recv(65536); n += len(b)\n"                                                         \
    "    if not b: break\n"                                                                        \
    "  c.sendall(b\"got %d\" % n); c.close()'"

static bool port_is_there(void)
{
    return access(file("port"), R_OK) == 0;
}

static int64_t port_read(void)
{
    char text[16] = "";

    until(port_is_there);
    FILE *f = fopen(file("port"), "r");
    assert_non_null(f);
    assert_non_null(fgets(text, sizeof text, f));
    (void)fclose(f);
    return strtoll(text, NULL, 10);
}

static struct exec_session *forward(int64_t port)
{
    const struct forward_request rq = {.port = port};
    struct exec_session *s = NULL;
    struct err e;

    heard = (struct heard){0};
    assert_int_equal(home_runs_forward(hub->runs, &token.key, &rq, &heard_sink, &s, &e), 0);
    return s;
}

static void test_ports(void **state)
{
    static char block[1 << 20];
    int64_t of_hub = strtoll(strchr(H[0].address, ':') + 1, NULL, 10);

    (void)state;
    runner_begin(SERVER, "searched");
    int64_t port = port_read();
    struct exec_session *s = forward(port);
    until(opened);
    for (int i = 0; i < 10; i++) {
        while (asked_pending(s) > 1u << 20)
            (void)within(ended, 5);
        asked_input(s, block, sizeof block, i == 9);
    }
    until(ended);
    assert_string_equal(heard.text, "got 10485760");
    assert_int_equal(heard.eofs, 1);
    assert_int_equal(heard.err.code, 0);
    (void)forward(of_hub); /* of this process, which is none of the run's */
    until(ended);
    assert_int_equal(heard.err.code, E_FORBIDDEN);
    assert_int_equal(heard.opened, 0);
    (void)forward(1);
    until(ended);
    assert_int_equal(heard.err.code, E_NOTFOUND);
    (void)forward(port);
    until(opened);
    runner_end();
    assert_int_equal(heard.ends, 1); /* it ends with the run */
}

/* ---- ends ---- */
/* Whoever is beside the program when that ends does not hold up the end, also where he ignores
 * what he is sent; and nothing can be put beside it any more. */
static void end_story(bool stopped)
{
    uint64_t began;

    runner_begin("trap 'exit 3' TERM; while [ ! -e $D/go ]; do sleep 0.02; done; exit 4",
                 "searched");
    (void)sh_told("", false);
    began = loop_now_ms(W.loop);
    if (stopped)
        process_signal(runner, SIGTERM);
    else
        put("go", "");
    until(gone);
    assert_in_range(loop_now_ms(W.loop) - began, 0, 50000); /* not its grace, of a minute */
    assert_int_equal(runner_code, stopped ? 3 : 4);
    assert_true(process_gone());
    assert_int_equal(heard.ends, 1);
    assert_int_equal(heard.err.code, E_IO);
    const char *const argv[] = {"true", NULL};
    const struct exec_request rq = {.argv = argv};
    struct exec_session *s;
    struct err e;
    assert_int_equal(home_runs_exec(hub->runs, &token.key, &rq, &heard_sink, &s, &e), E_CONFLICT);
    (void)unlink(file("go"));
}

static void test_the_program_ends(void **state)
{
    (void)state;
    end_story(false);
}

static void test_the_run_is_stopped(void **state)
{
    (void)state;
    end_story(true);
}

/* The member that relays goes: so does the command, and the runner is at the next one. */
static void test_the_member_goes(void **state)
{
    (void)state;
    hub_begin(&H[1]);
    H[1].refuse = "no leader is known yet";
    runner_begin("exec sleep 600", "searched");
    (void)sh("trap '' TERM HUP; echo $$; sleep 600; sleep 600", false);
    until_text("\n");
    process_wanted = number_in_text();
    H[1].refuse = NULL;
    hub_end(&H[0]);
    assert_int_equal(heard.ends, 1);
    assert_int_equal(heard.err.code, E_CONNECT);
    until(process_gone);
    hub = &H[1];
    until(running);
    (void)sh("echo again", false);
    until(ended);
    assert_string_equal(heard.text, "again\n");
    runner_end();
}

/* ---- limits, and strangers ---- */
static void test_no_more_than_it_may_have(void **state)
{
    static struct exec_session *all[STREAMS_MAX];
    const char *const argv[] = {"sh", "-c", "echo begun; exec sleep 600", NULL};
    const struct exec_request rq = {.argv = argv};
    struct exec_session *s;
    struct err e;

    (void)state;
    runner_begin("exec sleep 600", "searched");
    heard = (struct heard){0};
    for (int i = 0; i < STREAMS_MAX; i++)
        all[i] = sh("exec sleep 600", false);
    assert_int_equal(home_runs_exec(hub->runs, &token.key, &rq, &heard_sink, &s, &e), E_LIMIT);
    until(opened); /* the last one */
    for (int i = 0; i < STREAMS_MAX; i++)
        asked_close(all[i]);
    for (int i = 0; i < 3 * STREAMS_MAX; i++) { /* helpers that ended count no more */
        (void)sh("exit 9", false);
        until(ended);
        if (heard.exit_code != 9)
            fail_msg("the %dth: exit status %d, %s; %s", i, heard.exit_code, heard.err.text,
                     heard.text);
    }
    (void)exec_begin(&rq);
    until_text("begun");
    assert_true(running());
    runner_end();
    assert_int_equal(heard.ends, 1);
}

/* Beside a runner its program is the same user. It dials the socket, and says that it is the helper
 * of each stream that may come: nobody believes it, and the helpers are served. */
#define IMPOSTOR                                                                                   \
    "exec python3 -c 'import glob, os, socket, struct\n"                                           \
    "frame = lambda t, f, i, b: struct.pack(\"<IBBHQ\", 12 + len(b), t, f, 0, i) + b\n"            \
    "held = []\n"                                                                                  \
    "while True:\n"                                                                                \
    "  for i in range(1, 40):\n"                                                                   \
    "    s = socket.socket(socket.AF_UNIX)\n"                                                      \
    "    s.connect(glob.glob(os.environ[\"D\"] + \"/hanse-run-*/attach\")[0])\n"                   \
    "    try: s.sendall(frame(1, i % 3, i, b\"\") + frame(2, 1, i, b\"false\") +\n"                \
    "                   frame(4, 0, i, b\"\\0\"))\n"                                               \
    "    except OSError: pass\n"                                                                   \
    "    s.close()\n"                                                                              \
    "  if len(held) < 40: held.append(socket.socket(socket.AF_UNIX)); "                            \
    "held[-1].connect(glob.glob(os.environ[\"D\"] + \"/hanse-run-*/attach\")[0])\n'"

static void test_nobody_speaks_for_a_helper(void **state)
{
    (void)state;
    runner_begin(IMPOSTOR, "searched");
    for (int i = 0; i < 8; i++) {
        (void)sh("echo true; exit 7", false);
        until(ended);
        assert_string_equal(heard.text, "true\n");
        assert_int_equal(heard.exit_code, 7);
        (void)forward(1);
        until(ended);
        assert_int_equal(heard.err.code, E_NOTFOUND);
    }
    runner_end();
}

static int with_hanse(void **state)
{
    program = getenv("HANSE");
    return program ? home_world_setup(state) : 1;
}

static int with_static(void **state)
{
    program = getenv("HANSE_RUN") ? getenv("HANSE_RUN") : getenv("HANSE");
    return program ? home_world_setup(state) : 1;
}

static int teardown(void **state)
{
    if (runner)
        process_signal(runner, SIGKILL);
    if (runner)
        (void)within(gone, 10000);
    return home_world_teardown(state);
}

int main(void)
{
    const char *only = getenv("HANSE_ONLY");
    if (only)
        cmocka_set_test_filter(only);
#define T(name) cmocka_unit_test_setup_teardown(name, with_hanse, teardown)
#define T_STATIC(name)                                                                             \
    {#name " (static)", name, with_static, teardown, NULL}
    const struct CMUnitTest tests[] = {
        T(test_searched),
        T_STATIC(test_searched),
        T(test_in_a_namespace),
        T_STATIC(test_in_a_namespace),
        T(test_ports),
        T_STATIC(test_ports),
        T(test_the_program_ends),
        T_STATIC(test_the_run_is_stopped),
        T(test_the_member_goes),
        T_STATIC(test_no_more_than_it_may_have),
        T(test_nobody_speaks_for_a_helper),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
