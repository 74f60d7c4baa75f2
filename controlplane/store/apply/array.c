/* Arrays: an array is a Workload that stands for its indexes and never runs itself. ARRAY begins
 * them in order, a slice at a time, as Workloads of their own (NAME-INDEX, owned by it). Every
 * command that changes an index afterwards updates its array as well (array_follow), so that the
 * array's status is exact, also when indexes move to the archive or a user deletes them.
 *
 * An index must never begin twice: it begins once, when `begun` reaches it, unless it is in a set
 * already. Its uid follows from that of the array, so that an index which a target carries is the
 * same one in a state that went back. */
#include "controlplane/store/store_internal.h"

#include "policy/policy.h"

#include <ctype.h>
#include <stdio.h>

#define INDEX_SEED 0x6172726179u
#define TAKEN "IndexNameTaken"
#define RECOVERING "Recovering"
#define LATE "DeadlineExceeded"
#define TOO_MANY "TooManyFailures"
#define WHICH_MAX 400 /* of the failed ones, in a message */

/* ---- whose it is ---- */
static bool object_array(const struct object *o)
{
    return o && o->kind->id == KIND_WORKLOAD && workload_array(object_as(o, workload));
}

bool array_known(const struct root *r, const struct object *o)
{
    return object_array(o) && root_feature_level(r) >= FEATURE_GRANTS;
}

int64_t array_bound(const struct array_spec *s)
{
    return s->parallelism > 0 && s->parallelism < LIMIT_ARRAY_LIVE_MAX ? s->parallelism
                                                                       : LIMIT_ARRAY_LIVE_MAX;
}

bool array_due(const struct object *o)
{
    const struct workload *w = object_as(o, workload);
    const struct workload_status *s = w->status;

    if (!object_array(o) || !s || phase_final(s->phase) || o->meta->deletionTimestamp)
        return false;
    if (w->spec->suspend != s->held || strcmp(s->reason, RECOVERING) == 0)
        return true;
    return !w->spec->suspend && s->begun < w->spec->array->count &&
           s->active < array_bound(w->spec->array);
}

#define INDEX_UID_MAX 40
static void index_uid(const char *array, int64_t index, char out[INDEX_UID_MAX])
{
    uint64_t h = hash_bytes(hash_u64(INDEX_SEED, (uint64_t)index), array, strlen(array));
    uint64_t l = hash_bytes(hash_u64(h, (uint64_t)index), array, strlen(array));

    (void)snprintf(out, INDEX_UID_MAX, "%08x-%04x-8%03x-a%03x-%012llx", (unsigned)(h >> 32),
                   (unsigned)(h >> 16 & 0xffff), (unsigned)(h & 0xfff), (unsigned)(l >> 52),
                   (unsigned long long)(l & 0xffffffffffffu));
}

const struct object *array_of(const struct root *r, const struct meta *m, int64_t *ret_index)
{
    const char *dash = strrchr(m->name, '-'), *p = dash ? dash + 1 : "";
    char name[256], uid[INDEX_UID_MAX];
    int64_t index = 0;

    if (!isdigit((unsigned char)*p) || (*p == '0' && p[1]) || strlen(p) > 6 ||
        (size_t)(dash - m->name) >= sizeof name)
        return NULL;
    for (; isdigit((unsigned char)*p); p++)
        index = index * 10 + (*p - '0');
    (void)snprintf(name, sizeof name, "%.*s", (int)(dash - m->name), m->name);
    const struct object *o = *p ? NULL : root_get(r, KIND_WORKLOAD, m->namespace_, name);
    if (!object_array(o) || index >= object_as(o, workload)->spec->array->count)
        return NULL;
    index_uid(o->meta->uid, index, uid);
    *ret_index = index;
    return strcmp(uid, m->uid) == 0 ? o : NULL;
}

static const char *index_name(struct txn *t, const struct meta *array, int64_t index)
{
    return arena_printf(t->a, "%s-%lld", array->name, (long long)index);
}

/* ---- what its status says ---- */
static void tell(struct workload_status *s, const char *reason, const char *message)
{
    s->reason = reason;
    s->message = message;
}

static const char *which(struct txn *t, const char *set)
{
    return strlen(set) <= WHICH_MAX ? set : arena_printf(t->a, "%.*s…", WHICH_MAX, set);
}

static void end(struct txn *t, struct workload *w)
{
    struct workload_status *s = w->status;
    long long all = (long long)w->spec->array->count;

    s->phase = s->failed ? PHASE_FAILED : PHASE_SUCCEEDED;
    s->endedAt = s->phaseSince = t->now;
    bool gave_up = strcmp(s->reason, LATE) == 0 || strcmp(s->reason, TOO_MANY) == 0;
    if (!s->failed)
        tell(s, "Completed", arena_printf(t->a, "all %lld indexes succeeded", all));
    else if (!gave_up)
        tell(s, "IndexesFailed",
             arena_printf(t->a, "%lld of %lld indexes failed: %s", (long long)s->failed, all,
                          which(t, s->failedIndexes)));
    txn_condition(t, &s->conditions, &s->n_conditions, "Running", COND_FALSE, phase_text(s->phase),
                  s->reason);
}

/* Status as the sets are now. */
static void settle(struct txn *t, struct workload *w, const struct index_sets *x)
{
    struct workload_status *s = w->status;
    bool changed = s->succeeded != x->completed.count || s->failed != x->failed.count;

    s->active = x->active.count;
    s->succeeded = x->completed.count;
    s->failed = x->failed.count;
    s->activeIndexes = indexes_text(&x->active, t->a);
    if (changed) {
        s->completedIndexes = indexes_text(&x->completed, t->a);
        s->failedIndexes = indexes_text(&x->failed, t->a);
    }
    if (phase_final(s->phase))
        return;
    if (!t->w->recovering && strcmp(s->reason, RECOVERING) == 0)
        tell(s, "", "");
    if (s->phase == PHASE_QUEUED && (s->begun || s->active || changed)) {
        s->phase = PHASE_RUNNING;
        s->phaseSince = s->startedAt = t->now;
        txn_condition(t, &s->conditions, &s->n_conditions, "Running", COND_TRUE, "Running", "");
    }
    if (s->succeeded + s->failed == w->spec->array->count)
        end(t, w);
}

/* ---- its indexes come, end and go ---- */
static bool ended(const struct object *o)
{
    return o && phase_final(object_as(o, workload)->status->phase);
}

void array_follow(struct txn *t, const struct object *before, const struct object *after)
{
    const struct object *o = after ? after : before, *array;
    bool well;
    struct index_sets x;
    int64_t i;

    if (t->beginning || !o || o->kind->id != KIND_WORKLOAD || ended(before) ||
        (before && after && !ended(after)) || !(array = array_of(t->w, o->meta, &i)))
        return;
    struct workload *w = object_edit_as(array, workload, t->a);
    if (!index_sets_read(w->status, t->a, &x))
        return; /* root_object_sound lets none in */
    indexes_remove(&x.active, i, t->a);
    if (indexes_end(&x.completed, i) < 0 && indexes_end(&x.failed, i) < 0) {
        well = after && object_as(after, workload)->status->phase == PHASE_SUCCEEDED;
        indexes_add(!ended(after) && after ? &x.active
                    : well                 ? &x.completed
                                           : &x.failed,
                    i, i, t->a);
    }
    settle(t, w, &x);
    (void)txn_put(t, array->kind, array, w);
}

bool array_ended(struct txn *t, const struct meta *m)
{
    struct index_sets x;
    int64_t i;
    const struct object *array = array_of(t->w, m, &i);

    return array && index_sets_read(object_as(array, workload)->status, t->a, &x) &&
           (indexes_end(&x.completed, i) >= 0 || indexes_end(&x.failed, i) >= 0);
}

void array_adopt(struct txn *t, struct meta *m)
{
    int64_t i;
    const struct object *array = array_of(t->w, m, &i);

    if (!array)
        return;
    m->ownerReferences = workload_owner(t, array);
    m->n_ownerReferences = 1;
}

/* ---- begun ---- */
static void label_put(struct txn *t, struct meta *m, const char *key, const char *value)
{
    struct kv *all = arena_array(t->a, struct kv, m->n_labels + 1);
    uint32_t n = 0, i = 0;

    for (; i < m->n_labels && strcmp(m->labels[i].key, key) < 0; i++)
        all[n++] = m->labels[i];
    all[n++] = (struct kv){key, value};
    for (; i < m->n_labels; i++)
        if (strcmp(m->labels[i].key, key) != 0)
            all[n++] = m->labels[i];
    m->labels = all;
    m->n_labels = n;
}

static struct run_spec *index_run(struct txn *t, const struct run_spec *of, int64_t index,
                                  int64_t count)
{
    struct run_spec *r = arena_memdup(t->a, of, sizeof *of);
    struct env_var *env = arena_array(t->a, struct env_var, of->n_env + 4);

    if (of->n_env)
        memcpy(env, of->env, of->n_env * sizeof *env);
    env[of->n_env] = (struct env_var){.name = ENV_ARRAY_INDEX,
                                      .value = arena_printf(t->a, "%lld", (long long)index)};
    env[of->n_env + 1] = (struct env_var){.name = ENV_ARRAY_COUNT,
                                          .value = arena_printf(t->a, "%lld", (long long)count)};
    r->env = env;
    r->n_env = of->n_env + 2;
    if (*of->script) { /* an sbatch script finds what it looks for */
        env[r->n_env] = env[of->n_env];
        env[r->n_env++].name = "SLURM_ARRAY_TASK_ID";
        env[r->n_env] = env[of->n_env + 1];
        env[r->n_env++].name = "SLURM_ARRAY_TASK_COUNT";
    }
    return r;
}

struct slice_of { /* of an array */
    const struct object *o;
    struct workload *w; /* our copy */
    struct index_sets x;
    uint32_t left;
};

/* Of an array that was there before the state went back it may have run, in whatever epoch. */
static void index_begin(struct txn *t, const struct slice_of *s, const char *queue, int64_t index,
                        const char *uid)
{
    const struct object *array = s->o;
    const struct workload *of = s->w;
    struct workload *w = arena_memdup(t->a, of, sizeof *of);
    struct meta *m = txn_meta(t, array->meta->namespace_, index_name(t, array->meta, index));

    m->uid = uid;
    m->labels = of->metadata->labels;
    m->n_labels = of->metadata->n_labels;
    label_put(t, m, LABEL_ARRAY, array->meta->name);
    label_put(t, m, LABEL_ARRAY_INDEX, arena_printf(t->a, "%lld", (long long)index));
    m->ownerReferences = workload_owner(t, array);
    m->n_ownerReferences = 1;
    m->revision = of->metadata->revision;
    w->metadata = m;
    w->spec = arena_memdup(t->a, of->spec, sizeof *of->spec);
    w->spec->array = NULL;
    w->spec->run = index_run(t, of->spec->run, index, of->spec->array->count);
    w->status = arena_new(t->a, struct workload_status);
    w->status->phase = PHASE_QUEUED;
    w->status->queuedAt = w->status->phaseSince = t->now;
    w->status->queue = queue;
    w->status->epochFloor = of->status->epochFloor;
    (void)txn_put(t, array->kind, NULL, w);
}

/* Those that have not ended wait, or go on, as it does. */
static void follow_suspend(struct txn *t, struct slice_of *s)
{
    bool suspend = s->w->spec->suspend;

    for (uint32_t n = 0; n < s->x.active.n; n++)
        for (int64_t i = s->x.active.v[n].from; i <= s->x.active.v[n].to; i++) {
            const char *name = index_name(t, s->o->meta, i);
            const struct object *o = root_get(t->w, KIND_WORKLOAD, s->o->meta->namespace_, name);

            if (!o || object_as(o, workload)->spec->suspend == suspend)
                continue;
            if (s->left == 0)
                return;
            s->left--;
            struct workload *w = object_edit_as(o, workload, t->a);
            w->spec->suspend = suspend;
            w->metadata->generation++;
            workload_follow_spec(t, o->kind, o, w);
            (void)txn_put(t, o->kind, o, w);
        }
    s->w->status->held = suspend;
    if (suspend)
        tell(s->w->status, reason_text(REASON_SUSPENDED), reason_sentence(REASON_SUSPENDED));
    else if (strcmp(s->w->status->reason, reason_text(REASON_SUSPENDED)) == 0)
        tell(s->w->status, "", "");
}

static bool in_a_set(const struct index_sets *x, int64_t i)
{
    return indexes_end(&x->active, i) >= 0 || indexes_end(&x->completed, i) >= 0 ||
           indexes_end(&x->failed, i) >= 0;
}

/* None is begun any more: those that were not fail. */
static void give_up(struct txn *t, struct slice_of *s, const char *reason, const char *why)
{
    struct workload_status *st = s->w->status;
    int64_t count = s->w->spec->array->count;

    tell(st, reason,
         arena_printf(t->a, "%s: the indexes from %lld on were not begun, and failed", why,
                      (long long)st->begun));
    for (int64_t from = st->begun, to; from < count; from = to + 1) {
        for (to = from; to < count && !in_a_set(&s->x, to); to++)
            ;
        if (to > from)
            indexes_add(&s->x.failed, from, to - 1, t->a);
    }
    st->begun = count;
}

static void begin(struct txn *t, struct slice_of *s)
{
    struct workload_status *st = s->w->status;
    const struct array_spec *a = s->w->spec->array;
    const char *queue = workload_queue(t, s->o);
    bool taken = strcmp(st->reason, TAKEN) == 0;

    for (; st->begun < a->count && s->x.active.count < array_bound(a) && s->left; st->begun++) {
        if (in_a_set(&s->x, st->begun)) /* found on its target by recovery */
            continue;
        const char *name = index_name(t, s->o->meta, st->begun);
        const struct object *o = root_get(t->w, KIND_WORKLOAD, s->o->meta->namespace_, name);
        char *uid = arena_alloc(t->a, INDEX_UID_MAX);

        index_uid(s->o->meta->uid, st->begun, uid);
        if (o || root_workload_by_uid(t->w, uid)) {
            tell(st, TAKEN,
                 arena_printf(t->a,
                              "workload %s is there already and is not of this array: no index is "
                              "begun before it is gone",
                              name));
            return;
        }
        index_begin(t, s, queue, st->begun, uid);
        indexes_add(&s->x.active, st->begun, st->begun, t->a);
        s->left--;
    }
    if (taken)
        tell(st, "", "");
}

static int array_check(struct txn *t, const struct array_cmd *c, const struct object *o)
{
    if (!o || strcmp(o->meta->uid, c->uid) != 0 || !object_array(o))
        return err_set(t->err, E_STALE, "workload %s/%s is not the array that was meant", c->ns,
                       c->name);
    if (c->objects == 0 || c->objects > ARRAY_MAX_OBJECTS)
        return err_set(t->err, E_INVALID, "a slice of an array has 1 to %u indexes",
                       ARRAY_MAX_OBJECTS);
    const struct workload_status *s = object_as(o, workload)->status;
    if (phase_final(s->phase) || o->meta->deletionTimestamp)
        return err_set(t->err, E_STALE, "array %s/%s has ended, or is being deleted", c->ns,
                       c->name);
    const struct object *ns = root_get(t->w, KIND_NAMESPACE, "", c->ns);
    if (!ns || ns->meta->deletionTimestamp)
        return err_set(t->err, E_FORBIDDEN, "namespace %s is being terminated", c->ns);
    if (workload_unsettled(t->w, o, s))
        return err_set(t->err, E_BUSY,
                       "indexes of array %s/%s may run where this state does not know: recovery "
                       "is not settled",
                       c->ns, c->name);
    return 0;
}

int apply_array(struct txn *t, const struct array_cmd *c)
{
    struct slice_of s = {.o = root_get(t->w, KIND_WORKLOAD, c->ns, c->name), .left = c->objects};
    int r = array_check(t, c, s.o);

    if (r < 0)
        return r;
    s.w = object_edit_as(s.o, workload, t->a);
    if (!index_sets_read(s.w->status, t->a, &s.x))
        return err_set(t->err, E_INVALID, "array %s/%s: its status names no indexes", c->ns,
                       c->name);
    struct object *kept = object_ref(s.o);
    t->beginning = true;
    if (s.w->spec->suspend != s.w->status->held)
        follow_suspend(t, &s);
    if (s.w->spec->deadline && t->now >= s.w->spec->deadline)
        give_up(t, &s, LATE, "its deadline has passed");
    else if (s.x.failed.count >= LIMIT_ARRAY_FAILED_MAX)
        give_up(t, &s, TOO_MANY, "too many indexes failed");
    else if (!s.w->spec->suspend)
        begin(t, &s);
    t->beginning = false;
    settle(t, s.w, &s.x);
    if (body_equal(&schema_workload, s.w, s.o->body))
        t->res->unchanged = s.left == c->objects;
    else
        (void)txn_put(t, s.o->kind, s.o, s.w);
    (void)object_unref(kept);
    return 0;
}
