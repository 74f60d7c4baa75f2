/* What Targets report of their nodes and reach, on its way into the log: FACTS, one at a time for
 * each Target, with a page of nodes each. Reports that come meanwhile are merged (listing.c), the
 * newest of each node, and go next; what a node said before is not told again.
 *
 * A node that a complete listing does not name is gone. That is judged once, after all pages of the
 * listing are in the log. A listing that is cut off, for whatever reason, removes no node. */

#include "controlplane/leader/site/facts.h"

#include "api/base/log.h"
#include "controlplane/leader/context/hide.h"
#include "controlplane/leader/context/index.h"
#include "controlplane/leader/site/sites.h"

#include <stdio.h>
#include <string.h>

#define RIVAL_GONE_MS 60000 /* an agent that was turned away dials again within 10 s */
#define WHY_EVERY_MS 15000 /* of a target that stays out of reach */
#define FACTS_EVERY_MS 1000
#define SAID_EVERY_MS 600000
#define INVENTORY_DEADLINE_MS 20000
#define PAGE_NODES 1000 /* what apply does at once */
#define PAGE_BYTES (512u << 10)

static void facts_next(struct site *t);
static void nodes_lost(struct site *t);
static void inventory_ask(struct site *t);

/* ---- into the log ---- */
static void facts_answered(void *arg, const struct result *r, const struct err *err)
{
    struct site *t = arg;
    struct site_facts *f = &t->facts;

    f->proposing = false;
    if (t->gone)
        return;
    if (err || r->code) {
        f->again = true;
        t->told = f->refused_told = t->unread.told = false;
        site_agents_again(t);
        listing_forget(&f->nodes);
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

/* Nodes that cannot be read are told once it is known which, and while it is, whenever they become
 * others. */
static bool refused_due(const struct site *t)
{
    const struct site_facts *f = &t->facts;
    char now[sizeof f->told_refused];

    return root_feature_level(t->brain->root) >= FEATURE_COUNTS &&
           listing_refused(&f->nodes, now, sizeof now) &&
           (!f->refused_told || strcmp(now, f->told_refused) != 0);
}

/* Reasons are alike where only numbers in them differ: how often, how long. */
static bool alike(const char *a, const char *b)
{
    static const char digits[] = "0123456789";

    for (;; a++, b++) {
        a += strspn(a, digits);
        b += strspn(b, digits);
        if (*a != *b || !*a)
            return *a == *b;
    }
}

/* Who sets a target up reads there what is still wrong; what changes with each try is told now and
 * then. */
void site_facts_look(struct site *t)
{
    uint64_t now = loop_now_ms(t->brain->loop);

    if (*t->rival && now - t->rival_ms >= RIVAL_GONE_MS) {
        t->rival[0] = '\0';
        site_facts_soon(t);
    }
    if (t->reachable || !t->told || t->told_reachable || alike(t->why, t->told_why) ||
        now - t->why_told_ms < WHY_EVERY_MS)
        return;
    t->why_due = true;
    site_facts_soon(t);
}

bool site_facts_differ(const struct site *t)
{
    return t->told_reachable != t->reachable || strcmp(t->told_agent, t->agent) != 0 ||
           strcmp(t->told_rival, t->rival) != 0 || strcmp(t->told_denies, t->denies) != 0 ||
           t->why_due || refused_due(t) || site_unread_due(t) || site_agent_due(t);
}

enum facts_kind { FACTS_SOME, FACTS_ALL, FACTS_GONE, FACTS_NOTICED };

static void facts_propose(struct site *t, struct node *nodes, size_t n, enum facts_kind kind)
{
    union command c = {.facts = {.head = {.type = CMD_FACTS, .user = "hanse:target"},
                                 .reach_told = true,
                                 .reachable = t->reachable,
                                 .complete = kind == FACTS_ALL,
                                 .gone = kind == FACTS_GONE,
                                 .noticed = kind == FACTS_NOTICED,
                                 .nodes = nodes,
                                 .n = (uint32_t)n}};

    struct site_agent *part = site_agent_due(t);

    t->told_reachable = t->reachable;
    t->told = true;
    t->why_due = false;
    t->why_told_ms = loop_now_ms(t->brain->loop);
    str_copy(t->told_why, sizeof t->told_why, t->why);
    brain_request_id(t->brain, c.head.request_id);
    str_copy(c.facts.target, sizeof c.facts.target, t->name);
    str_copy(c.facts.session, sizeof c.facts.session, t->session_id);
    str_copy(c.facts.why, sizeof c.facts.why, t->why);
    str_copy(t->told_agent, sizeof t->told_agent, t->agent);
    str_copy(t->told_rival, sizeof t->told_rival, t->rival);
    str_copy(t->told_denies, sizeof t->told_denies, t->denies);
    if (root_feature_level(t->brain->root) >= FEATURE_GRANTS) {
        str_copy(c.facts.agent, sizeof c.facts.agent, t->agent);
        str_copy(c.facts.rival, sizeof c.facts.rival, t->rival);
        str_copy(c.facts.denies, sizeof c.facts.denies, t->denies);
        if (part)
            site_agent_fill(part, &c.facts);
    }
    if (refused_due(t)) {
        t->facts.refused_told = c.facts.refused_told =
            listing_refused(&t->facts.nodes, c.facts.refused, sizeof c.facts.refused);
        str_copy(t->facts.told_refused, sizeof t->facts.told_refused, c.facts.refused);
    }
    if (site_unread_due(t))
        site_unread_fill(t, &c.facts);
    t->facts.proposing = true;
    t->facts.keeps = true; /* to be looked at */
    brain_propose(t->brain, &c, facts_answered, t);
}

/* One page of what is due. All of a listing in one page says at once what is gone. */
static void page_tell(struct site *t)
{
    struct listing *l = &t->facts.nodes;
    AUTO_ARENA a = arena_create(0);
    struct node *nodes = arena_array(a, struct node, PAGE_NODES);
    bool whole = l->stage == LISTING_ENDED && l->n_due == l->n_named;
    size_t n = 0, bytes = 0;
    const struct node_told *d;

    while (n < PAGE_NODES && (d = listing_due(l)) != NULL) {
        struct err err;
        void *body;

        if (n && bytes + d->n > PAGE_BYTES)
            break;
        bytes += d->n;
        if (tlv_decode(&schema_node, slice_make(d->bytes, d->n), a, &body, &err) == 0)
            nodes[n++] = *(struct node *)body;
        listing_pop(l, d);
    }
    whole &= !l->n_due && n == l->n_named;
    if (whole) {
        listing_done(l);
        l->empty = !n;
    }
    facts_propose(t, nodes, n, whole ? FACTS_ALL : FACTS_SOME);
}

/* What deltas have removed. */
static void leaves_tell(struct site *t)
{
    struct listing *l = &t->facts.nodes;
    AUTO_ARENA a = arena_create(0);
    struct node *nodes = arena_array(a, struct node, PAGE_NODES);
    const struct node_told *d;
    size_t n = 0;

    while (n < PAGE_NODES && (d = listing_leaves(l)) != NULL) {
        nodes[n].metadata = arena_new(a, struct meta);
        nodes[n++].metadata->name = arena_strdup(a, d->name);
        listing_pop(l, d);
    }
    facts_propose(t, nodes, n, FACTS_GONE);
}

static bool unlisted(const struct object *o)
{
    const struct node_status *s = object_as(o, node)->status;

    return s && s->unlisted;
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
        listing_names(&g->t->facts.nodes, o->meta->name) || unlisted(o))
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
    listing_done(&t->facts.nodes);
}

static bool kept_each(const struct object *o, void *arg)
{
    struct gone_scan *g = arg;
    struct node_usage held;

    if (strncmp(o->meta->name, g->t->name, g->prefix) || o->meta->name[g->prefix] != '.')
        return false;
    if (strcmp(object_as(o, node)->spec->target, g->t->name) || !unlisted(o))
        return true;
    g->t->facts.keeps = true;
    if (root_usage(g->t->brain->root, o->meta->name, &held))
        return true;
    struct meta *m = arena_new(g->a, struct meta);
    m->name = arena_strdup(g->a, o->meta->name);
    g->v[g->n++].metadata = m;
    return g->n < PAGE_NODES;
}

/* Nodes that were kept for what was held on them alone. */
void site_kept_look(struct site *t)
{
    AUTO_ARENA a = arena_create(0);
    struct gone_scan g = {.t = t, .a = a, .prefix = strlen(t->name)};

    if (t->facts.nodes.uncounted && root_feature_level(t->brain->root) >= FEATURE_COUNTS) {
        t->facts.nodes.uncounted = false;
        nodes_lost(t);
    }
    if (!t->facts.keeps || t->facts.proposing || !t->brain->leads)
        return;
    t->facts.keeps = false;
    g.v = arena_array(a, struct node, PAGE_NODES);
    root_scan(t->brain->root, KIND_NODE, NULL, "", arena_printf(a, "%s.", t->name), kept_each, &g);
    if (g.n)
        facts_propose(t, g.v, g.n, FACTS_GONE);
}

/* Behind the nodes that they are about. */
static void notices_tell(struct site *t)
{
    AUTO_ARENA a = arena_create(0);
    struct node *nodes = arena_array(a, struct node, PAGE_NODES);
    size_t n = site_notices_due(t, a, nodes, PAGE_NODES);

    if (n)
        facts_propose(t, nodes, n, FACTS_NOTICED);
}

static void facts_next(struct site *t)
{
    const struct listing *l = &t->facts.nodes;

    if (t->facts.proposing || !t->brain->leads || t->gone)
        return;
    if (l->n_due || (l->stage == LISTING_ENDED && !l->n_named && !l->empty))
        page_tell(t);
    else if (l->n_leaves)
        leaves_tell(t);
    else if (l->stage == LISTING_ENDED)
        gone_tell(t);
    if (!t->facts.proposing && t->facts.notices.due)
        notices_tell(t);
    if (!t->facts.proposing && (refused_due(t) || site_unread_due(t)))
        facts_propose(t, NULL, 0, FACTS_SOME);
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
/* What is wrong may be told with each page and each listing: the log hears of it once, and again
 * after a while. */
static void inventory_log(struct site *t, enum log_level level, const char *why)
{
    struct site_facts *f = &t->facts;
    uint64_t now = loop_now_ms(t->brain->loop);
    char text[sizeof f->said];

    str_copy(text, sizeof text, why);
    hide_controls(text);
    if (strcmp(text, f->said) == 0 && now - f->said_ms < SAID_EVERY_MS)
        return;
    str_copy(f->said, sizeof f->said, text);
    f->said_ms = now;
    log_event(level, "target.inventory",
              LOG_FIELDS({"target", log_str(t->name)}, {"why", log_str(text)}));
}

static void inventory_answered(struct call *c, enum outcome out, const struct observation *seen,
                               const struct err *err)
{
    struct site *t = container_of(c, struct site, inventory.call);

    (void)seen;
    t->inventory_calling = false;
    if (out != OUT_DONE && !t->gone && t->reachable && t->brain->leads) {
        if (err)
            inventory_log(t, LOG_WARN, err->text);
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
static void nodes_lost(struct site *t)
{
    t->facts.again = true;
    if (!timer_active(&t->facts_timer))
        timer_start(&t->facts_timer, FACTS_EVERY_MS);
}

void site_nodes(struct site *t, const struct inventory_page *p)
{
    bool level = root_feature_level(t->brain->root) >= FEATURE_GRANTS;
    struct err err;
    int rc;

    t->facts.nodes.counts = root_feature_level(t->brain->root) >= FEATURE_COUNTS;
    t->facts.notices.due = t->facts.notices.known;
    if (p->n_removed && !level) { /* older members take nodes away by listings alone */
        listing_cut(&t->facts.nodes);
        rc = err_set(&err, E_CONFLICT, "not all members run this version");
    } else {
        rc = listing_take(&t->facts.nodes, p, !level, &err);
    }
    if (rc == E_CONFLICT) {
        log_event(LOG_INFO, "target.inventory",
                  LOG_FIELDS({"target", log_str(t->name)}, {"why", log_str(err.text)}));
        nodes_lost(t);
    } else if (rc < 0) {
        str_copy(t->error, sizeof t->error, err.text);
        inventory_log(t, LOG_ERROR, err.text);
    }
    facts_next(t);
}

void site_nodes_cut(struct site *t)
{
    listing_cut(&t->facts.nodes);
}

void site_facts_init(struct site *t)
{
    listing_init(&t->facts.nodes);
    t->facts.keeps = true;
    timer_init(&t->facts_timer, t->brain->loop, facts_send, t);
}

void site_facts_drop(struct site *t)
{
    site_notices_drop(t);
    listing_fini(&t->facts.nodes);
}
