/* Faults: members crash, stop, pause and are cut off from each other and from the rooms. Each fault
 * ends by itself; when the time of faults is over everything is healed. */
#include "tests/sim/federation/sim_federation.h"

#include <stdio.h>
#include <string.h>

#define OPERATOR_EVERY_MS 3000
#define FORGET_LOOKS 150
#define FORGET_LOOK_MS 20

struct fault {
    struct fed *f;
    unsigned a, b;
    struct sim_host *from, *to;
    struct sim_member *m;
};
static struct fault *fault_make(struct fed *f)
{
    struct fault *x = mem_new(struct fault);

    x->f = f;
    f->faults++;
    return x;
}
static void later(struct fed *f, uint64_t ms, void (*fn)(void *), struct fault *x)
{
    sim_at(f->w, sim_now_ms(f->w) + ms, fn, x);
}

/* ---- members go and come ---- */
void fed_member_up(struct fed *f, unsigned i)
{
    struct sim_member_events ev = {.root = fed_check_root, .arg = f};

    if (f->members[i])
        return;
    f->members[i] = sim_member_start(f->hosts[i], i + 1, !f->started[i], &ev);
    f->started[i] = true;
}
void fed_members_up(void *fed)
{
    for (unsigned i = 0; i < SIM_MEMBERS; i++)
        fed_member_up(fed, i);
}

void fed_member_down(struct fed *f, unsigned i)
{
    if (!f->members[i])
        return;
    sim_log(f->w, "fault: m%u crashes", i + 1);
    if (f->paused[i])
        sim_pause(f->hosts[i], false);
    f->paused[i] = false;
    f->members[i] = NULL;
    sim_crash(f->hosts[i]);
}
static void up_again(void *arg)
{
    struct fault *x = arg;

    fed_member_up(x->f, x->a);
    mem_free(x);
}
unsigned fed_leader(struct fed *f)
{
    for (unsigned i = 0; i < SIM_MEMBERS; i++) {
        struct core_status st;
        if (!f->members[i] || !f->members[i]->core)
            continue;
        core_status(f->members[i]->core, &st);
        if (st.leads)
            return i;
    }
    return (unsigned)fed_below(f, SIM_MEMBERS);
}
static unsigned victim(struct fed *f)
{
    return fed_below(f, 2) ? fed_leader(f) : (unsigned)fed_below(f, SIM_MEMBERS);
}
static void crash(struct fed *f)
{
    struct fault *x = fault_make(f);

    x->a = victim(f);
    fed_member_down(f, x->a);
    later(f, 200 + fed_below(f, 8000), up_again, x);
}
/* Its process has two seconds; then it is killed, as a service manager would. */
static void closed_by_now(void *arg)
{
    struct fault *x = arg;

    if (x->f->members[x->a] == x->m)
        fed_member_down(x->f, x->a);
    later(x->f, 100 + fed_below(x->f, 3000), up_again, x);
}
static void stop(struct fed *f)
{
    struct fault *x = fault_make(f);

    x->a = victim(f);
    x->m = f->members[x->a];
    sim_log(f->w, "fault: m%u stops", x->a + 1);
    if (x->m && x->m->core)
        sim_member_close(x->m);
    later(f, 2000, closed_by_now, x);
}
static void unpause(void *arg)
{
    struct fault *x = arg;

    if (x->f->paused[x->a] && x->f->members[x->a] == x->m)
        sim_pause(x->f->hosts[x->a], false);
    if (x->f->members[x->a] == x->m)
        x->f->paused[x->a] = false;
    mem_free(x);
}
static void pause_one(struct fed *f)
{
    struct fault *x = fault_make(f);
    uint64_t ms = 100 + fed_below(f, fed_below(f, 4) ? 1500 : 12000);

    x->a = victim(f);
    x->m = f->members[x->a];
    if (x->m && !f->paused[x->a]) {
        sim_log(f->w, "fault: m%u pauses for %llu ms", x->a + 1, (unsigned long long)ms);
        f->paused[x->a] = true;
        sim_pause(f->hosts[x->a], true);
    }
    later(f, ms, unpause, x);
}

/* ---- links ---- */
static uint64_t *cut_until(struct fed *f, const struct sim_host *a, const struct sim_host *b)
{
    const struct sim_host *all[SIM_MEMBERS + FED_ROOMS_MAX];
    unsigned i = 0, j = 0;

    for (unsigned k = 0; k < SIM_MEMBERS; k++)
        all[k] = f->hosts[k];
    for (unsigned k = 0; k < f->n_rooms; k++)
        all[SIM_MEMBERS + k] = f->rooms[k]->host;
    while (all[i] != a)
        i++;
    while (all[j] != b)
        j++;
    return &f->cut_until_ms[i][j];
}
static void uncut(void *arg)
{
    struct fault *x = arg;

    if (sim_now_ms(x->f->w) >= *cut_until(x->f, x->from, x->to))
        sim_partition(x->from, x->to, false);
    mem_free(x);
}
static void cut(struct fed *f, struct sim_host *a, struct sim_host *b, uint64_t ms)
{
    struct fault *x;
    bool one_way = fed_below(f, 4) == 0;
    uint64_t *until = cut_until(f, a, b);

    if (*until > sim_now_ms(f->w)) /* a longer one is not ended by a shorter one */
        return;
    *until = sim_now_ms(f->w) + ms;
    sim_log(f->w, "fault: %s %s %s cut for %llu ms", sim_host_name(a), one_way ? "to" : "and",
            sim_host_name(b), (unsigned long long)ms);
    x = fault_make(f);
    x->from = a;
    x->to = b;
    if (one_way)
        sim_partition_one_way(a, b, true);
    else
        sim_partition(a, b, true);
    later(f, ms, uncut, x);
}
static void cut_members(struct fed *f)
{
    unsigned a = victim(f), b = (a + 1 + (unsigned)fed_below(f, 2)) % SIM_MEMBERS;
    uint64_t ms = 300 + fed_below(f, 9000);

    cut(f, f->hosts[a], f->hosts[b], ms);
    if (fed_below(f, 2))
        cut(f, f->hosts[a], f->hosts[3 - a - b], ms); /* alone */
}
/* Stopped, swapped out, held by a debugger: its program runs on. */
static void shim_stands_still(struct fed *f, struct sim_room *room)
{
    struct sim_run *run = sim_room_run(room, NULL);

    f->faults++;
    if (run)
        sim_run_stand_still(run, 1000 + fed_below(f, fed_below(f, 2) ? 5000 : 45000));
}
static void cut_room(struct fed *f)
{
    struct sim_room *room = f->rooms[fed_below(f, f->n_rooms)];
    uint64_t ms = 300 + fed_below(f, fed_below(f, 2) ? 5000 : 45000);

    if (fed_below(f, 2) && !room->told)
        shim_stands_still(f, room);
    if (f->profile == FED_LINKS) /* long enough for leases to be over */
        ms = fed_below(f, 3) ? 25000 + fed_below(f, 20000) : ms;
    else if (fed_below(f, 2)) {
        cut(f, f->hosts[fed_leader(f)], room->host, ms);
        return;
    }
    for (unsigned i = 0; i < SIM_MEMBERS; i++)
        cut(f, f->hosts[i], room->host, ms);
}
static void losses(struct fed *f)
{
    sim_loss(f->w, fed_below(f, 2) ? 0 : (unsigned)fed_below(f, 4000),
             (unsigned)fed_below(f, 60000));
    sim_latency(f->w, 300 + fed_below(f, 3) * fed_below(f, 30000), 1 + fed_below(f, 20000));
}

/* ---- clocks: of one member at a time, so that a majority's are right ---- */
static void clock_right(void *arg)
{
    struct fault *x = arg;

    sim_wall_right(x->f->hosts[x->a]);
    x->f->clock_wrong = false;
    mem_free(x);
}
static void clock_drifts(void *arg)
{
    struct fault *x = arg;

    if (x->b-- == 0) {
        clock_right(x);
        return;
    }
    sim_wall_jump(x->f->hosts[x->a], 900);
    later(x->f, 300, clock_drifts, x);
}
static void clock_wrong(struct fed *f)
{
    static const int64_t steps_ms[] = {400ll * 86400000, 3600000, -3600000, -400ll * 86400000};
    struct fault *x;
    int64_t by;

    if (f->clock_wrong)
        return;
    x = fault_make(f);
    x->a = victim(f);
    f->clock_wrong = true;
    if (fed_below(f, 4) == 0) { /* four times as fast as time */
        x->b = 10 + (unsigned)fed_below(f, 60);
        sim_log(f->w, "fault: the clock of m%u drifts", x->a + 1);
        clock_drifts(x);
        return;
    }
    by = fed_below(f, 3) ? steps_ms[fed_below(f, 4)] : (int64_t)fed_below(f, 120000) - 60000;
    sim_log(f->w, "fault: the clock of m%u steps by %lld s", x->a + 1, (long long)by / 1000);
    sim_wall_jump(f->hosts[x->a], by);
    later(f, 500 + fed_below(f, 20000), clock_right, x);
}

/* ---- rooms ---- */
static void room_back(void *arg)
{
    struct fault *x = arg;

    sim_room_power(x->f->rooms[x->a], true);
    sim_room_agent(x->f->rooms[x->a], true);
    mem_free(x);
}
static void room_down(struct fed *f, unsigned i, bool power)
{
    struct fault *x = fault_make(f);

    x->a = i;
    sim_log(f->w, "fault: %s %s", f->rooms[i]->name, power ? "loses power" : "loses its agent");
    if (power)
        sim_room_power(f->rooms[i], false);
    else
        sim_room_agent(f->rooms[i], false);
    later(f, 100 + fed_below(f, power ? 9000 : 5000), room_back, x);
}
static void fence_answered(void *arg, const struct err *err)
{
    (void)arg;
    (void)err; /* looked at again */
}
/* An operator who looks at the machines: what is dead there for certain is fenced. */
static bool fence_each(const struct object *o, void *arg)
{
    struct fed *f = arg;
    const struct workload_status *s = object_as(o, workload)->status;
    struct sim_member *m = f->members[fed_leader(f)];
    bool lost = false;
    unsigned alive = 0;
    char memory[64];

    for (unsigned i = 0; i < f->n_rooms; i++) {
        const struct sim_room *r = f->rooms[i];
        alive += sim_room_alive(r, o->meta->uid);
        (void)snprintf(memory, sizeof memory, "%s-memory-%llu", r->name,
                       (unsigned long long)r->memory);
        lost |= s->placement && !strcmp(s->placement->target, r->name) && s->intent &&
                *s->intent->agent && strcmp(s->intent->agent, memory) != 0;
    }
    if (s->phase == PHASE_UNKNOWN && lost && !alive && m && m->brain)
        brain_fence(m->brain, o->meta->namespace_, o->meta->name, "operator", fence_answered, f);
    return true;
}
static void operator_looks(void *arg)
{
    struct fed *f = arg;
    struct root *r = fed_newest(f);

    if (r)
        root_scan(r, KIND_WORKLOAD, NULL, NULL, NULL, fence_each, f);
    (void)root_unref(r);
    sim_at(f->w, sim_now_ms(f->w) + OPERATOR_EVERY_MS, operator_looks, f);
}
static bool room_starts_one(const struct sim_room *r)
{
    list_for_each (it, &r->runs)
        if (container_of(it, struct sim_run, link)->state == RUN_STARTING)
            return true;
    return false;
}
/* At the worst moment, if it comes: one begins, and the log does not know yet that it runs. */
static void memory_lost(void *arg)
{
    struct fault *x = arg;
    struct fed *f = x->f;
    struct sim_room *r = f->rooms[x->a];
    bool first = true;

    if (!room_starts_one(r) && ++x->b < FORGET_LOOKS) {
        later(f, FORGET_LOOK_MS, memory_lost, x);
        return;
    }
    for (unsigned k = 0; k < f->n_rooms; k++)
        first = first && !f->rooms[k]->forgot;
    sim_room_forget(r);
    later(f, 50 + fed_below(f, fed_below(f, 2) ? 200 : 3000), room_back, x);
    if (first && r->forgot)
        operator_looks(f);
}
static void shim_killed(struct fed *f, unsigned i)
{
    struct sim_run *run = sim_room_run(f->rooms[i], NULL);

    f->faults++;
    if (run)
        sim_room_kill_run(f->rooms[i], run);
}
static void cut_damaged(struct fed *f)
{
    struct sim_cut *last = NULL;

    list_for_each (it, &f->store.cuts) {
        struct sim_cut *c = container_of(it, struct sim_cut, link);
        if (c->damage == DAMAGE_NONE && (!last || fed_below(f, 3) == 0))
            last = c;
    }
    f->faults++;
    if (!last)
        return;
    last->damage = (enum sim_damage)(DAMAGE_TORN + fed_below(f, 3));
    f->store.damaged++;
    sim_log(f->w, "fault: %s is damaged", last->path);
}
static void room_fault(struct fed *f)
{
    unsigned i = (unsigned)fed_below(f, FED_ROOMS);

    switch (fed_below(f, 7)) {
    case 6: {
        struct fault *x = fault_make(f);
        x->a = i;
        memory_lost(x);
        break;
    }
    case 0:
        room_down(f, i, true);
        break;
    case 1:
    case 2:
        room_down(f, i, false);
        break;
    case 3:
    case 4:
        shim_killed(f, i);
        break;
    default:
        cut_damaged(f);
    }
}

/* ---- the script ---- */
void fed_fault(struct fed *f)
{
    if (fed_below(f, 8) == 0)
        clock_wrong(f);
    switch (f->profile == FED_ALL       ? fed_below(f, 10)
            : f->profile == FED_MEMBERS ? fed_below(f, 7)
                                        : 7 + fed_below(f, 3)) {
    case 0:
    case 1:
        crash(f);
        break;
    case 2:
        stop(f);
        break;
    case 3:
    case 4:
        pause_one(f);
        break;
    case 5:
    case 6:
        cut_members(f);
        break;
    case 7:
    case 8:
        cut_room(f);
        break;
    default:
        losses(f);
    }
}
static void fault(void *arg)
{
    struct fed *f = arg;
    uint64_t now = sim_now_ms(f->w);

    if (now >= FED_FAULTS_UNTIL_MS)
        return;
    if (f->script.rooms && fed_below(f, 4) == 0)
        room_fault(f);
    else
        fed_fault(f);
    sim_at(f->w, now + 200 + fed_below(f, 5000), fault, f);
}
static void quiet_again(void *arg)
{
    struct fed *f = arg;

    sim_heal(f->w);
    for (unsigned i = 0; i < SIM_MEMBERS; i++)
        fed_member_up(f, i);
}
static void probe(void *arg)
{
    fed_probe(arg);
}
void fed_quiet(struct fed *f)
{
    sim_log(f->w, "faults are over");
    f->quiet = true;
    for (unsigned i = 0; i < SIM_MEMBERS; i++) {
        if (f->paused[i])
            sim_pause(f->hosts[i], false);
        f->paused[i] = false;
        if (f->members[i] && (f->members[i]->closing || f->members[i]->error.code))
            fed_member_down(f, i);
    }
    for (unsigned i = 0; i < f->n_rooms; i++) {
        f->rooms[i]->chaos = false;
        if (f->rooms[i]->sick)
            sim_room_sick(f->rooms[i], 0);
        sim_room_power(f->rooms[i], true);
        sim_room_agent(f->rooms[i], true);
    }
    if (f->script.mixed)
        f->script.mixed->quiet(f);
    sim_loss(f->w, 0, 0);
    sim_latency(f->w, 300, 400);
    quiet_again(f);
}
static void quiet(void *arg)
{
    struct fed *f = arg;

    fed_quiet(f);
    sim_at(f->w, sim_now_ms(f->w) + 3000, probe, f);
    fed_unsuspend(f);
}
static void chaos(void *arg)
{
    struct fed *f = arg;

    for (unsigned i = 0; i < f->n_rooms; i++)
        f->rooms[i]->chaos = true;
    fault(f);
}
void fed_faults_start(struct fed *f)
{
    sim_at(f->w, FED_FAULTS_FROM_MS, chaos, f);
    sim_at(f->w, FED_FAULTS_UNTIL_MS, quiet, f);
}
