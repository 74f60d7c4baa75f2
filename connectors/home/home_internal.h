/* What the files of the hub's side share: runs, sessions, and what streams through them. */
#ifndef HANSE_CONNECTORS_HOME_HOME_INTERNAL_H
#define HANSE_CONNECTORS_HOME_HOME_INTERNAL_H

#include "api/base/list.h"
#include "connectors/home/home.h"
#include "connectors/streams/streams.h"

#define HOME_BEATS 8
#define HOME_PLACES 32 /* pieces of logs that are here at a time, of one target */

/* What the program of one runner prints, on its way into a store. */
struct home_keeping {
    struct kept_queue *queue;
    struct kept_writer *writer;  /* NULL: nothing is to be kept (any more) */
    struct exec_session *stream; /* that its piece is to come on; NULL: none is asked for */
    bool all;                    /* no piece is: it only hears that all is kept */
    struct list waits;           /* home_runs.waiting, for a place */
    bool placed;                 /* it has one */
    struct timer patience;       /* for its piece, since it has it */
    struct buf piece;
    struct timer look;
};

struct home_session {
    struct list link; /* home_run.sessions */
    struct home_run *run;
    int64_t rank;
    char instance[40];     /* of the process that showed the token */
    struct stream *stream; /* NULL: it is not here, and this is what it said last */
    struct frame_reader reader;
    struct timer look;
    uint64_t heard_ms;
    unsigned looks;
    struct beat { /* its clock in its last beats, and the loop time of their arrival */
        uint64_t at_ms, received_ms;
    } beats[HOME_BEATS];
    struct run_report report;
    bool logs;  /* it keeps its program's output */
    bool execs; /* it can put commands beside its program, and forward ports */
    bool keeps; /* it gives pieces of it for a store */
    struct asked_streams streams;
    struct home_keeping keeping;
};
struct home_run {
    struct list link; /* home_runs.all, oldest first */
    struct home_runs *home;
    struct run_key key;
    int64_t ranks;
    struct list sessions;
    bool *over;          /* by rank: that one has ended, says its target; NULL: none has */
    int64_t n_over;      /* of these */
    int64_t save_number; /* the newest request to save and go on; 0: none */
    uint64_t save_grace_ms;
    uint64_t since_ms; /* this member knows of it; loop_now_ms */
    struct timer look; /* for when the lease is over of those who have not called since */
    bool has_seen;     /* the target's server has said something of it */
    struct observation seen;
};
struct home_runs {
    struct loop *loop;
    const struct connector_env *env;
    struct list all;
    void *by_key;     /* tsearch tree of struct home_run */
    unsigned n;       /* sessions of all runs */
    uint64_t room_ms; /* when it was last looked for those that are not waited for; 0: never */
    uint64_t next_stream;
    char members[HOME_ADDRESSES_MAX][PEER_NAME_MAX]; /* of the hub; told to all who are here */
    unsigned n_members;
    struct list waiting; /* home_keeping.waits */
    unsigned places;     /* that are taken */
    const struct home_runs_events *ev;
    void *arg;
};

/* home_driver.c */
/* When the lease is over that a runner held which is silent, by what it said last: nobody renews it
 * any more. loop_now_ms; 0: it is here or over, its program does not run, or it held none. */
uint64_t home_lapses_ms(const struct home_session *x);
bool home_run_lives(const struct home_run *r); /* by the log: it is waited for */
/* Finds it, or makes it where by the log its runners hold a lease: they must call. NULL: nobody
 * waits for them. */
struct home_run *home_run_await(struct home_runs *h, const struct run_key *k);
/* It is taken, and here is what it is told; with the members that are known. */
void home_session_welcome(const struct home_session *x, struct home_welcome w);
/* home_runs.c */
struct home_run *home_run_find(const struct home_runs *h, const struct run_key *k); /* or NULL */
struct home_run *home_run_make(struct home_runs *h, const struct run_key *k, int64_t ranks);
/* With try 0: the newest try of that epoch. NULL: none has called. */
struct home_run *home_run_newest(const struct home_runs *h, const struct run_key *k);
struct home_session *home_session_find(const struct home_run *r, int64_t rank);
bool home_rank_over(const struct home_run *r, int64_t rank); /* its target says so */
/* home_streams.c */
void home_streams_init(struct home_session *x);
/* A frame of a stream of that very session; those of others it cannot name. An error: of a stream
 * that nobody ever opened. */
int home_stream_frame(struct home_session *x, const struct frame *f, struct err *err) MUST_CHECK;

/* It has come, anew or again, and what it prints goes there; NULL: nowhere. */
void home_keep_begin(struct home_session *x, const struct home_keep *keep);
void home_keep_lost(struct home_session *x); /* nothing more comes from it */
void home_keep_end(struct home_session *x);  /* it is forgotten */

#endif
