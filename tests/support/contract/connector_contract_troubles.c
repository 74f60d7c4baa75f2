/* The part of the contract that is about what a target, and those who share it, can do: queues,
 * refusals, nodes out of reach, objects that are gone, answers that were lost. The suite behaves as
 * the leader does: after "unknown" it finds, and goes on only with a proof. */
#include "tests/support/contract/connector_contract_internal.h"

#include <string.h>

#define TROUBLE_LOOKS 30 /* longer than until a node is doubted, and its runs are to go */
#define LOOK_MS 1500
#define TRIES 24

static bool never(void *arg)
{
    (void)arg;
    return false;
}
static void passes(struct connector_rig *r, uint64_t ms)
{
    (void)connector_until(r, never, NULL, ms);
}
static void unbroken(struct connector_rig *r)
{
    assert_string_equal(r->broken(r), "");
}
static uint64_t chance(struct connector_rig *r, uint64_t n)
{
    r->dice = r->dice * 6364136223846793005u + 1442695040888963407u;
    return (r->dice >> 33) % n;
}

/* Whatever it looks like: while it lives nobody says that it has ended, or never was; and once all
 * is well again its end is proved. */
void connector_believes_no_appearance(void **state)
{
    struct connector_rig *r = *state;
    unsigned happened = 0;

    for (unsigned which = 0; which < r->n_troubles; which++) {
        struct asked a;
        struct run_key k = contract_running(r, &a);
        if (!r->trouble(r, &k, which))
            continue;
        happened++;
        for (unsigned i = 0; i < TROUBLE_LOOKS; i++) {
            bool lives = r->alive(r, &k);
            if (contract_find(r, &k, LOOK_MS, &a) == OUT_DONE && lives && r->alive(r, &k))
                /* it waits in no queue, and never was not */
                assert_true(a.seen.state == RUN_RUNNING || a.seen.state == RUN_STARTING ||
                            a.seen.state == RUN_UNKNOWN);
            passes(r, 300);
        }
        r->heal(r);
        passes(r, 5000);
        if (!r->alive(r, &k))
            (void)contract_await_run(r, &k, RUN_ENDED); /* and is told without being asked for */
        contract_stopped(r, &k, &a);
        assert_int_equal(a.seen.state, RUN_ENDED);
        assert_int_equal(r->starts(r, &k), 1);
        unbroken(r);
    }
    assert_true(happened > 2);
}

void connector_waits_in_a_queue(void **state)
{
    struct connector_rig *r = *state;
    struct run_key k = contract_fresh_key(r), other = contract_fresh_key(r);
    struct asked a;

    r->queue(r, 60000); /* what is told of it may come late */
    assert_int_equal(contract_submit(r, &k, PROGRAM_STAYS, &a), OUT_DONE);
    const struct observation *o = contract_await_run(r, &k, RUN_PENDING);
    assert_true(*o->reason != 0);
    assert_int_equal(r->starts(r, &k), 0);
    assert_int_equal(contract_submit(r, &other, PROGRAM_STAYS, &a), OUT_DONE);
    unsigned seated = r->n_seated;
    (void)contract_await_run(r, &k, RUN_RUNNING); /* ahead of which somebody said where */
    assert_true(r->n_seated > seated || !strcmp(r->seated.uid, k.uid));
    contract_stopped(r, &k, &a);
    contract_stopped(r, &other, &a);
    r->heal(r);
    r->queue(r, 600000);
    k = contract_fresh_key(r);
    assert_int_equal(contract_submit(r, &k, PROGRAM_STAYS, &a), OUT_DONE);
    contract_stopped(r, &k, &a); /* withdrawn ahead of its start */
    assert_int_equal(a.seen.state, RUN_ABSENT);
    r->heal(r);
    assert_int_equal(contract_submit(r, &k, PROGRAM_STAYS, &a), OUT_REJECTED);
    passes(r, 15000);
    assert_int_equal(r->starts(r, &k), 0);
    unbroken(r);
}

/* Where an answer was lost, nobody knows whether what was refused later had been taken: then it is
 * asked for again, under another key. */
static bool refused(struct connector_rig *r, unsigned which)
{
    struct run_key k = contract_fresh_key(r);
    struct asked a;

    (void)r->refuse(r, which);
    enum outcome out = contract_submit(r, &k, PROGRAM_STAYS, &a);
    struct refusal why = a.call.refused;
    r->heal(r);
    assert_true(out == OUT_REJECTED || out == OUT_UNKNOWN);
    if (out == OUT_REJECTED) {
        assert_true(why.class_ && why.scope);
        if (why.class_ == REFUSED_THROTTLED)
            assert_true(why.scope == BLAMES_TARGET && why.retry_ms > 0);
        if (why.scope == BLAMES_ZONE || why.scope == BLAMES_CLASS)
            assert_int_not_equal(*why.name, 0);
        assert_int_equal(r->starts(r, &k), 0);
    }
    contract_stopped(r, &k, &a);
    return out == OUT_REJECTED;
}
void connector_says_what_a_refusal_blames(void **state)
{
    struct connector_rig *r = *state;
    unsigned which = 0;

    for (; r->refuse(r, which); which++) {
        unsigned tries = 0;
        while (!refused(r, which))
            assert_true(++tries < 20);
    }
    r->heal(r);
    assert_true(which > 0);
    unbroken(r);
}

static enum run_verdict none_is_ours(const struct run_listed *l, void *arg)
{
    (void)l;
    (void)arg;
    return RUN_LET_GO;
}
void connector_touches_nothing_of_others(void **state)
{
    struct connector_rig *r = *state;
    struct run_key k = contract_fresh_key(r);
    struct asked a;

    r->stranger(r, &k);
    unsigned n = r->strangers(r);
    (void)contract_submit(r, &k, PROGRAM_STAYS, &a);
    contract_stopped(r, &k, &a);
    for (unsigned i = 0; i < 4; i++) {
        contract_ask_begin(r, &a, CALL_MS);
        r->ops->sweep(r->connector, none_is_ours, NULL, &a.call);
        assert_int_equal(contract_ask_end(r, &a), OUT_DONE);
    }
    contract_ask_begin(r, &a, CALL_MS);
    r->ops->finalize(r->connector, &k, &a.call);
    (void)contract_ask_end(r, &a);
    passes(r, 5000);
    assert_int_equal(r->strangers(r), n);
    unbroken(r);
}

/* As the leader does: what is not proved is asked for again; a key that is absent is followed by
 * the next try, one that has ended by the next epoch. */
static bool settled(struct connector_rig *r, const struct run_key *k, struct asked *a)
{
    while (contract_find(r, k, 500 + chance(r, 6000), a) != OUT_DONE ||
           a->seen.state == RUN_UNKNOWN)
        passes(r, chance(r, 2000));
    return a->seen.state != RUN_ABSENT;
}
static bool one_try(struct connector_rig *r, const struct run_key *k)
{
    enum contract_program what = chance(r, 2) ? PROGRAM_STAYS : PROGRAM_ENDS;
    struct asked a;
    enum outcome out = contract_submit_by(r, k, what, 100 + chance(r, 5000), &a);

    if (chance(r, 8) == 0) { /* the leader is another one */
        connector_rig_end(r);
        connector_rig_begin(r);
    }
    if (out == OUT_REJECTED)
        return false;
    bool there = settled(r, k, &a);
    if (out == OUT_DONE)
        assert_true(there); /* what was taken does not vanish */
    if (!there)
        return false;
    passes(r, chance(r, 4000));
    if (a.seen.state != RUN_ENDED && chance(r, 2)) {
        contract_ask_begin(r, &a, 200 + chance(r, 3000));
        r->ops->quiesce(r->connector, k, 10, 1000, &a.call);
        (void)contract_ask_end(r, &a);
    }
    while (contract_stop(r, k, &a) != OUT_DONE)
        passes(r, 50); /* out of reach, it may end at once */
    return a.seen.state == RUN_ENDED;
}
void connector_starts_each_try_once(void **state)
{
    struct connector_rig *r = *state;
    struct run_key k = contract_fresh_key(r);

    for (unsigned i = 0; i < TRIES; i++) {
        struct run_key now = k;
        if (one_try(r, &k)) {
            k.epoch++;
            k.try_ = 1;
        } else {
            k.try_++;
        }
        assert_true(r->starts(r, &now) <= 1);
        assert_false(r->alive(r, &now));
        unbroken(r);
    }
    passes(r, 30000); /* what is late comes now */
    assert_false(r->alive(r, &k));
    unbroken(r);
}

/* ---- a target that cannot refuse a key: what starts in time, or never ---- */
#define START_WITHIN_MS 20000

/* By whichever clock its time is over, and its target, asked after that, has it nowhere. */
static bool given_up(struct connector_rig *r, const struct run_key *k, struct asked *a)
{
    int64_t over = r->start_by_ms + CONTRACT_CLOCK_ERROR_MS;

    for (;;) {
        bool late = loop_wall_ms(r->loop) > over;
        bool told = contract_find(r, k, 8000, a) == OUT_DONE;
        if (told && a->seen.state != RUN_UNKNOWN)
            return false;
        if (told && late)
            return a->seen.unlisted;
        passes(r, 500);
    }
}
void connector_starts_in_time_or_never(void **state)
{
    struct connector_rig *r = *state;

    for (unsigned i = 0; i < 4; i++) {
        struct run_key k = contract_fresh_key(r);
        int64_t now = loop_wall_ms(r->loop);
        struct asked a;

        r->start_from_ms = now - CONTRACT_CLOCK_ERROR_MS;
        r->start_by_ms = now + START_WITHIN_MS;
        r->late(r, 1000 + chance(r, 60000));
        (void)contract_submit_by(r, &k, PROGRAM_STAYS, 3000, &a);
        if (given_up(r, &k, &a)) {
            passes(r, 70000); /* it comes now, and is not started */
            assert_int_equal(r->starts(r, &k), 0);
        } else if (a.seen.state != RUN_ENDED && a.seen.state != RUN_ABSENT) {
            while (contract_stop(r, &k, &a) != OUT_DONE || a.seen.state == RUN_UNKNOWN)
                passes(r, 50);
        }
        assert_true(r->starts(r, &k) <= 1);
        assert_false(r->alive(r, &k));
        unbroken(r);
    }
    r->start_from_ms = r->start_by_ms = 0;
}
