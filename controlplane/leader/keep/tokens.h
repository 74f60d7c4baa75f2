/* Removes tokens from the state that are expired or revoked. */
#ifndef HANSE_CONTROLPLANE_LEADER_KEEP_TOKENS_H
#define HANSE_CONTROLPLANE_LEADER_KEEP_TOKENS_H

#include "controlplane/leader/context/context.h"

struct tokens {
    struct timer look;
    struct token_cursor at; /* where the next look begins */
    bool more;              /* that look did not reach the end: the next comes soon */
};

void tokens_reset(struct brain *b);
void tokens_drop(struct brain *b);

#endif
