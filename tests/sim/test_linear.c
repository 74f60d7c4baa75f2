/* Is every answer of a federation right, whatever fails? Clients and watchers at all members, with
 * the judge of tests/support/history over all that they were told. See sim/clients.
 *
 *   HANSE_SIM_SEED=n    only this seed, HANSE_SIM_TRACE=1 with its trace
 *   HANSE_SIM_SEEDS=n   so many seeds instead of 60
 *   HANSE_SIM_FROM=n    from this seed on
 *   HANSE_SIM_BUG=name  with that bug planted in the program */
#include "tests/sim/federation/sim_federation.h"
#include "tests/support/unit.h"

#include <stdlib.h>
#include <string.h>

#define SEEDS 60
#define REPEATED 2
#define PLANT_SEEDS 40

static struct fed_outcome life(uint64_t seed, const char *bug)
{
    return fed_run_apart(seed, &(struct fed_script){.clients = true, .bug = bug});
}
static void test_seeds(void **state)
{
    uint64_t only = fed_number("HANSE_SIM_SEED", 0), n = fed_number("HANSE_SIM_SEEDS", SEEDS),
             from = only ? only : fed_number("HANSE_SIM_FROM", 1), most = 0;
    struct fed_history sum = {0};
    unsigned failed = 0, faults = 0, transfers = 0;

    (void)state;
    for (uint64_t seed = from; seed < from + (only ? 1 : n); seed++) {
        struct fed_outcome o = life(seed, getenv("HANSE_SIM_BUG"));
        failed += fed_tell(seed, &o, "sim_linear");
        sum.ops += o.history.ops;
        sum.unknown += o.history.unknown;
        sum.lists += o.history.lists;
        sum.events += o.history.events;
        most = most > o.history.configurations ? most : o.history.configurations;
        faults += o.faults;
        transfers += o.transfers;
        if (seed < from + REPEATED && !only) {
            struct fed_outcome again = life(seed, getenv("HANSE_SIM_BUG"));
            if (again.hash != o.hash || again.events != o.events) {
                print_error("seed %llu: two runs differ\n", (unsigned long long)seed);
                failed++;
            }
        }
    }
    print_message("%llu operations (%llu without an answer), %llu lists, %llu events of watches, "
                  "%u faults, %u leaderships handed over; at most %llu configurations\n",
                  (unsigned long long)sum.ops, (unsigned long long)sum.unknown,
                  (unsigned long long)sum.lists, (unsigned long long)sum.events, faults, transfers,
                  (unsigned long long)most);
    assert_int_equal(failed, 0);
    if (only || n < SEEDS)
        return;
    assert_true(sum.ops > 250 * n && sum.unknown && sum.lists && sum.events > 50 * n && transfers);
}

/* Each must be seen by the judge, by one of the questions that are meant for it. A seed in which
 * something else comes first (what libraft does with a disk that forgets is anybody's guess) proves
 * nothing, and the next one is asked. */
static const struct {
    const char *bug, *seen;
} planted[] = {
    {"raft.local-reads", "linear order"}, /* a stale leader, or follower, answers without a round */
    {"disk.forgets", "linear order"},     /* an acknowledged write is dropped on restart */
    {"store.applied-twice", "linear order final"},     /* a retry is carried out again */
    {"store.lost-update", "linear order"},             /* resourceVersion is not compared */
    {"store.refusal-forgotten", "final linear order"}, /* what waited is done, though refused */
    {"clients.watch-gap", "watches"},                  /* a watch leaves one out */
};
static void test_planted(void **state)
{
    unsigned unseen = 0;

    (void)state;
    if (getenv("HANSE_SIM_SEED") || getenv("HANSE_SIM_FROM"))
        skip();
    for (size_t i = 0; i < sizeof planted / sizeof *planted; i++) {
        struct fed_outcome o = {0};
        uint64_t seed = 0;
        bool seen = false;

        while (!seen && seed < PLANT_SEEDS) {
            char check[16] = "";
            o = life(++seed, planted[i].bug);
            if (!strncmp(o.failed, "I3: ", 4))
                (void)memcpy(check, o.failed + 4, strcspn(o.failed + 4, ":") % sizeof check);
            seen = *check && strstr(planted[i].seen, check);
        }
        unseen += !seen;
        print_message("planted %s: seed %llu: %s%s\n", planted[i].bug, (unsigned long long)seed,
                      *o.failed ? o.failed : "NOT SEEN", seen ? "" : " (NOT BY THE JUDGE)");
    }
    assert_int_equal(unseen, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_seeds),
                                       cmocka_unit_test(test_planted)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
