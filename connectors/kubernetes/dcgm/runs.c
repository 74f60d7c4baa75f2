/* How busy the devices of runs are: what the exporters of nodes tell of pods, gathered by run. Must
 * never take a word about a pod from another node than its own, nor call idle what was not
 * measured. */
#include "connectors/kubernetes/dcgm/dcgm_internal.h"
#include "connectors/kubernetes/marks/marks.h"

#include "api/base/list.h"

#include <search.h>
#include <string.h>

#define TELL_EVERY_MS 20000
#define GATHER_MS 120000 /* for so long those are waited for that nothing was told of yet */

struct kube_used { /* of the devices of a pod */
    uint64_t read_ms;
    size_t n;
    struct used_device {
        uint64_t id;
        uint64_t rests_ms; /* since when it has done nothing; 0: it did something */
        unsigned percent;
        int64_t bytes;
    } v[];
};

struct used_pod {
    struct list link;
    char *name;
    struct kube_used *used;
};
struct used_run {
    struct list link; /* kube_uses.all: of which was told longest ago is first */
    struct run_key key;
    uint64_t first_ms, last_ms, told_ms; /* told_ms: to the leader; 0: not yet */
    struct list pods;
};
struct kube_uses {
    struct connector *base;
    const struct kube_runs *runs;
    void *by_key; /* tsearch */
    struct list all;
};

/* ---- what is kept ---- */
static int by_key(const void *a, const void *b)
{
    return run_key_compare(&((const struct used_run *)a)->key, &((const struct used_run *)b)->key);
}

static void run_free(struct kube_uses *u, struct used_run *x)
{
    while (!list_empty(&x->pods)) {
        struct used_pod *p = container_of(list_pop(&x->pods), struct used_pod, link);
        mem_free(p->used);
        mem_free(p->name);
        mem_free(p);
    }
    list_remove(&x->link);
    (void)tdelete(x, &u->by_key, by_key);
    mem_free(x);
}

/* Of what nothing is told any more nothing is kept. */
static void forget(struct kube_uses *u, uint64_t now)
{
    while (!list_empty(&u->all)) {
        struct used_run *x = container_of(u->all.next, struct used_run, link);
        if (now - x->last_ms < RUN_USE_FRESH_MS)
            return;
        run_free(u, x);
    }
}

static struct used_run *run_of(struct kube_uses *u, const struct run_key *k, uint64_t now)
{
    const struct used_run wanted = {.key = *k};
    struct used_run **found = tfind(&wanted, &u->by_key, by_key), *x = found ? *found : NULL;

    if (!x) {
        x = mem_new(struct used_run);
        x->key = *k;
        x->first_ms = now;
        list_init(&x->pods);
        list_init(&x->link);
        INV(tsearch(x, &u->by_key, by_key));
    }
    x->last_ms = now;
    list_remove(&x->link);
    list_push(&u->all, &x->link);
    return x;
}

static struct used_pod *pod_of(struct used_run *x, const char *name)
{
    list_for_each (it, &x->pods) {
        struct used_pod *p = container_of(it, struct used_pod, link);
        if (strcmp(p->name, name) == 0)
            return p;
    }
    struct used_pod *p = mem_new(struct used_pod);
    p->name = mem_strdup(name);
    list_push(&x->pods, &p->link);
    return p;
}

/* ---- whose pod ---- */
/* Pods of a Job are named JOB-INDEX-LETTERS. */
static bool key_of(const char *pod, struct run_key *ret)
{
    char job[256];

    str_copy(job, sizeof job, pod);
    for (int i = 0; i < 2; i++) {
        char *dash = strrchr(job, '-');
        if (!dash)
            return false;
        *dash = '\0';
    }
    return kube_run_named(job, ret);
}

/* It runs there; ret_n: so many of that run do. */
static bool runs_there(const struct kube_uses *u, const struct kube_pod_use *p,
                       const struct run_key *k, size_t *ret_n)
{
    AUTO_ARENA a = arena_create(0);
    struct kube_run_shown run;
    bool found = false;

    *ret_n = 0;
    if (!kube_runs_show(u->runs, k, a, &run) || strcmp(run.place, p->ns) != 0)
        return false;
    for (size_t i = 0; i < run.n; i++) {
        if (run.pods[i].life != POD_IS_THERE)
            continue;
        ++*ret_n;
        found |= strcmp(run.pods[i].name, p->pod) == 0 && strcmp(run.pods[i].node, p->node) == 0;
    }
    return found;
}

/* ---- gathered ---- */
static void take(struct used_pod *p, const struct kube_pod_use *u, uint64_t now)
{
    const struct kube_used *old = p->used;
    struct kube_used *is = mem_zalloc(sizeof *is + u->n * sizeof is->v[0]);

    is->read_ms = now;
    is->n = u->n;
    for (size_t i = 0; i < u->n; i++) {
        const struct kube_device_use *d = &u->devices[i];

        is->v[i] = (struct used_device){
            .id = d->id, .percent = d->percent, .bytes = d->bytes > 0 ? d->bytes : 0};
        if (!d->rests)
            continue;
        is->v[i].rests_ms = now ? now : 1;
        for (size_t k = 0; old && now - old->read_ms < RUN_USE_FRESH_MS && k < old->n; k++)
            if (old->v[k].id == d->id && old->v[k].rests_ms)
                is->v[i].rests_ms = old->v[k].rests_ms;
    }
    mem_free(p->used);
    p->used = is;
}

struct sums {
    struct run_use use;
    uint64_t percent, latest; /* latest: when the last of those that rest began to */
    uint64_t idle_from;       /* likewise, of those that are idle */
    bool stale;               /* of some nothing was told since all of it was told last */
};

static void add(struct sums *s, const struct kube_used *u, uint64_t now)
{
    for (size_t i = 0; i < u->n; i++) {
        const struct used_device *d = &u->v[i];

        s->use.devices++;
        s->percent += d->percent;
        s->use.memory_bytes += d->bytes;
        if (!d->rests_ms)
            continue;
        s->use.resting++;
        s->latest = d->rests_ms > s->latest ? d->rests_ms : s->latest;
        if (now - d->rests_ms < RUN_IDLE_MS)
            continue;
        s->use.idle++;
        s->idle_from = d->rests_ms > s->idle_from ? d->rests_ms : s->idle_from;
    }
}

static void tell(struct kube_uses *u, struct used_run *x, size_t pods, uint64_t now)
{
    const struct connector_env *e = &u->base->env;
    struct sums s = {.use = {.key = x->key}};
    size_t fresh = 0;

    if (!e->events->used)
        return;
    list_for_each (it, &x->pods) {
        const struct used_pod *p = container_of(it, struct used_pod, link);
        if (now - p->used->read_ms >= RUN_USE_FRESH_MS)
            continue;
        add(&s, p->used, now);
        fresh++;
        s.stale |= p->used->read_ms <= x->told_ms;
    }
    bool lacks = fresh < pods;
    if (!s.use.devices || (lacks && now - x->first_ms < GATHER_MS) ||
        ((s.stale || lacks) && x->told_ms && now - x->told_ms < TELL_EVERY_MS))
        return;
    s.use.percent = (uint32_t)(s.percent / s.use.devices);
    s.use.idle_ms = s.use.idle ? now - s.idle_from : 0;
    s.use.resting_ms = s.use.resting == s.use.devices ? now - s.latest : 0;
    x->told_ms = now;
    e->events->used(e->arg, &s.use);
}

void kube_uses_take(struct kube_uses *u, const struct kube_pod_use *p)
{
    uint64_t now = loop_now_ms(u->base->env.loop);
    struct run_key k;
    size_t pods;

    forget(u, now);
    if (!key_of(p->pod, &k) || !runs_there(u, p, &k, &pods))
        return;
    struct used_run *x = run_of(u, &k, now);
    take(pod_of(x, p->pod), p, now);
    tell(u, x, pods, now);
}

/* ---- its life ---- */
struct kube_uses *kube_uses_create(struct connector *base, const struct kube_runs *runs)
{
    struct kube_uses *u = mem_new(struct kube_uses);

    u->base = base;
    u->runs = runs;
    list_init(&u->all);
    return u;
}

struct kube_uses *kube_uses_destroy(struct kube_uses *u)
{
    if (!u)
        return NULL;
    while (!list_empty(&u->all))
        run_free(u, container_of(u->all.next, struct used_run, link));
    mem_free(u);
    return NULL;
}
