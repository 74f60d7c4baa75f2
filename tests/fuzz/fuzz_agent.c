/* Fuzz target: bytes as what an agent says to the server, from its HELLO on. An agent is
 * authenticated, and not trusted: the worst that it may do is to lose its session. */
#include "connectors/agent/hub/hub_internal.h"

#include <stdio.h>
#include <string.h>

int fuzz_agent(const uint8_t *data, size_t size);

static struct fuzz_agent {
    struct stream stream;
    struct loop loop;
    bool closed; /* by the hub, because of what it was told */
} fz;

static uint64_t now_ms(const struct loop *l)
{
    (void)l;
    return 1000000;
}

static void wake_at(struct loop *l, uint64_t ms)
{
    (void)l;
    (void)ms;
}

static void sink(struct stream *s, const void *p, size_t n)
{
    (void)s;
    (void)p;
    (void)n;
}

static void over(struct stream *s, const char *why)
{
    (void)s;
    (void)why;
    fz.closed = true;
}

static void nodes(void *arg, const struct node *v, size_t n, bool complete)
{
    (void)arg;
    (void)complete;
    for (size_t i = 0; i < n; i++)
        INV(v[i].metadata && v[i].spec);
}

static void observed(void *arg, const struct observation *o)
{
    (void)arg;
    INV(*o->key.uid && o->state <= RUN_ENDED);
    INV(!o->checkpoint.present || *o->checkpoint.path);
}

int fuzz_agent(const uint8_t *data, size_t size)
{
    static const struct loop_ops loop_ops = {.now_ms = now_ms, .wake_at = wake_at};
    static const struct stream_ops stream_ops = {.write = sink, .abort = over};
    static const struct connector_events events = {.nodes = nodes, .observed = observed};
    static struct object *target;
    struct meta meta = {.name = "t1"};
    struct target_spec spec = {.type = TARGET_AGENT};
    struct target body = {.metadata = &meta, .spec = &spec};
    struct connector *c = NULL;
    struct err err;

    if (!target)
        target = object_make(kind_by_id(KIND_TARGET), &body);
    memset(&fz, 0, sizeof fz);
    fz.loop.ops = &loop_ops;
    fz.stream = (struct stream){.ops = &stream_ops, .loop = &fz.loop};
    (void)snprintf(fz.stream.peer.name, sizeof fz.stream.peer.name, "agent:t1");
    struct connector_env env = {.loop = &fz.loop, .events = &events};
    INV(connector_agent_ops.create(&env, target, &c, &err) == 0);
    INV(connector_agent_attach(c, &fz.stream, &err) == 0);
    if (fz.stream.ev->data)
        fz.stream.ev->data(&fz.stream, data, size, fz.stream.arg);
    if (fz.closed && fz.stream.ev->closed) {
        (void)err_set(&err, E_CONNECT, "aborted");
        fz.stream.ev->closed(&fz.stream, &err, fz.stream.arg);
    }
    bool closed = fz.closed;
    connector_agent_ops.destroy(c);
    fz.closed = closed;
    mem_free(fz.loop.timers.v);
    return 0;
}

#ifndef FUZZ_IN_TEST
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_agent(data, size);
}
#endif
