/* What Targets report of their nodes and reach, on its way into the log: FACTS, one at a time for
 * each Target, with a page of nodes each. Reports that come meanwhile are merged, the newest of
 * each node, and go next.
 *
 * A node that a complete listing does not name is gone. That is judged once, after all pages of the
 * listing are in the log. A listing that is cut off, for whatever reason, removes no node. */

#include "controlplane/leader/site/facts.h"

#include "api/base/hash.h"
#include "api/base/log.h"
#include "controlplane/leader/context/index.h"
#include "controlplane/leader/site/sites.h"

#include <stdio.h>
#include <string.h>

#define FACTS_EVERY_MS 1000
#define INVENTORY_DEADLINE_MS 20000
#define PAGE_NODES 1000 /* what apply does at once */
#define PAGE_BYTES (512u << 10)
#define DUE_MAX_BYTES ((size_t)64 << 20) /* of one Target, not yet in the log */

struct due { /* one node as it was told last */
    struct list link;
    struct indexed by_name;
    char name[256];
    size_t n;
    unsigned char bytes[];
};
struct named { /* by the listing that is being told */
    struct list link;
    struct indexed by_name;
    char name[];
};

static void facts_next(struct site *t);
static void inventory_ask(struct site *t);

/* ---- what is due ---- */
static void due_free(struct site_facts *f, struct due *d)
{
    list_remove(&d->link);
    index_remove(&f->due_by_name, &d->by_name);
    f->n_due--;
    f->due_bytes -= sizeof *d + d->n;
    mem_free(d);
}

static void due_clear(struct site_facts *f)
{
    while (f->n_due)
        due_free(f, container_of(f->due.next, struct due, link));
}

static void due_put(struct site_facts *f, const char *name, struct slice bytes)
{
    struct indexed *had = index_find(&f->due_by_name, name);
    struct due *d = mem_zalloc(sizeof *d + bytes.n);

    if (had)
        due_free(f, container_of(had, struct due, by_name));
    str_copy(d->name, sizeof d->name, name);
    d->by_name.key = d->name;
    d->n = bytes.n;
    memcpy(d->bytes, bytes.p, bytes.n);
    index_add(&f->due_by_name, &d->by_name);
    list_push(&f->due, &d->link);
    f->n_due++;
    f->due_bytes += sizeof *d + d->n;
}

/* ---- the listing ---- */
static void listing_drop(struct site_facts *f)
{
    struct list *it;

    while ((it = list_pop(&f->named)) != NULL) {
        struct named *x = container_of(it, struct named, link);
        index_remove(&f->named_by_name, &x->by_name);
        mem_free(x);
    }
    f->n_named = 0;
    f->listing = false;
}

static void listing_add(struct site_facts *f, const char *name)
{
    size_t n = strlen(name) + 1;
    struct named *x;

    if (index_find(&f->named_by_name, name))
        return;
    x = mem_zalloc(sizeof *x + n);
    memcpy(x->name, name, n);
    x->by_name.key = x->name;
    index_add(&f->named_by_name, &x->by_name);
    list_push(&f->named, &x->link);
    f->n_named++;
}

/* ---- into the log ---- */
static void facts_answered(void *arg, const struct result *r, const struct err *err)
{
    struct site *t = arg;
    struct site_facts *f = &t->facts;

    f->proposing = false;
    if (t->gone)
        return;
    if (err || r->code) {
        f->committed_hash = 0;
        f->again = true;
        t->told = false;
        listing_drop(f);
        log_event(
            LOG_WARN, "target.facts",
            LOG_FIELDS({"target", log_str(t->name)}, {"why", log_str(err ? err->text : r->text)}));
        timer_start(&t->facts_timer, FACTS_EVERY_MS);
        return;
    }
    facts_next(t);
    if (f->again && t->reachable && !f->proposing)
        inventory_ask(t);
    if (site_facts_differ(t))
        timer_start(&t->facts_timer, FACTS_EVERY_MS);
}

bool site_facts_differ(const struct site *t)
{
    return t->told_reachable != t->reachable || strcmp(t->told_agent, t->agent) != 0 ||
           strcmp(t->told_rival, t->rival) != 0;
}

enum facts_kind { FACTS_SOME, FACTS_ALL, FACTS_GONE };

static void facts_propose(struct site *t, struct node *nodes, size_t n, enum facts_kind kind)
{
    union command c = {.facts = {.head = {.type = CMD_FACTS, .user = "hanse:target"},
                                 .reach_told = true,
                                 .reachable = t->reachable,
                                 .complete = kind == FACTS_ALL,
                                 .gone = kind == FACTS_GONE,
                                 .nodes = nodes,
                                 .n = (uint32_t)n}};

    t->told_reachable = t->reachable;
    t->told = true;
    brain_request_id(t->brain, c.head.request_id);
    str_copy(c.facts.target, sizeof c.facts.target, t->name);
    str_copy(c.facts.session, sizeof c.facts.session, t->session_id);
    str_copy(c.facts.why, sizeof c.facts.why, t->why);
    str_copy(t->told_agent, sizeof t->told_agent, t->agent);
    str_copy(t->told_rival, sizeof t->told_rival, t->rival);
    if (root_feature_level(t->brain->root) >= FEATURE_GRANTS) {
        str_copy(c.facts.agent, sizeof c.facts.agent, t->agent);
        str_copy(c.facts.rival, sizeof c.facts.rival, t->rival);
    }
    t->facts.proposing = true;
    brain_propose(t->brain, &c, facts_answered, t);
}

/* One page of what is due. All of a listing in one page says at once what is gone. */
static void page_tell(struct site *t)
{
    struct site_facts *f = &t->facts;
    AUTO_ARENA a = arena_create(0);
    struct node *nodes = arena_array(a, struct node, PAGE_NODES);
    bool whole = f->listing && f->n_due == f->n_named;
    size_t n = 0, bytes = 0;

    while (f->n_due && n < PAGE_NODES) {
        struct due *d = container_of(f->due.next, struct due, link);
        struct err err;
        void *body;

        if (n && bytes + d->n > PAGE_BYTES)
            break;
        bytes += d->n;
        if (tlv_decode(&schema_node, slice_make(d->bytes, d->n), a, &body, &err) == 0)
            nodes[n++] = *(struct node *)body;
        due_free(f, d);
    }
    whole &= !f->n_due && n == f->n_named;
    if (whole)
        listing_drop(f);
    facts_propose(t, nodes, n, whole ? FACTS_ALL : FACTS_SOME);
}

struct gone_scan {
    struct site *t;
    struct arena *a;
    struct node *v;
    size_t n, prefix;
};
static bool gone_each(const struct object *o, void *arg)
{
    struct gone_scan *g = arg;

    if (strncmp(o->meta->name, g->t->name, g->prefix) || o->meta->name[g->prefix] != '.')
        return false;
    if (strcmp(object_as(o, node)->spec->target, g->t->name) ||
        index_find(&g->t->facts.named_by_name, o->meta->name))
        return true;
    struct meta *m = arena_new(g->a, struct meta);
    m->name = arena_strdup(g->a, o->meta->name);
    g->v[g->n++].metadata = m;
    return g->n < PAGE_NODES;
}

/* All pages are in: what the state has beside them is gone. */
static void gone_tell(struct site *t)
{
    AUTO_ARENA a = arena_create(0);
    struct gone_scan g = {.t = t, .a = a, .prefix = strlen(t->name)};

    g.v = arena_array(a, struct node, PAGE_NODES);
    root_scan(t->brain->root, KIND_NODE, NULL, "", arena_printf(a, "%s.", t->name), gone_each, &g);
    if (g.n && root_feature_level(t->brain->root) >= FEATURE_GRANTS) {
        facts_propose(t, g.v, g.n, FACTS_GONE);
        return;
    }
    if (g.n)
        log_event(LOG_WARN, "target.inventory",
                  LOG_FIELDS({"target", log_str(t->name)},
                             {"why", log_str("nodes that are gone stay listed until all members "
                                             "run this version")}));
    listing_drop(&t->facts);
}

static void facts_next(struct site *t)
{
    struct site_facts *f = &t->facts;

    if (f->proposing || !t->brain->leads || t->gone)
        return;
    if (f->n_due || (f->listing && !f->n_named))
        page_tell(t);
    else if (f->listing)
        gone_tell(t);
}

/* Goes on where it was, tells reach, and asks again for an inventory that was lost on its way. */
static void facts_send(void *arg)
{
    struct site *t = arg;

    if (!t->brain->leads || t->facts.proposing)
        return;
    facts_next(t);
    if (t->facts.again)
        inventory_ask(t);
    if (!t->facts.proposing && (!t->told || site_facts_differ(t)))
        facts_propose(t, NULL, 0, FACTS_SOME);
}

void site_facts_soon(struct site *t)
{
    if (!timer_active(&t->facts_timer) && !t->facts.proposing)
        timer_start(&t->facts_timer, 0);
}

/* ---- inventory ---- */
static void inventory_answered(struct call *c, enum outcome out, const struct observation *seen,
                               const struct err *err)
{
    struct site *t = container_of(c, struct site, inventory.call);

    (void)seen;
    t->inventory_calling = false;
    if (out != OUT_DONE && !t->gone && t->reachable && t->brain->leads) {
        if (err)
            log_event(LOG_WARN, "target.inventory",
                      LOG_FIELDS({"target", log_str(t->name)}, {"why", log_str(err->text)}));
        t->facts.again = true;
        timer_start(&t->facts_timer, FACTS_EVERY_MS);
    } else if (t->facts.again && t->reachable && t->brain->leads && !t->facts.proposing) {
        inventory_ask(t);
    }
}

static void inventory_ask(struct site *t)
{
    if (t->inventory_calling || !t->connector || !t->reachable)
        return;
    t->facts.again = false;
    t->inventory_calling = true;
    t->connector->ops->inventory(
        t->connector,
        brain_call(t->brain, &t->inventory, INVENTORY_DEADLINE_MS, inventory_answered));
}

void site_inventory_ask(struct site *t)
{
    inventory_ask(t);
}

/* ---- what a connector tells ---- */
static uint64_t hash_nodes(const struct node *nodes, size_t n, bool complete)
{
    uint64_t h = HASH_START;
    AUTO_BUF b;

    buf_init(&b, LIMIT_OBJECT_MAX_BYTES);
    for (size_t i = 0; i < n; i++) {
        buf_reset(&b);
        tlv_add(&schema_node, &nodes[i], &b); /* what has no room nodes_take tells */
        h = hash_more(h, b.p, b.n);
    }
    return h + complete;
}

static void refused(struct site *t, const char *why)
{
    str_copy(t->error, sizeof t->error, why);
    log_event(LOG_ERROR, "target.inventory",
              LOG_FIELDS({"target", log_str(t->name)}, {"why", log_str(why)}));
}

/* GPUs of other numbers than places can have (store, struct node_usage), or NULL. */
static const struct gpu *gpu_beyond(const struct node_spec *s)
{
    for (uint32_t i = 0; s && i < s->n_gpus; i++)
        if (s->gpus[i].index < 0 || s->gpus[i].index >= LIMIT_NODE_GPUS)
            return &s->gpus[i];
    return NULL;
}

/* Decisions would place work on what no command can hold, again and again: such a node is told as
 * one that is not ready, with the reason. */
static int node_encode(const struct node *n, struct buf *out, struct err *err)
{
    const struct gpu *g = gpu_beyond(n->spec);
    struct node_status status = {0};
    struct node_spec spec;
    struct node told = *n;
    char reason[128];

    if (g) {
        (void)snprintf(reason, sizeof reason,
                       "it has GPU %lld: GPUs are numbered from 0 to %d; none of it is used",
                       (long long)g->index, LIMIT_NODE_GPUS - 1);
        if (n->status)
            status = *n->status;
        status.health = HEALTH_NOT_READY;
        status.reason = reason;
        spec = *n->spec;
        spec.n_gpus = 0;
        told.spec = &spec;
        told.status = &status;
    }
    return tlv_encode(&schema_node, &told, out, err);
}

/* False: one of them cannot be told, so the listing is not whole. */
static bool nodes_take(struct site *t, const struct node *nodes, size_t n)
{
    bool all = true;
    AUTO_BUF b;

    buf_init(&b, LIMIT_OBJECT_MAX_BYTES);
    for (size_t i = 0; i < n; i++) {
        const char *name = nodes[i].metadata ? nodes[i].metadata->name : "";

        buf_reset(&b);
        if (node_encode(&nodes[i], &b, NULL) < 0 || !*name ||
            strlen(name) >= sizeof((struct due *)0)->name ||
            t->facts.due_bytes + b.n > DUE_MAX_BYTES) {
            all = false;
            continue;
        }
        due_put(&t->facts, name, slice_make(b.p, b.n));
        if (t->facts.listing)
            listing_add(&t->facts, name);
    }
    return all;
}

void site_nodes(struct site *t, const struct node *nodes, size_t n, bool complete)
{
    struct site_facts *f = &t->facts;
    uint64_t hash = hash_nodes(nodes, n, complete);

    if (hash == f->committed_hash)
        return;
    f->committed_hash = hash;
    if (complete) { /* it names all that is there: what was told before is old */
        due_clear(f);
        listing_drop(f);
        f->listing = true;
    }
    if (!nodes_take(t, nodes, n)) {
        listing_drop(f);
        refused(t, "of its inventory some nodes are larger than an object may be, or all of them "
                   "than 64 MiB: these are left out, and none is taken away");
    }
    facts_next(t);
}

void site_facts_init(struct site *t)
{
    list_init(&t->facts.due);
    list_init(&t->facts.named);
    timer_init(&t->facts_timer, t->brain->loop, facts_send, t);
}

void site_facts_drop(struct site *t)
{
    due_clear(&t->facts);
    listing_drop(&t->facts);
}
