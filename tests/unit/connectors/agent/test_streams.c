/* Logs and exec of one agent with real processes. */
#include "tests/support/agent_world.h"

#include "connectors/shim/tree_linux.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

static struct heard { /* the last stream */
    char text[65536];
    size_t n;
    unsigned opened, ends;
    bool ended;
    int exit_code;
    struct err err;
} H;

static void on_opened(void *arg)
{
    (void)arg;
    assert_int_equal(H.n, 0);
    assert_false(H.ended);
    H.opened++;
}

static void on_data(int fd, const void *p, size_t n, void *arg)
{
    (void)fd;
    (void)arg;
    assert_int_equal(H.opened, 1);
    assert_true(H.n + n < sizeof H.text);
    memcpy(H.text + H.n, p, n);
    H.n += n;
    H.text[H.n] = '\0';
}

static void on_end(int exit_code, const struct err *err, void *arg)
{
    (void)arg;
    H.ends++;
    H.ended = true;
    H.exit_code = exit_code;
    if (err)
        H.err = *err;
}

static const struct log_sink sink = {.opened = on_opened, .data = on_data, .end = on_end};

static bool is_end(void *arg)
{
    (void)arg;
    return H.ended;
}

static bool is_open(void *arg)
{
    (void)arg;
    return H.opened > 0;
}

static bool is_text(void *arg)
{
    return H.n > 0 && strstr(H.text, arg);
}

static struct exec_session *logs_begin(const struct run_key *k, const struct log_request *rq)
{
    struct connector *c = A.side[0].connector;
    struct exec_session *es;
    struct err err;

    memset(&H, 0, sizeof H);
    assert_int_equal(c->ops->logs(c, k, rq, &sink, &es, &err), 0);
    assert_int_equal(H.opened + H.ends, 0); /* nothing from inside the call */
    return es;
}

static struct exec_session *exec_begin(const struct run_key *k, const struct exec_request *rq)
{
    struct connector *c = A.side[0].connector;
    struct exec_session *es;
    struct err err;

    memset(&H, 0, sizeof H);
    assert_int_equal(c->ops->exec(c, k, rq, &sink, &es, &err), 0);
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
    assert_string_equal(H.text, "one\ntwo\nthree\n");
    rq.tail_lines = 1;
    (void)logs_begin(&o.key, &rq);
    assert_true(agent_until(is_end, NULL, PATIENCE_MS));
    assert_string_equal(H.text, "three\n");
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
    assert_false(H.ended);
    agent_file_put("go", "");
    assert_true(agent_until(is_end, NULL, PATIENCE_MS));
    assert_string_equal(H.text, "one\ntwo\n");
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
        assert_int_equal(H.ends, 0);
        c->ops->exec_close(es);
    }
    c->ops->exec_close(logs_begin(&o.key, &rq)); /* before it is open */
    agent_pass(300);
    assert_int_equal(H.opened + H.ends, 0);
    rq.rank = 7;
    (void)logs_begin(&o.key, &rq);
    assert_true(agent_until(is_end, NULL, PATIENCE_MS));
    assert_int_equal(H.err.code, E_NOTFOUND);
    assert_int_equal(H.opened, 0);
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
    assert_int_equal(H.err.code, E_TIMEOUT);
    assert_int_equal(kill(A.side[0].agent, SIGCONT), 0);
    agent_pass(500);
    assert_int_equal(H.ends, 1);
    assert_int_equal(H.opened, 0);
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
    assert_int_equal(H.err.code, E_CONNECT);
    agent_begin(0);
    assert_int_equal(agent_stop(0, &o.key, &a), OUT_DONE);
    assert_int_equal(H.ends, 1);
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
    assert_string_equal(H.text, "got hello 0\n");
    assert_int_equal(H.exit_code, 5);
    assert_int_equal(H.err.code, 0);
    rq.tty = true;
    (void)exec_begin(&o.key, &rq);
    assert_true(agent_until(is_end, NULL, PATIENCE_MS));
    assert_int_equal(H.err.code, E_NOTIMPL);
    assert_int_equal(agent_stop(0, &o.key, &a), OUT_DONE);
    assert_int_equal(a.seen.state, RUN_ENDED);
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
    assert_string_equal(H.text, "in\nsleep\n1\n");
    assert_int_equal(agent_stop(0, &o.key, &a), OUT_DONE);
}

int main(int argc, char **argv)
{
    int rc = agent_world_main(argc, argv);

    if (rc >= 0)
        return rc;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logs_are_kept),
        cmocka_unit_test(logs_are_followed),
        cmocka_unit_test(a_silent_log_is_open),
        cmocka_unit_test(what_does_not_open_ends_by_its_deadline),
        cmocka_unit_test(a_lost_agent_ends_its_streams_once),
        cmocka_unit_test(exec_runs_beside_it),
        cmocka_unit_test(exec_is_where_the_program_is),
    };
    return cmocka_run_group_tests(tests, agent_world_setup, agent_world_teardown);
}
