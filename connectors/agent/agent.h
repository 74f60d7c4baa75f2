/* `hanse agent`, and the connector driver that talks to it.
 *
 * The agent runs on the target, dials out to the servers, and alone starts shims (`hanse run`). It
 * may be killed at any moment: what it has accepted is in its state folder before anything starts,
 * shims hold their leases themselves, and a restarted agent finds and adopts them. The driver runs
 * in the server and holds nothing that it could not ask the agent for again. */
#ifndef HANSE_CONNECTORS_AGENT_AGENT_H
#define HANSE_CONNECTORS_AGENT_AGENT_H

#include "connectors/connector.h"
#include "connectors/shim/runner_os.h"

#define AGENT_SERVERS_MAX 16
struct agent_config { /* borrows its strings while the agent lives */
    struct runner_os *os;
    const char *servers[AGENT_SERVERS_MAX];
    unsigned n_servers;
    const char *target;
    const char *inventory_file; /* NULL: this machine, one node */
    const char *state_dir;
    /* FIRST-LAST and NAMESPACE=UID[:GID], separated by ','; NULL: all programs run as the agent */
    const char *users;
    /* below which checkpoint stores may lie, separated by ':'; NULL: STATE/stores:/srv/hanse */
    const char *store_roots;
    int64_t pids; /* most processes of a worker; 0: 16384 */
    /* strongest way to hold process trees together; the machine may allow less */
    enum run_processes most;
    struct tls_config *tls;    /* NULL: plain, where the loop allows it */
    const struct proxy *proxy; /* between it and the servers (api/base/net/proxy.h); NULL: none */
    uint64_t heartbeat_ms;  /* 0: 1000 */
    uint64_t silence_ms;    /* the session is over after this long without a frame; 0: 10000 */
};
struct agent;
/* Reads inventory and state, adopts running shims, and begins to dial. Errors name the file and the
 * remedy. */
int agent_create(struct loop *l, const struct agent_config *cfg, struct agent **ret,
                 struct err *err) MUST_CHECK;
/* Ends the session and frees the agent; shims go on by their leases. */
struct agent *agent_destroy(struct agent *a);
/* Reads the inventory again; on an error the old one stays. */
int agent_reload(struct agent *a, struct err *err) MUST_CHECK;

/* `hanse agent …`; argv[0] is "agent". */
int agent_main(int argc, char **argv);

/* The connector driver, and that of Targets with spec.agents: several of the former as one. */
extern const struct connector_ops connector_agent_ops, connector_fleet_ops;

#endif
