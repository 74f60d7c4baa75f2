/* One life of clients: what fails is what could make a member answer wrongly. Crashes and stops and
 * pauses as in every federation; leaders that are alone with their clients, leadership that is
 * handed over, disks that are slow, power that is lost everywhere at once. */
#include "tests/sim/clients/sim_clients.h"

#include "tests/sim/world/sim_raft_io.h"

#include <stdio.h>

#define QUIET_MS 20000 /* so long everything has to be well again */

static void all_lose_power(struct fed *f)
{
    f->faults++;
    sim_log(f->w, "fault: all lose power");
    for (unsigned i = 0; i < SIM_MEMBERS; i++)
        fed_member_down(f, i);
    sim_at(f->w, sim_now_ms(f->w) + 100 + fed_below(f, 1500), fed_members_up, f);
}
struct alone {
    struct fed *f;
    unsigned i;
};
static void alone_over(void *arg)
{
    struct alone *a = arg;

    for (unsigned i = 0; i < SIM_MEMBERS; i++)
        if (i != a->i)
            sim_partition(a->f->hosts[a->i], a->f->hosts[i], false);
    mem_free(a);
}
/* Its clients still reach it. */
static void leader_alone(struct fed *f)
{
    struct alone *a = mem_new(struct alone);

    *a = (struct alone){f, fed_leader(f)};
    f->faults++;
    sim_log(f->w, "fault: m%u is alone", a->i + 1);
    for (unsigned i = 0; i < SIM_MEMBERS; i++)
        if (i != a->i)
            sim_partition(f->hosts[a->i], f->hosts[i], true);
    sim_at(f->w, sim_now_ms(f->w) + 1000 + fed_below(f, 6000), alone_over, a);
}
static void disk_fast(void *arg)
{
    struct alone *a = arg;

    sim_raft_io_slow(a->f->hosts[a->i], 0);
    mem_free(a);
}
static void disk_slow(struct fed *f)
{
    struct alone *a = mem_new(struct alone);

    *a = (struct alone){f, (unsigned)fed_below(f, SIM_MEMBERS)};
    f->faults++;
    sim_log(f->w, "fault: the disk of m%u is slow", a->i + 1);
    sim_raft_io_slow(f->hosts[a->i], 20 + (unsigned)fed_below(f, 300));
    sim_at(f->w, sim_now_ms(f->w) + 500 + fed_below(f, 5000), disk_fast, a);
}
static void handed_over(void *arg, const struct err *err)
{
    struct fed *f = arg;

    f->transfers += !err;
}
static void hand_over(struct fed *f)
{
    struct sim_member *m = fed_member_pick(f);
    struct core_peer to = {.id = 1 + fed_below(f, SIM_MEMBERS)};

    f->faults++;
    sim_log(f->w, "fault: leadership goes to m%u", (unsigned)to.id);
    if (m)
        core_member(m->core, m->loop, MEMBER_TRANSFER, &to, 2000, handed_over, f);
}
static void fault(void *arg)
{
    struct fed *f = arg;
    uint64_t now = sim_now_ms(f->w), dice = fed_below(f, 100);

    if (now >= CLIENTS_FAULTS_UNTIL_MS)
        return;
    if (dice < 20)
        hand_over(f);
    else if (dice < 35)
        leader_alone(f);
    else if (dice < 47)
        disk_slow(f);
    else if (dice < 55)
        all_lose_power(f);
    else
        fed_fault(f);
    sim_at(f->w, now + 200 + fed_below(f, 2500), fault, f);
}
static bool broken(void *arg)
{
    return *((struct fed *)arg)->failed;
}
struct ending {
    struct fed *f;
    struct sim_clients *x;
};
static bool ended(void *arg)
{
    struct ending *e = arg;

    return *e->f->failed || sim_clients_done(e->x);
}
static void judge(struct fed *f, struct sim_clients *x)
{
    struct history_report r;

    history_check(sim_clients_history(x), NULL, &r);
    f->history = (struct fed_history){r.ops, r.unknown, r.lists, r.events, r.configurations};
    if (r.verdict != HISTORY_GOOD)
        fed_fail(f, "I3: %s: %s", r.check, r.why);
}
void sim_clients_live(struct fed *f)
{
    struct sim_clients *x = sim_clients_start(f);
    struct ending e = {f, x};

    f->profile = FED_MEMBERS;
    sim_at(f->w, CLIENTS_FROM_MS + 2000, fault, f);
    if (sim_run_until(f->w, CLIENTS_FAULTS_UNTIL_MS, broken, f))
        return;
    sim_clients_stop(x);
    for (unsigned i = 0; i < SIM_MEMBERS; i++)
        sim_raft_io_slow(f->hosts[i], 0);
    fed_quiet(f);
    (void)sim_run_until(f->w, sim_now_ms(f->w) + 6000, broken, f);
    sim_clients_last(x);
    if (!sim_run_until(f->w, sim_now_ms(f->w) + QUIET_MS, ended, &e))
        fed_fail(f, "I9: %d ms after the faults the last write is not acknowledged and seen by all",
                 QUIET_MS);
    judge(f, x);
}
