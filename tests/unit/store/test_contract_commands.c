/* The contract of the log: one command of every type, one entry and one small snapshot as bytes
 * (tests/golden/commands.hex). Members of different versions read each other's logs, and a member
 * reads its own after an upgrade: bytes that were once written mean the same for ever.
 *
 * To extend: a new command gets a line of its own. When a new field changes an encoding, keep the
 * old line under NAME@1 (NAME@2, …: it is still decoded, never encoded again), then write the file
 * anew with COMMANDS_GOLDEN_WRITE=1, which keeps those lines. Any other difference is a fault of
 * the change. */
#include "controlplane/store/store_internal.h"
#include "tests/unit/store/store_kit.h"

#include <errno.h>

#define GOLDEN "tests/golden/commands.hex"
#define TIME_MS 1795234567890 /* 2026-11-21 */

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

static void run_make(union command *c, struct arena *a)
{
    struct run_checkpoint *ck = arena_new(a, struct run_checkpoint);

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
    *ck = (struct run_checkpoint){.step = 41000, .digest = "sha256:00", .name = "w-4", .epoch = 4};
}

static void facts_make(union command *c, struct arena *a)
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
}

static void facts_check(const union command *c)
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

static const struct golden_command {
    const char *name;
    enum command_type type;
    void (*make)(union command *c, struct arena *a);
    void (*check)(const union command *c);
} table[] = {{"write", CMD_WRITE, write_make, write_check},
             {"place", CMD_PLACE, place_make, place_check},
             {"run", CMD_RUN, run_make, run_check},
             {"facts", CMD_FACTS, facts_make, facts_check},
             {"member", CMD_MEMBER, member_make, member_check},
             {"remove", CMD_REMOVE, remove_make, remove_check},
             {"migrate", CMD_MIGRATE, migrate_make, migrate_check}};

static void command_bytes(const struct golden_command *g, struct buf *out)
{
    union command c;
    AUTO_ARENA a = arena_create(0);

    g->make(&c, a);
    command_encode(&c, out);
    command_release(&c);
}

/* An entry of the commands that hold on the empty state, and the state after it. */
static void entry_bytes(struct buf *out)
{
    AUTO_BUF b;

    buf_init(&b, LIMIT_COMMAND_MAX_BYTES);
    entry_begin(out, &(struct entry_head){.number = 7, .term = 3, .time_ms = TIME_MS});
    for (int i = 0; i < 2; i++) {
        AUTO_ARENA a = arena_create(0);
        union command c;
        if (i == 0) {
            write_make(&c, a);
            c.write.ops[1].object = object_unref(c.write.ops[1].object);
            c.write.n = 1;
        } else {
            member_make(&c, a);
            c.member.remove = false;
            (void)snprintf(c.head.request_id, sizeof c.head.request_id, "id-2");
        }
        buf_reset(&b);
        command_encode(&c, &b);
        entry_add(out, slice_make(b.p, b.n));
        command_release(&c);
    }
    entry_end(out);
}

static void entry_result(const struct result *r, void *arg)
{
    assert_string_equal(r->request_id, *(int *)arg ? "id-2" : "id-1");
    if (r->code)
        fail_msg("%s", r->text);
    ++*(int *)arg;
}
static struct root *state_of(struct slice entry)
{
    struct root *r = root_create();
    struct err e;
    int n = 0;

    if (store_apply(&r, 11, 3, entry, entry_result, &n, &e))
        fail_msg("%s", e.text);
    assert_int_equal(n, 2);
    return r;
}

static void state_check(const struct root *r)
{
    struct member_info m[2];

    assert_int_equal(root_index(r), 11);
    assert_int_equal(root_number(r), 7);
    assert_int_equal(root_term(r), 3);
    assert_true(root_time(r) == TIME_MS);
    assert_string_equal(root_cluster_uid(r), "cluster-1");
    assert_string_equal(root_revision(r), "0123abc");
    assert_int_equal(root_members(r, m, 2), 1);
    assert_string_equal(m[0].address, "m3:7444");
    const struct object *o = root_get(r, KIND_NAMESPACE, "", "golden");
    assert_non_null(o);
    assert_string_equal(o->meta->uid, "7f1c");
    assert_true(o->meta->creationTimestamp == TIME_MS);
    assert_int_equal(tree_count(r->requests), 2);
}

static void snapshot_bytes(struct buf *out)
{
    AUTO_BUF entry;
    struct err e;

    buf_init(&entry, LIMIT_ENTRY_MAX_BYTES);
    entry_bytes(&entry);
    struct root *r = state_of(slice_make(entry.p, entry.n));
    assert_int_equal(snapshot_encode(r, out, &e), 0);
    (void)root_unref(r);
}

/* ---- the file: "name hex" a line ---- */
struct line {
    char *name;
    struct buf bytes;
};
static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}
static bool line_next(FILE *f, struct line *l)
{
    char *text = NULL;
    size_t room = 0;
    ssize_t n;

    do
        n = getline(&text, &room, f);
    while (n > 0 && text[0] == '#');
    if (n <= 0) {
        free(text);
        return false;
    }
    text[strcspn(text, "\n")] = '\0';
    char *hex = strchr(text, ' ');
    assert_non_null(hex);
    *hex++ = '\0';
    l->name = mem_strdup(text);
    buf_init(&l->bytes, LIMIT_ENTRY_MAX_BYTES);
    for (; hex[0]; hex += 2) {
        assert_true(hex_digit(hex[0]) >= 0 && hex_digit(hex[1]) >= 0);
        buf_char(&l->bytes, (char)(hex_digit(hex[0]) << 4 | hex_digit(hex[1])));
    }
    free(text);
    return true;
}
static void line_fini(struct line *l)
{
    mem_free(l->name);
    buf_fini(&l->bytes);
}
static bool golden_find(const char *name, struct buf *out)
{
    FILE *f = fopen(GOLDEN, "r");
    struct line l;
    bool found = false;

    assert_non_null(f);
    while (!found && line_next(f, &l)) {
        found = strcmp(l.name, name) == 0;
        if (found)
            buf_add(out, l.bytes.p, l.bytes.n);
        line_fini(&l);
    }
    (void)fclose(f);
    return found;
}

static void golden_equal(const char *name, const struct buf *have)
{
    AUTO_BUF want;

    buf_init(&want, LIMIT_ENTRY_MAX_BYTES);
    if (!golden_find(name, &want))
        fail_msg("%s has no line \"%s\"; see the top of this test", GOLDEN, name);
    size_t same = 0;
    while (same < want.n && same < have->n && want.p[same] == have->p[same])
        same++;
    if (want.n != have->n || same != want.n)
        fail_msg("%s: byte %zu of \"%s\" is another one now (%zu bytes, %zu before): old logs "
                 "would not be read",
                 GOLDEN, same, name, have->n, want.n);
}

/* ---- the tests ---- */
static void test_commands(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        AUTO_ARENA a = arena_create(0);
        AUTO_BUF b;
        AUTO_BUF old;
        union command *c = NULL;
        struct err e;

        buf_init(&b, LIMIT_COMMAND_MAX_BYTES);
        buf_init(&old, LIMIT_COMMAND_MAX_BYTES);
        command_bytes(&table[i], &b);
        golden_equal(table[i].name, &b);
        assert_true(golden_find(table[i].name, &old));
        assert_int_equal(command_decode(slice_make(old.p, old.n), a, &c, &e), 0);
        assert_int_equal(c->head.type, table[i].type);
        assert_string_equal(c->head.request_id, "id-1");
        assert_string_equal(c->head.user, "alice");
        table[i].check(c);
        command_release(c);
    }
}

/* A type in commands.def that this version can decode has its bytes here. */
static void test_every_type_has_its_bytes(void **state)
{
    (void)state;
    for (int type = 1; type < 256; type++) {
        unsigned char empty[2] = {(unsigned char)type, 1};
        AUTO_ARENA a = arena_create(0);
        union command *c = NULL;
        struct err e;
        bool golden = false;

        for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
            golden |= (int)table[i].type == type;
        int r = command_decode(slice_make(empty, 2), a, &c, &e);
        if (r == 0)
            command_release(c);
        if (golden)
            assert_int_equal(r, 0);
        else if (r != E_NOTIMPL)
            fail_msg("command %d has no line in %s", type, GOLDEN);
    }
    assert_int_equal(CMD_WRITE, 1); /* numbers are never given anew */
    assert_int_equal(CMD_PLACE, 2);
    assert_int_equal(CMD_RUN, 3);
    assert_int_equal(CMD_FACTS, 4);
    assert_int_equal(CMD_MEMBER, 5);
    assert_int_equal(CMD_REMOVE, 6);
    assert_int_equal(CMD_MIGRATE, 7);
    assert_int_equal(CMD_LEDGER, 8);
}

static void test_entry_and_snapshot(void **state)
{
    AUTO_BUF entry;
    AUTO_BUF snapshot;
    AUTO_BUF old;
    struct root *r = NULL;
    struct err e;

    (void)state;
    buf_init(&entry, LIMIT_ENTRY_MAX_BYTES);
    buf_init(&snapshot, LIMIT_ENTRY_MAX_BYTES);
    buf_init(&old, LIMIT_ENTRY_MAX_BYTES);
    entry_bytes(&entry);
    golden_equal("entry", &entry);
    snapshot_bytes(&snapshot);
    golden_equal("snapshot", &snapshot);
    assert_true(golden_find("entry", &old));
    struct root *applied = state_of(slice_make(old.p, old.n));
    state_check(applied);
    buf_reset(&old);
    assert_true(golden_find("snapshot", &old));
    assert_int_equal(snapshot_decode(slice_make(old.p, old.n), &r, &e), 0);
    state_check(r);
    root_check(r);
    assert_true(root_digest(r) == root_digest(applied));
    (void)root_unref(r);
    (void)root_unref(applied);
    (void)tree_reap(SIZE_MAX);
}

/* NAME@N: what older versions wrote is still read. */
static void test_old_bytes_are_read(void **state)
{
    FILE *f = fopen(GOLDEN, "r");
    struct line l;
    struct err e;

    (void)state;
    assert_non_null(f);
    while (line_next(f, &l)) {
        struct slice in = slice_make(l.bytes.p, l.bytes.n);
        AUTO_ARENA a = arena_create(0);
        union command *c = NULL;
        struct root *r = NULL;

        if (strncmp(l.name, "entry", 5) == 0) {
            r = state_of(in);
        } else if (strncmp(l.name, "snapshot", 8) == 0) {
            assert_int_equal(snapshot_decode(in, &r, &e), 0);
        } else {
            assert_int_equal(command_decode(in, a, &c, &e), 0);
            command_release(c);
        }
        (void)root_unref(r);
        line_fini(&l);
    }
    (void)fclose(f);
    (void)tree_reap(SIZE_MAX);
}

static void line_put(FILE *f, const char *name, const struct buf *b)
{
    (void)fprintf(f, "%s ", name);
    for (size_t i = 0; i < b->n; i++)
        (void)fprintf(f, "%02x", (unsigned char)b->p[i]);
    (void)fputc('\n', f);
}
static int golden_write(void)
{
    FILE *f = fopen(GOLDEN, "r"), *out = fopen(GOLDEN ".tmp", "w");
    struct line l;

    if (!out)
        return errno;
    while (f && line_next(f, &l)) {
        if (strchr(l.name, '@'))
            line_put(out, l.name, &l.bytes);
        line_fini(&l);
    }
    if (f)
        (void)fclose(f);
    for (size_t i = 0; i < sizeof table / sizeof table[0] + 2; i++) {
        AUTO_BUF b;
        size_t n = sizeof table / sizeof table[0];
        buf_init(&b, LIMIT_ENTRY_MAX_BYTES);
        if (i < n)
            command_bytes(&table[i], &b);
        else if (i == n)
            entry_bytes(&b);
        else
            snapshot_bytes(&b);
        line_put(out, i < n ? table[i].name : i == n ? "entry" : "snapshot", &b);
    }
    (void)fclose(out);
    return rename(GOLDEN ".tmp", GOLDEN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_commands),
        cmocka_unit_test(test_every_type_has_its_bytes),
        cmocka_unit_test(test_entry_and_snapshot),
        cmocka_unit_test(test_old_bytes_are_read),
    };

    if (getenv("COMMANDS_GOLDEN_WRITE"))
        return golden_write();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
