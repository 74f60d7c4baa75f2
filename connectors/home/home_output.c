/* The runner's side of logs (home_output.h). Nothing here waits: its own output is written by the
 * thread pool, a piece at a time, and the hub gets a piece when the last one has gone. */
#include "connectors/home/home_output.h"

#include "api/base/list.h"
#include "api/base/log.h"
#include "connectors/home/home_linux.h"
#include "connectors/output/output.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COPY_EVERY_MS 100
#define FOLLOW_MS 200
#define AGAIN_MS 20
#define ROOM ((size_t)2 * OUTPUT_PIECE)
#define FRAME_BYTES 16384
#define PENDING_MAX 65536 /* on the session, before logs wait: reports and beats go by them */
#define STREAMS_MAX 16

struct log_told { /* a log that the hub has asked for */
    struct list link;
    struct home_output *of;
    struct stream *to;
    uint64_t id;
    bool follow, paused;
    struct output output;
    struct timer tick;
};
struct home_output {
    struct loop *loop;
    char dir[HOME_FOLDER_MAX], path[HOME_FOLDER_MAX + 8];
    struct list streams;
    unsigned n_streams;
    bool over;
    /* the copy to our own output */
    struct output copied;
    struct timer copy;
    struct piece *under_way; /* NULL: none */
    bool copied_all;         /* once it is over */
};
struct piece { /* with the thread pool, which must not see the rest */
    struct home_output *of;
    struct buf text;
};

/* ---- our own output ---- */
static void piece_write(void *arg)
{
    const struct piece *p = arg;

    home_output_write(p->text.p, p->text.n);
}

static void piece_written(void *arg)
{
    struct piece *p = arg;
    struct home_output *o = p->of;

    buf_fini(&p->text);
    mem_free(p);
    if (!o) /* it went meanwhile */
        return;
    o->under_way = NULL;
    timer_start(&o->copy, 0);
}

static void copy_tick(void *arg)
{
    struct home_output *o = arg;
    bool over = o->over, again = false; /* before reading: what came last is read once more */
    struct err err;

    if (o->under_way)
        return;
    struct piece *p = mem_new(struct piece);
    buf_init(&p->text, ROOM);
    if (output_next(&o->copied, 0, &p->text, &again, &err) < 0) {
        log_err(LOG_WARN, "run.log", &err);
        again = false;
    }
    if (p->text.n > 0) {
        p->of = o;
        o->under_way = p;
        loop_work(o->loop, piece_write, piece_written, p);
        return;
    }
    buf_fini(&p->text);
    mem_free(p);
    o->copied_all = over && !again;
    if (!o->copied_all)
        timer_start(&o->copy, again ? AGAIN_MS : COPY_EVERY_MS);
}

/* ---- what the hub asks for ---- */
static void told_free(struct log_told *s)
{
    timer_stop(&s->tick);
    list_remove(&s->link);
    s->of->n_streams--;
    mem_free(s);
}

static void told_end(struct stream *to, uint64_t id, const struct err *why)
{
    const struct wire_end end = {.exit_code = why ? 1 : 0,
                                 .code = why ? why->code : 0,
                                 .text = why ? why->text : ""};

    wire_tell(to, HOME_END, id, wire_end, &end);
}

static void told_tick(void *arg)
{
    struct log_told *s = arg;
    bool over = s->of->over, again = false;
    struct err err;
    AUTO_BUF b;

    buf_init(&b, ROOM);
    if (s->paused || stream_pending(s->to) > PENDING_MAX) {
        timer_start(&s->tick, AGAIN_MS);
        return;
    }
    int rc = output_next(&s->output, loop_wall_ms(s->of->loop), &b, &again, &err);
    for (size_t at = 0; rc == 0 && at < b.n; at += FRAME_BYTES)
        frame_send(s->to, HOME_DATA, 1, s->id, b.p + at,
                   b.n - at < FRAME_BYTES ? b.n - at : FRAME_BYTES);
    if (rc < 0 || (!again && (over || !s->follow))) {
        told_end(s->to, s->id, rc < 0 ? &err : NULL);
        told_free(s);
        return;
    }
    timer_start(&s->tick, b.n > 0 ? 0 : again ? AGAIN_MS : FOLLOW_MS);
}

static void told_begin(struct home_output *o, struct stream *to, const struct frame *f)
{
    struct wire_open *q = NULL;
    struct err err = {0};
    AUTO_ARENA m = arena_create(0);
    struct log_told *s = mem_new(struct log_told);

    *s = (struct log_told){.of = o, .to = to, .id = f->id};
    timer_init(&s->tick, o->loop, told_tick, s);
    list_push(&o->streams, &s->link);
    o->n_streams++;
    int rc = wire_read(wire_open, f->body, m, &q, &err);
    if (rc == 0 && o->n_streams > STREAMS_MAX)
        rc = err_set(&err, E_LIMIT, "more than %d logs at a time of one runner", STREAMS_MAX);
    if (rc == 0) {
        const struct output_request wanted = {.tail_lines = q->tail,
                                              .timestamps = q->timestamps,
                                              .since_span_ms = q->since_span_ms,
                                              .since_ms = q->since_ms};
        s->follow = q->follow;
        rc = output_open(&s->output, o->loop, o->path, &wanted, &err);
    }
    if (rc < 0) {
        told_end(to, f->id, &err);
        told_free(s);
        return;
    }
    frame_send(to, HOME_OPENED, 0, f->id, NULL, 0);
    timer_start(&s->tick, 0);
}

void home_output_frame(struct home_output *o, struct stream *to, const struct frame *f)
{
    struct log_told *s = NULL;
    struct err err;

    if (f->type == HOME_LOGS && !o) {
        (void)err_set(&err, E_NOTIMPL, "this runner keeps no log");
        told_end(to, f->id, &err);
        return;
    }
    if (!o)
        return;
    list_for_each (it, &o->streams)
        if (container_of(it, struct log_told, link)->id == f->id)
            s = container_of(it, struct log_told, link);
    if (f->type == HOME_LOGS && !s)
        told_begin(o, to, f);
    else if (f->type == HOME_PAUSE && s)
        s->paused = f->flags != 0;
    else if (f->type == HOME_CLOSE && s)
        told_free(s);
}

void home_output_lost(struct home_output *o)
{
    while (o && !list_empty(&o->streams))
        told_free(container_of(o->streams.next, struct log_told, link));
}

/* ---- its life ---- */
struct home_output *home_output_create(struct loop *l)
{
    const struct output_request all = {.tail_lines = -1};
    struct home_output *o = mem_new(struct home_output);
    struct err err;

    o->loop = l;
    list_init(&o->streams);
    timer_init(&o->copy, l, copy_tick, o);
    if (home_folder_make(o->dir) != 0) {
        log_event(LOG_WARN, "run.no_log",
                  LOG_FIELDS({"why", log_str("no folder for it in TMPDIR")}));
        mem_free(o);
        return NULL;
    }
    (void)snprintf(o->path, sizeof o->path, "%s/log", o->dir);
    int rc = output_open(&o->copied, l, o->path, &all, &err);
    INV(rc == 0);
    timer_start(&o->copy, COPY_EVERY_MS);
    return o;
}

const char *home_output_path(const struct home_output *o)
{
    return o ? o->path : NULL;
}

void home_output_over(struct home_output *o)
{
    if (!o)
        return;
    o->over = true;
    timer_start(&o->copy, 0);
    list_for_each (it, &o->streams)
        timer_start(&container_of(it, struct log_told, link)->tick, 0);
}

bool home_output_quiet(const struct home_output *o)
{
    return !o || (o->copied_all && list_empty(&o->streams));
}

struct home_output *home_output_destroy(struct home_output *o)
{
    if (!o)
        return NULL;
    home_output_lost(o);
    timer_stop(&o->copy);
    if (o->under_way)
        o->under_way->of = NULL;
    if (file_remove(o->loop, o->dir, NULL) < 0)
        log_event(LOG_INFO, "run.log_stays", LOG_FIELDS({"folder", log_str(o->dir)}));
    mem_free(o);
    return NULL;
}
