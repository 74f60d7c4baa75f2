/* What libraft 0.22.1 leaves to us of the empty AppendEntries (Raft, section 5.2 and 5.3).
 *
 * A follower's commit index never goes back, whatever comes late.
 *
 * A follower that waits for the commit index need not wait for a heartbeat: libraft's leader tells
 * it with entries and heartbeats only, so a lone write that came through a follower would wait
 * there for up to two of them. The leader sends one at once to a member that has lately forwarded
 * something or asked for the index, as soon as the entry is committed and that member has said that
 * it is on its disk.
 *
 * A member hears from its leader in each tick: libraft sends a heartbeat only when it has sent
 * nothing for as long as a tick, but takes a follower that has not answered since the last tick for
 * unreachable, and holds the next entry for it back until the tick after that. */
#include "controlplane/raft/core_internal.h"

#define WAITS_MS 1000 /* since it asked: it asks again when it still waits */

/* libraft 0.22.1 sets a follower's commit index to what a message reaches, also when that is less
 * than it was: by one that was late, or whose leader begins further back. Entries that are
 * committed stay so (Raft, figure 3.1); it would name the next snapshot for an older index than its
 * state. */
void commit_keep(const struct raft *r, struct raft_message *m)
{
    struct raft_append_entries *a = &m->append_entries;

    if (a->leader_commit > r->commit_index && a->prev_log_index + a->n_entries < r->commit_index)
        a->leader_commit = r->commit_index;
}

void commit_awaited(struct core *c, uint64_t by)
{
    struct peer *p = peer_find(c, by);

    if (p)
        p->awaits_until_ms = loop_now_ms(c->loop) + WAITS_MS;
}

/* After libraft has taken it: what that member has on its disk in this term. */
void commit_acked(struct core *c, uint64_t id, const struct raft_append_entries_result *r)
{
    struct peer *p = c->leads && r->term == c->lead_term && !r->rejected ? peer_find(c, id) : NULL;

    if (!p)
        return;
    if (p->acked_term != r->term) {
        p->acked_term = r->term;
        p->acked = p->told = 0;
    }
    if (r->last_log_index > p->acked)
        p->acked = r->last_log_index;
    core_kick(c);
}

static void sent(struct raft_io_send *req, int status)
{
    (void)status; /* the next heartbeat says it as well */
    mem_free(req);
}

static void tell(struct core *c, struct peer *p, uint64_t index)
{
    struct raft_io_send *req = mem_new(struct raft_io_send);
    struct raft_message m = {
        .type = RAFT_APPEND_ENTRIES,
        .server_id = p->id,
        .server_address = p->address,
        .append_entries = {.term = c->lead_term,
                           .prev_log_index = index,
                           .prev_log_term = core_term_of(&c->raft, index),
                           .leader_commit = index},
    };

    p->told = index;
    if (c->io->send(c->io, req, &m, sent))
        mem_free(req);
}

static bool tells(struct core *c)
{
    return c->leads && raft_state(&c->raft) == RAFT_LEADER &&
           raft_current_term(&c->raft) == c->lead_term;
}

/* What that member has, and is committed; 0: not known in this term. */
static uint64_t known_by(struct core *c, const struct peer *p)
{
    uint64_t commit = raft_commit_index(&c->raft);

    if (p->gone || p->acked_term != c->lead_term)
        return 0;
    return p->acked < commit ? p->acked : commit;
}

void commit_tick(struct core *c)
{
    uint64_t now = loop_now_ms(c->loop);

    if (!tells(c))
        return;
    list_for_each (it, &c->peers) {
        struct peer *p = container_of(it, struct peer, link);
        uint64_t index = known_by(c, p);

        if (now < p->awaits_until_ms && index > p->told)
            tell(c, p, index);
    }
}

/* ---- around libraft's own ---- */
static int send_noted(struct raft_io *io, struct raft_io_send *req, const struct raft_message *m,
                      raft_io_send_cb cb)
{
    struct raft *r = io->data;
    struct core *c = r->data;
    struct peer *p = m->type == RAFT_APPEND_ENTRIES ? peer_find(c, m->server_id) : NULL;

    if (p)
        p->sent_this_tick = true;
    return c->io_send(io, req, m, cb);
}

static void ticked(struct raft_io *io)
{
    struct raft *r = io->data;
    struct core *c = r->data;

    list_for_each (it, &c->peers)
        container_of(it, struct peer, link)->sent_this_tick = false;
    c->io_tick(io);
    if (!tells(c))
        return;
    list_for_each (it, &c->peers) {
        struct peer *p = container_of(it, struct peer, link);
        uint64_t index = known_by(c, p);

        if (!p->sent_this_tick && index)
            tell(c, p, index);
    }
}

raft_io_tick_cb commit_hook_io(struct core *c, raft_io_tick_cb tick)
{
    c->io_tick = tick;
    c->io_send = c->io->send;
    c->io->send = send_noted;
    return ticked;
}
