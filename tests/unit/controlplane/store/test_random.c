/* A hundred thousand random commands: the invariants hold, everything survives its bytes, the log
 * gives the same state again, with and without snapshots on the way; nothing that may run outside
 * is ever let go unproved; and nothing is held for a move that has ended. */
#include "tests/support/store/move_kit.h"

#define COMMANDS 100000
#define NAMES 40
#define DEVICES 8

static uint64_t seed = 88172645463325252u;

static uint32_t rnd(uint32_t n)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (uint32_t)(seed >> 13) % n;
}

static const char *const spaces[] = {"default", "team"};

static const char *name_rnd(struct kit *k)
{
    return arena_printf(k->a, "w%u", rnd(NAMES));
}

/* A name whose workload is in a phase that `want` likes, when a few tries find one. */
static const char *name_in(struct kit *k, bool (*want)(enum phase p))
{
    const char *name = name_rnd(k);

    for (int i = 0; i < 20 && rnd(10) > 0; i++) {
        const struct object *o = kit_get(k, name);

        if (o && want(object_as(o, workload)->status->phase))
            break;
        name = name_rnd(k);
    }
    return name;
}

static bool is_queued(enum phase p)
{
    return p == PHASE_QUEUED;
}

static bool is_moving(enum phase p)
{
    return p == PHASE_STOPPED || phase_holds(p);
}

/* Comes and goes, so that what is there before it and after it is counted, too. */
static void quota_rnd(struct kit *k)
{
    struct resource_quota *q = arena_new(k->a, struct resource_quota);
    const char *name = arena_printf(k->a, "o%u", rnd(3));

    if (rnd(3) == 0) {
        (void)kit_delete(k, KIND_RESOURCE_QUOTA, k->ns, name);
        return;
    }
    q->spec = arena_new(k->a, struct resource_quota_spec);
    q->spec->hard = arena_array(k->a, struct kv, 2);
    q->spec->hard[q->spec->n_hard++] = (struct kv){"count/migrations.hanse.dev", "5"};
    q->spec->hard[q->spec->n_hard++] = (struct kv){"count/workloads.hanse.dev", "30"};
    (void)kit_create(k, KIND_RESOURCE_QUOTA, k->ns, name, q);
}

static void write_rnd(struct kit *k)
{
    static const char *const finalizers[] = {"x.dev/y"};
    const char *name = name_rnd(k);
    const struct object *o = kit_get(k, name);
    struct write_op ops[2] = {0};
    uint32_t from;

    switch (rnd(8)) {
    case 0:
    case 1:
    case 2:
        k->retries = rnd(3);
        (void)kit_workload(k, k->ns, name, 1 + rnd(3), rnd(3));
        return;
    case 3:
        (void)kit_delete(k, KIND_WORKLOAD, k->ns, rnd(3) ? name_in(k, phase_final) : name);
        return;
    case 4:
        if (!o)
            return;
        struct workload *w = object_edit_as(o, workload, k->a);
        w->spec->suspend = rnd(8) == 0;
        w->spec->priorityClassName = rnd(2) ? "high" : "low";
        w->metadata->finalizers = (const char **)(uintptr_t)finalizers;
        w->metadata->n_finalizers = rnd(4) == 0;
        (void)kit_update(k, KIND_WORKLOAD, k->ns, name, w,
                         rnd(2) ? 0 : (uint64_t)o->meta->resourceVersion, rnd(4) == 0);
        return;
    case 5:
        kit_op(&ops[0], WRITE_DELETE, KIND_QUEUE, "", arena_printf(k->a, "q%u", rnd(4)), NULL);
        kit_op_queue(k, &ops[1], arena_printf(k->a, "q%u", rnd(4)), rnd(2) ? "" : "q0");
        from = rnd(3) > 0;
        (void)kit_write(k, ops + from, 2 - from, rnd(2) ? "commit" : "",
                        arena_printf(k->a, "id%u", rnd(30000)));
        return;
    case 6:
        if (rnd(40) == 0)
            (void)kit_delete(k, KIND_NAMESPACE, "", "team");
        else if (rnd(2))
            quota_rnd(k);
        else
            (void)kit_namespace(k, "team");
        return;
    default:
        if (rnd(60) == 0) {
            (void)kit_delete(k, KIND_TARGET, "", "fra");
        } else if (!root_get(k->root, KIND_TARGET, "", "fra")) {
            kit_pool(k, 4, DEVICES);
        }
    }
}

static void place_rnd(struct kit *k)
{
    const char *name = name_in(k, is_queued);
    const struct object *o = kit_get(k, name);

    if (rnd(4) == 0 || !o) {
        (void)kit_pending(k, name, rnd(2) ? "NothingFits" : "QuotaBurstExhausted", rnd(5));
        return;
    }
    const struct workload_spec *s = object_as(o, workload)->spec;
    int64_t workers = s->gang->workers + (rnd(10) == 0);
    (void)kit_place(k, name, arena_printf(k->a, "fra.n%u", rnd(5)), rnd(DEVICES), workers,
                    s->resources->gpu->count + (rnd(10) == 0));
}

static enum run_step run_step_rnd(void)
{
    static const enum run_step later[] = {STEP_PENDING, STEP_SEATED, STEP_CLAIM, STEP_CLOSE,
                                          STEP_USE};
    uint32_t n = rnd(STEP_CHECKPOINT_BAD + 10);

    return n < STEP_CHECKPOINT_BAD ? (enum run_step)(1 + n) : later[n % 5];
}

/* Where a target says that it is, though somebody else may be there, and what it blames. */
static void told_rnd(struct kit *k, enum run_step step, const struct workload_spec *s)
{
    static struct target_pause pause;

    k->pause = NULL;
    k->seats = NULL;
    if (step == STEP_SEATED && rnd(3))
        k->seats = kit_workers(k, arena_printf(k->a, "fra.n%u", rnd(6)), rnd(DEVICES),
                               s->gang->workers, rnd(3) ? s->resources->gpu->count : 0);
    if (step != STEP_ABSENT || rnd(2))
        return;
    pause = (struct target_pause){.scope = (enum refusal_scope)(1 + rnd(BLAMES_WORKLOAD)),
                                  .name = rnd(2) ? "h100" : "a",
                                  .refusal = (enum refusal_class)(1 + rnd(REFUSED_CONFLICT)),
                                  .message = "",
                                  .since = k->now,
                                  .until = k->now + rnd(100000)};
    k->pause = &pause;
}

static void run_rnd(struct kit *k)
{
    const char *name = name_in(k, is_moving);
    const struct object *o = kit_get(k, name);
    int64_t epoch = 1, try_ = 1;
    enum run_step step = run_step_rnd();
    struct run_checkpoint ck = {.step = rnd(100), .digest = rnd(2) ? "sha256:0" : "sha256:1"};

    if (o) {
        const struct workload_status *s = object_as(o, workload)->status;

        for (int i = 0; i < 30 && (!epoch_next(s->phase, step) || (step == STEP_STOP && rnd(8)));
             i++)
            step = run_step_rnd();
        if (step == STEP_CHECKPOINT_BAD && s->checkpoint && rnd(3))
            ck = *s->checkpoint;
        epoch = s->epoch;
        try_ = (s->intent ? s->intent->try_ : 0) + (step == STEP_DISPATCH);
        told_rnd(k, step, object_as(o, workload)->spec);
    }
    k->exit_code = rnd(3) == 0;
    k->requeue = rnd(3) == 0;
    k->checkpoint =
        step == STEP_CHECKPOINT || step == STEP_CHECKPOINT_BAD || (step == STEP_ENDED && rnd(2))
            ? &ck
            : NULL;
    (void)kit_run(k, name, epoch + (rnd(20) == 0) - (rnd(20) == 0), try_ + (rnd(20) == 0), step);
    k->checkpoint = NULL;
    k->pause = NULL;
    k->seats = NULL;
}

/* ---- moves ---- */
static struct placement *destination_rnd(struct kit *k, const char *name)
{
    const struct object *o = kit_get(k, name);
    const struct workload_spec *s = o ? object_as(o, workload)->spec : NULL;

    if (!s || rnd(4) == 0)
        return NULL;
    return kit_workers(k, arena_printf(k->a, "fra.n%u", rnd(5)), rnd(DEVICES), s->gang->workers,
                       s->resources->gpu->count);
}

static void plan_rnd(struct kit *k)
{
    const char *for_ = rnd(2) ? name_in(k, is_queued) : NULL;
    struct move_begin b[3];
    uint32_t n = 1 + rnd(3) / 2 + (for_ && rnd(4) == 0);

    for (uint32_t i = 0; i < n; i++) {
        const char *name = name_in(k, is_moving);

        b[i] = kit_begin_of(k, name, for_ ? MOVE_PREEMPTION : MOVE_DRAIN, destination_rnd(k, name));
        b[i].epoch += rnd(20) == 0;
    }
    (void)kit_plan(k, b, n - (for_ && rnd(10) == 0), for_,
                   for_ && rnd(5) ? destination_rnd(k, for_) : NULL);
}

struct open_moves {
    const char *v[256], *ns[256];
    size_t n;
    struct arena *a;
};

static bool open_each(const struct object *o, void *arg)
{
    struct open_moves *m = arg;

    assert_true(object_open_move(o));
    m->ns[m->n] = arena_strdup(m->a, o->meta->namespace_);
    m->v[m->n++] = arena_strdup(m->a, o->meta->name);
    return m->n < 256;
}

/* One step of a move under way, mostly the one that is next. */
static void step_rnd(struct kit *k, const struct open_moves *all)
{
    size_t at = rnd((uint32_t)all->n);
    const char *name = all->v[at];

    k->ns = all->ns[at];
    const struct migration *m = object_as(kit_move(k, name), migration);
    enum move_step step = rnd(25) ? MOVE_RESERVE : MOVE_ABORT;
    while (step < MOVE_ABORT && (!move_next(m->status->phase, step) || rnd(30) == 0))
        step++;
    if (step == MOVE_RESERVE)
        (void)kit_reserve(k, name, m->spec->workload, destination_rnd(k, m->spec->workload));
    else
        (void)kit_step(k, name, step);
}

static void move_rnd(struct kit *k)
{
    struct open_moves all = {.a = k->a};
    uint64_t rv = root_rv(k->root);
    const char *name;

    root_scan_moves(k->root, open_each, &all);
    if (all.n > 0 && rnd(4)) {
        step_rnd(k, &all);
    } else if (rnd(2)) {
        plan_rnd(k);
    } else if (rnd(6)) {
        name = name_in(k, is_moving);
        (void)kit_ask(k, arena_printf(k->a, "m%u", rnd(NAMES)), name, "");
    } else if (all.n > 0) {
        k->ns = all.ns[0];
        struct migration *m = object_edit_as(kit_move(k, all.v[0]), migration, k->a);
        m->spec->cancel = true;
        if (rnd(2))
            (void)kit_delete(k, KIND_MIGRATION, k->ns, all.v[0]);
        else
            (void)kit_update(k, KIND_MIGRATION, k->ns, all.v[0], m, 0, rnd(2));
    }
    if (root_rv(k->root) != rv)
        root_check(k->root);
}

static void forget_rnd(struct kit *k)
{
    union command c = {.remove = {.head = {.type = CMD_REMOVE}}};
    struct write_op op;
    const char *name = rnd(2) ? arena_printf(k->a, "m%u", rnd(NAMES))
                              : arena_printf(k->a, "%s-m%u", name_rnd(k), 1 + rnd(3));

    kit_op(&op, WRITE_DELETE, KIND_MIGRATION, k->ns, name, NULL);
    c.remove.ops = &op;
    c.remove.n = 1;
    (void)kit_apply(k, &c);
}

/* From the first one on, all that is removed is archived. */
static void archive_rnd(struct kit *k)
{
    union command c = {.archive = {.head = {.type = CMD_ARCHIVE, .user = "hanse:retention"},
                                   .close_bytes = ARCHIVE_CLOSE_MIN_BYTES,
                                   .close_after_ms = rnd(4) ? 3600000 : 0}};
    struct archive_cursor from = {0};
    struct write_op ops[8];
    size_t n;

    if (!*root_cluster_uid(k->root)) {
        union command m = {.member = {.head = {.type = CMD_MEMBER}, .member = {.id = 1}}};

        (void)snprintf(m.member.cluster_uid, sizeof m.member.cluster_uid, "cluster-1");
        assert_int_equal(kit_apply(k, &m).code, 0);
    }
    (void)root_archive_due(k->root, k->now + (rnd(2) ? ARCHIVE_AFTER_MS : 0), &from, 1 + rnd(50),
                           ops, 8, &n);
    c.archive.ops = ops;
    c.archive.n = (uint32_t)n;
    assert_int_equal(kit_apply(k, &c).code, 0);
}

static void command_rnd(struct kit *k)
{
    k->ns = spaces[rnd(3) == 0];
    k->now += rnd(5000);
    switch (rnd(13)) {
    case 10:
    case 11:
        move_rnd(k);
        return;
    case 12:
        if (rnd(2))
            forget_rnd(k);
        else
            archive_rnd(k);
        return;
    case 0:
    case 1:
    case 2:
        write_rnd(k);
        return;
    case 3:
    case 4:
        place_rnd(k);
        return;
    case 5:
        if (rnd(10) == 0)
            (void)kit_facts(k, "fra", 3 + rnd(2), DEVICES, rnd(4) > 0);
        return;
    default:
        run_rnd(k);
    }
}

/* What may run outside before a command and is not held after it was ended by a proof, told in its
 * own record. */
struct live {
    const struct root *now;
    const struct kit *k;
    uint64_t n;
    unsigned phases; /* seen */
};

static bool moves_each(const struct object *o, void *arg)
{
    *(unsigned *)arg |= 1u << object_as(o, migration)->status->phase;
    return true;
}

static bool live_each(const struct object *o, void *arg)
{
    struct live *l = arg;
    const struct workload_status *s = object_as(o, workload)->status;

    l->phases |= 1u << s->phase;
    if (!phase_live(s->phase))
        return true;
    l->n++;
    const struct object *then = root_workload_by_uid(l->now, o->meta->uid);
    if (then && phase_live(object_as(then, workload)->status->phase))
        return true;
    assert_int_equal(l->k->last, CMD_RUN);
    assert_true(l->k->last_step == STEP_ENDED || l->k->last_step == STEP_ABSENT ||
                l->k->last_step == STEP_LEASE_OVER || l->k->last_step == STEP_FENCED);
    if (!then) { /* it waited for this end to be removed */
        assert_true(o->meta->deletionTimestamp != 0);
        return true;
    }
    const struct workload_status *t = object_as(then, workload)->status;
    if (t->phase == PHASE_RESERVED) { /* absent: the same epoch, nothing let go */
        assert_int_equal(t->epoch, s->epoch);
        return true;
    }
    assert_true(t->n_ends > 0);
    assert_int_equal(t->ends[t->n_ends - 1].epoch, s->epoch);
    assert_true(t->ends[t->n_ends - 1].proof != 0);
    return true;
}

static uint64_t live_count(const struct root *r, const struct kit *k, unsigned *phases)
{
    struct live l = {k->root, k, 0, 0};

    root_scan(r, KIND_WORKLOAD, NULL, NULL, NULL, live_each, &l);
    *phases |= l.phases;
    return l.n;
}

static uint64_t replay(const struct kit *k)
{
    struct root *r = root_create();
    struct err e = {0};
    uint64_t index = 0;

    for (size_t at = 0; at < k->log.n;) {
        size_t n = le_get_u32((const unsigned char *)k->log.p + at);

        assert_int_equal(
            store_apply(&r, ++index, 1, slice_make(k->log.p + at + 4, n), NULL, NULL, &e), 0);
        at += 4 + n;
        (void)tree_reap(256);
    }
    root_check(r);
    uint64_t digest = root_digest(r);
    (void)root_unref(r);
    return digest;
}

static void through_snapshot(struct kit *k)
{
    struct root *again = NULL;
    struct err e = {0};
    AUTO_BUF b;
    AUTO_BUF c;

    buf_init(&b, (size_t)1 << 30);
    buf_init(&c, (size_t)1 << 30);
    assert_int_equal(snapshot_encode(k->root, &b, &e), 0);
    int r = snapshot_decode(slice_make(b.p, b.n), &again, &e);
    if (r < 0)
        (void)fprintf(stderr, "%s\n", e.text);
    assert_int_equal(r, 0);
    assert_true(root_digest(again) == root_digest(k->root));
    assert_int_equal(snapshot_encode(again, &c, &e), 0);
    assert_int_equal(b.n, c.n);
    assert_memory_equal(b.p, c.p, b.n);
    b.p[24 + rnd((uint32_t)b.n - 24)] ^= 1;
    struct root *torn = NULL;
    assert_int_equal(snapshot_decode(slice_make(b.p, b.n), &torn, &e), E_CORRUPT);
    (void)root_unref(k->root);
    k->root = again; /* and the rest of the log runs on what was read */
}

static void test_random(void **state)
{
    struct kit k;
    uint64_t placed = 0, most = 0;
    unsigned phases = 0, moves = 0;

    (void)state;
    memset(&k, 0, sizeof k);
    k.root = root_create();
    k.a = arena_create(0);
    k.now = 1800000000000;
    k.ns = "default";
    buf_init(&k.log, (size_t)1 << 30);
    (void)kit_namespace(&k, "default");
    kit_class(&k, "high", 10, false, 0);
    kit_class(&k, "low", 1, false, 0);
    kit_pool(&k, 4, DEVICES);
    for (int i = 0; i < COMMANDS; i++) {
        struct root *before = root_ref(k.root);

        command_rnd(&k);
        uint64_t live = live_count(before, &k, &phases);
        if (k.last == CMD_MIGRATE)
            root_scan(k.root, KIND_MIGRATION, NULL, NULL, NULL, moves_each, &moves);
        placed += live;
        most = live > most ? live : most;
        (void)root_unref(before);
        if (i % 2500 == 0)
            root_check(k.root);
        if (rnd(10000) == 0)
            through_snapshot(&k);
        if (i % 500 == 0)
            arena_reset(k.a);
    }
    root_check(k.root);
    assert_true(most > 4 && placed > COMMANDS / 2); /* it was no idle walk */
    assert_int_equal(phases, 0xffe);                /* every phase was seen */
    assert_int_equal(moves, 0x7fe);                 /* of moves, too */
    assert_true(replay(&k) == root_digest(k.root));
    k.ns = "default";
    kit_end(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
