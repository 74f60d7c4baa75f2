/* Orphans: runs that targets list and that the state cannot answer for. They are shown, they keep
 * new work off the devices that they hold, and nothing else happens to them before a user acts
 * (acts.c). The list is the leader's memory of the last sweep; the next sweep makes it anew. */

#include "controlplane/leader/recover/orphans.h"

#include "api/base/log.h"
#include "controlplane/leader/doubt/cold.h"
#include "controlplane/leader/queue/scheduler.h"
#include "controlplane/leader/site/sites.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

static const char *const whys[ORPHAN_WHY_NR] = {"",
                                                "",
                                                "newer than the state",
                                                "from before the state was restored",
                                                "of a Workload that was deleted",
                                                "of another cluster",
                                                "called ended by its target before"};

static void list_free(struct orphans *l)
{
    for (size_t i = 0; i < l->n; i++)
        mem_free(l->v[i].holds);
    mem_free(l->v);
    *l = (struct orphans){0};
}

static bool alive(const struct orphan *o)
{
    return o->seen.state != RUN_ENDED && o->seen.state != RUN_ABSENT;
}

const struct orphan *orphan_find(const struct site *t, const char *key)
{
    for (size_t i = 0; i < t->orphans.n; i++) {
        char text[RUN_KEY_MAX];
        run_key_print(&t->orphans.v[i].seen.key, text);
        if (!strcmp(text, key))
            return &t->orphans.v[i];
    }
    return NULL;
}

void orphans_begin(struct site *t)
{
    list_free(&t->found);
}

/* Several agents of a target list what each has of one run: it lives where one says so. */
static bool found_before(struct orphans *f, const struct run_listed *l)
{
    for (size_t i = 0; i < f->n; i++) {
        struct orphan *o = &f->v[i];
        if (o->seen.key.epoch != l->seen.key.epoch || o->seen.key.try_ != l->seen.key.try_ ||
            strcmp(o->seen.key.uid, l->seen.key.uid) != 0)
            continue;
        o->holds = mem_realloc(o->holds, (o->n_holds + l->n_holds + 1) * sizeof *o->holds);
        for (size_t k = 0; k < l->n_holds; k++)
            o->holds[o->n_holds++] = l->holds[k];
        if (!alive(o))
            o->seen = l->seen;
        return true;
    }
    return false;
}

void orphan_found(struct site *t, const struct run_listed *l, enum orphan_why why)
{
    struct orphans *f = &t->found;
    char key[RUN_KEY_MAX];

    if (found_before(f, l))
        return;
    if (f->n == ORPHANS_MAX) {
        f->more++;
        return;
    }
    f->v = mem_realloc(f->v, (f->n + 1) * sizeof *f->v);
    struct orphan *o = &f->v[f->n++];
    *o = (struct orphan){
        .seen = l->seen, .why = why, .state_rv = l->state_rv, .since_ms = l->since_ms};
    str_copy(o->cluster, sizeof o->cluster, l->cluster);
    str_copy(o->ns, sizeof o->ns, l->ns);
    str_copy(o->name, sizeof o->name, l->name);
    if (l->n_holds) {
        o->holds = mem_alloc(l->n_holds * sizeof *o->holds);
        memcpy(o->holds, l->holds, l->n_holds * sizeof *o->holds);
        o->n_holds = l->n_holds;
    }
    run_key_print(&l->seen.key, key);
    if (!orphan_find(t, key))
        log_event(LOG_WARN, "run.orphan",
                  LOG_FIELDS({"target", log_str(t->name)}, {"key", log_str(key)},
                             {"workload", log_str(l->name)}, {"cluster", log_str(l->cluster)},
                             {"why", log_str(whys[why])}));
}

/* ---- what they hold is not given away ---- */
bool orphan_on_node(const struct brain *b, const char *target, const char *node)
{
    const struct site *t = site_find((struct brain *)(uintptr_t)b, target);

    for (size_t i = 0; t && i < t->orphans.n; i++) {
        const struct orphan *o = &t->orphans.v[i];
        for (size_t k = 0; alive(o) && k < o->n_holds; k++)
            if (!strcmp(o->holds[k].node, node))
                return true;
    }
    return false;
}

static void nodes_again(struct brain *b, const struct orphans *l)
{
    for (size_t i = 0; i < l->n; i++)
        for (size_t k = 0; k < l->v[i].n_holds; k++) {
            const struct object *n = root_get(b->root, KIND_NODE, "", l->v[i].holds[k].node);
            if (n)
                scheduler_node(b, n);
        }
}

void orphans_listed(struct site *t)
{
    struct orphans was = t->orphans;
    bool first = !t->listed;

    t->orphans = t->found;
    t->found = (struct orphans){0};
    t->listed = true;
    nodes_again(t->brain, &was);
    nodes_again(t->brain, &t->orphans);
    list_free(&was);
    if (first)
        scheduler_reach(t->brain, t->name, t->reachable);
    cold_look(t->brain);
}

void orphans_drop(struct site *t)
{
    list_free(&t->found);
    list_free(&t->orphans);
    mem_free(t->condemned);
    t->condemned = NULL;
    t->n_condemned = 0;
}

/* ---- as people see them ---- */
static const char *state_text(const struct orphan *o)
{
    static const char *const states[] = {"unknown", "absent", "starting",
                                          "running", "ended",  "pending"};

    return states[o->seen.state];
}

static cJSON *orphan_json(const struct site *t, const struct orphan *o)
{
    cJSON *j = cJSON_CreateObject(), *holds;
    char key[RUN_KEY_MAX], since[32] = "";

    run_key_print(&o->seen.key, key);
    if (o->since_ms)
        time_print(o->since_ms, since);
    (void)cJSON_AddStringToObject(j, "target", t->name);
    (void)cJSON_AddStringToObject(j, "key", key);
    (void)cJSON_AddStringToObject(j, "uid", o->seen.key.uid);
    (void)cJSON_AddNumberToObject(j, "epoch", (double)o->seen.key.epoch);
    (void)cJSON_AddStringToObject(j, "namespace", o->ns);
    (void)cJSON_AddStringToObject(j, "workload", o->name);
    (void)cJSON_AddStringToObject(j, "state", state_text(o));
    (void)cJSON_AddStringToObject(j, "why", whys[o->why]);
    (void)cJSON_AddStringToObject(j, "cluster", o->cluster);
    (void)cJSON_AddStringToObject(j, "since", since);
    if (o->seen.checkpoint.present)
        (void)cJSON_AddNumberToObject(j, "checkpointStep", (double)o->seen.checkpoint.step);
    holds = cJSON_AddArrayToObject(j, "holds");
    for (size_t i = 0; i < o->n_holds; i++) {
        cJSON *h = cJSON_CreateObject(), *gpus;
        (void)cJSON_AddStringToObject(h, "node", o->holds[i].node);
        gpus = cJSON_AddArrayToObject(h, "gpus");
        for (int d = 0; d < LIMIT_NODE_GPUS; d++)
            if (o->holds[i].devices >> d & 1)
                (void)cJSON_AddItemToArray(gpus, cJSON_CreateNumber(d));
        (void)cJSON_AddItemToArray(holds, h);
    }
    return j;
}

void brain_orphans(struct brain *b, struct buf *out)
{
    cJSON *j = cJSON_CreateObject(), *items = cJSON_AddArrayToObject(j, "items"),
          *targets = cJSON_AddArrayToObject(j, "notListed");
    uint64_t more = 0;

    (void)cJSON_AddStringToObject(j, "cluster", b->root ? root_cluster_uid(b->root) : "");
    for_each_site (t, b) {
        for (size_t i = 0; i < t->orphans.n; i++)
            (void)cJSON_AddItemToArray(items, orphan_json(t, &t->orphans.v[i]));
        more += t->orphans.more;
        if (!t->listed || t->lacks)
            (void)cJSON_AddItemToArray(targets, cJSON_CreateString(t->name));
    }
    (void)cJSON_AddNumberToObject(j, "more", (double)more);
    char *text = cJSON_PrintUnformatted(j);
    buf_str(out, text ? text : "{}");
    cJSON_free(text);
    cJSON_Delete(j);
}

void orphans_metrics(const struct brain *b, struct buf *out)
{
    buf_str(out, "# HELP hanse_orphans runs that targets list and the state cannot answer for\n"
                 "# TYPE hanse_orphans gauge\n");
    for_each_site (t, b) {
        buf_printf(out, "hanse_orphans{target=\"%s\"} %zu\n", t->name,
                   t->orphans.n + (size_t)t->orphans.more);
    }
}
