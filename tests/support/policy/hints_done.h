/* Hints read back from their words, and done to copies of the documents: apart from how they were
 * found. */
#ifndef HANSE_TESTS_SUPPORT_POLICY_HINTS_DONE_H
#define HANSE_TESTS_SUPPORT_POLICY_HINTS_DONE_H

#include "tests/support/policy/policy_world.h"

#define MINUTE 60000

enum hint_kind {
    H_CLASS,
    H_TIER,
    H_REGION,
    H_TARGET,
    H_LABELS,
    H_TARGETS,
    H_INTERCONNECT,
    H_ISOLATION,
    H_RESHARD,
    H_MIN_MEMORY,
    H_MIN_SPEED,
    H_WITHIN,
    H_BURST,
    H_BORROW,
    H_GUARANTEED,
    H_LEND_LIMIT,
    H_LEND,
    H_MAX_GPUS,
    H_WINDOW,
    H_PRICE,
    H_COST,
    H_DEADLINE,
    H_WORKERS,
    H_MIN_WORKERS,
    H_GPUS,
    H_FRACTION,
    H_MIG,
    H_CPU,
    H_MEMORY,
    H_WAIT,
    H_PRIORITY,
    H_NR
};
struct change {
    enum hint_kind kind;
    int64_t n;
    double x;
    char s[64], class_[64];
};

bool hints_admit(const struct world *w, const struct object *o, int64_t now,
                 const struct change *c);

struct told {
    const char **v;
    uint32_t n;
};

struct told hints_at(struct world *w, const struct object *o, int64_t now);
bool hints_is_pair(const char *text);
/* Reads every hint back and does it. Two changes are told only where no single one is. */
void hints_all_true(struct world *w, const struct object *o, int64_t now, struct told t,
                    long count[H_NR]);
/* What was decided runs since an hour ago. */
void hints_run(struct world *w, const struct object *o);

#endif
