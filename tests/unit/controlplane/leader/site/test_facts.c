/* Nodes, and notices about them, on their way into the log: one FACTS at a time, what comes
 * meanwhile goes next, listings that are larger than a page, and that nothing is taken away before
 * all of one is in. */
#include "api/base/loop/loop.h"
#include "controlplane/leader/context/context.h"
#include "controlplane/leader/site/facts.h"
#include "controlplane/leader/site/sites.h"
#include "tests/support/store/store_kit.h"

#include <string.h>

/* The way into the log is the test's: it applies to a kit when it likes. */
static struct {
    unsigned n; /* proposed so far */
    union command *c;
    struct buf bytes;
    struct arena *a;
    propose_cb cb;
    void *arg;
} log_;

void brain_propose(struct brain *b, const union command *c, propose_cb cb, void *arg)
{
    struct err err;

    (void)b;
    assert_null(log_.cb); /* one at a time */
    buf_reset(&log_.bytes);
    command_encode(c, &log_.bytes);
    assert_false(log_.bytes.failed);
    assert_true(log_.bytes.n < (size_t)1 << 20);
    assert_int_equal(command_decode(slice_make(log_.bytes.p, log_.bytes.n), log_.a, &log_.c, &err),
                     0);
    log_.n++;
    log_.cb = cb;
    log_.arg = arg;
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
    (void)snprintf(out, REQUEST_ID_MAX, "facts-%u", log_.n);
}
struct world {
    struct kit kit;
    struct brain brain;
    struct site site;
};

static int setup(void **state)
{
    struct world *x = mem_new(struct world);
    struct target *t;
    struct err err;
    union command level = {.member = {.head = {.type = CMD_MEMBER},
                                      .member = {.id = 1, .feature_level = FEATURE_LEVEL},
                                      .cluster_uid = "c"}};

    memset(&log_, 0, sizeof log_);
    log_.a = arena_create(0);
    buf_init(&log_.bytes, LIMIT_COMMAND_MAX_BYTES);
    x->kit = (struct kit){.a = arena_create(0), .root = root_create(), .now = 3600000};
    (void)snprintf(level.member.member.name, sizeof level.member.member.name, "m1");
    (void)snprintf(level.member.member.address, sizeof level.member.member.address, "m1:1");
    assert_int_equal(kit_apply(&x->kit, &level).code, 0);
    assert_true(root_feature_level(x->kit.root) >= FEATURE_GRANTS);
    t = arena_new(x->kit.a, struct target);
    t->metadata = kit_meta(&x->kit, "", "fra");
    t->spec = arena_new(x->kit.a, struct target_spec);
    t->spec->type = TARGET_AGENT;
    t->spec->tier = TIER_HUB;
    assert_int_equal(kit_create(&x->kit, KIND_TARGET, "", "fra", t).code, 0);
    x->brain.leads = true;
    x->brain.root = x->kit.root;
    x->brain.loop = loop_uv_create(&err);
    assert_non_null(x->brain.loop);
    x->site.brain = &x->brain;
    x->site.reachable = true;
    (void)snprintf(x->site.name, sizeof x->site.name, "fra");
    site_facts_init(&x->site);
    *state = x;
    return 0;
}

static int teardown(void **state)
{
    struct world *x = *state;

    timer_stop(&x->site.facts_timer);
    site_facts_drop(&x->site);
    (void)root_unref(x->kit.root);
    (void)arena_destroy(x->kit.a);
    (void)arena_destroy(log_.a);
    buf_fini(&log_.bytes);
    (void)loop_uv_destroy(x->brain.loop);
    mem_free(x);
    return 0;
}

/* Nodes of so much CPU. */
static struct node *nodes_make(struct arena *a, unsigned from, unsigned n, int64_t cpu)
{
    struct node *v = arena_array(a, struct node, n + 1);

    for (unsigned i = 0; i < n; i++) {
        v[i].metadata = arena_new(a, struct meta);
        v[i].metadata->name = arena_printf(a, "fra.n%05u", from + i);
        v[i].spec = arena_new(a, struct node_spec);
        v[i].spec->target = "fra";
        v[i].spec->cpu = cpu;
    }
    return v;
}

/* A page of n nodes from `from` on: "F" is the first of its listing, "L" the last. */
static void page(struct world *x, const char *which, const char *revision, unsigned from,
                 unsigned n, int64_t cpu)
{
    AUTO_ARENA a = arena_create(0);
    const struct inventory_page p = {.nodes = nodes_make(a, from, n, cpu),
                                     .n = n,
                                     .revision = revision,
                                     .since = "",
                                     .first = strchr(which, 'F') != NULL,
                                     .last = strchr(which, 'L') != NULL};

    site_nodes(&x->site, &p);
}

/* n nodes from `from` on as they are now, and `gone` of them from `leaves` on that are gone. */
static void delta(struct world *x, const char *since, const char *revision, unsigned from,
                  unsigned n, int64_t cpu, unsigned leaves, unsigned gone)
{
    AUTO_ARENA a = arena_create(0);
    const char **names = arena_array(a, const char *, gone + 1);
    const struct inventory_page p = {.nodes = nodes_make(a, from, n, cpu),
                                     .n = n,
                                     .removed = names,
                                     .n_removed = gone,
                                     .revision = revision,
                                     .since = since};

    for (unsigned i = 0; i < gone; i++)
        names[i] = arena_printf(a, "fra.n%05u", leaves + i);
    site_nodes(&x->site, &p);
}

/* All of a listing in one page, or what has changed since. */
static void tell(struct world *x, unsigned from, unsigned n, int64_t cpu, bool complete)
{
    if (complete)
        page(x, "FL", "r", from, n, cpu);
    else
        delta(x, "r", "r", from, n, cpu, 0, 0);
}

static void answer(struct world *x, int code)
{
    propose_cb cb = log_.cb;
    struct result r = {.code = code};

    assert_non_null(cb);
    if (!code)
        r = kit_apply(&x->kit, log_.c);
    command_release(log_.c);
    log_.c = NULL;
    log_.cb = NULL;
    x->brain.root = x->kit.root;
    assert_int_equal(r.code, code);
    cb(log_.arg, &r, NULL);
}

static int64_t cpu_of(struct world *x, unsigned i)
{
    char name[32];

    (void)snprintf(name, sizeof name, "fra.n%05u", i);
    const struct object *o = root_get(x->kit.root, KIND_NODE, "", name);
    return o ? object_as(o, node)->spec->cpu : -1;
}

static void test_what_comes_meanwhile_goes_next(void **state)
{
    struct world *x = *state;

    tell(x, 0, 3, 1000, true);
    assert_int_equal(log_.n, 1);
    assert_true(log_.c->facts.complete);
    tell(x, 0, 1, 2000, false);
    tell(x, 1, 1, 2500, false);
    tell(x, 0, 1, 3000, false);
    tell(x, 7, 1, 4000, false);
    assert_int_equal(log_.n, 1);
    answer(x, 0);
    assert_int_equal(log_.n, 2);
    assert_int_equal(log_.c->facts.n, 3);
    assert_false(log_.c->facts.complete);
    answer(x, 0);
    assert_null(log_.cb);
    assert_false(x->site.facts.again); /* and nothing has to be asked for anew */
    assert_int_equal(cpu_of(x, 0), 3000);
    assert_int_equal(cpu_of(x, 1), 2500);
    assert_int_equal(cpu_of(x, 2), 1000);
    assert_int_equal(cpu_of(x, 7), 4000);
}

static void commit(struct world *x)
{
    while (log_.cb)
        answer(x, 0);
}

/* Its pages go into the log as they come; what it did not name is taken away at its end alone. */
static void test_a_listing_in_pages(void **state)
{
    struct world *x = *state;
    unsigned pages = 0;

    for (unsigned i = 0; i < 10; i++) {
        page(x, i == 0 ? "F" : i == 9 ? "L" : "", "r1", i * 500, 500, 1000);
        assert_int_equal(x->site.facts.nodes.n_told, 500 * (i + 1));
    }
    for (; log_.cb; pages++) {
        assert_false(log_.c->facts.complete || log_.c->facts.gone);
        answer(x, 0);
    }
    assert_int_equal(pages, 6); /* of the first page, then of all that came meanwhile */
    assert_int_equal(root_count(x->kit.root, KIND_NODE), 5000);
    assert_int_equal(x->site.facts.nodes.due_bytes, 0);
    /* The next one names others. Of those that are as before nothing is told again. */
    page(x, "F", "r2", 1500, 2500, 1000);
    assert_null(log_.cb);
    page(x, "L", "r2", 4000, 2499, 1000);
    delta(x, "r2", "r3", 9000, 1, 500, 0, 0); /* meanwhile */
    for (pages = 0; log_.cb && !log_.c->facts.gone; pages++) {
        assert_int_equal(cpu_of(x, 0), 1000);
        answer(x, 0);
    }
    assert_int_equal(pages, 2); /* 1,499 new ones, and one */
    for (pages = 0; log_.cb; pages++) {
        assert_true(log_.c->facts.gone);
        answer(x, 0);
    }
    assert_int_equal(pages, 2);
    assert_int_equal(root_count(x->kit.root, KIND_NODE), 5000);
    assert_int_equal(cpu_of(x, 1499), -1);
    assert_int_equal(cpu_of(x, 1500), 1000);
    assert_int_equal(cpu_of(x, 9000), 500);
    assert_false(x->site.facts.again);
}

/* At most so many at once, and a full change of names is no more. */
static void test_the_limit_of_a_target(void **state)
{
    struct world *x = *state;

    page(x, "FL", "r1", 0, 5000, 1000);
    commit(x);
    page(x, "F", "r2", 10000, 3000, 1000);
    page(x, "", "r2", 20000, 100, 1000);
    page(x, "F", "r2", 30000, 3000, 1000); /* cut off, and begun anew */
    page(x, "L", "r2", 40000, 2000, 1000);
    commit(x);
    assert_int_equal(root_count(x->kit.root, KIND_NODE), 5000);
    assert_int_equal(cpu_of(x, 41999), 1000);
    assert_string_equal(x->site.error, "");
    page(x, "F", "r3", 30000, 3000, 1000);
    page(x, "L", "r3", 50000, 2001, 1000);
    assert_non_null(strstr(x->site.error, "more than 5000 nodes"));
    commit(x);
    assert_int_equal(cpu_of(x, 52000), -1);   /* left out */
    assert_int_equal(cpu_of(x, 41999), 1000); /* and none is taken away */
}

static void test_a_delta_adds_changes_and_removes(void **state)
{
    struct world *x = *state;

    page(x, "FL", "a", 0, 4, 1000);
    delta(x, "a", "b", 1, 1, 2000, 3, 1); /* while the listing is on its way */
    delta(x, "b", "c", 3, 1, 4000, 0, 2); /* back again, and two others are gone */
    commit(x);
    assert_int_equal(cpu_of(x, 0), -1);
    assert_int_equal(cpu_of(x, 1), -1);
    assert_int_equal(cpu_of(x, 2), 1000);
    assert_int_equal(cpu_of(x, 3), 4000);
    unsigned before = log_.n;
    delta(x, "c", "d", 3, 1, 4000, 1, 1); /* nothing that the log does not have */
    commit(x);
    assert_int_equal(log_.n, before);
    delta(x, "d", "e", 0, 1, 3000, 0, 0);
    commit(x);
    assert_int_equal(cpu_of(x, 0), 3000);
    assert_false(x->site.facts.again);
}

static void test_a_delta_that_does_not_fit(void **state)
{
    struct world *x = *state;

    page(x, "FL", "a", 0, 2, 1000);
    commit(x);
    delta(x, "b", "c", 0, 1, 2000, 1, 1);
    commit(x);
    assert_true(x->site.facts.again); /* all is asked for */
    assert_int_equal(cpu_of(x, 0), 1000);
    assert_int_equal(cpu_of(x, 1), 1000);
    delta(x, "a", "b", 0, 1, 2000, 1, 1); /* one was missed: nothing fits any more */
    commit(x);
    assert_int_equal(cpu_of(x, 0), 1000);
    page(x, "F", "d", 0, 1, 3000);
    delta(x, "d", "e", 0, 1, 5000, 1, 1); /* in the middle of a listing: neither */
    page(x, "L", "d", 1, 1, 3000);
    commit(x);
    assert_int_equal(cpu_of(x, 0), 3000);
    assert_int_equal(cpu_of(x, 1), 3000);
    site_nodes_cut(&x->site); /* another session: its revisions may be other ones */
    delta(x, "d", "e", 0, 1, 5000, 1, 1);
    commit(x);
    assert_int_equal(cpu_of(x, 0), 3000);
    assert_int_equal(cpu_of(x, 1), 3000);
}

/* Another session cuts off what was being listed; its own listing is judged alone. */
static void test_a_listing_that_is_cut_off(void **state)
{
    struct world *x = *state;

    page(x, "FL", "a", 0, 3, 1000);
    commit(x);
    page(x, "F", "b", 0, 1, 2000);
    site_nodes_cut(&x->site);
    page(x, "L", "b", 1, 1, 2000); /* of the session before */
    commit(x);
    assert_int_equal(cpu_of(x, 0), 2000);
    assert_int_equal(cpu_of(x, 1), 1000); /* not even that is known to be so */
    assert_int_equal(cpu_of(x, 2), 1000);
    page(x, "FL", "c", 2, 1, 1000);
    commit(x);
    assert_int_equal(cpu_of(x, 0), -1);
    assert_int_equal(root_count(x->kit.root, KIND_NODE), 1);
}

static void test_an_interrupted_listing_takes_nothing_away(void **state)
{
    struct world *x = *state;

    tell(x, 0, 2500, 1000, true);
    while (log_.cb)
        answer(x, 0);
    tell(x, 2000, 3000, 1000, true);
    answer(x, 0);
    answer(x, E_UNAVAIL);
    assert_true(x->site.facts.again); /* it is asked for anew */
    assert_null(log_.cb);
    assert_int_equal(x->site.facts.nodes.stage, LISTING_NONE);
    assert_int_equal(cpu_of(x, 0), 1000);
    /* What is left of it may still be told; it takes nothing away. A delta does not fit. */
    tell(x, 4999, 1, 2000, false);
    commit(x);
    assert_int_equal(cpu_of(x, 0), 1000);
    assert_int_equal(cpu_of(x, 4999), 1000);
    /* Asked for anew, all of it is told, and the rest is gone. */
    page(x, "FL", "s", 2000, 3000, 1000);
    commit(x);
    assert_int_equal(root_count(x->kit.root, KIND_NODE), 3000);
}

/* Of 65 to 256 GPUs, which the schema knows and no place can hold: never offered, and why is
 * told. */
static void test_a_node_of_too_many_gpus(void **state)
{
    struct world *x = *state;

    for (unsigned n = 64; n <= 256; n += 64) {
        AUTO_ARENA a = arena_create(0);
        struct node *v = arena_new(a, struct node);
        char name[32];

        (void)snprintf(name, sizeof name, "fra.gpus%u", n);
        v->metadata = arena_new(a, struct meta);
        v->metadata->name = name;
        v->spec = arena_new(a, struct node_spec);
        v->spec->target = "fra";
        v->spec->gpus = arena_array(a, struct gpu, n);
        v->spec->n_gpus = n;
        for (unsigned i = 0; i < n; i++)
            v->spec->gpus[i] = (struct gpu){
                .index = (int64_t)n - 1 - i, .class_ = "h100", .model = "", .uuid = ""};
        site_nodes(&x->site, INVENTORY_ALL(v, 1));
        answer(x, 0);
        const struct object *o = root_get(x->kit.root, KIND_NODE, "", name);
        assert_non_null(o);
        assert_int_equal(object_as(o, node)->spec->n_gpus, n > 64 ? 0 : 64);
        assert_int_equal(object_as(o, node)->status->health,
                         n > 64 ? HEALTH_NOT_READY : HEALTH_READY);
        assert_int_equal(strstr(object_as(o, node)->status->reason, "from 0 to 63") != NULL,
                         n > 64);
    }
}

static void test_an_empty_listing(void **state)
{
    struct world *x = *state;

    tell(x, 0, 2, 1000, true);
    answer(x, 0);
    tell(x, 0, 0, 0, true);
    assert_true(log_.c->facts.complete);
    answer(x, 0);
    assert_int_equal(root_count(x->kit.root, KIND_NODE), 0);
    assert_null(log_.cb);
    tell(x, 0, 0, 0, true); /* the log has it */
    assert_null(log_.cb);
    tell(x, 0, 1, 1000, true);
    commit(x);
    assert_int_equal(cpu_of(x, 0), 1000);
    tell(x, 0, 1, 1000, true);
    assert_null(log_.cb);
}

/* ---- notices ---- */
static const struct node_notice *notice_of(struct world *x, unsigned i)
{
    char name[32];

    (void)snprintf(name, sizeof name, "fra.n%05u", i);
    const struct object *o = root_get(x->kit.root, KIND_NODE, "", name);
    assert_non_null(o);
    return object_as(o, node)->status->notice;
}

/* For the first n nodes. */
static void announce(struct world *x, unsigned n, enum notice_kind kind, uint64_t in_ms)
{
    struct notice *v = mem_alloc((n + 1) * sizeof *v);

    for (unsigned i = 0; i < n; i++) {
        v[i] = (struct notice){.kind = kind, .ends = in_ms > 0, .in_ms = in_ms};
        (void)snprintf(v[i].node, sizeof v[i].node, "fra.n%05u", n - 1 - i);
    }
    site_notices(&x->site, v, n);
    mem_free(v);
    loop_timers_run(x->brain.loop); /* what is due at once */
}

static unsigned answers(struct world *x)
{
    unsigned n = 0;

    for (; log_.cb; n++)
        answer(x, 0);
    return n;
}

static void test_notices(void **state)
{
    struct world *x = *state;

    tell(x, 0, 3, 1000, true);
    answer(x, 0);
    x->site.told = x->site.told_reachable = true;
    announce(x, 2, NOTICE_SPOT, 120000);
    assert_true(log_.c->facts.noticed);
    assert_int_equal(log_.c->facts.n, 2);
    x->kit.now += 700; /* on its way; it counts from the entry on */
    int64_t rv = (int64_t)root_rv(x->kit.root);
    assert_int_equal(answers(x), 1);
    assert_true((int64_t)root_rv(x->kit.root) > rv);
    assert_int_equal(notice_of(x, 0)->kind, NOTICE_SPOT);
    int64_t deadline = notice_of(x, 0)->deadline, since = notice_of(x, 0)->since;
    assert_in_range(deadline, x->kit.now + 119000, x->kit.now + 120000);
    assert_null(notice_of(x, 2));
    /* The same again, as each session says it, is nothing new. */
    unsigned before = log_.n;
    announce(x, 2, NOTICE_SPOT, 119500);
    assert_int_equal(log_.n, before);
    /* What the inventory says keeps it. */
    tell(x, 0, 3, 2000, true);
    assert_int_equal(answers(x), 1);
    assert_int_equal(notice_of(x, 0)->deadline, deadline);
    /* Another deadline, then another kind. */
    announce(x, 2, NOTICE_SPOT, 60000);
    assert_int_equal(answers(x), 1);
    assert_true(notice_of(x, 1)->deadline < deadline);
    assert_int_equal(notice_of(x, 1)->since, since);
    announce(x, 1, NOTICE_REBALANCE, 0);
    assert_int_equal(answers(x), 1);
    assert_int_equal(notice_of(x, 0)->deadline, 0);
    assert_null(notice_of(x, 1));
    announce(x, 0, NOTICE_SPOT, 0);
    assert_int_equal(answers(x), 1);
    assert_null(notice_of(x, 0));
}

/* More than a page of them, for nodes that come later; and an entry that is lost. */
static void test_notices_wait_for_their_nodes(void **state)
{
    struct world *x = *state;

    x->site.told = x->site.told_reachable = true;
    announce(x, 2500, NOTICE_MAINTENANCE, 3600000);
    assert_null(log_.cb);
    tell(x, 0, 2500, 1000, true);
    assert_int_equal(answers(x), 6);
    assert_int_equal(notice_of(x, 2499)->kind, NOTICE_MAINTENANCE);
    announce(x, 1, NOTICE_MAINTENANCE, 3600000);
    answer(x, E_UNAVAIL);
    assert_null(log_.cb);
    x->site.facts.again = false; /* the inventory has no part in it */
    timer_stop(&x->site.facts_timer);
    site_facts_soon(&x->site);
    loop_timers_run(x->brain.loop);
    assert_true(answers(x) >= 3);
    assert_null(notice_of(x, 2499));
    assert_non_null(notice_of(x, 0));
}

/* An overdue one is told as over each time: it stays what it was. */
static void test_a_notice_that_is_over_stays(void **state)
{
    struct world *x = *state;

    tell(x, 0, 1, 1000, true);
    answer(x, 0);
    x->site.told = x->site.told_reachable = true;
    announce(x, 1, NOTICE_MAINTENANCE, 10000);
    assert_int_equal(answers(x), 1);
    int64_t deadline = notice_of(x, 0)->deadline;
    x->kit.now += 3600000;
    struct notice over = {.node = "fra.n00000", .kind = NOTICE_MAINTENANCE, .ends = true};
    site_notices(&x->site, &over, 1);
    loop_timers_run(x->brain.loop);
    assert_int_equal(answers(x), 1); /* by the state's time of then it might have been another */
    tell(x, 0, 1, 3000, true);
    assert_int_equal(answers(x), 1);
    assert_int_equal(notice_of(x, 0)->deadline, deadline);
}

/* Members of an older version would not know what it says. */
static void test_notices_wait_for_the_level(void **state)
{
    struct world *x = *state;

    tell(x, 0, 1, 1000, true);
    answer(x, 0);
    x->site.told = x->site.told_reachable = true;
    x->site.facts.notices.known = x->site.facts.notices.due = true;
    struct node n[1] = {{0}};
    AUTO_ARENA a = arena_create(0);
    x->brain.root = root_create();
    assert_int_equal(site_notices_due(&x->site, a, n, 1), 0);
    assert_true(x->site.facts.notices.due);
    (void)root_unref((struct root *)(uintptr_t)x->brain.root);
    x->brain.root = x->kit.root;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_what_comes_meanwhile_goes_next, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_listing_in_pages, setup, teardown),
        cmocka_unit_test_setup_teardown(test_the_limit_of_a_target, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_delta_adds_changes_and_removes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_delta_that_does_not_fit, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_listing_that_is_cut_off, setup, teardown),
        cmocka_unit_test_setup_teardown(test_an_interrupted_listing_takes_nothing_away, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_a_node_of_too_many_gpus, setup, teardown),
        cmocka_unit_test_setup_teardown(test_notices, setup, teardown),
        cmocka_unit_test_setup_teardown(test_notices_wait_for_their_nodes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_notice_that_is_over_stays, setup, teardown),
        cmocka_unit_test_setup_teardown(test_notices_wait_for_the_level, setup, teardown),
        cmocka_unit_test_setup_teardown(test_an_empty_listing, setup, teardown)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
