/* Gangs whose ranks are with several agents, and what they resume from: one of the agents looks for
 * the newest checkpoint, where that is asked for; then each of them reads what there is, since each
 * is to resume from it. Also what is kept of an order that is needed again. Nothing in here may
 * start anything, so whatever becomes of it, nothing has run. */
#include "connectors/agent/fleet/fleet_internal.h"

#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>

#define SHARED                                                                                     \
    "its workers would be on the machines of several agents, and spec.checkpoint.layout shared "   \
    "needs a folder that all of them write to: %.200s is none. Name one, save by rank (layout: "   \
    "ranks), or ask for workers that one machine has room for"

/* ---- an order that is needed again later ---- */
static const char *const *texts_copy(struct arena *a, const char *const *v)
{
    size_t n = 0;

    while (v && v[n])
        n++;
    const char **ret = arena_array(a, const char *, n + 1);
    for (size_t i = 0; i < n; i++)
        ret[i] = arena_strdup(a, v[i]);
    return ret;
}

static const char *text_copy(struct arena *a, const char *s)
{
    return arena_strdup(a, s ? s : "");
}

static struct placement *placement_copy(struct arena *a, const struct placement *p)
{
    struct placement *ret = arena_memdup(a, p, sizeof *p);

    ret->target = text_copy(a, p->target);
    ret->class_ = text_copy(a, p->class_);
    ret->domain = text_copy(a, p->domain);
    ret->decision = text_copy(a, p->decision);
    ret->assignments = arena_array(a, struct assignment, p->n_assignments);
    for (uint32_t i = 0; i < p->n_assignments; i++) {
        struct assignment *x = &ret->assignments[i];
        *x = p->assignments[i];
        x->node = arena_strdup(a, x->node);
        x->mig = text_copy(a, x->mig);
        x->gpus = arena_memdup(a, x->gpus, x->n_gpus * sizeof *x->gpus);
    }
    return ret;
}

void order_copy(struct arena *a, const struct run_order *o, struct run_order *ret)
{
    *ret = *o;
    ret->ns = text_copy(a, o->ns);
    ret->name = text_copy(a, o->name);
    ret->principal = text_copy(a, o->principal);
    ret->image = text_copy(a, o->image);
    ret->script = text_copy(a, o->script);
    ret->cwd = text_copy(a, o->cwd);
    ret->signal = text_copy(a, o->signal);
    ret->save_signal = text_copy(a, o->save_signal);
    ret->document = text_copy(a, o->document);
    ret->checkpoint_dir = text_copy(a, o->checkpoint_dir);
    ret->resume_path = text_copy(a, o->resume_path);
    ret->resume_digest = text_copy(a, o->resume_digest);
    ret->log_base = text_copy(a, o->log_base);
    ret->log_env = o->log_env ? texts_copy(a, o->log_env) : NULL;
    ret->argv = texts_copy(a, o->argv);
    ret->env = texts_copy(a, o->env);
    ret->placement = placement_copy(a, o->placement);
}

static void texts_wipe(const char *const *v)
{
    for (; v && *v; v++)
        OPENSSL_cleanse((char *)(uintptr_t)*v, strlen(*v));
}

void order_wipe(struct run_order *o)
{
    texts_wipe(o->env);
    texts_wipe(o->log_env);
    *o = (struct run_order){.argv = NULL};
}

/* ---- what it resumes from ---- */
struct staging {
    struct arena *mem;
    struct run_order order;
    uint32_t parts, first; /* first: who looks */
    struct observation found;
    bool looked;
};

static void staging_end(struct joint *j, enum outcome out, const struct observation *seen,
                        const struct err *err)
{
    struct staging *x = j->staging;

    order_wipe(&x->order);
    joint_finish(j, out, seen, err);
    (void)arena_destroy(x->mem);
    mem_free(x);
}

/* Nothing was begun: what one of them refuses is refused. */
static const struct joint_answer *refused_by(struct joint *j)
{
    const struct joint_answer *unknown = NULL;

    for_each_answer(v, j)
    {
        if (v->out == OUT_REJECTED)
            return v;
        if (v->out == OUT_UNKNOWN)
            unknown = unknown ? unknown : v;
    }
    return unknown;
}

static void read_end(struct joint *j)
{
    struct staging *x = j->staging;
    const struct joint_answer *bad = refused_by(j);

    if (bad)
        staging_end(j, bad->out, bad->has ? &bad->seen : NULL, &bad->err);
    else
        staging_end(j, OUT_DONE, x->looked ? &x->found : &j->v[0].seen, NULL);
}

static void read_begin(struct fleet *f, struct staging *x, uint32_t parts, struct call *call)
{
    struct joint *j = joint_begin(f, parts, call, read_end);

    j->staging = x;
    for_each_answer(v, j)
        v->part->driver->ops->stage(v->part->driver, &x->order, &v->call);
}

static void look_end(struct joint *j)
{
    struct staging *x = j->staging;
    struct joint_answer *v = j->v;
    struct fleet *f = j->fleet;
    struct call *call = j->call;
    uint32_t others = x->parts & ~x->first;

    x->order.look_epoch = 0;
    if (v->out == OUT_DONE && v->has && v->seen.checkpoint.present) {
        x->order.resume_path = arena_strdup(x->mem, v->seen.checkpoint.path);
        x->order.resume_digest = arena_strdup(x->mem, v->seen.checkpoint.digest);
    }
    bool nothing = !*x->order.resume_path || !*x->order.resume_digest;
    if (v->out != OUT_DONE || !v->has || nothing || f->closing) {
        staging_end(j, v->out, v->has ? &v->seen : NULL, &v->err);
        return;
    }
    x->looked = true;
    x->found = v->seen;
    j->call = NULL;
    joint_finish(j, OUT_DONE, NULL, NULL);
    read_begin(f, x, others, call);
}

void gang_stage(struct fleet *f, const struct run_order *o, uint32_t parts, struct call *call)
{
    if (!gang_may_save(f, o, call))
        return;
    struct staging *x = mem_new(struct staging);
    x->mem = arena_create(0);
    x->parts = parts;
    x->first = parts & -parts;
    order_copy(x->mem, o, &x->order);
    if (!o->look_epoch) {
        read_begin(f, x, parts, call);
        return;
    }
    struct joint *j = joint_begin(f, x->first, call, look_end);
    j->staging = x;
    j->v->part->driver->ops->stage(j->v->part->driver, &x->order, &j->v->call);
}

/* ---- may it save there? ---- */
bool gang_may_save(struct fleet *f, const struct run_order *o, struct call *call)
{
    char why[512];

    if (!o->shared || *o->checkpoint_dir == '/')
        return true;
    (void)snprintf(why, sizeof why, SHARED, o->checkpoint_dir);
    joint_refuse(f, call, E_INVALID, "spec.checkpoint.layout", why);
    return false;
}
