/* The pace that a lease sets. All of it serves one aim: a member that is away for a moment, or
 * another that takes over from it, ends no run. From the time from which a lease counts (the last
 * beat before a round) to the one at which its program is told to save, an election, a new session
 * and a renewal have room, also where the lease is short and the grace long. */
#ifndef HANSE_CONNECTORS_PACE_H
#define HANSE_CONNECTORS_PACE_H

#include <stdint.h>

#define BEAT_MS 1000 /* of a session where no short lease is held */
/* A renewal follows a quorum round that took no longer, and counts from a time before it. */
#define ROUND_MS 500

/* Returns how long before the end of its lease a program is told to save: as its grace says, at
 * most half of the lease, and less where it would leave too little to live through an election. */
uint64_t pace_save_ms(uint64_t lease_ms, uint64_t grace_ms);
/* Returns how long a holder waits for a word of its hub before it dials another member; lease_ms 0:
 * none is held. */
uint64_t pace_silence_ms(uint64_t lease_ms, uint64_t otherwise_ms);
uint64_t pace_beat_ms(uint64_t lease_ms);
/* Returns the longest pause between two dials of a runner that was refused so often in a row by
 * hubs that answered: at first a moment, since who leads may not be known yet; then longer, where
 * it holds no lease, for what was said so often will be said again. */
uint64_t pace_redial_ms(uint64_t lease_ms, unsigned refusals);
/* Returns from when, by the clock of who beats, a renewal counts that is sent now: beat_ms is that
 * clock in its last beat, age_ms how long ago by our own clock that beat came. */
uint64_t pace_lease_from(uint64_t beat_ms, uint64_t age_ms);

#endif
