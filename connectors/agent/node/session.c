/* The session with the server: dials the members in turn, follows the leader, beats. One session at
 * a time; what was asked in an older one is never answered in a newer one. */
#include "api/base/hash.h"
#include "api/base/net/tls.h"
#include "connectors/agent/node/agent_internal.h"
#include "connectors/pace.h"

#include <stdio.h>
#include <string.h>

/* Members are dialed in rounds: one after the other, then a pause, which grows. A round takes no
 * longer than this, and each of them gets its share of it. */
#define ROUND_MAX_MS 10000
#define DIAL_MIN_MS 2000
#define DIAL_MAX_MS 5000
#define BACKOFF_MIN_MS 100
#define BACKOFF_MAX_MS 5000
#define REDIRECTS_MAX 4 /* one after the other */
_Static_assert(BACKOFF_MAX_MS + ROUND_MAX_MS + DIAL_MAX_MS <= AGENT_REDIAL_MAX_MS,
               "hubs wait so long for who has not dialed yet");
/* A HELLO is one frame, and an inventory goes in as many as it needs. */
#define HELLO_RUNS_MAX 128
#define HELLO_WORKERS_MAX 1024 /* of all of them; the others are told once it is welcome */
#define PAGE_BYTES (1u << 20)
#define TOLD_PENDING_MAX (1u << 20)
_Static_assert(HELLO_RUNS_MAX *(WIRE_OBSERVATION_MAX + RUN_KEY_MAX + 96) +
                       (size_t)HELLO_WORKERS_MAX * WIRE_TOLD_MAX + 4096 <=
                   FRAME_BODY_MAX,
               "a HELLO fits");

static void session_dial(void *arg);

/* ---- what is told of each worker ---- */
/* Differs when anything of it that is told does; 0: it has not started yet, and says nothing. */
static uint64_t worker_mark(const struct worker *w)
{
    const struct run_report *p = &w->report;
    bool ended = w->state == WS_ENDED;
    char text[160];

    if (!p->started_ms && !ended)
        return 0;
    (void)snprintf(text, sizeof text, "%lld", (long long)p->started_ms);
    if (ended)
        (void)snprintf(text, sizeof text, "%lld %lld %d %d %s", (long long)p->started_ms,
                       (long long)p->ended_ms, p->exit_code, p->term_signal, p->reason);
    return hash_text(text) | 1;
}

static bool worker_news(const struct worker *w)
{
    uint64_t mark = worker_mark(w);

    return mark && mark != w->told;
}

static bool workers_news(const struct run *r)
{
    for (unsigned i = 0; i < r->n_workers; i++)
        if (worker_news(&r->workers[i]))
            return true;
    return false;
}

static void workers_untold(struct run *r)
{
    for (unsigned i = 0; i < r->n_workers; i++)
        r->workers[i].told = 0;
}

static struct run_worker worker_told(const struct worker *w, struct arena *a)
{
    const struct wire_worker *at = &w->run->order->workers[worker_at(w)];
    const struct run_report *p = &w->report;
    struct run_worker t = {.rank = w->rank,
                           .node = at->node,
                           .gpus = at->gpus,
                           .n_gpus = at->n_gpus,
                           .reason = "",
                           .started_ms = p->started_ms,
                           .id = ""};

    if (p->pid)
        t.id = arena_printf(a, "%lld@%s", (long long)p->pid, w->run->order->boot_id);
    if (w->state == WS_ENDED) {
        t.ended_ms = p->ended_ms;
        t.exit_code = p->exit_code;
        t.term_signal = p->term_signal;
        t.reason = p->reason;
    }
    return t;
}

/* Takes up to max of those of which there is news; they count as told. */
static void workers_take(struct run *r, uint32_t max, struct arena *a, struct run_workers *ret)
{
    *ret = (struct run_workers){.key = r->key, .clock_ms = loop_wall_ms(r->agent->loop)};
    ret->workers = arena_array(a, struct run_worker, max < r->n_workers ? max : r->n_workers);
    for (unsigned i = 0; i < r->n_workers && ret->n_workers < max; i++) {
        struct worker *w = &r->workers[i];
        if (!worker_news(w))
            continue;
        ret->workers[ret->n_workers++] = worker_told(w, a);
        w->told = worker_mark(w);
    }
}

void workers_tell(struct run *r)
{
    while (r->agent->welcome && workers_news(r)) {
        AUTO_ARENA m = arena_create(0);
        struct run_workers told;
        workers_take(r, WIRE_WORKERS_PAGE, m, &told);
        wire_tell(r->agent->stream, AF_WORKERS, 0, run_workers, &told);
    }
}

static void session_hello(struct agent *a)
{
    char id[24], hash[24];
    unsigned n = 0;
    uint32_t room = HELLO_WORKERS_MAX;
    AUTO_ARENA m = arena_create(0);
    struct observation *runs = arena_array(m, struct observation, HELLO_RUNS_MAX);
    struct run_workers *workers = arena_array(m, struct run_workers, HELLO_RUNS_MAX);

    (void)snprintf(id, sizeof id, "%016llx", (unsigned long long)loop_random_u64(a->loop));
    (void)snprintf(hash, sizeof hash, "%016llx", (unsigned long long)a->inventory.hash);
    list_for_each (it, &a->runs) {
        struct run *r = container_of(it, struct run, link);
        r->untold = false;
        workers_untold(r);
        r->hello_state = RUN_UNKNOWN;
        if (n == HELLO_RUNS_MAX)
            continue;
        run_observe(r, &runs[n]);
        r->hello_state = runs[n].state;
        r->hello_save = save_mark(&runs[n].save);
        r->hello_grant = runs[n].grant;
        workers_take(r, room, m, &workers[n]);
        room -= workers[n++].n_workers;
        checkpoints_hello(r);
    }
    const struct wire_hello hello = {.target = a->cfg.target,
                                     .version = HANSE_VERSION,
                                     .session = id,
                                     .boot_id = a->boot_id,
                                     .state_id = a->state_id,
                                     .instance = a->instance,
                                     .cluster = a->cluster,
                                     AGENT_KNOWS,
                                     .heard_cluster = a->heard.cluster,
                                     .heard_rv = a->heard.rv,
                                     .heard_time_ms = a->heard.time_ms,
                                     .at_ms = loop_now_ms(a->loop),
                                     .inventory = hash,
                                     .runs = runs,
                                     .n_runs = n,
                                     .workers = workers,
                                     .n_workers = n};
    wire_tell(a->stream, AF_HELLO, 0, wire_hello, &hello);
}

/* As many as the session takes at once; the others when those have left. */
static void session_tell(struct agent *a)
{
    struct observation o;

    list_for_each (it, &a->runs) {
        struct run *r = container_of(it, struct run, link);
        if (!r->untold || !a->welcome)
            continue;
        if (stream_pending(a->stream) > TOLD_PENDING_MAX)
            return;
        r->untold = false;
        run_observe(r, &o);
        run_tell(r, &o);
    }
}

static void session_drained(struct stream *s, void *arg)
{
    (void)s;
    session_tell(arg);
}

/* HELLO has arrived. What has changed since it left was not sent: nobody had welcomed us. Nor was
 * what it had no room for. */
static void session_welcome(struct agent *a)
{
    list_for_each (it, &a->runs) {
        struct run *r = container_of(it, struct run, link);
        struct observation o;
        bool changed = checkpoints_welcome(r);
        run_observe(r, &o);
        r->untold = changed || workers_news(r) || o.state != r->hello_state ||
                    o.grant != r->hello_grant || save_mark(&o.save) != r->hello_save;
    }
    session_tell(a);
}

static int session_welcomed(struct agent *a, const struct frame *f)
{
    struct wire_hub *hub = NULL;
    struct err err;
    AUTO_ARENA m = arena_create(0);

    if (wire_read(wire_hub, f->body, m, &hub, &err) < 0) {
        stream_abort(a->stream, err.text);
        return 1;
    }
    if (!cluster_welcome(a, hub->cluster)) {
        stream_abort(a->stream, "this hub was left behind: its cluster went on without it");
        return 1;
    }
    cluster_heard(a, hub->cluster, hub->state_rv, hub->state_time_ms);
    streams_session(a->streams, a->stream);
    a->welcome = true;
    a->deltas = hub->deltas;
    session_notices(a);
    session_welcome(a);
    a->failures = a->redirects = 0;
    log_event(LOG_INFO, "agent.session", LOG_FIELDS({"target", log_str(a->cfg.target)}));
    return 0;
}

/* ---- what the server asks ---- */
/* An order writes files and starts processes. A burst of them, one beside the other in one read,
 * held the loop for minutes: leases, ends and the server's patience do not wait. So the agent takes
 * one order in each turn of the loop, and what came behind it waits in its turn. Leases and ends do
 * not wait: a run is stopped, and leases are renewed, ahead of the orders that came before. A stop
 * of an order that waits is a promise that its key never starts here, and it does not. */
#define LATER_MAX_BYTES ((size_t)64 << 20)

struct later {
    struct list link;
    struct frame frame; /* its body lies behind */
    unsigned char body[];
};

static bool goes_ahead(uint8_t type)
{
    return type == AF_STOP || type == AF_SIGNAL || type == AF_RENEW;
}

static void later_add(struct agent *a, const struct frame *f)
{
    struct later *l = mem_alloc(sizeof *l + f->body.n);

    l->frame = *f;
    if (f->body.n)
        memcpy(l->body, f->body.p, f->body.n);
    l->frame.body.p = (const char *)l->body;
    list_push(&a->later, &l->link);
    a->later_bytes += sizeof *l + f->body.n;
}

static struct later *later_take(struct agent *a)
{
    struct list *e = list_pop(&a->later);
    struct later *l = e ? container_of(e, struct later, link) : NULL;

    if (l)
        a->later_bytes -= sizeof *l + l->frame.body.n;
    return l;
}

static void request_take(struct agent *a, const struct frame *f)
{
    if (f->type >= SF_LOGS)
        streams_frame(a->streams, f);
    else
        request_frame(a, f);
    if (f->type == AF_SUBMIT)
        timer_start(&a->next, 0);
}

static int request_came(struct agent *a, const struct frame *f)
{
    if (!timer_active(&a->next) || goes_ahead(f->type))
        request_take(a, f);
    else
        later_add(a, f);
    return a->later_bytes > LATER_MAX_BYTES ? FRAME_ENOUGH : 0;
}

static int session_frame(const struct frame *f, void *arg)
{
    struct agent *a = arg;
    AUTO_ARENA m = arena_create(0);
    struct wire_redirect *to = NULL;
    struct wire_refused *refused = NULL;
    struct wire_hub *hub = NULL;

    a->heard_ms = loop_now_ms(a->loop);
    switch ((enum agent_frame)f->type) {
    case AF_WELCOME:
        return session_welcomed(a, f);
    case AF_REDIRECT:
        if (wire_read(wire_redirect, f->body, m, &to, NULL) == 0 && a->redirects++ < REDIRECTS_MAX)
            agent_redirected(a, to->address);
        stream_close(a->stream);
        return 0;
    case AF_REFUSED:
        if (wire_read(wire_refused, f->body, m, &refused, NULL) == 0)
            log_event(LOG_ERROR, "agent.refused", LOG_FIELDS({"why", log_str(refused->text)}));
        return 0;
    case AF_BEAT: /* to a guest: without a body */
        if (a->welcome && f->body.n && wire_read(wire_hub, f->body, m, &hub, NULL) == 0)
            cluster_heard(a, hub->cluster, hub->state_rv, hub->state_time_ms);
        return 0;
    default:
        return a->welcome ? request_came(a, f) : 0;
    }
}

static void session_open(struct stream *s, void *arg)
{
    struct agent *a = arg;

    (void)s;
    a->open = true;
    a->heard_ms = loop_now_ms(a->loop);
    session_hello(a);
    timer_start(&a->beat, agent_beat_ms(a));
}

static void session_data(struct stream *s, const void *p, size_t n, void *arg)
{
    struct agent *a = arg;
    struct err err;

    if (frame_feed(&a->reader, p, n, session_frame, a, &err) < 0) {
        stream_abort(s, err.text);
        return;
    }
    stream_pause(s, a->reader.waits);
}

static void session_next(void *arg)
{
    struct agent *a = arg;
    struct later *l;

    while (a->stream && !timer_active(&a->next) && (l = later_take(a)) != NULL) {
        request_take(a, &l->frame);
        mem_free(l);
    }
    if (a->stream && a->reader.waits && a->later_bytes <= LATER_MAX_BYTES)
        session_data(a->stream, NULL, 0, a);
}

static void session_over(struct agent *a)
{
    a->stream = NULL;
    a->open = a->welcome = a->deltas = false;
    a->told_inventory = 0;
    frame_reader_fini(&a->reader);
    for (struct later *l; (l = later_take(a)) != NULL;)
        mem_free(l);
    timer_stop(&a->beat);
    timer_stop(&a->next);
    streams_session(a->streams, NULL);
    stage_forget_askers(a);
    list_for_each (it, &a->runs) {
        struct run *r = container_of(it, struct run, link);
        for (struct list *e; (e = list_pop(&r->waiters)) != NULL;)
            mem_free(container_of(e, struct waiter, link));
    }
}

/* Doubling with each round, and anywhere in the upper half: a thousand agents do not come back in
 * one moment. */
static void session_later(struct agent *a)
{
    unsigned rounds = a->failures / a->cfg.n_servers;
    uint64_t wait = BACKOFF_MIN_MS;

    if (a->redirect[0]) {
        timer_start(&a->dial, 0);
        return;
    }
    if (a->redirects >= REDIRECTS_MAX) /* one for each dial, from then on */
        a->redirects = REDIRECTS_MAX - 1;
    if (a->failures % a->cfg.n_servers == 0)
        wait = BACKOFF_MIN_MS << (rounds < 6 ? rounds : 6);
    if (wait > BACKOFF_MAX_MS)
        wait = BACKOFF_MAX_MS;
    a->failures++;
    a->server = (a->server + 1) % a->cfg.n_servers;
    timer_start(&a->dial, wait / 2 + loop_random_u64(a->loop) % (wait / 2));
}

static void session_closed(struct stream *s, const struct err *why, void *arg)
{
    struct agent *a = arg;

    (void)s;
    if (why->code && a->failures < 8)
        log_err(LOG_WARN, "agent.session_lost", why);
    session_over(a);
    session_later(a);
}

static const struct stream_events session_events = {.open = session_open,
                                                    .data = session_data,
                                                    .drained = session_drained,
                                                    .closed = session_closed};

static void session_dial(void *arg)
{
    struct agent *a = arg;
    uint64_t share = ROUND_MAX_MS / a->cfg.n_servers;
    struct err err;
    char address[PEER_NAME_MAX];

    str_copy(address, sizeof address, a->redirect[0] ? a->redirect : a->cfg.servers[a->server]);
    a->redirect[0] = '\0';
    share = share < DIAL_MIN_MS ? DIAL_MIN_MS : share < DIAL_MAX_MS ? share : DIAL_MAX_MS;
    share = pace_silence_ms(agent_lease_ms(a), share);
    frame_reader_init(&a->reader);
    if (stream_connect_via(a->loop, a->cfg.proxy, address, a->cfg.tls, ALPN_AGENT, share,
                           &session_events, a, &a->stream, &err) < 0) {
        log_err(LOG_WARN, "agent.dial", &err);
        session_over(a);
        session_later(a);
    }
}

static void session_beat(void *arg)
{
    struct agent *a = arg;
    const struct wire_beat beat = {.at_ms = loop_now_ms(a->loop)};

    if (!a->open)
        return;
    if (loop_now_ms(a->loop) - a->heard_ms > agent_silence_ms(a)) {
        stream_abort(a->stream, "the server is silent");
        return;
    }
    wire_tell(a->stream, AF_BEAT, 0, wire_beat, &beat);
    timer_start(&a->beat, agent_beat_ms(a));
}

void session_start(struct agent *a)
{
    timer_init(&a->dial, a->loop, session_dial, a);
    timer_init(&a->beat, a->loop, session_beat, a);
    timer_init(&a->next, a->loop, session_next, a);
    list_init(&a->later);
    timer_start(&a->dial, 0);
}

void session_stop(struct agent *a)
{
    static const struct stream_events nobody = {0};

    timer_stop(&a->dial);
    if (!a->stream)
        return;
    stream_set(a->stream, &nobody, NULL);
    stream_abort(a->stream, "the agent stops");
    session_over(a);
}

void session_observed(struct agent *a, const struct observation *o)
{
    if (a->welcome)
        wire_tell(a->stream, AF_OBSERVED, 0, observation, o);
}

void session_answer(struct agent *a, uint64_t id, enum outcome out, const struct err *err,
                    const struct observation *seen)
{
    struct observation copy;
    struct wire_result r = {.outcome = (int)out};

    if (!a->welcome)
        return;
    if (err) {
        r.code = err->code;
        r.text = err->text;
        r.field = err->field;
    }
    if (seen) {
        copy = *seen;
        r.seen = &copy;
    }
    wire_tell(a->stream, AF_RESULT, id, wire_result, &r);
}

static const char *revision_print(uint64_t hash, char out[INVENTORY_REVISION_MAX])
{
    (void)snprintf(out, INVENTORY_REVISION_MAX, "%016llx", (unsigned long long)hash);
    return out;
}

/* Pages: all but the last say that there is more. One that could not be sent is told to who asked,
 * and ends the inventory: nothing of it counts then. */
void session_nodes(struct agent *a, uint64_t id)
{
    const cJSON *n = a->inventory.nodes->child;
    struct wire_nodes page = {.page = 0};
    char revision[INVENTORY_REVISION_MAX];
    struct err err;

    if (!a->welcome)
        return;
    a->told_inventory = 0;
    page.revision = revision_print(a->inventory.hash, revision);
    for (;; page.page++) {
        AUTO_BUF list;
        buf_init(&list, FRAME_BODY_MAX);
        buf_char(&list, '[');
        for (; n && list.n < PAGE_BYTES; n = n->next) {
            char *text = cJSON_PrintUnformatted(n);
            buf_str(&list, list.n > 1 ? "," : "");
            buf_str(&list, text ? text : "null");
            cJSON_free(text);
        }
        buf_char(&list, ']');
        page.nodes = slice_make(list.p, list.n);
        page.more = n != NULL;
        int rc = list.failed ? err_set(&err, E_TOOLARGE, "a node has no room in a frame")
                             : wire_send(a->stream, AF_NODES, id, wire_nodes, &page, &err);
        if (rc < 0) {
            log_err(LOG_ERROR, "agent.inventory", &err);
            if (id)
                session_answer(a, id, OUT_UNKNOWN, &err, NULL);
            return;
        }
        if (!n)
            break;
    }
    a->told_inventory = a->inventory.hash;
}

/* Nodes of the inventory that `was` has not, or has otherwise, as a JSON list. */
static void nodes_changed(const struct agent *a, const struct inventory *was, struct buf *out)
{
    const cJSON *n;

    buf_char(out, '[');
    cJSON_ArrayForEach(n, a->inventory.nodes)
    {
        const cJSON *old = inventory_find(was, inventory_name(n));
        if (old && cJSON_Compare(old, n, true))
            continue;
        char *text = cJSON_PrintUnformatted(n);
        buf_str(out, out->n > 1 ? "," : "");
        buf_str(out, text ? text : "null");
        cJSON_free(text);
    }
    buf_char(out, ']');
}

void session_nodes_changed(struct agent *a, const struct inventory *was)
{
    char revision[INVENTORY_REVISION_MAX], since[INVENTORY_REVISION_MAX];
    const char *removed[AGENT_NODES_MAX];
    struct wire_nodes delta = {.removed = removed};
    const cJSON *n;
    AUTO_BUF list;

    buf_init(&list, PAGE_BYTES);
    if (a->welcome && a->deltas && a->told_inventory == was->hash) {
        nodes_changed(a, was, &list);
        cJSON_ArrayForEach(n, was->nodes)
        {
            if (!inventory_find(&a->inventory, inventory_name(n)))
                removed[delta.n_removed++] = inventory_name(n);
        }
        delta.nodes = slice_make(list.p, list.n);
        delta.revision = revision_print(a->inventory.hash, revision);
        delta.since = revision_print(was->hash, since);
        if (!list.failed && wire_send(a->stream, AF_NODES, 0, wire_nodes, &delta, NULL) == 0) {
            a->told_inventory = a->inventory.hash;
            return;
        }
    }
    session_nodes(a, 0);
}

/* All of them: what is not named is withdrawn. */
void session_notices(struct agent *a)
{
    AUTO_ARENA m = arena_create(0);
    struct wire_notices all = {.notices = arena_array(m, struct wire_notice, AGENT_NODES_MAX)};
    const cJSON *n;

    if (!a->welcome)
        return;
    cJSON_ArrayForEach(n, a->inventory.nodes)
    {
        if (all.n_notices < AGENT_NODES_MAX &&
            notices_of(&a->notices, inventory_name(n), &all.notices[all.n_notices]))
            all.n_notices++;
    }
    wire_tell(a->stream, AF_NOTICES, 0, wire_notices, &all);
}
