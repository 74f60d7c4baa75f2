/* The nodes of an agent, which come in pages. Nothing is reported before the last page is here, and
 * waiting pages are bounded by nodes and by bytes. An agent speaks for its own target only. */
#include "connectors/agent/hub/hub_internal.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

void hub_pages_drop(struct hub *h)
{
    (void)arena_destroy(h->pages.arena);
    mem_free(h->pages.nodes);
    h->pages = (struct hub_pages){0};
}

static bool node_is_own(const struct hub *h, const struct node *n)
{
    size_t prefix = strlen(h->base.target);

    return n->metadata && n->spec && strcmp(n->spec->target, h->base.target) == 0 &&
           strncmp(n->metadata->name, h->base.target, prefix) == 0 &&
           n->metadata->name[prefix] == '.';
}

static int nodes_take(struct hub *h, const struct cJSON *list, struct err *err)
{
    struct hub_pages *p = &h->pages;
    size_t more = (size_t)cJSON_GetArraySize(list);
    struct err why;
    const cJSON *n;

    if (p->n + more > HUB_NODES_MAX)
        return err_set(err, E_TOOLARGE, "an inventory of more than %d nodes: make several targets",
                       HUB_NODES_MAX);
    p->nodes = mem_realloc(p->nodes, (p->n + more + 1) * sizeof *p->nodes);
    cJSON_ArrayForEach(n, list)
    {
        void *body;
        if (arena_used(p->arena) > HUB_NODES_BYTES_MAX)
            return err_set(err, E_TOOLARGE,
                           "an inventory of more than %zu bytes: make several targets",
                           HUB_NODES_BYTES_MAX);
        if (body_from_json(&schema_node, n, 0, p->arena, &body, &why) < 0) {
            log_err(LOG_WARN, "agent.node_refused", &why);
            p->refused = true;
            continue;
        }
        p->nodes[p->n] = *(const struct node *)body;
        if (node_is_own(h, &p->nodes[p->n]))
            p->n++;
        else
            p->refused = true;
    }
    return 0;
}

int hub_pages_take(struct hub *h, uint64_t id, const struct wire_nodes *page, struct err *err)
{
    struct hub_pages *p = &h->pages;
    cJSON *list = NULL;

    if (page->page == 0)
        hub_pages_drop(h);
    else if (!p->arena || p->id != id)
        return err_set(err, E_SYNTAX, "a page of an inventory that had not begun");
    if (!p->arena)
        p->arena = arena_create(0);
    p->id = id;
    if (page->nodes.n)
        list = cJSON_ParseWithLength(page->nodes.p, page->nodes.n);
    int rc = nodes_take(h, list, err);
    cJSON_Delete(list);
    return rc;
}
