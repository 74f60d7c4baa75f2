/* libraft's state machine: entries go to store_apply, snapshots come from a root.
 *
 * libraft 0.22.1 calls snapshot_async on the loop, despite its name. Encoding the whole state there
 * would delay the heartbeats, so snapshot() only holds the root (O(1)) and leaves an empty buffer,
 * and the io's snapshot_put is wrapped: it encodes on the thread pool first and then hands the
 * bytes to libraft's own. */
#include "controlplane/raft/core_internal.h"

#include <string.h>

/* The term of the entry at index, from libraft's own trail: the newest record whose last index is
 * not below it. */
static uint64_t term_of(const struct raft *r, uint64_t index)
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
        keep_follow(c->keep, next);
    core_kick(c);
}

static int fsm_apply(struct raft_fsm *fsm, const struct raft_buffer *buf, void **result)
{
    struct core *c = fsm->data;
    uint64_t index = raft_last_applied(&c->raft) + 1;
    struct root *next;
    struct err e = {0};

    *result = NULL;
    if (c->dead) /* nothing is applied any more; a failure here makes libraft free what it received
                    twice */
        return 0;
    next = root_ref(c->root);
    if (store_apply(&next, index, term_of(&c->raft, index), slice_make(buf->base, buf->len),
                    proposals_applied, c, &e)) {
        struct err why;

        root_unref(next);
        proposals_deliver(c, false);
        err_set(&why, E_CORRUPT,
                "this member's log cannot be what the cluster agreed on (entry %llu: %.200s): stop "
                "it, wipe its data "
                "directory %.120s and let it rejoin",
                (unsigned long long)index, e.text, c->cfg.data_dir);
        core_fatal(c, &why);
        return 0;
    }
    core_publish_root(c, next);
    digest_applied(c);
    proposals_deliver(c, true);
    return 0;
}

static int fsm_restore(struct raft_fsm *fsm, struct raft_buffer *buf)
{
    struct core *c = fsm->data;
    struct root *next = NULL;
    struct err e = {0};

    if (snapshot_decode(slice_make(buf->base, buf->len), &next, &e)) {
        struct err why;

        err_set(&why, E_CORRUPT,
                "the snapshot cannot be read (%.200s): stop this member, wipe its data directory "
                "%.120s and let it rejoin",
                e.text, c->cfg.data_dir);
        core_fatal(c, &why);
        return RAFT_CORRUPT;
    }
    raft_free(buf->base);
    buf->base = NULL;
    core_publish_root(c, next);
    digest_applied(c);
    return 0;
}

static int fsm_snapshot(struct raft_fsm *fsm, struct raft_buffer *bufs[], unsigned *n_bufs)
{
    struct core *c = fsm->data;

    if (c->dead || c->closing || c->snapshot_root)
        return RAFT_BUSY;
    if (c->keep && !keep_settled(c->keep, c->root)) /* entries that segments still wait for */
        return RAFT_BUSY;
    *bufs = raft_calloc(1, sizeof **bufs);
    if (!*bufs)
        return RAFT_NOMEM;
    *n_bufs = 1;
    c->snapshot_root = root_ref(c->root);
    return 0;
}

struct snapshot_job {
    struct core *c;
    struct root *root;
    unsigned trailing;
    struct raft_io_snapshot_put *req, own; /* libraft's, and ours in its place */
    const struct raft_snapshot *snapshot;
    raft_io_snapshot_put_cb cb;
    void *p;
    size_t n;
    int code;
    struct err err;
};

static void snapshot_encode_job(void *arg) /* thread pool */
{
    struct snapshot_job *j = arg;
    struct buf b;

    buf_init(&b, (size_t)1 << 30);
    j->code = snapshot_encode(j->root, &b, &j->err);
    if (!j->code && b.failed)
        j->code = err_set(&j->err, E_TOOLARGE, "the state is larger than 1 GiB");
    if (!j->code) {
        size_t n = (b.n + 7) / 8 * 8; /* whole words, as entries have */

        j->p = raft_calloc(1, n);
        j->n = b.n;
        if (j->p)
            memcpy(j->p, b.p, b.n);
        else
            j->code = err_set(&j->err, E_NOMEM, "no memory for a snapshot of %zu bytes", b.n);
    }
    buf_fini(&b);
}

static void snapshot_over(struct snapshot_job *j, int status)
{
    j->cb(j->req, status);
    mem_free(j);
}

static void snapshot_written(struct raft_io_snapshot_put *req, int status)
{
    struct snapshot_job *j = container_of(req, struct snapshot_job, own);
    struct core *c = j->c;

    if (!status)
        core_alarm_clear(c, ALARM_SNAPSHOT);
    else if (!c->closing)
        core_alarm_raise(c, ALARM_SNAPSHOT, "no snapshot can be written to %.200s: %s", c->log_dir,
                         raft_strerror(status));
    snapshot_over(j, status);
}

static void snapshot_encoded(void *arg)
{
    struct snapshot_job *j = arg;
    struct core *c = j->c;
    int rv = RAFT_CANCELED;

    c->jobs--;
    root_unref(j->root);
    if (j->code) {
        log_err(LOG_ERROR, "raft.snapshot", &j->err);
        core_alarm_raise(c, ALARM_SNAPSHOT, "no snapshot can be made: %.300s", j->err.text);
    } else if (!c->closing) {
        j->snapshot->bufs[0] = (struct raft_buffer){.base = j->p, .len = j->n};
        j->p = NULL;
        rv = c->io_snapshot_put(c->io, j->trailing, &j->own, j->snapshot, snapshot_written);
    }
    raft_free(j->p);
    if (rv)
        snapshot_over(j, rv);
    core_maybe_closed(c);
}

static int snapshot_put(struct raft_io *io, unsigned trailing, struct raft_io_snapshot_put *req,
                        const struct raft_snapshot *snapshot, raft_io_snapshot_put_cb cb)
{
    struct raft *r = io->data;
    struct core *c = r->data;
    struct snapshot_job *j;

    if (!c->snapshot_root || snapshot->n_bufs != 1 || snapshot->bufs[0].base)
        return c->io_snapshot_put(io, trailing, req, snapshot, cb); /* one that was received */
    j = mem_new(struct snapshot_job);
    *j = (struct snapshot_job){.c = c,
                               .root = c->snapshot_root,
                               .trailing = trailing,
                               .req = req,
                               .snapshot = snapshot,
                               .cb = cb};
    c->snapshot_root = NULL;
    req->cb = cb;
    c->jobs++;
    loop_work(c->loop, snapshot_encode_job, snapshot_encoded, j);
    return 0;
}

void fsm_init(struct core *c)
{
    c->fsm = (struct raft_fsm){.version = 3,
                               .data = c,
                               .apply = fsm_apply,
                               .snapshot = fsm_snapshot,
                               .restore = fsm_restore};
}

/* A snapshot that comes while another is being installed is passed over by libraft 0.22.1, and
 * never freed. */
static void recv_message(struct raft_io *io, struct raft_message *m)
{
    struct raft *r = io->data;
    struct core *c = r->data;
    bool leaks = m->type == RAFT_INSTALL_SNAPSHOT && r->snapshot.installing &&
                 m->install_snapshot.term >= r->current_term && !r->legacy.closing;

    c->io_recv(io, m);
    if (leaks) {
        raft_configuration_close(&m->install_snapshot.conf);
        raft_free(m->install_snapshot.data.base);
    }
}

static int io_start(struct raft_io *io, unsigned msecs, raft_io_tick_cb tick, raft_io_recv_cb recv)
{
    struct raft *r = io->data;
    struct core *c = r->data;

    c->io_recv = recv;
    return c->io_start(io, msecs, tick, recv_message);
}

void fsm_hook_io(struct core *c)
{
    c->io_snapshot_put = c->io->snapshot_put;
    c->io->snapshot_put = snapshot_put;
    c->io_start = c->io->start;
    c->io->start = io_start;
}
