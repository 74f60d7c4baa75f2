/* Which nodes of a server go away: a node says so beside its fields, and one that is told anew
 * without it stays. The connector's caller wants all of them at once, so those of this session are
 * kept, with the moment that they named; they are told once a listing is complete, and with each
 * delta. */
#include "connectors/callout/callout_internal.h"

#include <stdio.h>
#include <string.h>

struct callout_noticed {
    struct notice notice; /* in_ms: of the answer that named it */
    uint64_t until_ms;    /* loop time */
    bool named;           /* by the listing under way, or since */
};

void callout_notices_clear(struct callout *c)
{
    mem_free(c->noticed);
    c->noticed = NULL;
    c->n_noticed = 0;
}

void callout_notices_begin(struct callout *c)
{
    for (size_t i = 0; i < c->n_noticed; i++)
        c->noticed[i].named = false;
}

void callout_notices_end(struct callout *c)
{
    size_t n = 0;

    for (size_t i = 0; i < c->n_noticed; i++)
        if (c->noticed[i].named)
            c->noticed[n++] = c->noticed[i];
    c->n_noticed = n;
}

void callout_notice_stay(struct callout *c, const char *node)
{
    for (size_t i = 0; i < c->n_noticed; i++)
        if (strcmp(c->noticed[i].notice.node, node) == 0)
            c->noticed[i].named = true;
}

void callout_notice_drop(struct callout *c, const char *node)
{
    size_t i = 0;

    while (i < c->n_noticed && strcmp(c->noticed[i].notice.node, node) != 0)
        i++;
    if (i < c->n_noticed)
        c->noticed[i] = c->noticed[--c->n_noticed];
}

int callout_notice_take(struct callout *c, const char *node, const struct cJSON *from,
                        struct err *err)
{
    AUTO_ARENA a = arena_create(0);
    void *body = NULL;

    if (!from) {
        callout_notice_drop(c, node);
        return 0;
    }
    int rc = body_from_json(&schema_callout_notice, from, 0, a, &body, err);
    if (rc < 0)
        return rc;
    const struct callout_notice *n = body;
    bool ends = n->in != NULL && *n->in;
    int64_t span = 0;
    if (!ends && n->kind != NOTICE_REBALANCE)
        return err_set(err, E_INVALID, "its notice says no \"in\"");
    if (ends && duration_parse(n->in, &span, err) < 0)
        return err_field(err, E_INVALID, "notice.in", "\"%.32s\" is no span", n->in);
    callout_notice_drop(c, node);
    if (c->n_noticed == LIMIT_TARGET_NODES)
        return err_set(err, E_LIMIT, "notices for more than %d nodes", (int)LIMIT_TARGET_NODES);
    c->noticed = mem_realloc(c->noticed, (c->n_noticed + 1) * sizeof *c->noticed);
    struct callout_noticed *to = &c->noticed[c->n_noticed++];
    *to = (struct callout_noticed){.named = true,
                                   .notice = {.kind = n->kind, .ends = ends},
                                   .until_ms = loop_now_ms(c->base.env.loop) + (uint64_t)span};
    str_copy(to->notice.node, sizeof to->notice.node, node);
    return 0;
}

void callout_notices_tell(struct callout *c)
{
    const struct connector_env *e = &c->base.env;
    uint64_t now = loop_now_ms(e->loop);

    if (!e->events->notices)
        return;
    struct notice *v = mem_alloc((c->n_noticed + 1) * sizeof *v);
    for (size_t i = 0; i < c->n_noticed; i++) {
        v[i] = c->noticed[i].notice;
        if (v[i].ends && c->noticed[i].until_ms > now)
            v[i].in_ms = c->noticed[i].until_ms - now;
    }
    e->events->notices(e->arg, v, c->n_noticed);
    mem_free(v);
}
