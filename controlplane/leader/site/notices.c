/* Notices that a Target's connector told, against what the state says of the same nodes. What
 * differs goes into the log by facts.c; a node that the state does not have yet is compared again
 * once it has it. Spans count from the moment at which they were told.
 *
 * Before a connector has told them nothing is known of notices, and none is taken away. */
#include "controlplane/leader/site/notices.h"

#include "controlplane/leader/site/sites.h"

#include <stdlib.h>
#include <string.h>

struct notice_told {
    char node[256];
    enum notice_kind kind;
    bool ends;
    uint64_t until_ms; /* loop time */
};

static int by_node(const void *a, const void *b)
{
    return strcmp(((const struct notice_told *)a)->node, ((const struct notice_told *)b)->node);
}

void site_notices(struct site *t, const struct notice *v, size_t n)
{
    struct site_notices *s = &t->facts.notices;
    uint64_t now = loop_now_ms(t->brain->loop);

    s->v = mem_realloc(s->v, (n + 1) * sizeof *s->v);
    s->n = n;
    for (size_t i = 0; i < n; i++) {
        s->v[i] = (struct notice_told){
            .kind = v[i].kind, .ends = v[i].ends, .until_ms = now + v[i].in_ms};
        str_copy(s->v[i].node, sizeof s->v[i].node, v[i].node);
    }
    qsort(s->v, n, sizeof *s->v, by_node);
    s->known = s->due = true;
    site_facts_soon(t);
}

struct notice_scan {
    struct site *t;
    struct arena *a;
    struct node *nodes;
    size_t n, max, prefix;
    uint64_t now_ms;
    int64_t state_ms;
};

static bool notice_each(const struct object *o, void *arg)
{
    struct notice_scan *x = arg;
    const struct site_notices *s = &x->t->facts.notices;
    const struct node *have = object_as(o, node);
    struct notice_told key = {.kind = NOTICE_SPOT};
    struct node_notice *now = NULL;

    if (strncmp(o->meta->name, x->t->name, x->prefix) || o->meta->name[x->prefix] != '.')
        return false;
    if (strcmp(have->spec->target, x->t->name))
        return true;
    str_copy(key.node, sizeof key.node, o->meta->name);
    const struct notice_told *told = s->n ? bsearch(&key, s->v, s->n, sizeof *s->v, by_node) : NULL;
    if (told) {
        uint64_t left = told->until_ms > x->now_ms ? told->until_ms - x->now_ms : 1;
        now = arena_new(x->a, struct node_notice);
        now->kind = told->kind;
        now->deadline = told->ends ? x->state_ms + (int64_t)left : 0;
    }
    if (notice_repeats(have->status ? have->status->notice : NULL, now, x->state_ms))
        return true;
    if (now && now->deadline)
        now->deadline -= x->state_ms;
    struct node *n = &x->nodes[x->n++];
    n->metadata = arena_new(x->a, struct meta);
    n->metadata->name = arena_strdup(x->a, o->meta->name);
    n->status = arena_new(x->a, struct node_status);
    n->status->notice = now;
    return x->n < x->max;
}

size_t site_notices_due(struct site *t, struct arena *a, struct node *nodes, size_t max)
{
    struct site_notices *s = &t->facts.notices;
    struct brain *b = t->brain;
    struct notice_scan x = {.t = t,
                            .a = a,
                            .nodes = nodes,
                            .max = max,
                            .prefix = strlen(t->name),
                            .now_ms = loop_now_ms(b->loop),
                            .state_ms = root_time(b->root)};

    if (!s->known || !s->due || root_feature_level(b->root) < FEATURE_GRANTS)
        return 0;
    root_scan(b->root, KIND_NODE, NULL, "", arena_printf(a, "%s.", t->name), notice_each, &x);
    if (!x.n)
        s->due = false;
    return x.n;
}

void site_notices_drop(struct site *t)
{
    mem_free(t->facts.notices.v);
    t->facts.notices = (struct site_notices){0};
}
