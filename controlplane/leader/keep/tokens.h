/* Tokens that hold no more leave the state. */
#ifndef HANSE_CONTROLPLANE_LEADER_KEEP_TOKENS_H
#define HANSE_CONTROLPLANE_LEADER_KEEP_TOKENS_H

#include "controlplane/leader/context/context.h"

struct tokens {
    struct timer look;
    struct token_cursor at;
    bool more;
};

void tokens_reset(struct brain *b);
void tokens_drop(struct brain *b);

#endif
