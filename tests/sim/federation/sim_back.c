/* The hub's memory goes back: somebody puts an older copy of the data of all members in place, or
 * there is none, while rooms run on and know what has happened since. An operator settles it from
 * what the rooms carry. What must hold is what holds always: nothing runs twice, epochs rise, what
 * was acknowledged before the copy is there; of what came after it the hub may know nothing.
 *
 * Of six lives two lose all their data; in two the room that comes back first may have
 * heard nothing since the copy; in one the copy does not know of a room at all: its Target
 * was made later, and is applied again by the operator after a while. Who knows more comes before
 * its suspectAfter is over: later the hub does not wait (controlplane/leader/doubt/README.md). */
#include "controlplane/leader/doubt/back.h"
#include "controlplane/leader/recover/strangers.h"
#include "tests/sim/federation/sim_federation.h"
#include "tests/sim/world/sim_raft_io.h"

#include <string.h>

#define COPY_FROM_MS 9000
#define LATER_MS 6000 /* the copy is at least so old */
#define QUIET_MS 60000
#define OPERATOR_EVERY_MS 3000
#define DIAL_EVERY_MS (SIM_REDIAL_MS / 3)

struct back {
    struct fed *f;
    struct sim_disk_copy *copies[SIM_MEMBERS];
    unsigned known;    /* workloads that were acknowledged before */
    bool wiped;        /* there is no copy */
    unsigned away;     /* a room, FED_ROOMS: none */
    bool stranger;     /* the last room is made after the copy */
    uint64_t again_ms; /* and by then once more; 0: it was not put back yet */
};

static void later(struct back *x, uint64_t ms, void (*fn)(void *))
{
    sim_at(x->f->w, sim_now_ms(x->f->w) + ms, fn, x);
}

/* ---- a room that the copy does not know ---- */
static bool room_known(struct sim_member *m)
{
    struct root *r = m && m->core ? core_root(m->core) : NULL;
    bool known = r && root_get(r, KIND_TARGET, "", "ams");

    (void)root_unref(r);
    return known;
}
/* Hubs dial rooms here: what an agent says as it dials in is said for it. */
static void stranger_dials(void *arg)
{
    struct back *x = arg;
    struct fed *f = x->f;
    const struct sim_room *room = f->rooms[FED_ROOMS - 1];
    unsigned lead = fed_leader(f),
             to = fed_below(f, 2) ? lead : (unsigned)fed_below(f, SIM_MEMBERS);
    struct sim_member *m = f->members[to];

    later(x, DIAL_EVERY_MS, stranger_dials);
    if (!room->agent || !m || !m->brain || m->closing || room_known(m))
        return;
    stranger_came(m->brain, room->name);
    brain_heard(m->brain, room->name, room->heard.cluster, room->heard.rv, room->heard.time_ms);
}
static void room_make(void *arg)
{
    struct back *x = arg;
    struct fed *f = x->f;
    bool due = !x->again_ms || sim_now_ms(f->w) >= x->again_ms;

    if (due && !room_known(f->members[fed_leader(f)])) {
        f->unmade = 0;
        f->docs = false;
        fed_docs(f);
    }
    later(x, 1000, room_make);
}

/* ---- the operator ---- */
static void recovered(void *arg, const char *json, const struct err *err)
{
    struct fed *f = arg;

    sim_log(f->w, "operator: %s", err ? err->text : json);
    for (unsigned i = 0; json && strstr(json, "\"settled\":true") && i < f->n_workloads; i++)
        f->workloads[i].deleted = false; /* what was deleted before may have come back */
}
static void operator_looks(void *arg)
{
    struct back *x = arg;
    struct sim_member *m = x->f->members[fed_leader(x->f)];
    struct recover_ask ask = {.who = "operator", .after = ""};
    struct root *r = fed_newest(x->f);

    later(x, OPERATOR_EVERY_MS, operator_looks);
    if (m && m->brain && r && (x->wiped || root_recovering(r)))
        brain_recover(m->brain, &ask, recovered, x->f);
    (void)root_unref(r);
}

/* What a room still keeps of a run that has ended brings its Workload back also where its user had
 * deleted it: neither hub nor room can tell. It may then run again. */
bool fed_was_deleted(const struct fed *f, const char *uid)
{
    for (unsigned i = 0; i < f->n_workloads; i++)
        if (strcmp(f->workloads[i].uid, uid) == 0)
            return f->workloads[i].delete_sent;
    return false;
}

/* ---- the copy, and its way back ---- */
static void room_comes(void *arg)
{
    struct back *x = arg;

    for (unsigned i = 0; i < FED_ROOMS; i++)
        sim_room_agent(x->f->rooms[i], true);
}
static void members_come(void *arg)
{
    struct back *x = arg;
    struct fed *f = x->f;

    for (unsigned i = 0; i < SIM_MEMBERS; i++)
        fed_member_up(f, i);
    if (x->wiped) {
        f->docs = false;
        fed_docs(f);
    }
    later(x, fed_below(f, 1500), room_comes);
    later(x, OPERATOR_EVERY_MS, operator_looks);
}
/* What the hub has learnt since is not asked of it any more. */
static void forgive(struct back *x)
{
    struct fed *f = x->f;

    for (unsigned i = 0; i < f->n_workloads; i++) {
        f->workloads[i].deleted = false;
        if (i >= x->known || x->wiped)
            f->workloads[i].created = false;
    }
    (void)root_unref(f->newest);
    f->newest = NULL;
    memset(f->digests, 0, f->n_digests * sizeof *f->digests);
    f->checked = 0;
}
static void put_back(void *arg)
{
    struct back *x = arg;
    struct fed *f = x->f;

    sim_log(f->w, "fault: %s", x->wiped ? "the hub's data is lost" : "an older copy is put back");
    f->faults++;
    for (unsigned i = 0; i < SIM_MEMBERS; i++)
        fed_member_down(f, i);
    for (unsigned i = 0; i < SIM_MEMBERS; i++) {
        sim_disk_put_back(f->hosts[i], x->copies[i]);
        sim_disk_copy_free(x->copies[i]);
        f->started[i] = !x->wiped;
    }
    if (x->away < FED_ROOMS) { /* it was away all the time, and comes first */
        for (unsigned i = 0; i < FED_ROOMS; i++)
            sim_room_agent(f->rooms[i], i == x->away);
    }
    if (x->stranger) {
        f->unmade = 1;
        x->again_ms = sim_now_ms(f->w) + 8000 + fed_below(f, 40000);
        later(x, 1000, stranger_dials);
    }
    forgive(x);
    later(x, 500 + fed_below(f, 500), members_come);
}
static void copy(void *arg)
{
    struct back *x = arg;
    struct fed *f = x->f;

    sim_log(f->w, "fault: copies are made");
    x->known = f->n_workloads;
    for (unsigned i = 0; i < SIM_MEMBERS && !x->wiped; i++)
        x->copies[i] = sim_disk_copy(f->hosts[i]);
    if (x->away < FED_ROOMS)
        sim_room_agent(f->rooms[x->away], false);
    if (x->stranger)
        later(x, 100, room_make);
    later(x, LATER_MS + fed_below(f, 20000), put_back);
}

/* ---- its life ---- */
static void quiet(void *arg)
{
    struct fed *f = arg;

    fed_quiet(f);
    fed_probe(f);
    fed_unsuspend(f);
}
void fed_back_live(struct fed *f, uint64_t seed)
{
    struct back *x = mem_new(struct back);

    x->f = f;
    x->wiped = seed % 3 == 0;
    x->away = seed % 3 == 1 ? (unsigned)(seed / 3 % FED_ROOMS) : FED_ROOMS;
    x->stranger = seed % 6 == 5;
    f->unmade = x->stranger;
    for (unsigned i = 0; i < SIM_MEMBERS; i++) /* as they came into the world: empty */
        x->copies[i] = x->wiped ? sim_disk_copy(f->hosts[i]) : NULL;
    fed_users_start(f);
    sim_at(f->w, COPY_FROM_MS + fed_below(f, 15000), copy, x);
    sim_at(f->w, QUIET_MS, quiet, f);
    if (sim_run_until(f->w, QUIET_MS + FED_PROGRESS_MS, fed_over, f))
        return;
    while (sim_now_ms(f->w) < FED_END_MS && !*f->failed && !(f->probe_acked && fed_settled(f)))
        (void)sim_run_until(f->w, sim_now_ms(f->w) + 1000, fed_over, f);
    (void)sim_run_until(f->w, sim_now_ms(f->w) + 15000, fed_over, f);
    if (!*f->failed)
        fed_check_end(f);
    mem_free(x);
}
