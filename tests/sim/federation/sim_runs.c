/* What runs in a room: programs that make steps and write checkpoints, the runner that seals them,
 * and its lease. Must never let a program do what a real one could not: it knows its steps, its
 * folder and its signal. */
#include "connectors/shim/shim.h"
#include "tests/sim/federation/sim_room_internal.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#define TOLD_MS 10000 /* a cut told so long ago, in this session, is in the log */
#define SAVE_EARLY_MS 1100
#define STOP_MARGIN_MS 10000 /* of the agent, worker.c */
#define CUT_BYTES 1048576

void sim_work_print(const struct sim_work *w, char out[128])
{
    (void)snprintf(out, 128,
                   SIM_WORK_ENV "=%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64
                                ",%" PRId64,
                   w->steps, w->step_ms, w->interval, w->write_ms, w->habit, w->fails_at);
}
bool sim_work_parse(const char *env, struct sim_work *w)
{
    int64_t *const fields[] = {&w->steps,    &w->step_ms, &w->interval,
                               &w->write_ms, &w->habit,   &w->fails_at};
    size_t n = sizeof SIM_WORK_ENV - 1;

    if (strncmp(env, SIM_WORK_ENV "=", n + 1) != 0)
        return false;
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        char *end = NULL;
        *fields[i] = strtoll(env + n + 1, &end, 10);
        n = (size_t)(end - env);
    }
    return true;
}

/* ---- what an order says ---- */
/* Which devices it is given: bit node * 4 + device. */
static int64_t devices_of(const char *target, const struct placement *p)
{
    int64_t bits = 0;

    for (uint32_t i = 0; p && i < p->n_assignments; i++) {
        const struct assignment *a = &p->assignments[i];
        int64_t node = a->node[strlen(target) + 2] - '0'; /* "TARGET.nI" */
        for (uint32_t g = 0; g < a->n_gpus; g++)
            bits |= (int64_t)1 << (node * 4 + a->gpus[g]);
    }
    return bits;
}
void sim_order_fill(const char *target, const struct run_order *o, struct record *m)
{
    m->key = o->key;
    m->lease_ms = o->lease_ms;
    m->keep = o->checkpoint_keep;
    m->look_epoch = o->look_epoch;
    m->known_epoch = o->resume_epoch;
    m->known_step = o->resume_step;
    m->ranks = (int64_t)(o->placement ? o->placement->n_assignments : 0);
    m->any_ranks = o->reshard;
    m->devices = devices_of(target, o->placement);
    str_copy(m->base, sizeof m->base, o->checkpoint_dir);
    str_copy(m->path, sizeof m->path, o->resume_path);
    str_copy(m->digest, sizeof m->digest, o->resume_digest);
    for (size_t i = 0; o->env && o->env[i]; i++)
        (void)sim_work_parse(o->env[i], &m->work);
}

static uint64_t now_of(const struct sim_run *run)
{
    return sim_now_ms(run->room->w);
}

/* ---- what is told of it ---- */
void sim_run_seen(const struct sim_run *run, struct record *m)
{
    m->key = run->key;
    m->state = run->state;
    m->exit_code = run->exit_code;
    m->term_signal = run->term_signal;
    m->lease_lost = run->lease_lost;
    m->grant = run->grant;
    m->stopped = run->told && run->step < run->work.steps;
    if (run->reason)
        str_copy(m->reason, sizeof m->reason, run->reason);
    if (!run->newest)
        return;
    m->cut_step = run->newest->step;
    m->cut_bytes = run->newest->bytes;
    m->cut_ranks = run->newest->ranks;
    m->cut_write_ms = run->work.write_ms;
    str_copy(m->path, sizeof m->path, run->newest->path);
    str_copy(m->digest, sizeof m->digest, run->newest->digest);
}

/* ---- steps ---- */
static int64_t boundary(const struct sim_run *run)
{
    const struct sim_work *w = &run->work;
    int64_t at = w->steps,
            next = w->interval > 0 ? (run->step / w->interval + 1) * w->interval : at;

    if (next < at)
        at = next;
    if (w->fails_at > run->step && w->fails_at < at && run->key.epoch == 1)
        at = w->fails_at;
    return at;
}
/* Counts the steps that were made since it was last asked. */
static void advance(struct sim_run *run)
{
    int64_t room = boundary(run) - run->step, n;

    if (run->state != RUN_RUNNING || run->writing || !run->work.steps)
        return;
    n = (int64_t)(now_of(run) - run->mark_ms) / run->work.step_ms;
    n = n < room ? n : room;
    for (int64_t i = 0; i < n; i++)
        run->program = sim_state_next(run->program);
    run->step += n;
    run->mark_ms += (uint64_t)(n * run->work.step_ms);
}
static void go_on(struct sim_run *run)
{
    int64_t left = boundary(run) - run->step;

    run->mark_ms = now_of(run);
    timer_start(&run->next, (uint64_t)(left > 0 ? left * run->work.step_ms : 0));
}
static void write_begin(struct sim_run *run)
{
    run->writing = true;
    timer_start(&run->next, (uint64_t)run->work.write_ms);
}

void sim_run_end(struct sim_run *run, int exit_code, int signo)
{
    struct sim_room *r = run->room;

    if (run->state == RUN_ENDED || run->state == RUN_ABSENT)
        return;
    advance(run);
    run->state = RUN_ENDED;
    run->exit_code = exit_code;
    run->term_signal = signo;
    run->ended_ms = now_of(run);
    run->writing = false;
    timer_stop(&run->next);
    timer_stop(&run->kill);
    sim_log(r->w, "%s: %s.%lld.%lld ended at step %lld: exit %d signal %d%s %s", r->name,
            run->key.uid, (long long)run->key.epoch, (long long)run->key.try_, (long long)run->step,
            exit_code, signo, run->lease_lost ? ", lease lost" : "",
            run->reason ? run->reason : "");
    if (exit_code == 0 && signo == 0 && run->step == run->work.steps && room_events.finished)
        room_events.finished(room_events.arg, r, run);
    room_tell_all(run);
}

/* The runner seals what the program has written. */
static void write_done(struct sim_run *run)
{
    struct sim_room *r = run->room;
    struct sim_cut c = {.epoch = run->key.epoch,
                        .step = run->step,
                        .ranks = run->ranks,
                        .bytes = CUT_BYTES,
                        .state = run->program,
                        .written_ms = now_of(run)};

    run->writing = false;
    str_copy(c.uid, sizeof c.uid, run->key.uid);
    str_copy(c.room, sizeof c.room, r->name);
    if ((!run->newest || run->newest->step != run->step) && !sim_run_still(run))
        run->newest = sim_store_add(r->store, run->base, &c);
    if (r->agent && !list_empty(&r->sessions) && run->newest && !sim_run_still(run)) {
        sim_store_by_path(r->store, run->newest->path)->told_ms = now_of(run);
        if (now_of(run) > r->session_since_ms + TOLD_MS)
            sim_store_retain(r->store, run->key.uid, run->keep, now_of(run) - TOLD_MS);
    }
    if (run->leaving) {
        sim_run_end(run, run->step == run->work.steps ? 0 : 75, 0);
        return;
    }
    room_tell_all(run);
    go_on(run);
}

static void running(struct sim_run *run)
{
    struct sim_room *r = run->room;

    run->state = RUN_RUNNING;
    if (run->work.steps) {
        go_on(run);
    } else {
        bool lasts = sim_random_below(r->w, 100) < r->long_percent;
        timer_start(&run->next, lasts ? 15000 + sim_random_below(r->w, 40000)
                                      : 500 + sim_random_below(r->w, 9000));
    }
    room_tell_all(run);
}
static void run_next(void *arg)
{
    struct sim_run *run = arg;

    if (run->state == RUN_STARTING) {
        running(run);
        return;
    }
    if (!run->work.steps) {
        sim_run_end(run, sim_random_below(run->room->w, 100) < 15 ? 1 : 0, 0);
        return;
    }
    if (run->writing) {
        write_done(run);
        return;
    }
    advance(run);
    if (run->step >= run->work.steps)
        sim_run_end(run, 0, 0);
    else if (run->step == run->work.fails_at && run->key.epoch == 1)
        sim_run_end(run, 1, 0);
    else if (run->work.interval > 0 && run->step % run->work.interval == 0)
        write_begin(run);
    else
        go_on(run);
}
static void run_kill(void *arg)
{
    sim_run_end(arg, 0, SIGKILL);
}

/* ---- signal and end ---- */
void sim_run_signal(struct sim_run *run)
{
    struct sim_room *r = run->room;

    if (run->state != RUN_RUNNING || run->leaving || sim_run_still(run))
        return;
    run->told = true;
    if (!run->work.steps) {
        if (sim_random_below(r->w, 100) < 70)
            sim_run_end(run, sim_random_below(r->w, 2) ? 75 : 0, 0);
        return;
    }
    if (run->work.habit == HABIT_IGNORES)
        return;
    advance(run);
    if (run->work.habit == HABIT_LEAVES && !run->newest && !run->writing) {
        sim_run_end(run, 0, 0);
        return;
    }
    if (run->work.habit == HABIT_TEARS) {
        sim_run_end(run, 75, 0);
        return;
    }
    run->leaving = true;
    if (run->work.habit == HABIT_SLOW) {
        run->writing = true;
        timer_start(&run->next, 60000);
    } else if (!run->writing) {
        write_begin(run);
    }
}
void sim_run_kill_in(struct sim_run *run, uint64_t ms)
{
    if (run->state == RUN_ENDED || run->state == RUN_ABSENT)
        return;
    if (sim_run_still(run)) /* its agent does it, somewhat later */
        ms += STOP_MARGIN_MS;
    if (ms)
        timer_start(&run->kill, ms);
    else
        sim_run_end(run, 0, SIGKILL);
}
bool sim_run_still(const struct sim_run *run)
{
    return now_of(run) < run->still_until_ms;
}
void sim_run_stand_still(struct sim_run *run, uint64_t ms)
{
    if (run->state != RUN_RUNNING || run->leaving)
        return;
    sim_log(run->room->w, "fault: %s: the shim of %s.%lld.%lld stands still for %llu ms",
            run->room->name, run->key.uid, (long long)run->key.epoch, (long long)run->key.try_,
            (unsigned long long)ms);
    run->still_until_ms = now_of(run) + ms;
}
/* The lease: asked to save a little before it is over, killed when it is; by the guard when the
 * shim does not. */
void sim_run_lease(struct sim_run *run, uint64_t now)
{
    if (run->state == RUN_ENDED || run->state == RUN_ABSENT || !run->lease_ms)
        return;
    if (sim_run_still(run) &&
        (now < run->until_ms + GUARD_MARGIN_MS || sim_planted == PLANT_NO_GUARD))
        return;
    if (now + 100 >= run->until_ms) {
        run->lease_lost = true;
        run->room->leases_lost++;
        sim_run_end(run, 0, SIGTERM);
    } else if (now + SAVE_EARLY_MS >= run->until_ms && run->work.steps && !run->leaving) {
        run->lease_lost = true;
        sim_run_signal(run);
        if (run->state == RUN_RUNNING) /* it may have left at once: that stays so */
            run->lease_lost = run->leaving;
    }
}

/* ---- a run begins ---- */
/* False: it is not to be, and its key stays refused. */
static bool resume(struct sim_run *run, const struct record *m)
{
    const struct sim_cut *c = NULL;

    run->step = 0;
    run->program = sim_state_first(run->key.uid);
    if (!*m->path)
        return true;
    run->reason = sim_store_verify(run->room->store, run->room->name, run->key.uid,
                                   m->any_ranks ? 0 : run->ranks, m->path, m->digest, &c);
    if (run->reason && !(sim_planted == PLANT_NO_VERIFY && c && *c->path)) {
        sim_log(run->room->w, "%s: %s.%lld.%lld does not start: %s %s", run->room->name,
                run->key.uid, (long long)run->key.epoch, (long long)run->key.try_, run->reason,
                m->path);
        return false;
    }
    run->reason = NULL;
    run->resumed = *c;
    run->step = c->step;
    run->program = c->state ^ (c->damage != DAMAGE_NONE); /* what was not verified is wrong */
    return true;
}

struct sim_run *sim_run_begin(struct sim_room *r, const struct record *m)
{
    struct sim_run *run = mem_new(struct sim_run);

    run->key = m->key;
    run->room = r;
    run->memory = r->memory;
    run->lease_ms = m->lease_ms;
    run->from_ms = m->from;
    run->until_ms = m->from + m->lease_ms;
    run->grant = sim_random_below(r->w, 6) != 0;
    run->work = m->work;
    str_copy(run->cluster, sizeof run->cluster, m->cluster);
    run->state_rv = m->rv;
    run->ranks = m->ranks;
    run->keep = m->keep;
    run->devices = (uint32_t)m->devices;
    run->began_ms = sim_now_ms(r->w);
    str_copy(run->base, sizeof run->base, m->base);
    run->state = resume(run, m) ? RUN_STARTING : RUN_ABSENT;
    if (run->state == RUN_STARTING && room_events.begins)
        room_events.begins(room_events.arg, r, run);
    timer_init(&run->next, r->loop, run_next, run);
    timer_init(&run->kill, r->loop, run_kill, run);
    list_push(&r->runs, &run->link);
    if (run->state == RUN_STARTING) {
        timer_start(&run->next, sim_random_below(r->w, 1500));
        sim_log(r->w, "%s: %s.%lld.%lld begins at step %lld, lease %llu", r->name, run->key.uid,
                (long long)run->key.epoch, (long long)run->key.try_, (long long)run->step,
                (unsigned long long)run->lease_ms);
    }
    room_tell_all(run);
    return run;
}
