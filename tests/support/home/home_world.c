#include "tests/support/home/home_world.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PATIENCE_MS 20000

struct hub_side H[2];
struct caller_side C[2];
struct home_world W;

/* ---- the world ---- */
static void mac_by(const char *key, const char *text, unsigned char ret[HOME_MAC_BYTES])
{
    unsigned n = 0;

    assert_non_null(HMAC(EVP_sha256(), key, (int)strlen(key), (const unsigned char *)text,
                         strlen(text), ret, &n));
}

static void sign(void *arg, const char *text, unsigned char ret[HOME_MAC_BYTES])
{
    (void)arg;
    mac_by(W.key, text, ret);
}

static bool holds(void *arg, const char *text, const unsigned char mac[HOME_MAC_BYTES])
{
    unsigned char own[HOME_MAC_BYTES];

    (void)arg;
    mac_by("the key of the cluster", text, own);
    return memcmp(own, mac, sizeof own) == 0;
}

static bool again(void *arg, unsigned i, const char *text, unsigned char ret[HOME_MAC_BYTES])
{
    (void)arg;
    mac_by(i ? "the key of the cluster" : W.key, text, ret);
    return i < 2;
}

const struct home_keys home_world_keys = {sign, holds, again, NULL};

static void poll(void *arg)
{
    (void)arg;
    W.had = W.wanted();
    if (W.had || loop_now_ms(W.loop) >= W.until_ms)
        loop_stop(W.loop);
    else
        timer_start(&W.poll, 5);
}

bool within(bool (*wanted)(void), uint64_t ms)
{
    W.wanted = wanted;
    W.until_ms = loop_now_ms(W.loop) + ms;
    timer_start(&W.poll, 0);
    loop_uv_run(W.loop);
    return W.had;
}

void until(bool (*wanted)(void))
{
    if (!within(wanted, PATIENCE_MS))
        fail_msg("it did not come in %d ms", PATIENCE_MS);
}

static const struct stream_events nobody = {0};

static void accepted(struct listener *li, struct stream *s, void *arg)
{
    struct hub_side *h = arg;

    (void)li;
    h->last = s;
    h->accepted++;
    if (h->deaf)
        stream_set(s, &nobody, NULL);
    else
        home_door_enter(h->door, s);
}

static void arrived(void *arg, const struct home_arrival *a)
{
    struct hub_side *h = arg;
    struct home_arrival with = *a;
    struct err err;

    with.welcome = h->welcome;
    with.keep = h->keep;
    h->came++;
    if (h->redirect)
        home_redirect(a->stream, h->redirect);
    else if (h->refuse)
        home_refuse(a->stream, h->over ? HOME_OVER : HOME_NOT_NOW, h->refuse);
    else if (home_runs_take(h->runs, &with, &err) < 0)
        str_copy(C[1].why, sizeof C[1].why, err.text);
}

static void told(void *arg, const struct run_key *k)
{
    (void)k;
    ((struct hub_side *)arg)->told++;
}

static const struct home_runs_events runs_events = {.told = told};

void hub_begin(struct hub_side *h)
{
    struct err e;
    int port;

    *h = (struct hub_side){0};
    assert_int_equal(
        listener_create(W.loop, "127.0.0.1:0", W.server, accepted, h, &h->listener, &port, &e), 0);
    (void)snprintf(h->address, sizeof h->address, "127.0.0.1:%d", port);
    h->door = home_door_create(W.loop, &home_world_keys, arrived, h);
    h->env.loop = W.loop;
    h->runs = home_runs_create(&h->env, &runs_events, h);
}

void hub_end(struct hub_side *h)
{
    if (h->listener)
        listener_close(h->listener);
    h->listener = NULL;
    h->door = home_door_destroy(h->door);
    h->runs = home_runs_destroy(h->runs, "this member is gone");
}

static void on_welcome(void *arg, const struct home_welcome *w)
{
    struct caller_side *c = arg;

    c->welcomes++;
    str_copy(c->node, sizeof c->node, w ? w->node : "nobody tells");
    c->n_gpus = w ? w->n_gpus : 0;
    c->gpu = w && w->n_gpus ? w->gpus[w->n_gpus - 1] : -1;
}
static void on_refused(void *arg, const struct home_refused *r)
{
    struct caller_side *c = arg;

    c->refusals++;
    c->over = r->over;
    c->spent = r->spent;
    str_copy(c->why, sizeof c->why, r->text);
}
static void on_renew(void *arg, const struct shim_renew *q)
{
    struct caller_side *c = arg;

    c->renewals++;
    c->renew = *q;
}
static void on_stop(void *arg, const struct shim_stop *q)
{
    struct caller_side *c = arg;

    c->stops++;
    c->stop = *q;
}
static void on_save(void *arg, const struct shim_save *q)
{
    struct caller_side *c = arg;

    c->saves++;
    c->save = *q;
}
static void on_go(void *arg)
{
    ((struct caller_side *)arg)->goes++;
}
static void on_heard(void *arg)
{
    ((struct caller_side *)arg)->heard++;
}
static void on_frame(void *arg, const struct frame *f)
{
    ((struct caller_side *)arg)->frame = (struct frame_told){f->type, f->id};
}

static void on_lost(void *arg)
{
    (void)arg;
}

static const struct home_caller_events caller_events = {.welcome = on_welcome,
                                                        .refused = on_refused,
                                                        .renew = on_renew,
                                                        .stop = on_stop,
                                                        .save = on_save,
                                                        .go = on_go,
                                                        .heard = on_heard,
                                                        .frame = on_frame,
                                                        .lost = on_lost};

struct home_token token_of(int64_t epoch, int64_t rank, int64_t ranks)
{
    struct home_token t = {.key = {.uid = "0f3c-a", .epoch = epoch, .try_ = 2},
                           .rank = rank,
                           .ranks = ranks,
                           .made_ms = 1700000000000,
                           .cluster = LINE};

    return t;
}

void caller_begin(struct caller_side *c, const struct home_token *t)
{
    *c = (struct caller_side){.addresses = {H[0].address, H[1].address}};
    home_token_make(t, &home_world_keys, c->token);
    c->cfg = (struct home_caller_config){.addresses = c->addresses,
                                         .n_addresses = H[1].listener ? 2 : 1,
                                         .tls = W.client,
                                         .token = c->token,
                                         .logs = H[0].keep != NULL,
                                         .events = &caller_events,
                                         .arg = c};
    c->caller = home_caller_create(W.loop, &c->cfg);
}

int home_world_setup(void **state)
{
    static const char *const open[] = {ALPN_RUNNER, NULL};
    static const char *const ip[] = {"127.0.0.1", NULL}, *const none[] = {NULL};
    const struct pki_request rq = {.common_name = "member:1",
                                   .organizations = none,
                                   .dns_names = ip,
                                   .server = true,
                                   .days = 2};
    char ca[96], ca_key[96], cert[96], key[96];
    struct err e;

    (void)state;
    W.key = "the key of the cluster";
    (void)snprintf(W.dir, sizeof W.dir, "/tmp/hanse-home-XXXXXX");
    assert_non_null(mkdtemp(W.dir));
    (void)snprintf(ca, sizeof ca, "%s/ca.crt", W.dir);
    (void)snprintf(ca_key, sizeof ca_key, "%s/ca.key", W.dir);
    (void)snprintf(cert, sizeof cert, "%s/m.crt", W.dir);
    (void)snprintf(key, sizeof key, "%s/m.key", W.dir);
    assert_int_equal(pki_ca_create(ca, ca_key, "test CA", 2, &e), 0);
    assert_int_equal(pki_issue(ca, ca_key, &rq, cert, key, &e), 0);
    const struct tls_config_spec server = {
        .cert_file = cert, .key_file = key, .ca_file = ca, .alpn_open = open};
    /* As a runner has it: the machine's clock is not asked. */
    const struct tls_config_spec client = {.ca_file = ca, .not_before_ms = 1700000000000};
    assert_int_equal(tls_config_create(&server, true, &W.server, &e), 0);
    assert_int_equal(tls_config_create(&client, false, &W.client, &e), 0);
    W.loop = loop_uv_create(&e);
    assert_non_null(W.loop);
    timer_init(&W.poll, W.loop, poll, NULL);
    hub_begin(&H[0]);
    return 0;
}

int home_world_teardown(void **state)
{
    struct err e;

    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        C[i].caller = home_caller_destroy(C[i].caller);
        hub_end(&H[i]);
    }
    (void)!file_remove(W.loop, W.dir, &e);
    W.server = tls_config_unref(W.server);
    W.client = tls_config_unref(W.client);
    W.loop = loop_uv_destroy(W.loop);
    memset(H, 0, sizeof H);
    memset(C, 0, sizeof C);
    return 0;
}

bool welcome(void)
{
    return C[0].welcomes > 0;
}
