/* Large things in the small world: an owner with hundreds of children, a namespace with a crowd in
 * it, GpuClasses rewritten below many nodes, objects near their size limit, orders that no runner
 * can take; all while members crash and clocks step. One of them a seed, one step after the other:
 * a step is one command, sent again under its id until its answer is known, so that what must be
 * there at the end is known exactly.
 *
 * Must never touch what the other users have. */
#include "tests/sim/federation/sim_federation.h"

#include "api/base/limits.h"
#include "controlplane/store/store_internal.h"

#include <stdio.h>
#include <string.h>

#define NS "bulk"
#define HALL "hall"
#define CHILDREN 320
#define CHILDREN_ANEW 12 /* of them, under their names, as their old ones go */
#define CROWD 2400
#define CROWD_AFTER 8
#define NODES 150
#define CLASSES 5 /* times that the hall's GpuClass is another */
#define LARGE 6
#define OPS 60 /* of a command */
#define OPS_BYTES (2u << 20)
#define LARGE_BYTES ((size_t)250 << 10)
#define DEADLINE_MS 8000
#define AGAIN_MS 700

/* A slice of COLLECT: 256 objects, 1 MiB and one object more. What an entry may change besides:
 * the commands that share it. */
#define ENTRY_CHANGES (256 + 128)
#define ENTRY_REMOVED_BYTES ((2u << 20) + LIMIT_OBJECT_MAX_BYTES)

static const char *const tales[BULK_NR] = {"none", "owner", "crowd", "hall", "large"};

struct ops {
    struct fed *f;
    struct arena *a;
    struct write_op v[OPS];
    uint32_t n;
    size_t bytes;
};
struct asked {
    struct fed *f;
    unsigned request;
};

/* ---- what is made ---- */
/* Control characters take six bytes of JSON each, and one of the log. */
static const char *text_of(struct arena *a, size_t n)
{
    char *s = arena_alloc(a, n + 1);

    memset(s, 1, n);
    s[n] = '\0';
    return s;
}
static bool op_add(struct ops *o, enum write_verb verb, enum kind_id kind, const char *ns,
                   const char *name, const void *body)
{
    if (o->n == OPS || o->bytes > OPS_BYTES)
        return false;
    struct write_op *op = &o->v[o->n++];
    fed_op(op, verb, kind, ns, name, body);
    o->bytes += op->object ? op->object->bytes : 64;
    return true;
}
static void owned_by(struct arena *a, struct meta *m, const char *const *uids, uint32_t n)
{
    m->ownerReferences = arena_array(a, struct owner_ref, n);
    m->n_ownerReferences = n;
    for (uint32_t i = 0; i < n; i++)
        m->ownerReferences[i] = (struct owner_ref){.apiVersion = "hanse.dev/v1alpha1",
                                                   .kind = "Dataset",
                                                   .name = arena_strdup(a, uids[i]),
                                                   .uid = arena_strdup(a, uids[i])};
}
static struct dataset *dataset_make(struct arena *a, const char *name, const char *uid,
                                    size_t bytes)
{
    struct dataset *d = arena_new(a, struct dataset);

    d->metadata = fed_meta(a, NS, arena_strdup(a, name), arena_strdup(a, uid));
    d->spec = arena_new(a, struct dataset_spec);
    if (bytes) {
        d->metadata->annotations = arena_new(a, struct kv);
        *d->metadata->annotations = (struct kv){"bulk.dev/large", text_of(a, bytes)};
        d->metadata->n_annotations = 1;
    }
    return d;
}
/* Held: it waits for nobody, and goes at once. Or, with arguments that no runner can take, not. */
static struct workload *workload_make(struct arena *a, const char *name, const char *uid,
                                      bool too_large)
{
    struct workload *w = arena_new(a, struct workload);

    w->metadata = fed_meta(a, NS, arena_strdup(a, name), arena_strdup(a, uid));
    w->spec = arena_new(a, struct workload_spec);
    w->spec->suspend = !too_large;
    w->spec->run = arena_new(a, struct run_spec);
    w->spec->run->script = "true";
    w->spec->resources = arena_new(a, struct resources);
    w->spec->resources->cpu = 100;
    w->spec->gang = arena_new(a, struct gang);
    w->spec->gang->workers = 1;
    if (too_large) {
        const char **args = arena_array(a, const char *, 800);
        for (unsigned i = 0; i < 800; i++)
            args[i] = text_of(a, 1000);
        w->spec->run->args = args;
        w->spec->run->n_args = 800;
    }
    return w;
}

/* ---- children: 0 to 319; each tenth has another owner besides, who lives ---- */
static void child_name(unsigned i, char out[32])
{
    (void)snprintf(out, 32, "child-%03u", i);
}
static bool child_kept(unsigned i)
{
    return i % 10 == 3;
}
static bool child_workload(unsigned i)
{
    return i % 16 == 8;
}
static unsigned child_anew(unsigned k)
{
    return k * (CHILDREN / CHILDREN_ANEW); /* multiples of 26: neither kept, some a Workload */
}
static bool child_add(struct ops *o, unsigned i)
{
    static const char *const owners[] = {"uid-bulk-owner", "uid-bulk-keeper"};
    char name[32], uid[48];
    void *body;

    child_name(i, name);
    (void)snprintf(uid, sizeof uid, "uid-%s", name);
    if (child_workload(i))
        body = workload_make(o->a, name, uid, false);
    else
        body = dataset_make(o->a, name, uid,
                            i % 80 == 1 ? LARGE_BYTES + fed_below(o->f, 5 * LARGE_BYTES) : 0);
    owned_by(o->a, ((struct any_body *)body)->metadata, owners, child_kept(i) ? 2 : 1);
    return op_add(o, WRITE_CREATE, child_workload(i) ? KIND_WORKLOAD : KIND_DATASET, NS, name,
                  body);
}
static bool child_again(struct ops *o, unsigned k)
{
    char name[32], uid[48];

    child_name(child_anew(k), name);
    (void)snprintf(uid, sizeof uid, "uid-again-%u", k);
    return op_add(o, WRITE_CREATE, KIND_DATASET, NS, name, dataset_make(o->a, name, uid, 0));
}

/* ---- the tales: what one stage asks for; false: nothing any more ---- */
static bool newest_has(const struct fed *f, enum kind_id kind, const char *ns, const char *name)
{
    return f->newest && root_get(f->newest, kind, ns, name);
}
static void namespace_add(struct ops *o, const char *uid)
{
    struct namespace_ *ns = arena_new(o->a, struct namespace_);

    ns->metadata = fed_meta(o->a, "", NS, uid);
    (void)op_add(o, WRITE_CREATE, KIND_NAMESPACE, "", NS, ns);
}

/* Namespace and owners; children; the owner goes; as its children go, some are made anew, and the
 * owner, too. */
static bool owner_stage(struct ops *o)
{
    struct fed *f = o->f;
    char name[32];

    switch (f->bulk.stage) {
    case 0:
        namespace_add(o, "uid-bulk-1");
        (void)op_add(o, WRITE_CREATE, KIND_DATASET, NS, "uid-bulk-owner",
                     dataset_make(o->a, "uid-bulk-owner", "uid-bulk-owner", 0));
        (void)op_add(o, WRITE_CREATE, KIND_DATASET, NS, "uid-bulk-keeper",
                     dataset_make(o->a, "uid-bulk-keeper", "uid-bulk-keeper", 0));
        return true;
    case 1:
        for (unsigned i = f->bulk.done; i < CHILDREN && child_add(o, i); i++)
            f->bulk.next = i + 1;
        return f->bulk.next >= CHILDREN || (f->bulk.more = true);
    case 2:
        return op_add(o, WRITE_DELETE, KIND_DATASET, NS, "uid-bulk-owner", NULL);
    case 3: /* another of its name */
        return op_add(o, WRITE_CREATE, KIND_DATASET, NS, "uid-bulk-owner",
                      dataset_make(o->a, "uid-bulk-owner", "uid-bulk-owner-2", 0));
    case 4:
        for (unsigned k = f->bulk.done; k < CHILDREN_ANEW; k++) {
            child_name(child_anew(k), name);
            if (newest_has(f, child_workload(child_anew(k)) ? KIND_WORKLOAD : KIND_DATASET, NS,
                           name) ||
                !child_again(o, k))
                break;
            f->bulk.next = k + 1;
        }
        return f->bulk.next >= CHILDREN_ANEW || (f->bulk.more = true);
    default:
        return false;
    }
}

/* A namespace with a crowd in it goes, and comes again. */
static bool crowd_stage(struct ops *o)
{
    struct fed *f = o->f;
    unsigned last = f->bulk.stage == 1 ? CROWD : CROWD_AFTER;
    char name[32], uid[48];

    switch (f->bulk.stage) {
    case 0:
    case 3:
        if (newest_has(f, KIND_NAMESPACE, "", NS)) {
            f->bulk.more = true; /* not yet gone */
            return true;
        }
        namespace_add(o, f->bulk.stage ? "uid-bulk-2" : "uid-bulk-1");
        return true;
    case 1:
    case 4:
        for (unsigned i = f->bulk.done; i < last; i++) {
            bool workload = i % 50 == 0 && f->bulk.stage == 1;
            (void)snprintf(name, sizeof name, "one-%04u", i);
            (void)snprintf(uid, sizeof uid, "uid-%u-%s", f->bulk.stage, name);
            if (!(workload ? op_add(o, WRITE_CREATE, KIND_WORKLOAD, NS, name,
                                    workload_make(o->a, name, uid, false))
                           : op_add(o, WRITE_CREATE, KIND_DATASET, NS, name,
                                    dataset_make(o->a, name, uid, i % 400 ? 0 : LARGE_BYTES))))
                break;
            f->bulk.next = i + 1;
        }
        return f->bulk.next >= last || (f->bulk.more = true);
    case 2:
        return op_add(o, WRITE_DELETE, KIND_NAMESPACE, "", NS, NULL);
    default:
        return false;
    }
}

/* A Target whose inventory somebody reports, drained: nobody works there. */
static void hall_nodes(struct ops *o, union command *c)
{
    struct fed *f = o->f;
    unsigned from = f->bulk.done, to = from + OPS < NODES ? from + OPS : NODES;
    struct node *n = arena_array(o->a, struct node, to - from);

    for (unsigned i = from; i < to; i++) {
        struct node *x = &n[i - from];
        x->metadata = fed_meta(o->a, "", arena_printf(o->a, HALL ".n%03u", i), "");
        x->spec = arena_new(o->a, struct node_spec);
        x->spec->target = HALL;
        x->spec->gpus = arena_array(o->a, struct gpu, 2);
        x->spec->n_gpus = 2;
        x->status = arena_new(o->a, struct node_status);
        x->status->health = HEALTH_READY;
        for (int g = 0; g < 2; g++)
            x->spec->gpus[g] = (struct gpu){
                .index = g, .model = "Hall GPU", .class_ = "", .uuid = "", .health = HEALTH_READY};
    }
    c->head.type = CMD_FACTS;
    c->facts = (struct facts_cmd){.head = c->head, .target = HALL, .nodes = n, .n = to - from};
    f->bulk.next = to;
}
static bool class_add(struct ops *o, enum write_verb verb, unsigned k)
{
    static const char *const aliases[] = {"Hall GPU"};
    struct gpu_class *g = arena_new(o->a, struct gpu_class);
    char *name = arena_printf(o->a, "hall-%u", k);

    g->metadata = fed_meta(o->a, "", name, arena_printf(o->a, "uid-%s", name));
    g->spec = arena_new(o->a, struct gpu_class_spec);
    g->spec->aliases = arena_memdup(o->a, aliases, sizeof aliases);
    g->spec->n_aliases = 1;
    return op_add(o, verb, KIND_GPU_CLASS, "", name, verb == WRITE_DELETE ? NULL : g);
}
static bool hall_stage(struct ops *o, union command *c)
{
    struct fed *f = o->f;
    struct target *t;

    switch (f->bulk.stage) {
    case 0:
        t = arena_new(o->a, struct target);
        t->metadata = fed_meta(o->a, "", HALL, "uid-hall");
        t->spec = arena_new(o->a, struct target_spec);
        t->spec->type = TARGET_AGENT;
        t->spec->tier = TIER_BURST;
        t->spec->drain = true;
        (void)op_add(o, WRITE_CREATE, KIND_TARGET, "", HALL, t);
        return class_add(o, WRITE_CREATE, 0);
    case 1:
        hall_nodes(o, c);
        return f->bulk.next >= NODES || (f->bulk.more = true);
    case 2: /* one goes as another comes, some before the last is carried through */
        (void)class_add(o, WRITE_DELETE, f->bulk.done);
        f->bulk.next = f->bulk.done + 1;
        (void)class_add(o, WRITE_CREATE, f->bulk.next);
        return f->bulk.next >= CLASSES || (f->bulk.more = true);
    default:
        return false;
    }
}

/* Objects near their limit, rewritten; orders that no runner can take. */
static bool large_stage(struct ops *o)
{
    struct fed *f = o->f;
    unsigned i = f->bulk.done;
    char name[32], uid[48];

    if (f->bulk.stage == 0) {
        namespace_add(o, "uid-bulk-1");
        return true;
    }
    if (f->bulk.stage > 3)
        return false;
    (void)snprintf(name, sizeof name, "large-%u", i);
    (void)snprintf(uid, sizeof uid, "uid-%s", name);
    size_t bytes = LARGE_BYTES + fed_below(f, LIMIT_OBJECT_MAX_BYTES - LARGE_BYTES - 4096);
    if (f->bulk.stage == 3) /* every other one goes */
        (void)op_add(o, WRITE_DELETE, i % 2 ? KIND_WORKLOAD : KIND_DATASET, NS,
                     i % 2 ? "order-0" : "large-0", NULL);
    else if (f->bulk.stage == 1 && i % 2) {
        (void)snprintf(name, sizeof name, "order-%u", i / 2);
        (void)snprintf(uid, sizeof uid, "uid-%s", name);
        (void)op_add(o, WRITE_CREATE, KIND_WORKLOAD, NS, name,
                     workload_make(o->a, name, uid, true));
    } else if (f->bulk.stage == 1 || i % 2 == 0)
        (void)op_add(o, f->bulk.stage == 1 ? WRITE_CREATE : WRITE_UPDATE, KIND_DATASET, NS, name,
                     dataset_make(o->a, name, uid, bytes));
    f->bulk.next = i + 1;
    return f->bulk.next >= (f->bulk.stage == 3 ? 2 : LARGE) || (f->bulk.more = true);
}

static bool stage(struct ops *o, union command *c)
{
    switch (o->f->bulk.tale) {
    case BULK_OWNER:
        return owner_stage(o);
    case BULK_CROWD:
        return crowd_stage(o);
    case BULK_HALL:
        return hall_stage(o, c);
    case BULK_LARGE:
        return large_stage(o);
    default:
        return false;
    }
}

/* ---- one command after the other ---- */
static void stage_done(struct fed *f)
{
    f->bulk.n_requests++;
    f->bulk.done = f->bulk.next;
    if (f->bulk.more)
        return;
    f->bulk.stage++;
    f->bulk.done = f->bulk.next = 0;
    sim_log(f->w, "bulk: %s, stage %u", tales[f->bulk.tale], f->bulk.stage);
}
static void answered(void *arg, const struct result *r, const struct err *err)
{
    struct asked *x = arg;
    struct fed *f = x->f;
    bool late = x->request != f->bulk.n_requests; /* of one that was sent again */

    mem_free(x);
    if (late)
        return;
    f->bulk.asked_until_ms = 0;
    if (err) /* again, under its id: never carried out twice */
        return;
    mem_free(f->bulk.bytes);
    f->bulk.bytes = NULL;
    if (r->code && r->code != E_EXISTS)
        fed_fail(f, "bulk: %s, stage %u: %s", tales[f->bulk.tale], f->bulk.stage, r->text);
    stage_done(f);
}
/* The bytes are kept until the answer is known. */
static bool command_make(struct fed *f)
{
    AUTO_ARENA a = arena_create(0);
    AUTO_BUF bytes;
    struct ops o = {.f = f, .a = a};
    union command c = {.head = {.type = CMD_WRITE, .user = "bulk"}};

    buf_init(&bytes, LIMIT_COMMAND_MAX_BYTES);
    f->bulk.more = false;
    f->bulk.next = f->bulk.done;
    if (!stage(&o, &c)) {
        f->bulk.over = true;
        return false;
    }
    if (c.head.type == CMD_WRITE && o.n == 0) { /* it waits for something */
        if (!f->bulk.more || f->bulk.next > f->bulk.done)
            stage_done(f);
        return false;
    }
    (void)snprintf(c.head.request_id, sizeof c.head.request_id, "bulk-%u", f->bulk.n_requests);
    if (c.head.type == CMD_WRITE) {
        c.write.ops = o.v;
        c.write.n = o.n;
    }
    command_encode(&c, &bytes);
    INV(!bytes.failed);
    f->bulk.bytes = mem_alloc(bytes.n);
    f->bulk.n_bytes = bytes.n;
    memcpy(f->bulk.bytes, bytes.p, bytes.n);
    for (uint32_t i = 0; i < o.n; i++)
        o.v[i].object = object_unref(o.v[i].object);
    return true;
}
static void tick(void *arg)
{
    struct fed *f = arg;
    struct sim_member *m = fed_member_pick(f);
    uint64_t now = sim_now_ms(f->w);
    char id[REQUEST_ID_MAX];

    if (f->bulk.over)
        return;
    /* Whoever comes again does so between two slices. */
    bool soon = f->bulk.tale == BULK_OWNER && f->bulk.stage >= 2;
    sim_at(f->w, now + (soon ? 1 + fed_below(f, 30) : 100 + fed_below(f, AGAIN_MS)), tick, f);
    if (!m || !f->docs || now < f->bulk.asked_until_ms || (!f->bulk.bytes && !command_make(f)))
        return;
    struct asked *x = mem_new(struct asked);
    *x = (struct asked){f, f->bulk.n_requests};
    (void)snprintf(id, sizeof id, "bulk-%u", f->bulk.n_requests);
    f->bulk.asked_until_ms = now + DEADLINE_MS + 1000; /* who crashes does not answer */
    core_propose(m->core, m->loop, id, slice_make(f->bulk.bytes, f->bulk.n_bytes), DEADLINE_MS,
                 answered, x);
}

/* One seed of eight each. */
enum fed_bulk_tale fed_bulk_tale(uint64_t seed)
{
    uint64_t tale = seed / FED_PROFILE_NR % ((uint64_t)2 * (BULK_NR - 1));

    return tale < BULK_NR ? (enum fed_bulk_tale)tale : BULK_NONE;
}
void fed_bulk_start(struct fed *f, uint64_t seed)
{
    f->bulk.tale = fed_bulk_tale(seed);
    f->bulk.over = f->bulk.tale == BULK_NONE;
    if (!f->bulk.over)
        sim_at(f->w, 6000, tick, f);
}

/* ---- what must hold ---- */
static bool exists_as(const struct root *r, enum kind_id kind, const char *name, const char *uid)
{
    const struct object *o = root_get(r, kind, NS, name);

    return o && !strcmp(o->meta->uid, uid);
}
static bool count_each(const struct object *o, void *arg)
{
    (void)o;
    ++*(uint64_t *)arg;
    return true;
}
/* Events and the like tell of them; they are not asked for. */
static uint64_t count_in(const struct root *r)
{
    uint64_t n = 0;

    root_scan(r, KIND_DATASET, NS, NULL, NULL, count_each, &n);
    root_scan(r, KIND_WORKLOAD, NS, NULL, NULL, count_each, &n);
    return n;
}
static void check_owner(struct fed *f, const struct root *r)
{
    uint64_t want = 2; /* keeper, and the owner that came after */
    char name[32], uid[48];

    for (unsigned i = 0; i < CHILDREN; i++) {
        child_name(i, name);
        (void)snprintf(uid, sizeof uid, "uid-%s", name);
        enum kind_id kind = child_workload(i) ? KIND_WORKLOAD : KIND_DATASET;
        if (child_kept(i) != exists_as(r, kind, name, uid))
            fed_fail(f, "B1: %s %s", name,
                     child_kept(i) ? "is gone, and one of its owners lives"
                                   : "is left, and its owner went");
        const struct object *o = child_kept(i) ? root_get(r, kind, NS, name) : NULL;
        if (o && o->meta->n_ownerReferences != 1)
            fed_fail(f, "B1: %s still names the owner that went", name);
        want += child_kept(i);
    }
    for (unsigned k = 0; k < CHILDREN_ANEW; k++) {
        child_name(child_anew(k), name);
        (void)snprintf(uid, sizeof uid, "uid-again-%u", k);
        want++;
        if (!exists_as(r, KIND_DATASET, name, uid))
            fed_fail(f, "B1: %s was made anew as its old one went, and is gone", name);
    }
    if (!exists_as(r, KIND_DATASET, "uid-bulk-owner", "uid-bulk-owner-2") ||
        !exists_as(r, KIND_DATASET, "uid-bulk-keeper", "uid-bulk-keeper"))
        fed_fail(f, "B1: an owner that was not deleted is gone");
    if (count_in(r) != want)
        fed_fail(f, "B1: %llu objects are in the namespace, not %llu",
                 (unsigned long long)count_in(r), (unsigned long long)want);
}
static void check_crowd(struct fed *f, const struct root *r)
{
    const struct object *ns = root_get(r, KIND_NAMESPACE, "", NS);
    char name[32], uid[48];

    if (!ns || strcmp(ns->meta->uid, "uid-bulk-2") != 0)
        fed_fail(f, "B2: the namespace that came again is gone");
    for (unsigned i = 0; i < CROWD_AFTER; i++) {
        (void)snprintf(name, sizeof name, "one-%04u", i);
        (void)snprintf(uid, sizeof uid, "uid-4-%s", name);
        if (!exists_as(r, KIND_DATASET, name, uid))
            fed_fail(f, "B2: %s came after its namespace went, and is gone", name);
    }
    if (count_in(r) != CROWD_AFTER)
        fed_fail(f, "B2: %llu objects are in the namespace, not %u",
                 (unsigned long long)count_in(r), CROWD_AFTER);
}
static void check_hall(struct fed *f, const struct root *r)
{
    const struct object *t = root_get(r, KIND_TARGET, "", HALL);
    const struct target_status *s = t ? object_as(t, target)->status : NULL;
    char name[64], class_[32];

    (void)snprintf(class_, sizeof class_, "hall-%u", CLASSES);
    for (unsigned i = 0; i < NODES; i++) {
        (void)snprintf(name, sizeof name, HALL ".n%03u", i);
        const struct object *o = root_get(r, KIND_NODE, "", name);
        const struct node_spec *n = o ? object_as(o, node)->spec : NULL;
        if (!n || n->n_gpus != 2 || strcmp(n->gpus[0].class_, class_) != 0 ||
            strcmp(n->gpus[1].class_, class_) != 0)
            fed_fail(f, "B3: %s is %s, not %s", name, n ? n->gpus[0].class_ : "gone", class_);
    }
    if (!s || s->n_gpus != 1 || strcmp(s->gpus[0].class_, class_) != 0 ||
        s->gpus[0].total != (int64_t)2 * NODES)
        fed_fail(f, "B3: the Target does not tell its %d %s", 2 * NODES, class_);
}
static void check_large(struct fed *f, const struct root *r)
{
    char name[32], uid[48];

    for (unsigned i = 0; i < LARGE; i++) {
        bool order = i % 2;
        (void)snprintf(name, sizeof name, order ? "order-%u" : "large-%u", order ? i / 2 : i);
        (void)snprintf(uid, sizeof uid, "uid-%s", name);
        enum kind_id kind = order ? KIND_WORKLOAD : KIND_DATASET;
        if (exists_as(r, kind, name, uid) != (i > 1))
            fed_fail(f, "B4: %s %s", name, i > 1 ? "is gone" : "is left");
        const struct object *o = order && i > 1 ? root_get(r, kind, NS, name) : NULL;
        const struct workload_status *s = o ? object_as(o, workload)->status : NULL;
        if (s && (s->phase != PHASE_FAILED || s->n_ends == 0 ||
                  strcmp(s->ends[s->n_ends - 1].reason, "OrderTooLarge") != 0))
            fed_fail(f, "B4: %s is %s (%s), and no runner can take it", name, phase_text(s->phase),
                     s->reason);
    }
}

bool fed_bulk_settled(struct fed *f)
{
    return f->bulk.over && f->newest && !root_collect_due(f->newest);
}

void fed_check_bulk_end(struct fed *f, const struct root *r)
{
    if (f->bulk.tale == BULK_NONE)
        return;
    if (!f->bulk.over || root_collect_due(r)) {
        fed_fail(f, "B0: %s is not carried through: stage %u at %u%s", tales[f->bulk.tale],
                 f->bulk.stage, f->bulk.done, root_collect_due(r) ? ", and slices are due" : "");
        return;
    }
    if (f->bulk.tale == BULK_OWNER)
        check_owner(f, r);
    else if (f->bulk.tale == BULK_CROWD)
        check_crowd(f, r);
    else if (f->bulk.tale == BULK_HALL)
        check_hall(f, r);
    else
        check_large(f, r);
}

/* ---- B5: no entry does more than a slice ---- */
void fed_bulk_change(struct fed *f, const struct change *c)
{
    f->bulk.changes++;
    if (!c->after && c->before)
        f->bulk.removed_bytes += c->before->bytes;
}
void fed_check_bulk_root(struct fed *f, const struct root *r)
{
    uint64_t entries = f->newest ? root_number(r) - root_number(f->newest) : 0;

    if (f->newest && (f->bulk.changes > entries * ENTRY_CHANGES ||
                      f->bulk.removed_bytes > entries * ENTRY_REMOVED_BYTES))
        fed_fail(f, "B5: %llu entries up to %llu changed %llu objects and removed %llu bytes",
                 (unsigned long long)entries, (unsigned long long)root_number(r),
                 (unsigned long long)f->bulk.changes, (unsigned long long)f->bulk.removed_bytes);
    f->bulk.changes = f->bulk.removed_bytes = 0;
}
