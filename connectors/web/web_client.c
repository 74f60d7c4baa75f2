/* The client of one target: how many requests are under way, who waits, and the breaker, which
 * keeps requests back from a target that has failed several times in a row. A failing target must
 * cost neither the loop nor other targets anything. */
#include "connectors/web/web_internal.h"
#include "connectors/web/web_rules.h"

#include "api/base/log.h"

#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>

#define IN_FLIGHT 8
#define QUEUE_MAX 1024
#define BREAKER_FAILURES 5
#define BREAKER_MIN_MS 1000
#define BREAKER_MAX_MS 30000

/* ---- secrets ---- */
void web_redact(const struct web_client *c, char *text)
{
    web_redact_texts(c->secrets, WEB_SECRETS, text);
}

/* ---- the breaker ---- */
uint64_t web_client_shut_ms(const struct web_client *c)
{
    uint64_t now = loop_now_ms(c->loop);

    return c->open_until_ms > now ? c->open_until_ms - now : 0;
}

static void breaker_told(const struct web_client *c, bool open)
{
    log_event(open ? LOG_WARN : LOG_INFO, open ? "web.breaker_open" : "web.breaker_closed",
              LOG_FIELDS({"target", log_str(c->config.target)}, {"failed", log_u64(c->failed)},
                         {"ms", log_u64(open ? c->open_ms : 0)}));
}

/* Each time that the one request fails which it lets through, it stays open twice as long. */
static void breaker_open(struct web_client *c)
{
    c->open_ms = c->open_ms ? c->open_ms * 2 : BREAKER_MIN_MS;
    if (c->open_ms > BREAKER_MAX_MS)
        c->open_ms = BREAKER_MAX_MS;
    uint64_t ms = c->open_ms + loop_random_u64(c->loop) % (c->open_ms / 2 + 1);
    c->open_until_ms = loop_now_ms(c->loop) + ms;
    timer_start(&c->half_open, ms);
    breaker_told(c, true);
}

static void on_half_open(void *arg)
{
    web_client_pump(arg);
}

void web_client_heard(struct web_client *c)
{
    c->failed = 0;
    if (c->open_until_ms)
        breaker_told(c, false);
    c->open_until_ms = c->open_ms = 0;
    timer_stop(&c->half_open);
    timer_start(&c->pump, 0);
}

void web_client_counted(struct web_client *c, bool good)
{
    INV(c->in_flight > 0);
    c->in_flight--;
    timer_start(&c->pump, 0);
    if (good) {
        web_client_heard(c);
        return;
    }
    c->failed++;
    if (c->failed >= BREAKER_FAILURES && web_client_shut_ms(c) == 0)
        breaker_open(c);
}

/* ---- the queue ---- */
/* What never left has had no effect. */
static void queue_refuse(struct web_client *c, uint64_t ms)
{
    char why[200];

    (void)snprintf(why, sizeof why,
                   "has failed %u times in a row; nothing is sent to it for another %llu ms",
                   c->failed, (unsigned long long)ms);
    list_for_each_safe (it, tmp, &c->queued) {
        struct web_request *r = container_of(it, struct web_request, link);
        if (!r->doubt)
            web_request_end(r, OUT_REJECTED, E_UNAVAIL, why);
    }
}

void web_client_pump(struct web_client *c)
{
    uint64_t shut = web_client_shut_ms(c);
    /* After it was open, one request finds out how the target is. */
    unsigned most = c->open_until_ms ? 1 : c->config.in_flight;

    if (shut) {
        queue_refuse(c, shut);
        return;
    }
    while (c->in_flight < most && !list_empty(&c->queued)) {
        struct web_request *r = container_of(c->queued.next, struct web_request, link);
        list_remove(&r->link);
        list_push(&c->others, &r->link);
        c->n_queued--;
        c->in_flight++;
        web_request_begin(r);
    }
}

static void on_pump(void *arg)
{
    web_client_pump(arg);
}

void web_client_enqueue(struct web_client *c, struct web_request *r, bool first)
{
    list_remove(&r->link);
    list_push(first ? c->queued.next : &c->queued, &r->link); /* before whom it is pushed */
    r->state = WEB_QUEUED;
    c->n_queued++;
    timer_start(&c->pump, 0);
}

/* ---- making and ending ---- */
static const char *copy(struct web_client *c, const char *s)
{
    return arena_strdup(c->arena, s ? s : "");
}

static int config_check(const struct web_client *c, struct err *err)
{
    const struct web_config *g = &c->config;

    if (!c->url.tls && !c->url.loopback)
        return err_set(err, E_INVALID, "%.100s: http is taken for this machine alone: say https",
                       g->url);
    if (!c->url.tls && (*g->ca_pem || *g->cert_pem))
        return err_set(err, E_INVALID, "%.100s: certificates are for https", g->url);
    if (!*g->cert_pem != !*g->key_pem)
        return err_set(err, E_INVALID, "%.100s: a client certificate and its key come together",
                       g->url);
    for (const char *s = g->token; *s; s++)
        if (*s < '!' || *s > '~')
            return err_set(err, E_INVALID, "%.100s: the token has letters that no header takes",
                           g->url);
    return 0;
}

int web_client_create(struct loop *l, const struct web_config *config, struct web_client **ret,
                      struct err *err)
{
    struct web_client *c = mem_new(struct web_client);
    struct web_config *g = &c->config;
    int rc;

    c->loop = l;
    c->arena = arena_create(0);
    *g = *config;
    g->target = copy(c, config->target);
    g->url = copy(c, config->url);
    g->ca_pem = copy(c, config->ca_pem);
    g->cert_pem = copy(c, config->cert_pem);
    g->key_pem = copy(c, config->key_pem);
    g->token = copy(c, config->token);
    g->secret = copy(c, config->secret);
    g->in_flight = g->in_flight ? g->in_flight : IN_FLIGHT;
    g->queue_max = g->queue_max ? g->queue_max : QUEUE_MAX;
    g->transport = g->transport ? g->transport : &web_curl;
    c->authorization = arena_printf(c->arena, "Bearer %s", g->token);
    c->secrets[0] = g->token;
    c->secrets[1] = g->secret;
    c->secrets[2] = g->key_pem;
    list_init(&c->queued);
    list_init(&c->others);
    timer_init(&c->half_open, l, on_half_open, c);
    timer_init(&c->pump, l, on_pump, c);
    rc = url_parse(g->url, &c->url, err);
    if (rc == 0)
        rc = config_check(c, err);
    if (rc == 0)
        rc = g->transport->create(l, g, &c->transport, err);
    if (rc < 0) {
        (void)web_client_destroy(c);
        return rc;
    }
    *ret = c;
    return 0;
}

static void wipe(const char *s)
{
    if (s)
        OPENSSL_cleanse((char *)(uintptr_t)s, strlen(s));
}

struct web_client *web_client_destroy(struct web_client *c)
{
    if (!c)
        return NULL;
    while (!list_empty(&c->queued))
        web_cancel(container_of(c->queued.next, struct web_request, link));
    while (!list_empty(&c->others))
        web_cancel(container_of(c->others.next, struct web_request, link));
    timer_stop(&c->half_open);
    timer_stop(&c->pump);
    if (c->transport)
        c->transport->ops->destroy(c->transport);
    wipe(c->authorization);
    wipe(c->config.token);
    wipe(c->config.secret);
    wipe(c->config.key_pem);
    (void)arena_destroy(c->arena);
    mem_free(c);
    return NULL;
}

struct web_stats web_client_stats(const struct web_client *c)
{
    return (struct web_stats){.in_flight = c->in_flight,
                              .queued = c->n_queued,
                              .waiting = c->n_waiting,
                              .failed = c->failed,
                              .open = web_client_shut_ms(c) > 0};
}
