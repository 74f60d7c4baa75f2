/* The control plane behind the API's table: the contract of
 * tests/support/contract/backend_contract.h against one real member (core on its own thread, log on
 * disk, key ring, mutual TLS), and that no Secret's value is ever in its log, its snapshots or
 * anything else that it keeps. */
#include "tests/support/contract/backend_contract.h"

#include "api/base/limits.h"
#include "controlplane/server/server.h"
#include "controlplane/store/store.h"
#include "tests/support/raft/core_rig.h"

#include <cjson/cJSON.h>
#include <sys/stat.h>

#define DIR_MAX 128

static struct world {
    struct backend_rig rig;
    char dir[DIR_MAX], data[DIR_MAX + 32], ring[DIR_MAX + 32];
    char ca[DIR_MAX + 32], ca_key[DIR_MAX + 32], crt[DIR_MAX + 32], key[DIR_MAX + 32];
    char listen[64];
    struct core_peer peer;
    struct server *server;
    bool listening, closed;
} W;

static void on_listening(void *arg, int port)
{
    (void)arg;
    (void)port;
    W.listening = true;
}
static void on_fatal(void *arg, const struct err *why)
{
    (void)arg;
    fail_msg("%s", why->text);
}
static void on_closed(void *arg)
{
    (void)arg;
    W.closed = true;
}
static bool is(void *arg)
{
    return *(bool *)arg;
}
static bool has_begun(void *arg) /* it leads, and the first documents are there */
{
    struct backend *b = arg;
    struct view *v = b->ops->view(b);
    bool there = b->ops->get(v, kind_by_id(KIND_NAMESPACE), "", "hanse-system") &&
                 b->ops->count(v, kind_by_id(KIND_CLUSTER_ROLE_BINDING)) > 0;

    b->ops->view_release(v);
    return there;
}

static void world_files(void)
{
    static const char *const names[] = {"localhost", "127.0.0.1", NULL};
    static const char *const orgs[] = {"hanse:members", NULL};
    struct pki_request rq = {.common_name = "member:1",
                             .organizations = orgs,
                             .dns_names = names,
                             .server = true,
                             .days = 2};
    struct err e;

    (void)snprintf(W.dir, sizeof W.dir, "%s/hanse-backend-XXXXXX",
                   getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    assert_non_null(mkdtemp(W.dir));
    (void)snprintf(W.data, sizeof W.data, "%s/data", W.dir);
    (void)snprintf(W.ring, sizeof W.ring, "%s/keys", W.dir);
    (void)snprintf(W.ca, sizeof W.ca, "%s/ca.crt", W.dir);
    (void)snprintf(W.ca_key, sizeof W.ca_key, "%s/ca.key", W.dir);
    (void)snprintf(W.crt, sizeof W.crt, "%s/m1.crt", W.dir);
    (void)snprintf(W.key, sizeof W.key, "%s/m1.key", W.dir);
    assert_int_equal(pki_ca_create(W.ca, W.ca_key, "test", 2, &e), 0);
    assert_int_equal(pki_issue(W.ca, W.ca_key, &rq, W.crt, W.key, &e), 0);
}

static int setup(void **state)
{
    struct server_config cfg = {
        .listen = "127.0.0.1:0", .listening = on_listening, .fatal = on_fatal};
    struct err e;

    world_files();
    W.rig.loop = loop_uv_create(&e);
    assert_non_null(W.rig.loop);
    W.rig.run = loop_uv_run;
    W.rig.changes_kept = LIMIT_CHANGES_MAX;
    (void)snprintf(W.listen, sizeof W.listen, "127.0.0.1:%d", rig_free_port());
    W.peer.id = 1;
    str_copy(W.peer.address, sizeof W.peer.address, W.listen);
    cfg.core.id = 1;
    cfg.core.bootstrap = true;
    cfg.core.listen = W.listen;
    cfg.core.peers = &W.peer;
    cfg.core.n_peers = 1;
    cfg.core.snapshot_threshold = 16; /* so that there are snapshots on disk, too */
    cfg.core.snapshot_trailing = 8;
    (void)snprintf(cfg.core.name, sizeof cfg.core.name, "m1");
    str_copy(cfg.core.address, sizeof cfg.core.address, W.listen);
    str_copy(cfg.core.data_dir, sizeof cfg.core.data_dir, W.data);
    cfg.cert_file = W.crt;
    cfg.key_file = W.key;
    cfg.ca_file = W.ca;
    cfg.key_ring = W.ring;
    if (server_create(W.rig.loop, &cfg, &W.server, &e))
        fail_msg("%s", e.text);
    W.rig.backend = (struct backend *)W.server; /* server.c: the backend is the server */
    assert_true(backend_until(&W.rig, is, &W.listening, RIG_DEADLINE_MS));
    assert_true(backend_until(&W.rig, has_begun, W.rig.backend, RIG_DEADLINE_MS));
    *state = &W.rig;
    return 0;
}

/* ---- operation cost ---- */
struct told {
    bool done;
    int code;
    char *json;
};
static void on_cost(void *arg, const char *json, const struct err *err)
{
    struct told *t = arg;

    t->done = true;
    t->code = err ? err->code : 0;
    t->json = json ? mem_strdup(json) : NULL;
}
static int cost(struct backend_rig *r, const char *ask, cJSON **ret)
{
    struct api_identity who = {.user = "finance"};
    struct told t = {0};

    r->backend->ops->operate(r->backend, &who, "cost", ask, on_cost, &t);
    assert_true(backend_until(r, is, &t.done, RIG_DEADLINE_MS));
    *ret = t.json ? cJSON_Parse(t.json) : NULL;
    mem_free(t.json);
    return t.code;
}
static void on_made(void *arg, const struct api_result *res, const struct err *err)
{
    struct told *t = arg;

    (void)res;
    t->code = err ? err->code : 0;
    t->done = true;
}
static void make(struct backend_rig *r, enum kind_id kind, const char *json)
{
    struct told t = {0};
    struct object *o = NULL;
    cJSON *j = cJSON_Parse(json);

    assert_int_equal(object_from_json(kind_by_id(kind), j, 0, &o, NULL), 0);
    struct api_write_op op = {
        .verb = API_CREATE, .kind = o->kind, .ns = "", .name = o->meta->name, .object = o};
    struct api_write w = {.user = "test", .ops = &op, .n = 1, .deadline_ms = RIG_DEADLINE_MS};
    r->backend->ops->write(r->backend, &w, on_made, &t);
    assert_true(backend_until(r, is, &t.done, RIG_DEADLINE_MS));
    assert_int_equal(t.code, 0);
    (void)object_unref(o);
    cJSON_Delete(j);
}
static const char *text_at(const cJSON *j, const char *a, const char *b)
{
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(j, a);

    v = b ? cJSON_GetObjectItemCaseSensitive(v, b) : v;
    return cJSON_IsString(v) ? v->valuestring : "";
}
static bool idled(void *arg) /* some of it has passed */
{
    cJSON *j = NULL;
    bool any = cost(arg, "{\"by\":\"cause,class,target\",\"limit\":\"5\"}", &j) == 0 &&
               cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(j, "rows")) == 1;

    if (any) {
        const cJSON *row = cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(j, "rows"), 0);
        assert_string_equal(text_at(row, "cause", NULL), "unavailable"); /* nobody is connected */
        assert_string_equal(text_at(row, "class", NULL), "h100");
        assert_string_equal(text_at(row, "target", NULL), "fra");
        assert_string_equal(text_at(j, "balance", "difference"), "0");
        assert_string_equal(text_at(j, "balance", "intervals"),
                            text_at(j, "balance", "capacityTime"));
        assert_string_equal(text_at(row, "milliGpuMs", NULL), text_at(j, "balance", "intervals"));
        assert_string_equal(text_at(j, "currency", NULL), "");
    }
    cJSON_Delete(j);
    return any;
}

static void cost_is_told(void **state)
{
    struct backend_rig *r = *state;
    cJSON *j = NULL;

    make(r, KIND_TARGET,
         "{\"apiVersion\":\"hanse.dev/v1alpha1\",\"kind\":\"Target\",\"metadata\":{\"name\":"
         "\"fra\"},\"spec\":{\"type\":\"agent\",\"tier\":\"hub\"}}");
    make(r, KIND_NODE,
         "{\"apiVersion\":\"hanse.dev/v1alpha1\",\"kind\":\"Node\",\"metadata\":{\"name\":"
         "\"fra.n0\"},\"spec\":{\"target\":\"fra\",\"gpus\":[{\"index\":0,\"class\":\"h100\"},"
         "{\"index\":1,\"class\":\"h100\"}]}}");
    for (int i = 0; !idled(r); i++)
        assert_true(i < 10000);
    assert_int_equal(cost(r, "{\"namespace\":\"team\",\"by\":\"cause\"}", &j), 0);
    assert_null(cJSON_GetObjectItemCaseSensitive(j, "balance"));
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(j, "rows")), 0);
    assert_string_equal(text_at(j, "filter", "project"), "team");
    cJSON_Delete(j);
    static const struct {
        const char *ask;
        int code;
    } bad[] = {{"{\"namespace\":\"team\",\"project\":\"other\"}", E_FORBIDDEN},
               {"{\"by\":\"queue,queue\"}", E_INVALID},
               {"{\"by\":\"colour\"}", E_INVALID},
               {"{\"from\":\"yesterday\"}", E_INVALID},
               {"{\"from\":\"2026-11-02\",\"to\":\"2026-11-01\"}", E_INVALID},
               {"{\"since\":\"-1d\"}", E_INVALID},
               {"{\"limit\":\"0\"}", E_INVALID},
               {"{\"limit\":10001}", E_INVALID},
               {"{\"queue\":7}", E_INVALID},
               {"{\"day\":\"2026-11-02\"}", E_INVALID},
               {"{\"what\":\"\"}", E_INVALID}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(cost(r, bad[i].ask, &j), bad[i].code);
        assert_null(j);
    }
    assert_int_equal(
        cost(r, "{\"from\":\"2026-11-01\",\"to\":\"2026-11-20T12:00:00Z\",\"queue\":\"q\"}", &j),
        0);
    assert_string_equal(text_at(j, "from", NULL), "2026-11-01T00:00:00Z");
    assert_string_equal(text_at(j, "to", NULL), "2026-11-21T00:00:00Z");
    cJSON_Delete(j);
}

static bool holds_canary(const struct buf *b)
{
    static const char *const texts[] = {BACKEND_CANARY, BACKEND_CANARY_B64};

    for (size_t t = 0; t < 2; t++)
        if (b->n && memmem(b->p, b->n, texts[t], strlen(texts[t])))
            return true;
    return false;
}

static void the_snapshot_holds_no_secret(void **state)
{
    struct backend_rig *r = *state;
    struct view *v = r->backend->ops->view(r->backend);
    AUTO_BUF b;
    struct err e;

    buf_init(&b, (size_t)1 << 30);
    assert_int_equal(snapshot_encode((const struct root *)v, &b, &e), 0);
    assert_true(b.n > 0);
    assert_false(holds_canary(&b));
    r->backend->ops->view_release(v);
}

struct grep {
    char dir[512];
    unsigned files, snapshots, named; /* named: they hold the Secret's name, so the search sees */
};
static void grep_entry(const char *name, void *arg)
{
    struct grep *g = arg;
    struct grep below = {0};
    char path[1024];
    struct stat st;
    struct err e;
    AUTO_BUF b;

    buf_init(&b, (size_t)1 << 30);
    (void)snprintf(path, sizeof path, "%s/%s", g->dir, name);
    assert_int_equal(stat(path, &st), 0);
    if (S_ISDIR(st.st_mode)) {
        str_copy(below.dir, sizeof below.dir, path);
        assert_int_equal(file_list(W.rig.loop, path, grep_entry, &below, &e), 0);
        g->files += below.files;
        g->snapshots += below.snapshots;
        g->named += below.named;
        return;
    }
    if (file_read(W.rig.loop, path, (size_t)1 << 30, &b, &e))
        fail_msg("%s: %s", path, e.text);
    if (holds_canary(&b))
        fail_msg("%s holds a Secret's value in clear", path);
    g->files++;
    g->named += b.n && memmem(b.p, b.n, "sealed", 6) != NULL;
    g->snapshots += strncmp(name, "snapshot-", 9) == 0;
}

/* The last one: it ends the member and looks through all that it left. */
static void the_disk_holds_no_secret(void **state)
{
    struct grep g = {0};
    struct err e;

    (void)state;
    server_close(W.server, on_closed, NULL);
    assert_true(backend_until(&W.rig, is, &W.closed, RIG_DEADLINE_MS));
    W.server = NULL;
    str_copy(g.dir, sizeof g.dir, W.data);
    assert_int_equal(file_list(W.rig.loop, W.data, grep_entry, &g, &e), 0);
    assert_true(g.files > 2 && g.snapshots > 0 && g.named > 0);
}

static void zones_are_those_of_the_machine(void **state)
{
    struct backend *b = W.rig.backend;

    (void)state;
    assert_true(b->ops->zone_known(b, "UTC"));
    assert_false(b->ops->zone_known(b, "Europe/Atlantis"));
}

static int teardown(void **state)
{
    struct err e;

    (void)state;
    if (W.server) {
        server_close(W.server, on_closed, NULL);
        (void)backend_until(&W.rig, is, &W.closed, RIG_DEADLINE_MS);
    }
    while (tree_reap(100000))
        ;
    int rc = file_remove(W.rig.loop, W.dir, &e);
    loop_uv_destroy(W.rig.loop);
    return rc;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BACKEND_CONTRACT_TESTS,
        cmocka_unit_test(cost_is_told),
        cmocka_unit_test(zones_are_those_of_the_machine),
        cmocka_unit_test(the_snapshot_holds_no_secret),
        cmocka_unit_test(the_disk_holds_no_secret),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
