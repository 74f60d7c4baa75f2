/* What the files of the hub's side share: the connector driver of agents. */
#ifndef HANSE_CONNECTORS_AGENT_HUB_INTERNAL_H
#define HANSE_CONNECTORS_AGENT_HUB_INTERNAL_H

#include "api/base/list.h"
#include "api/base/log.h"
#include "connectors/agent/agent.h"
#include "connectors/streams/streams.h"
#include "connectors/wire/wire.h"

#define HUB_SILENCE_MS 5000 /* five missed beats end the session */
/* Turns of the loop between that silence and its judgement: all that was in the sockets by then has
 * been read, so that a stall of this process does not count as the agent's silence. */
#define HUB_LAST_LOOKS 3

/* An agent other than the one that spoke for the target last waits so long for that one. */
#define HUB_PATIENCE_MS 15000
/* An agent that is heard so long after another one has asked is alive: there are two. It is longer
 * than a beat, so that frames which were on their way do not count. */
#define HUB_ALIVE_MS 1500
#define HUB_GUESTS_MAX 4

struct hub_session {  /* an agent that has dialed in: the present one, or a guest */
    struct list link; /* link in hub.guests */
    struct hub *hub;
    struct stream *stream;
    struct frame_reader reader;
    uint64_t heard_ms, asked_ms; /* loop times: of its last frame; of its HELLO */
    unsigned looks;              /* looks for silence since it was heard */
    struct timer look;
    uint64_t beat_ms, beat_came_ms; /* the agent's clock in its last beat; when it came */
    struct arena *mem; /* owns hello, which is read when a guest is taken */
    struct wire_hello *hello;
    /* ids of its state folder, its machine's boot, its process; "": the agent names none */
    char state[48], boot[64], instance[40];
    bool reshards; /* it understands orders with `reshard` */
    bool shares;   /* and with `shared` */
    bool opens;    /* it tells when a stream is open */
    bool notices;  /* it tells notices */
    /* it knows since when and with times, terminals, and FORWARD */
    bool times, terminals, forwards;
    bool keeps; /* it understands orders with `logBase` */
    bool spans; /* and orders of part of a gang, */
    bool gathers; /* also of one that saves */
    bool places; /* it tells where logs are */
};
struct hub {
    struct connector base;       /* must be first */
    struct hub_session *session; /* the present session; NULL: none */
    struct stream *stream;       /* its stream; NULL: none */
    bool hello;                  /* the session is taken, and calls can be made */
    char id[64];                 /* id of the session */
    char expected[48];           /* state folder that spoke for the target last; "": any */
    struct list guests;
    uint64_t next_id;
    struct list calls;
    struct asked_streams streams; /* of the session */
    bool pages_open;   /* a listing of which pages are missing, */
    uint64_t pages_id; /* under this id */
};
struct hub_call {
    struct list link;
    struct hub *hub;
    uint64_t id;
    enum agent_frame type;
    struct run_key key;
    struct call *call;
    struct timer deadline;
    struct err why;  /* why the call could not be sent */
    run_judge judge; /* for sweep */
    void *judge_arg;
    promise_judge promised; /* for promises */
    void *promised_arg;
    uint64_t rv, older_ms;
    document_cb document; /* for document */
    void *document_arg;
};

struct hub *hub_of(struct connector *c);
/* hub_session.c */
/* Returns the time, on the agent's clock, from which a lease granted now counts. */
uint64_t hub_lease_from(const struct hub *h);
void hub_sessions_end(struct hub *h, const char *why);

/* hub_calls.c */
/* body NULL: none. k: the run that it concerns, or NULL. */
void hub_call_begin(struct hub *h, struct call *call, enum agent_frame type,
                    const struct run_key *k, const struct schema *schema, const void *body);
void hub_call_sweep(struct hub *h, run_judge judge, void *arg, struct call *call);
void hub_call_promises(struct hub *h, uint64_t rv, uint64_t older_ms, promise_judge judge,
                       void *arg, struct call *call);
void hub_call_document(struct hub *h, const struct run_key *k, uint64_t deadline_ms, document_cb cb,
                       void *arg);
const char *hub_cluster(const struct hub *h);   /* "": not known yet */
struct wire_hub hub_state(const struct hub *h); /* cluster, resourceVersion and time of its state */
void hub_call_answer(struct hub *h, uint64_t id, struct wire_result *r);
void hub_calls_lost(struct hub *h, const char *why); /* ends all with OUT_UNKNOWN */
/* hub_order.c */
/* Makes the order in arena a. An error: no agent could take it. */
int hub_order(const struct hub *h, const struct run_order *o, struct arena *a,
              struct wire_order *ret, struct err *err) MUST_CHECK;
/* Does its agent know gangs over several agents that save? One that is away says so itself. */
int hub_meeting_check(const struct hub *h, struct err *err) MUST_CHECK;
void hub_stage_order(const struct run_order *o, struct arena *a, struct wire_stage *ret);
/* hub_nodes.c. Tells a page of an inventory, or what changed of it, on to the caller. */
int hub_nodes_tell(struct hub *h, uint64_t id, const struct wire_nodes *page,
                   struct err *err) MUST_CHECK;
/* Passes on all notices of the target, or refuses them as a whole. list NULL: there are none. */
int hub_notices_take(struct hub *h, const struct wire_notices *list, struct err *err) MUST_CHECK;
/* hub_streams.c */
int hub_logs(struct connector *c, const struct run_key *k, const struct log_request *rq,
             const struct log_sink *sink, struct exec_session **ret, struct err *err);
int hub_exec(struct connector *c, const struct run_key *k, const struct exec_request *rq,
             const struct log_sink *sink, struct exec_session **ret, struct err *err);
int hub_forward(struct connector *c, const struct run_key *k, const struct forward_request *rq,
                const struct log_sink *sink, struct exec_session **ret, struct err *err);

#endif
