/* The record of a decision: the chosen row first, then what else fits by score, then what does not
 * and why. At most LIMIT_DECISION_MAX_BYTES encoded: rows that do not go in are counted. What a
 * person reads carries figures. */
#include "policy/place/place_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SOURCES_MAX 34 /* a policy, a queue and 32 CompliancePolicies */
#define SOURCES_BYTES 1024
#define FIELD_BYTES ((size_t)12) /* tag, length and a number, at most */

/* ---- texts of every record: built by hand, printf's share of a decision was a tenth ---- */
struct text {
    char p[384];
    size_t n;
};

static void text_add(struct text *t, const char *s)
{
    size_t n = strlen(s), room = sizeof(t->p) - 1 - t->n;

    n = n < room ? n : room;
    memcpy(t->p + t->n, s, n);
    t->n += n;
    t->p[t->n] = '\0';
}

static void text_number(struct text *t, int64_t v, int digits)
{
    char out[24];
    size_t at = sizeof(out) - 1;
    uint64_t u = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;

    out[at] = '\0';
    for (; u || digits > 0; u /= 10, digits--)
        out[--at] = (char)('0' + u % 10);
    if (v < 0)
        out[--at] = '-';
    text_add(t, out + at);
}

static void text_gpus(struct text *t, int64_t milli)
{
    text_number(t, milli / 1000, 1);
    if (milli % 1000) {
        text_add(t, ".");
        text_number(t, (milli < 0 ? -milli : milli) % 1000 / 100, 1);
    }
}

void gpus_text(char *out, size_t size, int64_t milli)
{
    struct text t = {.n = 0};

    text_gpus(&t, milli);
    (void)snprintf(out, size, "%s", t.p);
}

static const char *level_text(enum domain_level level, bool many)
{
    static const char *const one[LEVEL_NR] = {"",      "node", "NVLink domain", "leaf",  "rack",
                                              "block", "zone", "region",        "target"};
    static const char *const more[LEVEL_NR] = {
        "", "nodes", "NVLink domains", "leaves", "racks", "blocks", "zones", "regions", "targets"};

    return many ? more[level] : one[level];
}

/* ---- sentences ---- */
static void text_capacity(const struct place *pl, const struct row *r, char *out, size_t n)
{
    const char *class_ = pl->p->t.classes[pl->p->t.groups[r->group].class_].name;
    int64_t per = pl->need.mode == NEED_WHOLE ? pl->need.count : 1;
    const char *what = pl->need.mode == NEED_WHOLE ? "" : " workers have room";
    const char *gpus = pl->need.mode == NEED_CPU ? "are ready" : "have the GPUs";
    char cpu[32];

    switch (r->reason) {
    case REASON_GPU_BUSY:
        if (r->text)
            (void)snprintf(out, n, "%lld of %lld free %s", (long long)r->x, (long long)r->y,
                           r->text);
        else if (!r->y && pl->p->t.groups[r->group].has_mig)
            (void)snprintf(out, n, "all %s there are cut into MIG instances", class_);
        else
            (void)snprintf(out, n, "%lld of %lld %s in use", (long long)r->x, (long long)r->y,
                           class_);
        return;
    case REASON_GANG:
        (void)snprintf(out, n, "%lld of %lld%s%s", (long long)r->x * per, (long long)r->y * per,
                       what[0] ? what : " free", what[0] ? "" : " for this gang");
        return;
    case REASON_TOPOLOGY:
        (void)snprintf(out, n, "%lld of %lld%s in one %s", (long long)r->x * per,
                       (long long)r->y * per, what[0] ? what : " free",
                       level_text(pl->need.within, false));
        return;
    case REASON_CPU:
        quantity_print_milli(r->y, cpu);
        (void)snprintf(out, n, "%lld nodes %s, none has %s CPU", (long long)r->x, gpus, cpu);
        return;
    case REASON_MEMORY:
        quantity_print_bytes(r->y, cpu);
        (void)snprintf(out, n, "%lld nodes %s, none has %s memory", (long long)r->x, gpus, cpu);
        return;
    case REASON_FRACTION:
        (void)snprintf(out, n, "no GPU that may be shared has %lld.%03lld free",
                       (long long)(r->x / 1000), (long long)(r->x % 1000));
        return;
    default:
        (void)snprintf(out, n, "%s", reason_sentence(r->reason));
    }
}

static void text_quota(const struct place *pl, const struct row *r, char *out, size_t n)
{
    const char *class_ = pl->p->t.classes[pl->p->t.groups[r->group].class_].name;
    char held[32], limit[32];

    gpus_text(held, sizeof(held), r->x);
    gpus_text(limit, sizeof(limit), r->y);
    if (r->reason == REASON_QUOTA_BURST)
        (void)snprintf(out, n, "%s of %s %s in use by queue %s", held, limit, class_, r->text);
    else
        (void)snprintf(out, n, "%s of %s free %s are guaranteed to other queues", held, limit,
                       class_);
}

static void text_money(const struct row *r, char *out, size_t n)
{
    (void)snprintf(out, n, "%.2f %s, %.2f allowed", (double)r->x / 10000, r->text,
                   (double)r->y / 10000);
}

static void text_ranks(const struct place *pl, const struct row *r, char *out, size_t n)
{
    const struct run_checkpoint *ck = pl->status ? pl->status->checkpoint : NULL;

    (void)snprintf(out, n,
                   "room for %lld worker%s; %s%.60s saved by %lld: it waits for %lld, or set "
                   "spec.checkpoint.reshard if its program can resume with another number",
                   (long long)r->x, r->x == 1 ? "" : "s", ck ? "checkpoint " : "it runs and is",
                   ck ? ck->name : "", (long long)r->y, (long long)r->y);
}

static void text_misfit(const struct place *pl, const struct row *r, char *out, size_t n)
{
    char a[32], b[32];

    switch (r->reason) {
    case REASON_SPILL_WAIT:
        if (r->x < 0) {
            (void)snprintf(out, n, "opens when earlier tiers are in use as far as the policy says");
            return;
        }
        duration_print((r->x + 999) / 1000 * 1000, a);
        (void)snprintf(out, n, "opens in %s", a);
        return;
    case REASON_QUOTA_BURST:
    case REASON_QUOTA_GUARANTEED:
        text_quota(pl, r, out, n);
        return;
    case REASON_GPU_MEMORY:
        quantity_print_bytes(r->x, a);
        quantity_print_bytes(r->y, b);
        (void)snprintf(out, n, "%s of memory, %s asked for", a, b);
        return;
    case REASON_PRICE_CAP:
        text_money(r, out, n);
        return;
    case REASON_INTERCONNECT:
        if (r->x > 0)
            (void)snprintf(out, n, "%s joins at most %lld GPUs of a node, %lld asked for", r->text,
                           (long long)r->x, (long long)r->y);
        else
            (void)snprintf(out, n, "the nodes have no %s", r->text);
        return;
    case REASON_CHECKPOINT_RANKS:
        text_ranks(pl, r, out, n);
        return;
    case REASON_CAPACITY_KIND:
        (void)snprintf(out, n, "the policy does not use %s capacity here", r->text);
        return;
    case REASON_POLICY_FORBIDS:
        (void)snprintf(out, n, "policy %s does not allow this target", r->text);
        return;
    case REASON_STORE:
        (void)snprintf(out, n, "spec.stores of the target does not list %.200s", r->text);
        return;
    case REASON_RUNNER_MISSING:
        (void)snprintf(out, n, "%s", r->text);
        return;
    case REASON_TARGET_LIMIT:
        (void)snprintf(out, n, "the target holds its %lld workloads", (long long)r->x);
        return;
    case REASON_NODE_NOT_READY:
        (void)snprintf(out, n, "none of %lld nodes is ready%s", (long long)r->y, r->text);
        return;
    default:
        if (r->group == NONE || r->text)
            (void)snprintf(out, n, "%s", r->text ? r->text : reason_sentence(r->reason));
        else
            text_capacity(pl, r, out, n);
    }
}

static void row_sentence(const struct place *pl, const struct row *r, char *out, size_t n)
{
    if (r->reason == REASON_GPU_BUSY)
        text_capacity(pl, r, out, n);
    else
        text_misfit(pl, r, out, n);
}

/* ---- which reason tells most ---- */
/* Of room that is kept for the heads of queues it is not told as free. */
static void kept_text(struct place *pl, const struct row *best, size_t used)
{
    for (uint32_t i = 0; i < pl->p->n_reserved; i++) {
        const struct hold *h = pl->p->reserved[i];

        if (h->off || best->group == NONE || reason_cure(best->reason) != CURE_ROOM ||
            strcmp(h->target, pl->p->t.targets[best->target].name) != 0)
            continue;
        (void)snprintf(pl->message + used, sizeof(pl->message) - used,
                       "; room there is kept for %.60s/%.60s, for work that ends before it starts "
                       "(spec.expected.duration) it is not",
                       h->workload->meta->namespace_, h->workload->meta->name);
        return;
    }
}

static void pending_reason(struct place *pl)
{
    const struct row *best = NULL;
    char text[PLACE_TEXT_MAX] = "", left[PLACE_TEXT_MAX];
    size_t used;

    if (pl->pending != REASON_NONE)
        return;
    for (uint32_t i = 0; i < pl->n_rows; i++) {
        const struct row *r = &pl->rows[i];
        bool sooner = best && r->reason == REASON_SPILL_WAIT && best->reason == r->reason &&
                      r->x >= 0 && (best->x < 0 || r->x < best->x);

        if (!best || reason_stage(r->reason) > reason_stage(best->reason) || sooner)
            best = r;
    }
    pl->pending = best ? best->reason : REASON_NO_FIT;
    if (!best)
        return;
    row_sentence(pl, best, text, sizeof(text));
    used = 0;
    for (uint32_t i = 0; i < pl->n_rows && used < 160; i++) { /* all targets that it holds for */
        if (pl->rows[i].reason == best->reason &&
            (pl->rows[i].group == NONE) == (best->group == NONE) &&
            (best->group == NONE ? pl->rows[i].reason == best->reason : &pl->rows[i] == best))
            used += (size_t)snprintf(pl->message + used, sizeof(pl->message) - used, "%s%s",
                                     used ? ", " : "", pl->p->t.targets[pl->rows[i].target].name);
    }
    str_cut_words(left, sizeof(pl->message) - used - 2, text);
    used += (size_t)snprintf(pl->message + used, sizeof(pl->message) - used, ": %s", left);
    kept_text(pl, best, used);
}

/* ---- rows → candidates ---- */
static int cmp_row(const void *pa, const void *pb)
{
    const struct row *a = *(const struct row *const *)pa, *b = *(const struct row *const *)pb;

    if (a->reason == REASON_CHOSEN || b->reason == REASON_CHOSEN)
        return a->reason == REASON_CHOSEN ? -1 : 1;
    if (a->fits != b->fits)
        return a->fits ? -1 : 1;
    if (a->fits && a->score != b->score)
        return a->score > b->score ? -1 : 1;
    /* Rows stand in the order of targets and groups: a fixed one. */
    return (a > b) - (a < b);
}

static const struct row **rows_sorted(struct place *pl)
{
    const struct row **v = arena_array(pl->a, const struct row *, pl->n_rows + 1);

    for (uint32_t i = 0; i < pl->n_rows; i++) {
        struct row *r = &pl->rows[i];

        if (r->fits)
            r->reason = r == pl->chosen ? REASON_CHOSEN : REASON_LOWER_SCORE;
        v[i] = r;
    }
    if (pl->n_rows > 1)
        qsort(v, pl->n_rows, sizeof(*v), cmp_row);
    return v;
}

static const char *fit_sentence(const struct place *pl, const struct row *r)
{
    INV(pl->chosen); /* r fits: score_rows() chose one */
    if (r->rank != pl->chosen->rank)
        return "fits, but a step of the policy's order before it does, too";
    if (r->reason != REASON_CHOSEN && r->gang.workers < pl->chosen->gang.workers)
        return "fits with fewer workers";
    if (r->reason == REASON_CHOSEN && pl->chosen_because)
        return pl->chosen_because;
    return reason_sentence(r->reason);
}

static void fill_fit(struct place *pl, const struct row *r, struct candidate *c)
{
    static const char *const names[TERM_NR] = {"cost", "locality", "topology", "energy", "targets"};

    c->fits = true;
    c->chosen = r->reason == REASON_CHOSEN;
    c->message = fit_sentence(pl, r);
    c->usefulGpuHour = r->useful;
    c->score = r->score;
    if (pl->spec->n_data || r->move_bytes > 0) {
        char bytes[32];

        quantity_print_bytes(r->move_bytes, bytes);
        c->data = r->move_bytes > 0 ? arena_strdup(pl->a, bytes) : "local";
    }
    if (pl->need.workers > 1)
        c->topology = arena_printf(pl->a, "%u %s", r->packs, level_text(r->pack, r->packs != 1));
    else
        c->topology = "1 node";
    c->terms = arena_array(pl->a, struct score_term, TERM_NR);
    for (int k = 0; k < TERM_NR; k++) {
        if (pl->weight[k] <= 0)
            continue;
        c->terms[c->n_terms].name = names[k];
        c->terms[c->n_terms].value = r->term[k];
        c->terms[c->n_terms++].weight = pl->weight[k];
    }
}

static size_t row_to_candidate(struct place *pl, const struct row *r,
                               const struct candidate *before, struct candidate *c)
{
    const struct table *t = &pl->p->t;
    char text[PLACE_TEXT_MAX], cut[CANDIDATE_TEXT_MAX];

    /* Rows of one target stand together mostly: they share the copy of its name. */
    c->target = before && strcmp(before->target, t->targets[r->target].name) == 0
                    ? before->target
                    : arena_strdup(pl->a, t->targets[r->target].name);
    c->tier = t->targets[r->target].spec->tier;
    c->class_ = c->data = c->topology = c->example = "";
    c->reason = reason_text(r->reason);
    c->nodes = r->nodes;
    if (r->group != NONE) {
        c->class_ = arena_strdup(pl->a, t->classes[t->groups[r->group].class_].name);
        c->capacity = t->groups[r->group].capacity;
    }
    if (r->fits) {
        c->example = arena_strdup(pl->a, t->nodes[t->members[r->member].node].obj->meta->name);
        fill_fit(pl, r, c);
    } else {
        row_sentence(pl, r, text, sizeof(text));
        str_cut_words(cut, sizeof(cut), text);
        c->message = arena_strdup(pl->a, cut);
    }
    return strlen(c->target) + strlen(c->class_) + strlen(c->reason) + strlen(c->message) +
           strlen(c->data) + strlen(c->topology) + strlen(c->example) + 16 * FIELD_BYTES +
           c->n_terms * (3 * FIELD_BYTES + 16);
}

static bool audit_forbids(const struct place *pl, uint32_t i)
{
    const struct docs *targets = &pl->p->docs[KIND_TARGET];

    return compliance_forbids(object_as(pl->compliance[i], compliance_policy)->spec->allow,
                              pl->covers[i], pl->p->t.targets[pl->chosen->target].obj,
                              store_asked(pl->spec), targets->v, targets->n);
}

static size_t add_names(struct place *pl, struct decision_spec *d)
{
    size_t bytes = 0;

    d->losers = arena_array(pl->a, const char *, 16);
    for (size_t i = 0; i < pl->n_losers && d->n_losers < 16 && bytes < 512; i++) {
        d->losers[d->n_losers] = arena_strdup(pl->a, pl->losers[i]->meta->name);
        bytes += strlen(d->losers[d->n_losers++]) + FIELD_BYTES;
    }
    d->compliance = arena_array(pl->a, const char *, 32);
    for (uint32_t i = 0; i < pl->n_compliance && d->n_compliance < 32 && bytes < 1024; i++) {
        const struct compliance_policy_spec *s =
            object_as(pl->compliance[i], compliance_policy)->spec;
        const char *name = pl->compliance[i]->meta->name;
        bool would = s->mode == MODE_AUDIT && pl->chosen && audit_forbids(pl, i);

        name = s->mode != MODE_AUDIT
                   ? arena_strdup(pl->a, name)
                   : arena_printf(pl->a, "%s (audit%s)", name, would ? ": would forbid this" : "");
        d->compliance[d->n_compliance] = name;
        bytes += strlen(d->compliance[d->n_compliance++]) + FIELD_BYTES;
    }
    return bytes;
}

/* Adds what it came with, if with anything. */
static size_t add_source(struct place *pl, struct decision_spec *d, const struct object *o)
{
    const struct meta *m = o->meta;
    const char *set = label_get(m->annotations, m->n_annotations, SET_ANNOTATION);
    struct policy_source *s = d->sources, *end;
    size_t bytes = 0;

    set = set && strlen(set) <= 63 ? set : "";
    if (!*set && !*m->revision)
        return 0;
    if (!s)
        s = d->sources = arena_array(pl->a, struct policy_source, SOURCES_MAX);
    end = s + d->n_sources;
    while (s < end && (strcmp(s->set, set) != 0 || strcmp(s->revision, m->revision) != 0))
        s++;
    if (s == end) {
        *s = (struct policy_source){.set = arena_strdup(pl->a, set),
                                    .revision = arena_strdup(pl->a, m->revision),
                                    .policies = arena_array(pl->a, const char *, SOURCES_MAX)};
        d->n_sources++;
        bytes += strlen(set) + strlen(m->revision) + 3 * FIELD_BYTES;
    }
    s->policies[s->n_policies] = arena_printf(pl->a, "%s/%s", o->kind->kind, m->name);
    return bytes + strlen(s->policies[s->n_policies++]) + FIELD_BYTES;
}

/* Where the policies and the queue came from that took part. */
static size_t add_sources(struct place *pl, struct decision_spec *d)
{
    size_t bytes = 0;
    bool same = true;

    if (pl->policy)
        bytes += add_source(pl, d, pl->policy);
    if (pl->queue != NONE)
        bytes += add_source(pl, d, pl->p->docs[KIND_QUEUE].v[pl->queue]);
    for (uint32_t i = 0; i < d->n_compliance; i++)
        if (bytes < SOURCES_BYTES)
            bytes += add_source(pl, d, pl->compliance[i]);
    for (uint32_t i = 1; i < d->n_sources; i++)
        same = same && !strcmp(d->sources[i].revision, d->sources[0].revision);
    d->revision = same && d->n_sources ? d->sources[0].revision : "";
    return bytes;
}

static void add_candidates(struct place *pl, struct decision_spec *d, size_t used)
{
    const struct row **rows = rows_sorted(pl);
    size_t bytes;

    d->candidates = arena_array(pl->a, struct candidate, pl->n_rows < 64 ? pl->n_rows + 1 : 64);
    for (uint32_t i = 0; i < pl->n_rows; i++) {
        struct candidate *c = &d->candidates[d->n_candidates];

        if (d->n_candidates < 64) {
            bytes = row_to_candidate(pl, rows[i], d->n_candidates ? c - 1 : NULL, c);
            if (used + bytes <= LIMIT_DECISION_MAX_BYTES) {
                used += bytes;
                d->n_candidates++;
                continue;
            }
            *c = (struct candidate){0};
        }
        d->omitted = pl->n_rows - i;
        return;
    }
}

/* ---- the placement ---- */
static const char *path_part(const struct place *pl, uint32_t node, enum domain_level level)
{
    const struct node_rec *n = &pl->p->t.nodes[node];
    const struct topology *w = n->doc->spec->topology;
    const struct target_spec *s = pl->p->t.targets[n->target].spec;

    switch (level) {
    case LEVEL_REGION:
        return w && w->region[0] ? w->region : s->region;
    case LEVEL_ZONE:
        return w && w->zone[0] ? w->zone : s->site;
    case LEVEL_BLOCK:
        return w ? w->block : "";
    default:
        return w ? w->rack : "";
    }
}

/* region/zone/block/rack as far as all workers share it; levels that are not told are left out. */
static const char *domain_path(const struct place *pl, uint32_t first, uint32_t last)
{
    static const enum domain_level levels[] = {LEVEL_REGION, LEVEL_ZONE, LEVEL_BLOCK, LEVEL_RACK};
    const struct node_rec *n = pl->p->t.nodes;
    struct text t;

    t.n = 0;
    t.p[0] = '\0';
    for (size_t i = 0; i < sizeof(levels) / sizeof(*levels); i++) {
        const char *part = path_part(pl, first, levels[i]);

        if (!part[0])
            continue;
        if (n[first].domain[levels[i]] != n[last].domain[levels[i]])
            break;
        text_add(&t, t.n ? "/" : "");
        text_add(&t, part);
    }
    return arena_strndup(pl->a, t.p, t.n);
}

static struct placement *make_placement(struct place *pl)
{
    const struct table *t = &pl->p->t;
    const struct row *r = pl->chosen;
    const struct group *g = &t->groups[r->group];
    struct placement *p = arena_new(pl->a, struct placement);
    uint32_t first = t->members[r->member].node, last = first;

    need_at(pl, &pl->need, g);
    p->target = arena_strdup(pl->a, t->targets[r->target].name);
    p->capacity = g->capacity;
    p->class_ = pl->need.mode == NEED_CPU ? "" : arena_strdup(pl->a, t->classes[g->class_].name);
    p->gpuHourPrice = r->price;
    p->decision = "";
    p->since = pl->rq->now_ms;
    p->cpu = pl->need.cpu;
    p->memory = pl->need.memory;
    p->gpus = need_milli(&pl->need, r->gang.workers);
    p->n_assignments = r->gang.workers;
    p->assignments = arena_array(pl->a, struct assignment, p->n_assignments);
    if (pl->need.workers == 1) {
        fit_seat(pl, r->member, NULL, &p->assignments[0], 0);
    } else {
        struct fit_taken *taken = arena_new(pl->a, struct fit_taken);
        int64_t rank = 0;

        for (uint32_t i = 0; i < g->n; i++) {
            if (!r->gang.take[i])
                continue;
            last = t->members[g->m0 + i].node;
            *taken = (struct fit_taken){0};
            for (uint32_t k = 0; k < r->gang.take[i]; k++, rank++)
                fit_seat(pl, g->m0 + i, taken, &p->assignments[rank], rank);
        }
    }
    p->domain = domain_path(pl, first, last);
    return p;
}

static const char *placed_sentence(struct place *pl, const struct placement *p)
{
    struct text t;

    t.n = 0;
    text_add(&t, p->target);
    text_add(&t, p->domain[0] ? ", " : "");
    text_add(&t, p->domain);
    text_add(&t, ", ");
    if (!p->class_[0]) {
        text_number(&t, p->n_assignments, 1);
        text_add(&t, p->n_assignments == 1 ? " worker" : " workers");
    } else {
        text_gpus(&t, p->gpus);
        text_add(&t, " \xc3\x97 ");
        text_add(&t, p->class_);
        text_add(&t, price_text(pl, p));
    }
    return arena_strndup(pl->a, t.p, t.n);
}

void decision_record(struct place *pl, struct decision_spec **ret_decision,
                     struct placement **ret_placement)
{
    struct decision_spec *d = arena_new(pl->a, struct decision_spec);
    struct placement *placement = NULL;
    size_t used;

    d->workload = arena_strdup(pl->a, pl->obj->meta->name);
    d->workloadUid = arena_strdup(pl->a, pl->obj->meta->uid);
    d->logIndex = pl->rq->log_index;
    d->policy = pl->policy ? arena_strdup(pl->a, pl->policy->meta->name) : "";
    d->queue = arena_strdup(pl->a, pl->queue_name);
    d->at = pl->rq->now_ms;
    d->seed = (int64_t)pl->rq->seed;
    d->queuePosition = pl->rq->queue_position;
    if (pl->chosen) {
        placement = make_placement(pl);
        d->outcome = "Placed";
        d->epoch = (pl->status ? pl->status->epoch : 0) + 1;
        d->reason = reason_text(REASON_CHOSEN);
        d->message = placed_sentence(pl, placement);
    } else {
        pending_reason(pl);
        d->outcome = "Pending";
        d->reason = reason_text(pl->pending);
        d->message =
            arena_strdup(pl->a, pl->message[0] ? pl->message : reason_sentence(pl->pending));
    }
    used = add_names(pl, d);
    used += add_sources(pl, d);
    used += RECORD_NAME_BYTES(strlen(d->workload)) + RECORD_NAME_BYTES(strlen(d->workloadUid)) +
            strlen(d->revision) + strlen(d->policy) + strlen(d->queue) + strlen(d->message) +
            strlen(d->reason) + 19 * FIELD_BYTES;
    add_candidates(pl, d, used);
    *ret_decision = d;
    *ret_placement = placement;
}

void policy_decision_hint(struct decision_spec *d, const char **hints, uint32_t n)
{
    d->hints = hints;
    d->n_hints = n;
    for (;;) {
        struct buf b;
        size_t bytes;

        buf_init(&b, 1 << 20);
        bytes = tlv_encode(&schema_decision_spec, d, &b, NULL) < 0 ? SIZE_MAX : b.n;
        buf_fini(&b);
        if (bytes <= LIMIT_DECISION_MAX_BYTES || d->n_candidates == 0)
            return;
        d->n_candidates--;
        d->omitted++;
    }
}
