/* Membership: one change at a time, done by the leader, asked of any member. Each operation is
 * re-derived from the present configuration whenever it is stepped, so that asking twice, or of a
 * new leader half-way, does no harm: join = add as spare, then standby; promote = standby, then
 * voter once it has caught up; remove = out of the configuration, then out of the state's list of
 * members. */
#include "controlplane/raft/core_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define ASK_AGAIN_MS 2000

void members_init(struct core *c)
{
    list_init(&c->members);
}

static void maybe_free(struct member_work *w)
{
    if (!w->answered || w->busy)
        return;
    list_remove(&w->link);
    mem_free(w);
}

struct told { /* the answer on its way to the caller's loop */
    read_cb cb;
    void *arg;
    struct err err;
};

static void deliver(void *arg)
{
    struct told *t = arg;

    t->cb(t->arg, t->err.code ? &t->err : NULL);
    mem_free(t);
}

static void answer(struct member_work *w)
{
    struct core *c = w->c;

    if (w->answered)
        return;
    w->answered = true;
    if (w->origin) {
        unsigned char body[4 + ERR_TEXT_MAX];
        size_t n = w->err.code ? strlen(w->err.text) : 0;

        le32_put(body, (uint32_t)-w->err.code);
        memcpy(body + 4, w->err.text, n);
        (void)inbound_send(c, w->origin, FRAME_MEMBER_IS, w->question, body, 4 + n);
    } else {
        struct told *t = mem_new(struct told);

        *t = (struct told){.cb = w->cb, .arg = w->arg, .err = w->err};
        loop_post(w->from, deliver, t);
    }
}

static void done(struct member_work *w)
{
    answer(w);
    core_kick(w->c);
}

#define refuse(w, ...)                                                                             \
    do {                                                                                           \
        err_set(&(w)->err, __VA_ARGS__);                                                           \
        done(w);                                                                                   \
    } while (0)

/* ---- on the leader ---- */
static void change_done(struct raft_change *req, int status)
{
    struct member_work *w = container_of(req, struct member_work, change);

    w->busy = false;
    if (status && status != RAFT_LEADERSHIPLOST)
        refuse(w, E_UNAVAIL,
               "the change of members was given up: %s (is the member running and in reach?)",
               raft_strerror(status));
    core_kick(w->c);
}

static void transfer_done(struct raft_transfer *req)
{
    struct member_work *w = container_of(req, struct member_work, transfer);
    uint64_t leader = core_leader(w->c);

    w->busy = false;
    if (raft_state(&w->c->raft) == RAFT_LEADER || (w->peer.id && leader != w->peer.id))
        refuse(w, E_UNAVAIL, "the member did not take over in time; member %" PRIu64 " leads",
               leader);
    else
        done(w);
}

/* rv of a call that would call back later. */
static void began(struct member_work *w, int rv)
{
    struct core *c = w->c;

    if (!rv) {
        w->busy = true;
        return;
    }
    if (c->raft.legacy.change == &w->change) /* raft_assign leaves it behind when it fails */
        c->raft.legacy.change = NULL;
    if (rv == RAFT_CANTCHANGE || rv == RAFT_NOTLEADER || rv == RAFT_NOSPACE)
        return; /* another change is under way: the sweep tries again until the deadline */
    (void)core_raft_err(c, rv, "changing the members", &w->err);
    done(w);
}

static void record_done(void *arg, const struct result *r, const struct err *err)
{
    struct member_work *w = arg;

    (void)r;
    w->busy = false;
    if (err)
        w->err = *err;
    done(w);
    core_maybe_closed(w->c);
}

static void propose_record(struct core *c, const struct member_cmd *cmd, propose_cb cb, void *arg)
{
    union command command = {.member = *cmd};
    struct buf b;

    command.head.type = CMD_MEMBER;
    (void)snprintf(command.head.user, sizeof command.head.user, "member:%" PRIu64, c->cfg.id);
    (void)snprintf(command.head.request_id, sizeof command.head.request_id,
                   "member-%" PRIu64 "-%016" PRIx64, c->cfg.id, loop_random_u64(c->loop));
    buf_init(&b, 16384);
    command_encode(&command, &b);
    INV(!b.failed);
    core_propose(c, c->loop, command.head.request_id, slice_make(b.p, b.n), 10 * RESEND_MS, cb,
                 arg);
    buf_fini(&b);
}

static void step_remove(struct member_work *w, const struct raft_server *server)
{
    struct core *c = w->c;
    struct member_cmd cmd = {.member = {.id = w->peer.id}, .remove = true};

    if (w->peer.id == c->cfg.id) {
        refuse(w, E_INVALID,
               "member %" PRIu64 " leads: hand leadership over first (hanse members transfer)",
               w->peer.id);
        return;
    }
    if (server) {
        began(w, raft_remove(&c->raft, &w->change, w->peer.id, change_done));
        return;
    }
    w->busy = true;
    propose_record(c, &cmd, record_done, w);
}

static void step(struct member_work *w)
{
    struct core *c = w->c;
    const struct raft_configuration *conf = &c->raft.configuration;
    const struct raft_server *server = NULL;

    for (unsigned i = 0; i < conf->n; i++)
        if (conf->servers[i].id == w->peer.id)
            server = &conf->servers[i];
    if (w->op == MEMBER_TRANSFER) {
        if (w->peer.id == c->cfg.id)
            done(w);
        else
            began(w, raft_transfer(&c->raft, &w->transfer, w->peer.id, transfer_done));
    } else if (w->op == MEMBER_REMOVE) {
        step_remove(w, server);
    } else if (w->op == MEMBER_JOIN && !server) {
        if (conf->n >= MEMBERS_MAX)
            refuse(w, E_LIMIT, "a cluster has at most %d members", MEMBERS_MAX);
        else
            began(w, raft_add(&c->raft, &w->change, w->peer.id, w->peer.address, change_done));
    } else if (!server) {
        refuse(w, E_NOTFOUND, "no member has the id %" PRIu64 ": add it first (hanse members add)",
               w->peer.id);
    } else if (w->op == MEMBER_JOIN && strcmp(server->address, w->peer.address) != 0) {
        refuse(w, E_EXISTS,
               "member %" PRIu64 " is at %s: remove it first to give it another address",
               w->peer.id, server->address);
    } else if (server->role == RAFT_SPARE) {
        began(w, raft_assign(&c->raft, &w->change, w->peer.id, RAFT_STANDBY, change_done));
    } else if (w->op == MEMBER_PROMOTE && server->role == RAFT_STANDBY) {
        began(w, raft_assign(&c->raft, &w->change, w->peer.id, RAFT_VOTER, change_done));
    } else {
        done(w);
    }
}

/* ---- on the others ---- */
static void ask(struct member_work *w, uint64_t leader)
{
    struct core *c = w->c;
    uint64_t now = loop_now_ms(c->loop);
    unsigned char body[9 + sizeof w->peer.address];
    size_t n = strlen(w->peer.address);

    if (w->origin) {                    /* its member asks the new leader itself */
        refuse(w, E_UNAVAIL, "%s", ""); /* no text: ask another */
        return;
    }
    if (!leader || leader == c->cfg.id ||
        (w->asked_epoch == c->epoch && now - w->asked_ms < ASK_AGAIN_MS))
        return;
    body[0] = (unsigned char)w->op;
    le64_put(body + 1, w->peer.id);
    memcpy(body + 9, w->peer.address, n);
    if (peer_send(c, leader, FRAME_MEMBER_ASK, w->question, body, 9 + n)) {
        w->asked_epoch = c->epoch;
        w->asked_ms = now;
    }
}

void members_answer(struct core *c, uint64_t question, int code, struct slice text)
{
    list_for_each_safe (it, tmp, &c->members) {
        struct member_work *w = container_of(it, struct member_work, link);

        if (w->question != question || w->origin || w->answered || w->busy)
            continue;
        if (code == E_UNAVAIL && !text.n) { /* it no longer leads: ask again soon */
            w->asked_ms = loop_now_ms(c->loop) - ASK_AGAIN_MS + 2 * SWEEP_MS;
            continue;
        }
        if (code)
            refuse(w, code, "%.*s", (int)(text.n > 400 ? 400 : text.n), (const char *)text.p);
        else
            done(w);
    }
}

void members_ask(struct core *c, uint64_t origin, uint64_t question, struct slice body)
{
    const unsigned char *b = body.p;
    struct member_work *w;

    if (body.n < 9 || body.n - 9 >= sizeof w->peer.address || b[0] > MEMBER_TRANSFER)
        return;
    w = mem_new(struct member_work);
    w->c = c;
    w->op = (enum member_op)b[0];
    w->peer.id = le64_get(b + 1);
    memcpy(w->peer.address, b + 9, body.n - 9);
    w->origin = origin;
    w->question = question;
    w->due_ms = loop_now_ms(c->loop) + 60 * SECOND_MS;
    list_push(&c->members, &w->link);
    core_kick(c);
}

void members_tick(struct core *c)
{
    uint64_t now = loop_now_ms(c->loop), leader = core_leader(c);
    bool busy = false;

    list_for_each_safe (it, tmp, &c->members) {
        struct member_work *w = container_of(it, struct member_work, link);

        if (!w->answered && now >= w->due_ms)
            refuse(w, E_UNKNOWN,
                   "the change of members was not finished in time: look at the members before "
                   "another try");
        if (!w->answered && !w->busy && !c->leads)
            ask(w, leader);
        maybe_free(w);
    }
    list_for_each (it, &c->members)
        busy |= container_of(it, struct member_work, link)->busy;
    if (busy || !c->leads || list_empty(&c->members))
        return;
    step(container_of(c->members.next, struct member_work, link));
}

bool members_busy(const struct core *c)
{
    list_for_each (it, &c->members)
        if (container_of(it, struct member_work, link)->busy)
            return true;
    return false;
}

void members_fini(struct core *c)
{
    list_for_each_safe (it, tmp, &c->members) {
        struct member_work *w = container_of(it, struct member_work, link);

        if (!w->answered)
            refuse(w, E_UNKNOWN, "this member is stopping");
        maybe_free(w);
    }
}

/* ---- this member's own record in the state ---- */
static void own_record_done(void *arg, const struct result *r, const struct err *err)
{
    struct core *c = arg;

    (void)r;
    (void)err; /* the next second looks again */
    c->own_record_proposed = false;
    core_maybe_closed(c);
}

static bool recorded(struct core *c)
{
    struct member_info *all = mem_alloc(sizeof *all * MEMBERS_MAX);
    size_t n = root_members(c->root, all, MEMBERS_MAX);
    bool found = false;

    for (size_t i = 0; i < n && i < MEMBERS_MAX; i++)
        found |= all[i].id == c->cfg.id && !strcmp(all[i].address, c->cfg.address) &&
                 !strcmp(all[i].api_address, c->cfg.api_address) &&
                 !strcmp(all[i].name, c->cfg.name) && all[i].feature_level == FEATURE_LEVEL;
    mem_free(all);
    return found;
}

static bool configured(const struct core *c)
{
    for (unsigned i = 0; i < c->raft.configuration.n; i++)
        if (c->raft.configuration.servers[i].id == c->cfg.id)
            return true;
    return false;
}

void members_second(struct core *c)
{
    bool named = root_cluster_uid(c->root)[0] != 0;
    struct member_cmd cmd = {.member = {.id = c->cfg.id, .feature_level = FEATURE_LEVEL}};

    if (c->own_record_proposed || !core_leader(c) || !configured(c) || (!named && !c->leads) ||
        (named && recorded(c)))
        return;
    str_copy(cmd.member.address, sizeof cmd.member.address, c->cfg.address);
    str_copy(cmd.member.api_address, sizeof cmd.member.api_address, c->cfg.api_address);
    str_copy(cmd.member.name, sizeof cmd.member.name, c->cfg.name);
    if (!named)
        (void)snprintf(cmd.cluster_uid, sizeof cmd.cluster_uid, "%016" PRIx64 "%016" PRIx64,
                       loop_random_u64(c->loop), loop_random_u64(c->loop));
    c->own_record_proposed = true;
    propose_record(c, &cmd, own_record_done, c);
}

/* ---- from any loop ---- */
static void member_on_core(void *arg)
{
    struct member_work *w = arg;
    struct core *c = w->c;

    w->due_ms = loop_now_ms(c->loop) + w->deadline_ms;
    w->question = ++c->questions;
    list_push(&c->members, &w->link);
    if (c->closing || c->dead)
        refuse(w, E_UNAVAIL, c->stopped ? c->why_dead.text : "this member is stopping");
    core_kick(c);
}

void core_member(struct core *c, struct loop *from, enum member_op op, const struct core_peer *peer,
                 uint64_t deadline_ms, read_cb cb, void *arg)
{
    struct member_work *w = mem_new(struct member_work);

    list_init(&w->link);
    w->c = c;
    w->op = op;
    if (peer)
        w->peer = *peer;
    w->from = from;
    w->deadline_ms = deadline_ms;
    w->cb = cb;
    w->arg = arg;
    loop_post(c->loop, member_on_core, w);
}
