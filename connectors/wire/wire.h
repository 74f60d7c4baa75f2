/* What shim, agent and hub send each other: frames of api/base/net/frame.h. wire.def defines the
 * bodies, once for all three. Both ends are authenticated, and neither is trusted: bodies are
 * checked field by field when they are read, and one that would be too large is an error when it is
 * written. Nothing here knows what the bodies mean. */
#ifndef HANSE_CONNECTORS_WIRE_H
#define HANSE_CONNECTORS_WIRE_H

#include "api/base/cluster.h"
#include "api/base/limits.h"
#include "api/base/net/frame.h"
#include "api/schema/schema.h"
#include "connectors/wire/wire.def"

struct run_key {
    char uid[64];
    int64_t epoch, try_;
};
#define RUN_KEY_NUMBER_MAX ((int64_t)1 << 53) /* they are numbers in JSON */
#define RUN_KEY_MAX 112
_Static_assert(RUN_KEY_MAX >= sizeof((struct run_key *)0)->uid + 2 * sizeof ".-9223372036854775808",
               "the longest key fits");
void run_key_print(const struct run_key *k, char out[RUN_KEY_MAX]); /* "UID.EPOCH.TRY" */
int run_key_parse(const char *s, struct run_key *ret, struct err *err) MUST_CHECK;
bool run_key_same(const struct run_key *a, const struct run_key *b);
/* Of the same workload, whatever their epochs and tries. */
bool run_key_same_workload(const struct run_key *a, const struct run_key *b);
/* Below, at or above 0, by uid, epoch and try. */
int run_key_compare(const struct run_key *a, const struct run_key *b);

/* RUN_ABSENT, proved: nothing was ever started under this key, nor will be (the target refuses it
 * from now on). RUN_PENDING: accepted, and the target has given it nothing yet: it waits in the
 * target's own queue, holds no node, and no process of it is or was there; stop() proves it absent.
 * RUN_STARTING: accepted; not all workers run yet. RUN_ENDED, proved: every process of every worker
 * is gone. */
enum run_state {
    RUN_UNKNOWN, /* not known: the target is out of reach, or the evidence is incomplete */
    ENUM_run_state(KE)
};
enum runner_step {
    RUN_STEP_NONE, /* it has reported nothing yet */
    ENUM_runner_step(KE)
};
enum stage_answer {
    STAGE_NONE,
    ENUM_stage_answer(KE)
};
enum save_state {
    SAVE_NONE, /* nobody has asked it to save and go on */
    ENUM_save_state(KE)
};
enum machine_state {
    MACHINE_UNKNOWN, /* it cannot be told */
    ENUM_machine_state(KE)
};
#define INVENTORY_REVISION_MAX 64
#define CHECKPOINT_DIGEST_MAX 80 /* "sha256:" and 64 hex digits */
WIRE_SCHEMAS(SCHEMA_STRUCT)
#define X(s) extern const struct schema schema_##s;
WIRE_SCHEMAS(X)
#undef X

/* ---- frames on the shim's socket ---- */
enum run_frame {
    RUN_FRAME_STATE = 1, /* shim: run_report; on connecting and on every change */
    /* agent: shim_renew; without a newer grant the shim keeps the lease that it holds */
    RUN_FRAME_RENEW = 2,
    /* agent: shim_stop: sends the signal, then SIGKILL to all after the grace */
    RUN_FRAME_STOP = 3,
    RUN_FRAME_GO = 4, /* agent, no body: all ranks are ready, the program may start */
    /* agent: shim_save: sends the signal, and looks for what is saved after it */
    RUN_FRAME_SAVE = 5
};

/* ---- frames between agent and hub; answers carry the id of the question ---- */
enum agent_frame {
    /* session */
    AF_HELLO = 1,    /* agent: wire_hello */
    AF_WELCOME = 2,  /* server: wire_hub */
    AF_REDIRECT = 3, /* server: wire_redirect, then it closes */
    AF_REFUSED = 4,  /* server: wire_refused, then it closes */
    AF_BEAT = 5,     /* agent: wire_beat; server: wire_hub, no body to a guest */
    /* inventory */
    AF_INVENTORY = 10, /* server asks, no body */
    AF_NODES = 11,     /* agent: wire_nodes; also unasked (id 0), or what changed of them */
    AF_NOTICES = 12,   /* agent, unasked: wire_notices; once it is welcome, and when they changed */
    /* runs; each is answered by RESULT */
    AF_SUBMIT = 20,   /* wire_order */
    AF_FIND = 21,     /* wire_about, and so are the next two */
    AF_SIGNAL = 22,   /* signal, graceMs: quiesce */
    AF_STOP = 23,     /* graceMs: answered at the end */
    AF_LIST = 24,     /* no body: all keys with their state, their cluster, what they hold */
    AF_FORGET = 25,   /* wire_about: the agent may drop the records of an ended run */
    AF_RENEW = 26,    /* wire_renew; no answer */
    AF_RESULT = 27,   /* agent: wire_result */
    AF_OBSERVED = 28, /* agent: observation, unasked */
    AF_STAGE = 29,    /* wire_stage: verify the checkpoint, or search for a newer one */
    AF_CLAIM = 30,    /* wire_about: the run belongs to that cluster now */
    AF_DOCUMENT = 31, /* wire_about: RESULT has the Workload as it was sent, as JSON text */
    AF_BOOK = 32,     /* wire_book_ask: RESULT has promises[], next, full */
    AF_LET_GO = 33,   /* wire_let_go */
    AF_SAVE = 34,     /* wire_save: saves and goes on; observations tell how far it is */
    AF_WORKERS = 35,  /* agent: run_workers, unasked, ahead of the observation that it belongs to */
    AF_FINALIZE = 36 /* wire_about: the log has the end of this run; its records may go */
};

/* ---- frames between a runner that calls home and the hub ---- */
enum home_frame {
    HOME_HELLO = 1,    /* runner: home_hello, first */
    HOME_WELCOME = 2,  /* hub: home_welcome, or of an older one no body: it is taken */
    HOME_REDIRECT = 3, /* hub: wire_redirect, then it closes */
    HOME_REFUSED = 4,  /* hub: home_refused, then it closes */
    HOME_BEAT = 5,     /* runner: wire_beat; hub: the answer, no body */
    HOME_REPORT = 10,  /* runner: run_report, on every change; the id counts them */
    HOME_HEARD = 11,   /* hub, no body: the report of this id has been taken in */
    HOME_RENEW = 12,   /* hub: shim_renew */
    HOME_STOP = 13,    /* hub: shim_stop */
    HOME_SAVE = 14,    /* hub: shim_save; signal 0: the one that the runner was started with */
    HOME_GO = 15       /* hub, no body: all ranks are ready, the program may start */
};

/* ---- streams on the sessions of both (connectors/streams); the id is the stream's ---- */
enum stream_frame {
    SF_LOGS = 40, /* hub: wire_open, and so is the next */
    SF_EXEC = 41, /* argv, stdin */
    SF_DATA = 42, /* runner or agent: bytes; flags: fd */
    SF_END = 43,  /* runner or agent: wire_end */
    /* flags 1 pause, 0 go on; hub: of DATA; runner or agent: of INPUT, if wire_open permits it */
    SF_PAUSE = 44,
    SF_INPUT = 45,   /* hub: bytes; flags 1: no more */
    SF_CLOSE = 46,   /* hub: it wants no more */
    SF_OPENED = 47,  /* runner or agent, no body: it is open; ahead of all DATA, if it was asked */
    SF_FORWARD = 48, /* hub: wire_open: to a port on which a program listens */
    SF_SIZE = 49,    /* hub: wire_size: the terminal of an EXEC */
    /* runner or agent, no body: FORWARD: no more DATA comes, INPUT is still taken */
    SF_EOF = 50,
    /* hub: wire_open: a piece of the log for a store (connectors/kept), when there is enough of it.
     * It begins paused: OPENED says that the piece is there, and the hub lets it come. */
    SF_KEEP = 51,
    SF_AT = 52 /* runner or agent: wire_at: where a LOGS is, if it was asked to tell */
};

/* Called after reading: a checkpoint that names no cut in a store is not present. */
void observation_settle(struct observation *o);
void checkpoint_settle(struct run_checkpoint_report *c);
/* Reads a body of `schema` into an arena, which turns soft. */
int wire_read_body(const struct schema *schema, struct slice text, struct arena *a, void **ret,
                   struct err *err) MUST_CHECK;
/* Sends a body. E_TOOLARGE: it is longer than a frame may be, and nothing was sent. */
int wire_send_body(struct stream *s, int type, uint64_t id, const struct schema *schema,
                   const void *body, struct err *err) MUST_CHECK;
/* Sends a body whose size is bounded by its struct, and that nobody waits for: one that is too
 * large all the same is logged and not sent. */
void wire_tell_body(struct stream *s, int type, uint64_t id, const struct schema *schema,
                    const void *body);
/* The same by the name of the schema, with a check that the struct has that type. */
#define wire_read(name, text, a, ret, err)                                                         \
    wire_read_body(&schema_##name, (text), (a), (void **)(1 ? (ret) : (struct name **)NULL), (err))
#define wire_send(s, type, id, name, body, err)                                                    \
    wire_send_body((s), (type), (id), &schema_##name, 1 ? (body) : (const struct name *)NULL, (err))
#define wire_tell(s, type, id, name, body)                                                         \
    wire_tell_body((s), (type), (id), &schema_##name, 1 ? (body) : (const struct name *)NULL)

/* Largest JSON of an observation: each byte of a text may become six. */
#define WIRE_OBSERVATION_MAX                                                                       \
    (692 + RUN_KEY_MAX +                                                                           \
     6 * (sizeof((struct observation *)0)->reason + sizeof((struct observation *)0)->message +     \
          sizeof((struct run_save *)0)->reason + sizeof((struct run_save *)0)->message +           \
          sizeof((struct run_checkpoint_report *)0)->digest +                                      \
          sizeof((struct run_checkpoint_report *)0)->path))
#define WIRE_REPORT_MAX 16384
#define HOME_ADDRESSES_MAX 16 /* members that a runner which calls home knows */
#define WIRE_BOOK_PAGE 256 /* promises on a page, plus the rest of the page's last bucket */
#define WIRE_LISTED_MAX (96 + RUN_KEY_MAX)
#define WIRE_WORKER_MAX 512   /* a worker of an order: rank, node, devices */
#define WIRE_WORKERS_PAGE 256 /* workers in one AF_WORKERS */
/* Largest JSON of a run_worker: what one of an order has, numbers, a reason and an id. */
#define WIRE_TOLD_MAX (WIRE_WORKER_MAX + 192 + 6 * 64 + 128)

#endif
