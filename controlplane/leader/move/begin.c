/* What Migrations hold in the pool, and Migrations that the brain itself begins: a MIGRATE BEGIN on
 * its way into the log. The pool holds their destinations from now on, and other causes leave their
 * workloads alone, until the root has them. */

#include "controlplane/leader/move/begin.h"

#include "api/base/failpoint.h"
#include "api/base/log.h"
#include "controlplane/leader/context/index.h"

#include <stdio.h>
#include <string.h>

struct planned { /* a workload of a plan */
    struct indexed by_workload;
    char uid[64];
};

struct plan {
    struct brain *brain;
    void (*done)(void *arg, bool begun);
    void *arg;
    size_t n;
    struct planned planned[];
};

unsigned begin_count(const struct brain *b)
{
    return b->plans->n;
}

/* ---- what the pool holds ---- */
/* A plan has no Migration yet: its hold has a name of its own. */
static const char *hold_name(const char *workload_uid, char out[80])
{
    (void)snprintf(out, 80, "begin:%s", workload_uid);
    return out;
}

/* The Migration holds it now, or nobody will. */
static void plan_drop(struct brain *b, const char *workload_uid)
{
    char name[80];

    if (b->pool)
        pool_drop(b->pool, hold_name(workload_uid, name));
}

void move_hold(struct brain *b, const struct object *migration)
{
    const struct migration *g = object_as(migration, migration);
    const struct object *w =
        root_get(b->root, KIND_WORKLOAD, migration->meta->namespace_, g->spec->workload);

    if (w)
        plan_drop(b, w->meta->uid);
    if (w && g->status && move_holds(g->status->phase) && g->status->placement &&
        !PLANTED("move.destination-unheld"))
        pool_hold_as(b->pool, migration->meta->uid, w, g->status->placement);
    else
        pool_drop(b->pool, migration->meta->uid);
}

void move_hold_ahead(struct brain *b, const struct object *migration, const struct object *workload,
                     const struct placement *p)
{
    pool_hold_as(b->pool, migration->meta->uid, workload, p);
}

/* ---- plans ---- */
bool begin_possible(const struct brain *b, const struct object *workload)
{
    const struct workload *w = object_as(workload, workload);

    return w->status && w->status->placement && phase_holds(w->status->phase) &&
           !*w->status->migration && !w->spec->suspend && !workload->meta->deletionTimestamp &&
           !index_find(&b->plans->by_workload, workload->meta->uid);
}

void begin_fill(struct move_begin *begin, const struct object *workload, enum move_cause cause,
                const struct move_choice *c)
{
    *begin = (struct move_begin){.epoch = object_as(workload, workload)->status->epoch,
                                 .cause = cause,
                                 .placement = c->placement,
                                 .decision = c->placement ? c->decision : NULL,
                                 .lost_gpu_seconds = c->lost_gpu_s,
                                 .cost = c->cost,
                                 .saving = c->saving};
    str_copy(begin->ns, sizeof begin->ns, workload->meta->namespace_);
    str_copy(begin->workload, sizeof begin->workload, workload->meta->name);
    str_copy(begin->uid, sizeof begin->uid, workload->meta->uid);
}

void begin_take(struct brain *b, struct move_begin *begin, const struct object *workload,
                enum move_cause cause, const struct move_choice *c)
{
    char name[80];

    begin_fill(begin, workload, cause, c);
    if (c->placement)
        pool_hold_as(b->pool, hold_name(workload->meta->uid, name), workload, c->placement);
}

static void answered(void *arg, const struct result *r, const struct err *err)
{
    struct plan *p = arg;
    struct brain *b = p->brain;
    bool begun = !err && !r->code;

    if (begun)
        FAILPOINT("move.begin.after");
    b->plans->n--;
    for (size_t i = 0; i < p->n; i++) {
        plan_drop(b, p->planned[i].uid);
        index_remove(&b->plans->by_workload, &p->planned[i].by_workload);
    }
    if (!begun && (err || (r->code != E_STALE && r->code != E_PLACE)))
        log_event(LOG_WARN, "move.begin", LOG_FIELDS({"why", log_str(err ? err->text : r->text)}));
    p->done(p->arg, begun);
    mem_free(p);
}

void begin_propose(struct brain *b, struct migrate_cmd *m, void (*done)(void *arg, bool begun),
                   void *arg)
{
    union command c = {.migrate = *m};
    struct plan *p = mem_alloc(sizeof *p + m->n * sizeof p->planned[0]);

    *p = (struct plan){.brain = b, .done = done, .arg = arg, .n = m->n};
    for (uint32_t i = 0; i < m->n; i++) {
        struct planned *w = &p->planned[i];
        str_copy(w->uid, sizeof w->uid, m->begins[i].uid);
        w->by_workload.key = w->uid;
        index_add(&b->plans->by_workload, &w->by_workload);
    }
    c.head.type = CMD_MIGRATE;
    c.migrate.step = MOVE_BEGIN;
    brain_request_id(b, c.head.request_id);
    (void)snprintf(c.head.user, sizeof c.head.user, "hanse:mover");
    b->plans->n++;
    FAILPOINT("move.begin.before");
    brain_propose(b, &c, answered, p);
}
