/* Cuts, and what can be wrong with them. The words for it are those of the contract
 * (connectors/connector.h). */
#include "tests/sim/federation/sim_store.h"

#include "api/base/hash.h"

#include "api/base/mem.h"

#include <stdio.h>
#include <string.h>

uint64_t sim_state_next(uint64_t s)
{
    s += 0x9e3779b97f4a7c15ull;
    s = (s ^ (s >> 30)) * 0xbf58476d1ce4e5b9ull;
    s = (s ^ (s >> 27)) * 0x94d049bb133111ebull;
    return s ^ (s >> 31);
}
uint64_t sim_state_first(const char *uid)
{
    return hash_text(uid);
}

void sim_store_init(struct sim_store *s)
{
    list_init(&s->cuts);
}

struct sim_cut *sim_store_add(struct sim_store *s, const char *base, const struct sim_cut *from)
{
    struct sim_cut *c;

    if (!*base)
        return NULL;
    c = mem_new(struct sim_cut);
    *c = *from;
    (void)snprintf(c->path, sizeof c->path, "%s/sealed/e%lld/cut-%lld.json", base,
                   (long long)c->epoch, (long long)c->step);
    (void)snprintf(c->digest, sizeof c->digest, "sha256:%016llx%016llx%016llx%016llx",
                   (unsigned long long)sim_state_first(c->uid), (unsigned long long)c->epoch,
                   (unsigned long long)c->step, (unsigned long long)c->state);
    list_push(&s->cuts, &c->link);
    return c;
}

struct sim_cut *sim_store_by_path(const struct sim_store *s, const char *path)
{
    list_for_each (it, &s->cuts) {
        struct sim_cut *c = container_of(it, struct sim_cut, link);
        if (!strcmp(c->path, path))
            return c;
    }
    return NULL;
}
static bool in_reach(const struct sim_cut *c, const char *room)
{
    return strncmp(c->path, SIM_LOCAL_STORE "/", sizeof SIM_LOCAL_STORE) || !strcmp(c->room, room);
}

static const char *fault_of(const struct sim_cut *c, const char *room, const char *uid,
                            int64_t ranks, const char *digest)
{
    if (!c || !in_reach(c, room) || c->damage == DAMAGE_MISSING || c->damage == DAMAGE_REMOVED)
        return "CheckpointMissing";
    if (c->damage == DAMAGE_TORN)
        return "CheckpointTorn";
    if (c->damage == DAMAGE_ALTERED || strcmp(c->digest, digest))
        return "CheckpointAltered";
    if (strcmp(c->uid, uid))
        return "CheckpointForeign";
    if (ranks && c->ranks != ranks) /* 0: any number will do */
        return "CheckpointRanks";
    return NULL;
}
const char *sim_store_verify(struct sim_store *s, const char *room, const char *uid, int64_t ranks,
                             const char *path, const char *digest, const struct sim_cut **ret)
{
    const struct sim_cut *c = sim_store_by_path(s, path);
    const char *why = fault_of(c, room, uid, ranks, digest);

    s->refused += why != NULL;
    *ret = c;
    return why;
}

static bool newer(const struct sim_cut *a, const struct sim_cut *b)
{
    return a->epoch != b->epoch ? a->epoch > b->epoch : a->step > b->step;
}
const struct sim_cut *sim_store_look(const struct sim_store *s, const char *room, const char *uid,
                                     int64_t ranks, int64_t epoch, int64_t known_epoch,
                                     int64_t known_step)
{
    const struct sim_cut known = {.epoch = known_epoch, .step = known_step}, *best = NULL;

    list_for_each (it, &s->cuts) {
        const struct sim_cut *c = container_of(it, struct sim_cut, link);
        if (!fault_of(c, room, uid, ranks, c->digest) && c->epoch <= epoch && newer(c, &known) &&
            (!best || newer(c, best)))
            best = c;
    }
    return best;
}
struct sim_cut *sim_store_newest(const struct sim_store *s, const char *uid, int64_t epoch)
{
    struct sim_cut *best = NULL;

    list_for_each (it, &s->cuts) {
        struct sim_cut *c = container_of(it, struct sim_cut, link);
        if (c->damage == DAMAGE_NONE && !strcmp(c->uid, uid) && (!epoch || c->epoch == epoch) &&
            (!best || newer(c, best)))
            best = c;
    }
    return best;
}
bool sim_store_was_damaged(const struct sim_store *s, const char *uid)
{
    list_for_each (it, &s->cuts) {
        const struct sim_cut *c = container_of(it, struct sim_cut, link);
        if (c->damage != DAMAGE_NONE && c->damage != DAMAGE_REMOVED && !strcmp(c->uid, uid))
            return true;
    }
    return false;
}

void sim_store_retain(struct sim_store *s, const char *uid, int64_t keep, uint64_t told_before_ms)
{
    if (keep < 2)
        keep = 2;
    list_for_each (it, &s->cuts) {
        struct sim_cut *c = container_of(it, struct sim_cut, link);
        int64_t later = 0;
        if (c->damage != DAMAGE_NONE || strcmp(c->uid, uid))
            continue;
        list_for_each (jt, &s->cuts) {
            const struct sim_cut *x = container_of(jt, struct sim_cut, link);
            later += x->damage == DAMAGE_NONE && !strcmp(x->uid, uid) && newer(x, c) &&
                     x->told_ms && x->told_ms < told_before_ms;
        }
        if (later >= keep)
            c->damage = DAMAGE_REMOVED;
    }
}
