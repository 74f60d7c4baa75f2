/* What this cluster would have done with what others run on one of its targets. Jobs and pods are
 * given to it as they are listed; then the Jobs that could be handed over are placed, one after the
 * other, on a copy of the pool in which they hold nothing yet. Pure but for the state that it
 * is given: nothing is written, nothing is sent, and no other part of the brain hears of it. */
#ifndef HANSE_CONTROLPLANE_LEADER_ADOPT_SHADOW_H
#define HANSE_CONTROLPLANE_LEADER_ADOPT_SHADOW_H

#include "connectors/foreign.h"
#include "policy/policy.h"

struct shadow;
/* ns: of the target; "": all. Both are copied. */
struct shadow *shadow_create(const char *target, const char *ns);
struct shadow *shadow_destroy(struct shadow *s); /* accepts NULL; returns NULL */
/* The state, by which Nodes, Targets, Namespaces and Workloads are found; NULL: there is none. */
struct shadow_docs {
    const struct object *(*get)(void *arg, enum kind_id kind, const char *ns, const char *name);
    void *arg;
};
/* What is listed; all Jobs come ahead of all pods. */
void shadow_job(struct shadow *s, const struct shadow_docs *docs, const struct foreign_item *job);
void shadow_pod(struct shadow *s, const struct shadow_docs *docs, const struct foreign_item *pod);
/* Takes a copy of the pool, in which what those Jobs hold is free. busy: what runs on that node is
 * not known, so that nothing of it is freed. */
struct shadow_place {
    const struct shadow_docs *docs;
    const struct pool *pool; /* for shadow_begin alone */
    int64_t now_ms, log_index;
    bool (*busy)(void *arg, const char *node);
    void *arg;
};
void shadow_begin(struct shadow *s, const struct shadow_place *p);
/* Places some more of them: one at least, more as long as `more` says so. false: all are done. */
bool shadow_step(struct shadow *s, const struct shadow_place *p, bool (*more)(void *arg),
                 void *more_arg);
/* Adds the report as JSON (api/server/README.md, operation adopt.shadow), with at most `limit` rows
 * each of Jobs and of what else runs there; out->failed: it had no room. */
void shadow_tell(const struct shadow *s, size_t limit, int64_t now_ms, struct buf *out);

#endif
