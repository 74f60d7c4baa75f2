/* The nodes of an agent, which come in pages, what changed of them, and which of them go away. A
 * page is told on as it comes, and nothing of it is kept. An agent speaks for its own target
 * only. */
#include "connectors/agent/hub/hub_internal.h"

#include <cjson/cJSON.h>
#include <string.h>

static bool name_is_own(const struct hub *h, const char *name)
{
    size_t prefix = strlen(h->base.target);

    return strncmp(name, h->base.target, prefix) == 0 && name[prefix] == '.';
}

static void node_refuse(struct inventory_page *ret, const cJSON *node, const char *why,
                        struct arena *a)
{
    struct node_refused *r = &((struct node_refused *)ret->refused)[ret->n_refused++];
    const cJSON *meta = cJSON_GetObjectItemCaseSensitive(node, "metadata");
    const cJSON *name = cJSON_GetObjectItemCaseSensitive(meta, "name");

    const char *copy = cJSON_IsString(name) ? arena_strdup(a, name->valuestring) : NULL;
    const char *text = arena_strdup(a, why);
    *r = (struct node_refused){copy ? copy : "", text ? text : ""};
    ret->lacks = true;
}

/* Nodes that cannot be read, are not its own, or count devices, which agents pick by number, are
 * left out, and people hear why. The log hears of the first of them. */
static int nodes_read(const struct hub *h, const cJSON *list, struct arena *a,
                      struct inventory_page *ret, struct err *err)
{
    int count = cJSON_GetArraySize(list);
    struct err why;
    const cJSON *n;

    if (count > LIMIT_TARGET_NODES)
        return err_set(err, E_TOOLARGE, "a page of %d nodes; a target has at most %d", count,
                       LIMIT_TARGET_NODES);
    struct node *nodes = arena_array(a, struct node, (size_t)count + 1);
    ret->refused = arena_array(a, struct node_refused, (size_t)count + 1);
    if (!nodes || !ret->refused)
        return err_set(err, E_TOOLARGE, "a page of nodes that has no room in memory");
    cJSON_ArrayForEach(n, list)
    {
        void *body;
        if (body_from_json(&schema_node, n, 0, a, &body, &why) < 0) {
            if (!ret->lacks)
                log_err(LOG_WARN, "agent.node_refused", &why);
            node_refuse(ret, n, why.text, a);
            continue;
        }
        const struct node *v = body;
        if (v->metadata && v->spec && !v->spec->n_counted &&
            strcmp(v->spec->target, h->base.target) == 0 && name_is_own(h, v->metadata->name))
            nodes[ret->n++] = *v;
        else
            node_refuse(ret, n, "it is no node of this agent, or counts devices without numbers",
                        a);
    }
    ret->nodes = nodes;
    return 0;
}

int hub_nodes_tell(struct hub *h, uint64_t id, const struct wire_nodes *page, struct err *err)
{
    bool delta = *page->since != '\0';
    struct inventory_page told = {.revision = page->revision,
                                  .since = page->since,
                                  .first = !delta && page->page == 0,
                                  .last = !delta && !page->more};
    AUTO_ARENA a = arena_create(0);
    const char **removed = arena_array(a, const char *, page->n_removed + 1);

    arena_set_soft(a, true);
    if (delta ? h->pages_open || page->more
              : page->page != 0 && (!h->pages_open || h->pages_id != id))
        return err_set(err, E_SYNTAX, "a page of an inventory that had not begun");
    if (!delta) {
        h->pages_open = page->more;
        h->pages_id = id;
    }
    for (uint32_t i = 0; delta && i < page->n_removed; i++)
        if (name_is_own(h, page->removed[i]))
            removed[told.n_removed++] = page->removed[i];
    told.removed = removed;
    cJSON *list = page->nodes.n ? cJSON_ParseWithLength(page->nodes.p, page->nodes.n) : NULL;
    int rc = nodes_read(h, list, a, &told, err);
    cJSON_Delete(list);
    if (rc == 0 && h->base.env.events->nodes)
        h->base.env.events->nodes(h->base.env.arg, &told);
    return rc;
}

int hub_notices_take(struct hub *h, const struct wire_notices *list, struct err *err)
{
    uint32_t n = list ? list->n_notices : 0;
    const struct connector_events *ev = h->base.env.events;

    if (n > LIMIT_TARGET_NODES)
        return err_set(err, E_TOOLARGE, "notices for more than %d nodes", LIMIT_TARGET_NODES);
    struct notice *v = mem_alloc((n + 1) * sizeof *v);
    for (uint32_t i = 0; i < n; i++) {
        const struct wire_notice *w = &list->notices[i];
        if (!name_is_own(h, w->node)) {
            mem_free(v);
            return err_set(err, E_INVALID, "a notice for a node of another target");
        }
        v[i] = (struct notice){.kind = w->kind, .ends = w->ends, .in_ms = w->in_ms};
        str_copy(v[i].node, sizeof v[i].node, w->node);
    }
    if (ev->notices)
        ev->notices(h->base.env.arg, v, n);
    mem_free(v);
    return 0;
}
