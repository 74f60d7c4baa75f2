/* Strangers: agents of Targets that the state does not have; any member may hear them. */
#ifndef HANSE_CONTROLPLANE_LEADER_RECOVER_STRANGERS_H
#define HANSE_CONTROLPLANE_LEADER_RECOVER_STRANGERS_H

#include "controlplane/leader/context/context.h"

struct cJSON;
struct strangers {
    /* reads the HELLO of an agent before it is turned away; owned */
    struct connector_lobby *lobby;
    struct {
        char name[256];
        uint64_t at_ms;
    } * v; /* strangers that have dialed in this leadership, at most STRANGERS_MAX */
    size_t n;
    /* loop time of the election, or of the last stranger that could not be counted */
    uint64_t since_ms;
};

void stranger_came(struct brain *b, const char *target);
void stranger_turn_away(struct brain *b, struct stream *s, const char *target, const char *why);
void strangers_begin(struct brain *b);
void strangers_look(struct brain *b); /* counts remembered strangers once recovery has begun */
/* Returns the ms until every agent that can reach this member has dialed. */
uint64_t strangers_wait_ms(const struct brain *b);
/* True when a stranger has dialed and the log does not have it yet. */
bool strangers_uncounted(const struct brain *b);
/* True, and an error that lists the known names, when ask names a dead one that is neither a Target
 * nor a stranger. */
bool stranger_unnamed(const struct brain *b, const struct recover_ask *ask, struct err *err);
void strangers_status(const struct brain *b, struct cJSON *j);
void strangers_drop(struct brain *b);

#endif
