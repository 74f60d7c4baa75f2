/* Status that is computed when it is shown. It must never write, nor look at anything but the root
 * and the given time. */
#include "controlplane/server/figures.h"

#include "api/schema/quota.h"
#include "controlplane/store/ledger/ledger.h"
#include "policy/policy.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

#define CLASSES_MAX 64
#define DEPTH_MAX 64

/* ---- the tree of queues ---- */
struct class_sum {
    const char *class_;
    int64_t milli;
};
struct queue_sum { /* of a queue and all below it */
    const char *name, *parent;
    int64_t waits, holds;
    double had; /* GPU-hours, decayed */
    struct class_sum *classes;
    uint32_t n_classes;
};
struct figures {
    uint64_t number, digest; /* of the root that they are made of */
    int64_t minute;          /* and when: what is held goes on being used */
    struct arena *mem;
    struct queue_sum *queues; /* by name: as they lie in the state */
    uint32_t n, cap;
};

struct figures *figures_destroy(struct figures *f)
{
    if (!f)
        return NULL;
    f->mem = arena_destroy(f->mem);
    mem_free(f);
    return NULL;
}

static bool queue_add(const struct object *o, void *arg)
{
    struct figures *f = arg;
    const struct queue_spec *s = object_as(o, queue)->spec;

    if (f->n == f->cap)
        return false;
    f->queues[f->n++] = (struct queue_sum){.name = arena_strdup(f->mem, o->meta->name),
                                           .parent = arena_strdup(f->mem, s ? s->parent : "")};
    return true;
}

static int by_name(const void *name, const void *queue)
{
    return strcmp(name, ((const struct queue_sum *)queue)->name);
}

static struct queue_sum *queue_find(const struct figures *f, const char *name)
{
    return f->n && *name ? bsearch(name, f->queues, f->n, sizeof *f->queues, by_name) : NULL;
}

static void class_add(struct figures *f, struct queue_sum *q, const char *class_, int64_t milli)
{
    uint32_t i = 0;

    while (i < q->n_classes && strcmp(q->classes[i].class_, class_) != 0)
        i++;
    if (i == CLASSES_MAX || !*class_)
        return;
    if (!q->classes)
        q->classes = arena_array(f->mem, struct class_sum, CLASSES_MAX);
    if (i == q->n_classes)
        q->classes[q->n_classes++] = (struct class_sum){arena_strdup(f->mem, class_), 0};
    q->classes[i].milli += milli;
}

struct adding {
    struct figures *f;
    struct queue_sum *from;
};

/* To the queue itself and to those above it. A parent that is missing ends the way, and DEPTH_MAX a
 * circle, which no write may make. */
static void class_up(const char *class_, int64_t milli, void *arg)
{
    struct adding *a = arg;
    unsigned depth = 0;

    for (struct queue_sum *q = a->from; q && depth < DEPTH_MAX; depth++) {
        class_add(a->f, q, class_, milli);
        q = queue_find(a->f, q->parent);
    }
}

static void use_up(const char *queue, double gpu_hours, void *arg)
{
    struct figures *f = arg;
    unsigned depth = 0;

    for (struct queue_sum *q = queue_find(f, queue); q && depth < DEPTH_MAX; depth++) {
        q->had += gpu_hours;
        q = queue_find(f, q->parent);
    }
}

static int by_class(const void *a, const void *b)
{
    return strcmp(((const struct class_sum *)a)->class_, ((const struct class_sum *)b)->class_);
}

static struct figures *figures_make(const struct root *r, int64_t minute)
{
    struct figures *f = mem_new(struct figures);
    uint64_t n = root_count(r, KIND_QUEUE);

    f->number = root_number(r);
    f->digest = root_digest(r);
    f->minute = minute;
    f->mem = arena_create((1u << 20) + (size_t)n * (2048 + CLASSES_MAX * sizeof(struct class_sum)));
    f->cap = (uint32_t)n;
    f->queues = arena_array(f->mem, struct queue_sum, f->cap + 1);
    root_scan(r, KIND_QUEUE, NULL, NULL, NULL, queue_add, f);
    for (uint32_t i = 0; i < f->n; i++) {
        struct queue_load own = root_queue_load(r, f->queues[i].name);
        struct adding a = {f, &f->queues[i]};
        unsigned depth = 0;
        for (struct queue_sum *q = a.from; q && depth < DEPTH_MAX; depth++) {
            q->waits += own.waits;
            q->holds += own.holds;
            q = queue_find(f, q->parent);
        }
        root_scan_queue_held(r, f->queues[i].name, class_up, &a);
    }
    ledger_use(r, minute * 60000, use_up, f);
    for (uint32_t i = 0; i < f->n; i++)
        if (f->queues[i].n_classes)
            qsort(f->queues[i].classes, f->queues[i].n_classes, sizeof *f->queues[i].classes,
                  by_class);
    return f;
}

/* ---- objects as they are shown ---- */
static void mark(const struct schema *s, void *body, const char *json)
{
    for (unsigned i = 0; i < s->n; i++)
        if (!strcmp(s->fields[i].json, json))
            *(uint64_t *)body |= (uint64_t)1 << s->fields[i].bit; /* a 0 is told, too */
}

static int64_t gpus_up(int64_t milli)
{
    return (milli + 999) / 1000;
}

static void *queue_shown(struct figures **f, const struct root *r, int64_t minute,
                         const struct object *o, struct arena *a)
{
    struct queue *q = object_edit_as(o, queue, a);
    struct figures *now = *f;

    if (!now || now->number != root_number(r) || now->digest != root_digest(r) ||
        now->minute != minute) {
        (void)figures_destroy(now);
        *f = now = figures_make(r, minute);
    }
    const struct queue_sum *sum = queue_find(now, o->meta->name);
    if (!q->status)
        q->status = arena_new(a, struct queue_status);
    q->status->pending = sum ? sum->waits : 0;
    q->status->running = sum ? sum->holds : 0;
    mark(&schema_queue_status, q->status, "pending");
    mark(&schema_queue_status, q->status, "running");
    q->status->decayedGpuHours = sum ? sum->had : 0;
    mark(&schema_queue_status, q->status, "decayedGpuHours");
    q->status->n_gpus = sum ? sum->n_classes : 0;
    q->status->gpus = arena_array(a, struct class_count, q->status->n_gpus + 1);
    for (uint32_t i = 0; i < q->status->n_gpus; i++)
        q->status->gpus[i] = (struct class_count){.class_ = sum->classes[i].class_,
                                                  .allocated = gpus_up(sum->classes[i].milli)};
    return q;
}

/* ---- machines of a Target ---- */
struct machine_sums {
    const char *target;
    struct machine_count *v;
    uint32_t n;
};

static bool machine_add(const struct object *o, void *arg)
{
    const struct machine *m = object_as(o, machine);
    struct machine_sums *s = arg;
    struct machine_count *c = NULL;

    for (uint32_t i = 0; i < s->n && !strcmp(m->spec->target, s->target); i++)
        if (!strcmp(s->v[i].pool, m->spec->pool))
            c = &s->v[i];
    if (!c || !machine_open(o))
        return true;
    c->ordered += m->status->phase == MACHINE_IS_ORDERED;
    c->booting +=
        m->status->phase == MACHINE_IS_ASKED || m->status->phase == MACHINE_IS_BOOTING;
    c->joined += m->status->phase == MACHINE_IS_JOINED;
    c->noticed += m->status->phase == MACHINE_IS_NOTICED;
    c->releasing += machine_closing(o);
    if (m->status->billedFrom > 0 && m->status->price > 0) {
        bool other = c->costPerHour > 0 && strcmp(c->currency, m->status->currency) != 0;
        c->costPerHour += m->status->price;
        c->currency = other ? "" : m->status->currency;
    }
    return true;
}

static void machines_shown(const struct root *r, const struct object *o, struct target_status *s)
{
    struct machine_sums sums = {o->meta->name, s->machines, s->n_machines};

    if (s->n_machines)
        root_scan(r, KIND_MACHINE, NULL, NULL, NULL, machine_add, &sums);
}

/* Pools that wait because machines of theirs ended early. */
static void pools_shown(const struct root *r, const struct object *o, int64_t now_ms,
                        struct target *t, struct arena *a)
{
    uint32_t pools = t->spec->n_machines;

    if (!pools || !root_count(r, KIND_MACHINE))
        return;
    if (!t->status)
        t->status = arena_new(a, struct target_status);
    struct target_pause *v = arena_array(a, struct target_pause, t->status->n_pauses + pools);
    if (t->status->n_pauses)
        memcpy(v, t->status->pauses, t->status->n_pauses * sizeof *v);
    t->status->pauses = v;
    for (uint32_t i = 0; i < pools; i++) {
        const struct machine_pool *p = &t->spec->machines[i];
        struct machine_early e;
        char text[400];
        machine_early(r, o, p, now_ms, &e);
        if (!e.rounds || e.until <= now_ms)
            continue;
        machine_early_print(p, &e, text, sizeof text);
        v[t->status->n_pauses++] = (struct target_pause){.scope = BLAMES_POOL,
                                                         .name = p->name,
                                                         .message = arena_strdup(a, text),
                                                         .since = e.since,
                                                         .until = e.until};
    }
}

static void *target_shown(const struct root *r, int64_t now_ms, const struct object *o,
                          struct arena *a)
{
    struct target *t = object_edit_as(o, target, a);

    for (uint32_t i = 0; t->status && i < t->status->n_gpus; i++) {
        struct class_count *c = &t->status->gpus[i];
        c->allocated = gpus_up(root_target_held(r, o->meta->name, c->class_));
        mark(&schema_class_count, c, "allocated");
    }
    if (t->status)
        machines_shown(r, o, t->status);
    pools_shown(r, o, now_ms, t, a);
    return t;
}

static void *node_shown(const struct root *r, const struct object *o, struct arena *a)
{
    struct node *n = object_edit_as(o, node, a);
    struct node_usage u = {0};

    (void)root_usage(r, o->meta->name, &u);
    if (!n->status)
        n->status = arena_new(a, struct node_status);
    n->status->gpuMilliAllocated = u.gpu_milli;
    n->status->cpuAllocated = u.cpu_milli;
    n->status->memoryAllocated = u.memory_bytes;
    mark(&schema_node_status, n->status, "gpuMilliAllocated");
    mark(&schema_node_status, n->status, "cpuAllocated");
    mark(&schema_node_status, n->status, "memoryAllocated");
    if (!n->status->others)
        return n;
    n->status->othersGpus = node_others_of(n, (struct slice_kind){"", false});
    mark(&schema_node_status, n->status, "othersGpus");
    return n;
}

static struct kv *map_without(const struct kv *v, uint32_t *n, const char *key, struct arena *a)
{
    struct kv *out = arena_array(a, struct kv, *n + 1);
    uint32_t kept = 0;

    for (uint32_t i = 0; i < *n; i++)
        if (strcmp(v[i].key, key) != 0)
            out[kept++] = v[i];
    *n = kept;
    return out;
}

static struct kv *map_with(const struct kv *v, uint32_t *n, const char *key, int64_t value,
                           struct arena *a)
{
    uint32_t rest = *n, at = 0;
    struct kv *out = map_without(v, &rest, key, a); /* with room for one more */

    while (at < rest && strcmp(out[at].key, key) < 0)
        at++;
    memmove(&out[at + 1], &out[at], (rest - at) * sizeof *out);
    out[at] = (struct kv){key, arena_printf(a, "%lld", (long long)value)};
    *n = rest + 1;
    return out;
}

/* A rate is no amount of which some is used, and clients show what has no figure as 0: in its place
 * stands its burst, with what is used up of it as the bucket stands now. NULL: it has none. */
static void *quota_shown(const struct root *r, int64_t now_ms, const struct object *o,
                         struct arena *a)
{
    struct resource_quota *q = object_edit_as(o, resource_quota, a);
    struct resource_quota_status *s = q->status;
    int64_t used, burst;

    if (!s || !root_rate_used(r, o, now_ms, &used, &burst))
        return NULL;
    s->hard = map_without(s->hard, &s->n_hard, QUOTA_RATE, a);
    s->hard = map_with(s->hard, &s->n_hard, QUOTA_BURST, burst, a);
    s->used = map_with(s->used, &s->n_used, QUOTA_BURST, used, a);
    return q;
}

/* "35s", "12m", "3h", "5d": as ages are printed. */
static const char *span(struct arena *a, int64_t ms)
{
    int64_t s = ms > 0 ? ms / 1000 : 0;

    return s < 120       ? arena_printf(a, "%llds", (long long)s)
           : s < 7200    ? arena_printf(a, "%lldm", (long long)(s / 60))
           : s < 172800 ? arena_printf(a, "%lldh", (long long)(s / 3600))
                         : arena_printf(a, "%lldd", (long long)(s / 86400));
}

/* Of what runs on GPUs: what is not measured says so, and never 0%. */
static bool workload_measures(const struct object *o)
{
    const struct workload_status *s =
        o->kind->id == KIND_WORKLOAD ? object_as(o, workload)->status : NULL;

    return s && s->phase == PHASE_RUNNING && s->placement && s->placement->gpus > 0;
}

static void *workload_shown(int64_t now_ms, const struct object *o, struct arena *a)
{
    struct workload *w = object_edit_as(o, workload, a);
    const struct gpu_use *u = w->status->gpuUse;
    int64_t held = w->status->placement->gpus;
    const char *text;

    if (!u) {
        w->status->gpuUtilisation = "not measured";
        return w;
    }
    if (u->idle && u->idle == u->measured)
        text = arena_printf(a, "0%% for %s", span(a, now_ms - u->idleSince));
    else if (u->idle)
        text = arena_printf(a, "%lld%%, %g of %g idle", (long long)u->percent,
                            (double)u->idle / 1000, (double)u->measured / 1000);
    else
        text = arena_printf(a, "%lld%%", (long long)u->percent);
    if (u->measured < held)
        text = arena_printf(a, "%s, %g not measured", text, (double)(held - u->measured) / 1000);
    w->status->gpuUtilisation = text;
    return w;
}

/* Told where the kind has conditions: what its author wrote and nobody acts upon. */
static void unenforced(const struct object *o, const char *why, struct condition **list,
                       uint32_t *n, struct arena *a)
{
    struct condition *all = arena_array(a, struct condition, *n + 1);

    if (*n)
        memcpy(all, *list, *n * sizeof *all);
    all[*n] = (struct condition){.type = "Enforced",
                                 .status = COND_FALSE,
                                 .reason = "NotEnforced",
                                 .message = arena_strdup(a, why),
                                 .lastTransitionTime = o->meta->creationTimestamp};
    *list = all;
    ++*n;
}

#define UNENFORCED_IN(name_, type_)                                                                \
    case KIND_##name_: {                                                                           \
        struct type_ *x = body;                                                                    \
        if (!x->status)                                                                            \
            x->status = arena_new(a, struct type_##_status);                                       \
        unenforced(o, why, &x->status->conditions, &x->status->n_conditions, a);                   \
        return;                                                                                    \
    }
static void unenforced_shown(const struct object *o, const char *why, void *body, struct arena *a)
{
    switch (o->kind->id) {
        UNENFORCED_IN(TARGET, target)
        UNENFORCED_IN(QUEUE, queue)
        UNENFORCED_IN(BUDGET, budget)
        UNENFORCED_IN(GIT_SOURCE, git_source)
        UNENFORCED_IN(WORKLOAD, workload)
        UNENFORCED_IN(RESERVATION, reservation)
    default:
        return;
    }
}

struct object *figures_shown(struct figures **f, const struct root *r, int64_t now_ms,
                             const struct object *o)
{
    AUTO_ARENA a = NULL;
    char why[UNKEPT_MAX];
    void *body;
    bool unkept = promises_unkept(o, why, sizeof why);

    if (!unkept && o->kind->id != KIND_QUEUE && o->kind->id != KIND_TARGET &&
        o->kind->id != KIND_NODE && o->kind->id != KIND_RESOURCE_QUOTA && !workload_measures(o))
        return NULL;
    a = arena_create(0);
    body = o->kind->id == KIND_QUEUE            ? queue_shown(f, r, now_ms / 60000, o, a)
           : o->kind->id == KIND_TARGET         ? target_shown(r, now_ms, o, a)
           : o->kind->id == KIND_NODE           ? node_shown(r, o, a)
           : o->kind->id == KIND_RESOURCE_QUOTA ? quota_shown(r, now_ms, o, a)
           : workload_measures(o)               ? workload_shown(now_ms, o, a)
                                                : object_edit(o, a);
    if (!body)
        return NULL;
    if (unkept)
        unenforced_shown(o, why, body, a);
    struct object *shown = NULL; /* too large with its figures: it is shown without */
    (void)!object_make_within(o->kind, body, OBJECT_MADE_MAX_BYTES, &shown, NULL);
    return shown;
}

/* ---- for `hanse status` ---- */
struct printing {
    const struct root *r;
    cJSON *targets, *queues;
};

static bool node_figures(const struct object *o, void *arg)
{
    struct printing *f = arg;
    const struct node *n = object_as(o, node);
    struct node_usage u;
    int64_t milli = 0, held = root_usage(f->r, o->meta->name, &u) ? u.gpu_milli : 0;
    bool ready = !n->status || !n->status->health || n->status->health == HEALTH_READY;

    for (uint32_t i = 0; ready && i < n->spec->n_gpus; i++)
        milli += n->spec->gpus[i].health == 0 || n->spec->gpus[i].health == HEALTH_READY ? 1000 : 0;
    for (uint32_t i = 0; ready && i < n->spec->n_counted; i++)
        milli += counted_milli(&n->spec->counted[i], counted_healthy(&n->spec->counted[i]));
    cJSON *t = cJSON_GetObjectItemCaseSensitive(f->targets, n->spec->target);
    if (!t) {
        t = cJSON_AddObjectToObject(f->targets, n->spec->target);
        (void)cJSON_AddNumberToObject(t, "gpus", 0);
        (void)cJSON_AddNumberToObject(t, "held", 0);
    }
    cJSON *all = cJSON_GetObjectItemCaseSensitive(t, "gpus"),
          *some = cJSON_GetObjectItemCaseSensitive(t, "held");
    (void)cJSON_SetNumberHelper(all, all->valuedouble + (double)milli);
    (void)cJSON_SetNumberHelper(some, some->valuedouble + (double)held);
    return true;
}

static bool queue_figures(const struct object *o, void *arg)
{
    struct printing *f = arg;
    cJSON *q = cJSON_AddObjectToObject(f->queues, o->meta->name);

    (void)cJSON_AddNumberToObject(q, "held", (double)root_queue_held(f->r, o->meta->name, NULL));
    return true;
}

void figures_print(const struct root *r, cJSON *pool)
{
    struct printing f = {.r = r,
                         .targets = cJSON_AddObjectToObject(pool, "targets"),
                         .queues = cJSON_AddObjectToObject(pool, "queues")};

    root_scan(r, KIND_NODE, NULL, NULL, NULL, node_figures, &f);
    root_scan(r, KIND_QUEUE, NULL, NULL, NULL, queue_figures, &f);
}
