/* A brain's life: it follows the root, wakes when its member wins leadership, and sleeps when the
 * member loses it. It holds no truth. */

#include "controlplane/leader/brain.h"

#include "api/base/log.h"
#include "controlplane/leader/adopt/adopt.h"
#include "controlplane/leader/doubt/back.h"
#include "controlplane/leader/doubt/cold.h"
#include "controlplane/leader/drive/driver.h"
#include "controlplane/leader/keep/arrays.h"
#include "controlplane/leader/keep/collect.h"
#include "controlplane/leader/keep/events.h"
#include "controlplane/leader/keep/retention.h"
#include "controlplane/leader/keep/tokens.h"
#include "controlplane/leader/keep/unkeep.h"
#include "controlplane/leader/machines/machines.h"
#include "controlplane/leader/move/begin.h"
#include "controlplane/leader/move/causes.h"
#include "controlplane/leader/move/mover.h"
#include "controlplane/leader/move/moves.h"
#include "controlplane/leader/move/preempt.h"
#include "controlplane/leader/queue/cycle.h"
#include "controlplane/leader/queue/held.h"
#include "controlplane/leader/queue/scheduler.h"
#include "controlplane/leader/queue/waiting.h"
#include "controlplane/leader/recover/orphans.h"
#include "controlplane/leader/recover/strangers.h"
#include "controlplane/leader/save/save.h"
#include "controlplane/leader/site/sites.h"
#include "controlplane/leader/use/use.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

/* A brain with the state of its parts. */
struct whole {
    struct brain b;
    uint64_t seen_rv;   /* all parts were told the changes up to here */
    struct timer close; /* waits until under_way is 0 */
    void (*closed)(void *arg);
    void *closed_arg;

    struct sites sites;
    struct scheduler scheduler;
    struct cycles cycles;
    struct waiting waiting;
    struct held_back held;
    struct drivers drivers;
    struct plans plans;
    struct movers movers;
    struct causes causes;
    struct preempts preempts;
    struct moves moves;
    struct events events;
    struct collect collect;
    struct arrays arrays;
    struct tokens tokens;
    struct unkeep unkeep;
    struct retention retention;
    struct went_back back;
    struct cold cold;
    struct strangers strangers;
    struct saves saves;
    struct machines machines;
    struct adopts adopts;
    struct uses uses;
};

static struct whole *whole_of(struct brain *b)
{
    return container_of(b, struct whole, b);
}

/* ---- the parts ---- */
static void held_change(struct brain *b, const struct change *c)
{
    if (c->kind == KIND_SECRET && c->after)
        held_secret(b, c->after->meta->namespace_);
}

static void sites_change(struct brain *b, const struct change *c)
{
    if (c->kind == KIND_TARGET)
        site_change(b, c->before, c->after);
    if (c->kind == KIND_CERTIFICATE_REVOCATION && c->after)
        sites_revoke(b, c->after);
}

static void drivers_change(struct brain *b, const struct change *c)
{
    if (c->kind == KIND_WORKLOAD)
        driver_change(b, c->before, c->after);
}

static void drivers_tick(struct brain *b)
{
    for_each_site (t, b)
        drivers_tick_target(t);
}

static void saves_change(struct brain *b, const struct change *c)
{
    if (c->kind == KIND_WORKLOAD)
        save_change(b, c->before, c->after);
}

static void uses_change(struct brain *b, const struct change *c)
{
    if (c->kind == KIND_WORKLOAD)
        use_change(b, c->before, c->after);
}

static void movers_change(struct brain *b, const struct change *c)
{
    if (c->kind == KIND_MIGRATION)
        mover_change(b, c->before, c->after);
    if (c->kind == KIND_WORKLOAD)
        movers_workload(b, c->after ? c->after : c->before);
}

/* In this order: the pool follows the root before any part decides by it, sites exist before the
 * drivers and movers that use them, and Events for people come last. */
static const struct part parts[] = {
    {.name = "queue",
     .init = cycle_init,
     .reset = scheduler_reset,
     .change = scheduler_change,
     .tick = scheduler_want,
     .drop = cycle_stop},
    {.name = "waiting", .drop = waiting_drop},
    {.name = "held", .change = held_change, .drop = held_drop},
    {.name = "sites",
     .init = sites_init,
     .reset = sites_reset,
     .change = sites_change,
     .drop = sites_drop,
     .fini = runners_fini},
    {.name = "adopts", .drop = adopt_drop},
    {.name = "drivers",
     .init = drivers_init,
     .reset = drivers_reset,
     .change = drivers_change,
     .tick = drivers_tick,
     .drop = drivers_drop},
    {.name = "saves",
     .init = saves_init,
     .reset = saves_reset,
     .change = saves_change,
     .observed = save_observed,
     .tick = saves_tick,
     .drop = saves_drop},
    {.name = "uses",
     .init = uses_init,
     .reset = uses_reset,
     .change = uses_change,
     .used = use_told,
     .drop = uses_drop},
    {.name = "movers",
     .init = movers_init,
     .reset = movers_reset,
     .change = movers_change,
     .tick = movers_look,
     .drop = movers_drop,
     .fini = movers_fini},
    {.name = "machines",
     .init = machines_init,
     .reset = machines_reset,
     .change = machines_change,
     .machine = machines_machine,
     .machine_unread = machines_unread,
     .prices = machines_prices,
     .tick = machines_look_soon,
     .drop = machines_drop,
     .fini = machines_fini},
    {.name = "causes", .reset = causes_reset, .tick = causes_look, .drop = causes_drop},
    {.name = "preempt", .init = preempt_init, .drop = preempt_drop},
    {.name = "retention", .reset = retention_reset, .drop = retention_drop},
    {.name = "collect", .reset = collect_reset, .look = collect_look, .drop = collect_drop},
    {.name = "arrays", .reset = arrays_reset, .look = arrays_look, .drop = arrays_drop},
    {.name = "tokens", .reset = tokens_reset, .drop = tokens_drop},
    {.name = "unkeep", .reset = unkeep_reset, .drop = unkeep_drop},
    {.name = "back",
     .init = back_init,
     .reset = back_look,
     .look = back_seen,
     .drop = back_drop,
     .fini = back_fini},
    {.name = "cold",
     .init = cold_init,
     .begin = cold_begin,
     .reset = cold_mark,
     .look = cold_known,
     .drop = cold_drop},
    {.name = "strangers",
     .begin = strangers_begin,
     .reset = strangers_look,
     .tick = strangers_look,
     .drop = strangers_drop},
    {.name = "events", .init = events_init, .change = events_change, .drop = events_drop},
    {.name = NULL}};

/* ALL(what, ...): each part's `what`, in the order of the table. */
#define ALL(what, ...)                                                                             \
    do {                                                                                           \
        for (const struct part *p_ = parts; p_->name; p_++)                                        \
            if (p_->what)                                                                          \
                p_->what(__VA_ARGS__);                                                             \
    } while (0)

static void close_look(void *arg);

struct brain *brain_create(const struct brain_config *cfg)
{
    struct whole *w = mem_new(struct whole);
    struct brain *b = &w->b;

    *b = (struct brain){.parts = parts,
                        .follow = brain_root,
                        .cfg = *cfg,
                        .loop = cfg->loop,
                        .sites = &w->sites,
                        .scheduler = &w->scheduler,
                        .cycles = &w->cycles,
                        .waiting = &w->waiting,
                        .held = &w->held,
                        .drivers = &w->drivers,
                        .plans = &w->plans,
                        .movers = &w->movers,
                        .causes = &w->causes,
                        .preempts = &w->preempts,
                        .moves = &w->moves,
                        .events = &w->events,
                        .collect = &w->collect,
                        .arrays = &w->arrays,
                        .tokens = &w->tokens,
                        .unkeep = &w->unkeep,
                        .retention = &w->retention,
                        .back = &w->back,
                        .cold = &w->cold,
                        .strangers = &w->strangers,
                        .saves = &w->saves,
                        .machines = &w->machines,
                        .adopts = &w->adopts,
                        .uses = &w->uses};
    if (!b->cfg.cycle_ms)
        b->cfg.cycle_ms = 500;
    if (!b->cfg.redial_ms)
        b->cfg.redial_ms = AGENT_REDIAL_MAX_MS;
    ALL(init, b);
    timer_init(&w->close, b->loop, close_look, w);
    return b;
}

/* ---- closing: what is under way ends first ---- */
static void close_look(void *arg)
{
    struct whole *w = arg;
    struct brain *b = &w->b;

    if (b->under_way) {
        timer_start(&w->close, 20);
        return;
    }
    void (*closed)(void *) = w->closed;
    void *closed_arg = w->closed_arg;
    (void)root_unref(b->root);
    b->pool = pool_destroy(b->pool);
    ALL(fini, b);
    mem_free(w);
    closed(closed_arg);
}

static void sleep_now(struct brain *b)
{
    b->leads = false;
    ALL(drop, b);
    b->pool = pool_destroy(b->pool);
    b->frozen = false;
}

void brain_close(struct brain *b, void (*closed)(void *arg), void *arg)
{
    b->closing = true;
    whole_of(b)->closed = closed;
    whole_of(b)->closed_arg = arg;
    sleep_now(b);
    loop_post(b->loop, close_look, whole_of(b));
}

/* ---- leadership and the root ---- */
void brain_leading(struct brain *b, bool leads, uint64_t term)
{
    if (b->closing || (leads && b->leads && term == b->term))
        return;
    if (b->leads)
        sleep_now(b);
    if (!leads)
        return;
    b->term = term;
    (void)root_unref(b->root);
    b->root = core_root(b->cfg.core);
    whole_of(b)->seen_rv = root_rv(b->root);
    b->leads = true;
    ALL(begin, b);
    ALL(reset, b);
}

static bool change_each(const struct change *c, void *arg)
{
    ALL(change, arg, c);
    return true;
}

void brain_root(struct brain *b)
{
    ALL(look, b);
    if (!b->leads)
        return;
    struct root *r = core_root(b->cfg.core);
    uint64_t since = whole_of(b)->seen_rv;
    bool recovery = root_recovering(r) != root_recovering(b->root);
    (void)root_unref(b->root);
    b->root = r;
    if (recovery) /* no object tells of it */
        brain_allowed(b);
    if (root_rv(r) == since)
        return;
    whole_of(b)->seen_rv =
        root_rv(r); /* a step's answer inside the walk may come here again: it then sees no news */
    struct root *held = root_ref(r);
    struct err err;
    if (root_changes(held, since, change_each, b, &err)) {
        log_err(LOG_WARN, "brain.behind", &err);
        sleep_now(b);
        b->leads = true;
        ALL(reset, b);
    }
    (void)root_unref(held);
}

/* ---- agents dial in ---- */
static void agent_refuse(struct stream *s, const char *name, const char *why)
{
    log_event(LOG_WARN, "agent.refused",
              LOG_FIELDS({"certificate", log_str(name)}, {"why", log_str(why)}));
    connector_agent_refuse(s, why);
}

void brain_agent(struct brain *b, struct stream *s)
{
    const struct peer_identity *peer = stream_peer(s);
    struct core_status st;
    struct err err;
    char why[ERR_TEXT_MAX];

    core_status(b->cfg.core, &st);
    if (!b->leads && !strncmp(peer->name, "agent:", 6))
        stranger_came(b, peer->name + 6);
    if (!b->leads) {
        if (st.leader_id && !st.leads)
            connector_agent_redirect(s, st.leader_api_address);
        else
            stream_abort(s, "no leader is known yet");
        return;
    }
    if (strncmp(peer->name, "agent:", 6)) {
        (void)snprintf(why, sizeof why,
                       "a certificate with common name agent:TARGET is needed, this one says %s",
                       peer->name);
        agent_refuse(s, peer->name, why);
        return;
    }
    const char *part = "";
    const struct object *o = root_agent_target(b->root, peer->name + 6, &part);
    struct site *t = site_find(b, o ? o->meta->name : peer->name + 6);
    if (!t) {
        (void)snprintf(why, sizeof why,
                       "there is no Target %s; hanse apply one of type agent first",
                       peer->name + 6);
        stranger_came(b, peer->name + 6);
        log_event(LOG_WARN, "agent.refused",
                  LOG_FIELDS({"certificate", log_str(peer->name)}, {"why", log_str(why)}));
        stranger_turn_away(b, s, peer->name + 6, why);
        return;
    }
    if (!t->connector || !target_can(object_as(t->doc, target)->spec->type, CAN_DIAL_IN)) {
        (void)snprintf(why, sizeof why, "Target %s is not of type agent", peer->name + 6);
        agent_refuse(s, peer->name, why);
        return;
    }
    struct connector *c = connector_agent_part(t->connector, part);
    if (!c) {
        (void)snprintf(why, sizeof why,
                       "Target %.200s lists its agents (spec.agents): each needs a certificate "
                       "with common name agent:%.200s.NAME",
                       t->name, t->name);
        agent_refuse(s, peer->name, why);
        return;
    }
    if (connector_agent_attach(c, s, &err))
        log_err(LOG_WARN, "agent.refused", &err);
}

/* ---- operators ---- */
struct fence {
    void (*cb)(void *arg, const struct err *err);
    void *arg;
};
static void fenced(void *arg, const struct result *r, const struct err *err)
{
    struct fence *f = arg;
    struct err e;

    if (!err && r->code) {
        (void)err_set(&e, r->code, "%s", r->text);
        err = &e;
    }
    f->cb(f->arg, err);
    mem_free(f);
}

static bool fence_wanted(struct brain *b, const char *ns, const char *name,
                         const struct object **ret, struct err *err)
{
    if (!b->leads) {
        (void)err_set(err, E_UNAVAIL, "this member does not lead; ask the leader");
        return false;
    }
    *ret = root_get(b->root, KIND_WORKLOAD, ns, name);
    if (!*ret) {
        (void)err_set(err, E_NOTFOUND, "workload %s/%s does not exist", ns, name);
        return false;
    }
    const struct workload_status *s = object_as(*ret, workload)->status;
    if (!s || s->phase != PHASE_UNKNOWN) {
        (void)err_set(err, E_CONFLICT,
                      "workload %s/%s is %s; only a run that is Unknown can be fenced", ns, name,
                      s ? phase_text(s->phase) : "new");
        return false;
    }
    return true;
}

void brain_fence(struct brain *b, const char *ns, const char *workload, const char *who,
                 void (*cb)(void *arg, const struct err *err), void *arg)
{
    const struct object *o;
    struct err err;

    if (!fence_wanted(b, ns, workload, &o, &err)) {
        cb(arg, &err);
        return;
    }
    const struct workload_status *s = object_as(o, workload)->status;
    union command c = {.run = {.head = {.type = CMD_RUN},
                               .step = STEP_FENCED,
                               .proof = PROOF_OPERATOR,
                               .epoch = s->epoch,
                               .try_ = s->intent ? s->intent->try_ : 0,
                               .requeue = true}};
    struct fence *f = mem_new(struct fence);
    *f = (struct fence){cb, arg};
    brain_request_id(b, c.head.request_id);
    str_copy(c.head.user, sizeof c.head.user, who);
    str_copy(c.run.ns, sizeof c.run.ns, ns);
    str_copy(c.run.name, sizeof c.run.name, workload);
    str_copy(c.run.uid, sizeof c.run.uid, o->meta->uid);
    (void)snprintf(c.run.reason, sizeof c.run.reason, "Fenced");
    (void)snprintf(c.run.message, sizeof c.run.message, "%.200s recorded that it is dead", who);
    brain_propose(b, &c, fenced, f);
}

void brain_status(struct brain *b, struct buf *out)
{
    uint64_t now = loop_now_ms(b->loop);
    cJSON *j = cJSON_CreateObject(), *list = cJSON_AddArrayToObject(j, "targets");

    (void)cJSON_AddBoolToObject(j, "leads", b->leads);
    (void)cJSON_AddBoolToObject(j, "brake", b->frozen);
    (void)cJSON_AddNumberToObject(j, "drivers", drivers_count(b));
    (void)cJSON_AddNumberToObject(j, "movers", movers_count(b));
    (void)cJSON_AddNumberToObject(j, "nominations", (double)preempt_count(b));
    (void)cJSON_AddNumberToObject(j, "cycles", (double)b->cycles->begun);
    (void)cJSON_AddNumberToObject(j, "decided", (double)b->cycles->decided);
    (void)cJSON_AddNumberToObject(j, "sliceMaxMs",
                                  (double)durations_max_ns(&b->cycles->slices) / 1e6);
    (void)cJSON_AddNumberToObject(j, "placed", (double)b->scheduler->placed);
    (void)cJSON_AddNumberToObject(j, "placementsRefused", (double)b->scheduler->refused);
    strangers_status(b, j);
    for_each_site (t, b) {
        cJSON *s = cJSON_CreateObject();
        (void)cJSON_AddStringToObject(s, "name", t->name);
        (void)cJSON_AddBoolToObject(s, "reachable", t->reachable);
        (void)cJSON_AddBoolToObject(s, "suspect", t->suspect);
        (void)cJSON_AddBoolToObject(s, "awaited", cold_awaits(t));
        (void)cJSON_AddStringToObject(s, "session", t->session_id);
        (void)cJSON_AddStringToObject(s, "why", t->why);
        (void)cJSON_AddNumberToObject(s, "lastContactMs",
                                      t->last_contact_ms ? (double)(now - t->last_contact_ms) : -1);
        (void)cJSON_AddNumberToObject(s, "renewals", (double)t->renewals);
        (void)cJSON_AddItemToArray(list, s);
    }
    char *text = cJSON_PrintUnformatted(j);
    buf_str(out, text);
    cJSON_free(text);
    cJSON_Delete(j);
}

void brain_metrics(struct brain *b, struct buf *out)
{
    buf_printf(
        out,
        "# HELP hanse_scheduler_cycles_total cycles over the queue\n"
        "# TYPE hanse_scheduler_cycles_total counter\nhanse_scheduler_cycles_total %llu\n"
        "# HELP hanse_decisions_total decisions made by this member\n"
        "# TYPE hanse_decisions_total counter\nhanse_decisions_total %llu\n"
        "# HELP hanse_scheduler_cycle_seconds how long the last cycle took\n"
        "# TYPE hanse_scheduler_cycle_seconds gauge\nhanse_scheduler_cycle_seconds %g\n"
        "# HELP hanse_placements_total workloads placed\n"
        "# TYPE hanse_placements_total counter\nhanse_placements_total %llu\n"
        "# HELP hanse_placements_refused_total decisions that no longer held when applied\n"
        "# TYPE hanse_placements_refused_total counter\nhanse_placements_refused_total %llu\n"
        "# HELP hanse_drivers workloads that hold a place\n# TYPE hanse_drivers "
        "gauge\nhanse_drivers %u\n"
        "# HELP hanse_collect_slices_total slices of what follows from deletions\n"
        "# TYPE hanse_collect_slices_total counter\nhanse_collect_slices_total %llu\n"
        "# HELP hanse_brake 1 while too many targets are silent\n# TYPE hanse_brake "
        "gauge\nhanse_brake %d\n",
        (unsigned long long)b->cycles->begun, (unsigned long long)b->cycles->decided,
        (double)b->cycles->last_ms / 1000, (unsigned long long)b->scheduler->placed,
        (unsigned long long)b->scheduler->refused, drivers_count(b),
        (unsigned long long)b->collect->slices, b->frozen);
    durations_tell((const struct durations *[]){&b->cycles->slices}, (const char *[]){""}, 1,
                   "hanse_scheduler_slice", "one slice of a cycle over those who wait", out);
    durations_tell((const struct durations *[]){&b->cycles->slices_cpu}, (const char *[]){""}, 1,
                   "hanse_scheduler_slice_cpu", "what was computed in one slice of a cycle", out);
    moves_metrics(b, out);
    orphans_metrics(b, out);
    if (!site_next(b, NULL))
        return;
    buf_str(out, "# HELP hanse_target_reachable 1 where the target is in reach\n"
                 "# TYPE hanse_target_reachable gauge\n");
    for_each_site (t, b) {
        buf_printf(out, "hanse_target_reachable{target=\"%s\"} %d\n", t->name, t->reachable);
    }
    uses_metrics(b, out);
}
