/* Logs leave their store with their Workload (unkeep.h). The state says which: a Workload whose
 * logs go to a store carries the finalizer LOGS_FINALIZER from its order on, so it stays, deleted
 * or over, until nothing of it is left there. Only then is the finalizer taken away, in the log.
 * Whoever leads goes on where another one left off: to remove what is gone already is no error.
 *
 * One Workload at a time, on one thread of the pool; a store that is away holds up no other one's.
 * This file must never remove anything but a folder that bears this cluster's and that Workload's
 * uid. */
#include "controlplane/leader/keep/unkeep.h"

#include "connectors/kept/kept.h"
#include "controlplane/leader/keep/events.h"
#include "controlplane/leader/logs/logs.h"

#include "api/base/log.h"

#include <stdio.h>
#include <string.h>

#define LOOK_EVERY_MS (5ul * 1000)
#define FIRST_MS 1000
#define MORE_MS 20
#define LOOK_OBJECTS 10000
#define STORES_MAX 16
#define BAD_MS 60000

struct unkeep_job {
    struct brain *brain; /* NULL: it does not lead any more */
    struct arena *a;
    char ns[64], name[256], uid[64];
    struct place {
        const char *store, *base;
        const char *const *env;
    } places[STORES_MAX];
    size_t n, at; /* the place that is looked at */
    struct checkpoint_progress progress;
    int rc;
    struct err err;
};

/* ---- on a thread ---- */
static void job_work(void *arg)
{
    struct unkeep_job *j = arg;

    for (; j->at < j->n && j->rc == 0; j->at += j->rc == 0)
        j->rc = kept_remove(j->places[j->at].store, j->places[j->at].base, j->places[j->at].env,
                            &j->progress, &j->err);
}

/* ---- which ---- */
static int place_add(struct unkeep_job *j, struct brain *b, const struct target_logs *logs)
{
    char base[KEPT_PATH_MAX];
    size_t n = 0;

    if (!logs)
        return 0;
    for (n = strlen(logs->store); n > 1 && logs->store[n - 1] == '/'; n--) {
    }
    const char *store = arena_printf(j->a, "%.*s", (int)n, logs->store);
    for (size_t i = 0; i < j->n; i++)
        if (strcmp(j->places[i].store, store) == 0)
            return 0;
    if (j->n == STORES_MAX)
        return err_set(&j->err, E_LIMIT, "its logs are in more than %d stores", STORES_MAX);
    int rc = kept_base(store, root_cluster_uid(b->root), j->ns, j->name, j->uid, base, &j->err);
    struct place *p = &j->places[j->n];
    if (rc == 0)
        rc = logs_env(b, logs, j->a, &p->env, &j->err);
    p->store = store;
    p->base = arena_strdup(j->a, base);
    j->n++;
    return rc;
}

static int places_find(struct unkeep_job *j, struct brain *b, const struct object *o)
{
    const struct workload_status *s = object_as(o, workload)->status;
    int rc = s->intent ? place_add(j, b, s->intent->logs) : 0;

    for (uint32_t i = 0; i < s->n_ends && rc == 0; i++)
        rc = place_add(j, b, s->ends[i].logs);
    return rc;
}

/* ---- its life ---- */
static void job_free(struct unkeep_job *j)
{
    for (size_t i = 0; i < j->n; i++)
        logs_env_wipe(j->places[i].env);
    (void)arena_destroy(j->a);
    mem_free(j);
}

static void let_go(void *arg, const struct result *r, const struct err *err)
{
    struct brain *b = arg;

    brain_later(b, &b->unkeep->look, err || r->code ? LOOK_EVERY_MS : MORE_MS);
}

static void finalizer_take(struct brain *b, const struct object *o)
{
    AUTO_ARENA a = arena_create(0);
    struct workload *w = object_edit_as(o, workload, a);
    struct meta *m = w->metadata;
    const char **left = arena_array(a, const char *, m->n_finalizers + 1);
    struct write_op op = {.verb = WRITE_UPDATE,
                          .kind = KIND_WORKLOAD,
                          .rv = (uint64_t)o->meta->resourceVersion};
    union command c = {
        .write = {.head = {.type = CMD_WRITE, .user = LOGS_USER}, .ops = &op, .n = 1}};
    uint32_t n = 0;

    for (uint32_t i = 0; i < m->n_finalizers; i++)
        if (strcmp(m->finalizers[i], LOGS_FINALIZER) != 0)
            left[n++] = m->finalizers[i];
    m->finalizers = left;
    m->n_finalizers = n;
    str_copy(op.ns, sizeof op.ns, o->meta->namespace_);
    str_copy(op.name, sizeof op.name, o->meta->name);
    str_copy(op.uid, sizeof op.uid, o->meta->uid);
    op.object = object_make(o->kind, w);
    brain_request_id(b, c.head.request_id);
    brain_propose(b, &c, let_go, b);
    (void)object_unref(op.object);
}

static bool is_bad(const struct brain *b, const struct unkeep_job *j)
{
    for (size_t i = 0; i < j->n; i++)
        for (size_t k = 0; k < UNKEEP_BAD; k++)
            if (b->unkeep->bad[k].until_ms > loop_now_ms(b->loop) &&
                !strcmp(b->unkeep->bad[k].store, j->places[i].store))
                return true;
    return false;
}

/* It stays as long as they do: whoever deleted it, or wonders why it is there, reads for what it
 * waits and how to give up. */
static void tell_people(struct brain *b, const struct unkeep_job *j)
{
    const struct object *o = root_get(b->root, KIND_WORKLOAD, j->ns, j->name);
    char text[400];

    if (!o || strcmp(o->meta->uid, j->uid) != 0)
        return;
    (void)snprintf(text, sizeof text,
                   "it stays until its logs are removed: %.220s; who gives up on them takes the "
                   "finalizer " LOGS_FINALIZER " away, and they are left there",
                   j->err.text);
    events_sometimes(b, o, "LogsLeft", text);
}

static void failed(struct brain *b, const struct unkeep_job *j)
{
    if (j->at < j->n && j->brain) {
        struct unkeep_bad *x = &b->unkeep->bad[b->unkeep->next_bad++ % UNKEEP_BAD];
        str_copy(x->store, sizeof x->store, j->places[j->at].store);
        x->until_ms = loop_now_ms(b->loop) + BAD_MS;
    }
    log_event(b->unkeep->told ? LOG_DEBUG : LOG_WARN, "logs.not_removed",
              LOG_FIELDS({"workload", log_str(j->name)}, {"namespace", log_str(j->ns)},
                         {"uid", log_str(j->uid)}, {"why", log_str(j->err.text)}));
    b->unkeep->told = true;
    tell_people(b, j);
    brain_later(b, &b->unkeep->look, LOOK_EVERY_MS);
}

static void job_done(void *arg)
{
    struct unkeep_job *j = arg;
    struct brain *b = j->brain;

    if (b) {
        const struct object *o = root_get(b->root, KIND_WORKLOAD, j->ns, j->name);
        b->unkeep->job = NULL;
        if (j->rc < 0)
            failed(b, j);
        else if (o && !strcmp(o->meta->uid, j->uid) &&
                 root_logs_due(b->root, o, core_time_ms(b->cfg.core)))
            finalizer_take(b, o);
        else
            brain_later(b, &b->unkeep->look, MORE_MS);
        b->unkeep->told = j->rc < 0; /* a store that stays away is told once */
    }
    job_free(j);
}

static void look(void *arg)
{
    struct brain *b = arg;
    const struct object *o =
        root_logs_due_next(b->root, core_time_ms(b->cfg.core), &b->unkeep->at, LOOK_OBJECTS);

    if (!o || !*root_cluster_uid(b->root)) {
        timer_start(&b->unkeep->look, *b->unkeep->at.name ? MORE_MS : LOOK_EVERY_MS);
        return;
    }
    struct unkeep_job *j = mem_new(struct unkeep_job);
    j->a = arena_create(0);
    str_copy(j->ns, sizeof j->ns, o->meta->namespace_);
    str_copy(j->name, sizeof j->name, o->meta->name);
    str_copy(j->uid, sizeof j->uid, o->meta->uid);
    if (places_find(j, b, o) < 0) {
        failed(b, j);
        job_free(j);
        return;
    }
    if (is_bad(b, j)) {
        job_free(j);
        timer_start(&b->unkeep->look, MORE_MS);
        return;
    }
    j->brain = b;
    b->unkeep->job = j;
    loop_work(b->loop, job_work, job_done, j);
}

void unkeep_reset(struct brain *b)
{
    b->unkeep->at = (struct logs_cursor){0};
    b->unkeep->told = false;
    memset(b->unkeep->bad, 0, sizeof b->unkeep->bad);
    timer_init(&b->unkeep->look, b->loop, look, b);
    timer_start(&b->unkeep->look, FIRST_MS);
}

void unkeep_drop(struct brain *b)
{
    if (b->unkeep->look.loop)
        timer_stop(&b->unkeep->look);
    if (!b->unkeep->job)
        return;
    atomic_store(&b->unkeep->job->progress.cancel, true);
    b->unkeep->job->brain = NULL;
    b->unkeep->job = NULL;
}
