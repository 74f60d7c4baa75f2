/* Who was saved by N workers goes on with N: a gang that may be smaller is not made smaller at the
 * price of what it has done, unless its program can resume with another number. */
#include "tests/support/policy/hints_done.h"

#define HOUR 3600000
#define GANG(workers, least)                                                                       \
    "  resources: {gpu: {count: 2, classes: [h100]}}\n  gang: {workers: " #workers                 \
    ", minWorkers: " #least "}\n"
#define SAVED_BY(n)                                                                                \
    "status: {phase: Queued, checkpoint: {name: x-e1-s40, step: 40, epoch: 1, path: /s/cut, "      \
    "digest: 'sha256:0', ranks: " #n "}}\n"
#define CONTRACT "  checkpoint: {store: /s}\n"

/* One target with room for `nodes` workers of two GPUs each. */
static void world_of(struct world *w, int nodes)
{
    world_init(w);
    world_put(w, "kind: GpuClass\nmetadata: {name: h100}\nspec: {memory: 80Gi}\n");
    world_target(w, "hub", "tier: hub, region: eu");
    world_nodes(w, "hub", nodes, 2, "h100", "");
}

static const struct object *decide(struct world *w, const char *spec)
{
    const struct object *o = world_workload(w, "x", spec);

    world_decide_at(w, o, NOW);
    return o;
}

static void it_waits_for_as_many(void **state)
{
    struct world w;

    (void)state;
    world_of(&w, 1);
    (void)decide(&w, GANG(2, 1) CONTRACT);
    assert_placed(&w, "hub"); /* nothing is saved yet */
    assert_int_equal(w.pl->n_assignments, 1);
    const struct object *o = decide(&w, GANG(2, 1) CONTRACT SAVED_BY(2));
    assert_pending(&w, "CheckpointRanks");
    assert_non_null(strstr(w.d->message, "x-e1-s40"));
    assert_non_null(strstr(w.d->message, "saved by 2"));
    assert_non_null(strstr(w.d->message, "room for 1 worker;"));
    assert_non_null(strstr(w.d->message, "spec.checkpoint.reshard"));
    struct told t = hints_at(&w, o, NOW);
    bool found = false;
    for (uint32_t i = 0; i < t.n; i++) {
        found = found || strstr(t.v[i], "checkpoint.reshard");
        assert_null(strstr(t.v[i], "minWorkers")); /* fewer of them are no way out */
    }
    assert_true(found);
    world_nodes(&w, "hub", 3, 2, "h100", ""); /* more came */
    (void)decide(&w, GANG(3, 1) CONTRACT SAVED_BY(2));
    assert_placed(&w, "hub"); /* no fewer, and no more */
    assert_int_equal(w.pl->n_assignments, 2);
    world_fini(&w);
}

static void its_program_can_reshard(void **state)
{
    struct world w;

    (void)state;
    world_of(&w, 1);
    (void)decide(&w, GANG(2, 1) "  checkpoint: {store: /s, reshard: true}\n" SAVED_BY(2));
    assert_placed(&w, "hub");
    assert_int_equal(w.pl->n_assignments, 1);
    (void)decide(&w, GANG(2, 1) SAVED_BY(2)); /* no contract any more: it resumes from nothing */
    assert_placed(&w, "hub");
    world_fini(&w);
}

/* spec.gang was edited since: no room anywhere would do. */
static void a_number_that_its_spec_excludes(void **state)
{
    static const struct {
        const char *spec, *says, *hint;
    } t[] = {
        {GANG(2, 0) CONTRACT SAVED_BY(4), "spec.gang allows 2 to 2: ask for 4", "4 workers"},
        {GANG(2, 1) CONTRACT SAVED_BY(3), "spec.gang allows 1 to 2: ask for 3", "3 workers"},
        {GANG(4, 3) CONTRACT SAVED_BY(2), "spec.gang allows 3 to 4: ask for 2",
         "minWorkers 2 instead of 3"},
        {"  resources: {gpu: {count: 2}}\n" CONTRACT SAVED_BY(2), "spec.gang allows 1 to 1", NULL}};
    struct world w;

    (void)state;
    world_of(&w, 4);
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        struct told h = hints_at(&w, decide(&w, t[i].spec), NOW);
        bool found = false, reshard = false;

        assert_pending(&w, "CheckpointRanks");
        if (!strstr(w.d->message, t[i].says))
            fail_msg("%s", w.d->message);
        for (uint32_t k = 0; k < h.n; k++) {
            found = found || (t[i].hint && strncmp(h.v[k], t[i].hint, strlen(t[i].hint)) == 0);
            reshard = reshard || strncmp(h.v[k], "checkpoint.reshard", 18) == 0;
        }
        assert_true(reshard && (found || !t[i].hint));
    }
    world_fini(&w);
}

/* Refusals are shared: not with who asks for the same and can reshard. */
static void refusals_are_told_apart(void **state)
{
    static const char *const specs[] = {
        GANG(2, 1) CONTRACT SAVED_BY(2),
        GANG(2, 1) "  checkpoint: {store: /s, reshard: true}\n" SAVED_BY(2), GANG(2, 1) CONTRACT};
    struct memo *m = policy_memo_create();
    struct world w;

    (void)state;
    world_of(&w, 1);
    for (int i = 0; i < 3; i++) {
        const struct object *o = world_workload(&w, "x", specs[i]);
        struct place_request rq = {.workload = o, .now_ms = NOW, .memo = m};
        struct err err;

        assert_int_equal(policy_place(w.p, &rq, w.a, &w.d, &w.pl, &err), 0);
        assert_true((w.pl != NULL) == (i > 0));
    }
    m = policy_memo_destroy(m);
    world_fini(&w);
}

/* It runs, and will save with as many as it has: elsewhere it needs as many, too. */
static void a_move_takes_all_of_them(void **state)
{
    struct world w;
    struct move_choice c;
    struct err err;

    (void)state;
    for (int saved = 0; saved < 2; saved++) {
        world_of(&w, 2);
        const struct object *o = decide(&w, GANG(2, 1) CONTRACT);
        assert_placed(&w, "hub");
        assert_int_equal(w.pl->n_assignments, 2);
        struct workload *edit = object_edit_as(o, workload, w.a);
        struct run_checkpoint ck = {.name = "x-e1-s4",
                                    .path = "/s/cut",
                                    .digest = "sha256:0",
                                    .epoch = 1,
                                    .step = 4,
                                    .ranks = 2,
                                    .verifiedAt = NOW};
        struct workload_status s = {.phase = PHASE_RUNNING,
                                    .epoch = 1,
                                    .placement = w.pl,
                                    .phaseSince = NOW,
                                    .checkpoint = saved ? &ck : NULL};
        edit->status = &s;
        struct object *running = object_make(o->kind, edit);
        pool_hold(w.p, running);
        world_target(&w, "spoke", "tier: spoke, region: eu");
        world_nodes(&w, "spoke", 1, 2, "h100", "");
        struct place_request rq = {.workload = running, .now_ms = NOW + HOUR};
        assert_int_equal(policy_move(w.p, &rq, MOVE_DRAIN, w.a, &c, &err), 0);
        assert_null(c.placement); /* one would fit, and lose what two have done */
        assert_non_null(strstr(c.why, "waits for 2"));
        world_nodes(&w, "spoke", 2, 2, "h100", "");
        assert_int_equal(policy_move(w.p, &rq, MOVE_DRAIN, w.a, &c, &err), 0);
        assert_non_null(c.placement);
        assert_int_equal(c.placement->n_assignments, 2);
        (void)object_unref(running);
        world_fini(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_waits_for_as_many), cmocka_unit_test(its_program_can_reshard),
        cmocka_unit_test(a_number_that_its_spec_excludes),
        cmocka_unit_test(refusals_are_told_apart), cmocka_unit_test(a_move_takes_all_of_them)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
