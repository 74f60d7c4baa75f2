/* The Kubernetes driver under the contract of connector.h against a real API server and a real
 * kubelet, whose programs are processes of this machine. tests/peers/kubernetes_contract.py brings
 * them; elsewhere this is skipped:
 *
 *   HANSE_KUBE_URL, HANSE_KUBE_TOKEN, HANSE_KUBE_CA   files, but for the first
 *   HANSE_KUBE_DIR   a folder that pods of node-a find by the same path */
#include "tests/support/contract/connector_contract_internal.h"
#include "tests/support/kube/kube_rig.h"

#include "connectors/kubernetes/kubernetes.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOOK_MS 50

static struct world {
    struct connector_rig rig;
    struct object *target;
    char token[4096], ca[8192], script[3][400];
    bool silent, gang;
    struct list held; /* what was sent into the silence */
} W;

/* ---- a silence: what is sent is not heard ---- */
struct held {
    struct list link;
    struct web_exchange *x;
    struct timer taken;
};
struct quiet {
    struct web_transport base, *under;
};

static void on_taken(void *arg)
{
    struct held *h = arg;

    (void)h->x->ev->sending(h->x);
}

static int quiet_create(struct loop *l, const struct web_config *config, struct web_transport **ret,
                        struct err *err);

static struct quiet *quiet_of(struct web_transport *t)
{
    return container_of(t, struct quiet, base);
}

static void quiet_destroy(struct web_transport *t)
{
    struct quiet *q = quiet_of(t);

    web_curl.destroy(q->under);
    mem_free(q);
}

static void quiet_begin(struct web_transport *t, struct web_exchange *x)
{
    struct held *h;

    if (!W.silent) {
        web_curl.begin(quiet_of(t)->under, x);
        return;
    }
    h = mem_new(struct held);
    h->x = x;
    timer_init(&h->taken, W.rig.loop, on_taken, h);
    timer_start(&h->taken, 1);
    list_push(&W.held, &h->link);
}

static struct held *held_of(const struct web_exchange *x)
{
    list_for_each (it, &W.held)
        if (container_of(it, struct held, link)->x == x)
            return container_of(it, struct held, link);
    return NULL;
}

static void held_free(struct held *h)
{
    timer_stop(&h->taken);
    list_remove(&h->link);
    mem_free(h);
}

static void quiet_abort(struct web_transport *t, struct web_exchange *x)
{
    struct held *h = held_of(x);

    if (h)
        held_free(h);
    else
        web_curl.abort(quiet_of(t)->under, x);
}

static void quiet_pause(struct web_transport *t, struct web_exchange *x, bool paused)
{
    if (!held_of(x))
        web_curl.pause(quiet_of(t)->under, x, paused);
}

static const struct web_transport_ops quiet_ops = {.create = quiet_create,
                                                   .destroy = quiet_destroy,
                                                   .begin = quiet_begin,
                                                   .abort = quiet_abort,
                                                   .pause = quiet_pause};

static int quiet_create(struct loop *l, const struct web_config *config, struct web_transport **ret,
                        struct err *err)
{
    struct quiet *q = mem_new(struct quiet);
    int rc = web_curl.create(l, config, &q->under, err);

    q->base.ops = &quiet_ops;
    *ret = &q->base;
    if (rc < 0)
        mem_free(q);
    return rc;
}

static void cut(void *arg)
{
    while (!list_empty(&W.held)) {
        struct held *h = container_of(W.held.next, struct held, link);
        struct web_exchange *x = h->x;
        held_free(h);
        x->ev->over(x, E_CONNECT, "the connection was cut");
    }
    (void)arg;
}

static void silence(struct connector_rig *r, bool on)
{
    W.silent = on;
    if (!on)
        loop_post(r->loop, cut, NULL);
}

/* ---- its programs ---- */
static void order(struct connector_rig *r, const struct run_key *k, enum contract_program what,
                  struct run_order *ret)
{
    static struct assignment at[] = {{.node = "kube.node-a", .mig = ""},
                                     {.rank = 1, .node = "kube.node-b", .mig = ""}};
    static struct placement p = {.target = "kube", .class_ = "", .assignments = at};
    static char key[RUN_KEY_MAX + 2] = "K=";
    static const char *env[2];
    static const char *argv[] = {"sh", "-c", NULL, NULL};

    (void)r;
    run_key_print(k, key + 2);
    env[0] = key;
    argv[2] = W.script[what];
    p.n_assignments = W.gang ? 2 : 1;
    *ret = (struct run_order){.ns = "work",
                              .name = "w",
                              .priority_class = "",
                              .principal = "",
                              .placement = &p,
                              .image = "localhost/box:1",
                              .argv = argv,
                              .script = "",
                              .cwd = "",
                              .env = env,
                              .signal = "",
                              .save_signal = "",
                              .document = "",
                              .grace_ms = 2000,
                              .checkpoint_dir = "",
                              .resume_path = "",
                              .resume_digest = "",
                              .log_base = ""};
}

/* Each program adds a letter to a file of its key. */
static unsigned starts(struct connector_rig *r, const struct run_key *k)
{
    char path[600], key[RUN_KEY_MAX];
    unsigned n = 0;

    (void)r;
    run_key_print(k, key);
    (void)snprintf(path, sizeof path, "%s/%s.starts", getenv("HANSE_KUBE_DIR"), key);
    FILE *f = fopen(path, "r");
    while (f && fgetc(f) == 's')
        n++;
    if (f)
        (void)fclose(f);
    return n;
}

static bool has_marker(const char *pid, const char *marker)
{
    static char text[65536];
    char path[300];
    size_t n;
    bool has = false;

    (void)snprintf(path, sizeof path, "/proc/%.200s/environ", pid);
    FILE *f = fopen(path, "r");
    n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    text[n] = '\0';
    for (size_t i = 0; i < n && !has; i += strlen(text + i) + 1)
        has = strcmp(text + i, marker) == 0;
    if (f)
        (void)fclose(f);
    return has;
}

/* Its processes carry a name that its runner does not. */
static bool alive(struct connector_rig *r, const struct run_key *k)
{
    char marker[RUN_KEY_MAX + 16] = "PROGRAM=";
    struct dirent *e;
    bool found = false;

    (void)r;
    run_key_print(k, marker + strlen(marker));
    DIR *d = opendir("/proc");
    assert_non_null(d);
    while (!found && (e = readdir(d)) != NULL)
        found = e->d_name[0] >= '1' && e->d_name[0] <= '9' && has_marker(e->d_name, marker);
    (void)closedir(d);
    return found;
}

/* ---- the world ---- */
static const char *secret(void *arg, const char *name, const char *key)
{
    (void)arg;
    (void)name;
    return !strcmp(key, "token") ? W.token : !strcmp(key, "ca.crt") ? W.ca : NULL;
}

static void file_into(const char *name, char *to, size_t n)
{
    FILE *f = fopen(getenv(name), "r");

    assert_non_null(f);
    to[fread(to, 1, n - 1, f)] = '\0';
    (void)fclose(f);
}

static struct object *target_made(void)
{
    char text[2000];
    struct object *o = NULL;
    struct err e;

    (void)snprintf(text, sizeof text,
                   "{\"apiVersion\":\"hanse.dev/v1alpha1\",\"kind\":\"Target\",\"metadata\":{"
                   "\"name\":\"kube\"},\"spec\":{\"type\":\"kubernetes\",\"tier\":\"hub\","
                   "\"connection\":{\"server\":\"%.200s\",\"credentialsFrom\":{\"secret\":"
                   "\"login\"}},\"kubernetes\":{\"runner\":{\"image\":\"localhost/hanse-run:1\"},"
                   "\"volumes\":[{\"path\":\"%.400s\",\"hostPath\":\"%.400s\"}]}}}",
                   getenv("HANSE_KUBE_URL"), getenv("HANSE_KUBE_DIR"), getenv("HANSE_KUBE_DIR"));
    cJSON *j = cJSON_Parse(text);
    assert_non_null(j);
    if (object_from_json(kind_by_id(KIND_TARGET), j, 0, &o, &e))
        fail_msg("%s: %s", e.field, e.text);
    cJSON_Delete(j);
    return o;
}

static int setup(void **state)
{
    static const char *const rest[] = {"trap 'exit 75' TERM USR1; while :; do sleep 0.1; done",
                                       "exit 3"};
    struct err e;

    list_init(&W.held);
    file_into("HANSE_KUBE_TOKEN", W.token, sizeof W.token);
    file_into("HANSE_KUBE_CA", W.ca, sizeof W.ca);
    for (unsigned i = 0; i < 2; i++)
        (void)snprintf(W.script[i], sizeof W.script[i],
                       "printf s >>%s/$K.starts; PROGRAM=$K exec sh -c \"%s\"",
                       getenv("HANSE_KUBE_DIR"), rest[i]);
    W.rig = (struct connector_rig){.loop = loop_uv_create(&e),
                                   .run = loop_uv_run,
                                   .ops = &connector_kubernetes_ops,
                                   .order = order,
                                   .silence = silence,
                                   .starts = starts,
                                   .alive = alive,
                                   .call_ms = 30000,
                                   .env = kube_rig_env,
                                   .secret = secret,
                                   .web = &quiet_ops};
    assert_non_null(W.rig.loop);
    W.target = target_made();
    W.rig.target = W.target;
    connector_rig_begin(&W.rig);
    *state = &W.rig;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    connector_rig_end(&W.rig);
    (void)object_unref(W.target);
    loop_uv_destroy(W.rig.loop);
    return 0;
}

static bool both_started(void *arg)
{
    return starts(&W.rig, arg) == 2;
}

/* One rank on each of two nodes, of one Job. */
static void a_gang_begins_on_two_nodes(void **state)
{
    struct connector_rig *r = *state;
    unsigned seated = r->n_seated;
    struct asked a;

    W.gang = true;
    struct run_key k = contract_running(r, &a);
    W.gang = false;
    assert_int_equal(r->n_seated, seated + 1);
    assert_string_equal(r->seat, "kube.node-a");
    assert_true(connector_until(r, both_started, &k, CALL_MS));
    assert_int_equal(contract_stop(r, &k, &a), OUT_DONE);
    assert_int_equal(a.seen.state, RUN_ENDED);
    assert_int_equal(starts(r, &k), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(connector_runs_and_tells_the_end),
                                       cmocka_unit_test(connector_adopts_a_second_submit),
                                       cmocka_unit_test(connector_repeats_orders_where_it_says_so),
                                       cmocka_unit_test(connector_refuses_what_it_called_absent),
                                       cmocka_unit_test(connector_refuses_older_epochs),
                                       cmocka_unit_test(connector_stops_with_proof_and_again),
                                       cmocka_unit_test(connector_stops_what_never_was),
                                       cmocka_unit_test(connector_quiesces_by_signal),
                                       cmocka_unit_test(connector_ends_calls_by_their_deadline),
                                       cmocka_unit_test(connector_ends_calls_when_destroyed),
                                       cmocka_unit_test(connector_holds_no_truth),
                                       cmocka_unit_test(connector_sweeps_what_nobody_owns),
                                       cmocka_unit_test(connector_finalizes_what_has_ended),
                                       cmocka_unit_test(a_gang_begins_on_two_nodes)};

    if (!getenv("HANSE_KUBE_URL")) {
        (void)puts("no cluster is named: tests/peers/kubernetes_contract.py brings one");
        return 77;
    }
    return cmocka_run_group_tests(tests, setup, teardown);
}
