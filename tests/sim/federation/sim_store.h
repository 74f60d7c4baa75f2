/* The checkpoint store of the virtual world: what programs have written, whole or not, and where it
 * can be read. Nothing is forgotten: what was removed or damaged stays in the record, so that the
 * checks can tell what a run should have resumed from. */
#ifndef HANSE_TESTS_SIM_FEDERATION_SIM_STORE_H
#define HANSE_TESTS_SIM_FEDERATION_SIM_STORE_H

#include "api/base/list.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_LOCAL_STORE "/local" /* each room's own; any other store is reached from all rooms */

enum sim_damage { DAMAGE_NONE, DAMAGE_TORN, DAMAGE_ALTERED, DAMAGE_MISSING, DAMAGE_REMOVED };
struct sim_cut {
    struct list link;
    char uid[64], path[256], digest[80], room[32]; /* room: that wrote it */
    int64_t epoch, step, ranks, bytes;
    uint64_t state;               /* of the program, after `step` steps */
    uint64_t written_ms, told_ms; /* told: first sent to a member; 0 = not yet */
    enum sim_damage damage;
};
struct sim_store {
    struct list cuts; /* in the order in which they were written */
    unsigned damaged, refused;
};

void sim_store_init(struct sim_store *s);
/* `base` is the workload's folder, "" = it keeps none: then NULL. */
struct sim_cut *sim_store_add(struct sim_store *s, const char *base, const struct sim_cut *c);
/* What a runner in `room` finds there: NULL and *ret when it may be resumed from, else the
 * reason. */
const char *sim_store_verify(struct sim_store *s, const char *room, const char *uid, int64_t ranks,
                             const char *path, const char *digest, const struct sim_cut **ret);
/* The newest that a runner in `room` may resume from, of no later epoch, and newer than what is
 * known. */
const struct sim_cut *sim_store_look(const struct sim_store *s, const char *room, const char *uid,
                                     int64_t ranks, int64_t epoch, int64_t known_epoch,
                                     int64_t known_step);
/* The newest (by epoch, then step) that is whole; in `epoch` only, or 0 = in any. */
struct sim_cut *sim_store_newest(const struct sim_store *s, const char *uid, int64_t epoch);
struct sim_cut *sim_store_by_path(const struct sim_store *s, const char *path);
bool sim_store_was_damaged(const struct sim_store *s, const char *uid); /* one of its cuts, ever */
/* The runner's retention: what is older than `keep` cuts that were told before `told_before_ms`
 * goes. */
void sim_store_retain(struct sim_store *s, const char *uid, int64_t keep, uint64_t told_before_ms);
/* One more step of every program; and the state before the first one. */
uint64_t sim_state_next(uint64_t state);
uint64_t sim_state_first(const char *uid);

#endif
