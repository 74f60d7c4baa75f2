/* What the leader's part for machines calls of others, answered by the world: included once in each
 * test program, ahead of the library that has the real ones. */
#ifndef HANSE_TESTS_SUPPORT_MACHINES_FARM_HOOKS_H
#define HANSE_TESTS_SUPPORT_MACHINES_FARM_HOOKS_H

#include "controlplane/leader/context/refusals.h"
#include "controlplane/leader/keep/events.h"
#include "tests/support/machines/farm_world.h"

void brain_propose(struct brain *b, const union command *c, propose_cb cb, void *arg)
{
    farm_propose(b, c, cb, arg);
}

void brain_propose_bytes(struct brain *b, const char *id, struct slice s, propose_cb cb, void *arg)
{
    (void)b;
    (void)id;
    (void)s;
    (void)cb;
    (void)arg;
    fail();
}

void brain_request_id(struct brain *b, char out[REQUEST_ID_MAX])
{
    (void)b;
    (void)snprintf(out, REQUEST_ID_MAX, "r-%llu", (unsigned long long)farm_world->kit.number);
}

int64_t brain_time_ms(const struct brain *b)
{
    return 1800000000000 + (int64_t)loop_now_ms(b->loop);
}

struct site *site_find(struct brain *b, const char *name)
{
    struct farm_leader *l = container_of(b, struct farm_leader, brain);

    return strcmp(name, FARM_TARGET) == 0 ? &l->site : NULL;
}

void events_of_target(struct brain *b, const struct object *target, const char *reason,
                        const char *why)
{
    (void)b;
    (void)why;
    farm_report(target, reason);
}

#endif
