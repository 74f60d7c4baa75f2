/* A Target with two agents, whose drivers are fakes that answer when and what the test says: what
 * is true of the whole, when one of them is away, silent, or lost an answer. */
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
                                       .find = fake_find,
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

static void node_take(const struct node *n)
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
static void on_nodes(void *arg, const struct inventory_page *p)
{
    (void)arg;
    w.broken |= *p->since ? strcmp(p->since, w.revision) != 0 : !p->first || !p->last || !p->lacks;
    str_copy(w.revision, sizeof w.revision, p->revision);
    for (size_t i = 0; i < p->n; i++)
        node_take(&p->nodes[i]);
    for (size_t i = 0; i < p->n_removed; i++)
        for (size_t k = 0; k < w.n_nodes; k++)
            w.nodes[k].gone |= strcmp(w.nodes[k].name, p->removed[i]) == 0;
}
static void on_reach(void *arg, bool reachable, const char *session, const char *why)
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
static void on_part(void *arg, const char *part, bool reached, const char *state_id,
                    const char *why)
{
    (void)arg;
    (void)why;
    (void)snprintf(w.part[part[0] - 'a'], sizeof w.part[0], "%s %d %s", part, reached, state_id);
}
static void on_notices(void *arg, const struct notice *v, size_t n)
{
    (void)arg;
    w.n_notices = n;
    for (size_t i = 0; i < n; i++)
        w.notices[i] = v[i];
}
static const struct connector_events events = {
    .nodes = on_nodes, .reach = on_reach, .part = on_part, .notices = on_notices};

static bool where(void *arg, const struct run_key *k, struct arena *a, struct run_where *ret)
{
    (void)arg;
    (void)k;
    ret->nodes = arena_array(a, const char *, 4);
    for (ret->n = 0; w.at[ret->n]; ret->n++)
        ret->nodes[ret->n] = w.at[ret->n];
    return ret->n > 0;
}
static void nodes_known(void *arg, const char *prefix,
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

static void done(struct call *c, enum outcome out, const struct observation *seen,
                 const struct err *err)
{
    w.done++;
    w.out = out;
    w.has = seen != NULL;
    w.seen = seen ? *seen : (struct observation){0};
    w.err = err ? *err : (struct err){0};
    w.refused = c->refused.class_;
}
static struct call *call(void)
{
    w.done = 0;
    w.call = (struct call){.deadline_ms = loop_now_ms(w.loop) + 60000, .done = done};
    return &w.call;
}

static const struct run_key key = {.uid = "u", .epoch = 1, .try_ = 1};
static struct observation is(enum run_state state)
{
    return (struct observation){.key = key, .state = state};
}
static void says(unsigned at, enum asked what, enum run_state state)
{
    struct observation o = is(state);

    answer(at, what, OUT_DONE, &o);
}

static struct object *document(const char *const *agents, const char *state_of_a)
{
    struct target_agent v[4];
    struct target_agent_status known[1] = {{.name = "a", .agent = state_of_a, .message = ""}};
    struct meta m = {.name = "t"};
    struct target_spec s = {.type = TARGET_AGENT, .tier = TIER_HUB, .agents = v};
    struct target_status st = {.agents = known, .n_agents = 1};
    struct target t = {.metadata = &m, .spec = &s, .status = &st};

    while (agents[s.n_agents]) {
        v[s.n_agents] = (struct target_agent){.name = agents[s.n_agents]};
        s.n_agents++;
    }
    return object_make(kind_by_id(KIND_TARGET), &t);
}

static const char *const both[] = {"a", "b", NULL};

static void world_init(void)
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
static void world_fini(void)
{
    assert_false(w.broken);
    w.c->ops->destroy(w.c);
    (void)object_unref(w.target);
    loop_uv_destroy(w.loop);
}

static void comes(unsigned at, const char *state)
{
    const struct connector_env *e = &fakes[at]->base.env;

    e->events->agent(e->arg, state);
    e->events->reach(e->arg, true, state, "it has dialed in");
}
static void goes(unsigned at)
{
    const struct connector_env *e = &fakes[at]->base.env;

    e->events->reach(e->arg, false, "", "no heartbeat for 5 s");
}
/* A whole listing of one node, or of none. */
static void lists(unsigned at, const char *name)
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
static void passed(void *arg)
{
    loop_stop(arg);
}
static void pass(uint64_t ms)
{
    struct timer t;

    timer_init(&t, w.loop, passed, w.loop);
    timer_start(&t, ms);
    loop_uv_run(w.loop);
}

/* ---- tests ---- */
static void test_each_part_is_a_target_to_its_driver(void **state)
{
    struct object *more;
    static const char *const three[] = {"c", "a", "b", NULL};

    (void)state;
    world_init();
    assert_string_equal(fakes[0]->base.target, "t.a");
    assert_string_equal(fakes[1]->base.target, "t.b");
    assert_ptr_equal(connector_agent_part(w.c, "b"), &fakes[1]->base);
    assert_null(connector_agent_part(w.c, ""));
    assert_null(connector_agent_part(w.c, "c"));
    more = document(three, "first");
    w.c->ops->update(w.c, more);
    (void)object_unref(more);
    assert_int_equal(n_fakes, 3);
    assert_ptr_equal(connector_agent_part(w.c, "c"), &fakes[2]->base);
    assert_ptr_equal(connector_agent_part(w.c, "a"), &fakes[0]->base);
    world_fini();
}

static void test_a_run_is_asked_for_where_the_log_has_it(void **state)
{
    (void)state;
    world_init();
    comes(0, "sa");
    comes(1, "sb");
    w.at[0] = "t.b.n";
    w.c->ops->find(w.c, &key, call());
    assert_int_equal(fakes[0]->asked[FIND], 0);
    says(1, FIND, RUN_RUNNING);
    assert_int_equal(w.done, 1);
    assert_int_equal(w.seen.state, RUN_RUNNING);
    w.c->ops->stop(w.c, &key, 1000, call());
    assert_int_equal(fakes[0]->asked[STOP], 0);
    says(1, STOP, RUN_ENDED);
    assert_int_equal(w.seen.state, RUN_ENDED);
    world_fini();
}

/* Rejected would mean "had no effect", and absent "never started": of one that is away, neither is
 * known. */
static void test_what_is_away_or_silent_is_unknown(void **state)
{
    (void)state;
    world_init();
    comes(0, "sa");
    comes(1, "sb");
    goes(1);
    assert_true(w.reachable);
    w.at[0] = "t.b.n";
    w.c->ops->find(w.c, &key, call());
    answer(1, FIND, OUT_REJECTED, NULL); /* as a driver does whose agent is not connected */
    assert_int_equal(w.out, OUT_DONE);
    assert_int_equal(w.seen.state, RUN_UNKNOWN);
    assert_non_null(strstr(w.seen.message, "agent b of target t is away"));
    w.c->ops->stop(w.c, &key, 1000, call());
    answer(1, STOP, OUT_UNKNOWN, NULL);
    assert_int_equal(w.seen.state, RUN_UNKNOWN);
    w.c->ops->quiesce(w.c, &key, 15, 1000, call());
    answer(1, QUIESCE, OUT_UNKNOWN, NULL);
    assert_int_equal(w.out, OUT_UNKNOWN);
    assert_false(w.c->ops->reaches(w.c, &key)); /* no renewal may be counted */
    assert_true(w.c->ops->reaches(w.c, NULL));
    w.at[0] = "t.a.n";
    assert_true(w.c->ops->reaches(w.c, &key));
    world_fini();
}

/* Of a run that the log does not have any agent may have it. */
static void test_a_run_that_no_log_has_is_asked_of_all(void **state)
{
    (void)state;
    world_init();
    comes(0, "sa");
    comes(1, "sb");
    w.c->ops->stop(w.c, &key, 1000, call());
    says(0, STOP, RUN_ABSENT);
    assert_int_equal(w.done, 0);
    answer(1, STOP, OUT_UNKNOWN, NULL); /* its answer was lost */
    assert_int_equal(w.seen.state, RUN_UNKNOWN);
    w.c->ops->stop(w.c, &key, 1000, call());
    says(0, STOP, RUN_ABSENT);
    says(1, STOP, RUN_ABSENT);
    assert_int_equal(w.seen.state, RUN_ABSENT);
    w.c->ops->find(w.c, &key, call());
    answer(0, FIND, OUT_UNKNOWN, NULL);
    says(1, FIND, RUN_RUNNING);
    assert_int_equal(w.seen.state, RUN_RUNNING);
    w.c->ops->finalize(w.c, &key, call());
    answer(0, FINALIZE, OUT_REJECTED, NULL);
    says(1, FINALIZE, RUN_ENDED);
    assert_int_equal(w.out, OUT_DONE);
    world_fini();
}

static void test_what_spans_two_agents_is_refused_before_it_starts(void **state)
{
    struct assignment v[2] = {{.node = "t.a.n", .rank = 0}, {.node = "t.b.n", .rank = 1}};
    struct placement p = {.target = "t", .assignments = v, .n_assignments = 2};
    struct run_order o = {.key = key, .placement = &p};

    (void)state;
    world_init();
    comes(0, "sa");
    comes(1, "sb");
    w.c->ops->submit(w.c, &o, call());
    assert_int_equal(w.done, 0); /* never from inside the call */
    pass(20);
    assert_int_equal(w.out, OUT_REJECTED);
    assert_int_equal(w.refused, REFUSED_INVALID);
    assert_non_null(strstr(w.err.text, "several agents"));
    assert_int_equal(fakes[0]->asked[SUBMIT] + fakes[1]->asked[SUBMIT], 0);
    v[0].node = "t.b.n";
    w.c->ops->submit(w.c, &o, call());
    says(1, SUBMIT, RUN_STARTING);
    assert_int_equal(w.out, OUT_DONE);
    v[0].node = "t.c.n";
    w.c->ops->submit(w.c, &o, call());
    pass(20);
    assert_int_equal(w.out, OUT_REJECTED);
    world_fini();
}

/* What was swept before an agent came has not listed what runs there. */
static void test_a_sweep_that_an_agent_came_into_is_none(void **state)
{
    (void)state;
    world_init();
    comes(0, "sa");
    w.c->ops->sweep(w.c, NULL, NULL, call());
    comes(1, "sb");
    answer(0, SWEEP, OUT_DONE, NULL);
    assert_int_equal(w.out, OUT_UNKNOWN);
    w.c->ops->sweep(w.c, NULL, NULL, call());
    answer(0, SWEEP, OUT_DONE, NULL);
    assert_int_equal(w.done, 0);
    answer(1, SWEEP, OUT_DONE, NULL);
    assert_int_equal(w.out, OUT_DONE);
    assert_string_equal(w.seen.message, "");
    goes(1);
    w.c->ops->sweep(w.c, NULL, NULL, call());
    answer(0, SWEEP, OUT_DONE, NULL);
    assert_int_equal(w.out, OUT_DONE);
    assert_string_equal(w.seen.message, "agent b is away"); /* it is told that it lacks some */
    goes(0);
    w.c->ops->sweep(w.c, NULL, NULL, call());
    pass(20);
    assert_int_equal(w.out, OUT_UNKNOWN);
    world_fini();
}

static void test_reach_of_the_whole_is_that_of_any(void **state)
{
    (void)state;
    world_init();
    comes(1, "sb");
    assert_true(w.reachable);
    assert_string_equal(w.why, "1 of 2 agents are in reach, not a");
    assert_string_equal(w.part[1], "b 1 sb");
    comes(0, "sa");
    assert_string_equal(w.part[0], "a 1 sa");
    goes(1);
    assert_int_equal(w.reaches, 3);
    assert_true(w.reachable); /* in a new session: its runs are looked for */
    goes(0);
    assert_false(w.reachable);
    world_fini();
}

static void test_nodes_of_one_that_is_away_stay_and_take_nothing(void **state)
{
    (void)state;
    world_init();
    comes(0, "sa");
    lists(0, "t.a.n");
    comes(1, "sb");
    lists(1, "t.b.n");
    assert_int_equal(w.n_nodes, 2);
    assert_string_equal(w.nodes[1].target, "t"); /* not as its agent knows it */
    goes(1);
    pass(50);
    assert_int_equal(w.nodes[0].health, HEALTH_READY);
    assert_int_equal(w.nodes[1].health, HEALTH_UNKNOWN);
    assert_false(w.nodes[1].gone);
    comes(1, "sb");
    lists(1, "t.b.n");
    assert_int_equal(w.nodes[1].health, HEALTH_READY);
    w.c->ops->inventory(w.c, call());
    lists(0, "t.a.m"); /* one went, another came; the other agent's stay */
    lists(1, "t.b.n");
    assert_true(w.nodes[0].gone);
    assert_false(w.nodes[1].gone);
    assert_string_equal(w.nodes[2].name, "t.a.m");
    answer(0, INVENTORY, OUT_DONE, NULL);
    answer(1, INVENTORY, OUT_DONE, NULL);
    assert_int_equal(w.out, OUT_DONE);
    world_fini();
}

static void test_notices_of_an_agent_that_has_not_come_stay(void **state)
{
    const struct notice one = {.node = "t.a.n", .kind = NOTICE_MAINTENANCE};

    (void)state;
    world_init();
    comes(0, "sa");
    lists(0, "t.a.n");
    comes(1, "sb");
    lists(1, "t.b.n"); /* the state has a notice of it */
    fakes[0]->base.env.events->notices(fakes[0]->base.env.arg, &one, 1);
    assert_int_equal(w.n_notices, 2);
    assert_string_equal(w.notices[1].node, "t.b.n");
    fakes[1]->base.env.events->notices(fakes[1]->base.env.arg, NULL, 0);
    assert_int_equal(w.n_notices, 1);
    assert_string_equal(w.notices[0].node, "t.a.n");
    world_fini();
}

/* The log names the state folder of that agent alone to which a run goes. */
static void test_who_speaks_for_a_place(void **state)
{
    struct assignment v[2] = {{.node = "t.a.n"}, {.node = "t.b.n"}};
    struct placement p = {.target = "t", .assignments = v, .n_assignments = 1};
    char who[64], before[64];

    (void)state;
    world_init();
    w.c->ops->agents(w.c, &p, who);
    assert_string_equal(who, "first"); /* as the state has it */
    comes(0, "sa");
    w.c->ops->agents(w.c, &p, who);
    assert_string_equal(who, "sa");
    p.n_assignments = 2;
    w.c->ops->agents(w.c, &p, who);
    assert_string_equal(who, ""); /* b was never heard of */
    comes(1, "sb");
    w.c->ops->agents(w.c, &p, before);
    assert_string_not_equal(before, "");
    comes(1, "other");
    w.c->ops->agents(w.c, &p, who);
    assert_string_not_equal(who, before);
    world_fini();
}

static void test_a_fleet_that_goes_ends_what_is_open(void **state)
{
    (void)state;
    world_init();
    comes(0, "sa");
    comes(1, "sb");
    w.c->ops->find(w.c, &key, call());
    says(0, FIND, RUN_RUNNING);
    world_fini();
    assert_int_equal(w.done, 1);
    assert_int_equal(w.seen.state, RUN_RUNNING); /* it lives somewhere; nobody asks any more */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_part_is_a_target_to_its_driver),
        cmocka_unit_test(test_a_run_is_asked_for_where_the_log_has_it),
        cmocka_unit_test(test_what_is_away_or_silent_is_unknown),
        cmocka_unit_test(test_a_run_that_no_log_has_is_asked_of_all),
        cmocka_unit_test(test_what_spans_two_agents_is_refused_before_it_starts),
        cmocka_unit_test(test_a_sweep_that_an_agent_came_into_is_none),
        cmocka_unit_test(test_reach_of_the_whole_is_that_of_any),
        cmocka_unit_test(test_nodes_of_one_that_is_away_stay_and_take_nothing),
        cmocka_unit_test(test_notices_of_an_agent_that_has_not_come_stay),
        cmocka_unit_test(test_who_speaks_for_a_place),
        cmocka_unit_test(test_a_fleet_that_goes_ends_what_is_open),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
