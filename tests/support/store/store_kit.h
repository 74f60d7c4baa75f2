/* A state to play with: commands made, encoded, put into entries and applied, as a leader would.
 * For the tests of the store only. */
#ifndef HANSE_TESTS_SUPPORT_STORE_STORE_KIT_H
#define HANSE_TESTS_SUPPORT_STORE_STORE_KIT_H

#include "controlplane/store/store_internal.h"
#include "tests/support/unit.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

struct kit {
    struct root *root;
    uint64_t number, index, term;
    int64_t now;
    struct arena *a;
    const char *ns;
    int64_t retries, exit_code;
    bool requeue;
    const char *reason; /* of steps; NULL: the step's own text */
    struct run_checkpoint *checkpoint;
    struct target_pause *pause; /* of a refusal; NULL: none */
    struct placement *seats;    /* that the target gave; NULL: not told */
    enum command_type last;     /* what was applied last */
    enum run_step last_step;
    struct buf log;        /* every entry, after its length */
    const char *gpu_class; /* of nodes that are told of; NULL: h100 */
};

/* Through bytes and back, as everything in the log. */
struct result kit_apply(struct kit *k, const union command *c);
struct result kit_write(struct kit *k, struct write_op *ops, uint32_t n, const char *revision,
                        const char *id);
void kit_op(struct write_op *op, enum write_verb verb, enum kind_id kind, const char *ns,
            const char *name, const void *body);
struct meta *kit_meta(struct kit *k, const char *ns, const char *name);
struct result kit_create(struct kit *k, enum kind_id kind, const char *ns, const char *name,
                         void *body);
struct result kit_update(struct kit *k, enum kind_id kind, const char *ns, const char *name,
                         const void *body, uint64_t rv, bool status);
struct result kit_delete(struct kit *k, enum kind_id kind, const char *ns, const char *name);
struct result kit_namespace(struct kit *k, const char *name);
void kit_op_queue(struct kit *k, struct write_op *op, const char *name, const char *parent);
struct result kit_workload(struct kit *k, const char *ns, const char *name, int64_t workers,
                           int64_t gpus);
struct result kit_facts(struct kit *k, const char *target, uint32_t nodes, uint32_t gpus,
                        bool reachable);
void kit_pool(struct kit *k, uint32_t nodes, uint32_t gpus);
const struct object *kit_get(struct kit *k, const char *name);
const struct workload_status *kit_status(struct kit *k, const char *name);
enum phase kit_phase(struct kit *k, const char *ns, const char *name);
void kit_place_head(struct kit *k, union command *c, const char *name, const char *outcome,
                    const char *reason);
struct result kit_pending(struct kit *k, const char *name, const char *reason, int64_t position);
/* `workers` workers on one node, `gpus` devices each from `first` on. */
struct placement *kit_workers(struct kit *k, const char *node, int64_t first, int64_t workers,
                              int64_t gpus);
struct result kit_place(struct kit *k, const char *name, const char *node, int64_t first,
                        int64_t workers, int64_t gpus);
struct result kit_run(struct kit *k, const char *name, int64_t epoch, int64_t try_,
                      enum run_step step);
bool kit_change(const struct change *c, void *arg);
/* What all members know from now on. */
void kit_level_set(struct kit *k, uint32_t level);
/* The state as another member has it, that reads a snapshot now. */
void kit_reload(struct kit *k);
void kit_begin(struct kit *k);
/* Every test ends with the invariants, and with a snapshot that says the same. */
void kit_end(struct kit *k);

#endif
