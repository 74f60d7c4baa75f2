/* The connector driver of callout targets: it holds a client and a session, and nothing that it
 * could not ask the server for again. */
#include "connectors/callout/callout_internal.h"
#include "connectors/streams/streams.h"

#include <string.h>

struct callout *callout_of(struct connector *c)
{
    PRE(c->ops == &connector_callout_ops);
    return container_of(c, struct callout, base);
}

static int create(const struct connector_env *env, const struct object *target,
                  struct connector **ret, struct err *err)
{
    struct callout *c = mem_new(struct callout);

    (void)err; /* what is wrong with the connection is told by reach(), and looked at again */
    c->base.ops = &connector_callout_ops;
    c->base.env = *env;
    str_copy(c->base.target, sizeof c->base.target, target->meta->name);
    str_copy(c->why, sizeof c->why, "it was not asked yet");
    c->doc = object_ref(target);
    list_init(&c->calls);
    callout_home_begin(c);
    callout_session_begin(c);
    *ret = &c->base;
    return 0;
}

static void reach_nobody(void *arg, bool reachable, const char *session, const char *why)
{
    (void)arg;
    (void)reachable;
    (void)session;
    (void)why;
}

static void destroy(struct connector *base)
{
    static const struct connector_events silent = {.reach = reach_nobody};
    struct callout *c = callout_of(base);

    c->base.env.events = &silent;
    callout_home_end(c, "this member does not lead any more");
    callout_session_end(c, "the target was removed, or this member does not lead any more");
    (void)object_unref(c->doc);
    mem_free(c);
}

static void update(struct connector *base, const struct object *target)
{
    struct callout *c = callout_of(base);

    callout_session_end(c, "its Target has changed");
    (void)object_unref(c->doc);
    c->doc = object_ref(target);
    callout_session_begin(c);
}

static const char *repeats(const struct connector *base)
{
    const struct callout *c = container_of(base, struct callout, base);

    return c->reachable && c->repeats ? c->instance : "";
}

const struct connector_ops connector_callout_ops = {.type = "callout",
                                                    .acts_for = true,
                                                    .create = create,
                                                    .destroy = destroy,
                                                    .update = update,
                                                    .probe = callout_probe,
                                                    .inventory = callout_inventory,
                                                    .submit = callout_submit,
                                                    .repeats = repeats,
                                                    .find = callout_find,
                                                    .stage = callout_stage,
                                                    .stages = callout_stages,
                                                    .quiesce = callout_quiesce,
                                                    .stop = callout_stop,
                                                    .checkpoint = callout_checkpoint,
                                                    .finalize = callout_finalize,
                                                    .renew = callout_renew,
                                                    .reaches = callout_reaches,
                                                    .runner = callout_runner,
                                                    .members = callout_members,
                                                    .logs = callout_logs,
                                                    .exec = callout_exec,
                                                    .forward = callout_forward,
                                                    .exec_input = asked_input,
                                                    .exec_pending = asked_pending,
                                                    .exec_resize = asked_resize,
                                                    .exec_close = asked_close,
                                                    .sweep = callout_sweep,
                                                    .machines = &callout_machine_ops};
