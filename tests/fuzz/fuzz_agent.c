/* Fuzz target: bytes as what an agent says to the server, from its HELLO on. An agent is
 * authenticated, and not trusted: the worst that it may do is to lose its session. */
#include "connectors/agent/hub/hub_internal.h"

#include <stdio.h>
#include <string.h>

int fuzz_agent(const uint8_t *data, size_t size);
int fuzz_guest(const uint8_t *data, size_t size);

static struct fuzz_agent {
    struct stream stream, other;
    struct loop loop;
    bool closed; /* `stream`, by the hub, because of what it was told */
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
    (void)why;
    if (s == &fz.stream)
        fz.closed = true;
}

static void nodes(void *arg, const struct inventory_page *p)
{
    (void)arg;
    INV(*p->since ? !p->first && !p->last : !p->n_removed);
    for (size_t i = 0; i < p->n; i++)
        INV(p->nodes[i].metadata && p->nodes[i].spec);
    for (size_t i = 0; i < p->n_removed; i++)
        INV(*p->removed[i]);
}

static void observed(void *arg, const struct observation *o)
{
    (void)arg;
    INV(*o->key.uid && o->state <= RUN_ENDED);
    INV(!o->checkpoint.present || *o->checkpoint.path);
}

static void attach(struct connector *c, struct stream *s)
{
    static const struct stream_ops stream_ops = {.write = sink, .abort = over};
    struct err err;

    *s = (struct stream){.ops = &stream_ops, .loop = &fz.loop};
    (void)snprintf(s->peer.name, sizeof s->peer.name, "agent:t1");
    INV(connector_agent_attach(c, s, &err) == 0);
}

/* What the hub's own session says first, if anything, and then the session that is tried. */
static void sessions(const uint8_t *first, size_t first_n, const uint8_t *data, size_t size)
{
    static const struct loop_ops loop_ops = {.now_ms = now_ms, .wake_at = wake_at};
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
    struct connector_env env = {.loop = &fz.loop, .events = &events};
    INV(connector_agent_ops.create(&env, target, &c, &err) == 0);
    if (first_n) {
        attach(c, &fz.other);
        fz.other.ev->data(&fz.other, first, first_n, fz.other.arg);
    }
    attach(c, &fz.stream);
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
}

int fuzz_agent(const uint8_t *data, size_t size)
{
    sessions(NULL, 0, data, size);
    return 0;
}

/* Of a second agent of the same name, while the first one lives. */
int fuzz_guest(const uint8_t *data, size_t size)
{
    static const char hello[] = "{\"target\":\"t1\",\"stateId\":\"another\",\"instance\":\"q\"}";
    uint8_t first[16 + sizeof hello - 1] = {sizeof hello - 1 + 12, [4] = AF_HELLO};

    memcpy(first + 16, hello, sizeof hello - 1);
    sessions(first, sizeof first, data, size);
    return 0;
}

#ifndef FUZZ_IN_TEST
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_agent(data, size);
}
#endif
