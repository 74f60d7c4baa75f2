/* The runner's side of logs (home_runner.h). Nothing here waits: its own output is written by the
 * thread pool, a piece at a time. */
#include "connectors/home/home_runner.h"

#include "api/base/log.h"
#include "connectors/output/output.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COPY_EVERY_MS 100
#define AGAIN_MS 20
#define ROOM ((size_t)2 * OUTPUT_PIECE)

struct home_output {
    struct loop *loop;
    char path[HOME_FOLDER_MAX + 8];
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

/* ---- its life ---- */
struct home_output *home_output_create(struct loop *l, const char *dir)
{
    const struct output_request all = {.tail_lines = -1};
    struct home_output *o = mem_new(struct home_output);
    struct err err;

    o->loop = l;
    timer_init(&o->copy, l, copy_tick, o);
    (void)snprintf(o->path, sizeof o->path, "%s/log", dir);
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
}

bool home_output_is_over(const struct home_output *o)
{
    return !o || o->over;
}

bool home_output_quiet(const struct home_output *o)
{
    return !o || o->copied_all;
}

struct home_output *home_output_destroy(struct home_output *o)
{
    if (!o)
        return NULL;
    timer_stop(&o->copy);
    if (o->under_way)
        o->under_way->of = NULL;
    mem_free(o);
    return NULL;
}
