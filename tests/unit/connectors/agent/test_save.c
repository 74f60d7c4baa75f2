/* A running program is asked to save and goes on: once for each number, in every rank, however its
 * processes are held together; what cannot be asked is refused, and what does not save is told. */
#include "connectors/shim/tree_linux.h"
#include "tests/support/agent_world.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SAVES                                                                                      \
    "R=$HANSE_RANK; C=$HANSE_CHECKPOINT_DIR; s=0; "                                                \
    "save() { s=$1; echo $s >$C/state.$s; $H checkpoint commit --step $s state.$s; "               \
    "echo $s >>$D/$U.$R.saves; touch $D/$U.$R.saves.$s; }; "
#define STAYS "while :; do sleep 0.02; done"
/* A helper in its group waits for the signal, too, and one that would be ended by it goes on. */
#define HELPED                                                                                     \
    "sh -c 'trap \"echo x >>$D/$U.$HANSE_RANK.helper\" USR1; touch $D/$U.$HANSE_RANK.helps; "      \
    "while :; do sleep 0.02; done' & "                                                             \
    "(echo x >$D/$U.$R.deaf; exec sleep 600) & "
#define SAVES_WHEN_ASKED SAVES "save 10; trap 'save $((s + 1))' USR1; " HELPED STAYS

static const struct connector_ops *ops(void)
{
    return A.side[0].connector->ops;
}

static void answered(struct call *c, enum outcome out, const struct observation *seen,
                     const struct err *err)
{
    struct asked *a = container_of(c, struct asked, call);

    a->done = true;
    a->out = out;
    a->has = seen != NULL;
    if (seen)
        a->seen = *seen;
    if (err)
        a->err = *err;
}

static enum outcome ask_side(unsigned side, const struct run_key *k, int64_t number,
                             uint64_t grace_ms, struct asked *a)
{
    *a = (struct asked){
        .call = {.done = answered, .deadline_ms = loop_now_ms(A.loop) + PATIENCE_MS}};
    ops()->checkpoint(A.side[side].connector, k, number, grace_ms, &a->call);
    assert_true(agent_until(agent_call_done, a, PATIENCE_MS));
    return a->out;
}

static enum outcome ask(const struct run_key *k, int64_t number, uint64_t grace_ms, struct asked *a)
{
    return ask_side(0, k, number, grace_ms, a);
}

struct until {
    const struct run_key *k;
    int64_t number;
};

static bool over(void *arg)
{
    const struct until *u = arg;
    const struct observation *o = agent_seen(u->k);

    return o && o->save.number == u->number && o->save.state > SAVE_ASKED;
}

static struct run_save await(const struct run_key *k, int64_t number)
{
    struct until u = {k, number};

    assert_true(agent_until(over, &u, PATIENCE_MS));
    return agent_seen(k)->save;
}

static bool helped(void *arg)
{
    const struct run_key *k = arg;

    return agent_file_exists("%s.0.helper", k->uid) && agent_file_exists("%s.1.helper", k->uid);
}

static void all_ranks_save_and_go_on(const char *processes)
{
    struct agent_order o = {
        .key = agent_key(), .workers = 2, .script = SAVES_WHEN_ASKED, .save_signal = "SIGUSR1"};
    struct asked a;

    A.processes = processes;
    agent_end(0, SIGKILL);
    agent_begin(0);
    assert_int_equal(agent_submit(&o, &a), OUT_DONE);
    (void)agent_await_step(&o.key, 10);
    assert_true(agent_await_file(agent_name("%s.0.helps", o.key.uid)));
    assert_true(agent_await_file(agent_name("%s.1.helps", o.key.uid)));
    assert_int_equal(ask(&o.key, 3, 20000, &a), OUT_DONE);
    struct run_save s = await(&o.key, 3);
    assert_string_equal(s.reason, "");
    assert_int_equal(s.state, SAVE_DONE);
    assert_int_equal(agent_seen(&o.key)->checkpoint.step, 11); /* told no later than the save */
    assert_true(agent_until(helped, &o.key, PATIENCE_MS));
    /* The same request, from whoever leads by now: nobody is asked again. */
    assert_int_equal(ask(&o.key, 3, 20000, &a), OUT_DONE);
    assert_int_equal(a.seen.save.state, SAVE_DONE);
    assert_int_equal(ask(&o.key, 4, 20000, &a), OUT_DONE);
    assert_int_equal(await(&o.key, 4).state, SAVE_DONE);
    assert_true(agent_await_file(agent_name("%s.0.saves.12", o.key.uid)));
    assert_true(agent_await_file(agent_name("%s.1.saves.12", o.key.uid)));
    assert_string_equal(agent_file_text("%s.0.saves", o.key.uid), "10\n11\n12\n");
    assert_string_equal(agent_file_text("%s.1.saves", o.key.uid), "10\n11\n12\n");
    assert_int_equal(agent_seen(&o.key)->state, RUN_RUNNING);
    assert_int_equal(agent_stop(0, &o.key, &a), OUT_DONE);
    A.processes = NULL;
}

static void test_in_a_control_group(void **state)
{
    (void)state;
    all_ranks_save_and_go_on(NULL);
}

static void test_in_a_pid_namespace(void **state)
{
    char why[256];

    (void)state;
    if (geteuid() != 0 || held_probe(NULL, RUN_NAMESPACE, why) != RUN_NAMESPACE)
        skip();
    all_ranks_save_and_go_on("pidNamespace");
}

/* The agent is killed between the request and the save: shims have it, and the next agent tells. */
static void test_the_agent_is_killed(void **state)
{
    struct agent_order o = {.key = agent_key(),
                            .script = SAVES "save 1; trap 'until [ -e $D/$U.go ]; do sleep 0.02; "
                                            "done; save 2' USR1; touch $D/$U.up; " STAYS,
                            .save_signal = "USR1"};
    struct asked a;

    (void)state;
    assert_int_equal(agent_submit(&o, &a), OUT_DONE);
    (void)agent_await_step(&o.key, 1);
    assert_int_equal(ask(&o.key, 1, 60000, &a), OUT_DONE);
    agent_end(0, SIGKILL);
    agent_begin(0);
    assert_int_equal(ask(&o.key, 1, 60000, &a), OUT_DONE);
    agent_file_put(agent_name("%s.go", o.key.uid), "");
    assert_int_equal(await(&o.key, 1).state, SAVE_DONE);
    assert_true(agent_await_file(agent_name("%s.0.saves.2", o.key.uid)));
    assert_string_equal(agent_file_text("%s.0.saves", o.key.uid), "1\n2\n");
    assert_int_equal(agent_stop(0, &o.key, &a), OUT_DONE);
}

/* It is told apart whether nobody waits for the signal, or nothing was saved for it; neither ends
 * the program. */
static void test_it_does_not_save(void **state)
{
    struct agent_order deaf = {.key = agent_key(),
                               .script = SAVES "save 1; " STAYS,
                               .save_signal = "SIGUSR1"},
                       idle = {.key = agent_key(),
                               .script = SAVES "save 1; trap : USR1; touch $D/$U.idles; " STAYS,
                               .save_signal = "SIGUSR1"};
    struct asked a;

    (void)state;
    assert_int_equal(agent_submit(&deaf, &a), OUT_DONE);
    assert_int_equal(agent_submit(&idle, &a), OUT_DONE);
    (void)agent_await_step(&deaf.key, 1);
    (void)agent_await_step(&idle.key, 1);
    assert_true(agent_await_file(agent_name("%s.idles", idle.key.uid)));
    assert_int_equal(ask(&deaf.key, 1, 1000, &a), OUT_DONE);
    assert_int_equal(ask(&idle.key, 1, 1000, &a), OUT_DONE);
    struct run_save d = await(&deaf.key, 1), i = await(&idle.key, 1);
    assert_int_equal(d.state, SAVE_FAILED);
    assert_string_equal(d.reason, "SignalNotTaken");
    assert_string_equal(i.reason, "NotSaved");
    assert_int_equal(agent_seen(&deaf.key)->state, RUN_RUNNING);
    assert_int_equal(agent_stop(0, &deaf.key, &a), OUT_DONE);
    assert_int_equal(agent_stop(0, &idle.key, &a), OUT_DONE);
}

/* Each rank has saved and not at one step: what is said of that request seconds after the end is no
 * second end, neither for who saw the first one nor for an agent that found it at its start. */
static void test_it_ends_once_though_its_save_fails_later(void **state)
{
    struct agent_order o[2] = {{.key = agent_key(),
                                .workers = 2,
                                .script = SAVES "save 1; trap 'save $((R + 2))' USR1; "
                                                "touch $D/$U.$R.up; " STAYS,
                                .save_signal = "USR1"}},
                       next[2] = {{.key = agent_key(), .script = "exit 0"},
                                  {.key = agent_key(), .script = "exit 0", .side = 1}};
    struct asked a;

    (void)state;
    o[1] = o[0];
    o[1].side = 1;
    o[1].key = agent_key();
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(agent_submit(&o[i], &a), OUT_DONE);
        assert_true(agent_await_file(agent_name("%s.0.up", o[i].key.uid)));
        assert_true(agent_await_file(agent_name("%s.1.up", o[i].key.uid)));
        assert_int_equal(ask_side(i, &o[i].key, 1, 500, &a), OUT_DONE);
        assert_true(agent_await_file(agent_name("%s.0.saves.2", o[i].key.uid)));
        assert_true(agent_await_file(agent_name("%s.1.saves.3", o[i].key.uid)));
        assert_int_equal(agent_stop(i, &o[i].key, &a), OUT_DONE);
        (void)agent_await(&o[i].key, RUN_ENDED);
    }
    agent_end(1, SIGKILL);
    agent_begin(1);
    agent_pass(12000); /* a request is given up 10 s after its grace */
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(agent_find(i, &o[i].key, &a), OUT_DONE);
        assert_int_equal(a.seen.state, RUN_ENDED);
        assert_int_equal(agent_submit(&next[i], &a), OUT_DONE);
        (void)agent_await(&next[i].key, RUN_ENDED);
    }
}

static void test_what_cannot_be_asked(void **state)
{
    struct agent_order o = {.key = agent_key(), .script = SAVES "save 1; " STAYS};
    struct run_key nobody = agent_key();
    struct asked a;

    (void)state;
    assert_int_equal(agent_submit(&o, &a), OUT_DONE);
    (void)agent_await_step(&o.key, 1);
    assert_int_equal(ask(&o.key, 1, 1000, &a), OUT_REJECTED);
    assert_string_equal(a.err.field, "spec.checkpoint.saveSignal");
    assert_int_equal(ask(&nobody, 1, 1000, &a), OUT_REJECTED);
    assert_int_equal(a.err.code, E_NOTFOUND);
    assert_int_equal(agent_stop(0, &o.key, &a), OUT_DONE);
}

int main(int argc, char **argv)
{
    int rc = agent_world_main(argc, argv);

    if (rc >= 0)
        return rc;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_in_a_control_group), cmocka_unit_test(test_in_a_pid_namespace),
        cmocka_unit_test(test_the_agent_is_killed), cmocka_unit_test(test_it_does_not_save),
        cmocka_unit_test(test_it_ends_once_though_its_save_fails_later),
        cmocka_unit_test(test_what_cannot_be_asked)};
    return cmocka_run_group_tests(tests, agent_world_setup, agent_world_teardown);
}
