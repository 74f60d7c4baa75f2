/* Operations of the backend, and the one that is streamed: a backup as it is made. A client that
 * reads that slowly is waited for; one that goes away ends it. A backup must never end as if it
 * were whole when it is not. */
#include "api/server/server_internal.h"

void call_operate(struct call *c, const char *op, const cJSON *body,
                  void (*cb)(void *arg, const char *json, const struct err *err))
{
    char *text = cJSON_PrintUnformatted(body);
    const char *json = arena_strdup(c->mem, text ? text : "{}");

    cJSON_free(text);
    c->api->ops->operate(c->api->b, &c->who, op, json, cb, c);
}

/* ---- operations ---- */
void call_operated(void *arg, const char *json, const struct err *err)
{
    struct call *c = arg;
    AUTO_BUF b = {0};

    if (err && err->code) {
        call_fail(c, err);
        return;
    }
    buf_init(&b, ANSWER_MAX);
    buf_str(&b, json ? json : "{}");
    buf_char(&b, '\n');
    call_reply_buf(c, 200, &b);
}

/* GET passes its parameters as an object of texts, POST its body. */
static cJSON *operation_body(struct call *c, struct err *err)
{
    if (c->m->method != HTTP_GET_ && c->m->method != HTTP_HEAD_ && c->m->body.n)
        return call_body(c, err);
    cJSON *j = call_own(c, cJSON_CreateObject());
    for (unsigned i = 0; i < c->m->n_params; i++)
        cJSON_AddStringToObject(j, c->m->params[i].name, c->m->params[i].value);
    return j;
}

/* What the leader alone knows or does. */
static bool operation_leads(const char *op)
{
    return !strncmp(op, "orphans.", 8) || !strncmp(op, "recover.", 8) ||
           !strncmp(op, "adopt.", 6) || !strcmp(op, "pods");
}

static bool sent_on(struct call *c);

static void operate_with(struct call *c, const char *op, const cJSON *body)
{
    if (!operation_leads(op) || !sent_on(c))
        call_operate(c, op, body, call_operated);
}

/* Read by GET; all others change something, or tell what is not for every reader, and take POST,
 * which is a right of its own. */
static bool operation_reads(const char *op)
{
    static const char *const reads[] = {"status",  "members.list", "cost",
                                        "history", "orphans.list", "plan", "pods"};

    for (size_t i = 0; i < sizeof reads / sizeof *reads; i++)
        if (!strcmp(reads[i], op))
            return true;
    return false;
}

void operate(struct call *c)
{
    struct err e = {0};
    bool get = c->m->method == HTTP_GET_ || c->m->method == HTTP_HEAD_;

    if (get && !operation_reads(c->op)) {
        call_fail_code(c, E_METHOD, "this operation takes POST");
        return;
    }
    cJSON *body = operation_body(c, &e);

    if (!body)
        call_fail(c, &e);
    else if (!strcmp(c->op, "token.create"))
        token_asked(c, body);
    else
        operate_with(c, c->op, body);
}

/* The same for one namespace: the operation is told which, whatever the caller says. */
void operate_in(struct call *c)
{
    static const char *const known[] = {"cost", "history", "pods"};
    struct err e = {0};

    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(known[i], c->op) != 0)
            continue;
        cJSON *body = operation_body(c, &e);
        if (!body) {
            call_fail(c, &e);
            return;
        }
        while (cJSON_HasObjectItem(body, "namespace")) /* in any case of letters */
            cJSON_DeleteItemFromObject(body, "namespace");
        cJSON_AddStringToObject(body, "namespace", c->ns);
        operate_with(c, c->op, body);
        return;
    }
    call_fail_code(c, E_NOTFOUND,
                   "no operation of a namespace has this name: there are cost, history and pods");
}

/* To the member that leads: others answer 307. True when the request is answered. */
static bool sent_on(struct call *c)
{
    const char *leader = c->api->ops->leader ? c->api->ops->leader(c->api->b) : NULL;
    struct http_request *rq = c->rq;
    AUTO_BUF url = {0};

    if (!leader)
        return false;
    if (!*leader) {
        call_fail_code(c, E_UNAVAIL,
                       "no leader is known at the moment: only it can reach the targets");
        return true;
    }
    buf_init(&url, (size_t)2 * LIMIT_URL_MAX_BYTES);
    buf_printf(&url, "https://%s%s", leader, c->m->path);
    for (unsigned i = 0; i < c->m->n_params; i++) {
        buf_printf(&url, "%c%s=", i ? '&' : '?', c->m->params[i].name);
        for (const char *p = c->m->params[i].value; *p; p++)
            if (strchr("-_.~", *p) || (*p >= '0' && *p <= '9') || (*p >= 'a' && *p <= 'z') ||
                (*p >= 'A' && *p <= 'Z'))
                buf_char(&url, *p);
            else
                buf_printf(&url, "%%%02X", (unsigned char)*p);
    }
    const char *headers[] = {"Location", arena_strdup(c->mem, url.p), NULL};
    const char **copy = arena_memdup(c->mem, headers, sizeof headers);
    call_release(c);
    http_reply(rq, 307, "text/plain", slice_make("", 0), copy);
    return true;
}

/* ---- a backup ---- */
#define PENDING_MAX ((size_t)1 << 20)

struct backup_stream {
    struct api *a;
    struct flow *flow;
    struct http_request *rq;
    struct api_backup *source;
    bool begun;
};

static void more(struct backup_stream *s);

static void closed(void *arg)
{
    struct backup_stream *s = arg;

    s->a->ops->backup_close(s->source);
    fair_lasted(s->a->fair, &s->flow);
    mem_free(s);
}

static void refused(struct backup_stream *s, const struct err *err)
{
    struct http_request *rq = s->rq;
    int http = err_info(err->code)->http;
    AUTO_BUF b = {0};

    buf_init(&b, 1 << 16);
    status_json(&b, err, NULL, NULL, "hanse.dev", "operations", "backup", http, 0);
    closed(s);
    http_reply(rq, http, "application/json", slice_make(b.p, b.n), NULL);
}

static void drained(void *arg)
{
    more(arg);
}

static void piece_came(void *arg, struct slice piece, bool last, const struct err *err)
{
    struct backup_stream *s = arg;
    struct http_request *rq = s->rq;

    if (err && err->code && !s->begun) {
        refused(s, err);
        return;
    }
    if (err && err->code) {
        log_err(LOG_ERROR, "backup.failed", err);
        http_abort(rq); /* it cannot be taken for a whole one */
        return;
    }
    if (!s->begun) {
        s->begun = true;
        http_chunk_begin(rq, 200, "application/octet-stream", NULL, closed, s);
    }
    http_chunk(rq, piece.p, piece.n);
    if (last)
        http_chunk_end(rq);
    else if (http_pending(rq) > PENDING_MAX)
        http_on_drained(rq, drained, s);
    else
        more(s);
}

static void more(struct backup_stream *s)
{
    s->a->ops->backup_next(s->source, piece_came, s);
}

void operate_stream(struct call *c)
{
    struct api_backup *source = NULL;
    struct err e = {0};

    if (strcmp(c->op, "backup") != 0) {
        call_fail_code(c, E_NOTFOUND, "no operation streams under this name: there is backup");
        return;
    }
    if (!c->api->ops->backup_open) {
        call_fail_code(c, E_NOTIMPL, "this server makes no backups");
        return;
    }
    struct flow *flow = call_lasts(c);
    if (!flow)
        return;
    if (c->api->ops->backup_open(c->api->b, &c->who, &source, &e)) {
        fair_lasted(c->api->fair, &flow);
        call_fail(c, &e);
        return;
    }
    struct backup_stream *s = mem_new(struct backup_stream);
    *s = (struct backup_stream){.a = c->api, .flow = flow, .rq = c->rq, .source = source};
    call_release(c);
    more(s);
}
