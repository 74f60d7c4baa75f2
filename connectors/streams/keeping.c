/* A piece of the log for a store that is not written to from here (connectors/kept): a runner that
 * calls home holds no key to it, the hub does. The hub asks for the piece that begins where the
 * store's newest one ends. It is made when there is enough of it, and waits until the hub lets it
 * come, which has room for few at a time. */
#include "connectors/kept/kept.h"
#include "connectors/streams/streams_internal.h"

#define LOOK_MS 500

/* False: nothing is due yet, or the file is being rewritten (*ret_again). */
static bool piece_make(struct served *s, bool over, bool *ret_again, struct err *err)
{
    struct loop *l = s->streams->cfg.loop;
    struct kept_piece *p = mem_new(struct kept_piece);
    uint64_t now = loop_now_ms(l);
    AUTO_BUF text;

    buf_init(&text, KEPT_PIECE_MAX + 1);
    int rc = output_cut(l, s->output.path, s->from, KEPT_PIECE_MAX, loop_wall_ms(l), &text, &p->at,
                        ret_again, err);
    bool due = rc == 0 && !*ret_again;
    if (due) {
        bool full = text.n == KEPT_PIECE_MAX || p->at.n_marks == OUTPUT_CUT_MARKS;
        int64_t age = text.n ? loop_wall_ms(l) - p->at.marks[0].ms : 0;
        if (text.n && !s->unkept_ms)
            s->unkept_ms = now;
        p->bytes = (uint32_t)text.n;
        p->last = over && !full;
        due = full || over || age < 0 || age >= KEPT_EVERY_MS ||
              (s->unkept_ms && now - s->unkept_ms >= KEPT_EVERY_MS);
    }
    if (due && kept_pack(p, text.n ? text.p : "", &s->piece, err) < 0)
        buf_reset(&s->piece);
    mem_free(p);
    return s->piece.n > 0;
}

static void keeping_tick(void *arg)
{
    struct served *s = arg;
    const struct streams_config *cfg = &s->streams->cfg;
    /* before reading: what came last is read once more */
    enum log_state state = cfg->ops->log_state(cfg->arg, &s->key);
    bool again = false;
    struct err err = {0};

    if (state == LOG_GONE) {
        served_end(s, 0, NULL);
        return;
    }
    if (s->piece.n == 0 && !piece_make(s, state == LOG_WHOLE, &again, &err)) {
        if (err.code)
            served_end(s, 1, &err);
        else
            timer_start(&s->tick, again ? SERVED_AGAIN_MS : LOOK_MS);
        return;
    }
    served_opened(s);
    while (s->sent < s->piece.n && !served_crowded(s)) {
        size_t n = s->piece.n - s->sent;
        n = n < SERVED_FRAME ? n : SERVED_FRAME;
        frame_send(s->streams->to, SF_DATA, 1, s->id, s->piece.p + s->sent, n);
        s->sent += n;
    }
    if (s->sent == s->piece.n)
        served_end(s, 0, NULL);
    else if (!s->paused) /* else the hub says when */
        timer_start(&s->tick, SERVED_AGAIN_MS);
}

int keeping_open(struct served *s, struct wire_open *q, struct err *err)
{
    const struct streams_config *cfg = &s->streams->cfg;
    char path[4096];
    int rc = cfg->ops->logs(cfg->arg, q, path, err);

    if (rc < 0)
        return rc;
    s->key = q->key;
    s->from = q->from;
    s->keeps = s->paused = true;
    str_copy(s->output.path, sizeof s->output.path, path);
    buf_init(&s->piece, KEPT_PACKED_MAX + 1);
    timer_init(&s->tick, cfg->loop, keeping_tick, s);
    if (!q->kept) {
        timer_start(&s->tick, 0);
        return 0;
    }
    if (cfg->ops->kept)
        cfg->ops->kept(cfg->arg);
    served_end(s, 0, NULL);
    return 0;
}
