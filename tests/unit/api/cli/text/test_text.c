/* What the CLI prints: Decisions, tables, diffs, paths, wrapped scripts. Golden texts. */
#include "api/cli/cli_internal.h"
#include "tests/support/unit.h"

static cJSON *parse(const char *text)
{
    cJSON *j = NULL;
    struct err e = {0};

    if (json_parse(text, strlen(text), &j, &e))
        fail_msg("%s", e.text);
    return j;
}

static const char placed_workload[] =
    "{\"status\":{\"phase\":\"Running\",\"epoch\":3,\"placement\":{\"target\":\"fra-hub\","
    "\"domain\":"
    "\"eu-central/fra1/b2/r07\",\"class\":\"h100-sxm-80gb\",\"gpus\":8000,\"gpuHourPrice\":1.92}}}";
static const char placed_decision[] =
    "{\"spec\":{\"outcome\":\"Placed\",\"logIndex\":88213,\"epoch\":3,\"revision\":"
    "\"4be1c0f77aa0\",\"candidates\":["
    "{\"target\":\"fra-hub\",\"tier\":\"hub\",\"fits\":true,\"chosen\":true,\"reason\":\"Chosen\","
    "\"usefulGpuHour\":1.92,"
    "\"data\":\"local\",\"topology\":\"1 rack\",\"score\":91.4},"
    "{\"target\":\"par-spoke\",\"tier\":\"spoke\",\"fits\":true,\"reason\":\"LowerScore\","
    "\"message\":\"slower data path\","
    "\"usefulGpuHour\":2.05,\"data\":\"38 GiB\",\"topology\":\"2 racks\",\"score\":74},"
    "{\"target\":\"ohio-burst\",\"tier\":\"burst\",\"reason\":\"ResidencyForbidden\",\"message\":"
    "\"patient-data-stays "
    "(DE, FR)\"}]}}";

static void a_placed_decision(void **state)
{
    AUTO_ARENA mem = arena_create(0);
    AUTO_BUF b = {0};
    cJSON *w = parse(placed_workload), *d = parse(placed_decision);

    (void)state;
    buf_init(&b, 65536);
    explain_render(w, d, 0, mem, &b);
    assert_string_equal(b.p, "Decision 88213 · epoch 3 · policies at git 4be1c0f · placed on "
                             "fra-hub, rack r07, 8 × h100-sxm-80gb at $1.92\n"
                             "\n"
                             "TARGET      TIER   FITS  WHY                                         "
                             "     $/USEFUL-GPU-H  DATA    TOPOLOGY  SCORE\n"
                             "fra-hub     hub    yes   chosen                                      "
                             "               1.92  local   1 rack     91.4\n"
                             "par-spoke   spoke  yes   slower data path                            "
                             "               2.05  38 GiB  2 racks    74.0\n"
                             "ohio-burst  burst  no    ResidencyForbidden: patient-data-stays (DE, "
                             "FR)               –  –       –             –\n");
    cJSON_Delete(w);
    cJSON_Delete(d);
}

/* Placed, and its target lets it wait: both are said. */
static void a_run_that_waits_there(void **state)
{
    AUTO_ARENA mem = arena_create(0);
    AUTO_BUF b = {0};
    cJSON *w = parse("{\"status\":{\"epoch\":3,\"placement\":{\"target\":\"fra-hub\"},"
                     "\"pending\":{\"reason\":\"Resources\",\"message\":\"nodes are in use\","
                     "\"position\":4,\"estimatedStart\":\"2025-12-01T10:00:00Z\"}}}"),
          *d = parse(placed_decision);

    (void)state;
    buf_init(&b, 65536);
    explain_render(w, d, 0, mem, &b);
    assert_non_null(strstr(b.p, "placed on fra-hub\n  waits in the target's own queue: Resources: "
                                "nodes are in use · position 4 · may start at "
                                "2025-12-01T10:00:00Z\n"));
    cJSON_Delete(w);
    cJSON_Delete(d);
}

static void policies_of_two_sets(void **state)
{
    AUTO_ARENA mem = arena_create(0);
    AUTO_BUF b = {0};
    cJSON *w = parse("{\"status\":{\"phase\":\"Queued\"}}");
    cJSON *d = parse(
        "{\"spec\":{\"outcome\":\"Pending\",\"reason\":\"GpusInUse\",\"message\":\"no room\","
        "\"sources\":[{\"set\":\"base\",\"revision\":\"4be1c0f77aa0\",\"policies\":[\"Queue/q\"]},"
        "{\"set\":\"law\",\"policies\":[\"CompliancePolicy/eu\"]}]}}");

    (void)state;
    buf_init(&b, 65536);
    explain_render(w, d, 0, mem, &b);
    assert_string_equal(
        b.p, "Pending · policies at git 4be1c0f (base), none (law) · GpusInUse: no room\n");
    cJSON_Delete(w);
    cJSON_Delete(d);
}

static void a_pending_decision(void **state)
{
    AUTO_ARENA mem = arena_create(0);
    AUTO_BUF b = {0};
    cJSON *w = parse("{\"status\":{\"phase\":\"Queued\",\"queuedAt\":\"2026-11-21T05:00:00Z\"}}");
    cJSON *d =
        parse("{\"spec\":{\"outcome\":\"Pending\",\"reason\":\"QuotaBurstExhausted\",\"message\":"
              "\"48 of 48 "
              "h100-sxm-80gb in use\",\"queue\":\"vision\",\"queuePosition\":3,\"hints\":[\"class "
              "a100-sxm-80gb allowed "
              "too (ams-slurm, $1.31/h)\",\"4 workers instead of "
              "8\"],\"startEstimate\":\"2026-11-21T07:40:12Z\",\"startAfter\":\"resnet-a\","
              "\"keptOn\":\"hub\","
              "\"candidates\":[{\"target\":\"ohio\",\"tier\":"
              "\"spoke\",\"reason\":\"ResidencyForbidden\",\"message\":\"stays\"}]}}");
    int64_t now;

    (void)state;
    buf_init(&b, 65536);
    assert_int_equal(time_parse("2026-11-21T05:14:20Z", &now, NULL), 0);
    explain_render(w, d, now, mem, &b);
    assert_string_equal(
        b.p,
        "Pending 14m · position 3 of queue vision · QuotaBurstExhausted: 48 of 48 h100-sxm-80gb in "
        "use\n"
        "Would run now with any one of:\n"
        "  · class a100-sxm-80gb allowed too (ams-slurm, $1.31/h)\n"
        "  · 4 workers instead of 8\n"
        "Start estimate 07:40 UTC (when resnet-a ends as expected)\n"
        "Room is kept for it on hub: who comes after it uses that only when he ends by then\n"
        "\n"
        "TARGET  TIER   FITS  WHY                        $/USEFUL-GPU-H  DATA  TOPOLOGY  SCORE\n"
        "ohio    spoke  no    ResidencyForbidden: stays               –  –     –             –\n");
    buf_reset(&b);
    explain_render(w, d, now - 86400000, mem, &b);
    assert_non_null(strstr(b.p, "Start estimate 2026-11-21 07:40 UTC (when"));
    buf_reset(&b);
    explain_render(w, d, now + 86400000, mem, &b); /* the moment has passed */
    assert_null(strstr(b.p, "Start estimate"));
    buf_reset(&b);
    explain_render(w, NULL, now, mem, &b);
    assert_string_equal(b.p, "Pending 14m · not yet looked at\n");
    cJSON_Delete(w);
    cJSON_Delete(d);
}

static void an_older_decision_says_its_own_place(void **state)
{
    AUTO_ARENA mem = arena_create(0);
    AUTO_BUF b = {0};
    cJSON *w = parse(placed_workload);
    cJSON *d = parse("{\"spec\":{\"outcome\":\"Placed\",\"logIndex\":5,\"epoch\":2,\"message\":"
                     "\"par-spoke, r1\"}}");

    (void)state;
    buf_init(&b, 65536);
    explain_render(w, d, 0, mem, &b);
    assert_string_equal(b.p, "Decision 5 · epoch 2 · placed on par-spoke, r1\n");
    cJSON_Delete(w);
    cJSON_Delete(d);
}

static void tables_count_characters_not_bytes(void **state)
{
    AUTO_ARENA mem = arena_create(0);
    AUTO_BUF b = {0};
    struct table t;

    (void)state;
    buf_init(&b, 65536);
    table_init(&t, mem, 3);
    t.right = 2;
    static const char *const cells[] = {"NAME",        "N", "X", "größe", "10",
                                        "a\tb\033[1m", "z", "–", ""};
    for (size_t i = 0; i < 9; i++)
        table_cell(&t, cells[i]);
    table_print(&t, &b);
    assert_string_equal(b.p, "NAME    N  X\n"
                             "größe  10  a b [1m\n"
                             "z       –  \n");
}

static void diffs_are_unified(void **state)
{
    AUTO_ARENA mem = arena_create(0);
    AUTO_BUF b = {0};

    (void)state;
    buf_init(&b, 65536);
    diff_unified("a/x", "b/x", "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n12\n",
                 "1\n2\n3\n4\nfive\n6\n7\n8\n9\n10\n11\n12\n13\n", mem, &b);
    assert_string_equal(b.p, "--- a/x\n+++ b/x\n"
                             "@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n@@ -10,3 +10,4 "
                             "@@\n 10\n 11\n 12\n+13\n");
    buf_reset(&b);
    diff_unified("/dev/null", "b/x", "", "a: 1\nb: 2\n", mem, &b);
    assert_string_equal(b.p, "--- /dev/null\n+++ b/x\n@@ -0,0 +1,2 @@\n+a: 1\n+b: 2\n");
    buf_reset(&b);
    diff_unified("a", "b", "same\n", "same\n", mem, &b);
    assert_int_equal(b.n, 0);
    diff_unified("a", "b", "x\n1\n2\n3\n4\n5\n6\n7\n8\ny\n", "X\n1\n2\n3\n4\n5\n6\n7\n8\nY\n", mem,
                 &b);
    assert_string_equal(
        b.p,
        "--- a\n+++ b\n@@ -1,4 +1,4 @@\n-x\n+X\n 1\n 2\n 3\n@@ -7,4 +7,4 @@\n 6\n 7\n 8\n-y\n+Y\n");
}

static void paths(void **state)
{
    static const struct {
        const char *template, *text;
    } t[] = {{"{.items[*].metadata.name}", "a b"},
             {"{.items[1].metadata.name}{\"\\n\"}", "b\n"},
             {"n={.count}, {.items[-1].n}", "n=3, 1.50"},
             {"{.items[?(@.type==\"y\")].metadata.name}", "b"},
             {"{.missing.x}", ""},
             {"{.a\\.b/c}", "dot"}};
    cJSON *j = parse(
        "{\"count\":3,\"a.b/c\":\"dot\",\"items\":[{\"type\":\"x\",\"metadata\":{\"name\":\"a\"}},"
        "{\"type\":\"y\",\"n\":\"1.50\",\"metadata\":{\"name\":\"b\"}}]}");
    AUTO_BUF b = {0};

    (void)state;
    buf_init(&b, 65536);
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        buf_reset(&b);
        assert_int_equal(jsonpath_print(j, t[i].template, &b, NULL), 0);
        assert_string_equal(b.n ? b.p : "", t[i].text);
    }
    assert_int_equal(jsonpath_print(j, "{range .items}", &b, NULL), E_USAGE);
    assert_int_equal(jsonpath_print(j, "{.items", &b, NULL), E_USAGE);
    cJSON_Delete(j);
}

static void json_keeps_its_numbers(void **state)
{
    static const char text[] =
        "{\"a\":[1.0,9007199254740993,1e2],\"b\":{},\"c\":[ ],\"d\":\"{\\\"x\\\": 1,2}\"}";
    AUTO_BUF b = {0};

    (void)state;
    buf_init(&b, 65536);
    json_indent(text, sizeof text - 1, &b);
    assert_string_equal(
        b.p, "{\n    \"a\": [\n        1.0,\n        9007199254740993,\n        1e2\n    ],\n"
             "    \"b\": {},\n    \"c\": [],\n    \"d\": \"{\\\"x\\\": 1,2}\"\n}\n");
}

static void ages(void **state)
{
    char out[16];

    (void)state;
    age_print(119000, out);
    assert_string_equal(out, "119s");
    age_print(120000, out);
    assert_string_equal(out, "2m");
    age_print(7200000, out);
    assert_string_equal(out, "2h");
    age_print(48 * 3600000ll, out);
    assert_string_equal(out, "2d");
    age_print(-5, out);
    assert_string_equal(out, "0s");
}

static const char script[] = "#!/bin/bash\n"
                             "#SBATCH --job-name=My_Train\n"
                             "#SBATCH -N 2\n"
                             "#SBATCH --ntasks-per-node=4\n"
                             "#SBATCH --gres=gpu:h100-sxm-80gb:4\n"
                             "#SBATCH -c8\n"
                             "#SBATCH --mem=64G\n"
                             "#SBATCH --time=1-02:30:00\n"
                             "srun python train.py\n"
                             "#SBATCH --nodes=9\n";

static void sbatch_scripts(void **state)
{
    cJSON *j = NULL;
    struct object *o = NULL;
    struct err e = {0};

    (void)state;
    assert_int_equal(sbatch_wrap(script, sizeof script - 1, NULL, &j, &e), 0);
    assert_string_equal(json_text_at(j, "metadata.name"), "my-train");
    assert_true(json_number_at(j, "spec.gang.workers") == 8);
    assert_true(json_number_at(j, "spec.resources.gpu.count") == 1);
    assert_string_equal(json_at(j, "spec.resources.gpu.classes")->child->valuestring,
                        "h100-sxm-80gb");
    assert_true(json_number_at(j, "spec.resources.cpu") == 8);
    assert_string_equal(json_text_at(j, "spec.resources.memory"), "16Gi");
    assert_string_equal(json_text_at(j, "spec.expected.duration"), "95400s");
    assert_string_equal(json_text_at(j, "spec.run.script"), script);
    if (object_from_json(kind_by_id(KIND_WORKLOAD), j, DECODE_USER, &o, &e))
        fail_msg("%s", e.text);
    (void)object_unref(o);
    cJSON_Delete(j);
}

static void sbatch_arrays(void **state)
{
    static const struct {
        const char *script;
        double count, at_once; /* 0: not said */
    } t[] = {{"#!/bin/sh\n#SBATCH --array=0-9%4\n", 10, 4},
             {"#!/bin/sh\n#SBATCH -a 0-99\n", 100, 0},
             {"#!/bin/sh\n#SBATCH -a0-99\n", 100, 0},
             {"#!/bin/sh\n#SBATCH -a=0-99 # all\n", 100, 0},
             {"#!/bin/sh\n#SBATCH  --array 0-99\n", 100, 0},
             {"#!/bin/sh\n#SBATCH --array=0\n", 1, 0}};

    (void)state;
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        cJSON *j = NULL;

        assert_int_equal(sbatch_wrap(t[i].script, strlen(t[i].script), NULL, &j, NULL), 0);
        assert_true(json_number_at(j, "spec.array.count") == t[i].count);
        assert_true(json_number_at(j, "spec.array.parallelism") == t[i].at_once);
        cJSON_Delete(j);
    }
    static const char none[] = "#!/bin/sh\n#SBATCH --array=\n";
    struct err e = {0};
    cJSON *j = NULL;
    assert_int_equal(sbatch_wrap(none, strlen(none), NULL, &j, &e), E_NOTIMPL);
    assert_non_null(strstr(e.text, "#SBATCH --array= is not supported"));
}

static void explains_arrays(void **state)
{
    AUTO_ARENA mem = arena_create(0);
    AUTO_BUF b = {0};
    cJSON *w = parse("{\"metadata\":{\"name\":\"s\"},\"spec\":{\"array\":{\"count\":12}},"
                     "\"status\":{\"active\":3,\"succeeded\":7,\"failed\":1,"
                     "\"failedIndexes\":\"5\"}}");

    (void)state;
    buf_init(&b, 4096);
    explain_render(w, NULL, 0, mem, &b);
    assert_string_equal(b.p, "Array of 12 · 3 under way · 7 succeeded · 1 failed (5) · 1 to begin\n"
                             "Each index is decided about by itself: hanse explain s-0\n");
    cJSON_Delete(w);
}

static void sbatch_errors(void **state)
{
    static const struct {
        const char *script;
        int code;
    } t[] = {{"#!/bin/sh\n#SBATCH --time=soon\n", E_INVALID},
             {"#!/bin/sh\n#SBATCH --time=-5\n", E_INVALID}, /* no days */
             {"#!/bin/sh\n#SBATCH --time=10:-5:00\n", E_INVALID},
             {"#!/bin/sh\n#SBATCH --time=60min\n", E_INVALID},
             {"#!/bin/sh\n#SBATCH --time=1:2:3:4\n", E_INVALID},
             {"#!/bin/sh\n#SBATCH --time=1:\n", E_INVALID},
             {"#!/bin/sh\n#SBATCH --time=9223372036854775807:00:00\n", E_INVALID},
             {"#!/bin/sh\n#SBATCH --nodes=0\n", E_INVALID},
             {"#!/bin/sh\n#SBATCH --gpus=3 \n#SBATCH -n 2\n", E_INVALID},
             {"#!/bin/sh\n#SBATCH --array=1-9\n", E_NOTIMPL},
             {"#!/bin/sh\n#SBATCH --array=0-9:2\n", E_NOTIMPL},
             {"#!/bin/sh\n#SBATCH --array=0-9%0\n", E_NOTIMPL},
             {"#!/bin/sh\n#SBATCH --array=0-100000\n", E_NOTIMPL},
             {"#!/bin/sh\n#SBATCH --dependency=7\n", E_NOTIMPL},
             {"#!/bin/sh\n#SBATCH --mem=lots\n", E_INVALID}};
    (void)state;
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        cJSON *j = NULL;
        assert_int_equal(sbatch_wrap(t[i].script, strlen(t[i].script), NULL, &j, NULL), t[i].code);
        assert_null(j);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_placed_decision),
        cmocka_unit_test(policies_of_two_sets),
        cmocka_unit_test(a_run_that_waits_there),
        cmocka_unit_test(a_pending_decision),
        cmocka_unit_test(an_older_decision_says_its_own_place),
        cmocka_unit_test(tables_count_characters_not_bytes),
        cmocka_unit_test(diffs_are_unified),
        cmocka_unit_test(paths),
        cmocka_unit_test(json_keeps_its_numbers),
        cmocka_unit_test(ages),
        cmocka_unit_test(sbatch_scripts),
        cmocka_unit_test(sbatch_arrays),
        cmocka_unit_test(explains_arrays),
        cmocka_unit_test(sbatch_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
