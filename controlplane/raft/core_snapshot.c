/* Snapshots as libraft asks for them, and when it is to ask.
 *
 * libraft 0.22.1 calls snapshot_async on the loop, despite its name. Encoding the whole state there
 * would delay the heartbeats, so snapshot() only holds the root (O(1)) and leaves an empty buffer,
 * and the io's snapshot_put is wrapped: it encodes on the thread pool first and then hands the
 * pieces to libraft's own.
 *
 * libraft counts entries; what fills disks and memory is bytes. So the bytes applied since the
 * newest snapshot are counted here, its threshold is lowered once they are enough, and as many
 * entries stay behind a snapshot as fit TRAILING_BYTES. A snapshot that fails is an alarm, and is
 * tried again after a pause that grows: the log is kept until one succeeds. */
#include "controlplane/raft/core_internal.h"

#include "api/base/failpoint.h"

#include <string.h>

#define SNAPSHOT_THRESHOLD 8192
#define SNAPSHOT_TRAILING 4096
#define LOG_BYTES (32ull << 20) /* or what the newest snapshot had, when that is more */
#define TRAILING_BYTES (16ull << 20)
#define LOG_ALARM 8 /* times what a log may have */
#define RETRY_MIN_MS 1000u
#define RETRY_MAX_MS 300000u
#define SIZE_ALARM_PERCENT 60

/* ---- the log, by bytes ---- */
static uint64_t log_max(const struct core *c)
{
    uint64_t least = c->cfg.snapshot_bytes ? c->cfg.snapshot_bytes : LOG_BYTES;

    return c->log.snapshot_bytes > least ? c->log.snapshot_bytes : least;
}

static void threshold_set(struct core *c)
{
    unsigned entries = c->cfg.snapshot_threshold ? c->cfg.snapshot_threshold : SNAPSHOT_THRESHOLD;

    raft_set_snapshot_threshold(&c->raft, c->log.bytes >= log_max(c) ? 1 : entries);
}

void log_grew(struct core *c, uint64_t index, size_t bytes)
{
    c->log.sizes[index % LOG_SIZES].index = index;
    c->log.sizes[index % LOG_SIZES].bytes = bytes;
    c->log.bytes += bytes;
    threshold_set(c);
}

static uint64_t snapshot_file_max(const struct core *c)
{
    return c->cfg.snapshot_max ? c->cfg.snapshot_max : SNAPSHOT_FILE_MAX;
}

/* Beyond it no snapshot can be made, and the log would grow for ever. Told long before. */
static void size_look(struct core *c)
{
    uint64_t percent = c->log.snapshot_bytes * 100 / snapshot_file_max(c);

    if (percent >= SIZE_ALARM_PERCENT)
        core_alarm_raise(c, ALARM_SIZE, "the snapshot has %llu MiB, %llu %% of what one may have",
                         (unsigned long long)(c->log.snapshot_bytes >> 20),
                         (unsigned long long)percent);
    else
        core_alarm_clear(c, ALARM_SIZE);
}

void log_restored(struct core *c, size_t bytes)
{
    c->log.bytes = 0;
    c->log.snapshot_bytes = bytes;
    size_look(c);
    threshold_set(c);
}

static unsigned trailing(const struct core *c, uint64_t index)
{
    unsigned most = c->cfg.snapshot_trailing ? c->cfg.snapshot_trailing : SNAPSHOT_TRAILING, n = 0;
    uint64_t bytes = 0;

    for (; n < most && n < LOG_SIZES && index > n; n++) {
        uint64_t at = index - n;

        if (c->log.sizes[at % LOG_SIZES].index == at)
            bytes += c->log.sizes[at % LOG_SIZES].bytes;
        if (bytes > TRAILING_BYTES)
            break;
    }
    return n ? n : 1; /* 0 means to libraft that it is installed */
}

void snapshot_second(struct core *c)
{
    if (c->log.bytes > LOG_ALARM * log_max(c))
        core_alarm_raise(c, ALARM_LOG, "%llu MiB of entries since the newest snapshot%s",
                         (unsigned long long)(c->log.bytes >> 20),
                         c->log.job ? ": the one that is being made takes long" : "");
    else
        core_alarm_clear(c, ALARM_LOG);
}

/* ---- making one ---- */
struct snapshot_job {
    struct core *c;
    struct root *root;
    unsigned trailing;
    struct raft_io_snapshot_put *req, own; /* libraft's, and ours in its place */
    struct raft_snapshot *snapshot;
    raft_io_snapshot_put_cb cb;
    struct chunks chunks;
    uint64_t log_bytes;
    uint64_t began_ms;
    int code;
    struct err err;
};

static int fsm_snapshot(struct raft_fsm *fsm, struct raft_buffer *bufs[], unsigned *n_bufs)
{
    struct core *c = fsm->data;

    if (c->dead || c->closing || c->snapshot_root || c->restore.active ||
        loop_now_ms(c->loop) < c->log.retry_ms)
        return RAFT_BUSY;
    /* libraft names it for its commit index: what is given must be the state of just that index. */
    if (raft_last_applied(&c->raft) != c->raft.commit_index)
        return RAFT_BUSY;
    if (c->keep &&
        !archive_files_settled(c->keep, c->root)) /* entries that segments still wait for */
        return RAFT_BUSY;
    *bufs = raft_calloc(1, sizeof **bufs);
    if (!*bufs)
        return RAFT_NOMEM;
    *n_bufs = 1;
    raft_set_snapshot_trailing(&c->raft, trailing(c, raft_last_applied(&c->raft)));
    c->snapshot_root = root_ref(c->root);
    return 0;
}

static bool chunk_add(void *arg, const void *p, size_t n)
{
    struct chunks *k = arg;
    const char *at = p;

    k->bytes += n;
    if (k->bytes > (k->max ? k->max : SNAPSHOT_FILE_MAX)) {
        k->too_large = true;
        return false;
    }
    if (k->n)
        FAILPOINT("snapshot.encode.piece");
    while (n) {
        struct raft_buffer *b = k->n ? &k->v[k->n - 1] : NULL;
        size_t room = b ? CHUNK_BYTES - b->len : 0, take = n < room ? n : room;

        if (!b || !room) {
            if (k->n == CHUNKS_MAX || !k->v)
                return false;
            b = &k->v[k->n];
            *b = (struct raft_buffer){.base = raft_malloc(CHUNK_BYTES), .len = 0};
            if (!b->base)
                return false;
            k->n++;
            continue;
        }
        memcpy((char *)b->base + b->len, at, take);
        b->len += take;
        at += take;
        n -= take;
    }
    return true;
}

int chunks_encode(struct chunks *k, const struct root *r, struct err *err)
{
    int rv;

    k->v = mem_zalloc(CHUNKS_MAX * sizeof *k->v);
    rv = snapshot_write(r, chunk_add, k, err);
    if (k->too_large)
        rv = err_set(err, E_TOOLARGE,
                     "it is larger than %llu MiB, which is what a file of libraft may have",
                     (unsigned long long)((k->max ? k->max : SNAPSHOT_FILE_MAX) >> 20));
    return rv;
}

void chunks_fini(struct chunks *k)
{
    for (unsigned i = 0; i < k->n; i++)
        raft_free(k->v[i].base);
    k->n = 0;
    mem_free(k->v);
    k->v = NULL;
}

/* The chunks take the place of what the snapshot has. */
bool chunks_give(struct chunks *k, struct raft_snapshot *s)
{
    struct raft_buffer *bufs = raft_malloc((k->n + 1) * sizeof *bufs);

    if (!bufs)
        return false;
    memcpy(bufs, k->v, k->n * sizeof *bufs);
    raft_free(s->bufs);
    s->bufs = bufs;
    s->n_bufs = k->n;
    k->n = 0;
    return true;
}

static void snapshot_job(void *arg) /* thread pool */
{
    struct snapshot_job *j = arg;

    FAILPOINT("snapshot.encode.before");
    j->code = PLANTED("raft.snapshot-fails")
                  ? err_set(&j->err, E_TOOLARGE, "the state is larger than a snapshot may be")
                  : chunks_encode(&j->chunks, j->root, &j->err);
    FAILPOINT("snapshot.encode.after");
}

static void failed(struct core *c, const char *why)
{
    c->log.pause_ms = c->log.pause_ms ? c->log.pause_ms * 2 : RETRY_MIN_MS;
    c->log.pause_ms = c->log.pause_ms < RETRY_MAX_MS ? c->log.pause_ms : RETRY_MAX_MS;
    c->log.retry_ms = loop_now_ms(c->loop) + c->log.pause_ms;
    log_event(LOG_ERROR, "raft.snapshot",
              LOG_FIELDS({"message", log_str(why)}, {"again_ms", log_u64(c->log.pause_ms)}));
    core_alarm_raise(c, ALARM_SNAPSHOT, "no snapshot can be made: %.300s; tried again in %llu s",
                     why, (unsigned long long)c->log.pause_ms / 1000);
}

static void over(struct snapshot_job *j, int status)
{
    struct core *c = j->c;

    c->log.job = NULL;
    if (status)
        c->log.bytes += j->log_bytes;
    else {
        c->log.snapshot_bytes = j->chunks.bytes;
        size_look(c);
        c->log.pause_ms = c->log.retry_ms = 0;
        core_alarm_clear(c, ALARM_SNAPSHOT);
        log_event(LOG_INFO, "raft.snapshot_done",
                  LOG_FIELDS({"bytes", log_u64(j->chunks.bytes)},
                             {"ms", log_u64(loop_now_ms(c->loop) - j->began_ms)},
                             {"log_bytes", log_u64(j->log_bytes)}));
    }
    threshold_set(c);
    j->cb(j->req, status);
    chunks_fini(&j->chunks);
    mem_free(j);
    install_held(c);
}

static void snapshot_written(struct raft_io_snapshot_put *req, int status)
{
    struct snapshot_job *j = container_of(req, struct snapshot_job, own);
    struct core *c = j->c;

    FAILPOINT("snapshot.written");
    if (status && !c->closing)
        failed(c, raft_strerror(status));
    over(j, status);
}

static void snapshot_encoded(void *arg)
{
    struct snapshot_job *j = arg;
    struct core *c = j->c;
    int rv = RAFT_CANCELED;

    c->jobs--;
    root_unref(j->root);
    if (j->code) {
        failed(c, j->err.text);
    } else if (!c->closing && chunks_give(&j->chunks, j->snapshot)) {
        rv = c->io_snapshot_put(c->io, j->trailing, &j->own, j->snapshot, snapshot_written);
        if (rv)
            failed(c, raft_strerror(rv));
        else
            FAILPOINT("snapshot.write.begun"); /* on a thread: in the midst of it */
    }
    if (rv)
        over(j, rv);
    core_maybe_closed(c);
}

static int snapshot_put(struct raft_io *io, unsigned n, struct raft_io_snapshot_put *req,
                        const struct raft_snapshot *snapshot, raft_io_snapshot_put_cb cb)
{
    struct raft *r = io->data;
    struct core *c = r->data;
    struct snapshot_job *j;

    if (!c->snapshot_root || snapshot->n_bufs != 1 || snapshot->bufs[0].base) {
        FAILPOINT("snapshot.install.before");
        int rv = c->io_snapshot_put(io, n, req, snapshot, cb); /* one that was received */
        if (!rv)
            FAILPOINT("snapshot.install.begun");
        return rv;
    }
    j = mem_new(struct snapshot_job);
    *j = (struct snapshot_job){
        .c = c,
        .root = c->snapshot_root,
        .trailing = n,
        .req = req,
        .snapshot = (struct raft_snapshot *)(uintptr_t)snapshot, /* libraft's own request */
        .cb = cb,
        .chunks = {.max = c->cfg.snapshot_max},
        .log_bytes = c->log.bytes,
        .began_ms = loop_now_ms(c->loop)};
    c->log.bytes = 0;
    c->log.job = j;
    c->snapshot_root = NULL;
    req->cb = cb;
    threshold_set(c);
    c->jobs++;
    loop_work(c->loop, snapshot_job, snapshot_encoded, j);
    return 0;
}

void snapshots_init(struct core *c)
{
    c->fsm.snapshot = fsm_snapshot;
    c->io_snapshot_put = c->io->snapshot_put;
    c->io->snapshot_put = snapshot_put;
    threshold_set(c);
}
