/* The part of the contract that is about checkpoints: reported, resumed from, refused, staged. */
#include "tests/support/contract/connector_contract_internal.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

struct step_wanted {
    struct connector_rig *r;
    struct run_key key;
    int64_t step;
};
static bool has_step(void *arg)
{
    struct step_wanted *x = arg;
    const struct observation *o = contract_seen_of(x->r, &x->key);

    return o && o->checkpoint.present && o->checkpoint.step == x->step;
}
static void checkpoint_is(const struct run_checkpoint_report *c, int64_t step)
{
    assert_true(c->present);
    assert_int_equal(c->step, step);
    assert_int_equal(c->ranks, 1);
    assert_true(c->bytes > 0 && c->writeTime >= 1);
    assert_int_equal(strlen(c->digest), 7 + 64);
    assert_int_equal(strncmp(c->digest, "sha256:", 7), 0);
    assert_true(c->path[0] != 0);
}
/* Saves at from + 10 and, stopped by the signal, at from + 20. */
static struct run_checkpoint_report saved_by(struct connector_rig *r, const struct run_key *k,
                                             int64_t from)
{
    struct step_wanted x = {r, *k, from + 10};
    struct asked a;

    assert_int_equal(contract_submit(r, k, PROGRAM_SAVES, &a), OUT_DONE);
    assert_true(connector_until(r, has_step, &x, PATIENCE_MS));
    checkpoint_is(&contract_seen_of(r, k)->checkpoint, from + 10);
    (void)contract_await_run(r, k, RUN_RUNNING); /* told while it runs, or a moment ahead of that */
    checkpoint_is(&contract_seen_of(r, k)->checkpoint, from + 10);
    contract_ask_begin(r, &a, CALL_MS);
    r->ops->quiesce(r->connector, k, SIGUSR1, 5000, &a.call);
    assert_int_equal(contract_ask_end(r, &a), OUT_DONE);
    const struct observation *o = contract_await_run(r, k, RUN_ENDED);
    assert_int_equal(o->exit_code, PROGRAM_STAYS_EXIT);
    checkpoint_is(&o->checkpoint, from + 20); /* the end carries the last one */
    return o->checkpoint;
}

void connector_reports_checkpoints(void **state)
{
    struct connector_rig *r = *state;
    struct run_key k = contract_fresh_key(r);
    struct asked a;
    struct run_checkpoint_report last = saved_by(r, &k, 0);

    assert_int_equal(r->resumed(r, &k), 0);
    assert_int_equal(contract_find(r, &k, CALL_MS, &a), OUT_DONE); /* asked again: the same */
    checkpoint_is(&a.seen.checkpoint, 20);
    assert_string_equal(a.seen.checkpoint.digest, last.digest);
    assert_string_equal(a.seen.checkpoint.path, last.path);
}

void connector_resumes_what_was_saved(void **state)
{
    struct connector_rig *r = *state;
    struct run_key k = contract_fresh_key(r);
    struct run_checkpoint_report first = saved_by(r, &k, 0), second;

    k.epoch = 2;
    r->resume_path = first.path;
    r->resume_digest = first.digest;
    second = saved_by(r, &k, 20);
    assert_int_equal(r->resumed(r, &k), 20);
    assert_string_not_equal(second.path, first.path); /* the epoch is in it */
}

void connector_starts_nothing_from_a_bad_one(void **state)
{
    struct connector_rig *r = *state;
    struct run_key k = contract_fresh_key(r), other;
    struct run_checkpoint_report good = saved_by(r, &k, 0);
    char wrong[80];
    struct asked a;

    memcpy(wrong, good.digest, sizeof wrong);
    wrong[10] = wrong[10] == '0' ? '1' : '0';
    k.epoch = 2;
    r->resume_path = good.path;
    r->resume_digest = wrong;
    assert_int_equal(contract_submit(r, &k, PROGRAM_SAVES, &a), OUT_DONE);
    const struct observation *o = contract_await_run(r, &k, RUN_ABSENT);
    assert_string_equal(o->reason, "CheckpointAltered");
    assert_true(strstr(o->message, good.path) != NULL);
    assert_int_equal(o->proof, PROOF_NEVER_STARTED);
    (void)contract_submit(r, &k, PROGRAM_SAVES, &a); /* as with all that is absent */
    assert_true(a.out == OUT_REJECTED || (a.has && a.seen.state == RUN_ABSENT));
    assert_int_equal(contract_find(r, &k, CALL_MS, &a), OUT_DONE);
    assert_int_equal(a.seen.state, RUN_ABSENT);
    assert_string_equal(a.seen.reason, "CheckpointAltered");
    assert_int_equal(r->starts(r, &k), 0);
    other = contract_fresh_key(r); /* somebody else's */
    r->resume_path = good.path;
    r->resume_digest = good.digest;
    assert_int_equal(contract_submit(r, &other, PROGRAM_SAVES, &a), OUT_DONE);
    assert_string_equal(contract_await_run(r, &other, RUN_ABSENT)->reason, "CheckpointForeign");
    assert_int_equal(r->starts(r, &other), 0);
    k.try_ = 2; /* the next try, from what is good */
    assert_int_equal(saved_by(r, &k, 20).step, 40);
}

static enum outcome stage(struct connector_rig *r, const struct run_key *k, const char *path,
                          const char *digest, struct asked *a)
{
    struct run_order o = {.checkpoint_dir = "", .resume_path = path, .resume_digest = digest};

    r->order(r, k, PROGRAM_SAVES, &o);
    o.key = *k;
    o.resume_path = path;
    o.resume_digest = digest;
    contract_ask_begin(r, a, CALL_MS);
    r->ops->stage(r->connector, &o, &a->call);
    assert_int_equal(a->done, 0);
    return contract_ask_end(r, a);
}

void connector_stages_without_starting(void **state)
{
    struct connector_rig *r = *state;
    struct run_key k = contract_fresh_key(r), other;
    struct run_checkpoint_report good = saved_by(r, &k, 0);
    char wrong[80], gone[1030];
    struct asked a;

    memcpy(wrong, good.digest, sizeof wrong);
    wrong[70] = wrong[70] == '0' ? '1' : '0';
    (void)snprintf(gone, sizeof gone, "%.1000s.gone", good.path);
    k.epoch = 2;
    for (int i = 0; i < 2; i++) { /* asked again: the same */
        assert_int_equal(stage(r, &k, good.path, good.digest, &a), OUT_DONE);
        assert_int_equal(stage(r, &k, good.path, wrong, &a), OUT_REJECTED);
        assert_int_equal(a.err.code, E_CHECKPOINT);
        assert_string_equal(a.seen.reason, "CheckpointAltered");
        assert_int_equal(stage(r, &k, gone, good.digest, &a), OUT_REJECTED);
        assert_string_equal(a.seen.reason, "CheckpointMissing");
    }
    other = contract_fresh_key(r);
    assert_int_equal(stage(r, &other, good.path, good.digest, &a), OUT_REJECTED);
    assert_string_equal(a.seen.reason, "CheckpointForeign");
    assert_int_equal(r->starts(r, &k), 0);
    assert_int_equal(contract_find(r, &k, CALL_MS, &a), OUT_DONE);
    assert_int_equal(a.seen.state, RUN_ABSENT); /* nothing was made under this key */
}
