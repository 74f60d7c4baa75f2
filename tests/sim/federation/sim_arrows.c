/* One move, undisturbed but for one crash at one arrow: the party that is named dies as the log
 * says that the Migration has come to a phase, or inside of a failpoint, and comes back. All the
 * rest is as quiet as can be. */
#include "tests/sim/federation/sim_federation.h"

#include "api/base/failpoint.h"

#include <stdio.h>
#include <string.h>

#define CREATE_MS 4000
#define CAUSE_MS 8000
#define DOWN_MS 1500
#define LOST_MS 45000
#define END_MS 150000
#define INTERVAL 10

static const char *const parties[PARTY_NR] = {
    "nobody",          "leader",       "follower",          "source",
    "destination",     "source-agent", "destination-agent", "source-shim",
    "destination-shim"};
const char *fed_party_text(enum fed_party p)
{
    return parties[p];
}

/* ---- who dies ---- */
static void room_back(void *arg)
{
    struct fed *f = arg;

    for (unsigned i = 0; i < f->n_rooms; i++) {
        sim_room_power(f->rooms[i], true);
        sim_room_agent(f->rooms[i], true);
    }
}
static struct sim_room *room_by_name(struct fed *f, const char *name)
{
    for (unsigned i = 0; i < f->n_rooms; i++)
        if (!strcmp(f->rooms[i]->name, name))
            return f->rooms[i];
    return NULL;
}
static void room_dies(void *arg)
{
    struct fed *f = arg;
    enum fed_party p = f->script.arrow->party;
    bool source = p == PARTY_SOURCE || p == PARTY_SOURCE_AGENT || p == PARTY_SOURCE_SHIM;
    struct sim_room *r = room_by_name(f, source ? f->arrow.from : f->arrow.to);
    struct sim_run *run = r ? sim_room_run(r, "uid-w0") : NULL;

    if (!r)
        return;
    sim_log(f->w, "arrow: %s (%s) dies", fed_party_text(p), r->name);
    if (p == PARTY_SOURCE || p == PARTY_DESTINATION)
        sim_room_power(r, false);
    else if (p == PARTY_SOURCE_AGENT || p == PARTY_DESTINATION_AGENT)
        sim_room_agent(r, false);
    else if (run)
        sim_room_kill_run(r, run);
    f->arrow.died++;
    sim_at(f->w, sim_now_ms(f->w) + DOWN_MS, room_back, f);
}
static void member_dies(struct fed *f, struct sim_member *m)
{
    sim_log(f->w, "arrow: m%u dies", (unsigned)m->id);
    f->arrow.died++;
    f->members[m->id - 1] = NULL;
    sim_at(f->w, sim_now_ms(f->w) + DOWN_MS, fed_members_up, f);
    sim_crash_here(f->w);
}
static bool leads(const struct sim_member *m)
{
    struct core_status st;

    core_status(m->core, &st);
    return st.leads;
}

/* The log has come to the phase with entry `number`; m has just applied r. */
void fed_arrow_root(struct fed *f, struct sim_member *m, const struct root *r)
{
    const struct fed_arrow *a = f->script.arrow;

    if (!a || f->arrow.died || !f->arrow.number || root_number(r) < f->arrow.number)
        return;
    if (a->party == PARTY_LEADER || a->party == PARTY_FOLLOWER) {
        if (leads(m) == (a->party == PARTY_LEADER))
            member_dies(f, m);
    } else if (!f->arrow.scheduled) {
        f->arrow.scheduled = true;
        sim_at(f->w, sim_now_ms(f->w), room_dies, f);
    }
}
void fed_arrow_change(struct fed *f, const struct root *r, const struct change *c)
{
    const struct fed_arrow *a = f->script.arrow;
    const struct migration_status *s =
        c->kind == KIND_MIGRATION && c->after ? object_as(c->after, migration)->status : NULL;

    if (!a || !s || strcmp(object_as(c->after, migration)->spec->workload, "w0"))
        return;
    f->arrow.phases |= 1u << s->phase;
    if (*s->from)
        str_copy(f->arrow.from, sizeof f->arrow.from, s->from);
    if (*s->to)
        str_copy(f->arrow.to, sizeof f->arrow.to, s->to);
    if (a->phase && s->phase == a->phase && !f->arrow.number)
        f->arrow.number = root_number(r);
}
static void point_reached(const char *name, void *arg)
{
    struct fed *f = arg;
    const struct fed_arrow *a = f->script.arrow;
    struct sim_host *h = sim_firing(f->w);

    if (f->n_points < FED_POINTS_MAX) {
        unsigned i = 0;
        while (i < f->n_points && strcmp(f->points[i], name))
            i++;
        if (i == f->n_points)
            (void)snprintf(f->points[f->n_points++], sizeof f->points[0], "%s", name);
    }
    if (!a || !*a->point || strcmp(a->point, name) || f->arrow.died)
        return;
    for (unsigned i = 0; i < SIM_MEMBERS; i++)
        if (f->hosts[i] == h && f->members[i] && ++f->arrow.passed == (a->nth ? a->nth : 1))
            member_dies(f, f->members[i]);
}

/* ---- the move ---- */
static struct workload *workload_make(struct arena *a, const char *name, int64_t workers,
                                      int64_t gpus, const char *class_, int64_t steps)
{
    struct workload *w = arena_new(a, struct workload);
    struct workload_spec *s = w->spec = arena_new(a, struct workload_spec);
    struct sim_work work = {steps, 100, INTERVAL, 100, HABIT_SAVES, 0};
    char text[128];

    w->metadata = fed_meta(a, "dev", name, arena_printf(a, "uid-%s", name));
    s->run = arena_new(a, struct run_spec);
    s->run->script = "true";
    sim_work_print(&work, text);
    s->run->env = arena_new(a, struct env_var);
    s->run->env->name = SIM_WORK_ENV;
    s->run->env->value = arena_strdup(a, text + sizeof SIM_WORK_ENV);
    s->run->n_env = 1;
    s->gang = arena_new(a, struct gang);
    s->gang->workers = workers;
    s->resources = arena_new(a, struct resources);
    s->resources->cpu = 1000;
    s->resources->gpu = arena_new(a, struct gpu_request);
    s->resources->gpu->count = gpus;
    s->priorityClassName = class_;
    s->expected = arena_new(a, struct expected);
    s->expected->duration = 3600000;
    s->partition = arena_new(a, struct partition_spec);
    s->partition->mode = PARTITION_REPLACE;
    s->partition->replaceAfter = 1000;
    s->checkpoint = arena_new(a, struct checkpoint_spec);
    s->checkpoint->store = "/shared";
    s->checkpoint->signal = "SIGTERM";
    s->checkpoint->grace = 2000;
    s->checkpoint->keep = 2;
    return w;
}
static void create(struct fed *f, struct sim_member *m, struct workload *w)
{
    struct fed_workload *x = &f->workloads[f->n_workloads];
    struct write_op op;
    union command c = {.write = {.ops = &op, .n = 1, .if_absent = true}};

    str_copy(x->name, sizeof x->name, w->metadata->name);
    str_copy(x->uid, sizeof x->uid, w->metadata->uid);
    fed_op(&op, WRITE_CREATE, KIND_WORKLOAD, "dev", x->name, w);
    fed_propose(f, m, &c,
                &(struct fed_request){.workload = (int)f->n_workloads++, .verb = WRITE_CREATE});
}
/* With a guarantee to reclaim it is of no higher class than who borrowed. */
static void production(struct fed *f, struct sim_member *m)
{
    static const char *hub[] = {"fra"};
    AUTO_ARENA a = arena_create(0);
    struct workload *w =
        workload_make(a, "p0", 3, 4, fed_with_queues(f) ? "training" : "production", 30);

    w->spec->targets = arena_new(a, struct target_selector);
    w->spec->targets->names = hub;
    w->spec->targets->n_names = 1;
    w->spec->queue = fed_with_queues(f) ? "a" : "";
    create(f, m, w);
}
static void forbid(struct fed *f, struct sim_member *m)
{
    static const char *spoke[] = {"ams"};
    static const char *ns[] = {"dev"};
    AUTO_ARENA a = arena_create(0);
    struct write_op op;
    union command c = {.write = {.ops = &op, .n = 1, .if_absent = true}};
    struct compliance_policy *p = arena_new(a, struct compliance_policy);

    p->metadata = fed_meta(a, "", "away", "uid-away");
    p->spec = arena_new(a, struct compliance_policy_spec);
    p->spec->selects = arena_new(a, struct compliance_select);
    p->spec->selects->namespaces = ns;
    p->spec->selects->n_namespaces = 1;
    p->spec->allow = arena_new(a, struct compliance_allow);
    p->spec->allow->targets = spoke;
    p->spec->allow->n_targets = 1;
    fed_op(&op, WRITE_CREATE, KIND_COMPLIANCE_POLICY, "", "away", p);
    fed_propose(f, m, &c, &(struct fed_request){.workload = -1, .verb = WRITE_CREATE});
}
static void in_reach(void *arg)
{
    struct fed *f = arg;

    sim_heal(f->w);
}
static void cause(void *arg)
{
    struct fed *f = arg;
    struct sim_member *m = fed_member_pick(f);

    INV(m);
    switch (f->script.arrow->cause) {
    case MOVE_DRAIN:
        (void)fed_drain(f, m, "fra", true);
        break;
    case MOVE_REPATRIATE:
        (void)fed_drain(f, m, "fra", false);
        break;
    case MOVE_SICK:
    case MOVE_SPOT:
    case MOVE_CHEAPER:
    case MOVE_DATA:
        fed_cause_for(f, m, "w0", f->script.arrow->cause);
        break;
    case MOVE_RECLAIM:
    case MOVE_PREEMPTION:
        production(f, m);
        break;
    case MOVE_COMPLIANCE:
        forbid(f, m);
        break;
    case MOVE_LOST:
        for (unsigned i = 0; i < SIM_MEMBERS; i++)
            sim_partition(f->hosts[i], f->rooms[0]->host, true);
        sim_at(f->w, sim_now_ms(f->w) + LOST_MS, in_reach, f);
        break;
    default:
        fed_ask_move(f, m, "w0", "");
    }
}
static void drained(void *arg)
{
    struct fed *f = arg;
    struct sim_member *m = fed_member_pick(f);

    if (m && f->docs)
        (void)fed_drain(f, m, "fra", true);
}
static void begin(void *arg)
{
    struct fed *f = arg;
    AUTO_ARENA a = arena_create(0);
    struct sim_member *m = fed_member_pick(f);

    INV(m);
    struct workload *w = workload_make(a, "w0", 2, 2, "training", 120);
    if (f->script.arrow->cause == MOVE_DATA) {
        w->spec->data = arena_new(a, struct data_ref);
        w->spec->data->dataset = "scans";
        w->spec->n_data = 1;
    }
    w->spec->queue = fed_with_queues(f) ? "b" : "";
    create(f, m, w);
}
static bool settled(void *arg)
{
    struct fed *f = arg;

    return *f->failed || (f->n_workloads && fed_settled(f) && fed_moves_over(f));
}

/* ---- one life ---- */
static bool lost_too_much(const struct fed *f)
{
    const struct fed_arrow *a = f->script.arrow;

    /* Of what is lost with a target, as much as its lease lasts is lost, too: W3 says from where it
     * resumes. */
    return a->cause != MOVE_LOST && f->lost_steps > INTERVAL * (1 + (int64_t)f->arrow.died);
}
static void check_end(struct fed *f)
{
    struct root *r = fed_newest(f);

    fed_check_end(f);
    for (unsigned i = 0; r && i < f->n_workloads; i++) {
        const struct object *o = root_get(r, KIND_WORKLOAD, "dev", f->workloads[i].name);
        if (!o || object_as(o, workload)->status->phase != PHASE_SUCCEEDED)
            fed_fail(f, "A1: %s is %s at the end", f->workloads[i].name,
                     o ? phase_text(object_as(o, workload)->status->phase) : "not there");
    }
    (void)root_unref(r);
    if (lost_too_much(f))
        fed_fail(f, "A2: %lld steps were lost", (long long)f->lost_steps);
}
void fed_arrow_live(struct fed *f)
{
    const struct fed_arrow *a = f->script.arrow;

    failpoint_hook(point_reached, f);
    f->probe_acked = true;
    if (a->cause == MOVE_REPATRIATE)
        sim_at(f->w, CREATE_MS - 1000, drained, f);
    sim_at(f->w, CREATE_MS, begin, f);
    sim_at(f->w, CAUSE_MS, cause, f);
    (void)sim_run_until(f->w, CAUSE_MS + 3000, NULL, NULL);
    while (sim_now_ms(f->w) < END_MS && !settled(f))
        (void)sim_run_until(f->w, sim_now_ms(f->w) + 500, NULL, NULL);
    (void)sim_run_until(f->w, sim_now_ms(f->w) + 5000, NULL, NULL);
    if (!*f->failed)
        check_end(f);
}
