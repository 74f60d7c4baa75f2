/* One life of a federation. */
#include "tests/sim/clients/sim_clients.h"

#include "api/base/failpoint.h"

#include <stdio.h>
#include <string.h>

uint64_t fed_below(struct fed *f, uint64_t n)
{
    return sim_random_below(f->w, n);
}

bool fed_over(void *fed)
{
    return *((struct fed *)fed)->failed;
}

static bool settled(void *arg)
{
    struct fed *f = arg;

    return *f->failed ||
           (f->probe_acked && fed_settled(f) && fed_moves_over(f) && fed_bulk_settled(f));
}
static void docs(void *arg)
{
    fed_docs(arg);
}

static void fed_make(struct fed *f, uint64_t seed)
{
    static const char *const rooms[FED_ROOMS] = {"fra", "ams"};
    struct sim_room_events ev = {.begins = fed_check_begin,
                                 .stops = fed_check_stop,
                                 .finished = fed_check_finished,
                                 .arg = f};

    f->w = sim_world_create(seed);
    f->profile = (enum fed_profile)(seed % FED_PROFILE_NR);
    sim_store_init(&f->store);
    f->n_rooms = FED_ROOMS;
    for (unsigned i = 0; i < f->n_rooms; i++) {
        f->rooms[i] = sim_room_create(f->w, rooms[i], &f->store, &ev);
        f->rooms[i]->long_percent = f->profile == FED_LINKS ? 60 : 20;
    }
    if (f->script.mixed)
        f->script.mixed->make(f);
    for (unsigned i = 0; i < SIM_MEMBERS; i++) {
        char name[8];
        (void)snprintf(name, sizeof name, "m%u", i + 1);
        f->hosts[i] = sim_host_create(f->w, name);
    }
    for (unsigned i = 0; i < SIM_MEMBERS; i++)
        fed_member_up(f, i);
}

/* Ends early once a check did not hold. */
static void fed_live(struct fed *f, uint64_t seed)
{
    sim_at(f->w, 2000, docs, f);
    if (f->script.arrow) {
        fed_arrow_live(f);
        return;
    }
    if (f->script.back) {
        fed_back_live(f, seed);
        return;
    }
    if (f->script.clients) {
        sim_clients_live(f);
        return;
    }
    fed_users_start(f);
    fed_edits_start(f);
    if (f->script.mixed)
        f->script.mixed->start(f);
    else
        fed_bulk_start(f, seed);
    fed_faults_start(f);
    if (sim_run_until(f->w, FED_FAULTS_UNTIL_MS + 3000 + FED_PROGRESS_MS, fed_over, f))
        return;
    /* Looked at every now and then: it reads the whole state. */
    while (sim_now_ms(f->w) < FED_END_MS && !settled(f))
        (void)sim_run_until(f->w, sim_now_ms(f->w) + 1000, fed_over, f);
    /* What was swept is given time to end. */
    (void)sim_run_until(f->w, sim_now_ms(f->w) + 15000, fed_over, f);
    if (!*f->failed)
        fed_check_end(f);
}

void fed_run(uint64_t seed, const struct fed_script *script, struct fed_outcome *ret)
{
    struct fed *f = mem_new(struct fed);

    f->script = *script;
    sim_target_plant(script->plant);
    sim_target_marks(script->back);
    failpoint_plant(script->bug);
    fed_make(f, seed);
    fed_live(f, seed);
    *ret = (struct fed_outcome){.done = true,
                                .hash = sim_event_hash(f->w),
                                .events = sim_events(f->w),
                                .workloads = f->n_workloads,
                                .acked = f->acked,
                                .unknown = f->unknown,
                                .faults = f->faults,
                                .resumed = f->resumed,
                                .finished = f->finished,
                                .twice = f->twice,
                                .lost_steps = f->lost_steps,
                                .leases_over = f->leases_over,
                                .phases = f->phases,
                                .intent_ops = f->intent_ops};
    memcpy(ret->causes, f->causes, sizeof ret->causes);
    ret->transfers = f->transfers;
    ret->gains = f->gains;
    ret->history = f->history;
    ret->bulk = f->bulk.tale;
    ret->died = f->arrow.died;
    ret->arrow_phases = f->arrow.phases;
    ret->refused_cuts = f->store.refused;
    ret->n_points = f->n_points;
    memcpy(ret->moves, f->moves, sizeof ret->moves);
    memcpy(ret->points, f->points, sizeof ret->points);
    struct root *r = fed_newest(f);
    ret->entries = r ? root_number(r) : 0;
    for (unsigned i = 0; i < f->n_rooms; i++) {
        ret->submits += f->rooms[i]->submits;
        ret->again += f->rooms[i]->again;
        ret->answers_lost += f->rooms[i]->answers_lost;
        ret->leases_lost += f->rooms[i]->leases_lost;
    }
    str_copy(ret->failed, sizeof ret->failed, f->failed);
}
