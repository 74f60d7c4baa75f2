/* The node table: built as a whole when shapes change, moved by one device at a time otherwise. It
 * must come out the same whatever the order in which documents arrived, so everything is sorted
 * before it gets a number. */
#include "policy/pool/pool_internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- buckets ---- */
void table_member_bucket(struct table *t, uint32_t m, bool in)
{
    const struct member *mb = &t->members[m];
    struct group *g = &t->groups[mb->group];
    uint32_t pos = m - g->m0, free = member_free(mb);
    uint64_t bit = 1ull << (pos & 63), *word = &g->bits[(size_t)free * g->words + pos / 64];

    if (in) {
        *word |= bit;
        g->count[free]++;
        g->free += free;
    } else {
        *word &= ~bit;
        g->count[free]--;
        g->free -= free;
    }
}

static void device_bucket(struct table *t, const struct device *d, bool in)
{
    struct group *g = &t->groups[t->members[d->member].group];
    uint32_t b = (uint32_t)d->free_milli / FRAC_STEP;
    uint64_t bit = 1ull << (d->pos & 63), *word = &g->frac[(size_t)b * g->dev_words + d->pos / 64];

    if (in) {
        *word |= bit;
        g->frac_count[b]++;
    } else {
        *word &= ~bit;
        g->frac_count[b]--;
    }
}

static bool is_partial(const struct device *d)
{
    return !d->mig && d->free_milli > 0 && d->free_milli < 1000;
}

void table_device_move(struct table *t, struct device *d, int32_t free_milli)
{
    bool was_whole = d->free_milli == 1000, ok;
    struct member *m;

    if (d->member == NONE || d->mig) {
        d->free_milli = free_milli;
        return;
    }
    m = &t->members[d->member];
    ok = t->nodes[d->node].ok;
    if (ok && is_partial(d))
        device_bucket(t, d, false);
    d->free_milli = free_milli;
    if (ok && is_partial(d))
        device_bucket(t, d, true);
    if (was_whole == (free_milli == 1000))
        return;
    if (ok)
        table_member_bucket(t, d->member, false);
    m->n_free = was_whole ? m->n_free - 1 : m->n_free + 1;
    if (ok)
        table_member_bucket(t, d->member, true);
}

static void node_switch(struct table *t, uint32_t node, bool ok)
{
    struct node_rec *n = &t->nodes[node];

    if (n->ok == ok)
        return;
    n->ok = ok;
    for (uint32_t m = n->member; m != NONE; m = t->members[m].next) {
        struct group *g = &t->groups[t->members[m].group];

        table_member_bucket(t, m, ok);
        g->n_ok = ok ? g->n_ok + 1 : g->n_ok - 1;
        g->gpus += ok ? t->members[m].n_dev : -(int64_t)t->members[m].n_dev;
    }
    for (uint32_t i = n->dev0; i < n->dev0 + n->n_dev; i++) {
        if (t->devices[i].member != NONE && is_partial(&t->devices[i]))
            device_bucket(t, &t->devices[i], ok);
    }
}

static bool node_usable(const struct node *n)
{
    /* A node without status was declared, not observed: it counts as ready. */
    return !n->spec->unschedulable &&
           (!n->status ||
            ((n->status->health == HEALTH_READY || n->status->health == 0) && !n->status->notice &&
             !(n->status->formerly && *n->status->formerly)));
}

void table_node_open(struct table *t, uint32_t node)
{
    const struct node_status *s = t->nodes[node].doc->status;

    t->renamed |= s && s->formerly && *s->formerly;
    node_switch(t, node, node_usable(t->nodes[node].doc) && !pool_zone_pause(t, node));
}

/* ---- building ---- */
struct build_node { /* sorted: target, then topology path, then name */
    const struct object *obj;
    const struct node *doc;
    const char *path[6]; /* region, zone, block, rack, leaf, nvlinkDomain */
    uint32_t target;
};
struct build_member { /* sorted: target, class, capacity, fabric, memory, shares, node */
    uint32_t target, class_, node, n_dev, shares;
    enum capacity capacity;
    const char *fabric;
    int64_t memory;
    bool shared, mig, counted;
};

static int cmp_u32(uint32_t a, uint32_t b)
{
    return (a > b) - (a < b);
}

static int cmp_build_node(const void *pa, const void *pb)
{
    const struct build_node *a = pa, *b = pb;
    int c = cmp_u32(a->target, b->target);

    for (int i = 0; c == 0 && i < 6; i++)
        c = strcmp(a->path[i], b->path[i]);
    return c ? c : strcmp(a->obj->meta->name, b->obj->meta->name);
}

static int cmp_group(const struct build_member *a, const struct build_member *b)
{
    int c = cmp_u32(a->target, b->target);

    if (c == 0)
        c = cmp_u32(a->class_, b->class_);
    if (c == 0)
        c = cmp_u32(a->capacity, b->capacity);
    if (c == 0)
        c = strcmp(a->fabric, b->fabric);
    if (c == 0)
        c = (a->memory > b->memory) - (a->memory < b->memory);
    return c ? c : cmp_u32(a->shares, b->shares);
}

static int cmp_build_member(const void *pa, const void *pb)
{
    const struct build_member *a = pa, *b = pb;
    int c = cmp_group(a, b);

    c = c ? c : cmp_u32(a->node, b->node);
    return c ? c : cmp_u32(a->counted, b->counted);
}

static int cmp_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static uint32_t sort_names(const char **v, uint32_t n)
{
    uint32_t out = 0;

    qsort(v, n, sizeof(*v), cmp_text);
    for (uint32_t i = 0; i < n; i++) {
        if (out == 0 || strcmp(v[out - 1], v[i]) != 0)
            v[out++] = v[i];
    }
    return out;
}

static const char *device_class(const struct pool *p, const struct gpu *g)
{
    const struct docs *d = &p->docs[KIND_GPU_CLASS];
    const char *c;

    if (g->class_[0])
        return g->class_;
    c = policy_class_of(g->model, g->memory, d->v, d->n);
    return c ? c : g->model;
}

static void build_targets(struct pool *p)
{
    struct table *t = &p->t;
    const struct docs *targets = &p->docs[KIND_TARGET], *nodes = &p->docs[KIND_NODE];
    const char **names = arena_array(t->mem, const char *, targets->n + nodes->n + 1);
    uint32_t n = 0;

    for (uint32_t i = 0; i < targets->n; i++)
        names[n++] = targets->v[i]->meta->name;
    for (uint32_t i = 0; i < nodes->n; i++)
        names[n++] = object_as(nodes->v[i], node)->spec->target;
    t->n_targets = sort_names(names, n);
    t->targets = arena_array(t->mem, struct target_rec, t->n_targets + 1);
    for (uint32_t i = 0; i < t->n_targets; i++) {
        struct target_rec *r = &t->targets[i];
        uint32_t reach;

        r->name = arena_strdup(t->mem, names[i]);
        r->obj = docs_get(targets, "", names[i]);
        r->spec = r->obj ? target_spec_of(r->obj) : NULL;
        reach = strmap_get(&p->reach, names[i]);
        r->reach = reach == NONE ? REACH_UNKNOWN : (enum reach)reach;
        strmap_set(&t->target_by_name, r->name, i);
    }
}

static void build_classes(struct pool *p)
{
    struct table *t = &p->t;
    const struct docs *nodes = &p->docs[KIND_NODE], *classes = &p->docs[KIND_GPU_CLASS];
    uint32_t n = classes->n + 1, k = 0;
    const char **names;

    for (uint32_t i = 0; i < nodes->n; i++) {
        const struct node_spec *s = object_as(nodes->v[i], node)->spec;

        n += s->n_gpus + s->n_counted;
    }
    names = arena_array(t->mem, const char *, n);
    names[k++] = "";
    for (uint32_t i = 0; i < classes->n; i++)
        names[k++] = classes->v[i]->meta->name;
    for (uint32_t i = 0; i < nodes->n; i++) {
        const struct node_spec *s = object_as(nodes->v[i], node)->spec;

        for (uint32_t j = 0; j < s->n_gpus; j++) {
            const char *c = j && s->gpus[j].class_[0] && s->gpus[j].class_ == s->gpus[j - 1].class_
                                ? NULL
                                : device_class(p, &s->gpus[j]);

            if (c && strcmp(c, names[k - 1]) != 0)
                names[k++] = c;
        }
        for (uint32_t j = 0; j < s->n_counted; j++) {
            struct gpu g = counted_device(&s->counted[j]);

            names[k++] = device_class(p, &g);
        }
    }
    t->n_classes = sort_names(names, k);
    t->classes = arena_array(t->mem, struct class_rec, t->n_classes);
    for (uint32_t i = 0; i < t->n_classes; i++) {
        const struct object *o = docs_get(classes, "", names[i]);

        t->classes[i].name = arena_strdup(t->mem, names[i]);
        t->classes[i].spec = o ? object_as(o, gpu_class)->spec : NULL;
        strmap_set(&t->class_by_name, t->classes[i].name, i);
    }
}

/* Equal prefixes of the path are one domain; a level that a node does not tell is the node itself,
 * as nothing is known that would join it with others. */
static void build_domains(struct table *t, const struct build_node *b)
{
    static const enum domain_level levels[6] = {LEVEL_REGION, LEVEL_ZONE, LEVEL_BLOCK,
                                                LEVEL_RACK,   LEVEL_LEAF, LEVEL_NVLINK};

    for (uint32_t i = 0; i < t->n_nodes; i++) {
        uint32_t *d = t->nodes[i].domain;
        bool same = i > 0 && b[i - 1].target == b[i].target;

        d[LEVEL_NODE] = i;
        d[LEVEL_TARGET] = b[i].target;
        for (int k = 0; k < 6; k++) {
            same = same && strcmp(b[i - 1].path[k], b[i].path[k]) == 0;
            d[levels[k]] = same && b[i].path[k][0] ? t->nodes[i - 1].domain[levels[k]] : i;
        }
    }
}

static struct build_node *build_nodes(struct pool *p)
{
    struct table *t = &p->t;
    const struct docs *d = &p->docs[KIND_NODE];
    struct build_node *b = arena_array(t->mem, struct build_node, d->n + 1);

    t->n_nodes = d->n;
    t->nodes = arena_array(t->mem, struct node_rec, d->n + 1);
    t->cpu_free = arena_array(t->mem, int64_t, d->n + 1);
    t->memory_free = arena_array(t->mem, int64_t, d->n + 1);
    for (uint32_t i = 0; i < d->n; i++) {
        const struct node *doc = object_as(d->v[i], node);
        const struct topology *w = doc->spec->topology;
        uint32_t target = strmap_get(&t->target_by_name, doc->spec->target);
        const struct target_spec *s = t->targets[target].spec;

        b[i] = (struct build_node){.obj = d->v[i], .doc = doc, .target = target};
        b[i].path[0] = w && w->region[0] ? w->region : s ? s->region : "";
        b[i].path[1] = w && w->zone[0] ? w->zone : s ? s->site : "";
        b[i].path[2] = w ? w->block : "";
        b[i].path[3] = w ? w->rack : "";
        b[i].path[4] = w ? w->leaf : "";
        b[i].path[5] = w ? w->nvlinkDomain : "";
        t->n_devices += doc->spec->n_gpus + counted_devices(doc->spec);
        t->targets[target].n_nodes++;
    }
    qsort(b, d->n, sizeof(*b), cmp_build_node);
    for (uint32_t i = 0; i < d->n; i++) {
        t->nodes[i].obj = b[i].obj;
        t->nodes[i].doc = b[i].doc;
        t->nodes[i].target = b[i].target;
        t->nodes[i].member = NONE;
        t->cpu_free[i] = b[i].doc->spec->cpu - node_others_cpu(b[i].doc);
        t->memory_free[i] = b[i].doc->spec->memory - node_others_memory(b[i].doc);
        strmap_set(&t->node_by_name, arena_strdup(t->mem, b[i].obj->meta->name), i);
    }
    build_domains(t, b);
    return b;
}

static enum capacity node_capacity(const struct node_spec *n, const struct target_spec *s)
{
    if (n->capacity)
        return n->capacity;
    if (s && s->capacity)
        return s->capacity;
    return s && s->tier == TIER_BURST ? CAPACITY_ON_DEMAND : CAPACITY_OWNED;
}

/* The nominal memory of the class where there is one: drivers tell less, and each another
 * figure. */
static int64_t device_memory(const struct table *t, uint32_t class_, const struct gpu *g)
{
    const struct gpu_class_spec *s = t->classes[class_].spec;

    return s && s->memory ? s->memory : g->memory;
}

static void node_devices(struct table *t, uint32_t node)
{
    const struct node_rec *n = &t->nodes[node];
    const struct node_spec *s = n->doc->spec;

    for (uint32_t i = 0; i < s->n_gpus; i++) {
        struct device *d = &t->devices[n->dev0 + i];

        *d = (struct device){.spec = &s->gpus[i], .node = node, .member = NONE, .free_milli = 1000};
        d->shared = d->spec->shared;
        d->mig = d->spec->n_migProfiles > 0;
        if (d->mig)
            d->mig_over = arena_array(t->mem, uint16_t, d->spec->n_migProfiles);
    }
    table_counted(t, node);
}

static uint32_t node_members(struct pool *p, uint32_t node, struct build_member *out)
{
    struct table *t = &p->t;
    const struct node_spec *s = t->nodes[node].doc->spec;
    struct build_member base = {.target = t->nodes[node].target,
                                .node = node,
                                .capacity =
                                    node_capacity(s, t->targets[t->nodes[node].target].spec),
                                .fabric = s->interconnect};
    uint32_t n = 0;

    node_devices(t, node);
    for (uint32_t i = 0; i < t->nodes[node].n_dev; i++) {
        struct device *d = &t->devices[t->nodes[node].dev0 + i];
        uint32_t class_ = strmap_get(&t->class_by_name, device_class(p, d->spec)), k;
        int64_t memory = device_memory(t, class_, d->spec);

        if (d->spec->health && d->spec->health != HEALTH_READY) {
            t->sick = true;
            continue;
        }
        for (k = 0; k < n && (out[k].class_ != class_ || out[k].memory != memory ||
                              out[k].counted != d->counted || out[k].shares != d->shares);
             k++)
            ;
        if (k == n) {
            out[n] = base;
            out[n].class_ = class_;
            out[n].counted = d->counted;
            out[n].shares = d->shares;
            out[n++].memory = memory;
        }
        d->member = k; /* place in out for now */
        out[k].n_dev += d->mig ? 0 : 1;
        out[k].shared |= d->shared;
        out[k].mig |= d->mig;
    }
    if (n == 0)
        out[n++] = base; /* for work without GPUs; class 0 is "" */
    return n;
}

static void group_alloc(struct table *t, struct group *g)
{
    uint32_t devices = 0;

    for (uint32_t m = g->m0; m < g->m0 + g->n; m++) {
        g->max_dev = t->members[m].n_dev > g->max_dev ? t->members[m].n_dev : g->max_dev;
        devices += t->members[m].n_dev;
    }
    g->words = (g->n + 63) / 64;
    g->dev_words = (devices + 63) / 64;
    g->bits = arena_array(t->mem, uint64_t, (size_t)(g->max_dev + 1) * g->words);
    g->count = arena_array(t->mem, uint32_t, g->max_dev + 1);
    g->frac = arena_array(t->mem, uint64_t, (size_t)FRAC_BUCKETS * g->dev_words + 1);
    g->frac_count = arena_array(t->mem, uint32_t, FRAC_BUCKETS);
    g->dev_at = arena_array(t->mem, uint32_t, devices + 1);
}

static void build_groups(struct table *t, const struct build_member *b, uint32_t n)
{
    t->members = arena_array(t->mem, struct member, n + 1);
    t->groups = arena_array(t->mem, struct group, n + 1);
    t->n_members = n;
    for (uint32_t i = 0; i < n; i++) {
        struct group *g;

        if (i == 0 || cmp_group(&b[i - 1], &b[i]) != 0) {
            struct target_rec *r = &t->targets[b[i].target];

            if (r->n_groups++ == 0)
                r->g0 = t->n_groups;
            g = &t->groups[t->n_groups++];
            g->target = b[i].target;
            g->class_ = b[i].class_;
            g->capacity = b[i].capacity;
            g->fabric = b[i].fabric;
            g->memory = b[i].memory;
            g->shares = b[i].shares;
            g->slice = g->shares ? arena_printf(t->mem, "1/%u", g->shares) : NULL;
            g->m0 = i;
        }
        g = &t->groups[t->n_groups - 1];
        g->n++;
        g->has_shared |= b[i].shared;
        g->has_mig |= b[i].mig;
        g->has_counted |= b[i].counted;
        t->members[i] = (struct member){.node = b[i].node,
                                        .group = t->n_groups - 1,
                                        .n_dev = b[i].n_dev,
                                        .n_free = b[i].n_dev,
                                        .counted = b[i].counted,
                                        .next = t->nodes[b[i].node].member};
        t->nodes[b[i].node].member = i;
    }
    for (uint32_t i = 0; i < t->n_groups; i++)
        group_alloc(t, &t->groups[i]);
}

/* Devices find their member by class and memory, now that members have their final places. */
static void link_devices(struct pool *p, uint32_t node)
{
    struct table *t = &p->t;
    struct node_rec *n = &t->nodes[node];

    for (uint32_t i = n->dev0; i < n->dev0 + n->n_dev; i++) {
        struct device *d = &t->devices[i];
        uint32_t class_, m;
        struct group *g;

        if (d->member == NONE)
            continue;
        class_ = strmap_get(&t->class_by_name, device_class(p, d->spec));
        for (m = n->member; m != NONE; m = t->members[m].next) {
            g = &t->groups[t->members[m].group];
            if (g->class_ == class_ && g->memory == device_memory(t, class_, d->spec) &&
                t->members[m].counted == d->counted && g->shares == d->shares)
                break;
        }
        INV(m != NONE);
        d->member = m;
        g = &t->groups[t->members[m].group];
        if (d->mig)
            continue;
        d->pos = g->n_at;
        g->dev_at[g->n_at++] = i;
    }
}

void table_fini(struct table *t)
{
    strmap_fini(&t->target_by_name);
    strmap_fini(&t->node_by_name);
    strmap_fini(&t->class_by_name);
    t->mem = arena_destroy(t->mem);
}

void table_build(struct pool *p)
{
    struct table *t = &p->t;
    uint64_t generation = t->generation;
    struct build_member *members;
    uint32_t n = 0, devices = 0;

    table_fini(t);
    *t = (struct table){.mem = arena_create((size_t)4 << 30), .generation = generation + 1};
    build_targets(p);
    build_classes(p);
    (void)build_nodes(p);
    t->devices = arena_array(t->mem, struct device, t->n_devices + 1);
    members = arena_array(t->mem, struct build_member, t->n_devices + t->n_nodes + 1);
    for (uint32_t i = 0; i < t->n_nodes; i++) {
        t->nodes[i].dev0 = devices;
        t->nodes[i].n_dev = t->nodes[i].doc->spec->n_gpus + counted_devices(t->nodes[i].doc->spec);
        devices += t->nodes[i].n_dev;
        n += node_members(p, i, members + n);
    }
    qsort(members, n, sizeof(*members), cmp_build_member);
    build_groups(t, members, n);
    for (uint32_t i = 0; i < t->n_nodes; i++) {
        link_devices(p, i);
        table_others(t, i, NULL);
        table_node_open(t, i);
    }
    link_build(t);
    p->dirty = false;
    p->prices_dirty = p->accounts_dirty = true;
    for (uint32_t i = 0; i < p->n_holds; i++) {
        p->holds[i]->generation = 0;
        if (!p->holds[i]->off)
            table_apply(p, p->holds[i], 1);
    }
}

/* ---- one node's new version ---- */
static bool same_gpu(const struct gpu *a, const struct gpu *b)
{
    bool same = a->index == b->index && strcmp(a->class_, b->class_) == 0 &&
                strcmp(a->model, b->model) == 0 && a->memory == b->memory &&
                a->shared == b->shared && a->health == b->health &&
                a->nvlinkDomain == b->nvlinkDomain && a->has == b->has &&
                a->n_migProfiles == b->n_migProfiles;

    for (uint32_t i = 0; same && i < a->n_migProfiles; i++)
        same = strcmp(a->migProfiles[i], b->migProfiles[i]) == 0;
    return same;
}

bool node_same_shape(const struct object *oa, const struct object *ob)
{
    const struct node_spec *a = object_as(oa, node)->spec, *b = object_as(ob, node)->spec;
    bool same = strcmp(a->target, b->target) == 0 && a->n_gpus == b->n_gpus &&
                a->capacity == b->capacity && strcmp(a->interconnect, b->interconnect) == 0 &&
                !a->topology == !b->topology &&
                (!a->topology || body_equal(&schema_topology, a->topology, b->topology)) &&
                same_counted(a, b);

    for (uint32_t i = 0; same && i < a->n_gpus; i++)
        same = same_gpu(&a->gpus[i], &b->gpus[i]) &&
               (!a->gpus[i].n_migProfiles ||
                node_others_device(object_as(oa, node), a->gpus[i].index) ==
                    node_others_device(object_as(ob, node), b->gpus[i].index));
    return same;
}

void table_node_refresh(struct pool *p, const struct object *o)
{
    struct table *t = &p->t;
    uint32_t i = strmap_get(&t->node_by_name, o->meta->name);
    const struct node *doc = object_as(o, node);
    struct node_rec *n = &t->nodes[i];
    const struct node *was = n->doc;

    t->cpu_free[i] +=
        doc->spec->cpu - node_others_cpu(doc) - (was->spec->cpu - node_others_cpu(was));
    t->memory_free[i] +=
        doc->spec->memory - node_others_memory(doc) - (was->spec->memory - node_others_memory(was));
    n->obj = o;
    n->doc = doc;
    for (uint32_t k = 0; k < doc->spec->n_gpus; k++)
        t->devices[n->dev0 + k].spec = &doc->spec->gpus[k];
    for (uint32_t m = n->member; m != NONE; m = t->members[m].next) {
        /* A group's fabric is the text of one of its nodes. */
        struct group *g = &t->groups[t->members[m].group];

        if (t->members[g->m0].node == i)
            g->fabric = doc->spec->interconnect;
    }
    table_others(t, i, was);
    table_node_open(t, i);
}
