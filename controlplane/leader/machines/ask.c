/* What is asked about all machines of a Target at once: listings, prices, renewals.
 *
 * A listing counts from its beginning: what was ordered later may be missing in it. Only one that
 * came to its end counts at all. */
#include "controlplane/leader/machines/machines_internal.h"

#include "api/base/log.h"

#include <string.h>

#define CALL_MS 20000
#define LIST_EVERY_MS 60000
#define LIST_COMING_MS 5000 /* while one is on its way, or away */
#define LIST_SOON_MS 500 /* after the last one, where somebody waits for it */
#define PRICES_EVERY_MS 300000
#define PRICES_AGAIN_MS 30000

static const struct machine_ops *ops_of(const struct farm_look *l)
{
    return l->site->connector->ops->machines;
}

static struct call *call_begin(struct farm *f, struct brain_call *c, call_cb done)
{
    f->awaited++;
    return brain_call(f->brain, c, CALL_MS, done);
}

static void told_lost(const struct farm *f, const char *event, const struct err *err)
{
    if (err && !f->gone)
        log_event(LOG_WARN, event,
                  LOG_FIELDS({"target", log_str(f->target)}, {"why", log_str(err->text)}));
}

/* ---- listings ---- */
static void listed(struct call *c, enum outcome out, const struct observation *seen,
                   const struct err *err)
{
    struct farm *f = container_of(c, struct farm, list_call.call);
    uint64_t now = loop_now_ms(f->brain->loop);

    (void)seen;
    f->listing = false;
    if (out == OUT_DONE) {
        f->unread[0] = '\0';
        f->complete_number = f->list_number;
        f->complete_began_ms = f->list_began_ms;
        f->list_wait_ms = 0;
        f->list_after_ms = now + LIST_SOON_MS;
    } else {
        told_lost(f, "machines.list", err);
        f->list_due = true;
        wait_longer(&f->list_wait_ms, now, &f->list_after_ms);
    }
    farm_answered(f);
}

/* A target that tells nothing unasked is asked oftener while something changes. */
static bool changing(const struct farm_look *l)
{
    for (size_t i = 0; i < l->n; i++)
        if (object_as(l->machines[i], machine)->status->phase != MACHINE_IS_JOINED)
            return true;
    return false;
}

void farm_list(const struct farm_look *l)
{
    struct farm *f = l->farm;
    uint64_t every = changing(l) ? LIST_COMING_MS : LIST_EVERY_MS;
    bool first = !f->list_number, old = l->now >= f->list_began_ms + every;

    if (f->listing || !(first || f->list_due || old) || l->now < f->list_after_ms)
        return;
    f->list_due = false;
    f->listing = true;
    f->list_number++;
    f->list_began_ms = l->now;
    ops_of(l)->list(l->site->connector, call_begin(f, &f->list_call, listed));
}

/* ---- prices ---- */
static void priced(struct call *c, enum outcome out, const struct observation *seen,
                   const struct err *err)
{
    struct farm *f = container_of(c, struct farm, price_call.call);

    (void)seen;
    f->pricing = false;
    if (out != OUT_DONE)
        told_lost(f, "machines.prices", err);
    f->prices_after_ms = loop_now_ms(f->brain->loop) +
                         (out == OUT_DONE ? PRICES_EVERY_MS : PRICES_AGAIN_MS);
    farm_answered(f);
}

void farm_ask_prices(const struct farm_look *l)
{
    struct farm *f = l->farm;

    if (f->pricing || l->now < f->prices_after_ms || !l->target->spec->n_machines)
        return;
    f->pricing = true;
    ops_of(l)->prices(l->site->connector, call_begin(f, &f->price_call, priced));
}

/* ---- renewals: into the log, and then to the target ---- */
static void renewed(struct call *c, enum outcome out, const struct observation *seen,
                    const struct err *err)
{
    struct farm *f = container_of(c, struct farm, renew_call.call);

    (void)seen;
    f->renewing = false;
    if (out != OUT_DONE) {
        told_lost(f, "machines.renew", err);
        wait_longer(&f->renew_wait_ms, loop_now_ms(f->brain->loop), &f->renew_after_ms);
        if (f->renew_wait_ms > f->renew_ttl_ms / 8)
            f->renew_wait_ms = f->renew_ttl_ms / 8;
    } else {
        f->renew_wait_ms = 0;
    }
    for (size_t i = 0; i < f->n_renewed && out == OUT_DONE; i++) {
        struct unit *u = unit_find(f, f->renewed[i]);
        if (u)
            u->renew_due = false;
    }
    farm_answered(f);
}

/* Those of them that the target has told of; of the others it may know nothing yet. */
static size_t keys_there(const struct farm *f, const struct root *r,
                         const char *keys[MACHINES_AT_ONCE])
{
    size_t n = 0;

    for (size_t i = 0; i < f->n_renewed; i++) {
        const struct object *o = root_get(r, KIND_MACHINE, "", f->renewed[i]);
        if (o && !machine_closing(o) &&
            object_as(o, machine)->status->phase > MACHINE_IS_ORDERED)
            keys[n++] = f->renewed[i];
    }
    return n;
}

static void renew_proposed(void *arg, const struct result *r, const struct err *err)
{
    struct farm *f = arg;
    struct brain *b = f->brain;
    struct site *t = f->gone || !b->leads ? NULL : site_find(b, f->target);
    const char *keys[MACHINES_AT_ONCE];
    size_t n = 0;

    f->renewing = false;
    if (err || r->code)
        f->renew_after_ms = loop_now_ms(b->loop) + WAIT_MIN_MS;
    else if (t && t->connector && t->reachable)
        n = keys_there(f, b->root, keys);
    if (n) {
        f->renewing = true;
        t->connector->ops->machines->renew(t->connector, keys, n, f->renew_ttl_ms,
                                           call_begin(f, &f->renew_call, renewed));
    }
    farm_answered(f);
}

static bool due(const struct farm_look *l, const struct object *o)
{
    const struct machine *m = object_as(o, machine);
    const struct unit *u = unit_find(l->farm, o->meta->name);

    return !machine_closing(o) && m->status->phase > MACHINE_IS_ORDERED &&
           (u->renew_due || m->status->until - l->time < m->spec->timeToLive / 2);
}

/* At once those of one time to live, which is that of the first that is due. */
void farm_renew(const struct farm_look *l)
{
    struct farm *f = l->farm;
    struct write_op ops[MACHINES_AT_ONCE];
    union command c = {.machine = {.head = {.type = CMD_MACHINE, .user = "hanse:machines"},
                                   .step = MACHINE_STEP_RENEW,
                                   .ops = ops}};
    int64_t ttl = 0;

    if (f->renewing || l->now < f->renew_after_ms || l->deleted)
        return;
    f->n_renewed = 0;
    for (size_t i = 0; i < l->n && f->n_renewed < MACHINES_AT_ONCE; i++) {
        const struct object *o = l->machines[i];
        const struct machine_spec *s = object_as(o, machine)->spec;
        if (!due(l, o) || (ttl && s->timeToLive != ttl))
            continue;
        ttl = s->timeToLive;
        struct write_op *op = &ops[f->n_renewed];
        *op = (struct write_op){.verb = WRITE_UPDATE, .kind = KIND_MACHINE};
        str_copy(op->name, sizeof op->name, o->meta->name);
        str_copy(op->uid, sizeof op->uid, o->meta->uid);
        str_copy(f->renewed[f->n_renewed++], MACHINE_NAME_MAX, o->meta->name);
        unit_find(f, o->meta->name)->renew_due = true;
    }
    if (!f->n_renewed)
        return;
    f->renew_ttl_ms = (uint64_t)ttl;
    f->renewing = true;
    f->awaited++;
    c.machine.n = (uint32_t)f->n_renewed;
    brain_request_id(f->brain, c.head.request_id);
    brain_propose(f->brain, &c, renew_proposed, f);
}
