/* What the files of the contract share: calls that wait, and what was seen. */
#ifndef HANSE_TESTS_SUPPORT_CONNECTOR_CONTRACT_INTERNAL_H
#define HANSE_TESTS_SUPPORT_CONNECTOR_CONTRACT_INTERNAL_H

#include "tests/support/contract/connector_contract.h"

#define CALL_MS (r->call_ms ? r->call_ms : 10000)
#define PATIENCE_MS (CALL_MS + 5000)

struct asked {
    struct call call; /* first */
    unsigned done;
    uint64_t asked_ms, done_ms;
    struct loop *loop;
    enum outcome out;
    bool has;
    struct observation seen;
    struct err err;
};

enum outcome contract_submit(struct connector_rig *r, const struct run_key *k,
                             enum contract_program what, struct asked *a);
enum outcome contract_find(struct connector_rig *r, const struct run_key *k, uint64_t ms,
                           struct asked *a);
enum outcome contract_submit_by(struct connector_rig *r, const struct run_key *k,
                                enum contract_program what, uint64_t ms, struct asked *a);
enum outcome contract_stop(struct connector_rig *r, const struct run_key *k, struct asked *a);
/* The call is in doubt because the target was called out of reach: then it is in reach again, and
 * is asked again, by the same key, as the leader does. */
bool contract_was_lost(struct connector_rig *r, enum outcome out);
#define CONTRACT_LOST_MAX 5 /* so often in one test */
/* It is stopped, and that is proved; asked again where its target was lost meanwhile. */
void contract_stopped(struct connector_rig *r, const struct run_key *k, struct asked *a);
struct run_key contract_running(struct connector_rig *r, struct asked *a);
const struct observation *contract_await_run(struct connector_rig *r, const struct run_key *k,
                                         enum run_state state);
struct run_key contract_fresh_key(struct connector_rig *r);
void contract_ask_begin(struct connector_rig *r, struct asked *a, uint64_t ms);
enum outcome contract_ask_end(struct connector_rig *r, struct asked *a);
const struct observation *contract_seen_of(struct connector_rig *r, const struct run_key *k);

#endif
