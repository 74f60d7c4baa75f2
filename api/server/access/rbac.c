/* RBAC as Kubernetes has it: Roles and ClusterRoles grant, bindings say to whom; whatever is not
 * granted is denied. Group system:masters passes. Evaluated on a view, so a decision and what it is
 * about belong to the same state. */
#include "api/server/server_internal.h"

static bool in_group(const struct api_identity *who, const char *group)
{
    for (unsigned i = 0; i < who->n_groups; i++)
        if (!strcmp(who->groups[i], group))
            return true;
    return false;
}

static bool subject_is(const struct subject *s, const struct api_identity *who,
                       const char *binding_ns)
{
    char account[512];

    if (!strcmp(s->kind, "User"))
        return !strcmp(s->name, who->user);
    if (!strcmp(s->kind, "Group"))
        return in_group(who, s->name);
    if (strcmp(s->kind, "ServiceAccount") != 0)
        return false;
    (void)snprintf(account, sizeof account, "system:serviceaccount:%s:%s",
                   *s->namespace_ ? s->namespace_ : binding_ns, s->name);
    return !strcmp(account, who->user);
}

struct walk {
    struct api *a;
    const struct view *v;
    const struct api_identity *who;
    const char *ns;
    bool (*each)(const struct policy_rule *r, bool cluster, void *arg);
    void *arg;
    bool stop;
};

static bool walk_rules(struct walk *w, const struct policy_rule *rules, uint32_t n, bool cluster)
{
    for (uint32_t i = 0; i < n && !w->stop; i++)
        w->stop = !w->each(&rules[i], cluster, w->arg);
    return !w->stop;
}

static bool walk_role(struct walk *w, const struct role_ref *ref, const char *ns, bool cluster)
{
    if (!strcmp(ref->kind, "ClusterRole")) {
        const struct object *o = w->a->ops->get(w->v, kind_by_id(KIND_CLUSTER_ROLE), "", ref->name);
        const struct cluster_role *r = o ? object_as(o, cluster_role) : NULL;
        return !r || walk_rules(w, r->rules, r->n_rules, cluster);
    }
    const struct object *o =
        cluster ? NULL : w->a->ops->get(w->v, kind_by_id(KIND_ROLE), ns, ref->name);
    const struct role *r = o ? object_as(o, role) : NULL;
    return !r || walk_rules(w, r->rules, r->n_rules, false);
}

static bool walk_cluster_binding(const struct object *o, void *arg)
{
    struct walk *w = arg;
    const struct cluster_role_binding *b = object_as(o, cluster_role_binding);

    for (uint32_t i = 0; i < b->n_subjects && b->roleRef; i++)
        if (subject_is(&b->subjects[i], w->who, ""))
            return walk_role(w, b->roleRef, "", true);
    return true;
}

static bool walk_binding(const struct object *o, void *arg)
{
    struct walk *w = arg;
    const struct role_binding *b = object_as(o, role_binding);

    for (uint32_t i = 0; i < b->n_subjects && b->roleRef; i++)
        if (subject_is(&b->subjects[i], w->who, o->meta->namespace_))
            return walk_role(w, b->roleRef, o->meta->namespace_, false);
    return true;
}

void rbac_rules(struct api *a, const struct view *v, const struct api_identity *who, const char *ns,
                bool (*each)(const struct policy_rule *r, bool cluster, void *arg), void *arg)
{
    struct walk w = {.a = a, .v = v, .who = who, .ns = ns, .each = each, .arg = arg};

    a->ops->scan(v, kind_by_id(KIND_CLUSTER_ROLE_BINDING), NULL, NULL, NULL, walk_cluster_binding,
                 &w);
    if (!w.stop && ns && *ns)
        a->ops->scan(v, kind_by_id(KIND_ROLE_BINDING), ns, NULL, NULL, walk_binding, &w);
}

/* ---- one rule against one question ---- */
static bool has(const char *const *v, uint32_t n, const char *want)
{
    for (uint32_t i = 0; i < n; i++)
        if (!strcmp(v[i], "*") || !strcmp(v[i], want))
            return true;
    return false;
}
#define HAS(r, field, want) has((const char *const *)(r)->field, (r)->n_##field, (want))

static bool has_resource(const struct policy_rule *r, const char *resource, const char *sub)
{
    char full[256];
    size_t n;

    for (uint32_t i = 0; i < r->n_resources; i++) {
        const char *have = r->resources[i];
        if (!strcmp(have, "*"))
            return true;
        (void)snprintf(full, sizeof full, "%s%s%s", resource, *sub ? "/" : "", sub);
        if (!strcmp(have, full))
            return true;
        n = strlen(have);
        if (*sub && n > 2 && have[0] == '*' && have[1] == '/' && !strcmp(have + 2, sub))
            return true;
    }
    return false;
}

static bool has_path(const struct policy_rule *r, const char *path)
{
    for (uint32_t i = 0; i < r->n_nonResourceURLs; i++) {
        const char *have = r->nonResourceURLs[i];
        size_t n = strlen(have);
        if (!strcmp(have, path) || (n && have[n - 1] == '*' && !strncmp(have, path, n - 1)))
            return true;
    }
    return false;
}

static bool rule_grants(const struct policy_rule *r, const struct rbac_ask *q)
{
    if (!HAS(r, verbs, q->verb))
        return false;
    if (q->path)
        return has_path(r, q->path);
    if (!HAS(r, apiGroups, q->group) || !has_resource(r, q->resource, q->sub ? q->sub : ""))
        return false;
    if (!r->n_resourceNames)
        return true;
    for (uint32_t i = 0; q->name && i < r->n_resourceNames; i++)
        if (!strcmp(r->resourceNames[i], q->name))
            return true;
    return false;
}

struct question {
    const struct rbac_ask *ask;
    bool yes;
};

static bool question_rule(const struct policy_rule *r, bool cluster, void *arg)
{
    struct question *q = arg;

    if (q->ask->path && !cluster)
        return true;
    q->yes = rule_grants(r, q->ask);
    return !q->yes;
}

bool rbac_allowed(struct api *a, const struct view *v, const struct api_identity *who,
                  const struct rbac_ask *ask)
{
    struct question q = {.ask = ask};

    if (in_group(who, "system:masters"))
        return true;
    rbac_rules(a, v, who, ask->path ? NULL : ask->ns, question_rule, &q);
    return q.yes;
}

int rbac_check(struct call *c, const struct rbac_ask *q, struct err *err)
{
    if (rbac_allowed(c->api, c->view, &c->who, q))
        return 0;
    if (q->path)
        return err_set(err, E_FORBIDDEN, "user \"%s\" cannot %s path \"%s\"", c->who.user, q->verb,
                       q->path);
    return err_set(err, E_FORBIDDEN,
                   "%s%s%s%s%s%s is forbidden: user \"%s\" cannot %s resource \"%s%s%s\" in API "
                   "group \"%s\"%s%s%s",
                   q->resource, *q->group ? "." : "", q->group, q->name ? " \"" : "",
                   q->name ? q->name : "", q->name ? "\"" : "", c->who.user, q->verb, q->resource,
                   q->sub && *q->sub ? "/" : "", q->sub ? q->sub : "", q->group,
                   q->ns && *q->ns ? " in the namespace \"" : " at the cluster scope",
                   q->ns && *q->ns ? q->ns : "", q->ns && *q->ns ? "\"" : "");
}

/* ---- nobody grants what he lacks ---- */
struct covering {
    const struct policy_rule *want;
    const char *verb, *group, *resource, *name, *path;
    bool yes;
};

/* "*" is covered by "*" only: a wildcard grants what nobody has listed yet. */
static bool covers_rule(const struct policy_rule *r, bool cluster, void *arg)
{
    struct covering *q = arg;

    if (!HAS(r, verbs, q->verb))
        return true;
    if (q->path) {
        q->yes = cluster && has_path(r, q->path);
        return !q->yes;
    }
    const char *slash = strchr(q->resource, '/');
    char base[128];
    (void)snprintf(base, sizeof base, "%.*s", slash ? (int)(slash - q->resource) : 127,
                   q->resource);
    if (!HAS(r, apiGroups, q->group) || !has_resource(r, base, slash ? slash + 1 : ""))
        return true;
    if (!r->n_resourceNames)
        q->yes = true;
    for (uint32_t i = 0; q->name && i < r->n_resourceNames; i++)
        q->yes |= !strcmp(r->resourceNames[i], q->name);
    return !q->yes;
}

static bool covered(struct call *c, const char *ns, struct covering *q)
{
    q->yes = false;
    rbac_rules(c->api, c->view, &c->who, ns, covers_rule, q);
    return q->yes;
}

static int cover_one(struct call *c, const char *ns, struct covering *q, struct err *err)
{
    if (covered(c, ns, q))
        return 0;
    return err_set(err, E_FORBIDDEN, "user \"%s\" may not grant what he lacks: %s %s%s%s",
                   c->who.user, q->verb, q->path ? q->path : q->resource,
                   !q->path && *q->group ? "." : "", q->path ? "" : q->group);
}

static int cover_names(struct call *c, const char *ns, const struct policy_rule *r,
                       struct covering *q, struct err *err)
{
    int code = 0;

    q->name = NULL;
    if (!r->n_resourceNames)
        return cover_one(c, ns, q, err);
    for (uint32_t i = 0; i < r->n_resourceNames && !code; i++) {
        q->name = r->resourceNames[i];
        code = cover_one(c, ns, q, err);
    }
    return code;
}

static int cover_rule(struct call *c, const char *ns, const struct policy_rule *r, struct err *err)
{
    struct covering q = {.want = r};
    int code = 0;

    for (uint32_t v = 0; v < r->n_verbs && !code; v++) {
        q.verb = r->verbs[v];
        for (uint32_t g = 0; g < r->n_apiGroups && !code; g++)
            for (uint32_t s = 0; s < r->n_resources && !code; s++) {
                q.group = r->apiGroups[g];
                q.resource = r->resources[s];
                code = cover_names(c, ns, r, &q, err);
            }
        for (uint32_t p = 0; p < r->n_nonResourceURLs && !code; p++) {
            q.path = r->nonResourceURLs[p];
            code = cover_one(c, ns, &q, err);
        }
        q.path = NULL;
    }
    return code;
}

static int cover_rules(struct call *c, const char *ns, const struct policy_rule *rules, uint32_t n,
                       struct err *err)
{
    int code = 0;

    for (uint32_t i = 0; i < n && !code; i++)
        code = cover_rule(c, ns, &rules[i], err);
    return code;
}

static int cover_ref(struct call *c, const struct object *o, const struct role_ref *ref,
                     struct err *err)
{
    bool cluster = !strcmp(ref->kind, "ClusterRole");
    const char *ns = o->meta->namespace_;
    struct rbac_ask ask = {.verb = "bind",
                           .group = "rbac.authorization.k8s.io",
                           .resource = cluster ? "clusterroles" : "roles",
                           .name = ref->name,
                           .ns = ns};

    if (rbac_allowed(c->api, c->view, &c->who, &ask))
        return 0;
    const struct object *role = call_get(c, kind_by_id(cluster ? KIND_CLUSTER_ROLE : KIND_ROLE),
                                         cluster ? "" : ns, ref->name);
    if (!role)
        return err_field(
            err, E_FORBIDDEN, "roleRef.name",
            "%s \"%s\" is not there yet: only who has the verb \"bind\" may bind it ahead",
            ref->kind, ref->name);
    if (cluster) {
        const struct cluster_role *r = object_as(role, cluster_role);
        return cover_rules(c, ns, r->rules, r->n_rules, err);
    }
    const struct role *r = object_as(role, role);
    return cover_rules(c, ns, r->rules, r->n_rules, err);
}

int rbac_escalation(struct call *c, const struct object *o, struct err *err)
{
    struct rbac_ask ask = {.verb = "escalate",
                           .group = o->kind->group,
                           .resource = o->kind->plural,
                           .ns = o->meta->namespace_,
                           .name = o->meta->name};

    if (in_group(&c->who, "system:masters"))
        return 0;
    switch (o->kind->id) {
    case KIND_ROLE:
        if (rbac_allowed(c->api, c->view, &c->who, &ask))
            return 0;
        return cover_rules(c, o->meta->namespace_, object_as(o, role)->rules,
                           object_as(o, role)->n_rules, err);
    case KIND_CLUSTER_ROLE:
        if (rbac_allowed(c->api, c->view, &c->who, &ask))
            return 0;
        return cover_rules(c, "", object_as(o, cluster_role)->rules,
                           object_as(o, cluster_role)->n_rules, err);
    case KIND_ROLE_BINDING:
        return cover_ref(c, o, object_as(o, role_binding)->roleRef, err);
    case KIND_CLUSTER_ROLE_BINDING:
        return cover_ref(c, o, object_as(o, cluster_role_binding)->roleRef, err);
    default:
        return 0;
    }
}
