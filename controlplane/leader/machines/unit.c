/* One machine: what is to be done about it follows from the log, from what its target told last,
 * and from which listing came to its end since it was asked for.
 *
 * After an order whose outcome is not known a listing comes first, and then the same order under
 * the same key. Nothing is taken for gone because it is not listed: it is released, and only once
 * its target has promised that the key gives nothing any more has it ended. */
#include "controlplane/leader/machines/machines_internal.h"

#include "api/base/failpoint.h"
#include "api/base/log.h"
#include "controlplane/leader/context/hide.h"

#include <stdio.h>
#include <string.h>

#define CALL_MS 20000
#define LISTED_MS MACHINE_LISTED_WITHIN_MS

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
    u->unread[0] = '\0';
    *t = (struct told){.any = true,
                       .phase = phases[m->state],
                       .gpus = m->gpus,
                       .market = m->market,
                       .billed_from = (int64_t)m->billed_from_ms,
                       .billed_to = (int64_t)m->billed_to_ms,
                       .price = m->price};
    str_copy(t->class_, sizeof t->class_, m->class_);
    if (t->billed_to && t->billed_to < t->billed_from) /* its clock was set back */
        t->billed_to = t->billed_from;
    str_copy(t->id, sizeof t->id, m->id);
    str_copy(t->zone, sizeof t->zone, m->zone);
    str_copy(t->currency, sizeof t->currency, m->currency);
    str_copy(t->reason, sizeof t->reason, m->reason);
    str_copy(t->message, sizeof t->message, m->message);
    hide_controls(t->id);
    hide_controls(t->class_);
    hide_controls(t->zone);
    hide_controls(t->reason);
    hide_controls(t->message);
}

/* What is not as it was ordered, as a sentence; "": all is. */
static void differs(const struct told *t, const struct machine_spec *s, char text[300])
{
    const char *cap = machine_above_cap(s, t->price, t->currency);
    bool class_ = *s->class_ && *t->class_ && strcmp(s->class_, t->class_) != 0;
    bool gpus = s->gpus && t->gpus && s->gpus != t->gpus;
    bool zone = *s->zone && *t->zone && strcmp(s->zone, t->zone) != 0;
    bool market = s->market && t->market && s->market != t->market;
    char price[120] = "", what[160] = "";

    if (*cap)
        (void)snprintf(price, sizeof price, "it costs %.6g %s an hour, and its maxPrice is %.6g %s",
                       t->price, t->currency, s->maxPrice,
                       *s->currency ? s->currency : t->currency);
    if (class_ || gpus || zone || market)
        (void)snprintf(what, sizeof what, "given instead of what was ordered:%s%s%s%s%s%s",
                       class_ ? " class" : "", gpus ? " gpus" : "", zone ? " zone " : "",
                       zone ? t->zone : "", market ? " market " : "",
                       market ? capacity_text(t->market) : "");
    (void)snprintf(text, 300, "%s%s%s", price, *price && *what ? "; " : "", what);
}

/* Before all members know of conditions, what cannot be read is told by Events alone. */
static bool unit_is_told(const struct farm_look *l, const struct unit *u)
{
    return (u->told.any && !*u->unread) ||
           (*u->unread && root_feature_level(l->root) >= FEATURE_GIVEN);
}

/* What the log is to have of it, in `a`; told.any or unread. */
static struct machine_status status_of(const struct farm_look *l, const struct unit *u,
                                       const struct object *o, struct arena *a)
{
    const struct told *t = &u->told;
    const struct machine_status *s = object_as(o, machine)->status;
    bool unread = *u->unread, full = root_feature_level(l->root) >= FEATURE_GIVEN;
    struct machine_status x = {.phase = t->any ? t->phase : s->phase,
                               .id = t->id,
                               .class_ = full ? t->class_ : "",
                               .gpus = full ? t->gpus : 0,
                               .zone = t->zone,
                               .billedFrom = t->billed_from,
                               .billedTo = t->billed_to,
                               .price = t->price,
                               .currency = t->currency,
                               .reason = unread ? "Unreadable" : t->reason,
                               .message = unread ? u->unread : t->message,
                               .release = ""};
    char text[300] = "";

    if (!full)
        return x;
    x.conditions = arena_array(a, struct condition, 2);
    x.conditions[x.n_conditions++] =
        (struct condition){.type = "Readable",
                           .status = unread ? COND_FALSE : COND_TRUE,
                           .reason = unread ? "Unreadable" : "Told",
                           .message = unread ? u->unread : ""};
    if (!t->any)
        return x;
    const struct machine_spec *spec = object_as(o, machine)->spec;
    const char *cap = machine_above_cap(spec, t->price, t->currency);
    differs(t, spec, text);
    x.conditions[x.n_conditions++] =
        (struct condition){.type = "AsOrdered",
                           .status = *text ? COND_FALSE : COND_TRUE,
                           .reason = *cap ? cap : *text ? "NotAsOrdered" : "AsOrdered",
                           .message = arena_strdup(a, text)};
    return x;
}

static bool condition_is_news(const struct condition *c, const struct machine_status *s)
{
    for (uint32_t i = 0; i < s->n_conditions; i++)
        if (!strcmp(s->conditions[i].type, c->type))
            return s->conditions[i].status != c->status ||
                   strcmp(s->conditions[i].reason, c->reason) != 0 ||
                   strcmp(s->conditions[i].message, c->message) != 0;
    return true;
}

static bool is_news(const struct machine_status *t, const struct machine_status *s)
{
    for (uint32_t i = 0; i < t->n_conditions; i++)
        if (condition_is_news(&t->conditions[i], s))
            return true;
    return t->phase != s->phase || (*t->id && strcmp(t->id, s->id) != 0) ||
           (*t->class_ && strcmp(t->class_, s->class_) != 0) || (t->gpus && t->gpus != s->gpus) ||
           (*t->zone && strcmp(t->zone, s->zone) != 0) ||
           (t->billedFrom && t->billedFrom != s->billedFrom) ||
           (t->billedTo && t->billedTo != s->billedTo) ||
           (t->price > 0 && (t->price < s->price || t->price > s->price ||
                             strcmp(t->currency, s->currency) != 0)) ||
           strcmp(t->reason, s->reason) != 0 || strcmp(t->message, s->message) != 0;
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

/* That there is no room for another machine says nothing of runs on those that are there: the pool
 * waits, and nobody else. Members of before know no such pause. */
static bool blames_pool(const struct brain *b, const struct refusal *why)
{
    return (why->class_ == REFUSED_CAPACITY || why->class_ == REFUSED_QUOTA) &&
           why->scope != BLAMES_WORKLOAD && root_feature_level(b->root) >= FEATURE_GIVEN;
}

static void refused(struct unit *u, const struct refusal *why, const struct err *err)
{
    char text[ERR_TEXT_MAX] = "", name[sizeof why->name];
    struct brain *b = u->farm->brain;
    const struct object *m = root_get(b->root, KIND_MACHINE, "", u->key);
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
    if (m && blames_pool(b, why)) {
        pause.scope = BLAMES_POOL;
        str_copy(name, sizeof name, object_as(m, machine)->spec->pool);
    }
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
    if (machine_paused(l, s->pool, s->class_, s->zone) || f->calls >= FARM_CALLS_MAX)
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
static void ended(struct unit *u, struct machine_status *s)
{
    unit_propose(u, MACHINE_STEP_ENDED, *u->told.reason ? u->told.reason : "Ended", u->told.message,
                 s, NULL);
}

/* What was told of it lately may be missing in a listing for a while. */
static bool gone(const struct farm_look *l, const struct unit *u, const struct object *o)
{
    const struct farm *f = l->farm;
    int64_t began = l->time - (int64_t)(l->now - f->complete_began_ms);
    int64_t told = object_as(o, machine)->status->phaseSince;

    return unit_unlisted(l, u, 0) && began - told >= LISTED_MS &&
           (!u->asked_ms || f->complete_began_ms >= u->asked_ms + LISTED_MS);
}

/* Why it is to be let go whatever its pool says; "": it is not. */
static const char *let_go_for(const struct farm_look *l, const struct unit *u,
                              const struct object *o)
{
    const struct machine *m = object_as(o, machine);

    if (o->meta->deletionTimestamp)
        return "Deleted";
    if (m->status->phase == MACHINE_IS_ORDERED)
        return "";
    return gone(l, u, o) ? "NotListed"
                         : machine_above_cap(m->spec, m->status->price, m->status->currency);
}

void unit_look(const struct farm_look *l, struct unit *u, const struct object *o)
{
    const struct machine_status *s = object_as(o, machine)->status;
    AUTO_ARENA a = arena_create(0);

    if (u->calling || u->proposing || l->now < u->retry_ms)
        return;
    struct machine_status told = status_of(l, u, o, a);
    const char *why = *s->release ? "" : let_go_for(l, u, o);
    if (u->told.any && u->told.phase == MACHINE_IS_ENDED) {
        ended(u, &told);
    } else if (unit_is_told(l, u) && is_news(&told, s)) {
        unit_propose(u, MACHINE_STEP_SEEN, "", "", &told, NULL);
    } else if (*s->release) {
        let_go(l, u, o);
    } else if (*why) {
        if (!machine_held(l->root, o))
            unit_propose(u, MACHINE_STEP_RELEASE, why, "", NULL, NULL);
    } else if (s->phase == MACHINE_IS_ORDERED) {
        order(l, u, o);
    }
}

void unit_leave(const struct farm_look *l, struct unit *u, const struct object *o)
{
    const struct machine_status *s = object_as(o, machine)->status;
    char text[400], at[32];

    if (u->calling || u->proposing || l->now < u->retry_ms)
        return;
    if (!*s->release) {
        if (!machine_held(l->root, o))
            unit_propose(u, MACHINE_STEP_RELEASE, "TargetDeleted", "", NULL, NULL);
        return;
    }
    time_print(s->until, at);
    (void)snprintf(text, sizeof text,
                   "its Target was deleted while it was out of reach: machine %.63s (%.128s) may "
                   "be there, and cost, until its time to live is over at %s",
                   u->key, *s->id ? s->id : "no id is known", at);
    log_event(LOG_WARN, "machine.left",
              LOG_FIELDS({"target", log_str(l->farm->target)}, {"why", log_str(text)}));
    unit_propose(u, MACHINE_STEP_ENDED, "Left", text, NULL, NULL);
}
