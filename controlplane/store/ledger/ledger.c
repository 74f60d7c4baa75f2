/* The ledger's one way in: every change of an object passes ledger_change (root_commit), and what
 * holds or is a device changes cells, accounts and open allocations there. A cell knows a node's
 * devices of one class one by one, so that what is held on a device that is sick, or gone, is told
 * from what is free.
 *
 * This file must never change anything but the ledger, and never look at more than objects and the
 * entry's time. */
#include "controlplane/store/ledger/ledger_internal.h"
#include "policy/policy.h"

#include <stdio.h>

/* ---- life: a root's ledger begins, is forked and let go with it ---- */
#define LEDGER_TREES (5 + LEDGER_LEVELS)

static void trees_of(struct ledger *l, struct tree **ret[LEDGER_TREES])
{
    unsigned n = 0;

    ret[n++] = &l->cells;
    ret[n++] = &l->use;
    ret[n++] = &l->accounts;
    ret[n++] = &l->open;
    ret[n++] = &l->intervals;
    for (unsigned i = 0; i < LEDGER_LEVELS; i++)
        ret[n++] = &l->totals[i];
}

void ledger_init(struct ledger *l)
{
    struct tree **t[LEDGER_TREES];

    trees_of(l, t);
    for (unsigned i = 0; i < LEDGER_TREES; i++)
        *t[i] = tree_create(&box_ops);
    for (unsigned i = 0; i < LEDGER_LEVELS; i++)
        l->folded[i] = -1;
}

void ledger_fork(struct ledger *l)
{
    struct tree **t[LEDGER_TREES];

    trees_of(l, t);
    for (unsigned i = 0; i < LEDGER_TREES; i++)
        *t[i] = tree_ref(*t[i]);
}

void ledger_fini(struct ledger *l)
{
    struct tree **t[LEDGER_TREES];

    trees_of(l, t);
    for (unsigned i = 0; i < LEDGER_TREES; i++)
        *t[i] = tree_unref(*t[i]);
}

/* ---- cells ---- */
static const struct slice_kind WHOLE = {"", false};

/* Instances and shares that a node counts have cells of their own, behind the class: no class has
 * such a byte in its name. */
static void cell_key(struct key *k, const char *node, const char *class_, struct slice_kind kind)
{
    char text[128];

    (void)snprintf(text, sizeof text, "%s%s%s", class_, *kind.mig || kind.shares ? "\1" : "",
                   kind.mig);
    key_pair(k, node, text);
}

static struct slice_kind held_kind(const struct assignment *a)
{
    return a->count > 0 ? assignment_kind(a) : WHOLE;
}

static bool in_set(const struct device_set *s, unsigned d)
{
    return s->bits[d / 64] >> (d % 64) & 1;
}

static void set_add(struct device_set *s, unsigned d)
{
    s->bits[d / 64] |= 1ull << (d % 64);
}

static bool cell_none(const struct cell_box *c)
{
    static const uint32_t none[LEDGER_HELD_DEVICES];
    uint64_t any = 0;

    for (unsigned i = 0; i < LEDGER_DEVICES / 64; i++)
        any |= c->there.bits[i];
    return !any && !c->cpus && !c->cpus_held && !c->counted && !c->counted_held &&
           memcmp(c->held, none, sizeof none) == 0;
}

/* Of one device, or of all CPUs of a node. `others`: at most so much of what is not held. */
static void spare_rates(int64_t there, int64_t held, int64_t others, bool sick, unsigned kind,
                        int sign, struct rates *to)
{
    int64_t spare = there - held;

    to->capacity += sign * there;
    to->held += sign * held;
    if (spare < 0) {
        to->over += sign * -spare;
        return;
    }
    others = others < spare ? others : spare;
    to->others[kind] += sign * others;
    if (sick)
        to->sick[kind] += sign * (spare - others);
    else
        to->ok[kind] += sign * (spare - others);
}

/* Of devices without numbers what nobody holds is others' first, then of the healthy ones. */
static void counted_rates(const struct cell_box *c, unsigned kind, int sign, struct rates *to)
{
    int64_t there = c->counted, spare = there - c->counted_held;
    int64_t others = c->counted_others, sick = c->counted_sick;

    if (!c->counted && !c->counted_held)
        return;
    to->capacity += sign * there;
    to->held += sign * c->counted_held;
    if (spare < 0) {
        to->over += sign * -spare;
        return;
    }
    others = others < spare ? others : spare;
    spare -= others;
    sick = sick < spare ? sick : spare;
    to->others[kind] += sign * others;
    to->sick[kind] += sign * sick;
    to->ok[kind] += sign * (spare - sick);
}

/* Devices that others hold, nobody knows which: of those that nobody holds the ready ones first. */
static void more_rates(const struct cell_box *c, unsigned kind, int sign, struct rates *to)
{
    int64_t left = c->others_more, free[2] = {0, 0};

    if (!left)
        return;
    for (unsigned d = 0; d < LEDGER_DEVICES; d++)
        if (in_set(&c->there, d) && !in_set(&c->others, d) &&
            (d >= LEDGER_HELD_DEVICES || !c->held[d]))
            free[in_set(&c->sick, d)]++;
    int64_t ready = left < free[0] ? left : free[0];
    int64_t sick = left - ready < free[1] ? left - ready : free[1];
    to->ok[kind] -= sign * ready * 1000;
    to->sick[kind] -= sign * sick * 1000;
    to->others[kind] += sign * (ready + sick) * 1000;
}

static void cell_rates(const struct cell_box *c, int sign, struct rates *to)
{
    unsigned kind = c->kind < LEDGER_KINDS ? (unsigned)c->kind : 0;

    spare_rates(c->cpus, c->cpus_held, c->cpus_others, c->cpus_sick, kind, sign, to);
    more_rates(c, kind, sign, to);
    counted_rates(c, kind, sign, to);
    for (unsigned d = 0; d < LEDGER_DEVICES; d++) {
        int64_t held = d < LEDGER_HELD_DEVICES ? c->held[d] : 0;
        int64_t there = in_set(&c->there, d) ? 1000 : 0;

        if (d % 64 == 0 && d >= LEDGER_HELD_DEVICES && !c->there.bits[d / 64]) {
            d += 63;
            continue;
        }
        spare_rates(there, held, in_set(&c->others, d) ? 1000 : 0, in_set(&c->sick, d), kind, sign,
                    to);
    }
}

static struct cell_box *cell_copy(const struct cell_box *c)
{
    struct cell_box *b = box_new(sizeof *b, NULL);

    if (c)
        memcpy((char *)b + sizeof b->box, (const char *)c + sizeof c->box,
               sizeof *c - sizeof c->box);
    return b;
}

static void cell_store(struct root *w, struct slice key, struct cell_box *b)
{
    if (cell_none(b))
        w->ledger.cells = tree_del_own(w->ledger.cells, key);
    else
        w->ledger.cells = tree_put_own(w->ledger.cells, key, b);
    box_unref(b);
}

static void hold_cpu_cells(struct root *w, const struct placement *p, int sign, bool load)
{
    struct rates delta = {0};
    struct key k;

    if (!w->ledger.cpus || !cpu_booked(p->cpu))
        return;
    for (uint32_t i = 0; i < p->n_assignments; i++) {
        if (!node_booked(&p->assignments[i]))
            continue;
        key_pair(&k, p->assignments[i].node, LEDGER_CPU);
        struct cell_box *b = cell_copy(tree_get(w->ledger.cells, key_slice(&k)));
        cell_rates(b, -1, &delta);
        INV(sign > 0 || b->cpus_held >= p->cpu);
        b->cpus_held += sign * p->cpu;
        cell_rates(b, 1, &delta);
        cell_store(w, key_slice(&k), b);
    }
    account_change(w, p->target, LEDGER_CPU, &delta, load);
}

void ledger_hold_cells(struct root *w, const struct placement *p, int sign, bool load)
{
    struct rates delta = {0};
    struct key k;

    for (uint32_t i = 0; i < p->n_assignments; i++) {
        const struct assignment *a = &p->assignments[i];

        if (!assignment_booked(a))
            continue;
        cell_key(&k, a->node, p->class_, held_kind(a));
        const struct cell_box *old = tree_get(w->ledger.cells, key_slice(&k));
        struct cell_box *b = cell_copy(old);
        cell_rates(b, -1, &delta);
        for (uint32_t j = 0; j < a->n_gpus; j++)
            if (device_booked(a->gpus[j])) {
                INV(sign > 0 || b->held[a->gpus[j]] >= (uint64_t)a->gpuMilli);
                b->held[a->gpus[j]] += (uint32_t)(sign * (int32_t)a->gpuMilli);
            }
        b->counted_held += sign * counted_booked(a);
        INV(b->counted_held >= 0);
        cell_rates(b, 1, &delta);
        cell_store(w, key_slice(&k), b);
    }
    account_change(w, p->target, p->class_, &delta, load);
    hold_cpu_cells(w, p, sign, load);
}

/* ---- nodes ---- */
static const char *gpu_class(const struct gpu *g)
{
    return strlen(g->class_) <= 63 && !class_cpu(g->class_) ? g->class_ : "";
}

static const char *counted_class(const struct counted_gpus *c)
{
    return strlen(c->class_) <= 63 && !class_cpu(c->class_) ? c->class_ : "";
}

static const struct node_spec *spec_of(const struct object *o)
{
    return o ? object_as(o, node)->spec : NULL;
}

static void devices_of(const struct object *o, const char *class_, struct slice_kind kind,
                       struct cell_box *ret)
{
    bool whole = slice_same(kind, WHOLE);
    const struct node *n = o ? object_as(o, node) : NULL;
    bool down = n && n->status && n->status->health && n->status->health != HEALTH_READY;

    ret->there = ret->sick = ret->others = (struct device_set){{0}};
    ret->kind = 0;
    ret->cpus = ret->cpus_others = ret->others_more = 0;
    ret->cpus_sick = 0;
    ret->counted = ret->counted_sick = ret->counted_others = 0;
    if (n && class_cpu(class_) && cpu_booked(n->spec->cpu)) {
        ret->kind = (uint64_t)n->spec->capacity;
        ret->cpus = n->spec->cpu;
        ret->cpus_sick = down;
        ret->cpus_others = node_others_cpu(n);
    }
    for (uint32_t i = 0; whole && n && i < n->spec->n_gpus; i++) {
        const struct gpu *g = &n->spec->gpus[i];

        if (g->index < 0 || g->index >= LEDGER_DEVICES || strcmp(gpu_class(g), class_) != 0)
            continue;
        ret->kind = (uint64_t)n->spec->capacity;
        set_add(&ret->there, (unsigned)g->index);
        if (node_others_device(n, g->index))
            set_add(&ret->others, (unsigned)g->index);
        if (!ret->others_more && !g->n_migProfiles)
            ret->others_more = node_others_alike(n, g);
        if (down || (g->health && g->health != HEALTH_READY))
            set_add(&ret->sick, (unsigned)g->index);
    }
    for (uint32_t i = 0; n && i < n->spec->n_counted; i++) {
        const struct counted_gpus *c = &n->spec->counted[i];

        if (strcmp(counted_class(c), class_) != 0 || !slice_same(counted_kind(c), kind))
            continue;
        ret->kind = (uint64_t)n->spec->capacity;
        int64_t away = down ? counted_many(c) : counted_many(c) - counted_healthy(c);
        ret->counted += counted_milli(c, counted_many(c));
        ret->counted_sick += counted_milli(c, away);
        ret->counted_others += counted_milli(c, node_others_counted(n, c));
    }
}

static void node_class(struct root *w, const struct object *o, const char *class_,
                       struct slice_kind kind, bool load)
{
    const char *target = spec_of(o)->target;
    const char *name = (o)->meta->name;
    const struct object *now = root_get(w, KIND_NODE, "", name);
    struct rates delta = {0};
    struct key k;

    if (now && strcmp(spec_of(now)->target, target) != 0)
        now = NULL; /* it is another target's now */
    cell_key(&k, name, class_, kind);
    struct cell_box *b = cell_copy(tree_get(w->ledger.cells, key_slice(&k)));
    cell_rates(b, -1, &delta);
    devices_of(now, class_, kind, b);
    cell_rates(b, 1, &delta);
    cell_store(w, key_slice(&k), b);
    account_change(w, target, class_, &delta, load);
}

/* Every class that the node had or has. A class comes again where devices of others stand between:
 * the second time changes nothing. */
static void node_classes(struct root *w, const struct object *o, bool load)
{
    const struct node_spec *s = spec_of(o);

    if (strlen(o->meta->name) > 253 || strlen(s->target) > 253)
        return;
    for (uint32_t i = 0; i < s->n_gpus; i++)
        if (i == 0 || strcmp(gpu_class(&s->gpus[i]), gpu_class(&s->gpus[i - 1])) != 0)
            node_class(w, o, gpu_class(&s->gpus[i]), WHOLE, load);
    for (uint32_t i = 0; i < s->n_counted; i++)
        node_class(w, o, counted_class(&s->counted[i]), counted_kind(&s->counted[i]), load);
    if (w->ledger.cpus && cpu_booked(s->cpu))
        node_class(w, o, LEDGER_CPU, WHOLE, load);
}

/* ---- changes ---- */
void ledger_change_begin(struct root *w, const struct object *before, const struct object *after)
{
    enum kind_id kind = (after ? after : before)->kind->id;

    if (kind == KIND_TARGET || kind == KIND_PRICE_SHEET)
        accounts_reprice(w, before, after, false);
}

static void change_hold(struct root *w, const struct object *before, const struct object *after)
{
    const struct placement *p = ledger_hold(w, before), *q = ledger_hold(w, after);

    if (before && p && after && q && strcmp(before->meta->uid, after->meta->uid) == 0 &&
        hold_goes_on(w, before, after->body)) {
        hold_step(w, before, after);
        return;
    }
    if (p) {
        hold_end(w, before, after);
        ledger_hold_cells(w, p, -1, false);
    }
    if (q) {
        ledger_hold_cells(w, q, 1, false);
        hold_begin(w, after, w->time);
    }
}

void ledger_change(struct root *w, const struct object *before, const struct object *after)
{
    switch ((after ? after : before)->kind->id) {
    case KIND_WORKLOAD:
    case KIND_MIGRATION:
        change_hold(w, before, after);
        return;
    case KIND_NODE:
        if (before)
            node_classes(w, before, false);
        if (after)
            node_classes(w, after, false);
        return;
    case KIND_TARGET:
    case KIND_PRICE_SHEET:
        accounts_reprice(w, before, after, true);
        return;
    default:
        return;
    }
}

/* ---- CPUs, from the entry on that shows that all members know of them ---- */
static bool cpus_of_node(const struct object *o, void *arg)
{
    if (cpu_booked(spec_of(o)->cpu) && strlen(o->meta->name) <= 253 &&
        strlen(spec_of(o)->target) <= 253)
        node_class(arg, o, LEDGER_CPU, WHOLE, false);
    return true;
}

static bool cpus_of_hold(const struct object *o, void *arg)
{
    struct root *w = arg;
    const struct placement *p = ledger_hold(w, o);

    if (!p)
        return true;
    hold_cpu_cells(w, p, 1, false);
    if (hold_milli(p) == 0)
        hold_begin(w, o, w->time);
    return true;
}

void ledger_cpus_begin(struct root *w)
{
    if (w->ledger.cpus)
        return;
    w->ledger.cpus = true;
    w->ledger.cpus_since = w->time;
    root_scan(w, KIND_NODE, NULL, NULL, NULL, cpus_of_node, w);
    root_scan(w, KIND_WORKLOAD, NULL, NULL, NULL, cpus_of_hold, w);
    root_scan(w, KIND_MIGRATION, NULL, NULL, NULL, cpus_of_hold, w);
}

/* From a snapshot: what follows from the objects alone. The rest comes from its records. */
void ledger_load(struct root *w, const struct object *o)
{
    const struct placement *p = ledger_hold(w, o);

    if (p)
        ledger_hold_cells(w, p, 1, true);
    if (o->kind->id == KIND_NODE)
        node_classes(w, o, true);
}

/* ---- all lines ---- */
struct scan {
    const struct root *r;
    int64_t now;
    void (*each)(const struct ledger_line *l, void *arg);
    void *arg;
    unsigned level;
};

static void scan_line(void *arg, const struct ledger_line *l)
{
    const struct scan *x = arg;
    struct ledger_line line = *l;
    const char **texts[] = {&line.target, &line.class_,   &line.queue,     &line.project,
                            &line.user,   &line.workload, &line.experiment};

    if (line.amount == 0)
        return;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (!*texts[i])
            *texts[i] = "";
    line.money = line_money(line.amount, line.price);
    x->each(&line, x->arg);
}

static bool scan_total(struct slice key, const void *value, void *arg)
{
    const struct scan *x = arg;
    const struct total_box *b = value;
    struct ledger_line l;
    bool good = line_decode(key, &l);

    INV(good);
    l.amount = b->amount;
    l.money = x->level < LEDGER_YEARLY ? line_money(b->amount, l.price) : b->money;
    x->each(&l, x->arg);
    return true;
}

static bool scan_interval(struct slice key, const void *value, void *arg)
{
    const struct interval_box *b = value;
    struct ledger_line l;
    bool good = line_decode(slice_make(b->line, b->n), &l);

    (void)key;
    INV(good);
    ledger_days(&l, b->milli, b->from, b->to, scan_line, arg);
    return true;
}

static bool scan_account(struct slice key, const void *value, void *arg)
{
    const struct scan *x = arg;
    struct account_box a = *(const struct account_box *)value;
    char text[STORE_KEY_MAX];

    INV(key.n < sizeof text);
    memcpy(text, key.p, key.n);
    text[key.n] = 0;
    account_advance(x->r, key, &a, x->now, scan_line, arg);
    account_flush(text, text + strlen(text) + 1, &a, scan_line, arg);
    return true;
}

void ledger_scan(const struct root *r, int64_t now_ms,
                 void (*each)(const struct ledger_line *l, void *arg), void *arg)
{
    struct scan x = {r, now_ms > r->time ? now_ms : r->time, each, arg, 0};
    const struct slice start = slice_make("", 0);

    for (x.level = 0; x.level < LEDGER_LEVELS; x.level++)
        tree_scan(r->ledger.totals[x.level], start, scan_total, &x);
    tree_scan(r->ledger.intervals, start, scan_interval, &x);
    tree_scan(r->ledger.accounts, start, scan_account, &x);
    hold_scan(r, x.now, scan_line, &x);
}
