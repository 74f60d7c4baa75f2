/* Checkpoints through two agents with real processes: gangs, moves, restarts and kills at bad
 * moments, what old epochs may not do, and what stays on disk. */
#include "tests/support/agent_world.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Every program here saves as `$H checkpoint` allows; its step is a file that it reads again. */
#define SAVES                                                                                      \
    "R=$HANSE_RANK; C=$HANSE_CHECKPOINT_DIR; s=0; "                                                \
    "[ -z \"$HANSE_RESUME_DIR\" ] || s=$(cat $HANSE_RESUME_DIR/state.*); "                         \
    "echo $s >>$D/$U.$HANSE_EPOCH.$R.from; "                                                       \
    "save() { s=$1; echo $s >$C/state.$s; $H checkpoint commit --step $s state.$s; }; "
#define STAYS "while :; do sleep 0.02; done"
/* Saves at 10 more; on the signal at `more` further than that. */
#define SAVES_ON_SIGNAL(more)                                                                      \
    SAVES "trap 'save $((s + " more ")); exit 75' USR1 TERM; save $((s + 10)); " STAYS

static struct run_checkpoint_report moved_off(const struct agent_order *o)
{
    struct asked a;

    assert_int_equal(agent_submit(o, &a), OUT_DONE);
    (void)agent_await_step(&o->key, 1);
    agent_quiesce(o->side, &o->key);
    const struct observation *e = agent_await(&o->key, RUN_ENDED);
    assert_int_equal(e->exit_code, 75);
    assert_true(e->checkpoint.present);
    return e->checkpoint;
}

/* What each start of that rank found. */
static const char *found(const struct run_key *k, int rank)
{
    return agent_file_text("%s.%d.%d.from", k->uid, (int)k->epoch, rank);
}

static void env_is_told(void **state)
{
    struct agent_order o = {.key = agent_key(),
                            .script = "echo $HANSE_CHECKPOINT_INTERVAL $HANSE_CHECKPOINT_DIR "
                                      "${HANSE_RESUME_DIR-none} >$D/env; [ -d "
                                      "$HANSE_CHECKPOINT_DIR ]"};
    struct asked a;
    char want[512];

    (void)state;
    assert_int_equal(agent_submit(&o, &a), OUT_DONE);
    assert_int_equal(agent_await(&o.key, RUN_ENDED)->exit_code, 0);
    (void)snprintf(want, sizeof want, "91 %s/e1/0 none\n", agent_base(o.key.uid));
    assert_string_equal(agent_file_text("env"), want);
    assert_false(agent_seen(&o.key)->checkpoint.present);
}

/* Ranks stopped at steps of their own: each goes on from its own, on the other target. */
static void a_gang_moves_with_ranks_at_different_steps(void **state)
{
    struct agent_order o = {.key = agent_key(), .workers = 2, .script = SAVES_ON_SIGNAL("10 + R")};
    struct run_checkpoint_report c = moved_off(&o), next;
    struct asked a;

    (void)state;
    assert_int_equal(c.step, 20);
    assert_int_equal(c.ranks, 2);
    assert_string_equal(found(&o.key, 1), "0\n");
    o.side = 1;
    o.key.epoch = 2;
    o.resume_path = c.path;
    o.resume_digest = c.digest;
    assert_int_equal(agent_stage(&o, &a), OUT_DONE);
    assert_int_equal(a.seen.checkpoint.step, 20);
    next = moved_off(&o);
    assert_string_equal(found(&o.key, 0), "20\n");
    assert_string_equal(found(&o.key, 1), "21\n");
    assert_int_equal(next.step, 40);
}

/* Its first rank is a launcher that ends with 1 (torchrun), and has saved when it was asked; the
 * other had nothing new to save. Both have said so, and that is what it goes on from. */
static void a_gang_with_a_launcher_has_saved(void **state)
{
    struct agent_order o = {.key = agent_key(),
                            .workers = 2,
                            .script =
                                SAVES "trap '[ $R = 1 ] && exit 75; save 30; exit 1' USR1 TERM; "
                                      "save $((10 + 30 * R)); " STAYS};
    struct asked a;

    (void)state;
    assert_int_equal(agent_submit(&o, &a), OUT_DONE);
    (void)agent_await_step(&o.key, 1);
    agent_quiesce(0, &o.key);
    const struct observation *e = agent_await(&o.key, RUN_ENDED);
    assert_string_equal(e->reason, "SavedAndStopped");
    assert_non_null(strstr(e->message, "exit status 1"));
    assert_int_equal(e->exit_code, 1);
    assert_int_equal(e->checkpoint.step, 30);
}

/* One rank's files do not hold: no rank starts. */
static void a_gang_starts_together_or_not_at_all(void **state)
{
    struct agent_order o = {.key = agent_key(), .workers = 2, .script = SAVES_ON_SIGNAL("10")};
    struct run_checkpoint_report c = moved_off(&o);
    char name[256];
    struct asked a;

    (void)state;
    (void)snprintf(name, sizeof name, "store/ns/w-%s/sealed/e1/1/s20/state.20", o.key.uid);
    assert_string_equal(agent_file_text("%s", name), "20\n");
    agent_file_put(name, "21\n");
    o.key.epoch = 2;
    o.resume_path = c.path;
    o.resume_digest = c.digest;
    assert_int_equal(agent_submit(&o, &a), OUT_DONE);
    const struct observation *e = agent_await(&o.key, RUN_ABSENT);
    assert_string_equal(e->reason, "CheckpointAltered");
    assert_non_null(strstr(e->message, "state.20"));
    assert_int_equal(e->proof, PROOF_NEVER_STARTED);
    assert_string_equal(found(&o.key, 0), "");
    assert_string_equal(found(&o.key, 1), "");
    assert_int_equal(agent_stop(0, &o.key, &a), OUT_DONE); /* and it stays so */
    assert_int_equal(a.seen.state, RUN_ABSENT);
    agent_end(0, SIGKILL);
    agent_begin(0);
    assert_int_equal(agent_find(0, &o.key, &a), OUT_DONE);
    assert_int_equal(a.seen.state, RUN_ABSENT);
    assert_string_equal(a.seen.reason, "CheckpointAltered");
}

static bool is_cut_off(void *arg)
{
    return !((struct agent_side *)arg)->reachable;
}

/* It had told one rank to go, and that one has ended by the time the next agent looks. */
static void an_agent_that_dies_between_ranks_lets_the_rest_go(void **state)
{
    struct agent_order o = {.key = agent_key(), .workers = 2, .script = SAVES_ON_SIGNAL("10")};
    struct run_checkpoint_report c = moved_off(&o);
    char file[128];
    struct asked a;

    (void)state;
    (void)snprintf(file, sizeof file, "%s/failpoint", A.dir);
    agent_end(0, SIGTERM);
    assert_int_equal(setenv("HANSE_FAILPOINT_FILE", file, 1), 0);
    agent_begin(0);
    assert_int_equal(unsetenv("HANSE_FAILPOINT_FILE"), 0);
    agent_file_put("failpoint", "agent.go.after\n");
    o.key.epoch = 2;
    o.script = SAVES "exit 0";
    o.resume_path = c.path;
    o.resume_digest = c.digest;
    (void)agent_submit(&o, &a);
    assert_true(agent_until(is_cut_off, &A.side[0], PATIENCE_MS));
    char first[96];
    (void)snprintf(first, sizeof first, "state-t1/runs/%s.2.1/0/end.json", o.key.uid);
    assert_true(agent_await_file(first));
    agent_end(0, SIGKILL);
    agent_begin(0);
    assert_int_equal(agent_await(&o.key, RUN_ENDED)->exit_code, 0);
    assert_string_equal(found(&o.key, 0), "20\n"); /* each once */
    assert_string_equal(found(&o.key, 1), "20\n");
}

/* A gang with another number of workers than it was saved with. */
static void another_number_of_workers_is_refused(void **state)
{
    struct agent_order o = {.key = agent_key(), .script = SAVES_ON_SIGNAL("10")};
    struct run_checkpoint_report c = moved_off(&o);
    struct asked a;

    (void)state;
    o.key.epoch = 2;
    o.workers = 2;
    o.resume_path = c.path;
    o.resume_digest = c.digest;
    assert_int_equal(agent_stage(&o, &a), OUT_REJECTED);
    assert_string_equal(a.seen.reason, "CheckpointRanks");
    assert_int_equal(agent_submit(&o, &a), OUT_DONE);
    assert_string_equal(agent_await(&o.key, RUN_ABSENT)->reason, "CheckpointRanks");
}

/* Its program can: each worker sees what all of them saved, and how many they were. */
static void a_program_that_reshards_sees_all_ranks(void **state)
{
    struct agent_order o = {.key = agent_key(), .workers = 2, .script = SAVES_ON_SIGNAL("10 + R")};
    struct run_checkpoint_report c = moved_off(&o);
    struct asked a;

    (void)state;
    o.side = 1;
    o.key.epoch = 2;
    o.reshard = true;
    o.resume_path = c.path;
    o.resume_digest = c.digest;
    o.script =
        "for r in $(seq 0 $((HANSE_RESUME_RANKS - 1))); do cat $HANSE_RESUME_DIR/$r/state.*; "
        "done >$D/$U.$HANSE_RANK.all; echo $HANSE_WORLD_SIZE of $HANSE_RESUME_RANKS "
        ">>$D/$U.$HANSE_RANK.all";
    for (unsigned workers = 1; workers <= 3; workers++, o.key.epoch++) {
        o.workers = workers;
        assert_int_equal(agent_stage(&o, &a), OUT_DONE);
        assert_int_equal(a.seen.checkpoint.ranks, 2);
        assert_int_equal(agent_submit(&o, &a), OUT_DONE);
        assert_int_equal(agent_await(&o.key, RUN_ENDED)->exit_code, 0);
        for (unsigned r = 0; r < workers; r++) {
            char want[64];
            (void)snprintf(want, sizeof want, "20\n21\n%u of 2\n", workers);
            assert_string_equal(agent_file_text("%s.%u.all", o.key.uid, r), want);
        }
    }
}

/* The agent is dead while its program saves and ends. */
static void a_dead_agent_loses_no_checkpoint(void **state)
{
    struct agent_order o = {.key = agent_key(),
                            .script = SAVES
                            "save 10; while ! [ -e $D/$U.go ]; do sleep 0.02; done; save 30; "
                            "echo x >$D/$U.over; exit 75"};
    char go[128], over[128];
    struct asked a;

    (void)state;
    (void)snprintf(go, sizeof go, "%s.go", o.key.uid);
    (void)snprintf(over, sizeof over, "%s.over", o.key.uid);
    assert_int_equal(agent_submit(&o, &a), OUT_DONE);
    (void)agent_await_step(&o.key, 10);
    agent_end(0, SIGKILL);
    agent_file_put(go, "");
    assert_true(agent_await_file(over));
    agent_begin(0);
    const struct observation *e = agent_await(&o.key, RUN_ENDED);
    assert_int_equal(e->exit_code, 75);
    assert_int_equal(e->checkpoint.step, 30);
    agent_end(0, SIGKILL); /* and once more: what was told is told again */
    A.n_seen = 0;
    agent_begin(0);
    e = agent_await(&o.key, RUN_ENDED);
    assert_int_equal(e->checkpoint.step, 30);
    assert_int_equal(agent_find(0, &o.key, &a), OUT_DONE);
    assert_int_equal(a.seen.checkpoint.step, 30);
}

/* The shim is killed: what it has sealed counts, what it has not does not. */
static void a_killed_shim_leaves_what_was_sealed(void **state)
{
    struct agent_order o = {.key = agent_key(),
                            .script =
                                SAVES "save 10; while ! [ -e $D/$U.go ]; do sleep 0.02; done; "
                                      "echo half >$C/state.20; kill -9 $PPID; " STAYS};
    char go[128];
    struct asked a;

    (void)state;
    (void)snprintf(go, sizeof go, "%s.go", o.key.uid);
    assert_int_equal(agent_submit(&o, &a), OUT_DONE);
    struct run_checkpoint_report c = *agent_await_step(&o.key, 10);
    agent_file_put(go, "");
    const struct observation *e = agent_await(&o.key, RUN_ENDED);
    assert_string_equal(e->reason, "RunnerKilled");
    assert_int_equal(e->checkpoint.step, 10);
    o.key.epoch = 2;
    o.script = SAVES "exit 0";
    o.resume_path = c.path;
    o.resume_digest = c.digest;
    assert_int_equal(agent_submit(&o, &a), OUT_DONE);
    assert_int_equal(agent_await(&o.key, RUN_ENDED)->exit_code, 0);
    assert_string_equal(found(&o.key, 0), "10\n");
}

static void a_save_that_is_not_whole_is_said(void **state)
{
    struct agent_order o = {
        .key = agent_key(),
        .script = SAVES "save 10; echo '{\"step\":20,\"files\":[{\"name\":\"gone\",\"bytes\":1,"
                        "\"sha256\":\"'$(printf %064d 0)'\"}]}' >$C/m; mv $C/m $C/manifest.json; "
                        "exit 75"};
    struct asked a;

    (void)state;
    assert_int_equal(agent_submit(&o, &a), OUT_DONE);
    const struct observation *e = agent_await(&o.key, RUN_ENDED);
    assert_int_equal(e->exit_code, 75);
    assert_string_equal(e->reason, "NotSealed");
    assert_non_null(strstr(e->message, "not there"));
}

/* Cut off, its lease over: the program is told to stop, saves, and that is sealed. */
static void a_lost_lease_still_seals(void **state)
{
    struct agent_order o = {
        .key = agent_key(), .script = SAVES_ON_SIGNAL("10"), .lease_ms = 2500, .grace = "1s"};
    struct asked a;

    (void)state;
    timer_start(&A.renewals, 0); /* until it has saved, however long that takes here */
    assert_int_equal(agent_submit(&o, &a), OUT_DONE);
    (void)agent_await_step(&o.key, 10);
    agent_cut_off(0, true); /* nobody renews */
    char end[128];
    (void)snprintf(end, sizeof end, "state-t1/runs/%s.1.1/0/end.json", o.key.uid);
    assert_true(agent_await_file(end));
    timer_stop(&A.renewals);
    agent_cut_off(0, false);
    const struct observation *e = agent_await(&o.key, RUN_ENDED);
    assert_true(e->lease_lost);
    assert_int_equal(e->checkpoint.step, 20);
}

/* Epoch 1 lives on behind a partition and goes on saving; epoch 2 runs elsewhere. */
static void an_old_epoch_cannot_touch_the_new(void **state)
{
    struct agent_order o = {.key = agent_key(),
                            .script = SAVES
                            "trap 'exit 75' USR1; save 10; while ! [ -e $D/$U.go ]; do sleep 0.02; "
                            "done; save 90; echo x >$D/$U.saved; " STAYS};
    struct run_key old = o.key;
    char go[128], savedf[128];
    struct asked a;

    (void)state;
    (void)snprintf(go, sizeof go, "%s.go", o.key.uid);
    (void)snprintf(savedf, sizeof savedf, "%s.saved", o.key.uid);
    assert_int_equal(agent_submit(&o, &a), OUT_DONE);
    struct run_checkpoint_report c = *agent_await_step(&o.key, 10);
    agent_cut_off(0, true);
    o.side = 1;
    o.key.epoch = 2;
    o.script = SAVES_ON_SIGNAL("10");
    o.resume_path = c.path;
    o.resume_digest = c.digest;
    assert_int_equal(agent_submit(&o, &a), OUT_DONE);
    (void)agent_await_step(&o.key, 20);
    agent_file_put(go, ""); /* now the old one saves "further" */
    assert_true(agent_await_file(savedf));
    agent_quiesce(1, &o.key);
    const struct observation *e = agent_await(&o.key, RUN_ENDED);
    assert_int_equal(e->checkpoint.step, 30);
    assert_non_null(strstr(e->checkpoint.path, "/sealed/e2/"));
    assert_int_equal(agent_stage(&(struct agent_order){.side = 1,
                                                       .key = {.epoch = 3},
                                                       .script = "true",
                                                       .resume_path = e->checkpoint.path,
                                                       .resume_digest = e->checkpoint.digest},
                                 &a),
                     OUT_REJECTED); /* no workload of that name */
    o.key.epoch = 3;
    o.resume_path = e->checkpoint.path;
    o.resume_digest = e->checkpoint.digest;
    assert_int_equal(agent_stage(&o, &a), OUT_DONE);
    assert_int_equal(a.seen.checkpoint.step, 30);
    agent_cut_off(0, false);
    assert_int_equal(agent_stop(0, &old, &a), OUT_DONE);
    assert_non_null(strstr(a.seen.checkpoint.path, "/sealed/e1/")); /* what it has is its own */
    assert_int_equal(agent_stage(&o, &a), OUT_DONE);
}

static bool is_gone(void *arg)
{
    return !agent_file_exists("%s", (const char *)arg);
}

static bool is_after(void *arg)
{
    return loop_now_ms(A.loop) > *(uint64_t *)arg;
}

/* The hub is out of reach: however many newer ones there are, the one that it has stays. */
static void retention_keeps_what_the_hub_has(void **state)
{
    struct agent_order o = {.key = agent_key(),
                            .script = SAVES
                            "i=1; while :; do while ! [ -e $D/$U.$i ]; do sleep 0.02; done; "
                            "save $((i * 10)); i=$((i + 1)); done"};
    char name[128], dir[8][160];
    struct asked a;

    (void)state;
    for (int i = 1; i < 8; i++)
        (void)snprintf(dir[i], sizeof dir[i], "store/ns/w-%s/sealed/e1/0/s%d", o.key.uid, 10 * i);
    timer_start(&A.renewals, 0);
    assert_int_equal(agent_submit(&o, &a), OUT_DONE);
    for (int i = 1; i <= 4; i++) {
        (void)snprintf(name, sizeof name, "%s.%d", o.key.uid, i);
        agent_file_put(name, "");
        (void)agent_await_step(&o.key, 10 * i);
    }
    agent_cut_off(0, true);
    for (int i = 5; i <= 7; i++) {
        (void)snprintf(name, sizeof name, "%s.%d", o.key.uid, i);
        agent_file_put(name, "");
        assert_true(agent_await_file(dir[i]));
    }
    assert_true(agent_until(is_gone, dir[5], PATIENCE_MS)); /* nobody has heard of it */
    assert_true(agent_file_exists("%s", dir[4]));           /* told, and perhaps heard */
    assert_true(agent_file_exists("%s", dir[6]) && agent_file_exists("%s", dir[7]));
    struct run_checkpoint_report known = agent_seen(&o.key)->checkpoint;
    agent_cut_off(0, false);
    assert_int_equal(known.step, 40);
    (void)agent_await_step(&o.key, 70);
    /* Renewed since: it has 70, and what is older goes with one of the next. */
    bool gone = false;
    for (int i = 8; i < 30 && !gone; i++) {
        uint64_t until = loop_now_ms(A.loop) + 2500;
        assert_true(agent_until(is_after, &until, PATIENCE_MS));
        (void)snprintf(name, sizeof name, "%s.%d", o.key.uid, i);
        agent_file_put(name, "");
        (void)agent_await_step(&o.key, 10 * i);
        gone = agent_until(is_gone, dir[4], 2500);
        assert_true(i > 8 || agent_file_exists("%s", dir[7]));
    }
    assert_true(gone);
    timer_stop(&A.renewals);
    assert_int_equal(agent_stop(0, &o.key, &a), OUT_DONE);
}

/* Asked many times at once, by a session that ends meanwhile, and again. */
static void stage_is_idempotent_and_survives_its_asker(void **state)
{
    struct agent_order o = {.key = agent_key(),
                            .script = SAVES
                            "truncate -s 200M $C/big; $H checkpoint commit --step 5 big; exit 75"};
    struct asked a, many[4];
    struct stat st;
    char path[256];

    (void)state;
    assert_int_equal(agent_submit(&o, &a), OUT_DONE);
    const struct run_checkpoint_report c = agent_await(&o.key, RUN_ENDED)->checkpoint;
    assert_int_equal(c.bytes, 200 << 20);
    o.side = 1;
    o.key.epoch = 2;
    o.resume_path = c.path;
    o.resume_digest = c.digest;
    for (int i = 0; i < 4; i++)
        agent_order_begin(&o, true, &many[i], CALL_MS);
    agent_cut_off(1, true);
    for (int i = 0; i < 4; i++) {
        assert_true(agent_until(agent_call_done, &many[i], PATIENCE_MS));
        assert_int_equal(many[i].out, OUT_UNKNOWN);
    }
    agent_cut_off(1, false);
    for (int i = 0; i < 4; i++)
        agent_order_begin(&o, true, &many[i], CALL_MS);
    for (int i = 0; i < 4; i++) {
        assert_true(agent_until(agent_call_done, &many[i], PATIENCE_MS));
        assert_int_equal(many[i].out, OUT_DONE);
    }
    (void)snprintf(path, sizeof path, "%s/state-t2/proofs/%s/0", A.dir, c.digest + 7);
    assert_int_equal(stat(path, &st), 0); /* what the shim need not read again */
    agent_order_begin(&o, true, &a, 1);   /* too late for its asker */
    assert_true(agent_until(agent_call_done, &a, PATIENCE_MS));
    assert_int_equal(agent_stage(&o, &a), OUT_DONE);
    o.script = "[ $(stat -c %s $HANSE_RESUME_DIR/big) = 209715200 ]";
    assert_int_equal(agent_submit(&o, &a), OUT_DONE);
    assert_int_equal(agent_await(&o.key, RUN_ENDED)->exit_code, 0);
}

/* Its agent is dead and nobody renews: the shim ends it by its lease, what it saves then is sealed,
 * and no cut names it. The other side finds it, and the way that the late one made is not gone. */
static void what_nobody_was_told_is_found(void **state)
{
    struct agent_order o = {
        .key = agent_key(), .script = SAVES_ON_SIGNAL("10"), .lease_ms = 6000, .grace = "1s"};
    struct run_key old = o.key;
    struct asked a;
    char end[128];

    (void)state;
    timer_start(&A.renewals, 0);
    assert_int_equal(agent_submit(&o, &a), OUT_DONE);
    struct run_checkpoint_report told = *agent_await_step(&o.key, 10);
    timer_stop(&A.renewals);
    agent_end(0, SIGKILL);
    (void)snprintf(end, sizeof end, "state-t1/runs/%s.1.1/0/end.json", o.key.uid);
    assert_true(agent_await_file(end));
    o.side = 1;
    o.key.epoch = 2;
    o.look_epoch = 1;
    o.look_workers = 1;
    o.resume_epoch = 1;
    o.resume_step = told.step;
    assert_int_equal(agent_stage(&o, &a), OUT_DONE);
    assert_true(a.seen.checkpoint.present);
    assert_int_equal(a.seen.checkpoint.epoch, 1);
    assert_int_equal(a.seen.checkpoint.step, 20);
    struct run_checkpoint_report found_ = a.seen.checkpoint;
    o.resume_step = 20;
    assert_int_equal(agent_stage(&o, &a), OUT_DONE);
    assert_false(a.seen.checkpoint.present); /* nothing newer */
    o.look_epoch = 0;
    o.lease_ms = 0;
    o.script = SAVES "exit $s";
    o.resume_path = found_.path;
    o.resume_digest = found_.digest;
    assert_int_equal(agent_submit(&o, &a), OUT_DONE);
    assert_int_equal(agent_await(&o.key, RUN_ENDED)->exit_code, 20);
    agent_begin(0); /* back, it tells of an end that is told already */
    const struct observation *e = agent_await(&old, RUN_ENDED);
    assert_true(e->lease_lost);
    assert_true(e->checkpoint.step == 20 || e->checkpoint.step == 10);
}

static bool stands_still(void *arg)
{
    char name[64], line[256] = "";

    (void)snprintf(name, sizeof name, "/proc/%ld/stat", *(long *)arg);
    FILE *f = fopen(name, "r");
    bool read = f && fgets(line, sizeof line, f);
    if (f)
        (void)fclose(f);
    return read && strstr(line, ") T ");
}

static void stop_answered(struct call *c, enum outcome out, const struct observation *seen,
                          const struct err *err)
{
    struct asked *a = (struct asked *)c;

    (void)err;
    a->done = true;
    a->out = out;
    a->seen = seen ? *seen : (struct observation){.state = RUN_STARTING};
}

/* Asked to stop while it is still reading what it is to resume from. Its shim stands
 * still there. */
static void a_run_stopped_before_its_start_never_was(void **state)
{
    struct agent_order o = {.key = agent_key(), .script = SAVES_ON_SIGNAL("10")};
    struct run_checkpoint_report c = moved_off(&o);
    struct asked a, stop = {.call.done = stop_answered};

    (void)state;
    agent_end(0, SIGTERM);
    assert_int_equal(setenv("HANSE_FAILPOINT_FILE", agent_name("%s/failpoint", A.dir), 1), 0);
    agent_begin(0);
    assert_int_equal(unsetenv("HANSE_FAILPOINT_FILE"), 0);
    (void)unlink(agent_name("%s/failpoint.fired", A.dir)); /* of another test */
    agent_file_put("failpoint", "shim.verify.after=stop\n");
    o.key.epoch = 2;
    o.script = SAVES STAYS;
    o.resume_path = c.path;
    o.resume_digest = c.digest;
    assert_int_equal(agent_submit(&o, &a), OUT_DONE);
    assert_int_equal(a.seen.state, RUN_STARTING);
    long shim = agent_await_pid("failpoint.fired");
    assert_true(agent_until(stands_still, &shim, PATIENCE_MS));
    stop.call.deadline_ms = loop_now_ms(A.loop) + CALL_MS;
    A.side[0].connector->ops->stop(A.side[0].connector, &o.key, 200, &stop.call);
    assert_int_equal(agent_find(0, &o.key, &a), OUT_DONE); /* the agent has heard of both */
    assert_int_equal(kill((pid_t)shim, SIGCONT), 0);
    assert_true(agent_until(agent_call_done, &stop, PATIENCE_MS));
    assert_int_equal(stop.out, OUT_DONE);
    assert_int_equal(stop.seen.state, RUN_ABSENT);
    assert_string_equal(found(&o.key, 0), "");
}

int main(int argc, char **argv)
{
    int status = agent_world_main(argc, argv);

    if (status >= 0)
        return status;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(env_is_told),
        cmocka_unit_test(a_gang_moves_with_ranks_at_different_steps),
        cmocka_unit_test(a_gang_with_a_launcher_has_saved),
        cmocka_unit_test(a_gang_starts_together_or_not_at_all),
        cmocka_unit_test(an_agent_that_dies_between_ranks_lets_the_rest_go),
        cmocka_unit_test(another_number_of_workers_is_refused),
        cmocka_unit_test(a_program_that_reshards_sees_all_ranks),
        cmocka_unit_test(a_dead_agent_loses_no_checkpoint),
        cmocka_unit_test(a_killed_shim_leaves_what_was_sealed),
        cmocka_unit_test(a_save_that_is_not_whole_is_said),
        cmocka_unit_test(a_lost_lease_still_seals),
        cmocka_unit_test(an_old_epoch_cannot_touch_the_new),
        cmocka_unit_test(retention_keeps_what_the_hub_has),
        cmocka_unit_test(stage_is_idempotent_and_survives_its_asker),
        cmocka_unit_test(what_nobody_was_told_is_found),
        cmocka_unit_test(a_run_stopped_before_its_start_never_was),
    };
    return cmocka_run_group_tests(tests, agent_world_setup, agent_world_teardown);
}
