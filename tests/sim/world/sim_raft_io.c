/* libraft's I/O on the virtual world. One disk operation after the other, each in two moments: it
 * is durable, and then it is told; a crash between the two leaves what nobody was told of. Messages
 * are datagrams: lost, late and out of order, and their bytes are part of the world's hash. */
#include "tests/sim/world/sim_raft_io.h"

#include "tests/sim/world/sim_raft_wire.h"

#include "api/base/failpoint.h"

#include <stdio.h>
#include <string.h>

#define RAFT_PORT 7
#define MESSAGE_MAX (32u << 20)
#define CAPACITY_KIB 16384

/* ---- the disk: what survives ---- */
struct disk_entry {
    uint64_t term;
    int type;
    size_t n;
    char *p;
};
struct disk {
    uint64_t term, vote;
    struct disk_entry *e;
    size_t n, cap;
    uint64_t first; /* index of e[0] */
    bool has_snapshot;
    uint64_t snapshot_index, snapshot_term, conf_index;
    struct buf conf, data;
    unsigned slow_ms;
    void *ended; /* the I/O of a process that ended in order: its binding lasts as long as that */
};

static void disk_cut(struct disk *d, uint64_t from) /* from this index on */
{
    while (d->n && d->first + d->n > from)
        mem_free(d->e[--d->n].p);
}
static void disk_free(void *p)
{
    struct disk *d = p;

    disk_cut(d, 0);
    mem_free(d->e);
    buf_fini(&d->conf);
    buf_fini(&d->data);
    mem_free(d->ended);
    mem_free(d);
}
static struct disk *disk_of(struct sim_host *h)
{
    void **slot = sim_disk(h, "raft", disk_free);

    if (!*slot) {
        struct disk *d = mem_new(struct disk);
        d->first = 1;
        buf_init(&d->conf, MESSAGE_MAX);
        buf_init(&d->data, MESSAGE_MAX);
        *slot = d;
    }
    return *slot;
}
static void disk_add(struct disk *d, const struct raft_entry *from)
{
    if (d->n == d->cap) {
        d->cap = d->cap ? d->cap * 2 : 256;
        d->e = mem_realloc(d->e, d->cap * sizeof *d->e);
    }
    struct disk_entry *e = &d->e[d->n++];
    *e = (struct disk_entry){from->term, (int)from->type, from->buf.len,
                             mem_alloc(from->buf.len + 1)};
    memcpy(e->p, from->buf.base, from->buf.len);
}
static void disk_drop_before(struct disk *d, uint64_t first)
{
    size_t k = 0;

    while (k < d->n && d->first + k < first)
        mem_free(d->e[k++].p);
    memmove(d->e, d->e + k, (d->n - k) * sizeof *d->e);
    d->n -= k;
    d->first += k;
}

/* ---- copies of it ---- */
static void disk_assign(struct disk *to, const struct disk *from)
{
    disk_cut(to, 0);
    to->term = from->term;
    to->vote = from->vote;
    to->first = from->first;
    for (size_t i = 0; i < from->n; i++) {
        struct raft_entry e = {.term = from->e[i].term,
                               .type = (enum raft_entry_type)from->e[i].type};
        e.buf.base = from->e[i].p;
        e.buf.len = from->e[i].n;
        disk_add(to, &e);
    }
    to->has_snapshot = from->has_snapshot;
    to->snapshot_index = from->snapshot_index;
    to->snapshot_term = from->snapshot_term;
    to->conf_index = from->conf_index;
    buf_reset(&to->conf);
    buf_add(&to->conf, from->conf.n ? from->conf.p : "", from->conf.n);
    buf_reset(&to->data);
    buf_add(&to->data, from->data.n ? from->data.p : "", from->data.n);
}
struct sim_disk_copy {
    struct disk *disk;
    struct sim_files *files;
};
struct sim_disk_copy *sim_disk_copy(struct sim_host *h)
{
    struct sim_disk_copy *c = mem_new(struct sim_disk_copy);

    c->disk = mem_new(struct disk);
    buf_init(&c->disk->conf, MESSAGE_MAX);
    buf_init(&c->disk->data, MESSAGE_MAX);
    disk_assign(c->disk, disk_of(h));
    c->files = sim_folder_copy(h);
    return c;
}
void sim_disk_put_back(struct sim_host *h, const struct sim_disk_copy *c)
{
    disk_assign(disk_of(h), c->disk);
    sim_folder_put_back(h, c->files);
}
void sim_disk_copy_free(struct sim_disk_copy *c)
{
    disk_free(c->disk);
    sim_folder_free(c->files);
    mem_free(c);
}

/* ---- operations in order ---- */
enum op_kind { OP_APPEND, OP_TRUNCATE, OP_PUT, OP_GET };
struct op {
    struct list link;
    enum op_kind kind;
    const struct raft_entry *entries;
    unsigned n, trailing;
    uint64_t index;
    const struct raft_snapshot *snapshot;
    struct raft_io_append *append;
    struct raft_io_snapshot_put *put;
    struct raft_io_snapshot_get *get;
    bool durable;
};
struct sent {
    struct list link;
    struct raft_io_send *req;
};
struct io {
    struct raft_io base;
    struct sim_host *host;
    struct loop *loop;
    struct disk *disk;
    uint64_t id;
    char address[256];
    unsigned tick_ms;
    raft_io_tick_cb tick_cb;
    raft_io_recv_cb recv_cb;
    raft_io_close_cb close_cb;
    struct timer tick, work, told, closed;
    struct list ops, sent;
    bool closing;
};

/* Requests that libraft has completed: its own I/O calls them from the loop's idle hooks. */
static void fire_completed(struct io *io)
{
    struct raft *r = io->base.data;

    while (!io->closing && r->legacy.requests[0] &&
           r->legacy.requests[0] != (void *)r->legacy.requests) {
        void **q = r->legacy.requests[0];
        void **next = q[0], **prev = q[1];
        prev[0] = (void *)next;
        next[1] = (void *)prev;
        struct raft_apply *a = container_of(q, struct raft_apply, queue);
        if (a->type == RAFT_COMMAND)
            a->cb(a, a->status, a->result);
        else if (a->type == RAFT_BARRIER)
            ((struct raft_barrier *)(void *)a)->cb((struct raft_barrier *)(void *)a, a->status);
        else if (a->type == RAFT_CHANGE)
            ((struct raft_change *)(void *)a)->cb((struct raft_change *)(void *)a, a->status);
        else
            ((struct raft_transfer *)(void *)a)->cb((struct raft_transfer *)(void *)a);
    }
}

static struct raft_snapshot *snapshot_copy(const struct disk *d)
{
    struct raft_snapshot *s = raft_calloc(1, sizeof *s);
    struct raft_buffer conf = {.base = d->conf.p, .len = d->conf.n};

    s->index = d->snapshot_index;
    s->term = d->snapshot_term;
    s->configuration_index = d->conf_index;
    raft_configuration_init(&s->configuration);
    INV(raft_configuration_decode(&conf, &s->configuration) == 0);
    s->bufs = raft_malloc(sizeof *s->bufs);
    s->n_bufs = 1;
    s->bufs[0].base = raft_malloc(d->data.n + 1);
    s->bufs[0].len = d->data.n;
    memcpy(s->bufs[0].base, d->data.p, d->data.n);
    return s;
}

static void op_put(struct disk *d, const struct op *op)
{
    struct raft_buffer conf;

    INV(raft_configuration_encode(&op->snapshot->configuration, &conf) == 0);
    buf_fini(&d->conf);
    buf_fini(&d->data);
    buf_add(&d->conf, conf.base, conf.len);
    raft_free(conf.base);
    for (unsigned i = 0; i < op->snapshot->n_bufs; i++)
        buf_add(&d->data, op->snapshot->bufs[i].base, op->snapshot->bufs[i].len);
    INV(!d->data.failed);
    d->has_snapshot = true;
    d->snapshot_index = op->snapshot->index;
    d->snapshot_term = op->snapshot->term;
    d->conf_index = op->snapshot->configuration_index;
    if (op->trailing == 0) {
        disk_cut(d, 0);
        d->first = d->snapshot_index + 1;
    } else if (d->snapshot_index > op->trailing) {
        disk_drop_before(d, d->snapshot_index - op->trailing + 1);
    }
}

static void op_next(struct io *io);

static void op_durable(void *arg)
{
    struct io *io = arg;
    struct op *op = container_of(io->ops.next, struct op, link);

    if (op->kind == OP_APPEND)
        for (unsigned i = 0; i < op->n; i++)
            disk_add(io->disk, &op->entries[i]);
    else if (op->kind == OP_TRUNCATE)
        disk_cut(io->disk, op->index);
    else if (op->kind == OP_PUT)
        op_put(io->disk, op);
    op->durable = true;
    timer_start(&io->told, loop_random_u64(io->loop) % 2);
}
static void op_told(void *arg)
{
    struct io *io = arg;
    struct op *op = container_of(list_pop(&io->ops), struct op, link);

    if (op->kind == OP_APPEND)
        op->append->cb(op->append, 0);
    else if (op->kind == OP_PUT)
        op->put->cb(op->put, 0);
    else if (op->kind == OP_GET)
        op->get->cb(op->get, snapshot_copy(io->disk), 0);
    mem_free(op);
    fire_completed(io);
    if (!timer_active(&io->work) && !timer_active(&io->told))
        op_next(io);
}
static void op_next(struct io *io)
{
    uint64_t ms;

    if (list_empty(&io->ops) || io->closing)
        return;
    ms = loop_random_u64(io->loop) % (3 + io->disk->slow_ms);
    if (loop_random_u64(io->loop) % 2000 == 0)
        ms += loop_random_u64(io->loop) % 600; /* a disk that hangs for a while */
    timer_start(&io->work, ms);
}
static struct op *op_add(struct io *io, enum op_kind kind)
{
    struct op *op = mem_new(struct op);
    bool first = list_empty(&io->ops) && !timer_active(&io->told);

    op->kind = kind;
    list_push(&io->ops, &op->link);
    if (first)
        op_next(io);
    return op;
}

/* ---- messages ---- */
static void datagram_came(const char *from_host, const void *p, size_t n, void *arg)
{
    struct io *io = arg;
    struct cursor c = {p, n};
    struct raft_message m = {0};
    char address[256];

    (void)from_host;
    if (io->closing || !io->recv_cb)
        return;
    m.server_id = sim_wire_get(&c);
    struct raft_buffer a = sim_wire_get_bytes(&c);
    (void)snprintf(address, sizeof address, "%.*s", (int)a.len, (const char *)a.base);
    m.server_address = address;
    sim_wire_decode(&c, &m);
    io->recv_cb(&io->base, &m);
    fire_completed(io);
}

/* ---- libraft's table ---- */
#define IO(r) container_of((r), struct io, base)

static int io_init(struct raft_io *r, raft_id id, const char *address)
{
    struct io *io = IO(r);

    io->id = id;
    str_copy(io->address, sizeof io->address, address);
    return 0;
}
static void closed(void *arg)
{
    struct io *io = arg;

    while (!list_empty(&io->ops)) {
        struct op *op = container_of(list_pop(&io->ops), struct op, link);
        if (op->kind == OP_APPEND)
            op->append->cb(op->append, RAFT_CANCELED);
        else if (op->kind == OP_PUT)
            op->put->cb(op->put, RAFT_CANCELED);
        else if (op->kind == OP_GET)
            op->get->cb(op->get, NULL, RAFT_CANCELED);
        mem_free(op);
    }
    io->close_cb(&io->base);
}
static void io_close(struct raft_io *r, raft_io_close_cb cb)
{
    struct io *io = IO(r);

    io->closing = true;
    io->close_cb = cb;
    timer_stop(&io->tick);
    timer_stop(&io->work);
    timer_stop(&io->told);
    timer_start(&io->closed, 0);
}
static int io_load(struct raft_io *r, raft_term *term, raft_id *voted_for,
                   struct raft_snapshot **snapshot, raft_index *start_index,
                   struct raft_entry *entries[], size_t *n_entries)
{
    struct disk *d = IO(r)->disk;
    size_t bytes = 8;

    if (PLANTED("disk.forgets") && d->n > 1)
        disk_cut(d, d->first + d->n - 1);
    *term = d->term;
    *voted_for = d->vote;
    *snapshot = d->has_snapshot ? snapshot_copy(d) : NULL;
    *start_index = d->first;
    *n_entries = d->n;
    *entries = NULL;
    if (!d->n)
        return 0;
    for (size_t i = 0; i < d->n; i++)
        bytes += d->e[i].n;
    char *batch = raft_malloc(bytes), *at = batch;
    *entries = raft_calloc(d->n, sizeof **entries);
    for (size_t i = 0; i < d->n; i++) {
        struct raft_entry *e = &(*entries)[i];
        memcpy(at, d->e[i].p, d->e[i].n);
        e->term = d->e[i].term;
        e->type = (enum raft_entry_type)d->e[i].type;
        e->buf.base = at;
        e->buf.len = d->e[i].n;
        e->batch = batch;
        at += d->e[i].n;
    }
    return 0;
}
static void tick(void *arg)
{
    struct io *io = arg;

    timer_start(&io->tick, io->tick_ms);
    io->tick_cb(&io->base);
    fire_completed(io);
}
static int io_start(struct raft_io *r, unsigned msecs, raft_io_tick_cb tick_cb,
                    raft_io_recv_cb recv_cb)
{
    struct io *io = IO(r);

    io->tick_ms = msecs;
    io->tick_cb = tick_cb;
    io->recv_cb = recv_cb;
    timer_start(&io->tick, msecs);
    sim_datagram_bind(io->loop, RAFT_PORT, datagram_came, io);
    return 0;
}
static int io_bootstrap(struct raft_io *r, const struct raft_configuration *conf)
{
    struct disk *d = IO(r)->disk;
    struct raft_entry e = {.term = 1, .type = RAFT_CHANGE};

    if (d->term)
        return RAFT_CANTBOOTSTRAP;
    INV(raft_configuration_encode(conf, &e.buf) == 0);
    disk_add(d, &e);
    raft_free(e.buf.base);
    d->term = 1;
    return 0;
}
static int io_recover(struct raft_io *r, const struct raft_configuration *conf)
{
    (void)r;
    (void)conf;
    return RAFT_IOERR;
}
static int io_set_term(struct raft_io *r, raft_term term)
{
    IO(r)->disk->term = term;
    IO(r)->disk->vote = 0;
    return 0;
}
static int io_set_vote(struct raft_io *r, raft_id id)
{
    IO(r)->disk->vote = id;
    return 0;
}
static void sent_told(void *arg)
{
    struct sent *s = arg;

    s->req->cb(s->req, 0);
    mem_free(s);
}
static int io_send(struct raft_io *r, struct raft_io_send *req, const struct raft_message *m,
                   raft_io_send_cb cb)
{
    struct io *io = IO(r);
    struct sent *s = mem_new(struct sent);
    char host[256];
    AUTO_BUF b;

    buf_init(&b, MESSAGE_MAX);
    sim_wire_put(&b, io->id);
    sim_wire_put_bytes(&b, io->address, strlen(io->address));
    sim_wire_encode(&b, m);
    INV(!b.failed);
    str_copy(host, sizeof host, m->server_address);
    *strchrnul(host, ':') = 0;
    sim_datagram_send(io->loop, host, RAFT_PORT, b.p, b.n);
    req->cb = cb;
    s->req = req;
    loop_post(io->loop, sent_told, s);
    return 0;
}
static int io_append(struct raft_io *r, struct raft_io_append *req,
                     const struct raft_entry entries[], unsigned n, raft_io_append_cb cb)
{
    struct op *op = op_add(IO(r), OP_APPEND);

    req->cb = cb;
    op->append = req;
    op->entries = entries;
    op->n = n;
    return 0;
}
static int io_truncate(struct raft_io *r, raft_index index)
{
    op_add(IO(r), OP_TRUNCATE)->index = index;
    return 0;
}
static int io_put(struct raft_io *r, unsigned trailing, struct raft_io_snapshot_put *req,
                  const struct raft_snapshot *snapshot, raft_io_snapshot_put_cb cb)
{
    struct op *op = op_add(IO(r), OP_PUT);

    req->cb = cb;
    op->put = req;
    op->trailing = trailing;
    op->snapshot = snapshot;
    return 0;
}
static int io_get(struct raft_io *r, struct raft_io_snapshot_get *req, raft_io_snapshot_get_cb cb)
{
    req->cb = cb;
    op_add(IO(r), OP_GET)->get = req;
    return 0;
}
static raft_time io_time(struct raft_io *r)
{
    return loop_now_ms(IO(r)->loop);
}
static int io_random(struct raft_io *r, int min, int max)
{
    return (int)(min +
                 (int64_t)(loop_random_u64(IO(r)->loop) % ((uint64_t)((int64_t)max - min) + 1)));
}

int sim_raft_io_create(void *host, struct loop *l, const char *dir, struct raft_io **ret,
                       struct err *err)
{
    struct io *io = mem_new(struct io);
    char path[1200];
    struct raft_io table = {.version = 2,
                            .capacity = CAPACITY_KIB,
                            .impl = io,
                            .init = io_init,
                            .close = io_close,
                            .load = io_load,
                            .start = io_start,
                            .bootstrap = io_bootstrap,
                            .recover = io_recover,
                            .set_term = io_set_term,
                            .set_vote = io_set_vote,
                            .send = io_send,
                            .append = io_append,
                            .truncate = io_truncate,
                            .snapshot_put = io_put,
                            .snapshot_get = io_get,
                            .time = io_time,
                            .random = io_random};

    memcpy(&io->base, &table, sizeof table);
    io->host = host;
    io->loop = l;
    io->disk = disk_of(host);
    mem_free(io->disk->ended);
    io->disk->ended = NULL;
    list_init(&io->ops);
    timer_init(&io->tick, l, tick, io);
    timer_init(&io->work, l, op_durable, io);
    timer_init(&io->told, l, op_told, io);
    timer_init(&io->closed, l, closed, io);
    /* The data directory's check looks for a log beside meta.json. */
    (void)snprintf(path, sizeof path, "%s/simulated", dir);
    *ret = &io->base;
    return file_write(l, path, "", 0, 0600, err);
}

void sim_raft_io_slow(struct sim_host *h, unsigned ms)
{
    disk_of(h)->slow_ms = ms;
}

void sim_raft_io_destroy(void *host, struct raft_io *r)
{
    (void)host;
    IO(r)->disk->ended = IO(r);
}
