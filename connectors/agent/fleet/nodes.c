/* The nodes of a fleet. Each agent lists its own, whenever it comes; what one of them says changes
 * nothing of the others'. So the caller gets an empty listing that removes nothing, once a session,
 * and behind it a delta for each page of each agent. Nodes whose agent is away stay, and are told
 * as Unknown, so that nothing is placed there. */
#include "connectors/agent/fleet/fleet_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void told(struct fleet *f, const struct inventory_page *p)
{
    if (f->base.env.events->nodes)
        f->base.env.events->nodes(f->base.env.arg, p);
}

static void base_tell(struct fleet *f)
{
    char revision[32];

    if (f->based)
        return;
    f->based = true;
    (void)snprintf(revision, sizeof revision, "%llu", (unsigned long long)++f->revision);
    told(f, &(const struct inventory_page){
                .revision = revision, .since = "", .first = true, .last = true, .lacks = true});
}

/* p: its nodes, those that are gone, and those that could not be read. */
static void delta_tell(struct fleet *f, const struct inventory_page *p)
{
    struct inventory_page delta = *p;
    char since[32], revision[32];

    base_tell(f);
    if (!p->n && !p->n_removed && !p->n_refused)
        return;
    (void)snprintf(since, sizeof since, "%llu", (unsigned long long)f->revision);
    (void)snprintf(revision, sizeof revision, "%llu", (unsigned long long)++f->revision);
    delta.since = since;
    delta.revision = revision;
    delta.first = delta.last = false;
    told(f, &delta);
}

/* ---- the listing of one part ---- */
static void names_clear(struct fleet_part *p)
{
    for (size_t i = 0; i < p->n_names; i++)
        mem_free(p->names[i]);
    mem_free(p->names);
    p->names = NULL;
    p->n_names = 0;
}

static void refused_clear(struct fleet_part *p)
{
    for (size_t i = 0; i < p->n_refused; i++)
        mem_free(p->refused[i]);
    mem_free(p->refused);
    p->refused = NULL;
    p->n_refused = 0;
}

static bool refused_has(const struct fleet_part *p, const char *name)
{
    for (size_t i = 0; i < p->n_refused; i++)
        if (strcmp(p->refused[i], name) == 0)
            return true;
    return false;
}

static void refused_add(struct fleet_part *p, const struct inventory_page *page)
{
    if (!page->n_refused || p->n_refused + page->n_refused > LIMIT_TARGET_NODES)
        return;
    p->refused = mem_realloc(p->refused, (p->n_refused + page->n_refused) * sizeof *p->refused);
    for (size_t i = 0; i < page->n_refused; i++)
        if (!refused_has(p, page->refused[i].name))
            p->refused[p->n_refused++] = mem_strdup(page->refused[i].name);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void names_add(struct fleet_part *p, const struct inventory_page *page)
{
    if (p->n_names + page->n > LIMIT_TARGET_NODES) {
        p->lacks = true; /* more than a target may have: none is taken away */
        return;
    }
    p->names = mem_realloc(p->names, (p->n_names + page->n + 1) * sizeof *p->names);
    for (size_t i = 0; i < page->n; i++)
        p->names[p->n_names++] = mem_strdup(page->nodes[i].metadata->name);
}

struct gone {
    const struct fleet_part *part;
    struct arena *a;
    const char **v;
    size_t n;
};

static void gone_each(void *arg, const struct node *n)
{
    struct gone *g = arg;
    const char *name = n->metadata->name;

    if (g->n == LIMIT_TARGET_NODES || bsearch(&name, g->part->names, g->part->n_names,
                                              sizeof *g->part->names, by_name))
        return;
    g->v[g->n++] = arena_strdup(g->a, name);
}

/* The listing is whole: what the state has of this part beside it is gone, and so is what could not
 * be read before, of which the state may have nothing. */
static void listing_ended(struct fleet_part *p)
{
    const struct connector_env *e = &p->fleet->base.env;
    AUTO_ARENA a = arena_create(0);
    struct gone g = {.part = p, .a = a};

    p->open = false;
    p->listed = true;
    if (p->lacks || !e->nodes)
        return;
    g.v = arena_array(a, const char *, LIMIT_TARGET_NODES + p->n_refused);
    if (p->n_names)
        qsort(p->names, p->n_names, sizeof *p->names, by_name);
    e->nodes(e->arg, p->prefix, gone_each, &g);
    for (size_t i = 0; i < p->n_refused; i++) {
        const char *name = p->refused[i];
        if (!p->n_names || !bsearch(&name, p->names, p->n_names, sizeof *p->names, by_name))
            g.v[g.n++] = name;
    }
    delta_tell(p->fleet, &(const struct inventory_page){.removed = g.v, .n_removed = g.n});
    refused_clear(p);
}

/* They belong to the target, and not to the part by whose name the agent knows it. */
static struct node *nodes_ours(const struct fleet *f, const struct inventory_page *page,
                               struct arena *a)
{
    struct node *v = arena_array(a, struct node, page->n + 1);

    for (size_t i = 0; i < page->n; i++) {
        struct node_spec *s = arena_new(a, struct node_spec);
        v[i] = page->nodes[i];
        *s = *v[i].spec;
        s->target = f->base.target;
        v[i].spec = s;
    }
    return v;
}

/* Nobody waits for its answer; what did not come is asked for again (fleet_nodes_look). */
static void part_list(struct fleet_part *p)
{
    struct joint *j = joint_begin(p->fleet, 1u << p->at, NULL, joint_asked_end);

    p->asked = true;
    for_each_answer(v, j)
        p->driver->ops->inventory(p->driver, &v->call);
}

void fleet_part_nodes(void *arg, const struct inventory_page *page)
{
    struct fleet_part *p = arg;
    bool delta = *page->since != '\0';
    AUTO_ARENA a = arena_create(0);

    if (delta && (p->open || strcmp(page->since, p->revision) != 0)) {
        part_list(p);
        return;
    }
    if (page->first) {
        names_clear(p);
        p->open = true;
        p->lacks = false;
    }
    if (!delta && !p->open)
        return;
    refused_add(p, page);
    struct inventory_page ours = *page;
    ours.nodes = nodes_ours(p->fleet, page, a);
    delta_tell(p->fleet, &ours);
    if (delta) {
        str_copy(p->revision, sizeof p->revision, page->revision);
        return;
    }
    p->lacks |= page->lacks;
    names_add(p, page);
    if (!page->last)
        return;
    str_copy(p->revision, sizeof p->revision, page->revision);
    listing_ended(p);
}

static void inventory_end(struct joint *j)
{
    base_tell(j->fleet); /* all that it has may be away */
    joint_asked_end(j);
}

void fleet_inventory(struct connector *c, struct call *call)
{
    struct fleet *f = fleet_of(c);
    struct joint *j = joint_begin(f, fleet_reached(f), call, inventory_end);

    f->based = false; /* the caller lost its place */
    for_each_answer(v, j)
    {
        v->part->asked = true;
        v->part->driver->ops->inventory(v->part->driver, &v->call);
    }
}

void fleet_nodes_came(struct fleet_part *p)
{
    p->open = p->listed = false;
    p->revision[0] = '\0';
    if (!p->asked)
        part_list(p);
}

/* ---- agents that are away ---- */
struct away {
    struct arena *a;
    struct node *v;
    size_t n;
    char reason[128];
};

static void away_each(void *arg, const struct node *n)
{
    struct away *x = arg;
    const struct node_status *had = n->status;

    if (x->n == LIMIT_TARGET_NODES ||
        (had && had->health == HEALTH_UNKNOWN && strcmp(had->reason, x->reason) == 0))
        return;
    struct node_status *s = arena_new(x->a, struct node_status);
    if (had)
        *s = *had;
    s->health = HEALTH_UNKNOWN;
    s->reason = x->reason;
    x->v[x->n] = *n;
    x->v[x->n++].status = s;
}

static void away_tell(struct fleet_part *p)
{
    const struct connector_env *e = &p->fleet->base.env;
    AUTO_ARENA a = arena_create(0);
    struct away x = {.a = a};

    if (!e->nodes)
        return;
    x.v = arena_array(a, struct node, LIMIT_TARGET_NODES);
    (void)snprintf(x.reason, sizeof x.reason, "agent %.63s of its target is away", p->name);
    e->nodes(e->arg, p->prefix, away_each, &x);
    delta_tell(p->fleet, &(const struct inventory_page){.nodes = x.v, .n = x.n});
}

/* The state may lag behind what was told of them, so it is looked at again and again. */
void fleet_nodes_look(struct fleet *f)
{
    uint64_t now = loop_now_ms(f->base.env.loop);

    if (!fleet_reached(f))
        return; /* all of the target is out of reach, and nothing is placed there */
    for (unsigned i = 0; i < f->n_parts; i++) {
        struct fleet_part *p = f->parts[i];
        if (!p->reached && (p->came || now - f->made_ms >= FLEET_LOOK_MS))
            away_tell(p);
        else if (p->reached && !p->listed && !p->open)
            part_list(p);
    }
}

/* ---- notices ---- */
struct kept {
    struct arena *a;
    struct notice *v;
    size_t n;
    int64_t now_ms; /* the state's time */
};

static void notice_add(struct kept *x, const struct notice *n)
{
    if (x->n < LIMIT_TARGET_NODES)
        x->v[x->n++] = *n;
}

/* What the state has of it stays: nobody has withdrawn it. */
static void kept_each(void *arg, const struct node *n)
{
    struct kept *x = arg;
    const struct node_notice *had = n->status ? n->status->notice : NULL;

    if (!had)
        return;
    struct notice one = {.kind = had->kind, .ends = had->deadline != 0};
    if (had->deadline > x->now_ms)
        one.in_ms = (uint64_t)(had->deadline - x->now_ms);
    str_copy(one.node, sizeof one.node, n->metadata->name);
    notice_add(x, &one);
}

void fleet_part_notices(void *arg, const struct notice *v, size_t n)
{
    struct fleet_part *p = arg;
    struct fleet *f = p->fleet;
    const struct connector_env *e = &f->base.env;
    AUTO_ARENA a = arena_create(0);
    struct kept x = {.a = a};

    p->notices = mem_realloc(p->notices, (n + 1) * sizeof *v);
    for (size_t i = 0; i < n; i++)
        p->notices[i] = v[i];
    p->n_notices = n;
    p->notices_told = true;
    p->notices_ms = loop_now_ms(e->loop);
    if (!e->events->notices)
        return;
    if (e->state_rv)
        (void)e->state_rv(e->arg, &x.now_ms);
    x.v = arena_array(a, struct notice, LIMIT_TARGET_NODES);
    for (unsigned i = 0; i < f->n_parts; i++) {
        const struct fleet_part *q = f->parts[i];
        uint64_t since = loop_now_ms(e->loop) - q->notices_ms;
        for (size_t k = 0; q->notices_told && k < q->n_notices; k++) {
            struct notice one = q->notices[k]; /* its span counts from when it was told */
            one.in_ms = one.in_ms > since ? one.in_ms - since : 0;
            notice_add(&x, &one);
        }
        if (!q->notices_told && e->nodes)
            e->nodes(e->arg, q->prefix, kept_each, &x);
    }
    e->events->notices(e->arg, x.v, x.n);
}

void fleet_nodes_drop(struct fleet_part *p)
{
    names_clear(p);
    refused_clear(p);
    mem_free(p->notices);
    p->notices = NULL;
    p->n_notices = 0;
}
