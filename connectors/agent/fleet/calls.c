/* What is asked of a fleet: routed to the agent that has the run by the log, or asked of each. */
#include "api/base/hash.h"
#include "connectors/agent/fleet/fleet_internal.h"

#include <stdio.h>
#include <string.h>

/* ---- one run ---- */
/* Parts of a placement; 0: the call was refused. */
static uint32_t parts_placed(struct fleet *f, const struct placement *p, struct call *call)
{
    uint32_t parts = p ? fleet_placed(f, p) : 0;

    if (!parts)
        joint_refuse(f, call, E_INVALID, "", "its nodes are of no agent of the target");
    return parts;
}

void fleet_submit(struct connector *c, const struct run_order *o, struct call *call)
{
    struct fleet *f = fleet_of(c);
    uint32_t parts = parts_placed(f, o->placement, call);

    if (__builtin_popcount(parts) > 1) {
        gang_submit(f, o, parts, call);
    } else if (parts) {
        struct connector *d = f->parts[__builtin_ctz(parts)]->driver;
        d->ops->submit(d, o, call);
    }
}

/* The memories of all that are in reach: while they are the same, whoever gets an order again has
 * what it had of it. Of a gang that was not taken whole nothing is begun anew (gang.c). */
const char *fleet_repeats(const struct connector *c)
{
    struct fleet *f = fleet_of((struct connector *)(uintptr_t)c);
    uint64_t hash = HASH_START, more = HASH_START;
    bool any = false;

    for (unsigned i = 0; i < f->n_parts; i++) {
        const struct fleet_part *p = f->parts[i];
        if (!p->reached)
            continue;
        const char *one = p->driver->ops->repeats ? p->driver->ops->repeats(p->driver) : "";
        if (!*one)
            return "";
        any = true;
        hash = hash_more(hash, one, strlen(one) + 1);
        more = hash_more(more ^ hash, p->name, strlen(p->name) + 1);
    }
    (void)snprintf(f->memory, sizeof f->memory, "%016llx%016llx", (unsigned long long)hash,
                   (unsigned long long)more);
    return any ? f->memory : "";
}

void fleet_stage(struct connector *c, const struct run_order *o, struct call *call)
{
    struct fleet *f = fleet_of(c);
    uint32_t parts = parts_placed(f, o->placement, call);

    if (__builtin_popcount(parts) > 1) {
        gang_stage(f, o, parts, call);
    } else if (parts) {
        struct connector *d = f->parts[__builtin_ctz(parts)]->driver;
        d->ops->stage(d, o, call);
    }
}

static struct joint *about(struct connector *c, const struct run_key *k, struct call *call,
                           joint_end end)
{
    struct fleet *f = fleet_of(c);
    struct fleet_where at;
    bool sure = fleet_where(f, k, &at);
    struct joint *j = joint_begin(f, at.parts, call, end);

    joint_about(j, k, sure, &at);
    return j;
}

void fleet_find(struct connector *c, const struct run_key *k, struct call *call)
{
    struct joint *j = about(c, k, call, joint_about_end);

    for_each_answer(v, j)
        v->part->driver->ops->find(v->part->driver, k, &v->call);
}

void fleet_stop(struct connector *c, const struct run_key *k, uint64_t grace_ms, struct call *call)
{
    struct joint *j = about(c, k, call, joint_about_end);

    for_each_answer(v, j)
        v->part->driver->ops->stop(v->part->driver, k, grace_ms, &v->call);
}

void fleet_quiesce(struct connector *c, const struct run_key *k, int signo, uint64_t grace_ms,
                   struct call *call)
{
    struct joint *j = about(c, k, call, joint_asked_end);

    for_each_answer(v, j)
        v->part->driver->ops->quiesce(v->part->driver, k, signo, grace_ms, &v->call);
}

void fleet_checkpoint(struct connector *c, const struct run_key *k, int64_t number,
                      uint64_t grace_ms, struct call *call)
{
    struct joint *j = about(c, k, call, joint_asked_end);

    for_each_answer(v, j)
        v->part->driver->ops->checkpoint(v->part->driver, k, number, grace_ms, &v->call);
}

/* A part that is away hears of it after its next sweep. */
void fleet_finalize(struct connector *c, const struct run_key *k, struct call *call)
{
    struct joint *j = about(c, k, call, joint_asked_end);

    j->mixed = true;
    for_each_answer(v, j)
        v->part->driver->ops->finalize(v->part->driver, k, &v->call);
}

/* ---- leases ---- */
void fleet_renew(struct connector *c, const struct run_offer *offers, size_t n)
{
    struct fleet *f = fleet_of(c);

    for (unsigned i = 0; i < f->n_parts; i++)
        f->parts[i]->driver->ops->renew(f->parts[i]->driver, offers, n);
}

bool fleet_reaches(const struct connector *c, const struct run_key *k)
{
    const struct fleet *f = fleet_of((struct connector *)(uintptr_t)c);
    struct fleet_where at;

    if (!k)
        return fleet_reached(f) != 0;
    return fleet_where(f, k, &at) && (fleet_reached(f) & at.parts) == at.parts;
}

/* ---- all parts ---- */
/* What is away is not listed, and said so: seen->message. */
static void sweep_end(struct joint *j)
{
    struct observation seen = {.state = RUN_UNKNOWN};
    const struct fleet *f = j->fleet;
    struct err why = {0};

    for_each_answer(v, j)
    {
        if (v->out != OUT_DONE && !why.code)
            why = v->err;
        if (v->out != OUT_DONE)
            j->stale = true;
    }
    for (unsigned i = 0; i < f->n_parts; i++) {
        if (!f->parts[i]->reached && !*seen.message)
            (void)snprintf(seen.message, sizeof seen.message, "agent %.63s is away",
                           f->parts[i]->name);
    }
    joint_finish(j, j->stale || !j->n ? OUT_UNKNOWN : OUT_DONE, &seen, why.code ? &why : NULL);
}

void fleet_sweep(struct connector *c, run_judge judge, void *arg, struct call *call)
{
    struct fleet *f = fleet_of(c);
    struct joint *j = joint_begin(f, fleet_reached(f), call, sweep_end);

    j->lists = true;
    for_each_answer(v, j)
        v->part->driver->ops->sweep(v->part->driver, judge, arg, &v->call);
}

void fleet_promises(struct connector *c, uint64_t rv, uint64_t older_ms, promise_judge judge,
                    void *arg, struct call *call)
{
    struct fleet *f = fleet_of(c);
    struct joint *j = joint_begin(f, fleet_reached(f), call, joint_asked_end);

    for_each_answer(v, j)
        v->part->driver->ops->promises(v->part->driver, rv, older_ms, judge, arg, &v->call);
}

/* The first that has it says it. */
static void document_told(void *arg, enum outcome out, const char *json, const struct err *err)
{
    struct joint_answer *v = arg;
    document_cb cb = v->joint->document;

    v->out = out;
    if (err)
        v->err = *err;
    if (out == OUT_DONE && json && *json && cb) {
        v->joint->document = NULL;
        cb(v->joint->document_arg, OUT_DONE, json, NULL);
    }
    joint_answered(v);
}

static void document_end(struct joint *j)
{
    document_cb cb = j->document;
    void *arg = j->document_arg;
    enum outcome out = j->n ? OUT_REJECTED : OUT_UNKNOWN;
    struct err why = {0};

    (void)err_set(&why, E_UNAVAIL, "none of its agents has it");
    for_each_answer(v, j)
    {
        if (v->out == OUT_UNKNOWN)
            out = OUT_UNKNOWN;
        if (v->err.code)
            why = v->err;
    }
    joint_finish(j, out, NULL, NULL);
    if (cb)
        cb(arg, out, NULL, &why);
}

void fleet_document(struct connector *c, const struct run_key *k, uint64_t deadline_ms,
                    document_cb cb, void *arg)
{
    struct fleet *f = fleet_of(c);
    struct joint *j = joint_begin(f, fleet_reached(f), NULL, document_end);

    j->document = cb;
    j->document_arg = arg;
    for_each_answer(v, j)
        v->part->driver->ops->document(v->part->driver, k, deadline_ms, document_told, v);
}

/* ---- streams ---- */
static int part_of_rank(struct fleet *f, const struct run_key *k, int64_t rank,
                        struct connector **ret, struct err *err)
{
    const struct connector_env *e = &f->base.env;
    struct run_where at;
    AUTO_ARENA a = arena_create(0);

    if (!e->where || !e->where(e->arg, k, a, &at))
        return err_set(err, E_CONFLICT, "nobody knows any more which agent had it");
    if (rank < 0 || rank >= at.n)
        return err_set(err, E_NOTFOUND, "it has no rank %lld", (long long)rank);
    const struct fleet_part *p = fleet_part_of(f, at.nodes[rank]);
    if (!p)
        return err_set(err, E_CONFLICT, "node %.200s is of no agent of the target", at.nodes[rank]);
    *ret = p->driver;
    return 0;
}

int fleet_logs(struct connector *c, const struct run_key *k, const struct log_request *rq,
               const struct log_sink *sink, struct exec_session **ret, struct err *err)
{
    struct connector *d = NULL;
    int rc = part_of_rank(fleet_of(c), k, rq->rank, &d, err);

    return rc ? rc : d->ops->logs(d, k, rq, sink, ret, err);
}

int fleet_exec(struct connector *c, const struct run_key *k, const struct exec_request *rq,
               const struct log_sink *sink, struct exec_session **ret, struct err *err)
{
    struct connector *d = NULL;
    int rc = part_of_rank(fleet_of(c), k, rq->rank, &d, err);

    return rc ? rc : d->ops->exec(d, k, rq, sink, ret, err);
}

int fleet_forward(struct connector *c, const struct run_key *k, const struct forward_request *rq,
                  const struct log_sink *sink, struct exec_session **ret, struct err *err)
{
    struct connector *d = NULL;
    int rc = part_of_rank(fleet_of(c), k, rq->rank, &d, err);

    return rc ? rc : d->ops->forward(d, k, rq, sink, ret, err);
}
