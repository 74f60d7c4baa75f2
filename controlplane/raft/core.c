/* One member's life: start, follow who leads, publish, stop. The only thread that touches libraft
 * is the core loop's. libraft tells nobody when leadership changes; its step hook kicks the tick,
 * and the tick compares. There is no timer faster than libraft's heartbeat, and none but the
 * one-second one while nothing waits. */
#include "controlplane/raft/core_internal.h"

#include "controlplane/raft/aio/aio.h"

#include <inttypes.h>
#include <raft/uv.h>
#include <stdio.h>
#include <string.h>

#define ELECTION_MS 300
#define HEARTBEAT_MS 50
#define INSTALL_SNAPSHOT_MS 60000
/* a member is full when less than this is reserved: a quarter of a segment */
#define CAPACITY_KIB 1024
#define REAP_ITEMS 8192 /* some milliseconds, when each is the last of its object */

static const int raft_codes[][2] = {
    {RAFT_NOMEM, E_NOMEM},       {RAFT_CORRUPT, E_CORRUPT},    {RAFT_NOSPACE, E_NOSPACE},
    {RAFT_NOTLEADER, E_UNAVAIL}, {RAFT_CANTCHANGE, E_BUSY},    {RAFT_BADID, E_NOTFOUND},
    {RAFT_NOTFOUND, E_NOTFOUND}, {RAFT_DUPLICATEID, E_EXISTS}, {RAFT_DUPLICATEADDRESS, E_EXISTS},
    {RAFT_INVALID, E_INTERNAL},  {RAFT_MALFORMED, E_CORRUPT},
};

int core_raft_err(struct core *c, int rv, const char *doing, struct err *err)
{
    int code = E_IO;

    for (size_t i = 0; i < sizeof raft_codes / sizeof *raft_codes; i++)
        if (raft_codes[i][0] == rv)
            code = raft_codes[i][1];
    if (files_disk_full(c))
        return err_set(err, E_NOSPACE,
                       "%s: the disk of %.200s is full: free some space, then start again", doing,
                       c->cfg.data_dir);
    if (code == E_CORRUPT)
        return err_set(err, code,
                       "%s: the log in %.160s is damaged (%.120s): restore it, or remove this "
                       "member, move the "
                       "directory aside and add it again",
                       doing, c->log_dir, c->raft.errmsg);
    return err_set(err, code, "%s: %s (%.200s)", doing, raft_strerror(rv), c->raft.errmsg);
}

uint64_t core_leader(struct core *c)
{
    raft_id id = 0;
    const char *address = NULL;

    raft_leader(&c->raft, &id, &address);
    return id;
}

void core_kick(struct core *c)
{
    if (!c->closing && !timer_active(&c->tick))
        timer_start(&c->tick, 0);
}

void core_fatal(struct core *c, const struct err *why)
{
    if (c->dead)
        return;
    c->dead = true;
    c->why_dead = *why;
    core_kick(c);
}

static void stepped(struct raft *r) /* after each event that libraft has handled */
{
    struct core *c = r->data;

    if (raft_state(r) != RAFT_LEADER && raft_current_term(r) == c->seen_term &&
        core_leader(c) == c->seen_leader)
        return;
    core_kick(c);
}

/* ---- who leads ---- */
struct barrier {
    struct raft_barrier req;
    struct core *c;
    uint64_t term;
};

static void barrier_done(struct raft_barrier *req, int status)
{
    struct barrier *b = container_of(req, struct barrier, req);
    struct core *c = b->c;

    if (!c->closing && !c->dead && raft_state(&c->raft) == RAFT_LEADER &&
        raft_current_term(&c->raft) == b->term) {
        if (status) {
            c->barrier_term = 0; /* again */
        } else {
            c->passed_term = b->term;
            clock_leads(c);
        }
        core_kick(c);
    }
    mem_free(b);
}

static void barrier_begin(struct core *c)
{
    struct barrier *b = mem_new(struct barrier);

    b->c = c;
    b->term = raft_current_term(&c->raft);
    c->barrier_term = b->term;
    if (raft_barrier(&c->raft, &b->req, barrier_done)) {
        c->barrier_term = 0; /* the disks are full, or it hands over: the sweep tries again */
        mem_free(b);
        timer_start(&c->sweep, SWEEP_MS);
    }
}

/* Its state is complete and it knows the time: it may propose, stamp and decide. */
static void lead(struct core *c, uint64_t term)
{
    c->leads = true;
    c->lead_term = term;
    log_event(LOG_INFO, "raft.leader",
              LOG_FIELDS({"term", log_u64(term)}, {"member", log_u64(c->cfg.id)}));
    if (c->ev.leading)
        c->ev.leading(c->arg, true, term);
    members_second(c);
}

static void follow_leader(struct core *c)
{
    uint64_t leader = core_leader(c), term = raft_current_term(&c->raft);
    bool is_leader = raft_state(&c->raft) == RAFT_LEADER;

    if (c->leads && (!is_leader || term != c->lead_term)) {
        c->leads = false;
        log_lost(c);
        if (c->ev.leading)
            c->ev.leading(c->arg, false, c->lead_term);
    }
    if (!is_leader && !list_empty(&c->queue)) /* it led, but never as far as its barrier */
        log_lost(c);
    if (leader != c->seen_leader || term != c->seen_term) {
        c->seen_leader = leader;
        c->seen_term = term;
        c->epoch++;
        proposals_sweep(c, true);
        reads_leader_changed(c);
    }
    if (is_leader && c->barrier_term != term)
        barrier_begin(c);
    if (is_leader && !c->leads && c->passed_term == term && clock_anchored(c) && !c->restore.active)
        lead(c, term);
    if (raft_state(&c->raft) == RAFT_UNAVAILABLE && c->raft_open) {
        struct err why;

        err_set(&why, E_IO, "libraft has stopped this member: %.300s", c->raft.errmsg);
        core_fatal(c, &why);
    }
}

/* ---- the tick ---- */
static void publish_status(struct core *c)
{
    struct core_status s = {.id = c->cfg.id,
                            .term = raft_current_term(&c->raft),
                            .index = core_applied(c),
                            .commit = raft_commit_index(&c->raft),
                            .leads = c->leads,
                            .digest = root_digest(c->root)};
    raft_id id = 0;
    const char *address = NULL;

    raft_leader(&c->raft, &id, &address);
    s.leader_id = id;
    if (address)
        str_copy(s.leader_address, sizeof s.leader_address, address);
    if (id) {
        struct member_info *all = mem_alloc(sizeof *all * MEMBERS_MAX);
        size_t n = root_members(c->root, all, MEMBERS_MAX);

        for (size_t i = 0; i < n && i < MEMBERS_MAX; i++)
            if (all[i].id == id)
                str_copy(s.leader_api_address, sizeof s.leader_api_address, all[i].api_address);
        mem_free(all);
    }
    for (unsigned i = 0; i < c->raft.configuration.n; i++)
        if (c->raft.configuration.servers[i].role == RAFT_VOTER && s.voters < CORE_VOTERS_MAX)
            s.voter_ids[s.voters++] = c->raft.configuration.servers[i].id;
    s.ready = id && !c->dead && !c->restore.active && s.commit > 0 && s.index >= s.commit &&
              (c->leads || id != c->cfg.id);
    pthread_mutex_lock(&c->lock);
    c->status = s;
    pthread_mutex_unlock(&c->lock);
}

static void learn_cluster(struct core *c)
{
    const char *uid = root_cluster_uid(c->root);
    struct err e = {0};

    /* Older than what it once was: the log is still on its way to where it had been. */
    if (!uid[0] || !strcmp(uid, c->meta.cluster) || cluster_left_behind(uid, c->meta.cluster))
        return;
    if (c->meta.cluster[0] &&
        (!cluster_left_behind(c->meta.cluster, uid) || !cluster_same_log(c->meta.cluster, uid))) {
        err_set(&e, E_INVALID,
                "%.200s belongs to cluster %s, its leader's is %s: check the peers' addresses",
                c->cfg.data_dir, c->meta.cluster, uid);
        core_fatal(c, &e);
        return;
    }
    str_copy(c->meta.cluster, sizeof c->meta.cluster, uid);
    if (files_save(c, &e)) {
        c->meta.cluster[0] = 0; /* the next root tries again */
        log_err(LOG_WARN, "raft.meta", &e);
    }
}

static void tell_fatal(struct core *c)
{
    if (c->fatal_told)
        return;
    c->fatal_told = true;
    if (c->leads) {
        c->leads = false;
        if (c->ev.leading)
            c->ev.leading(c->arg, false, c->lead_term);
    }
    proposals_fini(c);
    reads_fini(c);
    publish_status(c);
    if (c->stopped) /* it stays, so that it can be asked why */
        transport_deaf(c);
    else if (c->ev.fatal)
        c->ev.fatal(c->arg, &c->why_dead);
}

static void core_tick(void *arg)
{
    struct core *c = arg;

    if (c->closing)
        return;
    if (c->dead) {
        tell_fatal(c);
        return;
    }
    restore_tick(c);
    follow_leader(c);
    peers_reconcile(c);
    proposals_route(c);
    log_flush(c);
    commit_tick(c);
    reads_tick(c);
    members_tick(c);
    publish_status(c);
    if (c->root_changed) {
        c->root_changed = false;
        learn_cluster(c);
        if (c->ev.root)
            c->ev.root(c->arg);
    }
    if (tree_reap(REAP_ITEMS))
        core_kick(c);
    if (c->dead)
        core_kick(c);
    if ((atomic_load(&c->waiting) || reads_waiting(c) || !list_empty(&c->members)) &&
        !timer_active(&c->sweep))
        timer_start(&c->sweep, SWEEP_MS);
}

static void core_sweep(void *arg)
{
    struct core *c = arg;

    if (c->closing || c->dead)
        return;
    proposals_sweep(c, false);
    core_kick(c);
}

static void core_second(void *arg)
{
    struct core *c = arg;

    if (c->closing || c->dead)
        return;
    log_watch(c);
    clock_second(c);
    members_second(c);
    digest_second(c);
    archive_second(c);
    files_second(c);
    snapshot_second(c);
    if (c->root_changed || c->seen_term != raft_current_term(&c->raft))
        core_kick(c);
    publish_status(c);
    timer_start(&c->second, SECOND_MS);
}

/* ---- start ---- */
static void accepted(struct listener *li, struct stream *s, void *arg)
{
    struct core *c = arg;
    const char *alpn = stream_peer(s)->alpn;

    (void)li;
    if (!strcmp(alpn, ALPN_PEER))
        peer_accept(c, s);
    else if (c->dead)
        stream_abort(s, "this member has stopped");
    else if (!strcmp(alpn, ALPN_RAFT) && c->transport)
        transport_accept(c, s);
    else
        stream_abort(s, "not a protocol of members");
}

int core_io_open(struct core *c, struct err *err)
{
    int rv;

    if (c->cfg.raft_io_create)
        return c->cfg.raft_io_create(c->cfg.raft_io_arg, c->loop, c->log_dir, &c->io, err);
    if ((rv = transport_create(c, &c->own_io, err)))
        return rv;
    c->io = &c->own_io;
    raft_uv_set_auto_recovery(c->io,
                              false); /* it would start without entries that were acknowledged */
    raft_uv_set_segment_size(c->io, SEGMENT_BYTES);
    raft_uv_set_disk_retry(c->io, SECOND_MS);
    raft_uv_set_connect_retry_delay(c->io, 200);
    return 0;
}

static void io_close(struct core *c)
{
    if (!c->io)
        return;
    if (c->cfg.raft_io_create) {
        if (c->cfg.raft_io_destroy)
            c->cfg.raft_io_destroy(c->cfg.raft_io_arg, c->io);
    } else {
        raft_uv_close(c->io);
        aio_settle(); /* before somebody else opens the log */
    }
    c->io = NULL;
}

static int bootstrap(struct core *c, struct err *err)
{
    struct raft_configuration conf;
    bool self = false;
    int rv = 0;

    raft_configuration_init(&conf);
    for (unsigned i = 0; i < c->cfg.n_peers && !rv; i++) {
        const struct core_peer *p = &c->peers_configured[i];

        self |= p->id == c->cfg.id;
        rv = raft_configuration_add(&conf, p->id, p->address, RAFT_VOTER);
    }
    if (!rv && !c->cfg.n_peers) {
        self = true;
        rv = raft_configuration_add(&conf, c->cfg.id, c->cfg.address, RAFT_VOTER);
    }
    if (rv)
        rv = err_set(err, E_INVALID,
                     "the peers are not valid: %s (each needs an id and an address of its own)",
                     raft_strerror(rv));
    else if (!self)
        rv = err_set(err, E_INVALID,
                     "a new cluster's peers must include this member (id %" PRIu64 ")", c->cfg.id);
    else if ((rv = raft_bootstrap(&c->raft, &conf)) && rv != RAFT_CANTBOOTSTRAP)
        rv = core_raft_err(c, rv, "starting the new cluster's log", err);
    else
        rv = 0; /* RAFT_CANTBOOTSTRAP: done before a crash kept meta.json from saying so */
    raft_configuration_close(&conf);
    return rv;
}

static int raft_open(struct core *c, struct err *err)
{
    int rv;

    fsm_init(c);
    c->raft.data = c;
    if ((rv = raft_init(&c->raft, c->io, &c->fsm, c->cfg.id, c->cfg.address)))
        return core_raft_err(c, rv, "opening the log", err);
    c->raft_initialised = true;
    fsm_hook_io(c);
    raft_set_election_timeout(&c->raft, c->cfg.election_ms ? c->cfg.election_ms : ELECTION_MS);
    raft_set_heartbeat_timeout(&c->raft, c->cfg.heartbeat_ms ? c->cfg.heartbeat_ms : HEARTBEAT_MS);
    raft_set_install_snapshot_timeout(&c->raft, INSTALL_SNAPSHOT_MS);
    raft_set_pre_vote(&c->raft, true);
    raft_set_capacity_threshold(&c->raft, CAPACITY_KIB);
    if (c->cfg.bootstrap && !c->meta.ready && (rv = bootstrap(c, err)))
        return rv;
    if ((rv = raft_start(&c->raft)))
        return c->dead ? (err ? (void)(*err = c->why_dead) : (void)0, c->why_dead.code)
                       : core_raft_err(c, rv, "starting from the log", err);
    if (c->dead && !c->stopped) /* a snapshot that cannot be */
        return err ? (void)(*err = c->why_dead), c->why_dead.code : c->why_dead.code;
    c->raft_open = true;
    if (!c->meta.ready && !c->cfg.bootstrap)
        log_event(LOG_WARN, "member.empty",
                  LOG_FIELDS({"data", log_str(c->cfg.data_dir)},
                             {"remedy",
                              log_str("this directory holds no member yet: to begin a new cluster, "
                                      "--bootstrap; to join one, ask it with hanse members add N "
                                      "HOST:PORT, this member waits for that; to come back from a "
                                      "backup, hanse restore FILE --data DIR --id N, first")}));
    c->raft.legacy.step_cb = stepped;
    return 0;
}

static void copy_config(struct core *c, const struct core_config *cfg)
{
    c->cfg = *cfg;
    c->peers_configured = mem_zalloc(sizeof *c->peers_configured * (cfg->n_peers + 1));
    if (cfg->n_peers)
        memcpy(c->peers_configured, cfg->peers, sizeof *cfg->peers * cfg->n_peers);
    c->cfg.peers = c->peers_configured;
    c->cfg.listen = cfg->listen ? mem_strdup(cfg->listen) : NULL;
}

void core_free(struct core *c)
{
    if (c->listener)
        listener_close(c->listener);
    timer_stop(&c->tick);
    timer_stop(&c->sweep);
    timer_stop(&c->second);
    archive_close_files(c); /* of a start that failed; else they are */
    io_close(c);
    transport_destroy(c);
    root_unref(c->snapshot_root);
    restore_fini(c);
    root_unref(c->root);
    pthread_mutex_destroy(&c->lock);
    mem_free(c->peers_configured);
    mem_free(c->skips);
    mem_free((void *)(uintptr_t)c->cfg.listen);
    mem_free(c);
}

struct core *core_new(struct loop *l, const struct core_config *cfg, const struct core_events *ev,
                      void *arg)
{
    struct core *c = mem_new(struct core);

    c->loop = l;
    copy_config(c, cfg);
    c->ev = *ev;
    c->arg = arg;
    pthread_mutex_init(&c->lock, NULL);
    clock_init(c);
    list_init(&c->restore.waiting);
    c->root = root_create();
    c->status.id = cfg->id;
    timer_init(&c->tick, l, core_tick, c);
    timer_init(&c->sweep, l, core_sweep, c);
    timer_init(&c->second, l, core_second, c);
    proposals_init(c);
    reads_init(c);
    peers_init(c);
    members_init(c);
    return c;
}

static void create_failed(void *arg)
{
    (void)arg;
}

int core_create(struct loop *l, const struct core_config *cfg, const struct core_events *ev,
                void *arg, struct core **ret, struct err *err)
{
    struct core *c;
    int port, rv;

    PRE(cfg->id > 0 && cfg->address[0]);
    c = core_new(l, cfg, ev, arg);
    if ((rv = files_open(c, err)) || (rv = skips_open(c, err)) || (rv = archive_open(c, err)))
        goto fail;
    if (c->cfg.listen && (rv = listener_create(l, c->cfg.listen, c->cfg.tls_server, accepted, c,
                                               &c->listener, &port, err)))
        goto fail;
    if ((rv = core_io_open(c, err)))
        goto fail;
    if ((rv = raft_open(c, err)))
        goto fail;
    if (!c->meta.ready) {
        c->meta.ready = true;
        if ((rv = files_save(c, err)))
            goto fail;
    }
    c->stored_ms = loop_now_ms(l);
    timer_start(&c->second, SWEEP_MS);
    clock_look(c);
    core_kick(c);
    *ret = c;
    return 0;
fail:
    if (c->raft_initialised) /* libraft has open handles: they end on the loop */
        core_close(c, create_failed, NULL);
    else
        core_free(c);
    return rv;
}

/* ---- stop ---- */
static void core_gone(void *arg)
{
    struct core *c = arg;
    void (*closed)(void *) = c->closed;
    void *closed_arg = c->closed_arg;

    core_free(c);
    closed(closed_arg);
}

static void raft_closed(struct raft *r)
{
    struct core *c = r->data;

    c->closed_raft = true;
    core_maybe_closed(c);
}

void core_maybe_closed(struct core *c)
{
    if (!c->closing || c->jobs || c->keep)
        return;
    if (c->raft_initialised) {
        c->raft_initialised = false;
        raft_close(&c->raft, raft_closed);
        return;
    }
    if (!c->closed_raft || c->streams || transport_busy(c) || members_busy(c) ||
        c->own_record_proposed || timer_active(&c->tick))
        return;
    members_fini(c);
    timer_init(&c->tick, c->loop, core_gone,
               c); /* not from inside libraft's or a stream's callback */
    timer_start(&c->tick, 0);
}

void core_close(struct core *c, void (*closed)(void *arg), void *arg)
{
    PRE(!c->closing);
    c->closing = true;
    c->closed = closed;
    c->closed_arg = arg;
    timer_stop(&c->tick);
    timer_stop(&c->sweep);
    timer_stop(&c->second);
    if (c->listener)
        listener_close(c->listener);
    c->listener = NULL;
    proposals_fini(c);
    reads_fini(c);
    install_held(c); /* lets go of it */
    peers_close(c);
    archive_close_files(c);
    core_maybe_closed(c);
}

/* ---- from any loop ---- */
struct root *core_root(struct core *c)
{
    struct root *r;

    pthread_mutex_lock(&c->lock);
    r = root_ref(c->root);
    pthread_mutex_unlock(&c->lock);
    return r;
}

void core_status(struct core *c, struct core_status *ret)
{
    pthread_mutex_lock(&c->lock);
    *ret = c->status;
    pthread_mutex_unlock(&c->lock);
}

const char *core_data_dir(const struct core *c)
{
    return c->cfg.data_dir;
}
