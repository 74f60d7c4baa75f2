/* How busy the GPUs of a run are: what of it the log hears, and how often; what it never says. The
 * connector says nothing here; what it would tell is told. */
#include "controlplane/leader/context/context.h"
#include "controlplane/leader/keep/events.h"
#include "controlplane/leader/use/use.h"
#include "controlplane/store/ledger/ledger.h"
#include "tests/support/store/store_kit.h"
#include "tests/support/web/still_loop.h"

#define MINUTE 60000ll

/* The way into the log is the test's: straight to the kit. */
static struct kit *log_kit;
static unsigned entries;
static propose_cb answer;
static void *answer_arg;

static bool out_of_reach; /* the log is: nothing comes into it, and errors are what is answered */

void brain_propose(struct brain *b, const union command *c, propose_cb cb, void *arg)
{
    assert_int_equal(c->run.step, STEP_USE);
    assert_null(answer); /* one at a time */
    answer = cb;
    answer_arg = arg;
    if (out_of_reach)
        return;
    assert_int_equal(kit_apply(log_kit, c).code, 0);
    b->root = log_kit->root;
    entries++;
}
void brain_propose_bytes(struct brain *b, const char *id, struct slice s, propose_cb cb, void *arg)
{
    (void)b;
    (void)id;
    (void)s;
    (void)cb;
    (void)arg;
    fail();
}
void brain_request_id(struct brain *b, char out[REQUEST_ID_MAX])
{
    (void)b;
    (void)snprintf(out, REQUEST_ID_MAX, "r-%llu", (unsigned long long)log_kit->number);
}

struct world {
    struct kit kit;
    struct brain brain;
    struct events events;
    struct uses uses;
    struct object *had; /* the Workload as the brain has seen it */
};

static const struct gpu_use *use_of_log(struct world *x)
{
    return kit_status(&x->kit, "w")->gpuUse;
}

/* The brain sees what the log has by now. */
static void follow_log(struct world *x)
{
    struct object *now = object_ref(kit_get(&x->kit, "w"));

    x->brain.root = x->kit.root;
    use_change(&x->brain, x->had, now);
    (void)object_unref(x->had);
    x->had = now;
}

static void answered(struct world *x)
{
    static const struct result done = {.code = 0};
    struct err away;
    propose_cb cb = answer;

    (void)err_set(&away, E_UNAVAIL, "no leader is known");
    follow_log(x);
    answer = NULL;
    if (cb)
        cb(answer_arg, out_of_reach ? NULL : &done, out_of_reach ? &away : NULL);
}

static void queue_with(struct world *x, const char *name, int64_t idle_after)
{
    struct queue q = {.metadata = kit_meta(&x->kit, "", name)};
    struct queue_spec spec = {.parent = "", .idleAfter = idle_after};
    const char *ns[] = {"default"};

    spec.namespaces = ns;
    spec.n_namespaces = 1;
    q.spec = &spec;
    assert_int_equal(kit_create(&x->kit, KIND_QUEUE, "", name, &q).code, 0);
}

static void world_init(struct world *x, uint32_t level, int64_t idle_after)
{
    *x = (struct world){0};
    kit_begin(&x->kit);
    kit_level_set(&x->kit, level);
    kit_pool(&x->kit, 2, 8);
    if (idle_after)
        queue_with(x, "vision", idle_after);
    assert_int_equal(kit_workload(&x->kit, x->kit.ns, "w", 2, 4).code, 0);
    union command c = {0};
    kit_place_head(&x->kit, &c, "w", "placed", "Chosen");
    c.place.placement = kit_workers(&x->kit, "fra.n0", 0, 2, 4);
    c.place.placement->class_ = "h100";
    str_copy(c.place.queue, sizeof c.place.queue, kit_status(&x->kit, "w")->queue);
    assert_int_equal(kit_apply(&x->kit, &c).code, 0);
    assert_int_equal(kit_run(&x->kit, "w", 1, 1, STEP_DISPATCH).code, 0);
    assert_int_equal(kit_run(&x->kit, "w", 1, 1, STEP_RUNNING).code, 0);
    log_kit = &x->kit;
    entries = 0;
    answer = NULL;
    out_of_reach = false;
    x->brain = (struct brain){.events = &x->events,
                              .uses = &x->uses,
                              .leads = true,
                              .root = x->kit.root,
                              .loop = still_loop_create(5)};
    events_init(&x->brain);
    uses_init(&x->brain);
    x->had = object_ref(kit_get(&x->kit, "w"));
}

static void world_fini(struct world *x)
{
    events_drop(&x->brain);
    uses_drop(&x->brain);
    assert_true(list_empty(&x->uses.all));
    (void)object_unref(x->had);
    (void)still_loop_destroy(x->brain.loop);
    kit_end(&x->kit);
}

static void passes(struct world *x, int64_t ms)
{
    union command c = {.head = {.type = CMD_MEMBER}};

    x->kit.now += ms;
    c.member.member.id = 1;
    c.member.member.feature_level = root_feature_level(x->kit.root);
    (void)kit_apply(&x->kit, &c); /* the log's time goes on */
    x->brain.root = x->kit.root;
}

/* So much later the target tells that; what comes of it is answered. */
static void told(struct world *x, int64_t later, struct run_use u)
{
    passes(x, later);
    u.key.epoch = u.key.epoch ? u.key.epoch : 1;
    u.key.try_ = 1;
    str_copy(u.key.uid, sizeof u.key.uid, kit_get(&x->kit, "w")->meta->uid);
    use_told(&x->brain, "fra", &u);
    answered(x);
}

/* The target tells nothing for long, and both entries that come of it are answered. */
static void silence(struct world *x)
{
    still_loop_run(x->brain.loop, RUN_USE_FRESH_MS + 1);
    answered(x);
    answered(x);
}

static const struct run_use busy = {.devices = 8, .percent = 80, .memory_bytes = 1 << 30};

static struct run_use resting(int64_t ms)
{
    return (struct run_use){.devices = 8,
                            .resting = 8,
                            .resting_ms = (uint64_t)ms,
                            .idle = ms >= RUN_IDLE_MS ? 8 : 0,
                            .idle_ms = ms >= RUN_IDLE_MS ? (uint64_t)ms : 0};
}

static void test_the_log_hears_what_is_worth_it(void **state)
{
    struct world x;

    (void)state;
    world_init(&x, FEATURE_LEVEL, 0);
    told(&x, MINUTE, busy);
    assert_int_equal(entries, 1); /* it is measured: that is news */
    assert_int_equal(use_of_log(&x)->measured, 8000);
    assert_int_equal(use_of_log(&x)->percent, 80);
    assert_int_equal(use_of_log(&x)->memory, 1 << 30);
    assert_int_equal(use_of_log(&x)->at, x.kit.now);
    for (int i = 0; i < 60; i++)
        told(&x, MINUTE, busy);
    assert_int_equal(entries, 1); /* an hour of the same is none */
    for (int i = 0; i < 60; i++) {
        struct run_use u = busy;
        u.percent = i % 2 ? 100 : 0;
        u.resting = i % 2 ? 0 : 3;
        told(&x, MINUTE, u);
    }
    assert_true(entries > 1 && entries <= 7); /* nor is one of a minute's whims */
    assert_true(use_of_log(&x)->percent > 40 && use_of_log(&x)->percent < 60);
    world_fini(&x);
}

static void test_idle_is_told_once_it_is_long(void **state)
{
    struct world x;

    (void)state;
    world_init(&x, FEATURE_LEVEL, 0); /* idleAfter is half an hour where no Queue says more */
    told(&x, MINUTE, busy);
    int64_t since = x.kit.now + MINUTE;
    for (int i = 0; i < 5; i++)
        told(&x, MINUTE, resting(i * MINUTE));
    assert_int_equal(entries, 1); /* a pause */
    told(&x, MINUTE, resting(5 * MINUTE));
    assert_int_equal(entries, 2);
    assert_int_equal(use_of_log(&x)->idle, 8000);
    assert_int_equal(use_of_log(&x)->idleSince, since);
    assert_int_equal(use_of_log(&x)->percent, 0);
    assert_false(use_of_log(&x)->told);
    for (int i = 6; i < 30; i++)
        told(&x, MINUTE, resting(i * MINUTE));
    assert_int_equal(entries, 2);
    assert_int_equal(x.events.n, 0);
    for (int i = 30; i < 200; i++)
        told(&x, MINUTE, resting(i * MINUTE));
    assert_int_equal(entries, 3);
    assert_true(use_of_log(&x)->told);
    assert_int_equal(x.events.n, 1); /* GPUIdle, once */
    told(&x, MINUTE, busy);
    assert_int_equal(entries, 4);
    assert_int_equal(use_of_log(&x)->idle, 0);
    assert_false(use_of_log(&x)->told);
    assert_int_equal(use_of_log(&x)->idleSince, 0);
    world_fini(&x);
}

static void test_a_queue_says_how_long_is_long(void **state)
{
    struct world x;

    (void)state;
    world_init(&x, FEATURE_LEVEL, 2 * MINUTE);
    assert_string_equal(kit_status(&x.kit, "w")->queue, "vision");
    told(&x, MINUTE, resting(0));
    told(&x, MINUTE, resting(MINUTE));
    assert_int_equal(use_of_log(&x)->idle, 0);
    told(&x, MINUTE, resting(2 * MINUTE));
    assert_int_equal(use_of_log(&x)->idle, 8000);
    assert_true(use_of_log(&x)->told);
    assert_int_equal(x.events.n, 1);
    world_fini(&x);
}

/* Who measures it has begun anew, and so has whoever leads: since when it rests is in the log. */
static void test_another_leader_goes_on(void **state)
{
    struct world x;

    (void)state;
    world_init(&x, FEATURE_LEVEL, 0);
    x.kit.now += 60 * MINUTE;
    told(&x, MINUTE, resting(40 * MINUTE));
    int64_t since = use_of_log(&x)->idleSince;
    assert_true(use_of_log(&x)->told);
    told(&x, MINUTE, resting(0));
    told(&x, MINUTE, resting(MINUTE));
    assert_int_equal(entries, 1);
    assert_int_equal(use_of_log(&x)->idleSince, since);
    assert_int_equal(x.events.n, 1);
    world_fini(&x);
}

static void test_what_is_not_measured_is_not_told(void **state)
{
    struct world x;
    struct run_use u = busy;

    (void)state;
    world_init(&x, FEATURE_LEVEL, 0);
    u.devices = 0;
    told(&x, MINUTE, u);
    u = busy;
    u.key.epoch = 2; /* of another epoch */
    told(&x, MINUTE, u);
    assert_int_equal(entries, 0);
    assert_null(use_of_log(&x));
    u = busy;
    u.devices = 6;
    u.idle = 2;
    u.idle_ms = 6 * MINUTE;
    told(&x, MINUTE, u);
    assert_int_equal(use_of_log(&x)->measured, 6000);
    assert_int_equal(use_of_log(&x)->idle, 2000);
    /* more than it holds is what it holds */
    u.devices = 1u << 30;
    u.idle = 1u << 29;
    u.percent = 4000;
    u.memory_bytes = -5;
    told(&x, 11 * MINUTE, u);
    assert_int_equal(use_of_log(&x)->measured, 8000);
    assert_int_equal(use_of_log(&x)->idle, 8000);
    assert_int_equal(use_of_log(&x)->percent, 0);
    assert_int_equal(use_of_log(&x)->memory, 0);
    /* it ends: what was is no word of what is */
    assert_int_equal(kit_run(&x.kit, "w", 1, 1, STEP_UNKNOWN).code, 0);
    assert_null(use_of_log(&x));
    follow_log(&x);
    told(&x, MINUTE, busy);
    assert_null(use_of_log(&x));
    world_fini(&x);
}

/* Nobody tells of it any more: it is not measured, whatever it was, and whoever led then. */
static void test_silence_is_no_rest(void **state)
{
    struct world x;

    (void)state;
    world_init(&x, FEATURE_LEVEL, 0);
    told(&x, MINUTE, resting(6 * MINUTE));
    assert_non_null(use_of_log(&x));
    silence(&x);
    assert_int_equal(entries, 3); /* what it did before that is told first */
    assert_null(use_of_log(&x));
    told(&x, MINUTE, busy);
    assert_int_equal(entries, 4);
    uses_drop(&x.brain);
    uses_reset(&x.brain); /* another leader: the log has it as measured */
    assert_false(list_empty(&x.uses.all));
    silence(&x);
    assert_int_equal(entries, 6);
    assert_null(use_of_log(&x));
    world_fini(&x);
}

/* What was between two readings that are far apart nobody knows, whoever led. */
static void test_a_gap_is_no_rest(void **state)
{
    struct world x;

    (void)state;
    world_init(&x, FEATURE_LEVEL, 0);
    x.kit.now += 60 * MINUTE;
    told(&x, MINUTE, resting(40 * MINUTE));
    assert_int_equal(use_of_log(&x)->idle, 8000);
    told(&x, 6 * MINUTE, resting(0));
    assert_int_equal(use_of_log(&x)->idle, 0);
    for (int i = 1; i < 6; i++)
        told(&x, MINUTE, resting(i * MINUTE));
    assert_int_equal(use_of_log(&x)->idle, 8000);
    assert_int_equal(use_of_log(&x)->idleSince, x.kit.now - 5 * MINUTE);
    assert_false(use_of_log(&x)->told);
    int64_t since = use_of_log(&x)->idleSince;
    /* the next leader goes on where the log was, */
    uses_drop(&x.brain);
    uses_reset(&x.brain);
    told(&x, 2 * MINUTE, resting(0));
    assert_int_equal(use_of_log(&x)->idleSince, since);
    /* but not where its first reading comes long after the end of the one before */
    uses_drop(&x.brain);
    uses_reset(&x.brain);
    told(&x, 6 * MINUTE, resting(MINUTE));
    assert_int_equal(use_of_log(&x)->idle, 0);
    /* nor do those count that were not measured at all */
    struct run_use u = resting(10 * MINUTE);
    u.devices = u.resting = u.idle = 4;
    told(&x, 11 * MINUTE, u);
    assert_int_equal(use_of_log(&x)->idle, 4000);
    u = resting(MINUTE);
    u.idle = 4;
    u.idle_ms = 11 * MINUTE;
    told(&x, MINUTE, u);
    assert_true(use_of_log(&x)->idle < 8000);
    world_fini(&x);
}

/* Nobody tells of it any more, and the log cannot be told at once: it hears that later. */
static void test_an_end_of_readings_is_not_lost(void **state)
{
    struct world x;

    (void)state;
    world_init(&x, FEATURE_LEVEL, 0);
    told(&x, MINUTE, resting(6 * MINUTE));
    out_of_reach = true; /* the answer is an error, */
    silence(&x);
    assert_non_null(use_of_log(&x));
    out_of_reach = false;
    silence(&x);
    assert_null(use_of_log(&x));
    /* or one about what was before is awaited still, */
    told(&x, MINUTE, busy);
    passes(&x, MINUTE);
    struct run_use u = resting(6 * MINUTE);
    u.key.epoch = u.key.try_ = 1;
    str_copy(u.key.uid, sizeof u.key.uid, kit_get(&x.kit, "w")->meta->uid);
    use_told(&x.brain, "fra", &u);
    still_loop_run(x.brain.loop, RUN_USE_FRESH_MS + 1);
    answered(&x);
    silence(&x);
    assert_null(use_of_log(&x));
    /* also where this brain leads anew meanwhile */
    passes(&x, 60 * MINUTE);
    use_told(&x.brain, "fra", &u);
    assert_non_null(use_of_log(&x));
    uses_drop(&x.brain);
    uses_reset(&x.brain);
    answered(&x);
    silence(&x);
    assert_null(use_of_log(&x));
    world_fini(&x);
}

/* What its GPUs did by the ledger, in minutes of one GPU. */
static struct ledger_sum ledger_of(const struct world *x)
{
    const struct ledger_query q = {.to_day = INT64_MAX, .rows_max = 1};
    struct ledger_report r;

    ledger_report_make(x->kit.root, x->kit.now, &q, x->kit.a, &r);
    return r.total;
}

static int64_t minutes(ledger_amount v)
{
    return (int64_t)((v + 500 * MINUTE) / 1000 / MINUTE);
}

/* They rest and work in turns: a few entries an hour, and none of what was idle is lost by that. */
static void test_turns_are_few_entries_and_all_of_them_count(void **state)
{
    struct world x;

    (void)state;
    world_init(&x, FEATURE_LEVEL, 0);
    told(&x, MINUTE, busy);
    for (int hour = 0; hour < 7; hour++) {
        entries = 0;
        for (int i = 0; i < 60; i++) {
            int turn = (hour * 60 + i) % 7; /* idle for six minutes of seven */
            told(&x, MINUTE, turn == 6 ? busy : resting(turn * MINUTE));
        }
        assert_in_range(entries, 1, hour ? 5 : 10);
    }
    silence(&x);
    root_check(x.kit.root);
    assert_int_equal(minutes(ledger_of(&x).measured), 8 * 7 * 60);
    assert_int_equal(minutes(ledger_of(&x).idle), 8 * 6 * 60);
    world_fini(&x);
}

/* A hub that was away for hours, while nobody measured: none of that counts. */
static void test_what_nobody_measured_counts_for_nobody(void **state)
{
    struct world x;

    (void)state;
    world_init(&x, FEATURE_LEVEL, 0);
    told(&x, MINUTE, busy);
    for (int i = 0; i <= 20; i++)
        told(&x, MINUTE, resting(i * MINUTE));
    uses_drop(&x.brain);
    uses_reset(&x.brain);
    told(&x, 300 * MINUTE, busy);
    told(&x, MINUTE, busy);
    silence(&x);
    assert_int_equal(minutes(ledger_of(&x).measured), 8 * 22);
    assert_int_equal(minutes(ledger_of(&x).idle), 8 * 20);
    root_check(x.kit.root);
    world_fini(&x);
}

/* What it says is of another Target, or comes while the answer is awaited. */
static void test_whose_word_counts(void **state)
{
    struct world x;
    struct run_use u = busy;

    (void)state;
    world_init(&x, FEATURE_LEVEL, 0);
    str_copy(u.key.uid, sizeof u.key.uid, kit_get(&x.kit, "w")->meta->uid);
    u.key.epoch = u.key.try_ = 1;
    use_told(&x.brain, "ber", &u);
    assert_int_equal(entries, 0);
    use_told(&x.brain, "fra", &u);
    use_told(&x.brain, "fra", &u);
    assert_int_equal(entries, 1);
    uses_drop(&x.brain); /* it leads no more; the answer comes later */
    answered(&x);
    world_fini(&x);
}

static void test_older_members_hear_nothing(void **state)
{
    struct world x;

    (void)state;
    world_init(&x, FEATURE_TELLS - 1, 0);
    told(&x, MINUTE, busy);
    assert_int_equal(entries, 0);
    assert_null(use_of_log(&x));
    world_fini(&x);
}

static void test_figures(void **state)
{
    struct world x;
    AUTO_BUF out = {0};

    (void)state;
    world_init(&x, FEATURE_LEVEL, 0);
    buf_init(&out, 65536);
    uses_metrics(&x.brain, &out);
    buf_char(&out, '\0');
    assert_null(strstr(out.p, "target=")); /* nothing is measured: that is no 0 */
    struct run_use u = busy;
    u.idle = 2;
    u.idle_ms = 6 * MINUTE;
    told(&x, MINUTE, u);
    buf_fini(&out);
    buf_init(&out, 65536);
    uses_metrics(&x.brain, &out);
    buf_char(&out, '\0');
    assert_non_null(strstr(out.p, "hanse_target_gpus_measured{target=\"fra\"} 8\n"));
    assert_non_null(strstr(out.p, "hanse_target_gpus_idle{target=\"fra\"} 2\n"));
    assert_non_null(strstr(out.p, "hanse_target_gpu_utilisation_ratio{target=\"fra\"} 0.8\n"));
    world_fini(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_log_hears_what_is_worth_it),
        cmocka_unit_test(test_idle_is_told_once_it_is_long),
        cmocka_unit_test(test_a_queue_says_how_long_is_long),
        cmocka_unit_test(test_another_leader_goes_on),
        cmocka_unit_test(test_what_is_not_measured_is_not_told),
        cmocka_unit_test(test_silence_is_no_rest),
        cmocka_unit_test(test_a_gap_is_no_rest),
        cmocka_unit_test(test_an_end_of_readings_is_not_lost),
        cmocka_unit_test(test_turns_are_few_entries_and_all_of_them_count),
        cmocka_unit_test(test_what_nobody_measured_counts_for_nobody),
        cmocka_unit_test(test_whose_word_counts),
        cmocka_unit_test(test_older_members_hear_nothing),
        cmocka_unit_test(test_figures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
