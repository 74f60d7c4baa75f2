/* What Migrations hold in the pool, and Migrations that the brain itself begins, on their way into
 * the log. */
#ifndef HANSE_CONTROLPLANE_LEADER_MOVE_BEGIN_H
#define HANSE_CONTROLPLANE_LEADER_MOVE_BEGIN_H

#include "controlplane/leader/context/context.h"

struct plans {
    unsigned n;        /* plans that were proposed and not answered */
    void *by_workload; /* their workloads, by uid (struct planned) */
};

/* ---- what the pool holds for a move, beside what its workload holds ---- */
/* Holds what the root says of this Migration: its destination, while move_holds(phase). */
void move_hold(struct brain *b, const struct object *migration);
/* Holds what this Migration is about to reserve, before the root has it. The next move_hold puts it
 * right. */
void move_hold_ahead(struct brain *b, const struct object *migration, const struct object *workload,
                     const struct placement *p);

/* ---- plans: Migrations that the brain begins ---- */
unsigned begin_count(const struct brain *b);
/* May the brain begin a Migration of this workload? The workload holds a place, and neither a
 * Migration nor a plan moves it. */
bool begin_possible(const struct brain *b, const struct object *workload);
/* Fills in one workload of a plan. *begin borrows texts and documents. */
void begin_fill(struct move_begin *begin, const struct object *workload, enum move_cause cause,
                const struct move_choice *c);
/* Does the same, and the pool holds its destination until the plan is answered. */
void begin_take(struct brain *b, struct move_begin *begin, const struct object *workload,
                enum move_cause cause, const struct move_choice *c);
/* Proposes a plan that begin_take has filled in; done gets what became of it. */
void begin_propose(struct brain *b, struct migrate_cmd *m, void (*done)(void *arg, bool begun),
                   void *arg);

#endif
