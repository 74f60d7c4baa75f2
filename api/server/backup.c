/* GET operations/backup/stream: a backup as it is made. A client that reads slowly is waited for;
 * one that goes away ends it. This file must never end as if it were whole when it is not. */
#include "api/server/server_internal.h"

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
