/* The contract of the descriptor table of kinds. tests/golden/schema.fp (test_schema.c) keeps tags
 * and types; here: numbers, names, groups and flags of the kinds (tests/golden/kinds.txt, written
 * anew with HANSE_GOLDEN_WRITE=1: lines are added, never changed: the numbers are in the log, the
 * names in users' files), a sentence for every field, columns, OpenAPI, and a document of every
 * kind (tests/golden/kinds.yaml) that goes through all forms and back. */
#include "api/schema/schema.h"
#include "tests/support/unit.h"
#include "tests/support/golden/golden.h"

#include <cjson/cJSON.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOW_MS 1795234567890
#define FILE_MAX (1u << 20)

static size_t kinds(const struct kind **all)
{
    size_t n = kind_all(all, KIND_LIMIT);

    assert_true(n >= 25 && n <= KIND_LIMIT);
    return n;
}

static void test_names_stay(void **state)
{
    const struct kind *all[KIND_LIMIT];
    struct golden g;
    char have[256];

    (void)state;
    golden_open(&g, "kinds.txt");
    for (size_t i = 0, n = kinds(all); i < n; i++) {
        const struct kind *k = all[i];
        (void)snprintf(have, sizeof have, "%d %s %s %s %s %s %s%s%s\n", (int)k->id, k->kind,
                       k->plural, k->singular, *k->shorts ? k->shorts : "-", kind_api_version(k),
                       k->namespaced ? "namespaced" : "cluster",
                       k->flags & KINDF_RO ? " readonly" : "",
                       k->flags & KINDF_STATUSSUB ? " status" : "");
        golden_next(&g, have);
        assert_ptr_equal(kind_by_id(k->id), k);
        assert_ptr_equal(kind_by_name(k->kind), k);
        assert_ptr_equal(kind_by_plural(k->group, k->plural), k);
        assert_ptr_equal(kind_by_plural(NULL, k->singular), k);
        assert_ptr_equal(kind_by_api(kind_api_version(k), k->kind), k);
    }
    golden_close(&g, true);
}

/* ---- fields and columns ---- */
static void test_every_field_has_its_sentence(void **state)
{
    const struct schema *all[] = {
#define X(s) &schema_##s,
        SCHEMAS_ALL(X)
#undef X
    };

    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        assert_true(all[i]->n > 0 && all[i]->n <= 64); /* bits of `has` */
        for (unsigned j = 0; j < all[i]->n; j++) {
            const struct field *f = &all[i]->fields[j];
            if (!f->doc || strlen(f->doc) < 2)
                fail_msg("%s.%s has no sentence", all[i]->name, f->name);
            assert_int_equal(f->sub != NULL, f->type == T_OBJ || f->type == T_LIST);
            assert_int_equal(f->en != NULL, f->type == T_ENUM || f->type == T_ENUMS);
            assert_true(f->tag > 0);
            for (unsigned l = 0; l < j; l++) {
                if (all[i]->fields[l].tag == f->tag)
                    fail_msg("%s: tag %u twice", all[i]->name, f->tag);
                if (*f->json && strcmp(all[i]->fields[l].json, f->json) == 0)
                    fail_msg("%s: \"%s\" twice", all[i]->name, f->json);
            }
        }
    }
}

/* Does ".spec.gpus[*].class" lead through fields that there are? */
static bool path_is_known(const struct schema *s, const char *path)
{
    while (*path == '.') {
        char name[64];
        const struct field *f = NULL;
        size_t n = strcspn(++path, ".[");

        (void)snprintf(name, sizeof name, "%.*s", (int)n, path);
        for (unsigned i = 0; i < s->n; i++)
            if (strcmp(s->fields[i].json, name) == 0)
                f = &s->fields[i];
        if (!f)
            return false;
        path += n;
        if (*path == '[') {
            path += strcspn(path, "]") + 1;
            if (f->type != T_LIST && f->type != T_STRS && f->type != T_ENUMS)
                return false;
        }
        if (*path == '.' && !f->sub)
            return false;
        s = f->sub;
    }
    return *path == '\0';
}
static void test_columns(void **state)
{
    static const char *const types[] = {"string", "integer", "number", "date"};
    const struct kind *all[KIND_LIMIT];

    (void)state;
    for (size_t i = 0, n = kinds(all); i < n; i++) {
        if (strcmp(all[i]->group, "hanse.dev") == 0 && all[i]->n_columns == 0)
            fail_msg("%s has no column of its own", all[i]->kind);
        for (unsigned c = 0; c < all[i]->n_columns; c++) {
            const struct column *x = &all[i]->columns[c];
            bool known = false;
            for (size_t t = 0; t < sizeof types / sizeof types[0]; t++)
                known |= strcmp(types[t], x->type) == 0;
            const char *of = strchr(x->path, '/');
            char path[64];
            (void)snprintf(path, sizeof path, "%.*s",
                           of ? (int)(of - x->path) : (int)strlen(x->path), x->path);
            if (!known || !*x->doc || !path_is_known(all[i]->schema, path) ||
                (of && !path_is_known(all[i]->schema, of + 1)))
                fail_msg("%s: column %s (%s, %s)", all[i]->kind, x->name, x->type, x->path);
            for (const char *p = x->name; *p; p++)
                assert_true(isupper((unsigned char)*p) || *p == '-');
        }
    }
}

/* ---- OpenAPI ---- */
static bool has_schema_of(const cJSON *schemas, const struct kind *k)
{
    const cJSON *s, *g;

    cJSON_ArrayForEach(s, schemas)
    {
        const cJSON *gvks = cJSON_GetObjectItemCaseSensitive(s, "x-kubernetes-group-version-kind");
        cJSON_ArrayForEach(g, gvks)
        {
            const cJSON *group = cJSON_GetObjectItemCaseSensitive(g, "group");
            const cJSON *kind = cJSON_GetObjectItemCaseSensitive(g, "kind");
            const cJSON *version = cJSON_GetObjectItemCaseSensitive(g, "version");
            if (strcmp(kind->valuestring, k->kind) == 0 &&
                strcmp(group->valuestring, k->group) == 0 &&
                strcmp(version->valuestring, k->version) == 0)
                return cJSON_GetObjectItemCaseSensitive(s, "properties") != NULL;
        }
    }
    return false;
}
static void test_openapi_has_every_kind(void **state)
{
    const struct kind *all[KIND_LIMIT];
    AUTO_BUF v2;
    AUTO_BUF v3;
    struct err e;

    (void)state;
    buf_init(&v2, 16u << 20);
    openapi_v2_json(&v2);
    cJSON *two = cJSON_ParseWithLength(v2.p, v2.n);
    const cJSON *definitions = cJSON_GetObjectItemCaseSensitive(two, "definitions");
    assert_non_null(definitions);
    for (size_t i = 0, n = kinds(all); i < n; i++) {
        if (!has_schema_of(definitions, all[i]))
            fail_msg("OpenAPI v2 has no %s", all[i]->kind);
        buf_init(&v3, 16u << 20);
        if (openapi_v3_group(all[i]->group, all[i]->version, &v3, &e))
            fail_msg("%s", e.text);
        cJSON *three = cJSON_ParseWithLength(v3.p, v3.n);
        const cJSON *schemas = cJSON_GetObjectItemCaseSensitive(
            cJSON_GetObjectItemCaseSensitive(three, "components"), "schemas");
        if (!has_schema_of(schemas, all[i]))
            fail_msg("OpenAPI v3 of %s/%s has no %s", all[i]->group, all[i]->version, all[i]->kind);
        cJSON_Delete(three);
        buf_fini(&v3);
    }
    cJSON_Delete(two);
}

/* ---- a document of every kind ---- */
static struct object *decoded(const struct kind *k, const cJSON *j)
{
    struct object *o = NULL;
    struct err e;

    if (object_from_json(k, j, DECODE_USER | DECODE_STATUS, &o, &e) || object_validate(o, &e))
        fail_msg("%s: %s: %s", k->kind, e.field, e.text);
    return o;
}

static void same_object(const struct object *a, const struct object *b)
{
    AUTO_BUF x;
    AUTO_BUF y;

    buf_init(&x, FILE_MAX);
    buf_init(&y, FILE_MAX);
    object_encode(a, &x);
    object_encode(b, &y);
    assert_int_equal(x.n, y.n);
    assert_memory_equal(x.p, y.p, x.n);
    assert_true(a->digest == b->digest);
}

static void through_all_forms(const struct kind *k, const cJSON *document)
{
    struct object *o = decoded(k, document), *again = NULL;
    AUTO_BUF b;
    struct yaml_doc *docs;
    size_t n;
    struct err e;

    buf_init(&b, FILE_MAX);
    object_encode(o, &b); /* the log */
    assert_int_equal(object_decode(k, slice_make(b.p, b.n), &again, &e), 0);
    same_object(o, again);
    again = object_unref(again);
    cJSON *j = NULL; /* JSON, as a tree and as text */
    assert_int_equal(object_to_json(o, &j, NULL), 0);
    again = decoded(k, j);
    same_object(o, again);
    again = object_unref(again);
    buf_reset(&b);
    object_print_json(o, &b);
    cJSON *printed = NULL;
    assert_int_equal(json_parse(b.p, b.n, &printed, &e), 0);
    assert_true(cJSON_Compare(j, printed, true));
    cJSON_Delete(printed);
    buf_reset(&b);
    yaml_print(j, &b); /* YAML */
    if (yaml_parse_all(b.p, b.n, "printed", &docs, &n, &e))
        fail_msg("%s: %s", k->kind, e.text);
    assert_int_equal(n, 1);
    again = decoded(k, docs[0].json);
    same_object(o, again);
    again = object_unref(again);
    yaml_docs_free(docs, n);
    cJSON_Delete(j);
    for (unsigned c = 0; c < k->n_columns; c++) { /* tables */
        buf_reset(&b);
        column_cell(&k->columns[c], o, NOW_MS, &b);
        assert_false(b.failed);
    }
    assert_int_equal(object_validate_update(o, o, &e), 0);
    (void)object_unref(o);
}

static void test_documents_of_every_kind(void **state)
{
    FILE *f = fopen("tests/golden/kinds.yaml", "r");
    const struct kind *all[KIND_LIMIT];
    size_t n = kinds(all), n_docs;
    struct yaml_doc *docs;
    struct err e;
    char *text = calloc(1, FILE_MAX);

    (void)state;
    assert_non_null(f);
    size_t len = fread(text, 1, FILE_MAX - 1, f);
    (void)fclose(f);
    if (yaml_parse_all(text, len, "kinds.yaml", &docs, &n_docs, &e))
        fail_msg("%s", e.text);
    for (size_t i = 0; i < n; i++) {
        unsigned found = 0;
        for (size_t d = 0; d < n_docs; d++) {
            const cJSON *kind = cJSON_GetObjectItemCaseSensitive(docs[d].json, "kind");
            if (strcmp(kind->valuestring, all[i]->kind) != 0)
                continue;
            found++;
            through_all_forms(all[i], docs[d].json);
        }
        if (!found)
            fail_msg("tests/golden/kinds.yaml has no %s", all[i]->kind);
    }
    yaml_docs_free(docs, n_docs);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_stay),
        cmocka_unit_test(test_every_field_has_its_sentence),
        cmocka_unit_test(test_columns),
        cmocka_unit_test(test_openapi_has_every_kind),
        cmocka_unit_test(test_documents_of_every_kind),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
