/* The brain: what the leading member does with the state. Runs on the outer loop of every member
 * and sleeps where the member does not lead. It proposes; the log decides. Nothing here is truth: a
 * brain can be thrown away at any moment, and the next one goes on from the root and from what the
 * targets tell.
 *
 *   scheduler   takes queued workloads to policy_cycle, and proposes PLACE for what it decided
 *   driver      one for each workload that holds a place: reads its phase, does the next effect,
 *               and reports what was seen
 *   targets     one connector for each Target: reach, inventory → FACTS; it renews leases only
 *               after a round in which a majority answered
 *
 * Every effect outside is preceded by its committed intent and by a check that this member still
 * leads in the term in which the effect was decided. */
#ifndef HANSE_CONTROLPLANE_LEADER_BRAIN_H
#define HANSE_CONTROLPLANE_LEADER_BRAIN_H

#include "api/base/loop/loop.h"
#include "api/server/backend.h"
#include "connectors/connector.h"
#include "controlplane/raft/core.h"

struct brain;
struct brain_config {
    struct loop *loop; /* the outer loop; all calls below are made on it */
    struct core *core;
    /* The driver for a Target type; the simulator and tests put their own here. NULL: the
     * one of this build (sites.c). */
    const struct connector_ops *(*driver)(enum target_type type);
    /* Values of Secrets (hanse-system/NAME key, or a workload's namespace). Text belongs to the
     * callee until put. */
    const char *(*secret_get)(void *arg, const char *ns, const char *name, const char *key);
    void (*secret_put)(void *arg, const char *text);
    void *arg;
    /* Seconds east of UTC of an IANA zone at a time; false when the zone is not known. */
    bool (*zone_offset)(const char *zone, int64_t utc_ms, int *ret_seconds);
    uint32_t redial_ms; /* agents without a session dial so often; 0 = AGENT_REDIAL_MAX_MS */
    uint32_t cycle_ms;  /* how often pending work with waits is looked at again; 0 = 500 */
};
struct brain *brain_create(const struct brain_config *cfg);
/* outstanding calls end first */
void brain_close(struct brain *b, void (*closed)(void *arg), void *arg);
/* From core_events, posted to the outer loop. */
void brain_leading(struct brain *b, bool leads, uint64_t term);
void brain_root(struct brain *b);
/* An accepted ALPN_AGENT stream: goes to the connector of the target that its certificate names, is
 * sent to the leader when another member leads, or is refused with a clear word (no such Target,
 * not of type agent). */
void brain_agent(struct brain *b, struct stream *s);
/* backend_ops.exec (logs too). E_UNAVAIL when another member leads. */
struct brain_session;
int brain_exec(struct brain *b, const struct api_exec *e, const struct api_stream_sink *sink,
               struct brain_session **ret, struct err *err) MUST_CHECK;
void brain_exec_input(struct brain_session *s, const void *p, size_t n, bool eof);
size_t brain_exec_pending(const struct brain_session *s); /* input that waits for its agent */
void brain_exec_close(struct brain_session *s);
/* For `hanse status`: targets with last contact, reach, calls in flight; drivers; scheduler
 * figures. JSON object. */
void brain_status(struct brain *b, struct buf *out);
void brain_metrics(struct brain *b, struct buf *out);
/* An operator's recorded fence: the run is dead for certain. Proposes FENCED. */
void brain_fence(struct brain *b, const char *ns, const char *workload, const char *who,
                 void (*cb)(void *arg, const struct err *err), void *arg);

/* Runs that targets list and the state cannot answer for: as of the last sweep, JSON. */
void brain_orphans(struct brain *b, struct buf *out);
/* What targets carry is taken over, and recovery settled when every Target was heard or is said to
 * be dead. json: {"adopted","refused","settled","why","next","waitMs"}; next: ask again, after that
 * one; waitMs: ask again after so long, agents are on their way. */
#define RECOVER_DEAD_MAX 1024
typedef void (*recover_cb)(void *arg, const char *json, const struct err *err);
struct recover_ask { /* borrowed for the call */
    const char *who, *after;
    const char *const *dead;
    size_t n_dead;
};
void brain_recover(struct brain *b, const struct recover_ask *ask, recover_cb cb, void *arg);
/* One of them, that somebody names: recorded, then taken over as recover does, where nothing else
 * speaks for its workload. json: {"adopted":[…]}; without it, why not. */
void brain_orphan_adopt(struct brain *b, const char *target, const char *key, const char *who,
                        recover_cb cb, void *arg);
/* Somebody says that such a run is to be ended: recorded, then done. cb: once it is recorded. */
void brain_orphan_end(struct brain *b, const char *target, const char *key, const char *who,
                      void (*cb)(void *arg, const struct err *err), void *arg);

#endif
