/* Reads what a program printed, from its last lines or since a time, with or without times
 * (output.h). The file's front may go meanwhile: a reader never passes over what is still there,
 * and never takes one byte for another. */
#include "connectors/output/output.h"

#include "api/schema/schema.h"

#include <stdio.h>
#include <string.h>

#define HEAD 16
#define MARK 16
#define PIECE_TIMED 2048 /* of lines of one byte, each with its time */
#define STAMP_MAX 32
#define MOVING_MAX 50 /* looks: its runner died while it rewrote the file */
#define TIMES_MAX ((size_t)HEAD + (size_t)MARK * (OUTPUT_MARKS_MAX + 1))

struct marks {
    uint64_t base;
    uint32_t generation;
    bool moving;
    const unsigned char *v;
    size_t n;
};

static uint64_t number(const unsigned char *p, int bytes)
{
    uint64_t v = 0;

    for (int i = 0; i < bytes; i++)
        v |= (uint64_t)p[i] << (8 * i);
    return v;
}

static uint64_t mark_offset(const struct marks *m, size_t i)
{
    return number(m->v + MARK * i, 8);
}
static int64_t mark_ms(const struct marks *m, size_t i)
{
    return (int64_t)number(m->v + MARK * i + 8, 8);
}

/* Of the file's head, and with `all` of its marks, which are in b then. False: there is none. */
static bool marks_read(const struct output *o, bool all, struct buf *b, struct marks *ret)
{
    char path[sizeof o->path + 8];

    *ret = (struct marks){0};
    (void)snprintf(path, sizeof path, "%s.times", o->path);
    if (file_read_at(o->loop, path, 0, all ? TIMES_MAX : HEAD, b, NULL) < 0 || b->n < HEAD)
        return false;
    const unsigned char *p = (const unsigned char *)b->p;
    ret->base = number(p, 8);
    ret->generation = (uint32_t)number(p + 8, 4);
    ret->moving = number(p + 12, 4) != 0;
    ret->v = p + HEAD;
    ret->n = (b->n - HEAD) / MARK;
    return true;
}

/* ---- where to begin ---- */
/* Where the last n lines begin: one pass to count, one to skip. */
static uint64_t tail_at(struct output *o, int64_t lines)
{
    uint64_t offset = 0;
    int64_t total = 0, skip;
    char last = '\n';

    if (lines < 0)
        return 0;
    for (int pass = 0; pass < 2; pass++) {
        skip = total - lines;
        if (pass == 1 && skip <= 0)
            return 0;
        for (offset = 0;;) {
            AUTO_BUF b;
            buf_init(&b, OUTPUT_PIECE + 1);
            if (file_read_at(o->loop, o->path, offset, OUTPUT_PIECE, &b, NULL) < 0 || b.n == 0)
                break;
            for (size_t i = 0; i < b.n; i++) {
                total += pass == 0 && b.p[i] == '\n';
                if (pass == 1 && b.p[i] == '\n' && --skip == 0)
                    return offset + i + 1;
            }
            last = b.p[b.n - 1];
            offset += b.n;
        }
        total += pass == 0 && last != '\n';
        o->lines = total;
    }
    return offset;
}

/* What stands before the mark ahead of the first that is not older had come before. */
static uint64_t since_at(const struct marks *m, int64_t ms)
{
    uint64_t at = m->base;

    for (size_t i = 0; i < m->n && mark_ms(m, i) < ms; i++)
        at = mark_offset(m, i);
    return at > m->base ? at - m->base : 0;
}

static void resume(struct output *o, const struct output_request *q)
{
    if (q->from >= o->base) {
        o->offset = q->from - o->base;
        o->begins = !q->mid;
    }
}

int output_open(struct output *o, struct loop *l, const char *path, const struct output_request *q,
                struct err *err)
{
    bool since = q->since_span_ms || q->since_ms;
    struct marks m;
    AUTO_BUF b, before;

    buf_init(&b, TIMES_MAX + 1);
    buf_init(&before, 8);
    *o = (struct output){.loop = l, .begins = true, .timestamps = q->timestamps};
    if (strlen(path) >= sizeof o->path)
        return err_set(err, E_TOOLARGE, "the path of the log is too long");
    str_copy(o->path, sizeof o->path, path);
    o->times = marks_read(o, since, &b, &m);
    o->base = m.base;
    if (q->resumes)
        resume(o, q);
    else
        o->offset = tail_at(o, q->tail_lines);
    o->front = o->base > 0 && o->offset == 0 && !q->resumes;
    if (!since && !q->timestamps)
        return 0;
    if (!o->times && file_read_at(l, path, 0, 1, &before, err) == 0 && before.n > 0)
        return err_set(err, E_NOTIMPL,
                       "its runner is of a version that does not note when output comes");
    if (!since || !o->times)
        return 0;
    int64_t from = q->since_ms ? q->since_ms : loop_wall_ms(l) - q->since_span_ms;
    uint64_t at = since_at(&m, from);
    if (at <= o->offset)
        return 0;
    o->offset = at;
    o->front = false;
    buf_reset(&before);
    o->skips = file_read_at(l, path, at - 1, 1, &before, NULL) == 0 && before.n == 1 &&
               before.p[0] != '\n'; /* in the middle of a line that had begun before */
    return 0;
}

/* ---- piece by piece ---- */
static int64_t time_of(const struct marks *m, uint64_t at, int64_t otherwise_ms)
{
    size_t lo = 0, hi = m->n;

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (mark_offset(m, mid) > at)
            hi = mid;
        else
            lo = mid + 1;
    }
    return lo < m->n ? mark_ms(m, lo) : otherwise_ms;
}

void output_stamp(struct buf *b, int64_t ms)
{
    char text[STAMP_MAX];
    int64_t in_s = ms % 1000;

    time_print(ms - in_s, text);
    text[strcspn(text, ".Z")] = '\0';
    buf_printf(b, "%s.%03dZ ", text, (int)in_s);
}

/* Takes what is wanted of the text, which stands at o->offset, with times where they are. */
static void take(struct output *o, const char *p, size_t n, const struct marks *m, int64_t now_ms,
                 struct buf *b)
{
    const char *at = p, *const end = p + n;

    while (at < end) {
        const char *line = memchr(at, '\n', (size_t)(end - at));
        const char *next = line ? line + 1 : end;
        if (!o->skips) {
            if (o->begins && o->timestamps)
                output_stamp(b, time_of(m, o->base + o->offset + (uint64_t)(at - p), now_ms));
            buf_add(b, at, (size_t)(next - at));
        }
        o->begins = line != NULL;
        o->skips = o->skips && !line;
        at = next;
    }
    o->offset += n;
}

/* The front of the file has gone since the last look. */
static void base_follow(struct output *o, const struct marks *m)
{
    uint64_t gone = m->base > o->base ? m->base - o->base : 0;

    if (gone > o->offset) { /* what comes next is not what followed */
        o->missed += gone - o->offset;
        o->offset = 0;
        o->begins = true;
    } else {
        o->offset -= gone;
    }
    o->base = m->base;
}

int output_next(struct output *o, int64_t now_ms, struct buf *b, bool *ret_again, struct err *err)
{
    struct marks m = {0}, after = {0};
    AUTO_BUF times, head, text;

    buf_init(&times, TIMES_MAX + 1);
    buf_init(&head, HEAD + 1);
    buf_init(&text, OUTPUT_PIECE + 1);
    o->times = marks_read(o, o->timestamps, &times, &m);
    *ret_again = m.moving && o->moving++ < MOVING_MAX;
    if (*ret_again)
        return 0;
    if (o->times)
        base_follow(o, &m);
    o->came = o->base + o->offset;
    int rc = file_read_at(o->loop, o->path, o->offset, o->timestamps ? PIECE_TIMED : OUTPUT_PIECE,
                          &text, err);
    if (rc < 0 && rc != E_NOTFOUND)
        return rc;
    *ret_again = o->times && marks_read(o, false, &head, &after) &&
                 (after.generation != m.generation || after.base != m.base ||
                  (after.moving && o->moving < MOVING_MAX));
    if (*ret_again) /* which bytes these were cannot be told */
        return 0;
    if (!m.moving)
        o->moving = 0;
    take(o, text.p, text.n, &m, now_ms, b);
    *ret_again = text.n > 0;
    return 0;
}

/* ---- as it is ---- */
/* Of the text that was read, as far as there is room: what it was cut to comes back. */
static size_t cut_marks(struct output_cut *c, const struct marks *m, size_t n, int64_t now_ms)
{
    const uint64_t end = c->from + n;

    for (size_t i = 0; i < m->n && c->n_marks < OUTPUT_CUT_MARKS; i++) {
        uint64_t at = mark_offset(m, i);
        if (at <= c->from)
            continue;
        c->marks[c->n_marks++] = (struct output_mark){at < end ? at : end, mark_ms(m, i)};
        if (at >= end)
            return n;
    }
    if (c->n_marks == OUTPUT_CUT_MARKS)
        return (size_t)(c->marks[c->n_marks - 1].end - c->from);
    if (n > 0)
        c->marks[c->n_marks++] = (struct output_mark){end, now_ms};
    return n;
}

int output_cut(struct loop *l, const char *path, uint64_t from, size_t max, int64_t now_ms,
               struct buf *text, struct output_cut *ret, bool *ret_again, struct err *err)
{
    struct output o = {.loop = l};
    struct marks m = {0}, after = {0};
    AUTO_BUF times, head, before;
    size_t n0 = text->n;

    buf_init(&times, TIMES_MAX + 1);
    buf_init(&head, HEAD + 1);
    buf_init(&before, 8);
    *ret = (struct output_cut){.from = from};
    if (strlen(path) >= sizeof o.path)
        return err_set(err, E_TOOLARGE, "the path of the log is too long");
    str_copy(o.path, sizeof o.path, path);
    bool marked = marks_read(&o, true, &times, &m);
    *ret_again = m.moving;
    if (m.moving)
        return 0;
    if (m.base > from)
        ret->from = m.base;
    const uint64_t at = ret->from - m.base;
    int rc = file_read_at(l, path, at, max, text, err);
    if (rc < 0 && rc != E_NOTFOUND)
        return rc;
    ret->begins = at == 0 || (file_read_at(l, path, at - 1, 1, &before, NULL) == 0 &&
                              before.n == 1 && before.p[0] == '\n');
    *ret_again = marked && (!marks_read(&o, false, &head, &after) || after.moving ||
                            after.generation != m.generation || after.base != m.base);
    /* Else it cannot be told which bytes these were. */
    text->n = *ret_again ? n0 : n0 + cut_marks(ret, &m, text->n - n0, now_ms);
    return 0;
}
