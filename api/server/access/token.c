/* Bearer tokens as Kubernetes has them: TokenRequest makes one for a ServiceAccount, TokenReview
 * says whose one is. Operation token.create makes them for users, too: only for whom the caller
 * could impersonate anyway, so that nobody becomes more than he may be. */
#include "api/server/server_internal.h"

#define REQUEST_SECONDS 3600
#define REQUEST_SECONDS_MIN 600
#define ACCOUNT_PREFIX "system:serviceaccount:"

static const char *text(const cJSON *o, const char *key)
{
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(o, key);
    return cJSON_IsString(v) ? v->valuestring : "";
}

/* ---- TokenRequest ---- */
struct asking {
    cJSON *body;
    double seconds;
    cJSON *spec; /* of the request */
};

static void token_made(void *arg, const char *json, const struct err *err)
{
    struct call *c = arg;
    const struct asking *a = c->state;
    cJSON *made = json ? cJSON_Parse(json) : NULL, *j, *meta, *spec, *status;
    static const char *const echoed[] = {"audiences", "boundObjectRef"};

    if ((err && err->code) || !*text(made, "token")) {
        struct err e = {0};
        if (!err || !err->code)
            (void)err_set(&e, E_INTERNAL, "no token was made");
        cJSON_Delete(made);
        call_fail(c, err && err->code ? err : &e);
        return;
    }
    j = cJSON_CreateObject();
    cJSON_AddStringToObject(j, "kind", "TokenRequest");
    cJSON_AddStringToObject(j, "apiVersion", "authentication.k8s.io/v1");
    meta = cJSON_AddObjectToObject(j, "metadata");
    cJSON_AddStringToObject(meta, "name", c->name);
    cJSON_AddStringToObject(meta, "namespace", c->ns);
    spec = cJSON_AddObjectToObject(j, "spec");
    for (size_t i = 0; i < sizeof echoed / sizeof *echoed; i++) {
        cJSON *v = cJSON_DetachItemFromObjectCaseSensitive(made, echoed[i]);
        if (v)
            cJSON_AddItemToObject(spec, echoed[i], v);
    }
    cJSON_AddNumberToObject(spec, "expirationSeconds", a->seconds);
    status = cJSON_AddObjectToObject(j, "status");
    cJSON_AddStringToObject(status, "token", text(made, "token"));
    cJSON_AddStringToObject(status, "expirationTimestamp", text(made, "expirationTimestamp"));
    cJSON_Delete(made);
    call_reply_tree(c, 201, j);
}

/* On a state that has all that was acknowledged: the account's uid is read from it. */
static void account_fresh(struct call *c)
{
    const struct kind *k = kind_by_id(KIND_SERVICE_ACCOUNT);
    const struct asking *a = c->state;
    struct err e = {0};

    if (call_get(c, k, c->ns, c->name)) {
        call_operate(c, "token.create", a->body, token_made);
        return;
    }
    (void)call_not_found(k, c->name, &e);
    call_fail_at(c, &e, k, c->name);
}

static int request_read(struct call *c, const cJSON *body, struct asking *a, struct err *err)
{
    const cJSON *meta = cJSON_GetObjectItemCaseSensitive(body, "metadata");
    const cJSON *spec = cJSON_GetObjectItemCaseSensitive(body, "spec"), *v;

    if (*text(meta, "name") && strcmp(text(meta, "name"), c->name) != 0)
        return err_field(err, E_SYNTAX, "metadata.name",
                         "must match the service account name \"%s\", or be left out", c->name);
    if (*text(meta, "namespace") && strcmp(text(meta, "namespace"), c->ns) != 0)
        return err_field(err, E_SYNTAX, "metadata.namespace",
                         "must match the namespace of the request, or be left out");
    a->seconds = REQUEST_SECONDS;
    v = cJSON_GetObjectItemCaseSensitive(spec, "expirationSeconds");
    if (v && !cJSON_IsNull(v)) {
        if (!cJSON_IsNumber(v) || !(v->valuedouble >= REQUEST_SECONDS_MIN) ||
            v->valuedouble > (double)UINT32_MAX)
            return err_field(err, E_INVALID, "spec.expirationSeconds",
                             "may not specify a duration less than 10 minutes, nor more than 2^32 "
                             "seconds");
        a->seconds = v->valuedouble;
    }
    a->body = call_own(c, cJSON_CreateObject());
    cJSON_AddStringToObject(a->body, "namespace", c->ns);
    cJSON_AddStringToObject(a->body, "serviceAccount", c->name);
    cJSON_AddNumberToObject(a->body, "expirationSeconds", a->seconds);
    if ((v = cJSON_GetObjectItemCaseSensitive(spec, "audiences")))
        cJSON_AddItemToObject(a->body, "audiences", cJSON_Duplicate(v, true));
    if ((v = cJSON_GetObjectItemCaseSensitive(spec, "boundObjectRef")))
        cJSON_AddItemToObject(a->body, "boundObjectRef", cJSON_Duplicate(v, true));
    return 0;
}

void account_token(struct call *c)
{
    struct err e = {0};
    cJSON *body = c->m->body.n ? call_body(c, &e) : call_own(c, cJSON_CreateObject());
    struct asking *a = arena_new(c->mem, struct asking);

    if (!body || request_read(c, body, a, &e)) {
        call_fail(c, &e);
        return;
    }
    c->state = a;
    call_fresh(c, 0, account_fresh);
}

/* ---- operation token.create ---- */
static int may(struct call *c, const char *verb, const char *resource, const char *sub,
               const char *ns, const char *name, struct err *err)
{
    struct rbac_ask ask = {
        .verb = verb, .group = "", .resource = resource, .sub = sub, .ns = ns, .name = name};

    return rbac_check(c, &ask, err);
}

static int may_ask(struct call *c, const cJSON *body, struct err *err)
{
    const char *user = text(body, "user"), *account = text(body, "serviceAccount");

    if (*account)
        return may(c, "create", "serviceaccounts", "token", text(body, "namespace"), account, err);
    if (!strncmp(user, ACCOUNT_PREFIX, strlen(ACCOUNT_PREFIX)))
        return err_field(err, E_INVALID, "user",
                         "for a service account give namespace and serviceAccount instead");
    int r = may(c, "impersonate", "users", "", "", user, err);
    for (const char *p = text(body, "groups"); !r && *p;) {
        size_t n = strcspn(p, ",");
        r = may(c, "impersonate", "groups", "", "", arena_strndup(c->mem, p, n), err);
        p += n + (p[n] == ',');
    }
    return r;
}

static void asked_fresh(struct call *c)
{
    const struct asking *a = c->state;
    struct err e = {0};

    if (may_ask(c, a->body, &e))
        call_fail(c, &e);
    else
        call_operate(c, "token.create", a->body, call_operated);
}

void token_asked(struct call *c, cJSON *body)
{
    struct asking *a = arena_new(c->mem, struct asking);

    a->body = body;
    c->state = a;
    call_fresh(c, 0, asked_fresh);
}

/* ---- TokenReview ---- */
static int audiences_read(struct call *c, const cJSON *list, const char ***ret, size_t *ret_n,
                          struct err *err)
{
    const cJSON *v;
    int n = cJSON_GetArraySize(list);

    *ret = arena_array(c->mem, const char *, (size_t)n + 1);
    *ret_n = 0;
    if (list && !cJSON_IsNull(list) && !cJSON_IsArray(list))
        return err_field(err, E_INVALID, "spec.audiences", "expected a list of texts");
    cJSON_ArrayForEach(v, list)
    {
        if (!cJSON_IsString(v) || !*v->valuestring)
            return err_field(err, E_INVALID, "spec.audiences", "expected a list of texts");
        (*ret)[(*ret_n)++] = v->valuestring;
    }
    return 0;
}

/* On a state that has all that was acknowledged: what was revoked a moment ago is not taken. */
static void review_fresh(struct call *c)
{
    const struct asking *a = c->state;
    struct api_identity *who = arena_new(c->mem, struct api_identity);
    const char **audiences;
    struct err e = {0};
    size_t n;

    if (audiences_read(c, cJSON_GetObjectItemCaseSensitive(a->spec, "audiences"), &audiences, &n,
                       &e)) {
        call_fail(c, &e);
        return;
    }
    int r = auth_token(c, text(a->spec, "token"), audiences, n, who, &e);
    if (r && e.code != E_UNAUTH) {
        call_fail(c, &e);
        return;
    }
    cJSON *j = cJSON_CreateObject(), *spec, *status;
    cJSON_AddStringToObject(j, "kind", "TokenReview");
    cJSON_AddStringToObject(j, "apiVersion", "authentication.k8s.io/v1");
    cJSON_AddObjectToObject(j, "metadata");
    spec = cJSON_AddObjectToObject(j, "spec"); /* without the token: answers are logged */
    if (n)
        cJSON_AddItemToObject(spec, "audiences", cJSON_CreateStringArray(audiences, (int)n));
    status = cJSON_AddObjectToObject(j, "status");
    cJSON_AddBoolToObject(status, "authenticated", !r);
    if (r) {
        cJSON_AddStringToObject(status, "error", e.text);
    } else {
        cJSON_AddItemToObject(status, "user", identity_json(who));
        cJSON *list = cJSON_AddArrayToObject(status, "audiences");
        for (unsigned i = 0; i < who->n_audiences; i++)
            cJSON_AddItemToArray(list, cJSON_CreateString(who->audiences[i]));
    }
    call_reply_tree(c, 201, j);
}

void review_token(struct call *c)
{
    struct asking *a = arena_new(c->mem, struct asking);
    struct err e = {0};
    cJSON *body = call_body(c, &e);

    if (!body) {
        call_fail(c, &e);
        return;
    }
    a->spec = cJSON_GetObjectItemCaseSensitive(body, "spec");
    if (!*text(a->spec, "token")) {
        (void)err_field(&e, E_SYNTAX, "spec.token", "is required");
        call_fail(c, &e);
        return;
    }
    c->state = a;
    call_fresh(c, 0, review_fresh);
}
