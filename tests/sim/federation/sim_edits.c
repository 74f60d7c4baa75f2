/* Owners who change their minds: leases and silences of Targets, partition policies and graces of
 * Workloads, all the time, also of what runs and of what is cut off. What was promised to a run
 * before must go on to hold. */
#include "tests/sim/federation/sim_federation.h"

#include <string.h>

#define PICK(f, a) ((a)[sim_random_below((f)->w, sizeof(a) / sizeof((a)[0]))])

static const int64_t leases[] = {4000, 8000, 8000, 20000, 45000};
static const int64_t silences[] = {1000, 2000, 2000, 5000};
static const int64_t delays[] = {0, 1000, 1000, 6000};
static const int64_t stops[] = {4000, 6000, 15000};
static const int64_t graces[] = {500, 1000, 2000, 3000};

static void propose(struct fed *f, struct sim_member *m, struct write_op *op,
                    const struct object *was)
{
    union command c = {.write = {.ops = op, .n = 1}};

    op->rv = (uint64_t)was->meta->resourceVersion;
    fed_propose(f, m, &c, &(struct fed_request){.workload = -1, .verb = WRITE_UPDATE});
}

static void edit_target(struct fed *f, struct sim_member *m, const struct root *r)
{
    AUTO_ARENA a = arena_create(0);
    const char *room = f->rooms[sim_random_below(f->w, f->n_rooms)]->name;
    const struct object *o = root_get(r, KIND_TARGET, "", room);
    struct write_op op;

    if (!o)
        return;
    struct target *t = object_edit_as(o, target, a);
    t->spec->partition->lease = PICK(f, leases);
    t->spec->partition->suspectAfter = PICK(f, silences);
    sim_log(f->w, "edit: %s lease %lld suspectAfter %lld", room,
            (long long)t->spec->partition->lease, (long long)t->spec->partition->suspectAfter);
    fed_op(&op, WRITE_UPDATE, KIND_TARGET, "", room, t);
    propose(f, m, &op, o);
}

/* Every other time one that is cut off, when there is one: then a lease matters. */
static const struct object *workload_pick(struct fed *f, const struct root *r)
{
    unsigned first = (unsigned)sim_random_below(f->w, f->n_workloads);
    const struct object *any = root_get(r, KIND_WORKLOAD, "dev", f->workloads[first].name);

    for (unsigned i = 0; i < f->n_workloads && sim_random_below(f->w, 2 * f->n_workloads); i++) {
        const struct object *o =
            root_get(r, KIND_WORKLOAD, "dev", f->workloads[(first + i) % f->n_workloads].name);
        if (o && object_as(o, workload)->status->phase == PHASE_UNKNOWN)
            return o;
    }
    return any;
}

static void edit_workload(struct fed *f, struct sim_member *m, const struct root *r)
{
    AUTO_ARENA a = arena_create(0);
    const struct object *o = workload_pick(f, r);
    struct write_op op;

    if (!o || phase_final(object_as(o, workload)->status->phase) ||
        !object_as(o, workload)->spec->checkpoint) /* it can run anywhere, as it is */
        return;
    struct workload *w = object_edit_as(o, workload, a);
    struct partition_spec *p = w->spec->partition;
    p->mode = (enum partition_mode)(1 + sim_random_below(f->w, 3));
    p->replaceAfter = PICK(f, delays);
    p->stopAfter = PICK(f, stops);
    w->spec->checkpoint->grace = PICK(f, graces);
    sim_log(f->w, "edit: %s partition %s", o->meta->uid, partition_mode_text(p->mode));
    fed_op(&op, WRITE_UPDATE, KIND_WORKLOAD, "dev", o->meta->name, w);
    propose(f, m, &op, o);
}

static void edit(void *arg)
{
    struct fed *f = arg;
    struct sim_member *m = fed_member_pick(f);
    uint64_t now = sim_now_ms(f->w);

    if (now >= FED_FAULTS_UNTIL_MS)
        return;
    sim_at(f->w, now + 200 + sim_random_below(f->w, 1500), edit, f);
    if (!m || !f->docs || !f->n_workloads)
        return;
    struct root *r = core_root(m->core);
    if (sim_random_below(f->w, 3) == 0)
        edit_target(f, m, r);
    else
        edit_workload(f, m, r);
    (void)root_unref(r);
}

void fed_edits_start(struct fed *f)
{
    sim_at(f->w, 5000, edit, f);
}
