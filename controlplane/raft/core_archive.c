/* The archive of this member and its peers: files follow the state, and missing ones are fetched.
 *
 * One segment at a time is asked of one member, in pieces. A member that does not answer, or sends
 * something else, is passed over for the next. A lost piece is asked for again, from the place that
 * was reached. A peer must never be believed: archive_files_give checks the digest of the state. */
#include "controlplane/raft/core_internal.h"

#include <stdio.h>
#include <string.h>

#define PIECE_BYTES (256u << 10)
#define ANSWER_MS 5000
#define SAY_EVERY_MS 60000
#define SERVE_MAX 4 /* pieces read from disk for others at a time */

int archive_open(struct core *c, struct err *err)
{
    (void)snprintf(c->archive_dir, sizeof c->archive_dir, "%s/archive", c->cfg.data_dir);
    buf_init(&c->fetch.in, 0);
    return archive_files_open(c->loop, c->archive_dir, &c->keep, err);
}

static void kept_closed(void *arg)
{
    struct core *c = arg;

    c->keep = NULL;
    core_maybe_closed(c);
}

void archive_close_files(struct core *c)
{
    buf_fini(&c->fetch.in);
    c->fetch.number = 0;
    if (c->keep)
        archive_files_close(c->keep, kept_closed, c);
}

/* ---- fetching ---- */
static struct peer *peer_by_turn(struct core *c, unsigned turn)
{
    unsigned n = 0;

    list_for_each (it, &c->peers)
        n += container_of(it, struct peer, link)->open;
    if (!n)
        return NULL;
    turn %= n;
    list_for_each (it, &c->peers) {
        struct peer *p = container_of(it, struct peer, link);

        if (p->open && turn-- == 0)
            return p;
    }
    return NULL;
}

static void fetch_ask(struct core *c)
{
    struct archive_fetch *f = &c->fetch;
    unsigned char body[16];

    le64_put(body, f->number);
    le64_put(body + 8, f->in.n);
    f->question = ++c->questions;
    f->asked_ms = loop_now_ms(c->loop);
    (void)peer_send(c, f->peer, FRAME_ARCHIVE_ASK, f->question, body, sizeof body);
}

static void fetch_begin(struct core *c)
{
    struct archive_fetch *f = &c->fetch;
    uint64_t number = f->number || f->giving ? 0 : archive_files_missing(c->keep, f->below);

    if (!number && f->below) { /* from the newest again */
        f->below = 0;
        return;
    }
    struct peer *p = number ? peer_by_turn(c, f->turn) : NULL;
    if (!p)
        return;
    f->number = number;
    f->peer = p->id;
    f->total = 0;
    buf_fini(&f->in);
    buf_init(&f->in, archive_files_bytes_max(c->keep, number));
    fetch_ask(c);
}

/* Another member is asked next; after all of them, another segment. */
static void fetch_failed(struct core *c, uint64_t number, const char *why)
{
    struct archive_fetch *f = &c->fetch;
    unsigned open = 0;

    list_for_each (it, &c->peers)
        open += container_of(it, struct peer, link)->open;
    if (!f->said_ms || loop_now_ms(c->loop) - f->said_ms > SAY_EVERY_MS) {
        f->said_ms = loop_now_ms(c->loop);
        log_event(LOG_WARN, "archive.fetch_failed",
                  LOG_FIELDS({"segment", log_u64(number)}, {"member", log_u64(f->peer)},
                             {"message", log_str(why)}));
    }
    f->number = 0;
    if (++f->turn >= open) {
        f->turn = 0;
        f->below = number;
    }
}

static void fetch_given(void *arg, const struct err *err)
{
    struct core *c = arg;
    uint64_t number = c->fetch.giving;

    c->fetch.giving = 0;
    if (c->closing)
        return;
    if (err)
        fetch_failed(c, number, err->text);
    else
        log_event(LOG_INFO, "archive.fetched",
                  LOG_FIELDS({"segment", log_u64(number)}, {"member", log_u64(c->fetch.peer)}));
    if (!err)
        fetch_begin(c);
}

void archive_is(struct core *c, const struct peer *p, uint64_t question, const unsigned char *b,
                size_t n)
{
    struct archive_fetch *f = &c->fetch;

    if (!c->keep || !f->number || question != f->question || p->id != f->peer || n < 24 ||
        le64_get(b) != f->number || le64_get(b + 8) != f->in.n)
        return;
    uint64_t total = le64_get(b + 16);
    b += 24;
    n -= 24;
    if (!total || total > f->in.max || (f->total && total != f->total) || !n ||
        n > total - f->in.n) {
        fetch_failed(c, f->number,
                     total ? "what it sends is not the segment" : "it does not have it");
        return;
    }
    f->total = total;
    buf_add(&f->in, b, n);
    if (f->in.n < total) {
        fetch_ask(c);
        return;
    }
    f->giving = f->number;
    f->number = 0;
    archive_files_give(c->keep, f->giving, &f->in, fetch_given, c);
}

void archive_second(struct core *c)
{
    struct archive_fetch *f = &c->fetch;

    if (!c->keep)
        return;
    if (f->number && !peer_find(c, f->peer))
        fetch_failed(c, f->number, "it is no longer a member");
    else if (f->number && loop_now_ms(c->loop) - f->asked_ms > ANSWER_MS)
        fetch_failed(c, f->number, "it does not answer");
    fetch_begin(c);
    struct archive_files_status s;
    archive_files_status(c->keep, &s);
    pthread_mutex_lock(&c->lock);
    c->archive_status = s;
    pthread_mutex_unlock(&c->lock);
    if (*s.trouble)
        core_alarm_raise(c, ALARM_ARCHIVE, "the archive's files: %.300s", s.trouble);
    else
        core_alarm_clear(c, ALARM_ARCHIVE);
}

/* ---- serving ---- */
struct piece {
    struct core *c;
    char path[ARCHIVE_PATH_MAX];
    uint64_t peer, question, number, offset, total;
    struct buf out; /* 24 bytes of head, then the piece */
};

static void piece_read(void *arg) /* thread pool */
{
    struct piece *x = arg;
    struct segment_head h;
    unsigned char head[24] = {0};
    struct err e = {0};
    AUTO_BUF b;

    buf_init(&b, 4096 + 65536);
    if (file_read_at(x->c->loop, x->path, 0, SEGMENT_HEAD_BYTES, &b, &e) == 0 &&
        segment_head_read(slice_make(b.p, b.n), &h, &e) == 0 && x->offset < h.file_bytes)
        x->total = h.file_bytes;
    le64_put(head, x->number);
    le64_put(head + 8, x->offset);
    le64_put(head + 16, x->total);
    buf_add(&x->out, head, sizeof head);
    if (x->total && file_read_at(x->c->loop, x->path, x->offset, PIECE_BYTES, &x->out, &e) < 0)
        le64_put((unsigned char *)x->out.p + 16, 0);
}

static void piece_done(void *arg)
{
    struct piece *x = arg;
    struct core *c = x->c;

    c->jobs--;
    c->archive_serving--;
    if (!c->closing)
        (void)inbound_send(c, x->peer, FRAME_ARCHIVE_IS, x->question, x->out.p, x->out.n);
    buf_fini(&x->out);
    mem_free(x);
    core_maybe_closed(c);
}

void archive_ask(struct core *c, const struct inbound *in, uint64_t question, uint64_t number,
                 uint64_t offset)
{
    unsigned char none[24] = {0};

    if (!c->keep || !archive_files_has(c->keep, number)) {
        le64_put(none, number);
        le64_put(none + 8, offset);
        frame_send(in->s, FRAME_ARCHIVE_IS, 0, question, none, sizeof none);
        return;
    }
    if (c->archive_serving >= SERVE_MAX) /* it asks again */
        return;
    struct piece *x = mem_new(struct piece);
    *x = (struct piece){
        .c = c, .peer = in->id, .question = question, .number = number, .offset = offset};
    buf_init(&x->out, PIECE_BYTES + 65536 + 64);
    archive_path(archive_files_dir(c->keep), number, x->path);
    c->jobs++;
    c->archive_serving++;
    loop_work(c->loop, piece_read, piece_done, x);
}

/* ---- from any loop ---- */
void core_archive_status(struct core *c, struct archive_files_status *ret)
{
    pthread_mutex_lock(&c->lock);
    *ret = c->archive_status;
    pthread_mutex_unlock(&c->lock);
}

const char *core_archive_dir(const struct core *c)
{
    return c->archive_dir;
}

struct suspicion {
    struct core *c;
    uint64_t number;
};

static void suspected(void *arg)
{
    struct suspicion *s = arg;

    if (s->c->keep && !s->c->closing)
        archive_files_suspect(s->c->keep, s->number);
    mem_free(s);
}

void core_archive_suspect(struct core *c, uint64_t number)
{
    struct suspicion *s = mem_new(struct suspicion);

    *s = (struct suspicion){c, number};
    loop_post(c->loop, suspected, s);
}
