/* Filters: may this target, may this group be used at all? Cheapest and most binding first, so that
 * the reason in the record is the one that a person would have to change first. */
#include "policy/place/place_internal.h"

#include <stdio.h>
#include <string.h>

static struct target_verdict verdict(enum reason r, const char *text)
{
    return (struct target_verdict){.reason = r, .text = text};
}

static bool any_matches(const struct target_selector *v, uint32_t n, const struct object *target)
{
    for (uint32_t i = 0; i < n; i++) {
        if (target_matches(&v[i], target))
            return true;
    }
    return false;
}

static bool runner_can(const struct run_spec *run, enum target_type type)
{
    return (run->n_command > 0 && target_can(type, CAN_RUN_COMMAND)) ||
           (run->script[0] && target_can(type, CAN_RUN_SCRIPT)) ||
           (run->image[0] && target_can(type, CAN_RUN_IMAGE)) ||
           (run->manifest.n && target_can(type, CAN_RUN_MANIFEST));
}

/* What a workload asks of its runner besides, or NULL where this type of target has it. A run that
 * is replaced, or stopped, when its target falls silent must stop itself. */
static const char *runner_lacks(const struct workload_spec *w, const struct target_spec *t)
{
    enum target_type type = t->type;

    if (w->run && w->run->image[0] && !target_can(type, CAN_RUN_IMAGE))
        return "spec.run.image: targets of this type start no containers, and its program is not "
               "run outside of one";
    if (w->run && target_can(type, CAN_NEED_IMAGE) && !w->run->image[0] && !w->run->manifest.n &&
        !(t->kubernetes && *t->kubernetes->image))
        return "spec.run.image: programs run in images on this target, and it names none "
               "(spec.kubernetes.image) for those that do not either";
    if (w->checkpoint && !target_has(t, CAN_SAVE))
        return target_can(type, CAN_CALL_HOME)
                   ? "spec.checkpoint: nothing on this target keeps checkpoints (its "
                     "spec.connection.runners is not set)"
                   : "spec.checkpoint: targets of this type keep no checkpoints";
    if (w->partition && w->partition->mode > PARTITION_WAIT && !target_has(t, CAN_LEASE))
        return target_can(type, CAN_CALL_HOME)
                   ? "spec.partition: nothing on this target stops itself (its "
                     "spec.connection.runners is not set), so the mode is wait"
                   : "spec.partition: nothing on targets of this type stops itself, so the mode "
                     "is wait";
    return NULL;
}

static bool ordered(const struct placement_policy_spec *s, const struct object *target)
{
    for (uint32_t i = 0; i < s->n_order; i++) {
        if (target_matches(s->order[i].targets, target))
            return true;
    }
    return s->n_order == 0;
}

static struct target_verdict by_policies(struct place *pl, const struct object *target)
{
    const struct placement_policy_spec *s = pl->order;
    const struct docs *targets = &pl->p->docs[KIND_TARGET];
    const struct object *keeper;
    char text[256];

    for (uint32_t i = 0; i < pl->n_compliance; i++) {
        const struct compliance_policy_spec *c =
            object_as(pl->compliance[i], compliance_policy)->spec;
        enum reason r = c->mode == MODE_AUDIT ? REASON_NONE : compliance_allows(c->allow, target);

        if (r != REASON_NONE) {
            compliance_sentence(r, pl->compliance[i], target, text, sizeof(text));
            return verdict(r, arena_strdup(pl->a, text));
        }
        if (c->mode == MODE_AUDIT || !(pl->covers[i] & COVERS_BIT(COVERS_LOGS)))
            continue;
        r = compliance_allows_logs(c->allow, logs_store(target), targets->v, targets->n, &keeper);
        if (r == REASON_NONE)
            continue;
        compliance_logs_sentence(r, pl->compliance[i], logs_store(target), keeper, text,
                                 sizeof(text));
        return verdict(r, arena_strdup(pl->a, text));
    }
    if (s &&
        (any_matches(s->forbid, s->n_forbid, target) ||
         (s->n_require && !any_matches(s->require, s->n_require, target)) || !ordered(s, target)))
        return verdict(REASON_POLICY_FORBIDS, pl->policy->meta->name);
    if (!target_matches(pl->spec->targets, target))
        return verdict(REASON_NOT_SELECTED, NULL);
    if (pl->rq->avoid_target && strcmp(pl->rq->avoid_target, target->meta->name) == 0)
        return verdict(REASON_NOT_SELECTED, "a migration leaves this target");
    if (pl->rq->only_target && strcmp(pl->rq->only_target, target->meta->name) != 0)
        return verdict(REASON_NOT_SELECTED, "a migration goes to another target");
    return verdict(REASON_NONE, NULL);
}

/* A target that lists no stores says nothing about them. */
static bool store_reached(const struct workload_spec *w, const struct target_spec *t)
{
    return !store_asked(w)[0] || t->n_stores == 0 || store_listed(store_asked(w), t);
}

static bool node_proves(const struct node_isolation *i)
{
    return i->processes == HELD_CGROUP || i->processes == HELD_NAMESPACE;
}

static bool node_separates(const struct node_isolation *i)
{
    return i->tenants == TENANTS_SEPARATE;
}

/* Every node must tell it: what is not known does not count. */
static bool all_nodes(const struct table *t, const struct target_rec *r,
                      bool (*keeps)(const struct node_isolation *i))
{
    bool any = false;

    for (uint32_t g = r->g0; g < r->g0 + r->n_groups; g++) {
        for (uint32_t m = t->groups[g].m0; m < t->groups[g].m0 + t->groups[g].n; m++) {
            const struct node_status *s = t->nodes[t->members[m].node].doc->status;
            if (!s || !s->isolation || !keeps(s->isolation))
                return false;
            any = true;
        }
    }
    return any;
}

/* ---- what a target refused lately, for reasons of its own or of this workload ---- */
/* Not asked for again at once. Each sentence gives the target's own words, and the time. */
static const char *pause_text(struct place *pl, const struct target_pause *x)
{
    char at[32];

    time_print(x->until, at);
    return arena_printf(pl->a, "%s%.63s%snot asked again before %s, it refused (%s): %s",
                        x->scope == BLAMES_ZONE    ? "zone "
                        : x->scope == BLAMES_CLASS ? "class "
                                                   : "",
                        x->scope == BLAMES_TARGET ? "" : x->name,
                        x->scope == BLAMES_TARGET ? "" : " is ", at, refusal_class_text(x->refusal),
                        x->message);
}

static const struct target_pause *pause_find(const struct place *pl, const struct target_rec *t,
                                             enum refusal_scope scope, const char *name)
{
    const struct target_status *s = object_as(t->obj, target)->status;

    for (uint32_t i = 0; s && i < s->n_pauses; i++)
        if (s->pauses[i].scope == scope && pause_holds(&s->pauses[i], pl->rq->now_ms) &&
            (!name || strcmp(s->pauses[i].name, name) == 0))
            return &s->pauses[i];
    return NULL;
}

bool denial_holds(const struct object *workload, const struct run_end *e, int64_t now_ms)
{
    return e->deniedUntil > now_ms && e->generation == workload->meta->generation;
}

static const struct run_end *denied_by(const struct place *pl, const char *target)
{
    const struct workload_status *s = pl->status;

    for (uint32_t i = s ? s->n_ends : 0; i > 0; i--)
        if (denial_holds(pl->obj, &s->ends[i - 1], pl->rq->now_ms) &&
            strcmp(s->ends[i - 1].target, target) == 0)
            return &s->ends[i - 1];
    return NULL;
}

static struct target_verdict pause_target(struct place *pl, const struct target_rec *t)
{
    const struct target_pause *x = pause_find(pl, t, BLAMES_TARGET, NULL);
    const struct run_end *e = denied_by(pl, t->name);
    char at[32];

    if (x)
        return (struct target_verdict){
            .reason = REASON_TARGET_PAUSED, .text = pause_text(pl, x), .x = x->until};
    if (!e)
        return (struct target_verdict){.reason = REASON_NONE};
    time_print(e->deniedUntil, at);
    bool denied = !*e->reason || strcmp(e->reason, reason_text(REASON_RUN_DENIED)) == 0;
    return (struct target_verdict){
        .reason = denied ? REASON_RUN_DENIED : REASON_RUN_NOT_BEGUN,
        .text = arena_printf(pl->a, "not asked again before %s, it %s this workload: %s", at,
                             denied ? "denied" : "did not start", e->message),
        .x = e->deniedUntil};
}

static bool row_paused(struct place *pl, struct row *r, const struct target_pause *x)
{
    if (!x)
        return false;
    r->reason = REASON_TARGET_PAUSED;
    r->text = pause_text(pl, x);
    r->x = x->until;
    return true;
}

static bool pause_class(struct place *pl, struct row *r)
{
    const struct table *t = &pl->p->t;
    const char *class_ = t->classes[t->groups[r->group].class_].name;

    return *class_ &&
           row_paused(pl, r, pause_find(pl, &t->targets[r->target], BLAMES_CLASS, class_));
}

void pause_zone(struct place *pl, struct row *r)
{
    const struct table *t = &pl->p->t;
    const struct group *g = &t->groups[r->group];

    if (!t->targets[r->target].shut ||
        (r->reason != REASON_NODE_NOT_READY && reason_cure(r->reason) != CURE_ROOM))
        return;
    for (uint32_t m = g->m0; m < g->m0 + g->n; m++)
        if (row_paused(pl, r, pool_zone_pause(t, t->members[m].node)))
            return;
}

/* Nothing goes there in the target's own name where it has names for its tenants. */
static const char *principal_lacks(struct place *pl, const struct target_spec *t)
{
    const char *ns = pl->obj->meta->namespace_, *queue = pl->queue_name ? pl->queue_name : "";

    if (!t->n_principals || target_principal_of(t, ns, queue))
        return NULL;
    return arena_printf(pl->a, "its spec.principals have nobody for namespace %s%s%s", ns,
                        *queue ? ", queue " : "", queue);
}

struct target_verdict filter_target(struct place *pl, uint32_t target)
{
    const struct target_rec *t = &pl->p->t.targets[target];
    struct target_verdict v = by_policies(pl, t->obj);

    if (v.reason != REASON_NONE)
        return v;
    if (t->spec->observeOnly)
        return verdict(REASON_OBSERVE_ONLY, NULL);
    if (pl->spec->run && !runner_can(pl->spec->run, t->spec->type))
        return verdict(REASON_RUNNER_MISSING,
                       pl->spec->run->manifest.n
                           ? "spec.run.manifest: only targets of type kubernetes run manifests"
                           : arena_printf(pl->a,
                                          "a target of type %s cannot run what spec.run holds",
                                          target_type_text(t->spec->type)));
    const char *lacks =
        target_can(t->spec->type, CAN_BE_DRIVEN) ? runner_lacks(pl->spec, t->spec) : NULL;
    if (lacks)
        return verdict(REASON_RUNNER_MISSING, lacks);
    lacks = principal_lacks(pl, t->spec);
    if (lacks)
        return verdict(REASON_PRINCIPAL, lacks);
    if (!store_reached(pl->spec, t->spec))
        return verdict(REASON_STORE, pl->spec->checkpoint->store);
    if (pl->spec->isolation && pl->spec->isolation->processes == PROCESSES_PROVED &&
        !all_nodes(&pl->p->t, t, node_proves))
        return verdict(REASON_PROCESSES, NULL);
    if (pl->spec->isolation && pl->spec->isolation->tenants == TENANTS_NEED_SEPARATE &&
        !all_nodes(&pl->p->t, t, node_separates))
        return verdict(REASON_TENANTS, NULL);
    if (t->reach != REACH_YES)
        return verdict(REASON_UNREACHABLE, NULL);
    if (t->spec->unschedulable || t->spec->drain)
        return verdict(REASON_CORDONED, NULL);
    if (t->spec->limits && t->spec->limits->workloads > 0 &&
        t->workloads >= t->spec->limits->workloads) {
        v = verdict(REASON_TARGET_LIMIT, NULL);
        v.x = t->spec->limits->workloads;
        return v;
    }
    return pause_target(pl, t);
}

/* ---- the order of a policy: spill-over ---- */
/* Share of the GPUs in use on the targets of the steps before `step`. */
static double earlier_use(const struct place *pl, uint32_t step)
{
    const struct table *t = &pl->p->t;
    int64_t all = 0, free = 0;

    for (uint32_t i = 0; i < t->n_targets; i++) {
        bool earlier = false;

        for (uint32_t k = 0; k < step && !earlier && t->targets[i].obj; k++)
            earlier = target_matches(pl->order->order[k].targets, t->targets[i].obj);
        for (uint32_t g = t->targets[i].g0;
             earlier && g < t->targets[i].g0 + t->targets[i].n_groups; g++) {
            all += t->groups[g].gpus;
            free += t->groups[g].free;
        }
    }
    return all ? (double)(all - free) / (double)all : 1;
}

/* Milliseconds until the step opens; 0 = open; -1 = no time is known (its threshold is not
 * reached). */
static int64_t step_opens(const struct place *pl, uint32_t i)
{
    const struct order_step *s = &pl->order->order[i];
    int64_t wait = s->after;

    if (s->when && s->when->queueWait > wait)
        wait = s->when->queueWait;
    if (pl->waited_ms < wait)
        return wait - pl->waited_ms;
    if (s->when && s->when->utilisation > 0 && earlier_use(pl, i) < s->when->utilisation)
        return -1;
    return 0;
}

static uint32_t capacity_place(const struct order_step *s, enum capacity c)
{
    if (!s->n_capacity)
        return 0;
    for (uint32_t i = 0; i < s->n_capacity; i++) {
        if (s->capacity[i] == c)
            return i;
    }
    return NONE;
}

void filter_order(struct place *pl, struct row *r)
{
    const struct table *t = &pl->p->t;
    bool waits = false;

    r->rank = 0;
    if (!pl->order || !pl->order->n_order)
        return;
    for (uint32_t i = 0; i < pl->order->n_order; i++) {
        const struct order_step *s = &pl->order->order[i];
        uint32_t at = capacity_place(s, t->groups[r->group].capacity);
        int64_t opens;

        if (at == NONE || !target_matches(s->targets, t->targets[r->target].obj))
            continue;
        opens = step_opens(pl, i);
        r->early = opens != 0;
        if (opens == 0 || pl->rq->at_once) {
            r->rank = i * 8 + at;
            return;
        }
        if (!waits || (opens > 0 && (r->x < 0 || opens < r->x)))
            r->x = opens;
        waits = true;
    }
    r->reason = waits ? REASON_SPILL_WAIT : REASON_CAPACITY_KIND;
    r->text = waits ? NULL : capacity_text(t->groups[r->group].capacity);
}

/* ---- groups ---- */
double class_speed(const struct table *t, uint32_t class_)
{
    const struct gpu_class_spec *s = t->classes[class_].spec;

    return s && s->relativeSpeed > 0 ? s->relativeSpeed : 1;
}

bool group_asked_for(const struct place *pl, uint32_t group)
{
    uint32_t class_ = pl->p->t.groups[group].class_;

    if (pl->need.mode == NEED_CPU)
        return true;
    if (pl->p->t.groups[group].max_dev == 0 && !pl->p->t.groups[group].has_mig)
        return false;
    if (!pl->gpu->n_classes)
        return true;
    for (uint32_t i = 0; i < pl->n_classes; i++) {
        if (pl->classes[i] == class_)
            return true;
    }
    return false;
}

static bool linked(const struct place *pl, const struct group *g, const char *want)
{
    const struct gpu_class_spec *c = pl->p->t.classes[g->class_].spec;

    if (pl->need.nvlink)
        return g->max_linked >= (pl->need.mode == NEED_WHOLE ? pl->need.count : 1);
    return strcmp(g->fabric, want) == 0 || (c && strcmp(c->interconnect, want) == 0);
}

/* A run that moves within its queue and class takes what it gives up, though a limit has sunk below
 * that meanwhile. */
static bool has_quota(const struct place *pl, uint32_t class_, uint32_t workers)
{
    return pl->own && pl->own->i_queue == pl->queue && pl->own->i_class == class_ &&
           need_milli(&pl->need, workers) <= pl->own->milli;
}

const struct quota_answer *place_quota(struct place *pl, uint32_t class_)
{
    const struct pool *p = pl->p;
    struct quota_view v = quota_view_pool(p, class_);

    if (!pl->quota_known[class_] || pl->need.part) { /* of a fraction, shares may be larger */
        pl->quota[class_] = (struct quota_answer){0};
        if (p->n_queues && pl->need.mode != NEED_CPU &&
            !has_quota(pl, class_, pl->need.min_workers))
            pl->quota[class_] =
                quota_check(&v, pl->queue, need_milli(&pl->need, pl->need.min_workers));
        pl->quota_known[class_] = true;
    }
    return &pl->quota[class_];
}

/* An elastic gang starts with as many workers as its queue may have. */
uint32_t place_workers(struct place *pl, uint32_t class_)
{
    const struct pool *p = pl->p;
    uint32_t low = pl->need.min_workers, high = pl->need.workers;
    struct quota_view v = quota_view_pool(p, class_);

    if (low >= high || !p->n_queues || pl->need.mode == NEED_CPU)
        return high;
    while (low < high) { /* low is admitted, more than high is not */
        uint32_t mid = high - (high - low) / 2;

        if (has_quota(pl, class_, mid) ||
            quota_check(&v, pl->queue, need_milli(&pl->need, mid)).reason == REASON_NONE)
            low = mid;
        else
            high = mid - 1;
    }
    return low;
}

static bool refuse_row(struct row *r, enum reason why, int64_t x, int64_t y)
{
    r->reason = why;
    r->x = x;
    r->y = y;
    return false;
}

/* Its GPUs are given in shares, and no share of them will do. */
static bool refuse_shares(struct place *pl, struct row *r, const struct group *g)
{
    if (pl->need.part)
        r->text = arena_printf(pl->a, "a share of a GPU there is %s, %d.%03d is asked for",
                               g->slice, pl->need.part / 1000, pl->need.part % 1000);
    return refuse_row(r, pl->need.part ? REASON_FRACTION : REASON_ONLY_SHARES, 0, 0);
}

static bool filter_devices(struct place *pl, struct row *r)
{
    const struct table *t = &pl->p->t;
    const struct group *g = &t->groups[r->group];

    if (pl->need.mode == NEED_CPU)
        return true;
    if (pl->gpu->minMemory > 0 && g->memory < pl->gpu->minMemory)
        return refuse_row(r, REASON_GPU_MEMORY, g->memory, pl->gpu->minMemory);
    if (pl->gpu->minSpeed > 0 && class_speed(t, g->class_) < pl->gpu->minSpeed) {
        r->text = "its relative speed is below minSpeed";
        return refuse_row(r, REASON_NO_CLASS, 0, 0);
    }
    if (pl->gpu->interconnect[0] && !linked(pl, g, pl->gpu->interconnect)) {
        r->text = pl->gpu->interconnect;
        return refuse_row(r, REASON_INTERCONNECT, pl->need.nvlink ? g->max_linked : 0,
                          pl->need.count);
    }
    if (pl->need.mode == NEED_FRACTION && pl->need.hard)
        return refuse_row(r, REASON_ISOLATION, 0, 0);
    return !g->shares || need_kind(&pl->need).shares || refuse_shares(pl, r, g);
}

bool filter_group(struct place *pl, struct row *r)
{
    const struct table *t = &pl->p->t;
    const struct group *g = &t->groups[r->group];
    const struct quota_answer *q;

    if (!filter_devices(pl, r) || pause_class(pl, r))
        return false;
    q = place_quota(pl, g->class_);
    if (q->reason != REASON_NONE) {
        r->text = q->queue;
        return refuse_row(r, q->reason, q->held, q->limit);
    }
    price_row(pl, r);
    if (r->reason != REASON_NONE)
        return false;
    filter_order(pl, r);
    return r->reason == REASON_NONE;
}
