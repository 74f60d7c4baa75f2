/* What comes in pages: the nodes, and the list of all runs. Nothing is told of nodes before the
 * last page is here; a list that does not come to its end is unknown. */
#include "connectors/callout/callout_internal.h"

#include "api/base/log.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

#define SWEEP_GRACE_MS 5000
#define CURSOR_LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~"

void callout_pages_drop(struct callout_pages *p)
{
    (void)arena_destroy(p->arena);
    mem_free(p->nodes);
    *p = (struct callout_pages){0};
}

static void page_ask(struct callout_call *k, const char *after)
{
    char path[300];

    (void)snprintf(path, sizeof path, "/%s?after=%s", k->op == CALLOUT_NODES ? "nodes" : "runs",
                   after);
    callout_call_send(k, "GET", path, NULL, NULL);
}

/* Returns 1 when the next page was asked for, 0 when there is none. */
static int page_next(struct callout_call *k, const char *next, struct err *err)
{
    if (!*next)
        return 0;
    if (++k->n_pages >= CALLOUT_PAGES_MAX || strspn(next, CURSOR_LETTERS) != strlen(next))
        return err_set(err, E_UNKNOWN,
                       "target %.100s: more than %d pages, or a page whose name is not of letters, "
                       "digits and -._~",
                       k->c->base.target, CALLOUT_PAGES_MAX);
    page_ask(k, next);
    return 1;
}

/* ---- nodes ---- */
/* A node as servers tell it is the spec of a Node, with its name and health. */
static cJSON *node_document(const struct callout *c, cJSON *from)
{
    cJSON *name = cJSON_DetachItemFromObjectCaseSensitive(from, "name");
    cJSON *health = cJSON_DetachItemFromObjectCaseSensitive(from, "health");
    cJSON *node = cJSON_CreateObject(), *meta = cJSON_AddObjectToObject(node, "metadata");
    cJSON *status = cJSON_AddObjectToObject(node, "status");
    char full[512];

    (void)snprintf(full, sizeof full, "%s.%.255s", c->base.target,
                   cJSON_IsString(name) ? name->valuestring : "");
    cJSON_AddStringToObject(meta, "name", full);
    cJSON_AddStringToObject(status, "health",
                            cJSON_IsString(health) ? health->valuestring : "Ready");
    cJSON_DeleteItemFromObjectCaseSensitive(from, "target");
    cJSON_AddStringToObject(from, "target", c->base.target);
    cJSON_AddItemToObject(node, "spec", from);
    cJSON_Delete(name);
    cJSON_Delete(health);
    return node;
}

static int node_take(struct callout_call *k, cJSON *from, struct err *err)
{
    struct callout_pages *p = &k->pages;
    cJSON *doc = node_document(k->c, from);
    void *body = NULL;
    int rc = body_from_json(&schema_node, doc, 0, p->arena, &body, err);

    if (rc == 0 && strlen(((const struct node *)body)->metadata->name) > 253)
        rc = err_set(err, E_INVALID, "the name of a node is too long");
    if (rc == 0)
        p->nodes[p->n++] = *(const struct node *)body;
    cJSON_Delete(doc);
    return rc;
}

static int nodes_take(struct callout_call *k, const struct callout_nodes *page, struct err *err)
{
    struct callout_pages *p = &k->pages;
    cJSON *list = page->nodes.n ? cJSON_ParseWithLength(page->nodes.p, page->nodes.n) : NULL;
    size_t more = (size_t)cJSON_GetArraySize(list);
    int rc = 0;

    if (p->n + more > CALLOUT_NODES_MAX)
        rc = err_set(err, E_TOOLARGE, "an inventory of more than %d nodes: make several targets",
                     CALLOUT_NODES_MAX);
    if (rc == 0 && k->n_pages && strcmp(p->revision, page->revision) != 0)
        rc = err_set(err, E_CONFLICT, "the nodes changed while they were read");
    if (!p->arena) {
        p->arena = arena_create(0);
        arena_set_soft(p->arena, true);
    }
    str_copy(p->revision, sizeof p->revision, page->revision);
    p->nodes = mem_realloc(p->nodes, (p->n + more + 1) * sizeof *p->nodes);
    while (rc == 0 && list && list->child) {
        cJSON *node = cJSON_DetachItemFromArray(list, 0);
        if (cJSON_IsObject(node)) {
            rc = node_take(k, node, err);
        } else {
            cJSON_Delete(node);
            rc = err_set(err, E_INVALID, "a node that is no object");
        }
    }
    cJSON_Delete(list);
    return rc;
}

static void nodes_came(struct callout_call *k, const struct web_answer *a)
{
    struct callout *c = k->c;
    struct callout_nodes *page = NULL;
    struct err err;
    AUTO_ARENA mem = arena_create(CALLOUT_ANSWER_MAX * 4);
    int rc = callout_read(&schema_callout_nodes, a, mem, (void **)&page, &err);

    if (rc == 0)
        rc = nodes_take(k, page, &err);
    if (rc == 0)
        rc = page_next(k, page->next, &err);
    if (rc > 0)
        return;
    if (rc < 0) {
        if (!k->call)
            log_err(LOG_WARN, "callout.nodes", &err);
        callout_call_end(k, OUT_UNKNOWN, NULL, &err);
        return;
    }
    str_copy(c->revision, sizeof c->revision, k->pages.revision);
    c->base.env.events->nodes(c->base.env.arg, k->pages.nodes, k->pages.n, true);
    callout_call_end(k, OUT_DONE, NULL, NULL);
}

/* ---- runs ---- */
static void listed_of(const struct callout *c, const struct wire_listed *from, struct arena *a,
                      struct run_listed *ret)
{
    struct run_hold *h = arena_array(a, struct run_hold, from->n_workers + 1);

    *ret =
        (struct run_listed){.seen = {.key = from->key, .state = from->state, .proof = from->proof},
                            .since_ms = from->since_ms,
                            .state_rv = from->state_rv,
                            .holds = h,
                            .n_holds = from->n_workers};
    if (from->state == RUN_ENDED && !from->proof)
        ret->seen.state = RUN_UNKNOWN;
    str_copy(ret->cluster, sizeof ret->cluster, from->cluster);
    str_copy(ret->ns, sizeof ret->ns, from->namespace_);
    str_copy(ret->name, sizeof ret->name, from->workload);
    for (uint32_t i = 0; i < from->n_workers; i++) {
        const struct wire_worker *w = &from->workers[i];
        (void)snprintf(h[i].node, sizeof h[i].node, "%.120s.%.120s", c->base.target, w->node);
        for (uint32_t g = 0; g < w->n_gpus; g++)
            if (w->gpus[g] >= 0 && w->gpus[g] < LIMIT_NODE_GPUS)
                h[i].devices |= 1ull << w->gpus[g];
    }
}

/* Nobody waits for the answer: what was not heard, the next sweep says again. */
static void order(struct callout *c, const struct run_key *key, const char *method,
                  const char *verb, uint64_t grace_ms)
{
    const struct connector_env *e = &c->base.env;
    int64_t time_ms = 0;
    const struct callout_about q = {.cluster = e->cluster_uid ? e->cluster_uid(e->arg) : "",
                                    .state_rv = e->state_rv ? e->state_rv(e->arg, &time_ms) : 0,
                                    .grace_ms = grace_ms};
    char name[RUN_KEY_MAX], path[RUN_KEY_MAX + 32];

    run_key_print(key, name);
    (void)snprintf(path, sizeof path, "/runs/%s%s", name, verb);
    callout_call_send(callout_call_make(c, NULL, CALLOUT_ORDER, key), method, path,
                      &schema_callout_about, &q);
}

static void judge_all(struct callout_call *k, const struct callout_runs *page)
{
    struct callout *c = k->c;
    const struct connector_env *e = &c->base.env;
    AUTO_ARENA a = arena_create(0);

    for (uint32_t i = 0; i < page->n_runs; i++) {
        struct run_listed r;
        arena_reset(a);
        listed_of(c, &page->runs[i], a, &r);
        bool over = r.seen.state == RUN_ENDED || r.seen.state == RUN_ABSENT;
        enum run_verdict v = k->judge(&r, k->judge_arg);
        const char *own = e->cluster_uid ? e->cluster_uid(e->arg) : "";
        if (v == RUN_LET_GO && over)
            order(c, &r.seen.key, "DELETE", "", 0);
        else if (v == RUN_LET_GO)
            order(c, &r.seen.key, "POST", "/stop", SWEEP_GRACE_MS);
        else if (v == RUN_CLAIMED && *own && strcmp(r.cluster, own) != 0)
            order(c, &r.seen.key, "POST", "/claim", 0);
    }
}

static void runs_came(struct callout_call *k, const struct web_answer *a)
{
    struct callout_runs *page = NULL;
    struct err err;
    AUTO_ARENA mem = arena_create(CALLOUT_ANSWER_MAX * 8);
    int rc = callout_read(&schema_callout_runs, a, mem, (void **)&page, &err);

    if (rc == 0) {
        judge_all(k, page);
        rc = page_next(k, page->next, &err);
    }
    if (rc > 0)
        return;
    callout_call_end(k, rc < 0 ? OUT_UNKNOWN : OUT_DONE, NULL, rc < 0 ? &err : NULL);
}

void callout_page_came(struct callout_call *k, const struct web_answer *a)
{
    if (k->op == CALLOUT_NODES)
        nodes_came(k, a);
    else
        runs_came(k, a);
}

/* ---- asking ---- */
void callout_inventory(struct connector *base, struct call *call)
{
    page_ask(callout_call_make(callout_of(base), call, CALLOUT_NODES, NULL), "");
}

void callout_nodes_fetch(struct callout *c)
{
    list_for_each (it, &c->calls)
        if (container_of(it, struct callout_call, link)->op == CALLOUT_NODES)
            return; /* under way; should it be of before, the next poll sees the difference */
    page_ask(callout_call_make(c, NULL, CALLOUT_NODES, NULL), "");
}

void callout_sweep(struct connector *base, run_judge judge, void *arg, struct call *call)
{
    struct callout_call *k = callout_call_make(callout_of(base), call, CALLOUT_LIST, NULL);

    k->judge = judge;
    k->judge_arg = arg;
    page_ask(k, "");
}
