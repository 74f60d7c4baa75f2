/* Agents of Targets that the state does not have; heard by any member. */
#ifndef HANSE_CONTROLPLANE_LEADER_RECOVER_STRANGERS_H
#define HANSE_CONTROLPLANE_LEADER_RECOVER_STRANGERS_H

#include "controlplane/leader/context/context.h"

struct cJSON;
struct strangers {
    struct connector_lobby *lobby;
    struct {
        char name[256];
        uint64_t at_ms;
    } * v; /* who has dialed in this leadership, at most STRANGERS_MAX */
    size_t n;
    uint64_t since_ms; /* it began, or somebody could not be counted */
};

void stranger_came(struct brain *b, const char *target);
void stranger_turn_away(struct brain *b, struct stream *s, const char *target, const char *why);
void strangers_begin(struct brain *b);
void strangers_look(struct brain *b); /* recovery may have begun */
/* Until everybody who can come has dialed; 0: they have. */
uint64_t strangers_wait_ms(const struct brain *b);
/* Some have dialed, and the log does not know of them yet. */
bool strangers_uncounted(const struct brain *b);
/* One is said to be dead that is neither a Target nor a stranger: an error that names those. */
bool stranger_unnamed(const struct brain *b, const struct recover_ask *ask, struct err *err);
void strangers_status(const struct brain *b, struct cJSON *j);
void strangers_drop(struct brain *b);

#endif
