/* What a leader has gathered of the use of GPUs between two entries: it counts in the ledger, and
 * not what holds by the first of them. */
#include "controlplane/store/ledger/ledger.h"
#include "controlplane/store/store_internal.h"
#include "tests/support/store/store_kit.h"

#define HOUR 3600000ll

static struct result told(struct kit *k, struct gpu_use *u)
{
    union command c = {
        .run = {.head = {.type = CMD_RUN}, .step = STEP_USE, .epoch = 1, .try_ = 1, .use = u}};

    (void)snprintf(c.run.ns, sizeof c.run.ns, "%s", k->ns);
    (void)snprintf(c.run.name, sizeof c.run.name, "w");
    str_copy(c.run.uid, sizeof c.run.uid, kit_get(k, "w")->meta->uid);
    return kit_apply(k, &c);
}

/* In 1/1000 GPU and ms, exactly. */
static void ledger_is(const struct kit *k, int64_t held, int64_t measured, int64_t idle)
{
    const struct ledger_query q = {
        .to_day = INT64_MAX, .rows_max = 1, .filter = {[LEDGER_BY_PROJECT] = "default"}};
    struct ledger_report r;

    ledger_report_make(k->root, k->now, &q, k->a, &r);
    assert_int_equal((int64_t)r.total.amount, held);
    assert_int_equal((int64_t)r.total.measured, measured);
    assert_int_equal((int64_t)r.total.idle, idle);
    root_check(k->root);
}

static void test_what_was_gathered(void **state)
{
    static const struct {
        int64_t ms, sum;                  /* are told after an hour; */
        int64_t ms_taken, measured, idle; /* and by then */
    } v[] = {                             /* of a time before the first one nothing is known */
             {HOUR, 4000 * HOUR, 0, 0, 0},
             {HOUR / 2, 500 * HOUR + 7, HOUR / 2, 2000 * HOUR, 500 * HOUR + 7},
             /* no more than there is */
             {9 * HOUR, INT64_MAX, HOUR, 6000 * HOUR, 4500 * HOUR + 7},
             /* it says nothing of it: what held is what there was */
             {-5, -7, 0, 10000 * HOUR, 4500 * HOUR + 7}};
    struct kit k;

    (void)state;
    kit_begin(&k);
    kit_level_set(&k, FEATURE_LEVEL);
    kit_pool(&k, 1, 8);
    assert_int_equal(kit_workload(&k, k.ns, "w", 1, 4).code, 0);
    assert_int_equal(kit_place(&k, "w", "fra.n0", 0, 1, 4).code, 0);
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_DISPATCH).code, 0);
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_RUNNING).code, 0);
    int64_t from = kit_status(&k, "w")->placement->since;
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
        struct gpu_use u = {.measured = 4000, .measuredFor = v[i].ms, .idleSum = v[i].sum};
        k.now += HOUR;
        assert_int_equal(told(&k, &u).code, 0);
        assert_int_equal(kit_status(&k, "w")->gpuUse->measuredFor, v[i].ms_taken);
        ledger_is(&k, 4000 * (k.now - from), v[i].measured, v[i].idle);
    }
    kit_reload(&k);
    ledger_is(&k, 4000 * (k.now - from), 10000 * HOUR, 4500 * HOUR + 7);
    kit_end(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_what_was_gathered)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
