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

static void refused_end(struct joint *j)
{
    if (j->call)
        j->call->refused = refusal_of_code(j->err.code);
    joint_finish(j, j->out, NULL, &j->err);
}

void joint_refuse(struct fleet *f, struct call *call, int code, const char *field, const char *why)
{
    struct joint *j = joint_begin(f, 0, call, refused_end);

    j->out = OUT_REJECTED;
    (void)err_field(&j->err, code, field, "%s", why);
}

/* ---- what is true of the whole ---- */
static bool is_unknown(const struct joint_answer *v)
{
    return v->out != OUT_DONE || !v->has || v->seen.state == RUN_UNKNOWN;
}

static bool is_live(const struct joint_answer *v)
{
    return !is_unknown(v) && v->seen.state != RUN_ENDED && v->seen.state != RUN_ABSENT;
}

static struct observation unknown_of(const struct joint *j, const struct joint_answer *v)
{
    struct observation o = {.key = j->key, .state = RUN_UNKNOWN};

    if (!v)
        (void)snprintf(o.message, sizeof o.message, "none of its agents is in reach");
    else if (!v->part->reached)
        (void)snprintf(o.message, sizeof o.message, "agent %.63s of target %.200s is away: %.200s",
                       v->part->name, j->fleet->base.target, v->part->why);
    else if (v->has && *v->seen.message)
        str_copy(o.message, sizeof o.message, v->seen.message);
    else
        (void)snprintf(o.message, sizeof o.message, "agent %.63s of target %.200s: %.200s",
                       v->part->name, j->fleet->base.target,
                       v->err.code ? v->err.text : "it could not tell");
    return o;
}

/* Of a run that the log does not have, nobody knows which parts it has: it lives if any of them
 * says so, and only all of them together can say that it does not. */
static struct observation joined(const struct joint *j)
{
    const struct joint_answer *unknown = NULL, *live = NULL, *ended = NULL, *absent = NULL;

    for (const struct joint_answer *v = j->v; v < j->v + j->n; v++) {
        if (is_unknown(v))
            unknown = unknown ? unknown : v;
        else if (is_live(v))
            live = live ? live : v;
        else if (v->seen.state == RUN_ENDED)
            ended = ended ? ended : v;
        else
            absent = absent ? absent : v;
    }
    if (j->n == 0 || (unknown && (j->sure || !live)))
        return unknown_of(j, unknown);
    return live ? live->seen : ended ? ended->seen : absent->seen;
}

void joint_about_end(struct joint *j)
{
    struct observation o = joined(j);

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
    joint_finish(j, out, seen ? &seen->seen : NULL, first && out != OUT_DONE ? &first->err : NULL);
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
