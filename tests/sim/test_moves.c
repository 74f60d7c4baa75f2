/* Work that moves, in whole federations: programs that checkpoint, users who ask for moves,
 * production work that preempts, rooms that lose power, and all the faults of test_federation.c.
 *
 *   HANSE_SIM_SEED=n    only this seed, HANSE_SIM_TRACE=1 with its trace
 *   HANSE_SIM_SEEDS=n   so many seeds instead of 40
 *   HANSE_SIM_FROM=n    from this seed on
 *   HANSE_SIM_PLANT=name   with that planted bug of the rooms
 *   HANSE_SIM_BUG=name     with that planted bug of the program */
#include "tests/sim/federation/sim_federation.h"
#include "tests/support/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEEDS 40
#define REPEATED 2
#define PLANT_SEEDS 100

static struct fed_outcome life(uint64_t seed, enum sim_plant plant, const char *bug)
{
    return fed_run_apart(
        seed, &(struct fed_script){
                  .plant = plant, .steps = true, .moves = true, .rooms = true, .bug = bug});
}
struct sum {
    uint64_t events, entries;
    unsigned workloads, resumed, finished, twice, faults, refused, leases_over;
    int64_t lost;
    unsigned moves[MP_CANCELLED + 1];
    unsigned causes[MOVE_RECLAIM + 1];
};
static void add(struct sum *s, const struct fed_outcome *o)
{
    s->events += o->events;
    s->entries += o->entries;
    s->workloads += o->workloads;
    s->resumed += o->resumed;
    s->finished += o->finished;
    s->twice += o->twice;
    s->faults += o->faults;
    s->refused += o->refused_cuts;
    s->leases_over += o->leases_over;
    s->lost += o->lost_steps;
    for (size_t i = 0; i <= MOVE_RECLAIM; i++)
        s->causes[i] += o->causes[i];
    for (size_t i = 0; i <= MP_CANCELLED; i++)
        s->moves[i] += o->moves[i];
}
static void test_seeds(void **state)
{
    uint64_t only = fed_number("HANSE_SIM_SEED", 0), n = fed_number("HANSE_SIM_SEEDS", SEEDS),
             from = only ? only : fed_number("HANSE_SIM_FROM", 1);
    struct sum s = {0};
    unsigned failed = 0;

    (void)state;
    for (uint64_t seed = from; seed < from + (only ? 1 : n); seed++) {
        struct fed_outcome o = life(seed, fed_plant_wanted(), getenv("HANSE_SIM_BUG"));
        failed += fed_tell(seed, &o, "sim_moves");
        add(&s, &o);
        if (seed < from + REPEATED && !only) {
            struct fed_outcome again = life(seed, fed_plant_wanted(), getenv("HANSE_SIM_BUG"));
            if (again.hash != o.hash || again.events != o.events) {
                print_error("seed %llu: two runs differ\n", (unsigned long long)seed);
                failed++;
            }
        }
    }
    print_message("%llu events, %llu entries, %u workloads, %u faults, %u resumed, %u finished (%u "
                  "again after a lease), %lld steps lost, %u checkpoints refused, %u leases over\n",
                  (unsigned long long)s.events, (unsigned long long)s.entries, s.workloads,
                  s.faults, s.resumed, s.finished, s.twice, (long long)s.lost, s.refused,
                  s.leases_over);
    print_message("migrations:");
    for (int p = MP_PENDING; p <= MP_CANCELLED; p++)
        print_message(" %s %u", move_phase_text((enum move_phase)p), s.moves[p]);
    print_message("\ncauses:");
    for (int c = MOVE_PREEMPTION; c <= MOVE_RECLAIM; c++)
        print_message(" %s %u", move_cause_text((enum move_cause)c), s.causes[c]);
    print_message("\n");
    assert_int_equal(failed, 0);
    if (only || n < SEEDS)
        return;
    /* A test that has stopped to reach what it is about must say so. */
    for (int p = MP_PENDING; p <= MP_CANCELLED; p++)
        if (!s.moves[p])
            fail_msg("no seed has a migration that is %s", move_phase_text((enum move_phase)p));
    for (int c = MOVE_PREEMPTION; c <= MOVE_RECLAIM; c++)
        if ((c == MOVE_PREEMPTION || c == MOVE_DRAIN || c == MOVE_LOST || c == MOVE_REPATRIATE ||
             c == MOVE_ASKED) &&
            !s.causes[c])
            fail_msg("no seed has a migration because of %s", move_cause_text((enum move_cause)c));
    assert_true(s.resumed && s.refused && s.leases_over);
}

/* Each must be seen by a check, and by one that is meant for it: where another one is first, the
 * next seed is asked. */
static const struct {
    enum sim_plant plant;
    const char *bug, *seen;
} planted[] = {
    {PLANT_OLD_CUT, "run.any-path", "W6"},           /* an old epoch's checkpoint becomes current */
    {PLANT_NO_VERIFY, NULL, "W4"},                   /* a damaged one is resumed from */
    {PLANT_AFRESH, NULL, "W3"},                      /* none is resumed from */
    {PLANT_LOSES_CUT, NULL, "W3"},                   /* what was saved at the end is forgotten */
    {PLANT_NONE, "move.start-unproved", "M2 I1 W5"}, /* START ahead of the proof */
    {PLANT_NONE, "move.destination-unheld", "W5 M5 en"},
    {PLANT_NONE, "policy.any-victim", "M3"},
    {PLANT_NONE, "run.lease-first", "M4"}, /* the last copy goes before its replacement is held */
    {PLANT_NONE, "run.victim-to-the-end", "M6"},
    {PLANT_NONE, "run.saved-nothing", "W7"},   /* exit 0 is believed of who was told to save */
    {PLANT_NONE, "run.any-agent", "I1 W2 W5"}, /* an empty state folder proves absence */
    {PLANT_NONE, "policy.any-ranks", "W3 W6"}, /* a gang goes on with another number of workers */
};
static void test_planted(void **state)
{
    unsigned unseen = 0;

    (void)state;
    if (getenv("HANSE_SIM_SEED") || getenv("HANSE_SIM_FROM"))
        skip();
    for (size_t i = 0; i < sizeof planted / sizeof *planted; i++) {
        const char *name = planted[i].bug ? planted[i].bug : sim_plant_text(planted[i].plant);
        struct fed_outcome o = {0};
        uint64_t seed = 0;
        bool seen = false;
        while (!seen && seed < PLANT_SEEDS) {
            o = life(++seed, planted[i].plant, planted[i].bug);
            char check[3] = {o.failed[0], o.failed[0] ? o.failed[1] : '\0', '\0'};
            seen = *o.failed && strstr(planted[i].seen, check);
        }
        unseen += !seen;
        print_message("planted %s: seed %llu: %s%s\n", name, (unsigned long long)seed,
                      *o.failed ? o.failed : "NOT SEEN", seen ? "" : " (BY ANOTHER CHECK)");
    }
    assert_int_equal(unseen, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_seeds),
                                       cmocka_unit_test(test_planted)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
