/* The runner's side: one session with whichever member leads. It dials the members in rounds,
 * follows a redirect, beats, and tells the newest report until it was taken in. It decides nothing
 * about the run: without a hub the lease that is held runs out by itself. */
#include "connectors/home/home.h"

#include "api/base/log.h"
#include "api/base/net/tls.h"
#include "connectors/home/home_runner.h"
#include "connectors/pace.h"

#include <stdio.h>
#include <string.h>

/* Members are dialed in rounds, as agents do: one after the other, then a pause, which grows. */
#define ROUND_MAX_MS 10000
#define DIAL_MIN_MS 2000
#define DIAL_MAX_MS 5000
#define BACKOFF_MIN_MS 100
#define REDIRECTS_MAX 4 /* one after the other */
#define SILENCE_MS 5000
#define LOGGED_MAX 8 /* lost sessions in a row that the log hears of */

struct home_caller {
    struct loop *loop;
    struct home_caller_config cfg;
    char instance[24];
    struct stream *stream;
    struct frame_reader reader;
    struct timer dial, beat;
    bool open, welcome, keeps;
    uint64_t heard_ms; /* when the hub was heard last */
    char addresses[HOME_ADDRESSES_MAX][PEER_NAME_MAX]; /* of the order, then as the hub tells */
    unsigned n_addresses, server, failures, redirects, refusals;
    char dialed[PEER_NAME_MAX], redirect[PEER_NAME_MAX], why[256];
    char silent[PEER_NAME_MAX]; /* the member that did not answer any more; "": none */
    uint64_t silent_ms;         /* since when */
    struct run_report report;
    uint64_t number, taken, sent; /* of reports: the newest; taken in; sent in this session */
};

static void caller_dial(void *arg);

bool home_caller_heard(const struct home_caller *h)
{
    return h->taken == h->number;
}

bool home_caller_keeps(const struct home_caller *h)
{
    return h->keeps;
}

struct stream *home_caller_stream(const struct home_caller *h)
{
    return h->welcome ? h->stream : NULL;
}

const char *home_caller_why(const struct home_caller *h)
{
    return h->why;
}

static void report_send(struct home_caller *h)
{
    if (!h->welcome || h->sent == h->number || stream_pending(h->stream) > WIRE_REPORT_MAX)
        return;
    h->sent = h->number;
    wire_tell(h->stream, HOME_REPORT, h->number, run_report, &h->report);
}

void home_caller_tell(struct home_caller *h, const struct run_report *r)
{
    h->report = *r;
    h->number++;
    report_send(h);
}

static void taken(struct home_caller *h, uint64_t number)
{
    if (number > h->number || number <= h->taken)
        return;
    h->taken = number;
    if (h->taken == h->number)
        h->cfg.events->heard(h->cfg.arg);
}

/* ---- members ---- */
/* Returns whether that is the one which fell silent: two rounds go by before it is dialed again,
 * also where another member still takes it for the leader; and no more time than it was waited for,
 * since the others may be out of reach. */
static bool shunned(const struct home_caller *h, const char *address)
{
    return h->n_addresses > 1 && h->failures < 2 * h->n_addresses &&
           strcmp(address, h->silent) == 0 &&
           loop_now_ms(h->loop) - h->silent_ms < pace_silence_ms(h->report.lease_ms, SILENCE_MS);
}

static void silent_note(struct home_caller *h)
{
    str_copy(h->silent, sizeof h->silent, h->dialed);
    h->silent_ms = loop_now_ms(h->loop);
}

static void server_next(struct home_caller *h)
{
    h->server = (h->server + 1) % h->n_addresses;
    if (shunned(h, h->addresses[h->server]))
        h->server = (h->server + 1) % h->n_addresses;
}

static void server_find(struct home_caller *h, const char *address)
{
    for (unsigned i = 0; i < h->n_addresses; i++)
        if (strcmp(h->addresses[i], address) == 0)
            h->server = i;
}

/* The order knew the members of its own time: a run that lives long, or began before all had come,
 * would have nobody left to dial. */
static void members_take(struct home_caller *h, const char *const *members, uint32_t n)
{
    char at[PEER_NAME_MAX];
    unsigned taken = 0;

    str_copy(at, sizeof at, h->addresses[h->server]);
    for (uint32_t i = 0; i < n && taken < HOME_ADDRESSES_MAX; i++)
        if (strchr(members[i], ':') && strlen(members[i]) < PEER_NAME_MAX)
            str_copy(h->addresses[taken++], PEER_NAME_MAX, members[i]);
    h->n_addresses = taken ? taken : h->n_addresses;
    if (taken)
        h->server = 0;
    server_find(h, at);
}

/* ---- what the hub says ---- */
static void welcomed(struct home_caller *h, const struct home_welcome *w)
{
    if (h->welcome)
        return;
    h->welcome = true;
    h->failures = h->redirects = h->refusals = 0;
    h->why[0] = h->silent[0] = '\0';
    log_event(LOG_INFO, "run.home", LOG_FIELDS({"hub", log_str(stream_peer(h->stream)->address)}));
    taken(h, h->sent); /* HELLO had it */
    report_send(h);
    h->cfg.events->welcome(h->cfg.arg, w);
}

static void refused(struct home_caller *h, const struct home_refused *r)
{
    bool again = strcmp(h->why, r->text) == 0;

    h->refusals++;
    str_copy(h->why, sizeof h->why, r->text);
    log_event(again ? LOG_DEBUG : LOG_ERROR, "run.refused", LOG_FIELDS({"why", log_str(r->text)}));
    h->cfg.events->refused(h->cfg.arg, r);
}

static int order_take(struct home_caller *h, const struct frame *f, struct arena *m,
                      struct err *err)
{
    const struct home_caller_events *ev = h->cfg.events;
    struct shim_renew *renew = NULL;
    struct shim_stop *stop = NULL;
    struct shim_save *save = NULL;
    int rc = 0;

    if (!h->welcome)
        return 0;
    if (f->type == HOME_RENEW)
        rc = wire_read(shim_renew, f->body, m, &renew, err);
    else if (f->type == HOME_STOP)
        rc = wire_read(shim_stop, f->body, m, &stop, err);
    else if (f->type == HOME_SAVE)
        rc = wire_read(shim_save, f->body, m, &save, err);
    else if (f->type == HOME_HEARD)
        taken(h, f->id);
    else if (f->type == HOME_GO)
        ev->go(h->cfg.arg);
    else if (f->type >= SF_LOGS)
        ev->frame(h->cfg.arg, f);
    if (renew)
        ev->renew(h->cfg.arg, renew);
    else if (stop)
        ev->stop(h->cfg.arg, stop);
    else if (save)
        ev->save(h->cfg.arg, save);
    return rc;
}

/* The next one after it is dialed when it is lost. */
static void redirected(struct home_caller *h, const char *address)
{
    if (shunned(h, address))
        return;
    str_copy(h->redirect, sizeof h->redirect, address);
    server_find(h, address);
}

static int caller_frame(const struct frame *f, void *arg)
{
    struct home_caller *h = arg;
    struct wire_redirect *to = NULL;
    struct home_refused *no = NULL;
    struct home_welcome *at = NULL;
    struct err err = {0};
    int rc = 0;
    AUTO_ARENA m = arena_create(0);

    h->heard_ms = loop_now_ms(h->loop);
    switch ((enum home_frame)f->type) {
    case HOME_WELCOME:
        if (f->body.n)
            rc = wire_read(home_welcome, f->body, m, &at, &err);
        if (rc == 0) {
            h->keeps = h->keeps || (at && at->keeps);
            if (at)
                members_take(h, at->members, at->n_members);
            welcomed(h, at && *at->node ? at : NULL);
        }
        break;
    case HOME_REDIRECT:
        rc = wire_read(wire_redirect, f->body, m, &to, &err);
        if (rc == 0 && h->redirects++ < REDIRECTS_MAX)
            redirected(h, to->address);
        break;
    case HOME_REFUSED:
        rc = wire_read(home_refused, f->body, m, &no, &err);
        if (rc == 0)
            refused(h, no);
        break;
    default:
        rc = order_take(h, f, m, &err);
        break;
    }
    if (rc < 0 || to || no) {
        stream_abort(h->stream, rc < 0 ? err.text : "");
        return 1;
    }
    return 0;
}

/* ---- the session ---- */
static void hello_send(struct home_caller *h)
{
    const struct home_hello hello = {.token = h->cfg.token,
                                     .version = HANSE_VERSION,
                                     .at_ms = loop_now_ms(h->loop),
                                     .report = &h->report,
                                     .instance = h->instance,
                                     .logs = h->cfg.logs,
                                     .execs = h->cfg.execs,
                                     .keeps = h->cfg.logs};

    h->sent = h->number;
    wire_tell(h->stream, HOME_HELLO, 0, home_hello, &hello);
}

static void caller_open(struct stream *s, void *arg)
{
    struct home_caller *h = arg;

    (void)s;
    h->open = true;
    h->heard_ms = loop_now_ms(h->loop);
    hello_send(h);
    timer_start(&h->beat, pace_beat_ms(h->report.lease_ms));
}

static void caller_data(struct stream *s, const void *p, size_t n, void *arg)
{
    struct home_caller *h = arg;
    struct err err;

    if (frame_feed(&h->reader, p, n, caller_frame, h, &err) < 0)
        stream_abort(s, err.text);
}

static void caller_drained(struct stream *s, void *arg)
{
    (void)s;
    report_send(arg);
}

static void caller_beat(void *arg)
{
    struct home_caller *h = arg;
    const struct wire_beat b = {.at_ms = loop_now_ms(h->loop)};

    if (!h->open)
        return;
    if (loop_now_ms(h->loop) - h->heard_ms > pace_silence_ms(h->report.lease_ms, SILENCE_MS)) {
        silent_note(h);
        stream_abort(h->stream, "the hub is silent");
        return;
    }
    if (h->welcome)
        wire_tell(h->stream, HOME_BEAT, 0, wire_beat, &b);
    timer_start(&h->beat, pace_beat_ms(h->report.lease_ms));
}

static void session_over(struct home_caller *h)
{
    bool was = h->welcome;

    h->stream = NULL;
    h->open = h->welcome = false;
    frame_reader_fini(&h->reader);
    timer_stop(&h->beat);
    if (was)
        h->cfg.events->lost(h->cfg.arg);
}

/* Doubling with each round, and anywhere in the upper half: a thousand do not come back in one
 * moment. */
static void dial_later(struct home_caller *h)
{
    unsigned rounds = h->failures / h->n_addresses;
    uint64_t wait = BACKOFF_MIN_MS, most = pace_redial_ms(h->report.lease_ms, h->refusals);

    if (h->redirect[0]) {
        timer_start(&h->dial, 0);
        return;
    }
    if (h->redirects >= REDIRECTS_MAX) /* one for each dial, from then on */
        h->redirects = REDIRECTS_MAX - 1;
    if (h->failures % h->n_addresses == 0)
        wait = BACKOFF_MIN_MS << (rounds < 12 ? rounds : 12);
    if (wait > most)
        wait = most;
    h->failures++;
    server_next(h);
    timer_start(&h->dial, wait / 2 + loop_random_u64(h->loop) % (wait / 2));
}

static void caller_closed(struct stream *s, const struct err *why, void *arg)
{
    struct home_caller *h = arg;

    (void)s;
    if (!h->open && why->code == E_TIMEOUT)
        silent_note(h);
    if (why->code && *why->text) {
        str_copy(h->why, sizeof h->why, why->text);
        if (h->failures < LOGGED_MAX)
            log_err(LOG_WARN, "run.home_lost", why);
    }
    session_over(h);
    dial_later(h);
}

static const struct stream_events caller_events = {
    .open = caller_open, .data = caller_data, .drained = caller_drained, .closed = caller_closed};

static void caller_dial(void *arg)
{
    struct home_caller *h = arg;
    uint64_t share = ROUND_MAX_MS / h->n_addresses;
    struct err err;

    str_copy(h->dialed, sizeof h->dialed, h->redirect[0] ? h->redirect : h->addresses[h->server]);
    h->redirect[0] = '\0';
    share = share < DIAL_MIN_MS ? DIAL_MIN_MS : share < DIAL_MAX_MS ? share : DIAL_MAX_MS;
    share = pace_silence_ms(h->report.lease_ms, share);
    frame_reader_init(&h->reader);
    if (stream_connect_via(h->loop, h->cfg.proxy, h->dialed, h->cfg.tls, ALPN_RUNNER, share,
                           &caller_events, h, &h->stream, &err) < 0) {
        str_copy(h->why, sizeof h->why, err.text);
        log_err(LOG_WARN, "run.home_lost", &err);
        session_over(h);
        dial_later(h);
    }
}

/* ---- its life ---- */
int home_addresses_read(char *list, const char *ret[HOME_ADDRESSES_MAX], unsigned *ret_n,
                        struct err *err)
{
    unsigned n = 0;

    for (char *p = list; p; n++) {
        char *comma = strchr(p, ',');
        if (comma)
            *comma = '\0';
        if (n == HOME_ADDRESSES_MAX || !strchr(p, ':'))
            return err_set(err, E_USAGE, "--home %.200s: expected HOST:PORT,… , at most %d of them",
                           p, HOME_ADDRESSES_MAX);
        ret[n] = p;
        p = comma ? comma + 1 : NULL;
    }
    *ret_n = n;
    return 0;
}

int home_proxy_read(const char *home, const char *url, const char *login, struct proxy *ret,
                    bool *ret_has, struct err *err)
{
    union { /* the command line is this process's own */
        const char *c;
        char *m;
    } text = {url};

    *ret_has = false;
    if ((url && !home) || (login && !url))
        return err_set(err, E_USAGE,
                       "--home-proxy belongs to --home, and --home-proxy-auth to --home-proxy");
    if (!url)
        return 0;
    /* What is secret here is in the guard's memory, too; its will is then of no use to a user who
     * is not root (guard_linux.c). What --home-proxy-auth names is read later, by the shim. */
    if (strchr(url, '@') || strcmp(url, "environment") == 0)
        home_memory_keep();
    int rc = proxy_option(text.m, ret, err);
    *ret_has = rc > 0;
    return rc < 0 ? err_prefix(err, "--home-proxy") : 0;
}

struct home_caller *home_caller_create(struct loop *l, const struct home_caller_config *cfg)
{
    struct home_caller *h = mem_new(struct home_caller);

    PRE(cfg->n_addresses > 0 && cfg->n_addresses <= HOME_ADDRESSES_MAX);
    h->loop = l;
    h->cfg = *cfg;
    h->report.step = RUN_STEP_STARTING;
    h->report.grant = 1; /* none is held, and one may be taken */
    h->number = 1;
    (void)snprintf(h->instance, sizeof h->instance, "%016llx",
                   (unsigned long long)loop_random_u64(l));
    /* All runners of a gang dial at once otherwise, all of them the same member. */
    for (unsigned i = 0; i < cfg->n_addresses; i++)
        str_copy(h->addresses[h->n_addresses++], PEER_NAME_MAX, cfg->addresses[i]);
    h->server = (unsigned)(loop_random_u64(l) % cfg->n_addresses);
    timer_init(&h->dial, l, caller_dial, h);
    timer_init(&h->beat, l, caller_beat, h);
    timer_start(&h->dial, 0);
    return h;
}

struct home_caller *home_caller_destroy(struct home_caller *h)
{
    static const struct stream_events nobody = {0};

    if (!h)
        return NULL;
    timer_stop(&h->dial);
    if (h->stream) {
        stream_set(h->stream, &nobody, NULL);
        stream_close(h->stream);
        session_over(h);
    }
    mem_free(h);
    return NULL;
}
