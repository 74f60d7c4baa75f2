/* MIG instances and shares that a node has by count: named kinds beside whole GPUs of the class, of
 * which a placement holds a number each, and which nobody else gets for what they are not. */
#include "tests/support/policy/hints_done.h"

#define GPUS(n) "  resources: {gpu: {count: " #n "}}\n"
#define MIG(p) "  resources: {gpu: {mig: " p "}}\n"
#define PART(f) "  resources: {gpu: {fraction: " #f "}}\n"

static void node_put(struct world *w, const char *name, const char *rows, const char *others)
{
    char text[2048];

    (void)snprintf(text, sizeof text,
                   "kind: Node\nmetadata: {name: hub.%s}\nspec: {target: hub, cpu: 64, memory: "
                   "512Gi, counted: [%s]}\nstatus: {health: Ready, others: {classes: [%s]}}\n",
                   name, rows, others);
    world_put(w, text);
}

static void begin(struct world *w)
{
    world_put(w, "kind: GpuClass\nmetadata: {name: h100}\nspec: {memory: 80Gi}\n");
    world_target(w, "hub", "tier: hub, region: eu");
}

static void decide(struct world *w, const char *spec)
{
    world_decide_at(w, world_workload(w, "x", spec), NOW);
}

static void waits(struct world *w, const char *spec, const char *code, const char *why)
{
    decide(w, spec);
    assert_pending(w, code);
    if (!strstr(w->d->message, why))
        fail_msg("%s", w->d->message);
}

static void instances_by_count(void **state)
{
    struct world *w = *state;
    const struct assignment *a;
    char name[8];

    begin(w);
    node_put(w, "n1",
             "{class: h100, count: 2}, {class: h100, mig: 1g.10gb, count: 3}, {class: h100, mig: "
             "3g.40gb, count: 1}",
             "");
    for (int i = 0; i < 3; i++) {
        (void)snprintf(name, sizeof name, "w%d", i);
        world_run(w, name, MIG("1g.10gb"));
        assert_placed(w, "hub");
        a = &w->pl->assignments[0];
        assert_string_equal(a->mig, "1g.10gb");
        assert_int_equal(a->count, 1);
        assert_int_equal(a->n_gpus + a->shares, 0);
        assert_int_equal(a->gpuMilli, 143);
        assert_int_equal(w->pl->gpus, 143);
    }
    waits(w, MIG("1g.10gb"), "MigProfileMissing",
          "none of the 3 1g.10gb instances of h100 is free");
    waits(w, MIG("7g.80gb"), "MigProfileMissing",
          "no 7g.80gb instances of h100: there is 1g.10gb, 3g.40gb");
    decide(w, GPUS(2));
    assert_placed(w, "hub");
    waits(w, PART(0.1), "FractionDoesNotFit", "no GPU that may be shared");
    waits(w, "  gang: {workers: 2}\n" MIG("3g.40gb"), "GangDoesNotFit", "1 of 2");
    decide(w, MIG("3g.40gb"));
    assert_placed(w, "hub");
    assert_int_equal(w->pl->gpus, 429);
    pool_drop(w->p, "uid-w1");
    decide(w, MIG("1g.10gb"));
    assert_placed(w, "hub");
    node_put(w, "n2", "{class: h100, mig: 1g.10gb, count: 14}", "");
    decide(w, "  gang: {workers: 15}\n" MIG("1g.10gb"));
    assert_placed(w, "hub");
    waits(w, "  gang: {workers: 16}\n" MIG("1g.10gb"), "GangDoesNotFit", "15 of 16");
}

static void all_are_cut(void **state)
{
    struct world *w = *state;

    begin(w);
    node_put(w, "n1", "{class: h100, mig: 1g.10gb, count: 7}", "");
    waits(w, GPUS(1), "GpusInUse", "all h100 there are cut into MIG instances");
    decide(w, "  resources: {cpu: 1}\n");
    assert_placed(w, "hub");
}

static void unhealthy_or_others(void **state)
{
    struct world *w = *state;

    begin(w);
    node_put(w, "n1", "{class: h100, mig: 1g.10gb, count: 3, unhealthy: 1}", "");
    world_run(w, "a", MIG("1g.10gb"));
    world_run(w, "b", MIG("1g.10gb"));
    waits(w, MIG("1g.10gb"), "GpusUnhealthy",
          "1 1g.10gb instances of h100 of node hub.n1 are unhealthy");
    node_put(w, "n1", "{class: h100, count: 1}, {class: h100, mig: 1g.10gb, count: 4}",
             "{class: h100, mig: 1g.10gb, count: 2}");
    waits(w, MIG("1g.10gb"), "HeldByOthers", "others than Hanse hold 2 1g.10gb instances of h100");
    decide(w, GPUS(1)); /* theirs are none of the whole ones */
    assert_placed(w, "hub");
    node_put(w, "n1", "{class: h100, count: 1}, {class: h100, mig: 1g.10gb, count: 4}",
             "{class: h100, mig: 1g.10gb, count: 1}");
    world_run(w, "c", MIG("1g.10gb"));
    assert_placed(w, "hub");
    node_put(w, "n1", "{class: h100, count: 1}, {class: h100, mig: 1g.10gb, count: 4}",
             "{class: h100, mig: 1g.10gb, count: 4}, {class: h100, count: 1}");
    waits(w, MIG("1g.10gb"), "HeldByOthers", "others than Hanse hold 4 1g.10gb instances");
    waits(w, GPUS(1), "HeldByOthers", "others than Hanse hold 1 h100");
    node_put(w, "n1", "{class: h100, count: 1}, {class: h100, mig: 1g.10gb, count: 4}", "");
    decide(w, MIG("1g.10gb"));
    assert_placed(w, "hub");
}

static void shares(void **state)
{
    struct world *w = *state;
    const struct assignment *a;
    char name[8];

    begin(w);
    node_put(w, "n1", "{class: h100, shares: 4, count: 8}", "");
    for (int i = 0; i < 8; i++) {
        (void)snprintf(name, sizeof name, "w%d", i);
        world_run(w, name, i % 2 ? PART(0.25) : PART(0.1));
        assert_placed(w, "hub");
        a = &w->pl->assignments[0];
        assert_int_equal(a->count, 1);
        assert_int_equal(a->shares, 4);
        assert_string_equal(a->mig, "");
        assert_int_equal(a->gpuMilli, 250); /* all of the share is its own */
        assert_int_equal(w->pl->gpus, 250);
    }
    waits(w, PART(0.25), "FractionDoesNotFit", "none of the 8 shares of h100 is free");
    waits(w, PART(0.5), "FractionDoesNotFit", "a share of a GPU there is 1/4, 0.500 is asked for");
    waits(w, GPUS(1), "OnlyShares", "shares alone");
    waits(w, MIG("1g.10gb"), "OnlyShares", "shares alone");
    waits(w, "  resources: {gpu: {fraction: 0.1, isolation: hard}}\n", "IsolationImpossible",
          "hard");
    decide(w, "  resources: {cpu: 1}\n");
    assert_placed(w, "hub");
    pool_drop(w->p, "uid-w3");
    decide(w, PART(0.2));
    assert_placed(w, "hub");
    /* Fewer and larger ones: what is held is a number of them still. */
    node_put(w, "n1", "{class: h100, shares: 2, count: 8}",
             "{class: h100, shares: true, count: 1}");
    waits(w, PART(0.5), "HeldByOthers", "others than Hanse hold 1 shares of h100");
    node_put(w, "n1", "{class: h100, shares: 2, count: 8}, {class: h100, count: 1}", "");
    waits(w, PART(0.75), "FractionDoesNotFit", "a share of a GPU there is 1/2, 0.750 is asked for");
    decide(w, PART(0.5));
    assert_placed(w, "hub");
    assert_int_equal(w->pl->assignments[0].shares, 2);
    decide(w, GPUS(1));
    assert_placed(w, "hub");
    assert_int_equal(w->pl->assignments[0].shares, 0);
}

/* A share counts against quota as what it is, not as the part that was asked for. */
static void quota_counts_shares(void **state)
{
    struct world *w = *state;

    begin(w);
    world_put(w, "kind: Queue\nmetadata: {name: q}\nspec: {namespaces: [dev], gpus: [{class: h100, "
                 "burst: 1}]}\n");
    node_put(w, "n1", "{class: h100, shares: 2, count: 8}, {class: h100, mig: 3g.40gb, count: 8}",
             "");
    world_run(w, "a", PART(0.1));
    world_run(w, "b", MIG("3g.40gb"));
    assert_placed(w, "hub");
    waits(w, PART(0.1), "QuotaBurstExhausted", "");
    waits(w, MIG("3g.40gb"), "QuotaBurstExhausted", "");
}

/* What is held of a kind that the node has no more may lie on any of its GPUs. */
static void told_the_other_way(void **state)
{
    struct world *w = *state;

    begin(w);
    node_put(w, "n1", "{class: h100, mig: 1g.10gb, count: 3}", "");
    world_run(w, "a", MIG("1g.10gb"));
    node_put(w, "n1", "{class: h100, count: 2}", "");
    waits(w, GPUS(2), "GpusInUse", "1 of 2 free");
    node_put(w, "n1", "{class: h100, shares: 4, count: 8}", "");
    for (int i = 0; i < 4; i++) {
        char name[8];

        (void)snprintf(name, sizeof name, "s%d", i);
        world_run(w, name, PART(0.25));
        assert_placed(w, "hub");
    }
    waits(w, PART(0.25), "FractionDoesNotFit", "");
    pool_drop(w->p, "uid-a");
    decide(w, PART(0.25));
    assert_placed(w, "hub");
    node_put(w, "n1", "{class: h100, count: 5}", "");
    decide(w, GPUS(1)); /* four shares are held */
    assert_placed(w, "hub");
    waits(w, GPUS(2), "GpusInUse", "1 of 2 free");
}

/* Whatever comes and goes, however many are healthy or others': of each kind what is free is what
 * nobody holds. */
struct row {
    const char *row, *others, *spec;
    int64_t many, unhealthy, theirs, held[6];
};

static void tell(struct world *w, const struct row *k)
{
    char rows[512] = "", others[512] = "";

    for (int i = 0; i < 3; i++) {
        size_t n = strlen(rows), m = strlen(others);

        (void)snprintf(rows + n, sizeof rows - n, "%s{class: h100, %scount: %d, unhealthy: %d}",
                       n ? ", " : "", k[i].row, (int)k[i].many, (int)k[i].unhealthy);
        if (k[i].theirs)
            (void)snprintf(others + m, sizeof others - m, "%s{class: h100, %scount: %d}",
                           m ? ", " : "", k[i].others, (int)k[i].theirs);
    }
    node_put(w, "n1", rows, others);
}

static int64_t room(const struct row *k)
{
    int64_t sum = k->many - k->unhealthy - k->theirs;

    for (int i = 0; i < 6; i++)
        sum -= k->held[i];
    return sum;
}

static void comes_and_goes(void **state)
{
    struct world *w = *state;
    uint64_t s = 11;
    struct row k[3] = {{.row = "", .others = "", .spec = GPUS(1), .many = 3},
                        {.row = "mig: 2g.20gb, ",
                         .others = "mig: 2g.20gb, ",
                         .spec = MIG("2g.20gb"),
                         .many = 70}, /* more than one set of bits */
                        {.row = "shares: 8, ",
                         .others = "shares: true, ",
                         .spec = PART(0.125),
                         .many = 5}};

    begin(w);
    tell(w, k);
    for (int i = 0; i < 800; i++) {
        char name[16], uid[24];

        s = s * 6364136223846793005u + 1442695040888963407u;
        uint32_t which = (uint32_t)(s >> 40) % 3, slot = (uint32_t)(s >> 44) % 6;
        struct row *x = &k[which];

        (void)snprintf(name, sizeof name, "w%u-%u", which, slot);
        (void)snprintf(uid, sizeof uid, "uid-%s", name);
        if ((s >> 33) % 7 == 0) {
            x->many = which == 1 ? 64 + (int64_t)((s >> 50) % 7) : 1 + (int64_t)((s >> 50) % 7);
            x->unhealthy = (int64_t)((s >> 53) % (uint64_t)(x->many + 1));
            x->theirs = (int64_t)((s >> 58) % 5);
            if (which == 1)
                x->unhealthy = x->many > 66 ? x->many - 3 : 0;
            tell(w, k);
        } else if (x->held[slot]) {
            pool_drop(w->p, uid);
            x->held[slot] = 0;
        } else {
            world_run(w, name, x->spec);
            assert_int_equal(w->pl != NULL, room(x) > 0);
            x->held[slot] = w->pl != NULL;
        }
        for (int j = 0; j < 3; j++) {
            decide(w, k[j].spec);
            if ((w->pl != NULL) != (room(&k[j]) > 0))
                fail_msg("step %d: of kind %d there is room for %d: %s", i, j, (int)room(&k[j]),
                         w->d->message);
        }
    }
}

static void what_cannot_be_is_said(void **state)
{
    struct world *w = *state;
    struct err err;
    const struct {
        const char *rows, *others, *why;
    } told[] = {
        {"{class: h100, count: 1}, {class: h100, mig: 1g.10gb, count: 7}, {class: h100, mig: "
         "3g.40gb, count: 2}, {class: h100, shares: 4, count: 8}",
         "{class: h100, mig: 3g.40gb, count: 1}, {class: h100, shares: true, count: 1}", NULL},
        {"{class: h100, mig: 1g.10gb, count: 7}, {class: h100, mig: 1g.10gb, count: 1}", "",
         "it tells h100 twice"},
        {"{class: h100, shares: 2, count: 4}, {class: h100, shares: 4, count: 8}", "",
         "it tells h100 twice"},
        {"{class: h100, mig: 1g.10gb, shares: 2, count: 4}", "", "shares of MIG instances"},
        {"{class: h100, mig: lots, count: 4}", "", "\"lots\" of h100 is no MIG profile"},
        {"{class: h100, mig: 0g.10gb, count: 4}", "", "is no MIG profile"},
        {"{class: h100, mig: 9g.10gb, count: 4}", "", "is no MIG profile"},
        {"{class: h100, mig: 1g.gb, count: 4}", "", "is no MIG profile"},
        {"{class: h100, mig: 1g.10gb+, count: 4}", "", "is no MIG profile"},
        {"{class: h100, mig: 1g.10gb+me, count: 4}, {class: h100, mig: 1c.2g.20gb, count: 1}", "",
         NULL},
        {"{class: h100, shares: 4, count: 7}", "", "counts 7 shares, and each GPU has 4 of them"},
        {"{class: h100, mig: 1g.10gb, count: 7}", "{class: h100, count: 1}",
         "others hold GPUs of class h100"},
        {"{class: h100, count: 7}", "{class: h100, mig: 1g.10gb, count: 1}",
         "others hold 1g.10gb instances of h100 of it, which it does not count"},
    };

    for (size_t i = 0; i < sizeof told / sizeof *told; i++) {
        char text[1024];

        (void)snprintf(text, sizeof text,
                       "kind: Node\nmetadata: {name: hub.n1}\nspec: {target: hub, counted: "
                       "[%s]}\nstatus: {others: {classes: [%s]}}\n",
                       told[i].rows, told[i].others);
        const struct node *n = object_as(world_docs(w, text, false), node);
        int rc = node_counted_check(n, &err);
        rc = rc ? rc : node_others_check(n, &err);
        assert_int_equal(rc, told[i].why ? E_INVALID : 0);
        if (told[i].why && !strstr(err.text, told[i].why))
            fail_msg("%s", err.text);
    }
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, world_setup, world_teardown)
    const struct CMUnitTest tests[] = {T(instances_by_count),  T(all_are_cut),
                                       T(unhealthy_or_others), T(shares),
                                       T(quota_counts_shares), T(told_the_other_way),
                                       T(comes_and_goes),      T(what_cannot_be_is_said)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
