/* Which devices of a node NVLink joins. A device's own number says so; a domain that spans nodes,
 * or a class or node that is linked throughout, joins all devices of a node. It is computed once
 * per build of the table, so that a decision only compares numbers. A device without any such
 * information never counts as linked. */
#include "policy/pool/pool_internal.h"

#include <string.h>

/* 0 is a number like any other when it was given, which the field's bit tells. */
#define PLACE_OF(type, c, ...) PLACE_##c,
enum { SCHEMA_gpu(PLACE_OF) };
#undef PLACE_OF

static bool told(const struct gpu *g)
{
    return g->nvlinkDomain != 0 || (g->has >> PLACE_nvlinkDomain & 1);
}

static bool linked_throughout(const struct table *t, const struct device *d)
{
    const struct group *g = &t->groups[t->members[d->member].group];
    const struct gpu_class_spec *c = t->classes[g->class_].spec;

    return strcmp(g->fabric, "nvlink") == 0 || (c && strcmp(c->interconnect, "nvlink") == 0);
}

static uint32_t first_alike(const struct device *d, uint32_t i)
{
    uint32_t k = 0;

    while (k < i && !(told(d[k].spec) && d[k].spec->nvlinkDomain == d[i].spec->nvlinkDomain))
        k++;
    return k;
}

static void link_node(struct table *t, const struct node_rec *n)
{
    const struct topology *w = n->doc->spec->topology;
    struct device *d = &t->devices[n->dev0];
    bool all = w && w->nvlinkDomain[0], any = false;

    for (uint32_t i = 0; i < n->n_dev; i++)
        any |= told(d[i].spec);
    for (uint32_t i = 0; i < n->n_dev; i++) {
        struct group *g;
        uint32_t alike = 0;

        if (d[i].member == NONE)
            continue;
        if (any && !all)
            d[i].link = told(d[i].spec) ? 1 + first_alike(d, i) : 0;
        else
            d[i].link = all || linked_throughout(t, &d[i]);
        for (uint32_t k = 0; k <= i && d[i].link; k++)
            alike += d[k].member == d[i].member && d[k].link == d[i].link;
        g = &t->groups[t->members[d[i].member].group];
        g->max_linked = alike > g->max_linked ? alike : g->max_linked;
    }
}

void link_build(struct table *t)
{
    for (uint32_t i = 0; i < t->n_nodes; i++)
        link_node(t, &t->nodes[i]);
}
