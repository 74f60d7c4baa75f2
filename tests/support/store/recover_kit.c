/* See recover_kit.h. */
#include "tests/support/store/recover_kit.h"

union command kit_recover_step(enum recover_step s)
{
    return (union command){.recover = {.head = {.type = CMD_RECOVER, .user = "alice"}, .step = s}};
}

struct result kit_recover_begin(struct kit *k, const char *uid, uint64_t rv)
{
    union command c = kit_recover_step(RECOVER_BEGIN);

    str_copy(c.recover.cluster_uid, sizeof c.recover.cluster_uid, uid);
    c.recover.rv = rv;
    return kit_apply(k, &c);
}

struct result kit_lost(struct kit *k, const char *name)
{
    union command c = kit_recover_step(RECOVER_LOST);

    str_copy(c.recover.ns, sizeof c.recover.ns, k->ns);
    str_copy(c.recover.name, sizeof c.recover.name, name);
    str_copy(c.recover.uid, sizeof c.recover.uid, kit_get(k, name)->meta->uid);
    return kit_apply(k, &c);
}

struct result kit_settle(struct kit *k, const char *target)
{
    union command c = kit_recover_step(RECOVER_SETTLE);
    struct write_op op;

    kit_op(&op, WRITE_DELETE, KIND_TARGET, "", target, NULL);
    c.recover.ops = &op;
    c.recover.n = *target != 0;
    return kit_apply(k, &c);
}

struct result kit_adopt(struct kit *k, const struct object *doc, int64_t epoch, int64_t try_,
                        bool ended, int64_t exit_code)
{
    union command c = kit_recover_step(RECOVER_ADOPT);
    struct write_op op = {
        .verb = WRITE_CREATE, .kind = KIND_WORKLOAD, .object = (struct object *)(uintptr_t)doc};

    c.recover.ops = &op;
    c.recover.n = 1;
    c.recover.epoch = epoch;
    c.recover.try_ = try_;
    c.recover.ended = ended;
    c.recover.exit_code = exit_code;
    c.recover.proof = PROOF_TREE_GONE;
    str_copy(c.recover.uid, sizeof c.recover.uid, doc->meta->uid);
    str_copy(op.ns, sizeof op.ns, doc->meta->namespace_);
    str_copy(op.name, sizeof op.name, doc->meta->name);
    return kit_apply(k, &c);
}

const struct object *kit_carried(struct kit *from, const char *name, int64_t device)
{
    assert_int_equal(kit_workload(from, from->ns, name, 1, 1).code, 0);
    assert_int_equal(kit_place(from, name, "fra.n0", device, 1, 1).code, 0);
    assert_int_equal(kit_run(from, name, 1, 1, STEP_DISPATCH).code, 0);
    return kit_get(from, name);
}
