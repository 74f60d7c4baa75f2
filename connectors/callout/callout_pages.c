/* What comes in pages: the nodes, and the list of all runs. Pages of nodes are told on as they
 * come, and not kept; a list that does not come to its end is unknown. */
#include "connectors/callout/callout_internal.h"

#include "api/base/log.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

#define SWEEP_GRACE_MS 5000
#define CURSOR_LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~"

static void page_ask(struct callout_call *k, const char *after)
{
    char path[300];

    if (*k->since)
        (void)snprintf(path, sizeof path, "/nodes?since=%s", k->since);
    else
        (void)snprintf(path, sizeof path, "/%s?after=%s",
                       k->op == CALLOUT_NODES  ? "nodes"
                       : k->op == CALLOUT_LIST ? "runs"
                                               : "machines",
                       after);
    callout_call_send(k, "GET", path, NULL, NULL);
}

int callout_page_next(struct callout_call *k, const char *next, struct err *err)
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
/* A node as servers tell it is the spec of a Node, with its name, its health with what is wrong,
 * and what others hold of it. */
static cJSON *node_document(const struct callout *c, cJSON *from)
{
    cJSON *name = cJSON_DetachItemFromObjectCaseSensitive(from, "name");
    cJSON *health = cJSON_DetachItemFromObjectCaseSensitive(from, "health");
    cJSON *others = cJSON_DetachItemFromObjectCaseSensitive(from, "others");
    cJSON *faults = cJSON_DetachItemFromObjectCaseSensitive(from, "faults");
    cJSON *node = cJSON_CreateObject(), *meta = cJSON_AddObjectToObject(node, "metadata");
    cJSON *status = cJSON_AddObjectToObject(node, "status");
    char full[512];

    (void)snprintf(full, sizeof full, "%s.%.255s", c->base.target,
                   cJSON_IsString(name) ? name->valuestring : "");
    cJSON_AddStringToObject(meta, "name", full);
    cJSON_AddStringToObject(status, "health",
                            cJSON_IsString(health) ? health->valuestring : "Ready");
    if (others)
        cJSON_AddItemToObject(status, "others", others);
    if (faults)
        cJSON_AddItemToObject(status, "faults", faults);
    cJSON_DeleteItemFromObjectCaseSensitive(from, "target");
    cJSON_AddStringToObject(from, "target", c->base.target);
    cJSON_AddItemToObject(node, "spec", from);
    cJSON_Delete(name);
    cJSON_Delete(health);
    return node;
}

/* A device without a number would be taken for the first one. */
static int devices_check(const cJSON *from, struct err *err)
{
    const cJSON *g;

    cJSON_ArrayForEach(g, cJSON_GetObjectItemCaseSensitive(from, "gpus"))
    {
        if (!cJSON_IsNumber(cJSON_GetObjectItemCaseSensitive(g, "index")))
            return err_set(err, E_INVALID,
                           "a GPU without an index: those whose numbers are not known are told in "
                           "\"counted\": [{\"class\": \"h100\", \"count\": 8}]");
    }
    return 0;
}

#define NAME_LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."
static int name_check(const char *name, const char *full, struct err *err)
{
    if (!*name || strlen(full) > 253)
        return err_set(err, E_INVALID, "a node without a name, or the name is too long");
    if (strspn(name, NAME_LETTERS) != strlen(name) || strchr("-_.", *name))
        return err_set(err, E_INVALID,
                       "the name of a node is of letters, digits and -_., and begins with one of "
                       "the first two");
    return 0;
}

/* A notice that cannot be read is an error of its node: nobody would know whether that goes. */
static int node_take(struct callout_call *k, cJSON *from, struct arena *a, struct node *ret,
                     struct err *err)
{
    const cJSON *name = cJSON_GetObjectItemCaseSensitive(from, "name");
    const char *text = cJSON_IsString(name) ? name->valuestring : "";
    cJSON *notice = cJSON_DetachItemFromObjectCaseSensitive(from, "notice");
    const char *full = arena_printf(a, "%s.%.255s", k->c->base.target, text);
    void *body = NULL;
    int rc = name_check(text, full, err);

    if (rc == 0)
        rc = devices_check(from, err);
    cJSON *doc = node_document(k->c, from);
    if (rc == 0)
        rc = body_from_json(&schema_node, doc, 0, a, &body, err);
    if (rc == 0)
        rc = callout_notice_take(k->c, full, notice, err);
    if (rc == 0)
        *ret = *(const struct node *)body;
    else
        callout_notice_stay(k->c, full);
    cJSON_Delete(notice);
    cJSON_Delete(doc);
    return rc;
}

/* Those that cannot be read are left out, as if nothing was told of them: what the state has of
 * them stays, and nothing is taken away by this listing. People hear of them, and why. */
static void node_refuse(const struct callout *c, const char *name, const struct err *why,
                        struct arena *a, struct inventory_page *ret)
{
    struct node_refused *r = &((struct node_refused *)ret->refused)[ret->n_refused++];

    const char *full = *name ? arena_printf(a, "%s.%.255s", c->base.target, name) : NULL;
    const char *text =
        arena_printf(a, "%.60s%s%.300s", why->field, *why->field ? ": " : "", why->text);
    ret->lacks = true;
    *r = (struct node_refused){full ? full : "", text ? text : ""};
    log_event(LOG_WARN, "callout.node_refused",
              LOG_FIELDS({"node", log_str(r->name)}, {"why", log_str(r->why)}));
}

static const char *node_name(const cJSON *node, struct arena *a)
{
    const cJSON *name = cJSON_GetObjectItemCaseSensitive(node, "name");

    const char *copy = cJSON_IsString(name) ? arena_strdup(a, name->valuestring) : NULL;

    return copy ? copy : "";
}

static int nodes_take(struct callout_call *k, const struct callout_nodes *page, struct arena *a,
                      struct inventory_page *ret, struct err *err)
{
    cJSON *list = page->nodes.n ? cJSON_ParseWithLength(page->nodes.p, page->nodes.n) : NULL;
    struct node *nodes = arena_array(a, struct node, (size_t)cJSON_GetArraySize(list) + 1);
    const char **removed = arena_array(a, const char *, page->n_removed + 1);
    int rc;

    ret->refused = arena_array(a, struct node_refused, (size_t)cJSON_GetArraySize(list) + 1);
    if (!nodes || !removed || !ret->refused) {
        cJSON_Delete(list);
        return err_set(err, E_TOOLARGE, "a page of nodes that has no room in memory");
    }
    while (list && list->child) {
        cJSON *node = cJSON_DetachItemFromArray(list, 0);
        const char *name = node_name(node, a);
        struct err why;

        if (cJSON_IsObject(node)) {
            rc = node_take(k, node, a, &nodes[ret->n], &why);
        } else {
            cJSON_Delete(node);
            rc = err_set(&why, E_INVALID, "a node that is no object");
        }
        if (rc == 0)
            ret->n++;
        else
            node_refuse(k->c, name, &why, a, ret);
    }
    cJSON_Delete(list);
    for (uint32_t i = 0; i < page->n_removed; i++) {
        removed[i] = arena_printf(a, "%s.%.255s", k->c->base.target, page->removed[i]);
        callout_notice_drop(k->c, removed[i]);
        ret->n_removed++;
    }
    ret->nodes = nodes;
    ret->removed = removed;
    return 0;
}

/* Is it what was asked for: a page of the listing under way, or a delta? */
static int page_check(struct callout_call *k, const struct callout_nodes *page, struct err *err)
{
    if (*page->since && (strcmp(page->since, k->since) != 0 || *page->next))
        return err_set(err, E_UNKNOWN, "target %.100s: changes of nodes that were not asked for",
                       k->c->base.target);
    if (!*page->since && page->n_removed)
        return err_set(err, E_UNKNOWN, "target %.100s: nodes are removed by a listing",
                       k->c->base.target);
    if (k->n_pages && !*k->since && strcmp(k->revision, page->revision) != 0)
        return err_set(err, E_CONFLICT, "the nodes changed while they were read");
    return 0;
}

/* A delta may lead no further than to a revision between: then what follows is asked for. */
static int delta_next(struct callout_call *k, const struct callout_nodes *page)
{
    struct callout *c = k->c;

    if (!*page->revision || strspn(page->revision, CURSOR_LETTERS) != strlen(page->revision) ||
        strcmp(page->revision, page->since) == 0 || strcmp(page->revision, c->told_revision) == 0 ||
        ++k->n_pages >= CALLOUT_PAGES_MAX)
        return 0;
    str_copy(k->since, sizeof k->since, page->revision);
    page_ask(k, "");
    return 1;
}

/* Tells the page on. Returns 1 when another one was asked for. */
static int page_tell(struct callout_call *k, const struct callout_nodes *page, struct arena *a,
                     struct err *err)
{
    struct callout *c = k->c;
    bool delta = *page->since != '\0';
    struct inventory_page told = {.revision = page->revision,
                                  .since = page->since,
                                  .first = !delta && (k->n_pages == 0 || *k->since),
                                  .last = !delta && !*page->next};
    int rc = page_check(k, page, err);

    if (rc == 0 && told.first)
        callout_notices_begin(c);
    if (rc == 0)
        rc = nodes_take(k, page, a, &told, err);
    if (rc < 0)
        return rc;
    str_copy(k->revision, sizeof k->revision, page->revision);
    if (delta || told.last)
        str_copy(c->revision, sizeof c->revision, page->revision);
    if (!delta)
        k->since[0] = '\0'; /* it knows no deltas: this is all of its nodes */
    c->base.env.events->nodes(c->base.env.arg, &told);
    if (told.last)
        callout_notices_end(c);
    if (delta || told.last)
        callout_notices_tell(c);
    return delta ? delta_next(k, page) : callout_page_next(k, page->next, err);
}

/* A page that cannot be read ends its listing, which takes no node away, and people hear why. */
static void page_refuse(const struct callout_call *k, const struct err *why)
{
    const struct connector_env *e = &k->c->base.env;
    char text[400];
    const struct node_refused r = {NODES_ALL, text};

    (void)snprintf(text, sizeof text, "a page of its nodes cannot be read: %.60s%s%.300s",
                   why->field, *why->field ? ": " : "", why->text);
    e->events->nodes(e->arg, &(struct inventory_page){.revision = "",
                                                      .since = "",
                                                      .first = true,
                                                      .last = true,
                                                      .lacks = true,
                                                      .refused = &r,
                                                      .n_refused = 1});
}

static void nodes_came(struct callout_call *k, const struct web_answer *a)
{
    struct callout_nodes *page = NULL;
    struct err err;
    AUTO_ARENA mem = arena_create(CALLOUT_ANSWER_MAX * 16);
    int rc = callout_read(k->c, &schema_callout_nodes, a, mem, (void **)&page, &err);

    if (rc == 0)
        rc = page_tell(k, page, mem, &err);
    if (rc > 0)
        return;
    if (rc < 0 && err.code != E_CONFLICT)
        page_refuse(k, &err);
    callout_call_end(k, rc < 0 ? OUT_UNKNOWN : OUT_DONE, NULL, rc < 0 ? &err : NULL);
}

/* ---- runs ---- */
static void listed_of(const struct callout *c, const struct wire_listed *from, struct arena *a,
                      struct run_listed *ret)
{
    struct run_hold *h = arena_array(a, struct run_hold, from->n_workers + 1);

    *ret =
        (struct run_listed){.seen = {.key = from->key, .state = from->state, .proof = from->proof},
                            .since_ms = from->since_ms,
                            .final = from->final,
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

/* call NULL: nobody waits for the answer; what was not heard, the next sweep says again. */
static void order(struct callout *c, const struct run_key *key, const char *method,
                  const char *verb, uint64_t grace_ms, struct call *call)
{
    const struct connector_env *e = &c->base.env;
    int64_t time_ms = 0;
    const struct callout_about q = {.cluster = e->cluster_uid ? e->cluster_uid(e->arg) : "",
                                    .state_rv = e->state_rv ? e->state_rv(e->arg, &time_ms) : 0,
                                    .grace_ms = grace_ms};
    char name[RUN_KEY_MAX], path[RUN_KEY_MAX + 32];

    run_key_print(key, name);
    (void)snprintf(path, sizeof path, "/runs/%s%s", name, verb);
    callout_call_send(callout_call_make(c, call, CALLOUT_ORDER, key), method, path,
                      &schema_callout_about, &q);
}

void callout_finalize(struct connector *base, const struct run_key *key, struct call *call)
{
    order(callout_of(base), key, "DELETE", "", 0, call);
}

static void judge_all(struct callout_call *k, const cJSON *rows)
{
    struct callout *c = k->c;
    const struct connector_env *e = &c->base.env;
    const cJSON *row;
    AUTO_ARENA a = arena_create(CALLOUT_ANSWER_MAX * 8);

    cJSON_ArrayForEach(row, rows)
    {
        struct wire_listed *l = NULL;
        struct run_listed r;
        struct err why;
        arena_reset(a);
        if (callout_row_read(&schema_wire_listed, row, a, (void **)&l, &why) < 0) {
            k->n_unread++;
            (void)callout_row_unread(c, row, &why, NULL);
            continue;
        }
        listed_of(c, l, a, &r);
        bool over = r.seen.state == RUN_ENDED || r.seen.state == RUN_ABSENT;
        enum run_verdict v = k->judge(&r, k->judge_arg);
        const char *own = e->cluster_uid ? e->cluster_uid(e->arg) : "";
        if (v == RUN_LET_GO && over)
            order(c, &r.seen.key, "DELETE", "", 0, NULL);
        else if (v == RUN_LET_GO)
            order(c, &r.seen.key, "POST", "/stop", SWEEP_GRACE_MS, NULL);
        else if (v == RUN_CLAIMED && *own && strcmp(r.cluster, own) != 0)
            order(c, &r.seen.key, "POST", "/claim", 0, NULL);
    }
}

/* Rows that cannot be read are passed over, and told of: the list lacks what they tell of. */
static void runs_came(struct callout_call *k, const struct web_answer *a)
{
    struct callout_runs *page = NULL;
    cJSON *rows = NULL;
    struct err err;
    struct observation lacks = {0};
    AUTO_ARENA mem = arena_create(CALLOUT_ANSWER_MAX * 8);
    int rc = callout_read_rows(k->c, &schema_callout_runs, "runs", a, mem, (void **)&page, &rows,
                               &err);

    if (rc == 0) {
        judge_all(k, rows);
        cJSON_Delete(rows);
        rc = callout_page_next(k, page->next, &err);
    }
    if (rc > 0)
        return;
    if (k->n_unread)
        (void)snprintf(lacks.message, sizeof lacks.message, "%zu of its runs cannot be read",
                       k->n_unread);
    callout_call_end(k, rc < 0 ? OUT_UNKNOWN : OUT_DONE, k->n_unread ? &lacks : NULL,
                     rc < 0 ? &err : NULL);
}

void callout_page_came(struct callout_call *k, const struct web_answer *a)
{
    if (k->op == CALLOUT_NODES)
        nodes_came(k, a);
    else
        runs_came(k, a);
}

/* ---- asking ---- */
static struct callout_call *nodes_under_way(const struct callout *c)
{
    list_for_each (it, &c->calls) {
        struct callout_call *k = container_of(it, struct callout_call, link);
        if (k->op == CALLOUT_NODES)
            return k;
    }
    return NULL;
}

/* Pages of one listing alone are told at a time: what was read without being asked for ends. */
void callout_inventory(struct connector *base, struct call *call)
{
    struct callout *c = callout_of(base);
    struct callout_call *k = nodes_under_way(c);
    struct err err;

    (void)err_set(&err, E_UNKNOWN, "target %.100s: its nodes are asked for anew", c->base.target);
    if (k && k->rq)
        web_cancel(k->rq);
    if (k)
        callout_call_end(k, OUT_UNKNOWN, NULL, &err);
    page_ask(callout_call_make(c, call, CALLOUT_NODES, NULL), "");
}

void callout_nodes_forgotten(struct callout_call *k)
{
    k->since[0] = '\0';
    k->n_pages = 0;
    page_ask(k, "");
}

/* While some are read nothing is asked: should those be of before, the next poll sees it. */
void callout_nodes_look(struct callout *c)
{
    struct callout_call *k;

    if (strcmp(c->told_revision, c->revision) == 0 || nodes_under_way(c))
        return;
    k = callout_call_make(c, NULL, CALLOUT_NODES, NULL);
    if (strspn(c->revision, CURSOR_LETTERS) == strlen(c->revision))
        str_copy(k->since, sizeof k->since, c->revision);
    page_ask(k, "");
}

void callout_sweep(struct connector *base, run_judge judge, void *arg, struct call *call)
{
    struct callout_call *k = callout_call_make(callout_of(base), call, CALLOUT_LIST, NULL);

    k->judge = judge;
    k->judge_arg = arg;
    page_ask(k, "");
}
