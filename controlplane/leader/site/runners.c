/* Runners that call home: what their orders bring them, and what becomes of those who dial. A
 * runner is taken only while the log says that its epoch and try live; one that the log has left
 * behind is told so, and ends what it runs. One that the log does not know is never ended: the log
 * may be the older one.
 *
 * Two processes must never begin with one token, whichever leader they come to (a pod that its
 * cluster started twice has it twice): the first one's claim is in the log before it is welcome. */
#include "controlplane/leader/site/sites.h"

#include "api/base/hash.h"
#include "api/base/log.h"
#include "controlplane/leader/context/refusals.h"
#include "controlplane/leader/logs/logs.h"

#include <stdio.h>
#include <string.h>

#define MEMBERS_MAX HOME_ADDRESSES_MAX
#define REFUSED_EVERY_MS 600000
#define CLAIMS_MAX 4096 /* on their way into the log at once */
/* Threads that may wait for stores: the pool has four more for others, the disk above all. */
#define KEEPING_AT_ONCE 2
#define KEEPING_OF_A_TARGET 1

/* The login goes to its runners alone: it is in no document. */
static void proxy_fill(const struct site *t, struct arena *a, struct home_order *ret)
{
    const struct brain *b = t->brain;
    const struct target_connection *g = object_as(t->doc, target)->spec->connection;
    const char *login = NULL;

    ret->proxy = ret->proxy_login = "";
    if (!g || !*g->homeProxy)
        return;
    ret->proxy = arena_strdup(a, g->homeProxy);
    if (g->credentialsFrom && b->cfg.secret_get)
        login = b->cfg.secret_get(b->cfg.arg, "hanse-system", g->credentialsFrom->secret, "proxy");
    if (!login)
        return;
    ret->proxy_login = arena_strdup(a, login);
    b->cfg.secret_put(b->cfg.arg, login);
}

bool site_tokens(void *arg, const struct run_key *k, uint32_t ranks, struct arena *a,
                 const char ***ret)
{
    const struct brain *b = ((const struct site *)arg)->brain;
    struct home_token t = {.key = *k, .ranks = ranks, .made_ms = brain_time_ms(b)};

    if (!b->cfg.keys.sign)
        return false;
    str_copy(t.cluster, sizeof t.cluster, root_cluster_uid(b->root));
    *ret = arena_array(a, const char *, ranks + 1);
    for (uint32_t i = 0; i < ranks; i++) {
        char text[HOME_TOKEN_MAX];
        t.rank = i;
        home_token_make(&t, &b->cfg.keys, text);
        (*ret)[i] = arena_strdup(a, text);
    }
    return true;
}

/* Those whose address is in the log by now. */
static size_t addresses_find(const struct brain *b, struct arena *a, const char ***ret)
{
    struct member_info m[MEMBERS_MAX];
    size_t n = root_members(b->root, m, MEMBERS_MAX), found = 0;

    *ret = arena_array(a, const char *, MEMBERS_MAX);
    for (size_t i = 0; i < n && i < MEMBERS_MAX; i++)
        if (*m[i].api_address)
            (*ret)[found++] = arena_strdup(a, m[i].api_address);
    return found;
}

void site_members_tell(struct site *t)
{
    const char **addresses;
    AUTO_ARENA m = arena_create(0);

    if (!t->connector || !t->connector->ops->members)
        return;
    size_t n = addresses_find(t->brain, m, &addresses);
    t->connector->ops->members(t->connector, addresses, n);
}

bool site_home(void *arg, const struct run_key *k, uint32_t ranks, struct arena *a,
               struct home_order *ret)
{
    const struct brain *b = ((const struct site *)arg)->brain;
    const char **tokens = NULL;

    if (!b->cfg.ca || !site_tokens(arg, k, ranks, a, &tokens))
        return false;
    const char **addresses;
    size_t n = addresses_find(b, a, &addresses);
    *ret = (struct home_order){.addresses = addresses,
                               .n_addresses = (unsigned)n,
                               .ca = b->cfg.ca,
                               .tokens = tokens,
                               .n_tokens = ranks};
    proxy_fill(arg, a, ret);
    return ret->n_addresses > 0;
}

/* ---- those who dial ---- */
/* Returns why the log does not have that run alive; HOME_OVER: it has left it behind. NULL: it
 * lives. */
static const char *not_alive(const struct brain *b, const struct run_key *k,
                             enum home_refusal *ret_how)
{
    const struct object *w = root_workload_by_uid(b->root, k->uid);
    const struct workload_status *s = w ? object_as(w, workload)->status : NULL;
    int64_t try_ = s && s->intent ? s->intent->try_ : 0;

    *ret_how = HOME_NOT_NOW;
    if (!s || s->epoch < k->epoch || (s->epoch == k->epoch && try_ && try_ < k->try_))
        return "this hub does not know its run";
    *ret_how = HOME_OVER;
    if (s->epoch > k->epoch || try_ > k->try_)
        return "a later life of its workload has begun: this one is over";
    if (!phase_live(s->phase) || !s->placement || !try_)
        return "its run is over";
    return NULL;
}

static const char *not_taken(struct brain *b, const struct home_token *t, struct site **ret_site,
                             enum home_refusal *ret_how)
{
    const char *ours = root_cluster_uid(b->root), *why;

    *ret_how = HOME_NOT_NOW;
    if (!cluster_same_line(ours, t->cluster) || cluster_left_behind(ours, t->cluster))
        return "it serves another hub";
    why = not_alive(b, &t->key, ret_how);
    if (why)
        return why;
    *ret_how = HOME_NOT_NOW;
    const struct object *w = root_workload_by_uid(b->root, t->key.uid);
    struct site *at = site_find(b, object_as(w, workload)->status->placement->target);
    if (!at || !at->connector || !at->connector->ops->runner)
        return "runners of its target do not call home";
    *ret_site = at;
    return NULL;
}

/* ---- the claim: which process begins with a token stands in the log before it may ---- */
struct claim {
    struct brain *brain;
    struct arena *mem; /* owns what came with it */
    struct home_arrival came;
    struct stream *stream; /* NULL: it is gone */
};

/* A runner asks on as long as its program lives: the log hears of each run and reason once, and
 * then now and again how often it was. */
static void refusal_log(struct brain *b, const struct home_token *t, const char *why)
{
    char key[RUN_KEY_MAX];
    uint64_t now = loop_now_ms(b->loop);

    run_key_print(&t->key, key);
    uint64_t hash = hash_more(hash_text(key), why, strlen(why));
    struct refusal_told *r = &b->sites->refused[hash % REFUSALS_TOLD];
    bool same = r->count > 0 && r->hash == hash;
    if (same && now - r->at_ms < REFUSED_EVERY_MS) {
        r->count++;
        return;
    }
    log_event(LOG_WARN, "runner.refused",
              LOG_FIELDS({"key", log_str(key)}, {"why", log_str(why)},
                         {"count", log_u64(same ? r->count : 1)}));
    *r = (struct refusal_told){hash, now, 1};
}

static void refused(struct brain *b, const struct home_arrival *a, enum home_refusal how,
                    const char *why)
{
    refusal_log(b, a->token, why);
    home_refuse(a->stream, how, why);
}

/* Returns which process the log has begin as that worker; NULL: none yet. */
static const char *claimed(const struct brain *b, const struct home_token *t)
{
    const struct object *w = root_workload_by_uid(b->root, t->key.uid);
    const struct intent *in = object_as(w, workload)->status->intent;

    for (uint32_t i = 0; in && i < in->n_claims; i++)
        if (in->claims[i].rank == t->rank)
            return in->claims[i].instance;
    return NULL;
}

/* Its run is over. Has another process begun with its token? It has, unless the log proves that
 * none did: then this one may say for the run that it never started. */
static bool spent(const struct brain *b, const struct home_arrival *a)
{
    const struct run_key *k = &a->token->key;
    const struct object *w = root_workload_by_uid(b->root, k->uid);
    const struct workload_status *s = object_as(w, workload)->status;
    const char *instance = claimed(b, a->token);

    if (s->epoch == k->epoch && s->intent && s->intent->try_ > k->try_)
        return false; /* an epoch has a next try where nothing of it has begun */
    if (s->epoch == k->epoch && s->intent && root_feature_level(b->root) >= FEATURE_GRANTS)
        return instance && strcmp(instance, a->hello->instance) != 0;
    for (uint32_t i = s->n_ends; i > 0; i--)
        if (s->ends[i - 1].epoch == k->epoch)
            return s->ends[i - 1].proof != PROOF_NEVER_STARTED;
    return true;
}

/* Where the log has it. Its target may have put it elsewhere a moment ago: then whoever started it
 * has told it so. */
static void seat_find(const struct site *at, const struct home_token *t, struct home_welcome *ret)
{
    const struct object *w = root_workload_by_uid(at->brain->root, t->key.uid);
    const struct placement *p = object_as(w, workload)->status->placement;
    size_t n = strlen(p->target);

    *ret = (struct home_welcome){.node = ""};
    for (uint32_t i = 0; i < p->n_assignments; i++) {
        const struct assignment *s = &p->assignments[i];
        if (s->rank != t->rank)
            continue;
        bool below = strncmp(s->node, p->target, n) == 0 && s->node[n] == '.';
        *ret = (struct home_welcome){.node = below ? s->node + n + 1 : s->node,
                                     .gpus = s->gpus,
                                     .n_gpus = s->n_gpus,
                                     .count = (int)s->count};
        return;
    }
}

/* Where what it prints is kept; false: nowhere. */
static bool keep_find(struct brain *b, const struct run_key *k, struct arena *m,
                      struct home_keep *ret)
{
    const struct object *w = root_workload_by_uid(b->root, k->uid);
    const struct workload_status *s = object_as(w, workload)->status;
    uint32_t ranks = s->placement->n_assignments ? s->placement->n_assignments : 1;
    struct logs_place p;
    struct err err;

    if (logs_place(b, w, k, m, &p, &err) < 0) { /* whoever reads it hears the same */
        log_err(LOG_WARN, "logs.not_kept", &err);
        return false;
    }
    if (!*p.base)
        return false;
    if (!b->sites->keeping)
        b->sites->keeping = kept_queue_create(b->loop, KEEPING_AT_ONCE, KEEPING_OF_A_TARGET);
    *ret = (struct home_keep){
        .queue = b->sites->keeping,
        .base = p.base,
        .roots = p.roots,
        .env = p.env,
        .max_bytes = (uint64_t)(p.max_bytes ? p.max_bytes : KEPT_MAX_DEFAULT) / ranks};
    return true;
}

/* The log has its claim, or knows none yet. */
static void runner_take(struct site *at, const struct home_arrival *a)
{
    struct home_welcome welcome;
    struct home_arrival with = *a;
    struct home_keep keep = {.env = NULL};
    struct err err = {0};
    AUTO_ARENA m = arena_create(0);

    seat_find(at, a->token, &welcome);
    with.welcome = &welcome;
    if (keep_find(at->brain, &a->token->key, m, &keep))
        with.keep = &keep;
    site_members_tell(at);
    if (at->connector->ops->runner(at->connector, &with, &err) < 0)
        refusal_log(at->brain, a->token, err.text);
    else
        site_renew_soon(at);
    logs_env_wipe(keep.env);
}

/* Decides by the log as it is now; false: the process has to claim its worker first. */
static bool runner_decide(struct brain *b, const struct home_arrival *a)
{
    struct site *at = NULL;
    enum home_refusal how;
    const char *why = not_taken(b, a->token, &at, &how), *instance;

    if (why) {
        refused(b, a, how == HOME_OVER && spent(b, a) ? HOME_TOKEN_SPENT : how, why);
        return true;
    }
    instance = claimed(b, a->token);
    if (instance && strcmp(instance, a->hello->instance) != 0)
        refused(b, a, HOME_TOKEN_SPENT,
                "another process has come with its token: a run is started once");
    else if (instance || root_feature_level(b->root) < FEATURE_GRANTS)
        runner_take(at, a);
    else
        return false;
    return true;
}

static const struct stream_events nobody = {0};

static void claim_cut(struct stream *s, const struct err *why, void *arg)
{
    struct claim *c = arg;

    (void)s;
    (void)why;
    c->stream = NULL;
}

static void claim_written(void *arg, const struct result *r, const struct err *err)
{
    struct claim *c = arg;
    struct brain *b = c->brain;
    AUTO_ARENA mem = c->mem;
    struct home_arrival a = c->came;
    bool here = c->stream != NULL;

    b->sites->claiming--;
    mem_free(c);
    if (!here)
        return;
    a.mem = &mem;
    stream_set(a.stream, &nobody, NULL);
    if (!b->leads || b->in_doubt || !b->root)
        home_refuse(a.stream, HOME_NOT_NOW, "no leader is known yet");
    else if (!runner_decide(b, &a)) /* neither in the log nor refused by it */
        refused(b, &a, HOME_NOT_NOW, err ? err->text : r->text);
}

static void claim_begin(struct brain *b, const struct home_arrival *a)
{
    static const struct stream_events waiting = {.closed = claim_cut};
    const struct object *w = root_workload_by_uid(b->root, a->token->key.uid);
    union command cmd = {.run = {.head = {.type = CMD_RUN, .user = "hanse:runner"},
                                 .step = STEP_CLAIM,
                                 .epoch = a->token->key.epoch,
                                 .try_ = a->token->key.try_,
                                 .rank = a->token->rank}};
    struct claim *c;

    if (b->sites->claiming >= CLAIMS_MAX) {
        refused(b, a, HOME_NOT_NOW, "too many runners have come at once");
        return;
    }
    c = mem_new(struct claim);
    c->brain = b;
    c->mem = *a->mem;
    *a->mem = NULL;
    c->came = *a;
    c->stream = a->stream;
    b->sites->claiming++;
    stream_set(a->stream, &waiting, c);
    brain_request_id(b, cmd.head.request_id);
    str_copy(cmd.run.ns, sizeof cmd.run.ns, w->meta->namespace_);
    str_copy(cmd.run.name, sizeof cmd.run.name, w->meta->name);
    str_copy(cmd.run.uid, sizeof cmd.run.uid, a->token->key.uid);
    str_copy(cmd.run.instance, sizeof cmd.run.instance, a->hello->instance);
    brain_propose(b, &cmd, claim_written, c);
}

static void runner_arrived(void *arg, const struct home_arrival *a)
{
    struct brain *b = arg;
    struct core_status st;

    core_status(b->cfg.core, &st);
    if (!b->leads && st.leader_id && !st.leads)
        home_redirect(a->stream, st.leader_api_address);
    else if (!b->leads || b->in_doubt || !b->root)
        home_refuse(a->stream, HOME_NOT_NOW, "no leader is known yet");
    else if (!runner_decide(b, a))
        claim_begin(b, a);
}

void brain_runner(struct brain *b, struct stream *s)
{
    if (!b->cfg.keys.holds || b->closing) {
        stream_abort(s, "runners cannot call home here");
        return;
    }
    if (!b->sites->door)
        b->sites->door = home_door_create(b->loop, &b->cfg.keys, runner_arrived, b);
    home_door_enter(b->sites->door, s);
}

void runners_fini(struct brain *b)
{
    b->sites->door = home_door_destroy(b->sites->door);
    b->sites->keeping = kept_queue_destroy(b->sites->keeping);
}
