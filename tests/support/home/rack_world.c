/* See rack_world.h. */
#include "tests/support/home/rack_world.h"

#include "api/base/net/tls.h"
#include "connectors/callout/callout.h"
#include "connectors/home/home.h"
#include "connectors/shim/shim.h"
#include "controlplane/leader/drive/order.h"
#include "tests/support/report/report_kit.h"
#include "tests/support/run_kit.h"

#include <arpa/inet.h>
#include <cjson/cJSON.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SECRET "a-secret-of-thirty-two-letters-or-more"

struct rack_world rack_world;
#define W rack_world

static struct {
    char address[32], d[96], h[256], ck[128], *ca;
    int port; /* of the server */
    struct tls_config *tls;
    struct listener *listener;
    struct home_door *door;
    struct arena *arena; /* of orders */
    struct object *target, *workload[3];
    pid_t server;
} V;

const char *rack_file(const char *name)
{
    static char p[8][256];
    static unsigned n;

    n = (n + 1) % 8;
    (void)snprintf(p[n], sizeof p[n], "%s/%s", W.dir, name);
    return p[n];
}

static void put(const char *name, const char *text)
{
    struct err e;

    assert_int_equal(file_write(W.rig.loop, rack_file(name), text, strlen(text), 0600, &e), 0);
}

/* ---- the rig ---- */
static void order(struct connector_rig *r, const struct run_key *k, enum contract_program what,
                  struct run_order *ret)
{
    static struct assignment at = {.node = "t1.n1", .mig = ""};
    static struct placement p = {
        .target = "t1", .class_ = "", .assignments = &at, .n_assignments = 1};
    static char key[RUN_KEY_MAX + 2] = "K=";
    static const char *env[4];

    (void)r;
    run_key_print(k, key + 2);
    env[0] = V.d;
    env[1] = V.h;
    env[2] = key;
    order_resolve(V.workload[what], V.arena, ret);
    ret->placement = &p;
    ret->env = env;
    ret->claims = true;
    if (W.signal)
        ret->save_signal = W.signal;
    if (what == PROGRAM_SAVES) {
        (void)snprintf(V.ck, sizeof V.ck, "%s/ck/%.60s", W.dir, k->uid);
        ret->saves = true;
        ret->checkpoint_dir = V.ck;
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
    FILE *f = fopen(rack_file(name), "r");
    if (f && fscanf(f, "%lld", &step) != 1)
        step = -1;
    if (f)
        (void)fclose(f);
    return step;
}

static void silence(struct connector_rig *r, bool on)
{
    (void)r;
    assert_int_equal(kill(V.server, on ? SIGSTOP : SIGCONT), 0);
}

/* Every program appends its pid to a file of its key. */
static unsigned pids_of(const struct run_key *k, long *ret_last)
{
    char key[RUN_KEY_MAX], name[RUN_KEY_MAX + 8];
    unsigned n = 0;
    long pid;

    run_key_print(k, key);
    (void)snprintf(name, sizeof name, "%s.pids", key);
    FILE *f = fopen(rack_file(name), "r");
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
    long pid = 0;

    (void)r;
    return pids_of(k, &pid) > 0 && pid_alive(pid);
}

/* ---- the hub, without a log: a run lives as long as anybody asks about it ---- */
static const char *secret(void *arg, const char *name, const char *key)
{
    (void)arg;
    (void)name;
    return !strcmp(key, "key") ? SECRET : NULL;
}

static bool tokens(void *arg, const struct run_key *k, uint32_t ranks, struct arena *a,
                   const char ***ret)
{
    (void)arg;
    *ret = arena_array(a, const char *, ranks);
    for (uint32_t i = 0; i < ranks; i++) {
        const struct home_token t = {
            .key = *k, .rank = i, .ranks = ranks, .made_ms = loop_wall_ms(W.rig.loop)};
        char text[HOME_TOKEN_MAX];
        home_token_make(&t, &report_kit_keys, text);
        (*ret)[i] = arena_strdup(a, text);
    }
    return true;
}

static bool home(void *arg, const struct run_key *k, uint32_t ranks, struct arena *a,
                 struct home_order *ret)
{
    const char **addresses = arena_array(a, const char *, 1);

    addresses[0] = V.address;
    *ret = (struct home_order){
        .addresses = addresses, .n_addresses = 1, .ca = V.ca, .n_tokens = ranks, .proxy = "",
        .proxy_login = ""};
    return tokens(arg, k, ranks, a, &ret->tokens);
}

static void env(struct connector_rig *r, struct connector_env *ret)
{
    (void)r;
    ret->home = home;
    ret->tokens = tokens;
    ret->keys = &report_kit_keys;
}

static void arrived(void *arg, const struct home_arrival *a)
{
    struct err e;

    (void)arg;
    W.came++;
    if (!W.rig.connector) /* between two connectors */
        home_refuse(a->stream, HOME_NOT_NOW, "no leader is known yet");
    else if (W.rig.ops->runner(W.rig.connector, a, &e) < 0)
        print_message("a runner was refused: %s\n", e.text);
}

static void accepted(struct listener *li, struct stream *s, void *arg)
{
    (void)li;
    (void)arg;
    home_door_enter(V.door, s);
}

/* ---- the server ---- */
void rack_server_start(void)
{
    char port[16];

    (void)snprintf(port, sizeof port, "%d", V.port);
    V.server = fork();
    assert_true(V.server >= 0);
    if (V.server)
        return;
    (void)close_range(3, ~0u, CLOSE_RANGE_CLOEXEC); /* what whoever runs this test holds */
    int null = open("/dev/null", O_RDWR);
    (void)dup2(null, 0);
    if (!getenv("HANSE_TEST_VERBOSE")) {
        (void)dup2(null, 1);
        (void)dup2(null, 2);
    }
    (void)execlp("python3", "python3", "deploy/examples/callout/server.py", "--port", port,
                 "--key-file", rack_file("key"), "--state", rack_file("state"), "--nodes-file",
                 rack_file("nodes"), "--runner", V.h + 2, (char *)NULL);
    _exit(127);
}

void rack_server_kill(void)
{
    if (V.server <= 0)
        return;
    (void)kill(V.server, SIGCONT);
    (void)kill(V.server, SIGKILL);
    (void)waitpid(V.server, NULL, 0);
    V.server = 0;
}

void rack_nodes(const char *json)
{
    put("nodes", json);
}

/* A port that nobody has: the server listens with SO_REUSEADDR. */
static int port_free(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(s >= 0);
    assert_int_equal(bind(s, (struct sockaddr *)&a, n), 0);
    assert_int_equal(getsockname(s, (struct sockaddr *)&a, &n), 0);
    (void)close(s);
    return ntohs(a.sin_port);
}

/* ---- the world ---- */
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

static void hub_begin(void)
{
    static const char *const open_[] = {ALPN_RUNNER, NULL};
    static const char *const ip[] = {"127.0.0.1", NULL}, *const none[] = {NULL};
    const struct pki_request rq = {.common_name = "member:1",
                                   .organizations = none,
                                   .dns_names = ip,
                                   .server = true,
                                   .days = 2};
    struct err e;
    struct buf ca;
    int port;

    assert_int_equal(pki_ca_create(rack_file("ca.crt"), rack_file("ca.key"), "test CA", 2, &e), 0);
    assert_int_equal(pki_issue(rack_file("ca.crt"), rack_file("ca.key"), &rq, rack_file("m.crt"),
                               rack_file("m.key"), &e),
                     0);
    const struct tls_config_spec spec = {.cert_file = rack_file("m.crt"),
                                         .key_file = rack_file("m.key"),
                                         .ca_file = rack_file("ca.crt"),
                                         .alpn_open = open_};
    assert_int_equal(tls_config_create(&spec, true, &V.tls, &e), 0);
    buf_init(&ca, 65536);
    assert_int_equal(file_read(W.rig.loop, rack_file("ca.crt"), 65535, &ca, &e), 0);
    buf_char(&ca, '\0');
    V.ca = buf_steal(&ca, NULL);
    assert_int_equal(
        listener_create(W.rig.loop, "127.0.0.1:0", V.tls, accepted, NULL, &V.listener, &port, &e),
        0);
    (void)snprintf(V.address, sizeof V.address, "127.0.0.1:%d", port);
    V.door = home_door_create(W.rig.loop, &report_kit_keys, arrived, NULL);
}

static void target_make(void)
{
    char json[512];

    (void)snprintf(json, sizeof json,
                   "{\"apiVersion\":\"hanse.dev/v1alpha1\",\"kind\":\"Target\",\"metadata\":{"
                   "\"name\":\"t1\"},\"spec\":{\"type\":\"callout\",\"tier\":\"hub\","
                   "\"connection\":{\"server\":\"http://127.0.0.1:%d\",\"runners\":true,"
                   "\"credentialsFrom\":{\"secret\":\"rack\"}}}}",
                   V.port);
    V.target = made(KIND_TARGET, json);
    W.rig.target = V.target;
    V.workload[PROGRAM_STAYS] = workload_made("trap 'exit 75' USR1; while :; do sleep 0.02; done");
    V.workload[PROGRAM_ENDS] = workload_made("exit 3");
    V.workload[PROGRAM_SAVES] = workload_made(
        "s=0; C=$HANSE_CHECKPOINT_DIR; "
        "[ -z \\\"$HANSE_RESUME_DIR\\\" ] || s=$(cat $HANSE_RESUME_DIR/state.*); "
        "echo $s >$D/$K.from; "
        "save() { s=$((s + 10)); echo $s >$C/state.$s; $H checkpoint commit --step $s state.$s; }; "
        "trap 'save; exit 75' USR1; trap save USR2; save; while :; do sleep 0.02; done");
}

int rack_setup(void **state)
{
    struct err e;

    W.rig = (struct connector_rig){.loop = loop_uv_create(&e),
                                   .run = loop_uv_run,
                                   .ops = &connector_callout_ops,
                                   .order = order,
                                   .silence = silence,
                                   .starts = starts,
                                   .resumed = resumed,
                                   .alive = alive,
                                   .secret = secret,
                                   .env = env,
                                   .call_ms = 55000};
    assert_non_null(W.rig.loop);
    (void)snprintf(W.dir, sizeof W.dir, "/tmp/hanse-rack-XXXXXX");
    assert_non_null(mkdtemp(W.dir));
    (void)snprintf(V.d, sizeof V.d, "D=%s", W.dir);
    ssize_t n = readlink("/proc/self/exe", V.h + 2, sizeof V.h - 3);
    assert_true(n > 0);
    memcpy(V.h, "H=", 2);
    V.arena = arena_create(0);
    V.port = port_free();
    put("key", SECRET);
    rack_nodes("[{\"name\":\"n1\",\"cpu\":\"8\",\"memory\":\"16Gi\"}]");
    hub_begin();
    target_make();
    rack_server_start();
    connector_rig_begin(&W.rig);
    *state = &W.rig;
    return 0;
}

/* What a failed test has left there. */
static void programs_end(void)
{
    char line[512];
    long pid;

    (void)snprintf(line, sizeof line, "cat %s/*.pids 2>/dev/null", W.dir);
    FILE *f = popen(line, "r");
    while (f && fscanf(f, "%ld", &pid) == 1)
        if (pid > 1 && pid_alive(pid) && pid_parent(pid) > 1)
            (void)kill((pid_t)pid, SIGKILL);
    if (f)
        (void)pclose(f);
}

int rack_teardown(void **state)
{
    struct err e;

    (void)state;
    programs_end();
    rack_server_kill();
    connector_rig_end(&W.rig);
    listener_close(V.listener);
    V.door = home_door_destroy(V.door);
    int rc = file_remove(W.rig.loop, W.dir, &e);
    (void)object_unref(V.target);
    (void)arena_destroy(V.arena);
    for (size_t i = 0; i < 3; i++)
        (void)object_unref(V.workload[i]);
    (void)tls_config_unref(V.tls);
    mem_free(V.ca);
    loop_uv_destroy(W.rig.loop);
    return rc;
}

int rack_main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "run") == 0)
        return run_main(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "checkpoint") == 0)
        return checkpoint_main(argc - 1, argv + 1);
    return -1;
}
