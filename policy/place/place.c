/* One decision, from the workload to the record: request → targets → groups → fit → score → record.
 * It looks at targets and groups, never at all nodes: nodes are found through the buckets of their
 * group. */
#include "policy/place/place_internal.h"

#include <stdio.h>
#include <string.h>

static bool explain_misfit(struct place *pl, struct row *r, enum reason why, int64_t x, int64_t y)
{
    (void)pl;
    r->reason = why;
    r->x = x;
    r->y = y;
    return false;
}

static int64_t nodes_with_room(const struct group *g, const struct need *n)
{
    int64_t sum = 0;

    if (n->mode != NEED_WHOLE)
        return g->n_ok;
    for (uint32_t b = n->count; b <= g->max_dev; b++)
        sum += g->count[b];
    return sum;
}

/* The first node of a group that only a notice closes, as a sentence; NULL: there is none. */
static const char *notice_text(const struct place *pl, const struct group *g)
{
    const struct table *t = &pl->p->t;

    for (uint32_t m = g->m0; m < g->m0 + g->n; m++) {
        const struct node_rec *n = &t->nodes[t->members[m].node];
        const struct node_notice *notice = n->doc->status ? n->doc->status->notice : NULL;
        char when[160];

        if (!notice)
            continue;
        policy_notice_print(n->obj->meta->name, notice, when, sizeof(when));
        return arena_strdup(pl->a, when);
    }
    return NULL;
}

/* There would be room, had others not what they hold; x: devices free on one node, or workers that
 * have room. */
static bool misfit_others(struct place *pl, struct row *r, const struct need *n, int64_t x)
{
    const struct table *t = &pl->p->t;
    const char *class_ = t->classes[t->groups[r->group].class_].name;
    char gpus[192] = "", what[128], cpu[64] = "", memory[64] = "", figure[32];
    struct fit_others o;

    fit_others(t, r->group, n, &o);
    if (!o.nodes || o.room < n->min_workers)
        return false;
    slice_print(*class_ ? class_ : "GPUs", need_kind(n), what, sizeof(what));
    if (o.gpus)
        (void)snprintf(gpus, sizeof(gpus), " %lld %s", (long long)o.gpus, what);
    quantity_print_milli(o.cpu, figure);
    if (o.cpu)
        (void)snprintf(cpu, sizeof(cpu), "%s %s CPU", *gpus ? "," : "", figure);
    quantity_print_bytes(o.memory, figure);
    if (o.memory)
        (void)snprintf(memory, sizeof(memory), "%s %s of memory", *gpus || *cpu ? "," : "", figure);
    r->text = arena_printf(pl->a,
                           "others than Hanse hold%s%s%s on %lld node%s that would have room", gpus,
                           cpu, memory, (long long)o.nodes, o.nodes == 1 ? "" : "s");
    (void)explain_misfit(pl, r, REASON_OTHERS, x, n->workers);
    return true;
}

/* Why the first node of a group is closed that tells it, in its own words, to be added. */
static const char *closed_text(const struct place *pl, const struct group *g)
{
    const struct table *t = &pl->p->t;

    for (uint32_t m = g->m0; m < g->m0 + g->n; m++) {
        const struct node_rec *n = &t->nodes[t->members[m].node];

        if (n->doc->status && *n->doc->status->reason)
            return arena_printf(pl->a, "; node %.100s: %.128s", n->obj->meta->name,
                                n->doc->status->reason);
    }
    return "";
}

/* The first node of a group that a fault closes, as a sentence to add; else why it is closed. */
static const char *fault_text(const struct place *pl, const struct group *g)
{
    const struct table *t = &pl->p->t;

    for (uint32_t m = g->m0; m < g->m0 + g->n; m++) {
        const struct node_rec *n = &t->nodes[t->members[m].node];
        const struct node_fault *f = node_fault(n->doc, -1);
        char text[400];

        if (!f)
            continue;
        node_fault_print(n->obj->meta->name, f, text, sizeof(text));
        return arena_printf(pl->a, "; %s", text);
    }
    return closed_text(pl, g);
}

/* Of devices without numbers: what is held may be more than the healthy ones. */
static bool misfit_counted(struct place *pl, struct row *r, const struct need *n, uint32_t member)
{
    const struct table *t = &pl->p->t;
    const struct member *mb = &t->members[member];
    const struct node_rec *node = &t->nodes[mb->node];
    const char *class_ = t->classes[t->groups[mb->group].class_].name;
    const struct counted_gpus c = node_counted(node->doc, class_, need_kind(n));
    int64_t room = c.unhealthy - mb->others - mb->strayed;

    for (uint32_t i = node->dev0; i < node->dev0 + node->n_dev; i++)
        if (t->devices[i].member == member && !t->devices[i].mig)
            room += t->devices[i].free_milli / 1000;
    if (!c.unhealthy || room < n->count || t->cpu_free[mb->node] < n->cpu ||
        t->memory_free[mb->node] < n->memory)
        return false;
    r->text = arena_printf(pl->a, "%lld of %lld %.63s of node %.80s are unhealthy",
                           (long long)c.unhealthy, (long long)c.count, class_,
                           node->obj->meta->name);
    (void)explain_misfit(pl, r, REASON_UNHEALTHY, member_free(mb), n->count);
    return true;
}

/* ---- MIG instances and shares ---- */
struct slices {
    int64_t there, unhealthy; /* of what is asked for */
    char others[96];          /* profiles that there are instead */
};

static void slices_other(struct slices *s, const char *profile)
{
    size_t n = strlen(s->others), more = strlen(profile);

    if (n + more + 3 < sizeof(s->others) && !strstr(s->others, profile))
        (void)snprintf(s->others + n, sizeof(s->others) - n, "%s%s", n ? ", " : "", profile);
}

/* Would its node have room, were the unhealthy ones healthy? Counts what a member has. */
static bool slices_count(const struct place *pl, const struct row *r, const struct need *n,
                         uint32_t member, struct slices *s)
{
    const struct table *t = &pl->p->t;
    const struct member *mb = &t->members[member];
    const struct node_rec *node = &t->nodes[mb->node];
    const struct counted_gpus c = node_counted(
        node->doc, t->classes[t->groups[r->group].class_].name, need_kind(n));
    int64_t room = c.unhealthy - mb->strayed;

    for (uint32_t i = node->dev0; i < node->dev0 + node->n_dev; i++) {
        const struct device *d = &t->devices[i];

        for (uint32_t k = 0; d->member == member && d->mig && k < d->spec->n_migProfiles; k++) {
            bool mine = strcmp(d->spec->migProfiles[k], n->mig) == 0;

            s->there += mine;
            room += mine && k < 64 && !(d->mig_used >> k & 1);
            if (!mine)
                slices_other(s, d->spec->migProfiles[k]);
        }
        if (device_kind_is(d, need_kind(n)) && d->member == member)
            room -= d->mig_over[0];
    }
    s->there += c.unhealthy;
    s->unhealthy += c.unhealthy;
    return c.unhealthy && room >= n->count && t->cpu_free[mb->node] >= n->cpu &&
           t->memory_free[mb->node] >= n->memory;
}

static bool misfit_slices(struct place *pl, struct row *r, const struct need *n)
{
    const struct table *t = &pl->p->t;
    const struct group *g = &t->groups[r->group];
    struct slices s = {0};
    char what[128];

    slice_print(t->classes[g->class_].name, need_kind(n), what, sizeof(what));
    for (uint32_t m = g->m0; m < g->m0 + g->n; m++) {
        const struct node_rec *node = &t->nodes[t->members[m].node];

        if (!node->ok || !slices_count(pl, r, n, m, &s))
            continue;
        r->text = arena_printf(pl->a, "%lld %s of node %.80s are unhealthy",
                               (long long)node_counted(node->doc, t->classes[g->class_].name,
                                                       need_kind(n)).unhealthy,
                               what, node->obj->meta->name);
        return explain_misfit(pl, r, REASON_UNHEALTHY, 0, n->count);
    }
    if (!s.there && *s.others)
        r->text = arena_printf(pl->a, "no %s: there is %s", what, s.others);
    else if (!s.there)
        r->text = arena_printf(pl->a, "no %s", what);
    else
        r->text = arena_printf(pl->a, "none of the %lld %s is free", (long long)s.there, what);
    return explain_misfit(pl, r, n->part ? REASON_FRACTION : REASON_MIG, 0, n->count);
}

/* A node of the group that would have room for a worker, were its devices healthy. */
static bool misfit_sick(struct place *pl, struct row *r, const struct need *n)
{
    const struct table *t = &pl->p->t;
    const struct group *g = &t->groups[r->group];
    const char *class_ = t->classes[g->class_].name;

    for (uint32_t m = g->m0; m < g->m0 + g->n; m++) {
        const struct member *mb = &t->members[m];
        const struct node_rec *node = &t->nodes[mb->node];
        const struct device *first = NULL;
        const struct node_fault *f;
        uint32_t sick = 0;
        char text[400];

        for (uint32_t i = node->dev0; node->ok && i < node->dev0 + node->n_dev; i++) {
            const struct device *d = &t->devices[i];

            if (d->member != NONE || d->free_milli != 1000 || strcmp(d->spec->class_, class_) != 0)
                continue;
            first = first ? first : d;
            sick++;
        }
        if (mb->counted && node->ok && misfit_counted(pl, r, n, m))
            return true;
        if (!first || member_free(mb) + sick < n->count || t->cpu_free[mb->node] < n->cpu ||
            t->memory_free[mb->node] < n->memory)
            continue;
        f = node_fault(node->doc, first->spec->index);
        if (f)
            node_fault_print(node->obj->meta->name, f, text, sizeof(text));
        else
            (void)snprintf(text, sizeof(text), "GPU %lld of node %.80s is %s",
                           (long long)first->spec->index, node->obj->meta->name,
                           health_text(first->spec->health));
        r->text = arena_strdup(pl->a, text);
        (void)explain_misfit(pl, r, REASON_UNHEALTHY, member_free(mb), n->count);
        return true;
    }
    return false;
}

/* A node of the group that would have room for a worker, were it not perhaps another one by a new
 * name. */
static bool misfit_renamed(struct place *pl, struct row *r, const struct need *n)
{
    const struct table *t = &pl->p->t;
    const struct group *g = &t->groups[r->group];

    for (uint32_t m = g->m0; m < g->m0 + g->n; m++) {
        const struct member *mb = &t->members[m];
        const struct node_rec *node = &t->nodes[mb->node];
        const char *formerly = node->doc->status ? node->doc->status->formerly : NULL;

        if (!formerly || !*formerly || t->cpu_free[mb->node] < n->cpu ||
            t->memory_free[mb->node] < n->memory ||
            (n->mode == NEED_WHOLE && member_free(mb) < n->count))
            continue;
        r->text = arena_printf(pl->a,
                               "node %s may be %s by another name, where something is still held",
                               node->obj->meta->name, formerly);
        (void)explain_misfit(pl, r, REASON_RENAMED, 0, g->n);
        return true;
    }
    return false;
}

/* No node has room for even one worker. */
static bool misfit_single(struct place *pl, struct row *r)
{
    const struct table *t = &pl->p->t;
    const struct group *g = &t->groups[r->group];
    const struct need *n = &pl->need;
    struct fit_count c;

    r->nodes = g->n;
    if (t->renamed && misfit_renamed(pl, r, n))
        return false;
    if (g->n_ok == 0 && (r->text = notice_text(pl, g)))
        return explain_misfit(pl, r, REASON_NODE_NOTICE, 0, g->n);
    if (g->n_ok == 0) {
        r->text = fault_text(pl, g);
        return explain_misfit(pl, r, REASON_NODE_NOT_READY, 0, g->n);
    }
    if (t->sick && n->mode == NEED_WHOLE && misfit_sick(pl, r, n))
        return false;
    if (t->others) {
        fit_explain(t, r->group, n, &c);
        if (misfit_others(pl, r, n, n->workers == 1 ? c.best : 0))
            return false;
    }
    if (n->mode == NEED_WHOLE && nodes_with_room(g, n) == 0) {
        if (g->free > 0) {
            r->text = "on one node"; /* some are free, but not together */
            fit_explain(t, r->group, n, &c);
            return explain_misfit(pl, r, REASON_GPU_BUSY, c.best, n->count);
        }
        return explain_misfit(pl, r, REASON_GPU_BUSY, g->gpus, g->gpus);
    }
    fit_explain(t, r->group, n, &c);
    if (c.cpu > 0 && c.cpu >= c.memory)
        return explain_misfit(pl, r, REASON_CPU, c.cpu, n->cpu);
    if (c.memory > 0)
        return explain_misfit(pl, r, REASON_MEMORY, c.memory, n->memory);
    if (c.hard > 0)
        return explain_misfit(pl, r, REASON_ISOLATION, c.hard, 0);
    if (n->mode == NEED_MIG)
        return misfit_slices(pl, r, n);
    if (n->mode == NEED_FRACTION)
        return explain_misfit(pl, r, REASON_FRACTION, n->milli, 0);
    if (n->nvlink) {
        r->text = "in one NVLink domain";
        return explain_misfit(pl, r, REASON_GPU_BUSY, c.linked, n->count);
    }
    return explain_misfit(pl, r, REASON_GPU_BUSY, g->gpus - g->free, g->gpus);
}

static bool fit_row(struct place *pl, struct row *r)
{
    const struct table *t = &pl->p->t;
    const struct group *g = &t->groups[r->group];
    struct need need = pl->need, *n = &need;
    int64_t room;

    r->pack = pl->pack;
    if (g->waits && n->mode == NEED_WHOLE &&
        g->waits + need_milli(n, n->min_workers) > g->free * 1000)
        return explain_misfit(pl, r, REASON_TARGET_QUEUE, g->waits, g->free);
    need.workers = place_workers(pl, g->class_);
    if (pl->need.workers == 1) {
        r->member = fit_single(t, r->group, n);
        if (r->member == NONE)
            return misfit_single(pl, r);
        r->packs = 1;
        r->nodes = nodes_with_room(g, n);
        r->gang.workers = 1;
        return true;
    }
    gang_fit(t, r->group, n, pl->pack, pl->a, &r->gang);
    r->nodes = g->n_ok;
    if (r->gang.workers) {
        r->member = r->gang.first;
        r->packs = r->gang.packs;
        return true;
    }
    if (r->gang.room == 0)
        return misfit_single(pl, r);
    r->nodes = g->n;
    if (r->gang.apart)
        return explain_misfit(pl, r, REASON_AGENTS, r->gang.room, n->workers);
    room = n->within ? r->gang.room_within : r->gang.room;
    if (pl->ranks && room >= pl->least && room < pl->ranks)
        return explain_misfit(pl, r, REASON_CHECKPOINT_RANKS, room, pl->ranks);
    if (n->within && r->gang.room >= n->min_workers)
        return explain_misfit(pl, r, REASON_TOPOLOGY, r->gang.room_within, n->workers);
    if (t->others && misfit_others(pl, r, n, room))
        return false;
    return explain_misfit(pl, r, REASON_GANG, r->gang.room, n->workers);
}

/* One row for alike misfits of a target: same class, reason and kind of capacity. */
static void row_merge(struct place *pl, struct row *r)
{
    const struct group *groups = pl->p->t.groups;

    for (uint32_t i = pl->n_rows; i-- > 0 && pl->rows[i].target == r->target;) {
        struct row *o = &pl->rows[i];

        if (o->fits || r->fits || o->reason != r->reason || o->group == NONE || r->group == NONE ||
            groups[o->group].class_ != groups[r->group].class_ ||
            groups[o->group].capacity != groups[r->group].capacity)
            continue;
        o->nodes += r->nodes;
        if (r->reason == REASON_FRACTION && !o->text)
            o->text = r->text; /* what a share there is says more */
        if (r->reason == REASON_GPU_BUSY && !r->text && !o->text) {
            o->x += r->x;
            o->y += r->y;
        } else if (r->x > o->x) {
            o->x = r->x;
            o->y = r->y;
        }
        return;
    }
    pl->n_rows++;
}

static void look_at_target(struct place *pl, uint32_t target)
{
    const struct target_rec *t = &pl->p->t.targets[target];
    struct target_verdict v;
    uint32_t before = pl->n_rows;

    if (!t->obj)
        return;
    v = filter_target(pl, target);
    if (v.reason != REASON_NONE) {
        pl->rows[pl->n_rows++] = (struct row){.target = target,
                                              .group = NONE,
                                              .reason = v.reason,
                                              .text = v.text,
                                              .x = v.x,
                                              .nodes = t->n_nodes};
        return;
    }
    for (uint32_t g = t->g0; g < t->g0 + t->n_groups; g++) {
        struct row *r = &pl->rows[pl->n_rows];

        need_at(pl, &pl->need, &pl->p->t.groups[g]);
        if (!group_asked_for(pl, g))
            continue;
        *r = (struct row){
            .target = target, .group = g, .nodes = pl->p->t.groups[g].n, .member = NONE};
        r->fits = filter_group(pl, r) && fit_row(pl, r);
        if (!r->fits)
            pause_zone(pl, r);
        row_merge(pl, r);
    }
    if (pl->n_rows == before)
        pl->rows[pl->n_rows++] = (struct row){
            .target = target, .group = NONE, .reason = REASON_NO_CLASS, .nodes = t->n_nodes};
}

int place_look(struct place *pl, const struct pool *cp, const struct place_request *rq,
               struct arena *a, struct err *err)
{
    struct hold *own;

    if (rq->workload->kind->id != KIND_WORKLOAD)
        return err_set(err, E_INTERNAL, "policy_place was given a %s", rq->workload->kind->kind);
    pl->p = pool_settle(cp);
    pool_zones((struct pool *)pl->p, rq->now_ms);
    pl->rq = rq;
    pl->a = a;
    pl->obj = rq->workload;
    /* One that runs and looks for another place gives back what it holds. */
    own = pool_hold_of(pl->p, rq->workload->meta->uid);
    pl->own = own && own->counted ? own : NULL;
    accounts_lay_aside((struct pool *)pl->p, own, -1);
    place_begin(pl);
    score_begin(pl);
    if (!place_refused(pl)) {
        for (uint32_t i = 0; i < pl->p->t.n_targets; i++)
            look_at_target(pl, i);
        score_rows(pl);
    }
    need_at(pl, &pl->need, NULL);
    accounts_lay_aside((struct pool *)pl->p, own, 1);
    return 0;
}

int policy_place(const struct pool *cp, const struct place_request *rq, struct arena *a,
                 struct decision_spec **ret_decision, struct placement **ret_placement,
                 struct err *err)
{
    struct pool *p = pool_settle(cp);
    struct place *pl;
    struct hold *room = pool_nominated(p, rq->workload->meta->uid);
    int r;

    *ret_placement = NULL;
    if (rq->memo && (*ret_decision = memo_find(rq->memo, p, rq, a)) != NULL)
        return 0;
    pl = arena_new(a, struct place);
    /* Room that is being made for it holds against others, not against itself. */
    if (room && room->off)
        room = NULL;
    if (room)
        hold_switch(p, room, false);
    r = place_look(pl, p, rq, a, err);
    if (r == 0)
        decision_record(pl, ret_decision, ret_placement);
    if (r == 0 && rq->memo && !*ret_placement)
        memo_keep(rq->memo, pl, *ret_decision);
    if (room)
        hold_switch(p, room, true);
    return r;
}
