/* `hanse cost`: what a CostReport looks like to people and to spreadsheets. Golden texts. */
#include "api/cli/cli_internal.h"
#include "tests/support/unit.h"

static const char report[] =
    "{\"kind\":\"CostReport\",\"from\":\"2026-11-14T00:00:00Z\",\"to\":\"2026-11-21T07:12:03Z\","
    "\"currency\":\"USD\",\"by\":[\"queue\",\"experiment\",\"cause\"],\"filter\":{\"class\":"
    "\"h100-sxm-80gb\"},\"rows\":["
    "{\"queue\":\"vision\",\"experiment\":\"aug-7\",\"cause\":\"useful\",\"gpuHours\":512.44,"
    "\"cost\":983.8848,\"wasted\":0,\"wastedCost\":0,\"unpriced\":0,\"milliGpuMs\":"
    "\"1844784000000\"},"
    "{\"queue\":\"vision\",\"experiment\":\"=1+1,\\\"x\\\"\",\"cause\":\"preempted\",\"gpuHours\":"
    "3.5,\"cost\":6.72,\"wasted\":3.5,\"wastedCost\":6.72,\"unpriced\":0,\"milliGpuMs\":"
    "\"12600000000\"},"
    "{\"queue\":\"\",\"experiment\":\"\",\"cause\":\"idle\",\"gpuHours\":0.01,\"cpuHours\":24.5,"
    "\"cost\":0,"
    "\"wasted\":0,\"wastedCost\":0,\"unpriced\":0.01,\"milliGpuMs\":\"36000000\"}],"
    "\"omitted\":2,\"totals\":{\"gpuHours\":840,\"cpuHours\":96.25,\"cost\":1612.8,\"wasted\":12.5,"
    "\"wastedCost\":24,"
    "\"measured\":600,\"heldIdle\":90.5,\"heldIdleCost\":173.76,"
    "\"unpriced\":1.25,\"capacityGpuHours\":839,\"capacityCpuHours\":96.25,\"overhangGpuHours\":1},"
    "\"balance\":{\"exact\":true,\"difference\":\"0\"},"
    "\"folded\":[{\"by\":\"workload\",\"upTo\":\"2026-11-15T00:00:00Z\"}]}";

static cJSON *parse(const char *text)
{
    cJSON *j = NULL;
    struct err e = {0};

    if (json_parse(text, strlen(text), &j, &e))
        fail_msg("%s", e.text);
    return j;
}

static void test_table(void **state)
{
    AUTO_ARENA mem = arena_create(0);
    AUTO_BUF b = {0};
    cJSON *j = parse(report);

    (void)state;
    buf_init(&b, 65536);
    cost_render(j, mem, &b);
    assert_string_equal(
        b.p, "Cost of class h100-sxm-80gb from 2026-11-14 to 2026-11-21 07:12 UTC, in USD\n"
             "\n"
             "QUEUE   EXPERIMENT  CAUSE      GPU-HOURS     COST"
             "  WASTED  HELD-IDLE  SHARE  CPU-HOURS\n"
             "vision  aug-7       useful         512.4   983.88"
             "       –          –    61%          –\n"
             "vision  =1+1,\"x\"    preempted        3.5"
             "     6.72     3.5          –   0.4%          –\n"
             "–       –           idle             0.0        –"
             "       –          –  <0.1%      24.50\n"
             "total                              840.0  1612.80"
             "    12.5       90.5   100%      96.25\n"
             "\n"
             "Wasted: 12.5 GPU-hours were lost to stops, worth 24.00\n"
             "Held idle: of 600.0 GPU-hours whose use was measured, 90.5 did nothing, worth "
             "173.76\n"
             "Unpriced: 1.2 GPU-hours, their price is not known\n"
             "Not shown: 2 further rows (--limit), they are in the total\n"
             "Folded: before 2026-11-15 no longer told apart by workload\n"
             "Capacity: 839.0 GPU-hours, what was held beyond it, and 96.25 CPU-hours, all of them "
             "accounted for\n");
    cJSON_Delete(j);
}

static void test_nothing(void **state)
{
    AUTO_ARENA mem = arena_create(0);
    AUTO_BUF b = {0};
    cJSON *j = parse("{\"to\":\"2026-11-01T00:00:00Z\",\"currency\":\"mixed\",\"by\":[\"queue\"],"
                     "\"filter\":{},\"rows\":[],\"omitted\":0,\"totals\":{\"gpuHours\":0},"
                     "\"balance\":{\"exact\":false,\"difference\":\"-7\",\"cpuDifference\":\"0\"},"
                     "\"folded\":[]}");

    (void)state;
    buf_init(&b, 65536);
    cost_render(j, mem, &b);
    assert_string_equal(
        b.p, "Cost to 2026-11-01, in several currencies: their sums mean nothing\n"
             "\nNothing yet.\n\n"
             "The ledger does not add up: -7 milli-GPU-ms and 0 milli-CPU-ms are missing\n");
    cJSON_Delete(j);
}

static void test_csv(void **state)
{
    AUTO_BUF b = {0};
    cJSON *j = parse(report);

    (void)state;
    buf_init(&b, 65536);
    cost_csv(j, &b);
    assert_string_equal(
        b.p,
        "queue,experiment,cause,gpuHours,cost,wasted,wastedCost,unpriced,milliGpuMs,cpuHours,"
        "measured,heldIdle,heldIdleCost\r\n"
        "vision,aug-7,useful,512.44,983.8848,0,0,0,1844784000000,0,0,0,0\r\n"
        "vision,\"'=1+1,\"\"x\"\"\",preempted,3.5,6.72,3.5,6.72,0,12600000000,0,0,0,0\r\n"
        ",,idle,0.01,0,0,0,0.01,36000000,24.5,0,0,0\r\n");
    cJSON_Delete(j);
}

static void test_options(void **state)
{
    AUTO_ARENA mem = arena_create(0);
    const struct verb *v = verb_find("cost");
    char *argv[] = {"cost",    "--by",    "queue,cause", "--since", "7d",
                    "--where", "queue=a", "-o",          "csv"};
    struct args a = {0};
    struct err e = {0};

    (void)state;
    assert_non_null(v);
    assert_int_equal(args_parse(8, argv + 1, v->options, mem, &a, &e), 0);
    assert_string_equal(arg_text(&a, "by", ""), "queue,cause");
    assert_string_equal(arg_text(&a, "output", ""), "csv");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_table), cmocka_unit_test(test_nothing),
                                       cmocka_unit_test(test_csv), cmocka_unit_test(test_options)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
