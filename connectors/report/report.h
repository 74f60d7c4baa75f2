/* What a runner leaves behind for whoever started it: one line of JSON, in a pod's termination log,
 * a Slurm job's comment or a file, signed by the run's token. Where a runner has no way home, it is
 * all that comes from it.
 *
 * The line passes through many hands: its program may write the same file, its server reads it and
 * hands it on. So it is believed only when its signature holds, of the very run and rank that was
 * asked about. One that is missing, cut, altered or of another run says nothing at all: not that
 * the run has ended, and not that it has not. README.md has the form of the line.
 *
 * A token names one runner: (cluster, uid, epoch, try, rank). It comes with the order, to that
 * runner and nobody else, and is kept nowhere: any member makes it again. */
#ifndef HANSE_CONNECTORS_REPORT_H
#define HANSE_CONNECTORS_REPORT_H

#include "api/base/cluster.h"
#include "api/base/loop/loop.h"
#include "connectors/wire/wire.h"

/* ---- tokens (token.c) ---- */
#define HOME_TOKEN_MAX 384
#define HOME_MAC_BYTES 32
struct home_token {
    struct run_key key;
    int64_t rank, ranks; /* of the run: 0 .. ranks - 1 */
    int64_t made_ms;     /* when it was made, UTC by the log; a runner takes it for a time passed */
    char cluster[CLUSTER_UID_MAX];
};
struct home_keys { /* how this cluster signs texts: HMAC-SHA256 */
    void (*sign)(void *arg, const char *text, unsigned char ret[HOME_MAC_BYTES]);
    bool (*holds)(void *arg, const char *text, const unsigned char mac[HOME_MAC_BYTES]);
    /* Signs as the i-th key of the ring does, from 0 on; false: there are no more. */
    bool (*again)(void *arg, unsigned i, const char *text, unsigned char ret[HOME_MAC_BYTES]);
    void *arg;
};
/* Texts of letters, digits and "-_./": hanse-run-1/CLUSTER/UID.EPOCH.TRY/RANK/RANKS/MADE/MAC. */
void home_token_make(const struct home_token *t, const struct home_keys *k,
                     char ret[HOME_TOKEN_MAX]);
/* E_SYNTAX: it is none. Its signature is not looked at: a runner cannot. */
int home_token_read(const char *text, struct home_token *ret, struct err *err) MUST_CHECK;
/* E_UNAUTH: it is none, or none of this cluster's. */
int home_token_verify(const char *text, const struct home_keys *k, struct home_token *ret,
                      struct err *err) MUST_CHECK;
/* The name of a token is what is ahead of its MAC: no secret. Reads one. E_SYNTAX. */
int home_token_name_read(const char *name, struct home_token *ret, struct err *err) MUST_CHECK;
/* Makes the token of that name again, by the i-th key of the ring, from 0 on; false: there are no
 * more. The caller wipes it. */
bool home_token_again(const char *name, const struct home_keys *k, unsigned i,
                      char ret[HOME_TOKEN_MAX]);

/* ---- the line (line.c) ---- */
/* With its newline, as much as a kubelet reads of a container; whoever keeps less of it than all
 * keeps nothing. */
#define REPORT_LINE_MAX 4096
#define REPORT_VERSION 1
struct report_line {
    struct home_token of;     /* whose it is, and by which hub */
    int64_t number;           /* which of this runner's lines, from 1 on: the highest is newest */
    int64_t at_ms;            /* when it was written, UTC ms by the runner's clock */
    struct run_report report; /* step RUN_STEP_ENDED: its end; its leases are not told */
};
/* Adds the line of that report, with its newline, signed by that token, which home_token_read has
 * read. Its texts become UTF-8 without control characters; the message is cut, and in the end the
 * cut left out, so that all of it fits. */
void report_line_print(const char *token, const struct run_report *r, int64_t number, int64_t at_ms,
                       struct buf *out);
/* Reads the first line of a text that anybody may have written, n bytes, for the runner of that run
 * and rank; ranks 0: of as many as it says (of.ranks, which the hub has signed). Plain data comes
 * back, which borrows nothing; it is as it was printed.
 *
 * E_SYNTAX, E_TOOLARGE: it is no report; E_NOTIMPL: of a version that this one cannot read;
 * E_CONFLICT: of another run or rank; E_UNAUTH: its signature does not hold. Each of these leaves
 * the caller where it was, as if there were no text at all. What is read is what that runner said:
 * that its run has ended is still for its target to prove. */
int report_line_read(const char *text, size_t n, const struct run_key *key, int64_t rank,
                     int64_t ranks, const struct home_keys *keys, struct report_line *ret,
                     struct err *err) MUST_CHECK;

/* Did this very token sign the first line of that text? For a process that has no keys. */
bool report_line_is_by(const char *token, const char *text, size_t n);

/* ---- what the ranks of a run have left (left.c) ---- */
struct report_reader {
    const char *target;           /* of messages */
    const struct home_keys *keys; /* NULL: nothing is believed */
    bool checkpoints;             /* its runners call home: their newest checkpoint counts */
};
/* Adds to what the target says of a run (*o, also of which nothing but its key and state is known)
 * what its runners have signed: how it ended and its newest checkpoint, and to those of `workers`
 * that are there how they ended. texts: n of them by rank, as they were found; NULL or "": that
 * rank has left none. That the run has ended is the target's word alone (o->state, o->proof); where
 * it says so, and all ranks have signed that nothing was started, it becomes absent. What is
 * refused is logged. What is added to `workers` is in the arena. E_UNKNOWN: target and runners
 * contradict each other. */
int report_left_take(const struct report_reader *from, const char *const *texts, uint32_t n,
                     struct observation *o, struct run_workers *workers, struct arena *a,
                     struct err *err) MUST_CHECK;

/* ---- checkpoints, ahead of a start (stage.c) ---- */
#define REPORT_STAGE_MAX 8192
/* The line that `hanse run --stage` prints, with its newline. */
void report_stage_print(const struct stage_said *s, struct buf *out);
/* Reads it; whoever handed it on is who is believed. E_SYNTAX, E_TOOLARGE, E_NOTIMPL: it says
 * nothing. */
int report_stage_read(const char *text, size_t n, struct stage_said *ret,
                      struct err *err) MUST_CHECK;
int report_stage_main(int argc, char **argv); /* what is behind --stage; exit status */

/* ---- where a runner writes it (place.c) ---- */
enum report_form {
    REPORT_PLAIN,       /* FILE: the report alone, unsigned, for people and scripts */
    REPORT_TERMINATION, /* termination-message[:PATH]: in place, for a kubelet */
    REPORT_FILE,        /* file:PATH: a new file in place of the old one */
    REPORT_SLURM        /* slurm-comment: by scontrol, at the end alone */
};
#define REPORT_TERMINATION_LOG "/dev/termination-log"
struct report_place {
    enum report_form form;
    const char *path; /* borrowed of the text; of REPORT_SLURM "" */
};
int report_place_read(const char *text, struct report_place *ret, struct err *err) MUST_CHECK;
bool report_place_signs(const struct report_place *p); /* it needs a token */
struct report_writer;
/* token: "" where the form does not sign. E_UNAVAIL: a report cannot be written there; nothing
 * should be started then. The rest is borrowed until report_writer_destroy. */
int report_writer_create(struct loop *l, const struct report_place *p, const char *token,
                         struct report_writer **ret, struct err *err) MUST_CHECK;
/* Writes what its form has of it: the end, and where it can be replaced each newer cut. What goes
 * wrong is logged. A first word that nothing was started leaves alone what another process with the
 * same token has signed. */
void report_writer_put(struct report_writer *w, const struct run_report *r);
bool report_writer_quiet(const struct report_writer *w); /* NULL: true. Nothing is under way */
/* Ends what is under way; a thread that hangs is left alone, and its process should _exit. Accepts
 * NULL; returns NULL. */
struct report_writer *report_writer_destroy(struct report_writer *w);

#endif
