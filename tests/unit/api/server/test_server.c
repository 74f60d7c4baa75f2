/* The API over the memory backend: reading, writing, watching, discovery, errors. `--serve DIR
 * [PORT]` instead serves it over TLS on loopback, with a CA and a kubeconfig in DIR, for
 * tests/e2e/kubectl.sh. */
#include "tests/support/api_world.h"
#include "tests/support/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define H "/apis/hanse.dev/v1alpha1"
#define WL                                                                                         \
    "{\"apiVersion\":\"hanse.dev/"                                                                 \
    "v1alpha1\",\"kind\":\"Workload\",\"metadata\":{\"name\":\"%s\"%s},\"spec\":{\"run\":{"        \
    "\"command\":[\"true\"]}%s}}"

static struct api_world *w;

static int setup(void **state)
{
    (void)state;
    w = api_world_create();
    return 0;
}
static int teardown(void **state)
{
    (void)state;
    w = api_world_destroy(w);
    return 0;
}
static int ask(const char *method, const char *path, const char *body)
{
    return api_ask(w, ADMIN, method, path, NULL, body);
}
static const char *workload(const char *name, const char *meta, const char *spec)
{
    static char text[4096];
    (void)snprintf(text, sizeof text, WL, name, meta, spec);
    return text;
}
#define IS(path, want) assert_string_equal(api_text(w, path), want)
#define ITEMS H "/namespaces/default/workloads"

static void test_open_paths(void **state)
{
    (void)state;
    assert_int_equal(api_ask(w, NULL, "GET", "/version", NULL, NULL), 200);
    IS("major", "1");
    assert_int_equal(api_ask(w, NULL, "GET", "/livez", NULL, NULL), 200);
    assert_int_equal(api_ask(w, NULL, "GET", "/readyz", NULL, NULL), 200);
    assert_int_equal(api_ask(w, NULL, "GET", "/api", NULL, NULL), 401);
    assert_non_null(strstr(w->got.p, "WWW-Authenticate: Bearer"));
    assert_int_equal(ask("GET", "/nowhere", NULL), 404);
    assert_non_null(strstr(api_text(w, "message"), "/apis"));
    assert_int_equal(ask("GET", "/metrics", NULL), 200);
    assert_non_null(strstr(w->body, "hanse_api_requests_total"));
}

static void test_discovery(void **state)
{
    (void)state;
    assert_int_equal(ask("GET", "/api", NULL), 200);
    IS("versions.0", "v1");
    assert_int_equal(ask("GET", "/apis", NULL), 200);
    IS("groups.0.name", "hanse.dev");
    assert_int_equal(ask("GET", H, NULL), 200);
    IS("resources.0.name", "targets");
    assert_int_equal(
        api_ask_with(
            w, ADMIN, "GET", "/apis",
            "Accept: "
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/"
            "json\r\n",
            NULL, NULL),
        200);
    IS("kind", "APIGroupDiscoveryList");
    IS("items.0.versions.0.resources.0.responseKind.kind", "Target");
    assert_int_equal(ask("GET", "/openapi/v3", NULL), 200);
    assert_int_equal(ask("GET", "/openapi/v3/apis/hanse.dev/v1alpha1?hash=x", NULL), 200);
    assert_non_null(strstr(w->got.p, "immutable"));
    assert_int_equal(ask("GET", "/openapi/v2", NULL), 200);
    assert_int_equal(ask("GET", "/apis/none.example/v1", NULL), 404);
}

static void test_create_get_delete(void **state)
{
    (void)state;
    assert_int_equal(ask("POST", ITEMS, workload("a", ",\"labels\":{\"team\":\"x\"}", "")), 201);
    IS("metadata.namespace", "default");
    IS("metadata.generation", "1");
    IS("spec.gang.workers", "");
    assert_int_equal(ask("POST", ITEMS, workload("a", "", "")), 409);
    IS("reason", "AlreadyExists");
    assert_int_equal(ask("GET", ITEMS "/a", NULL), 200);
    IS("kind", "Workload");
    IS("metadata.labels.team", "x");
    assert_int_equal(ask("GET", ITEMS "/none", NULL), 404);
    IS("message", "workloads.hanse.dev \"none\" not found");
    IS("details.kind", "workloads");
    assert_int_equal(ask("DELETE", ITEMS "/a", NULL), 200);
    IS("status", "Success");
    assert_int_equal(ask("DELETE", ITEMS "/a", NULL), 404);
}

static void test_what_nobody_acts_upon(void **state)
{
    (void)state;
    assert_int_equal(
        ask("POST", H "/queues",
            "{\"apiVersion\":\"hanse.dev/v1alpha1\",\"kind\":\"Queue\",\"metadata\":{"
            "\"name\":\"q\"},\"spec\":{\"gpuHours\":{\"limit\":1,\"period\":\"day\"}}}"),
        201);
    assert_non_null(strstr(w->got.p, "Warning: 299 - \"Queue q: spec.gpuHours: "));
    assert_int_equal(ask("POST", H "/queues",
                         "{\"apiVersion\":\"hanse.dev/v1alpha1\",\"kind\":\"Queue\",\"metadata\":{"
                         "\"name\":\"r\"},\"spec\":{\"admins\":[\"anna\"]}}"),
                     422);
    assert_string_equal(api_text(w, "details.causes.0.field"), "spec.admins");
    assert_non_null(strstr(api_text(w, "message"), "bind a role"));
    assert_int_equal(ask("POST", H "/gitsources",
                         "{\"apiVersion\":\"hanse.dev/v1alpha1\",\"kind\":\"GitSource\","
                         "\"metadata\":{\"name\":\"g\"},\"spec\":{\"repository\":\"/srv/git\"}}"),
                     422);
    assert_non_null(strstr(api_text(w, "message"), "hanse apply -f DIR --revision COMMIT --prune"));
    assert_int_equal(
        ask("POST", H "/apply",
            "{\"dryRun\":true,\"documents\":[{\"apiVersion\":\"hanse.dev/v1alpha1\",\"kind\":"
            "\"Target\",\"metadata\":{\"name\":\"t\"},\"spec\":{\"type\":\"slurm\",\"tier\":"
            "\"hub\"}}]}"),
        200);
    assert_non_null(strstr(w->got.p, "Warning: 299 - \"Target t: spec.type: "));
    assert_int_equal(ask("DELETE", H "/queues/q", NULL), 200);
}

static void test_create_refusals(void **state)
{
    (void)state;
    assert_int_equal(ask("POST", ITEMS, workload("a", "", ",\"gnag\":{}")), 422);
    assert_non_null(strstr(api_text(w, "details.causes.0.field"), "spec.gnag"));
    assert_int_equal(ask("POST", ITEMS "?fieldValidation=Warn", workload("a", "", ",\"gnag\":{}")),
                     201);
    assert_non_null(strstr(w->got.p, "Warning: 299"));
    assert_int_equal(ask("POST", H "/namespaces/none/workloads", workload("a", "", "")), 404);
    assert_int_equal(ask("POST", ITEMS "?dryRun=All", workload("dry", "", "")), 201);
    assert_int_equal(ask("GET", ITEMS "/dry", NULL), 404);
    assert_int_equal(ask("POST", ITEMS, "{\"a\":1,\"a\":2}"), 400);
    assert_int_equal(api_ask(w, ADMIN, "POST", ITEMS, "application/cbor", "x"), 415);
    assert_int_equal(ask("POST", ITEMS, workload("b", ",\"namespace\":\"other\"", "")), 400);
    assert_int_equal(ask("PUT", ITEMS, "{}"), 405);
    assert_int_equal(api_ask(w, ADMIN, "POST", ITEMS, "application/yaml",
                             "apiVersion: hanse.dev/v1alpha1\nkind: Workload\nmetadata: "
                             "{generateName: gen-}\nspec:\n  run: {command: [\"true\"]}\n"),
                     201);
    assert_int_equal(strlen(api_text(w, "metadata.name")), 9);
}

/* Who asks for a move cannot pass it off as a drain; nor is a Migration's status his. */
static void test_a_users_migration(void **state)
{
#define MOVES H "/namespaces/default/migrations"
#define MOVE(name, more)                                                                           \
    "{\"apiVersion\":\"hanse.dev/v1alpha1\",\"kind\":\"Migration\",\"metadata\":{\"name\":\"" name \
    "\"},\"spec\":{\"workload\":\"a\"" more "}}"
    (void)state;
    assert_int_equal(ask("POST", MOVES, MOVE("m", "},\"status\":{\"phase\":\"Starting\"")), 201);
    IS("spec.cause", "asked");
    assert_string_not_equal(api_text(w, "status.phase"), "Starting");
    assert_int_equal(ask("POST", MOVES, MOVE("n", ",\"cause\":\"drain\"")), 422);
    IS("details.causes.0.field", "spec.cause");
    assert_int_equal(ask("PUT", MOVES "/m", MOVE("m", ",\"to\":\"b\"")), 422);
    IS("details.causes.0.field", "spec.to");
    assert_int_equal(ask("PUT", MOVES "/m", MOVE("m", ",\"cancel\":true")), 200);
    assert_int_equal(ask("PUT", MOVES "/m", MOVE("m", ",\"cancel\":false")), 422);
    IS("details.causes.0.field", "spec.cancel");
#undef MOVE
#undef MOVES
}

static void test_update_conflict(void **state)
{
    char body[4096], rv[32];

    (void)state;
    assert_int_equal(ask("POST", ITEMS, workload("a", "", "")), 201);
    str_copy(rv, sizeof rv, api_text(w, "metadata.resourceVersion"));
    assert_int_equal(ask("PUT", ITEMS "/a", workload("a", "", ",\"suspend\":true")), 200);
    IS("metadata.generation", "2");
    (void)snprintf(body, sizeof body, ",\"resourceVersion\":\"%s\"", rv);
    str_copy(rv, sizeof rv, api_text(w, "metadata.resourceVersion"));
    assert_int_equal(ask("PUT", ITEMS "/a", workload("a", body, "")), 409);
    IS("reason", "Conflict");
    assert_int_equal(ask("PUT", ITEMS "/a", workload("a", "", ",\"suspend\":true")), 200);
    IS("metadata.resourceVersion", rv); /* nothing changed */
    assert_int_equal(ask("PUT", ITEMS "/b", workload("b", "", "")), 404);
}

static void test_status_subresource(void **state)
{
#define READY(v) "\"status\":{\"conditions\":[{\"type\":\"Seen\",\"status\":\"" v "\"}]}}"
    (void)state;
    assert_int_equal(ask("POST", ITEMS, workload("a", "", "")), 201);
    assert_int_equal(api_ask(w, ADMIN, "PATCH", ITEMS "/a/status", "application/merge-patch+json",
                             "{\"spec\":{\"suspend\":true}," READY("True")),
                     200);
    IS("status.conditions.0.status", "True");
    IS("spec.suspend", "");
    assert_int_equal(api_ask(w, ADMIN, "PATCH", ITEMS "/a", "application/merge-patch+json",
                             "{\"spec\":{\"suspend\":true}," READY("False")),
                     200);
    IS("status.conditions.0.status", "True");
    IS("spec.suspend", "true");
    assert_int_equal(api_ask(w, ADMIN, "PATCH", ITEMS "/a/status", "application/merge-patch+json",
                             "{\"status\":{\"phase\":\"Running\"}}"),
                     422);
}

static void test_patches(void **state)
{
    (void)state;
    assert_int_equal(ask("POST", ITEMS, workload("a", ",\"labels\":{\"k\":\"v\"}", "")), 201);
    assert_int_equal(api_ask(w, ADMIN, "PATCH", ITEMS "/a", "application/merge-patch+json",
                             "{\"metadata\":{\"labels\":{\"k\":null,\"n\":\"1\"}}}"),
                     200);
    IS("metadata.labels.k", "");
    IS("metadata.labels.n", "1");
    assert_int_equal(api_ask(w, ADMIN, "PATCH", ITEMS "/a", "application/json-patch+json",
                             "[{\"op\":\"test\",\"path\":\"/metadata/labels/"
                             "n\",\"value\":\"1\"},{\"op\":\"add\",\"path\":\"/spec/run/command/"
                             "-\",\"value\":\"x\"},{\"op\":\"copy\",\"from\":\"/metadata/labels/"
                             "n\",\"path\":\"/metadata/labels/m~1x\"}]"),
                     200);
    IS("spec.run.command.1", "x");
    IS("metadata.labels.m/x", "1");
    assert_int_equal(api_ask(w, ADMIN, "PATCH", ITEMS "/a", "application/json-patch+json",
                             "[{\"op\":\"test\",\"path\":\"/metadata/labels/n\",\"value\":\"2\"}]"),
                     422);
    assert_int_equal(api_ask(w, ADMIN, "PATCH", ITEMS "/a",
                             "application/strategic-merge-patch+json",
                             "{\"spec\":{\"data\":[{\"dataset\":\"x\"},{\"dataset\":\"y\"}]}}"),
                     200);
    assert_int_equal(api_ask(w, ADMIN, "PATCH", ITEMS "/a",
                             "application/strategic-merge-patch+json",
                             "{\"spec\":{\"data\":[{\"dataset\":\"x\",\"$patch\":\"delete\"},{"
                             "\"dataset\":\"z\"}]}}"),
                     200);
    IS("spec.data.0.dataset", "y");
    IS("spec.data.1.dataset", "z");
    assert_int_equal(api_ask(w, ADMIN, "PATCH", ITEMS "/a", "text/plain", "{}"), 415);
    assert_int_equal(api_ask(w, ADMIN, "PATCH", "/api/v1/namespaces/default",
                             "application/strategic-merge-patch+json",
                             "{\"metadata\":{\"labels\":{\"a\":\"b\"},\"finalizers\":[\"x/y\"]}}"),
                     200);
    IS("metadata.finalizers.0", "x/y");
}

static int apply(const char *path, const char *query, const char *body)
{
    char full[512];
    (void)snprintf(full, sizeof full, "%s?%s", path, query);
    return api_ask(w, ADMIN, "PATCH", full, "application/apply-patch+yaml", body);
}
#define QUEUE(fields)                                                                              \
    "apiVersion: hanse.dev/v1alpha1\nkind: Queue\nmetadata: {name: q}\nspec: {" fields "}\n"

static void test_server_side_apply(void **state)
{
    (void)state;
    assert_int_equal(apply(H "/queues/q", "fieldManager=one",
                           QUEUE("weight: 2, lend: true, gpus: [{class: a, burst: 4}]")),
                     201);
    IS("metadata.managedFields.0.manager", "one");
    IS("metadata.managedFields.0.operation", "Apply");
    assert_int_equal(apply(H "/queues/q", "fieldManager=two", QUEUE("weight: 3")), 409);
    assert_non_null(strstr(api_text(w, "message"), "conflict with \"one\": .spec.weight"));
    assert_int_equal(
        apply(H "/queues/q", "fieldManager=two", QUEUE("gpus: [{class: b, burst: 1}]")), 200);
    IS("spec.gpus.0.class", "a");
    IS("spec.gpus.1.class", "b");
    assert_int_equal(apply(H "/queues/q", "fieldManager=two&force=true",
                           QUEUE("weight: 3, gpus: [{class: b, burst: 1}]")),
                     200);
    IS("spec.weight", "3");
    assert_int_equal(apply(H "/queues/q", "fieldManager=one", QUEUE("lend: true")), 200);
    IS("spec.gpus.0.class", "b"); /* what one no longer names is gone, what two holds stays */
    IS("spec.weight", "3");
    assert_int_equal(apply(H "/queues/q", "force=true", QUEUE("lend: true")), 400);
    /* an Update takes over what it changes */
    assert_int_equal(api_ask(w, ADMIN, "PATCH", H "/queues/q?fieldManager=kubectl-edit",
                             "application/merge-patch+json", "{\"spec\":{\"weight\":9}}"),
                     200);
    assert_int_equal(
        apply(H "/queues/q", "fieldManager=two", QUEUE("weight: 3, gpus: [{class: b, burst: 1}]")),
        409);
    assert_non_null(strstr(api_text(w, "message"), "kubectl-edit"));
}

static void test_list(void **state)
{
    char name[32], path[1024], rv[32];

    (void)state;
    for (int i = 0; i < 25; i++) {
        (void)snprintf(name, sizeof name, "w%02d", i);
        assert_int_equal(ask("POST", ITEMS,
                             workload(name, i % 2 ? ",\"labels\":{\"odd\":\"yes\"}" : "",
                                      i ? "" : ",\"suspend\":true")),
                         201);
    }
    assert_int_equal(ask("GET", ITEMS "?limit=10", NULL), 200);
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(w->json, "items")), 10);
    str_copy(rv, sizeof rv, api_text(w, "metadata.resourceVersion"));
    (void)snprintf(path, sizeof path, ITEMS "?limit=100&continue=%s",
                   api_text(w, "metadata.continue"));
    assert_int_equal(ask("DELETE", ITEMS "/w24", NULL), 200); /* the pages are of one state */
    assert_int_equal(ask("GET", path, NULL), 200);
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(w->json, "items")), 15);
    IS("metadata.resourceVersion", rv);
    IS("metadata.continue", "");
    assert_int_equal(ask("GET", ITEMS "?labelSelector=odd%3Dyes", NULL), 200);
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(w->json, "items")), 12);
    assert_int_equal(ask("GET", ITEMS "?labelSelector=odd+notin+(yes,no)", NULL), 200);
    assert_int_equal(ask("GET", ITEMS "?labelSelector=%21odd", NULL), 200);
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(w->json, "items")), 12);
    assert_int_equal(ask("GET", ITEMS "?fieldSelector=spec.suspend%3Dtrue", NULL), 200);
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(w->json, "items")), 1);
    assert_int_equal(ask("GET", ITEMS "?fieldSelector=metadata.name%21%3Dw00", NULL), 200);
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(w->json, "items")), 23);
    assert_int_equal(ask("GET", ITEMS "?fieldSelector=spec.nope%3D1", NULL), 400);
    assert_int_equal(ask("GET", ITEMS "?labelSelector=a+in+(", NULL), 400);
    assert_int_equal(ask("GET", ITEMS "?resourceVersion=999999", NULL), 504);
    assert_int_equal(ask("GET", ITEMS "?continue=AAAA", NULL), 400);
    assert_int_equal(ask("GET", ITEMS "?resourceVersion=3&resourceVersionMatch=Exact", NULL), 410);
    IS("reason", "Expired");
    assert_int_equal(ask("DELETE", ITEMS "?labelSelector=odd%3Dyes", NULL), 200);
    assert_int_equal(ask("GET", ITEMS, NULL), 200);
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(w->json, "items")), 12);
}

static void test_long_list_is_streamed(void **state)
{
    char *pad = calloc(1, 60001);
    char *body = calloc(1, 70000);

    (void)state;
    memset(pad, 'x', 60000);
    for (int i = 0; i < 12; i++) {
        (void)snprintf(body, 70000,
                       "{\"apiVersion\":\"hanse.dev/"
                       "v1alpha1\",\"kind\":\"Workload\",\"metadata\":{\"name\":\"w%02d\"},"
                       "\"spec\":{\"run\":{\"script\":\"%s\"}}}",
                       i, pad);
        assert_int_equal(ask("POST", ITEMS, body), 201);
    }
    assert_int_equal(ask("GET", ITEMS, NULL), 200);
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(w->json, "items")), 12);
    free(pad);
    free(body);
}

static void test_table(void **state)
{
    (void)state;
    assert_int_equal(ask("POST", ITEMS, workload("a", "", "")), 201);
    const char *accept =
        "Accept: application/json;as=Table;v=v1;g=meta.k8s.io,application/json\r\n";
    assert_int_equal(api_ask_with(w, ADMIN, "GET", ITEMS, accept, NULL, NULL), 200);
    IS("kind", "Table");
    IS("columnDefinitions.0.name", "NAME");
    IS("rows.0.cells.0", "a");
    IS("rows.0.object.kind", "PartialObjectMetadata");
    assert_int_equal(api_ask_with(w, ADMIN, "GET", ITEMS "/a", accept, NULL, NULL), 200);
    IS("rows.0.object.metadata.name", "a");
    assert_int_equal(
        api_ask_with(w, ADMIN, "GET", ITEMS,
                     "Accept: application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io\r\n",
                     NULL, NULL),
        200);
    IS("kind", "PartialObjectMetadataList");
    IS("items.0.spec", "");
    assert_int_equal(api_ask_with(w, ADMIN, "GET", ITEMS,
                                  "Accept: application/vnd.kubernetes.protobuf\r\n", NULL, NULL),
                     406);
    assert_int_equal(
        api_ask_with(w, ADMIN, "GET", ITEMS,
                     "Accept: application/vnd.kubernetes.protobuf,application/json\r\n", NULL,
                     NULL),
        200);
    assert_int_equal(
        api_ask_with(w, ADMIN, "GET", ITEMS "/a", "Accept: application/yaml\r\n", NULL, NULL), 200);
    assert_non_null(strstr(w->body, "kind: Workload\n"));
}

static void test_watch(void **state)
{
    struct api_watch x;
    char path[256];

    (void)state;
    assert_int_equal(ask("POST", ITEMS, workload("a", ",\"labels\":{\"k\":\"v\"}", "")), 201);
    (void)snprintf(path, sizeof path, ITEMS "?watch=1&labelSelector=k%%3Dv&resourceVersion=%s",
                   api_text(w, "metadata.resourceVersion"));
    api_watch_open(&x, w, ADMIN, path);
    assert_true(api_watch_until(&x, "200 OK"));
    assert_int_equal(ask("POST", ITEMS, workload("b", ",\"labels\":{\"k\":\"v\"}", "")), 201);
    assert_true(api_watch_until(&x, "{\"type\":\"ADDED\""));
    assert_null(strstr(x.got.p, "\"name\":\"a\""));
    assert_int_equal(
        ask("PUT", ITEMS "/b", workload("b", ",\"labels\":{\"k\":\"v\"}", ",\"suspend\":true")),
        200);
    assert_true(api_watch_until(&x, "{\"type\":\"MODIFIED\""));
    assert_int_equal(ask("PUT", ITEMS "/b", workload("b", "", ",\"suspend\":true")),
                     200); /* stops matching */
    assert_true(api_watch_until(&x, "{\"type\":\"DELETED\""));
    assert_int_equal(ask("PUT", ITEMS "/b", workload("b", ",\"labels\":{\"k\":\"v\"}", "")),
                     200); /* and matches again */
    assert_int_equal(ask("DELETE", ITEMS "/a", NULL), 200);
    assert_true(api_watch_until(&x, "\"name\":\"a\""));
    api_watch_close(&x);
}

static void test_watch_initial_events(void **state)
{
    struct api_watch x;

    (void)state;
    assert_int_equal(ask("POST", ITEMS, workload("a", "", "")), 201);
    api_watch_open(&x, w, ADMIN,
                   ITEMS "?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&"
                         "allowWatchBookmarks=true&resourceVersion=");
    assert_true(api_watch_until(&x, "k8s.io/initial-events-end"));
    assert_true(strstr(x.got.p, "ADDED") < strstr(x.got.p, "BOOKMARK"));
    api_watch_close(&x);
    api_watch_open(&x, w, ADMIN, ITEMS "?watch=true&timeoutSeconds=1");
    assert_true(api_watch_until(&x, "\"name\":\"a\""));
    assert_true(api_watch_until(&x, "\r\n0\r\n\r\n")); /* ends in order after its time */
    api_watch_close(&x);
}

static void test_watch_too_old(void **state)
{
    (void)state;
    memory_backend_keep_changes(w->mem, 3);
    for (int i = 0; i < 6; i++) {
        char name[8];
        (void)snprintf(name, sizeof name, "w%d", i);
        assert_int_equal(ask("POST", ITEMS, workload(name, "", "")), 201);
    }
    assert_int_equal(ask("GET", ITEMS "?watch=1&resourceVersion=2", NULL), 410);
    IS("reason", "Expired");
}

static void test_finalizers(void **state)
{
    (void)state;
    assert_int_equal(ask("POST", ITEMS, workload("a", ",\"finalizers\":[\"x/y\"]", "")), 201);
    assert_int_equal(ask("DELETE", ITEMS "/a", NULL), 200);
    assert_string_not_equal(api_text(w, "metadata.deletionTimestamp"), "");
    assert_int_equal(api_ask(w, ADMIN, "PATCH", ITEMS "/a", "application/merge-patch+json",
                             "{\"metadata\":{\"finalizers\":null}}"),
                     200);
    assert_int_equal(ask("GET", ITEMS "/a", NULL), 404);
    assert_int_equal(ask("POST", ITEMS, workload("a", "", "")), 201);
    assert_int_equal(ask("DELETE", ITEMS "/a", "{\"preconditions\":{\"uid\":\"other\"}}"), 409);
}

static void deleted_within(const char *query, const char *body, int status, const char *seconds)
{
    char path[128];

    (void)snprintf(path, sizeof path, ITEMS "/g%s", query);
    assert_int_equal(ask("POST", ITEMS, workload("g", ",\"finalizers\":[\"x/y\"]", "")), 201);
    assert_int_equal(ask("DELETE", path, body), status);
    assert_int_equal(ask("GET", ITEMS "/g", NULL), 200);
    assert_string_equal(api_text(w, "metadata.deletionGracePeriodSeconds"), seconds);
    assert_true(!*api_text(w, "metadata.deletionTimestamp") == (status != 200));
    assert_int_equal(api_ask(w, ADMIN, "PATCH", ITEMS "/g", "application/merge-patch+json",
                             "{\"metadata\":{\"finalizers\":null,\"labels\":{\"a\":\"b\"}}}"),
                     200);
    if (status != 200)
        assert_int_equal(ask("DELETE", ITEMS "/g", NULL), 200);
}

static void test_the_grace_of_a_deletion(void **state)
{
    (void)state;
    deleted_within("", NULL, 200, "");
    deleted_within("?gracePeriodSeconds=7", NULL, 200, "7");
    deleted_within("?gracePeriodSeconds=7", "{\"gracePeriodSeconds\":0}", 200, "0");
    deleted_within("", "{\"gracePeriodSeconds\":-1}", 200, "1");
    deleted_within("", "{\"gracePeriodSeconds\":86401}", 422, "");
    deleted_within("", "{\"gracePeriodSeconds\":1.5}", 422, "");
    deleted_within("?gracePeriodSeconds=soon", NULL, 422, "");
    assert_int_equal(ask("POST", ITEMS, workload("h", ",\"finalizers\":[\"x/y\"]", "")), 201);
    assert_int_equal(ask("DELETE", ITEMS "?gracePeriodSeconds=9", NULL), 200); /* of all */
    assert_int_equal(ask("GET", ITEMS "/h", NULL), 200);
    IS("metadata.deletionGracePeriodSeconds", "9");
}

static void test_a_deletion_of_all_ends(void **state)
{
#define ALL "Idempotency-Key: all\r\n"
    (void)state;
    assert_int_equal(ask("POST", ITEMS, workload("a", "", "")), 201);
    assert_int_equal(api_ask_with(w, ADMIN, "DELETE", ITEMS, ALL, NULL, NULL), 200);
    assert_int_equal(ask("GET", ITEMS "/a", NULL), 404);
    assert_int_equal(ask("POST", ITEMS, workload("b", "", "")), 201);
    assert_int_equal(api_ask_with(w, ADMIN, "DELETE", ITEMS, ALL, NULL, NULL), 200);
    assert_int_equal(ask("GET", ITEMS "/b", NULL), 200);
}

static void test_secrets(void **state)
{
    (void)state;
    assert_int_equal(ask("POST", "/api/v1/namespaces/default/secrets",
                         "{\"apiVersion\":\"v1\",\"kind\":\"Secret\",\"metadata\":{\"name\":\"s\"},"
                         "\"stringData\":{\"user\":\"admin\"}}"),
                     201);
    IS("data.user", "YWRtaW4=");
    IS("stringData", "");
    assert_int_equal(api_ask(w, ADMIN, "PATCH", "/api/v1/namespaces/default/secrets/s",
                             "application/merge-patch+json", "{\"stringData\":{\"pass\":\"x\"}}"),
                     200);
    IS("data.user", "YWRtaW4=");
    IS("data.pass", "eA==");
    assert_int_equal(ask("GET", "/api/v1/namespaces/default/secrets", NULL), 200);
    IS("items.0.data.pass", "eA==");
    assert_int_equal(ask("POST", "/api/v1/namespaces/default/secrets",
                         "{\"apiVersion\":\"v1\",\"kind\":\"Secret\",\"metadata\":{\"name\":\"t\"},"
                         "\"data\":{\"user\":\"!!\"}}"),
                     422);
    IS("details.causes.0.field", "data.user");
}

static void test_apply_set(void **state)
{
    const char *one =
        "{\"revision\":\"%s\",\"prune\":true,\"dryRun\":%s,\"documents\":["
        "{\"apiVersion\":\"v1\",\"kind\":\"Namespace\",\"metadata\":{\"name\":\"team\"}},"
        "{\"apiVersion\":\"hanse.dev/"
        "v1alpha1\",\"kind\":\"Dataset\",\"metadata\":{\"name\":\"d\",\"namespace\":\"team\"},"
        "\"spec\":{\"bytes\":\"1Gi\"}}%s]}";
    const char *queue =
        ",{\"apiVersion\":\"hanse.dev/"
        "v1alpha1\",\"kind\":\"Queue\",\"metadata\":{\"name\":\"q\"},\"spec\":{\"weight\":2}}";
    char body[4096];

    (void)state;
    (void)snprintf(body, sizeof body, one, "c1", "true", queue);
    assert_int_equal(ask("POST", H "/apply", body), 200);
    IS("created", "3");
    IS("objects.2.new.spec.weight", "2");
    assert_int_equal(ask("GET", H "/queues/q", NULL), 404);
    (void)snprintf(body, sizeof body, one, "c1", "false", queue);
    assert_int_equal(ask("POST", H "/apply", body), 200);
    assert_int_equal(ask("GET", H "/queues/q", NULL), 200);
    IS("metadata.revision", "c1");
    assert_non_null(strstr(w->body, "\"hanse.dev/set\":\"default\""));
    assert_int_equal(ask("POST", H "/apply", body), 200);
    IS("unchanged", "3");
    (void)snprintf(body, sizeof body, one, "c2", "false", "");
    assert_int_equal(ask("POST", H "/apply", body), 200);
    IS("unchanged", "2");
    IS("pruned", "1");
    assert_int_equal(ask("GET", H "/queues/q", NULL), 404);
    assert_int_equal(ask("GET", H "/namespaces/team/datasets/d", NULL), 200);
    IS("metadata.revision", "c2");
    /* all or nothing, and the fault is named */
    (void)snprintf(
        body, sizeof body, one, "c3", "false",
        ",{\"apiVersion\":\"hanse.dev/"
        "v1alpha1\",\"kind\":\"Queue\",\"metadata\":{\"name\":\"z\"},\"spec\":{\"wieght\":2}}");
    assert_int_equal(ask("POST", H "/apply", body), 422);
    assert_non_null(strstr(api_text(w, "message"), "document 2 (Queue z)"));
    assert_non_null(strstr(api_text(w, "details.causes.0.field"), "spec.wieght"));
    assert_int_equal(ask("GET", H "/namespaces/team/datasets/d", NULL), 200);
    IS("metadata.revision", "c2");
}

/* A path may hold any bytes; what is told of it is text. */
static void test_answers_are_utf8(void **state)
{
    static const char *const paths[] = {"/caf%ff", "/apis/hanse.dev/v1alpha1/queues/%ff%c3",
                                        "/apis/%e2%82/v1", "/api/v1/namespaces/%c3%28/secrets/x"};
    char path[700];

    (void)state;
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        assert_int_equal(ask("GET", paths[i], NULL), 404);
        assert_true(utf8_valid(w->body, strlen(w->body)));
    }
    for (size_t n = 100; n < 104; n++) { /* cut in the middle of a character */
        (void)snprintf(path, sizeof path, "/%.*s%s", (int)n - 100, "aaa",
                       "%c3%a9%c3%a9%c3%a9%c3%a9%c3%a9%c3%a9%c3%a9%c3%a9%c3%a9%c3%a9%c3%a9%c3%a9"
                       "%c3%a9%c3%a9%c3%a9%c3%a9%c3%a9%c3%a9%c3%a9%c3%a9%c3%a9%c3%a9%c3%a9%c3%a9"
                       "%c3%a9%c3%a9%c3%a9%c3%a9%c3%a9%c3%a9%c3%a9%c3%a9%c3%a9%c3%a9%c3%a9%c3%a9"
                       "%c3%a9%c3%a9%c3%a9%c3%a9%c3%a9%c3%a9%c3%a9%c3%a9%c3%a9%c3%a9%c3%a9%c3%a9"
                       "%c3%a9%c3%a9%c3%a9%c3%a9%c3%a9%c3%a9%c3%a9%c3%a9%c3%a9%c3%a9%c3%a9%c3%a9"
                       "%c3%a9%c3%a9%c3%a9%c3%a9%c3%a9%c3%a9%c3%a9%c3%a9%c3%a9%c3%a9%c3%a9%c3%a9"
                       "%c3%a9%c3%a9%c3%a9%c3%a9%c3%a9%c3%a9%c3%a9%c3%a9%c3%a9%c3%a9%c3%a9%c3%a9");
        assert_int_equal(ask("GET", path, NULL), 404);
        assert_true(utf8_valid(w->body, strlen(w->body)));
    }
}

/* Who submitted is told by the server, whatever the client writes. */
static void test_the_user_of_a_workload(void **state)
{
    const char *me = "Impersonate-User: anna\r\n";
    const char *set =
        "{\"documents\":[{\"apiVersion\":\"hanse.dev/v1alpha1\",\"kind\":\"Workload\",\"metadata\":"
        "{\"name\":\"set\",\"namespace\":\"default\"},\"spec\":{%s\"run\":{\"command\":[\"x\"]}}}]"
        "}";
    char body[512];

    (void)state;
    assert_int_equal(ask("POST", ITEMS, workload("u", "", ",\"user\":\"bob\"")), 422);
    assert_non_null(strstr(api_text(w, "message"), "spec.user"));
    assert_int_equal(ask("POST", ITEMS, workload("u", "", ",\"user\":\"admin\"")), 201);
    assert_int_equal(api_ask(w, ADMIN, "PATCH", ITEMS "/u", "application/merge-patch+json",
                             "{\"spec\":{\"user\":\"bob\"}}"),
                     422);
    assert_int_equal(api_ask(w, ADMIN, "PATCH", ITEMS "/u", "application/merge-patch+json",
                             "{\"spec\":{\"user\":null,\"suspend\":true}}"),
                     200);
    IS("spec.user", "admin");
    /* one who acts as another submits as that other, and who writes later leaves it */
    assert_int_equal(api_ask_with(w, ADMIN, "POST", ITEMS,
                                  "Impersonate-User: anna\r\nImpersonate-Group: "
                                  "system:masters\r\n",
                                  NULL, workload("v", "", "")),
                     201);
    IS("spec.user", "anna");
    assert_int_equal(api_ask(w, ADMIN, "PATCH", ITEMS "/v", "application/merge-patch+json",
                             "{\"spec\":{\"suspend\":true}}"),
                     200);
    IS("spec.user", "anna");
    assert_int_equal(api_ask_with(w, ADMIN, "DELETE", ITEMS "/v", me, NULL, NULL), 403);
    (void)snprintf(body, sizeof body, set, "\"user\":\"bob\",");
    assert_int_equal(ask("POST", H "/apply", body), 422);
    (void)snprintf(body, sizeof body, set, "");
    assert_int_equal(ask("POST", H "/apply", body), 200);
    assert_int_equal(ask("GET", ITEMS "/set", NULL), 200);
    IS("spec.user", "admin");
    assert_int_equal(ask("POST", H "/apply", body), 200);
}

static void test_events_are_where_their_objects_are(void **state)
{
    const char *event =
        "{\"apiVersion\":\"v1\",\"kind\":\"Event\",\"metadata\":{\"generateName\":\"e\"}"
        ",\"involvedObject\":{\"kind\":\"Workload\",\"name\":\"w\"%s}}";
    char body[512];

    (void)state;
    assert_int_equal(
        ask("POST", "/api/v1/namespaces",
            "{\"apiVersion\":\"v1\",\"kind\":\"Namespace\",\"metadata\":{\"name\":\"team\"}}"),
        201);
    (void)snprintf(body, sizeof body, event, ",\"namespace\":\"default\"");
    assert_int_equal(ask("POST", "/api/v1/namespaces/default/events", body), 201);
    assert_int_equal(ask("POST", "/api/v1/namespaces/hanse-system/events", body), 422);
    assert_non_null(strstr(api_text(w, "message"), "involvedObject.namespace"));
    (void)snprintf(body, sizeof body, event, "");
    assert_int_equal(ask("POST", "/api/v1/namespaces/team/events", body), 422);
    assert_int_equal(ask("POST", "/api/v1/namespaces/default/events", body), 201);
}

static void test_logs_operations_token(void **state)
{
    (void)state;
    assert_int_equal(ask("POST", ITEMS, workload("a", "", "")), 201);
    IS("spec.user", "admin"); /* whose cost it is */
    assert_int_equal(ask("GET", ITEMS "/a/log", NULL), 200);
    assert_string_equal(w->body, "one\ntwo\n");
    assert_int_equal(ask("GET", ITEMS "/none/log", NULL), 404);
    assert_int_equal(ask("GET", H "/operations/status?x=1", NULL), 200);
    IS("asked", "admin");
    IS("body.x", "1");
    assert_int_equal(ask("POST", H "/operations/none", "{}"), 501);
    /* a namespace's own: it is told whose, whatever the caller says */
    assert_int_equal(
        ask("GET", H "/namespaces/team/operations/cost?namespace=other&by=queue&Namespace=x", NULL),
        200);
    IS("body.namespace", "team");
    IS("body.by", "queue");
    assert_null(strstr(w->body, "other"));
    assert_null(strstr(w->body, "Namespace"));
    assert_int_equal(ask("GET", H "/namespaces/team/operations/status", NULL), 404);
    assert_int_equal(ask("POST", H "/namespaces/team/operations/cost", "{}"), 405);
    assert_int_equal(
        ask("POST", "/api/v1/namespaces/default/serviceaccounts",
            "{\"apiVersion\":\"v1\",\"kind\":\"ServiceAccount\",\"metadata\":{\"name\":\"bot\"}}"),
        201);
    assert_int_equal(
        ask("POST", "/api/v1/namespaces/default/serviceaccounts/bot/token", "{\"spec\":{}}"), 201);
    IS("status.token", "t|bot|");
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {T(test_open_paths),
                                              T(test_discovery),
                                              T(test_create_get_delete),
                                              T(test_create_refusals),
                                              T(test_what_nobody_acts_upon),
                                              T(test_a_users_migration),
                                              T(test_update_conflict),
                                              T(test_status_subresource),
                                              T(test_patches),
                                              T(test_server_side_apply),
                                              T(test_list),
                                              T(test_long_list_is_streamed),
                                              T(test_table),
                                              T(test_watch),
                                              T(test_watch_initial_events),
                                              T(test_watch_too_old),
                                              T(test_finalizers),
                                              T(test_the_grace_of_a_deletion),
                                              T(test_a_deletion_of_all_ends),
                                              T(test_secrets),
                                              T(test_apply_set),
                                              T(test_answers_are_utf8),
                                              T(test_the_user_of_a_workload),
                                              T(test_events_are_where_their_objects_are),
                                              T(test_logs_operations_token)};

    if (argc > 2 && !strcmp(argv[1], "--serve"))
        return api_serve(argv[2], argc > 3 ? argv[3] : "127.0.0.1:0");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
