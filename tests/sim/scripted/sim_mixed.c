/* Mixed federations: two rooms with agents, a Kubernetes, a Slurm and a cloud under one hub. What
 * the three do on top of what fails anyway, and what must be true of them at the end. */
#include "tests/sim/scripted/sim_scripted.h"

#include "controlplane/store/store_internal.h"

#include <stdio.h>
#include <string.h>

#define START_WITHIN_MS 5000
#define CLOCK_ERROR_MS 2500
#define NODE_ERROR_MS 1500ull
#define SILENT_MS 9000 /* so long that the driver says it, and finds all again */

static enum scripted_plant plant;
void sim_mixed_plant(enum scripted_plant p)
{
    plant = p;
}

static struct sim_scripted *of(struct fed *f, unsigned i)
{
    return (struct sim_scripted *)(void *)f->rooms[FED_ROOMS + i];
}
static void make(struct fed *f)
{
    static const char *const names[LIKE_NR] = {"kube", "slurm", "cloud"};

    _Static_assert(SCRIPTED_ROOMS == LIKE_NR, "one of each");
    scripted_plant(plant);
    scripted_use(&sim_scripted_link, sim_scripted_fill);
    for (unsigned i = 0; i < LIKE_NR; i++) {
        struct sim_scripted *s = sim_scripted_create(f, (enum scripted_kind)i, names[i]);
        f->rooms[f->n_rooms++] = &s->room;
        s->in_time = i == LIKE_SLURM && (fed_below(f, 2) || plant == SCRIPTED_STARTS_LATE);
    }
}
static void target(struct fed *f, struct arena *a, struct target_spec *s, const char *room)
{
    bool agents = !strcmp(room, f->rooms[0]->name) || !strcmp(room, f->rooms[1]->name);

    if (f->profile != FED_MEMBERS) /* the hub is one of the three, and the agents are spokes */
        s->tier = !agents && fed_below(f, 3) ? TIER_HUB : TIER_SPOKE;
    if (agents)
        return;
    s->type = TARGET_CALLOUT;
    s->connection = arena_new(a, struct target_connection);
    s->connection->server = arena_printf(a, "https://%s.test", room);
    s->partition->lease = 0;
    s->limits = arena_new(a, struct target_limits);
    if (fed_below(f, 2)) /* who waits too long there goes elsewhere */
        s->limits->pendingFor = 8000;
    if (of(f, LIKE_SLURM)->in_time && !strcmp(room, "slurm")) {
        s->limits->startWithin = START_WITHIN_MS;
        s->limits->clockError = CLOCK_ERROR_MS;
    }
}

/* ---- what goes wrong ---- */
static const struct run_key *any_live(struct fed *f, struct sim_scripted *s)
{
    const struct run_key *k = NULL;
    unsigned seen = 0;

    list_for_each (it, &s->peer.things) {
        const struct thing *t = container_of(it, struct thing, link);
        if (t->program && fed_below(f, ++seen) == 0)
            k = &t->v.key;
    }
    return k;
}
static void chaos(struct fed *f, struct sim_scripted *s)
{
    s->peer.chaos = (struct peer_chaos){.lost = (unsigned)fed_below(f, 8),
                                        .mute = (unsigned)fed_below(f, 8),
                                        .late = (unsigned)fed_below(f, 8),
                                        .twice = (unsigned)fed_below(f, 8),
                                        .half = (unsigned)fed_below(f, 8),
                                        .wrong = (unsigned)fed_below(f, 8),
                                        .slow = (unsigned)fed_below(f, 20),
                                        .busy = (unsigned)fed_below(f, 8)};
}
static void trouble(struct fed *f, struct sim_scripted *s)
{
    const struct run_key *k = any_live(f, s);
    enum peer_trouble what = (enum peer_trouble)fed_below(f, TROUBLE_NR);

    if (k && peer_trouble(&s->peer, k, what))
        sim_log(f->w, "fault: %s: %s of %s", s->room.name, peer_trouble_text(what), k->uid);
}
static uint64_t order_comes_in(struct fed *f)
{
    if (plant == SCRIPTED_STARTS_LATE) /* so that it has been given up by then */
        return 2ull * START_WITHIN_MS + fed_below(f, 2ull * START_WITHIN_MS);
    return fed_below(f, 3) ? fed_below(f, 4ull * START_WITHIN_MS) : 0;
}
static void fault(struct fed *f, struct sim_scripted *s)
{
    static const int how[] = {E_LIMIT, E_BUSY, E_FORBIDDEN};

    f->faults++;
    if (s->in_time)
        s->peer.order_ms = order_comes_in(f);
    switch (fed_below(f, 9)) {
    case 3:
        for (unsigned n = 0; n < PEER_NODES; n++)
            peer_node_link(&s->peer, n, true);
        break;
    case 5:
        s->peer.silent = !s->peer.silent && fed_below(f, 2);
        break;
    case 6:
        s->peer.queue_ms = fed_below(f, 2) * fed_below(f, 15000);
        break;
    case 7:
        s->peer.refuse = how[fed_below(f, 3)];
        s->peer.refusals = (unsigned)fed_below(f, 4);
        break;
    case 8:
        if (s->peer.kind == LIKE_CLOUD)
            peer_notice(&s->peer, (unsigned)fed_below(f, PEER_NODES), 2000 + fed_below(f, 20000));
        break;
    default:
        trouble(f, s);
    }
}
static void faults(void *arg)
{
    struct fed *f = arg;

    if (f->quiet)
        return;
    for (unsigned i = 0; i < SCRIPTED_ROOMS; i++)
        if (fed_below(f, 2)) {
            chaos(f, of(f, i));
            fault(f, of(f, i));
        }
    sim_at(f->w, sim_now_ms(f->w) + 100 + fed_below(f, 2000), faults, f);
}
/* Once their APIs are up. */
static void made(void *arg)
{
    struct fed *f = arg;
    struct sim_scripted *s = of(f, LIKE_SLURM);

    for (unsigned i = 0; i < SCRIPTED_ROOMS; i++)
        of(f, i)->peer.no_check = plant == SCRIPTED_NO_CHECK;
    if (!s->in_time)
        return;
    s->peer.in_time = true;
    s->peer.starts_late = plant == SCRIPTED_STARTS_LATE;
    s->peer.order_ms = order_comes_in(f);
    /* Right, but not quite; and the log's time is not quite right either. */
    for (unsigned i = 0; i < PEER_NODES; i++)
        s->peer.nodes[i].clock_ms =
            (int64_t)fed_below(f, 2 * NODE_ERROR_MS) - (int64_t)NODE_ERROR_MS;
}
static void start(struct fed *f)
{
    sim_at(f->w, 1, made, f);
    sim_at(f->w, FED_FAULTS_FROM_MS, faults, f);
}
static void quiet(struct fed *f)
{
    for (unsigned i = 0; i < SCRIPTED_ROOMS; i++)
        peer_heal(&of(f, i)->peer);
}

/* ---- at the end ---- */
static void left(struct fed *f, const struct root *r, struct sim_scripted *s)
{
    list_for_each (it, &s->peer.things) {
        const struct thing *t = container_of(it, struct thing, link);
        const struct object *o = root_workload_by_uid(r, t->v.key.uid);
        if (t->gone || (!t->program && t->v.phase == THING_OVER && !t->holds) ||
            (o && phase_live(object_as(o, workload)->status->phase)))
            continue;
        fed_fail(f, "I6: %llu of %s.%lld.%lld is left behind on %s", (unsigned long long)t->v.id,
                 t->v.key.uid, (long long)t->v.key.epoch, (long long)t->v.key.try_, s->room.name);
    }
}
static void end(struct fed *f, const struct root *r)
{
    (void)r;
    for (unsigned i = 0; i < SCRIPTED_ROOMS; i++)
        of(f, i)->peer.silent = true;
    (void)sim_run_until(f->w, sim_now_ms(f->w) + SILENT_MS, fed_over, f);
    quiet(f);
    (void)sim_run_until(f->w, sim_now_ms(f->w) + 3 * SILENT_MS, fed_over, f);
    struct root *now = fed_newest(f);
    for (unsigned i = 0; i < SCRIPTED_ROOMS; i++) {
        struct sim_scripted *s = of(f, i);
        if (*peer_broken(&s->peer))
            fed_fail(f, "I1: %s: %s", s->room.name, peer_broken(&s->peer));
        f->unknown += s->peer.lost;
        left(f, now, s);
    }
    (void)root_unref(now);
}
const struct fed_mixed sim_mixed = {
    .make = make, .target = target, .start = start, .quiet = quiet, .end = end};
