/* The brain: what the leading member does with the replicated state. It runs on the outer loop of
 * every member and sleeps where the member does not lead. It proposes; the log decides. The brain
 * holds no truth: it can be thrown away at any moment, and the next one continues from the root and
 * from what the targets report.
 *
 *   scheduler   takes queued workloads to policy_cycle, and proposes PLACE for each decision
 *   drivers     one for each workload that holds a place: reads its phase, does the next effect,
 *               and reports what it has seen
 *   sites       one connector for each Target: reach, inventory → FACTS, lease renewals, which
 *               follow a round in which a majority answered
 *
 * Every effect outside is preceded by its committed intent, and by a check that this member still
 * leads in the term in which the effect was decided. */
#ifndef HANSE_CONTROLPLANE_LEADER_BRAIN_H
#define HANSE_CONTROLPLANE_LEADER_BRAIN_H

#include "api/base/loop/loop.h"
#include "api/server/backend.h"
#include "connectors/connector.h"
#include "connectors/home/home.h"
#include "controlplane/raft/core.h"

struct brain;
struct brain_config {
    struct loop *loop; /* the outer loop; all calls below are made on it */
    struct core *core;
    /* The connector driver of a Target type. The simulator and tests set their own; NULL means the
     * drivers of this build (sites.c). */
    const struct connector_ops *(*driver)(enum target_type type);
    /* Returns the value of one key of a Secret, or NULL. The callee owns the text; secret_put gives
     * it back. */
    const char *(*secret_get)(void *arg, const char *ns, const char *name, const char *key);
    void (*secret_put)(void *arg, const char *text);
    void *arg;
    /* Seconds east of UTC of an IANA zone at a time; false when the zone is not known. */
    bool (*zone_offset)(const char *zone, int64_t utc_ms, int *ret_seconds);
    /* How tokens of runners are signed, and the CA that they trust, PEM. ca NULL: no runner can
     * call home. Borrowed as long as the brain lives. */
    struct home_keys keys;
    const char *ca;
    uint32_t redial_ms; /* longest pause between two dials of an agent; 0: AGENT_REDIAL_MAX_MS */
    uint32_t cycle_ms;  /* pause between two cycles over work that waits for a time; 0: 500 */
};
struct brain *brain_create(const struct brain_config *cfg);
/* Calls closed on the loop once all outstanding calls have ended. */
void brain_close(struct brain *b, void (*closed)(void *arg), void *arg);
/* Events of the core, posted to the outer loop. */
void brain_leading(struct brain *b, bool leads, uint64_t term);
void brain_root(struct brain *b);
/* Takes an accepted ALPN_AGENT stream and passes it to the connector of the target that its
 * certificate names, relays it to the leader if another member leads, or refuses it with a reason
 * (there is no such Target, or it is not of type agent). */
void brain_agent(struct brain *b, struct stream *s);
/* Takes an accepted ALPN_RUNNER stream: once its token holds it goes to the connector of the
 * target that its run is on, if the log says that the run lives; to the leader, if another member
 * leads. */
void brain_runner(struct brain *b, struct stream *s);
/* Implements backend_ops.exec, for exec and logs. Returns E_UNAVAIL when another member leads. */
struct brain_session;
int brain_exec(struct brain *b, const struct api_exec *e, const struct api_stream_sink *sink,
               struct brain_session **ret, struct err *err) MUST_CHECK;
void brain_exec_resize(struct brain_session *s, int64_t rows, int64_t columns);
void brain_exec_input(struct brain_session *s, const void *p, size_t n, bool eof);
/* bytes of input that the agent has not taken yet */
size_t brain_exec_pending(const struct brain_session *s);
void brain_exec_close(struct brain_session *s);
/* What the target of a workload shows of its run, as JSON (api/server/README.md, operation pods);
 * json is borrowed. */
void brain_pods(struct brain *b, const char *ns, const char *workload,
                void (*cb)(void *arg, const char *json, const struct err *err), void *arg);
/* What this cluster would have done with what others run on a target, as JSON (operation
 * adopt.shadow). Nothing is written and nothing is ordered. */
#define ADOPT_ROWS_MAX 2000
struct adopt_ask { /* borrowed for the call */
    const char *target;
    const char *ns; /* of the target; "": all */
    size_t limit;   /* rows at most, up to ADOPT_ROWS_MAX */
};
void brain_adopt_shadow(struct brain *b, const struct adopt_ask *ask,
                        void (*cb)(void *arg, const char *json, const struct err *err), void *arg);
/* Appends a JSON object for `hanse status`: targets with last contact, reach and calls in flight;
 * drivers; figures of the scheduler. */
void brain_status(struct brain *b, struct buf *out);
void brain_metrics(struct brain *b, struct buf *out);
/* Proposes FENCED: an operator (`who`) vouches that the run of this workload is dead. */
void brain_fence(struct brain *b, const char *ns, const char *workload, const char *who,
                 void (*cb)(void *arg, const struct err *err), void *arg);

/* Appends JSON: the orphans of the last sweep, runs that targets list and the state cannot answer
 * for. */
void brain_orphans(struct brain *b, struct buf *out);
/* Takes over what targets carry, and settles recovery once every Target was heard or is named as
 * dead. The answer is {"adopted","refused","settled","why","next","waitMs"}. next: the caller asks
 * again, with `after` set to it. waitMs: the caller asks again after so many ms, because agents may
 * still dial. */
#define RECOVER_DEAD_MAX 1024
typedef void (*recover_cb)(void *arg, const char *json, const struct err *err);
struct recover_ask { /* borrowed for the call */
    const char *who, *after;
    const char *const *dead;
    size_t n_dead;
};
void brain_recover(struct brain *b, const struct recover_ask *ask, recover_cb cb, void *arg);
/* Takes over the one orphan that `who` names, under the checks of brain_recover and only where
 * nothing else holds its workload. An Event records it first. The answer is {"adopted":[…]}, or an
 * error that says why not. */
void brain_orphan_adopt(struct brain *b, const char *target, const char *key, const char *who,
                        recover_cb cb, void *arg);
/* Ends the orphan that `who` names: an Event records it, then the next sweep ends the run. cb is
 * called once it is recorded. */
void brain_orphan_end(struct brain *b, const char *target, const char *key, const char *who,
                      void (*cb)(void *arg, const struct err *err), void *arg);

#endif
