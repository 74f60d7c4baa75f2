/* The ends of libraft's AIO contexts, away from its loop. The file defines syscall(2) for the whole
 * program, which is how libraft ends one: linking it is all that is needed. */
#ifndef HANSE_CONTROLPLANE_RAFT_AIO_AIO_H
#define HANSE_CONTROLPLANE_RAFT_AIO_AIO_H

#include <stdint.h>

/* Waits until the kernel has let go of all contexts that were handed over; milliseconds. */
void aio_settle(void);
uint64_t aio_away(void); /* how many were handed over since the program began */

#endif
