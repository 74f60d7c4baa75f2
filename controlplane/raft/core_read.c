/* Linearizable reads and proofs of leadership by ReadIndex, without the disk. The leader notes its
 * commit index, asks the voters for their durable term, and once a majority (itself included) has
 * answered that it is not above the leader's own, no newer leader can have committed anything
 * before the round began. The reads that wait share a round; those that come while it is under way
 * share the next. It never trusts a clock: there is no lease. */
#include "controlplane/raft/core_internal.h"

#include "api/base/failpoint.h"

#include <string.h>

void reads_init(struct core *c)
{
    list_init(&c->readers);
    list_init(&c->in_round);
    list_init(&c->applying);
}

bool reads_waiting(const struct core *c)
{
    return !list_empty(&c->readers) || !list_empty(&c->in_round) || !list_empty(&c->applying);
}

static void deliver(void *arg) /* on the caller's loop */
{
    struct reader *r = arg;

    r->cb(r->arg, r->err.code ? &r->err : NULL);
    mem_free(r);
}

static void finish(struct reader *r)
{
    struct core *c = r->c;

    list_remove(&r->link);
    if (r->kind == READER_REMOTE) {
        unsigned char body[12];

        le32_put(body, (uint32_t)-r->err.code);
        le64_put(body + 4, r->index);
        (void)inbound_send(c, r->origin, FRAME_INDEX_IS, r->question, body, sizeof body);
        mem_free(r);
        return;
    }
    loop_post(r->from, deliver, r);
}

static void fail(struct reader *r, int code, const char *text)
{
    err_set(&r->err, code, "%s", text);
    finish(r);
}

static void round_cancel(struct core *c)
{
    c->round.active = false;
    while (!list_empty(&c->in_round)) { /* to the front, in order */
        struct list *e = c->in_round.prev;

        list_remove(e);
        list_push(c->readers.next, e);
    }
}

void reads_leader_changed(struct core *c)
{
    round_cancel(c);
}

static void round_done(struct core *c)
{
    struct list *e;

    c->round.active = false;
    while ((e = list_pop(&c->in_round))) {
        struct reader *r = container_of(e, struct reader, link);

        r->index = c->round.index;
        if (r->kind == READER_READ && core_applied(c) < r->index)
            list_push(&c->applying, &r->link);
        else
            finish(r);
    }
    core_kick(c);
}

/* ---- on the leader ---- */
static void round_check(struct core *c)
{
    const struct raft_configuration *conf = &c->raft.configuration;
    unsigned voters = 0, agreed = 0;

    for (unsigned i = 0; i < conf->n; i++) {
        struct peer *p;

        if (conf->servers[i].role != RAFT_VOTER)
            continue;
        voters++;
        p = peer_find(c, conf->servers[i].id);
        if (conf->servers[i].id == c->cfg.id || (p && p->round_agreed == c->round.id))
            agreed++;
    }
    if (agreed <= voters / 2)
        return;
    if (raft_state(&c->raft) == RAFT_LEADER && raft_current_term(&c->raft) == c->round.term &&
        c->leads)
        round_done(c);
    else
        round_cancel(c);
}

void reads_term_is(struct core *c, struct peer *p, uint64_t round, uint64_t term)
{
    if (!c->round.active || c->round.remote || round != c->round.id || term > c->round.term)
        return;
    p->round_agreed = round;
    round_check(c);
}

static void round_begin_leader(struct core *c)
{
    unsigned char body[8];

    c->round.remote = false;
    c->round.term = c->lead_term;
    c->round.index = raft_commit_index(&c->raft);
    if (PLANTED("raft.local-reads")) {
        round_done(c);
        return;
    }
    le64_put(body, c->round.term);
    list_for_each (it, &c->peers) {
        struct peer *p = container_of(it, struct peer, link);

        if (p->voter)
            (void)peer_send(c, p->id, FRAME_TERM_ASK, c->round.id, body, sizeof body);
    }
    round_check(c);
}

void reads_index_ask(struct core *c, uint64_t origin, uint64_t question)
{
    struct reader *r = mem_new(struct reader);

    r->c = c;
    r->kind = READER_REMOTE;
    r->origin = origin;
    r->question = question;
    r->due_ms = loop_now_ms(c->loop) + RESEND_MS; /* the asker asks again long before */
    list_push(&c->readers, &r->link);
    core_kick(c);
}

/* ---- on the others ---- */
void reads_index_is(struct core *c, uint64_t round, int code, uint64_t index)
{
    if (!c->round.active || !c->round.remote || round != c->round.id)
        return;
    if (code) /* it leads no more: this round runs out, and the next asks whoever leads then */
        return;
    c->round.index = index;
    round_done(c);
}

/* Only the leader can confirm, and only the leader answers others. */
static void keep_local_reads(struct core *c)
{
    list_for_each_safe (it, tmp, &c->readers) {
        struct reader *r = container_of(it, struct reader, link);

        if (r->kind == READER_CONFIRM)
            fail(r, E_STALE, "this member does not lead in that term");
        else if (r->kind == READER_REMOTE && raft_state(&c->raft) != RAFT_LEADER)
            fail(r, E_UNAVAIL, "this member does not lead");
    }
}

static void drop_stale_confirms(struct core *c)
{
    list_for_each_safe (it, tmp, &c->readers) {
        struct reader *r = container_of(it, struct reader, link);

        if (r->kind == READER_CONFIRM && r->term != c->lead_term)
            fail(r, E_STALE, "this member does not lead in that term");
    }
}

static void round_begin(struct core *c)
{
    uint64_t leader = core_leader(c), now = loop_now_ms(c->loop);

    if (c->leads) {
        drop_stale_confirms(c);
    } else {
        keep_local_reads(c);
        if (!leader || leader == c->cfg.id)
            return;
    }
    if (list_empty(&c->readers))
        return;
    if (!c->leads && !peer_find(c, leader))
        return;
    c->round.active = true;
    c->round.started_ms = now;
    c->round.id++;
    for (struct list *e; (e = list_pop(&c->readers));)
        list_push(&c->in_round, e);
    if (c->leads) {
        round_begin_leader(c);
        return;
    }
    c->round.remote = true;
    c->round.index = core_applied(c);
    if (PLANTED("raft.local-reads"))
        round_done(c);
    else if (!peer_send(c, leader, FRAME_INDEX_ASK, c->round.id, NULL, 0))
        round_cancel(c);
}

static void expire(struct list *list, uint64_t now)
{
    list_for_each_safe (it, tmp, list) {
        struct reader *r = container_of(it, struct reader, link);

        if (now >= r->due_ms)
            fail(r, E_UNAVAIL, "no leader proved in time that it still leads");
    }
}

void reads_tick(struct core *c)
{
    uint64_t now = loop_now_ms(c->loop);

    expire(&c->readers, now);
    expire(&c->in_round, now);
    expire(&c->applying, now);
    list_for_each_safe (it, tmp, &c->applying) {
        struct reader *r = container_of(it, struct reader, link);

        if (core_applied(c) >= r->index)
            finish(r);
    }
    if (c->round.active && now - c->round.started_ms >= ROUND_MS)
        round_cancel(c);
    if (!c->round.active && !list_empty(&c->readers))
        round_begin(c);
}

void reads_fini(struct core *c)
{
    struct list *all[] = {&c->readers, &c->in_round, &c->applying};

    c->round.active = false;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        while (!list_empty(all[i]))
            fail(container_of(all[i]->next, struct reader, link), E_UNAVAIL,
                 "this member is stopping");
}

/* ---- from any loop ---- */
static void read_on_core(void *arg)
{
    struct reader *r = arg;
    struct core *c = r->c;

    r->due_ms = loop_now_ms(c->loop) + r->deadline_ms;
    if (c->closing || c->dead) {
        fail(r, E_UNAVAIL, c->stopped ? c->why_dead.text : "this member is stopping");
        return;
    }
    list_push(&c->readers, &r->link);
    core_kick(c);
}

static void ask(struct core *c, struct loop *from, enum reader_kind kind, uint64_t term,
                uint64_t deadline_ms, read_cb cb, void *arg)
{
    struct reader *r = mem_new(struct reader);

    list_init(&r->link);
    r->c = c;
    r->kind = kind;
    r->from = from;
    r->term = term;
    r->deadline_ms = deadline_ms;
    r->cb = cb;
    r->arg = arg;
    loop_post(c->loop, read_on_core, r);
}

void core_read(struct core *c, struct loop *from, uint64_t deadline_ms, read_cb cb, void *arg)
{
    ask(c, from, READER_READ, 0, deadline_ms, cb, arg);
}

void core_confirm(struct core *c, struct loop *from, uint64_t term, uint64_t deadline_ms,
                  read_cb cb, void *arg)
{
    ask(c, from, READER_CONFIRM, term, deadline_ms, cb, arg);
}
