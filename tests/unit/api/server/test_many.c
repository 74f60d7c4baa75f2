/* The API where there is much of something: fields in conflict, objects of a collection, events for
 * a watcher that does not read, watches that begin while others write. */
#include "tests/support/api_world.h"
#include "tests/support/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define H "/apis/hanse.dev/v1alpha1"
#define SETS H "/namespaces/default/datasets"

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
static void is(const char *path, const char *value)
{
    if (strcmp(api_text(w, path), value) != 0)
        fail_msg("%s is \"%s\", not \"%s\"", path, api_text(w, path), value);
}

/* ---- server-side apply ---- */
static int apply(const char *query, const char *spec)
{
    char path[256], body[1024];

    (void)snprintf(path, sizeof path, H "/queues/q?%s", query);
    (void)snprintf(body, sizeof body,
                   "apiVersion: hanse.dev/v1alpha1\nkind: Queue\nmetadata: {name: q}\nspec: {%s}\n",
                   spec);
    return api_ask(w, ADMIN, "PATCH", path, "application/apply-patch+yaml", body);
}

static void test_all_conflicts_are_named(void **state)
{
    (void)state;
    assert_int_equal(apply("fieldManager=one", "weight: 2, lend: true"), 201);
    assert_int_equal(apply("fieldManager=two", "parent: a"), 200);
    assert_int_equal(api_ask(w, ADMIN, "PATCH", H "/queues/q?fieldManager=edit",
                             "application/merge-patch+json",
                             "{\"spec\":{\"gpus\":[{\"class\":\"h\",\"burst\":4}]}}"),
                     200);
    assert_int_equal(apply("fieldManager=me", "weight: 3"), 409);
    is("message", "Apply failed with 1 conflict: conflict with \"one\": .spec.weight");
    assert_int_equal(apply("fieldManager=me", "weight: 3, lend: false, parent: b, "
                                              "gpus: [{class: h, burst: 5}]"),
                     409);
    is("reason", "Conflict");
    cJSON *causes = cJSON_GetObjectItem(cJSON_GetObjectItem(w->json, "details"), "causes"), *c;
    assert_int_equal(cJSON_GetArraySize(causes), 4);
    unsigned one = 0, two = 0, edit = 0;
    cJSON_ArrayForEach(c, causes)
    {
        const char *message = cJSON_GetObjectItem(c, "message")->valuestring,
                   *field = cJSON_GetObjectItem(c, "field")->valuestring;
        assert_string_equal(cJSON_GetObjectItem(c, "reason")->valuestring, "FieldManagerConflict");
        one += !strcmp(message, "conflict with \"one\"") &&
               (!strcmp(field, ".spec.weight") || !strcmp(field, ".spec.lend"));
        two += !strcmp(message, "conflict with \"two\"") && !strcmp(field, ".spec.parent");
        edit += strstr(message, "conflict with \"edit\" using hanse.dev/v1alpha1 at 2") &&
                !strcmp(field, ".spec.gpus[class=\"h\"].burst");
    }
    if (one != 2 || two != 1 || edit != 1)
        fail_msg("%u %u %u: %s", one, two, edit, w->body);
    const char *message = api_text(w, "message");
    assert_memory_equal(message, "Apply failed with 4 conflicts: ", 31);
    assert_non_null(strstr(message, "conflicts with \"one\":\n- .spec."));
    assert_non_null(strstr(message, "conflicts with \"two\":\n- .spec.parent"));
    assert_int_equal(apply("fieldManager=me&force=true", "weight: 3, lend: false, parent: b"), 200);
    assert_int_equal(apply("fieldManager=me", "weight: 3, lend: false, parent: b"), 200);
}

/* ---- collections ---- */
static void dataset(const char *name, const char *meta, const char *digest)
{
    char body[1024];

    (void)snprintf(body, sizeof body,
                   "{\"apiVersion\":\"hanse.dev/v1alpha1\",\"kind\":\"Dataset\",\"metadata\":{"
                   "\"name\":\"%s\"%s},\"spec\":{\"digest\":\"%s\"}}",
                   name, meta, digest);
    if (ask("POST", SETS, body) != 201)
        fail_msg("%s", w->body);
}
static int left(const char *query)
{
    char path[256];

    (void)snprintf(path, sizeof path, SETS "?%s", query);
    assert_int_equal(ask("GET", path, NULL), 200);
    return cJSON_GetArraySize(cJSON_GetObjectItem(w->json, "items"));
}

/* More than one batch; what its finalizers keep is asked for once and does not hold up the rest. */
static void test_a_large_collection_goes_whole(void **state)
{
    char name[32];

    (void)state;
    for (int i = 0; i < 1234; i++) {
        (void)snprintf(name, sizeof name, "d%04d", i);
        dataset(name,
                i % 400 == 0 ? ",\"finalizers\":[\"a.dev/b\"]"
                : i % 3      ? ",\"labels\":{\"k\":\"v\"}"
                             : "",
                "");
    }
    assert_int_equal(ask("DELETE", SETS "?labelSelector=k%3Dv&dryRun=All", NULL), 200);
    assert_int_equal(left(""), 1234);
    assert_int_equal(ask("DELETE", SETS "?limit=10", NULL), 200);
    assert_int_equal(left(""), 1225); /* d0000 stays, marked */
    assert_int_equal(ask("DELETE", SETS "?labelSelector=k%3Dv", NULL), 200);
    is("status", "Success");
    assert_int_equal(left("labelSelector=k%3Dv"), 0);
    assert_true(left("") > 400);
    assert_int_equal(ask("DELETE", SETS, NULL), 200);
    assert_int_equal(left(""), 4);
    is("items.0.metadata.name", "d0000");
    assert_string_not_equal(api_text(w, "items.3.metadata.deletionTimestamp"), "");
    assert_int_equal(ask("DELETE", SETS "?limit=x", NULL), 400);
}

/* ---- watches ---- */
/* resourceVersions of the events that came, in order; each type of event is counted. */
static unsigned events(const struct api_watch *x, uint64_t *ret_first, uint64_t *ret_last)
{
    unsigned n = 0;
    uint64_t last = 0;

    for (const char *p = x->got.n ? x->got.p : ""; (p = strstr(p, "\"resourceVersion\":\""));) {
        uint64_t rv = strtoull(p += 19, NULL, 10);
        if (rv <= last)
            fail_msg("%llu comes behind %llu", (unsigned long long)rv, (unsigned long long)last);
        last = rv;
        if (!n++)
            *ret_first = rv;
    }
    *ret_last = last;
    return n;
}

/* A watch from the version of any write that was answered shows exactly what was written behind it,
 * each once, in the order of the versions, whoever else writes or watches. */
static void test_commit_and_watch(void **state)
{
    enum { N = 40 };
    static struct api_watch x[N];
    uint64_t rv[N], first = 0, last = 0;
    char name[32], path[256], want[64];

    (void)state;
    memset(x, 0, sizeof x);
    for (int i = 0; i < N; i++) {
        (void)snprintf(name, sizeof name, "d%02d", i);
        dataset(name, "", "");
        rv[i] = strtoull(api_text(w, "metadata.resourceVersion"), NULL, 10);
        (void)snprintf(path, sizeof path, SETS "?watch=1&resourceVersion=%llu",
                       (unsigned long long)rv[i]);
        api_watch_open(&x[i], w, ADMIN, path);
        if (i % 3 == 0) /* some begin before the next write, some between two, some behind all */
            assert_true(api_watch_until(&x[i], "200 OK"));
    }
    dataset("last", "", "");
    uint64_t end = strtoull(api_text(w, "metadata.resourceVersion"), NULL, 10);
    (void)snprintf(want, sizeof want, "\"resourceVersion\":\"%llu\"", (unsigned long long)end);
    for (int i = 0; i < N; i++) {
        assert_true(api_watch_until(&x[i], want));
        unsigned n = events(&x[i], &first, &last);
        assert_int_equal(n, N - i);
        assert_int_equal(first, i + 1 < N ? rv[i + 1] : end);
        assert_int_equal(last, end);
        api_watch_close(&x[i]);
    }
}

/* The kernel takes some 200 KiB, the server LIMIT_WATCH_BUFFER_MAX; then this one ends with 410 and
 * a closed connection, and the others have missed nothing. */
static void test_a_slow_watcher_ends(void **state)
{
    struct api_watch slow = {0}, quick = {0};
    char *body = calloc(1, 70000), *pad = calloc(1, 64001);
    uint64_t first, last;

    (void)state;
    memset(pad, 'x', 64000);
    api_watch_open(&slow, w, ADMIN, H "/namespaces/default/workloads?watch=1");
    api_watch_open(&quick, w, ADMIN, H "/namespaces/default/workloads?watch=1");
    assert_true(api_watch_until(&slow, "200 OK"));
    assert_true(api_watch_until(&quick, "200 OK"));
    stream_pause(slow.st, true);
    for (int i = 0; i < 80; i++) {
        (void)snprintf(body, 70000,
                       "{\"apiVersion\":\"hanse.dev/v1alpha1\",\"kind\":\"Workload\",\"metadata\":{"
                       "\"name\":\"w%02d\"},\"spec\":{\"run\":{\"script\":\"%s\"}}}",
                       i, pad);
        assert_int_equal(ask("POST", H "/namespaces/default/workloads", body), 201);
    }
    assert_true(api_watch_until(&quick, "\"name\":\"w79\""));
    assert_int_equal(events(&quick, &first, &last), 80);
    assert_int_equal(ask("GET", "/metrics", NULL), 200);
    assert_non_null(strstr(w->body, "hanse_api_watch_overflows_total 1\n"));
    stream_pause(slow.st, false);
    assert_true(api_watch_until(&slow, "\"type\":\"ERROR\""));
    assert_true(api_watch_until(&slow, "\"code\":410"));
    assert_non_null(strstr(slow.got.p, "\"reason\":\"Expired\""));
    assert_true(api_watch_until(&slow, "\r\n0\r\n\r\n"));
    assert_true(slow.got.n < (8u << 20));
    assert_int_equal(ask("DELETE", H "/namespaces/default/workloads/w00", NULL), 200);
    while (!slow.closed) /* by the server; the world's own limit bounds it */
        assert_int_equal(ask("GET", "/livez", NULL), 200);
    assert_true(api_watch_until(&quick, "\"type\":\"DELETED\""));
    api_watch_close(&slow);
    api_watch_close(&quick);
    free(pad);
    free(body);
}

/* Answers that nobody waits for any more: of a read, of a write, and a watch that has not begun. */
static void test_clients_that_go_early(void **state)
{
    static const char *const paths[] = {SETS, SETS "?watch=1", SETS "/none", "/metrics"};
    struct api_watch x;

    (void)state;
    for (int i = 0; i < 40; i++) {
        api_watch_open(&x, w, ADMIN, paths[i % 4]);
        for (int turn = 0; turn < i / 8;
             turn++) /* connected, asked, answered: gone at each of them */
            assert_int_equal(ask("GET", "/livez", NULL), 200);
        stream_abort(x.st, "gone");
        api_watch_close(&x);
    }
    assert_int_equal(ask("GET", "/livez", NULL), 200);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void)
{
    static const struct CMUnitTest tests[] = {
        T(test_all_conflicts_are_named), T(test_a_large_collection_goes_whole),
        T(test_commit_and_watch), T(test_a_slow_watcher_ends), T(test_clients_that_go_early)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
