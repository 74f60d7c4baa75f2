/* Drivers of agents that do as a test tells them: each call stays open until the test answers. */
#ifndef HANSE_TESTS_SUPPORT_AGENT_FLEET_FAKE_H
#define HANSE_TESTS_SUPPORT_AGENT_FLEET_FAKE_H

#include "connectors/connector.h"
#include "tests/support/unit.h"

#include <string.h>

enum asked { SUBMIT, FIND, STOP, QUIESCE, FINALIZE, SWEEP, INVENTORY, STAGE, SAVE, ASKED_NR };
struct fake {
    struct connector base; /* first */
    struct call *open[ASKED_NR];
    unsigned asked[ASKED_NR];
    size_t renewed;
    char memory[64]; /* repeats() */
    int64_t port;    /* told with SUBMIT */
    struct {         /* the last order */
        uint32_t world, n, n_peers;
        int64_t rank, port; /* rank: of the first of its workers */
        char address[64], env[64];
    } order;
    struct { /* the last stage */
        char meeting[97], resume[64], log[64]; /* log: log_base of the last order */
        bool leaves;
        int64_t look;
        uint32_t world;
    } staged;
    uint64_t grace_ms; /* of the last stop */
    uint32_t n_peers;  /* of the last renewal */
};
extern struct fake *fakes[4]; /* the test has them, in the order in which they were made */
extern size_t n_fakes;
extern const struct connector_ops fake_ops;

static inline void ask(struct connector *c, enum asked what, struct call *call)
{
    struct fake *k = container_of(c, struct fake, base);

    assert_null(k->open[what]);
    k->open[what] = call;
    k->asked[what]++;
}

static inline void answer(unsigned at, enum asked what, enum outcome out,
                          const struct observation *seen)
{
    struct call *call = fakes[at]->open[what];
    struct err err = {0};

    assert_non_null(call);
    fakes[at]->open[what] = NULL;
    if (out != OUT_DONE)
        (void)err_set(&err, E_UNKNOWN, "so it was told to");
    if (what == SUBMIT)
        call->port = fakes[at]->port;
    call->done(call, out, seen, err.code ? &err : NULL);
}

static inline int fake_create(const struct connector_env *env, const struct object *target,
                       struct connector **ret, struct err *err)
{
    struct fake *k = mem_new(struct fake);

    (void)err;
    k->base.ops = &fake_ops;
    k->base.env = *env;
    str_copy(k->base.target, sizeof k->base.target, target->meta->name);
    fakes[n_fakes++] = k;
    *ret = &k->base;
    return 0;
}

static inline void fake_destroy(struct connector *c)
{
    struct fake *k = container_of(c, struct fake, base);

    for (unsigned i = 0; i < ASKED_NR; i++)
        if (k->open[i])
            k->open[i]->done(k->open[i], OUT_UNKNOWN, NULL, NULL);
    mem_free(k);
}

static inline void fake_update(struct connector *c, const struct object *target)
{
    (void)c;
    (void)target;
}
static inline void fake_submit(struct connector *c, const struct run_order *o, struct call *call)
{
    struct fake *k = container_of(c, struct fake, base);

    memset(&k->order, 0, sizeof k->order);
    k->order.n = o->placement->n_assignments;
    k->order.rank = o->placement->assignments[0].rank;
    str_copy(k->order.env, sizeof k->order.env, o->env ? o->env[0] : "");
    str_copy(k->staged.log, sizeof k->staged.log, o->log_base ? o->log_base : "");
    if (o->span) {
        k->order.world = o->span->world;
        k->order.port = o->span->port;
        k->order.n_peers = o->span->n_peers;
        str_copy(k->order.address, sizeof k->order.address, o->span->address);
    }
    ask(c, SUBMIT, call);
}
static inline void fake_stage(struct connector *c, const struct run_order *o, struct call *call)
{
    struct fake *k = container_of(c, struct fake, base);

    str_copy(k->staged.meeting, sizeof k->staged.meeting, o->meeting ? o->meeting : "");
    str_copy(k->staged.resume, sizeof k->staged.resume, o->resume_path ? o->resume_path : "");
    k->staged.leaves = o->leaves;
    k->staged.look = o->look_epoch;
    k->staged.world = o->placement->n_assignments;
    ask(c, STAGE, call);
}
static inline void fake_checkpoint(struct connector *c, const struct run_key *k, int64_t number,
                                   uint64_t ms, struct call *call)
{
    (void)k;
    (void)number;
    (void)ms;
    ask(c, SAVE, call);
}
static inline const char *fake_repeats(const struct connector *c)
{
    return container_of((struct connector *)(uintptr_t)c, struct fake, base)->memory;
}
static inline void fake_find(struct connector *c, const struct run_key *k, struct call *call)
{
    (void)k;
    ask(c, FIND, call);
}
static inline void fake_stop(struct connector *c, const struct run_key *k, uint64_t ms,
                             struct call *call)
{
    (void)k;
    container_of(c, struct fake, base)->grace_ms = ms;
    ask(c, STOP, call);
}
static inline void fake_quiesce(struct connector *c, const struct run_key *k, int signo,
                                uint64_t ms, struct call *call)
{
    (void)k;
    (void)signo;
    (void)ms;
    ask(c, QUIESCE, call);
}
static inline void fake_finalize(struct connector *c, const struct run_key *k, struct call *call)
{
    (void)k;
    ask(c, FINALIZE, call);
}
static inline void fake_sweep(struct connector *c, run_judge judge, void *arg, struct call *call)
{
    (void)judge;
    (void)arg;
    ask(c, SWEEP, call);
}
static inline void fake_inventory(struct connector *c, struct call *call)
{
    struct fake *k = container_of(c, struct fake, base);

    if (k->open[INVENTORY]) { /* of an earlier session */
        struct call *old = k->open[INVENTORY];
        k->open[INVENTORY] = NULL;
        old->done(old, OUT_UNKNOWN, NULL, NULL);
    }
    ask(c, INVENTORY, call);
}
static inline void fake_renew(struct connector *c, const struct run_offer *offers, size_t n)
{
    struct fake *k = container_of(c, struct fake, base);
    const char **peers;
    AUTO_ARENA a = arena_create(0);

    (void)offers;
    k->renewed += 1 + n;
    k->n_peers = c->env.peers(c->env.arg, a, &peers);
}

#endif
