/* Users: they create, suspend and delete workloads through members that they choose at random, and
 * know only what they were told. */
#include "tests/sim/federation/sim_federation.h"

#include "api/base/limits.h"

#include <stdio.h>
#include <string.h>

#define DEADLINE_MS 8000

struct request {
    struct fed *f;
    struct fed_request q;
};

struct sim_member *fed_member_pick(struct fed *f)
{
    unsigned first = (unsigned)fed_below(f, SIM_MEMBERS);

    for (unsigned i = 0; i < SIM_MEMBERS; i++) {
        struct sim_member *m = f->members[(first + i) % SIM_MEMBERS];
        if (m && m->core && !m->closing && !m->error.code && !f->paused[m->id - 1])
            return m;
    }
    return NULL;
}

static void answered(void *arg, const struct result *r, const struct err *err)
{
    struct request *q = arg;
    struct fed *f = q->f;
    bool done = !err && (r->code == 0 || (r->code == E_EXISTS && q->q.docs));

    f->acked += done;
    f->unknown += err && err->code == E_UNKNOWN;
    if (q->q.docs)
        f->docs |= done;
    if (q->q.probe)
        f->probe_acked |= done;
    if (q->q.workload >= 0 && done && q->q.verb == WRITE_CREATE)
        f->workloads[q->q.workload].created = true;
    if (q->q.workload >= 0 && done && q->q.verb == WRITE_DELETE)
        f->workloads[q->q.workload].deleted = true;
    mem_free(q);
}
void fed_propose(struct fed *f, struct sim_member *m, union command *c,
                 const struct fed_request *rq)
{
    struct request *q = mem_new(struct request);
    AUTO_BUF bytes;

    *q = (struct request){f, *rq};
    c->head.type = CMD_WRITE;
    (void)snprintf(c->head.user, sizeof c->head.user, "alice");
    (void)snprintf(c->head.request_id, sizeof c->head.request_id, "user-%u", f->n_requests++);
    buf_init(&bytes, LIMIT_COMMAND_MAX_BYTES);
    command_encode(c, &bytes);
    INV(!bytes.failed);
    core_propose(m->core, m->loop, c->head.request_id, slice_make(bytes.p, bytes.n), DEADLINE_MS,
                 answered, q);
    for (uint32_t i = 0; i < c->write.n; i++)
        c->write.ops[i].object = object_unref(c->write.ops[i].object);
}

/* ---- documents ---- */
struct meta *fed_meta(struct arena *a, const char *ns, const char *name, const char *uid)
{
    struct meta *m = arena_new(a, struct meta);

    m->name = name;
    m->namespace_ = ns;
    m->uid = uid;
    return m;
}
void fed_op(struct write_op *op, enum write_verb verb, enum kind_id kind, const char *ns,
            const char *name, const void *body)
{
    *op = (struct write_op){.verb = verb, .kind = kind};
    str_copy(op->ns, sizeof op->ns, ns);
    str_copy(op->name, sizeof op->name, name);
    if (body)
        op->object = object_make(kind_by_id(kind), body);
}
static void docs_again(void *arg)
{
    fed_docs(arg);
}
void fed_docs(struct fed *f)
{
    AUTO_ARENA a = arena_create(0);
    struct write_op ops[1 + FED_ROOMS_MAX + FED_MOVE_DOCS + FED_CAUSE_DOCS];
    unsigned rooms = f->n_rooms - f->unmade;
    union command c = {.write = {.ops = ops, .n = 1 + rooms, .if_absent = true}};
    struct namespace_ *ns = arena_new(a, struct namespace_);
    struct sim_member *m = fed_member_pick(f);

    if (f->docs)
        return;
    sim_at(f->w, sim_now_ms(f->w) + 1000, docs_again, f);
    if (!m)
        return;
    ns->metadata = fed_meta(a, "", "dev", "uid-ns-dev");
    fed_op(&ops[0], WRITE_CREATE, KIND_NAMESPACE, "", "dev", ns);
    for (unsigned i = 0; i < rooms; i++) {
        struct target *t = arena_new(a, struct target);
        t->metadata = fed_meta(a, "", f->rooms[i]->name, arena_printf(a, "uid-room-%u", i));
        t->spec = arena_new(a, struct target_spec);
        t->spec->type = TARGET_AGENT;
        t->spec->tier = f->script.moves && i ? TIER_SPOKE : TIER_HUB;
        t->spec->partition = arena_new(a, struct target_partition);
        t->spec->partition->suspectAfter = 2000;
        t->spec->partition->lease = 8000;
        if (f->script.mixed)
            f->script.mixed->target(f, a, t->spec, f->rooms[i]->name);
        if (fed_for_gain(f)) {
            t->spec->capacity = CAPACITY_OWNED;
            t->spec->priceSheet = arena_printf(a, "%s-prices", f->rooms[i]->name);
        }
        fed_op(&ops[1 + i], WRITE_CREATE, KIND_TARGET, "", f->rooms[i]->name, t);
    }
    if (f->script.moves)
        c.write.n += fed_move_docs(f, a, ops + c.write.n);
    c.write.n += fed_cause_docs(f, a, ops + c.write.n);
    fed_propose(f, m, &c, &(struct fed_request){.workload = -1, .docs = true});
}

/* ---- what users do ---- */
static const char *name_make(struct fed *f, char out[32])
{
    (void)snprintf(out, 32, "w%u", f->n_workloads);
    return out;
}
/* Two of three make steps and write checkpoints; what can run anywhere writes none. */
static void work_make(struct fed *f, struct arena *a, struct workload_spec *s, bool anywhere)
{
    struct sim_work w = {0};
    uint64_t habit;
    char text[128];

    if (!f->script.steps || fed_below(f, 3) == 0)
        return;
    w.steps = 20 + (int64_t)fed_below(f, 100);
    w.step_ms = 50 + (int64_t)fed_below(f, 150);
    w.interval = 5 + (int64_t)fed_below(f, 15);
    w.write_ms = 10 + (int64_t)fed_below(f, 300);
    habit = fed_below(f, 10);
    w.habit = habit < 6 ? HABIT_SAVES : habit == 6 ? HABIT_LEAVES : (int64_t)habit - 6;
    s->checkpoint->required = w.habit == HABIT_LEAVES;
    w.fails_at = fed_below(f, 8) == 0 ? 1 + (int64_t)fed_below(f, (uint64_t)w.steps - 1) : 0;
    if (anywhere) {
        w.interval = 0;
        w.habit = fed_below(f, 2) ? HABIT_TEARS : HABIT_IGNORES;
    }
    sim_work_print(&w, text);
    s->run->env = arena_new(a, struct env_var);
    s->run->env->name = SIM_WORK_ENV;
    s->run->env->value = arena_strdup(a, text + sizeof SIM_WORK_ENV);
    s->run->n_env = 1;
    s->checkpoint->store = fed_below(f, 8) ? "/shared" : SIM_LOCAL_STORE;
    s->checkpoint->keep = 2 + (int64_t)fed_below(f, 2);
}
static struct workload *workload_make(struct fed *f, struct arena *a, const struct fed_workload *x,
                                      int64_t wall_ms)
{
    struct workload *w = arena_new(a, struct workload);
    struct workload_spec *s = w->spec = arena_new(a, struct workload_spec);
    bool gang = fed_below(f, 3) == 0;

    w->metadata = fed_meta(a, "dev", x->name, x->uid);
    s->run = arena_new(a, struct run_spec);
    s->run->script = "true";
    s->run->retries = (int64_t)fed_below(f, 3);
    s->gang = arena_new(a, struct gang);
    s->gang->workers = gang ? 2 + (int64_t)fed_below(f, 2) : 1; /* fits an empty room */
    if (gang && fed_below(f, 2))
        s->gang->minWorkers = 1;
    s->resources = arena_new(a, struct resources);
    s->resources->cpu = 1000;
    s->resources->gpu = arena_new(a, struct gpu_request);
    s->resources->gpu->count = 1 + (int64_t)fed_below(f, gang ? 3 : 2);
    s->partition = arena_new(a, struct partition_spec);
    s->partition->mode = (enum partition_mode)(1 + fed_below(f, 3));
    if (f->profile == FED_LINKS && fed_below(f, 3))
        s->partition->mode = PARTITION_REPLACE;
    s->partition->replaceAfter = 1000;
    s->partition->stopAfter = 6000;
    if (fed_below(f, 8) == 0)
        s->deadline = wall_ms + 3000 + (int64_t)fed_below(f, 30000);
    s->checkpoint = arena_new(a, struct checkpoint_spec);
    s->checkpoint->signal = "SIGTERM";
    s->checkpoint->grace = 1000 + (int64_t)fed_below(f, 2000);
    s->checkpoint->reshard = s->gang->minWorkers && fed_below(f, 3) == 0;
    bool anywhere = f->script.mixed && fed_below(f, 10) < 7;
    work_make(f, a, s, anywhere);
    if (anywhere) { /* on targets whose runners neither save nor hold leases, too */
        s->checkpoint = NULL;
        s->partition->mode = PARTITION_WAIT;
    }
    if (f->script.moves) {
        uint64_t class_ = fed_below(f, 10);
        s->expected = arena_new(a, struct expected);
        s->expected->duration = 3600000; /* users are wrong: it is worth to go back to the hub */
        s->priorityClassName = class_ < 2   ? "critical"
                               : class_ < 5 ? "production"
                               : class_ < 8 ? "training"
                                            : "batch";
        if (f->script.causes) {
            s->queue = fed_below(f, 2) ? "a" : "b";
            s->data = fed_below(f, 3) ? NULL : arena_new(a, struct data_ref);
            s->n_data = s->data != NULL;
            if (s->data)
                s->data->dataset = "scans";
        }
    }
    return w;
}
static void user_create(struct fed *f, struct sim_member *m)
{
    AUTO_ARENA a = arena_create(0);
    struct write_op op;
    union command c = {.write = {.ops = &op, .n = 1}};
    struct fed_workload *x = &f->workloads[f->n_workloads];

    if (f->n_workloads == FED_WORKLOADS_MAX)
        return;
    (void)name_make(f, x->name);
    (void)snprintf(x->uid, sizeof x->uid, "uid-w%u", f->n_workloads);
    fed_op(&op, WRITE_CREATE, KIND_WORKLOAD, "dev", x->name,
           workload_make(f, a, x, sim_utc_ms(f->w)));
    fed_propose(f, m, &c,
                &(struct fed_request){.workload = (int)f->n_workloads++, .verb = WRITE_CREATE});
}
static void user_delete(struct fed *f, struct sim_member *m)
{
    struct write_op op;
    union command c = {.write = {.ops = &op, .n = 1}};
    int i = (int)fed_below(f, f->n_workloads);

    f->workloads[i].delete_sent = true;
    fed_op(&op, WRITE_DELETE, KIND_WORKLOAD, "dev", f->workloads[i].name, NULL);
    fed_propose(f, m, &c, &(struct fed_request){.workload = i, .verb = WRITE_DELETE});
}
static bool suspend_set(struct fed *f, struct sim_member *m, const char *name, bool on)
{
    AUTO_ARENA a = arena_create(0);
    struct write_op op;
    union command c = {.write = {.ops = &op, .n = 1}};
    struct root *r = core_root(m->core);
    const struct object *o = root_get(r, KIND_WORKLOAD, "dev", name);
    bool differs = o && object_as(o, workload)->spec->suspend != on;

    if (differs) {
        struct workload *w = object_edit_as(o, workload, a);
        w->spec->suspend = on;
        fed_op(&op, WRITE_UPDATE, KIND_WORKLOAD, "dev", name, w);
        op.rv = (uint64_t)o->meta->resourceVersion;
        fed_propose(f, m, &c, &(struct fed_request){.workload = -1, .verb = WRITE_UPDATE});
    }
    (void)root_unref(r);
    return differs;
}

/* Platform people: a room is drained for a while. */
bool fed_drain(struct fed *f, struct sim_member *m, const char *room, bool on)
{
    AUTO_ARENA a = arena_create(0);
    struct write_op op;
    union command c = {.write = {.ops = &op, .n = 1}};
    struct root *r = core_root(m->core);
    const struct object *o = root_get(r, KIND_TARGET, "", room);
    bool differs = o && object_as(o, target)->spec->drain != on;

    if (differs) {
        struct target *t = object_edit_as(o, target, a);
        t->spec->drain = on;
        fed_op(&op, WRITE_UPDATE, KIND_TARGET, "", room, t);
        op.rv = (uint64_t)o->meta->resourceVersion;
        fed_propose(f, m, &c, &(struct fed_request){.workload = -1, .verb = WRITE_UPDATE});
    }
    (void)root_unref(r);
    return differs;
}

static void user_acts(void *arg)
{
    struct fed *f = arg;
    struct sim_member *m = fed_member_pick(f);
    uint64_t dice = fed_below(f, 100), now = sim_now_ms(f->w);

    if (now < FED_FAULTS_UNTIL_MS - 3000)
        sim_at(f->w, now + 200 + fed_below(f, f->script.moves ? 1400 : 2200), user_acts, f);
    if (!m || !f->docs)
        return;
    if (f->script.causes && fed_below(f, 2) == 0)
        fed_cause_any(f, m);
    if (f->script.moves && fed_below(f, 4) == 0) {
        if (fed_below(f, 5))
            fed_move_any(f, m);
        else
            fed_cancel_move(f, m);
        return;
    }
    if (dice < 65 || !f->n_workloads)
        user_create(f, m);
    else if (dice < 77)
        user_delete(f, m);
    else if (dice < 80)
        (void)fed_drain(f, m, f->rooms[fed_below(f, f->n_rooms)]->name, true);
    else if (dice < 84)
        for (unsigned i = 0; i < f->n_rooms; i++)
            (void)fed_drain(f, m, f->rooms[i]->name, false);
    else
        (void)suspend_set(f, m, f->workloads[fed_below(f, f->n_workloads)].name, dice < 93);
}
void fed_users_start(struct fed *f)
{
    sim_at(f->w, 4000, user_acts, f);
}

static void unsuspend_again(void *arg)
{
    fed_unsuspend(arg);
}
void fed_unsuspend(struct fed *f)
{
    struct sim_member *m = fed_member_pick(f);

    sim_at(f->w, sim_now_ms(f->w) + 2000, unsuspend_again, f);
    for (unsigned i = 0; m && i < f->n_workloads; i++)
        (void)suspend_set(f, m, f->workloads[i].name, false);
    for (unsigned i = 0; m && i < f->n_rooms; i++)
        (void)fed_drain(f, m, f->rooms[i]->name, false);
}
void fed_probe(struct fed *f)
{
    AUTO_ARENA a = arena_create(0);
    struct write_op op;
    union command c = {.write = {.ops = &op, .n = 1, .if_absent = true}};
    struct namespace_ *ns = arena_new(a, struct namespace_);
    struct sim_member *m = fed_member_pick(f);

    if (!m)
        return;
    ns->metadata = fed_meta(a, "", "probe", "uid-ns-probe");
    fed_op(&op, WRITE_CREATE, KIND_NAMESPACE, "", "probe", ns);
    fed_propose(f, m, &c, &(struct fed_request){.workload = -1, .probe = true});
}
