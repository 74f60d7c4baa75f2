/* The contract of connector.h under targets that behave as badly as Kubernetes, Slurm and a cloud
 * can (tests/support/scripted): the whole contract on each of the three, with requests and answers
 * that are lost, late, doubled, cut or wrong; and each rule broken on purpose, which the contract
 * must notice.
 *
 *   HANSE_SCRIPTED_SEED=n   only this seed
 *   HANSE_SCRIPTED_SEEDS=n  so many seeds instead of 8
 *   HANSE_SCRIPTED_PLANT=name   with that rule broken, and its messages */
#include "tests/support/contract/connector_contract.h"
#include "tests/support/scripted/scripted.h"
#include "tests/support/web/still_loop.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SEEDS 8
#define PLANT_SEEDS 12

static const char *const names[LIKE_NR] = {"kube", "slurm", "cloud"};
static struct world {
    struct connector_rig rig;
    struct scripted_peer peer;
    struct object *target;
    enum scripted_kind kind;
    bool no_check, starts_late;
    uint64_t seed, random;
} W;

/* ---- the rig ---- */
static uint64_t below(void *arg, uint64_t n)
{
    (void)arg;
    W.random ^= W.random << 13;
    W.random ^= W.random >> 7;
    W.random ^= W.random << 17;
    return (W.random >> 11) % n;
}
static void peer_says(void *arg, const char *text)
{
    (void)arg;
    if (getenv("HANSE_SCRIPTED_TRACE"))
        (void)fprintf(stderr, "%llu %s\n", (unsigned long long)loop_now_ms(W.rig.loop), text);
}
static void order(struct connector_rig *r, const struct run_key *k, enum contract_program what,
                  struct run_order *ret)
{
    static struct assignment at = {.node = "x.n1", .mig = ""};
    static struct placement p = {
        .target = "x", .class_ = "", .assignments = &at, .n_assignments = 1};
    static const char *const argv[PROGRAM_SAVES][2] = {{"stays", NULL}, {"ends", NULL}};

    (void)r;
    (void)k;
    ret->placement = &p;
    ret->argv = argv[what];
}
static void fill(const struct connector *c, const struct run_order *o,
                 unsigned char load[SCRIPTED_LOAD])
{
    (void)c;
    load[0] = !strcmp(o->argv[0], "ends");
}
static void silence(struct connector_rig *r, bool on)
{
    (void)r;
    W.peer.silent = on;
}
static unsigned starts(struct connector_rig *r, const struct run_key *k)
{
    (void)r;
    return peer_starts(&W.peer, k);
}
static bool alive(struct connector_rig *r, const struct run_key *k)
{
    (void)r;
    return peer_alive(&W.peer, k);
}
static bool trouble(struct connector_rig *r, const struct run_key *k, unsigned which)
{
    (void)r;
    return peer_trouble(&W.peer, k, (enum peer_trouble)which);
}
static void chaos(void)
{
    W.peer.chaos = (struct peer_chaos){.lost = 5,
                                       .mute = 5,
                                       .late = 5,
                                       .twice = 5,
                                       .half = 5,
                                       .wrong = 5,
                                       .slow = W.kind == LIKE_SLURM ? 10 : 3,
                                       .busy = 5};
}
static void heal(struct connector_rig *r)
{
    (void)r;
    peer_heal(&W.peer);
    chaos();
}
static void queue(struct connector_rig *r, uint64_t ms)
{
    (void)r;
    W.peer.queue_ms = ms;
}
static bool refuse(struct connector_rig *r, unsigned which)
{
    static const int how[] = {E_LIMIT, E_BUSY, E_FORBIDDEN};

    (void)r;
    if (which >= sizeof how / sizeof *how)
        return false;
    W.peer.refuse = how[which];
    W.peer.refusals = 1000;
    return true;
}
static void late(struct connector_rig *r, uint64_t ms)
{
    (void)r;
    W.peer.order_ms = ms;
    for (unsigned i = 0; i < PEER_NODES; i++)
        W.peer.nodes[i].clock_ms = (int64_t)below(NULL, 2 * CONTRACT_CLOCK_ERROR_MS + 1) -
                                   CONTRACT_CLOCK_ERROR_MS;
}
static void stranger(struct connector_rig *r, const struct run_key *k)
{
    (void)r;
    peer_stranger(&W.peer, k);
}
static unsigned strangers(struct connector_rig *r)
{
    (void)r;
    return peer_strangers(&W.peer);
}
static const char *broken(struct connector_rig *r)
{
    (void)r;
    return peer_broken(&W.peer);
}

static int begin_as(void **state, bool in_time)
{
    struct connector_rig *r = &W.rig;
    struct target *t = mem_new(struct target);
    static struct meta meta;
    static struct target_limits limits = {.startWithin = 20000,
                                          .clockError = CONTRACT_CLOCK_ERROR_MS};

    meta = (struct meta){.name = names[W.kind], .namespace_ = ""};
    t->metadata = &meta;
    t->spec = mem_new(struct target_spec);
    t->spec->limits = in_time ? &limits : NULL;
    W.random = W.seed * 2654435761u + 88172645463325252u;
    *r = (struct connector_rig){.loop = still_loop_create(W.seed),
                                .run = still_loop_go,
                                .ops = &scripted_ops,
                                .order = order,
                                .silence = silence,
                                .starts = starts,
                                .alive = alive,
                                .n_troubles = TROUBLE_NR,
                                .trouble = trouble,
                                .heal = heal,
                                .queue = queue,
                                .refuse = refuse,
                                .late = late,
                                .stranger = stranger,
                                .strangers = strangers,
                                .broken = broken,
                                .call_ms = 90000,
                                .dice = W.seed};
    W.target = object_make(kind_by_id(KIND_TARGET), t);
    r->target = W.target;
    mem_free(t->spec);
    mem_free(t);
    peer_init(&W.peer, W.kind, names[W.kind], r->loop);
    W.peer.below = below;
    W.peer.log = peer_says;
    W.peer.no_check = W.no_check;
    W.peer.in_time = in_time;
    W.peer.starts_late = W.starts_late;
    scripted_local(&W.peer);
    scripted_use(&scripted_local_link, fill);
    chaos();
    connector_rig_begin(r);
    *state = r;
    return 0;
}
static int begin(void **state)
{
    return begin_as(state, false);
}
/* Of a target that cannot refuse a key; of the other two names and tokens do that. */
static int begin_in_time(void **state)
{
    return begin_as(state, W.kind == LIKE_SLURM);
}
static int end(void **state)
{
    struct connector_rig *r = *state;

    connector_rig_end(r);
    assert_string_equal(peer_broken(&W.peer), "");
    peer_fini(&W.peer);
    (void)object_unref(W.target);
    (void)still_loop_destroy(r->loop);
    return 0;
}

#define T(name) cmocka_unit_test_setup_teardown(name, begin, end)
static int contract(void)
{
    const struct CMUnitTest tests[] = {T(connector_runs_and_tells_the_end),
                                       T(connector_adopts_a_second_submit),
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
                                       T(connector_repeats_orders_where_it_says_so),
                                       T(connector_waits_in_a_queue),
                                       T(connector_says_what_a_refusal_blames),
                                       T(connector_touches_nothing_of_others),
                                       T(connector_starts_each_try_once),
                                       cmocka_unit_test_setup_teardown(
                                           connector_starts_in_time_or_never, begin_in_time, end)};

    return cmocka_run_group_tests_name(names[W.kind], tests, NULL, NULL);
}

static void plant_begin(enum scripted_plant plant, const char *by)
{
    static char test[64];
    bool tells = getenv("HANSE_SCRIPTED_PLANT") != NULL;

    (void)snprintf(test, sizeof test, "connector_%s", by);
    cmocka_set_test_filter(test);
    if (!tells && (!freopen("/dev/null", "w", stdout) || !freopen("/dev/null", "w", stderr)))
        _exit(0);
    (void)alarm(60); /* a rule may be broken so that it never ends */
    scripted_plant(plant);
    W.no_check = plant == SCRIPTED_NO_CHECK;
    W.starts_late = plant == SCRIPTED_STARTS_LATE;
}
/* ---- in a process of its own: what fails there has failed, however it ends ---- */
static int apart(enum scripted_kind kind, uint64_t seed, enum scripted_plant plant, const char *by)
{
    int status = 0;

    (void)fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        W.kind = kind;
        W.seed = seed;
        if (plant)
            plant_begin(plant, by);
        _exit(contract());
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}
static uint64_t number(const char *name, uint64_t otherwise)
{
    const char *s = getenv(name);

    return s ? strtoull(s, NULL, 10) : otherwise;
}

static void the_contract_holds(void **state)
{
    uint64_t only = number("HANSE_SCRIPTED_SEED", 0), n = number("HANSE_SCRIPTED_SEEDS", SEEDS);
    unsigned failed = 0;

    (void)state;
    if (getenv("HANSE_SCRIPTED_PLANT"))
        skip();
    for (uint64_t seed = only ? only : 1; seed <= (only ? only : n); seed++)
        for (int kind = 0; kind < LIKE_NR; kind++)
            if (apart((enum scripted_kind)kind, seed, SCRIPTED_NONE, NULL)) {
                print_error("%s, seed %llu\n", names[kind], (unsigned long long)seed);
                failed++;
            }
    assert_int_equal(failed, 0);
}

/* Which of the contract must notice, and under which kinds of target: a rule matters where the
 * target is like that. */
static const struct {
    enum scripted_plant plant;
    unsigned kinds; /* a bit for each */
    const char *by;
} noticed[] = {
#define ALL ((1u << LIKE_NR) - 1)
#define KUBE (1u << LIKE_KUBERNETES)
#define SLURM (1u << LIKE_SLURM)
    {SCRIPTED_NO_PROMISE, ALL, "refuses_what_it_called_absent"},
    {SCRIPTED_PROMISE_OF_MINE, ALL, "refuses_what_it_called_absent"},
    {SCRIPTED_LOST_IS_REJECTED, ALL, "adopts_a_second_submit"},
    {SCRIPTED_LOST_IS_DONE, ALL, "starts_each_try_once"},
    {SCRIPTED_GONE_IS_ENDED, KUBE, "believes_no_appearance"},
    {SCRIPTED_MISSES_GONE, ALL & ~SLURM, "believes_no_appearance"},
    {SCRIPTED_DOUBT_IS_ENDED, ALL, "believes_no_appearance"},
    /* Slurm is asked twice, of its controller and of its accounting, and a cloud by token. */
    {SCRIPTED_HALF_IS_WHOLE, KUBE, "starts_each_try_once"},
    {SCRIPTED_WRONG_IS_RIGHT, ALL, "believes_no_appearance"},
    {SCRIPTED_BLIND_SUBMIT, ALL, "adopts_a_second_submit"},
    {SCRIPTED_BACK_IS_PENDING, SLURM, "believes_no_appearance"},
    {SCRIPTED_ANY_EPOCH, ALL, "refuses_older_epochs"},
    {SCRIPTED_STRANGERS_TOO, ALL, "touches_nothing_of_others"},
    {SCRIPTED_SWEEPS_ALL, ALL, "sweeps_what_nobody_owns"},
    {SCRIPTED_NO_HOLD, KUBE, "runs_and_tells_the_end"},
    {SCRIPTED_NO_HOLD, SLURM, "believes_no_appearance"},
    {SCRIPTED_FINAL_ENDS, ALL, "finalizes_what_has_ended"},
    {SCRIPTED_STOP_UNPROVED, ALL, "stops_with_proof_and_again"},
    {SCRIPTED_NEVER_STOPS, ALL, "stops_with_proof_and_again"},
    {SCRIPTED_INSIDE, ALL, "runs_and_tells_the_end"},
    {SCRIPTED_NO_DEADLINE, ALL, "ends_calls_by_their_deadline"},
    {SCRIPTED_LOSES_CALLS, ALL, "ends_calls_when_destroyed"},
    {SCRIPTED_ENDS_WITH_ME, ALL, "holds_no_truth"},
    {SCRIPTED_NO_SEAT, ALL, "waits_in_a_queue"},
    {SCRIPTED_NO_BLAME, ALL, "says_what_a_refusal_blames"},
    {SCRIPTED_NO_WORKERS, ALL, "runs_and_tells_the_end"},
    {SCRIPTED_NO_CHECK, KUBE | SLURM, "starts_each_try_once"},
    {SCRIPTED_STARTS_LATE, SLURM, "starts_in_time_or_never"},
};

static void each_broken_rule_is_noticed(void **state)
{
    const char *only = getenv("HANSE_SCRIPTED_PLANT");
    unsigned unseen = 0;
    uint64_t tried = 0;

    (void)state;
    if (getenv("HANSE_SCRIPTED_SEED") && !only)
        skip();
    for (size_t i = 0; i < sizeof noticed / sizeof *noticed; i++)
        for (int kind = 0; kind < LIKE_NR; kind++) {
            uint64_t seed = 0, most = PLANT_SEEDS;
            if (!(noticed[i].kinds >> kind & 1) ||
                (only && strcmp(only, scripted_plant_text(noticed[i].plant)) != 0))
                continue;
            tried |= 1ull << noticed[i].plant;
            while (seed < most &&
                   !apart((enum scripted_kind)kind, seed + 1, noticed[i].plant, noticed[i].by))
                seed++;
            if (seed == most || only)
                print_message("planted %s, %s: %s\n", scripted_plant_text(noticed[i].plant),
                              names[kind], seed == most ? "NOT SEEN" : "seen");
            unseen += seed == most;
        }
    assert_int_equal(unseen, 0);
    if (!only)
        assert_true(tried == (1ull << SCRIPTED_NR) - 2); /* each rule */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_contract_holds),
                                       cmocka_unit_test(each_broken_rule_is_noticed)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
