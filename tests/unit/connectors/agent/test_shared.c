/* Ranks that save into one folder together (spec.checkpoint.layout shared), through two agents with
 * real processes: one cut of all, also for another number of ranks. */
#include "tests/support/agent_world.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

/* Each rank writes its part; the first waits for all parts, and commits them together. */
#define SAVES                                                                                      \
    "C=$HANSE_CHECKPOINT_DIR; R=$HANSE_RANK; "                                                     \
    "echo $HANSE_CHECKPOINT_LAYOUT ${C##*/} ${HANSE_RESUME_RANKS-none} "                           \
    "$(cat ${HANSE_RESUME_DIR-/nowhere}/s*/* 2>&- | tr '\\n' ' ') >>$D/$U.$HANSE_EPOCH.$R; "       \
    "save() { mkdir -p $C/s$1; echo $1:$R >$C/.part$R; mv $C/.part$R $C/s$1/$R; "                  \
    "if [ $R = 0 ]; then while [ $(ls $C/s$1 | wc -l) -lt $HANSE_WORLD_SIZE ]; do sleep 0.01; "    \
    "done; $H checkpoint commit --step $1 s$1; fi; }; "
#define STAYS "while :; do sleep 0.02; done"
#define SAVED SAVES "trap 'save 20; exit 75' USR1 TERM; save 10; " STAYS

static struct run_checkpoint_report moved_off(const struct agent_order *o)
{
    struct asked a;

    assert_int_equal(agent_submit(o, &a), OUT_DONE);
    (void)agent_await_step(&o->key, 10);
    agent_quiesce(o->side, &o->key);
    const struct observation *e = agent_await(&o->key, RUN_ENDED);
    assert_int_equal(e->exit_code, 75);
    assert_true(e->checkpoint.present);
    return e->checkpoint;
}

static void resume(struct agent_order *o, const struct run_checkpoint_report *c)
{
    o->side = 1;
    o->key.epoch++;
    o->resume_path = c->path;
    o->resume_digest = c->digest;
}

static const char *found(const struct run_key *k, unsigned rank)
{
    return agent_file_text("%s.%d.%u", k->uid, (int)k->epoch, rank);
}

/* The cut names one folder, and how many saved into it. */
static void ranks_save_into_one_folder(void **state)
{
    struct agent_order o = {.key = agent_key(), .workers = 2, .shared = true, .script = SAVED};
    struct run_checkpoint_report c = moved_off(&o);
    struct asked a;

    (void)state;
    assert_int_equal(c.step, 20);
    assert_int_equal(c.ranks, 2);
    assert_int_equal(c.bytes, 10);
    assert_non_null(strstr(agent_file_text("%s", c.path + strlen(A.dir) + 1), "\"workers\":2"));
    assert_string_equal(found(&o.key, 1), "shared 0 none\n");
    resume(&o, &c);
    o.script = SAVES "exit 0";
    assert_int_equal(agent_stage(&o, &a), OUT_DONE);
    assert_int_equal(a.seen.checkpoint.ranks, 2);
    assert_int_equal(agent_submit(&o, &a), OUT_DONE);
    assert_int_equal(agent_await(&o.key, RUN_ENDED)->exit_code, 0);
    for (unsigned r = 0; r < 2; r++)
        assert_string_equal(found(&o.key, r), "shared 0 2 20:0 20:1\n");
}

static void another_number_needs_reshard(void **state)
{
    struct agent_order o = {.key = agent_key(), .workers = 2, .shared = true, .script = SAVED};
    struct run_checkpoint_report c = moved_off(&o);
    struct asked a;

    (void)state;
    resume(&o, &c);
    o.script = SAVES "exit 0";
    o.workers = 1;
    assert_int_equal(agent_stage(&o, &a), OUT_REJECTED);
    assert_string_equal(a.seen.reason, "CheckpointRanks");
    assert_non_null(strstr(a.err.text, "saved by 2 ranks, there are 1"));
    o.reshard = true;
    for (o.workers = 1; o.workers <= 3; o.workers += 2, o.key.epoch++) {
        assert_int_equal(agent_stage(&o, &a), OUT_DONE);
        assert_int_equal(agent_submit(&o, &a), OUT_DONE);
        assert_int_equal(agent_await(&o.key, RUN_ENDED)->exit_code, 0);
        for (unsigned r = 0; r < o.workers; r++)
            assert_string_equal(found(&o.key, r), "shared 0 2 20:0 20:1\n");
    }
}

/* What each rank saved for itself is no folder of all. */
static void another_layout_is_refused(void **state)
{
    struct agent_order o = {.key = agent_key(), .script = SAVED};
    struct run_checkpoint_report c = moved_off(&o);
    struct asked a;

    (void)state;
    resume(&o, &c);
    o.shared = true;
    assert_int_equal(agent_submit(&o, &a), OUT_DONE);
    const struct observation *e = agent_await(&o.key, RUN_ABSENT);
    assert_string_equal(e->reason, "CheckpointRanks");
    assert_non_null(strstr(e->message, "by each rank in its own"));
}

/* A link in the folder may lead anywhere: the reason comes with the end. */
static void a_link_in_it_is_refused(void **state)
{
    struct agent_order o = {
        .key = agent_key(),
        .workers = 2,
        .shared = true,
        .script = "[ $HANSE_RANK = 0 ] || exit 0; cd $HANSE_CHECKPOINT_DIR; echo x >$D/$U.out; "
                  "ln -s $D/$U.out link; printf '{\"step\":1,\"files\":[{\"name\":\"link\","
                  "\"bytes\":2,\"sha256\":\"%s\"}]}' $(sha256sum <link | cut -c-64) >m; "
                  "mv m manifest.json; exit 75"};
    struct asked a;

    (void)state;
    assert_int_equal(agent_submit(&o, &a), OUT_DONE);
    const struct observation *e = agent_await(&o.key, RUN_ENDED);
    assert_string_equal(e->reason, "NotSealed");
    assert_non_null(strstr(e->message, "link is no regular file, or leads through a link"));
    assert_false(e->checkpoint.present);
}

/* The runner of the first rank, which seals, is killed; what was whole is sealed all the same. */
static void a_killed_runner_loses_nothing(void **state)
{
    struct agent_order o = {.key = agent_key(),
                            .workers = 2,
                            .shared = true,
                            .grace = "300ms",
                            .script = SAVES
                            "save 10; trap '' TERM; while ! [ -e $D/$U.go ]; do sleep 0.02; done; "
                            "save 30; [ $HANSE_RANK = 0 ] && kill -9 $PPID; " STAYS};
    struct asked a;

    (void)state;
    assert_int_equal(agent_submit(&o, &a), OUT_DONE);
    (void)agent_await_step(&o.key, 10);
    agent_file_put(agent_name("%s.go", o.key.uid), "");
    const struct observation *e = agent_await(&o.key, RUN_ENDED);
    assert_int_equal(e->checkpoint.step, 30);
    assert_int_equal(e->checkpoint.ranks, 2);
}

int main(int argc, char **argv)
{
    int rc = agent_world_main(argc, argv);

    if (rc >= 0)
        return rc;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_save_into_one_folder),
        cmocka_unit_test(another_number_needs_reshard),
        cmocka_unit_test(another_layout_is_refused),
        cmocka_unit_test(a_link_in_it_is_refused),
        cmocka_unit_test(a_killed_runner_loses_nothing),
    };
    return cmocka_run_group_tests(tests, agent_world_setup, agent_world_teardown);
}
