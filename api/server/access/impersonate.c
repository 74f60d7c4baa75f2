/* Acting as somebody else, as Kubernetes has it: Impersonate-User, -Group, -Uid and -Extra-KEY name
 * him, and each of them is a right of its own (verb impersonate). From then on the request is his:
 * rights, reviews and records; who really asked is told beside it. A request that names somebody
 * and may not is refused, never done with the caller's own rights. */
#include "api/server/server_internal.h"

#define ACCOUNT_PREFIX "system:serviceaccount:"
#define EXTRA_PREFIX "impersonate-extra-"

static int place(char *to, size_t n, const char *from, const char *header, struct err *err)
{
    size_t len = strlen(from);

    if (!len || len >= n || !utf8_valid(from, len))
        return err_field(err, E_SYNTAX, header, "expected 1 to %zu bytes of UTF-8", n - 1);
    memcpy(to, from, len + 1);
    return 0;
}

static int add_group(struct api_identity *who, const char *group, struct err *err)
{
    if (who->n_groups == sizeof who->groups / sizeof *who->groups)
        return err_field(err, E_SYNTAX, "Impersonate-Group",
                         "at most %zu groups, own ones included",
                         sizeof who->groups / sizeof *who->groups);
    return place(who->groups[who->n_groups++], sizeof *who->groups, group, "Impersonate-Group",
                 err);
}

static int hex(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -256; /* names come in lower case */
}

/* Keys may hold what header names may not: percent-encoded. */
static int add_extra(struct api_identity *who, const char *key, const char *value, struct err *err)
{
    struct api_extra *x = &who->extra[who->n_extra];
    size_t n = 0;

    if (who->n_extra == sizeof who->extra / sizeof *who->extra)
        return err_field(err, E_SYNTAX, "Impersonate-Extra", "at most %zu values",
                         sizeof who->extra / sizeof *who->extra);
    for (; *key && n + 1 < sizeof x->key; key++) {
        int byte = *key == '%' ? hex(key[1]) * 16 + (key[1] ? hex(key[2]) : -16) : -1;
        if (byte > 0) {
            x->key[n++] = (char)byte;
            key += 2;
        } else {
            x->key[n++] = *key;
        }
    }
    if (!n || *key || !utf8_valid(x->key, n))
        return err_field(err, E_SYNTAX, "Impersonate-Extra", "expected a key of 1 to %zu bytes",
                         sizeof x->key - 1);
    who->n_extra++;
    return place(x->value, sizeof x->value, value, "Impersonate-Extra", err);
}

static int read_header(struct api_identity *who, const struct http_header *h, struct err *err)
{
    if (!strcmp(h->name, "impersonate-user"))
        return *who->user ? err_field(err, E_SYNTAX, "Impersonate-User", "was given twice")
                          : place(who->user, sizeof who->user, h->value, "Impersonate-User", err);
    if (!strcmp(h->name, "impersonate-group"))
        return add_group(who, h->value, err);
    if (!strcmp(h->name, "impersonate-uid"))
        return *who->uid ? err_field(err, E_SYNTAX, "Impersonate-Uid", "was given twice")
                         : place(who->uid, sizeof who->uid, h->value, "Impersonate-Uid", err);
    if (!strncmp(h->name, EXTRA_PREFIX, strlen(EXTRA_PREFIX)))
        return add_extra(who, h->name + strlen(EXTRA_PREFIX), h->value, err);
    return err_field(err, E_SYNTAX, h->name,
                     "is not known: there are Impersonate-User, -Group, -Uid and -Extra-KEY");
}

int impersonate_read(struct call *c, struct err *err)
{
    struct api_identity *who = NULL;

    for (unsigned i = 0; i < c->m->n_headers; i++) {
        const struct http_header *h = &c->m->headers[i];
        if (strncmp(h->name, "impersonate-", 12) != 0)
            continue;
        who = who ? who : arena_new(c->mem, struct api_identity);
        int r = read_header(who, h, err);
        if (r)
            return r;
    }
    if (who && !*who->user)
        return err_field(err, E_SYNTAX, "Impersonate-User",
                         "is required where a group, uid or extra is impersonated");
    if (who && c->who.anonymous)
        return err_set(err, E_UNAUTH,
                       "no credentials were given: nobody may act as somebody else unknown");
    c->as = who;
    return 0;
}

/* ---- may he? ---- */
static int may(struct call *c, const char *group, const char *resource, const char *sub,
               const char *ns, const char *name, struct err *err)
{
    struct rbac_ask ask = {.verb = "impersonate",
                           .group = group,
                           .resource = resource,
                           .sub = sub,
                           .ns = ns,
                           .name = name};

    return rbac_check(c, &ask, err);
}

/* "system:serviceaccount:NS:NAME" → NS and NAME; false: it is no account's. */
static bool account_of(struct call *c, const char *user, const char **ret_ns, const char **ret_name)
{
    const char *ns = user + strlen(ACCOUNT_PREFIX), *colon;

    if (strncmp(user, ACCOUNT_PREFIX, strlen(ACCOUNT_PREFIX)) != 0 || !(colon = strchr(ns, ':')) ||
        colon == ns || !colon[1] || strchr(colon + 1, ':'))
        return false;
    *ret_ns = arena_strndup(c->mem, ns, (size_t)(colon - ns));
    *ret_name = colon + 1;
    return true;
}

static int may_all(struct call *c, struct err *err)
{
    static const char auth[] = "authentication.k8s.io";
    const struct api_identity *as = c->as;
    const char *ns, *name;
    int r = account_of(c, as->user, &ns, &name) ? may(c, "", "serviceaccounts", "", ns, name, err)
                                                : may(c, "", "users", "", "", as->user, err);

    for (unsigned i = 0; i < as->n_groups && !r; i++)
        r = may(c, "", "groups", "", "", as->groups[i], err);
    if (!r && *as->uid)
        r = may(c, auth, "uids", "", "", as->uid, err);
    for (unsigned i = 0; i < as->n_extra && !r; i++)
        r = may(c, auth, "userextras", as->extra[i].key, "", as->extra[i].value, err);
    return r;
}

static bool in_group(const struct api_identity *who, const char *group)
{
    for (unsigned i = 0; i < who->n_groups; i++)
        if (!strcmp(who->groups[i], group))
            return true;
    return false;
}

/* The groups that everybody of his kind is in. */
static int own_groups(struct call *c, struct api_identity *as, struct err *err)
{
    const char *ns, *name;
    int r = 0;

    if (!strcmp(as->user, "system:anonymous")) {
        as->anonymous = true;
        return in_group(as, "system:unauthenticated")
                   ? 0
                   : add_group(as, "system:unauthenticated", err);
    }
    if (!as->n_groups && account_of(c, as->user, &ns, &name)) {
        r = add_group(as, "system:serviceaccounts", err);
        if (!r)
            r = add_group(as, arena_printf(c->mem, "system:serviceaccounts:%s", ns), err);
    }
    if (!r && !in_group(as, "system:authenticated") && !in_group(as, "system:unauthenticated"))
        r = add_group(as, "system:authenticated", err);
    return r;
}

int impersonate(struct call *c, struct err *err)
{
    if (!c->as)
        return 0;
    int r = may_all(c, err);
    if (!r)
        r = own_groups(c, c->as, err);
    if (r)
        return r;
    log_event(LOG_INFO, "access.impersonated",
              LOG_FIELDS({"user", log_str(c->asker)}, {"as", log_str(c->as->user)},
                         {"method", log_str(c->m->method_text)}, {"path", log_str(c->m->path)}));
    str_copy(c->as->by, sizeof c->as->by, c->asker);
    c->who = *c->as;
    return 0;
}
