/* libraft's messages as bytes, for sim_raft_io.c. */
#ifndef HANSE_TESTS_SIM_WORLD_SIM_RAFT_WIRE_H
#define HANSE_TESTS_SIM_WORLD_SIM_RAFT_WIRE_H

#include "api/base/mem.h"

#include <raft.h>

struct cursor {
    const unsigned char *p;
    size_t n;
};
void sim_wire_put(struct buf *b, uint64_t v);
void sim_wire_put_bytes(struct buf *b, const void *p, size_t n);
uint64_t sim_wire_get(struct cursor *c);
struct raft_buffer sim_wire_get_bytes(struct cursor *c); /* borrowed */
void sim_wire_encode(struct buf *b, const struct raft_message *m);
/* What the message points to is libraft's own memory, for it to free. */
void sim_wire_decode(struct cursor *c, struct raft_message *m);

#endif
