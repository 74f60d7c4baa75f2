/* The agent driver under the contract of connector.h (tests/support/contract/connector_contract.h):
 * driver, TLS, agent and shims as they are shipped, with real processes; this program is also the
 * agent and the shim that it starts. */
#include "api/base/net/tls.h"
#include "connectors/agent/agent.h"
#include "connectors/shim/shim.h"
#include "controlplane/leader/drive/order.h"
#include "tests/support/contract/connector_contract.h"

#include <cjson/cJSON.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static struct world {
    struct connector_rig rig;
    char dir[64], address[32], d[96];
    struct tls_config *tls;
    struct listener *listener;
    struct arena *arena; /* of orders */
    struct object *target, *workload[3];
    char ck[128];
    pid_t agent;
} W;

static const char *path(const char *name)
{
    static char p[8][160];
    static unsigned n;

    n = (n + 1) % 8;
    (void)snprintf(p[n], sizeof p[n], "%s/%s", W.dir, name);
    return p[n];
}

/* ---- the rig ---- */
static void order(struct connector_rig *r, const struct run_key *k, enum contract_program what,
                  struct run_order *ret)
{
    static struct assignment at = {.node = "t1.n1", .mig = ""};
    static struct placement p = {.target = "t1", .assignments = &at, .n_assignments = 1};
    static char key[RUN_KEY_MAX + 2] = "K=";
    static const char *env[3];

    (void)r;
    run_key_print(k, key + 2);
    env[0] = W.d;
    env[1] = key;
    order_resolve(W.workload[what], W.arena, ret);
    ret->placement = &p;
    ret->env = env;
    if (what == PROGRAM_SAVES) {
        (void)snprintf(W.ck, sizeof W.ck, "%s/ck/%.60s", W.dir, k->uid);
        ret->checkpoint_dir = W.ck;
        ret->checkpoint_keep = 2;
    }
}

static int64_t resumed(struct connector_rig *r, const struct run_key *k)
{
    char key[RUN_KEY_MAX], name[RUN_KEY_MAX + 8];
    long long step = -1;

    (void)r;
    run_key_print(k, key);
    (void)snprintf(name, sizeof name, "%s.from", key);
    FILE *f = fopen(path(name), "r");
    if (f && fscanf(f, "%lld", &step) != 1)
        step = -1;
    if (f)
        (void)fclose(f);
    return step;
}

static void silence(struct connector_rig *r, bool on)
{
    (void)r;
    assert_int_equal(kill(W.agent, on ? SIGSTOP : SIGCONT), 0);
}

/* Every program appends its pid to a file of its key. */
static unsigned pids_of(const struct run_key *k, long *ret_last)
{
    char key[RUN_KEY_MAX], name[RUN_KEY_MAX + 8];
    unsigned n = 0;
    long pid;

    run_key_print(k, key);
    (void)snprintf(name, sizeof name, "%s.pids", key);
    FILE *f = fopen(path(name), "r");
    while (f && fscanf(f, "%ld", &pid) == 1) {
        *ret_last = pid;
        n++;
    }
    if (f)
        (void)fclose(f);
    return n;
}
static unsigned starts(struct connector_rig *r, const struct run_key *k)
{
    long pid;

    (void)r;
    return pids_of(k, &pid);
}
static bool alive(struct connector_rig *r, const struct run_key *k)
{
    char stat[64], state = 'X';
    long pid = 0;

    (void)r;
    if (pids_of(k, &pid) == 0)
        return false;
    (void)snprintf(stat, sizeof stat, "/proc/%ld/stat", pid);
    FILE *f = fopen(stat, "r");
    if (!f)
        return false;
    if (fscanf(f, "%*d (%*[^)]) %c", &state) != 1)
        state = 'X';
    (void)fclose(f);
    return state != 'Z' && state != 'X';
}

/* ---- the world ---- */
static void on_accept(struct listener *li, struct stream *s, void *arg)
{
    static const struct stream_events nobody = {0};
    struct err e;

    (void)li;
    (void)arg;
    if (!W.rig.connector) { /* between two connectors */
        stream_set(s, &nobody, NULL);
        stream_abort(s, "nobody is here");
    } else if (connector_agent_attach(W.rig.connector, s, &e)) {
        fail_msg("%s", e.text);
    }
}

static void issue(const char *name, const char *cn, bool server)
{
    static const char *const names[] = {"127.0.0.1", "localhost", NULL}, *const none[] = {NULL};
    char crt[160], key[160], file[64];
    struct pki_request rq = {.common_name = cn,
                             .organizations = none,
                             .dns_names = server ? names : none,
                             .server = server,
                             .days = 1};
    struct err e;

    (void)snprintf(file, sizeof file, "%s.crt", name);
    str_copy(crt, sizeof crt, path(file));
    (void)snprintf(file, sizeof file, "%s.key", name);
    str_copy(key, sizeof key, path(file));
    if (pki_issue(path("ca.crt"), path("ca.key"), &rq, crt, key, &e))
        fail_msg("%s", e.text);
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
static struct object *workload_made(const char *script)
{
    char json[1024];

    (void)snprintf(json, sizeof json,
                   "{\"apiVersion\":\"hanse.dev/v1alpha1\",\"kind\":\"Workload\",\"metadata\":{"
                   "\"name\":\"w\",\"namespace\":\"ns\"},\"spec\":{\"run\":{\"command\":[\"sh\","
                   "\"-c\",\"echo $$ >>$D/$K.pids; %s\"]}}}",
                   script);
    return made(KIND_WORKLOAD, json);
}

static void agent_start(void)
{
    W.agent = fork();
    assert_true(W.agent >= 0);
    if (W.agent)
        return;
    (void)close_range(3, ~0u, CLOSE_RANGE_CLOEXEC); /* what whoever runs this test holds */
    if (!getenv("HANSE_TEST_VERBOSE")) {
        int null = open("/dev/null", O_RDWR);
        (void)dup2(null, 2);
    }
    (void)execl("/proc/self/exe", "hanse", "agent", "--server", W.address, "--target", "t1",
                "--state", path("state"), "--cert", path("agent.crt"), "--key", path("agent.key"),
                "--ca", path("ca.crt"), "--inventory", path("inventory.yaml"), "--processes",
                "cgroup", /* pids as we see them */
                "--store-root", W.dir, (char *)NULL);
    _exit(99);
}

static void world_files(void)
{
    static const char inventory[] = "target: t1\nnodes:\n- {name: n1, cpu: 8, memory: 16Gi}\n";
    static const char *const mutual[] = {ALPN_AGENT, NULL};
    struct err e;

    (void)snprintf(W.dir, sizeof W.dir, "/tmp/hanse-contract-XXXXXX");
    assert_non_null(mkdtemp(W.dir));
    (void)snprintf(W.d, sizeof W.d, "D=%s", W.dir);
    assert_int_equal(pki_ca_create(path("ca.crt"), path("ca.key"), "test CA", 1, &e), 0);
    issue("server", "member:1", true);
    issue("agent", "agent:t1", false);
    struct tls_config_spec spec = {.cert_file = path("server.crt"),
                                   .key_file = path("server.key"),
                                   .ca_file = path("ca.crt"),
                                   .alpn_mutual = mutual};
    if (tls_config_create(&spec, true, &W.tls, &e))
        fail_msg("%s", e.text);
    assert_int_equal(
        file_write(W.rig.loop, path("inventory.yaml"), inventory, strlen(inventory), 0600, &e), 0);
}

static int setup(void **state)
{
    struct err e;
    int port;

    W.rig = (struct connector_rig){.loop = loop_uv_create(&e),
                                   .run = loop_uv_run,
                                   .ops = &connector_agent_ops,
                                   .order = order,
                                   .silence = silence,
                                   .starts = starts,
                                   .resumed = resumed,
                                   .alive = alive};
    assert_non_null(W.rig.loop);
    world_files();
    W.arena = arena_create(0);
    W.target = made(KIND_TARGET, "{\"apiVersion\":\"hanse.dev/v1alpha1\",\"kind\":\"Target\","
                                 "\"metadata\":{\"name\":\"t1\"},\"spec\":{\"type\":\"agent\","
                                 "\"tier\":\"hub\"}}");
    W.rig.target = W.target;
    W.workload[PROGRAM_STAYS] = workload_made("trap 'exit 75' USR1; while :; do sleep 0.02; done");
    W.workload[PROGRAM_ENDS] = workload_made("exit 3");
    W.workload[PROGRAM_SAVES] = workload_made(
        "H=/proc/$PPID/exe; s=0; C=$HANSE_CHECKPOINT_DIR; "
        "[ -z \\\"$HANSE_RESUME_DIR\\\" ] || s=$(cat $HANSE_RESUME_DIR/state.*); "
        "echo $s >$D/$K.from; "
        "save() { s=$((s + 10)); echo $s >$C/state.$s; $H checkpoint commit --step $s state.$s; }; "
        "trap 'save; exit 75' USR1; save; while :; do sleep 0.02; done");
    assert_int_equal(
        listener_create(W.rig.loop, "127.0.0.1:0", W.tls, on_accept, NULL, &W.listener, &port, &e),
        0);
    (void)snprintf(W.address, sizeof W.address, "127.0.0.1:%d", port);
    agent_start();
    connector_rig_begin(&W.rig);
    *state = &W.rig;
    return 0;
}

static int teardown(void **state)
{
    struct err e;

    (void)state;
    if (W.agent > 0) {
        (void)kill(W.agent, SIGCONT);
        (void)kill(W.agent, SIGTERM);
        (void)waitpid(W.agent, NULL, 0);
    }
    connector_rig_end(&W.rig);
    listener_close(W.listener);
    int rc = file_remove(W.rig.loop, W.dir, &e);
    (void)object_unref(W.target);
    (void)arena_destroy(W.arena);
    (void)object_unref(W.workload[0]);
    (void)object_unref(W.workload[1]);
    (void)object_unref(W.workload[2]);
    (void)tls_config_unref(W.tls);
    loop_uv_destroy(W.rig.loop);
    return rc;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "run") == 0)
        return run_main(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "checkpoint") == 0)
        return checkpoint_main(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "agent") == 0)
        return agent_main(argc - 1, argv + 1);
    const struct CMUnitTest tests[] = {CONNECTOR_CONTRACT_TESTS};

    return cmocka_run_group_tests(tests, setup, teardown);
}
