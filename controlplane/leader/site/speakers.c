/* Who speaks for a Target. The agents of one that lists several: the state is told of each when its
 * reach or its state folder changes, and their connector asks here where the log has a run, for it
 * keeps no such thing. And Targets at one server: each would count what it has as its own, and give
 * it out, so the older one has it, also where the younger one was heard first; the other one stays
 * out of reach, with the reason, until the older one is gone or is at another server. */
#include "controlplane/leader/drive/lease.h"
#include "controlplane/leader/site/sites.h"

#include <stdio.h>
#include <string.h>

/* ---- agents: what the state is told ---- */
void site_agent_told(struct site *t, const char *part, bool reached, const char *state_id,
                     const char *why)
{
    struct site_agent *p = NULL;

    for (size_t i = 0; i < t->n_agents; i++)
        if (strcmp(t->agents[i].name, part) == 0)
            p = &t->agents[i];
    if (!p && t->n_agents == LIMIT_TARGET_AGENTS)
        return;
    if (!p) {
        t->agents = mem_realloc(t->agents, (t->n_agents + 1) * sizeof *t->agents);
        p = &t->agents[t->n_agents++];
        *p = (struct site_agent){.told = false};
        str_copy(p->name, sizeof p->name, part);
    }
    p->reached = reached;
    str_copy(p->state, sizeof p->state, state_id);
    str_cut(p->why, sizeof p->why, reached ? "" : why);
    if (t->brain->leads && site_agent_due(t))
        site_facts_soon(t);
}

struct site_agent *site_agent_due(const struct site *t)
{
    for (size_t i = 0; i < t->n_agents; i++) {
        struct site_agent *p = &t->agents[i];
        if (!p->told || p->told_reached != p->reached || strcmp(p->told_state, p->state) != 0)
            return p;
    }
    return NULL;
}

void site_agent_fill(struct site_agent *p, struct facts_cmd *c)
{
    str_copy(c->part, sizeof c->part, p->name);
    str_copy(c->part_why, sizeof c->part_why, p->why);
    str_copy(c->agent, sizeof c->agent, p->state);
    c->part_reached = p->reached;
    p->told = true;
    p->told_reached = p->reached;
    str_copy(p->told_state, sizeof p->told_state, p->state);
}

void site_agents_again(struct site *t)
{
    for (size_t i = 0; i < t->n_agents; i++)
        t->agents[i].told = false;
}

void site_agents_drop(struct site *t)
{
    mem_free(t->agents);
    t->agents = NULL;
    t->n_agents = 0;
}

void site_lacks(struct site *t, bool lacks)
{
    if (lacks && !t->lacks)
        t->lacks_since_ms = loop_now_ms(t->brain->loop);
    t->lacks = lacks;
}

void site_agent_of(const struct site *t, const struct placement *p, char ret[64])
{
    ret[0] = '\0';
    if (t && t->connector && t->connector->ops->agents && p)
        t->connector->ops->agents(t->connector, p, ret);
    else if (t)
        str_copy(ret, 64, t->agent);
}

/* ---- what the connector asks ---- */
bool site_where(void *arg, const struct run_key *k, struct arena *a, struct run_where *ret)
{
    struct site *t = arg;
    const struct object *o = root_workload_by_uid(t->brain->root, k->uid);
    const struct workload_status *s = o ? object_as(o, workload)->status : NULL;
    const struct placement *p = s && s->epoch == k->epoch ? s->placement : NULL;
    uint32_t n = p ? p->n_assignments : 0;

    if (!s || s->epoch != k->epoch || (p && strcmp(p->target, t->name) != 0))
        return false;
    if (!p) /* it has ended: where its workers were */
        n = s->n_workers;
    ret->nodes = arena_array(a, const char *, n + 1);
    for (uint32_t i = 0; i < n; i++)
        ret->nodes[i] = p ? p->assignments[i].node : s->workers[i].node;
    ret->n = n;
    const struct lease_grant *g = s->intent ? s->intent->granted : NULL;
    ret->grace_ms = g && g->grace > 0 ? (uint64_t)g->grace : 0;
    ret->ran = workload_has_run(s);
    ret->lives = p && phase_live(s->phase) && s->intent && s->intent->try_ == k->try_;
    ret->lease_ms = ret->lives ? lease_held_ms(s->intent) : 0;
    ret->ns = arena_strdup(a, o->meta->namespace_);
    return n > 0;
}

struct node_scan {
    const struct site *t;
    const char *prefix;
    void (*each)(void *each_arg, const struct node *n);
    void *each_arg;
};

static bool node_each(const struct object *o, void *arg)
{
    const struct node_scan *x = arg;
    const struct node *n = object_as(o, node);

    if (strncmp(o->meta->name, x->prefix, strlen(x->prefix)) != 0)
        return false;
    if (strcmp(n->spec->target, x->t->name) == 0)
        x->each(x->each_arg, n);
    return true;
}

void site_nodes_known(void *arg, const char *prefix,
                      void (*each)(void *each_arg, const struct node *n), void *each_arg)
{
    struct site *t = arg;
    struct node_scan x = {t, prefix, each, each_arg};

    root_scan(t->brain->root, KIND_NODE, NULL, "", prefix, node_each, &x);
}

/* ---- two Targets at one server ---- */
/* Who speaks for it, as heard, or as the state was told by an earlier leader. */
static const char *speaker(const struct site *t)
{
    const struct object *o = root_get(t->brain->root, KIND_TARGET, "", t->name);
    const struct target_status *s = o ? object_as(o, target)->status : NULL;

    if (*t->agent)
        return t->agent;
    return s && s->agent ? s->agent : "";
}

/* Agents have certificates, by which two of them are told apart. */
static bool is_dialed(const struct site *t)
{
    return !target_can(object_as(t->doc, target)->spec->type, CAN_DIAL_IN);
}

static bool older(const struct site *a, const struct site *b)
{
    int64_t at = a->doc->meta->creationTimestamp, bt = b->doc->meta->creationTimestamp;

    return at != bt ? at < bt : strcmp(a->name, b->name) < 0;
}

static const struct site *twin_of(const struct site *t)
{
    if (!*t->agent || !is_dialed(t))
        return NULL;
    list_for_each (it, &t->brain->sites->all) {
        const struct site *x = container_of(it, struct site, link);
        if (x != t && is_dialed(x) && older(x, t) && strcmp(speaker(x), t->agent) == 0)
            return x;
    }
    return NULL;
}

bool site_twin(void *arg, char why[256])
{
    const struct site *t = arg, *x = twin_of(t);

    if (x)
        (void)snprintf(why, 256,
                       "Target %.80s is at the same server or cluster (%.64s), and what it has "
                       "would count twice: remove one of the two",
                       x->name, t->agent);
    return x != NULL;
}

void twins_look(struct brain *b)
{
    if (!b->leads || b->closing)
        return;
    list_for_each (it, &b->sites->all) {
        struct site *t = container_of(it, struct site, link);
        if (t->answers && t->reachable == (twin_of(t) != NULL))
            site_reached(t, true, t->answers_id, "");
    }
}
