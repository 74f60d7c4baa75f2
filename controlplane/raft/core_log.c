/* The leader's side of the log: group commit. All commands that wait while an append is under way
 * share the next entry, up to LIMIT_ENTRY_MAX_BYTES. There is one raft_apply at a time, always with
 * one buffer: with more, libraft 0.22.1 silently submits the first only. */
#include "controlplane/raft/core_internal.h"

#include "api/base/failpoint.h"

#include <stdio.h>
#include <string.h>

#define ENTRY_ROOM (64u << 10) /* the entry's header and the commands' lengths */

void log_enqueue(struct core *c, struct proposal *p)
{
    proposal_place(p, PLACE_QUEUED);
    core_kick(c);
}

static void give_back(struct proposal *p)
{
    if (p->origin)
        proposal_free(p); /* its member sends it again, to whoever leads */
    else if (p->term)
        proposal_fail(p, E_STALE, "this member no longer leads in that term");
    else
        proposal_place(p, PLACE_UNSENT);
}

/* What was accepted already stays in c->sent: only apply or the deadline resolves it. */
void log_lost(struct core *c)
{
    while (!list_empty(&c->queue))
        give_back(container_of(c->queue.next, struct proposal, link));
}

struct batch {
    struct raft_apply req;
    struct core *c;
};

static void batch_done(struct raft_apply *req, int status, void *result)
{
    struct batch *b = container_of(req, struct batch, req);
    struct core *c = b->c;

    (void)status; /* apply has resolved what was committed; anything else is unknown until then */
    (void)result;
    c->appending = false;
    mem_free(b);
    if (!c->closing)
        core_kick(c);
}

/* Fills b with the next entry; its commands move to `batch`. */
/* Not taken, and never was. */
static void refuse(struct core *c, struct proposal *p, int code, const char *text)
{
    unsigned char body[4 + REQUEST_ID_MAX];

    if (!p->origin) {
        proposal_fail(p, code, text);
        return;
    }
    le32_put(body, (uint32_t)-code);
    memcpy(body + 4, p->id, strlen(p->id));
    (void)inbound_send(c, p->origin, FRAME_REFUSED, 0, body, 4 + strlen(p->id));
    proposal_free(p);
}

/* A member that does not know it would stop at it, or part from the others. */
static bool all_know(const struct core *c, const struct proposal *p)
{
    uint32_t needs = command_needs(slice_make(p->command, p->n));

    return needs <= FEATURE_FIRST || needs <= root_feature_level(c->root);
}

/* What it costs to apply it is charged before it enters the log: an entry is applied in one go, on
 * the loop that must send the heartbeats. */
static bool affordable(struct core *c, struct proposal *p, uint64_t *cost)
{
    char text[160];

    *cost = command_cost(c->root, slice_make(p->command, p->n));
    if (*cost <= LIMIT_COMMAND_COST_BYTES)
        return true;
    (void)snprintf(text, sizeof text,
                   "it touches objects of %llu bytes together, at most %u are allowed: do it in "
                   "parts",
                   (unsigned long long)*cost, LIMIT_COMMAND_COST_BYTES);
    refuse(c, p, E_TOOLARGE, text);
    return false;
}

static void gather(struct core *c, struct buf *b, struct list *batch)
{
    uint64_t cost, all = 0;
    unsigned n = 0;

    struct entry_head head = {.number = root_number(c->root) + 1,
                              .term = c->lead_term,
                              .time_ms = PLANTED("raft.own-clock") ? loop_wall_ms(c->loop)
                                                                   : core_time_ms(c)};

    entry_begin(b, &head);
    while (!list_empty(&c->queue)) {
        struct proposal *p = container_of(c->queue.next, struct proposal, link);

        if (p->term && p->term != c->lead_term) {
            give_back(p);
            continue;
        }
        if (!all_know(c, p)) {
            refuse(c, p, E_NOTIMPL, PROPOSAL_NOT_ALL_KNOW);
            continue;
        }
        if (!affordable(c, p, &cost))
            continue;
        if (n == LIMIT_ENTRY_COMMANDS_MAX)
            break;
        if (!list_empty(batch) && (b->n + p->n + ENTRY_ROOM / 8 > LIMIT_ENTRY_MAX_BYTES ||
                                   all + cost > LIMIT_ENTRY_COST_BYTES))
            break;
        all += cost;
        n++;
        entry_add(b, slice_make(p->command, p->n));
        proposal_place(p, PLACE_NONE);
        list_push(batch, &p->link);
    }
    entry_end(b);
    INV(!b->failed && b->n % 8 == 0); /* commands were measured as they came in */
    if (FAILPOINT_TAKES("log.entry")) /* one that no member can apply */
        b->p[b->n - 1] ^= 1;
}

static void accepted(struct core *c, struct list *batch)
{
    while (!list_empty(batch)) {
        struct proposal *p = container_of(list_pop(batch), struct proposal, link);

        if (p->origin) {
            proposal_free(p);
            continue;
        }
        p->attempts++;
        p->sent_ms = loop_now_ms(c->loop);
        proposal_place(p, PLACE_SENT);
    }
}

static void refused(struct core *c, struct list *batch, int rv)
{
    while (!list_empty(batch)) {
        struct proposal *p = container_of(list_pop(batch), struct proposal, link);

        list_init(&p->link);
        if (rv != RAFT_NOSPACE) {
            give_back(p);
        } else if (p->attempts && !p->origin) {
            proposal_place(p, PLACE_SENT);
        } else {
            refuse(c, p, E_NOSPACE, "most members' disks are full: free space on them");
        }
    }
}

void log_flush(struct core *c)
{
    struct raft_buffer rb;
    struct batch *apply;
    struct list batch;
    struct buf b;
    int rv;

    if (!c->leads || c->appending || c->dead || c->closing || list_empty(&c->queue))
        return;
    list_init(&batch);
    buf_init(&b, LIMIT_ENTRY_MAX_BYTES + LIMIT_COMMAND_MAX_BYTES + ENTRY_ROOM);
    gather(c, &b, &batch);
    if (list_empty(&batch)) {
        buf_fini(&b);
        return;
    }
    rb = (struct raft_buffer){.base = raft_malloc(b.n), .len = b.n};
    if (!rb.base) {
        struct err why;

        buf_fini(&b);
        accepted(c, &batch);
        (void)err_set(&why, E_NOMEM, "no memory for an entry of the log of %zu bytes", rb.len);
        core_fatal(c, &why);
        return;
    }
    memcpy(rb.base, b.p, b.n);
    buf_fini(&b);
    apply = mem_new(struct batch);
    apply->c = c;
    rv = raft_apply(&c->raft, &apply->req, &rb, 1, batch_done);
    if (!rv) {
        c->appending = true;
        accepted(c, &batch);
        return;
    }
    mem_free(apply);
    if (rv == RAFT_NOTLEADER || rv == RAFT_NOSPACE || rv == RAFT_CANTCHANGE) {
        raft_free(rb.base); /* refused before it entered the log */
        refused(c, &batch, rv);
    } else { /* it may be in the log, in memory or with a follower: who owns the buffer is not known
                either */
        struct err why;

        accepted(c, &batch);
        core_raft_err(c, rv, "appending to the log", &why);
        core_fatal(c, &why);
    }
}

/* No append completes for 10 s though the disk has room: libraft has lost a completion
 * (controlplane/DESIGN.md, State and log). */
void log_watch(struct core *c)
{
    uint64_t now = loop_now_ms(c->loop);
    struct err why;

    if (c->raft.last_stored != c->stored_seen || raft_last_index(&c->raft) <= c->raft.last_stored ||
        files_disk_full(c)) {
        c->stored_seen = c->raft.last_stored;
        c->stored_ms = now;
    } else if (now - c->stored_ms >= APPEND_STUCK_MS) {
        err_set(&why, E_IO,
                "no write to the log in %.200s has completed for %d s: the outcome of what was "
                "proposed is unknown; check "
                "the disk and start this member again",
                c->cfg.data_dir, APPEND_STUCK_MS / 1000);
        core_fatal(c, &why);
    }
}
