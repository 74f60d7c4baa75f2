/* See golden_commands.h. */
#include "tests/support/store/golden_commands.h"
#include "policy/policy.h"

/* ---- the commands, every field of them set ---- */
static struct namespace_ *namespace_body(struct arena *a)
{
    struct namespace_ *ns = arena_new(a, struct namespace_);
    struct kv *labels = arena_array(a, struct kv, 1);

    labels[0] = (struct kv){"team", "vision"};
    ns->metadata = arena_new(a, struct meta);
    ns->metadata->name = "golden";
    ns->metadata->uid = "7f1c";
    ns->metadata->labels = labels;
    ns->metadata->n_labels = 1;
    return ns;
}

static void head_make(union command *c, enum command_type type)
{
    *c = (union command){.head = {.type = type, .request_id = "id-1", .user = "alice"}};
}

static void write_make(union command *c, struct arena *a)
{
    head_make(c, CMD_WRITE);
    c->write = (struct write_cmd){
        .head = c->head, .revision = "0123abc", .apply = true, .if_absent = true, .n = 2};
    c->write.ops = arena_array(a, struct write_op, 2);
    kit_op(&c->write.ops[0], WRITE_CREATE, KIND_NAMESPACE, "", "golden", namespace_body(a));
    kit_op(&c->write.ops[1], WRITE_DELETE, KIND_WORKLOAD, "golden", "w", NULL);
    (void)snprintf(c->write.ops[1].uid, sizeof c->write.ops[1].uid, "9a2b");
    c->write.ops[1].rv = 0x1122334455667788;
}

static void request_make(union command *c, struct arena *a)
{
    write_make(c, a);
    c->head.type = CMD_REQUEST;
    c->request = (struct request_cmd){.write = c->write,
                                      .key = "i-0011",
                                      .fingerprint = "f00d",
                                      .old_id = "k-0022",
                                      .again = true,
                                      .part = true,
                                      .refusal = 5,
                                      .field = "spec.x",
                                      .text = "not found",
                                      .member = 3,
                                      .session = 0x123456789a,
                                      .number = 17,
                                      .floor = 12};
}

static void place_make(union command *c, struct arena *a)
{
    struct decision_spec *d = arena_new(a, struct decision_spec);
    struct placement *p = arena_new(a, struct placement);
    static int64_t gpus[] = {2, 5};

    head_make(c, CMD_PLACE);
    (void)snprintf(c->place.ns, sizeof c->place.ns, "golden");
    (void)snprintf(c->place.name, sizeof c->place.name, "w");
    (void)snprintf(c->place.uid, sizeof c->place.uid, "9a2b");
    (void)snprintf(c->place.queue, sizeof c->place.queue, "vision");
    c->place.epoch = 3;
    c->place.rv_read = 4711;
    c->place.decision = d;
    c->place.placement = p;
    d->outcome = "Placed";
    d->reason = "LowestCost";
    d->seed = -7;
    p->target = "fra";
    p->capacity = CAPACITY_SPOT;
    p->class_ = "h100";
    p->gpuHourPrice = 1.92;
    p->assignments = arena_array(a, struct assignment, 1);
    p->n_assignments = 1;
    p->assignments[0] = (struct assignment){
        .rank = 1, .node = "fra.n0", .gpus = gpus, .n_gpus = 2, .gpuMilli = 500, .mig = "3g.40gb"};
}

void run_make(union command *c, struct arena *a)
{
    struct run_checkpoint *ck = arena_new(a, struct run_checkpoint);
    struct lease_grant *grant = arena_new(a, struct lease_grant);

    head_make(c, CMD_RUN);
    (void)snprintf(c->run.ns, sizeof c->run.ns, "golden");
    (void)snprintf(c->run.name, sizeof c->run.name, "w");
    (void)snprintf(c->run.uid, sizeof c->run.uid, "9a2b");
    (void)snprintf(c->run.reason, sizeof c->run.reason, "Completed");
    (void)snprintf(c->run.message, sizeof c->run.message, "last words");
    c->run.epoch = 4;
    c->run.try_ = 2;
    c->run.step = STEP_ENDED;
    c->run.exit_code = -1;
    c->run.term_signal = 9;
    c->run.proof = PROOF_TREE_GONE;
    c->run.requeue = true;
    c->run.checkpoint = ck;
    c->run.grant = grant;
    *grant = (struct lease_grant){.lease = 300000, .grace = 30000, .kill = 5000, .number = 2};
    *ck = (struct run_checkpoint){.step = 41000, .digest = "sha256:00", .name = "w-4", .epoch = 4};
}

void facts_make(union command *c, struct arena *a)
{
    struct node *n = arena_new(a, struct node);

    head_make(c, CMD_FACTS);
    (void)snprintf(c->facts.target, sizeof c->facts.target, "fra");
    (void)snprintf(c->facts.session, sizeof c->facts.session, "s-1");
    (void)snprintf(c->facts.why, sizeof c->facts.why, "came back");
    c->facts.reach_told = c->facts.reachable = c->facts.complete = true;
    c->facts.nodes = n;
    c->facts.n = 1;
    n->metadata = arena_new(a, struct meta);
    n->metadata->name = "fra.n0";
    n->spec = arena_new(a, struct node_spec);
    n->spec->target = "fra";
    n->spec->cpu = 64000;
    n->spec->gpus = arena_new(a, struct gpu);
    n->spec->n_gpus = 1;
    *n->spec->gpus = (struct gpu){.index = 3, .class_ = "h100", .memory = (int64_t)80 << 30};
}

static void member_make(union command *c, struct arena *a)
{
    (void)a;
    head_make(c, CMD_MEMBER);
    c->member.member = (struct member_info){
        .id = 3, .address = "m3:7444", .api_address = "m3:7443", .name = "m3", .feature_level = 2};
    (void)snprintf(c->member.cluster_uid, sizeof c->member.cluster_uid, "cluster-1");
    c->member.remove = true;
}

static void remove_make(union command *c, struct arena *a)
{
    head_make(c, CMD_REMOVE);
    c->remove.ops = arena_array(a, struct write_op, 1);
    c->remove.n = 1;
    kit_op(&c->remove.ops[0], WRITE_DELETE, KIND_DECISION, "golden", "w-e1", NULL);
    (void)snprintf(c->remove.ops[0].uid, sizeof c->remove.ops[0].uid, "5c5c");
}

static void archive_make(union command *c, struct arena *a)
{
    head_make(c, CMD_ARCHIVE);
    c->archive.close_bytes = 4 << 20;
    c->archive.close_after_ms = 86400000;
    c->archive.ops = arena_array(a, struct write_op, 1);
    c->archive.n = 1;
    kit_op(&c->archive.ops[0], WRITE_DELETE, KIND_WORKLOAD, "golden", "w", NULL);
    (void)snprintf(c->archive.ops[0].uid, sizeof c->archive.ops[0].uid, "5d5d");
}

static void collect_make(union command *c, struct arena *a)
{
    (void)a;
    head_make(c, CMD_COLLECT);
    c->collect.objects = 256;
    c->collect.bytes = 1 << 20;
}

static void migrate_make(union command *c, struct arena *a)
{
    struct move_begin *b = arena_array(a, struct move_begin, 2);

    head_make(c, CMD_MIGRATE);
    c->migrate = (struct migrate_cmd){.head = c->head,
                                      .step = MOVE_BEGIN,
                                      .ns = "golden",
                                      .name = "w-m4",
                                      .uid = "77aa",
                                      .begins = b,
                                      .n = 2,
                                      .for_ns = "prod",
                                      .for_name = "big",
                                      .for_uid = "b1b1",
                                      .for_epoch = 1,
                                      .nominated = arena_new(a, struct placement),
                                      .outcome = MP_CANCELLED,
                                      .reason = "Preempted",
                                      .message = "makes room"};
    c->migrate.nominated->target = "fra";
    b[0] = (struct move_begin){.ns = "golden",
                               .workload = "w",
                               .uid = "9a2b",
                               .epoch = 4,
                               .cause = MOVE_PREEMPTION,
                               .placement = arena_new(a, struct placement),
                               .decision = arena_new(a, struct decision_spec),
                               .lost_gpu_seconds = 12.5,
                               .cost = 0.25,
                               .saving = -1};
    b[0].placement->target = "ber";
    b[0].decision->reason = "LowestCost";
    b[1] = (struct move_begin){
        .ns = "golden", .workload = "v", .uid = "9a2c", .epoch = 1, .cause = MOVE_RECLAIM};
}

static void recover_make(union command *c, struct arena *a)
{
    head_make(c, CMD_RECOVER);
    c->recover = (struct recover_cmd){.head = c->head,
                                      .step = RECOVER_ADOPT,
                                      .cluster_uid = "c1c1.2",
                                      .rv = 77,
                                      .ns = "golden",
                                      .name = "w",
                                      .uid = "5e5e",
                                      .epoch = 3,
                                      .try_ = 2,
                                      .ended = true,
                                      .requeue = true,
                                      .exit_code = 75,
                                      .term_signal = 15,
                                      .proof = PROOF_TREE_GONE,
                                      .reason = "Stopped",
                                      .message = "it saved",
                                      .checkpoint = arena_new(a, struct run_checkpoint),
                                      .ops = arena_array(a, struct write_op, 1),
                                      .n = 1};
    c->recover.checkpoint->step = 40;
    kit_op(&c->recover.ops[0], WRITE_DELETE, KIND_TARGET, "", "fra", NULL);
}

static void machine_make(union command *c, struct arena *a)
{
    head_make(c, CMD_MACHINE);
    c->machine = (struct machine_cmd){.head = c->head,
                                      .step = MACHINE_STEP_REFUSED,
                                      .target = "cloud",
                                      .target_uid = "7e7e",
                                      .pool = "warm",
                                      .number = 7,
                                      .name = "warm-7-3fa9c1d2e4b7",
                                      .uid = "6f6f",
                                      .reason = "capacity",
                                      .message = "none is left",
                                      .told = arena_new(a, struct machine_status),
                                      .pause = arena_new(a, struct target_pause),
                                      .ops = arena_array(a, struct write_op, 1),
                                      .n = 1};
    c->machine.told->phase = MACHINE_IS_JOINED;
    c->machine.told->price = 24.5;
    c->machine.pause->scope = BLAMES_ZONE;
    c->machine.pause->name = "a";
    kit_op(&c->machine.ops[0], WRITE_UPDATE, KIND_MACHINE, "", "warm-6-3fa9c1d2e4b7", NULL);
}

static void machine_check(const union command *c)
{
    const struct machine_cmd *m = &c->machine;

    assert_int_equal(m->step, MACHINE_STEP_REFUSED);
    assert_string_equal(m->target, "cloud");
    assert_string_equal(m->target_uid, "7e7e");
    assert_string_equal(m->pool, "warm");
    assert_int_equal(m->number, 7);
    assert_string_equal(m->name, "warm-7-3fa9c1d2e4b7");
    assert_string_equal(m->uid, "6f6f");
    assert_string_equal(m->reason, "capacity");
    assert_string_equal(m->message, "none is left");
    assert_int_equal(m->told->phase, MACHINE_IS_JOINED);
    assert_true(m->told->price == 24.5);
    assert_int_equal(m->pause->scope, BLAMES_ZONE);
    assert_string_equal(m->pause->name, "a");
    assert_int_equal(m->n, 1);
    assert_string_equal(m->ops[0].name, "warm-6-3fa9c1d2e4b7");
}

/* ---- the same, field by field ---- */
static void write_check(const union command *c)
{
    const struct write_op *op = c->write.ops;

    assert_string_equal(c->write.revision, "0123abc");
    assert_true(c->write.apply && c->write.if_absent);
    assert_int_equal(c->write.n, 2);
    assert_int_equal(op[0].verb, WRITE_CREATE);
    assert_int_equal(op[0].kind, KIND_NAMESPACE);
    assert_string_equal(op[0].ns, "");
    assert_string_equal(op[0].name, "golden");
    assert_string_equal(op[0].object->meta->name, "golden");
    assert_string_equal(op[0].object->meta->uid, "7f1c");
    assert_string_equal(label_get(op[0].object->meta->labels, op[0].object->meta->n_labels, "team"),
                        "vision");
    assert_int_equal(op[1].verb, WRITE_DELETE);
    assert_int_equal(op[1].kind, KIND_WORKLOAD);
    assert_string_equal(op[1].ns, "golden");
    assert_string_equal(op[1].name, "w");
    assert_string_equal(op[1].uid, "9a2b");
    assert_true(op[1].rv == 0x1122334455667788);
    assert_null(op[1].object);
}

static void request_check(const union command *c)
{
    const struct request_cmd *q = &c->request;

    write_check(c);
    assert_string_equal(q->key, "i-0011");
    assert_string_equal(q->fingerprint, "f00d");
    assert_string_equal(q->old_id, "k-0022");
    assert_true(q->again && q->part);
    assert_int_equal(q->refusal, 5);
    assert_string_equal(q->field, "spec.x");
    assert_string_equal(q->text, "not found");
    assert_int_equal(q->member, 3);
    assert_true(q->session == 0x123456789a);
    assert_int_equal(q->number, 17);
    assert_int_equal(q->floor, 12);
}

static void place_check(const union command *c)
{
    const struct decision_spec *d = c->place.decision;
    const struct placement *p = c->place.placement;

    assert_string_equal(c->place.ns, "golden");
    assert_string_equal(c->place.name, "w");
    assert_string_equal(c->place.uid, "9a2b");
    assert_string_equal(c->place.queue, "vision");
    assert_int_equal(c->place.epoch, 3);
    assert_int_equal(c->place.rv_read, 4711);
    assert_string_equal(d->outcome, "Placed");
    assert_string_equal(d->reason, "LowestCost");
    assert_int_equal(d->seed, -7);
    assert_string_equal(p->target, "fra");
    assert_int_equal(p->capacity, CAPACITY_SPOT);
    assert_string_equal(p->class_, "h100");
    assert_true(p->gpuHourPrice == 1.92);
    assert_int_equal(p->n_assignments, 1);
    assert_int_equal(p->assignments[0].rank, 1);
    assert_string_equal(p->assignments[0].node, "fra.n0");
    assert_int_equal(p->assignments[0].n_gpus, 2);
    assert_int_equal(p->assignments[0].gpus[1], 5);
    assert_int_equal(p->assignments[0].gpuMilli, 500);
    assert_string_equal(p->assignments[0].mig, "3g.40gb");
}

static void run_check(const union command *c)
{
    assert_string_equal(c->run.ns, "golden");
    assert_string_equal(c->run.name, "w");
    assert_string_equal(c->run.uid, "9a2b");
    assert_string_equal(c->run.reason, "Completed");
    assert_string_equal(c->run.message, "last words");
    assert_int_equal(c->run.epoch, 4);
    assert_int_equal(c->run.try_, 2);
    assert_int_equal(c->run.step, STEP_ENDED);
    assert_int_equal(c->run.exit_code, -1);
    assert_int_equal(c->run.term_signal, 9);
    assert_int_equal(c->run.proof, PROOF_TREE_GONE);
    assert_true(c->run.requeue);
    assert_int_equal(c->run.checkpoint->step, 41000);
    assert_string_equal(c->run.checkpoint->digest, "sha256:00");
    assert_string_equal(c->run.checkpoint->name, "w-4");
    assert_int_equal(c->run.checkpoint->epoch, 4);
    assert_int_equal(c->run.grant->lease, 300000);
    assert_int_equal(c->run.grant->grace, 30000);
    assert_int_equal(c->run.grant->kill, 5000);
    assert_int_equal(c->run.grant->number, 2);
}

void facts_check(const union command *c)
{
    const struct node *n = c->facts.nodes;

    assert_string_equal(c->facts.target, "fra");
    assert_string_equal(c->facts.session, "s-1");
    assert_string_equal(c->facts.why, "came back");
    assert_true(c->facts.reach_told && c->facts.reachable && c->facts.complete);
    assert_int_equal(c->facts.n, 1);
    assert_string_equal(n->metadata->name, "fra.n0");
    assert_string_equal(n->spec->target, "fra");
    assert_int_equal(n->spec->cpu, 64000);
    assert_int_equal(n->spec->n_gpus, 1);
    assert_int_equal(n->spec->gpus[0].index, 3);
    assert_string_equal(n->spec->gpus[0].class_, "h100");
    assert_true(n->spec->gpus[0].memory == (int64_t)80 << 30);
}

static void member_check(const union command *c)
{
    assert_int_equal(c->member.member.id, 3);
    assert_string_equal(c->member.member.address, "m3:7444");
    assert_string_equal(c->member.member.api_address, "m3:7443");
    assert_string_equal(c->member.member.name, "m3");
    assert_int_equal(c->member.member.feature_level, 2);
    assert_string_equal(c->member.cluster_uid, "cluster-1");
    assert_true(c->member.remove);
}

static void remove_check(const union command *c)
{
    assert_int_equal(c->remove.n, 1);
    assert_int_equal(c->remove.ops[0].verb, WRITE_DELETE);
    assert_int_equal(c->remove.ops[0].kind, KIND_DECISION);
    assert_string_equal(c->remove.ops[0].ns, "golden");
    assert_string_equal(c->remove.ops[0].name, "w-e1");
    assert_string_equal(c->remove.ops[0].uid, "5c5c");
}

static void collect_check(const union command *c)
{
    assert_int_equal(c->collect.objects, 256);
    assert_int_equal(c->collect.bytes, 1 << 20);
}

static void migrate_check(const union command *c)
{
    const struct migrate_cmd *m = &c->migrate;

    assert_int_equal(m->step, MOVE_BEGIN);
    assert_string_equal(m->ns, "golden");
    assert_string_equal(m->name, "w-m4");
    assert_string_equal(m->uid, "77aa");
    assert_string_equal(m->for_ns, "prod");
    assert_string_equal(m->for_name, "big");
    assert_string_equal(m->for_uid, "b1b1");
    assert_int_equal(m->for_epoch, 1);
    assert_string_equal(m->nominated->target, "fra");
    assert_int_equal(m->outcome, MP_CANCELLED);
    assert_string_equal(m->reason, "Preempted");
    assert_string_equal(m->message, "makes room");
    assert_int_equal(m->n, 2);
    assert_string_equal(m->begins[0].ns, "golden");
    assert_string_equal(m->begins[0].workload, "w");
    assert_string_equal(m->begins[0].uid, "9a2b");
    assert_int_equal(m->begins[0].epoch, 4);
    assert_int_equal(m->begins[0].cause, MOVE_PREEMPTION);
    assert_string_equal(m->begins[0].placement->target, "ber");
    assert_string_equal(m->begins[0].decision->reason, "LowestCost");
    assert_true(m->begins[0].lost_gpu_seconds == 12.5 && m->begins[0].cost == 0.25 &&
                m->begins[0].saving == -1);
    assert_string_equal(m->begins[1].workload, "v");
    assert_int_equal(m->begins[1].cause, MOVE_RECLAIM);
    assert_null(m->begins[1].placement);
    assert_null(m->begins[1].decision);
}

static void archive_cmd_check(const union command *c)
{
    assert_int_equal(c->archive.close_bytes, 4 << 20);
    assert_int_equal(c->archive.close_after_ms, 86400000);
    assert_int_equal(c->archive.n, 1);
    assert_int_equal(c->archive.ops[0].kind, KIND_WORKLOAD);
    assert_string_equal(c->archive.ops[0].uid, "5d5d");
}
static void recover_check(const union command *c)
{
    const struct recover_cmd *r = &c->recover;

    assert_int_equal(r->step, RECOVER_ADOPT);
    assert_string_equal(r->cluster_uid, "c1c1.2");
    assert_int_equal(r->rv, 77);
    assert_string_equal(r->ns, "golden");
    assert_string_equal(r->name, "w");
    assert_string_equal(r->uid, "5e5e");
    assert_true(r->epoch == 3 && r->try_ == 2 && r->ended && r->requeue);
    assert_true(r->exit_code == 75 && r->term_signal == 15 && r->proof == PROOF_TREE_GONE);
    assert_string_equal(r->reason, "Stopped");
    assert_string_equal(r->message, "it saved");
    assert_int_equal(r->checkpoint->step, 40);
    assert_int_equal(r->n, 1);
    assert_int_equal(r->ops[0].kind, KIND_TARGET);
    assert_string_equal(r->ops[0].name, "fra");
}
static void array_cmd_make(union command *c, struct arena *a)
{
    (void)a;
    head_make(c, CMD_ARRAY);
    (void)snprintf(c->array.ns, sizeof c->array.ns, "golden");
    (void)snprintf(c->array.name, sizeof c->array.name, "sweep");
    (void)snprintf(c->array.uid, sizeof c->array.uid, "5e5e");
    c->array.objects = 64;
}
static void array_cmd_check(const union command *c)
{
    assert_string_equal(c->array.ns, "golden");
    assert_string_equal(c->array.name, "sweep");
    assert_string_equal(c->array.uid, "5e5e");
    assert_int_equal(c->array.objects, 64);
}

/* From FEATURE_GRANTS on: which agent. */
static void run_agent_make(union command *c, struct arena *a)
{
    run_make(c, a);
    c->run.step = STEP_DISPATCH;
    (void)snprintf(c->run.agent, sizeof c->run.agent, "00aa11bb");
}
static void run_agent_check(const union command *c)
{
    assert_int_equal(c->run.step, STEP_DISPATCH);
    assert_string_equal(c->run.agent, "00aa11bb");
}
/* The target refused: what it blames. */
static void run_pause_make(union command *c, struct arena *a)
{
    run_make(c, a);
    c->run.step = STEP_ABSENT;
    c->run.pause = arena_new(a, struct target_pause);
    *c->run.pause = (struct target_pause){.scope = BLAMES_ZONE,
                                          .name = "eu-1a",
                                          .refusal = REFUSED_CAPACITY,
                                          .message = "none left",
                                          .since = 1000,
                                          .until = 3000};
}
static void run_pause_check(const union command *c)
{
    assert_int_equal(c->run.step, STEP_ABSENT);
    assert_int_equal(c->run.pause->scope, BLAMES_ZONE);
    assert_string_equal(c->run.pause->name, "eu-1a");
    assert_int_equal(c->run.pause->refusal, REFUSED_CAPACITY);
    assert_string_equal(c->run.pause->message, "none left");
    assert_int_equal(policy_pause_length(c->run.pause), 2000);
}
/* In the target's own queue, and where the target has put it. */
static void run_pending_make(union command *c, struct arena *a)
{
    run_make(c, a);
    c->run.step = STEP_PENDING;
    c->run.pending = arena_new(a, struct run_pending);
    *c->run.pending = (struct run_pending){
        .reason = "", .message = "", .position = 4, .estimate = TIME_MS + 60000};
    c->run.seats = arena_new(a, struct placement);
    *c->run.seats = (struct placement){.target = "fra", .class_ = "h100", .gpus = 2000};
}
static void run_pending_check(const union command *c)
{
    assert_int_equal(c->run.step, STEP_PENDING);
    assert_int_equal(c->run.pending->position, 4);
    assert_int_equal(c->run.pending->estimate, TIME_MS + 60000);
    assert_string_equal(c->run.seats->target, "fra");
    assert_int_equal(c->run.seats->gpus, 2000);
}
const struct golden_command golden_commands[GOLDEN_COMMANDS] = {
    {"write", CMD_WRITE, write_make, write_check}, {"place", CMD_PLACE, place_make, place_check},
    {"run", CMD_RUN, run_make, run_check}, {"facts", CMD_FACTS, facts_make, facts_check},
    {"member", CMD_MEMBER, member_make, member_check},
    {"remove", CMD_REMOVE, remove_make, remove_check},
    {"migrate", CMD_MIGRATE, migrate_make, migrate_check},
    {"archive", CMD_ARCHIVE, archive_make, archive_cmd_check},
    {"request", CMD_REQUEST, request_make, request_check},
    {"recover", CMD_RECOVER, recover_make, recover_check},
    {"run-agent", CMD_RUN, run_agent_make, run_agent_check},
    {"facts-agent", CMD_FACTS, facts_agent_make, facts_agent_check},
    {"facts-part", CMD_FACTS, facts_part_make, facts_part_check},
    {"facts-denies", CMD_FACTS, facts_denies_make, facts_denies_check},
    {"collect", CMD_COLLECT, collect_make, collect_check},
    {"array", CMD_ARRAY, array_cmd_make, array_cmd_check},
    {"run-pause", CMD_RUN, run_pause_make, run_pause_check},
    {"run-pending", CMD_RUN, run_pending_make, run_pending_check},
    {"machine", CMD_MACHINE, machine_make, machine_check},
    {"facts-counted", CMD_FACTS, facts_counted_make, facts_counted_check},
    {"place-counted", CMD_PLACE, place_counted_make, place_counted_check},
    {"facts-refused", CMD_FACTS, facts_refused_make, facts_refused_check},
    {"facts-unread", CMD_FACTS, facts_unread_make, facts_unread_check},
    {"facts-slices", CMD_FACTS, facts_slices_make, facts_slices_check},
    {"place-slices", CMD_PLACE, place_slices_make, place_slices_check},
    {"run-use", CMD_RUN, run_use_make, run_use_check}};
