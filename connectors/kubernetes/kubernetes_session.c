/* The session with an API server: who it is, then a list and a watch of nodes, pods and Jobs, and a
 * question every few seconds whether it is still there, and still that cluster. What must not
 * happen is that another cluster, or an older state of this one, is taken for this one's present:
 * each of them begins a new session, in which the caller looks for everything again. */
#include "connectors/kubernetes/kubernetes_internal.h"

#include "api/base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PULSE_MS 5000
#define PULSE_ANSWER_MS 5000
#define AGAIN_MIN_MS 500
#define AGAIN_MAX_MS 10000
#define FAILURES_MAX 3       /* in a row: it is out of reach */
#define TROUBLE_MAX_MS 20000 /* what a watch may take to go on */
#define LOGIN_EVERY_MS 1000
#define LOGIN_GONE_MS 30000 /* what cannot be read for so long is no login on its way */
#define TWIN_AGAIN_MS 30000
#define IN_FLIGHT 16
#define OWN_IN_FLIGHT 4 /* listings and the pulse, beside the calls */
#define NODES_PAGE 100
#define PODS_PAGE 250
#define LEAST_MINOR 30 /* of version 1: scheduling gates, podReplacementPolicy */

static uint64_t now_ms(const struct kubernetes *k)
{
    return loop_now_ms(k->base.env.loop);
}

/* ---- reach ---- */
static void reach_lost(struct kubernetes *k, const char *why)
{
    bool told = k->reachable || strcmp(k->why, why) != 0;

    str_cut_words(k->why, sizeof k->why, why);
    k->reachable = false;
    if (told)
        k->base.env.events->reach(k->base.env.arg, false, "", k->why);
}

static const struct kubernetes_watch *troubled(const struct kubernetes *k)
{
    for (unsigned i = 0; i < WATCHED_NR; i++)
        if (k->watches[i].trouble_ms)
            return &k->watches[i];
    return NULL;
}

/* Reached is who answers, is listed whole, and is watched. */
static void reach_look(struct kubernetes *k)
{
    const struct kubernetes_watch *bad = troubled(k);
    char session[96];

    for (unsigned i = 0; i < WATCHED_NR; i++)
        if (!k->watches[i].listed) {
            if (bad)
                reach_lost(k, bad->why);
            return;
        }
    if (k->reachable || k->failures || bad)
        return;
    k->step = KUBERNETES_KNOWN;
    k->reachable = true;
    k->why[0] = '\0';
    (void)snprintf(session, sizeof session, "%.40s/%llu", k->cluster,
                   (unsigned long long)k->sessions);
    k->base.env.events->reach(k->base.env.arg, true, session, "");
    kube_spaces_reached(k->spaces);
}

static void pulse_again(struct kubernetes *k, uint64_t ms)
{
    timer_start(&k->pulse, ms);
}

/* A refusal is told at once while there is no session yet: it is no matter of time. */
static void pulse_failed(struct kubernetes *k, const struct err *why)
{
    uint64_t ms = (uint64_t)AGAIN_MIN_MS << (k->failures < 5 ? k->failures : 5);

    k->failures++;
    ms = ms < AGAIN_MAX_MS ? ms : AGAIN_MAX_MS;
    pulse_again(k, ms / 2 + loop_random_u64(k->base.env.loop) % (ms / 2 + 1));
    k->login_ms = 0;
    /* What was kept back says nothing new of the server. */
    bool kept = why->code == E_UNAVAIL && !k->reachable && k->failures > 1;
    if (!kept && (!k->reachable || k->failures >= FAILURES_MAX))
        reach_lost(k, why->text);
}

/* ---- the watches ---- */
static void nodes_begin(void *arg)
{
    kube_nodes_begins(((struct kubernetes_watch *)arg)->k->nodes);
}
static void nodes_item(void *arg, enum kube_change change, const cJSON *o)
{
    kube_nodes_node(((struct kubernetes_watch *)arg)->k->nodes, change, o);
}
static void pods_begin(void *arg)
{
    const struct kubernetes *k = ((struct kubernetes_watch *)arg)->k;

    kube_nodes_pods_begin(k->nodes);
    kube_runs_pods_begin(k->runs);
}
static void pods_item(void *arg, enum kube_change change, const cJSON *o)
{
    const struct kubernetes *k = ((struct kubernetes_watch *)arg)->k;

    /* Both hear of each: a pod may be another's than it was. */
    bool ours = kube_runs_pod(k->runs, change, o);
    kube_checks_pod(k->checks, change, o);
    kube_nodes_pod(k->nodes, ours ? KUBE_GONE : change, o);
}
static void jobs_begin(void *arg)
{
    const struct kubernetes *k = ((struct kubernetes_watch *)arg)->k;

    kube_runs_jobs_begin(k->runs);
    kube_checks_jobs_begin(k->checks);
}
static void jobs_item(void *arg, enum kube_change change, const cJSON *o)
{
    const struct kubernetes *k = ((struct kubernetes_watch *)arg)->k;

    if (!kube_checks_job(k->checks, change, o))
        kube_runs_job(k->runs, change, o);
}

static void listed(void *arg, const char *rv)
{
    struct kubernetes_watch *w = arg;
    struct kubernetes *k = w->k;

    w->listed = true;
    switch (w->what) {
    case WATCHED_NODES:
        kube_nodes_listed(k->nodes);
        break;
    case WATCHED_PODS:
        kube_nodes_pods_listed(k->nodes);
        kube_runs_pods_listed(k->runs, rv);
        break;
    default:
        kube_checks_jobs_listed(k->checks);
        kube_runs_jobs_listed(k->runs, rv);
        break;
    }
    reach_look(k);
}

static void trouble(void *arg, const struct err *err)
{
    struct kubernetes_watch *w = arg;

    w->trouble_ms = err ? now_ms(w->k) : 0;
    str_cut_words(w->why, sizeof w->why, err ? err->text : "");
    if (err)
        log_event(LOG_INFO, "kubernetes.watch",
                  LOG_FIELDS({"target", log_str(w->k->base.target)}, {"why", log_str(err->text)}));
    if (w->k->step == KUBERNETES_LISTS || !err)
        reach_look(w->k);
}

static void session_anew(struct kubernetes *k, const char *why)
{
    log_event(LOG_WARN, "kubernetes.session_anew",
              LOG_FIELDS({"target", log_str(k->base.target)}, {"why", log_str(why)}));
    kubernetes_session_end(k, why);
    kubernetes_session_begin(k);
}

static void back(void *arg, const struct err *err)
{
    session_anew(((struct kubernetes_watch *)arg)->k, err->text);
}

static void watches_begin(struct kubernetes *k)
{
    static const struct {
        const char *path, *selectors;
        unsigned page;
        struct kube_watch_events events;
    } all[WATCHED_NR] = {
        [WATCHED_NODES] = {"/api/v1/nodes",
                           "",
                           NODES_PAGE,
                           {.begins = nodes_begin,
                            .item = nodes_item,
                            .listed = listed,
                            .trouble = trouble,
                            .back = back}},
        [WATCHED_PODS] = {"/api/v1/pods",
                          "",
                          PODS_PAGE,
                          {.begins = pods_begin,
                           .item = pods_item,
                           .listed = listed,
                           .trouble = trouble,
                           .back = back}},
        [WATCHED_JOBS] = {"/apis/batch/v1/jobs",
                          "labelSelector=" KUBE_RUN_LABEL, /* its letters are as they are */
                          PODS_PAGE,
                          {.begins = jobs_begin,
                           .item = jobs_item,
                           .listed = listed,
                           .trouble = trouble,
                           .back = back}}};

    for (unsigned i = 0; i < WATCHED_NR; i++) {
        k->watches[i] = (struct kubernetes_watch){.k = k, .what = (enum kubernetes_watched)i};
        k->watches[i].watch =
            kube_watch_create(k->base.env.loop, k->client, all[i].path, all[i].selectors,
                              all[i].page, &all[i].events, &k->watches[i]);
    }
}

void kubernetes_relist_nodes(struct kubernetes *k)
{
    if (k->watches[WATCHED_NODES].watch)
        kube_watch_relist(k->watches[WATCHED_NODES].watch);
}

static void client_drop(struct kubernetes *k)
{
    kube_nodes_client(k->nodes, NULL);
    k->health = kube_client_destroy(k->health);
    k->client = kube_client_destroy(k->client);
}

/* ---- another Target at the same cluster ---- */
/* It is not even listed: three hundred documents that name one cluster would hold it as often. */
static bool twin_rests(struct kubernetes *k)
{
    const struct connector_env *e = &k->base.env;
    char agent[64], why[256];

    (void)snprintf(agent, sizeof agent, "kubernetes:%.50s", k->cluster);
    if (e->events->agent)
        e->events->agent(e->arg, agent);
    if (!e->is_twin || !e->is_twin(e->arg, why))
        return false;
    k->step = KUBERNETES_RESTS;
    reach_lost(k, why);
    pulse_again(k, TWIN_AGAIN_MS);
    client_drop(k);
    return true;
}

/* ---- who answers ---- */
static void get(struct kubernetes *k, const char *path,
                void (*done)(void *arg, const struct kube_answer *a))
{
    const struct kube_ask ask = {.method = "GET",
                                 .path = path,
                                 .ahead = true,
                                 .deadline_ms = now_ms(k) + PULSE_ANSWER_MS,
                                 .done = done,
                                 .arg = k};

    k->asking = kube_send(k->client, &ask);
}

static int identity_read(const struct kube_answer *a, char ret[64], struct err *err)
{
    const char *uid = kube_text(a->body, "metadata.uid");

    if (a->out != OUT_DONE) {
        *err = *a->err;
        return err->code;
    }
    if (!*uid || strlen(uid) > 50 ||
        strspn(uid, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-") !=
            strlen(uid))
        return err_set(err, E_UNKNOWN,
                       "its namespace kube-system has no uid, by which the cluster is known");
    str_copy(ret, 64, uid);
    return 0;
}

static void identity_came(void *arg, const struct kube_answer *a)
{
    struct kubernetes *k = arg;
    char uid[64];
    struct err err;

    k->asking = NULL;
    if (identity_read(a, uid, &err) < 0) {
        pulse_failed(k, &err);
        return;
    }
    k->failures = 0;
    pulse_again(k, PULSE_MS);
    if (k->step == KUBERNETES_ASKS) {
        str_copy(k->cluster, sizeof k->cluster, uid);
        if (twin_rests(k))
            return;
        k->sessions++;
        k->step = KUBERNETES_LISTS;
        watches_begin(k);
    } else if (strcmp(k->cluster, uid) != 0) {
        session_anew(k, "another cluster answers at its address than before");
    } else {
        const struct kubernetes_watch *bad = troubled(k);
        if (bad && k->reachable && now_ms(k) - bad->trouble_ms >= TROUBLE_MAX_MS)
            reach_lost(k, bad->why);
        else
            reach_look(k);
    }
}

/* "1.34.2", "1.30+": of forks, too. */
static int version_read(const struct kube_answer *a, struct err *err)
{
    const char *major = kube_text(a->body, "major"), *minor = kube_text(a->body, "minor");

    if (a->out != OUT_DONE) {
        *err = *a->err;
        return err->code;
    }
    long n = strtol(minor, NULL, 10);
    if (strcmp(major, "1") == 0 && n < LEAST_MINOR)
        return err_set(err, E_NOTIMPL,
                       "its API server is of version %.10s.%.10s, and 1.%d is needed, by which a "
                       "pod starts once and no sooner than it may",
                       major, minor, LEAST_MINOR);
    return *major ? 0
                  : err_set(err, E_UNKNOWN,
                            "what answers there does not say that it is an API server of "
                            "Kubernetes");
}

static void version_came(void *arg, const struct kube_answer *a)
{
    struct kubernetes *k = arg;
    struct err err;

    k->asking = NULL;
    if (version_read(a, &err) < 0)
        pulse_failed(k, &err);
    else
        get(k, "/api/v1/namespaces/kube-system", identity_came);
}

/* ---- credentials ---- */
static int client_make(struct kubernetes *k, struct err *err)
{
    const struct target_spec *s = object_as(k->doc, target)->spec;
    int64_t most = s->limits && s->limits->inFlight > 0 ? s->limits->inFlight : IN_FLIGHT;

    client_drop(k);
    kube_login_clear(&k->login);
    k->login_ms = now_ms(k);
    int rc = kube_login_read(&k->base.env, s, &k->login, err);
    if (rc == 0)
        rc = kube_client_create(k->base.env.loop, k->base.target, &k->login,
                                (unsigned)most + OWN_IN_FLIGHT, k->base.env.web, &k->client, err);
    if (rc == 0)
        rc = kube_client_create(k->base.env.loop, k->base.target, &k->login, 1, k->base.env.web,
                                &k->health, err);
    if (rc == 0)
        kube_nodes_client(k->nodes, k->health);
    else
        client_drop(k);
    return rc;
}

static void login_unread(struct kubernetes *k, const struct err *err)
{
    if (!err)
        k->unread_ms = 0;
    else if (!k->unread_ms)
        k->unread_ms = now_ms(k);
    str_cut_words(k->unread, sizeof k->unread, err ? err->text : "");
}

/* Whoever took the Secret away wants nothing done by it any more. */
static bool login_is_gone(const struct kubernetes *k)
{
    return k->unread_ms && (!k->reachable || now_ms(k) - k->unread_ms >= LOGIN_GONE_MS);
}

/* What cannot be read, or not be used, stays as it was for a while: the Secret may be on its way.
 * Called also by who is amid a call, so it ends no session. */
void kubernetes_login_look(struct kubernetes *k)
{
    struct kube_login l = {0};
    struct err err;

    if (k->step == KUBERNETES_RESTS || (k->login_ms && now_ms(k) - k->login_ms < LOGIN_EVERY_MS))
        return;
    k->login_ms = now_ms(k);
    int rc = kube_login_read(&k->base.env, object_as(k->doc, target)->spec, &l, &err);
    login_unread(k, rc < 0 ? &err : NULL);
    if (rc < 0 || kube_login_same(&l, &k->login)) {
        kube_login_clear(&l);
        return;
    }
    if (strcmp(l.server, k->login.server) != 0) {
        kube_login_clear(&l);
        k->moved = true;
        pulse_again(k, 0);
        return;
    }
    if (kube_client_renew(k->client, &l, &err) < 0 || kube_client_renew(k->health, &l, &err) < 0) {
        log_err(LOG_WARN, "kubernetes.login", &err);
        kube_login_clear(&l);
        return;
    }
    log_event(LOG_INFO, "kubernetes.login", LOG_FIELDS({"target", log_str(k->base.target)}));
    kube_login_clear(&k->login);
    k->login = l;
}

/* ---- the pulse ---- */
static void on_pulse(void *arg)
{
    struct kubernetes *k = arg;
    struct err err;

    if (k->asking)
        kube_cancel(k->asking);
    k->asking = NULL;
    if (k->moved) {
        session_anew(k, "its server has another address now");
        return;
    }
    if (k->step == KUBERNETES_RESTS || k->step == KUBERNETES_ASKS) {
        if (client_make(k, &err) < 0) {
            k->step = KUBERNETES_RESTS;
            pulse_failed(k, &err);
            return;
        }
        k->step = KUBERNETES_ASKS;
        get(k, "/version", version_came);
        return;
    }
    kubernetes_login_look(k);
    if (login_is_gone(k))
        session_anew(k, k->unread);
    else if (!k->moved)
        get(k, "/api/v1/namespaces/kube-system", identity_came);
}

void kubernetes_session_begin(struct kubernetes *k)
{
    timer_init(&k->pulse, k->base.env.loop, on_pulse, k);
    k->step = KUBERNETES_RESTS;
    k->failures = 0;
    k->moved = false;
    k->unread_ms = 0;
    pulse_again(k, 0);
}

/* The caller hears first that it is out of reach: who is told of a lost call makes no other one. */
void kubernetes_session_end(struct kubernetes *k, const char *why)
{
    timer_stop(&k->pulse);
    reach_lost(k, why);
    k->step = KUBERNETES_RESTS;
    for (unsigned i = 0; i < WATCHED_NR; i++) {
        k->watches[i].watch = kube_watch_destroy(k->watches[i].watch);
        k->watches[i].listed = false;
        k->watches[i].trouble_ms = 0;
    }
    if (k->asking)
        kube_cancel(k->asking);
    k->asking = NULL;
    kube_nodes_lost(k->nodes);
    kube_look_lost(k->look, why);
    kube_checks_lost(k->checks);
    kube_spaces_lost(k->spaces);
    kube_runs_lost(k->runs, why);
    kubernetes_calls_lost(k, why);
    home_runs_unsee(k->home);
    client_drop(k);
    kube_login_clear(&k->login);
    k->cluster[0] = '\0';
}
