/* A crash at every arrow of a move: each cause, each phase and failpoint, each party.
 *
 *   HANSE_SIM_ARROW="CAUSE PHASE-or-point PARTY"   only this one; HANSE_SIM_TRACE=1 with its trace
 *   HANSE_SIM_SEEDS=n   so many seeds of each instead of 2 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/sim/federation/sim_federation.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
    return 1;
}

static const enum move_cause causes[] = {MOVE_ASKED,      MOVE_DRAIN,      MOVE_PREEMPTION,
                                         MOVE_COMPLIANCE, MOVE_REPATRIATE, MOVE_LOST};

static struct fed_outcome life(uint64_t seed, const struct fed_arrow *a)
{
    return fed_run_apart(seed, &(struct fed_script){.steps = true, .moves = true, .arrow = a});
}
static uint64_t seeds_wanted(void)
{
    const char *s = getenv("HANSE_SIM_SEEDS");

    return s ? strtoull(s, NULL, 10) : 2;
}
static void name_of(const struct fed_arrow *a, char out[128])
{
    (void)snprintf(out, 128, "%s %s %s", move_cause_text(a->cause),
                   *a->point  ? a->point
                   : a->phase ? move_phase_text(a->phase)
                              : "-",
                   fed_party_text(a->party));
}

struct table {
    unsigned run, failed, missed;
    int64_t lost, most;
};
static void one(struct table *t, const struct fed_arrow *a, struct fed_outcome *ret)
{
    const char *only = getenv("HANSE_SIM_ARROW");
    char name[128];

    name_of(a, name);
    if (only && strcmp(only, name) && a->party)
        return;
    for (uint64_t seed = 1; seed <= seeds_wanted(); seed++) {
        struct fed_outcome o = life(seed, a);
        if (*o.failed) {
            print_error("%s, seed %llu: %s\n", name, (unsigned long long)seed, o.failed);
            t->failed++;
        }
        if (a->party && !o.died)
            t->missed++;
        t->run++;
        t->lost += o.lost_steps;
        t->most = t->most > o.lost_steps ? t->most : o.lost_steps;
        if (ret && seed == 1)
            *ret = o;
    }
}
static void all_of(enum move_cause cause)
{
    struct fed_outcome quiet = {0};
    struct table t = {0};

    one(&t, &(struct fed_arrow){.cause = cause}, &quiet);
    if (!quiet.moves[MP_SUCCEEDED] && !t.failed) {
        print_error("%s: undisturbed, nothing moved\n", move_cause_text(cause));
        t.failed++;
    }
    for (int p = MP_PENDING; p <= MP_SUCCEEDED; p++)
        for (int who = PARTY_LEADER; quiet.arrow_phases & 1u << p && who < PARTY_NR; who++)
            one(&t,
                &(struct fed_arrow){
                    .cause = cause, .phase = (enum move_phase)p, .party = (enum fed_party)who},
                NULL);
    for (unsigned i = 0; i < quiet.n_points; i++) {
        struct fed_arrow a = {.cause = cause, .party = PARTY_LEADER};
        (void)snprintf(a.point, sizeof a.point, "%s", quiet.points[i]);
        one(&t, &a, NULL);
    }
    print_message("%-12s %u failpoints, %u lives, %u without their crash, steps lost: %lld in all, "
                  "at most %lld\n",
                  move_cause_text(cause), quiet.n_points, t.run, t.missed, (long long)t.lost,
                  (long long)t.most);
    assert_int_equal(t.failed, 0);
}

static void test_asked(void **state)
{
    (void)state;
    all_of(causes[0]);
}
static void test_drain(void **state)
{
    (void)state;
    all_of(causes[1]);
}
static void test_preemption(void **state)
{
    (void)state;
    all_of(causes[2]);
}
static void test_compliance(void **state)
{
    (void)state;
    all_of(causes[3]);
}
static void test_repatriate(void **state)
{
    (void)state;
    all_of(causes[4]);
}
static void test_lost(void **state)
{
    (void)state;
    all_of(causes[5]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_asked),      cmocka_unit_test(test_drain),
        cmocka_unit_test(test_preemption), cmocka_unit_test(test_compliance),
        cmocka_unit_test(test_repatriate), cmocka_unit_test(test_lost)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
