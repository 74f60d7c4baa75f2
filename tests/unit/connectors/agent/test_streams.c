/* Logs and exec of one agent with real processes. */
#include "tests/support/agent_world.h"
#include "tests/support/home/heard.h"

#include "connectors/shim/tree_linux.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool is_end(void *arg)
{
    (void)arg;
    return heard.ends > 0;
}

static bool is_open(void *arg)
{
    (void)arg;
    return heard.opened > 0;
}

static bool is_text(void *arg)
{
    return heard.n > 0 && strstr(heard.text, arg);
}

static struct exec_session *logs_begin(const struct run_key *k, const struct log_request *rq)
{
    struct connector *c = A.side[0].connector;
    struct exec_session *es;
    struct err err;

    heard = (struct heard){0};
    assert_int_equal(c->ops->logs(c, k, rq, &heard_sink, &es, &err), 0);
    assert_int_equal(heard.opened + heard.ends, 0); /* nothing from inside the call */
    return es;
}

static struct exec_session *exec_begin(const struct run_key *k, const struct exec_request *rq)
{
    struct connector *c = A.side[0].connector;
    struct exec_session *es;
    struct err err;

    heard = (struct heard){0};
    assert_int_equal(c->ops->exec(c, k, rq, &heard_sink, &es, &err), 0);
    return es;
}

static void logs_are_kept(void **state)
{
    struct agent_order o = {.key = agent_key(), .script = "echo one; echo two; echo three >&2"};
    struct log_request rq = {.tail_lines = -1};
    struct asked a;

    (void)state;
    assert_int_equal(agent_submit(&o, &a), OUT_DONE);
    (void)agent_await(&o.key, RUN_ENDED);
    (void)logs_begin(&o.key, &rq);
    assert_true(agent_until(is_end, NULL, PATIENCE_MS));
    assert_string_equal(heard.text, "one\ntwo\nthree\n");
    rq.tail_lines = 1;
    (void)logs_begin(&o.key, &rq);
    assert_true(agent_until(is_end, NULL, PATIENCE_MS));
    assert_string_equal(heard.text, "three\n");
}

/* Times are the machine's: the runner notes them while the program writes. */
static void logs_have_times(void **state)
{
    struct agent_order o = {
        .key = agent_key(),
        .script = "echo one; while ! [ -e $D/later ]; do sleep 0.02; done; echo two"};
    struct log_request rq = {.tail_lines = -1, .timestamps = true, .follow = true};
    struct asked a;
    int64_t before = loop_wall_ms(A.loop), first = 0, second = 0;

    (void)state;
    assert_int_equal(agent_submit(&o, &a), OUT_DONE);
    (void)agent_await(&o.key, RUN_RUNNING);
    (void)logs_begin(&o.key, &rq);
    assert_true(agent_until(is_text, (char[]){"Z one\n"}, PATIENCE_MS));
    agent_pass(1500);
    int64_t middle = loop_wall_ms(A.loop);
    agent_file_put("later", "");
    assert_true(agent_until(is_end, NULL, PATIENCE_MS));
    assert_int_equal(heard.n, 2 * (24 + 5));
    heard.text[24] = heard.text[24 + 29] = '\0';
    assert_int_equal(time_parse(heard.text, &first, NULL), 0);
    assert_int_equal(time_parse(heard.text + 29, &second, NULL), 0);
    assert_true(first >= before && first < middle - 500);
    assert_true(second >= middle && second <= loop_wall_ms(A.loop));
    rq = (struct log_request){.tail_lines = -1, .since_ms = middle};
    (void)logs_begin(&o.key, &rq);
    assert_true(agent_until(is_end, NULL, PATIENCE_MS));
    assert_string_equal(heard.text, "two\n");
    rq = (struct log_request){.tail_lines = -1, .since_span_ms = loop_wall_ms(A.loop) - before};
    (void)logs_begin(&o.key, &rq);
    assert_true(agent_until(is_end, NULL, PATIENCE_MS));
    assert_string_equal(heard.text, "one\ntwo\n");
}

/* Which byte comes next is told, and from there it goes on. */
static void logs_tell_where_they_are(void **state)
{
    struct agent_order o = {.key = agent_key(), .script = "echo one; echo two; printf three"};
    struct log_request rq = {.tail_lines = 2};
    struct asked a;

    (void)state;
    assert_int_equal(agent_submit(&o, &a), OUT_DONE);
    (void)agent_await(&o.key, RUN_ENDED);
    (void)logs_begin(&o.key, &rq);
    assert_true(agent_until(is_end, NULL, PATIENCE_MS));
    assert_string_equal(heard.text, "two\nthree");
    assert_true(heard.first.from == 4 && heard.first.try_ == o.key.try_ && heard.first.lines == 3);
    assert_false(heard.first.front || heard.first.gap);
    assert_true(heard.told == 2 && heard.last.from == 13);
    rq = (struct log_request){.tail_lines = 1, .resumes = true, .from = 6, .mid = true};
    (void)logs_begin(&o.key, &rq);
    assert_true(agent_until(is_end, NULL, PATIENCE_MS));
    assert_string_equal(heard.text, "o\nthree");
    assert_true(heard.first.from == 6 && heard.last.from == 13);
    rq.from = 13;
    (void)logs_begin(&o.key, &rq);
    assert_true(agent_until(is_end, NULL, PATIENCE_MS));
    assert_string_equal(heard.text, "");
    assert_true(heard.told == 1 && heard.last.from == 13);
}

static void logs_are_followed(void **state)
{
    struct agent_order o = {.key = agent_key(),
                            .script =
                                "echo one; while ! [ -e $D/go ]; do sleep 0.02; done; echo two"};
    struct log_request rq = {.tail_lines = -1, .follow = true};
    struct asked a;

    (void)state;
    assert_int_equal(agent_submit(&o, &a), OUT_DONE);
    (void)agent_await(&o.key, RUN_RUNNING);
    (void)logs_begin(&o.key, &rq);
    assert_true(agent_until(is_text, (char[]){"one\n"}, PATIENCE_MS));
    assert_false(heard.ends > 0);
    agent_file_put("go", "");
    assert_true(agent_until(is_end, NULL, PATIENCE_MS));
    assert_string_equal(heard.text, "one\ntwo\n");
}

/* What is silent is open all the same, and can be closed. */
static void a_silent_log_is_open(void **state)
{
    struct agent_order o = {.key = agent_key(), .script = "exec sleep 600"};
    struct log_request rq = {.tail_lines = -1, .follow = true};
    struct connector *c = A.side[0].connector;
    struct asked a;

    (void)state;
    assert_int_equal(agent_submit(&o, &a), OUT_DONE);
    (void)agent_await(&o.key, RUN_RUNNING);
    for (int i = 0; i < 200; i++) { /* more than an agent has at a time */
        struct exec_session *es = logs_begin(&o.key, &rq);
        assert_true(agent_until(is_open, NULL, PATIENCE_MS));
        assert_int_equal(heard.ends, 0);
        c->ops->exec_close(es);
    }
    c->ops->exec_close(logs_begin(&o.key, &rq)); /* before it is open */
    agent_pass(300);
    assert_int_equal(heard.opened + heard.ends, 0);
    rq.rank = 7;
    (void)logs_begin(&o.key, &rq);
    assert_true(agent_until(is_end, NULL, PATIENCE_MS));
    assert_int_equal(heard.err.code, E_NOTFOUND);
    assert_int_equal(heard.opened, 0);
    assert_int_equal(agent_stop(0, &o.key, &a), OUT_DONE);
}

/* An agent that hangs: the stream ends by its deadline, once, whatever the agent says later. */
static void what_does_not_open_ends_by_its_deadline(void **state)
{
    struct agent_order o = {.key = agent_key(), .script = "exec sleep 600"};
    struct log_request rq = {.tail_lines = -1, .follow = true};
    struct asked a;

    (void)state;
    assert_int_equal(agent_submit(&o, &a), OUT_DONE);
    (void)agent_await(&o.key, RUN_RUNNING);
    assert_int_equal(kill(A.side[0].agent, SIGSTOP), 0);
    rq.deadline_ms = loop_now_ms(A.loop) + 300;
    (void)logs_begin(&o.key, &rq);
    assert_true(agent_until(is_end, NULL, 3000));
    assert_int_equal(heard.err.code, E_TIMEOUT);
    assert_int_equal(kill(A.side[0].agent, SIGCONT), 0);
    agent_pass(500);
    assert_int_equal(heard.ends, 1);
    assert_int_equal(heard.opened, 0);
    assert_int_equal(agent_stop(0, &o.key, &a), OUT_DONE);
}

/* The session is lost in the middle. */
static void a_lost_agent_ends_its_streams_once(void **state)
{
    struct agent_order o = {.key = agent_key(), .script = "echo one; exec sleep 600"};
    struct log_request rq = {.tail_lines = -1, .follow = true};
    struct asked a;

    (void)state;
    assert_int_equal(agent_submit(&o, &a), OUT_DONE);
    (void)agent_await(&o.key, RUN_RUNNING);
    (void)logs_begin(&o.key, &rq);
    assert_true(agent_until(is_text, (char[]){"one\n"}, PATIENCE_MS));
    agent_end(0, SIGKILL);
    assert_true(agent_until(is_end, NULL, PATIENCE_MS));
    assert_int_equal(heard.err.code, E_CONNECT);
    agent_begin(0);
    assert_int_equal(agent_stop(0, &o.key, &a), OUT_DONE);
    assert_int_equal(heard.ends, 1);
}

static void exec_runs_beside_it(void **state)
{
    struct agent_order o = {.key = agent_key(), .script = "exec sleep 600"};
    const char *const argv[] = {"sh", "-c", "read x; echo got $x $HANSE_RANK; exit 5", NULL};
    struct exec_request rq = {.argv = argv, .with_stdin = true};
    struct asked a;

    (void)state;
    assert_int_equal(agent_submit(&o, &a), OUT_DONE);
    (void)agent_await(&o.key, RUN_RUNNING);
    struct exec_session *es = exec_begin(&o.key, &rq);
    A.side[0].connector->ops->exec_input(es, "hello\n", 6, true);
    assert_true(agent_until(is_end, NULL, PATIENCE_MS));
    assert_string_equal(heard.text, "got hello 0\n");
    assert_int_equal(heard.exit_code, 5);
    assert_int_equal(heard.err.code, 0);
    assert_int_equal(agent_stop(0, &o.key, &a), OUT_DONE);
    assert_int_equal(a.seen.state, RUN_ENDED);
}

/* A terminal of the size that was told when it was opened, and of those told later. */
static void terminal_story(const struct run_key *k)
{
    struct connector *c = A.side[0].connector;
    const char *const argv[] = {"sh", "-c",
                                "trap 'stty size; exit 6' WINCH; test -t 1 && stty size; "
                                "while :; do sleep 0.05; done",
                                NULL};
    struct exec_request rq = {
        .argv = argv, .with_stdin = true, .tty = true, .size = {.rows = 31, .columns = 97}};
    const struct exec_size later = {.rows = 50, .columns = 132};
    struct exec_session *es = exec_begin(k, &rq);

    assert_true(agent_until(is_text, (char[]){"31 97\r\n"}, PATIENCE_MS));
    c->ops->exec_resize(es, &later);
    assert_true(agent_until(is_end, NULL, PATIENCE_MS));
    assert_non_null(strstr(heard.text, "50 132\r\n"));
    assert_int_equal(heard.exit_code, 6);
    const char *const cat[] = {"cat", NULL}; /* the end of input is the terminal's own */
    rq.argv = cat;
    c->ops->exec_input(exec_begin(k, &rq), "hello\n", 6, true);
    assert_true(agent_until(is_end, NULL, PATIENCE_MS));
    assert_non_null(strstr(heard.text, "hello\r\nhello\r\n"));
    assert_int_equal(heard.exit_code, 0);
    const char *const read_one[] = {"sh", "-c", "echo ready; exec sleep 600", NULL};
    rq.argv = read_one; /* the terminal's own keys: it is in the foreground of a session of its */
    es = exec_begin(k, &rq);
    assert_true(agent_until(is_text, (char[]){"ready"}, PATIENCE_MS));
    c->ops->exec_input(es, "\003", 1, false);
    assert_true(agent_until(is_end, NULL, PATIENCE_MS));
    assert_int_equal(heard.exit_code, 130);
}

static void exec_has_a_terminal(void **state)
{
    struct agent_order o = {.key = agent_key(), .script = "exec sleep 600"};
    struct asked a;

    (void)state;
    assert_int_equal(agent_submit(&o, &a), OUT_DONE);
    (void)agent_await(&o.key, RUN_RUNNING);
    terminal_story(&o.key);
    assert_int_equal(agent_stop(0, &o.key, &a), OUT_DONE);
    assert_int_equal(a.seen.state, RUN_ENDED);
}

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

static bool is_eof(void *arg)
{
    (void)arg;
    return heard.eofs > 0;
}

static int64_t port_read(void)
{
    char path[4200], text[16] = "";

    (void)snprintf(path, sizeof path, "%s/port", A.dir);
    for (int i = 0; i < 600 && access(path, R_OK) != 0; i++)
        agent_pass(50);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    assert_non_null(fgets(text, sizeof text, f));
    (void)fclose(f);
    (void)unlink(path);
    return strtoll(text, NULL, 10);
}

static struct exec_session *forward_begin(const struct run_key *k, int64_t port)
{
    struct connector *c = A.side[0].connector;
    const struct forward_request rq = {.port = port};
    struct exec_session *es;
    struct err err;

    heard = (struct heard){0};
    assert_int_equal(c->ops->forward(c, k, &rq, &heard_sink, &es, &err), 0);
    return es;
}

/* Both ways, each with an end of its own, and much more than fits anywhere at once. */
static void a_port_is_forwarded(void **state)
{
    struct agent_order o = {.key = agent_key(), .script = SERVER};
    struct connector *c = A.side[0].connector;
    static char block[1 << 20];
    struct asked a;

    (void)state;
    assert_int_equal(agent_submit(&o, &a), OUT_DONE);
    (void)agent_await(&o.key, RUN_RUNNING);
    int64_t port = port_read();
    struct exec_session *es = forward_begin(&o.key, port);
    assert_true(agent_until(is_open, NULL, PATIENCE_MS));
    for (int i = 0; i < 40; i++) {
        while (c->ops->exec_pending(es) > 1u << 20)
            agent_pass(10);
        c->ops->exec_input(es, block, sizeof block, i == 39);
    }
    assert_true(agent_until(is_eof, NULL, PATIENCE_MS));
    assert_string_equal(heard.text, "got 41943040");
    assert_true(agent_until(is_end, NULL, PATIENCE_MS));
    assert_int_equal(heard.err.code, 0);
    assert_int_equal(heard.eofs, 1);
    es = forward_begin(&o.key, port);
    assert_true(agent_until(is_open, NULL, PATIENCE_MS));
    assert_int_equal(agent_stop(0, &o.key, &a), OUT_DONE);
    if (heard.ends == 0) /* else the driver has it no more */
        c->ops->exec_input(es, "x", 1, true);
    assert_true(agent_until(is_end, NULL, PATIENCE_MS)); /* it ends with the run */
}

/* The network is the machine's, the port is not: another run's, the agent's own, nobody's. */
static void a_port_of_another_run_is_refused(void **state)
{
    struct agent_order o = {.key = agent_key(), .script = SERVER};
    struct agent_order other = {.key = agent_key(), .script = "exec sleep 600"};
    struct asked a;

    (void)state;
    assert_int_equal(agent_submit(&o, &a), OUT_DONE);
    (void)agent_await(&o.key, RUN_RUNNING);
    int64_t port = port_read();
    assert_int_equal(agent_submit(&other, &a), OUT_DONE);
    (void)agent_await(&other.key, RUN_RUNNING);
    (void)forward_begin(&other.key, port);
    assert_true(agent_until(is_end, NULL, PATIENCE_MS));
    assert_int_equal(heard.err.code, E_FORBIDDEN);
    assert_int_equal(heard.opened + heard.n, 0);
    assert_int_equal(agent_stop(0, &o.key, &a), OUT_DONE);
    (void)forward_begin(&other.key, port);
    assert_true(agent_until(is_end, NULL, PATIENCE_MS));
    assert_int_equal(heard.err.code, E_NOTFOUND);
    (void)forward_begin(&other.key, 0);
    assert_true(agent_until(is_end, NULL, PATIENCE_MS));
    assert_int_equal(heard.err.code, E_INVALID);
    assert_int_equal(agent_stop(0, &other.key, &a), OUT_DONE);
}

/* In the program's namespace, and its group. */
static void exec_is_where_the_program_is(void **state)
{
    struct agent_order o = {.key = agent_key(), .script = "exec sleep 600"};
    const char *const argv[] = {"sh", "-c",
                                "cat; cat /proc/2/comm; grep -c \"0::/hanse/$0\" /proc/self/cgroup",
                                o.key.uid, NULL};
    struct exec_request rq = {.argv = argv, .with_stdin = true};
    char why[256];
    struct asked a;

    (void)state;
    if (geteuid() != 0 || held_probe(NULL, RUN_NAMESPACE, why) != RUN_NAMESPACE ||
        held_probe(NULL, RUN_CGROUP, why) != RUN_CGROUP)
        skip();
    agent_end(0, SIGTERM);
    A.processes = "pidNamespace";
    agent_begin(0);
    assert_int_equal(agent_submit(&o, &a), OUT_DONE);
    (void)agent_await(&o.key, RUN_RUNNING);
    A.side[0].connector->ops->exec_input(exec_begin(&o.key, &rq), "in\n", 3, true);
    assert_true(agent_until(is_end, NULL, PATIENCE_MS));
    assert_string_equal(heard.text, "in\nsleep\n1\n");
    terminal_story(&o.key);
    assert_int_equal(agent_stop(0, &o.key, &a), OUT_DONE);
}

int main(int argc, char **argv)
{
    int rc = agent_world_main(argc, argv);

    if (rc >= 0)
        return rc;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logs_are_kept),
        cmocka_unit_test(logs_have_times),
        cmocka_unit_test(logs_tell_where_they_are),
        cmocka_unit_test(logs_are_followed),
        cmocka_unit_test(a_silent_log_is_open),
        cmocka_unit_test(what_does_not_open_ends_by_its_deadline),
        cmocka_unit_test(a_lost_agent_ends_its_streams_once),
        cmocka_unit_test(exec_runs_beside_it),
        cmocka_unit_test(exec_has_a_terminal),
        cmocka_unit_test(a_port_is_forwarded),
        cmocka_unit_test(a_port_of_another_run_is_refused),
        cmocka_unit_test(exec_is_where_the_program_is),
    };
    return cmocka_run_group_tests(tests, agent_world_setup, agent_world_teardown);
}
