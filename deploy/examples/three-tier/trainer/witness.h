/* The witness: what a process says of its own life, in a file that Hanse does not know. One JSON
 * line an event, one write() a line, O_APPEND, under 4096 bytes, so that lines of many processes
 * never mix. A line after the stop line would be a lie about the process's end: none is ever
 * written. */
#ifndef THREE_TIER_WITNESS_H
#define THREE_TIER_WITNESS_H

#include <stddef.h>
#include <stdint.h>

struct witness;

/* Opens the file and writes the start line, then beats from a thread of its own until
 * witness_close: a heartbeat whenever 100 ms passed without one. Signals must be blocked before. A
 * NULL path gives a witness that says nothing. NULL with a sentence in `why` when the file cannot
 * be written. */
struct witness *witness_open(const char *path, uint32_t rank, uint64_t step, char *why,
                             size_t why_size);

/* Called by the training loop: notes the step, writes a heartbeat when one is due. -1 when a line
 * could not be written: a life without evidence should end. */
int witness_step(struct witness *witness, uint64_t step);

/* A line at once: "resumed", "saving" and "saved" say with which step, so that a reader can tell
 * what a move lost. -1 as above. */
int witness_note(struct witness *witness, const char *event, uint64_t step);

/* The stop line, the last one. Returns NULL. */
struct witness *witness_close(struct witness *witness, const char *reason, int status);

#endif
