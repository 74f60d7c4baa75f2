/* Wires one member: the core on its thread; API, brain and connectors on the outer loop. It holds
 * no logic of its own, and must never let the outer loop's work delay the core's heartbeats. */
#include "controlplane/server/server.h"

#include "api/base/limits.h"
#include "api/base/log.h"
#include "api/base/net/tls.h"
#include "api/server/api.h"
#include "controlplane/leader/brain.h"
#include "controlplane/server/backend.h"
#include "controlplane/server/zones.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define CLOSE_GRACE_MS 2000
#define BOOTSTRAP_DEADLINE_MS 30000
#define CA_MAX_BYTES (256u << 10)

struct server {
    struct control control; /* first: the backend is the server */
    struct server_config cfg;
    struct loop *loop, *core_loop;
    struct api *api;
    struct http_server *http;
    struct listener *listener;
    struct tls_config *tls, *tls_peers;
    struct buf ca; /* text of ca_file; runners are told whom to trust */
    int port;
    atomic_bool root_posted, closing;
    struct err start_error, fatal_error;
    bool fatal_told;
    void (*closed)(void *arg);
    void *closed_arg;
};

/* ---- from the core's thread to the outer loop ---- */
static void root_arrived(void *arg)
{
    struct server *s = arg;

    atomic_store(&s->root_posted, false);
    if (atomic_load(&s->closing))
        return;
    brain_root(s->control.brain);
    if (s->control.on_view)
        s->control.on_view(s->control.on_view_arg);
}
static void core_root_event(void *arg)
{
    struct server *s = arg;

    if (!atomic_exchange(&s->root_posted, true))
        loop_post(s->loop, root_arrived, s);
}

static void bootstrap_done(void *arg, const struct result *r, const struct err *err)
{
    (void)arg;
    if (err)
        log_err(LOG_WARN, "server.bootstrap", err);
    else if (r->code)
        log_event(LOG_WARN, "server.bootstrap", LOG_FIELDS({"error", log_str(r->text)}));
}
static void bootstrap_collect(struct object *o, void *arg)
{
    struct write_cmd *w = arg;
    struct write_op *op = &w->ops[w->n];

    if (w->n == 128)
        return;
    w->n++;
    op->verb = WRITE_CREATE;
    op->kind = o->kind->id;
    str_copy(op->ns, sizeof op->ns, o->meta->namespace_);
    str_copy(op->name, sizeof op->name, o->meta->name);
    op->object = object_ref(o);
}
/* The documents that every cluster begins with; proposed by each new leader, a no-op where they
 * exist. */
static void bootstrap_propose(struct server *s)
{
    union command c = {
        .write = {.head = {.type = CMD_WRITE, .user = "hanse:bootstrap"}, .if_absent = true}};
    AUTO_BUF bytes;

    buf_init(&bytes, LIMIT_COMMAND_MAX_BYTES);
    uuid_make(s->loop, c.write.head.request_id);
    c.write.ops = mem_zalloc(128 * sizeof *c.write.ops);
    api_bootstrap_objects(bootstrap_collect, &c.write);
    for (uint32_t i = 0; i < c.write.n; i++) {
        AUTO_ARENA a = arena_create(0);
        struct {
            uint64_t has;
            struct slice unknown;
            struct meta *metadata;
        } *body = object_edit(c.write.ops[i].object, a);
        char uid[37];
        uuid_make(s->loop, uid);
        body->metadata->uid = uid;
        struct object *o = object_make(c.write.ops[i].object->kind, body);
        (void)object_unref(c.write.ops[i].object);
        c.write.ops[i].object = o;
    }
    command_encode(&c, &bytes);
    INV(!bytes.failed); /* what this program brings along */
    core_propose(s->control.core, s->loop, c.write.head.request_id, slice_make(bytes.p, bytes.n),
                 BOOTSTRAP_DEADLINE_MS, bootstrap_done, s);
    for (uint32_t i = 0; i < c.write.n; i++)
        (void)object_unref(c.write.ops[i].object);
    mem_free(c.write.ops);
}

struct leading {
    struct server *s;
    bool leads;
    uint64_t term;
};
static void leading_arrived(void *arg)
{
    struct leading *n = arg;
    struct server *s = n->s;

    if (!atomic_load(&s->closing)) {
        log_event(LOG_INFO, n->leads ? "member.leads" : "member.follows",
                  LOG_FIELDS({"term", log_u64(n->term)}, {"member", log_u64(s->cfg.core.id)}));
        if (n->leads)
            bootstrap_propose(s);
        brain_leading(s->control.brain, n->leads, n->term);
    }
    mem_free(n);
}
static void core_leading_event(void *arg, bool leads, uint64_t term)
{
    struct server *s = arg;
    struct leading *n = mem_new(struct leading);

    *n = (struct leading){s, leads, term};
    loop_post(s->loop, leading_arrived, n);
}

static void fatal_arrived(void *arg)
{
    struct server *s = arg;

    s->cfg.fatal(s->cfg.arg, &s->fatal_error);
}
static void core_fatal_event(void *arg, const struct err *why)
{
    struct server *s = arg;

    if (s->fatal_told)
        return;
    s->fatal_told = true;
    s->fatal_error = *why;
    loop_post(s->loop, fatal_arrived, s);
}

/* ---- start ---- */
static struct tls_config *tls_to_member(void *arg, uint64_t id)
{
    struct server *s = arg;
    char name[32];
    struct tls_config *c = NULL;

    (void)snprintf(name, sizeof name, "member:%llu", (unsigned long long)id);
    struct tls_config_spec spec = {.cert_file = s->cfg.cert_file,
                                   .key_file = s->cfg.key_file,
                                   .ca_file = s->cfg.ca_file,
                                   .server_name = name};
    struct err e;
    if (tls_config_create(&spec, false, &c, &e))
        log_err(LOG_ERROR, "tls.config", &e);
    return c;
}

static void core_started(void *arg);
static void core_thread(struct loop *l, void *arg)
{
    struct server *s = arg;
    static const struct core_events ev = {
        .leading = core_leading_event, .root = core_root_event, .fatal = core_fatal_event};

    if (core_create(l, &s->cfg.core, &ev, s, &s->control.core, &s->start_error))
        s->control.core = NULL;
    loop_post(s->loop, core_started, s);
}

static void accepted(struct listener *li, struct stream *st, void *arg)
{
    struct server *s = arg;
    struct root *r = core_root(s->control.core);
    bool revoked = root_certificate_revoked(r, stream_peer(st));

    (void)li;
    (void)root_unref(r);
    if (revoked)
        log_event(LOG_WARN, "access.revoked",
                  LOG_FIELDS({"certificate", log_str(stream_peer(st)->name)},
                             {"fingerprint", log_str(stream_peer(st)->fingerprint)}));
    if (atomic_load(&s->closing))
        stream_abort(st, "this member is shutting down");
    else if (revoked)
        stream_abort(st, "the certificate was revoked");
    else if (!strcmp(stream_peer(st)->alpn, ALPN_AGENT))
        brain_agent(s->control.brain, st);
    else if (!strcmp(stream_peer(st)->alpn, ALPN_RUNNER))
        brain_runner(s->control.brain, st);
    else if (!strcmp(stream_peer(st)->alpn, ALPN_RELAY))
        relay_accept(&s->control, st);
    else
        http_server_accept(s->http, st);
}

static int tls_open(struct server *s, struct tls_config **ret, struct err *err)
{
    static const char *const mutual[] = {ALPN_AGENT, ALPN_RELAY, NULL};
    static const char *const open[] = {ALPN_RUNNER, NULL};
    struct tls_config_spec spec = {.cert_file = s->cfg.cert_file,
                                   .key_file = s->cfg.key_file,
                                   .ca_file = s->cfg.ca_file,
                                   .alpn_mutual = mutual,
                                   .alpn_open = open};
    int rv = tls_config_create(&spec, true, ret, err);

    if (!rv && s->cfg.ca_file)
        rv = file_read(s->loop, s->cfg.ca_file, CA_MAX_BYTES - 1, &s->ca, err);
    if (!rv && s->cfg.ca_file)
        buf_char(&s->ca, '\0');
    return rv;
}
static int tls_open_peers(struct server *s, struct tls_config **ret, struct err *err)
{
    static const char *const members[] = {ALPN_RAFT, ALPN_PEER, NULL};
    struct tls_config_spec spec = {.cert_file = s->cfg.cert_file,
                                   .key_file = s->cfg.key_file,
                                   .ca_file = s->cfg.ca_file,
                                   .alpn_mutual = members};

    return tls_config_create(&spec, true, ret, err);
}

static void outer_create(struct server *s)
{
    struct brain_config bc = {.loop = s->loop,
                              .core = s->control.core,
                              .driver = s->cfg.driver,
                              .secret_get = backend_secret_get,
                              .secret_put = backend_secret_put,
                              .arg = &s->control,
                              .keys = backend_home_keys(&s->control),
                              .ca = s->ca.n ? s->ca.p : NULL,
                              .zone_offset = zone_offset};

    s->control.loop = s->loop;
    s->control.core_loop = s->core_loop;
    s->control.tls_member = s->cfg.core.tls_client;
    s->control.tls_arg = s->cfg.core.tls_arg;
    backend_init(&s->control);
    s->control.brain = brain_create(&bc);
    struct api_config ac = {.loop = s->loop,
                            .backend = &s->control.backend,
                            .version = HANSE_VERSION,
                            .git_commit = "",
                            .member_name = s->cfg.core.name};
    s->api = api_create(&ac);
    s->http = http_server_create(s->loop, NULL, api_handler(s->api), s->api);
}

static int ready_write(struct server *s, struct err *err)
{
    char text[64];

    if (!s->cfg.ready_file)
        return 0;
    int n = snprintf(text, sizeof text, "%d\n", s->port);
    return file_write(s->loop, s->cfg.ready_file, text, (size_t)n, 0644, err);
}

/* The core is there, or could not start: then the process ends with its error. */
static void core_started(void *arg)
{
    struct server *s = arg;
    struct err e;

    if (atomic_load(&s->closing))
        return;
    if (!s->control.core) {
        s->cfg.fatal(s->cfg.arg, &s->start_error);
        return;
    }
    outer_create(s);
    int rv =
        listener_create(s->loop, s->cfg.listen, s->tls, accepted, s, &s->listener, &s->port, &e);
    if (!rv)
        rv = ready_write(s, &e);
    if (rv)
        s->cfg.fatal(s->cfg.arg, &e);
    else if (s->cfg.listening)
        s->cfg.listening(s->cfg.arg, s->port);
}

/* Said here, where it can be mended: peers would refuse it one by one, and each only say so in its
 * own log. */
static int certificate_check(const struct server *s, struct err *err)
{
    char want[32], have[256];

    (void)snprintf(want, sizeof want, "member:%llu", (unsigned long long)s->cfg.core.id);
    tls_config_name(s->tls_peers, have, sizeof have);
    if (!strcmp(want, have))
        return 0;
    return err_set(
        err, E_INVALID,
        "%.100s has the common name \"%.60s\", but this member needs \"%s\": give its own "
        "certificate with --cert and --key, or the --id that belongs to this one",
        s->cfg.cert_file, have, want);
}

int server_create(struct loop *l, const struct server_config *cfg, struct server **ret,
                  struct err *err)
{
    struct server *s = mem_new(struct server);
    int rv = 0;

    s->cfg = *cfg;
    s->loop = l;
    buf_init(&s->ca, CA_MAX_BYTES);
    if (cfg->cert_file) {
        rv = tls_open(s, &s->tls, err);
        if (!rv)
            rv = tls_open_peers(s, &s->tls_peers, err);
        if (!rv)
            rv = certificate_check(s, err);
        s->cfg.core.tls_server = s->tls_peers;
        s->cfg.core.tls_client = tls_to_member;
        s->cfg.core.tls_arg = s;
    }
    if (!rv)
        rv = file_mkdir(l, cfg->core.data_dir, 0700, err);
    if (!rv)
        rv = keyring_open(l, cfg->key_ring, cfg->core.bootstrap, &s->control.keys, err);
    if (!rv)
        rv = loop_thread_start(l, "core", core_thread, s, &s->core_loop, err);
    if (rv) {
        (void)tls_config_unref(s->tls);
        (void)tls_config_unref(s->tls_peers);
        (void)keyring_close(s->control.keys);
        buf_fini(&s->ca);
        mem_free(s);
        return rv;
    }
    *ret = s;
    return 0;
}

int server_port(const struct server *s)
{
    return s->port;
}

/* ---- end: listener, HTTP, relays, brain, core, in this order ---- */
static void close_finish(void *arg)
{
    struct server *s = arg;

    loop_thread_join(s->core_loop);
    s->api = api_destroy(s->api);
    s->control.figures = figures_destroy(s->control.figures);
    (void)tls_config_unref(s->tls);
    (void)tls_config_unref(s->tls_peers);
    (void)keyring_close(s->control.keys);
    buf_fini(&s->ca);
    void (*closed)(void *) = s->closed;
    void *closed_arg = s->closed_arg;
    mem_free(s);
    closed(closed_arg);
}
static void core_closed(void *arg) /* on the core's loop */
{
    struct server *s = arg;

    loop_stop(s->core_loop);
    loop_post(s->loop, close_finish, s);
}
static void core_close_on_its_loop(void *arg)
{
    struct server *s = arg;

    if (s->control.core)
        core_close(s->control.core, core_closed, s);
    else
        core_closed(s);
}
static void brain_closed(void *arg)
{
    struct server *s = arg;

    loop_post(s->core_loop, core_close_on_its_loop, s);
}
static void relays_closed(void *arg)
{
    struct server *s = arg;

    brain_close(s->control.brain, brain_closed, s);
}
static void http_closed(void *arg)
{
    struct server *s = arg;

    if (s->api)
        api_stop(s->api);
    if (s->control.brain)
        relay_close(&s->control, relays_closed, s);
    else
        brain_closed(s);
}

void server_close(struct server *s, void (*closed)(void *arg), void *arg)
{
    s->closed = closed;
    s->closed_arg = arg;
    if (atomic_exchange(&s->closing, true))
        return;
    listener_close(s->listener);
    if (s->http)
        http_server_close(s->http, CLOSE_GRACE_MS, http_closed, s);
    else /* it ends ahead of having served */
        http_closed(s);
}
