/* Fuzz target: commands that are well formed, of huge and odd contents, applied to whatever state
 * the ones before them made. Nothing of it may abort; an invariant that what is in a log can break
 * is a bug here. In the end the log gives the same state again, and so does a snapshot. */
#include "api/schema/quota.h"
#include "controlplane/store/store_internal.h"

#include <stdio.h>

int fuzz_apply(const uint8_t *data, size_t size);
/* Commands of each type that were taken, for the test to see that it gets anywhere. */
struct fuzz_taken {
    uint64_t n[16];
};
int fuzz_apply_counted(const uint8_t *data, size_t size, struct fuzz_taken *ret);

struct fuzz {
    const uint8_t *p;
    size_t n, at;
    uint64_t random;
    struct root *root;
    struct arena *a;
    struct buf log;
    uint64_t number;
    struct fuzz_taken taken;
    enum command_type type;
};

/* From the input as long as there is some, then from what it came to. */
static uint32_t pick(struct fuzz *f, uint32_t n)
{
    f->random = hash_u64(f->random, f->at < f->n ? f->p[f->at] : f->at);
    f->at++;
    return (uint32_t)(f->random % n);
}

static const char *name_pick(struct fuzz *f)
{
    static const char *const odd[] = {"", "fra", "fra.n0", "h100", "default", "team", "a\xff\x01/"};
    static const char *const plain[] = {"a", "b", "c"};
    uint32_t i = pick(f, 9);

    if (pick(f, 8))
        return plain[pick(f, sizeof plain / sizeof plain[0])];

    if (i < sizeof odd / sizeof odd[0])
        return odd[i];
    char *long_ = arena_alloc(f->a, 256);
    memset(long_, 'a', i == 8 ? 255 : 253);
    return long_;
}

static int64_t number_pick(struct fuzz *f)
{
    static const int64_t odd[] = {0, 1, -1, 2, 63, 64, 1000, 1001, INT32_MAX, INT64_MAX, INT64_MIN};

    return odd[pick(f, sizeof odd / sizeof odd[0])];
}

static void *list_pick(struct fuzz *f, size_t size, uint32_t *ret_n)
{
    *ret_n = pick(f, 20) ? pick(f, 4) : pick(f, 3000);
    return arena_alloc(f->a, size * (*ret_n + 1));
}

/* Any body of a schema, to some depth; enums may be of no known value. */
static void *body_pick(struct fuzz *f, const struct schema *s, int depth)
{
    char *body = arena_alloc(f->a, s->size);

    for (unsigned i = 0; i < s->n; i++) {
        const struct field *d = &s->fields[i];
        void *at = body + d->off;
        uint32_t n = 0;

        if (d->type == T_STR || d->type == T_QTY)
            *(const char **)at = "";
        if (pick(f, 3) == 0 && !(d->flags & FIELD_REQ))
            continue;
        if (d->type == T_STR || d->type == T_QTY) {
            *(const char **)at = name_pick(f);
        } else if (d->type == T_OBJ && depth > 0) {
            *(void **)at = body_pick(f, d->sub, depth - 1);
        } else if (d->type == T_LIST && depth > 0) {
            n = pick(f, 3);
            char *items = arena_alloc(f->a, d->sub->size * (n + 1));
            for (uint32_t k = 0; k < n; k++)
                memcpy(items + k * d->sub->size, body_pick(f, d->sub, depth - 1), d->sub->size);
            *(void **)at = items;
        } else if (d->type == T_STRS) {
            const char **items = list_pick(f, sizeof *items, &n);
            for (uint32_t k = 0; k < n; k++)
                items[k] = "x.dev/y";
            *(void **)at = items;
        } else if (d->type == T_I64S) {
            int64_t *items = list_pick(f, sizeof *items, &n);
            for (uint32_t k = 0; k < n; k++)
                items[k] = k;
            *(void **)at = items;
        } else if (d->type == T_ENUM) {
            *(int *)at = 1 + (int)pick(f, 6);
        } else if (d->type == T_BOOL) {
            *(bool *)at = pick(f, 2);
        } else if (d->type == T_F64 || d->type == T_PCT) {
            *(double *)at = (double)number_pick(f);
        } else if (d->type == T_I64 || d->type == T_DUR || d->type == T_TIME ||
                   d->type == T_BYTES || d->type == T_MILLI) {
            *(int64_t *)at = number_pick(f);
        }
        if (n)
            *(uint32_t *)(void *)(body + d->off_n) = n;
    }
    return body;
}

static void text_put(char *to, size_t n, const char *s)
{
    (void)snprintf(to, n, "%s", s);
}

/* One that can be placed, and run. */
static void workload_fit(struct fuzz *f, struct workload *w)
{
    w->spec = arena_new(f->a, struct workload_spec);
    w->spec->run = arena_new(f->a, struct run_spec);
    w->spec->run->script = "true";
    w->spec->run->retries = pick(f, 3);
    w->spec->resources = arena_new(f->a, struct resources);
    w->spec->resources->cpu = 1000;
    w->spec->resources->gpu = arena_new(f->a, struct gpu_request);
    w->spec->resources->gpu->count = 1;
}

static void node_fit(struct fuzz *f, struct node *n)
{
    n->spec = arena_new(f->a, struct node_spec);
    n->spec->target = "fra";
    n->spec->cpu = 64000;
    n->spec->memory = (int64_t)1 << 40;
    n->spec->gpus = arena_array(f->a, struct gpu, 8);
    n->spec->n_gpus = 8;
    for (uint32_t i = 0; i < 8; i++)
        n->spec->gpus[i] = (struct gpu){.index = i, .class_ = "h100", .model = "", .shared = true};
    n->status = NULL;
}

/* One that is acted upon, in a few ways. */
static void quota_fit(struct fuzz *f, struct resource_quota *q)
{
    static const char *const keys[] = {
        "count/decisions.hanse.dev", "count/events", "count/migrations.hanse.dev",
        "count/workloads.hanse.dev", QUOTA_BURST,    QUOTA_RATE};
    static const char *const values[] = {"0", "1", "3", "1G", "-1", "x"};

    q->spec = arena_new(f->a, struct resource_quota_spec);
    q->spec->hard = arena_array(f->a, struct kv, sizeof keys / sizeof keys[0]);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (pick(f, 2))
            q->spec->hard[q->spec->n_hard++] =
                (struct kv){keys[i], values[pick(f, sizeof values / sizeof values[0])]};
}

static void *named_body(struct fuzz *f, const struct kind *k, const char *ns, const char *name)
{
    bool odd = pick(f, 3) == 0;
    struct any_body *b = body_pick(f, k->schema, odd ? 3 : 1);

    if (!b->metadata || !odd) {
        b->metadata = arena_new(f->a, struct meta);
        b->metadata->uid = "";
    }
    if (k->id == KIND_WORKLOAD && !odd)
        workload_fit(f, (struct workload *)(void *)b);
    if (k->id == KIND_RESOURCE_QUOTA && !odd)
        quota_fit(f, (struct resource_quota *)(void *)b);
    if (k->id == KIND_NODE && !odd)
        node_fit(f, (struct node *)(void *)b);
    if (k->id == KIND_MIGRATION && !odd)
        ((struct migration *)(void *)b)->spec->workload = name_pick(f);
    for (uint32_t i = 0; i < b->metadata->n_ownerReferences; i++)
        b->metadata->ownerReferences[i].uid = arena_printf(f->a, "u%u", pick(f, 40));
    b->metadata->name = name;
    b->metadata->namespace_ = ns;
    if (strlen(b->metadata->uid) > 64 || !*b->metadata->uid)
        b->metadata->uid = arena_printf(f->a, "u%u", pick(f, 40));
    if (pick(f, 10) == 0) {
        struct kv *kv = arena_new(f->a, struct kv);
        size_t n = 1000u << pick(f, 9);
        char *v = arena_alloc(f->a, n + 1);

        memset(v, 1, n);
        *kv = (struct kv){"x.dev/large", v};
        b->metadata->annotations = kv;
        b->metadata->n_annotations = 1;
    }
    return b;
}

/* Also an array's count, which only admission looks at. */
static bool refused(const struct object *o)
{
    const struct workload_spec *s =
        o->kind->id == KIND_WORKLOAD ? object_as(o, workload)->spec : NULL;

    return object_validate(o, NULL) ||
           (s && s->array && (s->array->count < 1 || s->array->count > 100000));
}

static void op_pick(struct fuzz *f, struct write_op *op, bool deletes)
{
    static const enum kind_id kinds[] = {KIND_NAMESPACE,   KIND_WORKLOAD,   KIND_DATASET,
                                         KIND_QUEUE,       KIND_GPU_CLASS,  KIND_TARGET,
                                         KIND_MIGRATION,   KIND_EVENT,      KIND_DECISION,
                                         KIND_PRICE_SHEET, KIND_CHECKPOINT, KIND_RESOURCE_QUOTA};
    const struct kind *k =
        kind_by_id(pick(f, 3) ? kinds[pick(f, sizeof kinds / sizeof kinds[0])] : KIND_WORKLOAD);
    const char *ns = !k->namespaced ? "" : pick(f, 2) ? "default" : "team";

    *op = (struct write_op){.verb = deletes      ? WRITE_DELETE
                                    : pick(f, 2) ? WRITE_CREATE
                                                 : (enum write_verb)(1 + pick(f, 4)),
                            .kind = k->id};
    text_put(op->ns, sizeof op->ns, ns);
    text_put(op->name, sizeof op->name,
             k->id == KIND_NAMESPACE ? (pick(f, 2) ? "default" : "team") : name_pick(f));
    if (op->verb == WRITE_DELETE)
        return;
    (void)!object_make_within(k, named_body(f, k, ns, arena_strdup(f->a, op->name)),
                              LIMIT_OBJECT_MAX_BYTES, &op->object, NULL);
    if (op->object && refused(op->object)) /* no member proposes what it refuses */
        op->object = object_unref(op->object);
}

static void who(struct fuzz *f, char *ns, size_t ns_n, char *name, size_t name_n, char *uid,
                size_t uid_n, int64_t *epoch)
{
    const struct object *o;

    text_put(ns, ns_n, pick(f, 2) ? "default" : "team");
    text_put(name, name_n, name_pick(f));
    o = root_get(f->root, KIND_WORKLOAD, ns, name);
    text_put(uid, uid_n, o ? o->meta->uid : "none");
    *epoch = o ? object_as(o, workload)->status->epoch : number_pick(f);
}

static void place_pick(struct fuzz *f, struct placement **ret)
{
    struct placement *p = body_pick(f, &schema_placement, 2);

    if (pick(f, 2)) {
        struct assignment *a = arena_new(f->a, struct assignment);
        int64_t *gpus = arena_array(f->a, int64_t, 2);

        gpus[0] = pick(f, 70);
        gpus[0] = pick(f, 4) ? pick(f, 8) : gpus[0];
        *a = (struct assignment){.node = "fra.n0",
                                 .gpus = gpus,
                                 .n_gpus = pick(f, 8) ? 1 : pick(f, 3),
                                 .gpuMilli = pick(f, 8) ? 1000 : number_pick(f),
                                 .mig = ""};
        p->cpu = 1000;
        p->memory = 0;
        p->gpuHourPrice = pick(f, 8) ? 2 : p->gpuHourPrice;
        p->target = "fra";
        p->class_ = "h100";
        p->assignments = a;
        p->n_assignments = 1;
    }
    *ret = p;
}

static void facts_pick(struct fuzz *f, union command *c)
{
    struct node *nodes = arena_array(f->a, struct node, 4);

    c->facts.reach_told = pick(f, 2);
    c->facts.complete = pick(f, 2);
    c->facts.nodes = nodes;
    c->facts.n = pick(f, 4);
    text_put(c->facts.target, sizeof c->facts.target, pick(f, 4) ? "fra" : name_pick(f));
    for (uint32_t i = 0; i < c->facts.n; i++) {
        struct node *n = named_body(f, kind_by_id(KIND_NODE), "", arena_printf(f->a, "fra.n%u", i));

        if (pick(f, 8))
            n->spec = n->spec ? n->spec : body_pick(f, &schema_node_spec, 2);
        if (n->spec && pick(f, 8))
            n->spec->target = "fra";
        nodes[i] = *n;
    }
}

static void migrate_pick(struct fuzz *f, union command *c)
{
    struct migrate_cmd *m = &c->migrate;
    struct move_begin *b = arena_array(f->a, struct move_begin, 3);

    m->step = (enum move_step)(1 + pick(f, MOVE_ABORT));
    m->begins = b;
    m->n = pick(f, 3);
    m->outcome = (enum move_phase)pick(f, 12);
    who(f, m->ns, sizeof m->ns, m->name, sizeof m->name, m->uid, sizeof m->uid, &m->for_epoch);
    if (pick(f, 2))
        who(f, m->for_ns, sizeof m->for_ns, m->for_name, sizeof m->for_name, m->for_uid,
            sizeof m->for_uid, &m->for_epoch);
    for (uint32_t i = 0; i < m->n; i++) {
        who(f, b[i].ns, sizeof b[i].ns, b[i].workload, sizeof b[i].workload, b[i].uid,
            sizeof b[i].uid, &b[i].epoch);
        b[i].cause = (enum move_cause)(1 + pick(f, 12));
        if (pick(f, 2))
            place_pick(f, &b[i].placement);
        if (pick(f, 2))
            b[i].decision = body_pick(f, &schema_decision_spec, 2);
    }
    if (pick(f, 3) == 0)
        place_pick(f, &m->nominated);
}

static void member_pick(struct fuzz *f, union command *c)
{
    c->member.member.id = pick(f, 3);
    c->member.member.feature_level = pick(f, 4) ? FEATURE_GRANTS : pick(f, 7);
    text_put(c->member.member.name, sizeof c->member.member.name, "m");
    text_put(c->member.cluster_uid, sizeof c->member.cluster_uid, "c1");
}

static void run_pick(struct fuzz *f, struct run_cmd *c)
{
    c->step = (enum run_step)(1 + pick(f, STEP_CHECKPOINT_FOUND));
    c->proof = (enum proof)(1 + pick(f, 8));
    c->exit_code = number_pick(f);
    c->requeue = pick(f, 2);
    who(f, c->ns, sizeof c->ns, c->name, sizeof c->name, c->uid, sizeof c->uid, &c->epoch);
    const struct object *o = root_get(f->root, KIND_WORKLOAD, c->ns, c->name);
    const struct intent *in = o ? object_as(o, workload)->status->intent : NULL;
    c->try_ = (in ? in->try_ : 0) + (c->step == STEP_DISPATCH);
    if (pick(f, 2))
        c->checkpoint = body_pick(f, &schema_run_checkpoint, 2);
    text_put(c->reason, sizeof c->reason, name_pick(f));
}

/* A run that a target tells of: of a workload that is here, or of any. */
static void adopt_pick(struct fuzz *f, struct recover_cmd *c)
{
    const struct object *o = root_get(f->root, KIND_WORKLOAD, c->ns, c->name);
    const struct kind *k = kind_by_id(KIND_WORKLOAD);
    struct workload *w = o && pick(f, 4) ? object_edit(o, f->a) : named_body(f, k, c->ns, c->name);

    if (!w->status && pick(f, 8))
        w->status = body_pick(f, &schema_workload_status, 2);
    if (w->status && pick(f, 8))
        place_pick(f, &w->status->placement);
    c->epoch =
        pick(f, 4) && o ? object_as(o, workload)->status->epoch + pick(f, 3) : number_pick(f);
    c->try_ = pick(f, 4) ? 1 + pick(f, 3) : number_pick(f);
    c->ended = pick(f, 3) == 0;
    c->requeue = pick(f, 2);
    c->exit_code = number_pick(f);
    c->proof = (enum proof)(1 + pick(f, 8));
    if (pick(f, 3) == 0)
        c->checkpoint = body_pick(f, &schema_run_checkpoint, 2);
    text_put(c->uid, sizeof c->uid, w->metadata->uid);
    c->ops = arena_new(f->a, struct write_op);
    *c->ops = (struct write_op){.verb = WRITE_CREATE, .kind = KIND_WORKLOAD};
    (void)!object_make_within(k, w, LIMIT_OBJECT_MAX_BYTES, &c->ops->object, NULL);
    c->n = c->ops->object && pick(f, 16) ? 1 : 0;
    if (!c->n)
        c->ops->object = object_unref(c->ops->object);
}

static void recover_pick(struct fuzz *f, struct recover_cmd *c)
{
    int64_t unused;

    c->step = (enum recover_step)(1 + pick(f, RECOVER_SETTLE));
    if (pick(f, 3))
        c->step = RECOVER_ADOPT;
    who(f, c->ns, sizeof c->ns, c->name, sizeof c->name, c->uid, sizeof c->uid, &unused);
    if (c->step == RECOVER_BEGIN && pick(f, 3) == 0)
        c->rv = (uint64_t)number_pick(f);
    if (c->step == RECOVER_BEGIN && pick(f, 3) == 0)
        text_put(c->cluster_uid, sizeof c->cluster_uid, pick(f, 2) ? "c1.1" : "c1");
    if (c->step == RECOVER_ADOPT)
        adopt_pick(f, c);
    if (c->step == RECOVER_SETTLE) {
        c->ops = arena_new(f->a, struct write_op);
        c->n = 1;
        *c->ops = (struct write_op){.verb = WRITE_DELETE, .kind = KIND_TARGET};
        text_put(c->ops->name, sizeof c->ops->name, pick(f, 8) ? "fra" : name_pick(f));
    }
}

static void command_pick(struct fuzz *f, union command *c)
{
    static const enum command_type types[] = {
        CMD_WRITE,  CMD_WRITE,  CMD_WRITE,   CMD_PLACE,   CMD_RUN,     CMD_RUN,    CMD_FACTS,
        CMD_MEMBER, CMD_REMOVE, CMD_MIGRATE, CMD_ARCHIVE, CMD_COLLECT, CMD_RECOVER};
    struct write_op *ops = arena_array(f->a, struct write_op, 4);
    uint32_t n = 1 + pick(f, 3);

    *c = (union command){.head = {.type = types[pick(f, sizeof types / sizeof types[0])]}};
    text_put(c->head.user, sizeof c->head.user, name_pick(f));
    if (pick(f, 4) == 0)
        text_put(c->head.request_id, sizeof c->head.request_id, name_pick(f));
    if (c->head.type == CMD_WRITE || c->head.type == CMD_REMOVE || c->head.type == CMD_ARCHIVE)
        for (uint32_t i = 0; i < n; i++)
            op_pick(f, &ops[i], c->head.type != CMD_WRITE);
    if (c->head.type == CMD_WRITE) {
        c->write.ops = ops;
        c->write.n = n;
    } else if (c->head.type == CMD_REMOVE) {
        c->remove.ops = ops;
        c->remove.n = n;
    } else if (c->head.type == CMD_ARCHIVE) {
        c->archive.ops = ops;
        c->archive.n = n;
        c->archive.close_bytes = pick(f, 2) ? ARCHIVE_CLOSE_MIN_BYTES : (uint64_t)number_pick(f);
        c->archive.close_after_ms = number_pick(f);
    } else if (c->head.type == CMD_PLACE) {
        who(f, c->place.ns, sizeof c->place.ns, c->place.name, sizeof c->place.name, c->place.uid,
            sizeof c->place.uid, &c->place.epoch);
        c->place.decision = pick(f, 8) ? body_pick(f, &schema_decision_spec, 2) : NULL;
        if (pick(f, 4))
            place_pick(f, &c->place.placement);
    } else if (c->head.type == CMD_RUN) {
        run_pick(f, &c->run);
    } else if (c->head.type == CMD_FACTS) {
        facts_pick(f, c);
    } else if (c->head.type == CMD_MEMBER) {
        member_pick(f, c);
    } else if (c->head.type == CMD_MIGRATE) {
        migrate_pick(f, c);
    } else if (c->head.type == CMD_RECOVER) {
        recover_pick(f, &c->recover);
    } else {
        c->collect.objects = pick(f, 8) ? 1 + pick(f, 50) : (uint32_t)pick(f, 10000);
        c->collect.bytes = pick(f, 8) ? 1 + pick(f, 1 << 20) : (uint64_t)number_pick(f);
    }
}

static void result_seen(const struct result *r, void *arg)
{
    struct fuzz *f = arg;

    INV(r->code <= 0);
    f->taken.n[f->type] += r->code == 0;
}

static void command_take(struct fuzz *f, union command *c, int64_t now)
{
    AUTO_BUF b;
    AUTO_BUF entry;
    struct err e = {0};
    unsigned char n[4];

    buf_init(&b, LIMIT_COMMAND_MAX_BYTES);
    buf_init(&entry, LIMIT_ENTRY_MAX_BYTES);
    f->type = c->head.type;
    command_encode(c, &b);
    command_release(c);
    (void)command_cost(f->root, slice_make(b.p, b.n));
    if (b.failed)
        return;
    f->number++;
    entry_begin(&entry, &(struct entry_head){f->number, 1, now});
    entry_add(&entry, slice_make(b.p, b.n));
    entry_end(&entry);
    le_put_u32(n, (uint32_t)entry.n);
    buf_add(&f->log, n, 4);
    buf_add(&f->log, entry.p, entry.n);
    int r = store_apply(&f->root, f->number, 1, slice_make(entry.p, entry.n), result_seen, f, &e);
    INV(r == 0 || r == E_NOTIMPL); /* a step of no known number */
    if (r)
        f->root->index = f->root->number = f->number; /* others know it: not of interest here */
}

/* A pool and namespaces to begin with. */
static void prelude(struct fuzz *f)
{
    static const struct {
        enum kind_id kind;
        const char *name;
    } all[] = {{KIND_NAMESPACE, "default"}, {KIND_NAMESPACE, "team"}, {KIND_TARGET, "fra"}};
    union command c = {.write = {.head = {.type = CMD_WRITE},
                                 .ops = arena_array(f->a, struct write_op, 3),
                                 .n = 3}};

    for (uint32_t i = 0; i < 3; i++) {
        const struct kind *k = kind_by_id(all[i].kind);
        struct any_body *b = arena_alloc(f->a, k->schema->size);

        b->metadata = arena_new(f->a, struct meta);
        b->metadata->name = all[i].name;
        b->metadata->uid = all[i].name;
        if (k->id == KIND_TARGET)
            ((struct target *)(void *)b)->spec = arena_new(f->a, struct target_spec);
        c.write.ops[i] =
            (struct write_op){.verb = WRITE_CREATE, .kind = k->id, .object = object_make(k, b)};
        text_put(c.write.ops[i].name, sizeof c.write.ops[i].name, all[i].name);
    }
    command_take(f, &c, 1);
    c = (union command){.facts = {.head = {.type = CMD_FACTS},
                                  .target = "fra",
                                  .reach_told = true,
                                  .reachable = true,
                                  .complete = true,
                                  .n = 1}};
    c.facts.nodes = arena_new(f->a, struct node);
    c.facts.nodes->metadata = arena_new(f->a, struct meta);
    c.facts.nodes->metadata->name = "fra.n0";
    node_fit(f, c.facts.nodes);
    command_take(f, &c, 2);
}

static void again(struct fuzz *f)
{
    struct root *r = root_create(), *loaded = NULL;
    struct err e = {0};
    AUTO_BUF b;
    uint64_t number = 0;

    buf_init(&b, (size_t)1 << 30);
    for (size_t at = 0; at < f->log.n;) {
        size_t n = le_get_u32((unsigned char *)f->log.p + at);

        number++;
        if (store_apply(&r, number, 1, slice_make(f->log.p + at + 4, n), NULL, NULL, &e))
            r->index = r->number = number;
        at += 4 + n;
    }
    INV(root_digest(r) == root_digest(f->root));
    (void)root_unref(r);
    root_check(f->root);
    int rc = snapshot_encode(f->root, &b, &e);
    INV(rc == 0);
    rc = snapshot_decode(slice_make(b.p, b.n), &loaded, &e);
    if (rc)
        (void)fprintf(stderr, "%s\n", e.text);
    INV(rc == 0 && root_digest(loaded) == root_digest(f->root));
    (void)root_unref(loaded);
}

int fuzz_apply_counted(const uint8_t *data, size_t size, struct fuzz_taken *ret)
{
    struct fuzz f = {
        .p = data, .n = size, .root = root_create(), .a = arena_create((size_t)1 << 30)};
    uint32_t commands;

    buf_init(&f.log, (size_t)1 << 30);
    prelude(&f);
    commands = 20 + pick(&f, 200);
    for (uint32_t i = 0; i < commands; i++) {
        union command c;

        command_pick(&f, &c);
        command_take(&f, &c, 1800000000000 + (int64_t)i * 60000);
        arena_reset(f.a);
    }
    again(&f);
    for (unsigned i = 0; i < sizeof ret->n / sizeof ret->n[0]; i++)
        ret->n[i] += f.taken.n[i];
    f.root = root_unref(f.root);
    f.a = arena_destroy(f.a);
    buf_fini(&f.log);
    (void)tree_reap(SIZE_MAX);
    return 0;
}

int fuzz_apply(const uint8_t *data, size_t size)
{
    struct fuzz_taken taken = {{0}};

    return fuzz_apply_counted(data, size, &taken);
}

#ifndef FUZZ_IN_TEST
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_apply(data, size);
}
#endif
