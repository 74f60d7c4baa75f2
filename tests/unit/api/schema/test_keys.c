/* Lists with a KEY: two items with the same one are refused when they are written, and what holds
 * two all the same can be shown, since who shows it is the leader. And items that name what the
 * member has to know: the time zones of windows. */
#include "tests/support/api_world.h"
#include "tests/support/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/schema/schema.h"

#define H "/apis/hanse.dev/v1alpha1"
#define ITEMS H "/namespaces/default/workloads"
#define WL(name, env)                                                                              \
    "{\"apiVersion\":\"hanse.dev/v1alpha1\",\"kind\":\"Workload\",\"metadata\":{\"name\":\"" name  \
    "\"},\"spec\":{\"run\":{\"command\":[\"true\"],\"env\":[" env "]}}}"
#define A(value) "{\"name\":\"A\",\"value\":\"" value "\"}"
#define B "{\"name\":\"B\"}"
#define READY "{\"type\":\"Ready\",\"status\":\"True\"}"
#define MERGE "application/merge-patch+json"

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

static void test_refused_at_the_door(void **state)
{
    (void)state;
    assert_int_equal(api_ask(w, ADMIN, "POST", ITEMS, NULL, WL("a", A("1") "," B "," A("2"))), 422);
    assert_string_equal(
        api_text(w, "message"),
        "spec.run.env[2].name: \"A\" is that of item 0, too: leave one of them out");
    assert_int_equal(api_ask(w, ADMIN, "POST", ITEMS, NULL, WL("a", A("1") "," B)), 201);
    assert_int_equal(api_ask(w, ADMIN, "PATCH", ITEMS "/a", MERGE,
                             "{\"spec\":{\"run\":{\"env\":[" A("1") "," A("1") "]}}}"),
                     422);
    assert_int_equal(
        api_ask(w, ADMIN, "POST", H "/queues", NULL,
                "{\"apiVersion\":\"hanse.dev/v1alpha1\",\"kind\":\"Queue\",\"metadata\":{"
                "\"name\":\"q\"},\"spec\":{\"gpus\":[{\"burst\":1},{\"burst\":2}]}}"),
        422);
    assert_non_null(strstr(api_text(w, "message"), "spec.gpus[1].class"));
}

#define POLICIES H "/placementpolicies"
#define WINDOW(zone) "{\"from\":\"08:00\",\"to\":\"18:00\",\"timezone\":\"" zone "\"}"
#define SPEC(windows) "\"spec\":{\"windows\":[" windows "]}"
#define PP(name, windows)                                                                          \
    "{\"apiVersion\":\"hanse.dev/"                                                                 \
    "v1alpha1\",\"kind\":\"PlacementPolicy\",\"metadata\":{\"name\":\"" name                       \
    "\"}," SPEC(windows) "}"

/* A zone that this member does not know is refused where it is new, by whatever way it comes. */
static void test_time_zones(void **state)
{
    struct object *o = NULL;
    struct err e;

    (void)state;
    assert_int_equal(api_ask(w, ADMIN, "POST", POLICIES, NULL,
                             PP("a", WINDOW("UTC") "," WINDOW("Europe/Berlln"))),
                     422);
    assert_string_equal(api_text(w, "message"),
                        "spec.windows[1].timezone: \"Europe/Berlln\" is no time zone that this "
                        "member knows: write the IANA name as in Europe/Berlin; if it is right, "
                        "install the member's tzdata");
    assert_int_equal(api_ask(w, ADMIN, "POST", POLICIES, NULL,
                             PP("a", WINDOW("UTC") "," WINDOW("Europe/Berlin"))),
                     201);
    assert_int_equal(
        api_ask(w, ADMIN, "PATCH", POLICIES "/a", MERGE, "{" SPEC(WINDOW("europe/berlin")) "}"),
        422);
    assert_int_equal(
        api_ask(w, ADMIN, "PATCH", POLICIES "/a", MERGE, "{" SPEC(WINDOW("Europe/Berlin")) "}"),
        200);
    /* what an older version stored may stay, and goes when somebody takes it out */
    cJSON *doc = cJSON_Parse(PP("old", WINDOW("Mars/Base")));
    cJSON_AddStringToObject(cJSON_GetObjectItem(doc, "metadata"), "uid", "u");
    assert_int_equal(object_from_json(kind_by_name("PlacementPolicy"), doc, 0, &o, &e), 0);
    cJSON_Delete(doc);
    memory_backend_put(w->mem, o);
    (void)object_unref(o);
    assert_int_equal(
        api_ask(w, ADMIN, "PATCH", POLICIES "/old", MERGE, "{\"spec\":{\"maxGPUs\":3}}"), 200);
    assert_int_equal(api_ask(w, ADMIN, "PATCH", POLICIES "/old", MERGE,
                             "{" SPEC(WINDOW("Mars/Base") "," WINDOW("Mars/Bay")) "}"),
                     422);
    assert_int_equal(
        api_ask(w, ADMIN, "PATCH", POLICIES "/old", MERGE, "{" SPEC(WINDOW("UTC")) "}"), 200);
    assert_int_equal(
        api_ask(w, ADMIN, "PATCH", POLICIES "/old", MERGE, "{" SPEC(WINDOW("Mars/Base")) "}"), 422);
}

/* A set of fields names each item once, whatever the list holds. */
static void test_set_of_fields(void **state)
{
    (void)state;
    assert_int_equal(api_ask(w, ADMIN, "POST", ITEMS, NULL, WL("s", A("1"))), 201);
    assert_int_equal(api_ask(w, ADMIN, "PATCH", ITEMS "/s/status", MERGE,
                             "{\"status\":{\"conditions\":[" READY "," READY "]}}"),
                     200);
    const char *key = strstr(w->body, "k:{\\\"type\\\"");
    assert_non_null(key);
    assert_null(strstr(key + 1, "k:{\\\"type\\\""));
    assert_int_equal(api_ask(w, ADMIN, "GET", ITEMS "/s", NULL, NULL), 200);
}

/* What an older version stored stays, and is shown. */
static void test_stored_already(void **state)
{
    static const char twice[] = "{\"f:a\":{},\"f:a\":{},\"f:b\":{}}";
    struct managed_fields held = {.manager = "m", .fieldsV1 = slice_make(twice, strlen(twice))};
    struct env_var env[] = {{.name = "A", .value = "1"}, {.name = "A", .value = "2"}};
    struct meta m = {.name = "old",
                     .namespace_ = "default",
                     .uid = "u",
                     .managedFields = &held,
                     .n_managedFields = 1};
    struct run_spec run = {.script = "true", .env = env, .n_env = 2};
    struct workload_spec spec = {.run = &run};
    struct workload body = {.metadata = &m, .spec = &spec};
    struct object *o = object_make(kind_by_id(KIND_WORKLOAD), &body);
    struct err e = {0};
    cJSON *j = NULL, *fields;

    (void)state;
    assert_int_equal(object_to_json(o, &j, NULL), 0);
    assert_int_equal(object_admit(NULL, o, &e), E_INVALID);
    assert_string_equal(e.field, "spec.run.env[1].name");
    assert_int_equal(object_admit(o, o, &e), 0);
    fields = cJSON_GetObjectItem(
        cJSON_GetArrayItem(cJSON_GetObjectItem(cJSON_GetObjectItem(j, "metadata"), "managedFields"),
                           0),
        "fieldsV1");
    assert_int_equal(cJSON_GetArraySize(fields), 2);
    cJSON_Delete(j);
    (void)object_unref(o);
}

static struct object *sheet(const char *rows)
{
    char text[512];
    struct yaml_doc *docs;
    struct object *o = NULL;
    struct err e = {0};
    size_t n;

    (void)snprintf(text, sizeof text,
                   "apiVersion: hanse.dev/v1alpha1\nkind: PriceSheet\nmetadata: {name: a}\n"
                   "spec: {gpuHour: [%s]}\n",
                   rows);
    assert_int_equal(yaml_parse_all(text, strlen(text), "t", &docs, &n, &e), 0);
    assert_int_equal(
        object_from_json(kind_by_name("PriceSheet"), docs[0].json, DECODE_USER, &o, &e), 0);
    yaml_docs_free(docs, n);
    return o;
}

/* Two rows for one class and region: which of them prices would be chance. */
static void test_rows_of_a_price_sheet(void **state)
{
    static const struct {
        const char *rows, *second, *first;
    } cases[] = {
        {"{class: h100, spot: 1}, {class: h100, region: eu, spot: 2}, {class: a100, spot: 3}", "",
         ""},
        {"{class: h100, spot: 1}, {class: a100, spot: 2}, {class: h100, onDemand: 3}",
         "spec.gpuHour[2]", "spec.gpuHour[0]"},
        {"{class: h100, spot: 1}, {class: h100, region: eu, spot: 2}, "
         "{class: h100, region: eu, spot: 3}",
         "spec.gpuHour[2]", "spec.gpuHour[1]"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct object *o = sheet(cases[i].rows), *was = sheet("{class: h100, spot: 1}");
        struct err e = {0};

        assert_int_equal(object_admit(NULL, o, &e), *cases[i].second ? E_INVALID : 0);
        assert_string_equal(e.field, cases[i].second);
        assert_non_null(strstr(e.text, cases[i].first));
        assert_int_equal(object_admit(was, o, &e), *cases[i].second ? E_INVALID : 0);
        assert_int_equal(object_admit(o, o, &e), 0); /* what is there stays */
        assert_int_equal(object_admit(o, was, &e), 0);
        (void)object_unref(was);
        (void)object_unref(o);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_refused_at_the_door, setup, teardown),
        cmocka_unit_test_setup_teardown(test_time_zones, setup, teardown),
        cmocka_unit_test_setup_teardown(test_set_of_fields, setup, teardown),
        cmocka_unit_test(test_stored_already),
        cmocka_unit_test(test_rows_of_a_price_sheet),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
