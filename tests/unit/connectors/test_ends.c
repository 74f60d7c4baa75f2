/* The table of why runs end: each row holds together, and each list that once decided by a reason
 * has the members that it had. */
#include "api/schema/schema.h"
#include "connectors/ends.h"
#include "policy/policy.h"
#include "tests/support/unit.h"

#include <ctype.h>
#include <string.h>

static void test_rows(void **state)
{
    (void)state;
    for (int i = END_OTHER + 1; i < END_NR; i++) {
        const char *text = end_text((enum end)i);
        const struct end_row *r = end_row(text);
        assert_string_equal(r->text, text); /* the first of that name: no other has it */
        assert_true(r != end_row(""));
        for (int k = i + 1; k < END_NR; k++)
            assert_string_not_equal(text, end_text((enum end)k));
        assert_true(isupper((unsigned char)*text) && strlen(text) < 64);
        assert_int_equal(strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"),
                         strlen(text));
        bool failed_there = r->began == END_RAN && r->fault == FAULT_TARGET;
        if (failed_there != (r->again == AGAIN_FREE))
            fail_msg("%s: what a target failed is free, and nothing else", text);
        if (r->again == AGAIN_COUNTED && r->fault != FAULT_WORKLOAD && r->fault != FAULT_NONE)
            fail_msg("%s: counted, and another's fault", text);
        if (r->again == AGAIN_HELD && (r->began != END_NEVER || r->fault != FAULT_WORKLOAD))
            fail_msg("%s: held for what it did not do itself", text);
        bool asked_store = r->checkpoint == CHECKPOINT_REFUSED ||
                           r->checkpoint == CHECKPOINT_MISFIT ||
                           r->checkpoint == CHECKPOINT_UNREACHED;
        if (asked_store && (r->began != END_NEVER || r->again != AGAIN_STEP))
            fail_msg("%s: a verdict on what it resumes from comes before it begins", text);
        if (r->checkpoint == CHECKPOINT_UNSEALED && !failed_there)
            fail_msg("%s: a runner that lived seals by itself", text);
    }
}

/* Each with exactly these, as they were when the lists stood apart; TargetRemoved is new to all but
 * the ledger. */
static void members(const char *what, bool (*is)(const struct end_row *r), const char *const *v)
{
    unsigned n = 0;

    for (; *v; v++, n++)
        if (!is(end_row(*v)))
            fail_msg("%s: %s is not in it any more", what, *v);
    for (int i = 0; i < END_NR; i++)
        if (is(end_row(end_text((enum end)i))))
            n--;
    if (n)
        fail_msg("%s: it has members that are not told here", what);
}

static bool of_target(const struct end_row *r)
{
    return end_by_target(&(struct run_end){.reason = r->text, .proof = PROOF_TREE_GONE});
}

static bool is_free(const struct end_row *r)
{
    return r->again == AGAIN_FREE;
}

static bool is_held(const struct end_row *r)
{
    return r->again == AGAIN_HELD;
}

static bool is_refused(const struct end_row *r)
{
    return r->checkpoint == CHECKPOINT_REFUSED;
}

static bool is_misfit(const struct end_row *r)
{
    return r->checkpoint == CHECKPOINT_MISFIT;
}

static bool is_unreached(const struct end_row *r)
{
    return r->checkpoint == CHECKPOINT_UNREACHED;
}

static bool is_unsealed(const struct end_row *r)
{
    return r->checkpoint == CHECKPOINT_UNSEALED;
}

static bool is_unstored(const struct end_row *r)
{
    return r->checkpoint == CHECKPOINT_UNSTORED;
}

#define MEMBERS(is, ...) members(#is, is, (const char *const[]){__VA_ARGS__, NULL})
static void test_members(void **state)
{
    (void)state;
    MEMBERS(of_target, "RunnerKilled", "LeaseLost", "MachineRestarted", "StartFailed",
            "TargetRemoved");
    MEMBERS(is_free, "RunnerKilled", "LeaseLost", "MachineRestarted", "StartFailed",
            "TargetRemoved");
    MEMBERS(is_held, "SecretMissing", "RunDenied");
    MEMBERS(is_refused, "CheckpointMissing", "CheckpointTorn", "CheckpointAltered",
            "CheckpointForeign");
    MEMBERS(is_misfit, "CheckpointRanks");
    MEMBERS(is_unreached, "StoreUnreachable");
    MEMBERS(is_unsealed, "RunnerKilled", "MachineRestarted");
    MEMBERS(is_unstored, "NotSealed");
    /* A decision refuses such a place by the same word. */
    assert_string_equal(end_text(END_CHECKPOINT_RANKS), reason_text(REASON_CHECKPOINT_RANKS));
}

/* What a connector says and this version does not know is judged in one way, whatever it begins
 * with. */
static void test_unknown(void **state)
{
    static const char *const unknown[] = {
        "",      "ImagePullBackOff", "CheckpointOfTomorrow", "CheckpointRequire", "runnerkilled",
        "Failed"};

    (void)state;
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        const struct end_row *r = end_row(unknown[i]);
        assert_true(r == end_row("")); /* one row for all */
        assert_int_equal(r->began, END_RAN);
        assert_int_equal(r->fault, FAULT_WORKLOAD);
        assert_int_equal(r->again, AGAIN_COUNTED);
        assert_int_equal(r->checkpoint, CHECKPOINT_KEPT);
    }
    assert_string_equal(end_text((enum end)(END_NR + 7)), "");
}

static void test_proof(void **state)
{
    static const struct {
        enum proof proof;
        const char *reason;
        bool target;
    } v[] = {
        {PROOF_LEASE_EXPIRED, "LeaseOver", true},  {PROOF_OPERATOR, "Fenced", true},
        {PROOF_LEASE_EXPIRED, "Error", true},      {PROOF_TREE_GONE, "Error", false},
        {PROOF_TREE_SEARCHED, "LeaseLost", true},  {PROOF_NEVER_STARTED, "TargetRefused", false},
        {PROOF_TREE_GONE, "AgentReplaced", false}, {PROOF_TREE_GONE, "", false}};

    (void)state;
    for (size_t i = 0; i < sizeof v / sizeof *v; i++)
        assert_int_equal(
            end_by_target(&(struct run_end){.proof = v[i].proof, .reason = v[i].reason}),
            v[i].target);
}

static void test_says_saved(void **state)
{
    (void)state;
    assert_true(end_says_saved(RUN_EXIT_SAVED, 0, ""));
    assert_true(end_says_saved(1, 0, "SavedAndStopped"));
    assert_false(end_says_saved(1, 0, ""));
    assert_false(end_says_saved(0, 0, ""));
    assert_false(end_says_saved(RUN_EXIT_SAVED, 9, ""));
    assert_false(end_says_saved(1, 0, "Error"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows), cmocka_unit_test(test_says_saved),
        cmocka_unit_test(test_members), cmocka_unit_test(test_unknown),
        cmocka_unit_test(test_proof)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
