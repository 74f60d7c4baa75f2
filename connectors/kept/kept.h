/* What programs printed, kept in a store (connectors/checkpoint/store) as long as the machine may
 * not be: pieces, written by whoever runs the program, read by a member of the hub.
 *
 *   STORE/_logs/CLUSTER/NAMESPACE/WORKLOAD-UID/eEPOCH.TRY/RANK/FROM.log.gz
 *
 * FROM is the number of the piece's first byte, counted from the first that was ever printed, in 16
 * digits. So a piece has one name, who sends it again after an answer that was lost finds it there,
 * and what is missing between two is seen. A piece is a gzip file of the text as it was printed:
 * anybody can read it without Hanse. Its extra field "HL" says when its bytes came:
 *
 *   u8 version 1, u8 flags (1: a line begins with it; 2: nothing follows, the program has ended),
 *   u64 FROM, u32 bytes; then marks, u32 offset in it, i64 UTC ms: what stands before that offset
 *   had come by then. All little-endian.
 *
 * No namespace is called "_logs", so checkpoints may lie in the same store. Pieces never change.
 * This code must never take one worker's bytes for another's, and never pass over what is missing
 * in silence. */
#ifndef HANSE_CONNECTORS_KEPT_KEPT_H
#define HANSE_CONNECTORS_KEPT_KEPT_H

#include "api/base/loop/loop.h"
#include "connectors/checkpoint/checkpoint.h"
#include "connectors/output/output.h"

#define KEPT_PIECE_MAX 131072 /* bytes of text */
#define KEPT_PACKED_MAX ((size_t)KEPT_PIECE_MAX + 65536 + 4096)
#define KEPT_PIECES_MAX 4096 /* of one worker; then the oldest but the first go */
#define KEPT_EVERY_MS 5000   /* between pieces of a program that prints; longer after hours */
#define KEPT_EVERY_MAX_MS 60000
#define KEPT_END_MS 10000      /* that an end waits for what was printed last */
#define KEPT_RATE 1048576u     /* bytes a second of one worker while it runs */
#define KEPT_MAX_DEFAULT (64ll << 20) /* bytes of text that are kept of one run */
#define KEPT_PATH_MAX CHECKPOINT_PATH_MAX

/* ---- names and pieces (piece.c) ---- */
/* "STORE/_logs/CLUSTER/NAMESPACE/WORKLOAD-UID"; of a name that is too long for a folder, "UID".
 * cluster: its uid; "": it has none. */
int kept_base(const char *store, const char *cluster, const char *ns, const char *name,
              const char *uid, char ret[KEPT_PATH_MAX], struct err *err) MUST_CHECK;
void kept_try_name(int64_t epoch, int64_t try_, char ret[64]);
bool kept_try_parse(const char *name, int64_t *ret_epoch, int64_t *ret_try);
void kept_piece_name(uint64_t from, char ret[40]);
bool kept_piece_parse(const char *name, uint64_t *ret_from);

struct kept_piece {
    struct output_cut at;
    uint32_t bytes;
    bool last;
};
/* text: p->bytes bytes. *out gets the file. */
int kept_pack(const struct kept_piece *p, const char *text, struct buf *out,
              struct err *err) MUST_CHECK;
/* E_CORRUPT: it is none of ours, or damaged. text gets at most KEPT_PIECE_MAX bytes. from: where it
 * has to begin, or KEPT_ANYWHERE. */
#define KEPT_ANYWHERE UINT64_MAX
int kept_unpack(struct slice file, uint64_t from, struct kept_piece *ret, struct buf *text,
                struct err *err) MUST_CHECK;

/* ---- who keeps it (writer.c): on a loop; the store is asked on a thread ---- */
struct kept_writer;
struct kept_job;
struct kept_config { /* texts are copied */
    struct loop *loop;
    /* Of the log that its runner bounds (connectors/output). NULL: it is elsewhere, and asked. */
    const char *path;
    const char *base;       /* kept_base, and the name of its try */
    const char *const *env; /* as of struct checkpoint_store */
    const char *roots;      /* likewise */
    int64_t rank;
    uint64_t max_bytes; /* of text; 0: as is usual */
    /* Has kept_job_work(j) called on a thread, then kept_job_done(j) on the loop, in any case. */
    void (*begin)(struct kept_job *j, void *arg);
    void (*settled)(void *arg); /* kept_writer_settled has become true */
    /* Without a path. Has the piece made that begins at that byte, or behind it where the text is
     * gone; kept_writer_piece gives it, kept_writer_again says that it never comes. all: nothing is
     * asked for, all of the log is kept, and whoever has it may go. */
    void (*ask)(uint64_t from, bool all, void *arg);
    void (*empty)(void *arg); /* likewise: it holds no piece any more */
    void *arg;
};
struct kept_writer *kept_writer_create(const struct kept_config *cfg);
/* The file of the piece that was asked for, from whoever has the log, who is not believed. An
 * error: it is none, or nothing was asked for. */
int kept_writer_piece(struct kept_writer *w, struct slice file, struct err *err) MUST_CHECK;
void kept_writer_again(struct kept_writer *w); /* asks again, after a moment */
bool kept_writer_holds(const struct kept_writer *w); /* a piece that is on its way */
/* The program has ended: what it printed last is kept now. May be called again. */
void kept_writer_over(struct kept_writer *w);
/* It is over, and all of it is kept, or KEPT_END_MS have passed; it goes on trying all the same. */
bool kept_writer_settled(const struct kept_writer *w);
/* Why the store took nothing last; "": it did. */
const char *kept_writer_fault(const struct kept_writer *w);
struct kept_writer *kept_writer_destroy(struct kept_writer *w); /* accepts NULL */

/* A queue of jobs for the thread pool (queue.c): at_once of them, of one lane fewer, so that one
 * store that hangs does not hold up others. */
struct kept_queue;
struct kept_queue *kept_queue_create(struct loop *l, unsigned at_once, unsigned of_a_lane);
void kept_queue_add(struct kept_queue *q, struct kept_job *j, const void *lane);
struct kept_queue *kept_queue_destroy(struct kept_queue *q); /* accepts NULL */

/* p is cancelled when nobody waits for it any more, and may be NULL. */
void kept_job_progress(struct kept_job *j, struct checkpoint_progress *p);
void kept_job_work(struct kept_job *j);
void kept_job_done(struct kept_job *j); /* frees it */

/* ---- who reads it (reader.c): calls block, one thread at a time ---- */
struct kept_request {
    const char *base;       /* kept_base */
    const char *const *env; /* as of struct checkpoint_store */
    int64_t epoch, try_;    /* try_ 0: the newest one of that epoch of which anything is kept */
    int64_t rank;
    int64_t tail_lines; /* -1: all */
    int64_t since_ms;   /* UTC; 0: all */
    uint64_t before;    /* tail_lines are counted ahead of this byte, which is amid the next one */
    bool resumes, mid;  /* it goes on from that byte, instead; mid: which is amid a line */
    uint64_t from;
    uint64_t stop; /* it stops at a gap behind which only what follows this byte is; 0: at none */
    bool timestamps;
    struct checkpoint_progress *progress; /* NULL, or it may cancel any call */
};
struct kept_reader;
/* E_NOTFOUND: nothing is kept of that worker. Texts are borrowed until kept_close. */
int kept_open(const struct kept_request *q, struct kept_reader **ret, struct err *err) MUST_CHECK;
/* Adds the next piece as whoever asked wants it, with a line where something is missing, to out,
 * which has room for KEPT_ROOM. *ret_more false: this is all that is kept now. */
#define KEPT_ROOM ((size_t)KEPT_PIECE_MAX * 28 + 4096)
int kept_next(struct kept_reader *r, struct buf *out, bool *ret_more, struct err *err) MUST_CHECK;
/* Looks for what has come since. */
int kept_again(struct kept_reader *r, struct err *err) MUST_CHECK;
/* The byte behind all that was read; *ret_mid: a line had begun before it. */
uint64_t kept_at(const struct kept_reader *r, bool *ret_mid);
bool kept_go_on(struct kept_reader *r); /* it had stopped, and stops at no gap any more */
int64_t kept_try(const struct kept_reader *r); /* that it reads */
/* The last piece was read, or will be: nothing more comes. */
bool kept_complete(const struct kept_reader *r);
/* A line that says that the rest is missing, as far as it is known. */
void kept_missing(const struct kept_reader *r, const char *why, struct buf *out);
struct kept_reader *kept_close(struct kept_reader *r); /* accepts NULL */
/* Removes all that is kept of a Workload: base is kept_base in that store. What is gone already is
 * no error; a store that is not there is one. */
int kept_remove(const char *store, const char *base, const char *const *env,
                struct checkpoint_progress *p, struct err *err) MUST_CHECK;

#endif
