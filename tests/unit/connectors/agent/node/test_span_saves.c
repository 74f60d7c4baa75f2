/* Two agents, each with one rank of a gang that saves: real agents and processes, one store. What
 * each rank seals is found there, and a checkpoint is one of both of them or none. */
#include "tests/support/agent_world.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#define SAVES                                                                                      \
    "R=$HANSE_RANK; C=$HANSE_CHECKPOINT_DIR; "                                                     \
    "save() { echo $1:$R >$C/state.$1; $H checkpoint commit --step $1 state.$1; }; "               \
    "wait_for() { until [ -e $D/$U.$1 ]; do sleep 0.02; done; }; "
/* The second one waits for its turn, each time. */
#define TURNS SAVES "[ $R = 0 ] || wait_for turn.10; save 10; "
#define STAYS "while :; do sleep 0.02; done"

static const char *peers[2];
static struct run_span whole;
static struct agent_order order[2];

static void gang(const char *script)
{
    struct run_key key = agent_key();

    for (unsigned i = 0; i < 2; i++) {
        peers[i] = A.side[i].memory;
        order[i] = (struct agent_order){.side = i,
                                        .key = key,
                                        .script = script,
                                        .workers = 1,
                                        .first_rank = i,
                                        .save_signal = "USR1",
                                        .span = &whole};
    }
    whole = (struct run_span){.world = 2,
                              .address = "127.0.0.9",
                              .port = 15321,
                              .peers = peers,
                              .n_peers = 2,
                              .asked_ms = loop_now_ms(A.loop)};
}

static void begins(void)
{
    struct asked a;

    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(agent_submit(&order[i], &a), OUT_DONE);
}

static void turn(const char *of)
{
    agent_file_put(agent_name("%s.turn.%s", order[0].key.uid, of), "");
}

static struct observation finds(unsigned side)
{
    struct asked a;

    assert_int_equal(agent_find(side, &order[0].key, &a), OUT_DONE);
    return a.seen;
}

struct until {
    unsigned side;
    int64_t step, number; /* number: of a save that is over */
    bool ended;
};

static bool came(const struct until *u)
{
    struct observation o = finds(u->side);

    return (!u->step || (o.checkpoint.present && o.checkpoint.step >= u->step)) &&
           (!u->number || (o.save.number == u->number && o.save.state > SAVE_ASKED)) &&
           (!u->ended || o.state == RUN_ENDED);
}

static struct observation awaits(struct until u)
{
    uint64_t until_ms = loop_now_ms(A.loop) + PATIENCE_MS;

    while (!came(&u)) {
        assert_true(loop_now_ms(A.loop) < until_ms);
        agent_pass(20);
    }
    return finds(u.side);
}

/* By whoever was the last to seal: the other one hears of it when it looks again. */
static void awaits_either(int64_t step)
{
    const struct until u = {.step = step}, v = {.side = 1, .step = step};
    uint64_t until_ms = loop_now_ms(A.loop) + PATIENCE_MS;

    while (!came(&u) && !came(&v)) {
        assert_true(loop_now_ms(A.loop) < until_ms);
        agent_pass(20);
    }
}

static void over(struct call *c, enum outcome out, const struct observation *seen,
                 const struct err *err)
{
    (void)seen;
    (void)err;
    container_of(c, struct asked, call)->done = true;
    assert_int_equal(out, OUT_DONE);
}

static struct asked given[2];

/* Both are asked at once: what one of them needs of the other one is there, or comes. */
static void ends(void)
{
    for (unsigned i = 0; i < 2; i++) {
        struct connector *c = A.side[i].connector;
        given[i] = (struct asked){
            .call = {.done = over, .deadline_ms = loop_now_ms(A.loop) + PATIENCE_MS}};
        c->ops->stop(c, &order[i].key, 20000, &given[i].call);
    }
    for (unsigned i = 0; i < 2; i++)
        assert_true(agent_until(agent_call_done, &given[i], PATIENCE_MS));
}

static void asks(int64_t number)
{
    for (unsigned i = 0; i < 2; i++) {
        struct connector *c = A.side[i].connector;
        given[i] = (struct asked){
            .call = {.done = over, .deadline_ms = loop_now_ms(A.loop) + PATIENCE_MS}};
        c->ops->checkpoint(c, &order[i].key, number, 20000, &given[i].call);
        assert_true(agent_until(agent_call_done, &given[i], PATIENCE_MS));
    }
}

static const char *cut_text(const struct run_checkpoint_report *c)
{
    return agent_file_text("%s", c->path + strlen(A.dir) + 1);
}

static void a_checkpoint_is_one_of_both(void **state)
{
    (void)state;
    gang(TURNS "trap 'save 20; exit 75' TERM; " STAYS);
    begins();
    assert_true(agent_await_file(agent_name("store/ns/w-%s/sealed/e1/0/s10", order[0].key.uid)));
    assert_false(finds(0).checkpoint.present); /* half of it is none */
    assert_false(agent_file_exists("store/ns/w-%s/sealed/e1/cut-1.json", order[0].key.uid));
    turn("10");
    struct observation o = awaits((struct until){.side = 1, .step = 10});
    assert_int_equal(o.checkpoint.ranks, 2);
    assert_int_equal(o.checkpoint.bytes, 10);
    assert_non_null(strstr(cut_text(&o.checkpoint), "\"rank\":1,\"step\":10"));
    ends();
    struct observation a = finds(0), b = finds(1);
    assert_int_equal(a.state, RUN_ENDED);
    assert_int_equal(a.exit_code + b.exit_code, 150);
    o = a.checkpoint.step > b.checkpoint.step ? a : b; /* who ended last has found all of it */
    assert_int_equal(o.checkpoint.step, 20);
    /* Each resumes with what its own rank had. */
    gang(SAVES "cat $HANSE_RESUME_DIR/state.* >$D/$U.again.$R; exit 0");
    struct asked got;
    for (unsigned i = 0; i < 2; i++) {
        order[i].base = agent_base(o.key.uid);
        str_copy(order[i].key.uid, sizeof order[i].key.uid, o.key.uid);
        order[i].key.epoch = 2;
        order[i].resume_path = o.checkpoint.path;
        order[i].resume_digest = o.checkpoint.digest;
        assert_int_equal(agent_submit(&order[i], &got), OUT_DONE);
    }
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(awaits((struct until){.side = i, .ended = true}).exit_code, 0);
    assert_string_equal(agent_file_text("%s.again.0", o.key.uid), "20:0\n");
    assert_string_equal(agent_file_text("%s.again.1", o.key.uid), "20:1\n");
}

/* Saved is what a cut of all has: who was first waits for the other agent's rank. */
static void a_save_is_one_of_both(void **state)
{
    struct observation o;

    (void)state;
    gang(SAVES "save 10; trap '[ $R = 0 ] || wait_for turn.11; save 11' USR1; " STAYS);
    begins();
    awaits_either(10);
    asks(3);
    assert_true(agent_await_file(agent_name("store/ns/w-%s/sealed/e1/0/s11", order[0].key.uid)));
    agent_end(1, SIGKILL); /* its shim waits on; the next agent has the request from it */
    agent_begin(1);
    o = finds(0);
    assert_int_equal(o.save.number, 3);
    assert_int_equal(o.save.state, SAVE_ASKED);
    turn("11");
    for (unsigned i = 0; i < 2; i++) {
        o = awaits((struct until){.side = i, .number = 3});
        assert_int_equal(o.save.state, SAVE_DONE);
        assert_int_equal(o.checkpoint.step, 11);
        assert_int_equal(o.state, RUN_RUNNING);
    }
    ends();
}

static struct observation saved(unsigned side, int64_t number)
{
    struct observation o = awaits((struct until){.side = side, .number = number});

    assert_string_equal(o.save.message, "");
    assert_int_equal(o.save.state, SAVE_DONE);
    return o;
}

static bool first_is_gone(void *arg)
{
    const char *uid = arg;

    return !agent_file_exists("store/ns/w-%s/sealed/e1/cut-1.json", uid) &&
           !agent_file_exists("store/ns/w-%s/sealed/e1/0/s1", uid) &&
           !agent_file_exists("store/ns/w-%s/sealed/e1/1/s1", uid);
}

/* What is too old goes, whoever made it, once the hub is known to have a newer one. */
static void old_ones_go(void **state)
{
    struct observation o;

    (void)state;
    gang(SAVES "n=0; trap 'n=$((n + 1)); save $n' USR1; touch $D/$U.up.$R; " STAYS);
    begins();
    for (unsigned i = 0; i < 2; i++)
        assert_true(agent_await_file(agent_name("%s.up.%u", order[0].key.uid, i)));
    for (int64_t n = 1; n <= 4; n++) { /* nobody renews: it may know none of these */
        asks(n);
        for (unsigned i = 0; i < 2; i++)
            saved(i, n);
    }
    assert_false(first_is_gone(order[0].key.uid));
    A.peers[0] = A.side[0].memory;
    A.peers[1] = A.side[1].memory;
    timer_start(&A.renewals, 0);
    for (int64_t n = 5; n <= 8; n++) {
        agent_pass(1500); /* a renewal counts from a beat that came after what was told */
        asks(n);
        for (unsigned i = 0; i < 2; i++)
            o = saved(i, n);
    }
    assert_true(agent_until(first_is_gone, order[0].key.uid, PATIENCE_MS));
    timer_stop(&A.renewals);
    assert_int_equal(o.checkpoint.step, 8);
    for (unsigned i = 0; i < 2; i++)
        assert_true(agent_file_exists("store/ns/w-%s/sealed/e1/%u/s7", order[0].key.uid, i));
    ends();
}

/* Of ranks that share a folder the first seals for all: its agent alone makes checkpoints. */
static void one_folder_of_both(void **state)
{
    struct observation o;

    (void)state;
    gang("C=$HANSE_CHECKPOINT_DIR; R=$HANSE_RANK; save() { mkdir -p $C/s$1; echo $1:$R "
         ">$C/.part$R; mv $C/.part$R $C/s$1/$R; if [ $R = 0 ]; then while [ $(ls $C/s$1 | wc -l) "
         "-lt 2 ]; do sleep 0.01; done; $H checkpoint commit --step $1 s$1; fi; }; "
         "trap 'save 20; exit 75' TERM; trap 'save 15' USR1; save 10; " STAYS);
    order[0].shared = order[1].shared = true;
    begins();
    o = awaits((struct until){.side = 0, .step = 10});
    assert_int_equal(o.checkpoint.ranks, 2);
    assert_non_null(strstr(cut_text(&o.checkpoint), "\"workers\":2"));
    asks(1);
    o = awaits((struct until){.side = 0, .number = 1, .step = 15});
    assert_int_equal(o.save.state, SAVE_DONE);
    o = awaits((struct until){.side = 1, .number = 1});
    assert_int_equal(o.save.state, SAVE_DONE);
    assert_false(o.checkpoint.present);
    ends();
    assert_int_equal(finds(0).checkpoint.step, 20);
    assert_int_equal(finds(1).exit_code, 75);
}

/* The part that ends first has the others stopped, which save by then: a second signal would end
 * who has let go of the first. */
static void a_stop_that_comes_again_is_the_same(void **state)
{
    static struct asked again;
    struct connector *c = A.side[0].connector;

    (void)state;
    gang(SAVES "trap 'echo stop >>$D/$U.stops.$R; touch $D/$U.stopping.$R; wait_for turn.go; "
               "exit 75' TERM; touch $D/$U.up.$R; " STAYS);
    begins();
    assert_true(agent_await_file(agent_name("%s.up.0", order[0].key.uid)));
    for (unsigned i = 0; i < 2; i++) {
        again = (struct asked){
            .call = {.done = over, .deadline_ms = loop_now_ms(A.loop) + PATIENCE_MS}};
        given[0] = i ? given[0] : again;
        c->ops->stop(c, &order[0].key, i ? 30000 : 20000, i ? &again.call : &given[0].call);
        assert_true(agent_await_file(agent_name("%s.stopping.0", order[0].key.uid)));
    }
    agent_pass(300);
    turn("go");
    assert_true(agent_until(agent_call_done, &given[0], PATIENCE_MS));
    assert_true(agent_until(agent_call_done, &again, PATIENCE_MS));
    assert_string_equal(agent_file_text("%s.stops.0", order[0].key.uid), "stop\n");
    assert_int_equal(finds(0).exit_code, 75);
    ends();
}

/* A folder of one name need not be one folder. */
static void a_store_that_is_not_one_is_refused(void **state)
{
    struct asked a;

    (void)state;
    gang("true");
    order[0].meeting = order[1].meeting = "u.1.1.abc";
    order[0].leaves = true;
    assert_int_equal(agent_stage(&order[0], &a), OUT_DONE);
    assert_int_equal(agent_stage(&order[0], &a), OUT_DONE); /* asked twice */
    assert_int_equal(agent_stage(&order[1], &a), OUT_DONE);
    order[1].meeting = "u.1.1.abd";
    assert_int_equal(agent_stage(&order[1], &a), OUT_REJECTED);
    assert_int_equal(a.err.code, E_INVALID);
    assert_int_equal(a.call.refused.class_, REFUSED_INVALID);
    assert_string_equal(a.err.field, "spec.checkpoint.store");
    assert_non_null(strstr(a.err.text, "is not one store to all machines of its gang"));
    order[1].meeting = order[0].meeting;
    order[1].base = agent_base("another");
    assert_int_equal(agent_stage(&order[1], &a), OUT_REJECTED);
    order[1].base = "/usr/none";
    assert_int_equal(agent_stage(&order[1], &a), OUT_REJECTED);
    assert_int_equal(a.call.refused.class_, REFUSED_AUTHORISATION);
    order[1].base = NULL;
    order[1].meeting = "../e1";
    assert_int_equal(agent_stage(&order[1], &a), OUT_REJECTED);
    assert_non_null(strstr(a.err.text, "to look, stage needs"));
}

/* What a part hears of a save when its own rank has ended is told once more, and ends nothing
 * again: the agent goes on counting what it runs. */
static void a_save_comes_after_the_end(void **state)
{
    struct agent_order next = {.key = agent_key(), .script = "exit 0"};
    struct observation o;
    struct asked a;

    (void)state;
    agent_end(0, SIGKILL);
    agent_begin(0);
    gang(SAVES "save 10; trap '[ $R = 0 ] || wait_for turn.11; save 11; [ $R = 1 ] || exit 0' "
               "USR1; " STAYS);
    begins();
    awaits_either(10);
    asks(3);
    o = awaits((struct until){.ended = true});
    assert_int_equal(o.save.state, SAVE_ASKED);
    turn("11");
    (void)awaits((struct until){.number = 3});
    assert_int_equal(agent_submit(&next, &a), OUT_DONE);
    assert_non_null(agent_await(&next.key, RUN_ENDED));
    ends();
}

int main(int argc, char **argv)
{
    int rc = agent_world_main(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_checkpoint_is_one_of_both),
        cmocka_unit_test(a_save_is_one_of_both),
        cmocka_unit_test(a_save_comes_after_the_end),
        cmocka_unit_test(old_ones_go),
        cmocka_unit_test(one_folder_of_both),
        cmocka_unit_test(a_stop_that_comes_again_is_the_same),
        cmocka_unit_test(a_store_that_is_not_one_is_refused),
    };

    if (rc >= 0)
        return rc;
    return cmocka_run_group_tests(tests, agent_world_setup, agent_world_teardown);
}
