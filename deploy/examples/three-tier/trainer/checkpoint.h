/* Saving and resuming by Hanse's program contract (deploy/examples/README.md): state first,
 * manifest last, both written whole, synced and renamed. A checkpoint that does not match its
 * manifest, or belongs to another run (seed, rank, world, data), is never resumed from. */
#ifndef THREE_TIER_CHECKPOINT_H
#define THREE_TIER_CHECKPOINT_H

#include <stddef.h>
#include <stdint.h>

#include "deploy/examples/three-tier/trainer/model.h"

struct checkpoint_history {
    char current[64], previous[64]; /* names that the newest manifest, and the one before, hold */
};

/* 0, or -1 with a sentence in `why`; an older checkpoint stays valid then. */
int checkpoint_save(const char *dir, const struct model *model, uint64_t data_digest,
                    struct checkpoint_history *history, char *why, size_t why_size);

/* Fills `model`, which names the run that is expected (seed, rank, world); 0, or -1 with `why`. */
int checkpoint_load(const char *dir, uint64_t data_digest, struct model *model, char *why,
                    size_t why_size);

#endif
