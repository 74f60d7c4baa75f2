/* Retention: Migrations and Events that ended long ago leave the state, so that it stays bounded.
 * Workloads and Decisions stay: nothing archives them yet. */
#include "controlplane/run/brain_internal.h"

#include <stdio.h>

#define KEEP_MS (7ll * 24 * 3600 * 1000)
#define LOOK_EVERY_MS (15ul * 60 * 1000)
#define MORE_MS 1000
#define OPS_MAX 512

static void removed(void *arg, const struct result *r, const struct err *err)
{
    (void)arg;
    (void)r;
    (void)err; /* what is left is found again */
}

struct old {
    struct write_op *ops;
    uint32_t n;
    int64_t before;
};
static bool old_each(const struct object *o, void *arg)
{
    struct old *x = arg;
    const struct migration_status *s =
        o->kind->id == KIND_MIGRATION ? object_as(o, migration)->status : NULL;
    int64_t at = s                           ? s->endedAt
                 : o->kind->id == KIND_EVENT ? object_as(o, event)->lastTimestamp
                                             : 0;

    if (!at || at >= x->before)
        return true;
    struct write_op *op = &x->ops[x->n++];
    *op = (struct write_op){.verb = WRITE_DELETE, .kind = o->kind->id};
    (void)snprintf(op->ns, sizeof op->ns, "%s", o->meta->namespace_);
    (void)snprintf(op->name, sizeof op->name, "%s", o->meta->name);
    (void)snprintf(op->uid, sizeof op->uid, "%s", o->meta->uid);
    return x->n < OPS_MAX;
}

static void look(void *arg)
{
    struct brain *b = arg;
    struct old x = {.ops = mem_alloc(OPS_MAX * sizeof *x.ops),
                    .before = loop_wall_ms(b->loop) - KEEP_MS};
    union command c = {.remove = {.head = {.type = CMD_REMOVE, .user = "hanse:retention"}}};

    root_scan(b->root, KIND_MIGRATION, NULL, NULL, NULL, old_each, &x);
    if (x.n < OPS_MAX)
        root_scan(b->root, KIND_EVENT, NULL, NULL, NULL, old_each, &x);
    c.remove.ops = x.ops;
    c.remove.n = x.n;
    if (x.n) {
        brain_request_id(b, c.head.request_id);
        brain_propose(b, &c, removed, b);
    }
    mem_free(x.ops);
    timer_start(&b->retention, x.n == OPS_MAX ? MORE_MS : LOOK_EVERY_MS);
}

void retention_reset(struct brain *b)
{
    timer_init(&b->retention, b->loop, look, b);
    timer_start(&b->retention, LOOK_EVERY_MS);
}
void retention_drop(struct brain *b)
{
    if (b->retention.loop)
        timer_stop(&b->retention);
}
