/* A rig (connector_contract.h) of the Kubernetes driver over the cluster in memory. */
#include "tests/support/kube/kube_rig.h"

#include "connectors/home/home.h"
#include "connectors/kubernetes/client/client.h"
#include "connectors/kubernetes/kubernetes.h"
#include "tests/support/web/still_loop.h"

#include <openssl/hmac.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct kube_rig kube_rig;
#define W kube_rig

/* ---- what the leader brings ---- */
static void sign(void *arg, const char *text, unsigned char ret[HOME_MAC_BYTES])
{
    unsigned n = HOME_MAC_BYTES;

    (void)arg;
    assert_non_null(
        HMAC(EVP_sha256(), "key", 3, (const unsigned char *)text, strlen(text), ret, &n));
}

static bool holds(void *arg, const char *text, const unsigned char mac[HOME_MAC_BYTES])
{
    unsigned char own[HOME_MAC_BYTES];

    sign(arg, text, own);
    return !memcmp(own, mac, sizeof own);
}

static bool again(void *arg, unsigned i, const char *text, unsigned char ret[HOME_MAC_BYTES])
{
    sign(arg, text, ret);
    return i == 0;
}

static const struct home_keys keys = {.sign = sign, .holds = holds, .again = again};

static bool tokens(void *arg, const struct run_key *k, uint32_t ranks, struct arena *a,
                   const char ***ret)
{
    (void)arg;
    *ret = arena_array(a, const char *, ranks + 1);
    for (uint32_t i = 0; i < ranks; i++) {
        struct home_token t = {.key = *k, .rank = i, .ranks = ranks, .made_ms = 1};
        char *text = arena_alloc(a, HOME_TOKEN_MAX);
        str_copy(t.cluster, sizeof t.cluster, "c1");
        home_token_make(&t, &keys, text);
        (*ret)[i] = text;
    }
    return true;
}

static const char *cluster_uid(void *arg)
{
    (void)arg;
    return "c1";
}

static uint64_t state_rv(void *arg, int64_t *ret_time_ms)
{
    (void)arg;
    *ret_time_ms = 0;
    return 7;
}

/* The log: which runs were seen to run, and which lease they hold. */
static bool where(void *arg, const struct run_key *k, struct arena *a, struct run_where *ret)
{
    const struct connector_rig *r = arg;

    *ret = (struct run_where){.ns = "work", .n = 1, .lives = true, .lease_ms = W.lease_ms};
    ret->nodes = arena_array(a, const char *, 1);
    ret->nodes[0] = "kube.n1";
    ret->ran = run_key_same(&W.ran, k);
    for (size_t i = 0; i < r->n_seen && !ret->ran; i++)
        if (run_key_same(&r->seen[i].key, k))
            ret->ran = r->seen[i].state == RUN_RUNNING || r->seen[i].state == RUN_ENDED;
    return true;
}

void kube_rig_env(struct connector_rig *r, struct connector_env *ret)
{
    (void)r;
    ret->keys = &keys;
    ret->tokens = tokens;
    ret->cluster_uid = cluster_uid;
    ret->state_rv = state_rv;
    ret->where = where;
}

static const char *secret(void *arg, const char *name, const char *key)
{
    (void)arg;
    assert_string_equal(name, "login");
    return !strcmp(key, "token") ? "a-token" : NULL;
}

/* ---- the rig ---- */
#define MANIFEST                                                                                   \
    "{\"apiVersion\":\"batch/v1\",\"kind\":\"Job\",\"metadata\":{\"name\":\"theirs\"},\"spec\":{"  \
    "\"parallelism\":%u,\"completions\":%u,\"template\":{\"spec\":{\"restartPolicy\":"             \
    "\"OnFailure\","                                                                               \
    "\"containers\":[{\"name\":\"train\",\"image\":\"img\",\"command\":[\"%s\"],\"resources\":{"   \
    "\"limits\":{\"nvidia.com/gpu\":1}}},{\"name\":\"log\",\"image\":\"img\"}]}}}}"

#define TORCH                                                                                      \
    "{\"apiVersion\":\"kubeflow.org/v1\",\"kind\":\"PyTorchJob\",\"metadata\":{\"name\":"          \
    "\"theirs\"},\"spec\":{\"pytorchReplicaSpecs\":{\"Master\":{\"template\":%s}%s%s%s}}}"
#define TORCH_POD                                                                                  \
    "{\"spec\":{\"containers\":[{\"name\":\"pytorch\",\"image\":\"img\",\"command\":[\"%s\"],"     \
    "\"resources\":{\"limits\":{\"nvidia.com/gpu\":1}}}]}}"

/* Of one rank a master alone. */
static void torch(unsigned ranks, const char *word, char *out, size_t size)
{
    const char *worker = ranks > 1 ? ",\"Worker\":{\"replicas\":2,\"template\":" : "";
    char pod[400];

    (void)snprintf(pod, sizeof pod, TORCH_POD, word);
    (void)snprintf(out, size, TORCH, pod, worker, ranks > 1 ? pod : "", ranks > 1 ? "}" : "");
}

static void order(struct connector_rig *r, const struct run_key *k, enum contract_program what,
                  struct run_order *ret)
{
    static char manifest[2048];
    static struct assignment at[3];
    static struct placement p = {.target = "kube", .class_ = "h100", .assignments = at};
    static const char *const argv[PROGRAM_SAVES][2] = {{"stays", NULL}, {"ends", NULL}};
    static const char *const vars[] = {"A=b", NULL};
    static const char *const nodes[] = {"kube.n2", "kube.n0", "kube.n1"};

    (void)r;
    (void)k;
    for (unsigned i = 0; i < 3; i++)
        at[i] = (struct assignment){
            .rank = i, .node = W.ranks > 1 ? nodes[i] : "kube.n1", .mig = "", .count = 1};
    p.n_assignments = W.ranks ? W.ranks : 1;
    *ret = (struct run_order){.ns = "work",
                              .name = "w",
                              .principal = "",
                              .placement = &p,
                              .image = "img",
                              .argv = argv[what],
                              .script = "",
                              .cwd = "",
                              .env = vars,
                              .signal = "",
                              .save_signal = "",
                              .document = "",
                              .gpus = 1,
                              .grace_ms = 2000,
                              .checkpoint_dir = "",
                              .resume_path = "",
                              .resume_digest = "",
                              .log_base = ""};
    (void)snprintf(manifest, sizeof manifest, MANIFEST, p.n_assignments, p.n_assignments,
                   argv[what][0]);
    if (W.manifest == CARRIES_PYTORCHJOB)
        torch(p.n_assignments, argv[what][0], manifest, sizeof manifest);
    if (W.manifest)
        ret->manifest = manifest;
}

void kube_rig_chaos(void)
{
    kube_world.chaos = (struct kube_chaos){
        .lost = 4, .mute = 4, .late = 4, .twice = 4, .half = 3, .busy = 3, .fails = 3};
    kube_world.controller_ms = kube_world_below(3) * 700;
    kube_world.blind_controller = kube_world_below(2);
}

static void silence(struct connector_rig *r, bool on)
{
    (void)r;
    kube_world.silent = on;
}

static unsigned starts(struct connector_rig *r, const struct run_key *k)
{
    (void)r;
    return kube_world_starts(k);
}

static bool alive(struct connector_rig *r, const struct run_key *k)
{
    (void)r;
    return kube_world_alive(k);
}

static void node_of_pod(const struct kube_object *pod, bool linked, bool power)
{
    unsigned i = (unsigned)kube_world_number(kube_text(pod->doc, "spec.nodeName") + 1);

    kube_world.nodes[i] = (struct kube_node_state){.linked = linked, .power = power};
    kube_world.unlinked_ms[i] = loop_now_ms(kube_world.loop);
    list_for_each (it, &kube_world.procs) {
        struct kube_proc *p = container_of(it, struct kube_proc, link);
        if (!power && !strcmp(p->node, kube_text(pod->doc, "spec.nodeName")) && p->alive) {
            p->alive = false;
            p->exit_code = 255;
            p->why = "Unknown";
        }
    }
}

static void collected(struct kube_object *pod)
{
    cJSON *status = cJSON_GetObjectItemCaseSensitive(pod->doc, "status"), *c;
    cJSON *list = cJSON_GetObjectItemCaseSensitive(status, "conditions");

    cJSON_ReplaceItemInObjectCaseSensitive(status, "phase", cJSON_CreateString("Failed"));
    c = cJSON_CreateObject();
    cJSON_AddStringToObject(c, "type", "DisruptionTarget");
    cJSON_AddStringToObject(c, "status", "True");
    cJSON_AddStringToObject(c, "reason", "DeletionByPodGC");
    cJSON_AddItemToArray(list, c);
    kube_world_changed(pod);
    kube_world_delete(pod, 0);
}

enum { NODE_LOST, POWER, FORCED, FORCED_LOST, COLLECTED, JOB_TAKEN, DELETED, EVICTED, TROUBLES };

static bool trouble(struct connector_rig *r, const struct run_key *k, unsigned which)
{
    struct kube_object *pod = kube_world_pod(k, 0), *job = kube_world_job(k);

    assert_true(pod && job);
    if (getenv("HANSE_KUBE_TRACE"))
        (void)fprintf(stderr, "%llu trouble %u\n", (unsigned long long)loop_now_ms(r->loop), which);
    if (which == NODE_LOST || which == FORCED_LOST || which == COLLECTED)
        node_of_pod(pod, false, true);
    else if (which == POWER)
        node_of_pod(pod, false, false);
    if (which == FORCED || which == FORCED_LOST)
        kube_world_delete(pod, 0);
    else if (which == COLLECTED)
        collected(pod);
    else if (which == JOB_TAKEN) /* somebody takes our finalizer away, and deletes it */
        kube_world_remove(job);
    else if (which == DELETED)
        kube_world_delete(job, -1);
    else if (which == EVICTED)
        kube_world_delete(pod, 1);
    return true;
}

static void heal(struct connector_rig *r)
{
    (void)r;
    kube_world_heal();
    kube_world.silent = false;
    kube_rig_chaos();
}

static void queue(struct connector_rig *r, uint64_t ms)
{
    kube_world.queue_until_ms = loop_now_ms(r->loop) + ms;
}

static bool refuse(struct connector_rig *r, unsigned which)
{
    static const int how[] = {403, 422, 429};

    (void)r;
    if (which >= sizeof how / sizeof *how)
        return false;
    kube_world.refuse = how[which];
    return true;
}

static void stranger(struct connector_rig *r, const struct run_key *k)
{
    char text[900], key[RUN_KEY_MAX];

    (void)r;
    run_key_print(k, key);
    (void)snprintf(W.stranger, sizeof W.stranger, "hanse-%s-%lld-%lld", k->uid, (long long)k->epoch,
                   (long long)k->try_);
    (void)snprintf(text, sizeof text,
                   "{\"kind\":\"Job\",\"metadata\":{\"name\":\"%s\",\"namespace\":\"work\","
                   "\"labels\":{\"hanse.dev/key\":\"%s\"},\"annotations\":{\"hanse.dev/mark\":"
                   "\"hanse-kube-1/c1/%s/work/work/w/1/7/%064d\"}},\"spec\":{\"suspend\":true,"
                   "\"parallelism\":0,\"completions\":1}}",
                   W.stranger, key, key, 0);
    W.stranger_rv = kube_world_number(
        kube_text(kube_world_put("jobs", cJSON_Parse(text))->doc, "metadata.resourceVersion"));
    W.strangers = 1;
}

static unsigned strangers(struct connector_rig *r)
{
    const struct kube_object *o = kube_world_find("jobs", "work", W.stranger);

    (void)r;
    return o && W.stranger_rv == kube_world_number(kube_text(o->doc, "metadata.resourceVersion"))
               ? W.strangers
               : 0; /* as it was */
}

static const char *broken(struct connector_rig *r)
{
    (void)r;
    return kube_world.broken;
}

static struct object *target_made(void)
{
    static const char text[] =
        "{\"apiVersion\":\"hanse.dev/v1alpha1\",\"kind\":\"Target\",\"metadata\":{\"name\":"
        "\"kube\"},\"spec\":{\"type\":\"kubernetes\",\"tier\":\"hub\",\"connection\":{"
        "\"server\":\"https://kube.test:6443\",\"credentialsFrom\":{\"secret\":\"login\"}},"
        "\"kubernetes\":{\"runner\":{\"image\":\"runner\"}}}}";
    cJSON *j = cJSON_Parse(text);
    struct object *o = NULL;
    struct err e;

    assert_non_null(j);
    if (object_from_json(kind_by_id(KIND_TARGET), j, 0, &o, &e))
        fail_msg("%s: %s", e.field, e.text);
    cJSON_Delete(j);
    return o;
}

struct connector_rig *kube_rig_begin(uint64_t seed, bool chaos)
{
    struct connector_rig *r = &W.rig;

    W.ranks = 1;
    W.lease_ms = 0;
    W.manifest = CARRIES_NOTHING;
    W.ran = (struct run_key){.epoch = 0};
    *r = (struct connector_rig){.loop = still_loop_create(seed),
                                .run = still_loop_go,
                                .ops = &connector_kubernetes_ops,
                                .order = order,
                                .silence = silence,
                                .starts = starts,
                                .alive = alive,
                                .n_troubles = TROUBLES,
                                .trouble = trouble,
                                .heal = heal,
                                .queue = queue,
                                .refuse = refuse,
                                .stranger = stranger,
                                .strangers = strangers,
                                .broken = broken,
                                .call_ms = 90000,
                                .env = kube_rig_env,
                                .secret = secret,
                                .web = &kube_world_web,
                                .dice = seed};
    W.target = target_made();
    r->target = W.target;
    kube_world_begin(r->loop, seed);
    if (chaos) {
        kube_rig_chaos();
        kube_world.api_ahead_ms = ((int64_t)(seed % 7) - 3) * 3600000; /* hours, and not the same */
        kube_world.kubelets_ahead_ms = ((int64_t)(seed % 5) - 2) * 5000000;
    }
    connector_rig_begin(r);
    return r;
}

void kube_rig_end(void)
{
    connector_rig_end(&W.rig);
    assert_string_equal(kube_world.broken, "");
    kube_world_end();
    (void)object_unref(W.target);
    (void)still_loop_destroy(W.rig.loop);
}

int kube_rig_setup(void **state)
{
    *state = kube_rig_begin(5, false);
    return 0;
}

int kube_rig_teardown(void **state)
{
    (void)state;
    kube_rig_end();
    return 0;
}

static bool never(void *arg)
{
    (void)arg;
    return false;
}

void kube_rig_passes(struct connector_rig *r, uint64_t ms)
{
    (void)connector_until(r, never, NULL, ms);
}
