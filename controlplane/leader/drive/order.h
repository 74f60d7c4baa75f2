/* What a connector is told to run, and what it may say of it. */
#ifndef HANSE_CONTROLPLANE_LEADER_DRIVE_ORDER_H
#define HANSE_CONTROLPLANE_LEADER_DRIVE_ORDER_H

#include "controlplane/leader/context/context.h"

struct site;
int order_make(struct site *t, const struct object *workload, const struct placement *p,
               const struct run_key *k, struct arena *a, struct run_order *ret,
               struct err *err) MUST_CHECK;
/* The same without environment and lease: to read what it resumes from. */
void order_stage(struct site *t, const struct object *workload, const struct placement *p,
                 const struct run_key *k, struct arena *a, struct run_order *ret);
/* A target tells this of a run of that epoch, or found it: may it be believed where it says it
 * is? Neither a path beside the workload's own store and epoch nor numbers out of range reach
 * the log. */
int order_checkpoint_told(const struct object *workload, int64_t epoch,
                          const struct run_checkpoint_report *r, struct err *err) MUST_CHECK;
/* Advised time between two checkpoints that take write_ms each; 0 = none. t and p may be NULL. */
int64_t order_interval_ms(const struct site *t, const struct object *workload,
                          const struct placement *p, int64_t write_ms);

#endif
