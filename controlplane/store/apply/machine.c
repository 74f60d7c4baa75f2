/* MACHINE: one step of a machine (connectors/machines.h). The order is made here, from the Target
 * as it is then, so that what is in the log is what was ordered, under a key that nothing else has.
 *
 * A machine that was ordered must never leave the state before it has ended: until then it costs.
 * One that is let go must never be renewed, and nothing may be placed on it; and none is let go
 * while a run is held on it. A Target's status.machines must be what its machines say. */
#include "controlplane/store/store_internal.h"

#include "api/base/failpoint.h"
#include "policy/policy.h"

#include <stdio.h>

#define MACHINE_STALE(t, ...) err_set((t)->err, E_STALE, __VA_ARGS__)
#define KEY_SEED 0x6d616368u
#define POOLS_COUNTED 64 /* in status.machines of a Target */

/* ---- what readers ask ---- */
void machine_key(const struct root *r, const struct object *target, const char *pool,
                 int64_t number, char out[MACHINE_NAME_MAX])
{
    const char *cluster = root_cluster_uid(r), *uid = target->meta->uid;
    uint64_t h = hash_bytes(hash_bytes(KEY_SEED, cluster, strlen(cluster)), uid, strlen(uid));

    (void)snprintf(out, MACHINE_NAME_MAX, "%.32s-%lld-%012llx", pool, (long long)number,
                   (unsigned long long)(h & 0xffffffffffffull));
}

bool machine_open(const struct object *o)
{
    return o->kind->id == KIND_MACHINE &&
           object_as(o, machine)->status->phase != MACHINE_IS_ENDED;
}

bool machine_closing(const struct object *o)
{
    return o && (o->meta->deletionTimestamp || !machine_open(o) ||
                 *object_as(o, machine)->status->release);
}

const char *machine_above_cap(const struct machine_spec *s, double price, const char *currency)
{
    if (s->maxPrice <= 0 || price <= 0)
        return "";
    if (*s->currency && *currency && strcmp(s->currency, currency) != 0)
        return "OtherCurrency";
    return price > s->maxPrice ? "PriceAboveCap" : "";
}

bool machine_shut(const struct object *o)
{
    const struct machine *m = o ? object_as(o, machine) : NULL;

    return m && (machine_closing(o) ||
                 *machine_above_cap(m->spec, m->status->price, m->status->currency));
}

struct held {
    const struct root *r;
    const char *target, *key;
    size_t prefix;
    bool held;
};

static bool held_each(const struct object *o, void *arg)
{
    const struct node_spec *s = object_as(o, node)->spec;
    struct node_usage use;
    struct held *h = arg;

    if (strncmp(o->meta->name, h->target, h->prefix) != 0 || o->meta->name[h->prefix] != '.')
        return false;
    h->held = strcmp(s->machine, h->key) == 0 && strcmp(s->target, h->target) == 0 &&
              root_usage(h->r, o->meta->name, &use);
    return !h->held;
}

bool machine_held(const struct root *r, const struct object *o)
{
    const char *target = object_as(o, machine)->spec->target;
    struct held h = {.r = r, .target = target, .key = o->meta->name, .prefix = strlen(target)};
    char from[STORE_KEY_MAX];

    (void)snprintf(from, sizeof from, "%s.", target);
    root_scan(r, KIND_NODE, NULL, "", from, held_each, &h);
    return h.held;
}

/* ---- what a Target has ---- */
int64_t machines_live(const struct target_status *s)
{
    int64_t n = 0;

    for (uint32_t i = 0; s && i < s->n_machines; i++)
        n += s->machines[i].live;
    return n;
}

void machines_keep(struct txn *t, const struct target_status *had, void **status)
{
    struct target_status *s =
        *status ? arena_memdup(t->a, *status, sizeof *s) : arena_new(t->a, struct target_status);

    s->machines = had ? had->machines : NULL;
    s->n_machines = had ? had->n_machines : 0;
    s->machinesOrdered = had ? had->machinesOrdered : 0;
    if (had || *status)
        *status = s;
}

static struct target *target_edit(struct txn *t, const struct object *o)
{
    struct target *b = object_edit_as(o, target, t->a);

    if (!b->status)
        b->status = arena_new(t->a, struct target_status);
    return b;
}

static struct machine_count *count_of(const struct target_status *s, const char *pool)
{
    for (uint32_t i = 0; s && i < s->n_machines; i++)
        if (strcmp(s->machines[i].pool, pool) == 0)
            return &s->machines[i];
    return NULL;
}

static void count_add(struct txn *t, struct target_status *s, const char *pool)
{
    struct machine_count *v = arena_array(t->a, struct machine_count, s->n_machines + 1);

    if (s->n_machines)
        memcpy(v, s->machines, s->n_machines * sizeof *v);
    s->machines = v;
    struct machine_count *c = count_of(s, pool);
    if (!c) {
        c = &v[s->n_machines++];
        c->pool = pool;
    }
    c->live++;
}

static void count_take(struct txn *t, const struct machine_spec *spec)
{
    const struct object *o = root_get(t->w, KIND_TARGET, "", spec->target);

    if (!o)
        return;
    struct target *b = target_edit(t, o);
    struct machine_count *c = count_of(b->status, spec->pool);
    INV(c && c->live > 0);
    if (--c->live == 0) {
        struct machine_count *end = b->status->machines + b->status->n_machines;
        memmove(c, c + 1, (size_t)(end - c - 1) * sizeof *c);
        b->status->n_machines--;
    }
    (void)txn_put(t, o->kind, o, b);
}

/* ---- the order ---- */
static const struct machine_pool *pool_of(const struct target_spec *s, const char *name)
{
    for (uint32_t i = 0; i < s->n_machines; i++)
        if (strcmp(s->machines[i].name, name) == 0)
            return &s->machines[i];
    return NULL;
}

static int order_admit(struct txn *t, const struct machine_cmd *c, const struct object *o,
                       const struct machine_pool *p)
{
    const struct target_spec *spec = object_as(o, target)->spec;
    const struct target_status *s = object_as(o, target)->status;
    const struct machine_count *n = count_of(s, c->pool);
    int64_t most = spec->limits ? spec->limits->machines : 0;

    if (!p || o->meta->deletionTimestamp || !target_can(spec->type, CAN_ORDER_MACHINES))
        return MACHINE_STALE(t, "target %s has no pool %s any more", c->target, c->pool);
    if (c->number != (s ? s->machinesOrdered : 0) + 1)
        return MACHINE_STALE(t, "machine %lld is not the next one of target %s",
                             (long long)c->number, c->target);
    if (most > 0 && machines_live(s) >= most)
        return err_set(t->err, E_LIMIT, "target %s has its limit of %lld machines", c->target,
                       (long long)most);
    /* While its machines are replaced, old ones and new ones are there. */
    if (n && n->live >= 2 * p->count)
        return err_set(t->err, E_LIMIT,
                       "pool %s of target %s has %lld machines, and shall have %lld", c->pool,
                       c->target, (long long)n->live, (long long)p->count);
    if (!n && s && s->n_machines >= POOLS_COUNTED)
        return err_set(t->err, E_LIMIT, "target %s has machines of %d pools", c->target,
                       POOLS_COUNTED);
    return 0;
}

static int step_order(struct txn *t, const struct machine_cmd *c)
{
    const struct object *o = root_get(t->w, KIND_TARGET, "", c->target);
    char key[MACHINE_NAME_MAX];

    if (!o || strcmp(o->meta->uid, c->target_uid) != 0)
        return MACHINE_STALE(t, "target %s is not the one that was meant", c->target);
    struct target *b = target_edit(t, o);
    const struct machine_pool *p = pool_of(b->spec, c->pool);
    int r = order_admit(t, c, o, p);
    if (r < 0)
        return r;
    machine_key(t->w, o, p->name, c->number, key);
    if (root_get(t->w, KIND_MACHINE, "", key))
        return err_set(t->err, E_EXISTS, "machines.hanse.dev \"%s\" already exists", key);
    struct machine *m = arena_new(t->a, struct machine);
    m->metadata = txn_meta(t, "", arena_strdup(t->a, key));
    m->spec = arena_new(t->a, struct machine_spec);
    *m->spec = (struct machine_spec){.target = b->metadata->name,
                                     .pool = p->name,
                                     .number = c->number,
                                     .class_ = p->class_,
                                     .gpus = p->gpus,
                                     .zone = p->zone,
                                     .market = p->market,
                                     .timeToLive = p->timeToLive,
                                     .image = p->image,
                                     .maxPrice = p->maxPrice,
                                     .currency = p->currency,
                                     .tags = p->tags,
                                     .n_tags = p->n_tags,
                                     .cluster = arena_strdup(t->a, root_cluster_uid(t->w))};
    m->status = arena_new(t->a, struct machine_status);
    m->status->phase = MACHINE_IS_ORDERED;
    m->status->phaseSince = t->now;
    m->status->until = t->now + p->timeToLive;
    (void)txn_put(t, kind_by_id(KIND_MACHINE), NULL, m);
    b->status->machinesOrdered = c->number;
    count_add(t, b->status, p->name);
    (void)txn_put(t, o->kind, o, b);
    return 0;
}

/* ---- steps of one machine ---- */
struct mstep {
    const struct machine_cmd *c;
    const struct object *o;
    struct machine *m; /* our copy */
    struct machine_status *s;
};

static void phase_enter(struct txn *t, struct mstep *x, enum machine_phase phase)
{
    if (x->s->phase == phase)
        return;
    x->s->phase = phase;
    x->s->phaseSince = t->now;
}

/* What is not told stays as it is known: only news replace it. */
static void told_take(struct txn *t, struct machine_status *s, const struct machine_status *told)
{
    if (*told->id)
        s->id = told->id;
    if (*told->zone)
        s->zone = told->zone;
    if (told->billedFrom > 0)
        s->billedFrom = told->billedFrom;
    if (told->billedTo > 0)
        s->billedTo = told->billedTo;
    if (told->price > 0) {
        s->price = told->price;
        s->currency = told->currency;
    }
    if (*told->class_)
        s->class_ = told->class_;
    if (told->gpus > 0)
        s->gpus = told->gpus;
    for (uint32_t i = 0; i < told->n_conditions; i++)
        txn_condition(t, &s->conditions, &s->n_conditions, told->conditions[i].type,
                      told->conditions[i].status, told->conditions[i].reason,
                      told->conditions[i].message);
    s->reason = told->reason;
    s->message = told->message;
}

static int step_seen(struct txn *t, struct mstep *x)
{
    const struct machine_status *told = x->c->told;
    /* Something was told, and nothing of it is known. */
    bool unread = told && *told->reason && told->phase == MACHINE_IS_ORDERED &&
                  told->phase == x->s->phase;

    if (!told || (told->phase < MACHINE_IS_ASKED && !unread) || told->phase > MACHINE_IS_NOTICED)
        return err_field(t->err, E_INVALID, "told", "what is told is asked, booting, joined or "
                                                    "noticed");
    told_take(t, x->s, told);
    phase_enter(t, x, told->phase);
    return 0;
}

/* Its target refused the order: whoever asks for the like from this entry on waits. */
static int step_refused(struct txn *t, struct mstep *x)
{
    if (x->s->phase != MACHINE_IS_ORDERED)
        return MACHINE_STALE(t, "machine %s is %s: its order was taken", x->c->name,
                             machine_phase_text(x->s->phase));
    x->s->reason = x->c->reason;
    x->s->message = x->c->message;
    const struct object *o = root_get(t->w, KIND_TARGET, "", x->m->spec->target);
    if (!x->c->pause || !o || x->c->pause->scope == BLAMES_WORKLOAD)
        return 0;
    struct target_pause pause = *x->c->pause;
    struct target *b = target_edit(t, o);
    pause.until = t->now + policy_pause_length(&pause);
    pause.since = t->now;
    pause.message = x->c->message;
    pause.name = pause.name ? pause.name : "";
    b->status->n_pauses = policy_pause_add(b->status, &pause, t->a, &b->status->pauses);
    (void)txn_put(t, o->kind, o, b);
    return 0;
}

static int step_release(struct txn *t, struct mstep *x)
{
    if (!*x->c->reason)
        return err_field(t->err, E_INVALID, "reason", "why it is released");
    if (*x->s->release)
        return 0;
    if (machine_held(t->w, x->o) && !PLANTED("machine.release-held"))
        return err_set(t->err, E_BUSY, "a run is held on machine %s", x->c->name);
    x->s->release = x->c->reason;
    x->s->releasedAt = t->now;
    return 0;
}

static int step_ended(struct txn *t, struct mstep *x)
{
    if (x->c->told)
        told_take(t, x->s, x->c->told);
    if (*x->c->reason)
        x->s->reason = x->c->reason;
    if (*x->c->message)
        x->s->message = x->c->message;
    phase_enter(t, x, MACHINE_IS_ENDED);
    x->s->endedAt = t->now;
    count_take(t, x->m->spec);
    return 0;
}

static int step_take(struct txn *t, struct mstep *x)
{
    switch (x->c->step) {
    case MACHINE_STEP_SEEN:
        return step_seen(t, x);
    case MACHINE_STEP_REFUSED:
        return step_refused(t, x);
    case MACHINE_STEP_RELEASE:
        return step_release(t, x);
    case MACHINE_STEP_ENDED:
        return step_ended(t, x);
    default:
        return err_set(t->err, E_INVALID, "no such step: %d", (int)x->c->step);
    }
}

static int apply_one(struct txn *t, const struct machine_cmd *c)
{
    struct mstep x = {.c = c, .o = root_get(t->w, KIND_MACHINE, "", c->name)};

    if (!x.o || strcmp(x.o->meta->uid, c->uid) != 0)
        return MACHINE_STALE(t, "machine %s is not the one that was meant", c->name);
    if (!machine_open(x.o))
        return MACHINE_STALE(t, "%s does not follow on Ended (machine %s)",
                             machine_step_text(c->step), c->name);
    struct object *kept = object_ref(x.o);
    x.m = object_edit_as(x.o, machine, t->a);
    x.s = x.m->status;
    int r = step_take(t, &x);
    if (r == 0 && body_equal(&schema_machine, x.m, kept->body)) {
        t->res->unchanged = true;
    } else if (r == 0) {
        const struct object *o = txn_put(t, kept->kind, kept, x.m);
        if (c->step == MACHINE_STEP_ENDED) {
            const char *target = arena_strdup(t->a, x.m->spec->target);
            if (o->meta->deletionTimestamp)
                txn_remove(t, o);
            txn_settle(t, NULL, target);
        }
    }
    (void)object_unref(kept);
    return r;
}

/* One that is let go, or is another one now, is passed over. */
static int step_renew(struct txn *t, const struct machine_cmd *c)
{
    t->res->unchanged = true;
    for (uint32_t i = 0; i < c->n; i++) {
        const struct object *o = root_get(t->w, KIND_MACHINE, "", c->ops[i].name);

        if (!o || strcmp(o->meta->uid, c->ops[i].uid) != 0 || machine_closing(o))
            continue;
        struct machine *m = object_edit_as(o, machine, t->a);
        m->status->until = t->now + m->spec->timeToLive;
        if (body_equal(&schema_machine, m, o->body))
            continue;
        (void)txn_put(t, o->kind, o, m);
        t->res->unchanged = false;
        arena_reset(t->a);
    }
    return 0;
}

int apply_machine(struct txn *t, const struct machine_cmd *c)
{
    if (c->step == MACHINE_STEP_ORDER)
        return step_order(t, c);
    return c->step == MACHINE_STEP_RENEW ? step_renew(t, c) : apply_one(t, c);
}

/* ---- what must hold ---- */
struct counted {
    const struct root *r;
    const struct object *target;
    const char *pool;
    int64_t n;
};

static bool count_each(const struct object *o, void *arg)
{
    const struct machine_spec *s = object_as(o, machine)->spec;
    struct counted *c = arg;

    c->n += machine_open(o) && strcmp(s->target, c->target->meta->name) == 0 &&
            strcmp(s->pool, c->pool) == 0;
    return true;
}

static bool target_each(const struct object *o, void *arg)
{
    const struct target_status *s = object_as(o, target)->status;
    const struct root *r = arg;

    for (uint32_t i = 0; s && i < s->n_machines; i++) {
        struct counted c = {.r = r, .target = o, .pool = s->machines[i].pool};
        root_scan(r, KIND_MACHINE, NULL, NULL, NULL, count_each, &c);
        INV(c.n > 0 && c.n == s->machines[i].live);
    }
    return true;
}

static bool open_each(const struct object *o, void *arg)
{
    const struct machine_spec *s = object_as(o, machine)->spec;
    const struct object *target = root_get(arg, KIND_TARGET, "", s->target);

    INV(!machine_open(o) || (target && count_of(object_as(target, target)->status, s->pool)));
    INV(!target || !machine_open(o) ||
        s->number <= object_as(target, target)->status->machinesOrdered);
    return true;
}

void machines_check(const struct root *r)
{
    root_scan(r, KIND_TARGET, NULL, NULL, NULL, target_each, (void *)(uintptr_t)r);
    root_scan(r, KIND_MACHINE, NULL, NULL, NULL, open_each, (void *)(uintptr_t)r);
}
