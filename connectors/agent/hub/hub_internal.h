/* What the files of the server's side share. */
#ifndef HANSE_CONNECTORS_AGENT_HUB_INTERNAL_H
#define HANSE_CONNECTORS_AGENT_HUB_INTERNAL_H

#include "api/base/list.h"
#include "api/base/log.h"
#include "connectors/agent/agent.h"
#include "connectors/wire/wire.h"

#define HUB_SILENCE_MS 5000 /* five missed beats: the session is over, and a new one may come */
/* Turns of the loop between that and judging it: all that was in the sockets by then has been read,
 * so that what our own stall hid is not the agent's silence. */
#define HUB_LAST_LOOKS 3

#define HUB_NODES_MAX 5000                     /* of one target */
#define HUB_NODES_BYTES_MAX ((size_t)96 << 20) /* of them, as they are kept until the last page */

/* An agent that is not the one which spoke for the target last waits so long for that one. */
#define HUB_PATIENCE_MS 15000
/* Who is heard so long after another one has asked lives: they are two. Longer than a beat, so that
 * nothing which was on its way already counts. */
#define HUB_ALIVE_MS 1500
#define HUB_GUESTS_MAX 4

#define HUB_BEATS 8
/* A quorum round that took longer than this must not be followed by renew(): a lease counts from a
 * beat that is at least so old, and so came before the round began. */
#define HUB_ROUND_MAX_MS 500

struct hub_session {  /* one agent that has dialed in: the one that is taken, or a guest */
    struct list link; /* of guests */
    struct hub *hub;
    struct stream *stream;
    struct frame_reader reader;
    uint64_t heard_ms, asked_ms; /* asked: its HELLO came */
    unsigned looks;              /* whether it is silent, since it was heard */
    struct timer look;
    struct hub_beat { /* the agent's clock in its last beats, and ours when they came; [0] is the
                         newest */
        uint64_t at_ms, received_ms;
    } beats[HUB_BEATS];
    struct arena *mem; /* of hello, which is looked at when a guest is taken */
    struct wire_hello *hello;
    /* Its state folder, its machine's boot, its process; "" of agents that do not tell. */
    char state[48], boot[64], instance[40];
    bool reshards; /* it knows orders that say so */
};
struct hub {
    struct connector base;       /* first */
    struct hub_session *session; /* that is taken; NULL = none */
    struct stream *stream;       /* the session's; NULL = none */
    bool hello;                  /* it is taken, calls can be made */
    char id[64];                 /* of the session */
    char expected[48];           /* the state folder that spoke for the target last; "" = any */
    struct list guests;
    uint64_t next_id;
    struct list calls, streams;
    struct hub_pages { /* an inventory that has not come whole yet */
        struct arena *arena;
        struct node *nodes;
        size_t n;
        uint64_t id;
        bool refused; /* a node of it was not taken */
    } pages;
};
struct hub_call {
    struct list link;
    struct hub *hub;
    uint64_t id;
    enum agent_frame type;
    struct run_key key;
    struct call *call;
    struct timer deadline;
    struct err why;  /* of a call that could not be sent */
    run_judge judge; /* of sweep */
    void *judge_arg;
    promise_judge promised; /* of promises */
    void *promised_arg;
    uint64_t rv, older_ms;
    document_cb document; /* of document */
    void *document_arg;
};
struct exec_session { /* logs or exec */
    struct list link;
    struct hub *hub;
    uint64_t id;
    struct log_sink sink;
    struct timer tick; /* looks whether a full sink has room again */
    bool paused;
};

struct hub *hub_of(struct connector *c);
/* hub_session.c */
/* What a lease that is granted now counts from, on the agent's clock. */
uint64_t hub_lease_from(const struct hub *h);
void hub_sessions_end(struct hub *h, const char *why);

/* hub_calls.c */
/* body NULL: none. key: of the run that it is about, or NULL. */
void hub_call_begin(struct hub *h, struct call *call, enum agent_frame type,
                    const struct run_key *k, const struct schema *schema, const void *body);
void hub_call_sweep(struct hub *h, run_judge judge, void *arg, struct call *call);
void hub_call_promises(struct hub *h, uint64_t rv, uint64_t older_ms, promise_judge judge,
                       void *arg, struct call *call);
void hub_call_document(struct hub *h, const struct run_key *k, uint64_t deadline_ms, document_cb cb,
                       void *arg);
const char *hub_cluster(const struct hub *h);   /* "" = not known yet */
struct wire_hub hub_state(const struct hub *h); /* how far its state has come */
void hub_call_answer(struct hub *h, uint64_t id, struct wire_result *r);
void hub_calls_lost(struct hub *h, const char *why); /* all end unknown */
/* hub_order.c */
/* Into arena a. An error: no agent could take it. */
int hub_order(const struct hub *h, const struct run_order *o, struct arena *a,
              struct wire_order *ret, struct err *err) MUST_CHECK;
void hub_stage_order(const struct run_order *o, struct arena *a, struct wire_stage *ret);
/* hub_nodes.c: an inventory, page by page */
int hub_pages_take(struct hub *h, uint64_t id, const struct wire_nodes *page,
                   struct err *err) MUST_CHECK;
void hub_pages_drop(struct hub *h);
/* hub_streams.c */
int hub_logs(struct connector *c, const struct run_key *k, const struct log_request *rq,
             const struct log_sink *sink, struct exec_session **ret, struct err *err);
int hub_exec(struct connector *c, const struct run_key *k, const struct exec_request *rq,
             const struct log_sink *sink, struct exec_session **ret, struct err *err);
void hub_exec_input(struct exec_session *s, const void *p, size_t n, bool eof);
size_t hub_exec_pending(const struct exec_session *s);
void hub_exec_close(struct exec_session *s);
void hub_stream_frame(struct hub *h, const struct frame *f);
void hub_streams_lost(struct hub *h, const char *why);

#endif
