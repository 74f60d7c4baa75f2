/* Proposals: from any thread to the leader's log, and their results back. Each ends exactly once:
 * applied here, refused before anyone took it, or unknown at its deadline. It is never turned into
 * a failure once it has left this table (attempts > 0); sending it again is harmless because the
 * state keeps request ids. */
#include "controlplane/raft/core_internal.h"

#include "api/base/hash.h"

#include <string.h>

static struct list *bucket_of(struct core *c, const char *id)
{
    return &c->buckets[hash_slot(id, PROPOSAL_BUCKETS)];
}

void proposals_init(struct core *c)
{
    list_init(&c->queue);
    list_init(&c->unsent);
    list_init(&c->sent);
    list_init(&c->resolved);
    for (size_t i = 0; i < PROPOSAL_BUCKETS; i++)
        list_init(&c->buckets[i]);
}

struct proposal *proposal_create(struct core *c, const char *id, struct slice command)
{
    struct proposal *p = mem_zalloc(sizeof *p + command.n);
    size_t n = strnlen(id, REQUEST_ID_MAX - 1);

    list_init(&p->link);
    list_init(&p->bucket);
    p->c = c;
    p->n = command.n;
    memcpy(p->id, id, n);
    memcpy(p->command, command.p, command.n);
    return p;
}

void proposal_place(struct proposal *p, enum proposal_place place)
{
    struct core *c = p->c;

    list_remove(&p->link);
    if (p->place == PLACE_QUEUED) {
        c->queue_n--;
        c->queue_bytes -= p->n;
    }
    p->place = place;
    if (place == PLACE_QUEUED) {
        c->queue_n++;
        c->queue_bytes += p->n;
        list_push(&c->queue, &p->link);
    } else if (place == PLACE_UNSENT) {
        list_push(&c->unsent, &p->link);
    } else if (place == PLACE_SENT) {
        list_push(&c->sent, &p->link);
    }
}

void proposal_free(struct proposal *p)
{
    proposal_place(p, PLACE_NONE);
    list_remove(&p->bucket);
    mem_free(p);
}

static void deliver(void *arg) /* on the caller's loop */
{
    struct proposal *p = arg;

    p->cb(p->arg, p->err.code ? NULL : &p->result, p->err.code ? &p->err : NULL);
    mem_free(p);
}

static void finish(struct proposal *p)
{
    INV(!p->origin);
    proposal_place(p, PLACE_NONE);
    list_remove(&p->bucket);
    atomic_fetch_sub(&p->c->waiting, 1);
    atomic_fetch_sub(&p->c->waiting_bytes, p->n);
    loop_post(p->from, deliver, p);
}

void proposal_fail(struct proposal *p, int code, const char *text)
{
    err_set(&p->err, code, "%s", text);
    finish(p);
}

/* store_apply's each(): the new root is not yet published, so what is resolved waits in
 * c->resolved. */
void proposals_applied(const struct result *r, void *core)
{
    struct core *c = core;
    struct list *bucket = bucket_of(c, r->request_id);

    list_for_each_safe (it, tmp, bucket) {
        struct proposal *p = container_of(it, struct proposal, bucket);

        if (strcmp(p->id, r->request_id) != 0)
            continue;
        list_remove(&p->bucket);
        proposal_place(p, PLACE_NONE);
        list_push(&c->resolved, &p->link);
        p->result = *r;
    }
}

void proposals_deliver(struct core *c, bool applied)
{
    struct list *e;

    while ((e = list_pop(&c->resolved))) {
        struct proposal *p = container_of(e, struct proposal, link);

        if (applied)
            finish(p);
        else
            proposal_fail(p, E_UNKNOWN, "this member stopped while it applied the entry");
    }
}

/* ---- to the leader ---- */
static void forward(struct core *c, struct proposal *p, uint64_t leader)
{
    size_t id_n = strlen(p->id), n = 1 + id_n + p->n;
    unsigned char *body = mem_alloc(n);

    body[0] = (unsigned char)id_n;
    memcpy(body + 1, p->id, id_n);
    memcpy(body + 1 + id_n, p->command, p->n);
    if (peer_send(c, leader, FRAME_FORWARD, 0, body, n)) {
        p->attempts++;
        p->sent_ms = loop_now_ms(c->loop);
        proposal_place(p, PLACE_SENT);
    }
    mem_free(body);
}

void proposals_route(struct core *c)
{
    uint64_t leader = core_leader(c);

    list_for_each_safe (it, tmp, &c->unsent) {
        struct proposal *p = container_of(it, struct proposal, link);

        if (p->term && (!c->leads || p->term != c->lead_term))
            proposal_fail(p, E_STALE, "this member does not lead in that term");
        else if (c->leads)
            log_enqueue(c, p);
        else if (leader && leader != c->cfg.id)
            forward(c, p, leader);
    }
}

void proposal_refused(struct core *c, const char *id, int code)
{
    list_for_each_safe (it, tmp, bucket_of(c, id)) {
        struct proposal *p = container_of(it, struct proposal, bucket);

        if (!strcmp(p->id, id) && p->place == PLACE_SENT && p->attempts == 1)
            proposal_fail(p, code,
                          code == E_NOSPACE   ? "most members' disks are full: free space on them"
                          : code == E_NOTIMPL ? PROPOSAL_NOT_ALL_KNOW
                          : code == E_TOOLARGE
                              ? "it touches more bytes of objects than one command may: do it "
                                "in parts"
                              : "the leader's queue is full: try again later");
    }
}

static void expire(struct list *list, uint64_t now)
{
    list_for_each_safe (it, tmp, list) {
        struct proposal *p = container_of(it, struct proposal, link);

        if (p->origin || now < p->due_ms)
            continue;
        if (p->attempts)
            proposal_fail(p, E_UNKNOWN,
                          "the command was sent and no result came in time: it may have taken "
                          "effect; read back, or send "
                          "it again with the same request id");
        else
            proposal_fail(p, E_UNAVAIL, "no leader took the command in time: it had no effect");
    }
}

/* Deadlines, and what was sent to a leader that is gone or silent goes out again. */
void proposals_sweep(struct core *c, bool leader_changed)
{
    uint64_t now = loop_now_ms(c->loop);

    expire(&c->queue, now);
    expire(&c->unsent, now);
    expire(&c->sent, now);
    list_for_each_safe (it, tmp, &c->sent) {
        struct proposal *p = container_of(it, struct proposal, link);

        if (!p->term && (leader_changed || now - p->sent_ms >= RESEND_MS))
            proposal_place(p, PLACE_UNSENT);
    }
}

void proposals_fini(struct core *c)
{
    struct list *all[] = {&c->queue, &c->unsent, &c->sent};

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        while (!list_empty(all[i])) {
            struct proposal *p = container_of(all[i]->next, struct proposal, link);

            if (p->origin)
                proposal_free(p);
            else if (p->attempts)
                proposal_fail(p, E_UNKNOWN, "this member was stopped before the result came");
            else
                proposal_fail(p, E_UNAVAIL,
                              "this member was stopped before a leader took the command");
        }
}

/* ---- from any loop ---- */
static void propose_on_core(void *arg)
{
    struct proposal *p = arg;
    struct core *c = p->c;

    p->due_ms = loop_now_ms(c->loop) + p->deadline_ms;
    if (c->closing || c->dead) {
        proposal_fail(p, E_UNAVAIL, c->stopped ? c->why_dead.text : "this member is stopping");
        return;
    }
    list_push(bucket_of(c, p->id), &p->bucket);
    proposal_place(p, PLACE_UNSENT);
    core_kick(c);
}

void core_propose_in_term(struct core *c, struct loop *from, uint64_t term, const char *request_id,
                          struct slice command, uint64_t deadline_ms, propose_cb cb, void *arg)
{
    struct proposal *p = proposal_create(c, request_id, command);
    unsigned waiting = atomic_fetch_add(&c->waiting, 1);
    size_t bytes = atomic_fetch_add(&c->waiting_bytes, command.n);
    unsigned times = term ? 2 : 1; /* what users send leaves room for Hanse's own */

    p->from = from;
    p->cb = cb;
    p->arg = arg;
    p->term = term;
    p->deadline_ms = deadline_ms;
    if (command.n > LIMIT_COMMAND_MAX_BYTES)
        proposal_fail(p, E_TOOLARGE, "the command is larger than a command may be");
    else if (waiting >= times * LIMIT_PROPOSALS_MAX ||
             (waiting && bytes + command.n > times * QUEUE_MAX_BYTES))
        proposal_fail(p, E_LIMIT, "too many commands wait for their results: try again later");
    else
        loop_post(c->loop, propose_on_core, p);
}

void core_propose(struct core *c, struct loop *from, const char *request_id, struct slice command,
                  uint64_t deadline_ms, propose_cb cb, void *arg)
{
    core_propose_in_term(c, from, 0, request_id, command, deadline_ms, cb, arg);
}
