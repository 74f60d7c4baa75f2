/* What retention may move into the archive now. The rules are few: a finished Workload after its
 * own time, with what it owns; Migrations, Events, and records of a workload that is gone, after a
 * week; of a workload that lives on, all Decisions but the newest; Machines that have ended after a
 * week, and at once those of a Target that is gone, or that has ordered many since.
 *
 * It reads a root in slices, so that a member with a hundred thousand finished workloads never
 * stands still. This file must never list what apply would pass over. */
#include "controlplane/store/store_internal.h"

#include <stdio.h>

#define SPEC_OF(type, c, ...) SPEC_##c,
enum { SCHEMA_workload_spec(SPEC_OF) };
#undef SPEC_OF

static const enum kind_id kinds[] = {KIND_WORKLOAD, KIND_MIGRATION, KIND_DECISION, KIND_EVENT,
                                     KIND_MACHINE};
#define ARCHIVE_DUE_BYTES (2u << 20)
#define ARRAY_AFTER_MS (3600ll * 1000) /* of an index that succeeded, when no ttl is given */
#define KINDS (sizeof kinds / sizeof kinds[0])

struct due {
    const struct root *r;
    int64_t now;
    const struct object *last; /* looked at */
    size_t look, max, n;
    uint64_t bytes; /* of those that were found */
    struct write_op *ret;
};

static int64_t or_created(const struct object *o, int64_t at)
{
    return at ? at : o->meta->creationTimestamp;
}

static bool workload_due(const struct due *d, const struct object *o)
{
    const struct workload *w = object_as(o, workload);
    const struct workload_spec *s = w->spec;
    int64_t index, after = ARCHIVE_AFTER_MS;
    const struct object *of = array_of(d->r, o->meta, &index);
    bool failed = w->status->phase != PHASE_SUCCEEDED;

    if (s->has >> SPEC_ttlSecondsAfterFinished & 1)
        after = s->ttlSecondsAfterFinished * 1000;
    else if (of && !failed)
        after = ARRAY_AFTER_MS;
    /* However many indexes there are, few of those that have ended stay. */
    if (of && index + (failed ? LIMIT_ARRAY_KEPT_FAILED : LIMIT_ARRAY_KEPT) <
                  object_as(of, workload)->status->begun)
        after = 0;
    return phase_final(w->status->phase) && or_created(o, w->status->endedAt) + after <= d->now;
}

/* Of a finished Workload: it goes with it. */
static bool decision_due(const struct due *d, const struct object *o)
{
    const struct decision_spec *s = object_as(o, decision)->spec;
    const struct object *wo = root_get(d->r, KIND_WORKLOAD, o->meta->namespace_, s->workload);

    if (!wo || strcmp(wo->meta->uid, s->workloadUid) != 0)
        return or_created(o, s->at) + ARCHIVE_AFTER_MS <= d->now;
    const struct workload_status *ws = object_as(wo, workload)->status;
    return !phase_final(ws->phase) && s->epoch > 0 &&
           s->epoch <= ws->epoch - ARCHIVE_DECISIONS_KEPT;
}

/* Of a Target that orders again and again few stay, and none of one that is gone. */
static bool machine_due(const struct due *d, const struct object *o)
{
    const struct machine *m = object_as(o, machine);
    const struct object *t = root_get(d->r, KIND_TARGET, "", m->spec->target);
    const struct target_status *s = t ? object_as(t, target)->status : NULL;

    return !t || o->meta->creationTimestamp < t->meta->creationTimestamp ||
           m->spec->number + LIMIT_MACHINES_KEPT <= (s ? s->machinesOrdered : 0) ||
           or_created(o, m->status->endedAt) + ARCHIVE_AFTER_MS <= d->now;
}

static bool is_due(const struct due *d, const struct object *o)
{
    const struct migration_status *m;

    if (!object_finished(d->r, o))
        return false;
    switch (o->kind->id) {
    case KIND_WORKLOAD:
        return workload_due(d, o);
    case KIND_DECISION:
        return decision_due(d, o);
    case KIND_MIGRATION:
        m = object_as(o, migration)->status;
        return or_created(o, m ? m->endedAt : 0) + ARCHIVE_AFTER_MS <= d->now;
    case KIND_MACHINE:
        return machine_due(d, o);
    default:
        return or_created(o, object_as(o, event)->lastTimestamp) + ARCHIVE_AFTER_MS <= d->now;
    }
}

/* Enough for one command: by number, or by the bytes that it would move. */
static bool due_full(const struct due *d)
{
    return d->look == 0 || d->n == d->max || d->bytes >= ARCHIVE_DUE_BYTES;
}

static bool due_each(const struct object *o, void *arg)
{
    struct due *d = arg;

    if (due_full(d))
        return false;
    d->look--;
    d->last = o;
    if (!is_due(d, o))
        return true;
    d->bytes += o->bytes;
    struct write_op *op = &d->ret[d->n++];
    *op = (struct write_op){.verb = WRITE_DELETE, .kind = o->kind->id};
    str_copy(op->ns, sizeof op->ns, o->meta->namespace_);
    str_copy(op->name, sizeof op->name, o->meta->name);
    str_copy(op->uid, sizeof op->uid, o->meta->uid);
    return true;
}

bool root_archive_due(const struct root *r, int64_t now_ms, struct archive_cursor *c, size_t look,
                      struct write_op *ret, size_t max, size_t *ret_n)
{
    struct due d = {.r = r, .now = now_ms, .look = look, .max = max, .ret = ret};

    PRE(look > 0 && max > 0);
    for (; c->kind < KINDS; c->kind++, *c->ns = *c->name = '\0') {
        root_scan(r, kinds[c->kind], NULL, *c->name ? c->ns : NULL, *c->name ? c->name : NULL,
                  due_each, &d);
        if (due_full(&d))
            break;
    }
    *ret_n = d.n;
    if (c->kind < KINDS) {
        const struct meta *m = d.last && d.last->kind->id == kinds[c->kind] ? d.last->meta : NULL;

        str_copy(c->ns, sizeof c->ns, m ? m->namespace_ : "");
        str_copy(c->name, sizeof c->name, m ? m->name : "");
        return false;
    }
    *c = (struct archive_cursor){0};
    return true;
}

/* ---- logs ---- */
bool root_logs_due(const struct root *r, const struct object *o, int64_t now_ms)
{
    const struct due d = {.r = r, .now = now_ms};

    if (o->kind->id != KIND_WORKLOAD || !meta_finalizer(o->meta, LOGS_FINALIZER) ||
        object_live(o) || *object_as(o, workload)->status->migration)
        return false;
    return o->meta->deletionTimestamp || workload_due(&d, o);
}

struct logs_search {
    const struct root *r;
    const struct object *found, *last;
    int64_t now;
    size_t look;
};

static bool logs_each(const struct object *o, void *arg)
{
    struct logs_search *s = arg;

    if (s->look == 0 || s->found)
        return false;
    s->look--;
    s->last = o;
    if (root_logs_due(s->r, o, s->now))
        s->found = o;
    return true;
}

const struct object *root_logs_due_next(const struct root *r, int64_t now_ms,
                                        struct logs_cursor *c, size_t look)
{
    struct logs_search s = {.r = r, .now = now_ms, .look = look};

    root_scan(r, KIND_WORKLOAD, NULL, *c->name ? c->ns : NULL, *c->name ? c->name : NULL,
              logs_each, &s);
    bool more = s.last && (s.found || s.look == 0);
    str_copy(c->ns, sizeof c->ns, more ? s.last->meta->namespace_ : "");
    str_copy(c->name, sizeof c->name, more ? s.last->meta->name : "");
    return s.found;
}
