/* Discovery documents and table cells: that they can be read, that every reference leads somewhere,
 * and that clients find in them what they look for. */
#include "api/schema/schema.h"
#include "tests/support/unit.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

static const cJSON *get(const cJSON *j, const char *key)
{
    return cJSON_GetObjectItemCaseSensitive(j, key);
}

static unsigned refs_resolve(const cJSON *j, const cJSON *definitions, const char *prefix)
{
    unsigned n = 0;

    for (const cJSON *c = j->child; c; c = c->next) {
        if (c->string && !strcmp(c->string, "$ref")) {
            assert_int_equal(strncmp(c->valuestring, prefix, strlen(prefix)), 0);
            if (!get(definitions, c->valuestring + strlen(prefix)))
                fail_msg("%s leads nowhere", c->valuestring);
            n++;
        }
        n += refs_resolve(c, definitions, prefix);
    }
    return n;
}

static bool has_parameter(const cJSON *operation, const char *name)
{
    for (const cJSON *p = get(operation, "parameters")->child; p; p = p->next)
        if (!strcmp(get(p, "name")->valuestring, name))
            return true;
    return false;
}

static void check_workload_patch(const cJSON *doc)
{
    const cJSON *path =
        get(get(doc, "paths"), "/apis/hanse.dev/v1alpha1/namespaces/{namespace}/workloads/{name}");
    assert_non_null(path);
    const cJSON *patch = get(path, "patch");
    assert_true(has_parameter(patch, "fieldValidation") && has_parameter(patch, "dryRun"));
    assert_string_equal(get(get(patch, "x-kubernetes-group-version-kind"), "kind")->valuestring,
                        "Workload");
    assert_string_equal(get(patch, "x-kubernetes-action")->valuestring, "patch");
}

static cJSON *parsed(struct buf *b)
{
    cJSON *j = NULL;
    struct err e = {0};

    assert_false(b->failed);
    if (json_parse(b->p, b->n, &j, &e) < 0)
        fail_msg("%s", e.text);
    return j;
}

static void test_v2(void **state)
{
    AUTO_BUF b = {0};

    (void)state;
    buf_init(&b, 16u << 20);
    openapi_v2_json(&b);
    cJSON *j = parsed(&b);
    const cJSON *d = get(j, "definitions");
    assert_true(refs_resolve(j, d, "#/definitions/") > 100);
    check_workload_patch(j);
    const cJSON *w = get(d, "dev.hanse.v1alpha1.Workload");
    assert_string_equal(get(get(w, "x-kubernetes-group-version-kind")->child, "kind")->valuestring,
                        "Workload");
    assert_non_null(get(d, "io.k8s.api.core.v1.Namespace"));
    assert_non_null(get(d, "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"));
    assert_null(get(get(get(d, "io.k8s.api.core.v1.Secret"), "properties"), "sealed"));
    cJSON_Delete(j);
}

static void test_v3(void **state)
{
    AUTO_BUF index = {0};
    unsigned groups = 0;

    (void)state;
    buf_init(&index, 1u << 20);
    openapi_v3_index(&index);
    cJSON *j = parsed(&index);
    for (const cJSON *p = get(j, "paths")->child; p; p = p->next, groups++) {
        AUTO_BUF b = {0};
        char group[64] = "", version[32];
        buf_init(&b, 16u << 20);
        if (sscanf(p->string, "apis/%63[^/]/%31s", group, version) != 2)
            assert_int_equal(sscanf(p->string, "api/%31s", version), 1);
        if (!strncmp(p->string, "api/", 4))
            group[0] = 0;
        assert_int_equal(openapi_v3_group(group, version, &b, NULL), 0);
        cJSON *doc = parsed(&b);
        assert_true(refs_resolve(doc, get(get(doc, "components"), "schemas"),
                                 "#/components/schemas/") > 10);
        if (!strcmp(group, "hanse.dev"))
            check_workload_patch(doc);
        cJSON_Delete(doc);
    }
    assert_int_equal(groups, 4);
    cJSON_Delete(j);
    buf_reset(&index);
    assert_int_equal(openapi_v3_group("nobody.dev", "v1", &index, NULL), E_NOTFOUND);
}

/* ---- protobuf: read back by hand ---- */
struct pb {
    const unsigned char *p, *end;
};

static uint64_t pb_varint(struct pb *b)
{
    uint64_t v = 0;

    for (unsigned shift = 0; shift < 64; shift += 7) {
        assert_true(b->p < b->end);
        v |= (uint64_t)(*b->p & 0x7f) << shift;
        if (!(*b->p++ & 0x80))
            break;
    }
    return v;
}

static bool pb_next(struct pb *b, unsigned *field, struct pb *inner)
{
    if (b->p == b->end)
        return false;
    uint64_t key = pb_varint(b);
    *field = (unsigned)(key >> 3);
    if ((key & 7) == 0) {
        (void)pb_varint(b);
        *inner = (struct pb){b->p, b->p};
        return true;
    }
    assert_int_equal(key & 7, 2);
    uint64_t n = pb_varint(b);
    assert_true(n <= (uint64_t)(b->end - b->p));
    *inner = (struct pb){b->p, b->p + n};
    b->p += n;
    return true;
}

static void test_gnostic(void **state)
{
    AUTO_BUF b = {0};
    unsigned field, paths = 0, definitions = 0;
    bool workload = false;
    struct pb all, top, item, name;

    (void)state;
    buf_init(&b, 16u << 20);
    openapi_v2_proto(&b);
    assert_false(b.failed);
    all = (struct pb){(unsigned char *)b.p, (unsigned char *)b.p + b.n};
    while (pb_next(&all, &field, &top)) {
        unsigned outer = field;
        while (outer >= 8 && pb_next(&top, &field, &item)) {
            paths += outer == 8;
            definitions += outer == 9;
            assert_true(pb_next(&item, &field, &name) && field == 1);
            workload = workload || (name.end - name.p == 27 &&
                                    !memcmp(name.p, "dev.hanse.v1alpha1.Workload", 27));
        }
    }
    assert_true(paths > 60 && definitions > 100 && workload);
}

static void test_reference(void **state)
{
    AUTO_BUF b = {0};

    (void)state;
    buf_init(&b, 4u << 20);
    reference_markdown(&b);
    assert_false(b.failed);
    assert_non_null(strstr(b.p, "| `spec.gang.workers` | integer | processes that start together "
                                "or not at all; default 1 |"));
}

/* ---- cells ---- */
static void cell(const struct object *o, const char *name, int64_t now, const char *want)
{
    for (unsigned i = 0; i < o->kind->n_columns; i++) {
        if (strcmp(o->kind->columns[i].name, name))
            continue;
        AUTO_BUF b = {0};
        buf_init(&b, 1000);
        column_cell(&o->kind->columns[i], o, now, &b);
        assert_string_equal(b.n ? b.p : "", want);
        return;
    }
    fail_msg("no column %s", name);
}

static void test_cells(void **state)
{
    struct gpu gpus[] = {{.class_ = "h100"}, {.class_ = "h100"}, {.class_ = "a100"}};
    struct node_spec spec = {.gpus = gpus, .n_gpus = 3, .cpu = 64500, .memory = 1 << 30};
    struct meta meta = {.name = "n1", .creationTimestamp = 1000000};
    struct node n = {.metadata = &meta, .spec = &spec};
    struct condition c[] = {{.type = "Healthy", .status = COND_FALSE},
                            {.type = "Connected", .status = COND_TRUE}};
    struct target_status ts = {.conditions = c, .n_conditions = 2};
    struct target t = {.metadata = &meta, .status = &ts};

    (void)state;
    struct object *o = object_make(kind_by_id(KIND_NODE), &n);
    cell(o, "NAME", 0, "n1");
    cell(o, "AGE", 1000000 + 300000, "5m");
    cell(o, "GPU-CLASS", 0, "2×h100,a100");
    cell(o, "CPU", 0, "64500m");
    cell(o, "MEMORY", 0, "1Gi");
    cell(o, "HEALTH", 0, "");
    o = object_unref(o);
    o = object_make(kind_by_id(KIND_TARGET), &t);
    cell(o, "CONNECTED", 0, "True");
    o = object_unref(o);
    const struct kind *all[KIND_LIMIT];
    size_t nk = kind_all(all, KIND_LIMIT); /* each path of each kind leads to a field */
    for (size_t i = 0; i < nk; i++) {
        AUTO_ARENA a = arena_create(0);
        o = object_make(all[i], arena_alloc(a, all[i]->schema->size));
        for (unsigned j = 0; j < all[i]->n_columns; j++)
            cell(o, all[i]->columns[j].name, 0, "");
        o = object_unref(o);
    }
}

/* ---- the documents that set the tone ---- */
static void test_examples_parse(void **state)
{
    FILE *f = fopen("tests/golden/examples.yaml", "r");
    static char text[65536];
    struct yaml_doc *docs;
    struct err e = {0};
    size_t n, size;

    (void)state;
    assert_non_null(f);
    size = fread(text, 1, sizeof text, f);
    (void)fclose(f);
    if (yaml_parse_all(text, size, "examples.yaml", &docs, &n, &e) < 0)
        fail_msg("%s", e.text);
    assert_int_equal(n, 6);
    for (size_t i = 0; i < n; i++) {
        struct object *o = NULL;
        const struct kind *k = kind_by_api(get(docs[i].json, "apiVersion")->valuestring,
                                           get(docs[i].json, "kind")->valuestring);
        assert_non_null(k);
        if (object_from_json(k, docs[i].json, DECODE_USER, &o, &e) < 0 ||
            object_validate(o, &e) < 0)
            fail_msg("line %d: %s", yaml_line_of(&docs[i], e.field), e.text);
        o = object_unref(o);
    }
    yaml_docs_free(docs, n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_v2),      cmocka_unit_test(test_v3),
        cmocka_unit_test(test_gnostic), cmocka_unit_test(test_reference),
        cmocka_unit_test(test_cells),   cmocka_unit_test(test_examples_parse)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
