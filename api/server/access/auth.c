/* Who asks: a client certificate that our CA signed (CN = user, O = groups), or a bearer token that
 * the backend knows. A token that is wrong is never taken for "no token": it is refused also where
 * nothing is needed. */
#include "api/server/server_internal.h"

static void add_group(struct api_identity *who, const char *group)
{
    if (who->n_groups < sizeof who->groups / sizeof *who->groups)
        str_copy(who->groups[who->n_groups++], sizeof *who->groups, group);
}

static bool audience_of(const struct api_identity *who, const char *audience)
{
    if (!who->n_audiences)
        return !strcmp(audience, API_AUDIENCE);
    for (unsigned i = 0; i < who->n_audiences; i++)
        if (!strcmp(who->audiences[i], audience))
            return true;
    return false;
}

int auth_token(struct call *c, const char *token, const char *const *audiences, size_t n,
               struct api_identity *ret, struct err *err)
{
    static const char *const own[] = {API_AUDIENCE};
    unsigned kept = 0;
    int r = c->api->ops->token(c->api->b, token, ret, err);

    if (r)
        return err_set(err, r == E_UNAVAIL ? E_UNAVAIL : E_UNAUTH,
                       r == E_UNAVAIL ? "tokens cannot be checked at the moment"
                                      : "the bearer token is not valid");
    if (!*ret->user)
        return err_set(err, E_UNAUTH, "the bearer token names no user");
    if (!n) {
        audiences = own;
        n = 1;
    }
    struct api_identity *had = arena_new(c->mem, struct api_identity);
    *had = *ret;
    for (size_t i = 0; i < n && kept < sizeof ret->audiences / sizeof *ret->audiences; i++)
        if (audience_of(had, audiences[i]))
            str_copy(ret->audiences[kept++], sizeof *ret->audiences, audiences[i]);
    ret->n_audiences = kept;
    if (!kept)
        return err_set(err, E_UNAUTH, "the bearer token is for other audiences");
    add_group(ret, "system:authenticated");
    return 0;
}

static int by_token(struct call *c, const char *header, struct err *err)
{
    const char *token = header + 6;

    if (strncasecmp(header, "bearer", 6) != 0 || (*token != ' ' && *token != '\t'))
        return err_set(err, E_UNAUTH, "Authorization must be \"Bearer TOKEN\"");
    while (*token == ' ' || *token == '\t')
        token++;
    if (!*token)
        return err_set(err, E_UNAUTH, "the bearer token is empty");
    return auth_token(c, token, NULL, 0, &c->who, err);
}

struct revoked_scan {
    const struct peer_identity *peer;
    bool yes;
};

static bool revoked_each(const struct object *o, void *arg)
{
    struct revoked_scan *s = arg;

    s->yes = revocation_takes(o, s->peer);
    return !s->yes;
}

/* Connections that were let in before it was revoked bring requests, too. */
static bool revoked(const struct call *c, const struct peer_identity *peer)
{
    const struct kind *k = kind_by_id(KIND_CERTIFICATE_REVOCATION);
    struct revoked_scan s = {peer, false};

    if (c->api->ops->count(c->view, k))
        c->api->ops->scan(c->view, k, NULL, NULL, NULL, revoked_each, &s);
    return s.yes;
}

int auth_identify(struct call *c, struct err *err)
{
    const struct peer_identity *peer = http_peer(c->rq);
    const char *header = http_header_get(c->rq, "authorization");

    memset(&c->who, 0, sizeof c->who);
    if (peer && peer->certified && revoked(c, peer))
        return err_set(err, E_UNAUTH, "the client certificate was revoked");
    if (header)
        return by_token(c, header, err);
    if (peer && peer->certified && *peer->name) {
        str_copy(c->who.user, sizeof c->who.user, peer->name);
        for (unsigned i = 0; i < peer->n_groups; i++)
            add_group(&c->who, peer->groups[i]);
        add_group(&c->who, "system:authenticated");
        return 0;
    }
    str_copy(c->who.user, sizeof c->who.user, "system:anonymous");
    add_group(&c->who, "system:unauthenticated");
    c->who.anonymous = true;
    return 0;
}
