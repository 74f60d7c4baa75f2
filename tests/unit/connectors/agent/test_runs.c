/* Runs on one agent with real processes, from the server's side: how they start, how they end, and
 * what survives a restart. What shims and guards leave behind is test_exits.c's. */
#include "tests/support/agent_world.h"
#include "tests/support/run_kit.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

static void runs_and_tells_the_end(void **state)
{
    struct agent_order o = {
        .key = agent_key(),
        .script =
            "echo $HANSE_TARGET/$HANSE_NODE/$HANSE_RANK/$HANSE_WORLD_SIZE/$HANSE_GPUS/$HANSE_EPOCH;"
            "[ -d \"$HANSE_CHECKPOINT_DIR\" ] && echo ck; env | grep -c HANSE_TEST; exit 7"};
    struct asked a;

    (void)state;
    (void)agent_submit(&o, &a);
    assert_int_equal(a.out, OUT_DONE);
    (void)agent_await(&o.key, RUN_ENDED);
    assert_int_equal(agent_seen(&o.key)->exit_code, 7);
    assert_int_equal(agent_seen(&o.key)->proof, agent_proof(0));
    assert_string_equal(agent_file_text("state-t1/runs/%s.1.1/log.0", o.key.uid),
                        "t1/n1/0/1/2,5/1\nck\n0\n");
    /* The same order again: adopted, answered with what is. */
    (void)agent_submit(&o, &a);
    assert_int_equal(a.out, OUT_DONE);
    assert_int_equal(a.seen.state, RUN_ENDED);
    assert_int_equal(a.seen.exit_code, 7);
}

/* The first line says what runs it; without one a script ends at its first error. */
static void scripts_run_as_their_first_line_says(void **state)
{
    static const struct {
        const char *script;
        int exit_code;
    } rows[] = {
        {"#SBATCH --time=1\nfalse\nexit 9\n", 1},
        {"#!/bin/bash\n#SBATCH --time=1\na=(5 6 7)\nfalse\n[[ -x $0 ]] && exit ${a[2]}\n", 7},
        {"#!/bin/bash -e\nfalse\nexit 9\n", 1},
        {"#! /usr/bin/env python3\r\nimport sys\nsys.exit(len([1, 2]) + 9)\n", 11},
        {"#!/usr/bin/env -S python3 -I\nimport sys\nsys.exit(sys.flags.isolated + 11)\n", 12},
        {"#!/no/such/interpreter\nexit 0\n", 127},
    };
    struct asked a;

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct agent_order o = {.key = agent_key(), .file_script = rows[i].script};
        assert_int_equal(agent_submit(&o, &a), OUT_DONE);
        assert_int_equal(agent_await(&o.key, RUN_ENDED)->exit_code, rows[i].exit_code);
    }
    struct agent_order none = {.key = agent_key(), .file_script = "#! \nexit 0\n"};
    assert_int_equal(agent_submit(&none, &a), OUT_REJECTED);
    assert_string_equal(a.err.field, "spec.run.script");
}

static void it_runs_in_its_working_dir(void **state)
{
    struct agent_order o = {.key = agent_key(),
                            .dir = "/usr", /* spec.run.workingDir */
                            .script = "[ \"$(pwd)\" = /usr ] && exit 5"};
    struct asked a;

    (void)state;
    assert_int_equal(agent_submit(&o, &a), OUT_DONE);
    assert_int_equal(agent_await(&o.key, RUN_ENDED)->exit_code, 5);
}

/* The workload named the folder, so it is at fault, and nothing of it has begun. */
static void a_working_dir_that_is_none_denies_the_run(void **state)
{
    static const struct {
        const char *dir, *says;
    } rows[] = {{"/no/such/folder", "/no/such/folder cannot be found"},
                {"/etc/passwd", "/etc/passwd is not a directory"}};
    struct asked a;

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct agent_order o = {.key = agent_key(), .dir = rows[i].dir, .script = "exit 5"};
        assert_int_equal(agent_submit(&o, &a), OUT_DONE);
        const struct observation *seen = agent_await(&o.key, RUN_ABSENT);
        assert_string_equal(seen->reason, "RunDenied");
        assert_non_null(strstr(seen->message, rows[i].says));
    }
}

static void stop_ends_also_what_escaped(void **state)
{
    struct agent_order o = {
        .key = agent_key(),
        .grace = "300ms",
        .script = "trap '' TERM; env -i $ESC $D/stop.pid; while :; do sleep 0.05; done"};
    struct asked a;

    (void)state;
    (void)agent_submit(&o, &a);
    (void)agent_await(&o.key, RUN_RUNNING);
    long pid = agent_await_pid("stop.pid");
    (void)agent_stop(0, &o.key, &a);
    assert_int_equal(a.out, OUT_DONE);
    assert_int_equal(a.seen.state, RUN_ENDED);
    assert_int_equal(a.seen.term_signal, SIGKILL);
    assert_false(pid_alive(pid));
}

static void quiesce_sends_the_signal(void **state)
{
    struct agent_order o = {
        .key = agent_key(),
        .script = "trap 'exit 75' USR1; echo $$ >$D/q.pid; while :; do sleep 0.02; done"};
    struct asked a;

    (void)state;
    (void)agent_submit(&o, &a);
    (void)agent_await_pid("q.pid");
    (void)agent_await(&o.key, RUN_RUNNING);
    agent_quiesce(0, &o.key);
    (void)agent_await(&o.key, RUN_ENDED);
    assert_int_equal(agent_seen(&o.key)->exit_code, 75);
}

static void a_gang_ends_together(void **state)
{
    struct agent_order o = {.key = agent_key(),
                            .workers = 2,
                            .script =
                                "[ $HANSE_RANK = 1 ] || exec sleep 600; while ! [ -e $D/gang ]; do "
                                "sleep 0.02; done; exit 4"};
    struct asked a;

    (void)state;
    (void)agent_submit(&o, &a);
    (void)agent_await(&o.key, RUN_RUNNING);
    agent_file_put("gang", "");
    (void)agent_await(&o.key, RUN_ENDED);
    assert_int_equal(agent_seen(&o.key)->exit_code, 4);
}

/* What was told of workers, in the order in which it came. */
static struct {
    struct run_key key;
    struct run_worker w; /* without its devices */
    char node[64], reason[64], id[128];
    int64_t clock_ms;
    bool over; /* the end of its run had been told before */
} heard[512];
static size_t n_heard;

static void workers_told(void *arg, const struct run_workers *w)
{
    const struct observation *o = agent_seen(&w->key);

    (void)arg;
    for (uint32_t i = 0; i < w->n_workers && n_heard < sizeof heard / sizeof heard[0]; i++) {
        const struct run_worker *from = &w->workers[i];
        heard[n_heard].key = w->key;
        heard[n_heard].w = *from;
        heard[n_heard].clock_ms = w->clock_ms;
        heard[n_heard].over = o && o->state == RUN_ENDED;
        str_cut(heard[n_heard].node, sizeof heard[0].node, from->node);
        str_cut(heard[n_heard].reason, sizeof heard[0].reason, from->reason);
        str_cut(heard[n_heard++].id, sizeof heard[0].id, from->id);
    }
}

/* The newest that was told of that rank; from: how many of all that was told are passed over. */
static int worker_told(const struct run_key *k, int64_t rank, size_t from)
{
    int found = -1;

    for (size_t i = from; i < n_heard; i++)
        if (!strcmp(heard[i].key.uid, k->uid) && heard[i].w.rank == rank)
            found = (int)i;
    return found;
}

/* Each worker by itself, ahead of what becomes of the run; and to a new session again. */
static void each_worker_is_told_of(void **state)
{
    struct agent_order o = {.key = agent_key(),
                            .workers = 2,
                            .script =
                                "echo $$ >$D/each.$HANSE_RANK; [ $HANSE_RANK = 1 ] || exec sleep "
                                "600; while ! [ -e $D/each ]; do sleep 0.02; done; exit 4"};
    char id[32];
    struct asked a;

    (void)state;
    agent_events.workers = workers_told;
    (void)agent_submit(&o, &a);
    (void)agent_await(&o.key, RUN_RUNNING);
    (void)snprintf(id, sizeof id, "%ld@", agent_await_pid("each.1"));
    int w = worker_told(&o.key, 1, 0);
    assert_true(w >= 0);
    assert_string_equal(heard[w].node, "t1.n2");
    assert_int_equal(strncmp(heard[w].id, id, strlen(id)), 0);
    assert_true(heard[w].w.started_ms > 0 && heard[w].w.started_ms <= heard[w].clock_ms);
    assert_int_equal(heard[w].w.ended_ms, 0);
    int64_t started = heard[w].w.started_ms;

    size_t from = n_heard;
    agent_end(0, SIGKILL);
    agent_file_put("each", ""); /* it ends while nobody listens */
    agent_pass(500);
    agent_begin(0);
    (void)agent_await(&o.key, RUN_ENDED);
    w = worker_told(&o.key, 1, from);
    assert_true(w >= 0);
    assert_false(heard[w].over);
    assert_int_equal(heard[w].w.exit_code, 4);
    assert_int_equal(heard[w].w.started_ms, started);
    assert_true(heard[w].w.ended_ms >= started);
    w = worker_told(&o.key, 0, from); /* stopped for it */
    assert_true(w >= 0 && heard[w].w.term_signal == SIGTERM);
    from = n_heard;
    agent_cut_off(0, true);
    agent_pass(200);
    agent_cut_off(0, false);
    (void)agent_find(0, &o.key, &a);
    assert_true(worker_told(&o.key, 1, from) >= 0);
}

/* Rank 0 listens where it is told, rank 1 dials it, and each writes what it was told. */
static const char meets[] =
    "exec python3 -c '\n"
    "import os, socket, time\n"
    "e = os.environ\n"
    "at = (e[\"MASTER_ADDR\"], int(e[\"MASTER_PORT\"]))\n"
    "if e[\"RANK\"] == \"0\":\n"
    "    other, _ = socket.create_server(at).accept()\n"
    "else:\n"
    "    while True:\n"
    "        try:\n"
    "            other = socket.create_connection(at)\n"
    "            break\n"
    "        except ConnectionRefusedError:\n"
    "            time.sleep(0.02)\n"
    "other.sendall(e[\"RANK\"].encode())\n"
    "print(other.recv(1).decode(), e[\"WORLD_SIZE\"], e[\"LOCAL_RANK\"], e[\"PET_NODE_RANK\"],\n"
    "      e[\"JAX_COORDINATOR_ADDRESS\"] == \"%s:%d\" % at, e[\"JAX_PROCESS_ID\"], flush=True)\n"
    "open(\"%s/%s.port\" % (e[\"D\"], e[\"U\"]), \"w\").write(str(at[1]))\n"
    "while not os.path.exists(e[\"D\"] + \"/meet\"):\n"
    "    time.sleep(0.02)\n"
    "'";

static void the_ranks_of_a_gang_meet(void **state)
{
    struct agent_order one = {.key = agent_key(), .workers = 2, .script = meets};
    struct agent_order two = {.key = agent_key(), .workers = 2, .script = meets};
    struct asked a;

    (void)state;
    assert_int_equal(agent_submit(&one, &a), OUT_DONE);
    assert_int_equal(agent_submit(&two, &a), OUT_DONE);
    long p = agent_await_pid(agent_name("%s.port", one.key.uid));
    long q = agent_await_pid(agent_name("%s.port", two.key.uid));
    assert_true(p > 1024 && q > 1024 && p != q);
    agent_file_put("meet", "");
    for (int i = 0; i < 2; i++) {
        const struct run_key *k = i ? &two.key : &one.key;
        assert_int_equal(agent_await(k, RUN_ENDED)->exit_code, 0);
        assert_string_equal(agent_file_text("state-t1/runs/%s.1.1/log.0", k->uid),
                            "1 2 0 0 True 0\n");
        assert_string_equal(agent_file_text("state-t1/runs/%s.1.1/log.1", k->uid),
                            "0 2 0 1 True 1\n");
    }
}

/* What its document says of a name is not for us to change; one rank meets nobody. */
static void a_rendezvous_of_its_own_stays(void **state)
{
    struct agent_order own = {.key = agent_key(),
                              .workers = 2,
                              .env = "MASTER_PORT=7",
                              .script = "echo $MASTER_ADDR $MASTER_PORT $PET_NNODES"};
    struct agent_order alone = {.key = agent_key(),
                                .script = "echo ${RANK-none}${MASTER_PORT-none}"};
    struct asked a;

    (void)state;
    assert_int_equal(agent_submit(&own, &a), OUT_DONE);
    (void)agent_await(&own.key, RUN_ENDED);
    assert_string_equal(agent_file_text("state-t1/runs/%s.1.1/log.1", own.key.uid),
                        "127.0.0.1 7 2\n");
    assert_int_equal(agent_submit(&alone, &a), OUT_DONE);
    (void)agent_await(&alone.key, RUN_ENDED);
    assert_string_equal(agent_file_text("state-t1/runs/%s.1.1/log.0", alone.key.uid), "nonenone\n");
}

static void a_restarted_agent_adopts(void **state)
{
    struct agent_order o = {.key = agent_key(),
                            .script =
                                "echo $$ >>$D/adopt.pid; echo x >>$D/adopt.starts; exec sleep 600"};
    struct asked a;

    (void)state;
    (void)agent_submit(&o, &a);
    (void)agent_await(&o.key, RUN_RUNNING);
    long pid = agent_await_pid("adopt.pid");
    agent_end(0, SIGKILL);
    assert_true(pid_alive(pid));
    A.n_seen = 0; /* what was said before does not count */
    agent_begin(0);
    (void)agent_await(&o.key, RUN_RUNNING);
    assert_true(pid_alive(pid));
    (void)agent_submit(&o, &a);
    assert_int_equal(a.out, OUT_DONE);
    assert_int_equal(a.seen.state, RUN_RUNNING);
    (void)agent_stop(0, &o.key, &a);
    assert_int_equal(a.seen.state, RUN_ENDED);
    assert_false(pid_alive(pid));
    assert_string_equal(agent_file_text("adopt.starts"), "x\n"); /* once */
}

static void without_an_agent_the_lease_ends_it(void **state)
{
    struct agent_order o = {.key = agent_key(),
                            .script =
                                "trap '' TERM; $ESC $D/lease.pid; while :; do sleep 0.05; done",
                            .lease_ms = 2500,
                            .grace = "300ms"};
    struct asked a;

    (void)state;
    timer_start(&A.renewals, 0);
    (void)agent_submit(&o, &a);
    (void)agent_await(&o.key, RUN_RUNNING);
    long pid = agent_await_pid("lease.pid");
    agent_pass(3500); /* renewed: it lives past its first lease */
    assert_true(pid_alive(pid));
    agent_end(0, SIGKILL);
    timer_stop(&A.renewals);
    uint64_t from = loop_now_ms(A.loop);
    assert_true(pid_await(pid, "ZX", 6000));
    assert_true(loop_now_ms(A.loop) - from < 2500 + 300 + 1000);
    agent_begin(0);
    (void)agent_await(&o.key, RUN_ENDED);
    assert_true(agent_seen(&o.key)->lease_lost);
    assert_int_equal(agent_seen(&o.key)->proof, agent_proof(0));
}

static bool holds_offer(void *key)
{
    const struct observation *o = agent_seen(key);

    return o && o->grant == A.offer.number;
}

/* Two ranks; the session ends and a new one tells all again, then a longer one is taken, and
 * what is older than that is not. Nobody renews at the end: it lives by the last one that it has
 * told. */
static void another_lease_is_taken_and_told(void **state)
{
    struct agent_order o = {.key = agent_key(),
                            .workers = 2,
                            .script = "echo $$ >$D/taken.$HANSE_RANK; exec sleep 600",
                            .lease_ms = 60000,
                            .grace = "300ms"};
    struct asked a;

    (void)state;
    timer_start(&A.renewals, 0);
    (void)agent_submit(&o, &a);
    assert_int_equal(agent_await(&o.key, RUN_RUNNING)->grant, 1);
    assert_true(agent_seen(&o.key)->lease_held);
    long pid = agent_await_pid("taken.1");
    A.offer = (struct run_offer){.key = o.key, .number = 2, .lease_ms = 90000, .grace_ms = 300};
    assert_true(agent_until(holds_offer, &o.key, 5000));
    A.offer = (struct run_offer){.key = o.key, .number = 3, .lease_ms = 2500, .grace_ms = 200};
    assert_true(agent_until(holds_offer, &o.key, 5000));
    agent_end(0, SIGKILL);
    agent_begin(0);
    A.offer = (struct run_offer){.key = o.key, .number = 2, .lease_ms = 90000, .grace_ms = 300};
    assert_int_equal(agent_await(&o.key, RUN_RUNNING)->grant, 3);
    agent_pass(3500); /* renewed, by what its shims hold */
    assert_true(pid_alive(pid));
    assert_int_equal(agent_seen(&o.key)->grant, 3);
    timer_stop(&A.renewals);
    uint64_t from = loop_now_ms(A.loop);
    (void)agent_await(&o.key, RUN_ENDED);
    assert_true(agent_seen(&o.key)->lease_lost);
    assert_true(loop_now_ms(A.loop) - from < 2500 + 1000);
    A.offer.number = 0;
}

/* Guard and shim both: nobody is left but the agent. */
static void a_killed_runner_is_swept(void **state)
{
    struct agent_order o = {.key = agent_key(),
                            .script = "echo $PPID >$D/shim.pid; $ESC $D/swept.pid; exec sleep 600"};
    struct asked a;

    (void)state;
    (void)agent_submit(&o, &a);
    (void)agent_await(&o.key, RUN_RUNNING);
    long escaped = agent_await_pid("swept.pid");
    long shim = agent_await_pid("shim.pid");
    long guard = pid_parent(shim);
    assert_int_equal(kill((pid_t)guard, SIGKILL), 0);
    assert_int_equal(kill((pid_t)shim, SIGKILL), 0);
    (void)agent_await(&o.key, RUN_ENDED);
    assert_false(pid_alive(escaped));
    assert_string_equal(agent_seen(&o.key)->reason, "RunnerKilled");
}

static enum run_verdict let_all_go(const struct run_listed *r, void *arg)
{
    (void)r;
    (void)arg;
    return RUN_LET_GO;
}

static void sweep_stops_what_nobody_owns(void **state)
{
    struct agent_order o = {.key = agent_key(), .script = "echo $$ >$D/orphan.pid; exec sleep 600"};
    struct asked a;

    (void)state;
    (void)agent_submit(&o, &a);
    long pid = agent_await_pid("orphan.pid");
    assert_int_equal(agent_sweep(0, let_all_go, &a), OUT_DONE);
    (void)agent_await(&o.key, RUN_ENDED);
    assert_false(pid_alive(pid));
}

static unsigned promised;
static bool let_go(const struct run_promise *p, void *arg)
{
    (void)arg;
    promised++;
    return strcmp(p->cluster, A.side[0].cluster) == 0;
}

/* What the hub's own log let go is forgotten, and a late order for it is refused all the same: it
 * comes from a state that still has the run, and so is an older one. */
static void what_is_let_go_is_forgotten_and_never_starts(void **state)
{
    struct agent_order o = {.key = agent_key(), .script = "echo x >>$D/$U.ran"},
                       gone = {.key = agent_key(), .script = "echo x >>$D/$U.ran"};
    struct asked a;
    char page[128];

    (void)state;
    (void)snprintf(page, sizeof page, "state-t1/book/%s", o.key.uid);
    assert_int_equal(agent_promises(0, 0, let_go, &a), OUT_DONE); /* told by no hub with a name */
    (void)snprintf(A.side[0].cluster, sizeof A.side[0].cluster, "0123456789abcdef0123456789abcdef");
    A.side[0].rv = 100;
    agent_end(0, SIGTERM); /* welcomed by one that has one */
    agent_begin(0);
    promised = 0;
    assert_int_equal(agent_submit(&o, &a), OUT_DONE);
    assert_int_equal(agent_await(&o.key, RUN_ENDED)->exit_code, 0);
    assert_int_equal(agent_promises(0, 0, let_go, &a), OUT_DONE);
    assert_int_equal(promised, 0); /* its records are all there: none is a promise yet */
    assert_int_equal(agent_sweep(0, let_all_go, &a), OUT_DONE);
    assert_true(agent_await_file(page));
    A.side[0].rv = 200;
    assert_int_equal(agent_find(0, &gone.key, &a),
                     OUT_DONE); /* never came here: absent, promised */
    assert_int_equal(a.seen.state, RUN_ABSENT);
    assert_int_equal(agent_promises(0, 3600000, let_go, &a), OUT_DONE);
    assert_int_equal(promised, 0); /* not yet */
    A.side[0].rv = 150; /* of an older state's word no promise of a newer one is forgotten */
    assert_int_equal(agent_promises(0, 0, let_go, &a), OUT_DONE);
    assert_int_equal(promised, 1);
    assert_int_equal(agent_find(0, &o.key, &a), OUT_DONE); /* in order: it has let go by now */
    promised = 0;
    A.side[0].rv = 300;
    assert_int_equal(agent_promises(0, 0, let_go, &a), OUT_DONE);
    assert_true(promised >= 1);
    assert_int_equal(agent_find(0, &gone.key, &a), OUT_DONE);
    promised = 0;
    A.side[0].rv = 299; /* the late order, from a leader that stood still meanwhile */
    assert_int_equal(agent_submit(&gone, &a), OUT_REJECTED);
    assert_int_equal(a.err.code, E_STALE);
    agent_end(0, SIGKILL);
    agent_begin(0);
    struct agent_order late = {.key = agent_key(), .script = "echo x >>$D/$U.ran"};
    assert_int_equal(agent_submit(&late, &a), OUT_REJECTED); /* whatever it is about */
    assert_string_equal(agent_file_text("%s.ran", late.key.uid), "");
    A.side[0].rv = 301;
    assert_int_equal(agent_submit(&late, &a), OUT_DONE);
    assert_int_equal(agent_await(&late.key, RUN_ENDED)->exit_code, 0);
    assert_string_equal(agent_file_text("%s.ran", gone.key.uid), "");
    A.side[0].cluster[0] = '\0';
    A.side[0].rv = 0;
}

/* Seen: LD_PRELOAD of a workload was loaded into the shim and into what enters for the program, as
 * root, with --users too. */
static void its_environment_is_the_programs_alone(void **state)
{
    struct agent_order o = {.key = agent_key(),
                            .script = "echo preload is $LD_PRELOAD",
                            .env = "LD_PRELOAD=/nowhere/preload.so"};
    char key[RUN_KEY_MAX];
    struct asked a;

    (void)state;
    run_key_print(&o.key, key);
    assert_int_equal(agent_submit(&o, &a), OUT_DONE);
    assert_int_equal(agent_await(&o.key, RUN_ENDED)->exit_code, 0);
    const char *shim = agent_file_text("state-t1/runs/%s/0/shim.log", key);
    assert_null(strstr(shim, "preload"));
    const char *log = agent_file_text("state-t1/runs/%s/log.0", key);
    assert_non_null(strstr(log, "preload is /nowhere/preload.so"));
    const char *told = strstr(log, "ld.so"); /* by the loader of the program, once */
    assert_non_null(told);
    assert_null(strstr(told + 1, "ld.so"));
}

int main(int argc, char **argv)
{
    int rc = agent_world_main(argc, argv);

    if (rc >= 0)
        return rc;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_and_tells_the_end),
        cmocka_unit_test(scripts_run_as_their_first_line_says),
        cmocka_unit_test(it_runs_in_its_working_dir),
        cmocka_unit_test(a_working_dir_that_is_none_denies_the_run),
        cmocka_unit_test(its_environment_is_the_programs_alone),
        cmocka_unit_test(stop_ends_also_what_escaped),
        cmocka_unit_test(quiesce_sends_the_signal),
        cmocka_unit_test(a_gang_ends_together),
        cmocka_unit_test(each_worker_is_told_of),
        cmocka_unit_test(the_ranks_of_a_gang_meet),
        cmocka_unit_test(a_rendezvous_of_its_own_stays),
        cmocka_unit_test(a_restarted_agent_adopts),
        cmocka_unit_test(without_an_agent_the_lease_ends_it),
        cmocka_unit_test(another_lease_is_taken_and_told),
        cmocka_unit_test(a_killed_runner_is_swept),
        cmocka_unit_test(sweep_stops_what_nobody_owns),
        cmocka_unit_test(what_is_let_go_is_forgotten_and_never_starts),
    };
    return cmocka_run_group_tests(tests, agent_world_setup, agent_world_teardown);
}
