/* Moves to play with: a hub (fra), a spoke (ber), workloads with priorities, and a MIGRATE for each
 * step. For the tests of the store only. */
#ifndef HANSE_TESTS_SUPPORT_STORE_MOVE_KIT_H
#define HANSE_TESTS_SUPPORT_STORE_MOVE_KIT_H

#include "tests/support/store/store_kit.h"

void kit_target(struct kit *k, const char *name, enum tier tier, uint32_t nodes, uint32_t gpus);
void kit_class(struct kit *k, const char *name, int64_t value, bool never_victim,
               int64_t minimum_runtime);
/* `gpus` whole devices of one node, from `first` on. */
struct placement *kit_placement(struct kit *k, const char *node, int64_t first, int64_t gpus);
const struct object *kit_move(struct kit *k, const char *name);
const struct migration_status *kit_move_status(struct kit *k, const char *name);
/* A workload on its node, running in its first epoch. */
void kit_running(struct kit *k, const char *name, const char *class_, const char *node,
                 int64_t first, int64_t gpus);
struct move_begin kit_begin_of(struct kit *k, const char *name, enum move_cause cause,
                               struct placement *to);
/* A plan; `for_` NULL: nobody's room is made. */
struct result kit_plan(struct kit *k, struct move_begin *b, uint32_t n, const char *for_,
                       struct placement *nominated);
void kit_step_of(struct kit *k, union command *c, const char *name, enum move_step step);
struct result kit_step(struct kit *k, const char *name, enum move_step step);
struct result kit_reserve(struct kit *k, const char *name, const char *workload,
                          struct placement *to);
/* As a user would. */
struct result kit_ask(struct kit *k, const char *name, const char *workload, const char *to);
int64_t kit_held(struct kit *k, const char *node);
struct result kit_checkpoint(struct kit *k, const char *name, int64_t epoch, int64_t step,
                             const char *digest);

#endif
