/* One machine: what is to be done about it follows from the log, from what its target told last,
 * and from which listing came to its end since it was asked for.
 *
 * After an order whose outcome is not known a listing comes first, and then the same order under
 * the same key. Nothing is taken for gone because it is not listed: it is released, and only once
 * its target has promised that the key gives nothing any more has it ended. */
#include "controlplane/leader/machines/machines_internal.h"

#include "api/base/failpoint.h"
#include "controlplane/leader/context/hide.h"

#include <stdio.h>
#include <string.h>

#define CALL_MS 20000

static const struct machine_ops *ops_of(const struct farm_look *l)
{
    return l->site->connector->ops->machines;
}

/* ---- what is told ---- */
void unit_told(struct unit *u, const struct machine_seen *m)
{
    static const enum machine_phase phases[] = {[MACHINE_ASKED] = MACHINE_IS_ASKED,
                                                [MACHINE_BOOTING] = MACHINE_IS_BOOTING,
                                                [MACHINE_JOINED] = MACHINE_IS_JOINED,
                                                [MACHINE_NOTICED] = MACHINE_IS_NOTICED,
                                                [MACHINE_ENDED] = MACHINE_IS_ENDED};
    struct told *t = &u->told;

    u->listed_in = u->farm->list_number;
    if (m->state < MACHINE_ASKED || m->state > MACHINE_ENDED ||
        (t->any && t->phase == MACHINE_IS_ENDED))
        return; /* an end is final */
    *t = (struct told){.any = true,
                       .phase = phases[m->state],
                       .billed_from = (int64_t)m->billed_from_ms,
                       .billed_to = (int64_t)m->billed_to_ms,
                       .price = m->price};
    str_copy(t->id, sizeof t->id, m->id);
    str_copy(t->zone, sizeof t->zone, m->zone);
    str_copy(t->currency, sizeof t->currency, m->currency);
    str_copy(t->reason, sizeof t->reason, m->reason);
    str_copy(t->message, sizeof t->message, m->message);
    hide_controls(t->id);
    hide_controls(t->zone);
    hide_controls(t->reason);
    hide_controls(t->message);
}

static struct machine_status status_of(const struct told *t)
{
    return (struct machine_status){.phase = t->phase,
                                   .id = t->id,
                                   .zone = t->zone,
                                   .billedFrom = t->billed_from,
                                   .billedTo = t->billed_to,
                                   .price = t->price,
                                   .currency = t->currency,
                                   .reason = t->reason,
                                   .message = t->message,
                                   .release = ""};
}

static bool is_news(const struct told *t, const struct machine_status *s)
{
    return t->any &&
           (t->phase != s->phase || (*t->id && strcmp(t->id, s->id) != 0) ||
            (*t->zone && strcmp(t->zone, s->zone) != 0) ||
            (t->billed_from && t->billed_from != s->billedFrom) ||
            (t->billed_to && t->billed_to != s->billedTo) ||
            (t->price > 0 && (t->price < s->price || t->price > s->price ||
                              strcmp(t->currency, s->currency) != 0)) ||
            strcmp(t->reason, s->reason) != 0 || strcmp(t->message, s->message) != 0);
}

bool unit_unlisted(const struct farm_look *l, const struct unit *u, uint64_t since)
{
    const struct farm *f = l->farm;
    uint64_t from = since > f->since_ms ? since : f->since_ms;

    if (u->asked_ms > from)
        from = u->asked_ms;
    return u->listed_in < f->complete_number &&
           f->complete_began_ms > from + ops_of(l)->lag_ms;
}

/* ---- calls ---- */
static void order_of(const struct farm_look *l, const struct object *o, struct machine_order *ret)
{
    const struct machine_spec *s = object_as(o, machine)->spec;

    *ret = (struct machine_order){.key = o->meta->name,
                                  .class_ = s->class_,
                                  .gpus = s->gpus,
                                  .zone = s->zone,
                                  .market = s->market,
                                  .ttl_ms = (uint64_t)s->timeToLive,
                                  .image = s->image,
                                  .max_price = s->maxPrice,
                                  .currency = s->currency,
                                  .tags = s->tags,
                                  .n_tags = s->n_tags,
                                  .cluster = s->cluster,
                                  .pool = s->pool,
                                  .state_rv = root_rv(l->root)};
}

static struct call *call_begin(struct unit *u, call_cb done)
{
    u->calling = true;
    u->farm->calls++;
    u->farm->awaited++;
    return brain_call(u->farm->brain, &u->call, CALL_MS, done);
}

static void call_over(struct unit *u)
{
    u->calling = false;
    u->farm->calls--;
}

static void refused(struct unit *u, const struct refusal *why, const struct err *err)
{
    char text[ERR_TEXT_MAX] = "", name[sizeof why->name];
    struct brain *b = u->farm->brain;
    const struct object *target = root_get(b->root, KIND_TARGET, "", u->farm->target);
    struct target_pause pause = {.scope = why->scope ? why->scope : BLAMES_TARGET,
                                 .name = name,
                                 .refusal = why->class_,
                                 .message = "",
                                 .since = root_time(b->root)};
    bool blames = why->class_ && pause.scope != BLAMES_WORKLOAD && target;

    str_copy(text, sizeof text, err ? err->text : "");
    str_copy(name, sizeof name, why->name);
    hide_controls(text);
    hide_controls(name);
    wait_longer(&u->wait_ms, loop_now_ms(b->loop), &u->retry_ms);
    if (why->class_ == REFUSED_CONFLICT) { /* it gives none under this key: another one is needed */
        unit_propose(u, MACHINE_STEP_RELEASE, "Conflict", "", NULL, NULL);
        return;
    }
    if (blames)
        pause.until = policy_pause_until(object_as(target, target)->status, &pause,
                                         why->retry_ms < INT64_MAX ? (int64_t)why->retry_ms
                                                                   : INT64_MAX);
    unit_propose(u, MACHINE_STEP_REFUSED,
                 why->class_ ? refusal_class_text(why->class_) : "refused", text, NULL,
                 blames ? &pause : NULL);
}

static void ordered(struct call *c, enum outcome out, const struct observation *seen,
                    const struct err *err)
{
    struct unit *u = container_of(c, struct unit, call.call);
    struct farm *f = u->farm;

    (void)seen;
    call_over(u);
    u->unknown = out == OUT_UNKNOWN || (out == OUT_DONE && !u->told.any);
    if (u->unknown)
        f->list_due = true;
    if (out == OUT_DONE && u->told.any)
        u->wait_ms = 0;
    if (u->unknown && !f->gone)
        wait_longer(&u->wait_ms, loop_now_ms(f->brain->loop), &u->retry_ms);
    if (out == OUT_REJECTED && !f->gone && f->brain->leads)
        refused(u, &c->refused, err);
    farm_answered(f);
}

static void released(struct call *c, enum outcome out, const struct observation *seen,
                     const struct err *err)
{
    struct unit *u = container_of(c, struct unit, call.call);
    struct farm *f = u->farm;
    uint64_t now = loop_now_ms(f->brain->loop);

    (void)seen;
    (void)err;
    call_over(u);
    if (out == OUT_DONE) {
        u->released_ms = now;
        u->wait_ms = 0;
        f->list_due = true;
    } else {
        wait_longer(&u->wait_ms, now, &u->retry_ms);
    }
    farm_answered(f);
}

/* ---- what is to be done ---- */
static void order(const struct farm_look *l, struct unit *u, const struct object *o)
{
    const struct machine_spec *s = object_as(o, machine)->spec;
    struct farm *f = l->farm;
    struct machine_order order_;

    if (!f->complete_number) /* an earlier leader may have sent it */
        return;
    if (u->unknown && !unit_unlisted(l, u, 0)) {
        f->list_due = true;
        return;
    }
    if (machine_paused(l, s->class_, s->zone) || f->calls >= FARM_CALLS_MAX)
        return;
    order_of(l, o, &order_);
    u->asked_ms = l->now;
    ops_of(l)->order(l->site->connector, &order_, call_begin(u, ordered));
    FAILPOINT("machine.order.sent");
}

static void let_go(const struct farm_look *l, struct unit *u, const struct object *o)
{
    const struct machine_status *s = object_as(o, machine)->status;
    struct machine_order order_;

    if (!u->released_ms) {
        if (u->farm->calls >= FARM_CALLS_MAX)
            return;
        order_of(l, o, &order_);
        ops_of(l)->release(l->site->connector, &order_, call_begin(u, released));
    } else if (unit_unlisted(l, u, u->released_ms)) {
        unit_propose(u, MACHINE_STEP_ENDED, s->release, "", NULL, NULL);
    } else {
        u->farm->list_due = true;
    }
}

/* By its release, its time to live, or because it was taken back: its key is used up by that. */
static void ended(struct unit *u)
{
    struct machine_status s = status_of(&u->told);

    unit_propose(u, MACHINE_STEP_ENDED, *u->told.reason ? u->told.reason : "Ended", u->told.message,
                 &s, NULL);
}

void unit_look(const struct farm_look *l, struct unit *u, const struct object *o)
{
    const struct machine_status *s = object_as(o, machine)->status;

    if (u->calling || u->proposing || l->now < u->retry_ms)
        return;
    if (u->told.any && u->told.phase == MACHINE_IS_ENDED) {
        ended(u);
    } else if (is_news(&u->told, s)) {
        struct machine_status told = status_of(&u->told);
        unit_propose(u, MACHINE_STEP_SEEN, "", "", &told, NULL);
    } else if (*s->release) {
        let_go(l, u, o);
    } else if (o->meta->deletionTimestamp) {
        if (!machine_held(l->root, o))
            unit_propose(u, MACHINE_STEP_RELEASE, "Deleted", "", NULL, NULL);
    } else if (s->phase == MACHINE_IS_ORDERED) {
        order(l, u, o);
    } else if (unit_unlisted(l, u, 0) && !machine_held(l->root, o)) {
        unit_propose(u, MACHINE_STEP_RELEASE, "NotListed", "", NULL, NULL);
    }
}
