/* See api_world.h. */
#include "tests/support/api_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void accepted(struct listener *li, struct stream *st, void *arg)
{
    (void)li;
    http_server_accept(((struct api_world *)arg)->http, st);
}
static void over(void *arg)
{
    struct api_world *w = arg;

    w->timed_out = true;
    loop_stop(w->loop);
}
static void put(struct object *o, void *arg)
{
    memory_backend_put(arg, o);
}

static bool zone_known(struct backend *b, const char *zone)
{
    (void)b;
    return !strcmp(zone, "UTC") || !strcmp(zone, "Europe/Berlin");
}

struct api_world *api_world_create(void)
{
    struct api_world *w = calloc(1, sizeof *w);
    struct err e = {0};
    int port;

    w->loop = loop_uv_create(&e);
    w->mem = memory_backend_create(w->loop);
    w->ops = *memory_backend_table(w->mem)->ops;
    w->ops.zone_known = zone_known;
    memory_backend_table(w->mem)->ops = &w->ops;
    api_bootstrap_objects(put, w->mem);
    struct api_config cfg = {.loop = w->loop,
                             .backend = memory_backend_table(w->mem),
                             .version = "0.1.0",
                             .git_commit = "",
                             .member_name = "m1"};
    w->api = api_create(&cfg);
    struct http_config hc = {0};
    w->http = http_server_create(w->loop, &hc, api_handler(w->api), w->api);
    (void)snprintf(w->path, sizeof w->path, "/tmp/hanse-api-%d.sock", (int)getpid());
    (void)snprintf(w->address, sizeof w->address, "unix:%s", w->path);
    INV(!listener_create(w->loop, w->address, NULL, accepted, w, &w->listener, &port, &e));
    buf_init(&w->got, 64u << 20);
    timer_init(&w->limit, w->loop, over, w);
    return w;
}

static void http_closed(void *arg)
{
    struct api_world *w = arg;

    w->http = NULL;
    loop_stop(w->loop);
}
struct api_world *api_world_destroy(struct api_world *w)
{
    if (w->client)
        stream_close(w->client);
    listener_close(w->listener);
    http_server_close(w->http, 100, http_closed, w);
    while (w->client || w->http)
        loop_uv_run(w->loop);
    timer_stop(&w->limit);
    w->api = api_destroy(w->api);
    w->mem = memory_backend_destroy(w->mem);
    cJSON_Delete(w->json);
    buf_fini(&w->got);
    (void)loop_uv_destroy(w->loop);
    (void)unlink(w->path);
    free(w);
    return NULL;
}

/* ---- one request ---- */
static const char *head_end(const struct buf *b)
{
    const char *p = b->n ? strstr(b->p, "\r\n\r\n") : NULL;
    return p ? p + 4 : NULL;
}
static bool complete(const struct buf *b)
{
    const char *body = head_end(b), *len;

    if (!body)
        return false;
    if (strstr(b->p, "\r\nTransfer-Encoding: chunked") ||
        strstr(b->p, "\r\ntransfer-encoding: chunked"))
        return b->n >= 5 && !memcmp(b->p + b->n - 5, "0\r\n\r\n", 5);
    len = strcasestr(b->p, "\r\ncontent-length: ");
    if (!len || len > body)
        return true;
    return b->n - (size_t)(body - b->p) >= strtoul(len + 18, NULL, 10);
}
static void client_data(struct stream *s, const void *p, size_t n, void *arg)
{
    struct api_world *w = arg;

    (void)s;
    buf_add(&w->got, p, n);
    if (complete(&w->got))
        loop_stop(w->loop);
}
static void client_closed(struct stream *s, const struct err *why, void *arg)
{
    struct api_world *w = arg;

    (void)s;
    (void)why;
    w->client = NULL;
    loop_stop(w->loop);
}
static const struct stream_events client_events = {.data = client_data, .closed = client_closed};

static void unchunk(struct buf *b, char *body)
{
    char *from = body, *to = body;

    while (true) {
        size_t n = strtoul(from, &from, 16);
        from = strstr(from, "\r\n");
        if (!n || !from)
            break;
        memmove(to, from + 2, n);
        to += n;
        from += 2 + n + 2;
    }
    *to = 0;
    b->n = (size_t)(to - b->p);
}

static void request_text(struct buf *b, const char *token, const char *method, const char *path,
                         const char *headers, const char *type, const char *body)
{
    buf_printf(b, "%s %s HTTP/1.1\r\nHost: test\r\nUser-Agent: test/1\r\n", method, path);
    if (token)
        buf_printf(b, "Authorization: Bearer %s\r\n", token);
    if (headers)
        buf_str(b, headers);
    if (body)
        buf_printf(b, "Content-Type: %s\r\nContent-Length: %zu\r\n",
                   type ? type : "application/json", strlen(body));
    buf_str(b, "\r\n");
    if (body)
        buf_str(b, body);
}

int api_ask_with(struct api_world *w, const char *token, const char *method, const char *path,
                 const char *headers, const char *type, const char *body)
{
    struct err e;
    AUTO_BUF rq = {0};

    buf_init(&rq, 64u << 20);
    if (!w->client)
        INV(!stream_connect(w->loop, w->address, NULL, "", 2000, &client_events, w, &w->client,
                            &e));
    request_text(&rq, token, method, path, headers, type, body);
    buf_reset(&w->got);
    cJSON_Delete(w->json);
    w->json = NULL;
    stream_write(w->client, rq.p, rq.n);
    w->timed_out = false;
    timer_start(&w->limit, 5000);
    while (!complete(&w->got) && !w->timed_out && w->client)
        loop_uv_run(w->loop);
    timer_stop(&w->limit);
    w->status = w->got.n > 12 ? (int)strtol(w->got.p + 9, NULL, 10) : 0;
    char *at = (char *)(uintptr_t)head_end(&w->got);
    if (at && (strstr(w->got.p, "Transfer-Encoding: chunked") ||
               strstr(w->got.p, "transfer-encoding: chunked")))
        unchunk(&w->got, at);
    w->body = at ? at : "";
    w->json = cJSON_Parse(w->body);
    return w->status;
}
int api_ask(struct api_world *w, const char *token, const char *method, const char *path,
            const char *type, const char *body)
{
    return api_ask_with(w, token, method, path, NULL, type, body);
}

const char *api_text(struct api_world *w, const char *path)
{
    static char number[64];
    const cJSON *j = w->json;
    char part[128];

    while (j && *path) {
        size_t n = strcspn(path, ".");
        (void)snprintf(part, sizeof part, "%.*s", (int)n, path);
        j = cJSON_IsArray(j) ? cJSON_GetArrayItem(j, (int)strtol(part, NULL, 10))
                             : cJSON_GetObjectItemCaseSensitive(j, part);
        path += n + (path[n] == '.');
    }
    if (!j)
        return "";
    if (cJSON_IsString(j))
        return j->valuestring;
    if (cJSON_IsBool(j))
        return cJSON_IsTrue(j) ? "true" : "false";
    if (cJSON_IsNumber(j)) {
        (void)snprintf(number, sizeof number, "%.15g", j->valuedouble);
        return number;
    }
    return "{}";
}

/* ---- watches ---- */
static void watch_data(struct stream *s, const void *p, size_t n, void *arg)
{
    struct api_watch *x = arg;

    (void)s;
    buf_add(&x->got, p, n);
    if (x->want && strstr(x->got.p, x->want))
        loop_stop(x->w->loop);
}
static void watch_closed(struct stream *s, const struct err *why, void *arg)
{
    struct api_watch *x = arg;

    (void)s;
    (void)why;
    x->closed = true;
    loop_stop(x->w->loop);
}
static const struct stream_events watch_events = {.data = watch_data, .closed = watch_closed};

void api_watch_open(struct api_watch *x, struct api_world *w, const char *token, const char *path)
{
    struct err e;
    AUTO_BUF rq = {0};

    memset(x, 0, sizeof *x);
    x->w = w;
    buf_init(&x->got, 64u << 20);
    buf_init(&rq, 1u << 20);
    request_text(&rq, token, "GET", path, NULL, NULL, NULL);
    INV(!stream_connect(w->loop, w->address, NULL, "", 2000, &watch_events, x, &x->st, &e));
    stream_write(x->st, rq.p, rq.n);
}
bool api_watch_until(struct api_watch *x, const char *text)
{
    struct api_world *w = x->w;

    x->want = text;
    w->timed_out = false;
    timer_start(&w->limit, 5000);
    while (!(x->got.n && strstr(x->got.p, text)) && !w->timed_out && !x->closed)
        loop_uv_run(w->loop);
    timer_stop(&w->limit);
    x->want = NULL;
    return x->got.n && strstr(x->got.p, text);
}
void api_watch_close(struct api_watch *x)
{
    if (!x->closed)
        stream_close(x->st);
    while (!x->closed)
        loop_uv_run(x->w->loop);
    buf_fini(&x->got);
}
