/* libraft's state machine: entries go to store_apply, snapshots that come become the root.
 *
 * At the start a snapshot is read at once. On a running member it is read on the thread pool: the
 * entries that libraft applies meanwhile wait, and are applied after it, some at a time. When they
 * are too many, what the leader sends is taken as if it had sent none; it sends again. Until all of
 * them are applied this member reads nothing, leads nothing and makes no snapshot. */
#include "controlplane/raft/core_internal.h"

#include "api/base/failpoint.h"

#include <stdio.h>
#include <string.h>

#define WAITING_MAX_BYTES (64u << 20)
#define SLICE_BYTES (256u << 10) /* applied at a time, between two rounds of the loop */

/* The term of the entry at index, from libraft's own trail: the newest record whose last index is
 * not below it. */
uint64_t core_term_of(const struct raft *r, uint64_t index)
{
    const struct raft_trail *t = &r->trail;

    for (unsigned i = t->front; i != t->back; i = (i + 1) % t->size)
        if (index <= t->records[i].index)
            return t->records[i].term;
    return r->current_term;
}

void core_publish_root(struct core *c, struct root *next)
{
    struct root *old;

    pthread_mutex_lock(&c->lock);
    old = c->root;
    c->root = next;
    pthread_mutex_unlock(&c->lock);
    root_unref(old);
    c->root_changed = true;
    if (c->keep)
        archive_files_follow(c->keep, next);
    core_kick(c);
}

void fsm_take(struct core *c, uint64_t index, uint64_t term, struct slice entry)
{
    struct root *next = root_ref(c->root);
    struct err e = {0};

    if (c->dead) { /* one that had waited behind the entry at which it stopped */
        root_unref(next);
        return;
    }
    if (skip_taken(c, index, entry)) {
        root_unref(next);
        digest_applied(c);
        return;
    }
    if (store_apply(&next, index, term, entry, proposals_applied, c, &e)) {
        root_unref(next);
        proposals_deliver(c, false);
        skip_stop(c, index, entry, &e);
        return;
    }
    core_publish_root(c, next);
    digest_applied(c);
    proposals_deliver(c, true);
}

/* ---- snapshots that come ---- */
static void unreadable(struct core *c, const struct err *e)
{
    struct err why;

    if (e->code == E_NOTIMPL)
        err_set(&why, E_NOTIMPL, "the snapshot in %.200s: %.200s", c->log_dir, e->text);
    else
        err_set(&why, E_CORRUPT,
                "the snapshot cannot be read (%.200s): restore %.120s from a backup, or move it "
                "aside, keep it, and let this member rejoin",
                e->text, c->cfg.data_dir);
    core_fatal(c, &why);
}

struct restore_job {
    struct core *c;
    unsigned number; /* a newer one makes it void */
    struct raft_buffer buf;
    struct root *root;
    uint64_t began_ms;
    int code;
    struct err err;
};
struct waiting { /* an entry */
    struct list link;
    uint64_t index, term;
    size_t n;
    char p[];
};

static void restore_work(void *arg) /* thread pool */
{
    struct restore_job *j = arg;

    FAILPOINT("snapshot.decode.before");
    j->code = snapshot_decode(slice_make(j->buf.base, j->buf.len), &j->root, &j->err);
    raft_free(j->buf.base);
}

static void restore_done(void *arg)
{
    struct restore_job *j = arg;
    struct core *c = j->c;

    c->jobs--;
    if (j->number != c->restore.number || c->closing) {
        root_unref(j->root);
    } else if (j->code) {
        unreadable(c, &j->err);
    } else {
        log_event(LOG_INFO, "raft.restored",
                  LOG_FIELDS({"entry", log_u64(root_number(j->root))},
                             {"ms", log_u64(loop_now_ms(c->loop) - j->began_ms)},
                             {"waiting_bytes", log_u64(c->restore.bytes)}));
        core_publish_root(c, j->root);
        digest_applied(c);
        c->restore.read = true;
        core_kick(c);
    }
    mem_free(j);
    core_maybe_closed(c);
}

static void waiting_add(struct core *c, uint64_t index, const struct raft_buffer *buf)
{
    struct waiting *w = mem_alloc(sizeof *w + buf->len);

    list_init(&w->link);
    w->index = index;
    w->term = core_term_of(&c->raft, index);
    w->n = buf->len;
    memcpy(w->p, buf->base, buf->len);
    list_push(&c->restore.waiting, &w->link);
    c->restore.bytes += w->n;
}

void restore_tick(struct core *c)
{
    size_t n = 0;

    while (c->restore.active && c->restore.read && n < SLICE_BYTES && !c->dead) {
        struct list *e = list_pop(&c->restore.waiting);

        if (!e) {
            c->restore.active = false;
            break;
        }
        struct waiting *w = container_of(e, struct waiting, link);
        fsm_take(c, w->index, w->term, slice_make(w->p, w->n));
        n += w->n + 1;
        c->restore.bytes -= w->n;
        mem_free(w);
    }
    if (n)
        core_kick(c);
}

void restore_fini(struct core *c)
{
    struct list *e;

    while ((e = list_pop(&c->restore.waiting)))
        mem_free(container_of(e, struct waiting, link));
    c->restore.bytes = 0;
}

static int restore_now(struct core *c, struct raft_buffer *buf)
{
    struct root *next = NULL;
    struct err e = {0};

    if (snapshot_decode(slice_make(buf->base, buf->len), &next, &e)) {
        unreadable(c, &e);
        return RAFT_CORRUPT;
    }
    raft_free(buf->base);
    buf->base = NULL;
    core_publish_root(c, next);
    digest_applied(c);
    return 0;
}

static int fsm_restore(struct raft_fsm *fsm, struct raft_buffer *buf)
{
    struct core *c = fsm->data;
    struct restore_job *j;

    log_restored(c, buf->len);
    if (!c->raft_open)
        return restore_now(c, buf);
    restore_fini(c); /* what waited for an older one is in this one */
    j = mem_new(struct restore_job);
    *j = (struct restore_job){
        .c = c, .number = ++c->restore.number, .buf = *buf, .began_ms = loop_now_ms(c->loop)};
    buf->base = NULL;
    c->restore.active = true;
    c->restore.read = false;
    c->jobs++;
    loop_work(c->loop, restore_work, restore_done, j);
    return 0;
}

uint64_t core_applied(struct core *c)
{
    return c->restore.active ? root_index(c->root) : raft_last_applied(&c->raft);
}

static int fsm_apply(struct raft_fsm *fsm, const struct raft_buffer *buf, void **result)
{
    struct core *c = fsm->data;
    uint64_t index = raft_last_applied(&c->raft) + 1;

    *result = NULL;
    if (c->dead) /* nothing is applied any more; a failure here makes libraft free what it received
                    twice */
        return 0;
    log_grew(c, index, buf->len);
    if (c->restore.active)
        waiting_add(c, index, buf);
    else
        fsm_take(c, index, core_term_of(&c->raft, index), slice_make(buf->base, buf->len));
    return 0;
}

void fsm_init(struct core *c)
{
    c->fsm = (struct raft_fsm){.version = 3, .data = c, .apply = fsm_apply, .restore = fsm_restore};
}

/* ---- messages, ahead of libraft ---- */
static void install_free(struct raft_message *m)
{
    raft_configuration_close(&m->install_snapshot.conf);
    raft_free(m->install_snapshot.data.base);
}

/* One that comes while this member makes a snapshot of its own: libraft 0.22.1 would put it off and
 * then read through a NULL pointer. It waits here instead. */
static void install_hold(struct core *c, const struct raft_message *m)
{
    if (c->held.full)
        install_free(&c->held.m);
    c->held.full = true;
    c->held.m = *m;
    str_copy(c->held.address, sizeof c->held.address, m->server_address);
    c->held.m.server_address = c->held.address;
}

void install_held(struct core *c)
{
    struct raft_message m = c->held.m;

    if (!c->held.full)
        return;
    c->held.full = false;
    if (c->closing || !c->raft_open)
        install_free(&m);
    else
        c->io_recv(c->io, &m);
}

/* As if the leader had sent a heartbeat: it sends them again. */
static void entries_refuse(struct raft_message *m)
{
    raft_free(m->append_entries.entries[0].batch);
    raft_free(m->append_entries.entries);
    m->append_entries.entries = NULL;
    m->append_entries.n_entries = 0;
}

void fsm_recv(struct raft_io *io, struct raft_message *m)
{
    struct raft *r = io->data;
    struct core *c = r->data;
    /* One that comes while another is being installed is passed over by libraft 0.22.1, and never
     * freed. */
    bool leaks = m->type == RAFT_INSTALL_SNAPSHOT && r->snapshot.installing &&
                 m->install_snapshot.term >= r->current_term && !r->legacy.closing;

    if (m->type == RAFT_INSTALL_SNAPSHOT && r->legacy.snapshot_taking && !r->legacy.closing) {
        install_hold(c, m);
        return;
    }
    struct raft_append_entries_result result = {.rejected = 1};
    uint64_t from = m->server_id;

    if (m->type == RAFT_APPEND_ENTRIES_RESULT)
        result = m->append_entries_result;
    if (m->type == RAFT_APPEND_ENTRIES)
        commit_keep(r, m);
    if (m->type == RAFT_APPEND_ENTRIES && m->append_entries.n_entries > 0 &&
        c->restore.bytes > WAITING_MAX_BYTES && !r->legacy.closing)
        entries_refuse(m);
    c->io_recv(io, m);
    if (leaks)
        install_free(m);
    commit_acked(c, from, &result);
}

static int io_start(struct raft_io *io, unsigned msecs, raft_io_tick_cb tick, raft_io_recv_cb recv)
{
    struct raft *r = io->data;
    struct core *c = r->data;

    c->io_recv = recv;
    return c->io_start(io, msecs, commit_hook_io(c, tick), fsm_recv);
}

void fsm_hook_io(struct core *c)
{
    snapshots_init(c);
    c->io_start = c->io->start;
    c->io->start = io_start;
}
