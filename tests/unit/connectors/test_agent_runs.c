/* The agent with real processes, from the server's side: driver, TLS, agent and shims as they are
 * shipped; this program is also the agent and the shim that it starts. */
#include "api/base/net/tls.h"
#include "connectors/agent/agent.h"
#include "connectors/run/run.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define PATIENCE_MS 15000
#define SEEN_MAX 64

static struct server {
    char dir[128], port[32];
    struct loop *loop;
    struct tls_config *tls;
    struct listener *listener;
    struct object *target;
    struct connector *connector;
    pid_t agent;
    bool reachable;
    unsigned sessions;
    size_t nodes;
    char node_name[128];
    struct observation seen[SEEN_MAX]; /* the latest of each key */
    size_t n_seen;
    /* the last call */
    bool done;
    enum outcome out;
    struct observation answer;
    struct err err;
    /* the last stream */
    char text[65536];
    size_t n_text;
    bool stream_ended;
    int stream_exit;
    struct err stream_err;
    /* faults */
    bool refuse; /* sessions are turned away */
    char refusal[ERR_TEXT_MAX];
    struct stream *stream;
    uint64_t uid_seq;
    struct timer renewals;
    uint64_t renew_ms;
} S;

/* ---- events
 * --------------------------------------------------------------------------------------------------
 */
static void on_nodes(void *arg, const struct node *nodes, size_t n, bool complete)
{
    (void)arg;
    assert_true(complete);
    S.nodes = n;
    (void)snprintf(S.node_name, sizeof S.node_name, "%s", nodes[0].metadata->name);
}

static void on_reach(void *arg, bool reachable, const char *session, const char *why)
{
    (void)arg;
    (void)session;
    (void)why;
    S.reachable = reachable;
    S.sessions += reachable;
}

static void on_observed(void *arg, const struct observation *o)
{
    size_t i = 0;

    (void)arg;
    while (i < S.n_seen &&
           (strcmp(S.seen[i].key.uid, o->key.uid) != 0 || S.seen[i].key.epoch != o->key.epoch))
        i++;
    assert_true(i < SEEN_MAX);
    S.n_seen += i == S.n_seen;
    S.seen[i] = *o;
}

static const struct connector_events events = {
    .nodes = on_nodes, .reach = on_reach, .observed = on_observed};

static void on_accept(struct listener *li, struct stream *s, void *arg)
{
    static const struct stream_events nobody = {0};

    (void)li;
    (void)arg;
    if (S.refuse) {
        stream_set(s, &nobody, NULL);
        stream_abort(s, "refused by the test");
        return;
    }
    struct err err;
    S.stream = s;
    if (connector_agent_attach(S.connector, s, &err) < 0)
        (void)snprintf(S.refusal, sizeof S.refusal, "%s", err.text);
}

static void on_done(struct call *c, enum outcome out, const struct observation *seen,
                    const struct err *err)
{
    (void)c;
    S.done = true;
    S.out = out;
    memset(&S.answer, 0, sizeof S.answer);
    memset(&S.err, 0, sizeof S.err);
    if (seen)
        S.answer = *seen;
    if (err)
        S.err = *err;
}

static void on_data(int fd, const void *p, size_t n, void *arg)
{
    (void)fd;
    (void)arg;
    assert_true(S.n_text + n < sizeof S.text);
    memcpy(S.text + S.n_text, p, n);
    S.n_text += n;
    S.text[S.n_text] = '\0';
}

static void on_end(int exit_code, const struct err *err, void *arg)
{
    (void)arg;
    S.stream_ended = true;
    S.stream_exit = exit_code;
    memset(&S.stream_err, 0, sizeof S.stream_err);
    if (err)
        S.stream_err = *err;
}

static const struct log_sink sink = {.data = on_data, .end = on_end};

/* ---- waiting
 * ---------------------------------------------------------------------------------------------------
 */
struct waiting {
    bool (*cond)(void *arg);
    void *arg;
    uint64_t until;
    struct timer timer;
};

static void wait_tick(void *arg)
{
    struct waiting *w = arg;

    if (w->cond(w->arg) || loop_now_ms(S.loop) > w->until)
        loop_stop(S.loop);
    else
        timer_start(&w->timer, 2);
}

static bool until_(bool (*cond)(void *), void *arg, uint64_t ms)
{
    struct waiting w = {.cond = cond, .arg = arg, .until = loop_now_ms(S.loop) + ms};

    timer_init(&w.timer, S.loop, wait_tick, &w);
    timer_start(&w.timer, 0);
    loop_uv_run(S.loop);
    timer_stop(&w.timer);
    return cond(arg);
}

static bool is_reachable(void *arg)
{
    return S.reachable == (arg != NULL);
}

static bool is_done(void *arg)
{
    (void)arg;
    return S.done;
}

static bool is_stream_end(void *arg)
{
    (void)arg;
    return S.stream_ended;
}

static bool is_text(void *arg)
{
    return S.n_text > 0 && strstr(S.text, arg);
}

static bool never(void *arg)
{
    (void)arg;
    return false;
}

struct wanted {
    struct run_key key;
    enum run_state state;
};

static struct observation *seen(const struct run_key *k)
{
    for (size_t i = 0; i < S.n_seen; i++)
        if (strcmp(S.seen[i].key.uid, k->uid) == 0 && S.seen[i].key.epoch == k->epoch)
            return &S.seen[i];
    return NULL;
}

static bool is_state(void *arg)
{
    const struct wanted *e = arg;
    const struct observation *o = seen(&e->key);

    return o && o->state == e->state;
}

static void wait_state(const struct run_key *k, enum run_state state)
{
    struct wanted e = {*k, state};

    assert_true(until_(is_state, &e, PATIENCE_MS));
}

/* ---- processes
 * ---------------------------------------------------------------------------------------------------
 */
static bool alive(long pid)
{
    char path[64], state = 'X';

    (void)snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    FILE *f = fopen(path, "r");
    if (!f)
        return false;
    if (fscanf(f, "%*d (%*[^)]) %c", &state) != 1)
        state = 'X';
    (void)fclose(f);
    return state != 'Z' && state != 'X';
}

static int escape_main(const char *file)
{
    for (int i = 0; i < 2; i++) {
        if (fork() > 0)
            _exit(0);
        (void)setsid();
    }
    (void)signal(SIGTERM, SIG_IGN);
    FILE *f = fopen(file, "w");
    if (!f)
        return 1;
    (void)fprintf(f, "%d\n", (int)getpid());
    (void)fclose(f);
    for (;;)
        (void)pause();
}

static long pid_in(const char *name)
{
    char path[256];
    long pid = 0;

    (void)snprintf(path, sizeof path, "%s/%s", S.dir, name);
    FILE *f = fopen(path, "r");
    if (f) {
        if (fscanf(f, "%ld", &pid) != 1)
            pid = 0;
        (void)fclose(f);
    }
    return pid;
}

static bool has_pid(void *arg)
{
    return pid_in(arg) > 0;
}

static long wait_pid(char *name)
{
    assert_true(until_(has_pid, name, PATIENCE_MS));
    return pid_in(name);
}

static bool is_gone(void *arg)
{
    return !alive(*(long *)arg);
}

static void agent_start_as(const char *cert)
{
    char crt[160], key[160], ca[160], state[160], inventory[160];

    (void)snprintf(crt, sizeof crt, "%s/%s.crt", S.dir, cert);
    (void)snprintf(key, sizeof key, "%s/%s.key", S.dir, cert);
    (void)snprintf(ca, sizeof ca, "%s/ca.crt", S.dir);
    (void)snprintf(state, sizeof state, "%s/state", S.dir);
    (void)snprintf(inventory, sizeof inventory, "%s/inventory.yaml", S.dir);
    S.agent = fork();
    assert_true(S.agent >= 0);
    if (S.agent == 0) {
        if (!getenv("HANSE_TEST_VERBOSE")) {
            int null = open("/dev/null", O_RDWR);
            (void)dup2(null, 2);
        }
        (void)execl("/proc/self/exe", "hanse", "agent", "--server", S.port, "--target", "t1",
                    "--state", state, "--cert", crt, "--key", key, "--ca", ca, "--inventory",
                    inventory, (char *)NULL);
        _exit(99);
    }
}

static void agent_start(void)
{
    agent_start_as("agent");
    assert_true(until_(is_reachable, &S, PATIENCE_MS));
}

static void agent_kill(int signo)
{
    if (S.agent > 0) {
        (void)kill(S.agent, signo);
        (void)waitpid(S.agent, NULL, 0);
    }
    S.agent = 0;
    assert_true(until_(is_reachable, NULL, PATIENCE_MS));
}

/* ---- calls
 * -----------------------------------------------------------------------------------------------------------
 */
static void renew_tick(void *arg)
{
    (void)arg;
    S.connector->ops->renew(S.connector, S.renew_ms);
    timer_start(&S.renewals, 100);
}

static struct run_key fresh_key(void)
{
    struct run_key k = {.epoch = 1, .try_ = 1};

    (void)snprintf(k.uid, sizeof k.uid, "test-%d-%llu", (int)getpid(),
                   (unsigned long long)++S.uid_seq);
    return k;
}

struct order {
    struct run_key key;
    const char *script; /* of sh -c; $D is the test's folder, $ESC starts the escapee */
    const char *file_script;
    uint64_t lease_ms;
    unsigned workers;
    const char *grace;
    uint64_t deadline_ms;
};

static struct object *workload_make(const struct order *o)
{
    struct err err;
    struct object *w;
    cJSON *j = cJSON_CreateObject(), *meta = cJSON_AddObjectToObject(j, "metadata");
    cJSON *spec = cJSON_AddObjectToObject(j, "spec"), *run = cJSON_AddObjectToObject(spec, "run");

    cJSON_AddStringToObject(j, "apiVersion", "hanse.dev/v1alpha1");
    cJSON_AddStringToObject(j, "kind", "Workload");
    cJSON_AddStringToObject(meta, "name", "w");
    cJSON_AddStringToObject(meta, "namespace", "ns");
    if (o->file_script) {
        cJSON_AddStringToObject(run, "script", o->file_script);
    } else {
        const char *const argv[] = {"sh", "-c", o->script};
        cJSON_AddItemToObject(run, "command", cJSON_CreateStringArray(argv, 3));
    }
    cJSON *ck = cJSON_AddObjectToObject(spec, "checkpoint");
    cJSON_AddStringToObject(ck, "store", "/none");
    cJSON_AddStringToObject(ck, "grace", o->grace ? o->grace : "300ms");
    int rc = object_from_json(kind_by_id(KIND_WORKLOAD), j, 0, &w, &err);
    cJSON_Delete(j);
    if (rc < 0)
        fail_msg("%s: %s", err.field, err.text);
    return w;
}

static void submit_(const struct order *o)
{
    static struct call call;
    char d[160], esc[64], ck[160];
    const char *env[] = {d, esc, NULL};
    struct object *w = workload_make(o);
    unsigned n = o->workers ? o->workers : 1;
    struct assignment at[4] = {{0}};
    int64_t gpus[] = {2, 5};

    for (unsigned i = 0; i < n; i++)
        at[i] = (struct assignment){
            .rank = i, .node = i ? "t1.n2" : "t1.n1", .gpus = gpus, .n_gpus = 2, .mig = ""};
    struct placement p = {.target = "t1", .assignments = at, .n_assignments = n};
    (void)snprintf(d, sizeof d, "D=%s", S.dir);
    (void)snprintf(esc, sizeof esc, "ESC=/proc/%d/exe escape", (int)getpid());
    (void)snprintf(ck, sizeof ck, "%s/ck", S.dir);
    struct run_order order = {.key = o->key,
                              .workload = w,
                              .placement = &p,
                              .env = env,
                              .lease_ms = o->lease_ms,
                              .checkpoint_dir = ck,
                              .resume_path = "",
                              .resume_digest = ""};
    S.done = false;
    call =
        (struct call){.deadline_ms = loop_now_ms(S.loop) + (o->deadline_ms ? o->deadline_ms : 5000),
                      .done = on_done};
    S.connector->ops->submit(S.connector, &order, &call);
    assert_false(S.done); /* never from inside the call */
    (void)object_unref(w);
}

static void submit(const struct order *o)
{
    submit_(o);
    assert_true(until_(is_done, NULL, PATIENCE_MS));
}

static void about(const struct run_key *k, char what, uint64_t grace_ms)
{
    static struct call call;
    const struct connector_ops *ops = S.connector->ops;

    S.done = false;
    call = (struct call){.deadline_ms = loop_now_ms(S.loop) + 10000, .done = on_done};
    if (what == 'f')
        ops->find(S.connector, k, &call);
    else if (what == 's')
        ops->stop(S.connector, k, grace_ms, &call);
    else
        ops->quiesce(S.connector, k, SIGUSR1, grace_ms, &call);
    assert_true(until_(is_done, NULL, PATIENCE_MS));
}

/* ---- the tests
 * ----------------------------------------------------------------------------------------------------------
 */
static void inventory_is_told(void **state)
{
    struct call call = {.deadline_ms = loop_now_ms(S.loop) + 5000, .done = on_done};

    (void)state;
    S.done = false;
    S.connector->ops->inventory(S.connector, &call);
    assert_true(until_(is_done, NULL, PATIENCE_MS));
    assert_int_equal(S.out, OUT_DONE);
    assert_int_equal(S.nodes, 2);
    assert_string_equal(S.node_name, "t1.n1");
}

static void runs_and_tells_the_end(void **state)
{
    struct order o = {
        .key = fresh_key(),
        .script =
            "echo $HANSE_TARGET/$HANSE_NODE/$HANSE_RANK/$HANSE_WORLD_SIZE/$HANSE_GPUS/$HANSE_EPOCH;"
            "[ -d \"$HANSE_CHECKPOINT_DIR\" ] && echo ck; env | grep -c HANSE_TEST; exit 7"};
    struct exec_session *es;
    struct log_request rq = {.tail_lines = -1};
    struct err err;

    (void)state;
    submit(&o);
    assert_int_equal(S.out, OUT_DONE);
    wait_state(&o.key, RUN_ENDED);
    assert_int_equal(seen(&o.key)->exit_code, 7);
    assert_int_equal(seen(&o.key)->proof, PROOF_TREE_GONE);
    S.n_text = 0;
    S.stream_ended = false;
    assert_int_equal(S.connector->ops->logs(S.connector, &o.key, &rq, &sink, &es, &err), 0);
    assert_true(until_(is_stream_end, NULL, PATIENCE_MS));
    assert_string_equal(S.text, "t1/n1/0/1/2,5/1\nck\n0\n");
    rq.tail_lines = 1;
    S.n_text = 0;
    S.stream_ended = false;
    assert_int_equal(S.connector->ops->logs(S.connector, &o.key, &rq, &sink, &es, &err), 0);
    assert_true(until_(is_stream_end, NULL, PATIENCE_MS));
    assert_string_equal(S.text, "0\n");
    /* The same order again: adopted, answered with what is. */
    submit(&o);
    assert_int_equal(S.out, OUT_DONE);
    assert_int_equal(S.answer.state, RUN_ENDED);
    assert_int_equal(S.answer.exit_code, 7);
}

static void scripts_run_and_fail_at_the_first_error(void **state)
{
    struct order o = {.key = fresh_key(),
                      .file_script = "#!/bin/bash\n#SBATCH --time=1\nfalse\nexit 9\n"};

    (void)state;
    submit(&o);
    wait_state(&o.key, RUN_ENDED);
    assert_int_equal(seen(&o.key)->exit_code, 1);
}

static void stop_ends_also_what_escaped(void **state)
{
    struct order o = {.key = fresh_key(),
                      .script =
                          "trap '' TERM; env -i $ESC $D/stop.pid; while :; do sleep 0.05; done"};

    (void)state;
    submit(&o);
    wait_state(&o.key, RUN_RUNNING);
    long pid = wait_pid((char[]){"stop.pid"});
    about(&o.key, 's', 200);
    assert_int_equal(S.out, OUT_DONE);
    assert_int_equal(S.answer.state, RUN_ENDED);
    assert_int_equal(S.answer.term_signal, SIGKILL);
    assert_false(alive(pid));
}

static void quiesce_sends_the_signal(void **state)
{
    struct order o = {.key = fresh_key(),
                      .script =
                          "trap 'exit 75' USR1; echo $$ >$D/q.pid; while :; do sleep 0.02; done"};

    (void)state;
    submit(&o);
    (void)wait_pid((char[]){"q.pid"});
    wait_state(&o.key, RUN_RUNNING);
    about(&o.key, 'q', 5000);
    assert_int_equal(S.out, OUT_DONE);
    wait_state(&o.key, RUN_ENDED);
    assert_int_equal(seen(&o.key)->exit_code, 75);
}

static void a_gang_ends_together(void **state)
{
    struct order o = {.key = fresh_key(),
                      .workers = 2,
                      .script = "[ $HANSE_RANK = 1 ] || exec sleep 600; while ! [ -e $D/gang ]; do "
                                "sleep 0.02; done; exit 4"};
    char path[160];

    (void)state;
    submit(&o);
    wait_state(&o.key, RUN_RUNNING);
    (void)snprintf(path, sizeof path, "%s/gang", S.dir);
    int fd = open(path, O_CREAT | O_WRONLY, 0600);
    assert_true(fd >= 0);
    (void)close(fd);
    wait_state(&o.key, RUN_ENDED);
    assert_int_equal(seen(&o.key)->exit_code, 4);
}

static void an_unknown_key_is_refused_for_ever(void **state)
{
    struct order o = {.key = fresh_key(), .script = "true"};

    (void)state;
    about(&o.key, 'f', 0);
    assert_int_equal(S.out, OUT_DONE);
    assert_int_equal(S.answer.state, RUN_ABSENT);
    submit(&o);
    assert_int_equal(S.out, OUT_REJECTED);
    assert_int_equal(S.err.code, E_STALE);
    agent_kill(SIGKILL); /* the promise outlives the agent */
    agent_start();
    submit(&o);
    assert_int_equal(S.out, OUT_REJECTED);
    o.key.try_ = 2; /* a later try is another matter */
    submit(&o);
    assert_int_equal(S.out, OUT_DONE);
    wait_state(&o.key, RUN_ENDED);
    o.key.epoch = 3;
    submit(&o);
    assert_int_equal(S.out, OUT_DONE);
    o.key.epoch = 2;
    submit(&o);
    assert_int_equal(S.out, OUT_REJECTED); /* older than what has been here */
}

static void a_lost_answer_is_unknown_then_found(void **state)
{
    struct order o = {
        .key = fresh_key(), .script = "echo $$ >$D/lost.pid; exec sleep 600", .deadline_ms = 700};

    (void)state;
    assert_int_equal(kill(S.agent, SIGSTOP), 0);
    submit(&o);
    assert_int_equal(S.out, OUT_UNKNOWN);
    assert_int_equal(kill(S.agent, SIGCONT), 0);
    long pid = wait_pid((char[]){"lost.pid"});
    about(&o.key, 'f', 0);
    assert_int_equal(S.out, OUT_DONE);
    assert_true(S.answer.state == RUN_STARTING || S.answer.state == RUN_RUNNING);
    about(&o.key, 's', 100);
    assert_int_equal(S.answer.state, RUN_ENDED);
    assert_false(alive(pid));
}

static void a_restarted_agent_adopts(void **state)
{
    struct order o = {.key = fresh_key(),
                      .script = "echo $$ >>$D/adopt.pid; echo x >>$D/adopt.starts; exec sleep 600"};
    struct wanted e = {o.key, RUN_RUNNING};
    char path[160];

    (void)state;
    submit(&o);
    wait_state(&o.key, RUN_RUNNING);
    long pid = wait_pid((char[]){"adopt.pid"});
    agent_kill(SIGKILL);
    assert_true(alive(pid));
    seen(&o.key)->state = RUN_UNKNOWN;
    agent_start();
    assert_true(until_(is_state, &e, PATIENCE_MS));
    assert_true(alive(pid));
    submit(&o);
    assert_int_equal(S.out, OUT_DONE);
    assert_int_equal(S.answer.state, RUN_RUNNING);
    about(&o.key, 's', 100);
    assert_int_equal(S.answer.state, RUN_ENDED);
    assert_false(alive(pid));
    char text[16] = "";
    (void)snprintf(path, sizeof path, "%s/adopt.starts", S.dir);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    size_t n = fread(text, 1, sizeof text, f);
    (void)fclose(f);
    assert_int_equal(n, 2); /* "x\n": once */
}

static void without_an_agent_the_lease_ends_it(void **state)
{
    struct order o = {.key = fresh_key(),
                      .script = "trap '' TERM; $ESC $D/lease.pid; while :; do sleep 0.05; done",
                      .lease_ms = 2500};

    (void)state;
    S.renew_ms = 2500;
    timer_start(&S.renewals, 0);
    submit(&o);
    wait_state(&o.key, RUN_RUNNING);
    long pid = wait_pid((char[]){"lease.pid"});
    (void)until_(never, NULL, 3500); /* renewed: it lives past its first lease */
    assert_true(alive(pid));
    agent_kill(SIGKILL);
    timer_stop(&S.renewals);
    uint64_t from = loop_now_ms(S.loop);
    assert_true(until_(is_gone, &pid, 6000));
    assert_true(loop_now_ms(S.loop) - from < 2500 + 300 + 1000);
    agent_start();
    wait_state(&o.key, RUN_ENDED);
    assert_true(seen(&o.key)->lease_lost);
    assert_int_equal(seen(&o.key)->proof, PROOF_TREE_GONE);
}

/* Guard and shim both: nobody is left but the agent. */
static void a_killed_runner_is_swept(void **state)
{
    struct order o = {.key = fresh_key(),
                      .script = "echo $PPID >$D/shim.pid; $ESC $D/swept.pid; exec sleep 600"};
    char path[64];
    long guard = 0;

    (void)state;
    submit(&o);
    wait_state(&o.key, RUN_RUNNING);
    long escaped = wait_pid((char[]){"swept.pid"});
    long shim = wait_pid((char[]){"shim.pid"});
    (void)snprintf(path, sizeof path, "/proc/%ld/stat", shim);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%*d (%*[^)]) %*c %ld", &guard), 1);
    (void)fclose(f);
    assert_int_equal(kill((pid_t)guard, SIGKILL), 0);
    assert_int_equal(kill((pid_t)shim, SIGKILL), 0);
    wait_state(&o.key, RUN_ENDED);
    assert_false(alive(escaped));
    assert_string_equal(seen(&o.key)->reason, "RunnerKilled");
}

static void exec_runs_beside_it(void **state)
{
    struct order o = {.key = fresh_key(), .script = "exec sleep 600"};
    const char *const argv[] = {"sh", "-c", "read x; echo got $x $HANSE_RANK; exit 5", NULL};
    struct exec_request rq = {.argv = argv, .with_stdin = true};
    struct exec_session *es;
    struct err err;

    (void)state;
    submit(&o);
    wait_state(&o.key, RUN_RUNNING);
    S.n_text = 0;
    S.stream_ended = false;
    assert_int_equal(S.connector->ops->exec(S.connector, &o.key, &rq, &sink, &es, &err), 0);
    S.connector->ops->exec_input(es, "hello\n", 6, true);
    assert_true(until_(is_stream_end, NULL, PATIENCE_MS));
    assert_string_equal(S.text, "got hello 0\n");
    assert_int_equal(S.stream_exit, 5);
    assert_int_equal(S.stream_err.code, 0);
    rq.tty = true;
    S.stream_ended = false;
    assert_int_equal(S.connector->ops->exec(S.connector, &o.key, &rq, &sink, &es, &err), 0);
    assert_true(until_(is_stream_end, NULL, PATIENCE_MS));
    assert_int_equal(S.stream_err.code, E_NOTIMPL);
    about(&o.key, 's', 100);
    assert_int_equal(S.answer.state, RUN_ENDED);
}

static void logs_are_followed(void **state)
{
    struct order o = {.key = fresh_key(),
                      .script = "echo one; while ! [ -e $D/go ]; do sleep 0.02; done; echo two"};
    struct log_request rq = {.tail_lines = -1, .follow = true};
    struct exec_session *es;
    struct err err;
    char path[160];

    (void)state;
    submit(&o);
    wait_state(&o.key, RUN_RUNNING);
    S.n_text = 0;
    S.stream_ended = false;
    assert_int_equal(S.connector->ops->logs(S.connector, &o.key, &rq, &sink, &es, &err), 0);
    assert_true(until_(is_text, (char[]){"one\n"}, PATIENCE_MS));
    assert_false(S.stream_ended);
    (void)snprintf(path, sizeof path, "%s/go", S.dir);
    int fd = open(path, O_CREAT | O_WRONLY, 0600);
    assert_true(fd >= 0);
    (void)close(fd);
    assert_true(until_(is_stream_end, NULL, PATIENCE_MS));
    assert_string_equal(S.text, "one\ntwo\n");
}

static bool own_none(const struct run_key *k, void *arg)
{
    (void)k;
    (void)arg;
    return false;
}

static void sweep_stops_what_nobody_owns(void **state)
{
    struct order o = {.key = fresh_key(), .script = "echo $$ >$D/orphan.pid; exec sleep 600"};
    struct call call = {.deadline_ms = loop_now_ms(S.loop) + 5000, .done = on_done};

    (void)state;
    submit(&o);
    long pid = wait_pid((char[]){"orphan.pid"});
    S.done = false;
    S.connector->ops->sweep(S.connector, own_none, NULL, &call);
    assert_true(until_(is_done, NULL, PATIENCE_MS));
    assert_int_equal(S.out, OUT_DONE);
    wait_state(&o.key, RUN_ENDED);
    assert_false(alive(pid));
}

static bool is_refused(void *arg)
{
    (void)arg;
    return S.refusal[0] != '\0';
}

static void a_foreign_certificate_is_refused(void **state)
{
    struct order o = {.key = fresh_key(), .script = "true"};

    (void)state;
    agent_kill(SIGTERM);
    submit(&o);
    assert_int_equal(S.out, OUT_REJECTED); /* nothing left this process */
    assert_int_equal(S.err.code, E_UNAVAIL);
    agent_start_as("other");
    assert_true(until_(is_refused, NULL, PATIENCE_MS));
    assert_non_null(strstr(S.refusal, "\"agent:t1\""));
    assert_false(S.reachable);
    agent_kill(SIGKILL);
    agent_start();
}

/* ---- the world
 * ---------------------------------------------------------------------------------------------------------------
 */
static void issue(const char *name, const char *cn, bool server)
{
    char ca[160], ca_key[160], crt[160], key[160];
    const char *const names[] = {"127.0.0.1", "localhost", NULL}, *const none[] = {NULL};
    struct pki_request rq = {.common_name = cn,
                             .organizations = none,
                             .dns_names = server ? names : none,
                             .server = server,
                             .days = 1};
    struct err err;

    (void)snprintf(ca, sizeof ca, "%s/ca.crt", S.dir);
    (void)snprintf(ca_key, sizeof ca_key, "%s/ca.key", S.dir);
    (void)snprintf(crt, sizeof crt, "%s/%s.crt", S.dir, name);
    (void)snprintf(key, sizeof key, "%s/%s.key", S.dir, name);
    if (pki_issue(ca, ca_key, &rq, crt, key, &err) < 0)
        fail_msg("%s", err.text);
}

static void world_tls(void)
{
    static const char *const mutual[] = {ALPN_AGENT, NULL};
    char ca[160], ca_key[160], crt[160], key[160];
    struct err err;

    (void)snprintf(ca, sizeof ca, "%s/ca.crt", S.dir);
    (void)snprintf(ca_key, sizeof ca_key, "%s/ca.key", S.dir);
    (void)snprintf(crt, sizeof crt, "%s/server.crt", S.dir);
    (void)snprintf(key, sizeof key, "%s/server.key", S.dir);
    assert_int_equal(pki_ca_create(ca, ca_key, "test CA", 1, &err), 0);
    issue("server", "member:1", true);
    issue("agent", "agent:t1", false);
    issue("other", "agent:t2", false);
    struct tls_config_spec spec = {
        .cert_file = crt, .key_file = key, .ca_file = ca, .alpn_mutual = mutual};
    if (tls_config_create(&spec, true, &S.tls, &err) < 0)
        fail_msg("%s", err.text);
}

static int setup(void **state)
{
    static const char inventory[] = "target: t1\nnodes:\n"
                                    "- {name: n1, cpu: 8, memory: 16Gi, topology: {rack: r1}, "
                                    "gpus: [{index: 2, class: a, memory: 1Gi}]}\n"
                                    "- {name: n2, cpu: 8, memory: 16Gi}\n";
    struct connector_env env = {.events = &events};
    char path[160];
    struct err err;
    int port;

    (void)state;
    (void)snprintf(S.dir, sizeof S.dir, "/tmp/hanse-agent-XXXXXX");
    assert_non_null(mkdtemp(S.dir));
    S.loop = loop_uv_create(&err);
    assert_non_null(S.loop);
    world_tls();
    (void)snprintf(path, sizeof path, "%s/inventory.yaml", S.dir);
    assert_int_equal(file_write(S.loop, path, inventory, strlen(inventory), 0600, &err), 0);
    cJSON *j = cJSON_Parse(
        "{\"apiVersion\":\"hanse.dev/v1alpha1\",\"kind\":\"Target\",\"metadata\":{\"name\":\"t1\"},"
        "\"spec\":{\"type\":\"agent\",\"tier\":\"hub\"}}");
    assert_int_equal(object_from_json(kind_by_id(KIND_TARGET), j, 0, &S.target, &err), 0);
    cJSON_Delete(j);
    env.loop = S.loop;
    assert_int_equal(connector_by_type(TARGET_AGENT)->create(&env, S.target, &S.connector, &err),
                     0);
    assert_int_equal(
        listener_create(S.loop, "127.0.0.1:0", S.tls, on_accept, NULL, &S.listener, &port, &err),
        0);
    (void)snprintf(S.port, sizeof S.port, "127.0.0.1:%d", port);
    timer_init(&S.renewals, S.loop, renew_tick, NULL);
    agent_start();
    return 0;
}

static int teardown(void **state)
{
    struct err err;

    (void)state;
    timer_stop(&S.renewals);
    agent_kill(SIGTERM);
    S.connector->ops->destroy(S.connector);
    listener_close(S.listener);
    int rc = file_remove(S.loop, S.dir, &err);
    (void)object_unref(S.target);
    (void)tls_config_unref(S.tls);
    loop_uv_destroy(S.loop);
    return rc;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "run") == 0)
        return run_main(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "agent") == 0)
        return agent_main(argc - 1, argv + 1);
    if (argc > 2 && strcmp(argv[1], "escape") == 0)
        return escape_main(argv[2]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(inventory_is_told),
        cmocka_unit_test(runs_and_tells_the_end),
        cmocka_unit_test(scripts_run_and_fail_at_the_first_error),
        cmocka_unit_test(stop_ends_also_what_escaped),
        cmocka_unit_test(quiesce_sends_the_signal),
        cmocka_unit_test(a_gang_ends_together),
        cmocka_unit_test(an_unknown_key_is_refused_for_ever),
        cmocka_unit_test(a_lost_answer_is_unknown_then_found),
        cmocka_unit_test(a_restarted_agent_adopts),
        cmocka_unit_test(without_an_agent_the_lease_ends_it),
        cmocka_unit_test(a_killed_runner_is_swept),
        cmocka_unit_test(exec_runs_beside_it),
        cmocka_unit_test(logs_are_followed),
        cmocka_unit_test(sweep_stops_what_nobody_owns),
        cmocka_unit_test(a_foreign_certificate_is_refused),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
