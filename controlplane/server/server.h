/* `hanse server`: one member, with the core loop on a thread of its own and the outer loop (API,
 * brain, connectors) on the main one. `hanse dev`: a small federation on this machine, which runs
 * `hanse server` and `hanse agent`. */
#ifndef HANSE_CONTROLPLANE_SERVER_SERVER_H
#define HANSE_CONTROLPLANE_SERVER_SERVER_H

#include "api/base/loop/loop.h"
#include "connectors/connector.h"
#include "controlplane/raft/core.h"

struct server_config {
    /* listen, data directory, peers, bootstrap, timing; server_create fills in TLS */
    struct core_config core;
    const char *listen; /* host:port for users and agents: "127.0.0.1:7443" */
    /* this member's certificate with CN "member:ID"; NULL in the simulator */
    const char *cert_file, *key_file, *ca_file;
    const char *key_ring;   /* file, outside the data directory */
    const char *ready_file; /* written with the ports once the API listens; or NULL */
    /* NULL: the drivers of this build */
    const struct connector_ops *(*driver)(enum target_type type);
    void (*listening)(void *arg, int port); /* the API accepts connections */
    /* the member cannot start, or must not go on: the process must end */
    void (*fatal)(void *arg, const struct err *why);
    void *arg;
};
struct server;
/* Starts the member on the loop that will serve users, in the background: `listening` or `fatal`
 * follows. */
int server_create(struct loop *l, const struct server_config *cfg, struct server **ret,
                  struct err *err) MUST_CHECK;
void server_close(struct server *s, void (*closed)(void *arg), void *arg);
int server_port(const struct server *s);

int skip_entry_main(int argc, char **argv); /* hanse server skip-entry */
int server_main(int argc, char **argv);     /* returns the exit status */
int dev_main(int argc, char **argv);

#endif
