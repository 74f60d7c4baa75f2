/* A rig (connector_contract.h) of the Kubernetes driver over the cluster in memory. */
#ifndef HANSE_TESTS_SUPPORT_KUBE_RIG_H
#define HANSE_TESTS_SUPPORT_KUBE_RIG_H

#include "tests/support/contract/connector_contract.h"
#include "tests/support/kube/kube_world.h"

struct kube_rig {
    struct connector_rig rig;
    struct object *target; /* "kube" */
    uint32_t ranks;        /* of the next orders, 1 or 3: on n2, n0 and n1 */
    struct run_key ran;    /* of that one the log has that it ran, whatever is told of it later */
    uint64_t lease_ms;     /* that runners of all runs hold by the log; 0: none */
    /* What the next orders carry: a Job of others, of two containers; a PyTorchJob. */
    enum { CARRIES_NOTHING, CARRIES_JOB, CARRIES_PYTORCHJOB } manifest;
    int stranger_rv;
    unsigned strangers;
    char stranger[128];
};
extern struct kube_rig kube_rig;
struct connector_rig *kube_rig_begin(uint64_t seed, bool chaos);
void kube_rig_chaos(void);
/* What a leader brings: keys, tokens, the namespace "work" and which runs were seen to run. */
void kube_rig_env(struct connector_rig *r, struct connector_env *ret);
void kube_rig_end(void);
/* Setup and teardown of a test without chaos; *state is the rig. */
int kube_rig_setup(void **state);
int kube_rig_teardown(void **state);
void kube_rig_passes(struct connector_rig *r, uint64_t ms); /* of virtual time */

#endif
