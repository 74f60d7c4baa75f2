/* The ledger: what runs, waits, is lost and stands idle, in integers that add up; its money; its
 * bounds. A long random history against an independent replay is in test_random.c. */
#include "tests/support/store/move_kit.h"
#include "controlplane/store/ledger/ledger_internal.h"

#include <time.h>

#define HOUR 3600000ll
#define GPU_HOURS(n) ((ledger_amount)(n)*3600000000ll)

static struct ledger_sum sum_of(struct kit *k, enum ledger_by by, const char *value)
{
    struct ledger_query q = {.by = {by}, .n_by = 1, .to_day = INT64_MAX, .rows_max = 1000};
    struct ledger_report r;

    ledger_report_make(k->root, k->now, &q, k->a, &r);
    assert_true(r.intervals == r.capacity + r.overhang);
    assert_true(r.cpu_intervals == r.cpu_capacity + r.cpu_overhang);
    for (size_t i = 0; i < r.n; i++)
        if (strcmp(r.rows[i].key[0], value) == 0)
            return r.rows[i].sum;
    return (struct ledger_sum){0};
}

static double gpu_hours(struct kit *k, enum ledger_by by, const char *value)
{
    return (double)sum_of(k, by, value).amount / LEDGER_GPU_HOUR;
}

#define assert_near(a, b) assert_true((a) > (b)-1e-9 && (a) < (b) + 1e-9)

static void run_to(struct kit *k, const char *name, int64_t epoch, bool running)
{
    assert_int_equal(kit_run(k, name, epoch, 1, STEP_DISPATCH).code, 0);
    if (running)
        assert_int_equal(kit_run(k, name, epoch, 1, STEP_RUNNING).code, 0);
}

static void price_sheet(struct kit *k, double amortised, double spot)
{
    struct price_sheet *s = arena_new(k->a, struct price_sheet);

    s->spec = arena_new(k->a, struct price_sheet_spec);
    s->spec->currency = "USD";
    s->spec->gpuHour = arena_new(k->a, struct gpu_price);
    s->spec->n_gpuHour = 1;
    s->spec->gpuHour->class_ = "h100";
    s->spec->gpuHour->region = "";
    s->spec->gpuHour->amortised = amortised;
    s->spec->gpuHour->spot = spot;
    const struct object *old = root_get(k->root, KIND_PRICE_SHEET, "", "own");
    if (!old) {
        assert_int_equal(kit_create(k, KIND_PRICE_SHEET, "", "own", s).code, 0);
        return;
    }
    s->metadata = kit_meta(k, "", "own");
    assert_int_equal(kit_update(k, KIND_PRICE_SHEET, "", "own", s, 0, false).code, 0);
}

static void test_causes(void **state)
{
    struct kit k;
    struct run_checkpoint ck = {.step = 1, .digest = "sha256:x", .name = "c"};

    (void)state;
    kit_begin(&k);
    kit_pool(&k, 1, 8); /* 8 devices */
    k.now += HOUR;
    assert_near(gpu_hours(&k, LEDGER_BY_CAUSE, "idle"), 8);
    k.retries = 5;
    assert_int_equal(kit_workload(&k, "default", "w", 1, 2).code, 0);
    assert_int_equal(kit_place(&k, "w", "fra.n0", 0, 1, 2).code, 0);
    k.now += HOUR;
    assert_near(gpu_hours(&k, LEDGER_BY_CAUSE, "starting"), 2);
    run_to(&k, "w", 1, true);
    k.now += HOUR;
    assert_near(gpu_hours(&k, LEDGER_BY_CAUSE, "useful"), 2); /* so far */
    k.checkpoint = &ck;
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_CHECKPOINT).code, 0);
    k.checkpoint = NULL;
    k.now += HOUR;
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_UNKNOWN).code, 0);
    k.now += HOUR;
    assert_near(gpu_hours(&k, LEDGER_BY_CAUSE, "unknown"), 2);
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_SEEN).code, 0);
    k.now += HOUR;
    k.exit_code = 1;
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_ENDED).code, 0);
    k.exit_code = 0;
    assert_near(gpu_hours(&k, LEDGER_BY_CAUSE, "useful"), 2);
    assert_near(gpu_hours(&k, LEDGER_BY_CAUSE, "restarted"), 4);
    assert_near(gpu_hours(&k, LEDGER_BY_CAUSE, "unknown"), 2);
    assert_near(gpu_hours(&k, LEDGER_BY_WORKLOAD, "w"), 10);
    assert_near(gpu_hours(&k, LEDGER_BY_PROJECT, "default"), 10);
    const struct spent *sp = object_as(kit_get(&k, "w"), workload)->status->spent;
    assert_near(sp->gpuHours, 10);
    assert_near(sp->cost, 20);
    assert_near(sp->wasted, 4);
    assert_near(sum_of(&k, LEDGER_BY_WORKLOAD, "w").money, 20);
    assert_near(sum_of(&k, LEDGER_BY_WORKLOAD, "w").money_lost, 8);

    /* the lease is over: its node failed */
    assert_int_equal(kit_place(&k, "w", "fra.n0", 0, 1, 2).code, 0);
    run_to(&k, "w", 2, true);
    k.now += HOUR;
    assert_int_equal(kit_run(&k, "w", 2, 1, STEP_UNKNOWN).code, 0);
    k.now += HOUR;
    k.requeue = true;
    union command c = {.head = {.type = CMD_RUN}};
    const struct object *o = kit_get(&k, "w");
    (void)snprintf(c.run.ns, sizeof c.run.ns, "default");
    (void)snprintf(c.run.name, sizeof c.run.name, "w");
    str_copy(c.run.uid, sizeof c.run.uid, o->meta->uid);
    c.run.epoch = 2;
    c.run.try_ = 1;
    c.run.step = STEP_LEASE_OVER;
    c.run.proof = PROOF_LEASE_EXPIRED;
    c.run.requeue = true;
    assert_int_equal(kit_apply(&k, &c).code, 0);
    k.requeue = false;
    assert_near(gpu_hours(&k, LEDGER_BY_CAUSE, "failedNode"), 2);
    assert_near(gpu_hours(&k, LEDGER_BY_CAUSE, "unknown"), 4);

    /* over before anybody saw it run: it was no start */
    assert_int_equal(kit_place(&k, "w", "fra.n0", 0, 1, 2).code, 0);
    run_to(&k, "w", 3, false);
    k.now += HOUR;
    assert_int_equal(kit_run(&k, "w", 3, 1, STEP_ENDED).code, 0);
    assert_int_equal(kit_phase(&k, "default", "w"), PHASE_SUCCEEDED);
    assert_near(gpu_hours(&k, LEDGER_BY_CAUSE, "useful"), 4);
    assert_near(gpu_hours(&k, LEDGER_BY_CAUSE, "starting"), 2);
    assert_near(gpu_hours(&k, LEDGER_BY_CLASS, "h100"), 9 * 8);
    kit_end(&k);
}

static void test_devices(void **state)
{
    struct kit k;

    (void)state;
    kit_begin(&k);
    kit_pool(&k, 2, 4);
    assert_int_equal(kit_workload(&k, "default", "w", 1, 4).code, 0);
    assert_int_equal(kit_place(&k, "w", "fra.n1", 0, 1, 4).code, 0);
    run_to(&k, "w", 1, true);
    k.now += HOUR; /* 4 useful, 4 idle */
    assert_int_equal(kit_facts(&k, "fra", 2, 4, false).code, 0);
    k.now += HOUR; /* out of reach: 4 useful, 4 unavailable */
    assert_near(gpu_hours(&k, LEDGER_BY_CAUSE, "idle"), 4);
    assert_near(gpu_hours(&k, LEDGER_BY_CAUSE, "unavailable"), 4);
    assert_int_equal(kit_facts(&k, "fra", 1, 4, true).code, 0);
    k.now += HOUR; /* its node vanished: 4 useful beyond capacity, 4 idle */
    struct ledger_query q = {.to_day = INT64_MAX, .rows_max = 10};
    struct ledger_report r;
    ledger_report_make(k.root, k.now, &q, k.a, &r);
    assert_int_equal(r.n, 1);
    assert_true(r.capacity == GPU_HOURS(8 + 8 + 4) && r.overhang == GPU_HOURS(4));
    assert_true(r.intervals == GPU_HOURS(24));
    q.filter[LEDGER_BY_PROJECT] = "default";
    ledger_report_make(k.root, k.now, &q, k.a, &r);
    assert_true(r.total.amount == GPU_HOURS(12) && r.intervals == GPU_HOURS(24));
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_ENDED).code, 0);
    assert_int_equal(kit_facts(&k, "fra", 0, 0, true).code, 0);
    k.now += HOUR; /* nothing is there, nothing is booked */
    assert_true(sum_of(&k, LEDGER_BY_CAUSE, "idle").amount == GPU_HOURS(8));
    kit_end(&k);
}

/* A workload on fra that is told to go to ber; what ran since its checkpoint is lost to the
 * cause. */
static void moved(enum move_cause cause, const char *as)
{
    struct kit k;

    kit_begin(&k);
    kit_target(&k, "fra", TIER_HUB, 1, 4);
    kit_target(&k, "ber", TIER_SPOKE, 1, 4);
    kit_class(&k, "production", 1000, true, 0);
    kit_class(&k, "batch", 10, false, 0);
    kit_running(&k, "w", "batch", "fra.n0", 0, 2);
    k.now += HOUR;
    assert_int_equal(kit_checkpoint(&k, "w", 1, 40, "sha256:a").code, 0);
    k.now += HOUR;
    bool preempted = cause == MOVE_PREEMPTION;
    if (preempted)
        kit_running(&k, "p", "production", "", 0, 4);
    struct move_begin b = kit_begin_of(&k, "w", cause, kit_placement(&k, "ber.n0", 0, 2));
    assert_string_equal(kit_plan(&k, &b, 1, preempted ? "p" : NULL,
                                 preempted ? kit_placement(&k, "fra.n0", 0, 4) : NULL)
                            .text,
                        "");
    k.now += HOUR;
    assert_near(gpu_hours(&k, LEDGER_BY_CAUSE, "migrating"), 2); /* it is held already */
    assert_string_equal(kit_step(&k, "w-m1", MOVE_QUIESCE).text, "");
    k.requeue = true;
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_ENDED).code, 0);
    k.requeue = false;
    assert_near(gpu_hours(&k, LEDGER_BY_CAUSE, "useful"), 2);
    assert_near(gpu_hours(&k, LEDGER_BY_CAUSE, as), 4);
    for (enum move_step s = MOVE_VERIFY; s <= MOVE_START; s++)
        assert_string_equal(kit_step(&k, "w-m1", s).text, "");
    k.now += HOUR;
    assert_near(gpu_hours(&k, LEDGER_BY_CAUSE, "migrating"), 2);
    assert_near(gpu_hours(&k, LEDGER_BY_CAUSE, "starting"), 2);
    assert_near(gpu_hours(&k, LEDGER_BY_TARGET, "ber"), 4 * 4);
    assert_near(gpu_hours(&k, LEDGER_BY_WORKLOAD, "w"), 10);
    assert_near(kit_status(&k, "w")->spent->gpuHours, 6); /* its own places only */
    assert_near(kit_status(&k, "w")->spent->wasted, 4);
    kit_end(&k);
}

static void test_moves(void **state)
{
    static const struct {
        enum move_cause cause;
        const char *as;
    } causes[] = {{MOVE_PREEMPTION, "preempted"}, {MOVE_SPOT, "preempted"},
                  {MOVE_SICK, "failedNode"},      {MOVE_LOST, "failedNode"},
                  {MOVE_DRAIN, "restarted"},      {MOVE_CHEAPER, "restarted"}};

    (void)state;
    for (size_t i = 0; i < sizeof causes / sizeof *causes; i++)
        moved(causes[i].cause, causes[i].as);
}

/* Days are cut at midnight, prices where they change; what is rented costs while nobody holds it,
 * too. */
static void test_days_and_prices(void **state)
{
    struct kit k;

    (void)state;
    kit_begin(&k);
    k.now = 21000 * LEDGER_DAY_MS + 20 * HOUR;
    price_sheet(&k, 1.5, 0);
    kit_pool(&k, 1, 2);
    k.now += HOUR;
    assert_near(sum_of(&k, LEDGER_BY_CAUSE, "idle").money, 0);
    assert_true(sum_of(&k, LEDGER_BY_CAUSE, "idle").unpriced == GPU_HOURS(2));
    struct target *t = object_edit_as(root_get(k.root, KIND_TARGET, "", "fra"), target, k.a);
    t->spec->priceSheet = "own";
    assert_int_equal(kit_update(&k, KIND_TARGET, "", "fra", t, 0, false).code, 0);
    k.now += 5 * HOUR; /* two days: 3 and 2 hours */
    price_sheet(&k, 2, 0);
    k.now += HOUR;
    struct ledger_sum idle = sum_of(&k, LEDGER_BY_CAUSE, "idle");
    assert_near(idle.money, 2 * (5 * 1.5 + 2));
    assert_true(idle.unpriced == GPU_HOURS(2));
    struct ledger_query q = {.by = {LEDGER_BY_DAY}, .n_by = 1, .to_day = 21001, .rows_max = 10};
    struct ledger_report r;
    ledger_report_make(k.root, k.now, &q, k.a, &r);
    assert_int_equal(r.n, 1);
    assert_string_equal(r.rows[0].key[0], "2027-07-01");
    assert_true(r.total.amount == GPU_HOURS(8) && r.capacity == r.intervals);
    q.from_day = 21001;
    q.to_day = 21002;
    ledger_report_make(k.root, k.now, &q, k.a, &r);
    assert_true(r.total.amount == GPU_HOURS(6) && r.n == 1);
    t = object_edit_as(root_get(k.root, KIND_TARGET, "", "fra"), target, k.a);
    t->spec->capacity = CAPACITY_SPOT;
    assert_int_equal(kit_update(&k, KIND_TARGET, "", "fra", t, 0, false).code, 0);
    k.now += HOUR;
    price_sheet(&k, 2, 3);
    k.now += HOUR;
    struct ledger_sum spot = sum_of(&k, LEDGER_BY_CAPACITY, "spot");
    assert_true(spot.amount == GPU_HOURS(4) && spot.unpriced == GPU_HOURS(2));
    assert_near(spot.money, 2 * 3); /* it stands there, rented */
    kit_end(&k);
}

static double cpu_hours(struct kit *k, enum ledger_by by, const char *value)
{
    return (double)sum_of(k, by, value).cpu / LEDGER_GPU_HOUR;
}

/* CPUs are booked beside GPUs, and of work that has none; from the entry on that shows that every
 * member knows of them, and what ran then already. */
static void test_cpus(void **state)
{
    union command member = {.member = {.head = {.type = CMD_MEMBER},
                                       .member = {.id = 1, .feature_level = FEATURE_LEVEL}}};
    struct kit k;

    (void)state;
    kit_begin(&k);
    kit_pool(&k, 2, 4); /* 64 CPUs each */
    assert_int_equal(kit_workload(&k, "default", "early", 1, 2).code, 0);
    assert_int_equal(kit_place(&k, "early", "fra.n0", 0, 1, 2).code, 0);
    assert_int_equal(kit_workload(&k, "default", "plain", 3, 0).code, 0);
    assert_int_equal(kit_place(&k, "plain", "fra.n1", 0, 3, 0).code, 0);
    run_to(&k, "early", 1, true);
    run_to(&k, "plain", 1, true);
    k.now += HOUR;
    assert_near(cpu_hours(&k, LEDGER_BY_CAUSE, "idle"), 0);
    assert_int_equal(kit_apply(&k, &member).code, 0);
    root_check(k.root);
    k.now += HOUR;
    assert_near(cpu_hours(&k, LEDGER_BY_WORKLOAD, "early"), 1);
    assert_near(cpu_hours(&k, LEDGER_BY_WORKLOAD, "plain"), 3);
    assert_near(gpu_hours(&k, LEDGER_BY_WORKLOAD, "plain"), 0);
    assert_near(cpu_hours(&k, LEDGER_BY_CAUSE, "idle"), 124);
    assert_near(gpu_hours(&k, LEDGER_BY_CAUSE, "idle"), 12);
    assert_int_equal(kit_run(&k, "plain", 1, 1, STEP_ENDED).code, 0);
    assert_near(kit_status(&k, "plain")->spent->cpuHours, 3);
    assert_near(kit_status(&k, "plain")->spent->gpuHours, 0);
    assert_int_equal(kit_run(&k, "early", 1, 1, STEP_ENDED).code, 0);
    assert_near(kit_status(&k, "early")->spent->cpuHours, 1);
    k.now += HOUR;
    assert_int_equal(kit_facts(&k, "fra", 1, 4, true).code, 0); /* a node vanished */
    k.now += HOUR;
    assert_near(cpu_hours(&k, LEDGER_BY_CAUSE, "idle"), 124 + 128 + 64);
    assert_near(cpu_hours(&k, LEDGER_BY_CLASS, LEDGER_CPU), 128 + 128 + 64);
    root_check(k.root);
    kit_end(&k);
}

/* What others hold is a cause of its own: all that there is adds up to the capacity, and no run of
 * ours is taken for theirs. */
static void others_told(struct kit *k, int64_t *gpus, uint32_t n_gpus, int64_t more, bool ready)
{
    struct others_class of = {.class_ = "h100", .count = more};
    struct node_others others = {
        .cpu = 16000, .gpus = gpus, .n_gpus = n_gpus, .classes = &of, .n_classes = more > 0};
    struct node_status status = {.health = ready ? HEALTH_READY : HEALTH_NOT_READY,
                                 .others = &others,
                                 .reason = ""};
    struct node n = *object_as(root_get(k->root, KIND_NODE, "", "fra.n0"), node);
    union command c = {.facts = {.head = {.type = CMD_FACTS},
                                 .target = "fra",
                                 .session = "s1",
                                 .reach_told = true,
                                 .reachable = true,
                                 .nodes = &n,
                                 .n = 1}};

    n.status = &status;
    assert_int_equal(kit_apply(k, &c).code, 0);
}

static void test_others(void **state)
{
    int64_t two[] = {2, 3};
    struct kit k;

    (void)state;
    kit_begin(&k);
    kit_pool(&k, 1, 4); /* 64 CPUs */
    price_sheet(&k, 2, 1);
    kit_level_set(&k, FEATURE_GRANTS);
    assert_int_equal(kit_workload(&k, "default", "w", 1, 2).code, 0);
    assert_int_equal(kit_place(&k, "w", "fra.n0", 0, 1, 2).code, 0); /* 0 and 1, 1 CPU */
    run_to(&k, "w", 1, true);
    others_told(&k, two, 1, 0, true); /* they have 2 */
    kit_reload(&k);
    k.now += HOUR;
    assert_near(gpu_hours(&k, LEDGER_BY_CAUSE, "others"), 1);
    assert_near(gpu_hours(&k, LEDGER_BY_CAUSE, "idle"), 1);
    assert_near(gpu_hours(&k, LEDGER_BY_CAUSE, "useful"), 2);
    assert_near(cpu_hours(&k, LEDGER_BY_CAUSE, "others"), 16);
    assert_near(cpu_hours(&k, LEDGER_BY_CAUSE, "idle"), 64 - 16 - 1);
    struct ledger_sum theirs = sum_of(&k, LEDGER_BY_CAUSE, "others");
    assert_true(theirs.money < 1e-9 && theirs.unpriced == 0); /* nobody here pays for it */
    others_told(&k, two, 2, 3, true); /* 2 and 3, and three more: only ours are left, and stay */
    k.now += HOUR;
    assert_near(gpu_hours(&k, LEDGER_BY_CAUSE, "others"), 1 + 2);
    assert_near(gpu_hours(&k, LEDGER_BY_CAUSE, "useful"), 4);
    others_told(&k, NULL, 0, 1, true); /* 2 or 3 */
    kit_reload(&k);
    k.now += HOUR;
    assert_near(gpu_hours(&k, LEDGER_BY_CAUSE, "others"), 1 + 2 + 1);
    assert_near(gpu_hours(&k, LEDGER_BY_CAUSE, "idle"), 1 + 0 + 1);
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_ENDED).code, 0);
    others_told(&k, NULL, 0, 3, false); /* theirs on a node that is not ready */
    k.now += HOUR;
    assert_near(gpu_hours(&k, LEDGER_BY_CAUSE, "others"), 1 + 2 + 1 + 3);
    assert_near(gpu_hours(&k, LEDGER_BY_CAUSE, "unavailable"), 1);
    assert_int_equal(kit_facts(&k, "fra", 1, 4, true).code, 0); /* and gone */
    k.now += HOUR;
    assert_near(gpu_hours(&k, LEDGER_BY_CAUSE, "others"), 1 + 2 + 1 + 3);
    root_check(k.root);
    kit_end(&k);
}

/* Lines that no level has room for any more are folded, and nothing is lost. */
static void test_folding(void **state)
{
    struct ledger_line l = {.day = 20000,
                            .cause = LEDGER_USEFUL,
                            .basis = CAPACITY_OWNED,
                            .priced = true,
                            .price = 3,
                            .target = "fra",
                            .class_ = "h100",
                            .queue = "q",
                            .project = "p",
                            .user = "u",
                            .workload = "w",
                            .experiment = "e"};

    (void)state;
    line_fold(1, &l);
    assert_string_equal(l.workload, "");
    assert_string_equal(l.user, "u");
    line_fold(2, &l);
    assert_string_equal(l.user, "");
    assert_int_equal(l.day, 20000);
    for (int64_t day = 0; day < 40000; day += 13) { /* 1970 to 2079 */
        time_t at = (time_t)(day * 86400);
        struct tm tm;

        l.day = day;
        l.price = 3;
        line_fold(LEDGER_YEARLY, &l);
        (void)gmtime_r(&at, &tm);
        assert_int_equal(l.day, day - tm.tm_yday);
        assert_true(l.price < 1 && strcmp(l.queue, "q") == 0);
    }
    line_fold(4, &l);
    assert_string_equal(l.target, "");
    assert_int_equal(l.day, 0);
}

static void test_bounds(void **state)
{
    struct kit k;
    char name[32];
    ledger_amount sum = 0, seen = 0;

    (void)state;
    kit_begin(&k);
    k.root->ledger.seq = 7;
    for (int i = 0; i < 150000; i++) { /* days and workloads without end */
        struct ledger_line l = {.day = i / 100,
                                .cause = (enum ledger_cause)(1 + i % 9),
                                .basis = CAPACITY_OWNED,
                                .priced = true,
                                .price = 1 + i % 1000,
                                .target = "fra",
                                .class_ = "h100",
                                .queue = "q",
                                .project = "p",
                                .user = "u",
                                .workload = name,
                                .experiment = "e",
                                .amount = i + 1};

        (void)snprintf(name, sizeof name, "w%d", i);
        ledger_total_add(k.root, 0, &l);
        sum += l.amount;
    }
    uint64_t lines = 0;
    for (unsigned level = 0; level < LEDGER_LEVELS; level++) {
        assert_true(tree_count(k.root->ledger.totals[level]) <= (uint64_t)LIMIT_LEDGER_TOTALS_MAX >>
                    level);
        lines += tree_count(k.root->ledger.totals[level]);
    }
    assert_true(tree_count(k.root->ledger.totals[LEDGER_YEARLY]) > 0 && lines < 130000);
    struct ledger_query q = {.to_day = INT64_MAX, .rows_max = 1};
    struct ledger_report r;
    double money = 0;
    ledger_report_make(k.root, k.now, &q, k.a, &r);
    seen = r.total.amount;
    assert_true(seen == sum && r.omitted == 0);
    for (int i = 0; i < 150000; i++)
        money += (double)(i + 1) * (1 + i % 1000) / LEDGER_GPU_HOUR;
    assert_true(r.total.money > money * (1 - 1e-9) && r.total.money < money * (1 + 1e-9));
    assert_true(r.folded[0] > r.folded[1] && r.folded[1] > 0 && r.folded[2] >= 0);
    k.root = root_unref(k.root);
    k.a = arena_destroy(k.a);
    (void)tree_reap(SIZE_MAX);
}

static struct result use_told(struct kit *k, int64_t measured, int64_t idle, int64_t since)
{
    struct gpu_use u = {.measured = measured, .idle = idle, .idleSince = since, .percent = 10};
    union command c = {.run = {.head = {.type = CMD_RUN}, .step = STEP_USE, .use = &u}};
    const struct object *o = kit_get(k, "w");

    (void)snprintf(c.run.ns, sizeof c.run.ns, "default");
    (void)snprintf(c.run.name, sizeof c.run.name, "w");
    str_copy(c.run.uid, sizeof c.run.uid, o->meta->uid);
    c.run.epoch = object_as(o, workload)->status->epoch;
    c.run.try_ = 1;
    if (measured < 0)
        c.run.use = NULL;
    return kit_apply(k, &c);
}

static void use_is(struct kit *k, double hours, double measured, double idle)
{
    struct ledger_sum s = sum_of(k, LEDGER_BY_PROJECT, "default");

    assert_near((double)s.amount / LEDGER_GPU_HOUR, hours);
    assert_near((double)s.measured / LEDGER_GPU_HOUR, measured);
    assert_near((double)s.idle / LEDGER_GPU_HOUR, idle);
    assert_near(s.money_idle, idle * 2); /* what is held costs the same, whatever it does */
    root_check(k->root);
}

/* Of what is held, what was measured, and did nothing: beside the causes, in no balance. */
static void test_idle_of_what_is_held(void **state)
{
    struct kit k;

    (void)state;
    kit_begin(&k);
    kit_level_set(&k, FEATURE_LEVEL);
    kit_pool(&k, 1, 8);
    k.retries = 5;
    assert_int_equal(kit_workload(&k, "default", "w", 1, 4).code, 0);
    assert_int_equal(kit_place(&k, "w", "fra.n0", 0, 1, 4).code, 0);
    run_to(&k, "w", 1, true);
    k.now += HOUR;
    use_is(&k, 4, 0, 0); /* nobody measured it */
    assert_int_equal(use_told(&k, 4000, 0, 0).code, 0);
    k.now += HOUR;
    use_is(&k, 8, 4, 0);
    /* half of them, for a quarter of an hour: what they had been is told now */
    assert_int_equal(use_told(&k, 4000, 2000, k.now - HOUR / 4).code, 0);
    use_is(&k, 8, 4, 0.5);
    k.now += HOUR;
    use_is(&k, 12, 8, 2.5);
    /* as many as it has, since ever: only what was measured of it counts */
    assert_int_equal(use_told(&k, 400000, 400000, 5).code, 0);
    assert_int_equal(kit_status(&k, "w")->gpuUse->idle, 4000);
    use_is(&k, 12, 8, 4.5);
    k.now += HOUR;
    use_is(&k, 16, 12, 8.5);
    kit_reload(&k);
    use_is(&k, 16, 12, 8.5);
    /* out of reach it is not measured, and what is lost may have been idle */
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_UNKNOWN).code, 0);
    assert_null(kit_status(&k, "w")->gpuUse);
    assert_int_equal(use_told(&k, 4000, 0, 0).code, E_STALE);
    k.now += HOUR;
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_SEEN).code, 0);
    k.now += HOUR;
    use_is(&k, 24, 12, 8.5);
    assert_int_equal(use_told(&k, 3000, 0, 0).code, 0);
    k.now += HOUR;
    assert_int_equal(use_told(&k, -1, 0, 0).code, 0);
    assert_null(kit_status(&k, "w")->gpuUse);
    k.now += HOUR;
    assert_int_equal(use_told(&k, 1000, 1000, k.now).code, 0);
    k.now += HOUR;
    k.exit_code = 1;
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_ENDED).code, 0);
    use_is(&k, 36, 16, 9.5);
    assert_near(gpu_hours(&k, LEDGER_BY_CAUSE, "restarted"), 32);
    assert_near((double)sum_of(&k, LEDGER_BY_CAUSE, "useful").measured, 0);
    assert_near(gpu_hours(&k, LEDGER_BY_CAUSE, "heldIdle"), 0);
    struct ledger_query q = {.by = {LEDGER_BY_CAUSE}, .n_by = 1, .to_day = INT64_MAX};
    struct ledger_report r;
    ledger_report_make(k.root, k.now, &q, k.a, &r);
    assert_near((double)r.total.idle / LEDGER_GPU_HOUR, 9.5);
    k.now += HOUR;
    use_is(&k, 36, 16, 9.5);
    kit_end(&k);
}

static void test_numbers(void **state)
{
    char text[48];
    enum ledger_by by;

    (void)state;
    ledger_amount_print(0, text);
    assert_string_equal(text, "0");
    ledger_amount_print(-(ledger_amount)1000000000000 * 1000000000000, text);
    assert_string_equal(text, "-1000000000000000000000000");
    assert_true(ledger_by_named("queue,x", 5, &by) && by == LEDGER_BY_QUEUE);
    assert_false(ledger_by_named("queues", 6, &by));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_causes), cmocka_unit_test(test_devices),
        cmocka_unit_test(test_moves),  cmocka_unit_test(test_days_and_prices),
        cmocka_unit_test(test_cpus),   cmocka_unit_test(test_folding),
        cmocka_unit_test(test_others), cmocka_unit_test(test_idle_of_what_is_held),
        cmocka_unit_test(test_bounds), cmocka_unit_test(test_numbers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
