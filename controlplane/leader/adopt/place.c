/* Where Hanse would have put them: on a copy of the pool in which what they hold is free, one after
 * the other in the order in which they were made, each beside those before it and beside all that
 * Hanse has placed. Nothing is preempted for them, and nobody waits for them. */
#include "controlplane/leader/adopt/shadow_internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- what they cost where they are ---- */
static void cost_now(struct shadow_job *j, const struct pool *pool, int64_t now_ms)
{
    for (const struct shadow_hold *h = j->holds; h; h = h->next) {
        struct gpu_hour price;

        if (!h->milli)
            continue;
        if (!*h->class_ || !policy_gpu_hour(pool, h->node, h->class_, now_ms, &price)) {
            j->priced = false;
            return;
        }
        j->mixed |= *j->currency && strcmp(j->currency, price.currency) != 0;
        str_copy(j->currency, sizeof j->currency, price.currency);
        j->cost += price.price * (double)h->milli / 1000;
    }
}

/* ---- what they hold is given back ---- */
static int by_node(const void *a, const void *b)
{
    const struct shadow_hold *const *x = a, *const *y = b;

    return strcmp((*x)->node, (*y)->node);
}

static bool class_is(const struct others_class *o, const struct counted_gpus *c)
{
    return (strcmp(o->class_, c->class_) == 0 || strcmp(o->class_, c->model) == 0) &&
           strcmp(o->mig ? o->mig : "", c->mig ? c->mig : "") == 0 && o->shares == (c->shares > 0);
}

/* Never below nothing: pods come and go between what was listed and what the node tells. */
static void others_less(struct node_others *o, const struct counted_gpus *c, int64_t count)
{
    for (uint32_t i = 0; i < o->n_classes;) {
        struct others_class *x = &o->classes[i];
        int64_t less = class_is(x, c) ? (count < x->count ? count : x->count) : 0;

        x->count -= less;
        count -= less;
        if (x->count > 0)
            i++;
        else
            *x = o->classes[--o->n_classes];
    }
}

static int64_t less(int64_t from, int64_t v)
{
    return v < from ? from - v : 0;
}

/* All that such Jobs hold of one node: v[0] to v[n - 1]. */
static void node_free(struct shadow *s, const struct shadow_place *p, struct shadow_hold **v,
                      size_t n)
{
    const struct object *o = p->docs->get(p->docs->arg, KIND_NODE, "", v[0]->node);
    const struct node_status *had = o ? object_as(o, node)->status : NULL;
    struct object *freed = NULL;
    struct counted_gpus c;

    if (!had || !had->others || p->busy(p->arg, v[0]->node))
        return;
    struct node *node = object_edit_as(o, node, s->scratch);
    struct node_others *others = node->status->others;
    for (size_t i = 0; i < n; i++) {
        others->cpu = less(others->cpu, v[i]->cpu_milli);
        others->memory = less(others->memory, v[i]->memory_bytes);
        if (v[i]->count && shadow_row(p->docs, v[i], &c))
            others_less(others, &c, v[i]->count);
    }
    if (object_make_within(o->kind, node, OBJECT_MADE_MAX_BYTES, &freed, NULL) == 0)
        pool_put(s->pool, freed);
    (void)object_unref(freed);
    arena_reset(s->scratch);
}

/* The holds of one node are given back together. */
static bool nodes_step(struct shadow *s, const struct shadow_place *p)
{
    size_t from = s->at_freed, n = 1;

    if (from == s->n_freed)
        return false;
    while (from + n < s->n_freed && strcmp(s->freed[from]->node, s->freed[from + n]->node) == 0)
        n++;
    node_free(s, p, s->freed + from, n);
    s->at_freed += n;
    return true;
}

/* ---- the beginning ---- */
static int by_age(const void *a, const void *b)
{
    const struct shadow_job *const *x = a, *const *y = b;
    int order = ((*x)->made_ms > (*y)->made_ms) - ((*x)->made_ms < (*y)->made_ms);

    order = order ? order : strcmp((*x)->ns, (*y)->ns);
    return order ? order : strcmp((*x)->name, (*y)->name);
}

/* The Target as if it were used: one that is only looked at takes nothing. */
static void target_open(struct shadow *s, const struct shadow_docs *docs)
{
    const struct object *o = docs->get(docs->arg, KIND_TARGET, "", s->target);
    struct object *open = NULL;

    if (!o || !object_as(o, target)->spec->observeOnly)
        return;
    s->observe_only = true;
    struct target *t = object_edit_as(o, target, s->scratch);
    t->spec->observeOnly = false;
    if (object_make_within(o->kind, t, OBJECT_MADE_MAX_BYTES, &open, NULL) == 0)
        pool_put(s->pool, open);
    (void)object_unref(open);
    arena_reset(s->scratch);
}

void shadow_begin(struct shadow *s, const struct shadow_place *p)
{
    qsort(s->jobs, s->n_jobs, sizeof *s->jobs, by_age);
    s->freed = arena_array(s->a, struct shadow_hold *, s->n_holds + 1);
    for (size_t i = 0; i < s->n_jobs; i++)
        for (struct shadow_hold *h = s->jobs[i]->holds; h && !s->jobs[i]->why; h = h->next)
            s->freed[s->n_freed++] = h;
    qsort(s->freed, s->n_freed, sizeof(struct shadow_hold *), by_node);
    s->pool = pool_fork(p->pool);
    target_open(s, p->docs);
}

/* ---- one decision ---- */
/* Of a placement, which may be of thousands of workers, what is shown. */
static void placement_keep(struct shadow *s, struct shadow_job *j, const struct placement *p)
{
    struct shadow_node *v = arena_array(s->scratch, struct shadow_node, p->n_assignments + 1);

    for (uint32_t i = 0; i < p->n_assignments; i++)
        v[i] = (struct shadow_node){p->assignments[i].node, assignment_milli(&p->assignments[i])};
    shadow_nodes_sum(v, p->n_assignments, &j->nodes);
    for (size_t i = 0; i < j->nodes.n; i++)
        j->nodes.v[i].name = arena_strdup(s->a, j->nodes.v[i].name);
    j->target = arena_strdup(s->a, p->target);
    j->class_ = arena_strdup(s->a, p->class_ ? p->class_ : "");
    j->would_milli = p->gpus;
}

static void decided(struct shadow *s, struct shadow_job *j, const struct shadow_place *p,
                    const struct decision_spec *d, const struct placement *at)
{
    struct gpu_hour price;

    j->outcome = arena_strdup(s->a, d->outcome);
    j->reason = arena_strdup(s->a, d->reason);
    j->message = arena_strdup(s->a, d->message);
    j->queue = arena_strdup(s->a, d->queue);
    j->policy = arena_strdup(s->a, d->policy);
    if (!at)
        return;
    pool_hold_placement(s->pool, j->workload, at);
    placement_keep(s, j, at);
    if (!at->gpus) {
        j->would_priced = true; /* nothing is charged by the GPU-hour */
    } else if (policy_gpu_hour(s->pool, at->assignments[0].node, at->class_, p->now_ms, &price)) {
        j->would_priced = true;
        j->would_cost = price.price * (double)at->gpus / 1000;
        str_copy(j->would_currency, sizeof j->would_currency, price.currency);
    }
}

static void job_place(struct shadow *s, struct shadow_job *j, const struct shadow_place *p)
{
    const struct place_request rq = {
        .workload = j->workload, .now_ms = p->now_ms, .log_index = p->log_index};
    struct decision_spec *d;
    struct placement *at;
    struct err err;

    j->decided = true;
    if (policy_place(s->pool, &rq, s->scratch, &d, &at, &err) == 0) {
        decided(s, j, p, d, at);
    } else {
        j->outcome = "Pending";
        j->reason = "TooLargeToDecide";
        j->message = arena_strdup(s->a, err.text);
        j->queue = j->policy = "";
    }
    arena_reset(s->scratch);
}

static bool job_step(struct shadow *s, const struct shadow_place *p)
{
    if (s->at_job == s->n_jobs)
        return false;
    struct shadow_job *j = s->jobs[s->at_job++];
    cost_now(j, s->pool, p->now_ms);
    if (j->workload)
        job_place(s, j, p);
    return true;
}

bool shadow_step(struct shadow *s, const struct shadow_place *p, bool (*more)(void *arg),
                 void *more_arg)
{
    do {
        if (!nodes_step(s, p) && !job_step(s, p))
            return false;
    } while (more(more_arg));
    return true;
}
