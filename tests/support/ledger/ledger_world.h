/* A federation that lives through random commands: work that is placed, runs, is lost in every way
 * and moves; nodes that come, sicken and vanish; targets out of reach; prices that change; and the
 * state through a snapshot's bytes in between, as after a change of leader. The ledger is held
 * against ledger_model.h all along. */
#ifndef HANSE_TESTS_SUPPORT_LEDGER_WORLD_H
#define HANSE_TESTS_SUPPORT_LEDGER_WORLD_H

#include "tests/support/ledger/ledger_model.h"

struct ledger_world;
struct ledger_world *ledger_world_create(uint64_t seed);
void ledger_world_destroy(struct ledger_world *w);
/* Until that many commands have changed something. Aborts where a snapshot does not give the same
 * state again. */
void ledger_world_run(struct ledger_world *w, uint64_t events);
const struct root *ledger_world_root(const struct ledger_world *w);
struct ledger_model *ledger_world_model(struct ledger_world *w);

/* How busy the GPUs of a run are, as a target may tell it; NULL: it does not. */
struct gpu_use *ledger_use_rnd(uint64_t seed, int64_t gpus, int64_t now, struct arena *a);

struct ledger_counts {
    uint64_t commands, events, snapshots, terms, placed, ended, moved, days;
};
struct ledger_counts ledger_world_counts(const struct ledger_world *w);
double ledger_world_seconds(const struct ledger_world *w); /* spent in apply */

#endif
