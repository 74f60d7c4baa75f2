/* The Kubernetes driver under the contract of connector.h, in virtual time, over a cluster in
 * memory (tests/support/kube): the whole contract while requests and answers are lost, late,
 * doubled and cut. Of an even seed its runs are Jobs of others, carried whole; of each third one
 * PyTorchJobs, whose pods their own controller makes.
 *
 *   HANSE_KUBE_SEED=n   only this seed
 *   HANSE_KUBE_SEEDS=n  so many seeds instead of 3
 *   HANSE_KUBE_RANKS=3  gangs of three ranks instead of one (the first test asks for one alone)
 *   HANSE_KUBE_TEST=name, HANSE_KUBE_CALM=1, HANSE_KUBE_TRACE=1  one test; calm; each request */
#include "tests/support/kube/kube_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define SEEDS 3

static uint64_t seed_now;

static uint64_t number(const char *name, uint64_t otherwise)
{
    const char *s = getenv(name);

    return s ? strtoull(s, NULL, 10) : otherwise;
}

static int begin(void **state)
{
    *state = kube_rig_begin(seed_now, !getenv("HANSE_KUBE_CALM"));
    kube_rig.ranks = (unsigned)number("HANSE_KUBE_RANKS", 1);
    kube_rig.manifest = seed_now % 3 == 0   ? CARRIES_PYTORCHJOB
                        : seed_now % 2 == 0 ? CARRIES_JOB
                                            : CARRIES_NOTHING;
    return 0;
}

static int end(void **state)
{
    (void)state;
    kube_rig_end();
    return 0;
}

#define T(name) cmocka_unit_test_setup_teardown(name, begin, end)
static int contract(void)
{
    const struct CMUnitTest tests[] = {T(connector_runs_and_tells_the_end),
                                       T(connector_adopts_a_second_submit),
                                       T(connector_repeats_orders_where_it_says_so),
                                       T(connector_refuses_what_it_called_absent),
                                       T(connector_refuses_older_epochs),
                                       T(connector_stops_with_proof_and_again),
                                       T(connector_stops_what_never_was),
                                       T(connector_quiesces_by_signal),
                                       T(connector_ends_calls_by_their_deadline),
                                       T(connector_ends_calls_when_destroyed),
                                       T(connector_holds_no_truth),
                                       T(connector_sweeps_what_nobody_owns),
                                       T(connector_finalizes_what_has_ended),
                                       T(connector_believes_no_appearance),
                                       T(connector_waits_in_a_queue),
                                       T(connector_says_what_a_refusal_blames),
                                       T(connector_touches_nothing_of_others),
                                       T(connector_starts_each_try_once)};

    return cmocka_run_group_tests_name("kubernetes", tests, NULL, NULL);
}

/* ---- in a process of its own: what fails there has failed, however it ends ---- */
static int apart(uint64_t seed)
{
    int status = 0;

    (void)fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        seed_now = seed;
        if (getenv("HANSE_KUBE_TEST"))
            cmocka_set_test_filter(getenv("HANSE_KUBE_TEST"));
        _exit(contract());
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static void the_contract_holds(void **state)
{
    uint64_t only = number("HANSE_KUBE_SEED", 0), n = number("HANSE_KUBE_SEEDS", SEEDS);
    unsigned failed = 0;

    (void)state;
    for (uint64_t seed = only ? only : 1; seed <= (only ? only : n); seed++)
        if (apart(seed)) {
            print_error("seed %llu\n", (unsigned long long)seed);
            failed++;
        }
    assert_int_equal(failed, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_contract_holds)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
