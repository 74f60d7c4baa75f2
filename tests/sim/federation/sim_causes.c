/* Why work moves that nobody asked for: prices, data, sick nodes, guarantees, notices. The
 * documents that let it, and each cause as it comes from outside. A notice has no source in the
 * product yet: the test says it in the place of the connector that will. */
#include "controlplane/leader/context/context.h"
#include "controlplane/leader/move/begin.h"
#include "tests/sim/federation/sim_federation.h"

#include <stdio.h>
#include <string.h>

#define NOTICE_AGAIN_MS 700
#define NOTICES 6

bool fed_for_gain(const struct fed *f)
{
    return f->script.causes || (f->script.arrow && (f->script.arrow->cause == MOVE_CHEAPER ||
                                                    f->script.arrow->cause == MOVE_DATA));
}
bool fed_with_queues(const struct fed *f)
{
    return f->script.causes || (f->script.arrow && f->script.arrow->cause == MOVE_RECLAIM);
}

/* ---- documents ---- */
static struct price_sheet *sheet_make(struct arena *a, const char *room, double price)
{
    struct price_sheet *p = arena_new(a, struct price_sheet);

    p->metadata =
        fed_meta(a, "", arena_printf(a, "%s-prices", room), arena_printf(a, "uid-%s-prices", room));
    p->spec = arena_new(a, struct price_sheet_spec);
    p->spec->gpuHour = arena_new(a, struct gpu_price);
    p->spec->n_gpuHour = 1;
    p->spec->gpuHour->class_ = "h100";
    p->spec->gpuHour->amortised = price;
    return p;
}
static struct dataset *dataset_make(struct arena *a, const char *room)
{
    struct dataset *d = arena_new(a, struct dataset);

    d->metadata = fed_meta(a, "dev", "scans", "uid-scans");
    d->spec = arena_new(a, struct dataset_spec);
    d->spec->bytes = (int64_t)64 << 30;
    if (room) {
        d->spec->copies = arena_new(a, struct copy_at);
        d->spec->copies->target = room;
        d->spec->n_copies = 1;
    }
    return d;
}
static struct queue *queue_make(struct arena *a, const char *name, int64_t guaranteed)
{
    struct queue *q = arena_new(a, struct queue);

    q->metadata = fed_meta(a, "", name, arena_printf(a, "uid-queue-%s", name));
    q->spec = arena_new(a, struct queue_spec);
    q->spec->gpus = arena_new(a, struct queue_gpus);
    q->spec->n_gpus = 1;
    q->spec->gpus->class_ = "h100";
    q->spec->gpus->guaranteed = guaranteed;
    return q;
}
uint32_t fed_cause_docs(struct fed *f, struct arena *a, struct write_op *ops)
{
    struct gpu_class *g = arena_new(a, struct gpu_class);
    uint32_t n = 0;

    if (fed_for_gain(f)) {
        g->metadata = fed_meta(a, "", "h100", "uid-h100");
        g->spec = arena_new(a, struct gpu_class_spec);
        fed_op(&ops[n++], WRITE_CREATE, KIND_GPU_CLASS, "", "h100", g);
        for (unsigned i = 0; i < f->n_rooms; i++) {
            struct price_sheet *p = sheet_make(a, f->rooms[i]->name, 2);
            fed_op(&ops[n++], WRITE_CREATE, KIND_PRICE_SHEET, "", p->metadata->name, p);
        }
        fed_op(&ops[n++], WRITE_CREATE, KIND_DATASET, "dev", "scans", dataset_make(a, NULL));
    }
    if (fed_with_queues(f)) {
        fed_op(&ops[n++], WRITE_CREATE, KIND_QUEUE, "", "a", queue_make(a, "a", 12));
        fed_op(&ops[n++], WRITE_CREATE, KIND_QUEUE, "", "b", queue_make(a, "b", 0));
    }
    INV(n <= FED_CAUSE_DOCS);
    return n;
}
/* One step for all: nothing but gain draws work anywhere. */
void fed_gain_policy(struct arena *a, struct placement_policy_spec *s)
{
    static const enum move_cause when[] = {MOVE_CHEAPER, MOVE_DATA};

    s->n_order = 1;
    s->order->targets->n_tier = 0;
    s->order->after = 0;
    s->migrate->when = arena_memdup(a, when, sizeof when);
    s->migrate->n_when = 2;
    s->migrate->minSaving = 0.1;
    s->prefer = arena_new(a, struct preference);
    s->n_prefer = 1;
    s->prefer->weight = 100;
    s->prefer->cost = arena_new(a, struct prefer_cost);
    s->prefer->cost->reference = 50;
}

/* ---- prices and data ---- */
static void update(struct fed *f, struct sim_member *m, enum kind_id kind, const char *ns,
                   const char *name, const void *body)
{
    struct write_op op;
    union command c = {.write = {.ops = &op, .n = 1}};

    fed_op(&op, WRITE_UPDATE, kind, ns, name, body);
    fed_propose(f, m, &c, &(struct fed_request){.workload = -1, .verb = WRITE_UPDATE});
}
void fed_cause_price(struct fed *f, struct sim_member *m, const char *room, double price)
{
    AUTO_ARENA a = arena_create(0);
    struct price_sheet *p = sheet_make(a, room, price);

    sim_log(f->w, "cause: a GPU-hour on %s costs %.2f", room, price);
    update(f, m, KIND_PRICE_SHEET, "", p->metadata->name, p);
}
void fed_cause_data(struct fed *f, struct sim_member *m, const char *room)
{
    AUTO_ARENA a = arena_create(0);

    sim_log(f->w, "cause: the data is on %s", room);
    update(f, m, KIND_DATASET, "dev", "scans", dataset_make(a, room));
}

/* ---- a notice: the machines below a workload go ---- */
static struct brain *leading_brain(struct fed *f)
{
    struct sim_member *m = f->members[fed_leader(f)];

    return m && m->brain && !m->closing && !f->paused[m->id - 1] && m->brain->leads &&
                   m->brain->pool && m->brain->root
               ? m->brain
               : NULL;
}
static void begun(void *arg, bool ok)
{
    (void)arg;
    (void)ok;
}
static bool notice(struct brain *b, const struct object *w)
{
    AUTO_ARENA a = arena_create(0);
    struct place_request rq = {.workload = w,
                               .now_ms = core_time_ms(b->cfg.core),
                               .seed = loop_random_u64(b->loop) >> 12,
                               .log_index = (int64_t)root_index(b->root)};
    struct move_choice c = {0};
    struct move_begin begin;
    struct migrate_cmd cmd = {.begins = &begin, .n = 1};
    struct err err;

    if (!begin_possible(b, w) || policy_move(b->pool, &rq, MOVE_SPOT, a, &c, &err))
        return false;
    begin_take(b, &begin, w, MOVE_SPOT, &c);
    str_copy(cmd.message, sizeof cmd.message, c.why);
    begin_propose(b, &cmd, begun, NULL);
    return true;
}
struct sim_notice {
    struct fed *f;
    char name[32];
    unsigned left;
    int64_t epoch;
};
/* As a cloud does: it is said until somebody has heard. */
static void notice_again(void *arg)
{
    struct sim_notice *n = arg;
    struct fed *f = n->f;
    struct brain *b = leading_brain(f);
    const struct object *w = b ? root_get(b->root, KIND_WORKLOAD, "dev", n->name) : NULL;
    const struct workload_status *s = w ? object_as(w, workload)->status : NULL;

    if (s && !n->epoch)
        n->epoch = s->epoch;
    if (!n->left-- || (s && (s->epoch != n->epoch || *s->migration || phase_final(s->phase)))) {
        mem_free(n);
        return;
    }
    if (s && (s->phase == PHASE_RUNNING || s->phase == PHASE_STARTING) && notice(b, w))
        sim_log(f->w, "cause: notice for the machines of %s", n->name);
    sim_at(f->w, sim_now_ms(f->w) + NOTICE_AGAIN_MS, notice_again, n);
}
void fed_cause_notice(struct fed *f, const char *workload)
{
    struct sim_notice *n = mem_new(struct sim_notice);

    n->f = f;
    n->left = NOTICES;
    str_copy(n->name, sizeof n->name, workload);
    notice_again(n);
}

/* ---- for one workload, whatever it runs on: it has to go, or would better ---- */
static const struct placement *place_of(const struct root *r, const char *workload)
{
    const struct object *o = r ? root_get(r, KIND_WORKLOAD, "dev", workload) : NULL;

    return o && object_as(o, workload)->status ? object_as(o, workload)->status->placement : NULL;
}
static struct sim_room *room_named(struct fed *f, const char *name, bool other)
{
    for (unsigned i = 0; i < f->n_rooms; i++)
        if (!strcmp(f->rooms[i]->name, name) != other)
            return f->rooms[i];
    return NULL;
}
static unsigned nodes_of(const struct placement *p)
{
    unsigned bits = 0;

    for (uint32_t i = 0; i < p->n_assignments; i++)
        bits |= 1u << (p->assignments[i].node[strlen(p->target) + 2] - '0'); /* "TARGET.nI" */
    return bits;
}
void fed_cause_for(struct fed *f, struct sim_member *m, const char *workload, enum move_cause cause)
{
    struct root *r = fed_newest(f);
    const struct placement *p = place_of(r, workload);

    INV(p);
    if (cause == MOVE_SICK)
        sim_room_sick(room_named(f, p->target, false), nodes_of(p));
    else if (cause == MOVE_CHEAPER)
        fed_cause_price(f, m, p->target, 6);
    else if (cause == MOVE_DATA)
        fed_cause_data(f, m, room_named(f, p->target, true)->name);
    else
        fed_cause_notice(f, workload);
    (void)root_unref(r);
}

/* ---- from time to time ---- */
void fed_cause_any(struct fed *f, struct sim_member *m)
{
    static const double prices[] = {1.9, 2, 2.1, 2.2, 4, 8};
    struct sim_room *room = f->rooms[fed_below(f, f->n_rooms)];

    switch (fed_below(f, 8)) {
    case 0:
    case 1:
    case 2:
        fed_cause_price(f, m, room->name, prices[fed_below(f, 6)]);
        break;
    case 3:
        fed_cause_data(f, m, room->name);
        break;
    case 4:
        sim_room_sick(room, 1u << fed_below(f, room->nodes));
        break;
    case 5:
        sim_room_sick(room, 0);
        break;
    default:
        if (f->n_workloads)
            fed_cause_notice(
                f, f->workloads[f->n_workloads - 1 - fed_below(f, f->n_workloads) / 3].name);
    }
}
