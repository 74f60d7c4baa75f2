/* The scripted transport: see script_web.h. All that it does it does from timers of the loop. */
#include "tests/support/web/script_web.h"

#include <string.h>
#include <strings.h>

#define TRICKLE_MS 1000
#define FLOOD_PIECE 65536

struct script script_web;

struct script_transport {
    struct web_transport base;
    struct loop *loop;
};
struct script_exchange {
    struct web_exchange *x;
    struct timer timer;
    struct script_reply reply;
    size_t at; /* of the body */
    bool begun, paused;
};

const char *script_header(const struct script_try *t, const char *name)
{
    for (size_t i = 0; i < t->n_headers; i++)
        if (strcasecmp(t->headers[i].name, name) == 0)
            return t->headers[i].value;
    return "";
}

static void exchange_end(struct script_exchange *e)
{
    timer_stop(&e->timer);
    script_web.under_way--;
    e->x->impl = NULL;
    mem_free(e);
}

static void over(struct script_exchange *e, int code, const char *why)
{
    struct web_exchange *x = e->x;

    exchange_end(e);
    x->ev->over(x, code, why);
}

/* false: the client wants no more. */
static bool head(struct script_exchange *e)
{
    struct web_exchange *x = e->x;

    x->ev->status(x, e->reply.status ? e->reply.status : 200);
    for (size_t i = 0; i < e->reply.n_headers; i++)
        if (!x->ev->header(x, e->reply.headers[i].name, e->reply.headers[i].value))
            return false;
    return true;
}

static bool piece(struct script_exchange *e, const void *p, size_t n)
{
    script_web.sent_bytes += n;
    return n == 0 || e->x->ev->data(e->x, p, n);
}

static void answer(struct script_exchange *e)
{
    static const char flood[FLOOD_PIECE] = {'x'};
    const char *body = e->reply.body ? e->reply.body : "";
    size_t n = strlen(body);
    bool good = e->begun || head(e);

    e->begun = true;
    switch (good ? e->reply.how : SCRIPT_ANSWERS) {
    case SCRIPT_HALVES:
        (void)piece(e, body, n / 2);
        over(e, E_CONNECT, "the connection was cut");
        return;
    case SCRIPT_LASTS:
        if (piece(e, body, n))
            return;
        break;
    case SCRIPT_TRICKLES:
        if (!e->paused)
            good = piece(e, n ? body + e->at++ % n : " ", 1);
        timer_start(&e->timer, TRICKLE_MS);
        if (good)
            return;
        break;
    case SCRIPT_FLOODS:
        if (!e->paused)
            good = piece(e, flood, sizeof flood);
        timer_start(&e->timer, 1);
        if (good)
            return;
        break;
    default:
        good = good && piece(e, body, n);
        break;
    }
    over(e, good ? 0 : E_CONNECT, "the client wanted no more");
}

/* The request arrives; false: its connection is cut. */
static bool takes(struct script_exchange *e)
{
    struct web_exchange *x = e->x;

    return x->ev->sending(x) && (e->reply.how != SCRIPT_BEGINS_TWICE || x->ev->sending(x)) &&
           e->reply.how != SCRIPT_RESETS;
}

static void on_timer(void *arg)
{
    struct script_exchange *e = arg;

    if (!e->begun && e->reply.how == SCRIPT_REFUSES)
        over(e, E_CONNECT, "the connection was refused");
    else if (!e->begun && e->reply.how == SCRIPT_BAD_TLS)
        over(e, E_TLS, "the certificate does not hold");
    else if (!e->begun && !takes(e))
        over(e, E_CONNECT, "the connection was cut");
    else if (e->reply.how != SCRIPT_IS_SILENT)
        answer(e);
}

static int script_create(struct loop *l, const struct web_config *config,
                         struct web_transport **ret, struct err *err)
{
    struct script_transport *t = mem_new(struct script_transport);

    (void)config;
    (void)err;
    t->base.ops = &script_web_ops;
    t->loop = l;
    *ret = &t->base;
    return 0;
}

static void script_destroy(struct web_transport *t)
{
    mem_free(t);
}

static void script_begin(struct web_transport *t, struct web_exchange *x)
{
    struct script_exchange *e = mem_new(struct script_exchange);
    struct script_try seen = {x->method, x->url, x->headers, x->n_headers, x->body};
    struct script *s = &script_web;

    e->x = x;
    x->impl = e;
    s->tries++;
    s->under_way++;
    if (s->under_way > s->most_under_way)
        s->most_under_way = s->under_way;
    s->serve(s->arg, &seen, &e->reply);
    timer_init(&e->timer, container_of(t, struct script_transport, base)->loop, on_timer, e);
    timer_start(&e->timer, e->reply.after_ms);
}

static void script_abort(struct web_transport *t, struct web_exchange *x)
{
    (void)t;
    script_web.aborted++;
    exchange_end(x->impl);
}

static void script_pause(struct web_transport *t, struct web_exchange *x, bool paused)
{
    (void)t;
    ((struct script_exchange *)x->impl)->paused = paused;
}

const struct web_transport_ops script_web_ops = {.create = script_create,
                                                 .destroy = script_destroy,
                                                 .begin = script_begin,
                                                 .abort = script_abort,
                                                 .pause = script_pause};
