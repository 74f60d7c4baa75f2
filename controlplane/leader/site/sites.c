/* Targets as the brain sees them: for each one connector, its reach and its leases. Sites exist
 * only while this member leads; a new leader starts from the documents and from what connectors
 * report.
 *
 * Heartbeats and last contact stay in memory; the state learns only what changes decisions, at most
 * once a second. */

#include "controlplane/leader/site/sites.h"

#include "api/base/log.h"
#include "connectors/agent/agent.h"
#include "connectors/drivers/drivers.h"
#include "controlplane/leader/context/index.h"
#include "controlplane/leader/doubt/back.h"
#include "controlplane/leader/doubt/cold.h"
#include "controlplane/leader/drive/driver.h"
#include "controlplane/leader/drive/lease.h"
#include "controlplane/leader/drive/observed.h"
#include "controlplane/leader/logs/logs.h"
#include "controlplane/leader/move/causes.h"
#include "controlplane/leader/move/mover.h"
#include "controlplane/leader/queue/scheduler.h"
#include "controlplane/leader/recover/denials.h"
#include "controlplane/leader/recover/orphans.h"
#include "controlplane/leader/recover/sweep.h"
#include "controlplane/leader/site/facts.h"

#include <stdio.h>
#include <string.h>

#define RENEW_MAX_MS 5000
#define RENEW_MIN_MS 250
#define OFFERS_MAX 128 /* with one renewal; the rest come with the next */
#define FREE_LOOK_MS 20
/* A runner counts its lease from a beat that is older than this. */
#define CONFIRM_MAX_MS 400
#define BRAKE_WINDOW_MS 60000
#define REFUSED_MIN_MS 250
#define REFUSED_MAX_MS 30000

void sites_init(struct brain *b)
{
    list_init(&b->sites->all);
    list_init(&b->sites->views);
}

struct site *site_next(const struct brain *b, const struct site *t)
{
    struct list *next = t ? t->link.next : b->sites->all.next;

    return next == &b->sites->all ? NULL : container_of(next, struct site, link);
}

struct site *site_find(struct brain *b, const char *name)
{
    struct indexed *e = index_find(&b->sites->by_name, name);

    return e ? container_of(e, struct site, by_name) : NULL;
}

void site_refused(struct site *t)
{
    t->refused_ms = t->refused_ms ? t->refused_ms * 2 : REFUSED_MIN_MS;
    if (t->refused_ms > REFUSED_MAX_MS)
        t->refused_ms = REFUSED_MAX_MS;
    t->refused_until_ms = loop_now_ms(t->brain->loop) + t->refused_ms;
}

static void on_nodes(void *arg, const struct inventory_page *p)
{
    struct site *t = arg;

    if (t->brain->leads)
        site_nodes(t, p);
}

static void on_notices(void *arg, const struct notice *v, size_t n)
{
    struct site *t = arg;

    if (t->brain->leads)
        site_notices(t, v, n);
}

/* ---- reach ---- */
/* Looks again at what the brake held up: on all targets, not only on the one that is back. */
static void brake_changed(void *arg)
{
    struct brain *b = arg;

    brain_under_way(b, -1);
    if (!b->leads || b->frozen)
        return;
    for_each_site (t, b)
        drivers_tick_target(t);
    movers_look(b);
    causes_look(b);
}

/* When more than half of at least three targets that were in reach fall silent within a minute,
 * this hub is rather cut off itself: nothing is replaced until they are back. */
static void brake_look(struct brain *b)
{
    unsigned known = 0, lost = 0;
    uint64_t now = loop_now_ms(b->loop);

    for_each_site (t, b) {
        if (!t->session)
            continue;
        known++;
        lost += !t->reachable && (now - t->lost_at_ms < BRAKE_WINDOW_MS || b->frozen);
    }
    bool frozen = known >= 3 && lost * 2 > known;
    if (frozen != b->frozen) {
        b->frozen = frozen;
        log_event(frozen ? LOG_WARN : LOG_INFO, frozen ? "brake.on" : "brake.off",
                  LOG_FIELDS({"targets", log_u64(known)}, {"silent", log_u64(lost)}));
        loop_post(b->loop, brake_changed, b);
        brain_under_way(b, 1);
    }
}

static void silence_over(void *arg)
{
    struct site *t = arg;

    t->suspect = true;
    cold_look(t->brain);
    log_event(LOG_WARN, "target.silent",
              LOG_FIELDS({"target", log_str(t->name)}, {"why", log_str(t->why)}));
    site_facts_soon(t);
    drivers_tick_target(t);
    movers_look(t->brain); /* Migrations to it are aborted */
}

uint64_t site_suspect_after(const struct site *t)
{
    const struct target_partition *p = object_as(t->doc, target)->spec->partition;

    return (uint64_t)(p && p->suspectAfter > 0
                          ? p->suspectAfter
                          : schema_default_ms(&schema_target_partition, "suspectAfter"));
}

void site_reached(struct site *t, bool reachable, const char *session, const char *why)
{
    struct brain *b = t->brain;
    char twin[256];

    if (reachable && site_twin(t, twin)) {
        reachable = false;
        why = twin;
    }
    bool fresh = reachable && strcmp(t->session_id, session ? session : "") != 0;
    t->last_contact_ms = loop_now_ms(b->loop);
    str_copy(t->why, sizeof t->why, why ? why : "");
    if (reachable) {
        bool was_suspect = t->suspect;
        t->suspect = false;
        timer_stop(&t->silence);
        if (fresh || !t->reachable) {
            t->session++;
            t->listed = false; /* nothing is placed there before its runs are listed */
            site_nodes_cut(t);
            str_copy(t->session_id, sizeof t->session_id, session ? session : "");
            site_renew_soon(t);
        }
        t->reachable = true;
        site_inventory_ask(t);
        if (was_suspect || !t->told || site_facts_differ(t))
            site_facts_soon(t);
        if (!t->listed)
            site_sweep(t);
    } else if (t->reachable) {
        t->reachable = false;
        t->lost_at_ms = t->last_contact_ms;
        timer_start(&t->silence, site_suspect_after(t));
    }
    scheduler_reach(b, t->name, reachable && t->listed);
    brake_look(b);
    drivers_tick_target(t);
}

static void on_reach(void *arg, bool reachable, const char *session, const char *why)
{
    struct site *t = arg;

    if (!t->brain->leads)
        return;
    t->answers = reachable;
    str_copy(t->answers_id, sizeof t->answers_id, reachable && session ? session : "");
    site_reached(t, reachable, session, why);
    if (reachable)
        twins_look(t->brain);
}

static void on_agent(void *arg, const char *state_id)
{
    struct site *t = arg;

    str_copy(t->agent, sizeof t->agent, state_id);
}

static void on_part(void *arg, const char *part, bool reached, const char *state_id,
                    const char *why)
{
    site_agent_told(arg, part, reached, state_id, why);
}

static void on_heard(void *arg, const char *cluster, uint64_t rv, int64_t time_ms)
{
    struct site *t = arg;

    brain_heard(t->brain, t->name, cluster, rv, time_ms);
}

static void on_rival(void *arg, const char *why)
{
    struct site *t = arg;

    t->rival_ms = loop_now_ms(t->brain->loop);
    str_copy(t->rival, sizeof t->rival, why);
    if (t->brain->leads && site_facts_differ(t))
        site_facts_soon(t);
}

static void on_observed(void *arg, const struct observation *o)
{
    struct site *t = arg;

    t->last_contact_ms = loop_now_ms(t->brain->loop);
    site_run_read(t, &o->key);
    driver_observed(t, o);
}
static void on_saved(void *arg, const struct run_key *k, const struct run_checkpoint_report *c)
{
    driver_saved(arg, k, c);
}
static void on_seated(void *arg, const struct run_key *k, const struct placement *at)
{
    driver_seated(arg, k, at);
}
static void on_workers(void *arg, const struct run_workers *w)
{
    driver_workers(arg, w);
}
static void on_used(void *arg, const struct run_use *u)
{
    struct site *t = arg;

    if (t->brain->leads && !t->gone)
        brain_used(t->brain, t->name, u);
}
static void on_machine(void *arg, const struct machine_seen *m)
{
    struct site *t = arg;

    if (t->brain->leads && !t->gone)
        brain_machine(t->brain, t->name, m);
}
static void on_machine_unread(void *arg, const char *key, const char *why)
{
    struct site *t = arg;

    if (t->brain->leads && !t->gone)
        brain_machine_unread(t->brain, t->name, key, why);
}
static void on_run_unread(void *arg, const struct run_key *k, const char *why)
{
    struct site *t = arg;

    if (t->brain->leads && !t->gone)
        site_run_unread(t, k, why);
}
static void on_prices(void *arg, const struct machine_price *v, size_t n, const char *currency)
{
    struct site *t = arg;

    if (t->brain->leads && !t->gone)
        brain_prices(t->brain, t->name, v, n, currency);
}
static const struct connector_events events = {.machine = on_machine,
                                               .machine_unread = on_machine_unread,
                                               .run_unread = on_run_unread,
                                               .prices = on_prices,
                                               .nodes = on_nodes,
                                               .notices = on_notices,
                                               .seated = on_seated,
                                               .workers = on_workers,
                                               .used = on_used,
                                               .reach = on_reach,
                                               .observed = on_observed,
                                               .saved = on_saved,
                                               .agent = on_agent,
                                               .part = on_part,
                                               .heard = on_heard,
                                               .rival = on_rival,
                                               .not_given = site_not_given};

/* ---- leases ---- */
/* A runner counts from up to a second before it hears of it, and keeps a part of its lease for the
 * grace (connectors/pace.h): renewing after a third of the lease would be too late. */
static uint64_t renew_every(const struct site *t)
{
    uint64_t ms = t->shortest_ms / 8 > RENEW_MIN_MS ? t->shortest_ms / 8 : RENEW_MIN_MS;

    return ms < RENEW_MAX_MS ? ms : RENEW_MAX_MS;
}

static void renew_later(struct site *t)
{
    t->renew_at_ms = loop_now_ms(t->brain->loop) + renew_every(t);
    timer_start(&t->renew, renew_every(t));
}

/* Many may come at once: no more often than four times as fast. */
void site_renew_soon(struct site *t)
{
    uint64_t gap = renew_every(t) / 4, since = loop_now_ms(t->brain->loop) - t->confirm_from_ms;

    t->renew_again = t->confirming;
    if (!t->confirming)
        timer_start(&t->renew, since < gap ? gap - since : 0);
}

void site_pace(struct site *t, uint64_t lease_ms)
{
    if (lease_ms >= t->shortest_ms)
        return;
    t->shortest_ms = lease_ms;
    if (loop_now_ms(t->brain->loop) + renew_every(t) < t->renew_at_ms)
        renew_later(t);
}

/* Runners that call home are reached also while their target is not. */
static bool renewable(const struct site *t)
{
    const struct connector *c = t->connector;

    if (!c || !c->ops->renew)
        return false;
    return c->ops->reaches ? c->ops->reaches(c, NULL) : t->reachable;
}

static void renew_confirmed(void *arg, const struct err *err)
{
    struct site *t = arg;
    struct brain *b = t->brain;
    struct run_offer offers[OFFERS_MAX];

    t->confirming = false;
    bool prompt = loop_now_ms(b->loop) - t->confirm_from_ms < CONFIRM_MAX_MS;
    if (!err && prompt && renewable(t)) {
        t->shortest_ms = UINT64_MAX; /* the drivers set it again */
        /* Noted before it is sent: never later than the time from which the runner counts. */
        size_t n = drivers_renewed(t, loop_now_ms(b->loop), offers, OFFERS_MAX);
        t->connector->ops->renew(t->connector, offers, n);
        t->renewals++;
    }
    if (t->renew_again && !t->gone)
        site_renew_soon(t);
}
static void renew(void *arg)
{
    struct site *t = arg;
    struct brain *b = t->brain;

    renew_later(t);
    site_facts_look(t);
    denials_look(t);
    site_leave_look(t);
    site_kept_look(t);
    site_members_tell(t);
    if (t->reachable && site_sweep_due(t))
        site_sweep(t);
    if (t->confirming || list_empty(&t->drivers) || !renewable(t))
        return;
    t->confirming = true;
    t->confirm_from_ms = loop_now_ms(b->loop);
    brain_confirm(b, renew_every(t), renew_confirmed, t);
}

/* ---- documents and connectors ---- */
static const char *secret_get(void *arg, const char *name, const char *key)
{
    struct brain *b = ((struct site *)arg)->brain;

    return b->cfg.secret_get ? b->cfg.secret_get(b->cfg.arg, "hanse-system", name, key) : NULL;
}
static const char *cluster_uid(void *arg)
{
    return root_cluster_uid(((struct site *)arg)->brain->root);
}
static uint64_t state_rv(void *arg, int64_t *ret_time_ms)
{
    const struct root *r = ((struct site *)arg)->brain->root;

    *ret_time_ms = root_time(r);
    return root_rv(r);
}
static void secret_put(void *arg, const char *text)
{
    struct brain *b = ((struct site *)arg)->brain;

    b->cfg.secret_put(b->cfg.arg, text);
}

int site_principal_secret(void *arg, const char *principal, const char **ret, struct err *err)
{
    const struct site *t = arg;
    const struct target_spec *s = object_as(t->doc, target)->spec;
    const struct secret_ref *ref = NULL;

    *ret = NULL;
    for (uint32_t i = 0; i < s->n_principals; i++)
        if (!strcmp(s->principals[i].name, principal))
            ref = s->principals[i].credentialsFrom;
    if (!ref)
        return 0;
    *ret = secret_get(arg, ref->secret, PRINCIPAL_TOKEN);
    return *ret ? 0 /* the names of the hub's Secrets are none of its workload's people */
                : err_set(err, E_FORBIDDEN,
                          "target %.100s has no \"" PRINCIPAL_TOKEN "\" for its principal %.100s "
                          "(credentialsFrom of it)",
                          t->name, principal);
}

bool site_stages(const struct site *t)
{
    const struct connector_ops *ops = t->connector ? t->connector->ops : NULL;

    return ops && ops->stage && (!ops->stages || ops->stages(t->connector));
}

/* Makes t->connector by the driver of its type (NULL: this build has none); where that fails, the
 * reason is the Target's. */
static void connector_make(struct site *t)
{
    struct brain *b = t->brain;
    const struct target_spec *spec = object_as(t->doc, target)->spec;
    enum target_type type = spec->type;
    const struct connector_ops *ops = b->cfg.driver ? b->cfg.driver(type) : connector_driver(type);
    struct connector_env env = {.loop = b->loop,
                                .events = &events,
                                .arg = t,
                                .secret_get = secret_get,
                                .secret_put = secret_put,
                                .principal_secret = site_principal_secret,
                                .cluster_uid = cluster_uid,
                                .is_twin = site_twin,
                                .home = site_home,
                                .tokens = site_tokens,
                                .keys = &b->cfg.keys,
                                .where = site_where,
                                .nodes = site_nodes_known,
                                .state_rv = state_rv};
    struct err err;

    if (ops == &connector_agent_ops && spec->n_agents)
        ops = &connector_fleet_ops;
    if (!ops) {
        (void)snprintf(t->error, sizeof t->error, "this build drives no target of type %s",
                       target_type_text(type));
    } else if (ops->create(&env, t->doc, &t->connector, &err)) {
        t->connector = NULL;
        str_copy(t->error, sizeof t->error, err.text);
    }
    if (*t->error) {
        str_copy(t->why, sizeof t->why, t->error);
        log_event(LOG_WARN, "target.driver",
                  LOG_FIELDS({"target", log_str(t->name)}, {"why", log_str(t->error)}));
        site_facts_soon(t);
    }
}

static void site_create(struct brain *b, const struct object *doc)
{
    struct site *t = mem_new(struct site);

    t->brain = b;
    t->number = ++b->sites->made;
    t->doc = object_ref(doc);
    str_copy(t->name, sizeof t->name, doc->meta->name);
    (void)snprintf(t->why, sizeof t->why, "not yet in contact with this leader");
    timer_init(&t->silence, b->loop, silence_over, t);
    timer_init(&t->renew, b->loop, renew, t);
    site_facts_init(t);
    site_finals_init(t);
    t->lost_at_ms = loop_now_ms(b->loop);
    list_push(&b->sites->all, &t->link);
    t->by_name.key = t->name;
    index_add(&b->sites->by_name, &t->by_name);
    list_init(&t->drivers);
    drivers_seat(t);
    timer_start(&t->silence, site_suspect_after(t));
    t->shortest_ms = UINT64_MAX;
    renew_later(t);
    connector_make(t);
}

static void site_free(void *arg)
{
    struct site *t = arg;

    if (t->inventory_calling || t->confirming || t->finalizing || t->facts.proposing ||
        t->leave_calling || t->leave_proposing) {
        timer_start(&t->facts_timer, FREE_LOOK_MS); /* answers are awaited */
        return;
    }
    brain_under_way(t->brain, -1);
    (void)object_unref(t->doc);
    mem_free(t->doubts);
    site_facts_drop(t);
    site_agents_drop(t);
    site_unread_drop(t);
    orphans_drop(t);
    site_finals_free(t);
    mem_free(t);
}
static void site_destroy(struct site *t)
{
    list_remove(&t->link);
    index_remove(&t->brain->sites->by_name, &t->by_name);
    drivers_unseat(t);
    timer_stop(&t->silence);
    timer_stop(&t->renew);
    timer_stop(&t->facts_timer);
    site_finals_drop(t);
    t->reachable = false;
    t->gone = true;
    brain_under_way(t->brain, 1);
    if (t->connector)
        t->connector->ops->destroy(t->connector);
    t->connector = NULL;
    twins_look(t->brain);
    timer_init(&t->facts_timer, t->brain->loop, site_free, t);
    timer_start(&t->facts_timer, 0);
}

void site_change(struct brain *b, const struct object *before, const struct object *after)
{
    PRE(before || after);
    struct site *t = site_find(b, (after ? after : before)->meta->name);

    if (!after) {
        if (t)
            site_destroy(t);
        cold_look(b);
        return;
    }
    if (!t) {
        site_create(b, after);
        return;
    }
    bool spec = t->doc->meta->generation != after->meta->generation;
    bool ends = !t->doc->meta->deletionTimestamp && after->meta->deletionTimestamp;
    (void)object_unref(t->doc);
    t->doc = object_ref(after);
    if (ends)
        site_renew_soon(t); /* leave/leave.c looks at it */
    if (spec) {
        if (t->connector)
            t->connector->ops->update(t->connector, after);
        cold_look(b);
        drivers_tick_target(t);
    }
}

static bool revoked(const struct peer_identity *who, void *arg)
{
    return revocation_takes(arg, who);
}

void sites_revoke(struct brain *b, const struct object *revocation)
{
    for_each_site (t, b) {
        if (t->connector)
            connector_agents_end(t->connector, revoked, (void *)(uintptr_t)revocation,
                                 "the certificate was revoked");
    }
}

static bool reset_each(const struct object *o, void *arg)
{
    site_change(arg, NULL, o);
    return true;
}
void sites_reset(struct brain *b)
{
    root_scan(b->root, KIND_TARGET, NULL, NULL, NULL, reset_each, b);
    for_each_site (t, b)
        scheduler_reach(b, t->name, t->reachable && t->listed);
}
void sites_drop(struct brain *b)
{
    list_for_each_safe (it, tmp, &b->sites->all)
        site_destroy(container_of(it, struct site, link));
    kept_views_drop(b);
}
