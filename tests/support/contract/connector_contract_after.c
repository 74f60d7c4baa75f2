/* The part of the contract that is about what comes after a run: sweeps, and the end in the log. */
#include "tests/support/contract/connector_contract_internal.h"

#include <string.h>

struct living {
    struct connector_rig *r;
    struct run_key key;
};
static bool is_dead(void *arg)
{
    const struct living *x = arg;

    return !x->r->alive(x->r, &x->key);
}
static enum run_verdict all_but_one(const struct run_listed *l, void *arg)
{
    return run_key_same(&l->seen.key, arg) ? RUN_KEPT : RUN_LET_GO;
}
void connector_sweeps_what_nobody_owns(void **state)
{
    struct connector_rig *r = *state;
    struct asked a;
    struct run_key mine = contract_running(r, &a), orphan = contract_running(r, &a);
    struct living x = {.r = r, .key = orphan};

    contract_ask_begin(r, &a, CALL_MS);
    r->ops->sweep(r->connector, all_but_one, &mine, &a.call);
    assert_int_equal(a.done, 0);
    assert_int_equal(contract_ask_end(r, &a), OUT_DONE);
    assert_true(connector_until(r, is_dead, &x, PATIENCE_MS));
    assert_true(r->alive(r, &mine));
    assert_int_equal(contract_stop(r, &mine, &a), OUT_DONE);
}

static enum outcome finalize(struct connector_rig *r, const struct run_key *k, struct asked *a)
{
    unsigned lost = 0;

    do {
        assert_true(lost++ < CONTRACT_LOST_MAX);
        contract_ask_begin(r, a, CALL_MS);
        r->ops->finalize(r->connector, k, &a->call);
        assert_int_equal(a->done, 0);
    } while (contract_was_lost(r, contract_ask_end(r, a)));
    return a->out;
}
void connector_finalizes_what_has_ended(void **state)
{
    struct connector_rig *r = *state;
    struct asked a;
    struct run_key k = contract_fresh_key(r), lives, never;

    assert_int_equal(contract_submit(r, &k, PROGRAM_ENDS, &a), OUT_DONE);
    (void)contract_await_run(r, &k, RUN_ENDED);
    assert_int_equal(finalize(r, &k, &a), OUT_DONE);
    assert_int_equal(finalize(r, &k, &a), OUT_DONE); /* as often as it is asked */
    connector_rig_end(r);
    connector_rig_begin(r);
    assert_int_equal(finalize(r, &k, &a), OUT_DONE);
    (void)contract_submit(r, &k, PROGRAM_ENDS, &a); /* an end, or a refusal: never another life */
    assert_true(a.out == OUT_REJECTED || (a.has && a.seen.state == RUN_ENDED));
    assert_int_equal(r->starts(r, &k), 1);
    lives = contract_running(r, &a);
    (void)finalize(r, &lives, &a); /* what has not ended stays as it is */
    struct living x = {.r = r, .key = lives};
    assert_false(connector_until(r, is_dead, &x, 500));
    assert_int_equal(contract_stop(r, &lives, &a), OUT_DONE);
    assert_int_equal(a.seen.state, RUN_ENDED);
    never = contract_fresh_key(r);
    assert_int_equal(finalize(r, &never, &a), OUT_DONE); /* it promises nothing */
    assert_int_equal(contract_submit(r, &never, PROGRAM_ENDS, &a), OUT_DONE);
    (void)contract_await_run(r, &never, RUN_ENDED);
}
