/* Two members' doors and up to two callers, over real TLS in one loop. Must hold no opinion of what
 * is right; it asks and waits. */
#ifndef HANSE_TESTS_SUPPORT_HOME_WORLD_H
#define HANSE_TESTS_SUPPORT_HOME_WORLD_H

#include "api/base/net/tls.h"
#include "connectors/home/home.h"
#include "tests/support/unit.h"

#define LINE "0123456789abcdef0123456789abcdef"

struct hub_side {
    struct listener *listener;
    struct home_door *door;
    struct home_runs *runs;
    struct connector_env env;
    char address[32];
    const char *redirect, *refuse; /* whoever shows a good token is sent there; refused for that */
    const struct home_welcome *welcome; /* whoever is taken is told that */
    bool over, deaf;               /* of refuse; deaf: streams are taken, and nobody answers */
    unsigned came, told, accepted;
    struct stream *last;
    const struct home_keep *keep; /* of whoever comes */
};
extern struct hub_side H[2];
struct caller_side {
    struct home_caller *caller;
    struct home_caller_config cfg;
    const char *addresses[2];
    char token[HOME_TOKEN_MAX], why[256];
    char node[64]; /* as it was told by the last welcome */
    uint32_t n_gpus;
    int64_t gpu; /* the last of them */
    unsigned welcomes, refusals, heard, renewals, stops, saves, goes;
    struct frame_told { /* the last one of a stream */
        uint8_t type;
        uint64_t id;
    } frame;
    bool over, spent;
    struct shim_renew renew;
    struct shim_stop stop;
    struct shim_save save;
};
extern struct caller_side C[2];
extern struct home_world {
    char dir[64];
    struct loop *loop;
    struct tls_config *server, *client;
    const char *key; /* that the hub signs with */
    struct timer poll;
    uint64_t until_ms;
    bool (*wanted)(void);
    bool had;
} W;

extern const struct home_keys home_world_keys;

int home_world_setup(void **state);
int home_world_teardown(void **state);
bool within(bool (*wanted)(void), uint64_t ms);
void until(bool (*wanted)(void)); /* fails the test when it does not come */
void hub_begin(struct hub_side *h);
void hub_end(struct hub_side *h);
struct home_token token_of(int64_t epoch, int64_t rank, int64_t ranks);
void caller_begin(struct caller_side *c, const struct home_token *t);
bool welcome(void); /* the first caller is */

#endif
