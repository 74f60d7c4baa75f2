/* The walkers over kinds.def: what goes in comes out, for every kind, through JSON, YAML and log
 * bytes. */
#include "api/schema/schema.h"
#include "tests/support/unit.h"
#include "api/schema/schema_internal.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 2000 };

/* ---- random bodies ---- */
static uint64_t seed = 88172645463325252u;

static uint64_t rnd(uint64_t below)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed % below;
}

static const char *rnd_text(struct arena *a, const struct field *f)
{
    static const char *const bits[] = {
        "a", "Z",  "7", "true", ": ",   "\"", "\\",       "\n",           "ä",   "€",
        "#", "- ", "😀", "\t",   "null", " ",  "\xc2\x85", "\xe2\x80\xa9", "\x7f"};
    char text[512] = "";
    size_t hi = f->hi > 0 && f->hi < 200 ? (size_t)f->hi : 200, lo = f->lo > 1 ? (size_t)f->lo : 1;
    size_t want = lo + rnd(hi - lo + 1);

    while (strlen(text) < want) {
        const char *b = bits[rnd(sizeof bits / sizeof bits[0])];
        if (strlen(text) + strlen(b) > hi)
            b = "x";
        (void)memccpy(text + strlen(text), b, 0, strlen(b) + 1);
    }
    return arena_strdup(a, text);
}

static int64_t rnd_int(const struct field *f)
{
    switch (f->type) {
    case T_BOOL:
        return (int64_t)rnd(2);
    case T_ENUM:
        return f->en->values[rnd(f->en->n)].value;
    case T_TIME:
        return ((int64_t)rnd(4000000000) + 1) * 1000; /* some fields hold whole seconds */
    default:
        break;
    }
    if (f->lo != 0 || f->hi != 0)
        return (int64_t)f->lo + (int64_t)rnd((uint64_t)(f->hi - f->lo) + 1);
    return (int64_t)rnd(UINT64_C(1) << (1 + rnd(52)));
}

static void fill(const struct schema *s, char *body, struct arena *a, unsigned density);

static void fill_items(const struct field *f, char *body, struct arena *a)
{
    uint32_t n = 1 + (uint32_t)rnd(f->hi > 0 && f->hi < 3 ? (uint64_t)f->hi : 3);
    size_t size = f->type == T_LIST    ? f->sub->size
                  : f->type == T_MAP   ? sizeof(struct kv)
                  : f->type == T_ENUMS ? sizeof(int)
                                       : 8;
    char *items = arena_alloc(a, n * size);

    for (uint32_t i = 0; i < n; i++) {
        if (f->type == T_LIST)
            fill(f->sub, items + i * size, a, 60);
        else if (f->type == T_STRS)
            ((const char **)(void *)items)[i] = rnd_text(a, &(struct field){.hi = 20});
        else if (f->type == T_ENUMS)
            ((int *)(void *)items)[i] = f->en->values[rnd(f->en->n)].value;
        else if (f->type == T_I64S)
            ((int64_t *)(void *)items)[i] = (int64_t)rnd(1u << 20) - 1000;
        else
            ((struct kv *)(void *)items)[i] =
                (struct kv){arena_printf(a, "example.dev/k%u", 9 - i),
                            arena_printf(a, "v%u", (unsigned)rnd(100))};
    }
    *(void **)(void *)(body + f->off) = items;
    *(uint32_t *)(void *)(body + f->off_n) = n;
}

static void fill_field(const struct field *f, char *body, struct arena *a)
{
    void *at = body + f->off;
    int64_t v;

    *(uint64_t *)(void *)body |= (uint64_t)1 << f->bit;
    switch (f->type) {
    case T_STR:
    case T_QTY:
        *(const char **)at = rnd_text(a, f);
        break;
    case T_F64:
        *(double *)at = f->hi > 0 ? f->lo + (f->hi - f->lo) * (double)rnd(1000003) / 1000003.0
                                  : (double)rnd(1000003) / 7.0;
        break;
    case T_PCT:
        *(double *)at = (double)rnd(1000003) / 1000003.0;
        break;
    case T_OBJ: {
        char *sub = arena_alloc(a, f->sub->size);
        fill(f->sub, sub, a, 60);
        *(void **)at = sub;
        break;
    }
    case T_RAW:
        *(struct slice *)at = slice_make("{\"a\":[1,1.50,\"x\",null,-3e5],\"b\":{}}", 35);
        break;
    case T_B64:
        *(struct slice *)at = slice_make("\0\1sealed", 8);
        break;
    case T_LIST:
    case T_STRS:
    case T_ENUMS:
    case T_I64S:
    case T_MAP:
        fill_items(f, body, a);
        break;
    case T_BOOL:
        *(bool *)at = rnd(2);
        break;
    case T_ENUM:
        *(int *)at = (int)rnd_int(f);
        break;
    default:
        v = rnd_int(f);
        *(int64_t *)at = v;
    }
}

static void fill(const struct schema *s, char *body, struct arena *a, unsigned density)
{
    for (unsigned i = 0; i < s->n; i++)
        if (s->fields[i].sub == &schema_meta || s->fields[i].flags & FIELD_REQ ||
            s->fields[i].def || rnd(100) < density)
            if (*s->fields[i].json) /* what has none is never in JSON */
                fill_field(&s->fields[i], body, a);
    if (s == &schema_meta) {
        ((struct meta *)(void *)body)->name = "resnet-a.7";
        ((struct meta *)(void *)body)->namespace_ = "";
    }
}

static void same(const struct object *a, const struct object *b)
{
    assert_int_equal(a->bytes, b->bytes);
    assert_memory_equal(a->log, b->log, a->bytes);
    assert_true(a->digest == b->digest);
}

static void round_trip(const struct kind *k)
{
    AUTO_ARENA a = arena_create(0);
    AUTO_BUF json = {0}, yaml = {0}, log = {0};
    struct object *from_json = NULL, *from_log = NULL, *from_yaml = NULL;
    struct yaml_doc *docs;
    struct err e = {0};
    size_t n;
    cJSON *j;

    buf_init(&json, 1u << 20);
    buf_init(&yaml, 1u << 20);
    buf_init(&log, 1u << 20);
    char *body = arena_alloc(a, k->schema->size);
    fill(k->schema, body, a, 70);
    struct object *o = object_make(k, body);
    object_print_json(o, &json);
    if (json_parse(json.p, json.n, &j, &e) < 0 || object_from_json(k, j, 0, &from_json, &e) < 0)
        fail_msg("%s: %s in %s", k->kind, e.text, json.p);
    same(o, from_json);
    yaml_print(j, &yaml);
    if (yaml_parse_all(yaml.p, yaml.n, "f", &docs, &n, &e) < 0 || n != 1 ||
        object_from_json(k, docs[0].json, 0, &from_yaml, &e) < 0)
        fail_msg("%s: %s in %s", k->kind, e.text, yaml.p);
    same(o, from_yaml);
    object_encode(o, &log);
    assert_int_equal(object_decode(k, slice_make(log.p, log.n), &from_log, &e), 0);
    same(o, from_log);
    /* counted before it is taken: an object's arena holds nothing in reserve */
    assert_int_equal(arena_used(from_log->mem),
                     ((sizeof *o + 15) & ~(size_t)15) + ((log.n + 15) & ~(size_t)15) +
                         tlv_memory(k->schema, slice_make(log.p, log.n), SIZE_MAX));
    assert_true(body_equal(k->schema, o->body, from_log->body));
    struct object *edited = object_make(k, object_edit(o, a));
    same(o, edited);
    cJSON_Delete(j);
    yaml_docs_free(docs, n);
    (void)object_unref(edited);
    (void)object_unref(from_log);
    (void)object_unref(from_json);
    (void)object_unref(from_yaml);
    (void)object_unref(o);
}

static void test_round_trips(void **state)
{
    const struct kind *all[KIND_LIMIT];
    size_t n = kind_all(all, KIND_LIMIT);

    (void)state;
    assert_true(n > 0);
    for (size_t i = 0; i < n; i++)
        for (unsigned r = 0; r < ROUNDS; r++)
            round_trip(all[i]);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_round_trips)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
