/* "May I?": the create-only reviews of authorization.k8s.io and authentication.k8s.io. They answer
 * from the same code that decides requests, and store nothing. */
#include "api/server/server_internal.h"

static const char *text(const cJSON *o, const char *key)
{
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(o, key);
    return cJSON_IsString(v) ? v->valuestring : "";
}

static void answer(struct call *c, const cJSON *body, const char *kind, bool allowed,
                   const char *reason)
{
    cJSON *j = cJSON_CreateObject(), *status = cJSON_CreateObject();
    const cJSON *spec = cJSON_GetObjectItemCaseSensitive(body, "spec");

    cJSON_AddStringToObject(j, "kind", kind);
    cJSON_AddStringToObject(j, "apiVersion", "authorization.k8s.io/v1");
    cJSON_AddObjectToObject(j, "metadata");
    cJSON_AddItemToObject(j, "spec", spec ? cJSON_Duplicate(spec, true) : cJSON_CreateObject());
    cJSON_AddBoolToObject(status, "allowed", allowed);
    if (*reason)
        cJSON_AddStringToObject(status, "reason", reason);
    cJSON_AddItemToObject(j, "status", status);
    call_reply_tree(c, 201, j);
}

static void review(struct call *c, const cJSON *body, const struct api_identity *who,
                   const char *kind)
{
    const cJSON *spec = cJSON_GetObjectItemCaseSensitive(body, "spec");
    const cJSON *res = cJSON_GetObjectItemCaseSensitive(spec, "resourceAttributes");
    const cJSON *url = cJSON_GetObjectItemCaseSensitive(spec, "nonResourceAttributes");
    struct rbac_ask ask = {0};

    if (cJSON_IsObject(res)) {
        ask.verb = text(res, "verb");
        ask.group = text(res, "group");
        ask.resource = text(res, "resource");
        ask.sub = text(res, "subresource");
        ask.ns = text(res, "namespace");
        ask.name = *text(res, "name") ? text(res, "name") : NULL;
    } else if (cJSON_IsObject(url)) {
        ask.verb = text(url, "verb");
        ask.path = text(url, "path");
    } else {
        call_fail_code(c, E_INVALID, "spec must have resourceAttributes or nonResourceAttributes");
        return;
    }
    bool yes = rbac_allowed(c->api, c->view, who, &ask);
    answer(c, body, kind, yes, yes ? "" : "no role grants it");
}

void review_access(struct call *c)
{
    struct err e = {0};
    const cJSON *body = call_body(c, &e);

    if (!body)
        call_fail(c, &e);
    else
        review(c, body, &c->who, "SelfSubjectAccessReview");
}

void review_subject(struct call *c)
{
    struct err e = {0};
    const cJSON *body = call_body(c, &e);
    const cJSON *spec = cJSON_GetObjectItemCaseSensitive(body, "spec"), *g;
    struct api_identity *who = arena_new(c->mem, struct api_identity);

    if (!body) {
        call_fail(c, &e);
        return;
    }
    str_copy(who->user, sizeof who->user, text(spec, "user"));
    cJSON_ArrayForEach(g, cJSON_GetObjectItemCaseSensitive(
                              spec, "groups")) if (cJSON_IsString(g) && who->n_groups < 16)(void)
        snprintf(who->groups[who->n_groups++], sizeof *who->groups, "%s", g->valuestring);
    review(c, body, who, "SubjectAccessReview");
}

cJSON *identity_json(const struct api_identity *who)
{
    cJSON *user = cJSON_CreateObject(), *groups, *extra = NULL;

    cJSON_AddStringToObject(user, "username", who->user);
    if (*who->uid)
        cJSON_AddStringToObject(user, "uid", who->uid);
    groups = cJSON_AddArrayToObject(user, "groups");
    for (unsigned i = 0; i < who->n_groups; i++)
        cJSON_AddItemToArray(groups, cJSON_CreateString(who->groups[i]));
    for (unsigned i = 0; i < who->n_extra; i++) {
        extra = extra ? extra : cJSON_AddObjectToObject(user, "extra");
        cJSON *list = cJSON_GetObjectItemCaseSensitive(extra, who->extra[i].key);
        list = list ? list : cJSON_AddArrayToObject(extra, who->extra[i].key);
        cJSON_AddItemToArray(list, cJSON_CreateString(who->extra[i].value));
    }
    return user;
}

void review_self(struct call *c)
{
    cJSON *j = cJSON_CreateObject(), *status;

    cJSON_AddStringToObject(j, "kind", "SelfSubjectReview");
    cJSON_AddStringToObject(j, "apiVersion", "authentication.k8s.io/v1");
    cJSON_AddObjectToObject(j, "metadata");
    status = cJSON_AddObjectToObject(j, "status");
    cJSON_AddItemToObject(status, "userInfo", identity_json(&c->who));
    call_reply_tree(c, 201, j);
}

struct rules {
    cJSON *resources, *urls;
};

static void strings(cJSON *to, const char *key, const char *const *v, uint32_t n)
{
    if (n)
        cJSON_AddItemToObject(to, key, cJSON_CreateStringArray(v, (int)n));
}

static bool add_rule(const struct policy_rule *r, bool cluster, void *arg)
{
    struct rules *out = arg;
    cJSON *j = cJSON_CreateObject();

    strings(j, "verbs", (const char *const *)r->verbs, r->n_verbs);
    if (r->n_nonResourceURLs) {
        strings(j, "nonResourceURLs", (const char *const *)r->nonResourceURLs,
                r->n_nonResourceURLs);
        if (cluster)
            cJSON_AddItemToArray(out->urls, j);
        else
            cJSON_Delete(j);
        return true;
    }
    strings(j, "apiGroups", (const char *const *)r->apiGroups, r->n_apiGroups);
    strings(j, "resources", (const char *const *)r->resources, r->n_resources);
    strings(j, "resourceNames", (const char *const *)r->resourceNames, r->n_resourceNames);
    cJSON_AddItemToArray(out->resources, j);
    return true;
}

static void add_all(struct rules *out)
{
    static const char *const star[] = {"*"};
    const char *s = star[0];
    struct policy_rule all = {.verbs = &s,
                              .n_verbs = 1,
                              .apiGroups = &s,
                              .n_apiGroups = 1,
                              .resources = &s,
                              .n_resources = 1};
    struct policy_rule urls = {
        .verbs = &s, .n_verbs = 1, .nonResourceURLs = &s, .n_nonResourceURLs = 1};

    (void)add_rule(&all, true, out);
    (void)add_rule(&urls, true, out);
}

void review_rules(struct call *c)
{
    struct err e = {0};
    const cJSON *body = call_body(c, &e);

    if (!body) {
        call_fail(c, &e);
        return;
    }
    const cJSON *spec = cJSON_GetObjectItemCaseSensitive(body, "spec");
    cJSON *j = cJSON_CreateObject(), *status;
    struct rules out;
    bool master = false;

    for (unsigned i = 0; i < c->who.n_groups; i++)
        master |= !strcmp(c->who.groups[i], "system:masters");
    cJSON_AddStringToObject(j, "kind", "SelfSubjectRulesReview");
    cJSON_AddStringToObject(j, "apiVersion", "authorization.k8s.io/v1");
    cJSON_AddObjectToObject(j, "metadata");
    cJSON_AddItemToObject(j, "spec", spec ? cJSON_Duplicate(spec, true) : cJSON_CreateObject());
    status = cJSON_AddObjectToObject(j, "status");
    out.resources = cJSON_AddArrayToObject(status, "resourceRules");
    out.urls = cJSON_AddArrayToObject(status, "nonResourceRules");
    cJSON_AddBoolToObject(status, "incomplete", false);
    if (master)
        add_all(&out);
    else
        rbac_rules(c->api, c->view, &c->who, text(spec, "namespace"), add_rule, &out);
    call_reply_tree(c, 201, j);
}
