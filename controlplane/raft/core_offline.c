/* A data directory offline: reads that of a member that does not run, and makes a new one for a
 * state that begins anew. libraft itself reads and writes the files.
 *
 * All entries of the log are taken, also those that a majority may not have: there is no majority
 * left to ask, and an acknowledged entry must not be missed. A directory that a process uses must
 * never be written: its lock is held. */
#include "controlplane/raft/core_internal.h"

#include <raft/uv.h>
#include <stdio.h>
#include <string.h>

#define POLL_MS 20
#define TICK_MS 1000

/* ---- the loop, until something has come ---- */
struct wait {
    struct core *c;
    struct timer poll;
    bool (*over)(struct wait *w);
    bool done;
    int status;
};

static void poll_again(void *arg)
{
    struct wait *w = arg;

    if (w->over(w))
        loop_stop(w->c->loop);
    else
        timer_start(&w->poll, POLL_MS);
}

static void wait_for(struct wait *w, struct core *c, bool (*over)(struct wait *w))
{
    w->c = c;
    w->over = over;
    timer_init(&w->poll, c->loop, poll_again, w);
    timer_start(&w->poll, 0);
    loop_uv_run(c->loop);
    timer_stop(&w->poll);
}

static bool is_done(struct wait *w)
{
    return w->done;
}

static void io_closed(struct raft_io *io)
{
    struct wait *w = io->data;

    w->done = true;
}

static bool files_closed(struct wait *w)
{
    return !w->c->keep && !w->c->jobs && !w->c->streams;
}

/* Ends c, whatever it has come to. `began`: its io was initialised. */
static void offline_close(struct core *c, bool began)
{
    struct wait w = {0};

    archive_close_files(c);
    wait_for(&w, c, files_closed);
    if (began) {
        w = (struct wait){0};
        c->io->data = &w;
        c->io->close(c->io, io_closed);
        wait_for(&w, c, is_done);
    }
    core_free(c);
}

static struct core *offline_core(struct loop *l, const char *dir, uint64_t id, const char *address)
{
    struct core_config cfg = {.id = id};
    struct core_events none = {0};

    str_copy(cfg.data_dir, sizeof cfg.data_dir, dir);
    str_copy(cfg.address, sizeof cfg.address, address);
    struct core *c = core_new(l, &cfg, &none, NULL);
    c->closing = true; /* nothing of it ticks */
    return c;
}

/* ---- taking ---- */
struct loaded {
    raft_term term;
    raft_id voted_for;
    struct raft_snapshot *snapshot;
    raft_index start;
    struct raft_entry *entries;
    size_t n;
};

static void loaded_free(struct loaded *x)
{
    const void *batch = NULL;

    for (size_t i = 0; i < x->n; i++) { /* those of one batch follow on each other */
        if (x->entries[i].batch != batch)
            raft_free(x->entries[i].batch);
        batch = x->entries[i].batch;
    }
    raft_free(x->entries);
    if (x->snapshot) {
        raft_configuration_close(&x->snapshot->configuration);
        for (unsigned i = 0; i < x->snapshot->n_bufs; i++)
            raft_free(x->snapshot->bufs[i].base);
        raft_free(x->snapshot->bufs);
        raft_free(x->snapshot);
    }
}

static int snapshot_take(struct core *c, const struct raft_snapshot *s, struct err *err)
{
    struct root *next = NULL;

    if (s->n_bufs != 1)
        return err_set(err, E_CORRUPT, "the snapshot in %.300s is empty", c->log_dir);
    if (snapshot_decode(slice_make(s->bufs[0].base, s->bufs[0].len), &next, err))
        return err_prefix(err, "the snapshot in %.300s", c->log_dir), err ? err->code : E_CORRUPT;
    core_publish_root(c, next);
    return 0;
}

static bool archive_settled(struct wait *w)
{
    struct archive_files_status s;

    archive_files_status(w->c->keep, &s);
    w->status = *s.trouble != 0;
    return w->status || archive_files_settled(w->c->keep, w->c->root);
}

/* What entries let go of is in a file then; nobody else has those entries. */
static int archive_settle(struct core *c, struct err *err)
{
    struct wait w = {0};
    struct archive_files_status s;

    wait_for(&w, c, archive_settled);
    archive_files_status(c->keep, &s);
    return w.status ? err_set(err, E_IO, "the archive in %.300s: %.200s", c->archive_dir, s.trouble)
                    : 0;
}

static int log_take(struct core *c, struct core_taken *ret, struct err *err)
{
    struct loaded x = {0};
    int rv = c->io->load(c->io, &x.term, &x.voted_for, &x.snapshot, &x.start, &x.entries, &x.n);

    if (rv) {
        str_copy(c->raft.errmsg, sizeof c->raft.errmsg, c->io->errmsg);
        return core_raft_err(c, rv, "reading the log", err);
    }
    if (x.snapshot)
        rv = snapshot_take(c, x.snapshot, err);
    ret->known = root_rv(c->root);
    for (size_t i = 0; i < x.n && !rv; i++) {
        const struct raft_entry *e = &x.entries[i];

        if (e->type != RAFT_COMMAND || x.start + i <= root_index(c->root))
            continue;
        /* Each entry is numbered by a leader that had applied the one before it (core_log.c). */
        ret->known = root_rv(c->root);
        fsm_take(c, x.start + i, e->term, slice_make(e->buf.base, e->buf.len));
        while (tree_reap(4096))
            ;
        if (c->dead)
            rv = err_set(err, c->why_dead.code, "%.400s", c->alarms[ALARM_APPLY].text);
    }
    ret->term = x.term;
    ret->entries = x.n;
    ret->index = x.n ? x.start + x.n - 1 : root_index(c->root);
    loaded_free(&x);
    return rv ? rv : archive_settle(c, err);
}

int core_offline_take(struct loop *l, const char *dir, struct core_taken *ret, struct err *err)
{
    struct core_meta meta;
    bool began = false;
    int rv = files_meta(l, dir, &meta, err);

    if (rv)
        return rv;
    struct core *c = offline_core(l, dir, meta.member, "offline");
    if ((rv = files_open(c, err)) || (rv = skips_open(c, err)) || (rv = archive_open(c, err)) ||
        (rv = core_io_open(c, err)))
        goto end;
    if ((rv = c->io->init(c->io, meta.member, c->cfg.address))) {
        rv = err_set(err, E_IO, "%.300s: %.200s", c->log_dir, c->io->errmsg);
        goto end;
    }
    began = true;
    rv = log_take(c, ret, err);
    if (!rv && !*root_cluster_uid(c->root))
        rv = err_set(err, E_NOTFOUND, "%.300s holds no state: its member has never had a leader",
                     dir);
    if (!rv) {
        ret->root = root_ref(c->root);
        ret->member = meta.member;
        str_copy(ret->cluster, sizeof ret->cluster, meta.cluster);
    }
end:
    offline_close(c, began);
    return rv;
}

/* ---- making ---- */
struct put {
    struct wait w; /* first */
    struct raft_io_snapshot_put req;
    struct raft_snapshot snapshot;
};

static void put_done(struct raft_io_snapshot_put *req, int status)
{
    struct put *p = container_of(req, struct put, req);

    p->w.status = status;
    p->w.done = true;
}

static void no_tick(struct raft_io *io)
{
    (void)io;
}

static void no_message(struct raft_io *io, struct raft_message *m)
{
    (void)io; /* nobody is listened to */
    (void)m;
}

static int snapshot_make(struct core *c, const struct core_made *how, struct err *err)
{
    struct put p = {.snapshot = {.index = root_index(how->root),
                                 .term = root_term(how->root),
                                 .configuration_index = root_index(how->root)}};
    struct chunks k = {0};
    int rv = chunks_encode(&k, how->root, err);

    raft_configuration_init(&p.snapshot.configuration);
    if (!rv &&
        raft_configuration_add(&p.snapshot.configuration, how->member, how->address, RAFT_VOTER))
        rv = err_set(err, E_INVALID, "%s is no address of a member", how->address);
    if (!rv && !chunks_give(&k, &p.snapshot))
        rv = err_set(err, E_NOMEM, "there is no room for the snapshot");
    if (!rv && c->io->snapshot_put(c->io, 0, &p.req, &p.snapshot, put_done))
        rv = err_set(err, E_IO, "writing the snapshot: %.200s", c->io->errmsg);
    else if (!rv)
        wait_for(&p.w, c, is_done);
    if (!rv && p.w.status)
        rv = err_set(err, p.w.status == RAFT_NOSPACE ? E_NOSPACE : E_IO,
                     "writing the snapshot: %s (%.200s)", raft_strerror(p.w.status), c->io->errmsg);
    for (unsigned i = 0; i < p.snapshot.n_bufs; i++)
        raft_free(p.snapshot.bufs[i].base);
    raft_free(p.snapshot.bufs);
    raft_configuration_close(&p.snapshot.configuration);
    chunks_fini(&k);
    return rv;
}

static int log_make(struct core *c, const struct core_made *how, struct err *err)
{
    struct loaded x = {0};

    if (c->io->load(c->io, &x.term, &x.voted_for, &x.snapshot, &x.start, &x.entries, &x.n))
        return err_set(err, E_IO, "%.300s: %.200s", c->log_dir, c->io->errmsg);
    bool empty = !x.snapshot && !x.n;
    loaded_free(&x);
    if (!empty)
        return err_set(err, E_EXISTS, "%.300s holds a log", c->log_dir);
    if (c->io->start(c->io, TICK_MS, no_tick, no_message) ||
        c->io->set_term(c->io, root_term(how->root)))
        return err_set(err, E_IO, "%.300s: %.200s", c->log_dir, c->io->errmsg);
    return snapshot_make(c, how, err);
}

int core_offline_make(struct loop *l, const char *dir, const struct core_made *how, struct err *err)
{
    struct core *c = offline_core(l, dir, how->member, how->address);
    char path[1100];
    bool began = false;
    int rv;

    PRE(root_index(how->root) > 0 && how->member > 0 && *how->address);
    (void)snprintf(path, sizeof path, "%s/lock", dir);
    (void)snprintf(c->log_dir, sizeof c->log_dir, "%s/log", dir);
    if ((rv = file_mkdir(l, dir, 0700, err)) || (rv = file_lock(l, path, err)) ||
        (rv = file_mkdir(l, c->log_dir, 0700, err)) || (rv = core_io_open(c, err)))
        goto end;
    if ((rv = c->io->init(c->io, how->member, how->address))) {
        rv = err_set(err, E_IO, "%.300s: %.200s", c->log_dir, c->io->errmsg);
        goto end;
    }
    began = true;
    rv = log_make(c, how, err);
end:
    c->meta = (struct core_meta){.member = how->member, .ready = true};
    str_copy(c->meta.cluster, sizeof c->meta.cluster, root_cluster_uid(how->root));
    if (began && !rv) { /* the log is closed and whole before anything says so */
        struct wait w = {0};

        c->io->data = &w;
        c->io->close(c->io, io_closed);
        wait_for(&w, c, is_done);
        began = false;
        rv = files_save(c, err);
    }
    offline_close(c, began);
    return rv;
}
