/* The session with a callout server: hello, then one long question after the other for what has
 * changed. A server that forgot (another instance, or a place in its changes that it does not have)
 * begins a new session, in which the caller looks for everything again. */
#include "connectors/callout/callout_internal.h"

#include "api/base/log.h"

#include <cjson/cJSON.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>

#define POLL_WAIT_S 10 /* a server may hold the question so long */
#define POLL_ANSWER_MS 5000
#define PACE_MIN_MS 250
#define PACE_MAX_MS 5000
#define RETRY_MIN_MS 250
#define RETRY_MAX_MS 10000
#define FAILURES_MAX 2 /* in a row: it is out of reach */
#define KEY_LEAST 32
#define LOOKS_MAX 32 /* for what one answer told unreadably */

static void poll_again(struct callout *c, uint64_t ms)
{
    timer_start(&c->poll, ms);
}

/* ---- what the Target says ---- */
const char *callout_secret(const struct callout *c, const char *key)
{
    const struct target_connection *g = object_as(c->doc, target)->spec->connection;
    const struct connector_env *e = &c->base.env;

    return g && g->credentialsFrom ? e->secret_get(e->arg, g->credentialsFrom->secret, key) : NULL;
}

static void secret_put(const struct callout *c, const char *text)
{
    if (text)
        c->base.env.secret_put(c->base.env.arg, text);
}

static void text_wipe(char **text)
{
    if (*text)
        OPENSSL_cleanse(*text, strlen(*text));
    mem_free(*text);
    *text = NULL;
}

static void key_wipe(struct callout *c)
{
    text_wipe(&c->key);
    text_wipe(&c->other_key);
    c->use_other = false;
}

/* True when it is another one than before; *ret_good: the Secret has it. One that is needed, and is
 * not there any more, stays known, by which answers under way are proved; nothing is signed with
 * it. */
static bool key_read(const struct callout *c, const char *entry, bool needed, char **had,
                     bool *ret_good)
{
    const char *now = callout_secret(c, entry);
    bool good = now && strlen(now) >= KEY_LEAST;
    bool changed = good ? !*had || strcmp(now, *had) != 0 : *had && !needed;

    if (changed) {
        text_wipe(had);
        *had = good ? mem_strdup(now) : NULL;
    }
    secret_put(c, now);
    *ret_good = good;
    return changed;
}

/* Who changes a key changes it in two places, one after the other. Meanwhile the Secret has both,
 * so that every leader knows them. */
const char *callout_key(struct callout *c)
{
    bool there, more;
    bool first = key_read(c, "key", true, &c->key, &there);
    bool other = key_read(c, "key.other", false, &c->other_key, &more);

    if (first || other)
        c->use_other = false;
    return !there ? NULL : c->use_other && c->other_key ? c->other_key : c->key;
}

static int key_missing(const struct callout *c, struct err *err)
{
    const struct target_connection *g = object_as(c->doc, target)->spec->connection;

    return err_set(err, E_UNAVAIL,
                   "Secret %.100s of namespace hanse-system has no \"key\" of at least %d letters",
                   g && g->credentialsFrom ? g->credentialsFrom->secret : "", KEY_LEAST);
}

int callout_key_check(struct callout *c, struct err *err)
{
    if (callout_key(c))
        return 0;
    if (c->polling) /* it would be heard of at its end */
        web_cancel(c->polling);
    c->polling = NULL;
    poll_again(c, 0);
    return key_missing(c, err);
}

/* Its Secret may have changed: all of it is read at the beginning of each session, and its key for
 * each request. */
static int client_make(struct callout *c, struct err *err)
{
    const struct target_spec *s = object_as(c->doc, target)->spec;
    const struct target_connection *g = s->connection;
    const char *key, *token, *ca, *cert, *own;
    int rc = 0;

    c->web = web_client_destroy(c->web);
    key_wipe(c);
    if (!g || !*g->server || !g->credentialsFrom)
        return err_set(err, E_INVALID, "spec.connection names no server or no credentialsFrom");
    key = callout_secret(c, "key");
    token = callout_secret(c, "token");
    ca = callout_secret(c, "ca.crt");
    cert = callout_secret(c, "tls.crt");
    own = callout_secret(c, "tls.key");
    if (!key || strlen(key) < KEY_LEAST)
        rc = key_missing(c, err);
    if (rc == 0) {
        c->key = mem_strdup(key);
        const struct web_config w = {.target = c->base.target,
                                     .url = g->server,
                                     .ca_pem = *g->caBundle ? g->caBundle : ca,
                                     .cert_pem = cert,
                                     .key_pem = own,
                                     .token = token,
                                     .secret = key,
                                     /* one is for the poll */
                                     .in_flight = s->limits && s->limits->inFlight > 0
                                                      ? (unsigned)s->limits->inFlight + 1
                                                      : 0,
                                     .sign = callout_signer(),
                                     .sign_arg = c,
                                     .transport = c->base.env.web};
        rc = web_client_create(c->base.env.loop, &w, &c->web, err);
    }
    secret_put(c, key);
    secret_put(c, token);
    secret_put(c, ca);
    secret_put(c, cert);
    secret_put(c, own);
    return rc;
}

/* ---- reach ---- */
static void reach_lost(struct callout *c, const char *why)
{
    str_copy(c->why, sizeof c->why, why);
    c->instance[0] = '\0';
    c->reachable = false;
    if (c->home)
        home_runs_unsee(c->home);
    c->base.env.events->reach(c->base.env.arg, false, "", c->why);
}

/* The caller hears of it at once when the server said so, else after a second failure. */
static void poll_failed(struct callout *c, const char *why, bool at_once)
{
    uint64_t ms = RETRY_MIN_MS << (c->failures < 6 ? c->failures : 6);

    c->failures++;
    ms = ms < RETRY_MAX_MS ? ms : RETRY_MAX_MS;
    if (at_once || c->failures >= FAILURES_MAX || !c->reachable)
        reach_lost(c, why);
    poll_again(c, ms / 2 + loop_random_u64(c->base.env.loop) % (ms / 2 + 1));
}

/* ---- answers ---- */
static int hello_take(struct callout *c, const struct web_answer *a, struct err *err)
{
    struct callout_hello *h = NULL;
    char session[64], uid[64];
    AUTO_ARENA mem = arena_create(CALLOUT_ANSWER_MAX * 4);
    int rc = callout_read(c, &schema_callout_hello, a, mem, (void **)&h, err);

    if (rc == 0 && h->version != CALLOUT_VERSION)
        rc = err_set(err, E_NOTIMPL, "it speaks version %lld of the callout protocol; this is %d",
                     (long long)h->version, CALLOUT_VERSION);
    if (rc == 0 && callout_has_runners(c) && !h->runner)
        rc = err_set(err, E_NOTIMPL,
                     "its Target says spec.connection.runners, and it does not say that it starts "
                     "runners");
    if (rc == 0 && callout_has_runners(c) && !h->proxies &&
        *object_as(c->doc, target)->spec->connection->homeProxy)
        rc = err_set(err, E_NOTIMPL,
                     "its Target says spec.connection.homeProxy, and it does not say that its "
                     "runners call home through proxies");
    if (rc == 0 && object_as(c->doc, target)->spec->n_principals && !h->principals)
        rc = err_set(err, E_NOTIMPL,
                     "its Target has spec.principals, and it does not say that it starts runs in "
                     "their names");
    const struct target_limits *l = object_as(c->doc, target)->spec->limits;
    if (rc == 0 && l && l->startWithin > 0 && !h->starts_by)
        rc = err_set(err, E_NOTIMPL,
                     "its Target has spec.limits.startWithin, and it does not say that it keeps to "
                     "startBy");
    if (rc < 0)
        return rc;
    str_copy(c->instance, sizeof c->instance, h->instance);
    uid[0] = '\0';
    if (*h->uid)
        (void)snprintf(uid, sizeof uid, "callout:%.47s", h->uid);
    c->next = h->next;
    c->checkpoints = h->checkpoints;
    c->repeats = h->repeats;
    c->starts_by = h->starts_by;
    c->reports = h->reports;
    c->stages = h->stages;
    c->revision[0] = c->told_revision[0] = '\0';
    c->reachable = true;
    (void)snprintf(session, sizeof session, "%.40s/%llu", c->instance,
                   (unsigned long long)++c->sessions);
    if (c->base.env.events->agent)
        c->base.env.events->agent(c->base.env.arg, uid);
    c->base.env.events->reach(c->base.env.arg, true, session, "");
    return 0;
}

/* What a changed run's row says of it, of its workers, and of what its runners have left. */
static int change_read(const struct callout *c, const cJSON *row, struct arena *mem,
                       struct observation **ret, struct run_workers **ret_workers, struct err *err)
{
    struct callout_reported *left = NULL;
    int rc = callout_row_read(&schema_observation, row, mem, (void **)ret, err);

    if (rc == 0)
        rc = callout_row_read(&schema_run_workers, row, mem, (void **)ret_workers, err);
    if (rc == 0)
        rc = callout_row_read(&schema_callout_reported, row, mem, (void **)&left, err);
    return rc < 0 ? rc : callout_seen(c, *ret, left, *ret_workers, mem, err);
}

/* One that cannot be read says nothing of its run, which is asked about. */
static void change_take(struct callout *c, const cJSON *row, unsigned *looks, struct arena *mem)
{
    struct observation *o = NULL;
    struct run_workers *workers = NULL;
    struct run_key key;
    struct err why;

    if (change_read(c, row, mem, &o, &workers, &why) < 0) {
        if (callout_row_unread(c, row, &why, &key) && *looks < LOOKS_MAX) {
            ++*looks;
            callout_look(c, &key);
        }
        return;
    }
    if (o->state == RUN_UNKNOWN)
        return;
    callout_workers(c, o, workers);
    callout_observed(c, o);
    c->base.env.events->observed(c->base.env.arg, o);
}

static int changes_take(struct callout *c, const struct web_answer *a, bool *ret_news,
                        struct err *err)
{
    struct callout_changes *x = NULL;
    cJSON *rows = NULL, *row;
    unsigned looks = 0;
    AUTO_ARENA mem = arena_create(CALLOUT_ANSWER_MAX * 16);
    int rc = callout_read_rows(c, &schema_callout_changes, "runs", a, mem, (void **)&x, &rows, err);

    if (rc < 0)
        return rc;
    if (strcmp(x->instance, c->instance) != 0 || x->next < c->next) {
        cJSON_Delete(rows);
        return err_set(err, E_GONE, "it has forgotten what it told, and is asked for all again");
    }
    *ret_news = cJSON_GetArraySize(rows) > 0 || x->next > c->next;
    cJSON_ArrayForEach(row, rows)
    {
        change_take(c, row, &looks, mem);
    }
    cJSON_Delete(rows);
    c->next = x->next;
    str_copy(c->told_revision, sizeof c->told_revision, x->revision);
    callout_nodes_look(c);
    return 0;
}

/* Where nothing happens, and the server does not hold the question, it is asked less often. */
static void pace(struct callout *c, bool news)
{
    uint64_t took = loop_now_ms(c->base.env.loop) - c->asked_ms;

    if (news)
        c->pace_ms = PACE_MIN_MS;
    else if (took < PACE_MAX_MS)
        c->pace_ms = c->pace_ms * 2 < PACE_MAX_MS ? c->pace_ms * 2 : PACE_MAX_MS;
    poll_again(c, news ? 10 : took >= PACE_MAX_MS ? PACE_MIN_MS : c->pace_ms);
}

static void polled(void *arg, enum outcome out, const struct web_answer *a, const struct err *err)
{
    struct callout *c = arg;
    struct err why;
    bool news = !*c->instance, other = c->use_other;
    int rc = 0;

    c->polling = NULL;
    if (out != OUT_DONE)
        rc = err_set(&why, E_UNAVAIL, "%s", err->text);
    else
        rc = callout_verify(c, a, &why);
    if (rc == 0 && a->status == 410)
        rc = err_set(&why, E_GONE, "it has forgotten what it told, and is asked for all again");
    else if (rc == 0 && a->status != 200)
        rc = err_set(&why, E_UNAVAIL, "it answers %d", a->status);
    if (rc == 0)
        rc = *c->instance ? changes_take(c, a, &news, &why) : hello_take(c, a, &why);
    if (rc < 0 && c->use_other != other && !c->failures) { /* it may know the other key */
        c->failures++;
        poll_again(c, RETRY_MIN_MS);
        return;
    }
    if (rc < 0) {
        poll_failed(c, why.text, out == OUT_DONE);
        return;
    }
    c->failures = 0;
    pace(c, news);
}

static void on_poll(void *arg)
{
    struct callout *c = arg;
    struct err err;
    char path[96] = "/v1/hello";
    uint64_t now = loop_now_ms(c->base.env.loop);
    struct web_ask ask = {.method = "GET",
                          .path = path,
                          .answer_max = CALLOUT_ANSWER_MAX,
                          .deadline_ms = now + POLL_ANSWER_MS,
                          .done = polled,
                          .arg = c};

    if (!*c->instance && list_empty(&c->calls) && client_make(c, &err) < 0) {
        poll_failed(c, err.text, true);
        return;
    }
    if (!c->web) {
        poll_failed(c, "its calls are still under way", true);
        return;
    }
    if (!callout_key(c)) { /* it is gone from its Secret: who took it away wants that at once */
        (void)key_missing(c, &err);
        poll_failed(c, err.text, true);
        return;
    }
    if (*c->instance) { /* after a failure it is to answer at once */
        unsigned wait_s = c->failures ? 0 : POLL_WAIT_S;
        (void)snprintf(path, sizeof path, "/v1/changes?after=%lld&wait=%u", (long long)c->next,
                       wait_s);
        ask.deadline_ms += wait_s * 1000ull;
    }
    c->asked_ms = now;
    c->polling = web_ask(c->web, &ask);
}

void callout_session_begin(struct callout *c)
{
    timer_init(&c->poll, c->base.env.loop, on_poll, c);
    c->pace_ms = PACE_MIN_MS;
    poll_again(c, 0);
}

/* The Target's document has changed, or the connector ends. */
void callout_session_end(struct callout *c, const char *why)
{
    timer_stop(&c->poll);
    if (c->polling)
        web_cancel(c->polling);
    c->polling = NULL;
    reach_lost(c, why); /* first: who is told of a lost call makes no other one */
    callout_calls_lost(c, why);
    callout_notices_clear(c);
    c->web = web_client_destroy(c->web);
    key_wipe(c);
}
