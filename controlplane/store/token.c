/* When a bearer token is valid. The API asks when a client shows one, apply when one is created and
 * when invalid ones are removed, so that all three agree. A token belongs to one ServiceAccount, by
 * its uid: a later one of the same name does not inherit it. */
#include "controlplane/store/store_internal.h"

#include <stdio.h>

static const struct object *bound_to(const struct root *r, const struct object *token,
                                     enum kind_id kind, const char *name, const char *uid)
{
    const struct object *o = root_get(r, kind, token->meta->namespace_, name);

    return o && strcmp(o->meta->uid, uid) == 0 ? o : NULL;
}

const char *token_void(const struct root *r, const struct object *token, int64_t now_ms)
{
    const struct token_spec *s = object_as(token, token)->spec;
    const struct token_bound *b = s->boundObjectRef;
    const struct kind *k = b ? kind_by_name(b->kind) : NULL;

    if (s->expirationTimestamp <= now_ms)
        return "it has expired";
    if (*s->serviceAccount &&
        !bound_to(r, token, KIND_SERVICE_ACCOUNT, s->serviceAccount, s->serviceAccountUid))
        return "the ServiceAccount that it was made for is gone";
    if (b && (!k || !bound_to(r, token, k->id, b->name, b->uid)))
        return "the object that it is bound to is gone";
    return NULL;
}

int token_admit(struct txn *t, const struct object *token)
{
    const struct token_spec *s = object_as(token, token)->spec;
    const char *why = token_void(t->w, token, t->now);

    if (s->hash.n != 32)
        return err_set(t->err, E_INVALID, "a token is made by TokenRequest or hanse token create");
    return why ? err_set(t->err, E_CONFLICT, "no token was made: %s", why) : 0;
}

struct void_scan {
    const struct root *r;
    int64_t now;
    struct token_cursor *at;
    struct write_op *ret;
    size_t n, max, looks;
};

static bool void_each(const struct object *o, void *arg)
{
    struct void_scan *s = arg;

    if (s->n == s->max || s->looks == 0)
        return false;
    s->looks--;
    str_copy(s->at->ns, sizeof s->at->ns, o->meta->namespace_);
    str_copy(s->at->name, sizeof s->at->name, o->meta->name);
    if (!token_void(s->r, o, s->now))
        return true;
    struct write_op *op = &s->ret[s->n++];
    *op = (struct write_op){.verb = WRITE_DELETE, .kind = KIND_TOKEN};
    str_copy(op->ns, sizeof op->ns, o->meta->namespace_);
    str_copy(op->name, sizeof op->name, o->meta->name);
    str_copy(op->uid, sizeof op->uid, o->meta->uid);
    return true;
}

bool root_tokens_void(const struct root *r, int64_t now_ms, struct token_cursor *at, size_t looks,
                      struct write_op *ret, size_t max, size_t *ret_n)
{
    struct void_scan s = {r, now_ms, at, ret, 0, max, looks};
    const struct token_cursor from = *at;
    bool begins = !*from.name;

    root_scan(r, KIND_TOKEN, NULL, begins ? NULL : from.ns, begins ? NULL : from.name, void_each,
              &s);
    *ret_n = s.n;
    if (s.n < max && s.looks > 0) {
        *at = (struct token_cursor){0};
        return true;
    }
    return false;
}

/* ---- certificates ---- */
struct revoked_scan {
    const struct peer_identity *who;
    bool yes;
};

static bool revoked_each(const struct object *o, void *arg)
{
    struct revoked_scan *s = arg;

    s->yes = revocation_takes(o, s->who);
    return !s->yes;
}

bool root_certificate_revoked(const struct root *r, const struct peer_identity *who)
{
    struct revoked_scan s = {who, false};

    if (root_count(r, KIND_CERTIFICATE_REVOCATION))
        root_scan(r, KIND_CERTIFICATE_REVOCATION, NULL, NULL, NULL, revoked_each, &s);
    return s.yes;
}
