/* What must hold of the work itself (sim_checks.c has the rest):
 *   W1  a workload finishes once; again only where its first end was never told, by its lease
 *   W2  epochs of one workload never go back
 *   W3  it resumes from the newest whole checkpoint that its proved end left
 *   W4  its result is that of an undisturbed run
 *   W5  no device is given to two runs that live
 *   W6  status.checkpoint was written, by that epoch, with that digest, and never goes back
 *
 * Looks only. */
#include "tests/sim/federation/sim_federation.h"

#include "controlplane/store/store_internal.h"

#include <stdio.h>
#include <string.h>

static struct fed_progress *progress_of(struct fed *f, const char *uid)
{
    for (size_t i = f->n_progress; i > 0; i--)
        if (!strcmp(f->progress[i - 1].uid, uid))
            return &f->progress[i - 1];
    if (f->n_progress == f->cap_progress) {
        f->cap_progress = f->cap_progress ? f->cap_progress * 2 : 64;
        f->progress = mem_realloc(f->progress, f->cap_progress * sizeof *f->progress);
    }
    struct fed_progress *p = &f->progress[f->n_progress++];
    *p = (struct fed_progress){0};
    str_copy(p->uid, sizeof p->uid, uid);
    return p;
}
static const struct workload_status *status_by_uid(const struct fed *f, const char *uid)
{
    const struct object *o = f->newest ? root_workload_by_uid(f->newest, uid) : NULL;

    return o ? object_as(o, workload)->status : NULL;
}
static enum proof proof_of(const struct workload_status *s, int64_t epoch)
{
    for (uint32_t i = s ? s->n_ends : 0; i > 0; i--)
        if (s->ends[i - 1].epoch == epoch)
            return s->ends[i - 1].proof;
    return (enum proof)0;
}

/* It came to its end when it was told to save, by the hub or by its lease, and said nothing that
 * tells the two apart. */
static bool was_doubted(const struct workload_status *s, int64_t epoch)
{
    for (uint32_t i = s ? s->n_ends : 0; i > 0; i--)
        if (s->ends[i - 1].epoch == epoch)
            return !strcmp(s->ends[i - 1].reason, "CheckpointRequired") ||
                   !strcmp(s->ends[i - 1].reason, "LeaseLost");
    return false;
}

/* ---- W5 ---- */
static void check_devices(struct fed *f, struct sim_room *room, const struct sim_run *run)
{
    list_for_each (it, &room->runs) {
        const struct sim_run *x = container_of(it, struct sim_run, link);
        if (x != run && x->state != RUN_ENDED && x->state != RUN_ABSENT &&
            (x->devices & run->devices))
            fed_fail(f, "W5: %s.%lld begins on devices %03x of %s, and %s.%lld lives on %03x",
                     run->key.uid, (long long)run->key.epoch, run->devices, room->name, x->key.uid,
                     (long long)x->key.epoch, x->devices);
    }
}

/* ---- W3: where should it have gone on? ---- */
static void check_resumed(struct fed *f, const struct fed_progress *p, const struct sim_run *run)
{
    const struct sim_run *last = p->last;
    const struct sim_cut *own =
        last ? sim_store_newest(&f->store, run->key.uid, last->key.epoch) : NULL;
    int64_t before = last ? last->resumed.step : 0, want = own ? own->step : before;

    if (sim_store_was_damaged(&f->store, run->key.uid) ||
        !strncmp(run->base, SIM_LOCAL_STORE "/", sizeof SIM_LOCAL_STORE))
        return; /* verified by the room; which one is left depends on what is catalogued */
    if (run->step != want)
        fed_fail(f,
                 "W3: %s.%lld begins at step %lld; epoch %lld has left a checkpoint of step %lld",
                 run->key.uid, (long long)run->key.epoch, (long long)run->step,
                 (long long)(last ? last->key.epoch : 0), (long long)want);
}

void fed_check_work_begin(struct fed *f, struct sim_room *room, const struct sim_run *run)
{
    struct fed_progress *p = progress_of(f, run->key.uid);

    check_devices(f, room, run);
    if (run->key.epoch < p->epoch)
        fed_fail(f, "W2: %s begins in epoch %lld after epoch %lld", run->key.uid,
                 (long long)run->key.epoch, (long long)p->epoch);
    if (run->work.steps) {
        check_resumed(f, p, run);
        if (p->last && p->last->step > run->step)
            f->lost_steps += p->last->step - run->step;
        f->resumed += run->step > 0;
    }
    /* An end that nobody could tell is known to be one by a lease, or by an operator. */
    enum proof end = p->finished ? proof_of(status_by_uid(f, run->key.uid), p->finished_epoch) : 0;
    if (f->script.back && fed_was_deleted(f, run->key.uid))
        end = PROOF_OPERATOR; /* brought back by what a room still kept of it: sim_back.c */
    if (p->finished && !p->last->untold &&
        !was_doubted(status_by_uid(f, run->key.uid), p->finished_epoch) &&
        end != PROOF_LEASE_EXPIRED && end != PROOF_OPERATOR)
        fed_fail(f, "W1: %s.%lld begins, and epoch %lld has finished", run->key.uid,
                 (long long)run->key.epoch, (long long)p->finished_epoch);
    p->epoch = run->key.epoch;
    p->last = (struct sim_run *)(uintptr_t)run;
    p->begun++;
}

void fed_check_finished(void *fed, struct sim_room *room, const struct sim_run *run)
{
    struct fed *f = fed;
    struct fed_progress *p = progress_of(f, run->key.uid);
    uint64_t want = sim_state_first(run->key.uid);

    for (int64_t i = 0; i < run->work.steps; i++)
        want = sim_state_next(want);
    if (run->program != want && run->work.steps)
        fed_fail(f, "W4: %s finishes on %s in epoch %lld with another result", run->key.uid,
                 room->name, (long long)run->key.epoch);
    f->twice += p->finished > 0;
    f->finished++;
    p->finished++;
    p->finished_epoch = run->key.epoch;
}

/* ---- W6 ---- */
static void check_checkpoint(struct fed *f, const struct workload_status *was,
                             const struct object *o)
{
    const struct run_checkpoint *c = object_as(o, workload)->status->checkpoint;
    const struct run_checkpoint *before = was ? was->checkpoint : NULL;
    const struct sim_cut *cut = c ? sim_store_by_path(&f->store, c->path) : NULL;

    if (before && c && c->epoch == before->epoch && c->step == before->step)
        return;
    if (c && (!cut || strcmp(cut->uid, o->meta->uid) || strcmp(cut->digest, c->digest) ||
              cut->epoch != c->epoch || cut->step != c->step))
        fed_fail(f, "W6: %s has checkpoint %s of epoch %lld step %lld, which was never written so",
                 o->meta->name, c->path, (long long)c->epoch, (long long)c->step);
    if (before && (!c || c->step < before->step) &&
        !sim_store_was_damaged(&f->store, o->meta->uid) &&
        strncmp(before->path, SIM_LOCAL_STORE "/", sizeof SIM_LOCAL_STORE))
        fed_fail(f, "W6: the checkpoint of %s goes back from step %lld to %lld", o->meta->name,
                 (long long)before->step, (long long)(c ? c->step : 0));
}

/* An end that a lease proves is one: also where nothing takes its place, or nothing has yet. */
static void check_lease_over(struct fed *f, const struct workload_status *was,
                             const struct object *o)
{
    const struct workload_status *s = object_as(o, workload)->status;
    const struct run_end *e = s->n_ends ? &s->ends[s->n_ends - 1] : NULL;

    if (!was || was->phase != PHASE_UNKNOWN || phase_live(s->phase) || !e ||
        e->epoch != was->epoch || e->proof != PROOF_LEASE_EXPIRED)
        return;
    for (unsigned i = 0; i < f->n_rooms; i++) {
        const struct sim_run *run = sim_room_run(f->rooms[i], o->meta->uid);
        if (run && run->key.epoch == e->epoch)
            fed_fail(f, "I1: epoch %lld of %s is let go by its lease, and lives on %s",
                     (long long)e->epoch, o->meta->name, f->rooms[i]->name);
    }
}

void fed_check_change(struct fed *f, const struct root *r, const struct change *c)
{
    (void)r;
    if (c->kind != KIND_WORKLOAD || !c->after || !object_as(c->after, workload)->status)
        return;
    const struct workload_status *was = c->before ? object_as(c->before, workload)->status : NULL;
    if (was && object_as(c->after, workload)->status->epoch < was->epoch)
        fed_fail(f, "W2: the epoch of %s goes back", c->after->meta->name);
    check_checkpoint(f, was, c->after);
    check_lease_over(f, was, c->after);
}
