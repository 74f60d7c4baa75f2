/* libraft's I/O on the virtual world: a log on a simulated disk, messages as datagrams. For
 * core_config.raft_io_create and raft_io_destroy; raft_io_arg is the host. What a crash leaves is
 * what was durable: what the disk had begun, and not finished, may be there or not. */
#ifndef HANSE_TESTS_SIM_WORLD_SIM_RAFT_IO_H
#define HANSE_TESTS_SIM_WORLD_SIM_RAFT_IO_H

#include "tests/sim/world/sim_loop.h"

struct raft_io;

int sim_raft_io_create(void *host, struct loop *l, const char *dir, struct raft_io **ret,
                       struct err *err);
void sim_raft_io_destroy(void *host, struct raft_io *io);
/* What its disk holds now, the log and the files; and that put in the place of what it holds, while
 * no process uses it. A copy may be put back many times. */
struct sim_disk_copy;
struct sim_disk_copy *sim_disk_copy(struct sim_host *h);
void sim_disk_put_back(struct sim_host *h, const struct sim_disk_copy *c);
void sim_disk_copy_free(struct sim_disk_copy *c);
/* Each operation of its disk takes up to so much longer; 0 = as fast as it is. */
void sim_raft_io_slow(struct sim_host *h, unsigned ms);

#endif
