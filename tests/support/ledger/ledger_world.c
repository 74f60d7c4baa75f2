/* The random federation of ledger_world.h. Commands go through their bytes and through entries, as
 * a leader's would. */
#include "tests/support/ledger/ledger_world.h"

#include "controlplane/store/store_internal.h"

#include <stdio.h>
#include <time.h>

#define NAMES 24
#define TARGETS 3
#define NODES 4
#define GPUS 8
#define MIG_SHARE 143 /* a seventh, rounded up: seven of them are more than one device */

static const char *const spaces[] = {"default", "team"};
static const char *const target_names[TARGETS] = {"fra", "ber", "ohio"};
static const char *const classes[] = {"a100", "h100"};

struct ledger_world {
    struct root *root;
    struct arena *a;
    struct ledger_model *model;
    uint64_t seed, number, index, term, seen_rv;
    int64_t now;
    const char *ns;
    struct ledger_counts n;
    double seconds;
    bool others;  /* nodes tell what others hold */
    bool counted; /* the first two nodes count their devices, mostly */
};

static uint32_t rnd(struct ledger_world *w, uint32_t n)
{
    w->seed ^= w->seed << 13;
    w->seed ^= w->seed >> 7;
    w->seed ^= w->seed << 17;
    return (uint32_t)(w->seed >> 13) % n;
}

/* ---- one command ---- */
static void one_result(const struct result *r, void *arg)
{
    *(struct result *)arg = *r;
}

static bool one_change(const struct change *c, void *arg)
{
    struct ledger_world *w = arg;

    ledger_model_change(w->model, c);
    w->seen_rv = c->rv;
    return true;
}

static double seconds(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static bool apply(struct ledger_world *w, const union command *c)
{
    struct result r = {.code = -1};
    struct err e = {0};
    AUTO_BUF b;
    AUTO_BUF entry;

    buf_init(&b, LIMIT_COMMAND_MAX_BYTES);
    buf_init(&entry, LIMIT_ENTRY_MAX_BYTES);
    command_encode(c, &b);
    entry_begin(&entry, &(struct entry_head){++w->number, w->term, w->now});
    entry_add(&entry, slice_make(b.p, b.n));
    entry_end(&entry);
    double begun = seconds();
    int rc = store_apply(&w->root, ++w->index, w->term, slice_make(entry.p, entry.n), one_result,
                         &r, &e);
    (void)tree_reap(256);
    w->seconds += seconds() - begun;
    INV(rc == 0);
    ledger_model_time(w->model, root_time(w->root));
    uint64_t before = w->seen_rv;
    rc = root_changes(w->root, before, one_change, w, &e);
    INV(rc == 0);
    w->n.commands++;
    w->n.events += w->seen_rv != before;
    return r.code == 0;
}

static bool write_one(struct ledger_world *w, enum write_verb verb, enum kind_id kind,
                      const char *ns, const char *name, void *body)
{
    struct write_op op = {.verb = verb, .kind = kind};
    union command c = {.head = {.type = CMD_WRITE, .user = "test"}};

    str_copy(op.ns, sizeof op.ns, ns);
    str_copy(op.name, sizeof op.name, name);
    if (body) {
        struct meta *m = arena_new(w->a, struct meta);
        m->name = name;
        m->namespace_ = ns;
        m->uid = arena_printf(w->a, "uid-%llu", (unsigned long long)w->number);
        ((struct any_body *)body)->metadata = m;
        op.object = object_make(kind_by_id(kind), body);
    }
    c.write.ops = &op;
    c.write.n = 1;
    bool ok = apply(w, &c);
    (void)object_unref(op.object);
    return ok;
}

/* ---- prices, targets, nodes ---- */
static void sheet_rnd(struct ledger_world *w)
{
    struct price_sheet *s = arena_new(w->a, struct price_sheet);
    bool there = root_get(w->root, KIND_PRICE_SHEET, "", "own") != NULL;

    s->spec = arena_new(w->a, struct price_sheet_spec);
    s->spec->currency = "USD";
    s->spec->n_gpuHour = 1 + rnd(w, 2);
    s->spec->gpuHour = arena_array(w->a, struct gpu_price, 2);
    for (uint32_t i = 0; i < s->spec->n_gpuHour; i++) {
        s->spec->gpuHour[i].class_ = classes[i];
        s->spec->gpuHour[i].region = "";
        s->spec->gpuHour[i].amortised = rnd(w, 4) ? 1 + rnd(w, 3) * 0.37 : 0;
        s->spec->gpuHour[i].reserved = rnd(w, 4) ? 1 + rnd(w, 2) * 0.91 : 0;
        s->spec->gpuHour[i].spot = s->spec->gpuHour[i].amortised / 2;
        s->spec->gpuHour[i].onDemand = s->spec->gpuHour[i].amortised * 2;
    }
    if (rnd(w, 3) == 0)
        s->spec->validFrom = w->now + rnd(w, 50000000);
    if (rnd(w, 3) == 0)
        s->spec->validUntil = w->now + rnd(w, 100000000);
    (void)write_one(w, there ? WRITE_UPDATE : WRITE_CREATE, KIND_PRICE_SHEET, "", "own", s);
}

static void target_rnd(struct ledger_world *w, const char *name)
{
    struct target *t = arena_new(w->a, struct target);
    bool there = root_get(w->root, KIND_TARGET, "", name) != NULL;

    t->spec = arena_new(w->a, struct target_spec);
    t->spec->type = TARGET_AGENT;
    t->spec->tier = strcmp(name, "ohio") == 0 ? TIER_BURST : TIER_HUB;
    t->spec->capacity = rnd(w, 2) ? (enum capacity)0 : (enum capacity)(1 + rnd(w, 4));
    t->spec->priceSheet = rnd(w, 4) ? "own" : "";
    (void)write_one(w, there ? WRITE_UPDATE : WRITE_CREATE, KIND_TARGET, "", name, t);
}

static void node_rnd(struct ledger_world *w, struct node *n, const char *target, uint32_t i,
                     bool calm)
{
    bool mig = i == NODES - 1;

    n->metadata = arena_new(w->a, struct meta);
    n->metadata->name = arena_printf(w->a, "%s.n%u", target, i);
    n->spec = arena_new(w->a, struct node_spec);
    n->spec->target = target;
    n->spec->cpu = 640000;
    n->spec->memory = (int64_t)1 << 40;
    n->spec->capacity = i == 1 ? CAPACITY_RESERVED : i == 2 ? CAPACITY_SPOT : (enum capacity)0;
    n->spec->gpus = arena_array(w->a, struct gpu, GPUS);
    n->spec->n_gpus = GPUS;
    n->status = arena_new(w->a, struct node_status);
    n->status->health = calm || rnd(w, 6) ? HEALTH_READY : HEALTH_NOT_READY;
    for (uint32_t g = 0; g < GPUS; g++) {
        struct gpu *x = &n->spec->gpus[g];

        x->index = g;
        x->class_ = classes[(i + (g >= 6)) % 2]; /* two classes on one node */
        x->shared = true;
        x->health = calm || rnd(w, 12) ? HEALTH_READY : HEALTH_SICK;
        if (mig) {
            x->migProfiles = arena_array(w->a, const char *, 7);
            x->n_migProfiles = 7;
            for (int p = 0; p < 7; p++)
                x->migProfiles[p] = "1g.10gb";
        }
    }
}

/* The same devices without their numbers; of the first class some are cut or shared. */
static void counted_rnd(struct ledger_world *w, struct node *n)
{
    static const struct counted_gpus rows[] = {
        {.count = 4}, {.count = 2}, {.count = 3, .mig = "1g.10gb"}, {.count = 4, .shares = 2}};
    struct counted_gpus *c = arena_memdup(w->a, rows, sizeof rows);

    n->spec->n_counted = rnd(w, 5) ? 4 : 2 + rnd(w, 2);
    for (uint32_t i = 0; i < n->spec->n_counted; i++) {
        c[i].class_ = n->spec->gpus[i == 1 ? GPUS - 1 : 0].class_;
        c[i].unhealthy = rnd(w, 4) ? 0 : rnd(w, 3);
    }
    n->spec->n_gpus = 0;
    n->spec->counted = c;
}

/* By number, or by class alone. */
static void others_rnd(struct ledger_world *w, struct node *n, uint32_t i)
{
    struct node_others *o = arena_new(w->a, struct node_others);

    o->cpu = rnd(w, 3) * 100000;
    if (rnd(w, 2)) {
        o->gpus = arena_array(w->a, int64_t, 2);
        o->gpus[0] = rnd(w, GPUS);
        o->gpus[1] = rnd(w, GPUS);
        o->n_gpus = o->gpus[0] == o->gpus[1] ? 1 : 2;
    }
    if (i != NODES - 1 && rnd(w, 2)) {
        o->classes = arena_new(w->a, struct others_class);
        o->classes->class_ = classes[rnd(w, 2)];
        o->classes->count = 1 + rnd(w, 4);
        o->classes->mig = rnd(w, 3) ? "" : "1g.10gb";
        o->classes->shares = !*o->classes->mig && rnd(w, 3) == 0;
        o->n_classes = 1;
    }
    n->status->others = o;
}

static void facts_rnd(struct ledger_world *w, const char *target, bool calm)
{
    struct node *nodes = arena_array(w->a, struct node, NODES);
    struct facts_cmd facts = {.session = "s", .reach_told = true, .complete = true, .nodes = nodes};
    union command c = {.facts = facts};

    c.head.type = CMD_FACTS;
    str_copy(c.facts.target, sizeof c.facts.target, target);
    c.facts.reachable = calm || rnd(w, 4) > 0;
    for (uint32_t i = 0; i < NODES; i++)
        if (calm || rnd(w, 5))
            node_rnd(w, &nodes[c.facts.n++], target, i, calm);
    for (uint32_t i = 0; i < c.facts.n && w->others; i++) {
        uint32_t node = (uint32_t)(nodes[i].metadata->name[strlen(target) + 2] - '0');
        if (!calm && rnd(w, 4) == 0)
            others_rnd(w, &nodes[i], node);
        if ((w->counted && node < 2) != (!calm && rnd(w, 12) == 0))
            counted_rnd(w, &nodes[i]);
    }
    (void)apply(w, &c);
}

/* ---- workloads ---- */
static const char *name_rnd(struct ledger_world *w)
{
    return arena_printf(w->a, "w%u", rnd(w, NAMES));
}

/* A name of this space in a phase that is asked for, where a few tries find one. */
static const char *name_in(struct ledger_world *w, bool (*want)(enum phase p))
{
    const char *name = name_rnd(w);

    for (int i = 0; i < 20; i++) {
        const struct object *o = root_get(w->root, KIND_WORKLOAD, w->ns, name);

        if (o && want(object_as(o, workload)->status->phase))
            break;
        name = name_rnd(w);
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

static void workload_rnd(struct ledger_world *w)
{
    static const char *const users[] = {"ann", "bob"}, *const experiments[] = {"", "aug-7"};
    struct workload *o = arena_new(w->a, struct workload);
    struct gpu_request *g = arena_new(w->a, struct gpu_request);

    o->spec = arena_new(w->a, struct workload_spec);
    o->spec->run = arena_new(w->a, struct run_spec);
    o->spec->run->script = "true";
    o->spec->run->retries = rnd(w, 4);
    o->spec->user = users[rnd(w, 2)];
    o->spec->experiment = experiments[rnd(w, 2)];
    o->spec->gang = arena_new(w->a, struct gang);
    o->spec->gang->workers = 1 + rnd(w, 3);
    o->spec->resources = arena_new(w->a, struct resources);
    o->spec->resources->gpu = g;
    switch (rnd(w, 5)) {
    case 0:
        g->fraction = 0.5;
        break;
    case 1:
        g->mig = "1g.10gb";
        break;
    default:
        g->count = 1 + rnd(w, 2);
    }
    (void)write_one(w, WRITE_CREATE, KIND_WORKLOAD, w->ns, name_rnd(w), o);
}

/* A placement that may hold: devices from a random one on, of one class. */
static struct placement *placement_rnd(struct ledger_world *w, const struct workload *o)
{
    struct placement *p = arena_new(w->a, struct placement);
    const struct gpu_request *g = o->spec->resources->gpu;
    bool mig = *g->mig, share = mig || g->fraction > 0, cut = mig && !(w->counted && rnd(w, 2));
    uint32_t node = cut ? NODES - 1 : rnd(w, NODES - 1), half = rnd(w, 4) == 0;
    uint32_t first = half ? 6 : rnd(w, 6), each = share ? 1 : (uint32_t)g->count;

    p->target = target_names[rnd(w, TARGETS)];
    p->class_ = classes[(node + half) % 2];
    p->capacity = (enum capacity)(1 + rnd(w, 4));
    p->gpuHourPrice = 0.5 + rnd(w, 4) * 0.61;
    p->n_assignments = (uint32_t)o->spec->gang->workers;
    p->assignments = arena_array(w->a, struct assignment, p->n_assignments);
    for (uint32_t i = 0; i < p->n_assignments; i++) {
        struct assignment *a = &p->assignments[i];
        a->rank = i;
        a->node = arena_printf(w->a, "%s.n%u", p->target, node);
        a->mig = g->mig;
        a->gpuMilli = mig ? MIG_SHARE : share ? 500 : 1000;
        if ((w->counted && node < 2) != (rnd(w, 30) == 0)) {
            a->count = each;
            a->shares = share && !mig ? 2 : 0;
            continue;
        }
        a->n_gpus = each;
        a->gpus = arena_array(w->a, int64_t, each);
        for (uint32_t k = 0; k < each; k++)
            a->gpus[k] = share ? first : first++;
    }
    p->gpus = (int64_t)each * p->n_assignments * (mig ? MIG_SHARE : share ? 500 : 1000);
    return p;
}

static void place_rnd(struct ledger_world *w)
{
    const char *name = name_in(w, is_queued);
    const struct object *o = root_get(w->root, KIND_WORKLOAD, w->ns, name);
    union command c = {.head = {.type = CMD_PLACE}};

    if (!o)
        return;
    str_copy(c.place.ns, sizeof c.place.ns, w->ns);
    str_copy(c.place.name, sizeof c.place.name, name);
    str_copy(c.place.uid, sizeof c.place.uid, o->meta->uid);
    str_copy(c.place.queue, sizeof c.place.queue, object_as(o, workload)->status->queue);
    c.place.epoch = object_as(o, workload)->status->epoch;
    c.place.decision = arena_new(w->a, struct decision_spec);
    c.place.decision->reason = "Chosen";
    c.place.placement = placement_rnd(w, object_as(o, workload));
    w->n.placed += apply(w, &c);
}

static void run_rnd(struct ledger_world *w)
{
    static const char *const reasons[] = {"Failed", "RunnerKilled", "LeaseLost", "Ended"};
    const char *name = name_in(w, is_moving);
    const struct object *o = root_get(w->root, KIND_WORKLOAD, w->ns, name);
    union command c = {.head = {.type = CMD_RUN}};
    struct run_checkpoint ck = {.digest = "sha256:0", .name = "c"};
    enum run_step step = (enum run_step)(1 + rnd(w, STEP_CHECKPOINT_BAD));

    if (!o)
        return;
    const struct workload_status *s = object_as(o, workload)->status;
    for (int i = 0; i < 40 && (!epoch_next(s->phase, step) || (step == STEP_STOP && rnd(w, 8)) ||
                               (step == STEP_ENDED && rnd(w, 3)));
         i++)
        step = (enum run_step)(1 + rnd(w, STEP_CHECKPOINT_BAD));
    if (*s->migration && s->phase == PHASE_QUIESCING && rnd(w, 2))
        step = STEP_ENDED;
    str_copy(c.run.ns, sizeof c.run.ns, w->ns);
    str_copy(c.run.name, sizeof c.run.name, name);
    str_copy(c.run.uid, sizeof c.run.uid, o->meta->uid);
    str_copy(c.run.reason, sizeof c.run.reason, reasons[rnd(w, 4)]);
    c.run.epoch = s->epoch;
    c.run.try_ = (s->intent ? s->intent->try_ : 0) + (step == STEP_DISPATCH);
    c.run.step = step;
    c.run.exit_code = rnd(w, 2);
    c.run.requeue = rnd(w, 3) == 0 || *s->migration;
    c.run.proof = step == STEP_ABSENT       ? PROOF_NEVER_STARTED
                  : step == STEP_LEASE_OVER ? PROOF_LEASE_EXPIRED
                  : step == STEP_FENCED     ? PROOF_OPERATOR
                                            : PROOF_TREE_GONE;
    if (w->others && s->phase == PHASE_RUNNING && w->n.commands % 4 == 0) {
        c.run.step = step = STEP_USE;
        c.run.use = ledger_use_rnd(w->seed >> 13, s->placement->gpus, w->now, w->a);
    }
    ck.step = (s->checkpoint ? s->checkpoint->step : 0) + rnd(w, 3);
    ck.verifiedAt = rnd(w, 2) ? 0 : w->now - rnd(w, 20000) + rnd(w, 2000);
    if (step == STEP_CHECKPOINT)
        c.run.checkpoint = &ck;
    if (step == STEP_CHECKPOINT_BAD && s->checkpoint)
        c.run.checkpoint = arena_memdup(w->a, s->checkpoint, sizeof ck);
    w->n.ended += apply(w, &c) && step == STEP_ENDED;
}

/* ---- moves ---- */
struct pick {
    struct ledger_world *w;
    const struct object *found;
    uint32_t n;
};

static bool pick_move(const struct object *o, void *arg)
{
    struct pick *p = arg;
    const struct migration_status *s = object_as(o, migration)->status;

    if (s && move_open(s->phase) && rnd(p->w, ++p->n) == 0)
        p->found = o;
    return true;
}

static void move_begin(struct ledger_world *w)
{
    const char *name = name_in(w, is_moving);
    const struct object *o = root_get(w->root, KIND_WORKLOAD, w->ns, name);
    union command c = {.head = {.type = CMD_MIGRATE}};
    struct move_begin b = {.cause = (enum move_cause)(1 + rnd(w, MOVE_RECLAIM))};

    if (!o)
        return;
    str_copy(b.ns, sizeof b.ns, w->ns);
    str_copy(b.workload, sizeof b.workload, name);
    str_copy(b.uid, sizeof b.uid, o->meta->uid);
    b.epoch = object_as(o, workload)->status->epoch;
    b.decision = arena_new(w->a, struct decision_spec);
    b.decision->reason = "Moved";
    if (rnd(w, 4))
        b.placement = placement_rnd(w, object_as(o, workload));
    c.migrate.step = MOVE_BEGIN;
    c.migrate.begins = &b;
    c.migrate.n = 1;
    (void)apply(w, &c);
}

static void move_rnd(struct ledger_world *w)
{
    struct pick p = {.w = w};
    union command c = {.head = {.type = CMD_MIGRATE}};

    root_scan(w->root, KIND_MIGRATION, NULL, NULL, NULL, pick_move, &p);
    if (!p.found || rnd(w, 3) == 0) {
        move_begin(w);
        return;
    }
    enum move_phase phase = object_as(p.found, migration)->status->phase;
    c.migrate.step = rnd(w, 15) == 0 ? MOVE_ABORT : MOVE_QUIESCE;
    for (int i = 0; i < 20 && !move_next(phase, c.migrate.step); i++)
        c.migrate.step = (enum move_step)(MOVE_RESERVE + rnd(w, MOVE_ABORT - MOVE_RESERVE));
    str_copy(c.migrate.ns, sizeof c.migrate.ns, p.found->meta->namespace_);
    str_copy(c.migrate.name, sizeof c.migrate.name, p.found->meta->name);
    str_copy(c.migrate.uid, sizeof c.migrate.uid, p.found->meta->uid);
    c.migrate.outcome = MP_CANCELLED;
    w->n.moved += apply(w, &c) && c.migrate.step == MOVE_START;
}

/* ---- all of it ---- */
static void through_snapshot(struct ledger_world *w)
{
    struct root *again = NULL;
    struct err e = {0};
    AUTO_BUF b;

    buf_init(&b, (size_t)1 << 30);
    int rc = snapshot_encode(w->root, &b, &e);
    INV(rc == 0);
    rc = snapshot_decode(slice_make(b.p, b.n), &again, &e);
    INV(rc == 0 && root_digest(again) == root_digest(w->root));
    (void)root_unref(w->root);
    w->root = again; /* the rest of the history runs on what was read */
    w->n.snapshots++;
}

static void one(struct ledger_world *w)
{
    w->ns = spaces[rnd(w, 3) == 0];
    w->now += rnd(w, 8) ? rnd(w, 9000) : 0;
    switch (rnd(w, 20)) {
    case 0:
    case 1:
        workload_rnd(w);
        return;
    case 2:
        (void)write_one(w, WRITE_DELETE, KIND_WORKLOAD, w->ns, name_in(w, phase_final), NULL);
        return;
    case 3:
    case 4:
    case 5:
    case 6:
        place_rnd(w);
        return;
    case 7:
    case 8:
    case 9:
        move_rnd(w);
        return;
    case 10:
        if (rnd(w, 6) == 0)
            facts_rnd(w, target_names[rnd(w, TARGETS)], rnd(w, 2));
        if (rnd(w, 300) == 0)
            sheet_rnd(w);
        if (rnd(w, 100) == 0)
            target_rnd(w, target_names[rnd(w, TARGETS)]);
        return;
    case 11:
        if (rnd(w, 700) == 0)
            through_snapshot(w);
        if (rnd(w, 500) == 0)
            w->term++; /* another leader, whose clock may be behind */
        if (rnd(w, 500) == 0)
            w->now -= 20000;
        return;
    default:
        run_rnd(w);
    }
}

struct ledger_world *ledger_world_create(uint64_t seed)
{
    struct ledger_world *w = mem_new(struct ledger_world);
    struct queue *q;

    w->seed = seed * 2654435761u + 88172645463325252u;
    w->root = root_create();
    w->a = arena_create(0);
    w->now = 1790000000000;
    w->term = 1;
    w->model = ledger_model_create(0);
    for (int i = 0; i < 2; i++)
        (void)write_one(w, WRITE_CREATE, KIND_NAMESPACE, "", spaces[i],
                        arena_new(w->a, struct namespace_));
    w->others = seed % 2 == 0;
    w->counted = seed % 4 == 0;
    if (w->others) { /* all members know of them */
        union command c = {.member = {.head = {.type = CMD_MEMBER},
                                      .member = {.id = 1, .feature_level = FEATURE_LEVEL},
                                      .cluster_uid = "cluster-1"}};
        (void)apply(w, &c);
    }
    q = arena_new(w->a, struct queue);
    q->spec = arena_new(w->a, struct queue_spec);
    q->spec->namespaces = arena_array(w->a, const char *, 1);
    q->spec->namespaces[0] = "team";
    q->spec->n_namespaces = 1;
    (void)write_one(w, WRITE_CREATE, KIND_QUEUE, "", "vision", q);
    for (int i = 0; i < TARGETS; i++) {
        target_rnd(w, target_names[i]);
        facts_rnd(w, target_names[i], true);
    }
    return w;
}

void ledger_world_destroy(struct ledger_world *w)
{
    ledger_model_destroy(w->model);
    (void)root_unref(w->root);
    (void)arena_destroy(w->a);
    mem_free(w);
    while (tree_reap(100000))
        ;
}

void ledger_world_run(struct ledger_world *w, uint64_t events)
{
    uint64_t until = w->n.events + events;

    while (w->n.events < until) {
        one(w);
        if (w->n.commands % 200 == 0)
            arena_reset(w->a);
    }
}

const struct root *ledger_world_root(const struct ledger_world *w)
{
    return w->root;
}
struct ledger_model *ledger_world_model(struct ledger_world *w)
{
    return w->model;
}
struct ledger_counts ledger_world_counts(const struct ledger_world *w)
{
    struct ledger_counts n = w->n;

    n.terms = w->term;
    n.days = (uint64_t)((w->now - 1790000000000) / LEDGER_DAY_MS);
    return n;
}

double ledger_world_seconds(const struct ledger_world *w)
{
    return w->seconds;
}
