/* A fleet of a thousand Targets, of which one is there, and five thousand workloads: the leader
 * lives, places what fits, and tells all others why they wait. */
#include "tests/sim/federation/sim_federation.h"
#include "tests/support/unit.h"

#include <stdio.h>
#include <string.h>

#define TARGETS 1000
#define WORKLOADS 5000
#define BATCH 500
#define UNTIL_MS 120000

int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
    return 1;
}

struct fleet {
    struct fed f;
    unsigned targets, workloads; /* acknowledged so far */
};

static void *target_body(struct arena *a, const char *name, unsigned i)
{
    struct target *t = arena_new(a, struct target);

    t->metadata = fed_meta(a, "", name, arena_printf(a, "uid-target-%u", i));
    t->spec = arena_new(a, struct target_spec);
    t->spec->type = TARGET_AGENT;
    t->spec->tier = TIER_HUB;
    return t;
}

static void *workload_body(struct arena *a, const char *name, unsigned i)
{
    struct workload *w = arena_new(a, struct workload);

    w->metadata = fed_meta(a, "dev", name, arena_printf(a, "uid-work-%u", i));
    w->spec = arena_new(a, struct workload_spec);
    w->spec->run = arena_new(a, struct run_spec);
    w->spec->run->script = "work";
    w->spec->resources = arena_new(a, struct resources);
    w->spec->resources->gpu = arena_new(a, struct gpu_request);
    w->spec->resources->gpu->count = 1 + i % 2;
    return w;
}

static void propose(struct fleet *x, struct sim_member *m, bool targets, unsigned from, unsigned n)
{
    AUTO_ARENA a = arena_create(0);
    struct write_op *ops = arena_array(a, struct write_op, n + 1);
    union command c = {.write = {.ops = ops, .if_absent = true}};

    if (targets && !from) {
        struct namespace_ *ns = arena_new(a, struct namespace_);
        ns->metadata = fed_meta(a, "", "dev", "uid-ns-dev");
        fed_op(&ops[c.write.n++], WRITE_CREATE, KIND_NAMESPACE, "", "dev", ns);
    }
    for (unsigned i = from; i < from + n; i++) {
        const char *name =
            targets ? i ? arena_printf(a, "t%04u", i) : "fra" : arena_printf(a, "w%04u", i);
        fed_op(&ops[c.write.n++], WRITE_CREATE, targets ? KIND_TARGET : KIND_WORKLOAD,
               targets ? "" : "dev", name,
               targets ? target_body(a, name, i) : workload_body(a, name, i));
    }
    fed_propose(&x->f, m, &c, &(struct fed_request){.workload = -1});
}

static void fill(struct fleet *x, bool targets, unsigned all)
{
    for (unsigned from = 0; from < all; from += BATCH) {
        unsigned before = x->f.acked;

        for (unsigned tries = 0; x->f.acked == before && tries < 60; tries++) {
            struct sim_member *m = fed_member_pick(&x->f);
            if (m)
                propose(x, m, targets, from, BATCH);
            (void)sim_run_until(x->f.w, sim_now_ms(x->f.w) + 1000, NULL, NULL);
        }
        assert_true(x->f.acked > before);
    }
}

static void run_ignored(void *arg, struct sim_room *r, const struct sim_run *run)
{
    (void)arg;
    (void)r;
    (void)run;
}
static void stop_ignored(void *arg, struct sim_room *r, const struct run_key *k)
{
    (void)arg;
    (void)r;
    (void)k;
}

struct counted {
    unsigned placed, told, waits;
};
static bool count_each(const struct object *o, void *arg)
{
    struct counted *n = arg;
    const struct workload_status *s = object_as(o, workload)->status;

    n->placed += s->epoch > 0;
    n->waits += s->phase == PHASE_QUEUED;
    n->told += s->phase == PHASE_QUEUED && *s->reason;
    return true;
}

static struct counted count(struct fleet *x)
{
    struct counted n = {0};
    struct root *r = fed_newest(&x->f);

    assert_non_null(r);
    root_scan(r, KIND_WORKLOAD, NULL, NULL, NULL, count_each, &n);
    (void)root_unref(r);
    return n;
}

static bool all_told(void *arg)
{
    struct counted n = count(arg);

    return n.placed > 0 && n.waits > 0 && n.told == n.waits;
}

static void test_a_thousand_targets_and_five_thousand_who_wait(void **state)
{
    struct fleet *x = mem_new(struct fleet);
    static const struct sim_member_events none = {0};
    struct sim_room_events ev = {
        .begins = run_ignored, .stops = stop_ignored, .finished = run_ignored};

    (void)state;
    x->f.w = sim_world_create(7);
    sim_store_init(&x->f.store);
    x->f.rooms[0] = sim_room_create(x->f.w, "fra", &x->f.store, &ev);
    for (unsigned i = 0; i < SIM_MEMBERS; i++) {
        char name[8];
        (void)snprintf(name, sizeof name, "m%u", i + 1);
        x->f.hosts[i] = sim_host_create(x->f.w, name);
        x->f.members[i] = sim_member_start(x->f.hosts[i], i + 1, true, &none);
    }
    (void)sim_run_until(x->f.w, 3000, NULL, NULL);
    fill(x, true, TARGETS);
    fill(x, false, WORKLOADS);
    while (sim_now_ms(x->f.w) < UNTIL_MS && !all_told(x))
        (void)sim_run_until(x->f.w, sim_now_ms(x->f.w) + 2000, NULL, NULL);
    struct counted n = count(x);
    print_message("%u placed, %u wait, %u of them told why, after %llu ms\n", n.placed, n.waits,
                  n.told, (unsigned long long)sim_now_ms(x->f.w));
    assert_true(n.placed > 0);
    assert_int_equal(n.told, n.waits);
    for (unsigned i = 0; i < SIM_MEMBERS; i++)
        assert_int_equal(x->f.members[i]->error.code, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_thousand_targets_and_five_thousand_who_wait)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
