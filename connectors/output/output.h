/* What a program printed: a file that its runner bounds, and beside it a small one that says when
 * its bytes came, which nothing in the text tells. The runner writes both; the agent, or the runner
 * itself where there is no agent, reads them for whoever asked.
 *
 * PATH.times: u64 bytes that are gone from the front of PATH, u32 generation, u32 1 while it is
 * being rewritten; then marks, u64 offset, i64 UTC ms: what stands before that offset had come by
 * then. Offsets count from the first byte that was ever printed. All is little-endian. */
#ifndef HANSE_CONNECTORS_OUTPUT_H
#define HANSE_CONNECTORS_OUTPUT_H

#include "api/base/loop/loop.h"

#define OUTPUT_MARK_EVERY_MS 250
#define OUTPUT_MARKS_MAX 32768 /* then every second one goes */
#define OUTPUT_PIECE 65536     /* bytes at most that output_next adds */

/* ---- the runner's side (marks_linux.c) ---- */
struct output_writer;
struct output_writer *output_writer_create(const char *path, uint64_t max_bytes); /* NULL: NULL */
/* Notes what has come by now_ms (UTC). Drops the older half of what is larger than max_bytes; its
 * writer goes on undisturbed. Accepts NULL; false: there is nothing to note, ever. */
bool output_writer_mark(struct output_writer *w, int64_t now_ms);
struct output_writer *output_writer_destroy(struct output_writer *w); /* accepts NULL */

/* ---- who reads (output.c) ---- */
struct output_request {
    int64_t tail_lines; /* -1: all */
    bool timestamps;
    int64_t since_span_ms, since_ms; /* 0: all; as struct log_request */
    bool resumes, mid;               /* it goes on from that byte; mid: which is amid a line */
    uint64_t from;
};
struct output { /* plain; nothing to free */
    struct loop *loop;
    char path[4096];
    uint64_t base, offset; /* gone from the front; in the file as it is */
    bool timestamps, times;
    bool begins, skips; /* at the beginning of a line; up to the next one nothing is wanted */
    unsigned moving;    /* looks in a row at which it was being rewritten */
    bool front;         /* more was wanted than what it begins with, and had gone */
    int64_t lines;      /* in the file, where the last ones were wanted */
    uint64_t came;      /* of what output_next added last: number of the first byte, */
    uint64_t missed;    /* ahead of which so many went unread; the reader sets it to 0 */
};
/* E_NOTIMPL: times are wanted, and its runner, of an older version, kept none. A file that is not
 * there yet is empty. */
int output_open(struct output *o, struct loop *l, const char *path, const struct output_request *q,
                struct err *err) MUST_CHECK;
/* Adds the next piece to b, which has room for OUTPUT_PIECE. What has no mark yet has come by the
 * time now_ms. *ret_again: look again in some ms, whatever was added; else nothing added means that
 * this is all for now. */
int output_next(struct output *o, int64_t now_ms, struct buf *b, bool *ret_again,
                struct err *err) MUST_CHECK;

void output_stamp(struct buf *b, int64_t ms); /* the time ahead of a line */

/* ---- who keeps it elsewhere (output.c) ---- */
#define OUTPUT_CUT_MARKS 2048
struct output_mark {
    uint64_t end; /* what stands before it had come by then */
    int64_t ms;
};
struct output_cut {
    uint64_t from; /* of its first byte, counted from the first that was ever printed */
    bool begins;   /* a line begins with it */
    size_t n_marks;
    struct output_mark marks[OUTPUT_CUT_MARKS]; /* the last one ends with the text */
};
/* Adds the text that stands at `from`, or behind it where that is gone, to `text`: at most max
 * bytes, as they are. Nothing added: there is no more now. *ret_again as of output_next. */
int output_cut(struct loop *l, const char *path, uint64_t from, size_t max, int64_t now_ms,
               struct buf *text, struct output_cut *ret, bool *ret_again,
               struct err *err) MUST_CHECK;

/* Numbers in files of marks, here and in connectors/kept: 1 to 8 bytes, the lowest first. */
static inline void le_put(unsigned char *p, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++)
        p[i] = (unsigned char)(v >> (8 * i));
}

static inline uint64_t le_get(const unsigned char *p, int bytes)
{
    uint64_t v = 0;

    for (int i = 0; i < bytes; i++)
        v |= (uint64_t)p[i] << (8 * i);
    return v;
}

#endif
