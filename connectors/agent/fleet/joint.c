/* Calls that are several calls, one a part. What is not known of one part is not known of the
 * whole: no answer may be made out of those that did come. */
#include "connectors/agent/fleet/fleet_internal.h"

#include <stdio.h>
#include <string.h>

#define NOBODY_WAITS_MS 20000 /* for the answer of a part */

static void joint_none(void *arg)
{
    struct joint *j = arg;

    j->end(j);
}

void joint_answered(struct joint_answer *v)
{
    struct joint *j = v->joint;

    INV(j->waiting > 0);
    if (--j->waiting == 0)
        j->end(j);
}

static void part_done(struct call *c, enum outcome out, const struct observation *seen,
                      const struct err *err)
{
    struct joint_answer *v = container_of(c, struct joint_answer, call);

    v->out = out;
    v->has = seen != NULL;
    if (seen)
        v->seen = *seen;
    if (err)
        v->err = *err;
    joint_answered(v);
}

struct joint *joint_begin(struct fleet *f, uint32_t parts, struct call *call, joint_end end)
{
    unsigned n = (unsigned)__builtin_popcount(parts);
    uint64_t by_ms = call ? call->deadline_ms : loop_now_ms(f->base.env.loop) + NOBODY_WAITS_MS;
    struct joint *j = mem_zalloc(sizeof *j + n * sizeof j->v[0]);

    *j = (struct joint){.fleet = f, .call = call, .end = end, .n = n, .waiting = n};
    list_push(&f->joints, &j->link);
    timer_init(&j->none, f->base.env.loop, joint_none, j);
    struct joint_answer *v = j->v;
    for (unsigned i = 0; i < f->n_parts; i++) {
        if (!(parts >> i & 1))
            continue;
        v->joint = j;
        v->part = f->parts[i];
        v->call = (struct call){.deadline_ms = by_ms, .done = part_done};
        v->out = OUT_UNKNOWN;
        v++;
    }
    if (!n) {
        j->out = OUT_UNKNOWN;
        timer_start(&j->none, 0);
    }
    return j;
}

void joint_finish(struct joint *j, enum outcome out, const struct observation *seen,
                  const struct err *err)
{
    struct call *call = j->call;
    struct observation room;

    timer_stop(&j->none);
    list_remove(&j->link);
    for (unsigned i = 0; call && out == OUT_REJECTED && i < j->n && !call->refused.class_; i++)
        call->refused = j->v[i].call.refused;
    if (seen) {
        room = *seen;
        seen = &room;
    }
    struct err why = err ? *err : (struct err){0};
    mem_free(j);
    if (call)
        call->done(call, out, seen, why.code ? &why : NULL);
}

static void told_end(struct joint *j)
{
    if (j->call && j->out == OUT_REJECTED)
        j->call->refused = refusal_of_code(j->err.code);
    joint_finish(j, j->out, NULL, &j->err);
}

void joint_tell(struct fleet *f, struct call *call, enum outcome out, int code, const char *field,
                const char *why)
{
    struct joint *j = joint_begin(f, 0, call, told_end);

    j->out = out;
    (void)err_field(&j->err, code, field, "%s", why);
}

void joint_refuse(struct fleet *f, struct call *call, int code, const char *field, const char *why)
{
    joint_tell(f, call, OUT_REJECTED, code, field, why);
}

void joint_about(struct joint *j, const struct run_key *k, bool sure, const struct fleet_where *at)
{
    j->about = true;
    j->key = *k;
    j->sure = sure;
    j->ran = sure && at->ran;
    j->grace_ms = at->grace_ms;
}

/* ---- what is true of the whole ---- */
#define FORGOTTEN                                                                                  \
    "agent %.63s of target %.200s says that nothing of it was ever started there, and it was "     \
    "seen running: it may still run. Once it is known to have ended: hanse fence"

/* Its own past contradicts it: it has lost what it knew. */
static bool is_forgotten(const struct joint_answer *v)
{
    struct joint *j = v->joint;

    return v->out == OUT_DONE && v->has && v->seen.state == RUN_ABSENT && j->ran && j->n > 1;
}

static bool is_unknown(const struct joint_answer *v)
{
    return v->out != OUT_DONE || !v->has || v->seen.state == RUN_UNKNOWN || is_forgotten(v);
}

bool joint_is_live(const struct joint_answer *v)
{
    return !is_unknown(v) && v->seen.state != RUN_ENDED && v->seen.state != RUN_ABSENT;
}

static bool is_absent(const struct joint_answer *v)
{
    return !is_unknown(v) && v->seen.state == RUN_ABSENT;
}

static bool is_ended(const struct joint_answer *v)
{
    return !is_unknown(v) && v->seen.state == RUN_ENDED;
}

bool joint_is_failure(const struct joint_answer *v)
{
    const struct observation *o = &v->seen;

    return is_absent(v) || (is_ended(v) && (o->exit_code || o->term_signal || o->lease_lost));
}

static struct observation unknown_of(struct joint *j, const struct joint_answer *v)
{
    struct observation o = {.key = j->key, .state = RUN_UNKNOWN};

    if (!v)
        (void)snprintf(o.message, sizeof o.message, "none of its agents is in reach");
    else if (!v->part->reached)
        (void)snprintf(o.message, sizeof o.message, "agent %.63s of target %.200s is away: %.200s",
                       v->part->name, j->fleet->base.target, v->part->why);
    else if (is_forgotten(v))
        (void)snprintf(o.message, sizeof o.message, FORGOTTEN, v->part->name,
                       j->fleet->base.target);
    else if (v->has && *v->seen.message)
        str_copy(o.message, sizeof o.message, v->seen.message);
    else
        (void)snprintf(o.message, sizeof o.message, "agent %.63s of target %.200s: %.200s",
                       v->part->name, j->fleet->base.target,
                       v->err.code ? v->err.text : "it could not tell");
    return o;
}

static void merge_checkpoint(struct observation *all, const struct observation *one)
{
    if (one->checkpoint.present &&
        (!all->checkpoint.present || one->checkpoint.step > all->checkpoint.step))
        all->checkpoint = one->checkpoint;
}

/* Who has ended saves no more, and is not waited for. */
static struct run_save save_of(struct joint *j)
{
    struct run_save all = {0};
    bool done = true;

    for_each_answer(v, j)
        if (joint_is_live(v) && v->seen.save.number > all.number)
            all = (struct run_save){
                .present = true, .state = SAVE_ASKED, .number = v->seen.save.number};
    for_each_answer(v, j)
    {
        const struct run_save *s = &v->seen.save;
        if (!joint_is_live(v) || !all.present)
            continue;
        if (s->number == all.number && s->state == SAVE_FAILED)
            return *s;
        done = done && s->number == all.number && s->state == SAVE_DONE;
    }
    if (all.present && done)
        all.state = SAVE_DONE;
    return all;
}

void joint_merge(struct observation *all, const struct observation *one)
{
    if (one->state != RUN_RUNNING)
        all->state = RUN_STARTING;
    all->grant = one->grant < all->grant ? one->grant : all->grant;
    all->lease_held = all->lease_held && one->lease_held;
    all->seen_ms = one->seen_ms < all->seen_ms ? one->seen_ms : all->seen_ms;
    merge_checkpoint(all, one);
}

/* Some of it lives. What has ended had been running; what never was, never will. */
static struct observation whole_live(struct joint *j, const struct joint_answer *live)
{
    struct observation o = live->seen;

    for_each_answer(v, j)
    {
        if (joint_is_live(v))
            joint_merge(&o, &v->seen);
        else if (is_absent(v))
            o.state = RUN_STARTING;
        else
            merge_checkpoint(&o, &v->seen);
    }
    o.save = save_of(j);
    return o;
}

/* Who tells why it ended: the first that failed on its own; else who never was; else the first that
 * failed; else any. */
static const struct joint_answer *cause_of(struct joint *j)
{
    const struct joint_answer *absent = NULL, *failed = NULL, *ended = NULL;

    for_each_answer(v, j)
    {
        bool fails = joint_is_failure(v);
        if (is_ended(v) && fails && !v->seen.stopped)
            return v;
        if (is_absent(v))
            absent = absent ? absent : v;
        else if (fails)
            failed = failed ? failed : v;
        else
            ended = ended ? ended : v;
    }
    return absent ? absent : failed ? failed : ended;
}

/* None of it lives. */
static struct observation whole_over(struct joint *j, const struct joint_answer *ended)
{
    const struct joint_answer *cause = cause_of(j);
    struct observation o = is_absent(cause) && ended ? ended->seen : cause->seen;

    for_each_answer(v, j)
    {
        o.lease_lost = o.lease_lost || v->seen.lease_lost;
        o.stopped = o.stopped || v->seen.stopped;
        if (is_ended(v) && v->seen.proof == PROOF_TREE_SEARCHED) /* the weakest of them */
            o.proof = PROOF_TREE_SEARCHED;
        merge_checkpoint(&o, &v->seen);
    }
    if (!ended || !is_absent(cause))
        return o;
    str_copy(o.reason, sizeof o.reason,
             *cause->seen.reason ? cause->seen.reason : end_text(END_START_FAILED));
    if (*cause->seen.message)
        str_copy(o.message, sizeof o.message, cause->seen.message);
    else
        (void)snprintf(o.message, sizeof o.message, "agent %.63s never began its part of the gang",
                       cause->part->name);
    return o;
}

/* Of a run that the log does not have, nobody knows which parts it has: it lives if any of them
 * says so, and only all of them together can say that it does not. */
struct observation joint_whole(struct joint *j)
{
    const struct joint_answer *unknown = NULL, *live = NULL, *ended = NULL;

    for_each_answer(v, j)
    {
        if (is_unknown(v))
            unknown = unknown ? unknown : v;
        else if (joint_is_live(v))
            live = live ? live : v;
        else if (is_ended(v))
            ended = ended ? ended : v;
    }
    if (j->n == 0 || (unknown && (j->sure || !live)))
        return unknown_of(j, unknown);
    if (j->n == 1 || !j->sure)
        return live ? live->seen : ended ? ended->seen : j->v[0].seen;
    return live ? whole_live(j, live) : whole_over(j, ended);
}

void joint_about_end(struct joint *j)
{
    struct observation o = joint_whole(j);

    if (!j->fleet->closing)
        gang_judge(j, &o);
    joint_finish(j, OUT_DONE, &o, NULL);
}

void joint_asked_end(struct joint *j)
{
    unsigned done = 0, refused = 0;
    const struct joint_answer *first = NULL, *seen = NULL;

    for_each_answer(v, j)
    {
        done += v->out == OUT_DONE;
        refused += v->out == OUT_REJECTED;
        if (v->out != OUT_DONE && (!first || v->out == OUT_UNKNOWN))
            first = v;
        if (v->has && (!seen || *v->seen.message))
            seen = v;
    }
    bool all = done == j->n || (j->mixed && done + refused == j->n && done);
    enum outcome out = j->n == 0 || j->stale     ? OUT_UNKNOWN
                       : all                     ? OUT_DONE
                       : refused == j->n         ? OUT_REJECTED
                                                 : OUT_UNKNOWN;
    struct observation whole = j->about && out == OUT_DONE ? joint_whole(j)
                               : seen                      ? seen->seen
                                                           : (struct observation){0};
    joint_finish(j, out, seen ? &whole : NULL, first && out != OUT_DONE ? &first->err : NULL);
}

void joints_stale(struct fleet *f)
{
    list_for_each (it, &f->joints) {
        struct joint *j = container_of(it, struct joint, link);
        j->stale |= j->lists;
    }
}

/* The parts have answered all that was asked of them; what is left was asked of none. */
void joints_flush(struct fleet *f)
{
    while (!list_empty(&f->joints)) {
        struct joint *j = container_of(f->joints.next, struct joint, link);
        INV(j->n == 0);
        j->end(j);
    }
}
