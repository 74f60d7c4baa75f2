/* Migrations that the brain itself begins: a MIGRATE BEGIN on its way into the log. The pool holds
 * their destinations from now on, and other causes leave their workloads alone, until the root has
 * them. */

#include "controlplane/leader/move/begin.h"

#include "api/base/failpoint.h"
#include "api/base/log.h"
#include "controlplane/leader/drive/driver.h"

#include <stdio.h>
#include <string.h>

struct plan {
    struct brain *brain;
    void (*done)(void *arg, bool begun);
    void *arg;
    size_t n;
    char uids[][64];
};

unsigned begin_count(const struct brain *b)
{
    return b->plans->n;
}

static const char *hold_name(const char *uid, char out[80])
{
    (void)snprintf(out, 80, "begin:%s", uid);
    return out;
}

void begin_hold(struct brain *b, const struct object *workload, const struct placement *p)
{
    char name[80];

    pool_hold_as(b->pool, hold_name(workload->meta->uid, name), workload, p);
}

/* Its Migration holds it now, or nobody will. */
void begin_drop(struct brain *b, const char *uid)
{
    char name[80];

    if (b->pool)
        pool_drop(b->pool, hold_name(uid, name));
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

static void answered(void *arg, const struct result *r, const struct err *err)
{
    struct plan *p = arg;
    struct brain *b = p->brain;
    bool begun = !err && !r->code;

    if (begun)
        FAILPOINT("move.begin.after");
    b->plans->n--;
    for (size_t i = 0; i < p->n; i++) {
        struct driver *d = driver_find(b, p->uids[i]);
        begin_drop(b, p->uids[i]);
        if (d)
            d->begun = false;
    }
    if (!begun && (err || (r->code != E_STALE && r->code != E_PLACE)))
        log_event(LOG_WARN, "move.begin", LOG_FIELDS({"why", log_str(err ? err->text : r->text)}));
    p->done(p->arg, begun);
    mem_free(p);
}

bool begin_possible(const struct brain *b, const struct object *workload)
{
    const struct driver *d = driver_find((struct brain *)(uintptr_t)b, workload->meta->uid);
    const struct workload *w = object_as(workload, workload);

    return d && !d->dead && !d->begun && !*w->status->migration && !w->spec->suspend &&
           !workload->meta->deletionTimestamp;
}

void begin_propose(struct brain *b, struct migrate_cmd *m, void (*done)(void *arg, bool begun),
                   void *arg)
{
    union command c = {.migrate = *m};
    struct plan *p = mem_alloc(sizeof *p + m->n * sizeof p->uids[0]);

    *p = (struct plan){.brain = b, .done = done, .arg = arg, .n = m->n};
    for (uint32_t i = 0; i < m->n; i++) {
        struct driver *d = driver_find(b, m->begins[i].uid);
        str_copy(p->uids[i], sizeof p->uids[i], m->begins[i].uid);
        if (d)
            d->begun = true;
    }
    c.head.type = CMD_MIGRATE;
    c.migrate.step = MOVE_BEGIN;
    brain_request_id(b, c.head.request_id);
    (void)snprintf(c.head.user, sizeof c.head.user, "hanse:mover");
    b->plans->n++;
    FAILPOINT("move.begin.before");
    brain_propose(b, &c, answered, p);
}
