/* A Target with two agents, a and b, whose drivers are fakes (fleet_fake.h), and the leader's side
 * of it: what was told last, and what the last call was answered. For one test program alone. */
#ifndef HANSE_TESTS_SUPPORT_AGENT_FLEET_WORLD_H
#define HANSE_TESTS_SUPPORT_AGENT_FLEET_WORLD_H

#include "connectors/agent/fleet/fleet_internal.h"
#include "tests/support/agent/fleet_fake.h"
#include "tests/support/store/store_kit.h"

#include <stdio.h>
#include <string.h>

struct fake *fakes[4];
size_t n_fakes;
const struct connector_ops fake_ops = {.type = "agent",
                                       .create = fake_create,
                                       .destroy = fake_destroy,
                                       .update = fake_update,
                                       .submit = fake_submit,
                                       .repeats = fake_repeats,
                                       .find = fake_find,
                                       .stage = fake_stage,
                                       .checkpoint = fake_checkpoint,
                                       .stop = fake_stop,
                                       .quiesce = fake_quiesce,
                                       .finalize = fake_finalize,
                                       .sweep = fake_sweep,
                                       .inventory = fake_inventory,
                                       .renew = fake_renew};

/* ---- the leader's side ---- */
struct world {
    struct loop *loop;
    struct connector *c;
    struct object *target;
    const char *at[4]; /* nodes of the run, by rank, as the log has them; NULL: it does not */
    bool ran;          /* it was seen running, by the log */
    struct observation told; /* the last one, and how many */
    unsigned tellings;
    struct run_checkpoint_report saved; /* the last one that was told ahead of its run */
    bool reachable;
    char session[96], why[256], part[3][64];
    unsigned reaches;
    /* nodes as the state would have them after what was told */
    struct {
        char name[64], target[16];
        enum health health;
        bool gone;
    } nodes[8];
    size_t n_nodes;
    char revision[64];
    char unreadable[64]; /* the node that cannot be read */
    bool broken; /* a page did not follow what came last */
    struct notice notices[8];
    size_t n_notices;
    struct call call;
    unsigned done;
    enum outcome out;
    struct observation seen;
    bool has;
    struct err err;
    enum refusal_class refused;
};
static struct world w;

static inline void node_take(const struct node *n)
{
    size_t i = 0;

    while (i < w.n_nodes && strcmp(w.nodes[i].name, n->metadata->name) != 0)
        i++;
    if (i == w.n_nodes)
        w.n_nodes++;
    str_copy(w.nodes[i].name, sizeof w.nodes[i].name, n->metadata->name);
    str_copy(w.nodes[i].target, sizeof w.nodes[i].target, n->spec->target);
    w.nodes[i].health = n->status ? n->status->health : HEALTH_READY;
    w.nodes[i].gone = false;
}

/* As controlplane/leader/site/listing.c does. */
static inline void on_nodes(void *arg, const struct inventory_page *p)
{
    (void)arg;
    w.broken |= *p->since ? strcmp(p->since, w.revision) != 0 : !p->first || !p->last || !p->lacks;
    str_copy(w.revision, sizeof w.revision, p->revision);
    for (size_t i = 0; i < p->n; i++)
        node_take(&p->nodes[i]);
    for (size_t i = 0; i < p->n_refused; i++)
        str_copy(w.unreadable, sizeof w.unreadable, p->refused[i].name);
    for (size_t i = 0; i < p->n_removed; i++)
        if (strcmp(w.unreadable, p->removed[i]) == 0)
            w.unreadable[0] = '\0';
    for (size_t i = 0; i < p->n_removed; i++)
        for (size_t k = 0; k < w.n_nodes; k++)
            w.nodes[k].gone |= strcmp(w.nodes[k].name, p->removed[i]) == 0;
}
static inline void on_reach(void *arg, bool reachable, const char *session, const char *why)
{
    (void)arg;
    w.reachable = reachable;
    w.reaches++;
    if (reachable)
        assert_string_not_equal(session, w.session);
    str_copy(w.session, sizeof w.session, session);
    str_copy(w.why, sizeof w.why, why);
    w.revision[0] = '\0'; /* the caller lost its place */
}
static inline void on_part(void *arg, const char *part, bool reached, const char *state_id,
                    const char *why)
{
    (void)arg;
    (void)why;
    (void)snprintf(w.part[part[0] - 'a'], sizeof w.part[0], "%s %d %s", part, reached, state_id);
}
static inline void on_notices(void *arg, const struct notice *v, size_t n)
{
    (void)arg;
    w.n_notices = n;
    for (size_t i = 0; i < n; i++)
        w.notices[i] = v[i];
}
static inline void on_observed(void *arg, const struct observation *o)
{
    (void)arg;
    w.told = *o;
    w.tellings++;
}
static inline void on_saved(void *arg, const struct run_key *k,
                            const struct run_checkpoint_report *c)
{
    (void)arg;
    (void)k;
    w.saved = *c;
}
static const struct connector_events events = {.observed = on_observed,
                                               .saved = on_saved,
                                               .nodes = on_nodes,
                                               .reach = on_reach,
                                               .part = on_part,
                                               .notices = on_notices};

static inline bool where(void *arg, const struct run_key *k, struct arena *a, struct run_where *ret)
{
    (void)arg;
    (void)k;
    ret->nodes = arena_array(a, const char *, 4);
    for (ret->n = 0; w.at[ret->n]; ret->n++)
        ret->nodes[ret->n] = w.at[ret->n];
    ret->grace_ms = 7000;
    ret->ran = w.ran;
    return ret->n > 0;
}
static inline void nodes_known(void *arg, const char *prefix,
                        void (*each)(void *each_arg, const struct node *n), void *each_arg)
{
    (void)arg;
    for (size_t i = 0; i < w.n_nodes; i++) {
        static struct node_notice notice = {.kind = NOTICE_SPOT};
        static struct node_spec s = {.target = "t"};
        static struct state_node {
            struct node n;
            struct meta m;
            struct node_status st;
        } v[8];
        v[i].m = (struct meta){.name = w.nodes[i].name};
        v[i].st = (struct node_status){.health = w.nodes[i].health, .reason = ""};
        v[i].n = (struct node){.metadata = &v[i].m, .spec = &s, .status = &v[i].st};
        if (strcmp(v[i].m.name, "t.b.n") == 0)
            v[i].st.notice = &notice;
        if (!w.nodes[i].gone && strncmp(v[i].m.name, prefix, strlen(prefix)) == 0)
            each(each_arg, &v[i].n);
    }
}

static inline void done(struct call *c, enum outcome out, const struct observation *seen,
                 const struct err *err)
{
    w.done++;
    w.out = out;
    w.has = seen != NULL;
    w.seen = seen ? *seen : (struct observation){0};
    w.err = err ? *err : (struct err){0};
    w.refused = c->refused.class_;
}
static inline struct call *call(void)
{
    w.done = 0;
    w.call = (struct call){.deadline_ms = loop_now_ms(w.loop) + 60000, .done = done};
    return &w.call;
}

static const struct run_key key = {.uid = "u", .epoch = 1, .try_ = 1};
static inline struct observation is(enum run_state state)
{
    return (struct observation){.key = key, .state = state};
}
static inline void says(unsigned at, enum asked what, enum run_state state)
{
    struct observation o = is(state);

    answer(at, what, OUT_DONE, &o);
}

static inline struct object *document(const char *const *agents, const char *state_of_a)
{
    struct target_agent v[4];
    struct target_agent_status known[1] = {{.name = "a", .agent = state_of_a, .message = ""}};
    struct meta m = {.name = "t"};
    struct target_spec s = {.type = TARGET_AGENT, .tier = TIER_HUB, .agents = v};
    struct target_status st = {.agents = known, .n_agents = 1};
    struct target t = {.metadata = &m, .spec = &s, .status = &st};

    while (agents[s.n_agents]) {
        static const char *const addresses[] = {"10.0.0.1", "10.0.0.2", "", ""};
        v[s.n_agents] =
            (struct target_agent){.name = agents[s.n_agents], .address = addresses[s.n_agents]};
        s.n_agents++;
    }
    return object_make(kind_by_id(KIND_TARGET), &t);
}

static const char *const both[] = {"a", "b", NULL};

static inline void world_init(void)
{
    struct connector_env env = {.events = &events, .where = where, .nodes = nodes_known};
    struct err err;

    n_fakes = 0;
    w = (struct world){.loop = loop_uv_create(&err)};
    assert_non_null(w.loop);
    env.loop = w.loop;
    w.target = document(both, "first");
    assert_int_equal(fleet_make(&env, w.target, &fake_ops, &w.c, &err), 0);
    assert_int_equal(n_fakes, 2);
}
static inline void world_fini(void)
{
    assert_false(w.broken);
    w.c->ops->destroy(w.c);
    (void)object_unref(w.target);
    loop_uv_destroy(w.loop);
}

static inline void comes(unsigned at, const char *state)
{
    const struct connector_env *e = &fakes[at]->base.env;

    str_copy(fakes[at]->memory, sizeof fakes[at]->memory, state);
    e->events->agent(e->arg, state);
    e->events->reach(e->arg, true, state, "it has dialed in");
}
static inline void goes(unsigned at)
{
    const struct connector_env *e = &fakes[at]->base.env;

    e->events->reach(e->arg, false, "", "no heartbeat for 5 s");
}
/* A whole listing of one node, or of none. */
static inline void lists(unsigned at, const char *name)
{
    const struct connector_env *e = &fakes[at]->base.env;
    struct meta m = {.name = name};
    struct node_spec s = {.target = fakes[at]->base.target};
    struct node n = {.metadata = &m, .spec = &s};
    const struct inventory_page page = {.nodes = &n,
                                        .n = name != NULL,
                                        .revision = "r",
                                        .since = "",
                                        .first = true,
                                        .last = true};

    e->events->nodes(e->arg, &page);
}
/* A whole listing of which nothing but the name of one node can be read. */
static inline void lists_unreadable(unsigned at, const char *name)
{
    const struct connector_env *e = &fakes[at]->base.env;
    const struct node_refused refused = {.name = name, .why = "it is upside down"};
    const struct inventory_page page = {.revision = "r",
                                        .since = "",
                                        .first = true,
                                        .last = true,
                                        .lacks = true,
                                        .refused = &refused,
                                        .n_refused = 1};

    e->events->nodes(e->arg, &page);
}
static inline void passed(void *arg)
{
    loop_stop(arg);
}
static inline void pass(uint64_t ms)
{
    struct timer t;

    timer_init(&t, w.loop, passed, w.loop);
    timer_start(&t, ms);
    loop_uv_run(w.loop);
}

#endif
