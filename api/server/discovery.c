/* What is served: /api, /apis and below, in the old form and the aggregated one (one request
 * instead of one a group), and the OpenAPI documents. Made from the kinds' descriptors, so a new
 * kind needs nothing here. */
#include "api/server/server_internal.h"

/* Kinds that are asked, never stored. */
struct virtual_kind {
    const char *group, *version, *kind, *plural, *singular;
};
static const struct virtual_kind virtuals[] = {
    {"authorization.k8s.io", "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews",
     "selfsubjectaccessreview"},
    {"authorization.k8s.io", "v1", "SelfSubjectRulesReview", "selfsubjectrulesreviews",
     "selfsubjectrulesreview"},
    {"authorization.k8s.io", "v1", "SubjectAccessReview", "subjectaccessreviews",
     "subjectaccessreview"},
    {"authentication.k8s.io", "v1", "SelfSubjectReview", "selfsubjectreviews", "selfsubjectreview"},
    {"authentication.k8s.io", "v1", "TokenReview", "tokenreviews", "tokenreview"},
};
#define N_VIRTUAL (sizeof virtuals / sizeof *virtuals)
#define GROUPS_MAX 16

struct groups {
    const char *name[GROUPS_MAX], *version[GROUPS_MAX];
    unsigned n;
};

static void group_add(struct groups *g, const char *name, const char *version)
{
    for (unsigned i = 0; i < g->n; i++)
        if (!strcmp(g->name[i], name))
            return;
    INV(g->n < GROUPS_MAX);
    g->name[g->n] = name;
    g->version[g->n++] = version;
}

static void groups_all(struct groups *g, bool core)
{
    const struct kind *kinds[KIND_LIMIT];
    size_t n = kind_all(kinds, KIND_LIMIT);

    g->n = 0;
    for (size_t i = 0; i < n; i++)
        if (!*kinds[i]->group == core)
            group_add(g, kinds[i]->group, kinds[i]->version);
    for (size_t i = 0; i < N_VIRTUAL && !core; i++)
        group_add(g, virtuals[i].group, virtuals[i].version);
}

static const char *verbs_of(const struct kind *k)
{
    if (k->flags & KINDF_REVOKED)
        return "[\"delete\",\"deletecollection\",\"get\",\"list\",\"watch\"]";
    return k->flags & KINDF_RO ? "[\"get\",\"list\",\"watch\"]"
                               : "[\"create\",\"delete\",\"deletecollection\",\"get\",\"list\","
                                 "\"patch\",\"update\",\"watch\"]";
}

struct sub {
    const char *name, *kind, *verbs;
};

static unsigned subs_of(const struct kind *k, struct sub out[4])
{
    unsigned n = 0;

    if (k->flags & KINDF_STATUSSUB)
        out[n++] = (struct sub){"status", k->kind, "[\"get\",\"patch\",\"update\"]"};
    if (k->id == KIND_WORKLOAD) {
        out[n++] = (struct sub){"log", k->kind, "[\"get\"]"};
        out[n++] = (struct sub){"exec", k->kind, "[\"create\"]"};
        out[n++] = (struct sub){"portforward", k->kind, "[\"create\"]"};
    }
    if (k->id == KIND_SERVICE_ACCOUNT)
        out[n++] = (struct sub){"token", "TokenRequest", "[\"create\"]"};
    return n;
}

/* "all" is what `kubectl get all` shows: what runs, not what it runs on. */
static const char *categories_of(const struct kind *k)
{
    return k->id == KIND_WORKLOAD || k->id == KIND_MIGRATION || k->id == KIND_RESERVATION
               ? "[\"all\",\"hanse\"]"
           : !strcmp(k->group, "hanse.dev") ? "[\"hanse\"]"
                                            : "[]";
}

/* ---- the old form ---- */
static void resource_old(struct buf *b, const struct kind *k, bool *first)
{
    struct sub subs[4];
    unsigned n = subs_of(k, subs);

    buf_str(b, *first ? "{" : ",{");
    *first = false;
    json_pair(b, "name", k->plural, true);
    json_pair(b, "singularName", k->singular, true);
    buf_printf(b, "\"namespaced\":%s,\"kind\":\"%s\",\"verbs\":%s",
               k->namespaced ? "true" : "false", k->kind, verbs_of(k));
    if (*k->shorts)
        buf_printf(b, ",\"shortNames\":[\"%s\"]", k->shorts);
    buf_printf(b, ",\"categories\":%s}", categories_of(k));
    for (unsigned i = 0; i < n; i++)
        buf_printf(b,
                   ",{\"name\":\"%s/"
                   "%s\",\"singularName\":\"\",\"namespaced\":%s,\"kind\":\"%s\",\"verbs\":%s}",
                   k->plural, subs[i].name, k->namespaced ? "true" : "false", subs[i].kind,
                   subs[i].verbs);
}

static void resources_old(struct call *c, const char *group, const char *version)
{
    const struct kind *kinds[KIND_LIMIT];
    size_t n = kind_all(kinds, KIND_LIMIT);
    bool first = true;
    AUTO_BUF b = {0};

    buf_init(&b, 4 << 20);
    buf_printf(&b,
               "{\"kind\":\"APIResourceList\",\"apiVersion\":\"v1\",\"groupVersion\":\"%s%s%s\","
               "\"resources\":[",
               group, *group ? "/" : "", version);
    for (size_t i = 0; i < n; i++)
        if (!strcmp(kinds[i]->group, group) && !strcmp(kinds[i]->version, version))
            resource_old(&b, kinds[i], &first);
    for (size_t i = 0; i < N_VIRTUAL; i++)
        if (!strcmp(virtuals[i].group, group) && !strcmp(virtuals[i].version, version)) {
            buf_printf(&b,
                       "%s{\"name\":\"%s\",\"singularName\":\"%s\",\"namespaced\":false,\"kind\":"
                       "\"%s\",\"verbs\":[\"create\"]}",
                       first ? "" : ",", virtuals[i].plural, virtuals[i].singular,
                       virtuals[i].kind);
            first = false;
        }
    if (first) {
        struct err e = {0};
        (void)err_set(&e, E_NOTFOUND, "no such group and version: %s/%s", group, version);
        call_fail(c, &e);
        return;
    }
    buf_str(&b, "]}\n");
    call_reply_buf(c, 200, &b);
}

static void group_old(struct buf *b, const char *name, const char *version, const char *head)
{
    buf_printf(b,
               "{%s\"name\":\"%s\",\"versions\":[{\"groupVersion\":\"%s/%s\",\"version\":\"%s\"}],"
               "\"preferredVersion\":{\"groupVersion\":\"%s/%s\",\"version\":\"%s\"}}",
               head, name, name, version, version, name, version, version);
}

/* ---- the aggregated form ---- */
static void response_kind(struct buf *b, const char *group, const char *version, const char *kind)
{
    buf_printf(b, "\"responseKind\":{\"group\":\"%s\",\"version\":\"%s\",\"kind\":\"%s\"}", group,
               version, kind);
}

static void resource_new(struct buf *b, const struct kind *k, bool *first)
{
    struct sub subs[4];
    unsigned n = subs_of(k, subs);

    buf_printf(b, "%s{\"resource\":\"%s\",", *first ? "" : ",", k->plural);
    *first = false;
    response_kind(b, k->group, k->version, k->kind);
    buf_printf(b, ",\"scope\":\"%s\",\"singularResource\":\"%s\",\"verbs\":%s,\"categories\":%s",
               k->namespaced ? "Namespaced" : "Cluster", k->singular, verbs_of(k),
               categories_of(k));
    if (*k->shorts)
        buf_printf(b, ",\"shortNames\":[\"%s\"]", k->shorts);
    for (unsigned i = 0; i < n; i++) {
        buf_printf(b, "%s{\"subresource\":\"%s\",", i ? "," : ",\"subresources\":[", subs[i].name);
        response_kind(b, strcmp(subs[i].name, "token") ? k->group : "authentication.k8s.io",
                      k->version, subs[i].kind);
        buf_printf(b, ",\"verbs\":%s}", subs[i].verbs);
    }
    buf_str(b, n ? "]}" : "}");
}

static void group_new(struct buf *b, const char *group, const char *version)
{
    const struct kind *kinds[KIND_LIMIT];
    size_t n = kind_all(kinds, KIND_LIMIT);
    bool first = true;

    buf_str(b, "{\"metadata\":{");
    if (*group)
        json_pair(b, "name", group, true);
    buf_printf(b, "\"creationTimestamp\":null},\"versions\":[{\"version\":\"%s\",\"resources\":[",
               version);
    for (size_t i = 0; i < n; i++)
        if (!strcmp(kinds[i]->group, group))
            resource_new(b, kinds[i], &first);
    for (size_t i = 0; i < N_VIRTUAL; i++) {
        const struct virtual_kind *v = &virtuals[i];
        if (strcmp(v->group, group) != 0)
            continue;
        buf_printf(b, "%s{\"resource\":\"%s\",", first ? "" : ",", v->plural);
        response_kind(b, v->group, v->version, v->kind);
        buf_printf(b, ",\"scope\":\"Cluster\",\"singularResource\":\"%s\",\"verbs\":[\"create\"]}",
                   v->singular);
        first = false;
    }
    buf_str(b, "],\"freshness\":\"Current\"}]}");
}

/* Answers in the aggregated form when Accept asks for it; the version that it asked for, or
 * NULL. */
static const char *aggregated(struct call *c)
{
    const char *accept = http_header_get(c->rq, "accept");
    const char *v2 = accept ? strstr(accept, "as=APIGroupDiscoveryList") : NULL;

    if (!v2)
        return NULL;
    const char *beta = strstr(accept, "v=v2beta1");
    for (const char *p = strstr(accept, "v=v2"); p; p = strstr(p + 1, "v=v2"))
        if (p[4] == ';' || p[4] == ',' || !p[4])
            return "v2";
    return beta ? "v2beta1" : NULL;
}

static void reply_aggregated(struct call *c, const char *version, const struct groups *g)
{
    AUTO_BUF b = {0};

    buf_init(&b, 4 << 20);
    buf_printf(&b,
               "{\"kind\":\"APIGroupDiscoveryList\",\"apiVersion\":\"apidiscovery.k8s.io/"
               "%s\",\"metadata\":{},\"items\":[",
               version);
    for (unsigned i = 0; i < g->n; i++) {
        if (i)
            buf_char(&b, ',');
        group_new(&b, g->name[i], g->version[i]);
    }
    buf_str(&b, "]}\n");
    call_reply(c, 200,
               !strcmp(version, "v2")
                   ? "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
                   : "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
               b.p, b.n);
}

void discover_api(struct call *c)
{
    const char *version = aggregated(c);
    struct groups g;
    AUTO_BUF b = {0};

    groups_all(&g, true);
    if (version) {
        reply_aggregated(c, version, &g);
        return;
    }
    buf_init(&b, 1 << 16);
    buf_str(&b,
            "{\"kind\":\"APIVersions\",\"versions\":[\"v1\"],\"serverAddressByClientCIDRs\":[]}\n");
    call_reply_buf(c, 200, &b);
}

void discover_apis(struct call *c)
{
    const char *version = aggregated(c);
    struct groups g;
    AUTO_BUF b = {0};

    groups_all(&g, false);
    if (version) {
        reply_aggregated(c, version, &g);
        return;
    }
    buf_init(&b, 1 << 20);
    buf_str(&b, "{\"kind\":\"APIGroupList\",\"apiVersion\":\"v1\",\"groups\":[");
    for (unsigned i = 0; i < g.n; i++) {
        if (i)
            buf_char(&b, ',');
        group_old(&b, g.name[i], g.version[i], "");
    }
    buf_str(&b, "]}\n");
    call_reply_buf(c, 200, &b);
}

void discover_core(struct call *c)
{
    resources_old(c, "", "v1");
}

void discover_version(struct call *c)
{
    resources_old(c, c->group, c->version);
}

void discover_group(struct call *c)
{
    struct groups g;
    struct err e = {0};
    AUTO_BUF b = {0};

    groups_all(&g, false);
    buf_init(&b, 1 << 16);
    for (unsigned i = 0; i < g.n; i++)
        if (!strcmp(g.name[i], c->group)) {
            group_old(&b, g.name[i], g.version[i], "\"kind\":\"APIGroup\",\"apiVersion\":\"v1\",");
            buf_char(&b, '\n');
            call_reply_buf(c, 200, &b);
            return;
        }
    (void)err_set(&e, E_NOTFOUND, "no such group: %s", c->group);
    call_fail(c, &e);
}

/* ---- OpenAPI ---- */
/* Clients ask with "@v1.0", which is no media type by RFC 6838: Go's mime package refuses it in an
 * answer. So the answer says ".v1.0", as Kubernetes' does. */
void openapi_two(struct call *c)
{
    const char *accept = http_header_get(c->rq, "accept");
    bool proto = accept &&
                 (strstr(accept, "proto-openapi.spec.v2@v1.0+protobuf") ||
                  strstr(accept, "proto-openapi.spec.v2.v1.0+protobuf")) &&
                 !strstr(accept, "application/json");
    AUTO_BUF b = {0};

    buf_init(&b, ANSWER_MAX);
    if (proto)
        openapi_v2_proto(&b);
    else
        openapi_v2_json(&b);
    call_reply(c, 200,
               proto ? "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
                     : "application/json",
               b.p, b.n);
}

void openapi_three(struct call *c)
{
    AUTO_BUF b = {0};

    buf_init(&b, 1 << 20);
    openapi_v3_index(&b);
    call_reply_buf(c, 200, &b);
}

/* With ?hash=… the answer never changes: clients keep it. */
void openapi_three_group(struct call *c)
{
    struct err e = {0};
    struct http_request *rq = c->rq;
    bool hashed = *call_param(c, "hash") != 0;
    AUTO_BUF b = {0};

    buf_init(&b, ANSWER_MAX);
    if (openapi_v3_group(c->group ? c->group : "", c->version, &b, &e)) {
        e.code = E_NOTFOUND;
        call_fail(c, &e);
        return;
    }
    if (!hashed) {
        call_reply_buf(c, 200, &b);
        return;
    }
    static const char *const keep[] = {"Cache-Control", "public, immutable, max-age=31536000",
                                       NULL};
    c->api->counters.by_class[2]++;
    call_release(c);
    http_reply(rq, 200, "application/json", slice_make(b.p, b.n), keep);
}
