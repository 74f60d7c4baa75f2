/* What the files of the programs' side share. Private to connectors/streams. */
#ifndef HANSE_CONNECTORS_STREAMS_INTERNAL_H
#define HANSE_CONNECTORS_STREAMS_INTERNAL_H

#include "connectors/output/output.h"
#include "connectors/streams/streams.h"

#define HELPERS_MAX (2 * STREAMS_MAX) /* with those that are still ending */

struct streams {
    struct streams_config cfg;
    struct stream *to; /* NULL: no session */
    struct list all, helpers, callers;
    unsigned n, n_helpers, n_callers;
    struct listener *listener;
    char socket[108]; /* "": nobody listens */
};
struct helper { /* a process that serves a stream, and may outlive it for a moment */
    struct list link;
    struct streams *streams;
    struct served *of; /* NULL: its stream has ended, and it ends with that */
    struct process *process;
};
struct served { /* an open stream */
    struct list link;
    struct streams *streams;
    uint64_t id;
    bool paused, opens; /* opens: the hub waits to hear that it is open */
    struct timer tick;
    /* logs */
    struct run_key key;
    bool follow, places; /* places: the hub hears where it is, which it was told last: */
    uint64_t told_at;
    struct output output; /* of KEEP the path in it alone */
    /* a piece of it for a store */
    bool keeps;
    uint64_t from;
    struct buf piece; /* the file, once it is made */
    size_t sent;
    uint64_t unkept_ms; /* loop time at which there was something of it first; 0: there is none */
    /* exec and ports */
    bool attached, input_ended, tty, told; /* told: its exit status has come, exit_code */
    int exit_code;
    bool paces, choked;    /* the hub heeds that input has no room; it was told so */
    int64_t port;          /* forwarded; 0: none */
    int64_t rows, columns; /* of its terminal */
    struct helper *helper; /* NULL: none (any more) */
    int64_t helper_pid;
    struct stream *pipe;
    struct frame_reader reader;
    struct buf input; /* before the helper has dialed */
};
#define SERVED_AGAIN_MS 20
#define SERVED_FRAME 16384 /* bytes of DATA */

/* served.c */
struct served *served_by_id(const struct streams *v, uint64_t id);
void served_opened(struct served *s);
void served_free(struct served *s);
void served_end(struct served *s, int code, const struct err *err);
bool served_crowded(const struct served *s); /* output waits: the session has no room, or the hub */

/* keeping.c */
int keeping_open(struct served *s, struct wire_open *q, struct err *err) MUST_CHECK;

/* attached.c */
int attached_open(struct served *s, struct wire_open *q, bool forward, struct err *err) MUST_CHECK;
void attached_free(struct served *s);
void attached_input(struct served *s, const struct frame *f); /* which may end it */
void attached_size(struct served *s, const struct frame *f);
void attached_hang_up(struct served *s);
void callers_close(struct streams *v); /* who has dialed and not said for which stream */

#endif
