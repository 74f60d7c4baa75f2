/* Runners that call home: what their orders bring them, and what becomes of those who dial. A
 * runner is taken only while the log says that its epoch and try live; one that the log has left
 * behind is told so, and ends what it runs. One that the log does not know is never ended: the log
 * may be the older one.
 *
 * Two processes must never begin with one token, whichever leader they come to (a pod that its
 * cluster started twice has it twice): the first one's claim is in the log before it is welcome. */
#include "controlplane/leader/site/sites.h"

#include "api/base/log.h"
#include "controlplane/leader/context/refusals.h"
#include "controlplane/leader/logs/logs.h"

#include <stdio.h>
#include <string.h>

#define MEMBERS_MAX HOME_ADDRESSES_MAX
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

bool site_home(void *arg, const struct run_key *k, uint32_t ranks, struct arena *a,
               struct home_order *ret)
{
    const struct brain *b = ((const struct site *)arg)->brain;
    struct member_info m[MEMBERS_MAX];
    size_t n = root_members(b->root, m, MEMBERS_MAX);
    const char **addresses = arena_array(a, const char *, MEMBERS_MAX);
    const char **tokens = NULL;

    if (!b->cfg.ca || !site_tokens(arg, k, ranks, a, &tokens))
        return false;
    *ret = (struct home_order){
        .addresses = addresses, .ca = b->cfg.ca, .tokens = tokens, .n_tokens = ranks};
    proxy_fill(arg, a, ret);
    for (size_t i = 0; i < n; i++)
        if (*m[i].api_address)
            addresses[ret->n_addresses++] = arena_strdup(a, m[i].api_address);
    return ret->n_addresses > 0;
}

/* ---- those who dial ---- */
/* Returns why the log does not have that run alive; over: it has left it behind. NULL: it lives. */
static const char *not_alive(const struct brain *b, const struct run_key *k, bool *ret_over)
{
    const struct object *w = root_workload_by_uid(b->root, k->uid);
    const struct workload_status *s = w ? object_as(w, workload)->status : NULL;
    int64_t try_ = s && s->intent ? s->intent->try_ : 0;

    *ret_over = false;
    if (!s || s->epoch < k->epoch || (s->epoch == k->epoch && try_ && try_ < k->try_))
        return "this hub does not know its run";
    *ret_over = true;
    if (s->epoch > k->epoch || try_ > k->try_)
        return "a later life of its workload has begun: this one is over";
    if (!phase_live(s->phase) || !s->placement || !try_)
        return "its run is over";
    return NULL;
}

static const char *not_taken(struct brain *b, const struct home_token *t, struct site **ret_site,
                             bool *ret_over)
{
    const char *ours = root_cluster_uid(b->root), *why;

    *ret_over = false;
    if (!cluster_same_line(ours, t->cluster) || cluster_left_behind(ours, t->cluster))
        return "it serves another hub";
    why = not_alive(b, &t->key, ret_over);
    if (why)
        return why;
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

static void refused(const struct home_arrival *a, bool over, const char *why)
{
    char key[RUN_KEY_MAX];

    run_key_print(&a->token->key, key);
    log_event(LOG_WARN, "runner.refused", LOG_FIELDS({"key", log_str(key)}, {"why", log_str(why)}));
    home_refuse(a->stream, over, why);
}

/* Returns which process the log has begin as that worker; NULL: none yet. */
static const char *claimed(const struct brain *b, const struct home_token *t)
{
    const struct object *w = root_workload_by_uid(b->root, t->key.uid);
    const struct intent *in = object_as(w, workload)->status->intent;

    for (uint32_t i = 0; i < in->n_claims; i++)
        if (in->claims[i].rank == t->rank)
            return in->claims[i].instance;
    return NULL;
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
    char key[RUN_KEY_MAX];
    AUTO_ARENA m = arena_create(0);

    run_key_print(&a->token->key, key);
    seat_find(at, a->token, &welcome);
    with.welcome = &welcome;
    if (keep_find(at->brain, &a->token->key, m, &keep))
        with.keep = &keep;
    if (at->connector->ops->runner(at->connector, &with, &err) < 0)
        log_event(LOG_WARN, "runner.refused",
                  LOG_FIELDS({"key", log_str(key)}, {"why", log_str(err.text)}));
    else
        site_renew_soon(at);
    logs_env_wipe(keep.env);
}

/* Decides by the log as it is now; false: the process has to claim its worker first. */
static bool runner_decide(struct brain *b, const struct home_arrival *a)
{
    struct site *at = NULL;
    bool over = false;
    const char *why = not_taken(b, a->token, &at, &over), *instance;

    if (why) {
        refused(a, over, why);
        return true;
    }
    instance = claimed(b, a->token);
    if (instance && strcmp(instance, a->hello->instance) != 0)
        refused(a, true, "another process has come with its token: a run is started once");
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
        home_refuse(a.stream, false, "no leader is known yet");
    else if (!runner_decide(b, &a)) /* neither in the log nor refused by it */
        refused(&a, false, err ? err->text : r->text);
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
        refused(a, false, "too many runners have come at once");
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
        home_refuse(a->stream, false, "no leader is known yet");
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
