/* See agent_world.h. */
#include "tests/support/agent_world.h"

#include "api/base/net/tls.h"
#include "connectors/agent/agent.h"
#include "connectors/checkpoint/checkpoint.h"
#include "controlplane/leader/drive/order.h"
#include "tests/support/run_kit.h"

#include <cjson/cJSON.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct agent_world A;

int agent_world_main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "agent") == 0)
        return agent_main(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "checkpoint") == 0)
        return checkpoint_main(argc - 1, argv + 1);
    return run_kit_main(argc, argv);
}

/* ---- files ---- */
static const char *path_va(const char *fmt, va_list ap)
{
    static char p[8][512];
    static unsigned n;
    size_t at;

    n = (n + 1) % 8;
    at = (size_t)snprintf(p[n], sizeof p[n], "%s/", A.dir);
    (void)vsnprintf(p[n] + at, sizeof p[n] - at, fmt, ap);
    return p[n];
}

static const char *path(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    const char *p = path_va(fmt, ap);
    va_end(ap);
    return p;
}

bool agent_file_exists(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    const char *p = path_va(fmt, ap);
    va_end(ap);
    return access(p, F_OK) == 0;
}

void agent_file_put(const char *name, const char *text)
{
    struct err e;

    if (file_write(A.loop, path("%s", name), text, strlen(text), 0600, &e) < 0)
        fail_msg("%s", e.text);
}

const char *agent_file_text(const char *fmt, ...)
{
    static char text[8][4096];
    static unsigned n;
    va_list ap;
    size_t len = 0;

    n = (n + 1) % 8;
    va_start(ap, fmt);
    FILE *f = fopen(path_va(fmt, ap), "r");
    va_end(ap);
    if (f) {
        len = fread(text[n], 1, sizeof text[n] - 1, f);
        (void)fclose(f);
    }
    text[n][len] = '\0';
    return text[n];
}

static bool file_is_there(void *arg)
{
    return agent_file_exists("%s", (const char *)arg);
}

bool agent_await_file(const char *name)
{
    union {
        const char *c;
        void *p;
    } u = {name};

    return agent_until(file_is_there, u.p, PATIENCE_MS);
}

/* ---- waiting ---- */
struct waiting {
    bool (*cond)(void *arg);
    void *arg;
    uint64_t until;
    struct timer timer;
};

static void wait_tick(void *arg)
{
    struct waiting *w = arg;

    if (w->cond(w->arg) || loop_now_ms(A.loop) > w->until)
        loop_stop(A.loop);
    else
        timer_start(&w->timer, 2);
}

bool agent_until(bool (*cond)(void *), void *arg, uint64_t ms)
{
    struct waiting w = {.cond = cond, .arg = arg, .until = loop_now_ms(A.loop) + ms};

    timer_init(&w.timer, A.loop, wait_tick, &w);
    timer_start(&w.timer, 0);
    loop_uv_run(A.loop);
    timer_stop(&w.timer);
    return cond(arg);
}

static bool is_never(void *arg)
{
    (void)arg;
    return false;
}

void agent_pass(uint64_t ms)
{
    (void)agent_until(is_never, NULL, ms);
}

static bool has_pid(void *arg)
{
    return pid_in_file(path("%s", (const char *)arg)) > 0;
}

long agent_await_pid(const char *name)
{
    union {
        const char *c;
        void *p;
    } u = {name};

    assert_true(agent_until(has_pid, u.p, PATIENCE_MS));
    return pid_in_file(path("%s", name));
}

const char *agent_name(const char *fmt, ...)
{
    static char name[8][512];
    static unsigned n;
    va_list ap;

    n = (n + 1) % 8;
    va_start(ap, fmt);
    (void)vsnprintf(name[n], sizeof name[n], fmt, ap);
    va_end(ap);
    return name[n];
}

static bool is_reachable(void *arg)
{
    return ((struct agent_side *)arg)->reachable;
}

static bool is_cut_off(void *arg)
{
    return !is_reachable(arg);
}

bool agent_call_done(void *arg)
{
    return ((struct asked *)arg)->done;
}

static void on_observed(void *arg, const struct observation *o)
{
    size_t i = 0;

    (void)arg;
    while (i < A.n_seen && !run_key_same(&A.seen[i].o.key, &o->key))
        i++;
    assert_true(i < sizeof A.seen / sizeof A.seen[0]);
    A.n_seen += i == A.n_seen;
    A.seen[i].o = *o;
    A.seen[i].told++;
}

static void on_reach(void *arg, bool reachable, const char *session, const char *why)
{
    struct agent_side *x = arg;

    (void)session;
    x->reachable = reachable;
    x->silences += !reachable && why && strstr(why, "no heartbeat") != NULL;
}

static void on_nodes(void *arg, const struct inventory_page *p)
{
    struct agent_side *x = arg;

    assert_false(p->lacks);
    (void)snprintf(x->told, sizeof x->told, "%s %s %zu", p->since, p->revision, p->n_removed);
    x->nodes = p->n;
    str_copy(x->node_name, sizeof x->node_name, p->nodes[0].metadata->name);
    str_copy(x->processes, sizeof x->processes,
             processes_held_text(p->nodes[0].status->isolation->processes));
}

static void on_agent(void *arg, const char *state_id)
{
    struct agent_side *x = arg;

    str_copy(x->memory, sizeof x->memory, state_id);
}

static void on_rival(void *arg, const char *why)
{
    struct agent_side *x = arg;

    str_copy(x->rival, sizeof x->rival, why);
}

static void on_heard(void *arg, const char *cluster, uint64_t rv, int64_t time_ms)
{
    struct agent_side *x = arg;

    if (!rv && strcmp(cluster, x->heard) == 0)
        return; /* whom it serves */
    str_copy(x->heard, sizeof x->heard, cluster);
    x->heard_rv = rv;
    x->heard_ms = time_ms;
}

static const char *cluster_told(void *arg)
{
    return ((struct agent_side *)arg)->cluster;
}

static uint64_t rv_told(void *arg, int64_t *ret_time_ms)
{
    *ret_time_ms = (int64_t)((struct agent_side *)arg)->rv * 1000;
    return ((struct agent_side *)arg)->rv;
}

static void on_lobby(void *arg, const char *target, const char *cluster, uint64_t rv,
                     int64_t time_ms)
{
    (void)arg;
    for (unsigned i = 0; i < AGENTS; i++)
        if (strcmp(A.side[i].target, target) == 0)
            on_heard(&A.side[i], cluster, rv, time_ms);
}

struct connector_events agent_events = {.nodes = on_nodes,
                                        .reach = on_reach,
                                        .observed = on_observed,
                                        .agent = on_agent,
                                        .heard = on_heard,
                                        .rival = on_rival};

static struct connector_lobby *lobby;

void agent_lobby_close(void)
{
    lobby = connector_lobby_destroy(lobby);
}

static void on_accept(struct listener *li, struct stream *s, void *arg)
{
    static const struct stream_events nobody = {0};
    struct err e;

    (void)arg;
    if (li == A.listener && A.redirect) {
        A.redirected++;
        connector_agent_redirect(s, A.redirect);
        return;
    }
    A.at_leader += li == A.leader_listener;
    if (A.no_targets) {
        A.turned_away++;
        if (!lobby)
            lobby = connector_lobby_create(A.loop, on_lobby, NULL);
        connector_lobby_enter(lobby, s, stream_peer(s)->name + 6, "there is no such Target");
        return;
    }
    for (unsigned i = 0; i < AGENTS; i++) {
        struct agent_side *x = &A.side[i];
        if (!A.all_to_first && strcmp(stream_peer(s)->name + 6, x->target) != 0)
            continue;
        if (x->refuse || !x->connector)
            break;
        x->stream = s;
        if (connector_agent_attach(x->connector, s, &e) < 0)
            str_copy(A.refusal, sizeof A.refusal, e.text);
        return;
    }
    stream_set(s, &nobody, NULL);
    stream_abort(s, "refused by the test");
}

static void renew_tick(void *arg)
{
    (void)arg;
    for (unsigned i = 0; i < AGENTS; i++)
        A.side[i].connector->ops->renew(A.side[i].connector, &A.offer, A.offer.number > 0);
    timer_start(&A.renewals, 100);
}

/* ---- agents ---- */
static pid_t agent_fork(const struct agent_side *x, const char *cert, const char *state,
                        const char *log)
{
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        (void)close_range(3, ~0u, CLOSE_RANGE_CLOEXEC); /* what whoever runs this test holds */
        if (log || !getenv("HANSE_TEST_VERBOSE")) {
            int out = open(log ? log : "/dev/null", O_RDWR | O_CREAT | O_APPEND, 0600);
            (void)dup2(out, 2);
        }
        (void)execl("/proc/self/exe", "hanse", "agent", "--server", A.address, "--target",
                    x->target, "--state", state, "--cert", path("%s.crt", cert), "--key",
                    path("%s.key", cert), "--ca", path("ca.crt"), "--inventory",
                    path("%s.yaml", x->target), "--processes", A.processes ? A.processes : "cgroup",
                    "--store-root", path("store"), (char *)NULL);
        _exit(99);
    }
    return pid;
}

void agent_begin_as(unsigned side, const char *cert)
{
    struct agent_side *x = &A.side[side];

    x->agent = agent_fork(x, cert, path("state-%s", x->target), NULL);
}

pid_t agent_second(unsigned side, const char *state)
{
    const struct agent_side *x = &A.side[side];

    return agent_fork(x, x->target, path("%s", state), path("%s.log", state));
}

void agent_begin(unsigned side)
{
    agent_begin_as(side, A.side[side].target);
    assert_true(agent_until(is_reachable, &A.side[side], PATIENCE_MS));
}

void agent_end(unsigned side, int signo)
{
    struct agent_side *x = &A.side[side];

    (void)kill(x->agent, signo);
    (void)waitpid(x->agent, NULL, 0);
    x->agent = 0;
    assert_true(agent_until(is_cut_off, x, PATIENCE_MS));
}

void agent_cut_off(unsigned side, bool on)
{
    struct agent_side *x = &A.side[side];

    x->refuse = on;
    if (on)
        stream_abort(x->stream, "cut off by the test");
    assert_true(agent_until(on ? is_cut_off : is_reachable, x, PATIENCE_MS));
}

enum proof agent_proof(unsigned side)
{
    struct asked a;

    if (!A.side[side].processes[0])
        (void)agent_inventory(side, &a);
    return strcmp(A.side[side].processes, "searched") == 0 ? PROOF_TREE_SEARCHED : PROOF_TREE_GONE;
}

/* ---- orders ---- */
struct run_key agent_key(void)
{
    struct run_key k = {.epoch = 1, .try_ = 1};

    (void)snprintf(k.uid, sizeof k.uid, "w%llu-%d", (unsigned long long)++A.serial, (int)getpid());
    return k;
}

const char *agent_base(const char *uid)
{
    return path("store/ns/w-%s", uid);
}

static struct object *made(enum kind_id kind, const char *json)
{
    struct object *o = NULL;
    cJSON *j = cJSON_Parse(json);
    struct err e;

    if (object_from_json(kind_by_id(kind), j, 0, &o, &e))
        fail_msg("%s: %s", e.field, e.text);
    cJSON_Delete(j);
    return o;
}

static struct object *workload_made(const struct agent_order *o)
{
    cJSON *j = cJSON_Parse("{\"apiVersion\":\"hanse.dev/v1alpha1\",\"kind\":\"Workload\","
                           "\"metadata\":{\"name\":\"w\",\"namespace\":\"ns\"},\"spec\":{"
                           "\"run\":{},\"checkpoint\":{\"store\":\"/none\"}}}");
    cJSON *spec = cJSON_GetObjectItem(j, "spec"), *run = cJSON_GetObjectItem(spec, "run");
    const char *const argv[] = {"sh", "-c", o->script};

    if (o->dir)
        cJSON_AddStringToObject(run, "workingDir", o->dir);
    if (o->file_script)
        cJSON_AddStringToObject(run, "script", o->file_script);
    else
        cJSON_AddItemToObject(run, "command", cJSON_CreateStringArray(argv, 3));
    cJSON *args = o->n_args ? cJSON_AddArrayToObject(run, "args") : NULL;
    for (unsigned i = 0; i < o->n_args; i++)
        cJSON_AddItemToArray(args, cJSON_CreateString(o->arg));
    cJSON_AddStringToObject(cJSON_GetObjectItem(spec, "checkpoint"), "grace",
                            o->grace ? o->grace : "5s");
    cJSON_AddStringToObject(cJSON_GetObjectItem(spec, "checkpoint"), "saveSignal",
                            o->save_signal ? o->save_signal : "");
    if (o->proved)
        cJSON_AddStringToObject(cJSON_AddObjectToObject(spec, "isolation"), "processes", "proved");
    char *text = cJSON_PrintUnformatted(j);
    struct object *w = made(KIND_WORKLOAD, text);
    cJSON_free(text);
    cJSON_Delete(j);
    return w;
}

static void on_done(struct call *c, enum outcome out, const struct observation *seen,
                    const struct err *err)
{
    struct asked *a = (struct asked *)c;

    assert_false(a->done);
    a->done = true;
    a->out = out;
    a->has = seen != NULL;
    if (seen)
        a->seen = *seen;
    if (err)
        a->err = *err;
}

static void asked_init(struct asked *a, uint64_t ms)
{
    *a = (struct asked){.call = {.deadline_ms = loop_now_ms(A.loop) + ms, .done = on_done}};
}

static enum outcome answered(struct asked *a)
{
    assert_true(agent_until(agent_call_done, a, PATIENCE_MS));
    return a->out;
}

static void order_send(const struct agent_order *o, bool stage, struct asked *a)
{
    char d[96], k[96], self[200], h[256], esc[256], node[2][16];
    const char *env[] = {d, k, h, esc, o->env, NULL};
    struct object *w = workload_made(o);
    struct connector *c = A.side[o->side].connector;
    struct assignment at[4] = {{0}};
    AUTO_ARENA mem = arena_create(0);
    struct placement p = {.target = c->target, .assignments = at};
    int64_t gpus[] = {2, 5};

    p.n_assignments = o->workers ? o->workers : 1;
    for (unsigned i = 0; i < 2; i++)
        (void)snprintf(node[i], sizeof node[i], "%s.n%u", c->target, i + 1);
    for (unsigned i = 0; i < p.n_assignments; i++)
        at[i] = (struct assignment){
            .rank = o->first_rank + i, .node = node[i % 2], .gpus = gpus, .n_gpus = 2, .mig = ""};
    (void)snprintf(d, sizeof d, "D=%s", A.dir);
    (void)snprintf(k, sizeof k, "U=%s", o->key.uid);
    ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1); /* /proc may be another */
    self[len > 0 ? len : 0] = '\0';
    (void)snprintf(h, sizeof h, "H=%s", self);
    (void)snprintf(esc, sizeof esc, "ESC=%s escape", self);
    struct run_order order = {.key = o->key,
                              .placement = &p,
                              .env = env,
                              .lease_ms = o->lease_ms,
                              .grace_ms = (uint64_t)object_as(w, workload)->spec->checkpoint->grace,
                              .checkpoint_dir = o->base ? o->base : agent_base(o->key.uid),
                              .checkpoint_keep = o->keep ? o->keep : 2,
                              .checkpoint_interval_ms = 90500,
                              .resume_path = o->resume_path ? o->resume_path : "",
                              .resume_digest = o->resume_digest ? o->resume_digest : "",
                              .resume_epoch = o->resume_epoch,
                              .resume_step = o->resume_step,
                              .reshard = o->reshard, .shared = o->shared,
                              .look_workers = o->look_workers, .look_epoch = o->look_epoch,
                              .meeting = o->meeting, .leaves = o->leaves, .span = o->span};
    order_resolve(w, mem, &order);
    (stage ? c->ops->stage : c->ops->submit)(c, &order, &a->call);
    assert_false(a->done); /* never from inside the call */
    (void)object_unref(w);
}

enum outcome agent_submit(const struct agent_order *o, struct asked *a)
{
    agent_order_begin(o, false, a, o->deadline_ms ? o->deadline_ms : CALL_MS);
    return answered(a);
}

void agent_order_begin(const struct agent_order *o, bool stage, struct asked *a, uint64_t ms)
{
    asked_init(a, ms);
    order_send(o, stage, a);
}

enum outcome agent_stage(const struct agent_order *o, struct asked *a)
{
    agent_order_begin(o, true, a, CALL_MS);
    return answered(a);
}

enum outcome agent_find(unsigned side, const struct run_key *k, struct asked *a)
{
    struct connector *c = A.side[side].connector;

    asked_init(a, CALL_MS);
    c->ops->find(c, k, &a->call);
    return answered(a);
}

enum outcome agent_stop(unsigned side, const struct run_key *k, struct asked *a)
{
    struct connector *c = A.side[side].connector;

    asked_init(a, CALL_MS);
    c->ops->stop(c, k, 200, &a->call);
    return answered(a);
}

enum outcome agent_inventory(unsigned side, struct asked *a)
{
    struct connector *c = A.side[side].connector;

    asked_init(a, CALL_MS);
    c->ops->inventory(c, &a->call);
    return answered(a);
}

enum outcome agent_sweep(unsigned side, run_judge judge, struct asked *a)
{
    struct connector *c = A.side[side].connector;

    asked_init(a, CALL_MS);
    c->ops->sweep(c, judge, NULL, &a->call);
    return answered(a);
}

enum outcome agent_promises(unsigned side, uint64_t older_ms, promise_judge judge, struct asked *a)
{
    struct connector *c = A.side[side].connector;

    asked_init(a, CALL_MS);
    c->ops->promises(c, A.side[side].rv, older_ms, judge, NULL, &a->call);
    return answered(a);
}

void agent_quiesce(unsigned side, const struct run_key *k)
{
    struct connector *c = A.side[side].connector;
    struct asked a;

    asked_init(&a, CALL_MS);
    c->ops->quiesce(c, k, SIGUSR1, 5000, &a.call);
    assert_int_equal(answered(&a), OUT_DONE);
}

const struct observation *agent_seen(const struct run_key *k)
{
    for (size_t i = 0; i < A.n_seen; i++)
        if (run_key_same(&A.seen[i].o.key, k))
            return &A.seen[i].o;
    return NULL;
}

struct wanted {
    const struct run_key *key;
    enum run_state state;
    int64_t step;
};

static bool is_state(void *arg)
{
    const struct wanted *w = arg;
    const struct observation *o = agent_seen(w->key);

    return o && o->state == w->state;
}

static bool is_step(void *arg)
{
    const struct wanted *w = arg;
    const struct observation *o = agent_seen(w->key);

    return o && o->checkpoint.present && o->checkpoint.step >= w->step;
}

const struct observation *agent_await(const struct run_key *k, enum run_state state)
{
    struct wanted w = {.key = k, .state = state};

    assert_true(agent_until(is_state, &w, PATIENCE_MS));
    return agent_seen(k);
}

const struct run_checkpoint_report *agent_await_step(const struct run_key *k, int64_t step)
{
    struct wanted w = {.key = k, .step = step};

    assert_true(agent_until(is_step, &w, PATIENCE_MS));
    return &agent_seen(k)->checkpoint;
}

/* ---- the world ---- */
static void issue(const char *name, const char *cn, bool server)
{
    static const char *const names[] = {"127.0.0.1", "localhost", NULL}, *const none[] = {NULL};
    struct pki_request rq = {.common_name = cn,
                             .organizations = none,
                             .dns_names = server ? names : none,
                             .server = server,
                             .days = 1};
    struct err e;

    if (pki_issue(path("ca.crt"), path("ca.key"), &rq, path("%s.crt", name), path("%s.key", name),
                  &e))
        fail_msg("%s", e.text);
}

static void world_tls(void)
{
    static const char *const mutual[] = {ALPN_AGENT, NULL};
    struct err e;

    assert_int_equal(pki_ca_create(path("ca.crt"), path("ca.key"), "test CA", 1, &e), 0);
    issue("server", "member:1", true);
    struct tls_config_spec spec = {.cert_file = path("server.crt"),
                                   .key_file = path("server.key"),
                                   .ca_file = path("ca.crt"),
                                   .alpn_mutual = mutual};
    if (tls_config_create(&spec, true, &A.tls, &e))
        fail_msg("%s", e.text);
}

static void side_make(struct agent_side *x, unsigned i)
{
    char text[256], name[32];
    struct connector_env env = {.loop = A.loop,
                                .events = &agent_events,
                                .arg = x,
                                .cluster_uid = cluster_told,
                                .peers = agent_peers_told,
                                .state_rv = rv_told};
    struct err e;

    (void)snprintf(x->target, sizeof x->target, "t%u", i + 1);
    (void)snprintf(name, sizeof name, "agent:%s", x->target);
    issue(x->target, name, false);
    (void)snprintf(text, sizeof text,
                   "target: %s\nnodes:\n- {name: n1, cpu: 8, memory: 16Gi}\n"
                   "- {name: n2, cpu: 8, memory: 16Gi}\n",
                   x->target);
    (void)snprintf(name, sizeof name, "%s.yaml", x->target);
    agent_file_put(name, text);
    (void)snprintf(text, sizeof text,
                   "{\"apiVersion\":\"hanse.dev/v1alpha1\",\"kind\":\"Target\",\"metadata\":{"
                   "\"name\":\"%s\"},\"spec\":{\"type\":\"agent\",\"tier\":\"hub\"}}",
                   x->target);
    x->object = made(KIND_TARGET, text);
    if (connector_agent_ops.create(&env, x->object, &x->connector, &e))
        fail_msg("%s", e.text);
}

int agent_world_setup(void **state)
{
    struct err e;
    int port;

    (void)state;
    A.loop = loop_uv_create(&e);
    assert_non_null(A.loop);
    (void)snprintf(A.dir, sizeof A.dir, "/tmp/hanse-agents-XXXXXX");
    assert_non_null(mkdtemp(A.dir));
    world_tls();
    for (unsigned i = 0; i < AGENTS; i++)
        side_make(&A.side[i], i);
    if (listener_create(A.loop, "127.0.0.1:0", A.tls, on_accept, NULL, &A.listener, &port, &e))
        fail_msg("%s", e.text);
    (void)snprintf(A.address, sizeof A.address, "127.0.0.1:%d", port);
    if (listener_create(A.loop, "127.0.0.1:0", A.tls, on_accept, NULL, &A.leader_listener, &port,
                        &e))
        fail_msg("%s", e.text);
    (void)snprintf(A.leader, sizeof A.leader, "127.0.0.1:%d", port);
    timer_init(&A.renewals, A.loop, renew_tick, NULL);
    for (unsigned i = 0; i < AGENTS; i++)
        agent_begin(i);
    return 0;
}

/* What a test that failed left running: a shim without a lease would outlive us for ever. */
static void stop_all(unsigned side)
{
    struct agent_side *x = &A.side[side];

    if (x->agent <= 0)
        return;
    (void)kill(x->agent, SIGCONT);
    x->refuse = false;
    if (!agent_until(is_reachable, x, PATIENCE_MS))
        return;
    for (size_t i = 0; i < A.n_seen; i++) {
        struct asked a;
        if (A.seen[i].o.state == RUN_ENDED || A.seen[i].o.state == RUN_ABSENT)
            continue;
        asked_init(&a, CALL_MS);
        x->connector->ops->stop(x->connector, &A.seen[i].o.key, 200, &a.call);
        (void)agent_until(agent_call_done, &a, PATIENCE_MS);
    }
}

int agent_world_teardown(void **state)
{
    struct err e;

    (void)state;
    timer_stop(&A.renewals);
    for (unsigned i = 0; i < AGENTS; i++) {
        struct agent_side *x = &A.side[i];
        stop_all(i);
        if (x->agent > 0) {
            (void)kill(x->agent, SIGCONT);
            (void)kill(x->agent, SIGTERM);
            (void)waitpid(x->agent, NULL, 0);
        }
        x->connector->ops->destroy(x->connector);
        (void)object_unref(x->object);
    }
    listener_close(A.listener);
    listener_close(A.leader_listener);
    int rc = file_remove(A.loop, A.dir, &e);
    (void)tls_config_unref(A.tls);
    loop_uv_destroy(A.loop);
    return rc;
}
