/* One request: its attempts, what came back, and how it ends. It must never be rejected once
 * something may have left, never be sent again unless its caller allowed it, and never be answered
 * by half an answer. */
#include "connectors/web/web_internal.h"
#include "connectors/web/web_rules.h"

#include <string.h>
#include <strings.h>

#define OWN_HEADERS 2 /* Authorization, Accept */

/* ---- the end ---- */
static void leave_state(struct web_request *r, bool good)
{
    struct web_client *c = r->client;

    if (r->state == WEB_QUEUED)
        c->n_queued--;
    else if (r->state == WEB_WAITING)
        c->n_waiting--;
    else if (r->state == WEB_SENDING)
        web_client_counted(c, good);
    list_remove(&r->link);
    list_push(&c->others, &r->link);
}

void web_request_free(struct web_request *r)
{
    timer_stop(&r->deadline);
    timer_stop(&r->step);
    list_remove(&r->link);
    buf_fini(&r->body);
    (void)arena_destroy(r->answered);
    (void)arena_destroy(r->arena);
    mem_free(r);
}

static const char *got(const struct web_request *r, const char *name)
{
    for (size_t i = 0; i < r->n_got; i++)
        if (strcasecmp(r->got[i].name, name) == 0)
            return r->got[i].value;
    return "";
}

static uint64_t retry_after_ms(const struct web_request *r)
{
    return web_retry_after_ms(got(r, "retry-after"), got(r, "date"),
                              (uint64_t)loop_wall_ms(r->client->loop));
}

/* From a fresh callback: who asked may destroy the client in it. */
static void tell(struct web_request *r)
{
    struct web_client *c = r->client;
    struct web_ask ask = r->ask;
    enum outcome out = r->out;
    struct err err = r->why;
    struct web_answer a = {.status = r->status,
                           .headers = r->got,
                           .n_headers = r->n_got,
                           .body = slice_make(r->body.n ? r->body.p : "", r->body.n),
                           .retry_after_ms = retry_after_ms(r),
                           .attempts = r->attempts,
                           .doubt = r->doubt,
                           .mark = r->stamp.mark};

    if (out != OUT_DONE) {
        (void)err_prefix(&err, "target %.100s", c->config.target);
        web_redact(c, err.text);
    }
    list_remove(&r->link); /* the callee cannot reach it any more */
    ask.done(ask.arg, out, out == OUT_DONE ? &a : NULL, out == OUT_DONE ? NULL : &err);
    web_request_free(r);
}

void web_request_end(struct web_request *r, enum outcome out, int code, const char *why)
{
    PRE(r->state != WEB_OVER);
    leave_state(r, (out == OUT_DONE && r->status < 500) || code == E_CANCELLED);
    r->state = WEB_OVER;
    r->out = out;
    if (out != OUT_DONE)
        (void)err_set(&r->why, code, "%s", why);
    timer_stop(&r->deadline);
    timer_start(&r->step, 0);
}

static void end_unanswered(struct web_request *r, int code, const char *why)
{
    bool unknown = r->left || r->doubt;

    web_request_end(r, unknown ? OUT_UNKNOWN : OUT_REJECTED, code, why);
}

static void on_deadline(void *arg)
{
    struct web_request *r = arg;

    if (r->state == WEB_SENDING)
        r->client->transport->ops->abort(r->client->transport, &r->x);
    if (r->left || r->doubt)
        end_unanswered(r, E_UNKNOWN, "it did not answer in time");
    else
        end_unanswered(r, E_TIMEOUT, "nothing could be sent to it in time");
}

/* ---- again, or not ---- */
/* Returns true when it will be sent once more. */
static bool again_later(struct web_request *r, uint64_t at_least_ms)
{
    struct web_client *c = r->client;
    uint64_t now = loop_now_ms(c->loop), shut, wait;

    if (!r->ask.idempotent || r->ask.data)
        return false;
    wait = web_backoff_ms(r->attempts, loop_random_u64(c->loop));
    wait = wait > at_least_ms ? wait : at_least_ms;
    leave_state(r, r->status && r->status < 500);
    shut = web_client_shut_ms(c);
    wait = wait > shut ? wait : shut;
    r->state = WEB_WAITING;
    c->n_waiting++;
    if (now + wait >= r->ask.deadline_ms)
        return false;
    timer_start(&r->step, wait);
    return true;
}

static void attempt_failed(struct web_request *r, int code, const char *why)
{
    bool left = r->left;

    r->status = 0;
    if (code != E_TLS && code != E_TOOLARGE && again_later(r, 0)) {
        r->doubt |= left;
        return;
    }
    end_unanswered(r, code, why);
}

/* ---- what the transport tells ---- */
static struct web_request *of(struct web_exchange *x)
{
    return container_of(x, struct web_request, x);
}

static bool on_sending(struct web_exchange *x)
{
    struct web_request *r = of(x);

    r->sendings++;
    if (r->sendings > 1) { /* on another connection: it may have come by the first */
        r->doubt = true;
        return r->ask.idempotent;
    }
    r->left = true;
    return true;
}

static void on_status(struct web_exchange *x, int status)
{
    struct web_request *r = of(x);

    r->status = status;
    r->n_got = 0;
    r->got_bytes = 0;
    r->answered = arena_destroy(r->answered);
    r->answered = arena_create(0);
    /* What is taken as it comes may last for hours; others need not wait for its end. */
    if (r->ask.data && status >= 200 && status <= 299)
        web_client_heard(r->client);
}

static bool on_header(struct web_exchange *x, const char *name, const char *value)
{
    struct web_request *r = of(x);

    r->got_bytes += strlen(name) + strlen(value);
    if (!r->answered || r->n_got == WEB_HEADERS_MAX || r->got_bytes > WEB_HEADER_BYTES_MAX) {
        (void)err_set(&r->why, E_TOOLARGE,
                      "its answer has more than %d headers or %d bytes of them", WEB_HEADERS_MAX,
                      WEB_HEADER_BYTES_MAX);
        return false;
    }
    r->got[r->n_got++] =
        (struct web_header){arena_strdup(r->answered, name), arena_strdup(r->answered, value)};
    return true;
}

static bool on_data(struct web_exchange *x, const void *p, size_t n)
{
    struct web_request *r = of(x);

    if (r->ask.data && r->status >= 200 && r->status <= 299) {
        if (r->ask.data(r->ask.arg, p, n))
            return true;
        (void)err_set(&r->why, E_CANCELLED, "no more of its answer was wanted");
        return false;
    }
    buf_add(&r->body, p, n);
    if (!r->body.failed)
        return true;
    (void)err_set(&r->why, E_TOOLARGE, "its answer is larger than %zu bytes", r->ask.answer_max);
    return false;
}

static void on_over(struct web_exchange *x, int code, const char *why)
{
    struct web_request *r = of(x);
    struct err own = r->why;
    int status = r->status;

    timer_stop(&r->step);
    if (own.code)
        attempt_failed(r, own.code, own.text);
    else if (code == 0 && (r->status < 200 || r->status > 599))
        attempt_failed(r, E_CONNECT, "its answer has no status");
    else if (code)
        attempt_failed(r, code, why);
    else if (!r->ask.answers_final && web_status_passes(status) &&
             again_later(r, retry_after_ms(r)))
        r->doubt |= status >= 500; /* who answers so may have done it */
    else
        web_request_end(r, OUT_DONE, 0, "");
}

static const struct web_exchange_events events = {.sending = on_sending,
                                                  .status = on_status,
                                                  .header = on_header,
                                                  .data = on_data,
                                                  .over = on_over};

/* ---- attempts ---- */
static void headers_make(struct web_request *r)
{
    const struct web_client *c = r->client;
    const struct web_config *g = &c->config;
    size_t n = 0;

    for (size_t i = 0; i < r->ask.n_headers; i++)
        r->headers[n++] = r->ask.headers[i];
    r->headers[n++] = (struct web_header){"Accept", "application/json"};
    if (*g->token)
        r->headers[n++] = (struct web_header){"Authorization", c->authorization};
    r->stamp = (struct web_stamp){0};
    if (g->sign)
        g->sign(g->sign_arg, r->ask.method, r->x.url + c->url.origin_n, r->ask.body, &r->stamp);
    for (unsigned i = 0; i < r->stamp.n; i++)
        r->headers[n++] = (struct web_header){r->stamp.headers[i].name, r->stamp.headers[i].value};
    r->x.headers = r->headers;
    r->x.n_headers = n;
}

void web_request_begin(struct web_request *r)
{
    struct web_client *c = r->client;

    r->state = WEB_SENDING;
    r->attempts++;
    r->left = false;
    r->sendings = 0;
    r->status = 0;
    r->n_got = 0;
    r->why = (struct err){0};
    buf_reset(&r->body);
    r->body.failed = false;
    headers_make(r);
    if (r->ask.attempt_ms)
        timer_start(&r->step, r->ask.attempt_ms);
    c->transport->ops->begin(c->transport, &r->x);
}

/* Its attempt has taken too long, its next one is due, or who asked is to be told. */
static void on_step(void *arg)
{
    struct web_request *r = arg;
    struct web_client *c = r->client;

    if (r->state == WEB_SENDING) {
        c->transport->ops->abort(c->transport, &r->x);
        attempt_failed(r, E_UNKNOWN, "it did not answer in time");
    } else if (r->state == WEB_WAITING) {
        c->n_waiting--;
        web_client_enqueue(c, r, true);
    } else if (r->state == WEB_OVER) {
        tell(r);
    }
}

/* ---- asking ---- */
static void ask_copy(struct web_request *r, const struct web_ask *ask)
{
    const struct web_client *c = r->client;
    struct web_header *h = arena_array(r->arena, struct web_header, ask->n_headers + 1);

    r->ask = *ask;
    r->ask.method = arena_strdup(r->arena, ask->method);
    r->ask.path = arena_strdup(r->arena, ask->path);
    for (size_t i = 0; i < ask->n_headers; i++)
        h[i] = (struct web_header){arena_strdup(r->arena, ask->headers[i].name),
                                   arena_strdup(r->arena, ask->headers[i].value)};
    r->ask.headers = h;
    r->ask.body = slice_make(ask->body.n ? arena_memdup(r->arena, ask->body.p, ask->body.n) : "",
                             ask->body.n);
    r->headers =
        arena_array(r->arena, struct web_header, ask->n_headers + OWN_HEADERS + WEB_STAMP_HEADERS);
    r->x = (struct web_exchange){.method = r->ask.method,
                                 .url = arena_printf(r->arena, "%.*s%s",
                                                     c->url.origin_n + c->url.path_n, c->config.url,
                                                     r->ask.path),
                                 .body = r->ask.body,
                                 .ev = &events};
}

struct web_request *web_ask(struct web_client *c, const struct web_ask *ask)
{
    struct web_request *r = mem_new(struct web_request);
    uint64_t now = loop_now_ms(c->loop);

    PRE(ask->path[0] == '/' && ask->n_headers <= WEB_HEADERS_MAX);
    r->client = c;
    r->arena = arena_create(0);
    list_init(&r->link);
    timer_init(&r->deadline, c->loop, on_deadline, r);
    timer_init(&r->step, c->loop, on_step, r);
    ask_copy(r, ask);
    buf_init(&r->body, ask->answer_max);
    timer_start(&r->deadline, ask->deadline_ms > now ? ask->deadline_ms - now : 0);
    unsigned room = c->config.in_flight > c->in_flight ? c->config.in_flight - c->in_flight : 0;
    bool full = !ask->ahead && c->n_queued >= c->config.queue_max + room;
    web_client_enqueue(c, r, ask->ahead);
    if (ask->body.n > WEB_REQUEST_BODY_MAX)
        web_request_end(r, OUT_REJECTED, E_TOOLARGE, "the request is larger than 16 MiB");
    else if (full)
        web_request_end(r, OUT_REJECTED, E_LIMIT, "too many requests wait for it already");
    return r;
}

void web_cancel(struct web_request *r)
{
    struct web_client *c = r->client;

    if (r->state == WEB_SENDING)
        c->transport->ops->abort(c->transport, &r->x);
    if (r->state != WEB_OVER)
        leave_state(r, c->failed == 0);
    web_request_free(r);
}

void web_pause(struct web_request *r, bool paused)
{
    struct web_client *c = r->client;

    if (r->state == WEB_SENDING)
        c->transport->ops->pause(c->transport, &r->x, paused);
}

int64_t web_answer_date_ms(const struct web_answer *a)
{
    return web_date_ms(web_header_get(a, "Date"));
}

const char *web_header_get(const struct web_answer *a, const char *name)
{
    for (size_t i = 0; i < a->n_headers; i++)
        if (strcasecmp(a->headers[i].name, name) == 0)
            return a->headers[i].value;
    return "";
}
