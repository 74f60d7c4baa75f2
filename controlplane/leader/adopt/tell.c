/* The report: Jobs, what else holds devices, and sums over all of them, whether they are shown or
 * not. What is missing in it is said. */
#include "controlplane/leader/adopt/shadow_internal.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

#define SIDES 3

static void text(cJSON *j, const char *key, const char *value)
{
    (void)cJSON_AddStringToObject(j, key, value);
}

static void number(cJSON *j, const char *key, double value)
{
    (void)cJSON_AddNumberToObject(j, key, value);
}

static void time_add(cJSON *j, const char *key, int64_t ms)
{
    char at[32];

    if (!ms)
        return;
    time_print(ms, at);
    text(j, key, at);
}

static double gpus(int64_t milli)
{
    return (double)milli / 1000;
}

/* ---- nodes, each with what is held of it ---- */
static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct shadow_node *)a)->name, ((const struct shadow_node *)b)->name);
}

void shadow_nodes_sum(struct shadow_node *v, size_t n, struct shadow_nodes *ret)
{
    *ret = (struct shadow_nodes){.n = 0};
    qsort(v, n, sizeof *v, by_name);
    for (size_t at = 0; at < n;) {
        struct shadow_node one = {v[at].name, 0};

        for (; at < n && strcmp(v[at].name, one.name) == 0; at++)
            one.milli += v[at].milli;
        if (ret->n < SHADOW_NODES_SHOWN)
            ret->v[ret->n++] = one;
        else
            ret->more++;
    }
}

/* Without the Target's name ahead of each. */
static void nodes_add(cJSON *j, const struct shadow_nodes *nodes)
{
    cJSON *list = cJSON_AddArrayToObject(j, "nodes");

    for (size_t i = 0; i < nodes->n; i++) {
        const char *name = nodes->v[i].name, *dot = strchr(name, '.');
        cJSON *node = cJSON_CreateObject();

        text(node, "name", dot ? dot + 1 : name);
        number(node, "gpus", gpus(nodes->v[i].milli));
        (void)cJSON_AddItemToArray(list, node);
    }
    if (nodes->more)
        number(j, "moreNodes", (double)nodes->more);
}

static void now_nodes(cJSON *j, const struct shadow_job *job, struct arena *a)
{
    struct shadow_nodes nodes;
    size_t n = 0;

    for (const struct shadow_hold *h = job->holds; h; h = h->next)
        n++;
    struct shadow_node *v = arena_array(a, struct shadow_node, n + 1);
    n = 0;
    for (const struct shadow_hold *h = job->holds; h; h = h->next)
        v[n++] = (struct shadow_node){h->node, h->milli};
    shadow_nodes_sum(v, n, &nodes);
    nodes_add(j, &nodes);
}

/* ---- one Job ---- */
static const char *state_of(const struct shadow_job *j)
{
    if (j->runs)
        return "Running";
    if (j->pods)
        return "Starting";
    return j->suspended ? "Suspended" : "Waiting";
}

static const char *class_now(const struct shadow_job *j)
{
    const char *class_ = "";

    for (const struct shadow_hold *h = j->holds; h; h = h->next) {
        if (!*h->class_)
            continue;
        if (*class_ && strcmp(class_, h->class_) != 0)
            return "several";
        class_ = h->class_;
    }
    return class_;
}

static void would_add(cJSON *row, const struct shadow_job *j)
{
    cJSON *w = cJSON_AddObjectToObject(row, "hanse");

    text(w, "namespace", j->hanse_ns);
    if (!j->decided)
        return;
    text(w, "outcome", j->outcome);
    text(w, "queue", j->queue);
    text(w, "policy", j->policy);
    text(w, "reason", j->reason);
    text(w, "message", j->message);
    if (!j->target)
        return;
    text(w, "target", j->target);
    text(w, "class", j->class_);
    number(w, "gpus", gpus(j->would_milli));
    nodes_add(w, &j->nodes);
    if (j->would_priced) {
        number(w, "costPerHour", j->would_cost);
        text(w, "currency", j->would_currency);
    }
}

static cJSON *job_json(const struct shadow_job *j, struct arena *a)
{
    cJSON *row = cJSON_CreateObject(), *notes;

    text(row, "kind", "Job");
    text(row, "namespace", j->ns);
    text(row, "name", j->name);
    text(row, "state", state_of(j));
    time_add(row, "created", j->made_ms);
    time_add(row, "since", j->since_ms);
    number(row, "workers", (double)j->workers);
    number(row, "gpusAsked", gpus(j->asks_milli));
    number(row, "pods", (double)j->pods);
    number(row, "gpus", gpus(j->milli));
    text(row, "class", class_now(j));
    now_nodes(row, j, a);
    if (j->priced && !j->mixed && j->pods) {
        number(row, "costPerHour", j->cost);
        text(row, "currency", j->currency);
    }
    (void)cJSON_AddBoolToObject(row, "adoptable", !j->why);
    if (j->why)
        text(row, "why", j->why);
    else
        would_add(row, j);
    notes = cJSON_AddArrayToObject(row, "warnings");
    for (unsigned i = 0; i < j->n_notes; i++) {
        cJSON *n = cJSON_CreateObject();
        text(n, "field", j->notes[i].field);
        text(n, "message", j->notes[i].text);
        (void)cJSON_AddItemToArray(notes, n);
    }
    if (j->more_notes)
        number(row, "moreWarnings", j->more_notes);
    return row;
}

static cJSON *group_json(const struct shadow_group *g)
{
    cJSON *row = cJSON_CreateObject();

    text(row, "kind", g->kind);
    text(row, "namespace", g->ns);
    text(row, "name", g->name);
    time_add(row, "since", g->since_ms);
    number(row, "pods", (double)g->pods);
    number(row, "gpus", gpus(g->milli));
    text(row, "reason", g->code);
    text(row, "why", g->why);
    return row;
}

/* ---- sums ---- */
struct sums {
    uint64_t jobs, adoptable, owned, refused;
    int64_t milli, adoptable_milli, refused_milli;
    struct {
        uint64_t jobs;
        int64_t milli;
    } here, elsewhere, waits;
    /* of those that run, would be placed, and of which both prices are known in one currency */
    uint64_t compared, uncompared;
    double cost, would_cost;
    const char *currency; /* NULL: of several */
};

static void compare(struct sums *t, const struct shadow_job *j)
{
    bool both =
        j->priced && !j->mixed && j->would_priced && strcmp(j->currency, j->would_currency) == 0;

    if (!j->milli || !j->target)
        return;
    if (!both || (t->compared && t->currency && strcmp(t->currency, j->currency) != 0)) {
        t->uncompared++;
        return;
    }
    t->currency = j->currency;
    t->compared++;
    t->cost += j->cost;
    t->would_cost += j->would_cost;
}

static struct sums sums_of(const struct shadow *s)
{
    struct sums t = {.currency = ""};

    for (size_t i = 0; i < s->n_jobs; i++) {
        const struct shadow_job *j = s->jobs[i];

        t.jobs++;
        t.milli += j->milli;
        if (j->why) {
            t.owned += j->owned;
            t.refused += !j->owned;
            t.refused_milli += j->milli;
            continue;
        }
        t.adoptable++;
        t.adoptable_milli += j->milli;
        bool here = j->target && strcmp(j->target, s->target) == 0;
        t.here.jobs += here;
        t.here.milli += here ? j->would_milli : 0;
        t.elsewhere.jobs += j->target && !here;
        t.elsewhere.milli += j->target && !here ? j->would_milli : 0;
        t.waits.jobs += !j->target;
        t.waits.milli += j->target ? 0 : j->asks_milli;
        compare(&t, j);
    }
    return t;
}

static void pair_add(cJSON *to, const char *key, uint64_t jobs, int64_t milli)
{
    cJSON *j = cJSON_AddObjectToObject(to, key);

    number(j, "jobs", (double)jobs);
    number(j, "gpus", gpus(milli));
}

static void others_sum(cJSON *to, const struct shadow *s)
{
    static const char *const codes[SIDES] = {"Bare", "Controller", "JobGone"};
    cJSON *list = cJSON_AddArrayToObject(to, "others");

    for (unsigned c = 0; c < SIDES; c++) {
        uint64_t pods = 0;
        int64_t milli = 0;
        cJSON *j;

        for (size_t i = 0; i < s->n_groups; i++) {
            bool is = strcmp(s->groups[i].code, codes[c]) == 0;
            pods += is ? s->groups[i].pods : 0;
            milli += is ? s->groups[i].milli : 0;
        }
        if (!pods)
            continue;
        j = cJSON_CreateObject();
        text(j, "reason", codes[c]);
        number(j, "pods", (double)pods);
        number(j, "gpus", gpus(milli));
        (void)cJSON_AddItemToArray(list, j);
    }
}

static void totals_add(cJSON *to, const struct shadow *s)
{
    cJSON *j = cJSON_AddObjectToObject(to, "totals"), *cost;
    struct sums t = sums_of(s);

    number(j, "jobs", (double)t.jobs);
    number(j, "gpus", gpus(t.milli));
    pair_add(j, "adoptable", t.adoptable, t.adoptable_milli);
    pair_add(j, "notAdoptable", t.owned + t.refused, t.refused_milli);
    number(j, "ownedJobs", (double)t.owned);
    number(j, "refusedJobs", (double)t.refused);
    pair_add(j, "here", t.here.jobs, t.here.milli);
    pair_add(j, "elsewhere", t.elsewhere.jobs, t.elsewhere.milli);
    pair_add(j, "waiting", t.waits.jobs, t.waits.milli);
    others_sum(j, s);
    number(j, "podsWithoutGpus", (double)s->plain_pods);
    cost = cJSON_AddObjectToObject(j, "cost");
    number(cost, "jobs", (double)t.compared);
    number(cost, "notCompared", (double)t.uncompared);
    if (!t.compared)
        return;
    number(cost, "now", t.cost);
    number(cost, "hanse", t.would_cost);
    text(cost, "currency", t.currency);
}

/* ---- the whole ---- */
static int by_size(const void *a, const void *b)
{
    const struct shadow_job *const *x = a, *const *y = b;

    if ((*x)->devices != (*y)->devices)
        return (*x)->devices ? -1 : 1;
    if ((*x)->milli != (*y)->milli)
        return (*x)->milli > (*y)->milli ? -1 : 1;
    int order = strcmp((*x)->ns, (*y)->ns);
    return order ? order : strcmp((*x)->name, (*y)->name);
}

static int groups_by_size(const void *a, const void *b)
{
    const struct shadow_group *x = a, *y = b;

    if (x->milli != y->milli)
        return x->milli > y->milli ? -1 : 1;
    int order = strcmp(x->ns, y->ns);
    return order ? order : strcmp(x->name, y->name);
}

static void lacks_add(cJSON *j, const struct shadow *s)
{
    AUTO_BUF b;
    const char *sep = "";

    buf_init(&b, 2048);
    if (s->jobs_omitted) {
        buf_printf(&b, "%llu Jobs beyond the first %d were not looked at",
                   (unsigned long long)s->jobs_omitted, SHADOW_JOBS_MAX);
        sep = "; ";
    }
    if (s->omitted_pods) {
        buf_printf(&b, "%s%llu pods with %.10g GPUs are in no row", sep,
                   (unsigned long long)s->omitted_pods, gpus(s->omitted_milli));
        sep = "; ";
    }
    if (s->holds_omitted) {
        buf_printf(&b, "%swhat %llu pods hold is taken for held", sep,
                   (unsigned long long)s->holds_omitted);
        sep = "; ";
    }
    if (s->unread_pods)
        buf_printf(&b, "%s%llu pods hold more kinds of devices than are counted", sep,
                   (unsigned long long)s->unread_pods);
    text(j, "lacks", b.n ? b.p : "");
}

void shadow_tell(const struct shadow *s, size_t limit, int64_t now_ms, struct buf *out)
{
    AUTO_ARENA a = arena_create(0);
    cJSON *j = cJSON_CreateObject(), *list;
    size_t shown = s->n_jobs < limit ? s->n_jobs : limit;
    size_t shown_groups = s->n_groups < limit ? s->n_groups : limit;

    text(j, "kind", "ShadowReport");
    text(j, "target", s->target);
    text(j, "namespace", s->ns);
    time_add(j, "at", now_ms);
    (void)cJSON_AddBoolToObject(j, "observeOnly", s->observe_only);
    struct shadow_job **jobs = arena_array(a, struct shadow_job *, s->n_jobs + 1);
    for (size_t i = 0; i < s->n_jobs; i++)
        jobs[i] = s->jobs[i];
    qsort(jobs, s->n_jobs, sizeof *jobs, by_size);
    list = cJSON_AddArrayToObject(j, "jobs");
    for (size_t i = 0; i < shown; i++)
        (void)cJSON_AddItemToArray(list, job_json(jobs[i], a));
    number(j, "omittedJobs", (double)(s->n_jobs - shown));
    struct shadow_group *groups = arena_array(a, struct shadow_group, s->n_groups + 1);
    for (size_t i = 0; i < s->n_groups; i++)
        groups[i] = s->groups[i];
    qsort(groups, s->n_groups, sizeof *groups, groups_by_size);
    list = cJSON_AddArrayToObject(j, "others");
    for (size_t i = 0; i < shown_groups; i++)
        (void)cJSON_AddItemToArray(list, group_json(&groups[i]));
    number(j, "omittedOthers", (double)(s->n_groups - shown_groups));
    totals_add(j, s);
    lacks_add(j, s);
    char *printed = cJSON_PrintUnformatted(j);
    buf_str(out, printed ? printed : "{}");
    cJSON_free(printed);
    cJSON_Delete(j);
}
