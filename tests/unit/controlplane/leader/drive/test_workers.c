/* What targets tell of single workers: it goes into the log with the steps of the run, by rank,
 * with the difference of the clocks, and the end of a gang names who failed first. The connector
 * says nothing here; what it would tell is told. */
#include "controlplane/leader/context/context.h"
#include "controlplane/leader/context/index.h"
#include "controlplane/leader/drive/driver.h"
#include "controlplane/leader/drive/observed.h"
#include "controlplane/leader/move/mover.h"
#include "controlplane/leader/site/sites.h"
#include "tests/support/store/store_kit.h"

/* The way into the log is the test's: straight to the kit. */
static struct kit *log_kit;
static int64_t last_behind;

void brain_propose(struct brain *b, const union command *c, propose_cb cb, void *arg)
{
    (void)cb;
    if (c->run.n)
        last_behind = c->run.behind_ms;
    assert_int_equal(kit_apply(log_kit, c).code, 0);
    b->root = log_kit->root;
    mem_free(arg);
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
    struct sites sites;
    struct movers movers;
    struct drivers drivers;
    struct site site;
};

static void follow(struct brain *b)
{
    (void)b;
}

static void settle(struct world *x)
{
    struct driver *d = driver_find(&x->brain, kit_get(&x->kit, "w")->meta->uid);

    d->proposing = false;
    driver_change(&x->brain, d->o, kit_get(&x->kit, "w"));
}

/* Its node counts its devices: the log knows no numbers. */
static void counted_init(struct kit *k)
{
    struct counted_gpus all = {.class_ = "h100", .model = "", .count = 8};
    struct node n = *object_as(root_get(k->root, KIND_NODE, "", "fra.n0"), node);
    struct node_spec spec = *n.spec;
    union command c = {.facts = {.head = {.type = CMD_FACTS},
                                 .target = "fra",
                                 .session = "s1",
                                 .reach_told = true,
                                 .reachable = true,
                                 .nodes = &n,
                                 .n = 1}};

    spec.n_gpus = 0;
    spec.counted = &all;
    spec.n_counted = 1;
    n.spec = &spec;
    assert_int_equal(kit_apply(k, &c).code, 0);
    c = (union command){0};
    kit_place_head(k, &c, "w", "placed", "Chosen");
    c.place.placement = kit_workers(k, "fra.n0", 0, 3, 0);
    for (uint32_t i = 0; i < 3; i++) {
        c.place.placement->assignments[i].count = 1;
        c.place.placement->assignments[i].gpuMilli = 1000;
    }
    c.place.placement->class_ = "h100";
    assert_int_equal(kit_apply(k, &c).code, 0);
}

static void world_init(struct world *x, bool counted)
{
    struct err err;

    *x = (struct world){0};
    kit_begin(&x->kit);
    kit_level_set(&x->kit, FEATURE_LEVEL);
    kit_pool(&x->kit, 2, 4);
    assert_int_equal(kit_workload(&x->kit, x->kit.ns, "w", 3, 1).code, 0);
    if (counted)
        counted_init(&x->kit);
    else
        assert_int_equal(kit_place(&x->kit, "w", "fra.n0", 0, 3, 1).code, 0);
    assert_int_equal(kit_run(&x->kit, "w", 1, 1, STEP_DISPATCH).code, 0);
    log_kit = &x->kit;
    x->brain = (struct brain){.sites = &x->sites,
                              .movers = &x->movers,
                              .drivers = &x->drivers,
                              .leads = true,
                              .follow = follow,
                              .root = x->kit.root,
                              .loop = loop_uv_create(&err)};
    assert_non_null(x->brain.loop);
    sites_init(&x->brain);
    movers_init(&x->brain);
    drivers_init(&x->brain);
    list_init(&x->site.drivers);
    x->site.brain = &x->brain;
    x->site.session = 1;
    x->site.doc = object_ref(root_get(x->kit.root, KIND_TARGET, "", "fra"));
    (void)snprintf(x->site.name, sizeof x->site.name, "fra");
    x->site.by_name.key = x->site.name;
    index_add(&x->sites.by_name, &x->site.by_name);
    driver_change(&x->brain, NULL, kit_get(&x->kit, "w"));
}

static void world_fini(struct world *x)
{
    struct driver *d = driver_find(&x->brain, kit_get(&x->kit, "w")->meta->uid);

    if (d)
        d->proposing = d->calling = false;
    drivers_drop(&x->brain);
    index_remove(&x->sites.by_name, &x->site.by_name);
    (void)object_unref(x->site.doc);
    loop_uv_destroy(x->brain.loop);
    kit_end(&x->kit);
}

static struct run_key key_of(struct world *x, int64_t epoch)
{
    struct run_key k = {.epoch = epoch, .try_ = 1};

    str_copy(k.uid, sizeof k.uid, kit_get(&x->kit, "w")->meta->uid);
    return k;
}

static void see(struct world *x, enum run_state state, int exit_code)
{
    struct observation o = {.key = key_of(x, 1), .state = state, .exit_code = exit_code};

    if (state == RUN_ENDED)
        o.proof = PROOF_TREE_GONE;
    driver_observed(&x->site, &o);
    settle(x);
}

static void tell(struct world *x, int64_t epoch, int64_t clock_ms, struct run_worker w)
{
    struct run_workers told = {
        .key = key_of(x, epoch), .workers = &w, .n_workers = 1, .clock_ms = clock_ms};

    w.node = "fra.n0";
    w.reason = w.reason ? w.reason : "";
    w.id = w.id ? w.id : "";
    driver_workers(&x->site, &told);
}

static const struct workload_status *status(struct world *x)
{
    return kit_status(&x->kit, "w");
}

static void test_the_end_names_who_failed_first(void **state)
{
    struct world x;

    (void)state;
    world_init(&x, false);
    for (int64_t r = 0; r < 3; r++)
        tell(&x, 1, 0, (struct run_worker){.rank = r, .started_ms = 5000 + r, .id = "12@b"});
    see(&x, RUN_RUNNING, 0);
    assert_int_equal(status(&x)->phase, PHASE_RUNNING);
    assert_int_equal(status(&x)->n_workers, 3);
    assert_int_equal(status(&x)->workers[2].startedAt, 5002);
    assert_string_equal(status(&x)->workers[2].id, "12@b");
    assert_string_equal(status(&x)->workers[2].node, "fra.n0");
    /* stopped for what became of rank 2 */
    tell(&x, 1, 0, (struct run_worker){.rank = 0, .term_signal = 15, .ended_ms = 9100});
    tell(&x, 1, 0, (struct run_worker){.rank = 1, .term_signal = 15, .ended_ms = 9200});
    tell(&x, 1, 0,
         (struct run_worker){
             .rank = 2, .exit_code = 137, .reason = "OutOfMemory", .ended_ms = 9000});
    see(&x, RUN_ENDED, 137);
    assert_string_equal(status(&x)->message, "rank 2 on node fra.n0: exit 137, OutOfMemory");
    assert_int_equal(status(&x)->workers[2].exitCode, 137);
    assert_int_equal(status(&x)->workers[0].signal, 15);
    assert_int_equal(status(&x)->workers[0].endedAt, 9100);
    world_fini(&x);
}

/* Of another epoch, of ranks that it does not have, with times that no clock shows. */
static void test_what_cannot_be_is_passed_over(void **state)
{
    struct world x;

    (void)state;
    world_init(&x, false);
    tell(&x, 2, 0, (struct run_worker){.rank = 0, .started_ms = 1});
    tell(&x, 1, 0, (struct run_worker){.rank = 3, .started_ms = 2});
    tell(&x, 1, 0, (struct run_worker){.rank = INT64_MAX / 2, .started_ms = 2});
    tell(&x, 1, 0, (struct run_worker){.rank = 1, .started_ms = 9007199254740992});
    see(&x, RUN_RUNNING, 0);
    assert_int_equal(status(&x)->n_workers, 1);
    assert_int_equal(status(&x)->workers[0].rank, 1);
    assert_int_equal(status(&x)->workers[0].startedAt, 0);
    world_fini(&x);
}

/* What is told takes time to come: of what was told in a session the least counts. */
static void test_clocks_are_compared(void **state)
{
    struct world x;

    (void)state;
    world_init(&x, false);
    int64_t now = root_time(x.kit.root);
    tell(&x, 1, now - 5000, (struct run_worker){.rank = 0, .started_ms = 1});
    tell(&x, 1, now - 3000, (struct run_worker){.rank = 1, .started_ms = 1});
    tell(&x, 1, now - 4000, (struct run_worker){.rank = 2, .started_ms = 1});
    see(&x, RUN_RUNNING, 0);
    assert_int_equal(last_behind, 3000);
    x.site.session++;
    tell(&x, 1, root_time(x.kit.root) - 7000, (struct run_worker){.rank = 2, .ended_ms = 2});
    see(&x, RUN_ENDED, 0);
    assert_int_equal(last_behind, 7000);
    world_fini(&x);
}

/* Which devices a worker got is shown where the log holds only how many. */
static void devices_are_shown_where_they_are_counted(void **state)
{
    int64_t gpus[] = {5, 2, 64, -1};
    struct world x;

    (void)state;
    for (int counted = 0; counted < 2; counted++) {
        world_init(&x, counted == 1);
        tell(&x, 1, 0, (struct run_worker){.rank = 1, .started_ms = 5, .gpus = gpus, .n_gpus = 4});
        see(&x, RUN_RUNNING, 0);
        const struct worker_status *w = status(&x)->workers;
        assert_int_equal(status(&x)->n_workers, 1);
        assert_int_equal(w->rank, 1);
        assert_int_equal(w->n_gpus, counted ? 2 : 1);
        assert_int_equal(w->gpus[0], counted ? 2 : 1); /* by the log it has number 1 */
        assert_int_equal(status(&x)->placement->assignments[1].count, counted);
        world_fini(&x);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_are_shown_where_they_are_counted),
        cmocka_unit_test(test_the_end_names_who_failed_first),
        cmocka_unit_test(test_what_cannot_be_is_passed_over),
        cmocka_unit_test(test_clocks_are_compared),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
