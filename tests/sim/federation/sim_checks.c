/* What must hold (controlplane/DESIGN.md, I1 to I9), while a federation runs and when it is quiet.
 * Looks only; must never change what happens. */
#include "tests/sim/federation/sim_federation.h"

#include "controlplane/store/ledger/ledger.h"
#include "controlplane/store/store_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK_EVERY 16 /* root_check makes everything again: not for each entry */

void fed_fail(struct fed *f, const char *fmt, ...)
{
    va_list ap;

    if (*f->failed)
        return;
    va_start(ap, fmt);
    (void)vsnprintf(f->failed, sizeof f->failed, fmt, ap);
    va_end(ap);
    sim_log(f->w, "FAILED at %llu ms: %s", (unsigned long long)sim_now_ms(f->w), f->failed);
}

/* ---- I5: intents that the log holds ---- */
static bool intent_known(const struct fed *f, const char *key)
{
    for (size_t i = f->n_intents; i > 0; i--)
        if (!strcmp(f->intents[i - 1], key))
            return true;
    return false;
}
static void intent_add(struct fed *f, const char *key)
{
    if (intent_known(f, key))
        return;
    if (f->n_intents == f->cap_intents) {
        f->cap_intents = f->cap_intents ? f->cap_intents * 2 : 256;
        f->intents = mem_realloc(f->intents, f->cap_intents * sizeof *f->intents);
    }
    (void)snprintf(f->intents[f->n_intents++], RUN_KEY_MAX, "%s", key);
}
static bool intent_each(const struct object *o, void *arg)
{
    const struct workload_status *s = object_as(o, workload)->status;
    struct fed *f = arg;

    f->phases |= s ? 1u << s->phase : 0;
    if (s && s->intent && *s->intent->key) {
        f->intent_ops |= 1u << s->intent->op;
        intent_add(f, s->intent->key);
    }
    return true;
}
static void intents_take(struct fed *f, const struct root *r)
{
    root_scan(r, KIND_WORKLOAD, NULL, NULL, NULL, intent_each, f);
}

struct root *fed_newest(struct fed *f)
{
    struct root *best = NULL;

    for (unsigned i = 0; i < SIM_MEMBERS; i++) {
        if (!f->members[i] || !f->members[i]->core)
            continue;
        struct root *r = core_root(f->members[i]->core);
        if (!best || root_number(r) > root_number(best)) {
            (void)root_unref(best);
            best = r;
        } else {
            (void)root_unref(r);
        }
    }
    return best;
}

/* ---- I1, I5: as a run begins ---- */
void fed_check_begin(void *fed, struct sim_room *room, const struct sim_run *run)
{
    struct fed *f = fed;
    const struct run_key *k = &run->key;
    char key[RUN_KEY_MAX];
    unsigned alive = 0;

    run_key_print(k, key);
    for (unsigned i = 0; i < f->n_rooms; i++)
        alive += sim_room_alive(f->rooms[i], k->uid);
    if (alive)
        fed_fail(f, "I1: %s begins on %s while %u other attempt of the workload lives", key,
                 room->name, alive);
    fed_check_work_begin(f, room, run);
    if (intent_known(f, key))
        return;
    for (unsigned i = 0; i < SIM_MEMBERS; i++)
        if (f->members[i] && f->members[i]->core) {
            struct root *r = core_root(f->members[i]->core);
            intents_take(f, r);
            (void)root_unref(r);
        }
    if (!intent_known(f, key))
        fed_fail(f, "I5: %s begins on %s and no log holds its intent", key, room->name);
}

/* ---- I6, the other way round: what the state wants to live is not ended ---- */
void fed_check_stop(void *fed, struct sim_room *room, const struct run_key *k)
{
    struct fed *f = fed;
    const struct object *o = f->newest ? root_workload_by_uid(f->newest, k->uid) : NULL;
    const struct workload_status *s = o ? object_as(o, workload)->status : NULL;
    char key[RUN_KEY_MAX];

    if (!s || s->epoch != k->epoch || !phase_live(s->phase) || s->intent->try_ != k->try_ ||
        s->intent->op == INTENT_STOP || s->intent->op == INTENT_QUIESCE)
        return;
    run_key_print(k, key);
    fed_fail(f, "I6: %s is stopped on %s, and the state wants it to live", key, room->name);
}

/* ---- I4 and the state itself: after each entry ---- */
struct changes {
    struct fed *f;
    const struct root *r;
};
static bool change_each(const struct change *c, void *arg)
{
    struct changes *x = arg;

    fed_check_change(x->f, x->r, c);
    fed_bulk_change(x->f, c);
    fed_check_move(x->f, x->r, c);
    fed_arrow_change(x->f, x->r, c);
    return true;
}
static void changes_look(struct fed *f, const struct root *r)
{
    struct changes x = {f, r};
    struct err err;

    if (root_changes(r, f->newest ? root_rv(f->newest) : 0, change_each, &x, &err))
        return; /* they are no longer kept: what they led to is looked at all the same */
}

/* I10: no entry is stamped later than it is, and who leads decides by the time that it is, whatever
 * one member's clock says. 5 s: the bound; 2 s: samples that were long under way. */
#define CLOCK_SLACK_MS 7000
static void check_time(struct fed *f, struct sim_member *m, const struct root *r)
{
    int64_t now = sim_utc_ms(f->w);
    struct core_status st;

    if (root_time(r) > now + CLOCK_SLACK_MS)
        fed_fail(f, "I10: entry %llu is stamped %lld s ahead of its time",
                 (unsigned long long)root_number(r), (long long)(root_time(r) - now) / 1000);
    core_status(m->core, &st);
    if (st.leads && llabs(core_time_ms(m->core) - now) > CLOCK_SLACK_MS)
        fed_fail(f, "I10: m%llu leads and is %lld s off", (unsigned long long)m->id,
                 (long long)(core_time_ms(m->core) - now) / 1000);
}

void fed_check_root(void *fed, struct sim_member *m, const struct root *r)
{
    struct fed *f = fed;
    uint64_t n = root_number(r), digest = root_digest(r);

    if (f->script.clients && f->script.bug) /* the judge of histories must see it by itself */
        return;
    check_time(f, m, r);
    if (n >= f->n_digests) {
        uint64_t cap = (n + 1) * 2;
        f->digests = mem_realloc(f->digests, cap * sizeof *f->digests);
        memset(f->digests + f->n_digests, 0, (cap - f->n_digests) * sizeof *f->digests);
        f->n_digests = cap;
    }
    struct fed_digest *d = &f->digests[n];
    if (d->known && d->digest != digest)
        fed_fail(f, "I4: m%llu has digest %016llx at entry %llu, others %016llx",
                 (unsigned long long)m->id, (unsigned long long)digest, (unsigned long long)n,
                 (unsigned long long)d->digest);
    if (!f->newest || n > root_number(f->newest)) {
        changes_look(f, r);
        fed_check_bulk_root(f, r);
        (void)root_unref(f->newest);
        f->newest = root_ref(r);
    }
    if (!d->known) {
        *d = (struct fed_digest){digest, root_term(r), true};
        intents_take(f, r);
        if (n >= f->checked + CHECK_EVERY) {
            root_check(r);
            f->checked = n;
        }
    }
    fed_arrow_root(f, m, r); /* may not return */
}

/* ---- I8: ended, or explained ---- */
struct look {
    struct fed *f;
    const struct root *r;
    char why[256];
};
static bool explained(const struct object *o)
{
    const struct workload_status *s = object_as(o, workload)->status;

    return phase_final(s->phase) || (s->phase == PHASE_STOPPED && *s->reason && s->n_ends > 0 &&
                                     s->ends[s->n_ends - 1].proof != (enum proof)0);
}
static const char *move_text(const struct root *r, const struct object *w, const char *name,
                             char out[128])
{
    const struct object *o = *name ? root_get(r, KIND_MIGRATION, w->meta->namespace_, name) : NULL;

    *out = '\0';
    if (o)
        (void)snprintf(out, 128, " %s: %s %s", name,
                       move_phase_text(object_as(o, migration)->status->phase),
                       object_as(o, migration)->status->reason);
    return out;
}
static bool settled_each(const struct object *o, void *arg)
{
    struct look *l = arg;
    const struct workload_status *s = object_as(o, workload)->status;
    char move[128];

    if (explained(o) && !o->meta->deletionTimestamp)
        return true;
    (void)snprintf(
        l->why, sizeof l->why, "%s is %s in epoch %lld try %lld since %lld ms (%s: %s)%s%s",
        o->meta->name, phase_text(s->phase), (long long)s->epoch,
        (long long)(s->intent ? s->intent->try_ : 0), (long long)(root_time(l->r) - s->phaseSince),
        s->reason, s->message, object_as(o, workload)->spec->suspend ? " suspended" : "",
        move_text(l->r, o, s->migration, move));
    return false;
}
bool fed_settled(struct fed *f)
{
    struct root *r = fed_newest(f);
    struct look l = {f, r, ""};

    if (!r)
        return false;
    root_scan(r, KIND_WORKLOAD, NULL, NULL, NULL, settled_each, &l);
    (void)root_unref(r);
    return !*l.why;
}

/* ---- at the end ---- */
static void check_writes(struct fed *f, const struct root *r) /* I2 */
{
    for (unsigned i = 0; i < f->n_workloads; i++) {
        const struct fed_workload *x = &f->workloads[i];
        const struct object *o = root_get(r, KIND_WORKLOAD, "dev", x->name);
        if (x->created && !x->delete_sent && (!o || strcmp(o->meta->uid, x->uid) != 0))
            fed_fail(f, "I2: %s was acknowledged and is not in the state", x->name);
        if (x->deleted && o)
            fed_fail(f, "I2: the deletion of %s was acknowledged and it is still there", x->name);
    }
}
static void check_rooms(struct fed *f, const struct root *r) /* I6 */
{
    for (unsigned i = 0; i < f->n_rooms; i++)
        list_for_each (it, &f->rooms[i]->runs) {
            const struct sim_run *run = container_of(it, struct sim_run, link);
            const struct object *o = root_workload_by_uid(r, run->key.uid);
            char key[RUN_KEY_MAX];
            run_key_print(&run->key, key);
            if (run->state != RUN_ENDED && run->state != RUN_ABSENT &&
                (!o || !phase_live(object_as(o, workload)->status->phase)))
                fed_fail(f, "I6: %s lives on %s and nobody holds it", key, f->rooms[i]->name);
        }
}
/* W7: who must save when told, was told, and saved nothing has not succeeded: what it did is
 * lost. */
static void check_saved(struct fed *f, const struct object *o, const struct sim_run *run)
{
    const struct checkpoint_spec *c = object_as(o, workload)->spec->checkpoint;

    if (c && c->required && run->told && !run->lease_lost && run->work.steps && !run->newest &&
        run->step < run->work.steps)
        fed_fail(f, "W7: %s is Succeeded in epoch %lld, and has saved nothing at step %lld of %lld",
                 o->meta->name, (long long)run->key.epoch, (long long)run->step,
                 (long long)run->work.steps);
}
/* What the state calls Succeeded has ended well in a room, in that epoch. */
static bool check_end_each(const struct object *o, void *arg)
{
    struct look *l = arg;
    const struct workload_status *s = object_as(o, workload)->status;

    for (uint32_t i = 0; i < s->n_ends; i++)
        l->f->leases_over += s->ends[i].proof == PROOF_LEASE_EXPIRED;
    if (s->phase != PHASE_SUCCEEDED)
        return true;
    for (unsigned i = 0; i < l->f->n_rooms; i++)
        list_for_each (it, &l->f->rooms[i]->runs) {
            const struct sim_run *run = container_of(it, struct sim_run, link);
            if (!strcmp(run->key.uid, o->meta->uid) && run->key.epoch == s->epoch &&
                run->state == RUN_ENDED && run->exit_code == 0 && run->term_signal == 0) {
                check_saved(l->f, o, run);
                return true;
            }
        }
    fed_fail(l->f, "%s is Succeeded in epoch %lld, and no room has seen that", o->meta->name,
             (long long)s->epoch);
    return true;
}

/* L1: what was held and what stood idle adds up to what there was. */
static void check_ledger(struct fed *f, const struct root *r)
{
    AUTO_ARENA a = arena_create(0);
    struct ledger_query q = {.to_day = INT64_MAX};
    struct ledger_report l;
    char sum[48], all[48];

    ledger_report_make(r, root_time(r), &q, a, &l);
    ledger_amount_print(l.intervals, sum);
    ledger_amount_print(l.capacity + l.overhang, all);
    if (l.intervals != l.capacity + l.overhang || l.capacity <= 0)
        fed_fail(f, "L1: the ledger's intervals are %s, capacity and overhang %s", sum, all);
}

void fed_check_end(struct fed *f)
{
    struct root *r = fed_newest(f);
    struct look l = {f, r, ""};

    if (!r) {
        fed_fail(f, "I9: no member is up");
        return;
    }
    if (!f->probe_acked)
        fed_fail(f, "I9: no write was acknowledged within %d ms after the faults", FED_PROGRESS_MS);
    root_check(r);
    root_scan(r, KIND_WORKLOAD, NULL, NULL, NULL, settled_each, &l);
    if (*l.why)
        fed_fail(f, "I8: %s", l.why);
    check_writes(f, r);
    check_rooms(f, r);
    if (f->script.mixed)
        f->script.mixed->end(f, r);
    fed_check_moves_end(f, r);
    check_ledger(f, r);
    fed_check_bulk_end(f, r);
    root_scan(r, KIND_WORKLOAD, NULL, NULL, NULL, check_end_each, &l);
    (void)root_unref(r);
}
