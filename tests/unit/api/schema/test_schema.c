/* The walkers over kinds.def: what is wrong is said so in words; forms, flags and tags stay what
 * they are. (That what goes in comes out: test_round_trip.c.) */
#include "api/schema/quota.h"
#include "tests/support/unit.h"
#include "api/schema/schema.h"
#include "api/schema/schema_internal.h"
#include "tests/support/golden/golden.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what is too large ---- */
static struct workload *with_args(const char *const *args, uint32_t n)
{
    static struct run_spec run;
    static struct workload_spec spec;
    static struct workload w;

    run = (struct run_spec){.args = (const char **)(uintptr_t)args, .n_args = n};
    spec = (struct workload_spec){.run = &run};
    w = (struct workload){.spec = &spec};
    return &w;
}

/* It is an error with the field's name, and no end of the process. */
static void test_what_is_too_large(void **state)
{
    const size_t n = 9u << 20; /* six bytes each in JSON */
    char *text = mem_alloc(n + 1);
    const char *const args[] = {"a", text};
    const struct workload *w = with_args(args, 2);
    struct object *o = NULL;
    struct cJSON *j = NULL;
    struct err e;
    AUTO_BUF b;

    (void)state;
    memset(text, 1, n);
    text[n] = 0;
    buf_init(&b, 1u << 20);
    assert_int_equal(tlv_encode(&schema_workload, w, &b, &e), E_TOOLARGE);
    assert_string_equal(e.field, "spec.run.args[1]");
    assert_string_equal(e.text, "a Workload would be larger than 1048576 bytes, at "
                                "spec.run.args[1]: make it smaller");
    buf_reset(&b);
    assert_int_equal(body_print_json(&schema_run_spec, w->spec->run, &b, &e), E_TOOLARGE);
    assert_string_equal(e.field, "args[1]");
    assert_int_equal(body_to_json(&schema_workload, w, &j, &e), E_TOOLARGE);
    assert_string_equal(e.field, "spec.run.args[1]");
    assert_int_equal(object_make_within(kind_by_name("Workload"), w, 1u << 20, &o, &e), E_TOOLARGE);
    assert_string_equal(e.field, "spec.run.args[1]");
    assert_int_equal(object_make_within(kind_by_name("Workload"), w, 10u << 20, &o, &e), 0);
    assert_int_equal(object_to_json(o, &j, &e), E_TOOLARGE);
    assert_string_equal(e.field, "spec.run.args[1]");
    assert_null(j);
    (void)object_unref(o);
    mem_free(text);
}

/* ---- refusals ---- */
static int from_yaml(const char *text, unsigned flags, struct object **ret, struct err *e)
{
    struct yaml_doc *docs;
    size_t n;
    int r = yaml_parse_all(text, strlen(text), "f.yaml", &docs, &n, e);

    if (r < 0)
        return r;
    const cJSON *kind = cJSON_GetObjectItem(docs[0].json, "kind");
    r = object_from_json(kind_by_name(kind->valuestring), docs[0].json, flags, ret, e);
    yaml_docs_free(docs, n);
    if (r == 0) {
        r = object_validate(*ret, e);
        if (r < 0)
            *ret = object_unref(*ret);
    }
    return r;
}

static void refused(const char *kind, const char *spec, const char *said)
{
    char text[2048];
    struct object *o = NULL;
    struct err e = {0};

    (void)snprintf(text, sizeof text,
                   "apiVersion: hanse.dev/v1alpha1\nkind: %s\nmetadata: {name: a}\nspec: %s\n",
                   kind, spec);
    if (from_yaml(text, DECODE_USER, &o, &e) == 0)
        fail_msg("taken: %s", text);
    if (!strstr(e.text, said))
        fail_msg("for %s\nsaid %s\nnot  %s", spec, e.text, said);
}

static void test_errors_say_what_is_wrong(void **state)
{
    (void)state;
    refused("Workload", "{run: {command: [a]}, gang: {worker: 4}}",
            "spec.gang.worker: unknown field; did you mean workers?");
    refused("Workload", "{run: {command: [a]}, workers: 4}",
            "spec.workers: unknown field; did you mean gang.workers?");
    refused("Workload", "{run: {command: [a]}, gang: {workers: four}}",
            "spec.gang.workers: expected an integer, found the string \"four\"");
    refused("Workload", "{run: {command: [a]}, gang: {workers: 1.5}}",
            "expected an integer, found the number 1.5");
    refused("Workload", "{run: {command: [a]}, gang: {workers: 5000}}",
            "out of range; expected 1 to 4096");
    refused("Workload", "{run: {command: [a]}, gang: {workers: 2, minWorkers: 3}}",
            "3 is more than workers (2)");
    refused("Workload", "{run: {command: [a]}, checkpoint: {grace: 90}}",
            "spec.checkpoint.grace: \"90\" has no unit; write 90s");
    refused("Workload", "{run: {command: [a]}, checkpoint: {interval: 20}}", "put it in quotes");
    refused("Workload", "{run: {command: [a]}, checkpoint: {interval: soon}}", "is not a duration");
    refused("Workload", "{run: {command: [a]}, partition: {mode: replace, acceptTwo: true}}",
            "two copies at once are not supported");
    refused("Workload", "{run: {command: [a]}, checkpoint: {signal: SIGFOO}}", "expected SIGTERM");
    refused("Workload", "{run: {command: [a, 1]}}",
            "spec.run.command[1]: expected a string, found the number 1; put it in quotes");
    refused("Workload", "{run: {command: [a], script: b}}", "only one of");
    refused("Workload", "{run: {}}", "says nothing to run");
    refused("Workload", "{}", "spec.run: is required");
    refused("Workload", "{run: {command: [a]}, deadline: tomorrow}",
            "spec.deadline: \"tomorrow\" is not a time");
    refused("Workload", "{run: {command: [a]}, resources: {memory: lots}}", "is not a quantity");
    refused("Workload", "{run: {command: [a]}, resources: {gpu: {count: 1, mig: 3g.40gb}}}",
            "only one of count, fraction and mig");
    refused("Workload", "[1]", "spec: expected an object, found a list");
    refused("Target", "{type: kubernetes, tier: hubb}",
            "\"hubb\" is not known; did you mean hub?; expected hub, spoke or burst");
    refused("PriceSheet", "{gpuHour: [{clas: x}]}",
            "spec.gpuHour[0].clas: unknown field; did you mean class?");
    refused("PriceSheet", "{gpuHour: [{class: x}]}", "spec.gpuHour[0]: has no price");
    refused("Queue", "{gpus: [{class: a, guaranteed: 8, burst: 4}]}",
            "4 is less than guaranteed (8)");
    refused("PlacementPolicy", "{windows: [{from: \"25:00\", to: \"18:00\", timezone: UTC}]}",
            "is not a time of day");
    refused("PlacementPolicy",
            "{windows: [{from: \"08:00\", to: \"18:00\", timezone: \"Mars Base\"}]}", "IANA");
    refused("PlacementPolicy", "{workloads: {matchExpressions: [{key: a, operator: In}]}}",
            "In needs at least one value");
    refused("PlacementPolicy", "{migrate: {minSaving: 150%}}", "out of range; expected 0 to 1");
    refused("Migration", "{to: fra-hub}", "spec.workload: is required");
    refused("Migration", "{workload: a/b}", "spec.workload: \"a/b\" is not the name of a workload");
    refused("Migration", "{workload: a, to: Fra Hub}", "spec.to: \"Fra Hub\" is not the name");
    refused("Migration", "{workload: a, cause: boredom}", "spec.cause");
}

static void test_names_and_labels(void **state)
{
    struct object *o;
    struct err e;

    (void)state;
    assert_int_equal(from_yaml("apiVersion: v1\nkind: Namespace\nmetadata: {name: Big}", 1, &o, &e),
                     E_INVALID);
    assert_string_equal(e.field, "metadata.name");
    assert_int_equal(
        from_yaml("apiVersion: v1\nkind: Namespace\nmetadata: {name: a, labels: {x: 1}}", 1, &o,
                  &e),
        E_INVALID);
    assert_non_null(strstr(
        e.text, "metadata.labels.x: expected a string, found the number 1; put it in quotes"));
    assert_int_equal(
        from_yaml("apiVersion: v1\nkind: Namespace\nmetadata: {name: a, labels: {x: \"a b\"}}", 1,
                  &o, &e),
        E_INVALID);
    assert_int_equal(from_yaml("apiVersion: v2\nkind: Namespace\nmetadata: {name: a}", 1, &o, &e),
                     E_INVALID);
    assert_non_null(strstr(e.text, "\"v1\" expected"));
    assert_int_equal(from_yaml("apiVersion: rbac.authorization.k8s.io/v1\nkind: "
                               "ClusterRole\nmetadata: {name: 'system:Admin'}",
                               1, &o, &e),
                     0);
    o = object_unref(o);
}

static void quota_said(const char *hard, const char *field, const char *said)
{
    char text[512];
    struct object *o = NULL;
    struct err e = {0};

    (void)snprintf(text, sizeof text,
                   "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: a, namespace: b}\n"
                   "spec: {hard: {%s}}\n",
                   hard);
    assert_int_equal(from_yaml(text, DECODE_USER, &o, &e), 0);
    int r = object_admit(NULL, o, &e);
    o = object_unref(o);
    if (!said) {
        assert_int_equal(r, 0);
        return;
    }
    assert_int_equal(r, E_INVALID);
    assert_string_equal(e.field, field);
    if (!strstr(e.text, said))
        fail_msg("for %s\nsaid %s\nnot  %s", hard, e.text, said);
}

static void test_what_a_quota_takes(void **state)
{
    const struct kind *all[KIND_LIMIT];
    size_t n = kind_all(all, KIND_LIMIT);
    char hard[128], field[128];

    (void)state;
    for (size_t i = 0; i < n; i++) {
        const struct kind *k = all[i];
        bool made = k->id == KIND_CHECKPOINT || k->id == KIND_DECISION;

        (void)snprintf(hard, sizeof hard, "count/%s%s%s: 3", k->plural, *k->group ? "." : "",
                       k->group);
        (void)snprintf(field, sizeof field, "spec.hard[%.*s]", (int)strlen(hard) - 3, hard);
        quota_said(hard, field, !k->namespaced ? "in no namespace" : made ? "makes" : NULL);
        (void)snprintf(hard, sizeof hard, "count/%s: \"3\"", k->plural);
        (void)snprintf(field, sizeof field, "spec.hard[count/%s]", k->plural);
        quota_said(hard, field, !k->namespaced ? "in no namespace" : made ? "makes" : NULL);
    }
    quota_said("secrets: 1k, resourcequotas: 2", "", NULL);
    quota_said("pods: 10", "spec.hard[pods]", "limit GPUs by a Queue");
    quota_said("requests.cpu: 10", "spec.hard[requests.cpu]", "limit GPUs by a Queue");
    quota_said("requests.nvidia.com/gpu: 8", "spec.hard[requests.nvidia.com/gpu]", "by a Queue");
    quota_said("configmaps: 10", "spec.hard[configmaps]", "count/RESOURCE.GROUP");
    quota_said("count/deployments.apps: 10", "spec.hard[count/deployments.apps]",
               "count/RESOURCE.GROUP");
    quota_said("count/workload: 10", "spec.hard[count/workload]", "count/RESOURCE.GROUP");
    quota_said(QUOTA_RATE ": 20", "", NULL);
    quota_said(QUOTA_RATE ": 500m, " QUOTA_BURST ": 1k", "", NULL);
    quota_said(QUOTA_BURST ": 5", "spec.hard[" QUOTA_BURST "]", "give that, too");
    quota_said(QUOTA_RATE ": 0", "spec.hard[" QUOTA_RATE "]", "no rate");
    quota_said(QUOTA_RATE ": 2M", "spec.hard[" QUOTA_RATE "]", "no rate");
    quota_said(QUOTA_RATE ": 1, " QUOTA_BURST ": 0", "spec.hard[" QUOTA_BURST "]", "a whole one");
    quota_said("secrets: 1.5", "spec.hard[secrets]", "a whole one");
    quota_said("secrets: many", "spec.hard[secrets]", "a whole one");
    quota_said("secrets: \"-1\"", "spec.hard[secrets]", "a whole one");
}

static void json_refused(const char *text, size_t n, const char *said)
{
    struct err e = {0};

    assert_int_equal(json_scan(text, n, &e), E_SYNTAX);
    if (!strstr(e.text, said))
        fail_msg("%s: said %s", text, e.text);
}

static void test_json_scanner(void **state)
{
    char deep[200];
    struct err e;

    (void)state;
#define NO(text, said) json_refused(text, sizeof text - 1, said)
    NO("{\"a\":1,\n \"\\u0061\":2}", "line 2, column 2: the key \"a\" stands here twice");
    NO("[\"\\u0000\"]", "\\u0000");
    NO("[9007199254740993]", "2^53");
    NO("[-9007199254740993]", "2^53");
    NO("[1e999]", "too large");
    NO("{} {}", "more text");
    NO("[01]", "expected");
    NO("[1,]", "expected a value");
    NO("[\"\xc3\"]", "UTF-8");
    NO("[\"\\ud800\"]", "surrogate");
    NO("[\"a", "not closed");
    NO("", "ends");
    memset(deep, '[', sizeof deep);
    json_refused(deep, sizeof deep, "too deeply");
    assert_int_equal(json_scan("[9007199254740992,{\"a\":1},{\"a\":1}]", 34, &e), 0);
}

static void yaml_refused(const char *text, const char *said)
{
    struct yaml_doc *docs;
    struct err e = {0};
    size_t n;

    assert_int_equal(yaml_parse_all(text, strlen(text), "f.yaml", &docs, &n, &e), E_SYNTAX);
    if (strncmp(e.text, "f.yaml:", 7) || !strstr(e.text, said))
        fail_msg("%s: said %s", text, e.text);
}

static void test_yaml_refusals(void **state)
{
    (void)state;
    yaml_refused("a: &x 1", "anchors");
    yaml_refused("a: *x", "alias");
    yaml_refused("a: !!str 1", "tags");
    yaml_refused("a: {<<: {b: 1}}", "merge keys");
    yaml_refused("a: 1\nb: 2\na: 3", "f.yaml:3:1: the key \"a\" stands here twice");
    yaml_refused("a: 9007199254740993", "quotes");
    yaml_refused("a: 010", "quotes");
    yaml_refused("a: 0x1f", "quotes");
    yaml_refused("a: .inf", "quotes");
    yaml_refused("? [a]\n: b", "keys must be plain words");
    yaml_refused("a: [1", "f.yaml:");
}

static void test_yaml_scalars(void **state)
{
    static const char text[] = "---\n# nothing\n---\na: no\nb: Norway\nc: true\nd: ~\ne: \"1\"\nf: "
                               "1.50\ng: |\n  x\n  y\nh: 08:00\ni: [x]\n---\nz: 1\n";
    struct yaml_doc *docs;
    struct err e;
    size_t n;

    (void)state;
    assert_int_equal(yaml_parse_all(text, sizeof text - 1, "f", &docs, &n, &e), 0);
    assert_int_equal(n, 2);
    const cJSON *j = docs[0].json;
    assert_string_equal(cJSON_GetObjectItem(j, "a")->valuestring, "no");
    assert_string_equal(cJSON_GetObjectItem(j, "b")->valuestring, "Norway");
    assert_true(cJSON_IsTrue(cJSON_GetObjectItem(j, "c")));
    assert_true(cJSON_IsNull(cJSON_GetObjectItem(j, "d")));
    assert_true(cJSON_IsString(cJSON_GetObjectItem(j, "e")));
    assert_string_equal(cJSON_GetObjectItem(j, "f")->valuestring, "1.50");
    assert_string_equal(cJSON_GetObjectItem(j, "g")->valuestring, "x\ny\n");
    assert_string_equal(cJSON_GetObjectItem(j, "h")->valuestring, "08:00");
    assert_int_equal(yaml_line_of(&docs[0], "i[0]"), 14);
    assert_int_equal(yaml_line_of(&docs[0], "b.deeper"), 5);
    yaml_docs_free(docs, n);
}

/* ---- forms, flags, log ---- */
static void test_short_forms(void **state)
{
    struct object *o;
    struct err e = {0};

    (void)state;
    int r = from_yaml("apiVersion: hanse.dev/v1alpha1\nkind: Workload\nmetadata: {name: a, uid: u, "
                      "resourceVersion: '12', revision: r}\n"
                      "spec: {run: {image: i}, partition: {replaceAfter: 10m}, topology: rack, "
                      "targets: {tier: hub}}\nstatus: {phase: Nonsense}",
                      DECODE_USER, &o, &e);
    if (r < 0)
        fail_msg("%s", e.text);
    const struct workload *w = object_as(o, workload);
    assert_int_equal(w->spec->partition->mode, PARTITION_REPLACE);
    assert_int_equal(w->spec->partition->replaceAfter, 600000);
    assert_int_equal(w->spec->topology->within, LEVEL_RACK);
    assert_int_equal(w->spec->targets->n_tier, 1);
    assert_int_equal(w->spec->type, WORKLOAD_TRAINING);
    assert_null(w->status);
    assert_int_equal(o->meta->resourceVersion, 12);
    assert_string_equal(o->meta->uid, "u");
    assert_string_equal(o->meta->revision, "");
    o = object_unref(o);
    assert_int_equal(from_yaml("apiVersion: hanse.dev/v1alpha1\nkind: Workload\nmetadata: {name: "
                               "a}\nspec: {run: {image: i}, partition: wait, oops: 1}",
                               DECODE_USER | DECODE_LOOSE, &o, &e),
                     0);
    assert_string_equal(e.text, "unknown field \"spec.oops\"");
    o = object_unref(o);
}

static void test_unknown_fields_stay_in_the_log(void **state)
{
    /* prefer_topology knows tag 1; tags 2 and 5 are of a newer version */
    static const unsigned char log[] = {2, 8, 5, 2, 'h', 'i', 10, 6};
    AUTO_ARENA a = arena_create(0);
    AUTO_BUF out = {0};
    void *body;

    (void)state;
    buf_init(&out, 100);
    assert_int_equal(
        tlv_decode(&schema_prefer_topology, slice_make(log, sizeof log), a, &body, NULL), 0);
    assert_int_equal(((struct prefer_topology *)body)->pack, LEVEL_RACK);
    tlv_add(&schema_prefer_topology, body, &out);
    assert_int_equal(out.n, sizeof log);
    assert_memory_equal(out.p, log, sizeof log);
    for (size_t n = 0; n < sizeof log;
         n++) /* cut anywhere: an error or a shorter body, never a crash */
        (void)!tlv_decode(&schema_prefer_topology, slice_make(log, n), a, &body, NULL);
    static const unsigned char twice[] = {2, 8, 2, 8};
    assert_int_equal(tlv_decode(&schema_prefer_topology, slice_make(twice, 4), a, &body, NULL),
                     E_CORRUPT);
}

/* 1,000 arguments of 1,400 control characters: six bytes each in JSON. */
static void test_what_no_runner_can_be_told(void **state)
{
    char arg[1401];
    const char *args[1000];
    struct meta m = {.name = "a", .namespace_ = "default"};
    struct run_spec run = {.script = "", .workingDir = "", .args = args, .n_args = 1000};
    struct workload_spec spec = {.run = &run};
    struct workload w = {.metadata = &m, .spec = &spec};
    struct err e = {0};

    (void)state;
    memset(arg, 7, sizeof arg - 1);
    arg[sizeof arg - 1] = 0;
    for (size_t i = 0; i < 1000; i++)
        args[i] = arg;
    struct object *large = object_make(kind_by_id(KIND_WORKLOAD), &w);
    run.n_args = 400;
    struct object *fits = object_make(kind_by_id(KIND_WORKLOAD), &w);
    assert_int_equal(object_admit(NULL, fits, &e), 0);
    assert_int_equal(object_admit(NULL, large, &e), E_INVALID);
    assert_string_equal(e.field, "spec.run.args");
    assert_non_null(strstr(e.text, "at most 4194304"));
    assert_int_equal(object_admit(fits, large, &e), E_INVALID);
    assert_int_equal(object_admit(large, large, &e), 0); /* it was there before: suspend it, say */
    assert_int_equal(object_admit(large, fits, &e), 0);
    (void)object_unref(large);
    (void)object_unref(fits);
}

/* What is refused to begin with, and stays where it is already. */
static struct object *admitted(const char *script, const char *env, int64_t stop_after)
{
    struct env_var var = {.name = env, .value = "1"};
    struct meta m = {.name = "a", .namespace_ = "default"};
    struct run_spec run = {.script = script, .workingDir = "", .env = &var, .n_env = *env ? 1 : 0};
    struct partition_spec partition = {.mode = PARTITION_STOP, .stopAfter = stop_after};
    struct workload_spec spec = {.run = &run, .partition = &partition};
    struct workload w = {.metadata = &m, .spec = &spec};

    return object_make(kind_by_id(KIND_WORKLOAD), &w);
}
static void test_admitted(void **state)
{
    static const struct {
        const char *script, *env;
        int64_t stop_after;
        const char *field; /* NULL: taken */
    } cases[] = {{"true\n", "A", 5000, NULL},
                 {"#!/bin/bash\ntrue\n", "A_b.c-9", 0, NULL},
                 {"#! /bin/bash", "", 0, NULL},
                 {"#!\ntrue\n", "", 0, "spec.run.script"},
                 {"#! \t\r\ntrue\n", "", 0, "spec.run.script"},
                 {"#!", "", 0, "spec.run.script"},
                 {"true", "A=B", 0, "spec.run.env[0].name"},
                 {"true", "a b", 0, "spec.run.env[0].name"},
                 {"true", "a\nb", 0, "spec.run.env[0].name"},
                 {"true", "9a", 0, "spec.run.env[0].name"},
                 {"true", "A", 2000, "spec.partition.stopAfter"}};
    struct err e = {0};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct object *o = admitted(cases[i].script, cases[i].env, cases[i].stop_after);

        assert_int_equal(object_admit(NULL, o, &e), cases[i].field ? E_INVALID : 0);
        if (cases[i].field)
            assert_string_equal(e.field, cases[i].field);
        assert_int_equal(object_admit(o, o, &e), 0);
        (void)object_unref(o);
    }
}

static void test_immutable_fields(void **state)
{
    AUTO_ARENA a = arena_create(0);
    struct object *o, *p;
    struct err e;

    (void)state;
    assert_int_equal(from_yaml("apiVersion: hanse.dev/v1alpha1\nkind: Target\nmetadata: {name: "
                               "a}\nspec: {type: agent, tier: hub}",
                               1, &o, &e),
                     0);
    struct target *t = object_edit_as(o, target, a);
    t->spec->tier = TIER_SPOKE;
    p = object_make(o->kind, t);
    assert_int_equal(object_validate_update(o, p, &e), 0);
    p = object_unref(p);
    t->spec->type = TARGET_SLURM;
    p = object_make(o->kind, t);
    assert_int_equal(object_validate_update(o, p, &e), E_INVALID);
    assert_string_equal(e.field, "spec.type");
    p = object_unref(p);
    o = object_unref(o);
}

static void test_a_cancelled_move_stays_cancelled(void **state)
{
    AUTO_ARENA a = arena_create(0);
    struct object *o, *p;
    struct err e;

    (void)state;
    assert_int_equal(from_yaml("apiVersion: hanse.dev/v1alpha1\nkind: Migration\nmetadata: {name: "
                               "a}\nspec: {workload: w}",
                               1, &o, &e),
                     0);
    struct migration *m = object_edit_as(o, migration, a);
    assert_int_equal(m->spec->cause, MOVE_ASKED);
    m->spec->cancel = true;
    p = object_make(o->kind, m);
    assert_int_equal(object_validate_update(o, p, &e), 0);
    assert_int_equal(object_validate_update(p, o, &e), E_INVALID);
    assert_string_equal(e.field, "spec.cancel");
    p = object_unref(p);
    m->spec->to = "elsewhere";
    p = object_make(o->kind, m);
    assert_int_equal(object_validate_update(o, p, &e), E_INVALID);
    assert_string_equal(e.field, "spec.to");
    p = object_unref(p);
    o = object_unref(o);
}

static void test_scalars(void **state)
{
    static const struct {
        const char *text;
        int64_t scale, want;
    } q[] = {{"40Gi", 1, 42949672960}, {"1.5G", 1, 1500000000}, {"1024", 1, 1024},
             {"500m", 1000, 500},      {"16", 1000, 16000},     {"0.5", 1000, 500},
             {"1e3", 1, 1000},         {"1500m", 1, 2},         {"1.5Ki", 1, 1536}};
    int64_t v;
    struct err e;
    char out[32];

    (void)state;
    for (size_t i = 0; i < sizeof q / sizeof q[0]; i++) {
        assert_int_equal(quantity_parse(q[i].text, q[i].scale, &v, &e), 0);
        assert_int_equal(v, q[i].want);
    }
    assert_int_equal(quantity_parse("10Ei", 1, &v, &e), E_INVALID);
    assert_int_equal(quantity_parse("-1", 1, &v, &e), E_INVALID);
    assert_int_equal(duration_parse("1h30m", &v, &e), 0);
    assert_int_equal(v, 5400000);
    duration_print(v, out);
    assert_string_equal(out, "1h30m");
    assert_int_equal(duration_parse("2d", &v, &e), 0);
    assert_int_equal(v, 172800000);
    assert_int_equal(duration_parse("250ms", &v, &e), 0);
    assert_int_equal(v, 250);
    assert_int_equal(duration_parse("", &v, &e), E_INVALID);
    assert_int_equal(time_parse("2026-11-21T04:33:22.5+01:00", &v, &e), 0);
    time_print(v, out);
    assert_string_equal(out, "2026-11-21T03:33:22.500Z");
    assert_int_equal(time_parse("2025-02-29T00:00:00Z", &v, &e), E_INVALID);
    assert_int_equal(time_parse("1969-12-31T23:59:59Z", &v, &e), 0);
    assert_int_equal(v, -1000);
}

/* tests/golden/schema.fp: "schema tag type" of every field there ever was. A line is added with a
 * new field (run with HANSE_GOLDEN_WRITE=1), and never changed: members of older versions read
 * these bytes. */
static void test_tags_never_change_type(void **state)
{
    struct golden g;
    char have[200];
    const struct schema *all[] = {
#define X(s) &schema_##s,
        SCHEMAS_ALL(X)
#undef X
    };

    (void)state;
    golden_open(&g, "schema.fp");
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        for (unsigned j = 0; j < all[i]->n; j++) {
            const struct field *f = &all[i]->fields[j];
            (void)snprintf(have, sizeof have, "%s %u %d %s\n", all[i]->name, f->tag, (int)f->type,
                           f->sub  ? f->sub->name
                           : f->en ? f->en->name
                                   : "-");
            golden_holds(&g, have);
        }
    }
    golden_close(&g, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_what_is_too_large),
                                       cmocka_unit_test(test_scalars),
                                       cmocka_unit_test(test_json_scanner),
                                       cmocka_unit_test(test_admitted),
                                       cmocka_unit_test(test_yaml_refusals),
                                       cmocka_unit_test(test_yaml_scalars),
                                       cmocka_unit_test(test_errors_say_what_is_wrong),
                                       cmocka_unit_test(test_names_and_labels),
                                       cmocka_unit_test(test_what_a_quota_takes),
                                       cmocka_unit_test(test_short_forms),
                                       cmocka_unit_test(test_unknown_fields_stay_in_the_log),
                                       cmocka_unit_test(test_what_no_runner_can_be_told),
                                       cmocka_unit_test(test_immutable_fields),
                                       cmocka_unit_test(test_a_cancelled_move_stays_cancelled),
                                       cmocka_unit_test(test_tags_never_change_type)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
