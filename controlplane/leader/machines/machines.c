/* The machines of all Targets: one farm a Target, which is looked at again and again and derives
 * from the root what is to be done, so that a lost answer costs time and nothing else.
 *
 * It must never order what is not in the log, nor touch a machine that is in no log. */
#include "controlplane/leader/machines/machines_internal.h"

#include "api/base/log.h"
#include "controlplane/leader/context/hide.h"
#include "controlplane/leader/keep/events.h"

#include <stdio.h>
#include <string.h>

#define LOOK_EVERY_MS 1000
#define LOOK_SOON_MS 20

/* ---- farms and their machines ---- */
static struct farm *farm_find(struct brain *b, const char *target)
{
    struct indexed *e = index_find(&b->machines->by_target, target);

    return e ? container_of(e, struct farm, by_target) : NULL;
}

struct unit *unit_find(struct farm *f, const char *key)
{
    struct indexed *e = index_find(&f->by_key, key);

    return e ? container_of(e, struct unit, by_key) : NULL;
}

static struct farm *farm_make(struct brain *b, const char *target)
{
    struct farm *f = mem_new(struct farm);

    f->brain = b;
    f->since_ms = loop_now_ms(b->loop);
    list_init(&f->units);
    str_copy(f->target, sizeof f->target, target);
    f->by_target.key = f->target;
    index_add(&b->machines->by_target, &f->by_target);
    list_push(&b->machines->farms, &f->link);
    return f;
}

static void unit_free(struct unit *u)
{
    list_remove(&u->link);
    index_remove(&u->farm->by_key, &u->by_key);
    mem_free(u);
}

/* Its memory stays until the last answer has come. */
static void farm_free_look(struct farm *f)
{
    if (!f->gone || f->awaited)
        return;
    list_for_each_safe (it, tmp, &f->units)
        unit_free(container_of(it, struct unit, link));
    mem_free(f->prices);
    mem_free(f);
}

static void farm_drop(struct farm *f)
{
    list_remove(&f->link);
    index_remove(&f->brain->machines->by_target, &f->by_target);
    f->gone = true;
    farm_free_look(f);
}

static struct unit *unit_of(struct farm *f, const struct object *o)
{
    struct unit *u = unit_find(f, o->meta->name);

    if (u)
        return u;
    u = mem_new(struct unit);
    u->farm = f;
    str_copy(u->key, sizeof u->key, o->meta->name);
    str_copy(u->uid, sizeof u->uid, o->meta->uid);
    /* An earlier leader may have left it unsaid. */
    u->renew_due = object_as(o, machine)->status->phase > MACHINE_IS_ORDERED;
    u->by_key.key = u->key;
    index_add(&f->by_key, &u->by_key);
    list_push(&f->units, &u->link);
    return u;
}

void farm_answered(struct farm *f)
{
    INV(f->awaited > 0);
    f->awaited--;
    if (f->gone)
        farm_free_look(f);
    else
        machines_look_soon(f->brain);
}

void wait_longer(uint64_t *wait_ms, uint64_t now, uint64_t *ret_until_ms)
{
    *wait_ms = *wait_ms ? *wait_ms * 2 : WAIT_MIN_MS;
    if (*wait_ms > WAIT_MAX_MS)
        *wait_ms = WAIT_MAX_MS;
    *ret_until_ms = now + *wait_ms;
}

/* ---- into the log ---- */
static void unit_proposed(void *arg, const struct result *r, const struct err *err)
{
    struct unit *u = arg;
    struct farm *f = u->farm;

    u->proposing = false;
    if ((err || r->code) && !f->gone) {
        wait_longer(&u->wait_ms, loop_now_ms(f->brain->loop), &u->retry_ms);
        if (!err && r->code != E_STALE && r->code != E_BUSY)
            log_event(LOG_WARN, "machine.step",
                      LOG_FIELDS({"machine", log_str(u->key)}, {"why", log_str(r->text)}));
    }
    farm_answered(f);
}

void unit_propose(struct unit *u, enum machine_step step, const char *reason, const char *message,
                  struct machine_status *told, struct target_pause *pause)
{
    union command c = {.machine = {.head = {.type = CMD_MACHINE, .user = "hanse:machines"},
                                   .step = step,
                                   .told = told,
                                   .pause = pause}};

    brain_request_id(u->farm->brain, c.head.request_id);
    str_copy(c.machine.name, sizeof c.machine.name, u->key);
    str_copy(c.machine.uid, sizeof c.machine.uid, u->uid);
    str_copy(c.machine.reason, sizeof c.machine.reason, reason);
    str_copy(c.machine.message, sizeof c.machine.message, message);
    u->proposing = true;
    u->farm->awaited++;
    brain_propose(u->farm->brain, &c, unit_proposed, u);
}

/* ---- a look ---- */
struct gather {
    const struct farm_look *l;
    struct arena *a;
    const struct object **v;
    size_t n;
};

static bool gather_each(const struct object *o, void *arg)
{
    struct gather *g = arg;

    if (machine_open(o) && !strcmp(object_as(o, machine)->spec->target, g->l->farm->target))
        g->v[g->n++] = o;
    return true;
}

static void units_follow(const struct farm_look *l)
{
    list_for_each_safe (it, tmp, &l->farm->units)
        container_of(it, struct unit, link)->wanted = false;
    for (size_t i = 0; i < l->n; i++)
        unit_of(l->farm, l->machines[i])->wanted = true;
    list_for_each_safe (it, tmp, &l->farm->units) {
        struct unit *u = container_of(it, struct unit, link);
        if (!u->wanted && !u->calling && !u->proposing)
            unit_free(u);
    }
}

/* A Target that is deleted, cannot be asked, and whose user gives up what it may still have. */
static bool left(const struct object *o)
{
    const char *word = label_get(o->meta->annotations, o->meta->n_annotations, LEAVE_ANNOTATION);

    return o->meta->deletionTimestamp && word && !strcmp(word, "true");
}

static bool askable(const struct site *t)
{
    return t && t->connector && t->connector->ops->machines && t->reachable;
}

static void farm_look_now(struct farm *f, struct root *r)
{
    struct brain *b = f->brain;
    struct site *t = site_find(b, f->target);
    const struct object *o = root_get(r, KIND_TARGET, "", f->target);
    AUTO_ARENA a = arena_create(0);
    struct farm_look l = {.farm = f, .site = t, .root = r, .now = loop_now_ms(b->loop)};
    struct gather g = {.l = &l, .a = a};

    if (!o || (!askable(t) && !left(o)))
        return;
    l.target = object_as(o, target);
    l.deleted = o->meta->deletionTimestamp != 0;
    l.time = brain_time_ms(b);
    g.v = arena_array(a, const struct object *, root_count(r, KIND_MACHINE) + 1);
    root_scan(r, KIND_MACHINE, NULL, NULL, NULL, gather_each, &g);
    l.machines = g.v;
    l.n = g.n;
    units_follow(&l);
    if (!askable(t)) {
        for (size_t i = 0; i < l.n; i++)
            unit_leave(&l, unit_find(f, l.machines[i]->meta->name), l.machines[i]);
        return;
    }
    if (l.n || l.target->spec->n_machines)
        farm_list(&l);
    for (size_t i = 0; i < l.n; i++)
        unit_look(&l, unit_find(f, l.machines[i]->meta->name), l.machines[i]);
    farm_renew(&l);
    farm_ask_prices(&l);
    farm_pools(&l);
}

static void look(void *arg)
{
    struct brain *b = arg;
    struct root *r = root_ref(b->root);

    if (!b->in_doubt && root_feature_level(r) >= FEATURE_MACHINES)
        list_for_each_safe (it, tmp, &b->machines->farms)
            farm_look_now(container_of(it, struct farm, link), r);
    (void)root_unref(r);
    if (!timer_active(&b->machines->look))
        brain_later(b, &b->machines->look, LOOK_EVERY_MS);
}

void machines_look_soon(struct brain *b)
{
    if (!b->leads || list_empty(&b->machines->farms))
        return;
    timer_stop(&b->machines->look);
    timer_start(&b->machines->look, LOOK_SOON_MS);
}

/* ---- what targets tell ---- */
/* It carries our mark, and no log that we have says why: a lost state may have ordered it. */
static void stranger(struct farm *f, const struct machine_seen *m)
{
    const struct object *o = root_get(f->brain->root, KIND_TARGET, "", f->target);
    char text[400];

    for (size_t i = 0; i < f->n_strangers; i++)
        if (!strcmp(f->strangers[i], m->key))
            return;
    if (f->n_strangers == FARM_STRANGERS_MAX)
        return;
    str_copy(f->strangers[f->n_strangers++], MACHINE_NAME_MAX, m->key);
    log_event(LOG_WARN, "machine.stranger",
              LOG_FIELDS({"target", log_str(f->target)}, {"machine", log_str(m->key)}));
    (void)snprintf(text, sizeof text,
                   "machine %.63s (%.128s) carries this cluster's mark and is in no log: it is "
                   "left alone, and ends by its time to live; the target knows what it costs",
                   m->key, m->id);
    if (o)
        events_of_target(f->brain, o, "MachineUnknown", text);
}

void machines_machine(struct brain *b, const char *target, const struct machine_seen *m)
{
    struct farm *f = farm_find(b, target);
    const struct object *o = root_get(b->root, KIND_MACHINE, "", m->key);

    if (!f)
        return;
    if (!o || strcmp(object_as(o, machine)->spec->target, target) != 0) {
        if (m->state != MACHINE_ENDED)
            stranger(f, m);
        return;
    }
    if (machine_open(o)) {
        unit_told(unit_of(f, o), m);
        machines_look_soon(b);
    }
}

/* What is told of a machine that the log has stands with it (unit.c). */
void machines_unread(struct brain *b, const char *target, const char *key, const char *why)
{
    struct farm *f = farm_find(b, target);
    const struct object *o = *key ? root_get(b->root, KIND_MACHINE, "", key) : NULL;
    const struct object *t = root_get(b->root, KIND_TARGET, "", target);
    char text[400], *had;

    if (!f || !t)
        return;
    bool known = o && machine_open(o) && !strcmp(object_as(o, machine)->spec->target, target);
    struct unit *u = known ? unit_of(f, o) : NULL;
    had = u ? u->unread : f->unread;
    (void)snprintf(text, sizeof text, "%.320s", *why ? why : "it cannot be read");
    hide_controls(text);
    if (u) {
        u->listed_in = f->list_number;
        machines_look_soon(b);
    }
    if (!strcmp(had, text))
        return;
    str_copy(had, sizeof f->unread, text);
    log_event(LOG_WARN, "machine.unread",
              LOG_FIELDS({"target", log_str(target)}, {"machine", log_str(key)},
                         {"why", log_str(text)}));
    (void)snprintf(text, sizeof text, "what it tells of %s%.63s cannot be read: %.300s",
                   *key ? "machine " : "machines", key, had);
    events_of_target(b, t, "MachineUnreadable", text);
}

void machines_prices(struct brain *b, const char *target, const struct machine_price *v, size_t n,
                     const char *currency)
{
    struct farm *f = farm_find(b, target);

    if (!f)
        return;
    mem_free(f->prices);
    f->prices = NULL;
    f->n_prices = n < MACHINE_PRICES_MAX ? n : MACHINE_PRICES_MAX;
    if (f->n_prices)
        f->prices = mem_alloc(f->n_prices * sizeof *f->prices);
    for (size_t i = 0; i < f->n_prices; i++) {
        struct farm_price *p = &f->prices[i];
        *p = (struct farm_price){.gpus = v[i].gpus, .market = v[i].market, .price = v[i].price};
        str_copy(p->class_, sizeof p->class_, v[i].class_);
        str_copy(p->zone, sizeof p->zone, v[i].zone);
    }
    str_copy(f->currency, sizeof f->currency, currency);
    f->prices_known = true;
}

/* ---- the part ---- */
void machines_init(struct brain *b)
{
    list_init(&b->machines->farms);
    timer_init(&b->machines->look, b->loop, look, b);
}

static void target_follow(struct brain *b, const struct object *o)
{
    const struct target *t = object_as(o, target);

    if (!farm_find(b, o->meta->name) &&
        (t->spec->n_machines > 0 || machines_live(t->status) > 0) &&
        target_can(t->spec->type, CAN_ORDER_MACHINES))
        (void)farm_make(b, o->meta->name);
}

static bool reset_each(const struct object *o, void *arg)
{
    target_follow(arg, o);
    return true;
}

void machines_reset(struct brain *b)
{
    root_scan(b->root, KIND_TARGET, NULL, NULL, NULL, reset_each, b);
    machines_look_soon(b);
}

void machines_change(struct brain *b, const struct change *c)
{
    if (c->kind == KIND_MACHINE)
        machines_look_soon(b);
    if (c->kind != KIND_TARGET)
        return;
    struct farm *f = c->after ? NULL : farm_find(b, c->before->meta->name);
    if (f)
        farm_drop(f);
    if (!c->after)
        return;
    target_follow(b, c->after);
    if (!c->before || c->before->meta->generation != c->after->meta->generation ||
        c->before->meta->deletionTimestamp != c->after->meta->deletionTimestamp)
        machines_look_soon(b);
}

void machines_drop(struct brain *b)
{
    timer_stop(&b->machines->look);
    list_for_each_safe (it, tmp, &b->machines->farms)
        farm_drop(container_of(it, struct farm, link));
}

void machines_fini(struct brain *b)
{
    INV(list_empty(&b->machines->farms));
}
