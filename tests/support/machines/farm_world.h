/* A Target that rents machines, as badly as it is told to, beside a state and the leader's part
 * that keeps its pools. Time is the test's, chance is a seed's. Leaders come and go: what an
 * earlier one sent may arrive while the next one leads. farm_hooks.h puts the world in the place of
 * what the part calls of others. */
#ifndef HANSE_TESTS_SUPPORT_MACHINES_FARM_WORLD_H
#define HANSE_TESTS_SUPPORT_MACHINES_FARM_WORLD_H

#include "controlplane/leader/machines/machines.h"
#include "controlplane/leader/site/sites.h"
#include "tests/support/store/store_kit.h"

#define FARM_TARGET "cloud"
#define FARM_MACHINES 512
#define FARM_REQUESTS 256
#define FARM_LEADERS 64

struct rented { /* what the target has under a key */
    char key[MACHINE_NAME_MAX];
    char order[256]; /* all of its order that must not differ */
    char zone[64];
    enum machine_state state; /* 0: never given, and never to be */
    bool refused;             /* released ahead */
    uint64_t made_ms, until_ms, ended_ms, boots_ms;
    bool hidden; /* nothing shows it any more */
    bool unread; /* what is told of it cannot be read */
    unsigned given;
};

struct farm_leader {
    struct brain brain;
    struct machines machines;
    struct connector connector;
    struct site site;
};

/* Odds in 1000 for each request, where not told otherwise. */
struct faults {
    unsigned lost, late, twice, reply_lost; /* a request; its answer */
    unsigned propose_lost, propose_unheard; /* a command; its answer */
    unsigned list_cut, refuse;
    unsigned unread; /* what is told of a machine cannot be read */
    uint64_t lag_ms; /* that listings lag behind */
};

struct farm_request {
    bool used;
    enum { ASKS_ORDER, ASKS_RELEASE, ASKS_RENEW, ASKS_LIST, ASKS_PRICES } what;
    char key[MACHINE_NAME_MAX], order[256], zone[64], keys[8][MACHINE_NAME_MAX];
    size_t n_keys;
    uint64_t ttl_ms;
    uint64_t arrives_ms, answers_ms; /* loop time; the second once it has arrived */
    bool arrived, again;             /* again: the copy of another one, which nobody answers */
    enum outcome out;
    struct refusal refused;
    struct farm_leader *leader;
    struct call *call; /* NULL: nobody waits for it any more */
};

struct farm_world {
    struct kit kit;
    struct loop *loop;
    struct timer step;
    struct faults faults;
    uint64_t chance;
    struct farm_leader *leaders[FARM_LEADERS]; /* the last one leads */
    size_t n_leaders;
    struct rented rented[FARM_MACHINES];
    size_t n_rented;
    struct farm_request requests[FARM_REQUESTS];
    struct {
        bool used, applied;
        uint64_t at_ms;
        struct farm_leader *leader;
        propose_cb cb;
        void *arg;
        struct result result;
    } answers[FARM_REQUESTS];
    size_t most;       /* machines that it has at once; 0: any number */
    double price;      /* of one hour */
    double dearer;     /* which what is given costs more; 0: as much */
    uint64_t lives_ms; /* after which what is given ends by itself; 0: by its time to live */
    const char *currency, *gives_class; /* of what is given */
    int64_t gives_gpus;
    bool left;         /* what it has was given up: the state may have it as ended */
    unsigned conflicts_at; /* orders that are refused for good from now on */
    /* what was seen */
    unsigned orders, releases, renewals, lists, prices, reports;
    unsigned ended_early, unreadable; /* reports of that */
    char reported[64];
};

void farm_world_init(struct farm_world *w, uint64_t seed);
void farm_world_fini(struct farm_world *w);
void farm_world_run(struct farm_world *w, uint64_t ms);
/* Sets spec.machines of the Target; every pool is of class h100, zone a unless told otherwise. */
struct machine_pool *farm_pool(struct farm_world *w, const char *name, int64_t count);
void farm_pools_set(struct farm_world *w, const struct machine_pool *pools, uint32_t n);
void farm_lead(struct farm_world *w); /* the leadership ends, and a new one begins */
struct farm_leader *farm_leads(struct farm_world *w);
struct rented *farm_rented(struct farm_world *w, const char *key);
/* How many the target has, and the state; -1: of any pool or phase. */
size_t farm_alive(const struct farm_world *w);
size_t farm_in_phase(struct farm_world *w, int phase);
const struct object *farm_first(struct farm_world *w); /* the first Machine that has not ended */
/* A node of a machine, and work on it. */
void farm_node(struct farm_world *w, const char *node, const char *key);
/* Aborts unless: what the state has as ended is gone for good; what the target has is in the log or
 * was; every order under a key was the same. */
void farm_check(struct farm_world *w);

/* for farm_hooks.h */
void farm_report(const struct object *about, const char *reason);
void farm_propose(struct brain *b, const union command *c, propose_cb cb, void *arg);
extern struct farm_world *farm_world;

#endif
