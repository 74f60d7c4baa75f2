/* What the parts share: the table through which the brain calls them, and the look at the newest
 * root before each answer that they get. */
#include "controlplane/leader/context/context.h"

#include "api/base/err.h"
#include "controlplane/leader/context/hide.h"

void brain_under_way(struct brain *b, int delta)
{
    INV(delta > 0 || b->under_way > 0);
    b->under_way = (unsigned)((int)b->under_way + delta);
}

/* A part that learns the result of its command decides by a state that contains it. */
void brain_answered(struct brain *b)
{
    brain_under_way(b, -1);
    b->follow(b);
}

static void called(struct call *c, enum outcome out, const struct observation *seen,
                   const struct err *err)
{
    struct brain_call *x = container_of(c, struct brain_call, call);
    struct observation told;
    struct err why;

    brain_answered(x->brain);
    const struct object *o =
        *x->about && (seen || err) ? root_workload_by_uid(x->brain->root, x->about) : NULL;
    if (o && seen) {
        told = *seen;
        hide_observation(x->brain, o, &told);
        seen = &told;
    }
    if (o && err) {
        why = *err;
        hide_text(x->brain, o, why.text);
        err = &why;
    }
    x->done(c, out, seen, err);
}

struct call *brain_call_about(struct brain *b, struct brain_call *c, const char *uid, uint64_t ms,
                              call_cb done)
{
    struct call *call = brain_call(b, c, ms, done);

    str_copy(c->about, sizeof c->about, uid);
    return call;
}

struct call *brain_call(struct brain *b, struct brain_call *c, uint64_t ms, call_cb done)
{
    c->about[0] = '\0';
    c->call = (struct call){.deadline_ms = loop_now_ms(b->loop) + ms, .done = called};
    c->brain = b;
    c->done = done;
    brain_under_way(b, 1);
    return &c->call;
}

void brain_allowed(struct brain *b)
{
    for (const struct part *p = b->parts; p->name; p++)
        if (p->tick)
            p->tick(b);
}

void brain_observed(struct brain *b, const char *workload_uid, const struct observation *o)
{
    for (const struct part *p = b->parts; p && p->name; p++)
        if (p->observed)
            p->observed(b, workload_uid, o);
}

void brain_used(struct brain *b, const char *target, const struct run_use *u)
{
    for (const struct part *p = b->parts; p && p->name; p++)
        if (p->used)
            p->used(b, target, u);
}

void brain_machine(struct brain *b, const char *target, const struct machine_seen *m)
{
    for (const struct part *p = b->parts; p && p->name; p++)
        if (p->machine)
            p->machine(b, target, m);
}

void brain_machine_unread(struct brain *b, const char *target, const char *key, const char *why)
{
    for (const struct part *p = b->parts; p && p->name; p++)
        if (p->machine_unread)
            p->machine_unread(b, target, key, why);
}

void brain_prices(struct brain *b, const char *target, const struct machine_price *v, size_t n,
                  const char *currency)
{
    for (const struct part *p = b->parts; p && p->name; p++)
        if (p->prices)
            p->prices(b, target, v, n, currency);
}

void brain_later(struct brain *b, struct timer *t, uint64_t ms)
{
    if (b->leads && !timer_active(t))
        timer_start(t, ms);
}

/* ---- a majority confirms that this member leads ---- */
struct confirm {
    struct brain *brain;
    uint64_t term;
    void (*cb)(void *arg, const struct err *err);
    void *arg;
};

static void confirmed(void *arg, const struct err *err)
{
    struct confirm *c = arg;
    struct brain *b = c->brain;
    struct err e;

    brain_answered(b);
    if (!err && (!b->leads || b->term != c->term)) {
        (void)err_set(&e, E_UNAVAIL, "the leadership that was confirmed is over");
        err = &e;
    }
    c->cb(c->arg, err);
    mem_free(c);
}

void brain_confirm(struct brain *b, uint64_t deadline_ms,
                   void (*cb)(void *arg, const struct err *err), void *arg)
{
    struct confirm *c = mem_new(struct confirm);

    *c = (struct confirm){b, b->term, cb, arg};
    brain_under_way(b, 1);
    core_confirm(b->cfg.core, b->loop, b->term, deadline_ms, confirmed, c);
}
