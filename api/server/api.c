/* The API server's front: a request comes in, its route and its sender are found, he is asked for
 * his rights, and the verb runs. Every request is answered exactly once, through call_reply* or by
 * a stream that its verb opened. Knows no Raft: state comes and goes through `struct backend`. */
#include "api/server/route_internal.h"

struct api *api_create(const struct api_config *cfg)
{
    struct api *a = mem_new(struct api);

    PRE(cfg->loop && cfg->backend && cfg->backend->ops);
    a->cfg = *cfg;
    if (!a->cfg.max_watches)
        a->cfg.max_watches = 10000;
    a->b = cfg->backend;
    a->ops = cfg->backend->ops;
    a->hub = hub_create(a);
    a->fair = fair_create(cfg->loop);
    return a;
}

void api_stop(struct api *a)
{
    fair_stop(a->fair);
}

struct api *api_destroy(struct api *a)
{
    if (!a)
        return NULL;
    api_stop(a);
    INV(a->calls == 0);
    a->fair = fair_destroy(a->fair);
    a->hub = hub_destroy(a->hub);
    views_drop(a);
    mem_free(a);
    return NULL;
}

/* ---- life of a call ---- */
cJSON *call_own(struct call *c, cJSON *j)
{
    if (j) {
        INV(c->n_trees < sizeof c->trees / sizeof *c->trees);
        c->trees[c->n_trees++] = j;
    }
    return j;
}

struct object *call_own_object(struct call *c, struct object *o)
{
    if (o) {
        INV(c->n_objects < sizeof c->objects / sizeof *c->objects);
        c->objects[c->n_objects++] = o;
    }
    return o;
}

void call_release(struct call *c)
{
    if (c->fini)
        c->fini(c);
    while (c->n_trees)
        cJSON_Delete(c->trees[--c->n_trees]);
    while (c->n_objects)
        (void)object_unref(c->objects[--c->n_objects]);
    c->selector = selector_free(c->selector);
    if (c->view)
        c->api->ops->view_release(c->view);
    fair_leave(c->api->fair, &c->item);
    c->api->calls--;
    mem_free(c);
}

static void slice_turn(struct fair_item *it, const struct err *why)
{
    struct call *c = container_of(it, struct call, item);

    (void)why; /* what began is not refused */
    c->slice(c->slice_arg);
}

void call_again(struct call *c, void (*fn)(void *arg), void *arg)
{
    c->slice = fn;
    c->slice_arg = arg;
    c->item.run = slice_turn;
    fair_again(c->api->fair, c->item.flow, &c->item);
}

struct flow *call_lasts(struct call *c)
{
    struct flow *flow = NULL;
    struct err e = {0};

    if (fair_last(c->api->fair, c->asker, &flow, &e))
        call_fail(c, &e);
    return flow;
}

int64_t call_now(const struct call *c)
{
    return c->api->ops->now(c->api->b);
}

void call_view(struct call *c)
{
    if (c->view)
        c->api->ops->view_release(c->view);
    c->view = c->api->ops->view(c->api->b);
}

static void fresh_done(void *arg, const struct err *err)
{
    struct call *c = arg;

    if (err && err->code) {
        struct err e = *err;
        if (e.code == E_UNKNOWN)
            e.code = E_TIMEOUT;
        call_fail(c, &e);
        return;
    }
    call_view(c);
    c->next(c);
}

void call_fresh(struct call *c, uint64_t min_rv, void (*next)(struct call *c))
{
    if (c->fresh && min_rv <= c->api->ops->view_rv(c->view)) {
        c->fresh = false; /* who asks again asks for something newer */
        next(c);
        return;
    }
    c->next = next;
    c->api->ops->fresh(c->api->b, min_rv, FRESH_MS, fresh_done, c);
}

void call_warn_unkept(struct call *c, const struct object *o)
{
    char why[UNKEPT_MAX];

    if (promises_unkept(o, why, sizeof why) &&
        (!c->warning || strlen(c->warning) < WARNING_MAX_BYTES))
        c->warning = arena_printf(c->mem, "%s%s%s %s: %s", c->warning ? c->warning : "",
                                  c->warning ? "; " : "", o->kind->kind, o->meta->name, why);
}

/* ---- answers ---- */
void call_reply(struct call *c, int status, const char *type, const void *p, size_t n)
{
    const char *headers[10];
    unsigned h = 0;

    if (c->warning) {
        headers[h++] = "Warning";
        headers[h++] = arena_printf(c->mem, "299 - \"%s\"", c->warning);
    }
    if (status == 401) {
        headers[h++] = "WWW-Authenticate";
        headers[h++] = "Bearer realm=\"hanse\"";
    }
    if (status == 429 || status == 503) {
        headers[h++] = "Retry-After";
        headers[h++] = arena_printf(c->mem, "%u", c->retry_s ? c->retry_s : 1);
    }
    headers[h++] = "Cache-Control";
    headers[h++] = "no-cache, private";
    headers[h] = NULL;
    struct http_request *rq = c->rq;
    struct api *a = c->api;
    const char **copy = arena_memdup(c->mem, headers, sizeof headers);
    a->counters.by_class[status / 100 < 6 ? status / 100 : 5]++;
    call_release(c);
    http_reply(rq, status, type, slice_make(p, n), copy);
}

void call_reply_buf(struct call *c, int status, struct buf *b)
{
    struct err e = {0};

    if (b->failed) {
        call_fail_code(c, E_TOOLARGE,
                       "the answer is larger than the limit: ask with limit= for pages");
        return;
    }
    if (c->repr.yaml) {
        cJSON *j = NULL;
        AUTO_BUF y = {0};
        buf_init(&y, ANSWER_MAX);
        if (!json_parse(b->p, b->n, &j, &e)) {
            yaml_print(j, &y);
            cJSON_Delete(j);
            call_reply(c, status, "application/yaml", y.p, y.n);
            return;
        }
    }
    call_reply(c, status, "application/json", b->p, b->n);
}

void call_reply_tree(struct call *c, int status, cJSON *j)
{
    char *text = cJSON_PrintUnformatted(j);
    AUTO_BUF b = {0};

    buf_init(&b, ANSWER_MAX);
    buf_str(&b, text ? text : "null");
    buf_char(&b, '\n');
    cJSON_free(text);
    cJSON_Delete(j);
    call_reply_buf(c, status, &b);
}

void call_fail_at(struct call *c, const struct err *e, const struct kind *k, const char *name)
{
    int http = err_info(e->code)->http;
    AUTO_BUF b = {0};

    if (write_refusal(c, e, k, name))
        return;
    buf_init(&b, 1 << 20);
    status_json(&b, e, c->conflicts, k, c->group, c->res, name, http, c->retry_s);
    c->repr.yaml = false;
    call_reply_buf(c, http, &b);
}

void call_fail(struct call *c, const struct err *e)
{
    struct err copy = *e;
    call_fail_at(c, &copy, c->kind, c->name);
}

void call_fail_code(struct call *c, int code, const char *text)
{
    struct err e = {0};

    (void)err_set(&e, code, "%s", text);
    call_fail(c, &e);
}

bool call_upgrades(struct call *c, const char *protocol, const char *what)
{
    const char *upgrade = http_header_get(c->rq, "upgrade");
    struct err e = {0};

    if (upgrade && !strcasecmp(upgrade, protocol))
        return true;
    (void)err_set(&e, E_SYNTAX, "%s needs \"Upgrade: %s\" (hanse %s does that)", what, protocol,
                  what);
    call_fail(c, &e);
    return false;
}

int call_not_found(const struct kind *k, const char *name, struct err *err)
{
    return err_set(err, E_NOTFOUND, "%s%s%s \"%s\" not found", k->plural, *k->group ? "." : "",
                   k->group, name);
}

/* ---- bodies ---- */
static bool type_is(const char *type, const char *want)
{
    size_t n = strlen(want);
    return !strncasecmp(type, want, n) && (!type[n] || type[n] == ';' || type[n] == ' ');
}

static int body_yaml(struct call *c, cJSON **ret, struct err *err)
{
    struct yaml_doc *docs;
    size_t n;
    int r = yaml_parse_all(c->m->body.p, c->m->body.n, "body", &docs, &n, err);

    if (r)
        return r;
    if (n != 1) {
        yaml_docs_free(docs, n);
        return err_set(err, E_SYNTAX, "the body must be one YAML document, not %zu", n);
    }
    *ret = cJSON_Duplicate(docs[0].json, true);
    yaml_docs_free(docs, n);
    return 0;
}

cJSON *call_body(struct call *c, struct err *err)
{
    const char *type = http_header_get(c->rq, "content-type");
    cJSON *j = NULL;
    int r;

    if (!type)
        type = "application/json";
    if (!c->m->body.n) {
        (void)err_set(err, E_SYNTAX, "a body is needed: the object as JSON or YAML");
        return NULL;
    }
    if (type_is(type, "application/json") || strstr(type, "+json") || type_is(type, "text/json"))
        r = json_parse(c->m->body.p, c->m->body.n, &j, err);
    else if (type_is(type, "application/yaml") || strstr(type, "+yaml") ||
             type_is(type, "text/yaml"))
        r = body_yaml(c, &j, err);
    else if (type_is(type, "application/vnd.kubernetes.protobuf"))
        r = proto_body(c->m->body, &j, err);
    else
        r = err_set(err, E_MEDIA,
                    "bodies of type %.100s are not read: send application/json or application/yaml",
                    type);
    if (!r && !cJSON_IsObject(j)) {
        cJSON_Delete(j);
        r = err_set(err, E_SYNTAX, "the body must be a JSON object");
    }
    return r ? NULL : call_own(c, j);
}

int call_u64(const char *text, uint64_t *ret)
{
    uint64_t v = 0;

    if (!*text)
        return E_SYNTAX;
    for (; *text; text++) {
        if (*text < '0' || *text > '9' || v > UINT64_MAX / 10 - 1)
            return E_SYNTAX;
        v = v * 10 + (uint64_t)(*text - '0');
    }
    *ret = v;
    return 0;
}

/* ---- dispatch ---- */
static void index_hint(struct err *e)
{
    char what[200];

    (void)snprintf(what, sizeof what, "%.150s", e->text);
    (void)err_set(e, E_NOTFOUND,
                  "%s; there are /api/v1, /apis (with /apis/hanse.dev/v1alpha1), /openapi/v3, "
                  "/version, /livez, "
                  "/readyz and /metrics",
                  what);
}

static int authorize(struct call *c, struct err *err)
{
    struct rbac_ask ask = {.verb = c->verb};

    if (c->route->access == OPEN)
        return 0;
    if (c->who.anonymous)
        return err_set(err, E_UNAUTH,
                       "no credentials were given: use a client certificate or a bearer token");
    if (c->route->access == SELF)
        return 0;
    if (c->route->access == PATH) {
        ask.path = c->m->path;
    } else {
        ask.group = c->group;
        ask.resource = c->res;
        ask.sub = c->sub;
        ask.ns = c->kind && c->kind->id == KIND_NAMESPACE ? c->name : c->ns;
        ask.name = c->name;
        if (!strcmp(ask.verb, "list") && call_flag(c, "watch"))
            ask.verb = c->verb = "watch";
    }
    return rbac_check(c, &ask, err);
}

/* RO kinds are written by Hanse alone; only those in system:masters may mend them by hand. What
 * gives its holder rights nobody writes, but whoever may can take it away. */
static bool writes_allowed(const struct call *c)
{
    if (!c->kind || !(c->kind->flags & KINDF_RO) || !strcmp(c->route->method, "GET"))
        return true;
    if (c->kind->flags & KINDF_REVOKED)
        return !strcmp(c->route->method, "DELETE");
    for (unsigned i = 0; i < c->who.n_groups; i++)
        if (!strcmp(c->who.groups[i], "system:masters"))
            return true;
    return false;
}

static void options(struct call *c, const char *allow)
{
    struct http_request *rq = c->rq;
    const char *headers[] = {"Allow", arena_strdup(c->mem, *allow ? allow : "GET"), NULL};
    const char **copy = arena_memdup(c->mem, headers, sizeof headers);

    call_release(c);
    http_reply(rq, 204, "text/plain", slice_make("", 0), copy);
}

static void dispatch(struct call *c)
{
    char allow[128] = "";
    struct err e = {0}, found = {0};
    int code = route_find(c, allow, sizeof allow, &found);
    int r = impersonate_read(c, &e);

    if (!r && code && c->who.anonymous)
        r = err_set(&e, E_UNAUTH,
                    "no credentials were given: use a client certificate or a bearer token");
    if (!r && code && c->m->method == HTTP_OPTIONS_) {
        options(c, allow);
        return;
    }
    if (!r && code) {
        if (code == E_NOTFOUND)
            index_hint(&found);
        c->name = NULL;
        call_fail(c, &found);
        return;
    }
    if (!r) {
        write_begin_key(c);
        r = impersonate(c, &e);
    }
    if (!r)
        r = authorize(c, &e);
    if (!r)
        r = write_check_key(c, &e);
    if (!r && !writes_allowed(c))
        r = err_set(&e, E_METHOD, "%s are written by Hanse itself", c->kind->plural);
    if (r) {
        call_fail(c, &e);
        return;
    }
    c->route->run(c);
}

/* ---- its turn ---- */
#define WIDTH_BYTES 65536 /* of a body, for one seat more */
#define WIDTH_OBJECTS 500 /* of a list, likewise */

static unsigned call_width(struct call *c)
{
    size_t width = 1 + c->m->body.n / WIDTH_BYTES;
    uint64_t limit = 0, n;

    if (c->route && c->kind && (!strcmp(c->verb, "list") || !strcmp(c->verb, "deletecollection")) &&
        !call_flag(c, "watch")) {
        n = c->api->ops->count(c->view, c->kind);
        if (!call_u64(call_param(c, "limit"), &limit) && limit && limit < n)
            n = limit;
        width += n / WIDTH_OBJECTS;
    }
    return width > FAIR_WIDTH_MAX ? FAIR_WIDTH_MAX : (unsigned)width;
}

/* Reads of what may be old are decided and answered by one and the same state, however old that
 * is; and how the cluster fares is told without a majority, too. */
static bool may_be_old(struct call *c)
{
    const char *rv = call_param(c, "resourceVersion");
    uint64_t least = 0, has = c->api->ops->view_rv(c->view);
    bool reads = c->m->method == HTTP_GET_ || c->m->method == HTTP_HEAD_;

    if (c->who.anonymous) /* no state changes that */
        return true;
    if (!reads || call_flag(c, "watch"))
        return false;
    if (!c->route || c->route->access != RESOURCE)
        return true;
    if (c->op)
        return !strcmp(c->op, "status") || !strcmp(c->op, "members.list");
    return (!*c->sub || !strcmp(c->sub, "status")) && *rv && !call_u64(rv, &least) && has > 0 &&
           least <= has;
}

/* Who asks, and what he may, is found out by a state that has all that was acknowledged before he
 * asked: a token that was taken back, a right that is gone. */
static void call_entered(struct call *c)
{
    struct err e = {0};

    c->fresh = true;
    if (auth_identify(c, &e)) {
        call_fail(c, &e);
        return;
    }
    c->asker = arena_strdup(c->mem, c->who.user); /* by an older state he was nobody, perhaps */
    dispatch(c);
}

static void call_turn(struct fair_item *it, const struct err *why)
{
    struct call *c = container_of(it, struct call, item);

    struct err e = {0};

    if (why) {
        call_fail(c, why);
        return;
    }
    if (http_gone(c->rq)) {
        call_fail_code(c, E_CANCELLED, "its client has gone");
        return;
    }
    if (loop_now_ms(c->api->cfg.loop) != it->since_ms)
        call_view(c); /* what it waited for may have changed what it asks about */
    if (!may_be_old(c))
        call_fresh(c, 0, call_entered);
    else if (auth_identify(c, &e)) /* by the state that answers */
        call_fail(c, &e);
    else
        dispatch(c);
}

/* Who seems to ask is found out first: each user's requests wait behind his own. Probes wait for
 * nobody, and leader election (Leases, one by one) for few. */
static void handle(struct http_request *rq, void *arg)
{
    struct api *a = arg;
    struct call *c = mem_new(struct call);
    char allow[128] = "";
    struct err e = {0}, found = {0};

    c->api = a;
    c->rq = rq;
    c->m = http_message(rq);
    c->mem = http_arena(rq);
    a->calls++;
    a->counters.requests++;
    int code = route_find(c, allow, sizeof allow, &found);
    call_view(c);
    int r = auth_identify(c, &e);
    c->asker = arena_strdup(c->mem, r ? "system:anonymous" : c->who.user);
    if (r && (code || c->route->access == OPEN || may_be_old(c))) {
        call_fail(c, &e);
    } else if (!code && c->route->access == OPEN) {
        dispatch(c);
    } else {
        bool lease = !code && c->kind && c->kind->id == KIND_LEASE && strcmp(c->verb, "list") &&
                     strcmp(c->verb, "deletecollection");
        c->item.run = call_turn;
        c->item.width = call_width(c);
        c->item.bytes = c->m->body.n;
        fair_enter(a->fair, c->asker, &c->item, lease);
    }
}

http_handler api_handler(struct api *a)
{
    (void)a;
    return handle;
}
