/* Requests to one API server, and what its answers prove. A refusal counts as one only where the
 * server itself says so by a Status, or by a status that nothing behind a gate can have: what a
 * proxy in between makes up, half an answer, 5xx, and an answer to a second attempt leave open
 * whether a write was carried out, and nothing in here may call that a failure. */
#include "connectors/kubernetes/client/client.h"

#include <stdio.h>
#include <string.h>

#define ANSWER_MAX (2u << 20)
#define REFUSAL_MAX (64u << 10) /* of a stream that was refused */
#define BODY_MAX (16u << 20)
#define PATH_BYTES_MAX (32u << 10) /* with the longest token of a next page (watch.c) */
#define READ_ATTEMPT_MS 20000      /* a page may be large */
#define WRITE_ATTEMPT_MS 30000     /* its webhooks may take long */
#define STREAMS_MAX 64             /* watches, and logs that are read, at once */
#define STREAM_MS (30ull * 24 * 3600 * 1000)
#define HEADERS_MAX 8
#define SAID_MAX 300

/* The connections of one login. Watches and logs last; calls must not wait for them. */
struct line {
    struct list link; /* kube_client.lines */
    struct web_client *calls, *streams;
    unsigned users; /* requests under way */
};
struct kube_client {
    struct loop *loop;
    char target[256];
    const struct web_transport_ops *transport;
    unsigned in_flight;
    struct line *now; /* the newest of `lines` */
    struct list lines, requests;
    int64_t date_ms;   /* what the server's clock said; 0: nothing yet */
    uint64_t dated_ms; /* when, by loop_now_ms */
};
struct kube_request {
    struct kube_client *c;
    struct line *line;
    struct list link;
    struct web_request *web; /* NULL: refused before it was asked; `why` says how */
    struct timer refused;
    struct err why;
    bool writes;
    bool (*data)(void *arg, const void *p, size_t n);
    void (*done)(void *arg, const struct kube_answer *a);
    void *arg;
};

/* ---- lines ---- */
static void line_destroy(struct line *n)
{
    n->calls = web_client_destroy(n->calls);
    n->streams = web_client_destroy(n->streams);
    list_remove(&n->link);
    mem_free(n);
}

static int line_create(struct kube_client *c, const struct kube_login *login, struct line **ret,
                       struct err *err)
{
    struct line *n = mem_new(struct line);
    struct web_config g = {.target = c->target,
                           .url = login->server,
                           .ca_pem = login->ca_pem,
                           .cert_pem = login->cert_pem,
                           .key_pem = login->key_pem,
                           .token = login->token,
                           .in_flight = c->in_flight,
                           .transport = c->transport};
    int rc = web_client_create(c->loop, &g, &n->calls, err);

    list_init(&n->link);
    g.in_flight = STREAMS_MAX;
    if (rc == 0)
        rc = web_client_create(c->loop, &g, &n->streams, err);
    if (rc < 0) {
        line_destroy(n);
        return rc;
    }
    list_push(&c->lines, &n->link);
    *ret = n;
    return 0;
}

int kube_client_create(struct loop *l, const char *target, const struct kube_login *login,
                       unsigned in_flight, const struct web_transport_ops *transport,
                       struct kube_client **ret, struct err *err)
{
    struct kube_client *c = mem_new(struct kube_client);

    c->loop = l;
    c->transport = transport;
    c->in_flight = in_flight;
    str_copy(c->target, sizeof c->target, target);
    list_init(&c->lines);
    list_init(&c->requests);
    int rc = line_create(c, login, &c->now, err);
    if (rc < 0) {
        mem_free(c);
        return rc;
    }
    *ret = c;
    return 0;
}

int kube_client_renew(struct kube_client *c, const struct kube_login *login, struct err *err)
{
    struct line *before = c->now;
    int rc = line_create(c, login, &c->now, err);

    if (rc < 0)
        return rc;
    if (!before->users)
        line_destroy(before);
    return 0;
}

static void request_forget(struct kube_request *r)
{
    struct line *n = r->line;

    timer_stop(&r->refused);
    list_remove(&r->link);
    n->users--;
    if (!n->users && n != r->c->now)
        line_destroy(n);
}

struct kube_client *kube_client_destroy(struct kube_client *c)
{
    if (!c)
        return NULL;
    while (!list_empty(&c->requests))
        kube_cancel(container_of(c->requests.next, struct kube_request, link));
    line_destroy(c->now);
    INV(list_empty(&c->lines));
    mem_free(c);
    return NULL;
}

int64_t kube_client_wall_ms(const struct kube_client *c)
{
    return c->date_ms ? c->date_ms + (int64_t)(loop_now_ms(c->loop) - c->dated_ms) : 0;
}

/* Of what the server itself has done: a gate ahead of it has a clock of its own. */
static void clock_read(struct kube_client *c, const struct web_answer *a)
{
    int64_t date = a->status >= 200 && a->status < 300 ? web_answer_date_ms(a) : 0;

    if (!date)
        return;
    c->date_ms = date;
    c->dated_ms = loop_now_ms(c->loop);
}

/* ---- what answers prove ---- */
static bool is_status(const cJSON *o)
{
    return o && strcmp(kube_text(o, "kind"), "Status") == 0 &&
           strcmp(kube_text(o, "status"), "Success") != 0;
}

static int code_of(int status, const char *reason)
{
    switch (status) {
    case 401:
        return E_UNAUTH;
    case 403:
        return E_FORBIDDEN;
    case 404:
        return E_NOTFOUND;
    case 405:
    case 406:
    case 415:
        return E_NOTIMPL;
    case 409:
        return strcmp(reason, "AlreadyExists") == 0 ? E_EXISTS : E_CONFLICT;
    case 410:
        return E_GONE;
    case 429:
        return E_LIMIT;
    default:
        return status >= 400 && status < 500 && status != 408 ? E_INVALID : 0;
    }
}

/* A quota, like a right, is of one namespace: work of others may still be taken. */
static struct refusal blamed(int code, const char *said)
{
    struct refusal f = refusal_of_code(code);

    if (code == E_LIMIT)
        f = (struct refusal){.class_ = REFUSED_THROTTLED, .scope = BLAMES_TARGET};
    else if (code == E_FORBIDDEN && strstr(said, "exceeded quota"))
        f = (struct refusal){.class_ = REFUSED_QUOTA, .scope = BLAMES_WORKLOAD};
    else if (code == E_NOTFOUND)
        f = (struct refusal){.class_ = REFUSED_INVALID, .scope = BLAMES_WORKLOAD};
    else if (code == E_GONE)
        f = (struct refusal){.class_ = REFUSED_CONFLICT, .scope = BLAMES_WORKLOAD};
    return f;
}

static void said_by(const cJSON *status, char ret[SAID_MAX])
{
    const char *said = kube_text(status, "message");

    str_cut(ret, SAID_MAX, *said ? said : "it does not say why");
    for (char *s = ret; *s; s++)
        if (*s < ' ' || *s > '~')
            *s = *s & 0x80 ? '?' : ' ';
}

static uint64_t retry_ms(const struct web_answer *a, const cJSON *status)
{
    const cJSON *s = kube_at(status, "details.retryAfterSeconds");
    double told = cJSON_IsNumber(s) ? s->valuedouble : 0;

    if (a->retry_after_ms)
        return a->retry_after_ms;
    return told > 0 && told < 3600 ? (uint64_t)(told * 1000) : 0;
}

/* 401 and 429 come from gates (of the server, or of a proxy ahead of it), behind which nothing was
 * done; the second is plain text there. */
static void refused_read(const struct kube_request *r, const struct web_answer *a,
                         const cJSON *status, struct kube_answer *ret, struct err *err)
{
    bool gate = a->status == 401 || a->status == 429;
    int code = status || gate ? code_of(a->status, ret->reason) : 0;
    bool again = r->writes && a->doubt;
    char said[SAID_MAX];

    said_by(status, said);
    ret->retry_after_ms = retry_ms(a, status);
    if (code && !again) {
        ret->out = OUT_REJECTED;
        ret->refused = blamed(code, said);
        ret->refused.retry_ms = ret->retry_after_ms;
        (void)err_set(err, code, "target %.100s: %s", r->c->target, said);
    } else {
        ret->out = OUT_UNKNOWN;
        (void)err_set(err, E_UNKNOWN, "target %.100s answered %d%s: %s", r->c->target, a->status,
                      again ? " to a later attempt" : "", said);
    }
}

static void answer_read(const struct kube_request *r, const struct web_answer *a, cJSON *body,
                        struct kube_answer *ret, struct err *err)
{
    bool good = a->status >= 200 && a->status < 300;

    ret->status = a->status;
    ret->doubt = r->writes && a->doubt;
    ret->body = good || is_status(body) ? body : NULL;
    ret->reason = is_status(body) ? kube_text(body, "reason") : "";
    if (!good)
        refused_read(r, a, is_status(body) ? body : NULL, ret, err);
    else if (!cJSON_IsObject(body) && (a->body.n || !r->data)) {
        ret->out = OUT_UNKNOWN;
        ret->body = NULL;
        (void)err_set(err, E_UNKNOWN, "target %.100s answered %d, and what it says is no object",
                      r->c->target, a->status);
    }
}

/* In chunks, too: what stands ahead of an object in braces is passed over. */
void kube_refusal_read(const char *target, int status, struct slice body, struct err *err)
{
    const char *brace = body.n ? memchr(body.p, '{', body.n) : NULL;
    cJSON *o = brace ? cJSON_ParseWithLength(brace, body.n - (size_t)(brace - (const char *)body.p))
                     : NULL;
    const cJSON *told = kube_at(o, "code");
    int of_status = cJSON_IsNumber(told) && told->valuedouble > 0 && told->valuedouble < 1000
                        ? told->valueint
                        : status;
    int code = code_of(of_status, kube_text(o, "reason"));
    char said[SAID_MAX];

    code = code ? code : status ? E_UNAVAIL : E_INVALID;
    said_by(o, said);
    if (strcmp(kube_text(o, "status"), "Failure") == 0) /* some do not say that it is a Status */
        (void)err_set(err, code, "target %.100s: %s", target, said);
    else
        (void)err_set(err, code, "target %.100s answered %d", target, status);
    cJSON_Delete(o);
}

static void answered(void *arg, enum outcome out, const struct web_answer *a, const struct err *why)
{
    struct kube_request *r = arg;
    struct err err = {0};
    struct kube_answer told = {.out = out, .reason = ""};
    cJSON *body = NULL;

    if (why)
        err = *why;
    if (a && a->body.n)
        body = json_parse_bytes(a->body.p, a->body.n);
    if (a) {
        clock_read(r->c, a);
        answer_read(r, a, body, &told, &err);
    }
    told.err = told.out == OUT_DONE ? NULL : &err;
    r->web = NULL; /* it is gone once this returns */
    request_forget(r);
    r->done(r->arg, &told);
    cJSON_Delete(body);
    mem_free(r);
}

static void on_refused(void *arg)
{
    struct kube_request *r = arg;
    struct err err = r->why;
    const struct kube_answer told = {
        .out = OUT_REJECTED, .reason = "", .refused = refusal_of_code(err.code), .err = &err};

    request_forget(r);
    r->done(r->arg, &told);
    mem_free(r);
}

/* ---- asking ---- */
static struct kube_request *request_make(struct kube_client *c)
{
    struct kube_request *r = mem_new(struct kube_request);

    r->c = c;
    r->line = c->now;
    r->line->users++;
    list_push(&c->requests, &r->link);
    timer_init(&r->refused, c->loop, on_refused, r);
    return r;
}

/* A name with a line end in it would be a header of its own. */
static int header_add(struct web_header *v, size_t *n, const char *name, const char *value,
                      struct err *err)
{
    for (const char *s = value; *s; s++)
        if (*s < ' ' || *s > '~')
            return err_set(err, E_INVALID, "%s: the name has letters that no header takes", name);
    INV(*n < HEADERS_MAX);
    v[(*n)++] = (struct web_header){name, value};
    return 0;
}

static int headers_make(const struct kube_ask *ask, struct web_header *v, size_t *n,
                        struct err *err)
{
    int rc = header_add(v, n, "User-Agent", "hanse/" HANSE_VERSION, err);

    if (rc == 0 && ask->body)
        rc = header_add(v, n, "Content-Type", ask->type ? ask->type : KUBE_JSON, err);
    if (rc == 0 && ask->as && *ask->as)
        rc = header_add(v, n, "Impersonate-User", ask->as, err);
    for (unsigned i = 0; rc == 0 && i < sizeof ask->as_group / sizeof *ask->as_group; i++)
        if (ask->as_group[i])
            rc = header_add(v, n, "Impersonate-Group", ask->as_group[i], err);
    return rc;
}

static void path_make(const struct kube_ask *ask, bool manages, struct buf *ret)
{
    buf_str(ret, ask->path);
    if (manages)
        buf_printf(ret, "%cfieldManager=" KUBE_FIELD_MANAGER, strchr(ask->path, '?') ? '&' : '?');
}

struct kube_request *kube_send(struct kube_client *c, const struct kube_ask *ask)
{
    struct kube_request *r = request_make(c);
    struct web_header headers[HEADERS_MAX];
    size_t n = 0;
    AUTO_BUF path, body;

    r->done = ask->done;
    r->arg = ask->arg;
    r->writes = strcmp(ask->method, "GET") != 0;
    buf_init(&path, PATH_BYTES_MAX);
    buf_init(&body, BODY_MAX);
    path_make(ask, r->writes && strcmp(ask->method, "DELETE") != 0, &path);
    if (ask->body)
        json_print_tree(ask->body, &body);
    int rc = headers_make(ask, headers, &n, &r->why);
    if (rc == 0 && (path.failed || body.failed))
        rc = err_set(&r->why, E_TOOLARGE, "target %.100s: the request is larger than %u bytes",
                     c->target, BODY_MAX);
    if (rc < 0) {
        timer_start(&r->refused, 0);
        return r;
    }
    const struct web_ask q = {.method = ask->method,
                              .path = path.p,
                              .headers = headers,
                              .n_headers = n,
                              .body = slice_make(body.n ? body.p : "", body.n),
                              .idempotent = ask->idempotent || !r->writes,
                              .answers_final = r->writes,
                              .ahead = ask->ahead,
                              .answer_max = ask->answer_max ? ask->answer_max : ANSWER_MAX,
                              .attempt_ms = r->writes ? WRITE_ATTEMPT_MS : READ_ATTEMPT_MS,
                              .deadline_ms = ask->deadline_ms,
                              .done = answered,
                              .arg = r};
    r->web = web_ask(r->line->calls, &q);
    return r;
}

static bool on_data(void *arg, const void *p, size_t n)
{
    struct kube_request *r = arg;

    return r->data(r->arg, p, n);
}

struct kube_request *kube_stream(struct kube_client *c, const char *path,
                                 bool (*data)(void *arg, const void *p, size_t n),
                                 void (*done)(void *arg, const struct kube_answer *a), void *arg)
{
    static const struct web_header agent = {"User-Agent", "hanse/" HANSE_VERSION};
    struct kube_request *r = request_make(c);
    const struct web_ask q = {.method = "GET",
                              .path = path,
                              .headers = &agent,
                              .n_headers = 1,
                              .answer_max = REFUSAL_MAX,
                              .deadline_ms = loop_now_ms(c->loop) + STREAM_MS,
                              .data = on_data,
                              .done = answered,
                              .arg = r};

    r->data = data;
    r->done = done;
    r->arg = arg;
    r->web = web_ask(r->line->streams, &q);
    return r;
}

void kube_pause(struct kube_request *r, bool paused)
{
    if (r->web)
        web_pause(r->web, paused);
}

void kube_cancel(struct kube_request *r)
{
    if (r->web)
        web_cancel(r->web);
    r->web = NULL;
    request_forget(r);
    mem_free(r);
}
