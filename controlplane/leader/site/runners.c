/* Runners that call home: what their orders bring them, and what becomes of those who dial. A
 * runner is taken only while the log says that its epoch and try live; one that the log has left
 * behind is told so, and ends what it runs. One that the log does not know is never ended: the log
 * may be the older one. */
#include "controlplane/leader/site/sites.h"

#include "api/base/log.h"
#include "controlplane/leader/context/refusals.h"

#include <stdio.h>
#include <string.h>

#define MEMBERS_MAX HOME_ADDRESSES_MAX

bool site_home(void *arg, const struct run_key *k, uint32_t ranks, struct arena *a,
               struct home_order *ret)
{
    const struct brain *b = ((const struct site *)arg)->brain;
    struct member_info m[MEMBERS_MAX];
    size_t n = root_members(b->root, m, MEMBERS_MAX);
    const char **addresses = arena_array(a, const char *, MEMBERS_MAX);
    const char **tokens = arena_array(a, const char *, ranks + 1);
    struct home_token t = {.key = *k, .ranks = ranks, .made_ms = brain_time_ms(b)};

    if (!b->cfg.ca || !b->cfg.keys.sign)
        return false;
    str_copy(t.cluster, sizeof t.cluster, root_cluster_uid(b->root));
    *ret = (struct home_order){.addresses = addresses, .ca = b->cfg.ca, .tokens = tokens};
    for (size_t i = 0; i < n; i++)
        if (*m[i].api_address)
            addresses[ret->n_addresses++] = arena_strdup(a, m[i].api_address);
    for (; ret->n_tokens < ranks; ret->n_tokens++) {
        char text[HOME_TOKEN_MAX];
        t.rank = ret->n_tokens;
        home_token_make(&t, &b->cfg.keys, text);
        tokens[ret->n_tokens] = arena_strdup(a, text);
    }
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
    if (!phase_holds(s->phase) || !s->placement || !try_)
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

static void runner_arrived(void *arg, const struct home_arrival *a)
{
    struct brain *b = arg;
    struct site *t = NULL;
    struct core_status st;
    struct err err = {0};
    bool over = false;
    char key[RUN_KEY_MAX];

    core_status(b->cfg.core, &st);
    run_key_print(&a->token->key, key);
    if (!b->leads && st.leader_id && !st.leads) {
        home_redirect(a->stream, st.leader_api_address);
        return;
    }
    if (!b->leads || b->in_doubt || !b->root) {
        home_refuse(a->stream, false, "no leader is known yet");
        return;
    }
    const char *why = not_taken(b, a->token, &t, &over);
    if (why)
        home_refuse(a->stream, over, why);
    else if (t->connector->ops->runner(t->connector, a, &err) < 0)
        why = err.text;
    if (why)
        log_event(LOG_WARN, "runner.refused",
                  LOG_FIELDS({"key", log_str(key)}, {"why", log_str(why)}));
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
}
