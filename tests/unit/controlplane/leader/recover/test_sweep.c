/* What a hub makes of a run that a target lists: only what its own log let go is ended. */
#include "api/base/failpoint.h"
#include "controlplane/leader/doubt/back.h"
#include "controlplane/leader/recover/denials.h"
#include "controlplane/leader/recover/orphans.h"
#include "controlplane/leader/recover/promises.h"
#include "controlplane/leader/recover/sweep.h"
#include "controlplane/leader/site/sites.h"
#include "tests/support/store/store_kit.h"
#include "tests/support/web/still_loop.h"

#include <string.h>

#define OWN "0123456789abcdef0123456789abcdef"

static void name_cluster(struct kit *k, const char *uid)
{
    union command c = {.member = {.head = {.type = CMD_MEMBER},
                                  .member = {.id = 1, .feature_level = FEATURE_LEVEL}}};

    str_copy(c.member.cluster_uid, sizeof c.member.cluster_uid, uid);
    (void)snprintf(c.member.member.name, sizeof c.member.member.name, "m1");
    assert_int_equal(kit_apply(k, &c).code, 0);
}

static enum orphan_why why(struct kit *k, const char *uid, int64_t epoch, int64_t try_,
                           const char *cluster)
{
    struct run_listed l = {.seen = {.key = {.epoch = epoch, .try_ = try_}}};

    str_copy(l.seen.key.uid, sizeof l.seen.key.uid, uid);
    str_copy(l.cluster, sizeof l.cluster, cluster);
    return sweep_why(k->root, &l);
}

static void test_what_is_unknown(void **state)
{
    struct kit k;

    (void)state;
    kit_begin(&k);
    assert_int_equal(why(&k, "stranger", 1, 1, OWN), ORPHAN_FOREIGN); /* we have no name yet */
    assert_int_equal(why(&k, "stranger", 1, 1, ""), ORPHAN_FOREIGN);
    name_cluster(&k, OWN ".3");
    assert_int_equal(why(&k, "stranger", 1, 1, ""), ORPHAN_FOREIGN);
    assert_int_equal(why(&k, "stranger", 1, 1, "fedcba9876543210fedcba9876543210"), ORPHAN_FOREIGN);
    assert_int_equal(why(&k, "stranger", 1, 1, OWN), ORPHAN_BEFORE);
    assert_int_equal(why(&k, "stranger", 1, 1, OWN ".2"), ORPHAN_BEFORE);
    assert_int_equal(why(&k, "stranger", 1, 1, OWN ".3"), ORPHAN_LET_GO);
    failpoint_plant("sweep.ends-unknown"); /* what the sweep did before runs had a cluster */
    assert_int_equal(why(&k, "stranger", 1, 1, ""), ORPHAN_LET_GO);
    failpoint_plant(NULL);
    kit_end(&k);
}

/* An earlier leader had its end committed, and may not have told the target. */
static void test_whose_end_is_in_the_log(void **state)
{
    struct run_listed l = {.seen = {.key = {.epoch = 1, .try_ = 1}, .state = RUN_ENDED}};
    struct kit k;

    (void)state;
    kit_begin(&k);
    kit_pool(&k, 1, 4);
    assert_int_equal(kit_workload(&k, k.ns, "w", 1, 1).code, 0);
    assert_int_equal(kit_place(&k, "w", "fra.n0", 0, 1, 1).code, 0);
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_DISPATCH).code, 0);
    str_copy(l.seen.key.uid, sizeof l.seen.key.uid, kit_get(&k, "w")->meta->uid);
    assert_false(sweep_unfinished(k.root, &l)); /* the target knows of it first */
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_ENDED).code, 0);
    assert_true(sweep_unfinished(k.root, &l));
    l.final = true;
    assert_false(sweep_unfinished(k.root, &l));
    l.final = false;
    l.seen.state = RUN_RUNNING;
    assert_false(sweep_unfinished(k.root, &l));
    kit_end(&k);
}

/* In the past of a state that began anew: told as long as it recovers, then let go. */
static void test_what_was_deleted_before(void **state)
{
    struct run_listed l = {
        .seen = {.key = {.uid = "stranger", .epoch = 1, .try_ = 1}, .state = RUN_ENDED}};
    union command c = {.recover = {.head = {.type = CMD_RECOVER}, .step = RECOVER_BEGIN}};
    struct kit k;

    (void)state;
    kit_begin(&k);
    name_cluster(&k, OWN);
    str_copy(l.cluster, sizeof l.cluster, OWN);
    str_copy(c.recover.cluster_uid, sizeof c.recover.cluster_uid, OWN ".5.0000abcd");
    c.recover.known = l.state_rv = root_rv(k.root);
    c.recover.rv = root_rv(k.root) + RECOVER_RV_JUMP;
    assert_int_equal(kit_apply(&k, &c).code, 0);
    assert_int_equal(sweep_why(k.root, &l), ORPHAN_DELETED);
    l.seen.state = RUN_RUNNING; /* that cannot be, so somebody has to look */
    assert_int_equal(sweep_why(k.root, &l), ORPHAN_BEFORE);
    l.seen.state = RUN_ENDED;
    l.state_rv++;
    assert_int_equal(sweep_why(k.root, &l), ORPHAN_BEFORE);
    l.state_rv = 0;
    assert_int_equal(sweep_why(k.root, &l), ORPHAN_BEFORE);
    l.state_rv = c.recover.known;
    c.recover = (struct recover_cmd){.head = c.head, .step = RECOVER_SETTLE};
    assert_int_equal(kit_apply(&k, &c).code, 0);
    assert_int_equal(sweep_why(k.root, &l), ORPHAN_LET_GO);
    kit_end(&k);
}

static void test_what_is_known(void **state)
{
    struct kit k;

    (void)state;
    kit_begin(&k);
    name_cluster(&k, OWN);
    kit_pool(&k, 1, 4);
    assert_int_equal(kit_workload(&k, k.ns, "w", 1, 1).code, 0);
    const char *uid = kit_get(&k, "w")->meta->uid;
    assert_int_equal(kit_place(&k, "w", "fra.n0", 0, 1, 1).code, 0);
    assert_int_equal(why(&k, uid, 1, 1, OWN), ORPHAN_AHEAD); /* a later state has sent it */
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_DISPATCH).code, 0);
    assert_int_equal(why(&k, uid, 1, 1, "another"), ORPHAN_OWNED); /* the state has it */
    assert_int_equal(why(&k, uid, 1, 2, OWN), ORPHAN_AHEAD);
    assert_int_equal(why(&k, uid, 2, 1, OWN), ORPHAN_AHEAD);
    assert_int_equal(why(&k, uid, 0, 1, OWN), ORPHAN_LET_GO);
    kit_end(&k);
}

/* A target lists as alive what it had called ended. */
static void test_an_end_that_is_taken_back(void **state)
{
    struct run_listed l = {.seen = {.key = {.epoch = 1, .try_ = 1}, .state = RUN_RUNNING}};
    struct kit k;

    (void)state;
    kit_begin(&k);
    kit_pool(&k, 1, 4);
    assert_int_equal(kit_workload(&k, k.ns, "w", 1, 1).code, 0);
    str_copy(l.seen.key.uid, sizeof l.seen.key.uid, kit_get(&k, "w")->meta->uid);
    assert_int_equal(kit_place(&k, "w", "fra.n0", 0, 1, 1).code, 0);
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_DISPATCH).code, 0);
    assert_false(denial_is(k.root, "fra", INT64_MAX, &l)); /* it lives by the log */
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_ENDED).code, 0);
    const struct workload_status *s = object_as(kit_get(&k, "w"), workload)->status;
    int64_t at = s->ends[0].at;
    assert_true(denial_is(k.root, "fra", INT64_MAX, &l));
    assert_true(denial_is(k.root, "fra", at + 5000, &l));
    assert_false(denial_is(k.root, "fra", at + 500, &l)); /* the list was on its way */
    assert_false(denial_is(k.root, "ams", INT64_MAX, &l)); /* another one had told the end */
    l.seen.state = RUN_ENDED;
    assert_false(denial_is(k.root, "fra", INT64_MAX, &l));
    l.seen.state = RUN_RUNNING;
    l.seen.key.epoch = 2;
    assert_false(denial_is(k.root, "fra", INT64_MAX, &l)); /* of that the log has no end */
    kit_end(&k);
}

/* Somebody put an older copy of the data back: nothing that it does not know was let go by it. */
static void test_an_older_copy(void **state)
{
    struct run_listed l = {.seen = {.key = {.uid = "stranger", .epoch = 1, .try_ = 1}}};
    struct kit k;

    (void)state;
    kit_begin(&k);
    name_cluster(&k, OWN);
    str_copy(l.cluster, sizeof l.cluster, OWN);
    l.state_rv = root_rv(k.root);
    assert_int_equal(sweep_why(k.root, &l), ORPHAN_LET_GO);
    l.state_rv++;
    assert_int_equal(sweep_why(k.root, &l), ORPHAN_AHEAD);
    str_copy(l.cluster, sizeof l.cluster, "another");
    assert_int_equal(sweep_why(k.root, &l), ORPHAN_FOREIGN);
    kit_end(&k);
}

/* What an agent has heard, of a state of this line that had come further. */
static void test_what_was_heard(void **state)
{
    struct kit k;

    (void)state;
    kit_begin(&k);
    assert_false(root_is_behind(k.root, OWN, 1000, UINT64_MAX)); /* we have no name yet */
    name_cluster(&k, OWN ".3");
    assert_false(root_is_behind(k.root, "", 1000, UINT64_MAX));
    assert_false(root_is_behind(k.root, OWN ".3", root_rv(k.root), UINT64_MAX));
    assert_true(root_is_behind(k.root, OWN ".3", root_rv(k.root) + 1, UINT64_MAX));
    assert_true(root_is_behind(k.root, OWN ".4", 0, UINT64_MAX)); /* it went on without this one */
    assert_false(root_is_behind(k.root, OWN ".2", root_rv(k.root) + 1, UINT64_MAX));
    assert_false(
        root_is_behind(k.root, OWN ".4.0000abcd", 0, UINT64_MAX)); /* in another log: no way back */
    assert_true(root_left_behind(k.root, OWN ".4.0000abcd"));
    assert_false(root_left_behind(k.root, OWN ".2.0000abcd"));
    assert_false(root_left_behind(k.root, OWN ".4"));
    assert_false(root_is_behind(k.root, "fedcba9876543210fedcba9876543210.9", 1000, UINT64_MAX));
    /* It has come further since; when that was heard it had not. */
    assert_true(root_is_behind(k.root, OWN ".3", root_rv(k.root), root_rv(k.root) - 1));
    kit_end(&k);
}

static void test_the_curve(void **state)
{
    struct rv_curve c = {0};

    (void)state;
    assert_true(rv_curve_most(&c, 5) == UINT64_MAX);
    rv_curve_add(&c, 1000, 10); /* as it was put back, */
    rv_curve_add(&c, 90000, 11);
    rv_curve_add(&c, 90500, 200); /* and as it goes on: too soon for a point of its own */
    rv_curve_add(&c, 91000, 300);
    assert_int_equal(rv_curve_most(&c, 500), 10);
    assert_int_equal(rv_curve_most(&c, 1000), 11); /* others of that very time may follow */
    assert_int_equal(rv_curve_most(&c, 80000), 11);
    assert_int_equal(rv_curve_most(&c, 90000), 300);
    assert_true(rv_curve_most(&c, 91000) == UINT64_MAX);
    for (int64_t i = 0; i < 3 * RV_CURVE_MAX; i++) { /* thinned out, and never less than it was */
        rv_curve_add(&c, 100000 + i * 1000, 1000 + (uint64_t)i);
        assert_true(rv_curve_most(&c, 99999 + i / 2 * 1000) >= 1000 + (uint64_t)i / 2);
    }
    assert_true(c.n <= RV_CURVE_MAX);
    rv_curve_fini(&c);
}

static void test_lines(void **state)
{
    char next[CLUSTER_UID_MAX];

    (void)state;
    assert_int_equal(cluster_generation(""), 0);
    assert_int_equal(cluster_generation(OWN), 1);
    assert_int_equal(cluster_generation(OWN ".12"), 12);
    assert_int_equal(cluster_generation(OWN ".x"), 1);
    assert_true(cluster_same_line(OWN, OWN ".2"));
    assert_false(cluster_same_line("", ""));
    assert_true(cluster_left_behind(OWN, OWN ".2"));
    assert_false(cluster_left_behind(OWN ".2", OWN ".2"));
    assert_false(cluster_left_behind("0123", OWN ".2"));
    cluster_next(OWN, next);
    assert_string_equal(next, OWN ".2");
    cluster_next(next, next);
    assert_string_equal(next, OWN ".3");

    /* A log of its own, and of two that begin at the same place the later one counts. */
    char one[CLUSTER_UID_MAX], two[CLUSTER_UID_MAX];
    assert_true(cluster_same_log(OWN, next) && cluster_same_log("", next));
    cluster_begin_anew(next, 1750000000999, 0xabcdef, one);
    assert_string_equal(one, OWN ".1750000000.00abcdef");
    cluster_begin_anew(next, 1750000001000, 0xabcdef00000001, two);
    assert_true(cluster_left_behind(next, one) && cluster_left_behind(one, two));
    assert_false(cluster_same_log(next, one) || cluster_same_log(one, two));
    cluster_next(one, next);
    assert_string_equal(next, OWN ".1750000001.00abcdef");
    assert_true(cluster_same_log(one, next));
    cluster_begin_anew(next, 0, 7, one); /* a clock that says nothing */
    assert_string_equal(one, OWN ".1750000002.00000007");
    cluster_next_from(OWN, 1750000000, next);
    assert_string_equal(next, OWN ".1750000000");
    cluster_next_from(next, 7, next);
    assert_string_equal(next, OWN ".1750000001");
}

/* What a target promised to refuse it may forget once this cluster's own log has let the uid go. */
static void test_promises(void **state)
{
    struct run_promise p = {.uid = "stranger", .cluster = OWN, .epoch = 1, .rv = 1};
    struct kit k;

    (void)state;
    kit_begin(&k);
    assert_false(promise_let_go(k.root, &p)); /* we have no name yet */
    name_cluster(&k, OWN ".2");
    assert_false(promise_let_go(k.root, &p)); /* this state went back since: it may not know it */
    p.cluster = "";
    assert_false(promise_let_go(k.root, &p));
    p.cluster = OWN ".2";
    assert_true(promise_let_go(k.root, &p));
    kit_pool(&k, 1, 4);
    assert_int_equal(kit_workload(&k, k.ns, "w", 1, 1).code, 0);
    p.uid = kit_get(&k, "w")->meta->uid;
    assert_false(promise_let_go(k.root, &p)); /* it waits, and may come there */
    assert_int_equal(kit_place(&k, "w", "fra.n0", 0, 1, 1).code, 0);
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_DISPATCH).code, 0);
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_RUNNING).code, 0);
    assert_false(promise_let_go(k.root, &p));
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_ENDED).code, 0);
    assert_true(promise_let_go(k.root, &p));
    p.epoch = 2; /* of a future that this state has not seen */
    assert_false(promise_let_go(k.root, &p));
    kit_end(&k);
}

static const char *unread_now(struct site *t)
{
    static struct facts_cmd c;

    c = (struct facts_cmd){.unread_told = false};
    if (!site_unread_due(t))
        return "nothing new";
    site_unread_fill(t, &c);
    assert_true(c.unread_told);
    return c.unread;
}

/* A condition while there are any: until the run is told readably, or a list is whole again. */
static void test_rows_that_cannot_be_read(void **state)
{
    const struct run_key k = {.uid = "x", .epoch = 1, .try_ = 1};
    struct kit kit;
    struct brain b = {.leads = true, .loop = still_loop_create(5)};
    struct site t = {.brain = &b, .name = "fra"};

    (void)state;
    kit_begin(&kit);
    name_cluster(&kit, OWN);
    b.root = kit.root;
    site_facts_init(&t);
    assert_string_equal(unread_now(&t), "nothing new");
    site_runs_begin(&t);
    site_run_unread(&t, &k, "state: \"zombie\" is not known\n");
    site_run_unread(&t, &k, "state: \"zombie\" is not known\n");
    site_run_unread(&t, NULL, "it is no JSON object");
    assert_string_equal(unread_now(&t),
                        "what it tells of 2 runs cannot be read and are passed over: x.1.1: state: "
                        "\"zombie\" is not known ");
    site_runs_listed(&t);
    assert_string_equal(unread_now(&t), "nothing new");
    site_run_read(&t, &k);
    assert_string_equal(unread_now(&t), "what it tells of 1 run cannot be read and is passed over: "
                                        "it is no JSON object");
    site_runs_begin(&t);
    site_runs_listed(&t);
    assert_string_equal(unread_now(&t), "");
    for (unsigned i = 0; i < 3; i++) { /* the same one, told with each poll */
        site_run_unread(&t, NULL, "7");
        assert_non_null(strstr(i ? t.unread.told_text : unread_now(&t), " 1 run "));
        assert_string_equal(unread_now(&t), "nothing new");
    }
    site_runs_begin(&t); /* in a list each is another one */
    for (unsigned i = 0; i < 2 * UNREAD_RUNS_MAX; i++)
        site_run_unread(&t, NULL, "7");
    assert_non_null(strstr(unread_now(&t), " 128 runs "));
    assert_int_equal(t.unread.n, 1);
    site_runs_listed(&t);
    site_run_unread(&t, NULL, "8");
    assert_string_equal(unread_now(&t), "nothing new");
    site_runs_begin(&t);
    site_run_unread(&t, NULL, "7");
    site_runs_listed(&t);
    assert_non_null(strstr(unread_now(&t), " 1 run "));
    site_runs_begin(&t);
    for (struct run_key each = k; each.epoch <= 2 * UNREAD_RUNS_MAX; each.epoch++)
        site_run_unread(&t, &each, "7");
    site_runs_listed(&t);
    assert_non_null(strstr(unread_now(&t), " 128 runs "));
    for (struct run_key each = k; each.epoch <= 2 * UNREAD_RUNS_MAX; each.epoch++)
        site_run_unread(&t, &each, "7");
    assert_string_equal(unread_now(&t), "nothing new");
    site_unread_drop(&t);
    timer_stop(&t.facts_timer);
    site_facts_drop(&t);
    (void)still_loop_destroy(b.loop);
    kit_end(&kit);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows_that_cannot_be_read),
                                       cmocka_unit_test(test_whose_end_is_in_the_log),
                                       cmocka_unit_test(test_what_is_unknown),
                                       cmocka_unit_test(test_what_is_known),
        cmocka_unit_test(test_an_end_that_is_taken_back),
                                       cmocka_unit_test(test_what_was_deleted_before),
                                       cmocka_unit_test(test_an_older_copy),
                                       cmocka_unit_test(test_what_was_heard),
                                       cmocka_unit_test(test_the_curve),
                                       cmocka_unit_test(test_promises),
                                       cmocka_unit_test(test_lines)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
