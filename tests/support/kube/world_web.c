/* How requests come to the server of kube_world.h, and its answers back: a transport under the HTTP
 * client, with what becomes of either on the way. */
#include "connectors/kubernetes/client/client.h"
#include "tests/support/kube/kube_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define W kube_world
#define BOOKMARK_MS 20000

struct kube_event {
    struct list link;
    uint64_t rv;
    const char *kind; /* "Pod" */
    bool ours;        /* it has a label of Hanse's */
    char *line;
};
struct kube_transport {
    struct web_transport base;
};
enum fate { FATE_GOOD, FATE_LOST, FATE_MUTE, FATE_LATE, FATE_TWICE, FATE_HALF, FATE_BUSY,
            FATE_FAILS };
struct kube_exchange { /* what was sent; the client may have given it up */
    struct list link;
    struct web_exchange *x; /* NULL: given up */
    char *method, *url, *body;
    size_t n_body;
    enum fate fate;
    struct timer timer;
    bool taken, again, paused, cut;
    /* of a watch */
    bool watches;
    char kind[16], selector[48];
    uint64_t rv, until_ms, bookmark_ms;
};

static void exchange_free(struct kube_exchange *e)
{
    timer_stop(&e->timer);
    list_remove(&e->link);
    mem_free(e->method);
    mem_free(e->url);
    mem_free(e->body);
    mem_free(e);
}

/* Nobody hears of it any more; what is still to come does. */
static struct web_exchange *let_go(struct kube_exchange *e)
{
    struct web_exchange *x = e->x;

    e->x = NULL;
    if (x)
        x->impl = NULL;
    return x;
}

static void over(struct kube_exchange *e, int code, const char *why)
{
    struct web_exchange *x = let_go(e);

    if (x)
        x->ev->over(x, code, why);
}

static enum fate fate_of(void)
{
    const struct kube_chaos *c = &W.chaos;
    const unsigned v[] = {c->lost, c->mute, c->late, c->twice, c->half, c->busy, c->fails};
    uint64_t dice = kube_world_below(100);

    for (unsigned i = 0; i < sizeof v / sizeof *v; i++) {
        if (dice < v[i])
            return (enum fate)(FATE_LOST + i);
        dice -= v[i];
    }
    return FATE_GOOD;
}

/* ---- answers ---- */
static const char *date_text(char ret[40])
{
    time_t t = (time_t)(kube_world_wall_ms() / 1000);
    struct tm tm;

    (void)gmtime_r(&t, &tm);
    (void)strftime(ret, 40, "%a, %d %b %Y %H:%M:%S GMT", &tm);
    return ret;
}

static void answer(struct kube_exchange *e, const struct kube_reply *r)
{
    char *printed = r->body ? cJSON_PrintUnformatted(r->body) : NULL, retry[16], date[40];
    const char *text = r->text ? r->text : printed;
    size_t n = text ? strlen(text) : 0;
    struct web_exchange *x = e->x;
    bool good = x != NULL;

    if (good)
        x->ev->status(x, r->status);
    (void)snprintf(retry, sizeof retry, "%u", r->retry_s);
    good = good && x->ev->header(x, "Content-Type", "application/json") &&
           x->ev->header(x, "Date", date_text(date)) &&
           (!r->retry_s || x->ev->header(x, "Retry-After", retry));
    if (good && e->fate == FATE_HALF) {
        good = !n || x->ev->data(x, text, n / 2);
        over(e, E_CONNECT, "the connection was cut");
    } else if (good) {
        good = !n || x->ev->data(x, text, n);
        over(e, good ? 0 : E_CONNECT, "the client wanted no more");
    } else if (x) {
        over(e, E_CONNECT, "the client wanted no more");
    }
    cJSON_free(printed);
}

/* ---- watches ---- */
void kube_world_event(const char *type, const struct kube_object *o)
{
    struct kube_event *v = mem_new(struct kube_event);
    cJSON *event = cJSON_CreateObject();
    char *text;

    cJSON_AddStringToObject(event, "type", type);
    cJSON_AddItemToObject(event, "object", cJSON_Duplicate(o->doc, true));
    text = cJSON_PrintUnformatted(event);
    v->rv = W.rv;
    v->kind = !strcmp(o->kind, "jobs") ? "Job" : !strcmp(o->kind, "pods") ? "Pod"
                                             : !strcmp(o->kind, "nodes") ? "Node"
                                                                         : "";
    v->ours = *kube_label(o->doc, "hanse.dev/key") != '\0';
    v->line = mem_alloc(strlen(text) + 2);
    (void)snprintf(v->line, strlen(text) + 2, "%s\n", text);
    cJSON_free(text);
    cJSON_Delete(event);
    list_push(&W.events, &v->link);
    list_for_each (it, &W.exchanges) {
        struct kube_exchange *e = container_of(it, struct kube_exchange, link);
        if (e->watches)
            timer_start(&e->timer, W.watch_ms + 1 + kube_world_below(30));
    }
}

static bool line_send(struct kube_exchange *e, const char *line)
{
    return e->x->ev->data(e->x, line, strlen(line));
}

static void watch_pump(struct kube_exchange *e)
{
    uint64_t now = loop_now_ms(W.loop), next = e->until_ms;
    char line[256];
    bool good = e->x != NULL;

    if (!good) {
        exchange_free(e);
        return;
    }
    list_for_each (it, &W.events) {
        const struct kube_event *v = container_of(it, struct kube_event, link);
        if (W.silent || e->paused || !good)
            break;
        if (v->rv <= e->rv || strcmp(v->kind, e->kind) != 0 || (*e->selector && !v->ours))
            continue;
        e->rv = v->rv;
        good = line_send(e, v->line);
        if (!e->x) {
            exchange_free(e);
            return;
        }
    }
    if (good && now >= e->bookmark_ms && !W.silent && !e->paused) {
        (void)snprintf(line, sizeof line,
                       "{\"type\":\"BOOKMARK\",\"object\":{\"kind\":\"%s\",\"metadata\":{"
                       "\"resourceVersion\":\"%llu\"}}}\n",
                       e->kind, (unsigned long long)W.rv);
        good = line_send(e, line);
        e->bookmark_ms = now + BOOKMARK_MS;
    }
    if (!good || now >= e->until_ms) {
        over(e, good ? 0 : E_CONNECT, "the watch is over");
        exchange_free(e);
        return;
    }
    next = e->bookmark_ms < next ? e->bookmark_ms : next;
    timer_start(&e->timer, next > now ? next - now : 1);
}

static void watch_begin(struct kube_exchange *e, const struct kube_reply *r)
{
    uint64_t now = loop_now_ms(W.loop);

    if (!e->x) {
        exchange_free(e);
        return;
    }
    e->watches = true;
    str_copy(e->kind, sizeof e->kind, r->kind);
    str_copy(e->selector, sizeof e->selector, r->selector);
    e->rv = r->watch_rv;
    e->bookmark_ms = now + BOOKMARK_MS;
    e->until_ms = now + (e->fate == FATE_GOOD ? 60000 : 500) + kube_world_below(60000);
    e->x->ev->status(e->x, 200);
    timer_start(&e->timer, 1);
}

/* ---- requests ---- */
static void trace(const struct kube_exchange *e, const struct kube_reply *r)
{
    static const char *const fates[] = {"", " lost", " mute", " late", " twice", " half", " busy",
                                        " fails"};

    if (getenv("HANSE_KUBE_TRACE"))
        (void)fprintf(stderr, "%llu %s %s%s -> %d %s\n", (unsigned long long)loop_now_ms(W.loop),
                      e->method, e->url + 21, fates[e->fate], r->status,
                      r->body && r->status > 299 ? kube_text(r->body, "message") : "");
}

static void serve(struct kube_exchange *e)
{
    struct kube_reply r;

    if (e->fate == FATE_BUSY && !e->again) {
        r = (struct kube_reply){.status = 429,
                                .retry_s = 1,
                                .body = kube_world_status(429, "TooManyRequests", "too many")};
    } else if (W.pods_busy && strcmp(e->method, "DELETE") == 0 && strstr(e->url, "/pods/")) {
        W.pods_busy--;
        r = (struct kube_reply){.status = 429,
                                .retry_s = 5,
                                .body = kube_world_status(429, "TooManyRequests", "too many")};
    } else if ((W.jobs_fail && strstr(e->url, "/jobs/")) ||
               (e->fate == FATE_FAILS && kube_world_below(2))) {
        r = (struct kube_reply){.status = 500,
                                .body = kube_world_status(500, "InternalError", "not done")};
    } else {
        kube_world_serve(e->method, e->url, slice_make(e->body, e->n_body), &r);
        if (e->fate == FATE_FAILS) {
            cJSON_Delete(r.body);
            r = (struct kube_reply){.status = 500,
                                    .body = kube_world_status(500, "InternalError", "done")};
        }
    }
    trace(e, &r);
    if (r.watch && !e->again) {
        watch_begin(e, &r);
        return;
    }
    if (e->fate != FATE_MUTE && !e->again)
        answer(e, &r);
    cJSON_Delete(r.body);
    if (e->fate == FATE_TWICE && !e->again && strcmp(e->method, "GET") != 0) {
        e->again = true;
        timer_start(&e->timer, 500 + kube_world_below(6000));
    } else if (!e->x) {
        exchange_free(e);
    }
}

static void on_timer(void *arg)
{
    struct kube_exchange *e = arg;

    if (e->watches) {
        watch_pump(e);
        return;
    }
    if (e->cut && W.silent && e->x) {
        timer_start(&e->timer, 3000);
        return;
    }
    if (e->cut) {
        over(e, E_CONNECT, "the connection was cut");
        exchange_free(e);
        return;
    }
    if (!e->taken) {
        e->taken = true;
        if (e->x && !e->x->ev->sending(e->x)) {
            over(e, E_CONNECT, "it must not be sent");
            exchange_free(e);
            return;
        }
        if ((W.silent || e->fate == FATE_LOST) && strstr(e->url, "watch=1")) {
            timer_start(&e->timer, 3000); /* its connection is cut once it is tried again */
            e->cut = true;
            return;
        }
        if (W.silent || e->fate == FATE_LOST) {
            trace(e, &(struct kube_reply){.status = 0});
            W.lost++;
            if (!e->x)
                exchange_free(e);
            return; /* until it is given up */
        }
        if (e->fate == FATE_LATE) {
            timer_start(&e->timer, 300 + kube_world_below(6000));
            return;
        }
    }
    serve(e);
}

static int web_create(struct loop *l, const struct web_config *config, struct web_transport **ret,
                      struct err *err)
{
    struct kube_transport *t = mem_new(struct kube_transport);

    (void)l;
    (void)config;
    (void)err;
    t->base.ops = &kube_world_web;
    *ret = &t->base;
    return 0;
}

static void web_destroy(struct web_transport *t)
{
    mem_free(t);
}

static void web_begin(struct web_transport *t, struct web_exchange *x)
{
    struct kube_exchange *e = mem_new(struct kube_exchange);

    (void)t;
    W.requests++;
    W.events_asked += strstr(x->url, "/events?") != NULL;
    W.pods_written += strcmp(x->method, "GET") != 0 && strstr(x->url, "/pods/") != NULL;
    W.jobs_read += strcmp(x->method, "GET") == 0 && strstr(x->url, "/jobs/") != NULL;
    W.secrets_deleted += strcmp(x->method, "DELETE") == 0 && strstr(x->url, "/secrets/") != NULL;
    e->x = x;
    x->impl = e;
    e->method = mem_strdup(x->method);
    e->url = mem_strdup(x->url);
    e->n_body = x->body.n;
    e->body = mem_alloc(x->body.n + 1);
    if (x->body.n)
        memcpy(e->body, x->body.p, x->body.n);
    e->body[x->body.n] = '\0';
    e->fate = fate_of();
    list_push(&W.exchanges, &e->link);
    timer_init(&e->timer, W.loop, on_timer, e);
    timer_start(&e->timer, 1 + kube_world_below(20));
}

static void web_abort(struct web_transport *t, struct web_exchange *x)
{
    struct kube_exchange *e = x->impl;

    (void)t;
    (void)let_go(e);
    if (!timer_active(&e->timer)) /* nothing of it is under way */
        exchange_free(e);
    else if (e->watches)
        timer_start(&e->timer, 0);
}

static void world_pause(struct web_transport *t, struct web_exchange *x, bool paused)
{
    struct kube_exchange *e = x->impl;

    (void)t;
    e->paused = paused;
    if (e->watches)
        timer_start(&e->timer, 1);
}

const struct web_transport_ops kube_world_web = {.create = web_create,
                                                 .destroy = web_destroy,
                                                 .begin = web_begin,
                                                 .abort = web_abort,
                                                 .pause = world_pause};

void kube_world_web_end(void);
void kube_world_web_end(void)
{
    while (!list_empty(&W.exchanges))
        exchange_free(container_of(W.exchanges.next, struct kube_exchange, link));
    while (!list_empty(&W.events)) {
        struct kube_event *v = container_of(W.events.next, struct kube_event, link);
        list_remove(&v->link);
        mem_free(v->line);
        mem_free(v);
    }
}
